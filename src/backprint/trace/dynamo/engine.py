"""Engine `dynamo`: capture each graph that Dynamo makes of a program as a Pair, and link the Pairs.

The program runs once under Dynamo (`frontend`). Tensors that go from one graph to another are known by identity and
become Links (`_Run`). Each graph is then a program of its own (`graphs`), which engine `aot` captures, the last first,
because later graphs decide which outputs of an earlier one need gradients.

A place is the index of an input or output of a graph, and a `pair` or a graph's number its index among the graphs that
ran. A number is read by `.item()`.

A Link says that a port of one Pair (None: of the program) feeds an input of a later one, or is a result of the program
(target None). A PortKey is the role and the name of a port. A GraphRun is one run of a graph: its inputs, outputs, and
which of them require grad. An EngineResult has the Pairs of a program, and what a Capture needs besides. A Holder is
the port that has a tensor's current value.

A CalledProgram is a callable with the named tensors of one call; an ObservedProgram has the findings of a first run
too. CaptureOptions are the user's options of a capture. A NamedTensor is the name, role and `requires_grad` of a
tensor, and a NumberRead a number that the program read between graphs. An opaque edge is a part of a program whose
gradient its forward does not show, such as a hook. A tensor's flags are facts that the user's code may read of it, such
as `requires_grad`. Foreign random generators are those that are not torch's.
"""

from __future__ import annotations

import contextvars
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, fx

from backprint._torch.modes import enter_autocast
from backprint._torch.tensors import storage_id
from backprint.errors import CaptureError, DataDependentError
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Graph, Guard, Link, Pair, Port, Source
from backprint.trace import frames
from backprint.trace.aot.engine import by_aot
from backprint.trace.dynamo import frontend
from backprint.trace.dynamo.frontend import DynamoRun, NumberRead
from backprint.trace.dynamo.graphs import GraphFunction, GraphRun, ValueRead, program_of
from backprint.trace.non_operator_effects import flag_guards, refuse_seeding
from backprint.trace.program import A_TENSOR, CalledProgram, NamedTensor, ObservedProgram, free_name
from backprint.trace.reach import compiled_parts, module_paths
from backprint.trace.request import EngineResult, Part
from backprint.trace.running import arguments_of_call, check_loss, staged
from backprint.trace.state.restore import with_foreign_random_states
from backprint.trace.warm_up import Findings, warm_up
from backprint.trace.watch import SEED
from backprint.values.results import outputs_of
from backprint.values.settings import preserving_random_states, seed_torch

# ---- Tensors between the graphs


@dataclass(frozen=True, slots=True)
class _Holder:
    """The port that has a tensor's current value: port `port` of graph `pair`, or of the program itself if `pair` is
    None. `name` is the name of an input that takes the value, and `refused` says why no graph may take the tensor any
    more ('' if one may)."""

    pair: int | None
    port: PortKey
    name: str
    refused: str = ""


@dataclass(slots=True, eq=False)
class _GraphEntry:
    """One run of a graph (`ran`) with the names of its inputs and outputs (None for an input that is no tensor).

    `tensors` are the inputs by name, `changed` the inputs that the graph writes to, and `requires_grad` the flag of
    each output. `read_after` are the numbers that the program reads after the graph has run.
    """

    ran: GraphRun
    names: list[str | None]
    tensors: dict[str, NamedTensor]
    changed: frozenset[str] = frozenset()
    outputs: list[str] = field(default_factory=list)
    requires_grad: list[bool] = field(default_factory=list)
    read_after: list[ValueRead] = field(default_factory=list)


