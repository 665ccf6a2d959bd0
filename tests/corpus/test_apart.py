"""Samples of strangers in processes of their own: what one does to its process costs its own row alone."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from subjects.odd_graphnet import ONE_BY_ONE, graphnet

import backprint as bp
from face import ReplayError, main, result_of, run_apart

DEEDS = """
import json, os, signal, time
from backprint.tools.jobs.apart import write_answer

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
    return write_answer(staging, {"name": name, "unit": options["unit"]})
"""

ENDED = {
    "segfault": "killed by SIGSEGV",
    "hang": "timeout: ",
    "leave": "exit 7",
    "raise": "ValueError: no",
    "silent": "no answer",
    "allocate": "out of memory",
    "forged": "68,157,440 bytes; at most 67,108,864 are read",
}


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_each_sample_has_its_answer_or_its_end(tmp_path: Path, platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", platform)  # what processes cannot be forked on has an interpreter a sample
    (tmp_path / "deeds.py").write_text(DEEDS)
    ends = ENDED if platform == "linux" else ("segfault", "leave", "raise", "silent")
    names = ["first", *ends, "last"]
    for name in names:
        (tmp_path / name).mkdir()
    told: list[str] = []
    places = [tmp_path / name for name in names]
    answers = list(
        run_apart(f"{tmp_path}/deeds.py:deed", places, {"unit": 2}, (20.0, None), lambda place: told.append(place.name))
    )
    assert told == [answer.place.name for answer in answers] == names
    assert [answer.content for answer in (answers[0], answers[-1])] == [
        {"name": "first", "unit": 2},
        {"name": "last", "unit": 2},
    ]
    for answer in answers[1:-1]:
        assert answer.content is None
        assert ENDED[answer.place.name] in answer.ended


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    ["bench run a --compiler eager", "kernels a --target cpu:avx2", "corpus run verify ."],
    ids=lambda words: words[:7],
)
def test_what_works_on_many_samples_is_refused_by_name_off_linux(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bp.save(bp.capture(torch.nn.Linear(2, 2), torch.randn(1, 2)), tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.platform", "darwin")
    done = CliRunner().invoke(main, [*words.split(), "-o", "out"])
    assert done.exit_code == 2
    assert "in processes that are watched in Linux's /proc, which is missing here (darwin)" in done.output


def test_answers_come_as_they_are_known(tmp_path: Path) -> None:
    (tmp_path / "deeds.py").write_text(DEEDS)
    (tmp_path / "good").mkdir()
    (tmp_path / "leave").mkdir()
    places = [tmp_path / "good", tmp_path / "leave"]
    told: list[str] = []
    answers = run_apart(
        f"{tmp_path}/deeds.py:deed", places, {"unit": 1}, (60.0, None), lambda place: told.append(place.name)
    )
    assert next(answers).content == {"name": "good", "unit": 1}
    assert told == ["good"]
    answers.close()


FORGED = """
def deed(task, options, staging):
    staging.mkdir()
    (staging / "answer.json").write_text((task.path / "forged").read_text())
    return {"verdict": "unproven"}
"""

NO_ANSWERS = {
    '{"error": "KeyError", "said": "no"}': "neither a result nor an error of Backprint",
    '{"error": "causes", "said": "no"}': "neither a result nor an error of Backprint",
    '{"error": "SeveralError", "said": "no"}': "neither a result nor an error of Backprint",
    '{"error": "ReplayError"}': "neither a result nor an error of Backprint",
    '{"error": 1, "said": "no"}': "neither a result nor an error of Backprint",
    "{}": "neither a result nor an error of Backprint",
    "null": "neither a result nor an error of Backprint",
    '{"result": "text"}': "the result is of type str, and must be int",
    '{"result": 1': "cannot be read as JSON",
}


def test_an_answer_of_another_form_is_none(tmp_path: Path) -> None:
    (tmp_path / "deeds.py").write_text(FORGED)
    good = ['{"result": 1}', '{"error": "ReplayError", "said": "no"}']
    places = [tmp_path / str(number) for number in range(len(good) + len(NO_ANSWERS))]
    for place, content in zip(places, [*good, *NO_ANSWERS], strict=True):
        place.mkdir()
        (place / "forged").write_text(content)
    answers = list(run_apart(f"{tmp_path}/deeds.py:deed", places, {}, (60.0, None), lambda place: None))
    assert result_of(answers[0], int).content == 1
    with pytest.raises(ReplayError, match="no"):
        result_of(answers[1], int)
    for answer, ended in zip(answers[2:], NO_ANSWERS.values(), strict=True):
        assert ended in result_of(answer, int).ended


def test_a_lost_workers_folder_is_removed_before_the_next_try(tmp_path: Path) -> None:
    kill = "import os, signal\n\ndef deed(task, options, staging):\n    os.kill(os.getppid(), signal.SIGKILL)\n"
    (tmp_path / "deeds.py").write_text(kill)
    for name in ("sample", "work"):
        (tmp_path / name).mkdir()
    limits = (60.0, None)
    function, work = f"{tmp_path}/deeds.py:deed", tmp_path / "work"
    answers = run_apart(function, [tmp_path / "sample"], {}, limits, lambda place: None, keep_beside=work)
    with contextlib.closing(answers):
        assert "worker lost" in next(answers).ended
        assert [folder.name for folder in work.glob("*/*")] == ["1"]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A sample that ends its process between two good ones."""
    for name in ("a", "c"):
        bp.save(bp.capture(torch.nn.Linear(2, 2), torch.randn(1, 2)), tmp_path / name)
    graphnet(tmp_path / "b", before=ONE_BY_ONE + "ctypes.string_at(0)")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--power",)])
