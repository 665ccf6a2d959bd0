"""Partition a step into forward and backward: which values are saved, and which the backward recomputes.

An engine that records a run keeps the values that autograd saved. `repartition` calls a partition function of PyTorch
(`min-cut`, `default`) or of the user instead. Such a function expects one joint torch.fx graph as AOTAutograd makes it,
and returns two. So a Joint of any engine is written as such a graph, and the two results are read back:

1. In-place updates are replaced by uses of their results, because a partition function orders nodes by data alone.
2. Guards, and the numbers that only guards use, are taken out: partition functions do not support numbers.
3. Values that nothing uses, but that must be computed (draws, effects, the values that guards check), become results.
4. Each fx node has its Step in its metadata, so that the steps that come back keep their line, echo and spec.

`mapped(step, named)` is a step in which `named(name)` stands for each name among its arguments, and `with_names` does
that for one value. `used(step)` are the names of the values that a step uses. A Result is a port and its value. A Note
has facts about a step: what it `writes` in place, whether it `draws` random numbers, and whether it `stays` although
nothing uses it.

A Joint has the steps of the forward and of the backward before they are two graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import fx

from backprint._torch import aot
from backprint._torch.aot import config as functorch_config
from backprint._torch.distributed import is_collective
from backprint._torch.operators import OpOverload
from backprint.errors import CaptureError
from backprint.graph.fx.convert import Names, Side
from backprint.graph.fx.to_fx import to_fx
from backprint.graph.nouns import Echo, Graph, Port, Ref, ScalarSpec, Step, TensorSpec, Value, refs
from backprint.graph.steps import SAVING, mapped, used, with_names
from backprint.trace.assembly import NO_NOTE, Joint, Result, constant_ports, names_of

PARTITIONS = {"min-cut": "min_cut_partition", "default": "default_partition"}
"""The partition functions by name, each with its name in `_torch.aot`. To look one up there loads Inductor."""


def why_partition_needs_all_layers(partition: str | Callable[..., Any] | None) -> str:
    """Return why the partition of one layer of a model may depend on the other layers, so that a layer cannot be
    partitioned alone; '' if it is PyTorch's own partition in its usual settings."""
    if callable(partition):
        return "partition= is a function"
    if functorch_config.activation_memory_budget != 1.0:
        return "a memory budget (activation_memory_budget)"
    return "a pass over the joint graph (joint_custom_pass)" if functorch_config.joint_custom_pass is not None else ""


def partition_joint(joint: fx.GraphModule, partition: str | Callable[..., Any], outputs: int) -> tuple[Any, Any]:
    """Partition a joint torch.fx graph into a forward and a backward, and return both as GraphModules; the first
    `outputs` results are the forward's. `partition` is a name in PARTITIONS or a function."""
    function = _partition_function(partition)
    for node in joint.graph.nodes:
        # A selective checkpoint leaves None here, and partition functions sort nodes by this number.
        if node.meta.get("ac_graph_id", 0) is None:
            node.meta["ac_graph_id"] = 0
    # With it, a graph has generator objects as random states, which the text of a graph cannot hold.
    settings = {"graphsafe_rng_functionalization": False}
    if any(isinstance(node.target, OpOverload) and is_collective(node.target) for node in joint.graph.nodes):
        # Common subexpression elimination would merge equal collectives, and a rank must send as often as the program.
        settings["cse"] = False
    with functorch_config.patch(settings):
        # The second parameter of a partition function, `_joint_inputs`, is unused in PyTorch's own.
        forward, backward = function(joint, [], num_fwd_outputs=outputs)
    return forward, backward


