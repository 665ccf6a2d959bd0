"""Frames: a scene as boxes within boxes.

The steps of the forward stand in the calls of the modules that made them. Turns of a loop that have one structure, such
as layers, are one loop. What is still long is cut by the lines of the program. A step of the backward stands where the
step is that its echo names, so each frame has two halves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from backprint.drawing.scene import Scene, SceneNode
from backprint.graph.folding.find import Node, Repeat, Steps, loops_of
from backprint.graph.folding.series import divided_text

LONG = 24
"""A frame of more units than this is cut into lines, and then into groups of as many."""

LINE = 3
"""Steps in a row that one line of the program must have to be a frame."""

MANY = 6
"""A step with more steps of the backward beside it than this is a frame with them."""


ALIKE = 0.75
"""The share of its steps that a call next to a loop must have in common with it to be one of its turns."""


@dataclass(slots=True)
class Box:
    """A frame while it is made."""

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
    """A box: of the whole program, of a module's call, of a loop or one of its turns, of a line, or of some steps."""

    name: str
    kind: str
    label: str
    parent: int
    units: tuple[int, ...]
    """Nodes, and frames as `-number - 1`, in order."""


def frame_unit(number: int) -> int:
    """Return a frame's number as a unit, and a unit of a frame as its number."""
    return -number - 1


def frames_of(scene: Scene) -> tuple[Frame, ...]:
    """Return the frames of a scene; the first is the whole program."""
    root = calls_in(scene)
    for box in inner_first(root):
        fold_box(box, scene.nodes)
    for box in inner_first(root):
        cut_box(box, scene.nodes)
    put_beside(root, scene)
    for box in inner_first(root):
        gather_box(box, scene)
    for box in inner_first(root):
        merge_box(box)
    return tuple(numbered(root))


def inner_first(box: Box) -> list[Box]:
    """Return a box and those in it, the inner ones first."""
    found = [box]
    for each in found:
        found += (unit for unit in each.units if isinstance(unit, Box))
    return found[::-1]


# ------------------------------------------------------------------ calls of modules


def calls_in(scene: Scene) -> Box:
    """Return the program as calls within calls: a module that is called twice is two boxes.

    A step that makes something for the backward alone may run late: it stands in the last call of its module.
    """
    root = Box(scene.name, "program")
    stack = [("", root)]
    last: dict[str, Box] = {}
    late = for_backward_alone(scene)
    for place, node in enumerate(scene.nodes[: scene.forward]):
        module = node.source.module if node.source is not None else ""
        if place in late and module in last:
            last[module].units.append(place)
            continue
        parts = module.split(".") if module else []
        depth = 0
        while depth < min(len(parts), len(stack) - 1) and stack[depth + 1][0] == parts[depth]:
            depth += 1
        del stack[depth + 1 :]
        for part in parts[depth:]:
            inner = Box(part, "module")
            stack[-1][1].units.append(inner)
            stack.append((part, inner))
        last[module] = stack[-1][1]
        last[module].units.append(place)
    return root


def for_backward_alone(scene: Scene) -> set[int]:
    """Return the steps of the forward whose results no step of the forward needs but such steps, and no output."""
    needed = {port.value for port in scene.ports if not port.enters and port.port.role != "saved"}
    found: set[int] = set()
    for place in range(scene.forward - 1, -1, -1):
        if place in needed or scene.nodes[place].is_guard:
            needed.update(scene.nodes[place].inputs)
        else:
            found.add(place)
    return found


# ------------------------------------------------------------------ loops


def fold_box(box: Box, nodes: Sequence[SceneNode]) -> None:
    """Replace units that repeat by loops."""
    if len(box.units) < 2:
        return
    steps = steps_of_units(box.units, nodes)
    found = loops_of(steps)
    if any(isinstance(each, Repeat) for each in found):
        box.units = joined_alike(list(units_with_loops(found, box.units)), nodes)
        for loop in box.units:
            if isinstance(loop, Box) and loop.kind == "loop":
                for turn in loop.units:
                    if isinstance(turn, Box) and turn.kind == "turn":
                        fold_box(turn, nodes)


