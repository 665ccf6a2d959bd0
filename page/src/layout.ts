/** Coordinates of the visible units: nested grids around one gutter. The structure (rows, slots) is Python's. */

import { type Bridge, type Edge, type Layout } from "./data";
import { type Model, type Unit, frameUnit } from "./model";
import { type Columns, type Cut, type Room, boxInColumns, columnsOf, cutsFor, lineInColumns } from "./wrap";
import { widthOf } from "./words";

export const GUTTER = 28, NODE = 156, SIDE = 10, ENTRY = GUTTER + SIDE + NODE / 2;
export const HEAD = 24, PILL = 17, TALL = 28, VIEW_TALL = 20;
const FOLDED = 50, FOOT = 8, GAP = 30, PAD = 14, LANE = 10;
/** What a cut between two rows adds to their gap: what turns there is then on one side of it. */
const SEAM = 30;

/** What is open, by structure, and the turn that each loop shows. */
export interface Opened {
  open: ReadonlySet<number>;
  turn: ReadonlyMap<number, number>;
}

/** A step, or a frame with two halves around `mid`. */
export interface Box {
  unit: Unit;
  x: number;
  y: number;
  w: number;
  h: number;
  /** The middle of a frame's gutter. */
  mid: number;
  kind: "node" | "folded" | "open";
  /** The depth of an open frame among those that are drawn. */
  level: number;
  /** The frame in which it is drawn, or null for the outermost. */
  around: Unit | null;
  /** The column in which it begins. */
  column?: number;
  /** Of an open frame that is cut into columns all of its parts; the first is the box itself. */
  parts?: Part[];
}

/** A part of a frame in a column. */
export interface Part {
  x: number;
  y: number;
  w: number;
  h: number;
  mid: number;
}

/** The parts of a box: of most boxes the box itself. */
export const partsOf = (box: Box): Part[] => box.parts ?? [box];

/** An edge within the frame `within`; ends are units, or null for the frame's own entry and exit. */
export interface Line {
  key: string;
  within: number;
  side: "left" | "right" | "bridge";
  from: Unit | null;
  to: Unit | null;
  d: string;
  width: number;
  /** A spec, or what is saved. */
  label: string;
  /** Points on the line where its label can stand, the best first. */
  at: Point[];
  /** Where it begins and ends. */
  ends: [Point, Point];
  box: [x: number, y: number, w: number, h: number];
  /** Whether it goes on in another column. */
  goesOn?: boolean;
}

export interface Scene {
  boxes: Box[];
  lines: Line[];
  byUnit: Map<Unit, Box>;
  lineOf: Map<string, Line>;
  left: number;
  right: number;
  height: number;
  columns: number;
}

interface Block {
  left: number;
  right: number;
  height: number;
  /** Places of an open frame's units, from its gutter's middle and its top. */
  inside?: { unit: Unit; x: number; y: number; block: Block; row: number }[];
  tops?: number[];
  bottoms?: number[];
  /** The channels' inner edges. */
  walls?: [number, number];
}

export function isOpen(model: Model, opened: Opened, frame: number): boolean {
  return opened.open.has(model.alike[frame]);
}

/** The frame whose units an open frame shows: of a loop, its turn. */
export function shownOf(model: Model, opened: Opened, frame: number): number {
  const { kind, units } = model.frame(frame);
  if (kind !== "loop") return frame;
  return shownOf(model, opened, -units[Math.min(turnOf(model, opened, frame), units.length - 1)] - 1);
}

export function turnOf(model: Model, opened: Opened, loop: number): number {
  return Math.min(opened.turn.get(model.alike[loop]) ?? 0, model.frame(loop).units.length - 1);
}

/** The least scale of a first picture, and the margin beside it: names of steps can be read. */
export const LEGIBLE = 0.45, beside = (wide: number) => (wide < 500 ? 8 : 24);

/** The size of the smallest letters that can be read, up to which pills and what lines say are drawn. */
export const NEAR = 14;

