"""The page of a Diff marks the steps that changed, on both sides, and each mark leads to that of the other side."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import backprint as bp
from face import Capture, Diff, diff_data, page_of_diff

MARKS = {"added": "+", "removed": "-", "changed": "-+"}


def silu_scaled(x: Tensor) -> Tensor:
    return torch.nn.functional.silu(x) * 0.5


def gelu_shifted(x: Tensor) -> Tensor:
    return torch.nn.functional.gelu(x).sin().cos()


def captured(*functions: Any) -> Capture:
    """A Capture with a Pair for each function."""
    captures = [bp.capture(each, torch.ones(3, requires_grad=True)) for each in functions]
    return replace(captures[0], pairs=tuple(each.pairs[0] for each in captures), links=())


def edited() -> Diff:
    return bp.diff.compare(captured(silu_scaled), captured(gelu_shifted))


def names(pair: dict[str, Any]) -> list[str]:
    return [pair["strings"][number] for number in pair["nodes"]["name"]]


def test_marks_have_the_steps_of_their_side_in_words() -> None:
    diff = edited()
    kinds = set()
    for pair in diff_data(diff)["pairs"]:
        marks, own = pair["marks"], "+" if pair["name"].startswith("after") else "-"
        assert marks["node"] == sorted(set(marks["node"]))
        for node, kind, text in zip(marks["node"], marks["kind"], marks["text"], strict=True):
            lines = {line[0]: line[2:] for line in text.split("\n")}
            assert "".join(lines) == MARKS[kind]
            assert lines[own].partition(":")[0] == names(pair)[node]
            kinds.add(kind)
    assert kinds == {"added", "removed", "changed"}


def test_a_step_that_changed_leads_to_its_other_side_and_back() -> None:
    pairs = diff_data(edited())["pairs"]
    assert [pair["marks"]["pair"] for pair in pairs] == [1, 0]
    for pair in pairs:
        marks, there = pair["marks"], pairs[pair["marks"]["pair"]]["marks"]
        for node, kind, text, other in zip(*(marks[name] for name in ("node", "kind", "text", "other")), strict=True):
            assert (other >= 0) == (kind == "changed")
            if other >= 0:
                place = there["node"].index(other)
                assert (there["other"][place], there["text"][place]) == (node, text)


def test_a_pair_that_one_side_lacks_has_no_other() -> None:
    pairs = diff_data(bp.diff.compare(captured(silu_scaled), captured(silu_scaled, gelu_shifted)))["pairs"]
    assert [pair["name"].partition(":")[0] for pair in pairs] == ["after", "after", "before"]
    assert [pair["marks"]["pair"] for pair in pairs] == [2, -1, 0]
    assert pairs[0]["marks"]["node"] == pairs[2]["marks"]["node"] == []
    assert pairs[1]["marks"]["node"] == list(range(len(pairs[1]["nodes"]["name"])))
    assert set(pairs[1]["marks"]["kind"]) == {"added"}


def test_the_page_has_the_lines_of_the_diff() -> None:
    diff = edited()
    [block] = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', page_of_diff(diff).html, re.DOTALL
    )
    assert "\n".join(json.loads(block)["changes"]) == str(diff)
