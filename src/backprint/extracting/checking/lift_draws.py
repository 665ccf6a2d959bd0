"""Take random draws out of a graph: what they drew becomes further inputs, so that its kernels can be compared.

Kernels draw other numbers than eager does, whatever the seed. Every step that depends on a draw stays in the graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import fx

from backprint.benching.outside_draws import draws
from backprint.benching.subjects import BenchGraph, graph_classes
from backprint.errors import RefusedError
from backprint.extracting.lowering.prepare import NEW
from backprint.fx.to_fx import to_fx
from backprint.graph.fixed import unguarded_graph
from backprint.graph.nouns import Graph, Port, Ref, Spec, Step, TensorSpec, refs
from backprint.graph.steps import SAVING, mapped, used, with_names
from backprint.sample.judged import one_to_the_bit
from backprint.sample.rerun import EagerRun, rebuilt


def steps_that_draw(graph: Graph) -> tuple[Step, ...]:
    """Return the steps of a graph that draw random numbers."""
    names = {node.name for node in to_fx(graph).graph.nodes if node.op == "call_function" and draws(node)}
    return tuple(step for step in graph.steps if step.name in names or step.target == SAVING)


def lifted_graph(graph: Graph) -> tuple[Graph, tuple[str, ...]]:
    """Return a graph without guards whose draws are its last inputs, and the names of the steps that drew them."""
    base = unguarded_graph(graph)
    base = with_draws_of_their_own(base, steps_that_draw(base))
    drawing = steps_that_draw(base)
    base = replace(base, steps=tuple(each for step in base.steps for each in masked_steps(step, drawing)))
    saving = {step.name for step in drawing if step.target == SAVING}
    drawing = tuple(mask_of(step) if is_dropout(step) else step for step in drawing if step.name not in saving)
    drawing += tuple(step for step in base.steps if is_item_of(step, saving))
    for step in drawing:
        if not isinstance(step.spec, TensorSpec):
            raise RefusedError(
                f"{step.target} ({step.name}) draws, and its result is not one tensor that could be an input"
            )
        if step.target.endswith(".out") or (is_in_place(step) and is_read(base, step)):
            raise RefusedError(f"{step.target} ({step.name}) draws into a tensor that was there before")
    names = tuple(step.name for step in drawing)
    ports = tuple(Port(f"draw of {step.name}", "rng", step.spec, step.name) for step in drawing)
    rest = tuple(step for step in base.steps if step.name not in {*names, *saving})
    return replace(base, inputs=(*base.inputs, *ports), steps=rest), names


def with_draws_of_their_own(graph: Graph, drawing: Sequence[Step]) -> Graph:
    """Let what comes after a draw into a new tensor, which nothing else reads before, read the draw's result."""
    steps = list(graph.steps)
    makers = {step.name: step for step in steps}
    renamed: dict[str, str] = {}
    for place, step in enumerate(steps):
        taken = mapped(step, lambda name: Ref(renamed.get(name, name)))
        base = taken.args[0] if step in drawing and is_in_place(step) else None
        if isinstance(base, Ref) and is_new(makers.get(base.name)) and not is_used(base.name, steps[:place]):
            renamed[base.name] = step.name
            taken = step
        steps[place] = taken
    results = tuple(with_names(value, lambda name: Ref(renamed.get(name, name))) for value in graph.results)
    return replace(graph, steps=tuple(steps), results=results)


def is_in_place(step: Step) -> bool:
    """Whether a step draws into its first argument."""
    return "_." in step.target


def is_new(step: Step | None) -> bool:
    """Whether a step makes a tensor that shares no memory with another."""
    return step is not None and step.target.removeprefix("aten.").partition(".")[0] in NEW


def is_used(name: str, steps: Iterable[Step]) -> bool:
    """Whether steps use a value."""
    return any(name in used(step) for step in steps)


def is_read(graph: Graph, step: Step) -> bool:
    """Whether the tensor that a step draws into is read by another, so that its memory counts."""
    base = step.args[0]
    named = {name for value in graph.results for name in refs(value)}
    return (
        not isinstance(base, Ref)
        or base.name in named
        or is_used(base.name, (each for each in graph.steps if each is not step))
    )


def is_item_of(step: Step, saving: Collection[str]) -> bool:
    """Whether a step takes the random state, or what was drawn, of a draw that saves its state."""
    return step.target == "operator.getitem" and isinstance(step.args[0], Ref) and step.args[0].name in saving


def is_dropout(step: Step) -> bool:
    """Whether a step is a dropout of training: its results are what is left, and the mask that it drew."""
    return step.target == DROPOUT and isinstance(step.spec, tuple) and len(step.spec) == 2


def mask_of(step: Step) -> Step:
    """Return the draw of a dropout, under the dropout's name: the mask."""
    return replace(step, spec=cast(tuple[Spec, ...], step.spec)[1])


def masked_steps(step: Step, drawing: Sequence[Step]) -> Iterator[Step]:
    """Yield a step; in the place of a dropout's results those that its mask gives, as eager computes them."""
    dropped = {each.name: each for each in drawing if is_dropout(each)}
    match step.target, step.args:
        case "operator.getitem", (Ref(name), 0) if name in dropped:
            value, p = dropped[name].args[:2]
            scale = 1.0 / (1.0 - p) if isinstance(p, int | float) and p != 1 else 0.0
            left = f"{step.name}_left"
            yield replace(step, name=left, target="aten.mul.Tensor", args=(value, Ref(name)))
            yield replace(step, target="aten.mul.Tensor", args=(Ref(left), scale))
        case "operator.getitem", (Ref(name), 1) if name in dropped:
            yield replace(step, target="aten.alias.default", args=(Ref(name),))
        case _:
            yield step


DROPOUT = "aten.native_dropout.default"


class DrawRecorder(fx.Interpreter):
    """Runs a graph, and keeps what some nodes drew."""

    def __init__(self, module: fx.GraphModule, names: Sequence[str]) -> None:
        super().__init__(module)
        self.names = frozenset(names)
        self.drawn: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        found = super().run_node(n)
        if n.name in self.names:
            self.drawn[n.name] = (found[1] if n.target is torch.ops.aten.native_dropout.default else found).clone()
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
