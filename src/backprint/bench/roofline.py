"""The least work that a graph's results take: floating-point operations and bytes, from the graph alone.

Bytes are those of a program that keeps every intermediate value where it was made: each input is read once, each output
is written once. Nothing is read of an input that is unused or handed through, of one whose shape alone counts
(`zeros_like`), or of one that a mask leaves out. Where every use of an input reads a part of it (slices, rows of an
embedding, targets of a loss), the parts are read: each index counts as an element of its own, parts that overlap count
twice, and all parts together never count more than the input. Expanded tensors have the memory that they have. An
output that is a view of an input costs nothing; outputs that are views of one value cost as much as that value.

Operations are counted as the graph computes them (`flops`), dead code apart. A compiler that computes less, because it
simplifies or sees a value twice, may take less. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from backprint.errors import UsageError
from backprint.graph.cost import (
    MOST_FLOPS,
    FlopsByDtype,
    argument,
    graph_flops,
    is_view,
    memory_of,
    places,
    read_at,
    specs_of,
    sum_by_dtype,
)
from backprint.graph.nouns import Graph, Ref, Spec, Step, Value, refs
from backprint.graph.sizes import unguarded_graph
from backprint.graph.steps import free, mapped, with_names


@dataclass(frozen=True, slots=True)
class Work:
    """The least floating-point operations and bytes. A sparse tensor counts no bytes."""

    flops: int
    bytes: int
    flops_by_dtype: FlopsByDtype = ()


def least_work(graph: Graph) -> Work:
    """Return the least work of one graph, at its captured sizes."""
    graph = unguarded_graph(graph)
    return work_of(graph_flops(graph), flow_of(graph))


def least_step_work(forward: Graph, backward: Graph) -> Work:
    """Return the least work of a forward and its backward as one: the saved values need not leave, and an input that
    both read is read once."""
    forward, backward = unguarded_graph(forward), unguarded_graph(backward)
    return work_of(sum_by_dtype((graph_flops(forward), graph_flops(backward))), joined_flow(forward, backward))


# ------------------------------------------------------------------ which values flow in and out


@dataclass(frozen=True, slots=True)
class GraphFlow:
    """Inputs, steps and results, with the spec of each value and the value whose memory it uses."""

    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    results: tuple[str, ...]
    specs: Mapping[str, Spec]
    bases: Mapping[str, str]


def flow_of(graph: Graph) -> GraphFlow:
    """Return the flow of one graph."""
    results = tuple(name for result in graph.results for name in refs(result))
    return flow(specs_of(graph), tuple(port.local for port in graph.inputs), graph.steps, results)


def flow(
    specs: Mapping[str, Spec], inputs: tuple[str, ...], steps: tuple[Step, ...], results: tuple[str, ...]
) -> GraphFlow:
    """Return a flow, and find the base of each value: the value whose memory it uses."""
    bases: dict[str, str] = {name: name for name in inputs}
    views: set[str] = set()
    for step in steps:
        parent = next(refs(argument(step, 0)), None)
        picked = step.target == "operator.getitem" and parent in views
        if parent is not None and (picked or is_view(step, specs)):
            views.add(step.name)
            bases[step.name] = bases[parent]
        else:
            bases[step.name] = step.name
    return GraphFlow(inputs, steps, results, specs, bases)


def joined_flow(forward: Graph, backward: Graph) -> GraphFlow:
    """Return the flow of a forward followed by its backward, which reads the saved values."""
    ends = list(zip(forward.outputs, forward.results, strict=True))
    values, own_inputs = backward_inputs(forward, backward)
    specs = specs_of(forward)
    for name, spec in specs_of(backward).items():
        if name not in values:
            fresh = free(name, specs)
            values[name], specs[fresh] = Ref(fresh), spec

    def joined(name: str) -> Value:
        return values[name]

    steps = tuple(replace(mapped(step, joined), name=leaf_name(values[step.name])) for step in backward.steps)
    inputs = (*(port.local for port in forward.inputs), *(leaf_name(values[name]) for name in own_inputs))
    shown = [result for port, result in ends if port.role != "saved"]
    shown += [with_names(result, joined) for result in backward.results]
    return flow(specs, inputs, (*forward.steps, *steps), tuple(name for result in shown for name in refs(result)))


def backward_inputs(forward: Graph, backward: Graph) -> tuple[dict[str, Value], list[str]]:
    """Return the forward's value for each input of the backward that has one, and the other inputs."""
    ends = zip(forward.outputs, forward.results, strict=True)
    saved = {port.name: result for port, result in ends if port.role == "saved"}
    ports: dict[str, Value] = {port.name: Ref(port.local) for port in forward.inputs}
    values: dict[str, Value] = {}
    for port in backward.inputs:
        if port.role == "saved" and port.name in saved:
            values[port.local] = saved[port.name]
        elif port.role != "tangent" and port.name in ports:
            values[port.local] = ports[port.name]
    return values, [port.local for port in backward.inputs if port.local not in values]


