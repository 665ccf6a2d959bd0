"""Eager before a compiler is loaded: its time, torch's settings, and the functions that checks and clocks rely on.

A compiler shares its process with the eager program that it is compared with. What it changes there is named: settings
are restored, a replaced clock or comparison is a CheatFound, and a slower eager withholds the timing.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from backprint.benching.clock import CLOCK, SHORT, timed
from backprint.benching.findings import CheatFound, TimingWithheld
from backprint.benching.statistics import FEWEST_ROUNDS, compare_timings
from backprint.sample.rerun import copies
from backprint.settings import SETTINGS

ELAPSED = os.times

SHORTEST = 400_000
"""Nanoseconds of calls that are timed as one block."""

SLOWER = 1.3
"""Eager is called slower when it certainly takes more than so many times what it took."""

DRIFT, TICKS = 0.1, 0.05
"""How far two clocks may differ: a share of the time, and seconds."""

RELIED_ON = (
    (time, "time perf_counter perf_counter_ns monotonic monotonic_ns process_time process_time_ns sleep"),
    (os, "times urandom pread"),
    (torch, "equal allclose isclose isfinite isnan clone empty_like set_rng_state get_rng_state"),
    (torch.Tensor, "equal allclose isclose clone copy_ detach fill_ mul_ abs max double item view __eq__ __sub__"),
    (torch.testing, "assert_close"),
    (torch.cuda, "synchronize Event"),
)
"""What timing and comparisons call."""


def relied_on() -> dict[str, Any]:
    """Return name -> function of all that is relied on, as it is now."""
    return {
        f"{owner.__name__}.{name}": getattr(owner, name)
        for owner, names in RELIED_ON
        for name in names.split()
        if hasattr(owner, name)
    }


ORIGINALS = relied_on()
"""The same as this module was imported."""


def own_functions() -> dict[str, Any]:
    """Return name -> code of the functions of Backprint's modules that work beside a compiler."""
    names = [name for name in sys.modules if name.startswith(("backprint.benching", "backprint.sample"))]
    found: dict[str, Any] = {}
    for name in names:
        for key, value in vars(sys.modules[name]).items():
            if inspect.isclass(value) and value.__module__ == name:
                found |= {f"{name}.{key}.{method}": code_of(each) for method, each in vars(value).items()}
            found[f"{name}.{key}"] = code_of(value)
    return {name: code for name, code in found.items() if code is not None}


def code_of(value: Any) -> Any:
    """Return the code of a function; None of anything else."""
    return getattr(value, "__code__", None)


def check_own(before: Mapping[str, Any]) -> None:
    """Raise if one of these functions has another code now."""
    now = own_functions()
    if changed := [name for name, code in before.items() if now.get(name) is not code]:
        raise CheatFound(f"changes the bench that times it: {', '.join(changed[:4])} replaced")


def check_replaced() -> None:
    """Raise if a function that is relied on was replaced."""
    replaced = [name for name, function in relied_on().items() if not same_function(function, ORIGINALS[name])]
    clocks = [name for name in replaced if name.startswith(("time.", "os."))]
    if clocks:
        raise CheatFound(f"the clock was changed: {', '.join(clocks)} replaced")
    if replaced:
        raise CheatFound(f"replaces what results are compared with: {', '.join(replaced)}")


def same_function(function: Any, original: Any) -> bool:
    return function is original or function == original


@dataclass(frozen=True, slots=True)
class TwoClocks:
    """Two clocks of the system, read together."""

    nanoseconds: int
    seconds: float

    def check(self) -> None:
        """Raise unless the clock that times are taken with has run like the other since."""
        by_clock, elapsed = (CLOCK() - self.nanoseconds) * 1e-9, ELAPSED().elapsed - self.seconds
        if abs(by_clock - elapsed) > TICKS + DRIFT * elapsed:
            raise CheatFound(f"the clock was changed: it ran {by_clock:.3g} s in {elapsed:.3g} s")


def two_clocks() -> TwoClocks:
    """Read both clocks."""
    return TwoClocks(CLOCK(), ELAPSED().elapsed)


# ------------------------------------------------------------------ settings


def read_all_settings() -> dict[str, str]:
    """Return torch's settings as texts."""
    return {name: str(read()) for name, (read, _) in SETTINGS.items()} | {"grad_mode": str(torch.is_grad_enabled())}


def restore_settings(before: Mapping[str, str]) -> tuple[str, ...]:
    """Restore settings that differ; say of each what it was and what it had become."""
    found = []
    for name, now in read_all_settings().items():
        if now != before[name]:
            found.append(f"{name} from {before[name]} to {now}")
            if name == "grad_mode":
                torch.set_grad_enabled(before[name] == "True")
            else:
                SETTINGS[name][1](before[name])
    return tuple(found)


# ------------------------------------------------------------------ eager's time


@dataclass(frozen=True)
class EagerBaseline:
    """Eager's times before a compiler is loaded, and those of a loop in plain Python beside them."""

    eager: Callable[..., Any]
    times: tuple[float, ...]
    loops: tuple[float, ...]

    def check(self, times: Sequence[float], values: Sequence[Any]) -> None:
        """Raise if eager is slower than it was: in these times, and when it is measured again beside the loop."""
        if len(times) < FEWEST_ROUNDS or not slower(self.times, times[-FEWEST_ROUNDS:]):
            return
        eager, loops = measured(self.eager, values)
        relative = [
            [time / loop for time, loop in zip(*pair, strict=True)]
            for pair in ((self.times, self.loops), (eager, loops))
        ]
        if slower(self.times, eager) and slower(*relative):
            ratio = compare_timings(self.times, eager).ratio
            raise TimingWithheld(f"eager became {ratio:.3g} times slower since the compiler was loaded")


def eager_baseline(eager: Callable[..., Any], values: Sequence[Any]) -> EagerBaseline:
    """Measure eager, before the compiler is imported."""
    return EagerBaseline(eager, *measured(eager, values))


def measured(eager: Callable[..., Any], inputs: Sequence[Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return seconds of a call of eager, and of a loop in plain Python, from rounds of both."""
    values = copies(inputs)
    fastest = min(timed(eager, values, short=False)[0] for _ in range(3))
    calls, short = max(1, round(SHORTEST / fastest)), fastest < SHORT
    eagers, loops = [], []
    for _ in range(FEWEST_ROUNDS):
        eagers.append(sum(timed(eager, values, short)[0] for _ in range(calls)) / calls * 1e-9)
        loops.append(timed(python_loop, (), short=False)[0] * 1e-9)
    return tuple(eagers), tuple(loops)


def python_loop() -> int:
    total = 0
    for number in range(10_000):
        total += number * number
    return total


def slower(before: Sequence[float], now: Sequence[float]) -> bool:
    """Whether times are certainly longer by more than SLOWER."""
    return compare_timings(before, now).low > SLOWER
