"""The ledger: every sample once, a resume that is of the same run, rows that are what they say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from face import (
    COLUMNS,
    NAME,
    Job,
    Ledger,
    SampleError,
    UsageError,
    check_row,
    open_run,
    place_of,
    progress,
    source_of,
)

FACTS = {"format": 1, "verb": "backward", "source": "/corpus", "options": {"mode": "train"}, "run": "r", "started": 0.0}
JOBS = [Job(f"f/{name}", f"f/{name}", "f", "graphnet", "hash") for name in "cab"]


def opened(folder: Path, restart: bool = False, **facts: Any) -> Ledger:
    return open_run(folder / NAME, FACTS | facts, restart)


def begun(folder: Path) -> None:
    """A run that has samples."""
    with opened(folder) as ledger:
        ledger.add(JOBS)


def test_every_sample_is_in_it_once_in_the_order_it_came(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        assert ledger.add(JOBS) == 3
        assert ledger.add([*JOBS, *JOBS]) == 0
        assert [row["id"] for row in ledger.rows()] == ["f/c", "f/a", "f/b"]
        assert ledger.counts("state") == {"todo": 3}


def test_a_row_comes_back_as_it_was(tmp_path: Path) -> None:
    row = {
        "verdict": "close",
        "cause": "",
        "detail": "\udcff x",
        "stages": {"read": 0.5},
        "power": math.inf,
        "vacuous": ["output y"],
        "asks": [["w", "a parameter"]],
        "seconds": 1,
        "peak_bytes": 5.0,
    }
    with opened(tmp_path) as ledger:
        ledger.add(JOBS)
        ledger.begin("f/a")
        assert ledger.row("f/a")["state"] == "running"
        ledger.finish("f/a", check_row(row))
        found = ledger.row("f/a")
    assert found is not None
    assert set(found) == set(COLUMNS)
    assert {key: found[key] for key in row} == row | {"detail": "\\udcff x"}
    assert (found["state"], found["attempts"]) == ("done", 1)


def test_after_the_clock_was_set_back_nothing_runs_for_less_than_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as ledger:
        ledger.add(JOBS)
        ledger.begin("f/a")
        monkeypatch.setattr("backprint.tools.jobs.progress.time.time", lambda: 1.0)
        assert progress.state(tmp_path)["running"] == [{"sample": "f/a", "seconds": 0.0}]


def test_what_is_not_done_is_given_a_page_at_a_time(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.add(JOBS)
        seen = []
        for row in ledger.unfinished(page=1):
            seen.append(row["id"])
            ledger.finish(row["id"], {"verdict": "bitwise"})
        assert seen == ["f/c", "f/a", "f/b"]
        assert list(ledger.unfinished()) == []


def test_a_sample_that_changed_is_to_do_again(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.add(JOBS)
        ledger.finish("f/a", {"verdict": "bitwise"})
        assert ledger.add([Job("f/a", "f/a", "f", "graphnet", "other")]) == 1
        assert (ledger.row("f/a")["state"], ledger.row("f/a")["source_hash"]) == ("todo", "other")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"verb": "verify"}, "this run was begun with verb 'backward', now 'verify'"),
        ({"source": "/else"}, "this run was begun with source '/corpus', now '/else'"),
        ({"options": {"mode": "eval"}}, "this run was begun with other options: mode 'train', now 'eval'"),
        ({"options": {}}, "this run was begun with other options: mode 'train', now None"),
    ],
)
def test_another_run_is_refused_and_both_sides_are_named(tmp_path: Path, other: Any, said: str) -> None:
    begun(tmp_path)
    with pytest.raises(UsageError) as caught:
        opened(tmp_path, **other)
    assert said in str(caught.value)
    assert "--restart" in str(caught.value)


def test_the_same_run_is_taken_up_under_its_own_name(tmp_path: Path) -> None:
    begun(tmp_path)
    with opened(tmp_path, run="other", started=9.0) as ledger:
        assert (ledger.facts()["run"], ledger.facts()["started"]) == ("r", 0.0)


def test_a_run_that_found_no_samples_may_be_begun_otherwise(tmp_path: Path) -> None:
    opened(tmp_path).connection.close()
    with opened(tmp_path, source="/else") as ledger:
        assert ledger.facts()["source"] == "/else"


def test_a_restart_keeps_the_old_ledger(tmp_path: Path) -> None:
    for number in range(3):
        with opened(tmp_path, restart=True, verb=f"v{number}") as ledger:
            ledger.add(JOBS[: number + 1])
    verbs = {}
    for place in sorted(tmp_path.glob("*.sqlite")):
        with Ledger.reading(place) as ledger:
            verbs[place.name] = (ledger.facts()["verb"], len(list(ledger.rows())))
    assert verbs == {"ledger.1.sqlite": ("v0", 1), "ledger.2.sqlite": ("v1", 2), NAME: ("v2", 3)}


def test_a_file_that_is_no_ledger_is_named(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("nothing of the kind " * 100)
    for opening in (lambda: opened(tmp_path), lambda: Ledger.reading(tmp_path)):
        with pytest.raises(
            SampleError, match=r"ledger\.sqlite: file is not a database: .*; run the corpus again, in another OUT"
        ):
            opening()
    with pytest.raises(UsageError, match="no ledger here"):
        Ledger.reading(tmp_path / "absent")


def test_a_reader_reads_while_the_run_writes_and_cannot_write(tmp_path: Path) -> None:
    with opened(tmp_path) as writer, Ledger.reading(tmp_path) as reader:
        writer.add(JOBS)
        writer.finish("f/a", {"verdict": "bitwise", "cause": "x"})
        assert reader.counts("state") == {"todo": 2, "done": 1}
        assert reader.counts("cause", "cause != ''") == {"x": 1}
        with pytest.raises(SampleError, match="readonly"):
            reader.write_facts(verb="mine")
        with pytest.raises(UsageError, match="not a column"):
            reader.counts("colour")


def test_a_sample_that_is_not_in_it_cannot_be_finished(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger, pytest.raises(SampleError, match="no sample 'g'"):
        ledger.finish("g", {"verdict": "bitwise"})


def test_places(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.add([Job(r"back\n", r"back\n", "", "", ""), Job("net", "", "", "", "")])
        lines, whole = ledger.rows()
    assert source_of(tmp_path, lines) == place_of(tmp_path, lines) == tmp_path / r"back\n"
    assert (source_of(tmp_path, whole), place_of(tmp_path, whole)) == (tmp_path, tmp_path / "net")
