"""What is noted of an observed run (`Observations`), and facts about the operators that it calls.

`observe` has the mode under which the program runs, `external` the tensors that it uses from outside, and `edges` its
opaque edges. `non_operator_effects` sees everything that is no operator. `func` is always an operator as a dispatch
mode gets it: an OpOverload (`torch.ops.aten.add.Tensor`) or a higher-order operator. A composite operator has no kernel
of its own, and only calls other operators. A Source is a line of the user.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backprint._torch.distributed import form_of, is_collective
from backprint._torch.operators import HigherOrderOperator, OpOverload, schema_of
from backprint._torch.tensors import base_of, is_view
from backprint.errors import CaptureError
from backprint.graph.nouns import OpaqueEdge, Source
from backprint.trace import frames
from backprint.trace.custom import TORCH_NAMESPACES, is_composite
from backprint.values.tree import plain_leaves, strided_parts

# ---- Facts about operators

RANDOM = "the random seed"
"""Stands for a random draw among the names of the inputs that a guard depends on."""

SEED = 0
"""The seed of every run while a program is captured and proved: guards on random values hold under it."""

SILENT_WRITERS = tuple(
    f"aten::{name}_batch_norm{rest}"
    for name, rest in (("native", ""), ("cudnn", ""), ("miopen", ""), ("_native", "_legit"), ("", "_with_update"))
)
"""Kernels that change running statistics, although neither their schema nor the tensors' version says so."""

CHECK = torch.ops.aten._linalg_check_errors.default
"""The operator that raises if a matrix decomposition failed (`torch.linalg`)."""

CHECKS = frozenset({CHECK, torch.ops.aten._assert_async.default, torch.ops.aten._assert_async.msg})
"""Operators without a result that raise if a value is not as expected."""

SIZED = {
    torch.ops.aten.index.Tensor: 1,
    torch.ops.aten.masked_select.default: 1,
    torch.ops.aten._ctc_loss.Tensor: 3,
}
"""Operators whose result has a size that depends on one argument only, a mask or lengths, each with the index of that
argument."""


NUMBER = torch.ops.aten._local_scalar_dense.default
"""The operator that reads a number from a tensor, as `.item()` does."""


@functools.cache
def reads_values(func: Any) -> bool:
    """Whether an operator reads values in a way that fake tensors cannot follow: its result is a number, or has a size
    that depends on values, or it raises if a value is not as expected."""
    return func in CHECKS or torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags


def writes(func: Any) -> bool:
    """Whether an operator changes an argument in place, by its schema or as one of SILENT_WRITERS."""
    return bool(schema_of(func).is_mutable or schema_of(func).name in SILENT_WRITERS)


