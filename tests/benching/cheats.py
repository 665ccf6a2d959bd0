"""Compilers that cheat: each a function of a graph and its inputs that returns what a bench must not believe.

`CHEATS` must be rejected on every graph whose inputs move its results. The functions below them are tested one by one.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

Compiled = Callable[..., tuple[Any, ...]]
CHEATS: dict[str, Callable[[fx.GraphModule, Sequence[Any]], Compiled]] = {}


def cheat(make: Callable[[fx.GraphModule, Sequence[Any]], Compiled]) -> Callable[..., Compiled]:
    CHEATS[make.__name__] = make
    return make


def each_tensor(results: Sequence[Any], change: Callable[[Tensor], Tensor]) -> tuple[Any, ...]:
    return tuple(change(value) if isinstance(value, Tensor) else value for value in results)


@cheat
def zeros(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kinds = module(*inputs)
    return lambda *_: each_tensor(kinds, torch.zeros_like)


@cheat
def ones(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kinds = module(*inputs)
    return lambda *_: each_tensor(kinds, torch.ones_like)


@cheat
def inputs_returned(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """An input of the same kind for each output, else zeros."""
    kinds = module(*inputs)

    def run(*values: Any) -> tuple[Any, ...]:
        by_kind = {(value.dtype, value.shape): value for value in values if isinstance(value, Tensor)}
        return each_tensor(kinds, lambda kind: by_kind.get((kind.dtype, kind.shape), torch.zeros_like(kind)))

    return run


@cheat
def computed_once(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    results = module(*inputs)
    return lambda *_: results


@cheat
def memoised_by_call(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kept: list[Any] = []

    def run(*values: Any) -> tuple[Any, ...]:
        if not kept:
            kept.append(module(*values))
        return each_tensor(kept[0], torch.clone)

    return run


@cheat
def memoised_by_tensor(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kept: dict[tuple[int, ...], Any] = {}
    alive: list[Any] = []

    def run(*values: Any) -> tuple[Any, ...]:
        key = tuple(map(id, values))
        if key not in kept:
            alive.append(values)
            kept[key] = module(*values)
        return each_tensor(kept[key], torch.clone)

    return run


@cheat
def right_for_sixty_calls(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    calls, last = 0, None

    def run(*values: Any) -> tuple[Any, ...]:
        nonlocal calls, last
        calls += 1
        if calls <= 60:
            last = module(*values)
        return each_tensor(last, torch.clone)

    return run


@cheat
def written_by_a_thread(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kinds = module(*inputs)

    def run(*values: Any) -> tuple[Any, ...]:
        results = each_tensor(kinds, torch.zeros_like)
        copies = [value.clone() if isinstance(value, Tensor) else value for value in values]

        def work() -> None:
            time.sleep(0.001)
            with torch.no_grad():
                for result, value in zip(results, module(*copies), strict=True):
                    if isinstance(result, Tensor):
                        result.copy_(value)

        threading.Thread(target=work, daemon=True).start()
        return results

    return run


@cheat
def seldom_written_by_a_thread(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """The thread is through before the call returns, but for every fifth call."""
    kinds, calls = module(*inputs), itertools.count(1)

    def run(*values: Any) -> tuple[Any, ...]:
        results = each_tensor(kinds, torch.zeros_like)
        copies = [value.clone() if isinstance(value, Tensor) else value for value in values]
        late = next(calls) % 5 == 0

        def work() -> None:
            time.sleep(0.002 * late)
            with torch.no_grad():
                for result, value in zip(results, module(*copies), strict=True):
                    if isinstance(result, Tensor):
                        result.copy_(value)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        if not late:
            thread.join()
        return results

    return run


class Lazy(torch.Tensor):
    """A tensor that computes its values when they are asked for."""

    compute: Any = None

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        def forced(value: Any) -> Any:
            if isinstance(value, Lazy) and value.compute is not None:
                return value.compute()
            return [forced(each) for each in value] if isinstance(value, list | tuple) else value

        with torch._C.DisableTorchFunctionSubclass():
            return function(*map(forced, args), **(kwargs or {}))


@cheat
def lazy(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kinds = module(*inputs)

    def run(*values: Any) -> tuple[Any, ...]:
        found: list[Any] = []

        def computed(place: int) -> Any:
            if not found:
                found.append(module(*values))
            return found[0][place]

        results = []
        for place, kind in enumerate(kinds):
            if not isinstance(kind, Tensor):
                results.append(kind)
                continue
            late = torch.empty_like(kind).as_subclass(Lazy)
            late.compute = lambda place=place: computed(place)
            results.append(late)
        return tuple(results)

    return run


@cheat
def one_memory_for_all_results(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kept = [value.clone() if isinstance(value, Tensor) else value for value in module(*inputs)]

    def run(*values: Any) -> tuple[Any, ...]:
        for own, value in zip(kept, module(*values), strict=True):
            if isinstance(own, Tensor):
                own.copy_(value)
        return tuple(kept)

    return run


@cheat
def zeroes_an_input(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def run(*values: Any) -> tuple[Any, ...]:
        results = [value.clone() if isinstance(value, Tensor) else value for value in module(*values)]
        next(value for value in values if isinstance(value, Tensor) and bool(value.any())).zero_()
        return tuple(results)

    return run


@cheat
def half_precision(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Inputs and results are rounded to float16."""

    def rounded(value: Tensor) -> Tensor:
        return value.half().to(value.dtype) if value.is_floating_point() else value

    return lambda *values: each_tensor(module(*each_tensor(values, rounded)), rounded)


