"""Eager as the judge of a compiler: its results on the same inputs, and whether each result of the compiler is right.

Eager runs in the judging process, which loads no compiler. In the order in which a reader meets them: eager on redrawn
inputs, the word for each output, draws of random numbers that are judged by their distribution, and the judge of one
graph or step, which uses the three.
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

from backprint.graph.nouns import Capture
from backprint.graph.sizes import unguarded_graph
from backprint.prove.results import moves, strength
from backprint.run_sample import make_inputs
from backprint.tools.bench.cells import BenchOutput
from backprint.tools.bench.scores import TOLERANCES
from backprint.tools.export.export import content_of, graphs_needed, recipes_needed
from backprint.tools.export.judged import (
    Eager,
    apart,
    judged,
    nearly_equal,
    one_to_the_bit,
    strided,
    text_of_kind,
    within_tolerance,
)
from backprint.tools.export.rerun import EagerRun, Program, copies, laid_as_saved, rebuilt
from backprint.tools.lowering.subjects import (
    BenchGraph,
    BenchStep,
    LiftedDraws,
    RandomState,
    graph_classes,
    lifted_draws,
    steps_that_draw,
)
from backprint.tools.measuring.clocks import CheatFound
from backprint.tools.measuring.contents import STEPS, redrawn
from backprint.values.closeness import TOLERANCE

# ------------------------------------------------------------------ eager on redrawn inputs
#
# Every input but constants and those that a guard holds is redrawn, tangents too (`sample/redraws`). The graphs run
# from the first forward to the last backward, so that a backward takes values that its forward saved. If a graph does
# not run on a redraw, or gives NaN or infinite numbers where the sample's own inputs give finite ones, the floats move
# by a small step instead.

SEEDS = (0x3D, 0x7B)
"""The seeds of the redraws."""


def redrawn_graphs(
    capture: Capture, graphs: Sequence[BenchGraph], seeds: Sequence[int] = SEEDS
) -> list[list[BenchGraph]]:
    """Return the graphs with their runs on redrawn inputs, a list for each seed that has a redraw with finite
    results."""
    needed = graphs_needed(capture, "both")
    recipes = recipes_needed(capture, needed, capture.recipes.recipes)
    content = content_of(capture, needed, recipes)
    classes = graph_classes({title: graph for title, (_, graph) in needed.items()})
    values = make_inputs(content["recipes"], list(recipes), capture.recipes.exact)
    graphs_by_seed = []
    for seed in seeds:
        for size in STEPS:
            runs = played(capture, content, classes, {**values, **redrawn(capture, recipes, values, seed, size)})
            if runs is not None and all(_as_finite(graph.run, runs[graph.title]) for graph in graphs):
                graphs_by_seed.append([replace(graph, run=runs[graph.title]) for graph in graphs])
                break
    return graphs_by_seed


def played(
    capture: Capture, content: Mapping[str, Any], classes: Mapping[str, Any], values: Mapping[str, Tensor]
) -> dict[str, EagerRun] | None:
    """Run every graph; return None if one raises on these inputs, as a guard does."""
    torch.manual_seed(capture.seed)
    try:
        return Program(content, classes, values, copies=True).play()
    except Exception:  # a program may raise anything on other values
        return None


def _as_finite(run: EagerRun, other: EagerRun) -> bool:
    """Whether each result of another run is finite wherever the first run's is."""
    pairs = zip(run.results, other.results, strict=True)
    return all(finite(second) or not finite(first) for first, second in pairs)


def finite(value: Any) -> bool:
    """Whether a result has neither NaN nor infinite numbers."""
    return not isinstance(value, Tensor) or value.layout is not torch.strided or bool(torch.isfinite(value).all())


def movement(run: EagerRun, others: Sequence[EagerRun]) -> tuple[bool, ...]:
    """Return, for each output, whether it moves by its tolerance or more in any of the other runs."""
    return tuple(
        any(moves(value) and strength(value, other.results[place]) >= 1 for other in others)
        for place, value in enumerate(run.results)
    )


# ------------------------------------------------------------------ the word for each output


