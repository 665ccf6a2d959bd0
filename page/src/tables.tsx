/** Tables of a pair: costs by operator, bytes saved by line, statistics of values, inputs and outputs. */

import type { VNode } from "preact";
import { type Port, type StatRow } from "./data";
import { type Model, listed } from "./model";
import { Bar, type Column, type Go, StepLink, Table } from "./parts";
import { bytes, flops, inFlop, real, whole } from "./words";

interface Cost {
  name: string;
  steps: [number, number];
  flops: [number, number];
  bytes: [number, number];
}

export function costsBy(model: Model, key: (node: number) => string): Cost[] {
  const found = new Map<string, Cost>(), nodes = model.data.nodes;
  for (let node = 0; node < model.count; node++) {
    const name = key(node), side = model.isForward(node) ? 0 : 1;
    const cost = found.get(name) ?? { name, steps: [0, 0], flops: [0, 0], bytes: [0, 0] };
    found.set(name, cost);
    cost.steps[side]++;
    cost.flops[side] += nodes.flops[node];
    cost.bytes[side] += nodes.read[node] + nodes.written[node];
  }
  return [...found.values()];
}

const memo = new WeakMap<Model, { kinds: Cost[]; operators: Cost[] }>();

export function Operators({ model, search }: { model: Model; search: (query: string) => void }): VNode {
  const known = memo.get(model) ?? { kinds: costsBy(model, node => model.kinds[node]), operators: costsBy(model, node => model.shorts[node]) };
  memo.set(model, known);
  const all = sums(known.kinds);
  return (
    <div class="panel">
      <h2>Operators</h2>
      <p class="soft">
        {`Forward ${inFlop(all.flops[0])}, ${bytes(all.bytes[0])} read and written. Backward ${inFlop(all.flops[1])}, ${bytes(all.bytes[1])}.`}
      </p>
      <CostTable title="kind" prefix="kind:" rows={known.kinds} search={search} />
      <CostTable title="operator" prefix="op:" rows={known.operators} search={search} />
    </div>
  );
}

function sums(costs: Cost[]): Cost {
  const add = (part: "steps" | "flops" | "bytes") => [0, 1].map(side => costs.reduce((sum, cost) => sum + cost[part][side], 0)) as [number, number];
  return { name: "", steps: add("steps"), flops: add("flops"), bytes: add("bytes") };
}

function CostTable({ title, prefix, rows, search }: { title: string; prefix: string; rows: Cost[]; search: (query: string) => void }): VNode {
  const most = (part: "flops" | "bytes") => Math.max(1, ...rows.flatMap(row => row[part]));
  const bars = (part: "flops" | "bytes", said: (count: number) => string) => {
    const top = most(part);
    return (row: Cost) => (
      <span class="pair">
        <span><Bar share={row[part][0] / top} side="forward" />{said(row[part][0])}</span>
        <span><Bar share={row[part][1] / top} side="backward" />{said(row[part][1])}</span>
      </span>
    );
  };
  const columns: Column<Cost>[] = [
    { name: title, value: row => row.name, cell: row => <button class="link" onClick={() => search(`${prefix}${row.name}`)}><bdi>{row.name}</bdi></button> },
    { name: "steps", value: row => row.steps[0] + row.steps[1], cell: row => <span class="pair"><span>{whole(row.steps[0])}</span><span>{whole(row.steps[1])}</span></span> },
    { name: "FLOPs", value: row => row.flops[0] + row.flops[1], cell: bars("flops", flops) },
    { name: "bytes", value: row => row.bytes[0] + row.bytes[1], cell: bars("bytes", bytes) },
  ];
  return <Table columns={columns} rows={rows} sort={[2, -1]} empty="There is no step." />;
}

interface SavedLine {
  line: string;
  code: string;
  bytes: number;
  values: number[];
}

/** What the forward saves, by the source line that made it; what enters has no line. */
export function savedByLine(model: Model): SavedLine[] {
  const found = new Map<string, SavedLine>(), { nodes, sources, saved } = model.data;
  for (const [value, , , fresh] of saved) {
    const source = value < model.count ? sources[nodes.source[value]] : undefined;
    const line = value >= model.count ? "inputs and parameters" : model.lineOf(value) || "no source line";
    const row = found.get(line) ?? { line, code: source ? model.text(source[3]) : "", bytes: 0, values: [] };
    found.set(line, row);
    row.bytes += fresh;
    row.values.push(value);
  }
  return [...found.values()];
}

