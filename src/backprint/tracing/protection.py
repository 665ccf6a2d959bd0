"""Restore everything that a program reaches, and set the process as it was at capture, while the program runs again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from backprint.settings import default_device
from backprint.tracing.keep import kept
from backprint.tracing.process import EACH_RUN, GLOBALS
from backprint.tracing.program import CalledProgram, OwnObjects


@contextlib.contextmanager
def protected(program: CalledProgram) -> Iterator[None]:
    """Remember everything that the program reaches once, and restore it at the end, whatever happens inside."""
    held = program.target
    if held.picture is not None or held.target is None:
        yield
        return
    own = held if isinstance(held, OwnObjects) else None
    leaves = zip(program.leaf_names, program.leaves, strict=True)
    with kept(held.target, program.loss, dict(program.outside)) as picture:
        if own is not None:
            own.reached = frozenset(picture.by_id)
        picture.go_on_with_call(leaves, own.call if own is not None else ())
        picture.refuse_iterators(program.title)
        held.picture = picture
        try:
            yield
        finally:
            held.picture = None


@contextlib.contextmanager
def as_captured(program: CalledProgram) -> Iterator[None]:
    """Set the process-wide settings (autocast, default dtype, …) and the modules' train or eval mode as at capture.

    All settings that the run changes are set back, so that the next run begins as this one did.
    """
    held = program.target
    if not isinstance(held, OwnObjects):
        yield
        return
    before = {name: GLOBALS[name][0]() for name in EACH_RUN}
    flags = [(module, module.training) for module, _ in held.training]
    for module, training in held.training:
        if module.training != training:
            module.training = training
    put_globals(held.under)
    torch.clear_autocast_cache()  # its keys are tensors by identity, and their values may have changed
    try:
        with default_device(held.device):
            yield
    finally:
        torch.clear_autocast_cache()
        put_globals(before)
        for module, training in flags:
            if module.training != training:
                module.training = training


def put_globals(wanted: Mapping[str, Any]) -> None:
    """Set the settings that differ."""
    for name, value in wanted.items():
        read, put = GLOBALS[name]
        if read() != value:
            put(value)
