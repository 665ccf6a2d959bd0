"""Assemble a Pair from the Joint that an engine recorded: the one place where a forward is tied to its backward.

A Joint has the steps of both directions in one namespace, the inputs, and the results of the program. `assemble`
removes dead code, makes saved ports of the values that the backward reads, finds the guards, and gives each graph its
ports. A guard is a step that compares a value with the value of the captured run (`assert v == 3`): its arguments are
these two. A local is the name of a value inside a graph's text; a port's name is the program's own (`layer1.weight`).

`used(step)` are the names of the values that a step uses, and `refs(value)` those in an argument or a result.
`names.free(wanted)` returns a name like `wanted` that nothing has yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from backprint.graph.fx.convert import Names, tensor_spec
from backprint.graph.keys import tangent_name
from backprint.graph.nouns import Graph, Guard, Pair, Port, Ref, Spec, Step, Sub, Symbol, Value, leaves, refs
from backprint.graph.sizes import with_symbols
from backprint.graph.steps import READING, mapped, names_behind, needed_steps, used, with_names
from backprint.trace.watch import RANDOM, SIZED

Result = tuple[Port, Value]
"""One output of a forward or of a backward: its port, and its value in the graph. The value is None where a tensor that
requires grad has no gradient."""


@dataclass(frozen=True, slots=True)
class Note:
    """Facts about a step that its text does not show.

    `writes` names the values that the step changes in place. `draws` marks a random draw, which advances the generator
    even if its result is unused; `stays` marks any other step that must not be removed as dead code. `structure` marks
    a guard on how a sparse tensor is built. Inputs that are drawn again keep that structure.
    """

    writes: tuple[str, ...] = ()
    draws: bool = False
    stays: bool = False
    structure: bool = False


NO_NOTE = Note()


@dataclass(frozen=True, slots=True)
class Joint:
    """A forward and its backward as an engine recorded them.

    `inputs` are the ports of the forward, `results` its outputs and mutations, and `tangents` the inputs of the
    backward. The backward's steps name values of the forward directly. `same` has, by port name, the further names of a
    tensor that was passed more than once. `constants` are tensors made of Python numbers and the like, by local name,
    each with its port name. `notes` and `specs` are by local name; `specs` has the specs of saved values.
    `symbols` are the symbolic sizes, and `sizes` has the name in the graph of each symbol of torch's. Each input is a
    port, unless `keep_all_inputs` is False: then only inputs that a step or a result uses are ports.
    A guard names the inputs that its value depends on. They are found also through the steps in `before`, which ran
    before this forward and are not in it, back to the tensors in `known`: their port names, by local name. `groups` has
    the ranks of each process group in which a collective runs.
    """

    inputs: tuple[Port, ...]
    forward: tuple[Step, ...]
    results: tuple[Result, ...]
    tangents: tuple[Port, ...] = ()
    backward: tuple[Step, ...] = ()
    gradients: tuple[Result, ...] = ()
    same: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    constants: Mapping[str, tuple[str, Tensor]] = field(default_factory=dict)
    notes: Mapping[str, Note] = field(default_factory=dict)
    specs: Mapping[str, Spec] = field(default_factory=dict)
    subgraphs: Mapping[str, Graph] = field(default_factory=dict)
    symbols: tuple[Symbol, ...] = ()
    sizes: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, Step] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    keep_all_inputs: bool = True


@dataclass(frozen=True, slots=True)
class _AssembledPair:
    """A Pair, the tensors of its constant ports by port name, and its guards."""

    pair: Pair
    constants: Mapping[str, Tensor]
    guards: tuple[Guard, ...]


def assemble(joint: Joint, name: str = "pair_0") -> _AssembledPair:
    """Return the Pair of a Joint, with this name, and its constants and guards."""
    # The backward first: the values that it reads keep steps of the forward alive.
    dependencies = _Dependencies(joint)
    backward_steps = live_steps(joint, dependencies.without_constant_guards(joint.backward), _refs_of(joint.gradients))
    saved = _values_saved(joint, backward_steps)
    forward_steps = live_steps(
        joint, dependencies.without_constant_guards(joint.forward), [*_refs_of(joint.results), *saved]
    )
    names = names_of(joint)
    constants: dict[str, Tensor] = {}
    forward = forward_graph(joint, forward_steps, saved, names, constants)
    backward = backward_graph(joint, backward_steps, saved, names, constants) if joint.gradients else None
    guards = tuple(dependencies.guard(step) for step in (*forward_steps, *backward_steps) if step.is_guard)
    return _AssembledPair(Pair(name, forward, backward), constants, guards)


# ---- Dead code, and saved values


def names_in(steps: Iterable[Step], results: Iterable[Result]) -> set[str]:
    """Return the names of all values that steps or results use."""
    return {*(name for step in steps for name in used(step)), *_refs_of(results)}


def _refs_of(results: Iterable[Result]) -> list[str]:
    """Return the names of the values that results use."""
    return [name for _, value in results for name in refs(value)]


def live_steps(joint: Joint, steps: Sequence[Step], needed_names: Iterable[str]) -> list[Step]:
    """Return the steps without dead code: without those that no value of `needed_names` depends on. Guards, random
    draws, steps that a note keeps, and in-place updates of needed values are not dead."""

    def has_effect(step: Step, names_needed_after: Collection[str]) -> bool:
        note = joint.notes.get(step.name, NO_NOTE)
        return note.draws or note.stays or any(name in names_needed_after for name in note.writes)

    return needed_steps(steps, needed_names, has_effect)


def _values_saved(joint: Joint, steps: Sequence[Step]) -> list[str]:
    """Return the forward's values, inputs included, that the backward reads, in the order in which it reads them.
    `steps` are those of the backward."""
    own_names = {step.name for step in joint.forward} | {port.local for port in joint.inputs}
    read = [name for step in steps for name in used(step)] + _refs_of(joint.gradients)
    return [name for name in dict.fromkeys(read) if name in own_names]


# ---- Guards


class _Dependencies:
    """The steps of a Joint by name, to find the inputs that a value depends on. `ports` has the port name of each
    input, of each tangent and of each tensor in `known`, by local name."""

    def __init__(self, joint: Joint) -> None:
        self.joint = joint
        self.steps_by_name = {**joint.before, **{step.name: step for step in (*joint.forward, *joint.backward)}}
        self.ports = {**joint.known, **{port.local: port.name for port in joint.inputs}}
        self.ports |= {port.local: tangent_name(port.name) for port in joint.tangents}

    def without_constant_guards(self, steps: Sequence[Step]) -> list[Step]:
        """Return the steps without the guards that depend on no input: their values are the same in every run."""
        return [step for step in steps if not step.is_guard or self.inputs_behind(step)]

    def guard(self, step: Step) -> Guard:
        """Return the Guard that describes a guard step."""
        return Guard(self.kind(step), self.text(step), self.inputs_behind(step), step.source)

    def kind(self, step: Step) -> str:
        """Return the kind of a guard (`Guard.kind`): `spec`, `shape` or `value`."""
        if self.joint.notes.get(step.name, NO_NOTE).structure:
            return "spec"
        return "shape" if step.target == "assert_shape" else "value"

    def text(self, step: Step) -> str:
        """Return the condition of a guard as text. It names the tensor that a number was read from, not the number."""
        value = step.args[0]
        assert isinstance(value, Ref)
        # READING is the operator that reads a number from a tensor (`.item()`).
        maker = self.steps_by_name.get(value.name)
        read = maker.args[0] if maker is not None and maker.target == READING else value
        name = read.name if isinstance(read, Ref) else value.name
        match step.target:
            case "assert_shape":
                return f"{name}.shape == {step.args[1]}"
            case "assert_nan":
                return f"{name} is nan"
        return f"{name} == {step.args[1]!r}"

    def inputs_behind(self, step: Step) -> tuple[str, ...]:
        """Return the names of the inputs that a guarded value depends on, RANDOM included if it depends on a random
        draw; for a size, only of the inputs that determine the size."""
        # A value that no step makes is an input, a tangent or a constant. `ports` has no constants: they never change.
        inputs = set()
        # `names_behind`: the value's name, and the names of all values that it is computed from.
        for name in names_behind(refs(self.deciding_value(step)), self.steps_by_name):
            if name not in self.steps_by_name:
                inputs |= {self.ports[name]} if name in self.ports else set()
            elif self.joint.notes.get(name, NO_NOTE).draws:
                inputs.add(RANDOM)
        return tuple(sorted(inputs))

    def deciding_value(self, step: Step) -> Value:
        """Return the value that a guard is about: the number that was read, or the one argument that determines a
        size."""
        value = step.args[0]
        # The step that made the tensor whose size is guarded; None for a guard on a number.
        maker = self.steps_by_name.get(value.name) if isinstance(value, Ref) and step.target == "assert_shape" else None
        # An item of a tuple: the operator that returned the tuple decides its size.
        if maker is not None and maker.target == "operator.getitem" and isinstance(maker.args[0], Ref):
            maker = self.steps_by_name.get(maker.args[0].name)
        # The index of the one argument that determines the size; None if several arguments do.
        index = DECIDERS.get(maker.target) if maker is not None else None
        return value if maker is None or index is None else maker.args[index]


DECIDERS = {str(operator): index for operator, index in SIZED.items()}
"""For each operator of SIZED, by its target in a step, the index of the one argument that determines the result's
size."""

# ---- The two graphs


def forward_graph(
    joint: Joint, steps: Sequence[Step], saved: Sequence[str], names: Names, constants: dict[str, Tensor]
) -> Graph:
    """Return the forward Graph: its outputs are the program's results, then the saved values. `saved` are the locals
    that the backward reads, `names` the names in use in both graphs. The tensors of the graph's constant ports are
    added to `constants`."""
    outputs_with_values = [*joint.results, *((port, Ref(port.local)) for port in saved_ports(joint, saved))]
    used_names = names_in(steps, outputs_with_values)
    ports = [port for port in joint.inputs if joint.keep_all_inputs or port.local in used_names]
    # A tensor that was passed more than once has an input under each further name. No step uses these.
    for port in joint.inputs:
        ports += [replace(port, name=other, local=names.free(other)) for other in joint.same.get(port.name, ())]
    ports += constant_ports(joint, used_names, prefix="", constants=constants)
    # An output port has no local: its value is in the graph's results.
    outputs = tuple(replace(port, local="") for port, _ in outputs_with_values)
    return _build_graph(joint, ports, steps, outputs, tuple(value for _, value in outputs_with_values))


def backward_graph(
    joint: Joint, steps: Sequence[Step], saved: Sequence[str], names: Names, constants: dict[str, Tensor]
) -> Graph:
    """Return the backward Graph: its inputs are saved values and tangents, its outputs gradients. The parameters are
    those of `forward_graph`."""
    used_names = names_in(steps, joint.gradients)
    tangents = [port for port in joint.tangents if joint.keep_all_inputs or port.local in used_names]
    ports = [
        *saved_ports(joint, saved),
        *tangents,
        *constant_ports(joint, used_names, prefix="backward.", constants=constants),
    ]
    new_names = _gradient_names(joint, steps, names)  # the values that are gradients are called after their tensor
    outputs, results = [], []
    for port, value in joint.gradients:
        # A tensor that was passed for several parameters has its gradient under each name.
        for name in (port.name, *joint.same.get(port.name, ())):
            outputs.append(replace(port, name=name))
            results.append(with_names(value, lambda local: Ref(new_names.get(local, local))))
    return _build_graph(joint, ports, _rename_values(steps, new_names), tuple(outputs), tuple(results))


def saved_ports(joint: Joint, saved: Iterable[str]) -> list[Port]:
    """Return ports for the saved values, whose locals `saved` has. A saved input keeps its port's name."""
    inputs = {port.local: port for port in joint.inputs}
    specs = {step.name: step.spec for step in joint.forward}
    ports = []
    for name in saved:
        # An engine that records a run has the specs of its values; else the port or the step has the spec.
        spec = joint.specs.get(name) or (inputs[name].spec if name in inputs else specs.get(name))
        ports.append(Port(inputs[name].name if name in inputs else name, "saved", spec, name))
    return ports


