"""Continue the rows of a model with n and with n + 1 layers to the rows of the same model with any number of layers.

A row is a step of a graph, a port, or an operator that ran: a head that must be equal, and items (names and numbers)
that may grow from layer to layer. The shallow model has n layers, the deeper one n + 1, and the whole model all of its
layers. `continue_rows` takes the rows of the first two:

    4 layers:   embed  A B  A B  A B  A B  norm
    5 layers:   embed  A B  A B  A B  A B  A B  norm      one period (A B) more

1. It finds where the deeper model has a period more (`_find_repetitions`); that part repeats.
2. In a repeating part, an item is a linear function of the layer and of the depth: the number in `blocks.3.weight` or
   `add_17` grows by the same from each layer to the next, and may start elsewhere with one layer more (a backward
   counts down). One or two layers at the ends may be irregular (`IRREGULAR_ENDS`): their items grow with the depth
   alone, as do the items of rows between the repetitions.
3. Such a function has three coefficients. It must hold for at least five values, so that a coincidence is not taken
   for a rule; and `stamp` compares the result with a run of the whole model.

In all functions here, `left` is of the shallow model and `right` of the deeper one, `more` is how many layers the whole
model has more than the shallow one, and `what` names the rows in errors ("steps of the forward"). A grown row is a row
of the whole model: `like` is the index of the deeper model's row whose head it has, and its items are its own.

`split_numbers(item)` returns the texts around the numbers of an item, and the numbers: `("blocks.", ".weight"), (3,)`
of `blocks.3.weight`, and `("", ""), (3,)` of the number 3. A place of a step is where a name, number or text stands in
it: `args.0`, `source.line`. `names.free(wanted)` returns a name like `wanted` that no value has yet.

A Joint has the steps of the forward and of the backward before they are two graphs; a ReadJoint is a Joint with the
names that fx nodes have in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backprint._torch.distributed import sharding_text
from backprint._torch.modes import DisableTorchFunction
from backprint._torch.operators import HigherOrderOperator
from backprint._torch.tensors import storage_id
from backprint.graph.folding.fold import token_of
from backprint.graph.folding.nouns import (
    SOURCE,
    places_of,
    places_of_value,
    skeleton,
    split_numbers,
    with_places,
    with_value,
)
from backprint.graph.fx.convert import Names, tensor_spec
from backprint.graph.nouns import Port, Ref, Source, Step
from backprint.trace import frames
from backprint.trace.aot.from_fx import ReadJoint
from backprint.trace.assembly import NO_NOTE, Joint, Note, Result
from backprint.trace.fake import FakeWorld
from backprint.trace.observe import Call, Observer
from backprint.values.tree import copy_values, plain_leaves
from backprint.values.wrappers import Wrapping, unwrap

Item = str | int
"""A part of a row that may grow: a text with numbers in it, or a number."""


class Row(NamedTuple):
    """One row: a head that must be equal in all layers, and the items that may grow."""

    head: Any
    items: tuple[Item, ...]


class _GrownRow(NamedTuple):
    """A row of the whole model: the index of the deeper model's row that it is like, whose head it has, and its own
    items."""

    like: int
    items: tuple[Item, ...]


class CannotStamp(Exception):
    """A model must be traced in full. The message says why."""


@dataclass(frozen=True, slots=True)
class _Repetition:
    """A part that repeats with a period, and is one period longer in the deeper model.

    `start` and `deeper_start` are the indices of the row where the part begins in the shallow and in the deeper model.
    `length` is how many rows it has in the shallow model, `period` how many rows one period has.
    """

    start: int
    deeper_start: int
    length: int
    period: int


def continue_rows(shallow: Sequence[Row], deeper: Sequence[Row], layers_more: int, what: str) -> list[_GrownRow]:
    """Return the rows of the model with `layers_more` layers more than the shallow one. Raise CannotStamp if the rows
    do not grow evenly; `what` names the rows in this error."""
    # Equal heads get equal numbers, so that the search below compares integers.
    numbers: dict[Any, int] = {}
    left, right = (
        [numbers.setdefault((row.head, len(row.items)), len(numbers)) for row in rows] for rows in (shallow, deeper)
    )
    continued_rows: list[_GrownRow] = []
    shallow_at, deeper_at = 0, 0
    for repetition in _find_repetitions(left, right, what):
        continued_rows += _rows_between_repetitions(
            shallow[shallow_at : repetition.start],
            deeper[deeper_at : repetition.deeper_start],
            start=deeper_at,
            more=layers_more,
            what=what,
        )
        continued_rows += _rows_of_repetition(shallow, deeper, repetition, layers_more, what)
        shallow_at, deeper_at = (
            repetition.start + repetition.length,
            repetition.deeper_start + repetition.length + repetition.period,
        )
    continued_rows += _rows_between_repetitions(shallow[shallow_at:], deeper[deeper_at:], deeper_at, layers_more, what)
    return continued_rows


# ---- Where rows repeat


def _find_repetitions(left: Sequence[int], right: Sequence[int], what: str) -> Iterator[_Repetition]:
    """Yield the parts in which the deeper model has one period more. Rows are given as numbers: equal for equal heads.
    Raise CannotStamp if the rows differ in another way.

    The rows are compared from the front. Where they stop being equal, the deeper model has a period more, which must
    repeat the rows just before it. The repeating part then begins as far back as the deeper rows repeat with that
    period, because rows of the first layers are equal in both models anyway.
    """
    left_at, right_at, last_end = 0, 0, 0
    while True:
        equal = _length_of_equal_run(left, right, left_at, right_at)
        left_at, right_at = left_at + equal, right_at + equal
        # How many rows more than the shallow model the deeper one has left: 0 at the end, once every repetition is
        # found.
        rows_missing = (len(right) - right_at) - (len(left) - left_at)
        if not rows_missing and left_at == len(left):
            return
        period = _period_of(left, right, left_at, right_at, last_end, rows_missing)
        if not period:
            raise CannotStamp(f"{what} with one layer more are not those with one layer less and a repetition")
        start = right_at
        # Extend the part to the front, but not into the repetition before it.
        while start > last_end and right[start - 1] == right[start - 1 + period]:
            start -= 1
        length = right_at - start
        yield _Repetition(start=left_at - length, deeper_start=start, length=length, period=period)
        right_at += period
        last_end = right_at


def _length_of_equal_run(left: Sequence[int], right: Sequence[int], at: int, other: int) -> int:
    """Return how many rows are equal, beginning at index `at` of `left` and `other` of `right`."""
    run = 0
    for first, second in zip(left[at:], right[other:], strict=False):
        if first != second:
            break
        run += 1
    return run


def _period_of(left: Sequence[int], right: Sequence[int], at: int, other: int, low: int, missing: int) -> int:
    """Return how many rows the period has that the deeper model has more, where the rows of both stop being equal: at
    index `at` of `left` and `other` of `right`. 0 if there is no such period.

    `missing` is how many rows more the deeper model has left, and `low` the index in `right` before which the period
    cannot begin. Several periods may fit: if a layer begins and ends with equal rows, a period of one row does. The
    period that accounts for all missing rows and leaves the rest equal is preferred, then the one after which most rows
    are equal.
    """
    best, best_quality = 0, (False, -1)  # less than any period's
    for period in range(1, min(missing, other - low) + 1):
        if right[other - period : other] == right[other : other + period]:
            run = _length_of_equal_run(left, right, at, other + period)
            quality = (period == missing and run == len(left) - at), run
            if quality > best_quality:
                best, best_quality = period, quality
    return best


# ---- What grows


def _rows_between_repetitions(
    shallow: Sequence[Row], deeper: Sequence[Row], start: int, more: int, what: str
) -> Iterator[_GrownRow]:
    """Yield the whole model's rows between two repetitions, whose items grow with the depth alone. `shallow` and
    `deeper` are these rows of the two models, and `start` is the index of the first of them in the deeper model."""
    for index, (left, right) in enumerate(zip(shallow, deeper, strict=True), start):
        if left.items == right.items:
            yield _GrownRow(index, right.items)
        else:
            pairs = zip(left.items, right.items, strict=True)
            yield _GrownRow(index, tuple(_continue_item(first, second, more, what) for first, second in pairs))


def _continue_item(first: Item, second: Item, more: int, what: str) -> Item:
    """Return an item of the whole model that grows with the depth alone, by the same with each further layer, from its
    values in the shallow model (`first`) and in the deeper one (`second`). Raise CannotStamp if they differ in more
    than numbers."""
    if first == second:
        return second
    texts, numbers = split_numbers(first)
    other_texts, other_numbers = split_numbers(second)
    if texts != other_texts or type(first) is not type(second):
        raise CannotStamp(f"{what} have {first!r:.80} with one layer less and {second!r:.80} with one more")
    continued = [number + (other - number) * more for number, other in zip(numbers, other_numbers, strict=True)]
    return _join_numbers(texts, continued, is_text=type(first) is str)


def _text_without_numbers(text: str) -> tuple[str, ...]:
    """Return the parts of a text between its numbers, which all layers of one list have in common."""
    return split_numbers(text)[0]


def _join_numbers(texts: Sequence[str], numbers: Sequence[int], is_text: bool) -> Item:
    """Return the text that has these numbers between `texts`; if the item is no text, its one number."""
    if not is_text:
        return numbers[0]
    pieces = [texts[0]]
    for number, text in zip(numbers, texts[1:], strict=True):
        pieces += (str(number), text)
    return "".join(pieces)


def _rows_of_repetition(
    shallow: Sequence[Row], deeper: Sequence[Row], repetition: _Repetition, more: int, what: str
) -> Iterator[_GrownRow]:
    """Yield the whole model's rows of a part that repeats. `shallow` and `deeper` are all rows of the two models."""
    period, shallow_start, deeper_start = repetition.period, repetition.start, repetition.deeper_start
    # For each place in the period, the items of the row there in every layer of the whole model.
    items_by_place: list[list[tuple[Item, ...]]] = []
    for place in range(period):
        # The items of that row in each layer of the two models, then each item in all layers (a column).
        left = [row.items for row in shallow[shallow_start + place : shallow_start + repetition.length : period]]
        deeper_end = deeper_start + repetition.length + period
        right = [row.items for row in deeper[deeper_start + place : deeper_end : period]]
        columns = [
            _continue_column(left_column, right_column, more, what)
            for left_column, right_column in zip(zip(*left, strict=True), zip(*right, strict=True), strict=True)
        ]
        # A row without items has no column that would say how many layers there are.
        items_by_place.append(list(zip(*columns, strict=True)) if columns else [()] * (len(left) + more))
    for count in range(repetition.length + more * period):
        layer, place = divmod(count, period)
        yield _GrownRow(deeper_start + place, items_by_place[place][layer])


