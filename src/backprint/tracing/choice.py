"""Which engine's capture is taken: the first that is proven to compute what the untouched program computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from backprint.errors import CaptureError, DataDependentError, UsageError
from backprint.graph.nouns import Capture, Guard
from backprint.graph.verdicts import REFUTED
from backprint.tracing.engines import ENGINES
from backprint.tracing.made import Options
from backprint.tracing.origin import LiveProgram
from backprint.tracing.program import CalledProgram

Check = Callable[[Capture, LiveProgram], Any]
"""Holds a Capture against the untouched program: a Proof, which says what differs on captured and on other values."""


def by_auto(
    program: CalledProgram, options: Options, asked: Mapping[str, str], check: Check, named: Callable[..., Capture]
) -> Capture:
    """The first engine that captures the whole program, and why those before it would not do.

    Values that the program reads are taken as they are, as guards, unless the user says `specialise=False`. A capture
    must compute what the untouched program computes, on its own values and on others. One that says of itself that
    another engine may do better is taken after all others; where every engine's differs on other values alone, the
    first one is taken, for the captured inputs only.
    """
    if not options.fake:
        options = replace(options, specialise=options.specialise is not False)
    errors: dict[str, Exception] = {}
    for name, engine in ENGINES.items():
        if reason := engine.lacks(asked):
            errors[name] = NotTaken(reason)
            continue
        try:
            made = engine.make(program, options)
            reasons = tuple(f"{each}: {why(errors[each])}" for each in errors)
            capture = proved(named(made, name, reasons), check)
            if not made.plainer:
                return capture
            errors[name] = KeepsLess(made.plainer[0], capture)
        except UsageError:
            raise
        except Exception as error:  # a refusal, the program's own error, or a defect of that engine
            if isinstance(error, CaptureError) and error.every_engine:
                raise
            errors[name] = error
    tried = {name: error for name, error in errors.items() if not isinstance(error, NotTaken)}
    for found in tried.values():
        if isinstance(found, KeepsLess):
            return found.made
    for found in tried.values():
        if isinstance(found, DiffersOnOthers):
            return found.made
    first = next(iter(tried.values()))
    if not isinstance(first, CaptureError):
        raise first  # the program's own: the first engine runs it as it is
    raise refusal(program.title, tried) from first


def by_engine(
    program: CalledProgram, options: Options, engine: str, check: Check, named: Callable[..., Capture]
) -> Capture:
    """The Capture of the engine that was asked for, for the captured inputs alone where it differs on others."""
    made = named(ENGINES[engine].make(program, options), engine)
    try:
        return proved(made, check)
    except DiffersOnOthers as error:
        return error.made


def refusal(title: str, errors: Mapping[str, Exception]) -> Exception:
    """What to raise where no engine captures a program: a line for each engine, then what to do."""
    kind = type(next(iter(errors.values())))
    reasons = {name: why(error) for name, error in errors.items()}
    if len(set(reasons.values())) == 1 or all(isinstance(error, DataDependentError) for error in errors.values()):
        return kind(f"no engine captures {title}: {next(iter(reasons.values()))}")
    lines = "".join(f"\n  {name}: {reason}" for name, reason in reasons.items())
    return kind(f"no engine captures {title}:{lines}\nCapture a part of it that leaves out what is named above.")


def why(error: Exception) -> str:
    """Why an engine would not do, in one line."""
    return str(error) if isinstance(error, CaptureError) else f"{type(error).__name__}: {error}"


class NotTaken(CaptureError):
    """An engine that does not take what was asked for."""


class SecondBest(CaptureError):
    """A capture that is taken only if no other engine has a better one."""

    def __init__(self, reason: str, made: Capture) -> None:
        super().__init__(reason)
        self.made = made


class KeepsLess(SecondBest):
    """A proven capture in which something stands as it ran that another engine may write better."""


class DiffersOnOthers(SecondBest):
    """A capture for the captured inputs alone, proven on these: the program reads them as its engine does not see."""


def proved(made: Capture, check: Check) -> Capture:
    """A Capture with its doubts; raise where it does not compute what the program computes."""
    program = made.origin
    if made.fake or not isinstance(program, LiveProgram):
        return made
    proof = check(made, program)
    if proof is None:
        return made
    if proof.identity:
        raise CaptureError(
            f"{made.name} knows its arguments by identity (id(), `is`, a table of tensors), which no graph holds. With "
            f"other tensors of the same values it gives something else ({proof.identity}): tell arguments apart by "
            "their values",
            every_engine=True,
        )
    if proof.captured:
        raise CaptureError(f"what it traced is not what the program does: {proof.captured}")
    if program.unheld:
        reason = f"engine {made.engine!r} has no step that could check it; engine 'eager' keeps it as a guard"
        raise DiffersOnOthers(f"{program.unheld[0]}: {reason}", for_captured_inputs(made, program, proof))
    if proof.redrawn:
        reason = f"what it traced is not what the program does on other inputs: {proof.redrawn}"
        raise DiffersOnOthers(reason, for_captured_inputs(made, program, proof))
    return with_generators(replace(made, origin=program.doubted(proof.ports)), proof)


def for_captured_inputs(made: Capture, program: LiveProgram, proof: Any) -> Capture:
    """A Capture that a Proof holds on the captured inputs alone: those that it reads unseen are pinned."""
    doubts = [port for port in proof.ports if port.verdict not in REFUTED] if proof.redrawn else proof.ports
    made = with_generators(replace(made, origin=program.doubted(doubts)), proof)
    return pinned(made, proof.redrawn, proof.pins) if proof.redrawn else made


def with_generators(made: Capture, proof: Any) -> Capture:
    """A Capture that pins what the program draws from beside torch's own generators."""
    if not proof.drawn:
        return made
    return pinned(made, f"the program draws from {proof.drawn}, and a sample has only the numbers", proof.pins)


def pinned(made: Capture, why: str, pins: tuple[tuple[str, str], ...]) -> Capture:
    """A Capture that runs on these inputs' captured values alone, and says why."""
    names = [name for name, _ in pins]
    guard = Guard("pinned", f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} pinned: {why}", tuple(names))
    return replace(made, pins=(*made.pins, *pins), guards=(*made.guards, guard))
