"""Makes the Pass of a region: the record of one backward call (`tools/regions/nouns.py`), with names for its nodes and
edges.

It is made from a BackwardCall, which `follow.py` fills while autograd runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from backprint._torch.autograd import metadata_of_inputs
from backprint.tools.regions import names
from backprint.tools.regions.follow import BackwardCall, KeptGradient, NodeFlow, ReachedNode, dtype_text, root_node
from backprint.tools.regions.nouns import (
    LEVELS,
    RUN,
    BackwardRoot,
    Edge,
    Input,
    Node,
    NonfiniteOrigin,
    Pass,
    Unwatched,
)
from backprint.tools.regions.origins import origin_of
from backprint.tools.regions.records import NodeRecord, OperatorRun


class PassBuild:
    """Makes the Pass of one region from a backward call.

    `core` is the state of the region (RegionCore). `ran` has the nodes of the region that the backward ran, and
    `titles` the name of each node. `user_names` has the names of the user's variables for tensors: the key is the id of
    the grad_fn and the output number, or, for a leaf tensor, the id of the tensor and -1.

    A node takes gradients at its inputs and returns gradients at its outputs, as autograd counts them: `place` is the
    number of an input and `slot` the number of an output. A target is a (node, place) that takes a gradient. Of a
    ReachedNode, `slots` has for each output its target, or None, `targets` has the targets without the Nones, and
    `record` says how the forward made the node. Of a NodeFlow, `taken` has the gradients at the inputs and `returned`
    those at the outputs.
    """

    def __init__(self, core: Any, call: BackwardCall) -> None:
        self.core, self.call = core, call
        self.ran = [node for node in call.flows if self.is_inside(node)]
        self.keeps_values, self.keeps_stats = (LEVELS.index(core.level) >= level for level in (2, 1))
        self.titles: dict[Any, str] = {}
        self.user_names = core.names.here()

    def is_inside(self, node: Any) -> bool:
        """Whether a node was made in the region."""
        return self.core in self.call.nodes[node].cores

    def make_pass(self, index: int, error: str) -> Pass:
        """Make the Pass. `index` is its number among the passes of the region, and `error` the exception of the
        backward, or ''."""
        inside = set(self.ran)
        fed_by_region = {target for node in self.ran for target, _ in self.call.nodes[node].targets}
        # The nodes of the region, those that take gradients from them, and those that return gradients to them.
        near = [
            node
            for node in self.call.flows
            if node in inside
            or node in fed_by_region
            or any(target in inside for target, _ in self.call.nodes[node].targets)
        ]
        self.name_nodes([*near, *self.targets_not_run(near, inside)], inside)
        edges = [edge for node in near for edge in self.edges_from(node, inside)]
        inputs = [row for node in near if node in inside or node in fed_by_region for row in self.gradients_taken(node)]
        return Pass(
            self.core.title,
            index,
            self.call.started,
            self.call.seconds,
            self.core.level,
            self.backward_roots(),
            tuple(self.make_node(node, node in inside) for node in self.named_nodes_in_order(near)),
            tuple(edges),
            tuple(inputs),
            error,
            tuple(f"{type(watching_error).__name__}: {watching_error}" for watching_error in self.call.errors[:3]),
            torch.__version__,
            self.origin(near),
            RUN,
        )

    def targets_not_run(self, near: list[Any], inside: set[Any]) -> list[Any]:
        """Return the nodes that a node of the region returned a gradient for, and that did not run.
        `torch.autograd.grad` stops before the nodes of its inputs, so these have gradients and do not run."""
        nodes: dict[Any, None] = {}
        for node in near:
            for target, kept in zip(self.call.nodes[node].slots, self.call.flows[node].returned, strict=False):
                if node in inside and target is not None and kept is not None and target[0] not in self.call.flows:
                    nodes[target[0]] = None
        return list(nodes)

    def named_nodes_in_order(self, near: list[Any]) -> list[Any]:
        """Return the nodes of the Pass: those that ran, in the order in which they ran, and then those that did not."""
        ran = set(near)
        return [*near, *(node for node in self.titles if node not in ran)]

    # ---- Names

    def name_nodes(self, near: list[Any], inside: set[Any]) -> None:
        """Choose the name of each node.

        If several nodes would have one name, numbers are appended: to nodes of the region in the order in which the
        forward made them, and then to the others in the order of `near`.
        """
        used_names: dict[str, int] = {}
        self.titles.update(_titles_inside(self.core, self.call.nodes, inside, used_names))
        for node in near:
            if node not in inside:
                self.titles[node] = names.unique_title(self.name_of_outside_node(node), used_names)

    def name_of_outside_node(self, node: Any) -> str:
        """Return the name of a node that was not made in the region."""
        if names.is_leaf(self.call.nodes[node].kind):
            return self.name_of_leaf(node.variable) or "leaf"
        return self.call.nodes[node].kind

    def name_of_leaf(self, tensor: Tensor) -> str:
        """Return the user's name for a leaf tensor, or ''."""
        return self.core.names.parameter(tensor) or self.user_names.get((id(tensor), -1), "")

    def name_of_tensor(self, node: Any, place: int) -> str:
        """Return the name of the forward tensor whose gradient a node takes at this input."""
        reached = self.call.nodes[node]
        if names.is_leaf(reached.kind):
            return self.titles[node]
        record = reached.record if self.is_inside(node) else None
        user_name = (record.outputs.get(place) if record is not None else None) or self.user_names.get(
            (id(node), place)
        )
        if user_name:
            return user_name
        return self.titles[node] if len(metadata_of_inputs(node)) == 1 else f"{self.titles[node]}.{place}"

    # ---- The parts of a Pass

    def origin(self, near: list[Any]) -> NonfiniteOrigin | Unwatched | None:
        """Return where NaN and Inf come from: the first NaN that the forward made, else the first gradient of the
        backward that has some; None if there are none."""
        if not self.keeps_stats:
            return Unwatched()
        for node in sorted(self.ran, key=lambda node: _node_record(self.call.nodes[node]).seq):
            for run in _runs_of_node(self.call.nodes[node]):
                if run.bad_results and run.source is not None and run.source.what == "NaN":
                    return origin_of(self.core, run)
        return next((origin for node in near if (origin := self.origin_at_node(node)) is not None), None)

    def origin_at_node(self, node: Any) -> NonfiniteOrigin | None:
        """Return where the NaN or Inf in the gradients that a node took or returned come from; None if all are finite.

        Of a node outside of the region, only gradients that it returns to the region count.
        """
        flow, reached, inside = self.call.flows[node], self.call.nodes[node], self.is_inside(node)
        if inside and (place := _first_nonfinite(flow.taken)) is not None:
            return self.origin_of_taken(node, place)
        returned = [
            gradient if inside or self.is_node_of_region(target) else None
            for gradient, target in zip(flow.returned, reached.slots, strict=False)
        ]
        slot = _first_nonfinite(returned)
        if slot is None:
            return None
        if not inside:
            target = reached.slots[slot]
            assert target is not None
            return self.origin_of_taken(*target)
        # The node took finite gradients and returned others. If an operator of its forward had NaN or Inf, these are
        # the origin, unless the program passed Inf as a number, which is on purpose.
        runs = [run for run in _runs_of_node(reached) if run.source is not None and not run.source.from_number]
        if runs:
            return origin_of(self.core, runs[0])
        target, node_of_pass = reached.slots[slot], self.make_node(node, True)
        tensor = self.name_of_tensor(*target) if target is not None else ""
        return NonfiniteOrigin(
            _nonfinite_kind(flow.returned[slot]),
            "backward",
            ", ".join(node_of_pass.ops),
            node_of_pass.line,
            tensor,
            node_of_pass.name,
        )

    def is_node_of_region(self, target: Any) -> bool:
        """Whether the target (node, place) of an output is in the region, and its node ran."""
        return target is not None and target[0] in self.call.flows and self.is_inside(target[0])

    def origin_of_taken(self, node: Any, place: int) -> NonfiniteOrigin:
        """Return the origin of NaN or Inf that a node of the region took at an input.

        They came into the region with this gradient, with one exception: if the gradient is a sum of finite gradients
        that nodes of the region returned, a hook or the addition made them.
        """
        node_of_pass = self.make_node(node, True)
        incoming = self.call.flows[node].taken
        summands = [
            (source, returned)
            for source, flow in self.call.flows.items()
            for target, returned in zip(self.call.nodes[source].slots, flow.returned, strict=False)
            if target == (node, place)
        ]
        what = _nonfinite_kind(incoming[place] if place < len(incoming) else None) or "NaN"
        where = (
            ", ".join(node_of_pass.ops),
            node_of_pass.line,
            self.name_of_tensor(node, place),
            node_of_pass.name,
        )
        if summands and all(self.is_inside(source) and not _nonfinite_kind(returned) for source, returned in summands):
            return NonfiniteOrigin(
                what, "backward", *where, "made by a hook on this gradient, or by the sum of the gradients that arrive"
            )
        return NonfiniteOrigin(what, "gradients", *where)

    def make_node(self, node: Any, inside: bool) -> Node:
        """Return the Node of a Pass for an autograd node."""
        reached = self.call.nodes[node]
        leaf = names.is_leaf(reached.kind)
        tensors = tuple(self.name_of_tensor(node, place) for place in range(len(metadata_of_inputs(node))))
        if not inside or reached.record is None:
            return Node(
                self.titles[node],
                reached.kind,
                False,
                tensors=tensors,
                leaf=leaf,
                opaque=names.why_opaque(reached.kind),
            )
        record = reached.record
        stack = record.stack if self.core.stacks else ()
        return Node(
            self.titles[node],
            reached.kind,
            True,
            names.operator_names(reached.kind, record),
            stack,
            record.line,
            tensors,
            leaf,
            names.why_opaque(reached.kind),
            self.core.names.module_of_node(record),
        )

    def edges_from(self, node: Any, inside: set[Any]) -> list[Edge]:
        """Return the edges that begin at a node and of which at least one end is in the region."""
        flow = self.call.flows[node]
        edges = []
        for slot, target in enumerate(self.call.nodes[node].slots):
            if target is None or not flow.returned or not (node in inside or target[0] in inside):
                continue
            kept = flow.returned[slot] if slot < len(flow.returned) else None
            if target[0] not in self.titles or (kept is None and target[0] not in self.call.flows):
                continue
            name = f"{self.titles[node]}:{slot} -> {self.titles[target[0]]}:{target[1]}"
            endpoints = (self.titles[node], self.titles[target[0]], slot, target[1], self.name_of_tensor(*target))
            edges.append(Edge(name, *endpoints, kept is not None, **self.fields_of_gradient(kept, *target)))
        return edges

    def gradients_taken(self, node: Any) -> list[Input]:
        """Return the gradients that a node took, each as an Input of the Pass."""
        flow: NodeFlow = self.call.flows[node]
        inputs = []
        for place, kept in enumerate(flow.taken):
            if kept is not None:
                name = f"{self.titles[node]}:{place}"
                position = (self.titles[node], place, self.name_of_tensor(node, place))
                inputs.append(Input(name, *position, **self.fields_of_gradient(kept, node, place)))
        return inputs

    def fields_of_gradient(self, kept: KeptGradient | None, target: Any, place: int) -> dict[str, Any]:
        """Return shape, dtype and device of a gradient, and its statistics and values if this region keeps them.

        If autograd passed no gradient, `kept` is None. The shape, dtype and device are then those that the target node
        expects at this input.
        """
        if kept is not None:
            stats, value = kept.stats if self.keeps_stats else None, kept.value if self.keeps_values else None
            return dict(shape=kept.shape, dtype=kept.dtype, device=kept.device, stats=stats, gradient=value)
        expected = metadata_of_inputs(target)
        if place >= len(expected):
            return dict(shape=(), dtype="", device="")
        shape = tuple(size if type(size) is int else -1 for size in expected[place].shape)  # a ragged size is -1
        return dict(shape=shape, dtype=dtype_text(expected[place].dtype), device=str(expected[place].device))

    def backward_roots(self) -> tuple[BackwardRoot, ...]:
        """Return the tensors on which the backward was called."""
        roots = []
        for index, (root, kept) in enumerate(zip(self.call.roots, self.call.root_kept, strict=False)):
            node = root_node(root)
            place = root.output_nr if isinstance(root, (Tensor, torch.autograd.graph.GradientEdge)) else 0
            title = self.titles.get(node, self.call.nodes[node].kind)
            # The user's variable in the block, else the variable where the backward was called, else the node's name.
            name = (
                self.user_names.get((id(node), place))
                or self.call.titles.get(index)
                or (f"{title} {index}" if index else title)
            )
            roots.append(BackwardRoot(name, title, **self.fields_of_gradient(kept, node, place)))
        return tuple(roots)


