"""Find the line, the function and the module path of the user's program that is running, from Python's frames.

Where a graph runs node by node, the frames are torch's own, and the line is in the node's metadata (`SOURCE_KEY`).
A Source is a line of the program with its file, its function, and the path of the module whose forward runs. Most
functions that look for one take `paths`: the path of each module of the program, by the module's id.

A function mode is a TorchFunctionMode, whose `__torch_function__` runs between the user's call and torch's function.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import gc
import inspect
import io
import linecache
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeVar

import torch
import torch.fx.traceback as fx_traceback

from backprint._torch.tensors import PICKLING, printing_file
from backprint.graph.nouns import Source

F = TypeVar("F", bound=Callable[..., Any])

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_EXAMPLES = os.path.join(_OURS, "examples", "")
"""The folder of our examples, whose code is like a user's."""


@functools.cache
def is_users(file: str) -> bool:
    """Whether a file is the user's: not torch's, not of this package, and not generated."""
    if file.startswith(_OURS):
        return file.startswith(_EXAMPLES)
    if file == contextlib.__file__ or file.endswith("typing_extensions.py"):
        return False  # their wrappers call functions of torch that are decorated
    return not (file.startswith((_TORCH, "<frozen")) or file in ("<string>", "<eval_with_key>"))


def variables(frame: FrameType) -> dict[str, Any]:
    """Return a frame's variables. Before Python 3.13, `f_locals` of a function's frame fills a dict that the frame
    keeps, and that would keep tensors alive. It is cleared, unless others have made it before."""
    # Only the code of a function has CO_OPTIMIZED. The variables of a module or a class are a dict already.
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return dict(frame.f_locals)
    # The frame refers to its dict, if it has one.
    dictionaries_before = {id(dictionary) for dictionary in gc.get_referents(frame) if type(dictionary) is dict}
    snapshot = frame.f_locals
    variables_ = dict(snapshot)
    if type(snapshot) is dict and id(snapshot) not in dictionaries_before:
        snapshot.clear()
    return variables_


LIBRARY = ("nn", "optim", "distributions", "special", "linalg", "fft", "signal", "sparse")
"""The parts of torch that are written like user code: their lines are used where the stack has none of the user's."""

MODULES = os.path.join(_TORCH, "nn", "modules", "")
"""The folder of torch's own modules (`nn.Linear`)."""
PLUMBING = tuple(
    os.path.join(_TORCH, *path)
    for path in (("nn", "modules", "module.py"), ("nn", "parallel", ""), ("nn", "utils", "stateless.py"))
)
"""Files of torch through which every call of a module passes, so that they locate none."""


@functools.cache
def frame_rank(file: str) -> int:
    """Return how well a frame of torch's own locates a call: 2 for a module's forward, 1 for other library code, 0 for
    the rest."""
    if file.startswith(PLUMBING) or not file.startswith(_TORCH):
        return 0
    if file.startswith(MODULES):
        return 2
    return int(file[len(_TORCH) :].partition(os.sep)[0].removesuffix(".py") in LIBRARY)


MACHINERY = tuple(
    os.path.join(folder, *path.split("/"))
    for folder, paths in (
        (_TORCH, "_dynamo _functorch _library _ops.py _prims _refs _subclasses autograd distributed/tensor fx"),
        (_OURS, "trace/ tools/record/"),
    )
    for path in paths.split()
)
"""Files and folders in which no `self` is a module. In their frames it is not looked up, because reading one variable
of a frame costs as much as reading all of them."""


class Place(NamedTuple):
    """The place of a frame: a file, a line in it, and the function there."""

    file: str
    line: int
    function: str


_sources_set: list[Source | None] = []
"""The lines that `at` has set, the innermost last."""


@contextlib.contextmanager
def at(line: Source | None) -> Iterator[None]:
    """Let `here` return this line inside of the block: a line that was found earlier, for code that runs without the
    Python frames of the program."""
    _sources_set.append(line)
    try:
        yield
    finally:
        _sources_set.pop()


class Kind(NamedTuple):
    """What a frame that runs some code says about the line that is looked for. `calls_program` says that the code calls
    the program, so that the frames outside of it are not the program's. `is_users` says that the code is the user's,
    `rank` is its `frame_rank`, and `may_be_modules` says that its `self` may be a module."""

    code: CodeType
    calls_program: bool = False
    is_users: bool = False
    rank: int = 0
    may_be_modules: bool = False