/** Wide enough for its letters wherever it is drawn. */
export function pillWidth(text: string): number {
  return Math.min(widthOf(text, NEAR, true) + 10, 116);
}

/** The pills left or right of a step. */
export function pillsOf(model: Model, node: number): { left: PillRow[]; right: PillRow[] } {
  const found = model.pills.get(node), none: PillRow[] = [];
  if (!found) return { left: none, right: none };
  const all = [...found.outer, ...found.made];
  const shown = all.length > 4 ? [...all.slice(0, 3), { text: `+${all.length - 3}`, title: all.slice(3).map(one => one.title).join("\n"), role: "more" }] : all;
  return model.isForward(node) ? { left: shown, right: none } : { left: none, right: shown };
}

export interface PillRow {
  text: string;
  title: string;
  role: string;
}

function nodeBlock(model: Model, node: number): Block {
  const { left, right } = pillsOf(model, node), room = (pills: PillRow[]) => pills.length ? Math.max(...pills.map(one => pillWidth(one.text))) + 5 : 0;
  const high = Math.max(model.isView(node) ? VIEW_TALL : TALL, Math.max(left.length, right.length) * PILL);
  return { left: NODE / 2 + room(left), right: NODE / 2 + room(right), height: high };
}

const CLOSED: Block = { left: GUTTER + SIDE + NODE, right: GUTTER + SIDE + NODE, height: FOLDED };

function measure(model: Model, opened: Opened, frame: number, seams: ReadonlySet<string>): Block {
  if (!isOpen(model, opened, frame)) return CLOSED;
  const shown = model.frame(shownOf(model, opened, frame)), layout = model.data.layouts[shown.layout];
  const inside: NonNullable<Block["inside"]> = [], tops: number[] = [], bottoms: number[] = [];
  let [top, left, right] = [HEAD + GAP, CLOSED.left, CLOSED.right];
  layout.rows.forEach((row, at) => {
    const sized = row.map(part => part.map(place => {
      const unit = shown.units[place];
      return { unit, block: unit < 0 ? measure(model, opened, -unit - 1, seams) : nodeBlock(model, unit) };
    }));
    const high = Math.max(VIEW_TALL, ...sized.flat().map(one => one.block.height));
    const put = (unit: Unit, x: number, block: Block) => {
      inside.push({ unit, x, y: top + (high - block.height) / 2, block, row: at });
      [left, right] = [Math.max(left, block.left - x), Math.max(right, block.right + x)];
    };
    const [west, east] = putFrames(sized[1], put);
    let edge = -Math.max(west, GUTTER) - SIDE;
    for (const { unit, block } of sized[0].reverse()) [edge] = [edge - block.right - block.left - 12, put(unit, edge - block.right, block)];
    edge = Math.max(east, GUTTER) + SIDE;
    for (const { unit, block } of sized[2]) [edge] = [edge + block.right + block.left + 12, put(unit, edge + block.left, block)];
    tops.push(top);
    bottoms.push(top + high);
    top += high + GAP + (seams.has(`${frame}/${at}`) ? SEAM : 0);
  });
  const [lanes, height] = [layout.slots.map(count => count ? count * LANE + 6 : 0), Math.max(top, HEAD + GAP) + FOOT];
  return { left: left + lanes[0] + PAD, right: right + lanes[1] + PAD, height, inside, tops, bottoms, walls: [-left - 4, right + 4] };
}

/** Put the frames of a row as a group around the gutter; one alone has its own gutter there. */
function putFrames(frames: { unit: Unit; block: Block }[], put: (unit: Unit, x: number, block: Block) => void): [number, number] {
  if (!frames.length) return [0, 0];
  const wide = frames.reduce((sum, { block }) => sum + block.left + block.right, 0) + (frames.length - 1) * 18;
  let edge = frames.length === 1 ? -frames[0].block.left : -wide / 2;
  const west = -edge;
  for (const { unit, block } of frames) {
    put(unit, edge + block.left, block);
    edge += block.left + block.right + 18;
  }
  return [west, edge - 18];
}

