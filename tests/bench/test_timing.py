"""What times are made of: the waiting that is taken off, inputs that vary, inputs that are redrawn."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
import torch
from torch import Tensor

import backprint as bp
from face import (
    ALL,
    LARGER,
    NOT_EVERY_EIGHTH,
    NOT_FIRST,
    ONE_INPUT,
    ORDER,
    SMALLER,
    WAYS,
    Piece,
    TimingWithheld,
    VariedInputs,
    bench_graphs,
    candidates,
    changed_places,
    clocks,
    copies,
    fits_inputs,
    movement,
    redrawn_graphs,
    stages_within,
    varied_pieces,
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


def varied(inputs: list[Any], roles: list[str] | None = None, indices: tuple[int, ...] = ()) -> VariedInputs:
    return VariedInputs(copies(inputs), candidates(inputs, roles or ["input"] * len(inputs), indices), 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_two_calls_have_nearly_the_same_inputs(dtype: torch.dtype) -> None:
    inputs = [torch.randn(6, 7).to(dtype).t(), 3, torch.arange(4)]
    own, again, seen = varied(inputs), varied(inputs), []
    for number in random.Random(2).sample(range(2**62), 100):
        own.put_seed(number)
        again.put_seed(number)
        assert torch.equal(own.values[0], again.values[0])
        assert bool(own.values[0].abs().max() <= inputs[0].abs().max())
        seen.append(own.values[0].double().flatten())
    assert float(torch.cdist(torch.stack(seen), torch.stack(seen), p=torch.inf).fill_diagonal_(9).min()) > 0.2
    assert changed_places(own.values, inputs) == [0]
    own.put(inputs)
    assert changed_places(own.values, inputs) == []


def test_a_large_tensor_changes_in_a_window_and_indices_among_themselves() -> None:
    inputs = [torch.randn(400, 400), torch.randint(7, (9,)), torch.randn(30)]
    own = varied(inputs, ["parameter", "input", "input"], indices=(1,))
    own.put_seed(2**50 + 12345)
    assert 0 < int((own.values[0] != inputs[0]).sum()) <= 256
    own.put_seed(2**51 + 777)
    assert 0 < int((own.values[0] != inputs[0]).sum()) <= 256
    assert set(own.values[1].tolist()) <= set(inputs[1].tolist())


def test_contents_differ_in_every_way() -> None:
    inputs = [torch.randn(40), torch.randn(5, 8), torch.randn(300, 300)]
    pieces = [Piece(0, True), Piece(1, True), Piece(2, False)]
    own = VariedInputs(copies(inputs), pieces, 5, WAYS)
    changed: dict[str, list[list[Tensor]]] = {way: [] for way in WAYS}
    draw = random.Random(1)
    for number in range(200 * len(WAYS)):
        own.put_seed(draw.getrandbits(50) * len(WAYS) + number % len(WAYS))
        differ = [value != before for value, before in zip(own.values, inputs, strict=True)]
        changed[WAYS[number % len(WAYS)]].append(differ)
        if WAYS[number % len(WAYS)] == ORDER:
            assert all(torch.equal(*pair) for pair in zip(in_order(own.values), in_order(inputs), strict=True))
    assert all(all(bool(each.any()) for each in row) for row in changed[ALL])
    alone = [[place for place, each in enumerate(row) if bool(each.any())] for row in changed[ONE_INPUT]]
    assert {tuple(places) for places in alone} == {(0,), (1,), (2,)}
    for row in changed[NOT_FIRST]:
        assert not any(bool(each.flatten()[:8].any()) for each in row[:2])
        assert all(bool(each.any()) for each in row)
    for row in changed[NOT_EVERY_EIGHTH]:
        assert not any(bool(each.flatten()[::8].any()) for each in row[:2])
        assert all(bool(each.any()) for each in row)


@pytest.mark.parametrize(("way", "factor"), [(SMALLER, 2**-8), (LARGER, 2)])
def test_all_numbers_are_smaller_or_larger(way: str, factor: float) -> None:
    inputs = [torch.full((40,), 3.0), torch.full((5, 8), -2.0)]
    own = VariedInputs(copies(inputs), [Piece(0, True), Piece(1, True)], 5, (way,))
    own.put_seed(123)
    for value, before in zip(own.values, inputs, strict=True):
        times = value / (before * factor)
        assert 0.66 < float(times.min()) < float(times.max()) < 1.34


@pytest.mark.parametrize("way", WAYS)
def test_no_way_to_vary_gives_the_same_contents_twice(way: str) -> None:
    """Whoever remembers results by the whole contents would have those of an earlier call, and what that drew."""
    inputs = [torch.randn(30), torch.randn(5, 8)]
    own, seen = VariedInputs(copies(inputs), [Piece(0, True), Piece(1, True)], 5, (way,)), set()
    for number in range(100):
        own.put_seed(number * 0x9E3779B97F4A7C15 % 2**62)
        seen.add(tuple(value.numpy().tobytes() for value in own.values))
    assert len(seen) == 100


def test_every_input_is_varied_in_its_turn() -> None:
    """All at every call would take longer than a small graph does; those that are never varied could be ignored."""
    inputs = [torch.randn(3, 4) for _ in range(12)]
    pieces = varied_pieces(candidates(inputs, ["input"] * 12, ()), lambda found: True, lambda found: True)
    own, seen = VariedInputs(copies(inputs), pieces, 5), set()
    for number in random.Random(3).sample(range(2**62), 200):
        own.put_seed(number)
        changed = changed_places(own.values, inputs)
        assert len(changed) <= 3
        seen |= set(changed)
    assert seen == set(range(12))


def in_order(values: list[Any]) -> list[Tensor]:
    return [value.flatten().sort().values for value in values]


@pytest.mark.parametrize("inputs", [[torch.arange(5), 2], [torch.ones(1).expand(4)], []])
def test_inputs_that_cannot_vary_say_so(inputs: list[Any]) -> None:
    assert candidates(inputs, ["input"] * len(inputs), ()) == []


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
    own = VariedInputs(copies(inputs), [Piece(0, True)], 5, WAYS)
    own.set_mirrored(True)
    for number in range(2 * len(WAYS)):
        own.put_seed(number)
        assert own.changed() == []
    written = own.values[1]._values() if tensor.layout is torch.sparse_coo else own.values[1]
    with torch.no_grad():
        written.untyped_storage().fill_(1)
    assert own.changed() == [1]
    own.values[0].neg_()
    assert own.changed() == [0, 1]
    own.set_mirrored(False)
    own.put_seed(77)
    own.set_mirrored(True)
    assert own.changed() == []


def test_memory_that_inputs_share_is_varied_for_all_of_them() -> None:
    base = torch.randn(2, 6, 6)
    inputs = [base[0], base.view(12, 6), base.transpose(1, 2), torch.randn(3)]
    pieces = candidates(inputs, ["saved"] * 4, ())
    assert [piece.place for piece in pieces] == [1, 3]
    own = VariedInputs(copies(inputs), pieces, 5, WAYS)
    own.set_mirrored(True)
    for number in range(len(WAYS)):
        own.put_seed(12345 * len(WAYS) + number)
        assert torch.equal(own.values[0], own.values[1].view(2, 6, 6)[0])
        assert own.changed() == []
    assert not torch.equal(own.values[2], inputs[2])
    whole = torch.randn(8)
    assert candidates([whole[:3], whole[2:]], ["saved"] * 2, ()) == []
    assert candidates([whole, whole.view(torch.int32)], ["saved"] * 2, ()) == []


def test_a_tensor_that_was_given_other_memory_is_seen() -> None:
    own = VariedInputs([torch.randn(6), torch.randn(2, 3)], [Piece(0, True)], 5)
    own.set_mirrored(True)
    own.values[0].set_(torch.ones(6))
    own.values[1].t_()
    assert own.changed() == [0, 1]


def test_pieces_with_which_eager_raises_are_left_out() -> None:
    inputs = [torch.ones(8), torch.randn(8)]
    pieces = candidates(inputs, ["input"] * 2, ())
    kept = varied_pieces(pieces, lambda found: all(piece.place for piece in found), lambda found: True)
    assert [piece.place for piece in kept] == [1]


def test_contents_go_into_expanded_and_shared_memory() -> None:
    base, other = torch.randn(4), torch.randn(4)
    values = [base, base[1:3], torch.randn(1, 3).expand(5, 3)]
    others = [other, other[1:3], torch.randn(1, 3).expand(5, 3)]
    own = VariedInputs(copies(values), (), 1)
    assert fits_inputs(own.values, others)
    own.put(others)
    assert changed_places(own.values, others) == []
    assert own.values[0].data_ptr() + 4 == own.values[1].data_ptr()


def test_other_shapes_and_numbers_do_not_fit() -> None:
    assert not fits_inputs([torch.ones(2)], [torch.ones(3)])
    assert not fits_inputs([2], [3])
    assert not fits_inputs([torch.ones(2)], [torch.ones(2).double()])


def test_an_output_that_no_input_moves_has_no_power() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sin(), torch.zeros_like(x) + 2

    capture = bp.capture(f, torch.randn(4, requires_grad=True))
    graphs = bench_graphs(capture)
    others = redrawn_graphs(capture, graphs)
    moved = dict(zip(graphs[0].run.outputs, movement(graphs[0].run, [each[0].run for each in others]), strict=True))
    assert sorted(moved[port] for port in moved if port[0] == "output") == [False, True]


def test_a_backward_gets_what_its_forward_saved_from_the_other_inputs() -> None:
    capture = bp.capture(torch.nn.Linear(3, 2), torch.randn(4, 3))
    graphs = bench_graphs(capture)
    [first, second] = redrawn_graphs(capture, graphs)
    assert first[0].run.inputs[0].shape == graphs[0].run.inputs[0].shape
    assert not torch.equal(first[1].run.results[0], second[1].run.results[0])
