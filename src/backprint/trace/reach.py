"""Everything that a callable can reach: names for external tensors, and objects with state.

A callable reaches its roots (itself, its closure, the globals that it names, its defaults) and everything that these
lead to by items and attributes. External tensors are tensors that a program uses and that are neither arguments,
parameters nor buffers. Modules, optimizers and the like have state.

Names are paths with dots: `encoder.weight` of a module in the variable `encoder`, and `weight` of the callable itself,
whose name is ''.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import types
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.dynamo import is_optimized
from backprint._torch.modules import INLINED, compiled_call
from backprint.values.objects import (
    STATELESS_TYPES,
    attributes_of,
    class_of,
    is_library,
    is_unsearched_class,
    names_in_code,
    slots_of,
)

MAX_OBJECTS = 100_000
"""The most objects in which tensors are looked for."""

MAX_DEPTH = 6
"""The most items and attributes that may lead from a root to an object in which tensors are looked for."""

MAX_ITEMS = 1000
"""The most items of one container that are searched."""


def roots(target: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects that a callable reaches directly, each with its name: the callable itself, its closure, the
    globals that it uses, its defaults, and the arguments of a functools.partial. The callable itself has the name ''.
    A function or a method itself is left out; of a method, its `self` is yielded."""
    while isinstance(target, functools.partial):
        yield from target.keywords.items()
        yield from ((f"args.{index}", argument) for index, argument in enumerate(target.args))
        target = target.func
    if isinstance(target, nn.Module):
        yield "", target
        yield from _globals_used_by(type(target).forward)
        return
    # The `self` of a method: a module's tensors have names without a prefix.
    if inspect.ismethod(target):
        yield ("" if isinstance(target.__self__, nn.Module) else "self"), target.__self__
        target = target.__func__
    if not inspect.isfunction(target):
        yield "", target
        return
    for name, cell in zip(target.__code__.co_freevars, target.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # a variable of an enclosing function that has no value yet
            continue
    yield from _globals_used_by(target)
    yield from (target.__kwdefaults__ or {}).items()
    # Defaults belong to the last positional parameters, so both are paired from the end; the first may have none.
    parameters = target.__code__.co_varnames[: target.__code__.co_argcount]
    yield from zip(reversed(parameters), reversed(target.__defaults__ or ()), strict=False)


def _globals_used_by(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a function's code names, also in nested functions; none for a function of a library."""
    if not inspect.isfunction(function) or is_library(function):
        return
    for name in names_in_code(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def tensors_of(target: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor that the callable's roots lead to, with a name such as `encoder.weight` or `state.0`. A tensor
    is yielded under each name that it has."""
    visited: set[int] = set()
    # Names and values that are to be searched, each with its depth below the roots.
    queue: deque[tuple[str, Any, int]] = deque((name, value, 0) for name, value in roots(target))
    # Breadth first, so that a tensor has its shortest name first. The limits keep large structures of data from taking
    # long.
    while queue and len(visited) < MAX_OBJECTS:
        name, value, depth = queue.popleft()
        if isinstance(value, Tensor):
            yield name, value
            continue
        if id(value) in visited or depth > MAX_DEPTH:
            continue
        visited.add(id(value))
        for key, child in objects_held_by(value):
            queue.append((".".join(part for part in (name, key) if part), child, depth + 1))


def names_of_outside(target: Any) -> dict[int, str]:
    """Return a name for every tensor that the callable's roots lead to, and for its `.grad`, by the tensor's id."""
    names: dict[int, str] = {}
    for name, tensor in tensors_of(target):
        names.setdefault(id(tensor), name)
        if tensor.is_leaf and tensor.grad is not None:
            names.setdefault(id(tensor.grad), f"{name}.grad")
    return names


@contextlib.contextmanager
def restoring_gradients(target: Any) -> Iterator[None]:
    """Restore `.grad` of all leaf tensors that the callable reaches at the end of the block: a training step may clear
    a gradient before it reads it, and another run must find it."""
    gradients = {id(leaf): (leaf, leaf.grad) for _, leaf in tensors_of(target) if leaf.is_leaf}
    try:
        yield
    finally:
        for leaf, gradient in gradients.values():
            if leaf.grad is not gradient:
                leaf.grad = gradient


def objects_held_by(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values that a value holds, each with its name below that value. At most MAX_ITEMS items of a
    container are searched.

    Of `[x, {"y": z}]`: ("0", x), ("1", {"y": z}); of this dict: ("y", z); of a module: ("fc.weight", …), ….
    """
    if isinstance(value, torch.optim.Optimizer):
        yield from ((f"state.{name}", tensor) for name, tensor in state_of_optimizer(value).items())
    elif isinstance(value, nn.Module):
        yield from _held_by_module(value)
    elif isinstance(value, (list, tuple, deque)):
        yield from ((str(index), child) for index, child in enumerate(itertools.islice(value, MAX_ITEMS)))
    elif isinstance(value, dict):
        items = list(value.items())[:MAX_ITEMS]
        yield from ((key if isinstance(key, str) else str(index), child) for index, (key, child) in enumerate(items))
    elif inspect.isfunction(value) or isinstance(value, (types.MethodType, functools.partial)):
        yield from roots(value)
    elif isinstance(value, weakref.ref):  # what it refers to has the name of the reference
        yield "", value()
    # Any other object: its attributes and slots. Objects of some library classes are not searched.
    elif not inspect.ismodule(value) and not inspect.isclass(value) and not is_unsearched_class(class_of(value)):
        yield from (attributes_of(value) or {}).items()
        for owner, slot in slots_of(class_of(value)):
            with contextlib.suppress(AttributeError):  # a slot without a value
                yield slot, owner.__get__(value)


def _held_by_module(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield a module's tensors, then the public attributes of all modules in it, with their names below it."""
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)
    for path, inner in module.named_modules():
        for key, child in inner.__dict__.items():
            if not key.startswith("_") and type(child) not in STATELESS_TYPES and not isinstance(child, nn.Module):
                yield ".".join(part for part in (path, key) if part), child


def state_of_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the tensors of an optimizer's state, named `0.exp_avg`: the index of the parameter, then the key."""
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
    """Return, by name, the objects with state (STATEFUL_TYPES) that a callable's roots are or have as an attribute; a
    module is searched at any depth."""
    objects: dict[str, Any] = {}
    for name, value in roots(target):
        for key, candidate in ((name, value), *attributes(name, value)):
            if isinstance(candidate, STATEFUL_TYPES) and not any(candidate is other for other in objects.values()):
                objects[key] = candidate
    return objects


def attributes(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an object of this name, with their names; for a module the attributes of STATEFUL_TYPES
    of it and of its submodules; none for other objects with state, classes, Python modules and functions."""
    if isinstance(value, nn.Module):
        for path, module in value.named_modules():
            for key, item in list(vars(module).items()):
                if not key.startswith("_") and isinstance(item, STATEFUL_TYPES):
                    yield ".".join(part for part in (name, path, key) if part), item
    elif not isinstance(value, (*STATEFUL_TYPES, type, types.ModuleType, types.FunctionType)):
        held = attributes_of(value) or {}
        yield from ((f"{name}.{key}" if name else key, item) for key, item in list(held.items()))


def module_paths(target: Any) -> dict[int, str]:
    """Return the path of every module among a callable's roots, and of its submodules, by the module's id."""
    paths: dict[int, str] = {}
    for root, value in roots(target):
        if isinstance(value, nn.Module):
            for path, module in value.named_modules():
                paths.setdefault(id(module), ".".join(part for part in (root, path) if part))
    return paths


def classes_of_modules(target: Any, paths: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the classes of the modules at `paths` and of those around them, with the paths of `module_paths`. A path
    that names none of the callable's modules is left out."""
    return classes_around({path: type(module).__name__ for path, module in _modules_by_path(target).items()}, paths)


def classes_around(classes: Mapping[str, str], paths: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the items of `classes` (a module's path, the name of its class) that are at `paths`, and those of the
    modules around them: for the path `a.b.c`, those at `a`, `a.b` and `a.b.c`. They are in the order of the paths."""
    parts_of_paths = [path.split(".") for path in paths]
    wanted = {".".join(parts[: end + 1]) for parts in parts_of_paths for end in range(len(parts))}
    return tuple(sorted((path, kind) for path, kind in classes.items() if path in wanted))


def _modules_by_path(target: Any) -> dict[str, nn.Module]:
    """Return the modules among a callable's roots, and their submodules, by path; of two modules the first that
    has it."""
    modules: dict[str, nn.Module] = {}
    for root, value in roots(target):
        if isinstance(value, nn.Module):
            for path, module in value.named_modules(remove_duplicate=False):
                modules.setdefault(".".join(part for part in (root, path) if part), module)
    return modules


def compiled_parts(target: Any, title: str) -> Iterator[str]:
    """Yield the names of functions and modules among a callable's roots, and in these, that the user has compiled with
    torch.compile. `title` is the name of the callable itself."""
    for root, value in roots(target):
        if hasattr(value, INLINED):  # a function that torch.compile has made
            yield root
        for path, module in value.named_modules() if isinstance(value, nn.Module) else ():
            if is_optimized(module) or compiled_call(module) is not None:
                yield ".".join(part for part in (root, path) if part) or title
