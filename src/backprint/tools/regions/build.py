"""Makes the Pass of a region: the record of one backward call (`tools/regions/nouns.py`), with names for its nodes and
edges.

It is made from a BackwardCall, which `follow.py` fills while autograd runs. An OperatorRun (`run`) is a forward
operator that ran; its `source` says where the NaN or Inf in its arguments or results come from (NonfiniteSource).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from backprint._torch.autograd import metadata_of_inputs
from backprint.tools.regions import names
from backprint.tools.regions.follow import BackwardCall, KeptGradient, ReachedNode, dtype_text, root_node
from backprint.tools.regions.nouns import (
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
from backprint.tools.regions.records import OperatorRun


class PassBuild:
    """Makes the Pass of one region from a backward call.

    `core` is the state of the region (RegionCore). `ran` has the nodes of the region that the backward ran, and
    `titles` the name of each node. `user_names` has the names of the user's variables for tensors: the key is the id of
    the grad_fn and the output number, or, for a leaf tensor, the id of the tensor and -1.

    A node takes gradients at its inputs and returns gradients at its outputs, as autograd counts them: `place` is the
    number of an input and `slot` the number of an output. A target is a (node, place) that takes a gradient.

    Of the BackwardCall, `nodes` has a ReachedNode for each node that the call could reach: its `kind` (autograd's
    name), `slots` with the target of each output, or None, `targets` without the Nones, `record`, which says how the
    forward made the node, and `seq`, its number in the order of the forward. `flows` has a NodeFlow for each hooked
    node that ran, in order: its `taken` gradients, by place, and the `returned` ones, by slot, which is empty of a node
    that only takes gradients from regions. A KeptGradient is a gradient as far as it was kept: shape, dtype and device,
    and perhaps statistics and a copy.
    """

    def __init__(self, core: Any, call: BackwardCall) -> None:
        self.core, self.call = core, call
        self.ran = [node for node in call.flows if self.is_inside(node)]
        self.inside = set(self.ran)
        self.keeps_stats = core.level != "none"
        self.keeps_values = core.level == "values"
        self.titles: dict[Any, str] = {}
        self.user_names = core.names.living_tensor_names()

    def is_inside(self, node: Any) -> bool:
        """Whether a node was made in the region."""
        return self.core in self.call.nodes[node].cores

    def make_pass(self, index: int, error: str) -> Pass:
        """Make the Pass. `index` is its number among the passes of the region, and `error` the text of the exception
        that ended the backward, or ''."""
        inside, reached = self.inside, self.call.nodes
        fed_by_region = {target for node in self.ran for target, _ in reached[node].targets}
        # The nodes of the region, those that take gradients from them, and those that return gradients to them.
        nodes_at_region = [
            node
            for node in self.call.flows
            if node in inside or node in fed_by_region or any(target in inside for target, _ in reached[node].targets)
        ]
        # `torch.autograd.grad` stops before the nodes of its inputs: these are given gradients, and do not run.
        not_run = [
            target[0]
            for node in self.ran
            for target, kept in zip(reached[node].slots, self.call.flows[node].returned, strict=True)
            if target is not None and kept is not None and target[0] not in self.call.flows
        ]
        nodes = list(dict.fromkeys([*nodes_at_region, *not_run]))
        self.name_nodes(nodes)
        takers = [node for node in nodes_at_region if node in inside or node in fed_by_region]
        return Pass(
            region=self.core.title,
            index=index,
            time=self.call.started,
            seconds=self.call.seconds,
            level=self.core.level,
            roots=self.backward_roots(),
            nodes=tuple(map(self.make_node, nodes)),
            edges=tuple(edge for node in nodes_at_region for edge in self.edges_from(node)),
            inputs=tuple(row for node in takers for row in self.gradients_taken(node)),
            error=error,
            # Errors of ours in following the call. Three are enough to tell, as they are mostly the same.
            notes=tuple(f"{type(own_error).__name__}: {own_error}" for own_error in self.call.errors[:3]),
            torch=torch.__version__,
            origin=self.origin(nodes_at_region),
            run=RUN,
        )

    # ---- Names

    def name_nodes(self, nodes: Sequence[Any]) -> None:
        """Choose the name of each node.

        If several nodes would have one name, numbers are appended: to nodes of the region in the order in which the
        forward made them, and then to the others in the order in which they ran.
        """
        used_names: dict[str, int] = {}  # filled by `unique_title`, which appends the numbers
        outside = [node for node in nodes if node not in self.inside]
        for node in (*sorted(self.ran, key=lambda node: self.call.nodes[node].seq), *outside):
            reached = self.call.nodes[node]
            if node in self.inside:
                name = names.title_of(reached.kind, reached.record, id(self.core))
            elif names.is_leaf(reached.kind):  # by its path in a module, or by the user's variable
                leaf = node.variable
                name = self.core.names.parameter(leaf) or self.user_names.get((id(leaf), -1), "") or "leaf"
            else:
                name = reached.kind
            self.titles[node] = names.unique_title(name, used_names)

    def name_of_tensor(self, node: Any, place: int) -> str:
        """Return the name of the forward tensor whose gradient a node takes at this input: that of the user's variable,
        else the title of the node, with `.place` if it has several inputs."""
        reached = self.call.nodes[node]
        if names.is_leaf(reached.kind):
            return self.titles[node]
        # A NodeRecord has the names of variables at the end of the block, which may be gone since.
        record = reached.record if self.is_inside(node) else None
        name_in_record = record.outputs.get(place) if record is not None else None
        if user_name := name_in_record or self.user_names.get((id(node), place)):
            return user_name
        return self.titles[node] if len(metadata_of_inputs(node)) == 1 else f"{self.titles[node]}.{place}"

    # ---- The parts of a Pass

    def origin(self, nodes_at_region: list[Any]) -> NonfiniteOrigin | Unwatched | None:
        """Return where NaN and Inf come from: the first NaN that the forward made, else the first gradient of the
        backward that has some; None if there are none, and Unwatched if the region does not look for them.

        An Inf of the forward counts only through the gradients, because it may do no harm, as `exp(-inf)` does none.
        `nodes_at_region` are the nodes in the region and their neighbors, in the order in which they ran.
        """
        if not self.keeps_stats:
            return Unwatched()
        for node in sorted(self.ran, key=lambda node: self.call.nodes[node].seq):  # in the order of the forward
            for run in _runs_of_node(self.call.nodes[node]):
                if run.bad_results and run.source is not None and run.source.what == "NaN":
                    return origin_of(self.core, run)
        return next((origin for node in nodes_at_region if (origin := self.origin_at_node(node)) is not None), None)

    def origin_at_node(self, node: Any) -> NonfiniteOrigin | None:
        """Return where the NaN or Inf in the gradients that a node took or returned come from; None if all are finite.

        Of a node outside of the region, only gradients that it returns to the region count.
        """
        flow, reached, inside = self.call.flows[node], self.call.nodes[node], self.is_inside(node)
        if inside and (place := _first_nonfinite(flow.taken)) is not None:
            return self.origin_of_taken(node, place)
        returned = [  # empty where the node returned nothing, so the lengths may differ
            gradient if inside or self.is_node_of_region(target) else None
            for gradient, target in zip(flow.returned, reached.slots, strict=False)
        ]
        slot = _first_nonfinite(returned)
        if slot is None:
            return None
        if not inside:
            target = reached.slots[slot]
            assert target is not None  # `is_node_of_region`
            return self.origin_of_taken(*target)
        # The node took finite gradients and returned others. If an operator of its forward had NaN or Inf, these are
        # the origin, unless the program passed Inf as a number, which is on purpose.
        runs = [run for run in _runs_of_node(reached) if run.source is not None and not run.source.from_number]
        if runs:
            return origin_of(self.core, runs[0])
        target, node_of_pass = reached.slots[slot], self.make_node(node)
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
        node_of_pass = self.make_node(node)
        incoming = self.call.flows[node].taken
        summands = [  # those that returned a gradient to this input; `returned` is empty where a node returned none
            (source, returned)
            for source, flow in self.call.flows.items()
            for target, returned in zip(self.call.nodes[source].slots, flow.returned, strict=False)
            if target == (node, place)
        ]
        # A node outside may have returned NaN that a hook took away: then none is seen in `incoming`.
        what = _nonfinite_kind(incoming[place] if place < len(incoming) else None) or "NaN"
        where = (
            ", ".join(node_of_pass.ops),
            node_of_pass.line,
            self.name_of_tensor(node, place),
            node_of_pass.name,
        )
        # A summand from outside of the region may have been changed on its way, so that it proves nothing.
        if summands and all(self.is_inside(source) and not _nonfinite_kind(returned) for source, returned in summands):
            return NonfiniteOrigin(
                what, "backward", *where, "made by a hook on this gradient, or by the sum of the gradients that arrive"
            )
        return NonfiniteOrigin(what, "gradients", *where)

    def make_node(self, node: Any) -> Node:
        """Return the Node of a Pass for an autograd node."""
        reached = self.call.nodes[node]
        record = reached.record if node in self.inside else None  # another region may have recorded a neighbor
        return Node(
            name=self.titles[node],
            kind=reached.kind,
            inside=record is not None,
            ops=names.operator_names(reached.kind, record) if record is not None else (),
            stack=record.stack if record is not None and self.core.stacks else (),
            line=record.line if record is not None else None,
            tensors=tuple(self.name_of_tensor(node, place) for place in range(len(metadata_of_inputs(node)))),
            leaf=names.is_leaf(reached.kind),
            opaque=names.why_opaque(reached.kind),
            module=self.core.names.module_of_node(record) if record is not None else "",
        )

    def edges_from(self, node: Any) -> Iterator[Edge]:
        """Yield the edges that begin at a node and of which at least one end is in the region. One over which autograd
        passed None is an edge too, if its target ran."""
        returned = self.call.flows[node].returned
        for slot, target in enumerate(self.call.nodes[node].slots if returned else ()):
            kept = returned[slot] if slot < len(returned) else None
            if target is None:
                continue
            taker, place = target
            if taker not in self.titles or not {node, taker} & self.inside:
                continue
            if kept is not None or taker in self.call.flows:
                from_, to = self.titles[node], self.titles[taker]
                yield Edge(
                    f"{from_}:{slot} -> {to}:{place}",
                    source=from_,
                    target=to,
                    slot=slot,
                    place=place,
                    tensor=self.name_of_tensor(taker, place),
                    flows=kept is not None,
                    **self.fields_of_gradient(kept, taker, place),
                )

    def gradients_taken(self, node: Any) -> Iterator[Input]:
        """Yield the gradients that a node took, each as an Input of the Pass."""
        title = self.titles[node]
        for place, kept in enumerate(self.call.flows[node].taken):
            if kept is not None:
                gradient = self.fields_of_gradient(kept, node, place)
                yield Input(f"{title}:{place}", title, place, self.name_of_tensor(node, place), **gradient)

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
        """Return the tensors on which the backward was called, with the gradients that were passed for them."""
        roots = []
        # Not strict: `root_kept` is empty if an error of ours stopped the hooking.
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
    operator for which autograd made the node. A node without a record has none."""
    if reached.record is None:
        return ()
    # Autograd makes a node before its operator runs; `after` has the operators that ran after the node was made.
    run = names.operator_of(reached.kind, reached.record) or next(iter(reached.record.after), None)
    return (*reached.record.within, *((run,) if run is not None else ()))
