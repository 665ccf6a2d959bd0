"""Six kernels in four models: is each swap proven, does the model stay whole, and is a planted fault named?

The kernels: a GPT's MLP that computes its activation again in the backward, a layer norm, BERT's linear layer with
GELU, its linear layer with residual and layer norm, a layer of leaky integrate-and-fire neurons over all time steps,
and batch norm with its running statistics. The layer norm, GELU and the neurons are Triton kernels in
`torch.library.custom_op`s with registered fakes and autograd; without a GPU they run in Triton's interpreter.

- proof: `.prove`, in float32 and float64; the worst error of a gradient of the whole model, as a part of what is
  allowed; in autocast to bfloat16; and for gradients of gradients (`order=2`), which custom operators whose backward is
  another custom operator do not have;
- keys: `state_dict` has the same keys and tensors in the same order; saved: a state that was saved inside loads into
  the untouched model, and back; copied: a deep copy has gradients of its own, which are equal;
- compiled: gradients of `torch.compile(fullgraph=True)` against those of the swapped model in eager, inside and, by the
  untouched model, after; checkpointed: with `use_reentrant` True and False, bit for bit;
- faults: how many of the planted ones are `wrong`: 1% on each gradient, each gradient left out, an input that is
  written into, a result kept from the first call, one memory for all results, an output that is 0.1% off.

    python benchmarks/swapping.py [--backend inductor]

BERT comes from `transformers`, without weights.
"""

from __future__ import annotations

import argparse
import copy
import io
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import triton
import triton.language as tl

import backprint as bp
from backprint.examples import gpt, resnet18

BLOCK = 256

# ---- Kernels


@triton.jit
def norm_forward(x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, scale_ptr, width, eps, BLOCK: tl.constexpr, SUM: tl.constexpr):
    row, e = tl.program_id(0), tl.arange(0, BLOCK)
    m = e < width
    x = tl.load(x_ptr + row * width + e, m, other=0.0).to(SUM)
    mean = tl.sum(x, 0) / width
    centred = tl.where(m, x - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / width + eps)
    y = centred * scale * tl.load(w_ptr + e, m).to(SUM) + tl.load(b_ptr + e, m).to(SUM)
    tl.store(y_ptr + row * width + e, y, m)
    tl.store(mean_ptr + row, mean)
    tl.store(scale_ptr + row, scale)


@triton.jit
def norm_backward(g_ptr, x_ptr, w_ptr, mean_ptr, scale_ptr, dx_ptr, width, BLOCK: tl.constexpr, SUM: tl.constexpr):
    row, e = tl.program_id(0), tl.arange(0, BLOCK)
    m = e < width
    scale = tl.load(scale_ptr + row)
    normed = (tl.load(x_ptr + row * width + e, m, other=0.0).to(SUM) - tl.load(mean_ptr + row)) * scale
    normed = tl.where(m, normed, 0.0)
    g = tl.load(g_ptr + row * width + e, m, other=0.0).to(SUM) * tl.load(w_ptr + e, m, other=0.0).to(SUM)
    dx = (g - tl.sum(g, 0) / width - normed * tl.sum(g * normed, 0) / width) * scale
    tl.store(dx_ptr + row * width + e, dx, m)


@triton.jit
def gelu_forward(x_ptr, y_ptr, n, BLOCK: tl.constexpr, SUM: tl.constexpr):
    e = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = e < n
    x = tl.load(x_ptr + e, m).to(SUM)
    tl.store(y_ptr + e, 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476)), m)


@triton.jit
def gelu_backward(g_ptr, x_ptr, dx_ptr, n, BLOCK: tl.constexpr, SUM: tl.constexpr):
    e = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = e < n
    x = tl.load(x_ptr + e, m).to(SUM)
    slope = 0.5 * (1.0 + tl.erf(x * 0.7071067811865476)) + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)
    tl.store(dx_ptr + e, tl.load(g_ptr + e, m).to(SUM) * slope, m)


@triton.jit
def lif_forward(x_ptr, h_ptr, s_ptr, n, T, BLOCK: tl.constexpr, SUM: tl.constexpr):
    e = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = e < n
    v = tl.zeros([BLOCK], SUM)
    for t in range(T):
        h = v + (tl.load(x_ptr + t * n + e, m).to(SUM) - v) / 2.0
        s = (h >= 1.0).to(SUM)
        tl.store(h_ptr + t * n + e, h, m)
        tl.store(s_ptr + t * n + e, s, m)
        v = h * (1.0 - s)


