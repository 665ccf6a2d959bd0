/** Search by words and filters. Each text is compared once, however many steps have it. */

import { CHANGES } from "./data";
import { type Model, type Unit, frameUnit } from "./model";

export interface Found {
  /** Steps and frames, the best first. */
  units: Unit[];
  steps: ReadonlySet<number>;
  /** Matches in each frame, those inside it included. */
  within: Map<number, number>;
  /** `12 in names`, `3 in shapes`. */
  counts: [place: string, count: number][];
  /** Steps that have the words, but not in their names: where, how many, and the query that finds them. */
  elsewhere: { steps: number; counts: [place: string, count: number][]; query: string };
  forward: number;
  /** What is wrong with the query, in words. */
  problem: string;
}

type Test = (node: number) => boolean;

const SIZES: Record<string, number> = { "": 1, b: 1, k: 1024, kib: 1024, kb: 1e3, m: 1024 ** 2, mib: 1024 ** 2, mb: 1e6, g: 1024 ** 3, gib: 1024 ** 3, gb: 1e9 };
const NAMES = 0b11, ANYWHERE = "any:";
/** The bits of names and of operators, among the places below. */
const PLACES = ["names", "operators", "shapes", "source lines", "modules", "parameters"];

export const FILTERS: [word: string, meaning: string][] = [
  ["op:mm", "steps whose operator is mm (op:mm* for those that begin with it)"],
  ["kind:matmul", "matmul, convolution, attention, norm, softmax, reduction, pointwise, embedding, copy, creation, view, guard"],
  ["is:saved", "steps whose value is saved for the backward; also is:view, is:guard"],
  ["side:backward", "steps of the backward; also side:forward"],
  [">1MiB", "steps that write more than 1 MiB; also <4KiB"],
  ["module:layers.3", "steps of this module and of those inside it"],
  ["line:model.py:12", "steps of a source line, or of a whole file"],
  ["shape:3,4", "values with these sizes next to one another"],
  ["any:relu", "steps that have a word anywhere: in source lines, modules, parameters and shapes, too"],
  ["has:nan", "steps whose values were measured and have NaN; also has:inf"],
];

/** The filters of a page: only that of a difference knows what changed. */
export function filtersOf(model: Model): typeof FILTERS {
  return model.data.marks ? [...FILTERS, ["is:changed", "steps that changed; also is:added, is:removed"]] : FILTERS;
}

export class Searcher {
  private readonly lower: string[];
  private readonly lines: string[];
  private readonly codes: string[];
  private readonly paths: string[];

  constructor(private readonly model: Model) {
    this.lower = model.strings.map(text => text.toLowerCase());
    this.lines = model.data.sources.map(source => `${this.lower[source[0]]}:${source[1]}`);
    this.paths = model.data.frames.map((_, id) => model.path(id).toLowerCase());
    this.codes = model.data.sources.map(source => `${this.lower[source[2]]} ${this.lower[source[3]]}`);
  }

  /** Steps whose names have the words; where there are none, those that have the words anywhere. */
  find(query: string): Found | null {
    const words = [...query.toLowerCase().matchAll(/(any:)?"([^"]*)"|(\S+)/g)].map(match => (match[3] ?? `${match[1] ?? ""}${match[2]}`)).filter(Boolean);
    if (!words.length) return null;
    const tests: Test[] = [], plain: string[] = [], problems: string[] = [];
    let anywhere = false;
    for (const word of words) {
      const filter = word.startsWith(ANYWHERE) && word.length > ANYWHERE.length ? null : this.filterOf(word);
      if (typeof filter === "string") problems.push(filter);
      else if (filter) tests.push(filter);
      else {
        anywhere ||= word.startsWith(ANYWHERE);
        plain.push(word.replace(ANYWHERE, ""));
      }
    }
    const places = plain.map(word => this.placesOf(word)), ranked: number[][] = [[], [], []], others: number[] = [];
    if (!problems.length) for (let node = 0; node < this.model.count; node++) {
      if (!tests.every(test => test(node)) || !places.every(column => column[node])) continue;
      if (!places.length || places.every(column => column[node] & NAMES)) ranked[places.length ? this.rank(node, plain[0]) : 0].push(node);
      else others.push(node);
    }
    const frames = problems.length || tests.length ? [[], []] : this.framesOf(plain), named = ranked.flat();
    const all = anywhere || !named.length, counts = (steps: number[]) => this.countsOf(steps, places[0]);
    const steps = all ? [...named, ...others] : named, rest = all ? [] : others;
    const wider = words.map(word => (plain.includes(word) ? (/\s/.test(word) ? `any:"${word}"` : `any:${word}`) : word)).join(" ");
    return { ...this.sum(frames, steps, problems.join(" ")), counts: counts(steps), elsewhere: { steps: rest.length, counts: counts(rest), query: wider } };
  }

  /** In how many steps a word is in which place. */
  private countsOf(steps: number[], column: Uint8Array | undefined): [string, number][] {
    if (!column) return [];
    return PLACES.map((name, place): [string, number] => [name, steps.reduce((sum, node) => sum + ((column[node] >> place) & 1), 0)]).filter(([, count]) => count);
  }

  private sum([first, others]: Unit[][], steps: number[], problem: string): Omit<Found, "counts" | "elsewhere"> {
    const { model } = this, within = new Map<number, number>();
    let forward = 0;
    const own = new Int32Array(model.data.frames.length);
    for (const node of steps) {
      if (model.isForward(node)) forward++;
      own[model.data.nodes.frame[node]]++;
    }
    own.forEach((count, frame) => {
      if (count) for (let at = frame; at >= 0; at = model.frame(at).parent) within.set(at, (within.get(at) ?? 0) + count);
    });
    return { units: [...first, ...steps, ...others], steps: new Set(steps), within, forward, problem };
  }

