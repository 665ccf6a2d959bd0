"""A folded graph unfolds to the graph that was folded, and is shown as a listing."""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from subjects.random_graphs import anything, to_the_letter
from torch import Tensor, nn

import backprint as bp
from face import (
    DEEPEST,
    MOST,
    Dict,
    Echo,
    FoldedGraph,
    FoldedStep,
    Graph,
    Item,
    List,
    Loop,
    Only,
    Port,
    Ref,
    RefusedError,
    Step,
    StretchGraphs,
    TensorSpec,
    collector_paused,
    in_braces,
    parse,
    part_costs,
    series_of,
    stretches_of,
    summarize,
    unfolded_once,
)


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


@cache
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


def listing(graph: Graph) -> str:
    return str(assert_unfolds(graph))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_layers_and_time_steps_are_loops(name: str) -> None:
    for graph in graphs(name):
        text = listing(graph)
        assert 3 * text.count("\n") < 2 * graph.code.count("\n")
        assert str(graph) == text


LISTED = """\
    for i in range(12):  # layers.0 … layers.11
        # [layers.{i}.norm] ...: y = self.norm(x)
        {i=0: native_layer_norm, else native_layer_norm_{2+i}}: "(f32[2, 8], f32[2, 1], f32[2, 1])" = \
aten.native_layer_norm.default({i=0: x, else add_{i-1}}, [8], layers_{i}_norm_weight, layers_{i}_norm_bias, 1e-05)
        {i=0: native_layer_norm_0, else native_layer_norm_{2+i}_0}: "f32[2, 8]" = \
{i=0: native_layer_norm, else native_layer_norm_{2+i}}[0]
        {i=0: native_layer_norm_1, else native_layer_norm_{2+i}_1}: "f32[2, 1]" = \
{i=0: native_layer_norm, else native_layer_norm_{2+i}}[1]
        {i=0: native_layer_norm_2, else native_layer_norm_{2+i}_2}: "f32[2, 1]" = \
{i=0: native_layer_norm, else native_layer_norm_{2+i}}[2]
        # [layers.{i}.up] ...: return x + self.down(torch.nn.functional.gelu(self.up(y)))
        t_{2i}: "f32[8, 16] stride=[1, 8]" = aten.t.default(layers_{i}_up_weight)
        addmm_{2i}: "f32[2, 16]" = aten.addmm.default(layers_{i}_up_bias, \
{i=0: native_layer_norm_0, else native_layer_norm_{2+i}_0}, t_{2i})
        # [layers.{i}] ...: return x + self.down(torch.nn.functional.gelu(self.up(y)))
        gelu_{i}: "f32[2, 16]" = aten.gelu.default(addmm_{2i})
"""


def test_a_listing_has_each_repeated_step_once_and_what_differs_in_braces() -> None:
    forward, backward = graphs("layers")
    text = re.sub(r"\S+:\d+ in forward", "...", listing(forward))
    assert LISTED in text
    lines = text.split("\n")
    assert lines[2:5] == [
        "forward(",
        "    for i in range(12):",
        "        layers_{i}_norm_weight: f32[8] parameter layers.{i}.norm.weight",
    ]
    assert "    output: f32[2, 3] output output" in text or ") -> (" in lines
    text = listing(backward)
    assert "    for i in range(12):  # layers.11 … layers.0\n" in text
    assert "# gradient of addmm_{23-2i}\n" in text


def test_an_odd_first_layer_keeps_its_step_in_its_iteration() -> None:
    forward, _ = graphs("an odd layer")
    (loop,) = [loop for loop in loops(forward.fold().items) if loop.count == 6]
    (odd,) = [item for item in loop.items if isinstance(item, Only)]
    assert (odd.iteration, targets(odd.items)) == (0, ["aten.cos.default"])
    assert "        if i == 0:\n            # [layers.0] " in str(forward.fold())


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
    listing(graph)


def nesting(items: tuple[Item, ...]) -> int:
    return max([0, *(1 + nesting(item.items) for item in items if isinstance(item, Loop))])


def test_views_that_follow_no_rule_are_a_list() -> None:
    spec = TensorSpec("float32", (2,))
    offsets = (0, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5)
    steps = [
        Step(
            f"y_{place}", "aten.sin.default", (Ref(f"y_{place - 1}" if place else "x"),), spec=replace(spec, offset=at)
        )
        for place, at in enumerate(offsets)
    ]
    graph = Graph((Port("x", "input", spec, "x"),), tuple(steps), (Port("y", "output", spec),), (Ref("y_11"),))
    line = '    y_{i}: "f32[2] offset={0, 3, 1, …, 5}" = aten.sin.default({i=0: x, else y_{i-1}})\n'
    assert f"    for i in range(12):\n    {line}" in listing(graph)


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
def test_any_graph_unfolds_to_itself_and_has_a_listing(graph: Graph) -> None:
    listing(graph)


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
def test_steps_that_repeat_unfold_to_the_graph(graph: Graph) -> None:
    listing(graph)


