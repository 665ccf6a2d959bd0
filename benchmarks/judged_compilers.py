"""Compilers that are wrong on purpose, and compilers that are right in unusual ways, for `judged.py`.

    backprint bench SAMPLE --compiler benchmarks/judged_compilers.py:bias_dropped -o RUN

Each is a function of an fx.GraphModule and its inputs. `WRONG` has a row for each wrong kind, with what it does and how
`judged.py` knows that it changes results; `RIGHT` one for each right kind. They know nothing of how Backprint judges:
they are the faults of compilers, and the cheats that were published of KernelBench, SOL-ExecBench and the AI CUDA
Engineer. A kind that has nothing to change in a graph returns what eager returns.
"""

from __future__ import annotations

import copy
import gc
import itertools
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

aten = torch.ops.aten

Compiled = Callable[..., Any]
Compiler = Callable[[fx.GraphModule, Sequence[Any]], Compiled]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of compiler."""

    name: str
    compiler: Compiler
    told: str
    family: str = ""
    calls: int = 4
    """How many calls in a row show its fault."""
    wait: float = 0.0
    """Seconds after which the results of those calls show it."""
    needs: str = ""
    """`bernoulli` or `backward`: the samples in which there is something to change."""
    shown_by: str = "results"
    """`results`: it is called and compared; `construction`: it steals the right results of whoever compares it, or
    replaces the comparison, and its own results are zeros; `time`: its results are right and its time is false, so only
    `faster` believes it; `memory`: each call keeps memory."""


WRONG: dict[str, Kind] = {}
RIGHT: dict[str, Kind] = {}


def wrong(family: str, told: str, **given: Any) -> Callable[[Compiler], Compiler]:
    """Enter a wrong compiler into the table."""

    def enter(compiler: Compiler) -> Compiler:
        name = compiler.__name__
        WRONG[name] = Kind(name, compiler, told, family, **given)
        return compiler

    return enter


def right(told: str, **given: Any) -> Callable[[Compiler], Compiler]:
    """Enter a right compiler into the table."""

    def enter(compiler: Compiler) -> Compiler:
        name = compiler.__name__
        RIGHT[name] = Kind(name, compiler, told, "right", **given)
        return compiler

    return enter


# ------------------------------------------------------------------ how kinds are made


def floats(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.numel() > 0


def copied(values: Sequence[Any]) -> list[Any]:
    return [value.clone() if isinstance(value, Tensor) else value for value in values]


def on_tensors(results: Sequence[Any], change: Callable[[Tensor], Any]) -> tuple[Any, ...]:
    return tuple(change(value) if isinstance(value, Tensor) else value for value in results)


def on_floats(results: Sequence[Any], change: Callable[[Tensor], Any]) -> tuple[Any, ...]:
    return tuple(change(value) if floats(value) else value for value in results)


def on_first(results: Sequence[Any], change: Callable[[Tensor], Any]) -> tuple[Any, ...]:
    """Change the first result of floating-point numbers that are not all zero."""
    place = next((n for n, value in enumerate(results) if floats(value) and bool(value.any())), None)
    return tuple(change(value) if n == place else value for n, value in enumerate(results))


def on_gradients(gm: fx.GraphModule, results: Sequence[Any], change: Callable[[Tensor], Any]) -> tuple[Any, ...]:
    """Change the first gradient, if this is a backward."""
    return on_first(results, change) if is_backward(gm) else tuple(results)


def is_backward(gm: fx.GraphModule) -> bool:
    return any(node.op == "placeholder" and "tangent" in node.name for node in gm.graph.nodes)


def draws(gm: fx.GraphModule) -> bool:
    return any("bernoulli" in str(node.target) for node in gm.graph.nodes)


def after(change: Callable[[tuple[Any, ...]], Sequence[Any]]) -> Compiler:
    """Return the compiler that changes what the graph returns."""

    def compiler(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        return lambda *values: tuple(change(tuple(gm.forward(*values))))

    return compiler


Swaps = Mapping[Any, Callable[..., Any]]


def swapped(gm: fx.GraphModule, swaps: Swaps, where: Callable[[fx.Node], bool] = lambda node: True) -> Compiled:
    """Return the graph with other functions in the place of operators. A function is called with the operator first."""
    module = fx.GraphModule(gm, copy.deepcopy(gm.graph))
    for number, node in enumerate(module.graph.nodes):
        if node.op == "call_function" and node.target in swaps and where(node):
            node.target = bound(swaps[node.target], node.target, number)
    module.graph.lint()
    module.recompile()
    return module.forward


def bound(function: Callable[..., Any], operator: Any, number: int) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(operator, *args, **kwargs)

    call.__name__ = call.__qualname__ = f"{function.__name__}_{number}".replace("<lambda>", "swap")
    return call


def swapping(swaps: Swaps) -> Compiler:
    """Return the compiler that puts other functions in the place of operators."""
    return lambda gm, inputs: swapped(gm, swaps)


# ------------------------------------------------------------------ results that nothing computed


@wrong("not computed", "every result is zeros")
def zeros(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kinds = gm(*inputs)
    return lambda *_: on_tensors(kinds, torch.zeros_like)


@wrong("not computed", "every result is ones")
def ones(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kinds = gm(*inputs)
    return lambda *_: on_tensors(kinds, torch.ones_like)


@wrong("not computed", "an input of the same shape for each result (identity), else zeros")
def inputs_returned(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kinds = gm(*inputs)

    def run(*values: Any) -> tuple[Any, ...]:
        known = {(value.dtype, value.shape): value for value in values if isinstance(value, Tensor)}
        return on_tensors(kinds, lambda kind: known.get((kind.dtype, kind.shape), torch.zeros_like(kind)))

    return run


@wrong("not computed", "memory that was free: what the judge had there before (AI CUDA Engineer)")
def memory_as_it_was(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kinds = gm(*inputs)
    return lambda *_: on_tensors(kinds, torch.empty_like)


@wrong("not computed", "each result is its own mean, everywhere (outputs that random inputs hardly move)")
def means_alone(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return lambda *values: on_floats(gm.forward(*values), lambda y: torch.full_like(y, y.float().mean().item()))


@wrong("not computed", "random numbers with the mean and deviation of each result")
def drawn_alike(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def alike(y: Tensor) -> Tensor:
        return (torch.randn_like(y).float() * y.float().std(correction=0) + y.float().mean()).to(y.dtype)

    return lambda *values: on_floats(gm.forward(*values), alike)


@wrong("not computed", "each result's elements in another order")
def shuffled(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def mixed(y: Tensor) -> Tensor:
        order = torch.randperm(y.numel(), generator=torch.Generator().manual_seed(y.numel()))
        return y.reshape(-1)[order].view(y.shape)

    return lambda *values: on_floats(gm.forward(*values), mixed)


@wrong("not computed", "behind a dropout, the first result is noise a million times too large", needs="bernoulli")
def noise_behind_draws(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    if not draws(gm):
        return gm.forward
    return lambda *values: on_first(gm.forward(*values), lambda y: torch.randn_like(y) * 1e4)


@wrong("not computed", "the second half of each result is the first")
def half_of_it(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def repeated(y: Tensor) -> Tensor:
        flat = y.reshape(-1).clone()
        half = flat.numel() // 2
        flat[flat.numel() - half :] = flat[:half].clone()
        return flat.view(y.shape)

    return lambda *values: on_floats(gm.forward(*values), repeated)


@wrong("not computed", "only the first row of each result is computed; the rest is zeros")
def first_row_alone(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def first(y: Tensor) -> Tensor:
        kept = torch.zeros_like(y)
        kept[:1] = y[:1] if y.dim() else y
        return kept

    return lambda *values: on_floats(gm.forward(*values), lambda y: first(y) if y.dim() else y)


@wrong("not computed", "the last element of the largest result is left at zero")
def last_element_left(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def run(*values: Any) -> tuple[Any, ...]:
        results = list(gm.forward(*values))
        place = max((n for n, y in enumerate(results) if floats(y)), key=lambda n: results[n].numel())
        results[place] = results[place].clone(memory_format=torch.contiguous_format)
        results[place].view(-1)[-1] = 0
        return tuple(results)

    return run


# ------------------------------------------------------------------ results that were computed before


def cached(key: Callable[[Sequence[Any]], Any]) -> Compiler:
    """Return the compiler that computes once for each key of the inputs."""

    def compiler(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        kept: dict[Any, Any] = {}
        alive: list[Any] = []

        def run(*values: Any) -> tuple[Any, ...]:
            known = key(values)
            if known not in kept:
                alive.append(values)
                kept[known] = on_tensors(gm.forward(*values), torch.clone)
            return on_tensors(kept[known], torch.clone)

        return run

    return compiler


def tensors_of(values: Sequence[Any]) -> list[Tensor]:
    return [value for value in values if isinstance(value, Tensor)]


@wrong("cache", "computed when it is compiled, and never again")
def computed_once(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    results = gm(*copied(inputs))
    return lambda *_: on_tensors(results, torch.clone)


@wrong("cache", "the results of the first call")
def first_call_again(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return cached(lambda values: 0)(gm, inputs)


@wrong("cache", "the results of the call before; the first call's own")
def call_before(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kept: list[Any] = []

    def run(*values: Any) -> tuple[Any, ...]:
        kept.append(on_tensors(gm.forward(*values), torch.clone))
        return kept[0] if len(kept) == 1 else kept.pop(0)

    return run


@wrong("cache", "a cache keyed on the tensors' identity")
def by_identity(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return cached(lambda values: tuple(map(id, values)))(gm, inputs)


@wrong("cache", "a cache keyed on the addresses of the inputs' memory (SOL-ExecBench)")
def by_address(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return cached(lambda values: tuple(value.data_ptr() for value in tensors_of(values)))(gm, inputs)


@wrong("cache", "a cache keyed on shapes and dtypes")
def by_shape(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return cached(lambda values: tuple((value.shape, value.dtype) for value in tensors_of(values)))(gm, inputs)


@wrong("cache", "a cache keyed on the first element of each input, in two decimals")
def by_rounded_first(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def key(values: Sequence[Any]) -> Any:
        return tuple(round(float(value.reshape(-1)[0]), 2) for value in tensors_of(values) if value.numel())

    return cached(key)(gm, inputs)


@wrong("cache", "a cache keyed on the first four elements of the first three inputs")
def by_first_elements(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return cached(lambda values: tuple(tuple(v.reshape(-1)[:4].tolist()) for v in tensors_of(values)[:3]))(gm, inputs)


@wrong("cache", "a cache keyed on each input's sum, in three digits")
def by_rounded_sum(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return cached(lambda values: tuple(f"{float(value.double().sum()):.3g}" for value in tensors_of(values)))(
        gm, inputs
    )


@wrong("cache", "a cache keyed on the mean and deviation of each input, in one decimal")
def by_statistics(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def key(values: Sequence[Any]) -> Any:
        wide = [value.double() for value in tensors_of(values)]
        return tuple((round(float(x.mean()), 1), round(float(x.std(correction=0)), 1)) for x in wide)

    return cached(key)(gm, inputs)


@wrong("cache", "a cache keyed on every eighth element of the first input")
def by_sample_of_elements(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return cached(lambda values: tuple(tensors_of(values)[0].reshape(-1)[::8].tolist()))(gm, inputs)


@wrong("cache", "a cache keyed on the whole of the last input: the others are taken for constant")
def by_last_input(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return cached(lambda values: bytes(tensors_of(values)[-1].flatten().view(torch.uint8).tolist()))(gm, inputs)


@wrong("cache", "the first input is folded into the program when it is compiled")
def first_input_frozen(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    place = next(n for n, value in enumerate(inputs) if floats(value))
    kept = inputs[place].clone()
    return lambda *values: gm.forward(*values[:place], kept, *values[place + 1 :])


@wrong("cache", "right on the contents that it was compiled for, to three digits; else zeros")
def right_where_compiled(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    marks = [float(value.double().sum()) for value in tensors_of(inputs)]

    def run(*values: Any) -> tuple[Any, ...]:
        now = [float(value.double().sum()) for value in tensors_of(values)]
        known = all(abs(one - other) <= 1e-3 * (abs(other) + 1) for one, other in zip(now, marks, strict=True))
        results = gm.forward(*values)
        return tuple(results) if known else on_tensors(results, torch.zeros_like)

    return run


@wrong("cache", "right where the first input's sum has the sign that it had; else 25% off")
def right_on_half_of_contents(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    place = next(n for n, value in enumerate(inputs) if floats(value))
    pivot = float(inputs[place].double().reshape(-1)[::2].sum())

    def run(*values: Any) -> tuple[Any, ...]:
        results = gm.forward(*values)
        low = float(values[place].double().reshape(-1)[::2].sum()) < pivot
        return on_floats(results, lambda y: y * 1.25) if low else tuple(results)

    return run


# ------------------------------------------------------------------ calls that differ


def at_calls(bad: Callable[[int], bool], change: Callable[[Tensor], Tensor] = lambda y: y * 1.25) -> Compiler:
    """Return the compiler that changes the first result of some calls, which count from 1."""

    def compiler(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        count = itertools.count(1)

        def run(*values: Any) -> tuple[Any, ...]:
            results = gm.forward(*values)
            return on_first(results, change) if bad(next(count)) else tuple(results)

        return run

    return compiler


@wrong("calls", "the 7th call is 25% off", calls=8)
def seventh_call(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return at_calls(lambda n: n == 7)(gm, inputs)


@wrong("calls", "every third call is 25% off", calls=4)
def every_third_call(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return at_calls(lambda n: n % 3 == 0)(gm, inputs)


@wrong("calls", "every tenth call is 25% off", calls=11)
def every_tenth_call(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return at_calls(lambda n: n % 10 == 0)(gm, inputs)


@wrong("calls", "every 29th call is 25% off", calls=30)
def every_29th_call(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return at_calls(lambda n: n % 29 == 0)(gm, inputs)


@wrong("calls", "the first three calls are right, the others 25% off", calls=5)
def right_three_times(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return at_calls(lambda n: n > 3)(gm, inputs)


@wrong("calls", "from the 25th call on, the results of the 24th", calls=30)
def stale_after_24_calls(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    last: list[Any] = []

    def run(*values: Any) -> tuple[Any, ...]:
        if len(last) < 24:
            last.append(on_tensors(gm.forward(*values), torch.clone))
        return on_tensors(last[-1], torch.clone)

    return run


@wrong("calls", "one call in eight, drawn, is 25% off", calls=64)
def sometimes_off(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    import random

    draw = random.Random(0)
    return at_calls(lambda n: draw.random() < 0.125)(gm, inputs)


@wrong("calls", "each call is 1% further off than the one before", calls=8)
def drifts(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    count = itertools.count()

    def run(*values: Any) -> tuple[Any, ...]:
        factor = 1 + 0.01 * next(count)
        return on_floats(gm.forward(*values), lambda y: y * factor)

    return run


@wrong("calls", "0.25 s after the first call, results are 25% off", calls=6, wait=0.3)
def wrong_after_a_while(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    began: list[float] = []

    def run(*values: Any) -> tuple[Any, ...]:
        began.append(time.monotonic())
        results = gm.forward(*values)
        return on_first(results, lambda y: y * 1.25) if began[-1] - began[0] > 0.25 else tuple(results)

    return run


@wrong("calls", "results are 25% off where gradients are not recorded", calls=4)
def wrong_without_grad(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def run(*values: Any) -> tuple[Any, ...]:
        results = gm.forward(*values)
        return tuple(results) if torch.is_grad_enabled() else on_first(results, lambda y: y * 1.25)

    return run


@wrong("calls", "results are 25% off where gradients are recorded", calls=4)
def wrong_with_grad(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def run(*values: Any) -> tuple[Any, ...]:
        results = gm.forward(*values)
        return on_first(results, lambda y: y * 1.25) if torch.is_grad_enabled() else tuple(results)

    return run


@wrong("calls", "each call keeps 4 MiB for good", shown_by="memory")
def leaks(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kept: list[bytearray] = []

    def run(*values: Any) -> tuple[Any, ...]:
        kept.append(bytearray(os.urandom(4096) * 1024))
        return tuple(gm.forward(*values))

    return run


# ------------------------------------------------------------------ memory and time of results


def pool_of(size: int) -> Compiler:
    """Return the compiler that writes results into buffers which it uses again after `size` calls."""

    def compiler(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        buffers: list[tuple[Any, ...]] = []
        count = itertools.count()

        def run(*values: Any) -> tuple[Any, ...]:
            results = gm.forward(*values)
            place = next(count) % size
            if len(buffers) < size:
                buffers.append(on_tensors(results, torch.clone))
                return buffers[-1]
            for buffer, result in zip(buffers[place], results, strict=True):
                if isinstance(buffer, Tensor):
                    buffer.copy_(result)
            return buffers[place]

        return run

    return compiler


@wrong("memory", "all calls write their results into one memory", calls=3)
def one_buffer(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return pool_of(1)(gm, inputs)


@wrong("memory", "results are 4 buffers in turns", calls=6)
def pool_of_4(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return pool_of(4)(gm, inputs)


@wrong("memory", "results are 64 buffers in turns", calls=70)
def pool_of_64(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return pool_of(64)(gm, inputs)


@wrong("memory", "results of one shape share one memory")
def results_share_memory(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def run(*values: Any) -> tuple[Any, ...]:
        by_kind: dict[Any, Tensor] = {}

        def shared(y: Tensor) -> Tensor:
            kept = by_kind.setdefault((y.shape, y.dtype), y.clone())
            return kept.copy_(y)

        return on_tensors(gm.forward(*values), shared)

    return run


@wrong("memory", "results are written into inputs of their shape")
def results_in_inputs(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def run(*values: Any) -> tuple[Any, ...]:
        results = [value.clone() if isinstance(value, Tensor) else value for value in gm.forward(*values)]
        free = list(tensors_of(values))

        def placed(y: Tensor) -> Tensor:
            for place, value in enumerate(free):
                if (value.shape, value.dtype) == (y.shape, y.dtype):
                    return free.pop(place).copy_(y)
            return y

        return on_tensors(results, placed)

    return run


@wrong("memory", "an input is zeros after the call")
def input_zeroed(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def run(*values: Any) -> tuple[Any, ...]:
        results = on_tensors(gm.forward(*values), torch.clone)
        next(value for value in values if floats(value) and bool(value.any())).zero_()
        return results

    return run


@wrong("memory", "one element of the last input is larger by one after the call")
def input_element_changed(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    place = max(n for n, value in enumerate(inputs) if floats(value))

    def run(*values: Any) -> tuple[Any, ...]:
        results = on_tensors(gm.forward(*values), torch.clone)
        values[place][(0,) * values[place].dim()] += 1
        return results

    return run


@wrong("memory", "a thread zeroes the results 0.3 s after the call", wait=0.5)
def zeroed_later(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def run(*values: Any) -> tuple[Any, ...]:
        results = on_tensors(gm.forward(*values), torch.clone)

        def zero() -> None:
            time.sleep(0.3)
            for value in tensors_of(results):
                value.zero_()

        threading.Thread(target=zero, daemon=True).start()
        return results

    return run


def written_late(late: Callable[[int], bool]) -> Compiler:
    """Return the compiler whose results a thread writes, of some calls after they have returned."""

    def compiler(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        kinds, count = gm(*inputs), itertools.count(1)

        def run(*values: Any) -> tuple[Any, ...]:
            results, own, waits = on_tensors(kinds, torch.zeros_like), copied(values), not late(next(count))

            def work() -> None:
                with torch.no_grad():
                    computed = gm.forward(*own)
                    time.sleep(0.002 * (not waits))
                    for result, value in zip(results, computed, strict=True):
                        if isinstance(result, Tensor):
                            result.copy_(value)

            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            if waits:
                thread.join()
            return results

        return run

    return compiler


@wrong("memory", "a thread writes the results after the call has returned")
def written_by_a_thread(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return written_late(lambda n: True)(gm, inputs)


@wrong("memory", "a thread writes the results of every fifth call after it has returned", calls=7)
def sometimes_written_late(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return written_late(lambda n: n % 5 == 0)(gm, inputs)


class Lazy(torch.Tensor):
    """A tensor that computes its values when they are asked for."""

    compute: Any = None

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def forced(value: Any) -> Any:
            if isinstance(value, Lazy) and value.compute is not None:
                return value.compute()
            return [forced(item) for item in value] if isinstance(value, list | tuple) else value

        with torch._C.DisableTorchFunctionSubclass():
            return function(*map(forced, args), **(kwargs or {}))


@wrong("memory", "results are a subclass of tensors, computed when they are read", shown_by="time")
def computed_when_read(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kinds = gm(*inputs)

    def run(*values: Any) -> tuple[Any, ...]:
        kept: list[Any] = []

        def computed(place: int) -> Any:
            if not kept:
                kept.append(gm.forward(*values))
            return kept[0][place]

        def late(place: int, kind: Tensor) -> Tensor:
            tensor = torch.empty_like(kind).as_subclass(Lazy)
            tensor.compute = lambda: computed(place)
            return tensor

        return tuple(late(n, kind) if isinstance(kind, Tensor) else kind for n, kind in enumerate(kinds))

    return run


# ------------------------------------------------------------------ what results are


@wrong("form", "results of floating point are in another dtype")
def another_dtype(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return after(lambda results: on_floats(results, lambda y: y.to(torch.float64 if y.dim() else torch.float16)))(
        gm, inputs
    )


@wrong("form", "results have one dimension more")
def another_shape(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return after(lambda results: on_floats(results, lambda y: y.unsqueeze(0)))(gm, inputs)


@wrong("form", "results are on device meta")
def another_device(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return after(lambda results: on_floats(results, lambda y: y.to("meta")))(gm, inputs)


@wrong("form", "the last result is missing")
def one_result_fewer(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return after(lambda results: results[:-1])(gm, inputs)


@wrong("form", "the first result is None")
def first_result_none(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return after(lambda results: (None, *results[1:]))(gm, inputs)


@wrong("form", "a result's rows and columns are exchanged, in the shape it should have")
def transposed(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def turned(y: Tensor) -> Tensor:
        return y.transpose(-1, -2).reshape(y.shape) if y.dim() > 1 else y

    return after(lambda results: on_floats(results, turned))(gm, inputs)


@wrong("form", "two results of one shape are exchanged")
def exchanged(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def change(results: tuple[Any, ...]) -> Sequence[Any]:
        pairs = itertools.combinations([n for n, y in enumerate(results) if floats(y)], 2)
        for one, other in pairs:
            if results[one].shape == results[other].shape:
                swapped_results = list(results)
                swapped_results[one], swapped_results[other] = results[other], results[one]
                return swapped_results
        return results

    return after(change)(gm, inputs)


# ------------------------------------------------------------------ numbers


@wrong("numbers", "the first result is three times itself and one")
def times_three_and_one(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return after(lambda results: on_first(results, lambda y: y * 3 + 1))(gm, inputs)


@wrong("numbers", "the largest element of the first result is 3% off")
def one_element_off(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def off(y: Tensor) -> Tensor:
        flat = y.reshape(-1).clone()
        flat[flat.abs().argmax()] *= 1.03
        return flat.view(y.shape)

    return after(lambda results: on_first(results, off))(gm, inputs)


@wrong("numbers", "an element of the middle of the first result is off by a tenth of the largest")
def inner_element_off(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def off(y: Tensor) -> Tensor:
        flat = y.reshape(-1).clone()
        flat[flat.numel() // 2] += 0.1 * flat.abs().max()
        return flat.view(y.shape)

    return after(lambda results: on_first(results, off))(gm, inputs)


@wrong("numbers", "the last element of the last result is NaN")
def nan_at_the_end(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def change(results: tuple[Any, ...]) -> Sequence[Any]:
        place = max((n for n, y in enumerate(results) if floats(y)), default=None)
        if place is None:
            return results
        bad = results[place].clone(memory_format=torch.contiguous_format)
        bad.view(-1)[-1] = math.nan
        return (*results[:place], bad, *results[place + 1 :])

    return after(change)(gm, inputs)


@wrong("numbers", "numbers below a hundredth of the largest are zero")
def small_flushed(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def flushed(y: Tensor) -> Tensor:
        return torch.where(y.abs() < 0.01 * y.abs().max(), torch.zeros_like(y), y)

    return after(lambda results: on_floats(results, flushed))(gm, inputs)


@wrong("numbers", "numbers saturate at nine tenths of the largest")
def saturated(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def clamped(y: Tensor) -> Tensor:
        bound = 0.9 * float(y.abs().max())
        return y.clamp(-bound, bound)

    return after(lambda results: on_floats(results, clamped))(gm, inputs)


@wrong("numbers", "inputs and results are rounded to a smaller format: float32 to bfloat16, 16 bits to float8")
def smaller_format(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def rounded(value: Tensor) -> Tensor:
        small = torch.bfloat16 if value.dtype in (torch.float32, torch.float64) else torch.float8_e4m3fn
        return value.to(small).to(value.dtype)

    return lambda *values: on_floats(gm.forward(*on_floats(values, rounded)), rounded)


@wrong("numbers", "the inputs of matrix products are rounded to eight bits")
def products_of_eight_bits(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def quantized(x: Tensor) -> Tensor:
        scale = x.abs().max().clamp_min(1e-12) / 127
        return (x / scale).round() * scale

    def product(operator: Any, *args: Any, **kwargs: Any) -> Any:
        return operator(*(quantized(arg) if floats(arg) else arg for arg in args), **kwargs)

    return swapping(dict.fromkeys(PRODUCTS, product))(gm, inputs)


@wrong("numbers", "matrix products add up in eight bits of precision (bfloat16), for float32 too")
def sums_in_bfloat16(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def product(operator: Any, one: Tensor, other: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.bfloat16)
        for k in range(one.shape[-1]):
            term = one[..., :, k : k + 1].bfloat16() * other[..., k : k + 1, :].bfloat16()
            total = total + term
        return total.to(one.dtype)

    def added(operator: Any, bias: Tensor, one: Tensor, other: Tensor, **_: Any) -> Tensor:
        return product(operator, one, other) + bias

    return swapping({aten.mm.default: product, aten.bmm.default: product, aten.addmm.default: added})(gm, inputs)


PRODUCTS = (aten.mm.default, aten.bmm.default, aten.addmm.default, aten.convolution.default)


# ------------------------------------------------------------------ operators that compute something else


@wrong("operators", "products and convolutions leave their bias out")
def bias_dropped(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return swapping(
        {
            aten.addmm.default: lambda op, bias, one, other, **_: one @ other,
            aten.convolution.default: lambda op, x, weight, bias, *more: op(x, weight, None, *more),
        }
    )(gm, inputs)


NORMS = {
    aten.native_layer_norm.default: (2, 3, 4),
    aten.native_group_norm.default: (1, 2, 7),
    aten.native_batch_norm.default: (1, 2, 7),
    aten._native_batch_norm_legit_functional.default: (1, 2, 7),
    aten._native_batch_norm_legit.default: (1, 2, 7),
}
"""The places of weight, bias and epsilon."""


def norms_with(place: int, change: Callable[[Any], Any]) -> Compiler:
    """Return the compiler that changes one argument of every norm."""

    def norm(operator: Any, *args: Any, **kwargs: Any) -> Any:
        where = NORMS[operator][place]
        return operator(*args[:where], change(args[where]), *args[where + 1 :], **kwargs)

    return swapping(dict.fromkeys(NORMS, norm))


@wrong("operators", "norms leave their bias out")
def norm_bias_dropped(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return norms_with(1, lambda bias: None if bias is None else torch.zeros_like(bias))(gm, inputs)


@wrong("operators", "norms leave their weight out")
def norm_weight_dropped(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return norms_with(0, lambda weight: None if weight is None else torch.ones_like(weight))(gm, inputs)


@wrong("operators", "norms have an epsilon of 0")
def epsilon_dropped(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return norms_with(2, lambda eps: 0.0)(gm, inputs)


@wrong("operators", "norms have an epsilon of 1e-3")
def epsilon_of_a_thousandth(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return norms_with(2, lambda eps: 1e-3)(gm, inputs)


@wrong("operators", "a norm returns its input")
def norm_left_out(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def norm(operator: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return x.clone(), *operator(x, *args, **kwargs)[1:]

    return swapping(dict.fromkeys(NORMS, norm))(gm, inputs)


@wrong("operators", "batch norms update their running statistics with twice the momentum")
def momentum_doubled(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def norm(operator: Any, *args: Any, **kwargs: Any) -> Any:
        return operator(*args[:6], 2 * args[6], *args[7:], **kwargs)

    batch = [operator for operator in NORMS if "batch" in str(operator)]
    return swapping(dict.fromkeys(batch, norm))(gm, inputs)


@wrong("operators", "a factor by which a tensor is multiplied or divided is left out, but a dropout's")
def factor_dropped(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def kept(operator: Any, x: Tensor, factor: Any) -> Tensor:
        return x.clone()

    scalars = dict.fromkeys((aten.mul.Scalar, aten.div.Scalar, aten.mul.Tensor, aten.div.Tensor), kept)
    return swapped(
        gm, scalars, lambda node: "bernoulli" not in str(node.args[0]) and isinstance(node.args[1], int | float)
    )


@wrong("operators", "Inductor's own test fault: relu(x) + 1")
def relu_plus_one(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return swapping({aten.relu.default: lambda op, x: op(x) + 1})(gm, inputs)


@wrong("operators", "a relu lets a hundredth of negative numbers through")
def relu_that_leaks(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return swapping({aten.relu.default: lambda op, x: torch.where(x > 0, x, 0.01 * x)})(gm, inputs)


@wrong("operators", "gelu by tanh for gelu by erf, in both directions")
def gelu_by_tanh(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def gelu(operator: Any, *args: Any, **_: Any) -> Tensor:
        result: Tensor = operator(*args, approximate="tanh")
        return result

    return swapping({aten.gelu.default: gelu, aten.gelu_backward.default: gelu})(gm, inputs)


@wrong("operators", "a softmax returns equal shares (the uniform tokens of random models)")
def softmax_uniform(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def softmax(operator: Any, x: Tensor, dim: int, *_: Any) -> Tensor:
        share = torch.full_like(x, 1 / x.shape[dim])
        return share.log() if "log" in str(operator) else share

    return swapping({aten._softmax.default: softmax, aten._log_softmax.default: softmax})(gm, inputs)


@wrong("operators", "a tanh returns its input: the soft cap is left out")
def tanh_left_out(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return swapping({aten.tanh.default: lambda op, x: x.clone()})(gm, inputs)


@wrong("operators", "a mask is left out: causal attention, and every fill under a mask")
def mask_dropped(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def attention(
        operator: Any, q: Tensor, k: Tensor, v: Tensor, p: float = 0.0, causal: bool = False, **_: Any
    ) -> Any:
        return operator(q, k, v, p, False, **_)

    fills = {aten.masked_fill.Scalar: lambda op, x, *_: x.clone(), aten.masked_fill.Tensor: lambda op, x, *_: x.clone()}
    flash = aten._scaled_dot_product_flash_attention_for_cpu.default
    return swapping({flash: attention, aten.where.self: lambda op, mask, one, other: other + 0 * one, **fills})(
        gm, inputs
    )


@wrong("operators", "attention's products are not scaled")
def attention_unscaled(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def attention(operator: Any, *args: Any, **kwargs: Any) -> Any:
        return operator(*args, **{**kwargs, "scale": 1.0})

    return swapping(
        {
            aten._scaled_dot_product_flash_attention_for_cpu.default: attention,
            aten._scaled_dot_product_flash_attention_for_cpu_backward.default: attention,
        }
    )(gm, inputs)


@wrong("operators", "a mean in the place of every sum")
def mean_for_sum(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return swapping(
        {
            aten.sum.dim_IntList: lambda op, x, *more, **_: aten.mean.dim(x, *more),
            aten.sum.default: lambda op, x, **_: x.mean(),
        }
    )(gm, inputs)


@wrong("operators", "a sum in the place of every mean")
def sum_for_mean(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return swapping(
        {
            aten.mean.dim: lambda op, x, *more, **_: aten.sum.dim_IntList(x, *more),
            aten.mean.default: lambda op, x, **_: x.sum(),
            aten.mse_loss.default: lambda op, x, y, *_: aten.mse_loss.default(x, y, 2),
        }
    )(gm, inputs)


@wrong("operators", "a sum leaves the last row out")
def last_row_not_summed(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def total(operator: Any, x: Tensor, dims: Any, *more: Any, **kwargs: Any) -> Any:
        dim = dims[0] if dims else 0
        short = x.narrow(dim, 0, x.shape[dim] - 1) if x.shape[dim] > 1 else x
        return operator(short, dims, *more, **kwargs)

    return swapping({aten.sum.dim_IntList: total})(gm, inputs)


@wrong("operators", "the first sum of two tensors of one shape is its first term: a residual is dropped")
def residual_dropped(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def added(operator: Any, x: Any, y: Any, **kwargs: Any) -> Any:
        same = isinstance(x, Tensor) and isinstance(y, Tensor) and x.shape == y.shape
        return x.clone() if same else operator(x, y, **kwargs)

    return swapping({aten.add.Tensor: added})(gm, inputs)


@wrong("operators", "a product leaves the last of its terms out")
def last_term_dropped(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def shorter(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        return (one[..., :-1], other[..., :-1, :]) if one.shape[-1] > 1 else (one, other)

    return swapping(
        {
            aten.mm.default: lambda op, one, other: op(*shorter(one, other)),
            aten.bmm.default: lambda op, one, other: op(*shorter(one, other)),
            aten.addmm.default: lambda op, bias, one, other, **more: op(bias, *shorter(one, other), **more),
        }
    )(gm, inputs)


@wrong("operators", "an embedding looks the last row up as the first")
def embedding_wraps(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return swapping(
        {aten.embedding.default: lambda op, table, words, *more: op(table, words % (len(table) - 1), *more)}
    )(gm, inputs)


@wrong("operators", "a sigmoid is cut into straight lines")
def sigmoid_hard(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return swapping({aten.sigmoid.default: lambda op, x: torch.nn.functional.hardsigmoid(x)})(gm, inputs)


# ------------------------------------------------------------------ dropout


@wrong("dropout", "nothing is dropped", needs="bernoulli")
def dropout_left_out(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return swapping({aten.bernoulli.p: lambda op, x, p, **_: torch.full_like(x, p)})(gm, inputs)


@wrong("dropout", "what is kept is not divided by the share that is kept", needs="bernoulli")
def dropout_unscaled(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kept = {aten.div.Scalar: lambda op, x, factor: x.clone()}
    return swapped(gm, kept, lambda node: "bernoulli" in str(node.args[0]))


@wrong("dropout", "twice as much is dropped as should be", needs="bernoulli")
def dropout_of_another_share(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return swapping({aten.bernoulli.p: lambda op, x, p, **more: op(x, max(0.0, 2 * p - 1), **more)})(gm, inputs)


@wrong("dropout", "what should be kept is dropped", needs="bernoulli")
def dropout_inverted(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return swapping({aten.bernoulli.p: lambda op, x, p, **more: 1 - op(x, p, **more)})(gm, inputs)


@wrong("dropout", "all rows have one mask", needs="bernoulli")
def dropout_same_for_rows(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return swapping({aten.bernoulli.p: lambda op, x, p, **more: op(x[:1], p, **more).expand(x.shape).clone()})(
        gm, inputs
    )


@wrong("dropout", "every call has the same mask", needs="bernoulli")
def dropout_same_each_call(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def drawn(operator: Any, x: Tensor, p: float, **_: Any) -> Any:
        return operator(x, p, generator=torch.Generator().manual_seed(x.numel()))

    return swapping({aten.bernoulli.p: drawn})(gm, inputs)


@wrong("dropout", "the mask that the backward is given is not the one that was used", needs="bernoulli")
def dropout_other_mask_saved(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    module = fx.GraphModule(gm, copy.deepcopy(gm.graph))
    output = next(node for node in module.graph.nodes if node.op == "output")
    results = list(output.args[0])

    def fresh(mask: Tensor) -> Tensor:
        share = (mask != 0).float().mean().item()
        drawn = torch.rand(mask.shape, generator=FRESH) < share
        return torch.where(drawn, mask.abs().max(), torch.zeros_like(mask))

    for place, node in enumerate(results):
        if isinstance(node, fx.Node) and "bernoulli" in f"{node.name} {node.args}":
            with module.graph.inserting_before(output):
                results[place] = module.graph.call_function(fresh, (node,))
    output.args = (tuple(results),)
    module.recompile()
    return module.forward


FRESH = torch.Generator().manual_seed(5)


@wrong("dropout", "the backward has a mask of its own", needs="bernoulli")
def dropout_redrawn_in_backward(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    masks = [n for n, value in enumerate(inputs) if is_backward(gm) and floats(value) and is_mask(value)]

    def run(*values: Any) -> tuple[Any, ...]:
        own = list(values)
        for place in masks:
            order = torch.randperm(own[place].numel(), generator=FRESH)
            own[place] = own[place].reshape(-1)[order].view(own[place].shape)
        return tuple(gm.forward(*own))

    return run


def is_mask(value: Tensor) -> bool:
    """Whether it is zero or one other number, and both."""
    return value.dim() > 0 and len(value.unique()) == 2 and bool((value == 0).any())


# ------------------------------------------------------------------ gradients


def gradients_changed(change: Callable[[Tensor], Any]) -> Compiler:
    """Return the compiler that changes the first gradient."""
    return lambda gm, inputs: lambda *values: on_gradients(gm, gm.forward(*values), change)


@wrong("gradients", "the gradient of one parameter is zeros", needs="backward")
def gradient_of_zeros(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return gradients_changed(torch.zeros_like)(gm, inputs)


@wrong("gradients", "a gradient is added twice", needs="backward")
def gradient_twice(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return gradients_changed(lambda y: y + y)(gm, inputs)


@wrong("gradients", "a gradient has the other sign", needs="backward")
def gradient_negated(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return gradients_changed(torch.neg)(gm, inputs)


@wrong("gradients", "a gradient is added to those of the calls before", needs="backward")
def gradient_accumulated(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kept: list[Tensor] = []

    def added(y: Tensor) -> Tensor:
        kept.append(y.clone() if not kept else kept.pop() + y)
        return kept[0].clone()

    return gradients_changed(added)(gm, inputs)


@wrong("gradients", "a gradient is that of the call before", needs="backward")
def gradient_of_the_call_before(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kept: list[Tensor] = []

    def before(y: Tensor) -> Tensor:
        kept.append(y.clone())
        return kept.pop(0) if len(kept) > 1 else kept[0].clone()

    return gradients_changed(before)(gm, inputs)


@wrong("gradients", "gradients are scaled to a norm of one", needs="backward")
def gradients_clipped(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def clipped(y: Tensor) -> Tensor:
        return y / y.float().norm().clamp_min(1e-6).to(y.dtype)

    return gradients_changed(clipped)(gm, inputs)


@wrong("gradients", "a gradient is its mean over rows, in every row: a broadcast that was reduced", needs="backward")
def gradient_reduced(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return gradients_changed(lambda y: y.mean(0, keepdim=True).expand(y.shape).clone() if y.dim() else y)(gm, inputs)


@wrong("gradients", "the last row of a gradient is zeros", needs="backward")
def gradient_without_last_row(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def cut(y: Tensor) -> Tensor:
        short = y.clone()
        if y.dim():
            short[-1] = 0
        return short

    return gradients_changed(cut)(gm, inputs)


@wrong("gradients", "every tangent is taken for ones", needs="backward")
def tangent_of_ones(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    places = {n for n, name in enumerate(names) if "tangent" in name}
    return lambda *values: gm.forward(
        *(torch.ones_like(value) if n in places and floats(value) else value for n, value in enumerate(values))
    )


# ------------------------------------------------------------------ against the judge itself


def stolen(kinds: Sequence[Any], candidates: Sequence[Any], own: Sequence[Any]) -> tuple[Any, ...]:
    """A tensor that somebody holds for each result: of its shape, and neither an input nor zeros."""
    taken = {id(value) for value in own}

    def like(kind: Tensor) -> Tensor:
        for value in candidates:
            if type(value) is not Tensor or id(value) in taken or value.is_meta:
                continue
            if (value.shape, value.dtype) == (kind.shape, kind.dtype) and bool(value.any()):
                taken.add(id(value))
                return value.clone()
        return torch.zeros_like(kind)

    return on_tensors(kinds, like)


@wrong(
    "judge",
    "results are tensors of the process that have their shape, as the collector lists them",
    shown_by="construction",
)
def searches_the_collector(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kinds = on_tensors(gm(*inputs), torch.zeros_like)
    return lambda *values: stolen(kinds, gc.get_objects(), [*values, *kinds, *inputs])


@wrong("judge", "results are tensors in the callers' variables, or in what those hold", shown_by="construction")
def searches_the_frames(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kinds = on_tensors(gm(*inputs), torch.zeros_like)

    def reached(value: Any, depth: int) -> list[Any]:
        if isinstance(value, Tensor):
            return [value]
        if depth == 0 or isinstance(value, str | bytes | int | float):
            return []
        if isinstance(value, dict):
            inner: list[Any] = list(value.values())
        elif isinstance(value, list | tuple | set):
            inner = list(value)
        else:
            inner = [*vars(value).values()] if hasattr(value, "__dict__") and not isinstance(value, type(sys)) else []
            inner += [getattr(value, name, None) for name in getattr(type(value), "__slots__", ()) if name[:2] != "__"]
        return [tensor for item in inner[:200] for tensor in reached(item, depth - 1)]

    def run(*values: Any) -> tuple[Any, ...]:
        frame, held = sys._getframe(1), []
        while frame is not None:
            held += reached(dict(frame.f_locals), 4)
            frame = frame.f_back
        return stolen(kinds, held, [*values, *kinds, *inputs])

    return run


@wrong("judge", "torch's comparisons say yes, and results are zeros", shown_by="construction")
def comparisons_patched(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kinds = gm(*inputs)
    torch.equal = torch.allclose = Tensor.equal = Tensor.allclose = lambda *_, **__: True  # type: ignore[assignment]
    torch.isclose = Tensor.isclose = lambda x, *_, **__: torch.ones_like(x, dtype=torch.bool)  # type: ignore[assignment]
    torch.testing.assert_close = lambda *_, **__: None
    return lambda *_: on_tensors(kinds, torch.zeros_like)


@wrong("judge", "differences and norms are zero, and results are zeros", shown_by="construction")
def arithmetic_patched(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kinds = gm(*inputs)
    for name in ("__sub__", "sub", "abs", "norm", "dist", "ne"):
        setattr(Tensor, name, lambda x, *_, **__: torch.zeros_like(x))
    for name in ("sub", "abs", "norm", "dist", "ne"):
        setattr(torch, name, lambda x, *_, **__: torch.zeros_like(x))
    return lambda *_: on_tensors(kinds, torch.zeros_like)


@wrong("judge", "every operator returns zeros from now on, for eager too", shown_by="construction")
def operators_patched(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kinds = on_tensors(gm(*inputs), torch.zeros_like)
    original = torch._ops.OpOverload.__call__

    def zero(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        return torch.zeros_like(result) if isinstance(result, Tensor) else result

    torch._ops.OpOverload.__call__ = zero  # type: ignore[method-assign]
    return lambda *_: on_tensors(kinds, torch.zeros_like)


@wrong("judge", "the graph that the judge holds is changed to return zeros", shown_by="construction")
def graph_changed(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kinds = on_tensors(gm(*inputs), torch.zeros_like)
    gm.forward = lambda *_: on_tensors(kinds, torch.clone)  # type: ignore[method-assign]
    type(gm).forward = lambda self, *_: on_tensors(kinds, torch.clone)  # type: ignore[method-assign]
    return lambda *_: on_tensors(kinds, torch.clone)


@wrong(
    "judge",
    "the inputs that it is compiled with are set to zero, so that all results are small",
    shown_by="construction",
)
def compile_inputs_zeroed(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kinds = on_tensors(gm(*inputs), torch.zeros_like)
    for value in inputs:
        if floats(value):
            value.zero_()
    return lambda *_: on_tensors(kinds, torch.clone)


@wrong("judge", "clocks pass a tenth as fast inside of its calls", shown_by="time")
def clocks_patched(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    state = {"hidden": 0.0}
    clocks = {name: getattr(time, name) for name in ("perf_counter", "monotonic", "time", "process_time")}
    counts = {name: getattr(time, name) for name in ("perf_counter_ns", "monotonic_ns", "time_ns", "process_time_ns")}
    for name, clock in clocks.items():
        setattr(time, name, lambda clock=clock: clock() - state["hidden"])
    for name, clock in counts.items():
        setattr(time, name, lambda clock=clock: clock() - int(1e9 * state["hidden"]))
    now = clocks["perf_counter"]

    def run(*values: Any) -> tuple[Any, ...]:
        began = now()
        results = gm.forward(*values)
        state["hidden"] += 0.9 * (now() - began)
        return tuple(results)

    return run


@wrong("judge", "operators sleep wherever it is not its own program that calls them", shown_by="time")
def eager_slowed(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    own = copy.deepcopy(gm)
    code = type(own).forward.__code__
    original = torch._ops.OpOverload.__call__

    def slow(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if sys._getframe(1).f_code is not code:
            time.sleep(0.0005)
        return original(self, *args, **kwargs)

    torch._ops.OpOverload.__call__ = slow  # type: ignore[method-assign]
    return own.forward


@wrong("judge", "nothing is computed while a caller's name tells of time", shown_by="time")
def skips_where_timed(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kept = on_tensors(gm(*inputs), torch.clone)

    def run(*values: Any) -> tuple[Any, ...]:
        frame: Any = sys._getframe(1)
        for _ in range(6):
            if frame is None:
                break
            if any(word in frame.f_code.co_name for word in ("time", "clock", "round", "turn", "measure", "bench")):
                return kept
            frame = frame.f_back
        return tuple(gm.forward(*values))

    return run


@wrong("judge", "more threads than eager has", shown_by="time")
def threads_taken(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    torch.set_num_threads(torch.get_num_threads() + 3)
    return gm.forward


# ================================================================== right


@right("the graph itself")
def itself(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return gm.forward


@right("the graph, node by node in an interpreter")
def interpreted(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return lambda *values: fx.Interpreter(gm).run(*values)


@right("sums go from the last to the first")
def sums_reordered(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def total(operator: Any, x: Tensor, dims: Any, *more: Any, **kwargs: Any) -> Any:
        return operator(x.flip([dim % x.dim() for dim in dims] or list(range(x.dim()))), dims, *more, **kwargs)

    return swapping({aten.sum.dim_IntList: total, aten.mean.dim: total})(gm, inputs)


@right("products are sums of products of eight terms each, in at least float32")
def products_chunked(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def product(operator: Any, one: Tensor, other: Tensor) -> Tensor:
        wide = torch.promote_types(one.dtype, torch.float32)
        parts = zip(one.to(wide).split(8, -1), other.to(wide).split(8, -2), strict=True)
        return sum((a @ b for a, b in parts), torch.zeros((), dtype=wide)).to(one.dtype)

    def added(operator: Any, bias: Tensor, one: Tensor, other: Tensor, **_: Any) -> Tensor:
        wide = torch.promote_types(one.dtype, torch.float32)
        return (product(operator, one.to(wide), other.to(wide)) + bias.to(wide)).to(one.dtype)

    return swapping({aten.mm.default: product, aten.bmm.default: product, aten.addmm.default: added})(gm, inputs)


def computed_in(dtype: torch.dtype, targets: Sequence[Any]) -> Compiler:
    """Return the compiler that computes some operators in a wider dtype."""

    def wide(operator: Any, *args: Any, **kwargs: Any) -> Any:
        kept = next(arg.dtype for arg in args if floats(arg))
        result = operator(*(arg.to(dtype) if floats(arg) else arg for arg in args), **kwargs)
        return result.to(kept) if isinstance(result, Tensor) else tuple(value.to(kept) for value in result)

    return swapping(dict.fromkeys(targets, wide))


POINTWISE = (aten.gelu.default, aten.sigmoid.default, aten.tanh.default, aten._softmax.default, aten.relu.default)


@right("products and functions are computed in float32, and rounded once")
def float32_inside(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return computed_in(torch.float32, (*PRODUCTS, *POINTWISE))(gm, inputs)


@right("products and functions are computed in float64, and rounded once")
def float64_inside(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return computed_in(torch.float64, (*PRODUCTS, *POINTWISE))(gm, inputs)


@right("operators are decomposed as Inductor decomposes them")
def decomposed(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    from torch._decomp import core_aten_decompositions
    from torch.fx.experimental.proxy_tensor import make_fx

    # The rule for attention on a CPU gives shares in the place of the sums that its backward takes.
    left = ("bernoulli", "flash_attention_for_cpu")
    rules = {
        operator: rule
        for operator, rule in core_aten_decompositions().items()
        if not any(name in str(operator) for name in left)
    }
    # make_fx counts the arguments by the code of a function, which a bound method's is not.
    traced: Compiled = make_fx(lambda *values: gm.forward(*values), decomposition_table=rules)(*inputs).forward
    return traced


@right("convolutions in channels-last")
def channels_last(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def laid(operator: Any, *args: Any, **kwargs: Any) -> Any:
        form = torch.channels_last
        results = operator(
            *(a.contiguous(memory_format=form) if floats(a) and a.dim() == 4 else a for a in args), **kwargs
        )
        if isinstance(results, Tensor):
            return results.contiguous()  # the graph may have a view of it
        return on_tensors(results, Tensor.contiguous)

    return swapping({aten.convolution.default: laid, aten.convolution_backward.default: laid})(gm, inputs)


@right("a mask is drawn as uniform numbers below the share that is kept")
def own_draws(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return swapping({aten.bernoulli.p: lambda op, x, p, **_: (torch.rand(x.shape) < p).to(x.dtype)})(gm, inputs)


@right("a mask is drawn from a generator of its own")
def own_generator(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    generator = torch.Generator()
    generator.seed()
    return swapping({aten.bernoulli.p: lambda op, x, p, **_: op(torch.empty_like(x), p, generator=generator)})(
        gm, inputs
    )


@right("results are written into one memory, and copies of it returned")
def copies_of_one_buffer(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    buffers = pool_of(1)(gm, inputs)
    return lambda *values: on_tensors(buffers(*values), torch.clone)


def free(buffer: Tensor) -> bool:
    """Whether no other tensor has its memory; the storage counts its tensors, and the object that asks."""
    count: int = torch._C._storage_Use_Count(buffer.untyped_storage()._cdata)
    return count <= 2


@right("a buffer is used again when nobody holds it")
def buffers_reused(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    buffers: dict[Any, list[Tensor]] = {}

    def placed(y: Tensor) -> Tensor:
        known = buffers.setdefault((y.shape, y.dtype), [])
        for buffer in known:
            # Held by the list, the loop and getrefcount's argument alone. A view of it would hold it as its base.
            if sys.getrefcount(buffer) <= 3 and free(buffer):
                return buffer.copy_(y)
        known.append(y.clone())
        return known[-1]

    return lambda *values: on_tensors(gm.forward(*values), placed)


@right("inputs are copied into memory of its own before each call, as a CUDA graph has them")
def static_inputs(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    own = copied(inputs)

    def run(*values: Any) -> tuple[Any, ...]:
        for kept, value in zip(own, values, strict=True):
            if isinstance(kept, Tensor):
                kept.copy_(value)
        return on_tensors(gm.forward(*own), torch.clone)

    return run


@right("compiled when it is first called, which takes a while")
def compiled_lazily(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kept: list[Any] = []

    def run(*values: Any) -> tuple[Any, ...]:
        if not kept:
            time.sleep(0.1)
            kept.append(copy.deepcopy(gm).forward)
        return tuple(kept[0](*values))

    return run


@right("computed by a thread, which it waits for")
def in_a_thread(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def run(*values: Any) -> tuple[Any, ...]:
        kept: list[Any] = []
        grad = torch.is_grad_enabled()

        def work() -> None:
            with torch.set_grad_enabled(grad):
                kept.append(gm.forward(*values))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return tuple(kept[0])

    return run


@right("computed in inference mode; results are copied out of it")
def inference_inside(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def run(*values: Any) -> tuple[Any, ...]:
        with torch.inference_mode():
            results = gm.forward(*values)
        return on_tensors(results, torch.clone)

    return run


@right("computed twice, as under checkpointing; the second results count")
def computed_twice(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def run(*values: Any) -> tuple[Any, ...]:
        gm.forward(*values)
        return tuple(gm.forward(*values))

    return run


@right("it is called ten times when it is compiled, to choose the fastest of its forms")
def tuned_when_compiled(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    for _ in range(10):
        gm(*copied(inputs))
    return gm.forward


@right("copies of inputs are changed in place")
def in_place_on_copies(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def run(*values: Any) -> tuple[Any, ...]:
        own = copied(values)
        results = on_tensors(gm.forward(*own), torch.clone)
        for value in own:
            if floats(value):
                value.mul_(0)
        return results

    return run


@right("results have other strides")
def other_strides(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def turned(y: Tensor) -> Tensor:
        return y.mT.contiguous().mT if y.dim() > 1 else y

    return after(lambda results: on_tensors(results, turned))(gm, inputs)


@right("gelu is written with erf, in float32")
def gelu_by_erf(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def gelu(operator: Any, x: Tensor, **kwargs: Any) -> Tensor:
        if kwargs.get("approximate", "none") != "none":
            result: Tensor = operator(x, **kwargs)
            return result
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (0.5 * wide * (1 + torch.erf(wide * 0.5**0.5))).to(x.dtype)

    return swapping({aten.gelu.default: gelu})(gm, inputs)


@right("a softmax goes over blocks of its row with a running maximum and sum, as flash attention's")
def softmax_in_blocks(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def softmax(operator: Any, x: Tensor, dim: int, *_: Any) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        high = torch.full_like(wide.narrow(dim, 0, 1), -math.inf)
        total = torch.zeros_like(high)
        for block in wide.split(3, dim):
            new = torch.maximum(high, block.amax(dim, keepdim=True))
            safe = new.clamp_min(torch.finfo(wide.dtype).min)
            total = total * (high - safe).exp() + (block - safe).exp().sum(dim, keepdim=True)
            high = new
        return ((wide - high).exp() / total).to(x.dtype)

    return swapping({aten._softmax.default: softmax})(gm, inputs)


@right("a layer norm by the mean of squares and the square of the mean, in float64")
def norm_in_one_pass(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def norm(operator: Any, x: Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
        kinds = operator(x, shape, weight, bias, eps)
        dims = list(range(x.dim() - len(shape), x.dim()))
        wide = x.double()
        mean = wide.mean(dims, keepdim=True)
        scale = ((wide * wide).mean(dims, keepdim=True) - mean * mean + eps).rsqrt()
        y = (wide - mean) * scale
        y = y if weight is None else y * weight.double()
        y = y if bias is None else y + bias.double()
        return y.to(kinds[0].dtype), mean.to(kinds[1].dtype), scale.to(kinds[2].dtype)

    return swapping({aten.native_layer_norm.default: norm})(gm, inputs)


@right("rows of a product are computed in blocks of three")
def rows_in_blocks(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return swapping(
        {
            aten.mm.default: lambda op, one, other: torch.cat([op(rows, other) for rows in one.split(3)]),
            aten.addmm.default: lambda op, bias, one, other, **_: (
                torch.cat([rows @ other for rows in one.split(3)]) + bias
            ),
        }
    )(gm, inputs)


@right("zeros have no sign")
def zeros_without_sign(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return after(lambda results: on_floats(results, lambda y: y + 0.0))(gm, inputs)


@right("the results of equal contents are computed anew, and views of larger memory")
def parts_of_larger_memory(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def placed(y: Tensor) -> Tensor:
        larger = torch.full((y.numel() + 7,), 3.0).to(y.dtype)
        larger[3 : 3 + y.numel()] = y.reshape(-1)
        return larger[3 : 3 + y.numel()].view(y.shape)

    return after(lambda results: on_floats(results, placed))(gm, inputs)


@right("a list, not a tuple")
def a_list(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return lambda *values: list(gm.forward(*values))


@right("torch.compile's own path with AOTAutograd, and eager behind it")
def through_dynamo(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return torch.compile(gm, backend="aot_eager")


@right("operators write into memory that is given")
def written_into_given_memory(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def product(operator: Any, one: Tensor, other: Tensor) -> Tensor:
        made = torch.empty(*one.shape[:-1], other.shape[-1], dtype=one.dtype)
        return torch.matmul(one, other, out=made)

    return swapping({aten.mm.default: product, aten.bmm.default: product})(gm, inputs)
