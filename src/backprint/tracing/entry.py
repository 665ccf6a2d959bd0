"""Capture a call: check the request, trace it with an engine, compare the graphs with the program, restore its state.

Read it in this order: `capture_call` at the end is what the API calls; the table of engines says which requests each
supports; `by_auto` tries the engines one after another; `prove_capture` decides what becomes of a capture that differs.
"""

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
from backprint._torch.distributed import why_not_captured
from backprint._torch.modules import COMPILED
from backprint.common.text import printable
from backprint.errors import CaptureError, DataDependentError, GraphError, RefusedError, UsageError
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.nouns import Capture, Guard
from backprint.graph.verdicts import REFUTED, UNSTEADY
from backprint.tracing import derivatives
from backprint.tracing.captured import LiveProgram, capture_of
from backprint.tracing.custom import with_operator_bodies
from backprint.tracing.cut import PARTITIONS
from backprint.tracing.eager.engine import by_eager
from backprint.tracing.program import CalledProgram, read_call
from backprint.tracing.refusals import refuse_callers_modes
from backprint.tracing.request import EngineResult, HasCheckpoints
from backprint.tracing.running import restoring_state
from backprint.tracing.silent_writes import ADVICE, silent_write
from backprint.tracing.witness import second_order
from backprint.values.exchanges import Others
from backprint.values.settings import outside_modes, preserving_random_states

# ---- The engines, and the requests that each supports


def by_aot(program: CalledProgram, options: CaptureOptions) -> EngineResult:
    """Trace with AOTAutograd, which is loaded now, with Inductor and Dynamo: 2 s and 150 MiB."""
    from backprint.tracing.aot import engine

    return engine.by_aot(program, options)


def by_dynamo(program: CalledProgram, options: CaptureOptions) -> EngineResult:
    """Trace with Dynamo, which is loaded now."""
    from backprint.tracing.dynamo import engine

    return engine.by_dynamo(program, options)


@dataclass(frozen=True, slots=True)
class Engine:
    """One way to trace a program. `takes` names the options that it supports, of those that not every engine does
    (`CaptureOptions.requests`), and "sparse" if the program may have sparse inputs."""

    name: str
    make: Callable[[CalledProgram, CaptureOptions], EngineResult]
    takes: frozenset[str]

    def lacks(self, requested: Mapping[str, str]) -> str:
        """Return which of the requests this engine does not support, and which engines do; '' if it supports all."""
        missing = {request: needs for request, needs in requested.items() if request not in self.takes}
        if not missing:
            return ""
        needs = " with ".join(missing.values())
        return f"engine {self.name!r} does not take {needs}: {_engines_supporting(requested)}"


ENGINES: dict[str, Engine] = {
    each.name: each
    for each in (
        Engine("eager", by_eager, frozenset({"sparse", "order", "functional", "partition"})),
        Engine("aot", by_aot, frozenset({"fake", "dynamic", "decompose", "order", "partition"})),
        Engine("dynamo", by_dynamo, frozenset({"decompose", "partition"})),
    )
}
"""The engines in the order in which `auto` tries them."""

EXCLUSIVE = (("fake", "dynamic"),)
"""Requests that no engine supports together, although one may support each."""


def requests_of_call(program: CalledProgram, options: CaptureOptions) -> dict[str, str]:
    """Return what a call asks for that not every engine supports, each in the words of the call."""
    requested = options.requests()
    for name, tensor in program.all_tensors().items():
        if tensor.layout is not torch.strided:
            requested["sparse"] = f"{str(tensor.layout)[6:]} tensors (input {name!r})"
            break
    return requested


def _engines_supporting(requested: Collection[str]) -> str:
    """Return a clause that names the engines which support all of these requests."""
    names = [repr(engine.name) for engine in ENGINES.values() if engine.takes.issuperset(requested)]
    if not names:
        return "no engine does"
    *others, last = names
    return f"engines {', '.join(others)} and {last} do" if others else f"engine {last} does"


def _check_engine(engine: str, requested: Mapping[str, str]) -> None:
    """Raise a UsageError if the requested engine, or with `auto` every engine, does not support the requests."""
    for left, right in EXCLUSIVE:
        if left in requested and right in requested:
            raise UsageError(
                f"no engine takes {requested[left]} with {requested[right]}: ask for one of them at a time"
            )
    if engine != "auto":
        reason = ENGINES[engine].lacks(requested)
    else:
        every = [candidate.lacks(requested) for candidate in ENGINES.values()]
        reason = "" if "" in every else f"no engine takes {' with '.join(requested.values())}: ask for one at a time"
    if reason:
        raise UsageError(reason)


