"""Functions that are made of others as text, so that a call costs what its statements cost and nothing else.

What a bench puts around a compiled function is billed to its compiler: a list comprehension and a `tree_unflatten` are
2 to 4 µs, which is a fifth of a small graph's call. The function that is timed is therefore the compiler's own, or a
single expression around it.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import os
import socket
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import torch
from torch import Tensor, fx

from backprint._torch import pytree
from backprint.bench.clocks import (
    SHORT,
    CheatFound,
    EagerBaseline,
    TimingWithheld,
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
from backprint.bench.compilers.table import Compiler
from backprint.bench.compilers.timed import compile_timed
from backprint.bench.contents import Piece, VariedInputs
from backprint.bench.transfer import CarriedMemory, put_results, taken_inputs
from backprint.fx.to_fx import to_fx
from backprint.graph.nouns import Graph
from backprint.graph.sizes import unguarded_graph
from backprint.jobs.task import one_line
from backprint.lowering.subjects import inputs_of_results, memory_of, opened_graph, seed_generators
from backprint.sample.judged import first_line
from backprint.sample.rerun import copies, laid
from backprint.values.tree import strided_parts


def written(arguments: Sequence[str], body: Sequence[str], names: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function of these arguments whose statements are `body`; it knows the names."""
    lines = [f"def call({', '.join(arguments)}):", *(f"    {line}" for line in body)]
    space = dict(names)
    exec(compile("\n".join(lines), "<backprint: a call>", "exec"), space)
    function: Callable[..., Any] = space["call"]
    return function


def arguments_of(count: int) -> list[str]:
    """Return names of so many arguments."""
    return [f"v{place}" for place in range(count)]


def tuple_text(items: Sequence[str]) -> str:
    """Return the text of a tuple of these expressions."""
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


class JoinedStep:
    """A forward and its backward as one function of the forward's inputs and the backward's own.

    It returns all that the forward returns, and then the gradients, so that both can be judged. The backward takes what
    the forward saved, in the strides that it was compiled for: the first call finds which have others, and from then on
    `call` is straight text.
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
        """Call both, and write `call` for the strides that were met."""
        results = self.forward(*values[: self.counts[0]])
        taken = [results[place] if saved else values[place] for saved, place in self.sources]
        others = [place for place, stride in self.strides.items() if taken[place].stride() != stride]
        self.call = self.text_for(others)
        for place in others:
            taken[place] = laid(taken[place], self.strides[place])
        return (*results, *self.backward(*taken))

    def text_for(self, others: Sequence[int]) -> Callable[..., Any]:
        """Return the function that lays out these of the backward's inputs."""
        names = arguments_of(sum(self.counts))
        given = [f"r[{place}]" if saved else names[place] for saved, place in self.sources]
        for place in others:
            given[place] = f"laid({given[place]}, s{place})"
        space = {f"s{place}": self.strides[place] for place in others}
        body = [
            f"r = forward({', '.join(names[: self.counts[0]])})",
            f"return (*r, *backward({', '.join(given)}))",
        ]
        return written(names, body, {"forward": self.forward, "backward": self.backward, "laid": laid, **space})


# ----------------------------------------------------------------------------
# Give a compiler only tensors that it computes with, and give its caller the graph's own results.
#
# Exchange formats drop an input that nothing reads, rename or lose an output that is an input, and have no form for
#  None and for numbers. `core_of` takes such values out of a graph; `Core.around` puts them back.
# ----------------------------------------------------------------------------

NOTHING: Mapping[int, Any] = {}

Build: TypeAlias = Callable[[fx.GraphModule, list[Tensor]], Callable[..., Sequence[Tensor]]]
"""A compiler of cores: a function of a graph and its inputs that returns a function of such inputs, one by one."""

