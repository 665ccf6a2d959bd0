"""The lines of a Diff say what differs: subgraphs, gradients, outputs, overloads, numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor, nn

import backprint as bp
from face import Capture, Graph, GraphDiff, Pair, Port, Ref, Step, Sub, TensorSpec

FLOAT = TensorSpec("float32", (2,))


def chain(*targets: str) -> Graph:
    steps = [Step(f"s{at}", name, (Ref(f"s{at - 1}" if at else "x"),), (), FLOAT) for at, name in enumerate(targets)]
    last = Ref(steps[-1].name)
    return Graph((Port("x", "input", FLOAT, "x"),), tuple(steps), (Port("y", "output", FLOAT),), (last,))


@cache
def captured() -> Capture:
    return bp.capture(torch.sin, torch.ones(2))


def changes_of(graph: GraphDiff) -> list[tuple[str, tuple[str, ...]]]:
    return [(change.kind, change.parts) for change in graph.changes]


def of_graphs(before: Graph, after: Graph) -> GraphDiff:
    return (
        bp.diff.compare(*(replace(captured(), pairs=(Pair("p", graph),)) for graph in (before, after)))
        .pairs[0]
        .graphs[0]
    )


# ------------------------------------------------------------------ subgraphs, echoes, and words for every line


@pytest.mark.slow
def test_branches_are_compared_as_graphs_of_their_own() -> None:
    def capture(branch: Callable[[Tensor], Tensor]) -> Capture:
        def program(p: Tensor, x: Tensor) -> Tensor:
            return torch.cond(p, torch.sin, lambda x: torch.cond(p, torch.exp, branch, (x,)), (x,))

        return bp.capture(program, torch.tensor(True), torch.ones(3), engine="dynamo")

    diff = bp.diff.compare(capture(torch.cos), capture(torch.tan))
    (outer,) = diff.pairs[0].graphs[0].subgraphs
    (inner,) = outer.subgraphs
    assert diff.pairs[0].graphs[0].changes[0].parts == ("subgraphs",)
    assert (outer.names, inner.names) == (("false_graph_0", "false_graph_0"),) * 2
    assert changes_of(inner) == [("changed", ("operator",))]
    text = str(diff)
    assert "    ~ higher_order.cond calls another false_graph_0\n  in false_graph_0: 1 changed, " in text
    assert (
        "    in false_graph_0: 1 changed, 0 steps the same\n      outside of modules:\n        ~ cos -> tan\n" in text
    )
    (found,) = json.loads(json.dumps(diff.to_json()))["pairs"][0]["forward"]["subgraphs"]
    assert found["names"] == {"before": "false_graph_0", "after": "false_graph_0"}
    assert found["subgraphs"][0]["groups"][0]["lines"][0]["text"] == "cos -> tan"
    assert bp.diff.compare(capture(torch.cos), capture(torch.cos)).same


def test_bodies_of_loops_are_compared() -> None:
    def loop(target: str) -> Graph:
        body = chain(target, target)
        step = Step("s", "torch.ops.higher_order.while_loop", (Sub("body"), (Ref("x"),)), (), (FLOAT,))
        port = Port("y", "output", (FLOAT,))
        return Graph((Port("x", "input", FLOAT, "x"),), (step,), (port,), (Ref("s"),), subgraphs=(("body", body),))

    found = of_graphs(loop("aten.sin.default"), loop("aten.cos.default"))
    assert [changes_of(sub) for sub in found.subgraphs] == [[("changed", ("operator",))] * 2]
    assert of_graphs(loop("aten.sin.default"), loop("aten.sin.default")).subgraphs == ()


def test_steps_that_compute_other_gradients_are_not_one() -> None:
    def sine_first(x: Tensor) -> Tensor:
        s = x.sin()
        c = x.cos()
        return s + c

    def cosine_first(x: Tensor) -> Tensor:
        c = x.cos()
        s = x.sin()
        return s + c

    x = torch.ones(3, requires_grad=True)
    diff = bp.diff.compare(*(bp.capture(each, x, engine="eager") for each in (sine_first, cosine_first)))
    forward, backward = diff.pairs[0].graphs
    assert forward.same
    assert changes_of(backward) == [("changed", ("inputs",))]
    assert "~ add takes the same values in another order\n" in str(diff)


def test_an_output_that_another_step_of_one_operator_makes() -> None:
    a, b, d = (torch.full((3,), float(each), requires_grad=True) for each in range(3))
    captures = [bp.capture(each, a, b, d) for each in (lambda a, b, d: a + b + d, lambda a, b, d: a + b)]
    text = str(bp.diff.compare(*captures))
    assert "  ~ output: output, comes from another add\n" in text
    assert "  ~ d: gradient, is None, before: f32[3] from tangent of output" in text
    assert "  ~ d: gradient, is f32[3] from tangent of output, before: None" in str(bp.diff.compare(*captures[::-1]))
    assert "None, not" not in text


def test_types_without_symbols_are_equal_where_only_one_side_has_symbols() -> None:
    net = nn.Sequential(nn.Linear(3, 3))
    dynamic, static = (bp.capture(net, torch.ones(4, 3), engine="aot", dynamic=each) for each in (True, False))
    diff = bp.diff.compare(dynamic, static)
    named = {
        dynamic.pairs[0].forward.inputs[port.before or 0].name
        for port in diff.pairs[0].graphs[0].ports
        if port.is_input
    }
    assert named == {"input"}
    assert "0.weight" not in str(diff)


def test_operators_that_differ_in_their_overloads_are_written_out() -> None:
    def power(target: str) -> Graph:
        return chain("aten.sin.default", target, "aten.cos.default")

    base = replace(captured(), pairs=(Pair("p", power("aten.floor.default")),))
    other = replace(captured(), pairs=(Pair("p", power("aten.floor.out")),))
    assert "~ floor.default -> floor.out\n" in str(bp.diff.compare(base, other))


@pytest.mark.parametrize("count", [1, 2])
def test_numbers_agree_with_their_nouns(count: int) -> None:
    text = str(
        bp.diff.compare(
            *(
                replace(captured(), pairs=(Pair("p", chain(*["aten.sin.default"] * count, name)),))
                for name in ("aten.cos.default", "aten.tan.default")
            )
        )
    )
    assert f"forward: 1 changed, {count} step{'s' * (count > 1)} the same" in text
    assert not re.search(r"\b1 \w+s\b", text)
