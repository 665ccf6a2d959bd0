"""Two nouns: what a GraphNet sample says of an input tensor (Meta), and what its program does with it (Use)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Meta:
    """One class of `weight_meta.py` or `input_meta.py`. `data` has every element, in index order, as it is printed.

    `digits` is how many decimals `mean` and `std` are printed with, and so how much they leave open.
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
    """What a program does with an input: words of USES, and for an index or a target what it stays below."""

    kinds: frozenset[str] = frozenset()
    below: int | None = None


Known: TypeAlias = "tuple[str, str, Meta, Use]"
"""The name and the role of an input port, what its sample says of it, and what the program does with it."""
