"""`backprint`: what each verb says, what it leaves behind, and how it exits."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from torch import Tensor

import backprint as bp
from face import COMMANDS, __version__, main

HUGE = """
import torch


def factory():
    return torch.nn.Linear(2**18, 2**18), (torch.randn(2, 2**18),)
"""

PROGRAM = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.drop = nn.Linear(3, 2), nn.Dropout(0.5)

    def forward(self, x, scale=1.0):
        return self.drop(torch.tanh(self.fc(x))) * scale


def factory():
    torch.manual_seed(0)
    return Net(), (torch.ones(4, 3),)


def one_input():
    return Net(), torch.ones(4, 3)


def with_kwargs():
    return Net(), (), {"x": torch.ones(4, 3), "scale": 2.5}


def inference():
    return lambda ids: ids + 1, (torch.arange(3),)


def counted():
    return lambda x, n: (x * int(n.item())).sum(), (torch.ones(3), torch.tensor(4))


def no_pair():
    return Net()


def three_of_a_kind():
    return Net(), (torch.ones(4, 3),), [1]


def squares(output):
    return output.square().sum()


loss_of_text = "squares"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to be in, with a program as a file and as a package."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "__init__.py").write_text("")
    (tmp_path / "models" / "net.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("program", "models", "models.net"):
        sys.modules.pop(name, None)  # these alone: torch's compilers cannot be imported twice


def call(*arguments: Any, width: int | None = None) -> Result:
    """One call in a pipe, or in a terminal of some width; anything raised but an exit is a traceback that a user would
    see."""
    columns = {"COLUMNS": None if width is None else str(width)}  # a worker of the tests may have one
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], env=columns)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def good(*arguments: Any) -> Result:
    result = call(*arguments)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result


def refused(*arguments: Any) -> str:
    """What wrong usage says: exit code 2, nothing on stdout, and the reason."""
    result = call(*arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    found = re.search(r"^Error: (.*)\Z", result.stderr, re.MULTILINE | re.DOTALL)
    assert found
    return " ".join(found[1].split())


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    path: Path = bp.capture(model, torch.randn(2, 3), name="mlp").save(tmp_path_factory.mktemp("samples") / "mlp")
    return path


@pytest.fixture(scope="module")
def forward_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = bp.capture(lambda ids: ids + 1, torch.arange(3), name="next").save(
        tmp_path_factory.mktemp("samples") / "next"
    )
    return path


@pytest.fixture
def wrong(sample: Path, tmp_path: Path) -> Path:
    """A sample whose forward computes something else."""
    shutil.copytree(sample, tmp_path / "wrong")
    model = tmp_path / "wrong" / "pair_0" / "forward" / "model.py"
    text = model.read_text()
    model.write_text(text.replace("aten.tanh.default", "aten.sin.default"))
    assert model.read_text() != text
    return tmp_path / "wrong"


@pytest.fixture
def unproven(tmp_path: Path) -> Path:
    model = torch.nn.Linear(2, 2)
    path: Path = bp.capture(model, torch.ones(1, 2)).save(tmp_path / "unproven", "none")
    return path


# ------------------------------------------------------------------ help, version, completion


def test_each_verb_and_each_option_explains_itself() -> None:
    for verb in COMMANDS:
        said = good(verb, "--help").stdout
        assert said.startswith(f"Usage: main {verb} ")
        assert len(said.splitlines()) > 5, verb
        command = main.get_command(main.make_context("backprint", [verb]), verb)
        assert command is not None
        for option in command.params:
            if option.param_type_name == "option":
                assert getattr(option, "help", ""), f"{verb} {option.opts}"


def test_version() -> None:
    assert good("--version").stdout == f"backprint, version {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_completion_is_produced(shell: str) -> None:
    command = shutil.which("backprint", path=str(Path(sys.executable).parent))
    assert command
    done = subprocess.run(
        [command],
        env={**os.environ, "_BACKPRINT_COMPLETE": f"{shell}_source"},
        **dict(capture_output=True, text=True, timeout=60, check=False),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "_backprint_completion" in done.stdout


def test_completion_knows_the_verbs() -> None:
    command = shutil.which("backprint", path=str(Path(sys.executable).parent))
    assert command
    words = {"_BACKPRINT_COMPLETE": "bash_complete", "COMP_WORDS": "backprint ", "COMP_CWORD": "1"}
    done = subprocess.run(
        [command], env=os.environ | words, **dict(capture_output=True, text=True, timeout=60, check=False)
    )
    assert done.stdout.split() == [f"plain,{verb}" for verb in COMMANDS]


def test_the_module_runs_too(sample: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "backprint", "verify", "--json", str(sample)],
        **dict(capture_output=True, text=True, timeout=120, check=False),
    )
    assert (done.returncode, done.stderr, json.loads(done.stdout)["verdict"]) == (0, "", "bitwise")


def test_help_and_show_need_no_torch(sample: Path) -> None:
    code = (
        "import sys; from backprint.cli import run_command\n"
        f"for line in (['--help'], ['capture', '--help'], ['show', {str(sample)!r}]):\n"
        "    try: run_command(line)\n"
        "    except SystemExit as end: assert end.code == 0\n"
        "    assert 'torch' not in sys.modules, line\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# ------------------------------------------------------------------ capture


@pytest.mark.parametrize("target", ["program.py:factory", "./program.py:one_input", "models.net:factory"])
def test_capture_takes_a_file_or_a_module(target: str, place: Path) -> None:
    said = good("capture", target, "-o", "out").stdout
    steps = r"out: Net, \d+ steps forward, \d+ steps backward, \d+ values saved\n"
    assert re.match(steps + r"engine: eager\nverdict: bitwise, derivative\n", said)
    loaded = bp.load(place / "out")
    assert loaded.name == "Net"
    assert {port.name for port in loaded.pairs[0].forward.inputs} == {"fc.weight", "fc.bias", "x"}
    assert bp.verify(loaded)[0].verdict == "bitwise"


def test_a_factory_may_give_keyword_arguments(place: Path) -> None:
    good("capture", "program.py:with_kwargs", "-o", "out")
    loaded = bp.load(place / "out")
    assert loaded.signature.leaves == (("scale", "2.5"),)
    assert "2.5" in loaded.pairs[0].forward.code


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("program.py", "program.py: name the function that returns the model and its inputs: program.py:"),
        ("program", "'program' is not a TARGET: write file.py:factory, package.module:factory, or the folder of"),
        (
            "models",
            "models: not a sample: a sample's folder has capture.json (a Backprint sample), or model.py and graph_net",
        ),
        ("program.py:a-b", "is not a TARGET"),
        ("absent.py:factory", "absent.py: no such file"),
        ("models.absent:factory", "models.absent: no module 'models.absent' (the current folder is searched first)"),
        ("program.py:absent", "program.py has no function 'absent'; it has Net, factory, one_input"),
        ("program.py:no_pair", "the factory must return (model, args) or (model, args, kwargs), not a Net"),
        ("program.py:three_of_a_kind", "or (model, args, kwargs), not (Net, tuple, list)"),
    ],
)
def test_a_bad_target_is_wrong_usage_and_says_what_to_do(target: str, why: str, place: Path) -> None:
    assert why in refused("capture", target, "-o", "out")
    assert not (place / "out").exists()


@pytest.mark.parametrize(("loss", "of"), [("sum", torch.sum), ("mean", torch.mean)])
def test_a_loss_by_name(loss: str, of: Callable[[Tensor], Tensor], place: Path) -> None:
    good("capture", "program.py:factory", "-o", "out", "--loss", loss, "--mode", "eval")
    loaded = bp.load(place / "out")
    state = {name: torch.ones(port.spec.shape) for name, port in ports(loaded).items() if name != "x"}
    replayed = bp.replay(loaded, torch.ones(4, 3), state=state)
    assert loaded.signature.loss == "loss"
    assert replayed.loss is not None
    assert torch.equal(replayed.loss, of(replayed.outputs))
    assert loaded.signature.differentiable == ("loss",)


def ports(capture: Any) -> dict[str, Any]:
    return {port.name: port for port in capture.pairs[0].forward.inputs}


def test_a_loss_of_the_users(place: Path) -> None:
    good("capture", "program.py:factory", "-o", "out", "--loss", "program.py:squares")
    assert {"aten.pow.Tensor_Scalar", "aten.sum.default"} <= targets(place / "out")
    assert "no function 'cubes'" in refused("capture", "program.py:factory", "-o", "o", "--loss", "program.py:cubes")
    assert "loss='max' is no loss" in refused("capture", "program.py:factory", "-o", "o", "--loss", "max")


def test_a_loss_of_what_has_no_floats_is_wrong_usage(place: Path) -> None:
    assert "no floating-point tensor" in refused("capture", "program.py:inference", "-o", "out", "--loss", "sum")


def targets(path: Path) -> set[str]:
    return {step.target for step in bp.load(path).pairs[0].forward.steps}


def test_the_mode(place: Path) -> None:
    good("capture", "program.py:factory", "-o", "train")
    good("capture", "program.py:factory", "-o", "eval", "--mode", "eval")
    drawing = [any("bernoulli" in target for target in targets(place / mode)) for mode in ("train", "eval")]
    assert drawing == [True, False]
    assert "needs a module" in refused("capture", "program.py:inference", "-o", "out", "--mode", "eval")


def test_what_reads_values_is_specialized_unless_refused(place: Path) -> None:
    result = call("capture", "program.py:counted", "-o", "out", "--no-specialize")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "backprint: DataDependentError: " in result.stderr
    assert "Traceback" not in result.stderr
    assert not (place / "out").exists()
    assert "guard: " in good("capture", "program.py:counted", "-o", "out").stdout


def test_data(place: Path) -> None:
    good("capture", "program.py:factory", "-o", "exact", "--data", "exact")
    assert (place / "exact" / "tensors.safetensors").exists()
    good("capture", "program.py:factory", "-o", "none", "--data", "none")
    assert call("verify", "none").exit_code == 1
    assert "'all' is not one of 'seed', 'exact', 'none'" in refused(
        "capture", "program.py:factory", "-o", "out", "--data", "all"
    )


def test_a_device_that_is_not_there_is_wrong_usage(place: Path) -> None:
    good("capture", "program.py:factory", "-o", "out", "--device", "cpu")
    assert "--device abacus: " in refused("capture", "program.py:factory", "-o", "other", "--device", "abacus")


def test_a_fake_capture_allocates_nothing_and_stays_unproven(place: Path) -> None:
    (place / "huge.py").write_text(HUGE)
    said = good("capture", "huge.py:factory", "-o", "out", "--fake", "--device", "cpu").output
    assert "verdict: unproven (fake: captured without values" in said
    assert "f32[262144, 262144] parameter weight" in (place / "out/pair_0/forward/model.py").read_text()
    assert call("verify", "out").exit_code == 1
    assert "unproven" in good("verify", "out", "--allow-unproven").output


def test_what_is_there_is_replaced_only_when_asked_for(place: Path) -> None:
    good("capture", "program.py:factory", "-o", "out", "--name", "first")
    said = refused("capture", "program.py:with_kwargs", "-o", "out", "--name", "second")
    assert "out exists already: pass overwrite=True (--overwrite)" in said
    assert bp.load(place / "out").name == "first"
    good("capture", "program.py:with_kwargs", "-o", "out", "--name", "second", "--overwrite")
    assert bp.load(place / "out").name == "second"
    assert "models exists and is not a sample" in refused(
        "capture", "program.py:factory", "-o", "models", "--overwrite"
    )
    assert (place / "models" / "net.py").exists()


def test_a_place_that_is_taken_is_refused_before_anything_runs(place: Path) -> None:
    (place / "slow.py").write_text("raise SystemExit('it ran')")
    assert "is not a sample" in refused("capture", "slow.py:factory", "-o", "models")


# ------------------------------------------------------------------ verify


def test_a_table_fits_a_terminal_and_is_whole_in_a_pipe(wrong: Path) -> None:
    heading, row, *details, _ = call("verify", wrong).stdout.splitlines()
    assert heading == "sample\tname\tverdict\tpower"
    assert row.split("\t")[:2] == [str(wrong), "mlp"]
    assert details
    assert all(detail.startswith(f"{wrong} · mlp: ") for detail in details)
    narrow = call("verify", wrong, width=60).stdout.splitlines()
    assert "\t" not in "".join(narrow)
    assert all(len(line) <= 60 for line in narrow[: narrow.index(details[0])])


def test_verify_finds_the_samples_below_a_folder(sample: Path, tmp_path: Path) -> None:
    for name in ("b", "a", "deeper/c"):
        shutil.copytree(sample, tmp_path / "corpus" / name)
    (tmp_path / "corpus" / "notes.txt").write_text("no sample")
    said = good("verify", "--json", tmp_path / "corpus").stdout
    found = [Path(json.loads(line)["sample"]).relative_to(tmp_path / "corpus").as_posix() for line in said.splitlines()]
    assert found == ["a", "b", "deeper/c"]
    assert "3 checked: 3 bitwise" in good("verify", tmp_path / "corpus").stdout


def test_whatever_verifying_raises_is_a_row(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise KeyError("what nobody thought of")

    from face import rows_of_sample

    monkeypatch.setattr(bp, "verify", fail)
    (row,) = rows_of_sample(sample, ())
    assert row["verdict"] == "failed"
    assert "KeyError: 'what nobody thought of'" in row["detail"]


# ------------------------------------------------------------------ show


def test_show_prints_layers_as_a_loop_unless_it_is_asked_for_each_step(tmp_path: Path) -> None:
    layers = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()) for _ in range(12)]
    capture = bp.capture(torch.nn.Sequential(*layers), torch.randn(2, 4))
    place = bp.save(capture, tmp_path / "deep")
    forward = bp.load(place).pairs[0].forward
    assert good("show", "--forward", place).stdout == f"{forward.fold()}\n"
    assert "    for i in range(11):  # 11.0 … 1.0\n" in good("show", "--backward", place).stdout
    assert good("show", "--forward", "--flat", place).stdout == forward.code + "\n"


def test_show_takes_names_as_they_are(sample: Path, tmp_path: Path) -> None:
    """What looks like rich's own marks in a name is text."""
    shutil.copytree(sample, tmp_path / "sample")
    content = json.loads((tmp_path / "sample" / "capture.json").read_text())
    content |= {"name": "net[/bold][0]", "engine": "[aot]"}
    content["guards"] = [{"kind": "value", "text": "x[0] == 1 [/red]", "inputs": ["x"], "source": None}]
    content["opaque"] = [{"kind": "hook", "text": "fc[/] has a hook", "source": None}]
    (tmp_path / "sample" / "capture.json").write_text(json.dumps(content))
    said = good("show", "--summary", tmp_path / "sample").stdout
    for text in ("net[/bold][0]", "[aot]", "x[0] == 1 [/red]", "fc[/] has a hook"):
        assert text in said