/** Where the picture can be cut: between the rows of an open frame that stands alone in the rows around it. */
function cutsOf(frame: number, block: Block, y: number, level: number): Cut[] {
  const { inside, tops, bottoms, height } = block, found: Cut[] = [];
  if (!inside) return found;
  tops!.slice(0, -1).forEach((_, at) => {
    const own = (bottoms![at] + tops![at + 1]) / 2;
    found.push({ key: `${frame}/${at}`, y: y + own, level, part: level ? Math.min(own, height - own) : Infinity });
  });
  const alone = new Map<number, number>();
  for (const { row } of inside) alone.set(row, (alone.get(row) ?? 0) + 1);
  for (const child of inside) {
    if (child.unit >= 0 || alone.get(child.row) !== 1) continue;
    for (const cut of cutsOf(-child.unit - 1, child.block, y + child.y, level + 1)) found.push({ ...cut, part: level ? Math.min(cut.part, cut.y - y, y + height - cut.y) : cut.part });
  }
  return found;
}

/** What is open, with coordinates; with `room`, the window that there is, a long picture is wrapped into columns. */
export function place(model: Model, opened: Opened, room: Room | null = null): Scene {
  let root = measure(model, opened, 0, new Set()), columns: Columns | null = null;
  const wide = root.left + root.right, chosen = room && root.inside ? cutsFor(room, wide, root.height, cutsOf(0, root, 0, 0)) : [];
  if (chosen.length) {
    const keys = new Set(chosen.map(cut => cut.key));
    root = measure(model, opened, 0, keys);
    columns = columnsOf(cutsOf(0, root, 0, 0).filter(cut => keys.has(cut.key)).map(cut => cut.y).sort((a, b) => a - b), wide, root.height, HEAD);
  }
  const boxes: Box[] = [], lines: Line[] = [];
  const width = bandWidth(model);
  const visit = (unit: Unit, block: Block, x: number, y: number, level: number, around: Unit | null) => {
    const frame = -unit - 1, node = unit >= 0, box: Box = {
      unit, x: x - (node ? NODE / 2 : block.left), y, w: node ? NODE : block.left + block.right, h: block.height,
      mid: x, kind: node ? "node" : block.inside ? "open" : "folded", level, around,
    };
    boxes.push(columns ? boxInColumns(box, columns) : box);
    if (!block.inside) return;
    for (const child of block.inside) visit(child.unit, child.block, x + child.x, y + child.y, level + 1, unit);
    const shown = shownOf(model, opened, frame);
    lines.push(...edgesOf(model, shown, frame, block, x, y, width, columns));
  };
  visit(frameUnit(0), root, 0, 0, 0, null);
  const byUnit = new Map(boxes.map(box => [box.unit, box])), lineOf = new Map<string, Line>();
  for (const line of lines) if (!lineOf.has(line.key)) lineOf.set(line.key, line);
  const parts = partsOf(boxes[0]), right = Math.max(...parts.map(part => part.x + part.w)), height = Math.max(...parts.map(part => part.y + part.h));
  return { boxes, lines, byUnit, lineOf, left: -root.left, right, height, columns: parts.length };
}

export function lineKey(within: number, side: string, from: Unit | null, to: Unit | null): string {
  return `${within}/${side}/${from ?? "in"}/${to ?? "out"}`;
}

/** The width of a band: the cube root of its share of all that is saved, so that small ones stay visible. */
export function bandWidth(model: Model): (bytes: number) => number {
  const all = Math.max(1, model.frame(0).counts[2], ...model.data.saved.map(one => one[2]));
  return bytes => Math.min(20, Math.max(1.6, 20 * Math.cbrt(bytes / all)));
}

interface End {
  x: number;
  y: number;
  /** Where the row of the end begins or ends. */
  clear: number;
}

