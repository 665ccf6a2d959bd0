"""The operators of samples: what a run counts, and a line of SQL that adds them up."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path

import pytest
import torch
from subjects.ledgers import ledger

import backprint as bp
from face import NAME, operator_calls


@pytest.mark.slow
def test_a_run_counts_what_its_samples_call(tmp_path: Path) -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    made = bp.capture(layer, torch.randn(2, 3))
    bp.save(made, tmp_path / "src" / "one")
    [row] = bp.corpus.run("verify", tmp_path / "src", tmp_path / "out", jobs=1).rows()
    pair = made.pairs[0]
    assert pair.backward is not None
    for side, graph in (("forward", pair.forward), ("backward", pair.backward)):
        own = Counter(step.target for step in graph.steps if step.target != "operator.getitem" and not step.is_guard)
        counted: Counter[str] = Counter()
        for key, count in row["operators"].items():
            if key.startswith(side):
                counted[key.split(" ")[1]] += count
        assert counted == own


def test_dtypes_are_those_that_a_call_takes_and_returns() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, x, 0.0).half().sum()

    calls = operator_calls(bp.capture(program, torch.randn(4)).pairs[0].forward)
    assert calls["aten.gt.Scalar", "float32 -> bool"] == 1
    assert calls["aten._to_copy.default", "float32 -> float16"] == 1
    assert calls["aten.sum.default", "float16"] == 1


def test_a_line_of_sql_adds_up_the_operators_of_a_run(tmp_path: Path) -> None:
    mm = {"forward aten.mm.default float32": 3, "backward aten.mm.default float32": 6}
    half = {"forward aten.mm.default float16": 2, "forward aten.relu.default float16": 1}
    rows = [{"id": "a", "operators": mm}, {"id": "b", "operators": half}, {"id": "c", "operators": None}]
    out = ledger(tmp_path / "out", rows)
    query = "select key, sum(value), count(*) from samples, json_each(operators) group by key order by 2 desc, 1"
    assert sqlite3.connect(out / NAME).execute(query).fetchall() == [
        ("backward aten.mm.default float32", 6, 1),
        ("forward aten.mm.default float32", 3, 1),
        ("forward aten.mm.default float16", 2, 1),
        ("forward aten.relu.default float16", 1, 1),
    ]
