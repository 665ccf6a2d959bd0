"""Read and set the states of random generators: torch's, Python's and numpy's."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch


def _numpy_state(source: Any) -> Any:
    """Return the state of a numpy generator; of a SeedSequence, from which no number is drawn, nothing."""
    if hasattr(source, "spawn_key"):
        return None
    return source.bit_generator.state if hasattr(source, "bit_generator") else getattr(source, "state", None)


def _put_numpy_state(source: Any, state: Any) -> None:
    holder = source.bit_generator if hasattr(source, "bit_generator") else source
    if state is not None:
        holder.state = state


GENERATORS: dict[Any, tuple[Callable[[Any], Any], Callable[[Any, Any], None]]] = {
    torch.Generator: (lambda source: source.get_state(), lambda source, state: source.set_state(state)),
    random.Random: (lambda source: source.getstate(), lambda source, state: source.setstate(state)),
    None: (
        lambda source: source.get_state() if hasattr(source, "get_state") else _numpy_state(source),
        lambda source, state: (
            source.set_state(state) if hasattr(source, "set_state") else _put_numpy_state(source, state)
        ),
    ),
}
"""How the state of a generator is read and set; None is for numpy's, which may not be installed."""


def is_generator(kind: Any) -> bool:
    """Whether objects of a class draw random numbers from a state of their own."""
    if issubclass(kind, random.SystemRandom):
        return False
    return issubclass(kind, (torch.Generator, random.Random)) or (kind.__module__ or "").startswith("numpy.random")


def generator_state(source: Any) -> Any:
    return GENERATORS[generator_base(source)][0](source)


def put_generator(source: Any, state: Any) -> None:
    GENERATORS[generator_base(source)][1](source, state)


def generator_base(source: Any) -> Any:
    return next((base for base in (torch.Generator, random.Random) if isinstance(source, base)), None)
