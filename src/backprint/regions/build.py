"""Making a Pass of a followed backward call: the nodes and edges of one region, with their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from backprint.regions import watch
from backprint.regions.follow import BackwardCall, KeptGradient, NodeFlow, ReachedNode, root_node
from backprint.regions.nouns import (
    LEVELS,
    RUN,
    BackwardRoot,
    Edge,
    Input,
    Node,
    NonfiniteOrigin,
    Pass,
    RegionForward,
    Unwatched,
)
from backprint.regions.watch import NodeRecord, NonfiniteSource, OperatorRun, stack_line


class PassBuild:
    """One region's part of a backward call, while its Pass is made."""

    def __init__(self, core: Any, call: BackwardCall) -> None:
        self.core, self.call = core, call
        self.ran = [node for node in call.flows if self.is_inside(node)]
        self.values, self.numbers = (LEVELS.index(core.level) >= level for level in (2, 1))
        self.titles: dict[Any, str] = {}
        self.users = core.names.here()

    def is_inside(self, node: Any) -> bool:
        """Whether a node was made in the region."""
        return self.core in self.call.nodes[node].cores

    def make_pass(self, index: int, error: str) -> Pass:
        """Make the Pass, with its number and the backward's error."""
        inside = set(self.ran)
        feeding = {target for node in self.ran for target, _ in self.call.nodes[node].targets}
        near = [
            node
            for node in self.call.flows
            if node in inside or node in feeding or any(t in inside for t, _ in self.call.nodes[node].targets)
        ]
        self.title([*near, *self.unrun(near, inside)], inside)
        edges = [edge for node in near for edge in self.edges(node, inside)]
        inputs = [row for node in near if node in inside or node in feeding for row in self.inputs(node)]
        return Pass(
            self.core.title,
            index,
            self.call.started,
            self.call.seconds,
            self.core.level,
            self.roots(),
            tuple(self.node(node, node in inside) for node in self.titles_in_order(near)),
            tuple(edges),
            tuple(inputs),
            error,
            tuple(f"{type(row).__name__}: {row}" for row in self.call.wrong[:3]),
            {"torch": torch.__version__},
            self.origin(near),
            RUN,
        )

    def unrun(self, near: list[Any], inside: set[Any]) -> list[Any]:
        """Nodes that a gradient went to and that did not run: where `torch.autograd.grad` ends."""
        nodes: dict[Any, None] = {}
        for node in near:
            for target, kept in zip(self.call.nodes[node].slots, self.call.flows[node].returned, strict=False):
                if node in inside and target is not None and kept is not None and target[0] not in self.call.flows:
                    nodes[target[0]] = None
        return list(nodes)

    def titles_in_order(self, near: list[Any]) -> list[Any]:
        """The nodes as they ran, then those that did not."""
        ran = set(near)
        return [*near, *(node for node in self.titles if node not in ran)]

    # -------------------------------------------------------------- names

    def title(self, near: list[Any], inside: set[Any]) -> None:
        """Name each node: those inside in the order in which they were made, the others in the order of the pass."""
        used_names: dict[str, int] = {}
        self.titles.update(titles_inside(self.core, self.call.nodes, inside, used_names))
        for node in near:
            if node not in inside:
                self.titles[node] = watch.unique_title(self.outside(node), used_names)

    def outside(self, node: Any) -> str:
        """The name of a node that was not made in the region."""
        if watch.is_leaf(self.call.nodes[node].kind):
            return self.leaf(node.variable) or "leaf"
        return self.call.nodes[node].kind

    def leaf(self, tensor: Tensor) -> str:
        """The user's name of a leaf tensor, or ''."""
        return self.core.names.parameter(tensor) or self.users.get((id(tensor), -1), "")

    def tensor(self, node: Any, place: int) -> str:
        """The name of the forward tensor whose gradient a node's input is."""
        reached = self.call.nodes[node]
        if watch.is_leaf(reached.kind):
            return self.titles[node]
        record = reached.made if self.is_inside(node) else None
        known = (record.outputs.get(place) if record is not None else None) or self.users.get((id(node), place))
        if known:
            return known
        return self.titles[node] if len(watch.input_metadata(node)) == 1 else f"{self.titles[node]}.{place}"

    # -------------------------------------------------------------- parts

    def origin(self, near: list[Any]) -> NonfiniteOrigin | Unwatched | None:
        """Where NaN and Inf come from: a NaN of the forward, else the first bad gradient of the backward."""
        if not self.numbers:
            return Unwatched()
        for node in sorted(self.ran, key=lambda node: node_record(self.call.nodes[node]).seq):
            for ran in runs_of_node(self.call.nodes[node]):
                if ran.bad_results and ran.source is not None and ran.source.what == "NaN":
                    return origin_of(self.core, ran)
        return next((origin for node in near if (origin := self.went_bad(node)) is not None), None)

    def went_bad(self, node: Any) -> NonfiniteOrigin | None:
        """Where the NaN and Inf come from in the gradients that a node took or returned."""
        flow, reached, inside = self.call.flows[node], self.call.nodes[node], self.is_inside(node)
        if inside and (place := first_nonfinite(flow.taken)) is not None:
            return self.brought(node, place)
        slots = [
            slot if inside or self.is_into(target) else None
            for slot, target in zip(flow.returned, reached.slots, strict=False)
        ]
        slot = first_nonfinite(slots)
        if slot is None:
            return None
        if not inside:
            target = reached.slots[slot]
            assert target is not None
            return self.brought(*target)
        ran = next((ran for ran in runs_of_node(reached) if ran.source is not None and not ran.source.given), None)
        if ran is not None:
            return origin_of(self.core, ran)
        target, own = reached.slots[slot], self.node(node, True)
        tensor = self.tensor(*target) if target is not None else ""
        return NonfiniteOrigin(
            nonfinite_kind(flow.returned[slot]), "backward", ", ".join(own.ops), own.line, tensor, own.name
        )

    def is_into(self, target: Any) -> bool:
        """Whether an output goes into the region."""
        return target is not None and target[0] in self.call.flows and self.is_inside(target[0])

    def brought(self, node: Any, place: int) -> NonfiniteOrigin:
        """The origin for a node that took NaN or Inf: they came from outside, unless every gradient that was added up
        for it is finite and comes from inside."""
        own = self.node(node, True)
        incoming = self.call.flows[node].taken
        feeders = [
            (source, returned)
            for source, flow in self.call.flows.items()
            for target, returned in zip(self.call.nodes[source].slots, flow.returned, strict=False)
            if target == (node, place)
        ]
        what = nonfinite_kind(incoming[place] if place < len(incoming) else None) or "NaN"
        ends = (", ".join(own.ops), own.line, self.tensor(node, place), own.name)
        if feeders and all(self.is_inside(source) and not nonfinite_kind(returned) for source, returned in feeders):
            return NonfiniteOrigin(
                what, "backward", *ends, "made by a hook on what it takes, or where that is added up"
            )
        return NonfiniteOrigin(what, "gradients", *ends)

    def node(self, node: Any, inside: bool) -> Node:
        """The Node of an autograd node."""
        reached = self.call.nodes[node]
        leaf = watch.is_leaf(reached.kind)
        tensors = tuple(self.tensor(node, place) for place in range(len(watch.input_metadata(node))))
        if not inside or reached.made is None:
            return Node(
                self.titles[node],
                reached.kind,
                False,
                tensors=tensors,
                leaf=leaf,
                opaque=watch.why_opaque(reached.kind),
            )
        record = reached.made
        stack = record.stack if self.core.stacks else ()
        return Node(
            self.titles[node],
            reached.kind,
            True,
            watch.operator_names(reached.kind, record),
            stack,
            record.line,
            tensors,
            leaf,
            watch.why_opaque(reached.kind),
            self.core.names.place_of_node(record),
        )

    def edges(self, node: Any, inside: set[Any]) -> list[Edge]:
        """The edges from a node, where one of the two ends is inside."""
        flow = self.call.flows[node]
        edges = []
        for slot, target in enumerate(self.call.nodes[node].slots):
            if target is None or not flow.returned or not (node in inside or target[0] in inside):
                continue
            kept = flow.returned[slot] if slot < len(flow.returned) else None
            if target[0] not in self.titles or (kept is None and target[0] not in self.call.flows):
                continue
            name = f"{self.titles[node]}:{slot} -> {self.titles[target[0]]}:{target[1]}"
            ends = (self.titles[node], self.titles[target[0]], slot, target[1], self.tensor(*target))
            edges.append(Edge(name, *ends, kept is not None, **self.flowed(kept, *target)))
        return edges

    def inputs(self, node: Any) -> list[Input]:
        """The gradients that a node took."""
        flow: NodeFlow = self.call.flows[node]
        inputs = []
        for place, kept in enumerate(flow.taken):
            if kept is not None:
                name = f"{self.titles[node]}:{place}"
                ends = (self.titles[node], place, self.tensor(node, place))
                inputs.append(Input(name, *ends, **self.flowed(kept, node, place)))
        return inputs

    def flowed(self, kept: KeptGradient | None, target: Any, place: int) -> dict[str, Any]:
        """The fields of a gradient as far as this region keeps them; without one, those that it would have."""
        if kept is not None:
            stats, value = kept.stats if self.numbers else None, kept.value if self.values else None
            return dict(shape=kept.shape, dtype=kept.dtype, device=kept.device, stats=stats, gradient=value)
        known = watch.input_metadata(target)
        if place >= len(known):
            return dict(shape=(), dtype="", device="")
        shape = tuple(size if type(size) is int else -1 for size in known[place].shape)
        return dict(shape=shape, dtype=watch.dtype_text(known[place].dtype), device=str(known[place].device))

    def roots(self) -> tuple[BackwardRoot, ...]:
        """The tensors that the backward began at."""
        roots = []
        for index, (root, kept) in enumerate(zip(self.call.roots, self.call.root_kept, strict=False)):
            node = root_node(root)
            place = root.output_nr if isinstance(root, (Tensor, torch.autograd.graph.GradientEdge)) else 0
            title = self.titles.get(node, self.call.nodes[node].kind)
            name = (
                self.users.get((id(node), place))
                or self.call.titles.get(index)
                or (f"{title} {index}" if index else title)
            )
            roots.append(BackwardRoot(name, title, **self.flowed(kept, node, place)))
        return tuple(roots)


