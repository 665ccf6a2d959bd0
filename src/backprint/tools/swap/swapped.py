"""All places of a swap: put in, taken out, and what is known of them.

A Place is one module whose forward is replaced by a solution. Its guard says what the solution is for: elsewhere the
original runs. A path is the name of a module in the model, as in `named_modules`, and a pattern has wildcards for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, dtype, nn

from backprint._torch.modules import COMPILED
from backprint.errors import UsageError
from backprint.graph.nouns import Capture
from backprint.tools.parts.cuts import SplitPart
from backprint.tools.swap.guards import arguments_of, learn, learn_from_capture
from backprint.tools.swap.patterns import matching
from backprint.tools.swap.places import Place, SwappedPlace
from backprint.tools.swap.solutions import check_solution, name_of

if TYPE_CHECKING:
    from backprint.tools.swap.gain import SwapGain
    from backprint.tools.swap.proved import SwapProof


class Swapped:
    """Solutions in the place of modules of a model: `with bp.swap(...) as swapped:`, or `bp.swap(...).keep()`.

    Nothing is swapped until the block is entered, or `keep` is called; leaving the block, also by an exception, and
    `undo` take all solutions out again. `prove` and `gain` work before, inside and after.
    """

    def __init__(self, model: nn.Module, places: Sequence[Place]):
        self.model = model
        self._places = tuple(places)
        self.proof: SwapProof | None = None

    @property
    def places(self) -> tuple[SwappedPlace, ...]:
        """Each place: its path, its solution, and how often that ran or the original instead."""
        return tuple(place.facts() for place in self._places)

    @property
    def active(self) -> bool:
        """Whether the solutions are in the model."""
        return any(place.installed for place in self._places)

    def keep(self) -> Swapped:
        """Put the solutions in for good, until `undo`. If one cannot be put in, none is."""
        if self.active:
            raise UsageError("bp.swap: this swap is in the model already")
        installed = []
        try:
            for place in self._places:
                place.install()
                installed.append(place)
        except UsageError:
            for place in installed:
                place.remove()
            raise
        return self

    def undo(self) -> None:
        """Take the solutions out again; every module has the forward that it had."""
        if not self.active:
            raise UsageError("bp.swap: this swap is not in the model")
        obstacles = [text for place in self._places if (text := place.remove())]
        if obstacles:
            raise UsageError(f"bp.swap: not undone where something else was put in: {'; '.join(obstacles)}")

    def __enter__(self) -> Swapped:
        return self.keep()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.undo()

    def prove(
        self,
        *args: Any,
        loss: Callable[[Any], Tensor] | None = None,
        dtypes: Sequence[dtype] = (),
        requires_grad: Any = None,
        times: float = 2.0,
        seed: int = 0,
        raises: bool = False,
        **kwargs: Any,
    ) -> SwapProof:
        """Compare the loss and all gradients of the model's step before and after, on these inputs: return a SwapProof.

        The untouched program is the witness, in float64 and in the model's own dtype: the step with the solutions may
        be off by `times` what it is itself off by there. `dtypes` are those to compare in; without them, the model's
        own and float64. The step runs on the inputs and parameters as they are, on others near these, and once more.
        Each place is compared alone too, on the inputs that it has in the model and on others near these, for random
        tangents, and, in the model's own dtype, for tangents of other sizes, with frozen inputs, with frozen parameters
        and without gradients. A setting or a random state that a solution changes and the original does not is wrong. A
        place at which the solution never ran is `unproven`.

        `loss` makes a number of what the model returns; without it, its `loss` or the number itself, and else a sum of
        all floating-point outputs with random weights. With `raises`, CheckError is raised unless the proof is good.
        The model, its gradients and random states stay as they are. Options of this call that are names of arguments
        too are passed as `prove(args=(x,), kwargs={"loss": y})`.
        """
        from backprint.graph import calls
        from backprint.tools.swap.proving import prove

        calls.check_spelled(args, kwargs)  # raises if `args=` or `kwargs=` is itself a tensor
        args, kwargs = calls.spelled_call(args, kwargs) or (args, kwargs)  # None for a call without `args=`, `kwargs=`
        proof = prove(
            self.model,
            self._places,
            args,
            kwargs,
            loss=loss,
            dtypes=dtypes,
            requires_grad=requires_grad,
            times=times,
            seed=seed,
        )
        self.proof = proof
        if raises:
            proof.raise_if_wrong()
        return proof

    def gain(self, *args: Any, loss: Callable[[Any], Tensor] | None = None, seed: int = 0, **kwargs: Any) -> SwapGain:
        """Time the step, forward and backward, before and after in turns: return a SwapGain.

        The model, its gradients, buffers and random states stay as they are. UsageError is raised if an original runs
        in the place of a solution: its time would say nothing. Arguments of the model that are named `loss` or `seed`
        are passed as in `prove`.
        """
        from backprint.graph import calls
        from backprint.tools.swap.gain import gain_of

        calls.check_spelled(args, kwargs)
        args, kwargs = calls.spelled_call(args, kwargs) or (args, kwargs)  # as in `prove`
        return gain_of(self.model, self._places, args, kwargs, loss, seed)

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(name_of(place.solution) for place in self._places))
        state = "in the model" if self.active else "not in the model"
        return f"Swapped({names} at {len(self._places)} {'place' if len(self._places) == 1 else 'places'}, {state})"


# ---- Making a swap


def swapped_of(
    model: nn.Module,
    patterns: str | Sequence[str] | Mapping[str, Any],
    solution: Any,
    *,
    for_: Any,
    like: Any,
    fixed: Any,
    order: int,
    prove: Any,
) -> Swapped:
    """Check the arguments of `bp.swap` (UsageError names what is wrong) and return its swap; nothing is swapped yet.
    With `prove`, arguments of the model, the swap is proven too, and CheckError is raised unless the proof is good."""
    if not isinstance(model, nn.Module):
        raise UsageError(f"bp.swap: the model is an nn.Module, not a {type(model).__name__}")
    model = getattr(model, COMPILED, model)  # the plain module of one that `torch.compile` has made
    if any(isinstance(module, nn.DataParallel) for module in model.modules()):
        raise UsageError("bp.swap: nn.DataParallel copies a module to other devices with its forward: swap in .module")
    if order not in (1, 2):
        raise UsageError(f"bp.swap: order={order!r} is 1, or 2 for gradients of gradients")
    if for_ is not None and like is not None:
        raise UsageError("bp.swap: for_ and like both say what a solution is for: pass one")
    solution_by_pattern = _solutions_of(patterns, solution)
    paths_of = _paths_by_module(model)
    places = []
    for path, pattern, module in _modules_to_swap(model, solution_by_pattern):
        other_paths = [other for other in paths_of[id(module)] if other != path]
        place = Place(path, other_paths, module, solution_by_pattern[pattern], fixed, order)
        places.append(place)
        _enter_guard(
            place,
            _value_for_pattern(for_, pattern, solution_by_pattern),
            _value_for_pattern(like, pattern, solution_by_pattern),
            fixed,
        )
    _check_nested(places)
    swapped = Swapped(model, places)
    if prove is not None:
        args, kwargs = ((), dict(prove)) if isinstance(prove, Mapping) else (_as_tuple(prove), {})
        swapped.prove(args=args, kwargs=kwargs, raises=True)
    return swapped


def _modules_to_swap(model: nn.Module, solution_by_pattern: Mapping[str, Any]) -> Iterator[tuple[str, str, nn.Module]]:
    """Yield the modules that patterns match, each once, with its first path and its pattern. Raise UsageError for a
    module that two patterns match."""
    modules = dict(model.named_modules(remove_duplicate=False))
    claim_by_id: dict[int, tuple[str, str]] = {}  # the path and the pattern that a module was met with first
    for pattern, solution in solution_by_pattern.items():
        check_solution(solution)
        for path in matching(list(modules), pattern):
            first_path, first_pattern = claim_by_id.setdefault(id(modules[path]), (path, pattern))
            if first_pattern != pattern:
                raise UsageError(f"bp.swap: {path or 'the model'} is both {first_pattern!r} and {pattern!r}")
            if first_path == path:  # else it is the same module under another path: swapped once
                yield path, pattern, modules[path]


def _solutions_of(patterns: Any, solution: Any) -> dict[str, Any]:
    """Return the solution of each pattern: those of a mapping, or the one solution for all. UsageError if there is no
    pattern, no solution, or both a mapping and a solution."""
    if isinstance(patterns, Mapping):
        if solution is not None:
            raise UsageError("bp.swap: a mapping of patterns has a solution for each: pass no other")
        wanted = dict(patterns)
    else:
        wanted = dict.fromkeys([patterns] if isinstance(patterns, str) else patterns, solution)
        if solution is None:
            raise UsageError('bp.swap needs a solution: bp.swap(model, "blocks.*.mlp", Fused)')
    if not wanted:
        raise UsageError("bp.swap: there is no pattern")
    return wanted


def _paths_by_module(model: nn.Module) -> dict[int, list[str]]:
    """Return all paths of each module."""
    paths: dict[int, list[str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        paths.setdefault(id(module), []).append(path)
    return paths


def _check_nested(places: Sequence[Place]) -> None:
    """Raise UsageError if one place is inside another: the inner one would not run."""
    for outer in places:
        inside = {id(module) for module in outer.module.modules()} - {id(outer.module)}
        for inner in places:
            if id(inner.module) in inside:
                raise UsageError(f"bp.swap: {inner.name} is inside {outer.name}, whose forward is replaced")


def _value_for_pattern(value: Any, pattern: str, patterns: Collection[str]) -> Any:
    """Return what `for_` or `like` has for a pattern: a mapping has a value for each, or none, and anything else is for
    all patterns. UsageError if the mapping has a key that is no pattern of the swap."""
    if not isinstance(value, Mapping):
        return value
    if unknown := [key for key in value if key not in patterns]:
        raise UsageError(f"bp.swap: {unknown[0]!r} is none of the patterns {', '.join(map(repr, patterns))}")
    return value.get(pattern)


def _enter_guard(place: Place, part: Any, like: Any, fixed: Any) -> None:
    """Give a place its guard: learnt from a Capture of the part, or a part of `bp.split` (`for_`), or from arguments
    that are an example (`like`). Without either, the place has none yet."""
    if part is not None:
        capture = part.capture if isinstance(part, SplitPart) else part
        if not isinstance(capture, Capture):
            raise UsageError(f"bp.swap: for_ is a Capture, or a part of bp.split, not a {type(part).__name__}")
        place.guard = learn_from_capture(capture, place.module, place.path, place.forms, fixed)
    elif like is not None:
        present, values = arguments_of(place.forms, _as_tuple(like), {})
        with torch.enable_grad():  # without grad mode, `learn` leaves open which inputs require grad
            place.guard = learn(place.module, present, values, fixed, example=True)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    """Return one positional argument, or several in a tuple or list, as a tuple."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)
