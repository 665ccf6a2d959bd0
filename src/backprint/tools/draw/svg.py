"""A picture as SVG: one file without scripts, in light and dark, with a legend.

The colors are those of Okabe and Ito, which color-blind people can distinguish. Sides, dashes and widths show the same
as the colors. Colors are written out, because many programs that read SVG know no CSS variables.

A picture (`PairPicture`) has boxes, lines and labels, all with their places. The *unit* of a box is a step's number
from 0 on, or of a frame a negative number, from which `frame_unit` makes the frame's. A *pill* is the name of a port
beside a step, a *bridge* a line of what is saved for the backward, and the *gutter* of a frame what a bridge crosses.
`amount` and `show_spec` are numbers of bytes and tensor types as text; `printable` escapes what is not printable.
"""

from __future__ import annotations

import base64
import html
import math
import re
from collections.abc import Iterator, Mapping

from backprint.common.text import amount, printable
from backprint.graph.text import show_spec
from backprint.tools.draw.picture import (
    BOLD,
    GUTTER,
    PAD,
    PILL,
    SMALL,
    TITLE_MARGIN,
    DrawnBox,
    DrawnLine,
    LineLabel,
    PairPicture,
    contents_of,
    folded_texts,
    is_thin,
    labels_of,
    path_of,
    shortened,
    step_text,
    title_text,
)
from backprint.tools.draw.scene import BACKWARD, frame_unit

# ---- Colors


LIGHT: Mapping[str, str] = {
    "page": "#ffffff",
    "ink": "#1b1f24",
    "soft": "#5b6470",
    "line": "#c9d1da",
    "band": "#f4f6f8",
    "forward": "#0072b2",
    "forward-fill": "#e3f0f9",
    "backward": "#b35000",
    "backward-fill": "#fcebdd",
    "saved": "#00795a",
    "view": "#8a939e",
    "view-fill": "#f3f5f7",
    "pill": "#6b5b95",
    "gradient": "#a3195b",
    "mutation": "#8a6100",
    "bad": "#c0152f",
    "near": "#8a6d00",
    "near-fill": "#fff1b8",
}

DARK: Mapping[str, str] = {
    "page": "#14181d",
    "ink": "#e6e9ee",
    "soft": "#9aa5b3",
    "line": "#3a434f",
    "band": "#1b2027",
    "forward": "#5cb3ea",
    "forward-fill": "#132c3f",
    "backward": "#f0975a",
    "backward-fill": "#3d2413",
    "saved": "#3fc79f",
    "view": "#8a939e",
    "view-fill": "#20262e",
    "pill": "#b3a3e0",
    "gradient": "#f07ab0",
    "mutation": "#e3b94d",
    "bad": "#ff7d8c",
    "near": "#e8c547",
    "near-fill": "#453a10",
}

RULES = """
text { fill: $ink; }
.small { fill: $soft; }
.page { fill: $page; }
.frame { stroke: $line; }
.depth-0 { fill: $band; } .on-0 { stroke: $band; }
.depth-1 { fill: $page; } .on-1 { stroke: $page; }
.folded { fill: $page; stroke: $line; }
.half-forward { fill: $forward-fill; }
.half-backward { fill: $backward-fill; }
.forward { fill: $forward-fill; stroke: $forward; }
.backward { fill: $backward-fill; stroke: $backward; }
.view { fill: $view-fill; stroke: $view; }
.keeps { stroke: $saved; }
.neighbor { fill: $near-fill; stroke: $near; }
.region { stroke: $ink; }
.bad { stroke: $bad; }
.flow-forward { stroke: $forward; }
.flow-backward { stroke: $backward; }
.flow-saved { stroke: $saved; }
.flow-bad { stroke: $bad; }
.arrow-forward { fill: $forward; }
.arrow-backward { fill: $backward; }
.arrow-bad { fill: $bad; }
.saved-text { fill: $saved; stroke: $page; }
.bad-text { fill: $bad; stroke: $page; }
.label { stroke: $page; }
.pill { stroke: $pill; }
.pill-text { fill: $pill; }
.pill-gradient { stroke: $gradient; }
.text-gradient { fill: $gradient; }
.pill-mutation { stroke: $mutation; }
.text-mutation { fill: $mutation; }
.pill-output, .pill-tangent, .pill-input { stroke: $ink; }
.text-output, .text-tangent, .text-input { fill: $ink; }
"""

