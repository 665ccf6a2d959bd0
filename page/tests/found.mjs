// The Chromium of this machine.
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";

export function found() {
  const names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
  const paths = process.env.PATH.split(delimiter).flatMap(folder => names.map(name => join(folder, name)));
  const path = paths.find(existsSync);
  if (!path) throw new Error("no Chromium is on PATH; install it: apt-get install chromium");
  return path;
}
