"""Every hard program is captured right: bit for bit as eager autograd, on three sets of inputs; text parses back."""

from __future__ import annotations

import pytest
from subjects.programs import PROGRAMS

import backprint as bp
from face import parse


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_is_captured_right(name: str) -> None:
    target, args, kwargs = PROGRAMS[name]()
    capture = bp.capture(target, args=args, kwargs=kwargs)
    for pair in capture.pairs:
        for graph in (pair.forward, pair.backward):
            assert graph is None or parse(graph.code) == graph
            assert graph is None or parse(graph.code).hash() == graph.hash()
    (verdict,) = capture.verify()
    assert verdict.verdict == "bitwise", verdict.detail
    assert verdict.ports


@pytest.mark.parametrize(
    "name", ["straight_through_estimator", "gradient_reversal", "no_grad_island", "tensor_hook", "hook_on_a_parameter"]
)
def test_opaque_edges_are_named(name: str) -> None:
    target, args, kwargs = PROGRAMS[name]()
    assert bp.capture(target, args=args, kwargs=kwargs).opaque


def test_program_without_gradient_is_undifferentiable_and_keeps_its_forward() -> None:
    import torch

    capture = bp.capture(lambda x: x > 1, torch.randn(3))
    (verdict,) = capture.verify()
    assert capture.pairs[0].backward is None
    assert verdict.verdict == "undifferentiable"
    assert "no output requires grad" in verdict.detail
