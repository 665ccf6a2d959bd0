"""The smallest part of a Pair whose backward is still not the derivative of its forward, as a Capture of its own.

The part begins with the forward steps at which `derive/locate` finds the backward wrong. The backward has no such
place: its steps between two borders are found by numbers, as for the parts of a split. In float64, near the captured
inputs, autograd gives the gradient that the steps behind the part pass to each of its results, and, with what the
backward returned at the wrong place taken for given, the share of the part in the gradient of each of its inputs. Both
are looked up among the values of the backward, and the steps between them are the part's backward.

Steps are added until that is possible: those between two inputs of the part, because the part's inputs must not depend
on each other; and those that take a result whose gradient the backward has nowhere. Nothing is left out of the backward
that the whole computes there, so its fault is the whole's. The part counts only if the fault is still found in it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backprint import api
from backprint.derive.check import CONVENTIONS, DRAWS, LIMIT_BY_DIFFERENCES, described, inputs_of_pairs
from backprint.derive.duals import DualRun
from backprint.derive.locate import MOST_PLACES, NEAR, Search, WrongPlace, locate_formulas
from backprint.derive.locate import relative as distance
from backprint.derive.setting import (
    CannotTell,
    NotFinite,
    Setting,
    backward_product,
    forward_product,
    gap_of,
    is_inexact,
    make_setting,
    with_one_name,
)
from backprint.errors import BackprintError, GraphError
from backprint.graph.fx.convert import spec_of
from backprint.graph.keys import PortKey, with_tangents
from backprint.graph.nouns import (
    GONE,
    NO_FUNCTIONS,
    Capture,
    Graph,
    OpaqueEdge,
    Pair,
    Port,
    Ref,
    Signature,
    Step,
    TensorSpec,
    Value,
    custom_operators,
)
from backprint.graph.sizes import unguarded_graph
from backprint.graph.steps import behind, free, live, mapped, used
from backprint.graph.text import emit_class
from backprint.graph.verdicts import NOT_THE_DERIVATIVE, Derivative
from backprint.prove.power import widened
from backprint.sample.inputs import Inputs, exact_data, fit_all, fit_inputs
from backprint.sample.recipes import derive
from backprint.tools.bench.cuts import count_operators, record_values
from backprint.tools.export.export import write_export
from backprint.tools.lowering.subjects import BenchGraph
from backprint.tools.parts.flow import saved_values
from backprint.tools.parts.split import PartOrigin, dense, identifier, subgraphs_in


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
    write_export(part.capture, place, recipes, None, "both", part.about)
    above, main, below = place.read_text("utf-8").rpartition(MAIN)
    if part.capture.requires or not _has_dense_tensors(part.pair):
        return place
    text = f"{above}{_differences_text(part.pair)}{main}    beside_differences()\n{below}"
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
    """Return the function of a part's file that compares its backward with differences of its forward."""
    backward = pair.backward
    assert backward is not None
    places = {port.key: place for place, port in enumerate(pair.forward.outputs)}
    tangents = [(places[PortKey("output", port.name)], f"tangent {port.name}") for port in backward.by_role("tangent")]
    inputs = [port.name for port in pair.forward.inputs]
    names = {port.key: f"tangent {port.name}" if port.role == "tangent" else port.name for port in backward.inputs}
    sources = [places[key] if key.role == "saved" else name for key, name in names.items()]
    gradients = [port.name for port in backward.outputs]
    text, classes = "", {}
    for name, graph in (("Forward", pair.forward), ("Backward", backward)):
        wide = widened(graph)
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
    """Return the smallest part of a Pair of a Capture whose backward is `whole`, which is not the derivative; None if
    the fault is not found in a smaller part.

    `graphs` are the graphs of the Capture, run in eager: the part's inputs have the values that they had there.
    """
    pair = _unguarded_pair(with_one_name(capture.pairs[number], capture.signature.same))
    search = _PlaceSearch.of(capture, number, pair)
    if search is None:
        return None
    values = _values_in_eager(f"pair_{number}", pair, graphs)
    known = SmallestPart(f"pair_{number} backward", operators_of(pair), capture, whole, whole, 0)
    with_others: SmallestPart | None = None
    for place, before in search.places(capture):
        for cut in search.cuts(place, before):
            if known.tests >= MOST_TESTS:
                return with_others
            part, exact = _capture_of_cut(capture, number, pair, cut, values)
            derivative = _derivative_of_part(part, capture)
            known = replace(known, tests=known.tests + 1)
            if not has_fault(derivative, whole):
                continue
            drawn = _derivative_of_part(replace(part, origin=GONE), capture)  # with inputs that are drawn anew
            part = part if has_fault(drawn, whole) else replace(part, recipes=exact)
            smaller = replace(known, capture=part, derivative=derivative)
            if has_fault(derivative, whole, alone=True):
                return smaller
            with_others = with_others or smaller
    return with_others


