// Build the page: `node build.mjs FOLDER` writes page.js and page.css there, with the licences of what is in them.
import { build } from "esbuild";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [folder] = process.argv.slice(2);
if (!folder) throw new Error("node build.mjs FOLDER");
const here = name => join(import.meta.dirname, name);

const { outputFiles, metafile } = await build({
  entryPoints: [here("src/main.tsx")],
  bundle: true, write: false, metafile: true, format: "iife", target: "es2022", charset: "utf8", minify: true, lineLimit: 160,
  jsx: "automatic", jsxImportSource: "preact", loader: { ".css": "text" }, legalComments: "none", absWorkingDir: here("."),
});
const packages = new Set(Object.keys(metafile.inputs).map(path => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]).filter(Boolean));
// Packages of one licence share its text, each with its own line of copyright.
const licences = new Map();
for (const name of [...packages].sort()) {
  const { version } = JSON.parse(readFileSync(here(`node_modules/${name}/package.json`), "utf8"));
  const lines = readFileSync(here(`node_modules/${name}/LICENSE`), "utf8").trim().split("\n");
  const owner = lines.filter(line => /^Copyright/.test(line)), text = lines.filter(line => !/^Copyright/.test(line)).join("\n").trim();
  licences.set(text, [...(licences.get(text) ?? []), `${name} ${version}: ${owner.join(", ")}`]);
}
const banner = `/* Built from page/ by "make page"; edit the sources there.\n\n${[...licences].map(([text, names]) => `${names.join("\n")}\n\n${text}`).join("\n\n\n").replaceAll("*/", "* /")}\n*/\n`;
writeFileSync(join(folder, "page.js"), banner + outputFiles[0].text);
writeFileSync(join(folder, "page.css"), readFileSync(here("src/picture.css"), "utf8") + readFileSync(here("src/page.css"), "utf8"));
