"""Where a forward is cut, and its parts with the values that each takes and makes. Nothing here needs torch.

Words of this file:

- A *step* is one call of an operator, numbered from 0 in its graph. A value has the name of the step that makes it, or
  the local name of the input. `used(step)` are the names of a step's arguments.
- A *piece* is a range of steps, as `by` asks for it; a *part* (`ForwardPart`) is what is cut out there: its steps, and
  what crosses its borders. A step may belong to another part than its place says: a view of an input, for example, goes
  to the part that uses it.
- The flags of an operator (`_flags_of`): `r` draws random numbers, `m` writes to an argument, `v` returns a view.
- *Saved* are the forward's results that only its backward takes.
- `FOLLOWS` are operators that compute nothing: an item of a result (`getitem`), and an alias of a value.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from backprint.errors import GraphError, RefusedError, UsageError
from backprint.graph.nouns import Capture, Graph, Port, Step, TensorSpec, Value, refs
from backprint.graph.operators import operators
from backprint.graph.sizes import without_saved
from backprint.graph.steps import used
from backprint.tools.cost.stretches import Stretch, StretchGraphs, module_of_stretch, stretches_of
from backprint.tools.parts.uninitialised import uninitialized_values

if TYPE_CHECKING:
    from backprint.graph.verdicts import Verdict


# ---- The parts of a Capture, as `bp.split` returns them


@dataclass(frozen=True, slots=True)
class SplitPart:
    """One part of a Capture, proven against the whole.

    It is part `index` of Pair `pair`. `wanted` is False for a part between those that `by` requested. `capture` is the
    part as a Capture of its own, and `verdict` that of its proof. `count` is how many equal parts of the Capture it
    stands for, itself among them (`by="fold"`).
    """

    pair: int
    index: int
    label: str
    wanted: bool
    capture: Capture
    verdict: Verdict
    count: int = 1


@dataclass(frozen=True, slots=True)
class Split:
    """All parts of a Capture in order, and `joined`: the Capture of all parts, linked again."""

    parts: tuple[SplitPart, ...]
    joined: Capture

    def _repr_html_(self) -> str:
        from backprint.table.notebook import html_of
        from backprint.table.nouns import Report, Table

        columns = {"pair": "count", "part": "name", "times": "count", "verdict": "word", "detail": "text"}
        rows = [(part.pair, part.label, part.count, part.verdict.verdict, part.verdict.detail) for part in self.parts]
        report = Report(
            self.joined.name, f"{len(rows)} parts", tables=(), rows=Table(title="", columns=columns, rows=rows)
        )
        return html_of(report)


# ---- Sequences of operators: those that take each other's results, and those that repeat

LONGEST = 24
"""The longest sequence of operators that counts as typical."""


def operator(step: Step) -> str:
    """Return the name of a step's operator without namespace, overload and leading underscores: `softmax` for
    `aten._softmax.default`, and `getitem` for `operator.getitem`."""
    parts = step.target.removeprefix("torch.ops.").split(".")
    return (parts[1] if len(parts) > 1 else parts[0]).lstrip("_")


def matches(name: str, wanted: str) -> bool:
    """Whether an operator has this name, or is a variant of it (`native_batch_norm_legit_functional`)."""
    return name == wanted or name.startswith(wanted + "_")


def occurrences(names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the indices in `names` at which the sequence `wanted` begins, from the left and without overlap."""
    places, index = [], 0
    while index + len(wanted) <= len(names):
        if tuple(names[index : index + len(wanted)]) == tuple(wanted):
            places.append(index)
            index += len(wanted)
        else:
            index += 1
    return places


def _chains(graph: Graph, steps: Sequence[int], wanted: Sequence[str]) -> list[tuple[int, int]]:
    """Return the chains of the operators `wanted`, each of which takes the result of the one before: the index in
    `steps` (numbers of steps) at which a chain begins, and how many of `steps` it spans, others between its operators
    included. Chains do not overlap."""
    # By value: the value of which it is an item or an alias, directly or through others; else itself.
    origins: dict[str, str] = {}
    for step in graph.steps:
        names = used(step)
        origins[step.name] = origins.get(names[0], names[0]) if step.target in FOLLOWS and names else step.name
    starts_and_lengths: list[tuple[int, int]] = []
    index = 0
    while index < len(steps):
        end = chain(graph, steps, index, wanted, origins)
        if end is not None:
            starts_and_lengths.append((index, end + 1 - index))
            index = end
        index += 1
    return starts_and_lengths


