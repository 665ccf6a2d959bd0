"""The longest common subsequence of two sequences of numbers (Myers' O(ND) algorithm, in linear space).

Sequences that have little in common would take time with the square of their lengths. Where that begins, the search
continues from the furthest place it has reached, as GNU diff does: the result is a common subsequence, but maybe not
the longest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

MOST_EDITS = 128
"""After so many edits without an end, the furthest place is taken."""


def common_places(left: Sequence[int], right: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the places of a common subsequence, in no order."""
    shared = set(left) & set(right)
    at_left = [place for place, each in enumerate(left) if each in shared]
    at_right = [place for place, each in enumerate(right) if each in shared]
    a, b = [left[place] for place in at_left], [right[place] for place in at_right]
    waiting = [(0, len(a), 0, len(b))]
    while waiting:
        low, high, start, stop = waiting.pop()
        while low < high and start < stop and a[low] == b[start]:
            yield at_left[low], at_right[start]
            low, start = low + 1, start + 1
        while low < high and start < stop and a[high - 1] == b[stop - 1]:
            high, stop = high - 1, stop - 1
            yield at_left[high], at_right[stop]
        if low < high and start < stop:
            x, y = divided_at(a[low:high], b[start:stop])
            waiting += [(low, low + x, start, start + y), (low + x, high, start + y, stop)]


def divided_at(a: Sequence[int], b: Sequence[int]) -> tuple[int, int]:
    """Return a place in each of two sequences, through which a shortest way from one to the other goes.

    Neither begins nor ends with the same, so the place is not at an end of both.
    """
    n, m = len(a), len(b)
    delta = n - m
    ahead, back = {1: 0}, {1: 0}
    for edits in range((n + m + 1) // 2 + 1):
        for k in range(-edits, edits + 1, 2):
            x = furthest(ahead, k, edits, a, b, 1)
            if delta % 2 and abs(delta - k) < edits and x + back.get(delta - k, -1) >= n and 0 <= x - k <= m:
                return x, x - k
        for k in range(-edits, edits + 1, 2):
            x = furthest(back, k, edits, a, b, -1)
            if not delta % 2 and abs(delta - k) <= edits and x + ahead.get(delta - k, -1) >= n and 0 <= x - k <= m:
                return n - x, m - (x - k)
        if edits >= MOST_EDITS:
            break
    x, y = max(((x, x - k) for k, x in ahead.items() if x <= n and 0 <= x - k <= m), key=sum)
    return x, y


def furthest(reached: dict[int, int], k: int, edits: int, a: Sequence[int], b: Sequence[int], way: int) -> int:
    """Return how far a way of so many edits comes on a diagonal, and remember it; `way` -1 walks from the ends."""
    n, m = len(a), len(b)
    down = k == -edits or (k != edits and reached.get(k - 1, -1) < reached.get(k + 1, -1))
    x = reached.get(k + 1, 0) if down else reached.get(k - 1, -1) + 1
    y = x - k
    while 0 <= y < m and x < n and (a[x] == b[y] if way > 0 else a[n - 1 - x] == b[m - 1 - y]):
        x, y = x + 1, y + 1
    reached[k] = x
    return x
