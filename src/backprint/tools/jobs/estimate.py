"""The time that a run still takes, from the sizes of its samples and the seconds of those that are done.

The seconds of a sample are expected to be a sum of terms: a constant, the bytes of its code (each line is a step to
trace and to compare) and the bytes of its tensors (which are drawn and computed with). These are known before a sample
is processed. Their proportions are constants, and the speed of the run is learned. A count of samples alone would take
the large ones of the next family for as fast as the small ones of the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class SamplePace(NamedTuple):
    """A sample: its state, the bytes of its code and of its tensors, and its seconds, if they are known."""

    state: str
    source_bytes: int | None
    tensor_bytes: int | None
    seconds: float | None


def expected(source_bytes: int | None, tensor_bytes: int | None) -> float:
    """Return how long a sample of these sizes is expected to take, relative to the smallest."""
    return CONSTANT + PER_CODE * (source_bytes or 0) + PER_TENSOR * (tensor_bytes or 0)


CONSTANT, PER_CODE, PER_TENSOR = 1.0, 1e-4, 1e-7
"""The proportions that fit best to sixty GraphNet samples of ten families: of the times that they took, the logarithms
are 0.6 apart from those of these, in the mean."""


class TimeLeft(NamedTuple):
    """The seconds that a run still takes: probably between `low` and `high`, and `likely` in the middle."""

    low: float
    likely: float
    high: float


FEW = 3.0
"""Before samples are done, the spread of their times is known as well as from this many."""

SPREAD = 0.7
"""The spread that is taken for known: the standard deviation of the logarithms of times, relative to those expected."""

SURE = 1.8
"""How many standard deviations are between the likely time and the ends of its range. In random orders of the sixty
samples, four of five ranges hold, and two of three with one sample that takes ten minutes."""

OVERDUE = 0.5
"""A sample that has taken longer than expected takes as much longer again, relative to its time so far."""


@dataclass(slots=True)
class Pace:
    """The samples of a run by their expected seconds, and how fast those go that are done. It does not grow with the
    run."""

    jobs: int = 1
    left: int = 0
    expected_left: float = 0.0
    squares_left: float = 0.0
    done: int = 0
    logs: float = 0.0
    squares: float = 0.0

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
        if seconds:
            ratio = math.log(seconds / weight)
            self.done, self.logs, self.squares = self.done + 1, self.logs + ratio, self.squares + ratio * ratio

    @property
    def variance(self) -> float:
        """The variance of the logarithms of the samples' times, relative to those expected."""
        about_mean = self.squares - self.logs * self.logs / self.done
        return (FEW * SPREAD**2 + max(0.0, about_mean)) / (FEW + self.done - 1)

    @property
    def speed(self) -> float:
        """The mean time of a sample, relative to that expected. It is that of the distribution of which the times are
        drawn, if their logarithms are normal: one sample that takes very long does not change it much."""
        return math.exp(self.logs / self.done + self.variance / 2)

    def time_left(self, under_way: Sequence[float] = ()) -> TimeLeft | None:
        """Return the time for the rest; None before the first sample is done. `under_way` has the seconds that the
        samples have taken so far that are being processed."""
        if not (self.done and self.left):
            return None
        a_sample = self.speed * self.expected_left / self.left
        rests = [max(a_sample - took, OVERDUE * took) for took in under_way[: self.left]]
        waiting = a_sample * (self.left - len(rests))
        likely = max((waiting + sum(rests)) / min(self.jobs, self.left), *rests, 0.0)
        factor = math.exp(SURE * self.deviation())
        return TimeLeft(likely / factor, likely, likely * factor)

    def deviation(self) -> float:
        """Return the standard deviation of the time for the rest, relative to it: of the speed that was learned, and of
        the samples that are left."""
        variance = self.variance
        learned = (variance + variance * variance / 2) / self.done
        own = math.expm1(variance) * self.squares_left / max(self.expected_left, 1e-9) ** 2
        return math.sqrt(learned + own)