def first_nonfinite(flowed: Iterable[KeptGradient | None]) -> int | None:
    """The index of the first gradient with NaN or Inf."""
    return next((place for place, kept in enumerate(flowed) if nonfinite_kind(kept)), None)


def nonfinite_kind(kept: KeptGradient | None) -> str:
    """`NaN` or `Inf` where a kept gradient has some, else ''."""
    if kept is None or kept.stats is None or not kept.stats.bad:
        return ""
    return "NaN" if kept.stats.nan else "Inf"


def runs_of_node(reached: ReachedNode) -> tuple[OperatorRun, ...]:
    """The operators that ran for a node; for a custom function, all that ran in its forward."""
    if reached.made is None:
        return ()
    ran = watch.operator_of(reached.kind, reached.made) or next(iter(reached.made.after), None)
    return (*reached.made.within, *((ran,) if ran is not None else ()))


def origin_of(core: Any, ran: OperatorRun) -> NonfiniteOrigin:
    """Where an operator's NaN or Inf come from, seen from a region."""
    source = ran.source
    assert source is not None
    at = stack_line(source.frame) if source.frame is not None else None
    if source.born and source.is_in(core):
        return NonfiniteOrigin(source.what, "forward", source.op, at, detail=describe_inf(source.of))
    first = source if source.is_in(core) else None
    op, line = (source.op, at) if first else (ran.name, stack_line(ran.frame) if ran.frame is not None else None)
    name = tensor_title(core, first or ran)
    detail = f"born in {source.op}" + (f" at {at}" if at is not None else "") if source.born else ""
    return NonfiniteOrigin(source.what, "inputs", op, line, name, detail=detail)


