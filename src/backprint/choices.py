"""The words that options accept: the same for each name in Python and on the command line."""

from __future__ import annotations

from collections.abc import Mapping

from backprint.errors import UsageError

CHOICES: Mapping[str, tuple[str, ...]] = {
    "engine": ("auto", "aot", "dynamo", "eager"),
    "mode": ("train", "eval"),
    "data": ("seed", "exact", "none"),
    "direction": ("both", "forward", "backward"),
    "layout": ("backprint", "graphnet"),
    "partition": ("min-cut", "default"),
    "power": ("none", "quick", "own", "all"),
    "files": ("link", "copy", "none"),
    "executor": ("pool", "ray"),
    "configurations": ("first", "all"),
}

BENCH_DIRECTIONS = ("forward", "backward", "step")
"""What a bench runs compilers on. A step is the forward and then the backward of one Pair."""


def check_choice(option: str, value: object, optional: bool = False) -> None:
    """Raise unless a value is one that an option accepts, or None if it is `optional`."""
    known = CHOICES[option]
    if value not in known and not (optional and value is None):
        raise UsageError(f"{option}={value!r} is not one of {', '.join(map(repr, known))}")


def check_sequence(option: str, value: object) -> None:
    """Raise for a string where a sequence of strings is needed: it would be read letter by letter."""
    if isinstance(value, (str, bytes)):
        raise UsageError(f"{option}={value!r} is a text: write {option}=({value!r},)")
