// A page as a picture: `node picture.mjs PAGE KEYS FILE.png [dark]` presses the keys one by one before it takes it.
import { pathToFileURL } from "node:url";
import { launched } from "./tests/found.mjs";

const [page, keys, file, mode = "light"] = process.argv.slice(2);
if (!file) throw new Error("node picture.mjs PAGE KEYS FILE.png [dark]");
const browser = await launched(), view = await browser.newPage({ viewport: { width: 1280, height: 800 }, colorScheme: mode });
await view.goto(page.includes(":") ? page : pathToFileURL(page).href);
await view.waitForSelector("svg.picture [data-unit]");
for (const key of keys.split(" ").filter(Boolean)) await view.keyboard.press(key);
await view.waitForTimeout(300);
await view.screenshot({ path: file });
await browser.close();
