"""A Series: what one place of a step has in each iteration of the loops around it.

`view_20`, `view_32`, `view_44` is the text `view_{20+12*i}`. Iterations that have something else are listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

Index: TypeAlias = tuple[int, ...]
"""The numbers of the iterations of the loops around a step, the outermost first."""

_NUMBER = re.compile(r"(0|[1-9][0-9]*)")
"""A number that is written as Python writes it, so that it can be written again."""

MAX_START = 2**62
"""A rule has smaller numbers: all that it comes to have 64 bits at most."""

INDEXES = "ijklmnpq"
"""The names of the indexes of nested loops."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A number that grows by the same in each iteration of a loop: `20 + 12*i`."""

    start: int
    steps: tuple[int, ...]
    """By how much, for each loop from the outermost."""

    def at(self, index: Index) -> int:
        """Return the number in an iteration."""
        return self.start + sum(step * place for step, place in zip(self.steps, index, strict=True))

    def __str__(self) -> str:
        terms = [str(self.start)] if self.start or not any(self.steps) else []
        for step, name in zip(self.steps, INDEXES, strict=False):
            if step:
                factor = name if abs(step) == 1 else f"{abs(step)}*{name}"
                terms.append(("-" if step < 0 else "+" if terms else "") + factor)
        return "".join(terms)


@dataclass(frozen=True, slots=True)
class Series:
    """A text or a number for each iteration."""

    parts: tuple[str, ...]
    """The text between the numbers; of a number, two empty texts. Empty if every iteration is listed."""
    numbers: tuple[Growth, ...]
    is_text: bool
    odd: tuple[tuple[Index, Any], ...] = ()
    """The iterations that have something else, and what."""

    def at(self, index: Index) -> Any:
        """Return what an iteration has."""
        for place, value in self.odd:
            if place == index:
                return value
        return self.regular(index)

    def regular(self, index: Index) -> Any:
        """Return what an iteration would have if it were not odd."""
        if not self.is_text:
            return self.numbers[0].at(index)
        pieces = [self.parts[0]]
        for number, part in zip(self.numbers, self.parts[1:], strict=True):
            pieces += (str(number.at(index)), part)
        return "".join(pieces)

    def all(self, indexes: Sequence[Index]) -> Iterator[Any]:
        """Yield what each of many iterations has."""
        odd = dict(self.odd)
        return (odd[index] if index in odd else self.regular(index) for index in indexes)

    def __str__(self) -> str:
        pieces = list(self.parts[:1])
        for number, part in zip(self.numbers, self.parts[1:], strict=True):
            pieces += (f"{{{number}}}" if any(number.steps) else str(number), part)
        return "".join(pieces)


def series_of(values: Mapping[Index, Any], shape: Sequence[int]) -> Series:
    """Return the Series of these values, with as few odd ones as a few starting points allow."""
    best: Series | None = None
    for base in bases(shape):
        found = series_from(values, shape, base)
        if found is not None and (best is None or len(found.odd) < len(best.odd)):
            best = found
        if best is not None and not best.odd:
            return best
    if best is None or 2 * len(best.odd) > len(values):
        return Series((), (), True, tuple(values.items()))
    return best


def bases(shape: Sequence[int]) -> Iterator[Index]:
    """Yield iterations from which a Series may be continued: the second ones, the first, those in the middle."""
    seen = set()
    for place in (
        tuple(min(1, max(size - 2, 0)) for size in shape),
        tuple(0 for _ in shape),
        tuple(max((size - 1) // 2, 0) for size in shape),
    ):
        if place not in seen:
            seen.add(place)
            yield place


def series_from(values: Mapping[Index, Any], shape: Sequence[int], base: Index) -> Series | None:
    """Continue a Series from an iteration and its neighbours; None if those have nothing in common."""
    value = values[base]
    if type(value) not in (str, int):
        return None
    texts, numbers = divided(value)
    steps: list[list[int]] = [[] for _ in numbers]
    for axis, size in enumerate(shape):
        next_one = values[(*base[:axis], base[axis] + 1, *base[axis + 1 :])] if size > 1 else value
        if type(next_one) is not type(value):
            return None
        other_texts, other_numbers = divided(next_one)
        if other_texts != texts:
            return None
        for step, here, there in zip(steps, numbers, other_numbers, strict=True):
            step.append(there - here)
    growths = [
        Growth(number - sum(map(int.__mul__, step, base)), tuple(step))
        for number, step in zip(numbers, steps, strict=True)
    ]
    if any(abs(number) >= MAX_START for growth in growths for number in (growth.start, *growth.steps)):
        return None
    made = Series(texts, tuple(growths), type(value) is str)
    odd = []
    for index, found in values.items():
        wanted = made.regular(index)
        if wanted != found or type(wanted) is not type(found):
            odd.append((index, found))
            if 2 * len(odd) > len(values):
                return None
    return Series(made.parts, made.numbers, made.is_text, tuple(odd))


def divided(value: str | int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the text between the numbers of a text, and the numbers."""
    if isinstance(value, int):
        return ("", ""), (value,)
    return divided_text(value)


@lru_cache(maxsize=1 << 16)
def divided_text(text: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the same of a text; a number of more than 18 digits is text."""
    pieces = _NUMBER.split(text)
    texts, numbers = [pieces[0]], []
    for number, part in zip(pieces[1::2], pieces[2::2], strict=True):
        if len(number) > 18:
            texts[-1] += number + part
        else:
            numbers.append(int(number))
            texts.append(part)
    return tuple(texts), tuple(numbers)
