"""A training that is watched: its numbers stay what they are, and the step that goes wrong is kept and named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import backprint as bp


class Net(nn.Module):
    """A net with a buffer that changes, a dropout, and a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)
        self.drop = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.drop(F.gelu(self.norm(self.up(x)))))


def distance(logits: Tensor, labels: Tensor) -> Tensor:
    gap = (logits - F.one_hot(labels, 4).float()).square().sum(1)
    return gap.sqrt().mean()  # the derivative of sqrt at 0 is infinite


Change = Callable[[int, Net, Tensor], Tensor]


def train(
    change: Change = lambda step, net, logits: logits,
    steps: int = 8,
    watched: dict[str, Any] | None = None,
    folder: Path | None = None,
    during: Callable[[int, Any], None] = lambda step, watch: None,
    scaler: Any = None,
    batches: int = 1,
) -> tuple[list[float], list[Tensor], Any]:
    """Train a Net, watched if `folder` is given; return the losses, the weights at the end, and the watch."""
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    watch: Any = None
    if folder is not None:
        watch = bp.watch(net, optimizer, folder, **(watched or {})).__enter__()
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        for _ in range(batches):
            x, labels = torch.randn(16, 8), torch.randint(4, (16,))
            loss = distance(change(step, net, net(x)), labels)
            (loss if scaler is None else scaler.scale(loss)).backward()
        during(step, watch)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        losses.append(loss.item())
    if watch is not None:
        watch.__exit__(None, None, None)
    return losses, [*net.state_dict().values(), torch.get_rng_state()], watch


def same(left: Any, right: Any) -> bool:
    return all(bool(((a == b) | (a.isnan() & b.isnan())).all()) for a, b in zip(left, right, strict=True))


def write_each(step: int, watch: Any) -> None:
    """Let each step be written into the ring, however slow the disk is."""
    if watch is not None:
        watch._watching.ring.waiting.join()
        watch._watching.ring.spent = watch._watching.ring.last_cost = -1.0


def nan_at(number: int) -> Change:
    return lambda step, net, logits: logits + (logits - logits) / 0 if step == number else logits


def test_a_step_with_nan_is_kept_and_named(tmp_path: Path) -> None:
    messages: list[str] = []
    plain = train(nan_at(3))
    _, weights, watch = train(nan_at(3), folder=tmp_path / "w", watched={"tell": messages.append})
    assert same(weights, plain[1])
    assert watch.kept[0] == tmp_path / "w" / "step_3"
    assert messages[0].startswith("step 3: NaN in the output loss, first made at ")
    assert "test_watch.py" in messages[0]
    sample = bp.load(watch.kept[0])
    assert "kept by bp.watch: the loss is nan" in sample.notes
    assert [verdict.verdict for verdict in bp.verify(watch.kept[0])] == ["bitwise"]
    assert not (tmp_path / "w" / "ring").exists()


def test_the_steps_before_it_are_kept_from_the_ring(tmp_path: Path) -> None:
    messages: list[str] = []
    _, weights, watch = train(
        nan_at(4), folder=tmp_path, during=write_each, watched={"tell": messages.append, "steps": 2, "overhead": 0.99}
    )
    assert same(weights, train(nan_at(4))[1])
    assert [place.name for place in watch.kept] == ["step_4", "step_2", "step_3"]
    losses = train(steps=4)[0]
    for number in (2, 3):
        out = bp.replay(bp.load(tmp_path / f"step_{number}"))
        assert out.outputs["loss"].item() == losses[number]


def test_nothing_is_kept_of_a_training_that_goes_well(tmp_path: Path) -> None:
    plain = train()
    losses, weights, watch = train(folder=tmp_path / "w")
    assert (losses, watch.kept) == (plain[0], [])
    assert same(weights, plain[1])
    assert not list((tmp_path / "w").glob("*"))


def test_a_gradient_with_nan_is_kept_before_the_update(tmp_path: Path) -> None:
    def root_of_zero(step: int, net: Net, logits: Tensor) -> Tensor:
        return logits + (logits * 0).square().sum().sqrt() if step == 2 else logits  # 0, with a derivative of 0 * Inf

    messages: list[str] = []
    losses, _, watch = train(root_of_zero, steps=3, folder=tmp_path, watched={"tell": messages.append, "steps": 0})
    assert losses[2] == losses[2]
    assert [place.name for place in watch.kept] == ["step_2"]
    assert "NaN in the gradient" in messages[0]
    assert "(sqrt)" in messages[0]


