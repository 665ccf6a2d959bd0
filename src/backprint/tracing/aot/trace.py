"""Trace a program with AOTAutograd. It does not support aliases, so outputs are copied, and the copies taken out."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.fx.traceback as fx_traceback

from backprint._torch.aot import export_joint
from backprint._torch.fake import UnsupportedOperatorException, errors_not_logged
from backprint._torch.graphs import lazy_code
from backprint._torch.operators import without_effects_of_checks
from backprint.defects import is_defect
from backprint.errors import BackprintError, CaptureError, DataDependentError
from backprint.fx.convert import pin_dtypes
from backprint.tracing import frames
from backprint.tracing.aot.function import StatelessModule, TracedFunction
from backprint.tracing.aot.joint import Traced, split_joint, take_out_copies
from backprint.tracing.aot.surroundings import as_eager_runs, without_cuda
from backprint.tracing.fake import UNKNOWN_VALUES, absent, dispatching
from backprint.tracing.keep import kept
from backprint.tracing.program import ScoutedProgram, objects_given
from backprint.tracing.reach import module_paths
from backprint.tracing.running import Substitute, modes_reach_backward
from backprint.tracing.scout import Findings


def trace(
    program: ScoutedProgram,
    seen: Findings,
    specialize: bool = False,
    partition: str | Callable[..., Any] | None = None,
    decompose: Mapping[Any, Callable[..., Any]] | None = None,
    dynamic: Any = False,
) -> Traced:
    """Trace a program with AOTAutograd, and partition the joint graph."""
    traced = trace_values(program, seen, specialize, partition, decompose, dynamic)
    if program.world is None and traced.casts > seen.casts:
        raise CaptureError(
            f"autocast casts a leaf of {program.title} once for several uses, and tracing casts it again for each, so "
            "gradients would be rounded differently: turn the cache off (torch.autocast(..., cache_enabled=False)), or "
            "use engine 'eager'"
        )
    return traced


def trace_values(
    program: ScoutedProgram, seen: Findings, specialize: bool, partition: Any, decompose: Any, dynamic: Any
) -> Traced:
    """Trace without values; if that fails and the user specializes, trace with values too."""
    try:
        return trace_once(TracedFunction(program, seen.readings, specialize, False, dynamic), partition, decompose)
    except DataDependentError as error:
        if not specialize or error.__cause__ is None:
            raise
    return trace_once(TracedFunction(program, seen.readings, specialize, True, dynamic), partition, decompose)


def trace_once(
    run: TracedFunction, partition: str | Callable[..., Any] | None, decompose: Mapping[Any, Callable[..., Any]] | None
) -> Traced:
    """Try once to trace."""
    program = run.program
    with tracing(run) as stack:
        try:
            joint = export_joint(stack, StatelessModule(run), run.fakes(), dict(decompose or {}))
        except UNKNOWN_VALUES as error:
            raise DataDependentError(_late(program, error)) from error
        except UnsupportedOperatorException as error:
            raise CaptureError(
                f"{error.func} has no fake kernel, so it cannot be traced: "
                "register one with torch.library.register_fake"
            ) from error
        except BackprintError:
            raise
        except Exception as error:
            if is_defect(error):
                raise
            said = f"{type(error).__name__}: {str(error)[:1000]}"
            raise CaptureError(f"{program.title} runs, but AOTAutograd cannot trace it: {said}") from error
        graph_module = joint.graph_module
        take_out_copies(graph_module)
        pin_dtypes(graph_module)
        found = casts(program, graph_module)  # before the partition, which merges equal casts
        return replace(split_joint(run, graph_module, partition), casts=found)


@contextlib.contextmanager
def tracing(run: TracedFunction) -> Iterator[contextlib.ExitStack]:
    """Enter all patches and modes for tracing with AOTAutograd; yield the stack for its own."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(dispatching(run.fake.mode, run.fake.dispatch))
        if run.program.world is not None and absent("cuda"):
            stack.enter_context(without_cuda())
        stack.enter_context(lazy_code(True))
        stack.enter_context(without_effects_of_checks())
        stack.enter_context(errors_not_logged())
        stack.enter_context(as_eager_runs(run.sizes is not None))
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", message="Error detected in")
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
        stack.enter_context(kept(run.program.target(), objects_given(run.program)))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(fx_traceback.preserve_node_meta())
        stack.enter_context(modes_reach_backward())
        if run.program.outside:
            stack.enter_context(Substitute(run.table))
        stack.callback(lambda: run.open.close())
        yield stack


def _late(program: ScoutedProgram, error: Any) -> str:
    place = frames.place(frames.raised(error, module_paths(program.target())))
    return (
        f"{error.func} reads values that tracing does not have{place}, inside an operator or its backward. "
        "Pass specialize=True to take this run's values and keep them as guards"
    )


def casts(program: ScoutedProgram, joint: torch.fx.GraphModule) -> int:
    """Count the casts of a program's own leaves in a traced forward."""
    asking = {index for index, named in enumerate(program.tensors) if named.requires_grad}
    found = joint.graph.find_nodes(op="call_function", target=torch.ops.aten._to_copy.default)
    ahead = [node.args[0] for node in found if node.meta.get("partitioner_tag") != "is_backward"]
    return sum(node.op == "placeholder" and getattr(node.meta["desc"], "idx", None) in asking for node in ahead)
