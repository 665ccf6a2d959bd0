"""Run the graphs of a Capture in eager on other inputs, to see which outputs move and to check compilers on them.

Every input but constants and those that a guard holds is redrawn, tangents too (`sample/redraws`), and the graphs run
from the first forward to the last backward, so that what a backward takes was saved by its forward. If a graph does not
run on a redraw, or gives no finite numbers where the sample's own inputs do, the floats move by a small step instead.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from backprint.bench.cells import BenchOutput
from backprint.bench.clocks import CheatFound
from backprint.bench.scores import TOLERANCES
from backprint.graph.links import free_ports
from backprint.graph.nouns import Capture
from backprint.graph.sizes import unguarded_graph
from backprint.lowering.subjects import (
    BenchGraph,
    BenchStep,
    LiftedDraws,
    RandomState,
    graph_classes,
    lifted_draws,
    steps_that_draw,
)
from backprint.replaying.other_inputs import held_by_guards
from backprint.replaying.results import moves, strength
from backprint.sample.alone import make_inputs
from backprint.sample.export import content_of, graphs_needed, recipes_needed
from backprint.sample.judged import (
    Eager,
    apart,
    judged,
    nearly_equal,
    one_to_the_bit,
    strided,
    text_of_kind,
    within_tolerance,
)
from backprint.sample.redraws import another, units
from backprint.sample.rerun import EagerRun, Program, copies, laid, rebuilt
from backprint.values.closeness import TOLERANCE

STEPS = (None, 2**-6, 2**-10)
"""How far floats move: to a redraw, or by a share of their size."""

SEEDS = (0x3D, 0x7B)
"""One redraw of all graphs each."""


def moved_graphs(
    capture: Capture, graphs: Sequence[BenchGraph], seeds: Sequence[int] = SEEDS
) -> list[list[BenchGraph]]:
    """Return the graphs with the run of each on redrawn inputs, once a seed; fewer if no redraw keeps them finite."""
    needed = graphs_needed(capture, "both")
    recipes = recipes_needed(capture, needed, capture.recipes.recipes)
    content = content_of(capture, needed, recipes)
    classes = graph_classes({title: graph for title, (_, graph) in needed.items()})
    made = make_inputs(content["recipes"], list(recipes), capture.recipes.exact)
    found = []
    for seed in seeds:
        for size in STEPS:
            runs = played(capture, content, classes, {**made, **redrawn(capture, recipes, made, seed, size)})
            if runs is not None and all(as_finite(graph.run, runs[graph.title]) for graph in graphs):
                found.append([replace(graph, run=runs[graph.title]) for graph in graphs])
                break
    return found


def redrawn(
    capture: Capture, recipes: Mapping[str, Any], made: Mapping[str, Tensor], seed: int, size: float | None
) -> dict[str, Tensor]:
    """Return other values for inputs and tangents."""
    fixed = held_by_guards(capture) | {port.name for port in free_ports(capture) if port.role == "constant"}
    found: dict[str, Tensor] = {}
    for names in units(recipes).values():
        if all(name in made and name not in fixed for name in names):
            found |= another(names, recipes, made, seed, step=size) or {}
    return found


def played(
    capture: Capture, content: Mapping[str, Any], classes: Mapping[str, Any], made: Mapping[str, Tensor]
) -> dict[str, EagerRun] | None:
    """Run every graph; return None if one raises on these inputs, as guards do."""
    torch.manual_seed(capture.seed)
    try:
        return Program(content, classes, made, copies=True).play()
    except Exception:  # a program may raise anything on other values
        return None


def as_finite(run: EagerRun, other: EagerRun) -> bool:
    """Whether another run's results have finite numbers only wherever the first run's have."""
    pairs = zip(run.results, other.results, strict=True)
    return all(finite(second) or not finite(first) for first, second in pairs)


def finite(value: Any) -> bool:
    """Whether a result has neither NaN nor an infinite number."""
    return not isinstance(value, Tensor) or value.layout is not torch.strided or bool(torch.isfinite(value).all())


def movement(run: EagerRun, others: Sequence[EagerRun]) -> tuple[bool, ...]:
    """Return which outputs of a graph move by a tolerance or more in any of the other runs."""
    return tuple(
        any(moves(value) and strength(value, other.results[place]) >= 1 for other in others)
        for place, value in enumerate(run.results)
    )


# ----------------------------------------------------------------------------
# Judge a compiler's results: each output against eager and float64, and within GraphNet's tolerances.
# ----------------------------------------------------------------------------


def judged_outputs(eager: Eager, results: Sequence[Any]) -> tuple[BenchOutput, ...]:
    """Judge every output of a compiler."""
    ports = zip(eager.run.outputs, eager.run.results, results, strict=True)
    return tuple(
        output_of_port(role, name, *judged(eager, index, value), wanted, value)
        for index, ((role, name), wanted, value) in enumerate(ports)
    )


def output_of_port(role: str, name: str, word: str, detail: str, wanted: Any, value: Any) -> BenchOutput:
    """Return one output as plain values."""
    dtype, shape = kind_of_value(wanted)
    return BenchOutput(
        role,
        name,
        word,
        detail,
        dtype,
        shape,
        *kind_of_value(value),
        one_to_the_bit(value, wanted),
        within(value, wanted),
    )


def kind_of_value(value: Any) -> tuple[str, tuple[int, ...]]:
    """Return the dtype and the shape of a tensor, or the type of another result."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype).removeprefix("torch."), tuple(value.shape)
    return type(value).__name__, ()