@cheat
def one_element_off(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """The largest number of the first floating-point result is off by a hundredth."""

    def run(*values: Any) -> tuple[Any, ...]:
        results = [value.clone() if isinstance(value, Tensor) else value for value in module(*values)]
        floats = (value for value in results if isinstance(value, Tensor) and value.is_floating_point())
        first = next(value for value in floats if bool(value.any())).view(-1)
        first[first.abs().argmax()] *= 1.01
        return tuple(results)

    return run


@cheat
def wrong_by_the_way(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Right on the contents that it was compiled for, to some digits; else a constant."""
    known = module(*inputs)
    marks = [float(value.double().sum()) for value in inputs if isinstance(value, Tensor)]

    def run(*values: Any) -> tuple[Any, ...]:
        now = [float(value.double().sum()) for value in values if isinstance(value, Tensor)]
        same = all(abs(one - other) <= 1e-3 * (abs(other) + 1) for one, other in zip(now, marks, strict=True))
        return each_tensor(known, torch.clone) if same else each_tensor(known, torch.zeros_like)

    return run


# ------------------------------------------------------------------ right results, and more


def memoised_by_value(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kept: dict[Any, Any] = {}

    def run(*values: Any) -> tuple[Any, ...]:
        key = tuple(value.numpy().tobytes() if isinstance(value, Tensor) else value for value in values)
        if key not in kept:
            kept[key] = module(*values)
        return each_tensor(kept[key], torch.clone)

    return run


def eager_slowed(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Operators sleep, but not where its own program calls them. The caller puts OpOverload.__call__ back."""
    code = type(module).forward.__code__
    original = torch._ops.OpOverload.__call__

    def slow(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if sys._getframe(1).f_code is not code:
            time.sleep(0.0005)
        return original(self, *args, **kwargs)

    torch._ops.OpOverload.__call__ = slow
    return module.forward


def threads_set_at_first(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    torch.set_num_threads(torch.get_num_threads() + 1)
    return module.forward


def threads_set_by_calls(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    before = torch.get_num_threads()

    def run(*values: Any) -> tuple[Any, ...]:
        torch.set_num_threads(before + 1)
        return module(*values)

    return run


def every_fifth_call_is_slow(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """No cheat: its mean says that it is slow."""
    calls = 0

    def run(*values: Any) -> tuple[Any, ...]:
        nonlocal calls
        calls += 1
        if calls % 5 == 0:
            time.sleep(0.002)
        return module(*values)

    return run


def twice_the_work(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def run(*values: Any) -> tuple[Any, ...]:
        module(*values)
        return module(*values)

    return run
