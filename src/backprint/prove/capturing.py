"""Capture a call: trace it with an engine, prove the graphs against the program, decide which capture is used.

Read it in this order: `capture_with_recipes` at the end is what the API calls. OTHER_ENGINE says which engine is asked
next, by the cause why one was not enough. `_candidate` traces and proves once, and `choose` decides. The engines
themselves, and the options that each supports, are in `trace/entry`.

- A *Doubt* says why another engine may do better: its `cause`, a word of the list below, and its `reason`, a text for
  the user. A *Candidate* is what one engine made of the program, with its doubts.
- A *Proof* compares a Capture with the program. It has texts about differences, '' for none: `captured` on the captured
  values, `redrawn` on others, `moved` from the first run, `identity` for other tensors of the same values. `drawn`
  names generators of the program's own, and `pins` has the inputs that are to blame.
- `live`, a LiveProgram: the program behind a Capture, which can run again. Its `target` is the callable, whose
  `snapshot` is of the state that a run may change; its `unguarded` are reads of values that no guard checks.
- An error with `every_engine` is one that each engine would raise, so no other is asked.
- A *fake* program runs on FakeTensors, without values. A program's `peers` are the other ranks of its process groups.
"""

from __future__ import annotations

import contextlib
import threading
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from backprint import errors
from backprint._torch.modules import INLINED
from backprint.errors import BackprintError, CaptureError, DataDependentError, GraphError, RefusedError, UsageError
from backprint.graph.calls import with_advice_on_ranks
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.nouns import Capture, Guard
from backprint.graph.verdicts import REFUTED, UNSTEADY
from backprint.prove import at_capture
from backprint.prove.at_capture import Proof
from backprint.sample.inputs import Inputs, with_recipes
from backprint.trace import derivatives
from backprint.trace.captured import LiveProgram, capture_of
from backprint.trace.custom import with_operator_bodies
from backprint.trace.entry import ENGINES, check_engine, check_options, engine_of_ranks, requests_of_call
from backprint.trace.program import CalledProgram, read_call
from backprint.trace.refusals import refuse_callers_modes
from backprint.trace.request import COMPILED, CONTROL_FLOW, VIEW_UPDATE, Doubt, HasCheckpoints
from backprint.trace.running import restoring_state
from backprint.trace.silent_writes import ADVICE, silent_write
from backprint.trace.witness import second_order
from backprint.values.exchanges import Others, Peers
from backprint.values.settings import outside_modes, preserving_random_states

# ---- Which engine is asked next, by the cause why one was not enough

UNSUPPORTED = "unsupported"
"""The engine does not take an option of the call, so it was not asked. This and the following are the causes of
Doubts."""
REFUSED = "refused"
"""The engine refuses the program by name, or there is too little memory."""
PROGRAM = "program"
"""The program raises an error of its own, which it raises without a capture too."""
DEFECT = "defect"
"""The engine failed through a fault of Backprint's."""
CHECKPOINTS = "checkpoints"
"""Engine `aot` would lose the checkpoints of a fake program."""
WRONG = "wrong"
"""The graphs do not compute the program's results on the captured inputs: the capture is never used."""
OTHER_INPUTS = "other inputs"
"""The graphs are right on the captured inputs only: the engine did not see how the program reads them."""

