"""What capturing has to know of operators: which read values, which write, and which say nothing of it.

Private torch APIs of this module, tried on torch 2.13: `torch._ops` (schemas), `torch.Tag`.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from backprint.tree import plain_leaves

RANDOM = "the random seed"
"""What a value hangs on when it comes from a random draw."""

SEED = 0
"""The seed that a program draws from when it is captured and proved: its guards on random values hold under it."""

SILENT_WRITERS = tuple(
    f"aten::{name}_batch_norm{rest}"
    for name, rest in (("native", ""), ("cudnn", ""), ("miopen", ""), ("_native", "_legit"), ("", "_with_update"))
)
"""Kernels that change running statistics although their schema, or the tensors' version, does not say so."""

CHECK = torch.ops.aten._linalg_check_errors.default
"""The operator that raises where a decomposition has not come through."""

CHECKS = frozenset({CHECK, torch.ops.aten._assert_async.default, torch.ops.aten._assert_async.msg})
"""Operators that give nothing, and raise where a value is not as it should be."""

SIZED = {
    torch.ops.aten.index.Tensor: 1,
    torch.ops.aten.masked_select.default: 1,
    torch.ops.aten._ctc_loss.Tensor: 3,
}
"""Operators whose result has a size that one argument alone decides: a mask, not what it is laid on; lengths."""


@functools.cache
def reads_values(func: Any) -> bool:
    """Whether an operator's result, or whether it raises, is not known from its arguments' shapes."""
    return func in CHECKS or torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags


def writes(func: Any) -> bool:
    """Whether an operator changes an argument."""
    return bool(func._schema.is_mutable or func._schema.name in SILENT_WRITERS)


@functools.cache
def changed_places(func: Any) -> tuple[tuple[int, str], ...]:
    """The positions and names of the arguments that an operator changes, as its schema says."""
    every = enumerate(func._schema.arguments)
    return tuple(
        (place, each.name) for place, each in every if each.alias_info is not None and each.alias_info.is_write
    )


def changed_tensors(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The tensors among a call's arguments that it changes."""
    given = [args[place] if place < len(args) else kwargs.get(name) for place, name in changed_places(func)]
    return [leaf for leaf in plain_leaves(given) if isinstance(leaf, Tensor)]


def is_number_read(func: Any, args: Any) -> bool:
    """Whether an operator reads a number that TorchScript keeps in a tensor: modes are handed the number itself."""
    return func is torch.ops.aten._local_scalar_dense.default and not isinstance(args[0], Tensor)


def count_writes(func: Any, args: Any) -> None:
    """Note the writes of an operator on lists in its tensors' versions, which torch leaves out below a mode.

    Views of what was written are new autograd nodes from then on, so gradients hang on it.
    """
    if func._schema.is_mutable and func._schema.name.startswith("aten::_foreach_"):
        torch.autograd.graph.increment_version(args[0])
