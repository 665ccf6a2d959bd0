"""Counts in a dump are those of a tensor; others are refused where the dump is read."""

from __future__ import annotations

import pytest

from backprint.regions.read import stats_from_json


@pytest.mark.parametrize("place", [0, 6, 7, 8])
@pytest.mark.parametrize("count", [-1, 1 << 63, 10**400])
def test_a_count_that_no_tensor_has_is_refused(place: int, count: int) -> None:
    """`region show --json` ended in an OverflowError."""
    row = [4, -1.0, 1.0, 0.0, 0.5, 2.0, 0, 0, 1]
    assert stats_from_json(row) is not None
    with pytest.raises(ValueError, match="a count of elements"):
        stats_from_json([count if index == place else each for index, each in enumerate(row)])
