"""Calls that cannot be meant so, and what each message says to write instead."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import backprint as bp
from face import DEFAULTS

X = torch.randn(3, 4)
MODEL = nn.Linear(4, 2)
ARRAY = np.ones((3, 4), "f4")


def two(a: Tensor, b: Tensor) -> Tensor:
    return a * b


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2


CAPTURES: dict[str, tuple[Any, str]] = {
    "class": (lambda: bp.capture(nn.Linear, X), r"Linear is a class.*make a module first, bp\.capture\(Linear\(\.\.\."),
    "function class": (lambda: bp.capture(Doubled, X), r"write bp\.capture\(Doubled\.apply, x\)"),
    "result": (
        lambda: bp.capture(MODEL(X)),
        r"not its result \(a tensor.*write bp\.capture\(model, x\)",
    ),
    "results": (lambda: bp.capture((MODEL(X),)), r"not its result \(a tuple\)"),
    "tuple": (lambda: bp.capture(MODEL, (X,)), r"its only argument is a tuple of 1.*bp\.capture\(model, \*inputs\)"),
    "list": (lambda: bp.capture(MODEL, [X]), r"its only argument is a list of 1.*args=inputs"),
    "tuple of several": (lambda: bp.capture(two, (X, X)), r"takes several arguments, and is given one tuple of them"),
    "args": (lambda: bp.capture(MODEL, args=X), r"args= is a tensor: write args=\(x,\)"),
    "missing": (lambda: bp.capture(two, X), r"two\(a.* cannot be called so: missing a required argument: 'b'"),
    "array": (
        lambda: bp.capture(MODEL, ARRAY),
        r"a numpy array of shape \(3, 4\).*torch\.from_numpy\(array\)",
    ),
    "array inside": (
        lambda: bp.capture(lambda x, w: nn.functional.linear(x, w), X, ARRAY),
        r"raised TypeError.*one of its arguments is a numpy array: pass torch\.from_numpy\(array\)",
    ),
    "option": (lambda: bp.capture(MODEL, X, engin="aot"), r"engin= is neither a parameter of Linear.*mean engine=\?"),
    "other option": (lambda: bp.capture(two, X, X, requires_grd=True), r"did you mean requires_grad=\?"),
    "text": (lambda: bp.capture(MODEL, X, requires_grad="weight"), r"write requires_grad=\('weight',\)"),
    "tensor": (lambda: bp.capture(MODEL, X, requires_grad=X), r"requires_grad is a Tensor: write True or False"),
}


@pytest.mark.parametrize("name", CAPTURES)
def test_a_capture_that_cannot_be_meant_so(name: str) -> None:
    call, text = CAPTURES[name]
    with pytest.raises(bp.errors.UsageError, match=text):
        call()


@pytest.mark.parametrize("name", ["two\nlines", "\ud800", "x" * 5000, 7])
def test_a_name_under_which_no_sample_could_be_loaded_is_refused(name: Any) -> None:
    with pytest.raises(bp.errors.UsageError, match="printable text of at most 4096 characters"):
        bp.capture(torch.sin, torch.randn(3), name=name)


def test_a_keyword_that_the_target_takes_is_its_own() -> None:
    def f(x: Tensor, engin: int, **more: Any) -> Tensor:
        return x * engin * more["requires_grd"]

    assert bp.replay(bp.capture(f, X, engin=2, requires_grd=3), X, engin=2, requires_grd=3).outputs.shape == X.shape


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda path: bp.replay(path, X), r"load it first, bp\.replay\(bp\.load\('.*'\), x\)"),
        (lambda path: bp.verify(MODEL), r"takes a Capture, not a Linear: capture it first"),
        (lambda path: bp.save(path, path), r"bp\.save takes a Capture, not a path"),
        (lambda path: bp.save(f"{path}2", bp.load(path)), r"takes the Capture first: write bp\.save\(capture, "),
        (lambda path: bp.load(path).save(X), r"writes to a path, not to a tensor of shape \[3, 4\]"),
        (
            lambda path: bp.load(f"{path}/capture.json"),
            r"a file of a sample: load its folder, bp\.load\('.*e'\)",
        ),
        (lambda path: bp.load(f"{path}/pair_0/forward/model.py"), r"load its folder, bp\.load\('.*sample'\)"),
        (lambda path: bp.load(bp.load(path)), r"this is a Capture already"),
        (lambda path: bp.load(X), r"takes the path of a sample's folder, not a tensor"),
        (
            lambda path: bp.replay(bp.load(path), tangents=X),
            r"tangents is a list .*\(output\).*tangents=\[t",
        ),
        (lambda path: bp.replay(bp.load(path), X, state="recip"), r"state='recip' is neither a mapping .*nor 'recipe'"),
    ],
)
def test_a_verb_that_is_given_something_else(call: Any, text: str, tmp_path: Path) -> None:
    path = bp.capture(MODEL, X).save(tmp_path / "sample", power="none")
    with pytest.raises(bp.errors.UsageError, match=text):
        call(str(path))


def test_the_options_of_a_capture_are_those_of_its_signature() -> None:
    parameters = inspect.signature(bp.capture).parameters.values()
    assert {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY} == DEFAULTS
    explained = re.findall(r"^- `(\w+)`: ", inspect.getdoc(bp.capture) or "", re.MULTILINE)
    assert explained == list(DEFAULTS)
