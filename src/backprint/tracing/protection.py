"""What a program reaches, and what held for the process when it was captured, while it runs again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from backprint.tracing.keep import kept
from backprint.tracing.process import GLOBALS, SWITCHES
from backprint.tracing.program import CalledProgram, OwnObjects


@contextlib.contextmanager
def protected(program: CalledProgram) -> Iterator[None]:
    """Everything that the program reaches as it was, whatever happens inside: remembered once, put back at the end."""
    held = program.target
    if not isinstance(held, OwnObjects) or held.picture is not None or held.target is None:
        yield
        return
    with kept(held.target, held.loss, dict(program.outside)) as picture:
        held.reached = frozenset(picture.by_id)
        picture.go_on([("", held.call)])
        picture.refuse_iterators(program.title)
        held.picture = picture
        try:
            yield
        finally:
            held.picture = None


@contextlib.contextmanager
def as_captured(program: CalledProgram) -> Iterator[None]:
    """What held at capture for the process (autocast, default dtype, …) and for the modules (train or eval mode)."""
    held = program.target
    if not isinstance(held, OwnObjects):
        yield
        return
    before = {name: GLOBALS[name][0]() for name in SWITCHES}
    flags = [(module, module.training) for module, _ in held.training]
    for module, training in held.training:
        if module.training != training:
            module.training = training
    put_globals(held.under)
    torch.clear_autocast_cache()  # it goes by a tensor's identity, and what is in the tensor may be another now
    try:
        yield
    finally:
        torch.clear_autocast_cache()
        put_globals(before)
        for module, training in flags:
            if module.training != training:
                module.training = training


def put_globals(wanted: Mapping[str, Any]) -> None:
    """Switch what differs from this."""
    for name, value in wanted.items():
        read, put = GLOBALS[name]
        if read() != value:
            put(value)
