// Coordinates, without a browser: nothing overlaps, everything lies in its frame, every step can be shown.
import assert from "node:assert/strict";
import test from "node:test";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";

const pages = process.env.BACKPRINT_PAGES ?? join(import.meta.dirname, "../../build/page");
const source = 'export * from "./data"; export * from "./model"; export * from "./layout"; export * from "./state"; export * from "./links";';
const { outputFiles } = await build({ stdin: { contents: source, resolveDir: join(import.meta.dirname, "../src"), loader: "ts" }, bundle: true, write: false, format: "esm" });
const file = join(tmpdir(), `backprint-layout-${process.pid}.mjs`);
writeFileSync(file, outputFiles[0].text);
const { parse, Model, LEGIBLE, place, firstOpen, openedTo, revealed, litBy } = await import(pathToFileURL(file));
rmSync(file);

const block = name => /<script type="application\/json" id="data">(.*?)<\/script>/s.exec(readFileSync(join(pages, `${name}.html`), "utf8"))[1];
const models = ["stack", "stats", "hostile", "one", "two", "diff"].flatMap(name => parse(block(name)).pairs.map(pair => [name, new Model(pair)]));
const apart = (a, b) => a.x + a.w <= b.x + 0.1 || b.x + b.w <= a.x + 0.1 || a.y + a.h <= b.y + 0.1 || b.y + b.h <= a.y + 0.1;
const inside = (a, b) => a.x >= b.x && a.y >= b.y && a.x + a.w <= b.x + b.w + 0.1 && a.y + a.h <= b.y + b.h + 0.1;

for (const [name, model] of models)
  test(`${name}: boxes of a frame lie in it and apart, however much is open`, () => {
    for (const depth of [1, 2, 99]) {
      const scene = place(model, openedTo(model, firstOpen(model), depth)), around = box => model.above(box.unit).find(frame => scene.byUnit.has(-frame - 1));
      const groups = Map.groupBy?.(scene.boxes, around) ?? scene.boxes.reduce((map, box) => map.set(around(box), [...(map.get(around(box)) ?? []), box]), new Map());
      for (const [frame, boxes] of groups)
        boxes.forEach((box, at) => {
          assert.ok([box.x, box.y, box.w, box.h].every(Number.isFinite));
          assert.ok(frame === undefined || inside(box, scene.byUnit.get(-frame - 1)), `${box.unit} leaves frame ${frame}`);
          for (const other of boxes.slice(at + 1)) assert.ok(apart(box, other), `${box.unit} and ${other.unit} overlap`);
        });
      for (const line of scene.lines) assert.doesNotMatch(line.d, /NaN|undefined|Infinity/);
    }
  });

for (const [name, model] of models)
  test(`${name}: every step can be shown, with lines to what it uses`, () => {
    for (let step = 0; step < model.count; step++) {
      const scene = place(model, revealed(model, firstOpen(model), step)), lit = litBy(model, scene, step);
      assert.ok(scene.byUnit.has(step), `step ${step}`);
      const near = model.data.nodes.inputs[step].filter(value => value < model.count && model.data.nodes.frame[value] === model.data.nodes.frame[step] && model.isForward(value) === model.isForward(step));
      for (const value of near) assert.ok([...lit.lines].some(line => line.from === value && line.to === step), `no line from ${value} to ${step}`);
    }
  });

for (const [name, model] of models)
  test(`${name}: the names of the first picture can be read in a narrow window`, () => {
    for (const wide of [384, 800]) {
      const opened = firstOpen(model, wide), { left, right } = place(model, opened);
      assert.ok((right - left) * LEGIBLE <= wide || opened.open.size === 1, `${right - left} in ${wide}`);
    }
  });
