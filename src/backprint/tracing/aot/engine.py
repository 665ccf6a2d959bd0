"""Engine `aot`: AOTAutograd's joint graph of a program, partitioned, as a Pair."""

from __future__ import annotations

import contextlib

from backprint import settings
from backprint.tracing.aot.from_fx import read_fx
from backprint.tracing.aot.trace import trace
from backprint.tracing.assembly import assemble
from backprint.tracing.made import Made, Options
from backprint.tracing.program import CalledProgram
from backprint.tracing.refusals import unheld
from backprint.tracing.scout import scout
from backprint.tracing.unseen import flag_guards


def by_aot(program: CalledProgram, options: Options) -> Made:
    """Capture a program by engine `aot`."""
    with settings.uncollected() if options.fake else contextlib.nullcontext():
        scouted, seen = scout(program)
    specialise = bool(options.specialise)
    with settings.uncollected():
        traced = trace(scouted, seen, specialise, options.partition, options.decompose, options.dynamic)
        assembled = assemble(read_fx(scouted, traced).joint)
    return Made(
        program=scouted,
        pairs=(assembled.pair,),
        outputs=tuple(name for name, role in traced.outputs if role == "output"),
        differentiable=traced.tangents,
        tree=traced.tree,
        leaves=traced.leaves,
        constants=assembled.constants,
        guards=(*assembled.guards, *traced.sizes.guards, *flag_guards(program, seen.flags)),
        opaque=tuple(dict.fromkeys(seen.opaque)),
        outcome=seen.outcome,
        unheld=() if options.fake else unheld(seen.unseen, traced.unforeseen),
    )