IRREGULAR_ENDS = ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2))
"""How many layers at the beginning and at the end may be irregular, in the order in which it is tried.

The first layer often is, because its input is not the output of a layer.
"""


def _continue_column(left: tuple[Item, ...], right: tuple[Item, ...], more: int, what: str) -> list[Item]:
    """Return one item in all layers of the whole model, from its values in the layers of the shallow model (`left`) and
    of the deeper one (`right`).

    The item is constant, or linear in all layers but a few at the ends, where it grows with the depth alone. Otherwise,
    raise CannotStamp.
    """
    if len(set(left) | set(right)) == 1:
        return [right[0]] * (len(left) + more)
    for begin, end in IRREGULAR_ENDS:
        # How much the item grows from layer to layer cannot be read from fewer than two values.
        if len(left) - begin - end < 2:
            continue
        middle = _continue_linearly(left[begin : len(left) - end], right[begin : len(right) - end], more)
        if middle is not None:
            # By `len`: with `end` 0, `left[-end:]` would be all of it.
            first_pairs = zip(left[:begin], right[:begin], strict=True)
            last_pairs = zip(left[len(left) - end :], right[len(right) - end :], strict=True)
            first_items = [_continue_item(first, second, more, what) for first, second in first_pairs]
            last_items = [_continue_item(first, second, more, what) for first, second in last_pairs]
            return first_items + middle + last_items
    raise CannotStamp(f"{what} do not grow by the same from layer to layer: {', '.join(map(repr, right))}")


