"""Identify tensors between the graphs of a run under Dynamo: values are known by identity, and become Links."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, fx

from backprint._torch.tensors import storage_id
from backprint.errors import CaptureError
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Link, Source
from backprint.result_tree import ResultTree, outputs_of
from backprint.tracing.call import free_name
from backprint.tracing.dynamo.frontend import DynamoRun, GraphRun, ValueRead
from backprint.tracing.dynamo.graphed import part_of, renamed_program
from backprint.tracing.dynamo.runner import tell_lines
from backprint.tracing.dynamo.sources import line_with_path
from backprint.tracing.program import A_TENSOR, NamedTensor, ScoutedProgram
from backprint.tracing.scout import scout


@dataclass(frozen=True, slots=True)
class Holder:
    """The port that has a tensor's value; with `pair` None, the value is the program's own."""

    pair: int | None
    port: PortKey
    name: str
    refused: str = ""


@dataclass(slots=True, eq=False)
class Entry:
    """One run of a graph with the names of its inputs and outputs, and its program."""

    ran: GraphRun
    names: tuple[str | None, ...]
    program: ScoutedProgram
    outputs: list[str]
    asking: list[bool]
    after: list[tuple[int, Source | None]] = field(default_factory=list)
    extra: list[tuple[NamedTensor, Tensor]] = field(default_factory=list)


class TensorBook:
    """Identifies tensors while the graphs are entered in the order they ran."""

    def __init__(self, program: ScoutedProgram, paths: Mapping[int, str], own: Mapping[int, str]) -> None:
        self.program, self.paths = program, paths
        self.named = {named.name: named for named in program.tensors}
        self.holders = {key: Holder(None, PortKey(self.named[name].role, name), name) for key, name in own.items()}
        self.tensors: list[Tensor] = []
        self.entries: list[Entry] = []
        self.links: list[Link] = []
        self.taken = list(program.tensors)
        self.before: list[tuple[str, ValueRead]] = []

    def at(self, tensor: Tensor, user: str) -> Holder:
        """Return the Holder of a tensor's current value."""
        holder = self.holders.get(id(tensor))
        if holder is None:
            kind = f"{str(tensor.dtype)[6:]}{list(tensor.shape)}"
            raise CaptureError(f"{user} takes a {kind} tensor that no graph returns and the program does not name")
        if holder.refused:
            raise CaptureError(f"{user} takes {holder.name}: {holder.refused}")
        return holder

    def enter_run(self, ran: GraphRun) -> None:
        """Enter one graph's run: links for its inputs, holders for its outputs."""
        index = len(self.entries)
        user = f"graph {index} of {self.program.title}"
        names: list[str | None] = []
        named: dict[str, NamedTensor] = {}
        for given, asking in zip(ran.inputs, ran.asked, strict=True):
            if not isinstance(given, Tensor):
                names.append(None)
                continue
            holder = self.at(given, user)
            names.append(holder.name)
            if holder.name in named:
                continue
            known = self.named.get(holder.name)
            named[holder.name] = (
                replace(known, requires_grad=asking) if known else NamedTensor(holder.name, "input", asking)
            )
            if holder.pair is not None:
                self.links.append(Link(holder.pair, holder.port, index, holder.name))
        tell_lines(ran.module, functools.partial(line_with_path, paths=self.paths))
        values = {name: ran.values[place] for place, name in enumerate(names) if name is not None}
        part, _ = scout(part_of(self.program, index, ran, names, tuple(named.values()), values))
        self.refuse_attributes(part, user)
        entry = Entry(ran, tuple(names), part, [], [])
        self.entries.append(entry)
        self.change(index, entry)
        self.give(index, entry)

    def refuse_attributes(self, part: ScoutedProgram, user: str) -> None:
        """Refuse a graph with one of the program's tensors as an attribute: it would become a constant."""
        for tensor in part.outside.values():
            if id(tensor) in self.holders:
                raise CaptureError(f"{user} holds {self.holders[id(tensor)].name} as an attribute, not as an input")

    def change(self, index: int, entry: Entry) -> None:
        """Move tensors that the graph wrote to its mutation ports; other views of that memory cannot be followed."""
        changed = set(entry.program.changed)
        changed |= {
            name
            for tensor, name in zip(entry.ran.inputs, entry.names, strict=True)
            if name is not None and storage_id(tensor.untyped_storage()) in entry.ran.written
        }
        written = {id(t): name for t, name in zip(entry.ran.inputs, entry.names, strict=True) if name in changed}
        storages = {storage_id(t.untyped_storage()) for t in entry.ran.inputs if id(t) in written}
        for tensor in self.tensors_known():
            if id(tensor) not in written and tensor.numel() and storage_id(tensor.untyped_storage()) in storages:
                said = "it shares memory with a tensor that graph {} changes in place: return copies"
                self.holders[id(tensor)] = replace(self.holders[id(tensor)], refused=said.format(index))
        for key, name in written.items():
            asking = any(on for t, on in zip(entry.ran.inputs, entry.ran.asking, strict=True) if id(t) == key)
            said = (
                f"graph {index} changes it in place, and autograd would have to track that from one graph into "
                "another: write it out of place"
            )
            self.holders[key] = Holder(index, PortKey("mutation", name), name, said if asking else "")

    def tensors_known(self) -> list[Tensor]:
        """Return every living tensor that has a Holder."""
        seen = [t for entry in self.entries for t in entry.ran.inputs if isinstance(t, Tensor)]
        return [t for t in (*seen, *self.tensors) if id(t) in self.holders]

    def give(self, index: int, entry: Entry) -> None:
        """Name the outputs of a graph."""
        returned = entry.ran.module.graph.output_node().args[0]
        for node, tensor in zip(returned, entry.ran.outputs, strict=True):
            wanted = f"pair_{index}.{node.name if isinstance(node, fx.Node) else 'output'}"
            name = free_name(wanted, self.taken)
            self.taken.append(NamedTensor(name, "input", False))
            entry.outputs.append(name)
            entry.asking.append(isinstance(tensor, Tensor) and tensor.requires_grad)
            if isinstance(tensor, Tensor) and id(tensor) not in self.holders:
                self.holders[id(tensor)] = Holder(index, PortKey("output", name), name)
                self.tensors.append(tensor)

    def enter_reads(self, reads: Sequence[ValueRead]) -> None:
        """Make guards of values that the program read: on the Pair that returns them, or on the first for the program's
        own."""
        for read in reads:
            holder = self.at(read.tensor, "a read of a value")
            if holder.pair is None:
                self.before.append((holder.name, read))
                continue
            entry = self.entries[holder.pair]
            role, name = holder.port
            place = entry.outputs.index(name) if role == "output" else -1 - entry.names.index(name)
            entry.after.append((place, read.source))

    def close(self, record: DynamoRun) -> tuple[list[tuple[str, bool]], ResultTree, tuple[Any, ...]]:
        """Link the program's results; return their names, whether each takes a tangent, and the result's structure."""
        named, tree = outputs_of(record.result)
        loss = record.loss is not None
        named = [("loss", record.loss), *named] if loss else named
        outputs = []
        for name, leaf in named:
            if not isinstance(leaf, Tensor):
                continue
            holder = self.at(leaf, f"result {name!r}")
            asking = leaf.requires_grad and (name == "loss" or not loss)
            if holder.pair is not None and holder.port.role == "output":
                holder = self.call(holder, name, leaf)
            self.links.append(Link(holder.pair, holder.port, None, name))
            outputs.append((name, asking))
        return outputs, tree, tuple(A_TENSOR if isinstance(leaf, Tensor) else leaf for _, leaf in named)

    def call(self, holder: Holder, name: str, leaf: Tensor) -> Holder:
        """Name a value after the result that it is, unless the program uses that name already."""
        if not holder.name.startswith("pair_") or name in {known.name for known in self.taken}:
            return holder
        assert holder.pair is not None
        entry = self.entries[holder.pair]
        entry.outputs[entry.outputs.index(holder.name)] = name
        for index, link in enumerate(self.links):
            if link.name == holder.name:
                self.links[index] = replace(link, port=link.port._replace(name=name), name=name)
        for user in self.entries:
            user.names = tuple(name if known == holder.name else known for known in user.names)
            user.program = renamed_program(user.program, holder.name, name)
        self.taken.append(NamedTensor(name, "input", False))
        found = replace(holder, port=PortKey("output", name), name=name)
        for key, other in self.holders.items():
            if other == holder:
                self.holders[key] = found
        return found

    def complete(self, ready: Mapping[str, Tensor]) -> None:
        """Add tensors that the program reads itself, or that no graph takes, to the inputs of the first Pair."""
        used = {name for entry in self.entries for name in entry.names}
        read = {name: reading.tensor for name, reading in self.before}
        for name, named in self.named.items():
            if name in read or name not in used:
                self.entries[0].extra.append((named, read.get(name, ready[name]).detach().clone()))
