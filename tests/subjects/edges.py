"""Programs at the edges of autograd: each a maker of (callable, args, kwargs), named after the difficulty.

Every engine must capture the programs of `programs`. These must be captured correctly by some engine, or be refused by
name: custom Functions, hooks, `no_grad` islands, transforms, checkpoints, subclasses, random numbers and state from
elsewhere. The conformance table has the expected outcome of each.
"""

from __future__ import annotations

import collections
import functools
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from subjects.programs import Program, leaf

EDGES: dict[str, Callable[[], Program]] = {}


def edge(make: Callable[[], Program]) -> Callable[[], Program]:
    """Register a maker under its name."""
    EDGES[make.__name__] = make
    return make


def net(*widths: int) -> nn.Sequential:
    """Linear layers with GELUs between them."""
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    return nn.Sequential(*[part for layer in layers for part in (layer, nn.GELU())][:-1])


class Body(nn.Module):
    """A module with a function as its forward, so that a program is one function."""

    def __init__(self, body: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.body = body
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.body(self, *args, **kwargs)


# ------------------------------------------------------------------ custom Functions


class Scaled(Function):
    """Saves inputs, an output and a number; its backward is not the forward's derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, factor: float) -> Tensor:
        y = (x * w).exp()
        ctx.save_for_backward(x, w, y)
        ctx.factor = factor
        return y * factor

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, w, y = ctx.saved_tensors
        return gradient * w * y * ctx.factor * 0.5, (gradient * x * y).sum(0), None


class Doubled(Function):
    """Changes its input in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 3


class Sorted(Function):
    """One output has a gradient, the other is marked as non-differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        values, index = x.sort()
        ctx.mark_non_differentiable(index)
        ctx.save_for_backward(index)
        return values, index

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> Tensor:
        (index,) = ctx.saved_tensors
        return torch.zeros_like(gradient).scatter(-1, index, gradient)


class FloatMarked(Function):
    """A floating-point output that is marked as non-differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        soft, hard = x * 2, x.sign() + 2
        ctx.mark_non_differentiable(hard)
        return soft, hard

    @staticmethod
    def backward(ctx: Any, soft: Tensor, hard: Tensor) -> Tensor:
        return soft * 2


class Halves(Function):
    """Its backward gets None for the unused output."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, first: Tensor | None, second: Tensor | None) -> Tensor:
        if second is None:
            return first * 2
        return first * 2 + second * 3


class Cubed(Function):
    """In the newer style; its backward has a backward."""

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        return x**3, 3 * x**2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0], output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> Tensor:
        x, slope = ctx.saved_tensors
        return Slope.apply(gradient, x, slope)


class Slope(Function):
    """The backward of Cubed, with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, x: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(gradient, x, slope)
        return gradient * slope

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        given, x, slope = ctx.saved_tensors
        return gradient * slope, gradient * given * 6 * x, None


class Recomputed(Function):
    """Runs autograd inside its backward, as reversible layers do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return (x * w).tanh()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        with torch.enable_grad():
            x, w = (tensor.detach().requires_grad_() for tensor in ctx.saved_tensors)
            return torch.autograd.grad((x * w).tanh(), (x, w), gradient)


class Clipped(Function):
    """Its backward branches on the gradient's values."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient / gradient.norm() if float(gradient.norm()) > 1 else gradient


class Sown(Function):
    """Its backward draws random numbers."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * torch.rand_like(gradient)


@edge
def function_that_saves() -> Program:
    return lambda x, w: Scaled.apply(x, w, 0.3).sin(), (leaf(4, 3), leaf(3)), {}


@edge
def function_that_marks_dirty() -> Program:
    return lambda x: Doubled.apply(x * 1).exp(), (leaf(4),), {}


@edge
def function_that_marks_an_input_dirty() -> Program:
    return lambda x, w: Doubled.apply(x) * w, (torch.randn(4), leaf(4)), {}


@edge
def function_with_an_integer_output() -> Program:
    return lambda x: Sorted.apply(x.sin()), (leaf(2, 5),), {}


@edge
def function_with_a_marked_output() -> Program:
    def f(x: Tensor) -> Tensor:
        soft, hard = FloatMarked.apply(x)
        return soft * hard

    return f, (leaf(5),), {}


@edge
def function_with_an_unused_output() -> Program:
    return lambda x: Halves.apply(x)[0].sin(), (leaf(5),), {}


@edge
def function_twice_differentiated() -> Program:
    def f(x: Tensor) -> Tensor:
        y, _ = Cubed.apply(x)
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return (slope**2).sum() + y.sum()

    return f, (leaf(5),), {}


@edge
def function_with_autograd_inside() -> Program:
    return lambda x, w: Recomputed.apply(x, w).cos(), (leaf(5), leaf(5)), {}


@edge
def function_whose_backward_reads_values() -> Program:
    return lambda x: Clipped.apply(x).exp(), (leaf(5),), {}


@edge
def function_whose_backward_draws() -> Program:
    return lambda x: Sown.apply(x).exp(), (leaf(5),), {}


@edge
def straight_through_gumbel() -> Program:
    return lambda x: F.gumbel_softmax(x, tau=0.7, hard=True) * x, (leaf(4, 5),), {}


@edge
def straight_through_quantiser() -> Program:
    def body(self: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        near = torch.cdist(x, self.codes).argmin(-1)
        coded = self.codes[near]
        commit = F.mse_loss(coded.detach(), x) + F.mse_loss(coded, x.detach())
        return x + (coded - x).detach(), commit

    return Body(body, codes=nn.Parameter(torch.randn(6, 3))), (leaf(4, 3),), {}


# ------------------------------------------------------------------ hooks


@edge
def forward_hooks_on_modules() -> Program:
    model = net(3, 4, 2)
    model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    model[2].register_forward_hook(lambda module, args, output: output + 1)
    return model, (leaf(5, 3),), {}


@edge
def backward_hooks_on_modules() -> Program:
    model = net(3, 4, 2)
    model[0].register_full_backward_hook(lambda module, given, asked: (given[0] * 3,))
    model[2].register_full_backward_pre_hook(lambda module, asked: (asked[0].clamp(-0.5, 0.5),))
    return model, (leaf(5, 3),), {}


@edge
def hook_that_only_looks() -> Program:
    seen: list[Any] = []

    def f(x: Tensor) -> Tensor:
        y = x.sin()
        y.register_hook(lambda gradient: seen.append(gradient.shape))
        return y * 2

    return f, (leaf(5),), {}


@edge
def hooks_in_order_on_one_tensor() -> Program:
    def f(x: Tensor) -> Tensor:
        y = x.sin()
        y.register_hook(lambda gradient: gradient + 1)
        y.register_hook(lambda gradient: gradient * 2)
        return y * y

    return f, (leaf(5),), {}


@edge
def hook_before_an_in_place_change() -> Program:
    def f(x: Tensor) -> Tensor:
        y = x.sin()
        y.register_hook(lambda gradient: gradient * 10)
        y.mul_(2)
        return y.exp()

    return f, (leaf(5),), {}


@edge
def hook_on_an_input_inside() -> Program:
    def f(x: Tensor) -> Tensor:
        x.register_hook(lambda gradient: gradient * 0.1)
        return x.exp()

    return f, (leaf(5),), {}


@edge
def hook_after_accumulation() -> Program:
    model = net(3, 2)
    model[0].weight.register_post_accumulate_grad_hook(lambda parameter: None)
    return model, (leaf(5, 3),), {}


@edge
def hook_on_a_node() -> Program:
    def f(x: Tensor) -> Tensor:
        y = x.sin()
        y.grad_fn.register_prehook(lambda gradients: (gradients[0] * 4,))
        return y * 2

    return f, (leaf(5),), {}


@edge
def hook_over_several_tensors() -> Program:
    seen: list[Any] = []

    def f(x: Tensor, y: Tensor) -> Tensor:
        a, b = x.sin(), y.cos()
        torch.autograd.graph.register_multi_grad_hook((a, b), lambda gradients: seen.append(len(gradients)))
        return a * b

    return f, (leaf(5), leaf(5)), {}


@edge
def hooks_on_saved_tensors() -> Program:
    def f(x: Tensor) -> Tensor:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.bfloat16(), lambda t: t.float()):
            return x.exp()

    return f, (leaf(5),), {}


@edge
def saved_tensors_on_the_cpu() -> Program:
    def f(x: Tensor) -> Tensor:
        with torch.autograd.graph.save_on_cpu():
            return x.exp() * x

    return f, (leaf(5),), {}


@edge
def retained_gradient() -> Program:
    def f(x: Tensor) -> Tensor:
        y = x.sin()
        y.retain_grad()
        return y * 2

    return f, (leaf(5),), {}


# ------------------------------------------------------------------ islands


@edge
def moving_average_without_gradients() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return (x - self.mean) * self.w

    return Body(body, mean=torch.zeros(3), w=nn.Parameter(torch.randn(3))), (leaf(4, 3),), {}


@edge
def decorated_without_gradients() -> Program:
    @torch.no_grad()
    def target(x: Tensor) -> Tensor:
        return x.softmax(-1)

    return lambda x: F.kl_div(x.log_softmax(-1), target(x * 2), reduction="batchmean"), (leaf(4, 3),), {}


@edge
def gradients_on_inside_off() -> Program:
    def f(x: Tensor) -> Tensor:
        with torch.no_grad():
            a = x * 2
            with torch.enable_grad():
                b = x * 3
            torch.set_grad_enabled(True)
            c = x * 4
        return (a + b + c).sin()

    return f, (leaf(5),), {}


@edge
def inference_island() -> Program:
    def f(x: Tensor) -> Tensor:
        with torch.inference_mode():
            scale = x.abs().max().clone()
        return x * scale.clone()

    return f, (leaf(5),), {}


@edge
def data_attribute() -> Program:
    def f(x: Tensor) -> Tensor:
        y = x.sin()
        y.data.mul_(2)
        return y * x.data

    return f, (leaf(5),), {}


@edge
def clamped_parameter_data() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        self.scale.data.clamp_(0, 2)
        return x * self.scale.exp()

    return Body(body, scale=nn.Parameter(torch.tensor(3.0))), (leaf(5),), {}


@edge
def detached_in_place() -> Program:
    def f(x: Tensor) -> Tensor:
        y = x.exp()
        z = y * 2
        z.detach_()
        return y * z

    return f, (leaf(5),), {}


@edge
def requires_grad_inside() -> Program:
    def f(x: Tensor) -> Tensor:
        start = torch.zeros(5).requires_grad_()
        energy = ((start - x) ** 2).sum()
        (step,) = torch.autograd.grad(energy, start, create_graph=True)
        return start - 0.1 * step

    return f, (leaf(5),), {}


@edge
def gradient_penalty() -> Program:
    model = net(3, 4, 1)

    def body(self: Any, x: Tensor) -> Tensor:
        score = self.model(x)
        (slope,) = torch.autograd.grad(score.sum(), x, create_graph=True)
        return score.mean() + ((slope.norm(dim=-1) - 1) ** 2).mean()

    return Body(body, model=model), (leaf(4, 3),), {}


@edge
def backward_inside() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        loss = self.model(x).sum()
        loss.backward()
        return loss.detach()

    return Body(body, model=net(3, 1)), (torch.randn(4, 3),), {}


@edge
def optimiser_step_inside() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        optimiser = torch.optim.SGD(self.model.parameters(), lr=0.1)
        loss = self.model(x).sum()
        loss.backward()
        optimiser.step()
        return self.model(x)

    return Body(body, model=net(3, 1)), (torch.randn(4, 3),), {}


# ------------------------------------------------------------------ transforms


@edge
def jacobian_vector_product_inside() -> Program:
    return lambda x, v: torch.func.jvp(lambda y: y.sin() * y, (x,), (v,)), (leaf(5), leaf(5)), {}


@edge
def jacobian_inside() -> Program:
    return lambda x: torch.func.jacrev(lambda y: y**3)(x).sum(0), (leaf(4),), {}


@edge
def forward_jacobian_inside() -> Program:
    return lambda x: torch.func.jacfwd(lambda y: y.sin() * y)(x).sum(0), (leaf(4),), {}


@edge
def hessian_inside() -> Program:
    return lambda x: torch.func.hessian(lambda y: (y**4).sum())(x).diagonal(), (leaf(4),), {}


@edge
def dual_numbers_inside() -> Program:
    def f(x: Tensor, v: Tensor) -> Tensor:
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(forward_ad.make_dual(x, v).exp()).tangent.clone()

    return f, (leaf(4), leaf(4)), {}


@edge
def functional_call_inside() -> Program:
    model = net(3, 2)

    def f(x: Tensor, w: Tensor) -> Tensor:
        return torch.func.functional_call(model, {"0.weight": w, "0.bias": w.sum(1)}, (x,))

    return f, (leaf(4, 3), leaf(2, 3)), {}


@edge
def ensemble_by_vmap() -> Program:
    base = nn.Linear(3, 2)

    def f(x: Tensor, weights: Tensor, biases: Tensor) -> Tensor:
        def one(weight: Tensor, bias: Tensor) -> Tensor:
            return torch.func.functional_call(base, {"weight": weight, "bias": bias}, (x,))

        return torch.func.vmap(one)(weights, biases)

    return f, (leaf(4, 3), leaf(5, 2, 3), leaf(5, 2)), {}


@edge
def per_sample_gradients() -> Program:
    def f(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        def loss(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return ((x @ w).tanh() - y).pow(2).sum()

        each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(w, x, y)
        return each.norm(dim=(1, 2))

    return f, (leaf(3, 2), leaf(4, 3), torch.randn(4, 2)), {}


@edge
def vmap_with_randomness() -> Program:
    def f(x: Tensor) -> Tensor:
        return torch.func.vmap(lambda row: F.dropout(row, 0.5), randomness="different")(x)

    return f, (leaf(4, 3),), {}


# ------------------------------------------------------------------ checkpoints


@edge
def checkpoint_with_reentry() -> Program:
    return Body(lambda self, x: checkpoint(self.net, x, use_reentrant=True), net=net(4, 8, 4)), (leaf(3, 4),), {}


@edge
def checkpoint_with_dropout() -> Program:
    block = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 4))
    return Body(lambda self, x: checkpoint(self.net, x, use_reentrant=False), net=block), (leaf(3, 4),), {}


@edge
def checkpoint_with_reentry_and_dropout() -> Program:
    block = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 4))
    return Body(lambda self, x: checkpoint(self.net, x, use_reentrant=True), net=block), (leaf(3, 4),), {}


@edge
def checkpoint_in_checkpoint() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        def outer(y: Tensor) -> Tensor:
            return checkpoint(self.inner, y.sin(), use_reentrant=False).cos()

        return checkpoint(outer, x, use_reentrant=False)

    return Body(body, inner=net(4, 4)), (leaf(3, 4),), {}


@edge
def checkpoint_of_a_sequence() -> Program:
    model = net(4, 8, 8, 4)
    return (
        Body(lambda self, x: checkpoint_sequential(self.net, 2, x, use_reentrant=False), net=model),
        (leaf(3, 4),),
        {},
    )


@edge
def checkpoint_that_selects() -> Program:
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        keep = op is torch.ops.aten.mm.default
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    body = lambda self, x: checkpoint(self.net, x, use_reentrant=False, context_fn=contexts)  # noqa: E731  # as beside
    return Body(body, net=net(4, 8, 4)), (leaf(3, 4),), {}


# ------------------------------------------------------------------ precision, complex numbers


@edge
def autocast_around_a_network() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.net(x)
            with torch.autocast("cpu", enabled=False):
                z = y.float() @ y.float().T
            return F.cross_entropy(z + self.net(x) @ y.T, torch.arange(4))

    return Body(body, net=net(4, 8, 4)), (leaf(4, 4),), {}


@edge
def autocast_with_attention() -> Program:
    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.scaled_dot_product_attention(q @ k.mT @ q, k, v).float()

    return f, tuple(leaf(1, 2, 4, 4) for _ in range(3)), {}


@edge
def complex_layers() -> Program:
    model = nn.Linear(3, 3, dtype=torch.complex64)
    return (
        Body(lambda self, x: torch.view_as_real(self.net(x)).square().sum(-1), net=model),
        (leaf(4, 3, dtype=torch.complex64),),
        {},
    )


@edge
def complex_parts() -> Program:
    def f(r: Tensor, phase: Tensor) -> tuple[Tensor, ...]:
        z = torch.polar(r.exp(), phase)
        return z.conj(), z.angle(), z.real * z.imag, (z @ z.mH).abs()

    return f, (leaf(3, 3), leaf(3, 3)), {}


@edge
def spectrum_of_a_signal() -> Program:
    window = torch.hann_window(8)
    return lambda x: torch.stft(x, 8, 4, window=window, return_complex=True).abs().log1p(), (leaf(2, 32),), {}


# ------------------------------------------------------------------ in place and views


@edge
def in_place_on_parts() -> Program:
    def f(x: Tensor) -> Tensor:
        y = x * 2
        for index in range(3):
            y[index::3].mul_(index + 1)
        y.view(-1)[::2].add_(y.view(-1)[1::2])
        return y.exp()

    return f, (leaf(6, 2),), {}


@edge
def in_place_through_a_mask() -> Program:
    def f(x: Tensor) -> Tensor:
        y = x.clone()
        y[y > 0] = 0.5
        y.diagonal().fill_(2)
        y.T[1].masked_fill_(x[1] < 0, 3)
        return y * x

    return f, (leaf(3, 3),), {}


@edge
def in_place_on_shapes() -> Program:
    def f(x: Tensor) -> Tensor:
        y = x * 2
        y.t_().unsqueeze_(0)
        y.squeeze_(0).transpose_(0, 1)
        return y @ x.T

    return f, (leaf(3, 2),), {}


@edge
def in_place_on_the_shape_of_an_input() -> Program:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.unsqueeze_(0)
        return x * w

    return f, (torch.randn(3), leaf(3)), {}


@edge
def result_written_out() -> Program:
    def f(x: Tensor, w: Tensor) -> Tensor:
        with torch.no_grad():
            out = torch.empty(3)
            torch.add(x, 1, out=out)
        return out * w

    return f, (torch.randn(3), leaf(3)), {}


@edge
def set_to_other_memory() -> Program:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = torch.zeros(3)
        y.set_(x)
        return y * w

    return f, (torch.randn(3), leaf(3)), {}


@edge
def stride_tricks() -> Program:
    def f(x: Tensor) -> Tensor:
        windows = x.as_strided((4, 3), (1, 1))
        return windows * windows.flip(0), x.unfold(0, 2, 2)

    return f, (leaf(6),), {}


@edge
def view_of_a_parameter_returned() -> Program:
    return Body(lambda self, x: (self.w[0], self.w.T, x @ self.w), w=nn.Parameter(torch.randn(3, 2))), (leaf(4, 3),), {}


# ------------------------------------------------------------------ containers, Python


@dataclass
class Point:
    """A container that torch does not know."""

    x: Tensor
    y: Tensor


@edge
def object_that_holds_tensors() -> Program:
    return lambda point: point.x * point.y, (Point(leaf(3), leaf(3)),), {}


@edge
def object_returned() -> Program:
    return lambda x: Point(x * 2, x + 1), (leaf(3),), {}


@edge
def containers_of_many_kinds() -> Program:
    def f(ordered: Any, default: Any, queue: Any) -> Any:
        total = ordered["b"] * default["k"][0] + queue[1]
        return collections.OrderedDict(total=total, rest=collections.deque([total.sum(), None]))

    ordered = collections.OrderedDict(b=leaf(3), a=leaf(3))
    return f, (ordered, collections.defaultdict(list, k=[leaf(3)]), collections.deque([1, leaf(3)])), {}


@edge
def list_that_is_emptied() -> Program:
    def f(xs: list[Tensor]) -> Tensor:
        total = xs.pop()
        while xs:
            total = total * xs.pop()
        return total

    return f, ([leaf(3), leaf(3), leaf(3)],), {}


@edge
def generator_returned() -> Program:
    def f(x: Tensor) -> Iterator[Tensor]:
        yield x * 2
        yield x * 3

    return f, (leaf(3),), {}


@edge
def cache_between_calls() -> Program:
    kept: dict[int, Tensor] = {}

    def f(x: Tensor) -> Tensor:
        if x.shape[0] not in kept:
            kept[x.shape[0]] = torch.tril(torch.ones(x.shape[0], x.shape[0]))
        return x @ kept[x.shape[0]]

    return f, (leaf(3, 3),), {}


@edge
def counter_that_steers() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.w * (2 if self.calls > 1 else 1)

    module = Body(body, w=nn.Parameter(torch.randn(3)))
    module.calls = 0
    return module, (leaf(3),), {}


@edge
def parameter_made_inside() -> Program:
    return lambda x: x * nn.Parameter(torch.ones(3)), (leaf(3),), {}


@edge
def parameter_as_an_argument() -> Program:
    return lambda x, w: x * w, (torch.randn(3), nn.Parameter(torch.randn(3))), {}


@edge
def exception_caught() -> Program:
    def f(x: Tensor) -> Tensor:
        try:
            return x @ x
        except RuntimeError:
            return x * 2

    return f, (leaf(2, 3),), {}


@edge
def default_device_and_dtype() -> Program:
    def f(x: Tensor) -> Tensor:
        with torch.device("cpu"):
            a = torch.ones(3)
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            b = torch.ones(3)
        finally:
            torch.set_default_dtype(before)
        return x * a + b

    return f, (leaf(3),), {}


@edge
def scripted_part() -> Program:
    return (
        Body(lambda self, x: self.net(x) * 2, net=torch.jit.trace(nn.Linear(3, 2), torch.randn(1, 3))),
        (leaf(4, 3),),
        {},
    )


@edge
def compiled_part() -> Program:
    part = torch.compile(nn.Linear(3, 2), backend="eager")
    return Body(lambda self, x: self.net(x) * 2, net=part), (leaf(4, 3),), {}


@edge
def parametrised_weights() -> Program:
    model = nn.Sequential(
        parametrizations.weight_norm(nn.Linear(3, 4)), parametrizations.spectral_norm(nn.Linear(4, 2))
    )
    return model, (leaf(5, 3),), {}


@edge
def recurrent_cell_in_a_loop() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        state = x.new_zeros(2, 4)
        for step in x.unbind(1):
            state = self.cell(step, state)
        return state

    return Body(body, cell=nn.GRUCell(3, 4)), (leaf(2, 5, 3),), {}


# ------------------------------------------------------------------ random numbers


@edge
def generator_of_its_own() -> Program:
    def f(x: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(3)
        return x * torch.rand(3, generator=generator)

    return f, (leaf(3),), {}


@edge
def seeds_inside() -> Program:
    def f(x: Tensor) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            return x * torch.rand(3)

    return f, (leaf(3),), {}


@edge
def random_numbers_of_numpy() -> Program:
    return lambda x: x * torch.from_numpy(numpy.random.rand(3)).float(), (leaf(3),), {}


@edge
def random_numbers_of_python() -> Program:
    return lambda x: x * random.random() if random.random() < 0.9 else x, (leaf(3),), {}


@edge
def layers_dropped_by_chance() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        for layer in self.layers:
            if torch.rand(()) > 0.5:
                x = layer(x)
        return x

    return Body(body, layers=nn.ModuleList(nn.Linear(3, 3) for _ in range(4))), (leaf(2, 3),), {}


@edge
def random_order() -> Program:
    return lambda x: x[torch.randperm(5)] * torch.empty(5).uniform_() + torch.normal(x, 1.0), (leaf(5),), {}


# ------------------------------------------------------------------ values that are read


@edge
def branch_on_a_value() -> Program:
    return lambda x: x * 2 if x.sum() > 0 else x.exp(), (leaf(3),), {}


@edge
def loop_to_convergence() -> Program:
    def f(x: Tensor) -> Tensor:
        y = x
        for _ in range(50):
            following = (y + x / y) / 2
            if torch.allclose(following, y, atol=1e-3):
                break
            y = following
        return y

    return f, (torch.tensor([2.0, 3.0]).requires_grad_(),), {}


@edge
def sizes_from_values() -> Program:
    return lambda x, n: x[: int(n)].exp() + x.unique().numel(), (leaf(5), torch.tensor(3)), {}


@edge
def several_values_and_a_list() -> Program:
    return lambda x, n: sum(x[:k].sum() for k in n.tolist()) * n.max().item(), (leaf(8), torch.tensor([2, 5])), {}


@edge
def routing_to_experts() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        weight, chosen = self.gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            row, place = (chosen == index).nonzero(as_tuple=True)
            out.index_add_(0, row, expert(x[row]) * weight[row, place, None])
        return out

    experts = nn.ModuleList(nn.Linear(3, 3) for _ in range(4))
    return Body(body, gate=nn.Linear(3, 4), experts=experts), (leaf(6, 3),), {}


@edge
def through_numpy() -> Program:
    return lambda x: x * torch.from_numpy(numpy.argsort(x.detach().numpy())).float(), (leaf(5),), {}


# ------------------------------------------------------------------ tensors of other kinds


@edge
def plain_subclass() -> Program:
    class Named(Tensor):
        pass

    return lambda x: x * 2, (torch.randn(3).as_subclass(Named).requires_grad_(),), {}


@edge
def subclass_inside() -> Program:
    class Named(Tensor):
        pass

    return lambda x: (x.as_subclass(Named) * 2).as_subclass(Tensor), (leaf(3),), {}


@edge
def two_tensor() -> Program:
    from torch.testing._internal.two_tensor import TwoTensor

    return lambda x: x * 2, (TwoTensor(torch.randn(3), torch.randn(3)).requires_grad_(),), {}


@edge
def two_tensor_inside() -> Program:
    from torch.testing._internal.two_tensor import TwoTensor

    return lambda x: (TwoTensor(x * 1, x * 2).sin() * 2).a, (leaf(3),), {}


@edge
def nested_tensor_inside() -> Program:
    def f(x: Tensor, y: Tensor) -> Tensor:
        both = torch.nested.nested_tensor_from_jagged(torch.cat((x, y)), torch.tensor([0, 2, 5]))
        return (both * 2).values()

    return f, (leaf(2, 3), leaf(3, 3)), {}


@edge
def nested_tensor_as_input() -> Program:
    given = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged)
    return lambda x: (x * 2).values(), (given.requires_grad_(),), {}


@edge
def masked_tensor_inside() -> Program:
    from torch.masked import masked_tensor

    def f(x: Tensor, mask: Tensor) -> Tensor:
        return masked_tensor(x, mask).sum(-1).get_data()

    return f, (leaf(2, 3), torch.tensor([[True, False, True], [True, True, False]])), {}


@edge
def sparse_tensor_inside() -> Program:
    def f(values: Tensor, x: Tensor) -> Tensor:
        return torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), values, (2, 2)) @ x

    return f, (leaf(2), leaf(2, 3)), {}


@edge
def quantised_inside() -> Program:
    def f(x: Tensor) -> Tensor:
        return torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7) * x

    return f, (leaf(5),), {}
