"""A defect of Backprint is loud: `auto` never makes it a polite reason to try the next engine."""

from __future__ import annotations

import os
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import backprint as bp
from face import CaptureError, RefusedError, Writer, frontend, stamp, tape
from face import trace as aot_trace


def planted(code: str) -> Any:
    """A function that does this, as if it stood in a file of Backprint."""
    space: dict[str, Any] = {}
    place = os.path.join(os.path.dirname(bp.__file__), "planted.py")
    exec(compile(f"import torch\ndef planted(*args, **kwargs):\n    {code}\n", place, "exec"), space)
    return space["planted"]


def program(x: Tensor) -> Tensor:
    return x.sin() * 2


KEY = "return {}['absent']"
IN_TORCH = "return torch.device('absent')"
"""A call of torch's that is ours and wrong, as `.numpy()` is without numpy: torch has no frames."""

DEFECTS = {
    "eager, before the run": ("eager", tape, "own_generators"),
    "eager, at an operator": ("eager", tape.Recorder, "before"),
    "eager, after the run": ("eager", Writer, "write_into"),
    "aot, after the trace": ("aot", aot_trace, "remove_marked_clones"),
    "dynamo, in its backend": ("dynamo", frontend, "run_graph_once"),
}


@pytest.mark.parametrize("code", [KEY, IN_TORCH])
@pytest.mark.parametrize("where", DEFECTS)
def test_a_defect_of_one_engine_is_raised_as_it_is(where: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, place, name = DEFECTS[where]
    monkeypatch.setattr(place, name, planted(code))
    with pytest.raises((KeyError, RuntimeError)) as raised:
        bp.capture(program, torch.randn(3), engine=engine)
    assert not isinstance(raised.value, CaptureError)
    assert "planted" in [entry.name for entry in raised.traceback]


@pytest.mark.parametrize("code", [KEY, IN_TORCH])
def test_auto_warns_with_the_traceback_and_goes_on(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Writer, "write_into", planted(code))
    warning = r"(?s)engine 'eager' does not capture program because of a defect of Backprint.*Traceback.*planted\.py"
    with pytest.warns(RuntimeWarning, match=warning):
        capture = bp.capture(program, torch.randn(3))
    assert capture.engine == "aot"
    assert any("eager: a defect of Backprint: " in why and "planted.py:3" in why for why in capture.why)
    with warnings.catch_warnings(action="error"), pytest.raises(RuntimeWarning, match="defect of Backprint"):
        bp.capture(program, torch.randn(3))


def test_where_no_engine_is_left_the_defect_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    for _, place, name in DEFECTS.values():
        monkeypatch.setattr(place, name, planted(KEY))
    with pytest.warns(RuntimeWarning, match="defect of Backprint"), pytest.raises(KeyError, match="absent"):
        bp.capture(program, torch.randn(3))


def test_stamping_does_not_trace_in_full_because_of_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(12)))
    monkeypatch.setattr(stamp, "refuse_what_no_log_shows", planted(KEY))
    with pytest.raises(KeyError, match="absent"):
        bp.capture(nn.Sequential(layers, nn.Linear(4, 2)), torch.randn(3, 4), fake=True, engine="aot")


class OfTheProgram(nn.Module):
    """Programs that an engine, or all of them, cannot capture through no fault of Backprint."""

    def forward(self, x: Tensor, how: str) -> Tensor:
        if how == "raises":
            return {}[how]
        if how == "misuses an operator":
            return x @ torch.ones(7)
        if how == "misuses it in the backward":
            return Wrong.apply(x)
        if how == "asks for a package":
            import absent_package  # noqa: F401
        return x.unknown_method()


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient @ torch.ones(7)


HOWS = ["raises", "misuses an operator", "misuses it in the backward", "asks for a package", "calls what is not there"]


@pytest.mark.parametrize("how", HOWS)
def test_an_error_of_the_program_is_no_defect(how: str) -> None:
    with warnings.catch_warnings(action="error"), pytest.raises((KeyError, RuntimeError, ImportError, AttributeError)):
        bp.capture(OfTheProgram(), torch.randn(3, requires_grad=True), how)


def test_a_dtype_that_no_graph_has_is_refused_by_name() -> None:
    def quantized(x: Tensor) -> Tensor:
        return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()

    with warnings.catch_warnings(action="ignore"):  # torch's, of quantization
        warnings.filterwarnings("error", message=".*defect of Backprint")
        with pytest.raises(RefusedError, match="'qint8' is not a tensor dtype"):
            bp.capture(quantized, torch.randn(3))
