"""Samples of linked Pairs: there and back, proved from disk, run alone pair by pair; lies are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from subjects.broken import BROKEN
from subjects.forked import run_python

import backprint as bp
from face import generator_digest as digest
from face import main


def saved(name: str, place: Path, **options: Any) -> tuple[bp.Capture, Path]:
    target, args = BROKEN[name]()
    capture = bp.capture(target, args=args, engine="dynamo", name=name)
    return capture, bp.save(capture, place / name, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_a_sample_gives_the_capture_back_and_proves_it_again(name: str, tmp_path: Path) -> None:
    capture, path = saved(name, tmp_path)
    loaded = bp.load(path)
    assert loaded == capture
    assert (loaded.links, loaded.breaks, loaded.why) == (capture.links, capture.breaks, capture.why)
    *parts, whole = loaded.verify()
    assert [part.name for part in parts] == [f"{name} {pair.name}" for pair in capture.pairs]
    assert {verdict.verdict for verdict in (*parts, whole)} <= {"bitwise", "undifferentiable"}
    assert loaded.verdict["verdict"] == whole.verdict
    again = bp.save(loaded, tmp_path / "again")
    assert {v.verdict for v in bp.load(again).verify()} <= {"bitwise", "undifferentiable"}


@pytest.mark.parametrize("data", ["exact", "none"])
def test_data(data: str, tmp_path: Path) -> None:
    _, path = saved("a_buffer_changed_in_one_and_read_in_another", tmp_path, data=data)
    verdicts = {verdict.verdict for verdict in bp.load(path).verify()}
    assert verdicts == ({"bitwise"} if data == "exact" else {"unproven"})


def alone(path: Path) -> dict[str, str]:
    """What a model.py prints, run by itself: `role name` -> digest."""
    done = run_python([path], flags=["-I"])
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()]
    return {f"{row[0]} {row[1]}": row[-1] for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["an_item"])
def test_every_pair_runs_alone_and_gives_what_it_gives_in_the_whole(name: str, tmp_path: Path) -> None:
    _, path = saved(name, tmp_path)
    loaded = bp.load(path)
    from face import checked_run, draw_from_recipes

    got = checked_run(loaded, draw_from_recipes(loaded, "recipe", None)).replayed
    for pair, played in zip(loaded.pairs, got.parts, strict=True):
        found = alone(path / pair.name / "forward" / "model.py")
        given = {"output": played.outputs, "mutation": played.mutations, "saved": played.saved}
        wanted = {f"{role} {key}": digest(value) for role, values in given.items() for key, value in values.items()}
        assert found == wanted
        assert {key.split()[0] for key in alone(path / pair.name / "backward" / "model.py")} == {"gradient"}


@pytest.mark.slow
def test_show_capture_and_verify_tell_of_every_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, path = saved("an_item", tmp_path)
    shown = CliRunner().invoke(main, ["show", "--summary", str(path)])
    assert shown.exit_code == 0, shown.output
    for text in ("pair_0", "pair_1", "item", "return y * n.max().item()", "pair_0.y from pair_0, output pair_0.y"):
        assert text in shown.output, shown.output
    facts = json.loads(CliRunner().invoke(main, ["show", "--json", str(path)]).stdout)
    assert [row["name"] for row in facts["pairs"]] == ["pair_0", "pair_1"]
    assert len(facts["breaks"]) == 1
    assert facts["links"][0] == [0, "output pair_0.y", 1, "pair_0.y"]
    proved = CliRunner().invoke(main, ["verify", "--json", str(path)])
    assert proved.exit_code == 0
    rows = [json.loads(line) for line in proved.stdout.splitlines()]
    assert [row["name"] for row in rows] == ["an_item pair_0", "an_item pair_1", "an_item"]
    program = (
        "import torch\ndef f(x):\n y = x.sin()\n print('cut')\n return y.cos()\ndef make():\n return f, torch.ones(2)\n"
    )
    (tmp_path / "cutting.py").write_text(program, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    made = CliRunner().invoke(main, ["capture", "cutting.py:make", "-o", "out", "--engine", "dynamo"])
    assert made.exit_code == 0, made.output
    for text in ("f pair_0, 1 steps forward", "f pair_1", "break: ", "cutting.py:4 in f", "verdict: bitwise"):
        assert text in made.output, made.output


# ------------------------------------------------------------------ what lies about links


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    return saved("a_value_that_two_later_pairs_use", tmp_path_factory.mktemp("linked"))[1]


Links = list[list[Any]]


def other(index: int, place: int, value: Any) -> Callable[[Links], object]:
    """The links with one field changed."""
    return lambda links: links[index].__setitem__(place, value)


LIES: dict[str, tuple[Callable[[Links], object], str]] = {
    "a source that is not there": (other(0, 0, 7), "there is no pair 7"),
    "a pair before": (other(0, 0, -1), "links[0][0]: expected a whole number"),
    "a link backwards": (other(0, 2, 0), "a link goes to a later pair"),
    "a port that is not there": (other(0, 1, "output gone"), "names 'gone', which is not such a port"),
    "a gradient that is not there": (other(0, 1, "gradient gone"), "the gradient of 'gone', which the backward"),
    "an input that is not there": (other(0, 3, "gone"), "links (input) names 'gone'"),
    "a port of no role": (other(0, 1, "nonsense"), "is not a key of a port"),
    "a saved value": (other(0, 1, "saved x"), "a link starts at an output, a mutation or a gradient"),
    "too short": (lambda links: links[0].pop(), "links[0]: expected a list of source, port, target and name"),
    "too long": (lambda links: links[0].append(1), "links[0]: 5 items"),
    "fed twice": (lambda links: links.append([1, "output pair_1.a", 2, "pair_0.y"]), "is fed from two places"),
    "handed to a pair": (lambda links: links.append([None, "input x", 1, "x"]), "only a result is passed through"),
    "a result that is not linked": (lambda links: links.pop(), "signature.differentiable names 'output'"),
    "none": (lambda links: links.clear(), "has 3 pairs and no links"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_links_is_refused_by_name(lie: str, good: Path, tmp_path: Path) -> None:
    change, why = LIES[lie]
    path = tmp_path / "lie"
    shutil.copytree(good, path)
    content = json.loads((path / "capture.json").read_text(encoding="utf-8"))
    change(content["links"])
    (path / "capture.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(bp.errors.SampleError) as caught:
        bp.load(path).verify()
    assert why in str(caught.value)
    assert str(path) in str(caught.value)
    row = json.loads(CliRunner().invoke(main, ["verify", "--json", str(path)]).stdout)
    assert row["verdict"] == "failed"


def test_swapped_links_are_wrong_from_disk_too(good: Path, tmp_path: Path) -> None:
    path = tmp_path / "swapped"
    shutil.copytree(good, path)
    content = json.loads((path / "capture.json").read_text(encoding="utf-8"))
    into = [link for link in content["links"] if link[2] == 2]
    into[0][:2], into[1][:2] = into[1][:2], into[0][:2]
    (path / "capture.json").write_text(json.dumps(content), encoding="utf-8")
    assert bp.load(path).verify()[-1].verdict == "wrong"
