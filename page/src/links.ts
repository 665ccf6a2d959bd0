/** What belongs to a selection: its partners, its inputs and users, what it saves, and the lines between them. */

import { type Model, type Unit } from "./model";
import { type Line, type Scene, lineKey } from "./layout";
import { visibleOf } from "./state";

export interface Lit {
  /** What each unit in the picture is to the selection. */
  units: Map<Unit, "self" | "partner" | "input" | "user" | "saved">;
  lines: Set<Line>;
  /** The steps themselves, for the code. */
  steps: Set<number>;
}

export interface Related {
  partners: number[];
  inputs: number[];
  users: number[];
  /** Saved values: steps of the forward, or values that enter, and the steps of the backward that read them. */
  saved: { value: number; users: number[]; bytes: number }[];
}

export function relatedTo(model: Model, node: number): Related {
  const { nodes, saved } = model.data, forward = model.isForward(node);
  const partners = forward ? model.pulled[node] : nodes.partners[node], inputs = [...new Set(nodes.inputs[node])];
  const touched = forward
    ? (model.savedFrom.get(node) ?? []).map(([port, bytes]) => ({ value: node, users: model.usersOf(port), bytes }))
    : saved.filter(([, port]) => inputs.includes(port)).map(([value, , bytes]) => ({ value, users: [node], bytes }));
  return { partners, inputs, users: model.usersOf(node), saved: touched };
}

/** The lines along which a value flows from one step to another, as far as they are in the picture. */
function route(model: Model, scene: Scene, from: number, to: number, side: Line["side"]): Line[] {
  const found: Line[] = [], chain = (node: number) => {
    const shown = visibleOf(model, scene, node), frames = model.above(shown).filter(frame => scene.byUnit.has(-frame - 1));
    return { shown, frames };
  };
  const [a, b] = [chain(from), chain(to)];
  const shared = a.frames.find(frame => b.frames.includes(frame));
  if (shared === undefined || a.shown === b.shown) return found;
  const line = (frame: number, source: Unit | null, target: Unit | null) => {
    const one = scene.lineOf.get(lineKey(frame, side, source, target));
    if (one) found.push(one);
  };
  const inner = (end: typeof a) => end.frames.slice(0, end.frames.indexOf(shared));
  let source = a.shown;
  for (const frame of inner(a)) [source] = [-frame - 1, line(frame, source, null)];
  let target = b.shown;
  for (const frame of inner(b)) [target] = [-frame - 1, line(frame, null, target)];
  line(shared, source, target);
  return found;
}

export function litBy(model: Model, scene: Scene, unit: Unit): Lit {
  const units: Lit["units"] = new Map(), lines = new Set<Line>(), steps = new Set<number>(), own = visibleOf(model, scene, unit);
  const add = (other: number, role: "partner" | "input" | "user" | "saved") => {
    const shown = visibleOf(model, scene, other);
    steps.add(other);
    if (shown !== own && !units.has(shown) && scene.byUnit.get(shown)!.kind !== "open") units.set(shown, role);
  };
  units.set(own, "self");
  if (unit < 0) {
    for (const line of scene.lines) if (line.from === unit || line.to === unit) lines.add(line);
    return { units, lines, steps };
  }
  const related = relatedTo(model, unit), side = model.isForward(unit) ? "left" : "right";
  related.partners.forEach(other => add(other, "partner"));
  for (const { value, users } of related.saved)
    for (const user of users) {
      if (value < model.count) {
        add(value, "saved");
        for (const line of route(model, scene, value, user, "bridge")) lines.add(line);
      }
      add(user, "saved");
    }
  for (const other of related.inputs) {
    if (other >= model.count) continue;
    add(other, "input");
    for (const line of route(model, scene, other, unit, side)) lines.add(line);
  }
  for (const other of related.users) {
    add(other, "user");
    for (const line of route(model, scene, unit, other, side)) lines.add(line);
  }
  return { units, lines, steps };
}
