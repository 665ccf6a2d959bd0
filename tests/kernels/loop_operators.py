"""Operators in a loop over time, one a program: those that FlexSN of SpikingJelly writes, and others.

FLEXSN are the 72 names of `FX_TO_TRITON` in `spikingjelly/activation_based/triton_kernel/torch2triton/graph2triton.py`
(commit afb13226); all other operators raise NotImplementedError there. OTHERS are what people write in such a loop
besides. `python loop_operators.py [NAME…]` compares each with eager, in Triton's interpreter.
"""

from __future__ import annotations

import contextlib
import io
import operator
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from loop_programs import ATan
from torch import Tensor

aten = torch.ops.aten

Step = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class InLoop:
    """A loop whose step calls an operator on its state, or on a number between two others computed from it."""

    step: Step
    between: tuple[float, float] | None = None

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        h, out = torch.zeros_like(x[0]), []
        for t in range(x.shape[0]):
            h = h * 0.5 + x[t]
            a, b = h, y[t]
            if self.between is not None:
                low, high = self.between
                a, b = (low + (high - low) * torch.sigmoid(item) for item in (a, b))
            z = self.step(a, b)
            z = z if z.dtype == h.dtype else z.to(h.dtype)
            out.append(z)
            h = h + 0.1 * torch.tanh(z)
        return torch.stack(out)


POSITIVE = (0.2, 3.0)
UNIT = (-0.95, 0.95)


def bits(function: Callable[..., Tensor]) -> Step:
    """Return an operator on booleans as a step."""
    return lambda a, b: torch.where(function(a > 0, b > 0.3), a, b)


def comparisons(names: tuple[str, ...], first: Callable[[Tensor], Tensor]) -> dict[str, InLoop]:
    """Return loops that choose by a comparison."""

    def loop(name: str, is_tensor: bool) -> InLoop:
        call = getattr(getattr(aten, name), "Tensor" if is_tensor else "Scalar")
        return InLoop(lambda a, b: torch.where(call(first(a), first(b) if is_tensor else 0.0), a, b))

    kinds = {"Tensor": True, "Scalar": False}
    return {f"{name}.{kind}": loop(name, is_tensor) for name in names for kind, is_tensor in kinds.items()}


