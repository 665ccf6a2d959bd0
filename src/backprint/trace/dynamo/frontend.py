"""Run a program once under Dynamo, the front end of torch.compile: its graphs, in the order they ran, and its breaks.

Dynamo has a private region of its caches here, and everything that it kept of the run is removed, so that the user's
compiled code stays compiled. A dispatch mode that Dynamo tolerates sees operators outside the graphs. A mere read of a
value is noted; any other operator means that the graphs are not the whole program. Only plain texts are read of
Dynamo's descriptions of inputs and nodes (`source.name`, `stack_trace`, `nn_module_stack`).
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx.traceback as fx_traceback
from torch import Tensor, fx, nn

from backprint._torch import pytree
from backprint._torch.dynamo import (
    CompileContext,
    TracingContext,
    bytecode_noted,
    config,
    counts_restored,
    forget,
    graph_break_reasons,
    known_codes,
    optimize,
    private_region,
    unique_id,
    without_logs,
)
from backprint._torch.fake import FakeTensor
from backprint._torch.modes import TorchDispatchMode
from backprint._torch.operators import HigherOrderOperator, schema_of
from backprint._torch.tensors import storage_id
from backprint.errors import BackprintError, CaptureError, for_program, is_defect
from backprint.graph.nouns import Source
from backprint.trace import frames
from backprint.trace.custom import without_operator_bodies
from backprint.trace.watch import SILENT_WRITERS
from backprint.values.tree import copy_values

# ---- Names, roles, lines and module paths

NOT_IN_NAMES = ("_modules", "_parameters", "_buffers", "__closure__", "cell_contents", "__dict__", "__defaults__")
"""Parts of a source by which Python and torch reach a tensor, and which are not part of its name."""

_PART = re.compile(r"\['(?P<key>(?:[^'\\]|\\.)*)'\]|\[(?P<index>[^\]]+)\]|\.(?P<attribute>\w+)|(?P<root>[LG])(?=\[)")
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+")
_FRAME = re.compile(r'^ *File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)$', re.MULTILINE)


def _parts_of_source(source: str) -> list[str]:
    """Return the parts of `L['self']._modules['fc']._parameters['weight']`: `L self _modules fc _parameters weight`."""
    return [next(filter(None, match.groups()), "") for match in _PART.finditer(source)]


def name_of_source(source: str) -> str:
    """Return the program's own name of a tensor: `fc.weight` in the module itself, `model.fc.weight` elsewhere,
    `batch.x.0`."""
    root, *parts = _parts_of_source(source) or [""]
    parts = [part for part in parts if part not in NOT_IN_NAMES]
    if parts[:1] == ["self"] and len(parts) > 1:
        parts = parts[1:]
    name = ".".join(part.strip("_") or part for part in parts[:1]) + "".join(f".{part}" for part in parts[1:])
    return name or root or "input"


def role_of_source(source: str, value: Any) -> str:
    """Return a tensor's role: `parameter`, `buffer`, `input`, or `constant` if it comes from outside."""
    parts = _parts_of_source(source)
    if "_parameters" in parts or isinstance(value, nn.Parameter):
        return "parameter"
    if "_buffers" in parts:
        return "buffer"
    outside = parts[:1] == ["G"] or "__closure__" in parts or parts[1:2] == ["self"]
    return "constant" if outside else "input"


def source_of_placeholder(node: fx.Node) -> str:
    """Return Dynamo's source of a graph input, such as `L['x']`; the node's own name if there is none."""
    argument = node.meta.get("grapharg")
    source = getattr(argument, "source", None)
    return str(source.name) if source is not None else str(node.target)


def line_of(node: fx.Node) -> Source | None:
    """Return the user's line of a node of Dynamo's, with the module whose forward it is in."""
    trace, stack = node.meta.get("stack_trace"), node.meta.get("nn_module_stack")
    if trace:
        return _line(trace, module_of(node))
    place = frames.place_in_module(list(stack.values())[-1][1], node.target) if stack else None
    return frames.source(*place, module_of(node)) if place else None


