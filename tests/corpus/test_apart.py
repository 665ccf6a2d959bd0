"""Samples of strangers in processes of their own: what one does to its process costs its own row alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from test_corpus_graphnet import ONE_BY_ONE, graphnet

import backprint as bp
from backprint.cli import main
from backprint.corpus.apart import apart

DEEDS = """
import json, os, signal, time
from backprint.corpus.apart import write

def deed(task, options, staging):
    name = task.path.name
    if name == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if name == "hang":
        time.sleep(1000)
    if name == "leave":
        os._exit(7)
    if name == "raise":
        raise ValueError("no")
    if name == "silent":
        return {"verdict": "unproven"}
    if name == "allocate":
        block = bytearray(1 << 45)
    if name == "forged":
        staging.mkdir()
        (staging / "answer.json").write_text("x" * (65 << 20))
        return {"verdict": "unproven"}
    return write(staging, {"name": name, "unit": options["unit"]})
"""

ENDED = {
    "segfault": "killed by SIGSEGV",
    "hang": "timeout: ",
    "leave": "exit 7",
    "raise": "ValueError: no",
    "silent": "no answer",
    "allocate": "out of memory",
    "forged": "its answer has 68,157,440 bytes; at most 67,108,864 are read",
}


def test_each_sample_has_its_answer_or_its_end(tmp_path: Path) -> None:
    (tmp_path / "deeds.py").write_text(DEEDS)
    names = ["first", *ENDED, "last"]
    for name in names:
        (tmp_path / name).mkdir()
    told: list[str] = []
    places = [tmp_path / name for name in names]
    answers = list(apart(f"{tmp_path}/deeds.py:deed", places, {"unit": 2}, 20.0, lambda place: told.append(place.name)))
    assert told == [answer.place.name for answer in answers] == names
    assert [answer.content for answer in (answers[0], answers[-1])] == [
        {"name": "first", "unit": 2},
        {"name": "last", "unit": 2},
    ]
    for answer in answers[1:-1]:
        assert answer.content is None
        assert ENDED[answer.place.name] in answer.ended


def test_answers_come_as_they_are_known(tmp_path: Path) -> None:
    (tmp_path / "deeds.py").write_text(DEEDS)
    (tmp_path / "good").mkdir()
    (tmp_path / "leave").mkdir()
    places = [tmp_path / "good", tmp_path / "leave"]
    told: list[str] = []
    answers = apart(f"{tmp_path}/deeds.py:deed", places, {"unit": 1}, 60.0, lambda place: told.append(place.name))
    assert next(answers).content == {"name": "good", "unit": 1}
    assert told == ["good"]
    answers.close()


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A sample that ends its process between two good ones."""
    for name in ("a", "c"):
        bp.save(bp.capture(torch.nn.Linear(2, 2), torch.randn(1, 2)), tmp_path / name)
    graphnet(tmp_path / "b", before=ONE_BY_ONE + "ctypes.string_at(0)")
    return tmp_path


@pytest.mark.parametrize("verb", ["verify", "power"])
def test_good_bad_good(mixed: Path, verb: str) -> None:
    result = CliRunner().invoke(main, [verb, str(mixed), "--trust", "--json"])
    rows: list[dict[str, Any]] = [json.loads(line) for line in result.stdout.splitlines()]
    assert [Path(row["sample"]).name for row in rows] == ["a", "b", "c"]
    assert [row.get("proof", False) for row in rows] == [True, False, True]
    assert "killed by SIGSEGV" in (rows[1].get("detail") or rows[1]["error"])
    assert result.exit_code == 1