FLEXSN: dict[str, InLoop] = {
    "add": InLoop(operator.add),
    "add.Scalar": InLoop(lambda a, b: aten.add.Scalar(a, 0.7) * b),
    "add.Tensor": InLoop(lambda a, b: aten.add.Tensor(a, b, alpha=0.3)),
    "sub": InLoop(operator.sub),
    "sub.Tensor": InLoop(lambda a, b: aten.sub.Tensor(a, b, alpha=0.3)),
    "sub.Scalar": InLoop(lambda a, b: aten.sub.Scalar(a, 0.7) * b),
    "rsub.Scalar": InLoop(lambda a, b: aten.rsub.Scalar(a, 0.7) * b),
    "mul": InLoop(operator.mul),
    "mul.Tensor": InLoop(aten.mul.Tensor),
    "mul.Scalar": InLoop(lambda a, b: aten.mul.Scalar(a, 0.7) * b),
    "div": InLoop(operator.truediv, POSITIVE),
    "div.Tensor": InLoop(aten.div.Tensor, POSITIVE),
    "div.Scalar": InLoop(lambda a, b: aten.div.Scalar(a, 0.7) * b),
    "bitwise_and.Tensor": InLoop(bits(aten.bitwise_and.Tensor)),
    "bitwise_or.Tensor": InLoop(bits(aten.bitwise_or.Tensor)),
    "bitwise_not.default": InLoop(bits(lambda a, b: aten.bitwise_not.default(a))),
    "logical_and.default": InLoop(bits(aten.logical_and.default)),
    "logical_or.default": InLoop(bits(aten.logical_or.default)),
    "logical_not.default": InLoop(lambda a, b: torch.where(aten.logical_not.default(F.relu(a)), a, b)),
    **comparisons(("ge", "le", "gt", "lt"), lambda item: item),
    **comparisons(("eq", "ne"), F.relu),
    "reciprocal.default": InLoop(lambda a, b: aten.reciprocal.default(a) * b, POSITIVE),
    "neg.default": InLoop(lambda a, b: aten.neg.default(a) * b),
    "spike_fn.default": InLoop(lambda a, b: ATan.apply(a - b, 2.0)),
    "detach.default": InLoop(lambda a, b: aten.detach.default(a) * b),
    "sigmoid.default": InLoop(lambda a, b: aten.sigmoid.default(a) * b),
    "sigmoid_backward.default": InLoop(lambda a, b: aten.sigmoid_backward.default(b, torch.sigmoid(a))),
    "tanh_backward.default": InLoop(lambda a, b: aten.tanh_backward.default(b, torch.tanh(a))),
    "threshold_backward.default": InLoop(lambda a, b: aten.threshold_backward.default(b, a, 0.2)),
    "_to_copy.default": InLoop(lambda a, b: aten._to_copy.default(a > b, dtype=torch.float32) * a),
    "scalar_tensor.default": InLoop(lambda a, b: a * b + aten.scalar_tensor.default(0.3, dtype=torch.float32)),
    "where.self": InLoop(lambda a, b: aten.where.self(a > b, a, b)),
    "exp.default": InLoop(lambda a, b: aten.exp.default(a) * b, UNIT),
    "log.default": InLoop(lambda a, b: aten.log.default(a) * b, POSITIVE),
    "log2.default": InLoop(lambda a, b: aten.log2.default(a) * b, POSITIVE),
    "sqrt.default": InLoop(lambda a, b: aten.sqrt.default(a) * b, POSITIVE),
    "rsqrt.default": InLoop(lambda a, b: aten.rsqrt.default(a) * b, POSITIVE),
    "abs.default": InLoop(lambda a, b: aten.abs.default(a) * b),
    "tanh.default": InLoop(lambda a, b: aten.tanh.default(a) * b),
    "sin.default": InLoop(lambda a, b: aten.sin.default(a) * b),
    "cos.default": InLoop(lambda a, b: aten.cos.default(a) * b),
    "erf.default": InLoop(lambda a, b: aten.erf.default(a) * b),
    "floor.default": InLoop(lambda a, b: aten.floor.default(a) * b),
    "ceil.default": InLoop(lambda a, b: aten.ceil.default(a) * b),
    "round.default": InLoop(lambda a, b: aten.round.default(3 * a) * b),
    "relu.default": InLoop(lambda a, b: aten.relu.default(a) * b),
    "sign.default": InLoop(lambda a, b: aten.sign.default(a) * b),
    "sgn.default": InLoop(lambda a, b: aten.sgn.default(a) * b),
    "minimum.default": InLoop(aten.minimum.default),
    "maximum.default": InLoop(aten.maximum.default),
    "fmod.Scalar": InLoop(lambda a, b: aten.fmod.Scalar(a, 0.7) * b),
    "fmod.Tensor": InLoop(lambda a, b: aten.fmod.Tensor(3 * a, b), POSITIVE),
    "pow.Tensor_Scalar": InLoop(lambda a, b: aten.pow.Tensor_Scalar(a, 2.5) * b, POSITIVE),
    "pow.Tensor_Tensor": InLoop(aten.pow.Tensor_Tensor, POSITIVE),
    "clamp.default": InLoop(lambda a, b: aten.clamp.default(a, -0.4, 0.6) * b),
    "clamp_min.default": InLoop(lambda a, b: aten.clamp_min.default(a, -0.4) * b),
    "clamp_max.default": InLoop(lambda a, b: aten.clamp_max.default(a, 0.6) * b),
    "clone.default": InLoop(lambda a, b: aten.clone.default(a) * b),
    "zeros_like.default": InLoop(lambda a, b: torch.where(a > b, aten.zeros_like.default(a), b)),
    "ones_like.default": InLoop(lambda a, b: torch.where(a > b, aten.ones_like.default(a), b)),
    "masked_fill.Scalar": InLoop(lambda a, b: aten.masked_fill.Scalar(a, a > b, 0.3)),
    "masked_fill.Tensor": InLoop(lambda a, b: aten.masked_fill.Tensor(a, a > b, torch.full((), 0.3))),
}
"""The operators of FlexSN's table, by its names."""


def on_first(function: Callable[[Tensor], Tensor], between: tuple[float, float] | None = None) -> InLoop:
    """Return a function of one number as a loop."""
    return InLoop(lambda a, b: function(a) * b, between)


