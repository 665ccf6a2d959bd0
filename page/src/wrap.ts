/**
 * A long picture in columns, as a newspaper has its text: it is cut between rows, and its parts stand side by side, from
 * the left to the right. What crosses a cut goes on at the top of the next column, at the same place of its width.
 */

import type { Box, Line, Part, Point } from "./layout";

/** A place between two rows where a picture can be cut; `level` is how many frames are around it, and `part` how high the smallest part of these is that it leaves. */
export interface Cut {
  key: string;
  y: number;
  level: number;
  part: number;
}

/** The window for which a picture is laid out. */
export interface Room {
  wide: number;
  high: number;
}

/** The space between columns, and below the head of each but the first. */
const BETWEEN = 40, UNDER = 28;
/** A picture that is smaller than this when it fits is wrapped, if that makes it larger by `WORTH`. */
const SMALL = 0.6, WORTH = 1.3, MOST = 12;
/** What a cut within a frame costs, in points of the height of its column: rather between frames. */
const LEVEL = 60;
/** The least share of a column that a part of a frame has: a smaller one has no room for a name where the picture fits. */
const PART = 0.12;
/** The height that the head of a column and the gap at its cut add. */
const SPARE = 80;

/** The scale at which a picture fits. */
const scaleIn = ({ wide, high }: Room, w: number, h: number) => Math.min(wide / w, high / h);

/** Where to cut a picture of a width and a height so that it is largest in a window: nowhere, unless it is a long one. */
export function cutsFor(room: Room, wide: number, high: number, cuts: Cut[]): Cut[] {
  const whole = scaleIn(room, wide, high);
  let [best, largest] = [[] as Cut[], whole * WORTH];
  if (whole >= SMALL) return best;
  for (let columns = 2; columns <= MOST; columns++) {
    const found = cutInto(columns, high, cuts), ends = [0, ...found.map(cut => cut.y), high];
    const tallest = Math.max(...ends.slice(1).map((end, at) => end - ends[at])), scale = scaleIn(room, columns * (wide + BETWEEN), tallest + SPARE);
    if (found.length === columns - 1 && scale > largest * 1.02) [best, largest] = [found, scale];
  }
  return best;
}

function cutInto(columns: number, high: number, cuts: Cut[]): Cut[] {
  const found: Cut[] = [];
  for (let at = 1; at < columns; at++) {
    const wanted = (high * at) / columns, after = found.at(-1)?.y ?? 0, least = (PART * high) / columns;
    const far = (cut: Cut) => Math.abs(cut.y - wanted) + cut.level * LEVEL + (cut.part < least ? least : 0);
    let next: Cut | null = null;
    for (const cut of cuts) if (cut.y > after + high / columns / 3 && (!next || far(cut) < far(next))) next = cut;
    if (next) found.push(next);
  }
  return found;
}

/** Columns, by where the picture is cut: from `ends[i]` to `ends[i + 1]`, each moved by `moved[i]`. */
export interface Columns {
  ends: number[];
  moved: Point[];
  /** How high the head of a column is. */
  head: number;
}

export function columnsOf(cuts: number[], wide: number, high: number, head: number): Columns {
  const ends = [0, ...cuts, high];
  return { ends, head, moved: ends.slice(0, -1).map((from, at): Point => [at * (wide + BETWEEN), at ? head + UNDER - from : 0]) };
}

/** The column of a height: at a cut the one below it. */
function columnAt({ ends }: Columns, y: number): number {
  let column = 0;
  while (column < ends.length - 2 && ends[column + 1] <= y) column++;
  return column;
}

/** A box in its column; of one that is cut, the parts in the others too. The outermost has a head in each. */
export function boxInColumns(box: Box, columns: Columns): Box {
  const first = columnAt(columns, box.y), last = columnAt(columns, box.y + box.h - 0.01);
  const parts = Array.from({ length: last - first + 1 }, (_, at): Part => {
    const column = first + at, [dx, dy] = columns.moved[column], from = Math.max(box.y, columns.ends[column]), to = Math.min(box.y + box.h, columns.ends[column + 1]);
    const top = box.around === null && column ? 0 : from + dy;
    return { x: box.x + dx, y: top, w: box.w, h: to + dy - top, mid: box.mid + dx };
  });
  const { x, y, h, mid } = parts[0];
  return { ...box, x, y, h, mid, column: first, ...(parts.length > 1 && { parts }) };
}

type Piece = [command: string, ...points: Point[]];