# ---- The choice: the first engine whose capture computes what the untouched program computes

Check = Callable[[Capture, LiveProgram], Any]
"""Compares a Capture with the untouched program; returns a Proof with the differences on captured and other inputs."""


def by_auto(
    program: CalledProgram,
    options: CaptureOptions,
    requested: Mapping[str, str],
    check: Check,
    build_capture: Callable[..., Capture],
) -> Capture:
    """Return the capture of the first engine that captures the whole program, and why the engines before it did not.

    Values that the program reads become constants with guards, unless the user passes `specialize=False`. A capture
    must compute what the untouched program computes, on its own values and on others. A capture that another engine may
    express better is used if all others fail. If every engine's capture differs on other values only, the first is
    returned, pinned to the captured inputs.

    A refusal, an error of torch or of the program is a reason to try the next engine. So is a defect of Backprint, but
    with a warning that has its traceback; it is raised if no other engine captures the program.
    """
    if not options.fake:
        options = replace(options, specialize=options.specialize is not False)
    errors: dict[str, Exception] = {}
    for name, engine in ENGINES.items():
        if reason := engine.lacks(requested):
            errors[name] = _UnsupportedRequest(reason)
            continue
        try:
            name, result = made_by(name, program, options)
            reasons = tuple(f"{earlier}: {_failure_reason(errors[earlier])}" for earlier in errors if earlier != name)
            capture = prove_capture(build_capture(result, name, reasons=reasons), check)
            if not result.reasons_to_prefer_others:
                return capture
            errors[name] = _LessExpressiveCapture(result.reasons_to_prefer_others[0], capture)
        except UsageError:
            raise
        except Exception as error:  # a refusal, an error of torch's or of the program's own, or a defect of ours
            if isinstance(error, CaptureError) and error.every_engine:
                raise
            errors[name] = error
            if reason := _why_results_change(error, program, options, check, build_capture):
                raise _refusal_of_changing_results(program, program.title, reason) from error
            if is_defect(error):
                _warn_of_defect(program.title, name, error)
    tried = {name: error for name, error in errors.items() if not isinstance(error, _UnsupportedRequest)}
    for kind in (_LessExpressiveCapture, _DiffersOnOtherInputs):
        for fallback in tried.values():
            if isinstance(fallback, kind):
                return fallback.capture
    if defect := next(filter(is_defect, tried.values()), None):
        raise defect
    first = next(iter(tried.values()))
    if not isinstance(first, CaptureError):
        raise first  # the program's own error: the first engine runs it as it is
    raise _refusal_by_every_engine(program.title, tried) from first


def made_by(name: str, program: CalledProgram, options: CaptureOptions) -> tuple[str, EngineResult]:
    """Return the engine that captures a program, and its result. A fake program that checkpoints is captured by engine
    `eager`, which keeps the checkpoints, if it can be recorded without values; else by `aot`, which says so."""
    if name != "aot" or not options.fake:
        return name, ENGINES[name].make(program, options)
    by_aot_alone = replace(options, engine="aot")
    if (
        program.peers is not None
        or program.wrappings
        or not ENGINES["eager"].takes >= options.requests().keys() - {"fake"}
    ):
        return name, ENGINES[name].make(program, by_aot_alone)
    try:
        return name, ENGINES[name].make(program, options)
    except HasCheckpoints:
        try:
            return "eager", by_eager(program, options)
        except Exception as error:
            if is_defect(error):
                _warn_of_defect(program.title, "eager", error)
            result = ENGINES[name].make(program, by_aot_alone)
            return name, replace(result, notes=(*result.notes, f"eager: {_failure_reason(error)}"))


def _refusal_of_changing_results(program: CalledProgram, title: str, reason: str) -> CaptureError:
    """Return the error for a program that returns another result when it runs again."""
    snapshot = program.target.snapshot
    changes = ""
    if snapshot is not None:
        snapshot.note_suspects_as_lost()
        changes = f" ({'; '.join(list(snapshot.lost.values())[:8])})"
    return CaptureError(
        f"{title} returns another result when it runs again ({reason}): a run leaves something behind{changes}. "
        "Backprint cannot restore that, so no engine's capture could be compared with the program. If only the first "
        "call differs, call it once before the capture; else pass what it reads as an argument",
        every_engine=True,
    )


