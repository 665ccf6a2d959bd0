"""The smallest part of a Pair whose backward is still not the derivative of its forward, as a Capture of its own.

A wrong backward is named by its call: a custom autograd.Function, or an operator (`derive/locate`). The part is the
steps of that call, cut out of the Pair as `tools/parts` cuts. What the other calls pass it, the right gradients of its
results, and what it hands on for its inputs are looked up among the values of the backward, by their numbers in
float64; the steps between them are the part's backward. Nothing is left out that the whole computes there, so its fault
is the whole's. The part counts only if the fault is found in it too.

- The whole is the Pair whose backward is wrong, or its Capture; a part is a Pair of some of its steps.
- `Setting`: a Pair in float64 with drawn inputs and tangents, and what forward and backward return for them.
- `WrongPlace`: steps of the forward whose gradients are wrong; `inputs` are the values that they take from other steps,
  `returned` what the backward has for the gradients of these.
- `Search`: the values of both directions of a Setting, and the right gradients, which autograd of the forward computes.
- `Derivative`: the verdict on a Pair's backward, a `word` with its `detail` and the wrong places.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from backprint import api
from backprint.derive.check import CONVENTIONS, LIMIT_BY_DIFFERENCES, MAX_DRAWS, describe_place, inputs_of_pairs
from backprint.derive.locate import NEAR, Search, WrongPlace, locate, locate_formulas
from backprint.derive.setting import (
    CannotTell,
    NotFinite,
    Setting,
    backward_product,
    forward_product,
    gap_of,
    make_setting,
    with_one_name,
)
from backprint.errors import BackprintError
from backprint.graph.keys import PortKey
from backprint.graph.nouns import (
    GONE,
    NO_FUNCTIONS,
    Capture,
    Graph,
    OpaqueEdge,
    Pair,
    Port,
    Signature,
    Step,
    TensorSpec,
)
from backprint.graph.sizes import unguarded_graph
from backprint.graph.steps import names_behind, used
from backprint.graph.text import emit_class
from backprint.graph.verdicts import NOT_THE_DERIVATIVE, Derivative
from backprint.judge.closeness import distance
from backprint.prove.power import graph_in_float64
from backprint.tools.bench.cuts import count_operators, record_values
from backprint.tools.export.export import write_export
from backprint.tools.lowering.subjects import BenchGraph
from backprint.tools.parts.cuts import ForwardPart
from backprint.tools.parts.flow import BorderGradients, BorderNames, PartBackward, saved_values
from backprint.tools.parts.split import PartOrigin, pair_of, recipes_of, required_operators, spec_of_gradient


@dataclass(frozen=True, slots=True)
class SmallestPart:
    """The smallest part of a Pair whose backward is not the derivative: its Capture, and what is known of its backward
    and of the whole's. `tests` parts were tried."""

    title: str
    operators: int
    """How many operators both graphs of the whole call."""
    capture: Capture
    whole: Derivative
    derivative: Derivative
    tests: int

    @property
    def pair(self) -> Pair:
        """The part."""
        return self.capture.pairs[0]

    @property
    def left(self) -> int:
        """How many operators both graphs of the part call."""
        return operators_of(self.pair)

    @property
    def text(self) -> str:
        """The result in a line."""
        return f"{self.operators} operators -> {self.left}: {self.derivative.word} ({self.derivative.detail})"

    @property
    def about(self) -> list[str]:
        """The fault as lines for a bug report."""
        return [
            f"The backward is {self.derivative.word}: {self.derivative.detail}",
            *(f"    {place}" for place in self.derivative.wrong),
            f"It is {self.capture.why[0]}.",
        ]

    def row(self) -> dict[str, Any]:
        """Return the part as plain values."""
        pair = self.pair
        assert pair.backward is not None
        gap = self.derivative.gap
        return {
            "graph": self.title,
            "derivative": self.derivative.word,
            "detail": self.derivative.detail,
            "gap": gap if gap is not None and math.isfinite(gap) else None,
            "ports": list(self.derivative.ports),
            "functions": list(dict.fromkeys(place.function for place in self.derivative.wrong if place.function)),
            "wrong": list(map(str, self.derivative.wrong)),
            "before": self.operators,
            "after": self.left,
            "calls": [step.target for step in pair.forward.steps],
            "backward_calls": [step.target for step in pair.backward.steps],
            "tests": self.tests,
            "text": self.text,
        }