MOST_TESTS = 40
"""How many parts are tried."""


def _unguarded_pair(pair: Pair) -> Pair:
    """Return a Pair without guards: a part need not have what they check."""
    assert pair.backward is not None
    return Pair(pair.name, unguarded_graph(pair.forward), unguarded_graph(pair.backward))


def _meant_in(part: Capture, whole: Capture) -> tuple[str, ...]:
    """Return the names of what is meant that a part has too."""
    known = {edge.function for edge in part.opaque} | set(NO_FUNCTIONS)
    return tuple(name for name in whole.meant if name in known)


def _derivative_of_part(part: Capture, whole: Capture) -> Derivative:
    """Return whether the backward of a part is the derivative, at the values that it had in the whole, or drawn by its
    recipes where these are gone."""
    (derivative,) = api.derivative(part, meant=_meant_in(part, whole), hostile=False)
    return derivative


def has_fault(part: Derivative, whole: Derivative, alone: bool = False) -> bool:
    """Whether a part is not the derivative, at a place where the whole is not; with `alone`, at no other."""
    if part.word != NOT_THE_DERIVATIVE:
        return False
    places = [{(place.function, place.at) for place in derivative.wrong} for derivative in (part, whole)]
    return places[0] <= places[1] if alone else not places[1] or bool(places[0] & places[1])


def _values_in_eager(name: str, pair: Pair, graphs: Sequence[BenchGraph]) -> dict[PortKey, Any]:
    """Return every value of both graphs in eager by its direction and local name."""
    values: dict[PortKey, Any] = {}
    for direction, graph in (("forward", pair.forward), ("backward", pair.backward)):
        (bench,) = [bench for bench in graphs if bench.title == f"{name} {direction}"]
        assert graph is not None
        recorded = record_values(unguarded_graph(bench.graph), bench.run).values
        values |= {PortKey(direction, local): value for local, value in recorded.items()}
    return values


# ---- Parts of a Pair, by numbers


@dataclass(frozen=True, slots=True)
class _PairCut:
    """A part of a Pair: the names of its forward steps and inputs; for each result that has a tangent, and for each
    input that has a gradient, the value of the backward that this is; and the steps of its backward."""

    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    tangents: Mapping[str, str]
    gradients: Mapping[str, str | None]
    backward: tuple[Step, ...]
    saved: tuple[str, ...]
    """The backward's inputs that are not tangents, by local names."""


