"""Where in the user's program we are: the line, the function and the module path, read off Python's own frames.

Where a graph runs node by node, the frames are torch's own, and the line is the one that the node was `told`. Private
torch APIs of this module, tried on torch 2.13: `torch.fx.traceback.current_meta`.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import re
import sys
from collections.abc import Iterator, Mapping
from types import FrameType

import torch
import torch.fx.traceback as fx_traceback

from backprint.graph.nouns import Source

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_EXAMPLES = os.path.join(_OURS, "examples", "")


@functools.cache
def is_users(file: str) -> bool:
    """Whether a file is neither torch's, nor ours, nor made up."""
    if file.startswith(_OURS):
        return file.startswith(_EXAMPLES)
    return not (file.startswith((_TORCH, "<frozen")) or file in ("<string>", "<eval_with_key>"))


_told: list[Source | None] = []


@contextlib.contextmanager
def at(line: Source | None) -> Iterator[None]:
    """While this runs we are at a line that was found before: of a graph that has lost its Python frames."""
    _told.append(line)
    try:
        yield
    finally:
        _told.pop()


def here(paths: Mapping[int, str], frame: FrameType | None = None) -> Source | None:
    """The innermost line of the user's, and the innermost module whose forward is running."""
    if _told:
        return _told[-1]
    frame = frame or sys._getframe(1)
    module, user = None, None
    while frame is not None and (user is None or (module is None and paths)):
        code = frame.f_code
        if code.co_filename.startswith(_OURS) and code.co_name in ("call", "_pulled"):
            break
        if module is None and paths and code.co_argcount and code.co_varnames[0] == "self":
            module = paths.get(id(frame.f_locals.get("self")))
        if user is None and is_users(code.co_filename):
            user = (code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return source(*user, module or "") if user else fx_traceback.current_meta.get(TOLD)


def printing() -> bool:
    """Whether a tensor is being shown as text: nothing that is computed for that reaches the program."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == torch._tensor_str.__file__:
            return True
        frame = frame.f_back  # type: ignore[assignment]  # the outermost frame has none, which ends the loop
    return False


TOLD = "backprint_source"
"""The key under which a node's metadata carries the Source that it was told."""


@contextlib.contextmanager
def told(where: Source | None) -> Iterator[None]:
    """What runs in this block comes from this line, where no frame of the user's says so."""
    meta = fx_traceback.current_meta
    before = meta.get(TOLD)
    meta[TOLD] = where
    try:
        yield
    finally:
        meta[TOLD] = before


def raised(error: BaseException, paths: Mapping[int, str]) -> Source | None:
    """The innermost line of the user's that an error came through."""
    trace, where = error.__traceback__, None
    while trace is not None:
        code = trace.tb_frame.f_code
        if is_users(code.co_filename) and (inner := here(paths, trace.tb_frame)):
            where = source(code.co_filename, trace.tb_lineno, code.co_name, inner.module)
        trace = trace.tb_next
    return where


def place(where: Source | None) -> str:
    """A line in a message, or nothing."""
    return f" at {where.file}:{where.line} in {where.function}: {where.code!r}" if where else ""


@functools.lru_cache(maxsize=65536)
def source(file: str, line: int, function: str, module: str) -> Source:
    """A Source as the text can hold it: one line, no machine's paths."""
    code = linecache.getline(file, line).strip()
    code = "".join(c if c.isprintable() else " " for c in code)[:160]
    function = _RESUMED.sub(r"\1", function).replace(":", "_")
    return Source(short(file), line, function, code, module.replace("]", ")"))


_RESUMED = re.compile(r"^(?:torch_dynamo_resume_in_)+(.*?)(?:_at_\d+)+$")
"""What Dynamo calls the rest of a function after a graph break: the user's function is in the middle."""


@functools.cache
def short(file: str) -> str:
    """A file's path relative to where Python found it, or to here; else its name."""
    file = os.path.abspath(file)
    for root in sorted((p for p in map(os.path.abspath, sys.path) if p != os.sep), key=len, reverse=True):
        if file.startswith(root + os.sep):
            file = file[len(root) + 1 :]
            break
    else:
        file = os.path.basename(file)
    return "".join(c if c.isprintable() and c != ":" else "_" for c in file)


def parsed(trace: str) -> tuple[str, int, str] | None:
    """File, line and function of the innermost line of the user's in a printed stack."""
    found = [(file, int(line), function) for file, line, function in _FRAME.findall(trace) if is_users(file)]
    return found[-1] if found else None


_FRAME = re.compile(r'^ *File "(.*)", line (\d+), in (\S+)', re.MULTILINE)