@triton.jit
def lif_backward(g_ptr, h_ptr, dx_ptr, n, T, BLOCK: tl.constexpr, SUM: tl.constexpr):
    e = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = e < n
    dv = tl.zeros([BLOCK], SUM)
    for i in range(T):
        t = T - 1 - i
        h = tl.load(h_ptr + t * n + e, m).to(SUM)
        s = (h >= 1.0).to(SUM)
        sigmoid = 1.0 / (1.0 + tl.exp(-4.0 * (h - 1.0)))
        ds = tl.load(g_ptr + t * n + e, m).to(SUM) - dv * h
        dh = dv * (1.0 - s) + ds * 4.0 * sigmoid * (1.0 - sigmoid)
        tl.store(dx_ptr + t * n + e, dh / 2.0, m)
        dv = dh / 2.0


# ---- Operators, so that torch.compile and autograd know them


def widest(x: Tensor) -> Tensor:
    """A contiguous tensor in float32 or float64: Triton's interpreter cuts digits off where it stores bfloat16."""
    return x.contiguous().to(sums_in(x)[0])


def sums_in(x: Tensor) -> tuple[torch.dtype, Any]:
    return (torch.float64, tl.float64) if x.dtype is torch.float64 else (torch.float32, tl.float32)


@torch.library.custom_op("swapping::layer_norm", mutates_args=())
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    x = x.contiguous()
    dtype, sums = sums_in(x)
    y, rows = torch.empty_like(x), x.numel() // x.shape[-1]
    mean, scale = torch.empty(rows, dtype=dtype, device=x.device), torch.empty(rows, dtype=dtype, device=x.device)
    block = triton.next_power_of_2(x.shape[-1])
    norm_forward[rows,](x, weight, bias, y, mean, scale, x.shape[-1], eps, BLOCK=block, SUM=sums)
    return y, mean, scale


@layer_norm.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    rows = x.numel() // x.shape[-1]
    dtype = sums_in(x)[0]
    return torch.empty_like(x.contiguous()), x.new_empty(rows, dtype=dtype), x.new_empty(rows, dtype=dtype)


