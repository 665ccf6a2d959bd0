"""One graph of Dynamo's as a program: the names of its inputs, its lines, the modes that it runs under, and the
function that computes it.

`program_of` makes the program, and engine `aot` captures it: for the backend of `torch.compile`, while the program
waits, and for engine `dynamo`, when the whole program has run. Only plain texts are read of Dynamo's descriptions of
inputs and nodes (`source.name`, `stack_trace`, `nn_module_stack`). Dynamo's source of an input is the expression by
which the program reaches it, from a local (`L`) or global (`G`) variable: `L['self']._parameters['weight']`. A place
is the index of an input or output of a graph.

A CalledProgram is a callable with the named tensors of one call: TensorSlots stand for the tensors among its arguments,
and a HeldTarget holds the callable. A NamedTensor is the name, role and `requires_grad` of a tensor.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx.traceback as fx_traceback
from torch import Tensor, fx, nn

from backprint._torch import pytree
from backprint._torch.dynamo import TracingContext, tag_activation_checkpoint
from backprint._torch.fake import FakeTensor, FunctionalTensor
from backprint.graph.nouns import Source
from backprint.trace import frames
from backprint.trace.program import CalledProgram, HeldTarget, NamedTensor, TensorSlot, check_tensor
from backprint.values.tree import copy_values

# ---- Names and roles of inputs

NOT_IN_NAMES = ("_modules", "_parameters", "_buffers", "__closure__", "cell_contents", "__dict__", "__defaults__")
"""Parts of a source by which Python and torch reach a tensor, and which are not part of its name."""

_PART = re.compile(r"\['(?P<key>(?:[^'\\]|\\.)*)'\]|\[(?P<index>[^\]]+)\]|\.(?P<attribute>\w+)|(?P<root>[LG])(?=\[)")


def _parts_of_source(source: str) -> list[str]:
    """Return the parts of `L['self']._modules['fc']._parameters['weight']`: `L self _modules fc _parameters weight`."""
    return [next(filter(None, match.groups()), "") for match in _PART.finditer(source)]


def name_of_source(source: str) -> str:
    """Return the program's own name of the tensor with this source of Dynamo's: `fc.weight` in the module itself,
    `model.fc.weight` elsewhere, `batch.x.0`."""
    root, *parts = _parts_of_source(source) or [""]
    parts = [part for part in parts if part not in NOT_IN_NAMES]
    if parts[:1] == ["self"] and len(parts) > 1:
        parts = parts[1:]
    first, *rest = parts or [""]
    name = ".".join([first.strip("_") or first, *rest])  # `x` for an argument `_x`, but `_` stays
    return name or root or "input"


def role_of_source(source: str, value: Any) -> str:
    """Return the role of the tensor `value` with this source of Dynamo's: `parameter`, `buffer`, `input`, or `constant`
    if it comes from outside: from a global, a closure, or an attribute of a module that is none of its parameters and
    buffers."""
    parts = _parts_of_source(source)  # the first is L or G, the second the variable
    if "_parameters" in parts or isinstance(value, nn.Parameter):
        return "parameter"
    if "_buffers" in parts:
        return "buffer"
    outside = parts[:1] == ["G"] or "__closure__" in parts or parts[1:2] == ["self"]
    return "constant" if outside else "input"


def source_of_placeholder(node: fx.Node) -> str:
    """Return Dynamo's source of a graph input, such as `L['x']`; the node's own name if there is none."""
    argument = node.meta.get("grapharg")
    source = getattr(argument, "source", None)
    return str(source.name) if source is not None else str(node.target)


# ---- Lines, module paths, and the name of the function


def set_node_sources(module: fx.GraphModule, paths: Mapping[int, str]) -> None:
    """Set every node's line of the user's program where `frames` looks for it, in subgraphs too. `paths` has the paths
    of the program's modules, by identity."""
    for node in module.graph.nodes:
        node.meta[frames.SOURCE_KEY] = line_of(node, paths)
    for child in module.children():
        if isinstance(child, fx.GraphModule):
            set_node_sources(child, paths)


def line_of(node: fx.Node, paths: Mapping[int, str]) -> Source | None:
    """Return the user's line of a node of Dynamo's, with the module whose forward it is in; a line of torch's own
    modules where the stack has none of the user's, and None where nothing is known. `paths` has the paths of the
    program's modules, by identity."""
    stack = node.meta.get("nn_module_stack") or {}
    place = frames.place_in_trace(node.meta.get("stack_trace") or "")
    if place is None and stack:
        _, class_of_innermost = list(stack.values())[-1]
        place = frames.place_in_module(class_of_innermost, node.target)
    return frames.source(*place, _module_of(stack, paths)) if place is not None else None


