"""Write values into the caller's own tensors, whose identity, attributes, hooks and aliases stay the same."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import torch
from torch import Tensor

from backprint._torch.autograd import set_version_counters
from backprint._torch.tensors import version_of
from backprint.errors import CaptureError
from backprint.tracing.kept_tensor import lies_as, untraced
from backprint.tracing.picture import Picture
from backprint.tree import alias_groups, copy_values, strided_parts


def put_values(
    own: Mapping[str, Tensor],
    values: Mapping[str, Tensor],
    picture: Picture,
    stack: contextlib.ExitStack,
    written: frozenset[str],
) -> None:
    """Write values into the caller's tensors. A large parameter with memory of its own is swapped with its value, and
    back."""
    alone = set(own) - {name for group in alias_groups(dict(own)) for name in group}
    shared = {name for group in alias_groups(dict(values)) for name in group}
    with untraced():
        for name, value in values.items():
            tensor = own.get(name)
            if tensor is None or same_memory(tensor, value) or same_content(tensor, value):
                continue
            kept = picture.by_id.get(id(tensor))
            if kept is not None and kept.is_large and name in alone - shared - written and alike(tensor, value):
                version = version_of(tensor)
                exchange(tensor, value)
                set_version_counters((tensor,), (version,))
                stack.callback(exchange_back, name, tensor, value, version)
                continue
            picture.add(name, tensor, whole=True)
            version = version_of(tensor)
            write_value(tensor, value)
            set_version_counters((tensor,), (version,))


def same_memory(tensor: Tensor, value: Tensor) -> bool:
    """Whether a value is the tensor itself."""
    return tensor is value or (tensor.layout is torch.strided and lies_as(tensor, value))


def same_content(tensor: Tensor, value: Tensor) -> bool:
    """Whether a tensor already has these values, bit for bit."""
    if tensor.shape != value.shape or tensor.dtype is not value.dtype or tensor.layout is not value.layout:
        return False
    if tensor.is_complex() or tensor.is_neg() or tensor.layout is not torch.strided:
        return False
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    left, right = tensor.detach(), value.detach()
    if not left.dim():
        left, right = left.reshape(1), right.reshape(1)
    return left.stride() == right.stride() and bool(torch.equal(left.view(kind), right.view(kind)))


def alike(tensor: Tensor, value: Tensor) -> bool:
    """Whether two tensors have the same geometry in memory of their own, so that they can be swapped."""
    return (
        tensor.is_contiguous()
        and value.is_contiguous()
        and tensor.dtype is value.dtype
        and tensor.shape == value.shape
        and not value.requires_grad
    )


PIECE = 2**22
"""Elements that are swapped at a time."""


def exchange(tensor: Tensor, value: Tensor) -> None:
    """Swap the contents of two tensors."""
    left, right = tensor.detach().view(-1), value.detach().view(-1)
    for start in range(0, left.numel(), PIECE):
        first, second = left[start : start + PIECE], right[start : start + PIECE]
        between = first.clone()
        first.copy_(second)
        second.copy_(between)


def exchange_back(name: str, tensor: Tensor, value: Tensor, version: int) -> None:
    """Swap a tensor's own content back; raise if the run wrote to it, which its first run did not."""
    if version_of(tensor) == version:
        with untraced():
            exchange(tensor, value)
        return
    with untraced():
        tensor.detach().copy_(value)
    raise CaptureError(f"the program wrote to {name} in this run but not in its first run: its runs differ")


def write_value(tensor: Tensor, value: Tensor) -> None:
    """Write a value into a tensor, whatever its layout; into an expanded tensor each element once."""
    if tensor.layout is not torch.strided:
        pairs = list(zip(strided_parts(tensor), strided_parts(value), strict=True))
        if all(left.shape == right.shape for left, right in pairs):
            for left, right in pairs:
                left.copy_(right)
        else:
            tensor.data = copy_values({"": value})[""]
        return
    if tensor.shape != value.shape:
        raise CaptureError(f"a value of shape {list(value.shape)} does not fit a tensor of {list(tensor.shape)}")
    once = tuple(slice(0, 1) if step == 0 else slice(None) for step in tensor.stride())
    target, source = tensor.detach(), value.detach()
    if once:
        target, source = target[once], source[once]
    target.copy_(source)