Laying: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Core:
    """The part of a graph that computes: tensors that are read go in, distinct computed tensors come out."""

    module: fx.GraphModule
    taken: tuple[int, ...]
    """The places of the graph's inputs that the core takes."""
    plan: tuple[tuple[str, Any], ...]
    """Where each result comes from: `core` or `input` with a place, or `constant` with the value."""
    structure: Any

    def given(self, values: Sequence[Any]) -> list[Tensor]:
        """Return the core's inputs among the graph's."""
        return [values[place] for place in self.taken]

    def around(
        self, call: Callable[..., Sequence[Tensor]], count: int, laying: Mapping[int, Laying] = NOTHING
    ) -> Callable[..., Any]:
        """Return a function of the graph's `count` inputs that calls a compiled core: the core itself where it takes
        and gives what the graph does. `laying` lays out some of the core's inputs first."""
        names, flat = arguments_of(count), [restored_text(*each, place) for place, each in enumerate(self.plan)]
        results = pytree.tree_unflatten(flat, self.structure)
        given = [f"lay{place}({names[at]})" if place in laying else names[at] for place, at in enumerate(self.taken)]
        in_order = [f"r[{place}]" for place in range(len(flat))]
        if given == names and isinstance(results, (tuple, list)) and list(results) == in_order:
            return call
        kept = {f"c{place}": value for place, (kind, value) in enumerate(self.plan) if kind == "constant"}
        body = [f"r = core({', '.join(given)})" if self.computes else "r = ()", f"return {structure_text(results)}"]
        return written(names, body, {"core": call, **kept, **{f"lay{place}": lay for place, lay in laying.items()}})

    @property
    def computes(self) -> bool:
        """Whether any result is computed from the inputs."""
        return any(kind == "core" for kind, _ in self.plan)


def restored_text(kind: str, value: Any, place: int) -> str:
    """Return the expression of one result of a graph."""
    match kind:
        case "core":
            return f"r[{value}]"
        case "input":
            return f"v{value}"
        case _:
            return f"c{place}.clone()" if isinstance(value, Tensor) else f"c{place}"


def structure_text(value: Any) -> str:
    """Return nested results of expressions as one expression."""
    match value:
        case tuple():
            return tuple_text([structure_text(each) for each in value])
        case list():
            return f"[{', '.join(map(structure_text, value))}]"
        case dict():
            return "{" + ", ".join(f"{key!r}: {structure_text(each)}" for key, each in value.items()) + "}"
    return str(value)


def core_of(module: fx.GraphModule, inputs: Sequence[Any]) -> Core:
    """Return the core of a graph for inputs whose numbers and None stay as they are."""
    core = with_values_baked(module, inputs)
    nodes = list(core.graph.nodes)
    ports = [node for node in nodes if node.op == "placeholder"]
    end = nodes[-1]
    flat, structure = pytree.tree_flatten(plainly(end.args[0]), is_leaf=lambda value: value is None)
    end.args = (tuple(flat),)
    fixed = constants(core, inputs)
    kept: list[fx.Node] = []
    plan = [planned(value, ports, inputs, fixed, kept) for value in flat]
    end.args = (tuple(kept),)
    core.graph.eliminate_dead_code()
    taken = tuple(place for place, port in enumerate(ports) if port.users)
    for port in ports:
        if not port.users:
            core.graph.erase_node(port)
    core.graph.lint()
    core.recompile()
    return Core(core, taken, tuple(plan), structure)


def plainly(value: Any) -> Any:
    """Return fx's own lists and dictionaries as plain ones, which a graph returns."""
    match value:
        case tuple() | list():
            kind = tuple if isinstance(value, tuple) else list
            return kind(map(plainly, value))
        case dict():
            return {key: plainly(each) for key, each in value.items()}
    return value


def planned(
    value: Any, ports: list[fx.Node], inputs: Sequence[Any], fixed: dict[fx.Node, Any], kept: list[fx.Node]
) -> tuple[str, Any]:
    """Return where one result comes from; a computed one is added to those that the core keeps."""
    if not isinstance(value, fx.Node):
        return "constant", value
    value = source_of(value)
    if value in fixed:
        return "constant", fixed[value]
    if value in ports:
        return "input", ports.index(value)
    if value not in kept:
        kept.append(value)
    return "core", kept.index(value)


def source_of(node: fx.Node) -> fx.Node:
    """Return the node that a node hands through."""
    while node.target in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
        (node,) = node.all_input_nodes
    return node


def with_values_baked(module: fx.GraphModule, inputs: Sequence[Any]) -> fx.GraphModule:
    """Return a copy of a graph in which the inputs that are not tensors are written as constants."""
    made = fx.GraphModule(module, copy.deepcopy(module.graph))
    ports = [node for node in made.graph.nodes if node.op == "placeholder"]
    for port, value in zip(ports, inputs, strict=True):
        if isinstance(value, Tensor):
            continue
        values = {port: value}
        for user in list(port.users):
            user.args, user.kwargs = (
                fx.node.map_arg(part, lambda node: values.get(node, node))  # noqa: B023  # called at once
                for part in (user.args, user.kwargs)
            )
    made.recompile()
    return made


