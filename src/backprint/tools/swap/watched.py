"""Places during a proof: put in and taken out, and their calls seen.

What the originals write into, return and draw is the witness for what the solutions may.

A Place is one module whose forward is replaced: by its `method`, which runs the solution where the place's `guard` says
that it is for the call, and else the original. The leaves of a call are the tensors and constants in its arguments
(`flatten`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from backprint.derive.called import error_text
from backprint.judge.closeness import same_bits
from backprint.tools.swap.guards import arguments_of, flatten, leaf_names, learn, state_of
from backprint.tools.swap.places import Place
from backprint.tools.swap.solutions import name_of
from backprint.tools.swap.steps import Step
from backprint.values.settings import RandomStates, keeping_settings, random_states

# ---- The methods of the places, in and out


@contextlib.contextmanager
def restoring_methods(places: Sequence[Place]) -> Iterator[None]:
    """Take the methods of all places out, and put them back afterwards where they were in, with all counts."""
    kept = [(place.installed, place.ran, place.fell_back, dict(place.reasons)) for place in places]
    for place in places:
        if place.installed:
            place.remove()
    try:
        yield
    finally:
        for place, (was_installed, ran, fell_back, reasons) in zip(places, kept, strict=True):
            place.ran, place.fell_back, place.reasons = ran, fell_back, reasons
            if was_installed:
                place.install()


@contextlib.contextmanager
def install_methods(
    places: Sequence[Place],
    dtype: torch.dtype | None,
    watch: Callable[..., Any] | None,
    active: bool = True,
    any_grad: bool = False,
) -> Iterator[None]:
    """Put the methods in for a block, with a guard for this dtype, or with None for the dtype that it was learnt in.

    `watch` is called for each call of a place (`Place.watch`). Without `active` the originals run, and with `any_grad`
    the solutions run whatever requires grad. Counts begin at 0. Settings that a solution changes are restored.
    """
    with keeping_settings(), contextlib.ExitStack() as on_exit:
        # Before the first is put in, so that all are taken out if one cannot be put in.
        on_exit.callback(_remove_methods, places)
        for place in places:
            place.install()
            place.active, place.watch = active, watch
            place.ran, place.fell_back, place.reasons, place.quiet = 0, 0, {}, True
            if place.guard is not None:
                guard = place.guard if dtype is None else place.guard.in_dtype(dtype)
                place.guard_for_now = replace(guard, any_grad=any_grad)
        yield


def _remove_methods(places: Sequence[Place]) -> None:
    """Take the methods out and end what `install_methods` has set for the block; counts stay, for
    `restoring_methods`."""
    for place in places:
        place.watch = place.guard_for_now = None
        place.quiet = False
        if place.installed:
            place.remove()


# ---- What a call does


@dataclass(slots=True)
class SeenCall:
    """A call of a place: its arguments; its tensors (those among the arguments, parameters and buffers) by `names`,
    with copies from before the call; its outputs, with copies from when they were returned; and whether it drew random
    numbers. The tensors and outputs themselves are kept, to see what is written into them later."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: list[str]
    tensors: list[Tensor]
    copies: list[Tensor]
    outputs: list[Tensor] = field(default_factory=list)
    output_copies: list[Tensor] = field(default_factory=list)
    draws: bool = False

    @property
    def written(self) -> set[str]:
        """The tensors that have other values now than before the call: the backward may write into them too."""
        pairs = zip(self.names, self.tensors, self.copies, strict=True)
        return {name for name, tensor, copy in pairs if not same_bits(tensor, copy)}

    @property
    def changed_later(self) -> set[int]:
        """The outputs that have other values now than when they were returned."""
        pairs = enumerate(zip(self.outputs, self.output_copies, strict=True))
        return {index for index, (output, copy) in pairs if not same_bits(output, copy)}


@dataclass(slots=True)
class Watcher:
    """Sees the calls of all places: makes each, and notes what it was passed, returned and drew.

    `error` says what the first call that failed has raised, under the name of the place's solution. It is read where
    the solutions run: an error in `record`, which runs the originals, is raised there.
    """

    calls: dict[str, list[SeenCall]] = field(default_factory=dict)
    error: str = ""

    def __call__(
        self, place: Place, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], call: Callable[[], Any]
    ) -> Any:
        """Make a call of a place, note it, and return its results. `call` runs the solution or the original, whichever
        the place chooses (`Place.choose`)."""
        names, tensors = named_tensors(place, module, args, kwargs)
        with torch.no_grad():
            seen = SeenCall(tuple(args), dict(kwargs), names, tensors, [tensor.detach().clone() for tensor in tensors])
        self.calls.setdefault(place.name, []).append(seen)
        before = random_states()
        try:
            results = call()
        except Exception as error:
            self.error = self.error or f"{name_of(place.solution)} at {place.name} raised {error_text(error)}"
            raise
        seen.draws = not _same_states(before, random_states())
        leaves: list[Any] = []
        flatten((results,), leaves)
        seen.outputs = [leaf.detach() for leaf in leaves if isinstance(leaf, Tensor)]
        seen.output_copies = [output.clone() for output in seen.outputs]
        return results


def named_tensors(
    place: Place, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[str], list[Tensor]]:
    """Return the tensors of a call by name: those among its arguments, its parameters and its buffers."""
    present, values = arguments_of(place.forms, args, kwargs)
    leaves: list[Any] = []
    flatten(values, leaves)
    named_leaves = [*zip(leaf_names(present, values), leaves, strict=True)]
    parameters, buffers = state_of(module)  # in the order of the names here
    state_names = [name for name, _ in module.named_parameters(remove_duplicate=False)]
    state_names += [name for name, _ in module.named_buffers(remove_duplicate=False)]
    named_leaves += zip(state_names, [*parameters, *buffers], strict=True)
    named = [(name, leaf) for name, leaf in named_leaves if isinstance(leaf, Tensor)]
    return [name for name, _ in named], [tensor for _, tensor in named]


def _same_states(before: RandomStates, after: RandomStates) -> bool:
    """Whether no random number was drawn between two states; false too if a GPU was first used between them."""
    pairs = zip((before.cpu, *before.cuda), (after.cpu, *after.cuda), strict=False)  # lengths are compared below
    return len(before.cuda) == len(after.cuda) and all(torch.equal(*pair) for pair in pairs)


def record(step: Step, places: Sequence[Place]) -> dict[str, list[SeenCall]]:
    """Run the step with the originals, and return the calls of each place, by its name. A place without a guard learns
    it here, of all its calls in the step: they may differ in which tensors require grad."""
    watcher = Watcher()
    learning: set[str] = set()  # names of the places that had no guard

    def watch(place: Place, module: nn.Module, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
        """Let a place that had no guard learn it of this call, note the call, and return its results."""
        if place.guard is None or place.name in learning:
            guard = learn(module, *arguments_of(place.forms, args, kwargs), place.fixed)
            place.guard = guard if place.guard is None else place.guard.merged_with(guard)
            learning.add(place.name)
        return watcher(place, module, args, kwargs, call)

    with install_methods(places, None, watch, active=False):
        step.run(step.call.values)
    return watcher.calls
