// A page as two pictures: `node picture.mjs PAGE KEYS FILE.png` presses the keys one by one, and takes it light, and dark
// as FILE_dark.png.
import { pathToFileURL } from "node:url";
import { launched } from "./tests/found.mjs";

const [page, keys, file] = process.argv.slice(2);
if (!file) throw new Error("node picture.mjs PAGE KEYS FILE.png");
const browser = await launched();
const view = await browser.newPage({ viewport: { width: 1280, height: 800 }, colorScheme: "light" });
await view.goto(page.includes(":") ? page : pathToFileURL(page).href);
await view.waitForSelector("svg.picture [data-unit]");
for (const key of keys.split(" ").filter(Boolean)) await view.keyboard.press(key);
await view.waitForTimeout(300);
await view.screenshot({ path: file });
await view.emulateMedia({ colorScheme: "dark" });
await view.screenshot({ path: file.replace(/\.png$/, "_dark.png") });
await browser.close();
