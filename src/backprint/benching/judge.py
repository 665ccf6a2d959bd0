"""Judge the results of one graph: eager runs on the inputs of every call, in this process, which has no compiler.

A graph that returns what it draws is run again with what the compiler drew; of another, eager draws from the state that
the call had. A step is judged in two parts: its forward's results, and the gradients by eager's backward on what the
compiled forward saved.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from backprint.benching.cells import BenchOutput
from backprint.benching.distributions import other_distribution
from backprint.benching.draws import LiftedDraws, lifted_draws, steps_that_draw
from backprint.benching.findings import CheatFound
from backprint.benching.judging import judged_outputs, output_of_port
from backprint.benching.moved import as_finite
from backprint.benching.seeds import RandomState
from backprint.benching.subjects import BenchGraph, BenchStep, graph_classes
from backprint.closeness import TOLERANCE
from backprint.graph.fixed import unguarded_graph
from backprint.sample.judged import Eager, apart, judged, nearly_equal, text_of_kind, within_tolerance
from backprint.sample.rerun import EagerRun, copies, laid, rebuilt

AnyGraph = BenchGraph | BenchStep

LEARNED, CERTAIN = 2.0, 4
"""A result so many times as far from eager's as others that were right needs no further look, after
so many of these: on the contents of a single call, what is computed less exactly may be right."""

MOST_LEARNED = 0.02

EAGER_DRAWS, EAGER_SECONDS = 256, 1.0
"""How often eager draws to be compared with, and for how long at most."""

MOST_DRAWS, MOST_DRAWN_BYTES = 512, 2**27
"""How many of a compiler's draws are kept."""


