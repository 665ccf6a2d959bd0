"""The times of a model's step before and after a swap, in turns.

A Place is one module whose forward the swap replaces by a solution: `ran` and `fell_back` count the calls in which the
solution, or the original instead, ran, and `reasons` says why the original did.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch import pytree
from backprint.errors import UsageError
from backprint.judge.timing import TimingChange, compare_in_stages, round_in_turns, timed
from backprint.tools.swap.places import Place
from backprint.tools.swap.steps import is_number, weighted_sum
from backprint.tools.swap.watched import install_methods, restoring_methods
from backprint.values.results import outputs_of
from backprint.values.settings import outside_modes, preserving_random_states

STAGES = (20, 40, 80)
"""How many rounds of both are timed; where the answer is unsure, the next number."""


@dataclass(frozen=True, slots=True)
class SwapGain:
    """How long a step takes, forward and backward, before and after a swap, in milliseconds.

    `ratio` is before divided by after, above 1 where the swap makes the step faster, and lies between `low` and `high`.
    `answer` is `faster`, `slower`, `same` or `unsure`.
    """

    answer: str
    ratio: float
    low: float
    high: float
    before: float
    after: float

    def __str__(self) -> str:
        return (
            f"{self.answer}: the step takes {self.after:.3g} ms with the swap and {self.before:.3g} ms without, "
            f"so it is {self.ratio:.2f} times as fast ({self.low:.2f} to {self.high:.2f})"
        )


def gain_of(
    model: nn.Module,
    places: Sequence[Place],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    loss: Callable[[Any], Tensor] | None,
    seed: int,
) -> SwapGain:
    """Time the step before and after, round by round in a random order. UsageError says that nothing requires grad, or
    that an original runs in the place of a solution. `args` and `kwargs` are those of the model's call, and `loss`
    makes a number of what it returns. `seed` is that of the order, and of the weights of outputs where the model has no
    loss."""
    differentiated = [parameter for parameter in model.parameters() if parameter.requires_grad]
    leaves, _ = pytree.tree_flatten((tuple(args), dict(kwargs)))
    differentiated += [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
    if not differentiated:
        raise UsageError("bp.swap: nothing of this step requires grad, so it has no backward to time")
    gpu = any(tensor.is_cuda for tensor in differentiated)

    def step() -> None:
        """Run the model forward and backward; wait for the GPU, so that its work is timed."""
        result = model(*args, **kwargs)
        torch.autograd.grad(loss_of(result, loss, seed), differentiated, allow_unused=True)
        if gpu:
            torch.cuda.synchronize()

    def after() -> int:
        """Return the nanoseconds of a step with the solutions, after one that is not timed."""
        with install_methods(places, dtype=None, watch=None):
            step()  # what is learnt or compiled at the first call
            # Not `short`: the time in which it waited for a processor is left out.
            nanoseconds, _ = timed(step, values=(), short=False)
            for place in places:
                if place.fell_back or not place.ran:
                    why = "; ".join(place.reasons.values()) or "nothing called it in this step"
                    raise UsageError(f"bp.swap: there is no gain to time: {place.name}: {why}")
        return nanoseconds

    def before() -> int:
        """Return the nanoseconds of a step without the solutions, as `after` does."""
        step()
        nanoseconds, _ = timed(step, values=(), short=False)
        return nanoseconds

    milliseconds_before: list[float] = []
    milliseconds_after: list[float] = []
    order = random.Random(seed)

    def more_rounds(count: int) -> tuple[Sequence[float], Sequence[float]]:
        """Time so many rounds more, and return their milliseconds, before and after."""
        for _ in range(count):
            # Each once, in a drawn order; the answers are in this order.
            nanoseconds_before, nanoseconds_after = round_in_turns((before, after), order)
            milliseconds_before.append(nanoseconds_before * 1e-6)
            milliseconds_after.append(nanoseconds_after * 1e-6)
        return milliseconds_before[-count:], milliseconds_after[-count:]

    with outside_modes(), preserving_random_states(), restoring_methods(places), _buffers_restored(model):
        change: TimingChange = compare_in_stages(more_rounds, STAGES)
    # The ratio of `change` is after divided by before, and that of a gain the inverse: its bounds change places.
    return SwapGain(
        answer=change.answer,
        ratio=1 / change.ratio,
        low=1 / change.high,
        high=1 / change.low,
        before=median(milliseconds_before),
        after=median(milliseconds_after),
    )


def loss_of(result: Any, loss: Callable[[Any], Tensor] | None, seed: int) -> Tensor:
    """Return the loss that a proof takes (`Step.loss_of`): what the caller's function makes of the model's result; else
    the result's attribute `loss`, or the result itself, if that is a number; else a sum of all outputs with weights."""
    if loss is not None:
        return loss(result)
    for number in (getattr(result, "loss", None), result):
        if is_number(number):
            assert isinstance(number, Tensor)
            return number
    named_leaves, _ = outputs_of(result)
    return weighted_sum({name: leaf for name, leaf in named_leaves if isinstance(leaf, Tensor)}, seed)


@contextmanager
def _buffers_restored(model: nn.Module) -> Iterator[None]:
    """Restore the values of all buffers of a model after the block: each timed step may write into them."""
    kept = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, copy in kept:
                buffer.copy_(copy)
