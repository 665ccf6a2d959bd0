"""What a check may read: the values of a tensor, its shape, its memory; and how it complains.

A tensor without values (fake, meta) reaches no kernel, so its values are not read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from backprint._torch.functorch import is_functorch_tensor
from backprint._torch.modes import without_modes

Bound: TypeAlias = Mapping[str, Any]
"""A call's arguments by the schema's names, defaults included."""

Check: TypeAlias = Callable[[Bound], str]
"""What is wrong with a call, in words; '' if nothing is."""

MOST_ROUNDS = 2**16
"""The most iterations of a kernel's loop whose count is an argument."""


@contextlib.contextmanager
def reading_values() -> Iterator[None]:
    """Read values without any mode seeing it, and without autograd."""
    with torch.no_grad(), without_modes():
        yield


def readable(value: Any) -> bool:
    """Whether a tensor's values can be read."""
    return (
        type(value) in (Tensor, nn.Parameter)
        and not value.is_meta
        and value.layout is torch.strided
        and not is_wrapped(value)
    )


def is_wrapped(value: Tensor) -> bool:
    """Whether a function transform, such as vmap, hides a tensor's values."""
    return bool(is_functorch_tensor(value))


def beyond(name: str, value: Any, low: int, high: int, also: Iterable[int] = ()) -> str:
    """Return the complaint about a tensor with a number outside [low, high)."""
    if isinstance(value, Tensor) and value.layout is not torch.strided:
        return f"{name} is a {value.layout} tensor, which holds no indices"
    if not readable(value) or value.numel() == 0:
        return ""
    with reading_values():
        odd = (value < low) | (value != value)
        if high < 2**63:  # torch compares only with numbers of the dtype
            odd |= value >= high
        for each in also:
            odd &= value != each
        if not bool(odd.any()):
            return ""
        found = value[odd].flatten()[0].item()
    return f"{name} holds {found}, which is not in [{low}, {high})"


def unlike(name: str, value: Any, shape: Sequence[int]) -> str:
    """Return the complaint about a tensor of another shape."""
    if not isinstance(value, Tensor) or tuple(value.shape) == tuple(shape):
        return ""
    return f"{name} has the shape {list(value.shape)}, which should be {list(shape)}"


def counted(name: str, value: Any, count: int) -> str:
    """Return the complaint about a tensor with another number of elements."""
    if not isinstance(value, Tensor) or value.numel() == count:
        return ""
    return f"{name} has {value.numel()} elements, which should be {count}"


def held(name: str, value: Any) -> str:
    """Return the complaint about a tensor that a kernel reads to its end, and whose memory is shorter (an expanded
    one)."""
    if not readable(value) or value.storage_offset() + value.numel() <= value.untyped_storage().nbytes() // max(
        value.element_size(), 1
    ):
        return ""
    return f"{name} has {value.numel()} elements, and memory for fewer"


def first(complaints: Iterable[str]) -> str:
    """Return the first complaint that is not ''."""
    return next((each for each in complaints if each), "")


def rising(value: Tensor) -> bool:
    """Whether a tensor's numbers never decrease along its last dimension."""
    if not readable(value):
        return True
    with reading_values():
        return bool((value[..., 1:] >= value[..., :-1]).all())


def numbers_in(value: Any) -> list[int] | None:
    """Return a list of numbers, or a tensor's; None if it has no values."""
    if isinstance(value, Tensor):
        if not readable(value):
            return None
        with reading_values():
            return [int(each) for each in value.flatten().tolist()]
    return [int(each) for each in value]


MOST_ELEMENTS = 2**40
"""More elements than fit into any machine."""


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor."""
    return isinstance(value, Tensor)
