"""A model's step as a proof runs it, and the values that it runs on.

The values of a Call are its tensors by name: its inputs (`call.inputs`), and the parameters and buffers of the model.
Those in `call.wanted` are the ones whose gradients are taken. A Program is the model as a function of such values: it
seeds torch, and gives the model the parameters and buffers among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backprint._torch import pytree
from backprint.derive.called import Call, Program
from backprint.derive.setting import is_inexact, own_source, to_float64
from backprint.errors import UsageError
from backprint.judge.closeness import REAL, rounded_again, size_of
from backprint.values.results import outputs_of
from backprint.values.tree import copy_values


@dataclass(frozen=True, slots=True, eq=False)
class StepResults:
    """What a step gave, by name: its loss, outputs, gradients, gradients of gradients, and buffers afterwards."""

    loss: Tensor
    outputs: dict[str, Tensor]
    gradients: dict[str, Tensor | None]
    second: dict[str, Tensor | None]
    buffers: dict[str, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A model's step: its call, the loss, and up to which order gradients are taken."""

    program: Program
    call: Call
    loss: Callable[[Any], Tensor] | None
    seed: int
    order: int

    def run(self, values: Mapping[str, Tensor]) -> StepResults:
        """Run the step on copies of these values, forward and backward, and return detached results. Their `buffers`
        are all tensors of the model whose gradients are not wanted, with the values that they have afterwards."""
        copies = copy_values({name: value.detach() for name, value in values.items()})
        leaves = {name: copies[name].requires_grad_() for name in self.call.wanted}
        result = self.program(self.call, copies)
        named_leaves, _ = outputs_of(result)
        outputs = {name: leaf for name, leaf in named_leaves if isinstance(leaf, Tensor)}
        loss = self.loss_of(result, outputs)
        second_too = self.order > 1
        with self.program.state_replaced(copies):  # a checkpoint runs parts of the model again in the backward
            gradients = gradients_of(loss, leaves, create_graph=second_too)
            second = self.second_of(gradients, leaves) if second_too else {}
        buffer_names = [name for name in values if name not in self.call.inputs and name not in self.call.wanted]
        return StepResults(
            loss=loss.detach(),
            outputs={name: output.detach() for name, output in outputs.items()},
            gradients={name: None if gradient is None else gradient.detach() for name, gradient in gradients.items()},
            second=second,
            buffers={name: copies[name] for name in buffer_names},
        )

    def loss_of(self, result: Any, outputs: Mapping[str, Tensor]) -> Tensor:
        """Return the loss: what the caller's function makes of the model's result; without one, the result's attribute
        `loss`, or the result itself, if that is a number; else a sum of all outputs with random weights. UsageError if
        it is no number, or the model returns nothing that could be summed."""
        if self.loss is not None:
            number = self.loss(result)
        elif is_number(getattr(result, "loss", None)):
            number = result.loss
        elif is_number(result):
            number = result
        else:
            number = weighted_sum(outputs, self.seed)
        if not isinstance(number, Tensor) or not is_number(number):
            raise UsageError(
                "bp.swap: the loss is a floating-point number, a tensor with one element that requires grad"
            )
        return number

    def second_of(
        self, gradients: Mapping[str, Tensor | None], leaves: Mapping[str, Tensor]
    ) -> dict[str, Tensor | None]:
        """Return second gradients: those of a sum of all gradients, with random weights, by each leaf. None for a leaf
        on which no gradient depends."""
        depending = {name: first for name, first in gradients.items() if first is not None and first.requires_grad}
        if not depending:
            return dict.fromkeys(leaves)
        total = weighted_sum(depending, self.seed + 1)  # another seed than that of the loss
        return {
            name: None if gradient is None else gradient.detach()
            for name, gradient in gradients_of(total, leaves).items()
        }


def gradients_of(number: Tensor, leaves: Mapping[str, Tensor], create_graph: bool = False) -> dict[str, Tensor | None]:
    """Return the gradient of a number by each leaf, None for a leaf on which it does not depend."""
    if not number.requires_grad:
        return dict.fromkeys(leaves)
    gradients = torch.autograd.grad(number, list(leaves.values()), create_graph=create_graph, allow_unused=True)
    return dict(zip(leaves, gradients, strict=True))


