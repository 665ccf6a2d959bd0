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

import backprint as bp
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
    "slices of slices": (
        [
            "s = slice(1)",
            *["s = slice(s, s, s)"] * DOUBLE,
            "t = slice(1)",
            *["t = slice(t, t, t)"] * DOUBLE,
            "u = s == t",
        ],
        "a slice is a bound of a slice",
    ),
    "a list by a tensor": (["t = [0] * torch.tensor(1000000000000)"], "a list or a text and a tensor"),
    "a text by a tensor": (["s = L_x_.type()", "s = s * torch.tensor(1000000000000)"], "a list or a text and a tensor"),
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
    "a list in itself by addition": (["t = [1, 2]", "t += [t]"], "with those of its lists"),
    "what is returned": (["t = [0] * 30000", "return (t, t, t)"], "with those of its lists"),
    "what is an argument": (["t = [0] * 30000", "y = torch.tensor([t, t, t])"], "with those of its lists"),
    "a tensor as a list": (
        ["y = torch.ones(1).expand(10000000000)", "t = y.tolist()"],
        "a list of 10,000,000,000 items; a graph may make one of 65,536",
    ),
}


@pytest.mark.parametrize("case", GROWS)
def test_what_grows_without_end_is_refused_and_says_at_what(case: str, tmp_path: Path) -> None:
    lines, words = GROWS[case]
    if not lines[-1].startswith("return"):
        lines = [*lines, LAST]
    place = write_sample(Handmade(ROWS, "\n".join(lines)), tmp_path / "made")
    with pytest.raises(ReplayError, match=words):
        run(place)


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


@pytest.mark.parametrize("engine", ["eager", "aot", "dynamo"])
def test_bounded_arithmetic_on_tensors_is_at_its_own_line(engine: str, tmp_path: Path) -> None:
    lines = ("a, b = L_x_.chunk(2)", "y = a + b * 2", "z = y ** y", "z += b", "w = torch.cat([z, L_x_])")
    last = "return (w * L_self_parameters_w_,)"
    place = write_sample(Handmade(ROWS, "\n".join((*lines, last))), tmp_path / "made")
    [pair] = bp.capture(place, engine=engine).pairs
    where = {step.target.split(".")[1]: step.source for step in pair.forward.steps if step.source is not None}
    assert {Path(source.file).name for source in where.values()} == {"model.py"}
    first = where["split"].line
    assert [where[name].line - first for name in ("pow", "cat")] == [2, 4]
    assert {step.source.line - first for step in pair.forward.steps if step.source is not None} == {0, 1, 2, 3, 4, 5}


def test_bounds_fix_no_symbolic_size() -> None:
    lines = ("a = n * 2 + 1", "b = x.size(0) * 3 % 5", "y = x.view(n, -1) * a + b", "z = torch.cat([y, y])")
    head = "import torch\n\n\nclass GraphModule(torch.nn.Module):\n    def forward(self, n: torch.SymInt, x):\n"
    parsed = read_code(head + "".join(f"        {line}\n" for line in (*lines, "return (z,)")))
    forward = compile_program(parsed, {"n": "n", "x": "x"}, {}, "model.py", "cpu")
    graphs: list[str] = []

    def backend(module: Any, inputs: Any) -> Any:
        graphs.append(module.code)
        return module

    compiled = torch.compile(forward, backend=backend, dynamic=True, fullgraph=True)
    for n, rows in ((4, 8), (5, 10)):
        torch.testing.assert_close(compiled(None, n, torch.ones(rows, 3)), forward(None, n, torch.ones(rows, 3)))
    assert len(graphs) == 1
    assert "bit_length" not in graphs[0]


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
