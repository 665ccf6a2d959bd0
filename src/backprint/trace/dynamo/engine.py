"""Engine `dynamo`: trace each graph that Dynamo makes of a program to a Pair, and link the Pairs.

The program runs once under Dynamo (`frontend`). Tensors that go from one graph to another are known by identity and
become Links (`_TensorTable`). Each graph is then traced like a program of its own, the last first, because later graphs
decide which outputs of an earlier one need gradients.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx

from backprint._torch import pytree
from backprint._torch.modes import enter_autocast
from backprint._torch.tensors import storage_id
from backprint.errors import CaptureError, DataDependentError
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Graph, Guard, Link, Pair, Source
from backprint.trace import frames
from backprint.trace.aot.from_fx import read_fx
from backprint.trace.aot.trace import trace
from backprint.trace.assembly import assemble
from backprint.trace.dynamo import frontend
from backprint.trace.dynamo.frontend import (
    DynamoRun,
    GraphRun,
    GraphRunner,
    OuterModes,
    ValueRead,
    line_with_path,
    set_node_sources,
)
from backprint.trace.non_operator_effects import flag_guards, refuse_seeding
from backprint.trace.program import (
    A_TENSOR,
    CalledProgram,
    HeldTarget,
    NamedTensor,
    ObservedProgram,
    TensorSlot,
    called_program,
    free_name,
)
from backprint.trace.reach import compiled_parts, module_paths
from backprint.trace.request import EngineResult, Part
from backprint.trace.running import check_loss, own_arguments, staged
from backprint.trace.state.restore import with_foreign_random_states
from backprint.trace.warm_up import Findings, warm_up
from backprint.trace.watch import SEED
from backprint.values.results import ResultTree, outputs_of
from backprint.values.settings import preserving_random_states, seed_torch

# ---- Tensors between the graphs


@dataclass(frozen=True, slots=True)
class Holder:
    """The port that has a tensor's current value. With `pair` None, the value is the program's own. `refused` says why
    no graph may take the tensor any more."""

    pair: int | None
    port: PortKey
    name: str
    refused: str = ""


@dataclass(slots=True, eq=False)
class _GraphEntry:
    """One run of a graph with the names of its inputs and outputs, and its program.

    `requires_grad` says which outputs require grad. `after` has the values that the program reads after the graph has
    run (`enter_reads`), and `extra` the program's tensors that are added to the inputs.
    """

    ran: GraphRun
    names: tuple[str | None, ...]
    program: ObservedProgram
    outputs: list[str]
    requires_grad: list[bool]
    after: list[tuple[int, Source | None]] = field(default_factory=list)
    extra: list[tuple[NamedTensor, Tensor]] = field(default_factory=list)


class _TensorTable:
    """Identifies tensors while the graphs are entered in the order they ran."""

    def __init__(self, program: ObservedProgram, paths: Mapping[int, str], own: Mapping[int, str]) -> None:
        self.program, self.paths = program, paths
        self.named = {named.name: named for named in program.tensors}
        self.holders = {key: Holder(None, PortKey(self.named[name].role, name), name) for key, name in own.items()}
        # Outputs of graphs are kept alive: Holders are found by id, which a new tensor could get otherwise.
        self.tensors: list[Tensor] = []
        self.entries: list[_GraphEntry] = []
        self.links: list[Link] = []
        self.names_taken = list(program.tensors)
        self.reads_before: list[tuple[str, ValueRead]] = []

    def holder_of(self, tensor: Tensor, user: str) -> Holder:
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
        # Name each input by the port that has its value, and link it to that port.
        names: list[str | None] = []
        named: dict[str, NamedTensor] = {}
        for value, requires_grad in zip(ran.inputs, ran.requires_grad_before, strict=True):
            if not isinstance(value, Tensor):
                names.append(None)
                continue
            holder = self.holder_of(value, user)
            names.append(holder.name)
            if holder.name in named:
                continue
            known = self.named.get(holder.name)
            named[holder.name] = (
                replace(known, requires_grad=requires_grad)
                if known
                else NamedTensor(holder.name, "input", requires_grad)
            )
            if holder.pair is not None:
                self.links.append(Link(holder.pair, holder.port, index, holder.name))
        # The graph as a program of its own, with the user's lines.
        set_node_sources(ran.module, functools.partial(line_with_path, paths=self.paths))
        values = {name: ran.values[place] for place, name in enumerate(names) if name is not None}
        part, _ = warm_up(part_of(self.program, index, ran, names, tuple(named.values()), values))
        self.refuse_attributes(part, user)
        entry = _GraphEntry(ran, tuple(names), part, [], [])
        self.entries.append(entry)
        self.enter_mutations(index, entry)
        self.enter_outputs(index, entry)

    def refuse_attributes(self, part: ObservedProgram, user: str) -> None:
        """Refuse a graph with one of the program's tensors as an attribute: it would become a constant."""
        for tensor in part.outside.values():
            if id(tensor) in self.holders:
                raise CaptureError(f"{user} holds {self.holders[id(tensor)].name} as an attribute, not as an input")

    def enter_mutations(self, index: int, entry: _GraphEntry) -> None:
        """Move tensors that the graph wrote to its mutation ports. Other views of that memory cannot be followed, and
        are refused if a later graph takes them."""
        # The names that the graph writes to, also by kernels whose schema does not say so.
        changed = set(entry.program.changed)
        changed |= {
            name
            for tensor, name in zip(entry.ran.inputs, entry.names, strict=True)
            if name is not None and storage_id(tensor.untyped_storage()) in entry.ran.written
        }
        written = {id(t): name for t, name in zip(entry.ran.inputs, entry.names, strict=True) if name in changed}
        storages = {storage_id(t.untyped_storage()) for t in entry.ran.inputs if id(t) in written}
        # Other tensors in the same memory cannot be followed any more.
        for tensor in self.tensors_known():
            if id(tensor) not in written and tensor.numel() and storage_id(tensor.untyped_storage()) in storages:
                reason = "it shares memory with a tensor that graph {} changes in place: return copies"
                self.holders[id(tensor)] = replace(self.holders[id(tensor)], refused=reason.format(index))
        # The written tensors have their new values at mutation ports of this Pair.
        for key, name in written.items():
            requires_grad = any(
                on for t, on in zip(entry.ran.inputs, entry.ran.requires_grad_after, strict=True) if id(t) == key
            )
            reason = (
                f"graph {index} changes it in place, and autograd would have to track that from one graph into "
                "another: write it out of place"
            )
            self.holders[key] = Holder(index, PortKey("mutation", name), name, reason if requires_grad else "")

    def tensors_known(self) -> list[Tensor]:
        """Return every living tensor that has a Holder."""
        seen = [t for entry in self.entries for t in entry.ran.inputs if isinstance(t, Tensor)]
        return [t for t in (*seen, *self.tensors) if id(t) in self.holders]

    def enter_outputs(self, index: int, entry: _GraphEntry) -> None:
        """Name the outputs of a graph."""
        returned = entry.ran.module.graph.output_node().args[0]
        for node, tensor in zip(returned, entry.ran.outputs, strict=True):
            wanted = f"pair_{index}.{node.name if isinstance(node, fx.Node) else 'output'}"
            name = free_name(wanted, self.names_taken)
            self.names_taken.append(NamedTensor(name, "input", False))
            entry.outputs.append(name)
            entry.requires_grad.append(isinstance(tensor, Tensor) and tensor.requires_grad)
            if isinstance(tensor, Tensor) and id(tensor) not in self.holders:
                self.holders[id(tensor)] = Holder(index, PortKey("output", name), name)
                self.tensors.append(tensor)

    def enter_reads(self, reads: Sequence[ValueRead]) -> None:
        """Make guards of values that the program read. They are on the Pair that returns the value, or on the first
        Pair if the value is the program's own."""
        for read in reads:
            holder = self.holder_of(read.tensor, "a read of a value")
            if holder.pair is None:
                self.reads_before.append((holder.name, read))
                continue
            entry = self.entries[holder.pair]
            role, name = holder.port
            # An output by its index, an input that the graph changes by a negative number: `_GraphProgram` takes both.
            place = entry.outputs.index(name) if role == "output" else -1 - entry.names.index(name)
            entry.after.append((place, read.source))

    def link_results(self, record: DynamoRun) -> tuple[list[tuple[str, bool]], ResultTree, tuple[Any, ...]]:
        """Link the program's results; return their names, whether each takes a tangent, and the result's structure."""
        named, tree = outputs_of(record.result)
        loss = record.loss is not None
        named = [("loss", record.loss), *named] if loss else named
        outputs = []
        for name, leaf in named:
            if not isinstance(leaf, Tensor):
                continue
            holder = self.holder_of(leaf, f"result {name!r}")
            asking = leaf.requires_grad and (name == "loss" or not loss)
            if holder.pair is not None and holder.port.role == "output":
                holder = self.name_after_result(holder, name, leaf)
            self.links.append(Link(holder.pair, holder.port, None, name))
            outputs.append((name, asking))
        return outputs, tree, tuple(A_TENSOR if isinstance(leaf, Tensor) else leaf for _, leaf in named)

    def name_after_result(self, holder: Holder, name: str, leaf: Tensor) -> Holder:
        """Name a value after the result that it is, unless the program uses that name already."""
        if not holder.name.startswith("pair_") or name in {known.name for known in self.names_taken}:
            return holder
        assert holder.pair is not None
        entry = self.entries[holder.pair]
        # The old name is in the graph's outputs, in links, in the programs that take the value, and in Holders.
        entry.outputs[entry.outputs.index(holder.name)] = name
        for index, link in enumerate(self.links):
            if link.name == holder.name:
                self.links[index] = replace(link, port=link.port._replace(name=name), name=name)
        for user in self.entries:
            user.names = tuple(name if known == holder.name else known for known in user.names)
            user.program = _renamed_program(user.program, holder.name, name)
        self.names_taken.append(NamedTensor(name, "input", False))
        renamed = replace(holder, port=PortKey("output", name), name=name)
        for key, other in self.holders.items():
            if other == holder:
                self.holders[key] = renamed
        return renamed

    def add_unused_tensors(self, ready: Mapping[str, Tensor]) -> None:
        """Add tensors that the program reads itself, or that no graph takes, to the inputs of the first Pair."""
        used = {name for entry in self.entries for name in entry.names}
        read = {name: reading.tensor for name, reading in self.reads_before}
        for name, named in self.named.items():
            if name in read or name not in used:
                self.entries[0].extra.append((named, read.get(name, ready[name]).detach().clone()))


