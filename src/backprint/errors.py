"""Every error Backprint raises, as one tree.

    BackprintError
    ├── UsageError       the call itself is wrong                    (also a ValueError)
    │   ├── SeveralError         one program is needed, and the text names a dict or a list of them
    │   └── NothingFoundError    no sample is where the call looks   (exit code 3)
    ├── PlaceError       a run's own folder is gone, full or not writable, and what to do
    ├── CaptureError     this program cannot be captured, and why
    │   └── DataDependentError   it reads values that tracing does not have
    ├── GraphError       a graph is malformed, or text is not a graph
    │   └── RefusedError         a name, operator or construct outside the known ones
    ├── SampleError      a folder is not a whole, readable sample
    ├── ReplayError      a graph cannot run on these inputs
    │   └── GuardError           these inputs break a condition that the capture assumes
    ├── RegionError      a region's dump cannot be written or read
    ├── RanksError       the ranks of a distributed step do not fit each other
    ├── CheckError       a function that bp.check compared is wrong   (also an AssertionError)
    └── PrivateApiError  this torch lacks a private name that Backprint needs

A measured difference is not an error: it is a Verdict. `bp.check` alone raises for one, because it stands in tests.
"""

from __future__ import annotations

import errno
import functools
import os
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, TracebackType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Error numbers of a file system that takes no more files."""

NO_PERMISSION = (errno.EACCES, errno.EPERM)
"""Error numbers of a file system that this user may not write to."""


class BackprintError(Exception):
    """The root of the tree: catch this to catch all of ours."""


class UsageError(BackprintError, ValueError):
    """The call is wrong: an unknown option, a mask of the wrong length, an ambiguous name."""


class NothingFoundError(UsageError):
    """There is nothing to look at: no sample is in the folder, or none is chosen."""


class SeveralError(UsageError):
    """The text names several programs, where one is needed; `several` has them by their keys."""

    def __init__(self, message: str, several: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.several = several


class PlaceError(BackprintError):
    """A run cannot write its files: its folder was removed, or the disk is full. No sample is the cause."""


class CaptureError(BackprintError):
    """The program cannot be captured; the message names the construct and what to do.

    `every_engine` says that no other engine can capture it either.
    """

    def __init__(self, message: str = "", *, every_engine: bool = False) -> None:
        super().__init__(message)
        self.every_engine = every_engine


class DataDependentError(CaptureError):
    """The program reads a tensor's values while it is traced without values."""


class GraphError(BackprintError):
    """A graph breaks its own rules, or a text is not the text of a graph."""


class RefusedError(GraphError):
    """A name, operator or construct that the format does not know; nothing of it was run."""


class DeviceAssertError(RefusedError):
    """A call that a GPU's kernel would assert against, which ends the process's use of the GPU; it was not made."""


class SampleError(BackprintError):
    """A folder is not a readable sample: missing, truncated, forged or of a newer format."""


class ReplayError(BackprintError):
    """A graph cannot run on these inputs."""


class GuardError(ReplayError):
    """The inputs break a guard: a condition on a value or a shape that the capture assumes."""


class RegionError(BackprintError):
    """A region's dump cannot be written, or a folder is not a dump."""


class RanksError(BackprintError):
    """The ranks of a distributed step do not fit each other: one raises, or they wait for each other."""


class CheckError(BackprintError, AssertionError):
    """A function is not what its reference is, or its backward not the derivative; the message has the table."""


class PrivateApiError(BackprintError):
    """This version of torch has no private name that Backprint uses: the message has the name and what needs it."""


# ---- Defects of Backprint
#
# An engine may refuse a program, the program may raise, and torch may fail to trace it: `auto` then asks another engine
# if the cause calls for one, and says why. A defect of Backprint is none of these. It is raised where one engine was
# requested; `auto` warns with its traceback, and asks another. Who raised an error is read from the innermost frame of
# its traceback. Operators have no frames: a function of Backprint that calls one for the program does so through
# `for_program`. *Ours* is code of this package but its examples; *standard* code is of Python's own library.