def _module_of(stack: Mapping[Any, tuple[str, Any]], paths: Mapping[int, str]) -> str:
    """Return the path of the innermost module of a node: its path in `paths` (by the module's identity), else as Dynamo
    spells it, if the program's modules are unknown or the key is no id.

    `stack` is the node's `nn_module_stack`: for each module, its key, Dynamo's spelling and the class.
    """
    for key, (spelled, _) in reversed(list(stack.items())):
        # Dynamo's keys are ids of modules; a module that is called again has `@` and a count after it.
        number = str(key).partition("@")[0]
        if number.isdigit() and int(number) in paths:
            return paths[int(number)]
        if not paths or not number.isdigit():
            # Of `L['net'].layers['0']`, the root is `L['net']`, and the inner path `layers.0`.
            root = str(spelled).partition("]")[0] + "]"
            inner = re.sub(r"\['?([^'\]]*)'?\]", r".\1", str(spelled).removeprefix(root)).strip(".")
            return inner if root == "L['self']" else name_of_source(root) + (f".{inner}" if inner else "")
    return ""


def function_of(graph: fx.Graph) -> str:
    """Return the name of the user's function that a graph of Dynamo's comes from: `Net.forward` while Dynamo compiles
    it, `forward` later; `graph` if it is not known. Code after a graph break, which Dynamo names a resumption, has the
    name of its function."""
    traced_codes = TracingContext.get_traced_code() if TracingContext.try_get() else None
    if traced_codes:
        code = traced_codes[0]  # of the frame that Dynamo compiles
        name = frames.without_resumption(code.co_name)
        # `make.<locals>.Net.forward` is `Net.forward`.
        qualified = str(code.co_qualname).rpartition("<locals>.")[2].replace("<lambda>", "lambda")
        return qualified if name == code.co_name else name
    for node in graph.nodes:
        if functions := frames.functions_in_trace(node.meta.get("stack_trace") or ""):
            return frames.without_resumption(functions[0])
    return "graph"


# ---- A graph as a function


@dataclass(frozen=True, slots=True)
class OuterModes:
    """The modes that a graph runs under and does not contain: grad mode and autocast."""

    grad: bool
    autocast: tuple[tuple[str, torch.dtype], ...]

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Set the same modes for a block."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for device, dtype in self.autocast:
                stack.enter_context(torch.autocast(device, dtype))
            yield


def current_modes() -> OuterModes:
    """Return the current modes."""
    on = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    return OuterModes(torch.is_grad_enabled(), tuple((device, torch.get_autocast_dtype(device)) for device in on))


class _GraphRunner(fx.Interpreter):
    """Runs a graph node by node. Outside of a trace it runs a checkpointed body once: a recomputation would be the
    same, but Dynamo's operator, which is made to be traced, would draw other random numbers in it."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is tag_activation_checkpoint and not any(isinstance(value, TRACED) for value in args):
            body, *inputs = args
            return _GraphRunner(body).run(*inputs)
        return super().call_function(target, args, kwargs)


TRACED = (FakeTensor, FunctionalTensor)
"""The classes of the tensors on which AOTAutograd traces a function."""


@dataclass(slots=True, eq=False)
class GraphRun:
    """One run of a graph of Dynamo's: its inputs, the modes around it, and, when it has run, its outputs.

    `values` has copies of the tensors among the inputs, by place; tensors that keep their values are not copied.
    `requires_grad_before` and `requires_grad_after` say which inputs require grad before and after the run.
    """

    module: fx.GraphModule
    inputs: tuple[Any, ...]
    values: dict[int, Tensor]
    modes: OuterModes
    requires_grad_before: tuple[bool, ...]
    outputs: tuple[Any, ...] = ()
    requires_grad_after: tuple[bool, ...] = ()


def collect(module: fx.GraphModule, inputs: Sequence[Any], stays: Callable[[Tensor], bool]) -> GraphRun:
    """Return a GraphRun, still without outputs, of a graph that Dynamo has made and of the inputs that it runs on next.
    A tensor of which `stays` returns true keeps its values, and is not copied."""
    tensors = {place: tensor for place, tensor in enumerate(inputs) if isinstance(tensor, Tensor)}
    copies = copy_values({str(place): tensor for place, tensor in tensors.items() if not stays(tensor)})
    values = {place: copies.get(str(place), tensor) for place, tensor in tensors.items()}
    return GraphRun(module, tuple(inputs), values, current_modes(), requires_grad_flags(inputs))


def requires_grad_flags(inputs: Sequence[Any]) -> tuple[bool, ...]:
    """Return for each input whether it is a tensor that requires grad."""
    return tuple(isinstance(value, Tensor) and value.requires_grad for value in inputs)


ValueRead = tuple[int, "Source | None"]
"""The place of a tensor whose number the program reads, and the line that reads it."""


@dataclass(frozen=True, eq=False)
class GraphFunction:
    """A graph of Dynamo's as a function of its tensors: engine `aot` traces it, and it is the reference of its Pair.

    `returned` are the places of the results that it returns, each with whether it needs a gradient (else it is
    detached); None returns all. The program reads values of inputs before the graph runs (`read_before`, places among
    the inputs), and afterwards (`read_after`, places among the results; -1, -2, … are the first input, the second, …).
    Inputs that the graph itself does not take come last.
    """

    module: fx.GraphModule
    modes: OuterModes
    returned: tuple[tuple[int, bool], ...] | None = None
    read_before: tuple[ValueRead, ...] = ()
    read_after: tuple[ValueRead, ...] = ()
    __name__ = "graph"

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run the graph, with the program's reads of values around it, and return the results in `returned` (None:
        all).

        A read is of an input before the graph runs (`read_before`), or of a result after it (`read_after`, where -1
        stands for the first input, -2 for the second, …). Inputs after those of the graph are only read.
        """
        examples = example_values(self.module)
        own = list(inputs[: len(examples)])
        for place, source in self.read_before:
            _read_value(inputs[place], source)
        # A symbolic size among the inputs is read from the tensor that has it, so that it is a size of the trace.
        for place, (place_of_tensor, dim) in _sizes_of_tensors(examples).items():
            own[place] = own[place_of_tensor].shape[dim]
        # The graph runs node by node: each operator gets the line of its node (`set_node_sources`).
        with self.modes.entered(), fx_traceback.preserve_node_meta():
            results = tuple(_GraphRunner(self.module).run(*own))
        for place, source in self.read_after:
            _read_value(results[place] if place >= 0 else own[-1 - place], source)
        if self.returned is None:
            return results
        return tuple(
            results[place] if needs_gradient else _without_history(results[place])
            for place, needs_gradient in self.returned
        )


