"""Engine `dynamo`: the graphs that torch.compile's front end cuts the program into, each traced to a Pair, and Links.

Each run of a graph is a small program of its own: engine `aot` traces it under the names that its tensors have in the
user's program. Values between graphs are known by identity. The Pairs are traced from the last to the first, because
whether an output of one asks for a gradient is for the later ones to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx.traceback as fx_traceback
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from backprint.capture import aot, frames, frontend
from backprint.capture.assembly import assemble
from backprint.capture.from_fx import read_fx
from backprint.capture.frontend import Ambient, Ran, Read, Record
from backprint.capture.made import Made, Options, Part
from backprint.capture.program import (
    Named,
    Program,
    check_loss,
    free_name,
    is_slot,
    own_arguments,
    same_chance,
    slot,
)
from backprint.capture.scout import SEED, Sighting, compiled_parts, flag_guards, module_paths, no_seeding, scout
from backprint.capture.witness import staged
from backprint.errors import CaptureError, DataDependentError
from backprint.graph.nouns import Graph, Guard, Link, Pair, Source
from backprint.settings import quiet_random
from backprint.tree import outputs_of


def by_dynamo(program: Program, options: Options) -> Made:
    """Engine `dynamo`: graph breaks allowed, static shapes."""
    program, seen = scout(program)
    check_program(program, seen)
    paths = module_paths(program)
    record, ready = run(program, paths)
    if not record.ran:
        raise CaptureError(f"{program.title} gives Dynamo no graph to capture: no tensor operator runs in it")
    book = Book(program, paths, {id(tensor): name for name, tensor in ready.items()})
    book.read([read for read in record.reads if read.after == 0])
    for count, ran in enumerate(record.ran, 1):
        book.enter(ran)
        book.read([read for read in record.reads if read.after == count])
    outputs, tree, leaves = book.close(record)
    book.complete(ready)
    pairs, parts, constants, guards = traced(book, options)
    read = next((guard for guard in guards if guard.kind in ("value", "shape")), None)
    if options.specialise is False and read is not None:
        raise DataDependentError(f"the program reads {read.text}{frames.place(read.source)}, and specialise=False")
    return Made(
        program=program,
        pairs=pairs,
        outputs=tuple(name for name, _ in outputs),
        differentiable=tuple(name for name, asking in outputs if asking),
        tree=tree,
        leaves=leaves,
        constants=constants,
        guards=(*guards, *flag_guards(program, seen)),
        opaque=tuple(dict.fromkeys(seen.opaque)),
        outcome=seen.outcome,
        links=needed_links(book, outputs),
        breaks=tuple(dict.fromkeys(record.breaks)),
        parts=parts,
    )


def check_program(program: Program, seen: Sighting) -> None:
    """Refuse by name what Dynamo's graphs would lose."""
    for edge in seen.opaque:
        if edge.kind == "hook" and edge.text == "a tensor hook":
            where = f" at {edge.source.file}:{edge.source.line}: {edge.source.code!r}" if edge.source else ""
            raise CaptureError(f"engine 'dynamo' would lose a tensor hook that the program registers{where}")
    for name, source in seen.unseen[:1]:
        where = f" at {source.file}:{source.line} in {source.function}: {source.code!r}" if source else ""
        raise CaptureError(
            f"Tensor.{name} reads values{where}, and leaves engine 'dynamo' nothing to check them by: read them with "
            ".item(), or use an engine that sees what runs"
        )
    for name in compiled_parts(program):
        raise CaptureError(f"{name} is compiled already: capture a program that is not")


