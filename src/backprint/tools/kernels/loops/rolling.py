"""From the writes of one direction, of one length, to a Loop.

1. Each element has a time: the latest that it reads in a forward, the earliest in a backward. So an iteration is a set
   of elements, and what it takes from another iteration is carried.
2. An iteration is the body if all behind it, but the last, are the same program, with what they carry in the same
   places. `carried` elements stand for what it takes.
3. Iterations before them are found backwards: the values from which the body would have computed what the next
   iteration takes are solved for. A sum of which autograd computed one term alone is one whose other term is `zero`.
4. The body is then run on elements, from its first values to the last iteration, and each of its writes must be the
   very element that the program writes there. Nothing is assumed: what the loop does not write is written outside.

Words of this file; those of the package are in `nouns`:

- `times`: the time of each element, as in 1; None for one that reads no tensor with time, as a parameter or a number.
- `walk`: the times in the order in which the direction visits them, `step` (1 or -1) apart. An index is a place in it.
- Body: the program of one iteration. Its `carried` are the elements that the iteration where it was found takes; its
  `following`, what that hands on in their places, and its `writes` have `carried(index)` for them.
- known: in a backward, an element is known if it is a value of the forward, and not of the backward's own (History).
- `actual`: what the program itself writes, by tensor and time.
- `zero`: the element of a gradient that autograd did not compute, because nothing depends on it.
- `absent`: elements of the body that autograd left out in the first iteration, because a factor is `zero`, and that a
  kernel may not compute with 0 in its place: 0 * inf is NaN.
- edge: how many iterations at either end of the walk may be outside of the loop.

Elements of a whole program are walked with a list as a stack, since those of many steps are deeper than Python's
recursion may be.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from backprint.errors import RefusedError
from backprint.tools.kernels.loops.nouns import (
    Edge,
    Element,
    Elements,
    Loop,
    Now,
    Slot,
    Write,
    at_source,
    in_dependency_order,
)


def find_loop(
    writes: Sequence[Write], elements: Elements, length: int, step: int, history: History | None = None
) -> Loop:
    """Return the loop that writes the same as `writes`, one iteration a time in the order of `step`, 1 or -1; of
    several, the one with the fewest iterations outside of it. Refuse a program that is no loop, with the first problem
    that was met. A backward takes the values of its forward from a History; without one, a forward is looked at."""
    history = history or History(elements, loop=None, length=length)
    edge = history.edge
    walk = list(range(length))[::step]
    problem: RefusedError | None = None
    loops: list[Loop] = []
    for times in _candidate_times(writes, step, history):
        # the body is looked for at each index behind the edge; behind it there must be two more iterations to compare
        # it with, and the last, which may differ
        for index in range(edge, length - 3):
            try:
                body = _body_at(writes, elements, times, walk, index, history)
                loops.append(extend_body(body, writes, elements, walk, index, length, history))
                break
            except (RefusedError, NoMatchError) as error:
                problem = problem or (error if isinstance(error, RefusedError) else RefusedError(str(error)))
    if not loops:
        raise problem or RefusedError(f"{length} steps are too few to find a loop in")
    return min(loops, key=lambda loop: (loop.peeled, len(loop.start), len(loop.absent)))


def _candidate_times(writes: Sequence[Write], step: int, history: History) -> Iterator[dict[Element, int | None]]:
    """Yield the times of elements, in each way in which iterations may be cut apart: `find_loop` tries them in turn.
    `at_taker` is that of `element_times`, and makes no difference in a forward."""
    for at_taker in (True, False) if history.loop is not None else (True,):
        times = element_times(writes, step, history, at_taker)
        yield move_to_users(writes, times, step, history)
        yield times


def element_times(writes: Sequence[Write], step: int, history: History, at_taker: bool) -> dict[Element, int | None]:
    """Return the time of each element, that of the iteration that computes it: the newest, along the walk, of the times
    of what it reads; None if it reads no time. In a backward, the time of a value of the forward is that of the
    forward's iteration that makes it; if it is handed on and `at_taker`, of the one that takes it."""
    times: dict[Element, int | None] = {}
    newest = max if step > 0 else min
    for element in in_dependency_order(write.element for write in writes):
        if history.is_known(element):
            times[element] = history.time(element, at_taker)
            continue
        read_times = [element.args[1]] if element.op == "load" else []
        used_times = [time for time in (*read_times, *(times[item] for item in element.inputs)) if time is not None]
        times[element] = newest(used_times) if used_times else None
    return times


def move_to_users(
    writes: Sequence[Write], times: dict[Element, int | None], step: int, history: History
) -> dict[Element, int | None]:
    """Return the times, where an element that is computed of one varying value alone has the time that uses it. Then
    the value is carried, and not what is made of it: `h` and not `tanh(h)`, if only the next step uses that."""
    order = list(in_dependency_order(write.element for write in writes))
    # these stay: what is written at a slot, results without a slot, and what other iterations compute just as these
    # results are computed, so that it is carried from each iteration to the next as a result is out of the last
    fixed = {write.element for write in writes if write.slot is not None}
    kinds = operation_hashes(writes, times, history)
    kinds_of_results = {kinds.get(write.element) for write in writes if write.slot is None} - {None}
    fixed |= {element for element, kind in kinds.items() if kind in kinds_of_results and times[element] is not None}
    while True:
        origins = _origins(order, times, fixed, history)
        moved = _times_of_users(order, origins, times, step)
        # an element that could not move is a varying value by itself; what is computed of it has another origin then
        unmoved = {element for element in order if origins[element] is not element and moved[element] == times[element]}
        if not unmoved:
            return moved
        fixed |= unmoved


