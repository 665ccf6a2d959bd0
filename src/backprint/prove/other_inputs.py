"""Other inputs than a sample's own: a second draw where values are constant, redraws for a stranger's code, and other
sizes.

A *recipe* makes an input, by a seed or from kept bytes. A *unit* is an input with its views, which can be redrawn only
together. A *guard* is a condition on inputs that the Capture assumes. A *witness* is what a sample keeps of the
program's results: a row of numbers for each, by the text of its port. A *symbol* is a size that the trace has left
open, and `sizes` has a number for each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from backprint.errors import GraphError, ReplayError
from backprint.graph.keys import is_tangent
from backprint.graph.links import free_ports
from backprint.graph.nouns import Capture, Graph, Port, Symbol, TensorSpec
from backprint.graph.sizes import evaluate, known, sizes_in_words, spec_at, symbol_out_of_range
from backprint.prove.results import Row, numbers_of
from backprint.prove.whole import SIZE
from backprint.run_sample import digest
from backprint.sample.redraws import other_values_of_unit, other_values_of_units, units

# ---- The second draw: inputs of a sample that have one value everywhere get different values
# At ones, a product and a quotient are equal; at zeros, a sum and a difference; and where all elements are equal, so is
# any order of them. A check on such inputs alone does not see these faults. While the program lives, a proof runs on
# other inputs too. For a sample, `save` keeps digests of the program's results on the second draw, and `verify`
# compares with them. Where a sample has none, the ports that depend on such inputs have no power. Integers are left
# out: they are indices and counts, and a program need not run on others.


SECOND = "redrawn"
"""The name of the second draw, and how the rows of its results begin in a witness."""

SEED = 0x2ED
"""The seed of the second draw, the same at `save` and at `verify`."""

HELD = ("value", "shape", "pinned")
"""The kinds of guards whose inputs are not redrawn."""

GIVEN = f"{SECOND} inputs"
"""The row of a witness that has the second draw's inputs."""


def _flat_inputs(capture: Capture, values: Mapping[str, Tensor]) -> dict[str, tuple[str, ...]]:
    """Return the inputs that have one value everywhere in `values`, and could have others: for the name of each, the
    names that can be redrawn only together, which are the input and its views."""
    recipes = capture.recipes.recipes
    roles = {port.name: port.role for port in free_ports(capture)}
    held = held_by_guards(capture)
    flat = {}
    for name, names in units(recipes).items():
        is_free = all(is_tangent(member) or roles.get(member, "constant") != "constant" for member in names)
        # A recipe of another kind draws many values; only these make one value, or keep the data.
        may_be_flat = is_free and held.isdisjoint(names) and recipes[name].kind in ("constant", "exact")
        if may_be_flat and name in values and is_flat(values[name]):
            flat[name] = names
    return flat


def is_flat(value: Tensor) -> bool:
    """Whether all elements of a float or bool tensor are equal. One element alone must be 0, 1 or -1: with another
    number, a product differs from a quotient."""
    if not (value.is_floating_point() or value.is_complex() or value.dtype is torch.bool):
        return False
    if value.layout is not torch.strided or value.numel() == 0:
        return False
    first = value.flatten()[0]
    return bool((value == first).all()) if value.numel() > 1 else first.item() in (0, 1, -1)


