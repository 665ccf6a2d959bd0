"""Samples that hang, crash, fork, flood and fill: each costs itself only, and its row says what it did."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from subjects.corpora import SMALL, VERBS, at_work, corpus, left_behind, plan, rows, worked
from subjects.hostile import DEEDS, PRINTED

from face import KEPT, WORK, Event, Pool, Stage, Stopped, log_of, run_plan

FATES = {
    "hang": ("failed", "timeout", "still at work after 3 s"),
    "segfault": ("failed", "killed by SIGSEGV", "Segmentation fault in File"),
    "abort": ("failed", "killed by SIGABRT", "Aborted in File"),
    "exhaust": ("failed", "out of memory", "are allowed (--memory)"),
    "allocate": ("failed", "out of memory", "MemoryError"),
    "some_memory": ("failed", "out of memory", "are allowed (--memory)"),
    "fork_bomb": ("failed", "too many processes", "32 are allowed"),
    "daemonise": ("bitwise", "", ""),
    "exit": ("failed", "exit 3", "called sys.exit"),
    "exit_words": ("failed", "exit 1", "called sys.exit: no more"),
    "os_exit": ("failed", "exit 4", "ended before it was done"),
    "flood": ("failed", "ValueError", "after much output"),
    "fill": ("failed", "disk full", "File too large"),
    "fill_many": ("failed", "disk full", "are allowed (--disk)"),
    "hang_at_exit": ("bitwise", "", ""),
    "close_all": ("failed", "exit 70", "ended before it was done"),
    "meddle": ("bitwise", "", ""),
    "untouched": ("bitwise", "", "[true, true, true, true]"),
    "kill_itself": ("failed", "killed by SIGKILL", ""),
    "kill_its_worker": ("failed", "worker lost", "its worker ended (killed by SIGKILL)"),
    "interrupt": ("failed", "killed by SIGINT", ""),
    "raise": ("failed", "ZeroDivisionError", "division by zero"),
    "recurse": ("failed", "RecursionError", "maximum recursion depth exceeded"),
    "good": ("bitwise", "", ""),
}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on all of them."""
    folder = tmp_path_factory.mktemp("hostile")
    worked(corpus(folder / "samples", FATES), folder / "out")
    return folder / "out"


def test_every_deed_has_a_fate_here() -> None:
    assert set(FATES) >= set(DEEDS) - {"stop_its_worker"}


@pytest.mark.slow
@pytest.mark.parametrize("name", FATES)
def test_a_hostile_sample_is_in_the_ledger_with_its_cause(out: Path, name: str) -> None:
    row = rows(out)[name]
    verdict, cause, detail = FATES[name]
    assert (row["state"], row["verdict"], row["cause"]) == ("done", verdict, cause)
    assert detail in row["detail"]
    assert "\n" not in row["detail"]
    assert row["seconds"] < 5


def test_good_samples_are_whole_and_failed_ones_leave_no_folder(out: Path) -> None:
    for name, row in rows(out).items():
        if row["verdict"] == "failed":
            assert not (out / name).exists()
        else:
            assert (out / name / "written.txt").read_text() == name


def test_nothing_is_left_behind(out: Path) -> None:
    assert left_behind(out) == []
    assert {place.name for place in (out / WORK).iterdir()} == {"lock", "logs"}
    assert any("left 1 processes behind" in note for note in rows(out)["daemonise"]["notes"])


def test_a_lost_sample_is_tried_once_more_alone_and_no_other(out: Path) -> None:
    twice = {name for name, row in rows(out).items() if row["attempts"] != 1}
    assert twice == {"kill_itself", "kill_its_worker"}
    assert {rows(out)[name]["attempts"] for name in twice} == {2}


def test_the_last_of_what_a_failed_sample_printed_is_kept(out: Path) -> None:
    text = log_of(out, "flood").read_text()
    assert len(text) <= KEPT < PRINTED
    assert "the last line" in text
    assert "ValueError: after much output" in text


