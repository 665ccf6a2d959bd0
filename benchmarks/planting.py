"""Faults planted in a graph, each one change: what `derivative.py` and `tasks.py` share. It measures nothing itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from backprint.graph.nouns import Graph, Ref, Step, TensorSpec


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a graph: `make` returns the changed graph, and `step` is the index of the changed step."""

    kind: str
    step: int
    make: Callable[[], Graph]


@dataclass(frozen=True, slots=True)
class Swap:
    """A graph with two of its results swapped, which are `early` and `late` among them."""

    early: int
    late: int
    make: Callable[[], Graph]


def changes_of(graph: Graph, source: random.Random, factors: Sequence[float], operands: int) -> Iterator[Change]:
    """Yield changes of each step: a constant times a factor, another operand of the same type, a dropped addend.

    At most `operands` others are drawn for each operand, from the inputs and from earlier steps.
    """
    specs: dict[str, Any] = {port.local: port.spec for port in graph.inputs}
    specs |= {step.name: step.spec for step in graph.steps}
    known: dict[Any, list[str]] = {}
    for port in graph.inputs:
        known.setdefault(type_of(port.spec), []).append(port.local)
    for index, step in enumerate(graph.steps):
        if step.is_guard:
            continue
        for place, value in enumerate(step.args):
            before, after = step.args[:place], step.args[place + 1 :]
            if type(value) is float and value:
                for factor in factors:
                    other = replace(step, args=(*before, value * factor, *after))
                    yield Change(f"constant x{factor}", index, partial(with_step, graph, index, other))
            if type(value) is Ref:
                alike = [name for name in known.get(type_of(specs[value.name]), ()) if name != value.name]
                for name in source.sample(alike, min(operands, len(alike))):
                    other = replace(step, args=(*before, Ref(name), *after))
                    yield Change("another operand", index, partial(with_step, graph, index, other))
        first, second = (*step.args, None, None)[:2]
        if step.target == "aten.add.Tensor" and type(first) is Ref and type(second) is Ref:
            for kept in (first, second):
                if type_of(specs[kept.name]) == type_of(step.spec):
                    alias = replace(step, target="aten.alias.default", args=(kept,), kwargs=())
                    yield Change("dropped addend", index, partial(with_step, graph, index, alias))
        known.setdefault(type_of(step.spec), []).append(step.name)


def with_step(graph: Graph, index: int, *steps: Step) -> Graph:
    """Return the graph with other steps in the place of one."""
    return replace(graph, steps=(*graph.steps[:index], *steps, *graph.steps[index + 1 :]))


def swaps_of(graph: Graph) -> Iterator[Swap]:
    """Yield the graph with two different results of one type swapped, for each two."""
    for late, result in enumerate(graph.results):
        for early in range(late):
            other = graph.results[early]
            alike = type_of(graph.outputs[early].spec) == type_of(graph.outputs[late].spec)
            if type(result) is Ref and type(other) is Ref and result != other and alike:
                results = list(graph.results)
                results[early], results[late] = result, other
                yield Swap(early, late, partial(replace, graph, results=tuple(results)))


def type_of(spec: Any) -> Any:
    """Return the shape and the dtype of a tensor; what equals nothing else for another value."""
    return (spec.shape, spec.dtype) if isinstance(spec, TensorSpec) else object()