SHAPES = """
svg { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
text { font-size: 12px; }
.small { font-size: 9.5px; }
.bold { font-weight: 600; }
path { fill: none; }
.folded, .forward, .backward { stroke-width: 1.2; }
.view { stroke-width: .8; }
.neighbor { stroke-width: 2; }
.region { stroke-width: 1.4; stroke-dasharray: 7 4; }
.guard { stroke-dasharray: 3 2; }
.keeps { stroke-width: 2.2; }
.flow-backward { stroke-dasharray: 5 2.5; }
.flow-saved { stroke-opacity: .55; }
.thin { stroke-dasharray: 1.5 3; }
.saved-text, .bad-text { font-size: 9.5px; font-weight: 600; paint-order: stroke; stroke-width: 3px; }
.label, .name { paint-order: stroke; stroke-width: 3px; }
.pill { fill: none; stroke-width: .8; }
.pill-text { font-size: 9px; }
.pill-mutation { stroke-dasharray: 3 2; }
"""


def colored(rules: str, colors: Mapping[str, str]) -> str:
    """Return CSS rules in which each `$name` is replaced by the color of that name."""
    return re.sub(r"\$([a-z-]+)", lambda match: colors[match[1]], rules)


IN_DARK = f"@media screen and (prefers-color-scheme: dark) {{{colored(RULES, DARK)}}}\n"

STYLE = SHAPES + colored(RULES, LIGHT) + IN_DARK
"""The style of a picture."""


# ---- The SVG

LEGEND = 22.0
"""The height of a line of the legend."""

MINIMUM = 12
"""What stands beside the title of a frame is left out unless there is room for more letters than this."""


def svg_of(picture: PairPicture, title: str = "") -> str:
    """Return a picture as the text of an SVG file; without a title it has the name of what is drawn."""
    return "".join(_svg_parts(picture, title or picture.drawn.scene.name))


def as_image(svg: str, title: str) -> str:
    """Return a picture as an image for a notebook: on its own, its style would change that of the whole notebook. Where
    it is wider than its place it scrolls, as its letters could not be read if it were smaller."""
    data = base64.b64encode(svg.encode()).decode()
    image = f'<img alt="{_in_xml(title)}" style="max-width:none" src="data:image/svg+xml;base64,{data}"/>'
    return f'<div style="overflow-x:auto;max-width:100%">{image}</div>'


def _svg_parts(picture: PairPicture, title: str) -> Iterator[str]:
    """Yield an SVG file in pieces: its head and style, the picture, and the legend below it."""
    drawn = "".join(_drawn_parts(picture, title))  # first, as the legend shows only what occurs in it
    legend, lines = _legend_svg(drawn, picture.width, picture.height)
    width, height = picture.width, picture.height + LEGEND * lines + PAD
    description = _in_xml(f"{title}: {contents_of(picture.drawn)}")
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{description}">\n<title>{description}</title>\n'
        f"<style>{STYLE}</style>\n<defs>\n{ARROWS}</defs>\n"
        f'<rect class="page" width="{width:.0f}" height="{height:.0f}"/>\n'
    )
    yield drawn
    yield legend
    yield "</svg>\n"


def _drawn_parts(picture: PairPicture, title: str) -> Iterator[str]:
    """Yield the frames, lines, steps and texts of a picture. SVG draws in this order, so what comes later covers what
    comes before."""
    yield from (_frame_svg(picture, box) for box in picture.boxes if box.unit < 0)
    yield from (_line_svg(line) for line in picture.lines if line.kind == "saved")
    yield from (_line_svg(line) for line in picture.lines if line.kind != "saved")
    yield from (_heading_svg(picture, box, title) for box in picture.boxes if box.unit < 0 and box.is_open)
    yield from (_node_svg(picture, box) for box in picture.boxes if box.unit >= 0)
    yield from map(_label_svg, labels_of(picture))


ARROWS = "".join(
    f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="8" '
    f'markerHeight="8" orient="auto"><path class="arrow-{side}" d="M0 .8L7.5 4L0 7.2z"/></marker>\n'
    for name, side in (("af", "forward"), ("ab", "backward"), ("ax", "bad"))
)
"""The heads of arrows of a flow of the forward, of the backward, and of NaN or Inf, which lines name by id."""


def _in_xml(text: str) -> str:
    """Return a stranger's text for XML, in one line."""
    return html.escape(printable(text), quote=True)


def _text_svg(x: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> str:
    """Return a text at a place; `kind` are its CSS classes, `anchor` says which part of it is at `x` (SVG's `start`,
    `middle` or `end`)."""
    classes = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{classes}>{_in_xml(text)}</text>'


def _rect_svg(x: float, y: float, width: float, height: float, kind: str, radius: float = 4) -> str:
    """Return a rectangle with round corners; `kind` are its CSS classes."""
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:g}"/>'


# ---- Boxes