/** A line in its columns, in a piece for each that it is in: its label is where it was. What is in no frame that is cut too begins at a column's head, as it does in the first. */
export function lineInColumns(line: Line, pieces: Piece[], columns: Columns): Line[] {
  const own = split(pieces, columns), found: Line[] = [];
  if (line.within === 0) for (const piece of own) fromHead(piece, columns, line.side === "bridge" ? 0 : columns.head);
  own.forEach(({ column, parts }, at) => {
    const [dx, dy] = columns.moved[column], put = ([x, y]: Point): Point => [x + dx, y + dy];
    const within = ([, y]: Point) => columnAt(columns, y) === column, points = parts.flatMap(([, ...all]) => all.map(put));
    const [xs, ys] = [points.map(one => one[0]), points.map(one => one[1])], [west, north] = [Math.min(...xs), Math.min(...ys)];
    const d = parts.map(([command, ...all]) => command + all.map(point => put(point).map(round).join(",")).join(" ")).join("");
    found.push({
      ...line, d, at: own.findIndex(one => one.column === column) === at ? line.at.filter(within).map(put) : [], ends: [points[0], points[points.length - 1]], goesOn: at < own.length - 1,
      box: [west, north, Math.max(...xs) - west, Math.max(...ys) - north],
    });
  });
  return found;
}

/** Lead a piece that a cut begins or ends at the top of its column on to `height` there: bands pass behind the head, as in every frame, and edges end at it. */
function fromHead({ column, parts }: { column: number; parts: Piece[] }, { ends, moved }: Columns, height: number): void {
  if (!column) return;
  const start = parts[0][1], end = parts.at(-1)!.at(-1) as Point, top = height - moved[column][1];
  if (end[1] === ends[column]) parts.push(["L", [end[0], top]]);
  if (start[1] === ends[column]) parts.splice(0, 1, ["M", [start[0], top]], ["L", start]);
}

const round = (value: number) => Math.round(value * 10) / 10;

/** The pieces of a path between the cuts; a curve that crosses one is halved there. */
function split(pieces: Piece[], columns: Columns): { column: number; parts: Piece[] }[] {
  const found: { column: number; parts: Piece[] }[] = [];
  let [at, open] = [pieces[0][1], null as Piece[] | null];
  const begin = (point: Point, column: number) => found.push({ column, parts: (open = [["M", point]]) });
  for (const [command, ...points] of pieces) {
    if (command === "M") {
      [at, open] = [points[0], null];
      continue;
    }
    let rest: Piece = [command, ...points];
    for (let guard = 0; guard < 64; guard++) {
      const to = rest.at(-1) as Point, down = to[1] > at[1], own = sideOf(columns, at[1], down);
      if (!open || found.at(-1)!.column !== own) begin(at, own);
      const wall = columns.ends[down ? own + 1 : own], inner = own >= 0 && (down ? own + 1 < columns.ends.length - 1 : own > 0);
      if (!inner || (down ? to[1] <= wall : to[1] >= wall)) {
        open!.push(rest);
        at = to;
        break;
      }
      const [first, second] = halved(at, rest, wall);
      open!.push(first);
      at = first.at(-1) as Point;
      rest = second;
      begin(at, down ? own + 1 : own - 1);
    }
  }
  return found.filter(one => one.parts.length > 1);
}

/** The column that a line is in which goes down, or up, from a height: at a cut that on the side where it goes. */
function sideOf(columns: Columns, y: number, down: boolean): number {
  const column = columnAt(columns, y);
  return !down && column > 0 && y === columns.ends[column] ? column - 1 : column;
}

/** A piece before and after the height `y`, which it reaches once. */
function halved(from: Point, [command, ...points]: Piece, y: number): [Piece, Piece] {
  const all = [from, ...points], at = (t: number) => casteljau(all, t), down = (points.at(-1) as Point)[1] > from[1];
  let [low, high] = [0, 1];
  for (let step = 0; step < 40; step++) {
    const middle = (low + high) / 2, reached = at(middle).left.at(-1)![1];
    if (down ? reached < y : reached > y) low = middle;
    else high = middle;
  }
  const { left, right } = at((low + high) / 2);
  left[left.length - 1] = right[0] = [left.at(-1)![0], y];
  return [[command, ...left.slice(1)], [command, ...right.slice(1)]];
}

function casteljau(points: Point[], t: number): { left: Point[]; right: Point[] } {
  const left: Point[] = [points[0]], right: Point[] = [points.at(-1)!];
  for (let row = points; row.length > 1;) {
    row = row.slice(1).map(([x, y], at): Point => [row[at][0] + (x - row[at][0]) * t, row[at][1] + (y - row[at][1]) * t]);
    left.push(row[0]);
    right.unshift(row.at(-1)!);
  }
  return { left, right };
}
