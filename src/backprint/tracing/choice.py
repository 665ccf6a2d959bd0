"""Choose an engine's capture: the first that is proven to compute what the untouched program computes."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from backprint import defects
from backprint.errors import CaptureError, DataDependentError, GraphError, RefusedError, UsageError
from backprint.graph.nouns import Capture, Guard
from backprint.graph.verdicts import REFUTED, UNSTEADY
from backprint.tracing.engines import ENGINES
from backprint.tracing.made import Options
from backprint.tracing.origin import LiveProgram
from backprint.tracing.program import CalledProgram

Check = Callable[[Capture, LiveProgram], Any]
"""Compares a Capture with the untouched program and returns a Proof: the differences on captured and on other
values."""


def by_auto(
    program: CalledProgram, options: Options, asked: Mapping[str, str], check: Check, named: Callable[..., Capture]
) -> Capture:
    """Return the capture of the first engine that captures the whole program, and why the engines before it did not.

    Values that the program reads become constants with guards, unless the user passes `specialize=False`. A capture
    must compute what the untouched program computes, on its own values and on others. A capture that another engine may
    do better is used after all others failed. Where every engine's capture differs on other values only, the first is
    returned, for the captured inputs only.

    A refusal, an error of torch or of the program is a reason to try the next engine. A defect of Backprint is one too,
    but not a quiet one: a warning has its traceback, and it is raised where no other engine captures the program.
    """
    if not options.fake:
        options = replace(options, specialize=options.specialize is not False)
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
        except Exception as error:  # a refusal, an error of torch's or of the program's own, or a defect of ours
            if isinstance(error, CaptureError) and error.every_engine:
                raise
            errors[name] = error
            if reason := moved_on(error, program, options, check, named):
                raise moves(program, program.title, reason) from error
            if is_defect(error):
                warn_of_defect(program.title, name, error)
    tried = {name: error for name, error in errors.items() if not isinstance(error, NotTaken)}
    for found in tried.values():
        if isinstance(found, KeepsLess):
            return found.made
    for found in tried.values():
        if isinstance(found, DiffersOnOthers):
            return found.made
    if defect := next(filter(is_defect, tried.values()), None):
        raise defect
    first = next(iter(tried.values()))
    if not isinstance(first, CaptureError):
        raise first  # the program's own error: the first engine runs it as it is
    raise refusal(program.title, tried) from first


def moves(program: CalledProgram, title: str, reason: str) -> CaptureError:
    """Return the refusal of a program whose first run changes those after it."""
    picture = program.target.picture
    what = ""
    if picture is not None:
        picture.tell_unknown()
        what = f" ({'; '.join(list(picture.lost.values())[:8])})"
    return CaptureError(
        f"{title} returns another result when it runs again ({reason}): a run leaves something behind{what}. Backprint "
        "cannot restore that, so no engine's capture could be compared with the program. If only the first call "
        "differs, call it once before the capture; else pass what it reads as an argument",
        every_engine=True,
    )


def moved_on(
    error: Exception, program: CalledProgram, options: Options, check: Check, named: Callable[..., Capture]
) -> str:
    """Say where the program moves on by itself, if that is why a Capture differs from it; '' if the engine is to blame.

    Then no engine's capture is the program: one that was traced afterwards would agree with the later runs alone. A
    Capture that differed on other inputs is compared again on its own; one that differed there is made again.
    """
    if isinstance(error, DiffersOnOthers) and isinstance(error.made.origin, LiveProgram):
        proof = check(error.made, error.made.origin)
        return proof.captured if proof is not None else ""
    if not isinstance(error, DiffersOnCaptured):
        return ""
    try:
        engine = error.made.engine
        proved(named(ENGINES[engine].make(program, options), engine), check)
    except CaptureError as again:
        return error.reason if isinstance(again, DiffersOnOthers) else ""
    return error.reason


def by_engine(
    program: CalledProgram, options: Options, engine: str, check: Check, named: Callable[..., Capture]
) -> Capture:
    """Return the Capture of the requested engine; where it differs on other values, for the captured inputs only."""
    made = named(ENGINES[engine].make(program, options), engine)
    try:
        return proved(made, check)
    except (DiffersOnCaptured, DiffersOnOthers) as error:
        if reason := moved_on(error, program, options, check, named):
            raise moves(program, program.title, reason) from error
        if isinstance(error, DiffersOnCaptured):
            raise
        return error.made


def refusal(title: str, errors: Mapping[str, Exception]) -> Exception:
    """Return the error to raise where no engine captures a program: a line for each engine, then what to do."""
    first = next(iter(errors.values()))
    kind = CaptureError if isinstance(first, DiffersOnCaptured) else type(first)
    reasons = {name: why(error) for name, error in errors.items()}
    if len(set(reasons.values())) == 1 or all(isinstance(error, DataDependentError) for error in errors.values()):
        return kind(f"no engine captures {title}: {next(iter(reasons.values()))}")
    lines = "".join(f"\n  {name}: {reason}" for name, reason in reasons.items())
    return kind(f"no engine captures {title}:{lines}\nCapture a part of it that leaves out what is named above.")


def why(error: Exception) -> str:
    """Say in one line why an engine failed."""
    if is_defect(error):
        return f"a defect of Backprint: {defects.told(error)}"
    return str(error) if isinstance(error, CaptureError) else f"{type(error).__name__}: {error}"


def is_defect(error: Exception) -> bool:
    """Whether an engine failed through a fault of ours: also if the graph that it wrote breaks the rules of graphs."""
    malformed = isinstance(error, GraphError) and not isinstance(error, RefusedError)
    return malformed or defects.is_defect(error)


def warn_of_defect(title: str, engine: str, error: Exception) -> None:
    """Warn that an engine failed through a fault of ours."""
    warnings.warn(
        f"engine {engine!r} does not capture {title} because of a defect of Backprint; the other engines are tried. "
        f"Please report it, with this traceback:\n{''.join(traceback.format_exception(error))}",
        RuntimeWarning,
        stacklevel=2,
    )


class NotTaken(CaptureError):
    """The request is not one that this engine supports."""


class SecondBest(CaptureError):
    """A capture that is used only if no other engine has a better one."""

    def __init__(self, reason: str, made: Capture) -> None:
        super().__init__(reason)
        self.made = made


class KeepsLess(SecondBest):
    """A proven capture in which a part is recorded as it ran; another engine may express it better."""


class DiffersOnCaptured(CaptureError):
    """A capture that does not compute on the captured values what the program computes; it is never used."""

    def __init__(self, reason: str, made: Capture) -> None:
        super().__init__(f"the captured graph does not compute what the program computes: {reason}")
        self.reason, self.made = reason, made


class DiffersOnOthers(SecondBest):
    """A capture proven on the captured inputs only: the program reads them in a way that its engine does not see."""


def proved(made: Capture, check: Check) -> Capture:
    """Return a Capture with the checks that it did not pass; raise if it does not compute what the program computes."""
    program = made.origin
    if made.fake or not isinstance(program, LiveProgram):
        return made
    proof = check(made, program)
    if proof is None:
        return made
    if proof.identity:
        raise CaptureError(
            f"{made.name} tells arguments apart by identity (id(), `is`, a table of tensors), as no graph can. With "
            f"other tensors of the same values it returns another result ({proof.identity}): tell arguments apart by "
            "their values",
            every_engine=True,
        )
    if proof.moved:
        raise moves(program.program, made.name, proof.moved)
    if proof.captured:
        raise DiffersOnCaptured(proof.captured, made)
    if program.unheld:
        reason = f"engine {made.engine!r} has no step that could check it; engine 'eager' keeps it as a guard"
        raise DiffersOnOthers(f"{program.unheld[0]}: {reason}", for_captured_inputs(made, program, proof))
    if proof.redrawn:
        reason = f"the captured graph does not compute what the program computes on other inputs: {proof.redrawn}"
        raise DiffersOnOthers(reason, for_captured_inputs(made, program, proof))
    if any(UNSTEADY in port.detail for port in proof.ports) and program.program.target.picture is not None:
        program.program.target.picture.tell_unknown()
    made = replace(made, guards=(*made.guards, *proof.alone), origin=program.doubted(proof.ports))
    return with_generators(made, proof)


def for_captured_inputs(made: Capture, program: LiveProgram, proof: Any) -> Capture:
    """Return a Capture that is proven on the captured inputs only, with the inputs that it reads unseen pinned."""
    doubts = [port for port in proof.ports if port.verdict not in REFUTED] if proof.redrawn else proof.ports
    made = with_generators(replace(made, origin=program.doubted(doubts)), proof)
    return pinned(made, proof.redrawn, proof.pins) if proof.redrawn else made


def with_generators(made: Capture, proof: Any) -> Capture:
    """Pin the generators, other than torch's own, that the program draws from."""
    if not proof.drawn:
        return made
    return pinned(made, f"the program draws from {proof.drawn}, and a sample has only the numbers", proof.pins)


def pinned(made: Capture, why: str, pins: tuple[tuple[str, str], ...]) -> Capture:
    """Return a Capture that runs on the captured values of these inputs only, with the reason."""
    names = [name for name, _ in pins]
    guard = Guard("pinned", f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} pinned: {why}", tuple(names))
    return replace(made, pins=(*made.pins, *pins), guards=(*made.guards, guard))
