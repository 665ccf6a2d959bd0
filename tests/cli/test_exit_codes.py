"""What a job of a CI is told: 0 all is good, 1 something was looked at and is not good, 2 wrong usage, 3 nothing was
looked at."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import backprint as bp
from face import main

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


def good():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh()), (torch.randn(2, 3),)


def surrogate():
    return lambda x, w: Rounded.apply(x @ w), (torch.randn(4, 4), torch.randn(4, 2, requires_grad=True))


def raises():
    return lambda x: {}["absent"], (torch.ones(2),)


def reads():
    return lambda x: x * int(x.sum().item()), (torch.ones(2),)


def wrong_compiler(graph):
    return lambda *inputs: [2 * result if result is not None else None for result in graph(*inputs)]


def loop(steps):
    def neuron(x):
        v, spikes = torch.zeros_like(x[0]), []
        for t in range(x.shape[0]):
            v = v + (x[t] - v) / 2
            spikes.append(v.sigmoid())
        return torch.stack(spikes)

    return neuron, (torch.randn(steps, 4, requires_grad=True),)
"""

SCRIPT = """
import sys, torch

model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sample of each kind, below which each command runs."""
    folder = tmp_path_factory.mktemp("codes")
    (folder / "program.py").write_text(PROGRAM)
    (folder / "script.py").write_text(SCRIPT)
    (folder / "empty").mkdir()
    spec = importlib.util.spec_from_file_location("program_of_codes", folder / "program.py")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    torch.manual_seed(0)
    model, args = program.good()
    bp.save(bp.capture(model, args=args, name="good"), folder / "good")
    bp.save(bp.capture(torch.sin, torch.randn(3, requires_grad=True), name="other"), folder / "other")
    bp.save(bp.capture(model, args=args, name="unproven"), folder / "unproven", "none")
    function, args = program.surrogate()
    bp.save(bp.capture(function, args=args, name="surrogate"), folder / "surrogate")
    bp.save(bp.capture(function, args=args, name="meant", meant=("Rounded",)), folder / "meant")
    still = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    with torch.no_grad():
        still[0].bias.fill_(-100)
    bp.save(bp.capture(still, torch.randn(3, 4), name="vacuous"), folder / "vacuous")
    shutil.copytree(folder / "good", folder / "wrong")
    code = folder / "wrong" / "pair_0" / "forward" / "model.py"
    code.write_text(code.read_text().replace("aten.tanh.default", "aten.sin.default"))
    shutil.copytree(folder / "good", folder / "broken")
    (folder / "broken" / "capture.json").write_text("{")
    bp.corpus.run("verify", folder / "good", folder / "run", jobs=1)
    return folder


CODES = """
2 verify
2 verify --power absent
2 verify --pwer good
0 verify good meant other
0 verify good --power own --strict
1 verify good wrong
1 verify good broken
1 verify unproven
0 verify unproven --allow-unproven
1 verify unproven --allow-unproven --strict
1 verify surrogate
0 verify surrogate --no-derivative
0 verify meant --derivative
0 verify vacuous
0 verify vacuous --power
2 verify --power vacuous
1 verify vacuous --strict
2 verify good absent
3 verify empty
3 verify good empty

2 capture program.py:good
2 capture program.py:absent -o {out}
2 capture absent.py:good -o {out}
2 capture program.py:good -o good
0 capture program.py:good -o {out}
0 capture program.py:good -o {out} --fake
1 capture program.py:surrogate -o {out}
0 capture program.py:surrogate -o {out} --meant Rounded
1 capture program.py:raises -o {out}
1 capture program.py:reads -o {out} --no-specialize
1 capture broken -o {out}
2 capture empty -o {out}

0 record -o {out} script.py 0
5 record -o {out} script.py 5
2 record -o {out} absent.py

0 show good
0 show wrong
1 show broken
2 show absent
2 show .
3 show empty
2 draw good
2 draw good -o {out}.bmp
0 draw good -o {out}.svg
3 draw empty -o {out}.svg
0 view good -o {out}.html
2 view good -o {out}
2 view absent -o {out}.html
0 export good -o {out}.py
1 export broken -o {out}.py
2 export good -o program.py
3 export empty -o {out}.py

0 diff good good
1 diff good other
2 diff good
2 diff good absent
3 diff good broken
3 diff good empty

0 fits good --memory 1
1 fits good --memory 1e-9
2 fits good
2 fits absent --memory 1
3 fits empty --memory 1
2 ranks good
2 ranks absent

2 corpus
2 corpus run
2 corpus run absent good -o {out}
2 corpus run verify absent -o {out}
0 corpus run verify good -o {out} --jobs 1
1 corpus run verify wrong -o {out} --jobs 1
1 corpus run verify surrogate -o {out} --jobs 1
3 corpus run verify empty -o {out}
3 corpus run verify good -o {out} --only absent
0 corpus run split good -o {out} --by range:2 --jobs 1
0 corpus run export run -o {out}
2 corpus run export good -o {out}
1 corpus run tasks good -o {out} --least 99
0 corpus status run
2 corpus status good
0 corpus report run
2 corpus report empty
3 corpus report run --where seconds>1e9
2 corpus report run -o {out}.txt
0 corpus dedup good -o {out}
3 corpus dedup empty -o {out}
2 corpus merge {out} good

2 bench
2 bench good
2 bench run good -o {out}
2 bench run absent --compiler eager -o {out}
2 bench run good --compiler egaer -o {out}
3 bench run empty --compiler eager -o {out}
0 bench run good --compiler eager --no-timing -o {out}
1 bench run good --compiler program.py:wrong_compiler --no-timing -o {out}
2 bench report empty

2 minify good -o {out}
3 minify good --compiler eager -o {out}
3 minify other --derivative -o {out}
0 minify surrogate --derivative -o {out}

0 kernels good -o {out} --jobs 1
2 kernels good -o {out} --target cpu:abacus
2 kernels absent -o {out}
3 kernels empty -o {out}
0 lower program.py:loop -o {out}.py --check
1 lower program.py:raises -o {out}.py
2 lower program.py:absent -o {out}.py
2 lower absent -o {out}.py

0 task make good -o {out}
2 task make absent -o {out}
2 task check good program.py

2 doctor absent
"""
"""The exit code of each call: `{out}` is a new path."""

