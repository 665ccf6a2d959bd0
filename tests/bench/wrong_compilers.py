"""Compilers that are wrong without meaning to be, and compilers that are right in unusual ways.

Each is a function of a graph and its inputs. `WRONG` has one of each kind of fault that compilers have; `RIGHT` has
those that must not be accused. The functions below them are tested one by one.
"""

from __future__ import annotations

import copy
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

Compiled = Callable[..., Any]
Compiler = Callable[[fx.GraphModule, Sequence[Any]], Compiled]

aten = torch.ops.aten


def on_tensors(results: Sequence[Any], change: Callable[[Tensor], Any]) -> tuple[Any, ...]:
    return tuple(change(value) if isinstance(value, Tensor) else value for value in results)


def on_first(results: Sequence[Any], change: Callable[[Tensor], Any]) -> tuple[Any, ...]:
    """Change the first result of floating-point numbers that are not all zero."""
    floats = [n for n, y in enumerate(results) if isinstance(y, Tensor) and y.is_floating_point() and bool(y.any())]
    return tuple(change(value) if n in floats[:1] else value for n, value in enumerate(results))


def after(change: Callable[[Sequence[Any]], Sequence[Any]]) -> Compiler:
    """The compiler that changes what the graph returns."""
    return lambda module, inputs: lambda *values: tuple(change(tuple(module(*values))))


