"""Find a small set of numbered units that still shows a fault, in few tests: plain search, without torch.

The units are in the order in which they run. First the shortest beginning that shows the fault, by bisection: its last
unit is part of the fault. Then that unit alone, with those that make what it uses, and with theirs; else the last part
of the beginning, by bisection. Of what is left, parts are left out, halves first and single units last, so that no
unit of the result can be left out alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

DEPTHS = (0, 1, 2, 3, 5, 8)
"""How many steps back the units are looked up that make what the last one uses."""


class OutOfTestsError(Exception):
    """The search has used all its tests; the smallest units so far are kept."""


@dataclass
class UnitSearch:
    """A search: `shows` says whether units still show the fault; `smaller` is called with each smaller set of them."""

    shows: Callable[[tuple[int, ...]], bool]
    producers: Callable[[Collection[int]], Collection[int]]
    most: int
    smaller: Callable[[tuple[int, ...]], None] = lambda units: None
    tests: int = 0
    best: tuple[int, ...] = ()
    known: dict[tuple[int, ...], bool] = field(default_factory=dict)

    def shown_by(self, units: Collection[int]) -> bool:
        """Whether these units show the fault; each set is tested once."""
        asked = tuple(sorted(units))
        if not asked:
            return False
        if asked not in self.known:
            if self.tests >= self.most:
                raise OutOfTestsError
            self.tests += 1
            self.known[asked] = self.shows(asked)
            if self.known[asked] and (not self.best or len(asked) < len(self.best)):
                self.best = asked
                self.smaller(asked)
        return self.known[asked]

    def smallest(self, count: int) -> tuple[int, ...]:
        """Return the smallest units that the tests allow to find, of `count` that show the fault together."""
        self.best = tuple(range(count))
        try:
            start = self.beginning(self.best)
            self.best = self.least(self.ending(start))
        except OutOfTestsError:
            pass
        return self.best

    def beginning(self, units: Sequence[int]) -> Sequence[int]:
        """Return the shortest beginning that shows the fault, where a longer one always does."""
        low, high = 0, len(units)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.shown_by(units[:middle]) else (middle, high)
        return units[:high]

    def ending(self, units: Sequence[int]) -> Sequence[int]:
        """Return few of the units, the last among them, that show the fault."""
        for near in self.behind_last(units):
            if len(near) < len(units) and self.shown_by(near):
                return near
        low, high = 0, len(units)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.shown_by(units[middle:]) else (low, middle)
        left = units[low:]
        ends = (left[0], left[-1])
        return ends if len(left) > 2 and self.shown_by(ends) else left

    def behind_last(self, units: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield the last unit with those of the units behind it, nearer ones first."""
        near, depth = {units[-1]}, 0
        for wanted in DEPTHS:
            while depth < wanted:
                near |= set(self.producers(near)) & set(units)
                depth += 1
            yield tuple(sorted(near))

    def least(self, units: Sequence[int]) -> tuple[int, ...]:
        """Return units of which none can be left out: leave out halves, quarters and so on, at last one at a time."""
        left, size = list(units), max(len(units) // 2, 1)
        while True:
            before, start = len(left), 0
            while start < len(left) > 1:
                rest = left[:start] + left[start + size :]
                if self.shown_by(rest):
                    left = rest
                else:
                    start += size
            if size == 1 and len(left) in (1, before):
                return tuple(left)
            size = max(size // 2, 1)
