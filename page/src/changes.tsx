/** What changed: its words, the steps that are marked, and a step before and after. */

import { Component, type VNode, createRef } from "preact";
import { type PageData, CHANGES } from "./data";
import { type Model, type Unit, listed } from "./model";
import type { Jump } from "./parts";
import { SIGNS, plural, whole } from "./words";

/** A marked step of a pair. */
export interface Marked {
  pair: number;
  node: number;
}

/** Every change once, by pair and module; a step that changed stands with the first of its two pairs. */
export function markedOf(models: Model[]): Marked[] {
  return models.flatMap((model, pair) => {
    const places = new Map<string, Marked[]>(), earlier = (model.data.marks?.pair ?? -1) < pair;
    for (const [node, mark] of model.marks) if (mark.other < 0 || !earlier) listed(places, where(model, node)).push({ pair, node });
    return [...places.values()].flat();
  });
}

/** The module of a step; where it is not known, its frame. */
function where(model: Model, node: number): string {
  const frame = model.data.nodes.frame[node];
  return model.moduleOf(node) || model.path(frame) || model.title(frame);
}

/** The place of a step in a list of changes, be it the step of this pair or of the other one. */
export function placeOf(marked: Marked[], models: Model[], pair: number, unit: Unit | null): number {
  const { marks, data } = models[pair], there = data.marks?.pair, other = unit === null ? undefined : marks.get(unit)?.other;
  return marked.findIndex(one => (one.pair === pair && one.node === unit) || (one.pair === there && one.node === other));
}

/** `1 added, 3 changed`, or nothing. */
export function countsSaid(model: Model, frame: number): string {
  const counts = model.marked.get(frame);
  return counts ? CHANGES.filter(kind => counts[kind]).map(kind => `${whole(counts[kind])} ${kind}`).join(", ") : "";
}

/** A marked step as text, before and after, with a link to the other side. */
export function Before({ page, model, node, jump }: { page: PageData; model: Model; node: number; jump: Jump }): VNode {
  const { kind, texts, other } = model.marks.get(node)!, { pair } = model.data.marks!;
  return (
    <div class="change">
      <p><b class="sign">{SIGNS[kind]}</b> {kind}{other >= 0 && ", "}{other >= 0 && <button class="link" onClick={() => jump(pair, other)}>see <bdi>{page.pairs[pair].name}</bdi></button>}</p>
      <dl>{texts.map(([name, text]) => [<dt key={name}>{name}</dt>, <dd key={`${name} `}><code><bdi>{text}</bdi></code></dd>])}</dl>
    </div>
  );
}

interface ChangesProps {
  page: PageData;
  models: Model[];
  marked: Marked[];
  at: number;
  jump: Jump;
}

const LINES = 200, ROWS = 100;

export class Changes extends Component<ChangesProps, { lines: number; rows: number }> {
  override state = { lines: LINES, rows: ROWS };
  private readonly chosen = createRef<HTMLLIElement>();

  override componentDidUpdate(before: ChangesProps): void {
    if (before.at !== this.props.at) this.chosen.current?.scrollIntoView({ block: "nearest" });
  }

  private row(one: Marked, at: number): VNode {
    const { page, models, jump, at: chosen } = this.props, model = models[one.pair], { kind } = model.marks.get(one.node)!;
    return (
      <li key={`${one.pair} ${one.node}`} class={at === chosen ? "chosen" : ""} ref={at === chosen ? this.chosen : null} aria-current={at === chosen}>
        <b class="sign" title={kind}>{SIGNS[kind]}</b>
        <button class={`link ${model.isForward(one.node) ? "forward" : "backward"}`} title={model.call(one.node)} onClick={() => jump(one.pair, one.node)}><bdi>{model.nameOf(one.node)}</bdi></button>
        <code class="soft">{model.specOf(one.node)}</code>
        {at === chosen && <Before page={page} model={model} node={one.node} jump={jump} />}
      </li>
    );
  }

  /** The rows, with a head wherever the module is another. */
  private rows(most: number): VNode[] {
    const { page, models, marked } = this.props, head = ({ pair, node }: Marked) => `${page.pairs[pair].name}, ${where(models[pair], node)}`;
    return marked.slice(0, most).flatMap((one, at) => {
      const row = this.row(one, at), here = head(one);
      return at && head(marked[at - 1]) === here ? [row] : [<li key={`${at} head`} class="head"><bdi>{here}</bdi></li>, row];
    });
  }

  render({ page, marked, at }: ChangesProps): VNode {
    const changes = page.changes!, { lines, rows } = this.state, most = Math.max(rows, at + 20);
    return (
      <div class="panel">
        <h2>Changes</h2>
        <div class="said">{changes.slice(0, lines).map((line, index) => <div key={index} class={/^\s+[-+~!]/.test(line) ? "one" : ""}><bdi>{line}</bdi></div>)}</div>
        {changes.length > lines && <button class="more" onClick={() => this.setState({ lines: Infinity })}>show more: {whole(lines)} of {plural(changes.length, "line")}</button>}
        <h3>Steps</h3>
        {marked.length ? <ul class="marked">{this.rows(most)}</ul> : <p class="soft">No step is marked.</p>}
        {marked.length > most && <button class="more" onClick={() => this.setState({ rows: most * 5 })}>show more: {whole(most)} of {whole(marked.length)}</button>}
      </div>
    );
  }
}
