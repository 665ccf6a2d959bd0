/** The data of a page as Python writes them, and the check that they are whole. Nothing is drawn that was not checked. */

import { clean } from "./words";

export type Edge = [from: number, to: number, slot: number, spec: number, count: number];
export type Bridge = [from: number, to: number, bytes: number, count: number];
/** A value, or -1 for one that no step and no port names; the first and the last step that it lives in: the number
 * of all steps for one that outlives them. */
export type Span = [value: number, first: number, last: number, bytes: number, role: number];
export type Row = [left: number[], frames: number[], right: number[]];

export interface Layout {
  rows: Row[];
  left: Edge[];
  right: Edge[];
  slots: [left: number, right: number];
  bridges: Bridge[];
}

export interface Frame {
  name: number;
  kind: "program" | "module" | "loop" | "turn" | "line" | "steps" | "region";
  label: number;
  parent: number;
  units: number[];
  layout: number;
  /** Steps forward, steps backward, saved bytes, FLOPs forward, backward. */
  counts: [number, number, number, number, number];
}

export interface Nodes {
  name: number[];
  op: number[];
  args: number[];
  spec: number[];
  source: number[];
  frame: number[];
  flops: number[];
  read: number[];
  written: number[];
  memory: number[];
  flags: number[];
  inputs: number[][];
  echo: number[];
  partners: number[][];
}

export interface Port {
  side: 0 | 1;
  into: boolean;
  role: string;
  name: number;
  spec: number;
  bytes: number;
  value: number;
}

export interface PairData {
  name: string;
  strings: string[];
  forward: number;
  nodes: Nodes;
  ports: Port[];
  sources: [file: number, line: number, func: number, code: number, module: number][];
  saved: [value: number, port: number, bytes: number, fresh: number][];
  frames: Frame[];
  layouts: Layout[];
  memory: {
    before: number;
    live: number[];
    spans: Span[];
    /** What the caller holds throughout, and `before` counts. */
    held: Span[];
    peak: [node: number, bytes: number];
  };
  code: { forward: string[]; backward: string[]; ends: [string[], string[]] };
  stats?: { value: number[]; rows: StatRow[] };
  marks?: Marks;
}

export const CHANGES = ["added", "removed", "changed"] as const;
export type Change = (typeof CHANGES)[number];

/** The steps of a pair that another pair of the page, before or after it, does not have or has otherwise. */
export interface Marks {
  /** The other pair, or -1. */
  pair: number;
  node: number[];
  kind: Change[];
  /** The step before, as `- text`, and after, as `+ text`. */
  text: string[];
  /** The step of the other pair that it was or became, or -1. */
  other: number[];
}

export type StatRow = [
  count: number, min: number | null, max: number | null, mean: number | null, std: number | null,
  norm: number, nan: number, inf: number, zeros: number,
];

export interface PageData {
  format: 1;
  title: string;
  facts: [string, string][];
  notes: string[];
  /** What a comparison with the program said, and what that means in plain words. */
  verdict: { word: string; meaning: string; tone: "good" | "bad" | "none" };
  /** What changed, in words; only a page of a difference has them. */
  changes?: string[];
  pairs: PairData[];
}

export const VIEW = 1, GUARD = 2, SAVED = 4, NEIGHBOR = 8;

/** The data are not what a page can show; the message says where and why. */
export class DataError extends Error {
  constructor(public where: string, public what: string) {
    super();
  }

  override get message(): string {
    return `${this.where}: ${this.what}`;
  }
}

const KINDS = ["program", "module", "loop", "turn", "line", "steps", "region"];

function fail(where: string, what: string): never {
  throw new DataError(where, what);
}

function need(right: unknown, where: string, what: string): asserts right {
  if (!right) fail(where, what);
}

