"""Programs that a trace would lose something of, refused by name, with what to do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from backprint.errors import CaptureError
from backprint.graph.nouns import Source
from backprint.tracing import frames
from backprint.tracing.program import CalledProgram, Outcome
from backprint.tracing.reach import tensors_of
from backprint.tracing.watch import Sighting, storages


def unheld(unseen: Sequence[tuple[str, Source | None]], unforeseen: Sequence[str]) -> tuple[str, ...]:
    """The reads of values that a trace has no step to check by, in words; a `tolist` is rewritten into steps."""
    said = [
        f"Tensor.{function} reads values{frames.place(source)} where no operator shows it"
        for function, source in unseen
        if function != "tolist"
    ]
    return (*said, *(f"{operator} reads values inside an operator or its backward" for operator in unforeseen))


def refuse_aliases(program: CalledProgram, outcome: Outcome) -> None:
    """Refuse a program that writes to a tensor which it also holds as a view, or under another name."""
    reached = dict(tensors_of(program.target())) if outcome.made else {}
    found = {
        name: tensor for name, tensor in reached.items() if name in outcome.made and tensor.layout is torch.strided
    }
    memories = {storage._cdata for tensor in plain_own(program).values() for storage in storages(tensor)}
    for name in sorted(name for name, tensor in found.items() if tensor.untyped_storage()._cdata in memories):
        raise CaptureError(
            f"{program.title} writes to memory that it also holds as {name}: tracing would lose that; engine "
            "'eager' keeps it"
        )


def plain_own(program: CalledProgram) -> dict[str, Tensor]:
    """The program's own tensors that lie in memory."""
    return {name: tensor for name, tensor in program.own().items() if not isinstance(tensor, FakeTensor)}


def refuse_shared(program: CalledProgram, shared: Collection[str], wanted: Collection[str]) -> None:
    """Refuse a program that writes to memory which tracing would take apart; `wanted` require grad."""
    if strangers := sorted(set(shared) - set(program.values)):
        raise CaptureError(
            f"{', '.join(sorted(shared)[:4])} share memory and one of them is changed in place; {strangers[0]} is not "
            "an argument, so tracing would give each memory of its own: take engine 'eager', or pass copies"
        )
    if set(shared) & set(wanted):
        raise CaptureError(
            f"inputs {', '.join(sorted(shared))} share memory, one is changed in place and one asks for a gradient: "
            "pass copies, or leave requires_grad off for them"
        )


def refuse_strangers(program: CalledProgram, seen: Sighting, tensor: Tensor, names: Mapping[int, str]) -> None:
    """Refuse a tensor that another thread made while the program ran: what it hangs on was not seen."""
    if seen.threads and id(tensor) not in names:
        raise CaptureError(
            f"{program.title} starts a thread{frames.place(seen.threads[0])} and goes on with a tensor of it, whose "
            "making no engine sees: run that part in the thread that calls it"
        )
    if id(tensor) not in names and (shares := by_address(program, tensor)):
        raise CaptureError(
            f"{program.title} takes a tensor that lies in the memory of {shares} and is not one of its views (made "
            "through dlpack, numpy or an address), so nothing follows it: use .detach() or a view"
        )
    if id(tensor) not in names and tensor.grad_fn is not None and seen.asking.get(id(tensor)):
        raise CaptureError(
            f"{program.title} takes a tensor of shape {list(tensor.shape)} that asks for a gradient from nowhere that "
            "can be named: another thread's, or made by code that runs no operators. Pass it as an argument"
        )


def by_address(program: CalledProgram, tensor: Tensor) -> str:
    """The name of one of the program's tensors in whose memory a tensor of another storage lies; '' where in none's."""
    if tensor.layout is not torch.strided or isinstance(tensor, FakeTensor) or tensor.is_meta:
        return ""
    storage = tensor.untyped_storage()
    for name, own in plain_own(program).items():
        for other in storages(own) if not own.is_meta else ():
            begin = storage.data_ptr() - other.data_ptr()
            if storage._cdata != other._cdata and -storage.nbytes() < begin < other.nbytes() and other.nbytes():
                return name
    return ""


def refuse_effects(program: CalledProgram, seen: Sighting, made: Collection[str]) -> None:
    """Refuse a program that puts other data into tensors, hooks what is saved, leaves gradients or new state."""
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
    addressed = [each for each in seen.unseen if each[0] in ("storage", "untyped_storage", "data_ptr")]
    if addressed:  # a traced tensor has no memory to read: torch would end the process
        function, source = addressed[0]
        raise CaptureError(
            f"Tensor.{function} gives the program its memory{frames.place(source)}, which a traced tensor has not: "
            "engine 'eager' keeps what it reads as a guard"
        )
    if seen.accumulates or made:
        left = ", ".join(sorted(made)[:4]) or "gradients on its tensors"
        raise CaptureError(
            f"{program.title} runs backward itself and leaves {left}: tracing keeps what a program gives and "
            "changes, which these are not; engine 'eager' keeps them too"
        )


def refuse_layouts(program: CalledProgram, outputs: Mapping[str, Tensor]) -> None:
    """Refuse outputs that are no plain strided tensors."""
    for name, tensor in outputs.items():
        if (
            tensor.is_nested
            or tensor.layout is not torch.strided
            or type(tensor) not in (Tensor, nn.Parameter, FakeTensor)
        ):
            kind = str(tensor.layout)[6:] if tensor.layout is not torch.strided else type(tensor).__name__
            raise CaptureError(
                f"{program.title} gives {name} as a {kind} tensor: tracing keeps plain strided tensors; "
                "return its values"
            )
