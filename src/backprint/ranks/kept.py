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
import operator
import os
import sys
import threading
import weakref
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.operators import is_registration
from backprint.tracing.reach import STANDARD, is_users_module, names_in_code, slots_of
from backprint.tracing.state.process import generator_state, is_generator, set_generator_state
from backprint.tracing.state.snapshot import copied_iterator, is_iterator
from backprint.tracing.state.tensors import untraced
from backprint.values.memory import is_small
from backprint.values.settings import foreign_states, hashable_state, set_foreign_states, state_bytes

NOT_THERE: Any = object()

NOT_READ: Any = object()

OWN = ("torch", "backprint")
"""Packages whose globals are not a program's."""


CACHED: Any = type(functools.lru_cache(len))
"""The class of what `functools.cache` and `lru_cache` return."""


# ---- Places


class Place:
    """Where a program keeps something. `last` is what was read or written last: a value is never changed, and what has
    not changed is the same value."""

    __slots__ = ("last", "owner")

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.last: Any = NOT_READ

    def value(self) -> Any:
        """Return what is there now."""
        if self.last is NOT_READ or not self.is_last():
            self.last = self.read()
        return self.last

    def put(self, value: Any) -> None:
        """Put there what `value` returned, where nothing has changed since it was called last."""
        if self.last is not value:
            self.write(value)
            self.last = value

    def is_last(self) -> bool:
        """Whether what is there is what was there last."""
        return self.read() is self.last

    def read(self) -> Any:
        raise NotImplementedError

    def write(self, value: Any) -> None:
        raise NotImplementedError


Value = tuple[Place, Any]
"""A place, and what is there."""


class Global(Place):
    """A global of a module by its name: what is there is NOT_THERE before it is assigned."""

    __slots__ = ("name",)

    def __init__(self, table: dict[str, Any], name: str) -> None:
        super().__init__(table)
        self.name = name

    def read(self) -> Any:
        return self.owner.get(self.name, NOT_THERE)

    def write(self, value: Any) -> None:
        if value is NOT_THERE:
            del self.owner[self.name]
        else:
            self.owner[self.name] = value


class Table(Place):
    """The attributes of an object or a function, or the globals of a module, in their dictionary."""

    __slots__ = ()

    def is_last(self) -> bool:
        return same_items(self.table(), self.last)

    def table(self) -> Any:
        """Return the dictionary now."""
        return self.owner

    def read(self) -> dict[str, Any]:
        return dict(self.table())

    def write(self, value: dict[str, Any]) -> None:
        now = self.table()
        for name in [name for name in now if name not in value and not is_of_process(name, now[name])]:
            self.remove(name)
        for name, held in value.items():
            if now.get(name, NOT_THERE) is not held and not is_of_process(name, now.get(name)):
                self.set(name, held)

    def set(self, name: str, value: Any) -> None:
        self.owner[name] = value

    def remove(self, name: str) -> None:
        del self.owner[name]


class ClassAttributes(Table):
    """The attributes of a class, whatever its metaclass does when one is set."""

    __slots__ = ()

    def table(self) -> Any:
        return type.__dict__["__dict__"].__get__(self.owner)

    def set(self, name: str, value: Any) -> None:
        type.__setattr__(self.owner, name, value)

    def remove(self, name: str) -> None:
        type.__delattr__(self.owner, name)


class OfThread(Table):
    """The attributes of a `threading.local`: a thread has its own dictionary."""

    __slots__ = ()

    def table(self) -> Any:
        return threading.local.__getattribute__(self.owner, "__dict__")

    def set(self, name: str, value: Any) -> None:
        self.table()[name] = value

    def remove(self, name: str) -> None:
        del self.table()[name]


def same_items(table: Any, other: dict[Any, Any]) -> bool:
    """Whether two dictionaries have the same objects under the same keys, in one order, whatever the class of one
    does."""
    is_dict = issubclass(type(table), dict)
    size, keys, values = (
        (dict.__len__, dict.keys, dict.values) if is_dict else (len, type(table).keys, type(table).values)
    )
    return (
        size(table) == len(other)
        and all(map(operator.is_, values(table), other.values()))
        and all(map(operator.is_, keys(table), other))
    )


