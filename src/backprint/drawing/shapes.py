"""The shapes of a picture, their sizes in points, and the texts on them."""

from __future__ import annotations

from dataclasses import dataclass

from backprint.drawing.drawn import DrawnPair, FlowMark
from backprint.drawing.scene import ScenePort
from backprint.graph.costing.storages import view_operators

GUTTER, GAP, ACROSS, PAD, HEAD, SLOT = 64.0, 24.0, 12.0, 12.0, 22.0, 9.0
"""The width of a gutter, the space between rows and between units of a row, that around a frame's content and above it,
and the width of a slot."""

NODE, THIN, FOLDED, PILL = 24.0, 17.0, 38.0, 14.0
"""The heights of a step, of a view, of a frame that is not open, and of the name of a port."""

LETTER, SMALL = 7.3, 5.7
"""The width of a letter of a step's name, and of one of a port's."""

LANE = 104.0
"""The least width of a step with what is beside it; flows run in the middle."""

LETTERS = 26
"""The most letters of a name; what is cut off is in the title of its shape."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class PortPill:
    """The name of a port beside a step."""

    role: str
    text: str
    name: str
    x: float
    y: float
    width: float


@dataclass(frozen=True, slots=True)
class DrawnBox:
    """A step, or a frame."""

    unit: int
    x: float
    y: float
    width: float
    height: float
    gutter: float
    """Where the middle of its gutter is."""
    is_open: bool = False
    depth: int = 0
    pills: tuple[PortPill, ...] = ()

    @property
    def bottom(self) -> float:
        """Where it ends."""
        return self.y + self.height

    @property
    def middle(self) -> float:
        """The half of its height."""
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class DrawnLine:
    """A line, as the points between which it runs; a `bend` is smooth, other lines have right angles.

    `kind` is `forward`, `backward` or `saved`.
    """

    kind: str
    points: tuple[Point, ...]
    text: str = ""
    count: int = 1
    bytes: int = 0
    ends: bool = True
    """Whether it ends here: a flow into an open frame goes on in it."""
    mark: FlowMark | None = None


def op_name(target: str) -> str:
    """Return the short name of an operator: `mm` of `aten.mm.default`."""
    parts = target.split(".")
    return parts[1] if len(parts) > 2 else parts[-1]


def shortened(text: str, letters: int = LETTERS) -> str:
    """Return a text in at most so many letters."""
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def short_name(name: str) -> str:
    """Return the last part of a port's name: `weight` of `layers.0.weight`."""
    return shortened(name.rpartition(".")[2] or name, 18)


def is_thin(drawn: DrawnPair, node: int) -> bool:
    """Whether a step is drawn small: it computes nothing."""
    target = drawn.scene.nodes[node].target
    return target == "operator.getitem" or (target.startswith("aten.") and op_name(target) in view_operators())


def cell_width(drawn: DrawnPair, node: int) -> float:
    """Return the width that a step has in its row: steps of one lane have one middle."""
    return max(LANE, node_width(drawn, node))


def node_width(drawn: DrawnPair, node: int) -> float:
    """Return the width of a step."""
    letters = len(shortened(op_name(drawn.scene.nodes[node].target)))
    return max(40.0, 12 + SMALL * letters) if is_thin(drawn, node) else max(52.0, 16 + LETTER * letters)


def node_height(drawn: DrawnPair, node: int) -> float:
    """Return the height of a step."""
    return THIN if is_thin(drawn, node) else NODE


def ports_beside(drawn: DrawnPair) -> dict[int, list[ScenePort]]:
    """Return the ports that are drawn at each step: of inputs at the steps that take them, of results at the step that
    makes them. What is saved is drawn as a bridge, and an input that is saved as itself."""
    scene = drawn.scene
    entering = {port.value: port for port in scene.ports if port.enters}
    made_by = scene.made_by()
    found: dict[int, list[ScenePort]] = {}
    for place, node in enumerate(scene.nodes):
        for value in dict.fromkeys(node.inputs):
            port = entering.get(made_by.get(value, value))
            if port is not None:
                found.setdefault(place, []).append(port)
    for port in scene.ports:
        if not port.enters and port.port.role != "saved" and 0 <= port.value < len(scene.nodes):
            found.setdefault(port.value, []).append(port)
    return found


def pill_text(port: ScenePort) -> str:
    """Return what stands beside a step for a port."""
    name = short_name(port.port.name)
    return f"grad {name}" if port.port.role in ("gradient", "tangent") else name


def pill_width(port: ScenePort) -> float:
    """Return the width of the name of a port."""
    return 10 + SMALL * len(pill_text(port))


def folded_texts(drawn: DrawnPair, number: int) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the texts of a frame that is not open: the two lines of its forward, and of its backward."""
    cost = drawn.frame_costs[number]
    first = (shortened(frame_title(drawn, number), 34), steps_text(cost.forward_steps))
    return first, ("backward" if cost.backward_steps else "", steps_text(cost.backward_steps))


def steps_text(count: int) -> str:
    """Return a number of steps as text."""
    return f"{count:,} step{'' if count == 1 else 's'}" if count else "no step"


def frame_title(drawn: DrawnPair, number: int) -> str:
    """Return what stands above a frame."""
    frame = drawn.frames[number]
    times = f" × {len(frame.units)}" if frame.kind == "loop" else ""
    return shortened(frame.name, 48) + times