class _PlaceSearch:
    """The wrong places of a Pair, and the parts around them."""

    def __init__(self, pair: Pair, setting: Setting, functions: Sequence[Collection[str]]) -> None:
        assert pair.backward is not None
        self.setting, self.forward, self.backward = setting, pair.forward, pair.backward
        self.search = Search(setting, functions)
        self.values: dict[Any, list[tuple[str, Tensor]]] = {}
        values = self.search.backward_values
        # A gradient is what a step computes, rather than an input of the same numbers.
        names = dict.fromkeys([*(step.name for step in pair.backward.steps if step.name in values), *values])
        for name in names:
            value = values[name]
            if isinstance(value, Tensor) and value.numel() and value.layout is torch.strided and is_inexact(value):
                self.values.setdefault((value.shape, value.dtype), []).append((name, value))
        self.order = [step.name for step in self.forward.steps]
        self.step_of = {step.name: step for step in self.forward.steps}
        self.ports = {port.local: port for port in self.forward.inputs}
        self.before = {name: set(behind([name], self.step_of)) for name in self.order}
        self.local_of_saved = saved_values(pair)

    @classmethod
    def of(cls, capture: Capture, number: int, pair: Pair) -> _PlaceSearch | None:
        """Return the search in a Pair; None if its gradients are right, or not finite, at all inputs that are drawn."""
        functions = [edge.lines for edge in capture.opaque if edge.lines]
        try:
            values = inputs_of_pairs(capture)[number]
            settings = [make_setting(pair, values, seed, capture.seed) for seed in range(DRAWS)]
            searches = (cls(pair, setting, functions) for setting in settings)
            return next((search for search in searches if search.is_wrong()), None)
        except (CannotTell, NotFinite, BackprintError, RuntimeError):  # as where `check_pair` cannot tell where
            return None

    def is_wrong(self) -> bool:
        """Whether gradients are not those of the forward: by autograd, or by the formulas of forward-mode AD."""
        gap = gap_of(forward_product(self.setting)[:2], backward_product(self.setting))
        return gap > LIMIT_BY_DIFFERENCES or bool(self.search.state([]).wrong)

    def places(self, capture: Capture) -> Iterator[tuple[WrongPlace, list[WrongPlace]]]:
        """Yield the wrong places that the author does not mean, each with those that were found before it.

        If the program has custom Functions, those in one come first: others may follow from them. Of a loop, one place
        stands for all.
        """
        several = any(edge.function for edge in capture.opaque)
        known, later = set[Any](), []
        for place, before, by_formula in self.all_places():
            wrong = described(place, self.setting, capture.opaque, by_formula)
            key = wrong.operators, wrong.at, wrong.function
            if key in known or wrong.function in (*capture.meant, *CONVENTIONS):
                continue
            known.add(key)
            if several and not wrong.function:
                later.append((place, before))
            else:
                yield place, before
        yield from later

    def all_places(self) -> Iterator[tuple[WrongPlace, list[WrongPlace], bool]]:
        """Yield the wrong places, those nearest to the results first, each with those before it, and whether autograd
        itself is wrong there."""
        state = self.search.state([])
        if not state.wrong:
            yield from ((place, [], True) for place in locate_formulas(self.setting).places)
            return
        found: list[WrongPlace] = []
        while state.wrong and len(found) < MOST_PLACES:
            try:
                further = self.search.next_places(found, state)
            except (BackprintError, RuntimeError):  # autograd has no gradient of an operator: no further place is known
                return
            if further is None:
                return
            places, state = further
            for number in range(len(found), len(places)):
                yield places[number], places[:number], False
            found = places

    def cuts(self, place: WrongPlace, before: Sequence[WrongPlace]) -> Iterator[_PairCut]:
        """Yield parts around a wrong place, the smallest first; `before` are wrong places nearer to the results."""
        names = {step.name for step in place.steps}
        inputs: set[str] = set()
        while True:
            names, inputs = self.closed(names, inputs)
            cut = self.cut(names, inputs, place, before)
            if isinstance(cut, _PairCut):
                yield cut
                more = self.takers(names)
            else:
                more, extra = cut
                inputs |= extra
                is_new = bool(extra - names - set(self.inputs_of(names)))
                more = more - names or (set() if is_new else self.takers(names))
            if not more - names and not inputs - set(self.inputs_of(names)):
                return
            names |= more

    def inputs_of(self, names: Collection[str]) -> list[str]:
        """Return what steps take from elsewhere."""
        taken = (name for local in self.order if local in names for name in used(self.step_of[local]))
        return [name for name in dict.fromkeys(taken) if name not in names]

    def takers(self, names: Collection[str]) -> set[str]:
        """Return the steps that take results of these, on the way to results of the whole."""
        return {
            step.name
            for name in names
            for step in self.search.consumers.get(name, ())
            if step.name in self.search.reaching and step.name not in names
        }

    def closed(self, names: set[str], inputs: set[str]) -> tuple[set[str], set[str]]:
        """Return steps with those between them, and between what they take; a step with several results has those that
        take one of them with it."""
        names, inputs = set(names), set(inputs)
        while True:
            taken = {*self.inputs_of(names), *inputs} - names
            several = {n for n in taken if n in self.step_of and not isinstance(self.search.forward_values[n], Tensor)}
            between = {
                step
                for name in (*taken, *names)
                for step in self.before.get(name, ())
                if step not in names
                and step != name
                and step in self.step_of
                and self.before[step] & (taken | names) - {step}
            }
            between |= {name for name in taken if name in self.step_of and self.before[name] & (names | taken) - {name}}
            if not between | several:
                return names, inputs - names
            names |= between | several

    def cut(
        self, names: set[str], extra: set[str], place: WrongPlace, before: Sequence[WrongPlace]
    ) -> _PairCut | tuple[set[str], set[str]]:
        """Return the part of these steps; or the steps, and the inputs, that it must have too."""
        outer = self.outer_gradients(names, before)
        tangents: dict[str, str] = {}
        for name, gradient in outer.items():
            value = self.value_of_backward(gradient)
            if value is None:
                return self.takers({name}), set()
            tangents.setdefault(value, name)
        inputs = [name for name in dict.fromkeys([*self.inputs_of(names), *extra]) if name not in names]
        gradients = self.gradients_of(names, inputs, place, outer)
        if not gradients:
            return self.takers(names), set()
        steps = {step.name: step for step in self.backward.steps}
        ports = {port.local: port for port in self.backward.inputs}
        reached = list(behind([n for n in gradients.values() if n is not None], steps, lambda name: name in tangents))
        saved = [name for name in reached if name in ports and name not in tangents]
        if any(ports[name].role == "tangent" for name in saved):
            gradients = self.by_echo(names, inputs, tangents)
            if not gradients:
                return self.takers(names), set()
            reached = list(behind([name for name in gradients.values() if name], steps, lambda name: name in tangents))
            saved = [name for name in reached if name in ports and name not in tangents]
        locals_ = {self.local_of(ports[name]) for name in saved} - {""}
        if missing := locals_ - names - set(inputs):
            return set(), missing
        kept = tuple(step for step in self.backward.steps if step.name in reached and step.name not in tangents)
        own = tuple(self.step_of[name] for name in self.order if name in names)
        return _PairCut(own, tuple(inputs), tuple(outer), tangents, gradients, kept, tuple(saved))

    def local_of(self, port: Port) -> str:
        """Return the forward's value behind an input of the backward; '' for a constant of the backward alone."""
        if port.role == "saved":
            return self.local_of_saved.get(port.name, "")
        return next((local for local, own in self.ports.items() if own.name == port.name), "")

    def outer_gradients(self, names: Collection[str], before: Sequence[WrongPlace]) -> dict[str, Tensor]:
        """Return the gradient that the steps outside of a part pass to each of its results; what the backward returned
        at other wrong places is taken for given."""
        values = self.search.forward_values
        own = [name for name in names if isinstance(values[name], Tensor) and self.search.may_have_gradient(name)]
        leaves = {name: values[name].detach().clone().requires_grad_() for name in own}
        env = self.again({step.name for place in before for step in place.steps}, leaves)
        roots, weights = self.search.roots(env, before)
        if not roots or not leaves:
            return {}
        gradients = torch.autograd.grad(roots, list(leaves.values()), weights, allow_unused=True)
        by_name = dict(zip(leaves, gradients, strict=True))
        return {n: g for n in self.order if (g := by_name.get(n)) is not None and bool((g != 0).any())}

    def again(self, constant: Collection[str], given: Mapping[str, Any]) -> dict[str, Any]:
        """Run the forward once more from its random state, and return its values; those that are `given` stand for what
        the forward computes. Steps in `constant` pass no gradient on."""
        env = {port.local: self.search.forward_values[port.local] for port in self.setting.forward.inputs}
        with torch.enable_grad():
            fed = {name: value * 1 if is_leaf(value) else value for name, value in given.items()}
        env |= {name: value for name, value in fed.items() if name in env}
        run = DualRun(self.setting.forward, constant)
        torch.manual_seed(self.setting.chance)
        for step in self.setting.forward.steps:
            if not step.is_guard:
                run.continued([step], env)
                env[step.name] = fed.get(step.name, env[step.name])
        return env

    def gradients_of(
        self, names: Collection[str], inputs: Sequence[str], place: WrongPlace, outer: Mapping[str, Tensor]
    ) -> dict[str, str | None]:
        """Return, for each input whose share of gradient the backward has, the value that it is; None where the
        backward returned nothing, though something is due."""
        returned = dict(zip(place.inputs, place.returned, strict=True))
        values = self.search.forward_values
        wanted = [n for n in inputs if self.search.may_have_gradient(n) and isinstance(values[n], Tensor)]
        leaves = {name: values[name].detach().clone().requires_grad_() for name in wanted}
        others = {name: value for name, value in values.items() if name not in names}
        env = self.again({step.name for step in place.steps}, {**others, **leaves})
        ends = [(env[name], gradient) for name, gradient in outer.items() if env[name].requires_grad]
        ends += [(env[n], g) for n, g in returned.items() if g is not None and env[n].requires_grad]
        shares: dict[str, Tensor | None] = dict.fromkeys(wanted)
        if ends and leaves:
            own = torch.autograd.grad(
                [v for v, _ in ends], list(leaves.values()), [g for _, g in ends], allow_unused=True
            )
            shares |= dict(zip(leaves, own, strict=True))
        gradients: dict[str, str | None] = {}
        for name, share in shares.items():
            if share is None or not bool((share != 0).any()):
                if name in returned:
                    gradients[name] = None
            elif (value := self.value_of_backward(share)) is not None:
                gradients[name] = value
        return gradients

    def by_echo(
        self, names: Collection[str], inputs: Sequence[str], tangents: Mapping[str, str]
    ) -> dict[str, str | None]:
        """Return, for inputs of a part, the last step of the backward that the capture says is a gradient of it, and
        that is computed from the part's tangents alone: the place may have been explained by a value of another."""
        steps = {step.name: step for step in self.backward.steps}
        tangent_ports = {port.local for port in self.backward.by_role("tangent")} - tangents.keys()
        own = [s for s in reversed(self.backward.steps) if s.echo and not set(s.echo.names).isdisjoint(names)]
        gradients: dict[str, str | None] = {}
        for name in inputs:
            shape = getattr(self.search.forward_values[name], "shape", None)
            for step in own if self.search.may_have_gradient(name) else ():
                reached = set(behind([step.name], steps, lambda other: other in tangents))
                alike = getattr(self.search.backward_values.get(step.name), "shape", None) == shape
                if alike and not reached & tangent_ports:
                    gradients[name] = step.name
                    break
        return gradients

    def value_of_backward(self, gradient: Tensor) -> str | None:
        """Return the first value of the backward that has this gradient, in this shape."""
        alike = self.values.get((gradient.shape, gradient.dtype), ())
        return next((name for name, value in alike if distance(value, gradient, 0.0) <= NEAR), None)