def _continue_linearly(left: Sequence[Item], right: Sequence[Item], more: int) -> list[Item] | None:
    """Return an item in all layers of the whole model if it is linear in the layer and in the depth; else None.

    With a first value `start` in the shallow model and `second` in the deeper one, the first value in the whole model
    is `start + (second - start) * more`; the step from layer to layer is read in the deeper model, and every value of
    both models must fit.
    """
    kinds = {type(item) for item in (*left, *right)}
    divided_items = [split_numbers(item) for item in (*left, *right)]
    texts, first_numbers = divided_items[0]
    if len(kinds) > 1 or any(other != texts for other, _ in divided_items):
        return None
    if not first_numbers:
        return [left[0]] * (len(left) + more)
    # For each place in the text where a number is, the numbers in all layers of the whole model; and in the loop, those
    # in all layers of both models.
    columns = []
    for numbers in zip(*(numbers for _, numbers in divided_items), strict=True):
        # The shallow model's layers are first in `numbers`, the deeper model's after them.
        start, second = numbers[0], numbers[len(left)]
        step = numbers[len(left) + 1] - second
        # Every value of the shallow model must fit, and every value of the deeper one.
        if any(number != start + step * place for place, number in enumerate(numbers[: len(left)])):
            return None
        if any(number != second + step * place for place, number in enumerate(numbers[len(left) :])):
            return None
        start_at_depth = start + (second - start) * more
        columns.append([start_at_depth + step * layer for layer in range(len(left) + more)])
    is_text = str in kinds
    return [_join_numbers(texts, numbers, is_text) for numbers in zip(*columns, strict=True)]


