"""The stretches of a graph. A stretch is one iteration of an outermost loop, or the steps between two such loops.

Together the stretches are all steps of the graph, in their order. A stretch can be made a Graph, whose hash tells
whether two stretches, of one graph or of several, compute the same. `part_costs` returns what each loop of a Pair
costs.

A loop is a repetition that was found in a graph, as of equal layers (`graph/folding`); the graph itself is
straight-line. `loops_of` returns plain steps and `Repeat`s, loops: a Repeat has in `rows` the numbers of the steps of
each iteration, in `odd` the steps that only one iteration has, and it is from step `first` up to, not including, `end`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise

from backprint.graph.folding.find import Repeat, loops_of
from backprint.graph.folding.fold import block_of, steps_of
from backprint.graph.folding.nouns import Index, series_of
from backprint.graph.nouns import Graph, Pair, Port, Ref, Spec, Step, Value, refs
from backprint.graph.sizes import at_example_sizes
from backprint.graph.steps import specs_of
from backprint.tools.cost.costs import flops_of_steps, saved_by_line

# ---- Stretches


@dataclass(frozen=True, slots=True)
class Stretch:
    """The steps of a graph from number `start` up to, but not including, number `stop`."""

    start: int
    stop: int
    loop: int | None = None
    """The number of the loop whose iteration this is; None if the steps are between two loops."""

    def steps(self, graph: Graph) -> tuple[Step, ...]:
        """Return the steps of this stretch of the graph."""
        return graph.steps[self.start : self.stop]


def stretches_of(graph: Graph) -> tuple[Stretch, ...]:
    """Split a graph into its stretches, in their order."""
    stretches: list[Stretch] = []
    position = 0
    loops = [node for node in loops_of(steps_of(graph.steps)) if isinstance(node, Repeat)]
    for number, loop in enumerate(loops):
        if position < loop.first:
            stretches.append(Stretch(position, loop.first))
        starts = [row[0] for row in loop.rows]
        # An odd step, which only one iteration has, may be the first step of that iteration.
        for odd in loop.odd:
            starts[odd.iteration] = min(starts[odd.iteration], odd.place)
        position = loop.end
        stretches += [Stretch(start, stop, number) for start, stop in pairwise([*starts, position])]
    return (*stretches, Stretch(position, len(graph.steps))) if position < len(graph.steps) else tuple(stretches)


def module_of_loop(graph: Graph, iterations: Iterable[Stretch]) -> str:
    """Return the path of the module that each iteration of a loop calls, with `{i}` for the number that differs:
    `model.layers.{i}`; '' if the iterations have no such module in common."""
    module_of_iteration: dict[Index, str] = {
        (number,): most_common(map(block_of, stretch.steps(graph))) for number, stretch in enumerate(iterations)
    }
    # A Series is a pattern with `{i}` for the number of the iteration; it has no parts if the texts have no pattern.
    series = series_of(module_of_iteration, (len(module_of_iteration),))
    return str(series) if series.parts else ""


def module_of_stretch(graph: Graph, stretch: Stretch) -> str:
    """Return the path of the module in which most steps of a stretch were called. For an iteration of a loop, the path
    ends at the number of the layer: `model.layers.3`."""
    steps = stretch.steps(graph)
    if stretch.loop is not None:
        return most_common(map(block_of, steps))
    return most_common(step.source.module if step.source is not None else "" for step in steps)


def most_common(texts: Iterable[str]) -> str:
    """Return the most frequent text; '' if there are no texts."""
    counts = Counter(texts)
    return counts.most_common(1)[0][0] if counts else ""


# ---- Stretches as graphs


class StretchGraphs:
    """Makes graphs of the stretches of one graph. `last_use` has the number of the last step that reads each value, or
    the number of steps for one that the graph returns."""

    def __init__(self, graph: Graph, kept: Iterable[str] = ()) -> None:
        """Make graphs of the stretches of `graph`. Values named in `kept` are outputs of their stretch even if no other
        stretch reads them."""
        self.graph = graph
        self.specs: Mapping[str, Spec] = specs_of(graph)
        self.last_use = {name: number for number, step in enumerate(graph.steps) for name in names_read(step)}
        self.last_use |= {name: len(graph.steps) for result in graph.results for name in refs(result)}
        self.last_use |= dict.fromkeys(kept, len(graph.steps))

    def graph_of(self, stretch: Stretch) -> Graph:
        """Return a stretch as a Graph. Its inputs are the values from other stretches that it reads, in the order of
        their first use; its outputs are the values that later stretches or the graph's results read."""
        steps = stretch.steps(self.graph)
        own = {step.name for step in steps}
        external = dict.fromkeys(name for step in steps for name in names_read(step) if name not in own)
        results = [step for step in steps if self.last_use.get(step.name, -1) >= stretch.stop]
        inputs = tuple(Port(f"input_{index}", "input", self.specs[name], name) for index, name in enumerate(external))
        outputs = tuple(Port(f"output_{index}", "output", step.spec) for index, step in enumerate(results))
        return Graph(inputs, steps, outputs, tuple(Ref(step.name) for step in results), self.graph.subgraphs)