def is_leaf(value: Any) -> bool:
    """Whether a value is a tensor whose gradient is asked for."""
    return isinstance(value, Tensor) and value.requires_grad


# ---- A part as a Capture


def _capture_of_cut(
    whole: Capture, number: int, pair: Pair, cut: _PairCut, values: Mapping[PortKey, Any]
) -> tuple[Capture, Inputs]:
    """Return a part of a Pair as a Capture with recipes fitted to the values that it had in the whole, and recipes that
    keep these."""
    part = _pair_of_cut(pair, cut, values)
    assert part.backward is not None
    ports = {port.local: port.name for port in part.forward.inputs}
    inputs = {name: values[PortKey("forward", local)] for local, name in ports.items()}
    for port in part.backward.by_role("constant"):
        inputs[port.name] = values[PortKey("backward", port.local)]
    outputs = [port.name for port in part.forward.by_role("output")]
    differentiable = tuple(port.name for port in part.backward.by_role("tangent"))
    edges = _edges_in(part, whole.opaque)
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
        opaque=edges,
        environment=whole.environment,
        requires=tuple(sorted({t for g in (part.forward, part.backward) for _, t in custom_operators(g)})),
        seed=whole.seed,
        origin=PartOrigin(part, inputs, differentiable, opaque=True),
    )
    tangents = {local: values[PortKey("backward", value)] for value, local in cut.tangents.items()}
    fitted, exact = (_recipes_for(capture, inputs, tangents, data) for data in ("seed", "exact"))
    return replace(capture, recipes=fitted), exact