def _origins(
    order: Sequence[Element], times: Mapping[Element, int | None], fixed: Collection[Element], history: History
) -> dict[Element, Element]:
    """Return for each element the one varying value that it is computed of; the element itself if it is computed of
    several or of none, is `fixed`, or has to do with a value of the forward, whose time is the forward's."""
    origins: dict[Element, Element] = {}
    for element in order:
        varying = {origins[item] for item in element.inputs if times[item] is not None}
        has_one_origin = len(varying) == 1 and not any(map(history.is_known, (element, *varying)))
        origins[element] = varying.pop() if has_one_origin and element not in fixed else element
    return origins


def _times_of_users(
    order: Sequence[Element], origins: Mapping[Element, Element], times: Mapping[Element, int | None], step: int
) -> dict[Element, int | None]:
    """Return the times, with each element that has an origin other than itself moved to the first time, along the walk,
    at which it is used. One that nothing uses, or something without a time, stays."""
    users: dict[Element, list[Element]] = {}
    for element in order:
        for item in element.inputs:
            users.setdefault(item, []).append(element)
    first = min if step > 0 else max
    moved = dict(times)
    for element in reversed(order):  # users before what they use: they may have moved themselves
        if times[element] is None or origins[element] is element:
            continue
        user_times = [moved[user] for user in users.get(element, ())]
        if user_times and None not in user_times:
            moved[element] = first(user_times)  # type: ignore[type-var]  # no None, as tested
    return moved


class History:
    """The values of a forward, as its backward uses them: each is an element of an iteration of the forward's Loop.

    In a backward, an element that reads none of the tensors `tangents` is a value of the forward. `loop` is the
    forward's; it is None while the forward itself is looked at, and then nothing is known. `edge` is how many
    iterations at either end may be outside of a loop. `values_taken` has the values that the iteration of a time takes,
    and `carried_indices` the index of each. With `symbolic_steps`, the number of steps is an element `steps`, and else
    the number. `classify` fills `known` and `times`, and `body_element` fills `body_elements`.
    """

    def __init__(
        self, elements: Elements, loop: Loop | None, length: int, tangents: Iterable[str] = (), edge: int = 1
    ) -> None:
        self.elements, self.loop, self.length, self.tangents = elements, loop, length, frozenset(tangents)
        self.edge = edge
        self.symbolic_steps = True
        self.step = loop.step if loop else 1
        self.values_taken = _carried_by_time(loop, elements, length) if loop else {}
        self.carried_indices = {
            time: {item: index for index, item in enumerate(items)} for time, items in self.values_taken.items()
        }
        self.times: dict[Element, int | None] = {}
        self.known: dict[Element, bool] = {}
        self.body_elements: dict[tuple[Element, int], Element] = {}

    @property
    def end(self) -> int:
        """The time behind the last iteration of the forward."""
        assert self.loop is not None
        return self.loop.last.at(self.length) + self.step

    def steps(self, element: Element) -> Element:
        """Return what an element `steps` is in a program of this length: itself, or the number without
        `symbolic_steps`."""
        return element if self.symbolic_steps else self.elements.constant(self.length, element.dtype)

    def is_known(self, element: Element) -> bool:
        """Whether an element is a value of the forward that has a time."""
        if self.loop is None:
            return False
        self.classify(element)
        return self.known[element] and self.times[element] is not None

    def classify(self, root: Element) -> None:
        """Note in `known` and `times`, for an element and all that it is computed from, whether it is the forward's,
        and its time there."""
        stack = [root]
        while stack:
            element = stack[-1]
            missing = [item for item in element.inputs if item not in self.known]
            if element in self.known:
                stack.pop()
            elif missing:
                stack += missing
            else:
                self._classify_one(element)
                stack.pop()

    def _classify_one(self, element: Element) -> None:
        """Note in `known` and `times` what follows for an element from its inputs, which were classified before it."""
        read_times = [element.args[1]] if element.op == "load" else []
        times = [time for time in (*read_times, *map(self.times.get, element.inputs)) if time is not None]
        newest = max if self.step > 0 else min
        self.times[element] = newest(times) if times else None
        # `zero` is a gradient too
        is_tangent = element.op == "zero" or (element.op == "load" and element.args[0] in self.tangents)
        self.known[element] = not is_tangent and all(self.known[item] for item in element.inputs)

    def time(self, element: Element, at_taker: bool) -> int:
        """Return the time of a value of the forward: of the iteration that makes it, or if `at_taker` and it is handed
        on, of the next one, which takes it."""
        time = self.times[element]
        assert time is not None
        if not at_taker:
            return time
        # `values_taken` also has what the last iteration hands on, under a time that may be outside of the steps
        if time + self.step not in self.values_taken or not 0 <= time + self.step < self.length:
            return time
        try:
            self.body_element(element, time + self.step)
        except RefusedError:  # the next iteration neither takes it nor computes it of what it takes
            return time
        return time + self.step

    def body_element(self, element: Element, time: int) -> Element:
        """Return a value of the forward as an element of its loop's body, in the iteration of a time. Refuse one that
        this iteration neither computes nor takes from the one before. For example the `tanh(x_3 + h_2)` of time 3 is
        `tanh(load(x, Now) + carried(0))`, if the loop carries h."""
        key = (element, time)
        if key not in self.body_elements:
            indices = self.carried_indices.get(time)
            own_time = self.times[element]
            if indices is None or own_time not in (time, time - self.step):
                raise RefusedError(f"the backward uses a value of another time{at_source(element.source)}")
            replacements = {
                item: self.elements.make("carried", (index,), item.dtype) for item, index in indices.items()
            }
            # a first value that reads no time, as the number 0, is found anywhere: it does not stand for what is
            # carried
            for item in list(replacements):
                if self.forward_time(item) is None:
                    del replacements[item]
            self.body_elements[key] = to_body_element(element, replacements, self.times, time, self.elements)
        return self.body_elements[key]

    def forward_time(self, element: Element) -> int | None:
        """Classify an element, and return its time in the forward."""
        self.classify(element)
        return self.times[element]

    def value_at(self, body: Element, time: int) -> Element:
        """Return what an element of the forward's body is at a time: the inverse of `body_element`. Raise NoMatchError
        outside of the loop."""
        if time not in self.values_taken:
            raise NoMatchError(f"the forward has no iteration {time}")
        return run_body([body], self.values_taken[time], time, self.elements, history=self)[0]


