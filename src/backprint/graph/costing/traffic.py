"""The bytes that a step reads and writes, from the specs of its arguments and results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from backprint.graph.costing.products import argument, int_of, numel_of, operator_name, tensors_in
from backprint.graph.nouns import List, Spec, Step, TensorSpec, refs
from backprint.graph.specs import ITEMSIZE


def memory_of(spec: Spec) -> int:
    """Return the bytes of the elements that lie at different places of memory; 0 for what is no strided tensor."""
    if not isinstance(spec, TensorSpec) or spec.layout != "strided":
        return 0
    strides = spec.stride
    if strides is None or not spec.numel or not all(isinstance(each, int) for each in (*spec.shape, *strides)):
        return spec.nbytes
    dims = [(int(size), int(stride)) for size, stride in zip(spec.shape, strides, strict=True) if stride]
    apart = math.prod(size for size, _ in dims)
    reach = 1 + sum((size - 1) * stride for size, stride in dims)
    return min(apart, reach) * ITEMSIZE[spec.dtype]


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