@dataclass
class PartJudge:
    """Eager as the judge of one graph's results."""

    bench: BenchGraph
    learned: dict[int, list[float]] = field(default_factory=dict)
    """Of an output, how far from eager's it was whenever it was judged to be right though beyond its tolerance."""
    unsteady: set[int] = field(default_factory=set)
    """The places of outputs that eager does not repeat."""
    drawn: list[list[Tensor]] = field(default_factory=list)
    """What the compiler drew, a list a call."""
    followed: bool = True
    """Whether results can be compared one by one: not if the compiler draws otherwise what it does not return."""
    by_distribution: bool = False
    """Whether results that cannot were judged by their distribution, and are right."""

    @cached_property
    def draws(self) -> bool:
        """Whether the graph draws random numbers."""
        return bool(steps_that_draw(unguarded_graph(self.bench.graph)))

    @cached_property
    def lifted(self) -> LiftedDraws | None:
        """The graph with its draws as inputs, where it returns them."""
        return lifted_draws(unguarded_graph(self.bench.graph)) if self.draws else None

    @cached_property
    def module(self) -> Any:
        """The class that eager runs: with draws as inputs where there is such a form."""
        return self.bench.run.module if self.lifted is None else class_of(self.lifted)

    @cached_property
    def function(self) -> Any:
        """Eager, as it is called often."""
        return self.module()

    @property
    def by_stream(self) -> bool:
        """Whether results depend on draws that the graph does not return."""
        return self.draws and self.lifted is None

    def inputs(self, inputs: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        """Return what eager takes to be compared with these results: the inputs, and what was drawn."""
        return [*inputs, *(results[place] for place in self.lifted.places)] if self.lifted else list(inputs)

    def wrong_kind(self, results: Sequence[Any]) -> str:
        """Return which result is of another dtype, shape or type than eager's, or an empty text."""
        for (role, name), wanted, found in zip(self.bench.run.outputs, self.bench.run.results, results, strict=True):
            tensors = isinstance(wanted, Tensor) and isinstance(found, Tensor)
            if tensors and text_of_kind(wanted) != text_of_kind(found):
                return f"{role} {name}: {text_of_kind(found)} where eager gives {text_of_kind(wanted)}"
            if isinstance(wanted, Tensor) != isinstance(found, Tensor):
                return f"{role} {name}: {text_of_kind(found)} where eager gives {text_of_kind(wanted)}"
        return ""

    def eager_run(self, inputs: Sequence[Any], results: Sequence[Any], random: RandomState) -> EagerRun:
        """Return eager's run on these inputs, with what was drawn; from this random state if it draws itself."""
        run = EagerRun(self.module, copies(self.inputs(inputs, results)), random, self.bench.run.outputs, ())
        return replace(run, results=tuple(run.again(run.module())))

    def disagreement(self, run: EagerRun, results: Sequence[Any]) -> str:
        """Return which result is wrong by eager's run on the same inputs, or an empty text."""
        if not self.followed:
            return ""
        eager = EagerFromState(run, no_compiled) if self.by_stream else Eager(run, no_compiled)
        for place, (value, wanted) in enumerate(zip(results, run.results, strict=True)):
            if place in self.unsteady or within_tolerance(value, wanted) or self.is_learned(place, value, wanted):
                continue
            word, detail = judged(eager, place, value)
            if word == "nondeterministic":
                self.unsteady.add(place)
            elif word == "wrong":
                role, name = run.outputs[place]
                return f"{role} {name}: {detail}"
            elif isinstance(value, Tensor):
                self.learned.setdefault(place, []).append(apart(value, wanted))
        return ""

    def is_learned(self, place: int, value: Any, wanted: Any) -> bool:
        """Whether a result is about as far from eager's as those that were judged to be right."""
        known = self.learned.get(place, ())
        if len(known) < CERTAIN or text_of_kind(value) != text_of_kind(wanted):
            return False
        return apart(value, wanted) <= min(LEARNED * max(known), MOST_LEARNED)

    def quick_agreement(self, inputs: Sequence[Any], results: Sequence[Any]) -> bool:
        """Whether results are within their tolerances of eager's on these inputs, which eager may write into."""
        if not self.followed:
            return True
        wanted = self.function(*self.inputs(inputs, results))
        return all(
            place in self.unsteady or quickly_near(value, other)
            for place, (value, other) in enumerate(zip(results, wanted, strict=True))
        )

    # -------------------------------------------------------------- draws

    def keep_drawn(self, results: Sequence[Any]) -> None:
        """Keep what a call drew."""
        if self.lifted and len(self.drawn) < MOST_DRAWS:
            drawn = [results[place] for place in self.lifted.places]
            if sum(value.nbytes for value in drawn) * (len(self.drawn) + 1) <= MOST_DRAWN_BYTES or len(self.drawn) < 8:
                self.drawn.append([value.clone() for value in drawn])

    @cached_property
    def eager_drawn(self) -> list[list[Tensor]]:
        """What eager draws, from many states, on the sample's own inputs."""
        module, places = self.bench.run.module(), self.lifted.places if self.lifted else ()
        torch.seed()
        found: list[list[Tensor]] = []
        began = time.perf_counter()
        while len(found) < EAGER_DRAWS and (len(found) < 24 or time.perf_counter() - began < EAGER_SECONDS):
            results = module(*copies(self.bench.run.inputs))
            found.append([results[place].clone() for place in places])
            if sum(value.nbytes for value in found[-1]) * len(found) > MOST_DRAWN_BYTES:
                break
        return found

    def check_drawn(self) -> None:
        """Raise if what the compiler drew has another distribution than what eager draws."""
        if self.lifted is None or not self.drawn:
            return
        for at, place in enumerate(self.lifted.places):
            own, its = [each[at] for each in self.eager_drawn], [each[at] for each in self.drawn]
            if reason := other_distribution(own, its):
                role, name = self.bench.run.outputs[place]
                raise CheatFound(f"{role} {name} is drawn otherwise than by eager: {reason}")


def class_of(lifted: LiftedDraws) -> Any:
    """Return the class of a graph with its draws as inputs."""
    (made,) = graph_classes({"lifted": lifted.graph}).values()
    return rebuilt(made, inspect.getsource(made))


class EagerFromState(Eager):
    """Eager runs of a graph that draws, each from the random state that the compiled graph had: its draws are fixed."""

    draws = property(lambda self: False, lambda self, value: None)
    wide = "float64 draws other numbers"


def no_compiled(*values: Any) -> Any:
    """Stand for a compiled function where none is asked, because eager draws nothing."""
    raise AssertionError("a lifted graph draws nothing")


def quickly_near(value: Any, wanted: Any) -> bool:
    """Whether a result is equal to eager's or well within its tolerance; what is not sure is not near."""
    if not isinstance(value, Tensor) or not isinstance(wanted, Tensor):
        return type(value) is type(wanted) and bool(value == wanted)
    if value.layout is not torch.strided or wanted.layout is not torch.strided or value.dtype is not wanted.dtype:
        return False
    if value.shape != wanted.shape or value.device != wanted.device:
        return False
    if torch.equal(value, wanted):
        return True
    if not value.is_floating_point() or wanted.is_conj() or value.dtype.itemsize < 2:
        return False
    tolerance = TOLERANCE.get(str(value.dtype)[6:], 0.0)
    difference = torch.linalg.vector_norm(
        (value - wanted).float() if value.dtype.itemsize < 4 else value - wanted, torch.inf
    )
    size = torch.linalg.vector_norm(wanted.float() if value.dtype.itemsize < 4 else wanted, torch.inf)
    return float(difference) <= 0.9 * tolerance * float(size) < torch.inf


NONE: Mapping[str, PartJudge] = {}


class GraphJudge:
    """Eager as the judge of a graph, or of both parts of a step."""

    def __init__(self, graph: AnyGraph, known: Mapping[str, PartJudge] = NONE) -> None:
        self.graph = graph
        self.parts = [known[part.title] if part.title in known else PartJudge(part) for part in parts_of(graph)]

    @property
    def by_stream(self) -> bool:
        """Whether a part's results depend on draws that it does not return."""
        return any(part.by_stream for part in self.parts)

    @property
    def draws(self) -> bool:
        """Whether a part draws."""
        return any(part.draws for part in self.parts)

    @property
    def outputs(self) -> list[tuple[str, str]]:
        """Role and name of each result."""
        return [port for part in self.parts for port in part.bench.run.outputs]

    @property
    def kinds(self) -> list[Any]:
        """Results of eager that show what each result is like."""
        return [value for part in self.parts for value in part.bench.run.results]

    def shared_out(self, inputs: Sequence[Any], results: Sequence[Any]) -> list[tuple[PartJudge, list[Any], list[Any]]]:
        """Return each part with its inputs and its results among those of a call."""
        if not isinstance(self.graph, BenchStep):
            return [(self.parts[0], list(inputs), list(results))]
        count, inner = len(self.graph.forward.graph.inputs), len(self.graph.forward.run.outputs)
        taken = [results[place] if saved else inputs[place] for saved, place in self.graph.sources]
        for place, stride in self.graph.strides.items():
            taken[place] = laid(taken[place], stride)
        forward, backward = self.parts
        return [(forward, list(inputs[:count]), list(results[:inner])), (backward, taken, list(results[inner:]))]

    def wrong_kind(self, results: Sequence[Any]) -> str:
        """Return which result is of another kind than eager's, or an empty text."""
        if len(results) != len(self.outputs):
            return f"{len(results)} results where eager gives {len(self.outputs)}"
        at = 0
        for part in self.parts:
            count = len(part.bench.run.outputs)
            if reason := part.wrong_kind(results[at : at + count]):
                return reason
            at += count
        return ""

    def fault(self, inputs: Sequence[Any], results: Sequence[Any], random: RandomState) -> str:
        """Return why the results of a call are wrong, or an empty text."""
        if reason := self.wrong_kind(results):  # first of all: the backward takes what was saved
            return reason
        for part, given, found in self.shared_out(inputs, results):
            try:
                run = part.eager_run(given, found, random)
            except Exception as error:
                if part.lifted is None and not isinstance(self.graph, BenchStep):
                    raise
                return f"eager raises on what it drew or saved: {type(error).__name__}"
            if reason := part.disagreement(run, found):
                return reason if as_finite(part.bench.run, run) else ""
        return ""

    def outputs_of(
        self, inputs: Sequence[Any], results: Sequence[Any], random: RandomState, compiled: Any
    ) -> tuple[BenchOutput, ...]:
        """Judge every output of the first call; of a step those that a caller sees."""
        found: list[BenchOutput] = []
        for part, given, values in self.shared_out(inputs, results):
            if not part.followed:
                found += unfollowed_outputs(part, values)
                continue
            run = part.eager_run(given, values, random)
            outputs = judged_outputs(Eager(run, compiled), values)
            for place, output in enumerate(outputs):
                if output.word == "nondeterministic":
                    part.unsteady.add(place)
            found += outputs
        return tuple(found)

    def agrees_quickly(self, inputs: Sequence[Any], results: Sequence[Any]) -> bool:
        """Whether all results are near eager's; eager is called once, and may write into the inputs."""
        return all(part.quick_agreement(given, found) for part, given, found in self.shared_out(inputs, results))

    def keep_drawn(self, inputs: Sequence[Any], results: Sequence[Any], own: bool) -> None:
        """Keep what a call drew; `own` says that it had the sample's own inputs."""
        if self.draws:
            for part, _, found in self.shared_out(inputs, results):
                if part.lifted and (own or part.lifted.free):
                    part.keep_drawn(found)

    def check_drawn(self) -> None:
        """Raise if draws have another distribution than eager's."""
        for part in self.parts:
            part.check_drawn()


def unfollowed_outputs(part: PartJudge, results: Sequence[Any]) -> list[BenchOutput]:
    """Return outputs that cannot be compared one by one, with the word that they had in their own graph."""
    word, detail = ("close", "judged by distribution") if part.by_distribution else ("random", "it was not judged")
    ports = zip(part.bench.run.outputs, part.bench.run.results, results, strict=True)
    return [output_of_port(role, name, word, detail, wanted, value) for (role, name), wanted, value in ports]


def parts_of(graph: AnyGraph) -> list[BenchGraph]:
    """Return the graphs of which results are judged one by one."""
    return [graph.forward, graph.backward] if isinstance(graph, BenchStep) else [graph]


def other_values(eager: Sequence[Sequence[Any]], found: Sequence[Sequence[Any]], place: int) -> str:
    """Return how a result's distribution differs from eager's, from many calls on the same inputs, or an empty text.

    Each element is measured by the mean and the spread that half of eager's runs give it.
    """
    own = torch.stack([each[place].detach().double().reshape(-1) for each in eager])
    its = torch.stack([each[place].detach().double().reshape(-1) for each in found])
    half = len(own) // 2
    if not bool(torch.isfinite(its).all()):
        return "" if not bool(torch.isfinite(own).all()) else "it has NaN or Inf, eager never has"
    mean, spread = own[:half].mean(0), own[:half].std(0)
    fixed = (own == own[0]).all(0)
    size = max(float(own.abs().max()), 1e-30)
    tolerance = TOLERANCE.get(str(eager[0][place].dtype)[6:], 0.0)
    if bool(((its - own[0]).abs().amax(0)[fixed] > 10 * tolerance * size).any()):
        return "elements that are the same in every eager run have other values"
    moving = ~fixed & (spread > 0)
    if not bool(moving.any()):
        return ""
    rows = [((each - mean) / spread)[:, moving].float() for each in (own[half:], its)]
    return other_distribution(*(list(each) for each in rows))


def same_values(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Whether results that are held are what they were."""
    return len(left) == len(right) and all(map(nearly_same, left, right))


def nearly_same(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor) and isinstance(right, Tensor) and left.layout is not torch.strided:
        return nearly_equal(left, right)
    if not isinstance(left, Tensor) or not isinstance(right, Tensor):
        return type(left) is type(right)
    return left.shape == right.shape and (torch.equal(left, right) or bool(((left == right) | (left != left)).all()))
