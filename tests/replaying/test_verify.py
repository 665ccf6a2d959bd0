"""Verdicts: what is right is proven, and whatever is broken is seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import backprint as bp
from face import GONE, TOLERANCE, UNFITTED, Capture, Graph, PortKey, Ref, Step, compare, worst
from face import closeness_same_bits as same_bits


def two_layers() -> Capture:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    return bp.capture(model, torch.randn(5, 3))


def with_graphs(capture: Capture, forward: Graph, backward: Graph) -> Capture:
    return replace(capture, pairs=(bp.types.Pair("pair_0", forward, backward),))


def edited(graph: Graph, target: str, change: Callable[[Step], Step], which: int = 0) -> Graph:
    """The graph with one call of `target` changed."""
    hits = [index for index, step in enumerate(graph.steps) if step.target == target]
    steps = list(graph.steps)
    steps[hits[which]] = change(steps[hits[which]])
    return replace(graph, steps=tuple(steps))


def test_a_right_capture_is_bitwise_with_every_port_compared() -> None:
    (verdict,) = two_layers().verify()
    assert verdict.verdict == "bitwise"
    assert verdict.good
    assert {f"{port.role} {port.name}" for port in verdict.ports} == {
        "output output",
        *(f"gradient {index}.{kind}" for index in (0, 2) for kind in ("weight", "bias")),
    }
    assert verdict.power > 1


BREAKS: dict[str, Callable[[Graph, Graph], tuple[Graph, Graph]]] = {
    "a wrong operator in the forward": lambda f, b: (
        edited(f, "aten.tanh.default", lambda s: replace(s, target="aten.sigmoid.default")),
        b,
    ),
    "a wrong operator in the backward": lambda f, b: (
        f,
        edited(b, "aten.sum.dim_IntList", lambda s: replace(s, target="aten.mean.dim")),
    ),
    "two gradients swapped": lambda f, b: (
        f,
        replace(b, results=(b.results[0], b.results[3], b.results[2], b.results[1])),
    ),
    "a gradient that is missing": lambda f, b: (f, replace(b, results=(None, *b.results[1:]))),
    "a saved value that is another": lambda f, b: (
        f,
        edited(b, "aten.tanh_backward.default", lambda s: replace(s, args=(s.args[0], s.args[0]))),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_capture_is_wrong(name: str) -> None:
    capture = two_layers()
    broken = with_graphs(capture, *BREAKS[name](capture.pairs[0].forward, capture.pairs[0].backward))
    (verdict,) = broken.verify()
    assert verdict.verdict in ("wrong", "failed"), verdict
    assert not verdict.good
    assert verdict.detail


@pytest.mark.slow
def test_a_small_deviation_is_close_and_says_how_far() -> None:
    capture = two_layers()
    forward, backward = capture.pairs[0].forward, capture.pairs[0].backward
    last = backward.results[0]
    nudge = Step("nudged", "aten.mul.Tensor", (last, 1.000001))
    nudged = replace(backward, steps=(*backward.steps, nudge), results=(Ref("nudged"), *backward.results[1:]))
    (verdict,) = with_graphs(capture, forward, nudged).verify()
    assert verdict.verdict == "close"
    assert "relative error 9" in verdict.detail
    assert "4e-06 is allowed" in verdict.detail


def test_a_graph_that_does_not_run_is_failed_with_the_step() -> None:
    capture = two_layers()
    forward, backward = capture.pairs[0].forward, capture.pairs[0].backward
    broken = edited(forward, "aten.addmm.default", lambda s: replace(s, args=(s.args[0], s.args[2], s.args[1])))
    (verdict,) = with_graphs(capture, broken, backward).verify()
    assert verdict.verdict == "failed"
    assert "while running `addmm" in verdict.detail


@pytest.mark.slow
def test_a_program_that_does_not_repeat_itself_is_unproven() -> None:
    class Unsteady(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * (time.perf_counter_ns() % 1_000_003)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient

    with pytest.warns(UserWarning, match=r"changed what cannot be restored: something .* does not see.*, or in time"):
        capture = bp.capture(lambda x: Unsteady.apply(x), torch.randn(2).requires_grad_())
    (verdict,) = capture.verify(draws=("captured",))
    assert verdict.verdict == "unproven"
    assert "not return the same twice" in verdict.detail
    assert not verdict.good


def test_a_check_without_power_is_flagged() -> None:
    capture = bp.capture(lambda x: (x * 0, x * 2), torch.randn(4).requires_grad_())
    (verdict,) = capture.verify()
    assert verdict.verdict == "bitwise"
    assert verdict.power == 0
    assert verdict.vacuous == ("output output.0",)


def test_the_second_opinion_would_call_an_opaque_capture_wrong() -> None:
    """Why autograd of the plain forward is no reference: here it gives other gradients than the program."""
    from face import draw_from_recipes, gradients_by_autograd

    def f(x: Tensor) -> Tensor:
        with torch.no_grad():
            scale = x * x.exp()
        return (scale * x + (x.round() - x).detach() + x.detach() * x).sum()

    x = torch.tensor([1.5, -0.5, 0.7]).requires_grad_()
    capture = bp.capture(f, x)
    assert capture.verify()[0].verdict == "bitwise"
    f(x).backward()
    assert torch.equal(bp.replay(capture, x).gradients["x"], x.grad)
    draw = draw_from_recipes(capture, "recipe", None)
    opinion = gradients_by_autograd(capture.pairs[0], ("output",), {}, draw.values, draw.tangents)[
        PortKey("gradient", "x")
    ]
    right = bp.replay(capture, draw.values["x"], tangents=[draw.tangents["output"]]).gradients["x"]
    assert not torch.allclose(opinion, right)


def test_no_comparison_is_never_a_pass() -> None:
    assert worst([]) == "unproven"
    capture = replace(two_layers(), origin=GONE, recipes=UNFITTED)
    (verdict,) = capture.verify()
    assert verdict.verdict == "unproven"
    assert verdict.detail == "nothing was compared"


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("left", "right", "verdict"),
    [
        ([1.0, NAN], [1.0, NAN], "bitwise"),
        ([NAN, 1.0], [1.0, NAN], "wrong"),
        ([1.0, NAN], [1.0, 1.0], "wrong"),
        ([INF, 1.0], [INF, 1.0], "bitwise"),
        ([INF, 1.0], [-INF, 1.0], "wrong"),
        ([0.0, 1.0], [-0.0, 1.0], "close"),
        ([1.0, 1.0], [1.0 + 1e-6, 1.0], "close"),
        ([1.0, 1.0], [1.1, 1.0], "wrong"),
        ([], [], "bitwise"),
    ],
)
def test_compare(left: list[float], right: list[float], verdict: str) -> None:
    assert compare("x", "output", torch.tensor(left), torch.tensor(right)).verdict == verdict


def test_compare_kinds() -> None:
    assert compare("x", "gradient", None, None).verdict == "bitwise"
    assert "None where" in compare("x", "gradient", None, torch.ones(1)).detail
    assert compare("x", "output", torch.ones(2), torch.ones(1, 2)).verdict == "wrong"
    assert compare("x", "output", torch.ones(2), torch.ones(2).double()).verdict == "wrong"
    assert compare("x", "output", torch.tensor([1, 2]), torch.tensor([1, 3])).verdict == "wrong"
    assert same_bits(torch.tensor([1 + 2j]), torch.tensor([1 + 2j]))
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert set(TOLERANCE) >= {"float32", "bfloat16"}


def test_a_save_of_what_is_not_bitwise_asks_the_program_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from face import LiveProgram

    calls = []
    step = LiveProgram.run_step

    def counted(self: Any, *args: Any) -> Any:
        calls.append(1)
        return step(self, *args)

    capture = two_layers()
    monkeypatch.setattr(LiveProgram, "run_step", counted)
    forward, backward = capture.pairs[0].forward, capture.pairs[0].backward
    last = backward.results[0]
    nudge = Step("nudged", "aten.mul.Tensor", (last, 1.000001))
    nudged = replace(backward, steps=(*backward.steps, nudge), results=(Ref("nudged"), *backward.results[1:]))
    sample = bp.load(with_graphs(capture, forward, nudged).save(tmp_path / "sample"))
    assert sample.verdict["verdict"] == "close"
    assert len(calls) == 2
