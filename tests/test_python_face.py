"""What a person meets at a prompt: what completes after a dot, what a repr says, and what a wrong call is told."""

from __future__ import annotations

import inspect
from collections import UserDict
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

import backprint as bp
from face import (
    DRAWS_OF_PROOFS,
    ENGINES,
    GRAD_ROLES,
    LEVELS_OF_GRADIENTS,
    LOSSES,
    PARTITIONS,
    SUMS,
    UsageError,
    main,
    words,
)

INSIDE = {"seed", "pins", "peers", "claims", "recipes", "witness", "verdict", "origin", "modules"}
"""Fields of a Capture that rooms need and users do not."""


def linear() -> tuple[nn.Module, Tensor]:
    return nn.Linear(4, 2), torch.randn(3, 4)


def in_two_graphs() -> bp.Capture:
    """A Capture of two Pairs."""

    def program(x: Tensor) -> Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    return bp.capture(program, torch.randn(3, requires_grad=True), engine="dynamo")


# ---- What completes, and what a repr says


def test_what_completes_after_a_capture_is_for_users(tmp_path: Path) -> None:
    captured = bp.capture(*linear())
    captured.save(tmp_path / "sample")
    for capture in (captured, bp.load(tmp_path / "sample")):
        completed = {name for name in dir(capture) if not name.startswith("_")}
        assert completed >= {"name", "engine", "pairs", "forward", "backward", "save", "verify", "view", "guards"}
        assert not completed & INSIDE
        assert [name for name in completed if not hasattr(capture, name)] == []
    declared = {name for name in vars(bp.Capture) if not name.startswith("_")}
    assert declared - completed == INSIDE, "a new attribute is either for users or not"


@pytest.mark.slow
def test_what_completes_after_a_world_is_for_users() -> None:
    world = bp.capture(*linear(), world=2)
    completed = {name for name in dir(world) if not name.startswith("_")}
    assert completed == {"ranks", "rank", "size", "numbers", "verify", "against_whole", "save", "with_nonfinite"}


def test_a_repr_says_the_last_verdict(tmp_path: Path) -> None:
    model, x = linear()
    capture = bp.capture(model, x)
    assert repr(capture) == "Capture(Linear: 1 pair, engine eager, not verified)"
    capture.verify()
    assert repr(capture) == "Capture(Linear: 1 pair, engine eager, bitwise, derivative)"
    other = bp.capture(model, x)
    other.save(tmp_path / "sample")
    assert "bitwise, derivative" in repr(other), "saving proves it"
    loaded = bp.load(tmp_path / "sample")
    assert "bitwise, derivative" in repr(loaded)
    [verdict] = bp.verify(loaded, derivative=False)
    assert verdict.good
    assert "bitwise)" in repr(loaded), "the last verdict, and not the sample's"


def test_a_repr_says_that_a_capture_is_wrong() -> None:
    model, x = linear()
    capture = bp.capture(model, x)
    capture.verify()
    model.register_forward_hook(lambda module, args, output: output * 2)
    assert capture.verify()[0].verdict == "wrong"
    assert "wrong" in repr(capture)


def test_a_capture_of_another_is_not_verified() -> None:
    capture = bp.capture(*linear())
    capture.verify()
    assert "not verified" in repr(replace(capture, name="another"))
    assert replace(capture) == capture


# ---- The Graphs of the only Pair


def test_the_graphs_of_the_only_pair() -> None:
    capture = bp.capture(*linear())
    assert capture.forward is capture.pairs[0].forward
    assert capture.backward is capture.pairs[0].backward
    assert bp.capture(torch.sin, torch.arange(2)).backward is None


@pytest.mark.slow
def test_several_pairs_have_no_one_backward() -> None:
    capture = in_two_graphs()
    wanted = (
        r"^Capture program has 2 pairs \(0 pair_0, 1 pair_1\), so no one backward: take that of a pair, "
        r"capture\.pairs\[0\]\.backward$"
    )
    with pytest.raises(AttributeError, match=wanted):
        _ = capture.backward
    assert not hasattr(capture, "forward")


# ---- Calls that are nearly right


