"""Samples of GraphNet's whose values would grow without end: each ends, and says at what.

Every case runs in this process, so a limit that is gone is a test that hangs, fills the memory or ends the run.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from subjects.graphnet_samples import ROWS, Handmade, integers, write_sample

from face import (
    ModelProgram,
    RefusedError,
    ReplayError,
    SampleError,
    build_sample,
    compile_program,
    memory,
    plan_of,
    read,
    read_code,
    read_graphnet,
)

LAST = "return (L_x_ * L_self_parameters_w_,)"


def sample(tmp_path: Path, *lines: str, rows: Any = ROWS) -> Path:
    """A sample of a few lines."""
    return write_sample(Handmade(rows, "\n".join((*lines, LAST))), tmp_path / "made")


def run(place: Path) -> Any:
    """What the built module gives on its inputs."""
    built = build_sample(read_graphnet(place))
    return built.module(**built.inputs)


DOUBLE = 40

GROWS = {
    "a tuple": (["t = (1, 2)", *["t = t + t"] * DOUBLE], "a list of more than 65,536 items"),
    "a tuple in place": (["t = (1, 2)", *["t += t"] * DOUBLE], "a list of more than 65,536 items"),
    "a list of lists": (["t = [1, 2]", *["t = [t, t]"] * DOUBLE], "with those of its lists"),
    "a dictionary": (["t = {'a': 1}", *["t = {'a': t, 'b': t}"] * DOUBLE], "with those of its lists"),
    "tensors": (["t = torch.split(L_x_, 1)", *["t = (t, t)"] * DOUBLE], "with those of its lists"),
    "what several tensors are": (["t = torch.split(L_x_, 1)", *["t = t + t"] * DOUBLE], "a list of more than"),
    "one line": (["t = (1, 2)", "t = (t * 60, t) * 60", "t = (t * 60, t) * 60"], "a list of"),
    "a list by its method": (["t = [1]", "t = t.__mul__(1000000000000)"], "a list where a graph has a tensor"),
    "a list in itself": (["t = [1, 2]", "t[0] = t", "u = torch.tensor(t)"], "a list where a graph has a tensor"),
    "a text": (["s = L_x_.type()", *["s = s + s"] * DOUBLE], "a text cannot be an operand of operator.add"),
    "a text by a number": (["s = L_x_.type()", "s = s * 1000000000000"], "a text cannot be an operand of operator.mul"),
    "a text in place": (["s = L_x_.type()", *["s += s"] * DOUBLE], "a text cannot be an operand of operator.add"),
    "a text of a dictionary": (
        ["(a,) = {'%2147483640d': 1}", "b = a % 1"],
        "a text cannot be an operand of operator.mod",
    ),
    "powers of powers": (["n = 9 ** 60", *["n = n ** 60"] * 4], "a power of"),
    "a power in place": (["n = 9", *["n **= 60"] * 5], "a power of"),
    "a shift in place": (["n = 1", "n <<= 100000000000"], "a shift of"),
    "a shift of True": (["n = True << 100000000000"], "a shift of"),
    "products": (["n = 3", *["n = n * n"] * DOUBLE], "a product of"),
    "what an index is": (["n = L_x_.type().index('F')", "n = 9", *["n = n * n"] * DOUBLE], "a product of"),
    "a tensor as a list": (
        ["y = torch.ones(1).expand(10000000000)", "t = y.tolist()"],
        "a list of 10,000,000,000 items; a graph may make one of 65,536",
    ),
}


@pytest.mark.parametrize("case", GROWS)
def test_what_grows_without_end_is_refused_and_says_at_what(case: str, tmp_path: Path) -> None:
    lines, words = GROWS[case]
    with pytest.raises(ReplayError, match=words):
        run(sample(tmp_path, *lines))


def test_plain_lists_and_numbers_are_as_they_were(tmp_path: Path) -> None:
    rows = [*ROWS, integers("n_1", data=[3])]
    lines = (
        "n = n_1.item()",
        "s = L_x_.size()",
        "t = s[:1] + s[1:]",
        "u = [L_x_, [L_x_, L_x_]]",
        "v = (n * 2 + 1) ** 2 % 5 << 1",
        "w = L_x_.reshape(t)",
        "w *= 2.0",
        "w[0] = w[1] * v",
        "a, b = w.chunk(2)",
        "y = torch.cat([a, b] + [u[1][0]])",
        "x = {'k': y}",
        "L_x_ = x['k'].sum(0) + v",
    )
    assert run(sample(tmp_path, *lines, rows=rows))[0].shape == (3,)


def program(*lines: str) -> ModelProgram:
    """The Program of a few lines."""
    head = "import torch\n\n\nclass GraphModule(torch.nn.Module):\n    def forward(self, x : torch.Tensor):\n"
    return read_code(head + "".join(f"        {line}\n" for line in lines))


def made_of(parsed: ModelProgram) -> set[str]:
    """The names of what its function calls of ours and torch's."""
    return set(compile_program(parsed, {"x": "x"}, {}, "model.py", "cpu").__code__.co_names)


