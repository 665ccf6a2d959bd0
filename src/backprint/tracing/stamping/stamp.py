"""Find the lists of equal layers in a module: the same classes, tensors of the same shapes, and the same attributes,
except for whole numbers that count the layers.

Equal layers are only worth a try: whether their number is all that matters is decided by traces and by a run.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.modules import BUFFERS, PARAMETERS, has_any_global_hook, own_modules
from backprint.common.collector import collector_paused
from backprint.errors import is_defect
from backprint.fx.convert import tensor_spec
from backprint.graph.nouns import Port, TensorSpec, stamp_note
from backprint.tracing.aot.from_fx import ReadJoint
from backprint.tracing.assembly import Joint, assemble
from backprint.tracing.cut import why_partition_needs_all_layers
from backprint.tracing.non_operator_effects import flag_guards
from backprint.tracing.program import CalledProgram, NamedTensor, ScoutedProgram
from backprint.tracing.reach import roots
from backprint.tracing.request import EngineResult, Options
from backprint.tracing.scout import Findings, scout
from backprint.tracing.stamping.rows import CannotStamp, LoggedWatch, Row, grown, stamped_joint

LEAST = 12
"""The fewest layers that are worth two traces with four and five: with twelve, both ways take about as long."""


@dataclass(frozen=True, slots=True)
class LayerRun:
    """Equal layers that follow one another in a list of modules."""

    place: str
    holder: nn.Module
    start: int
    count: int

    def __str__(self) -> str:
        end = self.start + self.count
        whole = end == len(own_modules(self.holder)) == self.count
        return self.place if whole else f"{self.place}[{self.start}:{end}]"


@dataclass(frozen=True, slots=True)
class Plan:
    """The runs of layers to cut, which all have one length; none, and why."""

    runs: tuple[LayerRun, ...] = ()
    why: str = ""

    @property
    def depth(self) -> int:
        """How many layers each run has."""
        return self.runs[0].count


def plan_of(target: Any) -> Plan:
    """Return the runs of equal layers that a callable reaches; of several lengths, those with the most layers."""
    found: list[LayerRun] = []
    whys: list[str] = []
    modules = [(name, value) for name, value in roots(target) if isinstance(value, nn.Module)]
    for name, module in modules:
        for run in runs_in(module, name, whys):
            found.append(run)
    if not found:
        return Plan(why=whys[0] if whys else "")
    lengths = [run.count for run in found]
    depth = max(lengths, key=lambda length: (length * lengths.count(length), length))
    runs = tuple(run for run in found if run.count == depth)
    why = shared_by(modules, runs)
    return Plan(why=why) if why else Plan(runs)


@contextlib.contextmanager
def cut_to(plan: Plan, layers: int) -> Iterator[None]:
    """Leave this many layers of each run in the caller's own lists, and put all back at the end."""
    before = [own_modules(run.holder) for run in plan.runs]
    try:
        for run, all_of in zip(plan.runs, before, strict=True):
            kept = list(all_of.values())
            del kept[run.start + layers : run.start + run.count]
            run.holder.__dict__["_modules"] = {str(place): layer for place, layer in enumerate(kept)}
        yield
    finally:
        for run, all_of in zip(plan.runs, before, strict=True):
            run.holder.__dict__["_modules"] = all_of


# ---- Runs


def runs_in(module: nn.Module, path: str, whys: list[str]) -> Iterator[LayerRun]:
    """Yield the outermost runs below a module; `whys` gets why a long list has none."""
    inside = range(0)
    children = [child for child in own_modules(module).values() if child is not None]
    numbered = list(own_modules(module)) == [str(place) for place in range(len(children))]
    if isinstance(module, (nn.ModuleList, nn.Sequential)) and numbered and len(children) >= LEAST:
        inside, why = longest_run(children)
        if len(inside) >= LEAST:
            yield LayerRun(path, module, inside.start, len(inside))
        elif why:
            whys.append(f"{path}: {why}")
    for place, (name, child) in enumerate(own_modules(module).items()):
        if child is not None and (len(inside) < LEAST or place not in inside):
            yield from runs_in(child, f"{path}.{name}" if path else name, whys)


def longest_run(children: list[nn.Module]) -> tuple[range, str]:
    """Return the longest run of equal modules, and the first difference between two of one class."""
    best, start, why = range(1), 0, ""
    for place in range(1, len(children)):
        if said := unlike(children[place - 1], children[place], set()):
            start = place
            if not why and type(children[place - 1]) is type(children[place]):
                why = f"layers {place - 1} and {place} differ: {said}"
        if place + 1 - start > len(best):
            best = range(start, place + 1)
    return best, why


def shared_by(modules: list[tuple[str, nn.Module]], runs: tuple[LayerRun, ...]) -> str:
    """Say which tensor or module belongs to two layers, or to a layer and the rest; '' if none."""
    homes = {f"{run.place}.{place}".strip(".") for run in runs for place in range(run.start, run.start + run.count)}
    owner: dict[int, tuple[str | None, str]] = {}
    for root, module in modules:
        every = (
            *module.named_parameters(remove_duplicate=False),
            *module.named_buffers(remove_duplicate=False),
            *module.named_modules(remove_duplicate=False),
        )
        for name, each in every:
            path = ".".join(part for part in (root, name) if part)
            home = next((start for start in prefixes(path) if start in homes), None)
            before, first = owner.setdefault(id(each), (home, path))
            if before != home:
                return f"{first} and {path} are one"
    return ""


