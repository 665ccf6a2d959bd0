/** How boxes, edges and bands look. The same elements are drawn in the picture, when lit, and in an exported file. */

import type { ComponentChildren, VNode } from "preact";
import { type Change, CHANGES } from "./data";
import type { Counts, Model } from "./model";
import { type Box, type Line, type Opened, ENTRY, GUTTER, bandWidth, pillsOf, pillWidth, turnOf } from "./layout";
import { SIGNS, bytes, fit, inFlop, plural } from "./words";

/** What the scale lets a person read. */
export interface Detail {
  /** Texts of steps, pills, arrowheads. */
  near: boolean;
  /** Shapes on edges. */
  close: boolean;
  /** The size of the names of frames. */
  title: number;
}

export function detailAt(scale: number): Detail {
  return { near: scale > 0.42, close: scale > 0.78, title: Math.min(120, Math.max(12, 9.5 / scale)) };
}

const HEAD = 24;
const LETTER = 6.9;

export function LineShape({ line, detail, bright }: { line: Line; detail: Detail; bright?: boolean }): VNode {
  const marker = line.side === "bridge" || !detail.near ? undefined : `url(#tip-${line.side})`;
  const label = line.side === "bridge" ? bytes(Number(line.label)) : line.label;
  return (
    <g class={`line ${line.side}${bright ? " bright" : ""}`}>
      <path d={line.d} stroke-width={line.width} marker-end={marker} />
      {detail.close && line.side !== "bridge" && label && <text x={line.at[0]} y={line.at[1]}>{fit(label, 26)}</text>}
      {detail.close && line.side === "bridge" && bright && line.label !== "0" && <text x={line.at[0]} y={line.at[1]} class="middle">{label}</text>}
    </g>
  );
}

export interface Marks {
  matches: Map<number, number> | null;
  steps: ReadonlySet<number> | null;
}

interface BoxProps {
  model: Model;
  opened: Opened;
  box: Box;
  detail: Detail;
  marks: Marks;
  role?: string;
}

export function BoxShape(props: BoxProps): VNode {
  const { box } = props;
  return box.kind === "node" ? <StepShape {...props} /> : box.kind === "folded" ? <FoldedShape {...props} /> : <OpenShape {...props} />;
}

function StepShape({ model, box, detail, marks, role }: BoxProps): VNode {
  const node = box.unit, side = model.isForward(node) ? "forward" : "backward", bad = model.bad.get(node), change = model.marks.get(node)?.kind;
  const high = model.isView(node) ? 20 : 28, top = box.y + (box.h - high) / 2, middle = top + high / 2 + 4;
  const classes = ["step", side, model.isView(node) && "view", model.kinds[node] === "guard" && "guard", bad && "bad", change, role, marks.steps?.has(node) && "match"];
  const op = model.shorts[node], name = model.nameOf(node), rest = op === "getitem" ? name : restOf(name, op);
  const room = Math.floor((box.w - 14) / LETTER), said = op === "getitem" ? "" : fit(op, room), left = room - said.length;
  return (
    <g class={classes.filter(Boolean).join(" ")} data-unit={node} role="button" aria-label={`${op} ${name}${change ? `, ${change}` : ""}`}>
      <rect x={box.x} y={top} width={box.w} height={high} rx={model.isView(node) ? 3 : 5} />
      {detail.near && (
        <text x={box.x + 7} y={middle}>{said}{left > 1 && <tspan class="soft">{fit(rest, left)}</tspan>}</text>
      )}
      {model.isSaved(node) && <circle class="kept" cx={box.x + box.w} cy={box.y + box.h / 2} r={3} />}
      {bad && <BadMark x={box.x + box.w - 26} y={top - 6} bad={bad} />}
      {change && <ChangeMark x={box.x} y={top} text={SIGNS[change]} detail={detail} />}
      {detail.near && <Pills model={model} box={box} />}
    </g>
  );
}

/** What a name says beyond the operator: `_3` of `mm_3`. */
function restOf(name: string, op: string): string {
  const stem = op.replace(/^_+/, "");
  return name === op || name === stem ? "" : name.startsWith(stem) ? name.slice(stem.length) : ` ${name}`;
}

function BadMark({ x, y, bad }: { x: number; y: number; bad: { nan: number; inf: number } }): VNode {
  return (
    <g class="badmark">
      <rect x={x} y={y} width={30} height={13} rx={6.5} />
      <text x={x + 15} y={y + 9.7}>{bad.nan ? "NaN" : "Inf"}</text>
    </g>
  );
}

/** The sign of a change, around a point, or how many steps in a frame have which, behind it; larger where the picture is small. */
function ChangeMark({ x, y, text, detail }: { x: number; y: number; text: string; detail: Detail }): VNode {
  const wide = Math.max(15, text.length * 7.6 + 7), left = text.length > 1 ? 0 : -7.5, scale = detail.near ? 1 : Math.min(3, detail.title / 14);
  return (
    <g class="changemark" transform={`translate(${x} ${y}) scale(${scale})`}>
      <rect x={left} y={-8} width={wide} height={15} rx={7.5} />
      <text x={left + wide / 2} y={3.6}>{text}</text>
    </g>
  );
}

