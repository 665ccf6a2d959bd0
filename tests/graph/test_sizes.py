"""Expressions of sizes: worth what Python says they are worth, and nothing else is computed."""

from __future__ import annotations

import math

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from face import (
    Graph,
    GraphError,
    Port,
    Ref,
    RefusedError,
    ScalarSpec,
    Step,
    Symbol,
    TensorSpec,
    at_example_sizes,
    evaluate,
    implied_sizes,
    spec_at,
    symbol_out_of_range,
    with_symbols,
)

WORTH = {
    "s0": 7,
    "2*s0 + s1": 18,
    "-s0": -7,
    "((s0*(s0 + s1))//2)": 38,
    "s0 % 4": 3,
    "s0**2 - 1": 48,
    "Max(1, s0 - 9)": 1,
    "Min(s0, s1, 3)": 3,
    "Mod(s0, s1) == 3": True,
    "FloorDiv(s0, 2)": 3,
    "CeilToInt(IntTrueDiv(s0, 2))": 4,
    "ModularIndexing(s0, 2, 2)": 1,
    "s0/2": 3.5,
    "s0 > 3": True,
    "(s0 > 3) & (s1 < 2)": False,
    "(s0 < 3) | (s1 == 4)": True,
    "~(s0 < 3)": True,
    "2 <= s0 < inf": True,
    "Eq(s0, 7)": True,
    "Ne(s0, s1)": True,
    "Where(s0 > s1, 1, 2)": 1,
    "1.5*s1": 6.0,
}


@pytest.mark.parametrize("text", WORTH)
def test_an_expression_is_worth(text: str) -> None:
    assert evaluate(text, {"s0": 7, "s1": 4}) == WORTH[text]


@given(st.integers(2, 50), st.integers(2, 50), st.integers(1, 9))
def test_as_sympy_prints_them(one: int, two: int, factor: int) -> None:
    a, b = sympy.symbols("s0 s1", integer=True, positive=True)
    for expression in ((a * factor + b) ** 2, sympy.Max(a, b * factor), a * (b - factor), sympy.floor(a * b / factor)):
        assert evaluate(str(expression), {"s0": one, "s1": two}) == expression.subs({a: one, b: two})


HOSTILE = {
    "__import__": "__import__(1)",
    "a call": "open(s0)",
    "an attribute": "s0.real",
    "a string": "'a'*s0",
    "a list": "[s0]",
    "a lambda": "lambda: 1",
    "a walrus": "(x := 1)",
    "an unknown name": "s0 + unknown",
    "no expression": "s0 +",
    "deep": "(" * 2000 + "s0" + ")" * 2000,
    "minus signs": "-" * 4000 + "1",
    "a power tower": "9**9**9",
    "a large power": "(10**120)*(10**120)",
    "a large shift": "s0**999999",
    "a division by zero": "s0//(s0 - 7)",
    "a modulo of zero": "Mod(s0, 0)",
    "a wrong number of arguments": "Mod(s0)",
    "no number": "Max()",
    "infinity as a number": "FloorToInt(inf)",
    "long": "s0 + " * 1000 + "s0",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_nothing_else_is_computed(case: str) -> None:
    with pytest.raises(GraphError):
        evaluate(HOSTILE[case], {"s0": 7})


def test_the_complaint_names_the_expression() -> None:
    with pytest.raises(RefusedError, match=r"open\(s0\).*not allowed in an expression of sizes"):
        evaluate("open(s0)", {"s0": 1})
    with pytest.raises(GraphError, match=r"'s0 \+ s9': no size is known for 's9'"):
        evaluate("s0 + s9", {"s0": 1})


def test_symbols_take_their_value_where_they_stand_alone() -> None:
    assert implied_sizes([("2*s0", 8), ("s0", 4), ("s0", 5), (3, 3), ("s1 + 1", 2)]) == {"s0": 4}


def test_a_size_outside_its_range_is_found() -> None:
    symbols = (Symbol("s0", 4, "2", "inf"), Symbol("s1", 4, "2", "2*s0"), Symbol("u0", 4, "-int_oo", "u9"))
    assert symbol_out_of_range(symbols, {"s0": 2, "s1": 4, "u0": 7}) is None
    assert symbol_out_of_range(symbols, {"s0": 1}) is symbols[0]
    assert symbol_out_of_range(symbols, {"s0": 2, "s1": 5}) is symbols[1]


def sized(one: str, two: str) -> Graph:
    spec = TensorSpec("float32", (one, f"{one}*{two}"), (f"{two}", 1))
    step = Step("n", "operator.mul", (Ref("size"), 2), spec=ScalarSpec("SymInt", f"2*{one}"))
    ports = (Port("x", "input", spec, "x"), Port("size", "input", ScalarSpec("SymInt", one), "size"))
    return Graph(ports, (step,), (Port("o", "output", (spec, None)),), (Ref("x"),))


def test_symbols_are_renamed_everywhere_and_declared_where_they_are_used() -> None:
    symbols = (Symbol("s0", 3), Symbol("batch", 4), Symbol("s1", 5))
    graph = with_symbols(sized("s77", "s4"), symbols, {"s77": "batch", "s4": "s0", "s9": "s1"})
    assert graph == with_symbols(sized("batch", "s0"), symbols, {})
    assert [symbol.name for symbol in graph.symbols] == ["s0", "batch"]


def test_a_graph_at_its_example_sizes_has_numbers_only() -> None:
    graph = at_example_sizes(with_symbols(sized("s0", "s1"), (Symbol("s0", 3), Symbol("s1", 4)), {}))
    assert graph.inputs[0].spec == TensorSpec("float32", (3, 12), (4, 1))
    assert graph.symbols == ()
    assert spec_at(TensorSpec("float32", ("s0", "s9")), {"s0": 2}) == TensorSpec("float32", (2, "s9"))
    assert math.prod(graph.inputs[0].spec.shape) == graph.inputs[0].spec.numel
