"""Where NaN and Inf come from: the sentence of a Verdict, for faults of a forward, a backward, an input and an
optimizer; and no sentence for an Inf that is meant."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

import backprint as bp
from face import Capture, main, page_data


def sentence(capture: Capture) -> str:
    """Return what the last Verdict says of NaN and Inf; its results compare equal all the same."""
    verdict = capture.verify()[-1]
    assert verdict.verdict == "bitwise", verdict
    return verdict.nonfinite


def line_of(function: Callable[..., object], code: str) -> int:
    """Return the line of a function of this file that has this code."""
    first = function.__code__.co_firstlineno
    lines = Path(__file__).read_text().splitlines()[first - 1 :]
    return first + next(place for place, line in enumerate(lines) if code in line)


def norm_of_zero(x: Tensor) -> Tensor:
    y = 2 * x
    return torch.sqrt((y**2).sum())


def log_times_zero(x: Tensor) -> Tensor:
    return (torch.log(x) * 0).sum()


def masked(x: Tensor, mask: Tensor) -> Tensor:
    return (x[:, None] * x).masked_fill(~mask, -math.inf)


def softmax_of_masked(x: Tensor, mask: Tensor) -> Tensor:
    scores = masked(x, mask)
    return torch.softmax(scores, -1).square().sum()


def softmax_of_added(x: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(x[:, None] * x + mask, -1).square().sum()


def loss_of_masked(x: Tensor, mask: Tensor) -> Tensor:
    return nn.functional.cross_entropy(masked(x, mask), torch.tensor([2, 2, 2]))


def overflowing(x: Tensor) -> Tensor:
    return torch.exp(1000 * x).mean()


CAUSAL = torch.tril(torch.ones(3, 3, dtype=torch.bool))


@pytest.mark.parametrize("engine", ["eager", "aot"])
def test_an_inf_of_a_backward_is_named_by_the_operator_of_the_forward(engine: str) -> None:
    text = sentence(bp.capture(norm_of_zero, torch.zeros(3, requires_grad=True), engine=engine))
    line = line_of(norm_of_zero, "torch.sqrt")
    place = f"test_nonfinite.py:{line} (sqrt), as Inf in its backward"
    assert text == f"NaN in the gradient of x, first made at {place}"


def test_an_inf_of_a_forward_is_named_before_what_follows_from_it() -> None:
    first, second = sentence(bp.capture(log_times_zero, torch.zeros(3, requires_grad=True))).split("; ")
    line = line_of(log_times_zero, "torch.log")
    assert first == f"NaN in the output, first made at test_nonfinite.py:{line} (log), as Inf"
    assert second == f"NaN in the gradient of x, first made at test_nonfinite.py:{line} (log), in its backward"


def test_an_overflow_is_an_inf() -> None:
    text = sentence(bp.capture(overflowing, torch.ones(3, requires_grad=True)))
    assert text == f"Inf in the output, first made at test_nonfinite.py:{line_of(overflowing, 'exp')} (exp)"


def test_finite_results_have_no_sentence() -> None:
    assert sentence(bp.capture(norm_of_zero, torch.ones(3, requires_grad=True))) == ""


@pytest.mark.parametrize("program", [softmax_of_masked, softmax_of_added])
def test_the_inf_of_a_mask_is_meant(program: Callable[[Tensor, Tensor], Tensor]) -> None:
    added = torch.zeros(3, 3).masked_fill(~CAUSAL, -math.inf)
    mask = added if program is softmax_of_added else CAUSAL
    assert sentence(bp.capture(program, torch.randn(3, requires_grad=True), mask)) == ""


def test_masked_scores_may_be_returned() -> None:
    assert sentence(bp.capture(masked, torch.randn(3, requires_grad=True), CAUSAL)) == ""


def test_a_softmax_of_a_row_that_is_masked_whole_makes_nan() -> None:
    mask = CAUSAL.clone()
    mask[1] = False
    text = sentence(bp.capture(softmax_of_masked, torch.randn(3, requires_grad=True), mask))
    line = line_of(softmax_of_masked, "torch.softmax")
    assert text == f"NaN in the output, first made at test_nonfinite.py:{line} (softmax)"


def test_a_loss_is_never_meant_to_be_infinite() -> None:
    text = sentence(bp.capture(loss_of_masked, torch.randn(3, requires_grad=True), CAUSAL))
    assert text == f"Inf in the output, first made at test_nonfinite.py:{line_of(masked, 'masked_fill')} (masked_fill)"


def test_an_input_that_has_nan_itself_is_named() -> None:
    linear = nn.Linear(2, 2)
    with torch.no_grad():
        linear.weight[0, 0] = math.nan
    assert sentence(bp.capture(linear, torch.ones(1, 2))) == (
        "NaN in the output, from the parameter weight, which has NaN itself"
    )


def test_a_way_leads_over_links_from_pair_to_pair() -> None:
    def broken(x: Tensor) -> Tensor:
        y = torch.log(x)
        torch._dynamo.graph_break()
        return (y * 0).sum()

    capture = bp.capture(broken, torch.zeros(3, requires_grad=True), engine="dynamo")
    assert len(capture.pairs) == 2
    assert f"NaN in the output, first made at test_nonfinite.py:{line_of(broken, 'torch.log')} (log), as Inf" in (
        sentence(capture)
    )


def test_a_sample_keeps_the_sentence(tmp_path: Path) -> None:
    capture = bp.capture(norm_of_zero, torch.zeros(3, requires_grad=True))
    capture.save(tmp_path / "exact", data="exact")
    loaded = bp.load(tmp_path / "exact")
    assert loaded.verdict is not None
    assert loaded.verdict["nonfinite"] == sentence(loaded) == sentence(capture) != ""
    assert ["not finite", loaded.verdict["nonfinite"]] in page_data(loaded)["facts"]


def test_a_sample_says_if_its_inputs_are_drawn(tmp_path: Path) -> None:
    capture = bp.capture(log_times_zero, torch.rand(64, requires_grad=True) + 1)
    assert sentence(capture) == ""
    recipes = bp.capture(log_times_zero, torch.randn(64, requires_grad=True)).recipes
    replace(capture, recipes=recipes).save(tmp_path / "drawn", data="seed")
    text = sentence(bp.load(tmp_path / "drawn"))
    assert text.startswith("NaN in the output, first made at test_nonfinite.py:")
    assert text.endswith(" (on inputs drawn from the recipes, which are not the captured ones)")


# ---- What the commands print

SCRIPT = """
import torch

