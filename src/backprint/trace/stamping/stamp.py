"""Stamp a deep model: trace it with four and with five of its equal layers, and continue the graphs to all of them.

Layers are equal if they have the same classes, tensors of the same shapes, and the same attributes, except for whole
numbers that count the layers. That makes stamping worth a try. Two traces then say how the graphs grow. They cannot say
that layer 57 is like layer 3, so the whole model runs too, once, without values, as a full trace would begin. Its log
of operators must be the log of the two shallow runs, continued. The graphs must have the inputs, outputs and gradients
of the whole model. If anything differs, or the program does something that a log does not show, it is traced in full,
and the capture says why.

Here "the whole" is the model with all its layers, and a run of layers is several equal ones that follow one another;
any other run is a run of the program. A plan says which runs of layers are reduced.

A Joint has the steps of the forward and of the backward before they are divided into two graphs. A ReadJoint is the
Joint of a trace. Findings are what a warm-up run showed: what the program reads, its opaque edges, its Outcome (its
results by name). CannotStamp is raised where a model must be traced in full, and its message says why.

A CalledProgram is a callable with the named tensors of one call; an ObservedProgram has the findings of a first run
too. CaptureOptions are the user's options of a capture. A Row is one operator of a log: a head, which must be equal in
all layers, and items that may grow.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.distributed import sharding_text
from backprint._torch.modules import BUFFERS, PARAMETERS, has_any_global_hook, own_modules
from backprint.common.collector import collector_paused
from backprint.errors import is_defect
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.fx.convert import tensor_spec
from backprint.graph.nouns import Port, TensorSpec, stamp_note
from backprint.trace.aot.from_fx import ReadJoint
from backprint.trace.assembly import Joint, assemble
from backprint.trace.non_operator_effects import flag_guards
from backprint.trace.partition import why_partition_needs_all_layers
from backprint.trace.program import CalledProgram, NamedTensor, ObservedProgram
from backprint.trace.reach import module_paths, roots
from backprint.trace.request import EngineResult
from backprint.trace.stamping.rows import CannotStamp, OperatorLog, Row, continue_joint, continue_rows
from backprint.trace.warm_up import Findings, warm_up
from backprint.values.wrappers import unwrap

# ---- Runs of equal layers

MIN_LAYERS = 12
"""The fewest layers that are stamped: with twelve, two traces with four and five take about as long as one of all."""


@dataclass(frozen=True, slots=True)
class _LayerRun:
    """Equal layers that follow one another in a list of modules: `count` of them, from index `start` of `holder` on.
    `place` is the path of `holder`. As text, it is the path, with the indices unless the layers are the whole list."""

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
    """The runs of layers to reduce, which all have one length; or the reason why there are none."""

    runs: tuple[_LayerRun, ...] = ()
    why: str = ""

    @property
    def depth(self) -> int:
        """How many layers each run has."""
        return self.runs[0].count


def _find_plan(target: Any) -> Plan:
    """Return the Plan with the runs of equal layers that a callable reaches. If the runs have several lengths, the Plan
    has the runs of that length which has the most layers in all. If there are none, or layers share an object, the Plan
    has the reason instead ('' if the model has no long list of layers)."""
    reasons: list[str] = []
    # `roots`: what a callable reaches directly: itself, its closure, the globals that it uses.
    modules = [(name, value) for name, value in roots(target) if isinstance(value, nn.Module)]
    runs_found = [run for name, module in modules for run in _find_runs(module, name, reasons)]
    if not runs_found:
        return Plan(why=reasons[0] if reasons else "")
    lengths = [run.count for run in runs_found]
    # Runs of one length are reduced together, so the length that saves the most layers is chosen.
    depth = max(lengths, key=lambda length: (length * lengths.count(length), length))
    runs = tuple(run for run in runs_found if run.count == depth)
    why = _find_shared_object(modules, runs)
    return Plan(why=why) if why else Plan(runs)


@contextlib.contextmanager
def _layers_reduced(plan: Plan, layers: int) -> Iterator[None]:
    """Leave this many layers of each run in the caller's own lists, and restore the lists at the end."""
    modules_before = [own_modules(run.holder) for run in plan.runs]
    try:
        for run, modules in zip(plan.runs, modules_before, strict=True):
            layers_kept = list(modules.values())
            del layers_kept[run.start + layers : run.start + run.count]
            # A new dict: the caller's own is restored as it was, whatever the program does to this one.
            run.holder.__dict__["_modules"] = {str(place): layer for place, layer in enumerate(layers_kept)}
        yield
    finally:
        for run, modules in zip(plan.runs, modules_before, strict=True):
            run.holder.__dict__["_modules"] = modules


