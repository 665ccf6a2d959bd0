"""What a step needs: two peaks, over all Pairs, held against what PyTorch keeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import backprint as bp
from face import main, memory_line, memory_line_of_step, needs_of, page_data

WIDE = 64 * 256 * 4
"""The bytes of a wide value."""


def eager_peak(function: Callable[[Tensor], Tensor]) -> tuple[float, float]:
    """Return how many wide values live at the peak in eager mode and in the graphs, beside what the caller holds."""

    def program(x: Tensor, w: Tensor) -> Tensor:
        return function(x @ w).sum() + w.sum()

    w = (torch.randn(2, 256) / 2).requires_grad_()
    capture = bp.capture(program, torch.randn(64, 2), w, engine="eager")
    lines = memory_line_of_step(capture, eager=True), memory_line_of_step(capture)
    eager, graph = (line.peak_bytes // WIDE for line in lines)
    return eager, graph


def named_in_variables(h: Tensor) -> Tensor:
    h = h.detach()
    first = h * 2
    return first[0, 0] + h.sign()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        factor = (x * 2).sin() + 2
        wide = grad * factor
        return wide * 3


@pytest.mark.parametrize(
    ("function", "eager", "graph"),
    [
        (lambda h: h.cos() * 2, 5, 3),  # the incoming gradient, what is saved, and three values of one expression
        (Doubled.apply, 4, 2),  # what is saved, what has a name in its backward, and the result
        (lambda h: h.relu(), 2, 2),
        (named_in_variables, 4, 3),
    ],
)
def test_autograd_keeps_values_for_longer_than_the_graph(
    function: Callable[[Tensor], Tensor], eager: int, graph: int
) -> None:
    assert eager_peak(function) == (eager, graph)


class Layers(nn.Module):
    """Three layers, with graph breaks between them or without."""

    def __init__(self, breaks: bool) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(32, 32) for _ in range(3))
        self.breaks = breaks

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).tanh()
        if self.breaks:
            torch._dynamo.graph_break()
        x = self.second(x).tanh()
        if self.breaks:
            torch._dynamo.graph_break()
        return self.third(x).tanh().square().mean()


def test_what_all_pairs_save_waits_for_the_backward() -> None:
    whole = bp.capture(Layers(breaks=False), torch.randn(512, 32), engine="eager")
    divided = bp.capture(Layers(breaks=True), torch.randn(512, 32), engine="dynamo")
    assert len(divided.pairs) == 3
    assert needs_of(divided).eager.bytes == pytest.approx(needs_of(whole).eager.bytes, rel=0.03)
    assert max(memory_line(pair).peak_bytes for pair in divided.pairs) < 0.7 * memory_line_of_step(divided).peak_bytes


STEP = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(256, 256, bias=False)
optimizer = torch.optim.AdamW(model.parameters(), {how}=True)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(1, 256)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("how", "extra"), [("fused", 0), ("foreach", 1)])
def test_an_optimizer_updates_in_place(how: str, extra: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STEP.format(how=how))
    (capture,) = bp.record(tmp_path / "train.py")
    whole = 256 * 256 * 4
    needs = needs_of(capture)
    assert needs.eager.bytes // whole == 4 + extra  # parameter, gradient, two moments; foreach takes a root of one
    assert needs.graph.bytes // whole >= 7


# ---- Checkpoints


class Checkpointed(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16)) for _ in range(4))
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + F.dropout(checkpoint(layer, x, **self.options), 0.1)
        return x.square().mean()


def products(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    saves = operator is torch.ops.aten.addmm.default
    return CheckpointPolicy.MUST_SAVE if saves else CheckpointPolicy.PREFER_RECOMPUTE


@pytest.mark.parametrize(
    "options",
    [
        {"use_reentrant": False},
        {"use_reentrant": True},
        {"use_reentrant": False, "context_fn": partial(create_selective_checkpoint_contexts, products)},
    ],
)
def test_a_fake_capture_keeps_checkpoints(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model, x = Checkpointed(**options), torch.randn(32, 16).requires_grad_()
    fake, real = bp.capture(model, x, fake=True), bp.capture(model, x)
    assert (fake.engine, fake.fake, fake.notes) == ("eager", True, ())
    assert str(fake) == str(real)
    assert needs_of(fake) == needs_of(real)


def test_dropout_in_a_checkpoint_is_drawn_again_from_its_state_without_values() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh())

    def program(x: Tensor) -> Tensor:
        out = checkpoint(model, x, use_reentrant=False)
        assert isinstance(out, Tensor)
        return out.sum()

    x = torch.randn(4, 8).requires_grad_()
    fake, real = bp.capture(program, x, fake=True), bp.capture(program, x)
    assert str(fake) == str(real)
    assert "run_with_rng_state" in str(fake)


def test_what_a_checkpoint_keeps_unused_is_counted_and_saved(tmp_path: Path) -> None:
    contexts = partial(create_selective_checkpoint_contexts, products)
    capture = bp.capture(Checkpointed(use_reentrant=False, context_fn=contexts), torch.randn(512, 16))
    needs = needs_of(capture)
    unused = 3 * 512 * 16 * 4  # what the last product of each checkpoint returns, which the backward does not read
    assert needs.eager.bytes >= needs.graph.bytes + unused
    bp.save(capture, tmp_path / "sample")
    assert needs_of(bp.load(tmp_path / "sample")) == needs


# ---- What is said


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return done.exit_code, done.output


def test_both_peaks_are_said_and_eager_decides(tmp_path: Path) -> None:
    capture = bp.capture(lambda x: x.cos().sum(), torch.randn(1024, 1024).requires_grad_(), engine="eager")
    needs = needs_of(capture)
    bp.save(capture, tmp_path / "sample")
    between = (needs.eager.bytes + needs.graph.bytes) / 2 / 2**30
    code, text = run("fits", tmp_path / "sample", "--memory", between)
    assert code == 1
    assert "at the peak in eager mode" in text
    assert "at the peak of the graphs" in text
    code, text = run("fits", tmp_path / "sample", "--memory", between, "--json")
    [row] = json.loads(text)["ranks"]
    assert (row["bytes"], row["fits"]) == (row["eager"]["bytes"], False)
    assert (row["eager"]["bytes"], row["graph"]["bytes"]) == (needs.eager.bytes, needs.graph.bytes)
    page = page_data(capture)
    [data] = page["pairs"]
    assert data["memory"]["peak"][1] + data["memory"]["before"] == needs.eager.bytes
    assert "at the peak in eager mode, which the curve shows" in dict(page["facts"])["memory"]


def test_graphs_without_their_checkpoints_cannot_tell(tmp_path: Path) -> None:
    capture = bp.capture(Checkpointed(use_reentrant=False), torch.randn(32, 16), engine="aot", fake=True)
    bp.save(capture, tmp_path / "sample")
    code, text = run("fits", tmp_path / "sample", "--memory", 1e-6)
    assert code == 3
    assert "cannot tell whether it fits" in text
    assert "without the program's checkpoints" in text
    assert "a capture by engine eager has both" in text
    assert run("fits", tmp_path / "sample", "--memory", 1)[0] == 0
