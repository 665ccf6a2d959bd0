"""Cut a forward before given steps: the parts, with the values that each takes and makes. No tensors are needed.

Memory that is not initialized crosses no border: an allocation belongs to the part that fills it. Not handled: symbolic
sizes (`graph.fixed.at_capture` replaces them first), and cuts through an update in place.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from backprint.errors import GraphError, RefusedError
from backprint.fx.uninitialised import uninitialized_values
from backprint.graph.nouns import Graph, Port, Step, TensorSpec, Value, refs
from backprint.graph.steps import live, used
from backprint.graph.table import operators

FOLLOWS = ("operator.getitem", "aten.detach.default", "aten.alias.default")
"""Steps that stay in the part of their argument: an item of a result, and an alias of a value."""


@dataclass(frozen=True, slots=True)
class ForwardPart:
    """One part of a forward: its steps, and its input values by local name.

    `gives` are the values that later parts take. `results` are the outputs and mutations of the whole that are complete
    with this part.
    """

    index: int
    start: int
    stop: int
    steps: tuple[Step, ...]
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    results: tuple[tuple[Port, Value], ...]

    @property
    def holds(self) -> frozenset[str]:
        """The values that this part takes or makes."""
        return frozenset((*self.takes, *(step.name for step in self.steps if not step.is_guard)))


def forwards(graph: Graph, cuts: Sequence[int]) -> tuple[ForwardPart, ...]:
    """Return the parts of a forward that is cut before the steps with these numbers."""
    if graph.symbols:
        raise GraphError("a graph with symbolic sizes cannot be cut: replace them by the captured sizes first")
    places = sorted({0, len(graph.steps), *(cut for cut in cuts if 0 < cut < len(graph.steps))})
    home = homes(graph, places)
    kept = [(number, step) for number, step in enumerate(graph.steps) if step.is_guard or step.name in home]
    stands = [home_of(number, step, home, places) for number, step in kept]
    taken: dict[int, dict[str, None]] = {index: {} for index in range(len(places) - 1)}
    for (_, step), index in zip(kept, stands, strict=True):
        for name in used(step):
            if home.get(name, -1) != index:
                taken[index][name] = None
    check_updates(kept, home, stands)
    check_initialized(graph, home, taken)
    check_numbers(graph, home, taken)
    owner = dict(home)
    for index, names in taken.items():
        for name in names:
            owner.setdefault(name, index)
    parts = []
    for index, (start, stop) in enumerate(pairwise(places)):
        steps = tuple(step for (_, step), there in zip(kept, stands, strict=True) if there == index)
        results = tuple(
            (port, result)
            for port, result in zip(graph.outputs, graph.results, strict=True)
            if port.role != "saved" and max((owner.get(name, 0) for name in refs(result)), default=0) == index
        )
        takes = dict(taken[index])
        for _, result in results:
            takes |= {name: None for name in refs(result) if home.get(name, -1) != index}
        parts.append(ForwardPart(index, start, stop, steps, tuple(takes), (), results))
    return with_gives(parts)


def homes(graph: Graph, places: Sequence[int]) -> dict[str, int]:
    """Return the number of the part that makes each value: its step's, but an item of a result belongs to the result's
    part, and a view of an input, or memory that is not initialized, to the first part that takes it.

    A value that is made only for the backward is left out: the part whose backward needs it makes it.
    """
    needed = {step.name for step in ahead(graph).steps}
    home: dict[str, int] = {}
    for number, step in enumerate(graph.steps):
        if not step.is_guard and step.name in needed:
            names = used(step)
            follows = step.target in FOLLOWS and len(names) == 1 and names[0] in home
            home[step.name] = home[names[0]] if follows else bisect(places, number) - 1
    late, takers = views_of_inputs(graph) | movable(graph), dict[str, int]()
    for number, step in reversed(list(enumerate(graph.steps))):
        if not step.is_guard and step.name not in home:
            continue
        if step.name in late and step.name in takers:
            home[step.name] = takers[step.name]
        here = home_of(number, step, home, places)
        takers |= {name: min(here, takers.get(name, here)) for name in used(step)}
    return home


def views_of_inputs(graph: Graph) -> set[str]:
    """Return the values that are views of inputs, directly or through views; none if a step updates a value in
    place."""
    if any("m" in flags_of(step) for step in graph.steps):
        return set()
    inputs, views = {port.local for port in graph.inputs}, set[str]()
    for step in graph.steps:
        if "v" in flags_of(step) and used(step) and set(used(step)) <= inputs | views:
            views.add(step.name)
    return views


def movable(graph: Graph) -> set[str]:
    """Return the values of uninitialized memory whose steps may run later: they neither draw nor write in place."""
    bare = uninitialized_values(graph).made
    return {step.name for step in graph.steps if step.name in bare and not set("rm") & set(flags_of(step))}


def flags_of(step: Step) -> str:
    """Return the flags of a step's operator."""
    return operators().get(step.target, "")


