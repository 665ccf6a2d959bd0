"""The calls of one real step in order, each tensor identified by its memory.

No tensor is kept alive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from backprint.graph.nouns import Source
from backprint.tracing.eager.placement import Placement


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
    state: bytes | None = None
    after: bytes | None = None
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
    """Every call of a step in order. The calls from `boundary` on are its backward."""

    calls: list[TapedCall] = field(default_factory=list)
    roots: dict[int, list[TapeRoot]] = field(default_factory=dict)
    constants: dict[str, Tensor] = field(default_factory=dict)
    boundary: int | None = None
    start: bytes = b""