@torch.library.custom_op("swapping::layer_norm_backward", mutates_args=())
def layer_norm_backward(
    g: Tensor, x: Tensor, weight: Tensor, mean: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    g, x = g.contiguous(), x.contiguous()
    dx, width = torch.empty_like(x), x.shape[-1]
    sums = sums_in(x)[1]
    norm_backward[x.numel() // width,](
        g, x, weight, mean, scale, dx, width, BLOCK=triton.next_power_of_2(width), SUM=sums
    )
    flat = g.reshape(-1, width).to(mean.dtype)
    normed = (x.reshape(-1, width).to(mean.dtype) - mean[:, None]) * scale[:, None]
    return dx, (flat * normed).sum(0).to(weight.dtype), flat.sum(0).to(weight.dtype)


@layer_norm_backward.register_fake
def _(g: Tensor, x: Tensor, weight: Tensor, mean: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(x.contiguous()), torch.empty_like(weight), torch.empty_like(weight)


def keep_for_norm(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, _, _ = inputs
    ctx.save_for_backward(x, weight, output[1], output[2])


def backward_of_norm(ctx: Any, g: Tensor, _mean: Tensor, _scale: Tensor) -> tuple[Any, ...]:
    return (*layer_norm_backward(g, *ctx.saved_tensors), None)


layer_norm.register_autograd(backward_of_norm, setup_context=keep_for_norm)


@torch.library.custom_op("swapping::gelu", mutates_args=())
def gelu(x: Tensor) -> Tensor:
    inputs = widest(x)
    y = torch.empty_like(inputs)
    gelu_forward[triton.cdiv(x.numel(), BLOCK),](inputs, y, x.numel(), BLOCK=BLOCK, SUM=sums_in(x)[1])
    return y.to(x.dtype)


@torch.library.custom_op("swapping::gelu_backward", mutates_args=())
def gelu_slope(g: Tensor, x: Tensor) -> Tensor:
    tangents, inputs = widest(g), widest(x)
    dx = torch.empty_like(inputs)
    gelu_backward[triton.cdiv(x.numel(), BLOCK),](tangents, inputs, dx, x.numel(), BLOCK=BLOCK, SUM=sums_in(x)[1])
    return dx.to(x.dtype)


gelu.register_fake(lambda x: torch.empty_like(x.contiguous()))
gelu_slope.register_fake(lambda g, x: torch.empty_like(x.contiguous()))
gelu.register_autograd(
    lambda ctx, g: gelu_slope(g, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


@torch.library.custom_op("swapping::lif", mutates_args=())
def lif(x: Tensor) -> tuple[Tensor, Tensor]:
    inputs, n = widest(x), x[0].numel()
    spikes, h = torch.empty_like(inputs), torch.empty_like(inputs)
    lif_forward[triton.cdiv(n, BLOCK),](inputs, h, spikes, n, len(x), BLOCK=BLOCK, SUM=sums_in(x)[1])
    return spikes.to(x.dtype), h


@torch.library.custom_op("swapping::lif_backward", mutates_args=())
def lif_slope(g: Tensor, h: Tensor) -> Tensor:
    dx, n = torch.empty_like(h), h[0].numel()
    lif_backward[triton.cdiv(n, BLOCK),](widest(g), h, dx, n, len(h), BLOCK=BLOCK, SUM=sums_in(h)[1])
    return dx.to(g.dtype)


lif.register_fake(lambda x: (torch.empty_like(x.contiguous()), torch.empty_like(widest(x))))
lif_slope.register_fake(lambda g, h: torch.empty_like(h, dtype=g.dtype))
lif.register_autograd(
    lambda ctx, g, _h: lif_slope(g, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output[1]),
)

# ---- The six solutions: called with a part's inputs, parameters and buffers


class FusedMLP(torch.autograd.Function):
    """x, fc.weight, fc.bias, proj.weight, proj.bias: saves no activation, only what goes into it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, fc: Tensor, fc_bias: Tensor, proj: Tensor, proj_bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, fc, fc_bias, proj)
        return F.linear(F.gelu(F.linear(x, fc, fc_bias)), proj, proj_bias)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
        x, fc, fc_bias, proj = ctx.saved_tensors
        x, rows = x.flatten(0, -2), g.flatten(0, -2)
        h = F.linear(x, fc, fc_bias)
        slope = 0.5 * (1 + torch.erf(h * 0.5**0.5)) + h * torch.exp(-0.5 * h * h) * 0.3989422804014327
        dh = (rows @ proj) * slope
        return (dh @ fc).view_as(g), dh.T @ x, dh.sum(0), rows.T @ F.gelu(h), rows.sum(0)


class BatchNorm(torch.autograd.Function):
    """x, weight, bias, running_mean, running_var, num_batches_tracked, in training mode."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, batches: Tensor
    ) -> Tensor:
        batches.add_(1)
        count = x.numel() // x.shape[1]
        kind, x = x.dtype, x.to(weight.dtype)
        own_variance, own_mean = torch.var_mean(x, (0, 2, 3), correction=0)
        mean.lerp_(own_mean.to(mean), 0.1)
        variance.lerp_((own_variance * count / (count - 1)).to(variance), 0.1)
        scale = torch.rsqrt(own_variance + 1e-5)[:, None, None]
        normed = (x - own_mean[:, None, None]) * scale
        ctx.save_for_backward(normed, weight, scale)
        return (normed * weight[:, None, None] + bias[:, None, None]).to(kind)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        normed, weight, scale = ctx.saved_tensors
        kind, g = g.dtype, g.to(weight.dtype)
        d_bias, d_weight = g.sum((0, 2, 3)), (g * normed).sum((0, 2, 3))
        count = g.numel() // g.shape[1]
        dx = g - d_bias[:, None, None] / count - normed * d_weight[:, None, None] / count
        return (dx * weight[:, None, None] * scale).to(kind), d_weight, d_bias, None, None, None


def norm_of(eps: float) -> Callable[..., Tensor]:
    def fused_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return layer_norm(x, weight, bias, eps)[0]

    return fused_norm


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return gelu(F.linear(x, weight, bias))


def linear_residual_norm(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, scale: Tensor, shift: Tensor
) -> Tensor:
    return layer_norm(F.linear(x, weight, bias) + residual, scale, shift, 1e-12)[0]


def fused_lif(x: Tensor) -> Tensor:
    return lif(x)[0]


# ---- The models


class Surrogate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        ctx.save_for_backward(h)
        return (h >= 0).to(h)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        sigmoid = torch.sigmoid(4.0 * ctx.saved_tensors[0])
        return g * 4.0 * sigmoid * (1 - sigmoid)


class LIF(nn.Module):
    """A neuron for each feature, over the first dimension: [time, batch, features]."""

    def forward(self, x: Tensor) -> Tensor:
        v, spikes = torch.zeros_like(x[0]), []
        for t in range(x.shape[0]):
            h = v + (x[t] - v) / 2.0
            s = Surrogate.apply(h - 1.0)
            v = h * (1 - s)
            spikes.append(s)
        return torch.stack(spikes)


class Spiking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 48), LIF(), nn.Linear(48, 32), LIF(), nn.Linear(32, 5))
        for layer in self.layers[::2]:
            nn.init.normal_(layer.weight, std=0.5)  # neurons of every layer spike

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.layers(3.0 * x).mean(0), labels)


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.stages = nn.Sequential(resnet18.stage(8, 8, 1), resnet18.stage(8, 16, 2))
        self.fc = nn.Linear(16, 10)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.fc(self.stages(self.conv(x)).mean((2, 3))), labels)


