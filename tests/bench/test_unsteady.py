"""Graphs that eager does not repeat, and inputs that eager does not accept when they change: no compiler is blamed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import backprint as bp
from face import (
    BenchOutput,
    Eager,
    apart,
    bench_graphs,
    child_tensors,
    judged,
    notes_of_outputs,
    on_cpu,
    outcome_of_outputs,
)

OWN = Path(__file__).with_name("own_compilers.py")

SCALES = torch.tensor([0.5, 2.0, 3.0])


class ScaledBackward(torch.autograd.Function):
    """A function whose backward takes a tensor that its forward does not have."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * SCALES


def test_a_step_takes_the_constants_of_its_backward(tmp_path: Path, cells_of: Any) -> None:
    x = torch.randn(4, 3, requires_grad=True)
    capture = bp.capture(lambda x: ScaledBackward.apply(x).sin().sum(), x)
    assert "constant" in {port.role for port in capture.pairs[0].backward.inputs}
    bp.save(capture, tmp_path / "sample")
    cells = cells_of(bp.load(tmp_path / "sample"), "aot_eager", ("forward", "backward", "step"))
    assert {cell.graph: cell.outcome for cell in cells.values()} == {
        "pair_0 forward": "untimed",
        "pair_0 backward": "untimed",
        "pair_0 step": "untimed",
    }


def test_a_mask_that_eager_checks_is_not_varied(tmp_path: Path, cells_of: Any) -> None:
    torch.manual_seed(0)
    capture = bp.capture(nn.MultiLabelMarginLoss(), torch.randn(3, 5), torch.randint(0, 5, (3, 5)), mode="train")
    bp.save(capture, tmp_path / "sample")
    cell = cells_of(bp.load(tmp_path / "sample"), "eager", ["backward"], timed=True)["backward"]
    assert cell.right, (cell.outcome, cell.reason)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["eager", f"{OWN}:right"])
def test_memory_that_no_operator_writes_is_not_judged(compiler: str, tmp_path: Path, cells_of: Any) -> None:
    torch.manual_seed(0)
    values, targets = torch.randn(12, 2, 6).log_softmax(2).requires_grad_(), torch.randint(1, 6, (2, 4))
    lengths = torch.tensor([12, 5]), torch.tensor([4, 2])
    capture = bp.capture(lambda values: nn.functional.ctc_loss(values, targets, *lengths), values)
    bp.save(capture, tmp_path / "sample")
    cells = cells_of(bp.load(tmp_path / "sample"), compiler, ("forward", "backward", "step"))
    assert [cell.outcome for cell in cells.values()] == ["untimed"] * 3, [cell.reason for cell in cells.values()]


def test_memory_that_two_runs_find_alike_by_chance_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    values, targets = torch.randn(12, 2, 6).log_softmax(2).requires_grad_(), torch.randint(1, 6, (2, 4))
    lengths = torch.tensor([12, 5]), torch.tensor([4, 2])
    graph = bench_graphs(bp.capture(lambda v: nn.functional.ctc_loss(v, targets, *lengths), values))[0]
    place = [name for _, name in graph.run.outputs].index("ctc_loss_1")
    filled = Eager(graph.run, graph.module).filled[place]
    results = list(graph.run.results)
    results[place] = results[place].masked_fill(filled.isnan(), 3.0)  # of what was there, whatever it was
    monkeypatch.setattr(Eager, "again", results)
    monkeypatch.setattr(Eager, "wide", "no float64 run: it has other numbers there, or NaN")
    eager = Eager(replace(graph.run, results=tuple(results)), graph.module)
    unwritten, written = results[place].clone(), results[0] * 2
    unwritten[1, 11, 8] = torch.inf
    assert judged(eager, place, unwritten) == ("nondeterministic", "it has memory that no operator writes")
    unwritten[0, 3, 2] *= 2
    assert judged(eager, place, unwritten)[0] == "wrong"
    assert judged(eager, 0, written)[0] == "wrong"
    assert not torch.are_deterministic_algorithms_enabled()


# ------------------------------------------------------------------ the rule


class VaryingProgram:
    """A program whose results vary from call to call by this much, relative to the largest."""

    def __init__(self, by: float) -> None:
        self.by, self.calls = by, 0

    def __call__(self) -> Callable[..., Any]:
        return self.called

    def widened(self) -> VaryingProgram:
        return self

    def called(self, *values: Any) -> list[Tensor]:
        self.calls += 1
        return [torch.tensor([1.0, 0.5 * (1 + self.by * self.calls)])]


def eager_of(by: float) -> Eager:
    program = VaryingProgram(by)
    again = lambda function, *values, seed=None: function()  # noqa: E731
    run = SimpleNamespace(inputs=[], results=program.called(), outputs=[("output", "y")], module=program, again=again)
    run.random = torch.get_rng_state(), ()
    return Eager(run, lambda *values: program.called())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("by", "found", "word"),
    [
        (1e-6, [1.0, 0.5], "close"),
        (1e-6, [1.0, 0.6], "wrong"),
        (1e-6, [2.0, 0.5], "wrong"),
        (0.5, [1.0, 0.6], "nondeterministic"),
    ],
)
def test_what_eager_repeats_within_its_tolerance_is_judged(by: float, found: list[float], word: str) -> None:
    assert judged(eager_of(by), 0, torch.tensor(found))[0] == word


