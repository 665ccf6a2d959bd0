"""The trip of one tensor, as ARCHITECTURE tells it, is the trip that it takes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

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


def called() -> set[str]:
    """Every function of Backprint's that a capture and its verification call."""
    found: set[str] = set()

    def note(frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            found.add(f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}")

    x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        verdicts = bp.capture(lambda x, w: x.sin() * w, x, w).verify()
    finally:
        sys.setprofile(before)
    assert [verdict.verdict for verdict in verdicts] == ["bitwise"]
    return found


def test_every_call_of_the_trip_is_made() -> None:
    wanted = told()
    assert 30 < len(set(wanted)) <= 40
    made = called()
    places = {
        name: f"{(SOURCE / name.partition('.')[0]).with_suffix('.py')}:{name.partition('.')[2]}" for name in wanted
    }
    assert [name for name, place in places.items() if place not in made] == []
