"""A scene: the plain values that a drawing shows. The steps of both directions are its nodes, in frames of modules and
loops, with flows between them.

Words of this file:

- A *node* is a step of a graph, known by its number: the steps of the forward come first, then those of the backward. A
  *value* is a number too: that of the node that makes it, or, from `len(nodes)` on, that of an input port.
- The *side* of a node or a port is FORWARD or BACKWARD, 0 or 1.
- The *echo* of a step of the backward says of which values of the forward it is the gradient; their nodes are its
  *partners*.
- A `Box` is a frame while it is made: a module's call, a loop, one of its *turns* (iterations), a line of the program.
  Its *units* are nodes (numbers), and boxes within it. At the end boxes become `Frame`s with numbers, in whose units a
  frame is a negative number (`frame_unit`). The *place* of a unit is its index among the frame's units.
- A *token* is equal for nodes that may be the same node of two turns of a loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from backprint.graph.folding.find import Node, Repeat, Steps, loops_of
from backprint.graph.folding.fold import token_of
from backprint.graph.folding.nouns import split_numbers_of_text
from backprint.graph.nouns import Dict, Graph, List, Pair, Port, Ref, Slice, Source, Spec, Step, TensorSpec, Value, refs
from backprint.graph.sizes import at_example_sizes
from backprint.graph.text import show
from backprint.tools.cost.costs import each_storage, storages_of, updates_first

# ---- Nodes, ports and bridges


FORWARD, BACKWARD = 0, 1
"""The sides, which are indices too."""

NO_VALUE = -1
"""In place of a value: of an output that is a constant."""


@dataclass(frozen=True, slots=True)
class SceneNode:
    """A step as it is drawn."""

    side: int
    name: str
    target: str
    spec: Spec
    inputs: tuple[int, ...]
    """The values that it takes, in the order of `arguments`."""
    arguments: str = ""
    """Its arguments as text, with `{0}` for the first of its inputs."""
    source: Source | None = None
    echo: str = ""
    partners: tuple[int, ...] = ()
    """Nodes and values of the forward that its echo names."""
    token: Any = None
    """Equal for nodes that may be the same node of two turns of a loop."""
    is_guard: bool = False
    region: str = ""
    """The region in whose frame it stands."""
    is_neighbor: bool = False
    """Whether it is not in the region that is drawn, but gives gradients to it, or gets some from it."""


@dataclass(frozen=True, slots=True)
class ScenePort:
    """A port as it is drawn: at the node that makes or takes its value. An input `enters` its graph."""

    side: int
    enters: bool
    port: Port
    value: int


@dataclass(frozen=True, slots=True)
class SceneBridge:
    """A tensor that the forward saves: its value there (`made`), and the value of the backward's port (`taken`)."""

    made: int
    taken: int
    spec: Spec


@dataclass(frozen=True, slots=True)
class Scene:
    """Two directions, node by node, with their ports and what the forward saves for the backward."""

    name: str
    nodes: tuple[SceneNode, ...]
    forward: int
    """How many of the nodes are of the forward; they come first."""
    ports: tuple[ScenePort, ...]
    bridges: tuple[SceneBridge, ...]
    classes: Mapping[str, str] = field(default_factory=dict)
    """The classes of modules, by the paths that steps name, as far as they are known."""

    @property
    def neighbors(self) -> int | None:
        """How many nodes of the forward are neighbors of the region that is drawn; None where none is."""
        shows_region = any(node.region for node in self.nodes)
        return sum(node.is_neighbor for node in self.nodes[: self.forward]) if shows_region else None

    def made_by(self) -> dict[int, int]:
        """Return, for each value that is an input of the backward and saved, the value of the forward that it is."""
        return {bridge.taken: bridge.made for bridge in self.bridges}


