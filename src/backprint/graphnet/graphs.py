"""A `model.py` that Backprint wrote: the text of a Graph, as a direction of a sample or in a tree for GraphNet's tools.

It is another language than GraphNet's own code: steps with annotations, `aten.NAME.OVERLOAD` calls and guards. Nothing
of the file is executed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from backprint.errors import GraphError, RefusedError
from backprint.graph.fixed import at_capture, contiguous_inputs, tensors_alone
from backprint.graph.nouns import Graph, TensorSpec, custom_operators
from backprint.graph.steps import live
from backprint.graph.text import HEADER, parse
from backprint.graphnet.code import ForwardArgument
from backprint.graphnet.meta import Meta
from backprint.sample.standalone import MARKER, is_ending

ALIASES = HEADER.rstrip("\n").rpartition("\n")[2]
"""The line of the header that no code of GraphNet's own has."""

DEVICE = re.compile(r"torch\.device\('([a-z]+)(?::(\d+))?'\)")
MOVABLE_DEVICE = re.compile(r'\bdevice\(type="([a-z]+)"(?:, index=(\d+))?\)')
IMPORT, MOVABLE_IMPORT = "from torch import inf, nan\n", "from torch import device, inf, nan\n"


def with_movable_devices(text: str) -> str:
    """The text of a graph with its devices written as GraphNet's tools find them."""
    text = DEVICE.sub(lambda found: f'device(type="{found[1]}"' + (f", index={found[2]})" if found[2] else ")"), text)
    return text.replace(IMPORT, MOVABLE_IMPORT, 1)


def without_movable_devices(text: str) -> str:
    """The text of a graph as it was before `with_movable_devices`."""
    if MOVABLE_IMPORT not in text:
        return text
    text = MOVABLE_DEVICE.sub(
        lambda found: f"torch.device('{found[1]}" + (f":{found[2]}')" if found[2] else "')"), text
    )
    return text.replace(MOVABLE_IMPORT, IMPORT, 1)


def is_graph_text(text: str) -> bool:
    """Whether a `model.py` is the text of a Graph."""
    return f"\n{ALIASES}\n" in text


def read_graph_text(text: str) -> Graph:
    """Parse the text of a Graph into one that takes and returns tensors alone, at the sizes of its capture."""
    body, marker, rest = text.partition(MARKER)
    graph = parse(without_movable_devices(body))
    if marker and not is_ending(marker + rest):
        number = body.count("\n") + 1
        raise RefusedError(f"line {number}: the lines below the graph are not those that samples end with")
    for step, target in custom_operators(graph):
        name = target.removeprefix("torch.ops.")
        raise RefusedError(f"step {step.name!r} calls {name}, which is not an operator of PyTorch")
    graph = contiguous_inputs(tensors_alone(without_saved(at_capture(graph))))
    for port in graph.inputs:
        if not isinstance(port.spec, TensorSpec):
            raise GraphError(f"the graph takes {port.name!r}, which is not a tensor, so no metadata can say what it is")
    return graph


def without_saved(graph: Graph) -> Graph:
    """A forward without the values that it saves for its backward; a graph that returns nothing else as it is."""
    kept = [(p, r) for p, r in zip(graph.outputs, graph.results, strict=True) if p.role != "saved"]
    if not kept:
        return graph
    return live(replace(graph, outputs=tuple(port for port, _ in kept), results=tuple(result for _, result in kept)))


def graph_arguments(graph: Graph) -> tuple[ForwardArgument, ...]:
    """The inputs of a Graph as arguments of a `forward`."""
    return tuple(
        ForwardArgument(port.local, "Parameter" if port.role == "parameter" else "Tensor", 1) for port in graph.inputs
    )


def with_graph_dtypes(graph: Graph, metas: Mapping[str, Meta]) -> dict[str, Meta]:
    """Metadata that lacks dtypes, with those of the Graph's inputs."""
    dtypes = {port.local: port.spec.dtype for port in graph.inputs if isinstance(port.spec, TensorSpec)}
    return {name: replace(meta, dtype=dtypes.get(name, meta.dtype)) for name, meta in metas.items()}


ROLES: Mapping[str, tuple[str, str]] = {
    "parameter": ("parameter", "a parameter of the graph"),
    "buffer": ("buffer", "a buffer of the graph"),
    "constant": ("buffer", "a constant of the graph"),
    "saved": ("input", "an input of a backward, which has no backward of its own"),
    "tangent": ("input", "an input of a backward, which has no backward of its own"),
}


def graph_roles(graph: Graph) -> dict[str, tuple[str, str]]:
    """The role of each input of a Graph in a sample, by its name in the code, and why it has that role."""
    return {port.local: ROLES.get(port.role, ("input", "")) for port in graph.inputs}