def _why_results_change(
    error: Exception,
    program: CalledProgram,
    options: CaptureOptions,
    check: Check,
    build_capture: Callable[..., Capture],
) -> str:
    """Return where the program's own results differ from run to run; '' if the engine's graphs are wrong instead.

    A program with a counter that Backprint cannot restore returns another result each time. A capture of
    its second run would agree with the third run and not with the first, so trying the next engine would hide the
    cause. Therefore a Capture that differed on redrawn inputs is compared once more on the captured ones, where it
    agreed before; a Capture that differed on the captured inputs is traced once more: if the second trace agrees there,
    the program has changed in between.
    """
    if isinstance(error, _DiffersOnOtherInputs) and isinstance(error.capture.origin, LiveProgram):
        proof = check(error.capture, error.capture.origin)
        return proof.captured if proof is not None else ""
    if not isinstance(error, _DiffersOnCapturedInputs):
        return ""
    try:
        engine = error.capture.engine
        prove_capture(build_capture(ENGINES[engine].make(program, options), engine), check)
    except CaptureError as again:
        return error.reason if isinstance(again, _DiffersOnOtherInputs) else ""
    return error.reason


def _by_engine(
    program: CalledProgram, options: CaptureOptions, check: Check, build_capture: Callable[..., Capture]
) -> Capture:
    """Return the Capture of the requested engine. One that differs on other inputs only is pinned to the captured
    ones."""
    capture = build_capture(ENGINES[options.engine].make(program, options), options.engine)
    try:
        return prove_capture(capture, check)
    except (_DiffersOnCapturedInputs, _DiffersOnOtherInputs) as error:
        if reason := _why_results_change(error, program, options, check, build_capture):
            raise _refusal_of_changing_results(program, program.title, reason) from error
        if isinstance(error, _DiffersOnCapturedInputs):
            raise
        return error.capture


def _refusal_by_every_engine(title: str, errors: Mapping[str, Exception]) -> Exception:
    """Return the error for a program that no engine captures: the reason of each engine, then what to do."""
    first = next(iter(errors.values()))
    kind = CaptureError if isinstance(first, _DiffersOnCapturedInputs) else type(first)
    reasons = {name: _failure_reason(error) for name, error in errors.items()}
    if len(set(reasons.values())) == 1 or all(isinstance(error, DataDependentError) for error in errors.values()):
        return kind(f"no engine captures {title}: {next(iter(reasons.values()))}")
    lines = "".join(f"\n  {name}: {reason}" for name, reason in reasons.items())
    return kind(f"no engine captures {title}:{lines}\nCapture a part of it that leaves out what is named above.")


def _failure_reason(error: Exception) -> str:
    """Return in one line why an engine failed."""
    if is_defect(error):
        return f"a defect of Backprint: {errors.describe_defect(error)}"
    return str(error) if isinstance(error, CaptureError) else f"{type(error).__name__}: {error}"


def is_defect(error: Exception) -> bool:
    """Whether an engine failed through a fault of ours: also if the graph that it wrote breaks the rules of graphs."""
    malformed = isinstance(error, GraphError) and not isinstance(error, RefusedError)
    return malformed or errors.is_defect(error)


def _warn_of_defect(title: str, engine: str, error: Exception) -> None:
    """Warn that an engine failed through a fault of ours."""
    warnings.warn(
        f"engine {engine!r} does not capture {title} because of a defect of Backprint; the other engines are tried. "
        f"Please report it, with this traceback:\n{''.join(traceback.format_exception(error))}",
        RuntimeWarning,
        stacklevel=2,
    )


class _UnsupportedRequest(CaptureError):
    """An engine was not tried, because it does not support the request."""


class _FallbackCapture(CaptureError):
    """A capture that is used only if no other engine makes a better one."""

    def __init__(self, reason: str, capture: Capture) -> None:
        super().__init__(reason)
        self.capture = capture


class _LessExpressiveCapture(_FallbackCapture):
    """A proven capture that records a part (a `torch.cond`, an update of a view) less clearly than another engine
    may."""


class _DiffersOnCapturedInputs(CaptureError):
    """A capture whose graphs do not compute the program's results on the captured inputs. It is never used."""

    def __init__(self, reason: str, capture: Capture) -> None:
        super().__init__(f"the captured graph does not compute what the program computes: {reason}")
        self.reason, self.capture = reason, capture


class _DiffersOnOtherInputs(_FallbackCapture):
    """A capture that is right on the captured inputs only: its engine did not see how the program reads them."""


