"""Where a run writes: OUT as it was named, from wherever."""

from __future__ import annotations

from pathlib import Path

import pytest
from subjects.corpora import corpus, rows, worked


def test_a_relative_out_is_seen_from_the_callers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample's process has a folder of its own, so a relative path would mean another place there."""
    corpus(tmp_path / "samples", ["family/good"])
    monkeypatch.chdir(tmp_path)
    worked(Path("samples"), Path("out"))
    assert {name: row["verdict"] for name, row in rows(tmp_path / "out").items()} == {"family/good": "bitwise"}
    assert (tmp_path / "out" / "family" / "good" / "written.txt").read_text() == "family/good"
