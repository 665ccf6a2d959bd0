"""A dict or a list of factories: a sample of each, named by its key; one that fails is named, and the others go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

import backprint as bp
from face import SeveralError, UsageError, main

ZOO = """
import sys

import torch
from torch import nn

print("read", flush=True)


def made(width):
    return nn.Sequential(nn.Linear(3, width), nn.Tanh()), (torch.randn(2, 3),)


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def small():
    return made(4)


MODELS = {"small": small, "a/b c": lambda: made(8), "pair": made(2)}
FAILS = {
    "raises": lambda: {}["absent"],
    "exits": lambda: sys.exit("no data"),
    "small": small,
    "module": nn.Linear(2, 2),
    "wrong": lambda: (Wrong.apply, (torch.randn(2, requires_grad=True),)),
    "number": 3,
    "unknown": "hf:no_such_model",
}
LISTED = [small, lambda: made(8), lambda: made(9)]
CLASHING = {"a b": small, "a_b": small}
EMPTY = {}
"""


@pytest.fixture(autouse=True)
def _zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zoo.py").write_text(ZOO)
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.slow
def test_each_becomes_a_sample_named_by_its_key() -> None:
    torch.manual_seed(0)
    done = run("capture", "zoo.py:MODELS", "-o", "models")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "read",
        "models/small: bitwise, derivative",
        "models/a_b_c: bitwise, derivative",
        "models/pair: bitwise, derivative",
        "3 of 3 captured, in models",
    ]
    assert bp.load("models/a_b_c").name == "a_b_c"
    torch.manual_seed(0)
    assert run("capture", "zoo.py:MODELS[small]", "-o", "alone", "--name", "small").exit_code == 0
    alone, among = bp.load("alone"), bp.load("models/small")
    assert all(alone.inputs()[name].equal(value) for name, value in among.inputs().items()), "as it is alone"
    again = run("capture", "zoo.py:MODELS", "-o", "models")
    assert (again.exit_code, "models/small exists already" in again.stderr) == (2, True)
    assert run("capture", "zoo.py:MODELS", "-o", "models", "--overwrite").exit_code == 0


def test_a_single_sample_does_not_take_the_place_of_a_folder_of_samples() -> None:
    small = bp.capture("zoo.py:MODELS[small]")
    small.save("models/small")
    small.save("one")
    for target in ("one", "zoo.py:small"):
        done = run("capture", target, "-o", "models", "--overwrite")
        assert (done.exit_code, "models exists and is not a sample" in done.stderr) == (2, True), done.output
    assert bp.load("models/small").name == small.name


@pytest.mark.slow
def test_one_that_fails_is_named_and_the_others_go_on() -> None:
    done = run("capture", "zoo.py:FAILS", "-o", "models", "--json")
    assert done.exit_code == 1
    rows = {row["name"]: row for row in map(json.loads, done.stdout.splitlines()[1:])}
    assert list(rows) == ["raises", "exits", "small", "module", "wrong", "number", "unknown"]
    assert rows["raises"]["detail"].startswith("KeyError: 'absent' (at zoo.py:")
    assert rows["exits"]["detail"].startswith("SystemExit: no data (at zoo.py:")
    assert rows["small"]["verdict"] == "bitwise"
    assert (
        "zoo.py:FAILS[module] is the module Linear, not a function: write lambda: (model, args)"
        in rows["module"]["detail"]
    )
    assert rows["wrong"]["derivative"]["word"] == "not the derivative"
    assert rows["number"]["detail"].endswith("is a int, not a function: write lambda: (model, args)")
    assert rows["unknown"]["verdict"] == "failed"
    assert sorted(path.name for path in Path("models").iterdir()) == ["small", "wrong"]


@pytest.mark.slow
def test_what_is_said_of_those_that_fail() -> None:
    done = run("capture", "zoo.py:FAILS", "-o", "models")
    assert "models/raises: failed; KeyError: 'absent' (at zoo.py:" in done.stdout
    assert "models/wrong: bitwise, not the derivative; " in done.stdout
    last = "2 of 7 captured, in models; failed: raises, exits, module, number, unknown; not good: wrong"
    assert done.stdout.splitlines()[-1] == last


@pytest.mark.slow
def test_the_items_of_a_list_have_their_names_or_places() -> None:
    assert run("capture", "zoo.py:LISTED", "-o", "models", "--fake").exit_code == 0
    assert sorted(path.name for path in Path("models").iterdir()) == ["1", "2", "small"]
    assert bp.capture("zoo.py:LISTED[1]", fake=True).forward.outputs[0].spec.shape == (2, 8)  # type: ignore[union-attr]


def test_where_one_is_needed_the_error_says_how_to_name_it() -> None:
    with pytest.raises(SeveralError, match=r"is a dict of 3: name one, zoo\.py:MODELS\[small\]; `backprint capture"):
        bp.capture("zoo.py:MODELS")
    with pytest.raises(UsageError, match=r"zoo\.py:MODELS has no key 'large'; it has small, a/b c, pair"):
        bp.capture("zoo.py:MODELS[large]")
    assert bp.capture("zoo.py:MODELS['a/b c']").forward.outputs[0].spec.shape == (2, 8)  # type: ignore[union-attr]


def test_names_that_would_clash_are_refused_before_anything_is_written() -> None:
    done = run("capture", "zoo.py:CLASHING", "-o", "models")
    assert (done.exit_code, "the key 'a_b' is no name of a folder of its own" in done.stderr) == (2, True)
    assert "leave --name out" in run("capture", "zoo.py:MODELS", "-o", "models", "--name", "x").stderr
    assert "zoo.py:EMPTY is an empty dict" in run("capture", "zoo.py:EMPTY", "-o", "models").stderr
    assert not Path("models").exists()