OTHER_ENGINE: Mapping[tuple[str, str], str] = {
    ("eager", CONTROL_FLOW): "dynamo",  # keeps `torch.cond`, `map` and `scan`, with the bodies that did not run
    ("eager", COMPILED): "dynamo",  # torch.compile may compute something else than the function
    ("eager", VIEW_UPDATE): "aot",  # its backward does not scatter into the whole storage
    ("eager", REFUSED): "aot",  # an update of a sparse tensor in a backward, for example
    ("eager", WRONG): "aot",  # its operators may write what no operator of the recorded step wrote
    ("eager", OTHER_INPUTS): "aot",
    ("eager", DEFECT): "aot",
    ("aot", CHECKPOINTS): "eager",
    ("aot", REFUSED): "dynamo",  # where `eager` does not take the options of the call
    ("aot", WRONG): "dynamo",
    ("aot", OTHER_INPUTS): "dynamo",
    ("aot", DEFECT): "dynamo",
}
"""The engine that `auto` asks next, by the engine that was not enough and the cause why it was not. Other causes end
the search."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What an engine made of a program: a Capture with its proof, or an error.

    `doubts` say why another engine may do better, the gravest first. A capture without doubts is proved. `proof` is
    None where nothing can be compared: without values, or if the caller wants no proof.
    """

    engine: str
    capture: Capture | None = None
    proof: Proof | None = None
    doubts: tuple[Doubt, ...] = ()
    error: Exception | None = None

    @property
    def cause(self) -> str:
        """The cause of the gravest doubt; '' if there is none."""
        return self.doubts[0].cause if self.doubts else ""

    @property
    def reason(self) -> str:
        """The gravest doubt as a text; '' if there is none."""
        return self.doubts[0].reason if self.doubts else ""


USED: tuple[tuple[str, ...], ...] = (("",), (CONTROL_FLOW, VIEW_UPDATE), (OTHER_INPUTS,))
"""The causes of the gravest doubt with which a capture is used, the best first; '' is no doubt. A capture that is right
on the captured inputs only (OTHER_INPUTS) is pinned to them."""


def other_engine(candidates: Sequence[Candidate], lacking: Collection[str]) -> str:
    """Return the engine that is asked after the last Candidate; '' if none. `lacking` has the engines that do not take
    all options of the call.

    After a second engine's failure no third one is asked. But a fake program goes back to `aot` if `eager`, which would
    have kept its checkpoints, cannot record it without values.
    """
    asked = [candidate for candidate in candidates if candidate.cause != UNSUPPORTED]
    last = asked[-1]
    # `eager` is preferred, so it is the second only for a fake program whose checkpoints `aot` would have lost.
    if len(asked) > 1 and last.engine != "eager":
        return ""
    # A control flow operator counts most, as its gradients may be wrong for the body that did not run; then a compiled
    # function, which `aot` cannot trace.
    causes = {doubt.cause for doubt in last.doubts}
    cause = next((cause for cause in (CONTROL_FLOW, COMPILED) if cause in causes), last.cause)
    other = OTHER_ENGINE.get((last.engine, cause), "")
    # Engine `eager` does not take the option `fake`, but may record a fake program that checkpoints.
    return "" if other in lacking and last.cause != CHECKPOINTS else other


def choose(title: str, candidates: Sequence[Candidate]) -> Capture:
    """Return the best capture among Candidates, which has in `why` the reasons why the engines that were asked before
    were not enough; raise if none may be used. `title` is the program's name in messages.

    The error is a defect of Backprint if there is one, else the program's own, else a refusal with the reason of each
    engine.
    """
    for causes in USED:  # the causes of doubts with which a capture may be used, from the best capture to the worst
        for index, candidate in enumerate(candidates):
            if candidate.capture is not None and candidate.cause in causes:
                reasons = {other.engine: other.reason for other in candidates[:index]}
                # An engine may have been asked twice: its first refusal is then no reason why another was used.
                reasons.pop(candidate.engine, None)
                return replace(candidate.capture, why=tuple(f"{name}: {reason}" for name, reason in reasons.items()))
    asked = [candidate for candidate in candidates if candidate.cause not in (UNSUPPORTED, CHECKPOINTS)]
    if defect := next((candidate.error for candidate in asked if candidate.cause == DEFECT), None):
        raise defect
    first = asked[0].error  # of the engine that is preferred; None if it has a capture, which is wrong
    if first is not None and not isinstance(first, CaptureError):
        raise first  # the program's own
    kind = DataDependentError if isinstance(first, DataDependentError) else CaptureError
    reasons = {candidate.engine: candidate.reason for candidate in asked}
    # One reason for all engines needs no list; nor does a program that every engine refuses for its values.
    if len(set(reasons.values())) == 1 or all(isinstance(candidate.error, DataDependentError) for candidate in asked):
        raise kind(f"no engine captures {title}: {next(iter(reasons.values()))}") from first
    lines = "".join(f"\n  {engine}: {reason}" for engine, reason in reasons.items())
    raise kind(
        f"no engine captures {title}:{lines}\nCapture a part of it that leaves out what is named above."
    ) from first


