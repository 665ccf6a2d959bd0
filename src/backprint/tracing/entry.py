"""The engines: how each traces a program, and which requests it supports."""

from __future__ import annotations

import contextlib
import functools
import threading
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from backprint import errors
from backprint._torch.modules import COMPILED
from backprint.common.text import printable
from backprint.errors import CaptureError, DataDependentError, GraphError, RefusedError, UsageError
from backprint.graph.nouns import Capture, Guard
from backprint.graph.verdicts import REFUTED, UNSTEADY
from backprint.tracing import derivatives
from backprint.tracing.aot.engine import by_aot
from backprint.tracing.captured import LiveProgram, capture_of
from backprint.tracing.custom import with_bodies
from backprint.tracing.cut import PARTITIONS
from backprint.tracing.dynamo.engine import by_dynamo
from backprint.tracing.eager.engine import by_eager
from backprint.tracing.program import CalledProgram, read_call
from backprint.tracing.refusals import callers_modes
from backprint.tracing.request import Made, Options
from backprint.tracing.running import protected
from backprint.tracing.witness import second_order
from backprint.values.settings import outside_modes, quiet_random


@dataclass(frozen=True, slots=True)
class Engine:
    """One way to trace a program. `takes` names the requests that it supports beyond a plain call."""

    name: str
    make: Callable[[CalledProgram, Options], Made]
    takes: frozenset[str]

    def lacks(self, asked: Mapping[str, str]) -> str:
        """Say why this engine cannot do what is requested, and which engines can; '' if it can."""
        missing = {request: words for request, words in asked.items() if request not in self.takes}
        if not missing:
            return ""
        words = " with ".join(missing.values())
        return f"engine {self.name!r} does not take {words}: {able(asked)}"


ENGINES: dict[str, Engine] = {
    each.name: each
    for each in (
        Engine("eager", by_eager, frozenset({"sparse", "order", "updates", "partition"})),
        Engine("aot", by_aot, frozenset({"fake", "dynamic", "decompose", "order", "partition"})),
        Engine("dynamo", by_dynamo, frozenset({"decompose", "partition"})),
    )
}
"""The engines in the order in which `auto` tries them."""

TOGETHER = (("fake", "dynamic"),)
"""Requests that no engine supports together, although one may support each."""


def requests(program: CalledProgram, options: Options, order: int) -> dict[str, str]:
    """Return the requests of a call beyond a plain capture, by name, each in the words of the call."""
    sparse = {name: tensor for name, tensor in program.held().items() if tensor.layout is not torch.strided}
    found = {
        "fake": "fake=True" if options.fake else "",
        "dynamic": "dynamic=" if options.dynamic else "",
        "decompose": "decompose=" if options.decompose else "",
        "updates": "functional=False" if not options.functional else "",
        "order": "order=2" if order == 2 else "",
        "partition": "partition=" if options.partition is not None else "",
        "sparse": next((f"{str(t.layout)[6:]} tensors (input {name!r})" for name, t in sparse.items()), ""),
    }
    return {request: words for request, words in found.items() if words}


def able(asked: Collection[str]) -> str:
    """Say which engines support these requests."""
    names = [repr(each.name) for each in ENGINES.values() if each.takes.issuperset(asked)]
    if not names:
        return "no engine does"
    *others, last = names
    return f"engines {', '.join(others)} and {last} do" if others else f"engine {last} does"


def check_engine(engine: str, asked: Mapping[str, str]) -> None:
    """Raise a UsageError if the requested engine, or with `auto` every engine, does not support the requests."""
    for left, right in TOGETHER:
        if left in asked and right in asked:
            raise UsageError(f"no engine takes {asked[left]} with {asked[right]}: ask for one of them at a time")
    if engine != "auto":
        reason = ENGINES[engine].lacks(asked)
    else:
        every = [each.lacks(asked) for each in ENGINES.values()]
        reason = "" if "" in every else f"no engine takes {' with '.join(asked.values())}: ask for one at a time"
    if reason:
        raise UsageError(reason)


__all__ = ["ENGINES", "Engine", "check_engine", "requests"]


# ----------------------------------------------------------------------------
# Choose an engine's capture: the first that is proven to compute what the untouched program computes.
# ----------------------------------------------------------------------------

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
        return f"a defect of Backprint: {errors.told(error)}"
    return str(error) if isinstance(error, CaptureError) else f"{type(error).__name__}: {error}"


