"""From the writes of one direction, of one length, to a Loop.

1. Each element has a time: the latest that it reads in a forward, the earliest in a backward. So an iteration is a set
   of elements, and what it takes from another iteration is carried.
2. An iteration is the body if all behind it, but the last, are the same program, with what they carry in the same
   places. `carried` elements stand for what it takes.
3. Iterations before them are found backwards: the values from which the body would have computed what the next
   iteration takes are solved for. A sum of which autograd computed one term alone is one whose other term is `zero`.
4. The body is then run on elements, from its first values to the last iteration, and each of its writes must be the
   very element that the program writes there. Nothing is assumed: what the loop does not write is written outside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from backprint.errors import RefusedError
from backprint.graph.nouns import Source
from backprint.tools.kernels.loops.nouns import Edge, Element, Elements, Loop, Now, Slot, Write, behind


def rolled(writes: Sequence[Write], elements: Elements, length: int, step: int, history: History | None = None) -> Loop:
    """Return the loop that writes the same as `writes`, one iteration a time in the order of `step`, 1 or -1; of
    several, the one with the fewest iterations outside of it. Refuse a program that is no loop. A backward takes the
    values of its forward from a History."""
    history = history or History(elements, None, length)
    edge = history.edge
    walk = list(range(length)) if step > 0 else list(range(length - 1, -1, -1))
    problem: RefusedError | None = None
    loops: list[Loop] = []
    for times in _ways_to_time(writes, step, history):
        # an iteration in the middle, with two more to compare and the last, which may differ
        for place in range(edge, length - 3):
            try:
                body = _body_at(writes, elements, times, walk, place, history)
                loops.append(extended(body, writes, elements, walk, place, length, history))
                break
            except (RefusedError, Unlike) as error:
                problem = problem or (error if isinstance(error, RefusedError) else RefusedError(str(error)))
    if not loops:
        raise problem or RefusedError(f"{length} steps are too few to find a loop in")
    return min(loops, key=lambda loop: (loop.peeled, len(loop.start), len(loop.absent)))


def _ways_to_time(writes: Sequence[Write], step: int, history: History) -> Iterator[dict[Element, int | None]]:
    """Yield the times of elements, in each way in which iterations may be cut apart: `rolled` tries them in turn."""
    for as_taken in (True, False) if history.loop is not None else (True,):
        times = times_of(writes, step, history, as_taken)
        yield later(writes, times, step, history)
        yield times


def times_of(writes: Sequence[Write], step: int, history: History, as_taken: bool) -> dict[Element, int | None]:
    """Return the time of each element, that of the iteration that computes it: the newest of what it reads; None if it
    reads no time. `as_taken`: a value that the forward hands on has the time of the iteration that takes it, and else
    of the one that makes it."""
    times: dict[Element, int | None] = {}
    newest = max if step > 0 else min
    for element in behind(write.element for write in writes):
        if history.is_known(element):
            times[element] = history.time(element, as_taken)
            continue
        own = [element.args[1]] if element.op == "load" else []
        known = [time for time in (*own, *(times[item] for item in element.inputs)) if time is not None]
        times[element] = newest(known) if known else None
    return times


def later(
    writes: Sequence[Write], times: dict[Element, int | None], step: int, history: History
) -> dict[Element, int | None]:
    """Return the times, where an element that is computed of one varying value alone has the time that uses it. Then
    the value is carried, and not what is made of it: `h` and not `tanh(h)`, if only the next step uses that."""
    users: dict[Element, list[Element]] = {}
    order = list(behind(write.element for write in writes))
    for element in order:
        for item in element.inputs:
            users.setdefault(item, []).append(element)
    # these stay: what is written at a slot, and what is computed as the results without a slot are
    stuck = {write.element for write in writes if write.slot is not None}
    kinds = kinds_of(writes, times, history)
    final = {kinds.get(write.element) for write in writes if write.slot is None} - {None}
    stuck |= {element for element, kind in kinds.items() if kind in final and times[element] is not None}
    earliest = min if step > 0 else max
    while True:  # what cannot move is a value by itself, and then others cannot either
        moved = dict(times)
        # the one varying value that an element is computed of, or the element itself
        origins: dict[Element, Element] = {}
        for element in order:
            varying = {origins[item] for item in element.inputs if times[item] is not None}
            is_of_one = len(varying) == 1 and not any(map(history.is_known, (element, *varying)))
            origins[element] = varying.pop() if is_of_one and element not in stuck else element
        more = set()
        for element in reversed(order):
            if times[element] is None or origins[element] is element:
                continue
            uses = [moved[user] for user in users.get(element, ())]
            if uses and None not in uses:
                moved[element] = earliest(uses)  # type: ignore[type-var]  # no None, as tested
            if moved[element] == times[element]:
                more.add(element)
        if not more:
            return moved
        stuck |= more


class History:
    """The values of a forward, as its backward uses them: each is an element of an iteration of the forward's Loop.

    In a backward, an element that reads no tangent is a value of the forward. `edge` is how many iterations at either
    end may be outside of a loop. `taken` has the values that the iteration of a time takes, and `handed` the index of
    each. While it `counts`, the number of steps is an element `steps`, and else the number. Without a loop (of a
    forward) nothing is known.
    """

    def __init__(
        self, elements: Elements, loop: Loop | None, length: int, tangents: Iterable[str] = (), edge: int = 1
    ) -> None:
        self.elements, self.loop, self.length, self.tangents = elements, loop, length, frozenset(tangents)
        self.edge = edge
        self.counts = True
        self.step = loop.step if loop else 1
        self.taken = _carried_by_time(loop, elements, length) if loop else {}
        self.handed = {time: {item: index for index, item in enumerate(items)} for time, items in self.taken.items()}
        self.times: dict[Element, int | None] = {}
        self.known: dict[Element, bool] = {}
        self.patterns: dict[tuple[Element, int], Element] = {}

    @property
    def end(self) -> int:
        """The time behind the last iteration of the forward."""
        assert self.loop is not None
        return self.loop.last.at(self.length) + self.step

    def steps(self, element: Element) -> Element:
        """Return what an element `steps` is in a program of this length: itself, or the number unless it `counts`."""
        return element if self.counts else self.elements.constant(self.length, element.dtype)

    def is_known(self, element: Element) -> bool:
        """Whether an element is a value of the forward that has a time."""
        if self.loop is None:
            return False
        self.look(element)
        return self.known[element] and self.times[element] is not None

    def look(self, root: Element) -> None:
        """Note in `known` and `times`, for an element and all behind it, whether it is the forward's, and its time
        there."""
        stack = [root]
        while stack:
            element = stack[-1]
            missing = [item for item in element.inputs if item not in self.known]
            if element in self.known or not missing:
                stack.pop()
                if element not in self.known:
                    own = [element.args[1]] if element.op == "load" else []
                    times = [time for time in (*own, *map(self.times.get, element.inputs)) if time is not None]
                    newest = max if self.step > 0 else min
                    self.times[element] = newest(times) if times else None
                    # `zero` is a gradient too
                    is_tangent = element.op == "zero" or (element.op == "load" and element.args[0] in self.tangents)
                    self.known[element] = not is_tangent and all(self.known[item] for item in element.inputs)
            else:
                stack += missing

    def time(self, element: Element, as_taken: bool) -> int:
        """Return the time of a value of the forward: of the iteration that makes it, or if `as_taken` and it is handed
        on, of the next one, which takes it."""
        time = self.times[element]
        assert time is not None
        if not as_taken:
            return time
        if time + self.step not in self.taken or not 0 <= time + self.step < self.length:
            return time
        try:
            self.pattern(element, time + self.step)
        except RefusedError:
            return time
        return time + self.step

    def pattern(self, element: Element, time: int) -> Element:
        """Return a value of the forward as an element of its loop's body, in the iteration of a time. Refuse one that
        this iteration neither computes nor takes from the one before."""
        key = (element, time)
        if key not in self.patterns:
            handed = self.handed.get(time)
            own = self.times[element]
            if handed is None or own not in (time, time - self.step):
                raise RefusedError(f"the backward uses a value of another time{place_of(element)}")
            stands = {item: self.elements.make("carried", (index,), item.dtype) for item, index in handed.items()}
            # a first value that reads no time, as the number 0, is found anywhere: it does not stand for what is
            # carried
            for item in list(stands):
                if self.times_in(item) is None:
                    del stands[item]
            self.patterns[key] = pattern(element, stands, self.times, time, self.elements)
        return self.patterns[key]

    def times_in(self, element: Element) -> int | None:
        """Return the time of a value of the forward, after a `look` at it."""
        self.look(element)
        return self.times[element]

    def value(self, body: Element, time: int) -> Element:
        """Return what an element of the forward's body is at a time: the inverse of `pattern`. Raise Unlike outside of
        the loop."""
        if time not in self.taken:
            raise Unlike(f"the forward has no iteration {time}")
        return run_body([body], self.taken[time], time, self.elements, None, self)[0]


def _carried_by_time(loop: Loop, elements: Elements, length: int) -> dict[int, list[Element]]:
    """Return the values that each iteration takes, by its time, and under the time behind the last, what that hands
    on."""
    first, last = loop.first.at(length), loop.last.at(length)
    values = [resolved(item, elements, length) for item in loop.start]
    taken = {}
    for time in range(first, last + loop.step, loop.step):
        taken[time] = values
        values = run_body(loop.following, values, time, elements)
    taken[last + loop.step] = values
    return taken


def resolved(
    root: Element,
    elements: Elements,
    length: int,
    history: History | None = None,
    values: Sequence[Element] = (),
) -> Element:
    """Return an element from outside of a loop (its `start`, `before` or `after`) as one of a program of `length`
    steps: with times for Edges, the forward's values for `kept`, and `values`, which the loop handed on, for
    `carried`."""
    memo: dict[Element, Element] = {}
    for element in behind([root]):
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
            at = history.end if slot is None else slot.at(length)
            memo[element] = history.value(element.args[0], at)
        else:
            memo[element] = _without_zero(rebuilt(element, memo, elements))
    return memo[root]


# ---- The body: neighbouring iterations that are one program


@dataclass(frozen=True, slots=True)
class Body:
    """An iteration as a program. `carried` are the elements that it takes at one place of the walk; `following` and
    `writes` are in terms of `carried(index)` and Now."""

    carried: tuple[Element, ...]
    following: tuple[Element, ...]
    writes: tuple[Write, ...]


@dataclass(slots=True)
class Alike:
    """A walk along two iterations at once, which are the same program but for `step` between their slots.

    `pairs` are elements of both that are carried into them, in the order in which they are met; `same` are those that
    they compute alike.
    """

    times: Mapping[Element, int | None]
    time: int
    step: int
    pairs: dict[Element, Element]
    same: dict[Element, Element]
    history: History

    def match(self, left: Element, right: Element) -> None:
        """Match an element of the one iteration with one of the next, and all behind them; raise if they are different
        programs."""
        stack = [(left, right)]
        while stack:
            here, there = stack.pop()
            if here in self.same or here in self.pairs:
                if self.same.get(here, self.pairs.get(here)) is not there:
                    raise RefusedError(f"an iteration uses one value where the next uses two{place_of(there)}")
                continue
            if here is there and self.times[here] is None:  # as a parameter, which is the same at every time
                continue
            if self.history.is_known(here) and self.history.is_known(there):
                if self.pattern(here, self.time) is not self.pattern(there, self.time + self.step):
                    raise RefusedError(f"iterations use different values of the forward{place_of(there)}")
                self.same[here] = there
                continue
            is_own = self.times[here] == self.time and self.times[there] == self.time + self.step
            if here.op == there.op == "load" and here.args[0] == there.args[0] and is_own:
                self.same[here] = there
            elif is_own:
                self.check(here, there)
                self.same[here] = there
                stack += list(zip(here.inputs, there.inputs, strict=True))
            else:
                # carried into one and computed in the other, or a number: must be the same operation to be carried
                if self.times[here] == self.time or "constant" in (here.op, there.op):
                    self.check(here, there)
                self.pairs[here] = there

    def pattern(self, element: Element, time: int) -> Element:
        return self.history.pattern(element, time)

    def check(self, here: Element, there: Element) -> None:
        """Raise unless two elements are the same operation on as many inputs, and the numbers among these are the
        same."""
        if "constant" == here.op == there.op and here.dtype == there.dtype:
            raise _number_changes(here, there)
        plain = [
            (item.op, item.dtype, [arg for arg in item.args if not isinstance(arg, Element)], len(item.inputs))
            for item in (here, there)
        ]
        if plain[0] != plain[1]:
            raise RefusedError(
                f"the program of an iteration is not that of the next{place_of(there)}: {here.op} and {there.op}"
            )
        for mine, other in zip(here.inputs, there.inputs, strict=True):
            if mine.op == other.op == "constant" and mine is not other:
                raise _number_changes(mine, other, there)


class NumberChanges(RefusedError):
    """A number differs from iteration to iteration."""


def _number_changes(here: Element, there: Element, user: Element | None = None) -> NumberChanges:
    """Return the error of a number that differs from iteration to iteration."""
    return NumberChanges(
        f"a number changes with time: {here.args[0]!r}, then {there.args[0]!r}{place_of(user or there)}. Each "
        "iteration is then another program. Pass the numbers as a tensor, one a step, and read it at t: c[t]"
    )


def place_of(element: Element) -> str:
    """Return where an element comes from, in words that follow a name; nothing if it is not known."""
    source: Source | None = element.source
    return f" at {source.at} ({source.code})" if source is not None else ""


def _body_at(
    writes: Sequence[Write],
    elements: Elements,
    times: Mapping[Element, int | None],
    walk: Sequence[int],
    place: int,
    history: History,
) -> Body:
    """Return the program of the iteration at a place of the walk; raise unless those behind it, but the last, are the
    same program. What they hand on is among the roots from which they are compared."""
    step = walk[1] - walk[0]
    at_time: dict[int, list[Write]] = {}
    for write in writes:
        if isinstance(write.slot, int):
            at_time.setdefault(write.slot, []).append(write)
    handed = handed_on(writes, times, history)
    matched: dict[int, Alike] = {}
    roots: dict[int, list[tuple[Element, Element]]] = {}
    for index in range(place, len(walk) - 2):
        mine, other = at_time.get(walk[index], []), at_time.get(walk[index + 1], [])
        if [write.tensor for write in mine] != [write.tensor for write in other]:
            raise RefusedError("not every step is written alike")
        roots[index] = [(left.element, right.element) for left, right in zip(mine, other, strict=True)]
        roots[index] += _handed_alike(handed, walk[index], walk[index + 1])
    # where 4 rounds are not enough, `extended` finds that the body does not write what the program writes
    for _ in range(4):  # what an iteration hands on is computed in it, and may take more
        matched.clear()
        for index, starts in roots.items():
            alike = matched[index] = Alike(times, walk[index], step, {}, {}, history)
            for left, right in starts:
                alike.match(left, right)
        more = False
        for index in sorted(roots):
            following = matched.get(index + 1)
            if following is None:
                continue
            alike = matched[index]
            # what the next iteration takes, and what the one after it takes there, must be computed alike
            wanted = [(right, following.pairs[right]) for right in alike.pairs.values() if right in following.pairs]
            new = [pair for pair in wanted if pair[0] not in alike.same and pair[0] not in alike.pairs]
            roots[index] += [pair for pair in new if pair not in roots[index]]
            more = more or bool(new)
        if not more:
            break
    alike = matched[place]
    carried = tuple(alike.pairs)
    stands = {item: elements.make("carried", (index,), item.dtype) for index, item in enumerate(carried)}
    time = walk[place]
    body = {write: pattern(write.element, stands, times, time, elements, history) for write in at_time.get(time, [])}
    following_values = tuple(pattern(alike.pairs[item], stands, times, time, elements, history) for item in carried)
    return Body(carried, following_values, tuple(Write(write.tensor, Now(), item) for write, item in body.items()))


def kinds_of(writes: Sequence[Write], times: Mapping[Element, int | None], history: History) -> dict[Element, int]:
    """Return a hash for each element of what its own iteration computes: equal for the same operations at two times,
    where all that comes from other times counts as "carried", and what has no time, or is the forward's, as "value"."""
    kinds: dict[Element, int] = {}

    def kind(element: Element, time: int | None) -> Any:
        """Return what an input at a time counts as, for an element of that `time`."""
        if times.get(element) is None or history.is_known(element):
            return "value"
        return kinds[element] if times[element] == time else "carried"

    for element in behind(write.element for write in writes):
        if not history.is_known(element):
            plain = [arg for arg in element.args if not isinstance(arg, Element)]
            plain = plain[:1] if element.op == "load" else plain  # the tensor, without the time
            parts = (kind(item, times[element]) for item in element.inputs)
            kinds[element] = hash((element.op, element.dtype, repr(plain), *parts))
    return kinds


