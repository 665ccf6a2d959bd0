"""Compare a backend's outputs with eager's: bitwise, close, wrong, random or nondeterministic.

An output that is not bitwise is compared with a float64 run of the graph by the rule of `judge/closeness`; if it is not
close, once more with eager runs on inputs that are moved by one unit in the last place, and with operators that round
otherwise. An output is `nondeterministic` if two eager runs differ by more than its tolerance, or if it has memory that
no operator writes, and `random` if it depends on random numbers that the backend draws in another way: neither is an
error of the backend.

Exported files (`export`) have the functions of it that they need, with their text as it is here, so it imports only
torch and the standard library.

Words of this file:

- `eager.run` is an EagerRun: `module` is the class of the graph, `inputs` and `results` what it ran on and returned,
  `outputs` the (role, name) of each result, `random` the generators' state before; `again(function, inputs, seed)` runs
  a function on copies of the inputs from that state. Other properties of `eager` are further runs: `again`, `filled`,
  `wide` and `reseeded_again` are one run's results; `nudged`, `rounded` and `tied` have those of several runs, and
  `reseeded` a pair for each seed, eager's results and the backend's. A run has a result for each `index`; `found` is
  the backend's result at an index, `wanted` eager's. `tied` has runs that round so far that nearly equal values swap.
- `draws` says whether a second run has moved the generators. It is known once `again` was read.
- `strided(tensor)` returns the tensors that a result is made of: a strided one itself; of a sparse one the indices, and
  last the values.
- `compare` (`judge/closeness`) returns a word, the error, and what is `allowed`: as far as eager itself is from
  float64, and `rounded` runs are from each other; `largest` is the largest number among outputs of the same role.
- `distance` is a relative error, TOLERANCE the allowed one of a dtype, and NUDGES the number of runs with moved inputs.
- A mask of memory that is not written hides elements: `without`.
"""

import contextlib
import functools
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from backprint.judge.closeness import NUDGES, TOLERANCE, compare, distance, rounded_again, same_bits
from backprint.run_sample import parts
from backprint.tools.export.rerun import EagerRun, copies, rebuilt
from backprint.values.rounding import OtherRounding

TIED = 256.0  # values that are nearer than so many units are taken for equal where the larger decides an index
MISSED = 32  # of so many indices that nearly equal values decide, runs may not show one
SEEDS = 4  # from how many seeds a graph that draws random numbers is run again

WIDE = {"float32": "float64", "float16": "float64", "bfloat16": "float64", "complex64": "complex128"}


