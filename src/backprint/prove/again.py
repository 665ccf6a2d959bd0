"""Make a module of a sample's forward, to capture it again under its own names, roles and values.

`feed` binds inputs to their names in a graph (`strict`: it refuses other dtypes and shapes than captured), and
`perform_steps` runs the steps on these, with the functions of `instead` in the place of some operators, and returns a
function that evaluates what the graph returns (`run`). DIFFERENTIATED has such functions, for operators whose gradient
in autograd is wrong. An FQN is a dotted name, as `named_parameters` has it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from backprint._torch.modules import own_buffers, own_modules, own_parameters
from backprint.graph.nouns import Capture, Graph, Port, ScalarSpec, TensorSpec, filled
from backprint.graph.sizes import at_example_sizes
from backprint.prove.run import At, feed, perform_steps, subgraphs
from backprint.prove.scatter import SCATTER, scattered_in_place

DIFFERENTIATED = {SCATTER: scattered_in_place}
"""What runs in the place of operators that a capture writes into graphs, and whose own gradient in autograd is
wrong."""


class Again(nn.Module):
    """Runs a saved forward on live tensors: parameters and buffers are the module's own under their FQNs, and inputs
    are keyword arguments. Mutations are written into these tensors in place, as the program did.

    `fills` puts the outputs, by name, into the containers that the model returned. `numbers` has the inputs that are no
    tensors, by name, and `at` returns a context in which the steps of one source line run.
    """

    graph: Graph
    fills: Callable[[Mapping[str, Any]], Any]
    numbers: dict[str, Any]
    at: At

    def forward(self, **inputs: Any) -> Any:
        # By the names of the ports: numbers, parameters and buffers, and the inputs, which may be in nested dicts.
        values = {**self.numbers, **state_of(self), **_by_path(inputs)}
        changed = {port.name for port in self.graph.by_role("mutation")}
        # Copies, because the originals are written to below, and autograd may have saved them.
        run_on = {name: value.clone() if name in changed else value for name, value in values.items()}
        env = feed(self.graph, run_on, strict=True, graded=True)  # graded: inputs keep that they require grad
        value_of = perform_steps(self.graph.steps, env, subgraphs(self.graph), at=self.at, instead=DIFFERENTIATED)
        named: dict[str, Any] = {}
        for port, result in zip(self.graph.outputs, self.graph.results, strict=True):
            if port.role == "output":
                named[port.name] = value_of(result)
            elif port.role == "mutation":
                # The update of a buffer is no part of what is differentiated.
                with torch.no_grad():
                    values[port.name].copy_(value_of(result))
        return self.fills(named)


def function_of(at: At) -> Callable[[Graph], Callable[..., tuple[Any, ...]]]:
    """Return a function that makes a callable of a Graph. The callable takes the inputs by the names that their ports
    have in the graph (`Port.local`), and returns the results in port order; autograd can differentiate them (`graded`).
    Each step runs in the context that `at` returns for its source line."""

    def callable_of(graph: Graph) -> Callable[..., tuple[Any, ...]]:
        def run_on(**inputs: Any) -> tuple[Any, ...]:
            env = feed(graph, {port.key: inputs[port.local] for port in graph.inputs}, strict=True, graded=True)
            value_of = perform_steps(graph.steps, env, subgraphs(graph), at=at)
            return tuple(value_of(result) for result in graph.results)

        return run_on

    return callable_of


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """Return a module's parameters and buffers by FQN."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


class _ModuleOfForward(NamedTuple):
    """A module that runs a forward, and what to capture it with: its inputs by argument, and the name and the reason of
    each tensor that requires grad, and of each that does not."""

    module: nn.Module
    inputs: dict[str, Any]
    with_grad: tuple[tuple[str, str], ...]
    without_grad: tuple[tuple[str, str], ...]


