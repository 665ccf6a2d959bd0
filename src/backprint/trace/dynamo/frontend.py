"""Run a program once under Dynamo, the front end of torch.compile: its graphs, in the order they ran, and its breaks.

Dynamo has a private region of its caches here, and everything that it kept of the run is removed, so that the user's
compiled code stays compiled. A dispatch mode that Dynamo tolerates sees operators outside the graphs. A mere read of a
number (`.item()`) is noted; any other operator means that the graphs are not the whole program.

A graph break is where Dynamo ends a graph and runs Python itself before the next graph.

`paths` has the path of each module by its identity, and `frames.here(paths)` returns the user's line that runs now.
`for_program(f, ...)` calls f, whose errors are the program's and no defects of Backprint. A GraphRun is one run of a
graph: the graph, its inputs and its outputs.
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
from backprint.errors import BackprintError, CaptureError, for_program, is_defect
from backprint.graph.nouns import Source
from backprint.trace import frames
from backprint.trace.custom import without_operator_bodies
from backprint.trace.dynamo.graphs import GraphRun, collect, requires_grad_flags

# ---- Running a program under Dynamo


@dataclass(frozen=True, slots=True, eq=False)
class NumberRead:
    """A number that the program read between graphs: the tensor that it was in, and the line."""

    tensor: Tensor
    source: Source | None


@dataclass(slots=True, eq=False)
class DynamoRun:
    """The results of a run under Dynamo: the program's result, and the loss of it (None without a loss function).
    `events` has runs of graphs and reads of numbers, in order; `breaks` describes the graph breaks."""

    result: Any = None
    loss: Any = None
    events: list[GraphRun | NumberRead] = field(default_factory=list)
    breaks: tuple[str, ...] = ()


class _OutsideWatch(TorchDispatchMode):
    """Sees operators that run outside the graphs: notes reads of numbers, and refuses others.

    `inside` is true while a graph runs, and `refused` has the error that was raised.
    """

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Tell torch that Dynamo may compile although this mode is on."""
        return True

    def __init__(self, record: DynamoRun, paths: Mapping[int, str]) -> None:
        super().__init__()
        self.record, self.paths = record, paths
        self.inside = False
        self.refused: CaptureError | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator. Outside of the graphs, note a read of a number, and refuse any other operator of the
        program."""
        result = for_program(func, *args, **(kwargs or {}))
        # A program that has caught the refusal goes on to its end.
        if self.inside or self.refused or _is_harmless(func, args, kwargs, result):
            return result
        source = frames.here(self.paths)
        if func is torch.ops.aten._local_scalar_dense.default:
            self.record.events.append(NumberRead(args[0], source))
            return result
        self.refused = CaptureError(
            f"{func} runs outside every graph that Dynamo makes{frames.place(source)}, so its graphs are not the whole "
            "program: let Dynamo trace that call, or use an engine that sees what runs"
        )
        raise self.refused


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
    stays: Callable[[Tensor], bool],
) -> DynamoRun:
    """Run `target(*args, **kwargs)`, and a loss of its result (None: no loss), under Dynamo. Tensors of which `stays`
    returns true keep their values in the run, and are not copied. Raise a CaptureError if an operator runs outside of
    all graphs, or if the program does not run through Dynamo."""
    record = DynamoRun()
    outside = _OutsideWatch(record, paths)

    def backend(module: fx.GraphModule, examples: Any) -> Callable[..., Any]:
        """Return the function that Dynamo runs in the place of a graph."""

        def run_graph(*inputs: Any) -> Any:
            return run_graph_once(outside, module, inputs, stays)

        return run_graph

    # Custom operators run as one call here: Dynamo traces them so.
    with without_operator_bodies(), _quiet_dynamo(backend), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dynamo's own; the warm-up run has shown the program's
        compiled = optimize(backend, dynamic=False, **private_region())  # `torch._dynamo.optimize`
        breaks_before = len(graph_break_reasons)  # Dynamo's list of all graph breaks in this process
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
    # The program may have caught the mode's error.
    if outside.refused is not None:
        raise outside.refused
    return record


def _plain_callable(target: Callable[..., Any]) -> Callable[..., Any]:
    """Return a callable that Dynamo accepts: a module or a function itself, anything else wrapped in a function."""
    if isinstance(target, torch.nn.Module) or hasattr(target, "__code__"):
        return target
    return lambda *args, **kwargs: for_program(target, *args, **kwargs)


def run_graph_once(
    outside: _OutsideWatch, module: fx.GraphModule, inputs: tuple[Any, ...], stays: Callable[[Tensor], bool]
) -> Any:
    """Run one graph eagerly, note it with its inputs and outputs in the record of `outside`, and return its outputs."""
    was_inside, outside.inside = outside.inside, True
    try:
        ran = collect(module, inputs, stays)
        outside.record.events.append(ran)
        ran.outputs = tuple(for_program(module, *inputs))
        ran.requires_grad_after = requires_grad_flags(inputs)
        return ran.outputs
    finally:
        outside.inside = was_inside


def _describe_graph_break(reason: Any) -> str:
    """Describe a graph break in one line: why, and where in the user's program. `reason` is Dynamo's object."""
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
    """Run a block under SETTINGS; restore Dynamo's configuration, counters, logs and caches afterwards, without the
    entries that it made for `backend`."""
    compiled_code: list[tuple[Any, Any]] = []  # a function's code, and the code that Dynamo made of it
    known_before = known_codes()
    # Every name that Dynamo makes from here on has a higher number than this one.
    first_number, aliases = serial(unique_id("backprint")), _import_aliases()
    with without_logs(), counts_restored():
        try:
            with (
                bytecode_noted(lambda code, compiled: compiled_code.append((code, compiled))),
                config.patch({key: value for key, value in SETTINGS.items() if _has_setting(key)}),
            ):
                yield
        finally:
            forget(backend, compiled_code, known_before)
            _remove_names_left(first_number, aliases)


def _has_setting(name: str) -> bool:
    """Whether this version of torch has a setting of Dynamo's."""
    return hasattr(config, name)


def serial(name: str) -> int:
    """Return the number at the end of a name that Dynamo made (`__builtins_dict___3`); -1 if there is none."""
    number = name.rpartition("_")[2]
    return int(number) if number.isdigit() else -1


def _import_aliases() -> dict[str, set[str]]:
    """Return the names that Dynamo has added to the globals of Python modules for its imports, by module."""
    scopes = {name: vars(module) for name, module in list(sys.modules.items()) if hasattr(module, "__dict__")}
    return {name: {key for key in list(scope) if key.startswith("__import_")} for name, scope in scopes.items()}


def _remove_names_left(first: int, aliases: Mapping[str, set[str]]) -> None:
    """Remove the names that Dynamo has left in the globals of Python modules since the run began: aliases of imports
    that are not in `aliases`, and other names with a number above `first`. Dynamo counts its names upwards."""
    for name, now in _import_aliases().items():
        scope = vars(sys.modules[name])
        numbered = {key for key in list(scope) if key.startswith("__builtins_dict__") and serial(key) > first}
        for key in numbered | (now - aliases.get(name, set())):
            scope.pop(key, None)  # one scope may be under two names
