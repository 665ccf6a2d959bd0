"""Eager as the judge of a compiler: its results on the same inputs, and whether each result of the compiler is right.

In the order in which a reader meets them: eager on redrawn inputs, the word for each output (`judged_output` is where a
bench asks whether a result is close), the judge of one graph or step, and the moments of random draws.

A graph that returns its draws, as the mask of a dropout, is judged in *lifted* form: eager runs with the compiler's
draws as inputs, and every other result must be eager's. So draws may be the compiler's own, and only have to be like
eager's in a few moments. For any other graph eager draws from the random state that the call had. A step is judged in
two parts: the forward's results, and the gradients by eager's backward on the values that the compiled forward saved.

An `EagerRun` is a graph that ran in eager: its class (`module`), inputs, random state, and its outputs' (role, name)
with their results; `again` runs a function on copies of the inputs from that state. `Eager` adds runs in float64, from
other seeds and with other rounding, each made when it is needed. A BenchGraph is a graph with its EagerRun (`run`), a
BenchStep a forward and a backward. A place is the number of an input or a result. Words for outputs are `bitwise`,
`close`, `wrong`, `random` (it depends on draws of the compiler's own), and `nondeterministic`, where two runs of eager
differ.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from backprint.errors import is_defect
from backprint.graph.nouns import Capture
from backprint.graph.sizes import unguarded_graph
from backprint.judge.closeness import LEAST
from backprint.judge.occasions import fault_at_edge
from backprint.prove.other_inputs import STEPS, redrawn
from backprint.prove.results import has_movement, movement_or_change
from backprint.run_sample import make_inputs
from backprint.tools.bench.calls import AnyGraph, Call, changed_places
from backprint.tools.bench.cells import BenchOutput
from backprint.tools.export.export import content_of, graphs_needed, recipes_needed
from backprint.tools.export.judged import Eager, apart, judged, one_to_the_bit, text_of_kind
from backprint.tools.export.rerun import EagerRun, Program, copies, laid_as_saved, rebuilt
from backprint.tools.graphnet.tolerances import within
from backprint.tools.lowering.subjects import (
    BenchGraph,
    BenchStep,
    LiftedDraws,
    RandomState,
    graph_classes,
    lifted_draws,
    steps_that_draw,
)

# ------------------------------------------------------------------ eager on redrawn inputs
#
# Every input but constants and those that a guard holds is redrawn, tangents too (`sample/redraws`). The graphs run
# from the first forward to the last backward, so that a backward takes values that its forward saved. If a graph does
# not run on a redraw, or gives NaN or infinite numbers where the sample's own inputs give finite ones, the floats move
# by a small step instead.

SEEDS = (0x3D, 0x7B, 0xC5)
"""The seeds of the redraws."""


def redrawn_graphs(
    capture: Capture, graphs: Sequence[BenchGraph], seeds: Sequence[int] = SEEDS
) -> list[list[BenchGraph]]:
    """Return the graphs with their runs on redrawn inputs: a list for each seed for which a redraw has finite results
    wherever the sample's own inputs have. Inputs are drawn farther from the sample's first, and nearer if this fails:
    STEPS has these sizes, from a full redraw on."""
    needed = graphs_needed(capture, "both")
    recipes = recipes_needed(capture, needed, capture.recipes.recipes)
    content = content_of(capture, needed, recipes)
    classes = graph_classes({title: graph for title, (_, graph) in needed.items()})
    values = make_inputs(content["recipes"], list(recipes), capture.recipes.exact)
    graphs_by_seed = []
    for seed in seeds:
        for size in STEPS:
            runs = run_in_eager(capture, content, classes, {**values, **redrawn(capture, recipes, values, seed, size)})
            if runs is not None and all(_as_finite(graph.run, runs[graph.title]) for graph in graphs):
                graphs_by_seed.append([replace(graph, run=runs[graph.title]) for graph in graphs])
                break
    return graphs_by_seed


def run_in_eager(
    capture: Capture, content: Mapping[str, Any], classes: Mapping[str, Any], values: Mapping[str, Tensor]
) -> dict[str, EagerRun] | None:
    """Run every graph on these inputs, from the capture's seed; return their runs by title, None if one raises, as a
    guard does. `content` is what an exported file of the capture has (pairs, links, recipes), and `classes` the classes
    of its graphs by title."""
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


def moving_outputs(run: EagerRun, others: Sequence[EagerRun]) -> tuple[bool, ...]:
    """Return, for each output, whether it moves by its tolerance or more in any of the other runs."""
    return tuple(
        any(has_movement(value) and movement_or_change(value, other.results[place]) >= 1 for other in others)
        for place, value in enumerate(run.results)
    )


# ------------------------------------------------------------------ the word for each output


def judged_output(eager: Eager, place: int, value: Any) -> tuple[str, str]:
    """Return the word for one output of a compiler, by `tools/export/judged`, and the reason; `place` is its number
    among the results of the graph."""
    return judged(eager, place, value)


def output_of_port(role: str, name: str, word: str, detail: str, wanted: Any, value: Any) -> BenchOutput:
    """Return the BenchOutput of one port: its word and detail, the dtype and shape of eager's result (`wanted`) and of
    the compiler's (`value`), whether both are equal, and the tolerances of GraphNet that they are within."""
    dtype, shape = _kind_of_value(wanted)
    compiled_dtype, compiled_shape = _kind_of_value(value)
    return BenchOutput(
        role,
        name,
        word,
        detail,
        dtype=dtype,
        shape=shape,
        compiled_dtype=compiled_dtype,
        compiled_shape=compiled_shape,
        equal=one_to_the_bit(value, wanted),
        within=within(value, wanted),
    )