def is_of_process(name: str, value: Any) -> bool:
    """Whether a name is the process's own: an import, or a registration of operators, sets it once."""
    return name.startswith("__") or issubclass(type(value), ModuleType) or is_registration(value)


class Items(Place):
    """What a container holds. `kind` is the class of Python's that its class is or adds to."""

    __slots__ = ("kind",)

    def __init__(self, container: Any, kind: type[Any]) -> None:
        super().__init__(container)
        self.kind = kind

    def is_last(self) -> bool:
        if issubclass(self.kind, dict):
            return same_items(self.owner, self.last)
        items = self.kind.__iter__(self.owner)
        return bool(self.kind.__len__(self.owner) == len(self.last)) and all(map(operator.is_, items, self.last))

    def read(self) -> Any:
        return (
            dict(self.kind.items(self.owner)) if issubclass(self.kind, dict) else list(self.kind.__iter__(self.owner))
        )

    def write(self, value: Any) -> None:
        CLEAR[self.kind](self.owner)
        FILL[self.kind](self.owner, value)


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


class Cell(Place):
    """A variable that a function closes over."""

    __slots__ = ()

    def read(self) -> Any:
        try:
            return self.owner.cell_contents
        except ValueError:
            return NOT_THERE

    def write(self, value: Any) -> None:
        if value is NOT_THERE:
            del self.owner.cell_contents
        else:
            self.owner.cell_contents = value


class Slot(Place):
    """A slot of an object."""

    __slots__ = ("descriptor",)

    def __init__(self, owner: Any, descriptor: Any) -> None:
        super().__init__(owner)
        self.descriptor = descriptor

    def read(self) -> Any:
        try:
            return self.descriptor.__get__(self.owner)
        except AttributeError:
            return NOT_THERE

    def write(self, value: Any) -> None:
        if value is NOT_THERE:
            self.descriptor.__delete__(self.owner)
        else:
            self.descriptor.__set__(self.owner, value)


class Environment(Place):
    """The environment variables of the process."""

    __slots__ = ()

    def is_last(self) -> bool:
        return bool(self.read() == self.last)

    def read(self) -> dict[str, str]:
        return dict(self.owner)

    def write(self, value: dict[str, str]) -> None:
        for name in self.owner.keys() - value.keys():
            del self.owner[name]
        self.owner.update(value)


class Content(Place):
    """The values of a small tensor."""

    __slots__ = ()

    def is_last(self) -> bool:
        is_like = self.owner.shape == self.last.shape and self.owner.dtype == self.last.dtype
        return is_like and torch.equal(as_bytes(self.owner), as_bytes(self.last))

    def read(self) -> Tensor:
        held: Tensor = self.owner.detach().clone()
        return held

    def write(self, value: Tensor) -> None:
        if self.owner.shape == value.shape and self.owner.dtype == value.dtype:
            self.owner.data.copy_(value)


class Gradient(Place):
    """The gradient of a tensor."""

    __slots__ = ()

    def read(self) -> Any:
        return self.owner.grad

    def write(self, value: Any) -> None:
        self.owner.grad = value


def as_bytes(tensor: Tensor) -> Tensor:
    """Return the bytes of a tensor, in which NaN is equal to itself."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


class Generator(Place):
    """The state of a random generator of the program's own."""

    __slots__ = ()

    def is_last(self) -> bool:
        return bool(hashable_state(self.read()) == hashable_state(self.last))

    def read(self) -> Any:
        state = generator_state(self.owner)
        return state_bytes(state) if isinstance(state, Tensor) else state

    def write(self, value: Any) -> None:
        state = torch.frombuffer(bytearray(value), dtype=torch.uint8) if isinstance(value, bytes) else value
        set_generator_state(self.owner, state)


class RandomNumbers(Place):
    """The states of Python's random numbers, and of NumPy's."""

    __slots__ = ()

    def is_last(self) -> bool:
        return bool(hashable_state(self.read()) == hashable_state(self.last))

    def read(self) -> Any:
        return foreign_states()

    def write(self, value: Any) -> None:
        set_foreign_states(value)


# ---- Which places there are


