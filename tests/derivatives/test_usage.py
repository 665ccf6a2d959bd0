"""`bp.check` of functions that are wrong only as training uses them, and of right ones that look like them."""

from __future__ import annotations

import ctypes
import math
import random
import re
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

import backprint as bp
from face import changed_state, process_state

KEPT: dict[str, Tensor] = {}


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def square(x: Tensor) -> Tensor:
    return x * x


def function(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a custom autograd.Function of two functions."""
    return type("Made", (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)}).apply


def saves(ctx: Any, *inputs: Tensor) -> Any:
    ctx.save_for_backward(*inputs)
    return inputs[0] * inputs[0] if len(inputs) == 1 else inputs[0] @ inputs[1]


def with_tangent(change: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """Return the square, whose backward changes its tangent first."""
    return function(saves, lambda ctx, grad: 2 * ctx.saved_tensors[0] * change(grad))


def written_over(x: Tensor, values: Tensor, how: str) -> None:
    """Write into the memory of a tensor without counting its version."""
    if how == "data":
        x.data.copy_(values)
    else:
        ctypes.memmove(x.data_ptr(), values.contiguous().data_ptr(), x.numel() * x.element_size())


def writing(how: str) -> Callable[..., Any]:
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y, gradient = x * x, 2 * x.detach()
        written_over(x, gradient, how)
        ctx.save_for_backward(x)
        return y

    return function(forward, lambda ctx, grad: ctx.saved_tensors[0] * grad)


def backward_that_writes(ctx: Any, grad: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    gradient = 2 * x * grad
    x.data.zero_()
    return gradient


def spoils(ctx: Any, grad: Tensor) -> Tensor:
    ctx.twice.mul_(2)
    return grad * ctx.twice / 2


def keeps_twice(ctx: Any, x: Tensor) -> Tensor:
    ctx.twice = 2 * x.detach()
    return x * x


def keeps_last(ctx: Any, x: Tensor) -> Tensor:
    KEPT["last"] = x.detach()
    return x * x


def keeps_first(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
    ctx.place = f"{w.data_ptr()}"
    KEPT.setdefault(ctx.place, w.detach().clone())
    ctx.save_for_backward(x)
    return x @ w


def right_if(condition: Callable[[Any], bool]) -> Callable[..., Any]:
    """Return a product whose first gradient is doubled where a condition on `needs_input_grad` does not hold."""

    def backward(ctx: Any, grad: Tensor) -> Any:
        x, w = ctx.saved_tensors
        return (1 if condition(ctx.needs_input_grad) else 2) * grad @ w.mT, x.mT @ grad

    return function(saves, backward)


def naive_norm(x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) * (x.square().mean(-1, keepdim=True) - mean.square() + 1e-5).rsqrt()


def naive_softmax(x: Tensor) -> Tensor:
    return x.exp() / x.exp().sum(-1, keepdim=True)


def softmax(x: Tensor) -> Tensor:
    return x.softmax(-1)


def norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def inference_path(x: Tensor) -> Tensor:
    return x * x if torch.is_grad_enabled() else x * x + 1


ONE, TWO = (drawn(3, 4),), (drawn(3, 4), drawn(4, 5, seed=1))

WRONG: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Tensor, ...], str]] = {
    "clips": (with_tangent(lambda g: g.clamp(-100, 100)), square, ONE, "gradient, tangents times 2^16"),
    "drops": (with_tangent(lambda g: torch.where(g.abs() < 1e-6, 0, g)), square, ONE, "gradient, tangents times 2^-24"),
    "frozen": (right_if(lambda needs: needs[1]), torch.matmul, TWO, "gradient, args.0 alone requires grad"),
    "last call": (
        function(keeps_last, lambda ctx, grad: 2 * grad * KEPT["last"]),
        square,
        ONE,
        "gradient, another call before the backward",
    ),
    "first call": (
        function(keeps_first, lambda ctx, grad: (grad @ KEPT[ctx.place].mT, ctx.saved_tensors[0].mT @ grad)),
        torch.matmul,
        TWO,
        "gradient, a second call with other values",
    ),
    "second backward": (function(keeps_twice, spoils), square, ONE, "gradient, a second backward"),
    "without gradients": (inference_path, square, ONE, "forward, without gradients"),
    "writes with a kernel": (writing("kernel"), square, ONE, "written"),
    "writes with .data": (writing("data"), square, ONE, "written"),
    "backward writes": (function(saves, backward_that_writes), square, ONE, "written"),
    "writes over a saved result": (
        lambda x: writing("data")(x.tanh()),
        lambda x: square(x.tanh()),
        ONE,
        "written",
    ),
    "naive variance": (naive_norm, norm, (drawn(6, 8),), "forward, a large mean in x"),
    "overflows": (naive_softmax, softmax, (drawn(6, 8),), "forward, a large mean in x"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_function_that_is_wrong_as_it_is_used_is_named(fault: str) -> None:
    KEPT.clear()
    wrong, reference, inputs, check = WRONG[fault]
    before = [value.clone() for value in inputs]
    report = bp.check(wrong, *inputs, like=reference, raises=False)
    assert check in {row.check for row in report.wrong}, f"{report}"
    assert all(map(torch.equal, inputs, before))


def test_what_is_written_is_said_first_and_by_whom() -> None:
    report = bp.check(writing("data"), *ONE, like=square, raises=False)
    text = str(report)
    assert (
        "First fault: written, float32: args.0 is wrong\n  the forward writes into it where autograd does not" in text
    )
    report = bp.check(WRONG["writes over a saved result"][0], *ONE, raises=False)
    assert report.wrong[0].name == "a tensor of shape [3, 4] that autograd saved"


def test_nan_for_the_masked_value_itself_is_wrong() -> None:
    def forward(ctx: Any, x: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(x, mask)
        return torch.where(mask, x, 0.0)

    leaking = function(forward, lambda ctx, grad: (grad * ctx.saved_tensors[1] + 0 * ctx.saved_tensors[0], None))
    masked = function(forward, lambda ctx, grad: (torch.where(ctx.saved_tensors[1], grad, 0.0), None))

    def reference(x: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask, x, 0.0)

    inputs = drawn(4, 8), drawn(4, 8, seed=1) > 0
    [wrong] = bp.check(leaking, *inputs, like=reference, raises=False).wrong
    assert wrong.check.startswith("gradient, NaN in args.0 behind args.1")
    assert "the reference's is a number" in wrong.detail
    assert bp.check(masked, *inputs, like=reference).good


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sizes_of_tangents_in_other_dtypes(dtype: torch.dtype) -> None:
    clips = with_tangent(lambda g: g.clamp(-100, 100))
    wrong = bp.check(clips, *ONE, like=square, dtypes=(dtype,), raises=False)
    size = "2^8" if dtype is torch.float16 else "2^16"
    assert f"gradient, tangents times {size}" in {row.check for row in wrong.wrong}


# ------------------------------------------------------------------ what is right


def two_pass_norm(ctx: Any, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    rstd = (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    ctx.save_for_backward(centred * rstd, rstd)
    return centred * rstd


def norm_backward(ctx: Any, grad: Tensor) -> Tensor:
    y, rstd = ctx.saved_tensors
    gradient: Tensor = rstd * (grad - grad.mean(-1, keepdim=True) - y * (grad * y).mean(-1, keepdim=True))
    return gradient


def linear_loss(ctx: Any, x: Tensor, w: Tensor, target: Tensor) -> Tensor:
    """The loss of logits that are never kept: its gradients are computed with the forward."""
    logits = x @ w.mT
    p = logits.softmax(-1)
    loss = F.cross_entropy(logits, target)
    p[torch.arange(len(target)), target] -= 1
    p /= len(target)
    ctx.save_for_backward(p @ w, p.mT @ x)
    return loss


def updates_statistics(ctx: Any, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """The norm of a batch, which writes the running statistics with `.data`, as `F.batch_norm` does."""
    n = len(x)
    mean.data.mul_(0.9).add_(0.1 * x.mean(0))
    variance.data.mul_(0.9).add_(0.1 * x.var(0, correction=0) * n / (n - 1))
    centred = x - x.mean(0)
    rstd = (centred.square().mean(0) + 1e-5).rsqrt()
    ctx.save_for_backward(centred * rstd, rstd)
    return centred * rstd


def batch_backward(ctx: Any, grad: Tensor) -> Any:
    y, rstd = ctx.saved_tensors
    return rstd * (grad - grad.mean(0) - y * (grad * y).mean(0)), None, None


def by_vjp(ctx: Any, grad: Tensor) -> Tensor:
    gradient: Tensor = torch.func.vjp(square, ctx.saved_tensors[0])[1](grad)[0]
    return gradient


LOSS_INPUTS = (drawn(5, 4), drawn(7, 4, seed=1), torch.tensor([0, 6, 2, 2, 5]))
STATISTICS = (drawn(6, 5), torch.zeros(5), torch.ones(5))

RIGHT: dict[str, tuple[Callable[..., Any], Any, tuple[Tensor, ...], dict[str, Any]]] = {
    "a norm in two passes": (function(two_pass_norm, norm_backward), norm, (drawn(6, 8),), {}),
    "a loss and its gradients at once": (
        function(linear_loss, lambda ctx, grad: (ctx.saved_tensors[0] * grad, ctx.saved_tensors[1] * grad, None)),
        lambda x, w, target: F.cross_entropy(x @ w.mT, target),
        LOSS_INPUTS,
        {},
    ),
    "running statistics": (
        function(updates_statistics, batch_backward),
        lambda x, mean, variance: F.batch_norm(x, mean, variance, training=True),
        STATISTICS,
        {"requires_grad": ["args.0"]},
    ),
    "a module with statistics": (nn.BatchNorm1d(5), None, STATISTICS[:1], {}),
    "transforms of torch.func": (function(saves, by_vjp), square, ONE, {}),
    "float16": (function(two_pass_norm, norm_backward), norm, (drawn(6, 8),), {"dtypes": (torch.float16,)}),
    "dropout": (
        lambda x: x * (torch.rand(x.shape) > 0.3),
        lambda x: x * (torch.rand(x.shape) > 0.3),
        ONE,
        {},
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_is_good_in_use(name: str) -> None:
    right, reference, inputs, options = RIGHT[name]
    report = bp.check(right, *inputs, like=reference, raises=False, **options)
    assert report.good, f"{report}"
    checks = {row.check for row in report.rows if row.tried}
    word = "gradient" if reference is not None else "same gradient"
    assert {"written", f"{word}, a second backward", f"{word}, another call before the backward"} <= checks


def test_a_function_that_registers_a_hook_is_checked_as_far_as_it_runs() -> None:
    def hooked(x: Tensor, w: Tensor) -> Tensor:
        y = (x * w).sin()
        y.register_hook(lambda grad: grad * 1.0)
        return y.cos()

    report = bp.check(hooked, torch.randn(3, 4), torch.randn(3, 4), raises=False)
    assert report.good, report
    assert any("without gradients" in row.check and "the function raised" in row.verdict for row in report.rows)


def test_sizes_that_float16_inside_does_not_have_are_not_tried() -> None:
    x, w = torch.randn(3, 4), torch.randn(4, 2)
    report = bp.check(lambda x, w: (x.half() @ w.half()).float(), x, w, raises=False)
    assert report.good, report
    assert any("float16 inside" in row.verdict for row in report.rows)


# ------------------------------------------------------------------ how it leaves the process


LEAVES = {
    "torch's random state": lambda: torch.manual_seed(0),
    "Python's random state": lambda: random.seed(0),
    "NumPy's random state": lambda: numpy.random.seed(0),
    "the default dtype": lambda: torch.set_default_dtype(torch.float64),
    "whether algorithms are deterministic": lambda: torch.use_deterministic_algorithms(True),
    "grad mode": lambda: torch.set_grad_enabled(False),
}


@pytest.mark.parametrize("name", LEAVES)
@pytest.mark.parametrize("like", [torch.sin, None], ids=["like", "alone"])
def test_a_function_that_leaves_the_process_otherwise_is_named(name: str, like: Any) -> None:
    def leaves(x: Tensor) -> Tensor:
        LEAVES[name]()
        return x.sin()

    x, before = torch.randn(3, 4), process_state()
    with pytest.raises(bp.errors.CheckError) as caught:
        bp.check(leaves, x, like=like)
    assert changed_state(before) == ""
    assert re.search(rf"^process .* {name} .* wrong$", str(caught.value), re.MULTILINE), caught.value


def test_a_function_may_draw_and_may_change_what_its_reference_changes() -> None:
    def draws(x: Tensor) -> Tensor:
        random.random()
        return x.sin() + 0 * torch.rand(3, 4)

    def seeds(x: Tensor) -> Tensor:
        torch.manual_seed(0)
        return x.sin()

    assert bp.check(draws, torch.randn(3, 4), like=torch.sin)
    assert bp.check(seeds, torch.randn(3, 4), like=seeds)


def test_nan_in_a_row_that_a_mask_hides_whole_is_wrong() -> None:
    def softmax(x: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask, x, -math.inf).softmax(-1)

    def with_zeros(x: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask.any(-1, keepdim=True), torch.where(mask, x, -1e30).softmax(-1), 0.0)

    x, mask = torch.randn(4, 5), torch.arange(20).view(4, 5) % 3 < 2
    with pytest.raises(bp.errors.CheckError, match="a row that a mask hides"):
        bp.check(softmax, x, mask, like=with_zeros)
    assert bp.check(with_zeros, x, mask, like=with_zeros)
    assert bp.check(softmax, x, mask, like=softmax)  # of which NaN is the answer, too


# ------------------------------------------------------------------ calls one after the other, and modules


def test_a_result_that_a_later_call_writes_into_is_named() -> None:
    buffers: dict[Any, Tensor] = {}

    def own(like: Tensor) -> Tensor:
        return buffers.setdefault((like.shape, like.dtype), torch.empty_like(like))

    def sine(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    in_one_buffer = function(sine, lambda ctx, grad: torch.mul(grad, ctx.saved_tensors[0].cos(), out=own(grad)))
    with pytest.raises(bp.errors.CheckError, match=r"the gradient of args\.0[\s\S]*later call writes into this result"):
        bp.check(in_one_buffer, torch.randn(3, 4), like=torch.sin)
    assert bp.check(torch.t, torch.randn(3, 4), like=torch.t)  # a view of its input changes with it


def test_a_cache_by_address_and_version_is_wrong_where_memory_is_given_to_another_tensor() -> None:
    known: dict[Any, Tensor] = {}

    def product(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        key = w.data_ptr(), w._version, w.shape, w.dtype
        return x @ known.setdefault(key, w.t().contiguous())

    cached = function(product, lambda ctx, grad: (grad @ ctx.saved_tensors[1], grad.t() @ ctx.saved_tensors[0]))
    report = bp.check(cached, torch.randn(3, 4), torch.randn(5, 4), like=F.linear, raises=False)
    assert "forward, a second call in the same memory" in {row.check for row in report.rows if row.verdict == "wrong"}


class Norm(nn.Module):
    """A batch norm whose running variance is of one row less, or of all."""

    def __init__(self, fewer: int) -> None:
        super().__init__()
        self.fewer = fewer
        self.register_buffer("running_mean", torch.zeros(4))
        self.register_buffer("running_var", torch.ones(4))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(x.mean(0), 0.1)
            self.running_var.lerp_(((x - x.mean(0)) ** 2).sum(0) / (len(x) - self.fewer), 0.1)
        return (x - x.mean(0)) / torch.sqrt(((x - x.mean(0)) ** 2).mean(0) + 1e-5)


def test_buffers_of_two_modules_are_compared() -> None:
    like = nn.BatchNorm1d(4, affine=False)
    assert bp.check(Norm(1), torch.randn(16, 4), like=like, requires_grad=["x"])
    report = bp.check(Norm(0), torch.randn(16, 4), like=like, requires_grad=["x"], raises=False)
    assert {(row.check, row.name) for row in report.rows if row.verdict == "wrong"} == {("buffer", "running_var")}


def test_tangents_are_not_the_inputs_of_a_program_that_seeds_as_we_do() -> None:
    """Along its own inputs, the gradient of a norm is 0."""
    seen: list[Tensor] = []

    def scaled(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return 2 * x

    def remember(ctx: Any, grad: Tensor) -> Tensor:
        seen.append(grad.detach().clone())
        return 2 * grad

    torch.manual_seed(0)
    x = torch.randn(3, 4)
    bp.check(function(scaled, remember), x, like=lambda x: 2 * x)
    assert not any(torch.equal(grad.to(x.dtype)[0], x[0]) for grad in seen if grad.shape == x.shape)
