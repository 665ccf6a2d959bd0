"""Power: what a check of a Capture can see, and what it cannot."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

import backprint as bp
from face import Capture, Inputs, Power, disturb, main, other_values_of_unit, power_of, recipe_at, units

keep: list[Any] = []


def captured(model: Any, *args: Any, **options: Any) -> Capture:
    keep.append(model)
    return bp.capture(model, *args, **options)


def net(train: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
    return nn.Sequential(*layers).train(train)


IMAGE = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def trial(power: Power, name: str) -> Any:
    return next(row for row in power.trials if row.name == name)


def test_a_net_that_is_alive_reacts_to_everything() -> None:
    power = power_of(captured(net(), IMAGE), "all")
    assert power.reacts
    assert power.value is not None
    assert power.value > 1
    assert (power.hidden, power.dead_ports, power.silent) == ((), (), ())
    assert (power.tried, power.of) == (10, 10)


def test_a_net_whose_relus_are_dead_is_flagged() -> None:
    model = net(train=False)
    with torch.no_grad():
        model[1].bias.fill_(-100)
    power = power_of(captured(model, IMAGE), "all")
    assert not power.reacts
    assert "input input" in power.hidden
    assert "gradient 0.weight" in power.dead_ports
    assert trial(power, "parameter 4.bias").moved == (("output output", pytest.approx(1e4, rel=1)),)
    assert ("input input", "forward") in power.silent
    assert power.value == 0


def test_an_input_that_the_values_of_another_hide_is_dead() -> None:
    capture = captured(lambda x, gate: x + gate * 1e-9, torch.randn(50), torch.randn(50))
    power = power_of(capture)
    assert power.hidden == ("input gate",)
    assert trial(power, "input gate").silent == ("forward",)
    assert not power.reacts


@pytest.mark.slow
def test_a_weight_shows_in_either_direction_and_an_input_in_both() -> None:
    def program(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x.sin() + 1e-9 * y, y.cos()

    x, y = torch.randn(50).requires_grad_(), torch.randn(50).requires_grad_()
    assert power_of(captured(program, x, y)).reacts
    faint = captured(lambda x, w: x * 1e2 + (w * w).sum() * 1e-4, torch.randn(50), torch.randn(3).requires_grad_())
    power = power_of(faint)
    assert trial(power, "input w").silent == ("forward",)
    assert power.hidden == ("input w",)
    model = nn.Linear(1, 1, bias=False)
    model.forward = lambda x: x * 1e2 + model.weight.square().sum() * 1e-4  # type: ignore[method-assign]
    with torch.no_grad():
        model.weight.fill_(1.0)
    power = power_of(captured(model, torch.randn(50)), "all")
    assert trial(power, "parameter weight").silent == ("forward",)
    assert "parameter weight" not in power.hidden


NULL: dict[str, tuple[Callable[[], Capture], str, str]] = {
    "a bias before a norm of the batch": (
        lambda: captured(net(), IMAGE),
        "parameter 0.bias",
        "output output",
    ),
    "a shift before a softmax": (
        lambda: captured(lambda x, shift: torch.softmax(x + shift, -1), torch.randn(5, 7), torch.randn(5, 1)),
        "input shift",
        "output output",
    ),
    "a value that takes itself away": (
        lambda: captured(lambda x, y: x.sin() + (y - y), torch.randn(5), torch.randn(5)),
        "input y",
        "output output",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NULL)
def test_a_path_without_influence_is_no_dependence(name: str) -> None:
    make, drawn, port = NULL[name]
    power = power_of(make(), "all")
    assert port in trial(power, drawn).null
    assert port not in dict(trial(power, drawn).moved)
    assert power.reacts


def test_saturation_by_the_inputs_is_no_excuse() -> None:
    """At the neutral point the softmax is not saturated, so what stands still on these inputs is weak."""
    capture = captured(lambda x: torch.softmax(x, -1), torch.randn(1, 8).requires_grad_())
    steep = torch.arange(8.0)[None] * 1e3
    recipes = Inputs({**capture.recipes.recipes, "x": recipe_at(steep, "exact", {}, 0)}, {"x": steep})
    power = power_of(capture, recipes=recipes, fresh={"x": steep * 2})
    assert trial(power, "input x").weak == ("output output", "gradient x")
    assert not power.reacts


def test_what_no_seed_changes_takes_a_definite_step() -> None:
    def program(table: Tensor, ids: Tensor, mask: Tensor, scale: Tensor, open_: Tensor) -> Tensor:
        return (table[ids] * scale).masked_fill(~mask[:, None], 0.0) + open_[:, None]

    mask, opened = torch.ones(5, dtype=torch.bool), torch.tensor([0.0, float("-inf"), 0.0, 0.0, 0.0])
    capture = captured(program, torch.randn(9, 4), torch.tensor([1, 2, 3, 3, 8]), mask, torch.ones(()), opened)
    power = power_of(capture)
    assert power.reacts
    assert power.tried == power.of == 5
    assert all(not row.untried for row in power.trials)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([3, 1, 2]),
        torch.tensor(5),
        torch.tensor([True, True]),
        torch.full((3,), 2.5),
        torch.randn(4, dtype=torch.complex64),
        torch.tensor([0.0, float("-inf"), 0.0]),
        torch.full((8,), torch.finfo(torch.float32).min),
        torch.rand(9).bfloat16() + 1,
    ],
    ids=lambda tensor: f"{tensor.dtype} {list(tensor.shape)}",
)
def test_a_disturbed_tensor_is_another_of_its_kind(tensor: Tensor) -> None:
    for seed in range(20):
        other = disturb(tensor, seed)
        assert other is not None
        assert (other.dtype, other.shape) == (tensor.dtype, tensor.shape)
        if not tensor.is_floating_point() or torch.isfinite(tensor).all():
            assert not torch.equal(other, tensor)
        if not tensor.is_complex() and tensor.dtype is not torch.bool and bool((tensor >= 0).all()):
            assert bool((other >= 0).all())
        if tensor.dtype is torch.int64 and tensor.unique().numel() > 1:
            assert sorted(other.tolist()) == sorted(tensor.tolist())


def test_views_of_one_memory_are_drawn_again_together() -> None:
    base = torch.randn(4, 6)
    capture = captured(lambda x, y: x.sum() + y.sum(), base, base.t())
    recipes = capture.recipes.recipes
    assert units(recipes)["x"] == ("x", "y")
    made = other_values_of_unit(("x", "y"), recipes, capture.recipes.make(), 1)
    assert made is not None
    assert made["y"].data_ptr() == made["x"].data_ptr()
    assert torch.equal(made["y"], made["x"].t())
    assert power_of(capture).reacts


def test_what_a_guard_holds_is_not_drawn_again_and_said() -> None:
    capture = captured(lambda x, n: x * int(n.item()) + n, torch.randn(3), torch.tensor(4))
    power = power_of(capture)
    assert trial(power, "input n").untried == "a guard holds it"
    assert (power.tried, power.of) == (1, 2)


def test_a_draw_on_which_the_program_does_not_run_is_said() -> None:
    capture = captured(lambda table, ids: table[ids], torch.randn(3, 4), torch.zeros(5, dtype=torch.int64))
    with_more = {"ids": torch.full((5,), 7)}
    power = power_of(capture, fresh=with_more)
    assert "does not run on it" in trial(power, "input ids").untried


def test_time_and_number_end_it_early() -> None:
    capture = captured(net(), IMAGE)
    few = power_of(capture, "all", count=5)
    assert (len(few.trials), few.tried, few.of) == (5, 2, 10)
    assert few.trials[3].name == "input input"
    assert len(power_of(capture, "all", seconds=0).trials) == 1


def test_nan_is_no_movement() -> None:
    capture = captured(lambda x: x / 0 * 0, torch.rand(4) + 1)
    power = power_of(capture)
    assert power.value == 0
    assert not power.reacts


@pytest.mark.slow
def test_the_power_of_linked_pairs_is_that_of_the_whole() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        z = torch.tanh(x * y)
        torch._dynamo.graph_break()
        return z * y

    power = power_of(captured(program, torch.randn(4), torch.randn(4), engine="dynamo"))
    assert power.reacts
    assert dict(trial(power, "input x").moved).keys() == {"output output", "gradient x", "gradient y"}


def test_a_fake_capture_has_no_power() -> None:
    capture = bp.capture(net(), IMAGE, fake=True)
    with pytest.raises(bp.errors.ReplayError, match="without values"):
        bp.power(capture)


def test_an_unknown_choice_of_inputs_is_refused() -> None:
    with pytest.raises(bp.errors.UsageError, match="not one of quick, own, all"):
        bp.power(captured(net(), IMAGE), "some")


# ------------------------------------------------------------------ what a sample keeps, and says


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two samples: one that is alive, one whose ReLUs are dead."""
    folder = tmp_path_factory.mktemp("power")
    captured(net(), IMAGE, name="alive").save(folder / "alive", power="own")
    dead = net(train=False)
    with torch.no_grad():
        dead[1].bias.fill_(-100)
    captured(dead, IMAGE, name="dead").save(folder / "dead", power="own")
    return folder


