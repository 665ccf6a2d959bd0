"""The context of a verb in a sample's process: its Task, its stages and their seconds, and the row of a failure.

A verb is the function of a run that works on one sample; the row that it returns is what the run keeps of the sample. A
cause is why it failed, in a word or two that can be counted.
"""

from __future__ import annotations

import contextlib
import errno
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backprint.common.formats import GRAPHNET
from backprint.common.text import printable
from backprint.errors import SampleError, describe_defect, is_defect

# ------------------------------------------------------------------ stages


class _Clock:
    """The seconds of each stage. `on_stage` is called with a stage as it begins."""

    def __init__(self, on_stage: Callable[[str], None] = lambda name: None) -> None:
        self.on_stage = on_stage
        self.stage = "read"
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def time_stage(self, name: str) -> Iterator[None]:
        """Time a stage; one that raises stays the current one."""
        self.stage = name
        self.on_stage(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


_clock = _Clock()


def begin_clock(on_stage: Callable[[str], None]) -> _Clock:
    """Start a new clock for a new sample."""
    global _clock
    _clock = _Clock(on_stage)
    return _clock


def stage(name: str) -> contextlib.AbstractContextManager[None]:
    """Mark the next stage of a verb, for the ledger and the progress display: `with stage("capture"): …`."""
    return _clock.time_stage(name)


def current_stage() -> str:
    """Return the current stage of this process."""
    return _clock.stage


# ------------------------------------------------------------------ the task, and the row of a failure

TREES = "trees"
"""The folder of a sample's staging that holds trees beside the samples: `trees/NAME/X` becomes `OUT/NAME/X`."""

TREE_NAMES = ("train_forward", "train_backward", "eval_forward")

TREE_FILES = frozenset(GRAPHNET.files)
"""The names and files of such a tree, as in `tools/graphnet/write`, which loads PyTorch."""


@dataclass(frozen=True, slots=True)
class Task:
    """One sample to work on: its id in the ledger, its folder, and the known facts about it. Plain data, for JSON."""

    id: str
    folder: str
    family: str = ""
    kind: str = ""
    source_hash: str = ""
    memory: int = 0
    """The bytes of memory it may use."""
    most: int = 0
    """The bytes of memory it may use when it runs alone."""

    @property
    def path(self) -> Path:
        """The sample's folder."""
        return Path(self.folder)


def failure(cause: str, detail: str, stage: str, stages: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Return the row of a sample that failed."""
    return dict(verdict="failed", cause=cause, detail=one_line(detail), stage=stage, stages=dict(stages or {}))


def failure_of(error: BaseException, stage: str) -> dict[str, Any]:
    """Return the row of a sample that raised an error."""
    return failure(*cause_of(error), stage)


def one_line(text: str, most: int = 500) -> str:
    """Return a text as one printable line."""
    line = printable(" ".join(text.split()))
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
"""The cause of an error by its class; the cause of others is the class's name."""


def cause_of(error: BaseException) -> tuple[str, str]:
    """Return the cause of an error or of the errors it was raised from, and its message in one line: by the number of
    an error of the system, by the class, by what torch says of lack of memory; else the name of the class."""
    message = one_line(str(error)) or type(error).__name__
    if isinstance(error, SystemExit):
        # Python's own rule: no code is 0, and a text is 1.
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        return f"exit {code}", "called sys.exit" + (f": {error.code}" if isinstance(error.code, str) else "")
    for link in _error_chain(error):
        if isinstance(link, OSError) and link.errno and link.errno in ERRNOS:
            return ERRNOS[link.errno], message
        if type(link).__name__ in CAUSES:
            return CAUSES[type(link).__name__], message
        if isinstance(link, RuntimeError) and NO_MEMORY.search(str(link)):
            return "out of memory", message
    if isinstance(error, SampleError) and error.__cause__:  # what the sample's own code raised
        return type(error.__cause__).__name__, message
    if is_defect(error):
        message = one_line(f"a defect of Backprint: {describe_defect(error)}")
    return type(error).__name__, message


def _error_chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and the errors it was raised from."""
    seen = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__


def on_cpu(options: Options) -> bool:
    """Whether samples run on the CPU, so that workers see no GPU."""
    return not options.get("gpus") and (options.get("device") or "cpu").startswith("cpu")


Options = Mapping[str, Any]