def scene_of(pair: Pair, classes: Mapping[str, str] | None = None) -> Scene:
    """Return the scene of a Pair; `classes` are those of its modules, by path.

    Graphs name values by text; here they become numbers. A step in place is the maker of all values in the memory that
    it writes: those that read them later take from it. Such changes are in `writers`, while `makers` keeps who made a
    value first, which is what an echo means. Both are by name, for each side.
    """
    graphs = [pair.forward] if pair.backward is None else [pair.forward, pair.backward]
    ports: list[ScenePort] = []
    nodes: list[SceneNode] = []
    makers: list[dict[str, int]] = []
    writers: list[dict[str, int]] = []
    next_value = sum(len(graph.steps) for graph in graphs)  # inputs are numbered behind all nodes
    for side, graph in enumerate(graphs):
        value_of_input = {port.local: next_value + index for index, port in enumerate(graph.inputs)}
        ports += [ScenePort(side, enters=True, port=port, value=value_of_input[port.local]) for port in graph.inputs]
        next_value += len(graph.inputs)
        makers.append(dict(value_of_input))
        writers.append(dict(value_of_input))
        memory = shared_memory(graph)
        for step in graph.steps:
            number = len(nodes)
            nodes.append(node_of(step, side, writers[side], makers[FORWARD]))
            if not step.is_guard:  # a guard checks a value, and makes none
                makers[side][step.name] = writers[side][step.name] = number
            for name in _updated_names(step):
                # Only of values that exist already: a view that is made later is its own step's.
                writers[side] |= {other: number for other in memory[name] if other in writers[side]}
    for side, graph in enumerate(graphs):
        ports += _ports_out(side, graph, writers[side])
    bridges = tuple(_bridges_of(pair, writers)) if pair.backward is not None else ()
    return Scene(pair.name, tuple(nodes), len(pair.forward.steps), tuple(ports), bridges, classes or {})


def _updated_names(step: Step) -> list[str]:
    """Return the names of the values that a step writes into, which its first argument has: none of most steps."""
    return _refs_in(step.args[0]) if step.args and updates_first(step.target) else []


def _refs_in(value: Value) -> list[str]:
    """Return the names that an argument refers to, itself or as the items of a list."""
    items = value.items if isinstance(value, List) else (value,)
    return [item.name for item in items if isinstance(item, Ref)]


def shared_memory(graph: Graph) -> dict[str, list[str]]:
    """Return, for each value that a step writes into, the names of all values that share its memory, its own too."""
    written = {name for step in graph.steps for name in _updated_names(step)}
    if not written:
        return {}
    storages, _ = storages_of(at_example_sizes(graph))  # by value: its storage, or those of a tuple's tensors
    names_by_storage: dict[str, list[str]] = {}
    for name, storages_of_value in storages.items():
        for storage in each_storage(storages_of_value):
            names_by_storage.setdefault(storage, []).append(name)
    return {
        name: [other for storage in each_storage(storages[name]) for other in names_by_storage[storage]]
        for name in written
    }


def node_of(step: Step, side: int, values: Mapping[str, int], forward: Mapping[str, int]) -> SceneNode:
    """Return a step as a node. `values` are the numbers of the values that it may take, by name; `forward` those of the
    forward, which its echo names."""
    taken_values: list[int] = []
    named = [f"{key}={template(value, values, taken_values)}" for key, value in step.kwargs]
    arguments = ", ".join([*(template(value, values, taken_values) for value in step.args), *named])
    echo = step.echo
    partners = tuple(forward[name] for name in echo.names if name in forward) if echo is not None else ()
    return SceneNode(
        side,
        step.name,
        step.target,
        step.spec,
        inputs=tuple(taken_values),
        arguments=arguments,
        source=step.source,
        echo=echo.kind if echo is not None else "",
        partners=partners,
        token=token_of(step),
        is_guard=step.is_guard,
    )


def template(value: Value, values: Mapping[str, int], arguments: list[int]) -> str:
    """Return an argument as text in which `{3}` is the fourth of `arguments`, to which the values that it refers to are
    appended. `values` are the numbers of values, by name."""
    match value:
        case Ref(name):
            arguments.append(values[name])
            return f"{{{len(arguments) - 1}}}"
        case List(items):
            return "[" + ", ".join(template(item, values, arguments) for item in items) + "]"
        case tuple():
            inside = ", ".join(template(item, values, arguments) for item in value)
            return f"({inside},)" if len(value) == 1 else f"({inside})"
        case Slice(start, stop, step):
            return "slice(" + ", ".join(template(item, values, arguments) for item in (start, stop, step)) + ")"
        case Dict(items):
            parts = (f"{template(k, values, arguments)}: {template(v, values, arguments)}" for k, v in items)
            return "{" + ", ".join(parts) + "}"
    # Only strings have braces here; an escape keeps them from being read as the mark of a value.
    return show(value).replace("{", "\\x7b")