# ---- The log of a run


class OperatorLog(Observer):
    """Logs a row for every tensor of the program, every operator, and every output.

    A run with few layers and a run of the whole model are compared by these rows: which operator ran, with what
    arguments, and which line called it. A value is labelled by the row that made it, so the log also says which
    operator reads which result. Nothing is computed.

    `paths` has the path of each module by its identity. `ready` are the program's tensors by name. A run without values
    has a `world`, which knows the values of small constants.
    """

    def __init__(self, paths: Mapping[int, str], world: FakeWorld | None) -> None:
        self._paths, self._world = paths, world
        # Equal heads are one object: each layer has a row with the same head.
        self._heads: dict[Any, Any] = {}
        self.begin({})

    def begin(self, named: Mapping[str, Tensor]) -> None:
        """Start an empty log, with a row for each of the program's own tensors."""
        self.rows: list[Row] = []
        self.ready = named
        self.ran_higher_order_operator = False
        self._labels: dict[int, str] = {}
        self._kept: list[Tensor] = []
        self._memory: dict[int, str] = {}
        with DisableTorchFunction():
            for name, tensor in named.items():
                self.rows.append(
                    Row(("input", tensor_spec(tensor), tensor.requires_grad, _text_without_numbers(name)), (name,))
                )
                self._label(tensor, f"input {name}")

    def _label(self, tensor: Tensor, label: str) -> None:
        """Label a tensor, and its memory if that has no label. The tensor is kept alive, so that no other tensor can
        have its identity."""
        if id(tensor) not in self._labels:
            self._kept.append(tensor)
            self._memory.setdefault(storage_id(tensor.untyped_storage()), label)
        self._labels[id(tensor)] = label

    def _label_of(self, tensor: Tensor) -> str:
        """Return the label of a tensor. A tensor that no operator returned has the label of its memory."""
        if id(tensor) not in self._labels:
            memory = storage_id(tensor.untyped_storage())
            label = self._memory.get(memory)
            self._label(tensor, f"outside {len(self.rows)}" if label is None else f"in {label}")
        return self._labels[id(tensor)]

    def before(self, call: Call) -> None:
        """Describe a call's arguments before it runs, because it may change them."""
        if isinstance(call.func, HigherOrderOperator):
            self.ran_higher_order_operator = True
            return
        head: list[Any] = [call.func, torch.is_grad_enabled()]
        items: list[Any] = []
        self._describe((call.args, call.kwargs), head, items)
        call.kept[self] = head, items

    def after(self, call: Call, result: Any) -> None:
        """Append the row of a call that has run: its arguments, results and line."""
        if self not in call.kept:  # a higher-order operator, which `before` left out
            return
        head, items = call.kept[self]
        for count, leaf in enumerate(plain_leaves(result)):
            if isinstance(leaf, Tensor):
                head.append((leaf.dtype, tuple(leaf.shape), leaf.stride(), leaf.storage_offset(), leaf.device))
                self._label(leaf, f"{len(self.rows)}.{count}")
            else:
                head.append(repr(leaf))
        where = frames.here(self._paths)
        if where is not None:
            head += (where.file, where.function, where.code, _text_without_numbers(where.module))
            items += (where.line, where.module)
        head_tuple = tuple(head)
        self.rows.append(Row(self._heads.setdefault(head_tuple, head_tuple), tuple(items)))  # equal heads share one

    def _describe(self, value: Any, head: list[Any], items: list[Any]) -> None:
        """Add an argument of an operator to the head and the items of a row: to the items what may grow with the layer,
        which are labels of tensors and whole numbers; to the head all else, also the structure of containers."""
        kind = type(value)
        if isinstance(value, Tensor):
            items.append(self._label_of(value))
            head.append(("tensor", value.requires_grad, value.is_leaf, self._content(value)))
        elif kind is int:
            items.append(value)
            head.append(int)
        elif kind in (list, tuple, torch.Size):
            head.append((kind, len(value)))
            for part in value:
                self._describe(part, head, items)
        elif kind is dict:
            head.append((kind, tuple(value)))
            for part in value.values():
                self._describe(part, head, items)
        else:
            head.append((kind, repr(value)))

    def _content(self, tensor: Tensor) -> bytes | None:
        """Return the bytes of a tensor that the program made of Python numbers, if its values are known: these must be
        equal in all layers. None for other tensors, whose rows say where they are from."""
        if self._world is None or not self._labels[id(tensor)].startswith("outside"):
            return None
        return self._world.content_of(tensor)

    def end(self, outputs: Mapping[str, Tensor], wrapper_nodes: list[Any]) -> None:
        """Append rows for the autograd nodes of wrappers (DTensor), equal ones counted, and for the outputs."""
        for (name, facts), count in sorted(Counter(map(_name_and_facts, wrapper_nodes)).items()):
            self.rows.append(Row(("autograd node", name, facts), (count,)))
        for name, tensor in outputs.items():
            inner = unwrap(tensor)
            head = "output", tensor_spec(inner), sharding_text(tensor), tensor.requires_grad
            self.rows.append(Row(head, (name, self._label_of(inner))))


