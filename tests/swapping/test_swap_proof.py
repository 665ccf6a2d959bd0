"""The proof of a swap: right solutions are good, wrong ones are named, and what did not run is never good."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from subjects.small_mlps import MLP, Fused, FusedForward, Net, net_and_x
from torch import Tensor, nn

import backprint as bp
from face import CheckError, UsageError


def states(model: nn.Module) -> list[tuple[str, int, bool]]:
    kept = [(name, tensor.data_ptr(), tensor.grad is None) for name, tensor in model.named_parameters()]
    return kept + [(name, tensor.data_ptr(), True) for name, tensor in model.named_buffers()]


@pytest.mark.parametrize("order", [1, 2])
def test_a_right_solution_is_good_and_the_model_stays(order: int) -> None:
    net, x = net_and_x()
    before, state, random = states(net), {k: v.clone() for k, v in net.state_dict().items()}, torch.get_rng_state()
    swapped = bp.swap(net, "blocks.*", FusedForward, order=order)
    proof = swapped.prove(x, raises=True)
    assert proof.good
    assert proof.verdict == "good"
    assert swapped.proof is proof
    assert {row.dtype for row in proof.rows} == {"float32", "float64"}
    checks = {row.check for row in proof.rows if row.tried}
    assert {"calls", "loss", "gradient", "alone, gradient", "gradient, values nearby", "loss, once more"} <= checks
    assert ("second gradient" in checks) == (order == 2)
    assert {row.name for row in proof.rows if row.check == "gradient"} == {"x", *dict(net.named_parameters())}
    assert states(net) == before
    assert torch.equal(torch.get_rng_state(), random)
    assert not swapped.active
    assert all(torch.equal(tensor, state[name]) for name, tensor in net.state_dict().items())
    assert str(proof).startswith("FusedForward in Net: good (2 places, ")


def test_proven_at_once_or_refused() -> None:
    net, x = net_and_x()
    with bp.swap(net, "blocks.*", Fused, prove=x) as swapped:
        net(x)
    assert swapped.proof is not None
    assert swapped.proof.good
    with pytest.raises(CheckError, match=r"1 wrong|First fault"):
        bp.swap(net, "blocks.*", lambda *tensors: 1.01 * Fused.apply(*tensors), prove=x)
    assert "forward" not in vars(net.blocks[0])


class Off(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 1.01 * g


class Writes(Off):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        g.mul_(1.0001)
        return g / 1.0001


def on_tensor(index: int, change: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def solution(*tensors: Tensor) -> Any:
        return Fused.apply(*(change(t) if place == index else t for place, t in enumerate(tensors)))

    return solution


def writing(*tensors: Tensor) -> Any:
    y = Fused.apply(*tensors)
    tensors[0].data.mul_(1.001)
    return y


class Kept:
    """Returns what it returned first, or all results in one memory."""

    def __init__(self, memory: bool) -> None:
        self.memory, self.first = memory, dict[torch.dtype, Tensor]()

    def __call__(self, *tensors: Tensor) -> Any:
        y = Fused.apply(*tensors)
        first = self.first.setdefault(y.dtype, y.detach().clone())
        if self.memory:
            y.data = first.copy_(y.detach())
            return y
        return y + (first - y).detach()


class ClipsLarge(Off):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g.clamp(-100, 100)


class DropsSmall(Off):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return torch.where(g.abs() < 1e-6, 0, g)


class SeedsInBackward(Off):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        torch.manual_seed(0)
        return g.clone()


class ForgetsWhenFrozen(Off):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, grads[0] if ctx.needs_input_grad[0] else 1.01 * grads[0]


class WritesInBackward(Off):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.x = x
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        ctx.x.data.mul_(1.001)
        return g.clone()


def after(change: Callable[[], Any]) -> Callable[..., Any]:
    def solution(*tensors: Tensor) -> Any:
        change()
        return Fused.apply(*tensors)

    return solution


WRONG = {
    "large tangents are clipped": (
        on_tensor(0, ClipsLarge.apply),
        "alone, gradient, tangents times 2^16: blocks.1: x",
    ),
    "small tangents are dropped": (
        on_tensor(0, DropsSmall.apply),
        "alone, gradient, tangents times 2^-20: blocks.1: x",
    ),
    "without gradients": (
        lambda *tensors: Fused.apply(*tensors) * (1.0 if torch.is_grad_enabled() else 1.01),
        "alone, output, without gradients: blocks.1: output",
    ),
    "frozen inputs": (
        lambda x, *rest: ForgetsWhenFrozen.apply(x, Fused.apply(x, *rest)),
        "alone, gradient, inputs frozen: blocks.1: fc.weight",
    ),
    "the default dtype": (
        after(lambda: torch.set_default_dtype(torch.float64)),
        "settings: blocks.1: the default dtype",
    ),
    "the seed": (after(lambda: torch.manual_seed(0)), "settings: blocks.1: torch's random state"),
    "the seed in its backward": (on_tensor(0, SeedsInBackward.apply), "settings: blocks.1: torch's random state"),
    "Python's seed": (after(lambda: random.seed(0)), "settings: blocks.1: Python's random state"),
    "its backward writes": (on_tensor(0, WritesInBackward.apply), "written: blocks.1: x"),
    "1% on the gradient of x": (on_tensor(0, Off.apply), "alone, gradient: blocks.1: x"),
    "1% on a parameter's": (on_tensor(3, Off.apply), "alone, gradient: blocks.1: proj.weight"),
    "no gradient of a parameter": (on_tensor(2, Tensor.detach), "alone, gradient: blocks.1: fc.bias"),
    "an input is written into": (writing, "written: blocks.1: x"),
    "a result is kept": (Kept(False), "alone, output, values nearby: blocks.1: output"),
    "one memory": (Kept(True), "written: blocks.1: output 0"),
    "zeros": (lambda x, *rest: 0 * Fused.apply(x, *rest), "alone, output: blocks.1: output"),
    "one element": (lambda x, *rest: Fused.apply(x, *rest) + 1e-3 * (x == x.max()), "alone, output: blocks.1: output"),
    "another dtype": (lambda *tensors: Fused.apply(*tensors).double(), "alone, output: blocks.1: output"),
    "another shape": (lambda *tensors: Fused.apply(*tensors)[:1], "alone, output: blocks.1: output"),
    "two results": (lambda *tensors: (Fused.apply(*tensors),) * 2, "alone, output: blocks.1: results"),
    "a tangent is written into": (
        lambda x, *rest: Writes.apply(Fused.apply(x, *rest)),
        "written: blocks.1: tangent of",
    ),
    "it raises": (lambda *tensors: 1 / 0, "alone, output: blocks.1: all"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_solution_is_named(fault: str) -> None:
    net, x = net_and_x()
    solution, first = WRONG[fault]
    proof = bp.swap(net, "blocks.1", solution).prove(x)
    assert proof.verdict == "wrong"
    assert not proof.good
    check, _, name = first.partition(": ")
    assert f"First fault: {check}, float32: {name}" in str(proof)
    assert torch.get_default_dtype() is torch.float32


def test_a_solution_may_draw_as_the_original_does_and_not_seed() -> None:
    net, x = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.3)), drawn_input()

    def seeding(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return F.dropout(x, 0.3)

    assert bp.swap(net, "1", lambda x: F.dropout(x, 0.3)).prove(x).good
    proof = bp.swap(net, "1", seeding).prove(x)
    assert {(row.check, row.name) for row in proof.wrong} == {("settings", "1: torch's random state")}
    assert "seeding seeds torch" in str(proof)


def test_what_is_proven_runs_with_less_grad_and_nothing_else_does() -> None:
    net, x = nn.Sequential(nn.Linear(6, 6), MLP()), drawn_input()

    def step() -> None:
        net.zero_grad()
        net(x).sum().backward()

    with bp.swap(net, "1", Fused) as swapped:
        step()
        net[0].requires_grad_(False)
        with pytest.warns(UserWarning, match="requires_grad of x is False, and Fused is for True"):
            step()
        net[0].requires_grad_(True)
    assert [(place.ran, place.fell_back) for place in swapped.places] == [(1, 1)]
    swapped.prove(x, raises=True)
    with swapped:
        step()
        net[0].requires_grad_(False)
        step()
        net[0].requires_grad_(True)
        net[1].requires_grad_(False)
        step()
        with torch.no_grad():
            net(x)
        net[1].proj.requires_grad_(True)
        step()  # the warning was given
    assert [(place.ran, place.fell_back) for place in swapped.places] == [(5, 2)]


def drawn_input() -> Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def test_a_gradient_of_a_gradient_that_is_a_constant_is_wrong() -> None:
    class Constant(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.x = x.detach()
            return x**3

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            return 3 * ctx.x**2 * g

    class Cube(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x**3

    net, x = nn.Sequential(nn.Linear(3, 3), Cube()), torch.randn(2, 3)
    assert bp.swap(net, "1", Constant).prove(x).good
    proof = bp.swap(net, "1", Constant, order=2).prove(x)
    assert {row.check.partition(",")[0] for row in proof.wrong} == {"second gradient"}


# ------------------------------------------------------------------ unproven


class Reads(nn.Module):
    """Reads the weight of a module that it does not call."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.drop = nn.Linear(3, 3), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(x @ self.inner.weight)