def chain(
    graph: Graph, steps: Sequence[int], start: int, wanted: Sequence[str], origins: Mapping[str, str]
) -> int | None:
    """Return the index in `steps` of the last operator of the chain that starts at the index `start`; None if no chain
    of the operators `wanted` starts there, or most of it would be other steps. `origins` is as in `_chains`."""
    if not wanted or not matches(operator(graph.steps[steps[start]]), wanted[0]):
        return None
    last = start
    for wanted_name in wanted[1:]:
        name = graph.steps[steps[last]].name
        # Within three times the number of its operators, or a chain would span much else.
        candidates = range(last + 1, min(len(steps), start + 3 * len(wanted)))
        takers = (
            later
            for later in candidates
            if matches(operator(graph.steps[steps[later]]), wanted_name)
            and name in {origins.get(argument, argument) for argument in used(graph.steps[steps[later]])}
        )
        next_place = next(takers, None)
        if next_place is None:
            return None
        last = next_place
    return last


class _Occurrence(NamedTuple):
    """A sequence of operators where it occurs: its first index among the steps that are looked at, how many of these it
    spans, and its label."""

    start: int
    length: int
    label: str


def typical(names: Sequence[str]) -> list[_Occurrence]:
    """Return where sequences of operators that repeat in `names` occur, in order. The sequence that covers most is
    taken first, then the next one from what it leaves."""
    left = list(names)
    repeated: list[_Occurrence] = []
    while (sequence := covering(left)) is not None:
        for start in occurrences(left, sequence):
            repeated.append(_Occurrence(start, len(sequence), ",".join(sequence)))
            left[start : start + len(sequence)] = [""] * len(sequence)  # taken: no operator has this name
    return sorted(repeated)


