/** The start: read the data, check them, draw them; or say in words what is wrong. */

import { render } from "preact";
import { App } from "./app";
import { DataError, parse } from "./data";
import { Model } from "./model";

function start(place: Element): void {
  const page = parse(document.getElementById("data")?.textContent ?? "");
  document.title = page.title || document.title;
  render(<App page={page} models={page.pairs.map(pair => new Model(pair, page.pairs.length > 1 ? pair.name : page.title))} />, place);
}

const place = document.getElementById("app")!;
try {
  start(place);
} catch (error) {
  const said = error instanceof Error ? error.message : String(error);
  render(
    <div class="wrong" role="alert">
      <h1>This page cannot be drawn</h1>
      <p>{error instanceof DataError ? "Its data are not whole, or are not what this page reads. The first thing that is wrong:" : "Something in the page itself failed:"}</p>
      <pre>{said}</pre>
      <p>Write the page again: <code>backprint view SAMPLE -o page.html</code>.</p>
    </div>,
    place,
  );
}