def run(program: Program, paths: Mapping[int, str]) -> tuple[Record, dict[str, Tensor]]:
    """The program's own forward under Dynamo, on its own tensors; these, by name."""
    if outside := sorted(set(program.outside) & program.shields):
        raise CaptureError(
            f"{outside[0]} comes from outside and is changed or hooked: engine 'dynamo' does not follow it"
        )
    with quiet_random(), staged(program) as stage:
        torch.manual_seed(SEED)
        args, kwargs = own_arguments(program, stage.ready)
        with no_seeding(program), same_chance(program):
            record = frontend.run(program.target(), args, kwargs, program.loss, paths)
        put = sorted({**stage.made(), **stage.left()})
        ready = {**stage.ready, **program.outside}
    if put:
        raise CaptureError(
            f"{program.title} puts another tensor in the place of {put[0]}, which engine 'dynamo' does not follow: "
            "change it in place"
        )
    if program.loss is not None:
        check_loss(record.loss)
    return record, ready


# ------------------------------------------------------------------ which tensor is which


@dataclass(frozen=True, slots=True)
class Holder:
    """Where a tensor's value stands: at a port of a Pair, or (`pair` None) it is the program's own."""

    pair: int | None
    port: str
    name: str
    refused: str = ""


@dataclass(slots=True, eq=False)
class Entry:
    """One Ran with what the linking found: names of its inputs, its outputs' names, and its program."""

    ran: Ran
    names: tuple[str | None, ...]
    program: Program
    seen: Sighting
    outputs: list[str]
    asking: list[bool]
    after: list[tuple[int, Source | None]] = field(default_factory=list)
    extra: list[tuple[Named, Tensor]] = field(default_factory=list)


