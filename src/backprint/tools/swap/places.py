"""One module whose forward is replaced: on the instance, as a method, so that its class, its keys, its hooks and its
tensors stay, a deep copy has a method of its own, and a pickled model has none of it.

A PartGuard says what a solution is for: what the arguments and the state (parameters and buffers) of a call must be. A
Mismatch is the first thing in which a call differs from it. The leaves of a call are the tensors and constants in its
arguments (`flatten`). Forms are the names of a forward's arguments.
"""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.functorch import current_level
from backprint.errors import UsageError
from backprint.tools.swap.guards import Forms, Mismatch, PartGuard, arguments_of, flatten, learn, mismatch_of, state_of
from backprint.tools.swap.solutions import Run, check_state, name_of, runner_of, signature_of, takes_tensors

FORWARD = "forward"

Watch = Callable[["Place", nn.Module, Sequence[Any], Mapping[str, Any], Callable[[], Any]], Any]
"""Sees a call of a place, makes it and returns its results. It is called with the place, the module, the positional and
the keyword arguments, and a function that makes the call."""


@dataclass(frozen=True, slots=True)
class SwappedPlace:
    """One place of a swap: the path of its module (`also` has others under which the model has the same module), the
    solution, how often that ran, how often the original ran instead, and why. Calls of compiled code are not counted.
    """

    path: str
    also: tuple[str, ...]
    solution: str
    ran: int
    fell_back: int
    why: tuple[str, ...]


