"""Random numbers that are not torch's. A graph cannot draw them, so every run of the program uses the same ones."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import contextvars
import importlib
import io
import itertools
import logging
import os
import random
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from backprint._torch.tensors import storage_id
from backprint.common.text import printable
from backprint.errors import CaptureError, for_program
from backprint.tracing import frames
from backprint.tracing.reach import is_installed, is_library
from backprint.tracing.state.process import generator_state, globals_kept, put_generator
from backprint.tracing.state.snapshot import Picture
from backprint.tracing.state.tensors import global_hooks, is_plain, untraced
from backprint.values.settings import OWN, foreign_states, put_foreign, random_state_digest


@dataclass(slots=True, eq=False)
class Chance:
    """The states of generators that are not torch's when a call was read, and which of them a run drew from.

    A graph cannot draw these numbers: every run of the program uses the same ones, and the graph has them as constants.
    `objects` are the generators that the program reaches and drew from, each with its earlier state. `after` has the
    states of the process's generators after a forward, where its backward starts; `context` has the ContextVars of
    that forward, which a run leaves behind.
    """

    states: dict[str, Any] = field(default_factory=foreign_states)
    drawn: set[str] = field(default_factory=set)
    objects: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    context: contextvars.Context = field(default_factory=contextvars.copy_context)

    def pins(self) -> dict[str, str]:
        """Return the digest of each state that the program's numbers depend on."""
        process = {name: random_state_digest(self.states[name]) for name in sorted(self.drawn)}
        return process | {name: random_state_digest(state) for name, (_, state) in self.objects.items()}

    def now(self) -> dict[str, str]:
        """Return the digests of the current states of the same generators."""
        process = {name: random_state_digest(state) for name, state in foreign_states().items() if name in self.drawn}
        return process | {
            name: random_state_digest(generator_state(source)) for name, (source, _) in self.objects.items()
        }


@contextlib.contextmanager
def same_chance(chance: Chance, picture: Picture | None, backward: bool = False) -> Iterator[None]:
    """Set generators that are not torch's to their state at the call, or after its forward; note which of them are
    drawn from.

    The process's generators have the caller's state again afterwards. Generators in the `picture` of what the program
    reaches are restored with it.
    """
    callers = foreign_states()
    begun = (backward and chance.after) or chance.states
    put_foreign(begun)
    for source, state in () if backward else chance.objects.values():
        put_generator(source, state)
    before = generators_in(picture)
    try:
        yield
        chance.after = foreign_states()
        chance.drawn.update(
            name
            for name, state in begun.items()
            if random_state_digest(state) != random_state_digest(chance.after[name])
        )
        for name, source, state in before:
            if random_state_digest(state) != random_state_digest(generator_state(source)):
                chance.objects.setdefault(name, (source, state))
    finally:
        put_foreign(callers)


def generators_in(picture: Picture | None) -> list[tuple[str, Any, Any]]:
    """Return the Python and numpy generators that a program reaches, with their states, except the process's own."""
    numpy = sys.modules.get("numpy")
    known = (random._inst, numpy.random.mtrand._rand if numpy else None)
    found = [
        (name, source)
        for name, source, _ in (picture.generators if picture is not None else ())
        if not isinstance(source, torch.Generator) and all(source is not each for each in known)
    ]
    return [
        (f"{OWN}{index} ({type(source).__name__}{name and f' {name}'})", source, generator_state(source))
        for index, (name, source) in enumerate(found)
    ]


# ----------------------------------------------------------------------------
# Remember and restore everything of the caller's that a program can reach.
# ----------------------------------------------------------------------------


@contextlib.contextmanager
def kept(*roots: Any) -> Iterator[Picture]:
    """Restore everything that is reachable from these roots afterwards, whatever happens inside.

    A warning names what was changed and could not be restored.
    """
    everywhere = *(("a hook", hook) for hook in global_hooks()), ("the root logger", logging.getLogger())
    picture = Picture([*(("", root) for root in roots), *everywhere], first=not OPEN)
    OPEN.append(picture)
    try:
        with globals_kept(), imports_seen(picture), no_exit_functions(), files_seen(picture):
            try:
                yield picture
            finally:
                picture.put_back()
    finally:
        OPEN.remove(picture)
        picture.close()
        if OPEN:
            OPEN[0].lost |= picture.lost
        elif picture.lost:
            warnings.warn(
                f"the program was run and has changed what cannot be restored: {listed(picture)}",
                stacklevel=users_level(),
            )


def users_level() -> int:
    """Return the level of the user's call above the caller, as `warnings.warn` counts levels."""
    frame: Any = sys._getframe(1)
    for level in itertools.count(1):
        if frame is None:
            break
        file = frame.f_code.co_filename
        if frames.is_users(file) and file != contextlib.__file__:
            return level
        frame = frame.f_back
    return 1


