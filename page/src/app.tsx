/** The page: one state, and everything that changes it. */

import { Component, type VNode } from "preact";
import type { PageData } from "./data";
import { type Marked, Changes, markedOf, placeOf } from "./changes";
import { Code } from "./code";
import { Details } from "./details";
import { copy, download, svgOf } from "./export";
import { Finder } from "./finder";
import { across, along, keysOf } from "./keys";
import { type Opened, type Scene, beside, isOpen, place, turnOf } from "./layout";
import { type Lit, litBy } from "./links";
import { Memory, Timeline } from "./memory";
import { type Model, type Unit, frameUnit } from "./model";
import { Picture, ROOM } from "./picture";
import { type Found, Searcher } from "./search";
import { depthOf, firstOpen, hashOf, openedInside, openedTo, revealed, spotOf, toggled, turned, visibleOf } from "./state";
import { Lines, Operators, Ports, Values } from "./tables";

type Tab = "changes" | "details" | "code" | "memory" | "lines" | "operators" | "values" | "ports";

/** Pixels of the panels beside the picture. */
const WIDE = 430;

const TABS: [Tab, string, key: string][] = [
  ["changes", "Changes", "h"], ["details", "Details", "d"], ["code", "Code", "c"], ["memory", "Memory", "m"], ["lines", "Lines", "l"],
  ["operators", "Operators", "o"], ["values", "Values", "v"], ["ports", "In/out", "i"],
];

interface AppState {
  pair: number;
  opened: Opened;
  selected: Unit | null;
  hovered: Unit | null;
  query: string;
  found: Found | null;
  /** What the picture shows of the search: it follows when typing pauses. */
  marked: Found | null;
  at: number;
  moment: number | null;
  tab: Tab;
  help: boolean;
  told: string;
  wide: number;
}

export class App extends Component<{ page: PageData; models: Model[] }, AppState> {
  private picture!: Picture;
  private finder!: Finder;
  private readonly searchers = new Map<Model, Searcher>();
  private readonly keep = new Map<string, { key: unknown[]; value: unknown }>();
  private timer = 0;
  private marking = 0;
  private readonly changes: Marked[] = markedOf(this.props.models);
  /** The change that a key went to last. */
  private lastChange = -1;
  override state: AppState = { ...this.begin(location.hash), hovered: null, query: "", found: null, marked: null, at: -1, moment: null, tab: this.props.page.changes ? "changes" : "details", help: false, told: "", wide: WIDE };

  /** The state that a link asks for; without one, a difference begins where the first change is. */
  private begin(hash: string): Pick<AppState, "pair" | "opened" | "selected"> {
    const { models } = this.props, first = this.firstChange(hash), { unit, opened, ...spot } = spotOf(hash, models);
    const pair = first?.pair ?? spot.pair, model = models[pair], start = opened ?? this.first(model), shown = unit ?? first?.node ?? null;
    return { pair, selected: unit, opened: shown === null || opened ? start : revealed(model, start, shown) };
  }

  /** The change at which a page without a link opens; a narrow window has the list of changes, and the whole in small. */
  private firstChange(hash: string): Marked | undefined {
    return hash || innerWidth <= 760 ? undefined : this.changes[0];
  }

  /** What is open at first, for the window that there is. */
  private first(model: Model): Opened {
    const wide = innerWidth > 760 ? innerWidth - (this.state?.wide ?? WIDE) - 5 : innerWidth;
    return firstOpen(model, wide - 2 * beside(wide));
  }

  private get model(): Model {
    return this.props.models[this.state.pair];
  }

  private get scene(): Scene {
    return this.kept("scene", [this.model, this.state.opened], () => place(this.model, this.state.opened, this.room()));
  }

  /** The window of the picture; before there is one, about that which it will be. */
  private room(): { wide: number; high: number } {
    const [across, down] = this.picture?.shownSize() ?? [innerWidth > 760 ? innerWidth - WIDE - 5 : innerWidth, (innerHeight - 170) * (innerWidth > 760 ? 1 : 0.6)];
    return { wide: Math.max(200, across - 2 * beside(across)), high: Math.max(150, down - 2 * ROOM) };
  }