def within(value: Any, wanted: Any) -> tuple[int, ...]:
    """Return the places of GraphNet's tolerances that an output is within."""
    if not isinstance(value, torch.Tensor) or not isinstance(wanted, torch.Tensor):
        return ()
    kinds = ((each.shape, each.dtype, each.layout, each.device) for each in (value, wanted))
    if next(kinds) != next(kinds):
        return ()
    if not (wanted.is_floating_point() or wanted.is_complex()):
        return ()
    if value.layout is torch.strided and torch.equal(value, wanted) and bool(torch.isfinite(wanted).all()):
        return tuple(range(len(TOLERANCES)))
    least = least_tolerances(strided(value)[-1], strided(wanted)[-1])
    return tuple(place for place, tolerance in enumerate(TOLERANCES) if least(tolerance.atol, tolerance.rtol))


def least_tolerances(value: torch.Tensor, wanted: torch.Tensor) -> Callable[[float, float], bool]:
    """Return whether a tensor is within (atol, rtol), as torch.allclose says of two without NaN."""
    if value.shape != wanted.shape:
        return lambda atol, rtol: False
    finite = torch.isfinite(wanted) & torch.isfinite(value)
    if not bool((finite | (value == wanted)).all()):
        return lambda atol, rtol: False
    wide = torch.complex128 if wanted.is_complex() else torch.float64
    left, right = value[finite].to(wide), wanted[finite].to(wide)
    difference, size = (left - right).abs(), right.abs()
    return lambda atol, rtol: bool((difference <= atol + rtol * size).all())


def outcome_of_outputs(outputs: Sequence[BenchOutput]) -> tuple[str, str]:
    """Return `wrong`, `random`, `nondeterministic`, or '' if all outputs are right, and the reason.

    A saved value that eager does not repeat, such as a workspace, leaves the other outputs to judge by.
    """
    for word in ("wrong", "random", "nondeterministic"):
        bad = [output for output in outputs if output.word == word]
        if bad and not (word == "nondeterministic" and others_tell(outputs)):
            return word, named_first(bad)
    return "", ""


def others_tell(outputs: Sequence[BenchOutput]) -> bool:
    """Whether eager repeats every output that is not saved for the backward, and there are such."""
    shown = [output.word for output in outputs if output.role != "saved"]
    return bool(shown) and "nondeterministic" not in shown


def notes_of_outputs(outputs: Sequence[BenchOutput]) -> tuple[str, ...]:
    """Return a note that names what was not judged."""
    bad = [output for output in outputs if output.word == "nondeterministic"]
    return (f"not judged: {named_first(bad)}",) if bad else ()


def named_first(outputs: Sequence[BenchOutput]) -> str:
    """Name the first output and what is said of it, and count the others."""
    more = f" (and {len(outputs) - 1} more)" if len(outputs) > 1 else ""
    return f"{outputs[0].role} {outputs[0].name}: {outputs[0].detail}{more}"


# ----------------------------------------------------------------------------
# Whether a compiler's random numbers have the distribution of eager's, from many draws of each.
#
# A number is looked at by its *marks*: which of eager's few values it is, or between which of eager's deciles it
#  lies. Four things are compared: how often each mark is there in a draw, how often neighbors have the same one,
#  whether each element's marks change from draw to draw as eager's do, and whether a draw comes twice. The first two
#  are compared with eager's own spread from draw to draw, so elements that depend on each other are no reason to
#  accuse. Every limit is at six and a half standard deviations or more: chance passes one less than once in 10^10
#  comparisons.
# ----------------------------------------------------------------------------

LIMIT = 6.5
"""Standard deviations."""

FEW_VALUES = 16

FEWEST = 6
"""Draws of the compiler from which on it is judged."""

SLACK = {torch.float16: 0.01, torch.bfloat16: 0.01}
"""How far shares may differ in any case: eager's own 16-bit draws are rounded to few digits."""

USUAL_SLACK = 0.003

SAME = 1e-3, 2e-2
"""How far a value may be from one of eager's to be the same, relative to the largest: of 32 bits and of 16."""

DISTINCT_BITS = 70.0
"""Two draws of more bits than this are never equal."""

MOST_ELEMENTS = 2**24
"""Numbers of all draws of one kind that are looked at, at most."""


