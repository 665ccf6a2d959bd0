"""PyTorch's own databases: every operator and module captured, replayed and compared with eager autograd.

The expected outcome of each sample stands in `table.json`, which only ever gets better (`update.py` writes it). A plain
run takes a fixed part; `--conformance=all` takes everything.
"""

from __future__ import annotations

import random
from typing import Any

import harness
import pytest
import torch

PART = {
    "ops float32": 80,
    "ops float32 specialize": 10,
    "ops float32 eager": 24,
    "ops float32 auto": 16,
    "autograd functions": 14,
    "higher-order operators": 12,
    "exportdb": 20,
    "edges": 36,
    "ops float64": 24,
    "ops bfloat16": 24,
    "modules train": 30,
    "modules eval": 20,
}
"""How many entries of each section a plain run draws."""

ELSEWHERE = {
    ("2.11", "masked.cumprod"): "c",  # its gradient differs in the last bit
    ("2.11", "flex_attention_backward.simple"): "x",  # the program itself raises: it has no backward on the CPU there
}
"""What an entry may come to at worst on a torch that is not the table's."""

UNSTEADY = frozenset(
    {"linalg.lstsq", "linalg.lstsq.grad_oriented", "linalg.lu_solve", "linalg.qr", "lu_solve", "qr"},
)
"""Operators that may be close where the table has bitwise: LAPACK's `gelsy` depends on where in memory a matrix is, and
so do `geqrf` and `getrs` on some processors of the same vector units."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    whole = metafunc.config.getoption("--conformance") == "all"
    table = harness.read_table()
    cases = []
    for section in harness.SECTIONS:
        names = sorted(table.get(section, {}))
        chosen = names if whole else random.Random(section).sample(names, min(PART[section], len(names)))
        cases += [pytest.param(section, name, whole, id=f"{section}-{name}") for name in sorted(chosen)]
    metafunc.parametrize(("section", "name", "whole"), cases)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the databases' own: complex-to-real casts, beta layouts, deprecations
def test_outcomes_are_no_worse_than_the_table(section: str, name: str, whole: bool, record_property: Any) -> None:
    row = harness.SECTIONS[section]
    table = harness.read_table()
    entry = next((entry for entry in row.entries() if harness.name_of(entry) == name), None)
    if entry is None and minor(torch.__version__) != minor(table["environment"]["torch"]):
        pytest.skip(f"the databases of torch {torch.__version__} have no {name}")
    assert entry is not None
    letters, details = row.check(entry, row.most if whole else row.part)
    expected = table[section][name][: len(letters)]
    by_letter = {letter: outcome for outcome, letter in harness.LETTERS.items()}
    counts: dict[str, int] = {}
    for letter in letters:
        counts[by_letter[letter]] = counts.get(by_letter[letter], 0) + 1
    record_property("conformance", (section, counts))
    order = "".join(harness.LETTERS.values())
    if table["environment"]["cpu"] != torch.backends.cpu.get_cpu_capability():
        expected = expected.replace("b", "c")  # other vector units may round other kernels otherwise
    worst = ELSEWHERE.get((minor(torch.__version__), name), "c" if name in UNSTEADY else "b")
    expected = "".join(max(letter, worst, key=order.index) for letter in expected)
    worse = [
        (index, by_letter[now], by_letter[then])
        for index, (now, then) in enumerate(zip(letters, expected, strict=False))
        if order.index(now) > order.index(then)
    ]
    assert not worse, f"(sample, now, expected): {worse[:5]}; {details}"
    assert len(letters) >= len(expected)


def minor(version: str) -> str:
    """The first two numbers of a version."""
    return ".".join(version.split(".")[:2])