function edgesOf(model: Model, shown: number, frame: number, block: Block, x: number, y: number, width: (bytes: number) => number, columns: Columns | null): Line[] {
  const layout = model.data.layouts[model.frame(shown).layout], { units } = model.frame(shown);
  const placed = new Map(block.inside!.map(one => [one.unit, one]));
  const found: Line[] = [];
  for (const side of ["left", "right"] as const) {
    const spread = fanOf(layout, side, units, placed), said = new Set<string>();
    layout[side].forEach((edge, at) => {
      const ends = endsOf(edge, side, units, placed, block, spread[at]), text = model.text(edge[3]).replace(/\] .*$/, "]"), key = `${edge[0]} ${text}`;
      const path = edge[2] < 0 ? curve(ends[0], ends[1]) : channel(ends, edge, side, block);
      found.push(...lineAt(path, x, y, columns, {
        within: frame, side, from: edge[0] < 0 ? null : units[edge[0]], to: edge[1] < 0 ? null : units[edge[1]],
        width: 1.3 + Math.log2(Math.max(1, edge[4])) * 0.35, label: said.has(key) ? "" : text,
      }));
      said.add(key);
    });
  }
  layout.bridges.forEach((bridge, at) => {
    const path = bridgePath(bridge, units, placed, block, at);
    found.push(...lineAt(path, x, y, columns, {
      within: frame, side: "bridge", from: bridge[0] < 0 ? null : units[bridge[0]], to: bridge[1] < 0 ? null : units[bridge[1]],
      width: width(bridge[2]), label: `${bridge[2]}`,
    }));
  });
  return found;
}

export type Point = [number, number];
type Placed = Map<Unit, NonNullable<Block["inside"]>[number]>;
interface Path {
  /** SVG commands with coordinates from the frame's gutter and top. */
  parts: [string, ...Point[]][];
  /** Where its label can stand. */
  at: Point[];
}

function lineAt(path: Path, x: number, y: number, columns: Columns | null, rest: Omit<Line, "key" | "d" | "at" | "ends" | "box">): Line[] {
  const points = path.parts.flatMap(([, ...all]) => all), [xs, ys] = [points.map(one => one[0] + x), points.map(one => one[1] + y)];
  const [west, north] = [Math.min(...xs), Math.min(...ys)];
  const d = path.parts.map(([command, ...all]) => command + all.map(one => `${round(one[0] + x)},${round(one[1] + y)}`).join(" ")).join("");
  const shifted = ([px, py]: Point): Point => [px + x, py + y];
  const line: Line = { ...rest, key: lineKey(rest.within, rest.side, rest.from, rest.to), d, at: path.at.map(shifted), ends: [shifted(points[0]), shifted(points[points.length - 1])], box: [west, north, Math.max(...xs) - west, Math.max(...ys) - north] };
  return columns ? lineInColumns(line, path.parts.map(([command, ...all]): Path["parts"][number] => [command, ...all.map(shifted)]), columns) : [line];
}

const round = (value: number) => Math.round(value * 10) / 10;

/** Offsets that keep the edges into one unit apart, in the order of where they come from. */
function fanOf(layout: Layout, side: "left" | "right", units: Unit[], placed: Placed): number[] {
  const into = new Map<number, number[]>(), found = layout[side].map(() => 0);
  layout[side].forEach((edge, at) => into.set(edge[1], [...(into.get(edge[1]) ?? []), at]));
  const from = (at: number) => {
    const [source, , slot] = layout[side][at], outwards = side === "left" ? -1 : 1;
    return slot >= 0 ? outwards * (10000 + slot) : source < 0 ? outwards * ENTRY : placed.get(units[source])!.x;
  };
  for (const [target, edges] of into) {
    if (edges.length < 2 || target < 0) continue;
    edges.sort((a, b) => from(a) - from(b));
    const room = Math.min(NODE * 0.6, edges.length * 16);
    edges.forEach((at, order) => (found[at] = ((order + 0.5) / edges.length - 0.5) * room));
  }
  return found;
}

