"""Give operators whose results have sizes that depend on values the sizes of the capture.

A capture holds such a size by a guard, so the kernels are right wherever the guards hold. `nonzero` becomes
`nonzero_static`, whose result has a size that is given; selections by a mask become selections by its places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx

from backprint.graph.nouns import TensorSpec

aten = torch.ops.aten

MASKS = (torch.bool, torch.uint8)


def with_known_sizes(module: fx.GraphModule) -> str:
    """Rewrite a graph whose nodes have their annotations; say which operators now have a size of the capture."""
    found: dict[str, None] = {}
    for node in module.graph.nodes:
        spec = node.meta.get("spec")
        if node.op == "call_function" and node.target in SIZED and isinstance(spec, TensorSpec):
            if node.target is aten.index.Tensor and not has_mask(node):
                continue
            found[str(node.target)] = None
            node.target, node.kwargs = SIZED[node.target], {**node.kwargs, "shape": tuple(map(int, spec.shape))}
    module.recompile()
    return f"{', '.join(found)}: the size is that of the capture, which its guards hold" if found else ""


def has_mask(node: fx.Node) -> bool:
    """Whether an index of a call is a mask."""
    specs = [each.meta.get("spec") for each in node.args[1] if isinstance(each, fx.Node)]
    return any(isinstance(spec, TensorSpec) and spec.dtype in ("bool", "uint8") for spec in specs)


def nonzero(value: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the places that are not zero: as many as the shape says."""
    return aten.nonzero_static(value, size=shape[0])


def masked_select(value: Tensor, mask: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the values at the places of a mask."""
    value, mask = torch.broadcast_tensors(value, mask)
    return value.reshape(-1)[nonzero(mask.reshape(-1), shape).squeeze(1)]


def index(value: Tensor, indices: Sequence[Tensor | None], shape: Sequence[int]) -> Tensor:
    """Return the values at indices; a mask among them stands for its places."""
    given: list[Tensor | None] = []
    masks = sum(each is not None and each.dtype in MASKS for each in indices)
    others = [each for each in indices if each is not None and each.dtype not in MASKS and each.numel() != 1]
    for each in indices:
        if each is None or each.dtype not in MASKS:
            given.append(each)
        elif masks == 1 and not others:
            # The places of the only mask take one dimension of the result: the first that is indexed.
            given += nonzero(each, [shape[first_indexed(indices)]]).unbind(1)
        else:  # how many places each mask has cannot be read from the result's shape
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
