"""Everything that a callable can reach: names for tensors from outside its call, and objects with state."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import functools
import inspect
import itertools
import operator
import re
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.dynamo import is_optimized
from backprint._torch.modules import INLINED, compiled_call


def roots(target: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects that a callable can reach by a name: itself, its closure, the globals that it uses, its
    defaults."""
    while isinstance(target, functools.partial):
        yield from target.keywords.items()
        yield from ((f"args.{index}", argument) for index, argument in enumerate(target.args))
        target = target.func
    if isinstance(target, nn.Module):
        yield "", target
        yield from globals_used_by(type(target).forward)
        return
    if inspect.ismethod(target):
        yield ("" if isinstance(target.__self__, nn.Module) else "self"), target.__self__
        target = target.__func__
    if not inspect.isfunction(target):
        yield "", target
        return
    for name, cell in zip(target.__code__.co_freevars, target.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue
    yield from globals_used_by(target)
    yield from (target.__kwdefaults__ or {}).items()
    parameters = target.__code__.co_varnames[: target.__code__.co_argcount]
    yield from zip(reversed(parameters), reversed(target.__defaults__ or ()), strict=False)


def globals_used_by(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a function's code uses, nested functions included."""
    if not inspect.isfunction(function) or is_library(function):
        return
    for name in names_in_code(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def tensors_of(target: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor that the callable's roots lead to, with a name."""
    visited: set[int] = set()
    queue: deque[tuple[str, Any, int]] = deque((name, value, 0) for name, value in roots(target))
    while queue and len(visited) < 100_000:
        name, value, depth = queue.popleft()
        if isinstance(value, Tensor):
            yield name, value
            continue
        if id(value) in visited or depth > 6:
            continue
        visited.add(id(value))
        for key, child in objects_held_by(value):
            queue.append((".".join(part for part in (name, key) if part), child, depth + 1))


def names_of_outside(target: Any) -> dict[int, str]:
    """Return a name for every tensor that the callable's roots lead to, by identity, gradients included."""
    names: dict[int, str] = {}
    for name, tensor in tensors_of(target):
        names.setdefault(id(tensor), name)
        if tensor.is_leaf and tensor.grad is not None:
            names.setdefault(id(tensor.grad), f"{name}.grad")
    return names


@contextlib.contextmanager
def restoring_gradients(target: Any) -> Iterator[None]:
    """Restore `.grad` of all leaves that the callable reaches: a step may clear a gradient before it reads it."""
    gradients = {id(leaf): (leaf, leaf.grad) for _, leaf in tensors_of(target) if leaf.is_leaf}
    try:
        yield
    finally:
        for leaf, gradient in gradients.values():
            if leaf.grad is not gradient:
                leaf.grad = gradient


def objects_held_by(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values that a value holds, by name."""
    if isinstance(value, torch.optim.Optimizer):
        yield from ((f"state.{name}", tensor) for name, tensor in state_of_optimizer(value).items())
        return
    if isinstance(value, nn.Module):
        yield from value.named_parameters(remove_duplicate=False)
        yield from value.named_buffers(remove_duplicate=False)
        for path, module in value.named_modules():
            for key, child in module.__dict__.items():
                if not key.startswith("_") and type(child) not in STATELESS_TYPES and not isinstance(child, nn.Module):
                    yield ".".join(part for part in (path, key) if part), child
    elif isinstance(value, (list, tuple, deque)):
        yield from ((str(index), child) for index, child in enumerate(itertools.islice(value, 1000)))
    elif isinstance(value, dict):
        items = list(value.items())[:1000]
        yield from ((key if isinstance(key, str) else str(index), child) for index, (key, child) in enumerate(items))
    elif inspect.isfunction(value) or isinstance(value, (types.MethodType, functools.partial)):
        yield from roots(value)
    elif isinstance(value, weakref.ref):
        yield "", value()
    elif not inspect.ismodule(value) and not inspect.isclass(value) and not is_unsearched_class(class_of(value)):
        yield from getattr(value, "__dict__", {}).items()
        for owner, slot in slots_of(class_of(value)):
            with contextlib.suppress(AttributeError):
                yield slot, owner.__get__(value)


def state_of_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return an optimizer's tensors, by the index of their parameter and their key."""
    parameters = [tensor for group in optimizer.param_groups for tensor in group["params"]]
    return {
        f"{index}.{key}": value
        for index, tensor in enumerate(parameters)
        for key, value in optimizer.state.get(tensor, {}).items()
        if isinstance(value, Tensor)
    }


STATEFUL_TYPES = (nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
"""Types of objects with state that a step may change."""


def stateful_objects(target: Any) -> dict[str, Any]:
    """Return the stateful objects that a callable reaches by name, directly or as an attribute; in modules at any
    depth."""
    objects: dict[str, Any] = {}
    for name, value in roots(target):
        for key, candidate in ((name, value), *attributes(name, value)):
            if isinstance(candidate, STATEFUL_TYPES) and not any(candidate is other for other in objects.values()):
                objects[key] = candidate
    return objects


def attributes(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield an object's attributes; for a module the stateful attributes of it and its submodules."""
    if isinstance(value, nn.Module):
        for path, module in value.named_modules():
            for key, item in list(vars(module).items()):
                if not key.startswith("_") and isinstance(item, STATEFUL_TYPES):
                    yield ".".join(part for part in (name, path, key) if part), item
    elif hasattr(value, "__dict__") and not isinstance(
        value, (*STATEFUL_TYPES, type, types.ModuleType, types.FunctionType)
    ):
        yield from ((f"{name}.{key}" if name else key, item) for key, item in list(vars(value).items()))


def module_paths(target: Any) -> dict[int, str]:
    """Return the path of every submodule that a callable can run, by identity."""
    paths: dict[int, str] = {}
    for root, value in roots(target):
        if isinstance(value, nn.Module):
            for path, module in value.named_modules():
                paths.setdefault(id(module), ".".join(part for part in (root, path) if part))
    return paths


def compiled_parts(target: Any, title: str) -> Iterator[str]:
    """Yield the names of parts that the user has compiled with torch.compile; `title` names the callable itself."""
    for root, value in roots(target):
        if hasattr(value, INLINED):
            yield root
        for path, module in value.named_modules() if isinstance(value, nn.Module) else ():
            if is_optimized(module) or compiled_call(module) is not None:
                yield ".".join(part for part in (root, path) if part) or title


# ---- Which objects hold state that a program could change

STATELESS_TYPES = frozenset(
    (
        int,
        float,
        complex,
        bool,
        str,
        bytes,
        type(None),
        type(Ellipsis),
        type(NotImplemented),
        slice,
        range,
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
        torch.Size,
        types.CodeType,
        types.GetSetDescriptorType,
        types.MemberDescriptorType,
        types.WrapperDescriptorType,
        types.MethodDescriptorType,
        property,
        staticmethod,
        classmethod,
        datetime.date,
        datetime.time,
        datetime.datetime,
        datetime.timedelta,
        decimal.Decimal,
        re.Pattern,
        operator.attrgetter,
        operator.itemgetter,
        operator.methodcaller,
    )
)
"""Types without state that a program could change."""

UNSEARCHED_MODULES = (
    "torch.fx",
    "torch.jit",
    "torch.package",
    "torch.distributed",
    "torch.export",
    "torch.library",
    "torch.multiprocessing",
    "threading",
    "_thread",
    "concurrent",
    "asyncio",
    "multiprocessing",
    "io",
    "_io",
    "socket",
    "importlib",
    "_frozen_importlib",
    "backprint",
    "re",
    "ast",
    "_pytest",
    "pytest",
    "pluggy",
    "unittest",
    "abc",
    "typing",
    "inspect",
    "enum",
    "warnings",
    "sympy",
    "rich",
    "click",
)
"""Modules whose objects are not a program's state: machinery, threads, files."""

MACHINERY = ("torch.distributed.fsdp._fully_shard.", "torch.distributed.tensor.", "torch.distributed.device_mesh")
"""Modules whose objects change with each step and are as before when it has ended: nothing of them is restored."""


def is_machinery(kind: type) -> bool:
    """Whether a class is of the machinery of sharded training."""
    return str(kind.__module__ or "").startswith(MACHINERY) and not issubclass(kind, (nn.Module, Tensor))


PRIVATE_PREFIXES = ("torch._", "torch.utils._")
"""Prefixes of torch's private modules."""


def is_unsearched_module(module: str) -> bool:
    """Whether objects of a module's classes are not looked into."""
    return module.startswith(PRIVATE_PREFIXES) or any(
        module == head or module.startswith(f"{head}.") for head in UNSEARCHED_MODULES
    )


def class_of(value: Any) -> Any:
    return type(value)


@functools.cache
def is_unsearched_class(kind: Any) -> bool:
    """Whether objects of a class are not looked into; an `nn.Module` of torch's own machinery still is."""
    module = str(kind.__module__ or "")
    return not issubclass(kind, SEARCHED_CLASSES) and module not in SEARCHED_MODULES and is_unsearched_module(module)


SEARCHED_MODULES = ("asyncio.queues", "asyncio.locks", "concurrent.futures._base", "unittest.mock")
"""Modules of those that are skipped whose objects hold a program's state as well."""

CLASSES_WITH_SLOTS = (inspect.Signature, inspect.Parameter)
"""Classes of skipped modules whose slots hold a program's objects."""

SEARCHED_CLASSES = (nn.Module, Tensor, threading.local, threading.Event, threading.Semaphore, *CLASSES_WITH_SLOTS)
"""Classes of skipped modules whose objects hold a program's state."""


STANDARD = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "builtins"}


@functools.cache
def is_users(kind: Any) -> bool:
    """Whether a class is not Python's, torch's or numpy's."""
    return (kind.__module__ or "builtins").partition(".")[0] not in STANDARD and not is_unsearched_class(kind)


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
        name.partition(".")[0] in STANDARD
        or is_unsearched_module(name)
        or is_installed(name, str(scope.get("__file__")))
    )


@functools.cache
def slots_of(kind: Any) -> tuple[tuple[Any, str], ...]:
    """Return the slots of a user's class, and those of Python's that hold a program's objects."""
    if not is_users(kind) and kind not in CLASSES_WITH_SLOTS:
        return ()
    slots = []
    for base in kind.__mro__:
        for slot, value in vars(base).items():
            if isinstance(value, types.MemberDescriptorType) and (is_users(base) or base in CLASSES_WITH_SLOTS):
                slots.append((value, slot))
    return tuple(slots)


@functools.cache
def names_in_code(code: types.CodeType) -> tuple[str, ...]:
    """Return the names that a function's code uses, nested functions included."""
    names = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= dict.fromkeys(names_in_code(constant))
    return tuple(names)


@functools.cache
def names_mentioned(code: types.CodeType) -> tuple[str, ...]:
    """Return the names and the texts like names in a function's code: `globals()["COUNT"]` names a global too."""
    names = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= dict.fromkeys(names_mentioned(constant))
        elif isinstance(constant, str) and constant.isidentifier():
            names[constant] = None
    return tuple(names)


def is_library(function: types.FunctionType) -> bool:
    """Whether a function is Python's, torch's or numpy's own."""
    return str(function.__module__ or "").partition(".")[0] in STANDARD
