"""Writes that autograd does not see: a tensor has other contents, and its version counter is unchanged.

Each write in place by PyTorch counts the version of a tensor up, and a backward raises if a tensor that it saved has
another version. A C++ or Triton kernel, a NumPy view and `.data` write without counting. Then whoever has saved the
tensor silently gets the new contents.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from backprint._torch.tensors import version_of
from backprint.judge.closeness import same_bits

UNSEEN = "where autograd does not see it, as a kernel, .data or a NumPy view does: its version stays"
"""How such a write is described, after its subject."""


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """A tensor as it was when `keep` was called: its memory, its version then, and a copy of its contents then."""

    memory: Tensor
    version: int
    contents: Tensor

    @property
    def is_written(self) -> bool:
        """Whether the memory has other contents now."""
        return not same_bits(self.memory, self.contents)

    @property
    def is_written_unseen(self) -> bool:
        """Whether the memory has other contents now, and the tensor the same version."""
        return version_of(self.memory) == self.version and self.is_written


def keep(tensor: Tensor) -> Kept:
    """Return a tensor as it is now, to ask later whether it was written to."""
    memory = tensor.detach()  # it shares the version counter, which `.data` does not
    return Kept(memory, version_of(memory), memory.clone())


@contextlib.contextmanager
def keeping_saved() -> Iterator[list[Kept]]:
    """Keep every tensor that autograd saves in a block and that requires grad; the list is filled in the block.

    Tensors that do not require grad are left out: `batch_norm` saves the running mean, and updates it without counting.
    """
    saved: list[Kept] = []

    def pack(tensor: Tensor) -> Tensor:
        if tensor.requires_grad and tensor.layout is torch.strided:
            saved.append(keep(tensor))
        return tensor.detach()  # an output that its own node saves would else hold that node

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield saved
