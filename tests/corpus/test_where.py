"""Conditions on the rows of a ledger: `--where`."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from subjects.corpora import VERBS, corpus, rows
from subjects.ledgers import ledger

from face import (
    NAME,
    Ledger,
    SampleError,
    UsageError,
    main,
    report,
)

ROWS = (
    {"id": "timm/small", "seconds": 2.0, "flops": 3 * 10**9, "saved_bytes": 4 << 20},
    {"id": "timm/large", "seconds": 90.0, "flops": 5 * 10**10, "saved_bytes": 1 << 30, "backward_steps": 500},
    {"id": "nets/wrong", "seconds": 7.0, "verdict": "wrong", "flops": 10**6, "derivative": "derivative"},
    {"id": "nets/failed", "verdict": "failed", "cause": "timeout", "seconds": 600.0, "forward_hash": ""},
    {"id": "nets/later", "state": "todo"},
)


def backprint(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ledger(tmp_path_factory.mktemp("run") / "out", ROWS)


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        (["seconds < 10"], ["nets/wrong", "timm/small"]),
        (["seconds >= 90", "flops is null or flops > 1e9"], ["nets/failed", "timm/large"]),
        (["flops > 1e9"], ["timm/large", "timm/small"]),
        (["flops <= 5e10 and family = 'timm'"], ["timm/large", "timm/small"]),
        (["saved_bytes >= 1 << 30"], ["timm/large"]),
        (["verdict in ('wrong', 'failed')"], ["nets/failed", "nets/wrong"]),
        (["verdict != 'bitwise'"], ["nets/failed", "nets/wrong"]),
        (["id glob '*/l*'"], ["nets/later", "timm/large"]),
        (["derivative is not null -- a remark"], ["nets/wrong"]),
        (["seconds = (select max(seconds) from samples)"], ["nets/failed"]),
        (["seconds < 1"], []),
    ],
)
def test_the_rows_for_which_all_conditions_hold_are_there(out: Path, where: list[str], ids: list[str]) -> None:
    with Ledger.reading(out, where) as book:
        assert sorted(row["id"] for row in book.rows()) == ids
        assert sum(book.counts("state").values()) == len(ids)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seconds <", 'syntax error; write SQL, texts in single quotes: "seconds < 10 and'),
        ("colour = 'green'", "no such column: colour"),
        ("verdict = bitwise", "no such column: bitwise"),
        ("seconds < 10s", "unrecognized token"),
        ("1); drop table samples; --", "one statement at a time"),
        ("(delete from samples)", "syntax error"),
        ("exists (select 1 from pragma_database_list)", "not authorized"),
    ],
)
def test_a_condition_that_only_reads_is_all_that_is_taken(out: Path, text: str, said: str) -> None:
    before = (out / NAME).read_bytes()
    with pytest.raises(UsageError) as caught:
        Ledger.reading(out, [text])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (out / NAME).read_bytes() == before


def test_status_and_report_are_of_these_samples(out: Path) -> None:
    done = backprint("corpus", "status", out, "--where", "seconds < 10", "--where", "flops > 0")
    assert done.stdout.splitlines()[0] == (
        "2 of 2 samples that meet seconds < 10 and flops > 0 are done; 1 bitwise, 1 wrong"
    )
    made = report(out, ("family = 'nets'",))
    assert made.facts["where"] == "family = 'nets'"
    assert "2 of the 2 that are done are distinct." in made.answer
    lines = backprint("corpus", "report", out, "--where", "verdict = 'wrong'", "--json").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["nets/wrong"]


def test_a_run_over_a_run_takes_the_samples_that_its_ledger_chooses(tmp_path: Path) -> None:
    source = corpus(tmp_path / "src", ["a/good", "a/raise", "b/good"])
    first, second = tmp_path / "first", tmp_path / "second"
    backprint("corpus", "run", f"{VERBS}:act", source, "-o", first, "--jobs", 1)
    for name in rows(first):
        (first / name).mkdir(parents=True, exist_ok=True)
        (first / name / "model.py").write_text("x = 1")
    done = backprint(
        "corpus", "run", f"{VERBS}:act", first, "-o", second, "--jobs", 1, "--where", "verdict = 'failed'", "--limit", 1
    )
    assert done.exit_code == 1, done.output
    assert sorted(rows(second)) == ["a/raise"]
    other = backprint("corpus", "run", f"{VERBS}:act", first, "-o", second, "--where", "verdict = 'bitwise'")
    assert "this run was begun with other options" in " ".join(other.stderr.split())


def test_a_source_without_a_ledger_cannot_be_chosen_from(tmp_path: Path) -> None:
    source = corpus(tmp_path / "src", ["good"])
    done = backprint("corpus", "run", "verify", source, "-o", tmp_path / "out", "--where", "seconds < 1")
    assert done.exit_code == 2
    assert "--where chooses by the ledger of an earlier run" in " ".join(done.stderr.split())


def test_a_ledger_of_another_version_is_refused_by_name(tmp_path: Path) -> None:
    out = ledger(tmp_path / "old", ROWS)
    connection = sqlite3.connect(out / NAME, isolation_level=None)
    connection.execute("alter table samples drop column flops")
    connection.close()
    for opening in (lambda: Ledger.reading(out), lambda: Ledger.writing(out / NAME)):
        with pytest.raises(SampleError, match="of this version: it has no column 'flops': run the corpus again"):
            opening()
