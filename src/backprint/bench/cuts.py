"""Find a small set of numbered units that still shows a fault, in few tests: plain search, without torch.

The units are in the order in which they run. First the shortest beginning that shows the fault, by bisection: its last
unit is part of the fault. Then that unit alone, with those that make what it uses, and with theirs; else the last part
of the beginning, by bisection. Of what is left, parts are left out, halves first and single units last, so that no
unit of the result can be left out alone.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import os
import re
import resource
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from backprint.fx.convert import spec_of
from backprint.fx.to_fx import to_fx
from backprint.fx.uninitialised import uninitialized_values
from backprint.graph.nouns import Graph, Port, Ref, Spec, Step, Sub, TensorSpec, Value, leaves, refs
from backprint.graph.operators import operators
from backprint.graph.steps import live, mapped, used
from backprint.jobs.processes import in_child, status
from backprint.lowering.subjects import Compile, graph_classes
from backprint.replaying.run import perform_steps, subgraphs
from backprint.sample.judged import Eager, first_line, judged
from backprint.sample.recipes import reach
from backprint.sample.rerun import EagerRun, copies, rebuilt

DEPTHS = (0, 1, 2, 3, 5, 8)
"""How many steps back the units are looked up that make what the last one uses."""


class OutOfTestsError(Exception):
    """The search has used all its tests; the smallest units so far are kept."""


@dataclass
class UnitSearch:
    """A search: `shows` says whether units still show the fault; `smaller` is called with each smaller set of them."""

    shows: Callable[[tuple[int, ...]], bool]
    producers: Callable[[Collection[int]], Collection[int]]
    most: int
    smaller: Callable[[tuple[int, ...]], None] = lambda units: None
    tests: int = 0
    best: tuple[int, ...] = ()
    known: dict[tuple[int, ...], bool] = field(default_factory=dict)

    def shown_by(self, units: Collection[int]) -> bool:
        """Whether these units show the fault; each set is tested once."""
        asked = tuple(sorted(units))
        if not asked:
            return False
        if asked not in self.known:
            if self.tests >= self.most:
                raise OutOfTestsError
            self.tests += 1
            self.known[asked] = self.shows(asked)
            if self.known[asked] and (not self.best or len(asked) < len(self.best)):
                self.best = asked
                self.smaller(asked)
        return self.known[asked]

    def smallest(self, count: int) -> tuple[int, ...]:
        """Return the smallest units that the tests allow to find, of `count` that show the fault together."""
        self.best = tuple(range(count))
        try:
            start = self.beginning(self.best)
            self.best = self.least(self.ending(start))
        except OutOfTestsError:
            pass
        return self.best

    def beginning(self, units: Sequence[int]) -> Sequence[int]:
        """Return the shortest beginning that shows the fault, where a longer one always does."""
        low, high = 0, len(units)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.shown_by(units[:middle]) else (middle, high)
        return units[:high]

    def ending(self, units: Sequence[int]) -> Sequence[int]:
        """Return few of the units, the last among them, that show the fault."""
        for near in self.behind_last(units):
            if len(near) < len(units) and self.shown_by(near):
                return near
        low, high = 0, len(units)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.shown_by(units[middle:]) else (low, middle)
        left = units[low:]
        ends = (left[0], left[-1])
        return ends if len(left) > 2 and self.shown_by(ends) else left

    def behind_last(self, units: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield the last unit with those of the units behind it, nearer ones first."""
        near, depth = {units[-1]}, 0
        for wanted in DEPTHS:
            while depth < wanted:
                near |= set(self.producers(near)) & set(units)
                depth += 1
            yield tuple(sorted(near))

    def least(self, units: Sequence[int]) -> tuple[int, ...]:
        """Return units of which none can be left out: leave out halves, quarters and so on, at last one at a time."""
        left, size = list(units), max(len(units) // 2, 1)
        while True:
            before, start = len(left), 0
            while start < len(left) > 1:
                rest = left[:start] + left[start + size :]
                if self.shown_by(rest):
                    left = rest
                else:
                    start += size
            if size == 1 and len(left) in (1, before):
                return tuple(left)
            size = max(size // 2, 1)


# ----------------------------------------------------------------------------
# Cut a graph down to some of its steps: values from steps that are left out become inputs, with the values that the
# whole graph had there.
#
# A unit is what no cut takes apart: a step whose value no input can hold (a tuple) with the steps that read it, the
#  steps that share a tensor with an update in place, and memory that is not initialized with the steps that fill it.
#  A number from a step that is left out is written into the graph.
# ----------------------------------------------------------------------------

ITEM = "operator.getitem"
"""The target of a step that takes one tensor of several."""


@dataclass(frozen=True, slots=True)
class CutGraph:
    """A graph of some steps of a larger one, and its inputs in order."""

    graph: Graph
    inputs: tuple[Any, ...]

    @property
    def operators(self) -> int:
        """How many operators it calls."""
        return count_operators(self.graph)

    def with_outputs(self, names: Collection[str]) -> CutGraph:
        """Return the same with fewer outputs, without the steps and inputs that these do not need."""
        graph = self.graph
        kept = [pair for pair in zip(graph.outputs, graph.results, strict=True) if pair[0].name in names]
        graph = replace(graph, outputs=tuple(port for port, _ in kept), results=tuple(result for _, result in kept))
        graph = live(graph)
        needed = {name for step in graph.steps for name in used(step)} | {r for v in graph.results for r in refs(v)}
        pairs = [pair for pair in zip(graph.inputs, self.inputs, strict=True) if pair[0].local in needed]
        return CutGraph(replace(graph, inputs=tuple(port for port, _ in pairs)), tuple(value for _, value in pairs))

    def bypassing(self, name: str) -> Iterator[CutGraph]:
        """Yield the graphs without one step in which one of its arguments, of its dtype and shape, is its value."""
        graph = self.graph
        specs = {port.local: port.spec for port in graph.inputs} | {step.name: step.spec for step in graph.steps}
        [step] = [each for each in graph.steps if each.name == name]
        for argument in dict.fromkeys(used(step)):
            if kind_of_spec(specs[argument]) != kind_of_spec(step.spec):
                continue

            def value_of(each: str, instead: str = argument) -> Value:
                return Ref(instead if each == name else each)

            steps = tuple(mapped(each, value_of) for each in graph.steps if each is not step)
            results = tuple(Ref(argument) if result == Ref(name) else result for result in graph.results)
            made = CutGraph(replace(graph, steps=steps, results=results), self.inputs)
            yield made.with_outputs({port.name for port in graph.outputs if port.name != name})


def kind_of_spec(spec: Spec) -> Any:
    """Return the dtype and the shape of a tensor; of another value something that equals no other."""
    return (spec.dtype, spec.shape) if isinstance(spec, TensorSpec) else object()


def count_operators(graph: Graph) -> int:
    """Return how many operators a graph calls; taking one tensor of several is none."""
    return sum(step.target != ITEM for step in graph.steps)


@dataclass(frozen=True)
class RecordedGraph:
    """A graph that ran in eager, and every value in that run."""

    graph: Graph
    values: Mapping[str, Any]
    units: tuple[tuple[int, ...], ...]
    """The places of the steps of each unit, in the order of the last."""

    def producers(self, units: Collection[int]) -> set[int]:
        """Return the units that make the values which these units use, themselves left out."""
        of = {self.graph.steps[place].name: number for number, places in enumerate(self.units) for place in places}
        names = (name for number in units for place in self.units[number] for name in used(self.graph.steps[place]))
        return {of[name] for name in names if name in of} - set(units)

    def cut(self, units: Collection[int]) -> CutGraph | None:
        """Return the graph of some units; None if it has no output."""
        kept = sorted(place for number in units for place in self.units[number])
        steps = [self.graph.steps[place] for place in kept]
        names = {step.name for step in steps}
        outer = dict.fromkeys(name for step in steps for name in used(step) if name not in names)
        given = [name for name in outer if isinstance(self.values[name], Tensor)]

        def value_of(name: str) -> Value:
            return Ref(name) if name in names or isinstance(self.values[name], Tensor) else self.values[name]

        steps = [mapped(step, value_of) for step in steps]
        shown = [name for name in self.crossing(names, steps) if isinstance(self.values[name], Tensor)]
        if not shown:
            return None
        inputs = tuple(Port(name, "input", spec_of(self.values[name]), name) for name in given)
        outputs = tuple(Port(name, "output", spec_of(self.values[name])) for name in shown)
        called = set(bodies_called(steps))
        bodies = tuple(pair for pair in self.graph.subgraphs if pair[0] in called)
        graph = Graph(inputs, tuple(steps), outputs, tuple(map(Ref, shown)), bodies)
        return CutGraph(graph, tuple(self.values[name] for name in given))

    def crossing(self, names: Collection[str], steps: Sequence[Step]) -> Iterator[str]:
        """Yield the values of these steps that other steps read, that the graph returns, or that nothing reads."""
        inner = {name for step in steps for name in used(step)}
        outer = {name for step in self.graph.steps if step.name not in names for name in used(step)}
        outer |= {name for result in self.graph.results for name in refs(result)}
        return (step.name for step in steps if step.name in outer or step.name not in inner)


def record_values(graph: Graph, run: EagerRun) -> RecordedGraph:
    """Run a graph, whose inputs and random state are those of an eager run, and keep a copy of every value."""
    locals_ = [port.local for port in graph.inputs]
    kept: dict[str, Any] = {}

    def play(*inputs: Any) -> None:
        env = dict(zip(locals_, inputs, strict=True))
        kept.update({name: own_memory(value) for name, value in env.items()})

        def keep(_: int, step: Step) -> None:
            kept[step.name] = own_memory(env[step.name])

        perform_steps(graph.steps, env, subgraphs(graph), after=keep)

    run.again(play)
    return RecordedGraph(graph, kept, units_of(graph, kept))


def own_memory(value: Any) -> Any:
    """Return a copy of a tensor in memory of its own, with the same strides."""
    if not isinstance(value, Tensor):
        return value
    value = value.detach().resolve_conj().resolve_neg()
    if value.layout is not torch.strided or value.numel() == 0:
        return value.clone()
    flat = torch.as_strided(value, (reach(value.shape, value.stride()),), (1,), value.storage_offset()).clone()
    return torch.as_strided(flat, value.shape, value.stride(), 0)


def units_of(graph: Graph, values: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
    """Return the units of a graph: places of steps."""
    groups: list[set[int]] = [{place} for place in range(len(graph.steps))]
    for tie in ties(graph, values):
        joined = set().union(*(groups[place] for place in tie))
        for place in joined:
            groups[place] = joined
    found = {id(group): tuple(sorted(group)) for group in groups}
    return tuple(sorted(found.values(), key=lambda places: places[-1]))


def ties(graph: Graph, values: Mapping[str, Any]) -> Iterator[list[int]]:
    """Yield the places of steps that stay together."""
    users: dict[str, list[int]] = {}
    for place, step in enumerate(graph.steps):
        for name in (*used(step), step.name):
            users.setdefault(name, []).append(place)
    for name, places in users.items():
        if not isinstance(values[name], Tensor | bool | int | float | complex | str | None):
            yield places
    for step in graph.steps:
        if "m" in operators().get(step.target, ""):
            yield [place for name in used(step) for place in users[name]]
    for name in uninitialized_values(graph).made:
        yield users[name]


def bodies_called(steps: Sequence[Step]) -> Iterator[str]:
    """Yield the names of the subgraphs that steps pass to their operators."""
    for step in steps:
        for value in (*step.args, *(value for _, value in step.kwargs)):
            yield from (leaf.name for leaf in leaves(value) if type(leaf) is Sub)


# ----------------------------------------------------------------------------
# Try a compiler on one graph in a process of its own, and say how it failed: one of FAULTS.
#
# The process is forked from one that has loaded torch and no compiler (`children`). The inputs are as given, the
#  random state is a seed's, and the outputs are judged against eager and float64 (`sample/judged`).
# ----------------------------------------------------------------------------

FAULTS = ("wrong", "raised", "crashed", "timeout", "out of memory")

LACKING = {
    "InvalidCxxCompiler": "Inductor compiles with a C++ compiler, and finds none here: install g++, or set CXX to one",
    "TritonMissing": "Inductor's kernels for GPUs need triton, which is not installed: pip install triton",
}
"""Errors by which a compiler says that this machine lacks something: none is a fault of the compiler's."""

LIKE = 0.5
"""How alike two messages of one exception type are, at least, where they are of one fault."""


@dataclass(frozen=True, slots=True)
class WrongOutput:
    """An output that is wrong: its name, and how far it is from eager and from float64."""

    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class FaultTrial:
    """How one test ended: one of FAULTS, `eager failed` or `cannot run here`; the kind is '' if it ended well."""

    kind: str = ""
    detail: str = ""
    error: str = ""
    """The exception's type, where one was raised."""
    outputs: tuple[WrongOutput, ...] = ()
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """The kind and the reason, in a line."""
        return f"{self.kind}: {self.detail}" if self.detail else self.kind or "every output is right"

    def same_fault(self, other: FaultTrial) -> bool:
        """Whether two tests failed in the same way: by one signal, or with one exception about one operator."""
        if self.kind != other.kind or not self.kind:
            return False
        if self.kind == "crashed":
            return self.detail == other.detail
        if self.kind != "raised":
            return True
        alike = difflib.SequenceMatcher(None, plain_message(self.detail), plain_message(other.detail)).ratio()
        return self.error == other.error and operators_in(self.detail) == operators_in(other.detail) and alike >= LIKE


def operators_in(message: str) -> set[str]:
    """Return the operators that a message names, without their overloads."""
    return set(re.findall(r"\b(?:aten|prims)(?:::|\.)(\w+)", message))


def plain_message(message: str) -> str:
    """Return a message without its numbers and the values' names."""
    return re.sub(r"\d+", "", message)


@dataclass(frozen=True)
class FaultTrials:
    """How graphs are tried: with a compiler, from a seed, and with so many bytes of memory."""

    compile: Compile
    seed: int = 0
    memory: int = 0
    """0 is as much as there is."""

    def tried(self, cut: CutGraph, limit: float) -> FaultTrial:
        """Compile and run a graph in a process of its own, for at most `limit` seconds."""
        started = time.monotonic()
        end = in_child(lambda: asdict(self.trial(cut)), limit, self.memory)
        seconds = time.monotonic() - started
        if not end.ended_well:
            kind = "eager failed" if end.cause == "raised" else end.cause
            return FaultTrial(
                kind, end.detail if kind != "timeout" else f"no answer after {limit:.3g} s", seconds=seconds
            )
        outputs = tuple(WrongOutput(**row) for row in end.value["outputs"])
        return FaultTrial(**{**end.value, "outputs": outputs, "seconds": seconds})

    def trial(self, cut: CutGraph) -> FaultTrial:
        """Compile and run a graph in this process; raise where eager does."""
        enclose_trial(self.memory)
        run = eager_run(cut.graph, cut.inputs, self.seed)
        module, inputs = to_fx(cut.graph), copies(run.inputs)
        try:
            compiled = self.compile(module, inputs)
            found = run.again(compiled)
        except Exception as error:
            cause = getattr(error, "inner_exception", None) or error
            name = type(cause).__name__
            if name in LACKING:
                return FaultTrial("cannot run here", LACKING[name])
            return FaultTrial("raised", f"{name}: {first_line(error)}", name)
        return judged_trial(Eager(run, compiled), found)


def judged_trial(eager: Eager, found: Any) -> FaultTrial:
    """Return whether one of a compiler's outputs is wrong."""
    found = found if isinstance(found, (tuple, list)) else (found,)
    wanted = eager.run.outputs
    if len(found) != len(wanted):
        return FaultTrial("wrong", f"{len(found)} outputs, and eager gives {len(wanted)}")
    words = [judged(eager, index, value) for index, value in enumerate(found)]
    wrong = tuple(
        WrongOutput(name, why) for (_, name), (word, why) in zip(wanted, words, strict=True) if word == "wrong"
    )
    if not wrong:
        return FaultTrial()
    more = f", and {len(wrong) - 1} more of {len(wanted)} outputs" if len(wrong) > 1 else ""
    return FaultTrial("wrong", f"{wrong[0].name}: {wrong[0].detail}{more}", outputs=wrong)


def eager_run(graph: Graph, inputs: Sequence[Any], seed: int) -> EagerRun:
    """Run a graph in eager, from the state of a seed."""
    [module] = graph_classes({"graph": graph}).values()
    module = rebuilt(module, inspect.getsource(module))
    outputs = [(port.role, port.name) for port in graph.outputs]
    torch.manual_seed(seed)
    run = EagerRun(module, list(inputs), (torch.get_rng_state(), ()), outputs, ())
    return replace(run, results=run.again(module()))


def enclose_trial(memory: int) -> None:
    """Silence this process, and limit it to one thread, to so much memory, and to no core file."""
    silent = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silent, descriptor)
    torch.set_num_threads(1)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # read when Inductor is loaded
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:  # so that one huge allocation fails at once; what is allocated bit by bit is measured
        with contextlib.suppress(OSError, ValueError):  # a lower limit is there already
            most = status("VmData") + memory + memory // 4
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))
