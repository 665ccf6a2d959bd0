"""What a run changes that is not restored, where it is cheap to see: a warning names it.

A capture runs the program several times, so such a change is made as often. Everything else of this sort is the
program's own, and nobody looks: what it writes to files, prints or sends, libraries that it patches, registries.
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
    """What there is to see of an object of a C type, and what a warning says when it has changed."""

    read: Callable[[Any], Any]
    change: str


STANDARD_FILES = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__")


def position(file: Any) -> int | str:
    """Return the position of a file; of Python's own files, of pipes and of closed ones what stands for it."""
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
"""The types that are looked at; the first that fits counts."""


@functools.cache
def named_kind(kind: Any) -> _NamedKind | None:
    """Return what there is to see of objects of a type; None if nothing is, or if they are restored."""
    return next((row for base, row in NAMED_KINDS.items() if issubclass(kind, base)), None)


NAMED_SETTINGS: dict[str, Callable[[], Any]] = {
    "the working directory": os.getcwd,
    "anomaly detection": lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
}
"""Settings of the process that are looked at."""


def named_settings() -> dict[str, Any]:
    """Return the settings that are looked at, as they are now."""
    return {name: read() for name, read in NAMED_SETTINGS.items()}