def _ports_out(side: int, graph: Graph, values: Mapping[str, int]) -> Iterator[ScenePort]:
    """Yield the outputs of a graph, each with the first value that it returns (NO_VALUE: a constant); `values` are
    numbers by name."""
    for port, result in zip(graph.outputs, graph.results, strict=True):
        yield ScenePort(side, False, port, next((values[name] for name in refs(result)), NO_VALUE))


def _bridges_of(pair: Pair, values: Sequence[Mapping[str, int]]) -> Iterator[SceneBridge]:
    """Yield what the forward saves and the backward takes: saved ports of one name. `values` has the numbers of values
    by name, for each side. A constant that is saved is no bridge."""
    forward, backward = pair.forward, pair.backward
    value_of_saved = {
        port.name: next((values[FORWARD][name] for name in refs(result)), NO_VALUE)
        for port, result in zip(forward.outputs, forward.results, strict=True)
        if port.role == "saved"
    }
    for port in backward.inputs if backward is not None else ():
        if port.role == "saved" and value_of_saved.get(port.name, NO_VALUE) != NO_VALUE:
            yield SceneBridge(value_of_saved[port.name], values[BACKWARD][port.local], port.spec)


def bytes_of(spec: Spec) -> int:
    """Return the bytes of a tensor, or of all tensors of a tuple; 0 for what is no tensor."""
    match spec:
        case TensorSpec():
            return spec.nbytes
        case tuple():
            return sum(map(bytes_of, spec))
    return 0


# ---- Frames: a scene as boxes within boxes
# The steps of the forward stand in the calls of the modules that made them. Iterations of a loop that have one
# structure, such as layers, are one box. A frame that is still long is cut by the lines of the program. A step of the
# backward stands in the frame of the step that its echo names, so each frame has two halves.

LONG = 24
"""A frame of more units than this is cut into lines, and then into groups of as many."""

LINE = 3
"""Steps in a row that one line of the program must have to be a frame."""

MANY = 6
"""A step that has more steps of the backward beside it than this becomes a frame, together with them."""

ALIKE = 0.75
"""The share of its steps that a call next to a loop must have in common with it to be one of its turns."""


@dataclass(slots=True)
class Box:
    """A frame while it is made, which the functions below change. Its units are boxes, and nodes by their numbers.

    `kind` is `program`, `region`, `module` (a call), `loop`, `turn`, `line` (of the program) or `steps` (some in a
    row); `label` is the class of a module, or the code of a line.
    """

    name: str
    kind: str
    units: list[Box | int] = field(default_factory=list)
    label: str = ""

    def nodes(self) -> Iterator[int]:
        """Yield the nodes of the box, also those of boxes in it."""
        waiting: list[Box | int] = [self]
        while waiting:
            unit = waiting.pop()
            if isinstance(unit, Box):
                waiting += reversed(unit.units)
            else:
                yield unit


@dataclass(frozen=True, slots=True)
class Frame:
    """A box (see there) with its number: of the whole program, of a region, of a module's call, of a loop or one of its
    turns, of a line, or of some steps."""

    name: str
    kind: str
    label: str
    parent: int
    """The number of the frame around it; -1 of the whole program."""
    units: tuple[int, ...]
    """Nodes, and frames as `-number - 1`, in order."""


def frame_unit(number: int) -> int:
    """Return a frame's number as a unit, or a unit that is a frame as its number: it is its own inverse. Frame 0 is the
    unit -1."""
    return -number - 1


def frames_of(scene: Scene) -> tuple[Frame, ...]:
    """Return the frames of a scene; the first is the whole program.

    Only the forward is put into frames, folded and cut; then the backward is put beside it.
    """
    root = _calls_in(scene)
    for box in _inner_first(root):
        _fold_box(box, scene.nodes)  # what repeats becomes loops
    for box in _inner_first(root):
        _cut_box(box, scene.nodes)  # what is long becomes boxes of lines, and of groups
    _place_backward_steps(root, scene)
    for box in _inner_first(root):
        _gather_box(box, scene)  # a step with many steps of the backward beside it becomes a box with them
    for box in _inner_first(root):
        _merge_box(box)  # a box with nothing but a box in it becomes one
    return tuple(number_boxes(root))