def output(role: str, word: str) -> BenchOutput:
    return BenchOutput(role, "y", word, "two eager runs give different values", "float32", (2,), "float32", (2,), False)


@pytest.mark.parametrize(
    ("outputs", "outcome"),
    [
        ([("output", "close"), ("saved", "nondeterministic")], ""),
        ([("output", "nondeterministic"), ("saved", "bitwise")], "nondeterministic"),
        ([("saved", "nondeterministic"), ("saved", "close")], "nondeterministic"),
        ([("output", "wrong"), ("saved", "nondeterministic")], "wrong"),
    ],
)
def test_a_graph_is_judged_without_a_saved_value_that_varies(outputs: list[tuple[str, str]], outcome: str) -> None:
    made = [output(*each) for each in outputs]
    assert outcome_of_outputs(made)[0] == outcome
    assert bool(notes_of_outputs(made)) == any(word == "nondeterministic" for _, word in outputs)


# ------------------------------------------------------------------ GPUs


def test_workers_see_gpus_only_for_samples_that_may_be_there() -> None:
    assert on_cpu({"device": None})
    assert on_cpu({})
    assert not on_cpu({"device": None, "gpus": True})
    assert not on_cpu({"device": "cuda:1"})


def test_results_that_are_held_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_tensors, "MOST_HELD", 3 * 1024)
    budget = child_tensors.HeldBudget()
    assert [budget.hold_if_room(1024) for _ in range(4)] == [True, True, True, False]
    assert child_tensors.HeldBudget().hold_if_room(1 << 40)


# ------------------------------------------------------------------ rounding


def eager_run_of(program: Callable[..., Any], *inputs: Tensor) -> Eager:
    """Eager runs of a function as the rule sees them; float64 by widening its inputs."""

    class Form:
        def __call__(self) -> Callable[..., Any]:
            return program

        def widened(self) -> Form:
            return self

    state = torch.get_rng_state()

    def again(function: Callable[..., Any], values: Any = None, seed: int | None = None) -> Any:
        torch.set_rng_state(state)
        if seed is not None:
            torch.manual_seed(seed)
        return function(*(value.clone() for value in (inputs if values is None else values)))

    results = program(*inputs)
    outputs = [("output", f"y{place}") for place in range(len(results))]
    run = SimpleNamespace(inputs=list(inputs), results=results, outputs=outputs, module=Form(), again=again)
    run.random = state, ()
    return Eager(run, program)  # type: ignore[arg-type]


def test_a_mean_that_cancels_may_round_as_its_terms_do() -> None:
    torch.manual_seed(0)
    x = 200 * torch.randn(1, 4, 64, 64)
    x = x - x.mean((0, 2, 3), keepdim=True) + 1e-3

    def program(x: Tensor) -> list[Tensor]:
        return list(torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5))

    eager = eager_run_of(program, x)
    other = eager.run.results[1] + 2 * 200 * torch.finfo(torch.float32).eps
    assert apart(other, eager.run.results[1]) > 1e-3
    assert judged(eager, 1, other)[0] == "close"
    assert judged(eager, 1, eager.run.results[1] + 0.1)[0] == "wrong"
    changed = eager.run.results[0].clone()
    changed[0, 1, 3, 5] += 1e-2 * changed.abs().max()
    assert judged(eager, 0, changed)[0] == "wrong"


def test_an_index_between_equal_values_may_be_either() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 3, 16, 16)
    x[0, 0, 0, 1] = x[0, 0, 0, 0] = 9.0
    x[0, 0, 0, 1] *= 1 + 2**-22

    def program(x: Tensor) -> list[Tensor]:
        return list(nn.functional.max_pool2d_with_indices(x * 1.5, 2))

    eager = eager_run_of(program, x)
    tied, elsewhere = eager.run.results[1].clone(), eager.run.results[1].clone()
    assert int(tied[0, 0, 0, 0]) == 1
    tied[0, 0, 0, 0] = 0
    assert judged(eager, 1, tied)[0] == "close"
    elsewhere[0, 2, 5, 5] += 1
    assert judged(eager, 1, elsewhere)[0] == "wrong"


def test_random_numbers_are_no_excuse_for_nan() -> None:
    def program(x: Tensor) -> list[Tensor]:
        return [x * torch.rand_like(x)]

    eager = eager_run_of(program, torch.ones(8))
    word, detail = judged(eager, 0, torch.full((8,), torch.nan))
    assert word == "wrong"
    assert "eager never has" in detail


def test_sums_of_16_bit_numbers_are_added_up_in_float32() -> None:
    torch.manual_seed(0)
    norm = torch.nn.LayerNorm(300).bfloat16()
    graph = bench_graphs(bp.capture(norm, torch.randn(6, 300).bfloat16(), mode="train"))[0]
    mean = next(place for place, value in enumerate(graph.run.results) if value.shape == (6, 1))
    eager = Eager(graph.run, graph.module)
    assert judged(eager, mean, graph.run.results[mean] * 1.25)[0] == "wrong"
    assert judged(eager, mean, graph.run.results[mean] * (1 + 2**-8))[0] == "close"
