"""How far the results of right kernels may be from eager's: what rounding explains, seen from float64.

The tolerance of a dtype is wide enough for a compiler that reorders a whole graph, and for an error in a kernel: of
bfloat16, a row of a gradient may be wrong within it. So results that are close must also be about as near to float64 as
eager's are, in the mean and at most. float32 may also be as far as eager is whose operators round otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from backprint.sample.judged import Eager, widen, widened_class

MEAN_TIMES, MOST_TIMES = 2.0, 2.0
"""How many times as far from float64 as eager's, results may be: the root mean square, and the largest difference."""

WIDER = 1.25, 1.5
"""The same of a saved tensor that has a wider dtype on the target: eager has rounded it, and the kernels have not."""

FEW = 256
"""Of fewer elements, chance decides how far eager is from float64: results may be as far as moved inputs make them."""

LOW = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class RoundingBound:
    """The eager runs by which rounding is known. `given` are the inputs of the kernels, as they are on the target."""

    eager: Eager
    given: Sequence[Any]

    @cached_property
    def exact(self) -> Any:
        """The results in float64 on the inputs of the kernels; a text if that run raises."""
        run = self.eager.run
        if isinstance(self.eager.wide, str) or len(self.given) != len(run.inputs):
            return self.eager.wide
        pairs = zip(self.given, run.inputs, strict=True)  # of a saved tensor with another shape on the target: eager's
        given = [own if getattr(value, "shape", ()) != getattr(own, "shape", ()) else value for value, own in pairs]
        return run.again(widened_class(run.module)(), [widen(value) for value in given])

    def complaint(self, place: int, found: Any) -> str:
        """Say why a result is too far from eager's for rounding alone; '' if it is not, or nothing tells."""
        wanted = self.eager.run.results[place]
        if not isinstance(wanted, Tensor) or not wanted.is_floating_point() or isinstance(self.exact, str):
            return ""
        its, own = apart_by(found, self.exact[place]), apart_by(wanted, self.eager.wide[place])
        wider = found.dtype.itemsize > wanted.dtype.itemsize and wanted.numel() >= FEW
        allowed = (WIDER[0] * own[0], WIDER[1] * own[1]) if wider else self.allowed(place, wanted, own)
        if its[0] <= allowed[0] and its[1] <= allowed[1]:
            return ""
        return (
            f"further from float64 than rounding explains: {its[0]:.2g} in the mean and {its[1]:.2g} at most, where "
            f"{allowed[0]:.2g} and {allowed[1]:.2g} are explained"
        )

    def allowed(self, place: int, wanted: Tensor, own: tuple[float, float]) -> tuple[float, float]:
        """Return the mean and the largest difference from float64 that rounding explains."""
        unit = torch.finfo(wanted.dtype).eps
        sizes = apart_by(wanted, torch.zeros_like(wanted))
        low = wanted.dtype in LOW
        floors = [(unit * sizes[0] / 4, unit * sizes[1] / 2) if low else (unit * sizes[0], 2 * unit * sizes[1])]
        runs: list[Any] = [] if low else list(self.eager.rounded)
        if wanted.numel() < FEW:
            runs += self.eager.nudged
        floors += [apart_by(run[place], wanted) for run in runs]
        mean, most = (max(each) for each in zip(*floors, strict=True))
        return max(MEAN_TIMES * own[0], mean), max(MOST_TIMES * own[1], most)


def apart_by(left: Tensor, right: Tensor) -> tuple[float, float]:
    """Return the root mean square and the largest of the differences of two tensors, where both are finite."""
    difference = (left.double() - right.double()).abs()
    finite = difference[torch.isfinite(difference)]
    return (float(finite.square().mean().sqrt()), float(finite.max())) if finite.numel() else (0.0, 0.0)