OTHERS: dict[str, InLoop] = {
    # functions of one number
    "acos": on_first(torch.acos, UNIT),
    "acosh": on_first(torch.acosh, (1.1, 4.0)),
    "asin": on_first(torch.asin, UNIT),
    "asinh": on_first(torch.asinh),
    "atan": on_first(torch.atan),
    "atanh": on_first(torch.atanh, UNIT),
    "cosh": on_first(torch.cosh, UNIT),
    "erfc": on_first(torch.erfc, (0.5, 5.0)),
    "erfinv": on_first(torch.erfinv, UNIT),
    "exp2": on_first(torch.exp2, UNIT),
    "expm1": on_first(torch.expm1, UNIT),
    "frac": on_first(torch.frac),
    "i0": on_first(torch.i0, UNIT),
    "lgamma": on_first(
        lambda a: torch.lgamma(a.detach()), POSITIVE
    ),  # its gradient, digamma, is no function of libdevice
    "log10": on_first(torch.log10, POSITIVE),
    "log1p": on_first(torch.log1p, POSITIVE),
    "logit": on_first(torch.logit, (0.1, 0.9)),
    "nan_to_num": on_first(torch.nan_to_num),
    "positive": on_first(torch.positive),
    "rad2deg": on_first(torch.rad2deg, UNIT),
    "round.decimals": on_first(lambda a: torch.round(a, decimals=1)),
    "sinc": on_first(torch.sinc, (0.2, 2.0)),
    "sinh": on_first(torch.sinh, UNIT),
    "square": on_first(torch.square),
    "tan": on_first(torch.tan, UNIT),
    "trunc": on_first(lambda a: torch.trunc(3 * a)),
    # functions of two
    "addcdiv": InLoop(lambda a, b: torch.addcdiv(a, a, b, value=0.3), POSITIVE),
    "addcmul": InLoop(lambda a, b: torch.addcmul(a, a, b, value=0.3)),
    "atan2": InLoop(torch.atan2),
    "clamp.Tensor": InLoop(lambda a, b: torch.clamp(a, -b.abs(), b.abs())),
    "copysign": InLoop(torch.copysign),
    "div.floor": InLoop(lambda a, b: torch.div(3 * a, 0.5 + torch.sigmoid(b), rounding_mode="floor") * b),
    "div.trunc": InLoop(lambda a, b: torch.div(3 * a, 0.5 + torch.sigmoid(b), rounding_mode="trunc") * b),
    "fmax": InLoop(torch.fmax),
    "fmin": InLoop(torch.fmin),
    "heaviside": InLoop(lambda a, b: torch.heaviside(a.detach(), b.detach()) * b),
    "hypot": InLoop(torch.hypot),
    "lerp.Scalar": InLoop(lambda a, b: torch.lerp(a, b, 0.3)),
    "lerp.Tensor": InLoop(lambda a, b: torch.lerp(a, b, torch.sigmoid(a))),
    "logaddexp": InLoop(torch.logaddexp),
    "logical_xor": InLoop(bits(torch.logical_xor)),
    "nextafter": InLoop(lambda a, b: torch.nextafter(a.detach(), b.detach()) * b),
    "pow.negative_base": InLoop(lambda a, b: torch.pow(a, 3) * b),
    "pow.Scalar": InLoop(lambda a, b: torch.pow(2.5, a) * b, UNIT),
    "pow.reciprocal": InLoop(lambda a, b: torch.pow(a, -1.5) * b, POSITIVE),
    "remainder.Scalar": InLoop(lambda a, b: torch.remainder(a, 0.7) * b),
    "remainder.Tensor": InLoop(lambda a, b: torch.remainder(3 * a, b), POSITIVE),
    "rsub.Tensor": InLoop(torch.rsub),
    "squared_difference": InLoop(lambda a, b: F.mse_loss(a, b, reduction="none")),
    "xlogy": InLoop(torch.xlogy, POSITIVE),
    # what is tested
    "isfinite": InLoop(lambda a, b: torch.where(torch.isfinite(a), a, b)),
    "isnan": InLoop(lambda a, b: torch.where(torch.isnan(a), a, b)),
    "signbit": InLoop(lambda a, b: torch.where(torch.signbit(a), a, b)),
    # activations
    "celu": on_first(F.celu),
    "elu": on_first(F.elu),
    "gelu": on_first(F.gelu),
    "gelu.tanh": on_first(lambda a: F.gelu(a, approximate="tanh")),
    "hardshrink": on_first(F.hardshrink),
    "hardsigmoid": on_first(F.hardsigmoid),
    "hardswish": on_first(F.hardswish),
    "hardtanh": on_first(F.hardtanh),
    "huber_loss": InLoop(lambda a, b: F.huber_loss(a, b, reduction="none")),
    "leaky_relu": on_first(F.leaky_relu),
    "logsigmoid": on_first(F.logsigmoid),
    "mish": on_first(F.mish),
    "prelu": InLoop(lambda a, b: torch.where(a > 0, a, b * a)),
    "relu6": on_first(F.relu6),
    "selu": on_first(F.selu),
    "silu": on_first(F.silu),
    "smooth_l1": InLoop(lambda a, b: F.smooth_l1_loss(a, b, reduction="none")),
    "softplus": on_first(F.softplus),
    "softshrink": on_first(F.softshrink),
    "softsign": on_first(F.softsign),
    "tanhshrink": on_first(F.tanhshrink),
    "threshold": on_first(lambda a: F.threshold(a, 0.1, 0.3)),
    # whole numbers
    "bitwise_xor.int": InLoop(lambda a, b: ((8 * a).int() ^ 3).float() * b),
    "bitwise_and.int": InLoop(lambda a, b: ((8 * a).int() & 6).float() * b),
    "remainder.int": InLoop(lambda a, b: ((8 * a).int() % 3).float() * b),
    "floor_divide.int": InLoop(lambda a, b: ((8 * a).int() // 3).float() * b),
    "left_shift.int": InLoop(lambda a, b: ((8 * a).int() << 2).float() * b),
    "right_shift.int": InLoop(lambda a, b: ((8 * a).int() >> 1).float() * b),
    "minimum.int": InLoop(lambda a, b: torch.minimum((8 * a).int(), (8 * b).int()).float() * b),
    # rows
    "softmax": on_first(lambda a: F.softmax(a, -1)),
    "log_softmax": on_first(lambda a: F.log_softmax(a, -1)),
    "layer_norm": on_first(lambda a: F.layer_norm(a, a.shape[-1:])),
    "rms_norm": on_first(lambda a: F.rms_norm(a, a.shape[-1:])),
    "normalize": on_first(lambda a: F.normalize(a, dim=-1)),
    "row_mean": on_first(lambda a: a - a.mean(-1, keepdim=True)),
    "row_var": on_first(lambda a: a / (1 + a.var(-1, keepdim=True))),
    "row_std": on_first(lambda a: a / (1 + a.std(-1, keepdim=True))),
    "row_logsumexp": on_first(lambda a: a - a.logsumexp(-1, keepdim=True)),
    "row_amax": on_first(lambda a: a - a.amax(-1, keepdim=True)),
    "row_amin": on_first(lambda a: a - a.amin(-1, keepdim=True)),
    "row_norm": on_first(lambda a: a / (1 + a.norm(dim=-1, keepdim=True))),
    "row_any": on_first(lambda a: a * (a > 1).any(-1, keepdim=True)),
}
"""Operators that FlexSN refuses."""


def inputs(steps: int) -> tuple[Any, ...]:
    """Return the arguments of a loop of an operator."""
    return torch.randn(steps, 3, 7).requires_grad_(), torch.randn(steps, 3, 7).requires_grad_()


def outcome(name: str) -> tuple[str, float]:
    """Return whether the loop of an operator is right, and how far its outputs and gradients are from eager. The file's
    own comparison has to pass too.

    Triton has to be imported with TRITON_INTERPRET=1.
    """
    import backprint as bp
    from backprint.errors import RefusedError
    from backprint.tools.kernels.lowered_check import case_of_function, compare_port

    torch.manual_seed(0)
    try:
        lowered = bp.lower({**FLEXSN, **OTHERS}[name], inputs, lengths=(6, 7, 8, 9), name="program")
    except RefusedError as error:
        return f"refused: {error}", 0.0
    if lowered.parts.library:
        return "compiled", 0.0
    case = case_of_function(lowered, "9 steps", inputs(9), nudges=0)
    has_gradient = [gradient is not None for gradient in lowered.parts.gradients]
    tensors = [tensor.detach().clone() for tensor in case.inputs.values()]
    leaves = [tensor.requires_grad_() for tensor, has in zip(tensors, has_gradient, strict=True) if has]
    file = lowered.load()
    with contextlib.redirect_stdout(io.StringIO()):
        file.compare()
    output = file.program(*tensors)
    (tangent,) = case.tangents
    results = [output.detach(), *torch.autograd.grad(output, leaves, tangent)]
    rows = [
        compare_port(case, port, mine, eager) for (port, eager), mine in zip(case.results.items(), results, strict=True)
    ]
    return "right" if all(row.ok for row in rows) else "WRONG", max(row.difference for row in rows)


def main() -> None:
    """Print the outcome of each operator."""
    warnings.simplefilter("ignore")
    for group, table in (("FlexSN", FLEXSN), ("others", OTHERS)):
        for name in table:
            if len(sys.argv) == 1 or name in sys.argv[1:]:
                verdict, worst = outcome(name)
                print(f"{group}\t{name}\t{worst:.1e}\t{verdict}", flush=True)


if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"
    main()
