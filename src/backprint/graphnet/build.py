"""A GraphNet sample as a module that can be captured: parameters and buffers under their own names, inputs, recipes.

The module's forward is a function that `emit` compiles from the parsed program. The file is executed only where the
parser refused it and the caller trusts it, and a note says so.
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

from backprint._torch.modules import own_buffers, own_modules, own_parameters
from backprint.choices import check_choice
from backprint.errors import SampleError
from backprint.graph.nouns import Graph
from backprint.graphnet import training
from backprint.graphnet.code import FunctionCall, ModelProgram, Name, Return
from backprint.graphnet.emit import compile_program
from backprint.graphnet.meta import Known, Use
from backprint.graphnet.metas import read_sample_text, read_symbol_examples
from backprint.graphnet.names import NamedInput
from backprint.graphnet.plan import SamplePlan, plan_of
from backprint.graphnet.probe import ShapeRun, careful_batch_norm, choose_numbers, find_untrainable, run_on_shapes
from backprint.graphnet.read import GraphNetSample
from backprint.graphnet.recipes import recipe_notes, recipes_from_metas
from backprint.sample.inputs import Inputs

Fake = Callable[[], AbstractContextManager[Any]]
"""Makes the mode under which tensors have no values."""

GraphRunner = Callable[[Graph], Callable[..., Any]]
"""Makes a function of a Graph, which takes its inputs by local name."""

SMALL = 64
"""Tensors of up to so many elements have values even with `fake`."""


@dataclass(frozen=True, slots=True)
class BuiltSample:
    """A sample to capture: call `module(**inputs)`. `with_grad` and `without_grad` are (name, why) of each input."""

    module: nn.Module
    inputs: dict[str, Any]
    recipes: Inputs
    with_grad: tuple[tuple[str, str], ...]
    without_grad: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    bytes: int


def build_sample(
    sample: GraphNetSample,
    *,
    device: str = "cpu",
    mode: str | None = None,
    fake: Fake | None = None,
    run: GraphRunner | None = None,
) -> BuiltSample:
    """Build a sample as a module and its inputs; with `fake`, of tensors without values, made under its mode.

    `run` makes a function of a Graph: a sample whose `model.py` is a text of Backprint's own needs it.
    """
    check_choice("mode", mode, optional=True)
    plan = plan_of(sample)
    known: list[Known] = [
        (named.name, named.role, plan.metas[named.raw], plan.uses.get(named.raw, Use()))
        for named in plan.inputs
        if named.raw in plan.metas
    ]
    recipes = recipes_from_metas(known, 0, device)
    forward, numbers, notes = forward_in_mode(sample, plan, mode, device, fake, run)
    if sample.program is not None and fake is None:
        check_result_sizes(sample, numbers)
    made = recipes.make() if fake is None else unallocated_tensors(known, recipes, device, fake)
    asked = {name for name, _ in plan.with_grad}
    with nullcontext() if fake is None else fake():
        module = module_with_state(sample.name, forward, plan.inputs, made, asked)
    inputs: dict[str, Any] = {}
    for named in plan.inputs:
        if named.role == "input" and named.raw in numbers:
            inputs[named.name] = numbers[named.raw]
        elif named.role == "input":
            inputs[named.name] = made[named.name].requires_grad_(named.name in asked)
    module.train(mode != "eval")
    return BuiltSample(
        module,
        inputs,
        recipes,
        plan.with_grad,
        plan.without_grad,
        (*sample.notes, *notes, *recipe_notes(known)),
        plan.bytes,
    )


def check_result_sizes(sample: GraphNetSample, numbers: Mapping[str, Any]) -> None:
    """Raise where a line's result does not fit in memory, as far as shapes alone tell."""
    assert sample.program is not None
    if complaint := run_on_shapes(sample.program, sample.metas, numbers).outgrown:
        raise SampleError(f"{sample.path}: {complaint}")


# ------------------------------------------------------------------ forward