def _frame_svg(picture: PairPicture, box: DrawnBox) -> str:
    """Return a frame: open, as a border; or folded, as a box of two halves with two lines of text each."""
    drawn, number = picture.drawn, frame_unit(box.unit)
    frame, cost = drawn.frames[number], drawn.frame_costs[number]
    tooltip = f"{frame.name}\n{frame.label}\n{cost.forward_steps} forward, {cost.backward_steps} backward"
    tip = f"<title>{_escaped_lines(tooltip)}</title>"
    if box.is_open:
        # Frames in one another alternate between two grounds.
        kind = f"frame depth-{box.depth % 2}{' region' if frame.kind == 'region' else ''}"
        return f"<g>{tip}{_rect_svg(box.x, box.y, box.width, box.height, kind, radius=6)}</g>\n"
    (name, forward_text), (backward_name, backward_text) = folded_texts(drawn, number)
    left, right = box.gutter - GUTTER / 2, box.gutter + GUTTER / 2  # the sides of the gutter
    inside = _rect_svg(box.x, box.y, left - box.x, box.height, "half-forward", radius=6)
    inside += _rect_svg(right, box.y, box.x + box.width - right, box.height, "half-backward", radius=6)
    forward_x, backward_x = (box.x + left) / 2, (right + box.x + box.width) / 2  # the middles of the halves
    inside += _text_svg(forward_x, box.y + 16, name, "bold") + _text_svg(forward_x, box.y + 30, forward_text, "small")
    inside += _text_svg(backward_x, box.y + 16, backward_name)
    inside += _text_svg(backward_x, box.y + 30, backward_text, "small")
    return f"<g>{tip}{_rect_svg(box.x, box.y, box.width, box.height, 'folded', radius=6)}{inside}</g>\n"


def _heading_svg(picture: PairPicture, box: DrawnBox, title: str) -> str:
    """Return the name of an open frame, above the lines that run into it, and beside it, in small letters, its label;
    over the outermost frame stands the title, and beside it what the picture shows. What stands beside the name is cut
    to the width of the frame, or left out if there is hardly room."""
    drawn, number = picture.drawn, frame_unit(box.unit)
    frame = drawn.frames[number]
    heading_text = title_text(drawn, number, title)
    heading = _text_svg(box.x + 8, box.y + 15, heading_text, "bold", "start")
    label_x = box.x + TITLE_MARGIN + BOLD * len(heading_text)
    letters = int((box.x + box.width - label_x - PAD) / SMALL)  # for how many there is room
    # The label of a module is its class, which is in its title already.
    label = "" if frame.kind in ("module", "loop") else frame.label
    label_text = label if number else contents_of(picture.drawn)
    if label_text and letters > MINIMUM:
        heading += _text_svg(label_x, box.y + 15, shortened(label_text, letters), "small", "start")
    return f'<g class="name on-{box.depth % 2}">{heading}</g>\n'


def _escaped_lines(text: str) -> str:
    """Return a stranger's text for XML, with its line ends."""
    return html.escape(printable(text, lines=True), quote=True)


def _node_svg(picture: PairPicture, box: DrawnBox) -> str:
    """Return a step, with the names of its ports. Its classes say what it is: its side or a view, a guard, a neighbor
    of a region, and whether the backward keeps its result."""
    drawn, node = picture.drawn, picture.drawn.scene.nodes[box.unit]
    thin = is_thin(drawn, box.unit)
    kind = "view" if thin else "backward" if node.side == BACKWARD else "forward"
    kind += " guard" if node.is_guard else ""
    kind += " neighbor" if node.is_neighbor else ""
    kind += " keeps" if any(saved.bridge.made == box.unit for saved in drawn.saved) else ""
    facts = node.name, node.target, spec_text(picture, box.unit), source_text(picture, box.unit)
    title = "\n".join(filter(None, facts))
    name = step_text(node.target)
    inside = _rect_svg(box.x, box.y, box.width, box.height, kind, box.height / 2 if thin else 4)
    # The base line of letters that are centered is about a third of their size below the middle.
    inside += _text_svg(box.x + box.width / 2, box.middle + (3.4 if thin else 4.2), name, "small" if thin else "")
    for pill in box.pills:
        shape = _rect_svg(pill.x, pill.y, pill.width, PILL, f"pill pill-{pill.role}", PILL / 2)
        text = _text_svg(pill.x + pill.width / 2, pill.y + 10, pill.text, f"pill-text text-{pill.role}")
        inside += f"<g><title>{_in_xml(f'{pill.role} {pill.name}')}</title>{shape}{text}</g>"
    return f"<g><title>{_escaped_lines(title)}</title>{inside}</g>\n"


def spec_text(picture: PairPicture, node: int) -> str:
    """Return the shape and dtype of a step's result as text; empty where it has none."""
    spec = picture.drawn.scene.nodes[node].spec
    return show_spec(spec) if spec is not None else ""


def source_text(picture: PairPicture, node: int) -> str:
    """Return the line of the program from which a step comes, as `model.py:12 code`; empty where it is not known."""
    source = picture.drawn.scene.nodes[node].source
    return f"{source.at} {source.code}" if source is not None else ""