def test_a_swap_that_never_ran_is_unproven() -> None:
    proof = bp.swap(Reads().eval(), "inner", torch.nn.functional.linear).prove(torch.randn(2, 3))
    assert proof.verdict == "unproven"
    assert proof.missing == ("inner: nothing called it in this step",)
    with pytest.raises(CheckError, match="nothing called it in this step"):
        proof.raise_if_wrong()
    with pytest.raises(UsageError, match="no gain to time: inner: nothing called it"):
        bp.swap(Reads().eval(), "inner", torch.nn.functional.linear).gain(torch.randn(2, 3))


def test_a_swap_whose_original_ran_is_unproven() -> None:
    net, x = net_and_x()
    proof = bp.swap(net, "blocks.1", Fused, like=x[None]).prove(x)
    assert proof.verdict == "unproven"
    assert "blocks.1: the original ran: number of dimensions of x is 2, and Fused is for 3" in proof.missing


@pytest.mark.parametrize("rows", [0, 4])
def test_gradients_that_are_all_0_prove_nothing(rows: int) -> None:
    class Zero(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) * (1.0 if rows == 0 else 0.0)

    net = Zero()
    net.inner = nn.Linear(3, 3)
    proof = bp.swap(net, "inner", F.linear).prove(torch.randn(rows, 3))
    assert proof.verdict == "unproven"
    assert "it is 0 everywhere" in str(proof)


