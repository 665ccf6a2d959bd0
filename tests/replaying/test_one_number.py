"""Whether a sample has a proof is one answer, whoever is asked; and recipes and redraws are such that it has one."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

import backprint as bp
from face import Capture, Pair, disturb, has_proof, main, nudge_floats, other_values_of_unit, proofs, why_no_proof

keep: list[Any] = []


def captured(target: Any, *args: Any, **options: Any) -> Capture:
    keep.append(target)  # a Capture holds its module weakly
    return bp.capture(target, *args, **options)


def call(*arguments: Any) -> Any:
    return CliRunner().invoke(main, [str(each) for each in arguments], env={"COLUMNS": "200"})


def rows(*arguments: Any) -> list[dict[str, Any]]:
    """What a verb says with --json, a row a line."""
    return list(map(json.loads, call(*arguments, "--json").stdout.splitlines()))


# ------------------------------------------------------------------ programs of all kinds


def mlp() -> Capture:
    torch.manual_seed(0)
    return captured(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), torch.randn(3, 4))


def norm() -> Capture:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
    return captured(nn.Sequential(*layers), torch.randn(2, 3, 8, 8))


def dead() -> Capture:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    with torch.no_grad():
        model[0].bias.fill_(-100)
    return captured(model, torch.randn(3, 4))


def training_step() -> Capture:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    keep.extend([model, optimizer])
    return captured(step, torch.randn(3, 4), torch.randn(3, 1))


def broken() -> Capture:
    def program(x: Tensor) -> Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y * x.cos()

    return captured(program, torch.randn(5, requires_grad=True), engine="dynamo")


def branch(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x * 3


def times_a_number(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    return x * int(n.item()), n + 1


def cancelled(x: Tensor, y: Tensor) -> Tensor:
    return x.sin() + (y - y)


CAPTURES: dict[str, Callable[[], Capture]] = {
    "mlp": mlp,
    "norm": norm,
    "dead": dead,
    "training step": training_step,
    "two graphs": broken,
    "second order": lambda: captured(nn.Sequential(nn.Linear(3, 3), nn.Tanh()), torch.randn(2, 3), order=2),
    "ones": lambda: captured(nn.LayerNorm(4), torch.ones(2, 4)),
    "whole numbers": lambda: captured(lambda x: x.argmax(-1), torch.randn(4, 5)),
    "nothing to move": lambda: captured(lambda x: torch.zeros(3), torch.randn(4)),
    "a branch on its input": lambda: captured(branch, torch.rand(6)),
    "a number it reads": lambda: captured(times_a_number, torch.randn(3), torch.tensor(4)),
    "sparse": lambda: captured(lambda s, x: torch.sparse.mm(s, x), torch.eye(3).to_sparse(), torch.randn(3, 2)),
    "a gradient of nothing": lambda: captured(cancelled, torch.randn(5), torch.randn(5)),
    "an input that hides": lambda: captured(lambda x, gate: x + gate * 1e-9, torch.randn(50), torch.randn(50)),
}

NO_PROOF = {"dead", "nothing to move", "a gradient of nothing"}


@pytest.mark.slow
@pytest.mark.parametrize("data", ["seed", "exact"])
def test_all_that_speaks_of_a_proof_says_the_same(data: str, tmp_path: Path) -> None:
    captures = {name: make() for name, make in CAPTURES.items()}
    live = {name: capture.verify()[-1] for name, capture in captures.items()}
    places = {name: capture.save(tmp_path / name, data) for name, capture in captures.items()}
    verified = {row["sample"]: row for row in rows("verify", *places.values())}  # of several Pairs the whole is last
    measured = {row["sample"]: row for row in rows("verify", *places.values(), "--power")}
    for name, place in places.items():
        stored, row, moved = bp.load(place).verdict, verified[str(place)], measured[str(place)]
        said = {
            "live": live[name].proof,
            "stored": has_proof(stored["verdict"], stored["power"], stored["vacuous"]),
            "verify": row["proof"],
            "power": moved["proof"],
            "show": json.loads(call("show", place, "--json").stdout)["proof"],
        }
        assert said == dict.fromkeys(said, name not in NO_PROOF), name
        ports = {tuple(each["vacuous"]) for each in (stored, row, moved)}
        assert len(ports) == 1, (name, ports)
        assert stored["power"] == row["power"] == moved["power"], name
        if data == "seed":
            assert (stored["vacuous"], stored["power"]) == (list(live[name].vacuous), row["power"]), name


def test_exact_data_is_drawn_again_all_the_same(tmp_path: Path) -> None:
    """Bytes that are kept have no other draw, and the ports of one that was the same twice had no power at all."""
    place = mlp().save(tmp_path / "exact", "exact")
    [row] = rows("verify", place)
    assert (row["verdict"], row["vacuous"], row["proof"]) == ("bitwise", [], True)
    assert row["power"] > 1000


SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
for step in range(3):
    optimizer.zero_grad()
    for micro in range(2):
        loss = (net(torch.randn(5, 4)) - torch.randn(5, 1)).square().mean() / 2
        loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_recorded_step_has_power_whole_and_pair_by_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("script.py").write_text(SCRIPT)
    assert call("record", "-o", "out", "script.py").exit_code == 0
    found = rows("verify", "out")
    assert len(found) == 4
    for row in found:
        assert (row["vacuous"], row["proof"]) == ([], True), row
        assert row["power"] > 1
    measured = rows("verify", "out", "--power")[-1]
    assert (measured["proof"], measured["power"]) == (True, found[-1]["power"])
    step = bp.load("out")
    assert bp.replay(step, state="recipe", tangents=[torch.tensor(1.0), None]).gradients
    with pytest.raises(bp.errors.GuardError, match="tangent loss_1 is pinned to ones"):
        bp.replay(step, state="recipe", tangents=[None, torch.tensor(2.0)])


def test_what_stands_still_with_the_inputs_is_tried_with_more(tmp_path: Path) -> None:
    """A running statistic moves by less than a tolerance, and a table that no input chooses from not at all."""

    class Tables(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("average", torch.full((4,), 1e4))
            self.table = nn.Parameter(torch.randn(3))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            self.average.mul_(0.9).add_(0.1 * x.mean(0))
            return x.sin(), self.table.exp()

    verdict = bp.load(captured(Tables(), torch.randn(5, 4)).save(tmp_path / "sample")).verdict
    assert verdict["vacuous"] == []
    assert list(verdict["powers"]["redrawn"]) == ["inputs", "parameters"]


@pytest.mark.slow
def test_an_output_that_parameters_alone_move_has_no_power(tmp_path: Path) -> None:
    """A check of it would not see that the image is ignored."""
    model = dead()
    place = model.save(tmp_path / "dead")
    [row] = rows("verify", place)
    assert "output output" in row["vacuous"]
    assert row["detail"].startswith("vacuous, no proof: 1 of 5 ports proved; 4 do not move (output output, ")
    said = call("verify", place, "--power").stdout
    assert "no proof: nothing moves output output" in " ".join(said.split())
    assert "vacuous, no proof: 1 of 5 ports proved; 4 do not move (output output" in " ".join(
        call("show", place, "--summary").stdout.split()
    )
    again = call("capture", place, "-o", tmp_path / "again").stdout
    assert "bitwise, vacuous, no proof: 1 of 5 ports proved; 4 do not move (output output, gradient 0.weight, " in again


# ------------------------------------------------------------------ tangents and weights that are all alike


def swapped(capture: Capture, side: str, before: str, after: str, after_name: str) -> Capture:
    """The Capture with one operator, of the step of this name, another."""
    pair = capture.pairs[0]
    graph = getattr(pair, side)
    steps = tuple(
        replace(step, target=after) if (step.target, step.name) == (before, after_name) else step
        for step in graph.steps
    )
    assert steps != graph.steps
    sides = {"forward": pair.forward, "backward": pair.backward, side: replace(graph, steps=steps)}
    return replace(capture, pairs=(Pair(pair.name, **sides),))


def product(capture: Capture) -> str:
    """The step of a second-order backward that multiplies with the first backward's tangent."""
    text = capture.pairs[0].backward.code
    [name] = re.findall(r"(\w+): .*= aten\.mul\.Tensor\(\w+, tangent_output\)", text)
    return str(name)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["aot", "eager"])
