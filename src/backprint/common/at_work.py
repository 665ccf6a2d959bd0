"""The call at work, kept in a file: what ended a sample's process is then known by name.

Only a sample's own process keeps it; in any other, `note` does nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

NAME = "at_work"
"""The file, in the staging folder of a sample."""

MOST = 200
"""The most bytes of a name."""

_descriptor: int | None = None
"""The open file of a process; None in a process that keeps none."""

_process = 0
"""The process that opened it: one that is forked from it may have the number for another file, or for none."""


def begin(folder: Path) -> None:
    """Keep the call at work of this process in a file of a folder."""
    global _descriptor, _process
    _descriptor, _process = os.open(folder / NAME, os.O_WRONLY | os.O_CREAT, 0o600), os.getpid()


def note(name: str) -> None:
    """Keep the name of a call that begins; '' when it has ended."""
    if _descriptor is not None and os.getpid() == _process:
        os.pwrite(_descriptor, name.encode()[:MOST].ljust(MOST), 0)


def last(folder: Path) -> str:
    """Return the call that a process was at when it ended; '' if it was at none."""
    try:
        with open(folder / NAME, "rb") as file:
            return file.read(MOST).decode("utf-8", "backslashreplace").strip()
    except OSError:
        return ""
