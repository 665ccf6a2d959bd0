/** The panel of a selection: a step, a frame, or nothing, which is the capture itself. */

import type { ComponentChildren, VNode } from "preact";
import type { PageData } from "./data";
import { type Model, type Unit, frameUnit } from "./model";
import { type Opened, isOpen, turnOf } from "./layout";
import { relatedTo } from "./links";
import { type Go, type Jump, StepLink, StepLinks } from "./parts";
import { Before, countsSaid } from "./changes";
import { bytes, flops, flopsText, plural, real, whole } from "./words";

interface DetailsProps {
  page: PageData;
  model: Model;
  opened: Opened;
  selected: Unit | null;
  go: Go;
  jump: Jump;
  onFold: (frame: number) => void;
  onOpenAll: (frame: number) => void;
  onTurn: (loop: number, turn: number) => void;
}

export function Details(props: DetailsProps): VNode {
  const { selected } = props;
  return selected === null ? <About {...props} /> : selected < 0 ? <FrameDetails {...props} id={-selected - 1} /> : <StepDetails {...props} node={selected} />;
}

function Facts({ rows }: { rows: [string, ComponentChildren][] }): VNode {
  return <dl>{rows.map(([name, value]) => value !== "" && value !== null && [<dt key={name}>{name}</dt>, <dd key={`${name} `}>{value}</dd>])}</dl>;
}

function About({ page, model }: DetailsProps): VNode {
  const [forward, backward, , first, second] = model.frame(0).counts;
  return (
    <div class="panel">
      <h2><bdi>{page.title}</bdi></h2>
      <Facts rows={[
        ["Forward", `${plural(forward, "step")}${flopsText(first)}`],
        ["Backward", backward ? `${plural(backward, "step")}${flopsText(second)}` : "this graph has no backward"],
        ["Saved", savedText(model)],
        ["Peak", model.timed ? bytes(model.data.memory.peak[1]) : ""],
        ["Changes", countsSaid(model, 0)],
        ...page.facts.map(([name, text]): [string, ComponentChildren] => [name, <bdi>{text}</bdi>]),
      ]} />
      {page.notes.map(note => <p key={note} class="remark"><bdi>{note}</bdi></p>)}
      <p class="soft">The forward runs down on the left, the backward up on the right. Bands between them are saved tensors. Click a frame to open it, a step to see what belongs to it.</p>
    </div>
  );
}

/** What is saved, and what the rest is that the backward takes, too. */
function savedText(model: Model): string {
  const { own: [values, size], rest: [others, more] } = model.savedSum();
  const rest = others ? `. ${plural(others, "more value")}, ${bytes(more)}, ${others === 1 ? "is" : "are"} the caller's, or ${others === 1 ? "shares" : "share"} memory with these` : "";
  return values || others ? `${bytes(size)} in ${plural(values, "value")}${rest}` : bytes(0);
}

function FrameDetails({ model, opened, id, go, onFold, onOpenAll, onTurn }: DetailsProps & { id: number }): VNode {
  const frame = model.frame(id), [forward, backward, saved, first, second] = frame.counts, turn = frame.kind === "loop" ? turnOf(model, opened, id) : -1;
  const heavy = frame.kind === "loop" ? [] : [...model.inside(id)].filter(node => model.data.nodes.flops[node] > 0).sort((a, b) => model.data.nodes.flops[b] - model.data.nodes.flops[a]).slice(0, 6);
  return (
    <div class="panel">
      <h2><bdi>{model.path(id) || model.title(id)}{turn >= 0 ? ` × ${frame.units.length}` : ""}</bdi></h2>
      <p class="buttons">
        <button onClick={() => onFold(id)}>{isOpen(model, opened, id) ? "close" : "open"}</button>
        <button onClick={() => onOpenAll(id)}>open all inside</button>
      </p>
      {turn >= 0 && (
        <p class="turns">
          <button aria-label="previous turn" disabled={turn === 0} onClick={() => onTurn(id, turn - 1)}>‹</button>
          <label>turn <input type="number" min={1} max={frame.units.length} value={turn + 1} onChange={event => onTurn(id, Number(event.currentTarget.value) - 1)} /> of {whole(frame.units.length)}</label>
          <button aria-label="next turn" disabled={turn === frame.units.length - 1} onClick={() => onTurn(id, turn + 1)}>›</button>
          <bdi class="soft">{model.path(-frame.units[turn] - 1)}</bdi>
        </p>
      )}
      <Facts rows={[
        ["Kind", frame.kind === "loop" ? `loop of ${whole(frame.units.length)}` : frame.kind],
        [frame.kind === "module" || frame.kind === "loop" ? "Class" : "Code", frame.label ? <bdi>{model.text(frame.label)}</bdi> : ""],
        ["Forward", `${plural(forward, "step")}${flopsText(first)}`],
        ["Backward", `${plural(backward, "step")}${flopsText(second)}`],
        ["Saved", bytes(saved)],
        ["Changes", countsSaid(model, id)],
        ["Largest products", heavy.length ? <StepLinks model={model} values={heavy} go={go} /> : ""],
        ["Inside", frame.parent >= 0 ? <button class="link" onClick={() => go(frameUnit(frame.parent))}><bdi>{model.title(frame.parent)}</bdi></button> : ""],
      ]} />
    </div>
  );
}

