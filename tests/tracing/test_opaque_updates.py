"""Updates that autograd does not see: every engine marks them as opaque edges, and keeps the marks on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import backprint as bp

ENGINES = ("eager", "aot", "dynamo")


def updates_a_detached_tensor(x: Tensor) -> Tensor:
    y = x.detach()
    y.mul_(3)
    return x.sin().sum()


def updates_a_row_of_a_detached_tensor(x: Tensor) -> Tensor:
    h = x * 2
    h.detach()[1:].fill_(5.0)
    return h.sin().sum()


def updates_data(x: Tensor) -> Tensor:
    h = x * 2
    h.data.mul_(3)
    return h.sin().sum()


def writes_a_result_into_a_detached_tensor(x: Tensor) -> Tensor:
    h = x * 2
    torch.sin(torch.ones(3), out=h.detach())
    return (h * 2).sin().sum()


def detaches_in_place(x: Tensor) -> Tensor:
    h = x * 2
    h.detach_()
    return (h * x).sum()


def updates_without_gradients(x: Tensor) -> Tensor:
    h = x * 2
    with torch.no_grad():
        h.mul_(3)
    return h.sin().sum()


def updates_a_copy_of_a_detached_tensor(x: Tensor) -> Tensor:
    h = x * 2
    return (h * h.detach().clone().mul_(3)).sum()


def reads_a_detached_tensor(x: Tensor) -> Tensor:
    h = x * 2
    with torch.no_grad():
        y = h.detach()
    return (torch.empty(3).copy_(y) * h).sum()


def updates_last_without_gradients(x: Tensor) -> Tensor:
    h = x * 2
    loss = (h + 1).sum()
    with torch.no_grad():
        h.mul_(3)
    return loss


class Shrinks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.arange(1.0, 4.0))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.w.mul_(0.5)
        return (self.w.sin() * x).sum()


PROGRAMS: dict[str, tuple[Any, ...]] = {
    "detach": (
        updates_a_detached_tensor,
        updates_a_row_of_a_detached_tensor,
        updates_data,
        writes_a_result_into_a_detached_tensor,
        detaches_in_place,
    ),
    "no_grad": (updates_without_gradients, Shrinks),
    "": (updates_a_copy_of_a_detached_tensor, reads_a_detached_tensor, updates_last_without_gradients),
}
"""Programs by the kind of opaque edge that they have; modules are made anew for each test."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "kind", "engine"),
    [
        *((program, kind, "eager") for kind, programs in PROGRAMS.items() for program in programs),
        *(
            (programs[0], kind, engine)
            for kind, programs in PROGRAMS.items()
            for engine in ENGINES
            if engine != "eager"
        ),
    ],
)
def test_every_engine_marks_an_update_that_autograd_does_not_see(
    program: Any, kind: str, engine: str, tmp_path: Path
) -> None:
    x = torch.tensor([0.3, -0.7, 1.1], requires_grad=True)
    capture = bp.capture(program() if isinstance(program, type) else program, x, engine=engine)
    assert [edge.kind for edge in capture.opaque] == [kind] * bool(kind)
    assert [verdict.verdict for verdict in capture.verify()] == ["bitwise"]
    loaded = bp.load(capture.save(tmp_path / "sample"))
    assert loaded.opaque == capture.opaque
    assert [verdict.verdict for verdict in bp.verify(loaded)] == ["bitwise"]
    assert kind or gradient_of_forward_alone(tmp_path / "sample", x) == gradient(capture, x)


def gradient(capture: bp.Capture, x: Tensor) -> list[float] | None:
    found = bp.replay(capture, x).gradients.get("x")
    return None if found is None else found.tolist()


def gradient_of_forward_alone(sample: Path, x: Tensor) -> list[float] | None:
    """The gradient of a sample that is captured again: autograd of its saved forward."""
    return gradient(bp.capture(sample), x)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_opaque_edge_is_where_the_saved_forward_has_another_gradient(engine: str, tmp_path: Path) -> None:
    x = torch.tensor([0.3, -0.7, 1.1], requires_grad=True)
    capture = bp.capture(updates_without_gradients, x, engine=engine)
    assert gradient_of_forward_alone(capture.save(tmp_path / "sample"), x) != gradient(capture, x)
    assert "updates a tensor that requires grad, with gradients off" in bp.capture(tmp_path / "sample").notes[0]
    (edge,) = capture.opaque
    assert edge.source is not None
    assert edge.source.code == "h.mul_(3)"