def test_random_numbers_are_unproven_and_not_wrong() -> None:
    proof = bp.swap(Reads(), "drop", lambda x: 2 * x * (torch.rand_like(x) > 0.5)).prove(torch.randn(8, 3))
    assert proof.verdict == "unproven"
    assert "drop draws random numbers" in str(proof)


def test_what_a_float32_solution_does_in_float64_is_not_wrong() -> None:
    def in_float32(*tensors: Tensor) -> Any:
        return Fused.apply(*(tensor.float() for tensor in tensors)).to(tensors[0].dtype)

    net, x = net_and_x()
    assert bp.swap(net, "blocks.1", in_float32).prove(x).good
    only = bp.swap(net, "blocks.1", lambda x, *rest: Fused.apply(x, *(t.float() for t in rest))).prove(x)
    assert only.good, "in float64 it raises, and it is not for float64"
    assert "in float64" not in str(only) or "raised RuntimeError" in str(only)


def test_a_bfloat16_solution_that_computes_in_float32_is_not_wrong_in_float64() -> None:
    def in_float32(*tensors: Tensor) -> Any:
        return Fused.apply(*(tensor.float() for tensor in tensors)).to(tensors[0].dtype)

    torch.manual_seed(0)
    net, x = nn.Sequential(MLP(32), MLP(32)).bfloat16(), torch.randn(64, 32).bfloat16()
    proof = bp.swap(net, "0", in_float32).prove(x)
    assert not proof.wrong, proof
    assert "computes in another dtype inside" in str(proof)