def names_read(step: Step) -> Iterator[str]:
    """Yield the names of the values that a step reads."""
    for value in (*step.args, *(value for _, value in step.kwargs)):
        yield from refs(value)


# ---- The cost of a loop: the FLOPs and the saved bytes of its iterations


@dataclass(frozen=True, slots=True)
class _PartCost:
    """What one loop of a graph costs, for instance all layers of a transformer together."""

    direction: str
    name: str
    """The path of the module that its iterations call: `model.layers.{i}`; empty if they have none in common."""
    count: int
    steps: int
    """The number of steps of all iterations together."""
    flops: int
    """The FLOPs of all iterations together."""
    saved_bytes: int
    """The bytes of intermediate values that all iterations together save for the backward; 0 in a backward."""
    hash: str
    """The hash of one iteration as a Graph: it is the same for two models that have the same layer."""


def part_costs(pair: Pair) -> tuple[_PartCost, ...]:
    """Return the cost of each outermost loop of a Pair, at the sizes of the capture."""
    forward = at_example_sizes(pair.forward)
    parts = [*_costs_of_graph("forward", forward)]
    if pair.backward is not None:
        parts += _costs_of_graph("backward", at_example_sizes(pair.backward))
    return tuple(parts)


def _costs_of_graph(direction: str, graph: Graph) -> Iterator[_PartCost]:
    """Yield the cost of each outermost loop of a graph; only a forward saves values."""
    saved_values = [value for port, value in zip(graph.outputs, graph.results, strict=True) if port.role == "saved"]
    graphs = StretchGraphs(graph)
    for loop, group in groupby(stretches_of(graph), lambda stretch: stretch.loop):
        if loop is not None:
            iterations = list(group)
            count = len(iterations)
            steps = graph.steps[iterations[0].start : iterations[-1].stop]
            saved = _bytes_saved(graph, saved_values, {step.name for step in steps}) if direction == "forward" else 0
            flops = flops_of_steps(steps, graphs.specs)
            # The first and the last iteration may have odd steps (`find.with_ends`): in the first one, a recurrent
            # cell makes its initial state.
            middle = graphs.graph_of(iterations[count // 2])
            name = module_of_loop(graph, iterations)
            yield _PartCost(direction, name, count, len(steps), flops, saved, middle.hash())


def _bytes_saved(graph: Graph, saved_values: list[Value], names: set[str]) -> int:
    """Return the bytes of those saved values that the steps with these names compute. Each storage counts once, so a
    view of a saved tensor adds nothing."""
    values_of_steps = [value for value in saved_values if any(name in names for name in refs(value))]
    return sum(line.bytes for line in saved_by_line(graph, values_of_steps))
