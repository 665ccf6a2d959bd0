"""A folded graph unfolds to the graph that was folded, and so does its text, which runs."""

from __future__ import annotations

import gc
import random
import re
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
from backprint.errors import GraphError, RefusedError
from backprint.graph.folding.costs import part_costs
from backprint.graph.folding.find import DEEPEST
from backprint.graph.folding.fold import parse_folded
from backprint.graph.folding.functions import Finder
from backprint.graph.folding.names import planned_names
from backprint.graph.folding.nouns import FoldedGraph, FoldedStep, Item, Loop, Only, unfolded_once
from backprint.graph.folding.places import places_of, with_places
from backprint.graph.folding.series import series_of
from backprint.graph.folding.stored import collector_paused
from backprint.graph.folding.stretches import StretchGraphs, stretches_of
from backprint.graph.folding.text import emit_folded
from backprint.graph.nouns import Graph, Port, Ref, Step, TensorSpec
from backprint.graph.summary import summarize
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
    back = parse_folded(text)
    assert back == graph
    assert to_the_letter(back) == to_the_letter(replace(graph, title=back.title))
    return text


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


@pytest.mark.parametrize("name", ["functions", "layers"])
def test_a_function_does_not_go_across_modules(name: str) -> None:
    for graph in graphs(name):
        names = planned_names(graph.fold())
        for function in Finder(names).found():
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


# ------------------------------------------------------------------ texts of strangers


@cache
def graphs_read(name: str) -> Graph:
    return parse_folded(folded_text(name))


@cache
def folded_text(name: str = "layers") -> str:
    return graphs(name)[0].fold().code


HOSTILE = {
    "a billion iterations": ("range(12)", "range(1000000000)", "a loop of 1000000000 iterations"),
    "many iterations": ("range(12)", "range(240000)", r"the loops write [\d,]+ statements or ports"),
    "none": ("range(12)", "range(0)", "a loop of 0 iterations"),
    "another iterable": ("in range(12):", "in open('x'):", r"a loop of a folded graph is over range\(N\)"),
    "another index": (
        "for i in range(12):\n            #",
        "for z in range(12):\n            #",
        "with the indexes i, j",
    ),
    "a call in a name": ('inputs["x"]', "inputs[str(1)]", "made of literals and indexes"),
    "no name of a value": ('inputs["x"]', 'inputs["a b"]', "is not the name of a value"),
    "a name that nothing has": ('inputs["x"]', 'inputs["y"]', "'y' is taken before a step computes it"),
    "a statement in a name": ("as addmm_{1+2*i}", "as a = b_{i}", "is not the name of a value"),
    "a statement in a port": ('"x: f32', '"x, y=exec: f32', "is not the name of a value"),
    "a statement in a result": ('"addmm_24: f32', '"exec(1): f32', "is taken before a step computes it"),
    "a huge number": ("{i}", "{9999999999*9999999999+i}", "a number of 67 bits"),
    "a long expression": ("{i}", "{" + "+".join(["i"] * 200) + "}", "is not a sum of indexes"),
    "an attribute": ("{i}", "{i.real}", "made of literals and indexes|is not a sum of indexes"),
    "other first line": ('= {"None": None', '= {"None": 1', "the forward of a folded graph begins with"),
    "no iteration has it": ('inputs["x"]', 'inputs[{99: "x"}[0]]', "the table has nothing for 0"),
    "a call of its own": ("aten.gelu.default(", "exec(", "exec"),
}