def test_a_quotient_for_a_product_with_a_tangent_is_caught(engine: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    capture = captured(model, torch.randn(2, 3), order=2, engine=engine)
    assert capture.verify()[-1].verdict == "bitwise"
    name = product(capture)
    wrong = swapped(capture, "backward", "aten.mul.Tensor", "aten.div.Tensor", name)
    assert wrong.verify()[-1].verdict == "wrong"
    assert wrong.verify(draws=("captured",))[-1].verdict == "wrong"
    assert wrong.verify(draws=("recipe",))[-1].verdict == "wrong"

    place = capture.save(tmp_path / "sample")
    code = place / "pair_0/backward/model.py"
    text, count = re.subn(rf"(\b{name}: .*= aten)\.mul\.", r"\1.div.", code.read_text())
    assert count == 1
    code.write_text(text)
    [row] = rows("verify", place)
    assert (row["verdict"], row["proof"]) == ("wrong", False)
    [row] = rows("verify", place, "--power")
    assert (row["verdict"], row["proof"]) == ("wrong", False)


def test_a_tangent_of_one_number_is_not_one(tmp_path: Path) -> None:
    capture = captured(lambda x: x.sin().sum(), torch.randn(3).requires_grad_(), order=2)
    tangent = capture.recipes.make(names=["tangent.output"])["tangent.output"]
    assert tangent.shape == ()
    assert min(abs(abs(tangent.item()) - 1), abs(tangent.item())) > 0.1


ALIKE: dict[str, tuple[str, str, str]] = {
    "a scale of 1": ("aten.mul.Tensor", "aten.div.Tensor", "weight"),
    "a bias of 0": ("aten.add.Tensor", "aten.sub.Tensor", "bias"),
}


class Affine(nn.Module):
    """A fresh one: its weights are all alike."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(4)), nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        return x.sin() * self.weight + self.bias


@pytest.mark.slow
@pytest.mark.parametrize("name", ALIKE)
def test_a_weight_that_is_all_alike_hides_nothing_from_disk(name: str, tmp_path: Path) -> None:
    before, after, weight = ALIKE[name]
    place = captured(Affine(), torch.randn(3, 4)).save(tmp_path / "sample")
    code = place / "pair_0/forward/model.py"
    text, count = re.subn(rf"{re.escape(before)}\((\w+), {weight}\)", rf"{after}(\1, {weight})", code.read_text())
    assert count == 1
    code.write_text(text)
    [row] = rows("verify", place)
    assert (row["verdict"], row["proof"]) == ("wrong", False)


def test_weights_that_are_all_alike_keep_their_sign_and_other_inputs_their_values() -> None:
    model = nn.BatchNorm1d(4)
    capture = captured(model, torch.ones(3, 4))
    made = capture.recipes.make()
    assert made["weight"].std() > 0
    assert bool((made["weight"] > 0).all())
    assert bool((made["running_var"] > 0).all())
    assert bool((made["running_mean"] >= 0).all())
    assert made["bias"].std() > 0
    assert torch.equal(made["input"], torch.ones(3, 4))
    assert int(made["num_batches_tracked"]) == 0
    assert torch.equal(model.weight, torch.ones(4))


def test_numbers_that_stand_for_something_stay() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.temperature = nn.Parameter(torch.tensor(2.6592))
            self.register_buffer("mask", torch.ones(4))
            self.register_buffer("eps", torch.tensor(1e-5))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.temperature * self.mask + self.eps

    made = captured(Scaled(), torch.randn(3, 4)).recipes.make()
    assert made["temperature"].item() == pytest.approx(2.6592)
    assert made["eps"].item() == pytest.approx(1e-5)
    assert torch.equal(made["mask"], torch.ones(4))


# ------------------------------------------------------------------ other values


def test_a_nudge_is_small_and_keeps_signs_and_masks() -> None:
    tensor = torch.tensor([[0.0, 1.0, 2.0], [float("inf"), 3.0, -1e30]])
    found = nudge_floats(tensor, 1, 1 / 64)
    assert found is not None
    plain = tensor.abs() < 1e4
    assert torch.equal(found[~plain], tensor[~plain])
    assert 0 < float((found - tensor)[plain].abs().max()) < 0.2
    assert bool((nudge_floats(torch.rand(50), 1, 0.5) >= 0).all())  # type: ignore[operator]
    assert nudge_floats(torch.arange(3), 1, 0.5) is None
    assert nudge_floats(torch.randn(3, dtype=torch.complex64), 1, 0.5) is not None


def test_the_state_of_a_generator_becomes_that_of_another() -> None:
    state = torch.Generator().manual_seed(3).get_state()
    other = disturb(state, 5)
    assert other is not None
    assert not torch.equal(other, state)
    torch.Generator().set_state(other)


def test_a_sparse_tensor_keeps_its_places() -> None:
    capture = CAPTURES["sparse"]()
    made = capture.recipes.make()
    other = other_values_of_unit(("s",), capture.recipes.recipes, made, 1)
    assert other is not None
    assert torch.equal(other["s"]._indices(), made["s"]._indices())
    assert not torch.equal(other["s"]._values(), made["s"]._values())


@pytest.mark.slow
def test_a_live_proof_asks_the_program_on_other_values_than_exact_ones(tmp_path: Path) -> None:
    """A product with ones is a quotient on the captured values and on the recipe's: on others it is not."""
    capture = captured(lambda x, mask: x.sin() * mask, torch.randn(4).requires_grad_(), torch.ones(4))
    assert capture.verify()[-1].verdict == "bitwise"
    [name] = re.findall(r"(\w+): .*= aten\.mul\.Tensor\(\w+, mask\)", capture.pairs[0].forward.code)
    wrong = swapped(capture, "forward", "aten.mul.Tensor", "aten.div.Tensor", name)
    assert wrong.verify(draws=("captured", "recipe"))[-1].verdict == "bitwise"
    verdict = wrong.verify()[-1]
    assert verdict.verdict == "wrong"
    assert "fresh inputs" in verdict.detail


# ------------------------------------------------------------------ one number, over many samples


def test_the_one_answer() -> None:
    assert has_proof("bitwise", 3.0, ())
    assert has_proof("undifferentiable", 3.0, ())
    assert not has_proof("bitwise", None, ())
    assert not has_proof("close", 0.2, ("output y",))
    assert not has_proof("wrong", 3.0, ())
    assert why_no_proof("bitwise", 3.0, ()) == why_no_proof("wrong", None, ("output y",)) == ""
    assert why_no_proof("bitwise", 0.0, ("output y",)) == "1 port without power"
    assert why_no_proof("close", None, ()) == "power not measured"
    found = proofs(
        [
            ("a", "bitwise", 3.0, ()),
            ("b", "close", 0.0, ("x", "y")),
            ("c", "undifferentiable", 2.0, ()),
            ("d", "failed", None, ()),
            ("e", "bitwise", None, ()),
        ]
    )
    assert (found.proved, found.differentiable, found.proved_forwards, found.forwards_alone, found.ports) == (
        1,
        4,
        1,
        1,
        2,
    )
    assert found.without == (("b", ("x", "y")), ("e", ()))
    assert found.in_one_line() == (
        "1 of 4 that are done and differentiable; 1 of 1 forwards alone; 2 ports without power in 1 that compared "
        "equal; the power of 1 was not measured"
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with samples that have a proof and samples that have none."""
    folder = tmp_path_factory.mktemp("corpus")
    for name in ("mlp", "norm", "dead", "whole numbers", "a gradient of nothing"):
        CAPTURES[name]().save(folder / name.replace(" ", "_"))
    mlp().save(folder / "unmeasured", power="none")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["verify", "power", "capture"])
def test_a_run_its_status_and_its_report_agree(verb: str, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = call("corpus", "run", verb, corpus, "-o", out, "--jobs", 1)
    source = corpus if verb != "capture" else out
    verified = {Path(row["sample"]).name: row for row in rows("verify", source)}
    wanted = {name: row["proof"] for name, row in verified.items()}
    assert wanted == {
        "mlp": True,
        "norm": True,
        "dead": False,
        "whole_numbers": True,
        "a_gradient_of_nothing": False,
        "unmeasured": True,
    }
    shutil.rmtree(out / "nowhere", ignore_errors=True)
    call("corpus", "report", out, "-o", tmp_path / "rows.csv")
    table = csv.DictReader(io.StringIO((tmp_path / "rows.csv").read_text()))
    assert {row["id"]: row["proved"] == "true" for row in table} == wanted
    status = json.loads(call("corpus", "status", out, "--json").stdout)["proofs"]
    ports = sum(len(row["vacuous"]) for row in verified.values())
    assert (status["proved"], status["of"], status["forwards"], status["of_forwards"]) == (3, 5, 1, 1)
    assert (status["without_power"], status["ports_without_power"]) == (2, ports)
    assert {row["sample"]: row["ports"] for row in status["first"]} == {
        name: row["vacuous"] for name, row in verified.items() if row["vacuous"]
    }
    for said in (run.stdout, call("corpus", "status", out).stdout, call("corpus", "report", out).stdout):
        assert f"3 of 5 that are done and differentiable; 1 of 1 forwards alone; {ports} ports without power" in said
        assert "gradient y" in said


def test_a_run_without_power_says_that_it_proves_nothing(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = call("corpus", "run", "backward", corpus, "-o", out, "--only", "mlp", "--jobs", 1, "--power", "none")
    assert "proved: 0 of 1 that are done and differentiable; the power of 1 was not measured" in run.stdout
    assert "0% proved: 0 of 1 that are done" in call("corpus", "report", out).stdout
