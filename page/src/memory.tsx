/** Memory over time: live bytes while each step runs, and who holds them. */

import { Component, createRef, type VNode } from "preact";
import type { Span } from "./data";
import type { Model, Unit } from "./model";
import { type Go, StepLink, Table, type Column } from "./parts";
import { bytes, whole, widthOf } from "./words";

interface TimelineProps {
  model: Model;
  moment: number | null;
  selected: Unit | null;
  onMoment: (node: number) => void;
}

const HIGH = 64, TOP = 16, LETTERS = 11;

export class Timeline extends Component<TimelineProps, { wide: number }> {
  override state = { wide: 0 };
  private readonly frame = createRef<HTMLDivElement>();
  private readonly watcher = new ResizeObserver(() => this.setState({ wide: this.frame.current!.clientWidth }));
  private shape: { model: Model; wide: number; paths: [string, string] } | null = null;

  override componentDidMount(): void {
    this.watcher.observe(this.frame.current!);
    this.setState({ wide: this.frame.current!.clientWidth });
  }

  override componentWillUnmount(): void {
    this.watcher.disconnect();
  }

  override shouldComponentUpdate(next: TimelineProps, state: { wide: number }): boolean {
    const { model, moment, selected } = this.props;
    return next.model !== model || next.moment !== moment || next.selected !== selected || state.wide !== this.state.wide;
  }

  private get step(): number {
    return this.state.wide / Math.max(1, this.props.model.count);
  }

  /** Two areas; where many steps share a pixel, the highest of them stands. */
  private paths(): [string, string] {
    const { model } = this.props, { wide } = this.state;
    if (this.shape?.model === model && this.shape.wide === wide) return this.shape.paths;
    const { live } = model.data.memory, peak = Math.max(1, highest(live)), each = Math.max(1, Math.floor(1 / this.step / 1.5));
    const area = (from: number, to: number) => {
      if (from >= to) return "";
      let path = `M${(from * this.step).toFixed(1)} ${TOP + HIGH}`;
      for (let at = from; at < to; at += each) {
        const end = Math.min(to, at + each), y = TOP + HIGH * (1 - highest(live, at, end) / peak);
        path += `L${(at * this.step).toFixed(1)} ${y.toFixed(1)}L${(end * this.step).toFixed(1)} ${y.toFixed(1)}`;
      }
      return `${path}L${(to * this.step).toFixed(1)} ${TOP + HIGH}Z`;
    };
    const paths: [string, string] = [area(0, model.data.forward), area(model.data.forward, model.count)];
    this.shape = { model, wide, paths };
    return paths;
  }

  private readonly chosen = (event: MouseEvent) => {
    const at = Math.floor((event.clientX - this.frame.current!.getBoundingClientRect().left) / this.step);
    this.props.onMoment(Math.max(0, Math.min(this.props.model.count - 1, at)));
  };

