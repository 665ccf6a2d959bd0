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
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Callable, Iterable, Iterator
from types import (
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

from torch import Tensor, nn

from backprint.ranks.places import (
    FILL,
    NOT_THERE,
    Cell,
    ClassAttributes,
    Content,
    Generator,
    Global,
    Gradient,
    Items,
    OfThread,
    Place,
    Slot,
    Table,
)
from backprint.tracing.reach import STANDARD, is_users_module, names_in_code, slots_of
from backprint.tracing.state.process import is_generator
from backprint.values.memory import is_small

OWN = ("torch", "backprint")
"""Packages whose globals are not a program's."""


CACHED: Any = type(functools.lru_cache(len))
"""The class of what `functools.cache` and `lru_cache` return."""

LARGE = 4096
"""Containers of more items than this, such as tables that a program looks things up in, are no state of a rank."""

MOST = 16384
"""Of more places than this, those that are nearest to the program's functions are a rank's own."""

ATOMS = (int, float, str, bytes, bool, complex, type(None))
"""Types of values that lead nowhere."""

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


class Reached:
    """Everything of a program's own that some functions, classes and modules lead to. Nothing of an object is asked
    that its class can answer: it may be a proxy, or raise."""

    def __init__(self, roots: Iterable[Any]) -> None:
        self.queue = deque(roots)
        self.seen: dict[int, Any] = {}
        self.count = 0

    def places(self) -> Iterator[Place]:
        """Yield the places, the nearest first."""
        while self.queue and self.count < MOST:
            value = self.queue.popleft()
            if type(value) not in ATOMS and id(value) not in self.seen:
                self.seen[id(value)] = value
                for place in self.places_of(value):
                    self.count += 1
                    yield place
        self.queue.clear()

    def places_of(self, value: Any) -> Iterator[Place]:
        """Yield the places of one value, and remember what it leads to."""
        kind: Any = type(value)
        if issubclass(kind, ModuleType):
            if is_own(vars(value).get("__name__")):
                yield from self.places_of_globals(vars(value))
        elif kind is FunctionType:
            yield from self.places_of_function(value)
        elif issubclass(kind, type):
            yield from self.places_of_class(value)
        elif kind in (MethodType, functools.partial, property, staticmethod, classmethod):
            self.queue += parts_of_callable(value)
        elif kind is CACHED:
            self.queue.append(value.__wrapped__)
        elif issubclass(kind, nn.Module):
            yield from self.places_of_modules(value)
        elif issubclass(kind, Tensor):
            if is_small(value):
                yield Content(value)
            if kind in (Tensor, nn.Parameter) and value.is_leaf and value.requires_grad:
                yield Gradient(value)
                self.queue.append(value.grad)
        elif issubclass(kind, (tuple, frozenset)):
            self.queue += (tuple if issubclass(kind, tuple) else frozenset).__iter__(value)
        elif (container := next((known for known in FILL if issubclass(kind, known)), None)) is not None:
            yield from self.places_of_container(value, container)
        else:
            yield from self.places_of_object(value)

    def places_of_globals(self, table: dict[str, Any]) -> Iterator[Place]:
        """Yield the place of a module's globals."""
        if id(table) not in self.seen:
            self.seen[id(table)] = table
            yield Table(table)
            self.queue += [held for name, held in table.items() if not name.startswith("__")]

    def places_of_class(self, kind: Any) -> Iterator[Place]:
        """Yield the place of a class."""
        table = type.__dict__["__dict__"].__get__(kind)
        module = table.get("__module__")
        if is_own_class(kind):
            yield ClassAttributes(kind)
            self.queue += [*table.values(), *type.__dict__["__bases__"].__get__(kind), sys.modules.get(module)]

    def places_of_function(self, function: FunctionType) -> Iterator[Place]:
        """Yield the places of a function. Of a library's, such as a decorator's, only the functions that it wraps
        count, and of ours what it was made for."""
        held = [cell.cell_contents for cell in function.__closure__ or () if Cell(cell).read() is not NOT_THERE]
        if is_own(function.__module__) or is_of_exec(function.__globals__):
            yield from self.places_of_globals(function.__globals__)
            if id(vars(function)) not in self.seen:
                yield Table(vars(function))
            yield from (Cell(cell) for cell in function.__closure__ or ())
            imported = (sys.modules.get(name) for name in names_in_code(function.__code__))
            defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
            self.queue += [*held, *defaults, *vars(function).values(), *imported]
        elif str(function.__module__).partition(".")[0] == "backprint":
            self.queue += held
        else:
            self.queue += [value for value in held if type(value) in (FunctionType, MethodType, type)]

    def places_of_modules(self, module: nn.Module) -> Iterator[Place]:
        """Yield the attributes of an `nn.Module` and those inside it, and what their classes and hooks lead to."""
        for inner in module.modules():
            table = object.__getattribute__(inner, "__dict__")
            yield Table(table)
            hooks = [held for name, held in table.items() if name.endswith("_hooks") and type(held) is OrderedDict]
            self.queue += [type(inner), *(hook for held in hooks for hook in held.values())]

    def places_of_container(self, container: Any, kind: type[Any]) -> Iterator[Place]:
        """Yield the places of a dictionary, a list or the like, whose class may be the program's."""
        if kind.__len__(container) <= LARGE:
            yield (place := Items(container, kind))
            held = place.read()
            self.queue += [*held, *held.values()] if isinstance(held, dict) else held
        if type(container).__module__ not in sys.stdlib_module_names:
            yield from self.places_of_object(container)

    def places_of_object(self, value: Any) -> Iterator[Place]:
        """Yield the places of an object of the program's own class, or of one that holds what a program puts there."""
        kind: Any = type(value)
        if is_generator(kind):
            yield Generator(value)
        elif kind is threading.local:
            yield OfThread(value)
            self.queue += vars(value).values()
        elif (own := is_own_class(kind)) or issubclass(kind, OBJECTS):
            self.queue.append(kind)
            table = attributes_of(value)
            if table is not None:
                yield Table(table)
                self.queue += table.values()
            for descriptor, _ in slots_of(kind) if own else ():
                yield (slot := Slot(value, descriptor))
                self.queue.append(slot.read())


def attributes_of(value: Any) -> dict[str, Any] | None:
    """Return the dictionary of an object's attributes, if it has one. A class may have a property of that name, which
    is not asked."""
    for base in type.__dict__["__mro__"].__get__(type(value)):
        descriptor = type.__dict__["__dict__"].__get__(base).get("__dict__")
        if type(descriptor) in (GetSetDescriptorType, MemberDescriptorType) and base is not type:
            table = descriptor.__get__(value)
            return table if type(table) is dict else None
    return None


def parts_of_callable(value: Any) -> list[Any]:
    """Return the functions, and the arguments, that a callable is made of."""
    if isinstance(value, functools.partial):
        return [value.func, *value.args, value.keywords]
    if isinstance(value, property):
        return [value.fget, value.fset, value.fdel]
    return [value.__func__, getattr(value, "__self__", None)]


def is_own(module: Any) -> bool:
    """Whether a module, by its name, is the program's own: not Python's, PyTorch's, ours or an installed package's."""
    imported = sys.modules.get(module) if isinstance(module, str) else None
    return issubclass(type(imported), ModuleType) and module.partition(".")[0] not in OWN and is_of_program(imported)


is_of_program: Callable[[Any], bool] = functools.cache(is_users_module)
"""Whether a module is a user's, asked once."""


def is_own_class(kind: Any) -> bool:
    """Whether a class is the program's own."""
    module = type.__dict__["__dict__"].__get__(kind).get("__module__")
    is_made = bool(type.__dict__["__flags__"].__get__(kind) & HEAP_TYPE)
    return is_own(module) or (is_made and module == "builtins") or is_of_exec({"__name__": module})


HEAP_TYPE = 1 << 9
"""The flag of classes that are made while the process runs; those of Python's builtins do not have it, and `exec` makes
classes that say they are of `builtins`."""


def is_of_exec(table: dict[str, Any]) -> bool:
    """Whether globals are of no module, as those of code that a program gives to `exec`."""
    name = table.get("__name__")
    return name is None or (name not in sys.modules and str(name).partition(".")[0] not in STANDARD)


# ---- Globals that functions assign


def globals_assigned_in(module: Any) -> Iterator[Place]:
    """Yield the globals that the functions of an installed package's module assign."""
    if isinstance(module, ModuleType) and not is_own(module.__name__):
        yield from (Global(vars(module), target) for target in assigned_in(module))


@functools.cache
def assigned_in(module: ModuleType) -> tuple[str, ...]:
    """Return the globals that the functions of an installed module assign, if it works with `torch.distributed`."""
    name = getattr(module, "__name__", "")
    package = name.partition(".")[0] if isinstance(name, str) else ""
    is_library = package in OWN or (package in sys.stdlib_module_names and package != "__main__")
    if is_library:
        return ()
    table = dict(vars(module))
    codes = [code for value in table.values() for own in codes_of(value, name) for code in codes_inside(own)]
    targets = [target for code in codes for target in assigned_by(code)]
    is_distributed = targets and (
        any(map(is_of_distributed, table.values())) or any("distributed" in code.co_names for code in codes)
    )
    return tuple(dict.fromkeys(targets)) if is_distributed else ()


def is_of_distributed(value: Any) -> bool:
    """Whether a value is of `torch.distributed`: the module, or a function, class or object of it."""
    if isinstance(value, ModuleType):
        return value.__name__.startswith("torch.distributed")
    kind = value if isinstance(value, (type, FunctionType)) else type(value)
    return str(kind.__module__).startswith("torch.distributed")


def codes_of(value: Any, module: str) -> Iterator[CodeType]:
    """Yield the code of a function, or of the methods of a class, that a module defines."""
    functions = [value]
    if isinstance(value, type) and value.__module__ == module:
        members = vars(value).values()
        functions = [member.fget if isinstance(member, property) else member for member in members]
        functions = [f.__func__ if isinstance(f, (staticmethod, classmethod)) else f for f in functions]
    for function in functions:
        if isinstance(function, FunctionType):
            own = inspect.unwrap(function)
            if isinstance(own, FunctionType) and own.__module__ == module:
                yield own.__code__


def codes_inside(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function, and of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_inside(constant)


def assigned_by(code: CodeType) -> Iterator[str]:
    """Yield the globals that a function assigns."""
    if STORE in code.co_code[::2]:
        yield from (step.argval for step in dis.get_instructions(code) if step.opcode == STORE)


STORE = dis.opmap["STORE_GLOBAL"]
