"""Whether one program is faster than another, from times on a machine that others use too.

The two run in turns, round by round, in an order that is drawn: a load on the machine meets both. Of each program the
lower decile of its rounds counts, because others make a round slower and never faster. The ratio of the two deciles has
a bootstrap interval. It resamples rounds, each with the times of both programs, so a load that lasts widens it less.
The answer is certain only where the whole interval says it; where it is `unsure`, more rounds help.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from backprint.errors import UsageError

DECILE = 0.1

FEWEST_ROUNDS = 20
"""From so many rounds on the lower decile is not the fastest round alone."""


STAGES = (40, 80, 160, 320)
"""How many rounds are compared; where the answer is unsure, the next number."""


@dataclass(frozen=True, slots=True)
class TimingChange:
    """How long the second program takes, as a multiple of the first: the ratio of the lower deciles, between `low` and
    `high`."""

    answer: str
    ratio: float
    low: float
    high: float


def compare_timings(
    first: Sequence[float],
    second: Sequence[float],
    *,
    threshold: float = 0.05,
    confidence: float = 0.99,
    resamples: int = 2000,
    seed: int = 0,
) -> TimingChange:
    """Compare the times of a call in each round, the same rounds of both, in any unit. Up to `threshold` is `same`."""
    check_timings(first, second)
    if not (threshold > 0 and 0 < confidence < 1):
        raise UsageError(f"threshold={threshold!r} must be above 0, and confidence={confidence!r} between 0 and 1")
    generator = torch.Generator().manual_seed(seed)
    logs = torch.tensor([list(first), list(second)], dtype=torch.float64).log()
    picked = torch.randint(len(first), (resamples, len(first)), generator=generator)
    tail = (1 - confidence) / 2
    bounds = torch.tensor([tail, 1 - tail], dtype=torch.float64)
    low, high = torch.quantile(log_ratios(logs[:, picked]), bounds).tolist()
    return TimingChange(
        answer=timing_answer(low, high, math.log1p(threshold)),
        ratio=math.exp(log_ratios(logs)),
        low=math.exp(low),
        high=math.exp(high),
    )


def compare_in_stages(
    more_rounds: Callable[[int], tuple[Sequence[float], Sequence[float]]],
    stages: Sequence[int] = STAGES,
    *,
    threshold: float = 0.05,
) -> TimingChange:
    """Compare, and while the answer is unsure ask `more_rounds` for so many further rounds of both programs."""
    first, second = more_rounds(stages[0])
    change = compare_timings(first, second, threshold=threshold)
    for rounds in stages[1:]:
        if change.answer != "unsure":
            break
        more = more_rounds(rounds - len(first))
        first, second = (*first, *more[0]), (*second, *more[1])
        change = compare_timings(first, second, threshold=threshold)
    return change


def check_timings(first: Sequence[float], second: Sequence[float]) -> None:
    if len(first) != len(second):
        raise UsageError(f"first has {len(first)} rounds, second has {len(second)}: time both in each round")
    for name, times in (("first", first), ("second", second)):
        if len(times) < FEWEST_ROUNDS:
            raise UsageError(f"{name} has {len(times)} rounds; a comparison takes {FEWEST_ROUNDS} or more of each")
        if not all(0 < time < math.inf for time in times):
            raise UsageError(f"{name} has a time that is not a finite number above 0; time longer blocks of calls")


def log_ratios(logs: torch.Tensor) -> torch.Tensor:
    """The logarithm of the ratio of the lower deciles; the two programs come first, their rounds last."""
    first, second = torch.quantile(logs, DECILE, dim=-1)
    return second - first


def timing_answer(low: float, high: float, threshold: float) -> str:
    """The answer of an interval of the ratio's logarithm."""
    if low > threshold:
        return "slower"
    if high < -threshold:
        return "faster"
    return "same" if -threshold < low and high < threshold else "unsure"
