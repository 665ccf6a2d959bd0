"""What a program keeps outside of its model and arguments, such as its groups and its rank: each rank has its own, as
it has in a process of its own.

Of the program's own modules that is everything their globals hold, and of functions what they close over. Of installed
packages it is the globals that a function assigns (`global group`) in a module that works with `torch.distributed`: a
library that sets itself up once is not set up again.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import dis
import functools
import inspect
import os
import sys
import threading
import weakref
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CellType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from backprint._torch.operators import MODULES_OF_REGISTRATIONS
from backprint.tracing.reach import STANDARD, is_users_module, names_in_code, slots_of
from backprint.tracing.state.process import generator_state, is_generator, set_generator_state
from backprint.tracing.state.tensors import untraced
from backprint.values.memory import is_small

NOT_THERE: Any = object()

OWN = ("torch", "backprint")
"""Packages whose globals are not a program's."""


CACHED: Any = type(functools.lru_cache(len))
"""The class of what `functools.cache` and `lru_cache` return."""


# ---- Places


class Place(Protocol):
    """Where a program keeps something."""

    def read(self) -> Any:
        """Return what is there."""

    def write(self, value: Any) -> None:
        """Put there what `read` returned."""


Value = tuple[Place, Any]
"""A place, and what is there."""


class Global(NamedTuple):
    """A global of a module by its name: what is there is NOT_THERE before it is assigned."""

    table: dict[str, Any]
    name: str

    def read(self) -> Any:
        return self.table.get(self.name, NOT_THERE)

    def write(self, value: Any) -> None:
        if value is NOT_THERE:
            self.table.pop(self.name, None)
        elif self.read() is not value:
            self.table[self.name] = value


class Attributes(NamedTuple):
    """The attributes of an object, a function or a class, or the globals of a module or of a function that has none."""

    owner: Any

    def read(self) -> dict[str, Any]:
        return dict(table_of(self.owner))

    def write(self, value: dict[str, Any]) -> None:
        now = table_of(self.owner)
        if len(now) == len(value) and [*map(id, now.values())] == [*map(id, value.values())] and [*now] == [*value]:
            return
        kept = {name for name, held in (*now.items(), *value.items()) if is_of_process(name, held)}
        put, drop = (type.__setattr__, type.__delattr__) if isinstance(self.owner, type) else (set_item, del_item)
        for name in [name for name in now if name not in value and name not in kept]:
            drop(self.owner, name)
        for name, held in value.items():
            if name not in kept and now.get(name, NOT_THERE) is not held:
                put(self.owner, name, held)


def table_of(owner: Any) -> Any:
    """Return the attributes of an object, or globals, by name."""
    return owner if type(owner) is dict else vars(owner)


def set_item(owner: Any, name: str, value: Any) -> None:
    """Set an attribute without what the class of its owner does then."""
    table_of(owner)[name] = value


def del_item(owner: Any, name: str) -> None:
    """Remove an attribute without what the class of its owner does then."""
    del table_of(owner)[name]


def is_of_process(name: str, value: Any) -> bool:
    """Whether a name is the process's own: an import sets it and will not set it again, and an operator is registered
    once."""
    return name.startswith("__") or isinstance(value, ModuleType) or type(value).__module__.startswith(REGISTERED)


REGISTERED = (*MODULES_OF_REGISTRATIONS, "ctypes", "triton")
"""Where the classes are from whose objects a process has once."""


class Items(NamedTuple):
    """What a container holds."""

    container: Any
    kind: type[Any]

    def read(self) -> list[Any]:
        return list(
            self.kind.items(self.container) if issubclass(self.kind, dict) else self.kind.__iter__(self.container)
        )

    def write(self, value: list[Any]) -> None:
        now = self.read()
        if len(now) != len(value) or any(map(differ, now, value)):
            CLEAR[self.kind](self.container)
            FILL[self.kind](self.container, value)


def differ(item: Any, other: Any) -> bool:
    """Whether two items are not the same objects; those of a dictionary are a key and a value."""
    if item is other:
        return False
    are_pairs = type(item) is type(other) is tuple and len(item) == len(other) == 2
    return not are_pairs or item[0] is not other[0] or item[1] is not other[1]


FILL: dict[type[Any], Callable[[Any, Any], Any]] = {
    OrderedDict: OrderedDict.update,
    dict: dict.update,
    list: list.extend,
    set: set.update,
    deque: deque.extend,
    bytearray: bytearray.extend,
    array.array: array.array.extend,
}
"""How each kind of container, whatever its class adds, is filled."""

CLEAR: dict[type[Any], Callable[[Any], Any]] = {
    OrderedDict: OrderedDict.clear,
    dict: dict.clear,
    list: list.clear,
    set: set.clear,
    deque: deque.clear,
    bytearray: bytearray.clear,
    array.array: lambda container: container.__delitem__(slice(None)),
}


