"""A page is one file that asks for nothing, runs nothing of a sample, and is the build of its sources' size."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

from face import page_html

PAGE = Path(__file__).parents[2] / "page" / "src"
NAME = "</script><script>alert(1)</script>\u2028\u202e\"'&"
DATA = {"format": 1, "title": NAME, "facts": [[NAME, NAME]], "notes": [], "pairs": []}


def test_the_data_come_back_and_cannot_end_their_block() -> None:
    text = "".join(page_html(DATA))
    [block] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert "<" not in block
    assert json.loads(block) == DATA


def test_the_title_is_escaped() -> None:
    [title] = re.findall(r"<title>(.*?)</title>", "".join(page_html(DATA)), re.DOTALL)
    assert "<" not in title
    assert "\u202e" not in title


def test_the_policy_allows_the_own_script_and_style_alone() -> None:
    text = "".join(page_html(DATA))
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        body = re.findall(rf"^<{tag}>(.*?)</{tag}>\n", text, re.DOTALL | re.MULTILINE)[-1 if tag == "script" else 0]
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_numbers_that_are_not_json_are_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        "".join(page_html({**DATA, "facts": [["x", float("nan")]]}))


def test_the_shipped_files_are_small_name_no_host_and_carry_the_licences() -> None:
    script, style = (
        files("backprint.tools.draw").joinpath(name).read_text("utf-8") for name in ("page.js", "page.css")
    )
    assert len(script.encode()) <= 200_000
    for name in ("preact", "d3-zoom", "d3-selection"):
        assert f"{name} " in script[:20_000]
    assert set(re.findall(r"https?://([\w.-]+)", script + style)) <= {"www.w3.org"}
    assert not re.search(r"</script|\beval\(|new Function|importScripts|XMLHttpRequest|\bfetch\(", script)


def test_the_page_writes_no_html_from_texts() -> None:
    sources = [path for path in PAGE.iterdir() if path.suffix in {".ts", ".tsx"}]
    assert len(sources) > 10
    for path in sources:
        assert not re.search(r"(inner|outer|Inner|Adjacent)HTML|document\.write", path.read_text("utf-8")), path


def test_the_docs_have_every_filter_and_key_of_the_page() -> None:
    docs = (PAGE.parents[1] / "docs" / "drawing.md").read_text("utf-8")
    for name, table, least in (("search.ts", "FILTERS", 9), ("keys.ts", "KEYS", 10)):
        source = (PAGE / name).read_text("utf-8")
        [block] = re.findall(rf"^export const {table}\b.*? = \[$(.*?)^\];$", source, re.DOTALL | re.MULTILINE)
        rows = re.findall(r'^  \["([^"]+)"', block, re.MULTILINE)
        assert len(rows) >= least
        for row in rows:
            for word in row.split() if table == "KEYS" and row != "wheel" else [row]:
                assert f"`{word}" in docs or word in ("–", "wheel"), (row, word)
