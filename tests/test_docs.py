"""The README says what is there: every verb, every verdict, and code that runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from backprint.cli import VERBS
from backprint.graph.verdicts import VERDICTS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("verb", VERBS)
def test_the_readme_has_every_verb(verb: str) -> None:
    assert re.search(rf"^\| `backprint {verb}\b", README, re.MULTILINE)


def test_the_readme_has_no_verb_that_is_not_there() -> None:
    assert set(re.findall(r"`backprint (\w+)", README)) == set(VERBS)


def test_the_readme_has_every_verdict() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE)) == set(VERDICTS)


def test_the_readme_has_code() -> None:
    assert SNIPPETS


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_the_readmes_code_runs(snippet: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", snippet],
        cwd=tmp_path,
        **dict(capture_output=True, text=True, timeout=120, check=False),
    )
    assert (done.returncode, done.stderr) == (0, "")
    if "verify()" in snippet:
        assert "bitwise" in done.stdout


def test_code_that_does_not_run_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        test_the_readmes_code_runs("import backprint\nbackprint.absent()", tmp_path)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!https?://)([^)#]+)\)", README))))
def test_the_readmes_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