def ahead(graph: Graph) -> Graph:
    """Return the forward without its saved values, and without the steps that only those need."""
    kept = [(port, result) for port, result in zip(graph.outputs, graph.results, strict=True) if port.role != "saved"]
    return live(replace(graph, outputs=tuple(port for port, _ in kept), results=tuple(result for _, result in kept)))


def home_of(number: int, step: Step, home: Mapping[str, int], places: Sequence[int]) -> int:
    """Return the number of a step's part. A guard stays where it is."""
    return bisect(places, number) - 1 if step.is_guard else home[step.name]


def with_gives(parts: Sequence[ForwardPart]) -> tuple[ForwardPart, ...]:
    """Set `gives` of each part to the values that it makes and later parts take."""
    made = {step.name: part.index for part in parts for step in part.steps if not step.is_guard}
    gives: dict[int, dict[str, None]] = {part.index: {} for part in parts}
    for part in parts:
        for name in part.takes:
            if name in made:
                gives[made[name]][name] = None
    return tuple(replace(part, gives=tuple(gives[part.index])) for part in parts)


def check_numbers(graph: Graph, home: Mapping[str, int], taken: Mapping[int, Mapping[str, None]]) -> None:
    """Refuse a cut between a number that is read from a tensor and the steps that use it: parts pass tensors."""
    specs = {step.name: step.spec for step in graph.steps}
    for names in taken.values():
        for name in names:
            if name in home and not isinstance(specs[name], TensorSpec):
                raise RefusedError(
                    f"{name!r} is not a tensor, and a cut separates it from the steps that use it: cut before or after "
                    "them"
                )


def check_initialized(graph: Graph, home: Mapping[str, int], taken: Mapping[int, Mapping[str, None]]) -> None:
    """Refuse a cut between memory that is not initialized and the steps that write or read it in several parts."""
    bare = uninitialized_values(graph).left
    for names in taken.values():
        for name in names:
            if name in home and name in bare:
                raise RefusedError(
                    f"a cut between {name!r}, whose elements are not all written yet, and a step that takes it: cut "
                    "before or after both"
                )


def check_updates(steps: Sequence[tuple[int, Step]], home: Mapping[str, int], stands: Sequence[int]) -> None:
    """Refuse a cut between a value and the step that updates it, or a view of it, in place."""
    base: dict[str, str] = {}
    for (_, step), index in zip(steps, stands, strict=True):
        first = next(iter(used(step)), "")
        if set("mv") & set(flags_of(step)) or step.target in FOLLOWS:
            base[step.name] = base.get(first, first)
        if "m" not in flags_of(step):
            continue
        changed = next((name for name in (first, base.get(first, first)) if home.get(name, index) != index), None)
        if changed is not None:
            raise RefusedError(
                f"a cut between {changed!r} and step {step.name!r} ({step.target}), which changes it in place: "
                "cut before both or after both"
            )
