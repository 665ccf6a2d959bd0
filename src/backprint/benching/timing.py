"""Time what was compiled beside eager, in one process and in turns, so that the answer holds on a busy machine.

A round runs three programs in a drawn order: eager, the compiled graph, and eager once more, whose ratio to the first
is the noise. Each runs a block of calls of 0.4 ms or more. A call is timed on its own, by a clock that was bound before
any compiler was loaded and that leaves out what the thread waited for a processor (`clock`). It has inputs that no call
of its program had before (`varied`), and results are kept until the clock has stopped. `statistics` compares the
blocks. Calls that are drawn by os.urandom, and some after the last round, get other contents, and eager too: their
results must agree, and their inputs and results must not change.

A pair takes 0.2 to 3 s for calls of up to 20 ms, up to 12 s where the answer is unsure. Slower calls get fewer rounds,
but 20 at least; if these would take more than `most_seconds`, a pair is not timed.
"""

from __future__ import annotations

import itertools
import math
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from backprint.benching.baseline import SHORTEST, EagerBaseline, check_replaced, settings_held, two_clocks
from backprint.benching.cells import BenchTiming
from backprint.benching.clock import CLOCK, SHORT, timed
from backprint.benching.findings import CheatFound, TimingWithheld
from backprint.benching.gpu import on_gpu
from backprint.benching.honest import (
    Agree,
    HeldResults,
    HonestProgram,
    agreement,
    check_honest,
    check_inputs,
    check_plain,
    check_written,
    held_results,
    pause_after,
    put_random,
)
from backprint.benching.instructions import InstructionCounter, instruction_counter
from backprint.benching.statistics import (
    DECILE,
    FEWEST_ROUNDS,
    STAGES,
    TimingChange,
    compare_in_stages,
    compare_timings,
)
from backprint.benching.varied import VariedInputs, fits_inputs
from backprint.sample.rerun import EagerRun, copies

EAGER, COMPILED, AGAIN = range(3)
"""The programs of a round."""

ORDERS = tuple(itertools.permutations(range(3)))

USUAL_SECONDS, UNSURE_SECONDS = 3.0, 12.0
"""How long the first rounds of a pair take at most, and all of them where the answer is unsure."""

MOST_SECONDS = 60.0
"""If the fewest rounds take longer, a pair is not timed."""

CHECKED = 1 / 12
"""The share of rounds with a call whose results are compared."""

WARM_CALLS, WARM_SECONDS, STEADY = 30, 2.0, 1.1
"""A program is warm when three calls in a row take no less than the three before, to a factor; or after so many."""

COUNTED = 7
"""Blocks in which instructions are counted; the median counts."""


