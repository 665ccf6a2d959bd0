"""The page of a Capture: one HTML file with its script, its style and its data, which loads nothing else.

Names and source lines may be a stranger's. They are in a block of JSON without `<`, which no browser runs, and the page
shows them as text. A content security policy allows the page's own script and style, by digest, and nothing else.
`page.js` and `page.css` are built from `page/` by `make page`; `page/README.md` says what each field of the data means,
and the page checks them when it opens.

Words of this file:

- A `Scene` has the steps of both directions as *nodes*, by number, those of the forward first (`scene.forward` of
  them). A *value* is the number of the node that makes it, or, behind all nodes, of an input. The *side* is 0 of the
  forward and 1 of the backward.
- A `DrawnPair` has a Scene, its frames, the Layouts of these, and their costs. The *units* of a frame are nodes, and
  frames in it as negative numbers.
- Texts are in the data as numbers (`Strings`): `strings.number(text)` adds a text and returns its number.
- `Measured` is what the page shows beside a DrawnPair: views, memory, and the text of the graphs around their steps.
- A *stored* verdict is the JSON object that a Capture keeps of its last verification; None if there was none.
"""

from __future__ import annotations

import html
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from backprint.common.text import amount, policy_digest, printable
from backprint.graph.nouns import Capture, Graph, Pair, Source, known_verdict
from backprint.graph.sizes import at_example_sizes
from backprint.graph.steps import specs_of
from backprint.graph.text import emit_class, show, show_spec
from backprint.graph.together import guard_texts
from backprint.graph.verdicts import (
    NOT_THE_DERIVATIVE,
    nonfinite_of,
    proof_arguments,
    reasons_of_derivative,
    verdict_text,
    why_no_proof,
)
from backprint.tools.cost.costs import LiveSpan, is_view, memory_line, storages_of
from backprint.tools.cost.fits import needs_of
from backprint.tools.cost.traffic import traffic_texts
from backprint.tools.draw.layout import DrawnPair, FlowLine, Layout, drawn_pair
from backprint.tools.draw.scene import BACKWARD, FORWARD, NO_VALUE, Scene, bytes_of, scene_of

if TYPE_CHECKING:
    from backprint.values.statistics import Stats


# ---- A scene as data: one JSON object, with a column for each attribute of its nodes


FORMAT = 1
"""The version of the data; `page.js` checks it."""

VIEW, GUARD, SAVES, NEIGHBOR = 1, 2, 4, 8
"""Flags of a step: its result is a view, it is a guard, the backward keeps its result, it is a neighbor of a region."""