def _kind_of_value(value: Any) -> tuple[str, tuple[int, ...]]:
    """Return the dtype and the shape of a tensor, or the type of a result that is no tensor."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype).removeprefix("torch."), tuple(value.shape)
    return type(value).__name__, ()


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


# ------------------------------------------------------------------ the judge of a graph or a step


@dataclass
class PartJudge:
    """Eager as the judge of one graph's results. It is kept for all calls of the graph, and for its step."""

    bench: BenchGraph
    """The graph, with its run in eager on the sample's own inputs."""
    unsteady: set[int] = field(default_factory=set)
    """The places of outputs that eager does not repeat."""
    drawn: list[list[Tensor]] = field(default_factory=list)
    """The compiler's draws, a list for each call."""
    followed: bool = True
    """Whether results can be compared one by one. They cannot if the compiler draws in another way, and the graph does
    not return its draws; `opened` says that they were right in a graph that does."""
    opened: bool = False

    @cached_property
    def draws(self) -> bool:
        """Whether the graph draws random numbers."""
        return bool(steps_that_draw(unguarded_graph(self.bench.graph)))

    @cached_property
    def lifted(self) -> LiftedDraws | None:
        """The graph with its draws as inputs, where it returns them; None for a graph that draws nothing, or that does
        not return all its draws."""
        return lifted_draws(unguarded_graph(self.bench.graph)) if self.draws else None

    @cached_property
    def module(self) -> Any:
        """The class that eager runs: the lifted form, where there is one."""
        if self.lifted is None:
            return self.bench.run.module
        (module,) = graph_classes({"lifted": self.lifted.graph}).values()
        return rebuilt(module, inspect.getsource(module))

    @property
    def has_unreturned_draws(self) -> bool:
        """Whether results depend on draws that the graph does not return."""
        return self.draws and self.lifted is None

    def wrong_kind(self, results: Sequence[Any]) -> str:
        """Return which result is of another dtype, shape or type than eager's, or an empty text."""
        for (role, name), wanted, value in zip(self.bench.run.outputs, self.bench.run.results, results, strict=True):
            both = isinstance(wanted, Tensor) and isinstance(value, Tensor)
            if isinstance(value, Tensor) and type(value) not in (Tensor, torch.nn.Parameter):
                return f"{role} {name}: a {type(value).__name__}, which is not a torch.Tensor"
            if isinstance(wanted, Tensor) != isinstance(value, Tensor) or (both and _text(value) != _text(wanted)):
                return f"{role} {name}: {_text(value)} where eager gives {_text(wanted)}"
        return ""

    def eager_run(self, inputs: Sequence[Any], results: Sequence[Any], random: RandomState) -> EagerRun:
        """Return eager's run on these inputs: with the draws among the compiler's results as further inputs of the
        lifted form, or else from this random state, if eager draws."""
        drawn = [results[place] for place in self.lifted.places] if self.lifted else []
        run = EagerRun(self.module, copies([*inputs, *drawn]), random, self.bench.run.outputs, results=())
        return replace(run, results=tuple(run.again(run.module())))

    def fault(self, run: EagerRun, results: Sequence[Any]) -> str:
        """Return which result is wrong by eager's run on the same inputs, or an empty text, also if results cannot be
        compared one by one (`followed`). Note in `unsteady` which outputs eager does not repeat: they are compared no
        more."""
        if not self.followed:
            return ""
        eager = _EagerFromState(run, no_compiled) if self.has_unreturned_draws else Eager(run, no_compiled)
        for place, (value, wanted) in enumerate(zip(results, run.results, strict=True)):
            if place in self.unsteady or _is_as_near(value, wanted):
                continue
            word, detail = judged_output(eager, place, value)
            if word == "nondeterministic":
                self.unsteady.add(place)
            elif word == "wrong":
                role, name = run.outputs[place]
                return f"{role} {name}: {detail}"
        return ""

    def fault_at_edge(self, edge: str, inputs: Sequence[Any], results: Sequence[Any], random: RandomState) -> str:
        """Return which output is wrong at an edge value, or an empty text.

        A program need not take such values: what eager returns counts where it is the same in float64, a number, NaN or
        an infinity, and stays so where its inputs or its operators round otherwise. What is saved is the compiler's own
        matter, and where eager raises there is nothing to compare with.
        """
        try:
            run = self.eager_run(inputs, results, random)
        except Exception as error:
            if is_defect(error):
                raise
            return ""
        eager = Eager(run, no_compiled)
        for place, ((role, name), value, own) in enumerate(zip(run.outputs, results, run.results, strict=True)):
            # `wide` is a text, the reason, where eager does not run in float64.
            if role == "saved" or place in self.unsteady or not _is_dense_float(own) or isinstance(eager.wide, str):
                continue
            exact = eager.wide[place]
            # The runs on nudged inputs and with other rounding, which take longest, are made only where this is wrong.
            if fault_at_edge(edge, value, exact, own):
                moved = [other[place] for other in (*eager.nudged, *eager.rounded)]
                if moved and (reason := fault_at_edge(edge, value, exact, own, moved)):
                    return f"{role} {name}: {reason}"
        return ""

    def outputs_of(self, run: EagerRun, results: Sequence[Any], compiled: Any) -> Iterator[BenchOutput]:
        """Yield each output of a call, judged; if outputs cannot be compared (`followed`), they are `close` where the
        opened graph (`_CompilerTrial.judge_by_draws`) is right, else `random`. `compiled` is the compiled function,
        which is called again where the graph draws."""
        eager = Eager(run, compiled)
        for place, ((role, name), wanted, value) in enumerate(zip(run.outputs, run.results, results, strict=True)):
            word, detail = ("close", BY_DRAWS) if self.opened else ("random", "it was not judged")
            if self.followed:
                word, detail = judged_output(eager, place, value)
            if word == "nondeterministic":
                self.unsteady.add(place)
            yield output_of_port(role, name, word, detail, wanted, value)

    def fault_of_draws(self) -> str:
        """Return which draws of the compiler are not like eager's, or an empty text, also if too few were kept
        (`drawn`)."""
        if self.lifted is None or len(self.drawn) < FEWEST_DRAWS:
            return ""
        torch.seed()  # eager's draws must be others in each trial
        module, places = self.bench.run.module(), self.lifted.places
        drawn_by_eager: list[list[Tensor]] = []
        most = max(FEWEST_DRAWS, MOST_DRAWN_BYTES // max(1, sum(value.nbytes for value in self.drawn[0])))
        for _ in range(min(EAGER_DRAWS, most)):
            results = module(*copies(self.bench.run.inputs))
            drawn_by_eager.append([results[place].clone() for place in places])
        for at, place in enumerate(places):
            eager_draws, compiled_draws = ([draws[at] for draws in calls] for calls in (drawn_by_eager, self.drawn))
            if reason := _differing_moment(eager_draws, compiled_draws):
                role, name = self.bench.run.outputs[place]
                return f"{role} {name} is drawn otherwise than by eager: {reason}"
        return ""


def _is_as_near(value: Any, wanted: Any) -> bool:
    """Whether a result is so near to eager's that it is right by any run in float64: LEAST has for each dtype the error
    that is always allowed."""
    allowed = LEAST.get(wanted.dtype, 0.0) if isinstance(wanted, Tensor) else 0.0
    same_kind = text_of_kind(value) == text_of_kind(wanted)
    return one_to_the_bit(value, wanted) or (allowed > 0 and same_kind and apart(value, wanted) <= allowed)


def _is_dense_float(value: Any) -> bool:
    """Whether edge values can be compared in a result: a strided tensor of real floats."""
    return isinstance(value, Tensor) and value.is_floating_point() and value.layout is torch.strided


BY_DRAWS = "judged with its draws as results"

_text = text_of_kind


class _EagerFromState(Eager):
    """Eager runs of a graph that draws, each from the random state that the compiled graph had: its draws are fixed, so
    it is judged as one that draws nothing, and without float64."""

    # Eager sets `draws` when it runs once more; here it stays False.
    draws = property(lambda self: False, lambda self, value: None)
    wide = "float64 draws other numbers"  # a text in the place of results says why there are none


def no_compiled(*values: Any) -> Any:
    """Stand in for a compiled function, which `judged` calls again only if a graph draws."""
    raise AssertionError("a lifted graph draws nothing")


NONE: Mapping[str, PartJudge] = {}


class GraphJudge:
    """Eager as the judge of a graph, or of both parts of a step. `known` has judges of parts by title, which a step
    takes over from its forward and backward."""

    def __init__(self, graph: AnyGraph, known: Mapping[str, PartJudge] = NONE) -> None:
        self.graph = graph
        self.parts = [known[part.title] if part.title in known else PartJudge(part) for part in parts_of(graph)]

    @property
    def draws(self) -> bool:
        """Whether a part draws random numbers."""
        return any(part.draws for part in self.parts)

    @property
    def has_unreturned_draws(self) -> bool:
        """Whether a part's results depend on draws that it does not return."""
        return any(part.has_unreturned_draws for part in self.parts)

    @property
    def outputs(self) -> list[tuple[str, str]]:
        """Role and name of each result."""
        return [port for part in self.parts for port in part.bench.run.outputs]

    @property
    def kinds(self) -> list[Any]:
        """Eager's results, for their dtypes and shapes."""
        return [value for part in self.parts for value in part.bench.run.results]

    @cached_property
    def written(self) -> list[int]:
        """The places of inputs that eager writes into."""
        places: set[int] = set()
        for part in self.parts:
            own = part.bench.run.inputs
            values = copies(own)
            part.bench.run.module()(*values)
            changed = changed_places(values, own)
            if isinstance(self.graph, BenchStep) and part is self.parts[1]:
                # From places among the backward's inputs to places among the step's: what was saved is none of these.
                changed = [place for saved, place in (self.graph.sources[at] for at in changed) if not saved]
            places |= set(changed)
        return sorted(places)

    def split_by_part(
        self, inputs: Sequence[Any], results: Sequence[Any]
    ) -> list[tuple[PartJudge, list[Any], list[Any]]]:
        """Share the inputs and results of a call out to the parts: return (part, its inputs, its results) for each.
        The backward gets what the compiled forward saved, in the strides that it was compiled for."""
        if not isinstance(self.graph, BenchStep):
            return [(self.parts[0], list(inputs), list(results))]
        input_count, result_count = len(self.graph.forward.graph.inputs), len(self.graph.forward.run.outputs)
        backward_inputs = [results[place] if saved else inputs[place] for saved, place in self.graph.sources]
        for place, stride in self.graph.strides.items():
            backward_inputs[place] = laid_as_saved(backward_inputs[place], stride)
        forward, backward = self.parts
        return [
            (forward, list(inputs[:input_count]), list(results[:result_count])),
            (backward, backward_inputs, list(results[result_count:])),
        ]

    def wrong_kind(self, results: Sequence[Any]) -> str:
        """Return which result has another dtype, shape or type than eager's, or that their number is another; else an
        empty text."""
        if len(results) != len(self.outputs):
            return f"{len(results)} results where eager gives a tuple of {len(self.outputs)}"
        at = 0
        for part in self.parts:
            count = len(part.bench.run.outputs)
            if reason := part.wrong_kind(results[at : at + count]):
                return reason
            at += count
        return ""

    def fault(self, call: Call) -> str:
        """Return why a call is wrong, or an empty text: an input that it changed, or a result that is not eager's. A
        fault does not count where eager's results are no longer finite that are so on the sample's own inputs."""
        if call.changed:
            return f"changes its input {', '.join(self.names_of_inputs[place] for place in call.changed[:4])}"
        if reason := self.wrong_kind(call.results):  # before all others: the backward takes what was saved
            return reason
        for part, inputs, results in self.split_by_part(call.inputs, call.results):
            try:
                run = part.eager_run(inputs, results, call.random)
            except Exception as error:
                if part.lifted is None and not isinstance(self.graph, BenchStep):
                    raise  # eager was given nothing of the compiler's
                return f"eager raises on what it drew or saved: {type(error).__name__}"
            if reason := part.fault(run, results):
                return reason if _as_finite(part.bench.run, run) else ""
        return ""

    @cached_property
    def names_of_inputs(self) -> list[str]:
        """The names of inputs; a step's are its forward's, and then numbers."""
        names = [port.name for port in parts_of(self.graph)[0].graph.inputs]
        count = len(self.graph.inputs if isinstance(self.graph, BenchStep) else names)
        return [*names, *(f"number {place}" for place in range(len(names), count))]

    def outputs_of(self, call: Call, compiled: Any) -> tuple[BenchOutput, ...]:
        """Judge every output of a call."""
        outputs: list[BenchOutput] = []
        for part, inputs, results in self.split_by_part(call.inputs, call.results):
            run = part.eager_run(inputs, results, call.random) if part.followed else part.bench.run
            outputs += part.outputs_of(run, results, compiled)
        return tuple(outputs)

    def keep_drawn(self, call: Call, own: bool) -> None:
        """Keep the draws of a call for `fault_of_draws`, which compares them with draws of eager on the sample's own
        inputs. That is fair if the call ran on these inputs (`own`), or if the draws depend on no inputs (`free`)."""
        for part, _, results in self.split_by_part(call.inputs, call.results):
            if part.lifted and (own or part.lifted.free):
                part.drawn.append([results[place].clone() for place in part.lifted.places])

    def fault_of_draws(self) -> str:
        """Return which draws are not like eager's, or an empty text."""
        return next(filter(None, (part.fault_of_draws() for part in self.parts)), "")


def parts_of(graph: AnyGraph) -> list[BenchGraph]:
    """Return a graph, or the forward and the backward of a step."""
    return [graph.forward, graph.backward] if isinstance(graph, BenchStep) else [graph]


# ------------------------------------------------------------------ the moments of draws
#
# The lifted form takes the compiler's draws for granted, so a mask that drops nothing would be right. Of each draw a
# few means are taken: of the numbers, of their squares and fourth powers, and of the products of each number with its
# neighbor along the first and the last dimension, and with the one in its place in the draw before. Eager's own means,
# from draw to draw, have a spread, and the compiler's may be so many spreads away from eager's.

FEWEST_DRAWS, EAGER_DRAWS, MOST_DRAWN_BYTES = 6, 128, 2**27
"""The fewest draws of a compiler that are looked at, how many of eager they are compared with, and the bytes of these
beyond which there are fewer."""

SPREADS = 7.0
"""How many spreads a mean may be away from eager's."""

ROUNDED = {torch.float16: 0.01, torch.bfloat16: 0.01}
"""How far means may differ in any case, beside the mean of squares: 16-bit draws are rounded to few digits."""

USUALLY_ROUNDED = 0.003
"""The same for draws of other dtypes."""

FEWEST_NUMBERS = 16
"""Fewer numbers in a draw may be the same in two draws by chance."""


def _differing_moment(eager: Sequence[Tensor], compiled: Sequence[Tensor]) -> str:
    """Return which mean of a compiler's draws is not like eager's, or an empty text. Both are draws of one operator, a
    tensor for each call."""
    eager_moments, compiled_moments = _moments(eager), _moments(compiled)
    rounding = ROUNDED.get(eager[0].dtype, USUALLY_ROUNDED)
    scales = {name: float(values.abs().mean()) for name, values in eager_moments.items()}
    mean_square = scales["the square of a number"]
    # A mean of products may be near 0, so its scale is at least the mean of squares.
    scales = {name: max(mean, mean_square) for name, mean in scales.items()} | {"a number": math.sqrt(mean_square)}
    for name, values in eager_moments.items():
        scale = scales[name]
        # Few draws have a spread that is itself uncertain, and no two means are equal to the last digit.
        deviation = max(float(values.std()), 0.05 * scale / math.sqrt(max(eager[0].numel(), 1)))
        # The last factor is that of the standard error of the difference of two means.
        limit = rounding * scale + SPREADS * deviation * math.sqrt(1 / len(values) + 1 / len(compiled_moments[name]))
        compiled_mean, eager_mean = float(compiled_moments[name].mean()), float(values.mean())
        if not abs(compiled_mean - eager_mean) <= limit:  # NaN is a fault too
            return f"the mean of {name} is {compiled_mean:.4g}, of eager's {eager_mean:.4g}"
    return ""


def _moments(draws: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return, by name, a mean of each draw: tensors with a number for each draw, one fewer for products with the draw
    before."""
    rows = torch.stack([draw.detach().cpu() for draw in draws]).double()
    rows = rows.unsqueeze(-1) if rows.dim() == 1 else rows
    products = {"a number": rows, "the square of a number": rows**2, "the fourth power of a number": rows**4}
    for dim, position in ((1, "first"), (-1, "last")):
        if (size := rows.shape[dim]) > 1:
            neighbors_product = rows.narrow(dim, 0, size - 1) * rows.narrow(dim, 1, size - 1)
            products[f"a number times the next along the {position} dimension"] = neighbors_product
    if rows[0].numel() >= FEWEST_NUMBERS:
        products["a number times the one in the draw before"] = rows[1:] * rows[:-1]
    return {name: values.flatten(1).mean(1) for name, values in products.items()}