def _carried_by_time(loop: Loop, elements: Elements, length: int) -> dict[int, list[Element]]:
    """Return the values that each iteration of a forward's loop takes, by its time, in the order of `loop.start`; under
    the time behind the last iteration, what the last one hands on."""
    first, last = loop.first.at(length), loop.last.at(length)
    values = [resolve_at_length(item, elements, length) for item in loop.start]
    values_taken = {}
    for time in range(first, last + loop.step, loop.step):
        values_taken[time] = values
        values = run_body(loop.following, values, time, elements)
    values_taken[last + loop.step] = values
    return values_taken


def resolve_at_length(
    root: Element,
    elements: Elements,
    length: int,
    history: History | None = None,
    values: Sequence[Element] = (),
) -> Element:
    """Return an element from outside of a loop (its `start`, `before` or `after`) as one of a program of `length`
    steps: with times for Edges, the forward's values for `kept`, and `values`, which the loop handed on, for
    `carried`. The loop of a forward has no `kept`, and needs a `history` only if it has `steps`."""
    memo: dict[Element, Element] = {}
    for element in in_dependency_order([root]):
        if element.op == "load" and isinstance(element.args[1], Edge):
            memo[element] = elements.load(element.args[0], element.args[1].at(length), element.dtype)
        elif element.op == "carried":
            memo[element] = values[element.args[0]]
        elif element.op == "steps" and history is not None:
            memo[element] = history.steps(element)
        elif element.op == "kept":
            assert history is not None
            assert history.loop is not None
            slot = element.args[1]
            at = history.end if slot is None else slot.at(length)  # None: what the forward's last iteration hands on
            memo[element] = history.value_at(element.args[0], at)
        else:
            memo[element] = _fold_zero(replace_inputs(element, memo, elements))
    return memo[root]


# ---- The body: neighbouring iterations that are one program


@dataclass(frozen=True, slots=True)
class Body:
    """An iteration as a program. `carried` are the elements of the program that it takes where it was found on the
    walk. `following`, what it hands on in the place of each, and `writes` have `carried(index)` for these and Now for
    its time."""

    carried: tuple[Element, ...]
    following: tuple[Element, ...]
    writes: tuple[Write, ...]


@dataclass(slots=True)
class IterationMatch:
    """A walk along two iterations at once, those of `time` and `time + step`, which must be the same program but for
    the `step` between their slots.

    `pairs` maps each element that is carried into the one iteration to the one that is carried into the next in its
    place, in the order in which they are met; `same` does so for the elements that both compute alike.
    """

    times: Mapping[Element, int | None]
    time: int
    step: int
    pairs: dict[Element, Element]
    same: dict[Element, Element]
    history: History

    def match(self, left: Element, right: Element) -> None:
        """Match an element of the one iteration with its counterpart in the next, and all that they are computed from;
        raise RefusedError if they are different programs."""
        stack = [(left, right)]
        while stack:
            element, counterpart = stack.pop()
            if element in self.same or element in self.pairs:
                if self.same.get(element, self.pairs.get(element)) is not counterpart:
                    raise RefusedError(
                        f"an iteration uses one value where the next uses two{at_source(counterpart.source)}"
                    )
                continue
            if element is counterpart and self.times[element] is None:
                continue  # as a parameter, which is the same at every time
            if self.history.is_known(element) and self.history.is_known(counterpart):
                if self.history.body_element(element, self.time) is not self.history.body_element(
                    counterpart, self.time + self.step
                ):
                    raise RefusedError(f"iterations use different values of the forward{at_source(counterpart.source)}")
                self.same[element] = counterpart
                continue
            is_computed_here = self.times[element] == self.time and self.times[counterpart] == self.time + self.step
            if element.op == counterpart.op == "load" and element.args[0] == counterpart.args[0] and is_computed_here:
                self.same[element] = (
                    counterpart  # one tensor, read by each at its own time; `check` would compare the times
                )
            elif is_computed_here:
                self.check(element, counterpart)
                self.same[element] = counterpart
                stack += list(zip(element.inputs, counterpart.inputs, strict=True))
            else:
                # carried into an iteration, or a number; what this iteration computes itself, and a number, must be
                # the same operation in the next
                if self.times[element] == self.time or "constant" in (element.op, counterpart.op):
                    self.check(element, counterpart)
                self.pairs[element] = counterpart

    def check(self, element: Element, counterpart: Element) -> None:
        """Raise unless two elements are the same operation on as many inputs, and the numbers among these are the
        same."""
        if "constant" == element.op == counterpart.op and element.dtype == counterpart.dtype:
            raise _number_changes(element, counterpart)
        signatures = [
            (item.op, item.dtype, [arg for arg in item.args if not isinstance(arg, Element)], len(item.inputs))
            for item in (element, counterpart)
        ]
        if signatures[0] != signatures[1]:
            raise RefusedError(
                f"the program of an iteration is not that of the next{at_source(counterpart.source)}: {element.op} and "
                f"{counterpart.op}"
            )
        for mine, other in zip(element.inputs, counterpart.inputs, strict=True):
            if mine.op == other.op == "constant" and mine is not other:
                raise _number_changes(mine, other, counterpart)