/** Both ends of an edge: forward edges go down, backward edges up. */
function endsOf([from, to]: Edge, side: "left" | "right", units: Unit[], placed: Placed, block: Block, offset: number): [End, End] {
  const down = side === "left", sign = down ? -1 : 1, [head, foot] = [HEAD, block.height - FOOT];
  const own = (first: boolean): End => {
    const at = first === down ? head : foot;
    return { x: sign * ENTRY, y: at, clear: at };
  };
  const end = (position: number, first: boolean): End => {
    if (position < 0) return own(first);
    const one = placed.get(units[position])!, low = first === down;
    const x = one.x + (one.unit < 0 ? sign * ENTRY : 0) + (first ? 0 : offset);
    return { x, y: low ? one.y + one.block.height : one.y, clear: low ? block.bottoms![one.row] : block.tops![one.row] };
  };
  return [end(from, true), end(to, false)];
}

/** Straight out of the row of its source, over to the row of its target, and in. */
function curve(from: End, to: End): Path {
  const way = Math.sign(to.clear - from.clear) || Math.sign(to.y - from.y) || 1, at = labelPoints(from, to, way);
  if (Math.abs(from.x - to.x) < 0.5) return { parts: [["M", [from.x, from.y]], ["L", [to.x, to.y]]], at };
  const bend = Math.max(10, Math.abs(to.clear - from.clear) / 2) * way;
  const over: [string, ...Point[]] = ["C", [from.x, from.clear + bend], [to.x, to.clear - bend], [to.x, to.clear]];
  return { parts: [["M", [from.x, from.y]], ["L", [from.x, from.clear]], over, ["L", [to.x, to.y]]], at };
}

/** Behind the box where a line begins, and before that where it ends. */
const labelPoints = (from: End, to: End, way: number): Point[] => [[from.x, from.y + way * 14], [to.x, to.y - way * 17], [from.x, from.y + way * 8]];

/** Through the channel beside the rows: right angles with round corners. */
function channel([from, to]: [End, End], edge: Edge, side: "left" | "right", block: Block): Path {
  const slot = edge[2], outwards = side === "left" ? -1 : 1, lane = block.walls![side === "left" ? 0 : 1] + outwards * (slot + 1) * LANE;
  const way = side === "left" ? 1 : -1, apart = 5 + (slot % 4) * 2.5;
  const [leave, arrive] = [from.clear + way * apart, to.clear - way * apart];
  const corners: Point[] = [[from.x, from.y], [from.x, leave], [lane, leave], [lane, arrive], [to.x, arrive], [to.x, to.y]];
  return { parts: rounded(corners), at: labelPoints(from, to, way) };
}

function rounded(points: Point[]): Path["parts"] {
  const parts: Path["parts"] = [["M", points[0]]];
  for (let at = 1; at < points.length - 1; at++) {
    const [before, here, after] = [points[at - 1], points[at], points[at + 1]];
    const size = Math.min(6, distance(before, here) / 2, distance(here, after) / 2);
    parts.push(["L", towards(here, before, size)], ["Q", here, towards(here, after, size)]);
  }
  parts.push(["L", points[points.length - 1]]);
  return parts;
}

const distance = (a: Point, b: Point) => Math.hypot(a[0] - b[0], a[1] - b[1]);

function towards(from: Point, to: Point, size: number): Point {
  const all = distance(from, to) || 1;
  return [from[0] + ((to[0] - from[0]) * size) / all, from[1] + ((to[1] - from[1]) * size) / all];
}

/**
 * From the right side of a step across, or along, the gutter to the left side of one of the backward. Bands that leave
 * or enter a frame do so in the middle of its gutter, so that those inside and outside meet there.
 */
