"""The search for a small set of steps that still shows a fault, the cuts of a graph to such steps, and one test of a
cut.

The search knows numbered units and no torch. The units are in the order in which they run. It first finds the shortest
beginning that shows the fault, by bisection: its last unit is part of the fault. Then it tries that unit alone, with
the units that compute its inputs, and with theirs; failing that, the shortest end of the beginning, by bisection. From
the rest it leaves out halves first and single units last, so that no unit of the result can be left out alone.

A unit is one step of a graph, or several that are never separated (why: the comment above `CutGraph`). A cut is a graph
of some units of another, whose inputs are the values that these units take from others. A place is the number of a step
in its graph.
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

from backprint.child.child import in_child
from backprint.child.processes import processor_seconds, status
from backprint.graph.fx.convert import spec_of
from backprint.graph.fx.to_fx import to_fx
from backprint.graph.nouns import Graph, Port, Ref, Spec, Step, Sub, TensorSpec, Value, leaves, refs
from backprint.graph.operators import operators
from backprint.graph.steps import mapped, used, without_dead_code
from backprint.prove.run import perform_steps, subgraphs
from backprint.tools.export.judged import Eager, first_line, judged
from backprint.tools.export.rerun import EagerRun, copies, rebuilt
from backprint.tools.lowering.subjects import Compile, graph_classes
from backprint.tools.parts.uninitialised import uninitialized_values
from backprint.values.geometry import span

DEPTHS = (0, 1, 2, 3, 5, 8)
"""How many levels of producers are added to the last unit, one attempt for each."""


class _OutOfTestsError(Exception):
    """The search has used all its tests; the smallest units so far are kept."""


@dataclass
class UnitSearch:
    """A search (how it goes: the module's docstring). `shows` tests whether units still show the fault, `most` times at
    most; `producers` returns the units that compute the inputs of some; `smaller` is called with each smaller set that
    shows the fault. `tests` counts the tests, and `known` has the answer for each set that was tested."""

    shows: Callable[[tuple[int, ...]], bool]
    producers: Callable[[Collection[int]], Collection[int]]
    most: int
    smaller: Callable[[tuple[int, ...]], None] = lambda units: None
    tests: int = 0
    best: tuple[int, ...] = ()
    known: dict[tuple[int, ...], bool] = field(default_factory=dict)

    def shown_by(self, units: Collection[int]) -> bool:
        """Test whether these units show the fault, each set once, and keep the smallest that does in `best`. Raise
        _OutOfTestsError if no test is left."""
        key = tuple(sorted(units))
        if not key:
            return False
        if key not in self.known:
            if self.tests >= self.most:
                raise _OutOfTestsError
            self.tests += 1
            self.known[key] = self.shows(key)
            if self.known[key] and (not self.best or len(key) < len(self.best)):
                self.best = key
                self.smaller(key)
        return self.known[key]

    def smallest(self, count: int) -> tuple[int, ...]:
        """Search `count` units, which show the fault together, for the smallest set that does, as far as the tests
        allow; return it."""
        self.best = tuple(range(count))
        try:
            start = self.shortest_prefix(self.best)
            self.best = self.minimize_units(self.shortest_suffix(start))
        except _OutOfTestsError:
            pass
        return self.best

    def shortest_prefix(self, units: Sequence[int]) -> Sequence[int]:
        """Return the shortest beginning of these units that shows the fault, where a longer one always does."""
        # Bisection is valid for beginnings: with more units behind it, the step that fails still gets the same values.
        low, high = 0, len(units)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.shown_by(units[:middle]) else (middle, high)
        return units[:high]

    def shortest_suffix(self, units: Sequence[int]) -> Sequence[int]:
        """Return a few of the units that show the fault, the last unit among them: that unit with its producers, or
        else the shortest end that does; of this, its first and last unit alone if they are enough."""
        for with_producers in self.with_producers(units):
            if len(with_producers) < len(units) and self.shown_by(with_producers):
                return with_producers
        low, high = 0, len(units)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.shown_by(units[middle:]) else (low, middle)
        remaining = units[low:]
        ends = (remaining[0], remaining[-1])
        return ends if len(remaining) > 2 and self.shown_by(ends) else remaining

    def with_producers(self, units: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield the last unit with its producers, then with theirs, and so on."""
        chosen, depth = {units[-1]}, 0
        for target_depth in DEPTHS:
            while depth < target_depth:
                chosen |= set(self.producers(chosen)) & set(units)
                depth += 1
            yield tuple(sorted(chosen))

    def minimize_units(self, units: Sequence[int]) -> tuple[int, ...]:
        """Return units of which none can be left out: leave out halves, quarters and so on, at last one at a time."""
        remaining, size = list(units), max(len(units) // 2, 1)
        while True:
            count_before, start = len(remaining), 0
            while start < len(remaining) > 1:
                rest = remaining[:start] + remaining[start + size :]
                if self.shown_by(rest):
                    remaining = rest
                else:
                    start += size
            # A round by single units that left out some is done again: others may be needless now.
            if size == 1 and len(remaining) in (1, count_before):
                return tuple(remaining)
            size = max(size // 2, 1)


# ------------------------------------------------------------------ cuts: a graph of some steps of another
#
# Values from steps that are left out become inputs, with the values that they had in a run of the whole graph; a number
# is written into the graph. A unit is a set of steps that are never separated: a step whose value no input can hold (a
# tuple) with the steps that read it, the steps that share a tensor with an update in place, and uninitialized memory
# with the steps that fill it.

ITEM = "operator.getitem"
"""The target of a step that takes one tensor of several."""


@dataclass(frozen=True, slots=True)
class CutGraph:
    """A graph of some steps of a larger one, and its inputs in order."""

    graph: Graph
    inputs: tuple[Any, ...]

    @property
    def operators(self) -> int:
        """The number of operators that the graph calls."""
        return count_operators(self.graph)

    def with_outputs(self, names: Collection[str]) -> CutGraph:
        """Return the graph with the outputs of these names only, without the steps and inputs that they do not need."""
        graph = self.graph
        ports_and_results = zip(graph.outputs, graph.results, strict=True)
        chosen = [(port, result) for port, result in ports_and_results if port.name in names]
        graph = replace(graph, outputs=tuple(port for port, _ in chosen), results=tuple(result for _, result in chosen))
        graph = without_dead_code(graph)
        needed = {name for step in graph.steps for name in used(step)} | {
            ref for result in graph.results for ref in refs(result)
        }
        ports_and_values = zip(graph.inputs, self.inputs, strict=True)
        used_inputs = [(port, value) for port, value in ports_and_values if port.local in needed]
        return CutGraph(
            replace(graph, inputs=tuple(port for port, _ in used_inputs)), tuple(value for _, value in used_inputs)
        )

    def bypassing(self, name: str) -> Iterator[CutGraph]:
        """Yield graphs without one step: what read its result reads one of its arguments, of the same dtype and shape,
        instead. An output of that name is left out."""
        graph = self.graph
        specs = {port.local: port.spec for port in graph.inputs} | {step.name: step.spec for step in graph.steps}
        [step] = [other for other in graph.steps if other.name == name]
        for argument in dict.fromkeys(used(step)):
            if _kind_of_spec(specs[argument]) != _kind_of_spec(step.spec):
                continue

            def value_of(other: str, instead: str = argument) -> Value:  # a default keeps the argument of this turn
                return Ref(instead if other == name else other)

            steps = tuple(mapped(other, value_of) for other in graph.steps if other is not step)
            results = tuple(Ref(argument) if result == Ref(name) else result for result in graph.results)
            shorter = CutGraph(replace(graph, steps=steps, results=results), self.inputs)
            yield shorter.with_outputs({port.name for port in graph.outputs if port.name != name})


def _kind_of_spec(spec: Spec) -> Any:
    """Return the dtype and the shape of a tensor; for another value an object that equals no other."""
    return (spec.dtype, spec.shape) if isinstance(spec, TensorSpec) else object()


def count_operators(graph: Graph) -> int:
    """Return how many operators a graph calls; `operator.getitem` does not count."""
    return sum(step.target != ITEM for step in graph.steps)


@dataclass(frozen=True)
class RecordedGraph:
    """A graph that ran in eager, and every value in that run."""

    graph: Graph
    values: Mapping[str, Any]
    units: tuple[tuple[int, ...], ...]
    """The places of the steps of each unit; units are ordered by their last step."""

    def producers(self, units: Collection[int]) -> set[int]:
        """Return the other units that compute values which these units use."""
        unit_of = {self.graph.steps[place].name: number for number, places in enumerate(self.units) for place in places}
        names = (name for number in units for place in self.units[number] for name in used(self.graph.steps[place]))
        return {unit_of[name] for name in names if name in unit_of} - set(units)

    def cut(self, units: Collection[int]) -> CutGraph | None:
        """Return the graph of some units, with the tensors that they take from others as inputs; other values are
        written into the graph. Its outputs are the tensors that others take (`crossing`); None if there are none."""
        places = sorted(place for number in units for place in self.units[number])
        steps = [self.graph.steps[place] for place in places]
        names = {step.name for step in steps}
        outer = dict.fromkeys(name for step in steps for name in used(step) if name not in names)
        input_names = [name for name in outer if isinstance(self.values[name], Tensor)]

        def value_of(name: str) -> Value:
            return Ref(name) if name in names or isinstance(self.values[name], Tensor) else self.values[name]

        steps = [mapped(step, value_of) for step in steps]
        shown = [name for name in self.crossing(names, steps) if isinstance(self.values[name], Tensor)]
        if not shown:
            return None
        inputs = tuple(Port(name, "input", spec_of(self.values[name]), local=name) for name in input_names)
        outputs = tuple(Port(name, "output", spec_of(self.values[name])) for name in shown)
        called = set(_bodies_called(steps))
        bodies = tuple((name, body) for name, body in self.graph.subgraphs if name in called)
        graph = Graph(inputs, tuple(steps), outputs, tuple(map(Ref, shown)), bodies)
        return CutGraph(graph, tuple(self.values[name] for name in input_names))

    def crossing(self, names: Collection[str], steps: Sequence[Step]) -> Iterator[str]:
        """Yield the values of these steps, whose names are `names`, that other steps read, that the graph returns, or
        that none of these steps reads."""
        inner = {name for step in steps for name in used(step)}
        outer = {name for step in self.graph.steps if step.name not in names for name in used(step)}
        outer |= {name for result in self.graph.results for name in refs(result)}
        return (step.name for step in steps if step.name in outer or step.name not in inner)


def record_values(graph: Graph, run: EagerRun) -> RecordedGraph:
    """Run a graph, whose inputs and random state are those of an eager run, and return it with a copy of every value,
    as it was when its step had run: later steps may write into it."""
    input_names = [port.local for port in graph.inputs]
    values: dict[str, Any] = {}

    def run_and_keep(*inputs: Any) -> None:
        values_by_name = dict(zip(input_names, inputs, strict=True))
        values.update({name: copy_with_strides(value) for name, value in values_by_name.items()})

        def keep_value(_: int, step: Step) -> None:
            values[step.name] = copy_with_strides(values_by_name[step.name])

        perform_steps(graph.steps, values_by_name, subgraphs(graph), after=keep_value)

    run.again(run_and_keep)
    return RecordedGraph(graph, values, _units_of(graph, values))


def copy_with_strides(value: Any) -> Any:
    """Return a copy of a tensor in memory of its own, with the same strides: an expanded one stays expanded."""
    if not isinstance(value, Tensor):
        return value
    value = value.detach().resolve_conj().resolve_neg()
    if value.layout is not torch.strided or value.numel() == 0:
        return value.clone()
    flat = torch.as_strided(value, (span(value.shape, value.stride()),), (1,), value.storage_offset()).clone()
    return torch.as_strided(flat, value.shape, value.stride(), 0)


def _units_of(graph: Graph, values: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
    """Return the units of a graph: places of steps that `ties` joins, directly or by others. `values` has the value of
    each name in a run of the graph."""
    groups: list[set[int]] = [{place} for place in range(len(graph.steps))]
    for tie in ties(graph, values):
        joined = set().union(*(groups[place] for place in tie))
        for place in joined:
            groups[place] = joined
    units = {id(group): tuple(sorted(group)) for group in groups}
    return tuple(sorted(units.values(), key=lambda places: places[-1]))


def ties(graph: Graph, values: Mapping[str, Any]) -> Iterator[list[int]]:
    """Yield lists of places of steps that must stay together (why: the comment above `CutGraph`)."""
    users: dict[str, list[int]] = {}
    for place, step in enumerate(graph.steps):
        for name in (*used(step), step.name):
            users.setdefault(name, []).append(place)
    for name, places in users.items():
        if not isinstance(values[name], Tensor | bool | int | float | complex | str | None):
            yield places  # a tuple or list, which no input can hold
    for step in graph.steps:
        if "m" in operators().get(step.target, ""):  # it changes an argument
            yield [place for name in used(step) for place in users[name]]
    for name in uninitialized_values(graph).made:  # values with elements that no step has written
        yield users[name]


def _bodies_called(steps: Sequence[Step]) -> Iterator[str]:
    """Yield the names of the subgraphs that steps pass to their operators."""
    for step in steps:
        for value in (*step.args, *(value for _, value in step.kwargs)):
            yield from (leaf.name for leaf in leaves(value) if type(leaf) is Sub)


# ------------------------------------------------------------------ one test of a cut, in a process of its own
#
# The process is forked from one that has loaded torch and no compiler. The inputs are the cut's, the random state is a
# seed's, and the outputs are judged against eager and float64 (`tools/export/judged`).

FAULTS = ("wrong", "raised", "crashed", "timeout", "out of memory")

LACKING = {
    "InvalidCxxCompiler": "Inductor compiles with a C++ compiler, and finds none here: install g++, or set CXX to one",
    "TritonMissing": "Inductor's kernels for GPUs need triton, which is not installed: pip install triton",
}
"""Errors with which a compiler reports that this machine lacks something; none is a fault of the compiler."""

LIKE = 0.5
"""The least similarity of two messages of one exception type that count as the same fault."""


@dataclass(frozen=True, slots=True)
class _WrongOutput:
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
    outputs: tuple[_WrongOutput, ...] = ()
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """The kind and the reason, in a line."""
        return f"{self.kind}: {self.detail}" if self.detail else self.kind or "every output is right"

    def same_fault(self, other: FaultTrial) -> bool:
        """Whether two tests failed in the same way: by one signal, with one exception about the same operators in
        similar words, or both with wrong outputs, at a limit of time, or at one of memory."""
        if self.kind != other.kind or not self.kind:
            return False
        if self.kind == "crashed":
            return self.detail == other.detail
        if self.kind != "raised":
            return True
        similarity = difflib.SequenceMatcher(None, _plain_message(self.detail), _plain_message(other.detail)).ratio()
        return (
            self.error == other.error
            and _operators_in(self.detail) == _operators_in(other.detail)
            and similarity >= LIKE
        )


def _operators_in(message: str) -> set[str]:
    """Return the operators that a message names, without their overloads."""
    return set(re.findall(r"\b(?:aten|prims)(?:::|\.)(\w+)", message))


def _plain_message(message: str) -> str:
    """Return a message without its numbers and the values' names."""
    return re.sub(r"\d+", "", message)


AT_WORK = 0.5
"""The least share of a processor that a test is taken to have."""


@dataclass(frozen=True)
class FaultTrials:
    """How graphs are tried: with a compiler, from a seed, and with so many bytes of memory."""

    compile: Compile
    seed: int = 0
    memory: int = 0
    """0 is as much as there is."""

    def run_trial(self, cut: CutGraph, limit: float) -> FaultTrial:
        """Compile and run a graph in a process of its own, for at most `limit` seconds of processors, because other
        programs may use them too; a test that uses none ends after `limit / AT_WORK` seconds on the clock."""
        started = time.monotonic()

        def spent(pid: int) -> float:
            """Return the seconds that count for the limit."""
            return max(processor_seconds(pid), (time.monotonic() - started) * AT_WORK)

        end = in_child(lambda: asdict(self.trial(cut)), limit, self.memory, spent)
        seconds = time.monotonic() - started
        if not end.ended_well:
            # What the compiler raises is returned, so what is raised is eager's.
            kind = "eager failed" if end.cause == "raised" else end.kind
            detail = end.reason if kind != "timeout" else f"no answer after {limit:.3g} s"
            return FaultTrial(kind, detail, seconds=seconds)
        outputs = tuple(_WrongOutput(**row) for row in end.value["outputs"])
        return FaultTrial(**{**end.value, "outputs": outputs, "seconds": seconds})

    def trial(self, cut: CutGraph) -> FaultTrial:
        """Compile and run a graph in this process; raise where eager does."""
        _enclose_trial(self.memory)
        run = eager_run(cut.graph, cut.inputs, self.seed)
        module, inputs = to_fx(cut.graph), copies(run.inputs)
        try:
            compiled = self.compile(module, inputs)
            results = run.again(compiled)
        except Exception as error:  # a compiler may raise anything
            cause = getattr(error, "inner_exception", None) or error  # what torch.compile's BackendCompilerFailed wraps
            name = type(cause).__name__
            if name in LACKING:
                return FaultTrial("cannot run here", LACKING[name])
            return FaultTrial("raised", f"{name}: {first_line(error)}", error=name)
        return _judge_trial(Eager(run, compiled), results)


def _judge_trial(eager: Eager, results: Any) -> FaultTrial:
    """Return how a test ended whose compiler returned `results`: `wrong` for another number of outputs than eager's, or
    for one that is wrong by `judged`."""
    results = results if isinstance(results, (tuple, list)) else (results,)
    expected = eager.run.outputs
    if len(results) != len(expected):
        return FaultTrial("wrong", f"{len(results)} outputs, and eager gives {len(expected)}")
    judgements = [judged(eager, index, value) for index, value in enumerate(results)]
    wrong = tuple(
        _WrongOutput(name, why) for (_, name), (word, why) in zip(expected, judgements, strict=True) if word == "wrong"
    )
    if not wrong:
        return FaultTrial()
    more = f", and {len(wrong) - 1} more of {len(expected)} outputs" if len(wrong) > 1 else ""
    return FaultTrial("wrong", f"{wrong[0].name}: {wrong[0].detail}{more}", outputs=wrong)


def eager_run(graph: Graph, inputs: Sequence[Any], seed: int) -> EagerRun:
    """Run a graph in eager, from the random state of a seed; return the run with its inputs and results."""
    [module] = graph_classes({"graph": graph}).values()
    # `rebuilt` gives the class its text, which a run in float64 changes (`judged.widened_class`).
    module = rebuilt(module, inspect.getsource(module))
    outputs = [(port.role, port.name) for port in graph.outputs]
    torch.manual_seed(seed)
    random_state = torch.get_rng_state(), ()  # of the CPU, and of no GPU
    run = EagerRun(module, list(inputs), random_state, outputs, results=())
    return replace(run, results=run.again(module()))


def _enclose_trial(memory: int) -> None:
    """Silence this process, and limit it to one thread, to so much memory, and to no core file."""
    silent = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silent, descriptor)
    torch.set_num_threads(1)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # read when Inductor is loaded
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:  # so that one huge allocation fails at once; what is allocated bit by bit is measured
        with contextlib.suppress(OSError, ValueError):  # a lower limit is there already
            most = status("VmData") + memory + memory // 4  # a quarter more than is measured: reserved memory counts
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))