  /** 0 for a name or an operator that is the word, 1 for one that begins with it, 2 for one that has it. */
  private rank(node: number, word: string): number {
    const { model } = this, names = [model.shorts[node].toLowerCase(), this.lower[model.data.nodes.name[node]]];
    if (names.includes(word)) return 0;
    return names.some(name => name.startsWith(word)) ? 1 : 2;
  }

  /** Frames that have the words, one of each structure: first those whose own name begins with the first word. */
  private framesOf(words: string[]): [first: Unit[], others: Unit[]] {
    const { model } = this, found: [Unit[], Unit[]] = [[], []], seen = new Set<number>();
    model.data.frames.forEach((frame, id) => {
      const own = this.lower[frame.name], text = `${this.paths[id]} ${this.lower[frame.label]}`;
      if (id === 0 || seen.has(model.alike[id]) || !words.every(word => text.includes(word))) return;
      if (!words.some(word => own.includes(word) || this.lower[frame.label].includes(word) || word.includes("."))) return;
      seen.add(model.alike[id]);
      found[own.startsWith(words[0]) || this.paths[id] === words[0] ? 0 : 1].push(frameUnit(id));
    });
    return found;
  }

  /** For each step the places, as bits, where a word is. */
  private placesOf(word: string): Uint8Array {
    const { model } = this, { nodes, sources } = model.data;
    const texts = Uint8Array.from(this.lower, text => Number(text.includes(word)));
    const lines = Uint8Array.from(sources, (source, at) => (this.lines[at].includes(word) || this.codes[at].includes(word) ? 8 : 0) | (texts[source[4]] ? 16 : 0));
    const ports = Uint8Array.from(model.entering, port => (texts[port.name] ? 32 : 0));
    const found = new Uint8Array(model.count);
    for (let node = 0; node < model.count; node++) {
      let where = texts[nodes.name[node]] | (texts[nodes.op[node]] << 1) | (texts[nodes.spec[node]] << 2);
      if (nodes.source[node] >= 0) where |= lines[nodes.source[node]];
      for (const value of nodes.inputs[node]) if (value >= model.count) where |= ports[value - model.count];
      found[node] = where;
    }
    return found;
  }

  /** The test of a filter, a sentence where it is none, or nothing for a plain word. */
  private filterOf(word: string): Test | string | null {
    const size = /^([<>])=?([\d.]+)([a-z]*)$/.exec(word);
    if (size) {
      const unit = SIZES[size[3]];
      if (unit === undefined) return `“${word}”: the unit is B, KiB, MiB or GiB.`;
      const limit = Number(size[2]) * unit, { written } = this.model.data.nodes;
      return size[1] === ">" ? node => written[node] > limit : node => written[node] < limit;
    }
    const [, key, value] = /^(op|kind|is|side|module|line|shape|has):(.*)$/.exec(word) ?? [];
    if (!key) return null;
    if (!value) return `“${word}” needs something behind the colon.`;
    return this.keyed(key, value);
  }

  private keyed(key: string, value: string): Test | string {
    const { model } = this, { nodes, sources } = model.data;
    const wrong = (allowed: string[]) => `“${key}:${value}”: ${key} is one of ${allowed.join(", ")}.`;
    const table: Record<string, () => Test | string> = {
      op: () => {
        const begins = value.endsWith("*") ? value.slice(0, -1) : null, ops = model.strings.map((_, at) => this.lower[at]);
        return node => {
          const [name, op] = [model.shorts[node].toLowerCase(), ops[nodes.op[node]]];
          return begins === null ? name === value || op === value || op.endsWith(`.${value}`) || op.startsWith(`${value}.`) : name.startsWith(begins) || op.startsWith(begins);
        };
      },
      kind: () => {
        const kinds = [...new Set(model.kinds)].sort();
        return kinds.includes(value) ? node => model.kinds[node] === value : wrong(kinds);
      },
      is: () => {
        const states: Record<string, Test> = { saved: node => model.isSaved(node), view: node => model.isView(node), guard: node => model.kinds[node] === "guard" };
        if (model.data.marks) for (const kind of CHANGES) states[kind] = node => model.marks.get(node)?.kind === kind;
        return Object.hasOwn(states, value) ? states[value] : wrong(Object.keys(states));
      },
      side: () => value === "forward" || value === "backward" ? node => model.isForward(node) === (value === "forward") : wrong(["forward", "backward"]),
      module: () => {
        const begins = (text: string) => text === value || text.startsWith(`${value}.`) || text.includes(`.${value}.`) || text.endsWith(`.${value}`);
        const inside = model.strings.map((_, at) => begins(this.lower[at])), frames = this.paths.map(begins);
        return node => frames[nodes.frame[node]] || (nodes.source[node] >= 0 && inside[sources[nodes.source[node]][4]]);
      },
      line: () => {
        const ends = this.lines.map(line => line === value || line.endsWith(`/${value}`) || line.startsWith(`${value}:`) || line.includes(`/${value}:`));
        return node => nodes.source[node] >= 0 && ends[nodes.source[node]];
      },
      shape: () => {
        const wanted = `,${value.replace(/[^\w,*]/g, "")},`;
        const fits = model.strings.map(text => /\[/.test(text) && `,${text.slice(text.indexOf("[") + 1, text.lastIndexOf("]")).replace(/\s/g, "")},`.includes(wanted));
        return node => fits[nodes.spec[node]];
      },
      has: () => {
        if (!model.data.stats) return "This capture has no statistics of values, so has: finds nothing.";
        return value === "nan" || value === "inf" ? node => (model.bad.get(node)?.[value] ?? 0) > 0 : wrong(["nan", "inf"]);
      },
    };
    return table[key]();
  }
}