def covering(names: Sequence[str]) -> tuple[str, ...] | None:
    """Return the repeated sequence of two operators or more whose places, without overlap, cover the most operators;
    the shortest of equals, so that a sequence is not a multiple of itself; None if none repeats. '' among `names` is an
    operator that is taken already."""
    best: tuple[str, ...] | None = None
    best_score = (0, 0)  # operators covered, then minus the length
    for length in range(2, min(LONGEST, len(names) // 2) + 1):
        # By sequence: how often it was met without overlap, and the index behind the last time.
        counts_and_ends: dict[tuple[str, ...], tuple[int, int]] = {}
        for at in range(len(names) - length + 1):
            window = tuple(names[at : at + length])
            if "" in window:
                continue
            count, end = counts_and_ends.get(window, (0, 0))
            if at >= end:
                counts_and_ends[window] = (count + 1, at + length)
        for window, (count, _) in counts_and_ends.items():
            score = (count * length, -length)
            if count > 1 and score > best_score:
                best, best_score = window, score
    return best


# ---- Where to cut: by ranges, operators, modules, what repeats, or where the fewest bytes cross


@dataclass(frozen=True, slots=True)
class Piece:
    """Forward steps from `start` to before `stop`, with a label. `wanted`: whether the caller requested this piece;
    `count`: how many equal pieces of the forward it stands for, itself among them (`by="fold"` requests one of each).
    """

    start: int
    stop: int
    label: str
    wanted: bool = True
    count: int = 1


def plan(graph: Graph, by: str) -> tuple[Piece, ...]:
    """Return the pieces that a forward is cut into, in order and without gaps. `by` is `range:N`, `ranges:0-10,10-25`,
    `operators[:A,B]`, `module[:DEPTH]`, `fold` or `saved[:N]`."""
    kind, what = kind_of(by)
    if not graph.steps:
        raise UsageError("the forward has no steps to cut")
    return KINDS[kind](graph, what)


def kind_of(by: str) -> tuple[str, str]:
    """Return the kind of cut in `by`, and the text after its colon; UsageError for an unknown kind."""
    kind, _, what = by.partition(":") if isinstance(by, str) else ("", "", "")
    if kind not in KINDS:
        raise UsageError(f"by={by!r:.80}: {kind!r:.40} is not one of {', '.join(KINDS)}")
    return kind, what


def weighty(graph: Graph) -> list[int]:
    """Return the numbers of the steps that compute something for the forward's outputs and mutations: no items,
    aliases, guards or views of inputs, and no step that only a saved value needs."""
    views = _views_of_inputs(graph)
    return [number for number in _calls_of(graph) if graph.steps[number].name not in views]


def _calls_of(graph: Graph) -> list[int]:
    """Return the numbers of the steps that the forward's outputs and mutations need: no items, aliases or guards, and
    no step that only a saved value needs."""
    needed = {step.name for step in without_saved(graph).steps if not step.is_guard and step.target not in FOLLOWS}
    return [number for number, step in enumerate(graph.steps) if step.name in needed]


def _by_count(graph: Graph, what: str) -> tuple[Piece, ...]:
    """`range:N`: N pieces of about as many operators each."""
    steps = weighty(graph) or [0]  # a forward that computes nothing is one piece
    count = whole_number(what, "range", 1, len(steps))
    cuts = [steps[index * len(steps) // count] for index in range(1, count)]
    return pieces(graph, cuts)


def _by_ranges(graph: Graph, what: str) -> tuple[Piece, ...]:
    """`ranges:0-10,10-25`: these steps, the end not included. The rest becomes pieces that are not wanted. Refuse what
    is no range of the forward's steps, and ranges that overlap."""
    spans = []
    for text in what.split(","):
        match = re.fullmatch(r"\s*(\d+)-(\d+)\s*", text)
        if not match or int(match[1]) >= int(match[2]) or int(match[2]) > len(graph.steps):
            raise UsageError(
                f"by=ranges: {text!r:.40} is not a range of the {len(graph.steps)} forward steps, as 0-10 is"
            )
        spans.append((int(match[1]), int(match[2])))
    return _with_gaps(graph, [(start, stop, f"steps {start}-{stop}") for start, stop in spans], "ranges")


def _by_operators(graph: Graph, what: str) -> tuple[Piece, ...]:
    """`operators:A,B`: each place where these operators take each other's results, and what stands between the places,
    not wanted. Without names: the sequences that repeat. A step between the operators, such as a counter's update, is
    included. Refuse operators of which there is no such place."""
    steps = _calls_of(graph)
    names = [operator(graph.steps[number]) for number in steps]
    if what:
        wanted = [part.strip() for part in what.split(",") if part.strip()]
        found = [_Occurrence(start, length, ",".join(wanted)) for start, length in _chains(graph, steps, wanted)]
        if not found:
            raise UsageError(f"by=operators: the forward has no {', '.join(wanted)} that take each other's results")
    else:
        found = typical(names)
        if not found:
            raise UsageError("by=operators: no sequence of operators repeats in this forward; name one")
    # From indices in `steps` to numbers of steps: a piece ends where the operator after its last one begins.
    ends = [*steps, len(graph.steps)]
    spans = [(steps[place.start], ends[place.start + place.length], place.label) for place in found]
    return _with_gaps(graph, spans, "operators")


def by_module(graph: Graph, what: str) -> tuple[Piece, ...]:
    """`module:DEPTH`: a piece for each module that the steps come from, its path cut to DEPTH names. Steps of the model
    itself, between its modules, are pieces too. A step without a source line belongs to the module of the parameter
    that it takes. Steps of no module, and those that only the backward needs, belong to the piece before them."""
    depth = whole_number(what, "module", 1, 64) if what else 64  # 64: deeper than modules are nested
    needed = {step.name for step in without_saved(graph).steps}
    # By the local name of a parameter or buffer: the module that it is of.
    owners = {
        port.local: port.name.rpartition(".")[0] for port in (*graph.by_role("parameter"), *graph.by_role("buffer"))
    }
    starts: list[int] = []  # the steps at which another module begins
    paths: list[str] = []  # the modules that begin there
    for number, step in enumerate(graph.steps):
        owner = next((owners[name] for name in used(step) if name in owners), None)
        module = step.source.module if step.source is not None else owner
        if step.name in needed and module is not None:
            path = ".".join(module.split(".")[:depth]) or ITSELF
            if not paths or paths[-1] != path:
                starts.append(number)
                paths.append(path)
    if len(paths) < 2:
        raise UsageError("by=module: the steps of this forward come from one module; cut it by range or saved")
    # The first piece begins with the first step, whatever module that is of.
    spans = pairwise([0, *starts[1:], len(graph.steps)])
    return tuple(Piece(start, stop, path) for (start, stop), path in zip(spans, paths, strict=True))


ITSELF = "(itself)"
"""The label of a piece whose steps are in no module below the model."""


def _by_fold(graph: Graph, what: str) -> tuple[Piece, ...]:
    """`fold`: each different iteration of the loops that the forward folds to, once, and what stands between loops.

    The forward is a row of *stretches*, each an iteration of a loop or the steps between two loops. Iterations are
    equal if their steps are, and what they save for the backward. The first of equal iterations is a wanted piece that
    counts for all; the others are in pieces that are not wanted.
    """
    if what:
        raise UsageError(f"by=fold:{what:.40}: fold takes nothing after a colon")
    # Loops repeat in the forward without its saved values; a step that only these need goes to the stretch before it.
    saving_nothing = without_saved(graph)
    number_of_step = {step.name: number for number, step in enumerate(graph.steps)}
    saved = {name for result in graph.results for name in refs(result)} & {step.name for step in saving_nothing.steps}
    stretches, graphs = stretches_of(saving_nothing), StretchGraphs(saving_nothing, saved)
    if all(stretch.loop is None for stretch in stretches):
        raise UsageError("by=fold: no steps of this forward repeat as a loop; cut it by module, range or saved")
    first_stretch: dict[str, Stretch] = {}
    counts: Counter[Stretch] = Counter()  # by the first of equal stretches
    for stretch in stretches:
        # The text of a stretch has its start and stop: stretches between loops equal no other.
        key = graphs.graph_of(stretch).hash() if stretch.loop is not None else str(stretch)
        counts[first_stretch.setdefault(key, stretch)] += 1
    starts = [number_of_step[saving_nothing.steps[stretch.start].name] for stretch in stretches[1:]]
    span_of = dict(zip(stretches, pairwise([0, *starts, len(graph.steps)]), strict=True))
    labels = {
        first: module_of_stretch(saving_nothing, first) or (ITSELF if first.loop is None else "a loop")
        for first in counts
    }
    folded = _with_gaps(graph, [(*span_of[first], labels[first]) for first in counts], "fold")
    count_by_start = {span_of[first][0]: count for first, count in counts.items()}
    return tuple(replace(piece, count=count_by_start[piece.start]) if piece.wanted else piece for piece in folded)


def _by_saved(graph: Graph, what: str) -> tuple[Piece, ...]:
    """`saved:N`: N pieces (by default 4), cut where the fewest bytes cross in sum. Each piece has at least half of an
    equal share of the operators, or the cuts would be side by side."""
    steps = weighty(graph) or [0]  # a forward that computes nothing is one piece
    count = whole_number(what, "saved", 1, len(steps)) if what else min(4, len(steps))
    least = max(1, len(steps) // (2 * count))
    cost = crossing(graph)
    # Dynamic programming over the number of cuts. fewest_bytes[cuts][index]: the fewest bytes that cross in so many
    # cuts among the first `index` steps of `steps`, with `least` steps or more in every piece.
    # last_cuts[cuts][index]: where the last of these cuts is, as an index in `steps`.
    fewest_bytes: list[list[float]] = [[0.0 if index >= least else float("inf") for index in range(len(steps) + 1)]]
    last_cuts: list[list[int]] = [[0] * (len(steps) + 1)]
    for _ in range(count - 1):
        bytes_row, cuts_row, lowest, lowest_cut = [], [], float("inf"), 0
        for index in range(len(steps) + 1):
            cut = index - least
            if cut > 0 and fewest_bytes[-1][cut] + cost[steps[cut]] < lowest:
                lowest, lowest_cut = fewest_bytes[-1][cut] + cost[steps[cut]], cut
            bytes_row.append(lowest)
            cuts_row.append(lowest_cut)
        fewest_bytes.append(bytes_row)
        last_cuts.append(cuts_row)
    # Back from the end: the last cut, then the last one of the steps before it.
    cuts, index_of_cut = [], len(steps)
    for cuts_row in reversed(last_cuts[1:]):
        index_of_cut = cuts_row[index_of_cut]
        cuts.append(steps[index_of_cut])
    return pieces(graph, sorted(cuts))


def crossing(graph: Graph) -> list[int]:
    """Return, for the place before each step and that at the end, the bytes of the values that steps made before it
    and that are used from there on. Inputs do not count."""
    last_user: dict[str, int] = {}
    for number, step in enumerate(graph.steps):
        for name in used(step):
            last_user[name] = number
    # How many bytes more cross at a place than at the one before: a value crosses from behind the step that makes it to
    # its last user.
    change = [0] * (len(graph.steps) + 2)
    for number, step in enumerate(graph.steps):
        if not step.is_guard and step.name in last_user and isinstance(step.spec, TensorSpec):
            change[number + 1] += step.spec.nbytes
            change[last_user[step.name] + 1] -= step.spec.nbytes
    bytes_at_place, total = [], 0
    for index in range(len(graph.steps) + 1):
        total += change[index]
        bytes_at_place.append(total)
    return bytes_at_place


KINDS: Mapping[str, Callable[[Graph, str], tuple[Piece, ...]]] = {
    "range": _by_count,
    "ranges": _by_ranges,
    "operators": _by_operators,
    "module": by_module,
    "fold": _by_fold,
    "saved": _by_saved,
}
"""The kinds of cut, by the first word of `by`."""


def pieces(graph: Graph, cuts: Sequence[int]) -> tuple[Piece, ...]:
    """Return the pieces of a forward between cuts before the steps with these numbers, all of them wanted."""
    places = [0, *cuts, len(graph.steps)]
    return tuple(Piece(start, stop, f"steps {start}-{stop}") for start, stop in pairwise(places) if start < stop)


def _with_gaps(graph: Graph, spans: Sequence[tuple[int, int, str]], kind: str) -> tuple[Piece, ...]:
    """Return pieces of these spans (start, stop, label), and unwanted ones before, between and behind them; refuse
    spans that overlap. `kind` is the kind of cut, for the message."""
    row: list[Piece] = []
    at = 0
    for start, stop, label in sorted(spans):
        if start < at:
            raise UsageError(f"by={kind}: steps {start}-{stop} overlap those before, which end at {at}")
        if start > at:
            row.append(Piece(at, start, f"steps {at}-{start}", wanted=False))
        row.append(Piece(start, stop, label))
        at = stop
    if at < len(graph.steps):
        row.append(Piece(at, len(graph.steps), f"steps {at}-{len(graph.steps)}", wanted=False))
    return tuple(row)


def whole_number(text: str, kind: str, low: int, high: int) -> int:
    """Return the integer from `low` to `high` that a text is; UsageError for another text."""
    if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
        raise UsageError(f"by={kind}:{text}: expected a whole number from {low} to {high}")
    return int(text)


# ---- A forward, cut before given steps
# Memory that is not initialized crosses no border: an allocation belongs to the part that fills it. Not handled:
# symbolic sizes (`graph.sizes.at_capture` replaces them first), and cuts through an update in place.

FOLLOWS = ("operator.getitem", "aten.detach.default", "aten.alias.default")
"""Steps that stay in the part of their argument: an item of a result, and an alias of a value."""


@dataclass(frozen=True, slots=True)
class ForwardPart:
    """One part of a forward: its steps, and the values that it takes from earlier parts and inputs, by local name.

    It was cut from the steps `start` to before `stop` of the forward. `gives` are the values that it makes and later
    parts take. `results` are the outputs and mutations of the forward, each with its value, whose values are all made
    once this part has run.
    """

    index: int
    start: int
    stop: int
    steps: tuple[Step, ...]
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    results: tuple[tuple[Port, Value], ...]

    @property
    def holds(self) -> frozenset[str]:
        """The values that this part takes or makes."""
        return frozenset((*self.takes, *(step.name for step in self.steps if not step.is_guard)))


def cut_forward(graph: Graph, cuts: Sequence[int]) -> tuple[ForwardPart, ...]:
    """Cut a forward before the steps with these numbers, and return its parts. Raise RefusedError for a cut through an
    update in place, memory that is not initialized, or a number, and GraphError for symbolic sizes.

    The cuts [2, 5] of seven steps make parts of steps 0 and 1, of 2 to 4, and of 5 and 6. A part takes what an earlier
    one computes and it uses, and gives what a later one uses. Steps that only the backward needs are in no part
    (`part_of_each_value`).
    """
    if graph.symbols:
        raise GraphError("a graph with symbolic sizes cannot be cut: replace them by the captured sizes first")
    places = sorted({0, len(graph.steps), *(cut for cut in cuts if 0 < cut < len(graph.steps))})
    part_of_value = part_of_each_value(graph, places)
    kept = [(number, step) for number, step in enumerate(graph.steps) if step.is_guard or step.name in part_of_value]
    parts_of_kept = [_part_of_step(number, step, part_of_value, places) for number, step in kept]
    # By part, the values that it uses and does not make; a dict, as it keeps their order.
    crossing_values: dict[int, dict[str, None]] = {index: {} for index in range(len(places) - 1)}
    for (_, step), index in zip(kept, parts_of_kept, strict=True):
        for name in used(step):
            if part_of_value.get(name, -1) != index:
                crossing_values[index][name] = None
    _check_updates(kept, part_of_value, parts_of_kept)
    _check_initialized(graph, part_of_value, crossing_values)
    check_numbers(graph, part_of_value, crossing_values)
    # The part from which on a value is there: the one that makes it, or, of an input, the first one that takes it. A
    # result belongs to the last of the parts of its values; a constant, or an input that no step takes, to the first.
    first_part = dict(part_of_value)
    for index, names in crossing_values.items():
        for name in names:
            first_part.setdefault(name, index)
    parts = []
    for index, (start, stop) in enumerate(pairwise(places)):
        steps = tuple(step for (_, step), of_part in zip(kept, parts_of_kept, strict=True) if of_part == index)
        results = tuple(
            (port, result)
            for port, result in zip(graph.outputs, graph.results, strict=True)
            if port.role != "saved" and max((first_part.get(name, 0) for name in refs(result)), default=0) == index
        )
        takes = dict(crossing_values[index])
        for _, result in results:  # of several values, some may be of earlier parts
            takes |= {name: None for name in refs(result) if part_of_value.get(name, -1) != index}
        parts.append(ForwardPart(index, start, stop, steps, tuple(takes), gives=(), results=results))
    return _with_gives(parts)


def part_of_each_value(graph: Graph, places: Sequence[int]) -> dict[str, int]:
    """Return the number of the part that makes each value: its step's, but an item of a result belongs to the result's
    part, and a view of an input, or memory that is not initialized, to the first part that takes it. `places` are the
    numbers of the steps at which parts begin, and that behind the last step.

    A value that is made only for the backward is left out: the part whose backward needs it makes it.
    """
    needed = {step.name for step in without_saved(graph).steps}
    part_of_value: dict[str, int] = {}
    for number, step in enumerate(graph.steps):
        if not step.is_guard and step.name in needed:
            names = used(step)
            follows = step.target in FOLLOWS and len(names) == 1 and names[0] in part_of_value
            part_of_value[step.name] = part_of_value[names[0]] if follows else bisect(places, number) - 1
    # From the last step to the first: a step is placed after all that take its result. `first_taker` has, by value,
    # the first part that takes it.
    placed_late, first_taker = _views_of_inputs(graph) | movable(graph), dict[str, int]()
    for number, step in reversed(list(enumerate(graph.steps))):
        if not step.is_guard and step.name not in part_of_value:
            continue
        if step.name in placed_late and step.name in first_taker:
            part_of_value[step.name] = first_taker[step.name]
        part = _part_of_step(number, step, part_of_value, places)
        first_taker |= {name: min(part, first_taker.get(name, part)) for name in used(step)}
    return part_of_value


def _views_of_inputs(graph: Graph) -> set[str]:
    """Return the values that are views of inputs, directly or through views; an empty set if a step of the graph
    updates a value in place: views then stay in the parts of their places."""
    if any("m" in _flags_of(step) for step in graph.steps):
        return set()
    inputs, views = {port.local for port in graph.inputs}, set[str]()
    for step in graph.steps:
        if "v" in _flags_of(step) and used(step) and set(used(step)) <= inputs | views:
            views.add(step.name)
    return views


def movable(graph: Graph) -> set[str]:
    """Return the values of uninitialized memory whose steps may run later: they neither draw nor write in place."""
    bare = uninitialized_values(graph).made
    return {step.name for step in graph.steps if step.name in bare and not set("rm") & set(_flags_of(step))}


def _flags_of(step: Step) -> str:
    """Return the flags of a step's operator."""
    return operators().get(step.target, "")


def _part_of_step(number: int, step: Step, part_of_value: Mapping[str, int], places: Sequence[int]) -> int:
    """Return the number of a step's part: that of its value, and for a guard, which makes none, that of its place."""
    return bisect(places, number) - 1 if step.is_guard else part_of_value[step.name]


def _with_gives(parts: Sequence[ForwardPart]) -> tuple[ForwardPart, ...]:
    """Set `gives` of each part to the values that it makes and later parts take."""
    part_of_value = {step.name: part.index for part in parts for step in part.steps if not step.is_guard}
    gives: dict[int, dict[str, None]] = {part.index: {} for part in parts}
    for part in parts:
        for name in part.takes:
            if name in part_of_value:
                gives[part_of_value[name]][name] = None
    return tuple(replace(part, gives=tuple(gives[part.index])) for part in parts)


def check_numbers(
    graph: Graph, part_of_value: Mapping[str, int], crossing_values: Mapping[int, Mapping[str, None]]
) -> None:
    """Refuse a cut between a number that is read from a tensor and the steps that use it: parts pass tensors.
    `crossing_values` has, by part, the values that it uses and does not make."""
    specs = {step.name: step.spec for step in graph.steps}
    for names in crossing_values.values():
        for name in names:
            if name in part_of_value and not isinstance(specs[name], TensorSpec):
                raise RefusedError(
                    f"{name!r} is not a tensor, and a cut separates it from the steps that use it: cut before or after "
                    "them"
                )


def _check_initialized(
    graph: Graph, part_of_value: Mapping[str, int], crossing_values: Mapping[int, Mapping[str, None]]
) -> None:
    """Refuse a cut between a step that takes memory and the allocation, if no part alone writes all of it
    (`Uninitialized.left`). `crossing_values` has, by part, the values that it uses and does not make."""
    bare = uninitialized_values(graph).left
    for names in crossing_values.values():
        for name in names:
            if name in part_of_value and name in bare:
                raise RefusedError(
                    f"a cut between {name!r}, whose elements are not all written yet, and a step that takes it: cut "
                    "before or after both"
                )


def _check_updates(
    steps: Sequence[tuple[int, Step]], part_of_value: Mapping[str, int], part_of_step: Sequence[int]
) -> None:
    """Refuse a cut between a value and the step that updates it, or a view of it, in place. `part_of_step` has the
    number of the part of each of the numbered `steps`."""
    base_of: dict[str, str] = {}  # by view, alias or updated value: the value whose memory it is
    for (_, step), index in zip(steps, part_of_step, strict=True):
        first = next(iter(used(step)), "")
        if set("mv") & set(_flags_of(step)) or step.target in FOLLOWS:
            base_of[step.name] = base_of.get(first, first)
        if "m" not in _flags_of(step):
            continue
        changed = next(
            (name for name in (first, base_of.get(first, first)) if part_of_value.get(name, index) != index), None
        )
        if changed is not None:
            raise RefusedError(
                f"a cut between {changed!r} and step {step.name!r} ({step.target}), which changes it in place: "
                "cut before both or after both"
            )
