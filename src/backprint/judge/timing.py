"""Whether one program is faster than another: the time of a call, programs in turns, and what their times say.

    change = compare_in_stages(more_rounds)
    change.answer, change.ratio, change.low, change.high  # 'faster', 0.71, 0.69, 0.74

The clocks are bound when this module is imported: import it before a stranger's code, which could replace them.

A *round* is one call, or one block of calls, of each program, one after the other. `first` and `second` are the times
of two programs, the same rounds of both. A TimingChange says how long the second takes, as a multiple of the first:
`faster` and 0.71 are for a second program that takes less time.
"""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from backprint.errors import UsageError

# ------------------------------------------------------------------ the time of a call, without waiting for a processor
#
# On a machine that others use too, a call of 10 ms may take 50. Linux counts how long a thread was ready to run and had
# to wait (the second number of /proc/thread-self/schedstat); this is subtracted. At least the processor time of the
# whole process is left, so that work of other threads during the call counts. Waiting while the counts themselves are
# read is not subtracted, because it lies outside of the call. Systems without these counts subtract nothing.

CLOCK, PROCESSOR, READ = time.perf_counter_ns, time.process_time_ns, os.pread

SHORT = 50_000
"""Nanoseconds: shorter calls are seldom interrupted, and reading the time that a thread has waited takes a fifth of
that."""

OPENED: dict[tuple[int, int], int] = {}
"""(process, thread) -> the file descriptor of its counts, or -1 where the system has none."""


def counts_of_thread() -> int:
    """Return the file descriptor of the counts of the thread that calls, which stays open; -1 where the system has
    none."""
    key = os.getpid(), threading.get_ident()
    if key not in OPENED:
        try:
            OPENED[key] = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            OPENED[key] = -1
    return OPENED[key]


def waited(counts: int) -> int:
    """Return the nanoseconds that the thread of these `counts` (`counts_of_thread`) has waited for a processor since it
    started: the second number there."""
    return int(READ(counts, 64, 0).split()[1])


def timed(function: Callable[..., Any], values: Sequence[Any], short: bool) -> tuple[int, Any]:
    """Call a function; return the nanoseconds that it took, less those in which its thread waited for a processor, and
    the results. From a `short` call (SHORT) no waiting is subtracted."""
    counts = -1 if short else counts_of_thread()
    if counts < 0:  # nothing is subtracted
        call_start = CLOCK()
        results = function(*values)
        call_end = CLOCK()
        return call_end - call_start, results
    outer_start = CLOCK()
    waited_before, processor_before = waited(counts), PROCESSOR()
    call_start = CLOCK()
    results = function(*values)
    call_end = CLOCK()
    processor_time, wait_time = PROCESSOR() - processor_before, waited(counts) - waited_before
    # Between `outer_start` and now the thread may have waited, and only what exceeds the time outside of the call is
    # sure to be a part of the call. The processor time of all threads in it is never subtracted.
    time_outside = call_start - outer_start + CLOCK() - call_end
    call_time = call_end - call_start
    return max(call_time - max(wait_time - time_outside, 0), min(call_time, processor_time)), results


# ------------------------------------------------------------------ is one program faster than another?
#
# The two programs run in turns, round by round, in a random order, so that load on the machine meets both. Of each
# program the lower decile of its rounds counts, because other work makes a round slower and never faster. The ratio of
# the two deciles has a bootstrap interval that resamples rounds, each with the times of both programs, so that a load
# that lasts widens it less. An answer is certain only where the whole interval agrees; where it is `unsure`, more
# rounds help.

T = TypeVar("T")

DECILE = 0.1

FEWEST_ROUNDS = 20
"""From so many rounds on the lower decile is not the fastest round alone."""

STAGES = (40, 80, 160, 320)
"""How many rounds are compared; where the answer is unsure, the next number."""


