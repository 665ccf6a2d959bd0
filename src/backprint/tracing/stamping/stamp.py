"""Stamp a deep model: trace it with four and with five of its equal layers, and continue the graphs to all of them.

Two traces say how the graphs grow. They cannot say that layer 57 is like layer 3, so the whole runs too, once, without
values, as a full trace would begin: its log must be that of the two shallow runs, continued. The inputs, outputs and
gradients of the graphs must be those of the whole. Where anything differs, or the program does what a log does not
show, it is traced in full, and the capture says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from backprint._torch.modules import has_any_global_hook
from backprint.collector import collector_paused
from backprint.defects import is_defect
from backprint.fx.convert import tensor_spec
from backprint.graph.nouns import Port
from backprint.graph.stamps import stamp_note
from backprint.tracing.aot.from_fx import ReadJoint
from backprint.tracing.assembly import Joint, assemble
from backprint.tracing.cut import looks_at_the_whole
from backprint.tracing.made import Made, Options
from backprint.tracing.program import CalledProgram, NamedTensor, ScoutedProgram
from backprint.tracing.scout import Findings, scout
from backprint.tracing.stamping.extend import CannotStamp, Row, grown
from backprint.tracing.stamping.joints import stamped_joint
from backprint.tracing.stamping.log import LoggedWatch
from backprint.tracing.stamping.plan import Plan, cut_to, plan_of
from backprint.tracing.unseen import flag_guards

DEPTHS = (4, 5)
"""How many layers the two traces have: the first and the last are irregular, and two between them decide nothing."""

Trace = Callable[[ScoutedProgram, Findings, Options], ReadJoint]
"""Traces a program that has run."""


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """A run of a program, and its log."""

    scouted: ScoutedProgram
    found: Findings
    watch: LoggedWatch


@dataclass(frozen=True, slots=True)
class StampAttempt:
    """What became of an attempt: the result, or why there is none. `run` is that of the whole, if it was reached."""

    made: Made | None = None
    why: str = ""
    run: LoggedRun | None = None


def attempt_stamp(program: CalledProgram, options: Options, trace: Trace) -> StampAttempt:
    """Stamp a program, if that is sound."""
    plan = plan_of(program.target())
    if not plan.runs:
        return StampAttempt(why=plan.why)
    whole: LoggedRun | None = None
    try:
        refuse_call(program, options)
        with collector_paused():
            joint, log = continued(program, plan, options, trace)
            whole = logged(program)
            hold_against(whole, log)
            return StampAttempt(made_of(program, whole, joint, plan), run=whole)
    except CannotStamp as error:
        return StampAttempt(why=str(error), run=whole)


def refuse_call(program: CalledProgram, options: Options) -> None:
    """Raise if a request or a setting lets a trace depend on the whole."""
    whole = looks_at_the_whole(options.partition)
    for said, found in (
        ("dynamic sizes", options.dynamic), ("decompose=", options.decompose), ("order=2", program.tangents),
        ("gradient hooks", program.hooks),
        ("hooks of all modules", has_any_global_hook()),
        (whole, whole),
    ):  # fmt: skip
        if found:
            raise CannotStamp(f"{said}: a trace with few layers does not decide about the whole")


# ------------------------------------------------------------------ with few layers


def continued(program: CalledProgram, plan: Plan, options: Options, trace: Trace) -> tuple[Joint, list[Row]]:
    """Return the Joint of the whole, and its log, as two shallow traces have them."""
    assert program.world is not None  # it is captured without values
    known = known_tensors(program)
    made = [traced_at(program, plan, layers, known, options, trace) for layers in DEPTHS]
    [(first, left), (second, right)] = made
    more = plan.depth - DEPTHS[0]
    joint = stamped_joint(left, right, more, program.world.content_of)
    rows = grown(first.watch.rows, second.watch.rows, more, "operators")
    return joint, [Row(second.watch.rows[row.like].head, row.items) for row in rows]


def traced_at(
    program: CalledProgram, plan: Plan, layers: int, known: Known, options: Options, trace: Trace
) -> tuple[LoggedRun, ReadJoint]:
    """Return the run and the trace of a program with few layers."""
    with cut_to(plan, layers):
        try:
            run = logged(shallow(program, known))
            refuse_run(run)
            return run, trace(run.scouted, run.found, options)
        except CannotStamp:
            raise
        except Exception as error:  # a refusal, or the program's own, which takes the number of its layers for granted
            if is_defect(error):
                raise
            said = f"{type(error).__name__}: {error}"
            raise CannotStamp(f"with {layers} layers it cannot be traced: {said[:300]}") from error


Known = Mapping[int, NamedTensor]
"""The tensors of a module, by identity."""


def known_tensors(program: CalledProgram) -> Known:
    """Return the module's own tensors."""
    named = {each.name: each for each in program.tensors}
    return {id(tensor): named[name] for name, tensor in program.state().items()}


