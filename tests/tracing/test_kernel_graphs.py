"""Plain fx graphs for kernel writers."""

from __future__ import annotations

import copy

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


# ------------------------------------------------------------------ they run and show themselves


class Norm(nn.Module):
    """A module with parameters, buffers that it updates, and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.bn = nn.Linear(3, 4), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.fc(x)).tanh() * torch.tensor([1.0, 2.0, 3.0, 4.0])


def test_a_pair_runs_and_gives_autograds_gradients() -> None:
    x, v, tangents = torch.randn(8), torch.randn(8), (torch.randn(8), torch.randn(8))
    pair = bp.forward_backward_graphs(lif, (x, v), requires_grad=(True, True))
    assert isinstance(pair, tuple)
    assert pair == (pair.forward, pair.backward) == (pair[0], pair[1])
    run = pair.run(x, v)
    a, b = x.clone().requires_grad_(), v.clone().requires_grad_()
    outputs = lif(a, b)
    torch.autograd.backward(outputs, tangents, retain_graph=True)
    assert all(map(torch.equal, pair(x, v), outputs))
    assert all(map(torch.equal, run.outputs, outputs))
    assert all(map(torch.equal, run.backward(*tangents), (a.grad, b.grad)))
    assert all(map(torch.equal, run.backward(), torch.autograd.grad(outputs, (a, b), [torch.ones(8)] * 2)))
    assert list(run.saved) == list(pair.saved)


def test_parameters_may_be_left_out_and_are_those_of_now() -> None:
    model, x = Norm(), torch.randn(5, 3)
    pair = bp.forward_backward_graphs(model, (x,))
    with torch.no_grad():
        model.fc.weight.mul_(2)
    run, before = pair.run(x), {name: value.clone() for name, value in model.state_dict().items()}
    expected = model(x)
    assert torch.equal(run.outputs[0], expected)
    assert len(run.mutations) == 3
    assert torch.equal(run.mutations[0], model.bn.running_mean)
    gradients = torch.autograd.grad(expected.sum(), list(model.parameters()))
    assert all(map(torch.equal, run.backward(), gradients))
    every = pair.forward.arguments([x])
    model.load_state_dict(before)
    assert torch.equal(pair(*every)[0], expected)
    inference = bp.inference_graph(model, ({"x": x}["x"],))
    assert torch.equal(inference(x)[0], expected)


def test_a_partition_decides_what_is_saved() -> None:
    def program(x: Tensor) -> Tensor:
        return x.sin().cos().exp().sum()

    least = bp.forward_backward_graphs(program, (torch.randn(100),))
    every = bp.forward_backward_graphs(program, (torch.randn(100),), partition="default")
    assert least.saved_bytes < every.saved_bytes == 400 * len([name for name in every.saved if name != "x"])
    x = torch.randn(100, requires_grad=True)
    assert torch.equal(least.run(x).backward()[0], every.run(x).backward()[0])
    with pytest.raises(bp.errors.CaptureError, match="partition='none' is not one of min-cut, default"):
        bp.forward_backward_graphs(program, (x,), partition="none")


def test_saved_bytes_are_those_of_storages_each_once() -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)), torch.randn(5, 3)
    pair = bp.forward_backward_graphs(model, (x,), partition="default")
    run = pair.run(x)
    held = {tensor.untyped_storage().data_ptr() for tensor in (x, *model.parameters())}
    saved = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in run.saved.values()}
    assert pair.saved_bytes == sum(size for key, size in saved.items() if key not in held) > 0


def test_they_show_themselves_in_one_line_and_as_code() -> None:
    x = torch.randn(8)
    pair, graph = bp.forward_backward_graphs(lif, (x, x.clone())), bp.inference_graph(lif, (x, x.clone()))
    assert (
        repr(pair) == f"KernelPair(forward of lif: {pair.forward.steps()} steps forward, {pair.backward.steps()} "
        f"backward, {len(pair.saved)} saved, {pair.saved_bytes} bytes)"
    )
    assert repr(graph) == f"KernelGraph(lif: {graph.steps()} steps, 2 inputs, 2 results)"
    assert repr(pair.run(x, x)).startswith("KernelRun(forward of lif: 2 outputs, ")
    for each in (*pair, graph):
        assert all(name in str(each) for name in (*each.inputs, *each.results))
    assert 'sigmoid: "f32[8]" = aten.sigmoid.default(' in str(graph)
    assert "torch.sigmoid(4.0 * (h - 1.0))" in str(graph)
    assert str(pair) == f"{pair.forward}\n\n{pair.backward}"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda pair, x: pair(x), "1 tensors for the inputs x, v"),
        (lambda pair, x: pair(x, 3), "3 is no tensor: pass tensors for x, v"),
        (lambda pair, x: pair.run(x, x).backward(x), "1 tangents for 2 differentiable outputs"),
        (lambda pair, x: pair.forward(x, x, x), "3 tensors for the inputs x, v"),
    ],
)
def test_a_call_with_other_arguments_says_what_it_wants(call: object, text: str) -> None:
    x = torch.randn(8)
    with pytest.raises(bp.errors.UsageError, match=text):
        call(bp.forward_backward_graphs(lif, (x, x.clone())), x)  # type: ignore[operator]  # a lambda of the table


def test_copies_are_the_same_and_run() -> None:
    x = torch.ones(3, requires_grad=True)
    pair = bp.forward_backward_graphs(lambda a, b: a * b, [x, torch.full((3,), 2.0, requires_grad=True)])
    for made in (copy.copy(pair), copy.deepcopy(pair)):
        assert type(made) is type(pair)
        assert made.saved == pair.saved
        assert torch.equal(made(x, x)[0], torch.ones(3))
    inner = nn.Linear(3, 3)
    graph = bp.inference_graph(lambda a: inner(a), [torch.ones(2, 3)])
    assert torch.equal(copy.deepcopy(graph)(torch.ones(2, 3))[0], inner(torch.ones(2, 3)))


def test_an_inference_graph_returns_what_the_program_returns_and_saves_nothing() -> None:
    inner = nn.Linear(3, 3)
    graph = bp.inference_graph(lambda a: inner(a), [torch.ones(2, 3)])
    assert len(graph(torch.ones(2, 3))) == len(graph.results) == 1


def test_a_tensor_that_is_passed_twice_may_be_passed_twice_again() -> None:
    x = torch.tensor([2.0, 3.0])
    graph = bp.inference_graph(lambda a, b: a * b, [x, x])
    assert torch.equal(graph(x, x)[0], x * x)
