/** What a page asks of one pair: names, users, partners, frames by structure, lines of code. */

import { clean, kindOf, short } from "./words";
import { type Change, type Frame, type PairData, type Port, CHANGES, GUARD, NEIGHBOR, SAVED, VIEW } from "./data";

/** A step, or a frame as -(its number) - 1. */
export type Unit = number;

export const frameUnit = (frame: number): Unit => -frame - 1;

export interface Line {
  /** The step of the line, or -1. */
  node: number;
  /** A comment above the step, or a line of the head or the end. */
  text: string | null;
}

export interface Pill {
  text: string;
  title: string;
  role: string;
}

/** What happened to a step, and the step as text before and after it. */
export interface Mark {
  kind: Change;
  texts: [name: "before" | "after", text: string][];
  other: number;
}

export type Counts = Record<Change, number>;

export class Model {
  readonly count: number;
  readonly strings: string[];
  readonly entering: Port[];
  readonly shorts: string[];
  readonly kinds: string[];
  /** Steps that use a value: those of value v are users[starts[v]..starts[v + 1]]. */
  private readonly starts: Int32Array;
  private readonly users: Int32Array;
  readonly pulled: number[][];
  /** Position of each unit within its frame. */
  readonly place: Int32Array;
  readonly framePlace: Int32Array;
  /** Frames of one structure, in any turn of a loop, have one number: what is open in a turn is open in the next. */
  readonly alike: Int32Array;
  readonly depth: Int32Array;
  readonly deepest: number;
  readonly pills: Map<number, { outer: Pill[]; made: Pill[] }>;
  /** Whether the memory of steps is known; of a region it is not. */
  readonly timed: boolean;
  readonly bad: Map<number, { nan: number; inf: number }>;
  readonly badFrames: Set<number>;
  readonly savedFrom: Map<number, [port: number, bytes: number, fresh: number][]>;
  readonly marks = new Map<number, Mark>();
  /** Of the steps of each frame and of those inside it, how many are marked. */
  readonly marked = new Map<number, Counts>();
  /** Whether nodes are drawn that are not in the region, but give gradients to it or get some from it. */
  readonly neighbors: boolean;
  private lines: Line[] | undefined;
  private paths: string[] | undefined;
  private lineAt: Int32Array | undefined;

  /** `called` is what the frame of the whole program is called, where its name in the data is not. */
  constructor(readonly data: PairData, private readonly called = "") {
    const { nodes, frames } = data;
    this.count = nodes.name.length;
    this.strings = data.strings.map(clean);
    this.entering = data.ports.filter(port => port.into);
    this.shorts = nodes.op.map(op => short(this.strings[op]));
    this.kinds = this.shorts.map((name, at) => kindOf(name, (nodes.flags[at] & VIEW) !== 0, (nodes.flags[at] & GUARD) !== 0));
    [this.starts, this.users] = usersOf(nodes.inputs, this.count + this.entering.length);
    this.pulled = reversed(nodes.partners, this.count);
    this.place = new Int32Array(this.count);
    this.framePlace = new Int32Array(frames.length);
    for (const frame of frames) frame.units.forEach((unit, at) => ((unit < 0 ? this.framePlace : this.place)[unit < 0 ? -unit - 1 : unit] = at));
    [this.alike, this.depth] = this.structure();
    this.deepest = this.depth.reduce((most, depth) => Math.max(most, depth), 0);
    this.timed = data.memory.spans.length > 0 || data.memory.peak[1] > 0 || data.memory.before > 0;
    this.savedFrom = new Map();
    for (const [value, port, size, fresh] of data.saved) listed(this.savedFrom, value).push([port, size, fresh]);
    this.pills = this.portPills();
    this.neighbors = nodes.flags.some(flags => flags & NEIGHBOR);
    this.bad = new Map();
    data.stats?.value.forEach((value, at) => {
      const [nan, inf] = [data.stats!.rows[at][6], data.stats!.rows[at][7]];
      if (nan || inf) this.bad.set(value, { nan, inf });
    });
    data.marks?.node.forEach((node, at) => this.mark(node, at));
    this.badFrames = new Set([...this.bad.keys()].filter(value => value < this.count).flatMap(value => this.above(value)));
  }