def test_a_series_of_two_loops_grows_by_both() -> None:
    values = {(i, j): f"view_{20 + 12 * i - 3 * j}" for i in range(4) for j in range(3)}
    series = series_of(values | {(0, 0): "first"}, (4, 3))
    assert str(series) == "view_{20+12i-3j}"
    assert series.odd == (((0, 0), "first"),)
    assert {index: series.at(index) for index in values} == values | {(0, 0): "first"}


def read_braces(text: str, place: int) -> str:
    """What a text with braces has in an iteration, as a reader takes it."""

    def number(match: re.Match[str]) -> str:
        terms = re.findall(r"([+-]?)(\d*)(i?)", match[1])
        each = [
            int(f"{sign}{digits or 1}") * (place if index else 1) for sign, digits, index in terms if digits or index
        ]
        return str(sum(each))

    rows = re.fullmatch(r"\{(i=.*), else (.*)\}", text)
    if rows is not None:
        odd = dict(row.removeprefix("i=").split(": ", 1) for row in rows[1].split(", "))
        text = odd.get(str(place), rows[2])
    elif re.fullmatch(r"\{.*, .*\}", text):
        return text[1:-1].split(", ")[place]
    return re.sub(r"\{([^{}]*)\}", number, text)


@given(
    st.lists(st.sampled_from(["x", "x_0", "x_1", "y_3_4", "z_07", 0, 1, -4]), max_size=4),
    st.sampled_from(["x_{}", "y_{}_1", 1]),
    st.integers(-9, 9),
    st.integers(-3, 3),
    st.integers(2, MOST),
)
def test_braces_say_what_each_iteration_has(odd: list[Any], rule: Any, start: int, step: int, count: int) -> None:
    numbers = [start + step * place for place in range(count)]
    values: list[Any] = [rule.format(abs(number)) if isinstance(rule, str) else number for number in numbers]
    for place, value in zip(range(0, count, 2), odd, strict=False):
        values[place] = value
    if len({*map(str, values)}) == 1:
        return
    text = in_braces(series_of({(place,): value for place, value in enumerate(values)}, (count,)), None)
    assert [read_braces(text, place) for place in range(count)] == list(map(str, values)), text


def test_a_listing_is_shown_and_not_read() -> None:
    with pytest.raises(
        RefusedError, match=r"a listing of a graph with loops, .*: use `graph\.code`, or `backprint show"
    ):
        parse(str(graphs("layers")[0]))


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
    assert "for i in range" in listing(graph_of_steps(steps))


def test_layers_that_share_weights_fold() -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    model = nn.Sequential(*[nn.Sequential(second if place % 2 else first, nn.Tanh()) for place in range(10)])
    (pair,) = bp.capture(model, torch.randn(2, 4), mode="train", engine="aot").pairs
    listing(pair.forward)
    assert pair.backward is not None
    listing(pair.backward)


@pytest.mark.parametrize("values", [(math.nan,), (math.inf, 1.0, -math.inf), (0.0, -0.0), (1.0, math.nan, -0.0)])
def test_floats_that_compare_in_odd_ways_stay_as_they_are(values: tuple[float, ...]) -> None:
    graph = chain(*[(values[place % len(values)],) for place in range(12)])
    folded = graph.fold()
    assert "for i in range" in str(folded)
    assert to_the_letter(folded.unfold()) == to_the_letter(graph)


def test_dictionaries_of_what_differs_keep_their_order() -> None:
    rows = [(Dict(((10 * place, 3 * place), (Ref("x"), List((place * place,))))),) for place in range(12)]
    assert "for i in range" in listing(chain(*rows))


def test_a_rule_has_no_number_that_is_too_long_to_be_read() -> None:
    steps, names = [], "sin cos tan exp log neg abs erf".split()
    for place, number in enumerate([0, 2**63 - 1, -(2**63)]):
        for name in names:
            before = Ref(steps[-1].name if steps else "x")
            steps.append(Step(f"{name}_{place}", f"aten.{name}.default", (before, number), spec=SPEC))
    assert "for i in range(3)" in listing(graph_of_steps(steps))


def test_what_a_loop_computes_itself_is_not_taken_before_it() -> None:
    steps: list[Step] = []
    for place in range(9):
        steps.append(Step(f"y_{place}", "aten.sin.default", (Ref(f"y_{place - 1}" if place else "x"),), spec=SPEC))
        if place == 0:
            steps.append(Step("more", "aten.abs.default", (Ref("y_0"),), spec=SPEC))
        taken = Ref(f"z_{place - 1}" if place else "more")
        steps.append(Step(f"z_{place}", "aten.add.Tensor", (taken, Ref(f"y_{place}")), spec=SPEC))
    assert "if i == 0:" in listing(graph_of_steps(steps))


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


def test_the_collector_runs_again_after_a_pause() -> None:
    def paused_and_failing() -> None:
        with collector_paused(), collector_paused():
            assert not gc.isenabled()
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        paused_and_failing()
    assert gc.isenabled()