def call(*arguments: Any) -> Any:
    return CliRunner().invoke(main, [str(each) for each in arguments])


@pytest.mark.slow
def test_a_sample_keeps_its_power(samples: Path) -> None:
    alive, dead = (bp.load(samples / name).verdict for name in ("alive", "dead"))
    rows = alive["powers"]["redrawn"]
    assert list(rows) == ["everything", "parameters", "buffers", "input input"]
    assert (alive["powers"]["tried"], alive["powers"]["of"], alive["vacuous"]) == (1, 1, [])
    assert rows["input input"]["least"] > 1
    assert dead["powers"]["redrawn"]["input input"]["silent"] == ["forward", "backward"]
    assert dead["powers"]["redrawn"]["input input"]["hidden"]
    assert "gradient 0.weight" in dead["vacuous"]
    assert dead["power"] == 0


def test_a_save_looks_once_where_nothing_else_is_asked(tmp_path: Path) -> None:
    capture = captured(net(), IMAGE)
    verdict = bp.load(capture.save(tmp_path / "quick")).verdict
    assert list(verdict["powers"]["redrawn"]) == ["inputs"]
    assert (verdict["vacuous"], verdict["powers"]["of"]) == ([], 0)
    without = bp.load(capture.save(tmp_path / "none", power="none")).verdict
    assert (without["verdict"], without["power"], without["vacuous"]) == ("bitwise", None, [])
    assert "powers" not in without
    with pytest.raises(bp.errors.UsageError, match="power='much' is not one of 'none', 'quick', 'own', 'all'"):
        capture.save(tmp_path / "much", power="much")