@dataclass
class TimedProgram:
    """A program while it is timed: calls a block, and the nanoseconds of each block's calls."""

    function: Callable[..., Any]
    gpu: bool
    calls: int = 1
    short: bool = False
    times: list[float] = field(default_factory=list)
    device_times: list[float] = field(default_factory=list)

    def seconds(self) -> list[float]:
        """Return the seconds of a call, block by block."""
        return [time * 1e-9 for time in self.times]

    def timed_call(self, values: Sequence[Any]) -> tuple[int, float, Any]:
        """Call the program; return the nanoseconds, the milliseconds of the GPU, and the results."""
        if self.gpu:
            return self.timed_on_gpu(values)
        spent, results = timed(self.function, values, self.short)
        return spent, 0.0, results

    def timed_on_gpu(self, values: Sequence[Any]) -> tuple[int, float, Any]:
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

        def complete() -> Any:
            first.record()
            results = self.function(*values)
            last.record()
            torch.cuda.synchronize()
            return results

        torch.cuda.synchronize()
        spent, results = timed(complete, (), self.short)
        return spent, first.elapsed_time(last), results


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A timed call whose results are compared: its inputs before it, and its results."""

    run: EagerRun
    inputs: list[Any]
    held: HeldResults


class Rounds:
    """The rounds of a pair."""

    def __init__(
        self,
        runs: Sequence[EagerRun],
        programs: tuple[TimedProgram, ...],
        agree: Agree,
        rewritten: Sequence[int],
    ) -> None:
        self.chance = random.Random(os.urandom(16))
        self.inputs = VariedInputs(runs[0].inputs, self.chance)
        self.inputs.leave_out_refused(programs[EAGER].function)
        self.kinds = runs[0].results
        others = [other for other in runs[1:] if fits_inputs(self.inputs.values, other.inputs)]
        self.contents = others or [runs[0]]
        self.programs, self.agree, self.rewritten = programs, agree, rewritten

    def more(self, rounds: int) -> tuple[list[float], list[float]]:
        """Run further rounds; return the seconds of eager's calls and of the compiled graph's."""
        for _ in range(rounds):
            self.play(self.chance.choice(self.contents) if self.chance.random() < CHECKED else None)
        eager, compiled = (program.seconds()[-rounds:] for program in self.programs[:AGAIN])
        return eager, compiled

    def play(self, contents: EagerRun | None) -> None:
        """Run one round; with contents, a call of eager and one of the compiled graph on them are compared."""
        seed, found = self.chance.getrandbits(64), {}
        for which in self.chance.choice(ORDERS):
            call = self.block(self.programs[which], seed, None if which == AGAIN else contents)
            if call is not None:
                found[which] = call
        if contents is not None:
            self.compare(found[EAGER], found[COMPILED])

    def block(self, program: TimedProgram, seed: int, contents: EagerRun | None) -> CheckedCall | None:
        """Time a block of calls; one of them has these contents."""
        draw = random.Random(seed)
        place, found = int(draw.random() * program.calls), None
        total, device = 0, 0.0
        self.inputs.vary_all(draw)
        for index in range(program.calls):
            if index == place and contents is not None:
                spent, busy, found = self.checked_call(program, contents, random.Random(seed + 1))
            else:
                self.prepare(draw)
                spent, busy, results = program.timed_call(self.inputs.values)
                self.consume(results)
            total, device = total + spent, device + busy
        program.times.append(total / program.calls)
        program.device_times.append(device / program.calls)
        return found

    def prepare(self, draw: random.Random) -> None:
        """Change the inputs before a call; where eager writes into them, put back what was there."""
        if self.rewritten:
            self.inputs.put(self.inputs.original)
        self.inputs.vary_one(draw)

    def consume(self, results: Any) -> None:
        """See that every result is a plain tensor."""
        for place, pair in enumerate(zip(results, self.kinds, strict=True)):
            check_plain(place, *pair)

    def checked_call(self, program: TimedProgram, run: EagerRun, draw: random.Random) -> tuple[int, float, CheckedCall]:
        """Time a call on the contents of a run, and copy its results at once."""
        self.inputs.put(run.inputs)
        self.inputs.nudge(draw)
        before = copies(self.inputs.values)
        put_random(run)
        spent, busy, results = program.timed_call(self.inputs.values)
        held = held_results(results, run.results, self.inputs.values)
        check_inputs(run, self.inputs.values, before, self.rewritten)
        self.inputs.put(self.inputs.original)
        self.inputs.vary_all(draw)
        return spent, busy, CheckedCall(run, before, held)

    def compare(self, eager: CheckedCall, compiled: CheckedCall) -> None:
        """Raise unless the results of a round's checked calls agree, and the compiled graph's stay as they were."""
        check_written(compiled.held, pause_after(self.programs[EAGER].times[-1] * 1e-9))
        run = replace(eager.run, inputs=eager.inputs, results=eager.held.copied)
        if reason := self.agree(run, compiled.held.copied):
            raise CheatFound(f"a timed call gives other results than the one that was checked: {reason}")


# ------------------------------------------------------------------ a pair


def honest_and_timed(
    others: Sequence[EagerRun],
    compiled: Callable[..., Any],
    baseline: EagerBaseline,
    *,
    agree: Agree | None = None,
    most_seconds: float = MOST_SECONDS,
) -> tuple[HonestProgram, BenchTiming]:
    """Check that a compiled graph computes its results, then time it beside eager.

    The order in a process: `bench_graphs`, `moved_graphs` and an `eager_baseline` of each graph; the compiler is
    imported and compiles; its results on the graph's own inputs are judged; then this. `others` are the graph's runs of
    `moved_graphs`. Raises CheatFound or TimingWithheld.
    """
    agree = agree or agreement(compiled)
    notes = baseline.restored()
    check_replaced()
    with settings_held():
        honest = check_honest(baseline.run, others, compiled, agree)
        timing = time_pair(
            baseline,
            compiled,
            others=others,
            agree=agree,
            rewritten=honest.rewritten,
            most_seconds=most_seconds,
        )
    return replace(honest, notes=(*notes, *honest.notes)), timing


def time_pair(
    baseline: EagerBaseline,
    compiled: Callable[..., Any],
    *,
    agree: Agree,
    others: Sequence[EagerRun] = (),
    rewritten: Sequence[int] = (),
    most_seconds: float = MOST_SECONDS,
) -> BenchTiming:
    """Time a compiled graph beside eager on varied inputs; raise CheatFound or TimingWithheld."""
    run, clocks = baseline.run, two_clocks()
    gpu = on_gpu(run.inputs)
    pair = tuple(TimedProgram(function, gpu) for function in (baseline.eager, compiled))
    seconds = [warm_up(program, run) for program in pair]
    stages = stages_within(2 * seconds[EAGER] + seconds[COMPILED], most_seconds)
    programs = (*pair, replace(pair[EAGER], times=[], device_times=[]))
    rounds = Rounds([run, *others], programs, agree, rewritten)
    change = compare_in_stages(rounds.more, stages)
    timing = timing_of(change, programs)
    for contents in rounds.contents:
        rounds.play(contents)
    clocks.check()
    check_replaced()
    baseline.check(pair[EAGER].seconds())
    instructions = instruction_ratio(rounds, pair)
    return replace(timing, instructions=instructions, varied=rounds.inputs.varied)


def timing_of(change: TimingChange, programs: Sequence[TimedProgram]) -> BenchTiming:
    """Return a pair's times, and the noise beside them."""
    eager, compiled, again = (program.seconds() for program in programs)
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
        device=device_ratio(programs) if programs[EAGER].gpu else None,
    )


