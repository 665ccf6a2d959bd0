"""Remember and restore one tensor: its memory, content, gradient, hooks and version."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.autograd import saved_tensor_hooks, set_version_counters
from backprint._torch.modes import DisableTorchFunction, without_modes
from backprint._torch.process_state import module_hooks
from backprint._torch.tensors import backward_hooks, base_of, is_view, post_accumulate_hooks, storage_id, version_of
from backprint.values.tree import strided_parts

LARGE_PARAMETER = 2**20
"""A parameter of more bytes is copied only when a write to it was seen, not in advance."""


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Turn autograd and all modes off for a block: what it does with tensors is no part of the program."""
    with torch.no_grad(), DisableTorchFunction(), without_modes():
        yield


class TensorSnapshot:
    """The state of a tensor: its memory, content, `requires_grad`, gradient and hooks.

    `name` is its name in messages. `alias` is a detached tensor with the memory, shape and strides that it had, or None
    if its memory cannot be read (`is_plain`). `memory` is the identity of its storage (of the tensor itself, if it is
    sparse or has no alias), `nbytes` the size of its storages, and `address` where the storage is. `content` has copies
    of its storages, or None. `hooks` are the tensor's backward hooks, and `post` its post-accumulate-grad hooks. `kind`
    is the class, `version` the version counter.
    """

    __slots__ = (
        "address",
        "alias",
        "content",
        "grad",
        "hooks",
        "kind",
        "leaf",
        "memory",
        "name",
        "nbytes",
        "post",
        "requires_grad",
        "tensor",
        "version",
    )

    def __init__(self, name: str, tensor: Tensor) -> None:
        """Remember all of the tensor's state but its content (`copy`). `name` is its name in messages."""
        self.name = name
        self.tensor = tensor
        self.kind = type(tensor)
        self.leaf = tensor.is_leaf
        self.requires_grad = tensor.requires_grad
        # PyTorch warns when the `.grad` of a tensor that is not a leaf is read.
        self.grad = tensor.grad if self.leaf else None
        self.hooks = dict(backward_hooks(tensor)) if backward_hooks(tensor) else None
        post = post_accumulate_hooks(tensor) if self.leaf else None
        self.post = dict(post) if post else None
        # Inference tensors have no version counter.
        self.version = None if tensor.is_inference() else version_of(tensor)
        self.content: tuple[Tensor, ...] | None = None
        plain = is_plain(tensor)
        # The alias keeps the storage and the geometry, also if the program sets `tensor.data` or resizes the tensor.
        self.alias = tensor.detach() if plain else None
        self.memory = storage_id(tensor.untyped_storage()) if plain and tensor.layout is torch.strided else id(tensor)
        self.nbytes = sum(part.untyped_storage().nbytes() for part in strided_parts(tensor)) if plain else 0
        self.address = self.address_now()

    def address_now(self) -> int:
        """Return the address of the tensor's storage; 0 if it has none of its own."""
        if self.alias is None or self.alias.layout is not torch.strided:
            return 0
        return self.alias.untyped_storage().data_ptr()

    @property
    def is_large(self) -> bool:
        """Whether the tensor is a parameter that is too large to copy in advance."""
        return isinstance(self.tensor, nn.Parameter) and self.nbytes > LARGE_PARAMETER

    def uses_memory_of(self, arrays: list[Any]) -> bool:
        """Whether one of these numpy arrays uses the tensor's memory."""
        if not arrays or self.alias is None or self.alias.layout is not torch.strided or self.alias.is_meta:
            return False
        start = self.alias.untyped_storage().data_ptr()
        return any(0 <= array.ctypes.data - start < self.nbytes for array in arrays)

    def copy(self) -> None:
        """Keep the content of all storages of the tensor."""
        if self.alias is not None:
            self.content = tuple(part.untyped_storage().clone() for part in strided_parts(self.alias))

    def restore(self) -> None:
        """Restore the tensor to this state, and touch only what differs."""
        tensor = self.tensor
        if type(tensor) is not self.kind:
            tensor.__class__ = self.kind
        if self.alias is not None:
            if tensor.requires_grad and not self.requires_grad and not tensor.is_leaf:
                # An update in place made the tensor part of the run's graph. `detach_` refuses views, so their base is
                # detached.
                (base_of(tensor) if is_view(tensor) else tensor).detach_()
            # Before `.grad`, which must have the tensor's shape, dtype and device.
            if not has_same_placement(tensor, self.alias):
                tensor.data = self.alias
            # Not strict: without a copy of its content, nothing is compared. Another tensor may have the copy.
            for part, content in zip(strided_parts(self.alias), self.content or (), strict=False):
                storage = part.untyped_storage()
                if not same_bytes(storage, content):
                    restore_bytes(storage, content)
        if self.leaf and tensor.is_leaf and tensor.requires_grad != self.requires_grad:
            tensor.requires_grad_(self.requires_grad)
        if self.leaf and tensor.is_leaf and tensor.grad is not self.grad:
            tensor.grad = self.grad
        if (backward_hooks(tensor) or None) != self.hooks:
            _restore_hooks(tensor, self.hooks)
        post = post_accumulate_hooks(tensor) if self.leaf else None
        if post is not None and dict(post) != (self.post or {}):
            post.clear()
            post.update(self.post or {})
        # Last, because the steps above may count as writes.
        if self.version is not None and version_of(tensor) != self.version:
            set_version_counters((tensor,), (self.version,))