def test_an_integer_output_is_compared() -> None:
    class Top(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x.exp(), x.argmax(-1)

    net, x = nn.Sequential(nn.Linear(3, 3), Top()), torch.randn(5, 3)
    assert bp.swap(net, "1", lambda x: (x.exp(), x.argmax(-1))).prove(x).good
    proof = bp.swap(net, "1", lambda x: (x.exp(), x.argmin(-1))).prove(x)
    assert {row.name for row in proof.wrong} == {"output.1", "1: output.1"}


def test_in_autocast_and_in_bfloat16() -> None:
    torch.manual_seed(0)
    wide, x = nn.Sequential(MLP(32), MLP(32)), torch.randn(64, 32)
    for solution, verdict in ((FusedForward, "good"), (on_tensor(3, Off.apply), "wrong")):
        with torch.autocast("cpu", torch.bfloat16):
            assert bp.swap(wide, "0", solution).prove(x).verdict == verdict
        low = copy.deepcopy(wide).bfloat16()
        assert bp.swap(low, "0", solution).prove(x.bfloat16()).verdict == verdict
    net, x = net_and_x()
    with torch.autocast("cpu", torch.bfloat16):
        proof = bp.swap(net, "blocks.1", FusedForward).prove(x)
    assert proof.verdict == "unproven", "of 24 numbers in bfloat16 1% is not seen"
    assert "so far from float64 that 1% would not be seen" in str(proof)


# ------------------------------------------------------------------ buffers, losses, gain


def test_buffers_that_the_original_writes_are_compared() -> None:
    class Norm(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.num_batches_tracked.add_(1)
            self.running_var.lerp_(x.var(0), 0.1)
            if self.right:  # type: ignore[attr-defined]
                self.running_mean.lerp_(x.mean(0), 0.1)
            scale = torch.rsqrt(x.var(0, correction=0) + 1e-5)
            return (x - x.mean(0)) * scale * self.weight + self.bias

    class Counts(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            result = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, True)
            return self.num_batches_tracked.add_(2) * 0 + result

    net, x = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), torch.randn(9, 3)
    net[1].right = True
    assert bp.swap(net, "1", Norm).prove(x).good
    net[1].right = False
    assert {row.name for row in bp.swap(net, "1", Counts).prove(x).wrong} == {
        "1.num_batches_tracked",
        "1: num_batches_tracked",
    }
    original = nn.BatchNorm1d.forward
    proof = bp.swap(net, "1", Norm).prove(x)
    assert {row.name for row in proof.wrong} == {"1.running_mean", "1: running_mean"}
    assert nn.BatchNorm1d.forward is original


def test_a_batch_of_another_size_is_tried_unless_the_solution_is_for_one() -> None:
    class Blocks(torch.autograd.Function):
        """Leaves the rows out that fill no block of four."""

        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            ctx.save_for_backward(x, weight)
            return F.linear(x, weight, bias)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            x, weight = ctx.saved_tensors
            rows = len(grad) // 4 * 4
            return grad @ weight, grad[:rows].T @ x[:rows], grad.sum(0)

    def refuses(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        assert len(x) % 4 == 0
        return F.linear(x, weight, bias)

    net, x = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 3)), torch.randn(8, 3)
    wrong = bp.swap(net, "1", Blocks).prove(x).wrong
    assert {row.check for row in wrong} == {f"alone, gradient, a batch of {size}" for size in (1, 7, 17)}
    assert {row.detail for row in wrong} == {"a size that it has built in belongs to fixed="}
    assert bp.swap(net, "1", Blocks, fixed=True).prove(x).good
    assert bp.swap(net, "1", refuses).prove(x).good


def test_buffers_are_compared_where_no_gradients_are_recorded() -> None:
    class Norm(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if torch.is_grad_enabled() or self.right:  # type: ignore[attr-defined]
                self.num_batches_tracked.add_(1)
                self.running_mean.lerp_(x.detach().mean(0), 0.1)
                self.running_var.lerp_(x.detach().var(0), 0.1)
            return (x - x.mean(0)) * torch.rsqrt(x.var(0, correction=0) + 1e-5) * self.weight + self.bias

    net, x = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), torch.randn(9, 3)
    net[1].right = True
    assert bp.swap(net, "1", Norm).prove(x).good
    net[1].right = False
    wrong = bp.swap(net, "1", Norm).prove(x).wrong
    assert {row.check for row in wrong} == {"alone, buffer, without gradients", "alone, buffer, in inference mode"}


