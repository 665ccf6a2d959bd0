"""The bytes of FlexSN's kernels (SpikingJelly) for programs that `lowering.py` lowers, beside ours.

    python benchmarks/flexsn_traffic.py CHECKOUT [--steps 64]

CHECKOUT is a working tree of SpikingJelly; figures are of commit afb13226. FlexSN takes one step of a program, as a
function of inputs and states. Its own code traces the step here and writes both functions of the step in Triton
(`torch2triton`), and says which values each kernel reads and writes (`extract_info`). The kernels are not built, since
FlexSN builds them where there is a GPU. Every input of FlexSN is a tensor of the state's shape at each step, so a
parameter is an input that is expanded over time, and an output that is the state is written twice. Bytes follow from
its templates and its wrapper: the forward reads each input at each step and each first state, and writes each output,
each state and each further value that the backward reads, at each step. The backward reads the gradient of each output
and each state, and each saved value as often as it is an argument. A state's sequence that no caller uses has a
gradient of zeros, which is written first, by a kernel of its own.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kernels"))

from loop_programs import PROGRAMS, STATE, ATan, Rectangle, SigmoidSpike

import backprint as bp


def lif(x: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    v = v + (x - v) / 2.0
    s = ATan.apply(v - 1.0, 2.0)
    return s, v * (1 - s.detach())


def plif(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    v = v + (x - v) * w.sigmoid()
    s = SigmoidSpike.apply(v - 1.0)
    return s, v - s


def hard_reset(x: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    v = v * 0.8 + x
    s = Rectangle.apply(v - 1.0)
    return s, torch.where(s > 0, torch.zeros_like(v), v)


def izhikevich(x: Tensor, v: Tensor, u: Tensor) -> tuple[Tensor, ...]:
    v = v + 0.1 * (0.4 * v * v + 0.5 * v + 1.4 - u + x)
    u = u + 0.1 * (0.02 * (0.2 * v - u))
    s = Rectangle.apply(v - 0.3)
    v = torch.where(s > 0, torch.full_like(v, -0.65), v)
    return s, v, u + 0.08 * s


def adaptive(x: Tensor, v: Tensor, a: Tensor) -> tuple[Tensor, ...]:
    v = 0.9 * v + x
    s = ATan.apply(v - (1.0 + 0.2 * a), 2.0)
    return s, v - s * (1.0 + 0.2 * a), 0.95 * a + s


def two_layers(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    a = a * 0.5 + x
    s = ATan.apply(a - 1.0, 2.0)
    b = b * 0.9 + s
    r = ATan.apply(b - 1.0, 2.0)
    return r, a - s, b * (1 - r)


def ema(x: Tensor, beta: Tensor, m: Tensor) -> tuple[Tensor, ...]:
    m = beta * m + (1 - beta) * x
    return m * 1.0, m


def mingru(z: Tensor, h: Tensor, state: Tensor) -> tuple[Tensor, ...]:
    gate = torch.sigmoid(z)
    state = (1 - gate) * state + gate * torch.tanh(h)
    return state * 1.0, state


def gru(x: Tensor, wz: Tensor, wh: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    z = torch.sigmoid(x * wz + h)
    h = (1 - z) * h + z * torch.tanh(x * wh + h * z)
    return h * 1.0, h


def s4d(x: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, ...]:
    state = torch.exp(-F.softplus(a)) * state + b * x
    return c * state + x, state


def rwkv(k: Tensor, v: Tensor, w: Tensor, u: Tensor, aa: Tensor, bb: Tensor, pp: Tensor) -> tuple[Tensor, ...]:
    ww = u + k
    p = torch.maximum(pp, ww)
    e1, e2 = torch.exp(pp - p), torch.exp(ww - p)
    out = (e1 * aa + e2 * v) / (e1 * bb + e2)
    ww = pp + w
    p = torch.maximum(ww, k)
    e1, e2 = torch.exp(ww - p), torch.exp(k - p)
    return out, e1 * aa + e2 * v, e1 * bb + e2, p


def dropout(x: Tensor, draws: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    v = F.silu((v * 0.8 + x) * draws)
    return v * 1.0, v


STEPS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "lif": (lif, 1, 1),
    "plif": (plif, 2, 1),
    "plif_channel": (plif, 2, 1),
    "hard_reset": (hard_reset, 1, 1),
    "izhikevich": (izhikevich, 1, 2),
    "adaptive": (adaptive, 1, 2),
    "two_layers": (two_layers, 1, 2),
    "ema": (ema, 2, 1),
    "mingru": (mingru, 2, 1),
    "gru": (gru, 3, 1),
    "s4d": (s4d, 4, 1),
    "rwkv": (rwkv, 4, 3),
    "dropout": (dropout, 2, 1),
}
"""A step of a program, and how many inputs and states it has."""


def values_moved(info: Any, steps: int) -> tuple[int, int]:
    """Return how many states FlexSN's forward and backward read and write, and zero first."""
    inputs, states, outputs = info.num_inputs, info.num_states, info.num_outputs
    forward = steps * inputs + states + steps * info.num_fwd_kernel_returns
    zeros = states * steps
    backward = zeros + steps * (outputs + states + len(info.c2k_return_mapping)) + steps * inputs + states
    return forward, backward


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--steps", type=int, default=64)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(options.checkout))
    package = "spikingjelly.activation_based.triton_kernel"
    tracer = importlib.import_module(f"{package}.torch2triton")
    facts = importlib.import_module(f"{package}.flexsn.info")
    element = torch.Size(STATE).numel() * 4
    print("| program | FlexSN, states a step | ours | times ours |\n|---|---:|---:|---:|")
    for name, (step, inputs, states) in STEPS.items():
        examples = tuple(torch.zeros(1) for _ in range(inputs + states))
        try:
            forward, backward = tracer.generate_forward_and_backward_graph(step, examples)
            for graph in (forward, backward):
                tracer.generate_triton_code_str(graph, name)
            info = facts.extract_info(forward, inputs, states, 1)
        except NotImplementedError as error:
            print(f"| {name} | refused: {error} | | |", flush=True)
            continue
        theirs = sum(values_moved(info, options.steps)) / options.steps
        lowered = bp.lower(*PROGRAMS[name], name=name)
        ours = sum(row.moved for row in lowered.traffic(options.steps).values()) / element / options.steps
        print(f"| {name} | {theirs:.2f} | {ours:.2f} | {theirs / ours:.2f} |", flush=True)


if __name__ == "__main__":
    main()
