"""Compare a backend's outputs with eager's: bitwise, close, wrong, random or nondeterministic.

An output that is not bitwise is also compared with a float64 run of the graph. It is `wrong` if its distance from eager
exceeds the tolerance of its dtype, its distance from float64 exceeds FACTOR times eager's own, and eager does not move
as far when its inputs, or the results of its operators, are moved by about one unit in the last place. An output is
`nondeterministic` if two eager runs differ, and `random` if it depends on random numbers that the backend draws in
another way: neither is an error of the backend.

Private torch API of this module, tried on torch 2.13: `torch.utils._python_dispatch.TorchDispatchMode`.

This file's text also ends every exported file (`export`), so it imports only torch and the standard library.
"""

import contextlib
import functools
import re
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from backprint.closeness import NUDGES, SMALL, TIMES, TOLERANCE, distance, nudge, same_bits
from backprint.sample.generator import parts
from backprint.sample.rerun import EagerRun, copies, rebuilt

FACTOR = 4.0  # how many times as far from float64 as eager is, an output may be
SUMMED = 16.0  # how far sums of some thousand terms, added up in another order, may differ, in units in the last place
COARSE = 8.0  # how many units in the last place a value may move that an index was chosen by
SEEDS = 4  # from how many seeds a graph that draws random numbers is run again
EXACT = re.compile(
    r"(_to_copy|_?(new_)?(empty|zeros|ones|full|rand|randn|randint|randperm|arange|eye|scalar_tensor|lift_fresh).*|clone|"
    r"cat|stack|index(_select)?|gather|take.*|embedding|.*slice.*|select.*|where|masked_(fill|select|scatter)|.*pad.*|flip|"
    r"roll|repeat.*|scatter|index_(put|copy|fill)|sort|topk|max.*|min.*|amax|amin|clamp.*|relu.*|threshold.*|hardtanh|abs|"
    r"neg|sign|sgn|floor|ceil|round|trunc|bernoulli.*|.*dropout|tril|triu|diag.*|detach|alias|copy|cummax|cummin|mode|"
    r"median|nan_to_num|fill|uniform.*|normal.*|exponential.*|view_as_.*|real|imag|split.*|unbind.*|expand.*|_?unsafe_.*)"
)
"""Operators whose results are elements of their inputs, constants or draws."""

WIDE = {"float32": "float64", "float16": "float64", "bfloat16": "float64", "complex64": "complex128"}


class Eager:
    """Eager runs of one graph, and runs of its `compiled` form from the same seeds; each runs on first use."""

    def __init__(self, run: EagerRun, compiled: Callable[..., Any]) -> None:
        self.run, self.compiled = run, compiled

    @functools.cached_property
    def again(self) -> Any:
        """The results of a second eager run."""
        return self.run.again(self.run.module())

    @functools.cached_property
    def reseeded(self) -> list[tuple[Any, Any]]:
        """The results of eager and of the compiled form from other seeds."""
        seeds = range(1, 1 + SEEDS)
        return [(self.run.again(self.run.module(), seed=n), self.run.again(self.compiled, seed=n)) for n in seeds]

    @functools.cached_property
    def nudged(self) -> list[Any]:
        """The results on inputs whose numbers are moved by at most one unit in the last place; none if a run raises."""
        source = torch.Generator().manual_seed(0)
        inputs = [copies(self.run.inputs) for _ in range(NUDGES)]
        for value in (each for values in inputs for each in values if isinstance(each, torch.Tensor)):
            nudge(value, source)
        with contextlib.suppress(Exception):
            return [self.run.again(self.run.module(), values) for values in inputs]
        return []

    @functools.cached_property
    def wide(self) -> Any:
        """The results in float64, or a text with the reason if that run raises."""
        try:
            return self.run.again(widened_class(self.run.module)(), [widen(value) for value in self.run.inputs])
        except Exception as error:  # a guard on a value that float64 rounds otherwise, a kernel without float64
            return f"no float64 run: {type(error).__name__}: {first_line(error)}"

    @functools.cached_property
    def rounded(self) -> list[Any]:
        """The results of runs in which each operator's results are rounded otherwise; none if a run raises."""
        return self.rounded_runs(1.0)

    @functools.cached_property
    def chosen(self) -> list[Any]:
        """The same with coarser rounding: an integer may be the index of a value that is only `close`."""
        return self.rounded_runs(COARSE)

    def rounded_runs(self, units: float) -> list[Any]:
        """Run eager in OtherRounding."""
        found = []
        with contextlib.suppress(Exception):
            for seed in range(NUDGES):
                module = self.run.module()
                with OtherRounding(seed, units):
                    found.append(self.run.again(module))
        return found if len(found) == NUDGES else []

    def largest(self, role: str) -> float:
        """Return the largest number among the outputs of a role."""
        found = zip(self.run.outputs, self.run.results, strict=True)
        return max((largest_number(value) for (own, _), value in found if own == role), default=0.0)