def _inner_first(box: Box) -> list[Box]:
    """Return a box and those in it, the inner ones first."""
    boxes = [box]
    for outer in boxes:
        boxes += (unit for unit in outer.units if isinstance(unit, Box))
    return boxes[::-1]


# ---- Calls of modules


def _calls_in(scene: Scene) -> Box:
    """Return the program as calls within calls, with the steps of the forward: a module that is called twice is two
    boxes. If a region is drawn, it is a box around all calls in it.

    A step that makes something for the backward alone may run late: it stands in the last call of its module.
    """
    root = Box(scene.name, "program")
    stack = [("", root)]  # the calls around the step before, the outermost first
    last: dict[tuple[str, ...], Box] = {}  # the last call of each path
    late = _for_backward_alone(scene)
    for number, node in enumerate(scene.nodes[: scene.forward]):
        module = node.source.module if node.source is not None else ""
        path = tuple(part for part in (node.region, *module.split(".")) if part)
        if number in late and path in last:
            last[path].units.append(number)
            continue
        # Leave the calls that this step is not in, then enter those that are missing.
        depth = 0
        while depth < min(len(path), len(stack) - 1) and stack[depth + 1][0] == path[depth]:
            depth += 1
        del stack[depth + 1 :]
        parts_of_region = 1 if node.region else 0  # the first part of the path, which is no module
        for index, part in enumerate(path[depth:], depth):
            kind = "region" if index < parts_of_region else "module"
            label = scene.classes.get(".".join(path[parts_of_region : index + 1]), "")
            inner = Box(part, kind, label=label if kind == "module" else "")
            _, outer = stack[-1]
            outer.units.append(inner)
            stack.append((part, inner))
        _, last[path] = stack[-1]
        last[path].units.append(number)
    return root


def _for_backward_alone(scene: Scene) -> set[int]:
    """Return the steps of the forward that no output needs, directly or through other steps, but saved ones: they are
    computed for the backward alone."""
    needed = {port.value for port in scene.ports if not port.enters and port.port.role != "saved"}
    only_backward: set[int] = set()
    for number in reversed(range(scene.forward)):
        if number in needed or scene.nodes[number].is_guard:
            needed.update(scene.nodes[number].inputs)
        else:
            only_backward.add(number)
    return only_backward


# ---- Loops


def _fold_box(box: Box, nodes: Sequence[SceneNode]) -> None:
    """Replace the units of a box that repeat by loops, also in the turns of those loops."""
    if len(box.units) < 2:
        return
    # The places of the units in order, with a Repeat in place of those that are a loop.
    places_and_loops = loops_of(_steps_of_units(box.units, nodes))
    if any(isinstance(node, Repeat) for node in places_and_loops):
        box.units = _merge_similar_calls(list(_units_with_loops(places_and_loops, box.units)), nodes)
        for loop in box.units:
            if isinstance(loop, Box) and loop.kind == "loop":
                for turn in loop.units:
                    if isinstance(turn, Box) and turn.kind == "turn":
                        _fold_box(turn, nodes)


def _steps_of_units(units: Sequence[Box | int], nodes: Sequence[SceneNode]) -> Steps:
    """Return units as `loops_of` wants them: equal tokens for units that may be one unit of two turns, and the units
    from which each takes values."""
    nodes_of_units = [list(unit.nodes()) if isinstance(unit, Box) else [unit] for unit in units]
    place_of_node = {node: place for place, nodes_of_unit in enumerate(nodes_of_units) for node in nodes_of_unit}
    number_of_token: dict[Any, int] = {}
    tokens, uses, borders = [], [], []
    for place, (unit, nodes_of_unit) in enumerate(zip(units, nodes_of_units, strict=True)):
        token = _token_of_unit(unit, nodes_of_unit, nodes)
        tokens.append(number_of_token.setdefault(token, len(number_of_token)))
        arguments = [place_of_node.get(value, -1) for node in nodes_of_unit for value in nodes[node].inputs]
        uses.append([argument for argument in arguments if argument != place])  # what it takes from itself is left out
        # A turn begins rather at a module's call than at steps between calls: at the first of calls in a row.
        borders.append(isinstance(unit, Box) and not (place and isinstance(units[place - 1], Box)))
    return Steps(tokens, uses, borders, weights=list(map(len, nodes_of_units)))