def line_with_path(node: fx.Node, paths: Mapping[int, str]) -> Source | None:
    """Return the user's line of a node, with its module's path from `paths`, by identity."""
    stack = node.meta.get("nn_module_stack") or {}
    place = frames.place_in_trace(node.meta.get("stack_trace") or "")
    if place is None and stack:
        place = frames.place_in_module(list(stack.values())[-1][1], node.target)
    if place is None:
        return None
    file, line, function = place
    module = ""
    for key, (spelled, _) in stack.items():
        # Dynamo's keys are ids of modules; a module that is called again has `@` and a count after it.
        number = str(key).partition("@")[0]
        module = paths.get(int(number), module) if number.isdigit() else spelled
    return frames.source(file, line, function, module)


@functools.lru_cache(maxsize=65536)
def _line(trace: str, module: str) -> Source | None:
    rows = [(place["file"], int(place["line"]), place["function"]) for place in _FRAME.finditer(trace)]
    users = [row for row in rows if frames.is_users(row[0])]
    place = users[-1] if users else frames.place_in_library(rows) or next(iter(reversed(rows)), None)
    if place is None:
        return None
    file, line, function = place
    return frames.source(file, line, _function_name(function), module)


def _function_name(name: str) -> str:
    """Return a function's name, also for the rest of it after a graph break."""
    match = _RESUMED.fullmatch(name)
    return _function_name(match[1]) if match else name


def _qualified_name(name: str) -> str:
    """Return a qualified name without enclosing functions: `make.<locals>.Net.forward` is `Net.forward`."""
    return name.rpartition("<locals>.")[2].replace("<lambda>", "lambda")


def module_of(node: fx.Node) -> str:
    """Return the path of the innermost module of a node."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return ""
    path = str(stack[-1][0])
    root = path.partition("]")[0] + "]"
    inner = re.sub(r"\['?([^'\]]*)'?\]", r".\1", path.removeprefix(root)).strip(".")
    return inner if root == "L['self']" else name_of_source(root) + (f".{inner}" if inner else "")


def function_of(graph: fx.Graph) -> str:
    """Return the user's function that a graph of Dynamo's comes from: `Net.forward` while Dynamo compiles it."""
    now = TracingContext.get_traced_code() if TracingContext.try_get() else None
    if now:
        return (
            _function_name(now[0].co_name)
            if _RESUMED.fullmatch(now[0].co_name)
            else _qualified_name(now[0].co_qualname)
        )
    for node in graph.nodes:
        rows = list(_FRAME.finditer(node.meta.get("stack_trace") or ""))
        if rows:
            return _function_name(rows[0]["function"])
    return "graph"


# ---- Running a graph of Dynamo's node by node


def set_node_sources(module: fx.GraphModule, line: Callable[[fx.Node], Source | None]) -> None:
    """Set every node's line of the user's program where `frames` looks for it, in subgraphs too."""
    for node in module.graph.nodes:
        node.meta[frames.SOURCE_KEY] = line(node)
    for child in module.children():
        if isinstance(child, fx.GraphModule):
            set_node_sources(child, line)


class GraphRunner(fx.Interpreter):
    """Runs a graph whose nodes have lines (`set_node_sources`): operators that they run have these lines."""

    def results(self, *inputs: Any) -> Any:
        """Return the outputs of the graph."""
        with fx_traceback.preserve_node_meta():
            return self.run(*inputs)


# ---- Running a program under Dynamo


@dataclass(frozen=True, slots=True)
class OuterModes:
    """The modes that a graph runs under and does not contain: grad mode and autocast."""

    grad: bool
    autocast: tuple[tuple[str, torch.dtype], ...]

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Set the same modes for a block."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for device, dtype in self.autocast:
                stack.enter_context(torch.autocast(device, dtype))
            yield


def _current_modes() -> OuterModes:
    """Return the current modes."""
    on = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    return OuterModes(torch.is_grad_enabled(), tuple((device, torch.get_autocast_dtype(device)) for device in on))


@dataclass(slots=True, eq=False)
class GraphRun:
    """One run of one graph: its inputs (`values` are copies from before the run) and its outputs.

    `requires_grad_before` and `requires_grad_after` say which inputs require grad; `written` is memory that kernels
    change although their schema does not say so.
    """

    module: fx.GraphModule
    inputs: tuple[Any, ...]
    values: dict[int, Tensor]
    under: OuterModes
    requires_grad_before: tuple[bool, ...]
    outputs: tuple[Any, ...] = ()
    requires_grad_after: tuple[bool, ...] = ()
    written: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True, eq=False)
class ValueRead:
    """A value that the program read between graphs, after the first `after` of them."""

    tensor: Tensor
    after: int
    source: Source | None


@dataclass(slots=True, eq=False)
class DynamoRun:
    """The results of a run under Dynamo."""

    result: Any = None
    loss: Any = None
    ran: list[GraphRun] = field(default_factory=list)
    reads: list[ValueRead] = field(default_factory=list)
    breaks: tuple[str, ...] = ()


class _OutsideWatch(TorchDispatchMode):
    """Sees operators that run outside the graphs."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __init__(self, record: DynamoRun, paths: Mapping[int, str]) -> None:
        super().__init__()
        self.record, self.paths = record, paths
        self.inside = False
        self.refused: CaptureError | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = for_program(func, *args, **(kwargs or {}))
        if self.inside and not isinstance(func, HigherOrderOperator) and schema_of(func).name in SILENT_WRITERS:
            self.record.ran[-1].written |= _running_statistics_memory(func, args, kwargs or {})
        if self.inside or self.refused or _is_harmless(func, args, kwargs, result):
            return result
        source = frames.here(self.paths)
        if func is torch.ops.aten._local_scalar_dense.default:
            self.record.reads.append(ValueRead(args[0], len(self.record.ran), source))
            return result
        place = f" at {source.file}:{source.line} in {source.function}: {source.code!r}" if source else ""
        self.refused = CaptureError(
            f"{func} runs outside every graph that Dynamo makes{place}, so its graphs are not the whole program: "
            "let Dynamo trace that call, or use an engine that sees what runs"
        )
        raise self.refused


