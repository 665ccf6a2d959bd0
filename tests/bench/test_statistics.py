"""Comparing timings: no false alarm on noise, slowdowns found in it, and no answer where there is none."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice

import pytest

from face import STAGES, TimingChange, UsageError, compare_in_stages, compare_timings

ROUNDS = 40


LOADS = {
    "quiet": (0.0, (1.0,), 0.3),
    "short": (0.5, (1.0, 1.0, 1.0, 1.3, 2.0), 0.1),
    "long": (0.15, (1.0, 1.3, 2.0), 0.05),
}
"""How often the load of the machine changes, the loads, and how often a single time is interrupted."""


def noisy_rounds(
    draw: random.Random, factor: float, load: str = "short", rounds: int = ROUNDS
) -> tuple[list[float], list[float]]:
    """Times of two programs in turns on a busy machine that drifts, the second `factor` times as long."""
    changes, loads, interrupted = LOADS[load]
    first, second = [], []
    speed, busy = 1.0, 1.0
    for _ in range(rounds):
        speed *= draw.lognormvariate(0, 0.003)
        busy = draw.choice(loads) if draw.random() < changes else busy
        times = {}
        for program in draw.sample((0, 1), 2):
            spike = 1 + draw.expovariate(1 / 3) if draw.random() < interrupted else 1.0
            times[program] = speed * busy * spike * draw.lognormvariate(0, 0.01) * (1 + draw.expovariate(1 / 0.02))
        first.append(times[0])
        second.append(times[1] * factor)
    return first, second


def answers(factor: float, trials: int, load: str) -> Counter[str]:
    """What comparisons come to that take more rounds where they are unsure."""
    draw = random.Random(1)
    return Counter(staged(noisy_rounds(draw, factor, load, STAGES[-1])).answer for _ in range(trials))


def staged(times: tuple[list[float], list[float]]) -> TimingChange:
    rest = [iter(side) for side in times]
    return compare_in_stages(lambda rounds: (list(islice(rest[0], rounds)), list(islice(rest[1], rounds))))


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS)
def test_noise_is_no_change(load: str) -> None:
    counts = answers(1.0, 300, load)
    assert counts["slower"] + counts["faster"] <= 1, counts


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS)
def test_a_slowdown_of_a_fifth_is_found(load: str) -> None:
    counts = answers(1.2, 300, load)
    assert counts["slower"] >= 297, counts


def test_noise_and_changes_are_told_apart() -> None:
    assert set(answers(1.0, 60, "short")) <= {"same", "unsure"}
    assert answers(1.2, 60, "short")["slower"] >= 59
    assert answers(1 / 1.25, 60, "short")["faster"] >= 59


def test_more_rounds_are_asked_for_while_the_answer_is_unsure() -> None:
    asked: list[int] = []

    def rounds(count: int) -> tuple[list[float], list[float]]:
        asked.append(count)
        fast = 4 if len(asked) < 3 else count
        return [1.0] * count, [1.0] * fast + [2.0] * (count - fast)

    assert compare_in_stages(rounds).answer == "same"
    assert asked == [40, 40, 80]
    assert compare_in_stages(rounds, (40,)).answer == "same"
    assert asked[3:] == [40]


def test_a_load_that_meets_both_hides_no_change() -> None:
    load = [1.0] * 6 + [2.0] * 34
    first = [busy * (1 + number / 1e4) for number, busy in enumerate(load)]
    assert compare_timings(first, [1.1 * time for time in first]).answer == "slower"


def test_a_quiet_machine_gives_a_sure_answer() -> None:
    draw = random.Random(0)
    first, second = ([draw.gauss(1.0, 0.002) for _ in range(ROUNDS)] for _ in range(2))
    same = compare_timings(first, second)
    assert same.answer == "same"
    assert same.low < same.ratio < same.high
    slower = compare_timings(first, [1.1 * time for time in first])
    assert slower.answer == "slower"
    assert slower.ratio == pytest.approx(1.1)
    assert compare_timings([1.1 * time for time in first], first).answer == "faster"
    assert compare_timings(first, [1.1 * time for time in first], threshold=0.2).answer == "same"


def test_two_kinds_of_rounds_give_no_answer() -> None:
    first = [1.0] * ROUNDS
    second = [1.0] * 4 + [2.0] * (ROUNDS - 4)  # a tenth of the rounds is fast: the decile is anywhere
    assert compare_timings(first, second).answer == "unsure"


def test_one_slow_call_in_five_hides_from_the_decile() -> None:
    first = [1.0 + number / 1e4 for number in range(ROUNDS)]
    rare = [time * (2 if number % 5 == 0 else 1) for number, time in enumerate(first)]
    assert compare_timings(first, rare).answer == "same"


def test_the_same_times_give_the_same_interval() -> None:
    times = noisy_rounds(random.Random(2), 1.1)
    assert compare_timings(*times) == compare_timings(*times)
    assert compare_timings(*times) != compare_timings(*times, seed=1)


@pytest.mark.parametrize(
    ("first", "options", "message"),
    [
        ([1.0] * 5, {}, "first has 5 rounds, second has 40"),
        ([0.0] * 40, {}, "not a finite number above 0"),
        ([float("nan")] * 40, {}, "not a finite number above 0"),
        ([1.0] * 30, {}, "first has 30 rounds, second has 40"),
        ([1.0] * 40, {"threshold": 0.0}, "threshold=0.0"),
        ([1.0] * 40, {"confidence": 1.0}, "confidence=1.0"),
    ],
)
def test_times_that_cannot_be_compared_are_refused(first: list[float], options: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compare_timings(first, [1.0] * 40, **options)


def test_few_rounds_are_not_compared() -> None:
    with pytest.raises(UsageError, match="first has 19 rounds; a comparison takes 20 or more"):
        compare_timings([1.0] * 19, [1.0] * 19)
