"""Call what was compiled several times on the same tensors with other contents: results must follow the contents.

One comparison on one set of inputs does not show that a program computes anything: it may remember its results by call,
by tensor or by value, return memory that it writes later, or change the inputs that the next program gets. Each of
these is a CheatFound.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backprint.benching.clock import timed
from backprint.benching.findings import CheatFound
from backprint.benching.moved import movement
from backprint.benching.varied import changed_places, fits_inputs, put_contents
from backprint.sample.alone import ports
from backprint.sample.judged import Eager, judged, one_to_the_bit, within_tolerance
from backprint.sample.rerun import EagerRun, copies
from backprint.tree import strided_parts

Agree = Callable[[EagerRun, Sequence[Any]], str]
"""Compares results with those of an eager run on the same inputs; returns why they do not agree, or an empty text."""

CLOCK, SLEEP = time.perf_counter_ns, time.sleep

PROBES = 40
"""How often a program is called to see whether its results are written late."""

MOST_PROBING = 200_000_000
"""The nanoseconds after which it is not called again for that."""

MOST_HELD = 2**31
"""The bytes of results that are held at a time, to see whether they change."""

LATE = 0.5
"""Seconds for which wrong results are watched: they may be written later."""


def pause_after(seconds: float) -> float:
    """Return for how many seconds results are watched after a call, by what a call of eager takes."""
    return min(0.1, 0.002 + 3 * seconds)


@dataclass(frozen=True, slots=True)
class HonestProgram:
    """What `check_honest` learned of a program that passed."""

    moved: tuple[bool, ...]
    """Of each output, whether the other inputs move it: where none do, a comparison proves nothing."""
    rewritten: tuple[int, ...] = ()
    """The places of inputs that eager writes into."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldResults:
    """The results of a call, and copies of them that were made as soon as it had returned."""

    results: tuple[Any, ...]
    copied: tuple[Any, ...]
    shared: frozenset[int]
    """The places of results that have the memory of an input, and change with it."""

    def changed(self) -> list[int]:
        """Return the places of results that changed since."""
        return [place for place in changed_places(self.results, self.copied) if place not in self.shared]


def check_honest(
    run: EagerRun, others: Sequence[EagerRun], compiled: Callable[..., Any], agree: Agree
) -> HonestProgram:
    """Check a compiled graph on its inputs, on the other runs' inputs in the same tensors, and on its inputs again."""
    rewritten, seconds = writes_of_eager(run)
    values = copies(run.inputs)
    runs = [other for other in others if fits_inputs(values, other.inputs)]
    held: list[HeldResults] = []
    notes = [] if runs else ["its inputs cannot be redrawn, so no other contents were tried"]
    for count, each in enumerate([run, *runs, run]):
        if count:
            put_inputs(values, each.inputs)
        held = [*within_bytes(held), checked_call(each, compiled, values, rewritten, seconds)]
        if reason := agree(each, held[-1].copied):
            check_written(held[-1], LATE)
            raise CheatFound(f"{occasion(count)}: {reason}" if count else reason)
        if any(earlier.changed() for earlier in held[:-1]):
            raise CheatFound("reuses the memory of its earlier results: they change when it is called again")
    check_written_often(run, compiled, values, rewritten, pause_after(seconds))
    notes += shared_inputs(run, held[-1].results, values)
    return HonestProgram(movement(run, runs), rewritten, tuple(dict.fromkeys(notes)))


def within_bytes(held: list[HeldResults]) -> list[HeldResults]:
    """Return the last of these results that take no more than MOST_HELD, and at least one."""
    kept: list[HeldResults] = []
    taken = 0
    for each in reversed(held):
        tensors = (value for value in each.results if isinstance(value, Tensor))
        taken += 2 * sum(part.nbytes for value in tensors for part in strided_parts(value))
        if kept and taken > MOST_HELD:
            break
        kept.insert(0, each)
    return kept


def occasion(count: int) -> str:
    return f"a further call (number {count + 1}, on the same tensors with other contents) gives wrong results"


def checked_call(
    run: EagerRun, compiled: Callable[..., Any], values: Sequence[Any], rewritten: Sequence[int], seconds: float
) -> HeldResults:
    """Call a compiled graph once, and check what it returns and leaves."""
    put_random(run)
    results = compiled(*values)
    held = held_results(results, run.results, values)
    check_inputs(run, values, run.inputs, rewritten)
    check_written(held, pause_after(seconds))
    return held


def held_results(results: Any, wanted: Sequence[Any], values: Sequence[Any]) -> HeldResults:
    """Copy the results of a call at once. Raise if they are not the plain tensors that eager returns."""
    found = tuple(results) if isinstance(results, tuple | list) else (results,)
    if len(found) != len(wanted):
        raise CheatFound(f"returns {len(found)} results where eager returns {len(wanted)}")
    for place, (value, other) in enumerate(zip(found, wanted, strict=True)):
        check_plain(place, value, other)
    copied = tuple(value.detach().clone() if isinstance(value, Tensor) else value for value in found)
    return HeldResults(found, copied, frozenset(inputs_of_results(found, values)))


