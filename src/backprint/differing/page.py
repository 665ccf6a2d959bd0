"""The page of a Diff: the pairs after the change, then those before it, with marks on the steps that changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from backprint.differing.nouns import Diff, PairDiff, StepChange
from backprint.differing.words import diff_lines, graphs_of
from backprint.drawing.data import FORMAT
from backprint.drawing.page import page_html
from backprint.drawing.page_data import pair_data
from backprint.graph.nouns import Capture, Graph
from backprint.graph.text import show_step
from backprint.plain import printable
from backprint.web_page import WebPage

SIDES = ("after", "before")


def diff_data(diff: Diff) -> dict[str, Any]:
    """Return the data of the page of a Diff."""
    return {
        "format": FORMAT,
        "title": f"{diff.before.name} → {diff.after.name}",
        "facts": [["graphs", "the same" if diff.same else "differ"]],
        "notes": [],
        "changes": list(map(printable, diff_lines(diff, everything=True))),
        "pairs": [pair for side in SIDES for pair in pairs_of_side(diff, side)],
    }


def page_of_diff(diff: Diff) -> WebPage:
    """Return the page of a Diff."""
    data = diff_data(diff)
    return WebPage(data["title"], "".join(page_html(data)))


def pairs_of_side(diff: Diff, side: str) -> Iterator[dict[str, Any]]:
    """Yield the data of the Pairs of one side, with their marks."""
    capture: Capture = getattr(diff, side)
    for found in diff.pairs:
        number = getattr(found, side)
        if number is not None:
            pair = capture.pairs[number]
            rows = sorted(marks_of_pair(diff, found, side, len(pair.forward.steps)))
            marks = {name: [row[place] for row in rows] for place, name in enumerate(("node", "kind", "text"))}
            yield pair_data(pair) | {"name": f"{side}: {pair.name}", "marks": marks}


def marks_of_pair(diff: Diff, found: PairDiff, side: str, forward: int) -> Iterator[tuple[int, str, str]]:
    """Yield the steps of one side that changed: their node, what happened, and in words."""
    for graph in found.graphs:
        first = forward if graph.direction == "backward" else 0
        for change in graph.changes:
            place = getattr(change, side)
            if place is not None and not change.follows:
                yield first + place, change.kind, change_text(change, graphs_of(diff, found, graph.direction))


def change_text(change: StepChange, graphs: tuple[Graph | None, Graph | None]) -> str:
    """Return a change as the lines of the step before and after it."""
    lines = [
        printable(f"{sign} {show_step(graph.steps[place])}")
        for sign, graph, place in zip("-+", graphs, (change.before, change.after), strict=True)
        if graph is not None and place is not None
    ]
    return "\n".join(lines)
