"""Judge a compiler's results: each output against eager and float64, and within GraphNet's tolerances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from backprint.benching.cells import BenchOutput
from backprint.benching.tolerances import TOLERANCES
from backprint.sample.judged import Eager, judged, one_to_the_bit, strided

GOOD = ("bitwise", "close", "random")


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
    if value.shape != wanted.shape or value.dtype != wanted.dtype or value.layout != wanted.layout:
        return ()
    if not (wanted.is_floating_point() or wanted.is_complex()):
        return ()
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
    """Return `wrong`, `nondeterministic`, or '' if all outputs are right, and the reason."""
    for word in ("wrong", "nondeterministic"):
        bad = [output for output in outputs if output.word == word]
        if bad:
            more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
            return word, f"{bad[0].role} {bad[0].name}: {bad[0].detail}{more}"
    return "", ""