# ---- One run of a graph as a program


@dataclass(frozen=True, eq=False)
class _GraphProgram:
    """A graph's run as a function of its tensors: engine `aot` traces it, and it is the reference of its Pair.

    `places` are the indices of the results that it returns, each with whether it requires grad. `before` are the
    program's own tensors that are read before the graph runs; they are additional arguments. `after` are the indices of
    results that are read.
    """

    module: fx.GraphModule
    under: OuterModes
    places: tuple[tuple[int, bool], ...]
    reads_before: tuple[tuple[str, Source | None], ...] = ()
    after: tuple[tuple[int, Source | None], ...] = ()
    __name__ = "graph"

    @property
    def extra(self) -> tuple[str, ...]:
        """The names of its additional arguments."""
        return tuple(dict.fromkeys(name for name, _ in self.reads_before))

    def __call__(self, *inputs: Any) -> list[Any]:
        names = self.extra
        count = len(inputs) - len(names)
        own, extra = inputs[:count], dict(zip(names, inputs[count:], strict=True))
        # `.item()` at the line of the program's own read: the trace makes it a guard.
        for name, source in self.reads_before:
            with frames.at_line(source):
                extra[name].item()
        with self.under.entered():
            results = GraphRunner(self.module).results(*own)
        for place, source in self.after:
            with frames.at_line(source):
                (results[place] if place >= 0 else own[-1 - place]).item()
        return [results[place] if asking else _without_history(results[place]) for place, asking in self.places]


