"""Draws: the sets of inputs that a Capture is proved on: captured, as recipes make them, fresh, at other sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from backprint.graph.keys import tangent_name, without_tangents
from backprint.graph.links import free_ports, specs
from backprint.graph.nouns import Capture, TensorSpec
from backprint.replaying.power import other_values
from backprint.replaying.resize import CHANGES, SMALLER, other_sizes, resized
from backprint.replaying.strides import laid_as, strides

DRAWS = ("captured", "recipe", "fresh", "resized")

FRESH = 0x5EED


@dataclass(frozen=True, slots=True)
class Draw:
    """One set of inputs: what it is called, the values, the tangents, and the seed of the program's own draws.

    `anew` gives the program other tensors with these values, where they would go into its own.
    """

    name: str
    values: dict[str, Tensor]
    tangents: dict[str, Tensor] | None
    seed: int
    anew: bool = False


def draws_of(capture: Capture, draws: tuple[str, ...]) -> Iterator[tuple[Draw, ...]]:
    """The inputs that a Capture can be tried on; of several the first that the program runs on counts."""
    alive = capture.origin.alive
    if "captured" in draws and alive:
        yield (Draw("captured", capture.origin.values(), None, capture.seed),)
    if not capture.recipes.complete:
        return
    if "recipe" in draws:
        yield (drawn(capture, "recipe", None),)
    if "fresh" in draws and not capture.origin.partial and (alive or capture.witness is None):
        yield otherwise(capture), drawn(capture, "fresh", FRESH)


def otherwise(capture: Capture) -> Draw:
    """Other inputs than the recipes make, be these drawn or kept: parameters, buffers and tangents among them."""
    made = capture.recipes.make()
    return named_draw(capture, "fresh", made | other_values(capture, made, FRESH))


def drawn(capture: Capture, name: str, seed: int | None) -> Draw:
    """A draw of the recipes: as they are, or fresh."""
    return named_draw(capture, name, capture.recipes.make(seed))


def named_draw(capture: Capture, name: str, made: Mapping[str, Tensor]) -> Draw:
    """A draw of these values, tangents among them; a tensor's second name has the value of its first."""
    values, tangents = without_tangents(made)
    values |= {right: values[left] for left, right in capture.signature.same}
    return Draw(name, values, tangents, capture.seed)


def stretched(capture: Capture, draw: Draw) -> Iterator[Draw]:
    """A draw at other sizes than the captured ones, larger and smaller, where inputs can have any."""
    if capture.pairs[0].forward.symbols:
        for changes in (CHANGES, SMALLER):
            if (sizes := other_sizes(capture, changes)) is not None:
                values, tangents = resized(capture, draw.values, draw.tangents, sizes)
                yield replace(draw, name="resized", values=values, tangents=tangents)


def redrawn(capture: Capture, draw: Draw) -> Draw:
    """A draw with fresh program inputs and tangents; parameters and buffers, the bulk of the numbers, stay."""
    names = {port.name for port in free_ports(capture) if port.role == "input"} | {
        tangent_name(name) for name in capture.signature.differentiable
    }
    values, tangents = without_tangents(capture.recipes.make(FRESH, names))
    values |= {right: values[left] for left, right in capture.signature.same if left in values}
    return Draw("fresh", draw.values | values, tangents, draw.seed)


def random_tangents(capture: Capture, seed: int) -> dict[str, Tensor] | None:
    """Normals for every differentiable output, in its memory order, as far as its spec says what they are."""
    source = torch.Generator().manual_seed(seed)
    known = specs(capture)
    found = {}
    for name in capture.signature.differentiable:
        spec = known.get(name)
        if not isinstance(spec, TensorSpec) or spec.layout != "strided" or any(type(n) is not int for n in spec.shape):
            return None
        dtype = getattr(torch, spec.dtype)
        shape = tuple(int(size) for size in spec.shape)
        part = torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32
        drawn = torch.randn(shape, dtype=part, generator=source)
        found[name] = laid_as(drawn.to(dtype).to(spec.device), strides(spec, drawn, {}) or drawn.stride())
    return found
