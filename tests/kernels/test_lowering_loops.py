"""Loops over time become one Triton kernel a direction: what is written, what it moves, and what is refused."""

from __future__ import annotations

import ast
import functools
import importlib.util
import math
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from loop_programs import PLIF, PROGRAMS, STATE, draw, lif, sequence
from torch import Tensor

import backprint as bp
from face import Case, RefusedError, UsageError, case_of_function, compare_port, limits, lower_loop, main
from face import loops_lower as lower

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
]  # torch's own, of Inductor's import

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton kernels need triton: pip install triton"
)


@pytest.fixture(autouse=True, scope="module")
def fewer_steps() -> Iterator[None]:
    """Capture 64 steps as the most, not 256, which takes four times as long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lower, "LENGTHS", (6, 7, 8, 64))
        yield


@pytest.fixture(scope="module")
def plif() -> bp.types.LoweredLoop:
    return bp.lower(PLIF(33), sequence)


@functools.cache
def lowered_program(name: str) -> bp.types.LoweredLoop:
    """A program of the table, lowered once for all tests, as that takes seconds."""
    return bp.lower(*PROGRAMS[name])


# ------------------------------------------------------------------ what is written


def test_a_neuron_is_one_loop_a_direction() -> None:
    lowered = lowered_program("lif")
    kernels = kernels_of(lowered)
    assert [kernel.name for kernel in kernels] == ["lif_forward", "lif_backward"]
    assert "for t in range(T):" in lowered.source
    assert "for t in range(T - 1, -1, -1):" in lowered.source
    assert "v_1 = v + (x_t - v) / 2.0" in lowered.source
    assert "# loop_programs.py:" in lowered.source
    assert lowered.least == 1


def kernels_of(lowered: bp.types.LoweredLoop) -> list[ast.FunctionDef]:
    """Return the kernels of a file."""
    return [
        node
        for node in ast.parse(lowered.source).body
        if isinstance(node, ast.FunctionDef) and node.decorator_list and node.name.startswith(f"{lowered.name}_")
    ]


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_moves_the_fewest_bytes_and_is_right_here_and_alone(name: str, tmp_path: Path) -> None:
    function, make_inputs = PROGRAMS[name]
    lowered = lower_loop(function, make_inputs, name=name)
    loops = [kernel for kernel in kernels_of(lowered) if any(isinstance(node, ast.For) for node in ast.walk(kernel))]
    assert len(loops) == 1 + (lowered.backward is not None)  # one step may be another program, without a loop
    assert all(traffic.ratio <= 1.05 for traffic in lowered.traffic(64).values())
    imported = {
        name
        for node in ast.walk(ast.parse(lowered.source))
        if isinstance(node, ast.Import)
        for name in [node.names[0].name]
    }
    assert imported == {"os", "torch", "triton", "triton.language"}
    comparison = lowered.check((1, 2, 7, 64))
    assert comparison.ok, comparison
    done = run_alone(lowered.save(tmp_path / "kernels.py"))
    assert done.stdout == "right: 7 steps of (5, 33)\n", done.stderr


def test_what_is_kept_is_the_least(plif: bp.types.LoweredLoop) -> None:
    element = torch.Size(STATE).numel() * 4
    states = sum(traffic.moved for traffic in plif.traffic(1000).values()) / element / 1000
    assert states <= 7.01, "x, spikes and v forward; v, x, both gradients backward"
    assert sum(traffic.moved for traffic in lowered_program("rwkv").traffic(1000).values()) / element / 1000 <= 14.1


def test_a_state_that_is_an_output_is_not_kept_again() -> None:
    lowered = lowered_program("mingru")
    assert "output_before = tl.load(output_ptr + at - n, mask & (t > 0), 0.0)" in lowered.source
    assert "kept_" not in lowered.source.partition("class ")[0].partition("@triton")[2]


def test_a_state_that_is_an_output_begins_with_an_input() -> None:
    lowered = lowered_program("ema")
    assert "tl.where(t > 0, tl.load(output_ptr + at - n, mask & (t > 0), 0.0), x_first)" in lowered.source
    assert sum(side.moved for side in lowered.traffic(1000).values()) / torch.Size(STATE).numel() / 4000 <= 6.01


def test_an_input_of_the_step_before_is_not_kept_and_read_once() -> None:
    lowered = lowered_program("from_the_second")
    assert lowered.check().ok
    assert "kept_" not in lowered.source.partition("class ")[0].partition("@triton")[2]
    assert lowered.source.count("tl.load(x_ptr + at - n, mask & (t > 0), 0.0)") == 1
    assert sum(side.moved for side in lowered.traffic(1000).values()) / torch.Size(STATE).numel() / 4000 <= 5.01


def test_sums_by_atomics(plif: bp.types.LoweredLoop) -> None:
    atomics = bp.lower(PLIF(33), sequence, sums="atomics")
    assert "tl.atomic_add(grad_w_ptr + e // w_inner % w_size" in atomics.source
    assert "atomic" not in plif.source
    assert atomics.traffic(64)["backward"].ratio == 1.0


def test_halves_are_rounded_where_they_are_kept() -> None:
    lowered = bp.lower(lif, lambda T: sequence(T).detach().bfloat16().requires_grad_())
    assert "s = (v_1 - 1.0).to(tl.bfloat16).to(tl.float32)" in lowered.source
    assert "tl.load(x_ptr + at, mask).to(tl.float32)" in lowered.source


@needs_triton
def test_a_cast_from_one_half_to_the_other_rounds() -> None:
    def through_bfloat16(x: Tensor) -> Tensor:
        v, out = torch.zeros_like(x[0]), []
        for t in range(x.shape[0]):
            v = v * 0.5 + x[t].to(torch.bfloat16).to(torch.float16)
            out.append(v)
        return torch.stack(out)

    lowered = bp.lower(through_bfloat16, lambda T: sequence(T).detach().half().requires_grad_(), lengths=(6, 7, 8))
    assert "x_t.to(tl.bfloat16).to(tl.float32).to(tl.float16).to(tl.float32)" in lowered.source
    comparison = lowered.check((1,))
    assert comparison.ok, comparison


def test_one_step_that_is_another_program_has_kernels_of_its_own() -> None:
    lowered = lowered_program("gru")
    assert [kernel.name for kernel in kernels_of(lowered)] == [
        "gru_forward", "gru_backward", "gru_forward_1", "gru_backward_1",
    ]  # fmt: skip
    assert "1 step: kernels of their own" in lowered.explain()


def test_a_norm_a_step_is_a_row_a_program() -> None:
    lowered = lowered_program("norm")
    assert "mask = tl.arange(0, BLOCK) < 33" in lowered.source
    assert "tl.sum(tl.where(mask, " in lowered.source
    assert "this file was written for 33" in lowered.source


def test_a_state_for_each_row_is_one_number_a_program() -> None:
    lowered = lowered_program("two_shapes")
    assert "tl.store(output_1_ptr + row, n_1)" in lowered.source
    assert "tl.store(kept_sigmoid_ptr + at_row, sigmoid)" in lowered.source
    assert "sizes((x,), (first[..., None],))" in lowered.source
    assert "every number of rows of 33 elements" in lowered.explain()
    gated = lowered_program("gated_rows")
    assert "tl.store(grad_gate_ptr + at_row, " in gated.source


def test_an_input_that_did_not_require_grad_may_not_later() -> None:
    """Its gradient would be None, and nobody would be told."""
    lowered = bp.lower(PLIF(), lambda T: sequence(T).detach())
    assert "for index, name in {1: 'x'}.items():" in lowered.source
    assert "requires grad, and did not when this file was written" in lowered.source
    assert "grad_x" not in lowered.source


def test_names_of_inputs_that_the_file_has_for_itself() -> None:
    def program(state: Tensor, grad_state: Tensor, output: Tensor, T: Tensor) -> Tensor:
        h, out = torch.zeros_like(state[0]), []
        for t in range(state.shape[0]):
            h = h * T + state[t] * output[t] - grad_state[t]
            out.append(h)
        return torch.stack(out)

    lowered = bp.lower(program, lambda T: (sequence(T), sequence(T), sequence(T), draw(33)))
    ast.parse(lowered.source)
    assert "def program(state_, grad_state, output, T_):" in lowered.source
    written = [name for name in lowered.parts.gradients if name]
    assert len(set(written) | set(lowered.parts.inputs) | set(lowered.parts.outputs)) == 9


@needs_triton
def test_inputs_may_have_names_of_python() -> None:
    def program(x: Tensor, name: Tensor, any: Tensor) -> Tensor:
        h, out = torch.zeros_like(x[0]), []
        for t in range(x.shape[0]):
            h = h * name + x[t] * any[t]
            out.append(h)
        return torch.stack(out)

    lowered = bp.lower(program, lambda T: (sequence(T), torch.rand(33), torch.rand(T, *STATE)), lengths=(6, 7, 8))
    comparison = lowered.check((7,))
    assert comparison.ok, comparison


def test_a_value_that_the_program_reads_is_refused() -> None:
    def program(x: Tensor, flag: Tensor) -> Tensor:
        v, out = torch.zeros_like(x[0]), []
        for t in range(x.shape[0]):
            v = v * 0.5 + x[t] if flag.item() > 0 else v - x[t]
            out.append(v)
        return torch.stack(out)

    with pytest.raises(RefusedError, match=r"not an operation on elements|depends on|not one"):
        bp.lower(program, lambda T: (sequence(T), torch.ones(())))


def test_explain_says_what_is_one_kernel(plif: bp.types.LoweredLoop) -> None:
    text = plif.explain()
    assert "two kernels, one a direction" in text
    assert "reads w, x; writes kept_v, output" in text
    assert "sums of grad_w: over t in registers, then over elements by torch" in text
    assert repr(plif) == "LoweredLoop(plif: forward and backward, 1 to 64 steps; print(lowered.explain()))"


def test_explain_says_which_steps_are_outside_of_the_loop() -> None:
    def other_at_the_ends(x: Tensor) -> Tensor:
        x, steps = x.detach(), x.shape[0]
        v, out = torch.zeros_like(x[0]), []
        for t in range(steps):
            v = v * 0.5 + (x[t].tanh() if 1 < t < steps - 1 else x[t].sin())
            out.append(v)
        return torch.stack(out)

    lowered = bp.lower(other_at_the_ends, sequence, lengths=(8, 9, 10))
    assert "steps outside of the loop, of other programs: the first 2, the last\n" in lowered.explain()


# ------------------------------------------------------------------ what is refused


def with_number_of_t(x: Tensor) -> Tensor:
    v, out = torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        v = v + x[t] / (1 - 0.9 ** (t + 1))
        out.append(v)
    return torch.stack(out)


def with_state_of_numbers(x: Tensor) -> Tensor:
    """A state that no input changes."""
    decay, v, out = torch.ones_like(x[0]), torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        decay = decay * 0.9
        v = v * 0.5 + x[t] * decay
        out.append(v)
    return torch.stack(out)


def with_product(x: Tensor, w: Tensor) -> Tensor:
    h, out = torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        h = torch.tanh(x[t] + h @ w)
        out.append(h)
    return torch.stack(out)


def with_norm_of_columns(x: Tensor) -> Tensor:
    h, out = torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        h = torch.tanh(h + x[t])
        out.append(h - h.mean(0, keepdim=True))
    return torch.stack(out)


def with_time_second(x: Tensor) -> Tensor:
    v, out = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        v = v * 0.5 + x[:, t]
        out.append(v)
    return torch.stack(out, 1)


def with_draws(x: Tensor) -> Tensor:
    v, out = torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        v = torch.nn.functional.dropout(v + x[t], 0.5)
        out.append(v)
    return torch.stack(out)


def with_every_second(x: Tensor) -> Tensor:
    v, out = torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        v = v * 0.5 + x[t] if t % 2 else v - x[t]
        out.append(v)
    return torch.stack(out)


def with_running_sum(x: Tensor) -> Tensor:
    return torch.stack([x[t].cumsum(-1) for t in range(x.shape[0])])


def with_other_places(x: Tensor, y: Tensor) -> Tensor:
    """Rows become columns: as many elements, at other places."""
    columns, h, out = x.view(x.shape[0], 5, 1), torch.zeros_like(y[0]), []
    for t in range(x.shape[0]):
        h = h * 0.5 + columns[t] * y[t]
        out.append(h)
    return torch.stack(out)


REFUSED: dict[str, tuple[Callable[..., Any], Callable[[int], Any], str]] = {
    "a number of t": (with_number_of_t, sequence, r"a number changes with time.*one a step.*c\[t\]"),
    "a state of numbers": (with_state_of_numbers, sequence, r"a number changes with time: .*c\[t\]"),
    "a product": (with_product, lambda T: (draw(T, 4, 4), draw(4, 4)), r"aten\.mm.*is not an operation on elements"),
    "a mean of columns": (with_norm_of_columns, sequence, r"h\.mean\(0.*not linear in a sum over the state"),
    "a product that changes the shape": (
        lambda x, w: torch.stack([step @ w for step in x]),
        lambda T: (draw(T, 2, 4), draw(4, 3)),
        r"aten\.mm.*mixes elements of the state",
    ),
    "time twice": (lambda x: x @ x.T, lambda T: draw(T, 4), r"Inductor writes no kernel for it: all of it is calls"),
    "time second": (with_time_second, lambda T: draw(4, T, 3), r"first dimension of 'x'.*x\.movedim\(1, 0\)"),
    "draws": (with_draws, sequence, r"random|rand"),
    "every second step": (with_every_second, sequence, r"program of an iteration|not written alike|other program"),
    "a running sum": (with_running_sum, sequence, r"cumsum.*is not an operation on elements"),
    "another place": (with_other_places, lambda T: (draw(T, 1, 5), draw(T, 5, 5)), r"it makes .* across time"),
    "no time": (lambda x: x * 2, lambda T: draw(4, 3), r"no argument has a size that changes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_loop_is_refused_by_name(name: str) -> None:
    function, make_inputs, message = REFUSED[name]
    with pytest.raises(RefusedError, match=f"(?s){message}"):
        bp.lower(function, make_inputs)


def truncated(x: Tensor) -> Tensor:
    """Truncated backpropagation: the forward is one loop, and the backward another from the fiftieth step on."""
    v, out = torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        v = (v.detach() if t and t % 50 == 0 else v) * 0.9 + x[t]
        out.append(v)
    return torch.stack(out)


def test_a_loop_that_changes_later_is_refused_and_longer_ones_than_seen_too() -> None:
    with pytest.raises(RefusedError, match=r"program of 64 steps is not the loop .* pass lengths=\(6, 7, 8, N\)"):
        bp.lower(truncated, sequence)
    lowered = bp.lower(truncated, sequence, lengths=(6, 7, 8, 20))
    assert (lowered.least, lowered.most) == (1, 20)
    assert "captured at 1, 2, 6, 7, 8 and 20 steps" in lowered.explain()
    assert "if T > 20:" in lowered.source
    with pytest.raises(UsageError, match="takes 1 to 20 steps, not 50"):
        lowered.check((7, 50))


def scanned(x: Tensor, number: Callable[[Tensor], float], w: Tensor | float = 1.0) -> Tensor:
    v, out = torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        v = v * number(x) + x[t] * w
        out.append(v)
    return torch.stack(out)


@pytest.mark.parametrize("other", [lambda n: n == 12, lambda n: 33 <= n < 63])
def test_a_program_that_branches_on_a_length_between_those_captured_is_refused(other: Callable[[int], bool]) -> None:
    with pytest.raises(RefusedError, match=r"program of (12|33) steps is not the loop .* how many there are"):
        bp.lower(lambda x: scanned(x, lambda x: 0.5 if other(len(x)) else 0.9), sequence)


@needs_triton
def test_more_steps_than_are_run_are_refused_but_for_those_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_STEPS_RUN", 10)
    lowered = bp.lower(lif, sequence, lengths=(6, 7, 8, 20))
    assert "for 1 to 10 and 20 steps and every shape" in lowered.explain()
    assert [lowered.takes(length) for length in (0, 1, 10, 11, 20, 21)] == [False, True, True, False, True, False]
    assert lowered.check((10, 20)).ok
    with pytest.raises(UsageError, match="takes 1 to 10 and 20 steps, not 15"):
        lowered.check((15,))
    with pytest.raises(ValueError, match=r"15 steps: .* at 1 to 10 and 20 steps"):
        lowered.load().lif(sequence(15))


class OfWidth(torch.nn.Module):
    def __init__(self, number: Callable[[Tensor], float]) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.rand(33))
        self.number = number

    def forward(self, x: Tensor) -> Tensor:
        return scanned(x, self.number, self.w)


@needs_triton
@pytest.mark.parametrize(
    ("number", "held"),
    [
        (lambda x: 0.9, "of 1 to 4 dimensions"),
        (lambda x: 0.9 if x.shape[-1] < 64 else 0.5, "of 1 to 4 dimensions, with state[-1] == 33"),
        (lambda x: 1 / x.shape[1], "of 2 dimensions, with state[-2] == 5"),
        (lambda x: 1 / math.sqrt(x[0].numel()), "of 2 dimensions, with state[-2] == 5, state[-1] == 33"),
    ],
)
def test_a_size_that_is_a_number_of_the_program_is_held(number: Callable[[Tensor], float], held: str) -> None:
    lowered = bp.lower(OfWidth(number), sequence, lengths=(6, 7, 8), name="scan")
    assert lowered.explain().splitlines()[0].endswith(f"every shape of the state, {held}"), lowered.explain()
    assert lowered.check((3,)).ok
    if "with" in held:
        with pytest.raises(ValueError, match=r"state\[-[12]\] is (7|40): this file was written for (5|33)"):
            lowered.load().scan(torch.rand(40), draw(4, 7, 40))


def test_a_state_with_a_dimension_of_one_may_be_wider() -> None:
    inputs = lambda steps: draw(steps, 1, 5)  # noqa: E731  # an argument
    for number, sizes in ((lambda x: 0.9, {}), (lambda x: 0.9 if x.shape[1] < 8 else 0.5, {-2: 1})):
        lowered = bp.lower(lambda x, number=number: scanned(x, number), inputs, lengths=(6, 7, 8))
        assert lowered.parts.limits.sizes == sizes


def test_states_of_other_dimensions_are_those_that_were_run() -> None:
    by_dimensions = lambda x: scanned(x, lambda x: 0.9 if x.dim() < 4 else 0.5)  # noqa: E731  # an argument
    assert bp.lower(by_dimensions, sequence, lengths=(6, 7, 8)).parts.limits.dimensions == (0, 2)


def centred(x: Tensor, shift: Tensor) -> Tensor:
    """The gradient of the shift is 0 in exact arithmetic."""
    v, out = torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        v = v * 0.9 + x[t]
        out.append(v + shift - (v + shift).mean(-1, keepdim=True))
    return torch.stack(out)


@needs_triton
def test_a_gradient_of_rounding_alone_is_not_wrong() -> None:
    inputs = lambda T: (draw(T, 4, 8), draw(4, 1))  # noqa: E731  # an argument
    lowered = bp.lower(centred, inputs, lengths=(6, 7, 8))
    comparison = lowered.check((1, 7))
    assert comparison.ok, comparison
    case = case_of_function(lowered, "7 steps", inputs(7), nudges=0)
    wrong = compare_port(case, "gradient shift", torch.full((4, 1), 1e-2), case.results["gradient shift"])
    assert not wrong.ok


@pytest.mark.parametrize(("lengths", "sums"), [((6, 7), "stages"), ((3, 4, 5), "stages"), ((6, 7, 8), "tree")])
def test_a_wrong_call_is_a_usage_error(lengths: tuple[int, ...], sums: str) -> None:
    with pytest.raises(UsageError):
        bp.lower(lif, sequence, lengths, sums=sums)


# ------------------------------------------------------------------ it runs


@needs_triton
def test_a_sum_of_no_steps_is_zero() -> None:
    def with_no_steps(x: Tensor) -> Tensor:
        v, out = x[:0].sum(0), []
        for t in range(x.shape[0]):
            v = v * 0.5 + x[t]
            out.append(v)
        return torch.stack(out)

    comparison = bp.lower(with_no_steps, sequence, lengths=(6, 7, 8)).check((1, 7))
    assert comparison.ok, comparison


@needs_triton
def test_it_is_right_at_lengths_that_were_not_captured() -> None:
    comparison = lowered_program("lif").check((1, 2, 7, 64))
    assert comparison.ok, comparison
    assert {row.size for row in comparison.rows} == {"1 step", "2 steps", "7 steps", "64 steps"}


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype"), [("lif", torch.float16), ("plif_channel", torch.bfloat16), ("s4d", torch.float64)]
)
def test_other_dtypes_are_right(name: str, dtype: torch.dtype) -> None:
    function, make_inputs = PROGRAMS[name]

    def cast(T: int) -> tuple[Tensor, ...]:
        inputs = make_inputs(T)
        tensors = inputs if isinstance(inputs, tuple) else (inputs,)
        return tuple(tensor.detach().to(dtype).requires_grad_() for tensor in tensors)

    program = PLIF(33).to(dtype) if isinstance(function, torch.nn.Module) else function
    comparison = lower_loop(program, cast, name=name).check((1, 2, 7, 64))
    assert comparison.ok, comparison


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("name", ["plif", "plif_channel", "plif_rows"])
def test_sums_by_atomics_are_right(name: str) -> None:
    function, make_inputs = PROGRAMS[name]
    comparison = lower_loop(function, make_inputs, sums="atomics", name=name).check((1, 7))
    assert comparison.ok, comparison


def test_a_difference_is_seen() -> None:
    lowered = lowered_program("lif")
    right = torch.ones(3)
    case = Case("7 steps", {}, (), {"output": right})
    assert compare_port(case, "output", right, right).ok
    assert not compare_port(case, "output", right + 1e-5, right).ok
    assert not compare_port(case, "output", right.double(), right).ok
    assert not compare_port(case, "output", torch.tensor([1.0, float("nan"), 1.0]), right).ok
    assert not compare_port(case, "output", None, right).ok
    half = torch.tensor([1.0, float("inf"), float("nan")]).half()
    exact = {"output": torch.tensor([1.0, 1e5, float("nan")], dtype=torch.float64)}
    wide = Case("7 steps", {}, (), {"output": half}, (), exact)
    assert compare_port(wide, "output", half, half).ok, "eager overflows where float64 does not"
    for numbers in ([1.1, 1.0, float("nan")], [1.0, 1.0, 1.0], [float("nan")] * 3):
        assert not compare_port(wide, "output", torch.tensor(numbers).half(), half).ok
    wrong = lowered.source.replace("v = v_1 * (1.0 - output_t)", "v = v_1 * (1.0 + output_t)")
    assert wrong != lowered.source


def run_alone(file: Path) -> subprocess.CompletedProcess[str]:
    """Run a file in a process that has torch and triton."""
    return subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)


@needs_triton
def test_a_file_compares_its_kernels_with_loops_of_pytorch(plif: bp.types.Lowered, tmp_path: Path) -> None:
    right = run_alone(plif.save(tmp_path / "right.py"))
    assert right.stdout == "right: 7 steps of (5, 33)\n", right.stderr
    kernels, mark, rest = plif.source.partition("class PlifLoop")
    (tmp_path / "wrong.py").write_text(
        kernels.replace("v_1 = v + (x_t - v) * decay", "v_1 = v + x_t * decay") + mark + rest
    )
    assert "AssertionError: output differs in" in run_alone(tmp_path / "wrong.py").stderr
    wrong = kernels.replace("tl.store(grad_x_ptr + at, grad_x_t", "tl.store(grad_x_ptr + at, grad_x_t + 1e-3")
    (tmp_path / "wrong.py").write_text(wrong + mark + rest)
    assert "AssertionError: grad_x differs in" in run_alone(tmp_path / "wrong.py").stderr


@needs_triton
def test_a_file_compares_steps_that_its_loop_takes(tmp_path: Path) -> None:
    def other_below_three(x: Tensor) -> Tensor:
        v, out = torch.zeros_like(x[0]), []
        for t in range(x.shape[0]):
            v = v * 0.5 + x[t] if x.shape[0] > 2 else v - x[t].sin()
            out.append(v)
        return torch.stack(out)

    lowered = bp.lower(other_below_three, sequence, lengths=(16, 17, 18))
    assert lowered.least == 16
    done = run_alone(lowered.save(tmp_path / "kernels.py"))
    assert done.stdout == "right: 16 steps of (5, 33)\n", done.stderr


MEMORIES = """
import os, sys
os.environ["TRITON_INTERPRET"] = "1"
import torch
sys.path[:0] = sys.argv[1:3]
import loop_programs, kernels

