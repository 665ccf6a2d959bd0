"""Draws: the sets of inputs that a Capture is proved on: captured, from recipes, fresh, at other sizes.

A *recipe* makes an input again, by a seed or from kept bytes. A *witness* is what a sample keeps of the program's
results. `capture.origin` is the program, alive or gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from backprint.graph.keys import with_tangents, without_tangents
from backprint.graph.links import specs
from backprint.graph.nouns import Capture, TensorSpec
from backprint.prove.arguments import strides, with_strides
from backprint.prove.other_inputs import (
    CHANGES,
    GIVEN,
    SECOND,
    SMALLER,
    kept_values,
    other_sizes,
    resized,
    second_values,
)
from backprint.prove.power import other_values

DRAWS = ("captured", "recipe", "fresh", "resized")

FRESH = 0x5EED
"""The seed of the draw `fresh`, and of other draws than the recipes' own."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One set of inputs: its name, the values, the tangents, and the seed of the random numbers that the program draws.

    `tangents` has a tensor for each differentiable output; None stands for ones. With `anew`, the program runs on
    copies of the tensors that are its arguments, even if these have the values already.
    """

    name: str
    values: dict[str, Tensor]
    tangents: dict[str, Tensor] | None
    seed: int
    anew: bool = False


def draws_of(capture: Capture, draws: tuple[str, ...]) -> Iterator[Iterable[Draw]]:
    """Yield the draws that a Capture is compared on, of the kinds that `draws` names. Each item has alternatives: the
    first on which the program runs is taken, and the rest are not drawn."""
    alive = capture.origin.alive
    if "captured" in draws and alive:
        yield (Draw("captured", capture.origin.values(), tangents=None, seed=capture.seed),)
    if not capture.recipes.complete:  # an input has no recipe, so nothing can be drawn
        return
    first = None
    if "recipe" in draws:
        first = draw_from_recipes(capture, "recipe", seed=None)
        yield (first,)
        if not alive and (second := second_draw(capture, first, kept_by_sample=True)) is not None:
            yield (second,)
    # A recorded step (`partial`) has results for its own inputs alone, and so has a sample with a witness. Of a sample
    # without one, the results are compared with autograd of the forward, which runs on any inputs.
    if "fresh" in draws and not capture.origin.partial and (alive or capture.witness is None):
        yield _fresh_draws(capture, first)


def _fresh_draws(capture: Capture, first: Draw | None) -> Iterator[Draw]:
    """Yield a draw in which all inputs have other values than the recipes make, then one in which only random inputs
    have. `first` is the recipes' own draw, if it was made."""
    yield _draw_of_other_values(capture, first)
    yield draw_from_recipes(capture, "fresh", FRESH)


def second_draw(capture: Capture, first: Draw, kept_by_sample: bool = False) -> Draw | None:
    """Return a draw in which inputs that have one value everywhere in the first draw have many (`other_inputs.py` says
    why); None if there are no such inputs.

    With `kept_by_sample`, it is the draw whose results the sample has kept, and None if it has kept none.
    """
    if kept_by_sample and GIVEN not in (capture.witness or {}):
        return None
    values = with_tangents(first.values, first.tangents or {})
    other = kept_values(capture, values) if kept_by_sample else second_values(capture, values)
    return _draw_of_values(capture, SECOND, {**values, **other}) if other else None


def _draw_of_other_values(capture: Capture, first: Draw | None = None) -> Draw:
    """Return a draw in which all inputs have other values than their recipes make, also parameters, buffers and
    tangents, and also inputs whose recipe has their exact bytes. `first` is the recipes' own draw, if it was made."""
    values = capture.recipes.make() if first is None else with_tangents(first.values, first.tangents or {})
    return _draw_of_values(capture, "fresh", values | other_values(capture, values, FRESH))


def draw_from_recipes(capture: Capture, name: str, seed: int | None) -> Draw:
    """Return a draw from the recipes, with their own seeds if `seed` is None."""
    return _draw_of_values(capture, name, capture.recipes.make(seed))


def _draw_of_values(capture: Capture, name: str, values_and_tangents: Mapping[str, Tensor]) -> Draw:
    """Return a draw of these values and tangents. A tensor that was passed for several parameters has one value under
    all its names."""
    values, tangents = without_tangents(values_and_tangents)
    values |= {right: values[left] for left, right in capture.signature.same}
    return Draw(name, values, tangents, capture.seed)


def draws_at_other_sizes(capture: Capture) -> Iterator[Draw]:
    """Yield a draw at larger sizes than captured and one at smaller sizes, if inputs have symbolic sizes and the
    conditions of the trace allow such sizes."""
    if capture.pairs[0].forward.symbols:
        draw = draw_from_recipes(capture, "fresh", seed=FRESH)
        for changes in (CHANGES, SMALLER):  # of sizes: to larger ones, then to smaller ones
            sizes = other_sizes(capture, changes)
            if sizes is not None:
                values, tangents = resized(capture, draw.values, draw.tangents, sizes)
                yield replace(draw, name="resized", values=values, tangents=tangents)


def random_tangents(capture: Capture, seed: int) -> dict[str, Tensor] | None:
    """Return normally distributed tangents for all differentiable outputs, with the strides of the outputs; None if an
    output has an unknown spec, is not strided or has symbolic sizes."""
    generator = torch.Generator().manual_seed(seed)
    known = specs(capture)  # the specs of the Capture's results, by name
    tangents = {}
    for name in capture.signature.differentiable:
        spec = known.get(name)
        if not isinstance(spec, TensorSpec) or spec.layout != "strided" or any(type(n) is not int for n in spec.shape):
            return None
        dtype = getattr(torch, spec.dtype)
        shape = tuple(int(size) for size in spec.shape)
        # Drawn in float32 and cast, so that half precision has the same numbers, rounded.
        dtype_of_numbers = torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32
        numbers = torch.randn(shape, dtype=dtype_of_numbers, generator=generator)
        wanted = strides(spec, numbers, sizes={}) or numbers.stride()  # its own, if those of the spec are not known
        tangents[name] = with_strides(numbers.to(dtype).to(spec.device), wanted)
    return tangents
