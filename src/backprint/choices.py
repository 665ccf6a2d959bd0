"""The words that options take: the same ones under the same name in Python and on the command line."""

from __future__ import annotations

from collections.abc import Mapping

from backprint.errors import UsageError

CHOICES: Mapping[str, tuple[str, ...]] = {
    "engine": ("auto", "aot", "dynamo", "eager"),
    "mode": ("train", "eval"),
    "data": ("seed", "exact", "none"),
    "layout": ("backprint", "graphnet"),
    "power": ("none", "quick", "own", "all"),
    "files": ("link", "copy", "none"),
    "executor": ("pool", "ray"),
}


def check_choice(option: str, value: object, optional: bool = False) -> None:
    """Raise unless a value is one of those that an option takes, or None where it is `optional`."""
    known = CHOICES[option]
    if value not in known and not (optional and value is None):
        raise UsageError(f"{option}={value!r} is not one of {', '.join(map(repr, known))}")


def check_sequence(option: str, value: object) -> None:
    """Raise at a text where a sequence of texts is meant: it would be read letter by letter."""
    if isinstance(value, (str, bytes)):
        raise UsageError(f"{option}={value!r} is a text: write {option}=({value!r},)")
