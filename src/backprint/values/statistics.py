"""Statistics of a tensor, in few passes over its memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of a tensor. `min`, `max`, `mean`, `std` are of its finite elements; None where none is finite.
    `count`, `nan`, `inf` and `zeros` are numbers of elements."""

    count: int
    min: float | None
    max: float | None
    mean: float | None
    std: float | None
    norm: float
    nan: int
    inf: int
    zeros: int

    @property
    def bad(self) -> bool:
        """Whether the tensor has NaN or Inf."""
        return bool(self.nan or self.inf)

    def __str__(self) -> str:
        rest = "".join(f", {n} {word}" for n, word in ((self.nan, "NaN"), (self.inf, "Inf")) if n)
        if self.min is None:
            return f"norm {self.norm:.4g}{rest}"
        return (
            f"norm {self.norm:.4g}, {self.min:.4g} to {self.max:.4g}, mean {self.mean:.4g}, std {self.std:.4g}, "
            f"{self.zeros} of {self.count} zero{rest}"
        )


def stats_of(tensor: Tensor) -> Stats:
    """Return the Stats of a tensor. Of a sparse tensor its values count, and of a complex tensor its real and imaginary
    parts."""
    values = tensor.detach()
    if values.layout is not torch.strided:
        values = values.coalesce().values()
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    if values.dtype in NARROW_DTYPES:
        values = values.float()
    count = values.numel()
    if not count:
        return Stats(0, min=None, max=None, mean=None, std=None, norm=0.0, nan=0, inf=0, zeros=0)
    if values.stride() and not any(values.stride()):  # one number, expanded
        return _stats_of_expanded(float(values.flatten()[0]), count)
    low, high = float(values.amin()), float(values.amax())  # NaN if there is one. Both are faster than one `aminmax`
    zeros = _count_zeros(values)
    norm = float(torch.linalg.vector_norm(values))
    if math.isfinite(low) and math.isfinite(high):
        mean, std = _mean_and_std(values, norm)
        return Stats(count, low, high, mean, std, norm, nan=0, inf=0, zeros=zeros)
    # Its norm is that of all elements, NaN or infinite; the other statistics are of the finite ones.
    nan = int(torch.isnan(values).sum())
    inf = int(torch.isinf(values).sum())
    finite = values[torch.isfinite(values)]
    if not finite.numel():
        return Stats(count, min=None, max=None, mean=None, std=None, norm=norm, nan=nan, inf=inf, zeros=zeros)
    mean, std = _mean_and_std(finite, norm=float(torch.linalg.vector_norm(finite)))
    return Stats(count, float(finite.min()), float(finite.max()), mean, std, norm, nan, inf, zeros)


INTEGER_OF = {torch.float32: torch.int32, torch.float64: torch.int64}
"""The integer dtype of the width of a floating-point dtype."""


def _count_zeros(values: Tensor) -> int:
    """Count the zeros. Counting the bits as integers takes a twentieth of the time where half are zero.

    Zero has no bits set, and negative zero the sign bit alone, which is the smallest integer.
    """
    if values.dtype not in INTEGER_OF:
        return values.numel() - int(torch.count_nonzero(values))
    as_integers = values.view(INTEGER_OF[values.dtype])
    smallest = torch.iinfo(as_integers.dtype).min
    negative = int((as_integers == smallest).sum()) if int(as_integers.amin()) == smallest else 0
    return values.numel() - int(torch.count_nonzero(as_integers)) + negative


def _mean_and_std(values: Tensor, norm: float) -> tuple[float, float]:
    """Return the mean and the standard deviation of finite numbers, from their norm. `torch.std_mean` takes fifty times
    as long on a CPU.

    Where the mean dominates, it is subtracted first: the deviation would be lost in rounding otherwise.
    """
    count = values.numel()
    mean = float(values.sum()) / count
    square = norm * norm / count
    spread = square - mean * mean
    if not math.isfinite(spread):  # the sum or a square overflows, that of 1e20 in float32: as parts of the largest
        largest = float(values.abs().amax())
        parts = values / largest
        mean = float(parts.sum()) / count
        deviation = float(torch.linalg.vector_norm(parts - mean)) / math.sqrt(count)
        # No mean or deviation is above the largest, but by rounding.
        return max(-1.0, min(mean, 1.0)) * largest, min(deviation, 1.0) * largest
    # Of the difference of two squares, two digits are lost where it is a hundredth of them: a second pass over the
    # numbers.
    if spread < square / 100:
        return mean, float(torch.linalg.vector_norm(values - mean)) / math.sqrt(count)
    return mean, math.sqrt(spread)


NARROW_DTYPES = (torch.bfloat16, torch.float16, *(d for n, d in vars(torch).items() if n.startswith("float8_")))
"""Dtypes whose statistics are computed in float32."""


def _stats_of_expanded(value: float, count: int) -> Stats:
    """Return the Stats of one number expanded to `count` elements."""
    if not math.isfinite(value):
        nan = count if math.isnan(value) else 0
        return Stats(count, min=None, max=None, mean=None, std=None, norm=abs(value), nan=nan, inf=count - nan, zeros=0)
    norm, zeros = abs(value) * math.sqrt(count), 0 if value else count
    return Stats(count, min=value, max=value, mean=value, std=0.0, norm=norm, nan=0, inf=0, zeros=zeros)
