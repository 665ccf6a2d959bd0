"""The data of the page of a Capture: of each Pair its scene, its memory time line, and the text around its steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from backprint.drawing.data import FORMAT, Measured, Strings, scene_data
from backprint.drawing.drawn import drawn_pair
from backprint.drawing.scene import NO_VALUE, Scene, scene_of
from backprint.graph.costing.live import LiveSpan, memory_line
from backprint.graph.costing.products import specs_of
from backprint.graph.costing.storages import is_view, storages_of
from backprint.graph.nouns import Capture, Graph, Pair
from backprint.graph.sizes import at_hints
from backprint.graph.text import emit_class, show
from backprint.graph.verdicts import verdict_text
from backprint.plain import printable

if TYPE_CHECKING:
    from backprint.tensor_stats import Stats


def page_data(capture: Capture) -> dict[str, Any]:
    """Return the data of a Capture's page."""
    return {
        "format": FORMAT,
        "title": capture.name,
        "facts": [[name, text] for name, text in page_facts(capture) if text],
        "notes": [*capture.notes, *capture.breaks],
        "pairs": [pair_data(pair) for pair in (*capture.pairs, *bodies_of(capture.pairs))],
    }


def bodies_of(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yield the subgraphs that control flow operators call, such as the branches of `cond`, each as a forward."""
    for pair in pairs:
        for side, graph in (("forward", pair.forward), ("backward", pair.backward)):
            for name, body in graph.subgraphs if graph is not None else ():
                inner = Pair(f"{pair.name} {side}: {name}", body)
                yield inner
                yield from bodies_of([inner])


StatsRows = Mapping[tuple[int, int, str], Sequence[float | None]]
"""Statistics by Pair, direction and name of a value: count, min, max, mean, std, norm, NaN, Inf, zeros."""


def with_statistics(data: dict[str, Any], capture: Capture, rows: StatsRows) -> dict[str, Any]:
    """Return the data of a page with statistics of values."""
    pairs = list(data["pairs"])
    for index, pair in enumerate(capture.pairs):
        ids = values_by_name(scene_of(pair))
        found = {ids[side][name]: row for (which, side, name), row in rows.items() if which == index}
        pairs[index] |= {"stats": {"value": list(found), "rows": list(found.values())}}
    return data | {"pairs": pairs}


def stats_row(stats: Stats) -> list[float | None]:
    """Return statistics as JSON has them: without numbers that are not finite."""
    found = (getattr(stats, name) for name in ("count", "min", "max", "mean", "std", "norm", "nan", "inf", "zeros"))
    return [value if value is not None and math.isfinite(value) else None for value in found]


def values_by_name(scene: Scene) -> tuple[dict[str, int], dict[str, int]]:
    """Return the values of each direction by their names in its graph."""
    values: tuple[dict[str, int], dict[str, int]] = ({}, {})
    for place, node in enumerate(scene.nodes):
        values[node.side][node.name] = place
    for each in scene.ports:
        if each.enters:
            values[each.side][each.port.local] = each.value
    return values


def page_facts(capture: Capture) -> Iterator[tuple[str, str]]:
    """Yield what the page says about the whole Capture."""
    yield "engine", capture.engine
    yield "verdict", verdict_text(capture.verdict)
    environment = dict(capture.environment)
    yield "torch", environment.get("torch", "")
    yield "inputs", "fake: shapes without values" if capture.fake else ""
    for guard in capture.guards:
        yield "guard", guard.text
    for edge in capture.opaque:
        yield "opaque edge", edge.text


def pair_data(pair: Pair) -> dict[str, Any]:
    """Return the data of a Pair."""
    drawn, strings = drawn_pair(pair), Strings()
    line = memory_data(pair, drawn.scene, strings)
    return scene_data(drawn, strings, Measured(views_of(pair), memory_of_steps(pair), line, code_data(pair)))


def graphs_of(pair: Pair) -> list[Graph]:
    """Return the graphs of a Pair, at the sizes of the capture."""
    return [at_hints(graph) for graph in (pair.forward, pair.backward) if graph is not None]


def views_of(pair: Pair) -> list[bool]:
    """Return for each step whether its result is a view, or an item of a tuple."""
    found = []
    for graph in graphs_of(pair):
        specs = specs_of(graph)
        found += [step.target == "operator.getitem" or is_view(step, specs) for step in graph.steps]
    return found


def memory_of_steps(pair: Pair) -> list[int]:
    """Return for each step the bytes of memory that its result takes."""
    found = []
    for graph in graphs_of(pair):
        made: dict[str, int] = {}
        for storage, size in storages_of(graph)[1].items():
            name = storage.partition("[")[0]
            made[name] = made.get(name, 0) + size
        found += [made.get(step.name, 0) for step in graph.steps]
    return found


def memory_data(pair: Pair, scene: Scene, strings: Strings) -> dict[str, Any]:
    """Return the memory time line."""
    line = memory_line(pair)
    values = values_by_name(scene)

    def row(span: LiveSpan) -> list[int]:
        value = values[span.direction == "backward"].get(span.value.partition("[")[0], NO_VALUE)
        return [value, span.first, span.last, span.bytes, strings.number(span.role)]

    return {
        "before": line.held_bytes,
        "live": line.during,
        "spans": list(map(row, line.spans)),
        "held": list(map(row, line.held)),
        "peak": [line.peak, line.peak_bytes],
    }


def code_data(pair: Pair) -> Mapping[str, Any]:
    """Return the lines of each graph's text before its steps, and after them."""
    graphs = [pair.forward, pair.backward]
    heads = [list(map(printable, head_of(graph))) if graph is not None else [] for graph in graphs]
    ends = [list(map(printable, end_of(graph))) if graph is not None else [] for graph in graphs]
    return {"forward": heads[0], "backward": heads[1], "ends": ends}


def head_of(graph: Graph) -> list[str]:
    """Return the lines of a graph's class before its steps."""
    lines = list(takewhile(lambda line: not line.startswith("        # "), emit_class(graph, "GraphModule", "")))
    return lines if graph.steps else lines[:-1]


def end_of(graph: Graph) -> list[str]:
    """Return the last line of a graph."""
    return [f"        return ({', '.join(map(show, graph.results))}{',' if len(graph.results) == 1 else ''})"]
