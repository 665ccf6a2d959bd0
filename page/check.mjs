// Count the faults of a page's layout: `node check.mjs PAGE [FOLDER]` prints them as JSON, and saves pictures in FOLDER.
// tests/faults.mjs says what a fault is.
import { mkdirSync } from "node:fs";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";
import { launched } from "./tests/found.mjs";
import { WIDTHS, viewed } from "./tests/views.mjs";

const [file, pictures] = process.argv.slice(2);
if (!file) throw new Error("node check.mjs PAGE [FOLDER]");
if (pictures) mkdirSync(pictures, { recursive: true });
const browser = await launched(), faults = {}, examples = {};
let views = 0;
for (const [width, height] of WIDTHS) {
  const page = await browser.newPage({ viewport: { width, height } });
  page.on("pageerror", error => { throw error; });
  await page.goto(pathToFileURL(file).href);
  await viewed(page, async (name, mode, found) => {
    views++;
    for (const [kind, what] of found) {
      faults[kind] = (faults[kind] ?? 0) + 1;
      examples[kind] ??= `${name}, ${mode}, ${width}: ${what}`;
    }
    if (pictures) await page.screenshot({ path: join(pictures, `${basename(file, ".html")}_${width}_${mode}_${name}.png`) });
  });
  await page.close();
}
await browser.close();
console.log(JSON.stringify({ views, faults, examples }));
