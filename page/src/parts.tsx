/** Small pieces that panels share: links to steps, tables of bounded length, bars. */

import { Component, type ComponentChildren, type VNode } from "preact";
import type { Model, Unit } from "./model";
import { whole } from "./words";

export type Go = (unit: Unit) => void;
export type Jump = (pair: number, unit: Unit) => void;

/** A link to a step; of a value that enters, its name. */
export function StepLink({ model, value, go }: { model: Model; value: number; go: Go }): VNode {
  if (value < 0 || value >= model.count) return <span class="port" title={model.specOf(value)}><bdi>{model.nameOf(value)}</bdi></span>;
  return (
    <button class={`link ${model.isForward(value) ? "forward" : "backward"}`} title={model.call(value)} onClick={() => go(value)}>
      <bdi>{model.nameOf(value)}</bdi>
    </button>
  );
}

export function StepLinks({ model, values, go, most = 8 }: { model: Model; values: number[]; go: Go; most?: number }): VNode {
  if (!values.length) return <span class="soft">none</span>;
  return (
    <span class="links">
      {values.slice(0, most).map(value => <StepLink key={value} {...{ model, value, go }} />)}
      {values.length > most && <span class="soft">and {whole(values.length - most)} more</span>}
    </span>
  );
}

const BAR = 30;

export function Bar({ share, side }: { share: number; side: "forward" | "backward" | "saved" }): VNode {
  return (
    <svg class={`bar ${side}`} width={BAR} height="8" aria-hidden="true">
      <rect width={BAR} height="8" rx="2" class="track" />
      <rect width={Math.max(share > 0 ? 1 : 0, BAR * Math.min(1, share))} height="8" rx="2" />
    </svg>
  );
}

export interface Column<T> {
  name: string;
  /** Sorted by, and right-aligned where it is a number. */
  value: (row: T) => number | string;
  cell: (row: T) => ComponentChildren;
}

interface TableProps<T> {
  columns: Column<T>[];
  rows: T[];
  /** The column that is sorted by at first, and -1 for the largest first. */
  sort: [column: number, way: 1 | -1];
  empty: string;
}

const FIRST = 60;

/** A table that a click on a head sorts; of many rows it shows the first, and more when asked. */
export class Table<T> extends Component<TableProps<T>, { sort: [number, 1 | -1]; most: number }> {
  override state = { sort: this.props.sort, most: FIRST };

  private sorted(): T[] {
    const [at, way] = this.state.sort, { value } = this.props.columns[at], keys = new Map(this.props.rows.map(row => [row, value(row)]));
    return [...this.props.rows].sort((a, b) => {
      const [x, y] = [keys.get(a)!, keys.get(b)!];
      return way * (x < y ? -1 : x > y ? 1 : 0);
    });
  }

  render({ columns, rows, empty }: TableProps<T>): VNode {
    if (!rows.length) return <p class="soft">{empty}</p>;
    const { sort: [by, way], most } = this.state, number = columns.map(column => typeof column.value(rows[0]) === "number");
    const head = (column: Column<T>, at: number) => (
      <th key={at} class={number[at] ? "r" : ""} aria-sort={by === at ? (way > 0 ? "ascending" : "descending") : undefined}>
        <button onClick={() => this.setState({ sort: [at, by === at ? (way > 0 ? -1 : 1) : number[at] ? -1 : 1] })}>{column.name}</button>
      </th>
    );
    return (
      <div class="table">
        <table>
          <thead><tr>{columns.map(head)}</tr></thead>
          <tbody>
            {this.sorted().slice(0, most).map((row, index) => <tr key={index}>{columns.map((column, at) => <td class={number[at] ? "r" : ""}>{column.cell(row)}</td>)}</tr>)}
          </tbody>
        </table>
        {rows.length > most && <button class="more" onClick={() => this.setState({ most: most * 5 })}>show more: {whole(most)} of {whole(rows.length)}</button>}
      </div>
    );
  }
}
