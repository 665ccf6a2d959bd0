"""The check of the built site: what loads from another host, and a link that leads nowhere, is found."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("site_check", Path(__file__).parents[1] / "scripts" / "site.py")
assert SPEC is not None
assert SPEC.loader is not None
site = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = site
SPEC.loader.exec_module(site)

GOOD = '<h1 id="top"></h1><a href="other.html#there"></a><a href="#top"></a><a href="https://example.com/x"></a>'


def made(folder: Path, index: str, sheet: str = "body { color: red }") -> Path:
    (folder / "index.html").write_text(index, encoding="utf-8")
    (folder / "other.html").write_text('<p id="there"></p><img src="a.png">', encoding="utf-8")
    (folder / "a.css").write_text(sheet, encoding="utf-8")
    return folder


def test_a_site_that_stands_by_itself_is_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert site.main(made(tmp_path, GOOD)) == 0
    assert "2 pages" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("index", "sheet", "said"),
    [
        ('<script src="https://cdn.example.com/a.js">', "", "index.html loads https://cdn.example.com/a.js"),
        ('<link rel="stylesheet" href="//fonts.example.com/f">', "", "index.html loads //fonts.example.com/f"),
        ("", "@import 'https://fonts.example.com/f'", "a.css loads https://fonts.example.com/f"),
        ("", "p { background: url(https://example.com/p.png) }", "a.css loads https://example.com/p.png"),
        ('<a href="absent.html">', "", "index.html links to absent.html, which is not there"),
        ('<a href="other.html#no">', "", "index.html links to other.html#no, and other.html has no such anchor"),
        ('<a href="#absent">', "", "index.html links to #absent, and index.html has no such anchor"),
    ],
)
def test_a_remote_file_or_a_dead_link_is_reported(
    index: str, sheet: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.main(made(tmp_path, index, sheet)) == 1
    assert capsys.readouterr().err == f"{said}\n"


def test_a_folder_that_is_no_site_is_refused(tmp_path: Path) -> None:
    assert site.main(tmp_path) == 2
