"""Verbs for the tests of corpus runs: the name of a sample's folder says what the sample does."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

PRINTED = 10_000_000


def act(task: Any, options: Any, staging: Path) -> dict[str, Any]:
    """Do what the folder's name says; then write a file and return a good row."""
    staging.mkdir()
    (staging / "written.txt").write_text(task.id)
    given = DEEDS.get(task.path.name, lambda: None)()
    return {"verdict": "bitwise", "detail": str(given or "")}


def segfault() -> None:
    import ctypes

    ctypes.string_at(0)


def exhaust() -> None:
    """Use memory a little at a time, so that only watching detects it."""
    kept = []
    while True:
        kept.append(b"x" * (16 << 20))
        time.sleep(0.005)


def some_memory() -> None:
    """Use more memory than one of two workers has."""
    kept = b"x" * (400 << 20)
    time.sleep(0.3)
    del kept


def fork_bomb() -> None:
    for _ in range(7):
        os.fork()
    time.sleep(60)


def daemonise() -> None:
    """Start a grandchild in a session of its own, whose parent has ended."""
    if not os.fork():
        os.setsid()
        if not os.fork():
            time.sleep(600)
        os._exit(0)
    time.sleep(0.2)


def hang_at_exit() -> None:
    import atexit
    import threading

    atexit.register(time.sleep, 600)
    threading.Thread(target=time.sleep, args=(600,)).start()


def flood() -> None:
    sys.stdout.write("x" * PRINTED + "\nthe last line\n")
    raise ValueError("after much output")


def fill() -> None:
    with open("much", "wb") as file:
        while True:
            file.write(b"x" * (1 << 20))


def fill_many() -> None:
    """Write files that are each small enough."""
    for number in range(10_000):
        Path(f"much_{number}").write_bytes(b"x" * (4 << 20))
        time.sleep(0.01)


def meddle() -> None:
    """Change state that a process keeps."""
    import random

    os.chdir("/")
    os.environ.clear()
    sys.path.clear()
    sys.modules.pop("json")
    random.seed(7)
    os.umask(0o777)


def untouched() -> str:
    """Return what `meddle` would have changed in this process."""
    import json
    import random

    return json.dumps(
        [os.getcwd().endswith("tmp"), "PATH" in os.environ, bool(sys.path), random.random() != 0.32383276483316237]
    )


DEEDS: dict[str, Any] = {
    "some_memory": some_memory,
    "hang": lambda: time.sleep(600),
    "segfault": segfault,
    "abort": os.abort,
    "exhaust": exhaust,
    "allocate": lambda: bytearray(1 << 42),
    "fork_bomb": fork_bomb,
    "daemonise": daemonise,
    "exit": lambda: sys.exit(3),
    "exit_words": lambda: sys.exit("no more"),
    "os_exit": lambda: os._exit(4),
    "flood": flood,
    "fill": fill,
    "fill_many": fill_many,
    "hang_at_exit": hang_at_exit,
    "close_all": lambda: os.closerange(0, 1024),
    "meddle": meddle,
    "untouched": untouched,
    "kill_itself": lambda: os.kill(os.getpid(), 9),
    "kill_its_worker": lambda: os.kill(os.getppid(), 9),
    "stop_its_worker": lambda: os.kill(os.getppid(), 19),
    "interrupt": lambda: os.kill(os.getpid(), 2),
    "raise": lambda: 1 / 0,
    "recurse": lambda: recurse(),
}


def recurse() -> None:
    recurse()


def daemons(task: Any, options: Any, staging: Path) -> dict[str, Any]:
    """Start a grandchild that outlives its worker, in a sample that never ends."""
    daemonise()
    time.sleep(600)
    return {"verdict": "bitwise"}


def no_row(task: Any, options: Any, staging: Path) -> Any:
    return ["no", "row"]


def strange_row(task: Any, options: Any, staging: Path) -> dict[str, Any]:
    return {"verdict": "splendid"}


def strange_column(task: Any, options: Any, staging: Path) -> dict[str, Any]:
    return {"verdict": "bitwise", "colour": "green"}


def logged(task: Any, options: Any, staging: Path) -> dict[str, Any]:
    """Log each run; every seventh fails, every eleventh is undifferentiable."""
    note(options["log"], f"begin {task.id}")
    time.sleep(options.get("seconds", 0.0))
    number = int(task.path.name[1:])
    if number % 7 == 0:
        raise ValueError(f"sample {number}")
    (staging / "pair_0").mkdir(parents=True)
    (staging / "pair_0" / "model.py").write_text(f"number = {number}\n" * 100)
    (staging / "capture.json").write_text(f'{{"number": {number}}}')
    note(options["log"], f"end {task.id}")
    return {"verdict": "undifferentiable" if number % 11 == 0 else "bitwise", "forward_steps": number}


def note(path: str, line: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def odd_row(task: Any, options: Any, staging: Path) -> Any:
    """Return a row that no ledger can keep, one of `odd_rows.ODD`; or send one as a message of the worker's."""
    staging.mkdir()
    if task.path.name == "forged":
        for descriptor in range(3, 600):
            with contextlib.suppress(OSError):
                os.write(descriptor, b'{"row": {"verdict": "bitwise", "vacuous": 7}}\n' + b"[" * 10_000 + b"\n")
        os._exit(0)
    from odd_rows import ODD  # a verb is imported from its file, with its folder on the path

    return {"verdict": "bitwise"} | ODD.get(task.path.name.removeprefix("odd "), [{}])[0]


def planted(task: Any, options: Any, staging: Path) -> dict[str, Any]:
    """Write trees beside the sample, each file with the sample's name."""
    (staging / "pair_0").mkdir(parents=True)
    (staging / "capture.json").write_text(task.id)
    several = task.path.name == "several" and (task.path / "model.py").read_text() != "one"
    for tree in ("train_forward", "train_backward", "eval_forward"):
        for end in ("/subgraph_0", "/subgraph_1") if several else ("",):
            place = staging / "trees" / tree / (task.id + end)
            place.mkdir(parents=True)
            (place / "model.py").write_text(task.id)
            (place / "graph_net.json").write_text(json.dumps({"id": task.id, "place": task.id + end}))
    return {"verdict": "close" if task.path.name == "a" else "bitwise"}
