"""Python's objects: the places where one holds others, and the one walk of everything that some objects lead to.

A Place is where a program keeps something: the attributes of an object, the items of a container, a variable of a
closure, a slot, the globals of a module, the values of a tensor. It reads the value that is there, and writes it again
later. A Walk yields the places that some objects lead to, the nearest first, and sorts objects by the table FORMS.
Attributes, items and slots are read by Python's own functions and not by an object's class, which may be a proxy or
raise.

Each class of Place is for one kind of place, and has the same methods: `read` returns the value that is there now,
`write(value)` writes a value that `read` returned before, and `is_last` says whether the value that is there now is
`last`, the one that was read or written last. NOT_THERE is the value of what is not assigned yet.

A method `places_of_…(name, value)` of Walk is for objects of one form. It yields the places in the object `value`, and
gives the objects that it holds to `push`, which puts them into the queue to be looked at later. `name` is the path to
the object, for messages. An object is looked at once: `seen` has those that were, by their ids. Of globals, only those
are places that code mentions which was looked at: `names` has these names, `scopes` those that were looked up in each
table of globals, by its id, and `modules` the user's modules.

- A capture restores the places that its program reaches (`trace/state`).
- Each rank of a world has its own values in the places of the program's own modules (`ranks`).
- `trace/reach` asks here which objects are searched, and which names code mentions.
"""

from __future__ import annotations

import array
import builtins
import contextlib
import datetime
import decimal
import functools
import inspect
import io
import operator
import random
import re
import sys
import threading
import types
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, UntypedStorage, nn

from backprint._torch.operators import is_registration
from backprint._torch.tensors import backward_hooks, base_of, post_accumulate_hooks
from backprint.values.memory import as_bytes
from backprint.values.settings import hashable_state, state_bytes
from backprint.values.wrappers import is_wrapped, unwrap

# ---- Places

NOT_THERE: Any = object()
"""The value of a variable, a slot or a name before it is assigned."""

NOT_READ: Any = object()
"""Stands for the last value of a Place that was neither read nor written yet."""


class Place(ABC):
    """Where a program keeps something: in the object `owner`, under `name` in messages. `last` is the value that was
    read or written last. Values are never changed in place, so a place that has not changed returns the same object
    again."""

    __slots__ = ("last", "name", "owner")

    def __init__(self, owner: Any, name: str = "") -> None:
        self.owner = owner
        self.name = name
        self.last: Any = NOT_READ

    def value(self) -> Any:
        """Return the value that is there now."""
        if self.last is NOT_READ or not self.is_last():
            self.last = self.read()
        return self.last

    def put(self, value: Any) -> None:
        """Write a value that the method `value` returned, unless it is the one that was read or written last."""
        if self.last is not value:
            self.write(value)
            self.last = value

    def restore(self) -> None:
        """Write the last value again, if another one is there now."""
        if not self.is_last():
            self.write(self.last)

    def is_last(self) -> bool:
        """Whether the value that is there is the last one."""
        return self.read() is self.last

    @abstractmethod
    def read(self) -> Any:
        """Return the value that is there now, as an object of its own."""

    @abstractmethod
    def write(self, value: Any) -> None:
        """Write a value that `read` returned."""


class Attributes(Place):
    """The attributes of an object or a function, in their dictionary `table`."""

    __slots__ = ("table",)

    def __init__(self, owner: Any, table: dict[str, Any], name: str = "") -> None:
        super().__init__(owner, name)
        self.table = table

    def is_last(self) -> bool:
        return _same_items(self.now(), self.last)

    def now(self) -> Any:
        """Return the dictionary, or the items of it that count."""
        return self.table

    def read(self) -> dict[str, Any]:
        return dict(self.now())

    def write(self, value: dict[str, Any]) -> None:
        """Make the attributes those of `value`: delete what it does not have, set what differs, restore their order.
        What belongs to the process (`_is_of_process`) stays as it is."""
        now = self.read()
        for name, held in now.items():
            if name not in value and not _is_of_process(name, held):
                self.remove(name)
        for name, held in value.items():
            if now.get(name, NOT_THERE) is not held and not _is_of_process(name, now.get(name)):
                self.set(name, held)
        if list(self.now()) != list(value):
            self.reorder(value)

    def reorder(self, value: dict[str, Any]) -> None:
        """Put the attributes in the order of a value that `read` returned: `vars(object)` is read in it."""
        for name in value:
            if name in self.table:
                self.table[name] = self.table.pop(name)

    def set(self, name: str, value: Any) -> None:
        """Set one attribute."""
        self.table[name] = value

    def remove(self, name: str) -> None:
        """Delete one attribute."""
        del self.table[name]