def _token_of_unit(unit: Box | int, inside: Sequence[int], nodes: Sequence[SceneNode]) -> Any:
    """Return what is equal for units that may be one unit of two turns: of a step its token, of a box its name without
    numbers, the tokens of all its steps (`inside`), and which of them takes from which (-1 from outside)."""
    if isinstance(unit, int):
        return nodes[unit].token
    order = {node: index for index, node in enumerate(inside)}
    flow = tuple(tuple(order.get(value, -1) for value in nodes[node].inputs) for node in inside)
    name_without_numbers, _ = split_numbers_of_text(unit.name)
    return name_without_numbers, tuple(nodes[node].token for node in inside), flow


def _units_with_loops(places_and_loops: Iterable[Node], units: Sequence[Box | int]) -> Iterator[Box | int]:
    """Yield units, with a loop in place of those that repeat. A Repeat has the places of each turn's units (`rows`); a
    unit that only one turn has (`odd`) stands in that turn."""
    for node in places_and_loops:
        if isinstance(node, int):
            yield units[node]
        else:
            turns = [list(row) for row in node.rows]
            for odd in node.odd:
                turns[odd.iteration].append(odd.place)
            yield _loop_of_turns([[units[place] for place in sorted(turn)] for turn in turns])


def _merge_similar_calls(units: Sequence[Box | int], nodes: Sequence[SceneNode]) -> list[Box | int]:
    """Return units in which a loop of calls has also the calls next to it that are nearly the same. A first layer may
    have steps that the others lack, such as a mask that all take from it."""
    merged: list[Box | int] = []
    for unit in units:
        before = merged[-1] if merged else None
        if isinstance(unit, Box) and isinstance(before, Box) and "loop" in (unit.kind, before.kind):
            turns = [member for box in (before, unit) for member in (box.units if box.kind == "loop" else [box])]
            if _are_alike(turns[0], turns[-1], nodes):
                merged[-1] = _loop_of_turns([[turn] for turn in turns])
                continue
        merged.append(unit)
    return merged


def _are_alike(left: Box | int, right: Box | int, nodes: Sequence[SceneNode]) -> bool:
    """Whether two units are calls of modules named by a number, such as `0` and `1` of `layers`, and most of their
    steps (ALIKE) have equal tokens."""
    if isinstance(left, int) or isinstance(right, int) or {left.kind, right.kind} != {"module"}:
        return False
    if not left.name.isdigit() or not right.name.isdigit():
        return False
    ours, theirs = (Counter(nodes[node].token for node in box.nodes()) for box in (left, right))
    return (ours & theirs).total() >= ALIKE * max(ours.total(), theirs.total())


def _loop_of_turns(turns: Sequence[Sequence[Box | int]]) -> Box:
    """Return a loop of turns, each given by its units. A turn that is one box is that box, and the loop is named by the
    first and the last of them, `0…11`; else each turn gets a box around it. The loop has the label that all share."""
    boxes: list[Box] = []
    for number, turn in enumerate(turns):
        first_unit = turn[0]
        if len(turn) == 1 and isinstance(first_unit, Box):
            boxes.append(first_unit)
        else:
            boxes.append(Box(f"turn {number}", "turn", list(turn)))
    ends = [box.name for box in (boxes[0], boxes[-1]) if box.kind != "turn"]
    labels = {box.label for box in boxes}
    label = labels.pop() if len(labels) == 1 else ""
    return Box("…".join(dict.fromkeys(ends)) or "loop", "loop", list(boxes), label)


# ---- Long ones


def _cut_box(box: Box, nodes: Sequence[SceneNode]) -> None:
    """Cut a box of more than LONG units into lines of the program; what still has twice as many into groups of LONG,
    and groups of groups. A loop stays, as its units are its turns."""
    if box.kind == "loop":
        return
    if len(box.units) > LONG:
        box.units = list(_units_by_line(box.units, nodes))
    while len(box.units) > 2 * LONG:
        chunks = [box.units[start : start + LONG] for start in range(0, len(box.units), LONG)]
        box.units = [Box(_title_of_chunk(chunk, nodes), "steps", chunk) for chunk in chunks]


