"""The Joint of a deep model, continued from its Joints with a few layers.

Values have tags here: what they are, and the name that torch.fx gave them, which counts evenly. Names that clash are
numbered anew at the end, in the order in which a trace names values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from backprint.fx.convert import Names, tensor_spec
from backprint.graph.folding.fold import token_of
from backprint.graph.folding.places import SOURCE, places_of, places_of_value, skeleton, with_places, with_value
from backprint.graph.graphs import Port, Source, Step
from backprint.graph.values import Ref
from backprint.tracing.aot.from_fx import ReadJoint
from backprint.tracing.assembly import PLAIN, Joint, Note, Result
from backprint.tracing.stamping.extend import CannotStamp, GrownRow, Row, family, grown
from backprint.tree import copy_values

NAMED = ("name", "args", "kwargs", "echo")
"""The parts of a step in which texts are names of values; `echo.kind` is none."""


def stamped_joint(shallow: ReadJoint, deeper: ReadJoint, more: int, content: Content) -> Joint:
    """Return the Joint with `more` layers than the shallow one has."""
    left, right = shallow.joint, deeper.joint
    for joint in (left, right):
        refuse_joint(joint)
    tags = tags_of(shallow), tags_of(deeper)

    def like(what: str, rows: Any, part: str) -> Iterator[tuple[Any, GrownRow]]:
        """Yield what each row of a part is like in the deeper Joint, and the row."""
        ours, theirs = getattr(left, part), getattr(right, part)
        before = [rows(each, tags[0], left) for each in ours], [rows(each, tags[1], right) for each in theirs]
        for row in grown(*before, more, what):
            yield theirs[row.like], row

    names = Renaming()
    inputs = tuple(names.port(*each) for each in like("inputs", port_row, "inputs"))
    constants = grown_constants(left, right, more, content, names)
    notes: dict[str, Note] = {}

    def steps(what: str, part: str) -> Iterator[Step]:
        for step, row in like(what, step_row, part):
            made = names.step_of_row(step, row, tags[1])
            if step.name in right.notes:
                notes[made.name] = right.notes[step.name]
            yield made

    forward = tuple(steps("steps of the forward", "forward"))
    results = tuple(names.result(*each) for each in like("results", result_row, "results"))
    tangents = tuple(names.port(*each, stem="tangent_") for each in like("tangents", port_row, "tangents"))
    backward = tuple(steps("steps of the backward", "backward"))
    gradients = tuple(names.result(*each) for each in like("gradients", result_row, "gradients"))
    return Joint(inputs, forward, results, tangents, backward, gradients, right.same, constants, notes)


def refuse_joint(joint: Joint) -> None:
    """Raise if a Joint has what is not continued."""
    for what, found in (
        ("subgraphs", joint.subgraphs), ("symbolic sizes", joint.symbols),
        ("guards", [step for step in (*joint.forward, *joint.backward) if step.is_guard]),
        ("updates in place", [note for note in joint.notes.values() if note.writes]),
    ):  # fmt: skip
        if found:
            raise CannotStamp(f"its graphs have {what}")


Content = Callable[[Tensor], bytes | None]
"""Returns the bytes of a tensor's values, if they are known."""


def grown_constants(
    left: Joint, right: Joint, more: int, content: Content, names: Renaming
) -> dict[str, tuple[str, Tensor]]:
    """Return the constant tensors, each in memory of its own; their values must be known."""
    theirs = list(right.constants.values())
    few, fewer = (
        [Row((tensor_spec(tensor), content(tensor)), (name,)) for name, tensor in joint.constants.values()]
        for joint in (right, left)
    )
    if any(row.head[1] is None for row in (*few, *fewer)):
        raise CannotStamp("its graphs have constant tensors with unknown values")
    found = {}
    for row in grown(fewer, few, more, "constant tensors"):
        local = names.add(f"constant {row.items[0]}", str(row.items[0]))
        found[local] = local, copy_values({"": theirs[row.like][1]})[""]
    return found


def tags_of(read: ReadJoint) -> dict[str, str]:
    """Return the tag of each value of a Joint."""
    joint = read.joint
    called = {local: name for name, local in read.forward.items()}
    again = {local: name for name, local in read.backward.items()}
    tags = {port.local: f"input {port.name}" for port in joint.inputs}
    tags |= {local: f"constant {name}" for local, (name, _) in joint.constants.items()}
    tags |= {step.name: f"forward {counted_name(called.get(step.name, step.name))}" for step in joint.forward}
    tags |= {port.local: f"tangent {port.name}" for port in joint.tangents}
    tags |= {step.name: f"backward {counted_name(again.get(step.name, step.name))}" for step in joint.backward}
    if len(set(tags.values())) < len(tags):
        raise CannotStamp("two values of its graphs have one name")
    return tags


def counted_name(name: str) -> str:
    """Return a name of torch.fx with a number at its end: `mm` is `mm_0`, because `mm_1` follows."""
    if name.endswith("_0"):
        raise CannotStamp(f"the value {name} is numbered 0, which torch.fx never does")
    return name if re.search(r"_[1-9][0-9]*$", name) else f"{name}_0"


