"""Trace each graph of a run under Dynamo to a Pair, the last first: later graphs decide whether an output requires
grad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from backprint._torch import pytree
from backprint._torch.modes import enter_autocast
from backprint.errors import CaptureError
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Graph, Guard, Link, Pair
from backprint.tracing.aot.from_fx import read_fx
from backprint.tracing.aot.trace import trace
from backprint.tracing.assembly import assemble
from backprint.tracing.dynamo.book import TensorBook
from backprint.tracing.dynamo.frontend import GraphRun
from backprint.tracing.dynamo.graphed import Graphed
from backprint.tracing.made import Options, Part
from backprint.tracing.program import CalledProgram, Held, ScoutedProgram, Slot, called_program
from backprint.tracing.scout import scout


@dataclass(frozen=True, slots=True)
class TracedPair:
    """A Pair, the program behind it, the tensors of its constant ports, and its guards."""

    pair: Pair
    part: Part
    constants: dict[str, Tensor]
    guards: tuple[Guard, ...]


def trace_all(book: TensorBook, options: Options) -> tuple[TracedPair, ...]:
    """Return every graph as a Pair, in the order in which they ran."""
    refuse_shared_hooks(book)
    refuse_shared_casts(book)
    found: dict[int, TracedPair] = {}
    for index in reversed(range(len(book.entries))):
        found[index] = trace_pair(book, index, {later: each.pair for later, each in found.items()}, options)
    return tuple(found[index] for index in range(len(book.entries)))


def trace_pair(book: TensorBook, index: int, later: Mapping[int, Pair], options: Options) -> TracedPair:
    """Trace one graph to a Pair; `later` are the Pairs of the graphs after it."""
    entry = book.entries[index]
    called, places = program_of_pair(book, index, later)
    part, seen = scout(called)
    names = [entry.outputs[place] for place, _ in places]
    specialize = options.specialize or bool(entry.after or (index == 0 and book.before))
    made = trace(part, seen, specialize, options.partition, options.decompose)
    if made.unforeseen:
        raise CaptureError(
            f"{made.unforeseen[0]} reads values inside an operator or its backward, where engine 'dynamo' has no "
            "step that could check them: engine 'eager' keeps them as a guard"
        )
    numbered = {f"output.{number}": name for number, name in enumerate(names)}
    made = replace(
        made,
        outputs=tuple((numbered.get(name, name), role) for name, role in made.outputs),
        tangents=tuple(numbered.get(name, name) for name in made.tangents),
    )
    assembled = assemble(read_fx(part, made).joint)
    own = {**assembled.constants, **part.outside}
    pair, table = with_constants(assembled.pair, index, own)
    return TracedPair(
        pair,
        Part(renamed_parts(part, table), tuple(names)),
        {table[name]: tensor for name, tensor in own.items()},
        tuple(replace(each, inputs=origins(book, index, each.inputs, table)) for each in assembled.guards),
    )


def refuse_shared_hooks(book: TensorBook) -> None:
    """Refuse a gradient hook on a tensor that several Pairs use: it would see only a part of the gradient in each."""
    for name in book.program.hooks:
        users = [index for index, entry in enumerate(book.entries) if name in entry.names]
        handed = [link for link in book.links if link.source is None and link.port.name == name]
        if len(users) + len(handed) > 1:
            raise CaptureError(f"{name} has a gradient hook and is used by {len(users)} graphs: each sees a part of it")


def refuse_shared_casts(book: TensorBook) -> None:
    """Refuse a weight that autocast casts in several graphs: the gradients of the one copy add up before the cast
    back."""
    casting = [entry for entry in book.entries if casts(entry.ran)]
    for entry in casting if torch.is_autocast_cache_enabled() else ():
        for name, tensor, asking in zip(entry.names, entry.ran.inputs, entry.ran.asked, strict=True):
            users = [other for other in casting if name in other.names]
            if asking and tensor.is_leaf and len(users) > 1:
                raise CaptureError(
                    f"{name} is used under autocast by {len(users)} graphs: autocast casts it once where they are in "
                    "one region, and engine 'dynamo' does not track that copy from one graph into another"
                )


def casts(ran: GraphRun) -> bool:
    """Whether a graph runs under autocast, or in part."""
    entered = any(node.target is enter_autocast for node in ran.module.graph.nodes)
    return bool(ran.under.autocast) or entered


def program_of_pair(
    book: TensorBook, index: int, later: Mapping[int, Pair]
) -> tuple[CalledProgram, list[tuple[int, bool]]]:
    """Return a Pair's program with the outputs that are used and its reads, and the places of those outputs."""
    entry, program = book.entries[index], book.entries[index].program
    places = used_outputs(book, index, later)
    before = tuple((name, read.source) for name, read in book.before) if index == 0 else ()
    graphed = Graphed(entry.ran.module, entry.ran.under, tuple(places), before, tuple(entry.after))
    known = {named.name for named in program.tensors}
    extra = [(named, value) for named, value in entry.extra if named.name not in known]
    order = {named.name: place for place, named in enumerate(book.program.tensors)}
    tensors = sorted(
        (*program.tensors, *(named for named, _ in extra)), key=lambda named: order.get(named.name, len(order))
    )
    leaves = (*program.leaves, *map(Slot, graphed.extra))
    return called_program(
        program,
        target=Held(graphed),
        tensors=tuple(named for named in tensors if named.name not in program.outside),
        values={**program.values, **{named.name: value for named, value in extra}},
        leaves=leaves,
        leaf_names=(*program.leaf_names, *graphed.extra),
        structure=pytree.tree_flatten((tuple(leaves), {}))[1],
    ), places