  private get searcher(): Searcher {
    const { model } = this;
    if (!this.searchers.has(model)) this.searchers.set(model, new Searcher(model));
    return this.searchers.get(model)!;
  }

  /** A value that is made again only where what it is made of has changed. */
  private kept<T>(name: string, key: unknown[], make: () => T): T {
    const had = this.keep.get(name);
    if (had && had.key.length === key.length && had.key.every((part, at) => part === key[at])) return had.value as T;
    const value = make();
    this.keep.set(name, { key, value });
    return value;
  }

  override componentDidMount(): void {
    document.addEventListener("keydown", this.pressed);
    addEventListener("hashchange", this.followed);
    setTimeout(() => this.searcher, 300); // what a search needs, before the first letter is typed
    const begins = this.state.selected ?? this.firstChange(location.hash)?.node ?? null;
    if (begins !== null) this.picture.show(this.visible(begins));
  }

  override componentWillUnmount(): void {
    document.removeEventListener("keydown", this.pressed);
    removeEventListener("hashchange", this.followed);
  }

  override componentDidUpdate(_: unknown, before: AppState): void {
    const { pair, selected, opened } = this.state;
    if (before.pair === pair && before.selected === selected && before.opened === opened) return;
    clearTimeout(this.timer);
    // A page inside a notebook has no address of its own.
    if (location.protocol !== "about:") this.timer = window.setTimeout(() => history.replaceState(null, "", hashOf(pair, selected, opened)), 250);
  }

  /** The address may have been written anew since it changed: what was asked for is in the event. */
  private readonly followed = (event: HashChangeEvent) => {
    clearTimeout(this.timer);
    const begun = this.begin(new URL(event.newURL).hash);
    this.setState(begun, () => begun.selected !== null && this.picture.show(this.visible(begun.selected)));
  };

  private visible(unit: Unit): Unit {
    return visibleOf(this.model, this.scene, unit);
  }

  /** Select a unit and bring it into the picture, opening frames and turning loops on the way. */
  private readonly go = (unit: Unit) => {
    const opened = this.scene.byUnit.has(unit) ? this.state.opened : revealed(this.model, this.state.opened, unit);
    this.setState({ opened, selected: unit, hovered: null, ...this.momentOf(unit) }, () => this.picture.show(this.visible(unit)));
  };

  private momentOf(unit: Unit | null): Partial<AppState> {
    return unit !== null && unit >= 0 && this.state.tab !== "memory" ? { moment: null } : {};
  }

  /** A click in the picture: the words of what changed give way to those of a step. */
  private readonly select = (unit: Unit | null) => {
    const { tab } = this.state, selected = unit === frameUnit(0) ? null : unit;
    this.setState({ selected, told: "", tab: tab === "changes" && selected !== null ? "details" : tab });
  };

  private readonly fold = (frame: number) => {
    this.picture.hold(frame);
    const opened = toggled(this.model, this.state.opened, frame), inside = this.state.selected;
    const hidden = inside !== null && !isOpen(this.model, opened, frame) && this.model.above(inside).includes(frame);
    this.setState({ opened, selected: frame === 0 ? this.state.selected : hidden || inside === null || inside < 0 ? frameUnit(frame) : inside });
  };

  private readonly openAll = (frame: number) => {
    this.picture.hold(frame);
    this.setState({ opened: openedInside(this.model, this.state.opened, frame), selected: frame === 0 ? null : frameUnit(frame) });
  };

  private readonly turn = (loop: number, turn: number) => {
    this.picture.hold(loop);
    const { model } = this, { selected } = this.state, opened = turned(model, this.state.opened, loop, turn);
    this.setState({ opened, selected: selected !== null && model.above(selected).includes(loop) ? this.sameIn(loop, opened, selected) : selected });
  };

  /** The unit at the same place of the turn that is now shown. */
  private sameIn(loop: number, opened: Opened, unit: Unit): Unit {
    const { model } = this, path = [unit, ...model.above(unit).map(frameUnit)], end = path.indexOf(frameUnit(loop));
    let found = model.frame(loop).units[turnOf(model, opened, loop)];
    for (const part of path.slice(0, end - 1).reverse()) {
      const place = part < 0 ? model.framePlace[-part - 1] : model.place[part], next = found < 0 ? model.frame(-found - 1).units[place] : undefined;
      if (next === undefined) return frameUnit(loop);
      found = next;
    }
    return found;
  }

