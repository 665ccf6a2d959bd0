"""Find repeated structure in a list of steps: iterations that call the same operators on each other's results.

The search is a search in a text. Each step becomes a token: its target, its arguments without names and numbers, and
its type (`fold.token_of`). In the layers of a model, the tokens repeat with a period, the steps of a layer.
`best_repeat` finds the stretch with a period that saves most steps, makes a loop of it, and looks for further loops
before it, after it and within an iteration.

Three things make this more than a search for equal tokens:

- *Where an iteration begins.* Tokens `abcabcabc` are a loop of `abc`, of `bca` or of `cab`. The cut that the fewest
  values cross is where one layer hands its result to the next, and is the one that a person would choose (`_cuts_of`).
- *Dataflow.* Iterations with equal tokens may take their values from each other in another way, for example where a
  value of the first layer serves all layers. Only iterations with one dataflow are one loop (`_equal_rows`).
- *The first and the last layer.* They often have steps of their own: the first one computes a table of cosines, the
  backward of the last one adds gradients up. They join the loop with these steps as odd ones (`with_ends`).

A *place* is the index of a step in the list. A *row* has the places of the steps of one iteration, and a *run* is a
stretch in which each step is equal to the one a *period* later, before it is cut into iterations. A *weight* is how
many steps of the program a step of the list stands for, where that is not one: what a loop saves is counted so.

A list of steps (Steps) has a token for each step, equal for steps that may be the same step of two iterations; `uses`,
the places of the steps whose results it takes; and `borders`, whether a module of the program begins there. A Repeat is
a loop: its rows, and its odd steps, each with its iteration, its place, and the step of the row that it stands
`before`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

LEAST_SAVED = 8
"""How many steps a loop must save."""

LEAST_SEARCHED = 2 + LEAST_SAVED
"""How many steps a list must have to be searched: those that a loop saves, and two that remain as its iteration."""

PERIODS = 12
"""How many periods (the lengths of an iteration), runs and phases (where an iteration begins) are tried, the most
promising first: one limit for all three.

The limit bounds the search: steps whose tokens are a Fibonacci word have long runs of very many periods.
"""

Node: TypeAlias = "int | Repeat"
"""A place in a list of steps, or a loop over places."""


@dataclass(frozen=True, slots=True)
class OddStep:
    """A step that one iteration has and the other iterations do not have: the step at `place` in the list of steps."""

    iteration: int
    before: int
    """The step of an iteration that it stands before; the number of steps if it stands after the last."""
    place: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """A loop: for each iteration the places of its steps, and the odd steps of single iterations."""

    rows: tuple[tuple[int, ...], ...]
    odd: tuple[OddStep, ...]
    body: tuple[Node, ...] = ()
    """The steps of an iteration, places from 0 on, with loops among them."""

    @property
    def first(self) -> int:
        """The first place of all steps, odd ones included."""
        return min([self.rows[0][0], *(step.place for step in self.odd)])

    @property
    def end(self) -> int:
        """The place after the last of all steps, odd ones included."""
        return max([self.rows[-1][-1], *(step.place for step in self.odd)]) + 1


@dataclass(frozen=True, slots=True)
class Steps:
    """A list of steps, reduced to what the search looks at: which are alike, and which takes the result of which."""

    tokens: Sequence[int]
    """Equal numbers for steps that may be the same step of two iterations."""
    uses: Sequence[Sequence[int]]
    """For each step, the places of the steps whose results it takes, in order; -1 for an input of the list."""
    borders: Sequence[bool] = field(default=())
    """Whether a module of the program begins at a step."""
    weights: Sequence[int] = field(default=())
    """How many steps each stands for, where that is not one."""

    def __len__(self) -> int:
        return len(self.tokens)

    def weight(self, places: Sequence[int]) -> int:
        """Return how many steps of the program these places stand for."""
        return sum(self.weights[place] for place in places) if self.weights else len(places)

    def part(self, places: Sequence[int]) -> Steps:
        """Return the steps at some places as a list of their own, in which results from outside are inputs."""
        order = {place: count for count, place in enumerate(places)}
        uses = [[order.get(used, -1) for used in self.uses[place]] for place in places]
        weights = [self.weights[place] for place in places] if self.weights else ()
        borders = [self.borders[place] for place in places]
        return Steps([self.tokens[place] for place in places], uses, borders, weights)

    def dataflow(self, places: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return, for each step at these places, the positions among them of the steps whose results it takes, and -1
        for any other value: equal for equal layers."""
        order = {place: count for count, place in enumerate(places)}
        return tuple(tuple(order.get(used, -1) for used in self.uses[place]) for place in places)


