"""Tensors: memory, views, versions, hooks, layouts, printing, and functions of `torch` that are not public.

The functions here read an attribute of a tensor as `tensor._version` does, so modes and subclasses see the read.

`NAMES` is the table of the private names that other rooms import from here, and `NAMES["x"].value()` is torch's object
that they import as `x`. `@uses` says which other private names a function needs, and `needed_by` for which commands: a
call raises PrivateApiError if this torch lacks one (`private`). Each function under *Probes* tries what this file takes
a private name to do, and returns whether it does that on this torch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from backprint._torch import private
from backprint._torch.private import Private, Probe, look_up, probes_of, uses

if TYPE_CHECKING:  # the types of what `__getattr__` returns

    def storage_id(storage: Any, /) -> int: ...
    def version_of(tensor: Tensor, /) -> int: ...
    def base_of(tensor: Tensor, /) -> Any: ...
    def is_view(tensor: Tensor, /) -> bool: ...
    def neg_view(tensor: Tensor, /) -> Tensor: ...
    def sparse_indices(tensor: Tensor, /) -> Tensor: ...
    def sparse_values(tensor: Tensor, /) -> Tensor: ...


def post_accumulate_hooks(tensor: Tensor) -> dict[int, Any] | None:
    """Return the dict of the hooks that `register_post_accumulate_grad_hook` has made for a leaf, or None."""
    return getattr(tensor, "_post_accumulate_grad_hooks", None)


@uses("torch._tensor_str", needed_by=(private.CAPTURE,))
def printing_file() -> str:
    """Return the file of the functions that print tensors."""
    return str(torch._tensor_str.__file__)


@contextlib.contextmanager
def storages_filled(note: Callable[[Any], None]) -> Iterator[None]:
    """In this block, call `note(storage)` before a storage of 0 bytes is resized: its new content is written by nobody.

    Only calls from Python are noted, as FSDP2's are.
    """
    before = torch.UntypedStorage.resize_

    def resize(storage: Any, size: int) -> Any:
        if size and not storage.nbytes():
            note(storage)
        return before(storage, size)

    torch.UntypedStorage.resize_ = resize
    try:
        yield
    finally:
        torch.UntypedStorage.resize_ = before


PICKLING = "_reduce_ex_internal"
"""The name of Tensor's function that `pickle` and `torch.save` both call."""


@uses("torch._C._overlaps", needed_by=(private.CAPTURE,))
@contextlib.contextmanager
def overlaps_noted(note: Callable[[tuple[Tensor, ...], Any], None]) -> Iterator[None]:
    """In this block, call `note(tensors, plain)` before a program asks by `torch._C._overlaps` whether tensors overlap
    in memory, which no mode sees. `plain` is torch's own function, which `note` may call."""
    before = torch._C._overlaps

    def overlaps(*tensors: Tensor) -> bool:
        note(tensors, before)
        return bool(before(*tensors))

    torch._C._overlaps = overlaps
    try:
        yield
    finally:
        torch._C._overlaps = before


@uses("torch.nn.init._no_grad_trunc_normal_", needed_by=(private.FAKE,))
@contextlib.contextmanager
def truncated_normals_by(draw: Callable[..., Tensor]) -> Iterator[None]:
    """In this block, call `draw(plain, tensor, mean, std, *bounds, **options)` where `nn.init.trunc_normal_` fills a
    tensor.

    `plain` is torch's own function, which draws again until all values are within bounds.
    """
    before = torch.nn.init._no_grad_trunc_normal_

    def drawn(*args: Any, **options: Any) -> Tensor:
        return draw(before, *args, **options)

    torch.nn.init._no_grad_trunc_normal_ = drawn
    try:
        yield
    finally:
        torch.nn.init._no_grad_trunc_normal_ = before


# ---- Probes


def memory_is_known() -> bool:
    address = NAMES["storage_id"].value()
    tensor, other = torch.zeros(2), torch.zeros(2)
    own = address(tensor.untyped_storage())
    of_view, of_other = address(tensor[1:].untyped_storage()), address(other.untyped_storage())
    return isinstance(own, int) and own == of_view != of_other


def versions_are_counted() -> bool:
    version, tensor = NAMES["version_of"].value(), torch.zeros(1)
    before = version(tensor)
    return version(tensor.add_(1)) == before + 1


def views_are_known() -> bool:
    base, is_view, tensor = NAMES["base_of"].value(), NAMES["is_view"].value(), torch.zeros(2)
    return base(tensor[:1]) is tensor and base(tensor) is None and is_view(tensor[:1]) and not is_view(tensor)


