"""Files that contradiction: every annotation and every role of saved samples, forged one by one, is found out."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import backprint as bp
from face import (
    DTYPES,
    GOOD,
    MARKER,
    BackprintError,
    TensorSpec,
    claims_of,
    contradictions,
    ending,
    parse,
    read_spec,
    show_spec,
)


class Normed(nn.Module):
    """Parameters, buffers that change, a constant and an integer input."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.fc, self.norm = nn.Embedding(7, 4), nn.Linear(4, 3), nn.BatchNorm1d(3)

    def forward(self, ids: Tensor, x: Tensor) -> dict[str, Tensor]:
        hidden = torch.tanh(self.norm(self.fc(self.embed(ids) + x.t())))
        return {"logits": hidden * torch.tensor([0.5, 1.0, 2.0]), "loss": hidden.square().mean()}


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) / 3, -1) @ v


def convolved() -> tuple[Any, ...]:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.GELU(), nn.Conv2d(3, 2, 1)).to(memory_format=torch.channels_last)
    return model, torch.randn(2, 2, 5, 5).to(memory_format=torch.channels_last)


SAMPLES: dict[str, Callable[[], tuple[Any, ...]]] = {
    "normed": lambda: (Normed(), torch.tensor([0, 3, 6, 3, 1]), torch.randn(4, 5)),
    "attention": lambda: (attention, *(torch.randn(2, 3, 4, requires_grad=True) for _ in range(3))),
    "convolved": convolved,
}

ANNOTATION = re.compile(r'"(?P<spec>[a-z]\w*\[[^"]*?)(?P<port> (?P<role>[a-z]+) [^ "]+)?"(?=[, ])')
ROLES = {
    "in": ("parameter", "buffer", "input", "constant", "saved", "tangent"),
    "out": ("output", "mutation", "saved", "gradient"),
}


@pytest.fixture(scope="module", params=SAMPLES)
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    target, *args = SAMPLES[request.param]()
    path = bp.capture(target, *args).save(tmp_path_factory.mktemp("contradictions") / request.param, power="none")
    assert judged(path) == "bitwise"
    return path


def judged(path: Path) -> str:
    """The verdict of a sample on its recipe's inputs, in a process of its own, as a forged graph may crash a kernel;
    `refused` where it is not even read."""
    try:
        return bp.verify(path, ("recipe",))[-1].verdict
    except BackprintError:
        return "refused"


def texts(path: Path) -> Iterator[tuple[Path, str, list[re.Match[str]]]]:
    """Each graph's file, its text, and the annotations in it."""
    for file in sorted(path.glob("pair_*/*/model.py")):
        text = file.read_text()
        yield file, text, list(ANNOTATION.finditer(text.partition(MARKER)[0]))


def false_specs(said: str) -> Iterator[tuple[str, str]]:
    """What is not so of a value of this annotation: another dtype, sizes, strides, device, layout."""
    spec = read_spec(said)
    assert isinstance(spec, TensorSpec)
    other = next(each for each in DTYPES if each not in (spec.dtype, "complex32"))
    yield "dtype", show_spec(replace(spec, dtype=other))
    yield "shape", show_spec(replace(spec, shape=(2, *spec.shape[1:]) if spec.shape[:1] == (1,) else grown(spec.shape)))
    if len(set(spec.shape)) > 1:
        yield "turned", show_spec(replace(spec, shape=tuple(reversed(spec.shape)), stride=None))
    if any(isinstance(size, int) and size > 1 for size in spec.shape):
        usual = torch.empty(spec.shape, device="meta").stride() if spec.stride is None else spec.stride
        wrong = tuple(step + 7 if size > 1 else step for size, step in zip(spec.shape, usual, strict=True))
        yield "stride", show_spec(replace(spec, stride=wrong))
    yield "device", show_spec(replace(spec, device="cuda:0"))
    yield "layout", show_spec(replace(spec, stride=None, layout="sparse_coo"))


