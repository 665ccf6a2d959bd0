"""A call captured by an engine and held against the program: what `bp.capture` does with a callable.

This joins `tracing/`, which gives a Capture, and the proof of it. Options that a user writes as text are resolved here.
It imports torch when it is called.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from backprint.common.factories import find_factory
from backprint.common.text import check_sequence
from backprint.errors import UsageError
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.nouns import Capture

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
    from backprint.replaying.at_capture import held_against_program
    from backprint.sample.inputs import with_recipes
    from backprint.tracing.entry import capture_call

    return with_recipes(capture_call(target, args, kwargs, options, held_against_program, peers), recipes)


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
        from backprint.tracing.custom import decompositions_of

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