function said(value: unknown): string {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

function object(value: unknown, where: string): Record<string, unknown> {
  need(typeof value === "object" && value !== null && !Array.isArray(value), where, `an object was expected, found ${said(value)}`);
  return value as Record<string, unknown>;
}

function list(value: unknown, where: string): unknown[] {
  need(Array.isArray(value), where, `a list was expected, found ${said(value)}`);
  return value;
}

function text(value: unknown, where: string): void {
  need(typeof value === "string", where, `a text was expected, found ${said(value)}`);
}

/** A whole number from `low` to below `high`. */
function within(value: unknown, low: number, high: number, where: string): void {
  if (!(Number.isSafeInteger(value) && (value as number) >= low && (value as number) < high))
    fail(where, `${said(value)} is not a whole number from ${low} to ${high === Infinity ? "2**53 - 1" : high - 1}`);
}

function amount(value: unknown, where: string): void {
  if (!(typeof value === "number" && Number.isFinite(value) && value >= 0)) fail(where, `${said(value)} is not a number of 0 or more`);
}

/** Check entries one by one. A place is spelled only where an entry is wrong: there are millions. */
function each(value: unknown, where: string, check: (one: unknown, where: string, at: number) => void): void {
  const found = list(value, where);
  let at = 0;
  try {
    for (; at < found.length; at++) check(found[at], "", at);
  } catch (error) {
    if (error instanceof DataError) error.where = `${where}[${at}]${error.where}`;
    throw error;
  }
}

/** A row of as many entries as there are checks. */
function row(value: unknown, where: string, checks: ((one: unknown, where: string) => void)[]): void {
  const found = list(value, where);
  need(found.length === checks.length, where, `${checks.length} entries were expected, found ${found.length}`);
  each(found, where, (one, here, at) => checks[at](one, here));
}

const range = (low: number, high: number) => (value: unknown, where: string) => within(value, low, high, where);

function checkColumns(pair: PairData, where: string): void {
  const columns = object(pair.nodes, `${where}.nodes`);
  const count = list(columns["name"], `${where}.nodes.name`).length;
  const [word, bytes] = [range(0, pair.strings.length), range(0, Infinity)];
  const checks: Record<keyof Nodes, (one: unknown, where: string) => void> = {
    name: word, op: word, args: word, spec: word, echo: word,
    source: range(-1, pair.sources.length),
    frame: range(0, pair.frames.length),
    flops: amount, read: bytes, written: bytes, memory: bytes,
    flags: range(0, 16),
    inputs: (one, at) => each(one, at, range(0, count + pair.ports.length)),
    partners: (one, at) => each(one, at, range(0, pair.forward)),
  };
  for (const [name, check] of Object.entries(checks)) {
    const column = list(columns[name], `${where}.nodes.${name}`);
    need(column.length === count, `${where}.nodes.${name}`, `${count} entries were expected, one a step, found ${column.length}`);
    each(column, `${where}.nodes.${name}`, check);
  }
  within(pair.forward, 0, count + 1, `${where}.forward`);
}

function checkPorts(pair: PairData, where: string): void {
  const count = pair.nodes.name.length, word = range(0, pair.strings.length);
  const entering = pair.ports.filter(port => port.into).length;
  each(pair.ports, `${where}.ports`, (one, at) => {
    const port = object(one, at);
    within(port["side"], 0, 2, `${at}.side`);
    need(typeof port["into"] === "boolean", `${at}.into`, `true or false was expected, found ${said(port["into"])}`);
    text(port["role"], `${at}.role`);
    word(port["name"], `${at}.name`);
    word(port["spec"], `${at}.spec`);
    amount(port["bytes"], `${at}.bytes`);
    within(port["value"], port["into"] ? count : -1, count + entering, `${at}.value`);
  });
  let next = count;
  pair.ports.forEach((port, at) => {
    if (port.into) need(port.value === next++, `${where}.ports[${at}].value`, `${next - 1} was expected, found ${port.value}`);
  });
  const values = range(0, count + entering);
  each(pair.nodes.inputs, `${where}.nodes.inputs`, (one, at) => each(one, at, values));
  each(pair.saved, `${where}.saved`, (one, at) => row(one, at, [values, range(count, count + entering), amount, amount]));
}

/** Every step and every frame is a unit of one frame, and the frames are a tree. */
function checkFrames(pair: PairData, where: string): void {
  const { frames, layouts, nodes } = pair, word = range(0, pair.strings.length);
  const seen = { steps: new Uint8Array(nodes.name.length), frames: new Uint8Array(frames.length) };
  need(frames.length > 0, `${where}.frames`, "there is no frame");
  frames.forEach((frame, id) => {
    const at = `${where}.frames[${id}]`;
    word(frame.name, `${at}.name`);
    word(frame.label, `${at}.label`);
    need(KINDS.includes(frame.kind), `${at}.kind`, `${said(frame.kind)} is none of ${KINDS.join(", ")}`);
    within(frame.parent, id ? 0 : -1, id ? frames.length : 0, `${at}.parent`);
    within(frame.layout, frame.kind === "loop" ? -1 : 0, frame.kind === "loop" ? 0 : layouts.length, `${at}.layout`);
    row(frame.counts, `${at}.counts`, [amount, amount, amount, amount, amount]);
    each(frame.units, `${at}.units`, range(-frames.length, nodes.name.length));
    need(frame.kind !== "loop" || frame.units.length, at, "a loop without a turn");
    for (const unit of frame.units) {
      const [kept, place] = unit < 0 ? [seen.frames, -unit - 1] : [seen.steps, unit];
      need(!kept[place]++, at, `${unit < 0 ? "frame" : "step"} ${place} is in two frames`);
      const parent = unit < 0 ? frames[place].parent : nodes.frame[place];
      need(parent === id, at, `${unit < 0 ? "frame" : "step"} ${place} says that it is in frame ${parent}`);
      need(frame.kind !== "loop" || unit < 0, at, `step ${place} is a turn of a loop`);
    }
  });
  const lost = seen.steps.indexOf(0);
  need(lost < 0, `${where}.frames`, `step ${lost} is in no frame`);
  frames.forEach((_, id) => {
    let [up, left] = [id, frames.length];
    while (up > 0 && left--) {
      need(seen.frames[up], `${where}.frames[${up}]`, "it is in no frame");
      up = frames[up].parent;
    }
    need(up <= 0, `${where}.frames[${id}]`, "it is inside itself");
  });
  frames.forEach((frame, id) => { if (frame.layout >= 0) checkPlaces(layouts[frame.layout], frame, pair.forward, `${where}.frames[${id}]`); });
  checkCounts(pair, where);
}

const COUNTED = ["steps forward", "steps backward", "saved bytes", "FLOPs forward", "FLOPs backward"];

/** What a frame says that it holds is what its steps add up to, as far as a double can count. */
function checkCounts(pair: PairData, where: string): void {
  const { frames, nodes, forward } = pair, saved = new Map<number, number>();
  for (const [value, , , own] of pair.saved) saved.set(value, (saved.get(value) ?? 0) + own);
  const sums = frames.map(() => [0, 0, 0, 0, 0]);
  nodes.name.forEach((_, node) => {
    const sum = sums[nodes.frame[node]], side = node < forward ? 0 : 1;
    sum[side] += 1;
    sum[2] += saved.get(node) ?? 0;
    sum[3 + side] += nodes.flops[node];
  });
  for (const id of outerFirst(frames).reverse())
    if (id) sums[id].forEach((count, at) => { sums[frames[id].parent][at] += count; });
  frames.forEach((frame, id) => frame.counts.forEach((count, at) =>
    need(count === sums[id][at] || count > Number.MAX_SAFE_INTEGER, `${where}.frames[${id}].counts`, `it says ${count} ${COUNTED[at]}, and its steps add up to ${sums[id][at]}`)));
}

function outerFirst(frames: Frame[]): number[] {
  const order = [0];
  for (const id of order) for (const unit of frames[id].units) if (unit < 0) order.push(-unit - 1);
  return order;
}

/** Every unit has one place in the rows of its frame's layout. */
function checkPlaces(layout: Layout, frame: Frame, forward: number, at: string): void {
  const placed = new Uint8Array(frame.units.length);
  for (const members of layout.rows)
    members.forEach((places, part) => {
      for (const place of places) {
        need(place < frame.units.length && !placed[place]++, at, `its layout gives ${place} no place, or two`);
        need((frame.units[place] < 0) === (part === 1), at, `its layout takes unit ${place} for a ${part === 1 ? "frame" : "step"}`);
        need(part === 1 || (frame.units[place] < forward) === (part === 0), at, `its layout has step ${frame.units[place]} on the side of the ${part ? "backward" : "forward"}`);
      }
    });
  need(placed.every(Boolean), at, `its layout has no place for unit ${placed.indexOf(0)}`);
}

function checkLayouts(pair: PairData, where: string): void {
  each(pair.layouts, `${where}.layouts`, (one, at) => {
    const layout = object(one, at) as unknown as Layout;
    let count = 0;
    each(layout.rows, `${at}.rows`, (members, here) => {
      row(members, here, [0, 1, 2].map(() => (part: unknown, there: string) => each(part, there, range(0, Infinity))));
      count += (members as Row).flat().length;
    });
    row(layout.slots, `${at}.slots`, [range(0, 100000), range(0, 100000)]);
    const place = range(-1, count);
    (["left", "right"] as const).forEach((side, which) =>
      each(layout[side], `${at}.${side}`, (edge, here) =>
        row(edge, here, [place, place, range(-1, layout.slots[which]), range(0, pair.strings.length), amount])));
    each(layout.bridges, `${at}.bridges`, (bridge, here) => row(bridge, here, [place, place, amount, amount]));
  });
}

function checkMemory(pair: PairData, where: string): void {
  const count = pair.nodes.name.length, memory = object(pair.memory, `${where}.memory`);
  amount(memory["before"], `${where}.memory.before`);
  each(memory["live"], `${where}.memory.live`, amount);
  need(pair.memory.live.length === count, `${where}.memory.live`, `${count} entries were expected, one a step, found ${pair.memory.live.length}`);
  const values = range(-1, count + pair.ports.length);
  const span = (one: unknown, at: string) => row(one, at, [values, range(0, count + 1), range(0, count + 1), amount, range(0, pair.strings.length)]);
  for (const name of ["spans", "held"]) each(memory[name], `${where}.memory.${name}`, span);
  row(memory["peak"], `${where}.memory.peak`, [range(-1, Math.max(count, 1)), amount]);
  checkLive(pair.memory, count, `${where}.memory`);
}

/** The time line is what its spans add up to, and its peak the most of it. */
function checkLive({ live, spans, peak }: PairData["memory"], count: number, where: string): void {
  const change = new Float64Array(count + 2);
  for (const [, first, last, size] of spans) {
    change[first] += size;
    change[last + 1] -= size;
  }
  let sum = 0;
  for (let node = 0; node < count; node++) {
    sum += change[node];
    need(live[node] === sum || sum > Number.MAX_SAFE_INTEGER, `${where}.live[${node}]`, `it says ${live[node]} bytes, and its spans add up to ${sum}`);
  }
  const most = live.reduce((a, b) => Math.max(a, b), 0);
  need(peak[1] === most && (!count || live[peak[0]] === most), `${where}.peak`, `it says ${peak[1]} bytes at step ${peak[0]}, and the most that live are ${most}`);
}

function checkStats(pair: PairData, where: string): void {
  if (pair.stats === undefined) return;
  const { value, rows } = object(pair.stats, where) as unknown as NonNullable<PairData["stats"]>;
  each(value, `${where}.value`, range(0, pair.nodes.name.length + pair.ports.length));
  each(rows, `${where}.rows`, (one, at) => {
    need(list(one, at).length === 9, at, `9 numbers were expected, found ${(one as unknown[]).length}`);
    each(one, at, (number, here) => need(number === null || Number.isFinite(number), here, `${said(number)} is not a number`));
  });
  need(value.length === rows.length, where, `${value.length} values and ${rows.length} rows`);
}

const SIGNS: Record<Change, string[]> = { added: ["+ "], removed: ["- "], changed: ["- ", "+ "] };

function checkMarks(pair: PairData, where: string): void {
  const marks = object(pair.marks, where) as unknown as Marks, count = pair.nodes.name.length;
  within(marks.pair, -1, Infinity, `${where}.pair`);
  each(marks.node, `${where}.node`, (one, at, place) => within(one, place ? marks.node[place - 1] + 1 : 0, count, at));
  for (const name of ["kind", "text", "other"] as const) {
    const found = list(marks[name], `${where}.${name}`).length;
    need(found === marks.node.length, `${where}.${name}`, `${marks.node.length} entries were expected, one a marked step, found ${found}`);
  }
  each(marks.kind, `${where}.kind`, (one, at) => need(CHANGES.includes(one as Change), at, `${said(one)} is none of ${CHANGES.join(", ")}`));
  each(marks.text, `${where}.text`, (one, at, place) => {
    text(one, at);
    const lines = (one as string).split("\n"), signs = SIGNS[marks.kind[place]];
    need(lines.length === signs.length && signs.every((sign, line) => lines[line].startsWith(sign)), at, `${signs.length === 1 ? "a line" : "two lines"} with ${signs.join("and ").trim()} in front was expected of a step that was ${marks.kind[place]}, found ${said(one)}`);
  });
}

/** Both sides of a change say the same of it. */
function checkOthers(pairs: PairData[]): void {
  pairs.forEach(({ marks }, index) => {
    const where = `pairs[${index}].marks`, { pair, node, kind, text: texts, other } = marks!, there = pairs[pair]?.marks;
    within(pair, -1, pairs.length, `${where}.pair`);
    need(there ? there.pair === index && pair !== index : pair < 0, `${where}.pair`, `pair ${pair} says that its other pair is ${there?.pair}`);
    const back = new Map(there?.node.map((one, at) => [one, at]));
    each(other, `${where}.other`, (one, at, place) => {
      if (kind[place] !== "changed") return need(one === -1, at, `-1 was expected of a step that was ${kind[place]}, found ${said(one)}`);
      const found = back.get(one as number) ?? -1;
      need(found >= 0 && there!.other[found] === node[place] && there!.text[found] === texts[place], at, `step ${said(one)} of pair ${pair} is not marked as what this step was or became`);
    });
  });
}

function checkPair(value: unknown, where: string): void {
  const pair = object(value, where) as unknown as PairData;
  text(pair.name, `${where}.name`);
  each(pair.strings, `${where}.strings`, text);
  need(pair.strings[0] === "", `${where}.strings`, "the first is not the empty text");
  for (const name of ["ports", "sources", "saved", "frames", "layouts"] as const) list(pair[name], `${where}.${name}`);
  each(pair.frames, `${where}.frames`, object);
  const word = range(0, pair.strings.length);
  each(pair.sources, `${where}.sources`, (one, at) => row(one, at, [word, range(0, Infinity), word, word, word]));
  checkColumns(pair, where);
  checkPorts(pair, where);
  checkLayouts(pair, where);
  checkFrames(pair, where);
  checkMemory(pair, where);
  const code = object(pair.code, `${where}.code`);
  for (const lines of [code["forward"], code["backward"]]) each(lines, `${where}.code`, text);
  row(code["ends"], `${where}.code.ends`, [0, 1].map(() => (lines: unknown, at: string) => each(lines, at, text)));
  checkStats(pair, `${where}.stats`);
  if (pair.marks !== undefined) checkMarks(pair, `${where}.marks`);
}

/** Parse the text of a page's data. What is wrong raises a DataError that says where. */
export function parse(json: string): PageData {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch (error) {
    fail("data", `they are not JSON (${(error as Error).message})`);
  }
  const page = object(value, "data") as unknown as PageData;
  need(page.format === 1, "format", `this page reads format 1, found ${said(page.format)}; write the page again with this version of Backprint`);
  text(page.title, "title");
  each(page.facts, "facts", (one, at) => row(one, at, [text, text]));
  each(page.notes, "notes", text);
  const verdict = object(page.verdict, "verdict");
  for (const name of ["word", "meaning", "tone"]) text(verdict[name], `verdict.${name}`);
  need(["good", "bad", "none"].includes(page.verdict.tone), "verdict.tone", `it is ${said(page.verdict.tone)}, and none of good, bad, none`);
  each(page.pairs, "pairs", checkPair);
  need(page.pairs.length, "pairs", "there is none");
  const changes = page.changes !== undefined;
  if (changes) each(page.changes, "changes", text);
  page.pairs.forEach((pair, at) => need((pair.marks !== undefined) === changes, `pairs[${at}].marks`, changes ? "the page has changes, and this pair has no marks" : "this pair has marks, and the page has no changes"));
  if (changes) checkOthers(page.pairs);
  const pairs = page.pairs.map(pair => ({ ...pair, name: clean(pair.name) }));
  return { ...page, title: clean(page.title), facts: page.facts.map(([name, said]) => [clean(name), clean(said)]), notes: page.notes.map(clean), verdict: { ...page.verdict, word: clean(page.verdict.word), meaning: clean(page.verdict.meaning) }, ...(page.changes && { changes: page.changes.map(clean) }), pairs };
}
