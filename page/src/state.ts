/** What is open and selected: how it begins, how it changes, and how a link spells it. */

import { type Model, type Unit, frameUnit } from "./model";
import { type Opened, type Scene, LEGIBLE, isOpen, place, shownOf } from "./layout";

const ROOM = 28;

/** The first picture: frames are opened, those of the most steps first, while few units are to be seen and their names can be read in `wide` pixels. */
export function firstOpen(model: Model, wide = Infinity): Opened {
  const open = new Set<number>(), state: Opened = { open, turn: new Map() };
  const queue = [0];
  /** Frames of fewer steps stay closed: beside a much larger one that is closed they say little. */
  let [seen, least] = [1, 0];
  const size = (frame: number) => model.frame(shownOf(model, state, frame)).units.length;
  const steps = (frame: number) => model.frame(frame).counts[0] + model.frame(frame).counts[1];
  while (queue.length) {
    queue.sort((a, b) => steps(b) - steps(a));
    const frame = queue.shift()!;
    if (frame !== 0 && (seen + size(frame) > ROOM || steps(frame) < least)) break;
    open.add(model.alike[frame]);
    const { left, right } = place(model, state);
    if (frame !== 0 && (right - left) * LEGIBLE > wide) {
      open.delete(model.alike[frame]);
      least = Math.max(least, steps(frame) / 2);
      continue;
    }
    seen += size(frame);
    for (const unit of model.frame(shownOf(model, state, frame)).units) if (unit < 0) queue.push(-unit - 1);
  }
  return state;
}

export function openedTo(model: Model, state: Opened, depth: number): Opened {
  const open = new Set<number>();
  model.data.frames.forEach((_, id) => { if (model.depth[id] < depth) open.add(model.alike[id]); });
  return { open, turn: state.turn };
}

/** The depth to which every frame is open. */
export function depthOf(model: Model, state: Opened): number {
  let depth = model.deepest + 1;
  model.data.frames.forEach((_, id) => { if (!model.isTurn(id) && !isOpen(model, state, id)) depth = Math.min(depth, model.depth[id]); });
  return depth;
}

export function toggled(model: Model, state: Opened, frame: number): Opened {
  const open = new Set(state.open), id = model.alike[frame];
  if (!open.delete(id)) open.add(id);
  return { open, turn: state.turn };
}

export function openedInside(model: Model, state: Opened, frame: number): Opened {
  const open = new Set(state.open), visit = (id: number) => {
    open.add(model.alike[id]);
    for (const unit of model.frame(id).units) if (unit < 0) visit(-unit - 1);
  };
  visit(frame);
  return { open, turn: state.turn };
}

export function turned(model: Model, state: Opened, loop: number, turn: number): Opened {
  const last = model.frame(loop).units.length - 1;
  return { open: state.open, turn: new Map(state.turn).set(model.alike[loop], Math.max(0, Math.min(last, turn))) };
}

/** Open the frames around a unit, and turn loops to it. */
export function revealed(model: Model, state: Opened, unit: Unit): Opened {
  const [open, turn] = [new Set(state.open), new Map(state.turn)];
  let inner = unit;
  for (const frame of model.above(unit)) {
    if (model.frame(frame).kind === "loop") turn.set(model.alike[frame], model.framePlace[-inner - 1]);
    open.add(model.alike[frame]);
    inner = frameUnit(frame);
  }
  return { open, turn };
}

/** The unit, or the closed frame around it, that is in the picture. */
export function visibleOf(model: Model, scene: Scene, unit: Unit): Unit {
  let shown = frameUnit(0);
  for (const frame of [...model.above(unit).reverse().map(frameUnit), unit]) if (scene.byUnit.has(frame)) shown = frame;
  return shown;
}

export interface Spot {
  pair: number;
  unit: Unit | null;
  opened: Opened | null;
}

/** `#pair=0&step=12&open=0-3.7&turn=2:5`. */
export function hashOf(pair: number, unit: Unit | null, opened: Opened): string {
  const parts = [`pair=${pair}`];
  if (unit !== null) parts.push(unit < 0 ? `frame=${-unit - 1}` : `step=${unit}`);
  parts.push(`open=${ranges([...opened.open])}`);
  const turns = [...opened.turn].filter(([, turn]) => turn).map(([loop, turn]) => `${loop}:${turn}`);
  return `#${[...parts, ...(turns.length ? [`turn=${turns.join(".")}`] : [])].join("&")}`;
}

function ranges(numbers: number[]): string {
  const found: [number, number][] = [];
  for (const number of numbers.sort((a, b) => a - b)) {
    const last = found.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else found.push([number, number]);
  }
  return found.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(".");
}

/** Read a link. Numbers that this page does not have are left out: the page may have been made anew. */
export function spotOf(hash: string, models: Model[]): Spot {
  const parts = new Map(hash.replace(/^#/, "").split("&").map(part => part.split("=", 2) as [string, string]));
  const number = (name: string, limit: number) => {
    const text = parts.get(name), found = Number(text);
    return text && /^\d+$/.test(text) && found < limit ? found : null;
  };
  const pair = number("pair", models.length) ?? 0, model = models[pair];
  const [step, frame] = [number("step", model.count), number("frame", model.data.frames.length)];
  const unit = step ?? (frame === null ? null : frameUnit(frame));
  return { pair, unit, opened: parts.has("open") ? openedOf(parts.get("open")!, parts.get("turn") ?? "") : null };
}

function openedOf(open: string, turn: string): Opened {
  const found = new Set<number>(), turns = new Map<number, number>();
  for (const [, from, to] of open.matchAll(/(\d{1,6})(?:-(\d{1,6}))?/g))
    for (let id = Number(from); id <= Number(to ?? from); id++) found.add(id);
  for (const [, loop, at] of turn.matchAll(/(\d{1,6}):(\d{1,6})/g)) turns.set(Number(loop), Number(at));
  return { open: found, turn: turns };
}
