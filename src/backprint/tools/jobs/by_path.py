"""`bp.verify`, `bp.power` and `bp.derivative`: a Capture runs in this process, a path in a process of its own.

A stranger's graph can end the process that it runs in. So a sample that is named by its path is run as the command line
runs it, and what comes back is plain data.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from backprint import api
from backprint.common.formats import BACKPRINT, format_of
from backprint.common.text import check_sequence
from backprint.common.words import DrawWord, MeasuredPowerWord
from backprint.errors import ReplayError, UsageError, with_frames_of_program
from backprint.graph import calls
from backprint.graph.nouns import Capture
from backprint.graph.verdicts import CANNOT_TELL, Derivative, Derivatives, Power, Verdict, Verdicts
from backprint.tools.jobs.apart import Answer, ask, write_result
from backprint.tools.jobs.task import Task
from backprint.tools.jobs.verbs import load_only

Place: TypeAlias = str | os.PathLike[str]


def verify(
    capture: Capture | Place,
    draws: Sequence[DrawWord] | None = None,
    *,
    trace: Capture | bool = False,
    derivative: bool | None = None,
    allow: Sequence[str] = (),
    timeout: float = 600.0,
) -> list[Verdict]:
    """Prove a Capture against the original program: return a Verdict for each Pair, and for several linked Pairs the
    whole's last.

    `capture` may be the path of a sample, of ours or of GraphNet: it runs in a process of its own, for at most
    `timeout` seconds. If that process crashes, hangs or fills the memory, the Verdict is `failed`, with the cause.
    `allow` names the custom operators that it may call. A Capture runs in this process.

    A fake Capture is `unproven`: capture and verify a small version of the same program. `trace=True` traces a stamped
    Capture's program in full, or `trace` is such a Capture: it is `wrong` if the graphs differ. With `derivative`, the
    Verdict of each Pair with a backward says too whether that is the derivative of the forward (`bp.derivative`); None
    says so if that costs less than the proof: if all values of the forward together have fewer than 4 million elements.
    """
    if not isinstance(capture, (str, os.PathLike)):
        return api.verify(capture, draws, trace=trace, derivative=derivative)
    check_sequence("draws", draws)
    if trace is not False:
        raise UsageError("trace= is for a Capture: load the sample first, bp.verify(bp.load(path), trace=...)")
    options = {"draws": None if draws is None else list(draws), "derivative": derivative}
    answer = answer_of("verify", capture, options, allow, timeout, tuple[Verdict, ...])
    if answer.ended:
        return Verdicts([Verdict("failed", answer.place.name, answer.ended)])
    return Verdicts(answer.content)


def power(
    capture: Capture | Place,
    power: MeasuredPowerWord = "own",
    *,
    seconds: float | None = None,
    count: int | None = None,
    allow: Sequence[str] = (),
    timeout: float = 600.0,
) -> Power:
    """Measure how far outputs, gradients and mutations move, in tolerances, when inputs are redrawn: return a Power.

    `power="own"` redraws each of the program's inputs alone, all parameters, all buffers, and everything together;
    `"all"` each parameter and buffer alone too. `seconds` and `count` (of redraws) end it early. `capture` may be the
    path of a sample, which runs in a process of its own, as in `bp.verify`.
    """
    if not isinstance(capture, (str, os.PathLike)):
        return api.power(capture, power, seconds=seconds, count=count)
    options = {"power": power, "seconds": seconds, "count": count}
    answer = answer_of("power", capture, options, allow, timeout, Power)
    if answer.ended:
        raise ReplayError(f"{answer.place} did not run to its end, so nothing is known of its power: {answer.ended}")
    measured: Power = answer.content
    return measured


@with_frames_of_program
def derivative(
    target: Capture | Callable[..., Any] | Place,
    *args: Any,
    meant: Sequence[str] = (),
    hostile: bool | None = None,
    **kwargs: Any,
) -> list[Derivative]:
    """Say whether each backward of a Capture is the derivative of its forward: return a Derivative for each Pair.

    A `bitwise` verdict says that the graphs compute what the program computes; this says whether the program's
    gradient is right. `target` may be a Capture, or a model or function, which is captured with these arguments. Both
    graphs run in float64: for random tangents g and a random direction v, ⟨g, J·v⟩ by forward-mode AD of the forward
    must be ⟨Jᵀ·g, v⟩ by the backward. A wrong backward is `not the derivative`, with the operators or the custom
    autograd.Function at fault, its line, and the gradients that are wrong.

    `meant` names Functions, `"detach"`, `"no_grad"`, `"hook"` or `"item"`, where the gradient is meant to differ, as a
    surrogate does: what is around them is checked, and the word is `derivative but for` them. With `hostile`, tangents
    that are expanded, transposed, one-hot or 0 in a row, and inputs with zeros, equal values, masked rows and repeated
    indices are tried too. None tries them if the program has a custom autograd.Function, a hook or a custom operator.

    `target` may also be the folder of a sample, with `allow` and `timeout` as in `bp.verify`: it runs in a process of
    its own, and if that process crashes, the word is `cannot tell`, with the cause.
    """
    if not isinstance(target, (str, os.PathLike)) or not Path(target).is_dir():
        return api.derivative(target, *args, meant=meant, hostile=hostile, **kwargs)
    check_sequence("meant", meant)
    allow, timeout = kwargs.pop("allow", ()), kwargs.pop("timeout", 600.0)
    if args or kwargs:
        raise UsageError(f"{target}: a sample brings its own inputs: pass none to bp.derivative")
    options = {"meant": list(meant), "hostile": hostile}
    answer = answer_of("derivative", target, options, allow, timeout, tuple[Derivative, ...])
    if answer.ended:
        return Derivatives([Derivative(CANNOT_TELL, answer.place.name, answer.ended)])
    return Derivatives(answer.content)


# ---- The process of the sample


def answer_of(
    verb: str, path: Place, options: Mapping[str, Any], allow: Sequence[str], timeout: float, kind: Any
) -> Answer:
    """Run a verb (`verify`, `power` or `derivative`) on the sample at a path, in a process of its own, for `timeout`
    seconds at most, and return its answer; raise what it raises there. An Answer has a value of the type `kind` in
    `content`, or says how the process `ended`."""
    calls.check_load(path)
    check_sequence("allow", allow)
    place = Path(path)
    if format_of(place) in (None, BACKPRINT):  # None: no sample, as `load` says
        api.load(place, allow)  # so that what is wrong with its metadata is said at once; it runs nothing
    sent = {"verb": verb, "allow": list(allow), "options": dict(options)}
    return ask("backprint.tools.jobs.by_path:run_and_answer", place, sent, timeout, kind)


def run_and_answer(task: Task, options: Mapping[str, Any], staging: Path) -> dict[str, Any]:
    """Run a verb in the sample's own process, and write its result as the answer: what `answer_of` asks for there."""
    from backprint.tools.target import read_capture

    def result() -> Any:
        capture = read_capture(task.path, allow=tuple(options["allow"]))
        verb_result: Any = VERBS[options["verb"]](capture, **options["options"])
        return list(map(asdict, verb_result)) if isinstance(verb_result, list) else asdict(verb_result)

    return write_result(staging, result)


VERBS: Mapping[str, Callable[..., Any]] = {"verify": api.verify, "power": api.power, "derivative": api.derivative}


run_and_answer.warm = load_only  # type: ignore[attr-defined]  # its worker calls it before the sample
