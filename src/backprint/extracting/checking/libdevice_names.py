"""The functions of libdevice and the lines of PTX in Inductor's Triton kernels, computed by torch: Triton's interpreter
has none.

Names that Inductor 2.13 writes have a row. Any other name raises RefusedError when a kernel calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor


def fused_multiply_add(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Return x * y + z, rounded once."""
    return (x.double() * y.double() + z.double()).to(z.dtype)


def exponent(x: Tensor) -> Tensor:
    """Return the exponent of a number as an integer."""
    return torch.frexp(x).exponent - 1


def rounded_to_int64(x: Tensor) -> Tensor:
    return torch.round(x).to(torch.int64)


def scaled(x: Tensor, by: Tensor) -> Tensor:
    """Return x * 2 ** by."""
    return torch.ldexp(x.double(), by.double()).to(x.dtype)


NUMBERS: Mapping[str, Callable[..., Tensor]] = MappingProxyType(
    {
        **{
            name: getattr(torch, name)
            for name in (
                "abs acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh erf erfc erfinv exp exp2 expm1 "
                "floor fmax fmin fmod hypot lgamma log log10 log1p log2 nextafter pow rsqrt sin sinh sqrt tan tanh "
                "trunc"
            ).split()
        },
        "fabs": torch.abs,
        "rint": torch.round,
        "nearbyint": torch.round,
        "llrint": rounded_to_int64,
        "fma": fused_multiply_add,
        "mul_rn": torch.mul,
        "add_rn": torch.add,
        "sub_rn": torch.sub,
        "div_rn": torch.div,
        "sqrt_rn": torch.sqrt,
        "fast_dividef": torch.div,
        "fast_tanhf": torch.tanh,
        "ldexp": scaled,
        "erfcx": torch.special.erfcx,
        "cyl_bessel_i0": torch.special.i0,
        "cyl_bessel_i1": torch.special.i1,
        "j0": torch.special.bessel_j0,
        "j1": torch.special.bessel_j1,
        "y0": torch.special.bessel_y0,
        "y1": torch.special.bessel_y1,
        "normcdf": torch.special.ndtr,
        "normcdfinv": torch.special.ndtri,
    }
)
"""The names that return numbers of the dtype of their arguments, or 64-bit integers."""

ANSWERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "isinf": torch.isinf,
        "isnan": torch.isnan,
        "finitef": torch.isfinite,
        "signbit": torch.signbit,
        "ilogb": exponent,
    }
)
"""The names that return 32-bit integers."""

ASSEMBLY: Mapping[str, Callable[..., Tensor]] = MappingProxyType(
    {"fma.rn.f32 $0, $1, $2, $3;": fused_multiply_add, "rcp.approx.ftz.f32 $0, $1;": torch.reciprocal}
)
"""Lines of PTX that Inductor writes into kernels, for the arctangent."""