def test_a_jump_is_kept(tmp_path: Path) -> None:
    messages: list[str] = []

    def jump(step: int, net: Net, logits: Tensor) -> Tensor:
        return logits * 1000 if step == 12 else logits

    _, _, watch = train(jump, steps=14, folder=tmp_path, watched={"tell": messages.append, "steps": 0})
    assert [place.name for place in watch.kept] == ["step_12"]
    assert "times the median of the 12 steps before" in messages[0]


def test_the_user_keeps_a_step(tmp_path: Path) -> None:
    def ask(step: int, watch: Any) -> None:
        if step == 1:
            watch.keep("looks odd")

    messages: list[str] = []
    losses, _, _ = train(steps=3, folder=tmp_path, during=ask, watched={"tell": messages.append, "steps": 0})
    assert messages == [f"step 1: looks odd; kept in {os.path.relpath(tmp_path / 'step_1')}"]
    assert bp.replay(bp.load(tmp_path / "step_1")).outputs["loss"].item() == losses[1]


def test_a_scaler_that_finds_its_scale_is_left_alone(tmp_path: Path) -> None:
    def scaler() -> Any:
        return torch.amp.GradScaler("cpu", init_scale=2.0**127)

    plain = train(scaler=scaler(), steps=6)
    _, weights, watch = train(scaler=scaler(), steps=6, folder=tmp_path, watched={"tell": print, "steps": 0})
    assert same(weights, plain[1])
    assert watch.kept == []


def test_of_several_backwards_the_one_that_goes_wrong_is_kept(tmp_path: Path) -> None:
    calls = iter(range(100))

    def nan_in_fifth(step: int, net: Net, logits: Tensor) -> Tensor:
        return logits * float("nan") if next(calls) == 5 else logits

    messages: list[str] = []
    _, _, watch = train(
        nan_in_fifth, steps=3, batches=2, folder=tmp_path, watched={"tell": messages.append, "limit": 1}
    )
    assert watch.kept[0].name == "step_2"
    assert messages[0].startswith("step 2: NaN in the output loss")


def test_an_update_that_computes_its_own_gradients_is_kept(tmp_path: Path) -> None:
    net = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    messages: list[str] = []
    with bp.watch(net, optimizer, tmp_path, tell=messages.append, steps=0) as watch:
        for _ in range(2):

            def closure() -> Tensor:
                loss = (net(torch.zeros(2, 3)) - net.bias).norm()  # 0, whose derivative is NaN or 0
                loss = loss + (net.weight * 0).sum().sqrt()
                loss.backward()
                return loss

            optimizer.step(closure)
    assert watch.kept[0].name == "step_0"
    assert "NaN in the gradient of" in messages[0]