  private mark(node: number, at: number): void {
    const { kind, text, other } = this.data.marks!, lines = text[at].split("\n");
    const texts = lines.map((line): Mark["texts"][0] => [line.startsWith("-") ? "before" : "after", clean(line.slice(2))]);
    this.marks.set(node, { kind: kind[at], texts, other: other[at] });
    for (const frame of this.above(node)) {
      const counts = this.marked.get(frame) ?? (Object.fromEntries(CHANGES.map(one => [one, 0])) as Counts);
      this.marked.set(frame, counts);
      counts[kind[at]]++;
    }
  }

  isNeighbor(node: number): boolean {
    return (this.data.nodes.flags[node] & NEIGHBOR) !== 0;
  }

  text(id: number): string {
    return this.strings[id];
  }

  frame(id: number): Frame {
    return this.data.frames[id];
  }

  isForward(node: number): boolean {
    return node < this.data.forward;
  }

  nameOf(value: number): string {
    return value < 0 ? "a constant" : value < this.count ? this.strings[this.data.nodes.name[value]] : this.portName(this.entering[value - this.count]);
  }

  /** The name of a port: of a gradient, also that of an output (its tangent), `∂` and the name of what it is the gradient of. */
  portName({ role, name }: Port, last = false): string {
    const all = this.strings[name], said = last ? all.split(".").at(-1)! : all;
    return role === "gradient" || role === "tangent" ? `∂${said}` : said;
  }

  specOf(value: number): string {
    return value < 0 ? "" : this.strings[value < this.count ? this.data.nodes.spec[value] : this.entering[value - this.count].spec];
  }

  usersOf(value: number): number[] {
    return [...this.users.subarray(this.starts[value], this.starts[value + 1])];
  }

  /** `model.py:12`, or nothing. */
  lineOf(node: number): string {
    const source = this.data.sources[this.data.nodes.source[node]];
    return source ? `${this.strings[source[0]]}:${source[1]}` : "";
  }

  moduleOf(node: number): string {
    const source = this.data.sources[this.data.nodes.source[node]];
    return source ? this.strings[source[4]] : "";
  }

  /** What the forward saves: values and bytes of their own, and values that share memory with others or are the caller's, with the bytes that count for those. */
  savedSum(): { own: [values: number, bytes: number]; rest: [values: number, bytes: number] } {
    const sum = { own: [0, 0] as [number, number], rest: [0, 0] as [number, number] };
    for (const [, , all, fresh] of this.data.saved) {
      const part = fresh ? sum.own : sum.rest;
      part[0]++;
      part[1] += fresh || all;
    }
    return sum;
  }

  isSaved(node: number): boolean {
    return (this.data.nodes.flags[node] & SAVED) !== 0;
  }

  isView(node: number): boolean {
    return (this.data.nodes.flags[node] & VIEW) !== 0;
  }

  /** The frames around a step or a frame, the innermost first. */
  above(unit: Unit): number[] {
    const found = [];
    for (let at = unit < 0 ? this.frame(-unit - 1).parent : this.data.nodes.frame[unit]; at >= 0; at = this.frame(at).parent) found.push(at);
    return found;
  }

  /** A frame's name without that of the frame around it. */
  title(id: number): string {
    const { name, parent, kind, label } = this.frame(id);
    if (parent < 0 && this.called) return this.called;
    const [own, around] = [this.strings[name], parent >= 0 ? this.strings[this.frame(parent).name] : ""];
    const rest = around && own.startsWith(`${around}.`) ? own.slice(around.length + 1) : own;
    return rest || this.strings[label] || kind;
  }

  /** A frame that is a turn of a loop: it has no box of its own. */
  isTurn(id: number): boolean {
    const { parent } = this.frame(id);
    return parent >= 0 && this.frame(parent).kind === "loop";
  }

  /** The names of a frame and of those around it: `transformer.h.3.attn`. */
  path(id: number): string {
    return (this.paths ??= this.allPaths())[id];
  }

  private allPaths(): string[] {
    const paths: string[] = [], own = (id: number): string => {
      if (paths[id] !== undefined) return paths[id];
      const { name, parent, kind } = this.frame(id), around = parent > 0 ? own(parent) : "";
      const said = kind === "loop" ? this.strings[name].replace(/\.?\d+…\d+$/, "") : this.strings[name];
      return (paths[id] = parent < 0 ? "" : [around, said].filter(Boolean).join(kind === "line" ? " " : "."));
    };
    this.data.frames.forEach((_, id) => own(id));
    return paths;
  }