def compared(module, function, *inputs):
    leaves = [x for x in (*inputs, *getattr(module, "parameters", list)()) if x.requires_grad]
    results = []
    for call in (module, function):
        y = call(*inputs)
        results.append([y, *torch.autograd.grad(y.sum(), leaves)])
    return all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*results, strict=True))

def channel(x, w):
    model = loop_programs.PLIF(1)
    del model.w
    model.w = w
    return model(x)

def plif(x, w):
    return kernels.plif(w, x)

def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)

base = leaf(9, 33, 5)
assert compared(plif, channel, base.transpose(1, 2), leaf(33))
assert compared(plif, channel, leaf(9, 1, 1).expand(9, 5, 4), leaf(4))
assert compared(plif, channel, leaf(4, 2, 3, 5, 7), leaf(5, 1))
assert compared(plif, channel, leaf(4, 2, 3, 5), leaf(2, 1, 5))
assert compared(plif, channel, leaf(12, 2, 3)[::3], leaf(3))
w = torch.randn(33)
for wrong, error in ((leaf(0, 4, 33), ValueError), (leaf(3, 0, 33), ValueError), (leaf(3, 4, 33).double(), TypeError)):
    try:
        kernels.plif(w, wrong)
    except error as e:
        print(type(e).__name__, e)
    else:
        raise AssertionError(wrong.shape)