def write_part(part: SmallestPart, folder: Path, name: str) -> Path:
    """Write a part into a folder, as the sample NAME and the file NAME.py; return the file's path.

    The file shows the fault by differences too, if all ports are dense tensors and it calls PyTorch's operators alone.
    """
    api.save(part.capture, folder / name)
    place, recipes = folder / f"{name}.py", part.capture.recipes
    write_export(part.capture, place, recipes, backend=None, direction="both", about=part.about)
    imports_and_graphs, main, rest = place.read_text("utf-8").rpartition(MAIN)
    if part.capture.requires or not _has_dense_tensors(part.pair):
        return place
    text = f"{imports_and_graphs}{_differences_text(part.pair)}{main}    beside_differences()\n{rest}"
    place.write_text(text, "utf-8")
    return place


MAIN = 'if __name__ == "__main__":\n'
"""The line of an exported file before the one that runs its graphs."""


def _has_dense_tensors(pair: Pair) -> bool:
    """Whether all ports of a Pair are strided tensors of known sizes."""
    graphs = list(pair.graphs)
    specs = [port.spec for graph in graphs for port in (*graph.inputs, *graph.outputs)]
    return not any(graph.symbols for graph in graphs) and all(
        isinstance(spec, TensorSpec) and spec.layout == "strided" for spec in specs
    )


def _differences_text(pair: Pair) -> str:
    """Return the function of a part's file that compares its backward with differences of its forward, after the
    classes of graphs that have other steps in float64."""
    backward = pair.backward
    assert backward is not None
    places = {port.key: place for place, port in enumerate(pair.forward.outputs)}
    # An exported file names the values of tangents `tangent NAME`, and all other values as their ports.
    tangents = [(places[PortKey("output", port.name)], f"tangent {port.name}") for port in backward.by_role("tangent")]
    inputs = [port.name for port in pair.forward.inputs]
    names = {port.key: f"tangent {port.name}" if port.role == "tangent" else port.name for port in backward.inputs}
    # Each input of the backward: the place of a saved value among the forward's results, or the name of another value.
    sources = [places[key] if key.role == "saved" else name for key, name in names.items()]
    gradients = [port.name for port in backward.outputs]
    text, classes = "", {}  # the names of the classes that compute the two graphs in float64
    for name, graph in (("Forward", pair.forward), ("Backward", backward)):
        wide = graph_in_float64(graph)
        classes[name] = name if wide.steps == graph.steps else f"{name}InFloat64"
        if wide.steps != graph.steps:
            text += "\n".join(emit_class(wide, classes[name], "")) + "\n\n\n"
    places_of = {"inputs": inputs, "tangents": tangents, "sources": sources, "gradients": gradients}
    return text + DIFFERENCES.format(**places_of, forward=classes["Forward"], backward=classes["Backward"])


DIFFERENCES = '''def beside_differences():
    """Print the product of each gradient with a random direction of its input, beside differences of the forward along
    it, both in float64."""
    inputs, tangents = {inputs}, {tangents}
    sources, gradients = {sources}, {gradients}
    values = make_inputs()
    for name, value in values.items():
        if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
            values[name] = value.to(torch.complex128 if value.is_complex() else torch.float64)
    for _, name in tangents:
        values[name] = torch.randn_like(values[name])

    def results(values):
        torch.manual_seed(0)
        return {forward}()(*(copy.deepcopy(values[name]) for name in inputs))

    def product(left, right):
        return float((left.conj() * right).real.sum())

    own = results(values)
    returned = {backward}()(*(own[source] if isinstance(source, int) else values[source] for source in sources))
    for name, gradient in zip(gradients, returned):
        direction, step = torch.randn_like(values[name]), 1e-5 * float(values[name].abs().max())
        by_backward = 0.0 if gradient is None else product(gradient, direction)
        sides = []
        for way in (1, -1):
            moved = results({{**values, name: values[name] + way * step * direction}})
            sides.append(sum(product(values[other], moved[place]) for place, other in tangents))
        by_differences = (sides[0] - sides[1]) / (2 * step)
        print(f"# along {{name}}: {{by_backward:.6g}} by the backward, {{by_differences:.6g}} by differences")


'''
"""Part of the file of a part, with the names and places of its ports."""


