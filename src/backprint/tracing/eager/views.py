"""Views of a storage: how one tensor was made from another, and how a new value of a view makes one of its parent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from backprint.graph.nouns import Ref
from backprint.tracing.eager.placement import Placement
from backprint.tracing.eager.tape import TapedCall

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class ViewOrigin:
    """How a tensor was made from another of the same storage; without a `func`, by no known operator."""

    parent: Placement
    func: Any = None
    args: tuple[Any, ...] = ()


def strided_view(parent: Placement, place: Placement) -> ViewOrigin:
    """Return a tensor by its geometry, as a view of a contiguous tensor."""
    return ViewOrigin(parent, aten.as_strided.default, (place.shape, place.stride, place.offset))


def view_origin(call: TapedCall, place: Placement, given: Sequence[Placement]) -> ViewOrigin:
    """Return how a view that a call returned was made from the tensor it views, usually the first argument."""
    parent = next(each for each in given if each.memory == place.memory)
    if call.func is not aten.as_strided.default and call.args and call.args[0] == parent and not call.kwargs:
        return ViewOrigin(parent, call.func, tuple(call.args[1:]))
    return ViewOrigin(parent)


def part_origin(call: TapedCall, index: int, place: Placement, given: Sequence[Placement]) -> ViewOrigin:
    """Return how one of several views that a call returned was made: as a slice or a selection."""
    parent = next(each for each in given if each.memory == place.memory)
    if call.func is aten.unbind.int:
        dim = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", 0)
        return ViewOrigin(parent, aten.select.int, (dim, index))
    if call.func in (aten.split.Tensor, aten.split_with_sizes.default):
        dim = call.args[2] if len(call.args) > 2 else call.kwargs.get("dim", 0)
        sizes = [each.shape[dim] for each in call.result]
        start = sum(sizes[:index])
        return ViewOrigin(parent, aten.slice.Tensor, (dim, start, start + sizes[index]))
    return ViewOrigin(parent)


# ------------------------------------------------------------------ tables


SCATTER: dict[Any, Any] = {
    aten.select.int: aten.select_scatter.default,
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.diagonal.default: aten.diagonal_scatter.default,
    aten.as_strided.default: aten.as_strided_scatter.default,
}
"""For views of a part, the operator that puts a new value in that part's place."""

Inverse = tuple[Any, tuple[Any, ...]]


def _as_parent(view: ViewOrigin, value: Ref) -> Inverse:
    return aten.view.default, (value, list(view.parent.shape))


def _unpermuted(view: ViewOrigin, value: Ref) -> Inverse:
    dims = view.args[0]
    order = [dim % len(dims) for dim in dims]
    return aten.permute.default, (value, [order.index(index) for index in range(len(order))])


INVERSE: dict[Any, Callable[[ViewOrigin, Ref], Inverse]] = {
    aten.transpose.int: lambda view, value: (aten.transpose.int, (value, *view.args)),
    aten.t.default: lambda view, value: (aten.t.default, (value,)),
    aten.permute.default: _unpermuted,
    aten.unsqueeze.default: lambda view, value: (aten.squeeze.dim, (value, *view.args)),
    aten.squeeze.default: _as_parent,
    aten.squeeze.dim: _as_parent,
    aten.squeeze.dims: _as_parent,
    aten.view.default: _as_parent,
    aten._reshape_alias.default: _as_parent,
    aten.view.dtype: lambda view, value: (aten.view.dtype, (value, view.parent.dtype)),
    aten.view_as_real.default: lambda view, value: (aten.view_as_complex.default, (value,)),
    aten.view_as_complex.default: lambda view, value: (aten.view_as_real.default, (value,)),
    aten._conj.default: lambda view, value: (aten._conj_physical.default, (value,)),
    aten._neg_view.default: lambda view, value: (aten.neg.default, (value,)),
}
"""For views of the whole tensor, the operator that makes the whole from a new value of the view."""

LAZY: dict[tuple[bool, bool], Any] = {(True, False): aten._conj.default, (False, True): aten._neg_view.default}
"""Views that are conjugated or negated when they are read."""

REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""The dtype of the parts of a complex number."""