def _name_and_facts(node: Any) -> tuple[str, str]:
    """Return the name of an autograd node of wrappers, and the values that it keeps as text. The node's backward
    follows from these values, and from no operator of the forward."""
    kept = {key: value for key, value in vars(node).items() if not isinstance(value, Tensor)}
    return node.name(), ", ".join(map(repr, sorted(map(_text_kept, kept.items()))))


def _text_kept(item: tuple[str, Any]) -> str:
    """Return a value that an autograd node keeps under a name, as text that is equal for equal values. A callable is
    described by the name alone."""
    key, value = item
    if isinstance(value, Wrapping):
        return f"{key}: {value.text}"
    return key if callable(value) else f"{key}: {value!r}"


# ---- Joints as rows, and rows as a Joint

PARTS_WITH_NAMES = ("name", "args", "kwargs", "echo")
"""The parts of a step in which texts are names of values; `echo.kind` is not a name."""


def continue_joint(shallow: ReadJoint, deeper: ReadJoint, more: int, content: Content) -> Joint:
    """Return the Joint with `more` layers more than the shallow one has. `content` returns the bytes of a tensor's
    values, if they are known. Raise CannotStamp if the two Joints cannot be continued.

    A value has a tag: its kind, and the name that torch.fx gave it, which counts evenly from layer to layer (the names
    in a graph do not: a clash of names gives one of them another number). At the end the values get names in the order
    in which a trace gives names, so that the result is the graph of a full trace.
    """
    left, right = shallow.joint, deeper.joint
    for joint in (left, right):
        _refuse_unsupported_joint(joint)
    left_tags, right_tags = _tags_of(shallow), _tags_of(deeper)

    def continued(what: str, row_of: Callable[..., Row], part: str) -> Iterator[tuple[Any, _GrownRow]]:
        """Yield the rows of a part of the whole model's Joint, each after the port, result or step of the deeper Joint
        that it is like. `part` is the name of the field of a Joint, and `row_of` makes the row of an item of it."""
        left_part, right_part = getattr(left, part), getattr(right, part)
        left_rows = [row_of(item, left_tags, left) for item in left_part]
        right_rows = [row_of(item, right_tags, right) for item in right_part]
        for row in continue_rows(left_rows, right_rows, more, what):
            yield right_part[row.like], row

    # In the order in which a trace names values: inputs, constants, forward, tangents, backward.
    names = _ValueNames()
    inputs = tuple(names.port(port, row) for port, row in continued("inputs", _port_row, "inputs"))
    constants = _continue_constants(left, right, more, content, names)
    notes: dict[str, Note] = {}

    def steps(what: str, part: str) -> Iterator[Step]:
        """Yield the whole model's steps of one direction, and copy the notes on them."""
        for step, row in continued(what, _step_row, part):
            stamped_step = names.step_of_row(step, row, right_tags)
            if step.name in right.notes:
                notes[stamped_step.name] = right.notes[step.name]
            yield stamped_step

    forward = tuple(steps("steps of the forward", "forward"))
    results = tuple(names.result(result, row) for result, row in continued("results", _result_row, "results"))
    tangents = tuple(
        names.port(port, row, stem="tangent_") for port, row in continued("tangents", _port_row, "tangents")
    )
    backward = tuple(steps("steps of the backward", "backward"))
    gradients = tuple(names.result(result, row) for result, row in continued("gradients", _result_row, "gradients"))
    return Joint(
        inputs=inputs,
        forward=forward,
        results=results,
        tangents=tangents,
        backward=backward,
        gradients=gradients,
        same=right.same,  # `stamp` replaces it by what the run of the whole finds
        constants=constants,
        notes=notes,
        groups=right.groups,
    )