def test_a_sample_of_before_is_read_without(samples: Path, tmp_path: Path) -> None:
    place = tmp_path / "old"
    shutil.copytree(samples / "alive", place)
    content = json.loads((place / "capture.json").read_text())
    del content["verdict"]["powers"]
    (place / "capture.json").write_text(json.dumps(content))
    assert "powers" not in bp.load(place).verdict
    assert call("verify", place).exit_code == 0


def test_verify_flags_what_has_no_power_and_does_not_count_it(samples: Path) -> None:
    result = call("verify", "--json", samples)
    alive, dead = map(json.loads, result.stdout.splitlines())
    assert (alive["verdict"], alive["vacuous"], alive["proof"]) == ("bitwise", [], True)
    assert (dead["verdict"], dead["proof"]) == ("bitwise", False)
    assert "gradient 0.weight" in dead["vacuous"]
    assert "vacuous, no proof" in dead["detail"]
    assert "no proof of buffers, input input: hidden when it was saved" in dead["detail"]
    assert "2 checked: 2 bitwise; 1 of them not proved whole: " in call("verify", samples).stdout


@pytest.mark.slow
def test_verify_redraws_each_input_alone_and_is_strict_where_it_is_asked_to_be(samples: Path) -> None:
    good = call("verify", samples / "alive", "--strict", "--json", "--power", "all")
    powers = json.loads(good.stdout)["powers"]
    assert (good.exit_code, powers["reacts"], powers["tried"], powers["of"]) == (0, True, 10, 10)
    bad = call("verify", samples, "--power")
    assert "no proof: nothing moves" in bad.stdout
    assert "a check sees all that results depend on" in bad.stdout
    assert [call("verify", samples, *more).exit_code for more in (["--power"], [], ["--strict"])] == [0, 0, 1]


def test_a_number_that_the_program_reads_stays_at_the_neutral_point() -> None:
    def program(x: Tensor, unused: Tensor, scale: Tensor) -> Tensor:
        return torch.stack([x * scale.item(), unused])[:1]

    capture = captured(program, torch.randn(3, 4), torch.randn(3, 4), torch.tensor(2.5))
    found = {trial.name: trial for trial in bp.power(capture, "own").trials}
    assert found["input unused"].moved == ()
    assert "output output" in found["input unused"].null
