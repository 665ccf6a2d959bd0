"""Which values of an iteration a forward keeps for its backward: those whose bytes are the fewest.

A value that the backward uses is written and read (twice its bytes), or computed again from others, from inputs of the
iteration (read once), and from what it carries, which is written and read too, or read once where it is an input or
an output of another step. The choice is a minimum cut of the iteration's graph between what it takes and what the
backward uses: once for one iteration, not for all of time.

A `kept` element of a backward is a value of the forward's iteration (`args[0]`) at a slot (`args[1]`): at each step
(Now), at a step near an end (Edge), or None, what the last iteration hands on. `state` is the shape of what the loop
carries, without time, and `of_rows` are the elements that are one number for a whole row of it. A value here is an
element of the forward's iteration, a use a value with the slot at which the backward uses it, and the cut are the
values that the backward reads. A `carried` value is one that an iteration takes from the one before, which hands it on.
A value that an output has, or that the step before has in an output or an input, is in memory anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import torch

from backprint.errors import RefusedError
from backprint.tools.kernels.loops.nouns import (
    Edge,
    Element,
    Elements,
    Loop,
    Now,
    Slot,
    TensorFacts,
    Write,
    in_dependency_order,
    row_elements,
)
from backprint.tools.kernels.loops.rolling import replace_inputs

ENDLESS = 1 << 40
"""A capacity that is more than the bytes of any cut: such an edge is never cut."""


@dataclass(frozen=True, slots=True)
class HandedOn:
    """Where a carried value can be read: in the step before of a tensor that is in memory anyway; the first step has
    the value `start`."""

    tensor: str
    start: Element


@dataclass(frozen=True, slots=True)
class Kept:
    """A forward that keeps values, the backward that reads them, and the tensors that hold them."""

    forward: Loop
    backward: Loop
    tensors: tuple[TensorFacts, ...]


def choose_kept(
    forward: Loop,
    backward: Loop,
    elements: Elements,
    tensors: Mapping[str, TensorFacts],
    state: tuple[int, ...],
    is_row_tensor: Callable[[str], bool],
    least: int,
) -> Kept:
    """Return the two directions with the fewest bytes between them: the forward writes what it keeps, and the backward
    reads that in the place of `kept`, and computes the rest again. `is_row_tensor` says whether a tensor has one number
    for a whole row of the state, and `least` is the fewest steps that the loop takes.

    Of `h = tanh(x[t] + w * h)`, the gradient of tanh needs `1 - h * h`, and that of w the h of the step before. Where h
    is an output, both are read from it, and nothing is kept.
    """
    of_rows = row_elements(forward, is_row_tensor) if state else frozenset()
    uses = _kept_uses(backward)
    outputs = _values_in_outputs(forward, tensors)
    inputs = {facts.name for facts in tensors.values() if facts.timed and facts.shape == state}
    handed_on = _tensors_handed_on(forward, outputs, inputs, elements)
    # Carried values are read at the step before; near the last step of the shortest program, that may not be there.
    near_last = [slot for _, slot in uses if isinstance(slot, Edge) and slot.last]
    if any(Edge(slot.count + 1, last=True).at(least) < 0 for slot in near_last):
        handed_on = {}
    written_anyway = {*outputs, *handed_on}
    cut = _values_to_read(uses, written_anyway, _tensors_read(backward), tensors, state, of_rows)

    def facts_of(name: str, value: Element, timed: bool) -> TensorFacts:
        """Return the facts of the tensor of a value; `name` is that of its port too."""
        shape = (*state[:-1], 1) if value in of_rows else state
        return TensorFacts(name, name, "saved", shape, value.dtype, timed)

    # inputs are in memory anyway, as what is `written_anyway`; the rest of the cut gets tensors of its own
    to_write = [value for value in cut if value.op != "load" and value not in written_anyway]
    kept = {value: facts_of(f"kept_{index}", value, timed=True) for index, value in enumerate(to_write)}
    # what the last iteration hands on has no step to be read at: it is kept by itself
    used_at_end = dict.fromkeys(value for value, slot in uses if slot is None)
    final = {value: facts_of(f"final_{index}", value, timed=False) for index, value in enumerate(used_at_end)}
    reader = KeptReader(
        elements,
        places={
            **{value: outputs[value] for value in cut if value in outputs},
            **{value: facts.name for value, facts in kept.items()},
        },
        finals={value: facts.name for value, facts in final.items()},
        starts={value: handed_on[value] for value in cut if value in handed_on},
    )
    forward_keeping = replace(
        forward,
        writes=(*forward.writes, *(Write(facts.name, Now(), value) for value, facts in kept.items())),
        after=(*forward.after, *(Write(facts.name, None, value) for value, facts in final.items())),
    )
    backward_reading = _read_once(reader.loop(backward), elements)
    return Kept(forward_keeping, backward_reading, (*kept.values(), *final.values()))


def _values_to_read(
    uses: Iterable[tuple[Element, Slot]],
    written_anyway: Collection[Element],
    read_anyway: Collection[str],
    tensors: Mapping[str, TensorFacts],
    state: tuple[int, ...],
    of_rows: frozenset[Element],
) -> list[Element]:
    """Return the cut: the values of an iteration to read with the fewest bytes. The other arguments are those of
    `_minimum_cut`."""
    # in the order of their uses, as no set has them: what is kept, and so the file, is the same in every process
    used_each_step = dict.fromkeys(value for value, slot in uses if isinstance(slot, Now))
    used_at_edges = dict.fromkeys(value for value, slot in uses if isinstance(slot, Edge))
    cut = _minimum_cut(used_each_step, written_anyway, read_anyway, tensors, state, of_rows)
    # a value that is used at an end alone counts only if it cannot be computed of what is read for the others
    if not all(_computable(value, cut) for value in used_at_edges):
        cut = _minimum_cut(used_each_step | used_at_edges, written_anyway, read_anyway, tensors, state, of_rows)
    return cut


def _values_in_outputs(forward: Loop, tensors: Mapping[str, TensorFacts]) -> dict[Element, str]:
    """Return the values that each iteration writes to an output as they are, and the output: the backward can read them
    there. Of a loop with iterations outside of it, none: these write other values to the outputs. Nor of an output of
    another dtype, which has a rounded value; nor what an iteration loads, or takes (`_tensors_handed_on`)."""
    if forward.peeled:
        return {}
    return {
        write.element: write.tensor
        for write in forward.writes
        if write.element.op not in ("load", "constant", "carried")
        and tensors[write.tensor].dtype == write.element.dtype
    }


def _tensors_read(backward: Loop) -> set[str]:
    """Return the tensors that a backward reads whatever is kept."""
    return {
        item.args[0]
        for write in _writes_and_carried(backward)
        for item in in_dependency_order([write.element])
        if item.op == "load"
    }


def _tensors_handed_on(
    forward: Loop, outputs: Mapping[Element, str], inputs: Collection[str], elements: Elements
) -> dict[Element, HandedOn]:
    """Return the carried values that the step before wrote as an output or read as an input: the backward reads them
    there. At the first step there is no step before: that value must be a number, an input, or `zero` for what nothing
    reads. `outputs` has the output of a value, and `inputs` are tensors of the whole state with time. None of a loop
    that walks down, as `previous` is the step before in time, or that has iterations outside of it."""
    if forward.step < 0 or forward.peeled:
        return {}
    handed_on = {}
    for index, (start, following) in enumerate(zip(forward.start, forward.following, strict=True)):
        tensor = outputs.get(following)
        if following.op == "load" and following.args[0] in inputs and following.args[1] == Now():
            tensor = following.args[0]
        # floating point: the text of `previous` makes no bool of a byte, as that of `load` does
        if tensor is not None and start.op in ("constant", "zero", "load") and following.dtype.is_floating_point:
            handed_on[elements.make("carried", (index,), following.dtype)] = HandedOn(tensor, start)
    return handed_on


def _read_once(backward: Loop, elements: Elements) -> Loop:
    """Return a backward that reads each slot of a tensor from memory once. Where an iteration at t reads both x[t] and
    `previous` x[t - 1], the latter is the x[t] of the next iteration, since a backward walks down: it is carried to
    the next iteration, which has it for its load of x[t]."""
    inside = list(in_dependency_order([*(write.element for write in backward.writes), *backward.following]))
    carried_reads = {}  # the load of x[t] -> `previous`
    for item in inside:
        if item.op == "previous" and (load := elements.load(item.args[0], Now(), item.dtype)) in inside:
            carried_reads[load] = item
    if not carried_reads:
        return backward
    count = len(backward.start)  # further carried values come behind those that there are
    memo = {load: elements.make("carried", (count + index,), load.dtype) for index, load in enumerate(carried_reads)}
    for item in inside:
        memo.setdefault(item, replace_inputs(item, memo, elements))
    return replace(
        backward,
        start=(*backward.start, *(elements.load(load.args[0], backward.first, load.dtype) for load in carried_reads)),
        following=(*(memo[item] for item in backward.following), *(memo[item] for item in carried_reads.values())),
        writes=tuple(replace(write, element=memo[write.element]) for write in backward.writes),
        absent=tuple(memo.get(item, item) for item in backward.absent),
    )


def shift_edge(edge: Edge, offset: int) -> Edge | None:
    """Return the slot that is `offset` steps later; None if that is beyond the end from which the Edge counts."""
    count = edge.count - offset if edge.last else edge.count + offset
    return Edge(count, edge.last) if count >= 0 else None


def _writes_and_carried(loop: Loop) -> tuple[Write, ...]:
    """Return the writes of a loop, and its first values and what it hands on as writes to no tensor (""), to walk over
    all of it at once."""
    handed = tuple(Write("", None, item) for item in (*loop.start, *loop.following))
    return (*loop.before, *loop.writes, *loop.after, *handed)


def _kept_uses(loop: Loop) -> list[tuple[Element, Slot]]:
    """Return the arguments of each different `kept` of a backward: the element of the forward's iteration, and the
    slot."""
    items = [
        item
        for write in _writes_and_carried(loop)
        for item in in_dependency_order([write.element])
        if item.op == "kept"
    ]
    return list(dict.fromkeys((item.args[0], item.args[1]) for item in items))


def element_bytes(element: Element) -> int:
    """Return the bytes that one element takes in memory."""
    return 1 if element.dtype == torch.bool else element.dtype.itemsize


def varies(element: Element, memo: dict[Element, bool]) -> bool:
    """Whether an element of an iteration differs from iteration to iteration; notes all behind it in `memo`."""
    for item in in_dependency_order([element]):
        if item not in memo:
            own = item.op == "carried" or (item.op == "load" and isinstance(item.args[1], Now))
            memo[item] = own or any(memo[part] for part in item.inputs)
    return memo[element]


def _minimum_cut(
    uses: Iterable[Element],
    written_anyway: Collection[Element],
    read_anyway: Iterable[str],
    tensors: Mapping[str, TensorFacts],
    state: tuple[int, ...],
    of_rows: frozenset[Element],
) -> list[Element]:
    """Return the elements of an iteration to read, from which the `uses` can be computed, with the fewest bytes: the
    cheapest edges that separate what the iteration takes and loads (the source) from the `uses` (the sink). A value is
    written and read; one that is `written_anyway` costs its bytes once, and a tensor that is `read_anyway` none."""
    roots = list(uses)
    order = list(in_dependency_order(roots))
    memo: dict[Element, bool] = {}
    nodes = [item for item in order if varies(item, memo)]  # others are computed before the loop, at no cost a step
    # costs are eighths of a byte: 1 is added to each below, to prefer few values of the same bytes, and must not
    # outweigh a byte
    free_tensors, state_cost = set(read_anyway), 8 * max(1, torch.Size(state).numel())
    # an item is two nodes, (item, 0) -> (item, 1), and that edge has its cost: to cut it is to read the item
    network = Network()
    for item in nodes:
        if item.op == "load":
            facts = tensors[item.args[0]]
            share_of_state = torch.Size(facts.shape).numel() / max(1, torch.Size(state).numel())
            cost = 0 if item.args[0] in free_tensors else round(element_bytes(item) * share_of_state * state_cost)
        else:
            lane_cost = state_cost // state[-1] if item in of_rows else state_cost
            cost = element_bytes(item) * lane_cost * (1 if item in written_anyway else 2)  # 2: written, and read
        network.edge((item, 0), (item, 1), cost + 1)
        # the source gives what an iteration loads and takes; an item is computed of its inputs
        if item.op in ("load", "carried"):
            network.edge("source", (item, 0), ENDLESS)
        for part in item.inputs:
            if varies(part, memo):
                network.edge((part, 1), (item, 0), ENDLESS)
    for root in roots:
        if varies(root, memo):
            network.edge((root, 1), "sink", ENDLESS)
    sink_side = network.cut("source", "sink")
    return [item for item in nodes if (item, 0) not in sink_side and (item, 1) in sink_side]


def _computable(root: Element, cut: Iterable[Element]) -> bool:
    """Whether an element of an iteration can be computed from the elements in `cut`, inputs, and nothing that is
    carried."""
    known, stack = set(cut), [root]
    while stack:
        item = stack.pop()
        if item in known:
            continue
        if item.op == "carried":
            return False
        stack += item.inputs
    return True


class Network:
    """A graph of capacities, and its minimum cut. `capacity_left` is what is left of each edge's capacity, in both
    directions."""

    def __init__(self) -> None:
        self.capacity_left: dict[object, dict[object, int]] = {}

    def edge(self, here: object, there: object, capacity: int) -> None:
        """Add an edge, or add to the capacity of one that is there."""
        ways = self.capacity_left.setdefault(here, {})
        ways[there] = ways.get(there, 0) + capacity
        self.capacity_left.setdefault(there, {}).setdefault(here, 0)

    def cut(self, source: object, sink: object) -> set[object]:
        """Return the nodes on the sink's side of the minimum cut that is nearest to the sink: capacity is used up along
        shortest paths until there is none (Edmonds and Karp), and these nodes are those that still reach the sink."""
        self.capacity_left.setdefault(source, {})
        self.capacity_left.setdefault(sink, {})
        while (path := self.shortest_path(source, sink)) is not None:
            least = min(self.capacity_left[here][there] for here, there in path)
            for here, there in path:
                self.capacity_left[here][there] -= least
                self.capacity_left[there][here] += least
        reaching, queue = {sink}, deque([sink])
        while queue:
            there = queue.popleft()
            for here in self.capacity_left[there]:  # every edge is noted in both directions
                if here not in reaching and self.capacity_left[here].get(there, 0) > 0:
                    reaching.add(here)
                    queue.append(here)
        return reaching

    def shortest_path(self, source: object, sink: object) -> list[tuple[object, object]] | None:
        """Return the edges of a shortest path on which each has capacity left, from the sink back to the source; None
        if there is none."""
        previous: dict[object, object] = {source: source}  # the node from which each one was reached first
        queue = deque([source])
        while queue:
            here = queue.popleft()
            for there, capacity in self.capacity_left[here].items():
                if capacity > 0 and there not in previous:
                    previous[there] = here
                    queue.append(there)
        if sink not in previous:
            return None
        edges, there = [], sink
        while there is not source:
            edges.append((previous[there], there))
            there = previous[there]
        return edges


class KeptReader:
    """Turns elements of a backward that use `kept` into elements that read what was kept.

    `places` has the tensor of each value that is written at every step, `finals` that of each that the last iteration
    hands on, and `starts` where each carried value is read, in the step before.
    """

    def __init__(
        self,
        elements: Elements,
        places: Mapping[Element, str],
        finals: Mapping[Element, str],
        starts: Mapping[Element, HandedOn],
    ) -> None:
        self.elements, self.places, self.finals, self.starts = elements, places, finals, starts

    def previous(self, item: Element, slot: Slot) -> Element:
        """Return a carried value as its tensor has it one step before the slot, or at the first step as its first
        value."""
        tensor, start = self.starts[item].tensor, self.starts[item].start
        if isinstance(slot, Now):  # may be the first step: `previous` has its value too, a number or an Element
            match start.op:
                case "constant":
                    first = start.args[0]
                case "zero":
                    first = 0.0
                case _:
                    first = start  # the Element of an input
            return self.elements.make("previous", (tensor, first), item.dtype)
        assert isinstance(slot, Edge)
        if slot.last:
            return self.elements.load(tensor, Edge(slot.count + 1, last=True), item.dtype)
        return start if slot.count == 0 else self.elements.load(tensor, Edge(slot.count - 1), item.dtype)

    def load_at_slot(self, load: Element, slot: Slot) -> Element:
        """Return a load of the forward's iteration (at Now) as a load at a slot; refuse one that would be outside of
        the steps."""
        tensor, now = load.args
        place: Slot = None
        match slot:
            case Now(offset):
                place = Now(offset + now.offset)
            case Edge():
                place = shift_edge(slot, now.offset)
        if place is None:
            raise RefusedError(f"the backward reads '{tensor}' outside of the steps")
        return self.elements.load(tensor, place, load.dtype)

    def write(self, write: Write) -> Write:
        """Return a write of what `read` makes of its element."""
        return replace(write, element=self.read(write.element))

    def loop(self, backward: Loop) -> Loop:
        """Return a backward that reads what was kept."""
        return replace(
            backward,
            start=tuple(map(self.read, backward.start)),
            following=tuple(map(self.read, backward.following)),
            absent=tuple(map(self.read, backward.absent)),
            writes=tuple(map(self.write, backward.writes)),
            before=tuple(map(self.write, backward.before)),
            after=tuple(map(self.write, backward.after)),
        )

    def read(self, root: Element) -> Element:
        """Return an element of a backward with loads and computations in the place of `kept`."""
        memo: dict[Element, Element] = {}
        for item in in_dependency_order([root]):
            if item.op == "kept":
                memo[item] = self.value(item.args[0], item.args[1])
            elif item.inputs:
                args = [memo[part] if isinstance(part, Element) else part for part in item.args]
                memo[item] = self.elements.make_like(item, args)
            else:
                memo[item] = item
        return memo[root]

    def value(self, body: Element, slot: Slot) -> Element:
        """Return a value of the forward's iteration at a slot, computed again from what is read there. Refuse one for
        which a carried value is needed that is not kept."""
        if slot is None:  # what the last iteration hands on has a tensor of its own
            return self.elements.load(self.finals[body], None, body.dtype)
        memo: dict[Element, Element] = {}
        stack = [body]
        while stack:
            item = stack[-1]
            if item in memo:
                stack.pop()
            elif item in self.starts:
                memo[item] = self.previous(item, slot)
            elif item in self.places:
                memo[item] = self.elements.load(self.places[item], slot, item.dtype)
            elif item.op == "load" and isinstance(item.args[1], Now):
                memo[item] = self.load_at_slot(item, slot)
            elif item.op == "carried":
                raise RefusedError("the backward uses a carried value that is not kept")
            elif missing := [part for part in item.inputs if part not in memo]:
                stack += missing
            else:
                args = [memo[part] if isinstance(part, Element) else part for part in item.args]
                memo[item] = self.elements.make_like(item, args) if item.inputs else item
        return memo[body]
