"""A folded graph unfolds to the graph that was folded, and so does its text, which runs."""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from subjects.random_graphs import anything, to_the_letter
from torch import Tensor, nn

import backprint as bp
from backprint.common.collector import collector_paused
from backprint.errors import RefusedError
from backprint.graph.cost import summarize
from backprint.graph.folding import fold
from backprint.graph.folding.find import DEEPEST
from backprint.graph.folding.nouns import (
    FoldedGraph,
    FoldedStep,
    Item,
    Loop,
    Only,
    places_of,
    series_of,
    unfolded_once,
    with_places,
)
from backprint.graph.folding.stretches import StretchGraphs, part_costs, stretches_of
from backprint.graph.folding.text import Finder, emit_folded, planned_names
from backprint.graph.folding.unroll import unrolled
from backprint.graph.nouns import Dict, Echo, Graph, List, Port, Ref, Source, Step, TensorSpec
from backprint.graph.text import parse


class Layer(nn.Module):
    """With `waves`, what the first layer computes of them serves all layers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor, waves: list[Tensor]) -> Tensor:
        y = self.norm(x)
        if len(waves) == 1:
            waves.append(waves[0].cos())
        y = y * waves[1] if waves else y
        return x + self.down(torch.nn.functional.gelu(self.up(y)))


class Stack(nn.Module):
    def __init__(self, depth: int, odd: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(depth))
        self.out = nn.Linear(8, 3)
        self.waves = nn.Parameter(torch.randn(8)) if odd else None

    def forward(self, x: Tensor) -> Tensor:
        waves = [] if self.waves is None else [self.waves]
        for layer in self.layers:
            x = layer(x, waves)
        return self.out(x)


class Cell(nn.Module):
    """A recurrent cell over time: whole numbers and where a view begins grow with the step."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(2, 4)
        for time in range(x.shape[0]):
            state = torch.tanh(self.mix(torch.cat([x[time], state], 1))[:, :4])
        return state.sum()


class Block(nn.Module):
    """Six linear layers of three shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.LayerNorm(8), nn.Linear(8, 8)
        self.query, self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        scores = torch.softmax(self.query(y) @ self.key(y).transpose(-1, -2), -1)
        x = x + self.out(scores @ self.value(y))
        return x + self.down(torch.relu(self.up(x)))


class Plain(nn.Module):
    """What recurs is in no module, and once more after the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)) for _ in range(12))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            y = layer(x).unflatten(-1, (2, 4)).transpose(-1, -2).flatten(-2)
            x = x + (y * 0.5).sin().cos() * 0.1
        return x


MODELS: dict[str, Any] = {
    "functions in no module": lambda: (Plain(), torch.randn(3, 8)),
    "functions": lambda: (nn.Sequential(*(Block() for _ in range(4))), torch.randn(2, 3, 8)),
    "layers": lambda: (Stack(12), torch.randn(2, 8)),
    "an odd layer": lambda: (Stack(6, odd=True), torch.randn(2, 8)),
    "time": lambda: (Cell(), torch.randn(9, 2, 4)),
}


def graphs(name: str) -> list[Graph]:
    torch.manual_seed(0)
    model, x = MODELS[name]()
    (pair,) = bp.capture(model, x.requires_grad_(), mode="train").pairs
    return [pair.forward, pair.backward]


def loops(items: tuple[Item, ...]) -> list[Loop]:
    found = []
    for item in items:
        if isinstance(item, Loop):
            found += [item, *loops(item.items)]
        elif isinstance(item, Only):
            found += loops(item.items)
    return found


def assert_unfolds(graph: Graph) -> FoldedGraph:
    folded = graph.fold()
    back = folded.unfold()
    assert back == graph
    assert to_the_letter(back) == to_the_letter(graph)
    assert back.hash() == graph.hash()
    return folded


def assert_text_returns(graph: Graph) -> str:
    text = assert_unfolds(graph).code
    assert unrolled(text) == graph.code
    return text


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_layers_and_time_steps_are_loops_that_run_as_the_graph_does(name: str) -> None:
    for graph in graphs(name):
        text = assert_text_returns(graph)
        assert 3 * text.count("\n") < 2 * graph.code.count("\n")
        inputs = [made(port, place) for place, port in enumerate(graph.inputs)]
        for one, other in zip(run(text, inputs), run(graph.code, inputs), strict=True):
            assert (one is None and other is None) or torch.equal(one, other)