def _read_value(tensor: Tensor, source: Source | None) -> None:
    """Read a number at the line of the program's own read: the trace makes it a guard."""
    with frames.at_line(source):
        tensor.item()


def _without_history(value: Any) -> Any:
    """Return a detached tensor; anything else itself."""
    return value.detach() if isinstance(value, Tensor) else value


def example_values(module: fx.GraphModule) -> list[Any]:
    """Return Dynamo's example value of each input: a fake tensor, a SymInt, or None."""
    return [node.meta.get("example_value") for node in module.graph.find_nodes(op="placeholder")]


def _sizes_of_tensors(examples: Sequence[Any]) -> dict[int, tuple[int, int]]:
    """Return for the place of each symbolic size among the inputs the place of a tensor that has this size, with the
    dimension."""
    # By the expression of a size, the first tensor and dimension that has it.
    dimensions: dict[Any, tuple[int, int]] = {}
    for place, example in enumerate(examples):
        for dim, size in enumerate(example.shape if isinstance(example, Tensor) else ()):
            if isinstance(size, torch.SymInt):
                dimensions.setdefault(size.node.expr, (place, dim))
    return {
        place: dimensions[example.node.expr]
        for place, example in enumerate(examples)
        if isinstance(example, torch.SymInt) and example.node.expr in dimensions
    }


# ---- A graph as a program


def program_of(
    ran: GraphRun,
    function: GraphFunction,
    names: Sequence[str | None],
    tensors: Sequence[NamedTensor],
    paths: Mapping[int, str],
    title: str,
    more: Mapping[str, Tensor],
    hooks: Mapping[str, tuple[Any, ...]],
) -> CalledProgram:
    """Return one run of a graph as a program, whose callable is `function`.

    `names` has for each input its name, or None if it is no tensor, and `tensors` has all named tensors. `paths` has
    the paths of the whole program's modules by identity, `title` the name for messages, and `hooks` the gradient hooks
    of the whole program's tensors by name. `more` are tensors that the function takes and the graph does not.
    """
    values = {name: ran.values[place] for place, name in enumerate(names) if name is not None}
    for name, value in values.items():
        check_tensor(name, value)
    set_node_sources(ran.module, paths)
    # The leaves of the call: a slot for each tensor, the number of a symbolic size (its hint), and any other value
    # itself.
    leaves = tuple(
        TensorSlot(name) if name is not None else value.node.hint if isinstance(value, torch.SymInt) else value
        for name, value in zip((*names, *more), (*ran.inputs, *more.values()), strict=True)
    )
    return CalledProgram(
        target=HeldTarget(function),
        arguments=tuple(named.name for named in tensors if named.role == "input"),
        structure=pytree.tree_flatten((leaves, {}))[1],  # the tree of all arguments, without keyword arguments
        leaves=leaves,
        leaf_names=tuple(name or "" for name in (*names, *more)),
        tensors=tuple(tensors),
        values={**more, **values},
        hooks={name: own for name, own in hooks.items() if name in values},
        title=title,
    )
