"""Check a call against its operator's schema: each argument fits its type.

A *row* is one argument of a schema, with the function that says whether a value *fits* its type. A *complaint* is what
is wrong with a call, as text; '' if nothing is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backprint._torch.operators import schema_of


def call_complaint(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return why an operator may not be called with these arguments, by its schema's types; '' if it may."""
    return bound_by_schema(function, args, kwargs)[1]


def bound_by_schema(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return a call's arguments by the schema's names, with defaults, and the complaint about what does not fit the
    schema's types: no arguments with a complaint, and '' if all fits."""
    rows = _argument_rows(function)
    if len(args) > len(rows):
        return {}, f"{len(args)} arguments where {function} takes {len(rows)}"
    arguments = dict(_defaults_of(function))
    # The last arguments may be passed by name, or left out.
    for row, value in zip(rows, args, strict=False):
        # First the test that most arguments pass: this runs for each call of each replay.
        if not (type(value) is Tensor and row.takes_any_tensor) and not row.fits(value):
            return {}, row.complaint(value)
        arguments[row.name] = value
    if kwargs:
        passed = {row.name for row in rows[: len(args)]}
        by_name = {row.name: row for row in rows}
        for name, value in kwargs.items():
            if name in passed:
                return {}, f"{name} is given twice"
            if name in by_name and not by_name[name].fits(value):
                return {}, by_name[name].complaint(value)
            arguments[name] = value
    return arguments, ""


class _ArgumentRow(NamedTuple):
    """One argument of a schema: its name, its type in words, the check of a value, and its default."""

    name: str
    kind: str
    fits: Callable[[Any], bool]
    default: Any
    takes_any_tensor: bool
    """Whether any tensor fits: most arguments are such tensors, and need no more than a look."""

    def complaint(self, value: Any) -> str:
        """Return the complaint about a value that does not fit."""
        return f"{self.name}={_describe_argument(value)} where the schema wants {self.kind}"


TENSORS = frozenset({"Tensor", "Optional[Tensor]"})
"""Types of arguments that any tensor fits."""


@functools.cache
def _argument_rows(function: Any) -> tuple[_ArgumentRow, ...]:
    """Return the rows of an operator's arguments, in their order. `kind` is a type as TorchScript writes it:
    `Optional[Tensor]`, `List[int]`."""
    rows = []
    for argument in schema_of(function).arguments:
        kind = str(argument.real_type)
        if "int" in kind:  # a dtype, for example, is an int in the schema
            kind = TYPES_BY_NAME.get(argument.name, kind)
        default = argument.default_value if argument.has_default_value() else None
        fits, count = _type_check(kind), argument.N or 0  # N: the length of a list that has a fixed one
        # Autograd passes None here, though the schema of the backward wants a tensor.
        if kind == "Tensor" and argument.name in PASSED_AS_NONE and "attention" in schema_of(function).name:
            fits, kind = _type_check("Optional[Tensor]"), "a tensor or None"
        # `int[1]` takes a list of any length: only a longer fixed length, as of `int[2]`, is checked.
        if count > 1:
            fits, kind = _length_check(fits, argument.name, count, default), f"{kind} of {count}"
        rows.append(_ArgumentRow(argument.name, kind, fits, default, takes_any_tensor=kind in TENSORS))
    return tuple(rows)


@functools.cache
def _defaults_of(function: Any) -> Mapping[str, Any]:
    """Return the defaults of an operator's arguments by name."""
    return MappingProxyType({row.name: row.default for row in _argument_rows(function)})


TYPES_BY_NAME: Mapping[str, str] = {
    "dtype": "Optional[ScalarType]",
    "out_dtype": "Optional[ScalarType]",
    "output_dtype": "Optional[ScalarType]",
    "layout": "Optional[Layout]",
    "memory_format": "Optional[MemoryFormat]",
}
"""The type of an argument by its name, where a schema declares a plain int."""

PASSED_AS_NONE = frozenset({"attn_bias", "cum_seq_q", "cum_seq_k"})
"""Arguments of attention's backwards for which autograd passes no tensor, though their schema wants one."""

MAY_BE_ONE_NUMBER = frozenset("kernel_size stride padding dilation output_size output_padding size".split())
"""Arguments that may have one number for all dimensions."""


def _length_check(fits: Callable[[Any], bool], name: str, count: int, default: Any) -> Callable[[Any], bool]:
    """Return a function that checks whether a value fits an argument of this name and with this default, and whether a
    list has one of the lengths that a list of fixed length `count` may have. `fits` is the check without lengths."""
    lengths = {count}
    if name in MAY_BE_ONE_NUMBER:
        lengths.add(1)
    if default == [] or name == "stride":  # the stride of a pool: without one, as long as its kernel
        lengths.add(0)
    return lambda value: fits(value) and (not isinstance(value, (list, tuple)) or len(value) in lengths)


@functools.cache
def _type_check(kind: str) -> Callable[[Any], bool]:
    """Return a function that checks whether a value fits a type of a schema; any value fits a type that is not in
    FITS."""
    if kind.startswith("Optional["):
        inner = _type_check(kind[len("Optional[") : -1])
        return lambda value: value is None or inner(value)
    if kind.startswith("List["):
        item_kind = kind[len("List[") : -1]
        item = _type_check(item_kind)
        takes_one = item_kind in ("int", "float", "bool")  # int[2] takes a number for both
        return lambda value: all(map(item, value)) if isinstance(value, (list, tuple)) else takes_one and item(value)
    return FITS.get(kind, lambda value: True)


def is_whole(value: Any) -> bool:
    """Whether a value is an integer of 64 bits, or a symbolic one."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, (torch.SymInt, torch.SymBool)) or _is_single(value)


def is_number(value: Any) -> bool:
    """Whether a value is a number, or a tensor of one."""
    if isinstance(value, int):
        # A Scalar may hold a uint64.
        return -(2**63) <= value < 2**64
    return isinstance(value, (float, complex, torch.SymInt, torch.SymFloat, torch.SymBool)) or _is_single(value)


def _is_single(value: Any) -> bool:
    """Whether a value is a tensor of one element."""
    return isinstance(value, Tensor) and value.numel() == 1


FITS: Mapping[str, Callable[[Any], bool]] = {
    "Tensor": lambda value: isinstance(value, Tensor) or is_number(value),  # add.Tensor(x, 1)
    "ScalarType": lambda value: isinstance(value, torch.dtype),
    "Layout": lambda value: isinstance(value, torch.layout),
    "MemoryFormat": lambda value: isinstance(value, torch.memory_format),
    "Device": lambda value: isinstance(value, (torch.device, str)),
    "Generator": lambda value: isinstance(value, torch.Generator),
    "int": is_whole,
    "float": is_number,
    "number": is_number,
    "complex": is_number,
    "bool": lambda value: isinstance(value, (bool, int, torch.SymBool)) or _is_single(value),
    "str": lambda value: isinstance(value, str),
}


def _describe_argument(value: Any) -> str:
    """Return an argument as text for a complaint: `a tensor of shape [4, 3]`, `'mean' (str)`."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {', '.join(sorted({type(item).__name__ for item in value})) or 'nothing'}"
    return f"{value!r:.40} ({type(value).__name__})"
