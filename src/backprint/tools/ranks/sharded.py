"""The model and the arguments of each rank, made as its training script makes them, and what all ranks do on them.

The ranks of a World are threads of this process, of which one runs at a time. Words of this file:

- The *whole* is the model that is not sharded, and its arguments. `shard` is the user's function (`shard=` of
  `bp.capture`): it takes a copy of them in each rank and makes the rank's own model and arguments, its `Call`.
- `ThreadGroups`: the process groups of one rank, which `torch.distributed` answers with in the block `in_rank`.
- `Meeting`: where the collectives of all ranks are computed; `Among` answers those of one rank there.
- `Exchange`: one collective of a run: what each member of the group called and sent. `Peers` answers a rank that runs
  alone with the Exchanges of an earlier run.
- `Outcome`: the outputs, gradients and mutations of one step.
- `Answered`: a dispatch mode in which the collectives of a program are answered by a function.
- What a program *keeps* is its state outside of model and arguments (`kept`), such as globals.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import functools
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from backprint._torch.distributed import ThreadGroups, in_rank, reduces_gradients
from backprint._torch.fake import FakeTensor, set_device_guards
from backprint.errors import CaptureError, UsageError
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.nouns import Capture
from backprint.prove.capturing import capture_with_recipes
from backprint.tools.ranks.kept import Kept, Value, with_own_copies, with_values
from backprint.tools.ranks.meeting import Among, Meeting
from backprint.tools.ranks.turns import RankTurns, raise_with_rank, set_state_of_process, state_of_process
from backprint.trace.captured import LiveProgram
from backprint.trace.collectives import Answered, Functional
from backprint.trace.entry import check_options, refuse_modules
from backprint.trace.fake import common_world, fake
from backprint.trace.program import CalledProgram, Outcome, read_call
from backprint.trace.running import restoring_state
from backprint.trace.watch import SEED
from backprint.trace.witness import run_step
from backprint.values.exchanges import Peers
from backprint.values.settings import outside_modes, preserving_random_states
from backprint.values.tree import strided_tensors
from backprint.values.wrappers import unwrap

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""A model, its arguments and its keyword arguments."""

T = TypeVar("T")

Make = Callable[[], Call]
"""Makes the call of the rank in whose process it runs."""


def sharding(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    shard: Callable[..., Any] | None,
    without_values: bool = False,
) -> Make:
    """Return a function that makes a rank's call: a copy of the model and the arguments, sharded by `shard` (None: the
    copy itself). With `without_values`, the copy is of fake tensors. The function refuses what cannot be copied."""

    def make() -> Call:
        """Return the call of a rank, from a copy of its own."""
        whole = model, tuple(args), dict(kwargs)
        memo = fake_memo(strided_tensors(*whole)) if without_values else {}
        try:
            own_model, own_args, own_kwargs = copy.deepcopy(whole, memo)
        except (TypeError, RuntimeError) as error:
            raise UsageError(
                f"each rank needs a copy of the model and the arguments, and copy.deepcopy raises {error}: pass a "
                "factory that makes them in each rank (bp.capture('file.py:factory', world=…))"
            ) from error
        if shard is None:
            return own_model, own_args, own_kwargs
        return call_of_result(shard(own_model, *own_args, **own_kwargs), (own_model, own_args, own_kwargs))

    return make


def fake_memo(tensors: Iterable[Tensor]) -> dict[int, Tensor]:
    """Return a memo for `copy.deepcopy` that replaces the tensors that have values by fake ones, by their ids: so a
    copy of a large model takes no memory. A fake tensor is not in the memo, and is copied as it is."""
    with_values = {str(id(tensor)): tensor for tensor in tensors if not isinstance(unwrap(tensor), FakeTensor)}
    copies = common_world().fake_copies(with_values)  # as what is made under `bp.fake()`
    return {
        id(tensor): nn.Parameter(copies[key], tensor.requires_grad)
        if isinstance(tensor, nn.Parameter)
        else copies[key].requires_grad_(tensor.requires_grad)
        for key, tensor in with_values.items()
    }