class Globals(Attributes):
    """The globals of a module, in its dictionary `table`: all of them, or with `names` those of these names, whether
    they are assigned yet or not."""

    __slots__ = ("names",)

    def is_last(self) -> bool:
        # In any order, as `write` does not restore the order of globals.
        now = self.now()
        return len(now) == len(self.last) and all(now.get(name, NOT_THERE) is held for name, held in self.last.items())

    def reorder(self, value: dict[str, Any]) -> None:
        """Leave the order of globals as it is: other threads read them."""

    def __init__(self, table: dict[str, Any], names: frozenset[str] | None = None) -> None:
        super().__init__(owner=table, table=table)
        self.names = names

    def now(self) -> Any:
        if self.names is None:
            return self.table
        return {name: self.table[name] for name in sorted(self.names.intersection(self.table))}


class ClassAttributes(Attributes):
    """The attributes of a class, whatever its metaclass does when one is set. Attributes that Python itself keeps in
    each class are not written."""

    __slots__ = ()

    def __init__(self, owner: Any, name: str = "") -> None:
        # `type`'s own descriptor, because a metaclass may answer `__dict__` in another way.
        super().__init__(owner, type.__dict__["__dict__"].__get__(owner), name)

    def is_last(self) -> bool:
        # The table of a class is a mappingproxy, which `dict`'s own functions do not take.
        same_names = len(self.table) == len(self.last) and all(map(operator.is_, self.table, self.last))
        return same_names and all(map(operator.is_, self.table.values(), self.last.values()))

    def write(self, value: dict[str, Any]) -> None:
        """Make the class's own attributes (`_is_own_attribute`: not those that Python itself keeps in each class) those
        of `value`. By functions of `type`, because a metaclass may have others."""
        now = self.read()
        for name, held in now.items():
            if name not in value and _is_own_attribute(name, held):
                type.__delattr__(self.owner, name)
        for name, held in value.items():
            if now.get(name, NOT_THERE) is not held and _is_own_attribute(name, held):
                type.__setattr__(self.owner, name, held)


class _OfThread(Attributes):
    """The attributes of a `threading.local`: a thread has its own dictionary."""

    __slots__ = ()

    def now(self) -> Any:
        return threading.local.__getattribute__(self.owner, "__dict__")

    def reorder(self, value: dict[str, Any]) -> None:
        """Leave the order as it is."""

    def set(self, name: str, value: Any) -> None:
        self.now()[name] = value

    def remove(self, name: str) -> None:
        del self.now()[name]


def _same_items(table: Any, other: dict[Any, Any]) -> bool:
    """Whether two dictionaries have the same objects under the same keys, in one order. `table` may be of a subclass of
    dict, whose own methods are not called; `other` is a plain dict."""
    if dict.__len__(table) != len(other):
        return False
    if not other:
        return True  # as most tables of hooks are
    kind = OrderedDict if issubclass(type(table), OrderedDict) else dict  # an OrderedDict has an order of its own
    return all(map(operator.is_, kind.values(table), other.values())) and all(
        map(operator.is_, kind.keys(table), other)
    )


def _is_of_process(name: str, value: Any) -> bool:
    """Whether an attribute belongs to the process and not to the program's state: an import, or a registration of
    operators, sets it once."""
    return name.startswith("__") or issubclass(type(value), ModuleType) or is_registration(value)


def _is_own_attribute(name: str, value: Any) -> bool:
    """Whether an attribute of a class is one that a program may set, and not one that Python itself keeps in each
    class."""
    return not name.startswith("__") or type(value) in (FunctionType, property, staticmethod, classmethod)


