"""`backprint record`: the script runs as if alone, its steps are kept, and what is missing is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from torch.optim.optimizer import _global_optimizer_post_hooks
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import backprint as bp
from face import LiveRecorder, main, recording, steps, traceback_of_script

TRAINING = """
import sys
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))
opt = torch.optim.{optimizer}(net.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)
for step in range(3):
    x, y = torch.randn(5, 6), torch.randn(5, 2)
    loss = nn.functional.mse_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    opt.step()
    scheduler.step()
    print(step, loss.item().hex(), norm.item().hex(), scheduler.get_last_lr(), flush=True)
print([p.sum().item().hex() for p in net.parameters()], torch.rand(1).item().hex(), flush=True)
"""

ACCUMULATING = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(3):
    optimizer.zero_grad()
    for micro in range(2):
        loss = model(torch.randn(4, 3)).square().mean() / 2
        loss.backward()
    optimizer.step()
"""

BY_HAND = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 2)
for step in range(3):
    loss = model(torch.randn(4, 3)).square().mean()
    model.zero_grad()
    loss.backward()
    for p in model.parameters():
        p.data.sub_(0.1 * p.grad)
    print(loss.item().hex())
"""

SMALL = """
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    print(step)
"""

NO_MODULE = """
import torch

w = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([w], lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    (w * w).sum().backward()
    optimizer.step()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to be in, and after each test a process where nothing of a recording is left."""
    monkeypatch.chdir(tmp_path)
    home = list(sys.path), sys.argv, sys.orig_argv, sys.modules["__main__"], sys.excepthook
    plain, hooks = (torch.autograd.backward, torch.autograd.grad), len(_global_optimizer_post_hooks)
    yield tmp_path
    sys.path[:], sys.argv, sys.orig_argv, sys.modules["__main__"], sys.excepthook = home  # the command leaves them
    assert (torch.autograd.backward, torch.autograd.grad) == plain
    assert not any(type(finder).__module__.startswith("backprint") for finder in sys.meta_path)
    assert _get_current_dispatch_mode_stack() == []
    assert len(_global_optimizer_post_hooks) == hooks
    assert not torch.nn.modules.module._global_forward_pre_hooks
    assert torch._dynamo.eval_frame._stance.stance == "default"
    sys.modules.pop("beside_the_script", None)


def call(script: str, *options: Any, arguments: Sequence[str] = ()) -> Result:
    """One call in this process on a script of this text."""
    Path("script.py").write_text(script)
    return CliRunner().invoke(main, ["record", *map(str, options), "script.py", *arguments])


def good(script: str, *options: Any, arguments: Sequence[str] = ()) -> Result:
    result = call(script, *options, arguments=arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def alone(*arguments: str) -> subprocess.CompletedProcess[str]:
    """One process of its own."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        **dict(capture_output=True, text=True, timeout=120, check=False),
    )


def proven(path: str, name: str, pairs: int) -> Any:
    """A sample that proves itself, whole and Pair by Pair."""
    loaded = bp.load(path)
    verdicts = [verdict.verdict for verdict in loaded.verify()]
    assert (loaded.name, len(loaded.pairs)) == (name, pairs)
    assert verdicts[-1] == "bitwise"
    assert set(verdicts) <= {"bitwise", "undifferentiable"}
    return loaded


def ports(graph: Any, role: str) -> set[str]:
    """The names of a Graph's ports of one role."""
    return {port.name for port in (*graph.inputs, *graph.outputs) if port.role == role}


# ------------------------------------------------------------------ what is recorded


PARAMETERS = {f"net.{name}" for name in ("0.weight", "0.bias", "1.weight", "1.bias", "4.weight", "4.bias")}


