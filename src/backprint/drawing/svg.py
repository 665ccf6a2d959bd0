"""A picture as SVG: one file without scripts, in light and dark, with a legend."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Iterator

from backprint.amounts import amount
from backprint.drawing.frames import frame_unit
from backprint.drawing.picture import PairPicture
from backprint.drawing.shapes import (
    GUTTER,
    PILL,
    DrawnBox,
    DrawnLine,
    folded_texts,
    frame_title,
    is_thin,
    op_name,
    shortened,
    steps_text,
)
from backprint.drawing.theme import STYLE
from backprint.graph.text import show_spec
from backprint.plain import printable

LEGEND = 34.0
"""The height of the legend."""


def svg_of(picture: PairPicture, title: str = "") -> str:
    """Return a picture as the text of an SVG file."""
    return "".join(svg_parts(picture, title or picture.drawn.scene.name))


def as_image(svg: str, title: str) -> str:
    """Return a picture as an image for a notebook: on its own, its style would change that of the whole notebook."""
    data = base64.b64encode(svg.encode()).decode()
    return f'<img alt="{in_xml(title)}" style="max-width:100%" src="data:image/svg+xml;base64,{data}"/>'


def svg_parts(picture: PairPicture, title: str) -> Iterator[str]:
    """Yield an SVG file in pieces."""
    width, height = max(picture.width, LEGEND_WIDTH), picture.height + LEGEND
    said = in_xml(f"{title}: {contents_of(picture)}")
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{said}">\n<title>{said}</title>\n'
        f"<style>{STYLE}</style>\n<defs>\n{ARROWS}</defs>\n"
        f'<rect class="page" width="{width:.0f}" height="{height:.0f}"/>\n'
    )
    yield from (frame_svg(picture, box, title) for box in picture.boxes if box.unit < 0)
    yield from (line_svg(line) for line in picture.lines if line.kind == "saved")
    yield from (line_svg(line) for line in picture.lines if line.kind != "saved")
    yield from (node_svg(picture, box) for box in picture.boxes if box.unit >= 0)
    yield from (text_of_line(line) for line in picture.lines)
    yield legend_svg(picture.height)
    yield "</svg>\n"


def contents_of(picture: PairPicture) -> str:
    """Return what a picture shows, in numbers."""
    cost = picture.drawn.frame_costs[0]
    said = f"{steps_text(cost.forward_steps)} forward, "
    if not cost.backward_steps:
        return f"{said}no backward"
    saved = f", {amount(cost.saved_bytes)} saved for the backward" if picture.drawn.scene.bridges else ""
    return f"{said}{steps_text(cost.backward_steps)} backward{saved}"


ARROWS = "".join(
    f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="8" '
    f'markerHeight="8" orient="auto"><path class="arrow-{side}" d="M0 .8L7.5 4L0 7.2z"/></marker>\n'
    for name, side in (("af", "forward"), ("ab", "backward"), ("ax", "bad"))
)


def in_xml(text: str) -> str:
    """Return a stranger's text for XML, in one line."""
    return html.escape(printable(text), quote=True)


def text_svg(x: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> str:
    """Return a text at a place."""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{in_xml(text)}</text>'


def rect_svg(x: float, y: float, width: float, height: float, kind: str, radius: float = 4) -> str:
    """Return a rectangle."""
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:g}"/>'


# ------------------------------------------------------------------ boxes