def _running_statistics_memory(func: Any, args: Any, kwargs: Any) -> set[int]:
    """Return the memory of a normalisation's running statistics."""
    names = [argument.name for argument in schema_of(func).arguments]
    arguments = dict(zip(names, args, strict=False)) | kwargs
    statistics = (arguments.get("running_mean"), arguments.get("running_var"))
    return {storage_id(tensor.untyped_storage()) for tensor in statistics if isinstance(tensor, Tensor)}


def _is_harmless(func: Any, args: Any, kwargs: Any, result: Any) -> bool:
    """Whether an operator outside the graphs is Dynamo's own, or only serves a print."""
    # Dynamo is compiling now.
    if CompileContext.try_get() is not None:
        return True
    # Shapes computed without values are Dynamo's too.
    leaves = pytree.tree_leaves((args, kwargs or {}, result))
    if any(isinstance(leaf, FakeTensor) or (isinstance(leaf, Tensor) and leaf.is_meta) for leaf in leaves):
        return True
    return frames.printing() and not isinstance(func, HigherOrderOperator) and not schema_of(func).is_mutable


def run_under_dynamo(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    loss: Callable[[Any], Any] | None,
    paths: Mapping[int, str],
) -> DynamoRun:
    """Run `target(*args, **kwargs)`, and a loss of its result, under Dynamo."""
    record = DynamoRun()
    outside = _OutsideWatch(record, paths)

    def backend(module: fx.GraphModule, examples: Any) -> Callable[..., Any]:
        def ran(*inputs: Any) -> Any:
            return run_graph_once(record, outside, module, inputs)

        return ran

    with without_operator_bodies(), _quiet_dynamo(backend), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dynamo's own; the warm-up run has shown the program's
        compiled = optimize(backend, dynamic=False, **private_region())
        breaks_before = len(graph_break_reasons)
        try:
            with outside:
                record.result = for_program(compiled(_plain_callable(target)), *args, **kwargs)
                if loss is not None:
                    record.loss = for_program(compiled(_plain_callable(loss)), record.result)
        except BackprintError:
            raise
        except Exception as error:
            if is_defect(error):
                raise
            first_line = str(error).strip().splitlines()[0][:300] if str(error).strip() else ""
            # Dynamo may have wrapped the mode's own error in another.
            raise outside.refused or CaptureError(
                f"the program runs, but not through Dynamo: {type(error).__name__}: {first_line}"
            ) from error
        record.breaks = tuple(map(_describe_graph_break, graph_break_reasons[breaks_before:]))
    # The program may have caught it.
    if outside.refused is not None:
        raise outside.refused
    return record


def _plain_callable(target: Callable[..., Any]) -> Callable[..., Any]:
    """Return a callable that Dynamo accepts: a module or a function itself, anything else wrapped in a function."""
    if isinstance(target, torch.nn.Module) or hasattr(target, "__code__"):
        return target
    return lambda *args, **kwargs: for_program(target, *args, **kwargs)


