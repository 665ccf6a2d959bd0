"""Capture the forward of a part again, if the whole's backward does not separate at its borders."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from torch import Tensor

from backprint.fx.to_fx import to_fx
from backprint.graph.costing.products import specs_of
from backprint.graph.nouns import Graph, Pair, Port, Ref, custom_operators
from backprint.graph.steps import live
from backprint.parts.borders import Borders
from backprint.parts.flow import PartRun
from backprint.parts.forwards import ForwardPart
from backprint.parts.pairs import forward_graph
from backprint.replaying.at_capture import held_against_program
from backprint.tracing.entry import capture_call


def derived(forward: Graph, borders: Borders, part: ForwardPart, ran: PartRun, title: str) -> Pair:
    """Capture a part of a forward again from its steps, under its own names."""
    graph = forward_graph(forward, part, borders.names, (), specs_of(forward), title)
    graph = live(replace(graph, steps=tuple(step for step in graph.steps if not step.is_guard)))
    module = to_fx(graph)
    asked = {borders.names.of(local) if local in part.gives else "" for local in ran.tangents}
    asked |= {port.name for port, value in part.results if isinstance(value, Ref) and value.name in ran.tangents}
    pulled = [port.role == "output" and port.name in asked for port in graph.outputs]

    def again(*inputs: Any) -> tuple[Any, ...]:
        return tuple(
            value if pull or not isinstance(value, Tensor) else value.detach()
            for value, pull in zip(module(*inputs), pulled, strict=True)
        )

    tracked = [port.local in ran.gradients for port in graph.inputs]
    values = [
        value.detach().clone().requires_grad_(asks) if isinstance(value, Tensor) else value
        for value, asks in zip((ran.values[port.local] for port in graph.inputs), tracked, strict=True)
    ]
    taken = capture_call(
        again, tuple(values), {}, requires_grad=None if any(tracked) else [], name="part",
        allow=tuple(target for _, target in custom_operators(graph)), check=held_against_program,
    )  # fmt: skip
    return renamed(taken.pairs[0], graph, title)


def renamed(pair: Pair, graph: Graph, title: str) -> Pair:
    """Return a Pair of a function of numbered inputs and outputs, with the ports of the graph that the function ran."""
    ports = dict(enumerate(graph.inputs))
    taken = {port.name for port in graph.inputs}  # a border's name may be that of a value made anew here

    def at(text: str) -> int:
        found = re.search(r"\d+$", text)
        return int(found[0]) if found else 0

    def incoming(port: Port) -> Port:
        if port.role == "tangent":
            return replace(port, name=graph.outputs[at(port.name)].name)
        if port.role == "saved":
            return replace(port, name=saved_name(port.name))
        if port.role == "constant":
            return port
        return replace(ports[at(port.name)], local=port.local)

    def saved_name(text: str) -> str:
        if re.fullmatch(r"inputs\.\d+", text):
            return graph.inputs[at(text)].name
        while text in taken:
            text += "~"
        return text

    def outgoing(port: Port) -> Port:
        if port.role == "gradient":
            return replace(port, name=ports[at(port.name)].name)
        if port.role == "saved":
            return replace(port, name=saved_name(port.name))
        own = graph.outputs[at(port.name)]
        return replace(own, spec=port.spec)

    def side(was: Graph) -> Graph:
        inputs, outputs = tuple(map(incoming, was.inputs)), tuple(map(outgoing, was.outputs))
        return replace(was, inputs=inputs, outputs=outputs, title=title)

    return Pair(title, side(pair.forward), side(pair.backward) if pair.backward is not None else None)
