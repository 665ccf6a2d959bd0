"""A graph's text is its storage: reading what it prints gives the same graph back."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from subjects.random_graphs import SOURCES, SPECS, anything, to_the_letter

from face import (
    Atom,
    Device,
    Dict,
    Echo,
    Graph,
    GraphError,
    List,
    Op,
    Port,
    Ref,
    ScalarSpec,
    Slice,
    Source,
    Step,
    Sub,
    Symbol,
    TensorSpec,
    Value,
    parse,
    read_spec,
    show_spec,
)

F32 = TensorSpec("float32", (2, 3))
X = Port("x", "input", F32, "x")
OUT = Port("out", "output", F32)
RELU = Step("relu", "aten.relu.default", (Ref("x"),), spec=F32)


def graph_of(*steps: Step, result: Value = None) -> Graph:
    return Graph((X,), steps, (OUT,), (result,))


def assert_returns(graph: Graph) -> None:
    """`==` alone takes 1 for True and 0.0 for -0.0, so the graphs are compared as they print, too."""
    back = parse(graph.code)
    assert back == graph
    assert to_the_letter(back) == to_the_letter(replace(graph, title=back.title))
    assert back.code == graph.code


VALUES: dict[str, Value] = {
    "none": None,
    "true": True,
    "false": False,
    "zero": 0,
    "negative": -7,
    "wide": -(2**63),
    "float": 0.1,
    "minus zero": -0.0,
    "tiny": 5e-324,
    "nan": math.nan,
    "inf": math.inf,
    "minus inf": -math.inf,
    "complex": complex(-0.0, 2.5),
    "complex of inf": complex(math.inf, -math.inf),
    "string": "mean",
    "odd string": "a'b\"c\\d\n\t\0# é \u2028 \ud800 {x} %s",
    "ref": Ref("x"),
    "op": Op("aten.add.Tensor"),
    "plain op": Op("operator.add"),
    "higher op": Op("torch.ops.higher_order.cond"),
    "atom": Atom("bfloat16"),
    "layout": Atom("strided"),
    "format": Atom("channels_last"),
    "device": Device("cuda:1"),
    "slice": Slice(None, -1, Ref("x")),
    "list": List((1, Ref("x"), List(()))),
    "tuple": (1, (2,), ()),
    "dict": Dict((("a", 1), (Ref("x"), List((2.0,))), (None, Dict(())))),
    "deep": List((List((List((List((Slice(Dict(((1, (Ref("x"),)),)), 1, 2),)),)),)),)),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_every_kind_of_value_comes_back(value: Value) -> None:
    assert_returns(graph_of(Step("v", "aten.add.Tensor", (value,), (("alpha", value),)), result=value))


def test_a_complex_nan_comes_back() -> None:
    graph = graph_of(result=complex(math.nan, math.nan))
    assert parse(graph.code).code == graph.code


def test_the_text_is_what_the_manual_shows() -> None:
    steps = (
        Step("conv", "aten.convolution.default", (Ref("x"), None, List((1, -1))), (("from", 1),), F32, MODEL),
        Step("item", "operator.getitem", (Ref("conv"), 0), (), ScalarSpec("SymInt", "s0"), MODEL),
        Step("guard_0", "assert_equal", (Ref("item"), 3)),
    )
    graph = Graph((X,), steps, (OUT,), (Ref("conv"),), symbols=(Symbol("s0", 4, "2"),), title="one step")
    assert graph.code == MANUAL
    assert_returns(graph)


MODEL = Source("model.py", 12, "forward", "out = self.conv1(x)", "layer1.0.conv1")
MANUAL = '''\
"""one step"""

import math
import operator

import torch
from torch import inf, nan

aten, prims = torch.ops.aten, torch.ops.prims


class GraphModule(torch.nn.Module):
    s0: "4 in [2, inf]"
    def forward(
        self,
        x: "f32[2, 3] input x",
    ) -> (
        "f32[2, 3] output out",
    ):
        # [layer1.0.conv1] model.py:12 in forward: out = self.conv1(x)
        conv: "f32[2, 3]" = aten.convolution.default(x, None, [1, -1], **{'from': 1})
        item: "SymInt(s0)" = conv[0]
        # -
        assert item == 3
        return (conv,)
'''


@pytest.mark.parametrize("index", [0, -1, "key", True, (0, 1), Slice(None, 2, None), Ref("x"), None])
def test_items_come_back(index: Value) -> None:
    assert_returns(graph_of(Step("item", "operator.getitem", (Ref("x"), index))))


@pytest.mark.parametrize("first", [List((1, 2)), (), Sub("body"), "text", 3])
def test_items_of_what_has_no_name_come_back(first: Value) -> None:
    assert_returns(Graph((), (Step("item", "operator.getitem", (first, 0)),), (), (), (("body", graph_of()),)))


@pytest.mark.parametrize("key", ["from", "None", "class", "lambda", "self", "match", "_", "dim"])
def test_keywords_that_python_cannot_spell_come_back(key: str) -> None:
    assert_returns(graph_of(Step("v", "aten.add.Tensor", (Ref("x"),), ((key, Ref("x")), ("beta", List(()))))))


def test_guards_of_the_three_kinds_come_back() -> None:
    size = Step("size", "aten.sym_size.int", (Ref("x"), 0))
    kinds = [("assert_equal", (Ref("size"), 3)), ("assert_nan", (Ref("size"),)), ("assert_shape", (Ref("x"), (4, 1)))]
    kinds += [("assert_equal", (Ref("size"), value)) for value in (True, -0.5, math.nan, "sum", Ref("x"), (1,))]
    guards = [Step(f"guard_{index}", target, args) for index, (target, args) in enumerate(kinds)]
    assert_returns(graph_of(size, *guards))
    assert "assert size != size" in graph_of(size, *guards).code
    assert "assert x.shape == (4, 1)" in graph_of(size, *guards).code


def test_nothing_comes_back() -> None:
    assert_returns(Graph((), (), (), ()))
    assert_returns(Graph((X,), (RELU,), (), ()))
    assert_returns(Graph((), (), (OUT, OUT), (None, None)))


def test_subgraphs_within_subgraphs_come_back() -> None:
    inner = graph_of(RELU, result=Ref("relu"))
    branch = ("torch.ops.higher_order.cond", (True, Sub("then"), Sub("other"), List((Ref("x"),))))
    middle = Graph((X,), (Step("v", *branch),), (OUT,), (Ref("v"),), (("then", inner), ("other", inner)))
    outer = Graph((X,), (Step("v", *branch),), (OUT,), (Ref("v"),), (("then", middle), ("other", inner)))
    assert_returns(outer)
    assert outer.code.count("class then(") == 2


def test_symbols_come_back() -> None:
    symbols = (Symbol("s0", 4, "2", "inf"), Symbol("u0", 8192, "-int_oo", "int_oo"), Symbol("s1", -3, "-9", "s0 - 1"))
    size = Port("x.size", "input", ScalarSpec("SymInt", "s0"), "s0")
    shaped = Port("x", "input", TensorSpec("float32", ("s0", "2*u0 + 1"), ("Max(1, s0)", 1), "s0 + 3"), "x")
    steps = (Step("v", "operator.add", (Ref("s0"), 1), spec=ScalarSpec("SymInt", "s0 + 1")),)
    assert_returns(Graph((size, shaped), steps, (OUT,), (Ref("v"),), symbols=symbols))


NAMES = [
    "conv1.weight",
    "a b",
    " ",
    "it's",
    '"quoted"',
    "back\\slash",
    "größe",
    "層.0",
    "input x",
    "f32[2] input y",
    "#",
    "{x}",
]


@pytest.mark.parametrize("name", [*NAMES, "\\n", "x" * 4096])
def test_odd_port_names_come_back(name: str) -> None:
    assert_returns(Graph((Port(name, "parameter", F32, "x"),), (), (Port(name, "gradient", None),), (Ref("x"),)))


COMMENTS: dict[str, tuple[Source | None, Echo | None]] = {
    "source": (MODEL, None),
    "bare": (Source("a.py", 0, ""), None),
    "lambda": (Source("a b/c.py", 3, "<lambda>", "f = lambda x: x  # 3:4 in g: h"), None),
    "windows": (Source("C:\\net.py", 3, "forward", "x"), None),
    "echo": (None, Echo("gradient of", ("relu_1",))),
    "echoes": (None, Echo("sum of gradients of", ("relu", "conv"))),
    "both": (MODEL, Echo("recomputes", ("relu",))),
    "brackets": (Source("[odd] a.py", 1, "f:g", "x", "layers[0] y"), None),
    "numbers": (Source("a:1 in b:2 in c", 1, "f"), None),
    "lines": (Source("a\nb.py", 1, "f\r", "x = (\n\x0c\u2028y)\t", "\u202em\n"), None),
    "no file": (Source("", 1, "", "", ""), None),
    "looks like an echo": (Source("gradient of x; a.py", 1, "f"), None),
}


@pytest.mark.parametrize(("source", "echo"), COMMENTS.values(), ids=COMMENTS.keys())
def test_sources_and_links_come_back(source: Source | None, echo: Echo | None) -> None:
    plain = Step("last", "aten.relu.default", (Ref("x"),))
    assert_returns(graph_of(replace(RELU, source=source, echo=echo), plain, result=Ref("relu")))


def test_steps_share_the_comment_above_them() -> None:
    notes = [MODEL, MODEL, None, None, MODEL, replace(MODEL, line=13), None]
    steps = [Step(f"v{index}", "aten.relu.default", (Ref("x"),), source=note) for index, note in enumerate(notes)]
    graph = graph_of(*steps)
    assert graph.code.count("# ") == 5
    assert_returns(graph)


def test_a_source_cannot_add_a_line_to_the_text() -> None:
    for end in "\n", "\r", "\r\n", "\x0c", "\x0b", "\x85", "\u2028":
        evil = f"x{end}import os{end}"
        steps = (replace(RELU, source=Source(evil, 1, evil, evil, evil)),)
        code = graph_of(*steps, result=Ref("relu")).code
        assert len(code.splitlines()) == len(graph_of(replace(RELU, source=MODEL)).code.splitlines())


def test_a_title_cannot_end_its_string() -> None:
    graph = replace(graph_of(), title='x"""\nimport os\n"""\\')
    [docstring, *_] = ast.parse(graph.code).body
    assert isinstance(docstring, ast.Expr)
    assert_returns(graph)
    assert parse(graph.code).title == parse(parse(graph.code).code).title == "ximport os"


def test_windows_line_ends_and_blank_lines_do_not_matter() -> None:
    graph = graph_of(replace(RELU, source=MODEL), result=Ref("relu"))
    assert parse(graph.code.replace("\n", "\r\n")) == graph
    assert parse(graph.code.replace("\n", "\n\n")) == graph
    assert parse(graph.code.replace("default(x)", "default(\n            x,\n        )")) == graph


@pytest.mark.slow
@given(anything())
@settings(deadline=None, max_examples=80)
def test_random_graphs_come_back(graph: Graph) -> None:
    assert_returns(graph)


@given(SPECS)
@settings(deadline=None)
def test_random_specs_come_back(spec: object) -> None:
    assert read_spec(show_spec(spec)) == spec


@given(SOURCES)
@settings(deadline=None)
def test_a_source_settles_at_once(source: Source) -> None:
    assert replace(source) == source


# ------------------------------------------------------------------ what the nouns refuse, the text need not

Make = Callable[[], object]
MALFORMED: dict[str, tuple[Make, str]] = {
    "a value of no kind": (lambda: graph_of(result=b"x"), "a bytes cannot stand in a graph"),
    "a set": (lambda: graph_of(Step("v", "aten.add.Tensor", ({1},))), "a set cannot stand in a graph"),
    "a number's subclass": (lambda: graph_of(result=type("float64", (float,), {})(1)), "a float64 cannot stand"),
    "too wide a number": (lambda: graph_of(result=2**200), "an integer of 201 bits"),
    "an unknown name": (lambda: graph_of(result=Ref("y")), "'out' uses 'y' before it is defined"),
    "a name from later": (
        lambda: graph_of(Step("v", "aten.relu.default", (Ref("v"),))),
        "uses 'v' before it is defined",
    ),
    "an unknown subgraph": (lambda: graph_of(result=Sub("body")), "the subgraph 'body', which the graph does not have"),
    "a subgraph in a slice": (lambda: graph_of(result=Slice(Sub("body"), 1, 1)), "the subgraph 'body'"),
    "a name twice": (lambda: graph_of(RELU, RELU), "'relu' is defined twice"),
    "a subgraph twice": (lambda: Graph((), (), (), (), (("a", graph_of()), ("a", graph_of()))), "'a' is defined twice"),
    "a subgraph for forward": (lambda: Graph((), (), (), (), (("forward", graph_of()),)), "'forward'"),
    "a symbol twice": (lambda: Graph((), (), (), (), symbols=(Symbol("s", 1), Symbol("s", 2))), "'s' is defined twice"),
    "a symbol as a value": (lambda: Graph((), (), (OUT,), (Ref("s"),), symbols=(Symbol("s", 1),)), "uses 's' before"),
    "an output too many": (lambda: Graph((), (), (OUT,), ()), "1 output ports for 0 results"),
    "an output going in": (lambda: Graph((replace(OUT, local="y"),), (), (), ()), "has the role 'output'"),
    "an input going out": (lambda: Graph((), (), (X,), (None,)), "has the role 'input'"),
    "a keyword twice": (lambda: Step("v", "aten.add.Tensor", (), (("a", 1), ("a", 2))), "a keyword stands twice"),
    "a keyword that normalises": (lambda: Step("v", "aten.add.Tensor", (), (("ﬁ", 1),)), "is not a keyword"),
    "a guard of nothing": (lambda: Step("guard_0", "assert_nan"), "assert_nan takes a value by name"),
    "a guard of a literal": (lambda: Step("guard_0", "assert_equal", (1, 1)), "takes a value by name and 1 more"),
    "a guard with a spec": (lambda: Step("guard_0", "assert_nan", (Ref("x"),), spec=F32), "a guard has no value"),
    "an echo to nothing": (lambda: Echo("gradient of", ()), "at least one value"),
    "an echo to code": (lambda: Echo("gradient of", ("x; y",)), "is not a name of a value"),
    "a line that is none": (lambda: Source("a.py", -1, "f"), "-1 is not a line number"),
    "a port without a name": (lambda: Port("", "input"), "must be printable and not empty"),
    "a port of two lines": (lambda: Port("a\nb", "input"), "must be printable"),
    "a size in quotes": (lambda: TensorSpec("float32", ("12",)), "is not a size: a size is a number"),
    "a size of a size": (lambda: TensorSpec("float32", ("s0, s1",)), "nor an expression of sizes"),
    "a size too large": (lambda: TensorSpec("float32", (2**70,)), "71 bits is not a size"),
    "a size that ends the list": (lambda: TensorSpec("float32", ('2] input x"',)), "is not a size of a tensor"),
    "a device that is none": (lambda: TensorSpec("float32", (), device='cpu"'), "is not a device name"),
    "a scalar of code": (lambda: ScalarSpec("SymInt", "__import__"), "is not a size of a tensor"),
    "a symbol of code": (lambda: Symbol("s0", 1, '0"; import os; "'), "is not a size of a tensor"),
    "a symbol of no size": (lambda: Symbol("s0", 3, "9", "2"), r"no size is in \[9, 2\]"),
}


@pytest.mark.parametrize(("make", "why"), MALFORMED.values(), ids=MALFORMED.keys())
def test_what_could_not_come_back_cannot_be_made(make: Make, why: str) -> None:
    with pytest.raises(GraphError, match=why):
        make()
