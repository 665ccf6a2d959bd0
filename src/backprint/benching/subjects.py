"""What compilers are given: each graph of a Capture as a torch.fx module, with its inputs and eager's results.

The inputs are the sample's own. A backward's saved inputs come from its forward, as in a replay (`sample/rerun`), and
a step runs a forward and then its backward on the tangents of the replay. No graph has guards: these inputs hold them.
"""

from __future__ import annotations

import itertools
import linecache
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, fx

from backprint.choices import BENCH_DIRECTIONS
from backprint.errors import RefusedError
from backprint.fx.to_fx import to_fx
from backprint.graph.fixed import unguarded_graph
from backprint.graph.nouns import Capture, Graph
from backprint.graph.text import HEADER, emit_class
from backprint.sample.alone import make_inputs
from backprint.sample.export import content_of, graphs_needed, recipes_needed
from backprint.sample.rerun import EagerRun, Program
from backprint.tree import strided_parts

Compile = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]
"""A compiler: a function of a graph and its inputs that returns a function of such inputs, with the same results."""


@dataclass(frozen=True)
class BenchGraph:
    """One graph that ran in eager: the module that compilers are given, and the run that results are judged by."""

    title: str
    graph: Graph
    run: EagerRun

    @cached_property
    def module(self) -> fx.GraphModule:
        """The module that compilers are given; their process makes its own, so the judging one seldom needs it."""
        return to_fx(unguarded_graph(self.graph))

    @property
    def direction(self) -> str:
        """`forward` or `backward`."""
        return self.title.partition(" ")[2]

    @property
    def steps(self) -> int:
        """How many operators it calls."""
        return len(self.graph.steps)


@dataclass(frozen=True)
class BenchStep:
    """A forward and its backward as one: the backward takes what the forward saved, whatever compiled it."""

    title: str
    forward: BenchGraph
    backward: BenchGraph

    @property
    def direction(self) -> str:
        """`step`."""
        return BENCH_DIRECTIONS[2]

    @property
    def steps(self) -> int:
        """How many operators both call."""
        return self.forward.steps + self.backward.steps

    @cached_property
    def strides(self) -> dict[int, tuple[int, ...]]:
        """The strides for which a backward is compiled, by the places of the saved tensors that it takes. A compiled
        forward may save a tensor with others."""
        pairs = zip(self.sources, self.backward.run.inputs, strict=True)
        return {
            place: value.stride()
            for place, ((from_forward, _), value) in enumerate(pairs)
            if from_forward and isinstance(value, torch.Tensor) and value.layout is torch.strided
        }

    @cached_property
    def sources(self) -> list[tuple[bool, int]]:
        """Of each input of the backward, whether it is one of the forward's results, and its place there or among the
        step's arguments: tangents, and constants that the forward does not have, come after the forward's inputs."""
        saved = {name: place for place, (role, name) in enumerate(self.forward.run.outputs) if role == "saved"}
        given = {port.name: place for place, port in enumerate(self.forward.graph.inputs)}
        own, found = itertools.count(len(given)), []
        for port in self.backward.graph.inputs:
            if port.role == "saved" and port.name in saved:
                found.append((True, saved[port.name]))
            elif port.role != "tangent" and port.name in given:
                found.append((False, given[port.name]))
            else:
                found.append((False, next(own)))
        return found

    @cached_property
    def inputs(self) -> list[Any]:
        """The forward's inputs, and then those that only the backward has."""
        count = len(self.forward.graph.inputs)
        pairs = zip(self.sources, self.backward.run.inputs, strict=True)
        own = [value for (from_forward, place), value in pairs if not from_forward and place >= count]
        return [*self.forward.run.inputs, *own]


def bench_graphs(capture: Capture) -> list[BenchGraph]:
    """Run every graph of a Capture in eager, once; return them in order, each forward before its backward."""
    graphs = graphs_needed(capture, "both")
    if capture.recipes is None or capture.fake:
        raise RefusedError(f"{capture.name} was captured without values, so no compiler can run it: capture it anew")
    recipes = recipes_needed(capture, graphs, capture.recipes.recipes)
    content = content_of(capture, graphs, recipes)
    classes = graph_classes({title: graph for title, (_, graph) in graphs.items()})
    made = make_inputs(content["recipes"], list(recipes), capture.recipes.exact)
    torch.manual_seed(capture.seed)  # in the grad mode of a training step: cuDNN's and oneDNN's LSTMs ask for it
    runs = Program(content, classes, made, copies=True).play()
    return [BenchGraph(title, graph, runs[title]) for title, (_, graph) in graphs.items()]


def bench_steps(graphs: Sequence[BenchGraph]) -> list[BenchStep]:
    """Return the steps of those Pairs that have a backward."""
    by_title = {graph.title: graph for graph in graphs}
    pairs = ((title.partition(" ")[0], graph) for title, graph in by_title.items() if graph.direction == "forward")
    return [
        BenchStep(f"{pair} {BENCH_DIRECTIONS[2]}", forward, by_title[f"{pair} backward"])
        for pair, forward in pairs
        if f"{pair} backward" in by_title
    ]


def inputs_of_results(results: Sequence[Any], values: Sequence[Any]) -> dict[int, int]:
    """Return place of a result -> place of the input whose memory it has."""
    inputs = {memory_of(value): place for place, value in enumerate(values) if memory_of(value)}
    return {place: inputs[memory_of(value)] for place, value in enumerate(results) if memory_of(value) in inputs}


def memory_of(value: Any) -> int:
    """Return the address of a tensor's memory, of a sparse one's values; 0 without memory."""
    return strided_parts(value)[-1].untyped_storage().data_ptr() if isinstance(value, Tensor) else 0


def graph_classes(graphs: Mapping[str, Graph]) -> dict[str, Any]:
    """Return title -> class of each graph's text, which was checked when it was parsed."""
    names = {title: f"Graph{index}" for index, title in enumerate(graphs)}
    text = HEADER + "\n\n".join("\n".join(emit_class(graph, names[title], "")) for title, graph in graphs.items())
    module = ModuleType(f"backprint_bench_{next(SERIAL)}")
    sys.modules[module.__name__] = module  # where `rebuilt` looks for a class's names
    place = module.__file__ = f"<{module.__name__}>"
    linecache.cache[place] = (len(text), None, text.splitlines(keepends=True), place)
    exec(compile(text, place, "exec", dont_inherit=True), vars(module))
    return {title: getattr(module, name) for title, name in names.items()}


SERIAL = itertools.count()
