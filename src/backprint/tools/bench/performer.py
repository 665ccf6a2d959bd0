"""The process in which a compiler works: it compiles, calls and times graphs as the judging process requests.

It never has eager's results on contents that a compiled graph is called on: the judging process (`judge`) computes
those, and forks this one before any graph has run. Each call's results go there in memory that both processes share
(`transfer`), and some are kept here to be compared once more. Whatever a compiler raises is caught here and sent as the
compiler's error; any other error is Backprint's own.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backprint.child.answering import Answering
from backprint.child.tensors import (
    HeldBudget,
    ResultKind,
    SharedMemory,
    kind_text,
    put_results,
    read_inputs,
    slot_offsets,
)
from backprint.graph.fx.to_fx import to_fx
from backprint.graph.nouns import Graph
from backprint.graph.sizes import unguarded_graph
from backprint.tools.bench.compilers.table import Compiler
from backprint.tools.bench.compilers.timed import compile_timed, compile_to_differentiate, remarks_on
from backprint.tools.bench.contents import Piece, VariedInputs
from backprint.tools.bench.gradients import forward_alone, gradients_of
from backprint.tools.export.rerun import copies, laid_as_saved
from backprint.tools.lowering.subjects import inputs_of_results, memory_of, opened_graph, seed_generators
from backprint.tools.measuring.asking import TOLD, CompilerFailed, compiler_errors, reason_of
from backprint.tools.measuring.clocks import (
    SHORT,
    CheatFound,
    EagerBaseline,
    check_own,
    check_replaced,
    eager_baseline,
    on_gpu,
    own_functions,
    read_all_settings,
    restore_settings,
    timed,
    two_clocks,
    with_device_bytes,
)
from backprint.values.tree import strided_parts

SLEEP = time.sleep
"""Bound before a compiler is loaded, which may replace it."""


# ------------------------------------------------------------------ functions written as text
#
# Whatever a bench puts around a compiled function is billed to its compiler: a list comprehension and a
# `tree_unflatten` take 2 to 4 µs, a fifth of a small graph's call. So the function that is timed is the compiler's own,
# or a single expression around it, and a call costs what its statements cost.


def function_of_text(arguments: Sequence[str], body: Sequence[str], names: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function with these arguments and the statements of `body`; `names` are its globals."""
    lines = [f"def call({', '.join(arguments)}):", *(f"    {line}" for line in body)]
    namespace = dict(names)
    exec(compile("\n".join(lines), "<backprint: a call>", "exec"), namespace)
    function: Callable[..., Any] = namespace["call"]
    return function


def arguments_of(count: int) -> list[str]:
    """Return the names of `count` arguments: v0, v1, …"""
    return [f"v{place}" for place in range(count)]


class _JoinedStep:
    """A forward and its backward as one function of the forward's inputs and the backward's own.

    It returns the forward's results followed by the gradients, so that both can be judged. The backward takes the saved
    values in the strides that it was compiled for. The first call finds which values have other strides; from then on
    `call` is a function without that search.
    """

    def __init__(
        self,
        forward: Callable[..., Any],
        backward: Callable[..., Any],
        counts: tuple[int, int],
        sources: Sequence[tuple[bool, int]],
        strides: Mapping[int, tuple[int, ...]],
    ) -> None:
        self.forward, self.backward, self.counts = forward, backward, counts
        self.sources, self.strides = sources, strides
        self.call: Callable[..., Any] = self.first_call

    def first_call(self, *values: Any) -> tuple[Any, ...]:
        """Call both, and write `call` for the strides that the forward's saved values have."""
        results = self.forward(*values[: self.counts[0]])
        backward_inputs = [results[place] if saved else values[place] for saved, place in self.sources]
        relaid = [place for place, stride in self.strides.items() if backward_inputs[place].stride() != stride]
        self.call = self.text_for(relaid)
        for place in relaid:
            backward_inputs[place] = laid_as_saved(backward_inputs[place], self.strides[place])
        return (*results, *self.backward(*backward_inputs))

    def text_for(self, relaid: Sequence[int]) -> Callable[..., Any]:
        """Return the joined function as text; the backward's inputs in `relaid` get the strides that it was compiled
        for."""
        names = arguments_of(sum(self.counts))
        backward_inputs = [f"r[{place}]" if saved else names[place] for saved, place in self.sources]
        for place in relaid:
            backward_inputs[place] = f"laid({backward_inputs[place]}, s{place})"
        space = {f"s{place}": self.strides[place] for place in relaid}
        body = [
            f"r = forward({', '.join(names[: self.counts[0]])})",
            f"return (*r, *backward({', '.join(backward_inputs)}))",
        ]
        return function_of_text(
            names, body, {"forward": self.forward, "backward": self.backward, "laid": laid_as_saved, **space}
        )