def _units_by_line(units: Sequence[Box | int], nodes: Sequence[SceneNode]) -> Iterator[Box | int]:
    """Yield units, with a box around LINE and more steps in a row that come from one line of the program."""

    def line(unit: Box | int) -> tuple[str, int, str] | None:
        source = nodes[unit].source if isinstance(unit, int) else None
        return (source.file, source.line, source.code) if source is not None else None

    for key, group in groupby(units, line):
        row = list(group)
        if key is None or len(row) < LINE:
            yield from row
        else:
            file, number, code = key
            yield Box(f"{file.rpartition('/')[2]}:{number}", "line", row, code)


def _title_of_chunk(chunk: Sequence[Box | int], nodes: Sequence[SceneNode]) -> str:
    """Return the title of a group of units, the names of its first and its last step: `add … relu_3`."""
    first, last = (list(unit.nodes()) if isinstance(unit, Box) else [unit] for unit in (chunk[0], chunk[-1]))
    return f"{nodes[first[0]].name} … {nodes[last[-1]].name}"


# ---- The backward


def _place_backward_steps(root: Box, scene: Scene) -> None:
    """Add each step of the backward to the box of the step of the forward that its echo names. Without one it goes to
    the box of a step whose result it takes, the last argument first, or else to the whole program (`root`)."""
    box_of_node: dict[int, Box] = {}
    for box in _inner_first(root):
        box_of_node |= {unit: box for unit in box.units if isinstance(unit, int)}
    for number in range(scene.forward, len(scene.nodes)):
        node = scene.nodes[number]
        related_boxes = [
            box_of_node[related] for related in (*node.partners, *reversed(node.inputs)) if related in box_of_node
        ]
        box = related_boxes[0] if related_boxes else root
        box_of_node[number] = box
        box.units.append(number)


def partner_in(number: int, own: set[int], nodes: Sequence[SceneNode]) -> int | None:
    """Return the step of the forward beside which the step `number` of the backward stands: the first of its partners
    that is in `own`, the forward's steps of its box; None if there is none."""
    return next((partner for partner in nodes[number].partners if partner in own), None)


def _gather_box(box: Box, scene: Scene) -> None:
    """Replace each step of the forward with more than MANY steps of the backward beside it by a box of them all, unless
    little else is in the box."""
    if box.kind == "loop":
        return
    own = {unit for unit in box.units if isinstance(unit, int) and unit < scene.forward}
    # The steps of the backward, by the step of the forward that they stand beside; None: beside none of this box.
    groups: dict[int | None, list[int]] = {}
    for unit in box.units:
        if isinstance(unit, int) and unit >= scene.forward:
            groups.setdefault(partner_in(unit, own, scene.nodes), []).append(unit)
    # The steps of the forward, the boxes, and the groups of the backward: with fewer than three there is nothing from
    # which a new box would set them apart.
    if len(groups) + len(box.units) - sum(map(len, groups.values())) < 3:
        return
    for partner, group in groups.items():
        if partner is None or len(group) <= MANY:
            continue
        inner = Box(scene.nodes[partner].name, "steps", [partner, *group])
        box.units[box.units.index(partner)] = inner
        box.units = [unit for unit in box.units if isinstance(unit, Box) or unit not in group]


def _merge_box(box: Box) -> None:
    """Replace a box's units by those of the only box in it, as long as there is only one, and join their names: a
    module `mlp` with nothing but the module `0` becomes `mlp.0`. The program, a region and a loop keep their kind: the
    program swallows a module, whose name is then in its label, a region all but a loop, and a loop nothing."""
    while len(box.units) == 1 and isinstance(only := box.units[0], Box) and box.kind != "loop":
        if box.kind == "program":
            if only.kind != "module":
                return
            box.label = only.name if not box.label else f"{box.label}.{only.name}"
        elif box.kind == "region":
            if only.kind == "loop":
                return
        elif only.kind in ("module", "loop"):
            box.kind, box.name = only.kind, f"{box.name}.{only.name}"
        box.label = only.label or (only.name if box.kind == "region" else box.label)
        box.units = only.units


