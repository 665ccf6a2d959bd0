"""What autograd knows of views. Tried on torch 2.13.0 and 2.15.0."""

from __future__ import annotations

from torch import Tensor


def is_view(tensor: Tensor) -> bool:
    """Whether autograd knows a tensor as a view of another: then it says that it requires grad as soon as its base
    does."""
    return tensor._is_view()
