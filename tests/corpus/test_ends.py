"""A few ends of `ends.py`, whose forty take half an hour; and that it sees what is wrong with an end."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import ends
import pytest
from ends import ACCIDENTS, SIGNALS, TOKEN, Bench, End, ended, main, planned, table

from face import NAME

pytestmark = pytest.mark.slow


@pytest.mark.slow
def test_a_few_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--moments", "2", "--executors", "pool", "--seconds", "0.1", "-o", str(tmp_path / "ends.jsonl")]
    arguments += ["--ends", *SIGNALS, "OUT removed", "clock back"]
    assert main(arguments) == 0
    first = capsys.readouterr().out
    assert len((tmp_path / "ends.jsonl").read_text().splitlines()) == 10
    assert main(arguments) == 0  # all of them are there already
    assert capsys.readouterr().out.split("\n")[1:] == first.split("\n")[1:]


def test_which_ends_there_are() -> None:
    found = planned(["pool", "ray"], [*SIGNALS, *ACCIDENTS], 40, 10)
    counts = {(executor, how): 0 for executor in ("pool", "ray") for how in (*SIGNALS, *ACCIDENTS)}
    for end in found:
        counts[end.executor, end.how] += 1
    assert {count for (_, how), count in counts.items() if how in SIGNALS} == {40}
    assert [counts["pool", how] for how in ACCIDENTS] == [10, 10, 10]
    assert [sum(end.resumed_on == "ray" for end in found if end.how == how) for how in SIGNALS] == [10, 10, 10]
    assert len(table(found).split("\n")) == 1 + 6 + 3


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    made = Bench(tmp_path_factory.mktemp("bench"), 0.0)
    made.first("pool")
    return made


def after_its_end(process: subprocess.Popen[str], out: Path) -> None:
    """Wait until the run is over; its standard error stays to be read."""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def another_row(process: subprocess.Popen[str], how: str, out: Path) -> None:
    after_its_end(process, out)
    with sqlite3.connect(out / NAME) as connection:
        connection.execute("update samples set detail = 'forged' where id = 'z'")
    connection.close()


def another_file(process: subprocess.Popen[str], how: str, out: Path) -> None:
    after_its_end(process, out)
    (out / "z" / "pair_0" / "large").write_text("forged")


def unreadable(process: subprocess.Popen[str], how: str, out: Path) -> None:
    after_its_end(process, out)
    (out / NAME).write_text("forged" * 1000)


def another_signal(process: subprocess.Popen[str], how: str, out: Path) -> None:
    process.send_signal(signal.SIGUSR1)


WRONG: dict[str, tuple[Callable[[subprocess.Popen[str], str, Path], None], str]] = {
    "a row": (another_row, "other rows: ['z']"),
    "a file": (another_file, "other files: ['z/pair_0/large']"),
    "a ledger that cannot be read": (unreadable, "corpus status: "),
    "an exit code": (another_signal, "exit code 138 and not 143"),
}


@pytest.mark.parametrize("name", WRONG)
def test_it_sees(bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    strike, said = WRONG[name]
    monkeypatch.setattr(ends, "strike", strike)
    end = ended(bench, End("pool", "TERM", 0, "pool"), 40)
    assert any(wrong.startswith(said) for wrong in end.wrong), end.wrong


@pytest.fixture
def sleeper(bench: Bench) -> Iterator[subprocess.Popen[bytes]]:
    """A process of a run that its end does not end."""
    environment = os.environ | {TOKEN: f"{os.getpid()}.{next(bench.count) + 1}"}
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=environment)
    yield process
    process.kill()
    process.wait()


def test_it_sees_a_process_that_is_left(
    bench: Bench, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends, "GONE", 0.5)
    end = ended(bench, End("pool", "KILL", 20, "pool"), 40)
    assert [wrong for wrong in end.wrong if wrong.startswith("1 processes are left")], end.wrong
