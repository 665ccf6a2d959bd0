"""Find repeated structure in a list of steps: iterations that call the same operators on each other's results.

A step is a token: what it calls, its arguments without names and numbers, and its type. A run repeats tokens with a
period. Where its iterations begin is chosen so that they hand the fewest values to one another. One more iteration at
each end may have odd steps between its own.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

LEAST_SAVED = 8
"""How many steps a loop must save."""

PERIODS = 12
"""How many periods are tried in one list."""

Node: TypeAlias = "int | Repeat"
"""A place in a list of steps, or a loop over places."""


@dataclass(frozen=True, slots=True)
class OddStep:
    """A step that one iteration has more than the others."""

    iteration: int
    before: int
    """Before which step of an iteration it stands; the number of those if it stands after the last."""
    place: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """A loop: for each iteration the places of its steps."""

    rows: tuple[tuple[int, ...], ...]
    odd: tuple[OddStep, ...]
    body: tuple[Node, ...] = ()
    """The steps of an iteration, places from 0 on, with loops among them."""

    @property
    def first(self) -> int:
        """The first place of all."""
        return min([self.rows[0][0], *(step.place for step in self.odd)])

    @property
    def end(self) -> int:
        """The place after the last of all."""
        return max([self.rows[-1][-1], *(step.place for step in self.odd)]) + 1


@dataclass(frozen=True, slots=True)
class Steps:
    """A list of steps as what repeats in it."""

    tokens: Sequence[int]
    """Equal for steps that may be the same step of two iterations."""
    uses: Sequence[Sequence[int]]
    """Of each step, the places of the steps whose results it takes, in order; -1 for what comes from elsewhere."""
    borders: Sequence[bool] = field(default=())
    """Whether a module of the program begins at a step."""
    weights: Sequence[int] = field(default=())
    """How many steps each stands for, where that is not one."""

    def __len__(self) -> int:
        return len(self.tokens)

    def weight(self, places: Sequence[int]) -> int:
        """Return how many steps some of these stand for."""
        return sum(self.weights[place] for place in places) if self.weights else len(places)

    def part(self, places: Sequence[int]) -> Steps:
        """Return some of the steps as a list of their own."""
        order = {place: count for count, place in enumerate(places)}
        uses = [[order.get(used, -1) for used in self.uses[place]] for place in places]
        weights = [self.weights[place] for place in places] if self.weights else ()
        borders = [self.borders[place] for place in places]
        return Steps([self.tokens[place] for place in places], uses, borders, weights)

    def dataflow(self, places: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return which of some steps take the results of which: how they hang together, without names."""
        order = {place: count for count, place in enumerate(places)}
        return tuple(tuple(order.get(used, -1) for used in self.uses[place]) for place in places)


DEEPEST = 6
"""How deep loops nest."""


def loops_of(steps: Steps, depth: int = 0) -> tuple[Node, ...]:
    """Return the places of a list of steps in order, with loops where they save something; `depth` loops are around."""
    found: list[Node] = []
    left = [(0, len(steps))]
    while left:
        low, high = left.pop()
        repeat = best_repeat(steps, low, high) if depth < DEEPEST else None
        if repeat is None:
            found += range(low, high)
            continue
        repeat = replace(repeat, body=body_of(steps, repeat, depth + 1))
        first, end = repeat.first, repeat.end
        found.append(repeat)
        left += [(end, high), (low, first)]
    return tuple(sorted(found, key=lambda node: node if isinstance(node, int) else node.first))


def body_of(steps: Steps, repeat: Repeat, depth: int) -> tuple[Node, ...]:
    """Return the steps of an iteration with loops among them; a loop never lies across an odd step."""
    row = repeat.rows[0]
    cuts = sorted({0, len(row), *(step.before for step in repeat.odd)})
    nodes: list[Node] = []
    for low, high in itertools.pairwise(cuts):
        nodes += [shifted(node, low) for node in loops_of(steps.part(row[low:high]), depth)]
    return tuple(nodes)


def shifted(node: Node, by: int) -> Node:
    """Return a node whose places are counted from another beginning."""
    if isinstance(node, int):
        return node + by
    rows = tuple(tuple(place + by for place in row) for row in node.rows)
    return replace(node, rows=rows, odd=tuple(replace(step, place=step.place + by) for step in node.odd))


# ------------------------------------------------------------------ one loop


def best_repeat(steps: Steps, low: int, high: int, ends: bool = True) -> Repeat | None:
    """Return the loop that saves most between two places; None if none saves enough.

    `ends`: whether iterations with odd steps may join.
    """
    if high - low < 2 or steps.weight(range(low, high)) < 2 + LEAST_SAVED:
        return None
    runs = sorted(
        (run for period in periods(steps, low, high) for run in runs_of(steps, low, high, period)), reverse=True
    )
    for saved, period, start, length in runs[:PERIODS]:
        repeat = repeat_of(steps, (low, high) if ends else None, -period, -start, length)
        if repeat is not None and (len(repeat.rows) - 1) * steps.weight(repeat.rows[0]) >= LEAST_SAVED:
            return repeat
        if saved < LEAST_SAVED:
            break
    return None


