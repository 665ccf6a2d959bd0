"""Time a compiled function and eager in turns in one process, so that the answer holds on a busy machine.

A round runs three programs in a drawn order: eager, the compiled graph, and eager once more, whose ratio to the first
is the noise. Each runs a block of calls of 0.4 ms or more. A call is timed on its own, by a clock that was bound before
any compiler was loaded and that leaves out the time that the thread waited for a processor (`clocks`). It has inputs
that no call had before (`contents`), and its results are copied when the clock has stopped. `clocks` compares the
blocks. Between two rounds, the judging process compares the results of each call with eager's (`examine`).

A pair takes 0.2 to 3 s for calls of up to 20 ms, up to 12 s where the answer is unsure. Slower calls get fewer rounds,
but 20 at least; if these would take more than `most_seconds`, a pair is not timed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from backprint.tools.bench.cells import BenchTiming
from backprint.tools.bench.examine import Examination
from backprint.tools.measuring.clocks import (
    CLOCK,
    DECILE,
    FEWEST_ROUNDS,
    SHORTEST,
    STAGES,
    TimingChange,
    TimingWithheld,
    compare_in_stages,
    compare_timings,
    on_gpu,
)

PROGRAMS = ("eager", "compiled", "again")
"""The programs of a round; the last is eager too."""

ORDERS = tuple(itertools.permutations(PROGRAMS))

USUAL_SECONDS, UNSURE_SECONDS = 3.0, 12.0
"""How long the first rounds of a pair take at most, and all of them where the answer is unsure."""

MOST_SECONDS = 60.0
"""If the fewest rounds take longer, a pair is not timed."""

WARM_CALLS, WARM_SECONDS, STEADY = 30, 2.0, 1.1
"""A program is warm when three calls in a row take no less than the three before, to a factor; or after so many."""

WARM_BLOCK = 16
"""The most calls in a row of a program that is not warm yet."""

TOGETHER, MOST_TOLD = 0.03, 2**21
"""For how many seconds rounds go on before results are compared, if those of a round have no more bytes."""


@dataclass
class _ProgramTimes:
    """The times of a program: calls a block, nanoseconds of a call in each block, and milliseconds of a GPU."""

    calls: int = 1
    times: list[float] = field(default_factory=list)
    device_times: list[float] = field(default_factory=list)

    def seconds(self) -> list[float]:
        """Return the seconds of a call, block by block."""
        return [time * 1e-9 for time in self.times]


class Rounds:
    """The rounds of a pair."""

    def __init__(self, examination: Examination) -> None:
        self.examination = examination
        self.programs = {name: _ProgramTimes() for name in PROGRAMS}
        self.together = 1
        """How many rounds are run before results are compared."""

    def more(self, rounds: int) -> tuple[list[float], list[float]]:
        """Run further rounds; return the seconds of eager's calls and of the compiled graph's."""
        for begun in range(0, rounds, self.together):
            orders = [self.examination.chance.choice(ORDERS) for _ in range(min(self.together, rounds - begun))]
            names = [name for order in orders for name in order]
            blocks = self.examination.blocks([(name, self.programs[name].calls) for name in names])
            for name, (spent, device) in zip(names, blocks, strict=True):
                self.programs[name].times.append(spent)
                self.programs[name].device_times.append(device)
        eager, compiled = (self.programs[name].seconds()[-rounds:] for name in PROGRAMS[:2])
        return eager, compiled

    def warm_up(self, name: str) -> float:
        """Call a program until its time is steady; choose its calls a block, and return a block's seconds."""
        spent: list[float] = []
        begun, calls = CLOCK(), 1
        while len(spent) < WARM_CALLS and not _is_steady(spent) and CLOCK() - begun < WARM_SECONDS * 1e9:
            spent.append(self.examination.blocks([(name, calls)])[0][0])
            calls = max(1, min(WARM_BLOCK, round(SHORTEST / max(1.0, spent[-1]))))
        fastest = max(1.0, min(spent))
        self.programs[name].calls = max(1, math.ceil(SHORTEST / fastest))
        for which in (name, "again") if name == "eager" else (name,):
            self.examination.process.request("short", which=which, nanoseconds=fastest)
        return self.programs[name].calls * fastest * 1e-9


def time_pair(examination: Examination, *, most_seconds: float = MOST_SECONDS) -> BenchTiming:
    """Time a compiled graph beside eager on varied inputs; raise CheatFound or TimingWithheld."""
    rounds = Rounds(examination)
    examination.learn_kinds(WARM_BLOCK)
    seconds = [rounds.warm_up(name) for name in PROGRAMS[:2]]
    rounds.programs["again"].calls = rounds.programs["eager"].calls
    stages = stages_within(2 * seconds[0] + seconds[1], most_seconds)
    calls = rounds.programs["compiled"].calls
    if examination.size * calls < MOST_TOLD:
        rounds.together = max(1, int(TOGETHER / (2 * seconds[0] + seconds[1])))
    examination.learn_kinds(calls * rounds.together)
    change = compare_in_stages(rounds.more, stages)
    examination.finish(timed_calls=True)
    gpu = on_gpu(examination.own)
    return timing_of(change, rounds.programs, gpu, varied=bool(examination.plan.pieces))


def timing_of(change: TimingChange, programs: Mapping[str, _ProgramTimes], gpu: bool, varied: bool) -> BenchTiming:
    """Return a pair's times, and the noise beside them."""
    eager, compiled, again = (programs[name].seconds() for name in PROGRAMS)
    noise = compare_timings(eager, again)
    return BenchTiming(
        answer=change.answer,
        eager=lower_decile(eager),
        compiled=lower_decile(compiled),
        eager_mean=math.fsum(eager) / len(eager),
        compiled_mean=math.fsum(compiled) / len(compiled),
        ratio=change.ratio,
        low=change.low,
        high=change.high,
        rounds=len(eager),
        noise=noise.ratio,
        noise_low=noise.low,
        noise_high=noise.high,
        device=_device_ratio(programs) if gpu else None,
        varied=varied,
    )


def _is_steady(spent: Sequence[float]) -> bool:
    return len(spent) >= 6 and min(spent[-6:-3]) <= STEADY * min(spent[-3:])


def stages_within(seconds: float, most_seconds: float) -> tuple[int, ...]:
    """Return the numbers of rounds that are compared where a round takes so many seconds."""
    if FEWEST_ROUNDS * seconds > most_seconds:
        raise TimingWithheld(
            f"{FEWEST_ROUNDS} rounds would take {FEWEST_ROUNDS * seconds:.0f} s, more than {most_seconds:g}"
        )
    first = STAGES[0] if STAGES[0] * seconds <= USUAL_SECONDS else FEWEST_ROUNDS
    return (first, *(rounds for rounds in STAGES if rounds > first and rounds * seconds <= UNSURE_SECONDS))


def lower_decile(times: Sequence[float]) -> float:
    """Return the lower decile."""
    return float(torch.quantile(torch.tensor(times, dtype=torch.float64), DECILE))


def _device_ratio(programs: Mapping[str, _ProgramTimes]) -> float | None:
    """Return the ratio of the lower deciles of the GPU's times."""
    eager, compiled = (lower_decile(programs[name].device_times) for name in PROGRAMS[:2])
    return compiled / eager if eager > 0 else None