# ------------------------------------------------------------------ requests


@dataclass(slots=True)
class _ActiveGraph:
    """The graph that requests are about: its inputs, its programs, and the results that are kept."""

    title: str
    inputs: VariedInputs
    rewritten: Sequence[int]
    kinds: Sequence[ResultKind] = ()
    shared: frozenset[int] = frozenset()
    expected: list[Any] | None = None
    """The contents of the inputs now; None where they have their first contents."""
    programs: dict[str, _TimedProgram] = field(default_factory=dict)
    slots: list[list[Tensor | None]] = field(default_factory=list)
    eager_slots: list[list[Tensor | None]] = field(default_factory=list)
    held: list[list[Any]] = field(default_factory=list)
    held_of_probes: list[list[Any]] = field(default_factory=list)
    """The results of a probe, None where one has the memory of an input."""
    budget: HeldBudget = field(default_factory=HeldBudget)
    eager_times: list[float] = field(default_factory=list)

    def changed(self) -> list[int]:
        """Return the places of inputs that were written into though eager does not write into them."""
        return [place for place in self.inputs.changed() if place not in self.rewritten]


@dataclass(slots=True)
class _BlockResults:
    """The results of a block of calls, as they are sent."""

    odd: list[tuple[int, str]] = field(default_factory=list)
    """Calls whose results are of another kind than eager's, and why."""
    headers: list[Any] = field(default_factory=list)
    """The headers of results that have no slots."""
    size: int = 0
    """The bytes of results that have no slots."""
    first: int = 0
    """The slot of the block's first call."""

    def answer(self) -> Mapping[str, Any]:
        """Return the part of an answer that describes the results."""
        return {"odd": self.odd, "results": self.headers}


@dataclass(slots=True)
class _TimedProgram:
    """A program whose calls are timed; calls of a `short` one are timed without reading scheduler counts."""

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


