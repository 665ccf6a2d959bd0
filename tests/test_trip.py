"""The trip of one tensor, as ARCHITECTURE tells it, is the trip that it takes."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import torch
from test_floors import FLOORS, room_of

import backprint as bp

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "backprint"


def told() -> list[str]:
    """The functions of the trip, as `room/file.function`."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.partition("## One tensor, from the call to a verdict\n")[2].partition("\n## ")[0]
    numbered = section.partition("\n1. ")[2]
    return [name for name in re.findall(r"`([\w/]+\.[\w.]+)`", numbered) if not name.startswith(("aten", "cap."))]


@dataclass(frozen=True, slots=True)
class Trip:
    """The functions of Backprint's that were called, in the order of their first calls.

    `up` has (caller, callee) where a room calls one above it; functions inside of functions are left out, which are
    handed down to be called.
    """

    called: list[str]
    up: set[tuple[str, str]]


def trip() -> Trip:
    """The calls of a capture and its verification, once all modules are loaded."""
    taken()
    found = Trip([], set())
    stack: list[tuple[str, str]] = []

    def note(frame: Any, event: str, arg: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(str(SOURCE)):
            return
        if event == "return":
            stack.pop()
            return
        file = Path(code.co_filename).relative_to(SOURCE).with_suffix("").as_posix()
        name = f"{file}.{code.co_qualname}"
        if stack and stack[-1][0] != file and "<locals>" not in name and stack[-1][1] not in CALLERS:
            caller = stack[-1][1]
            if floor(file) > floor(stack[-1][0]) and not is_handed(code):
                found.up.add((caller, name))
        stack.append((file, name))
        found.called.append(name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        verdicts = taken()
    finally:
        sys.setprofile(before)
    assert verdicts == ["bitwise"]
    found.called[:] = dict.fromkeys(found.called)
    return found


CALLERS = "errors.with_frames_of_program.<locals>.call", "errors.for_program"
"""What calls a function that it was given: one of the face, or torch's, in whose place a tool that watches backwards
may have put its own."""


def taken() -> list[str]:
    x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    return [verdict.verdict for verdict in bp.capture(lambda x, w: x.sin() * w, x, w).verify()]


def is_handed(code: CodeType) -> bool:
    """Whether a function is handed down: a mode, which torch calls, or a Capture's origin, a Protocol of `graph`."""
    return code.co_name in ("__torch_function__", "__torch_dispatch__") or code.co_qualname.startswith("LiveProgram.")


def floor(file: str) -> int:
    """The floor of a file, as ARCHITECTURE has it."""
    return FLOORS[room_of(file.replace("/", "."))]


@pytest.fixture(scope="module")
def made() -> Trip:
    return trip()


def test_every_call_of_the_trip_is_made_in_the_order_that_is_told(made: Trip) -> None:
    wanted = told()
    assert 30 < len(set(wanted)) <= 40
    assert [name for name in wanted if name not in made.called] == []
    assert [name for name in made.called if name in wanted] == wanted


def test_no_room_calls_one_above_it(made: Trip) -> None:
    assert made.up == set()
