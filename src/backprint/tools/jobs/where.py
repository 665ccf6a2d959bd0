"""Conditions on the rows of a ledger, as `--where` takes them: `seconds<10`, `verdict=bitwise,close`, `family=timm*`.

A condition is `COLUMN OP VALUE`. Numbers are compared, with the units of their kind; texts are equal to one of several
patterns, or to none of them. A row without a value in a column meets no condition on that column, not even `!=`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from backprint.errors import UsageError

TEXTS = ("id", "family", "kind", "verdict", "cause", "stage", "engine", "mode", "derivative")
"""Columns of texts."""

COUNTS = ("flops", "forward_steps", "backward_steps", "inputs", "outputs", "gradients", "guards", "attempts", "power")
SIZES = ("peak_bytes", "saved_bytes", "input_bytes", "moved_bytes", "disk_bytes", "source_bytes", "tensor_bytes")

NUMBERS: Mapping[str, tuple[str, ...]] = {
    "seconds": ("seconds",),
    "steps": ("forward_steps", "backward_steps"),
    **{name: (name,) for name in (*COUNTS, *SIZES)},
}
"""Quantities, and the columns of which each is the sum."""

NAMES = (*TEXTS, *NUMBERS)
"""All that a condition can be about."""

THOUSANDS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
BYTES = {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}
TIMES = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}

UNITS: Mapping[str, Mapping[str, float]] = {
    "seconds": {"": 1.0, **TIMES},
    **dict.fromkeys(SIZES, THOUSANDS | BYTES),
}
"""The units of quantities; of others, THOUSANDS."""

COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}

FORM = re.compile(r"\s*(\w+)\s*(<=|>=|!=|=|<|>)\s*(.*?)\s*")
NUMBER = re.compile(r"([-+]?(?:\d[\d,_]*)?\.?\d*(?:e[-+]?\d+)?)\s*([A-Za-z]*)")


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition; `values` are patterns of texts, or one number."""

    name: str
    comparison: str
    values: tuple[str, ...] | tuple[float]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the ledger that it is about."""
        return NUMBERS.get(self.name, (self.name,))

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of the ledger meets the condition."""
        values = [row[name] for name in self.columns if row[name] is not None]
        if not values:
            return False
        if self.name in TEXTS:
            equal = any(fnmatchcase(str(values[0]), str(pattern)) for pattern in self.values)
            return equal is (self.comparison == "=")
        return COMPARISONS[self.comparison](sum(map(float, values)), self.values[0])


def conditions(texts: Iterable[str]) -> tuple[Condition, ...]:
    """Return the conditions of `--where`; raise UsageError for one that cannot be read."""
    return tuple(map(condition, texts))


def condition(text: str) -> Condition:
    """Return one condition."""
    match = FORM.fullmatch(text)
    if match is None:
        raise UsageError(f"--where {text}: write COLUMN<VALUE, with one of {' '.join(COMPARISONS)}: 'seconds<10'")
    name, comparison, value = match.groups()
    if name not in NAMES:
        raise UsageError(f"--where {text}: {name!r} is not one of {', '.join(NAMES)}")
    if name in NUMBERS:
        return Condition(name, comparison, (number(text, name, value),))
    if comparison not in ("=", "!="):
        raise UsageError(f"--where {text}: {name} is a text: compare it with = or !=")
    return Condition(name, comparison, tuple(pattern.strip() for pattern in value.split(",")))


def number(text: str, name: str, value: str) -> float:
    """Return the number of a condition, in the unit of its column."""
    units = UNITS.get(name, THOUSANDS)
    match = NUMBER.fullmatch(value)
    if match is None or match[2] not in units or not any(map(str.isdigit, match[1])):
        known = ", ".join(filter(None, units))
        raise UsageError(f"--where {text}: {value!r} is not a number of {name} (units: {known})")
    return float(match[1].replace(",", "").replace("_", "")) * units[match[2]]
