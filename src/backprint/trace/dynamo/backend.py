"""Capture a graph that Dynamo has made of a program while the program waits for it.

Engine `aot` captures the graph like any program; each operator has the line that Dynamo noted. The program itself
continues with `as_eager` of the graph. Dynamo's source of a graph input is the expression by which the program reaches
it: `L['self']._parameters['weight']`; names and roles of inputs follow from it. A GraphRun is a graph with the inputs
that it runs on.

A CalledProgram is a callable with the named tensors of one call, a GraphFunction the callable that runs a graph, and a
NamedTensor the name, role and `requires_grad` of a tensor.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils.checkpoint import checkpoint, noop_context_fn

from backprint._torch.dynamo import (
    CONTEXT_OF_CHECKPOINT,
    CompileContext,
    InstructionTranslator,
    SkipFrame,
    TagActivationCheckpoint,
    tag_activation_checkpoint,
    tracing,
)
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.nouns import Capture
from backprint.trace import frames
from backprint.trace.aot.engine import by_aot
from backprint.trace.captured import capture_of
from backprint.trace.custom import with_operator_bodies
from backprint.trace.dynamo.graphs import (
    GraphFunction,
    collect,
    example_values,
    function_of,
    line_of,
    name_of_source,
    program_of,
    role_of_source,
    source_of_placeholder,
)
from backprint.trace.program import CalledProgram, NamedTensor, free_name
from backprint.values.settings import outside_modes, preserving_random_states

LeaveUncompiled = SkipFrame
"""Raised in a backend: Dynamo leaves the frame as it is, and the program runs it uncompiled."""


@contextlib.contextmanager
def outside_tracing() -> Iterator[None]:
    """Leave Dynamo's tracing context and inference mode, and restore random states afterwards."""
    with tracing(None), preserving_random_states(), outside_modes():
        yield


def capture_graph(
    module: fx.GraphModule, inputs: Sequence[Any], name: str | None = None, **engine_options: Any
) -> Capture:
    """Capture one graph of Dynamo's on the inputs it is compiled for; `engine_options` are fields of CaptureOptions.

    `name` is the name of the Capture. Gradients are traced if the program runs in grad mode. Sizes that Dynamo has made
    symbolic are symbolic here too.
    """
    has_symbolic_size = any(isinstance(value, torch.SymInt) for value in example_values(module))
    options = CaptureOptions(**{"dynamic": has_symbolic_size, "name": name, **engine_options})

    def capture_once() -> Capture:
        program = _waiting_program(module, inputs)
        with outside_tracing():
            return capture_of(by_aot(program, options), "dynamo", options)

    # Once, or again with some custom operators whole.
    return with_operator_bodies(capture_once, options)


def _waiting_program(module: fx.GraphModule, inputs: Sequence[Any]) -> CalledProgram:
    """Return a graph that is being compiled, and the inputs that it is compiled for, as a program; each input is named
    by its source."""
    # Parameters are not copied: the program waits, so nothing writes to them.
    ran = collect(module, inputs, stays=lambda tensor: isinstance(tensor, nn.Parameter))
    tensors: list[NamedTensor] = []
    names: list[str | None] = []  # None for an input that is no tensor
    for node, value in zip(module.graph.find_nodes(op="placeholder"), inputs, strict=True):
        if not isinstance(value, Tensor):
            names.append(None)
            continue
        source = source_of_placeholder(node)
        names.append(free_name(name_of_source(source), tensors))
        requires_grad = value.requires_grad and torch.is_grad_enabled()
        tensors.append(NamedTensor(str(names[-1]), role_of_source(source, value), requires_grad))
    function = GraphFunction(module, ran.modes)
    title = function_of(module.graph)
    # Of the program itself only this graph is known: neither its modules nor its hooks.
    return program_of(ran, function, names, tensors, paths={}, title=title, more={}, hooks={})


# ---- The function that the program runs in the place of the graph