# ---- Runs


def _find_runs(module: nn.Module, path: str, reasons: list[str]) -> Iterator[_LayerRun]:
    """Yield the outermost runs of equal layers in and below a module, whose path is `path`; append to `reasons` why a
    long list has none."""
    layers_of_run = range(0)
    children = [child for child in own_modules(module).values() if child is not None]
    is_numbered = list(own_modules(module)) == [str(place) for place in range(len(children))]
    if isinstance(module, (nn.ModuleList, nn.Sequential)) and is_numbered and len(children) >= MIN_LAYERS:
        layers_of_run, reason = _longest_run(children)
        if len(layers_of_run) >= MIN_LAYERS:
            yield _LayerRun(path, module, layers_of_run.start, len(layers_of_run))
        elif reason:
            reasons.append(f"{path}: {reason}")
    for place, (name, child) in enumerate(own_modules(module).items()):
        # The layers of a run are not searched: runs inside of them are reduced with them.
        if child is not None and (len(layers_of_run) < MIN_LAYERS or place not in layers_of_run):
            yield from _find_runs(child, f"{path}.{name}" if path else name, reasons)


def _longest_run(children: list[nn.Module]) -> tuple[range, str]:
    """Return the indices of the longest run of equal modules, and the first difference between two neighbours of one
    class ('' if there is none)."""
    best, start, first_difference = range(1), 0, ""
    for place in range(1, len(children)):
        # Neighbours are compared, so an attribute may count the layers.
        if difference := _module_difference(children[place - 1], children[place], compared={}):
            start = place
            if not first_difference and type(children[place - 1]) is type(children[place]):
                first_difference = f"layers {place - 1} and {place} differ: {difference}"
        if place + 1 - start > len(best):
            best = range(start, place + 1)
    return best, first_difference


def _find_shared_object(modules: list[tuple[str, nn.Module]], runs: tuple[_LayerRun, ...]) -> str:
    """Describe a tensor or module that belongs to two layers of these runs, or to a layer and the rest of the model,
    for a message; '' if there is none. `modules` are the modules that the program reaches directly, each after its
    name."""
    # The paths of the layers; and for each object, the layer that it is first found in, with the path there.
    layer_paths = {
        f"{run.place}.{place}".strip(".") for run in runs for place in range(run.start, run.start + run.count)
    }
    first_found: dict[int, tuple[str | None, str]] = {}
    for root, module in modules:
        objects = (
            *module.named_parameters(remove_duplicate=False),
            *module.named_buffers(remove_duplicate=False),
            *module.named_modules(remove_duplicate=False),
        )
        for name, tensor_or_module in objects:
            path = ".".join(part for part in (root, name) if part)
            # The layer that a name is in, or None for the rest of the model.
            layer = next((start for start in prefixes(path) if start in layer_paths), None)
            first_layer, first_path = first_found.setdefault(id(tensor_or_module), (layer, path))
            if first_layer != layer:
                return f"{first_path} and {path} are one"
    return ""


def prefixes(path: str) -> Iterator[str]:
    """Yield the beginnings of a path: `a`, `a.b`, `a.b.c` for `a.b.c`."""
    parts = path.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))


# ---- Differences between two layers


Compared = dict[tuple[int, int], tuple[Any, Any]]
"""Pairs of values that are being compared, by their two identities, because values may refer to each other. The values
are kept alive, so that no other value gets the identity of one."""

INTERNAL = frozenset(vars(nn.Module())) - {"training"}
"""The attributes of every module. They are not compared as attributes: tensors, hooks and modules are compared by kind,
and other state of torch's own is not."""