def call_of_result(result: Any, passed: Call) -> Call:
    """Return the call of a rank from the `result` of `shard`: the model, or (model, args), or (model, args, kwargs), or
    None if it has changed the model in place. What it does not return is as it was `passed`. Raise UsageError for any
    other result."""
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


def run_in_ranks(
    size: int,
    make: Make,
    work: Callable[[RankPlace], T],
    answered: type[Answered] = Answered,
    loss: Callable[..., Any] | None = None,
) -> list[T]:
    """Run `work` in each of `size` ranks, on the call that `make` makes there, and return its results by rank. The
    collectives of a rank are answered by the other ranks': those of `make` in a mode of the class `answered`, and
    `work` enters a mode itself.

    `loss` is a function of the user that `work` calls: what it keeps is each rank's own, as what `make` keeps.
    """
    set_device_guards()  # the first FakeTensorMode sets them, and no other rank may be in a backward then
    turns: RankTurns[T] = RankTurns(size, (make, loss))
    meeting = Meeting(turns)
    owners: dict[int, tuple[Tensor, int]] = {}  # by the id of a parameter: it, and the rank that trains it

    def run_rank(rank: int) -> T:
        """Be one rank, in a thread that has its turn: make its call, and do the work."""
        groups = ThreadGroups(rank, size)
        with in_rank(groups):
            among = Among(meeting, rank)
            torch.manual_seed(SEED)
            before = contextvars.copy_context()
            with answered(among, among.label):
                call = make()
            check_own(call[0], rank, owners)
            # What `make` has set in this rank, so that the rank can run again later, outside of this thread.
            variables = _changed_since(before)
            among.place = functools.partial(in_place, groups, turns.kept.values(), variables)
            return work(RankPlace(rank, call, groups, among))

    return turns.run(run_rank)


def check_own(model: Any, rank: int, owners: dict[int, tuple[Tensor, int]]) -> None:
    """Raise if this rank trains a parameter that another rank trains, too. `owners` has the parameters of the ranks so
    far, each with its rank, by id; this rank's are added. A parameter is kept there so that its id is not used again.
    """
    for name, parameter in model.named_parameters() if isinstance(model, nn.Module) else ():
        if not parameter.requires_grad:
            continue
        _, other = owners.setdefault(id(parameter), (parameter, rank))
        if other != rank:
            raise UsageError(
                f"ranks {min(rank, other)} and {max(rank, other)} share the parameter {name}, and in processes each "
                "has its own: shard the model that `shard` is given, a copy, and make what is new in each rank"
            )


Variables = dict[contextvars.ContextVar[Any], Any]
"""Context variables, with their values."""


@contextlib.contextmanager
def in_place(groups: ThreadGroups, kept: Sequence[Value], variables: Variables) -> Iterator[None]:
    """Be a rank in this thread, with its process groups, what it keeps, and its context variables."""
    with in_rank(groups), with_values(kept), _with_variables(variables):
        yield


def _changed_since(before: contextvars.Context) -> Variables:
    """Return the context variables that have been set since `before` was taken."""
    now = contextvars.copy_context()
    return {
        variable: value for variable, value in now.items() if variable not in before or before[variable] is not value
    }


@contextlib.contextmanager
def _with_variables(variables: Variables) -> Iterator[None]:
    """Set context variables for a block; at its end they have the values that they had before."""
    tokens = [(variable, variable.set(value)) for variable, value in variables.items()]
    try:
        yield
    finally:
        for variable, token in tokens:
            variable.reset(token)


WARM_UP = 2
"""Steps before the one that is captured, where gradients are reduced: the first makes the buffers, and DDP fills its
buckets in the order in which the first backward made the gradients."""


def captured_among_others(place: RankPlace, options: CaptureOptions) -> tuple[Outcome, Capture]:
    """Run a rank's step among the other ranks, then capture the rank alone, where the others answer as they did in that
    step. Return the results of the step, and the Capture."""
    (model, args, kwargs), among = place.call, place.among
    check_options(model, options)
    program = read_call(
        model,
        args,
        kwargs,
        requires_grad=options.requires_grad,
        mode=options.mode,
        loss=options.loss,
        fake=options.fake,
        peers=among,
    )
    for _ in range(WARM_UP if program.reduces_gradients else 0):
        step_among_others(program)
    among.exchanges = {}  # from here on the collectives are kept
    outcome = step_among_others(program)
    places = {label: members.index(place.rank) for label, members in among.groups.items()}
    peers = Peers(among.exchanges, places, place=among.place)
    capture = capture_with_recipes(model, args, kwargs, options, peers=peers)
    return _with_outside_results(outcome, capture), capture