class _Run:
    """The graphs of a run, entered in the order in which they ran, and the Links between them.

    `record` has the events and the result of the run, and `paths` the path of each module by its identity. `own` are
    the program's own tensors by name, and `named` their names, roles and flags. `read_before` are those whose numbers
    the program reads before a graph has changed them, each with the line; they are inputs of the first Pair. `holders`
    has the Holder of each tensor by identity, and `known` these tensors. `names_taken` has the names that ports have
    so far. `entries` are the graphs, and `links` the Links so far. `results` has the leaves of the program's result
    with their names, and `result_names` the name of each tensor among them by identity. `unused` are own tensors that
    no graph takes.
    """

    def __init__(
        self, program: ObservedProgram, record: DynamoRun, own: Mapping[str, Tensor], paths: Mapping[int, str]
    ) -> None:
        """Enter all graphs and reads of a run. `record` has these events and the result, `own` the program's own
        tensors by name, and `paths` the path of each module by its identity."""
        self.program, self.own, self.paths = program, own, paths
        self.named = {named.name: named for named in program.tensors}
        self.holders = {
            id(tensor): _Holder(pair=None, port=PortKey(self.named[name].role, name), name=name)
            for name, tensor in own.items()
        }
        self.known = list(own.values())  # Holders are found by id: their tensors are kept alive
        self.names_taken = list(program.tensors)
        self.entries: list[_GraphEntry] = []
        self.links: list[Link] = []
        self.read_before: list[tuple[str, Source | None]] = []
        self.unused: list[str] = []
        # A value that is a result of the program has the result's name.
        results, self.tree = outputs_of(record.result)
        self.results = [("loss", record.loss), *results] if record.loss is not None else results
        self.result_names: dict[int, str] = {}
        for name, leaf in self.results:
            if isinstance(leaf, Tensor) and name not in self.named:
                self.result_names.setdefault(id(leaf), name)
        for event in record.events:
            if isinstance(event, NumberRead):
                self.enter_read(event)
            else:
                self.enter_graph(event)

    def holder_of(self, tensor: Tensor, user: str) -> _Holder:
        """Return the Holder of a tensor's current value; raise a CaptureError if none is known, or if no graph may take
        the tensor any more. `user` names in errors what takes the tensor."""
        holder = self.holders.get(id(tensor))
        if holder is None:
            kind = f"{str(tensor.dtype)[6:]}{list(tensor.shape)}"
            raise CaptureError(f"{user} takes a {kind} tensor that no graph returns and the program does not name")
        if holder.refused:
            raise CaptureError(f"{user} takes {holder.name}: {holder.refused}")
        return holder

    def enter_graph(self, ran: GraphRun) -> None:
        """Enter one graph's run: links for its inputs, Holders for its outputs and for the inputs that it writes to.
        Refuse a graph that holds a tensor as an attribute."""
        index = len(self.entries)
        entry = _GraphEntry(ran, names=[], tensors={})
        # Name each input by the port that has its value, and link it to that port.
        for value, requires_grad in zip(ran.inputs, ran.requires_grad_before, strict=True):
            if not isinstance(value, Tensor):
                entry.names.append(None)
                continue
            holder = self.holder_of(value, self.title(index))
            entry.names.append(holder.name)
            if holder.pair is not None and holder.name not in entry.tensors:
                self.links.append(Link(holder.pair, holder.port, target=index, name=holder.name))
            # One of the program's own tensors has its role; what an earlier graph returned is an input.
            named = self.named.get(holder.name, NamedTensor(holder.name, "input", requires_grad=False))
            entry.tensors[holder.name] = replace(named, requires_grad=requires_grad)
        self.entries.append(entry)
        # A first run of the graph alone shows what it writes to, also by kernels whose schema does not say so.
        observed, _ = warm_up(self.program_of_graph(index, returned=None))
        if observed.external_tensors:
            raise CaptureError(
                f"{self.title(index)} holds {next(iter(observed.external_tensors))} as an attribute, not as an input"
            )
        entry.changed = observed.changed_names
        self.enter_mutations(index, entry)
        self.enter_outputs(index, entry)

    def enter_mutations(self, index: int, entry: _GraphEntry) -> None:
        """Let the graph's mutation ports be the Holders of the tensors that it wrote to. Other tensors in the same
        memory have changed too, unseen: they are refused if a later graph takes them. So is a written tensor that
        requires grad then."""
        places = [place for place, name in enumerate(entry.names) if name in entry.changed]
        written = {id(entry.ran.inputs[place]): place for place in places}  # by identity, the place of the input
        memories = {storage_id(entry.ran.inputs[place].untyped_storage()) for place in places}
        for tensor in self.known:
            if id(tensor) not in written and tensor.numel() and storage_id(tensor.untyped_storage()) in memories:
                reason = f"it shares memory with a tensor that graph {index} changes in place: return copies"
                self.holders[id(tensor)] = replace(self.holders[id(tensor)], refused=reason)
        for key, place in written.items():
            reason = (
                f"graph {index} changes it in place, and autograd would have to track that from one graph into "
                "another: write it out of place"
            )
            name = str(entry.names[place])
            tracked = entry.ran.requires_grad_after[place]
            self.holders[key] = _Holder(index, PortKey("mutation", name), name, refused=reason if tracked else "")

    def enter_outputs(self, index: int, entry: _GraphEntry) -> None:
        """Name the outputs of a graph, and enter a Holder for each output that is a new tensor."""
        returned = entry.ran.module.graph.output_node().args[0]
        for node, tensor in zip(returned, entry.ran.outputs, strict=True):
            is_new = isinstance(tensor, Tensor) and id(tensor) not in self.holders
            own_name = f"pair_{index}.{node.name if isinstance(node, fx.Node) else 'output'}"
            # A new tensor that is a result of the program has the result's name.
            name = free_name(self.result_names.get(id(tensor), own_name) if is_new else own_name, self.names_taken)
            self.names_taken.append(NamedTensor(name, "input", requires_grad=False))
            entry.outputs.append(name)
            entry.requires_grad.append(isinstance(tensor, Tensor) and tensor.requires_grad)
            if is_new:
                self.holders[id(tensor)] = _Holder(index, PortKey("output", name), name)
                self.known.append(tensor)

    def enter_read(self, read: NumberRead) -> None:
        """Make a guard of a number that the program read. It is on the Pair that returns the value, or on the first
        Pair if the value is the program's own."""
        holder = self.holder_of(read.tensor, "a read of a value")
        if holder.pair is None:
            self.read_before.append((holder.name, read.source))
            return
        entry = self.entries[holder.pair]
        role, name = holder.port  # an output of the graph, or a mutation of an input
        # As in `GraphFunction.read_after`: -1 is the first input, -2 the second, …: one that the graph has changed.
        place = entry.outputs.index(name) if role == "output" else -1 - entry.names.index(name)
        entry.read_after.append((place, read.source))

    def link_results(self, has_loss: bool) -> list[tuple[str, bool]]:
        """Link the ports that have the program's results to them; return the results' names, and whether each has a
        tangent. With a loss, only the loss has one."""
        outputs = []
        for name, leaf in self.results:
            if isinstance(leaf, Tensor):
                holder = self.holder_of(leaf, f"result {name!r}")
                self.links.append(Link(holder.pair, holder.port, target=None, name=name))
                outputs.append((name, leaf.requires_grad and (name == "loss" or not has_loss)))
        used = {name for entry in self.entries for name in entry.names}
        self.unused = [name for name in self.named if name not in used]
        return outputs

    # ---- One graph as a program

    def title(self, index: int) -> str:
        """Return the name of a graph for messages."""
        return f"graph {index} of {self.program.title}"

    def program_of_graph(self, index: int, returned: tuple[tuple[int, bool], ...] | None) -> CalledProgram:
        """Return one graph's run as a program that returns these results (None: all), each a place with whether it
        needs a gradient.

        The first graph has more inputs: the program's own tensors whose numbers it reads before a graph has changed
        them, and those that no graph takes.
        """
        entry, tensors = self.entries[index], dict(self.entries[index].tensors)
        # The further inputs by name, and the places of those that are read, each with the line.
        more: dict[str, Tensor] = {}
        read_before: list[ValueRead] = []
        if index == 0:
            for name in dict.fromkeys((*self.unused, *(name for name, _ in self.read_before))):
                more[name] = self.own[name].detach().clone()
                tensors.setdefault(name, self.named[name])
            places = {name: place for place, name in enumerate(more, start=len(entry.names))}  # after the graph's own
            read_before = [(places[name], source) for name, source in self.read_before]
        order = {named.name: place for place, named in enumerate(self.program.tensors)}
        return program_of(
            entry.ran,
            GraphFunction(entry.ran.module, entry.ran.modes, returned, tuple(read_before), tuple(entry.read_after)),
            entry.names,
            # The program's own tensors first, in its order, then values of earlier graphs.
            sorted(tensors.values(), key=lambda named: order.get(named.name, len(order))),
            paths=self.paths,
            title=self.title(index),
            more=more,
            hooks=self.program.hooks,
        )

    def returned_by(self, index: int, later: Mapping[int, Pair]) -> tuple[tuple[int, bool], ...]:
        """Return the places of a graph's outputs that a link uses, each with whether a gradient comes back over a link.
        `later` are the Pairs of the graphs that ran after this one, by index."""
        entry = self.entries[index]
        used: list[tuple[int, bool]] = []
        for place, name in enumerate(entry.outputs):
            links = [link for link in self.links if link.source == index and link.port == PortKey("output", name)]
            if links:
                needs_gradient = entry.requires_grad[place] and any(_has_gradient(link, later) for link in links)
                used.append((place, needs_gradient))
        return tuple(used)

    def own_tensors_behind(self, index: int, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the program's own tensors that the inputs `names` of a graph depend on, through the
        graphs before it."""
        # By a graph and the name of an input of it, the graph that returns the input's value; None for an own tensor.
        sources = {(link.target, link.name): link.source for link in self.links}
        queue = [(index, name) for name in names]
        own: dict[str, None] = {}  # a set that keeps the order
        for graph, name in queue:  # grows while it is read
            source = sources.get((graph, name))
            if source is None:
                own[name] = None
                continue
            # Which inputs of that graph the value depends on is not asked: all count.
            inputs = dict.fromkeys((source, before) for before in self.entries[source].names if before is not None)
            queue += [item for item in inputs if item not in queue]
        return tuple(own)


def _has_gradient(link: Link, pairs: Mapping[int, Pair]) -> bool:
    """Whether a gradient comes back over a link from its target, one of `pairs` or a result of the program."""
    # A result of the program: its tangent is an input of the backward.
    if link.target is None:
        return True
    backward = pairs[link.target].backward
    if backward is None:
        return False
    ports = zip(backward.outputs, backward.results, strict=True)
    return any(port.name == link.name and result is not None for port, result in ports)


# ---- Refusals


def _check_program(program: ObservedProgram, seen: Findings) -> None:
    """Refuse by name the parts of a program that Dynamo's graphs would lose. `seen` are the findings of its warm-up."""
    for edge in seen.opaque:
        if edge.kind == "hook" and edge.text == "a tensor hook":
            where = f" at {edge.source.at}: {edge.source.code!r}" if edge.source else ""
            raise CaptureError(f"engine 'dynamo' would lose a tensor hook that the program registers{where}")
    for name, source in seen.reads_without_operator[:1]:
        raise CaptureError(
            f"Tensor.{name} reads values{frames.place(source)}, which engine 'dynamo' has no step to check: read them "
            "with .item(), or use an engine that sees what runs"
        )
    for name in compiled_parts(program.target(), program.title):
        raise CaptureError(f"{name} is compiled already: capture a program that is not")
    if outside := sorted(set(program.external_tensors) & program.cloned_when_traced):
        raise CaptureError(
            f"{outside[0]} comes from outside and is changed or hooked, which engine 'dynamo' does not support"
        )


def _check_run(run: _Run) -> None:
    """Refuse programs in which autograd makes one gradient of several graphs together, for a gradient hook or for
    autocast's cached cast of a weight: each Pair would have a part of it."""
    for name in run.program.hooks:
        users = [entry for entry in run.entries if name in entry.names]
        returned = [link for link in run.links if link.source is None and link.port.name == name]
        if len(users) + len(returned) > 1:
            raise CaptureError(f"{name} has a gradient hook and is used by {len(users)} graphs: each sees a part of it")
    # Autocast casts a weight once: the gradients of the one copy add up before the cast back.
    casting = [entry for entry in run.entries if _runs_under_autocast(entry.ran)]
    for entry in casting if torch.is_autocast_cache_enabled() else ():
        flags = entry.ran.requires_grad_before
        for weight, tensor, requires_grad in zip(entry.names, entry.ran.inputs, flags, strict=True):
            users = [other for other in casting if weight in other.names]
            # Autocast's cache is for leaves that require grad.
            if requires_grad and tensor.is_leaf and len(users) > 1:
                raise CaptureError(
                    f"{weight} is used under autocast by {len(users)} graphs: autocast casts it once where they are in "
                    "one region, and engine 'dynamo' does not track that copy from one graph into another"
                )


def _runs_under_autocast(ran: GraphRun) -> bool:
    """Whether a graph runs under autocast, or in part."""
    entered = any(node.target is enter_autocast for node in ran.module.graph.nodes)
    return bool(ran.modes.autocast) or entered


# ---- Each graph as a Pair


def _capture_graphs(run: _Run, options: CaptureOptions) -> list[EngineResult]:
    """Return the capture of every graph by engine `aot`, in the order in which the graphs ran. Refuse a graph that
    reads values where no step could check them."""
    captured: dict[int, EngineResult] = {}
    # The last first: whether an output needs a gradient is known from the backwards of the graphs after it.
    for index in reversed(range(len(run.entries))):
        returned = run.returned_by(index, {later: result.pairs[0] for later, result in captured.items()})
        program = run.program_of_graph(index, returned)
        # The numbers that the program reads between graphs are guards whatever the user's `specialize` is: `by_dynamo`
        # refuses them afterwards if it is False.
        guarded = bool(run.entries[index].read_after or (index == 0 and run.read_before))
        result = by_aot(program, replace(options, specialize=bool(options.specialize) or guarded))
        if result.unguarded:
            raise CaptureError(
                f"{result.unguarded[0]}, where engine 'dynamo' has no step that could check them: engine 'eager' keeps "
                "them as a guard"
            )
        captured[index] = _with_names_of_run(run, index, result, places=[place for place, _ in returned])
    return [captured[index] for index in range(len(run.entries))]


def _with_names_of_run(run: _Run, index: int, result: EngineResult, places: Sequence[int]) -> EngineResult:
    """Return the capture of one graph with the names that the run has for its outputs, which are at these places, and
    with names for its constants that no other Pair uses."""
    outputs = tuple(run.entries[index].outputs[place] for place in places)
    # The new names, by the role and the name that a port has.
    names = {("constant", name): f"pair_{index}.{name}" for name in result.constants}
    # A graph returns a tuple, so the trace has named its results by number.
    for number, name in enumerate(outputs):
        names |= {(role, f"output.{number}"): name for role in ("output", "tangent")}

    def renamed(ports: tuple[Port, ...]) -> tuple[Port, ...]:
        return tuple(replace(port, name=names.get((port.role, port.name), port.name)) for port in ports)

    def with_names(graph: Graph) -> Graph:
        return replace(graph, inputs=renamed(graph.inputs), outputs=renamed(graph.outputs))

    def own_inputs(guard: Guard) -> tuple[str, ...]:
        """Return the program's own tensors, and the constants, that a guard's value depends on, by their new names."""
        return tuple(names.get(("constant", name), name) for name in run.own_tensors_behind(index, guard.inputs))

    (pair,) = result.pairs
    backward = with_names(pair.backward) if pair.backward is not None else None
    return replace(
        result,
        pairs=(Pair(f"pair_{index}", with_names(pair.forward), backward),),
        outputs=outputs,
        constants={names["constant", name]: tensor for name, tensor in result.constants.items()},
        guards=tuple(replace(guard, inputs=own_inputs(guard)) for guard in result.guards),
    )


# ---- The engine


def by_dynamo(program: CalledProgram, options: CaptureOptions) -> EngineResult:
    """Capture a program by engine `dynamo`, with graph breaks and static shapes. Raise a CaptureError if Dynamo makes
    no graph of it, and a DataDependentError if it reads values and the user passed `specialize=False`."""
    observed, seen = warm_up(program)
    _check_program(observed, seen)
    paths = module_paths(program.target())
    record, own = _run_under_dynamo(observed, paths)
    if not any(isinstance(event, GraphRun) for event in record.events):
        raise CaptureError(f"Dynamo makes no graph of {program.title}: no tensor operator runs in it")
    run = _Run(observed, record, own, paths)
    outputs = run.link_results(record.loss is not None)
    _check_run(run)
    captured = _capture_graphs(run, options)
    guards = tuple(guard for result in captured for guard in result.guards)
    first_read = next((guard for guard in guards if guard.kind in ("value", "shape")), None)
    if options.specialize is False and first_read is not None:
        raise DataDependentError(
            f"the program reads {first_read.text}{frames.place(first_read.source)}, and specialize=False"
        )
    # No links are needed if there is one Pair, whose outputs are the program's results.
    plain = [Link(source=0, port=PortKey("output", name), target=None, name=name) for name, _ in outputs]
    return EngineResult(
        program=observed,
        pairs=tuple(pair for result in captured for pair in result.pairs),
        outputs=tuple(name for name, _ in outputs),
        differentiable=tuple(name for name, requires_grad in outputs if requires_grad),
        tree=run.tree,
        leaves=tuple(A_TENSOR if isinstance(leaf, Tensor) else leaf for _, leaf in run.results),
        constants={name: tensor for result in captured for name, tensor in result.constants.items()},
        guards=(*guards, *flag_guards(program, seen.flags)),
        opaque=tuple(dict.fromkeys(seen.opaque)),
        outcome=seen.outcome,
        links=() if len(captured) == 1 and run.links == plain else tuple(run.links),
        breaks=tuple(dict.fromkeys(record.breaks)),
        parts=tuple(Part(result.program, result.outputs) for result in captured),
    )


def _run_under_dynamo(program: ObservedProgram, paths: Mapping[int, str]) -> tuple[DynamoRun, dict[str, Tensor]]:
    """Run the program's own forward under Dynamo, on its own tensors; return the run, and by name these tensors and
    those from outside. `paths` has the path of each module by its identity. Refuse a program that puts another tensor
    in the place of one."""
    unwritten_parameters = {
        named.name for named in program.tensors if named.role == "parameter"
    } - program.changed_names
    with preserving_random_states(), staged(program) as stage:
        seed_torch(SEED)
        args, kwargs = arguments_of_call(program, stage.unwrapped)
        with refuse_seeding(program), with_foreign_random_states(program.foreign_random, program.target.snapshot):
            # A parameter that the program does not write to keeps its values: no copy of it is needed.
            stay = {id(tensor) for name, tensor in stage.unwrapped.items() if name in unwritten_parameters}
            # In a copy of the context, so that ContextVars that the program sets are gone after the run.
            record = contextvars.copy_context().run(
                frontend.run_under_dynamo,
                program.target(),
                args,
                kwargs,
                loss=program.loss,
                paths=paths,
                stays=lambda tensor: id(tensor) in stay,
            )
        replaced = sorted({**stage.new_tensors(), **stage.new_gradients()})
        own = {**stage.unwrapped, **program.external_tensors}
    if replaced:
        raise CaptureError(
            f"{program.title} replaces {replaced[0]} by another tensor, which engine 'dynamo' does not support: "
            "change it in place"
        )
    if program.loss is not None:
        check_loss(record.loss)
    return record, own
