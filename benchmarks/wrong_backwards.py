"""Which checks find the wrong backwards that shipped, and which alarm at the mended ones.

The programs are those of `tests/subjects/wrong_backwards`. Each check sees them in two forms, with the backward that
shipped and with the mended one, on the inputs with which the fault shows, or, with `--ordinary`, on ordinary ones where
a row has them:

- gradcheck: `torch.autograd.gradcheck` in float64, and `gradgradcheck` for rows about the gradient of the gradient;
- ones, random: gradients in float32 against those of plain PyTorch, `torch.allclose` with this rtol and atol, with
  tangents of ones, or with normally distributed ones;
- same: the accuracy check of PyTorch's benchmarks of compilers, of the gradients of the loss that they take (a mean, so
  the tangents are even and expanded), with a reference in float64;
- cosine: the cosine of each gradient with that of plain PyTorch, in float32 and with normally distributed tangents, is
  more than 0.99;
- bp.derivative: the verdict on a capture of the program, which needs no other program to compare with;
- bp.check: the program against plain PyTorch, with tangents and inputs of all kinds.

    python benchmarks/wrong_backwards.py [--ordinary]
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from results import Figure, keep
from torch import Tensor
from torch._dynamo.testing import reduce_to_scalar_loss
from torch._dynamo.utils import same

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from subjects.wrong_backwards import ROWS, Row, as_dtype, gradients
from subjects.wrong_backwards.table import Inputs, Program

import backprint as bp

Check = Callable[[Row, Program, Inputs], bool | None]
"""Whether a check alarms at a form of a row, None where it does not answer."""

FORMS = ("wrong", "mended")


def by_gradcheck(row: Row, form: Program, inputs: Inputs) -> bool:
    inputs = as_dtype(inputs, torch.float64)
    right = torch.autograd.gradcheck(form, inputs, raise_exception=False)
    return not (right and (row.order == 1 or torch.autograd.gradgradcheck(form, inputs, raise_exception=False)))


def by_allclose(kind: str, tolerance: float, row: Row, form: Program, inputs: Inputs) -> bool:
    actual, expected = (gradients(program, as_dtype(inputs, torch.float32), kind) for program in (form, row.plain))
    return not all(torch.allclose(a, b, tolerance, tolerance) for a, b in zip(actual, expected, strict=True))


def by_same(row: Row, form: Program, inputs: Inputs) -> bool:
    """The tolerance is that of the benchmarks for training."""

    def trained(program: Program, dtype: torch.dtype) -> list[Tensor]:
        return gradients(lambda *values: reduce_to_scalar_loss(program(*values)), as_dtype(inputs, dtype), "ones")

    expected, exact = (trained(row.plain, dtype) for dtype in (torch.float32, torch.float64))
    return not same(expected, trained(form, torch.float32), exact, tol=1e-3)


def by_cosine(row: Row, form: Program, inputs: Inputs) -> bool:
    actual, expected = (gradients(program, as_dtype(inputs, torch.float32)) for program in (form, row.plain))
    pairs = [(a.flatten(), b.flatten()) for a, b in zip(actual, expected, strict=True) if a.any() or b.any()]
    return not all(F.cosine_similarity(a, b, dim=0) > 0.99 for a, b in pairs)


def by_derivative(row: Row, form: Program, inputs: Inputs) -> bool:
    """Whether `bp.derivative` says that the backward is not the derivative of its forward."""
    results = bp.derivative(bp.capture(form, args=tuple(inputs), order=row.order))
    return any(result.word == "not the derivative" for result in results)


def by_check(row: Row, form: Program, inputs: Inputs) -> bool:
    """Whether `bp.check` finds a fault against plain PyTorch."""
    return not bp.check(form, *inputs, like=row.plain, order=row.order, raises=False).good


CHECKS: dict[str, Check] = {
    "gradcheck": by_gradcheck,
    "ones, 1e-2": partial(by_allclose, "ones", 1e-2),
    "ones, 1e-3": partial(by_allclose, "ones", 1e-3),
    "random, 1e-2": partial(by_allclose, "random", 1e-2),
    "random, 1e-3": partial(by_allclose, "random", 1e-3),
    "same": by_same,
    "cosine": by_cosine,
    "bp.derivative": by_derivative,
    "bp.check": by_check,
}


def answers(row: Row, ordinary: bool) -> dict[str, dict[str, bool | None]]:
    """For each check, whether it alarms at each form."""
    inputs = row.ordinary() if ordinary and row.ordinary else row.inputs()
    return {name: {which: check(row, getattr(row, which), inputs) for which in FORMS} for name, check in CHECKS.items()}


def cell(answer: dict[str, bool | None]) -> str:
    if answer["wrong"] is None:
        return "-"
    return ("found" if answer["wrong"] else "") + (", and the mended one" if answer["mended"] else "")


def total(alarms: list[bool | None]) -> str:
    return "-" if None in alarms else f"{sum(map(bool, alarms))} of {len(alarms)}"


def print_row(*cells: Any) -> None:
    print(f"| {' | '.join(map(str, cells))} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ordinary", action="store_true", help="inputs with which some faults do not show")
    options = parser.parse_args()
    logging.disable(logging.ERROR)  # `same` logs every difference
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

    names = list(CHECKS)
    table = [(row, answers(row, options.ordinary)) for row in ROWS]
    print_row("backward", "from", "shows with", *names)
    print_row(*["---"] * (len(names) + 3))
    for row, answer in table:
        print_row(row.name.replace("_", " "), row.origin, row.shows, *(cell(answer[name]) for name in names))
    for which, label in (("wrong", "**found**"), ("mended", "**alarms at mended ones**")):
        print_row(label, "", "", *(total([answer[name][which] for _, answer in table]) for name in names))

    def count(name: str, which: str) -> int:
        return sum(bool(answer[name][which]) for _, answer in table)

    ours = ("bp.derivative", "bp.check")
    figures = [
        Figure(
            f"wrong backwards found by {name}, of {len(ROWS)}",
            count(name, "wrong"),
            at_least=len(ROWS) if name in ours and not options.ordinary else None,
        )
        for name in names
    ]
    figures += [Figure(f"mended backwards that {name} calls wrong", count(name, "mended"), at_most=0) for name in ours]
    return keep("wrong_backwards", figures)


if __name__ == "__main__":
    sys.exit(main())
