"""Draws: the sets of inputs that a Capture is proved on: captured, from recipes, fresh, at other sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from backprint.graph.keys import tangent_name, with_tangents, without_tangents
from backprint.graph.links import free_ports, specs
from backprint.graph.nouns import Capture, TensorSpec
from backprint.replaying.arguments import laid_as, strides
from backprint.replaying.other_inputs import (
    CHANGES,
    GIVEN,
    SECOND,
    SMALLER,
    kept_values,
    other_sizes,
    resized,
    second_values,
)
from backprint.replaying.power import other_values

DRAWS = ("captured", "recipe", "fresh", "resized")

FRESH = 0x5EED


@dataclass(frozen=True, slots=True)
class Draw:
    """One set of inputs: its name, the values, the tangents, and the seed of the program's own draws.

    With `anew` the program gets other tensors with these values, instead of its own.
    """

    name: str
    values: dict[str, Tensor]
    tangents: dict[str, Tensor] | None
    seed: int
    anew: bool = False


def draws_of(capture: Capture, draws: tuple[str, ...]) -> Iterator[tuple[Draw, ...]]:
    """Yield the draws that a Capture can be tried on; of a tuple, the first that the program runs on counts."""
    alive = capture.origin.alive
    if "captured" in draws and alive:
        yield (Draw("captured", capture.origin.values(), None, capture.seed),)
    if not capture.recipes.complete:
        return
    if "recipe" in draws:
        first = drawn(capture, "recipe", None)
        yield (first,)
        if not alive and (second := second_draw(capture, first, kept=True)) is not None:
            yield (second,)
    if "fresh" in draws and not capture.origin.partial and (alive or capture.witness is None):
        yield otherwise(capture), drawn(capture, "fresh", FRESH)


def second_draw(capture: Capture, first: Draw, kept: bool = False) -> Draw | None:
    """Return a draw in which inputs with one value everywhere in the first have many; if `kept`, that whose results
    the sample has."""
    if kept and GIVEN not in (capture.witness or {}):
        return None
    values = with_tangents(first.values, first.tangents or {})
    moved = kept_values(capture, values) if kept else second_values(capture, values)
    return named_draw(capture, SECOND, {**values, **moved}) if moved else None


def otherwise(capture: Capture) -> Draw:
    """Return a draw with other values than the recipes make, drawn or exact: parameters, buffers and tangents too."""
    values = capture.recipes.make()
    return named_draw(capture, "fresh", values | other_values(capture, values, FRESH))


def drawn(capture: Capture, name: str, seed: int | None) -> Draw:
    """Return a draw from the recipes: as they are, or with a fresh seed."""
    return named_draw(capture, name, capture.recipes.make(seed))


def named_draw(capture: Capture, name: str, made: Mapping[str, Tensor]) -> Draw:
    """Return a draw of these values, tangents included; a tensor's second name has the value of its first."""
    values, tangents = without_tangents(made)
    values |= {right: values[left] for left, right in capture.signature.same}
    return Draw(name, values, tangents, capture.seed)


def stretched(capture: Capture, draw: Draw) -> Iterator[Draw]:
    """Yield a draw at larger and at smaller sizes than captured, if inputs have symbolic sizes."""
    if capture.pairs[0].forward.symbols:
        for changes in (CHANGES, SMALLER):
            if (sizes := other_sizes(capture, changes)) is not None:
                values, tangents = resized(capture, draw.values, draw.tangents, sizes)
                yield replace(draw, name="resized", values=values, tangents=tangents)


def redrawn(capture: Capture, draw: Draw) -> Draw:
    """Return a draw with fresh program inputs and tangents; parameters and buffers, the bulk of the elements, stay."""
    names = {port.name for port in free_ports(capture) if port.role == "input"} | {
        tangent_name(name) for name in capture.signature.differentiable
    }
    values, tangents = without_tangents(capture.recipes.make(FRESH, names))
    values |= {right: values[left] for left, right in capture.signature.same if left in values}
    return Draw("fresh", draw.values | values, tangents, draw.seed)


def random_tangents(capture: Capture, seed: int) -> dict[str, Tensor] | None:
    """Return normal tangents for all differentiable outputs, with their strides; None if a spec is not known."""
    source = torch.Generator().manual_seed(seed)
    known = specs(capture)
    tangents = {}
    for name in capture.signature.differentiable:
        spec = known.get(name)
        if not isinstance(spec, TensorSpec) or spec.layout != "strided" or any(type(n) is not int for n in spec.shape):
            return None
        dtype = getattr(torch, spec.dtype)
        shape = tuple(int(size) for size in spec.shape)
        part = torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32
        drawn = torch.randn(shape, dtype=part, generator=source)
        tangents[name] = laid_as(drawn.to(dtype).to(spec.device), strides(spec, drawn, {}) or drawn.stride())
    return tangents
