// A long picture in columns: nothing is lost at a cut, nothing overlaps, and what fits the window can be read.
import assert from "node:assert/strict";
import test from "node:test";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";
import { opened } from "./open.mjs";

const pages = process.env.BACKPRINT_PAGES ?? join(import.meta.dirname, "../../build/page");
const source = 'export * from "./data"; export * from "./model"; export * from "./layout"; export * from "./state"; export * from "./wrap";';
const { outputFiles } = await build({ stdin: { contents: source, resolveDir: join(import.meta.dirname, "../src"), loader: "ts" }, bundle: true, write: false, format: "esm" });
const file = join(tmpdir(), `backprint-wrap-${process.pid}.mjs`);
writeFileSync(file, outputFiles[0].text);
const { cutsFor, parse, Model, place, firstOpen, openedTo, partsOf, pointsOf } = await import(pathToFileURL(file));
rmSync(file);

const block = name => /<script type="application\/json" id="data">(.*?)<\/script>/s.exec(readFileSync(join(pages, `${name}.html`), "utf8"))[1];
const model = name => new Model(parse(block(name)).pairs[0]);
const room = { wide: 920, high: 690 }, near = (a, b) => Math.abs(a - b) < 0.6;

for (const name of ["chain", "stack"]) for (const depth of [1, 2, 99])
  test(`${name} at depth ${depth}: columns have all that the strip has, apart from one another`, () => {
    const own = model(name), open = openedTo(own, firstOpen(own), depth), strip = place(own, open), scene = place(own, open, room);
    assert.deepEqual(scene.boxes.map(box => box.unit), strip.boxes.map(box => box.unit));
    assert.deepEqual([...scene.lineOf.keys()], [...strip.lineOf.keys()]);
    const root = partsOf(scene.boxes[0]);
    assert.equal(root.length, scene.columns);
    root.slice(1).forEach((part, at) => assert.ok(part.x > root[at].x + root[at].w, "columns overlap"));
    const groups = new Map();
    for (const box of scene.boxes) for (const part of partsOf(box)) {
      assert.ok([part.x, part.y, part.w, part.h].every(Number.isFinite) && part.h > 0);
      assert.ok(root.some(column => part.x >= column.x - 0.1 && part.x + part.w <= column.x + column.w + 0.1 && part.y + part.h <= column.y + column.h + 0.1), `${box.unit} leaves its column`);
      groups.set(box.around, [...(groups.get(box.around) ?? []), part]);
    }
    for (const parts of groups.values()) parts.forEach((a, at) => parts.slice(at + 1).forEach(b =>
      assert.ok(a.x + a.w <= b.x + 0.1 || b.x + b.w <= a.x + 0.1 || a.y + a.h <= b.y + 0.1 || b.y + b.h <= a.y + 0.1, "boxes overlap")));
    for (const box of scene.boxes) if (box.kind !== "open") assert.equal(box.parts, undefined, "a step is cut");
  });

test("a line that crosses a cut leaves its column at the edge, and enters the next at the same place", () => {
  const own = model("chain"), scene = place(own, openedTo(own, firstOpen(own), 99), room), root = partsOf(scene.boxes[0]);
  assert.ok(scene.columns > 2);
  const pieces = Map.groupBy ? Map.groupBy(scene.lines, line => line.key) : scene.lines.reduce((map, line) => map.set(line.key, [...(map.get(line.key) ?? []), line]), new Map());
  let crossings = 0;
  for (const [key, lines] of pieces) lines.slice(1).forEach((line, at) => {
    const [x, y] = pointsOf(lines[at].d).at(-1), [next, top] = pointsOf(line.d)[0], from = root.findIndex(part => x >= part.x && x <= part.x + part.w), to = root.findIndex(part => next >= part.x && next <= part.x + part.w);
    assert.equal(Math.abs(from - to), 1, key);
    assert.ok(near(x - root[from].x, next - root[to].x), `${key}: ${x - root[from].x} and ${next - root[to].x}`);
    const ends = from < to ? [y, root[from].y + root[from].h] : [top, root[to].y + root[to].h];
    assert.ok(near(...ends), `${key} ends at ${ends[0]}, its column at ${ends[1]}`);
    assert.ok(lines[at].goesOn && !lines.at(-1).goesOn);
    crossings++;
  });
  assert.ok(crossings >= scene.columns - 1, `${crossings} crossings`);
});