class Performer(Answering):
    """A compiler at work on the graphs of a sample."""

    told = TOLD

    def __init__(
        self,
        compiler: Compiler,
        caches: Path,
        graphs: Mapping[str, Graph],
        inputs_memory: SharedMemory,
        results_memory: SharedMemory,
    ) -> None:
        self.compiler, self.caches = compiler, caches
        self.graphs, self.inputs_memory, self.results_memory = graphs, inputs_memory, results_memory
        self.modules: dict[str, Any] = {}
        self.eager: dict[str, Any] = {}
        self.compiled: dict[str, Any] = {}
        self.baselines: dict[str, EagerBaseline] = {}
        self.settings = read_all_settings()
        self.clocks = two_clocks()
        self.own = own_functions()
        self.active: _ActiveGraph | None = None

    # -------------------------------------------------------------- requests

    def do_baseline(self, title: str, inputs: Sequence[Any], step: Any) -> Mapping[str, Any]:
        """Time eager, before a compiler is loaded."""
        values = read_inputs(self.inputs_memory, inputs)
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
        """Make a graph the active one."""
        varied = VariedInputs(read_inputs(self.inputs_memory, inputs), [Piece(*piece) for piece in pieces], seed, ways)
        self.active = _ActiveGraph(title, varied, rewritten)
        self.eager_of(title, step)
        return {}

    def do_compile(self, cold: bool, opened: bool) -> Mapping[str, Any]:
        """Compile the active graph and call it once; the first compiled function is the one that is timed."""
        active = self.active_graph()
        title = f"{active.title} opened" if opened else active.title
        for name in self.graphs:  # a compiler may change what modules are made with
            self.module(name)
        values = copies(active.inputs.original)
        caches = self.caches.with_name(f"{self.caches.name}_{title.replace(' ', '_')}")
        with compiler_errors():
            function, seconds, results = compile_timed(self.compiler, self.module(title), values, caches, cold)
        notes = [f"the compiler changed {text}; restored" for text in restore_settings(self.settings)]
        notes += remarks_on(function)
        self.compiled.setdefault(title, function)  # what is timed is what was judged
        return {"seconds": seconds, "notes": notes, **self.send_results(results)}

    def do_join(self, forward: str, backward: str, step: Any) -> Mapping[str, Any]:
        """Join a compiled forward and backward to the active step."""
        both = self.compiled[forward], self.compiled[backward]
        self.compiled[self.active_graph().title] = _join_step(*both, step)
        return {}

    def do_differentiate(self, forward: str, places: Sequence[int], seed: int) -> Mapping[str, Any]:
        """Compile a forward that requires grad by torch.compile, and send its gradients."""
        graph = forward_alone(self.graphs[forward])
        values = copies(self.active_graph().inputs.original[: len(graph.inputs)])
        with compiler_errors():
            gradients = gradients_of(compile_to_differentiate(self.compiler, to_fx(graph)), places, seed, *values)
        restore_settings(self.settings)
        return self.send_results(gradients)

    def do_call(
        self, contents: Sequence[Any] | None, number: int | None, seed: int, pause: float, opened: bool, grad: bool
    ) -> Mapping[str, Any]:
        """Call the compiled function once, on given contents or those of a seed, in the same tensors."""
        active = self.active_graph()
        active.inputs.set_mirrored(True)
        self.put_contents(active, None if contents is None else read_inputs(self.inputs_memory, contents), number)
        function = self.function(f"{active.title} opened" if opened else active.title)
        seed_generators(seed)
        values = active.inputs.values
        with compiler_errors(), torch.set_grad_enabled(grad):
            results, device_bytes = with_device_bytes(partial(function, *values), on_gpu(values))
        answer = self.send_results(results)
        changed = active.changed()
        if "results" in answer and not opened:
            shared = inputs_of_results(results, values)
            self.hold_results(active, results, answer["bytes"], frozenset(shared))
            active.shared = frozenset(shared)
            answer = {**answer, "shared": list(shared.items())}
        SLEEP(pause)
        late = {}
        if pause and "results" in answer:
            late = {"late": put_results(self.results_memory, tuple(results), answer["bytes"])[0]}
        return {**answer, **late, "changed": changed, "device_bytes": device_bytes}

    def do_probes(self, calls: Sequence[Any], size: int) -> Mapping[str, Any]:
        """Call the compiled function once for each (number of contents, random seed, grad mode); copy the results to
        slots, and hold them."""
        active, block = self.active_graph(), _BlockResults()
        active.inputs.set_mirrored(True)
        if active.expected is not None or calls[0][0] is None:
            self.put_contents(active, None, None)
        function, values = self.function(active.title), active.inputs.values
        inputs = {memory_of(value): place for place, value in enumerate(values) if memory_of(value)}
        changed, shared = [], {}
        for place, (number, seed, grad) in enumerate(calls):
            if active.rewritten:
                active.inputs.put(active.inputs.original)
            if number is not None:
                active.inputs.put_seed(number)
            seed_generators(seed)
            with compiler_errors(), torch.set_grad_enabled(grad):
                results = function(*values)
            changed.append(active.changed())
            self.copy_to_slots(active, place, results, block, "compiled")
            if block.odd or changed[-1]:
                break
            addresses = [memory_of(value) for value in results]
            shared = {at: inputs[address] for at, address in enumerate(addresses) if address in inputs}
            if active.budget.takes(size):
                active.held_of_probes.append([None if at in shared else value for at, value in enumerate(results)])
        return {"changed": changed, "odd": block.odd, "shared": list(shared.items())}

    def do_kinds(self, kinds: Sequence[Any], most: int) -> Mapping[str, Any]:
        """Prepare slots in shared memory for the results of `most` calls."""
        active = self.active_graph()
        active.kinds = [ResultKind(dtype, tuple(shape), device, value) for dtype, shape, device, value in kinds]
        offsets, size = slot_offsets(active.kinds)
        self.results_memory.reserve(2 * size * most)
        slots = [
            [
                self.results_memory.tensor(kind.torch_dtype, kind.shape, call * size + offset)
                if kind.is_tensor
                else None
                for kind, offset in zip(active.kinds, offsets, strict=True)
            ]
            for call in range(2 * most)
        ]
        active.slots, active.eager_slots = slots[:most], slots[most:]
        return {}

    def do_blocks(self, blocks: Sequence[Any]) -> Mapping[str, Any]:
        """Time blocks of calls, one after the other."""
        self.active_graph().inputs.set_mirrored(False)  # so that between two calls as little is written as can be
        size, answers = 0, []
        for which, numbers, seed, first in blocks:
            block = _BlockResults(size=size, first=first)
            answers.append(self.block(which, numbers, seed, block))
            size = block.size
        return {"blocks": answers}

    def block(
        self, which: str, numbers: Sequence[int | None], seed: int, block_results: _BlockResults
    ) -> Mapping[str, Any]:
        """Time the calls of one block; the results of the compiled function are sent, eager's are not."""
        active = self.active_graph()
        program = self.program(active, which)
        tell = which == "compiled"
        total, device = 0, 0.0
        seed_generators(seed)
        if active.expected is not None:
            self.put_contents(active, None, None)
        for place, number in enumerate(numbers):
            if active.rewritten:
                active.inputs.put(active.inputs.original)
            if number is not None:
                active.inputs.put_seed(number)
            try:
                spent, busy, results = program.timed_call(active.inputs.values)
            except BaseException as error:
                if tell:
                    raise CompilerFailed(reason_of(error)) from None
                raise
            total, device = total + spent, device + busy
            self.copy_to_slots(active, place, results, block_results, which)
        if which == "eager":
            active.eager_times.append(total / len(numbers) * 1e-9)
        return {"total": total, "device": device, **block_results.answer()}

    def do_short(self, which: str, nanoseconds: float) -> Mapping[str, Any]:
        """Note whether calls of a program are short, by the nanoseconds of one."""
        self.program(self.active_graph(), which).short = nanoseconds < SHORT
        return {}

    def do_recheck(self, start: int, count: int) -> Mapping[str, Any]:
        """Send results that are held once more."""
        offset, headers = 0, []
        for results in self.active_graph().held[start : start + count]:
            header, offset = put_results(self.results_memory, results, offset)
            headers.append(header)
        return {"held": headers}

    def do_recheck_probes(self, start: int, count: int) -> Mapping[str, Any]:
        """Copy the held results of probes to the slots once more."""
        active = self.active_graph()
        for results, slots in zip(active.held_of_probes[start : start + count], active.slots, strict=False):
            for value, slot in zip(results, slots, strict=True):
                if slot is not None and value is not None:
                    slot.copy_(value.detach())
        return {}

    def do_finish(self, timed_calls: bool) -> Mapping[str, Any]:
        """Raise CheatFound if settings, a clock or a function of the bench were replaced; TimingWithheld if eager
        became slower."""
        active = self.active_graph()
        if settings := restore_settings(self.settings):
            raise CheatFound(f"its calls change torch's settings: {'; '.join(settings)}")
        self.clocks.check()
        check_replaced()
        check_own(self.own)
        if timed_calls:
            self.baselines[active.title].check(active.eager_times, active.inputs.original)
        return {}

    def do_end(self) -> Mapping[str, Any]:
        """Wipe and drop the active graph; compiled functions stay."""
        active = self.active_graph()
        wipe([*active.inputs.values, *active.inputs.original])
        self.active = None
        gc.collect()
        return {}

    # -------------------------------------------------------------- graphs and programs

    def active_graph(self) -> _ActiveGraph:
        assert self.active is not None, "no graph is active"
        return self.active

    def module(self, title: str) -> Any:
        """Return the GraphModule of a graph, or of its opened form: the graph with its draws as further results."""
        if title not in self.modules:
            graph = unguarded_graph(self.graphs[title.removesuffix(" opened")])
            opened = opened_graph(graph) if title.endswith(" opened") else graph
            assert opened is not None, title
            self.modules[title] = to_fx(opened)
        return self.modules[title]

    def eager_of(self, title: str, step: Any) -> Callable[..., Any]:
        """Return eager as it is timed: `forward` of the module that the compiler gets, without the hooks of its
        call."""
        if title not in self.eager:
            if step is None:
                self.eager[title] = self.module(title).forward
            else:
                pair = title.partition(" ")[0]
                both = (self.module(f"{pair} {part}").forward for part in ("forward", "backward"))
                self.eager[title] = _join_step(next(both), next(both), step)
        return self.callable_of(self.eager[title])

    def function(self, title: str) -> Callable[..., Any]:
        """Return the compiled function of a graph, as it is timed."""
        return self.callable_of(self.compiled[title])

    def callable_of(self, program: Any) -> Callable[..., Any]:
        function: Callable[..., Any] = program.call if isinstance(program, _JoinedStep) else program
        return function

    def program(self, active: _ActiveGraph, which: str) -> _TimedProgram:
        """Return a program to time; it has been called at least once before."""
        if which not in active.programs:
            if which == "compiled":
                function = self.function(active.title)
            else:
                self.eager_of(active.title, None)(*copies(active.inputs.values))
                function = self.eager_of(active.title, None)
            active.programs[which] = _TimedProgram(function, on_gpu(active.inputs.values))
        return active.programs[which]

    def put_contents(self, active: _ActiveGraph, contents: list[Any] | None, number: int | None) -> None:
        """Write contents into the inputs, or their first contents; then those of a seed, if there is one."""
        active.inputs.put(active.inputs.original if contents is None else contents)
        active.expected = contents
        if number is not None:
            active.inputs.put_seed(number)

    def send_results(self, results: Any) -> Mapping[str, Any]:
        """Copy all results of a call to the shared memory; return the part of the answer that describes them."""
        if not isinstance(results, (tuple, list)):
            return {"other": f"a {type(results).__name__}"}
        with compiler_errors():
            headers, size = put_results(self.results_memory, results)
        return {"results": headers, "bytes": size}

    def copy_to_slots(self, active: _ActiveGraph, place: int, results: Any, block: _BlockResults, which: str) -> None:
        """Copy the results of one call of a block to its slots; record the call as odd if their kinds differ from
        eager's.

        Eager's results are copied too, only so that processor caches are in the same state for both programs. Nobody
        reads them.
        """
        if not active.kinds and which != "compiled":
            return
        slots = active.slots if which == "compiled" else active.eager_slots
        if not active.kinds:
            with compiler_errors():
                headers, block.size = put_results(self.results_memory, tuple(results), block.size)
            block.headers.append(headers)
            return
        if type(results) not in (tuple, list) or len(results) != len(active.kinds):
            description = (
                f"{len(results)} results" if isinstance(results, (tuple, list)) else f"a {type(results).__name__}"
            )
            block.odd.append((place, f"{description} where eager gives {len(active.kinds)}"))
            return
        for at, (value, slot) in enumerate(zip(results, slots[(block.first + place) % len(slots)], strict=True)):
            kind = active.kinds[at]
            if not kind.fits(value):
                block.odd.append((place, f"its result {at} is a {kind_text(value)}, not {kind}"))
            elif slot is not None:
                slot.copy_(value.detach() if value.requires_grad else value)

    def hold_results(self, active: _ActiveGraph, results: Sequence[Any], size: int, shared: frozenset[int]) -> None:
        """Hold the results of a call, to see later whether they change."""
        if active.budget.takes(size):
            active.held.append([value for at, value in enumerate(results) if at not in shared])


def _join_step(forward: Callable[..., Any], backward: Callable[..., Any], step: Any) -> _JoinedStep:
    """Return the joined step of two functions; `step` is its description from the judging process."""
    sources = [(bool(saved), place) for saved, place in step["sources"]]
    strides = {int(place): tuple(stride) for place, stride in step["strides"]}
    return _JoinedStep(forward, backward, tuple(step["counts"]), sources, strides)


def wipe(values: Sequence[Any]) -> None:
    """Overwrite tensors with zeros, so that memory allocated next does not hold their contents."""
    with torch.no_grad():
        for value in values:
            if isinstance(value, Tensor):
                for part in strided_parts(value):
                    part.untyped_storage().fill_(0)