# ---- One Candidate: trace, prove, judge


@dataclass(frozen=True, slots=True)
class _Request:
    """A program to be captured, with the options of the call; `proved` says whether its captures are compared with
    it."""

    program: CalledProgram
    options: CaptureOptions
    proved: bool


def _candidate(request: _Request, engine: str) -> Candidate:
    """Return what an engine makes of a program, compared with the program if the request says so. Raise what the engine
    raises, and a refusal if the program's own results change from run to run."""
    capture, doubts = _trace_by_engine(request, engine)
    candidate = _judge_candidate(capture, _proof_of(request, capture), doubts)
    if reason := _why_results_change(request, candidate):
        raise _refusal_of_changing_results(request.program, request.program.title, reason)
    return candidate


def _trace_by_engine(request: _Request, engine: str) -> tuple[Capture, tuple[Doubt, ...]]:
    """Trace a program with an engine; return its Capture, and the engine's own doubts."""
    result = ENGINES[engine].make(request.program, request.options)
    return capture_of(result, engine, request.options), result.doubts


def _proof_of(request: _Request, capture: Capture) -> Proof | None:
    """Compare a Capture with the program; None if nothing is to be compared."""
    if not request.proved or capture.fake or not isinstance(capture.origin, LiveProgram):
        return None
    return at_capture.held_against_program(capture, capture.origin)


def _judge_candidate(capture: Capture, proof: Proof | None, doubts: tuple[Doubt, ...] = ()) -> Candidate:
    """Return the Candidate of a Capture: it is wrong, or pinned to the captured inputs because it is right on these
    alone, or proved; as it is, if there is no proof. Its doubts are those that follow from the proof, then the engine's
    own, `doubts`. Raise if no engine's capture could be right."""
    live = capture.origin
    if proof is None or not isinstance(live, LiveProgram):
        return Candidate(capture.engine, capture, proof, doubts)
    _refuse_program_without_right_capture(capture.name, live, proof)
    by_proof: tuple[Doubt, ...] = ()
    if proof.captured:
        by_proof = _doubts_about_wrong_capture(capture.name, live, proof.captured)
    elif live.unguarded or proof.redrawn:
        by_proof = (_doubt_about_other_inputs(capture.engine, live, proof),)
        capture = _pinned_to_captured_inputs(capture, live, proof)
    else:
        capture = _proved_capture(capture, live, proof)
    return Candidate(capture.engine, capture, proof, (*by_proof, *doubts))


def _refuse_program_without_right_capture(title: str, live: LiveProgram, proof: Proof) -> None:
    """Raise for a program that tells apart equal tensors, or that returned something else in its first run."""
    if proof.identity:
        raise CaptureError(
            f"{title} tells arguments apart by identity (id(), `is`, a table of tensors), as no graph can. With "
            f"other tensors of the same values it returns another result ({proof.identity}): tell arguments apart by "
            "their values",
            every_engine=True,
        )
    if proof.moved:
        raise _refusal_of_changing_results(live.program, title, proof.moved)


def _doubts_about_wrong_capture(title: str, live: LiveProgram, difference: str) -> tuple[Doubt, ...]:
    """Return the doubt about a Capture that differs on the captured inputs, and that the program is compiled, if it
    is. A write that no operator shows is named as the cause, if there is one."""
    write = silent_write(live.program)  # in words, '' for none
    wrong = Doubt(WRONG, f"{DIFFERS}{write} ({difference}). {ADVICE}" if write else f"{DIFFERS}{difference}")
    # A function that torch.compile has returned has this attribute.
    if not hasattr(live.program.target(), INLINED):
        return (wrong,)
    return wrong, Doubt(COMPILED, f"{title} is compiled, and was recorded as it runs uncompiled")