DEEPEST = 6
"""How deep loops nest."""


def loops_of(steps: Steps, depth: int = 0) -> tuple[Node, ...]:
    """Return the places of a list of steps in order, with loops where they save something.

    `depth` is the number of loops around the list.
    """
    nodes: list[Node] = []
    # Stretches of the list, from a place to another, in which no loop was looked for yet.
    stretches = [(0, len(steps))]  # a stack and no recursion: a graph may have thousands of loops in a row
    while stretches:
        low, high = stretches.pop()
        repeat = best_repeat(steps, low, high) if depth < DEEPEST else None
        if repeat is None:
            nodes += range(low, high)
            continue
        # Inner loops are looked for in the first iteration alone, for the others have its tokens and its dataflow.
        repeat = replace(repeat, body=_body_of(steps, repeat, depth + 1))
        nodes.append(repeat)
        stretches += [(repeat.end, high), (low, repeat.first)]
    return tuple(sorted(nodes, key=lambda node: node if isinstance(node, int) else node.first))


def _body_of(steps: Steps, repeat: Repeat, depth: int) -> tuple[Node, ...]:
    """Return the steps of the first iteration of a loop, as places from 0 on, with loops among them. `depth` is the
    number of loops around them.

    A loop never lies across an odd step: the text has `if i == 0:` between two statements of an iteration, and in the
    middle of an inner loop there is no such place.
    """
    row = repeat.rows[0]
    cuts = sorted({0, len(row), *(step.before for step in repeat.odd)})
    nodes: list[Node] = []
    for low, high in itertools.pairwise(cuts):
        nodes += [shifted(node, low) for node in loops_of(steps.part(row[low:high]), depth)]
    return tuple(nodes)


def shifted(node: Node, by: int) -> Node:
    """Return a node whose places are counted from another beginning."""
    if isinstance(node, int):
        return node + by
    rows = tuple(tuple(place + by for place in row) for row in node.rows)
    return replace(node, rows=rows, odd=tuple(replace(step, place=step.place + by) for step in node.odd))


# ---- One loop


def best_repeat(steps: Steps, low: int, high: int, ends: bool = True) -> Repeat | None:
    """Return the loop that saves most steps between the places `low` and `high`; None if none saves LEAST_SAVED.

    `ends`: whether iterations with odd steps may join. Lists of ports have none.
    """
    if high - low < 2 or steps.weight(range(low, high)) < LEAST_SEARCHED:
        return None
    runs = [run for period in _periods(steps, low, high) for run in runs_of(steps, low, high, period)]
    for run in sorted(runs, key=_Run.rank)[:PERIODS]:  # those that save most come first
        # The run that would save most is not always a loop: its tokens are equal, but maybe no two iterations have one
        # dataflow. Then the next run is tried.
        repeat = _repeat_of(steps, run, around=(low, high) if ends else None)
        if repeat is not None and (len(repeat.rows) - 1) * steps.weight(repeat.rows[0]) >= LEAST_SAVED:
            return repeat
        # No run after this one saves more. It was tried all the same: iterations with odd steps may have joined it, so
        # that the loop saves more than the run.
        if run.saved < LEAST_SAVED:
            break
    return None


class _Run(NamedTuple):
    """Steps in a row of which each is equal to the step a period later."""

    saved: int
    """How many steps a loop saves, all but those of one iteration. Whole iterations alone count: the rest of a run
    stays outside of the loop."""
    period: int
    start: int
    length: int

    @property
    def end(self) -> int:
        """The place after the last step of the last iteration, which is a period after the last equal step."""
        return self.start + self.length + self.period

    def rank(self) -> tuple[int, int, int]:
        """Return the key by which the best run is first: it saves most, or as much with the shortest iteration, or is
        the first of these."""
        return -self.saved, self.period, self.start