def handed_on(
    writes: Sequence[Write], times: Mapping[Element, int | None], history: History
) -> dict[int, dict[Any, list[Element]]]:
    """Return, by time and by kind (`kinds_of`), what a time computes that another uses, or that is a result without a
    slot."""
    kinds = kinds_of(writes, times, history)
    handed: dict[int, dict[Element, None]] = {}
    for element in kinds:
        for item in element.inputs:
            if times[item] not in (None, times[element]) and not history.is_known(item):
                handed.setdefault(times[item], {})[item] = None  # type: ignore[arg-type]  # not None, as tested
    for write in writes:
        time = times[write.element]
        if write.slot is None and time is not None and not history.is_known(write.element):
            handed.setdefault(time, {})[write.element] = None
    by_kind: dict[int, dict[Any, list[Element]]] = {}
    for at, items in handed.items():
        for item in items:
            by_kind.setdefault(at, {}).setdefault(kinds[item], []).append(item)
    return by_kind


def _handed_alike(
    handed: Mapping[int, Mapping[Any, list[Element]]], time: int, after: int
) -> list[tuple[Element, Element]]:
    """Return pairs of what two times hand on: those of a kind that each of them has just once, so that it is clear
    which is which."""
    mine, other = handed.get(time, {}), handed.get(after, {})
    return [(items[0], other[kind][0]) for kind, items in mine.items() if len(items) == len(other.get(kind, ())) == 1]


