"""Cut a graph down to some of its steps: values from steps that are left out become inputs, with the values that the
whole graph had there.

A unit is what no cut takes apart: a step whose value no input can hold (a tuple) with the steps that read it, the steps
that share a tensor with an update in place, and memory that is not initialized with the steps that fill it. A number
from a step that is left out is written into the graph.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from backprint.fx.convert import spec_of
from backprint.fx.uninitialised import uninitialized_values
from backprint.graph.nouns import Graph, Port, Ref, Spec, Step, Sub, TensorSpec, Value, leaves, refs
from backprint.graph.steps import live, mapped, used
from backprint.graph.table import operators
from backprint.replaying.run import perform_steps, subgraphs
from backprint.sample.recipe_json import reach
from backprint.sample.rerun import EagerRun

ITEM = "operator.getitem"
"""The target of a step that takes one tensor of several."""


@dataclass(frozen=True, slots=True)
class CutGraph:
    """A graph of some steps of a larger one, and its inputs in order."""

    graph: Graph
    inputs: tuple[Any, ...]

    @property
    def operators(self) -> int:
        """How many operators it calls."""
        return count_operators(self.graph)

    def with_outputs(self, names: Collection[str]) -> CutGraph:
        """Return the same with fewer outputs, without the steps and inputs that these do not need."""
        graph = self.graph
        kept = [pair for pair in zip(graph.outputs, graph.results, strict=True) if pair[0].name in names]
        graph = replace(graph, outputs=tuple(port for port, _ in kept), results=tuple(result for _, result in kept))
        graph = live(graph)
        needed = {name for step in graph.steps for name in used(step)} | {r for v in graph.results for r in refs(v)}
        pairs = [pair for pair in zip(graph.inputs, self.inputs, strict=True) if pair[0].local in needed]
        return CutGraph(replace(graph, inputs=tuple(port for port, _ in pairs)), tuple(value for _, value in pairs))

    def bypassing(self, name: str) -> Iterator[CutGraph]:
        """Yield the graphs without one step in which one of its arguments, of its dtype and shape, is its value."""
        graph = self.graph
        specs = {port.local: port.spec for port in graph.inputs} | {step.name: step.spec for step in graph.steps}
        [step] = [each for each in graph.steps if each.name == name]
        for argument in dict.fromkeys(used(step)):
            if kind_of_spec(specs[argument]) != kind_of_spec(step.spec):
                continue

            def value_of(each: str, instead: str = argument) -> Value:
                return Ref(instead if each == name else each)

            steps = tuple(mapped(each, value_of) for each in graph.steps if each is not step)
            results = tuple(Ref(argument) if result == Ref(name) else result for result in graph.results)
            made = CutGraph(replace(graph, steps=steps, results=results), self.inputs)
            yield made.with_outputs({port.name for port in graph.outputs if port.name != name})


def kind_of_spec(spec: Spec) -> Any:
    """Return the dtype and the shape of a tensor; of another value something that equals no other."""
    return (spec.dtype, spec.shape) if isinstance(spec, TensorSpec) else object()


def count_operators(graph: Graph) -> int:
    """Return how many operators a graph calls; taking one tensor of several is none."""
    return sum(step.target != ITEM for step in graph.steps)


@dataclass(frozen=True)
class RecordedGraph:
    """A graph that ran in eager, and every value in that run."""

    graph: Graph
    values: Mapping[str, Any]
    units: tuple[tuple[int, ...], ...]
    """The places of the steps of each unit, in the order of the last."""

    def producers(self, units: Collection[int]) -> set[int]:
        """Return the units that make the values which these units use, themselves left out."""
        of = {self.graph.steps[place].name: number for number, places in enumerate(self.units) for place in places}
        names = (name for number in units for place in self.units[number] for name in used(self.graph.steps[place]))
        return {of[name] for name in names if name in of} - set(units)

    def cut(self, units: Collection[int]) -> CutGraph | None:
        """Return the graph of some units; None if it has no output."""
        kept = sorted(place for number in units for place in self.units[number])
        steps = [self.graph.steps[place] for place in kept]
        names = {step.name for step in steps}
        outer = dict.fromkeys(name for step in steps for name in used(step) if name not in names)
        given = [name for name in outer if isinstance(self.values[name], Tensor)]

        def value_of(name: str) -> Value:
            return Ref(name) if name in names or isinstance(self.values[name], Tensor) else self.values[name]

        steps = [mapped(step, value_of) for step in steps]
        shown = [name for name in self.crossing(names, steps) if isinstance(self.values[name], Tensor)]
        if not shown:
            return None
        inputs = tuple(Port(name, "input", spec_of(self.values[name]), name) for name in given)
        outputs = tuple(Port(name, "output", spec_of(self.values[name])) for name in shown)
        called = set(bodies_called(steps))
        bodies = tuple(pair for pair in self.graph.subgraphs if pair[0] in called)
        graph = Graph(inputs, tuple(steps), outputs, tuple(map(Ref, shown)), bodies)
        return CutGraph(graph, tuple(self.values[name] for name in given))

    def crossing(self, names: Collection[str], steps: Sequence[Step]) -> Iterator[str]:
        """Yield the values of these steps that other steps read, that the graph returns, or that nothing reads."""
        inner = {name for step in steps for name in used(step)}
        outer = {name for step in self.graph.steps if step.name not in names for name in used(step)}
        outer |= {name for result in self.graph.results for name in refs(result)}
        return (step.name for step in steps if step.name in outer or step.name not in inner)


def record_values(graph: Graph, run: EagerRun) -> RecordedGraph:
    """Run a graph, whose inputs and random state are those of an eager run, and keep a copy of every value."""
    locals_ = [port.local for port in graph.inputs]
    kept: dict[str, Any] = {}

    def play(*inputs: Any) -> None:
        env = dict(zip(locals_, inputs, strict=True))
        kept.update({name: own_memory(value) for name, value in env.items()})

        def keep(_: int, step: Step) -> None:
            kept[step.name] = own_memory(env[step.name])

        perform_steps(graph.steps, env, subgraphs(graph), after=keep)

    run.again(play)
    return RecordedGraph(graph, kept, units_of(graph, kept))


def own_memory(value: Any) -> Any:
    """Return a copy of a tensor in memory of its own, with the same strides."""
    if not isinstance(value, Tensor):
        return value
    value = value.detach().resolve_conj().resolve_neg()
    if value.layout is not torch.strided or value.numel() == 0:
        return value.clone()
    flat = torch.as_strided(value, (reach(value.shape, value.stride()),), (1,), value.storage_offset()).clone()
    return torch.as_strided(flat, value.shape, value.stride(), 0)


def units_of(graph: Graph, values: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
    """Return the units of a graph: places of steps."""
    groups: list[set[int]] = [{place} for place in range(len(graph.steps))]
    for tie in ties(graph, values):
        joined = set().union(*(groups[place] for place in tie))
        for place in joined:
            groups[place] = joined
    found = {id(group): tuple(sorted(group)) for group in groups}
    return tuple(sorted(found.values(), key=lambda places: places[-1]))


def ties(graph: Graph, values: Mapping[str, Any]) -> Iterator[list[int]]:
    """Yield the places of steps that stay together."""
    users: dict[str, list[int]] = {}
    for place, step in enumerate(graph.steps):
        for name in (*used(step), step.name):
            users.setdefault(name, []).append(place)
    for name, places in users.items():
        if not isinstance(values[name], Tensor | bool | int | float | complex | str | None):
            yield places
    for step in graph.steps:
        if "m" in operators().get(step.target, ""):
            yield [place for name in used(step) for place in users[name]]
    for name in uninitialized_values(graph).made:
        yield users[name]


def bodies_called(steps: Sequence[Step]) -> Iterator[str]:
    """Yield the names of the subgraphs that steps pass to their operators."""
    for step in steps:
        for value in (*step.args, *(value for _, value in step.kwargs)):
            yield from (leaf.name for leaf in leaves(value) if type(leaf) is Sub)