class Constants(fx.Interpreter):
    """Computes the results that depend on no input; every other value is UNKNOWN."""

    UNKNOWN = object()

    def run_node(self, n: fx.Node) -> Any:
        known = all(self.env[each] is not self.UNKNOWN for each in n.all_input_nodes)
        draws = torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ())
        if n.op == "placeholder" or not known or draws:
            return self.UNKNOWN
        return super().run_node(n) if n.op != "output" else None


def constants(module: fx.GraphModule, inputs: Sequence[Any]) -> dict[fx.Node, Any]:
    """Return the nodes that depend on no input, with their values."""
    found = Constants(module, garbage_collect_values=False)
    with torch.no_grad():
        found.run(*inputs)
    return {node: value for node, value in found.env.items() if value is not Constants.UNKNOWN and node.op != "output"}


def bordered(module: fx.GraphModule, inputs: Sequence[Any], build: Build) -> Callable[..., Any]:
    """Compile the core of a graph; return a function of the graph's inputs that returns its results."""
    core = core_of(module, inputs)
    call = build(core.module, core.given(copies(inputs))) if core.computes else tuple
    return core.around(call, len(inputs))


# ----------------------------------------------------------------------------
# Which results of a compiled graph are held to be looked at again, and what a block's results are like.
#
#
# Both processes of a bench use this, so that the judging one knows what the other holds.
# ----------------------------------------------------------------------------

MOST_HELD = 2**29
"""The bytes of results that are held. Those of timed calls are not: that would change how memory is used."""

ALIGNED = 64


@dataclass(frozen=True)
class Kind:
    """What a result is like: a tensor's dtype, shape and device, or another value."""

    dtype: str
    shape: tuple[int, ...]
    device: str
    value: Any = None
    """A result that is no tensor."""

    @cached_property
    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return bool(self.dtype)

    @cached_property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of a tensor."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    @property
    def bytes(self) -> int:
        """The bytes of its elements."""
        count = self.torch_dtype.itemsize if self.is_tensor else 0
        for size in self.shape:
            count *= size
        return count

    def fits(self, value: Any) -> bool:
        """Whether a result is of this kind, and the same if it is no tensor."""
        if not self.is_tensor:
            return type(value) is type(self.value) and (value == self.value or value != value)
        return (
            type(value) in (Tensor, torch.nn.Parameter)
            and value.dtype is self.torch_dtype
            and value.shape == self.shape
            and value.layout is torch.strided
            and value.device.type == self.device
        )

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}" if self.is_tensor else repr(self.value)


def kind_of(value: Any) -> str:
    """Return what a result is like, as text."""
    if type(value) not in (Tensor, torch.nn.Parameter):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} on {value.device}"


def kind_like(value: Any) -> Kind | None:
    """Return the kind of one of eager's results; None if blocks cannot carry it."""
    if not isinstance(value, Tensor):
        return Kind("", (), "", value) if type(value) in (bool, int, float, str, type(None)) else None
    if value.layout is not torch.strided or value.is_quantized:
        return None
    return Kind(str(value.dtype).removeprefix("torch."), tuple(value.shape), value.device.type)


def slot_offsets(kinds: Sequence[Kind]) -> tuple[list[int], int]:
    """Return where the results of one call go, and how many bytes a call's take."""
    offsets, offset = [], 0
    for kind in kinds:
        offsets.append(offset)
        offset += -(-kind.bytes // ALIGNED) * ALIGNED
    return offsets, offset


@dataclass(slots=True)
class HeldBudget:
    """What was taken of the room for held results."""

    bytes: int = 0

    def takes(self, size: int) -> bool:
        """Whether results of so many bytes are held; the first are in any case."""
        if self.bytes and self.bytes + size > MOST_HELD:
            return False
        self.bytes += max(size, 1)
        return True


# ----------------------------------------------------------------------------
# The process in which a compiler works: it compiles, calls and times as the judging process asks it.
#
# It never has eager's results on contents that a compiled graph is called on: those are computed in the judging
#  process (`judge`), from which this one is forked before any graph has run. It sends each call's results there, in
#  memory that both have, and keeps some of them, so that they can be looked at again. What a compiler raises is
#  caught here, whatever it is, and told as the compiler's; any other error is ours.
# ----------------------------------------------------------------------------

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
            [
                self.told.tensor(kind.torch_dtype, kind.shape, call * size + offset) if kind.is_tensor else None
                for kind, offset in zip(hand.kinds, offsets, strict=True)
            ]
            for call in range(2 * most)
        ]
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