def global_hooks() -> list[Any]:
    """Return the hooks that run for every module, and the saved-tensor hooks of the block that the caller is in."""
    saved = saved_tensor_hooks(False)  # torch's `ignore_is_tracing`: none while torch.compile traces the hooks
    return [*module_hooks(), *(saved or ())]


def _restore_hooks(tensor: Tensor, hooks: dict[int, Any] | None) -> None:
    """Set a tensor's backward hooks to `hooks` (None: none), in the tensor's own dict, which the handles of hooks refer
    to."""
    if backward_hooks(tensor) is not None:
        backward_hooks(tensor).clear()
        backward_hooks(tensor).update(hooks or {})


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor's memory can be read and written directly: it is no subclass, not nested, and not on the meta
    device."""
    return (
        type(tensor) in (Tensor, nn.Parameter, nn.Buffer)
        and tensor.device.type != "meta"
        and not tensor.is_nested
        and tensor.layout in LAYOUTS
    )


LAYOUTS = (torch.strided, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
"""The layouts of tensors whose storages can be read and written."""


def has_same_placement(tensor: Tensor, alias: Tensor) -> bool:
    """Whether a tensor still has the memory, shape, dtype, strides and offset of its alias from before the run; of a
    sparse tensor, whether each of its parts has."""
    if tensor.layout is not alias.layout or tensor.shape != alias.shape or tensor.dtype is not alias.dtype:
        return False
    if tensor.layout is not torch.strided:
        return all(
            has_same_placement(now, then) for now, then in zip(strided_parts(tensor), strided_parts(alias), strict=True)
        )
    return (
        storage_id(tensor.untyped_storage()) == storage_id(alias.untyped_storage())
        and tensor.stride() == alias.stride()
        and tensor.storage_offset() == alias.storage_offset()
    )


def restore_bytes(storage: torch.UntypedStorage, content: torch.UntypedStorage) -> None:
    """Restore a storage's size and content."""
    if storage.nbytes() != content.nbytes():
        storage.resize_(content.nbytes())
    storage.copy_(content)


def same_bytes(left: torch.UntypedStorage, right: torch.UntypedStorage) -> bool:
    """Whether two storages have the same size and content, bit for bit."""
    if left.nbytes() != right.nbytes():
        return False
    # Integers compare bits: NaN equals itself, and -0.0 differs from 0.0.
    kind = torch.int64 if left.nbytes() % 8 == 0 else torch.uint8  # eight times as fast
    # Tensors over the whole of each storage.
    first, second = (torch.empty(0, dtype=kind, device=storage.device).set_(storage) for storage in (left, right))
    return bool(torch.equal(first, second))