function changesOf(counts: Counts): string {
  return CHANGES.filter((kind: Change) => counts[kind]).map(kind => `${SIGNS[kind]}${counts[kind]}`).join(" ");
}

function Pills({ model, box }: { model: Model; box: Box }): VNode {
  const { left, right } = pillsOf(model, box.unit), middle = box.y + box.h / 2;
  const draw = (pills: typeof left, sign: number) => pills.map((pill, at) => {
    const wide = pillWidth(pill.text), x = sign < 0 ? box.x - 5 - wide : box.x + box.w + 5, y = middle + (at - pills.length / 2) * 15;
    return <PillShape {...pill} {...{ x, y, wide }} />;
  });
  return <g>{draw(left, -1)}{draw(right, 1)}</g>;
}

function FoldedShape({ model, box, detail, marks, role }: BoxProps): VNode {
  const id = -box.unit - 1, frame = model.frame(id), [forward, backward, saved, flopsForward, flopsBackward] = frame.counts;
  const [west, east] = [box.mid - GUTTER, box.mid + GUTTER], middle = box.y + box.h / 2, band = bandWidth(model)(saved);
  const stacked = frame.kind === "loop", found = marks.matches?.get(id), changes = model.marked.get(id);
  const half = (side: "forward" | "backward", x: number, wide: number, count: number, products: number, title?: string) => (
    <g class={`half ${side}${count ? "" : " empty"}`}>
      {stacked && [6, 3].map(away => <rect class="behind" x={x + (side === "forward" ? -away : away)} y={box.y + away} width={wide} height={box.h} rx={6} />)}
      <rect x={x} y={box.y} width={wide} height={box.h} rx={6} />
      {title && <text class="title" x={x + 10} y={detail.near ? box.y + 20 : middle + detail.title * 0.35} font-size={Math.min(detail.title, 26)}>{title}</text>}
      {detail.near && <text class="soft" x={x + 10} y={box.y + (title ? 38 : 20)}>{count ? plural(count, "step") : "no step"}</text>}
      {detail.near && products > 0 && <text class="soft" x={x + wide - 10} y={box.y + 38} text-anchor="end">{inFlop(products)}</text>}
    </g>
  );
  return (
    <g class={`frame folded ${frame.kind} ${role ?? ""} ${found ? "match" : ""}`} data-unit={box.unit} role="button" aria-expanded="false" aria-label={titleOf(model, id)}>
      <rect class={box.level % 2 ? "hit" : "hit odd"} x={box.x} y={box.y} width={box.w} height={box.h} />
      {half("forward", box.x, west - box.x, forward, flopsForward, fit(titleOf(model, id), Math.floor((west - box.x - 16) / (Math.min(detail.title, 26) * 0.58))))}
      {half("backward", east, box.x + box.w - east, backward, flopsBackward)}
      {saved > 0 && <path class="band" d={`M${west} ${middle}H${east}`} stroke-width={band} />}
      {saved > 0 && detail.near && <text class="size" x={box.mid} y={middle - band / 2 - 4}>{bytes(saved)}</text>}
      {model.badFrames.has(id) && <BadMark x={west - 36} y={box.y - 6} bad={{ nan: 1, inf: 0 }} />}
      {changes && <ChangeMark x={east + 8} y={box.y} text={changesOf(changes)} detail={detail} />}
      {found && detail.near && <Count x={box.x + 4} y={box.y - 7} count={found} />}
    </g>
  );
}

function Count({ x, y, count }: { x: number; y: number; count: number }): VNode {
  const wide = String(count).length * 7 + 10;
  return (
    <g class="found">
      <rect x={x} y={y} width={wide} height={14} rx={7} />
      <text x={x + wide / 2} y={y + 10.5}>{count}</text>
    </g>
  );
}

function titleOf(model: Model, id: number): string {
  const frame = model.frame(id), title = model.title(id), label = model.text(frame.label);
  const turns = frame.kind === "loop" ? ` × ${frame.units.length}` : "";
  return `${title}${turns}${label && label !== title ? `  ${label}` : ""}`;
}