def check_plain(place: int, value: Any, wanted: Any) -> None:
    """Raise if a result is of a subclass of Tensor or on a device that eager's is not: its values may not be there."""
    if isinstance(value, Tensor) and type(value) not in (torch.Tensor, type(wanted)):
        raise CheatFound(f"its result {place} is a {type(value).__name__}, not a torch.Tensor")
    if isinstance(value, Tensor) and isinstance(wanted, Tensor) and value.device != wanted.device:
        raise CheatFound(f"its result {place} is on {value.device} where eager's is on {wanted.device}")


def check_inputs(run: EagerRun, values: Sequence[Any], before: Sequence[Any], rewritten: Sequence[int]) -> None:
    """Raise if inputs changed in a call, other than those that eager changes."""
    changed = [place for place in changed_places(values, before) if place not in rewritten]
    if changed:
        names = names_of_inputs(run)
        raise CheatFound(f"changes its input {', '.join(names[place] for place in changed[:4])}")


def check_written(held: HeldResults, seconds: float) -> None:
    """Raise if results change while nothing is called, for so many seconds."""
    SLEEP(seconds)
    if held.changed():
        raise CheatFound("its results are written after it returned")


def check_written_often(
    run: EagerRun, compiled: Callable[..., Any], values: Sequence[Any], rewritten: Sequence[int], pause: float
) -> None:
    """Call it several times in a row, and raise if the results of one change afterwards.

    On a busy machine a thread that writes them late may be through before the results of a single call are copied.
    """
    held: list[HeldResults] = []
    until = CLOCK() + MOST_PROBING
    while not held or (len(held) < PROBES and CLOCK() < until and within_bytes(held) == held):
        if rewritten:
            put_inputs(values, run.inputs)
        put_random(run)
        held.append(held_results(compiled(*values), run.results, values))
    for each in held:
        check_written(each, pause if each is held[0] else 0.0)


def writes_of_eager(run: EagerRun) -> tuple[tuple[int, ...], float]:
    """Return the places of inputs that eager writes into, and how many seconds a call of it takes."""
    values, eager = copies(run.inputs), run.module()
    put_random(run)
    spent, _ = timed(eager, values, short=True)
    return tuple(changed_places(values, run.inputs)), spent * 1e-9


def put_inputs(values: Sequence[Any], contents: Sequence[Any]) -> None:
    """Give these tensors other contents."""
    for value, other in zip(values, contents, strict=True):
        if isinstance(value, Tensor):
            put_contents(value, other)


def put_random(run: EagerRun) -> None:
    """Put the generators into the state that a run began with."""
    torch.set_rng_state(run.random[0])
    if run.random[1]:
        torch.cuda.set_rng_state_all(run.random[1])


def shared_inputs(run: EagerRun, results: Sequence[Any], values: Sequence[Any]) -> list[str]:
    """Name results that have the memory of an input where eager's have memory of their own."""
    own, names = copies(run.inputs), names_of_inputs(run)
    put_random(run)
    eager = inputs_of_results(run.module()(*own), own)
    found = inputs_of_results(results, values)
    return [
        f"result {place} has the memory of input {names[source]}, eager's has its own"
        for place, source in found.items()
        if place not in eager
    ]


def inputs_of_results(results: Sequence[Any], values: Sequence[Any]) -> dict[int, int]:
    """Return place of a result -> place of the input whose memory it has."""
    inputs = {memory_of(value): place for place, value in enumerate(values) if memory_of(value)}
    return {place: inputs[memory_of(value)] for place, value in enumerate(results) if memory_of(value) in inputs}


def memory_of(value: Any) -> int:
    """Return the address of a tensor's memory, of a sparse one's values; 0 without memory."""
    return strided_parts(value)[-1].untyped_storage().data_ptr() if isinstance(value, Tensor) else 0


def names_of_inputs(run: EagerRun) -> list[str]:
    """Return the names of a graph's inputs; a step's are its forward's, and then numbers."""
    module = run.module if isinstance(run.module, type) else getattr(run.module, "forward", None)
    forward = getattr(module, "forward", None)
    annotations = dict(getattr(forward, "__annotations__", {}))
    annotations.pop("return", None)
    names = [name for _, _, name in ports(annotations.values())]
    return [*names, *(f"number {place}" for place in range(len(names), len(run.inputs)))]


def agreement(compiled: Callable[..., Any]) -> Agree:
    """Return the comparison of `sample/judged`, which runs further only where an output is beyond its tolerance."""

    def agree(run: EagerRun, results: Sequence[Any]) -> str:
        eager = Eager(run, compiled)
        for place, (value, wanted) in enumerate(zip(results, run.results, strict=True)):
            if not within_tolerance(value, wanted):
                word, detail = judged(eager, place, value)
                if word == "random" and not draws(eager, place):
                    word, detail = "wrong", "it does not depend on random draws, as eager's does"
                if word == "wrong":
                    role, name = run.outputs[place]
                    return f"{role} {name}: {detail}"
        return ""

    return agree


def draws(eager: Eager, place: int) -> bool:
    """Whether an output of the compiled graph differs from seed to seed."""
    results = [found[place] for _, found in eager.reseeded]
    return any(not one_to_the_bit(first, second) for first, second in itertools.pairwise(results))
