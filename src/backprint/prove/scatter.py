"""`as_strided_scatter`, which stands in a graph for an update of a view, run so that autograd differentiates it right.

PyTorch's own gradient of the operator is wrong: for the tensor it is 1 where it was overwritten, and 0 elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from backprint.values.geometry import overlaps_itself

SCATTER = "aten.as_strided_scatter.default"


def scattered_in_place(
    value: Tensor, source: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """Return a copy of `value` with `source` written into the part of this geometry, as the update did that the
    operator stands for; by the operator itself where autograd does not record this call or could not differentiate the
    write."""
    if not can_be_an_update(value, source, size, stride):
        return torch.as_strided_scatter(value, source, size, stride, storage_offset)
    whole = value.clone()
    whole.as_strided(size, stride, storage_offset or 0).copy_(source)
    return whole


def can_be_an_update(value: Tensor, source: Tensor, size: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether autograd records this call, and a write into a view of a copy is the same: `value` fills its memory, so
    that the copy has the same geometry, and no two elements that are written share memory."""
    recorded = torch.is_grad_enabled() and (value.requires_grad or source.requires_grad)
    fills_its_memory = (
        value.is_contiguous() and not value.storage_offset() and value.untyped_storage().nbytes() == value.nbytes
    )
    return recorded and fills_its_memory and not overlaps_itself(size, stride)