function StepDetails({ page, model, node, go, jump }: DetailsProps & { node: number }): VNode {
  const { nodes, sources } = model.data, related = relatedTo(model, node), forward = model.isForward(node), source = sources[nodes.source[node]];
  const made = model.data.ports.filter(port => !port.into && port.role !== "saved" && port.value === node);
  const frames = model.above(node).filter(frame => frame > 0).reverse();
  return (
    <div class="panel">
      <h2 class={forward ? "forward" : "backward"}><bdi>{model.nameOf(node)}</bdi></h2>
      <p class="soft">{`${forward ? "Forward" : "Backward"}, step ${whole(node + 1)} of ${whole(model.count)}`}</p>
      <pre><bdi>{model.call(node)}</bdi></pre>
      {model.marks.has(node) && <Before {...{ page, model, node, jump }} />}
      <Facts rows={[
        ["Operator", `${model.text(nodes.op[node])} (${model.kinds[node]})`],
        ["Type", <code>{model.text(nodes.spec[node])}</code>],
        [forward ? "In the backward" : "In the forward", <StepLinks model={model} values={related.partners} go={go} />],
        ["Echo", model.echoOf(node)],
        ["Inputs", <StepLinks model={model} values={related.inputs} go={go} />],
        ["Users", <StepLinks model={model} values={related.users} go={go} />],
        ["Leaves as", made.length ? <span class="links">{made.map(port => <span class="port" title={model.text(port.spec)}>{port.role} <bdi>{model.portName(port)}</bdi></span>)}</span> : ""],
        ["Saved", related.saved.length ? related.saved.map(one => (
          <div key={one.value}>{bytes(one.bytes)} {forward ? "for " : "from "}{forward ? <StepLinks model={model} values={one.users} go={go} /> : <StepLink model={model} value={one.value} go={go} />}</div>
        )) : ""],
        ["FLOPs", nodes.flops[node] ? flops(nodes.flops[node]) : ""],
        ["Bytes", model.timed ? `${bytes(nodes.read[node])} read, ${bytes(nodes.written[node])} written${model.isView(node) ? ", a view" : nodes.memory[node] ? `, ${bytes(nodes.memory[node])} new` : ""}` : ""],
        ["Live", model.timed ? bytes(model.data.memory.live[node]) : ""],
        ["Source", source ? <span><bdi>{model.lineOf(node)}</bdi>{source[2] ? <span class="soft"> in <bdi>{model.text(source[2])}</bdi></span> : ""}<code class="source"><bdi>{model.text(source[3])}</bdi></code></span> : ""],
        ["Module", source && model.moduleOf(node) ? <bdi>{model.moduleOf(node)}</bdi> : ""],
        ["Within", frames.length ? <span class="links">{frames.map(frame => <button key={frame} class="link" onClick={() => go(frameUnit(frame))}><bdi>{model.title(frame)}</bdi></button>)}</span> : ""],
        ...statistics(model, node),
      ]} />
    </div>
  );
}

function statistics(model: Model, node: number): [string, ComponentChildren][] {
  const at = model.data.stats?.value.indexOf(node) ?? -1;
  if (at < 0) return [];
  const [count, min, max, mean, std, norm, nan, inf, zeros] = model.data.stats!.rows[at];
  return [
    ["NaN and Inf", <span class={nan || inf ? "alarm" : ""}>{`${whole(nan)} NaN, ${whole(inf)} Inf of ${whole(count)}`}</span>],
    ["Values", `${real(min)} to ${real(max)}, mean ${real(mean)}, deviation ${real(std)}, norm ${real(norm)}, ${whole(zeros)} zero`],
  ];
}
