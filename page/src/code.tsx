/** The graph's code, virtually scrolled: only the lines in sight are in the document. */

import { Component, type ComponentChildren, createRef, type VNode } from "preact";
import type { Model, Unit } from "./model";
import type { Go } from "./parts";
import { SIGNS } from "./words";

interface CodeProps {
  model: Model;
  selected: Unit | null;
  lit: ReadonlySet<Unit> | null;
  go: Go;
}

const HIGH = 18;

export class Code extends Component<CodeProps, { from: number; count: number }> {
  override state = { from: 0, count: 60 };
  private readonly box = createRef<HTMLDivElement>();
  private readonly watcher = new ResizeObserver(() => this.scrolled());

  override componentDidMount(): void {
    this.watcher.observe(this.box.current!);
    this.follow();
  }

  override componentWillUnmount(): void {
    this.watcher.disconnect();
  }

  override componentDidUpdate(before: CodeProps): void {
    if (before.selected !== this.props.selected || before.model !== this.props.model) this.follow();
  }

  /** The step that is shown for a selection: of a frame, its first. */
  private target(): number | null {
    const { model, selected } = this.props;
    if (selected === null || selected >= 0) return selected;
    return model.inside(-selected - 1).next().value ?? null;
  }

  private follow(): void {
    const node = this.target(), box = this.box.current!;
    if (node !== null) {
      const y = this.props.model.lineOfCode(node) * HIGH;
      if (y < box.scrollTop + HIGH || y > box.scrollTop + box.clientHeight - 2 * HIGH) box.scrollTop = y - box.clientHeight / 2;
    }
    this.scrolled();
  }

  private readonly scrolled = () => {
    const box = this.box.current!, from = Math.max(0, Math.floor(box.scrollTop / HIGH) - 10), count = Math.ceil(box.clientHeight / HIGH) + 20;
    if (from !== this.state.from || count !== this.state.count) this.setState({ from, count });
  };

  private step(node: number): ComponentChildren {
    const { model } = this.props, { op, args, inputs, spec } = model.data.nodes, parts: ComponentChildren[] = [];
    const filled = model.text(args[node]).split(/\{(\d+)\}/);
    filled.forEach((part, at) => {
      if (at % 2 === 0) parts.push(part);
      else if (Number(part) < inputs[node].length) parts.push(<span class="value"><bdi>{model.nameOf(inputs[node][Number(part)])}</bdi></span>);
      else parts.push(`{${part}}`);
    });
    return [<b class={model.isForward(node) ? "forward" : "backward"}><bdi>{model.nameOf(node)}</bdi></b>, ": ", <i>"{model.text(spec[node])}"</i>, " = ", <span class="op">{model.text(op[node])}</span>, "(", ...parts, ")"];
  }

  render({ model, selected, lit, go }: CodeProps): VNode {
    const lines = model.code(), { from, count } = this.state, indent = "    ";
    return (
      <div class="code" ref={this.box} tabIndex={0} onScroll={this.scrolled} data-lines={lines.length}>
        <div class="sheet" style={{ height: `${lines.length * HIGH}px` }}>
          {lines.slice(from, from + count).map((line, at) => {
            const chosen = line.node >= 0 && line.node === selected, other = line.node >= 0 && lit?.has(line.node), mark = model.marks.get(line.node);
            return (
              <div key={from + at} class={`row${chosen ? " chosen" : other ? " lit" : ""}${line.text === null ? "" : line.node >= 0 ? " note" : ""}`}
                style={{ top: `${(from + at) * HIGH}px` }} onClick={line.node >= 0 ? () => go(line.node) : undefined}>
                <span class="no">{mark && line.text === null && <b class="sign">{SIGNS[mark.kind]} </b>}{from + at + 1}</span>{line.text === null ? [indent, indent, this.step(line.node)] : line.node >= 0 ? indent + indent + line.text : line.text}
              </div>
            );
          })}
        </div>
      </div>
    );
  }
}
