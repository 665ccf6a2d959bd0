"""The arguments of a program at a length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """Positional and keyword arguments."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def call_of(inputs: Any) -> Call:
    """Return the arguments that inputs are: a tuple of them, a dict of keywords, or one alone."""
    if isinstance(inputs, Mapping):
        return Call((), inputs)
    return Call(tuple(inputs), {}) if isinstance(inputs, (tuple, list)) else Call((inputs,), {})
