/** Where the arrow keys lead: along the flow, and across to the partner. */

import type { Model, Unit } from "./model";
import type { Box, Scene } from "./layout";
import { visibleOf } from "./state";

type Keys = [keys: string, meaning: string][];

export const KEYS: Keys = [
  ["/", "search; Enter goes to the first, then to the next; Shift+Enter back; Escape leaves"],
  ["↓ ↑", "along the flow, as it is drawn: the forward runs down, the backward up"],
  ["← →", "to the partner in the other direction"],
  ["Enter", "open or close the selected frame, or the one around the selected step"],
  ["Shift+Enter", "open everything inside the selected frame"],
  ["[ ]", "previous or next turn of the loop around the selection"],
  ["n p", "next or previous match of the search"],
  ["1 – 9", "open every frame to that depth; 0 closes all but the first"],
  ["+ − f a", "zoom in, zoom out, fit, fit all"],
  ["m c l o i d", "memory, code, lines, operators, inputs and outputs, details"],
  ["Escape", "select nothing"],
  ["wheel", "move; with Ctrl or ⌘, zoom. Drag moves, too. On the time line: ← → move the moment"],
];

/** The keys of a page; that of a difference has more. */
export function keysOf(changes: boolean): Keys {
  const more: Keys = [["n p", "next or previous match of the search; without a search, next or previous change"], ["h", "changes"]];
  return changes ? KEYS.flatMap(row => (row[0] === "n p" ? more : [row])) : KEYS;
}

/** The next unit of the picture below (1) or above (-1) along the flow. */
export function along(model: Model, scene: Scene, unit: Unit | null, way: 1 | -1): Unit | null {
  if (unit === null) return first(scene);
  const forward = unit < 0 || model.isForward(unit), own = visibleOf(model, scene, unit);
  const drawn = (other: number) => other < model.count ? visibleOf(model, scene, other) : own;
  const onward = forward === (way === 1);
  for (const other of neighbours(model, unit, onward)) {
    const shown = drawn(other), box = scene.byUnit.get(shown);
    if (shown !== own && box && box.kind !== "open" && !model.above(own).includes(-shown - 1)) return shown;
  }
  return below(model, scene, own, way, forward);
}

function neighbours(model: Model, unit: Unit, onward: boolean): number[] {
  const steps = unit >= 0 ? [unit] : [...model.inside(-unit - 1)].filter(node => model.isForward(node)), own = new Set(steps);
  const found = steps.flatMap(node => (onward ? model.usersOf(node) : model.data.nodes.inputs[node])).filter(other => other < model.count && !own.has(other));
  return found.sort((a, b) => (onward ? a - b : b - a));
}

/** The nearest unit below or above, on the same side, where the flow leads nowhere. */
function below(model: Model, scene: Scene, unit: Unit, way: 1 | -1, forward: boolean): Unit | null {
  const here = scene.byUnit.get(unit);
  if (!here) return first(scene);
  let [best, least] = [unit, Infinity];
  for (const box of scene.boxes) {
    const away = (downOf(box) - downOf(here)) * way;
    if (box.kind === "open" || away <= 0 || (box.kind === "node" && model.isForward(box.unit) !== forward)) continue;
    const score = away + Math.abs(box.mid - here.mid) / 20;
    if (score < least) [best, least] = [box.unit, score];
  }
  return best;
}

/** How far down a box is: columns follow one another. */
const downOf = (box: Box) => box.y + (box.column ?? 0) * 1e6;

function first(scene: Scene): Unit | null {
  return scene.boxes.find(box => box.kind !== "open")?.unit ?? null;
}

/** The partner on the other side: the backward's first step for a step of the forward, and the reverse. */
export function across(model: Model, unit: Unit | null, right: boolean): Unit | null {
  if (unit === null || unit < 0 || model.isForward(unit) !== right) return unit;
  return (right ? model.pulled[unit] : model.data.nodes.partners[unit])[0] ?? unit;
}