def _recipes_for(capture: Capture, values: Mapping[str, Any], tangents: Mapping[str, Tensor], data: str) -> Inputs:
    """Return recipes that are fitted to the values of inputs and tangents in the whole, or keep these values
    (`exact`)."""
    inputs = fit_inputs(capture, {name: value for name, value in values.items() if isinstance(value, Tensor)}, data)
    named = with_tangents({}, {name: value.detach().contiguous() for name, value in tangents.items()})
    recipes = fit_all(named, derive(capture.seed, "tangents"), list(named) if data == "exact" else ())
    kept = exact_data(named, recipes)
    return Inputs({**inputs.recipes, **recipes}, {**inputs.exact, **kept}, capture.seed)


def _edges_in(part: Pair, edges: Sequence[OpaqueEdge]) -> tuple[OpaqueEdge, ...]:
    """Return the opaque edges of a part: those at a line of its steps, and those without a line."""
    graphs = list(part.graphs)
    sources = [step.source for graph in graphs for step in graph.steps if step.source]
    lines = {source.at for source in sources}
    files = {source.file for source in sources}
    return tuple(
        edge
        for edge in edges
        if edge.source is None
        or lines & {*edge.lines, edge.source.at}
        or (edge.function and edge.source.file in files and not edge.lines)
    )