def _refuse_unsupported_joint(joint: Joint) -> None:
    """Raise CannotStamp if a Joint has anything that `continue_joint` does not continue."""
    for what, present in (
        ("subgraphs", joint.subgraphs),
        ("symbolic sizes", joint.symbols),
        ("guards", [step for step in (*joint.forward, *joint.backward) if step.is_guard]),
        ("updates in place", [note for note in joint.notes.values() if note.writes]),
    ):
        if present:
            raise CannotStamp(f"its graphs have {what}")


Content = Callable[[Tensor], bytes | None]
"""Returns the bytes of a tensor's values, if they are known."""


def _continue_constants(
    left: Joint, right: Joint, more: int, content: Content, names: _ValueNames
) -> dict[str, tuple[str, Tensor]]:
    """Return the constant tensors of the whole model by local name, each with its port name and in memory of its own.
    Raise CannotStamp if the values of one are not known. `names` gets the new names."""
    deeper_constants = list(right.constants.values())
    deeper_rows, shallow_rows = (
        [Row((tensor_spec(tensor), content(tensor)), (name,)) for name, tensor in joint.constants.values()]
        for joint in (right, left)
    )
    # The second part of a head is the content.
    if any(row.head[1] is None for row in (*deeper_rows, *shallow_rows)):
        raise CannotStamp("its graphs have constant tensors with unknown values")
    constants = {}
    for row in continue_rows(shallow_rows, deeper_rows, more, "constant tensors"):
        local = names.add(f"constant {row.items[0]}", str(row.items[0]))
        _, tensor = deeper_constants[row.like]
        constants[local] = local, copy_values({"": tensor})[""]  # it copies tensors by name: here one, without a name
    return constants


