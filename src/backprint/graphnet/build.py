"""A GraphNet sample as a module that can be captured: parameters and buffers under their own names, inputs, recipes.

The module's forward is a function made from the checked Program (`emit`). Where the parser refused `model.py` and the
caller trusts it, and only there, the file is executed, and a note says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from backprint.errors import SampleError, UsageError
from backprint.graphnet import training
from backprint.graphnet.code import Call, Name, Program, Return
from backprint.graphnet.emit import function_of
from backprint.graphnet.meta import Known, Use
from backprint.graphnet.metas import examples_of, text_of
from backprint.graphnet.names import Named
from backprint.graphnet.plan import Plan, plan_of
from backprint.graphnet.probe import Probe, careful_batch_norm, numbers_of, run_on_shapes, untrainable
from backprint.graphnet.read import GraphNetSample
from backprint.graphnet.recipes import notes_of, recipes_of
from backprint.sample.inputs import Inputs

Fake = Callable[[], AbstractContextManager[Any]]
"""What gives the mode in which tensors have no values."""

SMALL = 64
"""Elements of a tensor that has values even where nothing is allocated."""


@dataclass(frozen=True, slots=True)
class Built:
    """A sample ready to be captured: call `module(**inputs)`. `asks` and `rests` are (name, why) of each input."""

    module: nn.Module
    inputs: dict[str, Any]
    recipes: Inputs
    asks: tuple[tuple[str, str], ...]
    rests: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    bytes: int


def build(
    sample: GraphNetSample,
    *,
    device: str = "cpu",
    mode: str | None = None,
    seed: int = 0,
    requires_grad: Iterable[str] | bool | None = None,
    fake: Fake | None = None,
) -> Built:
    """The sample as a module and its inputs; with `fake`, in tensors without values, made within the mode it gives."""
    if mode not in (None, *training.MODES):
        raise UsageError(f"mode={mode!r} is none of None (as it was traced), 'train', 'eval'")
    plan = plan_of(sample, requires_grad)
    known: list[Known] = [
        (named.name, named.role, plan.metas[named.raw], plan.uses.get(named.raw, Use()))
        for named in plan.inputs
        if named.raw in plan.metas
    ]
    recipes = recipes_of(known, seed, device)
    forward, numbers, notes = forward_of(sample, plan, mode, device, fake)
    if sample.program is not None and fake is None:
        check_room(sample, numbers)
    made = recipes.make() if fake is None else empty(known, recipes, device, fake)
    asked = {name for name, _ in plan.asks}
    with nullcontext() if fake is None else fake():
        module = module_of(sample.name, forward, plan.inputs, made, asked)
    inputs: dict[str, Any] = {}
    for named in plan.inputs:
        if named.role == "input" and named.raw in numbers:
            inputs[named.name] = numbers[named.raw]
        elif named.role == "input":
            inputs[named.name] = made[named.name].requires_grad_(named.name in asked)
    module.train(mode != "eval")
    return Built(module, inputs, recipes, plan.asks, plan.rests, (*sample.notes, *notes, *notes_of(known)), plan.bytes)


def check_room(sample: GraphNetSample, numbers: Mapping[str, Any]) -> None:
    """Raise where a line makes what there is no room for, as far as shapes alone tell."""
    assert sample.program is not None
    if complaint := run_on_shapes(sample.program, sample.metas, numbers).outgrown:
        raise SampleError(f"{sample.path}: {complaint}")


# ------------------------------------------------------------------ forward


def forward_of(
    sample: GraphNetSample, plan: Plan, mode: str | None, device: str, fake: Fake | None = None
) -> tuple[Any, dict[str, Any], tuple[str, ...]]:
    """The module's forward, the inputs that are numbers, and what is to be said of both."""
    program, notes = sample.program, list[str]()
    extra: dict[str, Any] = {}
    if program is None:
        program, extra = trusted(sample, fake)
        notes.append(f"executed, because it is trusted: {sample.refused}")
    numbers, said = numbers_of(program, sample.metas, examples_of(sample.path))
    notes += said
    if mode is not None and sample.program is not None:
        probe = untrainable(program, sample.metas, numbers) if mode == "train" else Probe(None)
        program, said = training.in_mode(program, mode, probe.alone)
        notes += [*said, *told(probe)]
        if probe.error is not None:
            extra = dict.fromkeys(training.NORMS[:1], careful_batch_norm)
    elif mode is not None:
        notes.append(f"mode {mode}: nothing changed in a file that is executed as it is")
    names = {named.raw: named.name for named in plan.inputs if named.role == "input"}
    state = {named.raw: named.name for named in plan.inputs if named.role != "input"}
    made = function_of(program, names, state, str(sample.path / "model.py"), device, extra)
    return made, numbers, tuple(notes)