def grown(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    return (shape[0] + 1, *shape[1:]) if shape else (1,)


def spoken(path: Path, folder: Path, alone: bool, spans: Iterator[tuple[str, Path, str]]) -> dict[str, str]:
    """The verdicts of the sample with each of these files in the place of its own; else capture.json agrees with it."""
    copy = folder / "forged"
    shutil.copytree(path, copy)
    kept = (copy / "capture.json").read_text()
    found = {}
    for what, file, text in spans:
        place = copy / file.relative_to(path)
        before = place.read_text()
        place.write_text(with_own_end(text))
        if not alone:
            (copy / "capture.json").write_text(agreeing(kept, place, text))
        found[what] = judged(copy)
        place.write_text(before)
        (copy / "capture.json").write_text(kept)
    assert judged(copy) == "bitwise"
    return found


def with_own_end(text: str) -> str:
    """The text with the end that its forged graph has: the end alone would give a false annotation away."""
    graph, _, _ = text.partition(MARKER)
    with contextlib.suppress(BackprintError):  # then the text is refused anyway
        return graph + ending(parse(graph))
    return text


def agreeing(kept: str, place: Path, text: str) -> str:
    """A capture.json whose claims are those of the forged text."""
    content = json.loads(kept)
    with contextlib.suppress(BackprintError):  # then the text is refused anyway
        content["pairs"][0][place.parent.name] |= claims_of(parse(text.partition(MARKER)[0]))
    return json.dumps(content)


def false_annotations(path: Path) -> Iterator[tuple[str, Path, str]]:
    for file, text, said in texts(path):
        for found in said:
            for what, spec in false_specs(found["spec"]):
                forged = text[: found.start("spec")] + spec + text[found.end("spec") :]
                yield f"{file.parent.name} {found[0]} {what}", file, forged


def false_roles(path: Path) -> Iterator[tuple[str, Path, str]]:
    for file, text, said in texts(path):
        arrow = text.index(") -> (")
        for found in said:
            for role in ROLES["in" if found.start() < arrow else "out"] if found["role"] else ():
                if role != found["role"]:
                    forged = text[: found.start("role")] + role + text[found.end("role") :]
                    yield f"{file.parent.name} {found[0]} as {role}", file, forged


EVERY = pytest.mark.parametrize("every", [4, 1], ids=["a fourth", "all"])
"""CI tries a fourth of what can be forged, the night all of it."""


@EVERY
@pytest.mark.slow
def test_every_false_annotation_is_found_out(sample: Path, tmp_path: Path, every: int) -> None:
    verdicts = spoken(sample, tmp_path, True, islice(false_annotations(sample), 0, None, every))
    assert len(verdicts) > 60 / every
    assert {what: verdict for what, verdict in verdicts.items() if verdict in GOOD} == {}


@EVERY
@pytest.mark.slow
def test_every_false_annotation_is_found_out_by_what_runs(sample: Path, tmp_path: Path, every: int) -> None:
    """Whoever forges the digest of annotations in capture.json too is found out by the values."""
    verdicts = spoken(sample, tmp_path, False, islice(false_annotations(sample), 0, None, every))
    assert {what: verdict for what, verdict in verdicts.items() if verdict in GOOD} == {}


@EVERY
@pytest.mark.slow
def test_every_false_role_is_found_out(sample: Path, tmp_path: Path, every: int) -> None:
    verdicts = spoken(sample, tmp_path, True, islice(false_roles(sample), 0, None, every))
    assert len(verdicts) > 30 / every
    assert {what: verdict for what, verdict in verdicts.items() if verdict in GOOD} == {}


@EVERY
@pytest.mark.slow
def test_roles_that_are_forged_in_both_places_are_found_out_where_something_else_speaks_of_them(
    sample: Path, tmp_path: Path, every: int
) -> None:
    """Nothing else in a sample tells a parameter from a buffer or a constant: that is what nobody can see."""
    alike = re.compile(r"(parameter|buffer|constant) .* as (parameter|buffer|constant)$")
    verdicts = spoken(sample, tmp_path, False, islice(false_roles(sample), 0, None, every))
    unseen = {what for what, verdict in verdicts.items() if verdict in GOOD}
    assert {what for what in unseen if not alike.search(what)} == set()


@pytest.mark.parametrize("field", ["roles", "annotations"])
def test_a_forged_capture_json_is_found_out(sample: Path, tmp_path: Path, field: str) -> None:
    copy = tmp_path / "forged"
    shutil.copytree(sample, copy)
    content = json.loads((copy / "capture.json").read_text())
    row = content["pairs"][0]["forward"]
    if field == "roles":
        role, names = next(iter(row["roles"]["in"].items()))
        row["roles"]["in"] = {"buffer" if role != "buffer" else "parameter": names} | row["roles"]["in"]
        row["roles"]["in"].pop(role)
    else:
        row["annotations"] = row["annotations"][::-1]
    (copy / "capture.json").write_text(json.dumps(content))
    assert judged(copy) == "wrong"


def test_a_lie_is_named_with_both_sides(sample: Path, tmp_path: Path) -> None:
    capture = bp.load(sample)
    forward = capture.pairs[0].forward
    step = next(each for each in forward.steps if isinstance(each.spec, TensorSpec) and len(set(each.spec.shape)) > 1)
    turned = replace(step.spec, shape=tuple(reversed(step.spec.shape)), stride=None)
    steps = tuple(replace(each, spec=turned) if each is step else each for each in forward.steps)
    pair = bp.types.Pair("pair_0", replace(forward, steps=steps), capture.pairs[0].backward)
    verdict = bp.verify(replace(capture, pairs=(pair,)), ("recipe",))[-1]
    assert verdict.verdict == "wrong"
    said = next(port.detail for port in verdict.ports if port.name == step.name)
    assert f"annotated {show_spec(turned)}, is {show_spec(step.spec)}" in said


def test_what_a_capture_says_of_itself_is_true(sample: Path) -> None:
    assert list(contradictions(bp.load(sample))) == []


def test_show_says_where_a_sample_contradicts_itself(sample: Path, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from face import main

    copy = tmp_path / "forged"
    shutil.copytree(sample, copy)
    file, text, said = next(texts(copy))
    found = next(each for each in said if each["role"])
    file.write_text(with_own_end(text[: found.start("spec")] + "f64[9, 9]" + text[found.end("spec") :]))
    shown = CliRunner().invoke(main, ["show", str(copy), "--summary"])
    assert "not as it was saved" in shown.output + str(shown.exception)


def test_annotations_that_tracing_gets_wrong_are_put_right_at_save(tmp_path: Path) -> None:
    """torch's own kernel without values says otherwise of a batch norm of bfloat16 than the kernel with values."""
    capture = bp.capture(nn.BatchNorm1d(3).bfloat16(), torch.randn(4, 3, dtype=torch.bfloat16))
    loaded = bp.load(capture.save(tmp_path / "sample"))
    assert loaded.verify()[-1].verdict == "bitwise"
    before, after = (each.pairs[0].forward for each in (capture, loaded))
    assert [old for old, new in zip(before.steps, after.steps, strict=True) if old.spec != new.spec]
    assert [step.target for step in before.steps] == [step.target for step in after.steps]