def run_graph_once(record: DynamoRun, outside: _OutsideWatch, module: fx.GraphModule, inputs: tuple[Any, ...]) -> Any:
    """Run one graph eagerly, and note its inputs and outputs."""
    was_inside, outside.inside = outside.inside, True
    try:
        tensors = {str(index): tensor for index, tensor in enumerate(inputs) if isinstance(tensor, Tensor)}
        values = {int(index): copied for index, copied in copy_values(tensors).items()}
        graph_run = GraphRun(module, inputs, values, _current_modes(), _requires_grad_flags(inputs))
        record.ran.append(graph_run)
        result = for_program(module, *inputs)
        graph_run.outputs = tuple(result)
        graph_run.requires_grad_after = _requires_grad_flags(inputs)
        return result
    finally:
        outside.inside = was_inside


def _requires_grad_flags(inputs: tuple[Any, ...]) -> tuple[bool, ...]:
    """Return which of these require grad."""
    return tuple(isinstance(value, Tensor) and value.requires_grad for value in inputs)


def _describe_graph_break(reason: Any) -> str:
    """Describe a graph break in one line: why, and where in the user's program."""
    reason_text = str(reason.reason).strip().splitlines()[0] if str(reason.reason).strip() else "a graph break"
    message = re.search(r"User-inserted graph break\. Message: (?!None)(.*)", str(reason.reason))
    reason_text = f"{reason_text}: {message[1]}" if message else reason_text
    stack = [frame for frame in reason.user_stack or () if frames.is_users(frame.filename)]
    if not stack:
        return reason_text
    last = stack[-1]
    where = frames.source(last.filename, last.lineno or 0, last.name, "")
    return f"{reason_text} at {where.file}:{where.line} in {where.function}: {where.code!r}"


# ---- Leaving Dynamo as it was

SETTINGS: Mapping[str, Any] = {
    # An error or a limit must not make Dynamo run a frame uncompiled: the graphs are to be the whole program.
    "suppress_errors": False,
    "recompile_limit": 2**20,
    "accumulated_recompile_limit": 2**20,
    "error_on_recompile": False,
    "fail_on_recompile_limit_hit": False,
    # Sizes and numbers are constants of the graphs, whatever the user's own settings are.
    "automatic_dynamic_shapes": False,
    "assume_static_by_default": True,
    "capture_scalar_outputs": False,
    "capture_dynamic_output_shape_ops": False,
    "specialize_float": True,
    "report_guard_failures": False,
    "reorderable_logging_functions": set(),
}


@contextlib.contextmanager
def _quiet_dynamo(backend: Callable[..., Any]) -> Iterator[None]:
    """Restore Dynamo's configuration, counters, logs and caches afterwards; entries made for `backend` are removed."""
    compiled_code: list[tuple[Any, Any]] = []
    known_before = known_codes()
    first_number, aliases = serial(unique_id("backprint")), _import_aliases()
    with without_logs(), counts_restored():
        try:
            with (
                bytecode_noted(lambda code, out: compiled_code.append((code, out))),
                config.patch({key: value for key, value in SETTINGS.items() if _has_setting(key)}),
            ):
                yield
        finally:
            forget(backend, compiled_code, known_before)
            _remove_names_left(first_number, aliases)


def _has_setting(name: str) -> bool:
    return hasattr(config, name)


def serial(name: str) -> int:
    """Return the number in a name that Dynamo made, or -1."""
    number = name.rpartition("_")[2]
    return int(number) if number.isdigit() else -1


def _import_aliases() -> dict[str, set[str]]:
    """Return the names that Dynamo has added to modules for its imports, by module."""
    scopes = {name: vars(module) for name, module in list(sys.modules.items()) if hasattr(module, "__dict__")}
    return {name: {key for key in list(scope) if key.startswith("__import_")} for name, scope in scopes.items()}


def _remove_names_left(first: int, aliases: Mapping[str, set[str]]) -> None:
    """Remove names that Dynamo has left in modules: new aliases, and names numbered from `first` on."""
    for name, now in _import_aliases().items():
        scope = vars(sys.modules[name])
        numbered = {key for key in list(scope) if key.startswith("__builtins_dict__") and serial(key) > first}
        for key in numbered | (now - aliases.get(name, set())):
            scope.pop(key, None)  # one scope may be under two names