def constant_ports(joint: Joint, used_names: Collection[str], prefix: str, constants: dict[str, Tensor]) -> list[Port]:
    """Return ports for the constants that are used, and add their tensors to `constants`. `prefix` is put before each
    port's name, so that the forward and the backward may have a constant of one name."""
    ports = []
    for local, (name, tensor) in joint.constants.items():
        if local in used_names:
            constants[prefix + name] = tensor
            ports.append(Port(prefix + name, "constant", tensor_spec(tensor), local))
    return ports


def _build_graph(
    joint: Joint, ports: Sequence[Port], steps: Sequence[Step], outputs: tuple[Port, ...], results: tuple[Value, ...]
) -> Graph:
    """Return a Graph with its guards numbered, and with the subgraphs and symbols that it uses. `results` has the value
    of each port in `outputs`."""
    count, numbered = 0, []
    for step in steps:
        if step.is_guard:
            step, count = replace(step, name=f"guard_{count}"), count + 1
        numbered.append(step)
    # A Sub stands for a subgraph among the arguments of a step.
    mentioned = {leaf.name for step in numbered for leaf in leaves((*step.args, step.kwargs)) if type(leaf) is Sub}
    subgraphs = tuple((name, graph) for name, graph in joint.subgraphs.items() if name in mentioned)
    return with_symbols(Graph(tuple(ports), tuple(numbered), outputs, results, subgraphs), joint.symbols, joint.sizes)


# ---- Names


def names_of(joint: Joint) -> Names:
    """Return the locals that a Joint uses, so that new names differ from them."""
    ports = (port.local for port in (*joint.inputs, *joint.tangents))
    return Names({*(step.name for step in (*joint.forward, *joint.backward)), *ports, *joint.constants})


def _gradient_names(joint: Joint, steps: Sequence[Step], names: Names) -> dict[str, str]:
    """Return a new name for each step of the backward whose result is a gradient: `grad_layer1_0_conv1_weight`."""
    step_names = {step.name for step in steps}
    new_names: dict[str, str] = {}
    for port, value in joint.gradients:
        if isinstance(value, Ref) and value.name in step_names and value.name not in new_names:
            new_names[value.name] = names.free(f"grad_{port.name}")
    return new_names


def _rename_values(steps: Sequence[Step], new_names: Mapping[str, str]) -> list[Step]:
    """Return the steps with values renamed. `new_names` is by old name."""
    renamed = []
    for step in steps:
        if any(name in new_names for name in (step.name, *used(step))):
            step = mapped(step, lambda name: Ref(new_names.get(name, name)))
            step = replace(step, name=new_names.get(step.name, step.name))
        renamed.append(step)
    return renamed
