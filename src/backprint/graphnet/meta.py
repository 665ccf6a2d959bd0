"""An input tensor's metadata in a GraphNet sample (Meta), and what the sample's program does with the input (Use)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Meta:
    """A class of `weight_meta.py` or `input_meta.py`. `data` has every element in index order, as printed.

    `digits` is the number of decimals that `mean` and `std` are printed with, and so their rounding error.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    device: str = "cpu"
    original_name: str | None = None
    mean: float | None = None
    std: float | None = None
    min_val: float | None = None
    max_val: float | None = None
    data: tuple[Any, ...] | None = None
    digits: int = 3


USES = ("index", "mask", "additive", "variance", "average", "positive", "target", "flag", "read")
"""An index of something; what `where` and its like take as a condition; added to scores before a softmax; the running
variance and mean of a norm; an argument of log, sqrt or a divisor; classes of a loss; 0 or 1, as it is taken from 1; a
number that the program reads."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a program does with an input: words of USES, and for an index or a target its exclusive upper bound."""

    kinds: frozenset[str] = frozenset()
    below: int | None = None


Known: TypeAlias = "tuple[str, str, Meta, Use]"
"""The name and role of an input port, its metadata, and what the program does with it."""
