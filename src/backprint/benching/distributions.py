"""Whether a compiler's random numbers have the distribution of eager's, from many draws of each.

A number is looked at by its *marks*: which of eager's few values it is, or between which of eager's deciles it lies.
Four things are compared: how often each mark is there in a draw, how often neighbors have the same one, whether each
element's marks change from draw to draw as eager's do, and whether a draw comes twice. The first two are compared with
eager's own spread from draw to draw, so elements that depend on each other are no reason to accuse. Every limit is at
six and a half standard deviations or more: chance passes one less than once in 10^10 comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

LIMIT = 6.5
"""Standard deviations."""

FEW_VALUES = 16

FEWEST = 6
"""Draws of the compiler from which on it is judged."""

SLACK = {torch.float16: 0.01, torch.bfloat16: 0.01}
"""How far shares may differ in any case: eager's own 16-bit draws are rounded to few digits."""

USUAL_SLACK = 0.003

SAME = 1e-3, 2e-2
"""How far a value may be from one of eager's to be the same, relative to the largest: of 32 bits and of 16."""

DISTINCT_BITS = 70.0
"""Two draws of more bits than this are never equal."""

MOST_ELEMENTS = 2**24
"""Numbers of all draws of one kind that are looked at, at most."""


def other_distribution(eager: Sequence[Tensor], found: Sequence[Tensor]) -> str:
    """Return how a compiler's draws differ from eager's, or an empty text."""
    if len(found) < FEWEST or not eager or not eager[0].numel():
        return ""
    wanted, drawn = stacked(eager), stacked(found)
    if not bool(torch.isfinite(drawn).all()) and bool(torch.isfinite(wanted).all()):
        return "it draws NaN or Inf, eager never does"
    slack = SLACK.get(eager[0].dtype, USUAL_SLACK)
    values = torch.unique(wanted)
    discrete = len(values) <= FEW_VALUES
    own, its = (marks(each, values, eager[0].dtype) for each in (wanted, drawn))
    shape = eager[0].shape
    for mark in range(int(own.max()) + 2):
        name = name_of(mark, values, discrete)
        if reason := compared_shares(own == mark, its == mark, slack):
            return f"{name} is {reason}"
    for dim in (-1, 0):
        if len(shape) > (0 if dim else 1) and shape[dim] > 1:
            pair = (alike(each, shape, dim) for each in (own, its))
            if reason := compared_shares(next(pair), next(pair), slack):
                return f"a neighbor with the same value is {reason}"
    return repeated(own, its, drawn) or ""


def stacked(draws: Sequence[Tensor]) -> Tensor:
    """Return draws as the rows of one tensor."""
    most = max(FEWEST, MOST_ELEMENTS // draws[0].numel())
    return torch.stack([draw.detach().reshape(-1).cpu() for draw in draws[:most]]).double()


def marks(rows: Tensor, values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return which of eager's values each number is, one more than there are if it is none; or its decile."""
    if len(values) > FEW_VALUES:
        places = torch.linspace(0, len(values) - 1, 11).long()[1:-1]
        return torch.bucketize(rows, values[places].contiguous())
    near = max(float(values.abs().max()), 1e-30) * SAME[dtype in SLACK] if dtype.is_floating_point else 0.5
    nearest = (
        torch.bucketize(rows, (values[1:] + values[:-1]) / 2) if len(values) > 1 else torch.zeros_like(rows).long()
    )
    return torch.where((rows - values[nearest]).abs() <= near, nearest, len(values))


def name_of(mark: int, values: Tensor, discrete: bool) -> str:
    """Return the name of a mark."""
    if not discrete:
        return f"a number of eager's decile {mark + 1}"
    return f"the value {float(values[mark]):g}" if mark < len(values) else "a value that eager never draws"


def compared_shares(own: Tensor, its: Tensor, slack: float) -> str:
    """Return two shares if they differ by more than chance: of rows of eager's draws, and of the compiler's."""
    wanted, found = own.double().mean(1), its.double().mean(1)
    elements, count = own.shape[1], own.numel()
    share = (float(own.sum()) + 1) / (count + 2)  # of what eager did not happen to draw, too
    spread = max(float(wanted.var()) if len(wanted) > 1 else 0.0, share * (1 - share) / elements)
    by = abs(float(found.mean()) - float(wanted.mean()))
    limit = slack + LIMIT * math.sqrt(spread * (1 / len(wanted) + 1 / len(found))) * (1 + 8 / len(wanted))
    return f"drawn {float(found.mean()):.4f} of the time, by eager {float(wanted.mean()):.4f}" if by > limit else ""


def alike(marked: Tensor, shape: Sequence[int], dim: int) -> Tensor:
    """Return, of each draw, which elements have the mark of their neighbor."""
    folded = marked.view(marked.shape[0], *shape)
    at = dim if dim < 0 else dim + 1
    size = folded.shape[at]
    return (folded.narrow(at, 0, size - 1) == folded.narrow(at, 1, size - 1)).flatten(1)


def repeated(own: Tensor, its: Tensor, drawn: Tensor) -> str:
    """Return whether elements are drawn once for all, or draws come again."""
    columns = len(torch.unique(own, dim=1)[0]) if len(own) >= 24 else 0
    if columns < 16:
        return ""
    count = max(int(own.max()), int(its.max())) + 1
    one, other = (torch.stack([(each == mark).double().mean(0) for mark in range(count)]) for each in (own, its))
    share = one.mul(len(own)).add(other.mul(len(its))).add(1 / count).div(len(own) + len(its) + 1)
    variance = (share * (1 - share)).clamp_min(1e-9) * (1 / len(own) + 1 / len(its))
    excess = float(((one - other).square() / variance)[share.sum(1) > 0.02 * share.shape[1]].mean())
    if excess > 2 + 1.5 * LIMIT * math.sqrt(2 / columns):
        return "elements do not change from draw to draw as eager's do"
    collision = float(torch.stack([(own == mark).double().mean().square() for mark in range(count)]).sum())
    bits = -columns * math.log2(min(max(collision, 1e-9), 1.0))
    if bits > DISTINCT_BITS and len(torch.unique(drawn, dim=0)) < len(drawn):
        return "the same numbers are drawn in two calls"
    return ""