function bridgePath([from, to]: Bridge, units: Unit[], placed: Placed, block: Block, order: number): Path {
  const [source, target] = [from, to].map(position => (position < 0 ? undefined : placed.get(units[position])!));
  const middle = (one: typeof source, none: number) => (one ? one.y + one.block.height / 2 : none);
  const [high, low] = [middle(source, 0), middle(target, block.height)];
  const end = (one: typeof source, own: number, other: number, sign: number): BandEnd => {
    if (!one) return { x: 0, y: own, clear: own, sideways: false };
    if (one.unit >= 0) return { x: one.x + (sign * NODE) / 2, y: own, clear: own, sideways: true };
    const low = other >= own;
    return { x: one.x, y: low ? one.y + one.block.height : one.y, clear: low ? block.bottoms![one.row] : block.tops![one.row], sideways: false };
  };
  const [a, b] = [end(source, high, low, 1), end(target, low, high, -1)];
  if (source && target && source.unit < 0 && target.unit < 0 && source.row === target.row) return below(a, b);
  const lane = a.sideways && b.sideways ? (((order * 4) % 9) - 4) * 4 : 0;
  return band(a, b, lane);
}

interface BandEnd {
  x: number;
  y: number;
  /** Where the row of a frame begins or ends: beyond it the band may go aside. */
  clear: number;
  sideways: boolean;
}

const ASIDE = 15;

/** From a frame to another one beside it, below their row. */
function below(a: BandEnd, b: BandEnd): Path {
  const low = Math.max(a.clear, b.clear) + ASIDE + 6;
  const parts: Path["parts"] = [["M", [a.x, a.y]], ["L", [a.x, a.clear]], ["C", [a.x, low], [b.x, low], [b.x, b.clear]], ["L", [b.x, b.y]]];
  return { parts, at: [[(a.x + b.x) / 2, low]] };
}

function band(a: BandEnd, b: BandEnd, lane: number): Path {
  const far = Math.abs(b.y - a.y), way = Math.sign(b.y - a.y), start: Point = [a.x, a.y], end: Point = [b.x, b.y], middle: Point = [(a.x + b.x) / 2, (a.y + b.y) / 2];
  if (far < 3 || (a.x === b.x && !a.sideways && !b.sideways)) return { parts: [["M", start], ["L", end]], at: [middle] };
  if (far < 60 && (a.sideways || b.sideways) && a.clear === a.y && b.clear === b.y) {
    const first: Point = a.sideways ? [middle[0], a.y] : [a.x, middle[1]], last: Point = b.sideways ? [middle[0], b.y] : [b.x, middle[1]];
    return { parts: [["M", start], ["C", first, last, end]], at: [middle] };
  }
  const turn = Math.min(24, far / 2) * way, parts: Path["parts"] = [["M", start]];
  const [from, to] = [a.sideways ? a.y + turn : a.clear + way * ASIDE, b.sideways ? b.y - turn : b.clear - way * ASIDE];
  if (a.sideways) parts.push(["C", [lane, a.y], [lane, a.y], [lane, from]]);
  else if (a.x === lane) parts.push(["L", [lane, from]]);
  else parts.push(["L", [a.x, a.clear]], ["C", [a.x, from], [a.x, from], [(a.x + lane) / 2, from]], ["C", [lane, from], [lane, from], [lane, from + way * Math.min(ASIDE, Math.abs(to - from) / 2)]]);
  if (b.sideways) parts.push(["L", [lane, to]], ["C", [lane, b.y], [lane, b.y], end]);
  else if (b.x === lane) parts.push(["L", end]);
  else parts.push(["L", [lane, to - way * Math.min(ASIDE, Math.abs(to - from) / 2)]], ["C", [lane, to], [lane, to], [(b.x + lane) / 2, to]], ["C", [b.x, to], [b.x, to], [b.x, b.clear]], ["L", end]);
  return { parts, at: [0.5, 0.35, 0.65, 0.2, 0.8].map((share): Point => [lane, from + (to - from) * share]) };
}

/** The largest letters that have room on a step, on a folded frame, and in the head of an open one. */
export const LETTERS = { step: 26, folded: 38, title: 38 };

/** What is drawn where letters of a size are the smallest that can be read: boxes that have room for such letters. */
export interface Shown {
  units: ReadonlySet<Unit>;
  /** Open frames of which nothing inside is drawn: their names stand for all. */
  whole: ReadonlySet<Unit>;
  /** The columns of a wrapped picture in which nothing is drawn. */
  bare: ReadonlySet<number>;
}