def told(probe: Probe) -> list[str]:
    """What is to be said of batch norms that cannot train."""
    if probe.error is not None:
        said = "a batch_norm with one value a channel stays in eval mode; which do is seen when the graph runs"
        return [f"{said} ({probe.error})"]
    if not probe.alone:
        return []
    lines = ", ".join(f"model.py:{line}" for line in probe.alone[:3])
    more = f" and {len(probe.alone) - 3} more" if len(probe.alone) > 3 else ""
    return [f"{len(probe.alone)} batch_norm stay in eval mode, one value a channel: {lines}{more}"]


EXECUTED = "torch.executed"


def trusted(sample: GraphNetSample, fake: Fake | None) -> tuple[Program, dict[str, Any]]:
    """A Program that calls the file's own class: this executes the file."""
    arguments = sample.arguments
    call = Call(EXECUTED, (), tuple((argument.name, Name(argument.name)) for argument in arguments))
    return Program(arguments, (Return(1, call),)), {EXECUTED: executed(sample.path / "model.py", fake)}


def executed(path: Path, fake: Fake | None = None) -> nn.Module:
    """An instance of the class in a file that is trusted: this runs the file, as importing it does.

    With `fake`, what it makes has no values either.
    """
    module = ModuleType("graphnet_trusted")
    module.__file__ = str(path)
    try:
        with nullcontext() if fake is None else fake():
            # an import would leave a cache beside the file
            exec(compile(text_of(path), str(path), "exec"), vars(module))
            made = module.GraphModule()
    except Exception as error:  # a trusted file may raise anything
        raise SampleError(f"{path}: executing it raised {type(error).__name__}: {str(error)[:300]}") from error
    if not isinstance(made, nn.Module):
        raise SampleError(f"{path}: its GraphModule is a {type(made).__name__}, and no torch.nn.Module")
    return made


# ------------------------------------------------------------------ the module


def module_of(
    name: str, forward: Any, inputs: Iterable[Named], made: Mapping[str, Tensor], asked: Collection[str]
) -> nn.Module:
    """A module of this name with the state under its FQNs."""
    module: nn.Module = type(name, (nn.Module,), {"forward": forward})()
    for named in inputs:
        if named.role == "input":
            continue
        *path, last = named.name.split(".")
        owner = module
        for step in path:  # by hand: a module may be named like a method, as `type`
            owner = owner._modules.setdefault(step, nn.Module())
        tensor = made[named.name]
        if named.role == "parameter":
            owner._parameters[last] = nn.Parameter(tensor, requires_grad=named.name in asked)
        else:
            owner._buffers[last] = tensor
    return module


def empty(known: Iterable[Known], recipes: Inputs, device: str, fake: Fake) -> dict[str, Tensor]:
    """Tensors that nobody has to allocate; small ones, which code may read, have their recipe's values."""
    small = {name for name, _, meta, _ in known if meta.data is not None or math.prod(meta.shape) <= SMALL}
    here = Inputs({name: replace(recipes.recipes[name], device="cpu") for name in small}, recipes.exact, recipes.seed)
    values = {name: tensor.flatten().tolist() for name, tensor in here.make().items()}
    made: dict[str, Tensor] = {}
    with fake():
        for name, _, meta, _ in known:
            dtype = getattr(torch, meta.dtype)
            if name in values:
                made[name] = torch.tensor(values[name], dtype=dtype, device=device).reshape(meta.shape)
            else:
                made[name] = torch.empty(meta.shape, dtype=dtype, device=device)
    return made
