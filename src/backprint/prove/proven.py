"""A call captured by an engine and held against the program: what `bp.capture` does with a callable.

This joins `trace/`, which gives a Capture, and the proof of it. Options that a user writes as text are resolved here.
A recorded step is proven before it is taken, and a stamped Capture is compared with a trace in full. It imports torch
when it is called.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from backprint.common.factories import find_factory
from backprint.common.text import check_sequence
from backprint.errors import CaptureError, UsageError
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.links import collective_steps
from backprint.graph.nouns import Capture, stamp_of
from backprint.graph.verdicts import REFUTED, Verdict

if TYPE_CHECKING:
    from backprint.sample.inputs import Inputs
    from backprint.values.exchanges import Peers

NEEDS_GROUP = ("Default process group has not been initialized", "Error initializing torch.distributed")
"""How PyTorch's errors begin that say that a program needs a process group."""


@contextlib.contextmanager
def with_advice_on_ranks() -> Iterator[None]:
    """Say what to do where a program raises because it has no process group."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith(NEEDS_GROUP):
            raise
        raise UsageError(
            f"the program is one of several ranks ({error}): capture them all here, without a process group, with "
            "world=2 (--world 2), or run it under torchrun, where it has one"
        ) from error


@with_advice_on_ranks()
def capture_with_recipes(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: CaptureOptions,
    recipes: Inputs | None = None,
    peers: Peers | None = None,
) -> Capture:
    """Return the Capture of a call; `recipes` are those that made its tensors, if any did, and `peers` answer its
    collectives."""
    from backprint.prove.capturing import capture_call
    from backprint.sample.inputs import with_recipes

    return with_recipes(capture_call(target, args, kwargs, options, peers=peers), recipes)


LOSSES = ("sum", "mean")
"""Losses of the first floating-point output."""


def resolve_options(options: Mapping[str, Any]) -> CaptureOptions:
    """Return the options of a call with losses and decompositions resolved by name; a string instead of a sequence of
    names is refused."""
    check_sequence("allow", options.get("allow"))
    check_sequence("meant", options.get("meant"))
    check_sequence("decompose", options.get("decompose"))
    resolved = dict(options)
    if isinstance(resolved.get("loss"), str):
        resolved["loss"] = loss_of(resolved["loss"])
    if isinstance(resolved.get("decompose"), (tuple, list)):
        from backprint.trace.custom import decompositions_of

        resolved["decompose"] = decompositions_of(resolved["decompose"]) or None
    return CaptureOptions(**resolved)


def loss_of(text: str | None) -> Any:
    """Return a loss by name, or a function of the user's."""
    if text is None:
        return None
    if text in LOSSES:
        return lambda output: getattr(_first_tensor(output), text)()
    return find_factory(text)


def _first_tensor(output: Any) -> Any:
    """Return the first floating-point tensor of a result."""
    import torch

    from backprint._torch.pytree import tree_leaves

    for leaf in tree_leaves(output):
        if isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex()):
            return leaf
    raise UsageError("loss: the output holds no floating-point tensor")


# ---- Steps of a training script


def proven_step(recorded: Capture) -> Capture:
    """Return a recorded step with recipes if its replay returns what the script computed; raise if not."""
    from backprint.prove.verify import verify_capture
    from backprint.sample.inputs import with_recipes

    capture = with_recipes(recorded)
    verdicts = verify_capture(capture, ("captured",))
    _check_sent(capture)
    for verdict in verdicts:
        if verdict.verdict in REFUTED:
            unseen = (
                ""
                if capture.peers is None
                else ". What other threads compute, and callbacks of a collective, is not seen"
            )
            raise CaptureError(f"its replay is not what the script computed: {verdict.name}: {verdict.detail}{unseen}")
    return capture


def _check_sent(capture: Capture) -> None:
    """Raise if the graphs of a rank have sent something else than the script did, where that matters."""
    differing = getattr(capture.peers, "differing", ())
    for key, (step, is_used) in collective_steps(capture).items() if differing else ():
        if key in differing and (is_used or "broadcast" not in step.target):
            place = f" at {step.source.file}:{step.source.line}" if step.source is not None else ""
            raise CaptureError(
                f"{step.name}{place} over {key[0]!r} sends other values than the script did: something writes to what "
                "is sent where it is not seen, as NumPy, another thread or the callback of a collective do"
            )


# ---- Stamped captures


def verify_stamped(stamped: Capture, trace: Capture | bool) -> Verdict:
    """Compare a stamped Capture with a trace in full, which is made here of its program unless it is given."""
    from backprint.prove.capturing import capture_call
    from backprint.prove.verify import against_trace
    from backprint.trace.captured import LiveProgram

    check_trace(stamped, trace)
    if isinstance(trace, Capture):
        return against_trace(stamped, trace)
    assert isinstance(stamped.origin, LiveProgram)  # its program is alive
    call = stamped.origin.call()
    return against_trace(stamped, capture_call(*call, replace(stamped.origin.options, stamp=False), proved=False))


def check_trace(stamped: Capture, trace: Capture | bool) -> None:
    """Raise unless a stamped Capture is to be compared with a trace in full, and there is one or can be one."""
    if not stamp_of(stamped.notes):
        raise UsageError(f"trace= is for a stamped capture, and {stamped.name} was not stamped: verify it without")
    if isinstance(trace, Capture):
        if stamp_of(trace.notes):
            raise UsageError(f"trace={trace.name} is stamped itself: capture the program with stamp=False")
    elif trace is not True:
        raise UsageError(f"trace={trace!r:.80} is neither True nor a Capture of the same program with stamp=False")
    elif not stamped.origin.alive:
        raise UsageError(
            f"trace=True needs the program of {stamped.name}, which is gone: capture it again with stamp=False, and "
            "pass that Capture as `trace`"
        )