class Strings:
    """Texts, each once, by number: the data has numbers, which are shorter. 0 is the empty text."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {"": 0}

    def number(self, text: str) -> int:
        """Return the number of a text, which is added if it is new."""
        return self.numbers.setdefault(text, len(self.numbers))

    def texts(self) -> list[str]:
        """Return all texts by number, without characters that a terminal or a page obeys."""
        return list(map(printable, self.numbers))


@dataclass(frozen=True, slots=True)
class Measured:
    """What the page shows beside a DrawnPair: for each step whether its result is a view (`views`) and the bytes that
    it takes (`memory`), the memory over time (`line`, by `_memory_data`), and the code around the steps (`code`, by
    `_code_data`)."""

    views: Sequence[bool]
    memory: Sequence[int]
    line: Mapping[str, Any]
    code: Mapping[str, Any]


def scene_data(drawn: DrawnPair, strings: Strings, measured: Measured) -> dict[str, Any]:
    """Return the data of a scene: a *Pair* of `page/README.md`, which says what each field means."""
    sources: dict[Source, int] = {}
    nodes = _node_columns(drawn, measured, strings, sources)  # fills `sources` too
    frames = [_frame_data(drawn, number, strings) for number in range(len(drawn.frames))]
    layouts = [_layout_data(layout, strings) for layout in drawn.layouts]
    return {
        "name": drawn.scene.name,
        "forward": drawn.scene.forward,
        "nodes": nodes,
        "ports": list(_ports_data(drawn.scene, strings)),
        "sources": [_source_row(source, strings) for source in sources],
        "saved": [[saved.bridge.made, saved.bridge.taken, saved.bytes, saved.own] for saved in drawn.saved],
        "frames": frames,
        "layouts": layouts,
        "memory": measured.line,
        "code": measured.code,
        "strings": strings.texts(),
    }


def _node_columns(
    drawn: DrawnPair, measured: Measured, strings: Strings, sources: dict[Source, int]
) -> dict[str, list[Any]]:
    """Return the steps, a column for each of their fields. Lines of the program are added to `sources`, which numbers
    them."""
    scene, costs, number = drawn.scene, drawn.costs, strings.number
    frame_of_node = {unit: place for place, frame in enumerate(drawn.frames) for unit in frame.units if unit >= 0}
    saved_nodes = {saved.bridge.made for saved in drawn.saved}
    views = measured.views
    # Each flag times whether the step has it.
    flags = [
        VIEW * views[place] | GUARD * node.is_guard | SAVES * (place in saved_nodes) | NEIGHBOR * node.is_neighbor
        for place, node in enumerate(scene.nodes)
    ]
    return {
        "name": [number(node.name) for node in scene.nodes],
        "op": [number(node.target) for node in scene.nodes],
        "args": [number(node.arguments) for node in scene.nodes],
        "spec": [number(show_spec(node.spec) if node.spec is not None else "") for node in scene.nodes],
        "source": [
            -1 if node.source is None else sources.setdefault(node.source, len(sources)) for node in scene.nodes
        ],
        "frame": [frame_of_node[place] for place in range(len(scene.nodes))],
        "flops": [cost.flops for cost in costs],
        "read": [cost.read for cost in costs],
        "written": [cost.written for cost in costs],
        "memory": list(measured.memory),
        "flags": flags,
        "inputs": [node.inputs for node in scene.nodes],
        "echo": [number(node.echo) for node in scene.nodes],
        # Without inputs, which are no steps.
        "partners": [[partner for partner in node.partners if partner < scene.forward] for node in scene.nodes],
    }


def _ports_data(scene: Scene, strings: Strings) -> Iterator[dict[str, Any]]:
    """Yield the ports of both graphs in the order of the scene: those on the way in come first."""
    for scene_port in scene.ports:
        port = scene_port.port
        yield {
            "side": scene_port.side,
            "into": scene_port.enters,
            "role": port.role,
            "name": strings.number(port.name),
            "spec": strings.number(show_spec(port.spec) if port.spec is not None else ""),
            "bytes": bytes_of(port.spec),
            "value": scene_port.value,
        }


def _source_row(source: Source, strings: Strings) -> list[int]:
    """Return a line of the program as a row of `sources`."""
    number = strings.number
    file, function, code, module = map(number, (source.file, source.function, source.code, source.module))
    return [file, source.line, function, code, module]


def _frame_data(drawn: DrawnPair, number: int, strings: Strings) -> dict[str, Any]:
    """Return a frame as an item of `frames`."""
    frame, cost = drawn.frames[number], drawn.frame_costs[number]
    counts = [cost.forward_steps, cost.backward_steps, cost.saved_bytes, cost.forward_flops, cost.backward_flops]
    return {
        "name": strings.number(frame.name),
        "kind": frame.kind,
        "label": strings.number(frame.label),
        "parent": frame.parent,
        "units": frame.units,
        "layout": drawn.layout_of_frame[number],
        "counts": counts,
    }


def _layout_data(layout: Layout, strings: Strings) -> dict[str, Any]:
    """Return a layout as an item of `layouts`."""

    def line(flow: FlowLine) -> list[int]:
        return [flow.source, flow.target, flow.slot, strings.number(flow.spec), flow.count]

    return {
        "rows": [[row.left, row.frames, row.right] for row in layout.rows],
        "left": list(map(line, layout.left)),
        "right": list(map(line, layout.right)),
        "slots": layout.slots,
        "bridges": [[flow.source, flow.target, flow.bytes, flow.count] for flow in layout.bridges],
    }


# ---- The data of a Capture: the scene of each Pair, its time line of memory, and the text around its steps


def page_data(capture: Capture) -> dict[str, Any]:
    """Return the data of a Capture's page, the *Page* of `page/README.md`: of its Pairs, then of the subgraphs in
    them."""
    return {
        "format": FORMAT,
        "title": capture.name,
        "facts": [[name, text] for name, text in page_facts(capture) if text],
        "notes": [*capture.notes, *capture.breaks],
        "verdict": _verdict_data(known_verdict(capture)),
        "pairs": [pair_data(pair, capture.modules) for pair in (*capture.pairs, *_bodies_of(capture.pairs))],
    }


MEANINGS: Mapping[str, tuple[str, str]] = {
    "bitwise": ("good", "outputs and gradients equal PyTorch's own, bit for bit"),
    "close": ("good", "outputs and gradients equal PyTorch's own, but for rounding"),
    "undifferentiable": ("good", "no output requires grad: the forward alone was compared, and is equal"),
    "unproven": ("none", "not compared with the program"),
    "wrong": ("bad", "an output or a gradient differs from PyTorch's own"),
    "failed": ("bad", "it did not run"),
}
"""How good each verdict is, and what it means in plain words, for who has not read what a verdict is."""

NOT_COMPARED = "not compared"
"""What a page says in the place of a verdict where there is none."""


def verdict_row(word: str, meaning: str, tone: str = "none") -> dict[str, str]:
    """Return what a page says above its picture, as its field `verdict`. The `tone` is `good`, `bad` or `none`, for the
    color."""
    return {"word": printable(word), "meaning": printable(meaning), "tone": tone}


def _verdict_data(stored: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the verdict of a Capture with what it means; *not compared* if there is none. It is neither good nor bad
    where nothing is known of results: those that do not move when inputs are redrawn (`powerless`), or all, if that was
    not measured. It is bad if the backward is not the derivative."""
    word, power, powerless = proof_arguments(stored)
    if stored is None or word not in MEANINGS:
        return verdict_row(NOT_COMPARED, "verify was not run")
    tone, meaning = MEANINGS[word]
    if why_no_proof(word, power, powerless):
        count, tone = len(stored.get("ports") or powerless), "none"
        unmoved = f"{len(powerless)} of {count} do not move, and prove nothing"
        meaning += f"; {unmoved}" if powerless else "; power not measured"
    if (stored.get("derivative") or {}).get("word") == NOT_THE_DERIVATIVE:
        meaning, tone = f"{meaning}; but the backward is not the derivative of the forward", "bad"
    return verdict_row(word, meaning, tone)


