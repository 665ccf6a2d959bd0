"""Which places lead from a program's functions to what it keeps.

Of the program's own modules that is everything their globals hold, and of functions what they close over. Of installed
packages it is the globals that a function assigns (`global group`) in a module that works with `torch.distributed`: a
library that sets itself up once is not set up again.
"""

from __future__ import annotations

import argparse
import dis
import functools
import inspect
import sys
import threading
import weakref
from collections import OrderedDict, UserDict, UserList
from collections.abc import Callable, Iterable, Iterator
from types import (
    CodeType,
    FunctionType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

from torch import Tensor, nn

from backprint.values.memory import is_small
from backprint.values.objects import (
    FILL,
    NOT_THERE,
    STANDARD,
    Attributes,
    Cell,
    ClassAttributes,
    Content,
    Globals,
    Gradient,
    Place,
    Unseen,
    Walk,
    is_users_module,
    names_in_code,
    parts_of_attribute,
)

OWN = ("torch", "backprint")
"""Packages whose globals are not a program's."""


LARGE = 4096
"""Containers of more items than this, such as tables that a program looks things up in, are no state of a rank."""

MOST = 16384
"""Of more places than this, those that are nearest to the program's functions are a rank's own."""

OBJECTS = (
    argparse.Namespace,
    SimpleNamespace,
    UserDict,
    UserList,
    weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary,
    weakref.WeakSet,
)
"""Python's classes whose objects hold what a program puts there."""


class Reached(Walk):
    """A walk of what is a program's own: its modules with all their globals, its classes and their objects, and what
    its functions close over."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def places_from(self, roots: Iterable[Any]) -> Iterator[Place]:
        """Yield the places that some functions, classes and modules lead to, the nearest first, until there are
        MOST."""
        for place in self.places(("", root) for root in roots) if self.count < MOST else ():
            if not isinstance(place, Unseen):
                self.count += 1
                yield place
            if self.count >= MOST:
                self.queue.clear()

    def places_of_module(self, name: str, module: ModuleType) -> Iterator[Place]:
        if is_own(vars(module).get("__name__")):
            yield from self.all_globals(vars(module))

    def all_globals(self, table: dict[str, Any]) -> Iterator[Place]:
        """Yield the place of a module's globals."""
        if id(table) not in self.seen:
            self.seen[id(table)] = table
            yield Globals(table)
            self.push_all("", [(name, held) for name, held in table.items() if not name.startswith("__")])

    def places_of_class(self, name: str, kind: type) -> Iterator[Place]:
        """Yield the attributes of a class of the program's own; its bases and its module are searched next."""
        if _is_own_class(kind):
            yield (place := ClassAttributes(kind))
            parts = [part for held in place.table.values() for part in parts_of_attribute(held)]
            bases = type.__dict__["__bases__"].__get__(kind)
            self.push_all(name, enumerate((*parts, *bases, sys.modules.get(str(place.table.get("__module__"))))))

    def places_of_function(self, name: str, function: FunctionType) -> Iterator[Place]:
        """Yield the places of a function. Of a library's, such as a decorator's, only the functions that it wraps
        count, and of ours what it was made for."""
        values = [content for cell in function.__closure__ or () if (content := Cell(cell).read()) is not NOT_THERE]
        if is_own(function.__module__) or _is_of_exec(function.__globals__):
            yield from self.all_globals(function.__globals__)
            yield from (Cell(cell) for cell in function.__closure__ or ())
            imported = (sys.modules.get(key) for key in names_in_code(function.__code__))
            values += (*(function.__defaults__ or ()), function.__kwdefaults__, vars(function), *imported)
        elif str(function.__module__).partition(".")[0] != "backprint":
            values = [value for value in values if type(value) in (FunctionType, MethodType, type)]
        self.push_all(name, enumerate(values))

    def places_of_tensor(self, name: str, tensor: Tensor) -> Iterator[Place]:
        """Yield the values of a small tensor, and its gradient."""
        if is_small(tensor):
            yield Content(tensor)
        if type(tensor) in (Tensor, nn.Parameter) and tensor.is_leaf and tensor.requires_grad:
            yield Gradient(tensor)
            self.push(name, tensor.grad)

    def places_of_array(self, name: str, held: Any) -> Iterator[Place]:
        return iter(())

    def places_of_storage(self, name: str, storage: Any) -> Iterator[Place]:
        return iter(())

    def places_of_cache(self, name: str, cache: Any) -> Iterator[Place]:
        self.push(name, cache.__wrapped__)
        return iter(())

    def places_of_container(self, name: str, container: Any) -> Iterator[Place]:
        """Yield the places of a container, unless it is LARGE."""
        # By the built-in `len` of its kind: a subclass may have one of its own.
        kind = next(known for known in FILL if issubclass(type(container), known))
        if kind.__len__(container) <= LARGE:
            yield from super().places_of_container(name, container)

    def places_of_attributes(self, name: str, value: Any) -> Iterator[Place]:
        """Yield the places of an object of the program's own class, or of one that holds what a program puts there."""
        kind: Any = type(value)
        if issubclass(kind, nn.Module):
            yield from self.places_of_model(value)
        elif _is_own_class(kind) or kind is threading.local or issubclass(kind, OBJECTS):
            self.push(name, kind)
            yield from super().places_of_attributes(name, value)

    def places_of_model(self, model: nn.Module) -> Iterator[Place]:
        """Yield the attributes of an `nn.Module` and those inside it, and what their classes and hooks lead to."""
        for inner in model.modules():
            table = object.__getattribute__(inner, "__dict__")
            yield Attributes(inner, table)
            hooks = [held for name, held in table.items() if name.endswith("_hooks") and type(held) is OrderedDict]
            self.push_all("", enumerate((type(inner), *(hook for held in hooks for hook in held.values()))))


def is_own(module: Any) -> bool:
    """Whether a module, by its name, is the program's own: not Python's, PyTorch's, ours or an installed package's."""
    imported = sys.modules.get(module) if isinstance(module, str) else None
    return issubclass(type(imported), ModuleType) and module.partition(".")[0] not in OWN and is_of_program(imported)


is_of_program: Callable[[Any], bool] = functools.cache(is_users_module)
"""Whether a module is a user's, asked once."""


def _is_own_class(kind: Any) -> bool:
    """Whether a class is the program's own."""
    module = type.__dict__["__dict__"].__get__(kind).get("__module__")
    is_made = bool(type.__dict__["__flags__"].__get__(kind) & HEAP_TYPE)
    return is_own(module) or (is_made and module == "builtins") or _is_of_exec({"__name__": module})


HEAP_TYPE = 1 << 9
"""The flag of classes that are made while the process runs; those of Python's builtins do not have it, and `exec` makes
classes that say they are of `builtins`."""


def _is_of_exec(table: dict[str, Any]) -> bool:
    """Whether a table of globals is of no module that is imported, as that of code that a program gives to `exec`."""
    name = table.get("__name__")
    return name is None or (name not in sys.modules and str(name).partition(".")[0] not in STANDARD)


# ---- Globals that functions assign


def globals_assigned_in(module: Any) -> Iterator[Place]:
    """Yield a place for the globals that the functions of an installed package's module assign, if there are any."""
    if isinstance(module, ModuleType) and not is_own(module.__name__) and (names := assigned_in(module)):
        yield Globals(vars(module), frozenset(names))


@functools.cache
def assigned_in(module: ModuleType) -> tuple[str, ...]:
    """Return the globals that the functions of an installed module assign, if it works with `torch.distributed`."""
    name = getattr(module, "__name__", "")
    package = name.partition(".")[0] if isinstance(name, str) else ""
    is_library = package in OWN or (package in sys.stdlib_module_names and package != "__main__")
    if is_library:
        return ()
    table = dict(vars(module))
    codes = [code for value in table.values() for own in _codes_of(value, name) for code in _codes_inside(own)]
    targets = [target for code in codes for target in _assigned_by(code)]
    is_distributed = targets and (
        any(map(_is_of_distributed, table.values())) or any("distributed" in code.co_names for code in codes)
    )
    return tuple(dict.fromkeys(targets)) if is_distributed else ()


def _is_of_distributed(value: Any) -> bool:
    """Whether a value is of `torch.distributed`: the module, or a function, class or object of it."""
    if isinstance(value, ModuleType):
        return value.__name__.startswith("torch.distributed")
    kind = value if isinstance(value, (type, FunctionType)) else type(value)
    return str(kind.__module__).startswith("torch.distributed")


def _codes_of(value: Any, module: str) -> Iterator[CodeType]:
    """Yield the code of a function, or of the methods of a class, that a module defines."""
    functions = [value]
    if isinstance(value, type) and value.__module__ == module:
        members = vars(value).values()
        functions = [member.fget if isinstance(member, property) else member for member in members]
        functions = [f.__func__ if isinstance(f, (staticmethod, classmethod)) else f for f in functions]
    for function in functions:
        if isinstance(function, FunctionType):
            own = inspect.unwrap(function)  # of a decorated one, the function that is wrapped
            if isinstance(own, FunctionType) and own.__module__ == module:
                yield own.__code__


def _codes_inside(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function, and of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes_inside(constant)


def _assigned_by(code: CodeType) -> Iterator[str]:
    """Yield the globals that a function assigns."""
    # Every second byte of the code is an opcode: to look there first is much faster than `dis`.
    if STORE in code.co_code[::2]:
        yield from (step.argval for step in dis.get_instructions(code) if step.opcode == STORE)


STORE = dis.opmap["STORE_GLOBAL"]
