/** The search box and its results. */

import { Component, createRef, type VNode } from "preact";
import type { Model, Unit } from "./model";
import { type Found, filtersOf } from "./search";
import { plural, whole } from "./words";

interface FinderProps {
  model: Model;
  query: string;
  found: Found | null;
  at: number;
  mounted: (finder: Finder) => void;
  onQuery: (query: string) => void;
  onGo: (at: number) => void;
  onLeave: () => void;
}

const SHOWN = 50;

export class Finder extends Component<FinderProps, { open: boolean }> {
  override state = { open: false };
  private readonly input = createRef<HTMLInputElement>();

  override componentDidMount(): void {
    this.props.mounted(this);
  }

  focus(): void {
    this.input.current!.focus();
    this.input.current!.select();
  }

  private readonly pressed = (event: KeyboardEvent) => {
    const { found, at, onGo, onLeave } = this.props, count = found?.units.length ?? 0;
    event.stopPropagation();
    if (event.key === "Escape") {
      event.preventDefault(); // a browser would empty the box
      this.setState({ open: false });
      onLeave();
    } else if (count && (event.key === "Enter" || event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      const back = event.key === "ArrowUp" || event.shiftKey;
      this.setState({ open: event.key !== "Enter" });
      onGo(at < 0 ? (back ? count - 1 : 0) : (at + (back ? count - 1 : 1)) % count);
    }
  };

  render({ query, found, model, at, onQuery, onGo }: FinderProps): VNode {
    return (
      <div class="finder" role="search" onFocusOut={event => { if (!(event.currentTarget as Element).contains(event.relatedTarget as Node)) this.setState({ open: false }); }}>
        <input ref={this.input} type="search" value={query} placeholder="search: name, operator, shape, line   /" aria-label="search" spellcheck={false}
          onInput={event => { onQuery(event.currentTarget.value); this.setState({ open: true }); }} onFocus={() => this.setState({ open: true })} onKeyDown={this.pressed} />
        {found && <output class="total">{found.problem ? "?" : whole(found.units.length)}</output>}
        {this.state.open && (
          <div class="results" tabIndex={-1}>
            {found ? <Results {...{ found, model, at, onGo }} onQuery={query => { onQuery(query); this.focus(); }} /> : <Help model={model} onQuery={query => { onQuery(query); this.focus(); }} />}
          </div>
        )}
      </div>
    );
  }
}

function Help({ model, onQuery }: { model: Model; onQuery: (query: string) => void }): VNode {
  return (
    <div class="help">
      <p class="soft">Words are looked for in names and operators; where none has them, in shapes, source lines, modules and parameters, too. Filters can be put beside them:</p>
      <dl>{filtersOf(model).map(([word, meaning]) => [<dt key={word}><button class="link" onClick={() => onQuery(word)}>{word}</button></dt>, <dd key={`${word} `}>{meaning}</dd>])}</dl>
    </div>
  );
}

/** `names 12, shapes 3`. */
const listed = (counts: Found["counts"]) => counts.map(([place, count]) => `${place} ${whole(count)}`).join(", ");

function Results({ found, model, at, onGo, onQuery }: { found: Found; model: Model; at: number; onGo: (at: number) => void; onQuery: (query: string) => void }): VNode {
  if (found.problem) return <p class="alarm">{found.problem}</p>;
  const backward = found.steps.size - found.forward, frames = found.units.length - found.steps.size;
  const from = Math.max(0, Math.min(at - 20, found.units.length - SHOWN));
  return (
    <div>
      <p class="soft counts">
        {[found.forward && `${whole(found.forward)} forward`, backward && `${whole(backward)} backward`, frames && plural(frames, "frame")].filter(Boolean).join(", ") || "Nothing has these words."}
        {found.counts.length > 0 && ` · in ${listed(found.counts)}`}
      </p>
      {found.elsewhere.steps > 0 && <p><button class="link elsewhere" onClick={() => onQuery(found.elsewhere.query)}>{`${plural(found.elsewhere.steps, "more step")}, not by name: in ${listed(found.elsewhere.counts)}`}</button></p>}
      <ul>
        {found.units.slice(from, from + SHOWN).map((unit, index) => <Result key={unit} {...{ model, unit }} chosen={from + index === at} onGo={() => onGo(from + index)} />)}
      </ul>
      {found.units.length > SHOWN && <p class="soft">{`${whole(from + 1)} to ${whole(Math.min(found.units.length, from + SHOWN))} of ${whole(found.units.length)}; Enter goes on`}</p>}
    </div>
  );
}

function Result({ model, unit, chosen, onGo }: { model: Model; unit: Unit; chosen: boolean; onGo: () => void }): VNode {
  const press = (event: Event) => { event.preventDefault(); onGo(); };
  if (unit < 0) {
    const id = -unit - 1;
    return <li class={chosen ? "chosen" : ""} onMouseDown={press}><b><bdi>{model.path(id)}</bdi></b><span class="soft"><bdi>{model.text(model.frame(id).label)}</bdi></span></li>;
  }
  return (
    <li class={chosen ? "chosen" : ""} onMouseDown={press}>
      <b class={model.isForward(unit) ? "forward" : "backward"}><bdi>{model.nameOf(unit)}</bdi></b><code>{model.specOf(unit)}</code>
      <span class="soft"><bdi>{[model.moduleOf(unit), model.lineOf(unit)].filter(Boolean).join("  ")}</bdi></span>
    </li>
  );
}
