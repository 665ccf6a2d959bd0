"""A target's name becomes code here and nowhere else, through explicit tables.

Private torch APIs of this module, tried on torch 2.13: `torch._ops.OpOverload`.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from backprint.checks import check_operator
from backprint.errors import RefusedError, ReplayError
from backprint.graph.nouns import HIGHER, MATHS, OPERATORS, PLAIN_TARGETS, SYMS, is_custom
from backprint.graph.table import operators
from backprint.growth import growth

ROOMS: dict[str, Any] = {"operator": operator, "math": math, "torch": torch}


@functools.cache
def resolve(target: str) -> Callable[..., Any]:
    """The callable that a target names: a known tensor operator, plain arithmetic, or a registered custom operator."""
    if target in OPERATORS or target in MATHS or target in SYMS:
        room, _, name = target.partition(".")
        return getattr(ROOMS[room], name)
    if target in HIGHER:
        return getattr(torch.ops.higher_order, target.rpartition(".")[2])
    if target in operators():
        return overload(target)
    if is_custom(target):
        return overload(target.removeprefix("torch.ops."))
    raise ReplayError(f"{target!r} is no known tensor operator")


def check_call(target: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise RefusedError unless these arguments may stand in a call of a target."""
    if target in PLAIN_TARGETS:
        if complaint := growth(target, args):
            raise RefusedError(complaint)
    elif isinstance(function, torch._ops.OpOverload):
        check_operator(function, args, kwargs)


def overload(name: str) -> Callable[..., Any]:
    """A registered operator by `namespace.name.overload`."""
    space, packet, kind = name.split(".")
    try:
        found = getattr(getattr(getattr(torch.ops, space), packet), kind)
    except (AttributeError, RuntimeError) as error:
        raise ReplayError(
            f"torch {torch.__version__} has no operator {space}::{packet}.{kind}: "
            "import the library that registers it, or use the torch that the sample's capture.json names"
        ) from error
    if not isinstance(found, torch._ops.OpOverload):
        raise ReplayError(f"{name!r} is no operator but a {type(found).__name__}")
    return found