def _partition_function(partition: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return a partition function by its name. A function is returned as it is. Raise a CaptureError for another
    name."""
    if callable(partition):
        return partition
    if partition not in PARTITIONS:
        raise CaptureError(f"partition={partition!r} is not one of {', '.join(PARTITIONS)}, nor a callable")
    function: Callable[..., Any] = getattr(aot, PARTITIONS[partition])
    return function


def repartition(joint: Joint, partition: str | Callable[..., Any]) -> Joint:
    """Return a Joint with its steps partitioned again by a partition function; without a backward, the Joint itself."""
    if not joint.gradients:
        return joint
    _refuse_sparse(joint)
    # Write the Joint as a graph of values without guards, in which nothing that must stay is dead code.
    joint = _updates_as_values(joint)
    guard_steps = _steps_of_guards([*joint.forward, *joint.backward], [*joint.results, *joint.gradients])
    kept_forward, kept_backward = (
        _values_to_keep(joint, joint.forward, guard_steps),
        _values_to_keep(joint, joint.backward, guard_steps),
    )
    module = _joint_to_fx(joint, kept_forward, kept_backward, guard_steps)
    # Partition it, and read both directions back as Steps.
    forward, backward = partition_joint(module, partition, len(joint.results) + len(kept_forward))
    names = names_of(joint)
    forward_reader = _PartitionReader(forward, names, joint, forward_steps={})  # `names`: those that are in use
    forward_steps = forward_reader.steps()
    results, forward_values = forward_reader.returned(joint.results, kept_forward)
    backward_reader = _PartitionReader(backward, names, joint, {step.name: step for step in forward_steps})
    backward_steps = backward_reader.steps()
    gradients, backward_values = backward_reader.returned(joint.gradients, kept_backward)
    # Put the guards where the values are now.
    return replace(
        joint,
        forward=tuple(_insert_guard_steps(joint.forward, guard_steps, forward_steps, forward_values)),
        backward=tuple(_insert_guard_steps(joint.backward, guard_steps, backward_steps, backward_values)),
        results=results,
        gradients=gradients,
    )


def _refuse_sparse(joint: Joint) -> None:
    """Raise if a value is sparse: partition functions compare sizes of dense tensors in bytes."""
    for port in (*joint.inputs, *joint.tangents):
        if isinstance(port.spec, TensorSpec) and port.spec.layout != "strided":
            raise CaptureError(
                f"partition= takes dense tensors, and {port.name!r} is {port.spec.layout}: {LEAVE_PARTITION_OUT}"
            )
    for step in (*joint.forward, *joint.backward):
        specs = step.spec if isinstance(step.spec, tuple) else (step.spec,)
        if any(isinstance(spec, TensorSpec) and spec.layout != "strided" for spec in specs):
            raise CaptureError(
                f"partition= takes dense tensors, and {step.target} makes a sparse one: {LEAVE_PARTITION_OUT}"
            )


LEAVE_PARTITION_OUT = "leave partition= out to keep what autograd saved"
"""What to do, in messages."""


def _updates_as_values(joint: Joint) -> Joint:
    """Return a Joint in which each use of a value after an in-place update is a use of the update's result. Refuse a
    step that updates several values.

    A partition function sees data dependencies only: without this, it could move a read before the update, or drop the
    update.
    """
    # By the name of a value that was updated: the name of its latest value.
    latest_name: dict[str, str] = {}
    # A random draw in place that saves its generator's state (SAVING) returns a tuple, whose second item is the updated
    # value. The names that it writes, until the step that takes this item.
    saving_draws: dict[str, tuple[str, ...]] = {}

    def rewrite_in_order(steps: Iterable[Step]) -> list[Step]:
        """Return the steps with the latest names in them, and note the updates that they make in `latest_name`."""
        rewritten = []
        for step in steps:
            written = joint.notes.get(step.name, NO_NOTE).writes
            step = mapped(step, lambda name: Ref(latest_name.get(name, name)))
            rewritten.append(step)
            if written and step.target == SAVING:
                saving_draws[step.name] = written
                continue
            match step.target, step.args:
                case "operator.getitem", (Ref(name), 1) if name in saving_draws:
                    written = saving_draws.pop(name)  # this item is the updated value
            if len(written) > 1 or (written and not isinstance(step.spec, TensorSpec)):
                raise CaptureError(
                    f"partition= cannot follow {step.target}, which updates several values: {LEAVE_PARTITION_OUT}"
                )
            # The update's result is now the latest value of the updated value, and of all its earlier names.
            latest_name.update(dict.fromkeys(written, step.name))
            latest_name.update({old: step.name for old, new in latest_name.items() if new in written})
        return rewritten

    def with_latest_names(results: Iterable[Result]) -> tuple[Result, ...]:
        return tuple(
            (port, with_names(value, lambda name: Ref(latest_name.get(name, name)))) for port, value in results
        )

    # In this order: the forward's results must not have the names of updates in the backward.
    forward = tuple(rewrite_in_order(joint.forward))
    results = with_latest_names(joint.results)
    backward = tuple(rewrite_in_order(joint.backward))
    gradients = with_latest_names(joint.gradients)
    return replace(joint, forward=forward, results=results, backward=backward, gradients=gradients)


def _steps_of_guards(steps: Sequence[Step], results: Iterable[Result]) -> set[str]:
    """Return the names of the guards among the steps, and of the steps that compute numbers which only guards use.
    `results` are those of both directions."""
    used_elsewhere = {name for _, value in results for name in refs(value)}
    names: set[str] = set()
    # In reverse, so that all users of a number are known before it is looked at.
    for step in reversed(steps):
        if step.is_guard or (isinstance(step.spec, ScalarSpec) and step.name not in used_elsewhere):
            names.add(step.name)
        else:
            used_elsewhere.update(used(step))
    return names


def _values_to_keep(joint: Joint, steps: Iterable[Step], guard_steps: Collection[str]) -> list[str]:
    """Return the names of the values that a direction (`steps`) must compute even if nothing uses them: random draws,
    other steps that must stay, and values that guards check. `guard_steps` is the result of `_steps_of_guards`."""
    # A dict is a set that keeps the order.
    names: dict[str, None] = {}
    tuples: set[str] = set()
    for step in steps:
        note = joint.notes.get(step.name, NO_NOTE)
        if step.name in guard_steps:
            names |= dict.fromkeys(name for name in used(step) if name not in guard_steps)
        elif (note.draws or note.stays) and isinstance(step.spec, TensorSpec):
            names[step.name] = None
        elif note.draws or note.stays:
            # A tuple cannot be a result of the graph, but its items can.
            tuples.add(step.name)
        elif step.target == "operator.getitem" and not tuples.isdisjoint(used(step)):
            names[step.name] = None
    return list(names)


def _joint_to_fx(
    joint: Joint, kept_forward: list[str], kept_backward: list[str], guard_steps: Collection[str]
) -> fx.GraphModule:
    """Return the forward and the backward of a Joint as one torch.fx graph, in the form that partition functions
    expect. Its results are those of the forward and `kept_forward`, then those of the backward and `kept_backward`.

    Partition functions know inputs by their names (`primals_0`, `tangents_0`) and sort nodes by `partitioner_tag`.
    Draws, effects and updates must stay in their direction: a draw that the backward repeated would give other numbers.
    """
    # The tensors of the constants are not needed here, so they are put into a dict that is dropped.
    constants: list[Port] = constant_ports(joint, joint.constants.keys(), prefix="", constants={})
    results = [
        *joint.results,
        *_results_kept_alive(kept_forward),
        *joint.gradients,
        *_results_kept_alive(kept_backward),
    ]
    steps = tuple(step for step in (*joint.forward, *joint.backward) if step.name not in guard_steps)
    graph = Graph(
        (*joint.inputs, *constants, *joint.tangents),
        steps,
        tuple(replace(port, local="") for port, _ in results),
        tuple(value for _, value in results),
        tuple(joint.subgraphs.items()),
    )
    module = to_fx(graph)
    primal_count = len(joint.inputs) + len(constants)
    for index, node in enumerate(module.graph.find_nodes(op="placeholder")):
        node.target = f"primals_{index}" if index < primal_count else f"tangents_{index - primal_count}"
        # Partition functions read `val` of every node; a number stands for a value that is no tensor.
        node.meta.setdefault("val", 0)
    names_in_backward = {step.name for step in joint.backward}
    for step, node in zip(steps, _call_nodes(module), strict=True):
        note = joint.notes.get(step.name, NO_NOTE)
        # Partition functions copy the metadata, so a node that comes back is known by its Step.
        node.meta["step"] = step
        node.meta.setdefault("val", 0)
        direction = "backward" if step.name in names_in_backward else "forward"
        must_stay = note.draws or note.stays or note.writes
        node.meta["partitioner_tag"] = f"must_be_in_{direction}" if must_stay else f"is_{direction}"
    return module


def _results_kept_alive(names: Iterable[str]) -> list[Result]:
    """Return outputs for the values that must not be removed as dead code. They are outputs only for the time of the
    partition."""
    return [(Port(f"kept.{name}", "output"), Ref(name)) for name in names]


def _call_nodes(module: fx.GraphModule) -> list[fx.Node]:
    """Return the nodes of a graph that call an operator."""
    return [node for node in module.graph.nodes if node.op == "call_function"]


class _PartitionReader:
    """Reads one direction of a partitioned graph as Steps.

    For a backward, `forward_steps` has the steps of the forward by name. A node whose step is among them is recomputed
    in the backward, so it gets a new name and the echo `recomputes NAME` (an Echo says how a step relates to the other
    direction). `side` has the names that are in use, and the name of the value of each node read so far.
    """

    def __init__(self, module: fx.GraphModule, names: Names, joint: Joint, forward_steps: Mapping[str, Step]) -> None:
        """`module` is the graph to read, and `names` are the names in use. For a backward, `forward_steps` has the
        steps of the forward by name."""
        self.module, self.forward_steps = module, forward_steps
        self.side = Side(module, names, subgraphs=dict(joint.subgraphs))
        for node in module.graph.find_nodes(op="placeholder"):
            # An input of the Joint has its port in its metadata; a saved value has the step that made it.
            port = node.meta.get("port")
            self.side.locals[node.name] = port.local if port is not None else node.meta["step"].name

    def steps(self) -> list[Step]:
        """Return the steps of this direction in order."""
        steps = []
        for node in self.module.graph.nodes:
            if node.op == "get_attr":
                self.side.attribute(node)
            elif node.op == "call_function":
                steps.append(self.step_of_node(node))
        return steps

    def step_of_node(self, node: fx.Node) -> Step:
        """Return the Step of a node, with the line, the spec and the echo that it had before the partition."""
        original: Step | None = node.meta.get("step")
        if original is None:  # the partition function has inserted the node
            return self.side.step_of_node(node, source=None, echo=None)
        is_recomputed = original.name in self.forward_steps
        local = self.side.names.free(original.name) if is_recomputed else original.name
        self.side.locals[node.name] = local
        echo = Echo("recomputes", (original.name,)) if is_recomputed else original.echo
        return replace(self.side.step_of_node(node, original.source, echo), spec=original.spec)

    def returned(self, results: Sequence[Result], kept: Sequence[str]) -> tuple[tuple[Result, ...], dict[str, Value]]:
        """Return the results with their new values, and the new values of the names in `kept`, which follow the results
        in the graph's output."""
        values = [self.side.pack(node) for node in self.module.graph.output_node().args[0]]
        count = len(results)
        ports = [port for port, _ in results]
        return (
            tuple(zip(ports, values[:count], strict=True)),
            dict(zip(kept, values[count : count + len(kept)], strict=True)),
        )


def _insert_guard_steps(
    steps_before: Iterable[Step], guard_steps: Collection[str], steps: list[Step], new_values: Mapping[str, Value]
) -> list[Step]:
    """Return the steps of one direction after the partition, with its guards among them again, each right after the
    value that it checks. The guards are in `steps_before`, and `new_values` has the new value of each value that they
    check."""
    # By the name of a step, its index among the steps after the partition; of a guard, that of the step it follows.
    places = {step.name: index for index, step in enumerate(steps)}
    # By the index of a step, the guards that follow it; -1 is before the first step, for guards on inputs only.
    guards_after: dict[int, list[Step]] = {}
    for step in steps_before:
        if step.name in guard_steps:  # a guard, or a step that computes a number for guards only
            guard = mapped(step, lambda name: new_values.get(name, Ref(name)))
            # After the last value that it checks; a number that only guards use goes with its guard.
            places[step.name] = max((places[name] for name in used(guard) if name in places), default=-1)
            guards_after.setdefault(places[step.name], []).append(guard)
    steps_with_guards = guards_after.pop(-1, [])
    for index, step in enumerate(steps):
        steps_with_guards.append(step)
        steps_with_guards += guards_after.get(index, ())
    return steps_with_guards
