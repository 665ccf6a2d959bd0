"""Take random draws out of a graph: what they drew becomes further inputs, so that its kernels can be compared.

Kernels draw other numbers than eager does, whatever the seed. Every step that depends on a draw stays in the graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from backprint.benching.outside_draws import draws
from backprint.benching.subjects import BenchGraph, graph_classes, unguarded_graph
from backprint.errors import RefusedError
from backprint.fx.to_fx import to_fx
from backprint.graph.nouns import Graph, Port, Step, TensorSpec
from backprint.sample.judged import one_to_the_bit
from backprint.sample.rerun import EagerRun, rebuilt


def steps_that_draw(graph: Graph) -> tuple[Step, ...]:
    """Return the steps of a graph that draw random numbers."""
    names = {node.name for node in to_fx(graph).graph.nodes if node.op == "call_function" and draws(node)}
    return tuple(step for step in graph.steps if step.name in names)


def lifted_graph(graph: Graph) -> tuple[Graph, tuple[str, ...]]:
    """Return a graph without guards whose draws are its last inputs, and the names of the steps that drew them."""
    base = unguarded_graph(graph)
    drawing = steps_that_draw(base)
    for step in drawing:
        if not isinstance(step.spec, TensorSpec):
            raise RefusedError(
                f"{step.target} ({step.name}) draws, and its result is not one tensor that could be an input"
            )
        if "_." in step.target or step.target.endswith(".out"):
            raise RefusedError(f"{step.target} ({step.name}) draws into a tensor that was there before")
    names = tuple(step.name for step in drawing)
    ports = tuple(Port(f"draw of {step.name}", "rng", step.spec, step.name) for step in drawing)
    rest = tuple(step for step in base.steps if step.name not in names)
    return replace(base, inputs=(*base.inputs, *ports), steps=rest), names


class DrawRecorder(fx.Interpreter):
    """Runs a graph, and keeps what some nodes drew."""

    def __init__(self, module: fx.GraphModule, names: Sequence[str]) -> None:
        super().__init__(module)
        self.names = frozenset(names)
        self.drawn: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        found = super().run_node(n)
        if n.name in self.names:
            self.drawn[n.name] = found.clone()
        return found


@dataclass(frozen=True, slots=True)
class LiftedRun:
    """An eager run of a graph whose draws are inputs."""

    graph: Graph
    run: EagerRun
    names: Sequence[str] = field(default=())


def lifted_run(bench: BenchGraph) -> LiftedRun:
    """Run a graph with its draws as inputs, those that its own run drew; raise if the results are not the same."""
    graph, names = lifted_graph(bench.graph)
    if not names:
        return LiftedRun(bench.graph, bench.run)
    recorder = DrawRecorder(bench.module, names)
    bench.run.again(recorder.run)
    (made,) = graph_classes({"lifted": graph}).values()
    drawn = [recorder.drawn[name] for name in names]
    free, inputs = rebuilt(made, inspect.getsource(made)), [*bench.run.inputs, *drawn]
    run = EagerRun(free, inputs, bench.run.random, bench.run.outputs, ())
    run = replace(run, results=tuple(run.again(run.module())))
    for (role, name), found, wanted in zip(run.outputs, run.results, bench.run.results, strict=True):
        same = one_to_the_bit(found, wanted) or not isinstance(found, torch.Tensor)
        if not same:
            raise RefusedError(f"with its draws as inputs, the graph gives another {role} {name} in eager")
    return LiftedRun(graph, run, names)