class NumberChanges(RefusedError):
    """A number differs from iteration to iteration."""


def _number_changes(here: Element, there: Element, user: Element | None = None) -> NumberChanges:
    """Return the error of a number that differs from iteration to iteration, at the place of `user`, which is computed
    of it, or at its own if there is none."""
    return NumberChanges(
        f"a number changes with time: {here.args[0]!r}, then {there.args[0]!r}{at_source((user or there).source)}. "
        "Each iteration is then another program. Pass the numbers as a tensor, one a step, and read it at t: c[t]"
    )


def _body_at(
    writes: Sequence[Write],
    elements: Elements,
    times: Mapping[Element, int | None],
    walk: Sequence[int],
    index_of_body: int,
    history: History,
) -> Body:
    """Return the program of the iteration at `index_of_body` of the walk; raise RefusedError unless those behind it,
    but the last, are the same program."""
    writes_by_time: dict[int, list[Write]] = {}
    for write in writes:
        if isinstance(write.slot, int):
            writes_by_time.setdefault(write.slot, []).append(write)
    handed_on = values_handed_on(writes, times, history)
    roots: dict[int, list[tuple[Element, Element]]] = {}
    for index in range(index_of_body, len(walk) - 2):  # each is compared with the next, and the last of all with none
        time, after = walk[index], walk[index + 1]
        roots[index] = [
            *_match_writes(writes_by_time.get(time, []), writes_by_time.get(after, [])),
            *_match_handed_on(handed_on, time, after),
        ]
    # the body: what one iteration takes from the one before is `carried(0)`, `carried(1)`, …
    match, time = _match_iterations(roots, times, walk, history)[index_of_body], walk[index_of_body]
    carried = tuple(match.pairs)
    replacements = {item: elements.make("carried", (index,), item.dtype) for index, item in enumerate(carried)}

    def in_body(element: Element) -> Element:
        return to_body_element(element, replacements, times, time, elements, history)

    written = {write: in_body(write.element) for write in writes_by_time.get(time, [])}
    following_values = tuple(in_body(match.pairs[item]) for item in carried)
    return Body(carried, following_values, tuple(Write(write.tensor, Now(), item) for write, item in written.items()))


def _match_iterations(
    roots: dict[int, list[tuple[Element, Element]]],
    times: Mapping[Element, int | None],
    walk: Sequence[int],
    history: History,
) -> dict[int, IterationMatch]:
    """Return the match of each iteration with the next, by its index in the walk. `roots` has the pairs of elements
    that are matched first; what the iterations turn out to hand on is added to it."""
    step = walk[1] - walk[0]
    matches: dict[int, IterationMatch] = {}
    # What is handed on is computed in its iteration, which may take more for it: so there are rounds. Where 4 are not
    # enough, `extend_body` finds that the body does not write what the program writes.
    for _ in range(4):
        for index, root_pairs in roots.items():
            match = matches[index] = IterationMatch(times, walk[index], step, pairs={}, same={}, history=history)
            for left, right in root_pairs:
                match.match(left, right)
        if not _add_roots(roots, matches):
            break
    return matches


def _match_writes(mine: Sequence[Write], other: Sequence[Write]) -> list[tuple[Element, Element]]:
    """Return pairs of what two times write to the same tensors; raise if they write to others."""
    if [write.tensor for write in mine] != [write.tensor for write in other]:
        raise RefusedError("not every step is written alike")
    return [(left.element, right.element) for left, right in zip(mine, other, strict=True)]


def _add_roots(roots: dict[int, list[tuple[Element, Element]]], matches: Mapping[int, IterationMatch]) -> bool:
    """Add to the roots of each iteration what the next one takes from it, paired with what the one after that takes in
    its place: both must be computed alike. Return whether there was such a pair that had not been compared.

    If `h2` is computed of `h1`, and `h3` of `h2`, then the iterations that compute `h1` and `h2` get the root (h1, h2).
    """
    is_grown = False
    for index in sorted(roots):
        if index + 1 not in matches:
            continue
        match, pairs_of_next = matches[index], matches[index + 1].pairs
        new_pairs = [
            (right, pairs_of_next[right])
            for right in match.pairs.values()
            if right in pairs_of_next and right not in match.same and right not in match.pairs
        ]
        roots[index] += [pair for pair in new_pairs if pair not in roots[index]]
        is_grown = is_grown or bool(new_pairs)
    return is_grown