  /** The steps of a frame and of those inside it. */
  *inside(id: number): Generator<number> {
    for (const unit of this.frame(id).units) {
      if (unit >= 0) yield unit;
      else yield* this.inside(-unit - 1);
    }
  }

  call(node: number): string {
    const { op, args, inputs } = this.data.nodes;
    const filled = this.strings[args[node]].replace(/\{(\d+)\}/g, (all, at) => at in inputs[node] ? this.nameOf(inputs[node][at]) : all);
    return `${this.strings[op[node]]}(${filled})`;
  }

  echoOf(node: number): string {
    const { echo, partners } = this.data.nodes, said = this.strings[echo[node]];
    return said && `${said} ${partners[node].map(partner => this.nameOf(partner)).join(", ")}`;
  }

  /** The code of both directions, line by line. */
  code(): Line[] {
    if (this.lines) return this.lines;
    const { forward, code } = this.data, lines: Line[] = [], add = (text: string) => lines.push({ node: -1, text: clean(text) });
    let before = "";
    const steps = (from: number, to: number) => {
      for (let node = from; node < to; node++) {
        const parts = [this.echoOf(node), this.moduleOf(node), this.lineOf(node)].filter(Boolean).join("; ");
        if (parts && parts !== before) lines.push({ node, text: `# ${(before = parts)}` });
        lines.push({ node, text: null });
      }
    };
    code.forward.forEach(add);
    steps(0, forward);
    code.ends[0].forEach(add);
    if (this.count > forward || code.backward.length) add("");
    code.backward.forEach(add);
    steps(forward, this.count);
    code.ends[1].forEach(add);
    this.lineAt = new Int32Array(this.count);
    lines.forEach((line, at) => { if (line.node >= 0) this.lineAt![line.node] = at; });
    return (this.lines = lines);
  }

  lineOfCode(node: number): number {
    this.code();
    return this.lineAt![node];
  }

  private structure(): [Int32Array, Int32Array] {
    const { frames } = this.data, known = new Map<string, number>();
    const [alike, depth] = [new Int32Array(frames.length), new Int32Array(frames.length)];
    const visit = (id: number, around: number, level: number) => {
      const loop = around >= 0 && frames[frames[id].parent].kind === "loop", key = `${around}:${loop ? "*" : this.framePlace[id]}`;
      if (!known.has(key)) known.set(key, known.size);
      alike[id] = known.get(key)!;
      depth[id] = level;
      for (const unit of frames[id].units) if (unit < 0) visit(-unit - 1, alike[id], loop ? level : level + 1);
    };
    visit(0, -1, 0);
    return [alike, depth];
  }

  /** Parameters that a step takes, and what of it leaves the program, as pills beside it. */
  private portPills(): Map<number, { outer: Pill[]; made: Pill[] }> {
    const found = new Map<number, { outer: Pill[]; made: Pill[] }>();
    const at = (node: number) => found.get(node) ?? (found.set(node, { outer: [], made: [] }), found.get(node)!);
    const pill = (port: Port): Pill => {
      return { text: this.portName(port, true), title: `${port.role} ${this.strings[port.name]} ${this.strings[port.spec]}`, role: port.role };
    };
    for (const port of this.entering)
      if (port.role === "parameter" || port.role === "buffer") for (const user of this.usersOf(port.value)) at(user).outer.push(pill(port));
    for (const port of this.data.ports)
      if (!port.into && port.role !== "saved" && port.value >= 0 && port.value < this.count) at(port.value).made.push(pill(port));
    return found;
  }
}

export function listed<K, V>(map: Map<K, V[]>, key: K): V[] {
  const found = map.get(key) ?? [];
  map.set(key, found);
  return found;
}

function usersOf(inputs: number[][], values: number): [Int32Array, Int32Array] {
  const starts = new Int32Array(values + 1), unique = inputs.map(row => [...new Set(row)]);
  for (const row of unique) for (const value of row) starts[value + 1]++;
  for (let at = 0; at < values; at++) starts[at + 1] += starts[at];
  const next = starts.slice(), users = new Int32Array(starts[values]);
  unique.forEach((row, node) => row.forEach(value => (users[next[value]++] = node)));
  return [starts, users];
}

function reversed(rows: number[][], count: number): number[][] {
  const found: number[][] = Array.from({ length: count }, () => []);
  rows.forEach((row, node) => row.forEach(target => found[target].push(node)));
  return found;
}
