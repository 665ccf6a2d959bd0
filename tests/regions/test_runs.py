"""Several runs of a script in one dump are told apart; pictures are drawn when they are asked for, within limits."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import backprint as bp
from face import compare_passes, main, read_passes, runs_of

RUNS = ("20260101-000000-aaaaaa", "20260102-000000-bbbbbb")


@pytest.fixture
def run_as(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Takes this process for another run of the script."""

    def begin(name: str) -> None:
        monkeypatch.setattr("backprint.tools.regions.build.RUN", name)
        monkeypatch.setattr("backprint.tools.regions.context._counts", {})

    return begin


def train(place: Path, scale: float = 2.0, count: int = 2, **options: Any) -> None:
    for index in range(count):
        x = torch.linspace(1, 2 + index, 5).requires_grad_()
        with bp.region(place, **{"gradients": "values", **options}):
            y = (x * scale).sin()
        y.sum().backward()


def said(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(main, [*map(str, arguments)])
    return done.exit_code, done.output


@pytest.mark.slow
def test_a_script_that_runs_twice_is_compared_by_its_latest_run(tmp_path: Path) -> None:
    script = f"""
        import sys, torch, backprint as bp
        x = torch.ones(3, requires_grad=True)
        with bp.region({str(tmp_path / "dump")!r}, gradients="values"):
            y = x * float(sys.argv[1])
        y.sum().backward()
    """
    for scale in ("3", "2"):
        subprocess.run([sys.executable, "-c", textwrap.dedent(script), scale], check=True, timeout=120)
    old, new = runs_of(tmp_path / "dump")
    assert old != new
    assert [each.run for each in read_passes(tmp_path / "dump")] == [new]
    assert float(read_passes(tmp_path / "dump")[0].edges[-1].gradient[0]) == 2.0
    assert float(read_passes(tmp_path / "dump", old)[0].edges[-1].gradient[0]) == 3.0


def test_compare_takes_the_latest_run_of_each_and_says_so(run_as: Any, tmp_path: Path) -> None:
    for name, scale in zip(RUNS, (3.0, 2.0), strict=True):
        run_as(name)
        train(tmp_path / "a", scale)
    train(tmp_path / "b")
    code, text = said("diff", tmp_path / "a", tmp_path / "b")
    assert code == 0, text
    assert f"{tmp_path / 'a'}: run {RUNS[1]} (the latest), with 2 passes; left out: {RUNS[0]}\n" in text
    assert text.endswith("14 bitwise\n")
    done = CliRunner().invoke(main, ["diff", *[str(tmp_path / "a")] * 2, "--run-a", "20260101", "--json"])
    code, found = done.exit_code, json.loads(done.stdout)
    assert f"run {RUNS[0]}, with 2 passes; left out: {RUNS[1]}" in done.stderr
    assert (code, found["good"], found["runs"]) == (1, False, [[RUNS[0]], [RUNS[1]]])
    assert {row["verdict"] for row in found["rows"]} == {"bitwise", "wrong"}
    code, text = said("show", tmp_path / "a", "--run", "all")
    assert (code, text.count("region: pass")) == (0, 4)
    assert said("show", tmp_path / "a")[1].count("region: pass") == 2


@pytest.mark.parametrize(
    ("run", "text"), [("2027", "no run of the name '2027'"), ("2026", "2 runs of the name '2026'")]
)
def test_a_run_that_is_not_there_is_named(run: str, text: str, run_as: Any, tmp_path: Path) -> None:
    for name in RUNS:
        run_as(name)
        train(tmp_path)
    with pytest.raises(bp.errors.RegionError, match=f"{text}; it has {RUNS[0]}, {RUNS[1]}"):
        read_passes(tmp_path, run)


def test_bounded_dumps_are_compared_step_by_step(tmp_path: Path) -> None:
    train(tmp_path / "a", count=6, every=2)
    train(tmp_path / "b", count=6, every=4)
    train(tmp_path / "c", count=6)
    found = compare_passes(read_passes(tmp_path / "a"), read_passes(tmp_path / "b"))
    assert {row.verdict for row in found.rows} == {"bitwise"}
    assert {row.index for row in found.rows} == {0, 4}
    assert not found.good
    code, text = said("diff", tmp_path / "a", tmp_path / "b")
    assert (code, "only the first has pass 2 of region\n" in text) == (1, True)
    four = [each for each in read_passes(tmp_path / "c") if each.index == 4]
    one = [each for each in read_passes(tmp_path / "c") if each.index == 1]
    assert compare_passes(four, four).good
    assert compare_passes(four, one).notes == ("pass 4 of the first is held against pass 1 of the second",)


def test_passes_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    train(tmp_path, count=3)
    (tmp_path / "pass_0002").rename(tmp_path / "pass_10000")
    (tmp_path / "pass_0001").rename(tmp_path / "pass_9999")
    assert [each.index for each in read_passes(tmp_path)] == [0, 1, 2]


# ------------------------------------------------------------------ pictures


def test_no_picture_is_drawn_in_the_step(tmp_path: Path) -> None:
    train(tmp_path / "dump")
    assert (tmp_path / "dump/pass_0000/graph.json").is_file()
    assert not [*tmp_path.rglob("*.svg"), *tmp_path.rglob("*.html"), *tmp_path.rglob("*.dot")]


def test_nan_is_red_and_modules_are_frames(tmp_path: Path) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x).relu()

    for name, factor in (("good", 1.0), ("bad", float("nan"))):
        net = Net()
        with bp.region(tmp_path / name, gradients="stats"):
            y = net(torch.ones(3, 2)) * factor
        y.sum().backward()
        for verb, ending in (("draw", "svg"), ("view", "html")):
            assert said(verb, tmp_path / name, "-o", tmp_path / f"{name}.{ending}")[0] == 0
    good, bad = ((tmp_path / f"{name}.svg").read_text() for name in ("good", "bad"))
    assert ElementTree.fromstring(good).tag == "{http://www.w3.org/2000/svg}svg"
    assert 'class="flow-backward flow-bad"' in bad
    assert 'class="flow-backward flow-bad"' not in good
    assert "6 NaN" in bad
    assert "norm" in good
    assert ">inner</text>" in good
    page = (tmp_path / "bad.html").read_text()
    assert json.loads(re.findall(r'id="data">(.*?)</script>', page)[0])["pairs"][0]["stats"]["rows"]
