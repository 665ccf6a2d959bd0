"""Shrink a graph that a compiler fails on to the smallest that still shows the fault, each test in its own process.

A cut of the graph takes the values that the whole had (`cuts`); `shrink` chooses the cuts, `fault_trials` tries them. A
cut that fails in another way does not count; such ends are counted as `others`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from backprint.benching.cuts import CutGraph, RecordedGraph, count_operators, record_values
from backprint.benching.fault_trials import FAULTS, FaultTrial, FaultTrials
from backprint.benching.shrink import UnitSearch
from backprint.benching.subjects import BenchGraph, Compile
from backprint.graph.fixed import unguarded_graph
from backprint.graph.nouns import Graph, refs

MOST_TESTS = 100

LEAST_LIMIT, TIMES = 10.0, 5.0
"""A test may take this many seconds, or this many times the first failure's."""

SHORT_LIMIT = 3.0
"""The seconds after which a graph that compiles in less hangs, where the fault is that it hangs."""


@dataclass(frozen=True, slots=True)
class MinifiedGraph:
    """The smallest graph that was seen to show a fault, and the search: tests, seconds, ends of other kinds."""

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
    """A graph that there is nothing to minify of, and why: the compiler is right, or fails only sometimes."""

    title: str
    why: str
    first: FaultTrial
    flaky: bool = False


Told = Callable[[str], None]

Smaller = Callable[[MinifiedGraph], None]


@dataclass
class GraphSearch:
    """The search in one graph: what was tried, and the smallest so far."""

    title: str
    whole: Graph
    trials: FaultTrials
    limit: float
    most: int
    told: Told
    smaller: Smaller
    first: FaultTrial = field(default_factory=FaultTrial)
    last: FaultTrial = field(default_factory=FaultTrial)
    best: CutGraph | None = None
    tests: int = 0
    slowest: float = 0.0
    """The most seconds of a test that found nothing wrong; 0 before any."""
    patient: bool = False
    """Whether every test has the whole limit."""
    others: Counter[str] = field(default_factory=Counter)
    started: float = field(default_factory=time.monotonic)

    def tried(self, cut: CutGraph) -> FaultTrial:
        """Try a cut, and count it."""
        self.tests += 1
        self.told(f"{self.title}: test {self.tests}, {cut.operators} of {count_operators(self.whole)} operators")
        return self.trials.tried(cut, self.limit_now)

    @property
    def limit_now(self) -> float:
        """The seconds that the next test may take: a graph hangs sooner once others were seen to be right."""
        if self.first.kind != "timeout" or not self.slowest or self.patient:
            return self.limit
        return min(self.limit, max(SHORT_LIMIT, 2 * TIMES * self.slowest))

    def shows(self, cut: CutGraph | None) -> bool:
        """Whether a cut shows the fault; keep the smallest that does."""
        if cut is None:
            return False
        found = self.tried(cut)
        if not found.same_fault(self.first):
            if found.kind:
                self.others[found.kind if found.kind != "raised" else found.error] += 1
            else:
                self.slowest = max(self.slowest, found.seconds)
            return False
        self.keep(cut, found)
        return True

    def keep(self, cut: CutGraph, found: FaultTrial) -> None:
        """Keep a cut that shows the fault, if it is the smallest."""
        if self.best is None or size_of_cut(cut) <= size_of_cut(self.best):
            self.best, self.last = cut, found
            self.smaller(self.minified(complete=False))

    def minified(self, complete: bool) -> MinifiedGraph:
        """Return the smallest so far."""
        assert self.best is not None
        seconds = time.monotonic() - self.started
        count = count_operators(self.whole)
        ends = (self.tests, seconds, dict(self.others), complete)
        return MinifiedGraph(self.title, count, self.best, self.first, self.last, *ends)

    def minify(self, known: RecordedGraph) -> MinifiedGraph:
        """Shrink, and where the fault is that it hangs, make sure that the result does."""
        whole, found = self.best, self.last
        assert whole is not None
        hangs = self.first.kind == "timeout"
        complete = True
        if not (hangs and self.shows(known.cut((0,)))):  # which says how long a graph takes that does not hang
            complete = self.shrink(known)
        if hangs and self.limit_now < self.limit and not self.confirmed():
            self.best, self.last = whole, found
            complete = self.shrink(known)
        return self.minified(complete)

    def shrink(self, known: RecordedGraph) -> bool:
        """Leave out units, then outputs, then steps between others; return whether the tests were enough."""
        allowed = self.most - self.tests - OUTPUT_TESTS
        search = UnitSearch(lambda units: self.shows(known.cut(units)), known.producers, allowed)
        search.smallest(len(known.units))
        self.fewer_outputs()
        while self.tests < self.most and self.bypassed():
            pass
        return search.tests < allowed

    def bypassed(self) -> bool:
        """Leave out a step between others, whose argument takes its place; return whether the fault is still there."""
        assert self.best is not None
        steps = self.best.graph.steps
        if not 2 < len(steps) <= MOST_BYPASSED:
            return False
        shown = {name for result in self.best.graph.results for name in refs(result)}
        inner = [step.name for step in steps if step.name not in shown]
        return any(self.shows(cut) for name in inner for cut in self.best.bypassing(name))

    def confirmed(self) -> bool:
        """Whether the smallest graph hangs for as long as the whole did, and is not only slow."""
        assert self.best is not None
        self.patient = True
        return self.tried(self.best).same_fault(self.first)

    def fewer_outputs(self) -> None:
        """Leave out outputs: those that are right, then one at a time."""
        assert self.best is not None
        names = [port.name for port in self.best.graph.outputs]
        wrong = [each.name for each in self.last.outputs]
        tries: Sequence[Collection[str]] = [[name] for name in reversed(wrong or names)][: OUTPUT_TESTS - 1]
        if len(names) == 1 or any(self.shows(self.best.with_outputs(asked)) for asked in tries):
            return
        if 0 < len(wrong) < len(names):
            self.shows(self.best.with_outputs(wrong))