def _tags_of(read: ReadJoint) -> dict[str, str]:
    """Return the tag of each value of a Joint by its name there: `forward mm_3`, `input blocks.0.weight`. Raise
    CannotStamp if two values have one tag."""
    joint = read.joint
    # By the name in the Joint, the name of the fx node.
    forward_names = {local: name for name, local in read.forward.items()}
    backward_names = {local: name for name, local in read.backward.items()}
    tags = {port.local: f"input {port.name}" for port in joint.inputs}
    tags |= {local: f"constant {name}" for local, (name, _) in joint.constants.items()}
    tags |= {step.name: f"forward {_numbered_name(forward_names.get(step.name, step.name))}" for step in joint.forward}
    tags |= {port.local: f"tangent {port.name}" for port in joint.tangents}
    tags |= {
        step.name: f"backward {_numbered_name(backward_names.get(step.name, step.name))}" for step in joint.backward
    }
    if len(set(tags.values())) < len(tags):
        raise CannotStamp("two values of its graphs have one name")
    return tags


def _numbered_name(name: str) -> str:
    """Return a name of torch.fx with a number at its end: `mm` is `mm_0`, because `mm_1` follows. Raise CannotStamp if
    it ends in `_0` already: two names would be one."""
    # The first node of a name has no number in torch.fx, and the second has 1.
    if name.endswith("_0"):
        raise CannotStamp(f"the value {name} is numbered 0, which torch.fx never does")
    return name if re.search(r"_[1-9][0-9]*$", name) else f"{name}_0"


# ---- Ports, results and steps as rows


def _port_row(port: Port, tags: Mapping[str, str], _: Joint) -> Row:
    """Return an input as a row: the tag of its value, and its name."""
    return Row((port.role, port.spec, port.shard, _text_without_numbers(port.name)), (tags[port.local], port.name))


def _result_row(result: Result, tags: Mapping[str, str], _: Joint) -> Row:
    """Return a result as a row: its name, and the tags and numbers in its value. Floats are in the head, as text: they
    must be equal. The Joint is not used: only `_step_row` needs it."""
    port, value = result
    names_and_numbers = [item for _, item in places_of_value(value, place="")]
    fractions = tuple(map(repr, (item for item in names_and_numbers if isinstance(item, float))))
    items = (tags[item] if isinstance(item, str) else item for item in names_and_numbers if not isinstance(item, float))
    # `skeleton(value)` is the value without its names and numbers.
    head = port.role, port.spec, port.shard, _text_without_numbers(port.name), skeleton(value), fractions
    return Row(head, (port.name, *items))


def _step_row(step: Step, tags: Mapping[str, str], joint: Joint) -> Row:
    """Return a step as a row: its items are the names (as tags), numbers and texts in it, its own tag first. Floats are
    in the head, as text: they must be equal. So must all else that is no name or number: the operator, the structure of
    the arguments, the notes (`token_of`)."""
    places = list(places_of(step))  # each with what stands there
    fractions = tuple((place, repr(item)) for place, item in places if isinstance(item, float))
    items = (_tag_or_item(place, item, tags) for place, item in places if not isinstance(item, float))
    module = _text_without_numbers(step.source.module) if step.source is not None else ()
    echo = None if step.echo is None else (step.echo.kind, len(step.echo.names))
    return Row((token_of(step), module, echo, fractions, joint.notes.get(step.name, NO_NOTE)), tuple(items))


def _tag_or_item(place: str, item: Any, tags: Mapping[str, str]) -> Any:
    """Return the tag of a value that a step names at this place; any other item itself."""
    if isinstance(item, str) and place != "echo.kind" and place.partition(".")[0] in PARTS_WITH_NAMES:
        return tags[item]
    return item


# ---- Rows as ports, results and steps


class _GrowingPlace(NamedTuple):
    """A place in a step of the deeper model (`args.0`, `source.line`), what stands there, and whether that is the name
    of a value."""

    place: str
    item: Any
    is_name: bool


