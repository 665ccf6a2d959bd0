"""Resize inputs to other sizes than captured, if the conditions that tracing found allow any."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from backprint.errors import GraphError, ReplayError
from backprint.graph.nouns import Capture, Graph, Port, Symbol, TensorSpec
from backprint.graph.sizes import at, evaluate, known, outside, sizes_in_words
from backprint.replaying.whole import SIZE

Change = Callable[[int], int]

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
"""The most combinations that are tried."""

LOOKS = 200_000
"""The most conditions and shapes that are evaluated for that: a sample with thousands of them gets fewer tries."""

GROWTH = 256
"""How many times as many elements a tensor may have at other sizes: expressions in a sample may say anything."""


def other_sizes(capture: Capture, changes: Sequence[Change] = CHANGES) -> dict[str, int] | None:
    """Return sizes that meet every condition, with as many changed as possible; None if none can change."""
    forward = capture.pairs[0].forward
    symbols, best = forward.symbols, None
    most = 0
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
    """Yield values for all symbols: first the same change for each, then every combination of changes."""
    rows = [[change(symbol.hint) for change in changes] for symbol in symbols]
    yield from zip(*rows, strict=True)
    yield from itertools.product(*rows)


def allowed(capture: Capture, forward: Graph, sizes: Mapping[str, int]) -> bool:
    """Whether ranges and guards allow these sizes, and every shape is valid."""
    if outside(forward.symbols, sizes) is not None:
        return False
    texts = [guard.text for guard in capture.guards if guard.kind == "size"]
    conditions = [text for text in texts if (found := SIZE.fullmatch(text)) and not found["name"]]
    try:
        if not all(evaluate(text, sizes) for text in conditions if known(text, sizes)):
            return False
        specs = [at(port.spec, sizes) for port in (*forward.inputs, *forward.outputs)]
    except GraphError:
        return False
    shapes = [spec.shape for spec in specs if isinstance(spec, TensorSpec)]
    return all(isinstance(size, int) and size >= 0 for shape in shapes for size in shape)


def resized(
    capture: Capture, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor] | None, sizes: Mapping[str, int]
) -> tuple[dict[str, Tensor], dict[str, Tensor] | None]:
    """Return the inputs and tangents at other sizes: the given ones, truncated or repeated along each dimension."""
    forward = capture.pairs[0].forward
    made = {port.name: stretched(port, values[port.name], sizes) for port in forward.inputs if port.name in values}
    same = {right: made[left] for left, right in capture.signature.same if left in made}
    if tangents is None:
        return {**values, **made, **same}, None
    outputs = {port.name: port for port in forward.by_role("output")}
    return {**values, **made, **same}, {
        name: stretched(outputs[name], value, sizes) for name, value in tangents.items()
    }


def stretched(port: Port, value: Tensor, sizes: Mapping[str, int]) -> Tensor:
    """Return a tensor at other sizes, with its port's strides; without symbolic sizes, the tensor itself."""
    spec = at(port.spec, sizes)
    if not isinstance(spec, TensorSpec) or spec == port.spec:
        return value
    shape = tuple(map(int, spec.shape))
    if len(shape) != value.dim() or math.prod(shape) > GROWTH * max(1024, value.numel()):
        raise ReplayError(
            f"{port.role} {port.name!r} is {list(value.shape)}; at the sizes {sizes_in_words(sizes)}: {list(shape)}"
        )
    found = value.detach()
    for index, size in enumerate(shape):
        found = found.index_select(index, torch.arange(size, device=value.device) % max(1, value.shape[index]))
    stride = tuple(int(step) for step in spec.stride) if spec.stride is not None else found.contiguous().stride()
    over = [index for index, (size, step) in enumerate(zip(shape, stride, strict=True)) if step == 0 and size > 1]
    for index in over:  # an expanded dimension has one value
        found = found.narrow(index, 0, 1)
    try:
        made = torch.empty_strided(found.shape, stride, dtype=value.dtype, device=value.device).copy_(found)
    except RuntimeError:  # elements overlap in another way and cannot be written separately
        return found.expand(shape)
    return made.as_strided(shape, stride)