class Divides(torch.optim.SGD):
    def step(self, closure=None):
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                parameter.div_({divisor})

torch.manual_seed(0)
gate = torch.nn.Parameter(torch.ones(3))
weight = torch.nn.Parameter(torch.ones(3))
optimizer = Divides([gate, weight], lr=0.1)
for step in range(2):
    spread = torch.sqrt(((gate - {whole}) ** 2).sum())
    loss = (weight * torch.randn(3)).sum() + 0.1 * spread
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def recorded(folder: Path, monkeypatch: pytest.MonkeyPatch, **words: str) -> None:
    """Record the second step of a script."""
    (folder / "train.py").write_text(SCRIPT.format(**words))
    monkeypatch.chdir(folder)
    assert CliRunner().invoke(main, ["record", "-o", "kept", "train.py"]).exit_code == 0


def printed(*arguments: object) -> str:
    return CliRunner().invoke(main, list(map(str, arguments)), env={"COLUMNS": "200"}).stdout


def test_record_verify_and_show_say_it_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path, monkeypatch, divisor="2.0", whole="0.5")
    text = "NaN in the gradient of gate, first made at train.py:15 (sqrt), as Inf in its backward"
    assert capfd.readouterr().err.startswith(f"backprint: step 1: {text}; 2 pairs, verdict bitwise")
    assert printed("verify", "kept").splitlines()[0] == f"kept: {text}"
    assert printed("show", "kept").splitlines()[0] == text
    rows = [json.loads(line) for line in printed("verify", "kept", "--json").splitlines()]
    assert [row["nonfinite"] for row in rows][-1] == text


def test_an_optimizer_may_make_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path, monkeypatch, divisor="torch.full((), 2.0) * (parameter.sum() > 2)", whole="0.25")
    text = "Inf in what gate becomes and 1 more, first made at train.py:8 (div)"
    assert capfd.readouterr().err.startswith(f"backprint: step 1: {text}; 2 pairs")
