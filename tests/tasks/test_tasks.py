"""Tasks: what a folder holds, that it is read without running anything of it, and sets of them."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import backprint as bp
from face import (
    RefusedError,
    ReplayError,
    Rounds,
    SampleError,
    TimedBeside,
    UsageError,
    judge_together,
    program_of,
    read_task,
    solution_of_text,
)
from face import solving_digest as digest
from face import solving_same_bits as same_bits


class Block(nn.Module):
    """A norm, a product, and a dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.drop = nn.LayerNorm(8), nn.Linear(8, 8), nn.Dropout(0.25)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(torch.relu(self.up(self.norm(x))))


@pytest.fixture(scope="module")
def capture() -> bp.Capture:
    torch.manual_seed(0)
    return bp.capture(nn.Sequential(Block(), Block()).train(), torch.randn(3, 8, requires_grad=True))


@pytest.fixture(scope="module")
def folder(capture: bp.Capture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The task of the second block."""
    place = tmp_path_factory.mktemp("task") / "T"
    bp.tasks.make(capture, place, part="1")
    return place


def test_the_folder_has_what_a_solver_needs(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    assert names == {"README.md", "inputs.py", "reference.py", "sample", "solution.py", "task.json"}
    readme = (folder / "README.md").read_text()
    assert "| in | `draw of div_1` | rng | float32 | [3, 8] | – |" in readme
    assert "[1.norm] " in readme
    task = json.loads((folder / "task.json").read_text())
    assert task["step"]["bytes"] > task["forward"]["bytes"] > 0
    assert all(row["allowed"] > row["error_of_eager"] for row in task["tolerances"])
    compile((folder / "solution.py").read_text(), "solution.py", "exec")


def test_the_reference_stands_alone(folder: Path) -> None:
    inputs = runpy.run_path(str(folder / "inputs.py"))["draw"](3)
    reference = runpy.run_path(str(folder / "reference.py"))["Reference"]
    x, *weights, mask = (value.clone().requires_grad_() for value in inputs)

    def block(norm: Tensor, shift: Tensor, up: Tensor, bias: Tensor) -> Tensor:
        hidden = nn.functional.layer_norm(x, (8,), norm, shift)
        return x + torch.relu(nn.functional.linear(hidden, up, bias)) * mask

    expected = block(*weights)
    (result,) = reference.apply(x, *weights, mask)
    torch.testing.assert_close(result, expected)
    tangent = torch.randn_like(expected)
    ours, theirs = (torch.autograd.grad(value, [*weights, x], tangent) for value in (result, expected))
    torch.testing.assert_close(ours, theirs)
    assert (folder / "reference.py").read_text().count("backprint") == 0


def test_the_reference_of_a_task_can_be_swapped_in(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(4, 5), nn.Sequential(nn.LayerNorm(5), nn.Linear(5, 3))), torch.randn(6, 4)
    bp.tasks.make(bp.capture(model, x), tmp_path / "T", part="1")
    solution = runpy.run_path(str(tmp_path / "T" / "reference.py"))["Solution"]

    class One(solution):  # type: ignore[misc,valid-type]
        """The module returns a tensor, and the reference of a task a tuple."""

        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Tensor:
            return solution.forward(ctx, *inputs)[0]  # type: ignore[no-any-return]

    assert bp.swap(model, "1", One).prove(x).verdict == "good"


def test_inputs_are_drawn_anew(folder: Path) -> None:
    names = runpy.run_path(str(folder / "inputs.py"))
    first, again, other = (names["draw"](seed) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    x = next(value for value in first if value.dim() == 2)
    assert all(torch.equal(names[kind](x), x) for kind in ("transposed", "strided", "sliced"))
    assert names["with_edge"](x, float("nan")).isnan().any()


@pytest.mark.parametrize(
    ("file", "before", "after", "problem"),
    [
        ("reference.py", "aten.relu.default", "aten.neg.default", "reference.py is not the sample's program"),
        ("task.json", '"format": 1', '"format": 9', "format 9"),
        ("task.json", '"dtype": "float32"', '"dtype": "float64"', "not that of its sample"),
        ("task.json", "{", "", "cannot be read as JSON"),
        ("sample/capture.json", "{", "", "cannot be read as JSON"),
    ],
)
def test_a_changed_folder_is_refused(
    folder: Path, tmp_path: Path, file: str, before: str, after: str, problem: str
) -> None:
    import shutil

    place = shutil.copytree(folder, tmp_path / "T")
    (place / file).write_text((place / file).read_text().replace(before, after, 1))
    with pytest.raises(SampleError, match=problem):
        bp.tasks.check(place, folder / "solution.py")


@pytest.mark.slow
def test_nothing_of_the_folder_is_run(folder: Path, tmp_path: Path) -> None:
    import shutil

    place = shutil.copytree(folder, tmp_path / "T")
    for name in ("inputs.py", "solution.py"):
        (place / name).write_text(f"raise SystemExit({name!r})")
    right = folder / "reference.py"
    assert bp.tasks.check(place, right, timed=False, first=True).good


def test_what_cannot_be_a_task_is_refused(capture: bp.Capture, tmp_path: Path) -> None:
    place = tmp_path / "T"
    with pytest.raises(UsageError, match=r"no step of Sequential comes from such a module: it has 0\.norm"):
        bp.tasks.make(capture, place, part="blocks.7")
    with pytest.raises(RefusedError, match="has no backward"):
        bp.tasks.make(bp.capture(lambda x: x.argmax(), torch.randn(3)), place)
    with pytest.raises(RefusedError, match="no output moves"):
        bp.tasks.make(bp.capture(lambda x: x * 0 + 1, torch.randn(3, requires_grad=True)), place)
    with pytest.raises(UsageError, match="no such file"):
        bp.tasks.check(place, tmp_path / "missing.py")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_taken_is_left_alone(capture: bp.Capture, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="exists and is not a task"):
        bp.tasks.make(capture, tmp_path)
    with pytest.raises(UsageError, match="exists already"):
        bp.tasks.make(capture, folder)


def test_the_report_names_the_worst_element(folder: Path, tmp_path: Path) -> None:
    text = (folder / "reference.py").read_text()
    place = tmp_path / "solution.py"
    place.write_text(text.replace("shown = tuple(results[place].clone()", "shown = tuple(results[place] * 1.01"))
    report = bp.tasks.check(folder, place, timed=False, first=True)
    assert report.first is not None
    assert report.first.value == pytest.approx(1.01 * report.first.wanted)
    assert report.reason.startswith("forward, float32: ")
    lines = str(report).splitlines()
    assert len(lines) <= 6
    assert f"{list(report.first.index)} is " in lines[1]
    assert report.as_json()["fast_1"] is False


@pytest.mark.slow
def test_memory_of_the_judge_is_not_the_solutions(folder: Path) -> None:
    assert bp.tasks.check(folder, folder / "reference.py", timed=False, memory=0.15).good


@pytest.mark.slow
def test_several_solutions_are_judged_by_the_same_contents(folder: Path) -> None:
    text = (folder / "reference.py").read_text()
    wrong = text.replace("shown = tuple(results[place].clone()", "shown = tuple(results[place] * 1.01")
    solutions = [
        ("wrong", solution_of_text(wrong)),
        ("right", solution_of_text(text)),
        ("no", solution_of_text("1 / 0")),
    ]
    reports = judge_together(read_task(folder), solutions, first=True)
    assert [(report.solution, report.right) for report in reports] == [("wrong", False), ("right", True), ("no", False)]
    assert len({report.seed for report in reports}) == 1


@pytest.mark.slow
def test_the_reference_is_right_in_any_memory_of_its_inputs(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8)).eval()  # torch 2.13 misreads strided weights here
    bp.tasks.make(bp.capture(model, torch.randn(2, 3, 1)), tmp_path / "T")
    report = bp.tasks.check(tmp_path / "T", tmp_path / "T" / "reference.py", timed=False)
    assert report.good, report


@pytest.mark.slow
def test_the_reference_need_not_take_another_count_of_a_mask(tmp_path: Path) -> None:
    def filled(x: Tensor, word: Tensor, mask: Tensor) -> Tensor:
        x = x * 2
        x[mask] = word  # the captured backward reads as many rows as the mask had
        return x

    x, word = torch.randn(2, 5, 4, requires_grad=True), torch.randn(4, requires_grad=True)
    bp.tasks.make(bp.capture(filled, x, word, torch.rand(2, 5) < 0.4), tmp_path / "T")
    report = bp.tasks.check(tmp_path / "T", tmp_path / "T" / "reference.py", timed=False)
    assert report.good, report


@pytest.mark.slow
def test_a_kernel_that_is_wrong_in_float64_alone_is_right(tmp_path: Path) -> None:
    class Attention(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, shown: Tensor) -> Tensor:
            return nn.functional.scaled_dot_product_attention(q, k, v, shown)

    q, k, v = (torch.randn(1, 2, 6, 4, requires_grad=True) for _ in range(3))
    bp.tasks.make(bp.capture(Attention(), q, k, v, torch.ones(1, 1, 6, 6).tril().bool()), tmp_path / "T")
    report = bp.tasks.check(tmp_path / "T", tmp_path / "T" / "reference.py", timed=False)
    assert report.good, report


@pytest.mark.slow
def test_a_surrogate_gradient_is_not_held_against_a_solution(tmp_path: Path) -> None:
    class Spike(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, v: Tensor) -> Tensor:
            ctx.save_for_backward(v)
            return (v > 0).to(v.dtype)

        @staticmethod
        def backward(ctx: Any, tangent: Tensor) -> Tensor:
            (v,) = ctx.saved_tensors
            return tangent / (1 + v * v)

    def neuron(x: Tensor, w: Tensor) -> Tensor:
        return Spike.apply(x * w - 0.1) * w  # type: ignore[no-any-return]

    inputs = torch.randn(4, 8, requires_grad=True), torch.rand(8, requires_grad=True)
    task = bp.tasks.make(bp.capture(neuron, *inputs), tmp_path / "T")
    assert not task.is_derivative
    assert "as the model's author wants it" in (tmp_path / "T" / "README.md").read_text()
    assert bp.tasks.check(tmp_path / "T", tmp_path / "T" / "reference.py", timed=False).good


@pytest.mark.slow
def test_a_tangent_of_one_result_is_not_taken_for_that_of_another(tmp_path: Path) -> None:
    def halves(x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = (x * 2).split(1, -1)
        return first, second

    bp.tasks.make(bp.capture(halves, torch.randn(5, 2, requires_grad=True)), tmp_path / "T")
    report = bp.tasks.check(tmp_path / "T", tmp_path / "T" / "reference.py", timed=False)
    assert report.good, report


@pytest.mark.slow
def test_a_right_solution_is_timed(folder: Path) -> None:
    report = bp.tasks.check(folder, folder / "reference.py")
    assert report.good
    assert report.untimed or [time.what for time in report.times] == ["forward", "step"]
    assert all(0 < time.low <= time.faster <= time.high for time in report.times)
    assert not report.fast_2


@pytest.mark.slow
def test_a_set_has_each_different_part_once(capture: bp.Capture, tmp_path: Path) -> None:
    for name in ("one", "two"):
        bp.save(capture, tmp_path / "pairs" / name)
    task_set = bp.tasks.make_set(tmp_path / "pairs", tmp_path / "set", by="module:1", least=2)
    again = bp.tasks.make_set(tmp_path / "pairs", tmp_path / "set", by="module:1", least=2)
    assert task_set.rows == again.rows
    assert [row["occurs"] for row in task_set.rows] == [4]
    (row,) = task_set.rows
    assert bp.tasks.check(
        tmp_path / "set" / row["path"], tmp_path / "set" / row["path"] / "reference.py", timed=False
    ).good
    assert "1 different parts" in (tmp_path / "set" / "README.md").read_text()
    assert json.loads((tmp_path / "set" / row["path"] / "task.json").read_text())["occurs"] == 4


def test_bits_of_one_element_with_a_stride_of_0() -> None:
    value = torch.ones(()).expand(1)
    assert same_bits(value, torch.ones(1))
    assert not same_bits(value, torch.zeros(1))
    assert digest([value]) == digest([torch.ones(()).expand(1)])


@pytest.mark.slow
def test_a_sample_that_ends_its_process_is_no_task_and_is_left_out_of_a_set(
    capture: bp.Capture, tmp_path: Path
) -> None:
    bad, good = tmp_path / "pairs" / "bad", tmp_path / "pairs" / "good"
    for place in (bad, good):
        bp.save(capture, place)
    model = bad / "pair_0/forward/model.py"
    sizes = "        s = aten.ones.default([0, 3], dtype=torch.int64)\n"
    call = "        e = aten._nested_compute_contiguous_strides_offsets.default(s)\n"
    model.write_text(model.read_text().replace("        return (", f"{sizes}{call}        return (", 1))
    with pytest.raises(ReplayError, match=r"bad did not run to its end, so it is no task: killed by SIGSEGV"):
        bp.tasks.make(bad, tmp_path / "T")
    assert not (tmp_path / "T").exists()
    assert bp.tasks.make(good, tmp_path / "T", name="one").name == "one"
    with pytest.raises(UsageError, match=r"capture it here with these options, and pass the Capture"):
        bp.tasks.make(good, tmp_path / "U", loss=len)
    task_set = bp.tasks.make_set(tmp_path / "pairs", tmp_path / "set", by="whole")
    assert [row["places"] for row in task_set.rows] == [["good"]]
    [(name, why)] = task_set.skipped
    assert (name, why[:17]) == ("bad", "killed by SIGSEGV")
    assert bp.tasks.make_set(tmp_path / "pairs", tmp_path / "set", by="whole") == task_set


class NoProcess:
    """What a process shows of itself before the first batch is sent."""

    schedule = ""

    def stop(self) -> None:
        pass


def test_a_timed_call_may_add_up_in_another_order_and_be_nothing_else() -> None:
    """The gradient of a bias in front of a normalization is 0 but for rounding, and another order of its sum leaves
    another rounding."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(4, 4))
    program = program_of(bp.capture(model, torch.randn(2, 3, 12, 12)))
    names = [port.name for port in program.inputs]

    def results_of(tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
        *values, tangent = [tensor.to(dtype) for tensor in tensors]
        leaves = {name: value.requires_grad_(name in program.wanted) for name, value in zip(names, values, strict=True)}
        copy = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(4, 4)).to(dtype)
        state = {name: value for name, value in leaves.items() if name in dict(copy.named_parameters())}
        (x,) = (value for name, value in leaves.items() if name not in state)
        output = torch.func.functional_call(copy, state, (x,))
        gradients = torch.autograd.grad(output, [leaves[name] for name in names if name in program.wanted], tangent)
        return [output.detach().float(), *(gradient.float() for gradient in gradients)]

    rounds = Rounds(program, [NoProcess()] * 3, 0, True, {})
    batch = rounds.batch()
    (tensors,) = batch.sets
    eager, other = results_of(tensors, torch.float32), results_of(tensors, torch.float64)
    bias = 1 + [name for name in names if name in program.wanted].index("0.bias")
    assert (eager[bias] - other[bias]).abs().max() > 10 * other[bias].abs().max()
    assert rounds.fault_of_results(batch, other, eager) == ""
    wrong = [*other]
    wrong[bias] = other[bias] + 0.01
    assert "0.bias of a timed call is off by 0.01, where" in rounds.fault_of_results(batch, wrong, eager)
    wrong = [other[0] * 1.001, *other[1:]]
    assert "of a timed call is off by" in rounds.fault_of_results(batch, wrong, eager)


def test_a_timed_step_differentiates_a_result_behind_one_without_a_tangent() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    program = program_of(bp.capture(lambda x: (x > 0, x * 3), x))
    with TimedBeside(program, limit=60.0) as beside:
        eager, _ = beside.processes
        rounds = Rounds(program, [eager] * 3, 0, True, {})
        batch = rounds.batch()
        try:
            _, _, gradient = rounds.time_batch(1, batch).results
        finally:
            eager.go_on()
    [[_, tangent]] = batch.sets
    assert torch.equal(gradient, tangent * 3)