def other_distribution(eager: Sequence[Tensor], found: Sequence[Tensor]) -> str:
    """Return how a compiler's draws differ from eager's, or an empty text."""
    if len(found) < FEWEST or not eager or not eager[0].numel():
        return ""
    wanted, drawn = stacked(eager), stacked(found)
    if not bool(torch.isfinite(drawn).all()) and bool(torch.isfinite(wanted).all()):
        return "it draws NaN or Inf, eager never does"
    slack = SLACK.get(eager[0].dtype, USUAL_SLACK)
    values = torch.unique(wanted)
    discrete = len(values) <= FEW_VALUES
    own, its = (marks(each, values, eager[0].dtype) for each in (wanted, drawn))
    shape = eager[0].shape
    for mark in range(int(own.max()) + 2):
        name = name_of(mark, values, discrete)
        if reason := compared_shares(own == mark, its == mark, slack):
            return f"{name} is {reason}"
    for dim in (-1, 0):
        if len(shape) > (0 if dim else 1) and shape[dim] > 1:
            pair = (alike(each, shape, dim) for each in (own, its))
            if reason := compared_shares(next(pair), next(pair), slack):
                return f"a neighbor with the same value is {reason}"
    return repeated(own, its, drawn) or ""


def stacked(draws: Sequence[Tensor]) -> Tensor:
    """Return draws as the rows of one tensor."""
    most = max(FEWEST, MOST_ELEMENTS // draws[0].numel())
    return torch.stack([draw.detach().reshape(-1).cpu() for draw in draws[:most]]).double()


def marks(rows: Tensor, values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return which of eager's values each number is, one more than there are if it is none; or its decile."""
    if len(values) > FEW_VALUES:
        places = torch.linspace(0, len(values) - 1, 11).long()[1:-1]
        return torch.bucketize(rows, values[places].contiguous())
    near = max(float(values.abs().max()), 1e-30) * SAME[dtype in SLACK] if dtype.is_floating_point else 0.5
    nearest = (
        torch.bucketize(rows, (values[1:] + values[:-1]) / 2) if len(values) > 1 else torch.zeros_like(rows).long()
    )
    return torch.where((rows - values[nearest]).abs() <= near, nearest, len(values))


def name_of(mark: int, values: Tensor, discrete: bool) -> str:
    """Return the name of a mark."""
    if not discrete:
        return f"a number of eager's decile {mark + 1}"
    return f"the value {float(values[mark]):g}" if mark < len(values) else "a value that eager never draws"


def compared_shares(own: Tensor, its: Tensor, slack: float) -> str:
    """Return two shares if they differ by more than chance: of rows of eager's draws, and of the compiler's."""
    wanted, found = own.double().mean(1), its.double().mean(1)
    elements, count = own.shape[1], own.numel()
    share = (float(own.sum()) + 1) / (count + 2)  # of what eager did not happen to draw, too
    spread = max(float(wanted.var()) if len(wanted) > 1 else 0.0, share * (1 - share) / elements)
    by = abs(float(found.mean()) - float(wanted.mean()))
    limit = slack + LIMIT * math.sqrt(spread * (1 / len(wanted) + 1 / len(found))) * (1 + 8 / len(wanted))
    return f"drawn {float(found.mean()):.4f} of the time, by eager {float(wanted.mean()):.4f}" if by > limit else ""


def alike(marked: Tensor, shape: Sequence[int], dim: int) -> Tensor:
    """Return, of each draw, which elements have the mark of their neighbor."""
    folded = marked.view(marked.shape[0], *shape)
    at = dim if dim < 0 else dim + 1
    size = folded.shape[at]
    return (folded.narrow(at, 0, size - 1) == folded.narrow(at, 1, size - 1)).flatten(1)


def repeated(own: Tensor, its: Tensor, drawn: Tensor) -> str:
    """Return whether elements are drawn once for all, or draws come again."""
    columns = len(torch.unique(own, dim=1)[0]) if len(own) >= 24 else 0
    if columns < 16:
        return ""
    count = max(int(own.max()), int(its.max())) + 1
    one, other = (torch.stack([(each == mark).double().mean(0) for mark in range(count)]) for each in (own, its))
    share = one.mul(len(own)).add(other.mul(len(its))).add(1 / count).div(len(own) + len(its) + 1)
    variance = (share * (1 - share)).clamp_min(1e-9) * (1 / len(own) + 1 / len(its))
    excess = float(((one - other).square() / variance)[share.sum(1) > 0.02 * share.shape[1]].mean())
    if excess > 2 + 1.5 * LIMIT * math.sqrt(2 / columns):
        return "elements do not change from draw to draw as eager's do"
    collision = float(torch.stack([(own == mark).double().mean().square() for mark in range(count)]).sum())
    bits = -columns * math.log2(min(max(collision, 1e-9), 1.0))
    if bits > DISTINCT_BITS and len(torch.unique(drawn, dim=0)) < len(drawn):
        return "the same numbers are drawn in two calls"
    return ""


# ----------------------------------------------------------------------------
# Judge the results of one graph: eager runs on the inputs of every call, in this process, which has no compiler.
#
# A graph that returns what it draws is run again with what the compiler drew; of another, eager draws from the state
#  that the call had. A step is judged in two parts: its forward's results, and the gradients by eager's backward on
#  what the compiled forward saved.
# ----------------------------------------------------------------------------

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