PASSED = Kind(contextlib.suppress.__init__.__code__)
"""The Kind of all code whose frames say nothing: most of torch's own. Its `code` is an arbitrary one."""

_KINDS: dict[int, Kind] = {}
"""The Kind of each code by the code's id, because hashing a code object reads all of it. A Kind refers to its code, so
that no other code gets that id."""


def kind_of_code(code: CodeType) -> Kind:
    """Return the Kind of some code, and remember it in `_KINDS`."""
    file = code.co_filename
    takes_self = bool(code.co_argcount) and code.co_varnames[0] == "self"
    kind = Kind(
        code,
        calls_program=False,  # the decorator of that name enters the Kind of functions that do
        is_users=is_users(file),
        rank=frame_rank(file),
        may_be_modules=takes_self and not file.startswith(MACHINERY),
    )
    # One shared Kind for all code that says nothing, none of whose fields after `code` is true: `here` passes over its
    # frames by one comparison.
    if not any(kind[1:]) and file.startswith((_TORCH, _OURS)):
        _KEPT.append(code)
        kind = PASSED
    _KINDS[id(code)] = kind
    return kind


_KEPT: list[CodeType] = []
"""Code of the Kind PASSED, which does not refer to it: the code is kept here, so that no other code gets its id."""


def calls_program(function: F) -> F:
    """Mark a function of ours that calls the program or its backward: the frames outside it are not the program's."""
    _KINDS[id(function.__code__)] = Kind(function.__code__, calls_program=True)
    return function


