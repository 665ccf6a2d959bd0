"""Give operators whose results have sizes that depend on values the sizes of the capture.

A capture holds such a size by a guard, so the kernels are right wherever the guards hold. `nonzero` becomes
`nonzero_static`, whose result has a size that is given; selections by a mask become selections by its places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx

from backprint.graph.nouns import TensorSpec

aten = torch.ops.aten

MASKS = ("bool", "uint8")


def with_known_sizes(module: fx.GraphModule) -> str:
    """Rewrite a graph whose nodes have their annotations; say which operators now have a size of the capture."""
    found: dict[str, None] = {}
    for node in module.graph.nodes:
        spec = node.meta.get("spec")
        if node.op == "call_function" and node.target in SIZED and isinstance(spec, TensorSpec):
            if node.target is aten.index.Tensor and not has_one_mask(node):
                continue
            found[str(node.target)] = None
            node.target, node.kwargs = SIZED[node.target], {**node.kwargs, "shape": tuple(map(int, spec.shape))}
    module.recompile()
    return f"{', '.join(found)}: the size is that of the capture, which its guards hold" if found else ""


def has_one_mask(node: fx.Node) -> bool:
    """Whether a mask is the only index of a call: how many places it has can then be read from the result's shape."""
    specs = [each.meta.get("spec") for each in node.args[1] if isinstance(each, fx.Node)]
    kinds = [spec.dtype in MASKS for spec in specs if isinstance(spec, TensorSpec) and math.prod(spec.shape) != 1]
    return kinds == [True]


def nonzero(value: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the places that are not zero: as many as the shape says."""
    return aten.nonzero_static(value, size=shape[0])


def masked_select(value: Tensor, mask: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the values at the places of a mask."""
    value, mask = torch.broadcast_tensors(value, mask)
    return value.reshape(-1)[nonzero(mask.reshape(-1), shape).squeeze(1)]


def index(value: Tensor, indices: Sequence[Tensor | None], shape: Sequence[int]) -> Tensor:
    """Return the values at indices; the mask among them stands for its places."""
    given: list[Tensor | None] = []
    for each in indices:
        if each is not None and each.dtype in (torch.bool, torch.uint8):
            given += nonzero(each, [shape[first_indexed(indices)]]).unbind(1)
        else:
            given.append(each)
    return aten.index.Tensor(value, given)


def first_indexed(indices: Sequence[Tensor | None]) -> int:
    """Return the dimension of a result that the indices take: the first, if they do not lie together."""
    places = [place for place, each in enumerate(indices) if each is not None]
    return places[0] if places[-1] - places[0] == len(places) - 1 else 0


def repeat_interleave(repeats: Tensor, shape: Sequence[int], output_size: int | None = None) -> Tensor:
    """Return each place as often as `repeats` says."""
    return aten.repeat_interleave.Tensor(repeats, output_size=shape[0])


SIZED: Mapping[Any, Callable[..., Tensor]] = MappingProxyType(
    {
        aten.nonzero.default: nonzero,
        aten.masked_select.default: masked_select,
        aten.index.Tensor: index,
        aten.repeat_interleave.Tensor: repeat_interleave,
    }
)
"""Operator -> the same with the shape of its result as a further argument."""