def _without_history(value: Any) -> Any:
    """Return a detached tensor; anything else itself."""
    return value.detach() if isinstance(value, Tensor) else value


def part_of(
    program: ObservedProgram,
    index: int,
    ran: GraphRun,
    names: Sequence[str | None],
    tensors: tuple[NamedTensor, ...],
    values: dict[str, Tensor],
) -> CalledProgram:
    """Return one graph's run as a program."""
    count = len(ran.module.graph.output_node().args[0])
    graphed = _GraphProgram(ran.module, ran.under, tuple((place, True) for place in range(count)))
    # The program's own tensors first, in its order, then values of earlier graphs.
    order = {named.name: place for place, named in enumerate(program.tensors)}
    tensors = tuple(sorted(tensors, key=lambda named: order.get(named.name, len(order))))
    leaves = tuple(value if name is None else TensorSlot(name) for value, name in zip(ran.inputs, names, strict=True))
    shared = [name for name in program.hooks if name in values]
    return CalledProgram(
        target=HeldTarget(graphed),
        arguments=(),
        structure=pytree.tree_flatten((tuple(leaves), {}))[1],
        leaves=leaves,
        leaf_names=tuple(name or "" for name in names),
        tensors=tensors,
        values=values,
        hooks={name: program.hooks[name] for name in shared},
        title=f"graph {index} of {program.title}",
    )


