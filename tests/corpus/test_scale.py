"""Many samples: neither the parent's memory nor what it keeps of each grows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("flat_run.py")


def test_memory_and_ledger_stay_flat_over_three_hundred_samples() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "300", "2"], capture_output=True, text=True, check=True)
    rows = [re.findall(r"[\d.,]+", line) for line in done.stdout.splitlines() if re.match(r"\| \d", line)]
    assert [int(row[0]) for row in rows] == list(range(30, 301, 30))
    memory = [float(row[2]) for row in rows]
    assert memory[-1] - memory[1] < 2, done.stdout
    assert float(rows[-1][3]) * 2**20 / 300 < 30_000, done.stdout  # with SQLite's log, which has a size of its own
    assert "300 samples, 2 workers" in done.stdout