export function shownAt(scene: Scene, least: number): Shown {
  const units = new Set<Unit>(), whole = new Set<Unit>();
  for (const { unit, around, kind, w, h, parts } of scene.boxes) {
    const room = kind === "node" ? least <= LETTERS.step : kind === "folded" ? least <= LETTERS.folded : least * 1.25 <= Math.max(h, ...(parts ?? []).map(part => part.h)) && least * 4 <= w;
    if (around !== null && !(room && units.has(around))) continue;
    units.add(unit);
    if (kind === "open") whole.add(unit);
    if (around !== null) whole.delete(around);
  }
  if (least > LETTERS.title) gather(scene, units, whole);
  return { units, whole, bare: whole.has(frameUnit(0)) ? new Set() : bareOf(scene, units) };
}

function bareOf({ boxes, columns }: Scene, units: ReadonlySet<Unit>): Set<number> {
  const bare = new Set(columns > 1 ? Array.from({ length: columns }, (_, at) => at) : []);
  for (const box of boxes) if (bare.size && box.around !== null && units.has(box.unit)) partsOf(box).forEach((_, at) => bare.delete(box.column! + at));
  return bare;
}

/** Where the name of a frame has no room above what is in it: unless names in it fill it, its own stands for all. */
function gather({ boxes }: Scene, units: Set<Unit>, whole: Set<Unit>): void {
  for (let at = boxes.length - 1; at > 0; at--) {
    const { unit, kind, level, w } = boxes[at], h = partsOf(boxes[at]).reduce((sum, part) => sum + part.h, 0), inside: Box[] = [];
    if (kind !== "open" || !units.has(unit) || whole.has(unit)) continue;
    for (let next = at + 1; boxes[next]?.level > level; next++) inside.push(boxes[next]);
    const named = inside.filter(box => box.around === unit && units.has(box.unit));
    if (named.length > 1 ? named.reduce((sum, box) => sum + box.w * box.h, 0) * 3 > w * h : named.length && !whole.has(named[0].unit)) continue;
    for (const box of inside) if (units.delete(box.unit)) whole.delete(box.unit);
    whole.add(unit);
  }
}

/** The lines of what is shown: both of their ends are. */
export function isDrawn(line: Line, { units, whole }: Shown): boolean {
  const frame = frameUnit(line.within);
  return units.has(frame) && !whole.has(frame) && (line.from === null || units.has(line.from)) && (line.to === null || units.has(line.to));
}

export interface Label {
  line: Line;
  /** The left end of its baseline. */
  x: number;
  y: number;
}

type Area = [left: number, top: number, right: number, bottom: number];
const CELL = 96;

/** Areas, found by where they are. */
class Taken {
  private readonly cells = new Map<string, Area[]>();

  private *near([left, top, right, bottom]: Area): Generator<string> {
    for (let x = Math.floor(left / CELL); x <= Math.floor(right / CELL); x++) for (let y = Math.floor(top / CELL); y <= Math.floor(bottom / CELL); y++) yield `${x} ${y}`;
  }

  add(area: Area): void {
    for (const cell of this.near(area)) {
      const own = this.cells.get(cell);
      if (own) own.push(area);
      else this.cells.set(cell, [area]);
    }
  }

  has([left, top, right, bottom]: Area): boolean {
    for (const cell of this.near([left, top, right, bottom]))
      for (const other of this.cells.get(cell) ?? []) if (other[0] < right && left < other[2] && other[1] < bottom && top < other[3]) return true;
    return false;
  }
}

/** Points along a path of `M`, `L`, `Q` and `C`, close enough to tell where it runs. */
export function pointsOf(d: string): Point[] {
  const found: Point[] = [];
  for (const [, command, rest] of d.matchAll(/([MLQC])([^MLQC]*)/g)) {
    const n = rest.split(/[ ,]/).map(Number), start = found[found.length - 1];
    if (command === "M" || command === "L") found.push([n[0], n[1]]);
    else for (let step = 1; step <= 8; step++) {
      const t = step / 8, u = 1 - t;
      const at = (axis: 0 | 1) => command === "Q"
        ? u * u * start[axis] + 2 * u * t * n[axis] + t * t * n[2 + axis]
        : u ** 3 * start[axis] + 3 * u * u * t * n[axis] + 3 * u * t * t * n[2 + axis] + t ** 3 * n[4 + axis];
      found.push([at(0), at(1)]);
    }
  }
  return found;
}

