"""The process in which a compiler works: it compiles, calls and times as the judging process asks it.

It never has eager's results on contents that a compiled graph is called on: those are computed in the judging process
(`judge`), from which this one is forked before any graph has run. It sends each call's results there, in memory that
both have, and keeps some of them, so that they can be looked at again. What a compiler raises is caught here, whatever
it is, and told as the compiler's; any other error is ours.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from backprint.benching.baseline import (
    EagerBaseline,
    check_own,
    check_replaced,
    eager_baseline,
    own_functions,
    read_all_settings,
    restore_settings,
    two_clocks,
)
from backprint.benching.calling import JoinedStep
from backprint.benching.carried import CarriedMemory, put_results, taken_inputs
from backprint.benching.clock import SHORT, timed
from backprint.benching.compilers.table import Compiler
from backprint.benching.compilers.timed import compile_timed
from backprint.benching.draws import opened_graph
from backprint.benching.findings import CheatFound, TimingWithheld
from backprint.benching.gpu import on_gpu, with_device_bytes
from backprint.benching.held import HeldBudget, Kind, kind_of, slot_offsets
from backprint.benching.seeds import seed_generators
from backprint.benching.subjects import inputs_of_results, memory_of
from backprint.benching.varied import Piece, VariedInputs
from backprint.corpus.task import one_line
from backprint.fx.to_fx import to_fx
from backprint.graph.fixed import unguarded_graph
from backprint.graph.nouns import Graph
from backprint.sample.judged import first_line
from backprint.sample.rerun import copies
from backprint.tree import strided_parts

SLEEP = time.sleep

Results = Sequence[Any]


class CompilerRaised(Exception):
    """The compiler, or what it made, raised; the text says what."""


@contextlib.contextmanager
def blamed() -> Any:
    """Turn whatever is raised inside into a CompilerRaised."""
    try:
        yield
    except BaseException as error:  # KeyboardInterrupt and SystemExit too: nothing else in this process raises them
        raise CompilerRaised(reason_of(error)) from None


def reason_of(error: BaseException) -> str:
    """Return an error as one line, that of the compiler's own where torch.compile wraps it."""
    try:
        inner = getattr(error, "inner_exception", None) or error
        return one_line(f"{type(inner).__name__}: {first_line(inner)}")
    except BaseException as second:  # a stranger's exception may raise where it is read
        return f"{type(error).__name__}, whose message raises {type(second).__name__}"


@dataclass(slots=True)
class GraphInHand:
    """The graph that is worked on: its inputs, as they were and as they are varied."""

    title: str
    inputs: VariedInputs
    rewritten: Sequence[int]
    kinds: Sequence[Kind] = ()
    shared: frozenset[int] = frozenset()
    expected: list[Any] | None = None
    """What the inputs hold now, if not what they held first."""
    programs: dict[str, TimedProgram] = field(default_factory=dict)
    slots: list[list[Tensor | None]] = field(default_factory=list)
    eager_slots: list[list[Tensor | None]] = field(default_factory=list)
    held: list[list[Any]] = field(default_factory=list)
    held_of_probes: list[list[Any]] = field(default_factory=list)
    """The results of a probe, None where one has the memory of an input."""
    budget: HeldBudget = field(default_factory=HeldBudget)
    eager_times: list[float] = field(default_factory=list)

    def changed(self) -> list[int]:
        """Return the places of inputs that are not what they were given, though eager does not write into them."""
        return [place for place in self.inputs.changed() if place not in self.rewritten]


@dataclass(slots=True)
class ToldResults:
    """What is told of the results of a block."""

    odd: list[tuple[int, str]] = field(default_factory=list)
    """Calls whose results are of another kind than eager's, and why."""
    headers: list[Any] = field(default_factory=list)
    """Of results that have no slots."""
    size: int = 0
    """The bytes of these."""
    first: int = 0
    """The slot of the block's first call."""

    def answer(self) -> Mapping[str, Any]:
        """Return it as plain values."""
        return {"odd": self.odd, "results": self.headers}


@dataclass(slots=True)
class TimedProgram:
    """A program while it is timed."""

    function: Callable[..., Any]
    gpu: bool
    short: bool = False

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