PLACEMENTS = "torch.distributed.tensor."
"""The package of the placements of sharded tensors, which `==` compares."""

HOOKS = tuple(name for name in INTERNAL if "hooks" in name and not name.endswith(("_with_kwargs", "_always_called")))
"""The attributes of a module in which hooks are."""

FORWARD_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
"""The hooks that run in the forward, such as the hooks of `parallelize_module`. Their operators are in the log."""

COMPARED_BY_EQUALITY = (
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


def _module_difference(left: nn.Module, right: nn.Module, compared: Compared) -> str:
    """Return how two modules differ, for a message; '' if they differ in nothing but whole numbers that are one
    apart. Modules with hooks other than FORWARD_HOOKS count as different."""
    if type(left) is not type(right):
        return f"a {type(left).__name__} and a {type(right).__name__}"
    for name in HOOKS:
        hooks, others = (list((getattr(module, name, None) or {}).values()) for module in (left, right))
        if name not in FORWARD_HOOKS and (hooks or others):
            return f"a {type(left).__name__} has hooks"
        if _value_difference(hooks, others, compared):
            return f"hooks of a {type(left).__name__}"
    for kind in (PARAMETERS, BUFFERS):
        if difference := _mapping_difference(
            _tensor_kinds(getattr(left, kind)), _tensor_kinds(getattr(right, kind)), compared
        ):
            return difference
    attributes, other_attributes = (
        {key: value for key, value in vars(module).items() if key not in INTERNAL} for module in (left, right)
    )
    return _mapping_difference(attributes, other_attributes, compared) or _mapping_difference(
        own_modules(left), own_modules(right), compared
    )


def _tensor_kinds(tensors: Mapping[str, Tensor | None]) -> dict[str, tuple[TensorSpec, str, bool] | None]:
    """Return for each tensor, by name, what `_tensor_kind` returns; None for an empty name."""
    return {name: None if tensor is None else _tensor_kind(tensor) for name, tensor in tensors.items()}


def _tensor_kind(tensor: Tensor) -> tuple[TensorSpec, str, bool]:
    """Return the spec of a tensor, its sharding ('' if it is no DTensor), and whether it requires grad."""
    return tensor_spec(unwrap(tensor)), sharding_text(tensor), tensor.requires_grad


def _mapping_difference(left: Mapping[Any, Any], right: Mapping[Any, Any], compared: Compared) -> str:
    """Return how two mappings differ, for a message; '' if they do not. The order of the keys counts."""
    if list(left) != list(right):
        return f"{', '.join(map(str, left))} and {', '.join(map(str, right))}"[:200]
    for key, value in left.items():
        if difference := _value_difference(value, right[key], compared):
            return f"{key}{'.' if isinstance(value, nn.Module) else ': '}{difference}"
    return ""


def _values_held_by(function: types.FunctionType) -> dict[str, Any]:
    """Return the values that a function holds beside its code: its defaults, and the variables of functions around
    it."""
    try:
        around = inspect.getclosurevars(function).nonlocals
    except ValueError:  # a variable that has no value yet: a new object, which equals no other function's
        around = {"variables": object()}
    return {"defaults": function.__defaults__, "options": function.__kwdefaults__, **around}


def _value_difference(left: Any, right: Any, compared: Compared) -> str:
    """Return how two values differ, for a message; '' if they do not. A whole number of `right` may be one more. Values
    of a type that cannot be compared count as different."""
    # A pair that is being compared is met again where values refer to each other: it decides nothing.
    if left is right or (id(left), id(right)) in compared:
        return ""
    if type(left) is not type(right):
        return f"{left!r:.60} and {right!r:.60}"
    compared[id(left), id(right)] = left, right
    same: bool | None = None  # None: not known yet how to compare
    match left:
        case nn.Module():
            return _module_difference(left, right, compared)
        case Tensor():
            same = _tensor_kind(left) == _tensor_kind(right)
        # A whole number that counts the layers, such as `layer_idx`.
        case int() if not isinstance(left, bool | enum.Enum):
            same = right in (left, left + 1)
        case float():
            # By text, in which NaN equals itself and -0.0 differs from 0.0.
            same = repr(left) == repr(right)
        case list() | tuple():
            return _mapping_difference(dict(enumerate(left)), dict(enumerate(right)), compared)
        case dict():
            return _mapping_difference(left, right, compared)
        case types.FunctionType():
            if left.__code__ is not right.__code__:
                return f"{left.__qualname__:.60} and {right.__qualname__:.60}"
            return _mapping_difference(_values_held_by(left), _values_held_by(right), compared)
        case types.MethodType():
            same = left.__func__ is right.__func__ and not _value_difference(left.__self__, right.__self__, compared)
        case functools.partial():
            return _value_difference(
                (left.func, left.args, left.keywords), (right.func, right.args, right.keywords), compared
            )
        case TensorSpec():
            same = left == right
    if same is None and (isinstance(left, COMPARED_BY_EQUALITY) or type(left).__module__.startswith(PLACEMENTS)):
        same = left == right
    if same is None and hasattr(left, "__dict__"):
        return _mapping_difference(vars(left), vars(right), compared)
    if same is None:
        return f"values of type {type(left).__name__} cannot be compared"
    return "" if same else f"{left!r:.60} and {right!r:.60}"


# ---- Two shallow traces, and a run of the whole

DEPTHS = (4, 5)
"""How many layers the two shallow traces have. The first and the last layer are often irregular, and two layers between
them in one trace would fit any linear growth: so the other trace has three between them."""

Trace = Callable[[ObservedProgram, Findings, CaptureOptions], ReadJoint]
"""Traces a program that has run, with the findings of its run."""


@dataclass(frozen=True, slots=True)
class _LoggedRun:
    """A warm-up run of a program: the observed program, the findings, and the log of its operators."""

    observed: ObservedProgram
    findings: Findings
    log: OperatorLog


@dataclass(frozen=True, slots=True)
class _StampAttempt:
    """The result of an attempt to stamp, or why there is none ('' if the model has no long list of layers). `run` is
    the run of the whole model, if the attempt got that far."""

    result: EngineResult | None = None
    why: str = ""
    run: _LoggedRun | None = None


def attempt_stamp(program: CalledProgram, options: CaptureOptions, trace: Trace) -> _StampAttempt:
    """Stamp a fake program, if that is sound, or return why not; `trace` traces a program with few layers."""
    plan = _find_plan(program.target())
    if not plan.runs:
        return _StampAttempt(why=plan.why)
    whole_run: _LoggedRun | None = None
    try:
        _refuse_call(program, options)
        with collector_paused():
            joint, log = _continue_joint_and_log(program, plan, options, trace)
            whole_run = _run_logged(program)
            _check_log_of_whole(whole_run, log)
            return _StampAttempt(_engine_result_of(program, whole_run, joint, plan), run=whole_run)
    except CannotStamp as error:
        return _StampAttempt(why=str(error), run=whole_run)


def _refuse_call(program: CalledProgram, options: CaptureOptions) -> None:
    """Raise CannotStamp if a request or a setting makes the graphs of a layer depend on the rest of the model."""
    why_needs_all_layers = why_partition_needs_all_layers(options.partition)  # '' if the partition does not
    # Each request by its name in the message, and whether it is made.
    for request, present in (
        ("dynamic sizes", options.dynamic),
        ("decompose=", options.decompose),
        ("order=2", program.tangents),
        ("gradient hooks", program.hooks),
        ("hooks of all modules", has_any_global_hook()),
        (why_needs_all_layers, why_needs_all_layers),
    ):
        if present:
            raise CannotStamp(f"{request}: a trace with few layers does not decide about the whole")


# ---- With few layers


def _continue_joint_and_log(
    program: CalledProgram, plan: Plan, options: CaptureOptions, trace: Trace
) -> tuple[Joint, list[Row]]:
    """Return the Joint and the log that the whole must have, continued from two shallow traces."""
    assert program.world is not None  # only fake captures are stamped
    known = _known_tensors(program)
    traced = [_trace_with_layers(program, plan, layers, known, options, trace) for layers in DEPTHS]
    [(shallow_run, shallow_joint), (deeper_run, deeper_joint)] = traced
    layers_more = plan.depth - DEPTHS[0]
    joint = continue_joint(shallow_joint, deeper_joint, layers_more, program.world.content_of)
    deeper_rows = deeper_run.log.rows
    rows = continue_rows(shallow_run.log.rows, deeper_rows, layers_more, "operators")
    return joint, [Row(deeper_rows[row.like].head, row.items) for row in rows]


def _trace_with_layers(
    program: CalledProgram, plan: Plan, layers: int, known: Known, options: CaptureOptions, trace: Trace
) -> tuple[_LoggedRun, ReadJoint]:
    """Return the run and the trace of a program with `layers` layers in each run of layers of the plan; `known` are the
    module's tensors in the whole. Raise CannotStamp if the program cannot be traced so, whatever the error is."""
    with _layers_reduced(plan, layers):
        try:
            run = _run_logged(_with_current_state(program, known))
            refuse_what_no_log_shows(run)
            return run, trace(run.observed, run.findings, options)
        except CannotStamp:
            raise
        # A refusal, or an error of the program's own, which may take the number of its layers for granted.
        except Exception as error:
            if is_defect(error):
                raise
            text = f"{type(error).__name__}: {error}"
            raise CannotStamp(f"with {layers} layers it cannot be traced: {text[:300]}") from error


Known = Mapping[int, NamedTensor]
"""The named tensors of a module, by the tensors' identity."""


def _known_tensors(program: CalledProgram) -> Known:
    """Return the NamedTensors of the module's own tensors, as they are in the whole."""
    by_name = {named.name: named for named in program.tensors}
    return {id(tensor): by_name[name] for name, tensor in program.wrapped_state().items()}


def _with_current_state(program: CalledProgram, known: Known) -> CalledProgram:
    """Return the program with the tensors that it has while its lists of layers are reduced; `known` are the module's
    tensors in the whole. A tensor may have another name now, because the layers after the removed ones have other
    indices."""
    current = program.wrapped_state()  # parameters and buffers by name, DTensors as they are
    state = [replace(known[id(tensor)], name=name) for name, tensor in current.items()]
    inputs = [named for named in program.tensors if named.role == "input"]
    name_in_whole = {name: known[id(tensor)].name for name, tensor in current.items()} | {
        named.name: named.name for named in inputs
    }
    # How each DTensor is made again around the tensor inside.
    wrappings = {
        name: program.wrappings[name_before]
        for name, name_before in name_in_whole.items()
        if name_before in program.wrappings
    }
    # `call_arguments` describes the call of the whole, which these few layers do not have.
    return replace(program, tensors=(*state, *inputs), call_arguments=None, wrappings=wrappings)


def _run_logged(program: CalledProgram) -> _LoggedRun:
    """Run a program once, and log its operators."""
    log = OperatorLog(module_paths(program.target()), program.world)
    observed, findings = warm_up(program, log)
    return _LoggedRun(observed, findings, log)


def refuse_what_no_log_shows(run: _LoggedRun) -> None:
    """Raise CannotStamp if a run of the program does anything that can change the graphs and that an OperatorLog does
    not show."""
    findings = run.findings
    edges = [edge.text for edge in findings.opaque if edge.kind in ("function", "hook")]
    reads = [reading.operator for reading in findings.readings if reading.inputs]
    checkpoints = findings.checkpoints or run.observed.accumulates_gradients
    # Each reason, and whether the run gives it.
    for reason, present in (
        (f"{edges[0]}, whose backward can be any code" if edges else "", edges),
        ("it runs a higher-order operator", run.log.ran_higher_order_operator),
        ("it checkpoints, and what the backward runs again can be any code", checkpoints),
        ("it uses the autograd graph (grad_fn), which can have hooks", findings.reads_grad_fn),
        (f"{reads[0]} reads values of an input" if reads else "", reads),
        ("it reads values unseen", findings.reads_without_operator),
        ("it draws from a generator that is not torch's", run.observed.foreign_random.pins()),
        ("it writes to parts of memory that its arguments share", run.observed.written_alias_groups),
        ("it writes to arguments that require grad", run.observed.cloned_when_traced),
    ):
        if present:
            raise CannotStamp(reason)


# ---- The whole


def _check_log_of_whole(whole: _LoggedRun, log: Sequence[Row]) -> None:
    """Raise CannotStamp unless the log of the whole is `log`, the continued log of the shallow runs."""
    refuse_what_no_log_shows(whole)
    rows = whole.log.rows
    # The first row that differs says more than the numbers of rows, which are compared after it.
    for place, (row, expected) in enumerate(zip(rows, log, strict=False)):
        if row != expected:
            raise CannotStamp(
                f"operator {place} of the whole is not as in a layer before: {_row_difference(row, expected)}"
            )
    if len(rows) != len(log):
        raise CannotStamp(f"the whole runs {len(rows)} operators, where {len(log)} were expected")


def _row_difference(row: Row, expected: Row) -> str:
    """Return how a row of the whole's log differs from the expected one, for a message."""
    here = f"{row.head[0]} at {row.items[-1]!r}" if row.items else str(row.head[0])
    pairs = zip((*row.head, *row.items), (*expected.head, *expected.items), strict=False)
    # Without a pair that differs, the one row is the beginning of the other.
    present, wanted = next(((x, y) for x, y in pairs if x != y), ("more", "less"))
    return f"{here} has {present!s:.80}, where {wanted!s:.80} was expected"


def _engine_result_of(program: CalledProgram, whole: _LoggedRun, joint: Joint, plan: Plan) -> EngineResult:
    """Return the engine's result for the continued Joint; raise CannotStamp if its graphs do not have the inputs,
    outputs and gradients that the run of the whole shows."""
    observed, findings = whole.observed, whole.findings
    outcome = findings.outcome
    # The graphs' ports must be those of the whole: names, roles and specs. `log.ready` are the program's own tensors.
    own_specs = {name: tensor_spec(tensor) for name, tensor in whole.log.ready.items()}
    # External tensors follow the program's own, and count as they are. `_check_ports` then compares how many there are.
    outside_specs = {
        name: port.spec for name, port in zip(observed.external_tensors, joint.inputs[len(own_specs) :], strict=False)
    }
    _check_ports("inputs", [(named.name, named.role) for named in observed.tensors], joint.inputs)
    for port in joint.inputs:
        if port.spec != {**outside_specs, **own_specs}[port.name]:
            raise CannotStamp(f"input {port.name} is {own_specs[port.name]}, where {port.spec} was expected")
    results = [(name, "output") for name in outcome.outputs] + [(name, "mutation") for name in outcome.mutations]
    _check_ports("results", results, [port for port, _ in joint.results])
    with_gradient = [(named.name, "gradient") for named in observed.tensors if named.requires_grad]
    _check_ports("gradients", with_gradient if joint.gradients else [], [port for port, _ in joint.gradients])
    # Further names of tensors that are passed more than once are those that the run of the whole found.
    joint = replace(joint, same={named.name: named.other_names for named in observed.tensors if named.other_names})
    assembled = assemble(joint)
    return EngineResult(
        program=observed,
        pairs=(assembled.pair,),
        outputs=tuple(outcome.outputs),
        differentiable=tuple(port.name for port in joint.tangents),
        tree=outcome.tree,
        leaves=outcome.leaves,
        constants=assembled.constants,
        guards=(*assembled.guards, *flag_guards(program, findings.flags)),
        opaque=tuple(dict.fromkeys(findings.opaque)),
        outcome=outcome,
        notes=(stamp_note(plan.depth, DEPTHS, plan.runs),),
        groups=joint.groups,
    )


def _check_ports(what: str, expected: Sequence[tuple[str, str]], ports: Sequence[Port]) -> None:
    """Raise CannotStamp unless ports have the expected names and roles, in this order; `what` names the ports in the
    error."""
    present = [(port.name, port.role) for port in ports]
    if present != list(expected):
        # The first that differs, or else the two numbers of ports.
        ours, wanted = next(
            ((x, y) for x, y in zip(present, expected, strict=False) if x != y), (len(present), len(expected))
        )
        raise CannotStamp(f"the {what} of the whole are not those of more such layers: {wanted}, not {ours}")