def test_arithmetic_on_tensors_is_left_as_it_is() -> None:
    lines = ("a, b = x.chunk(2)", "y = a + b * 2", "y = torch.relu(y) ** y", "y += b", "y[0] = 1")
    assert made_of(program(*lines, "z = [x, y]", "return (y,)")) == {"chunk", "torch.relu"}
    assert made_of(program("t = (1,)", "t = t + t", "return t")) == {"bounded.add"}


LARGE = {
    "a factory": (
        ["y = torch.zeros(3, 5000000000)"],
        "model.py:10: aten.zeros.default would make a result of 55.9 GiB",
    ),
    "a product": (["y = torch.kron(L_x_, torch.ones(40000, 40000))"], "model.py:10: aten.ones.default would make"),
    "a copy": (["y = L_x_[None].expand(5000000000, 2, 3)", "y = y + 1"], "model.py:11: aten.add.Tensor would make"),
    "a list": (["y = torch.cat([L_x_] * 30000)", "y = torch.cat([y] * 30000)"], "model.py:11: aten.cat.default"),
}


@pytest.mark.parametrize("case", LARGE)
def test_a_result_for_which_there_is_no_room_is_named_with_its_line(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, words = LARGE[case]
    monkeypatch.setattr(memory, "_allowed", memory.held_bytes() + (1 << 30))
    with pytest.raises(SampleError, match=words):
        run(sample(tmp_path, *lines))


def test_looking_for_room_draws_no_numbers_and_a_view_takes_none(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    built = build_sample(read_graphnet(sample(tmp_path, "y = torch.randn(3)", "z = torch.ones(1).expand(5000000000)")))
    assert torch.equal(before, torch.get_rng_state())
    assert built.module(**built.inputs)[0].shape == (2, 3)


# ------------------------------------------------------------------ what is only read


def test_a_value_that_is_joined_to_itself_is_read_at_once(tmp_path: Path) -> None:
    place = sample(tmp_path, "y = L_x_", *["y = torch.cat([y, y])"] * 200)
    start = time.monotonic()
    plan_of(read_graphnet(place))
    assert time.monotonic() - start < 2


def test_an_input_of_which_many_sums_are_joined_is_still_followed() -> None:
    lines = [f"y = torch.cat([y + {2**n}.0, y])" for n in range(60)]
    start = time.monotonic()
    found = read.uses_of(program("y = x", *lines, "z = y.sqrt()", "return (z,)"), {})
    assert time.monotonic() - start < 5
    assert found["x"].kinds == {"positive"}


def test_following_inputs_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "MOST_STEPS", 100)
    with pytest.raises(RefusedError, match="following the inputs through the lines takes more than 100 steps"):
        read.uses_of(program("y = x", *["y = torch.cat([y, x])"] * 200, "return (y,)"), {})