class Performer:
    """A compiler at work on the graphs of a sample, as it is asked."""

    def __init__(
        self, compiler: Compiler, caches: Path, graphs: Mapping[str, Graph], given: CarriedMemory, told: CarriedMemory
    ) -> None:
        self.compiler, self.caches = compiler, caches
        self.graphs, self.given, self.told = graphs, given, told
        self.modules: dict[str, Any] = {}
        self.eager: dict[str, Any] = {}
        self.compiled: dict[str, Any] = {}
        self.baselines: dict[str, EagerBaseline] = {}
        self.settings = read_all_settings()
        self.clocks = two_clocks()
        self.own = own_functions()
        self.hand: GraphInHand | None = None

    # -------------------------------------------------------------- asked

    def answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do what is asked; return what came of it."""
        name = request["do"]
        values = {key: value for key, value in request.items() if key != "do"}
        try:
            found: Mapping[str, Any] = getattr(self, f"do_{name}")(**values)
            return found
        except CompilerRaised as error:
            return {"raised": str(error)}
        except CheatFound as error:
            return {"cheat": str(error)}
        except TimingWithheld as error:
            return {"withheld": str(error)}
        except BaseException:
            return {"defect": traceback.format_exc()}

    def do_baseline(self, title: str, inputs: Sequence[Any], step: Any) -> Mapping[str, Any]:
        """Time eager, before a compiler is loaded."""
        values = taken_inputs(self.given, inputs)
        self.baselines[title] = eager_baseline(self.eager_of(title, step), values)
        wipe(values)
        return {"seconds": min(self.baselines[title].times)}

    def do_begin(
        self,
        title: str,
        inputs: Sequence[Any],
        pieces: Sequence[Any],
        seed: int,
        ways: Sequence[str],
        rewritten: Sequence[int],
        step: Any,
    ) -> Mapping[str, Any]:
        """Take a graph in hand."""
        varied = VariedInputs(taken_inputs(self.given, inputs), [Piece(*each) for each in pieces], seed, ways)
        self.hand = GraphInHand(title, varied, rewritten)
        self.eager_of(title, step)
        return {}

    def do_compile(self, cold: bool, opened: bool) -> Mapping[str, Any]:
        """Compile the graph in hand, and call it once; the function of the first time is kept."""
        hand = self.in_hand()
        title = f"{hand.title} opened" if opened else hand.title
        for each in self.graphs:  # a compiler may change what modules are made with
            self.module(each)
        values = copies(hand.inputs.original)
        caches = self.caches.with_name(f"{self.caches.name}_{title.replace(' ', '_')}")
        with blamed():
            made, seconds, results = compile_timed(self.compiler, self.module(title), values, caches, cold)
        notes = [f"the compiler changed {text}; restored" for text in restore_settings(self.settings)]
        self.compiled.setdefault(title, made)  # what is timed is what was judged
        return {"seconds": seconds, "notes": notes, **self.delivered(results)}

    def do_join(self, forward: str, backward: str, step: Any) -> Mapping[str, Any]:
        """Join a compiled forward and backward to the step in hand."""
        both = self.compiled[forward], self.compiled[backward]
        self.compiled[self.in_hand().title] = joined_of(*both, step)
        return {}

    def do_call(
        self, contents: Sequence[Any] | None, number: int | None, seed: int, pause: float, opened: bool, grad: bool
    ) -> Mapping[str, Any]:
        """Call what was compiled once, on other contents in the same tensors, or those of a number."""
        hand = self.in_hand()
        hand.inputs.be_mirrored(True)
        self.put(hand, None if contents is None else taken_inputs(self.given, contents), number)
        function = self.function(f"{hand.title} opened" if opened else hand.title)
        seed_generators(seed)
        values = hand.inputs.values
        with blamed(), torch.set_grad_enabled(grad):
            results, taken = with_device_bytes(partial(function, *values), on_gpu(values))
        answer = self.delivered(results)
        changed = hand.changed()
        if "results" in answer and not opened:
            shared = inputs_of_results(results, values)
            self.hold(hand, results, answer["bytes"], frozenset(shared))
            hand.shared = frozenset(shared)
            answer = {**answer, "shared": list(shared.items())}
        SLEEP(pause)
        late = {}
        if pause and "results" in answer:
            late = {"late": put_results(self.told, tuple(results), answer["bytes"])[0]}
        return {**answer, **late, "changed": changed, "device_bytes": taken}

    def do_probes(self, calls: Sequence[Any], size: int) -> Mapping[str, Any]:
        """Call what was compiled once for each number, with a seed, and with gradients recorded or without; the results
        are told in slots, and held."""
        hand, told = self.in_hand(), ToldResults()
        hand.inputs.be_mirrored(True)
        if hand.expected is not None or calls[0][0] is None:
            self.put(hand, None, None)
        function, values = self.function(hand.title), hand.inputs.values
        inputs = {memory_of(value): place for place, value in enumerate(values) if memory_of(value)}
        changed, shared = [], {}
        for place, (number, seed, grad) in enumerate(calls):
            if hand.rewritten:
                hand.inputs.put(hand.inputs.original)
            if number is not None:
                hand.inputs.put_seed(number)
            seed_generators(seed)
            with blamed(), torch.set_grad_enabled(grad):
                results = function(*values)
            changed.append(hand.changed())
            self.deliver(hand, place, results, told, "compiled")
            if told.odd or changed[-1]:
                break
            addresses = [memory_of(value) for value in results]
            shared = {at: inputs[address] for at, address in enumerate(addresses) if address in inputs}
            if hand.budget.takes(size):
                hand.held_of_probes.append([None if at in shared else value for at, value in enumerate(results)])
        return {"changed": changed, "odd": told.odd, "shared": list(shared.items())}

    def do_kinds(self, kinds: Sequence[Any], most: int) -> Mapping[str, Any]:
        """Learn what the results of a block are like, and where those of each of its calls go."""
        hand = self.in_hand()
        hand.kinds = [Kind(dtype, tuple(shape), device, value) for dtype, shape, device, value in kinds]
        offsets, size = slot_offsets(hand.kinds)
        self.told.make_room(2 * size * most)
        slots = [
            [self.told.tensor(kind.torch_dtype, kind.shape, call * size + offset) if kind.is_tensor else None
             for kind, offset in zip(hand.kinds, offsets, strict=True)]
            for call in range(2 * most)
        ]  # fmt: skip
        hand.slots, hand.eager_slots = slots[:most], slots[most:]
        return {}

    def do_blocks(self, blocks: Sequence[Any]) -> Mapping[str, Any]:
        """Run blocks of calls, one after the other."""
        self.in_hand().inputs.be_mirrored(False)  # so that between two calls as little is written as can be
        size, answers = 0, []
        for which, numbers, seed, first in blocks:
            told = ToldResults(size=size, first=first)
            answers.append(self.block(which, numbers, seed, told))
            size = told.size
        return {"blocks": answers}

    def block(self, which: str, numbers: Sequence[int | None], seed: int, told: ToldResults) -> Mapping[str, Any]:
        """Time calls of a program; the results of what was compiled are told."""
        hand = self.in_hand()
        program = self.program(hand, which)
        tell = which == "compiled"
        total, device = 0, 0.0
        seed_generators(seed)
        if hand.expected is not None:
            self.put(hand, None, None)
        for place, number in enumerate(numbers):
            if hand.rewritten:
                hand.inputs.put(hand.inputs.original)
            if number is not None:
                hand.inputs.put_seed(number)
            try:
                spent, busy, results = program.timed_call(hand.inputs.values)
            except BaseException as error:
                if tell:
                    raise CompilerRaised(reason_of(error)) from None
                raise
            total, device = total + spent, device + busy
            self.deliver(hand, place, results, told, which)
        if which == "eager":
            hand.eager_times.append(total / len(numbers) * 1e-9)
        return {"total": total, "device": device, **told.answer()}

    def do_short(self, which: str, nanoseconds: float) -> Mapping[str, Any]:
        """Learn how long a call takes."""
        self.program(self.in_hand(), which).short = nanoseconds < SHORT
        return {}

    def do_recheck(self, start: int, count: int) -> Mapping[str, Any]:
        """Tell results that are held once more."""
        offset, headers = 0, []
        for results in self.in_hand().held[start : start + count]:
            header, offset = put_results(self.told, results, offset)
            headers.append(header)
        return {"held": headers}

    def do_recheck_probes(self, start: int, count: int) -> Mapping[str, Any]:
        """Tell results of probes that are held once more, in the slots."""
        hand = self.in_hand()
        for results, slots in zip(hand.held_of_probes[start : start + count], hand.slots, strict=False):
            for value, slot in zip(results, slots, strict=True):
                if slot is not None and value is not None:
                    slot.copy_(value.detach())
        return {}

    def do_finish(self, timed_calls: bool) -> Mapping[str, Any]:
        """Raise if a clock or a function that is relied on was replaced, or eager became slower."""
        hand = self.in_hand()
        if settings := restore_settings(self.settings):
            raise CheatFound(f"its calls change torch's settings: {'; '.join(settings)}")
        self.clocks.check()
        check_replaced()
        check_own(self.own)
        if timed_calls:
            self.baselines[hand.title].check(hand.eager_times, hand.inputs.original)
        return {}

    def do_end(self) -> Mapping[str, Any]:
        """Put the graph in hand away, with nothing left of it but what was compiled."""
        hand = self.in_hand()
        wipe([*hand.inputs.values, *hand.inputs.original])
        self.hand = None
        gc.collect()
        return {}

    # -------------------------------------------------------------- done

    def in_hand(self) -> GraphInHand:
        assert self.hand is not None, "no graph was begun"
        return self.hand

    def module(self, title: str) -> Any:
        """Return the module of a graph, or of its opened form."""
        if title not in self.modules:
            graph = unguarded_graph(self.graphs[title.removesuffix(" opened")])
            opened = opened_graph(graph) if title.endswith(" opened") else graph
            assert opened is not None, title
            self.modules[title] = to_fx(opened)
        return self.modules[title]

    def eager_of(self, title: str, step: Any) -> Callable[..., Any]:
        """Return eager as it is timed: the module that the compiler is given, without the hooks of a module's call."""
        if title not in self.eager:
            if step is None:
                self.eager[title] = self.module(title).forward
            else:
                pair = title.partition(" ")[0]
                both = (self.module(f"{pair} {part}").forward for part in ("forward", "backward"))
                self.eager[title] = joined_of(next(both), next(both), step)
        return self.function_of(self.eager[title])

    def function(self, title: str) -> Callable[..., Any]:
        """Return what was compiled, as it is timed."""
        return self.function_of(self.compiled[title])

    def function_of(self, program: Any) -> Callable[..., Any]:
        function: Callable[..., Any] = program.call if isinstance(program, JoinedStep) else program
        return function

    def program(self, hand: GraphInHand, which: str) -> TimedProgram:
        """Return a program that is timed, which has been called before."""
        if which not in hand.programs:
            if which == "compiled":
                function = self.function(hand.title)
            else:
                self.eager_of(hand.title, None)(*copies(hand.inputs.values))
                function = self.eager_of(hand.title, None)
            hand.programs[which] = TimedProgram(function, on_gpu(hand.inputs.values))
        return hand.programs[which]

    def put(self, hand: GraphInHand, contents: list[Any] | None, number: int | None) -> None:
        """Give the inputs other contents, or those of a number."""
        hand.inputs.put(hand.inputs.original if contents is None else contents)
        hand.expected = contents
        if number is not None:
            hand.inputs.put_seed(number)

    def delivered(self, results: Any) -> Mapping[str, Any]:
        """Copy all results of a call for the judging process."""
        if not isinstance(results, (tuple, list)):
            return {"other": f"a {type(results).__name__}"}
        with blamed():
            headers, size = put_results(self.told, results)
        return {"results": headers, "bytes": size}

    def deliver(self, hand: GraphInHand, place: int, results: Any, told: ToldResults, which: str) -> None:
        """Copy the results of a call of a block to their slots; name the call if they are of another kind.

        Eager's are copied in the same way, to no end but that caches are alike for both: they are of other inputs.
        """
        if not hand.kinds and which != "compiled":
            return
        slots = hand.slots if which == "compiled" else hand.eager_slots
        if not hand.kinds:
            with blamed():
                headers, told.size = put_results(self.told, tuple(results), told.size)
            told.headers.append(headers)
            return
        if type(results) not in (tuple, list) or len(results) != len(hand.kinds):
            given = f"{len(results)} results" if isinstance(results, (tuple, list)) else f"a {type(results).__name__}"
            told.odd.append((place, f"{given} where eager gives {len(hand.kinds)}"))
            return
        for at, (value, slot) in enumerate(zip(results, slots[(told.first + place) % len(slots)], strict=True)):
            kind = hand.kinds[at]
            if not kind.fits(value):
                told.odd.append((place, f"its result {at} is a {kind_of(value)}, not {kind}"))
            elif slot is not None:
                slot.copy_(value.detach() if value.requires_grad else value)

    def hold(self, hand: GraphInHand, results: Sequence[Any], size: int, shared: frozenset[int]) -> None:
        """Keep the results of a call, to see later whether they change."""
        if hand.budget.takes(size):
            hand.held.append([value for at, value in enumerate(results) if at not in shared])


