"""Tensors that wrap another tensor, as a DTensor wraps its local shard: opened where a program begins and ends.

A graph has the tensor inside. Any traceable wrapper subclass with one tensor inside is opened. A wrapper of several
tensors is refused by name. `tensors_inside` returns the names of the attributes of a wrapper that are tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.distributed import (
    Remake,
    awaits_collective,
    is_wrapper,
    remaker,
    sharded_like,
    sharding_text,
    tensors_inside,
    wait_for,
)
from backprint._torch.fake import FakeTensor

PLAIN = frozenset({Tensor, nn.Parameter, nn.Buffer, FakeTensor})
"""Classes of tensors that wrap no other."""


Alias = Callable[[Tensor], Tensor]
"""Returns another tensor of the same memory, without autograd history, as `detach` does."""


@dataclass(frozen=True, slots=True, eq=False)
class Wrapping:
    """How a wrapper is made again around another tensor.

    `remake(tensor, tangent)` makes a wrapper around a tensor, of a value or of a tangent (the gradient of such a
    value), which may be wrapped in another way. `text` is the sharding of a DTensor, such as `[64, 8] on tp: Shard(0)`.
    `inside` is the Wrapping of the tensor inside, if that is a wrapper too.
    """

    remake: Remake
    text: str = ""
    inside: Wrapping | None = None

    def wrap(self, inner: Tensor, requires_grad: bool = False) -> Tensor:
        """Return a wrapper around a tensor, a leaf that requires grad or not."""
        return self.around(inner, tangent=False).requires_grad_(requires_grad)

    def around(self, inner: Tensor, tangent: bool, alias: Alias = Tensor.detach) -> Tensor:
        """Return a wrapper around an alias of a tensor; with `tangent`, a tangent of such a wrapper."""
        content = alias(inner) if self.inside is None else self.inside.around(inner, tangent, alias)
        return self.remake(content, tangent)


@functools.cache
def is_wrapper_class(kind: type) -> bool:
    """Whether a class is a traceable wrapper subclass: its tensors hold other tensors, and call operators on these."""
    return kind not in PLAIN and hasattr(kind, "__tensor_flatten__")


def is_wrapped(tensor: Tensor) -> bool:
    """Whether a tensor is a wrapper of one tensor, which can be opened."""
    return type(tensor) not in PLAIN and is_wrapper(tensor) and len(tensors_inside(tensor)) == 1


def unwrap(tensor: Tensor) -> Tensor:
    """Return the plain tensor inside of a wrapper; any other tensor itself."""
    while is_wrapped(tensor):
        tensor = getattr(tensor, tensors_inside(tensor)[0])
    return tensor


def wait_for_collectives(tensor: Tensor) -> None:
    """Wait for the collectives whose results a tensor, or a tensor inside of it, stands for, as any reader of its
    values does."""
    while is_wrapped(tensor):
        if awaits_collective(tensor):
            wait_for(tensor)
        tensor = getattr(tensor, tensors_inside(tensor)[0])


def wrapping_of(tensor: Tensor) -> Wrapping | None:
    """Return how a wrapper is made again; None for a plain tensor, and for a wrapper that torch itself puts around the
    result of a collective until it is there."""
    if not is_wrapped(tensor) or awaits_collective(tensor):
        return None
    inner = getattr(tensor, tensors_inside(tensor)[0])
    return Wrapping(remaker(tensor), sharding_text(tensor), wrapping_of(inner))


# ---- Wrappers that autograd records: a program without values takes and returns the tensors inside


class Around(torch.autograd.Function):
    """Makes a wrapper around a tensor. Its backward returns the tensor inside the wrapper's gradient, and tells `note`
    the gradient's sharding."""

    @staticmethod
    def forward(ctx: Any, inner: Tensor, wrapping: Wrapping, alias: Alias, note: Callable[[str], None]) -> Tensor:
        wrapper = wrapping.around(inner, tangent=False, alias=alias)
        ctx.note, ctx.shape, ctx.like = note, inner.shape, wrapper
        return wrapper

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        # Of another shape, the gradient is sharded in another way than the tensor: then it is sharded as the tensor is.
        if unwrap(gradient).shape != ctx.shape:
            gradient = sharded_like(gradient, ctx.like)
        wait_for_collectives(gradient)
        ctx.note(sharding_text(gradient))
        return unwrap(gradient), None, None, None  # for `inner`, and none for the other arguments of `forward`


class _Inside(torch.autograd.Function):
    """Returns the tensor inside of a wrapper. Its backward wraps the tangent again."""

    @staticmethod
    def forward(ctx: Any, wrapper: Tensor, alias: Alias) -> Tensor:
        ctx.wrapping = wrapping_of(wrapper)
        return alias(unwrap(wrapper))

    @staticmethod
    def backward(ctx: Any, tangent: Tensor) -> tuple[Any, ...]:
        return tangent if ctx.wrapping is None else ctx.wrapping.around(tangent, tangent=True), None


def unwrap_by_autograd(tensor: Tensor, alias: Alias) -> Tensor:
    """Return the plain tensor inside of a wrapper, whose gradient goes through the wrapper; any other tensor itself."""
    if not is_wrapped(tensor):
        return tensor
    wait_for_collectives(tensor)
    inner: Tensor = _Inside.apply(tensor, alias)
    return inner