def swapping(swaps: Mapping[Any, Callable[..., Any]]) -> Compiler:
    """The compiler that puts other functions in the place of operators."""

    def compiler(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        made = fx.GraphModule(module, copy.deepcopy(module.graph))
        for node in made.graph.nodes:
            if node.target in swaps:
                node.target = swaps[node.target]
        made.recompile()
        return made.forward

    return compiler


def drawing(drawn: Callable[..., Tensor]) -> Compiler:
    """The compiler that draws in another way."""
    return swapping({aten.bernoulli.p: drawn, aten.randn_like.default: lambda x, **_: drawn(x)})


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


# ------------------------------------------------------------------ results and memory


def element_off(y: Tensor) -> Tensor:
    flat = y.clone().reshape(-1)
    flat[flat.abs().argmax()] *= 1.01
    return flat.view(y.shape)


def in_half(value: Any) -> Any:
    return value.half().to(value.dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


def half_precision(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return lambda *values: tuple(map(in_half, module(*map(in_half, values))))


def never_written(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kinds = module(*inputs)
    return lambda *_: on_tensors(kinds, torch.empty_like)


def folded(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    results = module(*inputs)
    return lambda *_: on_tensors(results, torch.clone)


def kept_by(key: Callable[[Sequence[Any]], Any]) -> Compiler:
    """The compiler that computes once for each key of the inputs."""

    def compiler(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        kept: dict[Any, Any] = {}
        alive: list[Any] = []

        def run(*values: Any) -> tuple[Any, ...]:
            if key(values) not in kept:
                alive.append(values)
                kept[key(values)] = on_tensors(module(*values), torch.clone)
            return on_tensors(kept[key(values)], torch.clone)

        return run

    return compiler


def shapes(values: Sequence[Any]) -> Any:
    return tuple(value.shape for value in values if isinstance(value, Tensor))


def addresses(values: Sequence[Any]) -> Any:
    return tuple(value.data_ptr() for value in values if isinstance(value, Tensor))


def weight_folded(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """The first parameter is a constant of the program, as it was when it was compiled."""
    place = next(n for n, value in enumerate(inputs) if isinstance(value, Tensor) and value.is_floating_point())
    kept = inputs[place].clone()
    return lambda *values: module(*values[:place], kept, *values[place + 1 :])


def call_before(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kept: list[Any] = []

    def run(*values: Any) -> Any:
        kept.append(on_tensors(module(*values), torch.clone))
        return kept[0] if len(kept) == 1 else kept.pop(0)

    return run


def buffers(size: int) -> Compiler:
    """The compiler whose results are buffers, which it uses again after `size` calls."""

    def compiler(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        pool: list[Any] = []
        count = itertools.count()

        def run(*values: Any) -> Any:
            results, place = module(*values), next(count) % size
            if len(pool) < size:
                pool.append(on_tensors(results, torch.clone))
            for buffer, result in zip(pool[place], results, strict=True):
                if isinstance(buffer, Tensor):
                    buffer.copy_(result)
            return pool[place]

        return run

    return compiler


def shared_by_results(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """The results of one call overlap: each is the beginning of one memory."""

    def run(*values: Any) -> Any:
        results = module(*values)
        memory = {y.dtype: y.new_empty(max(z.numel() for z in results)) for y in results}
        return on_tensors(results, lambda y: memory[y.dtype][: y.numel()].view(y.shape).copy_(y))

    return run


def in_inputs(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Results are written into inputs of their shape."""

    def run(*values: Any) -> Any:
        free = {(value.shape, value.dtype): value for value in values if isinstance(value, Tensor)}
        results = on_tensors(module(*values), torch.clone)
        return on_tensors(results, lambda y: free[y.shape, y.dtype].copy_(y) if (y.shape, y.dtype) in free else y)

    return run


def input_zeroed(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def run(*values: Any) -> Any:
        results = on_tensors(module(*values), torch.clone)
        next(value for value in values if isinstance(value, Tensor) and bool(value.any())).zero_()
        return results

    return run


def not_waited_for(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    kinds = module(*inputs)

    def run(*values: Any) -> Any:
        results = on_tensors(kinds, torch.zeros_like)
        own = [value.clone() if isinstance(value, Tensor) else value for value in values]

        def work() -> None:
            time.sleep(0.05)  # longer than a busy machine keeps the caller waiting
            with torch.no_grad():
                for result, value in zip(results, module(*own), strict=True):
                    if isinstance(result, Tensor):
                        result.copy_(value)

        threading.Thread(target=work, daemon=True).start()
        return results

    return run


def a_race(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """One call in three is off."""
    count = itertools.count(1)
    return lambda *values: on_first(module(*values), lambda y: y * 1.25 if next(count) % 3 == 0 else y)


def wrong_without_grad(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return lambda *values: on_first(module(*values), lambda y: y if torch.is_grad_enabled() else y * 1.25)


def strides_ignored(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Elements of inputs are read in the order in which they lie in memory."""

    def as_they_lie(x: Any) -> Any:
        odd = isinstance(x, Tensor) and not x.is_contiguous()
        return x.as_strided((x.numel(),), (1,)).view(x.shape) if odd else x

    return lambda *values: module(*map(as_they_lie, values))


class Lazy(torch.Tensor):
    """A tensor of a kind of its own."""


def gradient_dropped(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    backward = any("tangent" in name for name in names)
    return lambda *values: on_first(module(*values), torch.zeros_like) if backward else tuple(module(*values))


def gradient_accumulated(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    kept: list[Tensor] = []

    def added(y: Tensor) -> Tensor:
        kept.append(y.clone() if not kept else kept.pop() + y)
        return kept[0].clone()

    backward = any("tangent" in name for name in names)
    return lambda *values: on_first(module(*values), added) if backward else tuple(module(*values))


WRONG: dict[str, Compiler] = {
    "one element is 1% off": after(lambda results: on_first(results, element_off)),
    "computed in half precision": half_precision,
    "a sum for a mean": after(lambda results: on_first(results, lambda y: y * 1.2)),
    "results are never written": never_written,
    "the second half of a result is the first": after(
        lambda results: on_first(results, lambda y: y.flatten().roll(y.numel() // 2).view(y.shape))
    ),
    "computed when it is compiled": folded,
    "results kept by shape": kept_by(shapes),
    "results kept by address": kept_by(addresses),
    "a weight is a constant": weight_folded,
    "the results of the call before": call_before,
    "one buffer for all calls": buffers(1),
    "four buffers in turns": buffers(4),
    "results share memory": shared_by_results,
    "results are written into inputs": in_inputs,
    "an input is zeroed": input_zeroed,
    "results are not waited for": not_waited_for,
    "a race": a_race,
    "wrong where gradients are not recorded": wrong_without_grad,
    "another dtype": after(lambda results: on_tensors(results, torch.Tensor.double)),
    "another shape": after(lambda results: on_tensors(results, lambda y: y.unsqueeze(0))),
    "another device": after(lambda results: on_tensors(results, lambda y: y.to("meta"))),
    "a tensor of another class": after(lambda results: on_tensors(results, lambda y: y.as_subclass(Lazy))),
    "None for a result": after(lambda results: (None, *results[1:])),
    "a result is missing": after(lambda results: results[:-1]),
    "no tuple": lambda module, inputs: lambda *values: dict(enumerate(module(*values))),
    "NaN in one place": after(
        lambda results: on_first(results, lambda y: y.index_fill(0, torch.tensor([0]), torch.nan))
    ),
}


def on_inputs(change: Callable[[Tensor], Tensor]) -> Compiler:
    """The compiler that changes floats before they go into the graph."""

    def changed(value: Any) -> Any:
        return change(value) if _is_float(value) else value

    return lambda module, inputs: lambda *values: module(*map(changed, values))


WRONG_AT_EDGES: dict[str, Compiler] = {
    "NaN becomes 0": on_inputs(lambda x: torch.where(x.isnan(), 0.0, x)),
    "NaN becomes 0 in results": after(lambda results: on_tensors(results, lambda y: torch.where(y.isnan(), 0.0, y))),
    "infinity is the largest number": on_inputs(lambda x: x.clamp(-3e38, 3e38)),
    "infinity is dropped from results": after(lambda results: on_tensors(results, lambda y: y.nan_to_num(posinf=0))),
    "zero is a small number": on_inputs(lambda x: torch.where(x == 0, 1e-2, x)),
    "zero is a missing value": on_inputs(lambda x: torch.where(x == 0, torch.nan, x)),
}
"""Right for all other numbers."""

WRONG_BACKWARDS: dict[str, Compiler] = {
    "a gradient is dropped": gradient_dropped,
    "gradients are added up over calls": gradient_accumulated,
}

GENERATOR = torch.Generator()

WRONG_DRAWS: dict[str, Compiler] = {
    "nothing is dropped": drawing(lambda x, p=1.0, **_: torch.full_like(x, p)),
    "another share is dropped": drawing(lambda x, p=1.0, **_: torch.empty_like(x).bernoulli_(p - 0.15)),
    "every call has one mask": drawing(
        lambda x, p=1.0, **_: torch.empty_like(x).bernoulli_(p, generator=GENERATOR.manual_seed(5))
    ),
    "all rows have one mask": drawing(lambda x, p=1.0, **_: torch.bernoulli(torch.full_like(x[:1], p)).expand(x.shape)),
    "three times and one, behind the draw": after(lambda results: (3 * results[0] + 1, *results[1:])),
    "noise, behind the draw": after(lambda results: (1e6 * torch.randn_like(results[0]), *results[1:])),
}
"""On a dropout, whose graph returns the mask."""

WRONG_NOISE: dict[str, Compiler] = {
    "uniform noise": drawing(lambda x, **_: 3.46 * torch.rand(x.shape) - 1.73),
    "three times and one": after(lambda results: (3 * results[0] + 1, *results[1:])),
    "noise of its own, three times and one": lambda module, inputs: after(
        lambda results: (3 * results[0] + 1, *results[1:])
    )(own_draws(module, inputs), inputs),
}
"""On a graph that does not return what it draws."""


# ------------------------------------------------------------------ right


def own_draws(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """It draws what eager draws, from a generator of its own."""
    source = torch.Generator().manual_seed(77)

    def drawn(like: Tensor, p: float | None = None, **_: Any) -> Tensor:
        if p is None:
            return torch.randn(like.shape, generator=source)
        return (torch.rand(like.shape, generator=source) < p).to(like)

    return drawing(drawn)(module, inputs)


def in_a_thread(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def run(*values: Any) -> Any:
        kept: list[Any] = []
        thread = threading.Thread(target=lambda: kept.append(module(*values)))
        thread.start()
        thread.join()
        return kept[0]

    return run


def static_inputs(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Inputs are copied into memory of its own before each call, as a CUDA graph has them."""
    own = [value.clone() if isinstance(value, Tensor) else value for value in inputs]

    def run(*values: Any) -> Any:
        for kept, value in zip(own, values, strict=True):
            if isinstance(kept, Tensor):
                kept.copy_(value)
        return on_tensors(module(*own), torch.clone)

    return run


def twice_the_work(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def run(*values: Any) -> Any:
        module(*values)
        return module(*values)

    return run


RIGHT: dict[str, Compiler] = {
    "own draws": own_draws,
    "copies of one buffer": lambda module, inputs: after(lambda results: on_tensors(results, torch.clone))(
        buffers(1)(module, inputs), inputs
    ),
    "in a thread": in_a_thread,
    "static inputs": static_inputs,
    "twice the work": twice_the_work,
    "a list": lambda module, inputs: lambda *values: list(module(*values)),
    "other strides": after(lambda results: on_tensors(results, lambda y: y.mT.contiguous().mT if y.dim() == 2 else y)),
}


def named(name: str) -> str:
    """The name of a compiler of the tables as a function's, as `bench --compiler` takes it."""
    return name.replace(" ", "_").replace("%", "").replace(",", "")


for _table in (WRONG, WRONG_AT_EDGES, WRONG_BACKWARDS, WRONG_DRAWS, WRONG_NOISE, RIGHT):
    globals().update({named(name): compiler for name, compiler in _table.items()})


def other_rounding(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Right: each operator computes in float64 and rounds its results once, so they round otherwise than eager's."""

    class Once(fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            wide = fx.node.map_aggregate(args, lambda x: x.double() if _is_float(x) else x)
            result = super().call_function(target, wide, kwargs)
            return fx.node.map_aggregate(result, lambda x: x.float() if _is_float(x) else x)

    return lambda *values: Once(module).run(*values)


# ------------------------------------------------------------------ one by one


def relu_leaks(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """A hundredth of negative numbers comes through."""
    return swapping({aten.relu.default: lambda x: torch.nn.functional.leaky_relu(x, 0.01)})(module, inputs)


def threads_set_at_first(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    torch.set_num_threads(torch.get_num_threads() + 1)
    return module.forward


def every_fifth_call_is_slow(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Right, and its mean says that it is slow."""
    count = itertools.count(1)

    def run(*values: Any) -> Any:
        if next(count) % 5 == 0:
            time.sleep(0.002)
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
    count = itertools.count()

    def run(*values: Any) -> Any:
        if next(count) == 5:
            raise KeyboardInterrupt
        return module(*values)

    return run