def test_good_bad_good(mixed: Path, more: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, ["verify", str(mixed), "--trust", "--json", *more])
    rows: list[dict[str, Any]] = [json.loads(line) for line in result.stdout.splitlines()]
    assert [Path(row["sample"]).name for row in rows] == ["a", "b", "c"]
    assert [row.get("proof", False) for row in rows] == [True, False, True]
    assert "killed by SIGSEGV" in rows[1]["detail"]
    assert result.exit_code == 1


# ------------------------------------------------------------------ capture TARGET


def captured(place: Path, out: Path, *more: str) -> Any:
    """`backprint capture` of a sample."""
    return CliRunner().invoke(main, ["capture", str(place), "-o", str(out), *more])


DEATHS = {
    "a crash": ("ctypes.string_at(0)", (), "killed by SIGSEGV"),
    "an exit": ("import os; os._exit(3)", (), "exit 3"),
    "a hang": ("import time; time.sleep(1000)", ("--timeout", "6"), "timeout: still at work after 6 s (--timeout)"),
    "memory": (
        "import time; x = [time.sleep(0.03) or b'x' * (1 << 26) for n in range(99)]",
        ("--memory", "1"),
        "out of memory: 1.",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", DEATHS)
def test_a_captured_sample_that_ends_its_process_costs_a_line_and_leaves_nothing(case: str, tmp_path: Path) -> None:
    line, more, words = DEATHS[case]
    graphnet(tmp_path / "b", before=ONE_BY_ONE + line)
    (tmp_path / "out").mkdir()
    result = captured(tmp_path / "b", tmp_path / "out" / "c", "--trust", *more)
    assert result.exit_code == 1
    [said] = [line for line in result.output.splitlines() if "…" not in line or "backprint: " in line]
    assert said.startswith(f"backprint: CaptureError: {tmp_path / 'b'}: {words}")
    assert said.endswith("nothing was written")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.slow
def test_an_older_sample_stays_where_its_successor_dies(mixed: Path) -> None:
    before = (mixed / "a" / "capture.json").read_bytes()
    result = captured(mixed / "b", mixed / "a", "--trust", "--overwrite")
    assert result.exit_code == 1
    assert (mixed / "a" / "capture.json").read_bytes() == before
    assert sorted(each.name for each in mixed.iterdir()) == ["a", "b", "c"]


@pytest.mark.slow
def test_a_sample_is_captured_in_a_process_of_its_own_as_it_is_here(mixed: Path, tmp_path: Path) -> None:
    result = captured(mixed / "a", tmp_path / "new" / "d", "--json", "--loss", "sum")
    row = json.loads(result.stdout)
    assert [row["sample"], row["verdict"], result.exit_code] == [str(tmp_path / "new" / "d"), "bitwise", 0]
    assert bp.load(tmp_path / "new" / "d").verdict["verdict"] == "bitwise"
    assert [each.name for each in (tmp_path / "new").iterdir()] == ["d"]
    again = captured(mixed / "a", tmp_path / "new" / "d")
    assert (again.exit_code, "exists already" in again.output) == (2, True)


@pytest.mark.slow
def test_the_trees_of_a_sample_are_put_in_their_place(mixed: Path, tmp_path: Path) -> None:
    for code, more in ((0, ()), (2, ()), (0, ("--overwrite",))):
        result = captured(mixed / "a", tmp_path / "trees", "--layout", "graphnet", "--json", *more)
        assert result.exit_code == code, result.output
        if not code:
            places = json.loads(result.stdout)["trees"]
            assert sorted(places) == ["train_backward", "train_forward"]
            assert all((Path(place) / "graph_net.json").is_file() for place in places.values())
    assert sorted(each.name for each in (tmp_path / "trees").iterdir()) == ["train_backward", "train_forward"]


@pytest.mark.slow
def test_a_sample_that_is_refused_says_so_as_it_does_here(tmp_path: Path) -> None:
    graphnet(tmp_path / "b", before="import os")
    result = captured(tmp_path / "b", tmp_path / "out")
    assert (result.exit_code, "backprint: RefusedError: " in result.output) == (1, True)
    (tmp_path / "none").mkdir()
    result = captured(tmp_path / "none", tmp_path / "out")
    assert (result.exit_code, "not a sample" in result.output) == (2, True)