def leaf_name(value: Value) -> str:
    """Return the name in a value that is a single reference."""
    return next(refs(value))


# ------------------------------------------------------------------ bytes


def work_of(by_dtype: FlopsByDtype, values: GraphFlow) -> Work:
    """Return the work of a flow with these FLOPs."""
    flops = min(sum(count for _, count in by_dtype), MOST_FLOPS)
    moved = min(read_bytes(values) + written_bytes(values), MOST_FLOPS)
    return Work(flops, moved, by_dtype)


def read_bytes(values: GraphFlow) -> int:
    """Return the bytes that the steps read of inputs, each place of memory once."""
    inputs = set(values.inputs)
    reads: dict[str, dict[object, int]] = {}
    for step in values.steps:
        if values.bases[step.name] != step.name:
            continue  # a view: what uses it reads
        for place, name in places(step):
            base = values.bases.get(name, name)
            if base in inputs:
                count = read_at(step, place, name, values.specs)
                part = values.specs[name] if count == memory_of(values.specs[name]) else step.name
                parts = reads.setdefault(base, {})
                parts[part] = max(count, parts.get(part, 0))
    return sum(min(memory_of(values.specs[base]), sum(parts.values())) for base, parts in reads.items())


def written_bytes(values: GraphFlow) -> int:
    """Return the bytes of all results that do not share memory with inputs, each place of memory once."""
    inputs = set(values.inputs)
    writes: dict[str, dict[Spec, int]] = {}
    for name in values.results:
        base = values.bases.get(name, name)
        if base not in inputs:
            spec = values.specs[name]
            writes.setdefault(base, {})[spec] = memory_of(spec)
    return sum(min(memory_of(values.specs[base]), sum(parts.values())) for base, parts in writes.items())


# ------------------------------------------------------------------ what a machine reaches


@dataclass(frozen=True, slots=True)
class Peaks:
    """The most floating-point operations (float32) and bytes a second. `bytes` is memory far beyond all caches; `moves`
    has pairs of bytes and bytes a second; `flops_by_dtype` has the operations of each dtype."""

    flops: float
    bytes: float
    moves: tuple[tuple[int, float], ...] = ()
    flops_by_dtype: tuple[tuple[str, float], ...] = ()

    def flops_of(self, dtype: str) -> float:
        """Return the peak of a dtype; where it was not measured, that of float32."""
        return dict(self.flops_by_dtype).get(dtype, self.flops)

    def bytes_at(self, moved: int) -> float:
        """Return the most bytes a second of those measured sizes that are at least so many, and of the next smaller."""
        below = max((size for size, _ in self.moves if size <= moved), default=0)
        return max((rate for size, rate in self.moves if size >= below), default=self.bytes)


def share_reached(work: Work, seconds: float, peaks: Peaks) -> float:
    """Return the least time that the work takes at these peaks, as a share of the time that it took."""
    if not seconds > 0:
        raise UsageError(f"a share of {seconds!r} seconds: the time of a call is above 0")
    return least_seconds(work, peaks) / seconds


def least_seconds(work: Work, peaks: Peaks) -> float:
    """Return the time of the work's arithmetic or of its bytes, whichever is longer."""
    by_dtype = work.flops_by_dtype or (("float32", work.flops),)
    return max(
        sum(count / peaks.flops_of(dtype) for dtype, count in by_dtype),
        work.bytes / peaks.bytes_at(work.bytes),
    )