FUNCTIONS = {
    "a function that calls itself": ("aten.t.default(weight)", "addmm(weight, bias, view, 8, 8)", "addmm"),
    "an annotation": ("def addmm(weight,", "def addmm(weight: print(1),", "a function of a folded graph is one line"),
    "a default": ("size_1):", "size_1=print(1)):", "a function of a folded graph is one line"),
    "a decorator": ("def addmm(", "@print\ndef addmm(", "a function of a folded graph is one line"),
    "the name of an operator's module": ("def addmm(", "def aten(", "takes a name that the text has already"),
    "the name of a builtin": ("def addmm(", "def exec(", "takes a name that the text has already"),
    "an argument of such a name": ("def addmm(weight,", "def addmm(torch,", "takes a name that the text has already"),
    "an argument of a number's name": ("def addmm(weight,", "def addmm(a,", "takes a name that the text has already"),
    "a result that nothing computes": ("    return view_1", "    return view_9", "the names of steps of its own"),
    "no result": ("    return view_1", "    pass", "the names of steps of its own"),
    "a table in a function": ("aten.t.default(weight)", 'aten.t.default(v["x"])', "no such table of values here"),
    "an index in a function": ("aten.t.default(weight)", "aten.t.default(i)", "'i' is taken before"),
    "an argument less": (", 8, 12)", ", 8)", "is called with 4 arguments for 1 results, but takes 5 for 1"),
    "a number for a value": ("addmm(params[", "addmm(7 or params[", "made of literals and indexes"),
    "a call as an argument": (", 8, 12)", ", 8, len([]))", "made of literals and indexes"),
    "a number of a name that is none": ("# a=4+6*i", "# a=exec", "no size is known for 'exec'"),
    "a name that two calls compute": ("# a=4+6*i", "# a=5+6*i", "is defined twice"),
    "a comment that is read by none": (
        "        for i in range(4):",
        "        for i in range(4):  # x",
        "that is no step",
    ),
    "a comment that says something else": ("# as t_{a}", "# recomputed", "does not say how a step relates"),
    "a statement in a comment": ("# as t_{a}", "# as t_{a} = exec; t", "is not the name of a value"),
    "a forward with a decorator": (
        "    def forward(",
        "    @print\n    def forward(",
        "the forward of a folded graph is",
    ),
    "a forward with an annotation": ("*given):", "*given: print(1)):", "the forward of a folded graph is|no class"),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_a_hostile_function_is_refused_by_name(case: str) -> None:
    before, after, said = FUNCTIONS[case]
    text = folded_text("functions")
    assert before in text
    with pytest.raises(GraphError, match=said):
        parse_folded(text.replace(before, after, 1))


def test_calls_that_multiply_are_refused_before_they_are_written() -> None:
    text = folded_text("functions")
    line = next(line for line in text.split("\n") if "= addmm(" in line)
    many = text.replace("for i in range(4):", "for i in range(60000):").replace(line, "\n".join([line] * 10))
    with pytest.raises(RefusedError, match=r"the loops write [\d,]+ statements or ports"):
        parse_folded(many)


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_text_is_refused_by_name(case: str) -> None:
    before, after, said = HOSTILE[case]
    text = folded_text()
    assert before in text
    with pytest.raises(GraphError, match=said):
        parse_folded(text.replace(before, after))


PIECES = (
    "{i}", "v[", "]", "if i == 0:", "for i in range(99):", "i", "None", "{0: 1}[i]", ".get(", 'f"{i}"', " as ", " at 1",
    "; ", "**{", "lambda: 0", "(", ")", "\n", "    ", "# at , :", "# ", "-", "*", '"', "\\", "True", "10**9",
    "given", "...",
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(["layers", "functions"]), st.randoms(use_true_random=False))
def test_a_damaged_text_is_refused_or_runs_as_it_was_read(name: str, draw: random.Random) -> None:
    lines = folded_text(name).split("\n")
    for _ in range(draw.randint(1, 3)):
        place, other = draw.randrange(8, len(lines)), draw.randrange(8, len(lines))
        line, at = lines[place], draw.randrange(len(lines[place]) + 1)
        words = re.findall(r"\w+", lines[other]) or ["x"]
        lines[place] = draw.choice(
            [
                line[:at] + draw.choice(PIECES) + line[at:],
                line[:at] + line[at + draw.randint(1, 5) :],
                lines[other],
                re.sub(r"\w+", draw.choice(words), line, count=1),
                re.sub(r"\d+", lambda found: str(int(found[0]) + draw.randint(-1, 1)), line, count=1),
            ]
        )
    text = "\n".join(lines)
    try:
        graph = parse_folded(text)
    except GraphError:
        return
    inputs = [made(port, place) for place, port in enumerate(graphs_read(name).inputs)]
    read, ran = outcome(graph.code, inputs), outcome(text, inputs)
    assert (read is None) == (ran is None)
    for one, other in zip(read or (), ran or (), strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))


def outcome(text: str, inputs: list[Tensor]) -> tuple[Any, ...] | None:
    """What a text computes; None if PyTorch refuses a call of it."""
    try:
        return run(text, inputs)
    except (RuntimeError, IndexError, TypeError, ValueError):
        return None


def test_nested_loops_that_multiply_are_refused_before_they_are_written() -> None:
    text = folded_text()
    line = "        for i in range(12):\n"
    nest = "".join(f"{'    ' * (2 + depth)}for {index} in range(1000):\n" for depth, index in enumerate("ijkl"))
    start = text.index(line)
    body = '                        y: "f32[2] as y_{i}" = aten.relu.default(v["x"])\n'
    with pytest.raises(RefusedError, match="the loops write 2,001,001,001,001 statements"):
        parse_folded(text[:start] + nest + body + text[text.index("        return tuple") :])


def test_a_name_that_two_iterations_have_is_refused() -> None:
    text = folded_text()
    assert "# as t_{2*i}" in text
    with pytest.raises(GraphError, match="'t' is defined twice"):
        parse_folded(text.replace("# as t_{2*i}", "# as t_0"))


def test_the_flat_reader_does_not_take_a_folded_text() -> None:
    with pytest.raises(GraphError, match="a string with a prefix"):
        parse(folded_text())


# ------------------------------------------------------------------ stretches


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
