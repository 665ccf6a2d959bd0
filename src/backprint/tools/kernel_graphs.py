"""`inference_graph` and `forward_backward_graphs`: a Capture's graphs as torch.fx Graphs, for authors of kernels.

A Capture by engine `aot` is rewritten as data, and then made a torch.fx graph. The rewriting gives the new value of a
state `v` the name `new_v`, and a saved value one name in both graphs. It removes `detach` from a forward and backward,
whose gradient is already taken; in an inference graph it stays where it matters if the graph is differentiated.

`graph.owning_module` is a GraphModule that runs a graph. Nodes have the metadata that `Graph.to_fx` gives them.

A *state* is an input that the program writes to; its new value is a result with the role `mutation`. A *local* is the
name of a value in a graph; several ports may have one. A table of names, `names`, has a new local by the old one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, fx

from backprint.errors import CaptureError, DataDependentError, UsageError, with_frames_of_program
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.fx.to_fx import to_fx
from backprint.graph.nouns import Capture, Graph, Port, Ref, Spec, Step, TensorSpec, Value
from backprint.graph.steps import free, mapped, used, with_names, without_dead_code
from backprint.prove.capturing import capture_with_recipes
from backprint.values.tree import with_distinct_tensors


@with_frames_of_program
def inference_graph(fn: Callable[..., Any], inputs: Sequence[Any]) -> fx.Graph:
    """Return the forward of `fn(*inputs)` as a torch.fx.Graph, for kernel writers.

    `inputs` are examples, whose shapes and dtypes count: one tensor for two arguments is two inputs. An argument that
    is no tensor is a constant of the graph, and no input of it; parameters and buffers are inputs. The graph returns
    tensors alone: a result that is None has no place among them. The new value of a state `v`, which the program writes
    to, is a result `new_v`. `graph.owning_module(*tensors)` runs the graph.
    """
    capture = capture_examples(fn, inputs, requires_grad=False)
    graph = _with_results(capture.pairs[0].forward, "output", "mutation")
    graph = rename_values(graph, _names_without_detach(graph.steps, kept=_differentiable_names(graph)))
    return _fx_graph(rename_values(graph, _names_of_new_states(graph)), capture)


def _differentiable_names(graph: Graph) -> set[str]:
    """Return the locals of values through which a gradient could flow from inputs, if the graph were differentiated: a
    `detach` among them matters. That of the new value of a state does not where nothing else uses it: tracing puts one
    there at the end."""
    names = {port.local for port in graph.inputs if is_differentiable(port.spec)}
    for step in graph.steps:
        if is_differentiable(step.spec) and not names.isdisjoint(used(step)):
            names.add(step.name)
    results = {result for port, result in zip(graph.outputs, graph.results, strict=True) if port.role == "mutation"}
    new_states = {result.name for result in results if isinstance(result, Ref)}
    return names - new_states.difference(*map(used, graph.steps))


@with_frames_of_program
def forward_backward_graphs(
    fn: Callable[..., Any], inputs: Sequence[Any], requires_grad: Sequence[bool] | None = None, *, partition: Any = None
) -> tuple[fx.Graph, fx.Graph]:
    """Return the forward and the backward of `fn(*inputs)`, each a torch.fx.Graph.

    The forward returns outputs, new values of states, and saved values. The backward takes the saved values, under the
    same names, then a tangent for each differentiable output. It returns a gradient for each input that requires grad,
    None where no output depends on it. Inputs and results are else as `bp.inference_graph` has them. `partition` is the
    option of `bp.capture`.
    """
    capture = capture_examples(fn, inputs, _flags_of_tensors(inputs, requires_grad), partition)
    [pair] = capture.pairs
    if pair.backward is None:
        raise UsageError(
            f"{capture.name} has no differentiable output: none depends on an input that requires grad, so there is no "
            "backward to return"
        )
    # Engine `aot` records both in one namespace, so one table of names is for both.
    names = _names_without_detach((*pair.forward.steps, *pair.backward.steps))
    forward, backward = rename_values(pair.forward, names), rename_values(pair.backward, names)
    names_of_backward = {name for step in backward.steps for name in (step.name, *used(step))}
    names = _names_of_new_states(forward, taken=names_of_backward)
    forward = _with_results(rename_values(forward, names), "output", "mutation", "saved")
    return _fx_graph(forward, capture), _fx_graph(rename_values(backward, names), capture)


# ---- The Capture


def capture_examples(
    fn: Callable[..., Any], inputs: Sequence[Any], requires_grad: Any, partition: Any = None
) -> Capture:
    """Capture a call by engine `aot`, in which each example is an input of its own, also where one tensor is passed
    twice. Refuse a call that returns no tensor, and one that reads values, with advice that fits here."""
    if isinstance(inputs, Tensor) or not isinstance(inputs, Sequence):
        raise UsageError(f"inputs must be a tuple of arguments, not a {type(inputs).__name__}: write (x,)")
    # `specialize=False` refuses a program that reads values, which would else become guards.
    options = CaptureOptions(engine="aot", requires_grad=requires_grad, specialize=False, partition=partition)
    try:
        return capture_with_recipes(fn, with_distinct_tensors(tuple(inputs)), {}, options)
    except DataDependentError as error:
        raise DataDependentError(f"{str(error).partition(ADVICE)[0]}{ADVICE_HERE}") from error
    except CaptureError as error:
        if "returns no tensor" in str(error):
            raise UsageError(str(error)) from error
        raise


ADVICE = "Pass specialize=True"
"""How the advice begins that is for captures: the two functions have no such option."""

ADVICE_HERE = (
    "Compute it without reading the value, as torch.where does, or use bp.capture, which follows the branch that this "
    "run takes, and keeps it as a guard"
)


def _flags_of_tensors(inputs: Sequence[Any], requires_grad: Any) -> Any:
    """Return `requires_grad` with an entry for each tensor, where it is a list of flags: it may have one for each
    input, or for each tensor among them. None, a flag and flags by name stay as they are."""
    if requires_grad is None or isinstance(requires_grad, (bool, Mapping)):
        return requires_grad
    flags = [bool(flag) for flag in requires_grad]
    tensors = [isinstance(value, Tensor) for value in inputs]
    if len(flags) == len(inputs):
        return [flag for flag, tensor in zip(flags, tensors, strict=True) if tensor]
    if len(flags) == sum(tensors):
        return flags
    raise UsageError(
        f"requires_grad must have the same length as inputs: {len(flags)} entries for {len(inputs)} inputs"
    )


# ---- Graphs rewritten as data


def _with_results(graph: Graph, *roles: str) -> Graph:
    """Return a graph with the results of these roles alone, in this order, and no dead code. A value that is saved for
    several ports is one result."""
    rows: dict[Any, tuple[Port, Value]] = {}
    for port, result in zip(graph.outputs, graph.results, strict=True):
        if port.role in roles:
            rows.setdefault((port.role, result if port.role == "saved" else port.name), (port, result))
    in_order = sorted(rows.values(), key=lambda row: roles.index(row[0].role))
    outputs, results = tuple(port for port, _ in in_order), tuple(result for _, result in in_order)
    return without_dead_code(replace(graph, outputs=outputs, results=results))


def is_differentiable(spec: Spec) -> bool:
    """Whether a gradient can flow through values of this type."""
    if isinstance(spec, tuple):
        return any(map(is_differentiable, spec))
    return isinstance(spec, TensorSpec) and spec.dtype.startswith(("float", "bfloat", "complex"))


def _names_without_detach(steps: Iterable[Step], kept: Container[str] = ()) -> dict[str, str]:
    """Return the names with which `rename_values` removes each `detach` but those `kept`: the result is named as the
    argument, or as what that is named."""
    names: dict[str, str] = {}
    for step in steps:
        if step.target == "aten.detach.default" and step.name not in kept:
            [argument] = used(step)
            names[step.name] = names.get(argument, argument)
    return names


def _names_of_new_states(graph: Graph, taken: Collection[str] = ()) -> dict[str, str]:
    """Return the names of the new values of states, `new_v` for `v`; none of those that are `taken`. A new value that
    is another input, and no computed one, keeps its name; so does one that has a name of this kind already."""
    states = {port.name: port.local for port in graph.inputs}
    computed = {step.name for step in graph.steps}
    names: dict[str, str] = {}
    for port, result in zip(graph.outputs, graph.results, strict=True):
        if port.role == "mutation" and isinstance(result, Ref) and result.name in computed - names.keys():
            state = states.get(port.name) or re.sub(r"[^0-9a-zA-Z_]", "_", port.name)  # a state that nothing reads
            names[result.name] = free(f"new_{state}", {*taken, *states.values(), *computed, *names.values()})
    return names


def rename_values(graph: Graph, names: Mapping[str, str]) -> Graph:
    """Return a graph with other names of values. Of inputs or steps that get one name the first stays, and is used for
    all. Guards keep their names, which no step uses."""

    def ref(name: str) -> Ref:
        return Ref(names.get(name, name))

    inputs: dict[str, Port] = {}
    for port in graph.inputs:
        inputs.setdefault(ref(port.local).name, replace(port, local=ref(port.local).name))
    steps, defined = [], set(inputs)
    for step in graph.steps:
        name = step.name if step.is_guard else ref(step.name).name
        if step.is_guard or name not in defined:
            steps.append(replace(mapped(step, ref), name=name))
            defined.add(name)
    results = tuple(with_names(result, ref) for result in graph.results)
    return replace(graph, inputs=tuple(inputs.values()), steps=tuple(steps), results=results)


def _fx_graph(graph: Graph, capture: Capture) -> fx.Graph:
    """Return a torch.fx Graph, whose constants are buffers of its module in the place of inputs: `get_attr` nodes with
    the metadata of the inputs' nodes."""
    module = to_fx(graph)
    values = capture.origin.values()  # also of a tensor that an object of the program holds
    for node in module.graph.find_nodes(op="placeholder"):
        if node.meta["port"].role == "constant":
            module.register_buffer(node.name, values[node.meta["port"].name])
            with module.graph.inserting_before(node):
                constant = module.graph.create_node("get_attr", node.name)
            constant.meta = dict(node.meta)
            node.replace_all_uses_with(constant)
            module.graph.erase_node(node)
    module.recompile()
    return module.graph
