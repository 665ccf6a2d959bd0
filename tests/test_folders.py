"""Folders that are written whole: what a killed writer leaves is removed, and what a living one writes is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from face import SUFFIX, unfinished_folder

WRITER = """
import sys, time
from pathlib import Path
from backprint.common.folders import unfinished_folder

with unfinished_folder(Path(sys.argv[1]), "sample") as folder:
    (folder / "half").write_text("half")
    print(folder, flush=True)
    sys.stdin.readline()
    folder.rename(Path(sys.argv[1]) / "whole")
"""
"""Writes half of a folder, and the rest when it is told to."""


@pytest.fixture
def writer_in() -> Iterator[Callable[[Path], tuple[subprocess.Popen[str], Path]]]:
    """Starts a process that writes a folder; returns it, and the folder. None of them outlives the test."""
    processes: list[subprocess.Popen[str]] = []

    def started(place: Path) -> tuple[subprocess.Popen[str], Path]:
        command = [sys.executable, "-c", WRITER, str(place)]
        known = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=known)
        processes.append(process)
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    yield started
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no locks on folders")
def test_what_a_killed_writer_leaves_is_removed_and_what_a_living_one_writes_is_not(
    writer_in: Callable[[Path], tuple[subprocess.Popen[str], Path]], tmp_path: Path
) -> None:
    killed, left = writer_in(tmp_path)
    living, unfinished = writer_in(tmp_path)
    with unfinished_folder(tmp_path, "sample") as folder:
        assert left.exists()  # its writer lives
        killed.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)  # a zombie, whose locks are gone
    assert unfinished.exists()
    assert (left.exists(), folder.exists()) == (True, False)  # it was killed after this process had looked

    living.communicate("\n", timeout=60)  # it looks again where it ends
    assert sorted(path.name for path in tmp_path.iterdir()) == ["whole"]
    assert (tmp_path / "whole" / "half").read_text() == "half"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no locks on folders")
def test_the_first_who_writes_removes_what_was_left(
    writer_in: Callable[[Path], tuple[subprocess.Popen[str], Path]], tmp_path: Path
) -> None:
    killed, left = writer_in(tmp_path)
    killed.kill()
    os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
    assert left.exists()
    with unfinished_folder(tmp_path, "sample"):
        assert not left.exists()


def test_other_hidden_folders_are_not_touched(tmp_path: Path) -> None:
    others = [".sample.part", f".x{SUFFIX}", "sample.abcd1234.backprint.part", ".git"]
    for name in others:
        (tmp_path / name).mkdir()
    abandoned = tmp_path / f".sample.abcd1234{SUFFIX}"
    abandoned.mkdir()
    with pytest.raises(ZeroDivisionError), unfinished_folder(tmp_path):
        raise ZeroDivisionError
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)