def warm_up(program: TimedProgram, run: EagerRun) -> float:
    """Call a program until its time is steady; choose its calls a block, and return a block's seconds."""
    values = copies(run.inputs)
    spent: list[int] = []
    begun = CLOCK()
    while len(spent) < WARM_CALLS and not is_steady(spent) and CLOCK() - begun < WARM_SECONDS * 1e9:
        spent.append(program.timed_call(values)[0])
    fastest = max(1, min(spent))
    program.calls, program.short = max(1, math.ceil(SHORTEST / fastest)), fastest < SHORT
    return program.calls * fastest * 1e-9


def is_steady(spent: Sequence[float]) -> bool:
    return len(spent) >= 6 and min(spent[-6:-3]) <= STEADY * min(spent[-3:])


def stages_within(seconds: float, most: float) -> tuple[int, ...]:
    """Return the numbers of rounds that are compared where a round takes so many seconds."""
    if FEWEST_ROUNDS * seconds > most:
        raise TimingWithheld(f"{FEWEST_ROUNDS} rounds would take {FEWEST_ROUNDS * seconds:.0f} s, more than {most:g}")
    first = STAGES[0] if STAGES[0] * seconds <= USUAL_SECONDS else FEWEST_ROUNDS
    return (first, *(rounds for rounds in STAGES if rounds > first and rounds * seconds <= UNSURE_SECONDS))


def lower_decile(times: Sequence[float]) -> float:
    """Return the lower decile."""
    return float(torch.quantile(torch.tensor(times, dtype=torch.float64), DECILE))


def device_ratio(programs: Sequence[TimedProgram]) -> float | None:
    """Return the ratio of the lower deciles of the GPU's times."""
    eager, compiled = (lower_decile(program.device_times) for program in programs[:AGAIN])
    return compiled / eager if eager > 0 else None


# ------------------------------------------------------------------ instructions


def instruction_ratio(rounds: Rounds, pair: Sequence[TimedProgram]) -> float | None:
    """Return the compiled graph's instructions a call over eager's; None where they cannot be counted."""
    counter = instruction_counter()
    if counter is None:
        return None
    found = [sorted(counted(rounds, program, counter) for _ in range(COUNTED))[COUNTED // 2] for program in pair]
    return None if math.nan in found or not min(found) > 0 else found[COMPILED] / found[EAGER]


def counted(rounds: Rounds, program: TimedProgram, counter: InstructionCounter) -> float:
    """Return the instructions of a call, the mean of a block; NaN where they cannot be counted."""
    total = 0
    for _ in range(program.calls):
        rounds.prepare(rounds.chance)
        before = counter.count()
        results = program.function(*rounds.inputs.values)
        after = counter.count()
        del results
        if before is None or after is None:
            return math.nan
        total += after - before
    return total / program.calls
