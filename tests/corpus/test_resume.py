"""A run that is killed, at any moment, and taken up: the same in the end, nothing done twice, nothing half."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from subjects.corpora import (
    SMALL,
    VERBS,
    at_work,
    command,
    compared,
    corpus,
    files,
    left_behind,
    plan,
    rows,
    until,
    worked,
)

from face import NAME, RESULT, WORK, Ledger, UsageError, run_plan


def finished(out: Path) -> set[str]:
    """The samples that are whole: done in the ledger, or in their place."""
    place = out / NAME
    if not place.exists():
        return set()
    done = {id for id, row in rows(out).items() if row["state"] == "done"}
    return done | {str(result.parent.relative_to(out)) for result in out.glob(f"*/*/{RESULT}")}


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.slow
def test_killed_twenty_times_a_run_ends_as_one_that_was_not(tmp_path: Path) -> None:
    chance = random.Random(4)
    source = corpus(tmp_path / "src", [f"family{number % 3}/s{number}" for number in range(200)])
    log = tmp_path / "log"
    worked(source, tmp_path / "whole", "logged", log=str(tmp_path / "other_log"))
    arguments = (
        "run",
        f"{VERBS}:logged",
        source,
        "-o",
        tmp_path / "out",
        "--jobs",
        2,
        "--set",
        f"log={log}",
        "--set",
        "seconds=0.01",
    )
    allowed: Counter[str] = Counter()
    for _ in range(20):
        before, seen = len(lines(log)), finished(tmp_path / "out")
        parent = command(*arguments)
        wanted = before + chance.randrange(14)
        until(lambda parent=parent, wanted=wanted: len(lines(log)) >= wanted or parent.poll() is not None)
        time.sleep(chance.random() * 0.03)
        parent.kill()
        parent.communicate()
        until(lambda: not left_behind(tmp_path / "out"))
        begun = {line.removeprefix("begin ") for line in lines(log)[before:] if line.startswith("begin")}
        assert not begun & seen, "what was whole was done again"
        allowed.update(begun - finished(tmp_path / "out"))
    last = command(*arguments)
    _, said = last.communicate(timeout=100)
    assert last.returncode == 1, said  # the failed ones

    assert compared(tmp_path / "out") == compared(tmp_path / "whole")
    assert files(tmp_path / "out") == files(tmp_path / "whole")
    begun = Counter(line.removeprefix("begin ") for line in lines(log) if line.startswith("begin"))
    assert begun == Counter(rows(tmp_path / "out").keys()) + allowed, "only what was killed at work is done again"
    assert sum(allowed.values()) >= 10, "too few were at work when the run was killed for this to be a test"
    assert {place.name for place in (tmp_path / "out" / WORK).iterdir()} == {"lock", "logs"}


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("how", ["killed", "asked to end"])
@pytest.mark.parametrize("where", ["before the rename", "after the rename", "within the ledger"])
def test_an_end_between_a_sample_and_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, how: str
) -> None:
    source = corpus(tmp_path / "src", [f"s{number}" for number in range(1, 5)])
    log = tmp_path / "log"

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if where == "before the rename":
            patch.setattr("backprint.tools.jobs.run.place_folder", die)
        elif where == "after the rename":
            patch.setattr(Ledger, "finish", die)
        else:
            patch.setattr("backprint.tools.jobs.ledger.encode_value", die)
        if how == "killed":  # nothing tidies up: the rows stay as they are
            patch.setattr("backprint.tools.jobs.run.reset_running", lambda ledger: None)
        with pytest.raises(Killed):
            worked(source, tmp_path / "out", "logged", jobs=1, log=str(log))
    states = {row["state"] for row in rows(tmp_path / "out").values()}
    assert states == ({"todo", "running"} if how == "killed" else {"todo"})
    found = worked(source, tmp_path / "out", "logged", jobs=1, log=str(log))
    assert {row["verdict"] for row in found.values()} == {"bitwise"}
    begun = Counter(line for line in lines(log) if line.startswith("begin"))
    assert set(begun.values()) == ({1, 2} if where == "before the rename" else {1})


def test_a_folder_of_another_run_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    source, log = corpus(tmp_path / "src", ["s1", "s2"]), tmp_path / "log"
    worked(source, tmp_path / "out", "logged", log=str(log))
    (tmp_path / "out/s1/stale.txt").write_text("of the first run")
    run_plan(plan(source, tmp_path / "out", "logged", log=str(log)), SMALL, 1, restart=True)
    assert Counter(lines(log))["begin s1"] == 2
    assert not (tmp_path / "out/s1/stale.txt").exists()
    assert (tmp_path / "out/ledger.1.sqlite").exists()


def test_a_finished_run_does_nothing_more(tmp_path: Path) -> None:
    source, log = corpus(tmp_path / "src", ["s1", "s7"]), tmp_path / "log"
    first = worked(source, tmp_path / "out", "logged", log=str(log))
    assert worked(source, tmp_path / "out", "logged", log=str(log)) == first
    assert len(lines(log)) == 3


def test_new_and_changed_samples_are_done_the_others_not(tmp_path: Path) -> None:
    source, log = corpus(tmp_path / "src", ["s1", "s2", "s3"]), tmp_path / "log"
    worked(source, tmp_path / "out", "logged", log=str(log))
    corpus(source, ["s4"])
    (source / "s2/model.py").write_text("changed")
    (tmp_path / "out/s2/stale.txt").write_text("of what it was")
    found = worked(source, tmp_path / "out", "logged", log=str(log))
    assert Counter(line for line in lines(log) if "begin" in line) == {
        "begin s1": 1,
        "begin s2": 2,
        "begin s3": 1,
        "begin s4": 1,
    }
    assert len(found) == 4
    assert not (tmp_path / "out/s2/stale.txt").exists()


def test_samples_within_samples_each_have_their_place(tmp_path: Path) -> None:
    source, log = corpus(tmp_path / "src", ["s1/s2/s3", "s1/s2", "s1"]), tmp_path / "log"
    for _ in range(2):
        worked(source, tmp_path / "out", "logged", log=str(log))
        assert {str(place.parent.relative_to(tmp_path / "out")) for place in (tmp_path / "out").rglob(RESULT)} == {
            "s1",
            "s1/s2",
            "s1/s2/s3",
        }
        for name in ("s1", "s1/s2", "s1/s2/s3"):
            (source / name / "model.py").write_text("changed")
            assert (tmp_path / "out" / name / "pair_0/model.py").exists()


def test_another_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    source = corpus(tmp_path / "src", ["hang"])
    arguments = ("run", f"{VERBS}:act", source, "-o", tmp_path / "out")
    first = command(*arguments)
    try:
        until(lambda: at_work(tmp_path / "out"))
        second = command(*arguments)
        _, said = second.communicate(timeout=60)
        assert second.returncode == 2
        assert f"is being worked on by process {first.pid} on" in " ".join(said.split())
    finally:
        first.kill()
        first.communicate()
    until(lambda: not left_behind(tmp_path / "out"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_asked_to_end_ends_in_order(tmp_path: Path, number: signal.Signals) -> None:
    source = corpus(tmp_path / "src", ["a", "daemonise", "hang", "z"])
    parent = command("run", f"{VERBS}:act", source, "-o", tmp_path / "out", "--jobs", 1)
    until(lambda: (tmp_path / "out/daemonise" / RESULT).exists())
    time.sleep(0.1)
    parent.send_signal(number)
    _, said = parent.communicate(timeout=30)
    assert parent.returncode == 128 + number
    assert f"stopped by {number.name}; the same command goes on from here" in said
    assert left_behind(tmp_path / "out") == []
    assert {id: row["state"] for id, row in rows(tmp_path / "out").items()} == {
        "a": "done",
        "daemonise": "done",
        "hang": "todo",
        "z": "todo",
    }
    assert {place.name for place in (tmp_path / "out" / WORK).iterdir()} == {"lock"}


@pytest.mark.slow
def test_what_a_killed_run_left_running_is_ended_by_the_next(tmp_path: Path) -> None:
    """A grandchild in a session of its own outlives its worker; it carries the mark of the run."""
    source = corpus(tmp_path / "src", ["daemonise", "hang"])
    parent = command("run", f"{VERBS}:daemons", source, "-o", tmp_path / "out", "--jobs", 1)
    until(lambda: at_work(tmp_path / "out") and len(left_behind(tmp_path / "out")) == 3)  # worker, sample, grandchild
    parent.kill()
    parent.communicate()
    time.sleep(0.2)
    assert len(left_behind(tmp_path / "out")) == 1
    with pytest.raises(UsageError, match="was begun with"):
        worked(source, tmp_path / "out", "act")
    last = command("run", f"{VERBS}:daemons", source, "-o", tmp_path / "out", "--jobs", 1, "--timeout", 1)
    _, said = last.communicate(timeout=60)
    assert "daemonise: failed (timeout" in said
    assert left_behind(tmp_path / "out") == []


def test_out_has_to_be_a_folder_of_its_own(tmp_path: Path) -> None:
    source = corpus(tmp_path / "src", ["s1"])
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    (tmp_path / "file").write_text("")
    for out, said in [
        (source, "is or contains the corpus"),
        (tmp_path, "is or contains the corpus"),
        (tmp_path / "full", "is not the OUT of a corpus run"),
        (tmp_path / "file", "is not a folder"),
    ]:
        with pytest.raises(UsageError, match=said):
            run_plan(plan(source, out), SMALL, 1)
    with pytest.raises(UsageError, match="no samples here"):
        run_plan(plan(tmp_path / "full", tmp_path / "out"), SMALL, 1)


def test_samples_with_a_verdict_or_cause_are_done_again(tmp_path: Path) -> None:
    source, out = corpus(tmp_path / "src", ["good", "exit", "raise", "abort"]), tmp_path / "out"
    first = worked(source, out)
    run_plan(plan(source, out), SMALL, 2, retry=("exit 3", "bitwise"))
    second = rows(out)
    again = {name for name in first if second[name]["started"] > first[name]["started"]}
    assert again == {"good", "exit"}
    assert [second[name]["verdict"] for name in ("good", "exit")] == ["bitwise", "failed"]
    assert (second["good"]["attempts"], (out / "good/written.txt").read_text()) == (1, "good")
    run_plan(plan(source, out), SMALL, 2, retry=("no such cause",))
    assert rows(out) == second