def operators_of(pair: Pair) -> int:
    """Return how many operators the two graphs of a Pair call."""
    return sum(count_operators(graph) for graph in pair.graphs)


def smallest_part(
    capture: Capture, number: int, whole: Derivative, graphs: Sequence[BenchGraph]
) -> SmallestPart | None:
    """Find the call that makes a Pair's backward wrong, and return its steps as a part; None if no part shows the
    fault. `number` is the Pair's, and `whole` what `bp.derivative` says of its backward.

    `graphs` are the graphs of the Capture, run in eager: the part's inputs have the values that they had there.
    """
    pair = with_one_name(capture.pairs[number], capture.signature.same)
    assert pair.backward is not None
    pair = Pair(pair.name, unguarded_graph(pair.forward), unguarded_graph(pair.backward))
    values = _values_of_pair(number, graphs)
    smallest = SmallestPart(f"pair_{number} backward", operators_of(pair), capture, whole, whole, tests=0)
    for candidate in _candidates(capture, number, pair):
        cut = _cut_of(pair, candidate)
        if cut is None:
            continue
        part, exact_part = (_capture_of_cut(capture, number, pair, *cut, values, exact) for exact in (False, True))
        derivative = _derivative_of_part(part, capture)
        smallest = replace(smallest, tests=smallest.tests + 1)
        if has_fault(derivative, whole):
            # Without its origin, a Capture is asked about on inputs that its recipes draw. Exact values make a large
            # sample: they are kept only if the fault is not there on drawn ones.
            on_drawn_inputs = _derivative_of_part(replace(part, origin=GONE), capture)
            return replace(
                smallest, capture=part if has_fault(on_drawn_inputs, whole) else exact_part, derivative=derivative
            )
    return None


def _values_of_pair(number: int, graphs: Sequence[BenchGraph]) -> dict[PortKey, Any]:
    """Return all values of the two graphs of a Pair in their runs in eager. The key of a value is its direction, in the
    place of a port's role, and its name in the graph."""
    values: dict[PortKey, Any] = {}
    for bench in graphs:
        title, _, direction = bench.title.partition(" ")
        if title == f"pair_{number}":
            recorded = record_values(unguarded_graph(bench.graph), bench.run).values
            values |= {PortKey(direction, local): value for local, value in recorded.items()}
    return values


def _derivative_of_part(part: Capture, whole: Capture) -> Derivative:
    """Return whether the backward of a part is the derivative, at the values that it had in the whole, or at values
    that its recipes draw if its origin is GONE. Of the places that the author of the whole means, those in the part
    count."""
    functions_of_part = {edge.function for edge in part.opaque} | set(NO_FUNCTIONS)
    meant = tuple(name for name in whole.meant if name in functions_of_part)
    # Wrong places are looked for with usual tangents alone (`_locate_in_draws`), so parts are asked with these too.
    (derivative,) = api.derivative(part, meant=meant, hostile=False)
    return derivative