@pytest.mark.slow
def test_a_script_gives_what_it_gives_alone(place: Path) -> None:
    (place / "script.py").write_text(TRAINING.format(optimizer="AdamW"))
    plain = alone("script.py")
    steps = alone("-m", "backprint", "record", "-o", "out", "script.py")
    assert (plain.returncode, plain.stderr) == (0, "")
    assert (steps.returncode, steps.stdout) == (0, plain.stdout)
    assert steps.stderr == "backprint: step 1: 2 pairs, verdict bitwise, derivative, in out\n"


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW"])
def test_a_step_is_linked_pairs_by_the_scripts_names(optimizer: str) -> None:
    good(TRAINING.format(optimizer=optimizer), "-o", "out")
    loaded = proven("out", "step_1", 2)
    step, update = loaded.pairs
    assert ports(step.forward, "parameter") == PARAMETERS
    assert ports(step.backward, "gradient") == PARAMETERS
    assert ports(step.forward, "mutation") == {
        f"net.1.{x}" for x in ("num_batches_tracked", "running_mean", "running_var")
    }
    assert update.backward is None
    state = {f"opt.state.{n}.{x}" for n in range(6) for x in ("step", "exp_avg", "exp_avg_sq")}
    assert ports(update.forward, "mutation") == PARAMETERS | state
    assert {(link.source, str(link.port), link.target, link.name) for link in loaded.links} == {
        (0, "output loss", None, "loss"),
        *((0, f"gradient {name}", 1, f"{name}.grad") for name in PARAMETERS),
    }


def test_micro_batches_are_pairs_of_their_own() -> None:
    good(ACCUMULATING, "-o", "out")
    loaded = proven("out", "step_1", 3)
    assert [pair.backward is None for pair in loaded.pairs] == [False, False, True]
    assert {(link.source, str(link.port), link.target, link.name) for link in loaded.links} == {
        *((n, f"output loss_{n}", None, f"loss_{n}") for n in (0, 1)),
        *((n, f"gradient model.{x}", 2, f"model.{x}.grad.{n}") for n in (0, 1) for x in ("weight", "bias")),
    }


@pytest.mark.slow
def test_without_an_optimizer_a_step_ends_at_each_backward(place: Path) -> None:
    (place / "script.py").write_text(BY_HAND)
    done = alone("-m", "backprint", "record", "-o", "out", "--steps", "0:3", "script.py")  # no optimizer in the process
    assert (done.returncode, len(done.stdout.split())) == (0, 3), done.stderr
    for number in range(3):
        loaded = proven(f"out/step_{number}", f"step_{number}", 1)
        assert ports(loaded.pairs[0].backward, "gradient") == {"model.weight", "model.bias"}
        changed = {"model.weight", "model.bias"} if number else set()
        assert ports(loaded.pairs[0].forward, "mutation") == changed  # by what follows the backward before


@pytest.mark.slow
def test_a_backward_before_there_is_an_optimizer_splits_no_later_step(place: Path) -> None:
    first = "model(torch.ones(2, 3)).sum().backward()\n"
    (place / "script.py").write_text(SMALL.replace("optimizer = ", f"{first}optimizer = "))
    done = alone("-m", "backprint", "record", "-o", "out", "script.py")  # no optimizer in the process until then
    assert (done.returncode, done.stdout) == (0, "0\n1\n2\n"), done.stderr
    proven("out", "step_1", 2)


def test_the_first_step(capfd: pytest.CaptureFixture[str]) -> None:
    assert good(SMALL, "-o", "out", "--steps", "0").stdout == "0\n1\n2\n"
    proven("out", "step_0", 2)
    assert capfd.readouterr().err == "backprint: step 0: 2 pairs, verdict bitwise, derivative, in out\n"


def test_several_steps_are_several_samples(place: Path) -> None:
    good(SMALL, "-o", "out", "--steps", "1:3")
    assert sorted(path.name for path in (place / "out").iterdir()) == ["step_1", "step_2"]
    for name in ("step_1", "step_2"):
        proven(f"out/{name}", name, 2)


def test_without_values_a_sample_cannot_be_proven(capfd: pytest.CaptureFixture[str]) -> None:
    good(SMALL, "-o", "out", "--data", "none")
    assert "step 1: 2 pairs" in capfd.readouterr().err
    assert len(bp.load("out").pairs) == 2
    assert {verdict.verdict for verdict in bp.load("out").verify()} == {"unproven"}


# ------------------------------------------------------------------ the script is at home