def _with_outside_results(outcome: Outcome, capture: Capture) -> Outcome:
    """Return the results of a rank's step (`outcome`) with those of tensors outside of its model and arguments, such as
    an optimizer's: which tensors these are is known once the rank is captured. If the Capture has such ports, the
    program runs again alone, where the other ranks answer as they did, and the missing results are taken from it."""
    known = {"mutation": outcome.mutations, "gradient": outcome.gradients}
    ports = [port for pair in capture.pairs for graph in pair.graphs for port in graph.outputs]
    if all(port.name in known[port.role] for port in ports if port.role in known):
        return outcome
    assert isinstance(capture.origin, LiveProgram)  # it was captured in this process
    alone = step_among_others(capture.origin.program)
    return replace(
        outcome,
        mutations={**alone.mutations, **outcome.mutations},
        gradients={**alone.gradients, **outcome.gradients},
    )


def captured_without_values(rank: int, size: int, make: Make, options: CaptureOptions) -> Capture:
    """Capture one rank of a step of `size` ranks without values. Its process groups move nothing, and its model is made
    under `bp.fake()`. The state of the process, with what the program keeps outside of its arguments, is put back."""
    before = state_of_process(Kept((make, options.loss)))
    try:
        # Caches and iterators, which a run uses up, are copies, as they are where ranks run among each other.
        [own_kept] = with_own_copies(before.kept, count=1)
        set_state_of_process(replace(before, kept=own_kept))
        with in_rank(ThreadGroups(rank, size)):
            return _captured_in_rank(make, options)
    except Exception as error:  # with the rank, as where ranks run among each other
        raise_with_rank(rank, error)
    finally:
        set_state_of_process(before)


def _captured_in_rank(make: Make, options: CaptureOptions) -> Capture:
    """Make the call of a rank without values, and capture it. Refuse modules that reduce gradients in hooks, such as
    FSDP2's, and DDP already where it is made: its constructor raises a RuntimeError on fake tensors."""
    torch.manual_seed(SEED)
    with fake(), Functional():  # `Functional`: a collective that `shard` calls then has a rule for fake tensors
        try:
            model, args, kwargs = make()
        except RuntimeError as error:
            if _is_raised_in(error, nn.parallel.DistributedDataParallel.__init__):
                raise CaptureError(NO_REDUCERS.format("DistributedDataParallel"), every_engine=True) from error
            raise
    modules = model.modules() if isinstance(model, nn.Module) else ()
    if reducing := next((type(module).__name__ for module in modules if reduces_gradients(module)), ""):
        raise CaptureError(NO_REDUCERS.format(reducing), every_engine=True)
    return capture_with_recipes(model, args, kwargs, options)


NO_REDUCERS = (
    "{} gathers and reduces in hooks, on memory of its own, which a step without values does not have: shard the "
    "parameters as DTensors and gather them in the forward (parameter.redistribute(placements=…)), or capture a small "
    "version without fake=True"
)


def _is_raised_in(error: BaseException, function: Any) -> bool:
    """Whether an error was raised in a function, or in what it called."""
    return any(frame.f_code is function.__code__ for frame, _ in traceback.walk_tb(error.__traceback__))


def step_among_others(program: CalledProgram) -> Outcome:
    """Run one eager step of the untouched program of a rank, and return its results. Everything that the program
    reaches, and the random states, are as before afterwards. Refuse a module that is made not to reduce gradients."""
    with preserving_random_states(), outside_modes(), restoring_state(program):
        torch.manual_seed(SEED)
        outcome = run_step(program)
    if isinstance(target := program.target(), nn.Module):
        # Asked again after the step: it may have told a module to keep its gradients.
        refuse_modules(target)
    return outcome