def _doubt_about_other_inputs(engine: str, live: LiveProgram, proof: Proof) -> Doubt:
    """Return the doubt about a Capture that is right on the captured inputs and may be wrong on others: an unguarded
    read of a value, or a difference on redrawn inputs."""
    if live.unguarded:
        advice = f"engine {engine!r} has no step that could check it; engine 'eager' keeps it as a guard"
        return Doubt(OTHER_INPUTS, f"{live.unguarded[0]}: {advice}")
    return Doubt(
        OTHER_INPUTS,
        f"the captured graph does not compute what the program computes on other inputs: {proof.redrawn}",
    )


def _proved_capture(capture: Capture, live: LiveProgram, proof: Proof) -> Capture:
    """Return a Capture without a difference, with the guards that follow from its proof and the ports that are not
    bitwise. If the program does not repeat itself, what a run may have left behind is named in the notes."""
    snapshot = live.program.target.snapshot
    if snapshot is not None and any(UNSTEADY in port.detail for port in proof.ports):
        snapshot.note_suspects_as_lost()  # the notes name what is lost
    guarded = replace(capture, guards=(*capture.guards, *proof.alone), origin=live.with_not_bitwise_ports(proof.ports))
    return _with_pinned_generators(guarded, proof)


DIFFERS = "the captured graph does not compute what the program computes: "
"""How the reason of a wrong capture begins."""


def _why_results_change(request: _Request, candidate: Candidate) -> str:
    """Return where the program's own results differ from run to run; '' if they do not, as far as can be seen.

    A program with a counter that Backprint cannot restore returns another result each time. A capture of its second run
    would agree with the third run and not with the first, so asking the next engine would hide the cause. Two
    comparisons on the captured inputs that contradict each other show it: a capture that was right there is compared
    again, and a wrong one is compared with a second trace.
    """
    assert candidate.capture is not None
    if candidate.cause == OTHER_INPUTS:
        again = _proof_of(request, candidate.capture)
        return "" if again is None else again.captured
    if candidate.cause != WRONG:
        return ""
    try:
        second_capture, _ = _trace_by_engine(request, candidate.engine)
        again = _proof_of(request, second_capture)
    except CaptureError:  # then the second trace tells nothing
        return ""
    is_right = again is not None and not (again.captured or again.identity or again.moved)
    return candidate.reason.removeprefix(DIFFERS) if is_right else ""


def _refusal_of_changing_results(program: CalledProgram, title: str, reason: str) -> CaptureError:
    """Return the error for a program that returns another result when it runs again."""
    snapshot = program.target.snapshot  # of the state that the program may change; `lost` is what was not restored
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


def _pinned_to_captured_inputs(capture: Capture, live: LiveProgram, proof: Proof) -> Capture:
    """Return a Capture that runs on the captured values only of the inputs that the program reads unseen."""
    # A difference on other inputs, which the pins exclude, is no doubt about the pinned Capture.
    ports = [port for port in proof.ports if port.verdict not in REFUTED] if proof.redrawn else proof.ports
    capture = _with_pinned_generators(replace(capture, origin=live.with_not_bitwise_ports(ports)), proof)
    return _with_pinned_inputs(capture, proof.redrawn, proof.pins) if proof.redrawn else capture


def _with_pinned_generators(capture: Capture, proof: Proof) -> Capture:
    """Return a Capture pinned to its captured inputs, if the program draws from generators other than torch's own and
    has inputs."""
    if not (proof.drawn and proof.pins):
        return capture
    return _with_pinned_inputs(
        capture, f"the program draws from {proof.drawn}, and a sample has only the numbers", proof.pins
    )


def _with_pinned_inputs(capture: Capture, reason: str, pins: tuple[tuple[str, str], ...]) -> Capture:
    """Return a Capture that runs on the captured values of these inputs only, for this reason. `pins` has the name of
    each input and the digest of its values."""
    names = [name for name, _ in pins]
    guard = Guard("pinned", f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} pinned: {reason}", tuple(names))
    return replace(capture, pins=(*capture.pins, *pins), guards=(*capture.guards, guard))


# ---- By one engine, by `auto`, and one rank among others


def _capture_by_engine(request: _Request) -> Capture:
    """Return the Capture of the engine that the caller requests by name. It is pinned to the captured inputs if it is
    right on these only; CaptureError, with the reason, if it is wrong on them."""
    candidate = _candidate(request, request.options.engine)
    assert candidate.capture is not None
    if candidate.cause == WRONG:
        raise CaptureError(candidate.reason)
    return candidate.capture