def is_defect(error: Exception) -> bool:
    """Whether an engine failed through a fault of ours: also if the graph that it wrote breaks the rules of graphs."""
    malformed = isinstance(error, GraphError) and not isinstance(error, RefusedError)
    return malformed or errors.is_defect(error)


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
    if program.unguarded:
        reason = f"engine {made.engine!r} has no step that could check it; engine 'eager' keeps it as a guard"
        raise DiffersOnOthers(f"{program.unguarded[0]}: {reason}", for_captured_inputs(made, program, proof))
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


# ----------------------------------------------------------------------------
# `capture`: make a Capture of a call, and restore everything of the caller's.
# ----------------------------------------------------------------------------

MODES = (None, "train", "eval")


AT_WORK = threading.local()
"""Whether this thread is capturing a call."""


@contextlib.contextmanager
def not_within_another() -> Iterator[None]:
    """Refuse a capture in the middle of another of this thread, where torch's modes and the arguments are not as they
    were: in a signal handler, or by the program that is captured."""
    if getattr(AT_WORK, "capturing", False):
        raise CaptureError(
            "this thread is in the middle of a capture: bp.capture was called by a signal handler, or by the program "
            "that is captured; call it when the capture has ended"
        )
    AT_WORK.capturing = True
    try:
        yield
    finally:
        AT_WORK.capturing = False


@not_within_another()
@with_bodies
def capture_call(
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    engine: str = "auto",
    mode: str | None = None,
    loss: Callable[[Any], Any] | None = None,
    requires_grad: Any = None,
    order: int = 1,
    name: str | None = None,
    check: Check = lambda capture, program: None,
    **asked: Any,
) -> Capture:
    """Capture the forward and backward of `target(*args, **kwargs)`; `asked` are the fields of Options."""
    options = Options(**asked)
    check_options(target, engine, mode, options.partition, order)
    specialize = bool(options.specialize)
    program = read_call(target, args, kwargs, requires_grad, mode, loss, options.fake, specialize)
    requested = requests(program, options, order)
    check_engine(engine, requested)
    with quiet_random(), callers_modes(), outside_modes(), protected(program), derivatives.explained(lambda: program):
        if order == 2:
            program = second_order(program)
        call = {"engine": engine, "mode": mode, "loss": loss, "requires_grad": requires_grad, **asked}
        named = functools.partial(capture_of, name=name, asked=call)
        if engine == "auto":
            capture = by_auto(program, options, requested, check, named)
        else:
            capture = by_engine(program, options, engine, check, named)
    return capture


def check_options(target: Any, engine: str, mode: Any, partition: Any, order: int) -> None:
    """Refuse by name options and targets that are not supported."""
    if order not in (1, 2):
        raise UsageError(
            f"order={order!r} is not one of 1 (the backward), 2 (its backward): for a higher order, capture a function "
            "that calls torch.autograd.grad itself"
        )
    if engine not in ("auto", *ENGINES):
        raise UsageError(f"engine={engine!r} is not one of auto, {', '.join(ENGINES)}")
    if mode not in MODES:
        raise UsageError(f"mode={mode!r} is not one of None (as it is), 'train', 'eval'")
    if mode is not None and not isinstance(target, nn.Module):
        raise UsageError(f"mode={mode!r} needs a module, and {describe_target(target)} is not one")
    if isinstance(partition, str) and partition not in PARTITIONS:
        raise UsageError(f"partition={partition!r} is not one of {', '.join(map(repr, PARTITIONS))}, nor a callable")
    if not callable(target):
        raise UsageError(
            f"a target must be a module, a function or the path of a sample, and {describe_target(target)} is not "
            "callable"
        )
    if isinstance(target, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise CaptureError(
            f"{describe_target(target)} is TorchScript, which runs no Python: capture the module it was made from"
        )
    if hasattr(target, COMPILED):
        raise CaptureError(f"{describe_target(target)} is compiled already: capture the module in its ._orig_mod")
    if isinstance(target, nn.parallel.DistributedDataParallel) or len(getattr(target, "device_ids", None) or ()) > 1:
        raise CaptureError(f"{type(target).__name__} spreads a module over devices: capture its .module")
    if isinstance(target, nn.Module):
        lazy = [name for name, p in (*target.named_parameters(), *target.named_buffers()) if nn.parameter.is_lazy(p)]
        if lazy:
            raise CaptureError(f"{lazy[0]} has no shape yet: run the module once, so that its lazy parameters are made")


LONGEST = 4096
"""The most characters of a name."""


def describe_target(target: Any) -> str:
    """Return a callable's name, or its type's, as text that can be printed."""
    return printable(str(getattr(target, "__name__", None) or type(target).__name__))[:LONGEST]