def _periods(steps: Steps, low: int, high: int) -> list[int]:
    """Return the periods that the steps from place `low` to before `high` may have, the most frequent first.

    A period is the distance of a step to the last equal one. A token that a layer has once is as far from the last one
    as the layer is long. A token that a layer has twice, such as the two norms of a block, has two distances, and the
    layer is as long as their sum. So are two layers that alternate, of which every second one is equal. Sums of the
    four most frequent distances are tried as well.
    """
    last_place: dict[int, int] = {}
    counts: Counter[int] = Counter()
    for place in range(low, high):
        token = steps.tokens[place]
        if token in last_place:
            counts[place - last_place[token]] += 1
        last_place[token] = place
    distances = [distance for distance, _ in counts.most_common(PERIODS)]
    sums = [first + second for place, first in enumerate(distances[:4]) for second in distances[place:4]]
    return list(dict.fromkeys([*distances, *sums]))


def runs_of(steps: Steps, low: int, high: int, period: int) -> list[_Run]:
    """Return the two best runs with a period between the places `low` and `high`."""
    tokens, runs = steps.tokens, []
    equal = 0  # how many steps before this place are each equal to the one a period later
    # One place past the last comparison, which closes a run that reaches the end.
    for place in range(low, high - period + 1):
        if place < high - period and tokens[place] == tokens[place + period]:
            equal += 1
            continue
        if equal >= period:  # two whole iterations at least
            start = place - equal
            saved = steps.weight(range(start, start + equal // period * period))
            runs.append(_Run(saved, period, start, equal))
        equal = 0
    return sorted(runs, key=_Run.rank)[:2]


def _repeat_of(steps: Steps, run: _Run, around: tuple[int, int] | None) -> Repeat | None:
    """Return the loop of a run, cut where it is cut best; None if no two iterations have one dataflow.

    The fewest values across a cut count most. A cut with more iterations comes next, then one where a module of the
    program begins, then one with fewer odd steps, and at last the earliest. Between the two places `around` the run,
    iterations with odd steps may join; with None, none may.
    """
    best: Repeat | None = None
    best_score: tuple[int, ...] = ()
    for cut in _cuts_of(steps, run)[:PERIODS]:
        rows = _equal_rows(steps, run.start + cut.phase, run.end, run.period)
        if len(rows) < 2:
            continue
        repeat = with_ends(steps, *around, rows) if around else Repeat(tuple(rows), odd=())
        score = (-cut.width, len(repeat.rows), cut.begins_module, -len(repeat.odd), -cut.phase)
        if best is None or score > best_score:
            best, best_score = repeat, score
    return best


class _Cut(NamedTuple):
    """A way to cut a run into iterations."""

    width: int
    """How many values cross the cut."""
    begins_module: bool
    """Whether a module of the program begins there."""
    phase: int
    """The place, from the start of the run, at which the first whole iteration begins."""


def _cuts_of(steps: Steps, run: _Run) -> list[_Cut]:
    """Return the cuts of a run, the best first: of cuts of equal width, one where a module begins."""
    start, end, period = run.start, run.end, run.period
    # A value crosses every cut between the step that computes it and the last step that takes it. A value that is taken
    # more than two periods later is not counted: it serves all layers, like a mask, and crosses every cut alike.
    last_user: dict[int, int] = {}
    for place in range(start, end):
        for used in steps.uses[place]:
            if used >= start and place - used < 2 * period:
                last_user[used] = place
    # A cut is before the step of its index. From one cut to the next, the width grows by the values that begin to
    # cross, after the step that computes them, and shrinks by those whose last user is behind.
    change = [0] * (end - start + 2)
    for place, user in last_user.items():
        change[place + 1 - start] += 1
        change[user + 1 - start] -= 1
    widths = list(itertools.accumulate(change))
    # A cut is judged in the middle of the run: at its ends there are values that the first or the last layer alone has.
    cuts = []
    # After the cut, two whole iterations must be left.
    for phase in range(min(period, end - start - 2 * period + 1)):
        count = (end - start - phase) // period
        middle = phase + period * max(1, count // 2)
        cuts.append(_Cut(widths[middle], steps.borders[start + middle], phase))
    return sorted(cuts, key=lambda cut: (cut.width, not cut.begins_module, cut.phase))


def _equal_rows(steps: Steps, start: int, end: int, period: int) -> list[tuple[int, ...]]:
    """Return the iterations between the places `start` and `end`, each as the places of its steps: of those that follow
    each other and have one dataflow, the most.

    A value that the first layer computes for all layers, such as a mask, is one of its own row, and comes from outside
    for every later row. So the first layer has equal tokens and another dataflow, and is no iteration of their loop.
    """
    rows = [tuple(range(place, place + period)) for place in range(start, end - period + 1, period)]
    flows = [steps.dataflow(row) for row in rows]
    best: list[tuple[int, ...]] = []
    begin = 0  # the first of the iterations that have the dataflow of the one before `number`
    for number in range(1, len(rows) + 1):
        if number == len(rows) or flows[number] != flows[begin]:
            if number - begin > len(best):
                best = rows[begin:number]
            begin = number
    return best


# ---- Iterations with odd steps


def with_ends(steps: Steps, low: int, high: int, rows: list[tuple[int, ...]]) -> Repeat:
    """Return a loop of the iterations `rows`, and of one more before them and one after them, where the places from
    `low` to before `high` have one like them; odd steps may stand between the steps of these two."""
    odd: list[OddStep] = []
    before = _joined_iteration(steps, rows[0], range(rows[0][0] - 1, low - 1, -1))
    if before is not None:
        rows = [before, *rows]
        odd += _odd_steps(0, before, before[0], rows[1][0])
    after = _joined_iteration(steps, rows[-1], range(rows[-1][-1] + 1, high))
    if after is not None:
        odd += _odd_steps(len(rows), after, rows[-1][-1] + 1, after[-1] + 1)
        rows = [*rows, after]
    return Repeat(tuple(rows), tuple(odd))


def _joined_iteration(steps: Steps, row: Sequence[int], places: range) -> tuple[int, ...] | None:
    """Return one more iteration like `row` among `places`, which go up from its end or down from its beginning; None if
    there is none.

    It has the tokens of an iteration in their order, with odd steps between them: at most LEAST_SAVED, or a quarter of
    an iteration if that is more, for with more of them it is a layer of another kind. Its first match decides; a step
    is not tried in two places.
    """
    # Downwards, the last step of the iteration is met first.
    wanted = [steps.tokens[place] for place in (row if places.step > 0 else reversed(row))]
    matched: list[int] = []
    most_odd = max(LEAST_SAVED, len(row) // 4)
    for place in places:
        if steps.tokens[place] == wanted[len(matched)]:
            matched.append(place)
            if len(matched) == len(row):
                break
        # The places passed so far that matched nothing: these would be the odd steps.
        elif abs(place - places.start) + 1 - len(matched) > most_odd:
            return None
    if len(matched) < len(row):
        return None
    iteration = tuple(sorted(matched))
    # Equal tokens are not enough, as in `_equal_rows`: all iterations of a loop have one dataflow.
    return iteration if steps.dataflow(iteration) == steps.dataflow(row) else None


def _odd_steps(iteration: int, row: Sequence[int], low: int, high: int) -> list[OddStep]:
    """Return the steps from place `low` up to before `high` that are not in `row`, as odd steps of the iteration of
    this number, which has the steps of the row."""
    odd_steps = []
    # Between two neighbours of the row, and before and after it. The odd steps of a gap stand before its later end.
    for before, (place, next_place) in enumerate(itertools.pairwise([low - 1, *row, high])):
        odd_steps += [OddStep(iteration, before, odd) for odd in range(place + 1, next_place)]
    return odd_steps
