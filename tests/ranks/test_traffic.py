"""What ranks send each other, the model of when, and what a step's peak is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import backprint as bp

if not dist.is_available():
    pytest.skip("this torch is built without torch.distributed", allow_module_level=True)

import torch.distributed._functional_collectives as collectives
from subjects.sharded import programs

from face import (
    COLLECTIVES,
    WAIT,
    Rates,
    amount,
    answer_line,
    bytes_by_group,
    compare_captures,
    diff_json,
    memory_line,
    needs_of,
    page_data,
    sizes_of_groups,
    step_costs,
    timeline,
    traffic_of,
    traffic_texts,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # torch.distributed's own deprecations

ROWS, WIDTH = 64, 32
PRODUCT, STATE = 2 * ROWS * WIDTH * WIDTH, 4 * ROWS * WIDTH
"""The operations of a product, and the bytes of a state."""


def beside(x: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Sums one product over the ranks while another is computed."""
    total = collectives.all_reduce(x @ left, "sum", dist.group.WORLD)
    other = x @ right
    return total + other


def late(x: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Computes another product before it sends the first."""
    first = x @ left
    other = x @ right
    return collectives.all_reduce(first, "sum", dist.group.WORLD) + other


def forward_of(function: Any) -> Any:
    weights = torch.randn(WIDTH, WIDTH), torch.randn(WIDTH, WIDTH)
    world = bp.capture(function, torch.randn(ROWS, WIDTH), *weights, world=2, requires_grad=False)
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 2
    return world.ranks[0]


def rates(seconds_on_wire: float, latency: float = 0.0) -> Rates:
    """Rates at which a product takes a second, what is not a product takes no time, and a sum so long on the wire."""
    return Rates(float(PRODUCT), 1e30, {"world": STATE / seconds_on_wire}, latency)


@pytest.mark.parametrize(
    ("function", "wire", "ordered", "early"),
    [(beside, 0.5, 2, 2), (beside, 3, 4, 4), (late, 0.5, 2.5, 2), (late, 3, 5, 4)],
)
def test_what_is_sent_beside_a_computation_takes_no_time(
    function: Any, wire: float, ordered: float, early: float
) -> None:
    capture = forward_of(function)
    sizes = sizes_of_groups(capture)
    for is_early, seconds in ((False, ordered), (True, early)):
        line = timeline(capture.pairs[0], sizes, rates(wire), is_early)
        assert line.seconds == pytest.approx(seconds)
        assert line.computing == pytest.approx(2)
        assert line.on_wire == {"world": pytest.approx(wire)}
        assert line.seconds_waited().get("world", 0.0) == pytest.approx(seconds - 2)
    assert timeline(capture.pairs[0], sizes, rates(wire, 1.0)).on_wire == {"world": pytest.approx(wire + 1)}


def test_a_wait_names_the_line_of_its_collective() -> None:
    capture = forward_of(late)
    [(group, line, seconds)] = timeline(capture.pairs[0], sizes_of_groups(capture), rates(3)).lines()
    assert (group, seconds) == ("world", pytest.approx(3))
    assert line.endswith(f"test_traffic.py:{late.__code__.co_firstlineno + 4}")


@pytest.fixture(scope="module")
def parallel() -> Any:
    program = programs(2)["tensor parallel"]
    return bp.capture(program.model, *program.args, world=2, shard=program.shard)


@pytest.fixture(scope="module")
def averaged() -> Any:
    program = programs(2)["tensor parallel"]
    return bp.capture(
        program.model, *program.args, world=2, shard=lambda model, x: nn.parallel.DistributedDataParallel(model)
    )


def test_no_order_is_faster_than_early_and_none_than_computation(parallel: Any, averaged: Any) -> None:
    for world in (parallel, averaged):
        capture = world.ranks[0]
        [group] = sizes_of_groups(capture)
        for link in (1e3, 1e6, 1e9):
            lines = [
                timeline(capture.pairs[0], {group: 2}, Rates(1e9, 1e9, {group: link}, 1e-6), early)
                for early in (False, True)
            ]
            assert lines[0].seconds >= lines[1].seconds >= max(lines[1].computing, lines[1].on_wire[group])


def test_the_backward_waits_for_what_the_forward_has_sent() -> None:
    def summed(x: Tensor, weight: Tensor) -> Tensor:
        return collectives.all_reduce(x.detach(), "sum", dist.group.WORLD) * weight

    world = bp.capture(summed, torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH).requires_grad_(), world=2)
    capture = world.ranks[0]
    line = timeline(capture.pairs[0], sizes_of_groups(capture), rates(1))
    assert line.seconds == pytest.approx(1)
    assert len(line.waits) == 1  # once the sum is there, the backward has it


def test_a_backward_begins_when_the_outputs_are_there() -> None:
    """Row-parallel layers end in a sum: what comes after it in the loss, and so the backward, waits for it."""

    def last(x: Tensor, weight: Tensor) -> Tensor:
        return collectives.all_reduce(x @ weight, "sum", dist.group.WORLD)

    weight = torch.randn(WIDTH, WIDTH, requires_grad=True)
    capture = bp.capture(last, torch.randn(ROWS, WIDTH), weight, world=2).ranks[0]
    line = timeline(capture.pairs[0], sizes_of_groups(capture), rates(5))
    assert line.seconds == pytest.approx(line.computing + line.seconds_waited()["world"])
    assert line.seconds_waited()["world"] >= 5


def test_collectives_have_no_operations_and_a_wait_no_memory_of_its_own(parallel: Any) -> None:
    pair = parallel.ranks[0].pairs[0]
    costs = dict(zip(pair.forward.steps, step_costs(pair.forward), strict=True))
    assert all(cost.flops == 0 for step, cost in costs.items() if step.target in COLLECTIVES)
    assert all(cost.moved == 0 for step, cost in costs.items() if step.target == WAIT)
    storages = {span.value for span in memory_line(pair).spans}
    assert not storages & {step.name for step in pair.forward.steps if step.target == WAIT}


def test_the_peak_is_the_sum_of_its_parts(parallel: Any) -> None:
    pair = parallel.ranks[0].pairs[0]
    memory = memory_line(pair, eager=True)
    need = needs_of(parallel.ranks[0]).eager
    assert need.bytes == memory.peak_bytes + memory.held_bytes == sum(part.bytes for part in need.parts)
    parameters = sum(port.spec.numel for port in pair.forward.inputs if port.role == "parameter")
    with_optimizer = needs_of(parallel.ranks[0], 8).eager
    assert with_optimizer.bytes == need.bytes + 8 * parameters
    roles = {part.role: part.bytes for part in with_optimizer.by_role()}
    assert roles["optimizer"] == 8 * parameters
    assert roles["parameter"] == 4 * parameters


def test_the_page_and_the_facts_say_what_goes_over_the_wire(parallel: Any) -> None:
    capture = parallel.ranks[0]
    facts = dict(page_data(capture)["facts"])
    assert facts["rank"] == "0 of 2"
    assert facts["over tp"] == dict(traffic_texts(capture))["over tp"]
    assert facts["over tp"].startswith("2 ranks: ")
    assert "all_reduce" in facts["over tp"]


def test_two_shardings_of_one_model_are_compared(parallel: Any, averaged: Any) -> None:
    diff = compare_captures(parallel.ranks[0], averaged.ranks[0])
    sent = [bytes_by_group(traffic_of(world.ranks[0])) for world in (parallel, averaged)]
    assert f"sent over tp {amount(sent[0]['tp'])} -> 0 B (-100.0 %)" in answer_line(diff)
    assert f"sent over world 0 B -> {amount(sent[1]['world'])} (new)" in answer_line(diff)
    assert diff_json(diff)["sent"] == {
        "tp": {"before": sent[0]["tp"], "after": 0},
        "world": {"before": 0, "after": sent[1]["world"]},
    }


def test_fits_reads_a_sample_that_is_no_rank(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from face import main

    bp.save(bp.capture(nn.Linear(8, 8), torch.randn(4, 8)), tmp_path / "linear")
    done = CliRunner().invoke(main, ["fits", str(tmp_path / "linear"), "--memory", "1"])
    assert done.exit_code == 0
    assert done.output.startswith("Linear: fits into 1 GiB: ")
    missing = CliRunner().invoke(main, ["fits", str(tmp_path / "none"), "--memory", "1"])
    assert missing.exit_code == 2