def _judged_outputs(eager: Eager, results: Sequence[Any]) -> tuple[BenchOutput, ...]:
    """Judge every output of a compiler."""
    ports = zip(eager.run.outputs, eager.run.results, results, strict=True)
    return tuple(
        output_of_port(role, name, *judged(eager, index, value), wanted, value)
        for index, ((role, name), wanted, value) in enumerate(ports)
    )


def output_of_port(role: str, name: str, word: str, detail: str, wanted: Any, value: Any) -> BenchOutput:
    """Return the BenchOutput of one port: its word, and both dtypes and shapes."""
    dtype, shape = _kind_of_value(wanted)
    return BenchOutput(
        role,
        name,
        word,
        detail,
        dtype,
        shape,
        *_kind_of_value(value),
        one_to_the_bit(value, wanted),
        within(value, wanted),
    )


def _kind_of_value(value: Any) -> tuple[str, tuple[int, ...]]:
    """Return the dtype and the shape of a tensor, or the type of a result that is no tensor."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype).removeprefix("torch."), tuple(value.shape)
    return type(value).__name__, ()


def within(value: Any, wanted: Any) -> tuple[int, ...]:
    """Return the indices of GraphNet's TOLERANCES that an output is within."""
    if not isinstance(value, torch.Tensor) or not isinstance(wanted, torch.Tensor):
        return ()
    kinds = ((tensor.shape, tensor.dtype, tensor.layout, tensor.device) for tensor in (value, wanted))
    if next(kinds) != next(kinds):
        return ()
    if not (wanted.is_floating_point() or wanted.is_complex()):
        return ()
    if value.layout is torch.strided and torch.equal(value, wanted) and bool(torch.isfinite(wanted).all()):
        return tuple(range(len(TOLERANCES)))
    least = _least_tolerances(strided(value)[-1], strided(wanted)[-1])
    return tuple(place for place, tolerance in enumerate(TOLERANCES) if least(tolerance.atol, tolerance.rtol))


def _least_tolerances(value: torch.Tensor, wanted: torch.Tensor) -> Callable[[float, float], bool]:
    """Return a function of (atol, rtol) that says what torch.allclose says of tensors without NaN."""
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
        if bad and not (word == "nondeterministic" and _others_are_repeated(outputs)):
            return word, _named_first(bad)
    return "", ""


def _others_are_repeated(outputs: Sequence[BenchOutput]) -> bool:
    """Whether there are outputs that are not saved for the backward, and eager repeats all of them."""
    shown = [output.word for output in outputs if output.role != "saved"]
    return bool(shown) and "nondeterministic" not in shown


def notes_of_outputs(outputs: Sequence[BenchOutput]) -> tuple[str, ...]:
    """Return a note that names the outputs that were not judged."""
    bad = [output for output in outputs if output.word == "nondeterministic"]
    return (f"not judged: {_named_first(bad)}",) if bad else ()


def _named_first(outputs: Sequence[BenchOutput]) -> str:
    """Return the name and the detail of the first output, and the number of the others."""
    more = f" (and {len(outputs) - 1} more)" if len(outputs) > 1 else ""
    return f"{outputs[0].role} {outputs[0].name}: {outputs[0].detail}{more}"


# ------------------------------------------------------------------ the distribution of random numbers, from many draws
#
# Each number has a *mark*: which of eager's few values it is, or between which of eager's deciles it lies. Four
# statistics of the marks are compared: how often each mark occurs in a draw, how often neighbors have the same mark,
# whether each element's marks change from draw to draw as eager's do, and whether a draw occurs twice. The first two
# are compared with eager's own spread from draw to draw, so elements that depend on each other are not called wrong.
# Every limit is at six and a half standard deviations or more: chance alone exceeds one in less than one of 10^10
# comparisons.

LIMIT = 6.5
"""Standard deviations."""

FEW_VALUES = 16

FEWEST = 6
"""Draws of the compiler from which on it is judged."""

SLACK = {torch.float16: 0.01, torch.bfloat16: 0.01}
"""How far shares may differ in any case: eager's own 16-bit draws are rounded to few digits."""

USUAL_SLACK = 0.003

SAME = 1e-3, 2e-2
"""How far a value may be from one of eager's to count as that value, relative to the largest: of 32 bits, of 16
bits."""

DISTINCT_BITS = 70.0
"""Two draws of more bits than this are never equal."""