def test_parts_that_the_training_calls_itself(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"encoder": nn.Linear(4, 8), "head": nn.Linear(8, 2)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    messages: list[str] = []
    with bp.watch(model, optimizer, tmp_path, tell=messages.append, steps=0) as watch:
        code = model["encoder"](torch.randn(3, 4)).tanh()
        loss = model["head"](code).log().sum() + 0.1 * sum(weight.square().sum() for weight in model.parameters())
        loss.backward()
        optimizer.step()
    assert [place.name for place in watch.kept] == ["step_0"], messages
    assert "(log)" in messages[0]


def test_a_full_disk_does_not_end_a_training(tmp_path: Path) -> None:
    (tmp_path / "w").write_text("a file where the folder would be")
    messages: list[str] = []
    plain = train(nan_at(3))
    watched = {"tell": messages.append}
    _, weights, watch = train(nan_at(3), folder=tmp_path / "w", watched=watched, during=write_each)
    assert same(weights, plain[1])
    assert watch.kept == []
    assert any("steps are written no longer" in message for message in messages)
    assert any("step 3: the loss is nan; it is not kept: " in message for message in messages)


def test_a_step_that_cannot_be_kept_is_said(tmp_path: Path) -> None:
    def many(step: int, net: Net, logits: Tensor) -> Tensor:
        for _ in range(500):
            logits = logits + 0.001
        return logits * float("nan") if step == 1 else logits

    messages: list[str] = []
    _, weights, _ = train(many, steps=3, folder=tmp_path, watched={"tell": messages.append, "steps": 0})
    assert same(weights, train(many, steps=3)[1])
    assert messages[0].startswith("step 1: the loss is nan; it is not kept: more than 400 operators ran between")


SCRIPT = """
import os, sys, torch, backprint as bp
torch.manual_seed(0)
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with bp.watch(net, optimizer, "w", overhead=0.99) as watch:
    for step in range(5):
        loss = net(torch.randn(3, 4)).square().sum()
        optimizer.zero_grad()
        loss.backward()
        watch._watching.ring.waiting.join()
        watch._watching.ring.spent = watch._watching.ring.last_cost = -1.0
        print(step, loss.item(), flush=True)
        if step == 3:
            {end}
        optimizer.step()
"""


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "raise RuntimeError('lost')", "raise KeyboardInterrupt"])
def test_after_a_crash_the_ring_becomes_samples(end: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT).format(end=end)], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == {"o": -signal.SIGKILL, "r": 1}[end[0]] or "Keyboard" in end
    losses = [float(line.split()[1]) for line in run.stdout.splitlines()]
    assert len(losses) == 4
    messages: list[str] = []
    net = nn.Linear(4, 2)
    with bp.watch(net, torch.optim.SGD(net.parameters()), tmp_path / "w", tell=messages.append):
        pass
    if "Keyboard" in end:
        assert (messages, list((tmp_path / "w").glob("*"))) == ([], [])
        return
    assert [message.partition(";")[0] for message in messages] == [
        "step 2: the training ended early",
        "step 3: the training ended early",
    ]
    for number in (2, 3):
        assert bp.replay(bp.load(tmp_path / "w" / f"step_{number}")).outputs["loss"].item() == losses[number]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((3, torch.optim.SGD([torch.zeros(1)])), "pass the nn.Module that is trained"),
        ((nn.Linear(1, 1), 3), "not iterable"),
        ((nn.Linear(1, 1), [3]), "pass a torch.optim.Optimizer"),
    ],
)
def test_what_cannot_be_watched_is_refused(arguments: Any, words: str) -> None:
    with pytest.raises((bp.errors.UsageError, TypeError), match=words):
        bp.watch(*arguments)


def test_a_scaler_that_skips_again_and_again_is_no_start(tmp_path: Path) -> None:
    def root_of_zero(step: int, net: Net, logits: Tensor) -> Tensor:
        return logits + (logits * 0).square().sum().sqrt() if step >= 2 else logits

    messages: list[str] = []
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    watched = {"tell": messages.append, "steps": 0}
    _, _, watch = train(root_of_zero, steps=8, folder=tmp_path, watched=watched, scaler=scaler)
    assert [place.name for place in watch.kept] == ["step_4"]
    assert "(sqrt)" in messages[0]


def test_samples_of_an_earlier_training_stay(tmp_path: Path) -> None:
    watched: dict[str, Any] = {"tell": lambda text: None, "steps": 0}
    first = train(nan_at(1), steps=2, folder=tmp_path, watched=watched)[2]
    second = train(nan_at(1), steps=2, folder=tmp_path, watched=watched)[2]
    assert [watch.kept[0].name for watch in (first, second)] == ["step_1", "step_1_2"]


def test_a_step_of_a_ring_that_does_not_fit_is_not_lost(tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    ring.mkdir()
    (ring / "step_000000007.pt").write_bytes(b"not a step")
    messages: list[str] = []
    net = nn.Linear(1, 1)
    with bp.watch(net, torch.optim.SGD(net.parameters()), tmp_path, tell=messages.append):
        pass
    assert messages[0].startswith("step 7: the training ended early; it is not kept: ")
    assert (tmp_path / "step_000000007.not_kept.pt").read_bytes() == b"not a step"


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * float("nan")


def test_a_custom_function_in_the_loss_is_named_as_what_is_not_kept(tmp_path: Path) -> None:
    messages: list[str] = []
    net = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters())
    with bp.watch(net, optimizer, tmp_path, tell=messages.append) as watch:
        Doubled.apply(net(torch.randn(2, 3))).sum().backward()
        optimizer.step()
    assert watch.kept == []
    assert "a custom autograd.Function stands between the model and the loss, or" in messages[0]
