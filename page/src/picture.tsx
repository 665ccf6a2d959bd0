/** The picture: pan, zoom and what lies within the window. Only what can be seen is in the document. */

import { Component, createRef, type VNode } from "preact";
import { select } from "d3-selection";
import { type D3ZoomEvent, type ZoomBehavior, type ZoomTransform, zoom, zoomIdentity } from "d3-zoom";
import type { Model, Unit } from "./model";
import { type Box, type Label, LabelPlaces, type Line, type Opened, type Scene, type Shown, LEGIBLE, beside, isDrawn, partsOf, shownAt } from "./layout";
import type { Lit } from "./links";
import { BoxShape, type Detail, Drawn, LabelShape, type Marks, Tips, detailAt, labelSize, textOfLine } from "./shapes";

export interface PictureProps {
  model: Model;
  opened: Opened;
  scene: Scene;
  lit: Lit | null;
  marks: Marks;
  pinned: boolean;
  mounted: (picture: Picture) => void;
  onClick: (unit: Unit | null) => void;
  onFold: (frame: number) => void;
  onOpenAll: (frame: number) => void;
  onTurn: (loop: number, turn: number) => void;
  onHover: (unit: Unit | null) => void;
}

interface Window {
  x: number;
  y: number;
  w: number;
  h: number;
  /** The scale, in steps, at which things are drawn: not above that of the window, so that no letter is too small. */
  grade: number;
}

/** The share of the window's size that is drawn beyond each of its sides, so that not every move draws anew. */
const AROUND = 0.25;
/** The margin above a picture that fits; what enters the program stands there. */
export const ROOM = 30;
const STEP = 1.15, grade = (scale: number) => Math.floor(Math.log(scale) / Math.log(STEP) + 1e-6), scaleOf = (graded: number) => STEP ** graded;

export class Picture extends Component<PictureProps, { window: Window | null }> {
  override state = { window: null };
  private readonly svg = createRef<SVGSVGElement>();
  private readonly world = createRef<SVGGElement>();
  private zooming!: ZoomBehavior<SVGSVGElement, unknown>;
  private transform: ZoomTransform = zoomIdentity;
  private drawn: { key: unknown[]; node: VNode } | null = null;
  private readonly places = new WeakMap<Scene, Map<number, LabelPlaces>>();
  private lit: Element[] = [];
  private lastFold: { frame: number; when: number } | null = null;
  private measured: [number, number] = [1, 1];
  private readonly watcher = new ResizeObserver(() => this.resized());

