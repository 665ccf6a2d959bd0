"""The common subsequence is a subsequence of both, the longest in short sequences, and soon found in long ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from face import common_places

NUMBERS = st.lists(st.integers(0, 4), max_size=24)


def longest(a: Sequence[int], b: Sequence[int]) -> int:
    """By the table of all pairs of beginnings."""
    above = [0] * (len(b) + 1)
    for x in a:
        row = [0]
        for place, y in enumerate(b):
            row.append(above[place] + 1 if x == y else max(above[place + 1], row[place]))
        above = row
    return above[-1]


@given(NUMBERS, NUMBERS)
def test_it_is_common_rises_and_is_the_longest(a: list[int], b: list[int]) -> None:
    found = sorted(common_places(a, b))
    assert all(a[left] == b[right] for left, right in found)
    assert all(one[0] < two[0] and one[1] < two[1] for one, two in pairwise(found))
    assert len(found) == longest(a, b)


def test_long_sequences_with_little_in_common_are_soon_divided() -> None:
    draw = random.Random(0)
    a, b = ([draw.randrange(20) for _ in range(3000)] for _ in range(2))
    found = sorted(common_places(a, b))
    assert all(a[left] == b[right] for left, right in found)
    assert all(one[0] < two[0] and one[1] < two[1] for one, two in pairwise(found))
    assert len(found) > 600
