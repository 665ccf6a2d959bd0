/** How boxes, edges and bands look. The same elements are drawn in the picture, when lit, and in an exported file. */

import type { ComponentChildren, VNode } from "preact";
import { type Change, CHANGES } from "./data";
import type { Counts, Model } from "./model";
import { type Box, type Label, type Line, type Opened, type Part, type Shown, ENTRY, GUTTER, HEAD, LETTERS, NEAR, PILL, TALL, VIEW_TALL, bandWidth, isDrawn, partsOf, pillsOf, pillWidth, turnOf } from "./layout";
import { SIGNS, bytes, cut, inFlop, plural, widthOf } from "./words";

/** What the scale lets a person read: as on a map, a name that is too small is not there, and what is around it has its own. */
export interface Detail {
  /** The size of the smallest letters that can be read. */
  least: number;
  /** Second lines of frames, names of ports, labels of lines, arrowheads. */
  near: boolean;
}

/** Pixels of the smallest letters. */
const READABLE = 9.05;

export function detailAt(scale: number): Detail {
  const least = READABLE / scale;
  return { least, near: least <= NEAR };
}

const sized = (usual: number, { least }: Detail) => Math.max(usual, least);
/** How much thicker lines and dots are where the picture is small. */
const bold = ({ least }: Detail) => Math.max(1, least / NEAR);
/** Where the baseline is, below the middle of letters. */
const DROP = 0.36;

export function LineShape({ line, detail }: { line: Line; detail: Detail }): VNode {
  const marker = line.side === "bridge" || line.goesOn || !detail.near ? undefined : `url(#tip-${line.side})`;
  return <g class={`line ${line.side}`} data-line={line.key}><path d={line.d} stroke-width={line.width * bold(detail)} marker-end={marker} /></g>;
}

/** The type of a value; of a band what it saves. */
export function textOfLine(line: Line): string {
  return line.side === "bridge" ? (line.label === "0" ? "" : bytes(Number(line.label))) : cut(line.label, 150, 10);
}

/** Few sizes of labels for all scales at which they are read, so that they stay where they are. */
export function labelSize({ least }: Detail): number {
  return [10.5, 12, NEAR].find(size => least <= size) ?? NEAR;
}

