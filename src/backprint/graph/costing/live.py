"""The memory time line of a Pair: which bytes live during each step of the forward, then of the backward.

Storages count, not tensors: a view has no memory of its own. A storage lives from the step that makes it to the last
step that uses a value in it. What the forward saves lives until its last use in the backward; mutations live to the end
of their graph, when they are written back; outputs, gradients and tangents live to the end, because the caller holds
them. Parameters, buffers, inputs and constants live throughout: they are told apart, in `held`, and the curve leaves
them out. What operators take while they run is not in a graph's text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate

from backprint.graph.costing.products import argument
from backprint.graph.costing.storages import (
    NEW,
    Storages,
    each_storage,
    fresh,
    sizes_in,
    sizes_made,
    storages_made,
    types_with_items,
)
from backprint.graph.nouns import Graph, Pair, Ref, Spec, Step, refs
from backprint.graph.shown import number_of
from backprint.graph.sizes import at_hints
from backprint.graph.steps import used

HELD = ("parameter", "buffer", "input", "constant", "rng")
"""Roles of inputs that the caller holds throughout."""

RANKS = ("temporary", "saved", "mutation", "gradient", "output", "tangent")
"""Roles of what lives for a while: of a storage that has several, the last counts."""


@dataclass(frozen=True, slots=True)
class LiveSpan:
    """A storage, and the steps during which it lives, counted from the forward's first on through the backward.

    `value` is the value that it was made for (`split[1]`: the second of a tuple). `role` is one of `temporary`,
    `saved`, `mutation`, `gradient`, `output`, `tangent`; of what the caller holds, that of its port. A `last` equal to
    the number of steps says that it is still there after the last of them.
    """

    value: str
    direction: str
    bytes: int
    first: int
    last: int
    role: str


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """The memory time line of a Pair. `during` and `after` have the bytes that live while each step runs and after it:
    the forward's `forward_steps` steps, then the backward's; `held`, which the caller holds throughout, not counted."""

    forward_steps: int
    spans: tuple[LiveSpan, ...]
    held: tuple[LiveSpan, ...]
    during: tuple[int, ...]
    after: tuple[int, ...]

    def __repr__(self) -> str:
        spans, steps = number_of(len(self.spans), "span"), number_of(len(self.during), "step")
        return f"MemoryLine({steps}, {spans}, peak of {self.peak_bytes:,} bytes at step {self.peak})"

    @property
    def peak(self) -> int:
        """The first step during which most bytes live; 0 where there is no step."""
        return self.during.index(max(self.during)) if self.during else 0

    @property
    def peak_bytes(self) -> int:
        """The bytes that live during the peak."""
        return max(self.during, default=0)

    @property
    def held_bytes(self) -> int:
        """The bytes of parameters, buffers, inputs and constants."""
        return sum(span.bytes for span in self.held)

    def holders(self, index: int) -> tuple[LiveSpan, ...]:
        """Return what lives while a step runs, the largest first."""
        living = (span for span in self.spans if span.first <= index <= span.last)
        return tuple(sorted(living, key=lambda span: -span.bytes))


@dataclass(slots=True)
class LivingStorage:
    """A LiveSpan that is being followed: it grows with each use."""

    value: str
    direction: str
    bytes: int
    first: int
    last: int
    role: str


def memory_line(pair: Pair) -> MemoryLine:
    """Return the memory time line of a Pair, at its captured sizes."""
    forward, backward = at_hints(pair.forward), at_hints(pair.backward) if pair.backward else None
    border = len(forward.steps)
    end = border + (len(backward.steps) if backward else 0)
    found: dict[str, LivingStorage] = {}
    values = follow(forward, "forward", (0, border, end), {}, found)
    if backward is not None:
        follow(backward, "backward", (border, end, end), carried(forward, backward, values), found)
    rows = [LiveSpan(row.value, row.direction, row.bytes, row.first, row.last, row.role) for row in found.values()]
    own = tuple(span for span in rows if span.role in RANKS and span.bytes)
    held = tuple(span for span in rows if span.role not in RANKS and span.bytes)
    return MemoryLine(border, own, held, *curve(own, end))


def follow(
    graph: Graph,
    direction: str,
    times: tuple[int, int, int],
    values: Mapping[str, Storages],
    found: dict[str, LivingStorage],
) -> dict[str, Storages]:
    """Add the storages of a graph to those found, and return those of its values.

    `times` are the graph's first step, the step after its last, and the step after the last of all.
    """
    start, stop, end = times
    specs, values = types_with_items(graph), dict(values)
    for port in graph.inputs:
        if port.local not in values:
            role = port.role if port.role in ("tangent", *HELD) else "input"
            like = LivingStorage("", direction, 0, start if role == "tangent" else 0, end, role)
            values[port.local] = born(port.local, port.spec, sizes_in(port.local, port.spec), like, found)
    for time, made in enumerate(graph.steps, start):
        if made.is_guard:
            continue
        storages = storages_made(made, values, specs)
        if storages is NEW:
            sizes = {key: found[key].bytes for key in each_storage(values.get(first_of(made)))}
            like = LivingStorage("", direction, 0, time, time, "temporary")
            storages = born(made.name, specs.get(made.name), sizes_made(made, values, specs, sizes), like, found)
        values[made.name] = storages
        for name in (*used(made), made.name):
            use(values[name], time, "temporary", found)
    for port, result in zip(graph.outputs, graph.results, strict=True):
        last = end if port.role in ("output", "gradient") else stop - 1
        for name in refs(result):
            use(values[name], last, port.role, found)
    return values


def born(
    name: str, spec: Spec, sizes: Iterable[tuple[str, int]], like: LivingStorage, found: dict[str, LivingStorage]
) -> Storages:
    """Add the storages of a value, and return them."""
    for label, size in sizes:
        found[f"{like.direction} {label}"] = replace(like, value=label, bytes=size)
    return fresh(f"{like.direction} {name}", spec)


def first_of(made: Step) -> str:
    """Return the name of a step's first argument; '' if it is none."""
    first = argument(made, 0)
    return first.name if isinstance(first, Ref) else ""


def use(storages: Storages, time: int, role: str, found: Mapping[str, LivingStorage]) -> None:
    """Note that a value is used at a time, and as what."""
    for key in each_storage(storages):
        row = found[key]
        row.last = max(row.last, time)
        if row.role in RANKS and RANKS.index(role) > RANKS.index(row.role):
            row.role = role


def carried(forward: Graph, backward: Graph, values: Mapping[str, Storages]) -> dict[str, Storages]:
    """Return the storages of the backward's inputs that the forward has: what it saved, and its own inputs."""
    ends = zip(forward.outputs, forward.results, strict=True)
    saved = {port.name: name for port, result in ends if port.role == "saved" for name in refs(result)}
    given = {port.name: port.local for port in forward.inputs}
    found: dict[str, Storages] = {}
    for port in backward.inputs:
        name = saved.get(port.name) if port.role == "saved" else given.get(port.name)
        if name is not None and port.role != "tangent":
            found[port.local] = values[name]
    return found


def curve(spans: Iterable[LiveSpan], end: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the bytes that live during each step, and after it."""
    born, gone = [0] * (end + 1), [0] * (end + 1)
    for span in spans:
        born[span.first] += span.bytes
        gone[span.last] += span.bytes
    made, freed = list(accumulate(born[:end])), list(accumulate(gone[:end]))
    after = tuple(here - there for here, there in zip(made, freed, strict=True))
    during = tuple(count + gone[index] for index, count in enumerate(after))
    return during, after