"""


@needs_triton
def test_other_shapes_and_memories_of_one_file(plif: bp.types.Lowered, tmp_path: Path) -> None:
    plif.save(tmp_path / "kernels.py")
    arguments = [sys.executable, "-c", MEMORIES, str(tmp_path), str(Path(__file__).parent)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["ValueError", "ValueError", "TypeError"]


MODULE = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import sys
sys.path.insert(0, sys.argv[1])
import torch, backprint as bp
from loop_programs import PLIF, adaptive, draw, sequence
model = PLIF(33)
module = bp.lower(model, sequence).module()
assert list(module.state_dict()) == list(model.state_dict()) and module.w is model.w
x = sequence(11)
torch.testing.assert_close(module(x), model(x))
module(x).sum().backward()
assert model.w.grad is not None and x.grad is not None
with torch.no_grad():
    assert not module(x).requires_grad
neuron = bp.lower(adaptive, lambda T: {"x": sequence(T), "v": draw(5, 33)}).module()
x, v = sequence(4), draw(5, 33)
torch.testing.assert_close(neuron(x, v=v), adaptive(x, v))
"""


@needs_triton
@pytest.mark.slow
def test_a_module_is_a_drop_in() -> None:
    arguments = [sys.executable, "-c", MODULE, str(Path(__file__).parent)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_are_compiled_without_a_gpu(plif: bp.types.Lowered, capability: int) -> None:
    kernels = plif.build(capability)
    assert [kernel.name for kernel in kernels] == ["plif_forward", "plif_backward"]
    for kernel in kernels:
        assert f".target sm_{capability}" in kernel.ptx
        assert kernel.cubin[:4] == b"\x7fELF"
        assert kernel.spilled in (0, None)


# ------------------------------------------------------------------ the command


def test_the_command_writes_a_file(tmp_path: Path) -> None:
    (tmp_path / "neuron_factory.py").write_text(
        textwrap.dedent("""
        import torch

        def leak(x):
            v, out = torch.zeros_like(x[0]), []
            for t in range(x.shape[0]):
                v = v * 0.5 + x[t]
                out.append(v)
            return torch.stack(out)

        def factory(steps):
            return leak, (torch.randn(steps, 4, requires_grad=True),)

        def refused(steps):
            return leak, (torch.randn(4, 4),)
        """)
    )
    out = tmp_path / "kernels.py"
    result = CliRunner().invoke(main, ["lower", f"{tmp_path}/neuron_factory.py:factory", "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert "leak: two kernels, one a direction" in result.output
    assert "def leak_backward(" in out.read_text()
    result = CliRunner().invoke(main, ["lower", f"{tmp_path}/neuron_factory.py:refused", "-o", str(out)])
    assert (result.exit_code, "exists already" in result.output) == (2, True)
    again = ["lower", f"{tmp_path}/neuron_factory.py:refused", "-o", str(out), "--overwrite"]
    assert CliRunner().invoke(main, again).exit_code == 1


def test_a_capture_of_a_loop_has_one_number_of_steps() -> None:
    capture = bp.capture(lif, sequence(6))
    assert isinstance(bp.lower(capture), bp.types.LoweredGraph)
    with pytest.raises(UsageError, match=r"pass its function or module"):
        bp.lower(capture, sequence)


def test_a_program_that_does_not_run_for_many_steps_is_refused_with_advice() -> None:
    table = [0.5] * 20

    def program(x: Tensor) -> Tensor:
        v, out = torch.zeros_like(x[0]), []
        for t in range(x.shape[0]):
            v = v * table[t] + x[t]
            out.append(v)
        return torch.stack(out)

    with pytest.raises(bp.errors.RefusedError, match="it raises IndexError: list index out of range; pass lengths="):
        bp.lower(program, lambda steps: (torch.randn(steps, 2, 3, requires_grad=True),), lengths=(6, 7, 8, 64))
