"""What a user sees, held as files: `golden/output/NAME.txt`, which `pytest --write-snapshots` writes anew.

A text is held whole. What differs from one run, machine or torch to another is replaced first, by REPLACED.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from pathlib import Path

PLACE = Path(__file__).with_name("golden") / "output"

REPLACED: Mapping[str, str] = {
    "CLOCK": r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00)?",
    "TIME": r"\b\d+(?:\.\d+)?(?:e-\d+)? (?:µs|ms|s|min|h)\b",
    "LOAD": r"(?ms)^load: .*?(?=\n\n)",
    "TORCH": r"\b2\.\d+\.\d+(?:\+\w+)?\b",
    "PYTHON": r"(?m)(?<=^python     ).*",
    "EXTRAS": r"(?<=extras: ).*",
    "DEVICE": r"(?<=1 threads, ).*",
    "ENVIRONMENT": r"(?<=  environment: ).*",
    "HASH": r"(?<!\.)\b(?=\d*[a-f])[0-9a-f]{16,64}\b",
    "NAME, TIME": r"(?m)(?<=^slowest: )\w+, TIME$",
    "ERROR": r"\b\d(?:\.\d+)?e-\d\d\b",
    "NUMBER": r"\b\d+\.\d{6,}\b",
}
"""What is replaced, by the name that stands for it."""


def in_lines(text: str) -> str:
    """Return one JSON object a line as a line for each of its values, so that a difference can be read."""
    rows = [json.loads(line) for line in text.splitlines()]
    return "".join(f"  {key}: {json.dumps(value)}\n" for row in rows for key, value in row.items())


class Snapshots:
    """The held texts of a run of pytest; `write` holds what is there now."""

    def __init__(self, write: bool) -> None:
        self.write = write

    def differences(self, name: str, text: str, replaced: Mapping[str, str] = REPLACED) -> str:
        """Return how a text differs from the one that is held under a name; nothing if it does not."""
        for word, pattern in replaced.items():
            text = re.sub(pattern, word, text)
        lines = [line.rstrip() for line in text.splitlines()]
        place = PLACE / f"{name}.txt"
        if self.write:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        held = place.read_text(encoding="utf-8").splitlines() if place.exists() else []
        return "\n".join(difflib.unified_diff(held, lines, f"{place.name} (held)", "now", lineterm="", n=1))

    def check(self, name: str, text: str, replaced: Mapping[str, str] = REPLACED) -> None:
        difference = self.differences(name, text, replaced)
        assert not difference, f"{difference}\nIf this is meant: pytest --write-snapshots"