class Reads(nn.Module):
    """A model that takes keywords, as those of Hugging Face do."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, input_ids: Any = None, attention_mask: Any = None, mode: Any = None) -> Tensor:
        scale: Tensor = attention_mask if mode is None else mode
        return (self.linear(input_ids[:, :4]) * scale).sum()


def test_a_batch_that_is_a_dict_of_keywords() -> None:
    batch = {"input_ids": torch.randn(3, 4), "attention_mask": torch.ones(3, 4)}
    for given in (batch, UserDict(batch)):
        with pytest.raises(
            UsageError, match=r"\(input_ids, attention_mask\): pass it as \*\*batch, bp\.capture\(model, \*\*batch\)"
        ):
            bp.capture(Reads(), given)
    assert bp.capture(Reads(), **batch).verify()[0].good
    with_option = {"input_ids": torch.randn(3, 4), "mode": torch.ones(3, 4)}
    with pytest.raises(UsageError, match=r"bp\.capture\(model, args=\(\), kwargs=batch\)"):
        bp.capture(Reads(), with_option)
    assert bp.capture(Reads(), args=(), kwargs=with_option).verify()[0].good


def test_a_program_that_takes_a_dict_keeps_its_own_error() -> None:
    def program(batch: dict[str, Tensor]) -> Tensor:
        return batch["absent"] * 2

    with pytest.raises(KeyError, match="absent"):
        bp.capture(program, {"x": torch.ones(2)})


@pytest.mark.parametrize(
    ("loss", "nearest"),
    [
        ("mse", "mse_loss"),
        ("MSELoss", "mse_loss"),
        ("ce", "cross_entropy"),
        ("huber", "huber_loss"),
        ("nothing like it", "mse_loss"),
        (nn.functional.cross_entropy, "cross_entropy"),
        (nn.SmoothL1Loss(), "smooth_l1_loss"),
        (nn.L1Loss, "l1_loss"),
        (3, "mse_loss"),
    ],
)
def test_a_loss_that_is_none_is_told_what_to_write(loss: Any, nearest: str) -> None:
    model, x = linear()
    with pytest.raises(UsageError) as told:
        bp.capture(model, x, loss=loss)
    said = str(told.value)
    assert "\n" not in said
    assert "TARGET" not in said
    assert f"loss=lambda output: torch.nn.functional.{nearest}(output, target)" in said
    target = torch.randn(3, 2)
    written = eval(
        said.partition("loss=lambda")[2].partition(")")[0].join(("lambda", ")")), {"torch": torch, "target": target}
    )
    assert bp.capture(model, x, loss=written).verify()[0].good, "what it says can be pasted"


def test_a_loss_of_the_command_line_that_is_none(tmp_path: Path) -> None:
    arguments = ["capture", "backprint.examples.convnet:factory", "-o", str(tmp_path / "s"), "--loss", "mse"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert "loss='mse' is no loss: write 'sum' or 'mean'" in done.stderr
    assert "--loss FILE.py:NAME" in done.stderr


# ---- Words that editors complete


@pytest.mark.parametrize(
    ("alias", "table"),
    [
        (words.EngineWord, ("auto", *ENGINES)),
        (words.LossWord, LOSSES),
        (words.GradWord, GRAD_ROLES),
        (words.PartitionWord, PARTITIONS),
        (words.DrawWord, DRAWS_OF_PROOFS),
        (words.GradientsWord, LEVELS_OF_GRADIENTS),
        (words.SumsWord, SUMS),
        (words.PowerWord, ("none", *get_args(words.MeasuredPowerWord))),
    ],
)
def test_words_that_editors_complete_are_those_of_the_table(alias: Any, table: Collection[str]) -> None:
    assert sorted(get_args(alias)) == sorted(table)


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (bp.capture, ("engine", "mode", "loss", "partition")),
        (bp.save, ("data", "layout", "power")),
        (bp.Capture.save, ("data", "layout", "power")),
        (bp.export, ("direction", "data")),
        (bp.verify, ("draws",)),
        (bp.Capture.verify, ("draws",)),
        (bp.power, ("power",)),
        (bp.split, ("data",)),
        (bp.region, ("gradients",)),
        (bp.lower, ("sums",)),
        (bp.kernels.extract, ("direction",)),
        (bp.corpus.dedup, ("files",)),
        (bp.bench.run, ("directions",)),
    ],
)
def test_options_of_a_few_words_are_typed_by_them(function: Any, options: tuple[str, ...]) -> None:
    parameters = inspect.signature(function).parameters
    aliases = {name for name in vars(words) if name.endswith("Word")}
    for option in options:
        assert any(alias in str(parameters[option].annotation) for alias in aliases), option
