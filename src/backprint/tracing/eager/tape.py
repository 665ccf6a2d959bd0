"""The calls of one real step in order, each tensor identified by its memory.

No tensor is kept alive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from backprint.graph.nouns import Source
from backprint.tracing.eager.placement import Placement


class GeneratorState(NamedTuple):
    """The state of a generator, and its device."""

    device: str
    state: bytes


class TapedCall(NamedTuple):
    """One operator call. Tensors are Placements; `node` is the autograd node whose backward it is part of.

    `sums` says that autograd accumulates into a leaf's gradient, `grad` that autograd records the call. `state` is the
    generator's state before a random draw, `after` its state afterwards; `own` says that the generator was the
    program's own. `seq` is the sequence number of the autograd node that this call makes, if any.
    """

    func: Any
    args: Any
    kwargs: Any
    result: Any
    source: Source | None
    seq: int
    node: int | None
    state: GeneratorState | None = None
    after: GeneratorState | None = None
    own: bool = False
    sums: bool = False
    grad: bool = False


@dataclass(slots=True)
class TapeRoot:
    """A tensor that no recorded call made: a port of the graph."""

    place: Placement
    key: str


@dataclass(slots=True)
class Tape:
    """Every call of a step in order. Those from `boundary` on are its backward.

    `start` is the state in which each device's own generator was before its first draw.
    """

    calls: list[TapedCall] = field(default_factory=list)
    roots: dict[int, list[TapeRoot]] = field(default_factory=dict)
    constants: dict[str, Tensor] = field(default_factory=dict)
    boundary: int | None = None
    start: dict[str, bytes] = field(default_factory=dict)
