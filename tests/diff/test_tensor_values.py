"""Other values of tensors are told where both sides keep them; hashes leave them out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import backprint as bp
from face import Capture, SampleError


def scaled(*numbers: float, x: float = 1.0) -> Capture:
    return bp.capture(lambda x: x * torch.tensor(numbers), torch.full((len(numbers),), x, requires_grad=True))


def test_other_values_of_a_constant_are_told_and_do_not_count(tmp_path: Path) -> None:
    captures = scaled(1.0, 2.0, 3.0), scaled(1.0, 2.0, 4.0)
    said = "values of constant constant_0: [1.0, 2.0, 3.0] -> [1.0, 2.0, 4.0]"
    assert bp.diff.compare(*captures).same
    places = [each.save(tmp_path / str(number)) for number, each in enumerate(captures)]
    for sides in (captures, places, (captures[0], places[1]), (places[0], captures[1])):
        first, *lines = str(bp.diff.compare(*sides)).splitlines()
        assert first == "no differences between the graphs (equal hashes)"
        assert said in lines
    for sides in ((captures[0], places[0]), (captures[0], captures[0]), (scaled(1.0, 2.0, 3.0), captures[0])):
        assert bp.diff.compare(*sides).facts == ()


def test_long_constants_are_told_by_digests_and_several_in_rows() -> None:
    numbers = [float(each**2) for each in range(40)]
    diff = bp.diff.compare(scaled(*numbers), scaled(*numbers[::-1], x=2.0))
    (fact,) = diff.facts
    assert fact.name == "values of tensors"
    assert (fact.before[0], fact.after[0]) == ("input x: 1.0 everywhere", "input x: 2.0 everywhere")
    assert re.fullmatch(r"constant constant_0: data with digest [0-9a-f]{16}", fact.before[1])
    assert fact.before[1] != fact.after[1]
    assert "values of tensors:\n  - input x: 1.0 everywhere\n" in str(diff)


def test_minus_zero_and_drawn_values() -> None:
    assert "[0.0, 1.0, 5.0] -> [-0.0, 1.0, 5.0]" in str(bp.diff.compare(scaled(0.0, 1.0, 5.0), scaled(-0.0, 1.0, 5.0)))
    drawn = [bp.capture(nn.Linear(9, 9), torch.randn(2, 9)) for _ in range(2)]  # other weights, of which none is kept
    assert bp.diff.compare(*drawn).facts == ()


def test_other_numbers_that_a_program_returns_are_told() -> None:
    diff = bp.diff.compare(*(bp.capture(lambda x, k=k: (x * 2, {"k": k}), torch.ones(3)) for k in (3, 4)))
    assert diff.same
    assert "constants of the result: 3 -> 4" in str(diff)


@pytest.mark.parametrize("damage", [b"", b"\xff" * 8, b"\x02" + bytes(7) + b"[]", b"\xff\x00" + bytes(6) + b"{"])
def test_a_damaged_file_of_data_is_refused(damage: bytes, tmp_path: Path) -> None:
    places = [scaled(*each).save(tmp_path / str(each)) for each in ((1.0, 2.0, 3.0), (1.0, 2.0, 4.0))]
    (places[0] / "tensors.safetensors").write_bytes(damage)
    with pytest.raises(SampleError, match=r"tensors\.safetensors: forged or damaged"):
        bp.diff.compare(*places)