def steps_of_units(units: Sequence[Box | int], nodes: Sequence[SceneNode]) -> Steps:
    """Return units as what repeats in them."""
    inside = [list(unit.nodes()) if isinstance(unit, Box) else [unit] for unit in units]
    place = {node: count for count, each in enumerate(inside) for node in each}
    numbers: dict[Any, int] = {}
    tokens, uses, borders = [], [], []
    for count, unit in enumerate(units):
        tokens.append(numbers.setdefault(token_of_unit(unit, inside[count], nodes), len(numbers)))
        taken = [place.get(value, -1) for node in inside[count] for value in nodes[node].inputs]
        uses.append([each for each in taken if each != count])
        borders.append(isinstance(unit, Box) and not (count and isinstance(units[count - 1], Box)))
    return Steps(tokens, uses, borders, [len(each) for each in inside])


def token_of_unit(unit: Box | int, inside: Sequence[int], nodes: Sequence[SceneNode]) -> Any:
    """Return what two turns have in common of a unit: of a box its name without numbers and all its steps."""
    if isinstance(unit, int):
        return nodes[unit].token
    order = {node: count for count, node in enumerate(inside)}
    flow = tuple(tuple(order.get(value, -1) for value in nodes[node].inputs) for node in inside)
    return divided_text(unit.name)[0], tuple(nodes[node].token for node in inside), flow


def units_with_loops(found: Iterable[Node], units: Sequence[Box | int]) -> Iterator[Box | int]:
    """Yield units with those that repeat in loops."""
    for node in found:
        if isinstance(node, int):
            yield units[node]
        else:
            turns = [list(row) for row in node.rows]
            for odd in node.odd:
                turns[odd.iteration].append(odd.place)
            yield loop_of_turns([[units[place] for place in sorted(turn)] for turn in turns])


def joined_alike(units: Sequence[Box | int], nodes: Sequence[SceneNode]) -> list[Box | int]:
    """Return units in which a loop of calls has also those next to it that are nearly the same: a first layer may
    compute what the others take from it."""
    found: list[Box | int] = []
    for unit in units:
        before = found[-1] if found else None
        if isinstance(unit, Box) and isinstance(before, Box) and "loop" in (unit.kind, before.kind):
            turns = [each for box in (before, unit) for each in (box.units if box.kind == "loop" else [box])]
            if are_alike(turns[0], turns[-1], nodes):
                found[-1] = loop_of_turns([[turn] for turn in turns])
                continue
        found.append(unit)
    return found


def are_alike(left: Box | int, right: Box | int, nodes: Sequence[SceneNode]) -> bool:
    """Whether two boxes are calls of modules whose names differ in a number, and most steps are equal."""
    if isinstance(left, int) or isinstance(right, int) or {left.kind, right.kind} != {"module"}:
        return False
    if not left.name.isdigit() or not right.name.isdigit():
        return False
    ours, theirs = (Counter(nodes[node].token for node in box.nodes()) for box in (left, right))
    return (ours & theirs).total() >= ALIKE * max(ours.total(), theirs.total())


def loop_of_turns(turns: Sequence[Sequence[Box | int]]) -> Box:
    """Return a loop; a turn that is one box is that box."""
    boxes: list[Box | int] = []
    for count, turn in enumerate(turns):
        alone = turn[0]
        boxes.append(alone if len(turn) == 1 and isinstance(alone, Box) else Box(f"turn {count}", "turn", list(turn)))
    ends = [each.name for each in (boxes[0], boxes[-1]) if isinstance(each, Box) and each.kind != "turn"]
    return Box("…".join(dict.fromkeys(ends)) or "loop", "loop", boxes)


# ------------------------------------------------------------------ long ones