def pattern(
    root: Element,
    stands: Mapping[Element, Element],
    times: Mapping[Element, int | None],
    time: int,
    elements: Elements,
    history: History | None = None,
) -> Element:
    """Return an element of the iteration of `time` as an element of a body: with `stands` for what it carries, Now for
    its time, and `kept` for values of the forward. Refuse one that reads another time."""
    memo = dict(stands)
    stack = [root]
    while stack:
        element = stack[-1]
        if element in memo:
            stack.pop()
            continue
        if history is not None and history.is_known(element):
            memo[element] = elements.make("kept", (history.pattern(element, time), Now()), element.dtype)
        elif element.op == "load" and element.args[1] is not None:
            if element.args[1] != time:
                raise RefusedError(
                    f"a value goes further than to the next iteration, or {element.args[0]} is read at two times"
                    f"{place_of(element)}"
                )
            memo[element] = elements.load(element.args[0], Now(), element.dtype)
        else:
            missing = [item for item in element.inputs if item not in memo]
            if missing:
                stack += missing
                continue
            memo[element] = rebuilt(element, memo, elements)
    return memo[root]


def rebuilt(element: Element, memo: Mapping[Element, Element], elements: Elements) -> Element:
    """Return the same operation on other inputs: those that `memo` has for its own."""
    if not element.inputs:
        return element
    return elements.again(element, [memo[item] if isinstance(item, Element) else item for item in element.args])