def prove_capture(capture: Capture, check: Check) -> Capture:
    """Compare a Capture with its program, and return it with the guards and doubts that follow; raise if it is
    wrong."""
    program = capture.origin
    if capture.fake or not isinstance(program, LiveProgram):
        return capture
    proof = check(capture, program)
    if proof is None:
        return capture
    if proof.identity:
        raise CaptureError(
            f"{capture.name} tells arguments apart by identity (id(), `is`, a table of tensors), as no graph can. With "
            f"other tensors of the same values it returns another result ({proof.identity}): tell arguments apart by "
            "their values",
            every_engine=True,
        )
    if proof.moved:
        raise _refusal_of_changing_results(program.program, capture.name, proof.moved)
    if proof.captured:
        write = silent_write(program.program)
        reason = f"{write} ({proof.captured}). {ADVICE}" if write else proof.captured
        raise _DiffersOnCapturedInputs(reason, capture)  # another engine may have the operator that writes whole
    if program.unguarded:
        reason = f"engine {capture.engine!r} has no step that could check it; engine 'eager' keeps it as a guard"
        raise _DiffersOnOtherInputs(
            f"{program.unguarded[0]}: {reason}", _pinned_to_captured_inputs(capture, program, proof)
        )
    if proof.redrawn:
        reason = f"the captured graph does not compute what the program computes on other inputs: {proof.redrawn}"
        raise _DiffersOnOtherInputs(reason, _pinned_to_captured_inputs(capture, program, proof))
    if any(UNSTEADY in port.detail for port in proof.ports) and program.program.target.snapshot is not None:
        program.program.target.snapshot.note_suspects_as_lost()
    capture = replace(capture, guards=(*capture.guards, *proof.alone), origin=program.with_doubts(proof.ports))
    return _with_pinned_generators(capture, proof)


def _pinned_to_captured_inputs(capture: Capture, program: LiveProgram, proof: Any) -> Capture:
    """Return a Capture that is valid for the captured values only of the inputs that the program reads unseen."""
    doubts = [port for port in proof.ports if port.verdict not in REFUTED] if proof.redrawn else proof.ports
    capture = _with_pinned_generators(replace(capture, origin=program.with_doubts(doubts)), proof)
    return _with_pinned_inputs(capture, proof.redrawn, proof.pins) if proof.redrawn else capture


def _with_pinned_generators(capture: Capture, proof: Any) -> Capture:
    """Pin the generators, other than torch's own, that the program draws from."""
    if not proof.drawn:
        return capture
    return _with_pinned_inputs(
        capture, f"the program draws from {proof.drawn}, and a sample has only the numbers", proof.pins
    )


def _with_pinned_inputs(capture: Capture, reason: str, pins: tuple[tuple[str, str], ...]) -> Capture:
    """Return a Capture that runs on the captured values of these inputs only, with the reason."""
    names = [name for name, _ in pins]
    guard = Guard("pinned", f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} pinned: {reason}", tuple(names))
    return replace(capture, pins=(*capture.pins, *pins), guards=(*capture.guards, guard))


# ---- One call, from the request to the Capture

MODES = (None, "train", "eval")

CAPTURING_THREAD = threading.local()
"""`.capturing` is true in a thread that is capturing a call."""


@contextlib.contextmanager
def _refuse_nested_capture() -> Iterator[None]:
    """Refuse a capture inside another one of this thread, by a signal handler or by the captured program.

    Torch's modes are active there, and the arguments do not have the caller's values.
    """
    if getattr(CAPTURING_THREAD, "capturing", False):
        raise CaptureError(
            "this thread is in the middle of a capture: bp.capture was called by a signal handler, or by the program "
            "that is captured; call it when the capture has ended"
        )
    CAPTURING_THREAD.capturing = True
    try:
        yield
    finally:
        CAPTURING_THREAD.capturing = False


@_refuse_nested_capture()
def capture_call(
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: CaptureOptions,
    check: Check = lambda capture, program: None,
    peers: Others | None = None,
) -> Capture:
    """Capture the forward and backward of `target(*args, **kwargs)`, with the bodies of custom operators."""
    return with_operator_bodies(lambda: capture_once(target, args, kwargs, options, check, peers), options)


def capture_once(
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: CaptureOptions,
    check: Check,
    peers: Others | None,
) -> Capture:
    """Capture a call once; with `peers`, as one rank among them."""
    check_options(target, options)
    specialize = bool(options.specialize)
    program = read_call(
        target, args, kwargs, options.requires_grad, options.mode, options.loss, options.fake, specialize, peers
    )
    requested_in_words = requests_of_call(program, options)
    _check_engine(options.engine, requested_in_words)
    with (
        preserving_random_states(),
        refuse_callers_modes(),
        outside_modes(),
        restoring_state(program),
        derivatives.explaining_missing_derivative(lambda: program),
    ):
        if options.order == 2:
            program = second_order(program)
        build_capture = functools.partial(capture_of, options=options)
        options = replace(options, engine=_engine_of_ranks(program, options.engine))
        if options.engine == "aot" and program.peers is not None:
            without_values = read_call(
                target, args, kwargs, options.requires_grad, options.mode, options.loss, True, specialize
            )
            capture = _proved_among(build_capture(_traced_among(program, without_values, options), "aot"), check)
        elif options.engine == "auto":
            capture = by_auto(program, options, requested_in_words, check, build_capture)
        else:
            capture = _by_engine(program, options, check, build_capture)
    return capture