def _pair_of_cut(pair: Pair, cut: _PairCut, values: Mapping[PortKey, Any]) -> Pair:
    """Return a part of a Pair as a Pair."""
    whole = pair.backward
    assert whole is not None
    ports = {port.local: port for port in pair.forward.inputs}
    inputs = []
    for local in in_order(pair.forward, cut.inputs):
        known = ports.get(local)
        inputs.append(known or Port(local, "input", spec_of(values[PortKey("forward", local)]), local))
    names = {port.local: port.name for port in inputs}
    specs = {step.name: spec_of(values[PortKey("forward", step.name)]) for step in cut.steps}
    outputs: list[tuple[Port, Value]] = [(Port(name, "output", specs[name]), Ref(name)) for name in cut.results]
    backward_ports = {port.local: port for port in whole.inputs}
    locals_of = saved_values(pair)
    saved_inputs = []
    for local in cut.saved:
        port = backward_ports[local]
        saved_inputs.append(port)
        if port.role == "saved":
            outputs.append((Port(port.name, "saved", port.spec), Ref(locals_of[port.name])))
    forward = Graph(
        tuple(inputs),
        cut.steps,
        tuple(port for port, _ in outputs),
        tuple(value for _, value in outputs),
        tuple(item for item in pair.forward.subgraphs if item[0] in subgraphs_in(cut.steps)),
        (),
        "minified",
    )
    taken = {port.local for port in saved_inputs} | {step.name for step in cut.backward}
    local_of_tangent: dict[str, str] = {}
    tangent_ports = []
    for value, name in cut.tangents.items():
        local = free(f"tangent_{identifier(name)}", taken)
        taken.add(local)
        local_of_tangent[value] = local
        spec = specs[name]
        if not isinstance(spec, TensorSpec):
            raise GraphError(f"{name} is no tensor, and has a tangent")
        tangent_ports.append(Port(name, "tangent", dense(spec), local))

    def renamed(name: str) -> Value:
        return Ref(local_of_tangent.get(name, name))

    gradients = [(local, cut.gradients[local]) for local in in_order(pair.forward, cut.gradients)]
    gradient_specs: dict[str, Any] = {port.local: port.spec for port in inputs}
    backward = Graph(
        (*saved_inputs, *tangent_ports),
        tuple(mapped(step, renamed) for step in cut.backward),
        tuple(Port(names[local], "gradient", dense(gradient_specs[local])) for local, _ in gradients),
        tuple(None if value is None else renamed(value) for _, value in gradients),
        tuple(item for item in whole.subgraphs if item[0] in subgraphs_in(cut.backward)),
        (),
        "minified",
    )
    return Pair("minified", live(forward), backward)


def in_order(graph: Graph, names: Collection[str]) -> list[str]:
    """Return values in the order of a graph: its inputs, then its steps."""
    known = [*(port.local for port in graph.inputs), *(step.name for step in graph.steps)]
    return [name for name in known if name in names]
