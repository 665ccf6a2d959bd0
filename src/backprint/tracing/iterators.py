"""Copies of iterators, because a run uses an iterator up and Python cannot set it back.

An exhausted iterator has dropped what it iterated over. A program therefore never runs on the caller's iterators: each
run has copies at the same position, over the same objects. Python's own iterators say by `__reduce__` how they are made
again; generators, `tee` and the iterators of other libraries do not, and are refused before the program runs.
"""

from __future__ import annotations

import io
import itertools
import types
import warnings
from collections.abc import Iterator
from typing import Any

LIBRARY = frozenset(("builtins", "itertools", "collections", "_collections", "array"))
"""Modules whose iterators say how they are made again."""

UNCOPIED: tuple[Any, ...] = (type(itertools.tee(())[0]),)
"""Iterators whose copies share what they have read."""

CALLING: Any = type(iter(int, 1))
"""The iterator of `iter(function, sentinel)`."""


def is_iterator(value: Any) -> bool:
    """Whether a value is an iterator of a C type, whose position is no attribute. A file has a position that can be
    set."""
    step = getattr(type(value), "__next__", None)
    return isinstance(step, types.WrapperDescriptorType) and not isinstance(value, io.IOBase)


def copied_iterator(value: Any, memo: dict[int, tuple[Any, Any]]) -> Any:
    """Return an iterator at the same position over the same objects; raise TypeError if there is no way to make one.

    `memo` has the iterators copied so far, by identity: two that read from one iterator share its copy.
    """
    if id(value) not in memo:
        call, arguments, *state = recipe_of_iterator(value)
        made = call(*(copied_part(part, memo) for part in arguments))
        if state and state[0] is not None:
            made.__setstate__(copied_part([*state[0]] if type(state[0]) is list else state[0], memo, True))
        memo[id(value)] = value, made
    return memo[id(value)][1]


def copied_part(part: Any, memo: dict[int, tuple[Any, Any]], state: bool = False) -> Any:
    """Return a part of an iterator for its copy: inner iterators are copied, and so are lists of its own state."""
    if is_iterator(part):
        return copied_iterator(part, memo)
    if type(part) is tuple:
        return tuple(copied_part(each, memo, state) for each in part)
    return list(part) if state and type(part) is list else part


def recipe_of_iterator(value: Any) -> tuple[Any, ...]:
    """Return how an iterator is made again: a callable, its arguments and a state; raise TypeError if it cannot be."""
    kind = type(value)
    if kind.__module__ not in LIBRARY or kind in UNCOPIED:
        raise TypeError(f"{kind.__name__} cannot be copied")
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # Python 3.12 and 3.13 announce the end of this in itertools
        made = value.__reduce__()
    if not isinstance(made, tuple):
        raise TypeError(f"{kind.__name__} cannot be copied")
    if kind is CALLING and isinstance(made[1][0], types.BuiltinFunctionType):
        raise TypeError(f"{kind.__name__} of {made[1][0].__name__} cannot be copied")
    return made


def held_by(value: Any) -> Iterator[Any]:
    """Yield what an iterator holds: other iterators, what they iterate over, and the functions that they call."""
    for part in recipe_of_iterator(value)[1:]:
        yield from flat_parts(part)


def flat_parts(part: Any) -> Iterator[Any]:
    if type(part) is tuple:
        for each in part:
            yield from flat_parts(each)
    else:
        yield part
