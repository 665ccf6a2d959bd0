"""Which frames a picture opens: all of a small graph, and of a large one as many as can be read."""

from __future__ import annotations

from collections import deque

from backprint.drawing.drawn import DrawnPair
from backprint.drawing.frames import frame_unit

READABLE = 300
"""How many steps and folded frames a picture shows at most, if it has a choice."""


def opened_frames(drawn: DrawnPair, most: int = READABLE) -> frozenset[int]:
    """Return the frames to open, outer ones first, while what is seen is no more than `most`; of a loop its first
    turn."""
    opened: set[int] = set()
    seen = 1
    waiting = deque([0])
    while waiting:
        number = waiting.popleft()
        inside = units_shown(drawn, number)
        if opened and seen - 1 + len(inside) > most:
            continue
        opened.add(number)
        seen += len(inside) - 1
        waiting.extend(frame_unit(unit) for unit in inside if unit < 0)
    return frozenset(opened)


def units_shown(drawn: DrawnPair, number: int) -> tuple[int, ...]:
    """Return the units that are seen in an open frame: of a loop one turn."""
    frame = drawn.frames[number]
    return frame.units[:1] if frame.kind == "loop" else frame.units