def forward_in_mode(
    sample: GraphNetSample,
    plan: SamplePlan,
    mode: str | None,
    device: str,
    fake: Fake | None = None,
    run: GraphRunner | None = None,
) -> tuple[Any, dict[str, Any], tuple[str, ...]]:
    """The module's forward in a mode, the inputs that are numbers, and notes on both."""
    program, notes = sample.program, list[str]()
    extra: dict[str, Any] = {}
    if sample.graph is not None:
        assert run is not None
        program, extra = program_that_calls(sample, run(sample.graph))
    elif program is None:
        program, extra = program_that_calls(sample, execute_model(sample.path / "model.py", fake))
        notes.append(f"executed, because it is trusted: {sample.refused}")
    numbers, more = choose_numbers(program, sample.metas, read_symbol_examples(sample.path))
    notes += more
    if mode is not None and sample.program is not None:
        probe = find_untrainable(program, sample.metas, numbers) if mode == "train" else ShapeRun(None)
        program, more = training.rewrite_mode(program, mode, probe.alone)
        notes += [*more, *batch_norm_notes(probe)]
        if probe.error is not None:
            extra = dict.fromkeys(training.NORMS[:1], careful_batch_norm)
    elif mode is not None:
        odd = "a file that is executed as it is" if sample.graph is None else "a graph, whose operators have their mode"
        notes.append(f"mode {mode}: nothing changed in {odd}")
    names = {named.raw: named.name for named in plan.inputs if named.role == "input"}
    state = {named.raw: named.name for named in plan.inputs if named.role != "input"}
    made = compile_program(program, names, state, str(sample.path / "model.py"), device, extra)
    return made, numbers, tuple(notes)


def batch_norm_notes(probe: ShapeRun) -> list[str]:
    """Notes on batch norms that cannot train."""
    if probe.error is not None:
        why = "a batch_norm with one value a channel stays in eval mode; which do is seen when the graph runs"
        return [f"{why} ({probe.error})"]
    if not probe.alone:
        return []
    lines = ", ".join(f"model.py:{line}" for line in probe.alone[:3])
    more = f" and {len(probe.alone) - 3} more" if len(probe.alone) > 3 else ""
    return [f"{len(probe.alone)} batch_norm stay in eval mode, one value a channel: {lines}{more}"]


EXECUTED = "torch.executed"


def program_that_calls(sample: GraphNetSample, function: Callable[..., Any]) -> tuple[ModelProgram, dict[str, Any]]:
    """A program that calls one function with all arguments: a Graph's, or the class of a file that was executed."""
    arguments = sample.arguments
    call = FunctionCall(EXECUTED, (), tuple((argument.name, Name(argument.name)) for argument in arguments))
    return ModelProgram(arguments, (Return(1, call),)), {EXECUTED: function}


def execute_model(path: Path, fake: Fake | None = None) -> nn.Module:
    """Execute a trusted file, as importing it does, and make an instance of its class; with `fake`, without values."""
    module = ModuleType("graphnet_trusted")
    module.__file__ = str(path)
    try:
        with nullcontext() if fake is None else fake():
            # an import would leave a cache beside the file
            exec(compile(read_sample_text(path), str(path), "exec"), vars(module))
            made = module.GraphModule()
    except Exception as error:  # a trusted file may raise anything
        raise SampleError(f"{path}: executing it raised {type(error).__name__}: {str(error)[:300]}") from error
    if not isinstance(made, nn.Module):
        raise SampleError(f"{path}: its GraphModule is a {type(made).__name__}, not a torch.nn.Module")
    return made


# ------------------------------------------------------------------ the module


def module_with_state(
    name: str, forward: Any, inputs: Iterable[NamedInput], made: Mapping[str, Tensor], asked: Collection[str]
) -> nn.Module:
    """Make a module of this class name, with parameters and buffers under their FQNs."""
    module: nn.Module = type(name, (nn.Module,), {"forward": forward})()
    for named in inputs:
        if named.role == "input":
            continue
        *path, last = named.name.split(".")
        owner = module
        for step in path:  # add_module refuses names of methods, such as `type`
            owner = own_modules(owner).setdefault(step, nn.Module())
        tensor = made[named.name]
        if named.role == "parameter":
            own_parameters(owner)[last] = nn.Parameter(tensor, requires_grad=named.name in asked)
        else:
            own_buffers(owner)[last] = tensor
    return module


def unallocated_tensors(known: Iterable[Known], recipes: Inputs, device: str, fake: Fake) -> dict[str, Tensor]:
    """Tensors under `fake`; small ones, which code may read, have their recipe's values."""
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
