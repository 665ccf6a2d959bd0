"""At a prompt every noun is one short line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import backprint as bp
from face import Graph, Pair, Port, Ref, Step, TensorSpec, memory_line


@pytest.fixture(scope="module")
def capture() -> bp.Capture:
    layers = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(12)]
    return bp.capture(nn.Sequential(*layers), torch.randn(2, 8), name="tower")


def test_each_noun_is_one_short_line(capture: bp.Capture, tmp_path: Path) -> None:
    (pair,) = capture.pairs
    verdicts = capture.verify()
    loaded = bp.load(bp.save(capture, tmp_path / "sample"))
    forward, backward = loaded.pairs[0].forward, loaded.pairs[0].backward
    assert backward is not None
    folded, line = forward.fold(), memory_line(pair)
    nouns = [
        capture,
        pair,
        pair.forward,
        pair.backward,
        forward,
        folded,
        line,
        *folded.items,
        *verdicts,
        *verdicts[0].ports,
    ]
    nouns += [*forward.steps, *backward.steps, loaded]
    for noun in nouns:
        assert len(repr(noun)) < 260
        assert "\n" not in repr(noun)
        assert repr(noun).startswith(f"{type(noun).__name__}(")
    steps, back = len(forward.steps), len(backward.steps)
    assert repr(forward) == f"Graph(forward of tower: {steps} steps, 25 inputs, {len(forward.outputs)} outputs)"
    assert repr(backward).startswith(f"Graph(backward of tower: {back} steps, ")
    assert repr(pair.forward).startswith(f"Graph(forward: {len(pair.forward.steps)} steps, 25 inputs, ")
    assert repr(pair) == f"Pair(pair_0: {len(pair.forward.steps)} forward steps, {back} backward steps)"
    assert repr(folded) == repr(forward).replace("Graph", "FoldedGraph")[:-1] + ", 1 loop)"
    assert repr(verdicts[0]).startswith("Verdict(bitwise, derivative: tower, 25 ports")
    assert repr(capture).startswith(f"Capture(tower: 1 pair, engine {capture.engine}, bitwise, 24 of 25 ports proved; ")
    assert "verdict" not in repr(loaded)


def test_a_step_shows_what_it_calls() -> None:
    made = Step("y", "aten.mul.Tensor", (Ref("x"), 2), spec=TensorSpec("float32", (4,)))
    assert repr(made) == 'Step(y: "f32[4]" = aten.mul.Tensor(x, 2))'
    assert len(repr(replace(made, args=(Ref("x"), tuple(range(1000)))))) < 180


def test_what_is_not_parsed_is_not_parsed_for_a_line(tmp_path: Path, capture: bp.Capture) -> None:
    place = bp.save(capture, tmp_path / "sample")
    pair = bp.load(place).pairs[0]
    assert repr(pair) == "Pair(pair_0)"
    assert pair.forward.steps
    assert repr(pair).startswith(f"Pair(pair_0: {len(pair.forward.steps)} forward steps")


def test_a_strangers_title_stays_in_its_line() -> None:
    port = Port("x", "input", TensorSpec("float32", (2,)), "x")
    same = Graph((port,), (), (Port("y", "output", TensorSpec("float32", (2,))),), (Ref("x"),))
    hostile = replace(same, title="a\x1b[2J\n\u202eb" + "c" * 10_000)
    assert repr(hostile).startswith("Graph(forward of a?[2J??bccc")
    assert len(repr(hostile)) < 140
    assert repr(Pair("pair_0", same)) == "Pair(pair_0: 0 forward steps, no backward)"
    assert repr(same) == "Graph(forward: 0 steps, 1 input, 1 output)"