def here(paths: Mapping[int, str], frame: FrameType | None = None) -> Source | None:
    """Return the innermost line of the user that runs, else of torch's own modules, with the path of the innermost
    module that runs; None if there is no such line. The search begins at `frame`, or at the caller's. Without `paths`,
    no module is looked for."""
    if _sources_set:  # by `at`, which sets the line that counts
        return _sources_set[-1]
    frame = frame or sys._getframe(1)
    module, user = None, None
    library: Place | None = None
    # The line and the module may be in different frames: the line in a helper, the module around it.
    while frame is not None and (user is None or (module is None and paths)):
        code = frame.f_code
        kind = _KINDS.get(id(code)) or kind_of_code(code)
        if kind is not PASSED:
            # Frames outside of this one are the caller's, not the program's.
            if kind.calls_program:
                break
            if module is None and paths and kind.may_be_modules:
                module = paths.get(id(frame.f_locals.get("self")))
            if user is None and kind.is_users:
                user = Place(code.co_filename, frame.f_lineno, code.co_name)
            # A frame farther out replaces one of torch's own only if it locates the call better (`frame_rank`).
            elif user is None and kind.rank > (0 if library is None else frame_rank(library.file)):
                library = Place(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    # A graph runs node by node: the node that runs now has the line (`at_line`).
    if user is None and SOURCE_KEY in fx_traceback.current_meta:
        return fx_traceback.current_meta[SOURCE_KEY]
    innermost = user or library
    return source(*innermost, module or "") if innermost else None


_APPLY = torch.autograd.function.BackwardCFunction.apply.__code__
"""The code that calls the backward of a custom autograd.Function."""


def line_in_backward() -> Source | None:
    """Return the innermost line of the user in the backward of a custom autograd.Function that runs now; None if no
    such backward runs."""
    frame: FrameType | None = sys._getframe(1)
    user = None
    while frame is not None:
        code = frame.f_code
        if code is _APPLY:  # torch's code that calls such a backward
            return source(*user, "") if user is not None else None
        if user is None and is_users(code.co_filename):
            user = Place(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return None


_SHOWN = (printing_file(), logging.__file__)
"""The files whose code runs while a tensor is printed or logged."""

_prints = threading.local()
"""`.depth` is how many calls of `print` to the screen are running in this thread. It cannot be an argument: the program
calls `print`, and torch calls the mode that asks."""


@contextlib.contextmanager
def noting_prints() -> Iterator[None]:
    """Track whether `print` is running, for `printing`: reads of values that only go to the screen are not guarded.

    The screen is where the caller's output goes when the run begins. Elsewhere (`redirect_stdout`, `file=`) the program
    itself can read what it printed.
    """
    original, screens = builtins.print, (sys.stdout, sys.stderr)

    @functools.wraps(original)
    def shown(*values: Any, **options: Any) -> None:
        """Print, and count the call while it runs if it prints to the screen."""
        file = options.get("file")
        # A text that goes into a StringIO or a file of the program's is a read like any other.
        shows = any((sys.stdout if file is None else file) is screen for screen in screens)
        _prints.depth = getattr(_prints, "depth", 0) + shows  # a bool counts as 0 or 1
        try:
            original(*values, **options)
        finally:
            _prints.depth -= shows

    builtins.print = shown
    try:
        yield
    finally:
        builtins.print = original


def called_by_user() -> bool:
    """Whether the user's own code, not torch's or ours, has called the function whose call a function mode handles
    now."""
    frame = sys._getframe(1)
    # Pass over what runs between the call and this question: the methods of Tensor in Python, and the mode.
    while frame is not None and (frame.f_code.co_filename in _TENSOR or is_handler(frame.f_code)):
        frame = frame.f_back  # type: ignore[assignment]  # the outermost frame has none, which ends the loop
    if frame is None:
        return False
    # Code that `exec` runs has no file: its module tells whose it is.
    file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__"))
    return is_users(file) or (file == "<string>" and module.partition(".")[0] not in ("torch", "backprint"))


def is_handler(code: CodeType) -> bool:
    """Whether code runs between a user's call of a torch function and `called_by_user`: it is of a function mode, or of
    a function that `handles_call` has marked."""
    return code.co_name in ("__torch_function__", "called_by_user") or id(code) in _HANDLERS


def handles_call(function: F) -> F:
    """Mark a function of ours that a mode's `__torch_function__` calls, and that asks `called_by_user`."""
    _HANDLERS[id(function.__code__)] = function.__code__
    return function


_HANDLERS: dict[int, CodeType] = {}
"""The code of the functions that `handles_call` has marked, by identity."""

_TENSOR = tuple(os.path.join(_TORCH, name) for name in ("_tensor.py", "overrides.py", "storage.py", "_ops.py"))
"""Files of torch whose code runs between a user's call of a method of Tensor and a function mode."""


def printing() -> bool:
    """Whether a tensor is being printed or logged: such reads do not influence the program."""
    if getattr(_prints, "depth", 0):
        return True
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename in _SHOWN:
            return not _logs_into_memory(frame)
        frame = frame.f_back  # type: ignore[assignment]  # the outermost frame has none, which ends the loop
    return False


def _logs_into_memory(frame: FrameType | None) -> bool:
    """Whether a log record goes to a handler that keeps the text in memory, where the program can read it, and that is
    the program's own: no handler of the root logger. `frame` is of the code that prints or logs."""
    while frame is not None and frame.f_code.co_filename in _SHOWN:
        handler = frame.f_locals.get("self")
        if isinstance(handler, logging.StreamHandler) and isinstance(handler.stream, io.StringIO):
            return handler not in logging.getLogger().handlers
        frame = frame.f_back
    return False


def pickling() -> bool:
    """Whether a tensor is being pickled, other than by `torch.save` to a file on disk. The program can read a pickle in
    memory, and with it the tensor's values."""
    frame = sys._getframe(1)
    pickles = False
    while frame is not None:
        code = frame.f_code
        # The method of Tensor that pickles, which is in the first of these files.
        pickles |= code.co_name == PICKLING and code.co_filename == _TENSOR[0]
        if pickles and code.co_name == "save" and code.co_filename == torch.serialization.__file__:
            file = frame.f_locals.get("f")
            return not isinstance(file, (str, os.PathLike, io.BufferedIOBase)) or isinstance(file, io.BytesIO)
        frame = frame.f_back  # type: ignore[assignment]  # the outermost frame has none, which ends the loop
    return pickles


SOURCE_KEY = "backprint_source"
"""The key, in the metadata of an fx node, of the node's Source."""


@contextlib.contextmanager
def at_line(where: Source | None) -> Iterator[None]:
    """Set the line that `here` returns in this block if the stack has no frame of the user's. It is put into the
    metadata that torch copies to each fx node."""
    meta = fx_traceback.current_meta
    before = {SOURCE_KEY: meta[SOURCE_KEY]} if SOURCE_KEY in meta else {}
    meta[SOURCE_KEY] = where
    try:
        yield
    finally:
        meta.pop(SOURCE_KEY, None)
        meta.update(before)


def source_of_error(error: BaseException, paths: Mapping[int, str]) -> Source | None:
    """Return the innermost line of the user that an error was raised through, with the path of the module that ran
    there; None if there is none."""
    trace, where = error.__traceback__, None
    while trace is not None:
        code = trace.tb_frame.f_code
        if is_users(code.co_filename) and (inner := here(paths, trace.tb_frame)):
            where = source(code.co_filename, trace.tb_lineno, code.co_name, inner.module)
        trace = trace.tb_next
    return where


def place(where: Source | None) -> str:
    """Return ` at FILE:LINE in FUNCTION: 'CODE'` for a message; '' without a line."""
    return f" at {where.file}:{where.line} in {where.function}: {where.code!r}" if where else ""


@functools.lru_cache(maxsize=65536)
def source(file: str, line: int, function: str, module: str) -> Source:
    """Return a Source that fits into a graph's text: one line, without absolute paths."""
    code = linecache.getline(file, line).strip()
    code = "".join(c if c.isprintable() else " " for c in code)[:160]
    # The text of a graph ends a module's path at `]` and a function's name at `:`.
    function = without_resumption(function).replace(":", "_")
    return Source(relative_path(file), line, function, code, module.replace("]", ")"))


def line_of_definition(function: Any) -> Source | None:
    """Return the line at which a function of the user's begins; None for one of a library or in C."""
    code = getattr(function, "__code__", None)
    if code is None or not is_users(code.co_filename):
        return None
    line = code.co_firstlineno  # the line of its first decorator, if it has any
    while linecache.getline(code.co_filename, line).lstrip().startswith("@"):
        line += 1
    return source(code.co_filename, line, code.co_name, "")


_RESUMED = re.compile(r"^(?:torch_dynamo_resume_in_)+(.*?)(?:_at_\d+)+$")
"""Dynamo's name for the rest of a function after a graph break: the user's function is in the middle."""


def without_resumption(function: str) -> str:
    """Return a function's name without what Dynamo adds for the rest of a function after a graph break."""
    return _RESUMED.sub(r"\1", function)


@functools.cache
def relative_path(file: str) -> str:
    """Return a file's path relative to `sys.path` or the working directory, else its name."""
    file = os.path.abspath(file)
    # The longest root first, because a folder and one inside of it may both be on the path.
    for root in sorted((p for p in map(os.path.abspath, sys.path) if p != os.sep), key=len, reverse=True):
        if file.startswith(root + os.sep):
            file = file[len(root) + 1 :]
            break
    else:
        file = os.path.basename(file)
    return "".join(c if c.isprintable() and c != ":" else "_" for c in file)


def place_in_trace(trace: str) -> Place | None:
    """Return the Place of the user's innermost line in a printed stack, else of torch's own modules; None if the stack
    has neither."""
    frames = [Place(file, int(line), function) for file, line, function in _FRAME.findall(trace)]
    users = [frame for frame in frames if is_users(frame.file)]
    return users[-1] if users else place_in_library(frames)


def functions_in_trace(trace: str) -> list[str]:
    """Return the functions of a printed stack, the outermost first."""
    return [function for _, _, function in _FRAME.findall(trace)]


def place_in_library(frames: Sequence[Place]) -> Place | None:
    """Return the innermost of these frames of a stack, outermost first, that is of torch's own modules, else of its
    other library code."""
    best: Place | None = None
    best_rank = 0  # of no use: `frame_rank` of any other code
    for frame in reversed(frames):
        if frame_rank(frame.file) > best_rank:
            best, best_rank = frame, frame_rank(frame.file)
    return best


def place_in_module(kind: type | str, target: Any) -> Place | None:
    """Return the Place where one of torch's own modules calls the function `target`, or one of that name, in its
    forward; None if the module is not torch's own. `kind` is the module's class or the class's dotted name. Dynamo
    keeps no stack of torch's own modules."""
    class_ = kind if isinstance(kind, type) else class_named(kind)
    forward = getattr(class_, "forward", None)
    code = getattr(forward, "__code__", None)
    if code is None or not frame_rank(code.co_filename):
        return None
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    first = code.co_firstlineno
    last = max((line for _, _, line in code.co_lines() if line), default=first)
    # The first line of the forward that calls a function of this name, or else the forward's first line.
    calls = (line for line in range(first, last + 1) if f"{name}(" in linecache.getline(code.co_filename, line))
    return Place(code.co_filename, next(calls, first), code.co_name)


def class_named(kind: str) -> Any:
    """Return a class by its dotted name, if its module is loaded."""
    module, _, name = kind.rpartition(".")
    return getattr(sys.modules.get(module), name, None)


_FRAME = re.compile(r'^ *File "(.*)", line (\d+), in (\S+)', re.MULTILINE)
"""A frame in a printed stack: its file, line and function."""
