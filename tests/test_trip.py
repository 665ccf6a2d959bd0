"""The trip of one tensor, as ARCHITECTURE tells it, is the trip that it takes."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

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
    """The functions of Backprint's that were called, in the order of their first calls, and where a file was reentered.

    `again` has (caller, callee) where a file calls another that has called it, by way of others; functions inside of
    functions are left out, which are handed down to be called. `up` has those where a room calls one above it.
    """

    called: list[str]
    again: set[tuple[str, str]]
    up: set[tuple[str, str]]


def trip() -> Trip:
    """The calls of a capture and its verification, once all modules are loaded."""
    taken()
    found = Trip([], set(), set())
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
        if stack and stack[-1][0] != file and "<locals>" not in name:
            caller = stack[-1][1]
            if any(each == file for each, _ in stack):
                found.again.add((caller, name))
            if floor(file) > floor(stack[-1][0]) and code.co_name not in HANDED:
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


def taken() -> list[str]:
    x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    return [verdict.verdict for verdict in bp.capture(lambda x, w: x.sin() * w, x, w).verify()]


HANDED = ("__torch_function__", "__torch_dispatch__")
"""What torch calls: a room's call of torch below a mode arrives there, wherever the room is."""

FLOORS = {"graph": 1, "fx": 2, "tracing": 3, "sample": 3, "replaying": 3, "api": 4}


def floor(file: str) -> int:
    """The floor of a file, as ARCHITECTURE has it."""
    return FLOORS.get(file.partition("/")[0], 0)


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


BELOW = {
    ("tracing/watch.Watch.know", "tracing/eager/recorder.Recorder.learn"),  # a method of the subclass
    ("tracing/eager/recorder.Recorder.learn", "tracing/watch.storages"),
    ("tracing/unseen.HookWatch.__torch_function__", "tracing/custom.through"),
    ("tracing/custom.through", "defects.for_program"),  # what is called for the program is marked wherever it is
    ("tracing/eager/recorder.Recorder.written_down", "defects.for_program"),
}
"""Where a file calls one that has called it: a class and its subclass, and what torch hands every function to."""


def test_no_file_of_the_trip_is_entered_again_from_below(made: Trip) -> None:
    assert made.again == BELOW
    assert not {name for pair in BELOW for name in pair} & set(told())
