"""Call the compiled function on contents that it has never seen, and compare every call with eager.

One comparison on one set of inputs does not show that a program computes anything. It may remember its results by call,
by tensor, by value or by a part of the value, return memory that it writes later, be wrong in every tenth call, or
change the inputs that the next call gets. So contents are drawn after the compilation, no two calls have the same, the
results of every call are compared, timed or not, and results that are held are compared once more at the end. Any of
these faults is a CheatFound.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from backprint.child.tensors import (
    HeldBudget,
    ResultKind,
    UnsentValue,
    kind_of_result,
    read_results,
    slot_offsets,
)
from backprint.graph.nouns import Ref
from backprint.graph.steps import used
from backprint.run_sample import ports
from backprint.tools.bench.asking import CompilerProcess
from backprint.tools.bench.contents import (
    ALL,
    INDEXING,
    WAYS,
    Piece,
    VariedInputs,
    candidates,
    changed_places,
    fits_inputs,
    varied_pieces,
)
from backprint.tools.bench.judge import GraphJudge, finite, same_values
from backprint.tools.export.judged import within_tolerance
from backprint.tools.export.rerun import copies
from backprint.tools.lowering.subjects import BenchStep, RandomState, inputs_of_results, random_now, state_of
from backprint.tools.measuring.clocks import CheatFound

PROBES = 150
"""The most calls on varied inputs before any call is timed."""

PROBING, FEWEST_PROBES, FEWEST_PROBING = 0.3, 72, 1.0
"""Probing ends after this many seconds of work, but not before this many probes, unless these take this many
seconds."""

LONGEST = 20
"""How many times as long probing may take by the wall clock: the machine may be shared, the compiled function slow."""

DRAWING_PROBES, DRAWING = 400, 1.0
"""Probes and seconds of work for a graph that draws random numbers, so that the distribution shows."""

SHORT_CALL = 0.05
"""Seconds: a call of eager that is shorter is timed twice."""

CHANGED_LATER = "its results change after it returned: they are written late, or their memory is used again"

LATE = 0.5
"""Seconds after a call before its held results are compared again: they may be written late."""

RECHECKED = 64
"""Calls whose held results are sent at a time."""

MOST_TOGETHER, MOST_SLOTS = 16, 2**24
"""The most probes in one request, and the most bytes of their results."""


def pause_after(seconds: float) -> float:
    """Return for how many seconds results are watched after a call, by the seconds of a call of eager."""
    return min(0.1, 0.002 + 3 * seconds)


@dataclass(frozen=True, slots=True)
class VariedPlan:
    """How the inputs of a graph are varied: by which pieces, which seed, and in which ways."""

    pieces: tuple[Piece, ...]
    seed: int
    ways: tuple[str, ...] = (ALL,)


class Examination:
    """A graph that the compiler's process works on, seen from the judging process."""

    def __init__(self, process: CompilerProcess, judge: GraphJudge, plan: VariedPlan) -> None:
        self.process, self.judge, self.plan = process, judge, plan
        self.chance = random.Random(os.urandom(32))
        self.own = inputs_of(judge.graph)
        self.rewritten, self.seconds = writes_of_eager(judge)
        self.varied = VariedInputs(copies(self.own), plan.pieces, plan.seed, plan.ways)
        self.held: list[list[Any]] = []
        self.budget = HeldBudget()
        self.shared: dict[int, int] = {}
        self.kinds: list[ResultKind] = []
        self.offsets: list[int] = []
        self.slots: list[list[Any]] = []
        self.regions: list[Tensor] = []
        """The bytes of all results of a call."""
        self.held_of_probes: list[Tensor] = []
        """The bytes of the results of probes that are held."""
        self.first_call = 0.0
        """The time at which the first call had returned."""

    def begin(self) -> None:
        """Make this graph the active one of the compiler's process."""
        pieces = [(piece.place, piece.whole, piece.in_turns) for piece in self.plan.pieces]
        options = {"seed": self.plan.seed, "ways": self.plan.ways, "rewritten": list(self.rewritten)}
        options |= {"step": step_told(self.judge.graph)}
        self.process.request(
            "begin", title=self.judge.graph.title, inputs=self.process.send_inputs(self.own), pieces=pieces, **options
        )

    def number(self, turn: int | None = None) -> int | None:
        """Return a seed for new contents, varied in the way whose turn it is, or in any way; None if the inputs cannot
        be varied."""
        number, ways = self.chance.getrandbits(62), len(self.plan.ways)
        if not self.plan.pieces:
            return None
        return number if turn is None else number - number % ways + turn % ways

    # -------------------------------------------------------------- single calls

    def called(
        self,
        contents: Sequence[Any] | None,
        number: int | None,
        pause: float,
        opened: bool = False,
        seed: int | None = None,
        grad: bool = True,
    ) -> tuple[list[Any], list[Any], RandomState, dict[str, Any]]:
        """Call the compiled function once; return the inputs, the results, the random state before, and the answer."""
        seed = self.chance.getrandbits(62) if seed is None else seed
        headers = None if contents is None else self.process.send_inputs(contents)
        options = {"number": number, "seed": seed, "pause": pause, "opened": opened, "grad": grad}
        answer = self.process.request("call", contents=headers, **options)
        self.first_call = self.first_call or time.monotonic()
        self.varied.put(self.own if contents is None else contents)
        if number is not None:
            self.varied.put_seed(number)
        if "other" in answer:
            raise CheatFound(f"{answer['other']} where eager gives a tuple of {len(self.judge.outputs)} results")
        results = self.process.results_in(answer)
        if not opened:
            self.shared = dict(map(tuple, answer["shared"]))
            if self.budget.takes(answer["bytes"]):
                self.held.append(self.lasting(results))
        for place, value in enumerate(results):
            if isinstance(value, UnsentValue):
                raise CheatFound(f"its result {place} is {value!r}, not a torch.Tensor")
        return copies(self.varied.values), results, state_of(seed), answer

    def called_under(self, seed: int) -> list[Any]:
        """Return the compiled function's results on the sample's own inputs from the random state of a seed."""
        return self.called(None, None, 0.0, seed=seed)[1]

    def checked_call(
        self, contents: Sequence[Any] | None, number: int | None, pause: float, occasion: str, grad: bool = True
    ) -> None:
        """Call the compiled function once; raise CheatFound unless its results are eager's and stay so, and no input
        has changed."""
        inputs, results, state, answer = self.called(contents, number, pause, grad=grad)
        self.keep_drawn(inputs, results, own=contents is None and number is None)
        self.check_changed(answer["changed"])
        if reason := self.fault(inputs, results, state):
            self.check_late()
            raise CheatFound(f"{occasion}: {reason}" if occasion else reason)
        if "late" in answer:
            late = read_results(self.process.results_memory, answer["late"])
            if not same_values(self.lasting(results), self.lasting(late)):
                raise CheatFound("its results are written after it returned")

    def check_changed(self, places: Sequence[int]) -> None:
        """Raise CheatFound if a call changed inputs that eager does not write into."""
        if places:
            names = names_of_inputs(self.judge.graph)
            raise CheatFound(f"changes its input {', '.join(names[place] for place in places[:4])}")

    def fault(self, inputs: Sequence[Any], results: Sequence[Any], state: RandomState) -> str:
        """Return why the results of the last call are wrong, or an empty text.

        Most results are well within their tolerances, which a single call of eager shows."""
        reason = self.judge.wrong_kind(results)
        return reason or ("" if self.near(inputs, results) else self.judge.fault(inputs, results, state))

    def near(self, inputs: Sequence[Any], results: Sequence[Any]) -> bool:
        """Whether results are well within their tolerances, as one call of eager shows."""
        try:
            return self.judge.agrees_quickly(copies(inputs) if self.rewritten else inputs, results)
        except Exception:  # eager may raise on what was drawn or saved; the judge says so
            return False

    def keep_drawn(self, inputs: Sequence[Any], results: Sequence[Any], own: bool) -> None:
        """Keep the draws of a call, if its results have eager's kinds."""
        if len(results) == len(self.judge.outputs) and not self.judge_kinds(results):
            self.judge.keep_drawn(inputs, results, own)

    def judge_kinds(self, results: Sequence[Any]) -> bool:
        """Whether a result is of another kind than eager's."""
        return any(
            isinstance(wanted, Tensor) and (not isinstance(value, Tensor) or value.shape != wanted.shape)
            for value, wanted in zip(results, self.judge.kinds, strict=True)
        )

    def lasting(self, results: Sequence[Any]) -> list[Any]:
        """Return the results that do not share memory with an input, whose contents change."""
        return [value for place, value in enumerate(results) if place not in self.shared]

    def probe(self, timed: bool = False) -> None:
        """Call the compiled function on many varied inputs, with grad mode on and off; fewer times once it was
        `timed`."""
        most, seconds = (DRAWING_PROBES, DRAWING) if self.judge.draws else (PROBES, PROBING)
        most, seconds, fewest = (most // 3, seconds / 3, 0) if timed else (most, seconds, FEWEST_PROBES)
        until, worked = time.monotonic() + LONGEST * seconds, time.process_time()
        together = max(1, min(MOST_TOGETHER, MOST_SLOTS // max(self.size, 1), int(PROBING / self.seconds)))
        self.learn_kinds(together)
        count = 0
        while count < most:
            spent = time.process_time() - worked + count * self.seconds
            enough = count >= fewest or spent > FEWEST_PROBING
            if count >= len(self.plan.ways) and enough and (spent > seconds or time.monotonic() > until):
                break
            counts = range(count, min(count + together, most))
            self.probes(counts)
            count = counts.stop

    def probes(self, counts: Sequence[int], what: str = "a further call") -> None:
        """Call the compiled function once for each count, and compare every call."""
        ways = len(self.plan.ways)
        own = self.judge.draws and not all(part.lifted is None or part.lifted.free for part in self.judge.parts)
        calls = [
            (None if own else self.number(count), self.chance.getrandbits(62), count // ways % 2 == 0)
            for count in counts
        ]
        occasions = [
            f"{what} (number {count + 1}{'' if grad else ', without gradients'}) gives wrong results"
            for count, (_, _, grad) in zip(counts, calls, strict=True)
        ]
        if not self.kinds:  # results that have no slots
            for (number, _, grad), occasion in zip(calls, occasions, strict=True):
                self.checked_call(None, number, 0.0, occasion, grad)
            return
        answer = self.process.request("probes", calls=calls, size=self.size)
        self.shared = dict(map(tuple, answer["shared"]))
        odd = dict(map(tuple, answer["odd"]))
        self.varied.put(self.own)
        for place, (changed, (number, seed, _), occasion) in enumerate(
            zip(answer["changed"], calls, occasions, strict=False)
        ):
            self.check_changed(changed)
            if place in odd:
                raise CheatFound(f"{occasion}: {odd[place]}")
            # The compiler's process holds the same results by the same budget; both compare them once more at the end.
            if self.budget.takes(self.size):
                self.held_of_probes.append(self.without_shared(self.regions[place].clone()))
            if reason := self.fault_in_slot(place, number, seed):
                self.check_late()  # results that are written late are wrong now, and the late write is the cause
                raise CheatFound(f"{occasion}: {reason}")

    def fault_in_slot(self, place: int, number: int | None, seed: int) -> str:
        """Return why the results in a slot, of a call on the contents of a number, are wrong, or an empty text."""
        if self.rewritten:
            self.varied.put(self.own)
        if number is not None:
            self.varied.put_seed(number)
        state = state_of(seed) if self.judge.draws else random_now()
        inputs, results = self.varied.values, self.results_in_slot(place)
        self.judge.keep_drawn(inputs, results, own=number is None)
        return "" if self.near(inputs, results) else self.judge.fault(inputs, results, state)

    # -------------------------------------------------------------- what is held

    def check_held(self) -> None:
        """Raise CheatFound if held results have changed LATE seconds after the first call, or if a call is wrong then:
        a function may be right only for a while."""
        time.sleep(max(0.0, self.first_call + LATE - time.monotonic()))
        self.learn_kinds(max(1, len(self.slots)))
        for count in (0, len(self.plan.ways)):  # with gradients recorded, and without
            self.probes([count], "a late call")
        self.look_again()

    def check_late(self) -> None:
        """Raise CheatFound if wrong results turn out to have been written late."""
        time.sleep(LATE)
        self.look_again()

    def look_again(self) -> None:
        """Raise CheatFound if results that are held have changed."""
        for start in range(0, len(self.held_of_probes), max(1, len(self.slots))):
            befores = self.held_of_probes[start : start + len(self.slots)]
            for region in self.regions[: len(befores)]:
                region.zero_()
            self.process.request("recheck_probes", start=start, count=len(befores))
            for before, now in zip(befores, self.regions, strict=False):
                if not torch.equal(before, now) and not same_values(self.parts_of(before), self.parts_of(now)):
                    raise CheatFound(CHANGED_LATER)
        for start in range(0, len(self.held), RECHECKED):
            held = self.process.request("recheck", start=start, count=RECHECKED)["held"]
            for before, headers in zip(self.held[start : start + RECHECKED], held, strict=True):
                if not same_values(before, read_results(self.process.results_memory, headers)):
                    raise CheatFound(CHANGED_LATER)

    def without_shared(self, region: Tensor) -> Tensor:
        """Return the bytes of results with zeros for those that share memory with an input, whose contents change."""
        for place in self.shared:
            offset, count = self.offsets[place], self.kinds[place].bytes
            region[offset : offset + count] = 0
        return region

    def parts_of(self, region: Tensor) -> list[Any]:
        """Return the results of these bytes, but for those that share memory with an input."""
        return [
            region[offset : offset + kind.bytes].view(kind.torch_dtype).view(kind.shape)
            for place, (kind, offset) in enumerate(zip(self.kinds, self.offsets, strict=True))
            if kind.is_tensor and place not in self.shared
        ]

    # -------------------------------------------------------------- blocks

    @cached_property
    def size(self) -> int:
        """The bytes of the results of a call."""
        return sum(kind.bytes for kind in map(kind_of_result, self.judge.kinds) if kind is not None)

    def learn_kinds(self, most: int) -> None:
        """Lay out the shared memory for the results of `most` calls, in both processes."""
        if most != len(self.slots):
            kinds = [kind_of_result(value) for value in self.judge.kinds]
            self.kinds = [kind for kind in kinds if kind is not None] if None not in kinds else []
            descriptions = [(kind.dtype, kind.shape, kind.device, kind.value) for kind in self.kinds]
            self.process.request("kinds", kinds=descriptions, most=most)
            self.offsets, size = slot_offsets(self.kinds)
            places = list(zip(self.kinds, self.offsets, strict=True))
            self.slots = [[self.slot(kind, call * size + offset) for kind, offset in places] for call in range(most)]
            self.regions = [
                self.process.results_memory.tensor(torch.uint8, (size,), call * size) for call in range(most)
            ]
        for region in self.regions:
            region.zero_()  # what lies between two results is never written, and held beside them

    def slot(self, kind: ResultKind, offset: int) -> Any:
        """Return the tensor in shared memory where a result goes, or the value of a result that is no tensor."""
        return (
            self.process.results_memory.tensor(kind.torch_dtype, kind.shape, offset) if kind.is_tensor else kind.value
        )

    def results_in_slot(self, place: int) -> list[Any]:
        """Return the results in a slot, on the devices of eager's."""
        pairs = zip(self.slots[place], self.judge.kinds, strict=True)
        return [value.to(like.device) if isinstance(like, Tensor) else value for value, like in pairs]

    def blocks(self, wanted: Sequence[tuple[str, int]]) -> list[tuple[float, float]]:
        """Run blocks of calls, one after the other; return for each the nanoseconds of a call, and the GPU's
        milliseconds.

        The results of every call of the compiled function are compared."""
        blocks, start = [], 0
        for which, calls in wanted:
            blocks.append((which, [self.number() for _ in range(calls)], self.chance.getrandbits(62), start))
            start += calls if which == "compiled" else 0
        answers = self.process.request("blocks", blocks=blocks)["blocks"]
        for (which, numbers, seed, first), answer in zip(blocks, answers, strict=True):
            if which == "compiled":
                self.compare_block(numbers, seed, first, answer)
        return [
            (answer["total"] / calls, answer["device"] / calls)
            for (_, calls), answer in zip(wanted, answers, strict=True)
        ]

    def compare_block(self, numbers: Sequence[int | None], seed: int, first: int, answer: dict[str, Any]) -> None:
        """Raise CheatFound unless the results of every call of a block are eager's."""
        if answer["odd"]:
            raise CheatFound(f"a timed call gives other results than the one that was checked: {answer['odd'][0][1]}")
        results = [read_results(self.process.results_memory, headers) for headers in answer["results"]]
        self.varied.put(self.own)
        state_of(seed)
        for place, number in enumerate(numbers):
            if self.rewritten:
                self.varied.put(self.own)
            if number is not None:
                self.varied.put_seed(number)
            self.compare_timed(results[place] if results else self.results_in_slot(first + place))

    def compare_timed(self, results: Sequence[Any]) -> None:
        """Raise CheatFound unless results are eager's on the inputs as they are now."""
        values = copies(self.varied.values) if self.rewritten else self.varied.values
        self.judge.keep_drawn(values, results, own=False)
        state = random_now() if self.judge.by_stream else (torch.get_rng_state(), ())
        if self.judge.agrees_quickly(values, results):
            return
        kept = [value.clone() if isinstance(value, Tensor) else value for value in results]
        after = random_now()
        if reason := self.judge.fault(copies(self.varied.values), kept, state):
            raise CheatFound(f"a timed call gives other results than the one that was checked: {reason}")
        torch.set_rng_state(after[0])

    # -------------------------------------------------------------- the end

    def notes(self) -> tuple[str, ...]:
        """Return a note for each result that shares memory with an input where eager's has memory of its own."""
        own, names = copies(self.own), names_of_inputs(self.judge.graph)
        parts = self.judge.shared_out(own, self.judge.kinds)
        forward, forward_inputs, _ = parts[0]
        eager = (
            inputs_of_results(forward.bench.run.module()(*forward_inputs), forward_inputs)
            if len(parts) == 1
            else dict(self.shared)
        )
        return tuple(
            f"result {place} has the memory of input {names[source]}, eager's has its own"
            for place, source in self.shared.items()
            if place not in eager
        )

    def finish(self, timed_calls: bool) -> None:
        """Raise if settings, clocks or functions of the bench were changed, or eager became slower."""
        self.process.request("finish", timed_calls=timed_calls)


# ------------------------------------------------------------------ the inputs of a graph


def inputs_of(graph: Any) -> list[Any]:
    """Return the inputs of a graph, or of a step: its forward's, and then those that only its backward has."""
    return graph.inputs if isinstance(graph, BenchStep) else list(graph.run.inputs)


def step_told(graph: Any) -> Any:
    """Return a step's description for the compiler's process; None for a single graph."""
    if not isinstance(graph, BenchStep):
        return None
    counts = len(graph.forward.graph.inputs), len(graph.inputs) - len(graph.forward.graph.inputs)
    return {"counts": counts, "sources": graph.sources, "strides": list(graph.strides.items())}


def names_of_inputs(graph: Any) -> list[str]:
    """Return the names of a graph's inputs; a step's are its forward's, and then numbers."""
    forward = graph.forward if isinstance(graph, BenchStep) else graph
    annotations = dict(forward.run.module.forward.__annotations__)
    annotations.pop("return", None)
    names = [name for _, _, name in ports(annotations.values())]
    return [*names, *(f"number {place}" for place in range(len(names), len(inputs_of(graph))))]


def writes_of_eager(judge: GraphJudge) -> tuple[tuple[int, ...], float]:
    """Return the places of inputs that eager writes into, and the processor seconds of a call.

    Wall-clock seconds would include waiting for a processor, and fewer calls would be compared on a busy machine."""
    own = inputs_of(judge.graph)

    def called() -> tuple[list[Any], float]:
        values, began = copies(own), time.process_time()
        for part, part_inputs, _ in judge.shared_out(values, copies(judge.kinds)):
            part.bench.run.module()(*part_inputs)
        return values, time.process_time() - began

    values, spent = called()
    if spent < SHORT_CALL:  # the first call of an operator may take ten times as long
        spent = min(spent, called()[1])
    return tuple(changed_places(values, own)), spent


def varied_plan(judge: GraphJudge, seed: int) -> VariedPlan:
    """Choose how the inputs of a graph are varied, so that eager accepts them and all results move."""
    graph = judge.graph
    forward = graph.forward.graph if isinstance(graph, BenchStep) else graph.graph
    own = inputs_of(graph)
    roles = [port.role for port in forward.inputs]
    roles += ["tangent"] * (len(own) - len(roles))
    users: dict[str, set[str]] = {}
    for step in forward.steps:
        for name in used(step):
            users.setdefault(name, set()).add(step.target)
    shown = {value.name for value in forward.results if isinstance(value, Ref)}
    names = [port.local or port.name for port in forward.inputs]
    indices = {
        place
        for place, name in enumerate(names)
        if forward.inputs[place].role == "input" and users.get(name) and users[name] <= INDEXING and name not in shown
    }
    pieces_found = candidates(own, roles, indices)
    varied = VariedInputs(copies(own), pieces_found, seed)

    def results(pieces: Sequence[Piece], number: int, way: str = ALL) -> list[Any]:
        varied.vary(pieces, (way,))
        varied.put(own)
        varied.put_seed(number)
        state_of(7)
        moving: list[Any] = []
        for part, part_inputs, _ in judge.shared_out(varied.values, copies(judge.kinds)):
            values = part.bench.run.module()(*part_inputs)
            passed_on = inputs_of_results(values, part_inputs)
            moving += [None if place in passed_on else value for place, value in enumerate(values)]
        return moving

    def runs(pieces: Sequence[Piece], way: str = ALL) -> bool:
        try:
            for number in (seed ^ 0x55AA55, seed // 3):
                for value, wanted in zip(results(pieces, number, way), judge.kinds, strict=True):
                    if value is not None and not finite(value) and finite(wanted):
                        return False
        except Exception:  # an operator may raise anything on other values
            return False
        return True

    def moves(pieces: Sequence[Piece]) -> bool:
        first, second = (results(pieces, number) for number in (seed ^ 0x1234567, seed // 5))
        return all(
            not isinstance(left, Tensor)
            or not left.is_floating_point()
            or not left.numel()
            or not within_tolerance(left, right)
            for left, right in zip(first, second, strict=True)
        )

    pieces = varied_pieces(pieces_found, runs, moves)
    return VariedPlan(pieces, seed, tuple(way for way in WAYS if way == ALL or (pieces and runs(pieces, way))))


def fitting(judge: GraphJudge, others: Sequence[Any]) -> list[list[Any]]:
    """Return the inputs of other runs that can be put into the tensors of this graph's."""
    own = inputs_of(judge.graph)
    return [contents for contents in (inputs_of(other) for other in others) if fits_inputs(own, contents)]
