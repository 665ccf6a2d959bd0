"""What a Capture says about stamping, in its notes: how its graphs were made, or why they were traced in full."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

STAMPED = "stamped: "
"""How the note of a stamped Capture begins."""

IN_FULL = "traced in full, not stamped: "
"""How the note begins that says why a Capture was not stamped."""


def stamp_note(depth: int, depths: Sequence[int], places: Iterable[Any]) -> str:
    """Return the note of a stamped Capture."""
    few, fewer = depths[1], depths[0]
    where = ", ".join(str(place) or "the model itself" for place in places)
    return (
        f"{STAMPED}the {depth} layers in {where} continue traces with {fewer} and {few}; the whole ran once, untraced"
    )


def stamp_of(notes: Iterable[str]) -> str:
    """Return the note that says how a Capture was stamped; '' if it was not."""
    return next((note for note in notes if note.startswith(STAMPED)), "")
