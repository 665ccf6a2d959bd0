"""Run a program once under Dynamo, torch.compile's front end: its graphs, in the order they ran, and its graph breaks.

Dynamo has a private region of its caches here, and everything that it kept of the run is removed, so that the user's
compiled code stays compiled. A dispatch mode that Dynamo tolerates sees operators outside the graphs: a mere read of a
value is noted, anything else means that the graphs are not the whole program.
"""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from backprint._torch import pytree
from backprint._torch.dynamo import (
    CompileContext,
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
from backprint.defects import for_program, is_defect
from backprint.errors import BackprintError, CaptureError
from backprint.graph.nouns import Source
from backprint.tracing import frames
from backprint.tracing.custom import closed
from backprint.tracing.facts import SILENT_WRITERS
from backprint.tree import copy_values


@dataclass(frozen=True, slots=True)
class Ambient:
    """The modes that a graph runs under and does not contain: grad mode and autocast."""

    grad: bool
    autocast: tuple[tuple[str, torch.dtype], ...]

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Set the same modes for a block."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for device, dtype in self.autocast:
                stack.enter_context(torch.autocast(device, dtype))
            yield


def ambient() -> Ambient:
    """Return the current modes."""
    on = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    return Ambient(torch.is_grad_enabled(), tuple((device, torch.get_autocast_dtype(device)) for device in on))


@dataclass(slots=True, eq=False)
class GraphRun:
    """One run of one graph: its inputs (`values` are copies from before the run) and its outputs.

    `asked` and `asking` say which inputs require grad, before and after; `written` is memory that kernels change
    although their schema does not say so.
    """

    module: fx.GraphModule
    inputs: tuple[Any, ...]
    values: dict[int, Tensor]
    under: Ambient
    asked: tuple[bool, ...]
    outputs: tuple[Any, ...] = ()
    asking: tuple[bool, ...] = ()
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


class Outside(TorchDispatchMode):
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
            self.record.ran[-1].written |= running(func, args, kwargs or {})
        if self.inside or self.refused or harmless(func, args, kwargs, result):
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


def running(func: Any, args: Any, kwargs: Any) -> set[int]:
    """Return the memory of a normalisation's running statistics."""
    names = [argument.name for argument in schema_of(func).arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    found = (given.get("running_mean"), given.get("running_var"))
    return {storage_id(tensor.untyped_storage()) for tensor in found if isinstance(tensor, Tensor)}


def harmless(func: Any, args: Any, kwargs: Any, result: Any) -> bool:
    """Whether an operator outside the graphs is Dynamo's own, or only serves a print."""
    if CompileContext.try_get() is not None:
        return True
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
    outside = Outside(record, paths)

    def backend(module: fx.GraphModule, examples: Any) -> Callable[..., Any]:
        def ran(*given: Any) -> Any:
            return ran_once(record, outside, module, given)

        return ran

    with closed(), quiet_dynamo(backend), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dynamo's own; the scouting run has shown the program's
        compiled = optimize(backend, dynamic=False, **private_region())
        before = len(graph_break_reasons)
        try:
            with outside:
                record.result = for_program(compiled(plain_callable(target)), *args, **kwargs)
                if loss is not None:
                    record.loss = for_program(compiled(plain_callable(loss)), record.result)
        except BackprintError:
            raise
        except Exception as error:
            if is_defect(error):
                raise
            said = str(error).strip().splitlines()[0][:300] if str(error).strip() else ""
            raise outside.refused or CaptureError(
                f"the program runs, but not through Dynamo: {type(error).__name__}: {said}"
            ) from error
        record.breaks = tuple(map(said_of, graph_break_reasons[before:]))
    if outside.refused is not None:
        raise outside.refused
    return record


def plain_callable(target: Callable[..., Any]) -> Callable[..., Any]:
    """Return a callable that Dynamo accepts: a module or a function itself, anything else wrapped in a function."""
    if isinstance(target, torch.nn.Module) or hasattr(target, "__code__"):
        return target
    return lambda *args, **kwargs: for_program(target, *args, **kwargs)


def ran_once(record: DynamoRun, outside: Outside, module: fx.GraphModule, given: tuple[Any, ...]) -> Any:
    """Run one graph eagerly, and note its inputs and outputs."""
    outer, outside.inside = outside.inside, True
    try:
        tensors = {str(index): each for index, each in enumerate(given) if isinstance(each, Tensor)}
        values = {int(index): copied for index, copied in copy_values(tensors).items()}
        ran = GraphRun(module, given, values, ambient(), asking(given))
        record.ran.append(ran)
        result = for_program(module, *given)
        ran.outputs = tuple(result)
        ran.asking = asking(given)
        return result
    finally:
        outside.inside = outer


def asking(given: tuple[Any, ...]) -> tuple[bool, ...]:
    """Return which of these require grad."""
    return tuple(isinstance(each, Tensor) and each.requires_grad for each in given)


def said_of(reason: Any) -> str:
    """Describe a graph break in one line: why, and where in the user's program."""
    why = str(reason.reason).strip().splitlines()[0] if str(reason.reason).strip() else "a graph break"
    message = re.search(r"User-inserted graph break\. Message: (?!None)(.*)", str(reason.reason))
    why = f"{why}: {message[1]}" if message else why
    stack = [frame for frame in reason.user_stack or () if frames.is_users(frame.filename)]
    if not stack:
        return why
    last = stack[-1]
    where = frames.source(last.filename, last.lineno or 0, last.name, "")
    return f"{why} at {where.file}:{where.line} in {where.function}: {where.code!r}"


# ------------------------------------------------------------------ leaving Dynamo as it was

SETTINGS: Mapping[str, Any] = {
    "suppress_errors": False,
    "recompile_limit": 2**20,
    "accumulated_recompile_limit": 2**20,
    "error_on_recompile": False,
    "fail_on_recompile_limit_hit": False,
    "automatic_dynamic_shapes": False,
    "assume_static_by_default": True,
    "capture_scalar_outputs": False,
    "capture_dynamic_output_shape_ops": False,
    "specialize_float": True,
    "report_guard_failures": False,
    "reorderable_logging_functions": set(),
}


@contextlib.contextmanager
def quiet_dynamo(backend: Callable[..., Any]) -> Iterator[None]:
    """Restore Dynamo's configuration, counters, logs and caches afterwards; entries made for `backend` are removed."""
    made: list[tuple[Any, Any]] = []
    known = known_codes()
    first, aliases = serial(unique_id("backprint")), import_aliases()
    with without_logs(), counts_restored():
        try:
            with (
                bytecode_noted(lambda code, out: made.append((code, out))),
                config.patch({key: value for key, value in SETTINGS.items() if has_setting(key)}),
            ):
                yield
        finally:
            forget(backend, made, known)
            tidy(first, aliases)


def has_setting(name: str) -> bool:
    return hasattr(config, name)


def serial(name: str) -> int:
    """Return the number in a name that Dynamo made, or -1."""
    number = name.rpartition("_")[2]
    return int(number) if number.isdigit() else -1


def import_aliases() -> dict[str, set[str]]:
    """Return the names that Dynamo has added to modules for its imports, by module."""
    scopes = {name: vars(module) for name, module in list(sys.modules.items()) if hasattr(module, "__dict__")}
    return {name: {key for key in list(scope) if key.startswith("__import_")} for name, scope in scopes.items()}


def tidy(first: int, aliases: Mapping[str, set[str]]) -> None:
    """Remove names that Dynamo has left in modules: new aliases, and names numbered from `first` on."""
    for name, now in import_aliases().items():
        scope = vars(sys.modules[name])
        numbered = {key for key in list(scope) if key.startswith("__builtins_dict__") and serial(key) > first}
        for key in numbered | (now - aliases.get(name, set())):
            scope.pop(key, None)  # one scope may be under two names