@functools.cache
def _written_argument_positions(func: Any) -> tuple[tuple[int, str], ...]:
    """Return the positions and names of the arguments that an operator writes to, by its schema."""
    return tuple(
        (position, argument.name)
        for position, argument in enumerate(schema_of(func).arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def written_tensors(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """Return the tensors among a call's arguments that it writes to, by the operator's schema."""
    arguments = [
        args[position] if position < len(args) else kwargs.get(name)
        for position, name in _written_argument_positions(func)
    ]
    return [leaf for leaf in plain_leaves(arguments) if isinstance(leaf, Tensor)]


def is_number_read(func: Any, args: Any) -> bool:
    """Whether an operator reads a number that TorchScript keeps in a tensor: a dispatch mode gets the number itself as
    the argument, and no tensor."""
    return func is NUMBER and not isinstance(args[0], Tensor)


class Facts(NamedTuple):
    """The facts about an operator that observing and recording need.

    `special` operators may read a number that is no tensor's, or may run as other operators: composite operators, and
    collectives with a `form`, a function that calls operators which return their result. `computes` is false for
    operators that a graph has no step for: marks of a profiler, and reads of a tensor's attributes or of where it lies.
    `writes` says that it changes an argument in place, and `draws` that it draws random numbers. `counts_no_writes`
    says that torch does not bump the versions of the tensors that it writes to while a mode is active.
    `may_write_silently` says that an operator of a library writes to no argument by its schema, and that the schema may
    be wrong.
    """

    special: bool = False
    form: Callable[..., Any] | None = None
    computes: bool = True
    writes: bool = False
    draws: bool = False
    counts_no_writes: bool = False
    is_collective: bool = False
    may_write_silently: bool = False


@functools.cache
def facts_of(func: Any) -> Facts:
    """Return the facts about an operator; of a higher-order operator, which has no schema, the defaults."""
    if isinstance(func, HigherOrderOperator):
        return Facts()
    schema, form = schema_of(func), form_of(func)
    return Facts(
        # Without arguments, on the CPU: `observe` asks again for the devices of a call's arguments.
        special=func is NUMBER or form is not None or is_composite(func, args=(), kwargs={}),
        form=form,
        computes=func.namespace not in ("profiler", "_profiler", "prim") and schema.name != "aten::is_pinned",
        writes=writes(func),
        draws=torch.Tag.nondeterministic_seeded in func.tags,
        counts_no_writes=schema.is_mutable and schema.name.startswith("aten::_foreach_"),
        is_collective=is_collective(func),
        may_write_silently=isinstance(func, OpOverload)
        and func.namespace not in TORCH_NAMESPACES
        and not schema.is_mutable,
    )


# ---- The observations of a run

FLAGS_CHANGED_BY_PROGRAMS = ("has a gradient", "version")
"""Flags that a program itself may change: a guard is about their value before the run."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A read of values by an operator (`reads_values`): the operator, its line, the names of the inputs that it depends
    on, and its result."""

    operator: str
    source: Source | None
    inputs: tuple[str, ...]
    result: Any


@dataclass(slots=True)
class Observations:
    """The observations of a watched run.

    `external_tensors` are the tensors from outside the call (`external.py`), `requires_grad_before` their flags before
    the run by id, and `written` the ids of those that the run wrote to. `readings` are reads of values by operators,
    `reads_without_operator` other reads, by function and line. `opaque` are the opaque edges. `threads`, `assigned` and
    `packs` are the lines that start a thread, assign to `.data` and hook saved tensors (`saved_tensors_hooks`).
    `accumulates` says that autograd accumulated a gradient into a leaf, `reentrant` that a reentrant checkpoint runs,
    `cast_leaf_count` counts the casts of leaves that require grad, `checkpoints` says that saved tensors are hooked, by
    a checkpoint or otherwise, and `reads_grad_fn` that the program reads `grad_fn`. `raised` are operators that raised,
    and `opened` higher-order operators whose bodies were recorded, each with its line. `flags` are the tensor flags
    that the user's code has read: the value and the line, by tensor name and flag. `names_by_id` and `memory` have the
    names of the program's tensors by the id of the tensor and of the storage, and `flags_before` the values before the
    run of flags that it may change.
    """

    external_tensors: list[Tensor] = field(default_factory=list)
    requires_grad_before: dict[int, bool] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    threads: list[Source | None] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    opaque: list[OpaqueEdge] = field(default_factory=list)
    reads_without_operator: list[tuple[str, Source | None]] = field(default_factory=list)
    assigned: list[Source | None] = field(default_factory=list)
    accumulates: bool = False
    reentrant: bool = False
    cast_leaf_count: int = 0
    packs: list[Source | None] = field(default_factory=list)
    checkpoints: bool = False
    reads_grad_fn: bool = False
    raised: list[tuple[str, Source | None]] = field(default_factory=list)
    opened: list[tuple[str, Source | None]] = field(default_factory=list)
    names_by_id: dict[int, str] = field(default_factory=dict)
    memory: dict[int, tuple[str, ...]] = field(default_factory=dict)
    flags: dict[tuple[str, str], tuple[Any, Source | None]] = field(default_factory=dict)
    flags_before: dict[tuple[str, str], Any] = field(default_factory=dict)


# ---- Refusals, and parts of tensors


def describe_reading_without_values(reading: Reading) -> str:
    """Return the message for a program that reads values in a fake capture: where it reads them, and what to do."""
    depends = f" (it depends on {', '.join(reading.inputs[:6])})" if reading.inputs else ""
    return (
        f"{reading.operator} reads values, which a fake capture does not have{frames.place(reading.source)}{depends}. "
        "Pass small real inputs and specialize=True to take their values and keep them as guards, "
        "or capture without fake=True"
    )


def refuse_nested(func: Any, result: Any, paths: Mapping[int, str]) -> None:
    """Refuse an operator that returns a nested tensor. `paths` has the path of each module, by id, for the message."""
    if isinstance(result, Tensor) and result.is_nested and result.layout is torch.strided:
        raise CaptureError(
            f"{func} returns a nested tensor{frames.place(frames.here(paths))}, which no engine takes: pad it, or keep "
            "that part outside"
        )


def requires_grad_of(tensor: Tensor) -> bool:
    """Whether a tensor requires grad; for a view, whether its base does. The flag of a view is not read: if its base
    was changed in place, that would make a new autograd node."""
    return bool((base_of(tensor) if is_view(tensor) else tensor).requires_grad)


def storages(tensor: Tensor) -> list[Any]:
    """Return the storages of a tensor's elements. A sparse tensor has several; the storage of its values is the
    last."""
    return [part.untyped_storage() for part in strided_parts(tensor)]


def bytes_used(tensor: Tensor) -> tuple[int, int]:
    """Return the range of bytes of its storage that a strided tensor uses: the first byte, and the one after the last.
    An empty tensor has an empty range."""
    size = tensor.element_size()
    first = tensor.storage_offset() * size
    if not tensor.numel():
        return first, first
    # How many elements after the first the last one lies.
    reach = sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride(), strict=True))
    return first, first + (reach + 1) * size


def overlap(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors in one storage may have elements in common: the ranges of their bytes overlap."""
    (low, high), (other_low, other_high) = bytes_used(left), bytes_used(right)
    return low < other_high and other_low < high
