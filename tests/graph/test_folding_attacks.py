"""Graphs whose folds went wrong once, and texts that ran as something else than what was read of them."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from subjects.random_graphs import to_the_letter
from test_folding import assert_text_returns, folded_text, graphs
from torch import Tensor, nn

import backprint as bp
from backprint.errors import GraphError, RefusedError
from backprint.graph.folding.fold import parse_folded
from backprint.graph.nouns import Dict, Echo, Graph, List, Port, Ref, Source, Step, TensorSpec
from backprint.graph.text import parse

SPEC = TensorSpec("float32", (2,))


def chain(*rows: Sequence[Any], target: str = "aten.add.Tensor", **parts: Any) -> Graph:
    """Return a graph of steps, each on the result of the last, with these arguments besides."""
    steps = [
        Step(f"y_{place}", target, (Ref(f"y_{place - 1}" if place else "x"), *row), spec=SPEC, **parts)
        for place, row in enumerate(rows)
    ]
    return graph_of(steps)


def graph_of(steps: Sequence[Step]) -> Graph:
    last = Ref(steps[-1].name)
    return Graph((Port("x", "input", SPEC, "x"),), tuple(steps), (Port("y", "output", SPEC),), (last,))


def test_a_step_without_an_echo_is_not_one_with_an_echo() -> None:
    echoes = [None if place % 3 else Echo("gradient of", ("x",)) for place in range(12)]
    steps = [
        Step(f"y_{place}", "aten.sin.default", (Ref(f"y_{place - 1}" if place else "x"),), spec=SPEC, echo=echo)
        for place, echo in enumerate(echoes)
    ]
    assert "for i in range" in assert_text_returns(graph_of(steps))


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
    back = parse_folded(text)
    assert to_the_letter(replace(back, title="")) == to_the_letter(replace(graph, title=""))


def test_dictionaries_of_what_differs_keep_their_order() -> None:
    rows = [(Dict(((10 * place, 3 * place), (Ref("x"), List((place * place,))))),) for place in range(12)]
    assert "for i in range" in assert_text_returns(chain(*rows))


def test_a_rule_has_no_number_that_is_too_long_to_be_read() -> None:
    steps, names = [], "sin cos tan exp log neg abs erf".split()
    for place, number in enumerate([0, 2**63 - 1, -(2**63)]):
        for name in names:
            before = Ref(steps[-1].name if steps else "x")
            steps.append(Step(f"{name}_{place}", f"aten.{name}.default", (before, number), spec=SPEC))
    assert "for i in range(3)" in assert_text_returns(graph_of(steps))


def test_what_a_loop_computes_itself_is_not_taken_before_it() -> None:
    steps: list[Step] = []
    for place in range(9):
        steps.append(Step(f"y_{place}", "aten.sin.default", (Ref(f"y_{place - 1}" if place else "x"),), spec=SPEC))
        if place == 0:
            steps.append(Step("more", "aten.abs.default", (Ref("y_0"),), spec=SPEC))
        taken = Ref(f"z_{place - 1}" if place else "more")
        steps.append(Step(f"z_{place}", "aten.add.Tensor", (taken, Ref(f"y_{place}")), spec=SPEC))
    assert "if i == 0:" in assert_text_returns(graph_of(steps))


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
    assert " __and__" not in assert_text_returns(graph_of(steps))


def test_a_subgraph_with_a_name_of_the_class_has_a_flat_text_alone() -> None:
    inner = graph_of([Step("y", "aten.sin.default", (Ref("x"),), spec=SPEC)])
    for name in ("inputs", "outputs", "range"):
        graph = Graph(inner.inputs, inner.steps, inner.outputs, inner.results, ((name, inner),))
        with pytest.raises(RefusedError, match="which only the flat text of a graph has"):
            _ = graph.fold().code
        assert str(graph) == graph.code


def test_a_source_that_begins_as_a_rule_has_a_flat_text_alone() -> None:
    graph = chain(*[(place,) for place in range(12)], source=Source("at 3: x.py", 7, "forward", "y = x"))
    with pytest.raises(RefusedError, match="its source begins as a rule does"):
        _ = graph.fold().code


# ------------------------------------------------------------------ texts of strangers

LAST = '        return tuple(v[port.partition(":")[0]] for port in self.outputs)'
EPS = 'params[f"layers_{i}_norm_bias"], 1e-05)'
HUGE = "0x" + "f" * 20_000


def number(text: str) -> tuple[str, str, str]:
    return "layers", EPS, EPS.replace("1e-05", text)


def line(text: str) -> tuple[str, str, str]:
    return "layers", LAST, f"        # a.py:3 in f: y\n        {text}\n{LAST}"


TEXTS: dict[str, tuple[tuple[str, str, str], str]] = {
    "a key twice": (number("{0: 1e-05, 1: 0.1, 0: 5.0}.get(i, 1e-05)"), "keys, each of them once"),
    "a key that equals another": (number("{0: 1e-05, False: 5.0}.get(i, 1e-05)"), "keys, each of them once"),
    "a table in a table": (number("{0: 1e-05, **{0: 5.0}}.get(i, 1e-05)"), "keys, each of them once"),
    "a key that equals nothing": (number("{nan: 5.0}.get(nan, 1e-05)"), "keys, each of them once"),
    "a row that raises": (number("{0: 1e-05, 99: {}[0]}.get(i, 1e-05)"), "the table has nothing for 0"),
    "a row of an index": (number("{0: 1e-05, 99: i}.get(i, 1e-05)"), "made of literals and indexes"),
    "another value that raises": (
        number(f"{{{', '.join(f'{n}: 0.1' for n in range(12))}}}.get(i, {{}}[0])"),
        "nothing",
    ),
    "sums of floats": (number("0*i + 1e999 - 1e999"), "is not a whole number"),
    "a number of many bits": (number(f"{{0: {HUGE}}}.get(i, 1e-05)"), "a number of 80000 bits"),
    "a name of many digits": (("layers", 'inputs["x"]', f'inputs[f"x{{{HUGE}}}"]'), "is not a sum of indexes"),
    "a loop of many digits": (("layers", "range(12):", f"range({HUGE}):"), "a loop of 0xffff"),
    "a result in a tuple": (("functions", "    return view_1\n", "    return view_1,\n"), "the names of steps"),
    "a result unpacked": (
        ("functions", "            view = addmm(", "            (view,) = addmm("),
        "a step's result",
    ),
    "an argument twice": (("functions", "size, size_1):", "size, size):"), "has a name twice"),
    "a size that is computed": (
        ("functions", "    return view_1\n", "    size_1 = aten.t.default(weight)\n    return view_1\n"),
        "a step's result has the name of an argument",
    ),
    "an argument that Python knows": (("functions", "addmm(weight,", "addmm(__debug__,"), "takes a name"),
    "a class that is decorated": (("functions", "class Graph", "@print\nclass Graph"), "ends with one class"),
    "a member that is decorated": (
        ("functions", "    inputs = [", "    @print\n    class sub(torch.nn.Module):\n        pass\n    inputs = ["),
        "a member of a folded graph has no decorator",
    ),
    "other ports": (
        ("functions", "    def forward", "    class outputs(torch.nn.Module):\n        pass\n    def forward"),
        "a member of a folded graph has no decorator",
    ),
    "ports that are awaited": (
        ("functions", "            for i in range(4)\n", "            async for i in range(4)\n"),
        "a list of ports has texts",
    ),
    "an encoding": (("layers", "import math\n", "# coding: utf-7\nimport math\n"), "names an encoding"),
    "a name that Python knows": (line('__debug__ = aten.sin.default(v["add_11"])'), "which the text has already"),
    "a name with many numbers": (
        ("layers", 'inputs["x"]', f'inputs[f"x{"{0}" * 3000}"]'),
        "is taken before a step computes it",
    ),
    "a statement on two lines": (line('z = \\\n   aten.sin.default(v["add_11"])'), "a backslash outside a string"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_a_text_with_two_meanings_is_refused(case: str) -> None:
    (name, before, after), said = TEXTS[case]
    text = folded_text(name)
    assert before in text
    with pytest.raises(GraphError, match=said):
        parse_folded(text.replace(before, after, 1))


def test_a_function_that_python_renames_is_refused() -> None:
    text = folded_text("functions").replace("def addmm(", "def __addmm(").replace("= addmm(", "= __addmm(")
    with pytest.raises(RefusedError, match="takes a name that the text has already"):
        parse_folded(text)


def test_loops_that_look_at_much_are_refused_before_they_are_written() -> None:
    table = ", ".join(f'{place}: "x"' for place in range(20_000))
    loop = f'for i in range(60000):\n            last_x = v[{{{table}}}.get(i, "x")]'
    began = time.process_time()
    with pytest.raises(RefusedError, match=r"the loops look at [\d,]+ characters; at most"):
        parse_folded(folded_text().replace(LAST, f"        {loop}\n{LAST}"))
    assert time.process_time() - began < 20


def test_an_encoding_is_refused_in_a_flat_text() -> None:
    with pytest.raises(RefusedError, match="names an encoding"):
        parse("# -*- coding: utf-7 -*-\n" + graphs("layers")[0].code)
