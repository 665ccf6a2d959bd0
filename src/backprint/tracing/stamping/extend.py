"""Continue what a model's rows are with n and with n + 1 layers to any depth.

A row is a step, a port or an operator that ran: a head that must be equal, and names and numbers that may grow. The
rows that the deeper one has more must repeat those before. A number grows by the same from layer to layer and from
depth to depth, or stands at a beginning or an end, where it grows from depth to depth alone. Such a law has three
numbers, and must hold for five values or more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from backprint.graph.folding.series import divided

Item = str | int
"""What may grow: a text with numbers in it, or a number."""


class Row(NamedTuple):
    """One row: what must be equal, and what may grow."""

    head: Any
    items: tuple[Item, ...]


class GrownRow(NamedTuple):
    """A row of the whole: the place of a row of the deeper one that is like it, and its items."""

    like: int
    items: tuple[Item, ...]


class CannotStamp(Exception):
    """A model that must be traced in full, and why."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """A part that repeats with a period, and is longer by one period in the deeper one."""

    start: int
    deeper_start: int
    length: int
    period: int


def grown(shallow: Sequence[Row], deeper: Sequence[Row], more: int, what: str) -> list[GrownRow]:
    """Return the rows with `more` layers than the shallow one has; `what` names the rows in a message."""
    numbers: dict[Any, int] = {}
    left, right = (
        [numbers.setdefault((row.head, len(row.items)), len(numbers)) for row in rows] for rows in (shallow, deeper)
    )
    made: list[GrownRow] = []
    at, deeper_at = 0, 0
    for stretch in stretches(left, right, what):
        made += between(shallow[at : stretch.start], deeper[deeper_at : stretch.deeper_start], deeper_at, more, what)
        made += stretch_rows(shallow, deeper, stretch, more, what)
        at, deeper_at = stretch.start + stretch.length, stretch.deeper_start + stretch.length + stretch.period
    made += between(shallow[at:], deeper[deeper_at:], deeper_at, more, what)
    return made


# ------------------------------------------------------------------ where rows repeat


def stretches(left: Sequence[int], right: Sequence[int], what: str) -> Iterator[Repetition]:
    """Yield the parts in which the deeper one has a period more."""
    at, other, low = 0, 0, 0
    while True:
        run = equal_run(left, right, at, other)
        at, other = at + run, other + run
        missing = (len(right) - other) - (len(left) - at)
        if not missing and at == len(left):
            return
        period = period_of(left, right, at, other, low, missing)
        if not period:
            raise CannotStamp(f"{what} with one layer more are not those with one layer less and a repetition")
        start = other
        while start > low and right[start - 1] == right[start - 1 + period]:
            start -= 1
        yield Repetition(at - (other - start), start, other - start, period)
        other += period
        low = other


def equal_run(left: Sequence[int], right: Sequence[int], at: int, other: int) -> int:
    """Return how many rows are equal from two places on."""
    run = 0
    for first, second in zip(left[at:], right[other:], strict=False):
        if first != second:
            break
        run += 1
    return run


def period_of(left: Sequence[int], right: Sequence[int], at: int, other: int, low: int, missing: int) -> int:
    """Return the period that the deeper one has more at a place: the one after which most rows are equal; 0 if none."""
    best, most = 0, (False, -1)
    for period in range(1, min(missing, other - low) + 1):
        if right[other - period : other] == right[other : other + period]:
            run = equal_run(left, right, at, other + period)
            good = (period == missing and run == len(left) - at), run
            if good > most:
                best, most = period, good
    return best


# ------------------------------------------------------------------ what grows


def between(shallow: Sequence[Row], deeper: Sequence[Row], start: int, more: int, what: str) -> Iterator[GrownRow]:
    """Yield the rows between repetitions, which grow from depth to depth."""
    for place, (left, right) in enumerate(zip(shallow, deeper, strict=True)):
        if left.items == right.items:
            yield GrownRow(start + place, right.items)
        else:
            pairs = zip(left.items, right.items, strict=True)
            yield GrownRow(start + place, tuple(continued(first, second, more, what) for first, second in pairs))


def continued(first: Item, second: Item, more: int, what: str) -> Item:
    """Return what grows from depth to depth."""
    if first == second:
        return second
    texts, numbers = divided(first)
    other_texts, others = divided(second)
    if texts != other_texts or type(first) is not type(second):
        raise CannotStamp(f"{what} have {first!r:.80} with one layer less and {second!r:.80} with one more")
    return put_together(texts, [x + (y - x) * more for x, y in zip(numbers, others, strict=True)], type(first) is str)


def family(text: str) -> tuple[str, ...]:
    """Return a text without its numbers: the same for all layers of one list."""
    return divided(text)[0]


def put_together(texts: Sequence[str], numbers: Sequence[int], is_text: bool) -> Item:
    """Return a text with these numbers in it, or the number."""
    if not is_text:
        return numbers[0]
    pieces = [texts[0]]
    for number, text in zip(numbers, texts[1:], strict=True):
        pieces += (str(number), text)
    return "".join(pieces)


def stretch_rows(
    shallow: Sequence[Row], deeper: Sequence[Row], stretch: Repetition, more: int, what: str
) -> Iterator[GrownRow]:
    """Yield the rows of a part that repeats."""
    period, start, first = stretch.period, stretch.deeper_start, stretch.start
    columns = []
    for place in range(period):
        left = [row.items for row in shallow[first + place : first + stretch.length : period]]
        right = [row.items for row in deeper[start + place : start + stretch.length + period : period]]
        items = [
            column(tuple(x), tuple(y), more, what)
            for x, y in zip(zip(*left, strict=True), zip(*right, strict=True), strict=True)
        ]
        columns.append(list(zip(*items, strict=True)) if items else [()] * (len(left) + more))
    for count in range(stretch.length + more * period):
        place = count % period
        yield GrownRow(start + place, columns[place][count // period])


ENDS = ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2))
"""How many iterations at the beginning and at the end may have something else."""


def column(left: tuple[Item, ...], right: tuple[Item, ...], more: int, what: str) -> list[Item]:
    """Return one item of each iteration, from those at two depths."""
    if len(set(left) | set(right)) == 1:
        return [right[0]] * (len(left) + more)
    for begin, end in ENDS:
        if len(left) - begin - end < 2:
            continue
        middle = law(left[begin : len(left) - end], right[begin : len(right) - end], more)
        if middle is not None:
            ahead = [continued(x, y, more, what) for x, y in zip(left[:begin], right[:begin], strict=True)]
            behind = [
                continued(x, y, more, what)
                for x, y in zip(left[len(left) - end :], right[len(right) - end :], strict=True)
            ]
            return ahead + middle + behind
    raise CannotStamp(f"{what} do not grow by the same from layer to layer: {', '.join(map(repr, right))}")


def law(left: Sequence[Item], right: Sequence[Item], more: int) -> list[Item] | None:
    """Return the items of all iterations, if they grow by the same from each to the next and from depth to depth."""
    kinds = {type(item) for item in (*left, *right)}
    apart = [divided(item) for item in (*left, *right)]
    texts = apart[0][0]
    if len(kinds) > 1 or any(other != texts for other, _ in apart):
        return None
    if not apart[0][1]:
        return [left[0]] * (len(left) + more)
    found = []
    for numbers in zip(*(numbers for _, numbers in apart), strict=True):
        start, second = numbers[0], numbers[len(left)]
        step = numbers[len(left) + 1] - second
        if any(number != start + step * place for place, number in enumerate(numbers[: len(left)])):
            return None
        if any(number != second + step * place for place, number in enumerate(numbers[len(left) :])):
            return None
        low = start + (second - start) * more
        found.append(range(low, low + step * (len(left) + more), step) if step else [low] * (len(left) + more))
    is_text = str in kinds
    return [put_together(texts, numbers, is_text) for numbers in zip(*found, strict=True)]
