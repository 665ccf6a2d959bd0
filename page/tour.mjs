// Three pictures of pages side by side: `node tour.mjs FILE.png PAGE=KEYS PAGE=KEYS …` opens each page in a window of its
// own, presses the keys one by one, and writes a strip, light, and dark as FILE_dark.png.
import { pathToFileURL } from "node:url";
import { launched } from "./tests/found.mjs";

const WIDE = 900, HIGH = 720, SHOWN = 500, GAP = 6;
const [file, ...views] = process.argv.slice(2);
if (!file || !views.length) throw new Error("node tour.mjs FILE.png PAGE=KEYS PAGE=KEYS …");
const browser = await launched();
for (const scheme of ["light", "dark"]) {
  const shots = [];
  for (const one of views) {
    const [page, keys = ""] = one.split("=", 2), view = await browser.newPage({ viewport: { width: WIDE, height: HIGH }, colorScheme: scheme });
    await view.goto(pathToFileURL(page).href);
    await view.waitForSelector("svg.picture [data-unit]");
    for (const key of keys.split(" ").filter(Boolean)) {
      await view.keyboard.press(key);
      await view.waitForTimeout(80);
    }
    await view.waitForTimeout(300);
    shots.push((await view.screenshot()).toString("base64"));
    await view.close();
  }
  const strip = await browser.newPage({ viewport: { width: SHOWN * shots.length + GAP * (shots.length - 1), height: Math.round((SHOWN * HIGH) / WIDE) } });
  const images = shots.map(shot => `<img src="data:image/png;base64,${shot}" style="width:${SHOWN}px;display:block">`).join("");
  await strip.setContent(`<body style="margin:0;display:flex;gap:${GAP}px;background:${scheme === "dark" ? "#38414c" : "#cfd6de"}">${images}</body>`);
  await strip.waitForTimeout(200);
  await strip.screenshot({ path: scheme === "dark" ? file.replace(/\.png$/, "_dark.png") : file });
  await strip.close();
}
await browser.close();