class Items(Place):
    """The items of a container. `kind` is the class of FILL that the container's class is or derives from: its
    functions are called, as the container's own class may have others."""

    __slots__ = ("kind",)

    def __init__(self, container: Any, kind: type[Any], name: str = "") -> None:
        super().__init__(container, name)
        self.kind = kind

    def is_last(self) -> bool:
        """Whether the container has the very objects that it had, in the same order."""
        if issubclass(self.kind, dict):
            return _same_items(self.owner, self.last)
        # An array makes new numbers at each read, so they have no identity to compare.
        if self.kind is array.array:
            return list(self.owner) == self.last
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
"""How each kind of container is filled, by the function of its base class and not by its own class."""

CLEAR: dict[type[Any], Callable[[Any], Any]] = {
    OrderedDict: OrderedDict.clear,
    dict: dict.clear,
    list: list.clear,
    set: set.clear,
    deque: deque.clear,
    bytearray: bytearray.clear,
    array.array: lambda container: container.__delitem__(slice(None)),
}
"""How each kind of container is emptied, by the function of its base class."""


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


class SlotAttribute(Place):
    """A slot of an object, which the `descriptor` of its class reads and sets."""

    __slots__ = ("descriptor",)

    def __init__(self, owner: Any, descriptor: Any, name: str = "") -> None:
        super().__init__(owner, name)
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


class Content(Place):
    """The values of a tensor."""

    __slots__ = ()

    def is_last(self) -> bool:
        is_like = self.owner.shape == self.last.shape and self.owner.dtype == self.last.dtype
        return is_like and torch.equal(as_bytes(self.owner), as_bytes(self.last))

    def read(self) -> Tensor:
        contents: Tensor = self.owner.detach().clone()
        return contents

    def write(self, value: Tensor) -> None:
        # By `.data`, so that autograd's version of the tensor stays. A resized tensor is left as it is.
        if self.owner.shape == value.shape and self.owner.dtype == value.dtype:
            self.owner.data.copy_(value)


class Gradient(Place):
    """The gradient of a tensor."""

    __slots__ = ()

    def read(self) -> Any:
        return self.owner.grad

    def write(self, value: Any) -> None:
        self.owner.grad = value


class Array(Place):
    """The values of a NumPy array whose shape and type stay as they are."""

    __slots__ = ()

    def is_last(self) -> bool:
        contents, layout = self.last
        # Another layout counts as unchanged, because `write` could not put the values there.
        return self.layout() != layout or self.plain().tobytes() == contents.tobytes()

    def layout(self) -> Any:
        """Return the facts besides the memory on which the values depend."""
        return self.owner.shape, self.owner.strides, self.owner.dtype, self.owner.flags.writeable

    def plain(self) -> Any:
        """Return the array without its class, because a masked array's own functions would fill in masked values."""
        numpy = sys.modules["numpy"]
        return self.owner if type(self.owner) is numpy.ndarray else self.owner.view(numpy.ndarray)

    def read(self) -> Any:
        return self.plain().copy(), self.layout()

    def write(self, value: Any) -> None:
        contents, _ = value
        self.plain()[...] = contents


class Unseen(Place):
    """An object of a C type whose state is in no place: an iterator, a cache, a file, a lock. Nothing is written."""

    __slots__ = ()

    def read(self) -> None:
        return None

    def write(self, value: Any) -> None:
        pass


# ---- Random generators: torch's, Python's and NumPy's


def _numpy_state(source: Any) -> Any:
    """Return the state of a NumPy generator. A SeedSequence has none, because no number is drawn from it."""
    if hasattr(source, "spawn_key"):
        return None
    return source.bit_generator.state if hasattr(source, "bit_generator") else getattr(source, "state", None)


def _set_numpy_state(source: Any, state: Any) -> None:
    """Set the state of a NumPy generator, as `_numpy_state` returned it; None is no state."""
    holder = source.bit_generator if hasattr(source, "bit_generator") else source
    if state is not None:
        holder.state = state


GENERATORS: dict[Any, tuple[Callable[[Any], Any], Callable[[Any, Any], None]]] = {
    torch.Generator: (lambda source: source.get_state(), lambda source, state: source.set_state(state)),
    random.Random: (lambda source: source.getstate(), lambda source, state: source.setstate(state)),
    None: (
        lambda source: source.get_state() if hasattr(source, "get_state") else _numpy_state(source),
        lambda source, state: (
            source.set_state(state) if hasattr(source, "set_state") else _set_numpy_state(source, state)
        ),
    ),
}
"""How the state of a generator is read and set, by its class; None is for NumPy's, which may not be installed."""


