// What the tests share: a browser, the pages that tests/draw/browser_pages.py writes, and how a person uses them.
import { after, before } from "node:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { launched } from "./found.mjs";

export const pages = process.env.BACKPRINT_PAGES ?? join(import.meta.dirname, "../../build/page");
export const expected = JSON.parse(readFileSync(join(pages, "expected.json"), "utf8"));

let browser;
before(async () => { browser = await launched(); });
after(() => browser.close());

export const address = name => pathToFileURL(join(pages, `${name}.html`)).href;

/** The data as they stand in a page. */
export function dataOf(name) {
  const text = readFileSync(join(pages, `${name}.html`), "utf8");
  return JSON.parse(/<script type="application\/json" id="data">(.*?)<\/script>/s.exec(text)[1]);
}

/** Run a test in a window of its own; what the page logs, asks of a network or fails at fails the test. */
export async function opened(name, test, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, acceptDownloads: true, ...options });
  const page = await context.newPage(), wrong = [];
  page.on("pageerror", error => wrong.push(error.stack));
  page.on("console", message => ["error", "warning"].includes(message.type()) && wrong.push(message.text()));
  page.on("dialog", dialog => { wrong.push(`dialog ${dialog.message()}`); return dialog.dismiss(); });
  page.on("request", request => !/^(file|blob|data):/.test(request.url()) && wrong.push(`asks for ${request.url()}`));
  try {
    await page.goto(name.includes(":") ? name : address(name));
    await page.waitForSelector("svg.picture [data-unit], .wrong");
    await test(page);
  } finally {
    await context.close();
  }
  if (wrong.length) throw new Error(wrong.join("\n"));
}

export const heading = page => page.locator(".panel h2").innerText();
export const fact = async (page, name) => page.locator(`.panel dt:text-is("${name}") + dd`).innerText();
export const total = page => page.locator(".total").innerText().then(text => Number(text.replaceAll(",", "")));

/** Type a query as a person does: `/`, and the words. */
export async function search(page, words) {
  await page.keyboard.press("Escape");
  await page.locator("svg.picture").focus();
  await page.keyboard.press("/");
  await page.keyboard.type(words);
}

/** Two frames, so that what was asked for is drawn. */
export const drawn = page => page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));