class Place:
    """A module, its solution, and what that is for. It is changed by each call: counts, and the guard if it is learnt.

    `path` is the name of the module in the model, '' for the model itself, and `also` has its other names. `fixed` says
    which sizes the guard compares, and `order` is 2 if gradients of gradients are allowed. `run` runs the solution,
    and `original` is the module's forward, which takes the module first. `prior` is the forward that the instance
    itself had, None for that of its class. `constants` says that the solution gets only tensors, so that all other
    arguments are compared with those that it is for.

    For a proof: while it is not `active` the original runs, `watch` sees the calls, `guard_for_now` stands in for the
    guard, and a `quiet` place gives no warnings.
    """

    def __init__(self, path: str, also: Sequence[str], module: nn.Module, solution: Any, fixed: Any, order: int):
        check_state(solution, module, path)  # UsageError if an instance has parameters that the module has not
        self.path, self.also, self.module, self.solution = path, tuple(also), module, solution
        self.name = path or "the model"
        self.fixed, self.order = fixed, order
        self.run: Run = runner_of(solution)
        self.constants = takes_tensors(solution)
        self.original, self.prior = _original_of(module, self.name)
        self.forms = Forms(*signature_of(self.original))
        self.guard: PartGuard | None = None  # what the solution is for; None until it is learnt
        self.guard_for_now: PartGuard | None = None
        self.watch: Watch | None = None
        self.active = self.installed = self.quiet = False
        self.ran = self.fell_back = 0
        self.reasons: dict[str, str] = {}  # why the original ran, by the guard that did not hold
        self.method = method_of(self)  # what replaces the forward

    # ---- In and out

    def install(self) -> None:
        """Replace the forward of the module. UsageError if something else has replaced it since the swap was made."""
        current = vars(self.module).get(FORWARD)
        if current is not self.prior:
            raise UsageError(f"bp.swap: {self.name} has another forward since the swap was made: {current!r:.80}")
        vars(self.module)[FORWARD] = self.method
        self.active = self.installed = True

    def remove(self) -> str:
        """Give the module its forward again, and return ''. If something else has replaced it since, leave that, and
        return a text that says so."""
        self.active = self.installed = False
        current = vars(self.module).get(FORWARD)
        if current is not self.method:
            return f"{self.name} has another forward since: {current!r:.80}"
        if self.prior is None:
            del vars(self.module)[FORWARD]
        else:
            vars(self.module)[FORWARD] = self.prior
        return ""

    # ---- A call

    def call(self, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the solution if the call is one that it is for, and the original if not."""
        if self.watch is not None:
            return self.watch(self, module, args, kwargs, lambda: self.choose(module, args, kwargs))
        return self.choose(module, args, kwargs)

    def choose(self, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the solution or the original, whichever the guard says, count it, and return the results.

        The first call of a place without a guard gives it one; not while Dynamo traces, where the original runs
        instead, and calls are not counted. In a transform of torch.func the original runs: guards say nothing of it.
        """
        if not self.active:
            return self.original(module, *args, **kwargs)
        compiling = torch.compiler.is_compiling()
        present, values = arguments_of(self.forms, args, kwargs)
        leaves: list[Any] = []
        flatten(values, leaves)
        parameters, buffers = state_of(module)
        guard = self.guard_for_now or self.guard
        mismatch: Mismatch | None
        if not compiling and current_level() is not None:  # the level of the transform; None outside of one
            mismatch = Mismatch("torch.func", "the call", "inside a transform of torch.func", "outside of one")
        elif guard is None and compiling:
            mismatch = Mismatch("nothing", "", "", "")  # `warn_once` has a sentence of its own for it
        else:
            if guard is None:
                guard = self.guard = learn(module, present, values, self.fixed)
            mismatch = mismatch_of(guard, module, present, leaves, parameters, buffers, self.constants)
        if mismatch is not None or guard is None:
            assert mismatch is not None  # without a guard there is always one
            warn_once(self, mismatch.guard, mismatch.name, mismatch.now, mismatch.meant)
            if not compiling:
                self.fell_back += 1
            return self.original(module, *args, **kwargs)
        tensors: list[Tensor] = []
        if self.constants:
            tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
            tensors += [parameters[state.index] for state in guard.parameters]
            tensors += [buffers[state.index] for state in guard.buffers]
        results = self.run(module, args, kwargs, tensors)
        if not compiling:
            self.ran += 1
            if self.order < 2 and torch.is_grad_enabled():
                _refuse_second(self, results)
        return results

    # ---- Text

    def facts(self) -> SwappedPlace:
        """Return what a user sees of the place."""
        return SwappedPlace(
            self.path, self.also, name_of(self.solution), self.ran, self.fell_back, tuple(self.reasons.values())
        )


def _original_of(module: nn.Module, name: str) -> tuple[Callable[..., Any], Any]:
    """Return the function that a module's forward is, which takes the module first, and the method that the instance
    itself has as `forward`, or None if it has that of its class. `name` is the module's, for messages.

    UsageError says which forward cannot be replaced: that of a ScriptModule, of a lazy module that has not run, one
    that is swapped already, and one that was replaced by what is no method of this module: a deep copy would share it.
    """
    if isinstance(module, torch.jit.ScriptModule):
        raise UsageError(f"bp.swap: {name} is a ScriptModule, whose forward cannot be replaced")
    if any(isinstance(tensor, nn.parameter.UninitializedTensorMixin) for tensor in module.parameters()):
        raise UsageError(f"bp.swap: {name} has parameters without a shape: run the model once first")
    prior = vars(module).get(FORWARD)
    if prior is None:
        return type(module).forward, None
    if isinstance(getattr(getattr(prior, "__func__", None), "swapped", None), Place):
        raise UsageError(f"bp.swap: {name} is swapped already: undo that swap first")
    if isinstance(prior, types.MethodType) and prior.__self__ is module:
        return prior.__func__, prior
    raise UsageError(
        f"bp.swap: the forward of {name} was replaced by {prior!r:.80}, which a copy of the model would share: remove "
        "that first"
    )


def method_of(place: Place) -> types.MethodType:
    """Return the method that replaces a forward. Pickle stores a method by its name, `forward`, so that a pickled model
    has the forward of its class."""

    def forward(self: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        return place.call(self, args, kwargs)  # `self` is another module in a deep copy of the model

    functools.update_wrapper(forward, place.original)
    forward.__name__ = FORWARD
    forward.__dict__["swapped"] = place
    return types.MethodType(forward, place.module)


# ---- Falling back


@torch.compiler.assume_constant_result  # so that Dynamo calls it once, when it traces the call
def warn_once(place: Place, guard: str, name: str, now: str, meant: str) -> None:
    """Warn that the original runs, and keep the reason in `place.reasons`: once for each guard of a place. The other
    parameters are the fields of a Mismatch."""
    if guard in place.reasons:
        return
    solution = name_of(place.solution)
    if guard == "nothing":
        why = f"nothing says what {solution} is for: pass like= or for_= to bp.swap, or call the model before compiling"
    else:
        why = f"{guard} of {name} is {now}, and {solution} is for {meant}"
    place.reasons[guard] = why
    if not place.quiet:
        warnings.warn(f"{place.name} runs its original forward: {why}", stacklevel=2)


def _refuse_second(place: Place, results: Any) -> None:
    """Register a hook on the tensors in these results, by which a backward through them raises if it is recorded
    (`create_graph`): a gradient of a gradient is not proven with `order=1`."""
    leaves: list[Any] = []
    flatten((results,), leaves)
    for leaf in leaves:
        if isinstance(leaf, Tensor) and leaf.grad_fn is not None:  # a leaf of autograd would keep its hook for good
            leaf.register_hook(functools.partial(_raise_if_recorded, place))


def _raise_if_recorded(place: Place, gradient: Tensor) -> None:
    """A hook of a tensor, for `_refuse_second`: raise UsageError if the backward that runs it is recorded, which grad
    mode says."""
    if torch.is_grad_enabled():
        raise UsageError(
            f"bp.swap: a backward with create_graph=True goes through {place.name}, where {name_of(place.solution)} "
            "was swapped in for first gradients alone: pass order=2 to bp.swap, and prove it"
        )
