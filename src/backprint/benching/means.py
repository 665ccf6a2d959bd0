"""Geometric means of speedups, with the interval of Student's t on their logarithms."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from backprint.benching.scored import ScoredSample
from backprint.errors import UsageError

FEWEST = 5
"""Fewer values have no interval."""

MeanSpeedup = tuple[float | None, float | None, float | None]
"""A geometric mean, and the two ends of its interval; None where it is not known."""


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of numbers from 0 on; 0 if one of them is."""
    if not values:
        raise UsageError("no geometric mean of no values")
    if min(values) <= 0:
        if min(values) < 0:
            raise UsageError(f"no geometric mean: {min(values)!r} is below 0")
        return 0.0
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def mean_speedup(speedups: Sequence[float]) -> MeanSpeedup:
    """Return the geometric mean of speedups above 0, with the interval that has the true mean in 95 of 100 cases where
    the logarithms are normal; nothing of no speedups, and no interval of fewer than `FEWEST`."""
    if any(not 0 < speedup < math.inf for speedup in speedups):
        raise UsageError("no mean speedup: each value must be above 0 and finite")
    if len(speedups) < FEWEST:
        return (geometric_mean(speedups) if speedups else None, None, None)
    logs = [math.log(speedup) for speedup in speedups]
    half = student_quantile(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    mean = statistics.fmean(logs)
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def student_quantile(share: float, degrees: int) -> float:
    """Return a quantile of Student's t by Cornish and Fisher's expansion, within 2% from 4 degrees of freedom on."""
    z = statistics.NormalDist().inv_cdf(share)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def right_and_timed(sample: ScoredSample) -> bool:
    """Whether a sample's speedup is one of a right result: within level 0, and above 0."""
    return sample.measured and sample.right_at(0) and bool(sample.speedup)


def right_speedups(samples: Sequence[ScoredSample]) -> tuple[float, ...]:
    """Return the speedups of what is right at level 0, in order."""
    return tuple(sorted(sample.speedup for sample in samples if right_and_timed(sample) and sample.speedup))