class Book:
    """Which tensor is which, kept while the graphs are entered in the order they ran."""

    def __init__(self, program: Program, paths: Mapping[int, str], own: Mapping[int, str]) -> None:
        self.program, self.paths = program, paths
        self.named = {named.name: named for named in program.tensors}
        self.holders = {key: Holder(None, f"{self.named[name].role} {name}", name) for key, name in own.items()}
        self.tensors: list[Tensor] = []
        self.entries: list[Entry] = []
        self.links: list[Link] = []
        self.taken = list(program.tensors)
        self.before: list[tuple[str, Read]] = []

    def at(self, tensor: Tensor, user: str) -> Holder:
        """Where a tensor's value stands now."""
        holder = self.holders.get(id(tensor))
        if holder is None:
            kind = f"{str(tensor.dtype)[6:]}{list(tensor.shape)}"
            raise CaptureError(f"{user} takes a {kind} tensor that no graph gives and the program has under no name")
        if holder.refused:
            raise CaptureError(f"{user} takes {holder.name}: {holder.refused}")
        return holder

    def enter(self, ran: Ran) -> None:
        """One graph's run: links from what it takes, holders for what it gives."""
        index = len(self.entries)
        user = f"graph {index} of {self.program.title}"
        names: list[str | None] = []
        named: dict[str, Named] = {}
        for given, asking in zip(ran.inputs, ran.asked, strict=True):
            if not isinstance(given, Tensor):
                names.append(None)
                continue
            holder = self.at(given, user)
            names.append(holder.name)
            if holder.name in named:
                continue
            known = self.named.get(holder.name)
            named[holder.name] = replace(known, requires_grad=asking) if known else Named(holder.name, "input", asking)
            if holder.pair is not None:
                self.links.append(Link(holder.pair, holder.port, index, holder.name))
        tell_lines(ran.module, self.paths)
        values = {name: ran.values[place] for place, name in enumerate(names) if name is not None}
        part = part_of(self.program, index, ran, names, tuple(named.values()), values)
        part, seen = scout(part)
        self.refuse_attributes(part, user)
        entry = Entry(ran, tuple(names), part, seen, [], [])
        self.entries.append(entry)
        self.change(index, entry)
        self.give(index, entry)

    def refuse_attributes(self, part: Program, user: str) -> None:
        """A tensor of the program's that the graph holds inside itself would be taken for a constant."""
        for tensor in part.outside.values():
            if id(tensor) in self.holders:
                raise CaptureError(f"{user} holds {self.holders[id(tensor)].name} as an attribute, not as an input")

    def change(self, index: int, entry: Entry) -> None:
        """What the graph wrote to stands at its mutation ports now; other views of that memory cannot be followed."""
        changed = set(entry.program.changed or ())
        changed |= {
            name
            for tensor, name in zip(entry.ran.inputs, entry.names, strict=True)
            if name is not None and tensor.untyped_storage()._cdata in entry.ran.written
        }
        written = {id(t): name for t, name in zip(entry.ran.inputs, entry.names, strict=True) if name in changed}
        storages = {t.untyped_storage()._cdata for t in entry.ran.inputs if id(t) in written}
        for tensor in self.tensors_known():
            if id(tensor) not in written and tensor.numel() and tensor.untyped_storage()._cdata in storages:
                said = "it shares memory with a tensor that graph {} changes in place: return copies"
                self.holders[id(tensor)] = replace(self.holders[id(tensor)], refused=said.format(index))
        for key, name in written.items():
            asking = any(on for t, on in zip(entry.ran.inputs, entry.ran.asking, strict=True) if id(t) == key)
            said = (
                f"graph {index} changes it in place, and autograd would have to follow that from one graph into "
                "another: write it out of place"
            )
            self.holders[key] = Holder(index, f"mutation {name}", name, said if asking else "")

    def tensors_known(self) -> list[Tensor]:
        """Every tensor that has a holder and lives."""
        seen = [t for entry in self.entries for t in entry.ran.inputs if isinstance(t, Tensor)]
        return [t for t in (*seen, *self.tensors) if id(t) in self.holders]

    def give(self, index: int, entry: Entry) -> None:
        """Names for what the graph gives."""
        returned = entry.ran.module.graph.output_node().args[0]
        for node, tensor in zip(returned, entry.ran.outputs, strict=True):
            wanted = f"pair_{index}.{node.name if isinstance(node, fx.Node) else 'output'}"
            name = free_name(wanted, self.taken)
            self.taken.append(Named(name, "input", False))
            entry.outputs.append(name)
            entry.asking.append(isinstance(tensor, Tensor) and tensor.requires_grad)
            if isinstance(tensor, Tensor) and id(tensor) not in self.holders:
                self.holders[id(tensor)] = Holder(index, f"output {name}", name)
                self.tensors.append(tensor)

    def read(self, reads: Sequence[Read]) -> None:
        """Values read now become guards on the Pair that gives them; the program's own are read by the first Pair."""
        for read in reads:
            holder = self.at(read.tensor, "a read of a value")
            if holder.pair is None:
                self.before.append((holder.name, read))
                continue
            entry = self.entries[holder.pair]
            role, _, name = holder.port.partition(" ")
            place = entry.outputs.index(name) if role == "output" else -1 - entry.names.index(name)
            entry.after.append((place, read.source))

    def close(self, record: Record) -> tuple[list[tuple[str, bool]], Any, tuple[Any, ...]]:
        """Links to the program's results; their names, and whether they take tangents; the result's structure."""
        named, tree = outputs_of(record.result)
        loss = record.loss is not None
        named = [("loss", record.loss), *named] if loss else named
        outputs = []
        for name, leaf in named:
            if not isinstance(leaf, Tensor):
                continue
            holder = self.at(leaf, f"result {name!r}")
            asking = leaf.requires_grad and (name == "loss" or not loss)
            if holder.pair is not None and holder.port.startswith("output "):
                holder = self.call(holder, name, leaf)
            self.links.append(Link(holder.pair, holder.port, None, name))
            outputs.append((name, asking))
        return outputs, tree, tuple(Tensor if isinstance(leaf, Tensor) else leaf for _, leaf in named)

    def call(self, holder: Holder, name: str, leaf: Tensor) -> Holder:
        """A value that is a result has the result's name, unless the program has that name already."""
        if not holder.name.startswith("pair_") or name in {known.name for known in self.taken}:
            return holder
        assert holder.pair is not None
        entry = self.entries[holder.pair]
        entry.outputs[entry.outputs.index(holder.name)] = name
        for index, link in enumerate(self.links):
            if link.name == holder.name:
                port = f"{link.port.partition(' ')[0]} {name}"
                self.links[index] = replace(link, port=port, name=name)
        for user in self.entries:
            user.names = tuple(name if known == holder.name else known for known in user.names)
            user.program = renamed_program(user.program, holder.name, name)
        self.taken.append(Named(name, "input", False))
        found = replace(holder, port=f"output {name}", name=name)
        for key, other in self.holders.items():
            if other == holder:
                self.holders[key] = found
        return found

    def complete(self, ready: Mapping[str, Tensor]) -> None:
        """What the program reads of its own, and its tensors that no graph takes, are inputs of the first Pair."""
        used = {name for entry in self.entries for name in entry.names}
        read = {name: reading.tensor for name, reading in self.before}
        for name, named in self.named.items():
            if name in read or name not in used:
                self.entries[0].extra.append((named, read.get(name, ready[name]).detach().clone()))