OUTPUT_TESTS = 6
"""How many tests are for leaving out outputs."""

MOST_BYPASSED = 24
"""The most steps of a graph of which single ones are left out between others."""


def size_of_cut(cut: CutGraph) -> tuple[int, int, int]:
    """Return how large a cut is: operators, then outputs, then inputs."""
    return cut.operators, len(cut.graph.outputs), len(cut.inputs)


def minify_graph(
    graph: BenchGraph,
    compile: Compile,
    *,
    seed: int = 0,
    limit: float = 60.0,
    memory: int = 0,
    most: int = MOST_TESTS,
    told: Told = lambda text: None,
    smaller: Smaller = lambda found: None,
) -> MinifiedGraph | UnminifiedGraph:
    """Shrink one graph; `limit` are the seconds of a test before any has failed, `most` the tests.

    `smaller` is called with each smaller graph that shows the fault. The calling process must have no compiler loaded.
    """
    whole = unguarded_graph(graph.graph)
    known = record_values(whole, graph.run)
    search = GraphSearch(graph.title, whole, FaultTrials(compile, seed, memory), limit, most, told, smaller)
    given = CutGraph(whole, tuple(graph.run.inputs))
    search.first = search.tried(given)
    if search.first.kind not in FAULTS:
        return UnminifiedGraph(graph.title, search.first.text, search.first)
    again = search.tried(given)
    if not again.same_fault(search.first):
        why = f"it failed once ({search.first.text}), and then it did not fail so: {again.text}"
        return UnminifiedGraph(graph.title, why, search.first, flaky=True)
    search.keep(given, again)
    if search.first.kind != "timeout":
        search.limit = max(LEAST_LIMIT, TIMES * search.first.seconds)
    return search.minify(known)
