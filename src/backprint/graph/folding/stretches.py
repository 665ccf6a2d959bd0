"""The stretches of a graph: each iteration of an outermost loop, and the steps between loops.

Together they are the steps of the graph, in their order. Each stretch can be made a graph of its own, which has a hash:
equal stretches, of one graph or of many, are one part. `part_costs` says what a loop of a Pair costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise

from backprint.graph.cost import flops_of_steps, saved_by_line, specs_of
from backprint.graph.folding.find import Repeat, loops_of
from backprint.graph.folding.fold import block_of, steps_of
from backprint.graph.folding.nouns import Index, series_of
from backprint.graph.nouns import Graph, Pair, Port, Ref, Spec, Step, Value, refs
from backprint.graph.sizes import at_hints

# ---- Stretches


@dataclass(frozen=True, slots=True)
class Stretch:
    """The steps of a graph from `start` to before `stop`."""

    start: int
    stop: int
    loop: int | None = None
    """The number of the loop of which it is an iteration; None of what stands between loops."""

    def steps(self, graph: Graph) -> tuple[Step, ...]:
        """Return its steps."""
        return graph.steps[self.start : self.stop]


def stretches_of(graph: Graph) -> tuple[Stretch, ...]:
    """Return a graph in stretches."""
    stretches: list[Stretch] = []
    at = 0
    loops = [node for node in loops_of(steps_of(graph.steps)) if isinstance(node, Repeat)]
    for number, loop in enumerate(loops):
        if at < loop.first:
            stretches.append(Stretch(at, loop.first))
        starts = [row[0] for row in loop.rows]
        for odd in loop.odd:
            starts[odd.iteration] = min(starts[odd.iteration], odd.place)
        at = loop.end
        stretches += [Stretch(start, stop, number) for start, stop in pairwise([*starts, at])]
    return (*stretches, Stretch(at, len(graph.steps))) if at < len(graph.steps) else tuple(stretches)


def module_of_loop(graph: Graph, iterations: Iterable[Stretch]) -> str:
    """Return the module that the iterations of a loop are in, with their number in it: `model.layers.{i}`; '' if they
    are in none."""
    blocks: dict[Index, str] = {
        (place,): most_common(map(block_of, stretch.steps(graph))) for place, stretch in enumerate(iterations)
    }
    series = series_of(blocks, (len(blocks),))
    return str(series) if series.parts else ""


def module_of_stretch(graph: Graph, stretch: Stretch) -> str:
    """Return the module that most steps of a stretch were called in: of an iteration the layer, as
    `model.layers.3`."""
    steps = stretch.steps(graph)
    if stretch.loop is not None:
        return most_common(map(block_of, steps))
    return most_common(step.source.module if step.source is not None else "" for step in steps)


def most_common(texts: Iterable[str]) -> str:
    """Return the text that is there most often; '' if there is none."""
    counts = Counter(texts)
    return counts.most_common(1)[0][0] if counts else ""


# ---- As graphs of their own


class StretchGraphs:
    """Makes graphs of the stretches of one graph."""

    def __init__(self, graph: Graph, kept: Iterable[str] = ()) -> None:
        """Names in `kept` are values that stretches give even where no other step takes them."""
        self.graph = graph
        self.specs: Mapping[str, Spec] = specs_of(graph)
        self.last = {name: place for place, step in enumerate(graph.steps) for name in names_taken(step)}
        self.last |= {name: len(graph.steps) for result in graph.results for name in refs(result)}
        self.last |= dict.fromkeys(kept, len(graph.steps))

    def graph_of(self, stretch: Stretch) -> Graph:
        """Return a stretch as a graph: what it takes from elsewhere are its inputs, in the order of use, and what is
        taken elsewhere its outputs."""
        steps = stretch.steps(self.graph)
        own = {step.name for step in steps}
        external = dict.fromkeys(name for step in steps for name in names_taken(step) if name not in own)
        results = [step for step in steps if self.last.get(step.name, -1) >= stretch.stop]
        inputs = tuple(Port(f"input_{place}", "input", self.specs[name], name) for place, name in enumerate(external))
        outputs = tuple(Port(f"output_{place}", "output", step.spec) for place, step in enumerate(results))
        return Graph(inputs, steps, outputs, tuple(Ref(step.name) for step in results), self.graph.subgraphs)


def names_taken(step: Step) -> Iterator[str]:
    """Yield the names in the arguments of a step."""
    for value in (*step.args, *(value for _, value in step.kwargs)):
        yield from refs(value)


# ---- The cost of a loop: the FLOPs and the saved bytes of its iterations


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
