"""Engine `aot`: AOTAutograd's joint graph of a program, partitioned, as a Pair.

A stamped capture is not traced layer by layer: captures with a few of a model's equal layers are continued to all of
them (`trace/stamping`). A full trace traces every layer. The warm-up is one eager run that is observed before a trace;
it makes the ObservedProgram, and Findings. `read_fx` reads the fx graphs of a trace as a Joint: the forward and the
backward before they are the two graphs of a Pair. Python's garbage collector is paused (`collector_paused`) where many
objects are made that all stay; a warm-up run on values is the program's own run, and has the collector.

A CalledProgram is a callable with the named tensors of one call. CaptureOptions are the user's options of a capture. An
EngineResult has the Pairs of a program, and what a Capture needs besides. A tensor's flags are facts that the user's
code may read of it, such as `requires_grad`.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

from backprint.common.collector import collector_paused
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.nouns import IN_FULL, WITHOUT_CHECKPOINTS
from backprint.trace.aot.from_fx import ReadJoint, read_fx
from backprint.trace.aot.trace import Traced, trace
from backprint.trace.assembly import assemble
from backprint.trace.non_operator_effects import flag_guards
from backprint.trace.program import CalledProgram, ObservedProgram
from backprint.trace.refusals import describe_unchecked_reads
from backprint.trace.request import EngineResult, HasCheckpoints
from backprint.trace.stamping.stamp import attempt_stamp
from backprint.trace.warm_up import Findings, warm_up


def by_aot(program: CalledProgram, options: CaptureOptions) -> EngineResult:
    """Capture a program by engine `aot`; stamp it if it is fake and has many equal layers.

    Where stamping is not possible and there is a reason to tell, the capture has a note with it.
    """
    if not options.fake or not options.stamp:
        with collector_paused() if options.fake else contextlib.nullcontext():
            observed, seen = warm_up(program)
        return _traced_in_full(program, options, observed, seen)
    with collector_paused():
        attempt = attempt_stamp(program, options, trace=_read_trace)
        if attempt.result is not None:
            return attempt.result
        # The attempt may have made the warm-up run of the whole model already.
        observed, seen = (attempt.run.observed, attempt.run.findings) if attempt.run is not None else warm_up(program)
    result = _traced_in_full(program, options, observed, seen)
    return replace(result, notes=(f"{IN_FULL}{attempt.why}", *result.notes)) if attempt.why else result


def _read_trace(observed: ObservedProgram, seen: Findings, options: CaptureOptions) -> ReadJoint:
    """Trace a program, and return the Joint; `observed` and `seen` are those of its warm-up run."""
    return read_fx(observed, _traced_by(observed, seen, options))


def _traced_by(observed: ObservedProgram, seen: Findings, options: CaptureOptions) -> Traced:
    """Trace a program; `observed` and `seen` are the program and the findings of its warm-up run."""
    specialize = bool(options.specialize)
    return trace(observed, seen, specialize, options.partition, options.decompose, options.dynamic)


def _traced_in_full(
    program: CalledProgram, options: CaptureOptions, observed: ObservedProgram, seen: Findings
) -> EngineResult:
    """Return the capture of a program by a full trace; `observed` and `seen` are those of its warm-up run. With engine
    `auto`, raise HasCheckpoints for a program without values that uses checkpoints."""
    # With engine `auto`, this error lets `eager` be asked first, which records a checkpoint's recomputation too. A
    # reentrant checkpoint shows as `accumulates_gradients`: it runs a backward inside of the backward.
    if options.fake and options.engine == "auto" and (seen.checkpoints or observed.accumulates_gradients):
        raise HasCheckpoints(WITHOUT_CHECKPOINTS)
    with collector_paused():
        traced = _traced_by(observed, seen, options)
        joint = read_fx(observed, traced).joint
        assembled = assemble(joint)
    return EngineResult(
        program=observed,
        pairs=(assembled.pair,),
        outputs=tuple(name for name, role in traced.outputs if role == "output"),
        differentiable=traced.tangents,
        tree=traced.tree,
        leaves=traced.leaves,
        constants=assembled.constants,
        guards=(*assembled.guards, *traced.sizes.guards, *flag_guards(program, seen.flags)),
        opaque=tuple(dict.fromkeys(seen.opaque)),
        outcome=seen.outcome,
        unguarded=() if options.fake else describe_unchecked_reads(seen.reads_without_operator, traced.unforeseen),
        notes=(WITHOUT_CHECKPOINTS,) if seen.checkpoints else (),
        groups=joint.groups,
    )