def made(port: Port, seed: int) -> Tensor:
    assert isinstance(port.spec, TensorSpec)
    values = torch.rand(port.spec.shape, generator=torch.Generator().manual_seed(seed))
    return values if port.spec.stride is None else torch.empty_strided(port.spec.shape, port.spec.stride).copy_(values)


def run(text: str, inputs: list[Tensor]) -> tuple[Any, ...]:
    space: dict[str, Any] = {}
    exec(compile(text, "folded", "exec"), space)
    results: tuple[Any, ...] = space["GraphModule"]()(*(value.clone() for value in inputs))
    return results


def test_what_recurs_in_a_module_is_a_function_of_its_sizes() -> None:
    text = graphs("functions")[0].fold().code
    (head,) = re.findall(r"^def (addmm\(.*\)):$", text, re.MULTILINE)
    assert head == "addmm(weight, bias, view, size, size_1)"
    calls = re.findall(r"= addmm\(.*, (\d+), (\d+)\)  # a=", text)
    assert calls == [("8", "8")] * 4 + [("8", "12"), ("12", "8")]


def test_projections_of_three_names_are_no_loop() -> None:
    forward, _ = graphs("functions")
    assert nesting(forward.fold().items) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["functions", "layers"])
def test_a_function_does_not_go_across_modules(name: str) -> None:
    for graph in graphs(name):
        names = planned_names(graph.fold())
        for function in Finder(names).functions():
            for start in function.calls:
                steps = [leaf.step.step for leaf in names.leaves[start : start + function.length]]
                assert len({step.source.module for step in steps if step.source is not None}) == 1


def test_twelve_layers_are_one_loop_forward_and_backward() -> None:
    for graph in graphs("layers"):
        assert max(loop.count for loop in loops(graph.fold().items)) == 12


def test_an_odd_first_layer_keeps_its_step_in_its_iteration() -> None:
    forward, _ = graphs("an odd layer")
    (loop,) = [loop for loop in loops(forward.fold().items) if loop.count == 6]
    (odd,) = [item for item in loop.items if isinstance(item, Only)]
    assert (odd.iteration, targets(odd.items)) == (0, ["aten.cos.default"])
    assert "            if i == 0:\n" in emit_folded(forward.fold())


def targets(items: tuple[Item, ...]) -> list[str]:
    return [item.step.target for item in items if isinstance(item, FoldedStep)]


def test_loops_nest_no_deeper_than_their_text_has_indexes() -> None:
    block: list[str] = ["sin", "cos", "tan", "exp", "log", "neg", "abs", "erf"]
    for name in "floor ceil round sign relu tanh sqrt rsqrt".split():
        block = block * 3 + [name]
    spec = TensorSpec("float32", (2,))
    steps = tuple(
        Step(f"y_{place}", f"aten.{name}.default", (Ref(f"y_{place - 1}" if place else "x"),), spec=spec)
        for place, name in enumerate(block[:4000])
    )
    graph = Graph((Port("x", "input", spec, "x"),), steps, (Port("y", "output", spec),), (Ref("y_3999"),))
    assert 2 <= nesting(graph.fold().items) <= DEEPEST
    assert_text_returns(graph)


def nesting(items: tuple[Item, ...]) -> int:
    return max([0, *(1 + nesting(item.items) for item in items if isinstance(item, Loop))])


def test_a_view_that_follows_no_rule_has_its_type_in_a_comment() -> None:
    spec = TensorSpec("float32", (2,))
    offsets = (0, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5)
    steps = [
        Step(
            f"y_{place}", "aten.sin.default", (Ref(f"y_{place - 1}" if place else "x"),), spec=replace(spec, offset=at)
        )
        for place, at in enumerate(offsets)
    ]
    graph = Graph((Port("x", "input", spec, "x"),), tuple(steps), (Port("y", "output", spec),), (Ref("y_11"),))
    assert "# type at 6: f32[2] offset=9" in assert_text_returns(graph)


@pytest.mark.slow
def test_print_shows_the_fold_where_it_is_shorter() -> None:
    forward, _ = graphs("layers")
    assert "for i in range(12):" in str(forward)
    assert "for i in" not in forward.code
    few = bp.capture(Stack(1), torch.randn(2, 8), mode="train").pairs[0].forward
    assert str(few) == few.code


