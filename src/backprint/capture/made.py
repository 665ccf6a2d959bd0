"""What every engine takes and gives: the options of a capture, and the Pairs with what they stand on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from backprint.capture.program import Program
from backprint.graph.nouns import Guard, Link, OpaqueEdge, Pair


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for, beside the call itself."""

    partition: str | Callable[..., Any] = "min-cut"
    decompose: Mapping[Any, Callable[..., Any]] | None = None
    specialise: bool = False
    functional: bool = True
    dynamic: bool = False
    fake: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """What an engine made of a Program.

    `outputs` are the names of the result's tensors in order, `differentiable` those that take tangents; `tree` and
    `leaves` are the result's structure, with `Tensor` in the place of each tensor. `tangents` has an example for each
    sparse output that takes one: where its values are, no spec says.
    """

    program: Program
    pairs: tuple[Pair, ...]
    outputs: tuple[str, ...]
    differentiable: tuple[str, ...]
    tree: Any
    leaves: tuple[Any, ...]
    constants: Mapping[str, Tensor] = field(default_factory=dict)
    tangents: Mapping[str, Tensor] = field(default_factory=dict)
    guards: tuple[Guard, ...] = ()
    opaque: tuple[OpaqueEdge, ...] = ()
    links: tuple[Link, ...] = ()
    breaks: tuple[str, ...] = ()