def gpt_step() -> tuple[nn.Module, tuple[Tensor, ...]]:
    config = gpt.Config(vocab=64, block=8, n_layer=2, n_head=2, n_embd=32, dropout=0.0)
    tokens = torch.randint(64, (2, 9))
    return gpt.GPT(config), (tokens[:, :-1].clone(), tokens[:, 1:].clone())


def bert_step() -> tuple[nn.Module, tuple[Tensor, ...]]:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    mask = torch.ones(2, 8, dtype=torch.long)
    mask[1, 5:] = 0
    model = BertForSequenceClassification(config)
    return model, (torch.randint(64, (2, 8)), mask, None, None, None, torch.tensor([0, 1]))


def spiking_step() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Spiking(), (torch.rand(16, 4, 12), torch.randint(5, (4,)))


def conv_step() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return ConvNet(), (torch.randn(4, 3, 12, 12), torch.randint(10, (4,)))


@dataclass(frozen=True)
class Row:
    kernel: str
    model: str
    step: Callable[[], tuple[nn.Module, tuple[Any, ...]]]
    pattern: str
    solution: Any


ROWS = (
    Row("MLP", "GPT", gpt_step, "blocks.*.mlp", FusedMLP),
    Row("layer norm", "GPT", gpt_step, "**ln_*", norm_of(1e-5)),
    Row("linear, GELU", "BERT", bert_step, "bert.encoder.layer.*.intermediate", linear_gelu),
    Row("linear, residual, norm", "BERT", bert_step, "bert.encoder.layer.*.output", linear_residual_norm),
    Row("layer norm", "BERT", bert_step, "**.LayerNorm", norm_of(1e-12)),
    Row("LIF over time", "spiking", spiking_step, "layers.[13]", fused_lif),
    Row("batch norm", "convnet", conv_step, "**.bn?", BatchNorm),
)

# ---- Faults


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 1.01


def as_function(solution: Any) -> Callable[..., Any]:
    return solution.apply if isinstance(solution, type) else solution  # type: ignore[no-any-return]


