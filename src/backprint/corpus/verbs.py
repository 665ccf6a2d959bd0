"""What a corpus run can do to a sample: a table from a verb's name to its functions, and verbs of the user's own.

A verb is `function(task, options, staging) -> row`: it may write a folder at `staging`, which becomes the sample's own
in OUT unless the verdict is `failed`; its row holds columns of the ledger, `verdict` at least. It runs in a process of
its own, so it may do what it likes there. `with stage("capture"): …` tells how far it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backprint.corpus.clock import stage
from backprint.corpus.task import Task, failed
from backprint.errors import UsageError

Row = dict[str, Any]
Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: its function, and what a worker loads before the first sample (which gives the versions of it)."""

    run: Callable[[Task, Options, Path], Row]
    warm: Callable[[Options], dict[str, str]] | None = None
    instead: Mapping[str, Options] | None = None
    """By cause of failure, the options with which a sample is tried once more."""

    def failed(self, error: BaseException, at: str) -> Row:
        """The row of a sample at which this raised."""
        return failed(error, at)


def verb_of(text: str) -> Verb:
    """A verb of the table, or `file.py:function` and `package.module:function`."""
    if text in VERBS:
        return VERBS[text]
    if ":" not in text:
        raise UsageError(f"{text!r} is no verb: {', '.join(VERBS)}, or file.py:function(task, options, staging) -> row")
    from backprint.target import function_of

    function = function_of(text)
    return Verb(function, versions)


# ------------------------------------------------------------------ what is loaded first


def versions(options: Options) -> dict[str, str]:
    """What a row depends on, of what is loaded."""
    import platform
    import sys

    from backprint.version import __version__

    torch = sys.modules.get("torch")
    found = {"backprint": __version__, "python": platform.python_version()}
    return found | ({"torch": str(torch.__version__)} if torch else {})


def warm(options: Options) -> dict[str, str]:
    """PyTorch and all of ours, tried out on a small model, so that no sample pays for what the first capture loads."""
    import torch

    import backprint as bp

    torch.set_num_threads(1)  # a thread pool made here would be missing in the processes forked from this one
    torch.manual_seed(0)
    if on_cpu(options):
        small = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Flatten())
        model = torch.nn.Sequential(small, torch.nn.Linear(8, 2))
        made = bp.capture(model, torch.randn(2, 1, 4, 4), mode="train")
        bp.verify(made)
    else:
        import backprint.capture.entry  # noqa: F401  # loaded alone: what has used a GPU cannot be forked
    return versions(options)


def on_cpu(options: Options) -> bool:
    """Whether samples run on the CPU."""
    return (options.get("device") or "cpu").startswith("cpu")


# ------------------------------------------------------------------ the verbs


def backward(task: Task, options: Options, staging: Path) -> Row:
    """Read a sample, capture its training forward and backward, prove and save them."""
    return captured(task, options, staging)


def captured(task: Task, options: Options, staging: Path) -> Row:
    raise NotImplementedError


def verify(task: Task, options: Options, staging: Path) -> Row:
    """Prove a sample of ours again, in this fresh process, from its files alone."""
    import backprint as bp

    with stage("read"):
        capture = bp.load(task.path, allow=tuple(options.get("allow") or ()))
    with stage("verify"):
        verdict = bp.verify(capture)[-1]
    with stage("read"):
        return {**described(capture), **judged(verdict.verdict, verdict.detail, verdict.power, verdict.vacuous)}


def judged(verdict: str, detail: str, power: float | None, vacuous: Any) -> Row:
    """The columns of a Verdict."""
    return dict(verdict=verdict, detail=detail, power=power, vacuous=list(vacuous))


def described(capture: Any) -> Row:
    """The columns that a Capture has by itself."""
    return dict(engine=capture.engine)


VERBS: Mapping[str, Verb] = {
    "backward": Verb(backward, warm),
    "verify": Verb(verify, warm),
}