def operation_hashes(
    writes: Sequence[Write], times: Mapping[Element, int | None], history: History
) -> dict[Element, int]:
    """Return a hash for each element of what its own iteration computes: equal for the same operations at two times,
    where all that comes from other times counts as "carried", and what has no time, or is the forward's, as "value".
    Values of the forward themselves get no hash."""
    hashes: dict[Element, int] = {}

    def counts_as(element: Element, time: int | None) -> Any:
        """Return what an element counts as in the hash of one that is computed of it at `time`."""
        if times.get(element) is None or history.is_known(element):
            return "value"
        return hashes[element] if times[element] == time else "carried"

    for element in in_dependency_order(write.element for write in writes):
        if not history.is_known(element):
            constants = [arg for arg in element.args if not isinstance(arg, Element)]
            if element.op == "load":
                constants = constants[:1]  # the tensor, without the time
            input_hashes = (counts_as(item, times[element]) for item in element.inputs)
            hashes[element] = hash((element.op, element.dtype, repr(constants), *input_hashes))
    return hashes


def values_handed_on(
    writes: Sequence[Write], times: Mapping[Element, int | None], history: History
) -> dict[int, dict[Any, list[Element]]]:
    """Return, by time and by kind (its hash of `operation_hashes`), the elements that one time computes and another
    uses, or that are results without a slot."""
    hashes = operation_hashes(writes, times, history)
    handed_on: dict[int, dict[Element, None]] = {}  # dicts as sets, which keep the order
    for element in hashes:
        for item in element.inputs:
            if times[item] not in (None, times[element]) and not history.is_known(item):
                handed_on.setdefault(times[item], {})[item] = None  # type: ignore[arg-type]  # not None, as tested
    for write in writes:
        time = times[write.element]
        if write.slot is None and time is not None and not history.is_known(write.element):
            handed_on.setdefault(time, {})[write.element] = None
    by_hash: dict[int, dict[Any, list[Element]]] = {}
    for at, items in handed_on.items():
        for item in items:
            by_hash.setdefault(at, {}).setdefault(hashes[item], []).append(item)
    return by_hash


def _match_handed_on(
    handed_on: Mapping[int, Mapping[Any, list[Element]]], time: int, after: int
) -> list[tuple[Element, Element]]:
    """Return pairs of what two times hand on: those of a kind that each of them has just once, so that it is clear
    which is which."""
    mine, other = handed_on.get(time, {}), handed_on.get(after, {})
    return [(items[0], other[kind][0]) for kind, items in mine.items() if len(items) == len(other.get(kind, ())) == 1]


def to_body_element(
    root: Element,
    replacements: Mapping[Element, Element],
    times: Mapping[Element, int | None],
    time: int,
    elements: Elements,
    history: History | None = None,
) -> Element:
    """Return an element of the iteration of `time` as an element of a body: with `replacements` for what it carries,
    Now for its time, and `kept` for values of the forward. Refuse one that reads another time."""
    memo = dict(replacements)
    stack = [root]
    while stack:
        element = stack[-1]
        if element in memo:
            stack.pop()
            continue
        if history is not None and history.is_known(element):
            memo[element] = elements.make("kept", (history.body_element(element, time), Now()), element.dtype)
        elif element.op == "load" and element.args[1] is not None:
            if element.args[1] != time:
                raise RefusedError(
                    f"a value goes further than to the next iteration, or {element.args[0]} is read at two times"
                    f"{at_source(element.source)}"
                )
            memo[element] = elements.load(element.args[0], Now(), element.dtype)
        else:
            missing = [item for item in element.inputs if item not in memo]
            if missing:
                stack += missing
                continue
            memo[element] = replace_inputs(element, memo, elements)
    return memo[root]


def replace_inputs(element: Element, memo: Mapping[Element, Element], elements: Elements) -> Element:
    """Return the same operation on other inputs: those that `memo` has for its own."""
    if not element.inputs:
        return element
    return elements.make_like(element, [memo[item] if isinstance(item, Element) else item for item in element.args])


# ---- Running the body on elements


def run_body(
    roots: Sequence[Element],
    values: Sequence[Element],
    time: int,
    elements: Elements,
    absent: dict[Element, None] | None = None,
    history: History | None = None,
) -> list[Element]:
    """Return what the `roots` of a body are in the iteration of a time that takes `values`. Operations on `zero` are
    left out, as autograd leaves them out. The elements of the body that are, and that may be NaN where a kernel
    computes them with 0, are added to `absent`, if it is passed. A body of a forward needs no `history`."""
    memo: dict[Element, Element] = {}  # what each element of the body is in this iteration
    for element in in_dependency_order(roots):
        if element.op == "carried":
            memo[element] = values[element.args[0]]
        elif element.op == "steps" and history is not None:
            memo[element] = history.steps(element)
        elif element.op == "kept":
            assert history is not None  # only a backward has `kept`
            memo[element] = history.value_at(element.args[0], time)
        elif element.op == "load" and isinstance(element.args[1], Now):
            memo[element] = elements.load(element.args[0], time + element.args[1].offset, element.dtype)
        else:
            memo[element] = _fold_zero(replace_inputs(element, memo, elements))
            if absent is not None and memo[element].op == "zero" and _may_be_infinite(element, memo):
                absent[element] = None
    return [memo[root] for root in roots]