def _first_nonfinite(gradients: Iterable[KeptGradient | None]) -> int | None:
    """Return the index of the first gradient with NaN or Inf; None if all are finite."""
    return next((index for index, kept in enumerate(gradients) if _nonfinite_kind(kept)), None)


def _nonfinite_kind(kept: KeptGradient | None) -> str:
    """Return `NaN` if a gradient has any, else `Inf` if it has any, else ''. Without statistics, ''."""
    if kept is None or kept.stats is None or not kept.stats.bad:
        return ""
    return "NaN" if kept.stats.nan else "Inf"


def _runs_of_node(reached: ReachedNode) -> tuple[OperatorRun, ...]:
    """Return the forward operators that a node belongs to: all operators in the forward of a custom function, and the
    operator for which autograd made the node."""
    if reached.record is None:
        return ()
    # Autograd makes a node before its operator runs; `after` has the operators that ran after the node was made.
    run = names.operator_of(reached.kind, reached.record) or next(iter(reached.record.after), None)
    return (*reached.record.within, *((run,) if run is not None else ()))


def _node_record(reached: ReachedNode) -> NodeRecord:
    """Return the record of a node that was made in the region, which always has one."""
    assert reached.record is not None
    return reached.record


def _titles_inside(
    core: Any, nodes: Mapping[Any, ReachedNode], inside: Iterable[Any], used_names: dict[str, int]
) -> dict[Any, str]:
    """Name the nodes of a region in the order in which the forward made them. `used_names` counts the names in use."""
    titles: dict[Any, str] = {}
    for node in sorted(inside, key=lambda node: _node_record(nodes[node]).seq):
        # `number` counts the operators of this name in the region's forward, from 0: `mul`, `mul_1`.
        name, number = names.base_title(nodes[node].kind, nodes[node].record, id(core))
        titles[node] = names.unique_title(name if not number else f"{name}_{number}", used_names)
    return titles