def used_outputs(book: TensorBook, index: int, later: Mapping[int, Pair]) -> list[tuple[int, bool]]:
    """Return the places of a graph's outputs that a link uses, each with whether a gradient comes back."""
    entry, found = book.entries[index], []
    for place, name in enumerate(entry.outputs):
        links = [link for link in book.links if link.source == index and link.port == PortKey("output", name)]
        if links:
            found.append((place, entry.asking[place] and any(comes_back(link, later) for link in links)))
    return found


def comes_back(link: Link, pairs: Mapping[int, Pair]) -> bool:
    """Whether a gradient comes back over a link."""
    if link.target is None:
        return True
    backward = pairs[link.target].backward
    if backward is None:
        return False
    ports = zip(backward.outputs, backward.results, strict=True)
    return any(port.name == link.name and result is not None for port, result in ports)


def with_constants(pair: Pair, index: int, constants: Mapping[str, Tensor]) -> tuple[Pair, dict[str, str]]:
    """Return the Pair under its own name, with names for its constants that no other Pair uses."""
    table = {name: f"pair_{index}.{name}" for name in constants}

    def other(graph: Graph | None) -> Graph | None:
        if graph is None:
            return None
        inputs = tuple(replace(port, name=table.get(port.name, port.name)) for port in graph.inputs)
        return replace(graph, inputs=inputs)

    forward = other(pair.forward)
    assert forward is not None
    return Pair(f"pair_{index}", forward, other(pair.backward)), table


def renamed_parts(part: ScoutedProgram, table: Mapping[str, str]) -> ScoutedProgram:
    """Name the outside tensors of a Pair's program as its ports."""
    held = {table.get(name, name): tensor for name, tensor in part.outside.items()}
    tensors = tuple(replace(named, name=table.get(named.name, named.name)) for named in part.tensors)
    return replace(part, outside=held, tensors=tensors)


def origins(book: TensorBook, index: int, names: Sequence[str], table: Mapping[str, str]) -> tuple[str, ...]:
    """Return the program's own tensors that values of one Pair depend on, through the Pairs before it."""
    found: dict[str, None] = {}
    queue = [(index, name) for name in names]
    for pair, name in queue:
        link = next((link for link in book.links if link.target == pair and link.name == name), None)
        if link is None or link.source is None:
            found[table.get(name, name)] = None
            continue
        queue += [(link.source, each) for each in book.entries[link.source].names if each is not None]
        queue = list(dict.fromkeys(queue))
    return tuple(found)