MOST_ELEMENTS = 2**24
"""The most numbers of all draws of one output that are compared."""


def _other_distribution(eager: Sequence[Tensor], compiled: Sequence[Tensor]) -> str:
    """Return how a compiler's draws differ from eager's, or an empty text."""
    if len(compiled) < FEWEST or not eager or not eager[0].numel():
        return ""
    wanted, drawn = _stacked(eager), _stacked(compiled)
    if not bool(torch.isfinite(drawn).all()) and bool(torch.isfinite(wanted).all()):
        return "it draws NaN or Inf, eager never does"
    slack = SLACK.get(eager[0].dtype, USUAL_SLACK)
    values = torch.unique(wanted)
    discrete = len(values) <= FEW_VALUES
    own_marks, its_marks = (marks(rows, values, eager[0].dtype) for rows in (wanted, drawn))
    shape = eager[0].shape
    for mark in range(int(own_marks.max()) + 2):
        name = name_of(mark, values, discrete)
        if reason := _compared_shares(own_marks == mark, its_marks == mark, slack):
            return f"{name} is {reason}"
    for dim in (-1, 0):
        if len(shape) > (0 if dim else 1) and shape[dim] > 1:
            pair = (alike(rows, shape, dim) for rows in (own_marks, its_marks))
            if reason := _compared_shares(next(pair), next(pair), slack):
                return f"a neighbor with the same value is {reason}"
    return repeated(own_marks, its_marks, drawn) or ""