def as_eager(module: fx.GraphModule) -> Callable[..., Any]:
    """Return a graph of Dynamo's as a function that computes the same as eager; raise `LeaveUncompiled` if that is
    impossible.

    Run by itself, Dynamo's checkpoint operator recomputes without the random state of the first run, because Inductor
    would have put the state into the graph: a dropout has another mask. So `torch.utils.checkpoint` replaces the
    operator, in the given module itself.
    """
    for node in _checkpoint_nodes(module):
        # A program that requests one graph cannot leave the frame uncompiled.
        if node.kwargs.get("use_reentrant") is not False and not _requests_full_graph():
            raise LeaveUncompiled(
                f"it calls torch.utils.checkpoint with use_reentrant={node.kwargs.get('use_reentrant')}"
                f"{frames.place(line_of(node, {}))}: a backward inside the backward, which Dynamo's graph does not have"
            )
    placeholders = module.graph.find_nodes(op="placeholder")
    _replace_checkpoints(module, in_closure=frozenset(filter(_is_parameter_or_buffer, placeholders)))
    return module.forward


def _checkpoint_nodes(module: fx.GraphModule) -> list[fx.Node]:
    """Return the calls of `torch.utils.checkpoint` in a graph and its subgraphs."""
    parts = [part for part in module.modules() if isinstance(part, fx.GraphModule)]
    node_lists = (part.graph.find_nodes(op="call_function", target=tag_activation_checkpoint) for part in parts)
    return [node for nodes in node_lists for node in nodes]


def _requests_full_graph() -> bool:
    """Whether the program requests one graph (`fullgraph=True`), so that none of its frames can be skipped."""
    return bool(InstructionTranslator.current_tx().one_graph)


def _is_parameter_or_buffer(node: fx.Node) -> bool:
    """Whether a placeholder is a parameter or buffer: a checkpointed function has it in its closure."""
    value = node.meta.get("example_value")
    return isinstance(value, Tensor) and role_of_source(source_of_placeholder(node), value) in ("parameter", "buffer")


def _replace_checkpoints(part: fx.GraphModule, in_closure: frozenset[fx.Node]) -> None:
    """Put eager's checkpoint in the place of Dynamo's operator in a graph and its subgraphs. `in_closure` are the
    graph's placeholders that are parameters or buffers: in the program the checkpointed function has them in its
    closure."""
    # For each checkpointed subgraph by name, its placeholders that are in the closure too: those that take such values.
    closure_of_body: dict[str, frozenset[fx.Node]] = {}
    for node in part.graph.find_nodes(op="call_function", target=tag_activation_checkpoint):
        body, *inputs = node.args
        are_inside = tuple(value in in_closure for value in inputs)
        placeholders = part.get_submodule(body.target).graph.find_nodes(op="placeholder")
        closure_of_body[body.target] = frozenset(
            placeholder for placeholder, is_inside in zip(placeholders, are_inside, strict=True) if is_inside
        )
        node.target, node.args = _run_checkpoint, (body, are_inside, *inputs)
    for name, child in part.named_children():
        if isinstance(child, fx.GraphModule):
            _replace_checkpoints(child, closure_of_body.get(name, frozenset()))
    part.recompile()


def _run_checkpoint(body: fx.GraphModule, inside: tuple[bool, ...], *args: Any, **kwargs: Any) -> Any:
    """Call `torch.utils.checkpoint.checkpoint` on a subgraph as eager does. `inside` says for each argument whether it
    is in the closure of the checkpointed function, as parameters are, and not passed as an argument."""
    # The options of `checkpoint`, and the keyword arguments of the body.
    options, keywords = TagActivationCheckpoint.divide_kwargs(kwargs)
    options.setdefault("context_fn", body.meta.get(CONTEXT_OF_CHECKPOINT, noop_context_fn))
    closure = [arg if is_inside else None for arg, is_inside in zip(args, inside, strict=True)]

    def run(*passed: Any, **named: Any) -> Any:
        rest = iter(passed)
        pairs = zip(closure, inside, strict=True)
        return body.forward(*(arg if is_inside else next(rest) for arg, is_inside in pairs), **named)

    outside = (arg for arg, is_inside in zip(args, inside, strict=True) if not is_inside)
    return checkpoint(run, *outside, **options, **keywords)


def compile_name(module: fx.GraphModule) -> str:
    """Return a name for a graph: its function, and Dynamo's numbers of the frame and of its compilation:
    `forward_0_1`."""
    number = CompileContext.current_compile_id()
    counted = str(number).strip("[]").replace("/", "_") if number is not None else str(next(_COUNT))
    return re.sub(r"\W", "_", f"{function_of(module.graph)}_{counted}")


_COUNT = itertools.count()
"""Numbers for graphs that have no number of Dynamo's."""