# ---- Running the body on elements


def run_body(
    roots: Sequence[Element],
    values: Sequence[Element],
    time: int,
    elements: Elements,
    absent: set[Element] | None = None,
    history: History | None = None,
) -> list[Element]:
    """Return what the `roots` of a body are in the iteration of a time that takes `values`. Operations on `zero` are
    left out, as autograd leaves them out; the elements of the body that are, though they may be NaN for a 0, are added
    to `absent`."""
    memo: dict[Element, Element] = {}
    for element in behind(roots):
        if element.op == "carried":
            memo[element] = values[element.args[0]]
        elif element.op == "steps" and history is not None:
            memo[element] = history.steps(element)
        elif element.op == "kept":
            assert history is not None
            memo[element] = history.value(element.args[0], time)
        elif element.op == "load" and isinstance(element.args[1], Now):
            memo[element] = elements.load(element.args[0], time + element.args[1].offset, element.dtype)
        else:
            memo[element] = _without_zero(rebuilt(element, memo, elements))
            if absent is not None and memo[element].op == "zero" and _may_be_infinite(element, memo):
                absent.add(element)
    return [memo[root] for root in roots]


def _without_zero(element: Element) -> Element:
    """Return what autograd has for an operation on a gradient that it did not compute: the other term of a sum, and
    `zero` for a product. Other elements are returned as they are."""
    left = element.inputs[0] if element.inputs else element
    right = element.inputs[-1] if element.inputs else element
    is_zero = [item.op == "zero" for item in element.inputs]
    if not any(is_zero) or len(element.inputs) != len([arg for arg in element.args if isinstance(arg, Element)]):
        return element
    match element.op:
        case "add":
            return right if is_zero[0] else left
        case "sub" if is_zero[1]:
            return left
        case "mul":
            return left if is_zero[0] else right
        case "truediv" if is_zero[0]:
            return left
        case "neg" | "to_dtype" | "row_sum":
            return left
        case "where" if is_zero[1] and is_zero[2]:
            return right
        # a choice between `zero` and the number 0
        case "where" if all(
            item.op in ("zero", "constant") and not (item.args and item.args[0]) for item in element.inputs[1:]
        ):
            return left if is_zero[0] else next(item for item in element.inputs[1:] if item.op == "zero")
    return element


