"""Run a script as Python does: the same `__main__`, arguments, path and exit, and torch only when the script imports
it.

This module does not import torch: a script may set environment variables that torch reads when it is imported. A *spec*
here is Python's ModuleSpec: where a module is, and how it is loaded.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import importlib.util
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

from backprint.errors import UsageError, chained, describe_error, without_own_frames


@dataclass(frozen=True, slots=True)
class _Script:
    """A program to run as `__main__`: its name in messages, the file of its code, and its spec if it is run as
    `python -m NAME`."""

    name: str
    path: str
    spec: ModuleSpec | None = None


def script_at(place: Any) -> _Script:
    """Return the script of a file, with its path as Python sets it: `..` and links stay in it."""
    if not Path(place).is_file():
        raise UsageError(f"{place}: no such file")
    return _Script(os.path.basename(place), str(Path.cwd() / place))


def script_of_module(name: str) -> _Script:
    """Return the script that `python -m NAME` runs: the module, or `__main__` of a package. Nothing is imported. Raise
    if there is no such module of Python source."""
    spec = _spec_of_module(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _spec_of_module(f"{name}.__main__")
    if spec is None or not isinstance(spec.loader, SourceFileLoader) or spec.origin is None:
        raise UsageError(
            f"-m {name}: there is no such module of Python source in {os.getcwd()} or on sys.path; name it as for "
            "`python -m`"
        )
    return _Script(name, spec.origin, spec)


def _spec_of_module(name: str) -> ModuleSpec | None:
    """Return the spec of a module, searched in the current folder and then on sys.path; None if it is not there.
    `importlib.util.find_spec` would import the packages that it is in."""
    folders: Sequence[str] | None = [os.getcwd(), *sys.path]
    spec, parts = None, name.split(".")
    for count in range(1, len(parts) + 1):
        spec = None if folders is None else PathFinder.find_spec(".".join(parts[:count]), folders)
        if spec is None:
            return None
        folders = spec.submodule_search_locations  # of a package; None of a module, which has nothing inside
    return spec


def check_steps(steps: tuple[int, int]) -> None:
    """Raise if there are no such steps."""
    if not 0 <= steps[0] < steps[1]:
        raise UsageError(f"steps {steps[0]}:{steps[1]}: the first must be before the last, from 0 on")


def run_as_main(script: _Script, place: str, arguments: Sequence[str], stay: bool) -> None:
    """Run a script as `python PLACE ARGUMENTS` or `python -m NAME ARGUMENTS` does; its errors, and its exit, are
    raised. `place` is the script's path as the user wrote it.

    With `stay`, `__main__`, arguments and path are left for the threads and exit handlers that the script leaves
    behind.
    """
    module = _main_module(script)
    main_before = sys.modules["__main__"]
    before = sys.argv, list(sys.path), sys.orig_argv, main_before
    # `sys.orig_argv` begins with Python and its options. Backprint itself was called after them: `-m backprint ...`, or
    # a script at place 1. There the script stands now.
    options_end = sys.orig_argv.index("-m") if "-m" in sys.orig_argv else 1
    called = [place] if script.spec is None else ["-m", script.name]
    sys.orig_argv = [*sys.orig_argv[:options_end], *called, *arguments]
    sys.argv = [called[0], *arguments]
    if not sys.flags.safe_path:  # with `python -P` there is no entry for the script's folder
        sys.path[:1] = [os.getcwd() if script.spec else str(Path(script.path).resolve().parent)]
    MAIN_MODULES.append(main_before)  # keeps it alive: its frames still run
    try:
        if script.spec is not None:  # as Python does: `sys.argv[0]` is `-m` while the packages are imported
            if script.spec.parent:
                importlib.import_module(script.spec.parent)
            sys.argv[0] = script.path
        sys.modules["__main__"] = module
        exec(code_of(script.path), module.__dict__)
    finally:
        if not stay:
            sys.argv, sys.path[:], sys.orig_argv, sys.modules["__main__"] = before


MAIN_MODULES: list[ModuleType] = []
"""The `__main__` module before that of each script: it is kept alive, because its frames still run."""


def _main_module(script: _Script) -> ModuleType:
    """Return a `__main__` as Python makes it for a script."""
    spec = script.spec
    module = ModuleType("__main__")
    module.__dict__.update(
        __loader__=SourceFileLoader("__main__", script.path) if spec is None else spec.loader,
        __spec__=spec,
        __annotations__={},
        __builtins__=builtins,
        __file__=script.path,
        __cached__=None if spec is None else spec.cached,
        __package__=None if spec is None else spec.parent,
    )
    return module


def code_of(path: str) -> CodeType:
    """Compile a script. It does not inherit this module's `from __future__ import annotations`."""
    with io.open_code(path) as file:
        return compile(file.read(), path, "exec", dont_inherit=True)


def traceback_of_script(error: BaseException, path: str) -> TracebackType | None:
    """Return the traceback that Python would show: from the script's first line on, without our frames. `path` is the
    script's file. An error of a package that the script is in comes before that line: then it is the whole traceback
    without our frames."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    return without_own_frames(trace or error.__traceback__)


def show_without_own_frames(error: BaseException, path: str) -> None:
    """Make Python show an error of a script that ends the process without our frames: the hook that shows errors is
    replaced, and is put back when it runs. `path` is the script's file."""
    hook, trace = sys.excepthook, traceback_of_script(error, path)
    for other in chained(error):  # its causes and contexts, which Python shows too
        other.__traceback__ = without_own_frames(other.__traceback__)

    def shown(kind: type[BaseException], value: BaseException, whole: TracebackType | None) -> Any:
        sys.excepthook = hook
        if value is not error:  # another error, raised since
            return hook(kind, value, whole)
        return hook(kind, error.with_traceback(trace), trace)

    sys.excepthook = shown


# ---- When torch comes


def reporting_errors(act: Callable[[], None], tell: Callable[[str], None]) -> Callable[[], None]:
    """Return a function that calls `act`, and tells its error, if it raises one, in place of raising it."""

    def acting() -> None:
        try:
            act()
        except Exception as error:  # the script that imports torch goes on
            tell(f"no step is recorded: {describe_error(error)}")

    return acting


@contextlib.contextmanager
def on_import(name: str, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` once in this block: now if the module `name` is loaded, else after it was imported; not at all if it
    never is."""
    if name in sys.modules:
        act()
        yield
        return
    finder = _ImportFinder(name, act)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        finder.leave()


class _ImportFinder(MetaPathFinder):
    """Finds one module through the other finders, and calls `act` after it was loaded. It removes itself first, so that
    `find_spec` below does not find it again."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self.name, self.act = name, act

    def leave(self) -> None:
        """Stop finding modules."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of the module, as the other finders have it, with a loader that calls `act`."""
        if name != self.name:
            return None
        self.leave()
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _CallingLoader(spec.loader, self.act)
        return spec


class _CallingLoader(Loader):
    """Loads a module by another loader, and calls `act` after that."""

    def __init__(self, loader: Loader, act: Callable[[], None]) -> None:
        self.loader, self.act = loader, act

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module shall have its own loader, as without us; Python has put this one there.
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.act()