def test_arguments_name_file_and_imports_are_the_scripts_own(place: Path) -> None:
    (place / "beside_the_script.py").write_text("VALUE = 7")
    shown = "import sys, beside_the_script\nprint(sys.argv, __name__, __file__, beside_the_script.VALUE)\n"
    shown += "print(sys.modules['__main__'].__dict__ is globals())\n"
    result = good(shown + SMALL, "-o", "out", arguments=["--flag", "x", "--steps", "9", "-o", "y"])
    first, second, *_ = result.stdout.splitlines()
    assert first == f"['script.py', '--flag', 'x', '--steps', '9', '-o', 'y'] __main__ {place / 'script.py'} 7"
    assert second == "True"


def test_a_module_of_a_package_runs_as_python_runs_it(place: Path) -> None:
    (place / "in_a_package").mkdir()
    (place / "in_a_package" / "__init__.py").write_text("import sys\nASKED = sys.argv[0]\n")
    shown = "import sys\nfrom . import ASKED\nprint(ASKED, sys.argv, __name__, __package__, __spec__.name)\n"
    (place / "in_a_package" / "train.py").write_text(shown + SMALL)
    (place / "in_a_package" / "__main__.py").write_text("from . import train\n")

    def invoked(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["record", *arguments])

    assert (done := invoked("-o", "out", "-m", "in_a_package.train", "--x")).exit_code == 0, done.output
    path = place / "in_a_package" / "train.py"
    assert done.stdout.splitlines()[0] == f"-m ['{path}', '--x'] __main__ in_a_package in_a_package.train"  # as Python
    assert bp.load("out").verify()[0].verdict == "bitwise"
    assert len(bp.record("in_a_package", module=True)) == 1
    for absent in ("in_a_package.nothing", "nowhere.train"):
        assert "there is no such module" in invoked("-m", absent).output


def test_a_call_from_python_ends_where_it_began(place: Path) -> None:
    before = list(sys.path), sys.argv, sys.orig_argv, sys.modules["__main__"]
    (place / "script.py").write_text(f"{SMALL}import sys\nsys.exit(3)\n")
    kept: list[int] = []
    with pytest.raises(SystemExit, match="3"):
        bp.record("script.py", ["x"], done=lambda number, capture: kept.append(number))
    assert kept == [1]
    assert (list(sys.path), sys.argv, sys.orig_argv, sys.modules["__main__"]) == before


def test_a_call_from_python_warns_of_what_is_missing(place: Path) -> None:
    (place / "script.py").write_text(SMALL)
    with pytest.warns(UserWarning, match="so step 3 was not reached"):
        (capture,) = bp.record("script.py", steps=(2, 4))
    assert [verdict.verdict for verdict in capture.verify()][-1] == "bitwise"
    told: list[str] = []
    assert bp.record("script.py", steps=(8, 9), tell=told.append) == []
    assert told == ["script.py made 3 steps, so step 8 was not reached: ask for steps below 3"]


def test_a_step_recorded_from_python_is_proved_and_saved_like_any_capture(place: Path) -> None:
    """Its Pairs are compared on the values that they had: on others the recorded values are no results of theirs."""
    copied = (
        "copy.deepcopy(optimizer.state_dict())\n    optimizer.zero_grad"  # into memory that the step only overwrites
    )
    script = SMALL.replace("SGD", "Adam").replace("optimizer.zero_grad", copied)
    (place / "script.py").write_text(f"import copy\n{script}")
    (capture,) = bp.record("script.py")
    assert len(capture.pairs) == 2
    assert {verdict.verdict for verdict in capture.verify()} <= {"bitwise", "undifferentiable"}
    taken = {port.name for pair in capture.pairs for port in pair.forward.inputs}
    overwritten = {name: tensor + 1 for name, tensor in capture.origin.values().items() if name not in taken}
    assert overwritten
    assert capture.origin.run_step({**capture.origin.values(), **overwritten}, None).mutations
    capture.save("seeded")
    assert {verdict.verdict for verdict in bp.load("seeded").verify()} <= {"bitwise", "undifferentiable"}


