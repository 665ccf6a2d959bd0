"""Which kinds of Python objects hold state that a program could change, and what is inside them."""

from __future__ import annotations

import datetime
import decimal
import functools
import inspect
import operator
import re
import sys
import threading
import types
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

PLAIN = frozenset(
    (
        int, float, complex, bool, str, bytes, type(None), type(Ellipsis), type(NotImplemented), slice, range,
        torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, types.CodeType,
        types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType,
        types.MethodDescriptorType, property, staticmethod, classmethod, datetime.date,
        datetime.time, datetime.datetime, datetime.timedelta, decimal.Decimal, re.Pattern, operator.attrgetter,
        operator.itemgetter, operator.methodcaller,
    )
)  # fmt: skip
"""Types without state that a program could change."""

SKIPPED = (
    "torch.fx", "torch.jit", "torch.package", "torch.distributed", "torch.export", "torch.library",
    "torch.multiprocessing", "threading", "_thread", "concurrent", "asyncio",
    "multiprocessing", "io", "_io", "socket", "importlib", "_frozen_importlib", "backprint", "re", "ast", "_pytest",
    "pytest", "pluggy", "unittest", "abc", "typing", "inspect", "enum", "warnings", "sympy", "rich", "click",
)  # fmt: skip
"""Modules whose objects are not a program's state: machinery, threads, files."""

PRIVATE = ("torch._", "torch.utils._")
"""Prefixes of torch's private modules."""


def is_skipped(module: str) -> bool:
    """Whether objects of a module's classes are not looked into."""
    return module.startswith(PRIVATE) or any(module == head or module.startswith(f"{head}.") for head in SKIPPED)


def class_of(value: Any) -> Any:
    return type(value)


@functools.cache
def left_alone(kind: Any) -> bool:
    """Whether objects of a class are not looked into; an `nn.Module` of torch's own machinery still is."""
    module = str(kind.__module__ or "")
    return not issubclass(kind, OPENED) and module not in OPENED_MODULES and is_skipped(module)


OPENED_MODULES = ("asyncio.queues", "asyncio.locks", "concurrent.futures._base", "unittest.mock")
"""Modules of those that are skipped whose objects hold a program's state as well."""

SLOTTED = (inspect.Signature, inspect.Parameter)
"""Classes of skipped modules whose slots hold a program's objects."""

OPENED = (nn.Module, Tensor, threading.local, threading.Event, threading.Semaphore, *SLOTTED)
"""Classes of skipped modules whose objects hold a program's state."""


STANDARD = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "builtins"}


@functools.cache
def is_users(kind: Any) -> bool:
    """Whether a class is not Python's, torch's or numpy's."""
    return (kind.__module__ or "builtins").partition(".")[0] not in STANDARD and not left_alone(kind)


@functools.cache
def is_installed(module: str, file: str) -> bool:
    """Whether a module belongs to an installed package: a counter that a package keeps for itself is not a program's
    state."""
    above = Path(file).parents
    depth = module.count(".") + (Path(file).stem == "__init__")
    return len(above) > depth and has_packages(above[depth])


@functools.cache
def has_packages(folder: Path) -> bool:
    """Whether a folder has installed packages."""
    return any(folder.glob("*.dist-info"))


def is_users_module(module: types.ModuleType) -> bool:
    """Whether a module is a user's own: not Python's, torch's or numpy's, and not of an installed package."""
    scope = vars(module)  # a `__getattr__` of the module is the user's code
    name = str(scope.get("__name__", ""))
    return not (
        name.partition(".")[0] in STANDARD or is_skipped(name) or is_installed(name, str(scope.get("__file__")))
    )


@functools.cache
def slots_of(kind: Any) -> tuple[tuple[Any, str], ...]:
    """Return the slots of a user's class, and those of Python's that hold a program's objects."""
    if not is_users(kind) and kind not in SLOTTED:
        return ()
    found = []
    for each in kind.__mro__:
        for slot, value in vars(each).items():
            if isinstance(value, types.MemberDescriptorType) and (is_users(each) or each in SLOTTED):
                found.append((value, slot))
    return tuple(found)


@functools.cache
def names_in_code(code: types.CodeType) -> tuple[str, ...]:
    """Return the names that a function's code uses, nested functions included."""
    found = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= dict.fromkeys(names_in_code(constant))
    return tuple(found)


@functools.cache
def names_said(code: types.CodeType) -> tuple[str, ...]:
    """Return the names and the texts like names in a function's code: `globals()["COUNT"]` names a global too."""
    found = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= dict.fromkeys(names_said(constant))
        elif isinstance(constant, str) and constant.isidentifier():
            found[constant] = None
    return tuple(found)


def is_library(function: types.FunctionType) -> bool:
    """Whether a function is Python's, torch's or numpy's own."""
    return str(function.__module__ or "").partition(".")[0] in STANDARD
