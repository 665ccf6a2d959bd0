"""The script that runs the suite on other builds of torch: what it keeps, where it goes on, and its table."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("compat", ROOT / "scripts" / "compat.py")
assert SPEC is not None
assert SPEC.loader is not None
compat = importlib.util.module_from_spec(SPEC)
sys.modules["compat"] = compat
SPEC.loader.exec_module(compat)

EMPTY = f"before\n{compat.BEGIN}\n{compat.HEAD}{compat.END}\nafter\n"


def part(passed: int, skipped: int = 0, broken: int = 0) -> dict[str, int]:
    return {"passed": passed, "skipped": skipped, "xfailed": 0, "broken": broken, "seconds": 1}


def row(**others: Any) -> dict[str, Any]:
    parts = {"tests": part(1000), "tests/graph": part(234, 2)}
    whole = dict(torch="2.14.1+cu130", parts=parts, failing=[], mended=0, again=False, state="now", commit="abc1234")
    return {**whole, "demo": "bitwise", "corpus": "10 bitwise", **others}


def lines(text: str) -> list[str]:
    return text.partition(compat.HEAD)[2].partition(compat.END)[0].splitlines()


# ------------------------------------------------------------------ the table


def test_a_line_of_the_table() -> None:
    text = compat.with_table(EMPTY, {"2.14.1": row()})
    assert lines(text) == ["| 2.14.1 | 2.14.1+cu130 | 1,234 | 0 | 2 | bitwise | 10 bitwise | abc1234 |"]
    assert (text.splitlines()[0], text.splitlines()[-1]) == ("before", "after")


def test_what_failed_what_was_mended_and_what_was_not_run_is_said() -> None:
    text = compat.with_table(EMPTY, {"2.14.1": row(failing=["tests/a.py::b"], mended=3)})
    assert lines(text)[0].split(" | ")[2:4] == ["1,234", "1 (3 at first)"]
    text = compat.with_table(EMPTY, {"2.14.1": row(parts={"tests/graph": part(7, broken=3)})})
    assert lines(text)[0].split(" | ")[3] == "0; not run to the end: tests/graph"


def test_lines_of_builds_that_were_not_run_stay_and_builds_have_their_order() -> None:
    text = compat.with_table(EMPTY, {"2.14.1": row()})
    text = compat.with_table(text, {"2.13.0, CPU": row(torch="2.13.0+cpu"), "2.11.0": row(torch="2.11.0")})
    text = compat.with_table(text, {"2.14.1": row(commit="new")})
    assert [line.split(" | ")[0] for line in lines(text)] == ["| 2.11.0", "| 2.13.0, CPU", "| 2.14.1"]
    assert "abc1234" in lines(text)[0]
    assert "new" in lines(text)[2]


def test_a_build_of_which_little_is_known_has_no_line_and_a_document_without_a_place_is_named() -> None:
    assert compat.with_table(EMPTY, {"2.14.1": {"parts": {}, "failing": [], "mended": 0}}) == EMPTY
    with pytest.raises(SystemExit, match="no place for the table"):
        compat.with_table("nothing", {})


def test_the_page_of_versions_has_a_place_for_the_table() -> None:
    text = compat.PAGE.read_text(encoding="utf-8")
    assert compat.with_table(text, {}) == text


@pytest.mark.parametrize(
    ("said", "passed", "skipped"),
    [
        ("1 failed, 4829 passed, 1 skipped, 1 xfailed in 703.06s (0:11:43)", 4829, 1),
        ("2 passed in 0.5s", 2, 0),
        ("FAILED tests/a.py::b - AssertionError: 3 passed", 0, 0),
        ("no tests ran in 0.01s", 0, 0),
    ],
)
def test_the_counts_of_a_log(said: str, passed: int, skipped: int) -> None:
    found = compat.counts_of(f"...\n12 failed, 5 passed in 1.0s\n{said}\n" if passed else said)
    assert (found["passed"], found["skipped"]) == (passed, skipped)


def test_the_parts_are_the_whole_suite() -> None:
    paths = [ROOT / each for part in compat.whole().values() for each in part]
    found = {test for path in paths for test in ([path] if path.is_file() else path.rglob("test_*.py"))}
    assert found == set((ROOT / "tests").rglob("test_*.py"))


# ------------------------------------------------------------------ a run


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What is run, with nothing really run: a page, an environment and tests of the test's own."""
    seen: list[str] = []

    def tested(python: Any, paths: list[str], log: Path, cache: Path, jobs: int) -> Any:
        seen.append(paths[0])
        log.write_text("what pytest said")
        return part(10)

    (tmp_path / "versions.md").write_text(EMPTY)
    monkeypatch.setattr(compat, "PAGE", tmp_path / "versions.md")
    monkeypatch.setattr(compat, "whole", lambda: {"tests/a": ["tests/a"], "tests/b": ["tests/b"]})
    monkeypatch.setattr(compat, "installed", lambda *_: (Path("python"), False))
    monkeypatch.setattr(compat, "said", lambda *_, **__: "2.14.1")
    monkeypatch.setattr(compat, "state", lambda: "now")
    monkeypatch.setattr(compat, "tested", tested)
    monkeypatch.setattr(compat, "demo", lambda python, row, folder: row.update(demo="bitwise"))
    monkeypatch.setattr(compat, "corpus", lambda python, row, folder, jobs: row.update(corpus="10 bitwise"))
    return seen