def _renamed_program(program: ObservedProgram, old: str, new: str) -> ObservedProgram:
    """Return a program with one tensor renamed."""
    if old not in program.values:
        return program

    def other(name: str) -> str:
        return new if name == old else name

    return replace(
        program,
        tensors=tuple(replace(named, name=other(named.name)) for named in program.tensors),
        values={other(name): value for name, value in program.values.items()},
        leaves=tuple(TensorSlot(other(leaf.name)) if isinstance(leaf, TensorSlot) else leaf for leaf in program.leaves),
        leaf_names=tuple(map(other, program.leaf_names)),
        cloned_when_traced=frozenset(map(other, program.cloned_when_traced)),
        changed=frozenset(map(other, program.changed)),
        written_alias_groups=tuple(tuple(map(other, group)) for group in program.written_alias_groups),
    )


# ---- Each graph as a Pair


@dataclass(frozen=True, slots=True)
class _TracedPair:
    """A Pair, the program that it was traced from, the tensors of its constant ports, and its guards."""

    pair: Pair
    part: Part
    constants: dict[str, Tensor]
    guards: tuple[Guard, ...]


def _trace_pairs(book: _TensorTable, options: CaptureOptions) -> tuple[_TracedPair, ...]:
    """Return every graph as a Pair, in the order in which they ran."""
    _refuse_shared_hooks(book)
    _refuse_shared_casts(book)
    traced: dict[int, _TracedPair] = {}
    # The last first: whether an output needs a gradient is known from the backwards of the graphs after it.
    for index in reversed(range(len(book.entries))):
        traced[index] = _trace_pair(
            book, index, {later: traced_pair.pair for later, traced_pair in traced.items()}, options
        )
    return tuple(traced[index] for index in range(len(book.entries)))


def _trace_pair(book: _TensorTable, index: int, later: Mapping[int, Pair], options: CaptureOptions) -> _TracedPair:
    """Trace one graph to a Pair; `later` are the Pairs of the graphs after it."""
    entry = book.entries[index]
    program, places = _program_of_pair(book, index, later)
    part, seen = warm_up(program)
    names = [entry.outputs[place] for place, _ in places]
    specialize = options.specialize or bool(entry.after or (index == 0 and book.reads_before))
    traced = trace(part, seen, specialize, options.partition, options.decompose)
    if traced.unforeseen:
        raise CaptureError(
            f"{traced.unforeseen[0]} reads values inside an operator or its backward, where engine 'dynamo' has no "
            "step that could check them: engine 'eager' keeps them as a guard"
        )
    # A graph returns a list, so the trace has named its results by number.
    numbered = {f"output.{number}": name for number, name in enumerate(names)}
    traced = replace(
        traced,
        outputs=tuple((numbered.get(name, name), role) for name, role in traced.outputs),
        tangents=tuple(numbered.get(name, name) for name in traced.tangents),
    )
    assembled = assemble(read_fx(part, traced).joint)
    own = {**assembled.constants, **part.outside}
    pair, table = _with_constants(assembled.pair, index, own)
    return _TracedPair(
        pair,
        Part(_with_renamed_outside(part, table), tuple(names)),
        {table[name]: tensor for name, tensor in own.items()},
        tuple(
            replace(guard, inputs=_program_tensors_behind(book, index, guard.inputs, table))
            for guard in assembled.guards
        ),
    )


def _refuse_shared_hooks(book: _TensorTable) -> None:
    """Refuse a gradient hook on a tensor that several Pairs use: it would see only a part of the gradient in each."""
    for name in book.program.hooks:
        users = [index for index, entry in enumerate(book.entries) if name in entry.names]
        returned = [link for link in book.links if link.source is None and link.port.name == name]
        if len(users) + len(returned) > 1:
            raise CaptureError(f"{name} has a gradient hook and is used by {len(users)} graphs: each sees a part of it")


