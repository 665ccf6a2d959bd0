"""A Series: what one place of a step has in each iteration of the loops around it.

The names `view_20`, `view_32`, `view_44` are the Series `view_{20+12*i}`: a text whose numbers grow by the same amount
in each iteration. Iterations that have something else, such as the `view` of the first layer, are listed beside the
rule.
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
"""A number as Python writes it. `007` is text: the rule of `x_007` and `x_008` would write `x_7`."""

MAX_START = 2**62
"""The numbers of a rule are smaller, so that what it computes has 64 bits: a graph has no longer integers."""

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
        """Return what the rule says for an iteration, which may be an odd one."""
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
    """Return the Series of these values, with as few odd ones as a few starting points allow.

    Two neighbours make a rule. If one of them is odd, so is the rule, and nearly every iteration would be listed. So
    the rule is made at several places, and the one with the fewest odd iterations is kept. Where more than half of the
    iterations are odd, no rule is better than a rule: all are listed.
    """
    best: Series | None = None
    for base in bases(shape):
        series = series_from(values, shape, base)
        if series is not None and (best is None or len(series.odd) < len(best.odd)):
            best = series
        if best is not None and not best.odd:
            return best
    if best is None or 2 * len(best.odd) > len(values):
        return Series((), (), True, tuple(values.items()))
    return best


def bases(shape: Sequence[int]) -> Iterator[Index]:
    """Yield iterations whose neighbours may make the rule.

    The second comes first: the first iteration is the odd one most often, as its name has no number (`view`, `view_1`,
    `view_2`). The middle is for loops whose first layers differ from the others.
    """
    second = tuple(min(1, max(size - 2, 0)) for size in shape)
    first = tuple(0 for _ in shape)
    middle = tuple(max((size - 1) // 2, 0) for size in shape)
    yield from dict.fromkeys((second, first, middle))


def series_from(values: Mapping[Index, Any], shape: Sequence[int], base: Index) -> Series | None:
    """Return the Series that an iteration and its neighbours make; None if they have no rule, or too few follow it.

    For each loop, the neighbour is the next iteration of that loop: it says by how much each number grows there.
    """
    value = values[base]
    if type(value) not in (str, int):
        return None
    texts, numbers = divided(value)
    steps: list[list[int]] = [[] for _ in numbers]
    for axis, size in enumerate(shape):
        neighbour = values[(*base[:axis], base[axis] + 1, *base[axis + 1 :])] if size > 1 else value
        if type(neighbour) is not type(value):
            return None
        other_texts, other_numbers = divided(neighbour)
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
    rule = Series(texts, tuple(growths), type(value) is str)
    odd = []
    for index, own in values.items():
        regular = rule.regular(index)
        if regular != own or type(regular) is not type(own):  # 1 equals 1.0 and True, which are other values
            odd.append((index, own))
            if 2 * len(odd) > len(values):
                return None
    return Series(rule.parts, rule.numbers, rule.is_text, tuple(odd))


def divided(value: str | int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the texts around the numbers of a value, and the numbers."""
    if isinstance(value, int):
        return ("", ""), (value,)
    return divided_text(value)


@lru_cache(maxsize=1 << 16)
def divided_text(text: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the texts around the numbers of a text, and the numbers; one of more than 18 digits stays text."""
    pieces = _NUMBER.split(text)
    texts, numbers = [pieces[0]], []
    for number, part in zip(pieces[1::2], pieces[2::2], strict=True):
        if len(number) > 18:
            texts[-1] += number + part
        else:
            numbers.append(int(number))
            texts.append(part)
    return tuple(texts), tuple(numbers)