def _capture_by_auto(request: _Request, requested: Mapping[str, str]) -> Capture:
    """Return the capture of engine `eager`, or of the engine that an option or the cause of a doubt calls for.
    `requested` has what the call asks of an engine, and in which words.

    Values that the program reads become constants with guards, unless the user passes `specialize=False`. A defect of
    Backprint is a reason to ask another engine, with a warning that has its traceback; it is raised if no other engine
    captures the program.
    """
    if not request.options.fake:
        specialize = request.options.specialize is not False
        request = replace(request, options=replace(request.options, specialize=specialize))
    lacking = {name: reason for name, engine in ENGINES.items() if (reason := engine.lacks(requested))}
    # ENGINES has the engines in the order of preference. One takes all options: `check_engine` has refused others.
    engine = next(name for name in ENGINES if name not in lacking)
    before = list(ENGINES)[: list(ENGINES).index(engine)]
    candidates = [Candidate(name, doubts=(Doubt(UNSUPPORTED, lacking[name]),)) for name in before]
    while engine:
        candidates.append(_attempt(request, engine, [candidate.engine for candidate in candidates]))
        engine = other_engine(candidates, lacking)
    return choose(request.program.title, candidates)


def _attempt(request: _Request, engine: str, before: Sequence[str]) -> Candidate:
    """Return what an engine makes of a program, also if it fails; raise errors that every engine would raise. `before`
    has the engines that were asked before, or left out."""
    program, options = request.program, request.options
    # A fake program that checkpoints is refused by `aot` under `auto`, but only if `eager` may record it instead. An
    # engine that is requested by name does not refuse it, so the option `engine` names it here.
    if options.fake and (engine in before or not _eager_may_keep_checkpoints(program, options)):
        request = replace(request, options=replace(options, engine=engine))
    try:
        return _candidate(request, engine)
    except Exception as error:  # a refusal, an error of torch's or of the program's own, or a defect of ours
        if isinstance(error, UsageError) or (isinstance(error, CaptureError) and error.every_engine):
            raise
        failed = _failed_attempt(engine, error)
        if failed.cause == DEFECT:
            _warn_of_defect(program.title, engine, error)
        return failed


def _eager_may_keep_checkpoints(program: CalledProgram, options: CaptureOptions) -> bool:
    """Whether engine `eager` may record a fake program that checkpoints, as far as its options say."""
    others = options.requests().keys() - {"fake"}
    return program.peers is None and not program.wrappings and ENGINES["eager"].takes >= others


def _failed_attempt(engine: str, error: Exception) -> Candidate:
    """Return the Candidate of an engine that failed, with the cause."""
    if _is_defect(error):
        doubt = Doubt(DEFECT, f"a defect of Backprint: {errors.describe_defect(error)}")
    elif isinstance(error, HasCheckpoints):
        doubt = Doubt(CHECKPOINTS, str(error))
    elif isinstance(error, CaptureError):
        doubt = Doubt(REFUSED, str(error))
    else:
        is_own = not isinstance(error, (BackprintError, torch.OutOfMemoryError, MemoryError))
        doubt = Doubt(PROGRAM if is_own else REFUSED, f"{type(error).__name__}: {error}")
    return Candidate(engine, doubts=(doubt,), error=error)


def _is_defect(error: Exception) -> bool:
    """Whether an engine failed through a fault of ours: also if the graph that it wrote breaks the rules of graphs."""
    malformed = isinstance(error, GraphError) and not isinstance(error, RefusedError)
    return malformed or errors.is_defect(error)


def _warn_of_defect(title: str, engine: str, error: Exception) -> None:
    """Warn that an engine failed through a fault of ours."""
    warnings.warn(
        f"engine {engine!r} does not capture {title} because of a defect of Backprint; another engine is tried. "
        f"Please report it, with this traceback:\n{''.join(traceback.format_exception(error))}",
        RuntimeWarning,
        stacklevel=2,
    )