def tell_lines(module: fx.GraphModule, paths: Mapping[int, str]) -> None:
    """Every node's line of the user's program, where engine `aot` looks for it; subgraphs too."""
    for node in module.graph.nodes:
        node.meta[frames.TOLD] = line_of(node, paths)
    for child in module.children():
        if isinstance(child, fx.GraphModule):
            tell_lines(child, paths)


def line_of(node: fx.Node, paths: Mapping[int, str]) -> Source | None:
    """The user's line of a node: the innermost that is not torch's own, with the module it ran in."""
    stack = node.meta.get("nn_module_stack") or {}
    found = frames.parsed(node.meta.get("stack_trace") or "")
    if found is None and stack:
        found = frames.of_module(list(stack.values())[-1][1], node.target)
    if found is None:
        return None
    file, line, function = found
    module = ""
    for key, (spelled, _) in stack.items():
        number = str(key).partition("@")[0]
        module = paths.get(int(number), module) if number.isdigit() else spelled
    return frames.source(file, line, function, module)


# ------------------------------------------------------------------ one graph as a program


class Graphed:
    """A graph's run as a function of its tensors: what engine `aot` traces, and the oracle of its Pair."""

    def __init__(self, module: fx.GraphModule, under: Ambient) -> None:
        self.module, self.under = module, under
        self.places: tuple[tuple[int, bool], ...] = tuple((index, True) for index in range(count_outputs(module)))
        self.before: tuple[tuple[str, Source | None], ...] = ()
        self.after: tuple[tuple[int, Source | None], ...] = ()
        self.extra: tuple[str, ...] = ()
        self.__name__ = "graph"

    def __call__(self, *given: Any) -> list[Any]:
        count = len(given) - len(self.extra)
        own, extra = given[:count], dict(zip(self.extra, given[count:], strict=True))
        with fx_traceback.preserve_node_meta():
            for name, source in self.before:
                with frames.told(source):
                    extra[name].item()
            with self.under.again():
                made = fx.Interpreter(self.module).run(*own)
            for place, source in self.after:
                with frames.told(source):
                    (made[place] if place >= 0 else own[-1 - place]).item()
        return [made[place] if asking else cut(made[place]) for place, asking in self.places]


def count_outputs(module: fx.GraphModule) -> int:
    """How many results a graph gives."""
    return len(module.graph.output_node().args[0])


def cut(value: Any) -> Any:
    """A tensor that asks for no gradient."""
    return value.detach() if isinstance(value, Tensor) else value


def part_of(
    program: Program,
    index: int,
    ran: Ran,
    names: Sequence[str | None],
    tensors: tuple[Named, ...],
    values: dict[str, Tensor],
) -> Program:
    """One graph's run as a Program of its own."""
    graphed = Graphed(ran.module, ran.under)
    order = {named.name: place for place, named in enumerate(program.tensors)}
    tensors = tuple(sorted(tensors, key=lambda named: order.get(named.name, len(order))))
    leaves = tuple(given if name is None else slot(name) for given, name in zip(ran.inputs, names, strict=True))
    shared = [name for name in program.hooks if name in values]
    return Program(
        target=lambda: graphed,
        arguments=(),
        structure=pytree.tree_flatten((tuple(leaves), {}))[1],
        leaves=leaves,
        leaf_names=tuple(name or "" for name in names),
        tensors=tensors,
        values=values,
        hooks={name: program.hooks[name] for name in shared},
        title=f"graph {index} of {program.title}",
    )