SLOW = ("bench run good", "minify", "kernels good", "lower program.py:loop", "task make good", "corpus run")
"""Calls that take seconds."""


def rows() -> list[Any]:
    """The calls as test cases."""
    lines = [line.split(" ", 1) for line in CODES.splitlines() if line]
    return [
        pytest.param(int(code), call, id=call, marks=pytest.mark.slow if call.startswith(SLOW) else ())
        for code, call in lines
    ]


@pytest.mark.parametrize(("code", "call"), rows())
def test_the_exit_code(code: int, call: str, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(samples)
    result = CliRunner().invoke(main, [word.replace("{out}", str(tmp_path / "out")) for word in call.split(" ")])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output or "the program itself raised" in result.output
    assert code not in (1, 2, 3) or result.output.strip(), "the reason is said"


SAID = {
    "prov": "No such command 'prov'. There are capture, record, show",
    "verfy": "No such command 'verfy'. Did you mean 'verify'?",
    "bench good": "No such command 'good'. There are run, report.",
    "good": "'good'. It is a sample: backprint show good, or backprint verify good.",
    "program.py": "'program.py'. It is a script: backprint record program.py.",
    "program.py:factory": "It is written like a program's name: backprint capture program.py:factory -o samples/NAME.",
    "hf:gpt2": "backprint capture hf:gpt2 -o samples/NAME.",
    ".": "'.'. It is a folder: backprint verify . proves the samples below it.",
    "verify --stict good": "Did you mean one of: '--strict', '--timeout'?",
    "capture program.py:factory -o x --engine aott": "'dynamo', 'eager'. Did you mean 'aot'?",
    "verify good --power alll": "Did you mean 'all'?",
    "verify goood": "goood: no such folder: did you mean good?",
    "show program.py": "not a folder, and a sample is one: `backprint capture program.py:FACTORY -o DIR` makes one",
    "show good/pair_0": "good/pair_0 is a part of a sample: name the sample, good",
    "capture program.py -o x": "name the function that returns the model and its inputs: program.py:good, program.py:",
    "verify --fast good": "No such option",
    "verify": "Missing argument 'SAMPLE...'",
    "capture program.py:factory": "Missing option '-o'",
    "record --step 1 program.py": "No such option '--step'.",
    "show .": ". is a folder of samples, and no sample: name one of broken, good",
    "ranks good": "good is no World: `backprint capture TARGET --world N -o DIR` makes one",
    "lower program.py:loop -o program.py": "program.py exists already: pass --overwrite",
}
"""What a newcomer is told."""


@pytest.mark.parametrize("call", SAID)
def test_wrong_usage_says_what_to_do(call: str, samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(samples)
    result = CliRunner().invoke(main, call.split(" "))
    assert (result.exit_code, result.stdout) == (2, "")
    assert SAID[call] in " ".join(result.stderr.split())


def test_each_command_has_a_row_of_each_kind() -> None:
    called = {call.split(" ")[0] for _, call in ((row.values) for row in rows())}
    assert called == {*main.list_commands(None)} - {"demo"}  # type: ignore[arg-type]
