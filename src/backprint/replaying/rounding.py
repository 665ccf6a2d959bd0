"""Recognize differences that are only rounding: of results that would be 0 in exact arithmetic, such as the gradient of
a convolution's bias before a batch norm. Another order of the same sums has another remainder, however small.

Such a result is small relative to the others, and moves as far as the difference if the inputs move by one unit in the
last place. Both are required: the second alone would accept a difference at the step of a step function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from backprint.closeness import NOTHING, NUDGES, SMALL, TIMES, nudge
from backprint.defects import is_defect
from backprint.graph.keys import PortKey
from backprint.graph.verdicts import PortVerdict
from backprint.replaying.draws import Draw
from backprint.replaying.results import Results


def rounding_forgiven(
    ports: Sequence[PortVerdict],
    results: Results,
    largest: Mapping[PortKey, float],
    draw: Draw,
    step: Callable[[Draw], Results],
) -> list[PortVerdict]:
    """Return the verdicts with `close` instead of `wrong` if the difference is rounding.

    `largest` has the largest value of each of the program's ports; `step` runs one step on a draw, and `results` are
    its results on this one.
    """
    small = [port for port in ports if is_small(port, largest)]
    if not small:
        return list(ports)
    moved = movements({port.key for port in small}, results, draw, step)
    return [forgiven(port, largest[port.key], moved.get(port.key, 0.0)) if port in small else port for port in ports]


def is_small(port: PortVerdict, largest: Mapping[PortKey, float]) -> bool:
    """Whether the error of a port is tiny relative to the largest value among the ports of its role."""
    if port.verdict != "wrong" or not port.error or port.key not in largest:
        return False
    whole = max((size for key, size in largest.items() if key.role == port.role), default=0.0)
    return port.error * extent(largest[port.key]) <= SMALL * whole


def forgiven(port: PortVerdict, size: float, moved: float) -> PortVerdict:
    """Return the verdict of a small port, given how far it moves by itself."""
    if port.error * extent(size) > TIMES * moved:
        return port
    by = moved / extent(size)
    text = f"{port.detail}; inputs moved by one unit in the last place move it by {by:.3g}: it is rounding"
    return replace(port, verdict="close", detail=text)


def sizes_of(results: Results) -> dict[PortKey, float]:
    """Return the largest value of each floating-point result."""
    return {
        key: float(value.detach().abs().max())
        for key, value in results.items()
        if value is not None and value.layout is torch.strided and value.is_floating_point() and value.numel()
    }


def extent(size: float) -> float:
    """Return what errors are relative to: the largest value, or a tiny number if that is 0."""
    return max(size, NOTHING)


def movements(
    keys: set[PortKey], results: Results, draw: Draw, step: Callable[[Draw], Results]
) -> dict[PortKey, float]:
    """Return how far some results move if the inputs move by one unit in the last place."""
    moved: dict[PortKey, float] = {}
    for seed in range(NUDGES):
        try:
            gave = step(replace(draw, values=nudged(draw.values, seed)))
        except Exception as error:  # the program may raise anything on other inputs: such a run shows nothing
            if is_defect(error):
                raise
            return {}
        for key in keys:
            left, right = gave.get(key), results.get(key)
            if left is not None and right is not None and left.shape == right.shape and left.numel():
                by = float((left.double() - right.double()).abs().max())
                moved[key] = max(moved.get(key, 0.0), by)
    return moved


def nudged(values: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Return values with each number moved by at most one unit in the last place."""
    source = torch.Generator("cpu").manual_seed(seed)
    moved = {name: value.detach().clone() for name, value in values.items()}
    for value in moved.values():
        nudge(value, source)
    return moved