def number_boxes(root: Box) -> list[Frame]:
    """Return the boxes as frames, outer ones first: a frame's number is higher than that of the one around it."""
    numbers = {id(root): 0}  # by the id of the box
    order, parents = [root], [-1]
    for box in order:  # which grows meanwhile: breadth first
        for unit in box.units:
            if isinstance(unit, Box):
                numbers[id(unit)] = len(order)
                parents.append(numbers[id(box)])
                order.append(unit)
    return [
        Frame(
            box.name,
            box.kind,
            box.label,
            parents[number],
            tuple(frame_unit(numbers[id(unit)]) if isinstance(unit, Box) else unit for unit in box.units),
        )
        for number, box in enumerate(order)
    ]


# ---- Flows: the values that one unit of a frame passes to another, and those that enter and leave it

SAVED = 2
"""The third kind of flow, beside those of the two sides: from the forward to the backward."""

OUTSIDE = -1
"""In place of a unit: where values enter and leave a frame."""

Flows = dict[tuple[int, int], dict[int, None]]
"""The flows of one kind in a frame: by the places of the unit from which and of that to which they go, or OUTSIDE, the
values that go there, in order."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where each node and each frame stands."""

    of_node: Sequence[tuple[int, int]]
    """For each node: its frame, and its place among the frame's units."""
    of_frame: Sequence[tuple[int, int]]
    """For each frame: the frame around it, and its place among that one's units; -1 and -1 for the outermost."""
    depth: Sequence[int]
    """For each frame: how many are around it."""


def places_in(scene: Scene, frames: Sequence[Frame]) -> Places:
    """Return where the nodes of a scene and its frames stand."""
    of_node = [(OUTSIDE, OUTSIDE)] * len(scene.nodes)
    of_frame = [(OUTSIDE, OUTSIDE)] * len(frames)
    depth = [0] * len(frames)
    for number, frame in enumerate(frames):
        for place, unit in enumerate(frame.units):
            if unit >= 0:
                of_node[unit] = (number, place)
            else:
                of_frame[frame_unit(unit)] = (number, place)
                depth[frame_unit(unit)] = depth[number] + 1
    return Places(of_node, of_frame, depth)


def flows_in(scene: Scene, frames: Sequence[Frame], places: Places) -> list[tuple[Flows, Flows, Flows]]:
    """Return for each frame its flows of the forward, of the backward, and of what is saved (FORWARD, BACKWARD, SAVED
    are their indices)."""
    flows: list[tuple[Flows, Flows, Flows]] = [({}, {}, {}) for _ in frames]
    for kind, value, taker in flows_kinds(scene):
        for frame, source, target in hops(places, places.of_node[value], places.of_node[taker]):
            flows[frame][kind].setdefault((source, target), {})[value] = None
    return flows


def flows_kinds(scene: Scene) -> Iterator[tuple[int, int, int]]:
    """Yield each flow between two steps: its kind, the step that makes the value, and the step that takes it. What
    comes from an input is no flow, unless it is a tensor that a step of the forward saved."""
    count = len(scene.nodes)
    made_by = scene.made_by()  # from a saved input of the backward to the value of the forward
    for taker, node in enumerate(scene.nodes):
        for value in node.inputs:
            if value < count:
                yield node.side, value, taker
            elif NO_VALUE < made_by.get(value, NO_VALUE) < count:
                yield SAVED, made_by[value], taker


def hops(places: Places, source: tuple[int, int], target: tuple[int, int]) -> Iterator[tuple[int, int, int]]:
    """Yield the frames on the way from one step to another, each as (frame, source, target): the places in it between
    which the value is passed. `source` and `target` are as in `Places.of_node`: a frame, and a place in it.

    From step a in frame F to step b beside F: (F, a, OUTSIDE), then (the frame around, F, b).
    """
    depth = places.depth
    (source_frame, source_place), (target_frame, target_place) = source, target
    # Outwards from the deeper end until both are in frames of one depth, then from both until they are in one frame.
    while depth[source_frame] > depth[target_frame]:
        yield source_frame, source_place, OUTSIDE
        source_frame, source_place = places.of_frame[source_frame]
    while depth[target_frame] > depth[source_frame]:
        yield target_frame, OUTSIDE, target_place
        target_frame, target_place = places.of_frame[target_frame]
    while source_frame != target_frame:
        yield source_frame, source_place, OUTSIDE
        yield target_frame, OUTSIDE, target_place
        source_frame, source_place = places.of_frame[source_frame]
        target_frame, target_place = places.of_frame[target_frame]
    if source_place != target_place:  # equal where both are one step
        yield source_frame, source_place, target_place