test("a band that is cut ends on the border of a column, and begins on that of the next", () => {
  const own = model("chain"), bands = new Map();
  let parted = 0;
  for (const depth of [1, 2, 99]) {
    const scene = place(own, openedTo(own, firstOpen(own), depth), room), borders = scene.boxes.flatMap(box => partsOf(box).flatMap(part => [part.y, part.y + part.h]));
    for (const line of scene.lines) if (line.side === "bridge") bands.set(line.key, [...(bands.get(line.key) ?? []), line]);
    for (const pieces of bands.values()) pieces.slice(1).forEach((piece, at) => {
      for (const [, y] of [pieces[at].ends[1], piece.ends[0]]) assert.ok(borders.some(border => near(border, y)), `${piece.key} at ${y}`);
      parted++;
    });
    bands.clear();
  }
  assert.ok(parted >= 2, `${parted} cuts`);
});

test("a cut leaves no part of a frame without room for a name, where it can be elsewhere", () => {
  const cuts = [{ key: "0/0", y: 450, level: 0, part: Infinity }, { key: "1/0", y: 505, level: 1, part: 12 }, { key: "0/1", y: 530, level: 0, part: Infinity }];
  assert.deepEqual(cutsFor({ wide: 800, high: 300 }, 300, 1000, cuts).map(cut => cut.key), ["0/1"]);
  assert.deepEqual(cutsFor({ wide: 800, high: 300 }, 300, 1000, cuts.slice(1, 2)).map(cut => cut.key), ["1/0"]);
});

test("what fits a window is no strip, at any depth, and its letters can be read", async () => {
  for (const [width, height] of [[1400, 900], [500, 900]]) await opened("chain", async page => {
    for (const depth of ["0", "2", "9"]) {
      await page.keyboard.press(depth);
      await page.keyboard.press("a");
      await page.waitForTimeout(120);
      const seen = await page.evaluate(() => {
        const scale = Number(/scale\(([\d.]+)\)/.exec(document.querySelector("svg.picture > g").getAttribute("transform"))[1]);
        const parts = [...document.querySelectorAll('.base .open[data-unit="-1"] .body')].map(one => one.getBoundingClientRect());
        const letters = [...document.querySelectorAll(".base text")].map(one => Number(one.getAttribute("font-size")) * scale);
        return { ratio: (Math.max(...parts.map(one => one.right)) - parts[0].left) / Math.max(...parts.map(one => one.height)), letters: Math.min(...letters), texts: letters.length };
      });
      assert.ok(seen.ratio > 0.4 && seen.ratio < 4, `${depth} in ${width}: ${seen.ratio}`);
      assert.ok(seen.texts > 0 && seen.letters >= 9, `${seen.letters} pixels`);
    }
  }, { viewport: { width, height } });
});

test("each column but the first says which it is", () => opened("chain", async page => {
  for (const key of ["9", "f"]) await page.keyboard.press(key);
  const columns = await page.locator(".column text").count();
  assert.ok(columns >= 1);
  assert.match(await page.locator(".column text").first().textContent(), /2 of \d+/);
}));

test("colors and the verdict are said above the picture, and cover nothing of it", () => opened("chain", async page => {
  const legend = await page.locator(".legend").boundingBox(), picture = await page.locator("svg.picture").boundingBox();
  assert.ok(legend.y + legend.height <= picture.y + 0.5);
  const said = await page.locator(".legend").innerText();
  for (const words of ["forward", "saved for the backward", "backward", "bitwise: outputs and gradients equal PyTorch's own, bit for bit"]) assert.ok(said.replace(/\s+/g, " ").includes(words), words);
}));

test("a box of a module has its class; a gradient has ∂", () => opened("stack", async page => {
  const titles = await page.locator(".base .title").allTextContents();
  assert.ok(titles.some(title => title.includes("head · Linear")), titles.join("; "));
  assert.ok(titles.some(title => /× 8 · Block/.test(title)), titles.join("; "));
  assert.deepEqual(await page.locator(".base .pill.tangent text").allTextContents(), ["∂output"]);
}));

test("where nothing was compared, the page says so", () => opened("stack", async page => {
  assert.match(await page.locator(".legend").innerText(), /not compared/);
}));