class Eager:
    """Eager runs of one graph, and runs of its `compiled` form from the same seeds; each runs on first use."""

    def __init__(self, run: EagerRun, compiled: Callable[..., Any]) -> None:
        self.run, self.compiled, self.draws = run, compiled, False

    @functools.cached_property
    def again(self) -> Any:
        """The results of a second eager run, for which freed memory has other contents: some is never written."""
        plain = [value for value in self.run.results if getattr(value, "layout", None) is torch.strided]
        freed = [torch.full_like(value, 3) for value in plain for _ in range(16 if value.nbytes < 2**16 else 1)]
        del freed
        results = self.run.again(self.run.module())
        self.draws = not all(map(torch.equal, random_state(), _state_begun(self.run)))
        return results

    @functools.cached_property
    def filled(self) -> Any:
        """The results of an eager run in which memory that is not written yet has NaN, or the largest integer."""
        with filled_memory():
            return self.run.again(self.run.module())

    @functools.cached_property
    def reseeded(self) -> list[tuple[Any, Any]]:
        """The results of eager and of the compiled form from other seeds; none if eager draws no random numbers."""
        seeds = range(1, 1 + SEEDS) if self.again and self.draws else ()
        return [(self.run.again(self.run.module(), seed=n), self.run.again(self.compiled, seed=n)) for n in seeds]

    @functools.cached_property
    def reseeded_again(self) -> Any:
        """The results of a second eager run from the first of the other seeds."""
        return self.run.again(self.run.module(), seed=1)

    @functools.cached_property
    def nudged(self) -> list[Any]:
        """The results on inputs whose numbers are moved by at most one unit in the last place; none if a run raises."""
        inputs = [copies(self.run.inputs) for _ in range(NUDGES)]
        for seed, values in enumerate(inputs):
            for value in values:
                if isinstance(value, torch.Tensor) and value.is_floating_point() and 0 not in value.stride():
                    value.copy_(rounded_again(value, value.dtype, seed, units=1.0))
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
    def tied(self) -> list[Any]:
        """The same with nearly equal values in another order: each index that such values decide differs in one."""
        return self.rounded_runs(TIED, 3 * NUDGES)

    def rounded_runs(self, units: float, count: int = NUDGES) -> list[Any]:
        """Run eager in OtherRounding."""
        found = []
        with contextlib.suppress(Exception):
            for seed in range(count):
                module = self.run.module()
                with OtherRounding(seed, units):
                    found.append(self.run.again(module))
        return found if len(found) == count else []

    def repeats(self, index: int, other: Any) -> bool:
        """Whether another run's output is this run's: bit for bit, or as close as rounding where eager varies so."""
        wanted = self.run.results[index]
        if one_to_the_bit(other, wanted):
            return True
        if one_to_the_bit(self.again[index], wanted):
            return False
        return within_tolerance(other, wanted)

    def unwritten(self, index: int) -> torch.Tensor | None:
        """Return a mask of an output's memory that no operator writes, which two runs may find alike by chance; None if
        there is none."""
        wanted, filled = self.run.results[index], self.filled[index]
        if text_of_kind(filled) != text_of_kind(wanted) or wanted.layout is not torch.strided:
            return None
        numbers = wanted.is_floating_point() or wanted.is_complex()
        unwritten = filled.isnan() & ~wanted.isnan() if numbers else filled != wanted
        return unwritten if bool(unwritten.any()) else None

    def largest(self, role: str) -> float:
        """Return the largest number among the outputs of a role."""
        found = zip(self.run.outputs, self.run.results, strict=True)
        return max((_largest_number(value) for (own, _), value in found if own == role), default=0.0)


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
    if not eager.repeats(index, eager.again[index]):
        return "nondeterministic", "two eager runs give different values"
    text = f"relative error {apart(found, wanted):.3g}"
    if eager.draws and not nearly_equal(eager.reseeded_again[index], eager.reseeded[0][0][index]):
        return "nondeterministic", "two eager runs from another seed give different values"
    if any(not eager.repeats(index, other[index]) for other, _ in eager.reseeded):
        text += "; it depends on random draws"
        if not is_finite(found) and all(is_finite(other[index]) for other, _ in eager.reseeded):
            return "wrong", f"{text}; it has NaN or Inf, eager never has"
        if not within_tolerance(found, wanted) and not draws_alike(eager, index):
            return "random", text
    word, reason = _closeness(eager, index, found)
    if word == "wrong" and (unwritten := eager.unwritten(index)) is not None:
        written, wanted = found.masked_fill(unwritten, 0), wanted.masked_fill(unwritten, 0)
        if one_to_the_bit(written, wanted) or _closeness(eager, index, found, unwritten)[0] != "wrong":
            return "nondeterministic", "it has memory that no operator writes"
    return word, f"{text}; {reason}" if reason else text


def _closeness(eager: Eager, index: int, found: torch.Tensor, without: torch.Tensor | None = None) -> tuple[str, str]:
    """Return `close` or `wrong` for an output that is not bitwise, and the reason. What a mask hides is left out."""
    wanted = eager.run.results[index]
    exact = None if eager.draws or isinstance(eager.wide, str) else eager.wide[index]
    unknown = eager.wide if isinstance(eager.wide, str) else ""
    if not wanted.is_floating_point() and not wanted.is_complex():
        return _closeness_of_indices(eager, index, found, exact) if without is None else ("wrong", "")
    (*places, value), (*own_places, own) = strided(found), strided(wanted)
    if not all(map(torch.equal, places, own_places)):
        return "wrong", "a sparse result has values in other places"
    right = own if exact is None or strided(exact)[-1].shape != own.shape else strided(exact)[-1]
    if without is not None:
        value, own, right = (part.masked_fill(without, 0) for part in (value, own, right))
    largest = eager.largest(eager.run.outputs[index][0])
    first = compare(value, right, own, largest=largest)
    if first.word != "wrong":
        return "close", unknown or f"from float64: {first.error:.3g}, {first.allowed:.3g} is allowed"
    runs = [strided(run[index])[-1] for run in (*eager.nudged, *eager.rounded)]
    runs = [run for run in runs if run.shape == own.shape]
    runs = runs if without is None else [run.masked_fill(without, 0) for run in runs]
    again = compare(value, right, own, rounded=runs, largest=largest)
    if again.word != "wrong":
        return "close", "eager moves as far if its inputs or its operators round otherwise"
    reasons = (unknown, again.detail, f"off by {again.error:.3g}, where rounding explains {again.allowed:.3g}")
    return "wrong", "; ".join(filter(None, reasons))