  private readonly depth = (depth: number) => this.setState({ opened: openedTo(this.model, this.state.opened, depth) }, () => {
    if (this.state.selected !== null) this.picture.show(this.visible(this.state.selected));
    else this.picture.fit();
  });

  private readonly search = (query: string) => {
    const found = this.searcher.find(query);
    this.setState({ query, found, at: -1 });
    clearTimeout(this.marking);
    this.marking = window.setTimeout(() => this.setState({ marked: found }), 90);
  };

  private readonly ask = (query: string) => {
    this.search(query);
    this.finder.focus();
  };

  private readonly goMatch = (at: number) => {
    const unit = this.state.found!.units[at];
    this.setState({ at });
    this.go(unit);
  };

  private nextMatch(way: 1 | -1): void {
    const { found, at } = this.state, count = found?.units.length ?? 0;
    if (count) this.goMatch(at < 0 ? (way > 0 ? 0 : count - 1) : (at + way + count) % count);
  }

  private readonly moment = (moment: number) => this.setState({ moment, tab: "memory" });

  private readonly exported = () => {
    const name = this.props.page.title.replace(/[^\w.-]+/g, "_").slice(0, 60) || "graph";
    download(`${name}.svg`, svgOf(this.picture, this.props.page.title));
  };

  private readonly link = () => {
    const { pair, selected, opened } = this.state, address = location.href.replace(/#.*$/, "") + hashOf(pair, selected, opened);
    void copy(address).then(told => this.setState({ told }));
  };

  private readonly choose = (pair: number) => {
    const opened = this.first(this.props.models[pair]);
    this.setState({ pair, opened, selected: null, hovered: null, query: "", found: null, marked: null, at: -1, moment: null });
  };

  /** Select a unit of any pair. */
  private readonly jump = (pair: number, unit: Unit) => {
    if (pair === this.state.pair) return this.go(unit);
    const model = this.props.models[pair];
    this.choose(pair);
    this.setState({ opened: revealed(model, this.first(model), unit), selected: unit }, () => this.picture.show(this.visible(unit)));
  };

  private nextChange(way: 1 | -1): void {
    const { changes } = this, { pair, selected } = this.state, here = placeOf(changes, this.props.models, pair, selected);
    if (!changes.length) return;
    const at = here < 0 ? this.lastChange : here;
    this.lastChange = at < 0 ? (way > 0 ? 0 : changes.length - 1) : (at + way + changes.length) % changes.length;
    this.jump(changes[this.lastChange].pair, changes[this.lastChange].node);
  }

  private turnAround(way: 1 | -1): void {
    const { selected, opened } = this.state;
    const around = selected === null ? [] : [...(selected < 0 ? [-selected - 1] : []), ...this.model.above(selected)];
    const loop = around.find(frame => this.model.frame(frame).kind === "loop") ?? this.onlyLoop();
    if (loop !== undefined) this.turn(loop, turnOf(this.model, opened, loop) + way);
  }

  private onlyLoop(): number | undefined {
    const loops = this.scene.boxes.filter(box => box.unit < 0 && this.model.frame(-box.unit - 1).kind === "loop");
    return loops.length ? -loops[0].unit - 1 : undefined;
  }

  private readonly pressed = (event: KeyboardEvent) => {
    const target = event.target as Element;
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)) return;
    if (event.key === "Enter" && target.tagName === "BUTTON") return;
    if (event.key.startsWith("Arrow") && target.closest(".code, .side")) return;
    const act = this.actions(event)[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };

