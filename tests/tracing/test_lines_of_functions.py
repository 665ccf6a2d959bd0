"""Lines of the backward of a custom autograd.Function: those of its own code, in the module of its forward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import backprint as bp


class Surrogate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, h: Tensor) -> Tensor:
        ctx.save_for_backward(h)
        return (h >= 0).to(h)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> Tensor:
        (h,) = ctx.saved_tensors  # type: ignore[attr-defined]  # as forward has saved it
        slope = torch.sigmoid(4.0 * h)
        return grads[0] * slope * (1 - slope)


class Neuron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        spikes: Tensor = Surrogate.apply(self.linear(x) - 1.0)
        return spikes * 2


@pytest.mark.parametrize("engine", ["eager", "aot", "dynamo"])
def test_steps_of_an_own_backward_have_its_lines(engine: str) -> None:
    backward = bp.capture(nn.Sequential(Neuron()), torch.randn(2, 4), engine=engine).pairs[0].backward
    assert backward is not None
    own = [step for step in backward.steps if step.target.startswith(("aten.sigmoid.", "aten.rsub."))]
    assert len(own) == 2
    for step in own:
        assert step.source is not None
        assert (step.source.function, "slope" in step.source.code) == ("backward", True)
        if engine != "dynamo":  # which makes a graph of the backward, outside of the module
            assert step.source.module == "0"


@pytest.mark.parametrize("engine", ["eager", "aot"])
def test_steps_that_autograd_makes_have_the_lines_of_the_forward(engine: str) -> None:
    backward = bp.capture(Neuron(), torch.randn(2, 4), engine=engine).pairs[0].backward
    assert backward is not None
    [product] = [step for step in backward.steps if step.target == "aten.mm.default"]
    assert product.source is not None
    assert (product.source.function, product.source.module) == ("forward", "linear")


def test_an_update_of_pytorchs_own_says_what_it_means() -> None:
    def similarity(a: Tensor, b: Tensor) -> Tensor:
        return nn.functional.cosine_similarity(a, b)

    [edge] = bp.capture(similarity, torch.randn(4, 3, requires_grad=True), torch.randn(4, 3)).opaque
    assert "torch.nn.functional.cosine_similarity does this on purpose" in edge.text
    assert edge.source is not None
    assert edge.source.function == "similarity"


def test_a_recorded_step_knows_its_modules(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]  # fixtures
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3)))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(2):\n"
        "    model(torch.ones(2, 4)).sum().backward()\n"
        "    optimizer.step()\n"
    )
    monkeypatch.chdir(tmp_path)
    [capture] = bp.record("train.py")
    modules = [step.source.module for step in capture.pairs[0].forward.steps if step.source is not None]
    assert {"model.0", "model.1", "model.2"} <= set(modules)
