"""Plain fx graphs for kernel writers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, fx, nn

import backprint as bp


def lif(x: Tensor, v: Tensor, tau: float = 2.0) -> tuple[Tensor, Tensor]:
    """A leaky integrate-and-fire neuron with a surrogate gradient."""
    h = v + (x - v) / tau
    soft = torch.sigmoid(4.0 * (h - 1.0))
    x.exp()  # dead code
    spike = ((h >= 1.0).to(h) - soft).detach() + soft
    return spike, h * (1.0 - spike)


def targets(graph: fx.Graph) -> set[str]:
    return {str(node.target) for node in graph.nodes if node.op == "call_function"}


def module(graph: fx.Graph) -> fx.GraphModule:
    return fx.GraphModule(nn.Module(), graph)


def test_forward_and_backward_give_autograds_gradients() -> None:
    x, v = torch.randn(8), torch.randn(8)
    forward, backward = bp.forward_backward_graphs(lif, (x, v), requires_grad=(True, True))
    assert not x.requires_grad
    forward.lint()
    backward.lint()
    names = [node.name for node in backward.nodes if node.op == "placeholder"]
    saved = forward.output_node().args[0][2:]
    assert [node.name for node in saved] == names[: len(saved)]
    assert names[len(saved) :] == ["tangent_output_0", "tangent_output_1"]
    assert "aten.exp.default" not in targets(forward)
    assert not {"aten.detach.default"} & (targets(forward) | targets(backward))
    assert all("val" in node.meta for node in (*forward.nodes, *backward.nodes) if node.op != "output")

    tangents = (torch.randn(8), torch.randn(8))
    spike, u, *kept = module(forward)(x, v)
    gradients = module(backward)(*kept, *tangents)
    a, b = x.clone().requires_grad_(), v.clone().requires_grad_()
    outputs = lif(a, b)
    torch.autograd.backward(outputs, tangents)
    assert torch.equal(spike, outputs[0])
    assert torch.equal(u, outputs[1])
    assert torch.equal(gradients[0], a.grad)
    assert torch.equal(gradients[1], b.grad)


def test_inference_graph_keeps_a_detach_that_a_gradient_would_miss() -> None:
    x, v = torch.randn(4), torch.randn(4)
    graph = bp.inference_graph(lif, (x, v))
    assert "aten.detach.default" in targets(graph)
    assert "aten.exp.default" not in targets(graph)
    a = x.clone().requires_grad_()
    module(graph)(a, v)[0].sum().backward()
    b = x.clone().requires_grad_()
    lif(b, v)[0].sum().backward()
    assert torch.equal(a.grad, b.grad)
    integers = bp.inference_graph(lambda n: n.detach() + 1, (torch.arange(3),))
    assert "aten.detach.default" not in targets(integers)


def test_a_mask_chooses_the_gradients() -> None:
    _, backward = bp.forward_backward_graphs(lif, (torch.randn(4), torch.randn(4)), requires_grad=(False, True))
    assert [node.name for node in backward.output_node().args[0]] == ["grad_v"]


def test_random_state_and_tensors_are_untouched() -> None:
    x = torch.randn(4).requires_grad_()
    before = torch.get_rng_state(), x.clone()
    bp.forward_backward_graphs(lambda x: torch.dropout(x, 0.5, True), (x,))
    assert torch.equal(before[0], torch.get_rng_state())
    assert torch.equal(before[1], x)
    assert x.grad is None


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: bp.forward_backward_graphs(lif, (torch.ones(2), torch.ones(2)), (True,)),
            "same length as inputs: 1 entries for 2",
        ),
        (lambda: bp.forward_backward_graphs(lambda x: 3, (torch.ones(2),)), "returns no tensor"),
        (lambda: bp.forward_backward_graphs(lambda x: x > 0, (torch.ones(2),)), "no differentiable output"),
        (lambda: bp.forward_backward_graphs(lif, (torch.ones(2), torch.ones(2)), (False, False)), "requires grad"),
        (lambda: bp.inference_graph(lambda x: None, (torch.ones(2),)), "returns no tensor"),
        (lambda: bp.inference_graph(lambda x: x, torch.ones(2)), "tuple of arguments"),
    ],
)
def test_wrong_calls_raise_value_errors_with_the_reason(call: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()  # type: ignore[operator]  # a lambda of the table
