"""A part of the fuzz of records, as `records.py` runs it; and that it finds what is there."""

from __future__ import annotations

from pathlib import Path

import pytest
import records


def test_damaged_records_are_read_or_named(tmp_path: Path) -> None:
    told: list[str] = []
    ends = records.fuzz(60, 5, tmp_path, told.append)
    assert not told
    assert sum(number for end, number in ends.items() if end.endswith("Error")) > 20


def test_an_error_that_is_not_ours_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def state(out: Path) -> dict[str, object]:
        return {}[out]

    monkeypatch.setattr("backprint.tools.jobs.progress.state", state)
    told: list[str] = []
    assert records.fuzz(20, 5, tmp_path, told.append)["FINDING"] == len(told) > 3
    assert all("KeyError" in text for text in told)