def _traced_among(program: CalledProgram, without_values: CalledProgram, options: CaptureOptions) -> EngineResult:
    """Capture one rank of several by engine `aot`: it is traced without values, as collectives need no others then, and
    proved with them."""
    assert program.peers is not None
    with program.peers.place():
        try:
            result = ENGINES["aot"].make(without_values, replace(options, fake=True))
        except DataDependentError as error:
            what = str(error).partition(". Pass small real inputs")[0]
            raise CaptureError(
                f"{what}: engine 'aot' traces a rank without values, as a fake capture; engine 'eager' captures it",
                every_engine=True,
            ) from error
    scouted = replace(
        result.program,
        target=program.target,
        values=program.values,
        wrappings=program.wrappings,
        peers=program.peers,
        world=None,
    )
    return replace(result, program=scouted, outcome=None)


def _proved_among(capture: Capture, check: Check) -> Capture:
    """Prove the Capture of one rank of several by engine `aot`."""
    try:
        return prove_capture(capture, check)
    except (_DiffersOnCapturedInputs, _DiffersOnOtherInputs) as error:
        raise CaptureError(
            f"{error}. Engine 'aot' writes a collective of the backward that depends on no gradient into the forward, "
            "and brings gradients to the shards of their parameters: engine 'eager' captures the rank as it ran",
            every_engine=True,
        ) from error


def _engine_of_ranks(program: CalledProgram, engine: str) -> str:
    """Return the engine for a program; one rank of several is recorded as it ran, by engine `eager`, or traced without
    values by engine `aot`."""
    if program.world is not None:
        return engine
    if engine == "aot" and program.peers is not None and not program.reduces_gradients:
        return engine
    why = ""
    if program.reduces_gradients:
        why = "reduces its gradients among processes"
    elif program.peers is not None:
        why = "is a rank among others"
    elif program.wrappings:
        why = f"has {next(iter(program.wrappings))}, which wraps another tensor"
    if why and engine not in ("auto", "eager"):
        others = "" if program.reduces_gradients or program.peers is None else " (or 'aot')"
        raise UsageError(f"engine={engine!r}: {program.title} {why}, and only engine 'eager'{others} captures that")
    return "eager" if why else engine


def check_options(target: Any, options: CaptureOptions) -> None:
    """Refuse by name options and targets that are not supported."""
    engine, mode, partition, order = options.engine, options.mode, options.partition, options.order
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
        raise UsageError(f"mode={mode!r} needs a module, and {_describe_target(target)} is not one")
    if isinstance(partition, str) and partition not in PARTITIONS:
        raise UsageError(f"partition={partition!r} is not one of {', '.join(map(repr, PARTITIONS))}, nor a callable")
    if not callable(target):
        raise UsageError(
            f"a target must be a module, a function or the path of a sample, and {_describe_target(target)} is not "
            "callable"
        )
    if isinstance(target, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise CaptureError(
            f"{_describe_target(target)} is TorchScript, which runs no Python: capture the module it was made from"
        )
    if hasattr(target, COMPILED):
        raise CaptureError(f"{_describe_target(target)} is compiled already: capture the module in its ._orig_mod")
    if len(getattr(target, "device_ids", None) or ()) > 1:
        raise CaptureError(f"{type(target).__name__} spreads a module over devices: capture its .module")
    if isinstance(target, nn.Module):
        refuse_modules(target)
        lazy = [name for name, p in (*target.named_parameters(), *target.named_buffers()) if nn.parameter.is_lazy(p)]
        if lazy:
            raise CaptureError(f"{lazy[0]} has no shape yet: run the module once, so that its lazy parameters are made")


def refuse_modules(target: nn.Module) -> None:
    """Refuse a module that has distributed modules whose step is not captured."""
    if why := next(filter(None, map(why_not_captured, target.modules())), ""):
        raise CaptureError(why, every_engine=True)


MAX_NAME_LENGTH = 4096
"""The most characters of a name."""


def _describe_target(target: Any) -> str:
    """Return a callable's name, or its type's, as text that can be printed."""
    return printable(str(getattr(target, "__name__", None) or type(target).__name__))[:MAX_NAME_LENGTH]
