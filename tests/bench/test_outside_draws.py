"""Draws that torch makes before a graph runs are those that eager makes while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import backprint as bp
from face import bench_graphs, draws, exchanged, take_out_draws

PROGRAMS: dict[str, Callable[..., Any]] = {
    "dropout": lambda x, w: F.dropout(x @ w, 0.5),
    "two dropouts, transposed": lambda x, w: F.dropout(F.dropout(x, 0.3).t() @ x, 0.5).sum() + (x @ w).sum(),
    "noise": lambda x, w: (x @ w) + torch.rand_like(x @ w) * torch.randn(4, 6),
    "attention": lambda x, w: F.dropout((x @ w).softmax(-1), 0.2) @ w,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_numbers_are_eagers(name: str) -> None:
    torch.manual_seed(0)
    capture = bp.capture(PROGRAMS[name], torch.randn(4, 6), torch.randn(6, 6, requires_grad=True))
    forward, *_ = bench_graphs(capture)
    outside = take_out_draws(forward.module)
    assert outside is not None
    assert not any(map(draws, outside.module.graph.nodes))
    for call in (
        lambda *values: outside.module(*values, *outside.draw()),
        exchanged(forward.module, forward.run.inputs, lambda core, given: core.forward),
    ):
        for seed in (1, 2):
            wanted = forward.run.again(forward.run.module(), seed=seed)
            found = forward.run.again(call, seed=seed)
            for value, other in zip(found, wanted, strict=True):
                torch.testing.assert_close(value, other)
        assert any(not torch.equal(value, other) for value, other in zip(found, forward.run.results, strict=True))


def test_a_graph_without_draws_and_one_that_draws_from_values_stay() -> None:
    for program in (lambda x, w: x @ w, lambda x, w: torch.bernoulli((x @ w).sigmoid())):
        capture = bp.capture(program, torch.randn(4, 6), torch.randn(6, 6))
        forward, *_ = bench_graphs(capture)
        assert take_out_draws(forward.module) is None