# ------------------------------------------------------------------ as rows


def port_row(port: Port, tags: Mapping[str, str], _: Joint) -> Row:
    """Return an input as a row."""
    return Row((port.role, port.spec, family(port.name)), (tags[port.local], port.name))


def result_row(result: Result, tags: Mapping[str, str], _: Joint) -> Row:
    """Return a result as a row."""
    port, value = result
    places = [item for _, item in places_of_value(value, "")]
    fractions = tuple(map(repr, (item for item in places if isinstance(item, float))))
    items = (tags[item] if isinstance(item, str) else item for item in places if not isinstance(item, float))
    return Row((port.role, port.spec, family(port.name), skeleton(value), fractions), (port.name, *items))


def step_row(step: Step, tags: Mapping[str, str], joint: Joint) -> Row:
    """Return a step as a row; its numbers with a fraction must be equal."""
    places = list(places_of(step))
    fractions = tuple((place, repr(item)) for place, item in places if isinstance(item, float))
    items = (tagged(place, item, tags) for place, item in places if not isinstance(item, float))
    module = family(step.source.module) if step.source is not None else ()
    echo = None if step.echo is None else (step.echo.kind, len(step.echo.names))
    return Row((token_of(step), module, echo, fractions, joint.notes.get(step.name, PLAIN)), tuple(items))


def tagged(place: str, item: Any, tags: Mapping[str, str]) -> Any:
    """Return what stands at a place of a step; of a value, its tag."""
    if isinstance(item, str) and place != "echo.kind" and place.partition(".")[0] in NAMED:
        return tags[item]
    return item


# ------------------------------------------------------------------ as graphs have them


class Renaming:
    """The names of the values so far: each tag has the first that is free, as in a trace."""

    def __init__(self) -> None:
        self.names = Names()
        self.called: dict[str, str] = {}
        self.places: dict[str, list[tuple[str, Any, bool]]] = {}
        self.sources: dict[tuple[Any, ...], Source] = {}

    def known(self, tag: str) -> str:
        """Return the name of a value that was made before."""
        if tag not in self.called:
            raise CannotStamp(f"a step takes the value {tag!r}, which no step before it makes")
        return self.called[tag]

    def add(self, tag: str, wanted: str) -> str:
        """Name a new value."""
        if tag in self.called:
            raise CannotStamp(f"two steps make the value {tag!r}")
        self.called[tag] = self.names.free(wanted)
        return self.called[tag]

    def port(self, port: Port, row: GrownRow, stem: str = "") -> Port:
        """Return the input of a row."""
        tag, name = map(str, row.items)
        return Port(name, port.role, port.spec, self.add(tag, f"{stem}{name}"))

    def result(self, result: Result, row: GrownRow) -> Result:
        """Return the result of a row."""
        port, value = result
        name, *rest = row.items
        places = [place for place, item in places_of_value(value, "") if not isinstance(item, float)]
        found = {place: self.named(item) for place, item in zip(places, rest, strict=True)}
        return replace(port, name=str(name)), with_value(value, "", found)

    def named(self, item: Any) -> Any:
        """Return a number, or the name of a value by its tag."""
        return self.known(item) if isinstance(item, str) else item

    def step_of_row(self, step: Step, row: GrownRow, tags: Mapping[str, str]) -> Step:
        """Return the step of a row."""
        if step.name not in self.places:
            found = [(place, item) for place, item in places_of(step) if not isinstance(item, float)]
            self.places[step.name] = [(place, item, tagged(place, item, tags) is not item) for place, item in found]
        changed: dict[str, Any] = {}
        for (place, before, named), item in zip(self.places[step.name][1:], row.items[1:], strict=True):
            found_item = self.known(str(item)) if named else item
            if found_item != before:
                changed[place] = found_item
        source = {place.partition(".")[2]: changed.pop(place) for place in [*changed] if place.startswith("source.")}
        made = with_places(step, changed)
        tag = str(row.items[0])
        name = self.add(tag, wish(made, tag))
        if name == made.name and not source:
            return made
        return replace(made, name=name, source=self.source(step.source, source))

    def source(self, like: Source | None, changed: Mapping[str, Any]) -> Source | None:
        """Return a line of the program with other parts; steps on one line share it."""
        if like is None or not changed:
            return like
        parts = {**{part: getattr(like, part) for part in SOURCE}, **changed}
        key = tuple(parts.values())
        if key not in self.sources:
            self.sources[key] = Source(**parts)
        return self.sources[key]


def wish(step: Step, tag: str) -> str:
    """Return the preferred name of a step: torch.fx's own, or for an item of a tuple the tuple's with the index."""
    match step.target, step.args:
        case "operator.getitem", (Ref(name), int(index)) if index >= 0:
            return f"{name}_{index}"
    name = tag.partition(" ")[2].removesuffix("_0")
    return name.lstrip("_") or name
