"""The time that a run still takes, against the times that sixty GraphNet samples really took."""

from __future__ import annotations

import random
import statistics
from itertools import accumulate

import pytest

from face import Begun, Pace, RunTally, SamplePace, TimeLeft, Written, expected, left_text, tally_line

# fmt: off
SIXTY = (
    # bytes of code, bytes of tensors, seconds, end on the clock of the run; two at a time, in the order of their ends
    (18239, 17195336, 8.4, 9), (15575, 23081284, 19.4, 29), (128154, 24725364, 23.4, 52),
    (125898, 13968764, 17.2, 70), (57802, 59542300, 111.6, 112), (121590, 56458412, 71.0, 140),
    (109863, 52481224, 239.8, 351), (79400, 53748120, 219.2, 360), (129744, 29998512, 116.6, 468),
    (59791, 8655496, 141.7, 501), (35583, 22367560, 20.4, 522), (50043, 58045728, 55.9, 524),
    (48156, 41006408, 30.8, 553), (50938, 47398568, 29.0, 553), (53489, 47384232, 36.4, 590),
    (55667, 47476008, 40.1, 593), (1127, 1933224, 7.1, 600), (53880, 2439080, 20.8, 621),
    (58199, 47461672, 36.5, 626), (33787, 2513320, 13.4, 634), (33795, 2477480, 15.4, 642),
    (40064, 2037016, 17.5, 652), (38063, 2489192, 15.3, 667), (29797, 2026904, 45.2, 687),
    (16175, 3426336, 13.2, 700), (3782, 131712, 6.9, 707), (28278, 1484712, 17.1, 725), (19635, 1445480, 13.9, 739),
    (17080, 2498612, 12.5, 751), (12875, 2373224, 13.8, 765), (33487, 12828716, 99.9, 767), (6220, 264016, 7.8, 775),
    (17673, 1501800, 14.4, 779), (609, 512592, 5.8, 781), (522, 509008, 4.8, 784), (11428, 1459880, 12.6, 794),
    (4432, 199680, 6.2, 800), (12829, 172672, 9.2, 809), (45489, 15864372, 42.1, 826), (124458, 10821992, 33.9, 860),
    (51285, 47398568, 31.7, 892), (30943, 5595816, 19.9, 912), (30973, 5544104, 14.8, 927),
    (5035, 6050856, 11.3, 938), (416, 40960, 6.2, 944), (4476, 18929688, 8.9, 953), (1413, 4112, 4.8, 958),
    (1870, 55424, 6.4, 965), (3753, 18929664, 7.7, 972), (2471, 1013776, 6.0, 979), (2808, 22508, 5.2, 984),
    (1462, 212, 5.1, 989), (2438, 5060, 6.3, 995), (2583, 4844, 5.8, 1001), (3357, 4968, 6.6, 1008),
    (4057, 6050816, 12.9, 1021), (1490, 2396168, 7.8, 1028), (62542, 53643912, 120.5, 1149),
    (101002, 15820016, 50.1, 1199), (56597, 56453968, 638.6, 1448),
)
# fmt: on
"""Samples of ten families in the order of their names, on a busy machine of two cores. The last but for its seconds,
which are 638, is like its neighbours: it was ended by --timeout."""

Run = tuple[tuple[int, int, float, float], ...]


def one_by_one(samples: Run) -> Run:
    """The same samples, one at a time."""
    ends = accumulate(seconds for _, _, seconds, _ in samples)
    return tuple((code, tensors, seconds, end) for (code, tensors, seconds, _), end in zip(samples, ends, strict=True))


def forecasts(samples: Run, jobs: int) -> list[tuple[float, TimeLeft]]:
    """What is said each time that a sample ends, but for the last: the clock, and the time left."""
    pace = Pace.of_rows([SamplePace("todo", code, tensors, None) for code, tensors, _, _ in samples], jobs)
    said = []
    for code, tensors, seconds, now in samples:
        pace.finish(expected(code, tensors), seconds)
        under_way = [now - end + took for _, _, took, end in samples if end - took < now < end]
        if left := pace.time_left(under_way):
            said.append((now, left))
    return said