def prefixes(path: str) -> Iterator[str]:
    """Yield the beginnings of a path."""
    parts = path.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))


# ---- Whether two layers are equal


Met = set[tuple[int, int]]
"""The values that are being compared, by identity: they may refer to each other."""

INTERNAL = frozenset(vars(nn.Module())) - {"training"}
"""The attributes of every module that are compared otherwise."""

HOOKS = tuple(name for name in INTERNAL if "hooks" in name and not name.endswith(("_with_kwargs", "_always_called")))
"""The attributes of a module in which hooks are."""

PLAIN = (
    bool,
    str,
    bytes,
    complex,
    type(None),
    type,
    enum.Enum,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    frozenset,
    set,
    range,
    types.ModuleType,
    types.BuiltinFunctionType,
)
"""Types of values that `==` compares."""


def unlike(left: nn.Module, right: nn.Module, met: Met) -> str:
    """Say in what two modules differ; '' if in nothing but an index."""
    if type(left) is not type(right):
        return f"a {type(left).__name__} and a {type(right).__name__}"
    for name in HOOKS:
        if getattr(left, name, None) or getattr(right, name, None):
            return f"a {type(left).__name__} has hooks"
    for kind in (PARAMETERS, BUFFERS):
        if said := unlike_items(tensor_kinds(getattr(left, kind)), tensor_kinds(getattr(right, kind)), met):
            return said
    ours, theirs = ({key: value for key, value in vars(each).items() if key not in INTERNAL} for each in (left, right))
    return unlike_items(ours, theirs, met) or unlike_items(own_modules(left), own_modules(right), met)


def tensor_kinds(tensors: Mapping[str, Tensor | None]) -> dict[str, tuple[TensorSpec, bool] | None]:
    """Return what is compared of tensors."""
    return {
        name: None if tensor is None else (tensor_spec(tensor), tensor.requires_grad)
        for name, tensor in tensors.items()
    }


def unlike_items(left: Mapping[Any, Any], right: Mapping[Any, Any], met: Met) -> str:
    """Say in what two mappings differ; '' if in nothing."""
    if list(left) != list(right):
        return f"{', '.join(map(str, left))} and {', '.join(map(str, right))}"[:200]
    for key, value in left.items():
        if said := unlike_values(value, right[key], met):
            return f"{key}{'.' if isinstance(value, nn.Module) else ': '}{said}"
    return ""


def unlike_values(left: Any, right: Any, met: Met) -> str:
    """Say in what two values differ; '' if in nothing."""
    if left is right or (id(left), id(right)) in met:
        return ""
    if type(left) is not type(right):
        return f"{left!r:.60} and {right!r:.60}"
    met.add((id(left), id(right)))
    same: bool | None = None
    match left:
        case nn.Module():
            return unlike(left, right, met)
        case Tensor():
            same = (tensor_spec(left), left.requires_grad) == (tensor_spec(right), right.requires_grad)
        case int() if not isinstance(left, bool | enum.Enum):
            same = right in (left, left + 1)
        case float():
            same = repr(left) == repr(right)
        case list() | tuple():
            return unlike_items(dict(enumerate(left)), dict(enumerate(right)), met)
        case dict():
            return unlike_items(left, right, met)
        case types.MethodType():
            same = left.__func__ is right.__func__ and not unlike_values(left.__self__, right.__self__, met)
        case functools.partial():
            return unlike_values((left.func, left.args, left.keywords), (right.func, right.args, right.keywords), met)
        case TensorSpec():
            same = left == right
    if same is None and isinstance(left, PLAIN):
        same = left == right
    if same is None and hasattr(left, "__dict__") and not isinstance(left, types.FunctionType):
        return unlike_items(vars(left), vars(right), met)
    if same is None:
        return f"values of type {type(left).__name__} cannot be compared"
    return "" if same else f"{left!r:.60} and {right!r:.60}"


# ---- Two shallow traces, and a run of the whole

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

    made: EngineResult | None = None
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
    whole = why_partition_needs_all_layers(options.partition)
    for said, found in (
        ("dynamic sizes", options.dynamic),
        ("decompose=", options.decompose),
        ("order=2", program.tangents),
        ("gradient hooks", program.hooks),
        ("hooks of all modules", has_any_global_hook()),
        (whole, whole),
    ):
        if found:
            raise CannotStamp(f"{said}: a trace with few layers does not decide about the whole")


# ---- With few layers


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
        ("it reads values unseen", found.reads_without_operator),
        ("it draws from a generator that is not torch's", run.scouted.foreign_random.pins()),
        ("it writes to parts of memory that its arguments share", run.scouted.assembled),
        ("it writes to arguments that require grad", run.scouted.shields),
    ):
        if odd:
            raise CannotStamp(said)


# ---- The whole


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


def made_of(program: CalledProgram, whole: LoggedRun, joint: Joint, plan: Plan) -> EngineResult:
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
    return EngineResult(
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
