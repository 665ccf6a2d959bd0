"""The least work that the results of a graph take, computed from the graph alone: floating-point operations and bytes.

Bytes are counted for a program that keeps every intermediate value in registers or caches: each input is read once from
memory, and each output is written once. No bytes are counted for an input that is unused, that is returned unchanged,
of which only the shape is used (`zeros_like`), or that the output mask of a backward leaves out. If all uses of an
input read only parts of it (slices, rows of an embedding, targets of a loss), only these parts are counted. Every index
then counts as one element or row, so parts that overlap count twice; but an input never counts more than its size. An
expanded tensor counts the memory that it occupies, not its number of elements. An output that is a view of an input
counts nothing; several outputs that are views of one value count together as much as that value.

Floating-point operations are those of products (`tools/cost/costs`), without dead code. A compiler that simplifies an
expression, or computes a repeated one only once, may need fewer operations. This module does not import torch.

A spec is the type of a value: of a tensor its dtype, shape, strides and offset. `specs` are those of all values by
name. A value's base is the value whose memory it uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from backprint.graph.nouns import Graph, Ref, Spec, Step, Value, refs
from backprint.graph.sizes import at_example_sizes, unguarded_graph
from backprint.graph.steps import free, mapped, specs_of, with_names
from backprint.tools.cost.costs import (
    MOST_FLOPS,
    Specs,
    argument,
    convolution_backward,
    distinct_bytes,
    flops_of,
    graphs_in,
    is_view,
    read_at,
    shape,
    slices_of,
    values_read,
)


@dataclass(frozen=True, slots=True)
class Work:
    """The least floating-point operations and bytes. A sparse tensor counts no bytes."""

    flops: int
    bytes: int


def least_work(graph: Graph) -> Work:
    """Return the least work of one graph, at its captured sizes."""
    graph = unguarded_graph(graph)
    return work_of(graph_flops(graph), _flow_of(graph))


def least_step_work(forward: Graph, backward: Graph) -> Work:
    """Return the least work of a forward and its backward as one program: saved values are intermediate values, which
    are neither written nor read, and an input that both use is read once."""
    forward, backward = unguarded_graph(forward), unguarded_graph(backward)
    return work_of(graph_flops(forward) + graph_flops(backward), _joined_flow(forward, backward))


# ------------------------------------------------------------------ FLOPs


def graph_flops(graph: Graph) -> int:
    """Return the least FLOPs of a graph. A `cond` and a `while_loop` count none: a branch may compute nothing, and a
    loop may end at once. Any other step with subgraphs counts these, a `scan` once for each slice, if it has no FLOPs
    of its own, as `flex_attention` has."""
    fixed, total = at_example_sizes(graph), 0
    specs, subgraphs = specs_of(fixed), dict(fixed.subgraphs)
    for step in fixed.steps:
        if step.target.endswith((".cond", ".while_loop")):
            continue
        inner = sum(map(graph_flops, graphs_in(step, subgraphs))) * slices_of(step, specs)
        total += least_flops(step, specs) or inner
    return total


def least_flops(step: Step, specs: Specs) -> int:
    """Return the FLOPs of a step, without those that torch's counter has too many: each group of a convolution has a
    weight gradient of its own, and a query of causal attention meets only the keys up to its own position."""
    name = step.target.split(".")[1] if step.target.startswith("aten.") else ""
    count = flops_of(step, specs)
    if name == "convolution_backward" and isinstance(groups := argument(step, 9), int):  # the argument `groups`
        return min(convolution_backward(step, specs, max(groups, 1)), count)
    if name in CAUSAL and argument(step, CAUSAL[name]) is True:
        query_place = 1 if name.endswith("_backward") else 0  # a backward takes the incoming gradient first
        query_shape, key_shape = (shape(argument(step, place), specs) for place in (query_place, query_place + 1))
        if min(len(query_shape), len(key_shape)) > 1 and query_shape[-2] > 0 and key_shape[-2] > 0:
            queries, keys = query_shape[-2], key_shape[-2]
            # The share of all pairs of a query and a key in which the key is not later.
            met = sum(min(position + 1, keys) for position in range(queries))
            return count * met // (queries * keys)
    return count


CAUSAL = {
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_flash_attention_for_cpu": 4,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_cudnn_attention": 6,
    "_scaled_dot_product_flash_attention_backward": 11,
    "_scaled_dot_product_flash_attention_for_cpu_backward": 7,
    "_scaled_dot_product_efficient_attention_backward": 11,
    "_scaled_dot_product_cudnn_attention_backward": 14,
}
"""The position of the argument `is_causal` of each attention."""


# ------------------------------------------------------------------ the graph, or both graphs, as one list of steps


@dataclass(frozen=True, slots=True)
class _GraphFlow:
    """The inputs, steps and results of a program, as names. Its bytes are counted from them.

    `specs` has the spec of each value. `bases` has, for a view, the value whose memory it uses, and else the value
    itself.
    """

    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    results: tuple[str, ...]
    specs: Mapping[str, Spec]
    bases: Mapping[str, str]


def _flow_of(graph: Graph) -> _GraphFlow:
    """Return the _GraphFlow of one graph."""
    results = tuple(name for result in graph.results for name in refs(result))
    return _flow_with_bases(specs_of(graph), tuple(port.local for port in graph.inputs), graph.steps, results)


def _flow_with_bases(
    specs: Mapping[str, Spec], inputs: tuple[str, ...], steps: tuple[Step, ...], results: tuple[str, ...]
) -> _GraphFlow:
    """Return a _GraphFlow, after finding the base of each value: the base of its first argument for a view, and for an
    item of views such as those of a `split`; else the value itself."""
    bases: dict[str, str] = {name: name for name in inputs}
    views: set[str] = set()
    for step in steps:
        parent = next(refs(argument(step, 0)), None)
        is_part_of_views = step.target == "operator.getitem" and parent in views  # one of the views of a `split`
        if parent is not None and (is_part_of_views or is_view(step, specs)):
            views.add(step.name)
            bases[step.name] = bases[parent]
        else:
            bases[step.name] = step.name
    return _GraphFlow(inputs, steps, results, specs, bases)


def _joined_flow(forward: Graph, backward: Graph) -> _GraphFlow:
    """Return the _GraphFlow of a forward followed by its backward, which reads the saved values.

    Names of the backward that the forward has too are replaced by free ones. What is saved is no result.
    """
    forward_results = list(zip(forward.outputs, forward.results, strict=True))
    # The value in the flow that each name of the backward stands for.
    values, inputs_of_backward_only = backward_inputs(forward, backward)
    specs = specs_of(forward)
    for name, spec in specs_of(backward).items():
        if name not in values:
            new_name = free(name, specs)
            values[name], specs[new_name] = Ref(new_name), spec

    def value_in_flow(name: str) -> Value:
        return values[name]

    steps = tuple(replace(mapped(step, value_in_flow), name=_name_of_ref(values[step.name])) for step in backward.steps)
    inputs = (
        *(port.local for port in forward.inputs),
        *(_name_of_ref(values[name]) for name in inputs_of_backward_only),
    )
    results = [result for port, result in forward_results if port.role != "saved"]
    results += [with_names(result, value_in_flow) for result in backward.results]
    return _flow_with_bases(
        specs, inputs, (*forward.steps, *steps), tuple(name for result in results for name in refs(result))
    )


def backward_inputs(forward: Graph, backward: Graph) -> tuple[dict[str, Value], list[str]]:
    """Return the inputs of the backward that are values of the forward, by their names in the backward, each with that
    value (a constant, if the forward saves one); and the names of the other inputs, such as tangents."""
    forward_results = zip(forward.outputs, forward.results, strict=True)
    saved = {port.name: result for port, result in forward_results if port.role == "saved"}
    ports: dict[str, Value] = {port.name: Ref(port.local) for port in forward.inputs}
    values: dict[str, Value] = {}
    for port in backward.inputs:
        if port.role == "saved" and port.name in saved:
            values[port.local] = saved[port.name]
        elif port.role != "tangent" and port.name in ports:
            values[port.local] = ports[port.name]
    return values, [port.local for port in backward.inputs if port.local not in values]


def _name_of_ref(value: Value) -> str:
    """Return the name that a value refers to. The value must be a single Ref."""
    return next(refs(value))


# ------------------------------------------------------------------ bytes


def work_of(flops: int, flow: _GraphFlow) -> Work:
    """Return the Work of a program: its FLOPs, which are known, and the bytes that it moves, each at most as large as a
    column of a table can hold."""
    return Work(min(flops, MOST_FLOPS), min(read_bytes(flow) + written_bytes(flow), MOST_FLOPS))


def read_bytes(flow: _GraphFlow) -> int:
    """Return the bytes that the steps read from the inputs, each byte of memory counted once, as far as that is
    known; of an input no more than its size."""
    inputs = set(flow.inputs)
    reads: dict[str, dict[object, int]] = {}  # by input: the bytes of each part of it
    for step in flow.steps:
        if flow.bases[step.name] != step.name:
            continue  # a view reads nothing itself; the steps that use it do
        for position, name in values_read(step):
            base = flow.bases.get(name, name)
            if base in inputs:
                count = read_at(step, position, name, flow.specs)
                # The spec of a view (shape, strides and offset) tells which bytes of its base it covers. All steps that
                # read the whole of views with one spec read the same bytes, which count once. A step that reads only a
                # part of a view may read another part than other steps do, so each such step counts.
                part = flow.specs[name] if count == distinct_bytes(flow.specs[name]) else step.name
                parts = reads.setdefault(base, {})
                parts[part] = max(count, parts.get(part, 0))
    return sum(min(distinct_bytes(flow.specs[base]), sum(parts.values())) for base, parts in reads.items())


def written_bytes(flow: _GraphFlow) -> int:
    """Return the bytes of all results that do not share memory with inputs, each byte of memory counted once."""
    inputs = set(flow.inputs)
    writes: dict[str, dict[Spec, int]] = {}  # by base: the bytes of each part of it
    for name in flow.results:
        base = flow.bases.get(name, name)
        if base not in inputs:
            spec = flow.specs[name]  # results with one base and one spec are the same bytes
            writes.setdefault(base, {})[spec] = distinct_bytes(spec)
    return sum(min(distinct_bytes(flow.specs[base]), sum(parts.values())) for base, parts in writes.items())