def _may_be_infinite(element: Element, memo: Mapping[Element, Element]) -> bool:
    """Whether an operation that autograd left out may be NaN where a kernel computes it with 0: a product with what may
    be infinite, or a division by what may be 0."""
    if element.op == "mul":
        return not all(memo[item].op == "zero" or is_finite(memo[item]) for item in element.inputs)
    if element.op == "truediv":
        divisor = element.inputs[1]
        return not (divisor.op == "constant" and divisor.args[0] != 0)
    return False


def is_finite(element: Element) -> bool:
    """Whether an element is finite whatever the program reads."""
    if element.op == "constant":
        return math.isfinite(element.args[0])
    if element.op == "to_dtype":
        return element.inputs[0].dtype == torch.bool or is_finite(element.inputs[0])
    return element.op in ("add", "sub", "mul", "neg") and all(map(is_finite, element.inputs))


# ---- Solving for what an iteration was given


class Unlike(Exception):
    """The body cannot have computed this."""


def solved(
    wanted: Sequence[tuple[Element, Element]], dtypes: Sequence[Any], time: int, elements: Elements, history: History
) -> list[Element]:
    """Return the values that an iteration must take so that each element of the body becomes the one beside it in
    `wanted`; `zero` where nothing depends on a value. Raise RefusedError if there are none."""
    values: dict[int, Element] = {}
    for body, actual in wanted:
        try:
            values = _unified(body, actual, values, time, elements, history)
        except Unlike as error:
            raise RefusedError(str(error)) from None
    return [values.get(index, elements.zero(dtype)) for index, dtype in enumerate(dtypes)]


