"""What the command line can do, Python can, under the same word; and no option takes two kinds of values."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

import backprint as bp
from face import CHOICES, COMMANDS, UsageError, main


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("samples")
    torch.manual_seed(0)
    for name, width in (("a", 3), ("b", 3), ("wide", 5)):
        bp.capture(nn.Sequential(nn.Linear(width, 4), nn.Tanh()), torch.randn(2, width)).save(place / name)
    return place


# ------------------------------------------------------------------ corpora, from Python


@pytest.mark.slow
def test_a_corpus_run_from_python_loads_no_torch_and_goes_on(samples: Path, tmp_path: Path) -> None:
    script = f"""
import sys
import backprint as bp
done = bp.corpus.run("verify", {str(samples)!r}, {str(tmp_path / "out")!r}, jobs=1, only=("a", "w*"))
again = bp.corpus.run("verify", {str(samples)!r}, {str(tmp_path / "out")!r}, jobs=1, only=("a", "w*"))
assert done == again and done.good and done.verdicts == {{"bitwise": 2}}, done
assert [row["id"] for row in done.rows()] == ["a", "wide"]
kept = bp.corpus.dedup({str(samples)!r}, {str(tmp_path / "kept")!r}, ignore_sizes=True, files="none")
assert [member.id for member in kept.kept] == ["a"], kept
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_split_of_a_folder_has_the_parts_of_each_sample(samples: Path, tmp_path: Path) -> None:
    events: list[Any] = []
    done = bp.corpus.run("split", samples, tmp_path / "out", by="range:2", data="none", jobs=1, watch=events.append)
    assert done.good
    assert events
    rows = json.loads((tmp_path / "out" / "b" / "parts.json").read_text())
    assert [row["part"] for row in rows] == ["part_000", "part_001"]
    assert bp.load(tmp_path / "out" / "a" / "part_000").recipes.missing


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda s, o: bp.corpus.run("verify", s, o, only="a"), r"only='a' is a text: write only=\('a',\)"),
        (lambda s, o: bp.corpus.run("verify", s, o, retry="failed"), "retry='failed' is a text"),
        (lambda s, o: bp.corpus.run("verify", s, o, shard="0/3"), "--shard 0/3: write K/N"),
        (lambda s, o: bp.corpus.run("backward", s, o, data="all"), "data='all' is not one of 'seed', 'exact', 'none'"),
        (lambda s, o: bp.corpus.run("backward", s, o, mode="eval"), "backward means mode='train', not mode='eval'"),
        (lambda s, o: bp.corpus.run("verify", s, o, allow="ns::op"), "allow='ns::op' is a text"),
        (lambda s, o: bp.corpus.run("split", s, o, by="half"), "'half' is not one of range"),
        (lambda s, o: bp.corpus.run("backward", s, o, depth=3), "backward takes no option 'depth'"),
        (lambda s, o: bp.corpus.dedup(s, o, files="list"), "files='list' is not one of 'link', 'copy', 'none'"),
    ],
)
def test_a_run_that_cannot_be_meant_so_is_refused_before_it_begins(
    samples: Path, tmp_path: Path, call: Callable[[Path, Path], Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        call(samples, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_option_of_every_run_is_not_set_for_the_verb(samples: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["corpus", "run", "x.py:f", str(samples), "-o", "out", "--set", "jobs=3"])
    assert (done.exit_code, "'jobs' is an option of every run" in done.stderr) == (2, True)


@pytest.mark.slow
def test_a_corpus_is_captured_in_the_mode_that_it_is_in(samples: Path, tmp_path: Path) -> None:
    done = bp.corpus.run("capture", samples, tmp_path / "out", only=("a",), jobs=1)
    [row] = done.rows()
    assert (row["verdict"], row["mode"]) == ("bitwise", None)


# ------------------------------------------------------------------ options of one capture


def scaled(x: Tensor, w: Tensor) -> Tensor:
    return torch.nn.functional.gelu(x * w)


def test_a_loss_and_decompositions_are_given_by_name() -> None:
    x, w = torch.randn(3), torch.randn(3)
    cap = bp.capture(scaled, x, w, loss="sum", decompose=("aten::gelu", "aten::gelu_backward"))
    pair = cap.pairs[0]
    assert pair.backward is not None
    assert not any("gelu" in step.target for graph in (pair.forward, pair.backward) for step in graph.steps)
    whole = bp.capture(scaled, x, w)
    assert any("gelu" in step.target for step in whole.pairs[0].forward.steps)
    assert torch.allclose(bp.replay(cap).loss, scaled(x, w).sum())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"decompose": "aten::gelu"}, r"decompose='aten::gelu' is a text: write decompose=\('aten::gelu',\)"),
        ({"decompose": ("aten.gelu",)}, "'aten.gelu' is not an operator's name: write 'aten::gelu'"),
        ({"decompose": ("aten::nothing",)}, "there is no operator 'aten::nothing'"),
        (
            {"decompose": ("aten::sort",)},
            "no decomposition of aten::sort: pass your own, decompose={torch",
        ),
        ({"allow": "ns::op"}, "allow='ns::op' is a text"),
        ({"loss": "most"}, "loss='most' is no loss"),
        ({"device": "cuda"}, "device= is for a TARGET"),
        ({"trust": True}, "trust= is for a TARGET"),
        ({"specialise": False}, "spelled specialize="),
    ],
)
def test_options_that_cannot_be_meant_so_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        bp.capture(scaled, torch.randn(3), torch.randn(3), **options)