class Cell(NamedTuple):
    """A variable that a function closes over."""

    cell: CellType

    def read(self) -> Any:
        try:
            return self.cell.cell_contents
        except ValueError:
            return NOT_THERE

    def write(self, value: Any) -> None:
        if value is NOT_THERE:
            with contextlib.suppress(ValueError):
                del self.cell.cell_contents
        elif self.read() is not value:
            self.cell.cell_contents = value


class Slot(NamedTuple):
    """A slot of an object."""

    owner: Any
    descriptor: Any

    def read(self) -> Any:
        try:
            return self.descriptor.__get__(self.owner)
        except AttributeError:
            return NOT_THERE

    def write(self, value: Any) -> None:
        if value is NOT_THERE and self.read() is not NOT_THERE:
            self.descriptor.__delete__(self.owner)
        elif value is not self.read():
            self.descriptor.__set__(self.owner, value)


class Environment(NamedTuple):
    """The environment variables of the process."""

    def read(self) -> dict[str, str]:
        return dict(os.environ)

    def write(self, value: dict[str, str]) -> None:
        if (now := self.read()) != value:
            for name in now.keys() - value.keys():
                del os.environ[name]
            os.environ.update(value)


class Content(NamedTuple):
    """The values of a small tensor."""

    tensor: Tensor

    def read(self) -> Tensor:
        with untraced():
            return self.tensor.detach().clone()

    def write(self, value: Tensor) -> None:
        with untraced():
            is_like = self.tensor.shape == value.shape and self.tensor.dtype == value.dtype
            if is_like and not torch.equal(as_bytes(self.tensor), as_bytes(value)):
                self.tensor.data.copy_(value)


def as_bytes(tensor: Tensor) -> Tensor:
    """Return the bytes of a tensor, in which NaN is equal to itself."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


class Generator(NamedTuple):
    """The state of a random generator of the program's own."""

    generator: Any

    def read(self) -> Any:
        return generator_state(self.generator)

    def write(self, value: Any) -> None:
        set_generator_state(self.generator, value)


# ---- Which places there are


class Kept:
    """What a program keeps, beginning at the functions and classes that it is made of."""

    def __init__(self, roots: Iterable[Any] = ()) -> None:
        self.reached = Reached(roots)
        self.places: list[Place] = [Environment(), *self.reached.places()]
        self.known: set[str] = set(sys.modules)
        for module in list(sys.modules.values()):
            self.places += globals_assigned_in(module)

    def values(self) -> list[Value]:
        """Return what is in each place now. Modules that were imported since the last time count, too."""
        for name in sys.modules.keys() - self.known if len(sys.modules) != len(self.known) else ():
            self.known.add(name)
            self.reached.queue.append(sys.modules[name])
            self.places += [*self.reached.places(), *globals_assigned_in(sys.modules[name])]
        return [(place, place.read()) for place in self.places]


def with_own_caches(values: Sequence[Value]) -> list[Value]:
    """Return what is in each place, with caches (`functools.cache`) of its own for a rank, empty yet."""
    caches: dict[int, Any] = {}

    def own(value: Any) -> Any:
        if not isinstance(value, CACHED) or not is_own(value.__module__):
            return value
        if id(value) not in caches:
            caches[id(value)] = functools.lru_cache(**value.cache_parameters())(value.__wrapped__)
        return caches[id(value)]

    return [
        (place, {name: own(held) for name, held in value.items()} if isinstance(place, Attributes) else own(value))
        for place, value in values
    ]


def globals_assigned_in(module: Any) -> Iterator[Place]:
    """Yield the globals that the functions of an installed package's module assign."""
    if isinstance(module, ModuleType) and not is_own(module.__name__):
        yield from (Global(vars(module), target) for target in assigned_in(module))


def put_back(values: Sequence[Value]) -> None:
    """Put what is given in its places."""
    for place, value in values:
        place.write(value)


@contextlib.contextmanager
def with_values(values: Sequence[Value]) -> Iterator[None]:
    """Put what is given in its places, and what was there again at the end."""
    before = [(place, place.read()) for place, _ in values]
    put_back(values)
    try:
        yield
    finally:
        put_back(before)


LARGE = 4096
"""Containers of more items than this, such as tables that a program looks things up in, are no state of a rank."""

OBJECTS = (
    argparse.Namespace,
    SimpleNamespace,
    UserDict,
    UserList,
    weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary,
    weakref.WeakSet,
    threading.local,
)
"""Python's classes whose objects hold what a program puts there."""