export function LabelShape({ label: { line, x, y }, size, bright }: { label: Label; size: number; bright?: boolean }): VNode {
  return <text class={`label ${line.side}${bright ? " bright" : ""}`} x={x} y={y} font-size={size}>{textOfLine(line)}</text>;
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

/** A step, or a frame that is not open. */
export function BoxShape(props: BoxProps): VNode {
  const { box } = props;
  return box.kind === "node" ? <StepShape {...props} /> : <FoldedShape {...props} />;
}

function StepShape({ model, box, detail, marks, role }: BoxProps): VNode {
  const node = box.unit, side = model.isForward(node) ? "forward" : "backward", bad = model.bad.get(node), change = model.marks.get(node)?.kind;
  const size = sized(model.isView(node) ? 10.5 : 11.5, detail), high = Math.max(model.isView(node) ? VIEW_TALL : TALL, size + 5);
  const top = box.y + (box.h - high) / 2, middle = top + high / 2 + size * DROP;
  const classes = ["step", side, model.isView(node) && "view", model.kinds[node] === "guard" && "guard", model.isNeighbor(node) && "neighbor", bad && "bad", change, role, marks.steps?.has(node) && "match"];
  const op = model.shorts[node], name = model.nameOf(node), rest = op === "getitem" ? name : restOf(name, op);
  const room = box.w - 13, said = op === "getitem" ? "" : cut(op, room, size), left = room - widthOf(said, size), more = said === op || !said ? cut(rest, left, size) : "";
  return (
    <g class={classes.filter(Boolean).join(" ")} data-unit={node} role="button" aria-label={`${op} ${name}${change ? `, ${change}` : ""}`}>
      <rect x={box.x} y={top} width={box.w} height={high} rx={model.isView(node) ? 3 : 5} />
      <text x={box.x + 7} y={middle} font-size={size}>{said}{more && <tspan class="soft">{more}</tspan>}</text>
      {model.isSaved(node) && <circle class="kept" cx={box.x + box.w} cy={box.y + box.h / 2} r={3} />}
      {bad && <BadMark x={box.x + box.w - 26} bottom={top + 3} bad={bad} detail={detail} />}
      {change && <ChangeMark x={box.x} y={top} text={SIGNS[change]} detail={detail} />}
      {detail.near && <Pills model={model} box={box} detail={detail} />}
    </g>
  );
}

/** What a name says beyond the operator: `_3` of `mm_3`. */
function restOf(name: string, op: string): string {
  const stem = op.replace(/^_+/, "");
  return name === op || name === stem ? "" : name.startsWith(stem) ? name.slice(stem.length) : ` ${name}`;
}

/** A plate with a few letters, as large as they must be to be read. */
function Plate({ kind, x, bottom, text, detail }: { kind: string; x: number; bottom: number; text: string; detail: Detail }): VNode {
  const size = sized(9.5, detail), wide = widthOf(text, size, true) + size, high = size * 1.4, y = bottom - high;
  return (
    <g class={kind}>
      <rect x={x} y={y} width={wide} height={high} rx={high / 2} />
      <text x={x + wide / 2} y={y + high / 2 + size * DROP} font-size={size}>{text}</text>
    </g>
  );
}

function BadMark({ x, bottom, bad, detail }: { x: number; bottom: number; bad: { nan: number; inf: number }; detail: Detail }): VNode {
  return <Plate kind="badmark" text={bad.nan ? "NaN" : "Inf"} x={x} bottom={bottom} detail={detail} />;
}

/** The sign of a change, around a point, or how many steps in a frame have which, behind it; larger where the picture is small. */
function ChangeMark({ x, y, text, detail }: { x: number; y: number; text: string; detail: Detail }): VNode {
  const size = sized(11, detail), high = size * 1.36, wide = Math.max(high, widthOf(text, size, true) + size * 0.64), left = text.length > 1 ? 0 : -wide / 2;
  return (
    <g class="changemark" transform={`translate(${x} ${Math.min(y, y + 7 - high / 2)})`}>
      <rect x={left} y={-high / 2} width={wide} height={high} rx={high / 2} />
      <text x={left + wide / 2} y={size * DROP} font-size={size}>{text}</text>
    </g>
  );
}

function changesOf(counts: Counts): string {
  return CHANGES.filter((kind: Change) => counts[kind]).map(kind => `${SIGNS[kind]}${counts[kind]}`).join(" ");
}

function Pills({ model, box, detail }: { model: Model; box: Box; detail: Detail }): VNode {
  const { left, right } = pillsOf(model, box.unit), middle = box.y + box.h / 2;
  const draw = (pills: typeof left, sign: number) => pills.map((pill, at) => {
    const wide = pillWidth(pill.text), x = sign < 0 ? box.x - 5 - wide : box.x + box.w + 5, y = middle + (at - pills.length / 2) * PILL;
    return <PillShape {...pill} {...{ x, y, wide, detail }} />;
  });
  return <g>{draw(left, -1)}{draw(right, 1)}</g>;
}

function FoldedShape({ model, box, detail, marks, role }: BoxProps): VNode {
  const id = -box.unit - 1, frame = model.frame(id), [forward, backward, saved, flopsForward, flopsBackward] = frame.counts;
  const [west, east] = [box.mid - GUTTER, box.mid + GUTTER], middle = box.y + box.h / 2, band = bandWidth(model)(saved), { near } = detail;
  const stacked = frame.kind === "loop", found = marks.matches?.get(id), changes = model.marked.get(id), size = sized(12.5, detail), small = sized(10.5, detail);
  const joined = saved > 0 && (near || (forward > 0 && backward > 0)), kept = saved > 0 && near && widthOf(bytes(saved), small, true) <= 2 * GUTTER - 4;
  const half = (side: "forward" | "backward", x: number, wide: number, count: number, operations: number) => {
    const steps = count ? plural(count, "step") : "no step", flops = operations > 0 ? inFlop(operations) : "", title = nameIn(model, id, wide - 18, size);
    const both = widthOf(`${steps}   ${flops}`, small) <= wide - 20;
    if (!count && !near) return null;
    return (
      <g class={`half ${side}${count ? "" : " empty"}`}>
        {stacked && [6, 3].map(away => <rect class="behind" x={x + (side === "forward" ? -away : away)} y={box.y + away} width={wide} height={box.h} rx={6} />)}
        <rect x={x} y={box.y} width={wide} height={box.h} rx={6} />
        {(count || side === "forward") && <text class="title" x={x + 10} y={near ? box.y + 20 : middle + size * DROP} font-size={size}>{title}</text>}
        {near && <text class="soft" x={x + 10} y={count || side === "forward" ? box.y + 40 : middle + small * DROP} font-size={small}>{steps}</text>}
        {near && flops && both && <text class="soft" x={x + wide - 10} y={box.y + 40} text-anchor="end" font-size={small}>{flops}</text>}
      </g>
    );
  };
  return (
    <g class={`frame folded ${frame.kind} ${role ?? ""} ${found ? "match" : ""}`} data-unit={box.unit} role="button" aria-expanded="false" aria-label={titleOf(model, id)}>
      <rect class={box.level % 2 ? "hit" : "hit odd"} x={box.x} y={box.y} width={box.w} height={box.h} rx={6} />
      {half("forward", box.x, west - box.x, forward, flopsForward)}
      {half("backward", east, box.x + box.w - east, backward, flopsBackward)}
      {joined && <path class="band" d={`M${west} ${middle}H${east}`} stroke-width={band} />}
      {kept && <text class="size" x={box.mid} y={middle - band / 2 - 4} font-size={small}>{bytes(saved)}</text>}
      {joined && <Dots points={[[west, middle], [east, middle]]} detail={detail} />}
      {model.badFrames.has(id) && <BadMark x={west - 36} bottom={box.y + 4} bad={{ nan: 1, inf: 0 }} detail={detail} />}
      {changes && <ChangeMark x={east + 8} y={box.y} text={changesOf(changes)} detail={detail} />}
      {found && <Plate kind="found" x={box.x + 4} bottom={box.y + 6} text={String(found)} detail={detail} />}
    </g>
  );
}

/** Where bands end. */
function Dots({ points, detail }: { points: [number, number][]; detail: Detail }): VNode {
  return <g class="dots">{points.map(([x, y]) => <circle key={`${x} ${y}`} cx={x} cy={y} r={3 * bold(detail)} />)}</g>;
}

function titleOf(model: Model, id: number): string {
  const frame = model.frame(id), title = model.title(id), label = model.text(frame.label);
  const turns = frame.kind === "loop" ? ` × ${frame.units.length}` : "";
  return `${title}${turns}${label && label !== title ? `${frame.kind === "line" ? "  " : " · "}${label}` : ""}`;
}

/** The fewest letters of a class that is cut. */
const LEAST = 4;

/** What a frame is called: all there is to say where there is room, else the most telling part: of a path its end. Behind a number is its operator; before it, where the frame around has no name in the picture, that name. */
function nameIn(model: Model, id: number, wide: number, size: number, alone = false): string {
  const frame = model.frame(id), label = model.text(frame.label), own = model.title(id), number = /^\d/.test(own), turns = frame.kind === "loop" ? ` × ${frame.units.length}` : "";
  const more = label === own ? "" : label || (number ? opOf(model, id) : ""), line = frame.kind === "line" && more !== "", around = alone && number ? model.path(frame.parent) : "";
  const parts = (around ? `${around}.${own}` : own).split(/\.(?=[A-Za-z_])/), names = frame.kind === "line" ? [own] : parts.map((_, at) => (at ? "…" : "") + parts.slice(at).join(".")).concat(own);
  const ends = /\.\d[^.]*$/.test(own) ? [...own].map((_, at) => `…${own.slice(at + 1)}`) : [];
  const apart = frame.kind === "line" ? "  " : " · ", fits = (text: string) => widthOf(text, size, true) <= wide;
  // A class that has no room is cut before it is left out, as far as it still says something.
  const short = label && more === label && !line ? cut(own + turns + apart + more, wide, size, true) : "", told = short.length > (own + turns + apart).length + LEAST ? [short] : [];
  const all = [...(more ? names.map(name => name + turns + apart + more) : []), ...told, ...(line ? [] : [...names, ...ends].map(name => name + turns))];
  const at = own.replace(/^.*:/, "line ");
  return cut(all.find(fits) ?? (!line ? own + turns : fits(`${at}  code`) ? `${at}  ${more}` : fits(at) ? at : own.replace(/^.*:/, ":")), wide, size, true);
}

/** The operator of the most work among the few of a module such as `Linear` or `BatchNorm2d`. */
function opOf(model: Model, id: number): string {
  const { flops, read, written } = model.data.nodes, moved = (node: number) => read[node] + written[node];
  if (model.frame(id).counts[0] > 8) return "";
  const steps = [...model.inside(id)].filter(node => model.isForward(node) && !model.isView(node)).sort((a, b) => flops[b] - flops[a] || moved(b) - moved(a));
  return steps.length ? model.shorts[steps[0]].replace(/^_*(native_)?|_legit.*$/g, "") : "";
}

/** Whether the name of a frame of which nothing inside is drawn stands in its forward's half, else across the frame. */
function inHalf(model: Model, box: Box, detail: Detail): boolean {
  return widthOf(titleOf(model, -box.unit - 1).slice(0, 6), detail.least, true) < halfOf(model, box) - 20;
}

/** The width of the narrower half that has a name. */
function halfOf(model: Model, { unit, x, w, mid }: Box): number {
  return Math.min(mid - x, model.frame(-unit - 1).counts[1] > 0 ? x + w - mid : Infinity) - GUTTER;
}

/** The parts of a frame of which nothing inside is drawn: those with room for its name, and the tallest, are named; the others have "…" where there is room for that. */
function wholeParts(box: Box, { least }: Detail): (Part & { named: boolean })[] {
  const parts = partsOf(box), tallest = Math.max(...parts.map(part => part.h));
  return parts.map(part => ({ ...part, named: part.h === tallest || part.h > least * 1.7 })).filter(part => part.named || part.h > least * 1.1);
}

function OpenShape({ box, kind, detail, whole, halved, back }: { box: Box; kind: string; detail: Detail; whole: boolean; halved: boolean; back: boolean }): VNode {
  return (
    <g class={`frame open ${kind} ${box.level % 2 ? "odd" : ""}${whole ? " whole" : ""}`} data-unit={box.unit}>
      {(whole ? wholeParts(box, detail) : partsOf(box)).map(({ x, y, w, h, mid }) => [
        <rect class="body" x={x} y={y} width={w} height={h} rx={8} />,
        halved && <rect class="tint forward" x={x} y={y} width={mid - GUTTER - x} height={h} rx={8} />,
        halved && back && <rect class="tint backward" x={mid + GUTTER} y={y} width={x + w - mid - GUTTER} height={h} rx={8} />,
      ])}
    </g>
  );
}

const columnName = (name: string, column: number, columns: number, fits: (text: string) => boolean) =>
  [`… ${name}, column ${column} of ${columns}`, `column ${column} of ${columns}`, `${column} of ${columns}`].find(fits) ?? "";

/** The name of each column in which nothing can be read. */
function BareColumns({ box, name, bare, detail }: { box: Box; name: string; bare: ReadonlySet<number>; detail: Detail }): VNode {
  const parts = partsOf(box), size = detail.least;
  const named = (column: number, room: number) => (column ? columnName(name, column + 1, parts.length, text => widthOf(text, size) <= room) : cut(name, room, size));
  return <g class="column bare">{[...bare].map(column => <text x={parts[column].x + size} y={parts[column].y + size * 2} font-size={size}>{named(column, parts[column].w - 2 * size)}</text>)}</g>;
}

/** What stands above each column but the first. */
function ColumnHeads({ box, name, detail }: { box: Box; name: string; detail: Detail }): VNode {
  const parts = partsOf(box), size = sized(12.5, detail), high = Math.max(HEAD, size * 1.35);
  return (
    <g class="column">
      {parts.slice(1).map(({ x, y, w }, at) => [
        <rect x={x + 0.6} y={y + 0.6} width={w - 1.2} height={high} rx={8} />,
        <text x={x + 10} y={y + high / 2 + size * DROP} font-size={size}>{columnName(name, at + 2, parts.length, text => widthOf(text, size) <= w - 20)}</text>,
      ])}
    </g>
  );
}

/** The head of an open frame, above the lines in it. Where nothing inside can be read, its name stands in its middle. */
function Head({ model, opened, box, detail, whole }: BoxProps & { whole: boolean }): VNode {
  const id = -box.unit - 1, frame = model.frame(id), changes = model.marked.get(id), { near } = detail, small = sized(10.5, detail);
  const halved = whole && inHalf(model, box, detail), wide = halved ? halfOf(model, box) : box.w;
  const usual = sized(12.5, detail), full = nameIn(model, id, wide - 18, usual, whole), size = whole ? Math.max(usual, Math.min(box.h * 0.5, detail.least * 1.3, (wide - 20) / Math.max(1, widthOf(full, 1, true)))) : usual;
  const last = partsOf(box).at(-1)!, loop = frame.kind === "loop", saved = near && frame.counts[2] > 0 ? `${bytes(frame.counts[2])} saved` : "", sign = near ? "− " : "";
  const high = Math.max(HEAD, size * 1.35), end = whole ? box.x + wide - 4 : loop && near ? box.mid - 70 : box.x + box.w - 10 - (saved ? widthOf(saved, small) + 14 : 0);
  const right = loop && near ? box.mid + 70 + (changes ? widthOf(changesOf(changes), 11, true) + 34 : 0) : box.x + widthOf(sign, size) + 40;
  const room = end - box.x - 14 - widthOf(sign, size), title = whole ? full : size <= LETTERS.title ? nameIn(model, id, room, size) : "";
  return (
    <g class="frame" data-unit={box.unit}>
      <g data-fold={id} class="head" role="button" aria-expanded="true" aria-label={`close ${titleOf(model, id)}`}>
        {(title || near) && !whole && <rect x={box.x + 0.6} y={box.y + 0.6} width={box.w - 1.2} height={high} rx={8} />}
        {title && !whole && <text class="title" x={box.x + 10} y={box.y + high / 2 + size * DROP} font-size={size} data-slack={room - widthOf(title, size, true)}>{sign && <tspan class="sign">{sign}</tspan>}{title}</text>}
        {whole && wholeParts(box, detail).map(part => !part.named ? <text class="title" x={part.x + 10} y={part.y + part.h / 2 + detail.least * 0.15} font-size={detail.least}>…</text> : [
          <text class="title" x={part.x + 10} y={part.y + part.h / 2 + size * DROP} font-size={size}>{title}</text>,
          halved && frame.counts[1] > 0 && <text class="title" x={part.mid + GUTTER + 10} y={part.y + part.h / 2 + size * DROP} font-size={size}>{full}</text>,
        ])}
        {saved && !whole && right + widthOf(saved, small) < box.x + box.w - 10 && <text class="soft" x={box.x + box.w - 10} y={box.y + high / 2 + small * DROP} text-anchor="end" font-size={small}>{saved}</text>}
      </g>
      {loop && near && !whole && <Stepper {...{ model, opened, id, detail }} x={box.mid} y={box.y} />}
      {loop && changes && near && <ChangeMark x={box.mid + 72} y={box.y + 12} text={changesOf(changes)} detail={detail} />}
      {id === 0 && near && <Entries model={model} role="input" middle={box.mid - ENTRY} y={box.y - 23} detail={detail} />}
      {id === 0 && near && <Entries model={model} role="tangent" middle={last.mid + ENTRY} y={last.y + last.h + 7} detail={detail} />}
      {id === 0 && !whole && size <= LETTERS.title && <ColumnHeads box={box} name={model.title(0)} detail={detail} />}
    </g>
  );
}

/** What enters the program, above its forward; the gradients that enter its backward, below that. */
function Entries({ model, role, middle, y, detail }: { model: Model; role: string; middle: number; y: number; detail: Detail }): VNode {
  const ports = model.entering.filter(port => port.role === role), shown = ports.slice(0, ports.length > 3 ? 2 : 3);
  const texts = shown.map(port => ({ text: model.portName(port), title: `${role} ${model.text(port.name)} ${model.text(port.spec)}` }));
  if (ports.length > 3) texts.push({ text: `+${ports.length - 2}`, title: ports.slice(2).map(port => model.text(port.name)).join("\n") });
  let x = middle - texts.reduce((sum, one) => sum + pillWidth(one.text) + 4, -4) / 2;
  return <g>{texts.map(one => {
    const wide = pillWidth(one.text), left = x;
    x += wide + 4;
    return <PillShape {...one} {...{ role, y, wide, detail }} x={left} />;
  })}</g>;
}

function PillShape({ x, y, wide, text, title, role, detail }: { x: number; y: number; wide: number; text: string; title: string; role: string; detail: Detail }): VNode {
  const size = sized(10, detail), high = PILL - 2;
  return (
    <g class={`pill ${role}`}>
      <title>{title}</title>
      <rect x={x} y={y + 1} width={wide} height={high} rx={high / 2} />
      <text x={x + wide / 2} y={y + 1 + high / 2 + size * DROP} font-size={size}>{cut(text, wide - 8, size, role === "gradient" || role === "output")}</text>
    </g>
  );
}

function Stepper({ model, opened, id, x, y, detail }: { model: Model; opened: Opened; id: number; x: number; y: number; detail: Detail }): VNode {
  const size = sized(11.5, detail), turn = turnOf(model, opened, id), { units } = model.frame(id), shown = units[turn];
  const arrow = (to: number, at: number, text: string, label: string) => (
    <g class={`turn${to < 0 || to >= units.length ? " off" : ""}`} data-loop={id} data-turn={to} role="button" aria-label={label}>
      <rect x={at - 11} y={y + 3} width={22} height={18} rx={4} />
      <text x={at} y={y + 12 + size * DROP} font-size={size}>{text}</text>
    </g>
  );
  return (
    <g class="stepper">
      <title>{model.text(model.frame(-shown - 1).name)}</title>
      <rect class="plate" x={x - 66} y={y + 2} width={132} height={20} rx={5} />
      {arrow(turn - 1, x - 54, "‹", "previous turn")}
      <text x={x} y={y + 12 + size * DROP} font-size={size}>{cut(`${turn + 1} of ${units.length}`, 84, size, true)}</text>
      {arrow(turn + 1, x + 54, "›", "next turn")}
    </g>
  );
}

interface DrawnProps extends Omit<BoxProps, "box" | "role"> {
  boxes: Box[];
  lines: Map<number, Line[]>;
  shown: Shown;
  labels: Label[];
}

/** Boxes and lines in the order in which they cover one another; where bands end, and what lines say, is above all. */
export function Drawn({ model, opened, boxes, lines, detail, marks, shown, labels }: DrawnProps): VNode {
  const all: ComponentChildren[] = [], dots = new Map<string, [number, number]>(), size = labelSize(detail);
  for (const box of boxes) {
    if (!shown.units.has(box.unit)) continue;
    const whole = shown.whole.has(box.unit);
    if (box.kind !== "open") {
      all.push(<BoxShape key={`b${box.unit}`} {...{ model, opened, box, detail, marks }} />);
      continue;
    }
    all.push(<OpenShape key={`b${box.unit}`} {...{ box, detail }} kind={model.frame(-box.unit - 1).kind} whole={whole} halved={!whole || inHalf(model, box, detail)} back={!whole || model.frame(-box.unit - 1).counts[1] > 0} />);
    const own = (lines.get(-box.unit - 1) ?? []).filter(line => isDrawn(line, shown));
    for (const line of own) if (line.side === "bridge") for (const end of line.ends) dots.set(String(end), end);
    all.push(<g key={`l${box.unit}`} class="lines">{[...own].sort((a, b) => Number(a.side !== "bridge") - Number(b.side !== "bridge")).map(line => <LineShape key={line.d} {...{ line, detail }} />)}</g>);
    all.push(<Head key={`h${box.unit}`} {...{ model, opened, box, detail, marks, whole }} />);
    if (box.around === null && shown.bare.size && sized(12.5, detail) > LETTERS.title) all.push(<BareColumns key="bare" {...{ box, detail }} name={model.title(0)} bare={shown.bare} />);
  }
  return <g>{all}<Dots points={[...dots.values()]} detail={detail} />{labels.map(label => <LabelShape key={label.line.key} {...{ label, size }} />)}</g>;
}

export function Tips(): VNode {
  const tip = (side: string) => (
    <marker id={`tip-${side}`} class={`tip ${side}`} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" markerUnits="userSpaceOnUse" orient="auto">
      <path d="M0 .8L8 4L0 7.2Z" />
    </marker>
  );
  return <defs>{tip("left")}{tip("right")}</defs>;
}