export function Lines({ model, go, search }: { model: Model; go: Go; search: (query: string) => void }): VNode {
  const rows = savedByLine(model), all = rows.reduce((sum, row) => sum + row.bytes, 0), most = Math.max(1, ...rows.map(row => row.bytes));
  const columns: Column<SavedLine>[] = [
    { name: "source line", value: row => row.line, cell: row => (
      <span>{row.line.includes(":") ? <button class="link" title={row.line} onClick={() => search(`line:${row.line}`)}><bdi>{row.line.split("/").at(-1)}</bdi></button> : row.line}<code class="soft"><bdi>{row.code}</bdi></code></span>
    ) },
    { name: "saved", value: row => row.bytes, cell: row => <span><Bar share={row.bytes / most} side="saved" /> {bytes(row.bytes)}</span> },
    { name: "values", value: row => row.values.length, cell: row => <span>{whole(row.values.length)} <StepLink model={model} value={row.values[0]} go={go} /></span> },
  ];
  return (
    <div class="panel">
      <h2>Saved, by source line</h2>
      <p class="soft">{`${bytes(all)} that the caller does not hold anyway. A value that shares memory with another counts once.`}</p>
      <Table columns={columns} rows={rows} sort={[1, -1]} empty="Nothing is saved." />
    </div>
  );
}

interface Stat {
  value: number;
  gradient: string;
  row: StatRow;
}

export function Values({ model, go }: { model: Model; go: Go }): VNode {
  const gradients = new Map<number, string>();
  for (const port of model.data.ports) if (!port.into && port.role === "gradient") gradients.set(port.value, model.text(port.name));
  const { value, rows } = model.data.stats!;
  const all = value.map((id, at): Stat => ({ value: id, gradient: gradients.get(id) ?? "", row: rows[at] }));
  const column = (name: string, at: number): Column<Stat> => ({
    name, value: row => row.row[at] ?? NaN, cell: row => <span class={(at === 6 || at === 7) && row.row[at] ? "alarm" : ""}>{real(row.row[at])}</span>,
  });
  const columns: Column<Stat>[] = [
    { name: "value", value: row => row.gradient || model.nameOf(row.value), cell: row => <span>{row.gradient && <span class="tag">gradient of <bdi>{row.gradient}</bdi></span>}<StepLink model={model} value={row.value} go={go} /></span> },
    column("NaN", 6), column("Inf", 7), column("norm", 5), column("mean", 3), column("std", 4), column("min", 1), column("max", 2), column("zeros", 8), column("count", 0),
  ];
  const bad = all.filter(one => one.row[6] || one.row[7]).length, own = all.filter(one => one.gradient), rest = all.filter(one => !one.gradient);
  return (
    <div class="panel">
      <h2>Values</h2>
      <p class={bad ? "alarm" : "soft"}>{bad ? `${whole(bad)} of ${whole(all.length)} measured values have NaN or Inf.` : `No NaN and no Inf in ${whole(all.length)} measured values.`}</p>
      {own.length > 0 && <h3>Gradients</h3>}
      {own.length > 0 && <Table columns={columns} rows={own} sort={[bad ? 1 : 3, -1]} empty="" />}
      <h3>Other values</h3>
      <Table columns={columns} rows={rest} sort={[bad ? 1 : 3, -1]} empty="No other value was measured." />
    </div>
  );
}

export function Ports({ model, go }: { model: Model; go: Go }): VNode {
  const groups = new Map<string, Port[]>(), { own: [, own] } = model.savedSum();
  for (const port of model.data.ports) listed(groups, `${port.side ? "Backward" : "Forward"} ${port.into ? "takes" : "gives"}: ${port.role}`).push(port);
  const columns: Column<Port>[] = [
    { name: "name", value: port => model.text(port.name), cell: port => <bdi>{model.text(port.name)}</bdi> },
    { name: "type", value: port => model.text(port.spec), cell: port => <code>{model.text(port.spec)}</code> },
    { name: "bytes", value: port => port.bytes, cell: port => bytes(port.bytes) },
    { name: "step", value: port => (port.into ? model.usersOf(port.value)[0] ?? -1 : port.value), cell: port => {
      const step = port.into ? model.usersOf(port.value)[0] : port.value;
      return step === undefined ? <span class="soft">unused</span> : <StepLink model={model} value={step} go={go} />;
    } },
  ];
  return (
    <div class="panel">
      <h2>Inputs and outputs</h2>
      {[...groups].map(([title, ports]) => (
        <details key={title} open={ports.length <= 12}>
          <summary>{title} <span class="soft">{whole(ports.length)}, {bytes(ports.reduce((sum, port) => sum + port.bytes, 0))}{ports[0].role === "saved" && `, of which ${bytes(own)} in memory that nothing else has`}</span></summary>
          <Table columns={columns} rows={ports} sort={[2, -1]} empty="" />
        </details>
      ))}
    </div>
  );
}
