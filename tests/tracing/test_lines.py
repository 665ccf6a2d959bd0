"""Comments of a graph: what the backward computes again, and where a library's modules are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import backprint as bp
from face import checked_function


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        u = self.up(self.norm(x))
        u = 0.5 * u * (1 + torch.tanh(0.79 * (u + 0.044 * u**3)))
        return x + self.down(u).softmax(-1)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) / 3, -1) @ v


PROGRAMS: dict[str, tuple[Any, ...]] = {
    "gated": (Gated(), torch.randn(3, 8)),
    "attention": (attention, *(torch.randn(2, 4, 5, requires_grad=True) for _ in range(3))),
    "norm": (lambda x: (x * torch.rsqrt((x * x).mean(-1, keepdim=True))).cos().exp(), torch.randn(3, 8)),
}


@pytest.mark.parametrize("engine", ["aot", "dynamo"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_step_that_the_backward_computes_again_says_so(name: str, engine: str) -> None:
    """A step of the backward that is a call of the forward's on the same values is one of the forward's."""
    pair = bp.capture(*PROGRAMS[name], engine=engine).pairs[0]
    assert pair.backward is not None
    ahead = {(step.target, str(step.args)): step.name for step in pair.forward.steps}
    again = [step for step in pair.backward.steps if step.echo and step.echo.kind == "recomputes"]
    alike = [step for step in pair.backward.steps if (step.target, str(step.args)) in ahead]
    assert again
    assert set(alike) <= set(again)
    names = {step.name for step in pair.forward.steps}
    assert {name for step in again if step.echo for name in step.echo.names} <= names


def test_nothing_is_computed_again_where_everything_is_saved() -> None:
    pair = bp.capture(Gated(), torch.randn(3, 8), partition="default").pairs[0]
    assert pair.backward is not None
    targets = [step.target for step in pair.backward.steps if step.echo and step.echo.kind == "recomputes"]
    assert set(targets) <= {"aten.detach.default"}


def test_a_checkpoint_with_dropout_draws_again_what_it_drew() -> None:
    block = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.1), nn.Linear(8, 8))
    x = torch.randn(3, 8, requires_grad=True)
    capture = bp.capture(lambda x: checkpoint(block, x, use_reentrant=False).sum(), x, engine="dynamo")
    assert capture.verify()[-1].verdict == "bitwise"
    backward = capture.pairs[0].backward
    assert backward is not None
    draw = next(step for step in backward.steps if "run_with_rng_state" in step.target)
    assert draw.echo == bp.graph.nouns.Echo("recomputes", ("run_and_save_rng_state",))


@pytest.mark.parametrize("engine", ["aot", "eager", "dynamo"])
def test_modules_of_a_library_have_a_path_and_a_line(engine: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 1)))
    steps = bp.capture(model, torch.randn(3, 4), engine=engine).pairs[0].forward.steps
    sources = {step.target: step.source for step in steps}
    assert all(step.source for step in steps)
    linear, norm = sources["aten.addmm.default"], sources["aten.native_layer_norm.default"]
    assert linear is not None
    assert norm is not None
    assert (linear.file, linear.function, linear.module) == ("torch/nn/modules/linear.py", "forward", "2.1")
    assert linear.code == "return F.linear(input, self.weight, self.bias)"
    assert (norm.file, norm.module) == ("torch/nn/modules/normalization.py", "2.0")


@pytest.mark.parametrize("engine", ["aot", "eager", "dynamo"])
def test_a_transformers_layer_has_paths_and_lines(engine: str) -> None:
    steps = bp.capture(nn.TransformerEncoderLayer(8, 2, 16), torch.randn(3, 2, 8), engine=engine).pairs[0].forward.steps
    assert all(step.source and step.source.file.startswith("torch/nn/modules/") for step in steps)
    assert {"self_attn", "linear1", "norm2"} <= {step.source.module for step in steps if step.source}


def test_the_users_own_line_comes_first_and_no_line_counts_in_the_hash() -> None:
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

    torch.manual_seed(0)
    around, alone = bp.capture(Around(), torch.randn(3, 4)), bp.capture(nn.Linear(4, 2), torch.randn(3, 4))
    source = around.pairs[0].forward.steps[-1].source
    assert source is not None
    assert (source.code, source.module) == ("return self.inner(x)", "inner")
    assert around.pairs[0].forward.hash() == alone.pairs[0].forward.hash()


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.second, self.drop = nn.Linear(4, 4), nn.Linear(4, 4), nn.Dropout(0.3)
        self.reentrant = reentrant

    def block(self, layer: nn.Module, x: Tensor) -> Tensor:
        return self.drop(layer(x).tanh()).relu_()  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.first, self.second, self.second):
            x = checkpoint(self.block, layer, x, use_reentrant=self.reentrant)
        return x.sum()


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_computes_again_says_so_where_it_ran(reentrant: bool) -> None:
    """Each step of the three blocks is made again once, the last block first, and gradients answer to the forward's."""
    x = torch.randn(3, 4, requires_grad=True)
    pair = bp.capture(Checkpointed(reentrant), x, engine="eager").pairs[0]
    assert pair.backward is not None
    for stem in ("addmm", "tanh", "mul", "relu"):
        again = [s.echo for s in pair.backward.steps if s.echo and s.echo.names[0].partition("_")[0] == stem]
        told = [echo.names[0] for echo in again if echo.kind == "recomputes"]
        assert told == [f"{stem}_2", f"{stem}_1", stem]
    names = {step.name for step in pair.forward.steps}
    echoes = [step.echo for step in pair.backward.steps if step.echo and step.echo.kind == "gradient of"]
    assert {echo.names[0] for echo in echoes} <= names
    assert sum(step.target == "aten.tanh_backward.default" for step in pair.backward.steps) == 3
    assert not [s for s in pair.backward.steps if s.target == "aten.tanh_backward.default" and s.echo not in echoes]


sine = checked_function(torch.ops.aten.sin.default)


def calls_a_function_of_ours(x: Tensor) -> Tensor:
    return sine(x) * 2


@pytest.mark.parametrize("engine", ["eager", "aot"])
def test_a_function_of_ours_that_is_named_call_does_not_hide_the_users_line(engine: str) -> None:
    capture = bp.capture(calls_a_function_of_ours, torch.randn(3, requires_grad=True), engine=engine)
    codes = {step.source.code for step in capture.pairs[0].forward.steps if step.source is not None}
    assert [step.source is None for step in capture.pairs[0].forward.steps] == [False, False]
    assert codes == {"return sine(x) * 2"}


def test_no_line_outside_of_the_program_is_one_of_its_own() -> None:
    x = torch.randn(3, requires_grad=True)
    capture = bp.capture(torch.sin, x, engine="eager")
    assert [step.source for step in capture.pairs[0].forward.steps] == [None]