# ---- Lines


def _line_svg(line: DrawnLine) -> str:
    """Return a line. The width of a bridge says how many bytes are saved; that of a flow how many values go along it,
    and whether one of them has NaN or Inf."""
    kind = f"flow-{line.kind}"
    if line.kind == "saved":
        title = f"{amount(line.bytes) if line.bytes else 'no bytes of its own'}, {line.count} saved"
        return _path_svg(line, kind if line.bytes else f"{kind} thin", _bridge_width(line.bytes), "", title)
    is_bad = line.is_bad
    arrow = "ax" if is_bad else "af" if line.kind == "forward" else "ab"  # the ids of ARROWS
    # Wider with each value that goes along it, up to six.
    width = 2.4 if is_bad else 1 + min(1.5, 0.3 * (line.count - 1))
    end = f' marker-end="url(#{arrow})"' if line.ends else ""
    return _path_svg(line, f"{kind} flow-bad" if is_bad else kind, width, end, line.mark.text if line.mark else "")


def _path_svg(line: DrawnLine, kind: str, width: float, end: str, tooltip: str) -> str:
    """Return a line as a path of these classes; `end` is the attribute of its arrow, `tooltip` what hovering shows."""
    title = f"<title>{_escaped_lines(tooltip)}</title>" if tooltip else ""
    path = f'<path class="{kind}" stroke-width="{width:.1f}"{end} d="{path_of(line)}"'
    return f"{path}>{title}</path>\n" if title else f"{path}/>\n"


def _bridge_width(count: int) -> float:
    """Return the width of a bridge of `count` bytes: from a point on, about 1.6 more for each tenfold above a KiB, and
    at most 14. Without bytes it is drawn thin."""
    return min(14.0, 1.0 + 1.6 * math.log10(1 + count / 1024)) if count else 1.2


def _label_svg(label: LineLabel) -> str:
    """Return the text of a line: the bytes of a bridge, the shape or the measurement of a flow."""
    line = label.line
    kind = "saved-text" if line.kind == "saved" else "bad-text" if line.is_bad else "small label"
    # The base line of letters is about a third of their size below their middle.
    return _text_svg(label.x, label.y + 3.3, line.text, kind, "start") + "\n"


# ---- Legend

ENTRIES = (
    ("forward", "forward", r'class="(forward|half-forward)(?! neighbor)'),
    ("backward", "backward", r'class="(backward|half-backward)(?! neighbor)'),
    ("frame depth-1 region", "the region", r'class="frame depth-\d region"'),
    (
        "forward neighbor",
        "neighbor: not in the region; gradients come from it or go to it",
        r'class="[a-z ]* neighbor"',
    ),
    ("view", "view: computes nothing", 'class="view'),
    ("flow-saved", "saved for the backward (width: bytes)", 'class="flow-saved"'),
    ("flow-saved thin", "saved without bytes of its own", 'class="flow-saved thin"'),
    ("flow-backward flow-bad", "NaN or Inf", "flow-bad"),
    ("pill pill-input", "input, output", "pill-(input|output|tangent)"),
    ("pill pill-parameter", "parameter, buffer", "pill-(parameter|buffer)"),
    ("pill pill-gradient", "∂w: the gradient of w", "pill-(gradient|tangent)"),
    ("pill pill-mutation", "updated in place", "pill-mutation"),
    ("forward guard", "guard", 'class="forward guard'),
)
"""What the legend shows: the classes of a sample shape, its text, and a pattern that is in the SVG where it is used."""


def _legend_svg(drawn: str, width: float, top: float) -> tuple[str, int]:
    """Return the legend of what occurs in the SVG `drawn`, and how many lines it takes in the `width` of the picture;
    `top` is its y. An entry of ENTRIES is a sample, drawn in the classes of the entry, and its text."""
    x, line, parts = PAD, 0, []
    for kind, text, pattern in ENTRIES:
        if re.search(pattern, drawn) is None:
            continue
        wide = 42 + 5.2 * len(text)  # the sample is 20 wide, and 6 before its text; 16 are between two entries
        if x > PAD and x + wide > width:  # a new line, unless it would be the first entry of one
            x, line = PAD, line + 1
        y = top + LEGEND * line + 2
        if kind.startswith("flow"):
            stroke = 6 if kind == "flow-saved" else 1.6
            parts.append(f'<path class="{kind}" stroke-width="{stroke}" d="M{x:.1f} {y + 7:.1f}h20"/>')
        else:
            parts.append(_rect_svg(x, y + 1, 20, 12, kind, 6 if kind.startswith(("pill", "view")) else 3))
        parts.append(_text_svg(x + 26, y + 11, text, "small", "start"))
        x += wide
    return f"<g>{''.join(parts)}</g>\n", line + 1