def _unified(
    body: Element, actual: Element, values: dict[int, Element], time: int, elements: Elements, history: History
) -> dict[int, Element]:
    """Return `values`, by index, with those that make an element of the body the actual one; raise Unlike if none do.
    For example `add(carried(0), load(x, Now))` and `add(h, load(x, 3))` at time 3 -> {0: h}."""
    if body is actual:
        return values
    if body.op == "carried":
        return bound(body.args[0], actual, values)
    if actual.op == "zero":
        return nothing(body, values, time, elements)
    if body.op == "kept" and history.value(body.args[0], time) is actual:
        return values
    if body.op == "load":
        slot = body.args[1]
        read = elements.load(body.args[0], time + slot.offset, body.dtype) if isinstance(slot, Now) else body
        if read is actual:
            return values
    plain = [[arg for arg in item.args if not isinstance(arg, Element)] for item in (body, actual)]
    if body.op == actual.op and body.dtype == actual.dtype and plain[0] == plain[1] and body.inputs:
        try:
            attempt = values
            for mine, other in zip(body.inputs, actual.inputs, strict=True):
                attempt = _unified(mine, other, attempt, time, elements, history)
            return attempt
        except (Unlike, ValueError):  # ValueError: another number of inputs
            pass
    if body.op == "add":
        # autograd computed one term alone: the other is `zero`
        for term, rest in (body.inputs, body.inputs[::-1]):
            try:
                return nothing(rest, _unified(term, actual, values, time, elements, history), time, elements)
            except Unlike:
                continue
    raise Unlike(f"an iteration at an end is another program{place_of(body)}")


def bound(index: int, actual: Element, values: dict[int, Element]) -> dict[int, Element]:
    """Return the values with one more; raise Unlike if that index has another already."""
    known = values.get(index, actual)
    if known is not actual:
        raise Unlike("a carried value would have two first values")
    return {**values, index: actual}


def nothing(body: Element, values: dict[int, Element], time: int, elements: Elements) -> dict[int, Element]:
    """Return `values` with those that make an element of the body `zero`, a gradient that was not computed; raise
    Unlike if none do."""
    if body.op == "carried":
        return bound(body.args[0], elements.zero(body.dtype), values)
    if body.op in ("neg", "to_dtype", "truediv", "row_sum"):
        return nothing(body.inputs[0], values, time, elements)
    if body.op in ("add", "sub"):
        return nothing(body.inputs[1], nothing(body.inputs[0], values, time, elements), time, elements)
    if body.op == "where":
        for item in body.inputs[1:]:
            if item.op != "constant":
                values = nothing(item, values, time, elements)
        return values
    # one factor that is `zero` is enough
    if body.op == "mul":
        for item in body.inputs:
            try:
                return nothing(item, values, time, elements)
            except Unlike:
                continue
    raise Unlike(f"an iteration at an end computes what others do not{place_of(body)}")