def frame_svg(picture: PairPicture, box: DrawnBox, title: str) -> str:
    """Return a frame: open, or as a box of two halves. The title stands over the outermost."""
    drawn, number = picture.drawn, frame_unit(box.unit)
    frame, cost = drawn.frames[number], drawn.frame_costs[number]
    said = f"{frame.name}\n{frame.label}\n{cost.forward_steps} forward, {cost.backward_steps} backward"
    tip = f"<title>{escaped_lines(said)}</title>"
    if box.is_open:
        over = frame_title(drawn, number) if number else f"{shortened(title, 60)}   {contents_of(picture)}"
        head = text_svg(box.x + 8, box.y + 15, over, "bold", "start")
        return f"<g>{tip}{rect_svg(box.x, box.y, box.width, box.height, f'frame depth-{box.depth % 2}', 6)}{head}</g>\n"
    (name, ours), (back, theirs) = folded_texts(drawn, number)
    left, right = box.gutter - GUTTER / 2, box.gutter + GUTTER / 2
    inside = rect_svg(box.x, box.y, left - box.x, box.height, "half-forward", 6)
    inside += rect_svg(right, box.y, box.x + box.width - right, box.height, "half-backward", 6)
    middle = (box.x + left) / 2, (right + box.x + box.width) / 2
    inside += text_svg(middle[0], box.y + 16, name, "bold") + text_svg(middle[0], box.y + 30, ours, "small")
    inside += text_svg(middle[1], box.y + 16, back) + text_svg(middle[1], box.y + 30, theirs, "small")
    return f"<g>{tip}{rect_svg(box.x, box.y, box.width, box.height, 'folded', 6)}{inside}</g>\n"


def escaped_lines(text: str) -> str:
    """Return a stranger's text for XML, with its lines."""
    return html.escape(printable(text, lines=True), quote=True)


def node_svg(picture: PairPicture, box: DrawnBox) -> str:
    """Return a step, with the names of its ports."""
    drawn, node = picture.drawn, picture.drawn.scene.nodes[box.unit]
    thin = is_thin(drawn, box.unit)
    kind = "view" if thin else "backward" if node.side else "forward"
    kind += " guard" if node.is_guard else ""
    kind += " keeps" if any(each.bridge.made == box.unit for each in drawn.saved) else ""
    facts = node.name, node.target, spec_text(picture, box.unit), source_text(picture, box.unit)
    said = "\n".join(filter(None, facts))
    name = shortened(op_name(node.target))
    inside = rect_svg(box.x, box.y, box.width, box.height, kind, box.height / 2 if thin else 4)
    inside += text_svg(box.x + box.width / 2, box.middle + (3.4 if thin else 4.2), name, "small" if thin else "")
    for pill in box.pills:
        shape = rect_svg(pill.x, pill.y, pill.width, PILL, f"pill pill-{pill.role}", PILL / 2)
        text = text_svg(pill.x + pill.width / 2, pill.y + 10, pill.text, f"pill-text text-{pill.role}")
        inside += f"<g><title>{in_xml(f'{pill.role} {pill.name}')}</title>{shape}{text}</g>"
    return f"<g><title>{escaped_lines(said)}</title>{inside}</g>\n"


def spec_text(picture: PairPicture, node: int) -> str:
    """Return the type of a step as text."""
    spec = picture.drawn.scene.nodes[node].spec
    return show_spec(spec) if spec is not None else ""


def source_text(picture: PairPicture, node: int) -> str:
    """Return the line of the program of a step."""
    source = picture.drawn.scene.nodes[node].source
    return f"{source.file}:{source.line} {source.code}" if source is not None else ""


# ------------------------------------------------------------------ lines


def line_svg(line: DrawnLine) -> str:
    """Return a line; the width of a bridge says how many bytes are saved."""
    kind = f"flow-{line.kind}"
    if line.kind == "saved":
        width = bridge_width(line.bytes)
        return f'<path class="{kind}{"" if line.bytes else " thin"}" stroke-width="{width:.1f}" d="{bent(line)}"/>\n'
    is_bad = line.mark is not None and line.mark.is_bad
    arrow = "ax" if is_bad else "af" if line.kind == "forward" else "ab"
    width = 2.4 if is_bad else 1 + min(1.5, 0.3 * (line.count - 1))
    path = bent(line) if len(line.points) == 2 else cornered(line)
    end = f' marker-end="url(#{arrow})"' if line.ends else ""
    drawn = f'<path class="{kind}{" flow-bad" if is_bad else ""}" stroke-width="{width:.1f}"{end} d="{path}"'
    return f"{drawn}><title>{escaped_lines(line.mark.text)}</title></path>\n" if line.mark else f"{drawn}/>\n"


