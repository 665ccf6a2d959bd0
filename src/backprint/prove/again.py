"""Make a module of a sample's forward, to capture it again under its own names, roles and values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.modules import own_buffers, own_modules, own_parameters
from backprint.graph.nouns import Capture, Graph, Port, ScalarSpec, TensorSpec, filled
from backprint.graph.sizes import at_example_sizes
from backprint.prove.run import At, feed, perform_steps, subgraphs
from backprint.prove.scatter import SCATTER, scattered_in_place

DIFFERENTIATED = {SCATTER: scattered_in_place}
"""What runs in the place of operators that a capture writes, and whose gradient in autograd is wrong."""


class Again(nn.Module):
    """Runs a forward on live tensors: its state by FQN, its inputs as arguments; both are updated in place."""

    graph: Graph
    fills: Callable[[Mapping[str, Any]], Any]
    numbers: dict[str, Any]
    at: At

    def forward(self, **inputs: Any) -> Any:
        values = {**self.numbers, **state_of(self), **leaves(inputs)}
        changed = {port.name for port in self.graph.by_role("mutation")}
        # autograd may have saved tensors that are written to below
        run_on = {name: value.clone() if name in changed else value for name, value in values.items()}
        env = feed(self.graph, run_on, True, graded=True)
        make = perform_steps(self.graph.steps, env, subgraphs(self.graph), at=self.at, instead=DIFFERENTIATED)
        named: dict[str, Any] = {}
        for port, result in zip(self.graph.outputs, self.graph.results, strict=True):
            if port.role == "output":
                named[port.name] = make(result)
            elif port.role == "mutation":
                # The update of a buffer is no part of what is differentiated.
                with torch.no_grad():
                    values[port.name].copy_(make(result))
        return self.fills(named)


def function_of(at: At) -> Callable[[Graph], Callable[..., tuple[Any, ...]]]:
    """Return a constructor of functions of a Graph, which take the inputs by local name and return the results."""

    def made(graph: Graph) -> Callable[..., tuple[Any, ...]]:
        def run_on(**inputs: Any) -> tuple[Any, ...]:
            env = feed(graph, {port.key: inputs[port.local] for port in graph.inputs}, True, graded=True)
            make = perform_steps(graph.steps, env, subgraphs(graph), at=at)
            return tuple(make(result) for result in graph.results)

        return run_on

    return made


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def module_of(
    capture: Capture, forward: Graph, at: At = lambda source: nullcontext()
) -> tuple[nn.Module, dict[str, Any], tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """Return the module of a Capture's only forward, its inputs by name, and (name, reason) of the tensors that require
    grad and of those that do not."""
    graph = at_example_sizes(forward)
    ports = [port for port in graph.inputs if isinstance(port.spec, TensorSpec)]
    asks, rests = asking(ports, capture.pairs[0].backward)
    tensors = capture.recipes.make(names=[port.name for port in ports])
    # A class for each Capture: a capture of the module takes its name from the class, and the names of the inputs from
    # the signature of `forward`.
    module: Again = type(capture.name, (Again,), {"forward": _with_named_inputs(Again.forward, ports)})()
    module.graph, module.at = graph, at
    module.fills = _filler(capture)
    module.numbers = {port.name: _number_at_capture(port) for port in graph.inputs if isinstance(port.spec, ScalarSpec)}
    inputs: dict[str, Any] = {}
    names_with_grad = {name for name, _ in asks}
    for port in ports:
        tensor = tensors[port.name]
        if port.role == "input":
            _put_nested(inputs, port.name, tensor.requires_grad_(port.name in names_with_grad))
        else:
            hold(module, port, tensor, port.name in names_with_grad)
    return module, inputs, asks, rests


def _filler(capture: Capture) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that puts the outputs back into the model's own containers."""
    signature = capture.signature

    def fill(named: Mapping[str, Any]) -> Any:
        whole = filled(signature.output, named)
        return {"loss": named[signature.loss], "output": whole} if signature.loss else whole

    return fill


def asking(
    ports: list[Port], backward: Graph | None
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """Choose which ports require grad: those with a gradient in the saved backward; without a backward, the
    parameters."""
    if backward is not None:
        names_with_gradient = {port.name for port in backward.by_role("gradient")}
        asks = [
            (port.name, "the saved backward returns its gradient") for port in ports if port.name in names_with_gradient
        ]
        return tuple(asks), tuple((port.name, f"{port.role}") for port in ports if port.name not in names_with_gradient)
    able = [port for port in ports if port.role == "parameter" and "float" in getattr(port.spec, "dtype", "")]
    names = {port.name for port in able}
    rests = tuple((port.name, port.role) for port in ports if port.name not in names)
    return tuple((port.name, "a parameter") for port in able), rests


def _number_at_capture(port: Port) -> Any:
    """Return the value of a number among the inputs, from its expression at the captured sizes."""
    assert isinstance(port.spec, ScalarSpec)
    return int(port.spec.expression) if port.spec.expression.lstrip("-").isdigit() else port.spec.expression


def _put_nested(inputs: dict[str, Any], name: str, tensor: Tensor) -> None:
    """Put a tensor into nested dictionaries, so that its name is the path to it: `batch.labels.0`."""
    *path, last = name.split(".")
    for step in path:
        inputs = inputs.setdefault(step, {})
    inputs[last] = tensor


def leaves(inputs: Mapping[str, Any], head: str = "") -> dict[str, Any]:
    """Flatten nested dictionaries into names."""
    by_name: dict[str, Any] = {}
    for key, value in inputs.items():
        by_name |= leaves(value, f"{head}{key}.") if isinstance(value, dict) else {f"{head}{key}": value}
    return by_name


def hold(module: nn.Module, port: Port, tensor: Tensor, asks: bool) -> None:
    """Put a tensor into a module under its FQN; a lifted constant becomes a buffer."""
    *path, last = port.name.split(".")
    for step in path:  # by hand: a module may be named like a method, as `type`
        module = own_modules(module).setdefault(step, nn.Module())
    if port.role == "parameter":
        own_parameters(module)[last] = nn.Parameter(tensor, requires_grad=asks)
    else:
        own_buffers(module)[last] = tensor


def _with_named_inputs(forward: Callable[..., Any], ports: list[Port]) -> Callable[..., Any]:
    """Return a forward with the inputs' names in its signature."""

    def named(self: Again, **inputs: Any) -> Any:
        return forward(self, **inputs)

    heads = dict.fromkeys(port.name.split(".")[0] for port in ports if port.role == "input")
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in ("self", *heads)]
    named.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it
    return named
