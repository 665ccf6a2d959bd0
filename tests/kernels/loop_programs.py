"""Programs with a loop over time, as people write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STATE = (5, 33)
"""More than one block of the interpreter, and the last not full."""


class ATan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.alpha = alpha
        return (x >= 0).to(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return ctx.alpha / 2 / (1 + (torch.pi / 2 * ctx.alpha * x) ** 2) * grad, None


class SigmoidSpike(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x >= 0).to(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(4.0 * x)
        return grad * (1 - s) * s * 4.0


class Rectangle(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x >= 0).to(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad * (x.abs() < 0.5).to(grad)


def lif(x: Tensor) -> Tensor:
    v, spikes = torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        v = v + (x[t] - v) / 2.0
        s = ATan.apply(v - 1.0, 2.0)
        v = v * (1 - s.detach())
        spikes.append(s)
    return torch.stack(spikes)


class PLIF(nn.Module):
    """A learned time constant, reset by subtraction that is not detached."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(shape))

    def forward(self, x: Tensor) -> Tensor:
        v, spikes = torch.zeros_like(x[0]), []
        decay = self.w.sigmoid()
        for t in range(x.shape[0]):
            v = v + (x[t] - v) * decay
            s = SigmoidSpike.apply(v - 1.0)
            v = v - s
            spikes.append(s)
        return torch.stack(spikes)


def hard_reset(x: Tensor) -> Tensor:
    v, spikes = torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        v = v * 0.8 + x[t]
        s = Rectangle.apply(v - 1.0)
        v = torch.where(s > 0, torch.zeros_like(v), v)
        spikes.append(s)
    return torch.stack(spikes)


def izhikevich(x: Tensor) -> Tensor:
    v, u, out = torch.full_like(x[0], -0.65), torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        v = v + 0.1 * (0.4 * v * v + 0.5 * v + 1.4 - u + x[t])
        u = u + 0.1 * (0.02 * (0.2 * v - u))
        s = Rectangle.apply(v - 0.3)
        v = torch.where(s > 0, torch.full_like(v, -0.65), v)
        u = u + 0.08 * s
        out.append(s)
    return torch.stack(out)


def adaptive(x: Tensor, v: Tensor) -> dict[str, Tensor]:
    a, out = torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        v = 0.9 * v + x[t]
        s = ATan.apply(v - (1.0 + 0.2 * a), 2.0)
        v = v - s * (1.0 + 0.2 * a)
        a = 0.95 * a + s
        out.append(s)
    return {"spikes": torch.stack(out), "v": v}


def two_layers(x: Tensor) -> Tensor:
    a, b, out = torch.zeros_like(x[0]), torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        a = a * 0.5 + x[t]
        s = ATan.apply(a - 1.0, 2.0)
        a = a - s
        b = b * 0.9 + s
        r = ATan.apply(b - 1.0, 2.0)
        b = b * (1 - r)
        out.append(r)
    return torch.stack(out)


def rate(x: Tensor) -> Tensor:
    """How often a neuron spikes: a mean over time."""
    return lif(x).mean(0)


def ema(x: Tensor, beta: Tensor) -> Tensor:
    m, out = x[0], []
    for t in range(x.shape[0]):
        m = beta * m + (1 - beta) * x[t]
        out.append(m)
    return torch.stack(out)


def mingru(z: Tensor, h: Tensor) -> Tensor:
    state, out = torch.zeros_like(h[0]), []
    for t in range(h.shape[0]):
        gate = torch.sigmoid(z[t])
        state = (1 - gate) * state + gate * torch.tanh(h[t])
        out.append(state)
    return torch.stack(out)


def gru(x: Tensor, h: Tensor, wz: Tensor, wh: Tensor) -> tuple[Tensor, Tensor]:
    """A GRU whose weights are diagonal. Its one step is no iteration of the loop."""
    out = []
    for t in range(x.shape[0]):
        z = torch.sigmoid(x[t] * wz + h)
        h = (1 - z) * h + z * torch.tanh(x[t] * wh + h * z)
        out.append(h)
    return torch.stack(out), h