def _stacked(draws: Sequence[Tensor]) -> Tensor:
    """Return draws as the rows of one tensor."""
    most = max(FEWEST, MOST_ELEMENTS // draws[0].numel())
    return torch.stack([draw.detach().reshape(-1).cpu() for draw in draws[:most]]).double()


def marks(rows: Tensor, values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the mark of each number: the index of eager's value that it is (their count if it is none), or its
    decile."""
    if len(values) > FEW_VALUES:
        places = torch.linspace(0, len(values) - 1, 11).long()[1:-1]
        return torch.bucketize(rows, values[places].contiguous())
    near = max(float(values.abs().max()), 1e-30) * SAME[dtype in SLACK] if dtype.is_floating_point else 0.5
    nearest = (
        torch.bucketize(rows, (values[1:] + values[:-1]) / 2) if len(values) > 1 else torch.zeros_like(rows).long()
    )
    return torch.where((rows - values[nearest]).abs() <= near, nearest, len(values))


def name_of(mark: int, values: Tensor, discrete: bool) -> str:
    """Return a mark's name in messages."""
    if not discrete:
        return f"a number of eager's decile {mark + 1}"
    return f"the value {float(values[mark]):g}" if mark < len(values) else "a value that eager never draws"


def _compared_shares(own: Tensor, its: Tensor, slack: float) -> str:
    """Return a text with two shares of a mark, eager's and the compiler's, if they differ by more than chance; else
    ""."""
    wanted, drawn = own.double().mean(1), its.double().mean(1)
    elements, count = own.shape[1], own.numel()
    share = (float(own.sum()) + 1) / (count + 2)  # Laplace's rule: a mark that eager did not happen to draw is possible
    # Elements of one draw may depend on each other, as the heads of a shared mask do: then shares vary more from draw
    # to draw than independent elements would, and the larger of the two spreads counts.
    spread = max(float(wanted.var()) if len(wanted) > 1 else 0.0, share * (1 - share) / elements)
    difference = abs(float(drawn.mean()) - float(wanted.mean()))
    limit = slack + LIMIT * math.sqrt(spread * (1 / len(wanted) + 1 / len(drawn))) * (1 + 8 / len(wanted))
    return (
        f"drawn {float(drawn.mean()):.4f} of the time, by eager {float(wanted.mean()):.4f}"
        if difference > limit
        else ""
    )


def alike(marked: Tensor, shape: Sequence[int], dim: int) -> Tensor:
    """Return, for each draw, which elements have the same mark as their neighbor along a dimension."""
    grid = marked.view(marked.shape[0], *shape)
    axis = dim if dim < 0 else dim + 1
    size = grid.shape[axis]
    return (grid.narrow(axis, 0, size - 1) == grid.narrow(axis, 1, size - 1)).flatten(1)


def repeated(own: Tensor, its: Tensor, drawn: Tensor) -> str:
    """Return a text if elements do not change between draws as eager's do, or if a draw occurs twice; else ""."""
    # Elements that are drawn together count once: eager's own draws show which columns are distinct.
    columns = len(torch.unique(own, dim=1)[0]) if len(own) >= 24 else 0
    if columns < 16:
        return ""
    count = max(int(own.max()), int(its.max())) + 1
    own_shares, its_shares = (
        torch.stack([(rows == mark).double().mean(0) for mark in range(count)]) for rows in (own, its)
    )
    share = own_shares.mul(len(own)).add(its_shares.mul(len(its))).add(1 / count).div(len(own) + len(its) + 1)
    variance = (share * (1 - share)).clamp_min(1e-9) * (1 / len(own) + 1 / len(its))
    excess = float(((own_shares - its_shares).square() / variance)[share.sum(1) > 0.02 * share.shape[1]].mean())
    if excess > 2 + 1.5 * LIMIT * math.sqrt(2 / columns):
        return "elements do not change from draw to draw as eager's do"
    # The entropy of a draw bounds how likely two equal ones are: a mask of few elements repeats by chance.
    collision = float(torch.stack([(own == mark).double().mean().square() for mark in range(count)]).sum())
    bits = -columns * math.log2(min(max(collision, 1e-9), 1.0))
    if bits > DISTINCT_BITS and len(torch.unique(drawn, dim=0)) < len(drawn):
        return "the same numbers are drawn in two calls"
    return ""


# ------------------------------------------------------------------ the judge of a graph or a step
#
# A graph that returns its draws is run in eager with the compiler's draws as inputs. For any other graph, eager draws
# from the random state that the call had. A step is judged in two parts: the forward's results, and the gradients by
# eager's backward on the values that the compiled forward saved.

AnyGraph = BenchGraph | BenchStep

LEARNED, CERTAIN = 2.0, 4
"""A result beyond its tolerance needs no float64 comparison if CERTAIN results of the same output were found right, and
it is at most LEARNED times as far from eager's as the farthest of them."""

MOST_LEARNED = 0.02

EAGER_DRAWS, EAGER_SECONDS = 256, 1.0
"""The number of eager's draws that the compiler's are compared with, and the most seconds that they take."""

MOST_DRAWS, MOST_DRAWN_BYTES = 512, 2**27
"""The most draws of a compiler that are kept, and their bytes."""


@dataclass
class PartJudge:
    """Eager as the judge of one graph's results."""

    bench: BenchGraph
    learned: dict[int, list[float]] = field(default_factory=dict)
    """Output -> its distances from eager's result in calls where it was right though beyond its tolerance."""
    unsteady: set[int] = field(default_factory=set)
    """The places of outputs that eager does not repeat."""
    drawn: list[list[Tensor]] = field(default_factory=list)
    """The compiler's draws, a list for each call."""
    followed: bool = True
    """Whether results can be compared one by one. They cannot if the compiler draws in another way, and the graph does
    not return its draws."""
    by_distribution: bool = False
    """Whether results that cannot be compared one by one have eager's distribution."""

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
        """The class that eager runs: the lifted form, where there is one."""
        return self.bench.run.module if self.lifted is None else _lifted_class(self.lifted)

    @cached_property
    def function(self) -> Any:
        """An instance of the module, for calls that are only compared."""
        return self.module()

    @property
    def by_stream(self) -> bool:
        """Whether results depend on draws that the graph does not return."""
        return self.draws and self.lifted is None

    def inputs(self, inputs: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        """Return eager's inputs for a comparison with these results: the inputs, and the compiler's draws."""
        return [*inputs, *(results[place] for place in self.lifted.places)] if self.lifted else list(inputs)

    def wrong_kind(self, results: Sequence[Any]) -> str:
        """Return which result is of another dtype, shape or type than eager's, or an empty text."""
        for (role, name), wanted, value in zip(self.bench.run.outputs, self.bench.run.results, results, strict=True):
            tensors = isinstance(wanted, Tensor) and isinstance(value, Tensor)
            if tensors and text_of_kind(wanted) != text_of_kind(value):
                return f"{role} {name}: {text_of_kind(value)} where eager gives {text_of_kind(wanted)}"
            if isinstance(wanted, Tensor) != isinstance(value, Tensor):
                return f"{role} {name}: {text_of_kind(value)} where eager gives {text_of_kind(wanted)}"
        return ""

    def eager_run(self, inputs: Sequence[Any], results: Sequence[Any], random: RandomState) -> EagerRun:
        """Return eager's run on these inputs with the compiler's draws, or from this random state if eager draws."""
        run = EagerRun(self.module, copies(self.inputs(inputs, results)), random, self.bench.run.outputs, ())
        return replace(run, results=tuple(run.again(run.module())))

    def disagreement(self, run: EagerRun, results: Sequence[Any]) -> str:
        """Return which result is wrong by eager's run on the same inputs, or an empty text."""
        if not self.followed:
            return ""
        eager = _EagerFromState(run, no_compiled) if self.by_stream else Eager(run, no_compiled)
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
        """Whether all results are within their tolerances of eager's; eager may write into the inputs."""
        if not self.followed:
            return True
        wanted = self.function(*self.inputs(inputs, results))
        return all(
            place in self.unsteady or _quickly_near(value, other)
            for place, (value, other) in enumerate(zip(results, wanted, strict=True))
        )

    # -------------------------------------------------------------- draws

    def keep_drawn(self, results: Sequence[Any]) -> None:
        """Keep the draws of a call."""
        if self.lifted and len(self.drawn) < MOST_DRAWS:
            drawn = [results[place] for place in self.lifted.places]
            if sum(value.nbytes for value in drawn) * (len(self.drawn) + 1) <= MOST_DRAWN_BYTES or len(self.drawn) < 8:
                self.drawn.append([value.clone() for value in drawn])

    @cached_property
    def eager_drawn(self) -> list[list[Tensor]]:
        """Eager's draws from many random states, on the sample's own inputs."""
        module, places = self.bench.run.module(), self.lifted.places if self.lifted else ()
        torch.seed()
        draws: list[list[Tensor]] = []
        began = time.perf_counter()
        while len(draws) < EAGER_DRAWS and (len(draws) < 24 or time.perf_counter() - began < EAGER_SECONDS):
            results = module(*copies(self.bench.run.inputs))
            draws.append([results[place].clone() for place in places])
            if sum(value.nbytes for value in draws[-1]) * len(draws) > MOST_DRAWN_BYTES:
                break
        return draws

    def check_drawn(self) -> None:
        """Raise CheatFound if the compiler's draws have another distribution than eager's."""
        if self.lifted is None or not self.drawn:
            return
        for at, place in enumerate(self.lifted.places):
            own, its = [draws[at] for draws in self.eager_drawn], [draws[at] for draws in self.drawn]
            if reason := _other_distribution(own, its):
                role, name = self.bench.run.outputs[place]
                raise CheatFound(f"{role} {name} is drawn otherwise than by eager: {reason}")


def _lifted_class(lifted: LiftedDraws) -> Any:
    """Return the class of a graph with its draws as inputs."""
    (module,) = graph_classes({"lifted": lifted.graph}).values()
    return rebuilt(module, inspect.getsource(module))


class _EagerFromState(Eager):
    """Eager runs of a graph that draws, each from the random state that the compiled graph had: its draws are fixed."""

    draws = property(lambda self: False, lambda self, value: None)
    wide = "float64 draws other numbers"


def no_compiled(*values: Any) -> Any:
    """Stand in for a compiled function where none is called, because the graph draws nothing."""
    raise AssertionError("a lifted graph draws nothing")


def _quickly_near(value: Any, wanted: Any) -> bool:
    """Whether a result is surely equal to eager's or well within its tolerance; False where a full comparison is
    needed."""
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
        """Eager's results, for their dtypes and shapes."""
        return [value for part in self.parts for value in part.bench.run.results]

    def shared_out(self, inputs: Sequence[Any], results: Sequence[Any]) -> list[tuple[PartJudge, list[Any], list[Any]]]:
        """Return (part, its inputs, its results) for each part of a call."""
        if not isinstance(self.graph, BenchStep):
            return [(self.parts[0], list(inputs), list(results))]
        count, inner = len(self.graph.forward.graph.inputs), len(self.graph.forward.run.outputs)
        backward_inputs = [results[place] if saved else inputs[place] for saved, place in self.graph.sources]
        for place, stride in self.graph.strides.items():
            backward_inputs[place] = laid_as_saved(backward_inputs[place], stride)
        forward, backward = self.parts
        return [
            (forward, list(inputs[:count]), list(results[:inner])),
            (backward, backward_inputs, list(results[inner:])),
        ]

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
        for part, part_inputs, part_results in self.shared_out(inputs, results):
            try:
                run = part.eager_run(part_inputs, part_results, random)
            except Exception as error:
                if part.lifted is None and not isinstance(self.graph, BenchStep):
                    raise
                return f"eager raises on what it drew or saved: {type(error).__name__}"
            if reason := part.disagreement(run, part_results):
                return reason if _as_finite(part.bench.run, run) else ""
        return ""

    def outputs_of(
        self, inputs: Sequence[Any], results: Sequence[Any], random: RandomState, compiled: Any
    ) -> tuple[BenchOutput, ...]:
        """Judge every output of the first call of all parts."""
        outputs: list[BenchOutput] = []
        for part, part_inputs, values in self.shared_out(inputs, results):
            if not part.followed:
                outputs += _unfollowed_outputs(part, values)
                continue
            run = part.eager_run(part_inputs, values, random)
            part_outputs = _judged_outputs(Eager(run, compiled), values)
            for place, output in enumerate(part_outputs):
                if output.word == "nondeterministic":
                    part.unsteady.add(place)
            outputs += part_outputs
        return tuple(outputs)

    def agrees_quickly(self, inputs: Sequence[Any], results: Sequence[Any]) -> bool:
        """Whether all results are near eager's; eager is called once, and may write into the inputs."""
        return all(
            part.quick_agreement(part_inputs, part_results)
            for part, part_inputs, part_results in self.shared_out(inputs, results)
        )

    def keep_drawn(self, inputs: Sequence[Any], results: Sequence[Any], own: bool) -> None:
        """Keep the draws of a call; `own` says that it ran on the sample's own inputs."""
        if self.draws:
            for part, _, part_results in self.shared_out(inputs, results):
                if part.lifted and (own or part.lifted.free):
                    part.keep_drawn(part_results)

    def check_drawn(self) -> None:
        """Raise if draws have another distribution than eager's."""
        for part in self.parts:
            part.check_drawn()


def _unfollowed_outputs(part: PartJudge, results: Sequence[Any]) -> list[BenchOutput]:
    """Return outputs that cannot be compared one by one: `close` if their distribution was right, else `random`."""
    word, detail = ("close", "judged by distribution") if part.by_distribution else ("random", "it was not judged")
    ports = zip(part.bench.run.outputs, part.bench.run.results, results, strict=True)
    return [output_of_port(role, name, word, detail, wanted, value) for (role, name), wanted, value in ports]


def parts_of(graph: AnyGraph) -> list[BenchGraph]:
    """Return a graph, or the forward and the backward of a step."""
    return [graph.forward, graph.backward] if isinstance(graph, BenchStep) else [graph]


def other_values(eager: Sequence[Sequence[Any]], compiled: Sequence[Sequence[Any]], place: int) -> str:
    """Return how a result's distribution differs from eager's, from many calls on the same inputs, or an empty text.

    Each element is measured by the mean and the spread that half of eager's runs give it.
    """
    own = torch.stack([results[place].detach().double().reshape(-1) for results in eager])
    its = torch.stack([results[place].detach().double().reshape(-1) for results in compiled])
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
    rows = [((results - mean) / spread)[:, moving].float() for results in (own[half:], its)]
    return _other_distribution(*(list(results) for results in rows))


def same_values(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Whether two lists of results are the same; NaN equals NaN."""
    return len(left) == len(right) and all(map(_nearly_same, left, right))


def _nearly_same(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor) and isinstance(right, Tensor) and left.layout is not torch.strided:
        return nearly_equal(left, right)
    if not isinstance(left, Tensor) or not isinstance(right, Tensor):
        return type(left) is type(right)
    return left.shape == right.shape and (torch.equal(left, right) or bool(((left == right) | (left != left)).all()))