class Kept:
    """What a program keeps, beginning at the functions and classes that it is made of."""

    def __init__(self, roots: Iterable[Any] = ()) -> None:
        self.reached = Reached(roots)
        with untraced():
            self.places: list[Place] = [Environment(os.environ), RandomNumbers(None), *self.reached.places()]
        self.known: set[str] = set(sys.modules)
        for module in list(sys.modules.values()):
            self.places += globals_assigned_in(module)

    def values(self) -> list[Value]:
        """Return what is in each place now. Modules that were imported since the last time count, too."""
        with untraced():
            for name in sys.modules.keys() - self.known if len(sys.modules) != len(self.known) else ():
                self.known.add(name)
                self.reached.queue.append(sys.modules[name])
                self.places += [*self.reached.places(), *globals_assigned_in(sys.modules[name])]
            return [(place, place.value()) for place in self.places]


def with_own_copies(values: Sequence[Value], count: int = 1) -> list[list[Value]]:
    """Return what is in each place for each of some ranks, with copies of its own of what a run uses up: caches
    (`functools.cache`), which are empty yet, and iterators, at the same position."""
    used = [
        number
        for number, (place, value) in enumerate(values)
        if isinstance(place, (Table, Items, Cell, Slot)) and any(map(is_used_up, items_of(place, value)))
    ]
    rows = [list(values) for _ in range(count)]
    for row in rows:
        copies: dict[int, Any] = {}
        memo: dict[int, tuple[Any, Any]] = {}
        for number in used:
            place, value = values[number]
            for item in items_of(place, value):
                if id(item) not in copies:
                    copies[id(item)] = own_copy(item, memo)
            if isinstance(value, dict):
                row[number] = place, {key: copies[id(item)] for key, item in value.items()}
            else:
                own = [copies[id(item)] for item in items_of(place, value)]
                row[number] = place, own if isinstance(place, Items) else own[0]
    return rows


def items_of(place: Place, value: Any) -> Iterable[Any]:
    """Return the objects that a place holds."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(place, Items) else (value,)


def is_used_up(value: Any) -> bool:
    """Whether a value is a cache of the program's own, or an iterator."""
    kind = type(value)
    return (kind is CACHED and is_own(value.__module__)) or (kind not in NO_ITERATORS and is_iterator(value))


def own_copy(value: Any, memo: dict[int, tuple[Any, Any]]) -> Any:
    """Return a cache like another, empty, or an iterator at the same position; other values, and iterators that cannot
    be copied, as they are."""
    if not is_used_up(value):
        return value
    if type(value) is CACHED:
        return functools.lru_cache(**value.cache_parameters())(value.__wrapped__)
    try:
        return copied_iterator(value, memo)
    except TypeError:
        return value


def globals_assigned_in(module: Any) -> Iterator[Place]:
    """Yield the globals that the functions of an installed package's module assign."""
    if isinstance(module, ModuleType) and not is_own(module.__name__):
        yield from (Global(vars(module), target) for target in assigned_in(module))


def put_back(values: Sequence[Value], *, has_run: bool = True) -> None:
    """Put what is given in its places. The program `has_run` since they were read: then they are read first."""
    with untraced():
        for place, value in values:
            if has_run:
                place.value()
            place.put(value)


@contextlib.contextmanager
def with_values(values: Sequence[Value]) -> Iterator[None]:
    """Put what is given in its places, and what was there again at the end."""
    with untraced():
        before = [(place, place.value()) for place, _ in values]
    put_back(values, has_run=False)
    try:
        yield
    finally:
        put_back(before)


LARGE = 4096
"""Containers of more items than this, such as tables that a program looks things up in, are no state of a rank."""

MOST = 16384
"""Of more places than this, those that are nearest to the program's functions are a rank's own."""

ATOMS = (int, float, str, bytes, bool, complex, type(None))
"""Types of values that lead nowhere."""

NO_ITERATORS = frozenset({*ATOMS, type, FunctionType, weakref.ProxyType, weakref.CallableProxyType})
"""Types of values that are no iterators; proxies are what they stand for."""

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
    """Return the dictionary of an object's attributes, if it has one."""
    try:
        table = object.__getattribute__(value, "__dict__")
    except Exception:  # a class may have a property of that name, which raises anything
        return None
    return table if type(table) is dict else None


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
    return issubclass(type(found), ModuleType) and module.partition(".")[0] not in OWN and is_of_program(found)


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
