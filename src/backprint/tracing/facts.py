"""Facts about operators that capturing needs: which read values, which write, and whose schema does not say so."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from backprint._torch.operators import schema_of
from backprint.tree import plain_leaves

RANDOM = "the random seed"
"""The name under which a guard depends on a random draw."""

SEED = 0
"""The seed of every run while a program is captured and proved: guards on random values hold under it."""

SILENT_WRITERS = tuple(
    f"aten::{name}_batch_norm{rest}"
    for name, rest in (("native", ""), ("cudnn", ""), ("miopen", ""), ("_native", "_legit"), ("", "_with_update"))
)
"""Kernels that change running statistics, although neither their schema nor the tensors' version says so."""

CHECK = torch.ops.aten._linalg_check_errors.default
"""The operator that raises if a decomposition failed."""

CHECKS = frozenset({CHECK, torch.ops.aten._assert_async.default, torch.ops.aten._assert_async.msg})
"""Operators without a result that raise if a value is not as expected."""

SIZED = {
    torch.ops.aten.index.Tensor: 1,
    torch.ops.aten.masked_select.default: 1,
    torch.ops.aten._ctc_loss.Tensor: 3,
}
"""Operators whose result has a size that depends on one argument only: a mask, or lengths."""


@functools.cache
def reads_values(func: Any) -> bool:
    """Whether an operator's result, or its error, depends on more than its arguments' shapes."""
    return func in CHECKS or torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags


def writes(func: Any) -> bool:
    """Whether an operator changes an argument in place."""
    return bool(schema_of(func).is_mutable or schema_of(func).name in SILENT_WRITERS)


@functools.cache
def changed_places(func: Any) -> tuple[tuple[int, str], ...]:
    """Return the positions and names of the arguments that an operator writes to, by its schema."""
    every = enumerate(schema_of(func).arguments)
    return tuple(
        (place, each.name) for place, each in every if each.alias_info is not None and each.alias_info.is_write
    )


def changed_tensors(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """Return the tensors among a call's arguments that it writes to."""
    given = [args[place] if place < len(args) else kwargs.get(name) for place, name in changed_places(func)]
    return [leaf for leaf in plain_leaves(given) if isinstance(leaf, Tensor)]


def is_number_read(func: Any, args: Any) -> bool:
    """Whether an operator reads a number that TorchScript keeps in a tensor: modes see the number itself."""
    return func is torch.ops.aten._local_scalar_dense.default and not isinstance(args[0], Tensor)


def count_writes(func: Any, args: Any) -> None:
    """Increment the versions of tensors that a `_foreach_` operator writes; torch does not below a mode.

    Views of these tensors are new autograd nodes from then on, so gradients depend on it.
    """
    if schema_of(func).is_mutable and schema_of(func).name.startswith("aten::_foreach_"):
        torch.autograd.graph.increment_version(args[0])
