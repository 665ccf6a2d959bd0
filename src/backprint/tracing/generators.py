"""The states of generators of random numbers: torch's, Python's and numpy's."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch


def _numpy_state(source: Any) -> Any:
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
"""How a generator's state is read and put; None stands for numpy's, which may not be there."""


def generator_state(source: Any) -> Any:
    """The state of a generator of random numbers."""
    return GENERATORS.get(type(source), GENERATORS[None])[0](source)


def put_generator(source: Any, state: Any) -> None:
    """Set the state of a generator of random numbers."""
    GENERATORS.get(type(source), GENERATORS[None])[1](source, state)
