// Measure a page in a browser: `node measure.mjs PAGE` prints milliseconds as JSON. benchmarks/page.py runs it.
import { pathToFileURL } from "node:url";
import { launched } from "./tests/found.mjs";

const [file] = process.argv.slice(2);
const browser = await launched();
const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
page.on("pageerror", error => { throw error; });

// The first picture: from the start of the navigation to the frame in which units are on the screen.
await page.addInitScript(() => {
  const look = () => (document.querySelector(".base [data-unit]") ? requestAnimationFrame(() => (window.first = performance.now())) : requestAnimationFrame(look));
  requestAnimationFrame(look);
});
await page.goto(pathToFileURL(file).href);
await page.waitForFunction(() => window.first || document.querySelector(".wrong"), null, { timeout: 120000 });
if (await page.locator(".wrong").count()) throw new Error(await page.locator(".wrong").innerText());

const measured = await page.evaluate(async queries => {
  const painted = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));
  const timed = async act => {
    const start = performance.now();
    act();
    await painted();
    return performance.now() - start;
  };
  const key = name => document.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
  const click = target => target.dispatchEvent(new MouseEvent("click", { bubbles: true, detail: 1 }));
  const found = { expand: 0, search: 0, all: 0, opened: 0 };
  for (let at = 0; at < 12; at++) {
    const closed = document.querySelectorAll(".base .folded"), next = closed[Math.floor(closed.length / 2)];
    if (!next) break;
    found.expand = Math.max(found.expand, await timed(() => click(next)));
    found.opened++;
  }
  found.all = await timed(() => key("9"));
  found.whole = await timed(() => key("a"));
  const box = document.querySelector("input[type=search]");
  for (const query of queries)
    for (let end = 1; end <= query.length; end++) {
      box.value = query.slice(0, end);
      const took = await timed(() => box.dispatchEvent(new InputEvent("input", { bubbles: true })));
      if (took > found.search) [found.search, found.query] = [took, box.value];
    }
  found.select = await timed(() => { location.hash = "#pair=0&step=3"; });
  return found;
}, ["mm", "layers", "is:saved", "shape:1,", "kind:pointwise >1KiB", "module:model"]);
const first = await page.evaluate(() => window.first);
console.log(JSON.stringify({ first, ...measured, boxes: await page.locator("svg.picture").getAttribute("data-boxes") }));
await browser.close();