def bridge_width(count: int) -> float:
    """Return the width of a bridge: a point for a KiB, and 1.6 more for each tenfold."""
    return min(14.0, 1.0 + 1.6 * math.log10(1 + count / 1024)) if count else 1.2


def bent(line: DrawnLine) -> str:
    """Return a smooth line between two points: across for a bridge, up or down for a flow."""
    (x1, y1), (x2, y2) = line.points
    if line.kind == "saved":
        middle = (x1 + x2) / 2
        return f"M{x1:.1f} {y1:.1f}C{middle:.1f} {y1:.1f} {middle:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
    middle = (y1 + y2) / 2
    return f"M{x1:.1f} {y1:.1f}C{x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {y2:.1f}"


def cornered(line: DrawnLine, radius: float = 5.0) -> str:
    """Return a line of right angles with round corners."""
    points = line.points
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        path += f"L{towards(corner, before, radius)}Q{corner[0]:.1f} {corner[1]:.1f} {towards(corner, after, radius)}"
    return path + f"L{points[-1][0]:.1f} {points[-1][1]:.1f}"


def towards(start: tuple[float, float], end: tuple[float, float], by: float) -> str:
    """Return the point that is so far from one point towards another, and no farther than half the way."""
    length = math.dist(start, end)
    share = min(by, length / 2) / length if length else 0.0
    return f"{start[0] + (end[0] - start[0]) * share:.1f} {start[1] + (end[1] - start[1]) * share:.1f}"


def text_of_line(line: DrawnLine) -> str:
    """Return what a line carries: the bytes of a bridge, the shape of a flow of one value."""
    if not line.text:
        return ""
    if line.kind == "saved":
        (x1, y1), (x2, y2) = line.points
        return text_svg(x1 + (x2 - x1) * 0.3, y1 + (y2 - y1) * 0.12 + 3.3, line.text, "saved-text") + "\n"
    x, y = middle_of(line)
    kind = "bad-text" if line.mark is not None and line.mark.is_bad else "small label"
    return text_svg(x + 4, y + 3, line.text, kind, "start") + "\n"


def middle_of(line: DrawnLine) -> tuple[float, float]:
    """Return where the text of a flow stands."""
    if len(line.points) == 2:
        (x1, y1), (x2, y2) = line.points
        return (x1 + x2) / 2, (y1 + y2) / 2
    return line.points[-1][0], (line.points[-1][1] + line.points[-2][1]) / 2


# ------------------------------------------------------------------ legend

ENTRIES = (
    ("forward", "forward", 62.0),
    ("backward", "backward", 72.0),
    ("view", "view", 44.0),
    ("saved", "saved (width: bytes)", 118.0),
    ("pill pill-parameter", "parameter", 66.0),
    ("pill pill-gradient", "gradient", 60.0),
    ("pill pill-mutation", "updated in place", 96.0),
)
"""What the legend shows: a class, a text and its width."""

LEGEND_WIDTH = sum(width + 34 for _, _, width in ENTRIES) + 24


def legend_svg(top: float) -> str:
    """Return the legend."""
    x, y, parts = 16.0, top + 8, []
    for kind, text, width in ENTRIES:
        if kind == "saved":
            parts.append(f'<path class="flow-saved" stroke-width="6" d="M{x:.1f} {y + 7:.1f}h20"/>')
        else:
            parts.append(rect_svg(x, y + 1, 20, 12, kind, 6 if kind.startswith(("pill", "view")) else 3))
        parts.append(text_svg(x + 26, y + 11, text, "small", "start"))
        x += width + 34
    return f"<g>{''.join(parts)}</g>\n"