def judged(eager: Eager, index: int, found: Any) -> tuple[str, str]:
    """Return the word for one output of a backend, and the reason."""
    wanted = eager.run.results[index]
    if not isinstance(found, torch.Tensor) or not isinstance(wanted, torch.Tensor):
        same = type(found) is type(wanted) and (found == wanted or found != found)
        return ("bitwise", "") if same else ("wrong", f"{text_of_kind(found)} where eager gives {text_of_kind(wanted)}")
    if text_of_kind(found) != text_of_kind(wanted):
        return "wrong", f"{text_of_kind(found)} where eager gives {text_of_kind(wanted)}"
    if one_to_the_bit(found, wanted):
        return "bitwise", ""
    if not one_to_the_bit(eager.again[index], wanted):
        return "nondeterministic", "two eager runs give different values"
    error = apart(found, wanted)
    close = error <= TOLERANCE.get(str(wanted.dtype)[6:], 0.0)
    text = f"relative error {error:.3g}"
    if drawn := any(not one_to_the_bit(other[index], wanted) for other, _ in eager.reseeded):
        text += "; it depends on random draws"
        if not close and not draws_alike(eager, index):
            return "random", text
    elif isinstance(eager.wide, str):
        text += f"; {eager.wide}"
    else:
        own, its = apart(wanted, eager.wide[index]), apart(found, eager.wide[index])
        text += f"; from float64: {its:.3g}, eager {own:.3g}"
        close = close or its <= FACTOR * own
    if not close and rounding(eager, index, found, drawn):
        return "close", f"{text}; inputs moved by a unit in the last place move eager as far"
    if not close and rounds_as_far(eager, index, found):
        return "close", f"{text}; eager moves as far if its operators round otherwise"
    return "close" if close else "wrong", text


def draws_alike(eager: Eager, index: int) -> bool:
    """Whether a backend draws the same numbers as eager: from equal seeds they nearly agree, from others not."""
    same = sum(apart(found[index], wanted[index]) for wanted, found in eager.reseeded)
    others = [wanted[index] for wanted, _ in eager.reseeded]
    other = sum(apart(left, right) for left, right in zip(others, [*others[1:], others[0]], strict=True))
    return same < 0.1 * other


def rounding(eager: Eager, index: int, found: Any, drawn: bool) -> bool:
    """Whether a difference is small, and eager moves as far if its inputs move by one unit in the last place."""
    wanted, moved = eager.run.results[index], [run[index] for run in eager.nudged]
    if not wanted.is_floating_point() and not wanted.is_complex():
        others = moved if drawn or isinstance(eager.wide, str) else [*moved, eager.wide[index]]
        unsteady = [each != wanted for each in others if each.shape == wanted.shape]
        return bool(unsteady) and not bool(((found != wanted) & ~functools.reduce(torch.logical_or, unsteady)).any())
    by = apart(found, wanted) * largest_number(wanted)
    if by > SMALL * eager.largest(eager.run.outputs[index][0]):
        return False
    return by <= TIMES * max((apart(each, wanted) * largest_number(wanted) for each in moved), default=0.0)