# ---- The loop: as far as the body reaches


def extended(
    body: Body,
    writes: Sequence[Write],
    elements: Elements,
    walk: Sequence[int],
    place: int,
    length: int,
    history: History,
) -> Loop:
    """Return the Loop of a body that was found at `place` of the walk: back to the first iteration that it describes
    and on to the last, with the rest outside. Refuse if that is more than `history.edge` iterations at either end."""
    actual = {(write.tensor, write.slot): write.element for write in writes}
    dtypes = [item.dtype for item in body.carried]
    values, first = list(body.carried), place
    problem: RefusedError | None = None
    # backwards: solve for what the iteration before took; step 3 of this module's docstring
    while first > 0:
        time = walk[first - 1]
        wanted = list(zip(body.following, values, strict=True))
        try:
            wanted += [(write.element, actual[write.tensor, time]) for write in body.writes]
            earlier = solved(wanted, dtypes, time, elements, history)
            run = run_body(
                [*body.following, *(write.element for write in body.writes)], earlier, time, elements, None, history
            )
            if any(item is not want for item, (_, want) in zip(run, wanted, strict=True) if want.op != "zero"):
                raise RefusedError("the first iterations are other programs")
        except (RefusedError, KeyError, Unlike) as error:
            problem = error if isinstance(error, RefusedError) else None
            break
        values, first = earlier, first - 1
    if first > history.edge:
        raise problem or RefusedError("the first iterations are other programs")
    start, last = tuple(values), first - 1
    absent: set[Element] = set()
    covered: set[tuple[str, Slot]] = set()
    # forwards: run the body from its first values; step 4
    for index in range(first, length):
        time = walk[index]
        roots = [*body.following, *(write.element for write in body.writes)]
        results = run_body(roots, values, time, elements, absent if index == first else None, history)
        stores = {(write.tensor, time): item for write, item in zip(body.writes, results[len(dtypes) :], strict=True)}
        if any(actual.get(key) is not item for key, item in stores.items()):
            break
        covered |= set(stores)
        values, last = results[: len(dtypes)], index
    if length - 1 - last > history.edge:
        raise RefusedError("the last iterations are other programs")
    return _written_around(body, start, values, writes, covered, elements, (first, last), walk, length, absent, history)


def _written_around(
    body: Body,
    start: tuple[Element, ...],
    end: Sequence[Element],
    writes: Sequence[Write],
    covered: set[tuple[str, Slot]],
    elements: Elements,
    places: tuple[int, int],
    walk: Sequence[int],
    length: int,
    absent: set[Element],
    history: History,
) -> Loop:
    """Return the Loop with the writes that its iterations do not cover: `after` it if they use what it hands on, and
    else `before` it. `start` and `end` are the values that its first iteration takes and its last hands on."""
    handed = {item: elements.make("carried", (index,), item.dtype) for index, item in enumerate(end)}
    for item in list(handed):
        if item.op in ("constant", "zero") or not any(part.op == "load" for part in behind([item])):
            del handed[item]  # it reads nothing, so it is the same without the loop
    outside = Edges(elements, length, history)
    before: list[Write] = []
    after: list[Write] = []
    for write in writes:
        if (write.tensor, write.slot) in covered:
            continue
        element = outside.moved(write.element, handed)
        slot = outside.edge(write.slot) if isinstance(write.slot, int) else write.slot
        uses = any(item.op == "carried" for item in behind([element]))
        (after if uses else before).append(Write(write.tensor, slot, element))
    first, last = places
    step = walk[1] - walk[0]
    # places are counted along the walk, which begins at the last time if the step is -1
    edges = (Edge(first), Edge(length - 1 - last, True)) if step > 0 else (Edge(first, True), Edge(length - 1 - last))
    beginnings = tuple(outside.moved(item, {}) for item in start)
    return canonical(
        Loop(
            step,
            edges[0],
            edges[1],
            beginnings,
            body.following,
            body.writes,
            tuple(before),
            tuple(after),
            tuple(absent),
        ),
        elements,
    )


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
            return Edge(self.length - 1 - slot, True)
        raise RefusedError("a value of the middle of the loop is used outside of it")

    def kept(self, element: Element) -> Element | None:
        """Return a value of the forward as `kept` of the iteration that makes it, or takes it; None if it is of no
        iteration of the loop."""
        time, loop = self.history.times[element], self.history.loop
        if time is None or loop is None:
            return None
        for at in (time, time + self.history.step):
            if at in self.history.taken:
                slot = None if at == self.history.end else self.edge(at)  # None: what the last iteration hands on
                return self.elements.make("kept", (self.history.pattern(element, at), slot), element.dtype)
        return None

    def moved(self, root: Element, handed: Mapping[Element, Element]) -> Element:
        """Return an element with an Edge for each time, `handed` for what the loop hands on, and `kept` for values of
        the forward."""
        memo: dict[Element, Element] = dict(handed)
        stack = [root]
        while stack:
            element = stack[-1]
            if element in memo:
                stack.pop()
            elif self.history.is_known(element) and (value := self.kept(element)) is not None:
                memo[element] = value
            elif element.op == "load" and isinstance(element.args[1], int):
                memo[element] = self.elements.load(element.args[0], self.edge(element.args[1]), element.dtype)
            elif missing := [item for item in element.inputs if item not in memo]:
                stack += missing
            else:
                memo[element] = rebuilt(element, memo, self.elements)
        return memo[root]