function OpenShape({ model, opened, box, detail, role }: BoxProps): VNode {
  const id = -box.unit - 1, frame = model.frame(id), wide = box.mid - GUTTER - box.x, changes = model.marked.get(id);
  const size = Math.min(detail.title, Math.max(12, Math.min(box.h * 0.1, 60)));
  return (
    <g class={`frame open ${frame.kind} ${box.level % 2 ? "odd" : ""} ${role ?? ""}`} data-unit={box.unit}>
      <rect class="body" x={box.x} y={box.y} width={box.w} height={box.h} rx={8} />
      <rect class="tint forward" x={box.x} y={box.y} width={wide} height={box.h} rx={8} />
      <rect class="tint backward" x={box.mid + GUTTER} y={box.y} width={box.x + box.w - box.mid - GUTTER} height={box.h} rx={8} />
      <g data-fold={id} class="head" role="button" aria-expanded="true" aria-label={`close ${titleOf(model, id)}`}>
        <rect x={box.x} y={box.y} width={box.w} height={HEAD} rx={8} />
        <text class="title" x={box.x + 10} y={box.y + (size > 13 ? size : 16.5)} font-size={size}>
          {detail.near && <tspan class="sign">− </tspan>}{fit(titleOf(model, id), Math.max(6, Math.floor(((frame.kind === "loop" ? box.mid - 66 - box.x : box.w - 130) - 30) / (size * 0.58))))}
        </text>
        {detail.near && frame.counts[2] > 0 && <text class="soft" x={box.x + box.w - 10} y={box.y + 16.5} text-anchor="end">{`${bytes(frame.counts[2])} saved`}</text>}
      </g>
      {frame.kind === "loop" && detail.near && <Stepper model={model} opened={opened} id={id} x={box.mid} y={box.y} />}
      {frame.kind === "loop" && changes && <ChangeMark x={box.mid + 80} y={box.y} text={changesOf(changes)} detail={detail} />}
      {id === 0 && detail.near && <Entries model={model} role="input" middle={box.mid - ENTRY} y={box.y - 20} />}
      {id === 0 && detail.near && <Entries model={model} role="tangent" middle={box.mid + ENTRY} y={box.y + box.h + 6} />}
    </g>
  );
}

/** What enters the program, above its forward; the gradients that enter its backward, below that. */
function Entries({ model, role, middle, y }: { model: Model; role: string; middle: number; y: number }): VNode {
  const ports = model.entering.filter(port => port.role === role), shown = ports.slice(0, ports.length > 3 ? 2 : 3);
  const texts = shown.map(port => ({ text: fit(model.text(port.name), 16), title: `${role} ${model.text(port.name)} ${model.text(port.spec)}` }));
  if (ports.length > 3) texts.push({ text: `+${ports.length - 2}`, title: ports.slice(2).map(port => model.text(port.name)).join("\n") });
  let x = middle - texts.reduce((sum, one) => sum + pillWidth(one.text) + 4, -4) / 2;
  return <g>{texts.map(one => {
    const wide = pillWidth(one.text), left = x;
    x += wide + 4;
    return <PillShape {...one} role={role} x={left} y={y} wide={wide} />;
  })}</g>;
}

function PillShape({ x, y, wide, text, title, role }: { x: number; y: number; wide: number; text: string; title: string; role: string }): VNode {
  return (
    <g class={`pill ${role}`}>
      <title>{title}</title>
      <rect x={x} y={y + 1} width={wide} height={13} rx={6.5} />
      <text x={x + wide / 2} y={y + 10.5}>{text}</text>
    </g>
  );
}

function Stepper({ model, opened, id, x, y }: { model: Model; opened: Opened; id: number; x: number; y: number }): VNode {
  const turn = turnOf(model, opened, id), { units } = model.frame(id), shown = units[turn];
  const arrow = (to: number, at: number, text: string, label: string) => (
    <g class={`turn${to < 0 || to >= units.length ? " off" : ""}`} data-loop={id} data-turn={to} role="button" aria-label={label}>
      <rect x={at - 11} y={y + 3} width={22} height={18} rx={4} />
      <text x={at} y={y + 16.5}>{text}</text>
    </g>
  );
  return (
    <g class="stepper">
      <title>{model.text(model.frame(-shown - 1).name)}</title>
      <rect class="plate" x={x - 66} y={y + 2} width={132} height={20} rx={5} />
      {arrow(turn - 1, x - 54, "‹", "previous turn")}
      <text x={x} y={y + 16}>{`${turn + 1} of ${units.length}`}</text>
      {arrow(turn + 1, x + 54, "›", "next turn")}
    </g>
  );
}

/** Boxes and lines in the order in which they cover one another. */
export function Drawn({ model, opened, boxes, lines, detail, marks }: Omit<BoxProps, "box" | "role"> & { boxes: Box[]; lines: Map<number, Line[]> }): VNode {
  const all: ComponentChildren[] = [];
  for (const box of boxes) {
    all.push(<BoxShape key={`b${box.unit}`} {...{ model, opened, box, detail, marks }} />);
    if (box.kind !== "open") continue;
    const own = lines.get(-box.unit - 1) ?? [];
    all.push(<g key={`l${box.unit}`} class="lines">{[...own].sort((a, b) => Number(a.side !== "bridge") - Number(b.side !== "bridge")).map(line => <LineShape key={line.d} {...{ line, detail }} />)}</g>);
  }
  return <g>{all}</g>;
}

export function Tips(): VNode {
  const tip = (side: string) => (
    <marker id={`tip-${side}`} class={`tip ${side}`} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" markerUnits="userSpaceOnUse" orient="auto">
      <path d="M0 .8L8 4L0 7.2Z" />
    </marker>
  );
  return <defs>{tip("left")}{tip("right")}</defs>;
}