def _is_generator(kind: Any) -> bool:
    """Whether objects of a class draw random numbers from a state of their own."""
    # A SystemRandom draws from the operating system and has no state.
    if issubclass(kind, random.SystemRandom):
        return False
    return issubclass(kind, (torch.Generator, random.Random)) or module_of(kind).startswith("numpy.random")


def module_of(kind: Any) -> str:
    """Return the name of the module of a class; '' if the class has something else under `__module__`."""
    name = kind.__module__
    return name if isinstance(name, str) else ""


def generator_state(source: Any) -> Any:
    """Return the state of a random generator, as its own class has it."""
    return GENERATORS[_generator_base(source)][0](source)


def set_generator_state(source: Any, state: Any) -> None:
    """Set the state of a random generator, as `generator_state` returned it."""
    GENERATORS[_generator_base(source)][1](source, state)


def _generator_base(source: Any) -> Any:
    """Return the key of GENERATORS for a generator."""
    return next((base for base in (torch.Generator, random.Random) if isinstance(source, base)), None)


class Generator(Place):
    """The state of a random generator of the program's own."""

    __slots__ = ()

    def is_last(self) -> bool:
        return bool(hashable_state(self.read()) == hashable_state(self.last))

    def read(self) -> Any:
        # The state of a torch.Generator is a tensor; as bytes, no dispatch mode sees that it is compared.
        state = generator_state(self.owner)
        return state_bytes(state) if isinstance(state, Tensor) else state

    def write(self, value: Any) -> None:
        state = torch.frombuffer(bytearray(value), dtype=torch.uint8) if isinstance(value, bytes) else value
        set_generator_state(self.owner, state)


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
    "logging",
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
"""Modules whose objects change during a step and are as before at its end: they are not restored."""


def _is_machinery(kind: type) -> bool:
    """Whether a class is of the machinery of sharded training."""
    return module_of(kind).startswith(MACHINERY) and not issubclass(kind, (nn.Module, Tensor))


PRIVATE_PREFIXES = ("torch._", "torch.utils._")
"""Prefixes of torch's private modules."""


def _is_unsearched_module(module: str) -> bool:
    """Whether objects of a module's classes are not looked into."""
    return module.startswith(PRIVATE_PREFIXES) or any(
        module == head or module.startswith(f"{head}.") for head in UNSEARCHED_MODULES
    )


def class_of(value: Any) -> Any:
    """Return the class of an object, typed as Any: most functions here take classes of any metaclass."""
    return type(value)


@functools.cache
def is_unsearched_class(kind: Any) -> bool:
    """Whether objects of a class are not looked into; an `nn.Module` of torch's own machinery still is."""
    module = module_of(kind)
    return not issubclass(kind, SEARCHED_CLASSES) and module not in SEARCHED_MODULES and _is_unsearched_module(module)


SEARCHED_MODULES = ("asyncio.queues", "asyncio.locks", "concurrent.futures._base", "unittest.mock")
"""Parts of skipped modules whose objects hold a program's state all the same."""

CLASSES_WITH_SLOTS = (inspect.Signature, inspect.Parameter)
"""Classes of skipped modules whose slots hold a program's objects."""

SEARCHED_CLASSES = (nn.Module, Tensor, threading.local, threading.Event, threading.Semaphore, *CLASSES_WITH_SLOTS)
"""Classes of skipped modules whose objects hold a program's state."""


STANDARD = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "builtins"}
"""Top packages that are not a user's own."""


@functools.cache
def is_users(kind: Any) -> bool:
    """Whether a class is not Python's, torch's or numpy's."""
    return (module_of(kind) or "builtins").partition(".")[0] not in STANDARD and not is_unsearched_class(kind)


@functools.cache
def is_installed(module: str, file: str) -> bool:
    """Whether a module, with its dotted name and its file, belongs to an installed package: a counter that a package
    keeps for itself is not a program's state."""
    # Installed are the modules beside a `*.dist-info`. The folder in which the top package lies is one level up for
    # each dot, and one more for an `__init__.py`.
    above = Path(file).parents
    depth = module.count(".") + (Path(file).stem == "__init__")
    return len(above) > depth and _has_packages(above[depth])


@functools.cache
def _has_packages(folder: Path) -> bool:
    """Whether a folder has installed packages."""
    return any(folder.glob("*.dist-info"))


