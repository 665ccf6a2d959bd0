"""The model and the arguments of each rank, made as its training script makes them, and what all ranks do on them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn

from backprint._torch.distributed import ThreadGroups, in_rank
from backprint._torch.fake import set_device_guards
from backprint.errors import UsageError
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.nouns import Capture
from backprint.ranks.meeting import Among, Meeting
from backprint.ranks.turns import Turns
from backprint.target import capture_with_recipes
from backprint.tracing.collectives import Answered
from backprint.tracing.entry import check_options
from backprint.tracing.fake import fake
from backprint.tracing.program import CalledProgram, Outcome, read_call
from backprint.tracing.running import restoring_state
from backprint.tracing.watch import SEED
from backprint.tracing.witness import run_step
from backprint.values.exchanges import Peers
from backprint.values.settings import outside_modes, preserving_random_states

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""A model, its arguments and its keyword arguments."""

T = TypeVar("T")

Make = Callable[[], Call]
"""Makes the call of the rank in whose process it runs."""


def sharding(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], shard: Callable[..., Any] | None) -> Make:
    """Return a function that makes a rank's call: a copy of the model and the arguments, sharded by `shard`."""

    def make() -> Call:
        try:
            own_model, own_args, own_kwargs = copy.deepcopy((model, tuple(args), dict(kwargs)))
        except (TypeError, RuntimeError) as error:
            raise UsageError(
                f"each rank needs a copy of the model and the arguments, and copy.deepcopy raises {error}: pass a "
                "factory that makes them in each rank (bp.capture('file.py:factory', world=…))"
            ) from error
        if shard is None:
            return own_model, own_args, own_kwargs
        return call_of_result(shard(own_model, *own_args, **own_kwargs), (own_model, own_args, own_kwargs))

    return make


def call_of_result(result: Any, passed: Call) -> Call:
    """Return the call that `shard` has made: it returns the model, or (model, args), or (model, args, kwargs); None if
    it has changed the model in place."""
    _, args, kwargs = passed
    if result is None:
        return passed
    if isinstance(result, nn.Module) or (callable(result) and not isinstance(result, tuple)):
        return result, args, kwargs
    if isinstance(result, tuple) and len(result) in (2, 3) and callable(result[0]):
        new_args = result[1] if isinstance(result[1], (tuple, list)) else (result[1],)
        return result[0], tuple(new_args), dict(result[2]) if len(result) == 3 else kwargs
    raise UsageError(
        f"shard returned a {type(result).__name__}: return the model, (model, args) or (model, args, kwargs), or None "
        "if it changes the model in place"
    )


@dataclass(frozen=True, slots=True)
class RankPlace:
    """A rank in its thread: its call, its process groups, and what answers its collectives."""

    rank: int
    call: Call
    groups: ThreadGroups
    among: Among


def in_ranks(size: int, make: Make, work: Callable[[RankPlace], T], answered: type[Answered] = Answered) -> list[T]:
    """Do some work in every rank, among each other, on the calls that `make` makes in each; return what it returns.
    Collectives of `make` are answered in a mode of the class `answered`."""
    set_device_guards()
    turns: Turns[T] = Turns(size)
    meeting = Meeting(turns)

    def in_one(rank: int) -> T:
        groups = ThreadGroups(rank, size)
        with in_rank(groups):
            among = Among(meeting, rank)
            torch.manual_seed(SEED)
            with answered(among, among.label):
                call = make()
            among.place = functools.partial(in_rank, groups)
            return work(RankPlace(rank, call, groups, among))

    return turns.run(in_one)


WARM_UP = 2
"""Steps before the one that is captured, where gradients are reduced: the first makes the buffers, and DDP fills its
buckets in the order in which the first backward made the gradients."""


def captured_among_others(place: RankPlace, options: CaptureOptions) -> tuple[Outcome, Capture]:
    """Run a rank's step among the others, then capture it alone, where the others answer as they did."""
    (model, args, kwargs), among = place.call, place.among
    check_options(model, options)
    program = read_call(
        model, args, kwargs, options.requires_grad, options.mode, options.loss, options.fake, False, among
    )
    for _ in range(WARM_UP if program.reduces_gradients else 0):
        step_among_others(program)
    among.exchanges = {}
    outcome = step_among_others(program)
    places = {label: members.index(place.rank) for label, members in among.groups.items()}
    peers = Peers(among.exchanges, places, place=among.place)
    return outcome, capture_with_recipes(model, args, kwargs, options, peers=peers)


def captured_without_values(rank: int, size: int, make: Make, options: CaptureOptions) -> Capture:
    """Capture one rank of a step without values. Its process groups move nothing, and its model is made under
    `bp.fake()`."""
    with in_rank(ThreadGroups(rank, size)):
        with fake():
            model, args, kwargs = make()
        return capture_with_recipes(model, args, kwargs, options)


def step_among_others(program: CalledProgram) -> Outcome:
    """Run one eager step of the untouched program of a rank."""
    with preserving_random_states(), outside_modes(), restoring_state(program):
        torch.manual_seed(SEED)
        return run_step(program)
