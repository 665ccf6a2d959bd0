"""`backprint region show DUMP`: a pass as tables for a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from backprint.cli.say import console, echo, echo_styled, in_a_pipe, print_table, table_text

BAD = "bold red"

NARROW, LEAST = 90, 20
"""The columns that a table of nodes takes without code, and the fewest for code."""


def print_pass(shown_pass: Any, bad: bool) -> None:
    """Print a pass: what it is, the gradients on its edges, and its nodes; with `bad`, what of it has NaN or Inf."""
    from backprint.tools.regions.comparing import bad_part

    head(shown_pass)
    shown = bad_part(shown_pass) if bad else shown_pass
    if bad:
        print_flows([("root", root.name, root) for root in shown.roots], "")
    print_flows([("edge", edge.name, edge) for edge in shown.edges], "edges, in the order of the backward")
    if bad:  # an input has what the edges to it have, and what a hook has made of their sum
        print_flows([("input", flow.name, flow) for flow in shown.inputs], "what nodes received")
    print_nodes(shown.nodes)


def head(region_pass: Any) -> None:
    """Print what a pass is, in a few lines."""
    from backprint.tools.regions.nouns import NonfiniteOrigin, Unwatched

    inside = sum(node.inside for node in region_pass.nodes)
    echo_styled("", f"{region_pass.region}: pass {region_pass.index}", bold=True)
    began = f" Began at {', '.join(root.name for root in region_pass.roots)}." if region_pass.roots else ""
    echo(
        f"{inside} nodes inside, {len(region_pass.nodes) - inside} on the boundary, {len(region_pass.edges)} edges; "
        f"{region_pass.seconds * 1000:.1f} ms.{began}"
    )
    if region_pass.error:
        echo_styled(f": {region_pass.error}", "the backward raised", fg="red", bold=True)
    for note in region_pass.notes:
        echo(f"not kept: {note}")
    first = region_pass.first_bad
    if isinstance(region_pass.origin, NonfiniteOrigin):
        echo_styled("", str(region_pass.origin), fg="red", bold=True)
    if isinstance(first, Unwatched):
        echo(f"NaN and Inf: {first}")
    elif first is None:
        echo("no NaN and no Inf on any edge")
    else:
        echo(
            f"first NaN or Inf: {first.name}, the gradient of {first.tensor}, "
            f"of {region_pass.where(first) or 'outside'}"
        )


NUMBERS = ("norm", "min", "max")
COUNTS = ("nan", "inf")


def print_flows(rows: Sequence[tuple[str, str, Any]], title: str) -> None:
    """Print a table of gradients, each with its kind and name."""
    if not rows:
        return
    kind = rows[0][0]
    watched = any(flow.stats is not None for _, _, flow in rows)
    marked = any(flow.stats is not None and flow.stats.bad for _, _, flow in rows)
    numbers = (*(NUMBERS if watched else ()), *(COUNTS if marked else ()))
    words = {"nan": "NaN", "inf": "Inf"}
    heads = (kind, *(() if kind == "root" else ("gradient of",)), "type")
    shown = new_table(heads, [words.get(name, name) for name in numbers])
    for _, name, flow in rows:
        style = BAD if flow.stats is not None and flow.stats.bad else ""
        texts = (name, *(() if kind == "root" else (flow.tensor,)), type_text(flow))
        cells = [table_text(text, style) for text in texts]
        shown.add_row(*cells, *(table_text(statistic_text(flow.stats, part), style) for part in numbers))
    titled_table(title, shown)


def print_nodes(nodes: Sequence[Any]) -> None:
    """Print a table of nodes with their modules and lines; the code of a line where the terminal has room for it."""
    room = sys.maxsize if in_a_pipe() else console().width - NARROW
    lines = [line_and_code(node) for node in nodes]
    columns = {
        "node": [node.name for node in nodes],
        "module": [node.module for node in nodes],
        "operators": [", ".join(node.ops) or node.opaque or node.kind for node in nodes],
        "forward line": [line for line, _ in lines],
        "code": [code if len(code) <= room else f"{code[: room - 1]}…" for _, code in lines if room >= LEAST],
    }
    filled = {heading: cells for heading, cells in columns.items() if any(cells)}
    shown = new_table(tuple(filled), ())
    for row in zip(*filled.values(), strict=True):
        shown.add_row(*map(table_text, row))
    if filled:
        titled_table("nodes", shown)


def line_and_code(node: Any) -> tuple[str, str]:
    """Return the forward line of a node, and its source text."""
    if node.line is None:
        return "leaf" if node.leaf else "outside", ""
    line, _, code = str(node.line).partition(": ")
    return line, code


def titled_table(title: str, shown: Any) -> None:
    """Print a table under its title."""
    console().print(f"\n[bold]{title}[/bold]" if title else "")
    print_table(shown)


def new_table(texts: Sequence[str], numbers: Sequence[str]) -> Any:
    """Return a table with these headings, those of numbers on the right."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for heading in texts:
        shown.add_column(heading, overflow="fold")
    for heading in numbers:
        shown.add_column(heading, justify="right", no_wrap=True)
    return shown


def type_text(flow: Any) -> str:
    """Return dtype and shape: `float32[3, 4]`."""
    return f"{flow.dtype}{list(flow.shape)}" if getattr(flow, "flows", True) else "nothing flows"


def statistic_text(stats: Any, name: str) -> str:
    """Return one of the statistics; '' where there is none."""
    value = getattr(stats, name) if stats is not None else None
    if value is None or (name in COUNTS and not value):
        return ""
    return f"{value:,}" if name in COUNTS else f"{value:.4g}"