  override componentDidMount(): void {
    this.props.mounted(this);
    const svg = this.svg.current!;
    this.zooming = zoom<SVGSVGElement, unknown>()
      .scaleExtent([0.015, 4])
      .extent(() => [[0, 0], this.size()])
      .filter(event => (event.type === "wheel" ? event.ctrlKey || event.metaKey : !event.button))
      .on("zoom", (event: D3ZoomEvent<SVGSVGElement, unknown>) => {
        this.transform = event.transform;
        this.world.current!.setAttribute("transform", event.transform.toString());
        this.lookAround();
        this.holdNames();
      });
    select(svg).call(this.zooming).on("dblclick.zoom", null);
    svg.addEventListener("wheel", event => {
      if (event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      const unit = event.deltaMode ? 16 : 1, [dx, dy] = event.shiftKey ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
      this.moveBy((-dx * unit) / this.transform.k, (-dy * unit) / this.transform.k);
    }, { passive: false });
    this.watcher.observe(svg);
    this.resized();
    this.fit();
    this.brighten();
  }

  override componentWillUnmount(): void {
    this.watcher.disconnect();
  }

  /** What belongs to a selection is bright where it is, so that it covers no letters. */
  private brighten(): void {
    for (const line of this.lit) line.classList.remove("bright");
    const keys = new Set([...(this.props.lit?.lines ?? [])].map(line => line.key));
    this.lit = keys.size ? [...this.world.current!.querySelectorAll<SVGElement>(".base [data-line]")].filter(line => keys.has(line.dataset["line"]!)) : [];
    for (const line of this.lit) line.classList.add("bright");
  }

  /** The name of a frame stays in the window where its head does. */
  private holdNames(): void {
    const left = this.transform.invertX(8);
    for (const name of this.world.current!.querySelectorAll<SVGElement>("[data-slack]")) {
      const away = Math.min(Number(name.dataset["slack"]), left - Number(name.getAttribute("x")));
      name.setAttribute("transform", `translate(${Math.max(0, away)})`);
    }
  }

  override componentDidUpdate(before: PictureProps): void {
    this.brighten();
    this.holdNames();
    if (before.model !== this.props.model) this.fit();
    else if (before.scene !== this.props.scene) this.lookAround();
  }

  /** What was opened or closed stays where it is. The window moves before anything is drawn, so that this is drawn once. */
  override componentWillReceiveProps({ model, scene }: PictureProps): void {
    const { model: same, scene: had } = this.props, frame = this.lastFold?.frame;
    if (model !== same || scene === had || frame === undefined) return;
    const [before, after] = [had, scene].map(one => one.byUnit.get(-frame - 1));
    if (before && after) this.moveBy(before.mid - after.mid, before.y - after.y);
  }

  shownSize(): [number, number] | null {
    return this.measured[0] > 1 ? this.measured : null;
  }

  /** The size of the window, which is asked for only when it changes: to ask lays the page out. */
  private size(): [number, number] {
    return this.measured;
  }

  private resized(): void {
    const { clientWidth, clientHeight } = this.svg.current!;
    this.measured = [Math.max(1, clientWidth), Math.max(1, clientHeight)];
    this.lookAround();
  }

  private moveBy(x: number, y: number): void {
    if (x || y) this.zooming.translateBy(select(this.svg.current!), x, y);
  }

  scaleBy(factor: number): void {
    this.zooming.scaleBy(select(this.svg.current!), factor);
  }

  /** The whole picture where it stays legible, else its top, and what is around its gutter. */
  fit(): void {
    const { left, right, height } = this.props.scene, [wide, high] = this.size(), aside = beside(wide);
    const across = (wide - 2 * aside) / (right - left), down = (high - 2 * ROOM) / height;
    const scale = Math.max(Math.min(across, down, 1.15), Math.min(across, 0.85), LEGIBLE);
    const x = across < scale ? Math.min(aside - left * scale, Math.max(wide - aside - right * scale, wide / 2)) : wide / 2 - ((left + right) / 2) * scale, y = height * scale < high - 2 * ROOM ? (high - height * scale) / 2 : ROOM;
    this.zooming.transform(select(this.svg.current!), zoomIdentity.translate(x, y).scale(scale));
  }

  /** The whole picture, however small. */
  fitAll(): void {
    const { left, right, height } = this.props.scene, [wide, high] = this.size();
    const scale = Math.min((wide - 2 * beside(wide)) / (right - left), (high - 2 * ROOM) / height, 1.15);
    const [x, y] = [wide / 2 - ((left + right) / 2) * scale, high / 2 - (height / 2) * scale];
    this.zooming.transform(select(this.svg.current!), zoomIdentity.translate(x, y).scale(scale));
  }

  /** Move a unit into the middle unless it is well in the window and legible. */
  show(unit: Unit): void {
    const box = this.props.scene.byUnit.get(unit);
    if (!box) return;
    const [wide, high] = this.size(), { k } = this.transform, [x, y] = this.transform.apply([box.mid, box.y]);
    const seen = x > 60 && x < wide - 60 && y > 30 && y + Math.min(box.h * k, high / 2) < high - 20;
    if (seen && k >= 0.45) return;
    const scale = Math.max(k, 0.8), middle = box.y + Math.min(box.h, high / scale) / 2;
    this.zooming.transform(select(this.svg.current!), zoomIdentity.translate(wide / 2 - box.mid * scale, high / 2 - middle * scale).scale(scale));
  }

  /** What the window shows; drawn anew where it leaves what was drawn. */
  private lookAround(): void {
    const [wide, high] = this.size(), { k } = this.transform, [x, y] = this.transform.invert([0, 0]), had = this.state.window as Window | null;
    const [w, h] = [wide / k, high / k];
    if (had && had.grade === grade(k) && x >= had.x && y >= had.y && x + w <= had.x + had.w && y + h <= had.y + had.h) return;
    this.setState({ window: { x: x - w * AROUND, y: y - h * AROUND, w: (1 + 2 * AROUND) * w, h: (1 + 2 * AROUND) * h, grade: grade(k) } });
  }

  /** The boxes and lines in a window. */
  static within(scene: Scene, window: Window): { boxes: Box[]; lines: Map<number, Line[]> } {
    const { x, y, w, h } = window;
    const touches = (left: number, top: number, wide: number, high: number) => left < x + w && top < y + h && left + wide > x && top + high > y;
    const boxes = scene.boxes.filter(box => partsOf(box).some(part => touches(part.x - 120, part.y, part.w + 240, part.h)));
    const lines = new Map<number, Line[]>();
    for (const line of scene.lines) {
      const [left, top, wide, high] = line.box;
      if (!touches(left - 20, top, wide + 40, high)) continue;
      const own = lines.get(line.within);
      if (own) own.push(line);
      else lines.set(line.within, [line]);
    }
    return { boxes, lines };
  }

  /** Where what lines say has a place, found once for a scene and a size. */
  private placesAt(detail: Detail): LabelPlaces {
    const { model, scene } = this.props, size = labelSize(detail), known = this.places.get(scene) ?? new Map<number, LabelPlaces>();
    this.places.set(scene, known);
    if (!known.has(size)) known.set(size, new LabelPlaces(model, scene, size, textOfLine));
    return known.get(size)!;
  }

  private labelsAt(detail: Detail, shown: Shown): Label[] {
    return detail.near ? this.placesAt(detail).labels.filter(({ line }) => isDrawn(line, shown)) : [];
  }

  private drawnIn(window: Window): VNode {
    const { model, opened, scene, marks } = this.props, detail = detailAt(scaleOf(window.grade)), shown = shownAt(scene, detail.least), { x, y, w, h } = window;
    const labels = this.labelsAt(detail, shown).filter(label => label.x > x - 160 && label.x < x + w && label.y > y && label.y < y + h + 20);
    return <Drawn {...{ model, opened, marks, detail, shown, labels }} {...Picture.within(scene, window)} />;
  }

  /** What is in the picture now, for a file. */
  visible(): { x: number; y: number; w: number; h: number; node: VNode } {
    const [wide, high] = this.size(), { k } = this.transform, [x, y] = this.transform.invert([0, 0]);
    const window = { x, y, w: wide / k, h: high / k, grade: grade(k) };
    return { ...window, node: this.drawnIn(window) };
  }

  private base(window: Window): VNode {
    const { model, scene, marks } = this.props, key = [model, scene, marks.matches, window];
    if (this.drawn?.key.every((part, at) => part === key[at])) return this.drawn.node;
    const node = this.drawnIn(window);
    this.drawn = { key, node };
    return node;
  }

  private overlay(lit: Lit, window: Window): VNode {
    const { model, opened, scene, marks } = this.props, detail = detailAt(scaleOf(window.grade)), shown = shownAt(scene, detail.least), size = labelSize(detail);
    const boxes = new Map<Box, string>();
    for (const [unit, role] of lit.units) {
      let box = scene.byUnit.get(unit);
      while (box && !shown.units.has(box.unit)) box = scene.byUnit.get(box.around!);
      if (box && boxes.get(box) !== "self") boxes.set(box, role);
    }
    const bands = detail.near ? [...lit.lines].filter(line => line.side === "bridge" && isDrawn(line, shown)) : [];
    const labels = bands.length ? this.placesAt(detail).of(bands) : [];
    return (
      <g class="overlay">
        {[...boxes].map(([box, role]) => (box.kind === "open"
          ? partsOf(box).map(({ x, y, w, h }) => <rect key={`${box.unit} ${x}`} class="ring" x={x} y={y} width={w} height={h} rx={8} />)
          : <BoxShape key={box.unit} {...{ model, opened, box, detail, marks, role: `is-${role}` }} />))}
        {labels.map(label => <LabelShape key={label.line.key} {...{ label, size }} bright />)}
      </g>
    );
  }

  private at(event: Event): { unit: Unit | null; fold: number | null; turn: [number, number] | null } {
    const target = event.target as Element, number = (name: string) => {
      const found = target.closest(`[data-${name}]`)?.getAttribute(`data-${name}`);
      return found === undefined || found === null ? null : Number(found);
    };
    const loop = number("loop");
    return { unit: number("unit"), fold: number("fold"), turn: loop === null ? null : [loop, number("turn")!] };
  }

  private readonly clicked = (event: MouseEvent) => {
    const { unit, fold, turn } = this.at(event), { scene } = this.props;
    if (event.detail > 1) return;
    this.lastFold = null;
    if (turn) return this.props.onTurn(...turn);
    const folded = unit !== null && scene.byUnit.get(unit)?.kind === "folded" ? -unit - 1 : fold;
    if (folded === null) return this.props.onClick(unit);
    this.lastFold = { frame: folded, when: event.timeStamp };
    this.props.onFold(folded);
  };

  private readonly doubled = (event: MouseEvent) => {
    if (this.lastFold && event.timeStamp - this.lastFold.when < 700) this.props.onOpenAll(this.lastFold.frame);
  };

  /** The next change of what is open is that of a frame, which then stays where it is. */
  hold(frame: number): void {
    if (this.lastFold?.frame !== frame) this.lastFold = { frame, when: -Infinity };
  }

  render({ scene, lit, pinned, onHover }: PictureProps): VNode {
    const window = this.state.window as Window | null;
    return (
      <svg
        ref={this.svg} class={`picture${pinned ? " pinned" : ""}`} tabindex={0} role="application" aria-label="forward and backward"
        data-boxes={scene.boxes.length} onClick={this.clicked} onDblClick={this.doubled}
        onMouseOver={event => onHover(this.at(event).unit)} onMouseLeave={() => onHover(null)}
      >
        <Tips />
        <g ref={this.world}>
          <g class="base">{window && this.base(window)}</g>
          {window && lit && this.overlay(lit, window)}
        </g>
      </svg>
    );
  }
}
