"""Patches that are active while a program is watched: they note or refuse calls that are not operators, such as hooks,
threads and seeds."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from backprint._torch.script import scripts_seen
from backprint._torch.tensors import overlaps_noted
from backprint.errors import CaptureError
from backprint.tracing import frames
from backprint.tracing.program import CalledProgram
from backprint.tracing.unseen import HookWatch, note_memory
from backprint.tracing.watch import Sighting


@contextlib.contextmanager
def watching(program: CalledProgram, seen: Sighting, paths: Mapping[int, str], compiled: bool) -> Iterator[None]:
    """Watch everything about a run except its operators, which `Watch` sees."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(frames.seeing_prints())
        hooks = stack.enter_context(HookWatch(seen, paths))
        stack.enter_context(scripts_seen(hooks.read_by_script))
        stack.enter_context(seeing_packs(seen, paths))
        stack.enter_context(seeing_threads(seen, paths))
        stack.enter_context(seeing_overlaps(seen, paths))
        if compiled:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        if program.world is not None:
            stack.enter_context(program.world.entered())
        stack.enter_context(no_seeding(program))
        yield


@contextlib.contextmanager
def seeing_threads(seen: Sighting, paths: Mapping[int, str]) -> Iterator[None]:
    """Note where a program starts threads."""
    before, ours = threading.Thread.start, threading.get_ident()

    def start(self: threading.Thread) -> None:
        if threading.get_ident() == ours:
            seen.threads.append(frames.here(paths))
        before(self)

    threading.Thread.start = start  # type: ignore[method-assign]  # put back below
    try:
        yield
    finally:
        threading.Thread.start = before  # type: ignore[method-assign]  # as it was


@contextlib.contextmanager
def seeing_overlaps(seen: Sighting, paths: Mapping[int, str]) -> Iterator[None]:
    """Note where a program asks whether tensors overlap in memory."""
    with overlaps_noted(lambda tensors, function: note_memory(seen, tensors, function, frames.here(paths))):
        yield


@contextlib.contextmanager
def seeing_packs(seen: Sighting, paths: Mapping[int, str]) -> Iterator[None]:
    """Note where a program enters `saved_tensors_hooks`. Those of a checkpoint are left out: they are recognised
    elsewhere."""
    kind = torch.autograd.graph.saved_tensors_hooks
    before, ours = kind.__enter__, threading.get_ident()

    def note_packing(self: Any) -> Any:
        if threading.get_ident() == ours and not type(self).__module__.startswith("torch.utils.checkpoint"):
            seen.packs.append(frames.here(paths))
        seen.checkpoints = True
        return before(self)

    kind.__enter__ = note_packing
    try:
        yield
    finally:
        kind.__enter__ = before


@contextlib.contextmanager
def no_seeding(program: CalledProgram) -> Iterator[None]:
    """Refuse a program that sets or reads the seed: a graph draws from its caller's seed."""

    before = torch.manual_seed, torch.random.manual_seed, torch.initial_seed, torch.random.initial_seed
    ours = threading.get_ident()

    def refuse(seed: int) -> Any:
        if threading.get_ident() != ours:
            return before[0](seed)
        raise CaptureError(
            f"{program.title} calls torch.manual_seed({seed}) while it runs: a graph draws from its caller's seed. "
            "Seed outside of the captured call"
        )

    def refuse_read() -> int:
        if threading.get_ident() != ours:
            return before[2]()
        raise CaptureError(
            f"{program.title} reads torch.initial_seed() while it runs: a graph draws from its caller's seed, and "
            "does not know it. Pass the number as an argument"
        )

    torch.manual_seed = torch.random.manual_seed = refuse
    torch.initial_seed = torch.random.initial_seed = refuse_read
    try:
        yield
    finally:
        torch.manual_seed, torch.random.manual_seed, torch.initial_seed, torch.random.initial_seed = before