class _ValueNames:
    """The names of the whole model's values so far, by tag: each value has the first name that is free, as in a trace.

    `places` has, for each step of the deeper model, the places in it where a name, number or text may grow. `sources`
    has the Sources so far by their fields.
    """

    def __init__(self) -> None:
        self.names = Names()
        self.names_by_tag: dict[str, str] = {}
        self.places: dict[str, list[_GrowingPlace]] = {}
        self.sources: dict[tuple[Any, ...], Source] = {}

    def name_of_tag(self, tag: str) -> str:
        """Return the name of a value that was made before."""
        if tag not in self.names_by_tag:
            raise CannotStamp(f"a step takes the value {tag!r}, which no step before it makes")
        return self.names_by_tag[tag]

    def add(self, tag: str, wanted: str) -> str:
        """Give the new value with this tag a name like `wanted`, and return the name."""
        if tag in self.names_by_tag:
            raise CannotStamp(f"two steps make the value {tag!r}")
        self.names_by_tag[tag] = self.names.free(wanted)
        return self.names_by_tag[tag]

    def port(self, port: Port, row: _GrownRow, stem: str = "") -> Port:
        """Return the whole model's input of a row, which is like `port` of the deeper model. Its value has the port's
        name after `stem`."""
        tag, name = map(str, row.items)
        return Port(name, port.role, port.spec, self.add(tag, f"{stem}{name}"), port.shard)

    def result(self, result: Result, row: _GrownRow) -> Result:
        """Return the whole model's result of a row, which is like `result` of the deeper model."""
        port, value = result
        name, *rest = row.items
        # As in `_result_row`: what may grow stands at these places of the value.
        places = [place for place, item in places_of_value(value, place="") if not isinstance(item, float)]
        items = {place: self.number_or_name(item) for place, item in zip(places, rest, strict=True)}
        return replace(port, name=str(name)), with_value(value, place="", replacements=items)

    def number_or_name(self, item: Any) -> Any:
        """Return a number, or the name of a value by its tag."""
        return self.name_of_tag(item) if isinstance(item, str) else item

    def step_of_row(self, step: Step, row: _GrownRow, tags: Mapping[str, str]) -> Step:
        """Return the whole model's step of a row, which is like `step` of the deeper model; `tags` are the tags of the
        deeper model's values. The new step's value gets its name."""
        if step.name not in self.places:
            # The places of a step of the deeper model are the same for every layer that it stands for.
            places = [(place, item) for place, item in places_of(step) if not isinstance(item, float)]
            # An item that has a tag is the name of a value.
            self.places[step.name] = [
                _GrowingPlace(place, item, is_name=_tag_or_item(place, item, tags) is not item)
                for place, item in places
            ]
        changed: dict[str, Any] = {}
        # The first item is the step's own tag.
        for (place, before, is_name), item in zip(self.places[step.name][1:], row.items[1:], strict=True):
            name_or_item = self.name_of_tag(str(item)) if is_name else item
            if name_or_item != before:
                changed[place] = name_or_item
        # The parts of the source are taken out: steps on one line share a Source (`source`).
        source = {place.partition(".")[2]: changed.pop(place) for place in [*changed] if place.startswith("source.")}
        changed_step = with_places(step, changed)
        tag = str(row.items[0])
        name = self.add(tag, preferred_name(changed_step, tag))
        if name == changed_step.name and not source:
            return changed_step
        return replace(changed_step, name=name, source=self.source(step.source, source))

    def source(self, like: Source | None, changed: Mapping[str, Any]) -> Source | None:
        """Return a Source with some parts replaced; steps on one line share the object."""
        if like is None or not changed:
            return like
        parts = {**{part: getattr(like, part) for part in SOURCE}, **changed}
        key = tuple(parts.values())
        if key not in self.sources:
            self.sources[key] = Source(**parts)
        return self.sources[key]


def preferred_name(step: Step, tag: str) -> str:
    """Return the preferred name of a step: the name that torch.fx gave its value, which is in the tag; for an item of a
    tuple, the tuple's name with the index."""
    match step.target, step.args:
        case "operator.getitem", (Ref(name), int(index)) if index >= 0:
            return f"{name}_{index}"
    # A tag has `mm_0` for the first value that torch.fx calls `mm`, as its second is `mm_1`: see `_numbered_name`. The
    # result is what `Side.preferred_name` of `graph/fx/convert.py` gives the step of a graph that was not stamped.
    name = tag.partition(" ")[2].removesuffix("_0")
    return name.lstrip("_") or name