def tensor_title(core: Any, taker: NonfiniteSource | OperatorRun) -> str:
    """A region's name for the tensor that had NaN or Inf."""
    tensor = taker.taken() if taker.taken is not None else None
    return (core.names.parameter(tensor) if tensor is not None else "") or taker.title


def describe_inf(source: NonfiniteSource | None) -> str:
    """Say which Inf a NaN was made of, and where that came from."""
    if source is None:
        return ""
    if not source.born:
        return f"of {source.what} that came in from outside"
    at = f" at {stack_line(source.frame)}" if source.frame is not None else ""
    return f"of {source.what} from {source.op}{at}"


def node_record(reached: ReachedNode) -> NodeRecord:
    """The record of a node inside."""
    assert reached.made is not None
    return reached.made


def titles_inside(
    core: Any, nodes: Mapping[Any, ReachedNode], inside: Iterable[Any], used_names: dict[str, int]
) -> dict[Any, str]:
    """Name the nodes of a region, in the order in which they were made; `taken` counts the names."""
    titles: dict[Any, str] = {}
    for node in sorted(inside, key=lambda node: node_record(nodes[node]).seq):
        name, rank = watch.base_title(nodes[node].kind, nodes[node].made, id(core))
        titles[node] = watch.unique_title(name if not rank else f"{name}_{rank}", used_names)
    return titles


# ---- The forward alone


def forward_of_region(core: Any, nodes: dict[Any, ReachedNode]) -> RegionForward:
    """The autograd graph of a region, from the nodes that its tensors still hold."""
    inside = [node for node, reached in nodes.items() if core in reached.cores]
    used_names: dict[str, int] = {}
    titles = titles_inside(core, nodes, inside, used_names)
    users = core.names.here()
    edges = []
    for node in list(titles):
        for target, place in nodes[node].targets:
            if target not in titles:
                leaf = watch.is_leaf(nodes[target].kind)
                known = core.names.parameter(target.variable) if leaf else ""
                known = known or users.get((id(target.variable), -1) if leaf else (id(target), place), "")
                titles[target] = watch.unique_title(known or ("leaf" if leaf else nodes[target].kind), used_names)
            record = nodes[target].made
            known = record.outputs.get(place, "") if record is not None and core in nodes[target].cores else ""
            edges.append((titles[target], titles[node], known or users.get((id(target), place), "") or titles[target]))
    rows = []
    for node, title in titles.items():
        reached = nodes[node]
        if core not in reached.cores:
            rows.append(Node(title, reached.kind, False, leaf=watch.is_leaf(reached.kind)))
            continue
        record = node_record(reached)
        ops, module = watch.operator_names(reached.kind, record), core.names.place_of_node(record)
        rows.append(Node(title, reached.kind, True, ops, record.stack, record.line, module=module))
    return RegionForward(tuple(rows), tuple(edges))
