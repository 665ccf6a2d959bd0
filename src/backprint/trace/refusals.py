"""Refuse programs of which tracing would lose a part, by name, with what to do.

Tracing runs the program on stand-ins (engines `aot` and `dynamo`), where engine `eager` records a run on the program's
own tensors. Most refusals are about what an observed run has shown before the trace: its Observations (`seen`) and its
Outcome. An error with `every_engine` says that no engine captures the program, so that no other one is asked. A
CalledProgram is a callable with the named tensors of one call. `frames.place(source)` is a line as text for a message.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.fake import FakeTensor
from backprint._torch.modes import users_dispatch_mode
from backprint._torch.tensors import storage_id
from backprint.errors import CaptureError
from backprint.graph.nouns import Source
from backprint.trace import frames
from backprint.trace.program import CalledProgram, Outcome
from backprint.trace.reach import tensors_of
from backprint.trace.watch import Observations, storages
from backprint.values.memory import has_memory


def describe_unchecked_reads(
    unseen: Sequence[tuple[str, Source | None]], inside_operators: Sequence[str]
) -> tuple[str, ...]:
    """Return a description of each read of values that no step of a traced graph can check, for a note or a message.

    `unseen` are reads without an operator, each by the name of a method of Tensor and its line, and `inside_operators`
    the operators that read values in their own kernels. A `tolist` is left out, because it is rewritten into steps.
    """
    descriptions = [
        f"Tensor.{function} reads values{frames.place(source)} where no operator shows it"
        for function, source in unseen
        if function != "tolist"
    ]
    return (
        *descriptions,
        *(f"{operator} reads values inside an operator or its backward" for operator in inside_operators),
    )


CONTROL_FLOW_FILES = {
    os.path.join(
        os.path.dirname(torch.__file__), "_higher_order_ops", f"{name}.py"
    ): f"the control flow operator {name}"
    for name in ("cond", "map", "scan", "while_loop", "associative_scan")
}
"""The files of torch through which every call of a control flow operator passes, each with that operator as a message
names it."""


def untraced_control_flow(program: CalledProgram, requested: Collection[str], error: CaptureError) -> str:
    """Return the refusal of a program that engine `aot` has not traced because of a control flow operator; '' if the
    `error` of the trace has another cause. `requested` are options of the call that engine `dynamo` does not take."""
    # The frames of the errors that `error` was raised from show whether torch was in such an operator.
    cause, name, where = error.__cause__, "", None
    while cause is not None and not name:
        for frame, _ in traceback.walk_tb(cause.__traceback__):
            name = name or CONTROL_FLOW_FILES.get(frame.f_code.co_filename, "")
        where = frames.source_of_error(cause, {})  # the user's line that called it
        cause = cause.__cause__
    advice = f"Without {' and '.join(requested)}, engine" if requested else "Engine"
    return name and (
        f"{program.title} calls {name}{frames.place(where)}, which engine 'aot' does not trace. {advice} 'dynamo' "
        "captures it, with all its bodies"
    )


@contextlib.contextmanager
def refuse_callers_modes() -> Iterator[None]:
    """Refuse a capture under modes of the caller that it would not record.

    A dispatch mode of the user's changes operators, and no graph has what it does. A program that asks whether
    gradients are enabled would get another answer while it is captured than in the caller's `no_grad` block: in such a
    block, the question is refused when the program asks it.
    """
    if (mode := users_dispatch_mode()) is not None:
        raise CaptureError(
            f"the dispatch mode {mode} is active, and what it does to operators is no part of a graph: capture outside "
            "of it",
            every_engine=True,
        )
    if torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
        yield
        return
    # torch's own code calls `is_grad_enabled` too: only a call by the user's code is refused.
    before: Any = torch.is_grad_enabled

    def is_grad_enabled() -> bool:
        if frames.is_users(sys._getframe(1).f_code.co_filename):
            raise CaptureError(
                f"the program asks whether gradients are enabled{frames.place(frames.here({}))}; they are off here, "
                "and on while it is captured: capture outside of torch.no_grad() and torch.inference_mode()",
                every_engine=True,
            )
        return before()

    torch.is_grad_enabled = is_grad_enabled
    try:
        yield
    finally:
        torch.is_grad_enabled = before


def refuse_aliases(program: CalledProgram, outcome: Outcome) -> None:
    """Refuse a program that writes to memory of its own tensors (parameters, buffers, arguments) that it also holds as
    a further tensor, in an attribute or a container. The `new_state` of an Outcome names such tensors."""
    reached = dict(tensors_of(program.target())) if outcome.new_state else {}
    held_too = {
        name: tensor for name, tensor in reached.items() if name in outcome.new_state and tensor.layout is torch.strided
    }
    memories = {storage_id(storage) for tensor in real_own_tensors(program).values() for storage in storages(tensor)}
    for name in sorted(name for name, tensor in held_too.items() if storage_id(tensor.untyped_storage()) in memories):
        raise CaptureError(
            f"{program.title} writes to memory that it also holds as {name}: tracing would lose that; engine "
            "'eager' keeps it"
        )


def real_own_tensors(program: CalledProgram) -> dict[str, Tensor]:
    """Return the program's own tensors that are not fake."""
    return {name: tensor for name, tensor in program.own_tensors().items() if not isinstance(tensor, FakeTensor)}


