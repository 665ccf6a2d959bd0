"""Judge a compiler's results: each output against eager and float64, and within GraphNet's tolerances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from backprint.benching.cells import BenchOutput
from backprint.benching.tolerances import TOLERANCES
from backprint.sample.judged import Eager, judged, one_to_the_bit, strided


def judged_outputs(eager: Eager, results: Sequence[Any]) -> tuple[BenchOutput, ...]:
    """Judge every output of a compiler."""
    ports = zip(eager.run.outputs, eager.run.results, results, strict=True)
    return tuple(
        output_of_port(role, name, *judged(eager, index, value), wanted, value)
        for index, ((role, name), wanted, value) in enumerate(ports)
    )


def output_of_port(role: str, name: str, word: str, detail: str, wanted: Any, value: Any) -> BenchOutput:
    """Return one output as plain values."""
    dtype, shape = kind_of_value(wanted)
    return BenchOutput(
        role,
        name,
        word,
        detail,
        dtype,
        shape,
        *kind_of_value(value),
        one_to_the_bit(value, wanted),
        within(value, wanted),
    )


def kind_of_value(value: Any) -> tuple[str, tuple[int, ...]]:
    """Return the dtype and the shape of a tensor, or the type of another result."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype).removeprefix("torch."), tuple(value.shape)
    return type(value).__name__, ()


def within(value: Any, wanted: Any) -> tuple[int, ...]:
    """Return the places of GraphNet's tolerances that an output is within."""
    if not isinstance(value, torch.Tensor) or not isinstance(wanted, torch.Tensor):
        return ()
    kinds = ((each.shape, each.dtype, each.layout, each.device) for each in (value, wanted))
    if next(kinds) != next(kinds):
        return ()
    if not (wanted.is_floating_point() or wanted.is_complex()):
        return ()
    if value.layout is torch.strided and torch.equal(value, wanted) and bool(torch.isfinite(wanted).all()):
        return tuple(range(len(TOLERANCES)))
    least = least_tolerances(strided(value)[-1], strided(wanted)[-1])
    return tuple(place for place, tolerance in enumerate(TOLERANCES) if least(tolerance.atol, tolerance.rtol))


def least_tolerances(value: torch.Tensor, wanted: torch.Tensor) -> Callable[[float, float], bool]:
    """Return whether a tensor is within (atol, rtol), as torch.allclose says of two without NaN."""
    if value.shape != wanted.shape:
        return lambda atol, rtol: False
    finite = torch.isfinite(wanted) & torch.isfinite(value)
    if not bool((finite | (value == wanted)).all()):
        return lambda atol, rtol: False
    wide = torch.complex128 if wanted.is_complex() else torch.float64
    left, right = value[finite].to(wide), wanted[finite].to(wide)
    difference, size = (left - right).abs(), right.abs()
    return lambda atol, rtol: bool((difference <= atol + rtol * size).all())


def outcome_of_outputs(outputs: Sequence[BenchOutput]) -> tuple[str, str]:
    """Return `wrong`, `random`, `nondeterministic`, or '' if all outputs are right, and the reason.

    A saved value that eager does not repeat, such as a workspace, leaves the other outputs to judge by.
    """
    for word in ("wrong", "random", "nondeterministic"):
        bad = [output for output in outputs if output.word == word]
        if bad and not (word == "nondeterministic" and others_tell(outputs)):
            return word, named_first(bad)
    return "", ""


def others_tell(outputs: Sequence[BenchOutput]) -> bool:
    """Whether eager repeats every output that is not saved for the backward, and there are such."""
    shown = [output.word for output in outputs if output.role != "saved"]
    return bool(shown) and "nondeterministic" not in shown


def notes_of_outputs(outputs: Sequence[BenchOutput]) -> tuple[str, ...]:
    """Return a note that names what was not judged."""
    bad = [output for output in outputs if output.word == "nondeterministic"]
    return (f"not judged: {named_first(bad)}",) if bad else ()


def named_first(outputs: Sequence[BenchOutput]) -> str:
    """Name the first output and what is said of it, and count the others."""
    more = f" (and {len(outputs) - 1} more)" if len(outputs) > 1 else ""
    return f"{outputs[0].role} {outputs[0].name}: {outputs[0].detail}{more}"