def test_a_program_may_have_a_parameter_called_device() -> None:
    cap = bp.capture(lambda x, device: x.to(device).sin(), torch.randn(3), device="cpu")
    assert cap.verify()[0].good


def test_an_old_spelling_is_refused_of_a_program_that_takes_any_keyword() -> None:
    with pytest.raises(UsageError, match="spelled specialize="):
        bp.capture(lambda x, **more: x.sin(), torch.randn(3), specialise=False)


@pytest.mark.parametrize("call", [lambda cap: bp.load("x", allow="ns::op"), lambda cap: bp.verify(cap, "captured")])
def test_a_text_where_several_are_meant_is_refused(call: Callable[[Any], Any]) -> None:
    with pytest.raises(UsageError, match=r"is a text: write \w+=\("):
        call(bp.capture(torch.sin, torch.randn(3)))


def test_gradients_and_decompositions_are_asked_for_on_the_command_line(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n\ndef f(x, w):\n    return torch.nn.functional.gelu(x * w)\n\n"
        "def factory():\n    return f, (torch.ones(3), torch.ones(3))\n"
    )
    arguments = ["capture", f"{program}:factory", "-o", str(tmp_path / "out"), "--loss", "sum", "--no-specialize"]
    done = CliRunner().invoke(main, [*arguments, "--requires-grad", "w", "--decompose", "aten::gelu"])
    assert done.exit_code == 0, done.output
    pair = bp.load(tmp_path / "out").pairs[0]
    assert pair.backward is not None
    assert [port.name for port in pair.backward.outputs] == ["w"]
    assert not any("aten.gelu.default" in step.target for step in pair.forward.steps)
    arguments = [*arguments[:4], "--overwrite", "--engine", "eager", "--requires-grad"]
    done = CliRunner().invoke(main, [*arguments, "inputs"])
    assert done.exit_code == 0, done.output
    backward = bp.load(tmp_path / "out").pairs[0].backward
    assert backward is not None
    assert [port.name for port in backward.outputs] == ["x", "w"]
    done = CliRunner().invoke(main, [*arguments, "all", "--requires-grad", "w"])
    assert (done.exit_code, "--requires-grad all stands alone" in done.stderr) == (2, True)
    whole = CliRunner().invoke(main, ["capture", str(tmp_path / "out"), "-o", str(tmp_path / "o"), "--decompose", "x"])
    assert (whole.exit_code, "'x' is not an operator's name" in whole.stderr) == (2, True)


def test_a_capture_is_split_and_joined(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), torch.randn(2, 3)
    cap = bp.capture(model, x)
    found = bp.split(cap, by="range:2")
    assert [part.verdict.verdict for part in found.parts] == ["bitwise", "bitwise"]
    assert torch.equal(bp.replay(found.joined, x, state=model.state_dict()).outputs, model(x))
    with pytest.raises(UsageError, match=r"bp\.split takes a Capture, not a path"):
        bp.split("samples/x", by="range:2")  # type: ignore[arg-type]


def test_dumps_of_regions_are_compared(tmp_path: Path) -> None:
    for name in ("one", "two"):
        x = torch.ones(3, requires_grad=True)
        with bp.region(tmp_path / name, gradients="values"):
            y = x.sin().sum()
        y.backward()
    found = bp.regions.compare(tmp_path / "one", tmp_path / "two")
    assert found.good
    with pytest.raises(UsageError, match="no such folder"):
        bp.regions.compare(tmp_path / "one", tmp_path / "three")


# ------------------------------------------------------------------ one option, one meaning


def commands(group: click.Command, name: str = "") -> dict[str, click.Command]:
    if not isinstance(group, click.Group):
        return {name: group}
    context = click.Context(group)
    found: dict[str, click.Command] = {}
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        assert command is not None
        found |= commands(command, f"{name} {each}".strip())
    return found


def kinds(option: click.Option) -> Any:
    if isinstance(option.type, click.Choice):
        return tuple(option.type.choices)
    return (option.type.name.removesuffix(" range"), option.is_flag, option.multiple, option.metavar)


def options_of_all() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, command in commands(main).items():
        for option in command.params:
            if isinstance(option, click.Option):
                found.setdefault(option.opts[-1] if len(option.opts) == 1 else option.opts[0], {})[name] = option
    return found


def test_an_option_takes_the_same_values_in_every_verb() -> None:
    assert {name.split()[0] for name in commands(main)} == set(COMMANDS)
    differing = {
        name: {verb: kinds(option) for verb, option in by_verb.items()}
        for name, by_verb in options_of_all().items()
        if name not in ELSEWHERE and len({kinds(option) for option in by_verb.values()}) > 1
    }
    assert differing == {}


ELSEWHERE = {"-o", "--json", "--compiler"}
"""Where the answer goes is each verb's own, and how many compilers it takes."""


def test_options_with_words_have_those_of_the_table() -> None:
    for name, by_verb in options_of_all().items():
        if name.removeprefix("--") in CHOICES:
            for verb, option in by_verb.items():
                assert kinds(option) == CHOICES[name.removeprefix("--")], (verb, name)


def test_a_mode_has_no_default() -> None:
    assert {option.default for option in options_of_all()["--mode"].values()} == {None}