def _refuse_shared_casts(book: _TensorTable) -> None:
    """Refuse a weight that autocast casts in several graphs: the gradients of the one copy add up before the cast
    back."""
    casting = [entry for entry in book.entries if _runs_under_autocast(entry.ran)]
    for entry in casting if torch.is_autocast_cache_enabled() else ():
        for name, tensor, requires_grad in zip(
            entry.names, entry.ran.inputs, entry.ran.requires_grad_before, strict=True
        ):
            users = [other for other in casting if name in other.names]
            if requires_grad and tensor.is_leaf and len(users) > 1:
                raise CaptureError(
                    f"{name} is used under autocast by {len(users)} graphs: autocast casts it once where they are in "
                    "one region, and engine 'dynamo' does not track that copy from one graph into another"
                )


def _runs_under_autocast(ran: GraphRun) -> bool:
    """Whether a graph runs under autocast, or in part."""
    entered = any(node.target is enter_autocast for node in ran.module.graph.nodes)
    return bool(ran.under.autocast) or entered


def _program_of_pair(
    book: _TensorTable, index: int, later: Mapping[int, Pair]
) -> tuple[CalledProgram, list[tuple[int, bool]]]:
    """Return a Pair's program with the outputs that are used and its reads, and the places of those outputs."""
    entry, program = book.entries[index], book.entries[index].program
    # Outputs that no link uses are left out. Reads and unused tensors of the program are inputs of the first Pair.
    places = used_outputs(book, index, later)
    before = tuple((name, read.source) for name, read in book.reads_before) if index == 0 else ()
    graphed = _GraphProgram(entry.ran.module, entry.ran.under, tuple(places), before, tuple(entry.after))
    known = {named.name for named in program.tensors}
    extra = [(named, value) for named, value in entry.extra if named.name not in known]
    order = {named.name: place for place, named in enumerate(book.program.tensors)}
    tensors = sorted(
        (*program.tensors, *(named for named, _ in extra)), key=lambda named: order.get(named.name, len(order))
    )
    leaves = (*program.leaves, *map(TensorSlot, graphed.extra))
    return called_program(
        program,
        target=HeldTarget(graphed),
        tensors=tuple(named for named in tensors if named.name not in program.outside),
        values={**program.values, **{named.name: value for named, value in extra}},
        leaves=leaves,
        leaf_names=(*program.leaf_names, *graphed.extra),
        structure=pytree.tree_flatten((tuple(leaves), {}))[1],
    ), places


def used_outputs(book: _TensorTable, index: int, later: Mapping[int, Pair]) -> list[tuple[int, bool]]:
    """Return the places of a graph's outputs that a link uses, each with whether a gradient comes back."""
    entry, used = book.entries[index], []
    for place, name in enumerate(entry.outputs):
        links = [link for link in book.links if link.source == index and link.port == PortKey("output", name)]
        if links:
            used.append((place, entry.requires_grad[place] and any(has_gradient(link, later) for link in links)))
    return used


def has_gradient(link: Link, pairs: Mapping[int, Pair]) -> bool:
    """Whether a gradient comes back over a link."""
    # A result of the program: its tangent is an input of the backward.
    if link.target is None:
        return True
    backward = pairs[link.target].backward
    if backward is None:
        return False
    ports = zip(backward.outputs, backward.results, strict=True)
    return any(port.name == link.name and result is not None for port, result in ports)


def _with_constants(pair: Pair, index: int, constants: Mapping[str, Tensor]) -> tuple[Pair, dict[str, str]]:
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


def _with_renamed_outside(part: ObservedProgram, table: Mapping[str, str]) -> ObservedProgram:
    """Name the external tensors of a Pair's program as its ports."""
    held = {table.get(name, name): tensor for name, tensor in part.outside.items()}
    tensors = tuple(replace(named, name=table.get(named.name, named.name)) for named in part.tensors)
    return replace(part, outside=held, tensors=tensors)