class Reached:
    """Everything of a program's own that some functions, classes and modules lead to."""

    def __init__(self, roots: Iterable[Any]) -> None:
        self.queue = list(roots)
        self.seen: dict[int, Any] = {}

    def places(self) -> Iterator[Place]:
        """Yield the places."""
        while self.queue:
            value = self.queue.pop()
            if id(value) not in self.seen:
                self.seen[id(value)] = value
                yield from self.places_of(value)

    def places_of(self, value: Any) -> Iterator[Place]:
        """Yield the places of one value, and remember what it leads to."""
        if isinstance(value, ModuleType):
            if is_own(value.__name__):
                yield from self.places_of_globals(vars(value))
        elif isinstance(value, FunctionType):
            yield from self.places_of_function(value)
        elif isinstance(value, type):
            if is_own(value.__module__):
                yield Attributes(value)
                self.queue += [*vars(value).values(), *value.__bases__, sys.modules.get(value.__module__)]
        elif isinstance(value, (MethodType, functools.partial, property, staticmethod, classmethod)):
            self.queue += parts_of_callable(value)
        elif isinstance(value, CACHED):
            self.queue.append(value.__wrapped__)
        elif isinstance(value, nn.Module):
            for module in value.modules():
                yield Attributes(module)
                hooks = (
                    held for name, held in vars(module).items() if name.endswith("_hooks") and type(held) is OrderedDict
                )
                self.queue += [type(module), *(hook for table in hooks for hook in table.values())]
        elif isinstance(value, Tensor):
            if is_small(value):
                yield Content(value)
        elif isinstance(value, (tuple, frozenset)):
            self.queue += value
        elif (kind := next((kind for kind in FILL if isinstance(value, kind)), None)) is not None:
            yield from self.places_of_container(value, kind)
        else:
            yield from self.places_of_object(value)

    def places_of_globals(self, table: dict[str, Any]) -> Iterator[Place]:
        """Yield the place of a module's globals."""
        if id(table) not in self.seen:
            self.seen[id(table)] = table
            yield Attributes(table)
            self.queue += [held for name, held in table.items() if not name.startswith("__")]

    def places_of_function(self, function: FunctionType) -> Iterator[Place]:
        """Yield the places of a function. Of a library's, such as a decorator's, only the functions that it wraps
        count, and of ours what it was made for."""
        held = [cell.cell_contents for cell in function.__closure__ or () if Cell(cell).read() is not NOT_THERE]
        if is_own(function.__module__) or is_of_exec(function.__globals__):
            yield from self.places_of_globals(function.__globals__)
            yield Attributes(function)
            yield from (Cell(cell) for cell in function.__closure__ or ())
            imported = (sys.modules.get(name) for name in names_in_code(function.__code__))
            defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
            self.queue += [*held, *defaults, *vars(function).values(), *imported]
        elif str(function.__module__).partition(".")[0] == "backprint":
            self.queue += held
        else:
            self.queue += [value for value in held if callable(value)]

    def places_of_container(self, container: Any, kind: type[Any]) -> Iterator[Place]:
        """Yield the places of a dictionary, a list or the like, whose class may be the program's."""
        if len(container) <= LARGE:
            yield (place := Items(container, kind))
            self.queue += (part for item in place.read() for part in (item if type(item) is tuple else (item,)))
        if type(container).__module__ not in sys.stdlib_module_names:
            yield from self.places_of_object(container)

    def places_of_object(self, value: Any) -> Iterator[Place]:
        """Yield the places of an object of the program's own class, or of one that holds what a program puts there."""
        kind: Any = type(value)
        if is_generator(kind):
            yield Generator(value)
        elif is_own(kind.__module__) or isinstance(value, OBJECTS):
            self.queue.append(kind)
            if type(getattr(value, "__dict__", None)) is dict:
                yield Attributes(value)
                self.queue += vars(value).values()
            for descriptor, _ in slots_of(kind) if is_own(kind.__module__) else ():
                yield (slot := Slot(value, descriptor))
                self.queue.append(slot.read())


def parts_of_callable(value: Any) -> list[Any]:
    """Return the functions, and the arguments, that a callable is made of."""
    if isinstance(value, functools.partial):
        return [value.func, *value.args, value.keywords]
    if isinstance(value, property):
        return [value.fget, value.fset, value.fdel]
    return [value.__func__, getattr(value, "__self__", None)]


def is_own(module: Any) -> bool:
    """Whether a module, by its name, is the program's own: not Python's, PyTorch's, ours or an installed package's."""
    found = sys.modules.get(module) if isinstance(module, str) else None
    if not isinstance(found, ModuleType) or module.partition(".")[0] in OWN:
        return False
    return is_users_module(found) and (module == "__main__" or module.partition(".")[0] not in sys.stdlib_module_names)


def is_of_exec(table: dict[str, Any]) -> bool:
    """Whether globals are of no module, as those of code that a program gives to `exec`."""
    name = table.get("__name__")
    return name is None or (name not in sys.modules and str(name).partition(".")[0] not in STANDARD)


# ---- Globals that functions assign


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