def has_fault(part: Derivative, whole: Derivative) -> bool:
    """Whether a part is not the derivative, at a place where the whole is not; at any place, if it is unknown where the
    whole is not."""
    if part.word != NOT_THE_DERIVATIVE:
        return False
    places_of_part, places_of_whole = (
        {(place.function, place.at) for place in derivative.wrong} for derivative in (part, whole)
    )
    return not places_of_whole or bool(places_of_part & places_of_whole)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Steps of the forward to try as a part, with a wrong place among them. `before` are the wrong places nearer to the
    results: what the backward returned for these is taken for right, so that each place answers for its own fault."""

    search: Search
    place: WrongPlace
    before: Sequence[WrongPlace]
    steps: tuple[Step, ...]


def _candidates(capture: Capture, number: int, pair: Pair) -> Iterator[_Candidate]:
    """Yield each wrong place that the author does not mean with its steps, then with the steps that take its results,
    too, because the strides of a gradient may come from these. Places in a custom Function come first, because others
    may follow from them. Of a loop, one place stands for all: places with one line and the same operators count once.
    Nothing is yielded if no place is found."""
    functions = [edge.lines for edge in capture.opaque if edge.lines]
    try:
        located = _locate_in_draws(capture, number, pair, functions)
    except (CannotTell, NotFinite, BackprintError, RuntimeError):  # `check_pair` names no place in these cases either
        return
    if located is None:
        return
    order_by_place: dict[Any, tuple[bool, int]] = {}
    for place_number, place in enumerate(located.places):
        wrong = describe_place(place, located.setting, capture.opaque, located.by_formula)
        if wrong.function not in (*capture.meant, *CONVENTIONS):
            # Sorted, False comes first: places in a custom Function, then those nearer to the results.
            order = not wrong.function, place_number
            order_by_place.setdefault((wrong.operators, wrong.at, wrong.function), order)
    search = Search(located.setting, functions)
    for _, place_number in sorted(order_by_place.values()):
        before = () if located.by_formula else located.places[:place_number]
        for steps in _growing_steps(search, located.places[place_number]):
            yield _Candidate(search, located.places[place_number], before, steps)


@dataclass(frozen=True, slots=True)
class _LocatedInDraw:
    """The wrong places in a draw of a Pair's inputs and tangents; `by_formula` if autograd itself is wrong there, by
    PyTorch's formula of an operator's derivative."""

    setting: Setting
    places: Sequence[WrongPlace]
    by_formula: bool


def _locate_in_draws(
    capture: Capture, number: int, pair: Pair, functions: Sequence[Collection[str]]
) -> _LocatedInDraw | None:
    """Return the wrong places of the first draw that shows any; None if no draw does.

    Calls whose gradients differ from those of autograd come first. If there are none and the two products differ all
    the same (⟨g, J·v⟩ by forward-mode AD, ⟨Jᵀ·g, v⟩ by the backward), a *formula* is wrong: the derivative of an
    operator that PyTorch has, by which the backward and autograd went alike. That is told by differences, which see no
    gap below `LIMIT_BY_DIFFERENCES`. `functions` are the lines of each custom autograd.Function of the program.
    """
    values = inputs_of_pairs(capture)[number]
    for seed in range(MAX_DRAWS):
        setting = make_setting(pair, values, seed, capture.seed)
        places = locate(setting, functions).places
        if places:
            return _LocatedInDraw(setting, places, by_formula=False)
        if gap_of(forward_product(setting)[0], backward_product(setting)) > LIMIT_BY_DIFFERENCES:
            places = locate_formulas(setting).places
            if places:
                return _LocatedInDraw(setting, places, by_formula=True)
    return None


def _growing_steps(search: Search, place: WrongPlace) -> Iterator[tuple[Step, ...]]:
    """Yield the steps of a place, then with the steps that take their results, then with those that take theirs, …,
    up to MOST_STEPS; of a step with several results, with the steps that take these apart."""
    names: set[str] = set()
    more = {step.name for step in place.steps}
    while not more <= names and len(names) <= MOST_STEPS:
        names |= more
        steps = tuple(step for name, step in search.step_by_name.items() if name in names)
        yield steps
        takers = [taker for step in steps for taker in search.takers_of(step.name)]
        more = {part.name for taker in takers for part in (taker, *search.result_steps(taker))}


MOST_STEPS = 256
"""A part is not enlarged beyond so many steps."""


# ---- The steps of a call, as a Pair and as a Capture


def _cut_of(pair: Pair, candidate: _Candidate) -> tuple[Pair, Mapping[str, Tensor]] | None:
    """Return the steps of a candidate as a Pair, and the gradients that it gets for its results, by name; None if the
    backward has the gradients of its inputs nowhere, or computes them from tangents of the whole. A gradient of a
    result that the backward has nowhere is a tangent that the part does not read.

    Of `loss = (Wrong.apply(x) * w).sum()`, the part of `Wrong` is its steps from x to its result; its backward starts
    at the value of the backward that is `grad * w`, its tangent, and ends at the one that it hands on for x.
    """
    assert pair.backward is not None
    search, steps = candidate.search, candidate.steps
    right_gradients = search.right_gradients(candidate.before)
    gradients_of_results = _gradients_of_results(search, steps, right_gradients)
    values = _values_of_backward(search, pair.backward)
    tangents: dict[str, str] = {}  # the result whose gradient a value of the backward is, by that value
    for result, gradient in gradients_of_results.items():
        if (value := _value_with(gradient, values)) is not None:
            tangents.setdefault(value, result)
    gradients = _values_handed_on(candidate, right_gradients, values)
    if not gradients or not gradients_of_results:
        return None
    cut = _backward_between(pair.backward, tangents, gradients)
    if any(port.role == "tangent" and port.local in cut.saved for port in pair.backward.inputs):
        return None
    input_names = _inputs_of_part(pair, steps, cut, gradients)
    # The Pair's own steps: those of `steps` are in float64.
    names_of_steps = {step.name for step in steps}
    forward_steps = tuple(step for step in pair.forward.steps if step.name in names_of_steps)
    names = BorderNames(
        {port.local: port for port in pair.forward.inputs}, {name: name for name in (*input_names, *names_of_steps)}
    )
    part = ForwardPart(
        index=0,
        start=0,
        stop=len(steps),
        steps=forward_steps,
        takes=input_names,
        gives=tuple(gradients_of_results),
        results=(),
    )
    cut_pair = pair_of(pair, part, names, "minified", BorderGradients(tangents, gradients), cut)
    return _with_all_tangents(cut_pair, gradients_of_results), gradients_of_results


def _gradients_of_results(
    search: Search, steps: Sequence[Step], right_gradients: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the right gradient of each value of some steps that steps behind them take, as far as it comes from these
    steps behind them; without gradients of zeros."""
    results = [step.name for step in steps if step.name in right_gradients and search.is_used_elsewhere(step, steps)]
    gradients = {name: search.gradient_from_others(name, right_gradients, steps) for name in results}
    return {name: gradient for name, gradient in gradients.items() if search.is_nonzero(gradient)}


