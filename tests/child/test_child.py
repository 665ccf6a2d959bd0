"""What runs in another process: its value or its end, in the words that every verb shows, and nothing left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from face import (
    Answering,
    Child,
    ChildDied,
    Line,
    SharedMemory,
    TensorChild,
    at_work,
    in_child,
    limited,
    processes,
    put_results,
    read_inputs,
    run_command,
    serve,
    start_by_fork,
)


def end_by(number: int) -> None:
    os.kill(os.getpid(), number)


ENDS: dict[str, tuple[Callable[[], Any], str]] = {
    "raises": (lambda: 1 // 0, "raised: ZeroDivisionError: "),
    "is killed": (lambda: end_by(signal.SIGKILL), "killed by SIGKILL"),
    "exits": (lambda: os._exit(3), "exit 3: ended before it was done"),
    "hangs": (lambda: time.sleep(60), "timeout: still at work after 1 s (--timeout)"),
    "closes its files": (lambda: os.closerange(3, 1024), "exit 70: ended before it was done"),
    "uses memory": (lambda: [bytearray(2 << 30), time.sleep(60)], "out of memory: "),
    "says too much": (lambda: "a" * (65 << 20), "exit 0: its answer was longer than 64 MiB"),
}


@pytest.mark.parametrize("case", ENDS)
def test_an_end_has_its_words(case: str) -> None:
    function, words = ENDS[case]
    room = 500 << 20 if case == "says too much" else 200 << 20
    end = in_child(function, 1.0 if case == "hangs" else 30.0, processes.resident_bytes(os.getpid()) + room)
    assert not end.ended_well
    assert str(end).startswith(words)
    assert end.at_limit == (case in ("hangs", "uses memory"))
    assert end.kind == {"raises": "raised", "hangs": "timeout", "uses memory": "out of memory"}.get(case, "crashed")


def test_a_value_comes_back() -> None:
    end = in_child(lambda: {"a": [1, None]}, 30.0)
    assert (end.ended_well, end.value, str(end)) == (True, {"a": [1, None]}, "")


def sleeper() -> int:
    """Start a process in a session of its own; return its pid."""
    return subprocess.Popen(["sleep", "600"], start_new_session=True).pid


def test_the_call_at_work_is_kept_by_its_own_process_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_work, "_descriptor", None)
    monkeypatch.setattr(at_work, "_process", 0)
    at_work.begin(tmp_path)
    at_work.note("aten.mm")
    # The child has closed what it inherited: writing there would raise, or hit another file.
    assert str(in_child(lambda: at_work.note("aten.add"), 30.0)) == ""
    assert at_work.last(tmp_path) == "aten.mm"


@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_what_a_child_started_ends_with_it(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if its parent is slow: a child that has answered stays until it is ended, so that all below it is found."""
    end_tree = processes.end_tree
    monkeypatch.setattr(processes, "end_tree", lambda pid: (time.sleep(seconds), end_tree(pid))[1])
    end = in_child(sleeper, 30.0)
    deadline = time.monotonic() + 10
    while processes.resident_bytes(end.value) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not processes.resident_bytes(end.value)


def test_a_child_dies_with_its_parent() -> None:
    def parent_of_one(line: Line) -> None:
        child = Child(start_by_fork(lambda line: time.sleep(600)))
        line.send(child.pid)
        time.sleep(600)

    parent = Child(start_by_fork(parent_of_one))
    pid = int(parent.receive() or 0)
    os.kill(parent.pid, signal.SIGKILL)
    assert parent.receive() is None
    assert str(parent.close()) == "killed by SIGKILL"
    deadline = time.monotonic() + 10
    while processes.resident_bytes(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not processes.resident_bytes(pid)


def test_many_processes_are_too_many() -> None:
    def start_some(line: Line) -> None:
        pids = [sleeper() for _ in range(5)]
        time.sleep(60 + len(pids))

    child = Child(start_by_fork(start_some), limited(30.0, processes=4))
    assert child.receive() is None
    assert str(child.close()) in [f"too many processes: {count} processes, 4 are allowed" for count in (5, 6)]
    assert child.left in (4, 5)


def test_a_program_is_run_to_its_end() -> None:
    program = "import sys; print('on stdout'); print('on stderr', file=sys.stderr); sys.exit(int(sys.argv[1]))"
    good, bad = (run_command([sys.executable, "-S", "-c", program, code], 60.0) for code in "03")
    assert (good.ended_well, sorted(good.printed.split())) == (True, ["on", "on", "stderr", "stdout"])
    assert (bad.ended_well, bad.cause) == (False, "exit 3")
    assert bad.account.startswith("exit 3: ended before it was done; last printed: on std")


TOLD = {"value": ValueError}


class Doubling(Answering):
    """Doubles tensors."""

    told = TOLD

    def __init__(self, inputs: SharedMemory, results: SharedMemory) -> None:
        self.inputs, self.results = inputs, results

    def do_double(self, inputs: list[Any]) -> dict[str, Any]:
        headers, _ = put_results(self.results, [value * 2 for value in read_inputs(self.inputs, inputs)])
        print("doubled", flush=True)
        return {"results": headers}

    def do_fail(self) -> dict[str, Any]:
        raise ValueError("not today")

    def do_exit(self) -> dict[str, Any]:
        os._exit(5)


class DoublingChild(TensorChild):
    told = TOLD


def test_a_child_answers_requests_with_tensors() -> None:
    def start(inputs: SharedMemory, results: SharedMemory) -> Any:
        return start_by_fork(lambda line: serve(lambda: Doubling(inputs, results), line), (inputs.file, results.file))

    child = DoublingChild(start, limited(60.0), captured=True)
    try:
        base = torch.randn(4, 6)
        values = [base.t(), base[1:], torch.arange(3)]
        for _ in range(2):
            results = child.results_in(child.request("double", inputs=child.send_inputs(values)))
            assert all(torch.equal(result, value * 2) for result, value in zip(results, values, strict=True))
        with pytest.raises(ValueError, match="not today"):
            child.request("fail")
        with pytest.raises(RuntimeError, match="has no attribute 'do_other'"):
            child.request("other")
        with pytest.raises(ChildDied, match="exit 5"):
            child.request("exit")
        with pytest.raises(ChildDied, match="exit 5"):
            child.request("double", inputs=[])
    finally:
        assert child.close().printed == "doubled\ndoubled\n"