def s4d(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    state, out = torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        state = torch.exp(-F.softplus(a)) * state + b * x[t]
        out.append(c * state + x[t])
    return torch.stack(out, 0)


def rwkv(k: Tensor, v: Tensor, w: Tensor, u: Tensor) -> Tensor:
    """RWKV-4's time mixing, with its running maximum."""
    aa, bb, pp = torch.zeros_like(k[0]), torch.zeros_like(k[0]), torch.full_like(k[0], -1e38)
    out = []
    for t in range(k.shape[0]):
        ww = u + k[t]
        p = torch.maximum(pp, ww)
        e1, e2 = torch.exp(pp - p), torch.exp(ww - p)
        out.append((e1 * aa + e2 * v[t]) / (e1 * bb + e2))
        ww = pp + w
        p = torch.maximum(ww, k[t])
        e1, e2 = torch.exp(ww - p), torch.exp(k[t] - p)
        aa, bb, pp = e1 * aa + e2 * v[t], e1 * bb + e2, p
    return torch.stack(out)


def last(x: Tensor) -> Tensor:
    v = torch.zeros_like(x[0])
    for t in range(x.shape[0]):
        v = torch.tanh(v * 0.5 + x[t])
    return v


def from_the_second(x: Tensor) -> Tensor:
    v = x[0]
    out = [v]
    for t in range(1, x.shape[0]):
        v = 0.5 * v + x[t] * x[t - 1]
        out.append(v)
    return torch.stack(out)


def backwards_in_time(x: Tensor) -> Tensor:
    v, out = torch.zeros_like(x[0]), []
    for t in range(x.shape[0] - 1, -1, -1):
        v = v * 0.8 + x[t]
        out.append(v)
    return torch.stack(out[::-1])


def written_in_place(x: Tensor) -> Tensor:
    v, out = torch.zeros_like(x[0]), torch.empty_like(x)
    for t in range(x.shape[0]):
        v = v * 0.9 + x[t]
        out[t] = v
    return out


def dropout(x: Tensor, draws: Tensor) -> Tensor:
    v, out = torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        v = F.silu((v * 0.8 + x[t]) * draws[t])
        out.append(v.unsqueeze(0))
    return torch.cat(out)


class Norm(nn.Module):
    """A layer norm a step."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(33)

    def forward(self, x: Tensor) -> Tensor:
        h, out = torch.zeros_like(x[0]), []
        for t in range(x.shape[0]):
            h = torch.tanh(self.norm(h * 0.5 + x[t]))
            out.append(h)
        return torch.stack(out)


def attention_of_rows(x: Tensor) -> Tensor:
    """A softmax a step."""
    h, out = torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        h = torch.softmax(h + x[t], -1)
        out.append(h)
    return torch.stack(out)


def two_shapes(x: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """A state for each element, and one for each row that follows its mean."""
    h, n, out = torch.zeros_like(x[0]), first, []
    for t in range(x.shape[0]):
        h = h * 0.5 + x[t]
        n = n * 0.9 + h.mean(-1)
        h = torch.tanh(h - torch.sigmoid(n).unsqueeze(-1))
        out.append(h)
    return torch.stack(out), n


def gated_rows(x: Tensor, gate: Tensor) -> Tensor:
    """A gate for each row, with a state of its own."""
    h, n, out = torch.zeros_like(x[0]), torch.zeros_like(gate[0]), []
    for t in range(x.shape[0]):
        n = n * 0.9 + gate[t]
        h = h * torch.sigmoid(n) + x[t]
        out.append(h)
    return torch.stack(out)


def adam(grads: Tensor, p: Tensor, m: Tensor, v: Tensor, c1: Tensor, c2: Tensor) -> tuple[Tensor, ...]:
    """Steps of Adam on one tensor, with the corrections of each step as inputs."""
    with torch.no_grad():
        for t in range(grads.shape[0]):
            m = 0.9 * m + 0.1 * grads[t]
            v = 0.999 * v + 0.001 * grads[t] * grads[t]
            p = p - 1e-3 * (m / c1[t]) / ((v / c2[t]).sqrt() + 1e-8)
    return p, m, v


def draw(*shape: int, grad: bool = True) -> Tensor:
    return torch.randn(*shape).requires_grad_(grad)


def sequence(T: int) -> Tensor:
    return draw(T, *STATE)


Program = tuple[Callable[..., Any], Callable[[int], Any]]

PROGRAMS: dict[str, Program] = {
    "lif": (lif, sequence),
    "plif": (PLIF(), sequence),
    "plif_channel": (PLIF(33), sequence),
    "plif_rows": (PLIF(5, 1), sequence),
    "hard_reset": (hard_reset, sequence),
    "izhikevich": (izhikevich, sequence),
    "adaptive": (adaptive, lambda T: {"x": sequence(T), "v": draw(*STATE)}),
    "two_layers": (two_layers, sequence),
    "rate": (rate, sequence),
    "ema": (ema, lambda T: (sequence(T), torch.tensor(0.9).requires_grad_())),
    "mingru": (mingru, lambda T: (sequence(T), sequence(T))),
    "gru": (gru, lambda T: (sequence(T), draw(*STATE), draw(33), draw(33))),
    "s4d": (s4d, lambda T: (sequence(T), draw(33), draw(33), draw(33))),
    "rwkv": (rwkv, lambda T: (sequence(T), sequence(T), draw(33), draw(33))),
    "last": (last, sequence),
    "from_the_second": (from_the_second, sequence),
    "backwards_in_time": (backwards_in_time, sequence),
    "written_in_place": (written_in_place, sequence),
    "dropout": (dropout, lambda T: (sequence(T), 2 * (torch.rand(T, *STATE) > 0.5).float())),
    "norm": (Norm(), sequence),
    "softmax": (attention_of_rows, sequence),
    "two_shapes": (two_shapes, lambda T: (sequence(T), draw(5))),
    "gated_rows": (gated_rows, lambda T: (sequence(T), draw(T, 5, 1))),
    "adam": (
        adam,
        lambda T: (
            *(draw(*shape, grad=False) for shape in ((T, *STATE), STATE, STATE)),
            torch.rand(*STATE),
            1 - 0.9 ** torch.arange(1, T + 1),
            1 - 0.999 ** torch.arange(1, T + 1),
        ),
    ),
}
"""Each program and its arguments for T steps."""