def _values_of_backward(search: Search, backward: Graph) -> dict[str, Tensor]:
    """Return the values of a backward among which gradients are looked up: what its steps compute, then its tangents. A
    gradient is what a step computes, rather than an input of the same numbers."""
    values = search.backward_values
    computed = [step.name for step in backward.steps if isinstance(values.get(step.name), Tensor)]
    return {name: values[name] for name in (*computed, *(port.local for port in backward.by_role("tangent")))}


def _value_with(gradient: Tensor, values: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first of these values that has the numbers of a gradient; None if none has."""
    for name, value in values.items():
        is_same_type = value.shape == gradient.shape and value.dtype == gradient.dtype
        if is_same_type and distance(value, gradient, 0.0) <= NEAR:
            return name
    return None


def _values_handed_on(
    candidate: _Candidate, right_gradients: Mapping[str, Tensor], values: Mapping[str, Tensor]
) -> dict[str, str | None]:
    """Return, for each input of a candidate's steps, the name of the value of the backward (`values`) that is its
    gradient by these steps, None for an input without a gradient: it has what the wrong place hands on for the input,
    and the right shares of the other steps in it. An input whose gradient the backward has nowhere is left out."""
    search, place, steps = candidate.search, candidate.place, candidate.steps
    gradients_of_inputs: dict[str, Tensor | None] = dict(zip(place.inputs, place.returned, strict=True))
    other_steps = tuple(step for step in steps if step not in place.steps)
    shares = search.contributions(other_steps, search.inputs_of(other_steps), right_gradients)
    for name, share in shares.items():
        share_so_far = gradients_of_inputs.get(name)
        gradients_of_inputs[name] = share if share_so_far is None else share_so_far + share
    names_of_steps = {step.name for step in steps}
    handed_on: dict[str, str | None] = {}
    for name, gradient in gradients_of_inputs.items():
        value = None if gradient is None else _value_with(gradient, values)
        # An input of the wrong place may be a value of the other steps, so no input of them all.
        if name not in names_of_steps and (gradient is None or value is not None):
            handed_on[name] = value
    return handed_on


def _backward_between(
    backward: Graph, tangents: Mapping[str, str], gradients: Mapping[str, str | None]
) -> PartBackward:
    """Return the steps of a backward from a part's `tangents` to its `gradients`, and the inputs of the backward that
    they take, which the part's forward must save. Both mappings are as in `BorderGradients`: from a value of the
    backward to the result whose gradient it is, and from an input of the part to the value that is its gradient."""
    step_by_name = {step.name: step for step in backward.steps}
    ends = filter(None, gradients.values())
    names = set(names_behind(ends, step_by_name, lambda name: name in tangents)) - tangents.keys()
    return PartBackward(
        tuple(step for step in backward.steps if step.name in names),
        tuple(port.local for port in backward.inputs if port.local in names),
    )


def _inputs_of_part(pair: Pair, steps: Sequence[Step], cut: PartBackward, gradients: Iterable[str]) -> tuple[str, ...]:
    """Return the inputs of a part, by their names in the whole's forward: what its steps take, what its backward takes
    from elsewhere, and all that have a gradient."""
    assert pair.backward is not None
    local_of_saved = saved_values(pair)
    local_of_input = {port.name: port.local for port in pair.forward.inputs}
    taken_by_backward = [
        local_of_saved[port.name] if port.role == "saved" else local_of_input.get(port.name, "")
        for port in pair.backward.inputs
        if port.local in cut.saved
    ]
    taken_by_steps = [name for step in steps for name in used(step)]
    names_of_steps = {step.name for step in steps}
    names_in_order = dict.fromkeys([*taken_by_steps, *taken_by_backward, *gradients])
    return tuple(name for name in names_in_order if name and name not in names_of_steps)


def _with_all_tangents(pair: Pair, results: Iterable[str]) -> Pair:
    """Return a part with a tangent for each of its results: those that its backward does not read are added as inputs
    of it."""
    assert pair.backward is not None
    read_tangents = {port.name for port in pair.backward.by_role("tangent")}
    specs = {port.name: spec_of_gradient(port.spec) for port in pair.forward.by_role("output")}
    unread_tangents = tuple(
        Port(name, "tangent", specs[name], local=f"tangent_{name}") for name in results if name not in read_tangents
    )
    backward = replace(pair.backward, inputs=(*pair.backward.inputs, *unread_tangents))
    return Pair(pair.name, pair.forward, backward)


def _capture_of_cut(
    whole: Capture,
    number: int,
    pair: Pair,
    part: Pair,
    given: Mapping[str, Tensor],
    values: Mapping[PortKey, Any],
    exact: bool,
) -> Capture:
    """Return a part of a Pair as a Capture, with recipes fitted to the values that it had in the whole (`values`, as
    `_values_of_pair` returns them), or, if `exact`, with these values. `given` are the gradients of its results, which
    are its tangents. `whole` is the Capture of the `pair`, whose number is written into the reason."""
    assert part.backward is not None
    inputs = {port.name: values[PortKey("forward", port.local)] for port in part.forward.inputs}
    inputs |= {port.name: values[PortKey("backward", port.local)] for port in part.backward.by_role("constant")}
    outputs = [port.name for port in part.forward.by_role("output")]
    differentiable = tuple(port.name for port in part.backward.by_role("tangent"))
    steps = f"{operators_of(part)} of its {operators_of(pair)} operators"
    capture = Capture(
        name=f"{whole.name}.minified",
        engine=whole.engine,
        pairs=(part,),
        signature=Signature(
            arguments=tuple(port.name for port in part.forward.by_role("input")),
            output={"tuple": [{"port": name} for name in outputs]},
            differentiable=differentiable,
        ),
        why=(f"cut from pair_{number} of {whole.name}: {steps}", "its backward is not the derivative of its forward"),
        notes=whole.notes,
        opaque=_edges_in(part, whole.opaque),
        environment=whole.environment,
        requires=required_operators(part),
        seed=whole.seed,
        origin=PartOrigin(
            part, inputs, differentiable, opaque=True
        ),  # autograd does not tell what a wrong part returns
    )
    tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
    # A result has the name of its value (`_cut_of`). Gradients are from float64.
    tangents = {name: given[name].to(values[PortKey("forward", name)].dtype) for name in differentiable}
    return replace(capture, recipes=recipes_of(capture, tensors, tangents, exact))


def _edges_in(part: Pair, edges: Sequence[OpaqueEdge]) -> tuple[OpaqueEdge, ...]:
    """Return the opaque edges of a part: those at a line of its steps, those without a line, and those of a Function
    whose lines are unknown, if it is in a file of its steps."""
    sources = [step.source for graph in part.graphs for step in graph.steps if step.source]
    lines = {source.at for source in sources}
    files = {source.file for source in sources}
    return tuple(
        edge
        for edge in edges
        if edge.source is None
        or lines & {*edge.lines, edge.source.at}
        or (edge.function and edge.source.file in files and not edge.lines)
    )