@pytest.mark.slow
def test_a_worker_that_is_stopped_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backprint.tools.jobs.pool.SILENCE", 1.0)
    found = worked(corpus(tmp_path / "samples", ["stop_its_worker", "good"]), tmp_path / "out")
    assert found["good"]["verdict"] == "bitwise"
    # The sample itself goes on, but nobody is left to hear of it.
    assert (found["stop_its_worker"]["cause"], found["stop_its_worker"]["attempts"]) == ("worker lost", 2)
    assert left_behind(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("no_row", "'list' object is not a mapping"),
        ("strange_row", "has verdict 'splendid', which is not one of bitwise, undifferentiable, close"),
        ("strange_column", "has 'colour', which is not one of"),
    ],
)
def test_a_verb_that_gives_no_row_is_told_so(tmp_path: Path, verb: str, said: str) -> None:
    [row] = worked(corpus(tmp_path / "samples", ["good"]), tmp_path / "out", verb).values()
    assert row["verdict"] == "failed"
    assert said in row["detail"]


@pytest.mark.slow
def test_what_runs_out_of_memory_beside_others_may_have_all_of_it_alone(tmp_path: Path) -> None:
    limits = replace(SMALL, shares=8, timeout=20.0)
    names = ["allocate", "exhaust", "good", "some_memory"]
    found = worked(corpus(tmp_path / "samples", names), tmp_path / "out", limits=limits)
    assert {name: (row["verdict"], row["cause"], row["attempts"]) for name, row in found.items()} == {
        "allocate": ("failed", "out of memory", 2),
        "exhaust": ("failed", "out of memory", 2),
        "good": ("bitwise", "", 1),
        "some_memory": ("bitwise", "", 2),
    }
    assert found["some_memory"]["peak_bytes"] > limits.memory
    assert "2.00 are allowed" in found["exhaust"]["detail"]


@pytest.mark.slow
def test_what_waits_to_be_alone_is_not_said_to_be_at_work(tmp_path: Path) -> None:
    seen = []

    def watcher(event: object) -> None:
        if isinstance(event, Stage):
            seen.append((event.id, at_work(tmp_path / "out")))

    source = corpus(tmp_path / "samples", ["allocate", "exhaust"])
    run_plan(plan(source, tmp_path / "out", "act"), replace(SMALL, shares=8, timeout=20.0), 2, watcher=watcher)
    assert len(seen) == 4  # each beside the other, then each alone
    assert dict(seen) == {"allocate": {"allocate"}, "exhaust": {"exhaust"}}


def test_a_signal_that_other_code_swallows_ends_the_run_all_the_same(tmp_path: Path) -> None:
    def watcher(event: object) -> None:
        with contextlib.suppress(Stopped):
            if isinstance(event, Stage):
                os.kill(os.getpid(), signal.SIGTERM)

    source = corpus(tmp_path / "samples", ["good"])
    with pytest.raises(Stopped, match="SIGTERM"):
        run_plan(plan(source, tmp_path / "out", "act"), SMALL, 1, watcher=watcher)
    assert rows(tmp_path / "out")["good"]["state"] == "todo"


@pytest.mark.parametrize(("signals", "said"), [(1, ["begun", "whole"]), (3, ["begun"])])
def test_a_signal_does_not_break_into_another_librarys_executor(tmp_path: Path, signals: int, said: list[str]) -> None:
    """Ray's C code turns what a handler raises into a SystemError of its own; only who asks again and again may."""
    source, verb, heard = corpus(tmp_path / "samples", ["good"]), f"{VERBS}:act", []

    class Foreign(Pool):
        def events(self, seconds: float) -> list[Event]:
            heard.append("begun")
            for _ in range(signals):
                os.kill(os.getpid(), signal.SIGTERM)
            heard.append("whole")
            return []

    with pytest.raises(Stopped, match="SIGTERM"):
        run_plan(
            plan(source, tmp_path / "out", "act"),
            SMALL,
            1,
            executor=lambda work, name: Foreign(verb, {}, SMALL, 1, work, name),
        )
    assert heard == said
    assert rows(tmp_path / "out")["good"]["state"] == "todo"
