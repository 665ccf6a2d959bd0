"""Samples of fake captures: readable, never proven, replayed on real values."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from subjects.forked import run_python
from torch import Tensor, nn

import backprint as bp


class Layer(nn.Module):
    """One layer."""

    def __init__(self, width: int, activation: type[nn.Module]) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.activation = activation()

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(self.norm(x))))


class Stack(nn.Module):
    """Layers with a residual stream, as many and as wide as asked for."""

    def __init__(self, depth: int, width: int, activation: type[nn.Module] = nn.GELU) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, width)
        self.layers = nn.ModuleList(Layer(width, activation) for _ in range(depth))
        self.register_buffer("scale", torch.linspace(0.5, 1.5, width))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return (x * self.scale).square().sum()


TOKENS = torch.tensor([[1, 2, 3, 10]])


@cache
def large() -> bp.Capture:
    with bp.fake():
        model = Stack(6, 64)
    return bp.capture(model, TOKENS, fake=True)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bp.save(large(), tmp_path_factory.mktemp("fake") / "sample")


# ------------------------------------------------------------------ samples


def test_a_fake_capture_is_unproven_and_says_why() -> None:
    (verdict,) = large().verify()
    assert verdict.verdict == "unproven"
    assert verdict.detail.startswith("fake: ")
    assert not verdict.good


@pytest.mark.slow
def test_a_sample_says_that_it_is_fake_and_comes_back(sample: Path) -> None:
    capture, loaded = large(), bp.load(sample)
    assert loaded.fake
    assert loaded.verdict["verdict"] == "unproven"
    assert loaded.witness is None
    assert [pair.forward.hash() for pair in loaded.pairs] == [pair.forward.hash() for pair in capture.pairs]
    assert bp.verify(loaded)[0].detail.startswith("fake: ")


@pytest.mark.slow
def test_a_sample_runs_alone_on_its_recipes(sample: Path) -> None:
    for side in ("forward", "backward"):
        run = run_python([sample / "pair_0" / side / "model.py"], flags=["-I"])
        assert run.returncode == 0, run.stderr
        assert "nan" not in run.stdout


@pytest.mark.slow
def test_data_none_keeps_no_recipe_and_data_exact_is_refused(tmp_path: Path) -> None:
    loaded = bp.load(bp.save(large(), tmp_path / "none", data="none"))
    assert {recipe.kind for recipe in loaded.recipes.recipes.values()} == {"none"}
    with pytest.raises(bp.errors.UsageError, match="data='exact' keeps values, and a fake capture has none"):
        bp.save(large(), tmp_path / "exact", data="exact")
    assert not (tmp_path / "exact").exists()


# ------------------------------------------------------------------ replay


@pytest.mark.slow
@pytest.mark.parametrize("from_disk", [False, True])
def test_a_replay_on_real_state_is_what_autograd_gives(from_disk: bool, tmp_path: Path) -> None:
    capture = large()
    capture = bp.load(bp.save(capture, tmp_path / "sample")) if from_disk else capture
    model = Stack(6, 64)
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    out = bp.replay(capture, TOKENS, state=state)
    loss = model(TOKENS)
    loss.backward()
    assert torch.equal(out.outputs, loss)
    assert all(torch.equal(out.gradients[name], p.grad) for name, p in model.named_parameters())


def test_a_fake_capture_of_a_real_model_replays_on_its_live_state() -> None:
    model = Stack(2, 8)
    capture = bp.capture(model, TOKENS, fake=True)
    assert torch.equal(bp.replay(capture, TOKENS).outputs, model(TOKENS))


def test_a_replay_without_state_takes_the_recipes() -> None:
    out = bp.replay(large(), TOKENS)
    assert type(out.outputs) is Tensor
    assert torch.isfinite(out.outputs)


# ------------------------------------------------------------------ a small version


def test_a_small_version_has_the_same_graphs_except_for_sizes() -> None:
    fake, small = large(), bp.capture(Stack(6, 8), TOKENS, engine="aot")
    assert small.verify()[0].verdict == "bitwise"
    for side in ("forward", "backward"):
        graph, small_graph = getattr(fake.pairs[0], side), getattr(small.pairs[0], side)
        assert graph.hash() != small_graph.hash()
        assert graph.hash(sizes=False) == small_graph.hash(sizes=False)