# ------------------------------------------------------------------ doctor and demo


def test_the_doctor_finds_this_machine_good() -> None:
    assert "capture, save, load and verify: bitwise" in good("doctor").stdout
    answer = json.loads(good("doctor", "--json").stdout)
    assert answer["good"] is True
    assert answer["torch"].startswith(torch.__version__)


def test_the_doctor_lists_the_engines_that_work(monkeypatch: pytest.MonkeyPatch) -> None:
    from face import frontend

    answer = json.loads(good("doctor", "--json").stdout)
    assert answer["engines"] == "eager bitwise, aot bitwise, dynamo bitwise"
    monkeypatch.setattr(frontend, "run_graph_once", None)
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    result = call("doctor", "--json")
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["good"]) == (1, False)
    assert "eager bitwise, aot bitwise, dynamo not good: TypeError" in answer["engines"]
    assert answer["torch"].startswith("2.99.0 (not tried: Backprint was tried with 2.11 to 2.15)")


def test_the_doctor_names_what_is_not_good(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise bp.errors.SampleError("the disk is full")

    monkeypatch.setattr(bp, "save", fail)
    result = call("doctor", "--json")
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["good"]) == (1, False)
    assert answer["flow"] == "not good: SampleError: the disk is full"
    assert "flow       not good: SampleError" in call("doctor").stdout


@pytest.mark.slow
def test_the_demo_leaves_samples_that_are_proven(place: Path) -> None:
    (place / "samples" / "gpt").mkdir(parents=True)  # a reader's own, which the demo leaves alone
    said = good("demo").stdout
    for name in ("convnet", "gpt"):
        for side in ("forward", "backward"):
            path = f"samples/demo/{name}/pair_0/{side}/model.py"
            assert path in said
            assert (place / path).is_file()
    assert "2 checked: " in said
    assert [
        json.loads(line)["verdict"] in ("bitwise", "close")
        for line in good("verify", "--json", "samples/demo").stdout.splitlines()
    ] == [True, True]
    assert not list((place / "samples" / "gpt").iterdir())
