"""What was not compared is said: in the verdict's detail, in its power, and it is no proof."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
import torch
from torch import Tensor

import backprint as bp


@pytest.mark.slow
def test_inputs_that_no_redraw_can_change_are_said(tmp_path: Path) -> None:
    cap = bp.capture(lambda x: x * x.sum().item(), torch.tensor([0.3, -1.7, 0.9]))
    said = "x was compared at its captured values alone: no other that was tried keeps `sum_1 =="
    cap.save(tmp_path / "s")
    for capture in (cap, bp.load(tmp_path / "s")):
        (verdict,) = capture.verify()
        assert verdict.verdict == "bitwise"
        assert said in verdict.detail
        assert not verdict.proof
        assert "output output" in verdict.vacuous
        assert "output output" in bp.power(capture).vacuous
    assert said in str(bp.load(tmp_path / "s").guards)


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        lambda x: x * 2 if x.sum() > 0 else x,
        lambda x: x * len(x.tolist()),
        lambda x: x * 2 if torch.equal(x, x.abs()) else x,
        lambda x: x * float(x.abs().max() < 100),
    ],
)
def test_other_values_that_keep_a_guard_are_compared(program: object) -> None:
    (verdict,) = bp.capture(program, torch.tensor([0.3, 1.7, 0.9])).verify()
    assert verdict.proof
    assert "alone" not in verdict.detail


@pytest.mark.slow
def test_what_guards_do_not_hold_is_found_on_values_that_keep_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from face import non_operator_effects

    monkeypatch.setattr(
        non_operator_effects, "values_read_without_operator", lambda func, args, kwargs: []
    )  # as if nothing saw how it reads

    def program(x: Tensor) -> Tensor:
        n = x.abs().sum().round().item()
        return x * n if "-" not in str(x[0]) else x * 10

    cap = bp.capture(program, torch.tensor([1.0, 2.0, 3.0]))
    assert "the program reads them in a way that Backprint does not see" in str(cap.guards)
    with pytest.raises(bp.errors.GuardError, match="pinned"):
        bp.replay(cap, -torch.tensor([1.0, 2.0, 3.0]))


@pytest.mark.slow
def test_each_of_several_guarded_inputs_is_tried_on_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from face import non_operator_effects

    monkeypatch.setattr(
        non_operator_effects, "values_read_without_operator", lambda func, args, kwargs: []
    )  # as if nothing saw how it reads

    def program(x: Tensor, y: Tensor) -> Tensor:
        n = x.abs().sum().round().item() + y.abs().sum().round().item()
        return x * y * n if "-" not in str(x[0]) else x * 10

    cap = bp.capture(program, torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 1.0, 3.0]))
    assert "the program reads them in a way that Backprint does not see" in str(cap.guards)


def test_a_print_into_a_buffer_is_a_read() -> None:
    def program(x: Tensor) -> Tensor:
        n, buffer = x.abs().sum().round().item(), io.StringIO()
        with contextlib.redirect_stdout(buffer):
            print(x[0])
        return x * n if "-" not in buffer.getvalue() else x * 10

    cap = bp.capture(program, torch.ones(3))
    with pytest.raises(bp.errors.GuardError, match="print"):
        bp.replay(cap, -torch.ones(3))


def test_a_print_to_the_screen_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: Tensor) -> Tensor:
        print(x)
        return x * 2

    assert not bp.capture(program, torch.ones(3)).guards
    assert "tensor" in capsys.readouterr().out


@pytest.mark.slow
def test_memory_that_a_program_makes_itself_is_never_redrawn(tmp_path: Path) -> None:
    def program(x: Tensor) -> Tensor:
        return x * torch.frombuffer(bytearray(x.detach().numpy().tobytes()), dtype=torch.float32)

    cap = bp.capture(program, torch.tensor([0.3, 1.7, 0.9]))
    assert [verdict.verdict for verdict in cap.verify()] == ["bitwise"]
    cap.save(tmp_path / "s")
    assert [verdict.verdict for verdict in bp.load(tmp_path / "s").verify()] == ["bitwise"]