def is_number(value: Any) -> bool:
    """Whether a value can be a loss: a floating-point tensor with one element."""
    return isinstance(value, Tensor) and value.numel() == 1 and value.is_floating_point()


def weighted_sum(outputs: Mapping[str, Tensor], seed: int) -> Tensor:
    """Return a sum of all floating-point outputs with random weights, the real part if it is complex. The weights are
    rounded to bfloat16, so that float32 and float64 have the same ones. UsageError if there is no such output."""
    if not any(map(is_inexact, outputs.values())):
        raise UsageError("bp.swap: the model returns no floating-point tensor: pass loss=")
    source = own_source(seed)
    total: Any = 0.0
    for output in filter(is_inexact, outputs.values()):
        weights = torch.randn(output.shape, generator=source).to(torch.bfloat16)
        total = total + (output * weights.to(output)).sum()
    return total if not total.is_complex() else total.real


# ---- Values


def widened(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the values in float64."""
    return {name: to_float64(value) for name, value in values.items()}


def round_values_again(values: Mapping[str, Tensor], computes_in: torch.dtype, seed: int) -> dict[str, Tensor]:
    """Return the values in float64, moved by as much as another rounding would: by half a unit in the last place of
    their dtype, or of `computes_in` if that has fewer digits. Integers stay."""
    return {
        name: rounded_again(to_float64(value), coarser(value.dtype, computes_in), seed) if is_inexact(value) else value
        for name, value in values.items()
    }


def coarser(first: torch.dtype, second: torch.dtype) -> torch.dtype:
    """Return the dtype with fewer digits."""
    return max(REAL.get(first, first), REAL.get(second, second), key=lambda kind: torch.finfo(kind).eps)


def nearby_values(values: Mapping[str, Tensor], step: Step) -> dict[str, Tensor]:
    """Return values in which those whose gradients are wanted are up to a tenth larger or smaller."""
    source = own_source(step.seed + 2)
    return {
        name: value * (1 + MOVED_BY * uniform(value, source)) if name in step.call.wanted else value
        for name, value in values.items()
    }


def noisy_inputs(values: Mapping[str, Tensor], call: Call, seed: int) -> dict[str, Tensor]:
    """Return values in which noise is added to those whose gradients are wanted, of up to a tenth of the largest:
    unlike in `nearby_values`, one that is 0 in the model is not 0."""
    source = own_source(seed + 3)
    moved = dict(values)
    for name in call.wanted:
        value = values[name]
        largest = size_of(value) or 1.0
        moved[name] = value + (MOVED_BY * largest * uniform(value, source)).to(value)
    return moved


def uniform(value: Tensor, source: torch.Generator) -> Tensor:
    """Return numbers between -1 and 1 in the shape and dtype of a tensor."""
    return (torch.rand(value.shape, generator=source) * 2 - 1).to(value)


def coarsest(values: Mapping[str, Tensor]) -> torch.dtype:
    """Return the dtype with the fewest digits among floating-point values; of complex ones, that of their parts."""
    kinds = [REAL.get(value.dtype, value.dtype) for value in values.values() if is_inexact(value)]
    return max(kinds, key=lambda kind: torch.finfo(kind).eps)


def names_requiring_grad(call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which of `call.wanted` require grad: the parameters, and those inputs that require grad in the call's
    arguments. Where there are neither, return all of it: the inputs that may."""
    leaves, _ = pytree.tree_flatten((tuple(args), dict(kwargs)))
    with_grad = {
        stand_in.name  # `call.leaves` has for each tensor a stand-in, which has its name
        for stand_in, leaf in zip(call.leaves, leaves, strict=True)
        if isinstance(leaf, Tensor) and leaf.requires_grad
    }
    return tuple(name for name in call.wanted if name not in call.inputs or name in with_grad) or call.wanted


MOVED_BY = 0.1
"""How far values near the captured ones are from these, as a part of them."""