def faults_of(solution: Any, counts: int) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the planted faults of a solution whose first `counts` tensors have gradients."""
    run = as_function(solution)
    for index in range(counts):

        def scaled(*tensors: Tensor, index: int = index) -> Any:
            return run(*(Scaled.apply(t) if place == index else t for place, t in enumerate(tensors)))

        def left_out(*tensors: Tensor, index: int = index) -> Any:
            return run(*(t.detach() if place == index else t for place, t in enumerate(tensors)))

        yield f"1% on gradient {index}", scaled
        yield f"no gradient {index}", left_out

    def writes(*tensors: Tensor) -> Any:
        y = run(*tensors)
        tensors[0].data.mul_(1.0001)
        return y

    kept: dict[Any, Tensor] = {}

    def cached(*tensors: Tensor) -> Any:
        y = run(*tensors)
        return y + (kept.setdefault((y.shape, y.dtype), y.detach().clone()) - y).detach()

    shared: dict[Any, Tensor] = {}

    def one_memory(*tensors: Tensor) -> Any:
        y = run(*tensors)
        y.data = shared.setdefault((y.shape, y.dtype), y.detach().clone()).copy_(y.detach())
        return y

    def off(*tensors: Tensor) -> Any:
        return run(*tensors) * 1.001

    yield from (("writes", writes), ("cached", cached), ("one memory", one_memory), ("0.1% off", off))


# ---- What is shown


def gradients(model: nn.Module, loss: Callable[[], Any]) -> list[Tensor]:
    result = loss()
    number = getattr(result, "loss", None)
    number = number if number is not None else result[1] if isinstance(result, tuple) else result
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        torch.zeros_like(parameter) if gradient is None else gradient
        for parameter, gradient in zip(
            parameters, torch.autograd.grad(number, parameters, allow_unused=True), strict=True
        )
    ]


def by_backward(model: nn.Module, inputs: tuple[Any, ...], reentrant: bool) -> list[Tensor]:
    """Gradients of a step whose model runs in a checkpoint; a reentrant one needs an input that requires grad."""
    model.zero_grad()
    start = torch.ones((), requires_grad=True)

    def forward(start: Tensor, *inputs: Any) -> Any:
        result = model(*inputs)
        number = getattr(result, "loss", None)
        return (number if number is not None else result[1] if isinstance(result, tuple) else result) * start

    checkpoint(forward, start, *inputs, use_reentrant=reentrant).backward()
    kept = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    return kept


def furthest(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """The largest difference, as a part of the largest value of each gradient, or of a ten thousandth of all."""
    largest = max(float(t.abs().max()) for t in theirs)
    pairs = zip(ours, theirs, strict=True)
    return max(float((a - b).abs().max()) / max(float(b.abs().max()), 1e-4 * largest) for a, b in pairs)


def run(row: Row, backend: str) -> dict[str, str]:
    torch.manual_seed(0)
    model, inputs = row.step()
    model.train()
    begun = time.perf_counter()
    swap = bp.swap(model, row.pattern, row.solution)
    proof = swap.prove(*inputs)
    seconds = time.perf_counter() - begun
    cells = {"kernel": row.kernel, "model": row.model, "places": str(len(swap.places)), "proof": proof.verdict}
    if not proof.good:
        print(proof)
    whole = [r for r in proof.rows if r.check.startswith(("gradient", "loss")) and r.tried and r.allowed]
    for dtype in ("float32", "float64"):
        cells[dtype] = f"{max((r.error or 0) / (r.allowed or 1) for r in whole if r.dtype == dtype):.2f}"
    with torch.autocast("cpu", torch.bfloat16):
        amp = bp.swap(model, row.pattern, row.solution).prove(*inputs)
        cells["AMP"] = amp.verdict
        if amp.wrong:
            print(amp)
    try:
        cells["order 2"] = bp.swap(model, row.pattern, row.solution, order=2).prove(*inputs).verdict
    except RuntimeError as error:
        if "is not implemented" not in str(error):  # torch's words for a backward that has no derivative
            raise
        cells["order 2"] = "not before"
    keys = [(name, id(tensor)) for name, tensor in model.state_dict(keep_vars=True).items()]
    state = copy.deepcopy(model.state_dict())
    untouched = gradients(model, lambda: model(*inputs))
    model.load_state_dict(state)
    with swap:
        assert [(name, id(tensor)) for name, tensor in model.state_dict(keep_vars=True).items()] == keys
        cells["keys"] = "same"
        ours = gradients(model, lambda: model(*inputs))
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        other, _ = row.step()
        other.train().load_state_dict(torch.load(file))
        model.load_state_dict(state)
        cells["saved"] = "yes" if furthest(gradients(other, lambda: other(*inputs)), untouched) == 0 else "no"
        model.load_state_dict(state)
        twin = copy.deepcopy(model)
        ran = swap.places[0].ran
        cells["copied"] = "yes" if furthest(gradients(twin, lambda: twin(*inputs)), ours) == 0 else "no"
        assert swap.places[0].ran > ran, "the copy has the solution too"
        for reentrant in (True, False):
            model.load_state_dict(state)
            same = furthest(by_backward(model, inputs, reentrant), ours)
            cells[f"checkpoint {reentrant}"] = f"{same:.0e}" if same else "bitwise"
        model.load_state_dict(state)
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        cells["compiled"] = f"{furthest(gradients(model, lambda: compiled(*inputs)), ours):.0e}"
        assert not any(place.why for place in swap.places), swap.places
    model.load_state_dict(state)
    cells["after"] = f"{furthest(gradients(model, lambda: compiled(*inputs)), untouched):.0e}"
    torch.compiler.reset()
    tensors = 1 + sum(1 for p in model.get_submodule(swap.places[0].path).parameters())
    tensors += row.solution is linear_residual_norm
    caught, planted = 0, 0
    for name, fault in faults_of(row.solution, tensors):
        model.load_state_dict(state)
        planted += 1
        verdict = bp.swap(model, row.pattern, fault).prove(*inputs).verdict
        caught += verdict == "wrong"
        if verdict != "wrong":
            print(f"{row.kernel} in {row.model}: {name} is {verdict}")
    cells["faults"] = f"{caught} of {planted}"
    cells["seconds"] = f"{seconds:.1f}"
    return cells


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    heads: list[str] = []
    for row in ROWS:
        if options.only not in f"{row.kernel} {row.model}":
            continue
        cells = run(row, options.backend)
        if not heads:
            heads = list(cells)
            print("|", " | ".join(heads), "|")
            print("|", " | ".join("---" for _ in heads), "|")
        print("|", " | ".join(cells.values()), "|", flush=True)


if __name__ == "__main__":
    main()
