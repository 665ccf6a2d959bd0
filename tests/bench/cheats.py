"""Compilers that cheat: each a function of a graph and its inputs that returns what a bench must not believe.

`CHEATS` must be rejected on every graph whose inputs move its results. The functions below them are tested one by one.
"""

from __future__ import annotations

import copy
import gc
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
def right_for_usual_sizes(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Off where all numbers of an input are much smaller or larger than they were: without an epsilon, or saturated."""

    def sizes(values: Sequence[Any]) -> list[float]:
        return [float(x.abs().sum()) for x in values if isinstance(x, Tensor) and x.is_floating_point()]

    usual = sizes(inputs)

    def run(*values: Any) -> tuple[Any, ...]:
        usually = all(one / 10 <= now <= 1.7 * one for now, one in zip(sizes(values), usual, strict=True))
        results = module(*values)
        return tuple(results) if usually else each_tensor(results, lambda y: y * 1.25 if y.is_floating_point() else y)

    return run


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
def right_for_a_while(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Off from 0.4 s after its first call on, which is longer than all of a small graph's calls take."""
    began: list[float] = []

    def run(*values: Any) -> tuple[Any, ...]:
        began.append(time.monotonic())
        late = began[-1] - began[0] > 0.4
        return each_tensor(module(*values), lambda y: y * 1.25 if late and y.is_floating_point() else y)

    return run


@cheat
def written_by_a_thread(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kinds = module(*inputs)

    def run(*values: Any) -> tuple[Any, ...]:
        results = each_tensor(kinds, torch.zeros_like)
        copies = [value.clone() if isinstance(value, Tensor) else value for value in values]

        def work() -> None:
            time.sleep(0.05)  # longer than a busy machine keeps the caller waiting
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
            time.sleep(0.05 * late)
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


@cheat
def remembered_by_a_rounded_element(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kept: dict[Any, Any] = {}

    def run(*values: Any) -> tuple[Any, ...]:
        first = next(value for value in values if isinstance(value, Tensor) and value.is_floating_point())
        key = round(float(first.reshape(-1)[0]), 1)
        if key not in kept:
            kept[key] = module(*values)
        return each_tensor(kept[key], torch.clone)

    return run


@cheat
def seventh_call_is_off(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    calls = itertools.count(1)

    def run(*values: Any) -> tuple[Any, ...]:
        results = module(*values)
        return each_tensor(results, lambda value: value * 1.05) if next(calls) == 7 else results

    return run


@cheat
def sixty_four_memories_for_results(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kept: list[Any] = []
    calls = itertools.count()

    def run(*values: Any) -> tuple[Any, ...]:
        results, place = module(*values), next(calls) % 64
        if len(kept) < 64:
            kept.append(each_tensor(results, torch.clone))
        for old, new in zip(kept[place], results, strict=True):
            if isinstance(old, Tensor):
                old.copy_(new)
        return tuple(kept[place])

    return run


@cheat
def zeroed_later(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def run(*values: Any) -> tuple[Any, ...]:
        results = each_tensor(module(*values), torch.clone)

        def zero() -> None:
            time.sleep(0.3)
            each_tensor(results, lambda value: value.detach().zero_())

        threading.Thread(target=zero, daemon=True).start()
        return results

    return run


@cheat
def found_by_the_collector(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Results of the right kind, wherever in the process there are such: the judge's would be right."""
    kinds = module(*inputs)

    def run(*values: Any) -> tuple[Any, ...]:
        own = {id(value) for value in (*values, *kinds)}
        others = [each for each in gc.get_objects() if type(each) is Tensor and id(each) not in own]

        def like(kind: Tensor) -> Tensor:
            return next((each for each in others if (each.dtype, each.shape) == (kind.dtype, kind.shape)), kind).clone()

        return each_tensor(kinds, like)

    return run


@cheat
def replaces_the_bench(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    bench = sys.modules["backprint.tools.bench.performer"]
    bench.timed = lambda function, values, short: (1, function(*values))  # type: ignore[attr-defined]
    return module.forward


# ------------------------------------------------------------------ behind a draw


def draws(module: fx.GraphModule) -> bool:
    return "bernoulli" in module.code or "rand" in module.code


def behind_a_draw(change: Callable[[Tensor], Tensor]) -> Callable[..., Compiled]:
    """The first result of a graph that draws is changed."""

    def make(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        def run(*values: Any) -> tuple[Any, ...]:
            first, *others = module(*values)
            return (change(first) if draws(module) else first, *others)

        return run

    return make


three_times_and_one = behind_a_draw(lambda value: 3 * value + 1)
garbage = behind_a_draw(lambda value: 1e6 * torch.randn_like(value))
without_scale = behind_a_draw(lambda value: value * 0.9)


class OwnDraws(fx.Interpreter):
    """A graph whose draws are made in another way."""

    def __init__(self, module: fx.GraphModule, drawn: Callable[..., Tensor]) -> None:
        super().__init__(module)
        self.drawn = drawn

    def run_node(self, n: fx.Node) -> Any:
        if n.target in (torch.ops.aten.bernoulli.p, torch.ops.aten.randn_like.default):
            args, _ = self.fetch_args_kwargs_from_env(n)
            return self.drawn(*args)
        return super().run_node(n)


def own_draws(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Right: it draws what eager draws, from a generator of its own."""
    source = torch.Generator().manual_seed(77)

    def drawn(like: Tensor, p: float | None = None) -> Tensor:
        if p is None:
            return torch.randn(like.shape, generator=source)
        return (torch.rand(like.shape, generator=source) < p).to(like)

    return OwnDraws(module, drawn).run


def other_probability(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return OwnDraws(module, lambda like, p=0.0: torch.empty_like(like).bernoulli_(p - 0.1)).run


def uniform_noise(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return OwnDraws(module, lambda like: 3.46 * torch.rand(like.shape) - 1.73).run


def one_mask_for_all_calls(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    source = torch.Generator()

    def drawn(like: Tensor, p: float | None = None) -> Tensor:
        return (torch.rand(like.shape, generator=source.manual_seed(5)) < p).to(like)

    return OwnDraws(module, drawn).run


def own_noise_and_three_times(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    call = own_draws(module, inputs)

    def run(*values: Any) -> tuple[Any, ...]:
        first, *others = call(*values)
        return (3 * first + 1 if draws(module) else first, *others)

    return run


# ------------------------------------------------------------------ right results, and more


def memoised_by_value(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kept: dict[Any, Any] = {}

    def run(*values: Any) -> tuple[Any, ...]:
        key = tuple(value.numpy().tobytes() if isinstance(value, Tensor) else value for value in values)
        if key not in kept:
            kept[key] = each_tensor(module(*values), torch.clone)  # a result may have the memory of an input
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


def relu_leaks(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """A hundredth of negative numbers comes through."""
    made = fx.GraphModule(module, copy.deepcopy(module.graph))
    for node in made.graph.nodes:
        if node.target is torch.ops.aten.relu.default:
            node.target, node.args = torch.nn.functional.leaky_relu, (*node.args, 0.01)
    made.recompile()
    return made.forward


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


def interrupts(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    raise KeyboardInterrupt


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message")


def unreadable(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    raise Unreadable


def interrupts_later(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    calls = itertools.count()

    def run(*values: Any) -> tuple[Any, ...]:
        if next(calls) == 9:
            raise KeyboardInterrupt
        return module(*values)

    return run


def clock_replaced(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    original = time.perf_counter
    time.perf_counter = lambda: original()
    return module.forward


def comparison_replaced(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    torch.allclose = lambda *_, **__: True
    return module.forward


def on_meta(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return lambda *values: each_tensor(module(*values), lambda y: y.to("meta"))


def operators_replaced(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kinds = each_tensor(module(*inputs), torch.zeros_like)
    original = torch._ops.OpOverload.__call__

    def zero(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        return torch.zeros_like(result) if isinstance(result, Tensor) else result

    torch._ops.OpOverload.__call__ = zero  # type: ignore[method-assign]
    return lambda *_: kinds