def renamed_program(program: Program, old: str, new: str) -> Program:
    """The Program with another name for one of its tensors."""
    if old not in program.values:
        return program

    def other(name: str) -> str:
        return new if name == old else name

    return replace(
        program,
        tensors=tuple(replace(named, name=other(named.name)) for named in program.tensors),
        values={other(name): value for name, value in program.values.items()},
        leaves=tuple(slot(other(leaf.name)) if is_slot(leaf) else leaf for leaf in program.leaves),
        leaf_names=tuple(map(other, program.leaf_names)),
        shields=frozenset(map(other, program.shields)),
        changed=frozenset(map(other, program.changed)) if program.changed is not None else None,
        assembled=tuple(tuple(map(other, group)) for group in program.assembled),
    )


# ------------------------------------------------------------------ from the last Pair to the first


def traced(
    book: Book, options: Options
) -> tuple[tuple[Pair, ...], tuple[Part, ...], dict[str, Tensor], tuple[Guard, ...]]:
    """Every Pair, its program, the constants of their ports, and the guards."""
    pairs: dict[int, Pair] = {}
    parts: dict[int, Part] = {}
    constants: dict[str, Tensor] = {}
    guards: list[tuple[Guard, ...]] = []
    refuse_shared_hooks(book)
    refuse_shared_casts(book)
    for index in reversed(range(len(book.entries))):
        entry = book.entries[index]
        part, places = finished(book, index, pairs)
        part, seen = scout(part)
        names = [entry.outputs[place] for place, _ in places]
        numbered = {f"output.{number}": name for number, name in enumerate(names)}
        made = aot.trace(
            part,
            seen,
            options.specialise or bool(entry.after or (index == 0 and book.before)),
            options.partition,
            options.decompose,
        )
        if made.unforeseen:
            raise CaptureError(
                f"{made.unforeseen[0]} reads values inside an operator or its backward, where engine 'dynamo' has no "
                "step that could check them: engine 'eager' keeps them as a guard"
            )
        made = replace(
            made,
            outputs=tuple((numbered.get(name, name), role) for name, role in made.outputs),
            tangents=tuple(numbered.get(name, name) for name in made.tangents),
        )
        assembled = assemble(read_fx(part, made).joint)
        own = {**assembled.constants, **part.outside}
        pair, table = with_constants(assembled.pair, index, own)
        pairs[index] = pair
        parts[index] = Part(renamed_parts(part, table), tuple(names))
        constants |= {table[name]: tensor for name, tensor in own.items()}
        own_guards = (replace(each, inputs=origins(book, index, each.inputs, table)) for each in assembled.guards)
        guards.insert(0, tuple(own_guards))
    order = range(len(book.entries))
    flat = tuple(guard for each in guards for guard in each)
    return tuple(pairs[index] for index in order), tuple(parts[index] for index in order), constants, flat


def refuse_shared_hooks(book: Book) -> None:
    """A hook sees the whole gradient of its tensor, which several Pairs give in parts."""
    for name in book.program.hooks:
        users = [index for index, entry in enumerate(book.entries) if name in entry.names]
        handed = [link for link in book.links if link.source is None and link.port.partition(" ")[2] == name]
        if len(users) + len(handed) > 1:
            raise CaptureError(f"{name} has a gradient hook and is used by {len(users)} graphs: each sees a part of it")


def refuse_shared_casts(book: Book) -> None:
    """Autocast casts a weight once for its region: the gradients of that copy add up before they are cast back."""
    casting = [entry for entry in book.entries if casts(entry.ran)]
    for entry in casting if torch.is_autocast_cache_enabled() else ():
        for name, tensor, asking in zip(entry.names, entry.ran.inputs, entry.ran.asked, strict=True):
            users = [other for other in casting if name in other.names]
            if asking and tensor.is_leaf and len(users) > 1:
                raise CaptureError(
                    f"{name} is used under autocast by {len(users)} graphs: autocast casts it once where they lie in "
                    "one region, and engine 'dynamo' does not follow that copy from one graph into another"
                )