def jump(samples: Run, jobs: int) -> float:
    """The largest end that is foreseen after the first tenth of the samples, divided by the smallest."""
    ends = [now + left.likely for now, left in forecasts(samples, jobs)[len(samples) // 10 :]]
    return max(ends) / min(ends)


def jump_by_count(samples: Run) -> float:
    """The same, if the samples that are done are counted, and their sizes are not looked at."""
    ends = [now * len(samples) / count for count, (_, _, _, now) in enumerate(samples[:-1], 1)]
    return max(ends[len(samples) // 10 :]) / min(ends[len(samples) // 10 :])


def test_the_end_does_not_jump_after_the_first_tenth() -> None:
    assert jump(SIXTY, 2) < 1.5
    assert jump_by_count(SIXTY) > 2.5


def test_in_any_order_it_jumps_less_than_a_count() -> None:
    orders = [one_by_one(tuple(random.Random(seed).sample(SIXTY, len(SIXTY)))) for seed in range(40)]
    ours, counted = [jump(order, 1) for order in orders], [jump_by_count(order) for order in orders]
    assert statistics.median(ours) < 2 < statistics.median(counted)
    assert max(ours) < 3 < max(counted)


def test_most_ranges_hold_and_become_narrower() -> None:
    usual = tuple(sample for sample in SIXTY if sample[2] < 600)
    order = one_by_one(tuple(random.Random(3).sample(usual, len(usual))))
    total, said = order[-1][-1], forecasts(order, 1)[5:]
    held = [left.low <= total - now <= left.high for now, left in said]
    assert sum(held) > 0.6 * len(held)
    assert said[0][1].high / said[0][1].low > 1.2 * said[30][1].high / said[30][1].low


def test_nothing_is_said_before_a_sample_is_done_and_after_the_last() -> None:
    pace = Pace.of_equals(2, 1)
    assert pace.time_left() is None
    pace.finish(expected(None, None), None)  # its files were missing: that took no time
    assert pace.time_left() is None
    pace.finish(expected(None, None), 3.0)
    assert pace.time_left() is None


def test_a_sample_that_takes_long_is_waited_for() -> None:
    pace = Pace.of_equals(3, 2)
    pace.finish(expected(None, None), 10.0)
    left = pace.time_left([600.0])
    assert left is not None
    assert left.likely >= 300


@pytest.mark.parametrize(
    ("left", "text"),
    [
        (None, ""),
        (TimeLeft(5.0, 6.0, 7.0), "about 6 s left"),
        (TimeLeft(30.0, 60.0, 85.0), "30 to 80 s left"),
        (TimeLeft(30.0, 60.0, 600.0), "30 s to 10 min left"),
        (TimeLeft(1000.0, 1200.0, 1400.0), "about 20 min left"),
        (TimeLeft(5000.0, 9000.0, 20000.0), "83 min to 5.6 h left"),
    ],
)
def test_a_range_is_said_while_little_is_known(left: TimeLeft | None, text: str) -> None:
    assert left_text(left) == text


def test_a_run_of_known_sizes_says_more_for_large_samples() -> None:
    def left(code: int) -> float:
        rows = [SamplePace("todo", 1000, 0, None), SamplePace("todo", code, 0, None)]
        tally = RunTally()
        tally.take(Begun(2, 0, 1, Pace.of_rows(rows, 1)))
        tally.take(Written({"id": "a", "verdict": "bitwise", "seconds": 4.0, "source_bytes": 1000, "tensor_bytes": 0}))
        assert "1 of 2 samples done; 1 bitwise; " in tally_line(tally)
        assert tally.left is not None
        return tally.left.likely

    assert left(100_000) > 5 * left(1000)