def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *words: str) -> Any:
    monkeypatch.setattr(sys, "argv", ["compat.py", *words, "--folder", str(tmp_path / "compat")])
    with pytest.raises(SystemExit) as ended:
        compat.main()
    return ended.value.code


def failed(names: list[str]) -> Any:
    return lambda cache: names


def test_a_run_that_was_ended_goes_on(ran: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tested = compat.tested

    def ended(python: Any, paths: list[str], *others: Any) -> Any:
        if paths == ["tests/b"]:
            raise KeyboardInterrupt
        return tested(python, paths, *others)

    monkeypatch.setattr(compat, "tested", ended)
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, tmp_path, "2.14.1")
    monkeypatch.setattr(compat, "tested", tested)
    assert run(monkeypatch, tmp_path, "2.14.1") == 0
    assert ran == ["tests/a", "tests/b"]
    assert run(monkeypatch, tmp_path, "2.14.1") == 0
    assert len(ran) == 2, "nothing is left to run"
    assert lines((tmp_path / "versions.md").read_text())[0].split(" | ")[2] == "20"
    monkeypatch.setattr(compat, "state", lambda: "later")
    assert run(monkeypatch, tmp_path, "2.14.1") == 0
    assert len(ran) == 4, "the code is another"


def test_what_failed_is_run_again_and_the_table_says_so(
    ran: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compat, "failing", failed(["tests/a.py::b", "tests/a.py::c"]))
    assert run(monkeypatch, tmp_path, "2.14.1") == 1
    assert lines((tmp_path / "versions.md").read_text())[0].split(" | ")[2:4] == ["20", "2"]
    monkeypatch.setattr(compat, "state", lambda: "mended")
    monkeypatch.setattr(compat, "failing", failed(["tests/a.py::c"]))
    assert run(monkeypatch, tmp_path, "2.14.1", "--failed") == 1
    monkeypatch.setattr(compat, "failing", failed([]))
    assert run(monkeypatch, tmp_path, "2.14.1", "--failed") == 0
    assert ran == ["tests/a", "tests/b", "tests/a.py::b", "tests/a.py::c"]
    assert lines((tmp_path / "versions.md").read_text())[0].split(" | ")[2:4] == ["40", "0 (2 at first)"]


def test_an_environment_of_yours_with_another_torch_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = ("2.11.0", "--environment", f"2.11.0={sys.prefix}")
    monkeypatch.setattr(compat, "said", lambda *_: "2.13.0+cpu None")
    monkeypatch.setattr(compat, "tested", lambda *_: pytest.fail("it went on"))
    assert "has not torch 2.11.0 with CUDA libraries: 2.13.0+cpu None" in str(run(monkeypatch, tmp_path, *words))


# ------------------------------------------------------------------ the smoke of CI


@pytest.mark.slow
def test_a_smoke_without_a_network_is_left_out_and_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr(compat, "SPACE", 0)
    assert run(monkeypatch, tmp_path, "--smoke") == 0
    said = capsys.readouterr().out
    assert f"smoke of torch {compat.NEWEST} LEFT OUT, nothing was tested: pip install torch==" in said
    assert "ERROR: Could not find a version that satisfies the requirement torch==" in said


def test_a_smoke_that_takes_long_to_install_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compat.venv, "create", lambda *_, **__: None)
    with pytest.raises(compat.NotInstalled, match=r"pip install 60 was not through after 2 s"):
        compat.pipped(["sleep", "60"], {"PATH": "/bin:/usr/bin"}, 0.1, 2)
    monkeypatch.setattr(compat, "SPACE", 1 << 62)
    assert run(monkeypatch, tmp_path, "--smoke") == 0
    assert "GB free, and" in capsys.readouterr().out


@pytest.mark.parametrize(("names", "code"), [([], 0), (["tests/a.py::b"], 1)])
def test_a_smoke_fails_with_its_tests(
    names: list[str],
    code: int,
    ran: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(compat, "failing", failed(names))
    assert run(monkeypatch, tmp_path, "--smoke") == code
    assert f"10 passed, {len(names)} failed" in capsys.readouterr().out
    assert not (tmp_path / "compat" / "compat.json").exists()
    assert (tmp_path / "versions.md").read_text() == EMPTY


def test_what_is_kept_is_whole(tmp_path: Path) -> None:
    compat.keep_rows(tmp_path, {"2.14.1": row()})
    assert compat.read_rows(tmp_path) == {"2.14.1": row()} == json.loads((tmp_path / "compat.json").read_text())