def test_the_loss_is_the_callers_or_the_models_own() -> None:
    net, x = net_and_x()
    seen: list[Any] = []

    def loss(y: Tensor) -> Tensor:
        seen.append(y)
        return y.square().mean()

    assert bp.swap(net, "blocks.1", Fused).prove(x, loss=loss).good
    assert len(seen) > 6
    with pytest.raises(UsageError, match="the loss is a floating-point number"):
        bp.swap(net, "blocks.1", Fused).prove(x, loss=lambda y: y)


@pytest.mark.slow
def test_the_gain_is_timed_in_turns() -> None:
    net, x = net_and_x()
    with bp.swap(net, "blocks.*", FusedForward) as swapped:
        gain = swapped.gain(args=(x,))  # as `prove` takes arguments, too
        assert swapped.active
        assert [place.ran for place in swapped.places] == [0, 0]
    assert 0 < gain.low <= gain.ratio <= gain.high
    assert str(gain).startswith(f"{gain.answer}: the step takes ")


def test_inside_of_its_block_it_is_proven_too() -> None:
    net, x = net_and_x()
    with bp.swap(net, "blocks.*", Fused) as swapped:
        net(x)
        assert swapped.prove(x).good
        net(x)
    assert [place.ran for place in swapped.places] == [4, 2]


__all__ = ["Net"]


# ------------------------------------------------------------------ other calls


def test_a_solution_that_checkpoints_is_run_again_with_the_parameters_of_the_call() -> None:
    class Checkpointed(MLP):
        def forward(self, x: Tensor) -> Tensor:
            return torch.utils.checkpoint.checkpoint(lambda x: MLP.forward(self, x), x, use_reentrant=False)

    net, x = net_and_x()
    assert bp.swap(net, "blocks.*", Checkpointed).prove(x).good


class Rows(torch.autograd.Function):
    """An embedding whose backward assigns, so that tokens that are repeated lose gradients."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(tokens, weight)
        return weight[tokens]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        tokens, weight = ctx.saved_tensors
        return None, torch.zeros_like(weight).index_put((tokens,), grad)


def test_repeated_indices_are_tried() -> None:
    net = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 2))
    wrong = bp.swap(net, "0", Rows).prove(torch.tensor([[1, 4, 2], [3, 5, 6]])).wrong
    assert {row.check for row in wrong if "indices" in row.check} == {"alone, gradient, repeated indices in input"}


def test_padding_is_tried_where_the_batch_has_none() -> None:
    class Added(Rows):
        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            tokens, weight = ctx.saved_tensors
            return None, torch.zeros_like(weight).index_put((tokens,), grad, accumulate=True)

    class WithoutPadding(Rows):
        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            tokens, weight = ctx.saved_tensors
            grad = grad * (tokens != 8)[..., None]
            return None, torch.zeros_like(weight).index_put((tokens,), grad, accumulate=True)

    batch = torch.tensor([[1, 4, 2], [3, 5, 6]])
    net = nn.Sequential(nn.Embedding(9, 4, padding_idx=-1), nn.Linear(4, 2))
    wrong = bp.swap(net, "0", Added).prove(batch).wrong
    assert {row.check for row in wrong} == {"alone, gradient, indices of padding in input"}
    net = nn.Sequential(nn.Embedding(9, 4, padding_idx=-1), nn.Linear(4, 2))
    assert bp.swap(net, "0", WithoutPadding).prove(batch).good
    net = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 2))
    assert bp.swap(net, "0", Added).prove(batch).good


def test_another_length_is_tried() -> None:
    class FirstFive(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return F.linear(torch.cat([x[:, :5], 0 * x[:, 5:]], 1), self.weight, self.bias)

    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    wrong = bp.swap(net, "1", FirstFive).prove(torch.randn(3, 5, 4)).wrong
    assert {row.check for row in wrong} == {"alone, output, a length of 11", "alone, gradient, a length of 11"}
