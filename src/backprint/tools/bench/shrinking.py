"""A graph that a compiler fails on, shrunk to the smallest that still shows the fault, each test in its own process.

`cuts` cuts the graph down, chooses which steps to leave out, and tries a compiler on each cut. This module runs the
search on one graph, and writes the result as a Capture, a sample and a file that shows the fault.

- A `CutGraph`, or cut, is a graph of some steps of another, with its inputs.
- A `FaultTrial` is how one test ended; its `kind` is one of FAULTS (`wrong`, `raised`, `crashed`, `timeout`, `out of
  memory`), '' for a compiler that is right, or says that eager failed.
- `FaultTrials` runs tests: with a compiler, from a seed, in a process each.
- `RecordedGraph`: a graph with every value that it had in eager, and its units, which a cut has or leaves out.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from backprint.child.child import run_command
from backprint.child.ends import NO_MEMORY, TIMEOUT
from backprint.graph.fx.convert import spec_of
from backprint.graph.keys import PortKey, PortValues
from backprint.graph.nouns import Capture, Graph, Pair, Port, Ref, Signature, Value, custom_operators, refs
from backprint.graph.sizes import unguarded_graph
from backprint.graph.steps import mapped
from backprint.graph.verdicts import Verdict
from backprint.prove.attest import attest, verdict_json
from backprint.prove.results import numbers_of
from backprint.sample.inputs import Inputs, exact_data, fit_all
from backprint.sample.save import write_staged
from backprint.tools.bench.compilers.table import compiled_by, compiler_named, torch_backends, versions_of
from backprint.tools.bench.cuts import (
    FAULTS,
    CutGraph,
    FaultTrial,
    FaultTrials,
    RecordedGraph,
    UnitSearch,
    count_operators,
    eager_run,
    record_values,
)
from backprint.tools.export.export import write_export
from backprint.tools.graphnet.write import graphnet_writer
from backprint.tools.lowering.subjects import BenchGraph, Compile

# ------------------------------------------------------------------ looking up a compiler


def compile_function(name: str) -> Compile:
    """Return the function that compiles with this name; raise UsageError if there is none, or a package is missing."""
    return compiled_by(compiler_named(name))


def backend_in_file(name: str) -> str | None:
    """Return the name with which an exported file's `--backend` can run this compiler: a function of the user's own or
    a backend of torch.compile; None for others."""
    own = compiler_named(name).build == name
    return name if own or name in torch_backends() else None


def compiler_versions(name: str) -> str:
    """Return the versions of torch and of the packages of a compiler, as text."""
    return ", ".join(f"{package} {version}" for package, version in versions_of(compiler_named(name)).items())


# ------------------------------------------------------------------ the search
#
# A cut that fails in another way does not show the fault; such ends are counted in `others`.

MOST_TESTS = 100

LEAST_LIMIT, TIMES = 10.0, 5.0
"""A test may take this many seconds, or this many times as long as the first failure, whichever is more."""


@dataclass(frozen=True, slots=True)
class MinifiedGraph:
    """The smallest graph that shows a fault, `cut`, and the search for it. `first` is the fault that was looked for,
    `last` how the cut fails, and `others` counts the tests that failed in another way, by kind."""

    title: str
    operators: int
    """How many operators the graph of the sample calls."""
    cut: CutGraph
    first: FaultTrial
    last: FaultTrial
    tests: int
    seconds: float
    others: Mapping[str, int]
    complete: bool = True
    """Whether no unit and no output can be left out, as far as one at a time was tried."""

    @property
    def text(self) -> str:
        """The result in a line."""
        tests = "1 test" if self.tests == 1 else f"{self.tests} tests"
        ends = f"{self.operators} operators -> {self.cut.operators}, {tests}, {self.seconds:.1f} s"
        return f"{ends}: {self.last.text}"


@dataclass(frozen=True, slots=True)
class UnminifiedGraph:
    """A graph that cannot be minified, and why: the compiler is right on it, or fails on it only sometimes
    (`flaky`)."""

    title: str
    why: str
    first: FaultTrial
    flaky: bool = False


Tell = Callable[[str], None]
"""Called with what is being tried, in words."""

Smaller = Callable[[MinifiedGraph], None]
"""Called with each smaller graph that shows the fault."""


@dataclass
class _GraphSearch:
    """The search in one graph, with the smallest cut so far. `limit` are the seconds of a test, `most` the number of
    tests at most. `first` is the fault that is looked for, and `last` how the smallest cut, `best`, fails. `others`
    counts tests that failed in another way."""

    title: str
    whole: Graph
    trials: FaultTrials
    limit: float
    most: int
    tell: Tell
    smaller: Smaller
    first: FaultTrial = field(default_factory=FaultTrial)
    last: FaultTrial = field(default_factory=FaultTrial)
    best: CutGraph | None = None
    tests: int = 0
    others: Counter[str] = field(default_factory=Counter)
    started: float = field(default_factory=time.monotonic)

    def try_whole_graph(self, whole: CutGraph) -> UnminifiedGraph | None:
        """Try the whole graph twice; return why there is nothing to shrink, or None."""
        self.first = self.run_trial(whole)
        if self.first.kind not in FAULTS:
            return UnminifiedGraph(self.title, self.first.text, self.first)
        second = self.run_trial(whole)
        if not second.same_fault(self.first):
            why = f"it failed once ({self.first.text}), and then it did not fail so: {second.text}"
            return UnminifiedGraph(self.title, why, self.first, flaky=True)
        self.show(whole, self.first)
        return None

    def show(self, cut: CutGraph, first: FaultTrial) -> None:
        """Begin with a cut that shows the fault of this test. Unless it is a hang, tests are stopped from now on after
        TIMES as long as this one took to fail."""
        self.first, self.best = first, None
        self.keep(cut, first)
        if first.kind != "timeout":
            self.limit = max(LEAST_LIMIT, TIMES * first.seconds)

    def run_trial(self, cut: CutGraph) -> FaultTrial:
        """Try a cut, and count it."""
        self.tests += 1
        self.tell(f"{self.title}: test {self.tests}, {cut.operators} of {count_operators(self.whole)} operators")
        return self.trials.run_trial(cut, self.limit)

    def shows(self, cut: CutGraph | None) -> bool:
        """Whether a cut shows the fault; keep the smallest that does. Of a graph that takes too long, a part that is
        wrong raises _WrongSeenError (see `minify`)."""
        if cut is None:
            return False
        trial = self.run_trial(cut)
        if trial.kind == "wrong" and self.first.kind == "timeout":
            raise _WrongSeenError(cut, trial)
        if trial.same_fault(self.first):
            self.keep(cut, trial)
            return True
        if trial.kind:
            self.others[trial.kind if trial.kind != "raised" else trial.error] += 1
        return False

    def keep(self, cut: CutGraph, trial: FaultTrial) -> None:
        """Keep a cut that shows the fault, if none is smaller, and pass it to `smaller`. `trial` is how it failed."""
        if self.best is None or _size_of_cut(cut) <= _size_of_cut(self.best):
            self.best, self.last = cut, trial
            self.smaller(self.result(complete=False))

    def result(self, complete: bool) -> MinifiedGraph:
        """Return the smallest cut so far, with the state of the search."""
        assert self.best is not None
        return MinifiedGraph(
            self.title,
            count_operators(self.whole),
            self.best,
            self.first,
            self.last,
            tests=self.tests,
            seconds=time.monotonic() - self.started,
            others=dict(self.others),
            complete=complete,
        )

    def minify(self, known: RecordedGraph) -> MinifiedGraph:
        """Shrink the graph, whose values and units `known` has. Where it takes too long, and a part of it gives wrong
        results, shrink that part instead: a wrong result is worth more to know, and the machine may only be slow."""
        try:
            return self.result(self.shrink(known))
        except _WrongSeenError as seen:
            self.others["timeout"] += 1
            self.show(seen.cut, seen.trial)
            part = record_values(seen.cut.graph, eager_run(seen.cut.graph, seen.cut.inputs, self.trials.seed))
            return self.result(self.shrink(part))

    def shrink(self, recorded: RecordedGraph) -> bool:
        """Leave out units, then outputs, then steps between others, as far as the tests allow; what is smallest is in
        `best`. Return whether the tests were enough for the units. OUTPUT_TESTS are kept back for outputs."""
        allowed = self.most - self.tests - OUTPUT_TESTS
        search = UnitSearch(lambda units: self.shows(recorded.cut(units)), recorded.producers, allowed)
        search.smallest(len(recorded.units))
        self.fewer_outputs()
        while self.tests < self.most and self.bypass_step():
            pass
        return search.tests < allowed

    def bypass_step(self) -> bool:
        """Try to replace a step by one of its arguments (`CutGraph.bypassing`), the first that works; return whether
        one did."""
        assert self.best is not None
        steps = self.best.graph.steps
        if not 2 < len(steps) <= MOST_BYPASSED:
            return False
        returned = {name for result in self.best.graph.results for name in refs(result)}
        not_returned = [step.name for step in steps if step.name not in returned]
        return any(self.shows(cut) for name in not_returned for cut in self.best.bypassing(name))

    def fewer_outputs(self) -> None:
        """Keep one output alone, a wrong one where outputs are wrong; if no single one shows the fault, all the wrong
        ones."""
        assert self.best is not None
        names = [port.name for port in self.best.graph.outputs]
        wrong = [output.name for output in self.last.outputs]
        # One test is left for all the wrong ones together, below.
        tries: Sequence[Collection[str]] = [[name] for name in reversed(wrong or names)][: OUTPUT_TESTS - 1]
        if len(names) == 1 or any(self.shows(self.best.with_outputs(kept)) for kept in tries):
            return
        if 0 < len(wrong) < len(names):
            self.shows(self.best.with_outputs(wrong))


class _WrongSeenError(Exception):
    """A part of a graph that takes too long gives wrong results."""

    def __init__(self, cut: CutGraph, trial: FaultTrial) -> None:
        super().__init__(trial.text)
        self.cut, self.trial = cut, trial


OUTPUT_TESTS = 6
"""How many tests are for leaving out outputs."""

MOST_BYPASSED = 24
"""The most steps of a graph of which single ones are left out between others."""


def _size_of_cut(cut: CutGraph) -> tuple[int, int, int]:
    """Return the size by which cuts are compared: operators, then outputs, then inputs."""
    return cut.operators, len(cut.graph.outputs), len(cut.inputs)


def begin_search(
    graph: BenchGraph,
    compile: Compile,
    *,
    seed: int = 0,
    limit: float = 60.0,
    memory: int = 0,
    most: int = MOST_TESTS,
    tell: Tell = lambda text: None,
    smaller: Smaller = lambda minified: None,
) -> tuple[_GraphSearch, RecordedGraph] | UnminifiedGraph:
    """Try one graph, and return the search for a smaller one with the graph's values, or why it cannot be minified.
    `limit` are the seconds of a test before any has failed, `memory` the bytes of its process (0: no limit), and `most`
    the number of tests.

    `smaller` is called with each smaller graph that shows the fault. The calling process must have no compiler loaded,
    because each test is forked from it.
    """
    whole = unguarded_graph(graph.graph)
    search = _GraphSearch(graph.title, whole, FaultTrials(compile, seed, memory), limit, most, tell, smaller)
    unminified = search.try_whole_graph(CutGraph(whole, tuple(graph.run.inputs)))
    return unminified or (search, record_values(whole, graph.run))


def minify_graph(graph: BenchGraph, compile: Compile, **options: Any) -> MinifiedGraph | UnminifiedGraph:
    """Shrink one graph; the options are those of `begin_search`."""
    search_or_reason = begin_search(graph, compile, **options)
    if isinstance(search_or_reason, UnminifiedGraph):
        return search_or_reason
    search, recorded = search_or_reason
    return search.minify(recorded)


# ------------------------------------------------------------------ the result as a Capture
#
# The Capture has one Pair without a backward: the graph is its forward, whichever direction it was cut from. Its
# witness is an eager run of this graph. Its inputs are the values that the whole graph had, or drawn anew where the
# fault stays.

FEW = 32
"""Inputs of so many elements are kept as they are."""


@dataclass(frozen=True, slots=True)
class _MinifiedCase:
    """A minified graph as a Capture, with the compiler and its versions."""

    minified_graph: MinifiedGraph
    capture: Capture
    compiler: str
    versions: str

    @property
    def about(self) -> list[str]:
        """The fault as lines for a bug report."""
        minified = self.minified_graph
        lines = [
            f"{self.compiler} ({self.versions}): {minified.last.text}",
            # The first is in the line above.
            *(f"    {output.name}: {output.detail}" for output in minified.last.outputs[1:8]),
            f"It is {self.capture.why[0]}.",
            f"All of that graph: {minified.first.text}" if minified.first.text != minified.last.text else "",
        ]
        return list(filter(None, lines))

    def row(self, backend: str | None, reproduced: bool | None) -> dict[str, Any]:
        """Return the case as plain values. `reproduced` says whether its file shows the fault with a `backend` of
        `torch.compile`; None if the file was not run, or did not end."""
        minified = self.minified_graph
        return {
            "graph": minified.title,
            "compiler": self.compiler,
            "versions": self.versions,
            "kind": minified.last.kind,
            "detail": minified.last.detail,
            "outputs": {output.name: output.detail for output in minified.last.outputs},
            "before": minified.operators,
            "after": minified.cut.operators,
            "calls": [step.target for step in minified.cut.graph.steps],
            "tests": minified.tests,
            "seconds": round(minified.seconds, 2),
            "others": dict(minified.others),
            "complete": minified.complete,
            "backend": backend,
            "reproduced": reproduced,
            "text": minified.text,
        }


def case_of(minified: MinifiedGraph, whole: Capture, inputs: Inputs, compiler: str, versions: str) -> _MinifiedCase:
    """Return a minified graph, which was cut from `whole`, as a Capture with these inputs, and digests of its results
    on them. `compiler` and `versions` are named in what is written about it."""
    inputs_by_name = inputs.make()
    graph = minified.cut.graph
    values = tuple(inputs_by_name[port.local] for port in graph.inputs)
    run = eager_run(graph, values, whole.seed)
    recorded = record_values(graph, run).values
    # Steps get the types that their results have in this run.
    with_specs = replace(graph, steps=tuple(replace(step, spec=spec_of(recorded[step.name])) for step in graph.steps))
    names = [port.name for port in graph.outputs]
    place = f"cut from {minified.title} of {whole.name}: {minified.cut.operators} of its {minified.operators} operators"
    capture = Capture(
        name=f"{whole.name}.minified",
        engine=whole.engine,
        pairs=(Pair("minified", with_specs),),
        signature=Signature(
            arguments=tuple(port.name for port in graph.inputs), output={"tuple": [{"port": name} for name in names]}
        ),
        why=(place, "its witness is an eager run of this graph"),
        environment=whole.environment,
        requires=tuple(sorted({target for _, target in custom_operators(graph)})),
        seed=whole.seed,
        recipes=inputs,
        witness={
            str(PortKey("output", name)): numbers_of(value) for name, value in zip(names, run.results, strict=True)
        },
    )
    return _MinifiedCase(minified, capture, compiler, versions)


def as_program(cut: CutGraph) -> CutGraph:
    """Return a graph as one of tensors alone: numbers among its inputs are written into it, each tensor that a step
    computes is returned once, and every port is an input or an output named by its value."""
    ports = list(zip(cut.graph.inputs, cut.inputs, strict=True))
    numbers = {port.local: value for port, value in ports if not isinstance(value, Tensor)}

    def value_of(name: str) -> Value:
        return numbers.get(name, Ref(name))

    steps = tuple(mapped(step, value_of) for step in cut.graph.steps)
    specs = {step.name: step.spec for step in steps}
    shown = [result.name for result in cut.graph.results if isinstance(result, Ref) and result.name in specs]
    shown = list(dict.fromkeys(shown))
    inputs = tuple(Port(port.local, "input", spec_of(value), local=port.local) for port, value in ports)
    outputs = tuple(Port(name, "output", specs[name]) for name in shown)
    graph = Graph(inputs, steps, outputs, tuple(map(Ref, shown)), cut.graph.subgraphs)
    return CutGraph(graph, tuple(value for _, value in ports)).with_outputs(shown)


def exact_inputs(cut: CutGraph, seed: int) -> Inputs:
    """Return Inputs that keep every value as it is, in place of recipes that draw like ones."""
    values = named_inputs(cut)
    recipes = fit_all(values, seed, exact=list(values))
    return Inputs(recipes, exact_data(values, recipes), seed)


def _drawn_inputs(cut: CutGraph, seed: int) -> Inputs | None:
    """Return inputs of which the larger ones are drawn anew, by recipes fitted to them; None if all are small."""
    values = named_inputs(cut)
    small = [name for name, value in values.items() if value.numel() <= FEW]
    if len(small) == len(values):
        return None
    recipes = fit_all(values, seed, small)
    return Inputs(recipes, exact_data(values, recipes), seed)


def inputs_for(minified: MinifiedGraph, trials: FaultTrials, limit: float) -> Inputs:
    """Return drawn inputs if the graph fails on them in the same way, in one more test of `limit` seconds; else the
    values themselves."""
    recipes = _drawn_inputs(minified.cut, trials.seed)
    if recipes is not None:
        drawn_values = recipes.make()
        cut = replace(minified.cut, inputs=tuple(drawn_values[port.local] for port in minified.cut.graph.inputs))
        if trials.run_trial(cut, limit).same_fault(minified.first):
            return recipes
    return exact_inputs(minified.cut, trials.seed)


def named_inputs(cut: CutGraph) -> dict[str, Tensor]:
    """Return the inputs by name."""
    return {port.local: value for port, value in zip(cut.graph.inputs, cut.inputs, strict=True)}


# ------------------------------------------------------------------ the result on disk


def write_case(case: _MinifiedCase, folder: Path, name: str, backend: str | None, proven: bool) -> Path:
    """Write the case into a folder, as the sample NAME and the file NAME.py; return the file's path.

    Without `proven`, which takes some seconds, the sample's verdict is `unproven`. `backend` is the compiler as the
    file's `--backend` names it; None if the file cannot run it.
    """
    capture = case.capture
    kept = verdict_json(Verdict("unproven", capture.name, "saved while it was minified"))
    values: Sequence[PortValues] = ({},)  # of its one Pair; only a proof has them
    if proven:
        proof = attest(capture)
        kept, values = verdict_json(proof.verdict, proof.power), proof.values
    records = {"witness": capture.witness, "verdict": kept}
    write_staged(capture, folder / name, capture.recipes, records, values, graphnet_writer(run=None))
    place = folder / f"{name}.py"
    return write_export(capture, place, capture.recipes, backend, direction="both", about=case.about)


def shows_fault(file: Path, backend: str, kind: str, limit: float) -> bool | None:
    """Run an exported file with a backend; return whether it ends as a fault of this kind does, None if it does not
    end. The file prints a line like `# … 1 wrong` or `# … 1 failed`, and exits with 1."""
    end = run_command([sys.executable, str(file), "--backend", backend], limit, file.parent)
    if end.cause == TIMEOUT:
        return True if kind == TIMEOUT else None
    if kind in ("crashed", NO_MEMORY):
        return end.cause.startswith("killed by")
    word = {"wrong": "wrong", "raised": "failed"}.get(kind, "")
    return end.cause == "exit 1" and bool(word) and re.search(rf"^# .*\d+ {word}\b", end.printed, re.M) is not None