def written_by(loop: Loop, elements: Elements, length: int, history: History) -> dict[tuple[str, Slot], Element]:
    """Return what a loop writes in a program of `length` steps, by tensor and time: to be compared with the program's
    own writes."""
    values = [resolved(item, elements, length, history) for item in loop.start]
    stores: dict[tuple[str, Slot], Element] = {}
    first, last = loop.first.at(length), loop.last.at(length)
    for time in range(first, last + loop.step, loop.step):
        roots = [*loop.following, *(write.element for write in loop.writes)]
        results = run_body(roots, values, time, elements, None, history)
        values = results[: len(values)]
        for write, item in zip(loop.writes, results[len(values) :], strict=True):
            stores[write.tensor, time] = item
    for write in (*loop.before, *loop.after):
        slot = write.slot.at(length) if isinstance(write.slot, Edge) else write.slot
        stores[write.tensor, slot] = resolved(write.element, elements, length, history, values)
    return stores


def canonical(loop: Loop, elements: Elements) -> Loop:
    """Return a loop without the carried values that nothing needs, and with the others in the order in which the body
    needs them: then the same loop of two lengths is equal."""
    used: list[int] = []
    roots = [write.element for write in (*loop.writes, *loop.after)]
    pending = _carried_of(roots)
    while pending:
        index = pending.pop(0)
        if index not in used:
            used.append(index)
            pending += _carried_of([loop.following[index]])
    numbers = {old: new for new, old in enumerate(used)}

    def renamed(root: Element) -> Element:
        """Return an element with the new numbers of carried values."""
        memo: dict[Element, Element] = {}
        for element in behind([root]):
            if element.op == "carried":
                memo[element] = elements.make("carried", (numbers[element.args[0]],), element.dtype)
            else:
                memo[element] = rebuilt(element, memo, elements)
        return memo[root]

    def all_renamed(writes: Iterable[Write]) -> tuple[Write, ...]:
        return tuple(Write(write.tensor, write.slot, renamed(write.element)) for write in writes)

    following = tuple(renamed(loop.following[index]) for index in used)
    body = all_renamed(loop.writes)
    live = set(behind([*following, *(write.element for write in body)]))
    # an absent element of a carried value that nothing needs is not in the loop any more
    is_kept = [all(part.op != "carried" or part.args[0] in numbers for part in behind([item])) for item in loop.absent]
    kept = [renamed(item) for item, keep in zip(loop.absent, is_kept, strict=True) if keep]
    absent = tuple(item for item in kept if item in live)
    return Loop(
        loop.step,
        loop.first,
        loop.last,
        tuple(loop.start[index] for index in used),
        following,
        body,
        loop.before,
        all_renamed(loop.after),
        tuple(sorted(set(absent), key=lambda item: list(behind([item])).__len__())),
    )


def _carried_of(roots: Iterable[Element]) -> list[int]:
    """Return the numbers of the carried values that elements need, in order."""
    return [item.args[0] for item in behind(roots) if item.op == "carried"]
