"""`capture`: make a Capture of a call, and restore everything of the caller's."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from backprint._torch.modules import COMPILED
from backprint.errors import CaptureError, UsageError
from backprint.graph.nouns import Capture
from backprint.plain import printable
from backprint.settings import outside_modes, quiet_random
from backprint.tracing import derivatives
from backprint.tracing.call import read_call
from backprint.tracing.captured import capture_of
from backprint.tracing.choice import Check, by_auto, by_engine
from backprint.tracing.custom import with_bodies
from backprint.tracing.cut import PARTITIONS
from backprint.tracing.engines import ENGINES, check_engine, requests
from backprint.tracing.made import Options
from backprint.tracing.protection import protected
from backprint.tracing.refusals import callers_modes
from backprint.tracing.witness import second_order

MODES = (None, "train", "eval")


AT_WORK = threading.local()
"""Whether this thread is capturing a call."""


@contextlib.contextmanager
def not_within_another() -> Iterator[None]:
    """Refuse a capture in the middle of another of this thread, where torch's modes and the arguments are not as they
    were: in a signal handler, or by the program that is captured."""
    if getattr(AT_WORK, "capturing", False):
        raise CaptureError(
            "this thread is in the middle of a capture: bp.capture was called by a signal handler, or by the program "
            "that is captured; call it when the capture has ended"
        )
    AT_WORK.capturing = True
    try:
        yield
    finally:
        AT_WORK.capturing = False


@not_within_another()
@with_bodies
def capture_call(
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    engine: str = "auto",
    mode: str | None = None,
    loss: Callable[[Any], Any] | None = None,
    requires_grad: Any = None,
    order: int = 1,
    name: str | None = None,
    check: Check = lambda capture, program: None,
    **asked: Any,
) -> Capture:
    """Capture the forward and backward of `target(*args, **kwargs)`; `asked` are the fields of Options."""
    options = Options(**asked)
    check_options(target, engine, mode, options.partition, order)
    specialize = bool(options.specialize)
    program = read_call(target, args, kwargs, requires_grad, mode, loss, options.fake, specialize)
    requested = requests(program, options, order)
    check_engine(engine, requested)
    with quiet_random(), callers_modes(), outside_modes(), protected(program), derivatives.explained(lambda: program):
        if order == 2:
            program = second_order(program)
        call = {"engine": engine, "mode": mode, "loss": loss, "requires_grad": requires_grad, **asked}
        named = functools.partial(capture_of, name=name, asked=call)
        if engine == "auto":
            capture = by_auto(program, options, requested, check, named)
        else:
            capture = by_engine(program, options, engine, check, named)
    return capture


def check_options(target: Any, engine: str, mode: Any, partition: Any, order: int) -> None:
    """Refuse by name options and targets that are not supported."""
    if order not in (1, 2):
        raise UsageError(
            f"order={order!r} is not one of 1 (the backward), 2 (its backward): for a higher order, capture a function "
            "that calls torch.autograd.grad itself"
        )
    if engine not in ("auto", *ENGINES):
        raise UsageError(f"engine={engine!r} is not one of auto, {', '.join(ENGINES)}")
    if mode not in MODES:
        raise UsageError(f"mode={mode!r} is not one of None (as it is), 'train', 'eval'")
    if mode is not None and not isinstance(target, nn.Module):
        raise UsageError(f"mode={mode!r} needs a module, and {describe_target(target)} is not one")
    if isinstance(partition, str) and partition not in PARTITIONS:
        raise UsageError(f"partition={partition!r} is not one of {', '.join(map(repr, PARTITIONS))}, nor a callable")
    if not callable(target):
        raise UsageError(
            f"a target must be a module, a function or the path of a sample, and {describe_target(target)} is not "
            "callable"
        )
    if isinstance(target, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise CaptureError(
            f"{describe_target(target)} is TorchScript, which runs no Python: capture the module it was made from"
        )
    if hasattr(target, COMPILED):
        raise CaptureError(f"{describe_target(target)} is compiled already: capture the module in its ._orig_mod")
    if isinstance(target, nn.parallel.DistributedDataParallel) or len(getattr(target, "device_ids", None) or ()) > 1:
        raise CaptureError(f"{type(target).__name__} spreads a module over devices: capture its .module")
    if isinstance(target, nn.Module):
        lazy = [name for name, p in (*target.named_parameters(), *target.named_buffers()) if nn.parameter.is_lazy(p)]
        if lazy:
            raise CaptureError(f"{lazy[0]} has no shape yet: run the module once, so that its lazy parameters are made")


LONGEST = 4096
"""The most characters of a name."""


def describe_target(target: Any) -> str:
    """Return a callable's name, or its type's, as text that can be printed."""
    return printable(str(getattr(target, "__name__", None) or type(target).__name__))[:LONGEST]