def cut_box(box: Box, nodes: Sequence[SceneNode]) -> None:
    """Cut a long box into lines of the program, and then into groups."""
    if box.kind == "loop":
        return
    if len(box.units) > LONG:
        box.units = list(units_by_line(box.units, nodes))
    while len(box.units) > 2 * LONG:
        chunks = [box.units[start : start + LONG] for start in range(0, len(box.units), LONG)]
        box.units = [Box(title_of_chunk(chunk, nodes), "steps", chunk) for chunk in chunks]


def units_by_line(units: Sequence[Box | int], nodes: Sequence[SceneNode]) -> Iterator[Box | int]:
    """Yield units, with those that stand in a row and come from one line in a box."""

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


def title_of_chunk(chunk: Sequence[Box | int], nodes: Sequence[SceneNode]) -> str:
    """Return the names of the first and the last step of some units."""
    first, last = (list(unit.nodes()) if isinstance(unit, Box) else [unit] for unit in (chunk[0], chunk[-1]))
    return f"{nodes[first[0]].name} … {nodes[last[-1]].name}"


# ------------------------------------------------------------------ the backward


def put_beside(root: Box, scene: Scene) -> None:
    """Put each step of the backward into the box of the step of the forward that its echo names; into that of a step
    whose result it takes where the echo names none."""
    home: dict[int, Box] = {}
    for box in inner_first(root):
        home |= {unit: box for unit in box.units if isinstance(unit, int)}
    for place in range(scene.forward, len(scene.nodes)):
        node = scene.nodes[place]
        known = [each for each in (*node.partners, *reversed(node.inputs)) if each in home]
        box = home[known[0]] if known else root
        home[place] = box
        box.units.append(place)


def partner_in(place: int, own: set[int], nodes: Sequence[SceneNode]) -> int | None:
    """Return the step of the forward beside which a step of the backward stands: in the same box; None if there is
    none."""
    return next((each for each in nodes[place].partners if each in own), None)


def gather_box(box: Box, scene: Scene) -> None:
    """Make boxes of steps that have many steps of the backward beside them, if there are others in the box."""
    if box.kind == "loop":
        return
    own = {unit for unit in box.units if isinstance(unit, int) and unit < scene.forward}
    groups: dict[int | None, list[int]] = {}
    for unit in box.units:
        if isinstance(unit, int) and unit >= scene.forward:
            groups.setdefault(partner_in(unit, own, scene.nodes), []).append(unit)
    if len(groups) + len(box.units) - sum(map(len, groups.values())) < 3:
        return
    for first, group in groups.items():
        if first is None or len(group) <= MANY:
            continue
        gone = {first, *group}
        inner = Box(scene.nodes[first].name, "steps", [first, *group])
        place = box.units.index(first)
        box.units[place] = inner
        box.units = [unit for unit in box.units if isinstance(unit, Box) or unit not in gone]


def merge_box(box: Box) -> None:
    """Let a box that has nothing but another box take its place."""
    while len(box.units) == 1 and isinstance(only := box.units[0], Box) and box.kind != "loop":
        if box.kind == "program":
            if only.kind != "module":
                return
            box.label = only.name if not box.label else f"{box.label}.{only.name}"
        elif only.kind in ("module", "loop"):
            box.kind, box.name = only.kind, f"{box.name}.{only.name}"
        box.label = only.label or box.label
        box.units = only.units


def numbered(root: Box) -> list[Frame]:
    """Return the boxes as frames, outer ones first."""
    numbers = {id(root): 0}
    order, parents = [root], [-1]
    for box in order:
        for unit in box.units:
            if isinstance(unit, Box):
                numbers[id(unit)] = len(order)
                parents.append(numbers[id(box)])
                order.append(unit)
    return [
        Frame(box.name, box.kind, box.label, parents[number], tuple(
            frame_unit(numbers[id(unit)]) if isinstance(unit, Box) else unit for unit in box.units
        ))
        for number, box in enumerate(order)
    ]  # fmt: skip