def _program_tensors_behind(
    book: _TensorTable, index: int, names: Sequence[str], table: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the program's own tensors that values of one Pair depend on, through the Pairs before it."""
    names_found: dict[str, None] = {}
    queue = [(index, name) for name in names]
    for pair, name in queue:
        link = next((link for link in book.links if link.target == pair and link.name == name), None)
        if link is None or link.source is None:
            names_found[table.get(name, name)] = None
            continue
        queue += [(link.source, name_) for name_ in book.entries[link.source].names if name_ is not None]
        queue = list(dict.fromkeys(queue))
    return tuple(names_found)


# ---- The engine


def by_dynamo(program: CalledProgram, options: CaptureOptions) -> EngineResult:
    """Capture a program by engine `dynamo`, with graph breaks and static shapes."""
    observed, seen = warm_up(program)
    _check_program(observed, seen)
    paths = module_paths(program.target())
    # Run the program once under Dynamo.
    record, ready = run_graphs(observed, paths)
    if not record.ran:
        raise CaptureError(f"Dynamo makes no graph of {program.title}: no tensor operator runs in it")
    # Enter reads and graphs in the order in which they ran, because a later one replaces Holders.
    book = _TensorTable(observed, paths, {id(tensor): name for name, tensor in ready.items()})
    book.enter_reads([first_read for first_read in record.reads if first_read.after == 0])
    for count, ran in enumerate(record.ran, 1):
        book.enter_run(ran)
        book.enter_reads([first_read for first_read in record.reads if first_read.after == count])
    outputs, tree, leaves = book.link_results(record)
    book.add_unused_tensors(ready)
    # Trace each graph to a Pair.
    traced = _trace_pairs(book, options)
    guards = tuple(guard for traced_pair in traced for guard in traced_pair.guards)
    first_read = next((guard for guard in guards if guard.kind in ("value", "shape")), None)
    if options.specialize is False and first_read is not None:
        raise DataDependentError(
            f"the program reads {first_read.text}{frames.place(first_read.source)}, and specialize=False"
        )
    return EngineResult(
        program=observed,
        pairs=tuple(traced_pair.pair for traced_pair in traced),
        outputs=tuple(name for name, _ in outputs),
        differentiable=tuple(name for name, requires_grad in outputs if requires_grad),
        tree=tree,
        leaves=leaves,
        constants={name: tensor for traced_pair in traced for name, tensor in traced_pair.constants.items()},
        guards=(*guards, *flag_guards(program, seen.flags)),
        opaque=tuple(dict.fromkeys(seen.opaque)),
        outcome=seen.outcome,
        links=_needed_links(book, outputs),
        breaks=tuple(dict.fromkeys(record.breaks)),
        parts=tuple(traced_pair.part for traced_pair in traced),
    )


def _check_program(program: ObservedProgram, seen: Findings) -> None:
    """Refuse by name the parts of a program that Dynamo's graphs would lose."""
    for edge in seen.opaque:
        if edge.kind == "hook" and edge.text == "a tensor hook":
            where = f" at {edge.source.file}:{edge.source.line}: {edge.source.code!r}" if edge.source else ""
            raise CaptureError(f"engine 'dynamo' would lose a tensor hook that the program registers{where}")
    for name, source in seen.reads_without_operator[:1]:
        where = f" at {source.file}:{source.line} in {source.function}: {source.code!r}" if source else ""
        raise CaptureError(
            f"Tensor.{name} reads values{where}, which engine 'dynamo' has no step to check: read them with "
            ".item(), or use an engine that sees what runs"
        )
    for name in compiled_parts(program.target(), program.title):
        raise CaptureError(f"{name} is compiled already: capture a program that is not")


def run_graphs(program: ObservedProgram, paths: Mapping[int, str]) -> tuple[DynamoRun, dict[str, Tensor]]:
    """Run the program's own forward under Dynamo, on its own tensors; return the run and these tensors by name."""
    if outside := sorted(set(program.outside) & program.cloned_when_traced):
        raise CaptureError(
            f"{outside[0]} comes from outside and is changed or hooked, which engine 'dynamo' does not support"
        )
    with preserving_random_states(), staged(program) as stage:
        seed_torch(SEED)
        args, kwargs = own_arguments(program, stage.ready)
        with refuse_seeding(program), with_foreign_random_states(program.foreign_random, program.target.snapshot):
            # ContextVars that the program sets are gone after the run.
            run = contextvars.copy_context().run
            record = run(frontend.run_under_dynamo, program.target(), args, kwargs, program.loss, paths)
        replaced = sorted({**stage.new_tensors(), **stage.new_gradients()})
        ready = {**stage.ready, **program.outside}
    if replaced:
        raise CaptureError(
            f"{program.title} replaces {replaced[0]} by another tensor, which engine 'dynamo' does not support: "
            "change it in place"
        )
    if program.loss is not None:
        check_loss(record.loss)
    return record, ready


def _needed_links(book: _TensorTable, outputs: Sequence[tuple[str, bool]]) -> tuple[Link, ...]:
    """Return the links; none if one Pair's outputs are the program's results."""
    plain = [Link(0, PortKey("output", name), None, name) for name, _ in outputs]
    return () if len(book.entries) == 1 and book.links == plain else tuple(book.links)