def is_users_module(module: types.ModuleType) -> bool:
    """Whether a module is a user's own: not Python's, torch's or numpy's, and not of an installed package."""
    scope = vars(module)  # a `__getattr__` of the module is the user's code
    name = str(scope.get("__name__", ""))
    return not (
        name.partition(".")[0] in STANDARD
        or _is_unsearched_module(name)
        or is_installed(name, str(scope.get("__file__")))
    )


@functools.cache
def slots_in(kind: Any) -> tuple[tuple[Any, str], ...]:
    """Return the slots of the objects of a class: the descriptor of each, and its name. A C type has members of the
    same kind, which are no slots."""
    return tuple(
        (value, name)
        for base in kind.__mro__
        if "__slots__" in vars(base)
        for name, value in vars(base).items()
        if isinstance(value, types.MemberDescriptorType)
    )


@functools.cache
def slots_of(kind: Any) -> tuple[tuple[Any, str], ...]:
    """Return the slots of the objects of a class that hold a program's objects, as `slots_in` does: of a user's
    classes, and of CLASSES_WITH_SLOTS."""
    if not is_users(kind) and kind not in CLASSES_WITH_SLOTS:
        return ()
    return tuple(
        (slot, name)
        for slot, name in slots_in(kind)
        if is_users(slot.__objclass__) or slot.__objclass__ in CLASSES_WITH_SLOTS
    )


def attributes_with_slots(value: Any) -> dict[str, Any] | None:
    """Return the attributes of an object, its slots first; None if it has neither a dictionary nor slots."""
    table, slots = attributes_of(value), slots_in(class_of(value))
    if table is None and not slots:
        return None
    attributes = {}
    for slot, name in slots:
        with contextlib.suppress(AttributeError):  # nothing is assigned to it
            attributes[name] = slot.__get__(value)
    return attributes | (table or {})


@functools.cache
def names_in_code(code: types.CodeType) -> tuple[str, ...]:
    """Return the names that a function's code uses, nested functions included."""
    names = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= dict.fromkeys(names_in_code(constant))
    return tuple(names)


@functools.cache
def _names_mentioned(code: types.CodeType) -> tuple[str, ...]:
    """Return the names and the texts like names in a function's code: `globals()["COUNT"]` names a global too."""
    names = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= dict.fromkeys(_names_mentioned(constant))
        elif isinstance(constant, str) and constant.isidentifier():
            names[constant] = None
    return tuple(names)


def is_library(function: types.FunctionType) -> bool:
    """Whether a function is Python's, torch's or numpy's own."""
    return str(function.__module__ or "").partition(".")[0] in STANDARD


@functools.cache
def _is_iterators_class(kind: Any) -> bool:
    """Whether objects of a class are iterators of a C type, whose position is no attribute. Files and weak proxies are
    not counted."""
    step = getattr(kind, "__next__", None)
    # `__next__` of a C type is a wrapper of a slot; that of a class in Python is a function.
    return isinstance(step, types.WrapperDescriptorType) and not issubclass(kind, (io.IOBase, *PROXIES))


PROXIES = (weakref.ProxyType, weakref.CallableProxyType)


def is_iterator(value: Any) -> bool:
    """Whether a value is an iterator of a C type."""
    return _is_iterators_class(class_of(value))


def attributes_of(value: Any) -> dict[str, Any] | None:
    """Return the dictionary of an object's attributes, if it has one. A class may have a property of that name, which
    is not asked."""
    if issubclass(type(value), threading.local):
        return threading.local.__getattribute__(value, "__dict__")
    descriptor = _attributes_in(class_of(value))
    table = None if descriptor is None else descriptor.__get__(value)
    return table if type(table) is dict else None


@functools.cache
def _attributes_in(kind: Any) -> Any:
    """Return the descriptor that reads the attribute dictionary of the objects of a class; None if they have none."""
    # By the descriptors of `type`, because a metaclass may answer `__mro__` and `__dict__` in another way.
    for base in type.__dict__["__mro__"].__get__(kind):
        descriptor = type.__dict__["__dict__"].__get__(base).get("__dict__")
        # A property of this name is the user's. That of `type` reads the attributes of a class, as a mappingproxy.
        if type(descriptor) in (types.GetSetDescriptorType, types.MemberDescriptorType) and base is not type:
            return descriptor
    return None


