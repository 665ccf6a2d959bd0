"""Differences that are rounding alone: of results that would be 0 if numbers were exact, as the gradient of a
convolution's bias before a batch norm. Another order of the same sums gives another remainder, however small.

Such a result is small beside the others, and moves as far if the inputs move by one unit in the last place. Both is
asked for: the second alone would forgive what a step function gives at its step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from backprint.errors import BackprintError
from backprint.graph.keys import PortKey
from backprint.graph.verdicts import PortVerdict
from backprint.replaying.compare import NOTHING
from backprint.replaying.draws import Draw
from backprint.replaying.results import Results

NUDGES = 3
"""On how many inputs that are moved by a unit in the last place a program is run."""

SMALL = 1e-4
"""Up to which part of the largest value of its role a difference may be rounding."""

TIMES = 4.0
"""How many times as far as these runs are from each other two results may be."""


def rounding_forgiven(
    ports: Sequence[PortVerdict],
    results: Results,
    largest: Mapping[PortKey, float],
    draw: Draw,
    step: Callable[[Draw], Results],
) -> list[PortVerdict]:
    """The verdicts, `close` in place of `wrong` where the difference is rounding.

    `largest` has the largest value of each port as the program gives it; `step` is one run on a draw, whose results
    on this one were `results`.
    """
    small = [port for port in ports if is_small(port, largest)]
    if not small:
        return list(ports)
    moved = movements({port.key for port in small}, results, draw, step)
    return [forgiven(port, largest[port.key], moved.get(port.key, 0.0)) if port in small else port for port in ports]


def is_small(port: PortVerdict, largest: Mapping[PortKey, float]) -> bool:
    """Whether a port is wrong by next to nothing, beside the largest value among the ports of its role."""
    if port.verdict != "wrong" or not port.error or port.key not in largest:
        return False
    whole = max((size for key, size in largest.items() if key.role == port.role), default=0.0)
    return port.error * extent(largest[port.key]) <= SMALL * whole


def forgiven(port: PortVerdict, size: float, moved: float) -> PortVerdict:
    """The verdict of a small port, given how far it moves by itself."""
    if port.error * extent(size) > TIMES * moved:
        return port
    by = moved / extent(size)
    text = f"{port.detail}; inputs moved by one unit in the last place move it by {by:.3g}: it is rounding"
    return replace(port, verdict="close", detail=text)


def sizes_of(results: Results) -> dict[PortKey, float]:
    """The largest value of each floating-point result."""
    return {
        key: float(value.detach().abs().max())
        for key, value in results.items()
        if value is not None and value.layout is torch.strided and value.is_floating_point() and value.numel()
    }


def extent(size: float) -> float:
    """What errors are relative to, given the largest value: that, or a number that is next to nothing."""
    return max(size, NOTHING)


def movements(
    keys: set[PortKey], results: Results, draw: Draw, step: Callable[[Draw], Results]
) -> dict[PortKey, float]:
    """How far some results move where the inputs move by one unit in the last place."""
    moved: dict[PortKey, float] = {}
    for seed in range(NUDGES):
        try:
            gave = step(replace(draw, values=nudged(draw.values, seed)))
        except (BackprintError, RuntimeError):  # nothing is forgiven by a run that did not come to its end
            return {}
        for key in keys:
            left, right = gave.get(key), results.get(key)
            if left is not None and right is not None and left.shape == right.shape and left.numel():
                by = float((left.double() - right.double()).abs().max())
                moved[key] = max(moved.get(key, 0.0), by)
    return moved


def nudged(values: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Values of which each number is the one before, the same or the one after."""
    source = torch.Generator("cpu").manual_seed(seed)
    return {name: nudge(value, source) for name, value in values.items()}


def nudge(value: Tensor, source: torch.Generator) -> Tensor:
    """A floating-point tensor with each number moved by at most one unit in the last place."""
    if not value.is_floating_point() or value.layout is not torch.strided or 0 in value.stride():
        return value
    by = torch.randint(-1, 2, value.shape, generator=source, device="cpu").to(value)
    return torch.empty_like(value).copy_(value.detach() + value.detach() * by * torch.finfo(value.dtype).eps)