def hooks_are_read() -> bool:
    """Whether the table of backward hooks has a hook that `register_hook` has made."""
    tensor = torch.zeros(1, requires_grad=True)

    def hook(gradient: Tensor) -> None:
        return None

    tensor.register_hook(hook)
    return list(NAMES["backward_hooks"].value()(tensor).values()) == [hook]


def hooks_after_accumulation_are_read() -> bool:
    """Whether the table of hooks after accumulation has a hook that was made."""
    tensor = torch.zeros(1, requires_grad=True)

    def hook(parameter: Tensor) -> None:
        return None

    tensor.register_post_accumulate_grad_hook(hook)
    return list((post_accumulate_hooks(tensor) or {}).values()) == [hook]


def negation_is_a_view() -> bool:
    return bool(NAMES["neg_view"].value()(torch.ones(1)).is_neg())


def overlaps_are_noted() -> bool:
    noted: list[Any] = []
    tensor = torch.zeros(2)
    with overlaps_noted(lambda tensors, function: noted.append(tensors)):
        return bool(torch._C._overlaps(tensor, tensor[1:])) and len(noted) == 1


def truncated_normals_are_noticed() -> bool:
    with truncated_normals_by(lambda plain, tensor, *args, **options: tensor.fill_(7)):
        return torch.nn.init.trunc_normal_(torch.zeros(1)).item() == 7


def pickling_is_known() -> bool:
    return hasattr(Tensor, PICKLING)


# ---- Names

NAMES = {
    "storage_id": Private(
        "torch.UntypedStorage._cdata",
        "Return the address of a storage's C++ object: one number for one memory, fake or real.",
        (private.REPLAY,),
        of=lambda: torch.UntypedStorage,
        holds=memory_is_known,
    ),
    "version_of": Private(
        "torch.Tensor._version",
        "Return a tensor's version counter, which each write in place counts up.",
        (private.REPLAY,),
        of=lambda: torch.Tensor,
        holds=versions_are_counted,
    ),
    "base_of": Private(
        "torch.Tensor._base",
        "Return the tensor of which autograd knows a tensor as a view, or None.",
        (private.CAPTURE,),
        of=lambda: torch.Tensor,
        holds=views_are_known,
    ),
    "is_view": Private(
        "torch.Tensor._is_view",
        "Whether autograd knows a tensor as a view, which then requires grad as soon as its base does.",
        (private.REPLAY,),
        holds=views_are_known,
    ),
    "read_base": Private(
        "torch.Tensor._base.__get__", "The function that modes see when `_base` is read.", (private.CAPTURE,)
    ),
    "read_version": Private(
        "torch.Tensor._version.__get__", "The function that modes see when `_version` is read.", (private.CAPTURE,)
    ),
    "backward_hooks": Private(
        "torch.Tensor._backward_hooks",
        "Return the dict of the hooks that `Tensor.register_hook` has made, or None.",
        (private.CAPTURE,),
        of=lambda: torch.Tensor,
        holds=hooks_are_read,
    ),
    "sparse_indices": Private(
        "torch.Tensor._indices", "Return the indices of a COO tensor, coalesced or not.", (private.REPLAY,)
    ),
    "sparse_values": Private(
        "torch.Tensor._values", "Return the values of a COO tensor, coalesced or not.", (private.REPLAY,)
    ),
    "mkldnn_layout": Private("torch._mkldnn", "The layout of tensors of oneDNN.", (private.REPLAY,)),
    "neg_view": Private(
        "torch._neg_view",
        "Return a view of a tensor with the bit of negation set.",
        (private.REPLAY,),
        holds=negation_is_a_view,
    ),
    "assert_async": Private(
        "torch._assert_async", "Check a value where the graph runs, without waiting for the device.", (private.TO_FX,)
    ),
    "pack_padded": Private(
        "torch._pack_padded_sequence",
        "The function of ATen by which `pack_padded_sequence` reads lengths.",
        (private.CAPTURE,),
    ),
    "pad_packed": Private(
        "torch._pad_packed_sequence",
        "The function of ATen by which `pad_packed_sequence` reads lengths.",
        (private.CAPTURE,),
    ),
}
"""The private names that other rooms use, by the name under which they import each."""


def __getattr__(name: str) -> Any:
    return look_up(name, NAMES, globals())


PROBES = probes_of(
    __name__,
    NAMES,
    Probe("torch.Tensor._post_accumulate_grad_hooks", hooks_after_accumulation_are_read, (private.CAPTURE,)),
    Probe("torch._C._overlaps", overlaps_are_noted, (private.CAPTURE,)),
    Probe("torch.nn.init._no_grad_trunc_normal_", truncated_normals_are_noticed, (private.FAKE,)),
    Probe("torch.Tensor._reduce_ex_internal", pickling_is_known, (private.CAPTURE,)),
)
