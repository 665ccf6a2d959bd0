"""README and docs say what is there: every verb, every verdict, and code that runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from backprint.cli import VERBS
from backprint.graph.verdicts import VERDICTS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").glob("*.md")))
COMMANDS = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
SNIPPETS = {
    f"{page.stem} {index}": snippet
    for page in PAGES
    for index, snippet in enumerate(
        re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    )
}


@pytest.mark.parametrize("verb", VERBS)
def test_the_command_line_has_every_verb(verb: str) -> None:
    assert re.search(rf"^\| `backprint {verb}\b", COMMANDS, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_page_has_a_verb_that_is_not_there(page: Path) -> None:
    assert set(re.findall(r"`backprint (\w+)", page.read_text(encoding="utf-8"))) <= set(VERBS)


@pytest.mark.parametrize("page", [README, ROOT / "docs" / "verdicts.md"], ids=lambda page: page.stem)
def test_every_verdict_is_explained(page: Path) -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE)) == set(VERDICTS)


def test_the_readme_fits_a_screen_or_two_and_leads_to_every_page() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert {page.name for page in PAGES[1:]} <= set(re.findall(r"\(docs/(\w+\.md)\)", text))


def test_there_is_code() -> None:
    assert {name.split()[0] for name in SNIPPETS} >= {"README", "capturing", "regions", "verdicts"}


@pytest.mark.parametrize("name", SNIPPETS)
def test_the_code_runs(name: str, tmp_path: Path) -> None:
    run(SNIPPETS[name], tmp_path)


def run(snippet: str, place: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", snippet],
        cwd=place,
        **dict(capture_output=True, text=True, timeout=120, check=False),
    )
    assert (done.returncode, done.stderr) == (0, "")
    if "verify()" in snippet:
        assert "bitwise" in done.stdout


def test_code_that_does_not_run_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run("import backprint\nbackprint.absent()", tmp_path)


LINKS = sorted(
    {
        (page.relative_to(ROOT).as_posix(), link)
        for page in PAGES
        for link in re.findall(r"\]\((?!https?://)([^)]+)\)", page.read_text(encoding="utf-8"))
    }
)


@pytest.mark.parametrize(("page", "link"), LINKS)
def test_links_lead_somewhere(page: str, link: str) -> None:
    place, _, part = link.partition("#")
    target = (ROOT / page).parent / place if place else ROOT / page
    assert target.exists()
    if part:
        headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
        assert part in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
