"""What times are made of, the contents of calls, and inputs that are redrawn."""

from __future__ import annotations

import time

import pytest
import torch
from torch import Tensor

import backprint as bp
from face import (
    CompiledCalls,
    TimingWithheld,
    bench_graphs,
    changed_places,
    clocks,
    contents_that_fit,
    copies,
    moving_outputs,
    redrawn_graphs,
    stages_within,
)


def sleeps(seconds: float) -> float:
    spent, _ = clocks.timed(time.sleep, (seconds,), short=False)
    return spent * 1e-9


def test_a_sleep_takes_its_time() -> None:
    assert sleeps(0.02) >= 0.02 * 0.9


def test_waiting_for_a_processor_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter([1_000_000, 9_000_000])
    monkeypatch.setattr(clocks, "counts_of_thread", lambda: 0)
    monkeypatch.setattr(clocks, "waited", lambda counts: next(waits))
    begun = time.perf_counter()
    spent = sleeps(0.02)
    assert 0.011 < spent <= time.perf_counter() - begun - 0.008


def test_waiting_before_the_call_is_not_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter([1_000_000, 9_000_000])

    def waited(counts: int) -> int:
        time.sleep(0.01)
        return next(waits)

    monkeypatch.setattr(clocks, "counts_of_thread", lambda: 0)
    monkeypatch.setattr(clocks, "waited", waited)
    assert sleeps(0.02) >= 0.02 * 0.9


def test_work_of_other_threads_is_not_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, worked = iter([0, 10**9]), iter([0, 10**9])
    monkeypatch.setattr(clocks, "counts_of_thread", lambda: 0)
    monkeypatch.setattr(clocks, "waited", lambda counts: next(waits))
    monkeypatch.setattr(clocks, "PROCESSOR", lambda: next(worked))
    assert sleeps(0.02) >= 0.02 * 0.9


def test_slower_calls_get_fewer_rounds_but_enough() -> None:
    assert stages_within(0.001, 60) == (40, 80, 160, 320)
    assert stages_within(0.06, 60) == (40, 80, 160)
    assert stages_within(0.5, 60) == (20,)
    with pytest.raises(TimingWithheld, match="20 rounds would take 80 s, more than 60"):
        stages_within(4.0, 60)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([1.0, float("nan"), -0.0, 0.0]),
        torch.randn(4, 6)[:, ::2],
        torch.randn(1, 3).expand(4, 3),
        torch.randn(4, dtype=torch.complex64).conj(),
        torch.tensor([True, False]),
        torch.eye(3).to_sparse(),
    ],
)
def test_whoever_writes_into_an_input_is_seen(tensor: Tensor) -> None:
    inputs = [torch.randn(40), tensor, 3]
    values = copies(inputs)
    assert changed_places(values, inputs) == []
    written = values[1]._values() if tensor.layout is torch.sparse_coo else values[1]
    with torch.no_grad():
        written.untyped_storage().fill_(1)
    assert changed_places(values, inputs) == [1]
    values[0].neg_()
    assert changed_places(values, inputs) == [0, 1]


def test_contents_go_into_expanded_and_shared_memory() -> None:
    base, other = torch.randn(4), torch.randn(4)
    values = [base, base[1:3], torch.randn(1, 3).expand(5, 3)]
    others = [other, other[1:3], torch.randn(1, 3).expand(5, 3)]
    assert list(contents_that_fit(values, [others])) == [others]
    calls = CompiledCalls(lambda *given: (given[0] + 1,), copies(values), [])
    before = calls.values[0].data_ptr()
    assert torch.equal(calls.call(others).results[0], other + 1)
    assert changed_places(calls.values, others) == []
    assert before + 4 == calls.values[1].data_ptr()


def test_other_shapes_and_numbers_do_not_fit() -> None:
    for own, other in (([torch.ones(2)], [torch.ones(3)]), ([2], [3]), ([torch.ones(2)], [torch.ones(2).double()])):
        assert list(contents_that_fit(own, [other])) == []


def test_an_output_that_no_input_moves_has_no_power() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sin(), torch.zeros_like(x) + 2

    capture = bp.capture(f, torch.randn(4, requires_grad=True))
    graphs = bench_graphs(capture)
    others = redrawn_graphs(capture, graphs)
    moved = dict(
        zip(graphs[0].run.outputs, moving_outputs(graphs[0].run, [each[0].run for each in others]), strict=True)
    )
    assert sorted(moved[port] for port in moved if port[0] == "output") == [False, True]


def test_a_backward_gets_what_its_forward_saved_from_the_other_inputs() -> None:
    capture = bp.capture(torch.nn.Linear(3, 2), torch.randn(4, 3))
    graphs = bench_graphs(capture)
    [first, second, _] = redrawn_graphs(capture, graphs)
    assert first[0].run.inputs[0].shape == graphs[0].run.inputs[0].shape
    assert not torch.equal(first[1].run.results[0], second[1].run.results[0])