def _fold_zero(element: Element) -> Element:
    """Return what autograd has for an operation on a gradient that it did not compute: the other term of a sum, and
    `zero` for a product. Other elements are returned as they are."""
    is_zero = [item.op == "zero" for item in element.inputs]
    if not any(is_zero):
        return element
    left, right = element.inputs[0], element.inputs[-1]  # the same, if there is one input
    match element.op:
        case "add":
            return right if is_zero[0] else left
        case "sub" if is_zero[1]:  # of `zero - x`, autograd has -x: another operation than the body's
            return left
        case "mul":
            return left if is_zero[0] else right
        case "truediv" if is_zero[0]:
            return left
        case "neg" | "to_dtype" | "row_sum":
            return left
        case "where" if is_zero[1] and is_zero[2]:  # the inputs of `where`: the condition, and two values
            return right
        # a choice between `zero` and the number 0 is `zero`
        case "where" if all(
            item.op in ("zero", "constant") and not (item.args and item.args[0]) for item in element.inputs[1:]
        ):
            return left if is_zero[0] else next(item for item in element.inputs[1:] if item.op == "zero")
    return element


def _may_be_infinite(element: Element, memo: Mapping[Element, Element]) -> bool:
    """Whether an operation that autograd left out may be NaN where a kernel computes it with 0: a product with what may
    be infinite, or a division by what may be 0. `memo` has what the inputs are in this iteration."""
    if element.op == "mul":
        return not all(memo[item].op == "zero" or is_finite(memo[item]) for item in element.inputs)
    if element.op == "truediv":  # it was left out because its dividend is `zero`
        divisor = element.inputs[1]
        return not (divisor.op == "constant" and divisor.args[0] != 0)
    return False


def is_finite(element: Element) -> bool:
    """Whether an element is finite whatever the program reads: computed of numbers and of bools by operations that are
    finite on these."""
    if element.op == "constant":
        return math.isfinite(element.args[0])
    if element.op == "to_dtype":
        return element.inputs[0].dtype == torch.bool or is_finite(element.inputs[0])
    return element.op in ("add", "sub", "mul", "neg") and all(map(is_finite, element.inputs))


# ---- Solving for what an iteration was given


class NoMatchError(Exception):
    """The body cannot have computed this."""


def solve_values(
    wanted: Sequence[tuple[Element, Element]], dtypes: Sequence[Any], time: int, elements: Elements, history: History
) -> list[Element]:
    """Return the values that the iteration of a time must take so that each element of the body becomes the one beside
    it in `wanted`, in the order of `dtypes`, which are theirs; `zero` where nothing depends on a value. Raise
    RefusedError if there are no such values."""
    values: dict[int, Element] = {}
    for body, actual in wanted:
        try:
            values = _unify(body, actual, values, time, elements, history)
        except NoMatchError as error:
            raise RefusedError(str(error)) from None
    return [values.get(index, elements.zero(dtype)) for index, dtype in enumerate(dtypes)]


def _unify(
    body: Element, actual: Element, values: dict[int, Element], time: int, elements: Elements, history: History
) -> dict[int, Element]:
    """Return `values`, by index, with those that make an element of the body the actual one of the program; raise
    NoMatchError if none do. For example, `add(carried(0), load(x, Now))` and `add(h, load(x, 3))` at time 3 ->
    {0: h}."""
    if body is actual:
        return values
    if body.op == "carried":
        return bind_value(body.args[0], actual, values)
    if actual.op == "zero":
        return solve_zero(body, values, time, elements)
    if body.op == "kept" and history.value_at(body.args[0], time) is actual:
        return values
    if body.op == "load":
        slot = body.args[1]
        read = elements.load(body.args[0], time + slot.offset, body.dtype) if isinstance(slot, Now) else body
        if read is actual:
            return values
    # the same operation: solve for its inputs
    body_numbers, actual_numbers = (
        [arg for arg in item.args if not isinstance(arg, Element)] for item in (body, actual)
    )
    if body.op == actual.op and body.dtype == actual.dtype and body_numbers == actual_numbers and body.inputs:
        try:
            attempt = values
            for mine, other in zip(body.inputs, actual.inputs, strict=True):
                attempt = _unify(mine, other, attempt, time, elements, history)
            return attempt
        except (NoMatchError, ValueError):  # ValueError: another number of inputs
            pass
    if body.op == "add":
        # autograd computed one term alone, either of the two: the other is `zero`
        for term, rest in (body.inputs, body.inputs[::-1]):
            try:
                return solve_zero(rest, _unify(term, actual, values, time, elements, history), time, elements)
            except NoMatchError:
                continue
    raise NoMatchError(f"an iteration at an end is another program{at_source(body.source)}")


def bind_value(index: int, actual: Element, values: dict[int, Element]) -> dict[int, Element]:
    """Return the values with one more; raise NoMatchError if that index has another already."""
    known = values.get(index, actual)
    if known is not actual:
        raise NoMatchError("a carried value would have two first values")
    return {**values, index: actual}


def solve_zero(body: Element, values: dict[int, Element], time: int, elements: Elements) -> dict[int, Element]:
    """Return `values` with those that make an element of the body `zero`, a gradient that was not computed; raise
    NoMatchError if none do. The inverse of `_fold_zero`."""
    if body.op == "carried":
        return bind_value(body.args[0], elements.zero(body.dtype), values)
    if body.op in ("neg", "to_dtype", "truediv", "row_sum"):
        return solve_zero(body.inputs[0], values, time, elements)
    if body.op in ("add", "sub"):  # both terms
        return solve_zero(body.inputs[1], solve_zero(body.inputs[0], values, time, elements), time, elements)
    if body.op == "where":
        for item in body.inputs[1:]:  # both choices, and not the condition
            if item.op != "constant":  # nothing to solve for; `_fold_zero` folds a choice beside the number 0
                values = solve_zero(item, values, time, elements)
        return values
    # one factor that is `zero` is enough
    if body.op == "mul":
        for item in body.inputs:
            try:
                return solve_zero(item, values, time, elements)
            except NoMatchError:
                continue
    raise NoMatchError(f"an iteration at an end computes what others do not{at_source(body.source)}")


