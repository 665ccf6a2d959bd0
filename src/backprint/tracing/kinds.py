"""Which kinds of Python's objects hold state that a program could change, and what is in them."""

from __future__ import annotations

import functools
import sys
import types
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

PLAIN = frozenset(
    (
        int, float, complex, bool, str, bytes, type(None), type(Ellipsis), type(NotImplemented), slice, range,
        torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, types.CodeType, types.ModuleType,
        types.BuiltinFunctionType, types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType,
        types.MethodDescriptorType, property, staticmethod, classmethod, types.MappingProxyType,
    )
)  # fmt: skip
"""Kinds that hold nothing which a program could change."""

SKIPPED = (
    "torch.fx", "torch.jit", "torch.package", "torch.distributed", "torch.export", "torch.library",
    "torch.multiprocessing", "logging", "threading", "_thread", "concurrent", "queue", "asyncio",
    "multiprocessing", "io", "_io", "socket", "importlib", "_frozen_importlib", "backprint", "re", "ast", "_pytest",
    "pytest", "pluggy", "unittest", "abc", "typing", "inspect", "enum", "warnings", "sympy", "rich", "click",
)  # fmt: skip
"""Modules whose objects are nobody's state: machinery, threads, files."""

PRIVATE = ("torch._", "torch.utils._")
"""How the names of torch's own modules begin."""


def is_skipped(module: str) -> bool:
    """Whether objects of a module's classes are left alone."""
    return module.startswith(PRIVATE) or any(module == head or module.startswith(f"{head}.") for head in SKIPPED)


def class_of(value: Any) -> Any:
    """A value's class."""
    return type(value)


@functools.cache
def left_alone(kind: Any) -> bool:
    """Whether objects of a class are left alone; a module of torch's own machinery is still a module."""
    return not issubclass(kind, (nn.Module, Tensor)) and is_skipped(kind.__module__ or "")


STANDARD = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "builtins"}


@functools.cache
def is_users(kind: Any) -> bool:
    """Whether a class is neither Python's, torch's nor numpy's."""
    return (kind.__module__ or "builtins").partition(".")[0] not in STANDARD and not left_alone(kind)


ITERATORS: tuple[Any, ...] = (
    types.GeneratorType, types.AsyncGeneratorType, type(iter({})), type(iter({}.values())), type(iter({}.items())),
    type(iter(set())), zip, map, filter, enumerate, reversed,
)  # fmt: skip
"""What goes on where it stopped, and cannot be put back; `itertools` has more of them."""

COUNTED: tuple[Any, ...] = (type(iter([])), type(iter(())), type(iter("")), type(iter(range(0))))
"""Iterators whose place can be read and set."""


@functools.cache
def is_installed(module: str, file: str) -> bool:
    """Whether a module is of an installed package: a counter that such a one keeps for itself is nobody's state."""
    above = Path(file).parents
    depth = module.count(".") + (Path(file).stem == "__init__")
    return len(above) > depth and any(above[depth].glob("*.dist-info"))


def is_iterator(value: Any) -> bool:
    """Whether a value is an iterator, which a run uses up."""
    return isinstance(value, ITERATORS) or type(value).__module__ == "itertools"


@functools.cache
def slots_of(kind: Any) -> tuple[tuple[Any, str], ...]:
    """The slots of a class of the user's."""
    if not is_users(kind):
        return ()
    found = []
    for each in kind.__mro__:
        for slot, value in vars(each).items():
            if isinstance(value, types.MemberDescriptorType) and is_users(each):
                found.append((value, slot))
    return tuple(found)


@functools.cache
def names_in_code(code: types.CodeType) -> tuple[str, ...]:
    """The names that a function's code, and that of the functions in it, mentions."""
    found = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= dict.fromkeys(names_in_code(constant))
    return tuple(found)


def is_library(function: types.FunctionType) -> bool:
    """Whether a function is Python's, torch's or numpy's own."""
    return str(function.__module__ or "").partition(".")[0] in STANDARD
