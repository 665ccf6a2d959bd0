"""Run a script as Python does: the same `__main__`, arguments, path and exit, and torch only when it imports it.

This module does not import torch: a script may set environment variables that torch reads when it is imported.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib.util
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

from backprint.errors import UsageError, describe_error


def check_script(script: Any) -> None:
    """Raise if there is no such file."""
    if not Path(script).is_file():
        raise UsageError(f"{script}: no such file")


def check_steps(steps: tuple[int, int]) -> None:
    """Raise if there are no such steps."""
    if not 0 <= steps[0] < steps[1]:
        raise UsageError(f"steps {steps[0]}:{steps[1]}: the first must be before the last, from 0 on")


def run_as_main(script: Any, arguments: Sequence[str], stay: bool) -> None:
    """Run a script as `python SCRIPT ARGUMENTS` does; its errors, and its exit, are raised.

    With `stay`, `__main__`, arguments and path are left for the threads and exit handlers that the script leaves
    behind.
    """
    path = path_of(script)
    module = main_module(path)
    before = sys.argv, list(sys.path), sys.orig_argv, sys.modules["__main__"]
    sys.argv = [str(script), *arguments]
    before_module = sys.orig_argv.index("-m") if "-m" in sys.orig_argv else 1
    sys.orig_argv = [*sys.orig_argv[:before_module], *sys.argv]
    if not sys.flags.safe_path:
        sys.path[:1] = [str(Path(path).resolve().parent)]
    sys.modules["__main__"] = module
    MAIN_MODULES.append(before[-1])  # the module that Python started with, whose frames still run
    try:
        exec(code_of(path), module.__dict__)
    finally:
        if not stay:
            sys.argv, sys.path[:], sys.orig_argv, sys.modules["__main__"] = before


def path_of(script: Any) -> str:
    """Return the path of a script as Python sets it: `..` and links stay in it."""
    return str(Path.cwd() / script)


MAIN_MODULES: list[ModuleType] = []
"""The `__main__` module before that of each script."""


def main_module(path: str) -> ModuleType:
    """Return a `__main__` as Python makes it for a script."""
    module = ModuleType("__main__")
    module.__dict__.update(
        __loader__=SourceFileLoader("__main__", path),
        __spec__=None,
        __annotations__={},
        __builtins__=builtins,
        __file__=path,
        __cached__=None,
    )
    return module


def code_of(path: str) -> CodeType:
    with io.open_code(path) as file:
        return compile(file.read(), path, "exec", dont_inherit=True)


def traceback_of_script(error: BaseException, path: str) -> TracebackType | None:
    """Return the traceback that Python would show: from the script's first line on, without our frames."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    return without_own_frames(trace)


def without_own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Remove our frames from a traceback, and torch's frames around them."""
    kept: list[TracebackType] = []
    ours = False
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        before, ours = ours, file.startswith(HERE)
        if ours:
            while kept and kept[-1].tb_frame.f_code.co_filename.endswith(TORCH_FILES_CALLING_US):
                kept.pop()
        elif not (before and file.endswith(TORCH_FILES_CALLED_BY_US)):
            kept.append(trace)
        trace = trace.tb_next
    rebuilt = None
    for entry in reversed(kept):
        # An interrupt may come at an instruction that Python gives no line: None here, -1 in what is made.
        rebuilt = TracebackType(
            rebuilt, entry.tb_frame, entry.tb_lasti, -1 if entry.tb_lineno is None else entry.tb_lineno
        )
    return rebuilt


HERE = str(Path(__file__).parents[2]) + os.sep
TORCH_FILES_CALLING_US = (os.path.join("torch", "_compile.py"), os.path.join("_dynamo", "eval_frame.py"))
TORCH_FILES_CALLED_BY_US = os.path.join("torch", "_ops.py")


def show_without_own_frames(error: BaseException, path: str) -> None:
    """Make Python show an error that ends it without our frames."""
    hook, trace = sys.excepthook, traceback_of_script(error, path)
    seen, queue = {id(error)}, [error.__cause__, error.__context__]
    while queue:
        other = queue.pop()
        if other is not None and id(other) not in seen:
            seen.add(id(other))
            other.__traceback__ = without_own_frames(other.__traceback__)
            queue += [other.__cause__, other.__context__]

    def shown(kind: type[BaseException], value: BaseException, whole: TracebackType | None) -> Any:
        sys.excepthook = hook
        if value is not error:
            return hook(kind, value, whole)
        return hook(kind, error.with_traceback(trace), trace)

    sys.excepthook = shown


# ---- When torch comes


def reporting_errors(act: Callable[[], None], tell: Callable[[str], None]) -> Callable[[], None]:
    """Return `act` with a message instead of any error."""

    def acting() -> None:
        try:
            act()
        except Exception as error:  # the script that imports torch goes on
            tell(f"no step is recorded: {describe_error(error)}")

    return acting


@contextlib.contextmanager
def on_import(name: str, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` once in this block: after a module was imported, or now if it is loaded."""
    if name in sys.modules:
        act()
        yield
        return
    finder = ImportFinder(name, act)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        finder.leave()


class ImportFinder(MetaPathFinder):
    """Finds one module through the other finders, and calls `act` after it was loaded."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self.name, self.act = name, act

    def leave(self) -> None:
        """Stop finding modules."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        self.leave()
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = CallingLoader(spec.loader, self.act)
        return spec


class CallingLoader(Loader):
    """Wraps a loader, and calls `act` after it."""

    def __init__(self, loader: Loader, act: Callable[[], None]) -> None:
        self.loader, self.act = loader, act

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.act()