# ---- The loop: as far as the body reaches


def extend_body(
    body: Body,
    writes: Sequence[Write],
    elements: Elements,
    walk: Sequence[int],
    index_of_body: int,
    length: int,
    history: History,
) -> Loop:
    """Return the Loop of a body that was found at `index_of_body` of the walk: back to the first iteration that it
    describes and on to the last, with the rest outside. Refuse if that is more than `history.edge` iterations at either
    end."""
    actual = {(write.tensor, write.slot): write.element for write in writes}
    # backwards: solve for what the iteration before took; step 3 of this module's docstring
    values, first = tuple(body.carried), index_of_body
    refusal: RefusedError | None = None  # of the iteration that is not the body, if it says why
    while first > 0:
        try:
            values = _taken_before(body, values, actual, walk[first - 1], elements, history)
        except (RefusedError, KeyError, NoMatchError) as error:
            refusal = error if isinstance(error, RefusedError) else None
            break
        first -= 1
    if first > history.edge:
        raise refusal or RefusedError("the first iterations are other programs")
    start, last = values, first - 1  # no iteration is known to be right yet
    # forwards: run the body from its first values; step 4
    roots = [*body.following, *(write.element for write in body.writes)]
    absent: dict[Element, None] = {}
    covered_slots: set[tuple[str, Slot]] = set()
    for index in range(first, length):
        time = walk[index]
        absent_here = absent if index == first else None  # what is absent is asked of the first iteration
        results = run_body(roots, values, time, elements, absent_here, history)
        following, written = results[: len(start)], results[len(start) :]
        stores = {(write.tensor, time): item for write, item in zip(body.writes, written, strict=True)}
        if any(actual.get(key) is not item for key, item in stores.items()):
            break  # this iteration and those behind it are written outside of the loop
        covered_slots |= set(stores)
        values, last = tuple(following), index
    if length - 1 - last > history.edge:
        raise RefusedError("the last iterations are other programs")
    return _build_loop(
        body, start, values, writes, covered_slots, elements, (first, last), walk, length, absent, history
    )


def _taken_before(
    body: Body,
    values: Sequence[Element],
    actual: Mapping[tuple[str, Slot], Element],
    time: int,
    elements: Elements,
    history: History,
) -> tuple[Element, ...]:
    """Return what the iteration at `time` takes, if it is the body, hands on `values`, and writes what the program
    writes there (`actual`). If it is another program, raise RefusedError or NoMatchError; KeyError if the program does
    not write there at all."""
    wanted = list(zip(body.following, values, strict=True))
    wanted += [(write.element, actual[write.tensor, time]) for write in body.writes]
    dtypes = [item.dtype for item in body.carried]
    taken = solve_values(wanted, dtypes, time, elements, history)
    computed = run_body([element for element, _ in wanted], taken, time, elements, history=history)
    # where `zero` is wanted, nothing is compared yet: step 4 compares what the iterations write
    if any(item is not value for item, (_, value) in zip(computed, wanted, strict=True) if value.op != "zero"):
        raise RefusedError("the first iterations are other programs")
    return tuple(taken)


def _build_loop(
    body: Body,
    start: tuple[Element, ...],
    values_at_end: Sequence[Element],
    writes: Sequence[Write],
    covered_slots: set[tuple[str, Slot]],
    elements: Elements,
    first_and_last: tuple[int, int],
    walk: Sequence[int],
    length: int,
    absent: Iterable[Element],
    history: History,
) -> Loop:
    """Return the Loop with the writes that its iterations do not cover: `after` it if they use what it hands on, and
    else `before` it. `start` and `values_at_end` are the values that its first iteration takes and its last hands on,
    `first_and_last` the indices of these two in the walk, and `covered_slots` the tensors and times that the iterations
    write."""
    # outside of the loop, `carried` stands for what the last iteration hands on; not for a value that reads nothing,
    # as a number: where that is used, it is the same without the loop
    replacements = {
        item: elements.make("carried", (index,), item.dtype)
        for index, item in enumerate(values_at_end)
        if any(part.op == "load" for part in in_dependency_order([item]))
    }
    outside = Edges(elements, length, history)
    before: list[Write] = []
    after: list[Write] = []
    for write in writes:
        if (write.tensor, write.slot) in covered_slots:
            continue
        element = outside.with_edges(write.element, replacements)
        slot = outside.edge(write.slot) if isinstance(write.slot, int) else write.slot
        uses = any(item.op == "carried" for item in in_dependency_order([element]))
        (after if uses else before).append(Write(write.tensor, slot, element))
    first, last = first_and_last
    step = walk[1] - walk[0]
    # places are counted along the walk, which begins at the last time if the step is -1
    loop = Loop(
        step=step,
        first=Edge(first, last=step < 0),
        last=Edge(length - 1 - last, last=step > 0),
        start=tuple(outside.with_edges(item, replacements={}) for item in start),
        following=body.following,
        writes=body.writes,
        before=tuple(before),
        after=tuple(after),
        absent=tuple(absent),
    )
    return canonical_loop(loop, elements)


