"""Tangents and inputs that a backward meets in a model and not in its test.

A backward that is right for tangents of ones in new memory may be wrong for an expanded, transposed or sliced one, for
a zero, for two equal values. The values of a tangent are checked in the captured graphs, its memory by running the
program itself, because sizes and strides are constants of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from backprint.derivatives.duals import in_memory_like
from backprint.derivatives.setting import (
    CannotTell,
    NotFinite,
    Setting,
    backward_product,
    drawn_like,
    forward_product,
    gap_of,
    inner,
    inputs_of,
    output_of,
    run_setting,
    values_of,
    widened_pair,
)
from backprint.errors import BackprintError
from backprint.graph.nouns import Capture, Pair, TensorSpec
from backprint.values.settings import preserving_random_states

# ---- Tangents in other memory


def expanded(value: Tensor, source: torch.Generator) -> Tensor | None:
    """Return a tangent with stride 0, as the backward of `sum` and of `expand` makes it."""
    if not value.dim() or value.numel() < 2:
        return None
    side = next(side for side in range(value.dim()) if value.shape[side] > 1)
    return drawn_like(value.narrow(side, 0, 1), source).expand_as(value)


def one_number(value: Tensor, source: torch.Generator) -> Tensor | None:
    """Return a tangent that is one number, with all strides 0, as the backward of `sum()` of everything makes it."""
    return drawn_like(value.new_zeros(()), source).expand_as(value) if value.dim() and value.numel() else None


def transposed(value: Tensor, source: torch.Generator) -> Tensor | None:
    """Return a tangent whose last two dimensions are the other way round in memory, as that of `.mT`."""
    if value.dim() < 2 or min(value.shape[-2:]) < 2:
        return None
    return drawn_like(value.mT.contiguous(), source).mT


def sliced(value: Tensor, source: torch.Generator) -> Tensor | None:
    """Return a tangent that is a part of a wider tensor, as the backward of `cat` makes it."""
    if not value.dim() or not value.numel():
        return None
    wide_ = drawn_like(torch.cat([value, value, value], -1), source)
    return wide_.narrow(-1, value.shape[-1], value.shape[-1])


def strided(value: Tensor, source: torch.Generator) -> Tensor | None:
    """Return a tangent whose last stride is 2, as the backward of an interleaving makes it."""
    if not value.dim() or not value.numel():
        return None
    return drawn_like(torch.cat([value, value], -1), source)[..., ::2]


LAYOUTS: Mapping[str, Callable[[Tensor, torch.Generator], Tensor | None]] = {
    "expanded": expanded,
    "one number, expanded": one_number,
    "transposed": transposed,
    "sliced": sliced,
    "strided": strided,
}
"""Kinds of memory that a tangent may have, each with what makes one like an output; None where none is possible."""

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3, torch.complex64: 1e-3, torch.complex128: 1e-9}
"""Up to which relative difference two gradients are the same; 16 bits have 5e-2."""


@dataclass(frozen=True, slots=True)
class LayoutFault:
    """A kind of memory of a tangent for which the program's own backward returns another gradient."""

    layout: str
    port: str
    error: float


def layout_faults(capture: Capture) -> list[LayoutFault]:
    """Run the program with tangents of other memory, and with the same numbers in new memory; return what differs."""
    program = capture.origin
    if capture.fake or not program.alive or program.partial or all(rank == 0 for rank in ranks_of_outputs(capture)):
        return []
    values = program.values()
    faults = []
    with preserving_random_states(), program.restoring():
        outputs = stepped(capture, values, None).outputs
        for layout, make in LAYOUTS.items():
            source = torch.Generator().manual_seed(0)
            odd = {
                name: tangent
                for name in capture.signature.differentiable
                if isinstance(output := outputs.get(name), Tensor)
                and output.layout is torch.strided
                and (tangent := make(output.detach(), source)) is not None
            }
            if not odd:
                continue
            whole = {
                name: odd.get(name, torch.ones_like(outputs[name]))
                for name in capture.signature.differentiable
                if isinstance(outputs.get(name), Tensor)
            }
            dense = {name: tangent.clone(memory_format=torch.contiguous_format) for name, tangent in whole.items()}
            try:
                got, expected, again = (
                    stepped(capture, values, tangents).gradients for tangents in (whole, dense, dense)
                )
            except RuntimeError:
                continue  # a refusal, such as of `view`, is no wrong gradient
            if any(difference(again.get(name), g) > tolerance(g) for name, g in expected.items() if g is not None):
                continue  # the program itself does not return the same twice
            most = max((largest(right) for right in expected.values() if isinstance(right, Tensor)), default=0.0)
            for name, right in expected.items():
                if not isinstance(right, Tensor):
                    continue
                if (error := difference(got.get(name), right, SMALLEST * most)) > tolerance(right):
                    faults.append(LayoutFault(layout, name, error))
                    break
    return faults


def ranks_of_outputs(capture: Capture) -> list[int]:
    """Return how many dimensions the outputs have that require grad: a tangent without any has but one layout."""
    ranks = {
        port.name: len(port.spec.shape)
        for pair in capture.pairs
        for port in pair.forward.outputs
        if port.role == "output" and isinstance(port.spec, TensorSpec)
    }
    return [ranks.get(name, 1) for name in capture.signature.differentiable]


