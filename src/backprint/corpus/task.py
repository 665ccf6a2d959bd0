"""What a worker is given, and the row of a sample that came to nothing."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backprint.corpus.find import escape
from backprint.errors import SampleError
from backprint.formats import GRAPHNET

TREES = "trees"
"""The folder of a sample's staging that holds trees beside the samples: `trees/NAME/X` becomes `OUT/NAME/X`."""

TREE_NAMES = ("train_forward", "train_backward", "eval_forward")

TREE_FILES = frozenset(GRAPHNET.files)
"""What such a tree is called and holds, as `graphnet/layout` has it, which loads PyTorch."""


@dataclass(frozen=True, slots=True)
class Task:
    """One sample to work on: its id in the ledger, the folder it is in, and what is known of it. Plain, as JSON is."""

    id: str
    folder: str
    family: str = ""
    kind: str = ""
    source_hash: str = ""
    memory: int = 0
    """The bytes it may take."""
    most: int = 0
    """The bytes it may take when nothing else is at work."""

    @property
    def path(self) -> Path:
        """The sample's folder."""
        return Path(self.folder)


def failure(cause: str, detail: str, stage: str, stages: Mapping[str, float] | None = None) -> dict[str, Any]:
    """The row of a sample that failed."""
    return dict(verdict="failed", cause=cause, detail=one_line(detail), stage=stage, stages=dict(stages or {}))


def failed(error: BaseException, stage: str) -> dict[str, Any]:
    """The row of a sample at which something was raised."""
    return failure(*cause_of(error), stage)


def one_line(text: str, most: int = 500) -> str:
    """A text as one printable line."""
    line = escape(" ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"


# ------------------------------------------------------------------ causes

ERRNOS: Mapping[int, str] = {
    errno.ENOENT: "missing file",
    errno.ENOTDIR: "missing file",
    errno.EISDIR: "unreadable",
    errno.EACCES: "unreadable",
    errno.EPERM: "unreadable",
    errno.EIO: "unreadable",
    errno.ELOOP: "symlink loop",
    errno.ENOSPC: "disk full",
    errno.EDQUOT: "disk full",
    errno.EFBIG: "disk full",
    errno.ENOMEM: "out of memory",
    errno.EAGAIN: "too many processes",
}

NO_MEMORY = re.compile(r"can't allocate memory|out of memory|Cannot allocate memory|bad_alloc", re.IGNORECASE)

CAUSES: Mapping[str, str] = {
    "MemoryError": "out of memory",
    "OutOfMemoryError": "out of memory",
    "SyntaxError": "syntax",
    "IndentationError": "syntax",
    "RefusedError": "refused",
}
"""Errors by the class of cause they are; others are their own."""


def cause_of(error: BaseException) -> tuple[str, str]:
    """The class of cause of an error (or of what it came of), and what it says in one line."""
    said = one_line(str(error)) or type(error).__name__
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        return f"exit {code}", "called sys.exit" + (f": {error.code}" if isinstance(error.code, str) else "")
    for one in chain(error):
        if isinstance(one, OSError) and one.errno and one.errno in ERRNOS:
            return ERRNOS[one.errno], said
        if type(one).__name__ in CAUSES:
            return CAUSES[type(one).__name__], said
        if isinstance(one, RuntimeError) and NO_MEMORY.search(str(one)):
            return "out of memory", said
    if isinstance(error, SampleError) and error.__cause__:  # what the sample's own code raised
        return type(error.__cause__).__name__, said
    return type(error).__name__, said


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it was raised from."""
    seen = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__