def shallow(program: CalledProgram, known: Known) -> CalledProgram:
    """Return the program as it is while its lists are cut."""
    state = [replace(known[id(tensor)], name=name) for name, tensor in program.state().items()]
    inputs = [named for named in program.tensors if named.role == "input"]
    return replace(program, tensors=(*state, *inputs), given=None)


def logged(program: CalledProgram) -> LoggedRun:
    """Run a program once, with a log."""
    watches: list[LoggedWatch] = []

    def kind(*given: Any) -> LoggedWatch:
        watches.append(LoggedWatch(*given))
        return watches[-1]

    scouted, found = scout(program, kind)
    return LoggedRun(scouted, found, watches[-1])


def refuse_run(run: LoggedRun) -> None:
    """Raise if a run does what its log does not show."""
    seen, found = run.watch.seen, run.found
    edges = [edge.text for edge in found.opaque if edge.kind in ("function", "hook")]
    reads = [reading.operator for reading in found.readings if reading.inputs]
    for said, odd in (
        (f"{edges[0]}, whose backward can be any code" if edges else "", edges),
        ("it runs a higher-order operator", run.watch.opened),
        ("it checkpoints, and what the backward runs again can be any code", seen.checkpoints or seen.reentrant),
        ("it uses the autograd graph (grad_fn), which can have hooks", seen.nodes),
        (f"{reads[0]} reads values of an input" if reads else "", reads),
        ("it reads values unseen", found.unseen),
        ("it draws from a generator that is not torch's", run.scouted.chance.pins()),
        ("it writes to parts of memory that its arguments share", run.scouted.assembled),
        ("it writes to arguments that require grad", run.scouted.shields),
    ):
        if odd:
            raise CannotStamp(said)


# ------------------------------------------------------------------ the whole


def hold_against(whole: LoggedRun, log: Sequence[Row]) -> None:
    """Raise unless the log of the whole is the one that the shallow runs have, continued."""
    refuse_run(whole)
    rows = whole.watch.rows
    for place, (row, wanted) in enumerate(zip(rows, log, strict=False)):
        if row != wanted:
            raise CannotStamp(
                f"operator {place} of the whole is not as in a layer before: {row_difference(row, wanted)}"
            )
    if len(rows) != len(log):
        raise CannotStamp(f"the whole runs {len(rows)} operators, where {len(log)} were expected")


def row_difference(row: Row, wanted: Row) -> str:
    """Say in what two rows of a log differ."""
    here = f"{row.head[0]} at {row.items[-1]!r}" if row.items else str(row.head[0])
    pairs = zip((*row.head, *row.items), (*wanted.head, *wanted.items), strict=False)
    first = next(((x, y) for x, y in pairs if x != y), ("more", "less"))
    return f"{here} has {first[0]!s:.80}, where {first[1]!s:.80} was expected"


def made_of(program: CalledProgram, whole: LoggedRun, joint: Joint, plan: Plan) -> Made:
    """Return the result of an engine; its graphs must have the inputs, outputs and gradients of the whole."""
    scouted, found = whole.scouted, whole.found
    outcome = found.outcome
    held = {name: tensor_spec(tensor) for name, tensor in whole.watch.ready.items()}
    outside = {name: port.spec for name, port in zip(scouted.outside, joint.inputs[len(held) :], strict=False)}
    expect("inputs", [(named.name, named.role) for named in scouted.tensors], joint.inputs)
    for port in joint.inputs:
        if port.spec != {**outside, **held}[port.name]:
            raise CannotStamp(f"input {port.name} is {held[port.name]}, where {port.spec} was expected")
    results = [(name, "output") for name in outcome.outputs] + [(name, "mutation") for name in outcome.mutations]
    expect("results", results, [port for port, _ in joint.results])
    asking = [(named.name, "gradient") for named in scouted.tensors if named.requires_grad]
    expect("gradients", asking if joint.gradients else [], [port for port, _ in joint.gradients])
    joint = replace(joint, same={named.name: named.same for named in scouted.tensors if named.same})
    assembled = assemble(joint)
    return Made(
        program=scouted,
        pairs=(assembled.pair,),
        outputs=tuple(outcome.outputs),
        differentiable=tuple(port.name for port in joint.tangents),
        tree=outcome.tree,
        leaves=outcome.leaves,
        constants=assembled.constants,
        guards=(*assembled.guards, *flag_guards(program, found.flags)),
        opaque=tuple(dict.fromkeys(found.opaque)),
        outcome=outcome,
        notes=(stamp_note(plan.depth, DEPTHS, plan.runs),),
    )


def expect(what: str, wanted: Sequence[tuple[str, str]], ports: Sequence[Port]) -> None:
    """Raise unless ports have these names and roles."""
    found = [(port.name, port.role) for port in ports]
    if found != list(wanted):
        odd = next(((x, y) for x, y in zip(found, wanted, strict=False) if x != y), (len(found), len(wanted)))
        raise CannotStamp(f"the {what} of the whole are not those of more such layers: {odd[1]}, not {odd[0]}")