def _among_ranks(request: _Request, without_values: CalledProgram) -> Capture:
    """Capture one rank of several by engine `aot`. It is traced without values, as collectives need no other ranks
    then, and proved with values. `without_values` is the program of the request, read with fake tensors. A Capture with
    any doubt is refused: no other engine is asked."""
    program, options = request.program, request.options
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
    # Traced without values and proved with them: the proof needs the target and the values of the real program.
    observed = replace(
        result.program,
        target=program.target,
        values=program.values,
        wrappings=program.wrappings,
        peers=program.peers,
        world=None,  # no FakeTensorMode
    )
    # `outcome` is of a recorded run: there was none with values.
    capture = capture_of(replace(result, program=observed, outcome=None), "aot", options)
    candidate = _judge_candidate(capture, _proof_of(request, capture))
    if candidate.capture is None or candidate.doubts:
        raise CaptureError(
            f"{candidate.reason}. Engine 'aot' writes a collective of the backward that depends on no gradient into "
            "the forward, and brings gradients to the shards of their parameters: engine 'eager' captures the rank as "
            "it ran",
            every_engine=True,
        )
    return candidate.capture


# ---- One call, from the request to the Capture

_CAPTURING_THREAD = threading.local()
"""`.capturing` is true in a thread that is capturing a call. It cannot be an argument: the captured program, which may
call `bp.capture`, would not pass it on."""


@contextlib.contextmanager
def _refuse_nested_capture() -> Iterator[None]:
    """Refuse a capture inside another one of this thread, by a signal handler or by the captured program.

    Torch's modes are active there, and the arguments do not have the caller's values.
    """
    if getattr(_CAPTURING_THREAD, "capturing", False):
        raise CaptureError(
            "this thread is in the middle of a capture: bp.capture was called by a signal handler, or by the program "
            "that is captured; call it when the capture has ended"
        )
    _CAPTURING_THREAD.capturing = True
    try:
        yield
    finally:
        _CAPTURING_THREAD.capturing = False


@_refuse_nested_capture()
def capture_call(
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: CaptureOptions,
    proved: bool = True,
    peers: Others | None = None,
) -> Capture:
    """Capture the forward and backward of `target(*args, **kwargs)`, with the bodies of custom operators where they can
    be recorded. Without `proved`, it is not compared with the program; with `peers`, it is one rank among them."""
    # With a function, because it may take several captures to find which bodies can be recorded.
    return with_operator_bodies(lambda: _capture_once(target, args, kwargs, options, proved, peers), options)


def _capture_once(
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: CaptureOptions,
    proved: bool,
    peers: Others | None,
) -> Capture:
    """Capture a call, whose arguments are as in `capture_call`, with custom operators as they are."""
    check_options(target, options)

    def read(fake: bool, peers: Others | None = None) -> CalledProgram:
        """Return the program with its arguments, as fake tensors if `fake`."""
        specialize = bool(options.specialize)
        return read_call(
            target, args, kwargs, options.requires_grad, options.mode, options.loss, fake, specialize, peers
        )

    program = read(options.fake, peers)
    requested = requests_of_call(program, options)  # what the call asks of an engine, as the caller wrote it
    check_engine(options.engine, requested)
    with (
        preserving_random_states(),
        refuse_callers_modes(),
        outside_modes(),
        restoring_state(program),
        derivatives.explaining_missing_derivative(lambda: program),
    ):
        if options.order == 2:
            program = second_order(program)
        request = _Request(program, replace(options, engine=engine_of_ranks(program, options.engine)), proved)
        if request.options.engine == "aot" and program.peers is not None:
            return _among_ranks(request, without_values=read(fake=True))
        return _capture_by_auto(request, requested) if request.options.engine == "auto" else _capture_by_engine(request)


@with_advice_on_ranks()
def capture_with_recipes(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: CaptureOptions,
    recipes: Inputs | None = None,
    peers: Peers | None = None,
) -> Capture:
    """Return the Capture of a call, which can be saved: `recipes` are those that made its tensors, if any did, and
    others are fitted to them. `peers` answer its collectives."""
    return with_recipes(capture_call(target, args, kwargs, options, peers=peers), recipes)