# ---- The walk

MOST_OBJECTS = 200_000
"""The most objects that a Walk looks at."""

MOST_ITEMS = 10_000
"""The most items of a container that are looked into."""


class Walk:
    """A walk of everything that some objects lead to, breadth first.

    `queue` has the objects to look at, each with its name. `seen` has each object that was looked at by its identity,
    `names` the names that code mentions, `scopes` the names that were looked up in each table of globals, by its
    identity, `modules` the user's modules, and `libraries` the names of other modules that were reached.
    """

    def __init__(self) -> None:
        self.queue: deque[tuple[str, Any]] = deque()
        # Objects are kept, so that no other object gets the identity of one. The builtins count as seen.
        self.seen: dict[int, Any] = {id(vars(builtins)): vars(builtins)}
        self.names: set[str] = set()
        self.scopes: dict[int, set[str]] = {}
        self.modules: dict[int, ModuleType] = {}
        self.libraries: set[str] = set()

    def places(self, roots: Iterable[tuple[str, Any]]) -> Iterator[Place]:
        """Yield the places that these named objects lead to, except places that an earlier call has yielded."""
        self.queue.extend(roots)
        # Code that is reached late may name globals of a module that was reached before, so modules are looked at
        # again.
        while self.queue:
            while self.queue and len(self.seen) < MOST_OBJECTS:
                name, value = self.queue.popleft()
                if type(value) not in STATELESS_TYPES and id(value) not in self.seen:
                    self.seen[id(value)] = value
                    yield from getattr(self, form_of(class_of(value)))(name, value)
            # Not empty only at the limit of MOST_OBJECTS.
            self.queue.clear()
            for module in self.modules.values():
                yield from self.named_globals(vars(module), self.names)

    def push(self, name: str, value: Any) -> None:
        """Look at a value later."""
        if type(value) not in STATELESS_TYPES and id(value) not in self.seen:
            self.queue.append((name, value))

    def push_all(self, name: str, items: Iterable[tuple[Any, Any]]) -> None:
        """Look at values with their keys later."""
        for key, value in items:
            if type(value) not in STATELESS_TYPES and id(value) not in self.seen:
                self.queue.append((f"{name}.{key}" if name else str(key), value))

    # One method for each form of objects (FORMS), as the docstring of this file says.

    def nothing_of(self, name: str, value: Any) -> Iterator[Place]:
        """Leave an object alone."""
        return iter(())

    def unseen(self, name: str, value: Any) -> Iterator[Place]:
        """Yield an object that is not looked into."""
        yield Unseen(value, name)

    def places_of_reference(self, name: str, reference: Any) -> Iterator[Place]:
        self.push(name, reference())
        return iter(())

    def places_of_tensor(self, name: str, tensor: Tensor) -> Iterator[Place]:
        """Yield the values and the attributes of a tensor; its gradient, the tensor inside of a wrapper, the base of a
        view and hooks are looked at later."""
        yield Content(tensor, name)
        if tensor.is_leaf and tensor.grad is not None:
            self.push(f"{name}.grad", tensor.grad)
        if is_wrapped(tensor):
            self.push(name, unwrap(tensor))  # which has the memory
        if base_of(tensor) is not None:
            self.push(f"{name}._base", base_of(tensor))
        for hook in _hooks_on(tensor):
            self.push(f"{name}'s hook", hook)
        yield from self.places_of_attributes(name, tensor)

    def places_of_storage(self, name: str, storage: UntypedStorage) -> Iterator[Place]:
        yield Content(torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage), name)

    def places_of_generator(self, name: str, source: Any) -> Iterator[Place]:
        yield Generator(source, name)
        yield from self.places_of_attributes(name, source)

    def places_of_array(self, name: str, array_: Any) -> Iterator[Place]:
        yield Array(array_, name)
        if array_.dtype.hasobject and array_.size <= MOST_ITEMS:
            self.push_all(name, enumerate(array_.flat))
        yield from self.places_of_attributes(name, array_)

    def places_of_module(self, name: str, module: ModuleType) -> Iterator[Place]:
        """Look at those globals of a user's module later that are named anywhere in the code that is looked at."""
        if is_users_module(module):
            self.modules[id(module)] = module
        else:
            self.libraries.add(str(vars(module).get("__name__")))
        return iter(())

    def places_of_container(self, name: str, container: Any) -> Iterator[Place]:
        """Yield the items of a container, and its attributes if it is of a subclass. The items of a container of more
        than MOST_ITEMS are not looked at."""
        kind = next(known for known in FILL if issubclass(type(container), known))
        yield Items(container, kind, name)
        if kind.__len__(container) <= MOST_ITEMS:
            if issubclass(kind, dict):
                self.push_all(name, kind.items(container))
                self.push_all(name, ((f"key {index}", key) for index, key in enumerate(kind.keys(container))))
            else:
                self.push_all(name, enumerate(kind.__iter__(container)))
        if type(container) not in FILL:
            yield from self.places_of_attributes(name, container)

    def places_of_tuple(self, name: str, items: Any) -> Iterator[Place]:
        """Look at the items of a tuple or a frozenset later: they cannot be replaced, so they are no place."""
        kind = tuple if issubclass(type(items), tuple) else frozenset
        if kind.__len__(items) <= MOST_ITEMS:
            self.push_all(name, enumerate(kind.__iter__(items)))
        if type(items) is not kind:
            yield from self.places_of_attributes(name, items)

    def places_of_mapping(self, name: str, mapping: Any) -> Iterator[Place]:
        self.push_all(name, mapping.items())
        return iter(())

    def places_of_proxy(self, name: str, proxy: Any) -> Iterator[Place]:
        """Look at the object that a weak proxy stands for later: its methods are that object's."""
        with contextlib.suppress(Exception):  # the object is gone, or answers in its own way
            self.push(name, proxy.__repr__.__self__)
        return iter(())

    def places_of_bound(self, name: str, bound: Any) -> Iterator[Place]:
        """Look at the object that a method, or a builtin function such as `[].append`, is bound to."""
        # A function of a C module is bound to the module, of which no more is looked at.
        if not issubclass(type(bound.__self__), ModuleType):
            self.push(name, bound.__self__)
        self.push(name, getattr(bound, "__func__", None))
        return iter(())

    def places_of_partial(self, name: str, partial: Any) -> Iterator[Place]:
        self.push_all(name, enumerate(partial.args))
        self.push(name, partial.keywords)
        self.push(name, partial.func)
        yield from self.places_of_attributes(name, partial)

    def places_of_cache(self, name: str, cache: Any) -> Iterator[Place]:
        yield Unseen(cache, name)
        yield from self.places_of_attributes(name, cache)

    def places_of_function(self, name: str, function: FunctionType) -> Iterator[Place]:
        """Yield the places of a function: its closure, and the globals that it names."""
        scope, code = function.__globals__, function.__code__
        if code.co_filename == contextlib.__file__:  # made by `contextlib.contextmanager`
            self.skip_generators(function)
        for key, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if id(cell) not in self.seen:
                self.seen[id(cell)] = cell
                yield (place := Cell(cell, key))
                self.push(key, place.read())
        self.push_all(name, enumerate(function.__defaults__ or ()))
        self.push(name, function.__kwdefaults__)
        self.push(name, vars(function))
        if _is_unsearched_module(str(scope.get("__name__", ""))) or is_library(function):
            return  # its globals are not the program's
        names = _names_mentioned(code)
        self.names.update(names)
        yield from self.named_globals(scope, names)
        for key in names:
            if key not in scope:
                module = sys.modules.get(key)  # which the function may import
                self.push(key, module if isinstance(module, ModuleType) else None)

    def skip_generators(self, function: FunctionType) -> None:
        """Skip the generator of a context manager that is used as a decorator. Each call makes a new generator, so this
        one never runs."""
        for cell in function.__closure__ or ():
            generator = getattr(Cell(cell).read(), "gen", None)
            if isinstance(generator, types.GeneratorType):
                self.seen[id(generator)] = generator

    def named_globals(self, scope: dict[str, Any], names: Iterable[str]) -> Iterator[Place]:
        """Yield one place with the globals in `scope`, the globals of a module, that are in `names` for the first time,
        whether they are assigned yet or not."""
        known = self.scopes.setdefault(id(scope), set())
        if new := frozenset(names) - known:
            known |= new
            yield Globals(scope, new)
            for key in sorted(new.intersection(scope)):
                if is_iterator(scope[key]) and is_installed(str(scope.get("__name__")), str(scope.get("__file__"))):
                    continue  # a counter that a package keeps for itself
                self.push(key, scope[key])

    def places_of_class(self, name: str, kind: type) -> Iterator[Place]:
        """Yield the attributes of a user's class and of its bases. The objects that its functions reach are looked at
        later."""
        for base in type.__dict__["__mro__"].__get__(kind):
            # `places` has put the class itself into `seen` already.
            if not is_users(base) or (base is not kind and id(base) in self.seen):
                continue
            self.seen[id(base)] = base
            yield (place := ClassAttributes(base, name))
            for key, value in place.table.items():
                for part in parts_of_attribute(value) if _is_own_attribute(key, value) else ():
                    self.push(key, part)
            if is_users(class_of(base)):  # a metaclass
                self.push(type(base).__name__, type(base))

    def places_of_object(self, name: str, value: Any) -> Iterator[Place]:
        """Yield the attributes and the slots of an object; an object without any is of a C type."""
        places = list(self.places_of_attributes(name, value))
        if not places and attributes_of(value) is None:
            yield Unseen(value, name)
        yield from places

    def places_of_attributes(self, name: str, value: Any) -> Iterator[Place]:
        """Yield the attributes and the slots of an object, and for an object of a user's class the class itself."""
        kind = class_of(value)
        table = attributes_of(value)
        if table is not None and id(table) not in self.seen:
            self.seen[id(table)] = table
            yield (_OfThread if issubclass(kind, threading.local) else Attributes)(value, table, name)
            self.push_all(name, list(table.items()))
        for descriptor, key in slots_of(kind):
            yield (slot := SlotAttribute(value, descriptor, key))
            self.push(f"{name}.{key}", slot.read())
        if is_users(kind):
            yield SlotAttribute(value, CLASS, name)
            self.push(name, kind)