def second_values(capture: Capture, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return other values for the inputs and tangents that have one value everywhere; empty if there are none."""
    return other_values_of_units(_flat_inputs(capture, values).values(), capture.recipes.recipes, values, SEED)


def given_row(moved: Mapping[str, Tensor]) -> Row:
    """Return the row that a witness keeps of the second draw's inputs, from their values by name (`moved`)."""
    digests = [digest(moved[name]) for name in sorted(moved)]
    # A row like any other: the first 32 bits of each digest, as the numbers of a tensor.
    return numbers_of(torch.tensor([int(text[:8], 16) for text in digests]))


def kept_values(capture: Capture, values: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """Return the other values of the second draw, if the sample keeps the program's results on them; else None.
    `values` are the inputs of the recipes' own draw."""
    row = (capture.witness or {}).get(GIVEN)
    if row is None or not (moved := second_values(capture, values)):
        return None
    # Another torch may draw other values, for which the results were not kept.
    return moved if given_row(moved)["digest"] == row["digest"] else None


def unchecked_inputs(capture: Capture, values: Mapping[str, Tensor]) -> frozenset[str]:
    """Return the inputs that a proof does not see change: they have one value everywhere in `values`, and the sample
    keeps no results on others. There are none while the program lives, or if the sample has no witness."""
    if capture.origin.alive or capture.witness is None or not (flat := _flat_inputs(capture, values)):
        return frozenset()
    kept = kept_values(capture, values) or {}
    return frozenset(name for names in flat.values() for name in names if name not in kept)


def why_unchecked(names: Collection[str]) -> list[str]:
    """Say why a check proves nothing about ports that depend on these inputs."""
    if not names:
        return []
    shown = ", ".join(sorted(names)[:6]) + (", …" if len(names) > 6 else "")
    return [
        f"{shown} has one value everywhere, and the sample keeps no results on others: a check of what depends on it "
        "proves nothing. Capture the program again"
    ]


def held_by_guards(capture: Capture) -> frozenset[str]:
    """Return the inputs whose values guards depend on, so that a redraw may break a guard."""
    return frozenset(name for guard in capture.guards if guard.kind in HELD for name in guard.inputs)


def second_rows(witness: Mapping[str, Any]) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a witness that are of results on the second draw, each with the port's key as text."""
    for text, row in witness.items():
        if text.startswith(f"{SECOND} ") and text != GIVEN:
            yield text.removeprefix(f"{SECOND} "), row


# ---- Redraws: contents that a compiler or a solution has not seen

STEPS = (None, 2**-6, 2**-10)
"""How far floats move: None is a redraw, a number a share of their size."""


def redrawn(
    capture: Capture, recipes: Mapping[str, Any], values: Mapping[str, Tensor], seed: int, size: float | None
) -> dict[str, Tensor]:
    """Return new values for inputs and tangents, but for constants and inputs that a guard holds: drawn by the seed,
    or, with a `size`, moved by this share of their size (STEPS)."""
    fixed = held_by_guards(capture) | {port.name for port in free_ports(capture) if port.role == "constant"}
    redraws: dict[str, Tensor] = {}
    for names in units(recipes).values():
        if all(name in values and name not in fixed for name in names):
            redraws |= other_values_of_unit(names, recipes, values, seed, step=size) or {}
    return redraws


# ---- Other sizes than captured, if the conditions that tracing found allow any

Change = Callable[[int], int]
"""Returns another size for a captured one."""

CHANGES: tuple[Change, ...] = (
    lambda size: size + 1,
    lambda size: 2 * size,
    lambda size: size - 1,
    lambda size: size + 2,
    lambda size: 3 * size,
    lambda size: size // 2,
    lambda size: size,
)
"""The changes to try for each size, in this order."""

SMALLER: tuple[Change, ...] = (lambda size: size - 1, lambda size: size // 2, lambda size: size // 3, lambda size: size)
"""The changes to try if the program itself does not run on larger sizes, as with a table of positions."""

TRIES = 4096
"""The most combinations of sizes that are tried."""

LOOKS = 200_000
"""The most conditions and shapes that are evaluated in all tries: a sample with thousands of them gets fewer tries."""

GROWTH = 256
"""How many times as many elements a tensor may have at other sizes. Without a limit, an expression in a stranger's
sample could ask for any."""


def other_sizes(capture: Capture, changes: Sequence[Change] = CHANGES) -> dict[str, int] | None:
    """Return values of the symbols that meet every condition of the trace, with as many changed as possible, by these
    changes; None if none can change."""
    forward = capture.pairs[0].forward
    symbols, best = forward.symbols, None
    most = 0  # how many symbols `best` changes
    # As many as evaluate about LOOKS guards and specs; at least 8, which is more than CHANGES, so that each change for
    # all symbols at once is always tried.
    tries = min(TRIES, 8 + LOOKS // (len(capture.guards) + len(forward.inputs) + len(forward.outputs) + 1))
    for values in itertools.islice(candidates(symbols, changes), tries):
        sizes = dict(zip((symbol.name for symbol in symbols), values, strict=True))
        changed = sum(symbol.hint != sizes[symbol.name] for symbol in symbols)
        if changed > most and allowed(capture, forward, sizes):
            best, most = sizes, changed
            if most == len(symbols):
                break
    return best


def candidates(symbols: tuple[Symbol, ...], changes: Sequence[Change]) -> Iterator[tuple[int, ...]]:
    """Yield values for all symbols, in their order: first the same change for each, then every combination of changes.
    A symbol's `hint` is its captured size."""
    rows = [[change(symbol.hint) for change in changes] for symbol in symbols]
    yield from zip(*rows, strict=True)
    yield from itertools.product(*rows)


def allowed(capture: Capture, forward: Graph, sizes: Mapping[str, int]) -> bool:
    """Whether ranges and guards allow these sizes, and every shape is valid."""
    if symbol_out_of_range(forward.symbols, sizes) is not None:
        return False
    texts = [guard.text for guard in capture.guards if guard.kind == "size"]
    # Conditions over symbols alone: a guard about one dimension of a tensor needs the tensor, and replay checks it.
    conditions = [text for text in texts if (match := SIZE.fullmatch(text)) and not match["name"]]
    try:
        if not all(evaluate(text, sizes) for text in conditions if known(text, sizes)):
            return False
        specs = [spec_at(port.spec, sizes) for port in (*forward.inputs, *forward.outputs)]
    except GraphError:
        return False
    shapes = [spec.shape for spec in specs if isinstance(spec, TensorSpec)]
    return all(isinstance(size, int) and size >= 0 for shape in shapes for size in shape)


def resized(
    capture: Capture, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor] | None, sizes: Mapping[str, int]
) -> tuple[dict[str, Tensor], dict[str, Tensor] | None]:
    """Return inputs and tangents at other sizes: `values` and `tangents`, truncated or repeated along each dimension;
    None for tangents that are None. `sizes` has the values of the symbols."""
    forward = capture.pairs[0].forward  # the only Pair: `aot` alone captures symbolic sizes, and it makes one
    new_values = {
        port.name: _stretched_sizes(port, values[port.name], sizes) for port in forward.inputs if port.name in values
    }
    # The second name of a tensor with two names.
    same = {right: new_values[left] for left, right in capture.signature.same if left in new_values}
    if tangents is None:
        return {**values, **new_values, **same}, None
    outputs = {port.name: port for port in forward.by_role("output")}
    return {**values, **new_values, **same}, {
        name: _stretched_sizes(outputs[name], value, sizes) for name, value in tangents.items()
    }


def _stretched_sizes(port: Port, value: Tensor, sizes: Mapping[str, int]) -> Tensor:
    """Return a tensor at other sizes, with its port's strides; without symbolic sizes, the tensor itself. Raise
    ReplayError for sizes that ask for far more elements (GROWTH), or for another number of dimensions."""
    spec = spec_at(port.spec, sizes)
    if not isinstance(spec, TensorSpec) or spec == port.spec:
        return value
    shape = tuple(map(int, spec.shape))
    if len(shape) != value.dim() or math.prod(shape) > GROWTH * max(1024, value.numel()):
        raise ReplayError(
            f"{port.role} {port.name!r} is {list(value.shape)}; at the sizes {sizes_in_words(sizes)}: {list(shape)}"
        )
    tensor = value.detach()
    # Elements repeat from the first where the new size is larger; where it is smaller, the last ones are cut off.
    for index, size in enumerate(shape):
        tensor = tensor.index_select(index, torch.arange(size, device=value.device) % max(1, value.shape[index]))
    stride = tuple(int(step) for step in spec.stride) if spec.stride is not None else tensor.contiguous().stride()
    expanded = [index for index, (size, step) in enumerate(zip(shape, stride, strict=True)) if step == 0 and size > 1]
    for index in expanded:  # an expanded dimension has one value, and is expanded again below
        tensor = tensor.narrow(index, 0, 1)
    try:
        strided = torch.empty_strided(tensor.shape, stride, dtype=value.dtype, device=value.device).copy_(tensor)
    except RuntimeError:  # elements overlap in another way and cannot be written separately
        return tensor.expand(shape)
    return strided.as_strided(shape, stride)