@dataclass(slots=True)
class Edges:
    """Elements outside of the loop, with an Edge for each time, counted from the nearer end: the same for every
    length."""

    elements: Elements
    length: int
    history: History

    def edge(self, slot: int) -> Edge:
        """Return a time as an Edge; refuse one that is further than `history.edge` from both ends."""
        if slot <= self.history.edge:
            return Edge(slot)
        if self.length - 1 - slot <= self.history.edge:
            return Edge(self.length - 1 - slot, last=True)
        raise RefusedError("a value of the middle of the loop is used outside of it")

    def kept_element(self, element: Element) -> Element | None:
        """Return a value of the forward as `kept` of the iteration that makes it, or of the next one, which takes it;
        None if it is of no iteration of the loop."""
        time, loop = self.history.times[element], self.history.loop
        if time is None or loop is None:
            return None
        for at in (time, time + self.history.step):
            if at in self.history.values_taken:
                slot = None if at == self.history.end else self.edge(at)  # None: what the last iteration hands on
                return self.elements.make("kept", (self.history.body_element(element, at), slot), element.dtype)
        return None

    def with_edges(self, root: Element, replacements: Mapping[Element, Element]) -> Element:
        """Return an element with an Edge for each time, `replacements` for what the loop hands on, and `kept` for
        values of the forward. A value that is of no iteration of the forward's loop is computed again."""
        memo: dict[Element, Element] = dict(replacements)
        stack = [root]
        while stack:
            element = stack[-1]
            if element in memo:
                stack.pop()
            elif self.history.is_known(element) and (value := self.kept_element(element)) is not None:
                memo[element] = value
            elif element.op == "load" and isinstance(element.args[1], int):
                memo[element] = self.elements.load(element.args[0], self.edge(element.args[1]), element.dtype)
            elif missing := [item for item in element.inputs if item not in memo]:
                stack += missing
            else:
                memo[element] = replace_inputs(element, memo, self.elements)
        return memo[root]


def writes_at_length(loop: Loop, elements: Elements, length: int, history: History) -> dict[tuple[str, Slot], Element]:
    """Return what a loop writes in a program of `length` steps, by tensor and time: to be compared with the program's
    own writes."""
    values = [resolve_at_length(item, elements, length, history) for item in loop.start]
    stores: dict[tuple[str, Slot], Element] = {}
    first, last = loop.first.at(length), loop.last.at(length)
    for time in range(first, last + loop.step, loop.step):
        roots = [*loop.following, *(write.element for write in loop.writes)]
        results = run_body(roots, values, time, elements, history=history)
        values = results[: len(values)]
        for write, item in zip(loop.writes, results[len(values) :], strict=True):
            stores[write.tensor, time] = item
    for write in (*loop.before, *loop.after):
        slot = write.slot.at(length) if isinstance(write.slot, Edge) else write.slot
        stores[write.tensor, slot] = resolve_at_length(write.element, elements, length, history, values)
    return stores


def canonical_loop(loop: Loop, elements: Elements) -> Loop:
    """Return a loop without the carried values that nothing needs, and with the others in the order in which the body
    needs them: then the same loop of two lengths is equal."""
    indices_used = _carried_indices_used(loop)
    new_indices = {old: new for new, old in enumerate(indices_used)}

    def renumber(root: Element) -> Element:
        """Return an element with the new indices of carried values."""
        memo: dict[Element, Element] = {}
        for element in in_dependency_order([root]):
            if element.op == "carried":
                memo[element] = elements.make("carried", (new_indices[element.args[0]],), element.dtype)
            else:
                memo[element] = replace_inputs(element, memo, elements)
        return memo[root]

    def renumber_writes(writes: Iterable[Write]) -> tuple[Write, ...]:
        return tuple(Write(write.tensor, write.slot, renumber(write.element)) for write in writes)

    following = tuple(renumber(loop.following[index]) for index in indices_used)
    body = renumber_writes(loop.writes)
    live = set(in_dependency_order([*following, *(write.element for write in body)]))
    # an absent element that is computed of a carried value that nothing needs is not in the loop any more
    absent = [renumber(item) for item in loop.absent if set(_carried_of([item])) <= set(new_indices)]
    return replace(
        loop,
        start=tuple(loop.start[index] for index in indices_used),
        following=following,
        writes=body,
        after=renumber_writes(loop.after),  # `before` has no carried values
        # in one order for all lengths, by how many elements each is computed from
        absent=tuple(
            sorted(
                dict.fromkeys(item for item in absent if item in live),
                key=lambda item: len(list(in_dependency_order([item]))),
            )
        ),
    )


def _carried_indices_used(loop: Loop) -> list[int]:
    """Return the indices of the carried values that the writes of a loop need, of one iteration or through later ones,
    in the order in which they are met."""
    indices_used: list[int] = []
    pending = _carried_of(write.element for write in (*loop.writes, *loop.after))
    while pending:
        index = pending.pop(0)
        if index not in indices_used:
            indices_used.append(index)
            pending += _carried_of([loop.following[index]])
    return indices_used


def _carried_of(roots: Iterable[Element]) -> list[int]:
    """Return the indices of the carried values that elements are computed from, in the order in which they are met."""
    return [item.args[0] for item in in_dependency_order(roots) if item.op == "carried"]
