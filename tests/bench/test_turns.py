"""Timed parts take turns, whoever else works."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from face import GraphClock, Turns, turns_folder


def in_a_process(function) -> int:  # type: ignore[no-untyped-def]
    """Start a function in a process of its own; return its pid."""
    pid = os.fork()
    if not pid:
        try:
            function()
        finally:
            os._exit(0)
    return pid


def test_nobody_works_while_one_times(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def note(word: str) -> None:
        with open(log, "a") as file:
            file.write(f"{word} {time.monotonic_ns()}\n")

    def work(name: str) -> None:
        turns = Turns(turns_folder(tmp_path), GraphClock())
        with turns.working():
            for _ in range(3):
                note(f"{name} works")
                time.sleep(0.02)
                note(f"{name} rests")
                with turns.alone():
                    note(f"{name} times")
                    time.sleep(0.02)
                    note(f"{name} timed")

    pids = [in_a_process(lambda name=name: work(name)) for name in "abcd"]
    for pid in pids:
        os.waitpid(pid, 0)
    lines = [line.split() for line in log.read_text().splitlines()]
    assert len(lines) == 48
    at_work, timing = set(), set()
    for name, word, _ in sorted(lines, key=lambda line: int(line[2])):
        match word:
            case "works":
                assert not timing
                at_work.add(name)
            case "rests":
                at_work.discard(name)
            case "times":
                assert not timing
                assert not at_work
                timing.add(name)
            case "timed":
                timing.discard(name)


def test_what_was_waited_is_not_spent_and_the_parent_knows(tmp_path: Path) -> None:
    first = Turns(turns_folder(tmp_path), GraphClock())
    clock = GraphClock()

    def wait() -> None:
        with Turns(turns_folder(tmp_path), clock).working():
            time.sleep(0.2)

    with first.working(), first.alone():
        pid = in_a_process(wait)
        time.sleep(1.0)
        assert clock.seconds_of(0) < 0.7  # it waits
    os.waitpid(pid, 0)
    before = clock.seconds_of(0)
    assert before >= 0.2
    time.sleep(0.1)
    assert clock.seconds_of(0) >= before + 0.1
    clock.begin_graph()
    assert clock.seconds_of(0) < 0.1


def test_the_clock_goes_on_after_a_wait_that_was_interrupted(tmp_path: Path) -> None:
    first, clock = Turns(turns_folder(tmp_path), GraphClock()), GraphClock()

    def interrupt(*_: object) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with first.working(), first.alone():
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(InterruptedError), Turns(turns_folder(tmp_path), clock).working():
                raise AssertionError("another process times")
    finally:
        signal.signal(signal.SIGALRM, before)
    worked = clock.seconds_of(0)
    time.sleep(0.1)
    assert clock.seconds_of(0) >= worked + 0.1


def test_a_folder_of_another_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"backprint-turns-{os.getuid()}").symlink_to(elsewhere)
    with pytest.raises(PermissionError, match="belongs to another user"):
        turns_folder(tmp_path)
