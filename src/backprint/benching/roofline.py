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

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from backprint.benching.flops import Arithmetic, graph_arithmetic, specs_of, sum_of
from backprint.benching.formulas import int_of, numel_of, operator_name, tensors_in
from backprint.errors import UsageError
from backprint.graph.nouns import Graph, List, Ref, Spec, Step, TensorSpec, Value, refs
from backprint.graph.sizes import at_hints
from backprint.graph.specs import ITEMSIZE
from backprint.graph.steps import free, live, mapped, with_names
from backprint.graph.summary import MOST_FLOPS, argument
from backprint.graph.table import operators


@dataclass(frozen=True, slots=True)
class Work:
    """The least floating-point operations and bytes. `unknown` names operators that no formula is known for, and inputs
    and outputs whose memory is not known, such as sparse ones."""

    flops: int
    bytes: int
    unknown: tuple[str, ...] = ()
    flops_by_dtype: tuple[tuple[str, int], ...] = ()


def least_work(graph: Graph) -> Work:
    """Return the least work of one graph, at its captured sizes."""
    graph = needed_alone(graph)
    return work_of(graph_arithmetic(graph), flow_of(graph))


def least_step_work(forward: Graph, backward: Graph) -> Work:
    """Return the least work of a forward and its backward as one: the saved values need not leave, and an input that
    both read is read once."""
    forward, backward = needed_alone(forward), needed_alone(backward)
    arithmetic = sum_of((graph_arithmetic(forward), graph_arithmetic(backward)))
    return work_of(arithmetic, joined_flow(forward, backward))


def needed_alone(graph: Graph) -> Graph:
    """Return the graph at its captured sizes, without guards and dead code."""
    fixed = at_hints(graph)
    return live(replace(fixed, steps=tuple(step for step in fixed.steps if not step.is_guard)))


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
    """Return a flow, with the memory that each value uses found."""
    bases: dict[str, str] = {name: name for name in inputs}
    views: set[str] = set()
    for made in steps:
        parent = next(refs(argument(made, 0)), None)
        picked = made.target == "operator.getitem" and parent in views
        if parent is not None and (picked or is_view(made, specs)):
            views.add(made.name)
            bases[made.name] = bases[parent]
        else:
            bases[made.name] = made.name
    return GraphFlow(inputs, steps, results, specs, bases)


def joined_flow(forward: Graph, backward: Graph) -> GraphFlow:
    """Return the flow of a forward and then its backward, on what the forward saved."""
    ends = list(zip(forward.outputs, forward.results, strict=True))
    values, own = backward_inputs(forward, backward)
    specs = specs_of(forward)
    for name, spec in specs_of(backward).items():
        if name not in values:
            fresh = free(name, specs)
            values[name], specs[fresh] = Ref(fresh), spec

    def joined(name: str) -> Value:
        return values[name]

    steps = tuple(replace(mapped(made, joined), name=leaf_name(values[made.name])) for made in backward.steps)
    inputs = (*(port.local for port in forward.inputs), *(leaf_name(values[name]) for name in own))
    shown = [result for port, result in ends if port.role != "saved"]
    shown += [with_names(result, joined) for result in backward.results]
    return flow(specs, inputs, (*forward.steps, *steps), tuple(name for result in shown for name in refs(result)))


def backward_inputs(forward: Graph, backward: Graph) -> tuple[dict[str, Value], list[str]]:
    """Return the forward's value for each input of the backward that has one, and the inputs that are its own."""
    ends = zip(forward.outputs, forward.results, strict=True)
    saved = {port.name: result for port, result in ends if port.role == "saved"}
    given: dict[str, Value] = {port.name: Ref(port.local) for port in forward.inputs}
    values: dict[str, Value] = {}
    for port in backward.inputs:
        if port.role == "saved" and port.name in saved:
            values[port.local] = saved[port.name]
        elif port.role != "tangent" and port.name in given:
            values[port.local] = given[port.name]
    return values, [port.local for port in backward.inputs if port.local not in values]


def leaf_name(value: Value) -> str:
    """Return the name of a value that is one."""
    return next(refs(value))


CONVERTING = frozenset("to as_tensor cpu cuda _autocast_to_full_precision _autocast_to_reduced_precision".split())
"""Views where the dtype stays, copies where it changes."""


def is_view(made: Step, specs: Mapping[str, Spec]) -> bool:
    """Whether a step's result uses the memory of its first argument."""
    name = operator_name(made.target)
    if name == "_unsafe_view":
        return True
    if "v" not in operators().get(made.target, ""):
        return False
    given = specs.get(next(refs(argument(made, 0)), ""))
    same = isinstance(made.spec, TensorSpec) and isinstance(given, TensorSpec) and made.spec.dtype == given.dtype
    return same or name not in CONVERTING


# ------------------------------------------------------------------ bytes


def work_of(arithmetic: Arithmetic, values: GraphFlow) -> Work:
    """Return the work of a flow with this arithmetic."""
    flops = min(sum(count for _, count in arithmetic.by_dtype), MOST_FLOPS)
    moved = min(read_bytes(values) + written_bytes(values), MOST_FLOPS)
    odd = (name for name in (*values.inputs, *values.results) if not measurable(values.specs.get(name)))
    unknown = (*arithmetic.unknown, *dict.fromkeys(f"memory of {name}" for name in odd))
    return Work(flops, moved, unknown, arithmetic.by_dtype)


