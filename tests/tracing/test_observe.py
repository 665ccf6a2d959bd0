"""What the observers of a run are told: the operator calls of the program, and nothing else that a mode sees."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

from face import observe

aten = torch.ops.aten


class Log(observe.Observer):
    """The calls that an observer is told about, with what came of them."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def before(self, call: observe.Call) -> None:
        call.kept[self] = str(call.func)

    def after(self, call: observe.Call, result: Any) -> None:
        self.lines.append(call.kept[self])

    def failed(self, call: observe.Call, error: Exception) -> None:
        self.lines.append(f"{call.kept[self]}: {type(error).__name__}")


def test_operators_are_seen_and_composite_ones_are_opened() -> None:
    log = Log()
    with observe.ObservingMode(log), torch.inference_mode():
        torch.ones(2, 3).sin()
        aten.dstack.default([torch.ones(2)])
    assert "aten.sin.default" in log.lines
    assert "aten.dstack.default" not in log.lines
    assert "aten.cat.default" in log.lines


def test_fake_tensors_are_no_values_of_a_program_that_has_values() -> None:
    log, mode = Log(), FakeTensorMode()
    fake = mode.from_tensor(torch.ones(2))
    with observe.ObservingMode(log):
        assert (fake + 1).device == torch.device("cpu")
    assert log.lines == []


def test_each_observer_is_told_in_order_and_may_replace_the_arguments() -> None:
    class Doubling(observe.Observer):
        def before(self, call: observe.Call) -> None:
            if call.func is aten.sin.default:
                call.args = (call.args[0] * 2,)

    class Seeing(observe.Observer):
        seen: Tensor

        def before(self, call: observe.Call) -> None:
            if call.func is aten.sin.default:
                self.seen = call.args[0]

    seeing, x = Seeing(), torch.ones(2)
    with observe.ObservingMode(Doubling(), seeing):
        y = x.sin()
    assert torch.equal(seeing.seen, x * 2)
    assert torch.equal(y, (x * 2).sin())


def test_an_operator_that_raises_is_told_and_its_error_goes_on() -> None:
    log = Log()
    with observe.ObservingMode(log), pytest.raises(RuntimeError, match="size"):
        torch.ones(2) @ torch.ones(3)
    assert log.lines[-1] == "aten.dot.default: RuntimeError"


def test_the_versions_of_tensors_that_foreach_operators_write_are_counted() -> None:
    x = torch.ones(2)
    with observe.ObservingMode():
        torch._foreach_add_([x], 1.0)
    assert x._version == 1
