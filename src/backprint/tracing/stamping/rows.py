"""Continue what a model's rows are with n and with n + 1 layers to any depth.

A row is a step, a port or an operator that ran: a head that must be equal, and names and numbers that may grow. The
rows that the deeper one has more must repeat those before. A number grows by the same from layer to layer and from
depth to depth, or stands at a beginning or an end, where it grows from depth to depth alone. Such a law has three
numbers, and must hold for five values or more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backprint._torch.modes import DisableTorchFunction
from backprint._torch.tensors import storage_id
from backprint.fx.convert import Names, tensor_spec
from backprint.graph.folding.fold import token_of
from backprint.graph.folding.nouns import SOURCE, divided, places_of, places_of_value, skeleton, with_places, with_value
from backprint.graph.nouns import Port, Ref, Source, Step
from backprint.tracing import frames
from backprint.tracing.aot.from_fx import ReadJoint
from backprint.tracing.assembly import NO_NOTE, Joint, Note, Result
from backprint.tracing.watch import Watch
from backprint.values.tree import copy_values, plain_leaves

Item = str | int
"""What may grow: a text with numbers in it, or a number."""


class Row(NamedTuple):
    """One row: what must be equal, and what may grow."""

    head: Any
    items: tuple[Item, ...]


class GrownRow(NamedTuple):
    """A row of the whole: the place of a row of the deeper one that is like it, and its items."""

    like: int
    items: tuple[Item, ...]


class CannotStamp(Exception):
    """A model that must be traced in full, and why."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """A part that repeats with a period, and is longer by one period in the deeper one."""

    start: int
    deeper_start: int
    length: int
    period: int


def grown(shallow: Sequence[Row], deeper: Sequence[Row], more: int, what: str) -> list[GrownRow]:
    """Return the rows with `more` layers than the shallow one has; `what` names the rows in a message."""
    numbers: dict[Any, int] = {}
    left, right = (
        [numbers.setdefault((row.head, len(row.items)), len(numbers)) for row in rows] for rows in (shallow, deeper)
    )
    made: list[GrownRow] = []
    at, deeper_at = 0, 0
    for stretch in stretches(left, right, what):
        made += between(shallow[at : stretch.start], deeper[deeper_at : stretch.deeper_start], deeper_at, more, what)
        made += stretch_rows(shallow, deeper, stretch, more, what)
        at, deeper_at = stretch.start + stretch.length, stretch.deeper_start + stretch.length + stretch.period
    made += between(shallow[at:], deeper[deeper_at:], deeper_at, more, what)
    return made


# ---- Where rows repeat


def stretches(left: Sequence[int], right: Sequence[int], what: str) -> Iterator[Repetition]:
    """Yield the parts in which the deeper one has a period more."""
    at, other, low = 0, 0, 0
    while True:
        run = equal_run(left, right, at, other)
        at, other = at + run, other + run
        missing = (len(right) - other) - (len(left) - at)
        if not missing and at == len(left):
            return
        period = period_of(left, right, at, other, low, missing)
        if not period:
            raise CannotStamp(f"{what} with one layer more are not those with one layer less and a repetition")
        start = other
        while start > low and right[start - 1] == right[start - 1 + period]:
            start -= 1
        yield Repetition(at - (other - start), start, other - start, period)
        other += period
        low = other


def equal_run(left: Sequence[int], right: Sequence[int], at: int, other: int) -> int:
    """Return how many rows are equal from two places on."""
    run = 0
    for first, second in zip(left[at:], right[other:], strict=False):
        if first != second:
            break
        run += 1
    return run


def period_of(left: Sequence[int], right: Sequence[int], at: int, other: int, low: int, missing: int) -> int:
    """Return the period that the deeper one has more at a place: the one after which most rows are equal; 0 if none."""
    best, most = 0, (False, -1)
    for period in range(1, min(missing, other - low) + 1):
        if right[other - period : other] == right[other : other + period]:
            run = equal_run(left, right, at, other + period)
            good = (period == missing and run == len(left) - at), run
            if good > most:
                best, most = period, good
    return best


# ---- What grows


def between(shallow: Sequence[Row], deeper: Sequence[Row], start: int, more: int, what: str) -> Iterator[GrownRow]:
    """Yield the rows between repetitions, which grow from depth to depth."""
    for place, (left, right) in enumerate(zip(shallow, deeper, strict=True)):
        if left.items == right.items:
            yield GrownRow(start + place, right.items)
        else:
            pairs = zip(left.items, right.items, strict=True)
            yield GrownRow(start + place, tuple(continued(first, second, more, what) for first, second in pairs))


def continued(first: Item, second: Item, more: int, what: str) -> Item:
    """Return what grows from depth to depth."""
    if first == second:
        return second
    texts, numbers = divided(first)
    other_texts, others = divided(second)
    if texts != other_texts or type(first) is not type(second):
        raise CannotStamp(f"{what} have {first!r:.80} with one layer less and {second!r:.80} with one more")
    return put_together(texts, [x + (y - x) * more for x, y in zip(numbers, others, strict=True)], type(first) is str)


def family(text: str) -> tuple[str, ...]:
    """Return a text without its numbers: the same for all layers of one list."""
    return divided(text)[0]


def put_together(texts: Sequence[str], numbers: Sequence[int], is_text: bool) -> Item:
    """Return a text with these numbers in it, or the number."""
    if not is_text:
        return numbers[0]
    pieces = [texts[0]]
    for number, text in zip(numbers, texts[1:], strict=True):
        pieces += (str(number), text)
    return "".join(pieces)


def stretch_rows(
    shallow: Sequence[Row], deeper: Sequence[Row], stretch: Repetition, more: int, what: str
) -> Iterator[GrownRow]:
    """Yield the rows of a part that repeats."""
    period, start, first = stretch.period, stretch.deeper_start, stretch.start
    columns = []
    for place in range(period):
        left = [row.items for row in shallow[first + place : first + stretch.length : period]]
        right = [row.items for row in deeper[start + place : start + stretch.length + period : period]]
        items = [
            column(tuple(x), tuple(y), more, what)
            for x, y in zip(zip(*left, strict=True), zip(*right, strict=True), strict=True)
        ]
        columns.append(list(zip(*items, strict=True)) if items else [()] * (len(left) + more))
    for count in range(stretch.length + more * period):
        place = count % period
        yield GrownRow(start + place, columns[place][count // period])


ENDS = ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2))
"""How many iterations at the beginning and at the end may have something else."""


def column(left: tuple[Item, ...], right: tuple[Item, ...], more: int, what: str) -> list[Item]:
    """Return one item of each iteration, from those at two depths."""
    if len(set(left) | set(right)) == 1:
        return [right[0]] * (len(left) + more)
    for begin, end in ENDS:
        if len(left) - begin - end < 2:
            continue
        middle = law(left[begin : len(left) - end], right[begin : len(right) - end], more)
        if middle is not None:
            ahead = [continued(x, y, more, what) for x, y in zip(left[:begin], right[:begin], strict=True)]
            behind = [
                continued(x, y, more, what)
                for x, y in zip(left[len(left) - end :], right[len(right) - end :], strict=True)
            ]
            return ahead + middle + behind
    raise CannotStamp(f"{what} do not grow by the same from layer to layer: {', '.join(map(repr, right))}")


def law(left: Sequence[Item], right: Sequence[Item], more: int) -> list[Item] | None:
    """Return the items of all iterations, if they grow by the same from each to the next and from depth to depth."""
    kinds = {type(item) for item in (*left, *right)}
    apart = [divided(item) for item in (*left, *right)]
    texts = apart[0][0]
    if len(kinds) > 1 or any(other != texts for other, _ in apart):
        return None
    if not apart[0][1]:
        return [left[0]] * (len(left) + more)
    found = []
    for numbers in zip(*(numbers for _, numbers in apart), strict=True):
        start, second = numbers[0], numbers[len(left)]
        step = numbers[len(left) + 1] - second
        if any(number != start + step * place for place, number in enumerate(numbers[: len(left)])):
            return None
        if any(number != second + step * place for place, number in enumerate(numbers[len(left) :])):
            return None
        low = start + (second - start) * more
        found.append(range(low, low + step * (len(left) + more), step) if step else [low] * (len(left) + more))
    is_text = str in kinds
    return [put_together(texts, numbers, is_text) for numbers in zip(*found, strict=True)]


# ---- The log of a run


class LoggedWatch(Watch):
    """A watched run that also writes a row for every tensor of the program, every operator, and every output."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.rows: list[Row] = []
        self.opened = False
        self.ready: Mapping[str, Tensor] = {}
        self.heads: dict[Any, Any] = {}
        self.labels: dict[int, str] = {}
        self.kept: list[Tensor] = []
        self.memory: dict[int, str] = {}

    def register_tensors(self, named: Mapping[str, Tensor], callers: Any) -> Watch:
        self.ready = named
        with DisableTorchFunction():
            for name, tensor in named.items():
                self.rows.append(Row(("input", tensor_spec(tensor), tensor.requires_grad, family(name)), (name,)))
                self.label(tensor, f"input {name}")
        return super().register_tensors(named, callers)

    def label(self, tensor: Tensor, label: str) -> None:
        """Name a tensor, which is kept, so that no other can have its identity."""
        if id(tensor) not in self.labels:
            self.kept.append(tensor)
            self.memory.setdefault(storage_id(tensor.untyped_storage()), label)
        self.labels[id(tensor)] = label

    def label_of(self, tensor: Tensor) -> str:
        """Return the label of a tensor; one that no operator returned has that of its memory."""
        if id(tensor) not in self.labels:
            memory = storage_id(tensor.untyped_storage())
            label = self.memory.get(memory)
            self.label(tensor, f"outside {len(self.rows)}" if label is None else f"in {label}")
        return self.labels[id(tensor)]

    def run_operator(self, func: Any, args: Any, kwargs: Any, names: frozenset[str]) -> Any:
        if func.namespace == "prim":  # a question about a tensor, such as its device: nothing runs
            return super().run_operator(func, args, kwargs, names)
        head: list[Any] = [func, torch.is_grad_enabled()]
        items: list[Any] = []
        with DisableTorchFunction():
            self.describe((args, kwargs), head, items)
        result = super().run_operator(func, args, kwargs, names)
        with DisableTorchFunction():
            for count, leaf in enumerate(plain_leaves(result)):
                if isinstance(leaf, Tensor):
                    head.append((leaf.dtype, tuple(leaf.shape), leaf.stride(), leaf.storage_offset(), leaf.device))
                    self.label(leaf, f"{len(self.rows)}.{count}")
                else:
                    head.append(repr(leaf))
        where = frames.here(self.paths)
        if where is not None:
            head += (where.file, where.function, where.code, family(where.module))
            items += (where.line, where.module)
        made = tuple(head)
        self.rows.append(Row(self.heads.setdefault(made, made), tuple(items)))
        return result

    def describe(self, value: Any, head: list[Any], items: list[Any]) -> None:
        """Add an argument of an operator to a row."""
        kind = type(value)
        if isinstance(value, Tensor):
            items.append(self.label_of(value))
            head.append(("tensor", value.requires_grad, value.is_leaf, self.content(value)))
        elif kind is int:
            items.append(value)
            head.append(int)
        elif kind in (list, tuple, torch.Size):
            head.append((kind, len(value)))
            for part in value:
                self.describe(part, head, items)
        elif kind is dict:
            head.append((kind, tuple(value)))
            for part in value.values():
                self.describe(part, head, items)
        else:
            head.append((kind, repr(value)))

    def content(self, tensor: Tensor) -> bytes | None:
        """Return the values of a tensor that was written as numbers in the program, if they are known."""
        if self.world is None or not self.labels[id(tensor)].startswith("outside"):
            return None
        return self.world.content_of(tensor)

    def set_result_dependencies(self, result: Any, names: frozenset[str]) -> Any:
        self.opened = True
        return super().set_result_dependencies(result, names)

    def note_edges_behind_outputs(self, outputs: Mapping[str, Tensor]) -> None:
        super().note_edges_behind_outputs(outputs)
        for name, tensor in outputs.items():
            self.rows.append(Row(("output", tensor_spec(tensor), tensor.requires_grad), (name, self.label_of(tensor))))


# ---- Joints as rows, and rows as a Joint

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
        ("subgraphs", joint.subgraphs),
        ("symbolic sizes", joint.symbols),
        ("guards", [step for step in (*joint.forward, *joint.backward) if step.is_guard]),
        ("updates in place", [note for note in joint.notes.values() if note.writes]),
    ):
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


# ---- As rows


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
    return Row((token_of(step), module, echo, fractions, joint.notes.get(step.name, NO_NOTE)), tuple(items))


def tagged(place: str, item: Any, tags: Mapping[str, str]) -> Any:
    """Return what stands at a place of a step; of a value, its tag."""
    if isinstance(item, str) and place != "echo.kind" and place.partition(".")[0] in NAMED:
        return tags[item]
    return item


# ---- As graphs have them


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
