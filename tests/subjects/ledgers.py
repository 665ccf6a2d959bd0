"""Ledgers for tests: rows as a corpus run would have written them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from backprint.common.text import printable
from backprint.tools.jobs.find import Job
from backprint.tools.jobs.ledger import GIVEN, NAME, Ledger

FULL: dict[str, Any] = {
    "verdict": "bitwise",
    "cause": "",
    "detail": "",
    "stage": "done",
    "seconds": 2.0,
    "stages": {"capture": 1.5, "verify": 0.5},
    "peak_bytes": 500 << 20,
    "engine": "aot",
    "mode": "train",
    "forward_hash": "",
    "backward_hash": "",
    "forward_shape": "",
    "backward_shape": "",
    "forward_steps": 10,
    "backward_steps": 20,
    "saved_bytes": 4096,
    "inputs": 3,
    "gradients": 2,
    "outputs": 1,
    "input_bytes": 8192,
    "disk_bytes": 30000,
    "power": 250.0,
    "vacuous": [],
    "asks": [],
    "notes": [],
    "guards": 0,
    "worker": "1",
    "started": 1000.0,
    "finished": 1002.0,
    "versions": {"torch": "2.13.0", "threads": 1},
}


def ledger(out: Path, rows: Iterable[Mapping[str, Any]], **facts: Any) -> Path:
    """Write a run's folder with a ledger. A row has an `id` and its unusual columns; `state="todo"` leaves it
    unfinished."""
    out.mkdir(parents=True, exist_ok=True)
    with Ledger.writing(out / NAME) as book:
        book.write_facts(**{"verb": "backward", "source": "samples", **facts})
        rows = list(rows)
        book.add(
            Job(
                printable(row["id"]),
                printable(row["id"]),
                row.get("family", row["id"].split("/")[0]),
                row.get("kind", "graphnet"),
                row.get("source_hash", "s:" + row["id"]),
            )
            for row in rows
        )
        book.connection.execute("begin")
        for row in rows:
            if row.get("state", "done") == "done":
                given = {key: value for key, value in row.items() if key not in GIVEN}
                hashes = {"forward_hash": "f:" + row["id"], "backward_hash": "b:" + row["id"]}
                book.begin(printable(row["id"]))
                book.finish(printable(row["id"]), FULL | hashes | given)
        book.connection.execute("commit")
    return out


def many(count: int, seed: int = 0) -> Iterable[dict[str, Any]]:
    """Yield the rows of a large corpus with some of everything."""
    draw = random.Random(seed)
    for index in range(count):
        verdict = draw.choices(["bitwise", "close", "unproven", "failed", "undifferentiable"], [80, 10, 3, 5, 2])[0]
        fine = verdict in ("bitwise", "close")
        yield {
            "id": f"family_{index % 7}/model_{index:06}",
            "verdict": verdict,
            "cause": "" if fine else draw.choice(["timeout", "out of memory", "RuntimeError"]),
            "detail": "" if fine else f"index {index} is out of bounds for dimension 0 with size {index // 2}",
            "stage": "done" if fine else "capture",
            "seconds": draw.lognormvariate(1, 1),
            "peak_bytes": draw.randrange(200 << 20, 4 << 30),
            "vacuous": ["output logits"] if draw.random() < 0.1 else [],
            "notes": [f"{draw.randrange(1, 9)} constants are printed as 0.000000"] if draw.random() < 0.2 else [],
            "asks": [(f"layer.{n}.weight", "a parameter") for n in range(50)] + [("x", "floating-point input")],
            "forward_hash": f"f{index // 3 if index % 30 == 0 else index}" if verdict != "failed" else "",
            "backward_hash": "b" if fine else "",
        }