def _closeness_of_indices(eager: Eager, index: int, found: torch.Tensor, exact: Any) -> tuple[str, str]:
    """Return `close` if integers or booleans differ only where runs that round otherwise differ, as the indices of
    largest values do that nearly equal values decide."""
    wanted = eager.run.results[index]
    if wanted.layout is not torch.strided:
        return "wrong", ""
    differs = found != wanted
    for runs in ([*eager.nudged, *([] if exact is None else [eager.wide])], eager.tied):
        moved = [run[index] != wanted for run in runs if getattr(run[index], "shape", None) == wanted.shape]
        explained = differs & functools.reduce(torch.logical_or, moved, torch.zeros_like(differs))
        missed = int(differs.sum()) - int(explained.sum())
        if missed <= (int(explained.sum()) // MISSED if runs is eager.tied else 0):
            return "close", "eager gives other indices too if its inputs or its operators round otherwise"
    return "wrong", ""


@contextlib.contextmanager
def filled_memory() -> Iterator[None]:
    """Fill the memory that operators allocate, as PyTorch does for deterministic algorithms; without its warnings of
    operators that have no such algorithm."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fills = torch.utils.deterministic.fill_uninitialized_memory
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.use_deterministic_algorithms(True, warn_only=True)
            torch.utils.deterministic.fill_uninitialized_memory = True
            yield
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
            torch.utils.deterministic.fill_uninitialized_memory = fills


def within_tolerance(value: Any, wanted: Any) -> bool:
    """Whether a tensor is as close to another as its dtype asks."""
    if not isinstance(value, torch.Tensor) or not isinstance(wanted, torch.Tensor):
        return False
    tolerance = TOLERANCE.get(str(wanted.dtype)[6:], 0.0)
    return text_of_kind(value) == text_of_kind(wanted) and apart(value, wanted) <= tolerance


def nearly_equal(left: Any, right: Any) -> bool:
    """Whether two results are equal bit for bit, or within tolerance."""
    return one_to_the_bit(left, right) or within_tolerance(left, right)


def is_finite(value: torch.Tensor) -> bool:
    """Whether a tensor has neither NaN nor Inf."""
    return bool(torch.isfinite(strided(value)[-1]).all())


def random_state() -> list[torch.Tensor]:
    """Return the state of the generators from which operators draw."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ())]


def _state_begun(run: EagerRun) -> list[torch.Tensor]:
    """Return the state of the generators that a run began with; of a GPU's that it did not have, the state now."""
    return [run.random[0], *(run.random[1] or random_state()[1:])]


def draws_alike(eager: Eager, index: int) -> bool:
    """Whether a backend draws the same numbers as eager: from equal seeds they nearly agree, from others not."""
    same = sum(apart(found[index], wanted[index]) for wanted, found in eager.reseeded)
    others = [wanted[index] for wanted, _ in eager.reseeded]
    other = sum(apart(left, right) for left, right in zip(others, [*others[1:], others[0]], strict=True))
    return same < 0.1 * other


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


def _largest_number(value: Any) -> float:
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
    """Describe a tensor by dtype, shape, layout and device, any other result by type and value."""
    if not isinstance(value, torch.Tensor):
        return f"{type(value).__name__} {value}"
    layout = "" if value.layout is torch.strided else f" {str(value.layout)[6:]}"
    device = "" if value.device.type == "cpu" else f" on {value.device.type}"
    return f"{str(value.dtype)[6:]}{list(value.shape)}{layout}{device}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    error = getattr(error, "inner_exception", error)  # Dynamo wraps what a backend raises
    return (str(error).strip().splitlines() or [""])[0][:200]