# With a separator at the end, so that no folder beside it begins with the same letters.
OURS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
EXAMPLES = os.path.join(OURS, "examples", "")
STANDARD = tuple({os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib")})
INSTALLED = ("site-packages", "dist-packages")
"""Folders of packages, which are inside the folder of the standard library."""

MACHINE_ERRORS = (MemoryError, OSError, Warning)
"""Errors that the machine or the settings of the process cause, wherever they are raised: no memory, a full disk,
warnings that are errors. `torch.OutOfMemoryError` is another, by name, because this module does not import torch."""


def for_program(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call an operator, or a function of the program or of torch, whose errors are not defects of Backprint."""
    return function(*args, **kwargs)


def is_defect(error: BaseException) -> bool:
    """Whether an error is a defect of Backprint: neither a refusal nor an error of the program, of torch or of the
    machine."""
    return any(raised_by_us(cause) for cause in causes(error))


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors that it was raised from, up to a refusal. A ReplayError is no end: it only says at
    which step the run of a graph ended."""
    seen: set[int] = set()
    queue: list[BaseException | None] = [error]
    while queue:
        cause = queue.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        if not isinstance(cause, BackprintError) or isinstance(cause, ReplayError):
            queue += [cause.__cause__, getattr(cause, "inner_exception", None)]  # Dynamo's, of what a backend raises


def raised_by_us(error: BaseException) -> bool:
    """Whether a frame of Backprint raised an error that is no refusal."""
    if not isinstance(error, Exception) or isinstance(error, (BackprintError, *MACHINE_ERRORS)):
        return False
    if type(error).__name__ == "OutOfMemoryError":  # torch's, by name: see MACHINE_ERRORS
        return False
    # Of the frames that are not Python's own, the innermost raised the error.
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    code = next((code for code in reversed(codes) if not is_standard(code)), None)
    return code is not None and is_ours(code)


def is_standard(code: CodeType) -> bool:
    """Whether code is Python's own, which raises for whoever called it."""
    name = code.co_filename
    return name.startswith("<frozen") or (name.startswith(STANDARD) and not any(folder in name for folder in INSTALLED))


def is_ours(code: CodeType) -> bool:
    """Whether code is Backprint's own, no example, and not one of the two functions that only pass the program's errors
    on."""
    name = os.path.abspath(code.co_filename)
    passing = (for_program.__code__, CODE_OF_FACE)
    return name.startswith(OURS) and not name.startswith(EXAMPLES) and code not in passing


def describe_defect(error: BaseException) -> str:
    """Return a defect as one line: what, and in which line of Backprint."""
    lines = [
        f"{os.path.relpath(frame.f_code.co_filename, OURS)}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_ours(frame.f_code)
    ]
    return f"{type(error).__name__}: {error} ({lines[-1] if lines else 'no line'})"


def describe_error(error: BaseException) -> str:
    """Return an error as a text for a program that goes on: a defect with its traceback, any other in one line."""
    if not is_defect(error):
        return f"{type(error).__name__}: {error}"
    trace = "".join(traceback.format_exception(error)).rstrip()
    return f"a defect of Backprint, please report it: {describe_defect(error)}\n{trace}"


# ---- Tracebacks of the program's own errors, without our frames


def with_frames_of_program(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that users call: an error that the program raises in it shows the program's frames and
    torch's, and of ours that of `call` alone."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            # The first entry of the traceback is the frame of `call`, which Python has put there.
            if is_of_program(error) and (head := error.__traceback__) is not None:
                head.tb_next = without_own_frames(head.tb_next)
            for other in chained(error):
                if is_of_program(other):
                    other.__traceback__ = without_own_frames(other.__traceback__)
            raise

    return call


# All functions that it wraps share the code of `call`.
CODE_OF_FACE = with_frames_of_program(len).__code__
"""The code of the frame of ours that stays in such a traceback."""


def is_of_program(error: BaseException) -> bool:
    """Whether the program raised an error: no refusal, no defect, and raised in its code or in code called for it."""
    if isinstance(error, BackprintError) or is_defect(error):
        return False
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    # Frames before the first of ours are the caller's. After it, the program raised the error in its own code, or in
    # torch's after a call by `for_program`.
    first_of_ours = next((index for index, code in enumerate(codes) if is_ours(code)), len(codes))
    first_call = next((index for index, code in enumerate(codes) if code is for_program.__code__), len(codes))
    after_call = codes[first_call:]
    return any(map(is_of_user, codes[first_of_ours:])) or any(
        not code.co_filename.startswith(OURS) for code in after_call
    )


def is_of_user(code: CodeType) -> bool:
    """Whether code is neither ours, nor Python's, nor of an installed package."""
    name = os.path.abspath(code.co_filename)
    is_installed = any(os.sep + folder + os.sep in name for folder in INSTALLED)
    return not (is_standard(code) or is_installed or name.startswith(OURS) or code.co_filename.startswith("<"))


def chained(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors that an error was raised from, or while handling."""
    seen, queue = {id(error)}, [error.__cause__, error.__context__]
    while queue:
        other = queue.pop()
        if other is not None and id(other) not in seen:
            seen.add(id(other))
            yield other
            queue += [other.__cause__, other.__context__]


# Frames of torch between the program and us: wrappers of functions that Dynamo does not trace, and calls of operators.
TORCH_FILES_CALLING_US = (os.path.join("torch", "_compile.py"), os.path.join("_dynamo", "eval_frame.py"))
TORCH_FILES_CALLED_BY_US = os.path.join("torch", "_ops.py")


def without_own_frames(trace: TracebackType | None, besides: str = "") -> TracebackType | None:
    """Return a traceback without our frames, without torch's and Python's frames around them, and without those after
    ours of the package in the folder `besides`; None if no frame is left."""
    kept: list[TracebackType] = []
    ours = False  # whether the last frame was ours, or counts as one
    while trace is not None:
        code = trace.tb_frame.f_code
        file = code.co_filename
        before, ours = ours, file.startswith(OURS) and not file.startswith(EXAMPLES)
        if ours:
            while kept and kept[-1].tb_frame.f_code.co_filename.endswith(TORCH_FILES_CALLING_US):
                kept.pop()
        elif before and (is_standard(code) or (besides and file.startswith(besides))):
            ours = True  # a context manager or an import between two frames of ours, or before the program's
        elif not (before and file.endswith(TORCH_FILES_CALLED_BY_US)):
            kept.append(trace)
        trace = trace.tb_next
    rebuilt = None  # the traceback of the entries that are kept, made from its end
    for entry in reversed(kept):
        # An interrupt may come at an instruction that Python gives no line: None here, -1 in what is made.
        line = -1 if entry.tb_lineno is None else entry.tb_lineno
        rebuilt = TracebackType(rebuilt, entry.tb_frame, entry.tb_lasti, line)
    return rebuilt