def stepped(capture: Capture, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor] | None) -> Any:
    """Run one step of the program itself, under the capture's seed."""
    torch.manual_seed(capture.seed)
    return capture.origin.run_step(values, tangents)


SMALLEST = 1e-3
"""A gradient that is smaller than this part of the largest counts as that: it may be 0 but for rounding."""


def largest(value: Tensor) -> float:
    """Return the size of the largest finite element of a dense tensor; 0 without any."""
    if value.layout is not torch.strided or not value.numel():
        return 0.0
    return float(value.abs().nan_to_num(0.0, 0.0, 0.0).max())


def difference(gradient: Any, expected: Tensor, least: float = 0.0) -> float:
    """Return the difference of two gradients relative to their size, which is at least `least`; 1 if one is missing."""
    if not isinstance(gradient, Tensor):
        return 1.0 if bool((expected != 0).any()) else 0.0
    if not expected.numel() or expected.layout is not torch.strided:
        return 0.0
    size = max(float(expected.abs().max()), float(gradient.abs().max()), least, 1e-30)
    error = float((gradient - expected).abs().max()) / size
    return error if error == error else (0.0 if bool(expected.isnan().any()) else 1.0)


def tolerance(value: Tensor) -> float:
    return TOLERANCE.get(value.dtype, 5e-2)


# ---- Inputs at which a backward may go wrong


def with_zeros(value: Tensor) -> Tensor:
    """Return floats of which every third is 0."""
    places = torch.arange(value.numel(), device=value.device).reshape(value.shape) % 3 == 0
    return value.masked_fill(places, 0)


def with_ties(value: Tensor) -> Tensor:
    """Return floats with many equal ones: rounded to halves of their mean size."""
    size = float(value.abs().mean()) if value.numel() else 0.0
    return value if not size else (value * (2 / size)).round() * (size / 2)


def as_they_are(value: Tensor) -> Tensor:
    return value


INPUTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "the captured values": as_they_are,
    "zeros": with_zeros,
    "ties": with_ties,
}
"""Kinds of inputs, each with what makes them of the captured ones."""


@dataclass(frozen=True, slots=True)
class InputFault:
    """A kind of inputs at which the backward is not the derivative, nor a subgradient."""

    inputs: str
    setting: Setting
    gap: float


def input_faults(pair: Pair, values: Mapping[str, Any], chance: int) -> Iterator[InputFault]:
    """Yield the kinds of inputs at which the backward of a Pair is wrong.

    The direction is the same for equal values, and 0 is moved like any other: along such a direction a maximum of equal
    values has a derivative. Where the function has a kink all the same, any number between its derivatives to both
    sides is right.
    """
    forward, backward = widened_pair(pair)
    wanted = {port.name for port in backward.outputs}
    for kind, make in INPUTS.items():
        source = torch.Generator().manual_seed(0)
        inputs = inputs_of(forward, backward, values)
        changed = {
            name: in_memory_like(make(value), value)
            for name, value in inputs.items()
            if name in wanted and isinstance(value, Tensor) and value.is_floating_point()
            if value.layout is torch.strided
        }
        try:
            setting = run_setting(forward, backward, inputs | changed, source, chance, 0.0, False)
            setting = replace(setting, direction=alike_for_equals(setting))
            left, size, run = forward_product(setting)
        except (CannotTell, NotFinite, BackprintError, RuntimeError):
            continue  # the program does not run on such inputs
        right = backward_product(setting)
        gap = gap_of((left, size), right)
        if gap > 1e-8 and not run.by_differences and not is_subgradient(setting, right):
            yield InputFault(kind, setting, gap)


def alike_for_equals(setting: Setting) -> dict[str, Tensor]:
    """Return the directions, with one number for all equal values of an input."""
    alike = {}
    for name, direction in setting.direction.items():
        value = setting.inputs[name]
        _, which = torch.unique(value, return_inverse=True)
        alike[name] = direction.flatten()[: int(which.max()) + 1][which] if value.numel() else direction
    return alike


STEP = 1e-6


def is_subgradient(setting: Setting, right: tuple[float, float]) -> bool:
    """Whether the product lies between the derivatives to both sides, by differences."""
    here, ahead, behind = (product_at(setting, step) for step in (0.0, STEP, -STEP))
    if here is None or ahead is None or behind is None:
        return True
    sides = sorted([(ahead - here) / STEP, (here - behind) / STEP])
    slack = 1e-4 * max(right[1], abs(sides[0]), abs(sides[1]))
    return sides[0] - slack <= right[0] <= sides[1] + slack


def product_at(setting: Setting, step: float) -> float | None:
    """Return the product of the tangents and the results where the inputs are moved along the direction."""
    moved = {
        name: in_memory_like(value + step * setting.direction[name], value) if name in setting.direction else value
        for name, value in setting.inputs.items()
    }
    torch.manual_seed(setting.chance)
    try:
        results = values_of(setting.forward, moved)
    except (BackprintError, RuntimeError):
        return None
    return sum(inner(tangent, output_of(results, name))[0] for name, tangent in setting.tangents.items())