def casts(ran: Ran) -> bool:
    """Whether a graph runs under autocast, or in part."""
    entered = any(node.target is torch.amp.autocast_mode._enter_autocast for node in ran.module.graph.nodes)
    return bool(ran.under.autocast) or entered


def finished(book: Book, index: int, pairs: Mapping[int, Pair]) -> tuple[Program, list[tuple[int, bool]]]:
    """A Pair's program with the outputs that are used, and what it reads; and those outputs' places."""
    entry = book.entries[index]
    places = []
    for place, name in enumerate(entry.outputs):
        links = [link for link in book.links if link.source == index and link.port == f"output {name}"]
        if links:
            places.append((place, entry.asking[place] and any(asks(link, pairs) for link in links)))
    graphed = Graphed(entry.ran.module, entry.ran.under)
    graphed.places = tuple(places)
    graphed.before = tuple((name, read.source) for name, read in book.before) if index == 0 else ()
    graphed.after = tuple(entry.after)
    read = dict.fromkeys(name for name, _ in graphed.before)
    graphed.extra = tuple(read)
    program, known = entry.program, {named.name for named in entry.program.tensors}
    extra = [(named, value) for named, value in entry.extra if named.name not in known]
    order = {named.name: place for place, named in enumerate(book.program.tensors)}
    tensors = sorted(
        (*program.tensors, *(named for named, _ in extra)), key=lambda named: order.get(named.name, len(order))
    )
    leaves = (*program.leaves, *map(slot, read))
    return replace(
        program,
        target=lambda: graphed,
        tensors=tuple(named for named in tensors if named.name not in program.outside),
        values={**program.values, **{named.name: value for named, value in extra}},
        leaves=leaves,
        leaf_names=(*program.leaf_names, *read),
        structure=pytree.tree_flatten((tuple(leaves), {}))[1],
        outside={},
    ), places


def asks(link: Link, pairs: Mapping[int, Pair]) -> bool:
    """Whether a gradient comes back over a link."""
    if link.target is None:
        return True
    backward = pairs[link.target].backward
    if backward is None:
        return False
    ports = zip(backward.outputs, backward.results, strict=True)
    return any(port.name == link.name and result is not None for port, result in ports)


def with_constants(pair: Pair, index: int, constants: Mapping[str, Tensor]) -> tuple[Pair, dict[str, str]]:
    """The Pair under its own name, its constants' ports under names that no other Pair's have."""
    table = {name: f"pair_{index}.{name}" for name in constants}

    def other(graph: Graph | None) -> Graph | None:
        if graph is None:
            return None
        inputs = tuple(replace(port, name=table.get(port.name, port.name)) for port in graph.inputs)
        return replace(graph, inputs=inputs)

    forward = other(pair.forward)
    assert forward is not None
    return Pair(f"pair_{index}", forward, other(pair.backward)), table


def renamed_parts(part: Program, table: Mapping[str, str]) -> Program:
    """A Pair's program whose outside tensors have the names that its ports have."""
    held = {table.get(name, name): tensor for name, tensor in part.outside.items()}
    tensors = tuple(replace(named, name=table.get(named.name, named.name)) for named in part.tensors)
    return replace(part, outside=held, tensors=tensors)


def origins(book: Book, index: int, names: Sequence[str], table: Mapping[str, str]) -> tuple[str, ...]:
    """The program's own tensors that values of one Pair hang on, through the Pairs before it."""
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


def needed_links(book: Book, outputs: Sequence[tuple[str, bool]]) -> tuple[Link, ...]:
    """The links; none where one Pair's outputs are the program's results as they are."""
    plain = [Link(0, f"output {name}", None, name) for name, _ in outputs]
    return () if len(book.entries) == 1 and book.links == plain else tuple(book.links)
