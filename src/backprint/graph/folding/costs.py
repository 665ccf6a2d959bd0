"""What a layer costs: the loops of a Pair, with the FLOPs and the saved bytes of an iteration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from backprint.graph.costing.products import flops_of_steps
from backprint.graph.folding.stretches import StretchGraphs, module_of_loop, stretches_of
from backprint.graph.nouns import Graph, Pair, Port, Value, refs
from backprint.graph.sizes import at_hints
from backprint.graph.summary import saved_by_line


@dataclass(frozen=True, slots=True)
class PartCost:
    """A loop of a graph: a layer, as often as it is there."""

    direction: str
    name: str
    """The module that its iterations are in: `model.layers.{i}`; empty if there is none."""
    count: int
    steps: int
    """Of all iterations together, like the numbers below."""
    flops: int
    saved_bytes: int
    """Of a forward: of intermediate values that it saves for the backward."""
    hash: str
    """Of the graph of one iteration: models that have the same layer have the same hash here."""


def part_costs(pair: Pair) -> tuple[PartCost, ...]:
    """Return the loops of a Pair that stand in no other loop, at the sizes of the capture."""
    forward = at_hints(pair.forward)
    parts = [*costs_of_graph("forward", forward)]
    if pair.backward is not None:
        parts += costs_of_graph("backward", at_hints(pair.backward))
    return tuple(parts)


def costs_of_graph(direction: str, graph: Graph) -> Iterator[PartCost]:
    """Yield the loops of a graph."""
    results = [pair for pair in zip(graph.outputs, graph.results, strict=True) if pair[0].role == "saved"]
    graphs = StretchGraphs(graph)
    for loop, group in groupby(stretches_of(graph), lambda stretch: stretch.loop):
        if loop is not None:
            iterations = list(group)
            count = len(iterations)
            steps = graph.steps[iterations[0].start : iterations[-1].stop]
            saved = bytes_saved(graph, results, {step.name for step in steps}) if direction == "forward" else 0
            flops, middle = flops_of_steps(steps, graphs.specs), graphs.graph_of(iterations[count // 2])
            name = module_of_loop(graph, iterations)
            yield PartCost(direction, name, count, len(steps), flops, saved, middle.hash())


def bytes_saved(graph: Graph, results: list[tuple[Port, Value]], names: set[str]) -> int:
    """Return the bytes of what some steps save; a view of a saved tensor is free."""
    own = [value for _, value in results if any(name in names for name in refs(value))]
    return sum(line.bytes for line in saved_by_line(graph, own))
