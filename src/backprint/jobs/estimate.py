"""The time that a run still takes, from the sizes of its samples and the seconds of those that are done.

The seconds of a sample are expected to be a sum of terms, one for each size that is known before it is processed: a
constant, the bytes of its code (each line is a step to trace and compare) and the bytes of its tensors (which are drawn,
and computed with). Their proportions are constants; how fast this run is, is learned. A count of samples alone would
take the large ones of the next family for as fast as the small ones of the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class SamplePace(NamedTuple):
    """A sample: its state, the bytes of its code and of its tensors, and its seconds, if they are known."""

    state: str
    source_bytes: int | None
    tensor_bytes: int | None
    seconds: float | None


def expected(source_bytes: int | None, tensor_bytes: int | None) -> float:
    """Return the seconds that a sample of these sizes is expected to take, but for the speed of the run."""
    return CONSTANT + PER_CODE * (source_bytes or 0) + PER_TENSOR * (tensor_bytes or 0)


CONSTANT, PER_CODE, PER_TENSOR = 2.0, 4e-5, 4e-7


class TimeLeft(NamedTuple):
    """The seconds that a run still takes: probably between `low` and `high`, and `likely` in the middle."""

    low: float
    likely: float
    high: float


FEW = 2.0
"""As much as this many samples of spread SPREAD is known of the spread before the first is done."""

SPREAD = 0.8
"""How far the seconds of a sample are from what is expected, relative to that."""

SURE = 1.3
"""How many standard deviations are between the likely time and the ends of its range: four of five runs are within."""


@dataclass(slots=True)
class Pace:
    """The samples of a run by their expected seconds, and how fast those go that are done. It does not grow with the
    run."""

    jobs: int = 1
    left: int = 0
    expected_left: float = 0.0
    squares_left: float = 0.0
    done: int = 0
    expected_done: float = 0.0
    squares_done: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0
    products: float = 0.0

    @classmethod
    def of_rows(cls, rows: Iterable[SamplePace], jobs: int) -> Pace:
        """Return the Pace of a run's samples, processed `jobs` at a time."""
        pace = cls(jobs)
        for row in rows:
            weight = expected(row.source_bytes, row.tensor_bytes)
            pace.add(weight)
            if row.state == "done":
                pace.finish(weight, row.seconds)
        return pace

    @classmethod
    def of_equals(cls, left: int, jobs: int) -> Pace:
        """Return the Pace of samples of which no size is known."""
        return cls.of_rows([SamplePace("todo", None, None, None)] * left, jobs)

    def add(self, weight: float) -> None:
        """Add a sample that is not done."""
        self.left, self.expected_left = self.left + 1, self.expected_left + weight
        self.squares_left += weight * weight

    def finish(self, weight: float, seconds: float | None) -> None:
        """Count a sample as done. One without seconds (its files were missing) tells nothing about the others."""
        self.left, self.expected_left = self.left - 1, max(0.0, self.expected_left - weight)
        self.squares_left = max(0.0, self.squares_left - weight * weight)
        if seconds is None:
            return
        self.done, self.expected_done = self.done + 1, self.expected_done + weight
        self.seconds, self.squares = self.seconds + seconds, self.squares + seconds * seconds
        self.squares_done, self.products = self.squares_done + weight * weight, self.products + weight * seconds

    @property
    def speed(self) -> float:
        """The seconds of the samples that are done, relative to those expected."""
        return self.seconds / self.expected_done if self.expected_done else 0.0

    def time_left(self) -> TimeLeft | None:
        """Return the time for the rest; None before the first sample is done."""
        if not (self.done and self.left and self.seconds > 0):
            return None
        likely = self.speed * self.expected_left / min(self.jobs, self.left)
        # The samples under way are half done, on average.
        likely *= 1 - 0.5 * min(self.jobs, self.left) / self.left
        factor = math.exp(SURE * self.deviation())
        return TimeLeft(likely / factor, likely, likely * factor)

    def deviation(self) -> float:
        """Return the standard deviation of the time for the rest, relative to it: of the speed that was learned, and of
        the samples that are left."""
        residuals = self.squares - 2 * self.speed * self.products + self.speed**2 * self.squares_done
        own = max(0.0, residuals) / (self.speed**2 * self.squares_done)
        variance = (FEW * SPREAD**2 + self.done * own) / (FEW + self.done)
        return math.sqrt(
            variance
            * (self.squares_done / self.expected_done**2 + self.squares_left / max(self.expected_left, 1e-9) ** 2)
        )
