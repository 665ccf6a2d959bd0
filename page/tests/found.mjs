// The Chromium of this machine, and how it is started.
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { chromium } from "playwright-core";

// Chromium by itself asks hosts for updates and accounts.
const QUIET = ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic"];

export function found() {
  const names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
  const paths = process.env.PATH.split(delimiter).flatMap(folder => names.map(name => join(folder, name)));
  const path = paths.find(existsSync);
  if (!path) throw new Error("no Chromium is on PATH; install it: apt-get install chromium");
  return path;
}

// Scroll bars are shown, as a person sees them.
export const launched = () => chromium.launch({ executablePath: found(), args: ["--no-sandbox", ...QUIET], ignoreDefaultArgs: ["--hide-scrollbars"] });
