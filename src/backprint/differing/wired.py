"""A graph as numbers: what each value is without names, what it takes, and what takes it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backprint.graph.canonical import versions
from backprint.graph.folding.fold import block_of
from backprint.graph.nouns import (
    Dict,
    Graph,
    List,
    Ref,
    ScalarSpec,
    Size,
    Slice,
    Spec,
    Step,
    Sub,
    TensorSpec,
    Value,
    leaves,
    refs,
)
from backprint.graph.steps import used

OUT = -1
"""In place of a step that takes a value: the graph returns it."""

Numbers = dict[Any, int]
"""What was met, each with a number; shared by both graphs, so that equal numbers mean the same."""


@dataclass(frozen=True, slots=True)
class Wired:
    """The values of a graph, its inputs first, then its steps. A value is its number in this order."""

    graph: Graph
    places: Mapping[str, int]
    takes: Sequence[tuple[int, ...]]
    users: Sequence[Sequence[tuple[int, int]]]
    """Of each value what takes it, a value or OUT, and where among that one's arguments, or what port it is."""
    strict: Sequence[int]
    """What a value is: operator, constants and type of a step, role and type of an input."""
    loose: Sequence[int]
    """The same without constants and types."""
    said: Said

    @property
    def first(self) -> int:
        """The value of the first step; those before it are inputs."""
        return len(self.graph.inputs)

    def step_of(self, value: int) -> Step:
        """Return the step that makes a value."""
        return self.graph.steps[value - self.first]

    def module(self, value: int) -> str:
        """Return the module that a value was made in."""
        source = self.step_of(value).source if value >= self.first else None
        return source.module if source is not None else ""

    def block(self, value: int) -> str:
        """Return its module up to the last number: the layer."""
        return block_of(self.step_of(value)) if value >= self.first else ""


def wired(graph: Graph, numbers: Numbers) -> Wired:
    """Return a graph as numbers."""
    first = len(graph.inputs)
    places = {port.local: place for place, port in enumerate(graph.inputs)}
    places |= {step.name: first + place for place, step in enumerate(graph.steps) if not step.is_guard}
    takes: list[tuple[int, ...]] = [()] * first
    users: list[list[tuple[int, int]]] = [[] for _ in range(first + len(graph.steps))]
    for place, step in enumerate(graph.steps, first):
        taken = tuple(places[name] for name in used(step))
        takes.append(taken)
        for count, value in enumerate(taken):
            users[value].append((place, count))
    for port, result in zip(graph.outputs, graph.results, strict=True):
        end = number_of((port.role, port.name if port.role != "saved" else ""), numbers)
        for name in refs(result):
            users[places[name]].append((OUT, end))
    said = Said(graph)
    strict = [number_of((port.role, said.spec(port.spec)), numbers) for port in graph.inputs]
    strict += [number_of(said.step_without_names(step, place), numbers) for place, step in enumerate(graph.steps)]
    loose = [number_of((port.role,), numbers) for port in graph.inputs]
    loose += [number_of((step.target,), numbers) for step in graph.steps]
    return Wired(graph, places, takes, users, strict, loose, said)


def number_of(what: Any, numbers: Numbers) -> int:
    """Return the number of something, a new one if it was not met."""
    return numbers.setdefault(what, len(numbers))


def widened_labels(graph: Wired, labels: Sequence[int], numbers: Numbers) -> list[int]:
    """Return what each value is, together with what its neighbors are."""
    found = []
    for value, label in enumerate(labels):
        below = sorted((labels[user] if user != OUT else OUT, place) for user, place in graph.users[value])
        found.append(number_of((label, tuple(labels[each] for each in graph.takes[value]), tuple(below)), numbers))
    return found


# ------------------------------------------------------------------ what stands in a step, without names


class Said:
    """What steps and types are without the names of one graph: symbols are numbered as its inputs and steps use
    them."""

    def __init__(self, graph: Graph) -> None:
        self.hashes = {name: sub.hash() for name, sub in graph.subgraphs}
        self.versions = versions(graph)
        self.symbols = dict.fromkeys((symbol.name for symbol in graph.symbols), "")
        self.used = 0

    def step_without_names(self, step: Step, place: int) -> Any:
        """Return the operator of a step, its arguments without names, its type, how often the values that it takes were
        changed before, and its subgraphs."""
        changed = tuple(self.versions.get((place, name), 0) for name in used(step)) if self.versions else ()
        called = tuple(self.hashes[name] for name in subgraphs_of(step)) if self.hashes else ()
        return step.target, self.arguments(step), self.spec(step.spec), changed if any(changed) else (), called

    def arguments(self, step: Step) -> Any:
        """Return the constants of a step, each with its place."""
        return tuple(map(self.value, step.args)), tuple((key, self.value(value)) for key, value in step.kwargs)

    def value(self, value: Value) -> Any:
        """Return an argument without names. Texts tell True from 1, -0.0 from 0.0, and find nan equal to itself."""
        match value:
            case Ref():
                return "*"
            case Sub():
                return "sub"  # which one, `step_without_names` tells apart
            case tuple():
                return ("tuple", *map(self.value, value))
            case List(items):
                return ("list", *map(self.value, items))
            case Slice(start, stop, step):
                return ("slice", self.value(start), self.value(stop), self.value(step))
            case Dict(items):
                return ("dict", *((self.value(key), self.value(item)) for key, item in items))
        return type(value).__name__, repr(value)

    def spec(self, spec: Spec) -> Any:
        """Return a type without the names of symbols."""
        if not self.symbols:
            return spec
        match spec:
            case tuple():
                return tuple(map(self.spec, spec))
            case ScalarSpec(kind, expression) if expression:
                return kind, self.size(expression)
            case TensorSpec(dtype, shape, stride, offset, device, layout) if symbolic(spec):
                strides = None if stride is None else tuple(map(self.size, stride))
                return dtype, tuple(map(self.size, shape)), strides, self.size(offset), device, layout
        return spec

    def size(self, size: Size) -> Size:
        """Return a size with symbols by number."""
        return re.sub(r"[A-Za-z_]\w*", self.renamed, size) if isinstance(size, str) else size

    def renamed(self, found: re.Match[str]) -> str:
        if self.symbols.get(found[0]) == "":
            self.symbols[found[0]] = f"${self.used}"
            self.used += 1
        return self.symbols.get(found[0], found[0])


def symbolic(spec: TensorSpec) -> bool:
    """Whether a type has sizes that are not numbers."""
    return any(isinstance(size, str) for size in (*spec.shape, *(spec.stride or ()), spec.offset))


def subgraphs_of(step: Step) -> list[str]:
    """Return the subgraphs that a step calls, in the order of its arguments."""
    values = (*step.args, *(value for _, value in step.kwargs))
    return [leaf.name for value in values for leaf in leaves(value) if isinstance(leaf, Sub)]
