"""Verbs for the tests of Ray clusters, with fixed durations."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any


def act(task: Any, options: Any, staging: Path) -> dict[str, Any]:
    """Wait, do what the folder's name says, write what was read."""
    time.sleep(options.get("seconds", 0.0))
    name = task.path.name
    if name == "segfault":
        os.kill(os.getpid(), 11)
    if name == "raise":
        raise ValueError("as it is told")
    if name == "hang":
        time.sleep(60)
    (staging / "pair_0").mkdir(parents=True)
    (staging / "capture.json").write_text((task.path / "model.py").read_text())
    (staging / "pair_0" / "large").write_bytes(b"x" * options.get("bytes", 10))
    return {"verdict": "bitwise", "detail": f"{task.family} {task.kind}"}
