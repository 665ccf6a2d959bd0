"""What a program keeps outside of its model and arguments, such as its groups and its rank: each rank has its own, as
it has in a process of its own.

A `Place` is where a program keeps something: in the attributes of an object, the items of a container, the cell of a
closure, the globals of a module. It reads and writes what is there: `value()` returns what is there now, `put` writes
such a value back unless it is the one that was read or written `last`, and `owner` is the object that holds it. A
*run* is one of all ranks, in threads of this process that take turns.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from backprint.tools.ranks.reached import Reached, globals_assigned_in, is_own
from backprint.trace.state.tensors import untraced
from backprint.values.objects import CACHE, Attributes, Cell, Items, Place, SlotAttribute, is_iterator
from backprint.values.settings import foreign_states, hashable_state, set_foreign_states

Value = tuple[Place, Any]
"""A place, and what is there."""


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


class _RandomNumbers(Place):
    """The states of Python's random numbers, and of NumPy's."""

    __slots__ = ()

    def is_last(self) -> bool:
        return bool(hashable_state(self.read()) == hashable_state(self.last))

    def read(self) -> Any:
        return foreign_states()

    def write(self, value: Any) -> None:
        set_foreign_states(value)


class Kept:
    """What a program keeps, beginning at the functions and classes that it is made of: its `places`.

    `reached` is the walk that finds them; `known` are the names of the modules that were imported when it last looked.
    """

    def __init__(self, roots: Iterable[Any] = ()) -> None:
        """`roots` are the functions and classes at which the walk begins."""
        self.reached = Reached()
        with untraced():  # so that a look at a tensor is no step of a program that is being captured
            self.places: list[Place] = [
                Environment(os.environ),
                _RandomNumbers(owner=None),
                *self.reached.places_from(roots),
            ]
        self.known: set[str] = set(sys.modules)
        for module in list(sys.modules.values()):
            self.places += globals_assigned_in(module)

    def values(self) -> list[Value]:
        """Return each place with what is there now. Modules that were imported since the last time count, too."""
        with untraced():
            # By number first, as this is asked at each turn of a rank, and there are thousands of modules.
            for name in sys.modules.keys() - self.known if len(sys.modules) != len(self.known) else ():
                self.known.add(name)
                module = sys.modules[name]
                self.places += [*self.reached.places_from([module]), *globals_assigned_in(module)]
            return [(place, place.value()) for place in self.places]


def with_own_copies(values: Sequence[Value], count: int = 1) -> list[list[Value]]:
    """Return, for each of `count` ranks, what is in each place, with copies of the rank's own of what a run uses up:
    caches (`functools.cache`), which are empty in the copy, and iterators that can be copied, at the same position. An
    object that is in several places has one copy in a rank."""
    used_up = [
        index
        for index, (place, value) in enumerate(values)
        if isinstance(place, (Attributes, Items, Cell, SlotAttribute)) and any(map(_is_used_up, items_of(place, value)))
    ]
    values_of_ranks = [list(values) for _ in range(count)]
    for values_of_rank in values_of_ranks:
        copies: dict[int, Any] = {}  # by the id of the object
        for index in used_up:
            place, value = values[index]
            for item in items_of(place, value):
                if id(item) not in copies:
                    copies[id(item)] = _own_copy(item)
            if isinstance(value, dict):
                values_of_rank[index] = place, {key: copies[id(item)] for key, item in value.items()}
            else:
                own_items = [copies[id(item)] for item in items_of(place, value)]
                values_of_rank[index] = place, own_items if isinstance(place, Items) else own_items[0]
    return values_of_ranks


def items_of(place: Place, value: Any) -> Iterable[Any]:
    """Return the objects in `value`, which is what a place holds: the values of a dict, the items of a container, or
    the one object."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(place, Items) else (value,)


def _is_used_up(value: Any) -> bool:
    """Whether a value is a cache of the program's own, or an iterator."""
    kind = type(value)
    return (kind is CACHE and is_own(value.__module__)) or is_iterator(value)


def _own_copy(value: Any) -> Any:
    """Return a cache like another, empty, or an iterator at the same position; other values, and iterators that cannot
    be copied (`__reduce__` raises) or that read from another iterator, which the copy would share, as they are."""
    if not _is_used_up(value):
        return value
    if type(value) is CACHE:
        return functools.lru_cache(**value.cache_parameters())(value.__wrapped__)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 announces the end of this in itertools
            _, constructor_args, *_ = value.__reduce__()
            return value if any(map(is_iterator, constructor_args)) else copy.copy(value)
    except TypeError:
        return value


def put_back(values: Sequence[Value], *, has_run: bool = True) -> None:
    """Put values back in their places. If the program `has_run` since the places were read or written, each is read
    first: a place writes only what differs from what it read or wrote last."""
    with untraced():
        for place, value in values:
            if has_run:
                place.value()
            place.put(value)


@contextlib.contextmanager
def with_values(values: Sequence[Value]) -> Iterator[None]:
    """Put values in their places for a block, and at its end what was there before."""
    with untraced():
        before = [(place, place.value()) for place, _ in values]
    put_back(values, has_run=False)  # the places were read in this moment
    try:
        yield
    finally:
        put_back(before)
