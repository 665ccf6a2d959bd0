"""Which results hang on which inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import backprint as bp
from face import PortKey, Ref, Step, dependence, names_behind


def two(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin(), x * y


def shapes_alone(x: Tensor, y: Tensor) -> Tensor:
    return torch.zeros_like(y) + x + y.new_ones(y.shape) + torch.full_like(y, 2.0)


def in_place(x: Tensor, y: Tensor) -> Tensor:
    z = x.clone()
    z[0].mul_(y[0])
    return z


ROWS: dict[str, tuple[Callable[..., Any], dict[str, set[str]]]] = {
    "each output on its own": (
        two,
        {
            PortKey("output", "output.0"): {"x"},
            PortKey("output", "output.1"): {"x", "y"},
            PortKey("gradient", "x"): {"x", "y", "tangent output.0", "tangent output.1"},
            PortKey("gradient", "y"): {"x", "tangent output.1"},
        },
    ),
    "a shape is not a value": (
        shapes_alone,
        {PortKey("output", "output"): {"x"}, PortKey("gradient", "x"): {"tangent output"}},
    ),
    "what is changed in place": (
        in_place,
        {
            PortKey("output", "output"): {"x", "y"},
            PortKey("gradient", "x"): {"y", "tangent output"},
            PortKey("gradient", "y"): {"x", "tangent output"},
        },
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_what_hangs_on_what(name: str) -> None:
    program, wanted = ROWS[name]
    capture = bp.capture(program, torch.randn(3).requires_grad_(), torch.randn(3).requires_grad_(), engine="aot")
    found = {key: set(names) for key, names in dependence(capture).items()}
    assert {key: found[key] for key in wanted} == wanted


def test_an_update_as_it_ran_reaches_the_views_of_what_it_changes() -> None:
    capture = bp.capture(in_place, torch.randn(3), torch.randn(3), engine="eager", functional=False)
    assert dependence(capture)[PortKey("output", "output")] == {"x", "y"}


def test_the_gradients_of_a_convolution_hang_on_what_each_is_made_of() -> None:
    model = nn.Conv2d(2, 3, 3)
    found = dependence(bp.capture(model, torch.randn(1, 2, 5, 5).requires_grad_()))
    assert found[PortKey("gradient", "weight")] == {"input", "tangent output"}
    assert found[PortKey("gradient", "bias")] == {"tangent output"}
    assert found[PortKey("gradient", "input")] == {"weight", "tangent output"}


@pytest.mark.slow
def test_links_carry_it_from_pair_to_pair_and_back() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.tanh(self.first(x))
            torch._dynamo.graph_break()
            return torch.tanh(self.second(x))

    model = Broken()
    capture = bp.capture(model, torch.randn(2, 3), engine="dynamo")
    assert len(capture.pairs) == 2
    state = {f"{layer}.{kind}" for layer in ("first", "second") for kind in ("weight", "bias")}
    found = dependence(capture)
    assert found[PortKey("output", "output")] == {"x"} | state
    assert found[PortKey("gradient", "first.weight")] == {"x", "tangent output"} | state


def test_the_second_name_of_a_tensor_is_its_first() -> None:
    x = torch.randn(3)
    capture = bp.capture(lambda x, y: x.sin() + y, x, x)
    assert capture.signature.same
    assert dependence(capture)[PortKey("output", "output")] == {"x"}


def test_sets_of_inputs_are_numbers_and_names() -> None:
    capture = bp.capture(lambda x, y, z: (x * y, y + z), *torch.randn(3, 2).unbind())
    depends = dependence(capture)
    assert len(depends) == len(list(depends)) == len(depends.sets)
    for key, names in depends.items():
        assert depends.names_of(depends.set_of(names)) == names
        assert depends.set_of([*names, "no input"]) == depends.sets[key]
    first, second = (depends.sets[PortKey("output", f"output.{index}")] for index in (0, 1))
    assert depends.names_of(first & second) == {"y"}


MAKERS = {
    name: Step(name, "aten.add.Tensor", tuple(map(Ref, used)))
    for name, used in {"y": "xx", "z": "yw", "loss": "zy", "other": "v"}.items()
}


def test_a_walk_back_gives_each_value_once_and_no_other() -> None:
    found = list(names_behind(["loss"], MAKERS))
    assert (found[0], sorted(found)) == ("loss", ["loss", "w", "x", "y", "z"])


def test_a_walk_back_stops_where_it_is_told_to_and_gives_that_value() -> None:
    assert sorted(names_behind(["loss"], MAKERS, lambda name: name == "y")) == ["loss", "w", "y", "z"]