def listed(picture: Picture) -> str:
    """Name what a run has changed for good."""
    *most, last = list(picture.lost.values())[:SHOWN]
    more = len(picture.lost) - SHOWN
    return "; ".join((*most, last, *([f"and {more} more"] if more > 0 else [])))


SHOWN = 8
"""The most objects that a warning names."""


@contextlib.contextmanager
def imports_seen(picture: Picture) -> Iterator[None]:
    """Have the picture remember the user's modules that the program imports, as they are after the import."""
    if len(OPEN) > 1:
        yield  # the outermost Picture is told
        return
    before = builtins.__import__, importlib.import_module
    names, sizes = set(sys.modules), [len(sys.modules)]
    depth: list[Any] = []  # the imports that are under way: a module is whole when the outermost is over

    def importing(function: Callable[..., Any]) -> Callable[..., Any]:
        def import_(*args: Any, **kwargs: Any) -> Any:
            depth.append(None)
            try:
                return for_program(function, *args, **kwargs)
            finally:
                depth.pop()
                if not depth and len(sys.modules) != sizes[0]:
                    sizes[0] = len(sys.modules)
                    new = [module for name, module in list(sys.modules.items()) if name not in names]
                    names.update(sys.modules)
                    modules = [("", module) for module in new if isinstance(module, types.ModuleType)]
                    picture.go_on(modules, in_run=True)

        return import_

    builtins.__import__, importlib.import_module = importing(before[0]), importing(before[1])
    try:
        yield
    finally:
        builtins.__import__, importlib.import_module = before


@contextlib.contextmanager
def no_exit_functions() -> Iterator[None]:
    """Leave the functions that are called at exit as they are: what a program registers or takes out while it is
    captured would have to be undone, and nothing says which functions were registered before."""
    if len(OPEN) > 1:
        yield
        return
    register, unregister = atexit.register, atexit.unregister

    def register_(function: Any, *args: Any, **kwargs: Any) -> Any:
        return function if is_users_function(function) else register(function, *args, **kwargs)

    def unregister_(function: Any) -> None:
        if not is_users_function(function):
            unregister(function)

    with mock.patch.object(atexit, "register", register_), mock.patch.object(atexit, "unregister", unregister_):
        yield


WRITING = frozenset("wax+")
"""Letters of a mode in which a file is opened to be written."""


@contextlib.contextmanager
def files_seen(picture: Picture) -> Iterator[None]:
    """Note the files that the program opens to write, or saves tensors to: what is on the disk is not restored. A file
    that it maps into a tensor is no part of a graph, and the program is refused before it writes there."""
    if len(OPEN) > 1:
        yield
        return
    plain, save, thread = io.open, torch.save, threading.get_ident()
    torch_from_file: Callable[..., Any] = torch.from_file

    def note(file: Any, caller: str) -> None:
        if isinstance(file, (str, bytes, os.PathLike)) and frames.is_users(caller) and threading.get_ident() == thread:
            path = os.fsdecode(file)
            if path != os.devnull:
                picture.lost[hash(path)] = f"the file {printable(path)[:200]}, which each run of the program writes to"

    def open_(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if not WRITING.isdisjoint(mode):
            note(file, sys._getframe(1).f_code.co_filename)
        return plain(file, mode, *args, **kwargs)

    def save_(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        note(f, sys._getframe(1).f_code.co_filename)
        return save(obj, f, *args, **kwargs)

    def from_file_(filename: str, *args: Any, **kwargs: Any) -> Any:
        if frames.is_users(sys._getframe(1).f_code.co_filename):
            raise CaptureError(
                f"the program maps the file {printable(str(filename))[:200]} with torch.from_file"
                f"{frames.place(frames.here({}))}, and a graph reads no files: map it before, and pass the tensor",
                every_engine=True,
            )
        return torch_from_file(filename, *args, **kwargs)

    with (
        mock.patch.object(torch, "from_file", from_file_),
        mock.patch.object(builtins, "open", open_),
        mock.patch.object(io, "open", open_),
        mock.patch.object(torch, "save", save_),
    ):
        yield


def is_users_function(function: Any) -> bool:
    """Whether a function is the program's, and not one that a library registers once for the process."""
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType) or is_library(function):
        return False
    return not is_installed(str(function.__module__), function.__code__.co_filename)


OPEN: list[Picture] = []
"""The Pictures that will be restored."""


def is_copied(memory: int) -> bool:
    """Whether a Picture that is open has the content of a storage."""
    return any(memory in picture.copied for picture in OPEN)


def given_away(tensor: Tensor) -> None:
    """Keep the content of a tensor whose memory may be written unseen, however large it is."""
    if not is_plain(tensor) or tensor.layout is not torch.strided:
        return
    memory = storage_id(tensor.untyped_storage())
    with untraced():
        for picture in OPEN:
            for each in picture.tensors:
                if each.memory == memory and memory not in picture.copied:
                    picture.copied.add(memory)
                    each.copy()