def refuse_shared_written_memory(program: CalledProgram, shared: Collection[str], wanted: Collection[str]) -> None:
    """Refuse a program that writes to memory that its tensors share, if tracing would give each its own: it takes
    clones of tensors that require grad, and only arguments are made to share memory again. `shared` are the names of
    the tensors that share written memory, `wanted` those of the tensors that require grad."""
    if strangers := sorted(set(shared) - set(program.values)):
        raise CaptureError(
            f"{', '.join(sorted(shared)[:4])} share memory and one of them is changed in place; {strangers[0]} is not "
            "an argument, so tracing would give each memory of its own: use engine 'eager', or pass copies"
        )
    if set(shared) & set(wanted):
        raise CaptureError(
            f"inputs {', '.join(sorted(shared))} share memory, one is changed in place and one requires grad: "
            "pass copies, or leave requires_grad off for them"
        )


def refuse_unknown_origin(program: CalledProgram, seen: Observations, tensor: Tensor, names: Mapping[int, str]) -> None:
    """Refuse a tensor from outside the call if it is not known where it comes from: another thread made it during the
    run, it uses the memory of a tensor of the program and is no view of it, or it requires grad and cannot be
    reached.
    `names` has the names of the tensors that the program can reach, by id."""
    if seen.threads and id(tensor) not in names:
        raise CaptureError(
            f"{program.title} starts a thread{frames.place(seen.threads[0])} and uses a tensor that it makes, which "
            "no engine sees: run that part in the calling thread"
        )
    if id(tensor) not in names and (shares := _sharing_address(program, tensor)):
        raise CaptureError(
            f"{program.title} uses a tensor that shares the memory of {shares} and is not one of its views (made "
            "through dlpack, numpy or an address), so it cannot be tracked: use .detach() or a view"
        )
    if id(tensor) not in names and tensor.grad_fn is not None and seen.requires_grad_before.get(id(tensor)):
        raise CaptureError(
            f"{program.title} uses a tensor of shape {list(tensor.shape)} that requires grad and is not reachable from "
            "its arguments, closure or globals: another thread, or code without operators, made it. Pass it as an input"
        )


def refuse_without_memory(program: CalledProgram, tensors: Mapping[str, Tensor], how: str) -> None:
    """Refuse tensors that have no values: on the meta device, or with a storage of fewer bytes than they need. `how` is
    the verb of the message: what the program does with them (`returns`)."""
    for name, tensor in tensors.items():
        if tensor.is_meta and program.world is None:
            raise CaptureError(
                f"{program.title} {how} {name}, a tensor on the meta device, which has no values to compare: leave it "
                "out of what is captured",
                every_engine=True,
            )
        if not has_memory(tensor):
            raise CaptureError(
                f"{program.title} {how} {name}, whose storage was resized to less than its elements need, so it has no "
                "values: restore them inside of the captured call",
                every_engine=True,
            )


def _sharing_address(program: CalledProgram, tensor: Tensor) -> str:
    """Return the name of a tensor of the program that uses the same addresses as this one, in another storage; '' if
    there is none."""
    if tensor.layout is not torch.strided or isinstance(tensor, FakeTensor) or tensor.is_meta:
        return ""
    storage = tensor.untyped_storage()
    for name, own in real_own_tensors(program).items():
        for other in storages(own) if not own.is_meta else ():
            # Two storages whose addresses overlap, although they are different objects. `distance` is how many bytes
            # after the other one this storage begins.
            distance, same = storage.data_ptr() - other.data_ptr(), storage_id(storage) == storage_id(other)
            if not same and -storage.nbytes() < distance < other.nbytes() and other.nbytes():
                return name
    return ""


def refuse_untraced_effects(program: CalledProgram, seen: Observations, left_behind: Collection[str]) -> None:
    """Refuse a program that assigns to `.data`, hooks saved tensors, goes on after an error of an operator, reads a
    tensor's memory, or leaves gradients or optimizer states, whose names are `left_behind`. `seen` has where the run
    did so."""
    if seen.assigned:
        raise CaptureError(
            f"{program.title} assigns to a tensor's .data{frames.place(seen.assigned[0])}: tracing would lose "
            "that; use copy_ under torch.no_grad(), or engine 'eager', which keeps it"
        )
    if seen.packs:
        raise CaptureError(
            f"{program.title} hooks the tensors that autograd saves{frames.place(seen.packs[0])}: tracing would "
            "lose what the hooks do; engine 'eager' keeps it"
        )
    if seen.raised:
        operator, source = seen.raised[0]
        raise CaptureError(
            f"{operator} raises{frames.place(source)} and {program.title} goes on: tracing would lose what that "
            "depends on; engine 'eager' keeps it as a guard"
        )
    memory_reads = [
        (function, source)
        for function, source in seen.reads_without_operator
        if function in ("storage", "untyped_storage", "data_ptr")
    ]
    if memory_reads:  # a traced tensor has no memory to read: torch would end the process
        function, source = memory_reads[0]
        raise CaptureError(
            f"Tensor.{function} returns the tensor's memory{frames.place(source)}, and a traced tensor has none: "
            "engine 'eager' keeps what it reads as a guard"
        )
    if seen.accumulates or left_behind:
        left = ", ".join(sorted(left_behind)[:4]) or "gradients on its tensors"
        raise CaptureError(
            f"{program.title} runs backward itself and leaves {left}: tracing keeps results and "
            "changed tensors, not these; engine 'eager' keeps them too"
        )


def refuse_layouts(program: CalledProgram, outputs: Mapping[str, Tensor]) -> None:
    """Refuse outputs that are not plain strided tensors."""
    for name, tensor in outputs.items():
        if (
            tensor.is_nested
            or tensor.layout is not torch.strided
            or type(tensor) not in (Tensor, nn.Parameter, FakeTensor)
        ):
            # Without the `torch.` of `torch.sparse_coo`.
            kind = str(tensor.layout)[6:] if tensor.layout is not torch.strided else type(tensor).__name__
            raise CaptureError(
                f"{program.title} returns {name} as a {kind} tensor: tracing keeps plain strided tensors; "
                "return its values"
            )
