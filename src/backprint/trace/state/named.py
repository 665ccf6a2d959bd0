"""Changes of a run that are not restored, where they are cheap to see: a warning names them.

A capture runs the program several times, so such a change is made as often. Other changes are the program's own and are
not looked for: writes to files, prints, messages that it sends, libraries that it patches, registries.
"""

from __future__ import annotations

import functools
import io
import os
import queue
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class _NamedKind:
    """How to read the visible state of an object of a C type (`read`), and what the warning says of the object when
    that state has changed (`change`)."""

    read: Callable[[Any], Any]
    change: str


STANDARD_FILES = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__")
"""Python's own files, which every print moves on: their positions are not compared."""


def position(file: Any) -> int | str:
    """Return the position of a file, or a word in its place where there is none to compare: for Python's own files,
    pipes and closed files."""
    if any(file is getattr(sys, name) for name in STANDARD_FILES):
        return "none"
    try:
        return "closed" if file.closed else file.tell()
    except (OSError, ValueError):  # a text file has none between two calls of next()
        return "unknown"


NAMED_KINDS: dict[Any, _NamedKind] = {
    io.IOBase: _NamedKind(position, "it is at another position"),
    type(threading.Lock()): _NamedKind(lambda lock: lock.locked(), "it was taken or released"),
    queue.SimpleQueue: _NamedKind(lambda items: items.qsize(), "it has more items or fewer"),
}
"""The types whose objects are looked at; of several that an object is of, the first counts."""


@functools.cache
def named_kind(kind: Any) -> _NamedKind | None:
    """Return how to read the state of objects of a type; None if no row of NAMED_KINDS is for it."""
    return next((row for base, row in NAMED_KINDS.items() if issubclass(kind, base)), None)


NAMED_SETTINGS: dict[str, Callable[[], Any]] = {
    "the working directory": os.getcwd,
    "anomaly detection": lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
}
"""Settings of the process whose change a warning names, with how each is read."""


def named_settings() -> dict[str, Any]:
    """Return the present values of NAMED_SETTINGS."""
    return {name: read() for name, read in NAMED_SETTINGS.items()}