def called(function: Callable[..., Any], values: Sequence[Any], blame: bool) -> Any:
    """Call a function; what it raises is the compiler's, if it is to blame."""
    with blamed() if blame else contextlib.nullcontext():
        return function(*values)


def joined_of(forward: Callable[..., Any], backward: Callable[..., Any], step: Any) -> JoinedStep:
    """Return a forward and its backward as one, by what the judging process tells of the step."""
    sources = [(bool(saved), place) for saved, place in step["sources"]]
    strides = {int(place): tuple(stride) for place, stride in step["strides"]}
    return JoinedStep(forward, backward, tuple(step["counts"]), sources, strides)


def wipe(values: Sequence[Any]) -> None:
    """Overwrite tensors, so that what is allocated next does not hold what they held."""
    with torch.no_grad():
        for value in values:
            if isinstance(value, Tensor):
                for part in strided_parts(value):
                    part.untyped_storage().fill_(0)


def perform(performer: Callable[[], Performer], line: socket.socket) -> NoReturn:
    """Answer requests until there are none; this process ends then."""
    try:
        gc.freeze()  # collecting what is older would copy every page of the process that this was forked from
        work = performer()
        with line.makefile("rwb") as both:
            for request in both:
                both.write(json.dumps(work.answer(json.loads(request))).encode() + b"\n")
                both.flush()
    finally:
        os._exit(0)
