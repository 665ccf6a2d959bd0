"""A Diff as Markdown, for a comment of a review or the summary of a job:

    print(bp.diff.compare("samples/before", "samples/after").to_markdown())

The answer stands first, then a table of what it costs, then one of what changed, by direction and module. Texts come
from samples, which may be a stranger's: in the tables they stand between backticks, and elsewhere they are escaped, so
that none is a link, a tag or a mention. Paths of the machine are cut to their last two names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from backprint.common.text import amount, printable
from backprint.graph.keys import number_of
from backprint.graph.nouns import Capture, Graph
from backprint.tools.diff.nouns import Costs, Diff, GraphDiff
from backprint.tools.diff.words import (
    MARKS,
    answer_line,
    change_groups,
    cost_rows,
    fact_lines,
    graphs_of,
    grown_text,
    headline,
    port_groups,
    renamed_together,
    shortened,
    times_text,
)

MOST_ROWS = 40
"""So many rows of changes are written: a comment of a review is read on a telephone, too."""

MOST_LINES = 6
"""So many changes stand in a row."""


def diff_markdown(diff: Diff, everything: bool = False, places: tuple[str, str] = ("", "")) -> str:
    """Return a Diff as Markdown; `places` are the folders of its samples; with `everything` nothing is cut."""
    sides = zip(("before", "after"), places, (diff.before, diff.after), strict=True)
    blocks = [f"**{_plain(answer_line(diff))}**", ", ".join(_side_text(*side) for side in sides)]
    if not diff.same:
        blocks.append(_table(("", "before", "after", "change"), _cost_rows(diff)))
        rows = list(_change_rows(diff, everything))
        shown = rows if everything else rows[:MOST_ROWS]
        blocks.append(_table(("graph", "where", "change"), shown))
        if len(shown) < len(rows):
            blocks.append(f"… and {number_of(len(rows) - len(shown), 'row')} more, with `--all`.")
    facts = [line for fact in diff.facts for line in fact_lines(fact, everything)]
    if facts:
        lines = "\n".join(f"    {_without_paths(printable(line))}" for line in facts)
        blocks.append(f"Beside the graphs:\n\n{lines}")
    return "\n\n".join(filter(None, blocks)) + "\n"


def _side_text(word: str, place: str, capture: Capture) -> str:
    """Return a side in words: "before: `samples/mlp`, `Sequential` (eager)"."""
    names = ", ".join(_code(name) for name in (place, capture.name) if name)
    return f"{word}: {names} ({_plain(capture.engine)})"


# ---- Rows


def _cost_rows(diff: Diff) -> Iterator[tuple[str, ...]]:
    """Yield a row (what, before, after, change) for each cost of the training step that changed, and for the number of
    steps of each direction."""
    for name, cost, text in cost_rows(diff):  # text: the function that writes such a number
        yield _plain(name), text(cost.before), text(cost.after), grown_text(cost)
    kept = [pair.kept_bytes for pair in diff.pairs]
    cost = Costs(sum(each.before for each in kept), sum(each.after for each in kept))
    if cost.before != cost.after:
        yield "parameters and inputs kept", amount(cost.before), amount(cost.after), grown_text(cost)
    for direction in ("forward", "backward"):
        graphs = [(pair, graph) for pair in diff.pairs for graph in pair.graphs if graph.direction == direction]
        if not graphs:
            continue
        sides = [graphs_of(diff, pair, direction) for pair, _ in graphs]
        count_before, count_after = (
            sum(len(graph.steps) for graph in graphs_of_side if graph is not None)
            for graphs_of_side in zip(*sides, strict=True)
        )
        texts = [headline(graph, *side) for (_, graph), side in zip(graphs, sides, strict=True) if not graph.same]
        if len(texts) == 1:
            change = _plain(texts[0])
        else:
            change = f"{number_of(len(texts), 'graph')} differ" if texts else "same"
        yield f"steps of the {direction}", f"{count_before:,}", f"{count_after:,}", change


def _change_rows(diff: Diff, everything: bool) -> Iterator[tuple[str, ...]]:
    """Yield a row for each group of changes: the graph, the modules, and what changed in them."""
    if not diff.links:
        yield "", "", "the pairs are joined in another way"
    for pair in diff.pairs:
        pair_label = f"pair {pair.after if pair.before is None else pair.before}, " if len(diff.pairs) > 1 else ""
        for graph in pair.graphs:
            label = f"{pair_label}{graph.direction}"
            before, after = graphs_of(diff, pair, graph.direction)
            if before is None or after is None:
                side = before or after
                only = "before" if before is not None else "after"
                yield label, "", f"only {only}, {number_of(len(side.steps) if side else 0, 'step')}"
            elif not graph.same:
                first = pair.graphs[0]  # the forward, which shows what is renamed in both directions
                # A direction that only one side has has the hash '' on the other.
                forward = first if graph is not first and all(first.hashes) else None
                yield from _rows_of_graph(label, graph, before, after, forward, everything)


def _rows_of_graph(
    label: str, graph: GraphDiff, before: Graph, after: Graph, forward: GraphDiff | None, everything: bool
) -> Iterator[tuple[str, ...]]:
    """Yield the rows (label, where, what changed) of a graph that both sides have, and of its subgraphs, without what
    `forward`, the diff of the forward, has shown as renamed."""
    for group in change_groups(graph, before, after):
        lines = [f"{MARKS[line.kind]} {_code(shortened(line.text))}{times_text(line.count)}" for line in group.lines]
        shown = lines if everything else lines[:MOST_LINES]
        more = [f"… and {len(lines) - len(shown)} more"] if len(shown) < len(lines) else []
        yield label, _where(group.name, len(group.modules)), "<br>".join((*shown, *more))
    for group in port_groups(graph, before, after):
        [line] = group.lines  # a change of a port is one line
        if forward is None or line.kind != "renamed":
            yield label, _where(group.name, len(group.modules)), f"{MARKS[line.kind]} {_code(shortened(line.text))}"
    for order in graph.orders:
        yield label, "", f"! {_plain(order)}"
    modules = [row for row in graph.modules if forward is None or row not in forward.modules]
    for left, right in renamed_together(modules):
        yield label, _code(right), f"~ before: {_code(left)}"
    for sub in graph.subgraphs:
        left, right = sub.names
        bodies = dict(before.subgraphs)[left], dict(after.subgraphs)[right]
        yield from _rows_of_graph(f"{label}, in {_plain(right)}", sub, *bodies, forward=None, everything=everything)


def _where(name: str, count: int) -> str:
    """Return the modules that changed alike."""
    return f"{_code(name)}{times_text(count)}" if name else ""


# ---- Text


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, or nothing if it has no row."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(headings)} |", "|---" * len(headings) + "|", *lines]) if lines else ""


def _code(text: str) -> str:
    """Return a text between backticks, as a cell of a table takes it."""
    text = _without_paths(printable(text)).replace("|", "\\|")
    # One backtick more than the text has in a row; with spaces, because the text may begin with one.
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if "`" in text else ""
    return f"{fence}{space}{text}{space}{fence}"


def _plain(text: str) -> str:
    """Return a text that Markdown shows as it is. A blank of no width keeps `@name` from being a mention, and `~~` from
    striking out."""
    text = (
        _without_paths(printable(text))
        .replace(" -> ", " → ")
        .replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
    )
    return re.sub(r"([\\`*_\[\]|#!])", r"\\\1", text).replace("@", "@\u200b").replace("~~", "~\u200b~")


def _without_paths(text: str) -> str:
    """Return a text in which the paths of this machine are cut to their last two names."""
    return _ABSOLUTE.sub(lambda match: "/".join(re.split(r"[/\\]", match[0].rstrip("/\\"))[-2:]).lstrip("/"), text)


_ABSOLUTE = re.compile(r"(?<![\w./])(?:/|[A-Za-z]:[/\\])[^\s:'\",;()]+")