def rounds_as_far(eager: Eager, index: int, found: Any) -> bool:
    """Whether an output is as near to eager's as eager's own are whose operators round otherwise. Of integers, such as
    the indices of largest values, as many may differ."""
    wanted = eager.run.results[index]
    numbers = wanted.is_floating_point() or wanted.is_complex()
    runs = eager.rounded if numbers else eager.chosen
    others = [run[index] for run in runs if text_of_kind(run[index]) == text_of_kind(wanted)]
    if numbers:
        return apart(found, wanted) <= TIMES * max((apart(each, wanted) for each in others), default=0.0)
    if wanted.layout is not torch.strided:
        return False
    return int((found != wanted).sum()) <= TIMES * max((int((each != wanted).sum()) for each in others), default=0)


class OtherRounding(TorchDispatchMode):
    """Moves the results of each operator by up to some units in the last place; where it sums elements, by up to SUMMED
    times that of their root mean square too. Operators that only choose or move elements are exact."""

    def __init__(self, seed: int, units: float) -> None:
        super().__init__()
        self.units, self.source = units, torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        schema = function._schema
        if EXACT.fullmatch(schema.name.partition("::")[2]) or any(value.alias_info for value in schema.returns):
            return found
        summed = torch.Tag.pointwise not in function.tags
        if isinstance(found, (tuple, list)):
            return type(found)(self.moved(value, summed) for value in found)
        return self.moved(found, summed)

    def moved(self, value: Any, summed: bool) -> Any:
        """Return a tensor whose elements are moved."""
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.layout is not torch.strided:
            return value
        by = 2 * torch.rand(value.shape, generator=self.source, device="cpu").to(value) - 1
        size = value.abs()
        if summed and value.numel():
            size = size + SUMMED * value.double().square().mean().sqrt().nan_to_num(0.0, 0.0, 0.0).to(value)
        moved = value + by * size * self.units * torch.finfo(value.dtype).eps
        return torch.where(torch.isfinite(value), moved, value)


def one_to_the_bit(left: Any, right: Any) -> bool:
    """Whether two results are equal bit for bit."""
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return bool(left is right or left == right)
    return text_of_kind(left) == text_of_kind(right) and all(map(same_bits, strided(left), strided(right)))


def apart(left: Any, right: Any) -> float:
    """Return the relative error of a tensor; infinity if a sparse one has values in other places."""
    (*places, left), (*others, right) = strided(left), strided(right)
    same = left.shape == right.shape and all(map(torch.equal, places, others))
    return distance(left, right) if same else float("inf")


def strided(tensor: Any) -> tuple[Any, ...]:
    """Return a tensor, or the parts of a sparse one, in a tuple."""
    found = (tensor,) if tensor.layout is torch.strided else parts(tensor)
    return tuple(part.detach().resolve_conj().resolve_neg() for part in found)


def largest_number(value: Any) -> float:
    """Return the largest finite number of a floating-point or complex tensor, or 0."""
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return 0.0
    numbers = strided(value)[-1].abs().double()
    numbers = numbers[torch.isfinite(numbers)]
    return float(numbers.max()) if numbers.numel() else 0.0


def widen(value: Any) -> Any:
    """Return a floating-point or complex tensor in float64, any other value unchanged."""
    dtype = WIDE.get(str(getattr(value, "dtype", ""))[6:])
    return value.to(getattr(torch, dtype)) if dtype else value


def widened_class(module: Any) -> Any:
    """Return the class of a graph, or of joined graphs, with every floating-point dtype replaced by float64."""
    if hasattr(module, "widened"):
        return module.widened()
    dtypes = re.compile(rf"\btorch\.({'|'.join(WIDE)})\b")
    return rebuilt(module, dtypes.sub(lambda found: f"torch.{WIDE[found[1]]}", module.changed))


def text_of_kind(value: Any) -> str:
    """Describe a tensor by dtype, shape and layout, any other result by type and value."""
    if not isinstance(value, torch.Tensor):
        return f"{type(value).__name__} {value}"
    layout = "" if value.layout is torch.strided else f" {str(value.layout)[6:]}"
    return f"{str(value.dtype)[6:]}{list(value.shape)}{layout}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    error = getattr(error, "inner_exception", error)  # Dynamo wraps what a backend raises
    return (str(error).strip().splitlines() or [""])[0][:200]