  private actions(event: KeyboardEvent): Record<string, () => void> {
    const { model, scene } = this, { selected } = this.state, picture = this.picture;
    const move = (unit: Unit | null) => unit !== null && this.go(unit);
    const next = (way: 1 | -1) => (this.state.found ? this.nextMatch(way) : this.nextChange(way));
    const frame = () => {
      if (selected === null) return;
      const id = selected < 0 ? -selected - 1 : scene.byUnit.has(selected) ? model.above(selected).find(one => scene.byUnit.has(frameUnit(one)))! : -this.visible(selected) - 1;
      if (event.shiftKey) this.openAll(id);
      else this.fold(id);
    };
    return {
      "/": () => this.finder.focus(), "?": () => this.setState({ help: !this.state.help }),
      Escape: () => (this.state.help ? this.setState({ help: false }) : this.select(null)), Enter: frame,
      ArrowDown: () => move(along(model, scene, selected, 1)), ArrowUp: () => move(along(model, scene, selected, -1)),
      ArrowLeft: () => move(across(model, selected, false)), ArrowRight: () => move(across(model, selected, true)),
      "[": () => this.turnAround(-1), "]": () => this.turnAround(1), n: () => next(1), p: () => next(-1),
      "+": () => picture.scaleBy(1.3), "=": () => picture.scaleBy(1.3), "-": () => picture.scaleBy(1 / 1.3), f: () => picture.fit(), a: () => picture.fitAll(),
      ...Object.fromEntries(this.tabs().map(([tab, , key]) => [key, () => this.setState({ tab })])),
      ...Object.fromEntries(Array.from({ length: 10 }, (_, depth) => [String(depth), () => this.depth(Math.max(1, depth))])),
    };
  }

  private tabs(): typeof TABS {
    const { stats } = this.model.data, without = [!this.props.page.changes && "changes", !stats && "values", !this.model.timed && "memory", !this.model.timed && "lines"];
    return TABS.filter(([tab]) => !without.includes(tab));
  }

  private lit(): Lit | null {
    const { model, scene } = this, { selected, hovered } = this.state, unit = hovered ?? selected;
    if (unit === null || unit === frameUnit(0)) return null;
    if (hovered !== null && scene.byUnit.get(hovered)?.kind === "open" && selected === null) return null;
    const shown = hovered !== null && scene.byUnit.get(hovered)?.kind === "open" ? selected! : unit;
    return this.kept("lit", [scene, shown], () => litBy(model, scene, shown));
  }

  private panel(): VNode {
    const { model, go, jump } = this, { pair, tab, opened, selected, moment } = this.state, { page, models } = this.props;
    const lit = tab === "code" ? this.lit() : null;
    return this.kept("panel", [model, tab, opened, selected, moment, lit], () => {
      if (tab === "changes" && page.changes) return <Changes {...{ page, models, jump }} marked={this.changes} at={placeOf(this.changes, models, pair, selected)} />;
      if (tab === "code") return <Code {...{ model, selected, go }} lit={lit?.steps ?? null} />;
      if (tab === "memory" && model.timed) return <Memory {...{ model, moment, go }} onMoment={this.moment} />;
      if (tab === "lines" && model.timed) return <Lines {...{ model, go }} search={this.ask} />;
      if (tab === "operators") return <Operators model={model} search={this.ask} />;
      if (tab === "values" && model.data.stats) return <Values {...{ model, go }} />;
      if (tab === "ports") return <Ports {...{ model, go }} />;
      return <Details {...{ page, model, opened, selected, go, jump }} onFold={this.fold} onOpenAll={this.openAll} onTurn={this.turn} />;
    });
  }

  private bar(): VNode {
    const { page, models } = this.props, { pair, query, found, at, told } = this.state, { model } = this, depth = depthOf(model, this.state.opened);
    return (
      <header>
        <h1 title={page.title}><bdi>{page.title}</bdi></h1>
        {models.length > 1 && (
          <select aria-label="pairs of graphs" value={pair} onChange={event => this.choose(Number(event.currentTarget.value))}>
            {models.map((one, index) => <option key={index} value={index}>{one.data.name || `pair ${index + 1}`}</option>)}
          </select>
        )}
        <Finder mounted={finder => (this.finder = finder)} {...{ model, query, found, at }} onQuery={this.search} onGo={this.goMatch} onLeave={() => this.focusPicture()} />
        <span class="group" role="group" aria-label="depth">
          <button title="close one level" disabled={depth <= 1} onClick={() => this.depth(Math.max(1, depth - 1))}>−</button>
          <span class="soft" title="frames are open to this depth">depth {depth}</span>
          <button title="open one level" disabled={depth > model.deepest} onClick={() => this.depth(depth + 1)}>+</button>
        </span>
        <span class="group">
          <button title="the whole picture (a)" onClick={() => this.picture.fitAll()}>fit</button>
          <button title="copy a link to the selection" onClick={this.link}>link</button>
          <button title="save the visible part as an SVG file" onClick={this.exported}>SVG</button>
          <button title="keys (?)" onClick={() => this.setState({ help: true })}>?</button>
        </span>
        {told && (told.includes("#") ? <input class="told" readOnly value={told} aria-label="link" onFocus={event => event.currentTarget.select()} /> : <output class="told">{told}</output>)}
      </header>
    );
  }