def _bodies_of(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yield the subgraphs that control flow operators call, such as the branches of `cond`, also within one another:
    each as a Pair without a backward."""
    for pair in pairs:
        for side, graph in (("forward", pair.forward), ("backward", pair.backward)):
            for name, body in graph.subgraphs if graph is not None else ():
                inner = Pair(f"{pair.name} {side}: {name}", body)
                yield inner
                yield from _bodies_of([inner])


StatsRows = Mapping[tuple[int, int, str], Sequence[float | None]]
"""Statistics by Pair, side and local name of a value: count, min, max, mean, std, norm, NaN, Inf, zeros."""


def with_statistics(data: dict[str, Any], capture: Capture, rows: StatsRows) -> dict[str, Any]:
    """Return the data of a page with statistics of values added to its pairs; `data` itself is changed, too."""
    pairs = list(data["pairs"])
    for index, pair in enumerate(capture.pairs):
        values = _values_by_name(scene_of(pair))
        row_of_value = {
            values[side][name]: row for (pair_index, side, name), row in rows.items() if pair_index == index
        }
        pairs[index] |= {"stats": {"value": list(row_of_value), "rows": list(row_of_value.values())}}
    return data | {"pairs": pairs}


def stats_row(stats: Stats) -> list[float | None]:
    """Return statistics as JSON has them: without numbers that are not finite."""
    numbers = (getattr(stats, name) for name in ("count", "min", "max", "mean", "std", "norm", "nan", "inf", "zeros"))
    return [value if value is not None and math.isfinite(value) else None for value in numbers]


def _values_by_name(scene: Scene) -> tuple[dict[str, int], dict[str, int]]:
    """Return the values of each side by their local names in its graph: steps, and inputs."""
    values: tuple[dict[str, int], dict[str, int]] = ({}, {})
    for place, node in enumerate(scene.nodes):
        values[node.side][node.name] = place
    for port in scene.ports:
        if port.enters:
            values[port.side][port.port.local] = port.value
    return values


def page_facts(capture: Capture) -> Iterator[tuple[str, str]]:
    """Yield what the page says about the whole Capture, as name and text; `page_data` leaves out what has no text."""
    verdict = known_verdict(capture)
    yield "not finite", nonfinite_of(verdict)
    yield "engine", capture.engine
    yield "verdict", verdict_text(verdict)
    yield "derivative", "; ".join(reasons_of_derivative((verdict or {}).get("derivative")))
    environment = dict(capture.environment)
    yield "torch", environment.get("torch", "")
    yield "inputs", "fake: shapes without values" if capture.fake else ""
    if capture.rank is not None:
        yield "rank", f"{capture.rank.number} of {capture.rank.size:,}"
    yield "memory", _memory_text(capture)
    yield from traffic_texts(capture)
    for text in guard_texts(capture.guards):
        yield "guard", text
    for edge in capture.opaque:
        yield "opaque edge", edge.text


def _memory_text(capture: Capture) -> str:
    """Return what a step needs, as `backprint fits` says it."""
    needs = needs_of(capture)
    curve = (
        "which the curve shows" if len(capture.pairs) == 1 else "all pairs together; a curve is that of a pair alone"
    )
    return (
        f"{amount(needs.eager.bytes)} at the peak in eager mode, {curve}; "
        f"{amount(needs.graph.bytes)} at the peak of the graphs, where values end with their last use"
    )


def pair_data(pair: Pair, modules: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
    """Return the data of a Pair; `modules` are the classes of its modules, by path."""
    drawn, strings = drawn_pair(pair, dict(modules)), Strings()
    line = _memory_data(pair, drawn.scene, strings)
    return scene_data(drawn, strings, Measured(_views_of(pair), _memory_of_steps(pair), line, _code_data(pair)))


def graphs_of(pair: Pair) -> list[Graph]:
    """Return the graphs of a Pair, at the sizes of the capture."""
    return [at_example_sizes(graph) for graph in pair.graphs]


def _views_of(pair: Pair) -> list[bool]:
    """Return for each step whether its result is a view, or an item of a tuple."""
    views = []
    for graph in graphs_of(pair):
        specs = specs_of(graph)
        views += [step.target == "operator.getitem" or is_view(step, specs) for step in graph.steps]
    return views


def _memory_of_steps(pair: Pair) -> list[int]:
    """Return for each step the bytes of the storages that it allocates: 0 of a view."""
    bytes_at_step = []
    for graph in graphs_of(pair):
        bytes_by_name: Counter[str] = Counter()
        _, bytes_by_storage = storages_of(graph)
        for storage, size in bytes_by_storage.items():
            name, _, _ = storage.partition("[")  # `split[1]` is the storage of an item of `split`
            bytes_by_name[name] += size
        bytes_at_step += [bytes_by_name[step.name] for step in graph.steps]
    return bytes_at_step


def _memory_data(pair: Pair, scene: Scene, strings: Strings) -> dict[str, Any]:
    """Return the memory over the steps of both directions in eager mode, and the span of steps in which each value
    lives; *held* are the spans of what the caller holds throughout."""
    line = memory_line(pair, eager=True)
    values = _values_by_name(scene)

    def row(span: LiveSpan) -> list[int]:
        """Return a span as the data has it; NO_VALUE stands for one that is made for no value of the scene."""
        name, _, _ = span.value.partition("[")  # `split[1]` is an item of `split`
        side = BACKWARD if span.direction == "backward" else FORWARD
        return [values[side].get(name, NO_VALUE), span.first, span.last, span.bytes, strings.number(span.role)]

    return {
        "before": line.held_bytes,
        "live": line.during,
        "spans": list(map(row, line.spans)),
        "held": list(map(row, line.held)),
        "peak": [line.peak, line.peak_bytes],
    }


def _code_data(pair: Pair) -> Mapping[str, Any]:
    """Return the lines of each graph's text before its steps, and after them; none without a backward."""
    graphs = [pair.forward, pair.backward]
    forward_head, backward_head = (
        list(map(printable, _head_of(graph))) if graph is not None else [] for graph in graphs
    )
    ends = [list(map(printable, end_of(graph))) if graph is not None else [] for graph in graphs]
    return {"forward": forward_head, "backward": backward_head, "ends": ends}


def _head_of(graph: Graph) -> list[str]:
    """Return the lines of a graph's class before its steps: up to the comment above the first step."""
    class_lines = emit_class(graph, "GraphModule", indent="")
    lines = list(takewhile(lambda line: not line.startswith("        # "), class_lines))
    return lines if graph.steps else lines[:-1]  # without steps no comment ends it, and the `return` is the last line


def end_of(graph: Graph) -> list[str]:
    """Return the line after a graph's steps: its `return`."""
    return [f"        return ({', '.join(map(show, graph.results))}{',' if len(graph.results) == 1 else ''})"]


# ---- The HTML


def page_html(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield a page in pieces. `data` is what `page_data` returns. The policy allows the page's script and style alone,
    by their digests; `<` is escaped in the data, so that no text in them ends the block of JSON."""
    script, style = (files(__package__).joinpath(name).read_text("utf-8") for name in ("page.js", "page.css"))
    allowed = f"style-src {policy_digest(style)}; script-src {policy_digest(script)}"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    title = html.escape(printable(str(data["title"])), quote=True)
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<div id="app"><noscript>This page draws with JavaScript, which this browser does not run.</noscript></div>\n'
        '<script type="application/json" id="data">'
    )
    yield json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    yield f"</script>\n<script>{script}</script>\n</body>\n</html>\n"
