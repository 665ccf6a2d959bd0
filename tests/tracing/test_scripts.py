"""`backprint record` changes nothing of a script: each of `scripts/` runs alone and recorded, in processes of its own.

What they print (their results, digests of all that training left, random states, what they see of themselves), their
exit codes and what Python says of how they end are compared as text. A sample that was made proves itself.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import subjects
import torch

import backprint as bp

SCRIPTS = Path(subjects.__file__).parent / "scripts"
SOURCE = Path(bp.__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Case:
    """A script with its arguments; `lost` is what is said where its step cannot be kept, `code` how it ends."""

    name: str
    arguments: tuple[str, ...] = ()
    lost: str = ""
    code: int = 0
    step: int = 1

    def __str__(self) -> str:
        return "-".join((self.name, *self.arguments, str(self.step)))


COMPILED = "it runs code compiled by torch.compile"
CASES = (
    # how a step is made
    *map(Case, ("accumulation", "by_hand", "two_losses", "retained", "grad_call", "penalty", "functional", "infinite")),
    *map(Case, ("hook_optimizer", "hook_accumulated", "gan", "lbfgs", "sam", "data_assigned", "amp_ema", "swa")),
    *map(Case, ("checkpointed", "recurrent", "language_model", "environment", "parts_first", "reloaded")),
    # what a step may not be able to keep
    Case("raises_in_backward", lost="its backward raised ValueError: not a number"),
    Case("graph_of_backward", lost="the tangent that autograd made for a backward"),
    Case("elsewhere", lost="the step ran inside a capture or a proof", code=1, step=3),
    Case("sparse", lost="a backward returns a sparse gradient"),
    Case("custom_operator"),
    Case("compiled", lost=COMPILED),
    Case("compiled_step", lost="no optimizer stepped in eager"),
    Case("thread_backward", lost="a backward runs in another thread than the step"),
    Case("thread_training", lost="a backward runs in another thread than the step"),
    Case("odd_rounding", lost="the backward of prod rounds differently while it is recorded at odd_rounding.py:11"),
    Case("odd_rounding_twice", lost="a backward of the backward of cumprod rounds differently"),
    Case("numpy_inside", lost="its replay is not what the script computed"),
    # the script at home
    *map(Case, ("workers", "spawned", "pool", "modes", "lifetimes", "identity", "subclass", "home")),
    Case("processes", ("--steps", "3", "-o", "x")),
    Case("no_training", lost="no_training.py made no step: it did not import torch"),
    Case("elsewhere", code=1),
    Case("language_model", step=0),
    Case("compiled", lost=COMPILED, step=0),
    # how it ends
    Case("raises_in_step", lost="raises_in_step.py made 1 steps, so step 1 was not reached", code=1),
    Case("exits", ("3",), code=3),
    Case("exits", ("interrupt",), code=-2),
    Case("exits", ("os",), code=5),
    Case("exits", ("click",), code=1),
    Case("exits", ("hook",), code=1),
)

WORD = "(, derivative|, cannot tell)?"
"""What a message says of the backward beside its verdict."""


def started(place: Path, *arguments: str) -> subprocess.Popen[str]:
    """A process of Python's with nothing in its environment that a script may want to set."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=place,
        env=environment | {"PYTHONPATH": str(SOURCE)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


LEAKED = re.compile(r".*UserWarning: resource_tracker: .*\n(?:  warnings\.warn\(.*\n)?")
"""What Python itself says now and then where workers are spawned: of 24 plain runs on a busy machine, in one."""


def ended(process: subprocess.Popen[str]) -> tuple[int, str, list[str], list[str]]:
    """Its exit code, what it printed, and on standard error what is not ours and what is."""
    out, error = process.communicate(timeout=300)
    error = LEAKED.sub("", error)
    said = [line for line in error.splitlines() if line.startswith("backprint: ")]
    rest = [re.sub(r"^[VIWE]\d{4} \S+ \d+ ", "", line) for line in error.splitlines() if line not in said]
    return process.returncode, out, rest, said


Ended = tuple[int, str, list[str], list[str]]


def of_its_own(place: Path, arguments: Sequence[str], found: Ended) -> Ended:
    """How a script ended; again where torch before 2.13 aborted it: there a thread that ran a backward keeps an object
    of torch's, and where it ends together with the interpreter, plain Python aborts now and then.
    """
    for _ in range(9):
        if found[0] != -signal.SIGABRT or hasattr(torch._C, "_remove_obj_from_tls"):
            break
        shutil.rmtree(place / "out", ignore_errors=True)
        found = ended(started(place, *arguments))
    return found


def test_every_script_has_a_case() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.py")} - {"shown"} == {case.name for case in CASES}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_script_is_as_it_is_alone(case: Case, tmp_path: Path) -> None:
    script = os.path.relpath(SCRIPTS / f"{case.name}.py", tmp_path)  # Python keeps a script's path as it is given
    alone = (script, *case.arguments)
    recorded = ("-m", "backprint", "record", "-o", "out", "--steps", str(case.step), *alone)
    processes = started(tmp_path, *recorded), started(tmp_path, *alone)
    code, out, rest, said = of_its_own(tmp_path, recorded, ended(processes[0]))
    assert of_its_own(tmp_path, alone, ended(processes[1]))[:3] == (code, out, rest)
    assert code == case.code
    if case.lost:
        assert case.lost in "\n".join(said)
        assert not (tmp_path / "out").exists()
    else:
        (line,) = said
        verdict = f"(bitwise|undifferentiable)(, (no proof: .*|.*ports proved; .*))?{WORD}"
        kept = rf"backprint: step {case.step}: \d+ pairs, verdict {verdict}, in out"
        assert re.fullmatch(kept, line), line
        loaded = bp.load(tmp_path / "out")
        verdicts = [verdict.verdict for verdict in loaded.verify()]
        assert set(verdicts) <= {"bitwise", "undifferentiable"}
        assert verdicts[-1] == loaded.verdict["verdict"]


def test_a_script_that_is_no_python_is_shown_as_python_shows_it(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('never')\ndef f(:\n    pass\n")
    code, out, rest, said = ended(started(tmp_path, "-m", "backprint", "record", "script.py"))
    assert ended(started(tmp_path, "script.py"))[:3] == (code, out, rest)
    assert (code, out, said) == (1, "", ["backprint: script.py made no step: it did not import torch"])


def test_the_comparison_sees_what_is_other(tmp_path: Path) -> None:
    """What the cases rest on: a script that sees the recorder, as this one does, is other."""
    (tmp_path / "script.py").write_text("import sys\nprint('backprint' in sys.modules)\n")
    alone = ended(started(tmp_path, "script.py"))
    assert alone[:2] == (0, "False\n")
    assert ended(started(tmp_path, "-m", "backprint", "record", "script.py"))[:2] == (0, "True\n")