  private focusPicture(): void {
    document.querySelector<SVGSVGElement>("svg.picture")!.focus();
  }

  private caption(): string {
    const { model } = this, { hovered, selected } = this.state, unit = hovered ?? selected;
    if (unit === null) return "";
    if (unit < 0) return [model.text(model.frame(-unit - 1).name), model.text(model.frame(-unit - 1).label)].filter(Boolean).join("  ");
    const code = model.data.sources[model.data.nodes.source[unit]]?.[3];
    return [`${model.nameOf(unit)}: ${model.specOf(unit)} = ${model.call(unit)}`, model.lineOf(unit), code === undefined ? "" : model.text(code)].filter(Boolean).join("   ");
  }

  private readonly dragged = (event: PointerEvent) => {
    if (event.buttons === 1) this.setState({ wide: Math.max(240, Math.min(innerWidth - 200, innerWidth - event.clientX)) });
  };

  render(): VNode {
    const { model, scene } = this, { selected, marked, tab, help, moment, wide, opened } = this.state;
    const marks = this.kept("marks", [marked], () => ({ matches: marked?.within ?? null, steps: marked?.steps ?? null }));
    return (
      <div class="app" style={{ "--wide": `${wide}px` }}>
        {this.bar()}
        <main>
          <div class="stage">
            <Picture mounted={picture => (this.picture = picture)} {...{ model, scene, opened, marks }} lit={this.lit()} pinned={selected !== null && selected >= 0}
              onClick={this.select} onFold={this.fold} onOpenAll={this.openAll} onTurn={this.turn} onHover={this.hover} />
            <Legend neighbors={model.neighbors} verdict={this.props.page.verdict} />
            <div class="caption"><bdi>{this.caption()}</bdi></div>
          </div>
          <div class="grip" onPointerDown={event => event.currentTarget.setPointerCapture(event.pointerId)} onPointerMove={this.dragged} />
          <section class="side">
            <nav role="tablist">{this.tabs().map(([one, title, key]) => <button key={one} role="tab" aria-selected={tab === one} title={`key ${key}`} onClick={() => this.setState({ tab: one })}>{title}</button>)}</nav>
            {this.panel()}
          </section>
        </main>
        {model.timed && <Timeline {...{ model, moment, selected }} onMoment={this.moment} />}
        {help && <Keys changes={this.props.page.changes !== undefined} onClose={() => this.setState({ help: false })} />}
      </div>
    );
  }

  private readonly hover = (unit: Unit | null) => {
    if (unit !== this.state.hovered) this.setState({ hovered: unit });
  };
}

/** What the colors and the verdict mean, above the picture. */
function Legend({ neighbors, verdict: { word, meaning, tone } }: { neighbors: boolean; verdict: PageData["verdict"] }): VNode {
  return (
    <div class="legend">
      <span class="forward">forward ↓</span>
      {neighbors ? <span class="neighbor">neighbor of the region</span> : <span class="saved">saved for the backward</span>}
      <span class="backward">backward ↑</span>
      <span class="soft">gray: a view, computes nothing</span>
      <span class="verdict"><b class={`tone-${tone}`}><bdi>{word}</bdi></b>: <bdi>{meaning}</bdi></span>
    </div>
  );
}

function Keys({ changes, onClose }: { changes: boolean; onClose: () => void }): VNode {
  return (
    <div class="cover" onClick={onClose}>
      <div class="card" role="dialog" aria-label="keys">
        <h2>Keys</h2>
        <dl>{keysOf(changes).map(([keys, meaning]) => [<dt key={keys}><kbd>{keys}</kbd></dt>, <dd key={`${keys} `}>{meaning}</dd>])}</dl>
        <button onClick={onClose}>close</button>
      </div>
    </div>
  );
}