CLASS: Any = object.__dict__["__class__"]
"""The descriptor of the class of an object, which a program can set like a slot."""


def parts_of_attribute(value: Any) -> tuple[Any, ...]:
    """Return the parts of a class's attribute: the functions of a property, the function of a method, or the value
    itself."""
    if issubclass(type(value), property):
        return value.fget, value.fset, value.fdel
    return (value.__func__,) if type(value) in (staticmethod, classmethod) else (value,)


def _hooks_on(tensor: Tensor) -> list[Any]:
    """Return the functions that autograd calls for a tensor."""
    post = post_accumulate_hooks(tensor) if tensor.is_leaf else None
    return [*(backward_hooks(tensor) or {}).values(), *(post or {}).values()]


def _is_array(kind: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, numpy.ndarray)


CACHE: Any = functools._lru_cache_wrapper
"""The class of functions that `functools.lru_cache` and `functools.cache` decorate."""


def among(*kinds: Any) -> Callable[[Any], bool]:
    """Return a function that says whether a class is one of these classes or derives from one."""
    return lambda kind: issubclass(kind, kinds)


FORMS: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (_is_machinery, "nothing_of"),
    (among(*PROXIES), "places_of_proxy"),
    (among(weakref.ref), "places_of_reference"),
    (among(Tensor), "places_of_tensor"),
    (among(UntypedStorage), "places_of_storage"),
    (_is_generator, "places_of_generator"),
    (_is_array, "places_of_array"),
    (among(ModuleType), "places_of_module"),
    (among(type), "places_of_class"),
    # Before containers and objects: neither iterators nor objects of skipped modules are opened.
    (_is_iterators_class, "unseen"),
    (is_unsearched_class, "unseen"),
    (among(*FILL), "places_of_container"),
    (among(tuple, frozenset), "places_of_tuple"),
    (among(FunctionType), "places_of_function"),
    (among(types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType), "places_of_bound"),
    (among(types.MappingProxyType), "places_of_mapping"),
    (among(functools.partial), "places_of_partial"),
    (among(CACHE), "places_of_cache"),
    (among(object), "places_of_object"),
)
"""Which method of a Walk is for the objects of a class: a condition on the class, and the method's name. The first row
whose condition holds counts."""


@functools.cache
def form_of(kind: Any) -> str:
    """Return the name of the method of a Walk for the objects of a class."""
    return next(form for fits, form in FORMS if fits(kind))
