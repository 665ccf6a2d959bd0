"""A graph that `torch.compile` cut out of a program, captured while the program waits for it.

Dynamo's graph is run node by node, so that each operator has the line that Dynamo noted for it, and engine `aot` makes
of it what it makes of any program. Private torch APIs of this module, tried on torch 2.13: `torch._guards.tracing`,
`torch._guards.CompileContext`, `torch.fx.Interpreter`, and the metadata of Dynamo's placeholders (see `sources`).
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._guards import CompileContext, tracing
from torch.utils import _pytree as pytree

from backprint.capture import frames
from backprint.capture.custom import with_bodies
from backprint.capture.entry import by_aot, capture_of, outside_modes
from backprint.capture.made import Options
from backprint.capture.program import Named, Program, Slot, check_tensor, free_name
from backprint.capture.sources import function_of, line_of, name_of_source, role_of_source, source_of_placeholder
from backprint.graph.nouns import Capture
from backprint.settings import quiet_random
from backprint.tree import copy_values


class Lined(fx.Interpreter):
    """Runs a graph of Dynamo's with the user's line of each node in force."""

    def run_node(self, n: fx.Node) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        with frames.at(line_of(n)):
            return getattr(self, n.op)(n.target, args, kwargs)


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """What Dynamo and the caller have in force is off: its tracing context, inference mode; random states return."""
    with tracing(None), quiet_random(), outside_modes():
        yield


@with_bodies
def capture_graph(module: fx.GraphModule, inputs: Sequence[Any], name: str | None = None, **asked: Any) -> Capture:
    """The Capture of one graph of Dynamo's on the inputs it is compiled for; `asked` are the fields of Options.

    Gradients are traced where the program had them on. Sizes that Dynamo has made symbolic are symbolic here.
    """
    program = program_of(module, inputs, torch.is_grad_enabled())
    sizes = any(isinstance(value, torch.SymInt) for value in examples(module))
    with apart():
        made = by_aot(program, Options(**{"dynamic": sizes, **asked}))
        return capture_of(made, "dynamo", (), name or program.title)


def program_of(module: fx.GraphModule, inputs: Sequence[Any], training: bool) -> Program:
    """The Program that a graph of Dynamo's is, with each input under the name that its source gives it."""
    tensors: list[Named] = []
    values: dict[str, Tensor] = {}
    leaves: list[Any] = []
    for node, value in zip(module.graph.find_nodes(op="placeholder"), inputs, strict=True):
        if not isinstance(value, Tensor):
            leaves.append(value if not isinstance(value, torch.SymInt) else value.node.hint)
            continue
        source = source_of_placeholder(node)
        name = free_name(name_of_source(source), tensors)
        check_tensor(name, value)
        tensors.append(Named(name, role_of_source(source, value), training and value.requires_grad))
        values[name] = value
        leaves.append(Slot(name))
    own = {named.name for named in tensors if named.role == "parameter"}
    copies = copy_values({name: value for name, value in values.items() if name not in own})
    _, structure = pytree.tree_flatten((tuple(leaves), {}))
    target = runner(module)
    return Program(
        target=lambda: target,
        arguments=tuple(named.name for named in tensors if named.role == "input"),
        structure=structure,
        leaves=tuple(leaves),
        leaf_names=tuple(str(node.target) for node in module.graph.find_nodes(op="placeholder")),
        tensors=tuple(tensors),
        values={name: copies.get(name, value) for name, value in values.items()},
        title=function_of(module.graph),
    )


def examples(module: fx.GraphModule) -> list[Any]:
    """Dynamo's example of each input."""
    return [node.meta.get("example_value") for node in module.graph.find_nodes(op="placeholder")]


def runner(module: fx.GraphModule) -> Callable[..., Any]:
    """Dynamo's graph as a function of its inputs; a size among them is read off the tensor that has it."""
    given = examples(module)
    places: dict[int, tuple[int, int]] = {}
    for index, example in enumerate(given):
        if isinstance(example, torch.SymInt):
            for other, tensor in enumerate(given):
                shape = tensor.shape if isinstance(tensor, Tensor) else ()
                for dim, size in enumerate(shape):
                    if isinstance(size, torch.SymInt) and size.node.expr == example.node.expr:
                        places.setdefault(index, (other, dim))

    def run(*inputs: Any) -> Any:
        sizes = {index: inputs[other].shape[dim] for index, (other, dim) in places.items()}
        return Lined(module).run(*(sizes.get(index, value) for index, value in enumerate(inputs)))

    return run


def compile_name(module: fx.GraphModule) -> str:
    """What to call a graph: its function, and Dynamo's number of the frame and of its compilation: `forward_0_1`."""
    number = CompileContext.current_compile_id()
    counted = str(number).strip("[]").replace("/", "_") if number is not None else str(next(_COUNT))
    return re.sub(r"\W", "_", f"{function_of(module.graph)}_{counted}")


_COUNT = itertools.count()