  private readonly pressed = (event: KeyboardEvent) => {
    const { model, moment, onMoment } = this.props, by = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 }[event.key];
    const now = moment ?? model.data.memory.peak[0];
    const next = event.key === "Home" ? 0 : event.key === "End" ? model.count - 1 : by === undefined ? null : now + by * (event.shiftKey ? 10 : 1);
    if (next === null) return;
    event.preventDefault();
    event.stopPropagation();
    onMoment(Math.max(0, Math.min(model.count - 1, next)));
  };

  render({ model, moment, selected }: TimelineProps): VNode {
    const { wide } = this.state, { memory, forward } = model.data, [peak, most] = memory.peak, [first, second] = wide && model.count ? this.paths() : ["", ""];
    const at = (node: number) => (node + 0.5) * this.step;
    const texts = [`peak ${bytes(most)} + ${bytes(memory.before)} held by the caller`, `peak ${bytes(most)}`], said = texts.find(text => widthOf(text, LETTERS) < wide - 24) ?? "";
    const room = widthOf(said, LETTERS), beside = at(peak) + 8, x = beside + room < wide - 6 ? beside : Math.max(4, Math.min(at(peak) - 8 - room, wide - room - 6));
    const now = moment === null ? "" : `, ${bytes(memory.live[moment])} at step ${whole(moment + 1)}`;
    return (
      <div class="timeline" ref={this.frame} tabIndex={0} role="slider" aria-label="live bytes over forward and backward"
        aria-valuemin={0} aria-valuemax={Math.max(0, model.count - 1)} aria-valuenow={moment ?? Math.max(0, peak)} aria-valuetext={`peak ${bytes(most)}${now}`}
        onClick={this.chosen} onMouseMove={event => event.buttons === 1 && this.chosen(event)} onKeyDown={this.pressed}>
        <svg width={wide} height={TOP + HIGH + 1}>
          <path class="area forward" d={first} />
          <path class="area backward" d={second} />
          {forward > 0 && forward < model.count && <path class="border" d={`M${forward * this.step} ${TOP}V${TOP + HIGH}`} />}
          {peak >= 0 && model.count > 0 && <circle class="peak" cx={at(peak)} cy={TOP} r={3.5} />}
          {peak >= 0 && model.count > 0 && <text class="peak" x={x} y={11}>{said}</text>}
          {selected !== null && selected >= 0 && <path class="cursor selected" d={`M${at(selected)} ${TOP - 4}V${TOP + HIGH}`} />}
          {moment !== null && <path class="cursor" d={`M${at(moment)} ${TOP - 4}V${TOP + HIGH}`} />}
        </svg>
      </div>
    );
  }
}

function highest(row: number[], from = 0, to = row.length): number {
  let most = 0;
  for (let at = from; at < to; at++) if (row[at] > most) most = row[at];
  return most;
}

/** Who holds bytes while a step runs, the largest first. */
export function holders(model: Model, moment: number): Span[] {
  return model.data.memory.spans.filter(([, first, last]) => first <= moment && moment <= last).sort((a, b) => b[3] - a[3]);
}

export function Memory({ model, moment, go, onMoment }: { model: Model; moment: number | null; go: Go; onMoment: (node: number) => void }): VNode {
  const { memory } = model.data, [peak, most] = memory.peak, now = moment ?? peak;
  if (now < 0 || !model.count) return <div class="panel"><h2>Memory</h2><p class="soft">There is no step, so nothing is live.</p></div>;
  const rows = holders(model, now), listed = rows.reduce((sum, row) => sum + row[3], 0);
  const columns: Column<Span>[] = [
    { name: "value", value: row => model.nameOf(row[0]), cell: row => <StepLink model={model} value={row[0]} go={go} /> },
    { name: "bytes", value: row => row[3], cell: row => bytes(row[3]) },
    { name: "as", value: row => model.text(row[4]), cell: row => model.text(row[4]) },
    { name: "steps", value: row => row[2] - row[1] + 1, cell: row => `${whole(row[1] + 1)}–${row[2] < model.count ? whole(row[2] + 1) : "end"}` },
  ];
  return (
    <div class="panel">
      <h2>Memory</h2>
      <dl>
        <dt>Step</dt><dd>{`${whole(now + 1)} of ${whole(model.count)}: `}<StepLink model={model} value={now} go={go} /></dd>
        <dt>Live</dt><dd>{`${bytes(memory.live[now])} in ${whole(rows.length)} values`}{Math.abs(listed - memory.live[now]) > 0.5 && <span class="soft">{` (${bytes(listed)} listed below)`}</span>}</dd>
        <dt>Peak</dt><dd>{`${bytes(most)} at `}<button class="link" onClick={() => onMoment(peak)}>{`step ${whole(peak + 1)}`}</button></dd>
        <dt>Before</dt><dd>{`${bytes(memory.before)} of parameters, buffers and inputs, held by the caller`}</dd>
      </dl>
      <Table key={now} columns={columns} rows={rows} sort={[1, -1]} empty="Nothing is held at this step." />
      <h3>Held by the caller throughout</h3>
      <Table columns={columns.slice(0, 3)} rows={memory.held} sort={[1, -1]} empty="Nothing." />
    </div>
  );
}
