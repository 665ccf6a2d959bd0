"""Graphs that need a form of their own to become kernels, and graphs that are refused by the operator's name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_extract_kernels import needs_triton
from torch import Tensor, nn

import backprint as bp
from face import (
    CaptureKernels,
    PortLayout,
    RefusedError,
    extract_kernels,
    lower_with_inductor,
    lowering_for,
    lstm_layer,
    lstm_layer_backward,
    prepare_graph,
    target_named,
    to_fx,
    use_captured_sizes,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch's own, of Inductor's import

aten = torch.ops.aten

STEPS, BATCH, WIDTH, HIDDEN = 5, 2, 3, 4


def kernels_for(program: Any, *inputs: Tensor, target: str = "cpu:avx2") -> CaptureKernels:
    return extract_kernels(bp.capture(program, *inputs), target)


# ------------------------------------------------------------------ LSTM


def layer_inputs(dtype: torch.dtype, biased: bool) -> list[Tensor]:
    """Input, weights, biases, and the first hidden state and cell of one layer."""
    gates = 4 * HIDDEN
    shapes = [
        (STEPS, BATCH, WIDTH),
        (gates, WIDTH),
        (gates, HIDDEN),
        (gates,),
        (gates,),
        (BATCH, HIDDEN),
        (BATCH, HIDDEN),
    ]
    values = [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes]
    if not biased:  # the operator takes something in the place of biases, and does not read it
        values[3:5] = [torch.full_like(value, 7.0) for value in values[1:3]]
    return values


def of_form(
    values: list[Tensor], reverse: bool, biased: bool, gradients: list[Any]
) -> tuple[list[Tensor], list[Tensor]]:
    """Results and gradients of the form."""
    *results, workspace = lstm_layer(*values, reverse, [], 2, HIDDEN, 1, biased, False, False, True)
    assert workspace.numel() == 0
    found = lstm_layer_backward(
        *values, *results, *gradients, reverse, 2, HIDDEN, 1, biased, True, False, [], False, workspace
    )
    return results, list(found)


@pytest.mark.parametrize(("reverse", "biased"), [(False, False), (True, True)])
def test_the_form_of_an_lstm_computes_what_autograd_does(reverse: bool, biased: bool) -> None:
    values = layer_inputs(torch.float64, biased)
    gradients = [torch.randn(STEPS, BATCH, HIDDEN).double(), *torch.randn(2, BATCH, HIDDEN).double()]
    results, found = of_form(values, reverse, biased, gradients)
    x, ih, hh, *biases, h, c = (value.clone().requires_grad_() for value in values)
    weights = [ih, hh, *(biases if biased else ())]
    states, last, cell = torch.lstm(
        x.flip(0) if reverse else x, (h[None], c[None]), weights, biased, 1, 0.0, True, False, False
    )
    states = states.flip(0) if reverse else states
    wanted = torch.autograd.grad((states, last[0], cell[0]), (x, *weights, h, c), gradients)
    torch.testing.assert_close(results, [states, last[0], cell[0]], rtol=0, atol=1e-12)
    torch.testing.assert_close(found if biased else found[:3] + found[5:], list(wanted), rtol=0, atol=1e-12)


@pytest.mark.parametrize("given", [(True, False, False), (False, True, True)])
def test_gradients_that_are_not_given_are_zero(given: tuple[bool, bool, bool]) -> None:
    values = layer_inputs(torch.float64, True)
    whole = [torch.randn(STEPS, BATCH, HIDDEN).double(), *torch.randn(2, BATCH, HIDDEN).double()]
    left_out = [value if there else None for value, there in zip(whole, given, strict=True)]
    zeros = [value if there else torch.zeros_like(value) for value, there in zip(whole, given, strict=True)]
    torch.testing.assert_close(of_form(values, False, True, left_out), of_form(values, False, True, zeros))


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this build has no oneDNN, whose LSTM it is")
@pytest.mark.parametrize("reverse", [False, True])
def test_the_form_of_an_lstm_computes_what_the_operator_does(reverse: bool) -> None:
    values = layer_inputs(torch.float32, True)
    gradients = [torch.randn(STEPS, BATCH, HIDDEN), *torch.randn(2, BATCH, HIDDEN)]
    *wanted, workspace = aten.mkldnn_rnn_layer(*values, reverse, [], 2, HIDDEN, 1, True, False, False, True)
    backward = aten.mkldnn_rnn_layer_backward(
        *values, *wanted, *gradients, reverse, 2, HIDDEN, 1, True, True, False, [], False, workspace
    )
    results, found = of_form(values, reverse, True, gradients)
    torch.testing.assert_close(results, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found, list(backward), rtol=1e-4, atol=1e-5)


def test_half_precision_gives_gradients_in_float32() -> None:
    values = layer_inputs(torch.bfloat16, True)
    gradients = [torch.ones(STEPS, BATCH, HIDDEN).bfloat16(), None, None]
    results, found = of_form(values, False, True, gradients)
    assert {value.dtype for value in results} == {torch.bfloat16}
    assert {value.dtype for value in found} == {torch.float32}


def test_what_is_no_lstm_over_equal_lengths_is_refused_by_name() -> None:
    values = layer_inputs(torch.float32, True)
    with pytest.raises(RefusedError, match=r"aten\.mkldnn_rnn_layer with mode=3 is no LSTM"):
        lstm_layer(*values, False, [], 3, HIDDEN, 1, True, False, False, True)
    with pytest.raises(RefusedError, match=r"aten\.mkldnn_rnn_layer over packed sequences"):
        lstm_layer(*values, False, [2, 1], 2, HIDDEN, 1, True, False, False, True)


@pytest.mark.slow
@needs_triton
def test_an_lstm_becomes_kernels_of_a_gpu() -> None:
    found = extract_kernels(bp.capture(nn.LSTM(WIDTH, HIDDEN), torch.randn(3, BATCH, WIDTH), mode="train"), "cuda:90")
    assert found.refused == ()
    forward, backward = found.graphs
    assert "aten.mkldnn_rnn_layer.default is written with other operators" in forward.notes
    assert "aten.mkldnn_rnn_layer_backward.default is written with other operators" in backward.notes
    fused = {one.operator for kernel in found for one in kernel.operators}
    assert fused >= {"aten.mkldnn_rnn_layer.default", "aten.mkldnn_rnn_layer_backward.default"}
    (workspace,) = (port for port in backward.inputs if port.dtype == "uint8")
    assert workspace.shape == (0,)  # of the forward on a GPU, not the bytes that a CPU keeps


# ------------------------------------------------------------------ sizes that depend on values


def places(x: Tensor, mask: Tensor) -> Tensor:
    return x.flatten()[mask.flatten().nonzero()].sin()


def selected(x: Tensor, mask: Tensor) -> Tensor:
    return torch.masked_select(x, mask).sin()


def masked(x: Tensor, mask: Tensor) -> Tensor:
    return x[mask].sin()


def masked_inside(x: Tensor, mask: Tensor) -> Tensor:
    return x[None].expand(2, 3, 4)[:, mask].sin()


def masked_apart(x: Tensor, mask: Tensor) -> Tensor:
    return x[None].expand(2, 3, 4)[torch.ones(1, dtype=torch.int64), :, mask.any(0)].sin()


def repeated(x: Tensor, mask: Tensor) -> Tensor:
    return x.repeat_interleave(mask.sum(1), 0).sin()


SIZED = [places, selected, masked, masked_inside, masked_apart, repeated]

MASK = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 1, 1]], dtype=torch.bool)


@pytest.mark.parametrize("program", SIZED)
def test_a_size_that_depends_on_values_is_that_of_the_capture(program: Any) -> None:
    x = torch.randn(3, 4)
    graph = bp.capture(program, x, MASK).pairs[0].forward
    module = to_fx(graph)
    assert "the size is that of the capture" in use_captured_sizes(module)
    assert torch.equal(module(x, MASK)[0], program(x, MASK))
    other = MASK.roll(1, 1)  # as many places, so the guards hold
    assert torch.equal(module(x, other)[0], program(x, other))


@pytest.mark.parametrize("program", SIZED)
def test_graphs_with_such_sizes_become_kernels(program: Any) -> None:
    found = kernels_for(program, torch.randn(3, 4, requires_grad=True), MASK)
    assert found.refused == ()
    assert [graph.direction for graph in found.graphs] == ["forward", "backward"]
    assert all(graph.kernels for graph in found.graphs)
    assert any("the size is that of the capture" in note for note in found.graphs[0].notes)


def test_two_masks_are_refused_by_name() -> None:
    def program(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        return x[rows, columns].sin()

    inputs = torch.randn(3, 4), torch.tensor([True, False, True]), torch.tensor([True, False, True, False])
    title, reason = kernels_for(program, *inputs).refused[0]
    assert title == "pair_0 forward"
    assert "aten.index.Tensor" in reason


# ------------------------------------------------------------------ layouts, refusals


def test_saved_tensors_may_have_another_layout_than_at_capture() -> None:
    """A view of a saved tensor is right only for the strides of the capture."""

    def program(x: Tensor) -> Tensor:
        return x.reshape(6, 20).exp().sum()

    graph = bp.capture(program, torch.randn(120, requires_grad=True)).pairs[0].backward
    assert graph is not None
    target = target_named("cpu:avx2")
    moved = {
        port.name: PortLayout(torch.float32, (6, 20), (1, 6))
        for port in graph.inputs
        if port.role == "saved" and port.spec.shape == (6, 20)
    }
    assert len(moved) == 1
    with lowering_for(target, 1):
        prepared = prepare_graph(graph, target, {}, moved)
        code = lower_with_inductor(prepared, True)
    assert (1, 6) in {value.stride() for value in prepared.inputs}
    assert "cpp_fused" in code.wrapper


def test_a_graph_that_is_refused_does_not_take_the_other_with_it() -> None:
    def program(x: Tensor, tokens: Tensor) -> Tensor:
        return x.sin() * torch.unique(tokens).sum()

    found = kernels_for(program, torch.randn(3, requires_grad=True), torch.tensor([1, 2, 2]))
    ((title, reason),) = found.refused
    assert title == "pair_0 forward"
    assert reason.startswith("aten._unique2.default (unique2): its result has a size or a value that depends on values")
    assert [graph.title for graph in found.graphs] == ["pair_0 backward"]


def test_a_refused_forward_is_named_where_only_the_backward_is_asked_for() -> None:
    def program(x: Tensor, tokens: Tensor) -> Tensor:
        return x.sin() * torch.unique(tokens).sum()

    capture = bp.capture(program, torch.randn(3, requires_grad=True), torch.tensor([1, 2, 2]))
    found = extract_kernels(capture, "cpu:avx2", direction="backward")
    assert [title for title, _ in found.refused] == ["pair_0 forward"]
    assert [graph.title for graph in found.graphs] == ["pair_0 backward"]


def test_what_inductor_does_not_lower_is_refused_with_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor.lowering as lowering

    def failing(*args: Any) -> None:
        raise ValueError("no such luck")

    monkeypatch.setitem(lowering.lowerings, aten.sinh.default, failing)
    _, reason = kernels_for(lambda x: x.sinh(), torch.randn(3)).refused[0]
    assert reason.startswith("Inductor does not lower aten.sinh.default: LoweringException: ValueError: no such luck; ")


def test_a_failure_of_the_scheduler_names_what_it_was_at(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.scheduler import Scheduler

    def failing(self: Any, node1: Any, node2: Any, *args: Any, **kwargs: Any) -> bool:
        raise ValueError("not comparable")

    monkeypatch.setattr(Scheduler, "can_fuse", failing)
    _, reason = kernels_for(lambda x: x.exp().sum(0).sin() + x, torch.randn(300, 40)).refused[0]
    assert reason.startswith("Inductor does not lower aten.")
    assert "ValueError: not comparable" in reason
    assert "aten.exp.default" in reason


def test_an_operator_without_sizes_for_meta_tensors_is_refused_by_name() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)

    found = kernels_for(program, torch.randn(3, 4, requires_grad=True))
    ((title, reason),) = found.refused
    assert title == "pair_0 forward"
    assert reason.startswith("aten.fake_quantize_per_tensor_affine_cachemask.default is called beside the kernels")
