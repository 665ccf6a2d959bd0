"""Mean speedups: the interval has the true mean as often as it says, for few values too."""

from __future__ import annotations

import math
import random

import pytest

from face import UsageError, geometric_mean, mean_speedup


def test_the_geometric_mean_of_a_speedup_and_its_inverse_is_one() -> None:
    assert geometric_mean([4.0, 0.25]) == pytest.approx(1.0)
    assert geometric_mean([4.0, 0.0]) == 0.0
    assert geometric_mean([1e308, 1e308, 1e-308, 1e-308]) == pytest.approx(1.0)
    for bad in ([], [-1.0]):
        with pytest.raises(UsageError, match="no geometric mean"):
            geometric_mean(bad)


@pytest.mark.parametrize("count", [5, 6, 30])
def test_the_interval_has_the_true_mean_as_often_as_it_says(count: int) -> None:
    draw = random.Random(count)
    hits = 0
    for _ in range(1000):
        _, low, high = mean_speedup([math.exp(draw.gauss(0.3, 0.5)) for _ in range(count)])
        assert low is not None
        assert high is not None
        hits += low <= math.exp(0.3) <= high
    assert 0.93 < hits / 1000 < 0.97


def test_few_values_have_no_interval() -> None:
    assert mean_speedup([]) == (None, None, None)
    assert mean_speedup([2.0] * 4) == (pytest.approx(2.0), None, None)
    assert mean_speedup([2.0] * 5) == (pytest.approx(2.0), pytest.approx(2.0), pytest.approx(2.0))


def test_values_without_a_logarithm_are_refused() -> None:
    with pytest.raises(UsageError, match="above 0"):
        mean_speedup([1.0, 0.0])