def round_in_turns(programs: Sequence[Callable[[], T]], chance: random.Random) -> list[T]:
    """Run each program once, in a drawn order; return what each returned, such as its time."""
    answers: dict[int, T] = {}
    for place in chance.sample(range(len(programs)), len(programs)):
        answers[place] = programs[place]()
    return [answers[place] for place in range(len(programs))]


def lower_decile(times: Sequence[float]) -> float:
    """Return the lower decile of the times of a program."""
    return float(torch.quantile(torch.tensor(times, dtype=torch.float64), DECILE))


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
    """Compare the times of two programs in each round, in any unit. A change of up to `threshold`, a share of the time,
    is `same`. The interval of the ratio has this `confidence`, by so many bootstrap `resamples`, drawn from `seed`.
    Raise UsageError for fewer than FEWEST_ROUNDS rounds, or times that are no positive numbers."""
    _check_timings(first, second)
    if not (threshold > 0 and 0 < confidence < 1):
        raise UsageError(f"threshold={threshold!r} must be above 0, and confidence={confidence!r} between 0 and 1")
    generator = torch.Generator().manual_seed(seed)
    # A ratio of times is a difference of logarithms.
    logs = torch.tensor([list(first), list(second)], dtype=torch.float64).log()
    resampled_rounds = torch.randint(len(first), (resamples, len(first)), generator=generator)
    tail = (1 - confidence) / 2
    bounds = torch.tensor([tail, 1 - tail], dtype=torch.float64)
    # `logs[:, resampled_rounds]` has the sizes (program, resample, round).
    low, high = torch.quantile(_log_ratios(logs[:, resampled_rounds]), bounds).tolist()
    return TimingChange(
        answer=timing_answer(low, high, math.log1p(threshold)),
        ratio=math.exp(_log_ratios(logs)),
        low=math.exp(low),
        high=math.exp(high),
    )


def compare_in_stages(
    more_rounds: Callable[[int], tuple[Sequence[float], Sequence[float]]],
    stages: Sequence[int] = STAGES,
    *,
    threshold: float = 0.05,
) -> TimingChange:
    """Compare two programs after `stages[0]` rounds, and while the answer is unsure after as many in all as the next
    stage says. `more_rounds` runs so many further rounds and returns the times of both programs."""
    first, second = more_rounds(stages[0])
    change = compare_timings(first, second, threshold=threshold)
    for rounds in stages[1:]:
        if change.answer != "unsure":
            break
        more_of_first, more_of_second = more_rounds(rounds - len(first))
        first, second = (*first, *more_of_first), (*second, *more_of_second)
        change = compare_timings(first, second, threshold=threshold)
    return change


def _check_timings(first: Sequence[float], second: Sequence[float]) -> None:
    """Raise UsageError unless these are times of the same rounds, enough of them, and finite numbers above 0."""
    if len(first) != len(second):
        raise UsageError(f"first has {len(first)} rounds, second has {len(second)}: time both in each round")
    for name, times in (("first", first), ("second", second)):
        if len(times) < FEWEST_ROUNDS:
            raise UsageError(f"{name} has {len(times)} rounds; a comparison takes {FEWEST_ROUNDS} or more of each")
        if not all(0 < time < math.inf for time in times):
            raise UsageError(f"{name} has a time that is not a finite number above 0; time longer blocks of calls")


def _log_ratios(logs: torch.Tensor) -> torch.Tensor:
    """Return the logarithm of the ratio of the lower deciles of two programs, which are the first dimension of `logs`,
    with the rounds as the last."""
    first, second = torch.quantile(logs, DECILE, dim=-1)
    return second - first


def timing_answer(low: float, high: float, threshold: float) -> str:
    """Return the answer for an interval of the ratio's logarithm, from `low` to `high`: `slower`, `faster` or `same` if
    all of it is beyond or within the `threshold`, which is a logarithm too, else `unsure`."""
    if low > threshold:
        return "slower"
    if high < -threshold:
        return "faster"
    return "same" if -threshold < low and high < threshold else "unsure"
