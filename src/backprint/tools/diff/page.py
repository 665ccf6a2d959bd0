"""The page of a Diff: the pairs after the change, then those before it, with marks on the steps that changed.

A side is `before` or `after`, the name of a field of a Diff (its Capture), of a PairDiff (the Pair's number), and of a
StepChange (the step's number; None where a side does not have it). `draw/page` writes a page from such data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from backprint.common.text import printable
from backprint.common.web_page import WebPage
from backprint.graph.nouns import Capture, Graph
from backprint.graph.text import show_step
from backprint.tools.diff.nouns import Diff, PairDiff, StepChange
from backprint.tools.diff.words import diff_lines, graphs_of
from backprint.tools.draw.page import FORMAT, page_html, pair_data, verdict_row

SIDES = ("after", "before")


def diff_data(diff: Diff) -> dict[str, Any]:
    """Return the data of the page of a Diff."""
    return {
        "format": FORMAT,
        "title": f"{diff.before.name} → {diff.after.name}",
        "facts": [["graphs", "the same" if diff.same else "differ"]],
        "notes": [],
        "verdict": verdict_row(
            "the same" if diff.same else "the graphs differ",
            "steps were compared, numbers were not",
        ),
        "changes": list(map(printable, diff_lines(diff, everything=True))),
        "pairs": [pair for side in SIDES for pair in _pairs_of_side(diff, side)],
    }


def page_of_diff(diff: Diff) -> WebPage:
    """Return the page of a Diff."""
    data = diff_data(diff)
    return WebPage(data["title"], "".join(page_html(data)))


def _pairs_of_side(diff: Diff, side: str) -> Iterator[dict[str, Any]]:
    """Yield the data of the Pairs of one side, with their marks: lists of the same length, an item for each step that
    changed, and the number of the same Pair of the other side in the page, -1 if there is none."""
    capture: Capture = getattr(diff, side)
    pages = _numbers_of_pages(diff)
    [other] = set(SIDES) - {side}
    for place, pair_diff in enumerate(diff.pairs):
        number = getattr(pair_diff, side)
        if number is not None:
            pair = capture.pairs[number]
            rows = sorted(_marks_of_pair(diff, pair_diff, side))
            marks: dict[str, Any] = {name: [getattr(row, name) for row in rows] for name in _Mark._fields}
            marks["pair"] = pages.get((other, place), -1)
            yield pair_data(pair, capture.modules) | {"name": f"{side}: {pair.name}", "marks": marks}


def _numbers_of_pages(diff: Diff) -> dict[tuple[str, int], int]:
    """Return by side and number of the PairDiff where its Pair stands in the page."""
    sides = (
        (side, place) for side in SIDES for place, pair in enumerate(diff.pairs) if getattr(pair, side) is not None
    )
    return {key: number for number, key in enumerate(sides)}


class _Mark(NamedTuple):
    """The mark on a step that changed: its number in the page, what became of it, the change in words, and the number
    of the step of the other side, -1 if there is none."""

    node: int
    kind: str
    text: str
    other: int


def _marks_of_pair(diff: Diff, pair_diff: PairDiff, side: str) -> Iterator[_Mark]:
    """Yield the marks of the steps of one side that changed, but for those that only follow from others."""
    [other] = set(SIDES) - {side}
    for graph in pair_diff.graphs:
        graphs = graphs_of(diff, pair_diff, graph.direction)
        for change in graph.changes:
            own_node, other_node = (
                node_of(diff, pair_diff, each_side, graph.direction, getattr(change, each_side))
                for each_side in (side, other)
            )
            if own_node >= 0 and not change.follows:
                yield _Mark(own_node, change.kind, _change_text(change, graphs), other_node)


def node_of(diff: Diff, pair_diff: PairDiff, side: str, direction: str, place: int | None) -> int:
    """Return the page's number of a step, where the backward's steps follow the forward's; -1 if there is no step."""
    if place is None:
        return -1
    capture: Capture = getattr(diff, side)
    return place + (len(capture.pairs[getattr(pair_diff, side)].forward.steps) if direction == "backward" else 0)


def _change_text(change: StepChange, graphs: tuple[Graph | None, Graph | None]) -> str:
    """Return a change as the lines of the step before and after it."""
    lines = [
        printable(f"{sign} {show_step(graph.steps[place])}")
        for sign, graph, place in zip("-+", graphs, (change.before, change.after), strict=True)
        if graph is not None and place is not None
    ]
    return "\n".join(lines)