/** The areas along a line, in pieces that are no longer than a few letters. */
function* alongLine(line: Line): Generator<Area> {
  const points = pointsOf(line.d), half = line.width / 2 + 0.5;
  for (let at = 1; at < points.length; at++) {
    const [[x1, y1], [x2, y2]] = [points[at - 1], points[at]], upright = x1 === x2 || y1 === y2, pieces = upright ? 1 : Math.ceil(Math.hypot(x2 - x1, y2 - y1) / 8);
    for (let piece = 0; piece < pieces; piece++) {
      const [a, b] = [piece / pieces, (piece + 1) / pieces], xs = [x1 + (x2 - x1) * a, x1 + (x2 - x1) * b], ys = [y1 + (y2 - y1) * a, y1 + (y2 - y1) * b];
      yield [Math.min(...xs) - half, Math.min(...ys) - half, Math.max(...xs) + half, Math.max(...ys) + half];
    }
  }
}

function* boxAreas(model: Model, box: Box, size: number): Generator<Area> {
  const { x, y, w, h, unit } = box, mark = (unit < 0 ? model.marked.has(-unit - 1) : model.marks.has(unit)) ? 8 : 0;
  if (box.kind === "folded") yield [x - 8, y - 3 - mark, x + w + 8, y + h + 8];
  else if (box.kind === "open") {
    for (const part of partsOf(box)) {
      if (part.y === y || box.around === null) yield [part.x, part.y - 3, part.x + part.w, part.y + Math.max(HEAD, size * 1.35) + 2];
      for (const side of [part.x, part.x + part.w]) yield [side - 1, part.y, side + 1, part.y + part.h];
      yield [part.x, part.y + part.h - 1, part.x + part.w, part.y + part.h + 1];
    }
  } else {
    const { left, right } = pillsOf(model, box.unit), wide = (pills: PillRow[]) => (pills.length ? Math.max(...pills.map(pill => pillWidth(pill.text))) + 6 : 0);
    yield [x - wide(left) - 1, y - 1 - mark, x + w + wide(right) + 4, y + h + 1];
  }
}

/** Where labels of one size stand: over no box, no line and no other label. A label without such a place is left out; its step has its text too. */
export class LabelPlaces {
  private readonly taken = new Taken();
  /** The labels that are always there. */
  readonly labels: Label[];

  constructor(model: Model, scene: Scene, private readonly size: number, private readonly textOf: (line: Line) => string) {
    for (const box of scene.boxes) for (const part of boxAreas(model, box, size)) this.taken.add(part);
    for (const line of scene.lines) for (const part of alongLine(line)) this.taken.add(part);
    this.labels = this.placed(scene.lines.filter(line => line.side !== "bridge"), this.taken);
  }

  /** The labels of some lines, beside those that are always there. */
  of(lines: Line[]): Label[] {
    return this.placed(lines, new Taken());
  }

  private placed(lines: Line[], own: Taken): Label[] {
    const { size, taken } = this, high = size * 0.62, found: Label[] = [];
    for (const line of lines) {
      const wide = widthOf(this.textOf(line), size, line.side === "bridge"), away = 5 + line.width / 2;
      if (!wide) continue;
      const area = ({ x, y }: Label): Area => [x - 2, y - high - 2, x + wide + 2, y + 3];
      const places = line.at.flatMap(([x, y]) => [x + away, x - away - wide].map((left): Label => ({ line, x: left, y: y + high / 2 })));
      const free = places.find(label => !taken.has(area(label)) && !own.has(area(label)));
      if (!free) continue;
      own.add(area(free));
      found.push(free);
    }
    return found;
  }
}
