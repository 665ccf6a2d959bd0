"""Time a compiled function and eager in turns in one process, so that the answer holds on a busy machine.

A round runs three programs in a drawn order: eager, the compiled graph, and eager once more, whose ratio to the first
is the noise. Each runs a block of calls of 0.4 ms or more. A call is timed on its own, by a clock that leaves out the
time that the thread waited for a processor, and the blocks are compared (`judge/timing`).

A pair takes 0.2 to 3 s for calls of up to 20 ms, up to 12 s where the answer is unsure. Slower calls get fewer rounds,
but 20 at least; if these would take more than `most_seconds`, a pair is not timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from backprint.child.strangers import compiler_errors
from backprint.errors import BackprintError
from backprint.judge.timing import (
    CLOCK,
    FEWEST_ROUNDS,
    SHORT,
    STAGES,
    TimingChange,
    compare_in_stages,
    compare_timings,
    lower_decile,
    round_in_turns,
    timed,
)
from backprint.tools.bench.calls import CompiledCalls, on_gpu
from backprint.tools.bench.cells import BenchTiming

PROGRAMS = ("eager", "compiled", "again")
"""The programs of a round; the last is eager too."""

USUAL_SECONDS, UNSURE_SECONDS = 3.0, 12.0
"""How long the first rounds of a pair take at most, and all of them where the answer is unsure."""

MOST_SECONDS = 60.0
"""If the fewest rounds take longer, a pair is not timed."""

WARM_CALLS, WARM_SECONDS, STEADY = 30, 2.0, 1.1
"""A program is warm when three calls in a row take no less than the three before, to a factor; or after so many."""

SHORTEST = 400_000
"""Nanoseconds of calls that are timed as one block."""

WARM_BLOCK = 16
"""The most calls in a row of a program that is not warm yet."""


class TimingWithheld(BackprintError):
    """The times would not hold; the message says why. This is no fault of the results."""


@dataclass
class _TimedProgram:
    """A program: calls a block, nanoseconds of a call in each block, and milliseconds of a GPU. Waiting for a processor
    is not measured in `short` calls."""

    function: Callable[..., Any]
    errors: Callable[[], Any] = nullcontext
    calls: int = 1
    short: bool = False
    times: list[float] = field(default_factory=list)
    device_times: list[float] = field(default_factory=list)

    def seconds(self) -> list[float]:
        """Return the seconds of a call, block by block."""
        return [time * 1e-9 for time in self.times]


class Rounds:
    """The rounds of a pair, eager and a compiled function. All are on the same inputs: the tensors of `compiled`, with
    these contents. `programs` has the PROGRAMS by name, with the times of all rounds so far."""

    def __init__(self, eager: Callable[..., Any], compiled: CompiledCalls, contents: Sequence[Any]) -> None:
        self.compiled, self.contents, self.chance = compiled, contents, compiled.chance
        self.gpu = on_gpu(compiled.values)
        functions = {name: _TimedProgram(eager) for name in PROGRAMS}
        self.programs = functions | {"compiled": _TimedProgram(compiled.function, compiler_errors)}

    def run_rounds(self, rounds: int) -> tuple[list[float], list[float]]:
        """Run so many further rounds; return the seconds of a call of eager and of the compiled graph in each of them,
        by the host's clock, also on a GPU: a GPU's own times (`device_times`) are kept for a ratio of their own."""
        programs = list(self.programs.values())
        turns = [partial(self.block, program, program.calls) for program in programs]
        for _ in range(rounds):
            for program, (spent, device) in zip(programs, round_in_turns(turns, self.chance), strict=True):
                program.times.append(spent)
                program.device_times.append(device)
        eager, compiled = (self.programs[name].seconds()[-rounds:] for name in PROGRAMS[:2])
        return eager, compiled

    def block(self, program: _TimedProgram, calls: int) -> tuple[float, float]:
        """Call a program so often; return the nanoseconds of a call, and a GPU's milliseconds, 0 on a CPU. If the graph
        writes into inputs, these get their contents back before each call, outside the measured time."""
        total, device = 0, 0.0
        with program.errors():
            for _ in range(calls):
                if self.compiled.written:
                    self.compiled.put(self.contents)
                if not self.gpu:
                    nanoseconds, _ = timed(program.function, self.compiled.values, program.short)
                    total += nanoseconds
                    continue
                first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                torch.cuda.synchronize()  # so that no earlier kernel is in the time
                arguments = (program.function, self.compiled.values, first, last)
                nanoseconds, _ = timed(_between_events, arguments, program.short)
                total += nanoseconds
                device += first.elapsed_time(last)
        return total / calls, device / calls

    def warm_up(self, name: str) -> float:
        """Call a program until its time is steady; choose its calls a block, and return a block's seconds. What is
        chosen for eager holds for `again` too, which is eager once more."""
        program, spent = self.programs[name], list[float]()  # nanoseconds of a call, by block
        begun, calls = CLOCK(), 1
        while len(spent) < WARM_CALLS and not _is_steady(spent) and CLOCK() - begun < WARM_SECONDS * 1e9:
            nanoseconds, _ = self.block(program, calls)
            spent.append(nanoseconds)
            calls = max(1, min(WARM_BLOCK, round(SHORTEST / max(1.0, nanoseconds))))
        fastest = max(1.0, min(spent))
        for each in (program, self.programs["again"]) if name == "eager" else (program,):
            each.calls, each.short = max(1, math.ceil(SHORTEST / fastest)), fastest < SHORT
        return program.calls * fastest * 1e-9


def _between_events(function: Callable[..., Any], values: Sequence[Any], first: Any, last: Any) -> None:
    """Call a function between two events of a GPU, and wait for the second."""
    first.record()
    function(*values)
    last.record()
    torch.cuda.synchronize()


def time_pair(
    eager: Callable[..., Any],
    compiled: CompiledCalls,
    contents: Sequence[Any],
    *,
    most_seconds: float = MOST_SECONDS,
) -> BenchTiming:
    """Time a compiled graph beside eager on the same contents; raise CompilerFailed if it raises, or TimingWithheld if
    the fewest rounds would take more than `most_seconds`."""
    compiled.put(contents)
    rounds = Rounds(eager, compiled, contents)
    eager_seconds, compiled_seconds = (rounds.warm_up(name) for name in PROGRAMS[:2])
    seconds_of_round = 2 * eager_seconds + compiled_seconds  # a round runs eager twice
    change = compare_in_stages(rounds.run_rounds, stages_within(seconds_of_round, most_seconds))
    return timing_of(change, rounds.programs, rounds.gpu)


def timing_of(change: TimingChange, programs: Mapping[str, _TimedProgram], gpu: bool) -> BenchTiming:
    """Return a pair's times, and the noise beside them: the ratio of eager to eager. `change` is the comparison of the
    compiled graph's times with eager's."""
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
    )


def _is_steady(spent: Sequence[float]) -> bool:
    """Whether a program is warm by the times of its blocks so far: see STEADY."""
    return len(spent) >= 6 and min(spent[-6:-3]) <= STEADY * min(spent[-3:])


def stages_within(seconds: float, most_seconds: float) -> tuple[int, ...]:
    """Return after how many rounds the times are compared, where a round takes so many seconds: each further number is
    for an answer that is unsure at the one before. Raise TimingWithheld if the fewest rounds take too long."""
    if FEWEST_ROUNDS * seconds > most_seconds:
        raise TimingWithheld(
            f"{FEWEST_ROUNDS} rounds would take {FEWEST_ROUNDS * seconds:.0f} s, more than {most_seconds:g}"
        )
    first = STAGES[0] if STAGES[0] * seconds <= USUAL_SECONDS else FEWEST_ROUNDS
    return (first, *(rounds for rounds in STAGES if rounds > first and rounds * seconds <= UNSURE_SECONDS))


def _device_ratio(programs: Mapping[str, _TimedProgram]) -> float | None:
    """Return the ratio of the lower deciles of the GPU's times, the compiled graph's over eager's; None if eager's is
    0."""
    eager, compiled = (lower_decile(programs[name].device_times) for name in PROGRAMS[:2])
    return compiled / eager if eager > 0 else None