def periods(steps: Steps, low: int, high: int) -> list[int]:
    """Return the periods that steps may have: how far most of them are from the last one that is equal.

    And sums of those: of layers that alternate, every second is equal.
    """
    last: dict[int, int] = {}
    counts: Counter[int] = Counter()
    for place in range(low, high):
        token = steps.tokens[place]
        if token in last:
            counts[place - last[token]] += 1
        last[token] = place
    found = [period for period, _ in counts.most_common(PERIODS)]
    sums = [first + second for place, first in enumerate(found[:4]) for second in found[place:4]]
    return list(dict.fromkeys([*found, *sums]))


def runs_of(steps: Steps, low: int, high: int, period: int) -> list[tuple[int, int, int, int]]:
    """Return the two longest runs with a period: the steps saved, minus the period, minus the start, and how many steps
    are equal to those a period later."""
    tokens, found, equal = steps.tokens, [], 0
    for place in range(low, high - period + 1):
        if place < high - period and tokens[place] == tokens[place + period]:
            equal += 1
            continue
        if equal >= period:
            start = place - equal
            found.append((steps.weight(range(start, start + equal // period * period)), -period, -start, equal))
        equal = 0
    return sorted(found, reverse=True)[:2]


def repeat_of(steps: Steps, around: tuple[int, int] | None, period: int, start: int, length: int) -> Repeat | None:
    """Return the loop of a run: its longest part whose iterations have one dataflow, and what joins at the ends."""
    best: tuple[tuple[int, ...], Repeat] | None = None
    for width, border, phase in phases(steps, start, start + length + period, period)[:PERIODS]:
        rows = equal_rows(steps, start + phase, start + length + period, period)
        if len(rows) < 2:
            continue
        repeat = with_ends(steps, *around, rows) if around else Repeat(tuple(rows), ())
        score = (-width, len(repeat.rows), border, -len(repeat.odd), -phase)
        if best is None or score > best[0]:
            best = score, repeat
    return best[1] if best else None


def phases(steps: Steps, start: int, end: int, period: int) -> list[tuple[int, bool, int]]:
    """Return the places of a run at which its iterations may begin, the best first: how many values are handed over
    there, whether a module begins there, and the place from the start of the run."""
    change = [0] * (end - start + 2)
    near: dict[int, int] = {}
    for place in range(start, end):
        for used in steps.uses[place]:
            if used >= start and place - used < 2 * period:
                near[used] = place
    for made, used in near.items():
        change[made + 1 - start] += 1
        change[used + 1 - start] -= 1
    widths, width = [], 0
    for each in change:
        width += each
        widths.append(width)
    found = []
    for phase in range(min(period, end - start - 2 * period + 1)):
        count = (end - start - phase) // period
        middle = phase + period * max(1, count // 2)
        found.append((widths[middle], not steps.borders[start + middle], phase))
    found.sort()
    return [(width, not plain, phase) for width, plain, phase in found]


def equal_rows(steps: Steps, start: int, end: int, period: int) -> list[tuple[int, ...]]:
    """Return the longest run of iterations that have one dataflow."""
    rows = [tuple(range(place, place + period)) for place in range(start, end - period + 1, period)]
    flows = [steps.dataflow(row) for row in rows]
    best, begin = (0, 0), 0
    for place in range(1, len(rows) + 1):
        if place == len(rows) or flows[place] != flows[begin]:
            if place - begin > best[1] - best[0]:
                best = (begin, place)
            begin = place
    return rows[best[0] : best[1]]


# ------------------------------------------------------------------ iterations with odd steps


def with_ends(steps: Steps, low: int, high: int, rows: list[tuple[int, ...]]) -> Repeat:
    """Return a loop of iterations, with one more at each end if there is one that has odd steps."""
    odd: list[OddStep] = []
    before = joined_iteration(steps, rows[0], range(rows[0][0] - 1, low - 1, -1))
    if before is not None:
        rows = [before, *rows]
        odd += odd_steps(0, before, before[0], rows[1][0])
    after = joined_iteration(steps, rows[-1], range(rows[-1][-1] + 1, high))
    if after is not None:
        odd += odd_steps(len(rows), after, rows[-1][-1] + 1, after[-1] + 1)
        rows = [*rows, after]
    return Repeat(tuple(rows), tuple(odd))


def joined_iteration(steps: Steps, row: Sequence[int], places: range) -> tuple[int, ...] | None:
    """Return one more iteration among places, which go up or down from an iteration; None if there is none."""
    wanted = [steps.tokens[place] for place in (row if places.step > 0 else reversed(row))]
    found: list[int] = []
    most = max(LEAST_SAVED, len(row) // 4)
    for place in places:
        if steps.tokens[place] == wanted[len(found)]:
            found.append(place)
            if len(found) == len(row):
                break
        elif abs(place - places.start) + 1 - len(found) > most:
            return None
    if len(found) < len(row):
        return None
    made = tuple(sorted(found))
    return made if steps.dataflow(made) == steps.dataflow(row) else None


def odd_steps(iteration: int, row: Sequence[int], low: int, high: int) -> list[OddStep]:
    """Return the steps between two places that are not those of an iteration."""
    borders = [low - 1, *row, high]
    found = []
    for count, (place, after) in enumerate(itertools.pairwise(borders)):
        found += [OddStep(iteration, count, odd) for odd in range(place + 1, after)]
    return found
