"""Where a program keeps something outside of its model and arguments: each kind of place is read, compared and written
without what its class does then."""

from __future__ import annotations

import array
import operator
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from backprint._torch.operators import is_registration
from backprint.tracing.state.process import generator_state, set_generator_state
from backprint.values.settings import foreign_states, hashable_state, set_foreign_states, state_bytes

NOT_THERE: Any = object()

NOT_READ: Any = object()


class Place(ABC):
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

    @abstractmethod
    def read(self) -> Any:
        """Return what is there now, as a value of its own."""

    @abstractmethod
    def write(self, value: Any) -> None:
        """Put there what `read` returned."""


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