@pytest.mark.slow
@pytest.mark.parametrize("where", ["while it is kept", "while its thread starts"])
def test_an_interrupt_while_a_step_is_kept_ends_the_thread_that_keeps_it(
    where: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that goes on while the process ends aborts it, and leaves a folder half written."""
    start = threading.Thread.start

    def start_and_wait(thread: threading.Thread) -> None:
        """Start a thread as a busy machine does: whoever starts it goes on only when it is far."""
        start(thread)
        while thread.name == "backprint" and not ended:
            time.sleep(0.01)

    if where == "while its thread starts":
        monkeypatch.setattr(threading.Thread, "start", start_and_wait)
    (place / "script.py").write_text(SMALL)
    begun, told = [], list[str]()
    ended: list[int] = []

    def keep(number: int, capture: bp.Capture) -> None:
        begun.append(number)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # it waits for this thread
        for _ in range(1000):
            time.sleep(0.01)
        ended.append(number)

    with pytest.raises(KeyboardInterrupt):
        bp.record("script.py", done=keep, tell=told.append)
    assert (begun, ended) == ([1], [])
    assert not any(thread.name == "backprint" for thread in threading.enumerate())
    assert told == ["step 1 is not kept: the script was interrupted while the step was proved and saved"]


def test_an_interrupt_at_an_instruction_without_a_line_is_shown(place: Path) -> None:
    """Python gives no line to some instructions, and an interrupt may come at one."""
    code = compile("raise KeyboardInterrupt", "script.py", "exec").replace(co_linetable=b"")
    with pytest.raises(KeyboardInterrupt) as raised:
        exec(code)
    assert raised.tb.tb_next is not None
    assert raised.tb.tb_next.tb_lineno is None
    shown = traceback_of_script(raised.value, "script.py")
    assert shown is not None
    assert shown.tb_frame.f_code is code


@pytest.mark.parametrize("code", [0, 3])
def test_a_scripts_exit_code_is_its_own(code: int) -> None:
    result = call(f"{SMALL}import sys\nsys.exit({code})\n", "-o", "out")
    assert (result.exit_code, result.stdout) == (code, "0\n1\n2\n")
    proven("out", "step_1", 2)


@pytest.mark.slow
def test_what_a_script_raises_comes_out_as_it_does_alone(place: Path) -> None:
    (place / "script.py").write_text(f"{SMALL}raise ValueError('no more')\n")
    done = alone("-m", "backprint", "record", "-o", "out", "script.py")
    assert (done.returncode, done.stdout) == (1, "0\n1\n2\n")
    assert "Traceback" in done.stderr
    assert done.stderr.endswith("ValueError: no more\n")
    proven("out", "step_1", 2)


@pytest.mark.parametrize("where", ["model", "optimizer.step"])
def test_a_script_that_raises_in_a_recorded_step_leaves_nothing(where: str, place: Path) -> None:
    broken = SMALL.replace(
        "    optimizer.zero_grad()", f"    if step == 1:\n        {where} = None\n    optimizer.zero_grad()"
    )
    result = call(broken, "-o", "out")
    assert (result.exit_code, result.stdout) == (1, "0\n")
    assert isinstance(result.exception, TypeError)
    assert not (place / "out").exists()


# ------------------------------------------------------------------ what is missing is told


@pytest.mark.parametrize(
    ("script", "steps", "said"),
    [
        (SMALL, "5", "script.py made 3 steps, so step 5 was not reached: ask for steps below 3"),
        (SMALL, "2:5", "script.py made 3 steps, so steps 3 to 4 were not reached: ask for steps below 3"),
        (f"{SMALL}import sys\nsys.exit()\n", "3", "so step 3 was not reached: ask for steps below 3"),
        ("pass", "1", "script.py made 0 steps, so step 1 was not reached: it called no optimizer and no backward"),
        (NO_MODULE, "0", "script.py called no module in step 0, so its beginning was not seen"),
    ],
)
def test_steps_that_were_not_reached(script: str, steps: str, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    result = call(script, "-o", "out", "--steps", steps)
    error = capfd.readouterr().err
    assert result.exit_code == 0  # the script's own
    assert error.startswith("backprint: ")
    assert said in error


def test_a_scripts_own_exit_code_goes_before_ours(capfd: pytest.CaptureFixture[str]) -> None:
    result = call(f"{SMALL}import sys\nsys.exit(3)\n", "-o", "out", "--steps", "7")
    assert result.exit_code == 3
    assert "so step 7 was not reached" in capfd.readouterr().err


@pytest.mark.parametrize("where", [(steps, "capture_of_step"), (bp, "save"), (LiveRecorder, "leave_backward")])
def test_a_defect_of_ours_does_not_stop_the_script(
    where: tuple[Any, str], place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(*where, broken)
    result = call(SMALL, "-o", "out", "--steps", "0:2")
    assert (result.exit_code, result.stdout) == (0, "0\n1\n2\n")
    said = [f"backprint: step {step} is not kept: RuntimeError: a defect\n" for step in (0, 1)]
    assert capfd.readouterr().err == "".join(said)
    assert not (place / "out").exists()


def test_a_defect_in_hooking_on_does_not_stop_the_script(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(recording.Recording, "open", broken)
    result = call(SMALL, "-o", "out")
    assert (result.exit_code, result.stdout) == (0, "0\n1\n2\n")
    assert "backprint: no step is recorded: RuntimeError: a defect\n" in capfd.readouterr().err


def test_a_step_whose_replay_is_wrong_is_not_kept(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    plain = LiveRecorder.after

    def forgetful(self: Any, about: Any, result: Any) -> None:
        taped, contents = about.kept[self]
        if about.func is torch.ops.aten.sum.default:
            about.kept[self] = taped._replace(func=torch.ops.aten.mean.default), contents
        plain(self, about, result)

    monkeypatch.setattr(LiveRecorder, "after", forgetful)
    result = call(SMALL, "-o", "out")
    assert (result.exit_code, result.stdout) == (0, "0\n1\n2\n")
    assert "step 1 is not kept: CaptureError: its replay is not what the script computed" in capfd.readouterr().err
    assert not (place / "out").exists()


# ------------------------------------------------------------------ wrong usage


@pytest.mark.parametrize("steps", ["", "x", "1:", ":2", "-1", "1:2:3", "1.5", "2:2", "3:1"])
def test_steps_that_are_none(steps: str) -> None:
    result = call(SMALL, "-o", "out", f"--steps={steps}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "steps" in result.stderr


def test_a_script_that_is_not_there() -> None:
    result = CliRunner().invoke(main, ["record", "absent.py"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "absent.py: no such file" in result.stderr


@pytest.mark.parametrize("steps", ["1", "1:3"])
def test_a_place_that_is_taken_is_refused_before_the_script_runs(steps: str, place: Path) -> None:
    good(SMALL, "-o", "out", "--steps", steps)
    result = call(SMALL, "-o", "out", "--steps", steps)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "exists already" in " ".join(result.stderr.split())
    good(SMALL, "-o", "out", "--steps", steps, "--overwrite")


def test_a_folder_that_is_no_sample_is_never_replaced(place: Path) -> None:
    (place / "out").mkdir()
    (place / "out" / "mine.txt").write_text("mine")
    result = call(SMALL, "-o", "out", "--overwrite")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is not a sample" in " ".join(result.stderr.split())
    assert (place / "out" / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("launcher", [{}, {"RANK": "0", "WORLD_SIZE": "2"}])
def test_under_a_launcher_the_end_waits_for_threads_after_all_exit_handlers(
    launcher: dict[str, str], tmp_path: Path
) -> None:
    """Gloo's threads release tensors there, else PyTorch may abort the process."""
    script = tmp_path / "script.py"
    script.write_text(
        "import atexit, time\natexit.register(print, 'handler')\ntime.sleep = lambda seconds: print('waits', seconds)\n"
    )
    command = [sys.executable, "-m", "backprint", "record", "-o", str(tmp_path / "step"), str(script)]
    run = subprocess.run(command, env={**os.environ, **launcher}, capture_output=True, text=True, check=False)
    assert run.stdout.splitlines() == ["handler", *(["waits 0.2"] if launcher else [])], run.stderr
