"""Where NaN and Inf come from: the first step on the way to a result that is not finite, and the line it comes from.

The graphs run once more, and every value is looked at. From a result with NaN or Inf the way leads back through the
values with NaN or Inf that it is computed from, over saved values, tangents and links from Pair to Pair. Where it
begins, a step makes NaN or Inf of finite numbers, or an input has it from the start.

An Inf that the program writes on purpose is no fault: a number in the program (`masked_fill(x, mask, -inf)`), or in a
buffer, a constant or an input, as a mask of attention has it. The step that makes NaN of it is where the way begins.

A *Place* is where a value is: its Pair, its graph and its name there. A *Mark* says of a value whether it has NaN, Inf
or both. A *link* between Pairs says which result of the one is which input of the other. `before` of a place are the
values that it is computed from and that are not finite either. The `echo` of a backward's step names the forward's
values whose gradient it computes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backprint.graph.keys import PortKey
from backprint.graph.links import consumers, feeds, free_ports, result_links
from backprint.graph.nouns import Capture, Graph, Pair, Port, Source, Step, leaves, refs
from backprint.graph.steps import UNWRITTEN, operator_name, used
from backprint.prove.draws import Draw
from backprint.prove.results import Results
from backprint.prove.run import RunOptions
from backprint.prove.whole import Replayed, replay_values
from backprint.values import settings
from backprint.values.settings import seed_torch
from backprint.values.tree import plain_leaves, strided_parts

# ---- NaN and Inf in one value


class Mark(NamedTuple):
    """Whether a value has NaN, and whether it has Inf. `meant` says that the program has written the Inf on purpose."""

    nan: bool
    inf: bool
    meant: bool = False

    @property
    def word(self) -> str:
        """The Mark in one word: NaN, if the value has both."""
        return "NaN" if self.nan else "Inf"


def is_finite(value: Any) -> bool:
    """Whether a value has neither NaN nor Inf. True for everything that is not a floating-point or complex tensor."""
    return all(bool(torch.isfinite(part).all()) for part in _float_parts(value))


def mark_of(value: Any) -> Mark | None:
    """Return the Mark of a value that is not finite; None if it is finite."""
    if is_finite(value):
        return None
    parts = list(_float_parts(value))
    return Mark(any(bool(part.isnan().any()) for part in parts), any(bool(part.isinf().any()) for part in parts))


def _float_parts(value: Any) -> Iterator[Tensor]:
    """Yield the floating-point and complex tensors in a value; for a sparse tensor, the tensor of its values."""
    for leaf in plain_leaves(value):
        if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex()) and leaf.numel():
            part = strided_parts(leaf.detach())[-1]
            yield part.float() if part.element_size() == 1 else part  # torch.isfinite knows few dtypes of one byte


# ---- The values of a run that are not finite


class Place(NamedTuple):
    """Where a value is: the number of its Pair, whether it is in the backward, and its name in that graph."""

    pair: int
    backward: bool
    name: str


MEANT_ROLES = ("buffer", "constant", "input")
"""Inputs in which an Inf is meant. A parameter has one by accident."""


class _Trail:
    """The values of a Capture's run that are not finite: `marks` has the Mark of each, in the order of the run.

    `graphs` has the Pair of each graph by the graph's id, and whether it is the backward; `steps` the steps of each
    Pair's forward and backward by name, and `ports` the port of each input of the graphs.
    """

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.marks: dict[Place, Mark] = {}
        self.graphs: dict[int, tuple[int, bool]] = {}
        self.steps: list[tuple[dict[str, Step], dict[str, Step]]] = []
        self.ports: dict[Place, Port] = {}
        for index, pair in enumerate(capture.pairs):
            self.steps.append((steps_by_name(pair.forward), steps_by_name(pair.backward)))
            for backward, graph in enumerate((pair.forward, pair.backward)):  # 0 and 1, as bool(backward)
                if graph is not None:
                    self.graphs[id(graph)] = index, bool(backward)
                    self.ports |= {Place(index, bool(backward), port.local): port for port in graph.inputs}

    def watch(self, graph: Graph, name: str, value: Any) -> None:
        """Note the Mark of a value of the run, if it is not finite. A run calls it (`watch` of RunOptions) with each
        input and each result of a step, in order. Memory that no step has written yet, as `empty` makes it, is not
        looked at."""
        if id(graph) not in self.graphs:  # the body of a higher-order operator
            return
        place = Place(*self.graphs[id(graph)], name)
        step = self.step(place)
        if step is not None and step.target.startswith("aten.") and operator_name(step.target) in UNWRITTEN:
            return
        if (mark := mark_of(value)) is not None:
            self.marks[place] = mark._replace(meant=not mark.nan and self.is_meant(place, step))

    def step(self, place: Place) -> Step | None:
        """Return the step that makes a value; None for an input of its graph."""
        return self.steps[place.pair][place.backward].get(place.name)

    def is_meant(self, place: Place, step: Step | None) -> bool:
        """Whether the Inf of a value is written on purpose: as a number of the step that makes it, in an input of one
        of MEANT_ROLES, or in all values with Inf that it is computed from. `step` is None for an input."""
        before = self.before(place)
        if before:
            return all(self.marks[other].meant for other in before)
        return self.ports[place].role in MEANT_ROLES if step is None else _writes_inf(step)

    def before(self, place: Place) -> list[Place]:
        """Return the values that are not finite among those that a value is computed from."""
        step = self.step(place)
        places = sources(self.capture, place, self.ports[place]) if step is None else operands(place, step)
        return [other for other in dict.fromkeys(places) if other in self.marks]

    def origins(self) -> dict[Place, Place]:
        """Return for each value that is not finite the place where NaN or Inf was first made on the way to it.

        Of several places, it is the one that ran first. An Inf that is meant does not lead to a value whose NaN or Inf
        is not meant.
        """
        order = {place: number for number, place in enumerate(self.marks)}
        begins: dict[Place, Place] = {}  # where the way to each value begins
        for place, mark in self.marks.items():  # in the order of the run: what a value is computed from is known
            before = [other for other in self.before(place) if mark.meant or not self.marks[other].meant]
            begins[place] = min((begins[other] for other in before), key=order.__getitem__, default=place)
        return begins


def steps_by_name(graph: Graph | None) -> dict[str, Step]:
    """Return the steps of a graph that make a value."""
    return {step.name: step for step in graph.steps if not step.is_guard} if graph is not None else {}


def _writes_inf(step: Step) -> bool:
    """Whether a step takes Inf as a number."""
    values = (*step.args, *(value for _, value in step.kwargs))
    return any(isinstance(leaf, float) and math.isinf(leaf) for value in values for leaf in leaves(value))


def operands(place: Place, step: Step) -> list[Place]:
    """Return the places of the values that a step takes, in the graph in which `place` is."""
    return [place._replace(name=name) for name in used(step)]


def sources(capture: Capture, place: Place, port: Port) -> Iterator[Place]:
    """Yield the values in other graphs that an input of a graph has its value from; none for an input of the program.
    `place` is the input, and `port` its port."""
    if place.backward and port.role == "saved":
        yield from _made_at(capture, place.pair, PortKey("saved", port.name))
    elif place.backward and port.role == "tangent":
        # From the gradients that later Pairs return for this output.
        for link in consumers(capture, place.pair, PortKey("output", port.name)):
            yield from _made_at(capture, link.target, PortKey("gradient", link.name))
    elif not place.backward:
        for link in feeds(capture, place.pair):
            if link.name == port.name:
                yield from _made_at(capture, link.source, link.port)


def _made_at(capture: Capture, index: int | None, key: PortKey) -> Iterator[Place]:
    """Yield the values that Pair `index` returns at a port; none without a Pair, which stands for the Capture
    itself."""
    if index is None:
        return
    pair: Pair = capture.pairs[index]
    backward = key.role == "gradient"
    graph = pair.backward if backward else pair.forward
    if graph is not None:
        for port, result in zip(graph.outputs, graph.results, strict=True):
            if port.key == key:
                yield from (Place(index, backward, name) for name in refs(result))


# ---- The results of a Capture that are not finite


@dataclass(frozen=True, slots=True)
class _Nonfinite:
    """A result with NaN or Inf: its port, which of the two in one word, and the place where that was first made."""

    key: PortKey
    word: str
    origin: Place


def nonfinite_text(capture: Capture, draw: Draw, replayed: Replayed) -> str:
    """Say which results of a run have NaN or Inf, and where it was first made; '' if all are finite.

    The graphs run again only if some result is not finite.
    """
    # Usually all are finite, which costs no second run.
    if all(map(is_finite, replayed.results.values())):
        return ""
    trail = _Trail(capture)
    with settings.preserving_random_states():
        seed_torch(draw.seed)
        again = replay_values(capture, draw.values, draw.tangents, RunOptions(watch=trail.watch))
    text = "; ".join(sentences(trail, _nonfinite_results(trail, again.results)))
    if not text:  # only Infs that are meant
        return ""
    # DRAWN adds that the inputs are not the captured ones.
    return text + (DRAWN if draw.name == "recipe" and _has_drawn_inputs(capture) else "")


DRAWN = " (on inputs drawn from the recipes, which are not the captured ones)"
"""How a text ends that is about a draw of the recipes."""


def _has_drawn_inputs(capture: Capture) -> bool:
    """Whether recipes draw an input at random, so that it does not have the values of the capture."""
    rows = capture.recipes.rows
    return any(rows[port.name].get("kind") in RANDOM for port in free_ports(capture) if port.name in rows)


RANDOM = ("normal", "uniform", "integers", "choice", "permutation")
"""Kinds of recipes that draw values."""


def _nonfinite_results(trail: _Trail, run_results: Results) -> Iterator[_Nonfinite]:
    """Yield the results with NaN or Inf. An Inf that is meant is none, except in a gradient or a number such as a
    loss."""
    order, origins = {place: number for number, place in enumerate(trail.marks)}, trail.origins()
    for key, value in run_results.items():
        mark = mark_of(value)
        if mark is None:
            continue
        places = [place for place in _returned_at(trail.capture, key) if place in trail.marks]
        if not places:  # a sum over Pairs of finite gradients may overflow
            continue
        is_number = isinstance(value, Tensor) and value.numel() == 1
        # A mask of -inf that is returned is meant. A loss or a gradient of Inf is a fault, wherever it comes from.
        if key.role != "gradient" and not is_number and all(trail.marks[place].meant for place in places):
            continue
        yield _Nonfinite(key, mark.word, min((origins[place] for place in places), key=order.__getitem__))


def _returned_at(capture: Capture, key: PortKey) -> Iterator[Place]:
    """Yield the values of the graphs that a result of the Capture has its value from."""
    if key.role == "output":
        for link in result_links(capture):
            if link.name == key.name:
                yield from _made_at(capture, link.source, link.port)
    else:
        for index in range(len(capture.pairs)):
            yield from _made_at(capture, index, key)


# ---- In words

ROLES = ("output", "gradient", "mutation")
"""If results of several roles come from one place, only the results of the first of these roles are named: the others
follow from them."""

MOST_PLACES = 3
"""The most places of origin that are named."""


def sentences(trail: _Trail, rows: Iterator[_Nonfinite]) -> Iterator[str]:
    """Yield a sentence for each place that NaN or Inf comes from, the first place first. Steps of one line that call
    the same operator, as in several layers, are one place. Of the results from one place, only those of the first role
    in ROLES are named: the others follow from them."""
    by_origin: dict[Place, list[_Nonfinite]] = {}
    for row in rows:
        by_origin.setdefault(row.origin, []).append(row)
    # The results of each sentence, by what else is in it: the word, their role, and where NaN or Inf comes from.
    results_of_sentence: dict[tuple[str, str, str], list[PortKey]] = {}
    for place in (place for place in trail.marks if place in by_origin):
        rows_by_role = ([row for row in by_origin[place] if row.key.role == role] for role in ROLES)
        named = next(rows_of_role for rows_of_role in rows_by_role if rows_of_role)
        first = named[0]
        sentence = first.word, first.key.role, _origin_text(trail, first, place)
        results_of_sentence.setdefault(sentence, []).extend(row.key for row in named)
    for (word, _, origin), keys in list(results_of_sentence.items())[:MOST_PLACES]:
        yield f"{word} in {_results_text(keys)}, {origin}"
    if len(results_of_sentence) > MOST_PLACES:
        yield f"NaN or Inf in other results, from {len(results_of_sentence) - MOST_PLACES} other places"


def _results_text(keys: Sequence[PortKey]) -> str:
    """Return in words the first of several results of one role, and how many more there are."""
    role, name = keys[0]
    texts = {"output": f"the output {name}", "gradient": f"the gradient of {name}", "mutation": f"what {name} becomes"}
    # An output that has no name in the program is called `output`.
    text = "the output" if (role, name) == ("output", "output") else texts[role]
    more = len(keys) - 1
    if not more:
        return text
    return f"{text} and of {more} more" if role == "gradient" else f"{text} and {more} more"


def _origin_text(trail: _Trail, row: _Nonfinite, place: Place) -> str:
    """Say where NaN or Inf comes from: the line and the operator that make it, or an input that has it."""
    step, mark = trail.step(place), trail.marks[place]
    if step is None:
        port = trail.ports[place]
        return f"from the {port.role} {port.name}, which has {mark.word} itself"
    word = f"as {mark.word}" if mark.word != row.word else ""
    inside = "in its backward" if _is_of_backward(place, step) else ""
    details = " ".join(filter(None, (word, inside)))
    return (
        f"first made {line_text(step.source)}({_operator_text(trail, place, step)}){', ' if details else ''}{details}"
    )


def line_text(source: Source | None) -> str:
    """Return the line of the program that a step comes from, with its preposition."""
    return f"at {source.at} " if source is not None else "by a step without a line "


def _is_of_backward(place: Place, step: Step) -> bool:
    """Whether a step computes a gradient, and does not only compute a value of the forward again."""
    return place.backward and not (step.echo is not None and step.echo.kind == "recomputes")


def _operator_text(trail: _Trail, place: Place, step: Step) -> str:
    """Return the operator of a step; for a step of the backward, the operator whose gradient the step computes."""
    echo = step.echo
    if _is_of_backward(place, step) and echo is not None and echo.kind == "gradient of" and len(echo.names) == 1:
        step = trail.steps[place.pair][0].get(echo.names[0], step)
    return operator_name(step.target).lstrip("_") if step.target.startswith("aten.") else step.target