def measurable(spec: Spec) -> bool:
    """Whether the memory of a value follows from its spec; what is no tensor has none."""
    return not isinstance(spec, TensorSpec) or spec.layout == "strided"


def memory_of(spec: Spec) -> int:
    """Return the bytes of the elements that lie at different places of memory; 0 for what is no strided tensor."""
    if not isinstance(spec, TensorSpec) or not measurable(spec):
        return 0
    strides = spec.stride
    if strides is None or not spec.numel or not all(isinstance(each, int) for each in (*spec.shape, *strides)):
        return spec.nbytes
    dims = [(int(size), int(stride)) for size, stride in zip(spec.shape, strides, strict=True) if stride]
    apart = math.prod(size for size, _ in dims)
    reach = 1 + sum((size - 1) * stride for size, stride in dims)
    return min(apart, reach) * ITEMSIZE[spec.dtype]


def read_bytes(values: GraphFlow) -> int:
    """Return the bytes of all inputs that the steps read."""
    inputs = set(values.inputs)
    reads: dict[str, dict[object, int]] = {}
    for made in values.steps:
        if values.bases[made.name] != made.name:
            continue  # a view: what uses it reads
        for place, name in places(made):
            base = values.bases.get(name, name)
            if base in inputs:
                count = read_at(made, place, name, values.specs)
                part = values.specs[name] if count == memory_of(values.specs[name]) else made.name
                parts = reads.setdefault(base, {})
                parts[part] = max(count, parts.get(part, 0))
    return sum(min(memory_of(values.specs[base]), sum(parts.values())) for base, parts in reads.items())


def written_bytes(values: GraphFlow) -> int:
    """Return the bytes of all results that are not memory of inputs, each place of memory once."""
    inputs = set(values.inputs)
    writes: dict[str, dict[Spec, int]] = {}
    for name in values.results:
        base = values.bases.get(name, name)
        if base not in inputs:
            spec = values.specs[name]
            writes.setdefault(base, {})[spec] = memory_of(spec)
    return sum(min(memory_of(values.specs[base]), sum(parts.values())) for base, parts in writes.items())


def places(made: Step) -> Iterator[tuple[int | str, str]]:
    """Yield the values that a step takes, each with its position or keyword."""
    for place, value in enumerate(made.args):
        yield from ((place, name) for name in refs(value))
    for key, value in made.kwargs:
        yield from ((key, name) for name in refs(value))


def read_at(made: Step, place: int | str, name: str, specs: Mapping[str, Spec]) -> int:
    """Return the bytes that a step reads of an argument."""
    operator, spec = operator_name(made.target), specs.get(name)
    most = memory_of(spec)
    if place in UNREAD.get(operator, ()) or (operator == "convolution_backward" and not masked_in(made, place)):
        return 0
    if place != 0 or operator not in PICKED or not isinstance(spec, TensorSpec):
        return most
    by = PICKED[operator]
    count = numel_of(argument(made, by), specs) if by is not None else sum(each.numel for each in tensors_in(made.spec))
    if operator in BAGS:
        count *= int_of(spec.shape[-1])
    return min(most, count * ITEMSIZE[spec.dtype])


def masked_in(made: Step, place: int | str) -> bool:
    """Whether `convolution_backward` reads an argument: the input for the weight's gradient, the weight for the
    input's."""
    mask = made.args[-1] if made.args else None
    if not isinstance(mask, List) or len(mask.items) < 2:
        return True
    wanted = {1: mask.items[1], 2: mask.items[0]}
    return bool(wanted[place]) if place in wanted and isinstance(place, int) else True


UNREAD: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(
        "zeros_like ones_like full_like empty_like rand_like randn_like randint_like new_zeros new_ones new_full "
        "new_empty new_empty_strided fill zero copy bernoulli uniform normal exponential random geometric cauchy "
        "log_normal sym_size sym_stride sym_numel sym_storage_offset".split(),
        (0,),
    ),
    **dict.fromkeys(
        "nll_loss_backward nll_loss2d_backward max_pool2d_with_indices_backward max_pool3d_with_indices_backward "
        "adaptive_max_pool2d_backward adaptive_max_pool3d_backward avg_pool2d_backward avg_pool3d_backward "
        "_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward expand_as view_as reshape_as type_as".split(),
        (1,),
    ),
}
"""Arguments whose shape alone counts, or that are overwritten, by position."""

BAGS = ("_embedding_bag", "_embedding_bag_forward_only")

PICKED: Mapping[str, int | None] = {
    **dict.fromkeys(
        "embedding index _unsafe_index index_select gather take take_along_dim select_copy slice_copy narrow_copy "
        "diagonal_copy as_strided_copy".split()
    ),
    **dict.fromkeys(BAGS, 1),
    **dict.fromkeys("nll_loss_forward nll_loss2d_forward nll_loss nll_loss2d".split(), 1),
}
"""Operators that read elements of their first argument: as many as their result has, or as the argument at this
position has."""


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
