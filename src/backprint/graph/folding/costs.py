"""What a layer costs: the loops of a Pair, with the FLOPs and the saved bytes of an iteration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from backprint.graph.folding.fold import block_of, folded
from backprint.graph.folding.nouns import Loop, unfolded, unfolded_once
from backprint.graph.folding.series import Index, series_of
from backprint.graph.nouns import Graph, Pair, Port, Ref, Step, Value, refs
from backprint.graph.sizes import at_hints
from backprint.graph.summary import flops_of_steps, saved_by_line, types_of_values


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
    found = [*costs_of_graph("forward", forward)]
    if pair.backward is not None:
        found += costs_of_graph("backward", at_hints(pair.backward))
    return tuple(found)


def costs_of_graph(direction: str, graph: Graph) -> Iterator[PartCost]:
    """Yield the loops of a graph."""
    specs = types_of_values(graph)
    results = [pair for pair in zip(graph.outputs, graph.results, strict=True) if pair[0].role == "saved"]
    for item in folded(graph).items:
        if isinstance(item, Loop):
            steps = list(unfolded([item]))
            saved = bytes_saved(graph, results, {step.name for step in steps}) if direction == "forward" else 0
            flops = flops_of_steps(steps, specs)
            part = graph_of_iteration(graph, item, item.count // 2)
            yield PartCost(direction, module_of_loop(item), item.count, len(steps), flops, saved, part.hash())


def graph_of_iteration(graph: Graph, loop: Loop, iteration: int) -> Graph:
    """Return an iteration as a graph of its own: what it takes from elsewhere are its inputs, in the order of use."""
    steps = tuple(step for step in unfolded_once(loop.items, (), iteration))
    own = {step.name for step in steps}
    taken = dict.fromkeys(name for step in steps for name in names_taken(step) if name not in own)
    specs = types_of_values(graph)
    used = {name for step in graph.steps if step.name not in own for name in names_taken(step)}
    used |= {name for result in graph.results for name in refs(result)}
    given = [step for step in steps if step.name in used]
    inputs = tuple(Port(f"input_{place}", "input", specs[name], name) for place, name in enumerate(taken))
    outputs = tuple(Port(f"output_{place}", "output", step.spec) for place, step in enumerate(given))
    return Graph(inputs, steps, outputs, tuple(Ref(step.name) for step in given), graph.subgraphs)


def names_taken(step: Step) -> Iterator[str]:
    """Yield the names in the arguments of a step."""
    for value in (*step.args, *(value for _, value in step.kwargs)):
        yield from refs(value)


def bytes_saved(graph: Graph, results: list[tuple[Port, Value]], names: set[str]) -> int:
    """Return the bytes of what some steps save; a view of a saved tensor is free."""
    own = [(port, value) for port, value in results if any(name in names for name in refs(value))]
    return sum(line.bytes for line in saved_by_line(graph, own))


def module_of_loop(loop: Loop) -> str:
    """Return the module that the iterations of a loop are in, with their number in it."""
    blocks: dict[Index, str] = {
        (iteration,): most_common_block(unfolded_once(loop.items, (), iteration)) for iteration in range(loop.count)
    }
    series = series_of(blocks, (loop.count,))
    return str(series) if series.parts else ""


def most_common_block(steps: Iterator[Step]) -> str:
    """Return the module that most of some steps are in, up to its last number."""
    counts = Counter(map(block_of, steps))
    return counts.most_common(1)[0][0] if counts else ""
