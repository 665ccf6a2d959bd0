"""A part of the truth suite, as `run.py` runs it: nothing is silently wrong, changes its caller or crashes.

`make truth` runs all of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

RUN = Path(__file__).parent.parent / "truth" / "run.py"
SILENT = """
import dataclasses, oracle, run
from case import Case, many, randn
run.load_programs = lambda: None
replay = oracle.bp.replay
oracle.bp.replay = lambda *args, **kwargs: dataclasses.replace(
    found := replay(*args, **kwargs), outputs=oracle.pytree.tree_map(lambda y: y + 1, found.outputs)
)
many("odd.planted", doubled=lambda: Case(lambda x: x * 2, randn(3, 4)))
raise SystemExit(run.main())
"""


def rows(place: Path, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code of a run, and its rows."""
    done = subprocess.run(
        [sys.executable, *arguments, "--json", str(place)],
        cwd=RUN.parent,
        **dict(capture_output=True, text=True, timeout=300, check=False),
    )
    assert place.exists(), done.stderr[-2000:]
    return done.returncode, json.loads(place.read_text())


@pytest.mark.slow
def test_a_part_of_the_programs(tmp_path: Path) -> None:
    code, found = rows(tmp_path / "rows.json", str(RUN), "--every", "160")
    outcomes = Counter(row["outcome"] for row in found)
    bad = [row for row in found if row["outcome"] in ("SILENT", "CHANGED", "CRASH", "invalid")]
    assert not bad, "\n".join(f"{row['name']}: {row['outcome']} {row['issues'][:2]}" for row in bad)
    assert code == 0
    assert outcomes["right"] + outcomes["guarded"] > len(found) / 2 > 5, outcomes


@pytest.mark.slow
def test_a_replay_that_is_silently_wrong_is_seen(tmp_path: Path) -> None:
    code, (row,) = rows(tmp_path / "rows.json", "-c", SILENT)
    assert (code, row["name"], row["outcome"]) == (1, "doubled", "SILENT")
