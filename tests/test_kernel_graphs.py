"""Plain fx graphs for kernel writers."""

from __future__ import annotations

from typing import Any

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


# ------------------------------------------------------------------ they run


class Norm(nn.Module):
    """A module with parameters, buffers that it updates, and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.bn = nn.Linear(3, 4), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.fc(x)).tanh() * torch.tensor([1.0, 2.0, 3.0, 4.0])


def inputs_of(graph: fx.Graph) -> list[str]:
    return [node.name for node in graph.find_nodes(op="placeholder")]


def results_of(graph: fx.Graph) -> list[str]:
    return [node.name for node in graph.output_node().args[0]]


def run(graph: fx.Graph, *inputs: Tensor) -> tuple[Any, ...]:
    assert graph.owning_module is not None
    return graph.owning_module(*inputs)


def test_parameters_and_buffers_are_inputs_and_constants_are_attributes() -> None:
    model, x = Norm(), torch.randn(5, 3)
    forward, backward = bp.forward_backward_graphs(model, (x,))
    names = [name.replace(".", "_") for name in model.state_dict() if "tracked" not in name]
    assert sorted(inputs_of(forward)) == sorted([*names, "bn_num_batches_tracked", "x"])
    state = {name.replace(".", "_"): value.clone() for name, value in model.state_dict().items()}
    values = [x if name == "x" else state[name] for name in inputs_of(forward)]
    output, *rest = run(forward, *values)
    expected = model(x)
    assert torch.equal(output, expected)
    assert sorted(results_of(forward)[1:4]) == [
        "new_bn_num_batches_tracked",
        "new_bn_running_mean",
        "new_bn_running_var",
    ]
    updated = dict(zip(results_of(forward)[1:4], rest, strict=False))
    assert torch.equal(updated["new_bn_running_mean"], model.bn.running_mean)
    gradients = torch.autograd.grad(expected.sum(), list(model.parameters()))
    assert all(map(torch.equal, run(backward, *rest[3:], torch.ones(5, 4)), gradients))
    inference = bp.inference_graph(model, ({"x": x}["x"],))
    assert inputs_of(inference) == inputs_of(forward)
    assert len(results_of(inference)) == 4


def test_a_partition_decides_what_is_saved() -> None:
    def program(x: Tensor) -> Tensor:
        return x.sin().cos().exp().sum()

    x = torch.randn(100)
    least, every = (bp.forward_backward_graphs(program, (x,), partition=each) for each in (None, "default"))
    assert len(results_of(least[0])) < len(results_of(every[0]))
    gradients = [run(backward, *run(forward, x)[1:], torch.tensor(1.0))[0] for forward, backward in (least, every)]
    assert torch.equal(*gradients)
    with pytest.raises(bp.errors.UsageError, match="partition='none' is not one of 'min-cut', 'default'"):
        bp.forward_backward_graphs(program, (x,), partition="none")


def test_results_that_are_none_and_numbers_have_no_place() -> None:
    graph = bp.inference_graph(lambda x, n, y=None: (None, x * n, 3, y), (torch.ones(2), 4))
    assert inputs_of(graph) == ["x"]
    assert torch.equal(*run(graph, torch.ones(2)), torch.full((2,), 4.0))


def test_an_input_without_a_gradient_has_none() -> None:
    forward, backward = bp.forward_backward_graphs(lambda x, y: x.exp() + y.detach(), (torch.ones(2), torch.ones(2)))
    assert run(backward, *run(forward, torch.ones(2), torch.ones(2))[1:], torch.ones(2))[1] is None


def test_a_value_and_its_detach_are_saved_once() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        exp = x.exp()
        return exp * w + exp.detach() * x

    x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    forward, backward = bp.forward_backward_graphs(program, (x, w), partition="default")
    assert len(set(results_of(forward))) == len(results_of(forward))
    assert inputs_of(backward) == [*results_of(forward)[1:], "tangent_output"]
    gradients = run(backward, *run(forward, x.detach(), w.detach())[1:], torch.ones(3))
    assert all(map(torch.equal, gradients, torch.autograd.grad(program(x, w).sum(), (x, w))))


def test_an_inference_graph_returns_what_the_program_returns_and_saves_nothing() -> None:
    inner = nn.Linear(3, 3)
    graph = bp.inference_graph(lambda a: inner(a), [torch.ones(2, 3)])
    assert len(graph.output_node().args[0]) == 1
    assert sorted(inputs_of(graph)) == ["a", "inner_bias", "inner_weight"]


def test_one_example_for_two_arguments_is_two_inputs() -> None:
    x, y = torch.randn(3), torch.randn(3)
    graph = bp.inference_graph(lambda a, b: a * b, [x, x])
    assert inputs_of(graph) == ["a", "b"]
    assert torch.equal(run(graph, x, y)[0], x * y)
    forward, backward = bp.forward_backward_graphs(lambda parts: parts["a"] * parts["b"], [{"a": x, "b": x}])
    first, second = run(backward, *run(forward, x, y)[1:], torch.ones(3))
    assert torch.equal(torch.stack([first, second]), torch.stack([y, x]))


class Neuron(torch.nn.Module):
    """A neuron that keeps its state in an attribute and one in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.v: Any = 0.0
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.v = self.v + x
        self.count.add_(1)
        spike = (self.v > 1).to(x)
        self.v = self.v * (1 - spike)
        return spike


def test_a_new_state_has_the_name_of_the_state_and_no_detach() -> None:
    graph = bp.inference_graph(Neuron(), (torch.randn(4),))
    assert sorted(results_of(graph)[1:]) == ["new_count", "new_v"]
    assert "aten.detach.default" not in targets(graph)

    def integrate(x: Tensor, v: Tensor) -> Tensor:
        v.mul_(0.5).add_(x)
        return v.exp()

    forward, _ = bp.forward_backward_graphs(integrate, (torch.randn(4), torch.randn(4)))
    assert results_of(forward)[1] == "new_v"


class Adding(nn.Module):
    """Its state is a tensor in a plain attribute, which each call replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.sum = torch.arange(4.0)

    def forward(self, x: Tensor) -> Tensor:
        self.sum = self.sum + x
        return self.sum * 2


def test_a_state_in_a_plain_attribute_is_a_constant_with_its_value() -> None:
    module, x = Adding(), torch.randn(4)
    graph = bp.inference_graph(module, (x,))
    assert results_of(graph)[1:] == ["new_sum"]
    output, new_sum = graph.owning_module(x)
    assert torch.equal(new_sum, module.sum + x)
    assert torch.equal(output, new_sum * 2)


def test_a_program_that_reads_a_value_is_told_what_these_functions_have() -> None:
    def branch(x: Tensor) -> Tensor:
        return x * 2 if x.sum().item() > 0 else x * 3

    for graphs in (bp.inference_graph, bp.forward_backward_graphs):
        with pytest.raises(bp.errors.DataDependentError, match=r"as torch\.where does, or use bp\.capture") as raised:
            graphs(branch, (torch.ones(3),))
        assert "specialize" not in str(raised.value)
