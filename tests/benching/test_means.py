"""Mean speedups: the interval has the true mean as often as it says, for few values too."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from backprint.benching.means import geometric_mean, mean_speedup, mean_speedups
from backprint.benching.scored import OutputForm, ScoredOutput, ScoredSample
from backprint.errors import UsageError


def test_the_geometric_mean_of_a_speedup_and_its_inverse_is_one() -> None:
    assert geometric_mean([4.0, 0.25]) == pytest.approx(1.0)
    assert geometric_mean([4.0, 0.0]) == 0.0
    assert geometric_mean([1e308, 1e308, 1e-308, 1e-308]) == pytest.approx(1.0)
    for bad in ([], [-1.0]):
        with pytest.raises(UsageError, match="no geometric mean"):
            geometric_mean(bad)


@pytest.mark.parametrize(("count", "student"), [(6, 2.571), (30, 2.045)])
def test_the_interval_has_the_true_mean_as_often_as_it_says(count: int, student: float) -> None:
    draw = random.Random(count)
    found, widths = 0, []
    for seed in range(300):
        values = [math.exp(draw.gauss(0.3, 0.5)) for _ in range(count)]
        interval = mean_speedup(values, resamples=400, seed=seed)
        assert interval.low is not None
        assert interval.high is not None
        found += interval.low <= math.exp(0.3) <= interval.high
        deviation = statistics.stdev(map(math.log, values)) / math.sqrt(count)
        widths.append(math.log(interval.high / interval.low) / (2 * student * deviation))
    assert 0.87 < found / 300 < 0.98
    assert 0.88 < statistics.mean(widths) < 1.02  # of Student's interval


def test_few_values_have_no_interval() -> None:
    few = mean_speedup([2.0] * 4)
    assert (few.mean, few.low, few.high, few.count) == (pytest.approx(2.0), None, None, 4)
    assert mean_speedup([2.0] * 5).low == pytest.approx(2.0)


def test_the_interval_is_the_same_each_time() -> None:
    assert mean_speedup([1.0, 2.0, 3.0, 4.0, 5.0]) == mean_speedup([1.0, 2.0, 3.0, 4.0, 5.0])


def test_a_mean_speedup_is_of_right_samples() -> None:
    right = (ScoredOutput(OutputForm("int64"), equal=True),)
    samples = [
        ScoredSample("a", "correct", 2.0, right, config=(("size", "small"),)),
        ScoredSample("b", "correct", 8.0, right, config=(("size", "small"),)),
        ScoredSample("c", "correct", 3.0, right, config=(("size", "large"),)),
        ScoredSample("d", "accuracy", 99.0, (ScoredOutput(OutputForm("int64")),), config=(("size", "large"),)),
        ScoredSample("e", "compile_fail", config=(("size", "tiny"),)),
    ]
    means = mean_speedups(samples, lambda sample: sample.setting("size"))
    assert {name: (mean.mean, mean.count) for name, mean in means.items()} == {
        "small": (pytest.approx(4.0), 2),
        "large": (pytest.approx(3.0), 1),
    }


def test_values_without_a_logarithm_are_refused() -> None:
    with pytest.raises(UsageError, match="above 0"):
        mean_speedup([1.0, 0.0])
