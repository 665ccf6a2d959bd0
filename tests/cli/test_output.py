"""What each command prints on a terminal, whole: `tests/golden/output/`, one file a command."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from snapshots import Snapshots, in_lines

from face import COMMANDS, main, say

PROGRAM = """
import torch
from torch import nn


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return 3 * grad


def mlp(act=nn.Tanh):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), act(), nn.Linear(4, 1)), (torch.randn(2, 3),)


def gelu():
    return mlp(nn.GELU)


def layers():
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(12))), (torch.randn(2, 4),)


def rounded():
    torch.manual_seed(0)
    return lambda x, w: Rounded.apply(x @ w), (torch.randn(4, 4), torch.randn(4, 2, requires_grad=True))


def indices():
    return lambda ids: ids + 1, (torch.arange(3),)


def counted():
    return lambda x, n: (x * int(n.item())).sum(), (torch.ones(3), torch.tensor(4))


def neurons(steps):
    def neuron(x):
        v, spikes = torch.zeros_like(x[0]), []
        for t in range(x.shape[0]):
            v = v + (x[t] - v) / 2
            spikes.append(v.sigmoid())
        return torch.stack(spikes)

    return neuron, (torch.randn(steps, 4, requires_grad=True),)
"""

SCRIPT = """
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
print("the script's own line")
"""

CALLS = """
help            --help
capture         capture program.py:mlp -o samples/mlp
capture_json    capture program.py:gelu -o samples/gelu --json
capture_wrong   capture program.py:rounded -o rounded
capture_forward capture program.py:indices -o indices --name next
capture_guard   capture program.py:counted -o counted
capture_refused capture program.py:counted -o refused --no-specialize
capture_fake    capture program.py:mlp -o fake --fake
capture_layers  capture program.py:layers -o layers
capture_world   capture program.py:mlp -o world --world 2
record          record -o steps script.py
show            show samples/mlp
show_summary    show --summary samples/mlp
show_json       show --json samples/mlp
show_forward    show indices
show_json_alone show --json indices
show_nothing    show --backward indices
show_fold       show --backward layers
verify          verify samples wrong rounded indices fake
verify_json     verify --json samples/mlp wrong rounded indices
diff            diff samples/mlp samples/gelu
diff_same       diff samples/mlp samples/mlp
diff_json       diff --json samples/mlp samples/gelu
diff_markdown   diff --format markdown samples/mlp samples/gelu
draw            draw samples/mlp -o mlp.svg
view            view samples/mlp -o mlp.html
export          export samples/mlp -o mlp.py
minify          minify rounded --derivative -o minified
fits            fits samples/mlp --memory 1
ranks           ranks world
corpus_verify   corpus run verify samples -o run --jobs 1
corpus_status   corpus status run
corpus_wrong    corpus run verify wrong -o wrong_run --jobs 1
corpus_dedup    corpus dedup samples -o distinct
corpus_split    corpus run split samples -o split --by range:2 --jobs 1
corpus_tasks    corpus run tasks samples -o tasks
corpus_export   corpus run export run -o graphs
bench_run       bench run samples --compiler eager --no-timing -o bench
kernels         kernels samples/mlp -o kernels --jobs 1
lower           lower program.py:neurons -o lowered.py --check
task_make       task make samples/mlp -o task
task_check      task check task task/solution.py
doctor          doctor
demo            demo
"""
"""The name of each file, and the call whose output it holds; a call may use what those before it wrote."""


IN_A_PIPE = ("bench_run",)
"""Calls whose table has measured times: on a terminal, its columns are as wide as those."""


def spoil(sample: str) -> None:
    """Let the forward of a sample compute something else."""
    model = Path(sample) / "pair_0" / "forward" / "model.py"
    model.write_text(model.read_text().replace("aten.tanh.default", "aten.sin.default"))


@pytest.mark.slow
@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="held with the torch of daily work")
def test_each_command_prints_what_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshots: Snapshots, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("triton", reason="kernels and lower need it")
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "script.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(say, "EVERY", 1e9)  # on a slow machine a line says that it is still at work
    differences = []
    for name, line in (row.split(maxsplit=1) for row in CALLS.strip().splitlines()):
        if name == "verify":
            spoil(shutil.copytree("samples/mlp", "wrong"))
        result = CliRunner().invoke(main, line.split(), env={"COLUMNS": None if name in IN_A_PIPE else "100"})
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        errors = result.stderr + capfd.readouterr().err
        out = in_lines(result.stdout) if "--json" in line else result.stdout
        said = f"$ backprint {line}\n{out}" + f"---- stderr\n{errors}" * bool(errors)
        text = f"{said}---- exit code {result.exit_code}\n".replace(str(tmp_path), "HERE")
        differences.append(snapshots.differences(name, text))
    sys.modules.pop("program", None)
    found = "\n".join(filter(None, differences))
    assert not found, f"{found}\nIf this is meant: pytest --write-snapshots"


def test_each_command_is_held() -> None:
    assert {line.split()[1] for line in CALLS.strip().splitlines()} == {"--help", *COMMANDS}


def test_another_output_is_seen() -> None:
    difference = Snapshots(write=False).differences("draw", "nothing, after 3.0 s\n")
    assert difference.splitlines()[-1] == "+nothing, after TIME"