def module_of(capture: Capture, forward: Graph, at: At = lambda source: nullcontext()) -> _ModuleOfForward:
    """Return a module that runs `forward`, the only forward of a Capture, on the tensors that the Capture's recipes
    make. A graph with symbolic sizes gets the captured sizes. `at` is as in Again."""
    graph = at_example_sizes(forward)
    ports = [port for port in graph.inputs if isinstance(port.spec, TensorSpec)]
    with_grad, without_grad = _split_by_grad(ports, capture.pairs[0].backward)
    tensors = capture.recipes.make(names=[port.name for port in ports])
    # A class for each Capture: a capture of the module takes its name from the class, and the names of the inputs from
    # the signature of `forward`.
    module: Again = type(capture.name, (Again,), {"forward": _with_named_inputs(Again.forward, ports)})()
    module.graph, module.at = graph, at
    module.fills = _filler(capture)
    module.numbers = {port.name: _number_at_capture(port) for port in graph.inputs if isinstance(port.spec, ScalarSpec)}
    inputs: dict[str, Any] = {}
    names_with_grad = {name for name, _ in with_grad}
    for port in ports:
        tensor = tensors[port.name]
        if port.role == "input":
            _put_nested(inputs, port.name, tensor.requires_grad_(port.name in names_with_grad))
        else:
            _register(module, port, tensor, requires_grad=port.name in names_with_grad)
    return _ModuleOfForward(module, inputs, with_grad, without_grad)


def _filler(capture: Capture) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that puts the outputs, by name, into the containers that the model returned. If the capture was
    of a loss, it returns a dictionary with the loss and that output."""
    signature = capture.signature

    def fill(named: Mapping[str, Any]) -> Any:
        whole = filled(signature.output, named)
        return {"loss": named[signature.loss], "output": whole} if signature.loss else whole

    return fill


def _split_by_grad(
    ports: list[Port], backward: Graph | None
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """Return the ports whose tensors require grad, and the other ports, each as its name with the reason (for the
    others, the role). Tensors with a gradient in the saved backward require grad; without a backward, the
    floating-point parameters."""
    if backward is not None:
        names = {port.name for port in backward.by_role("gradient")}
        reason = "the saved backward returns its gradient"
    else:
        is_float = {port.name: "float" in getattr(port.spec, "dtype", "") for port in ports}
        names = {port.name for port in ports if port.role == "parameter" and is_float[port.name]}
        reason = "a parameter"
    with_grad = tuple((port.name, reason) for port in ports if port.name in names)
    without_grad = tuple((port.name, port.role) for port in ports if port.name not in names)
    return with_grad, without_grad


def _number_at_capture(port: Port) -> Any:
    """Return the value of an input that is no tensor: an integer, or the text of its expression. Its graph has the
    captured sizes in the place of symbols."""
    assert isinstance(port.spec, ScalarSpec)
    return int(port.spec.expression) if port.spec.expression.lstrip("-").isdigit() else port.spec.expression


def _put_nested(inputs: dict[str, Any], name: str, tensor: Tensor) -> None:
    """Put a tensor into nested dictionaries, so that its name is the path to it: `batch.labels.0`."""
    *path, last = name.split(".")
    for step in path:
        inputs = inputs.setdefault(step, {})
    inputs[last] = tensor


def _by_path(inputs: Mapping[str, Any], head: str = "") -> dict[str, Any]:
    """Return the values in nested dictionaries by their paths, which begin with `head`: the reverse of
    `_put_nested`."""
    by_name: dict[str, Any] = {}
    for key, value in inputs.items():
        by_name |= _by_path(value, f"{head}{key}.") if isinstance(value, dict) else {f"{head}{key}": value}
    return by_name


def _register(module: nn.Module, port: Port, tensor: Tensor, requires_grad: bool) -> None:
    """Put a tensor into a module under its FQN; a lifted constant becomes a buffer."""
    *path, last = port.name.split(".")
    for step in path:  # not by `add_module`, which refuses the name of a method, such as `type`
        module = own_modules(module).setdefault(step, nn.Module())
    if port.role == "parameter":
        own_parameters(module)[last] = nn.Parameter(tensor, requires_grad)
    else:
        own_buffers(module)[last] = tensor


def _with_named_inputs(forward: Callable[..., Any], ports: list[Port]) -> Callable[..., Any]:
    """Return a method `forward` whose signature has the names of the inputs, from which a capture names them. An input
    `batch.labels` is a part of the argument `batch`."""

    def named(self: Again, **inputs: Any) -> Any:
        return forward(self, **inputs)

    heads = dict.fromkeys(port.name.split(".")[0] for port in ports if port.role == "input")
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in ("self", *heads)]
    named.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it
    return named