def test_the_cost_of_a_layer_is_that_of_all_by_their_number() -> None:
    torch.manual_seed(0)
    (pair,) = bp.capture(Stack(12), torch.randn(2, 8).requires_grad_(), mode="train").pairs
    forward, backward = part_costs(pair)
    assert (forward.direction, forward.name, forward.count) == ("forward", "layers.{i}", 12)
    assert forward.flops == 12 * 2 * (2 * 2 * 8 * 16)  # two products of 2 x 8 x 16
    assert backward.flops == 2 * backward.count * 2 * (2 * 2 * 8 * 16)
    saved = sum(line.bytes for line in summarize(pair).saved)
    assert forward.saved_bytes == saved
    assert backward.saved_bytes == 0


def hashes_of_layers(model: nn.Module, width: int = 8) -> list[str]:
    (pair,) = bp.capture(model, torch.randn(2, width).requires_grad_(), mode="train").pairs
    return [part.hash for part in part_costs(pair)]


@pytest.mark.slow
def test_models_that_have_the_same_layer_have_the_same_hash_there() -> None:
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Tanh()
            self.blocks = Stack(7).layers

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            for block in self.blocks:
                x = block(x, [])
            return x.sum()

    class Wide(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(12):
                x = torch.tanh(x * x) + torch.sin(x)
            return x

    deep, other, wide = hashes_of_layers(Stack(12)), hashes_of_layers(Other()), hashes_of_layers(Wide())
    assert deep == other
    assert len(deep) == 2
    assert not set(deep) & set(wide)


# ------------------------------------------------------------------ any graph


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(anything())
def test_any_graph_unfolds_to_itself(graph: Graph) -> None:
    assert_unfolds(graph)


TARGETS = [f"aten.{name}.default" for name in ("sin", "cos", "tan", "exp", "log", "neg")]


@st.composite
def repeating(draw: st.DrawFn) -> Graph:
    """Some steps again and again, each on the results of the last; sometimes with a step more, or another number."""
    block, times = draw(st.integers(1, 6)), draw(st.integers(2, 9))
    known, steps = ["x", "w_0", "w_1"], []
    plan = [(draw(st.integers(1, 9)), draw(st.booleans()), draw(st.sampled_from([0, 1, 24]))) for _ in range(block)]
    spec = TensorSpec("float32", (2, 3))
    for time in range(times):
        for place, (back, scaled, growth) in enumerate(plan):
            taken = Ref(known[max(0, len(known) - back)])
            weight = Ref(f"w_{time % 2}") if scaled else taken
            name = f"y_{time * block + place}" if draw(st.integers(0, 30)) else f"odd_{len(known)}"
            number = growth * time if draw(st.integers(0, 20)) else draw(st.integers(-3, 3))
            steps.append(Step(name, TARGETS[place], (taken, weight, number), spec=replace(spec, offset=time)))
            known.append(name)
        if not draw(st.integers(0, 12)):
            steps.append(Step(f"more_{len(known)}", "aten.abs.default", (Ref(known[-1]),), spec=spec))
            known.append(steps[-1].name)
    inputs = tuple(Port(name, "input", spec, name) for name in ("x", "w_0", "w_1"))
    results = draw(st.lists(st.sampled_from(known), min_size=1, max_size=4))
    outputs = tuple(Port(f"out_{place}", "output", spec) for place in range(len(results)))
    return Graph(inputs, tuple(steps), outputs, tuple(map(Ref, results)))


@settings(max_examples=100, deadline=None)
@given(repeating())
def test_steps_that_repeat_are_read_back_from_their_text(graph: Graph) -> None:
    assert_text_returns(graph)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(anything(), st.data())
def test_the_places_of_a_step_can_be_changed_and_changed_back(graph: Graph, data: st.DataObject) -> None:
    for step in graph.steps:
        places = dict(places_of(step))
        assert with_places(step, places) == step
        place = data.draw(st.sampled_from(sorted(places)))
        if place.startswith(("args.", "kwargs.")) and isinstance(places[place], str):
            other = with_places(step, {place: "another"})
            assert dict(places_of(other))[place] == "another"
            assert with_places(other, places) == step


@given(st.lists(st.one_of(st.text("ab_0123456789", max_size=8), st.integers(-99, 99)), min_size=2, max_size=9))
def test_a_series_has_what_it_was_made_of(values: list[Any]) -> None:
    series = series_of({(place,): value for place, value in enumerate(values)}, (len(values),))
    assert [series.at((place,)) for place in range(len(values))] == values
    assert all(type(series.at((place,))) is type(value) for place, value in enumerate(values))


def test_a_series_of_two_loops_grows_by_both() -> None:
    values = {(i, j): f"view_{20 + 12 * i - 3 * j}" for i in range(4) for j in range(3)}
    series = series_of(values | {(0, 0): "first"}, (4, 3))
    assert str(series) == "view_{20+12*i-3*j}"
    assert series.odd == (((0, 0), "first"),)


def test_a_text_with_loops_is_shown_and_not_read() -> None:
    text = graphs("layers")[0].fold().code
    with pytest.raises(RefusedError, match=r"a graph with loops, which is shown and not read; .* `backprint convert"):
        parse(text)


def test_a_text_that_does_not_unroll_to_its_graph_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake in the writer: another number in one name, which nothing else would notice."""
    forward, _ = graphs("layers")
    monkeypatch.setattr(fold, "emit_folded", lambda folded: emit_folded(folded).replace("{1+2*i}", "{2*i}"))
    assert str(forward) == forward.code


# ------------------------------------------------------------------ what went wrong once

SPEC = TensorSpec("float32", (2,))


def chain(*rows: Sequence[Any], target: str = "aten.add.Tensor", **parts: Any) -> Graph:
    """Return a graph of steps, each on the result of the last, with these arguments besides."""
    steps = [
        Step(f"y_{place}", target, (Ref(f"y_{place - 1}" if place else "x"), *row), spec=SPEC, **parts)
        for place, row in enumerate(rows)
    ]
    return graph_of_steps(steps)


def graph_of_steps(steps: Sequence[Step]) -> Graph:
    last = Ref(steps[-1].name)
    return Graph((Port("x", "input", SPEC, "x"),), tuple(steps), (Port("y", "output", SPEC),), (last,))


def test_a_step_without_an_echo_is_not_one_with_an_echo() -> None:
    echoes = [None if place % 3 else Echo("gradient of", ("x",)) for place in range(12)]
    steps = [
        Step(f"y_{place}", "aten.sin.default", (Ref(f"y_{place - 1}" if place else "x"),), spec=SPEC, echo=echo)
        for place, echo in enumerate(echoes)
    ]
    assert "for i in range" in assert_text_returns(graph_of_steps(steps))


def test_layers_that_share_weights_fold() -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    model = nn.Sequential(*[nn.Sequential(second if place % 2 else first, nn.Tanh()) for place in range(10)])
    (pair,) = bp.capture(model, torch.randn(2, 4), mode="train", engine="aot").pairs
    assert_text_returns(pair.forward)
    assert pair.backward is not None
    assert_text_returns(pair.backward)


@pytest.mark.parametrize("values", [(math.nan,), (math.inf, 1.0, -math.inf), (0.0, -0.0), (1.0, math.nan, -0.0)])
def test_floats_that_compare_in_odd_ways_stay_as_they_are(values: tuple[float, ...]) -> None:
    graph = chain(*[(values[place % len(values)],) for place in range(12)])
    text = assert_text_returns(graph) if not any(map(math.isnan, values)) else graph.fold().code
    assert "for i in range" in text
    assert to_the_letter(parse(unrolled(text))) == to_the_letter(graph)


def test_dictionaries_of_what_differs_keep_their_order() -> None:
    rows = [(Dict(((10 * place, 3 * place), (Ref("x"), List((place * place,))))),) for place in range(12)]
    assert "for i in range" in assert_text_returns(chain(*rows))


def test_a_rule_has_no_number_that_is_too_long_to_be_read() -> None:
    steps, names = [], "sin cos tan exp log neg abs erf".split()
    for place, number in enumerate([0, 2**63 - 1, -(2**63)]):
        for name in names:
            before = Ref(steps[-1].name if steps else "x")
            steps.append(Step(f"{name}_{place}", f"aten.{name}.default", (before, number), spec=SPEC))
    assert "for i in range(3)" in assert_text_returns(graph_of_steps(steps))


def test_what_a_loop_computes_itself_is_not_taken_before_it() -> None:
    steps: list[Step] = []
    for place in range(9):
        steps.append(Step(f"y_{place}", "aten.sin.default", (Ref(f"y_{place - 1}" if place else "x"),), spec=SPEC))
        if place == 0:
            steps.append(Step("more", "aten.abs.default", (Ref("y_0"),), spec=SPEC))
        taken = Ref(f"z_{place - 1}" if place else "more")
        steps.append(Step(f"z_{place}", "aten.add.Tensor", (taken, Ref(f"y_{place}")), spec=SPEC))
    assert "if i == 0:" in assert_text_returns(graph_of_steps(steps))


def test_modules_may_have_names_that_are_not_ascii() -> None:
    class Wave(nn.Module):
        def forward(self, x: Tensor, weight: Tensor) -> Tensor:
            return (x * weight).sin() + torch.cos(x) * weight.exp()

    class Waves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wellenlänge = Wave()

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(3):
                x = self.wellenlänge(x, x.abs()) - self.wellenlänge(x, x.neg())
                x = self.wellenlänge(x.relu(), x).floor()
            return x

    assert_text_returns(bp.capture(Waves(), torch.randn(4)).pairs[0].forward)


def test_operators_with_underscores_do_not_name_what_python_renames() -> None:
    steps: list[Step] = []
    for place in range(12):
        before = Ref(steps[-1].name if steps else "x")
        steps.append(Step(f"_{2 * place}", "aten.__and__.Scalar", (before, 1), spec=SPEC))
        steps.append(Step(f"_{2 * place + 1}", "aten.neg.default", (Ref(f"_{2 * place}"),), spec=SPEC))
    assert " __and__" not in assert_text_returns(graph_of_steps(steps))


def test_a_subgraph_with_a_name_of_the_class_has_a_flat_text_alone() -> None:
    inner = graph_of_steps([Step("y", "aten.sin.default", (Ref("x"),), spec=SPEC)])
    for name in ("inputs", "outputs", "range"):
        graph = Graph(inner.inputs, inner.steps, inner.outputs, inner.results, ((name, inner),))
        with pytest.raises(RefusedError, match="which only the flat text of a graph has"):
            _ = graph.fold().code
        assert str(graph) == graph.code


def test_a_source_that_begins_as_a_rule_has_a_flat_text_alone() -> None:
    graph = chain(*[(place,) for place in range(12)], source=Source("at 3: x.py", 7, "forward", "y = x"))
    with pytest.raises(RefusedError, match="its source begins as a rule does"):
        _ = graph.fold().code


def test_an_encoding_is_refused_in_a_flat_text() -> None:
    with pytest.raises(RefusedError, match="names an encoding"):
        parse("# -*- coding: utf-7 -*-\n" + graphs("layers")[0].code)


# ------------------------------------------------------------------ stretches


@pytest.mark.slow
@pytest.mark.parametrize("odd", [False, True])
def test_stretches_are_the_iterations_of_the_fold_and_the_steps_between(odd: bool) -> None:
    [pair] = bp.capture(Stack(5, odd), torch.randn(2, 8)).pairs
    for graph in (pair.forward, pair.backward):
        wanted, at = [], 0
        for item in graph.fold().items:
            if isinstance(item, Loop):
                for iteration in range(item.count):
                    length = sum(1 for _ in unfolded_once(item.items, (), iteration))
                    wanted.append((at, at + length))
                    at += length
            else:
                at += 1
        found = stretches_of(graph)
        assert [(each.start, each.stop) for each in found if each.loop is not None] == wanted
        assert [step for each in found for step in each.steps(graph)] == list(graph.steps)
        for each in found:
            part = StretchGraphs(graph).graph_of(each)
            assert part.steps == each.steps(graph)
            assert len(part.hash()) == 64


@pytest.mark.slow
def test_a_graph_without_loops_is_one_stretch() -> None:
    graph = bp.capture(lambda x: x.sin().cos(), torch.randn(3)).pairs[0].forward
    assert [(each.start, each.stop, each.loop) for each in stretches_of(graph)] == [(0, len(graph.steps), None)]


def test_the_collector_runs_again_after_a_pause() -> None:
    def paused_and_failing() -> None:
        with collector_paused(), collector_paused():
            assert not gc.isenabled()
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        paused_and_failing()
    assert gc.isenabled()
