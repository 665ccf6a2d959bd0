"""Random numbers that are not torch's. A graph cannot draw them, so every run of the program uses the same ones."""

from __future__ import annotations

import contextlib
import contextvars
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from backprint.settings import OWN, foreign_states, put_foreign, random_state_digest
from backprint.tracing.generators import generator_state, put_generator
from backprint.tracing.picture import Picture


@dataclass(slots=True, eq=False)
class Chance:
    """The states of generators that are not torch's when a call was read, and which of them a run drew from.

    A graph cannot draw these numbers: every run of the program uses the same ones, and the graph has them as constants.
    `objects` are the generators that the program reaches and drew from, each with its earlier state. `after` has the
    states of the process's generators after a forward, where its backward starts; `context` has the ContextVars of
    that forward, which a run leaves behind.
    """

    states: dict[str, Any] = field(default_factory=foreign_states)
    drawn: set[str] = field(default_factory=set)
    objects: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    context: contextvars.Context = field(default_factory=contextvars.copy_context)

    def pins(self) -> dict[str, str]:
        """Return the digest of each state that the program's numbers depend on."""
        process = {name: random_state_digest(self.states[name]) for name in sorted(self.drawn)}
        return process | {name: random_state_digest(state) for name, (_, state) in self.objects.items()}

    def now(self) -> dict[str, str]:
        """Return the digests of the current states of the same generators."""
        process = {name: random_state_digest(state) for name, state in foreign_states().items() if name in self.drawn}
        return process | {
            name: random_state_digest(generator_state(source)) for name, (source, _) in self.objects.items()
        }


@contextlib.contextmanager
def same_chance(chance: Chance, picture: Picture | None, backward: bool = False) -> Iterator[None]:
    """Set generators that are not torch's to their state at the call, or after its forward; note which of them are
    drawn from.

    The process's generators have the caller's state again afterwards. Generators in the `picture` of what the program
    reaches are restored with it.
    """
    callers = foreign_states()
    begun = (backward and chance.after) or chance.states
    put_foreign(begun)
    for source, state in () if backward else chance.objects.values():
        put_generator(source, state)
    before = generators_in(picture)
    try:
        yield
        chance.after = foreign_states()
        chance.drawn.update(
            name
            for name, state in begun.items()
            if random_state_digest(state) != random_state_digest(chance.after[name])
        )
        for name, source, state in before:
            if random_state_digest(state) != random_state_digest(generator_state(source)):
                chance.objects.setdefault(name, (source, state))
    finally:
        put_foreign(callers)


def generators_in(picture: Picture | None) -> list[tuple[str, Any, Any]]:
    """Return the Python and numpy generators that a program reaches, with their states, except the process's own."""
    numpy = sys.modules.get("numpy")
    known = (random._inst, numpy.random.mtrand._rand if numpy else None)
    found = [
        (name, source)
        for name, source, _ in (picture.generators if picture is not None else ())
        if not isinstance(source, torch.Generator) and all(source is not each for each in known)
    ]
    return [
        (f"{OWN}{index} ({type(source).__name__}{name and f' {name}'})", source, generator_state(source))
        for index, (name, source) in enumerate(found)
    ]
