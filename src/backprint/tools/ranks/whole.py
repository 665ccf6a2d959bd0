"""Whether the ranks' gradients, put together, are those of the whole model.

The step runs in float64, sharded and whole (`double`), and each element of each rank's gradients is compared with the
whole's. What is missing in those that differ, `causes` says.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from backprint.errors import BackprintError, UsageError
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.nouns import Capture, Graph, Source, Step, refs
from backprint.tools.cost.traffic import traffic_of
from backprint.tools.ranks.causes import TOLERANCE, Gradients, Members, cause_of, groups_of
from backprint.tools.ranks.double import (
    Left,
    MadeInDouble,
    Numbers,
    RankGradients,
    digests_of,
    gradients_of_rank,
    has_equal_parts,
    in_double,
    number_elements,
    numbers_of_rank,
    on_cpu,
    redrawn,
    with_methods_of_sharded,
    with_unlike_elements,
    with_unlike_parameters,
)
from backprint.tools.ranks.sharded import Call, run_in_ranks, sharding
from backprint.tools.ranks.text import ranks_in_words
from backprint.trace import frames
from backprint.values.tree import bind_names


@dataclass(frozen=True, slots=True)
class Fault:
    """One parameter whose gradient is not the whole's: in which ranks, by how much, and what would mend it.

    `cause` says what is missing, such as `lacks a sum over tp`; '' if no change that is known would mend it. `source`
    is the line of the forward that the gradient comes from.
    """

    name: str
    ranks: tuple[int, ...]
    error: float
    cause: str = ""
    source: Source | None = None

    def __str__(self) -> str:
        ranks = f"rank {self.ranks[0]}" if len(self.ranks) == 1 else f"{len(self.ranks)} ranks"
        cause = self.cause or "is another"
        return f"{self.name}'s gradient {cause} ({ranks}, relative error {self.error:.3g}){frames.place(self.source)}"


@dataclass(frozen=True, slots=True)
class OutputNumber:
    """An output that is one number, such as a loss: what each rank has, and the whole. Their gradients may be right
    where it is not, as a program may sum it once too often only to print it."""

    name: str
    ranks: tuple[float, ...]
    whole: float
    groups: Mapping[str, Members] = field(default_factory=dict, repr=False)

    @property
    def relation(self) -> str:
        """How the ranks' numbers make the whole's: each is it, or their mean or sum is, over all or over the groups of
        one label; '' if in none of these ways."""
        mean = sum(self.ranks) / len(self.ranks)
        if all(self.is_whole(number) for number in self.ranks):
            return "the whole's on every rank"
        if self.is_whole(mean):
            return "the mean of the ranks' is the whole's"
        if self.is_whole(mean * len(self.ranks)):
            return "the sum of the ranks' is the whole's"
        everyone = range(len(self.ranks))
        for label, members_of in self.groups.items():
            if all(rank in members_of for rank in everyone):
                rows = [[self.ranks[member] for member in members_of[rank]] for rank in everyone]
                if all(self.is_whole(sum(row) / len(row)) for row in rows):
                    return f"the mean over {label} is the whole's"
                if all(self.is_whole(sum(row)) for row in rows):
                    return f"the sum over {label} is the whole's"
        return ""

    def is_whole(self, number: float) -> bool:
        """Whether a number is the whole's."""
        return number == self.whole or math.isclose(number, self.whole, rel_tol=TOLERANCE, abs_tol=ROUNDING)

    def __str__(self) -> str:
        ranks = sorted({f"{number:.6g}" for number in self.ranks}, key=float)
        shown = " to ".join((ranks[0], ranks[-1])[: len(ranks)])
        return f"{self.name}: {self.relation or f'{shown} on the ranks, {self.whole:.6g} in the whole'}"


ROUNDING = 1e-14
"""Two numbers that are nearer than this may be the rounding of 0."""


@dataclass(frozen=True, slots=True)
class AgainstWhole:
    """Whether the ranks compute the gradients of the whole model.

    `compared` is the number of parameters, `faults` those that differ, and `unknown` those of which nobody can say
    where they lie in the whole, each with the reason. `error` is the largest relative error of those that agree.
    `outputs` has the outputs that are one number; they are no part of the verdict. `notes` say where the backward
    began, if the outputs do not tell, which gradients are not the whole's to the number, and which say nothing.
    """

    compared: int
    faults: tuple[Fault, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()
    error: float = 0.0
    outputs: tuple[OutputNumber, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """`equal to the whole`, `not equal to the whole` or `cannot tell`."""
        if self.faults:
            return "not equal to the whole"
        return "cannot tell" if self.unknown or not self.compared else "equal to the whole"

    @property
    def ok(self) -> bool:
        """Whether every gradient is the whole's."""
        return self.verdict == "equal to the whole"

    def __str__(self) -> str:
        if self.verdict == "equal to the whole":
            first, lines = f": {self.compared} gradients, relative error at most {self.error:.3g}", []
        else:
            first, lines = ":", [*map(str, self.faults), *(f"{name} {reason}" for name, reason in self.unknown)]
        more = [f"and {len(lines) - MOST_SHOWN} more"] if len(lines) > MOST_SHOWN else []
        rest = [*map(str, self.outputs[:MOST_SHOWN]), *self.notes]
        return "\n  ".join([self.verdict + first, *lines[:MOST_SHOWN], *more, *rest])


MOST_SHOWN = 8
"""The most parameters that are listed."""


def against_whole(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: CaptureOptions,
    size: int,
    captures: Sequence[Capture],
) -> AgainstWhole:
    """Compare the gradients of all ranks with the whole model's. Refuse a whole that is no module.

    Where two ranks have different parts of the data which are equal, a missing reduction does not show: then the data
    are redrawn, first only floating-point numbers, then integers too.
    """
    if not isinstance(model, nn.Module):
        raise UsageError("the whole must be a module: its parameters are what gradients are compared for")
    double = with_unlike_parameters(copy.deepcopy(model).double())
    call: Call = (double, in_double(tuple(args)), in_double(dict(kwargs)))
    _, arguments = bind_names(model, args, kwargs)
    answer, rows = _against_whole_on(call, arguments, options, size, captures)
    alike = _equal_data(call, options, rows)
    for integers in (False, True) if alike else ():
        other = redrawn(call, integers)
        answer, rows = _against_whole_on(other, arguments, options, size, captures)
        if not _equal_data(other, options, rows):
            note = f"{alike}, on which a missing reduction does not show: compared on redrawn data"
            return replace(answer, notes=(note, *answer.notes))
    if alike and answer.ok:
        reason = "so that a missing reduction does not show: pass inputs whose rows differ"
        return replace(answer, unknown=((f"{alike},", reason),))
    return answer


def _equal_data(call: Call, options: CaptureOptions, rows: Sequence[RankGradients]) -> str:
    """Return in words which data are equal, so that they hide faults; '' if none are."""
    if alike := _ranks_with_equal_parts(call, options, rows):
        return f"{alike} have equal data"
    return "all parts of the data are equal" if has_equal_parts(call, len(rows)) else ""


def _ranks_with_equal_parts(call: Call, options: CaptureOptions, rows: Sequence[RankGradients]) -> str:
    """Return in words two ranks whose parts of the arguments have equal elements, but are different parts; '' if there
    are none. Which part a rank has is seen by sharding arguments without equal elements."""
    pairs = [pair for pair in itertools.combinations(rows, 2) if pair[0].data == pair[1].data != ()]
    if not pairs:
        return ""
    unlike = sharding(*with_unlike_elements(call), options.shard)
    try:
        parts = run_in_ranks(len(rows), unlike, lambda place: digests_of(place.call), MadeInDouble)
    except BackprintError:  # `shard` computes with values: nothing tells which part a rank has
        return ranks_in_words([pairs[0][0].rank, pairs[0][1].rank])
    hidden = [(left.rank, right.rank) for left, right in pairs if parts[left.rank] != parts[right.rank]]
    return ranks_in_words(list(hidden[0])) if hidden else ""


def _against_whole_on(
    call: Call, arguments: Sequence[str], options: CaptureOptions, size: int, captures: Sequence[Capture]
) -> tuple[AgainstWhole, Sequence[RankGradients]]:
    """Compare on these arguments, and return what each rank left, too. Three programs run: the ranks on numbered
    parameters, which tells where elements lie, the ranks, and the whole in one rank. `what` names the one that runs."""
    what = "the model with numbered parameters"
    rows: Sequence[RankGradients] = ()
    try:
        numbers = run_in_ranks(
            size,
            sharding(*number_elements(call), options.shard),
            lambda place: numbers_of_rank(place, arguments),
            MadeInDouble,
        )
        what = "the sharded step in float64"
        rows = run_in_ranks(
            size,
            sharding(*call, options.shard),
            lambda place: gradients_of_rank(place, options, arguments),
            MadeInDouble,
            options.loss,
        )
        what = "the whole model in float64, in a group of one rank,"
        with with_methods_of_sharded():
            [whole] = run_in_ranks(
                1,
                lambda: copy.deepcopy(call),
                lambda place: gradients_of_rank(place, options, arguments),
                loss=options.loss,
            )
    except BackprintError as error:
        return AgainstWhole(0, unknown=((what, f"does not run: {error}"),)), rows
    outputs = tuple(
        OutputNumber(name, tuple(row.left.outputs[name] for row in rows), number, groups_of(rows, captures))
        for name, number in whole.left.outputs.items()
        if all(name in row.left.outputs for row in rows)
    )
    notes = tuple(_notes_on_roots(rows[0].left))
    if _has_cleared(rows):
        return AgainstWhole(0, unknown=(CLEARED,), outputs=outputs, notes=notes), rows
    of_parameters = {
        name: on_cpu(torch.zeros_like(parameter.real)) if (gradient := whole.gradients[name]) is None else gradient.real
        for name, parameter in call[0].named_parameters()
    }
    answer = compare_with_whole(numbers, rows, of_parameters, whole.left.inputs, captures)
    if answer.faults and any(row.draws for row in (*rows, whole)):
        names = ", ".join(fault.name for fault in answer.faults[:MOST_SHOWN])
        answer = replace(answer, faults=(), unknown=(*answer.unknown, (DRAWS, f"and the gradient of {names} differs")))
    return replace(answer, outputs=outputs, notes=(*notes, *answer.notes)), rows


DRAWS = "the step draws random numbers, and ranks draw others than the whole (compare in eval mode, with mode='eval'),"


def _notes_on_roots(left: Left) -> Iterator[str]:
    """Say at which outputs the backward began, if others could have been meant."""
    others = ", ".join(left.others[:MOST_SHOWN])
    if others:
        yield f"the backward begins at {left.roots[0]}, and not at {others}: pass loss= to begin elsewhere"
    elif left.roots and left.roots[0] not in left.outputs:
        begun = ", ".join(left.roots[:MOST_SHOWN])
        yield f"the backward begins with ones at {begun}: pass loss= if the step has a loss"


def _has_cleared(rows: Sequence[RankGradients]) -> bool:
    """Whether a step that runs its backward itself (its outputs have no `roots`) has left no gradient on any rank."""
    gradients = [gradient for row in rows for gradient in row.gradients.values() if gradient is not None]
    return not any(row.left.roots for row in rows) and not any(bool(gradient.any()) for gradient in gradients)


CLEARED = (
    "the step",
    "leaves no gradients: it clears them, or takes them by torch.autograd.grad. Compare the model that it trains, or a "
    "step that clears them first",
)


@dataclass(slots=True, eq=False)
class _Comparison:
    """Compares the gradients of all ranks with those of the whole model, tensor by tensor, and keeps what it finds.

    `numbers` says where the elements of each rank's tensors lie in the whole, whose gradients are `flat`, one after
    another, from index 1 on; 0 is no element of the whole. `least` is the least number that errors are relative to.
    `trained` are the elements for which a rank has a gradient, `reducing` the groups over which the backward sends, or
    the step, if it runs its backward itself. `zeros` are the parameters and inputs whose gradients are 0 everywhere.
    """

    numbers: Sequence[Numbers]
    rows: Sequence[RankGradients]
    captures: Sequence[Capture]
    flat: Tensor
    least: float
    trained: Tensor
    reducing: frozenset[str]
    faults: list[Fault] = field(default_factory=list)
    unknown: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    zeros: list[str] = field(default_factory=list)
    error: float = 0.0
    count: int = 0

    def compare_parameter(self, name: str) -> None:
        """Compare a parameter on the ranks that have it, and count it, or note why it is not compared."""
        places = {rank: row.parameters[name] for rank, row in enumerate(self.numbers) if name in row.parameters}
        if reason := _why_place_unknown(places, len(self.flat)):
            self.unknown.append((name, reason))
            return
        gradients = _gradients_at(places, self.flat, [row.gradients.get(name) for row in self.rows], self.least)
        missing = [rank for rank in places if self.rows[rank].gradients.get(name) is None]
        # A step that runs its backward itself may have cleared a gradient after it used it; where the backward is ours,
        # a missing gradient is one of 0 (`Gradients.scaled`).
        runs_backward = not any(row.left.roots for row in self.rows)
        if not all(bool(wanted.isfinite().all()) for wanted in gradients.wanted.values()):
            self.unknown.append((name, "has NaN or Inf in its gradient in the whole"))
        elif len(missing) == len(places) and all(bool(torch.isin(at, self.trained).all()) for at in places.values()):
            self.notes.append(f"{name} is a copy of a parameter that is compared, and has no gradient itself")
        elif missing and runs_backward and any(bool(gradients.wanted[rank].any()) for rank in missing):
            self.unknown.append((name, f"has no gradient on {ranks_in_words(missing)}: the step has cleared it"))
        elif not gradients.any():  # 0 everywhere would agree, whatever is missing
            self.zeros.append(name)
        else:
            self.count += 1
            errors = gradients.errors().values()
            if all(off <= TOLERANCE for off in errors):
                self.error = max(self.error, *errors)
            else:
                self.faults.append(self.fault(name, gradients))

    def compare_input(self, name: str) -> None:
        """Compare an input that requires grad, as `compare_parameter` does a parameter. Its gradient may be a whole
        number of times too large on every rank (`_divisors`)."""
        places = {rank: row.inputs[name] for rank, row in enumerate(self.numbers) if name in row.inputs}
        if len(places) < len(self.rows) or _why_place_unknown(places, len(self.flat)):
            self.notes.append(f"the gradient of the input {name} is not compared: `shard` passes another")
            return
        gradients = _gradients_at(places, self.flat, [row.left.inputs.get(name) for row in self.rows], self.least)
        if not gradients.any():
            self.zeros.append(name)
            return
        self.count += 1
        allowed = _divisors(_count_of_different(places))
        # By how much it is too large: 1 where it is right, 0 where no number mends it.
        times = next((number for number in allowed if gradients.holds_scaled(list(places), 1 / number)), 0)
        if not times:
            self.faults.append(self.fault(name, gradients))
        elif times > 1:
            self.notes.append(f"the gradient of the input {name} is {times} times the whole's on every rank")

    def fault(self, name: str, gradients: Gradients) -> Fault:
        """Return what is wrong with a gradient."""
        errors = gradients.errors()
        wrong = tuple(rank for rank, off in errors.items() if not off <= TOLERANCE)  # `not` includes NaN
        source = _source_of_gradient(self.captures[wrong[0]], name) if self.captures else None
        cause = cause_of(groups_of(self.rows, self.captures, name), wrong, gradients, self.reducing)
        return Fault(name, wrong, _worst_of(errors.values()), cause, source)

    def note_zeros(self) -> None:
        """Say of which gradients nothing is known, as they are 0 everywhere."""
        more = f" and {len(self.zeros) - MOST_SHOWN} more" if self.zeros[MOST_SHOWN:] else ""
        shown = ", ".join(self.zeros[:MOST_SHOWN]) + more
        text = "0 in the whole and on every rank, so that a missing reduction does not show"
        if self.count or self.unknown:
            self.notes.append(f"the gradients of {shown} are {text}")
        else:
            self.unknown.append((f"the gradient of {shown}", f"is {text}"))


def compare_with_whole(
    numbers: Sequence[Numbers],
    rows: Sequence[RankGradients],
    whole: Mapping[str, Tensor],
    inputs: Mapping[str, Tensor],
    captures: Sequence[Capture],
) -> AgainstWhole:
    """Compare every parameter of every rank with the gradients of the whole model, in the order of its parameters, and
    every input that requires grad."""
    nothing = torch.zeros(0, dtype=torch.float64)
    sent = [row for capture in captures for row in traffic_of(capture)]
    every = (gradient.reshape(-1) for gradient in (*whole.values(), *inputs.values()))
    flat = torch.cat(
        [torch.zeros(1, dtype=torch.float64), *every]
    )  # elements are numbered from 1 on (`number_elements`)
    with_gradient = [
        row.parameters[name].real.reshape(-1)
        for row, left in zip(numbers, rows, strict=True)
        for name, gradient in left.gradients.items()
        if gradient is not None and name in row.parameters
    ]
    comparison = _Comparison(
        numbers,
        rows,
        captures,
        flat,
        LEAST * float(flat.abs().nan_to_num(0.0, 0.0, 0.0).max()),
        torch.cat([nothing, *with_gradient]).unique(),
        frozenset({row.group for row in sent if row.side == "backward"} or {row.group for row in sent}),
    )
    for name in dict.fromkeys(name for row in numbers for name in row.parameters):
        comparison.compare_parameter(name)
    for name in inputs:
        comparison.compare_input(name)
    comparison.unknown = comparison.unknown or list(_untrained_parameters([row.parameters for row in numbers], whole))
    if comparison.zeros:
        comparison.note_zeros()
    return AgainstWhole(
        comparison.count,
        tuple(comparison.faults),
        tuple(comparison.unknown),
        comparison.error,
        notes=tuple(comparison.notes),
    )


def _gradients_at(
    places: Mapping[int, Tensor], flat: Tensor, local: Sequence[Tensor | None], least: float
) -> Gradients:
    """Return the gradients of a parameter or an input on the ranks that have it, with the whole's at its places."""
    indices = {rank: place.long() for rank, place in places.items()}
    expected = {rank: flat[place] for rank, place in indices.items()}
    largest = max((float(row.abs().max()) for row in expected.values() if row.numel()), default=0.0)
    return Gradients(
        {rank: _of_the_whole(local[rank], indices[rank]) for rank in indices}, expected, max(largest, least)
    )


def _count_of_different(places: Mapping[int, Tensor]) -> int:
    """Return how many different parts of a whole the ranks hold: two where each of four has one of two halves."""
    different: list[Tensor] = []
    for place in places.values():
        if not any(place.shape == other.shape and torch.equal(place, other) for other in different):
            different.append(place)
    return len(different)


def _divisors(number: int) -> list[int]:
    """Return the numbers by which the gradient of an input may be too large: each rank takes the mean over its own
    rows, and only gradients of parameters are averaged."""
    return [by for by in range(1, number + 1) if number % by == 0]


def _worst_of(errors: Iterable[float]) -> float:
    """Return the largest error; NaN is larger than any."""
    return max(errors, key=lambda off: (math.isnan(off), off))


LEAST = 1e-5
"""Errors are relative to at least this part of the largest gradient of all parameters: a gradient may be 0 in exact
arithmetic, such as that of a bias before a norm, and what is computed is the rounding of a sum."""


def _of_the_whole(gradient: Tensor | None, places: Tensor) -> Tensor | None:
    """Return a gradient without the elements that are not of the whole, such as those of rows that a shard adds."""
    return gradient if gradient is None or gradient.shape != places.shape else gradient * (places > 0)


def _untrained_parameters(
    numbers: Sequence[Mapping[str, Tensor]], whole: Mapping[str, Tensor]
) -> Iterator[tuple[str, str]]:
    """Yield the parameters of the whole that have a gradient and are trained by no rank, or not all of them."""
    elements = [places.real.reshape(-1) for row in numbers for places in row.values()]
    trained_elements = torch.cat([torch.zeros(0, dtype=torch.float64), *elements]).unique()
    start = 1  # the number of the parameter's first element, as `number_elements` counts them
    for name, gradient in whole.items():
        count = gradient.numel()
        trained_count = int(((trained_elements >= start) & (trained_elements < start + count)).sum())
        start += count
        if trained_count < count and bool(gradient.abs().max() > 0):
            what = "it" if not trained_count else f"{count - trained_count} of its {count} elements"
            yield name, f"has a gradient in the whole, and no rank trains {what}"


def _why_place_unknown(rows: Mapping[int, Tensor], count: int) -> str:
    """Say why it is not known where a parameter lies in the whole; '' if it is. Each of its elements must be the number
    of one element of the whole (`number_elements`), or 0 for what a shard adds."""
    for rank, places in rows.items():
        if places.is_complex():
            return "is complex, and only real gradients are compared"
        element_numbers = places[places != 0]
        are_valid = bool((element_numbers == element_numbers.round()).all()) and bool(
            ((element_numbers >= 1) & (element_numbers < count)).all()
        )
        if places.numel() and (
            not element_numbers.numel() or not are_valid or len(element_numbers.unique()) < element_numbers.numel()
        ):
            return f"does not hold elements of the whole in rank {rank}: `shard` computes it, or makes it anew"
    return ""


def _source_of_gradient(capture: Capture, name: str) -> Source | None:
    """Return the line of the forward that a gradient comes from: the first in the module of the parameter, else the
    first step that reads it and has a line."""
    module = name.rpartition(".")[0]
    for pair in capture.pairs:
        reading = _steps_reading(pair.forward, name)
        lines = [step.source for step in reading if step.source is not None]
        own = [source for source in lines if source.module == module]
        if own or lines:
            return (own or lines)[0]
    return None


def _steps_reading(graph: Graph, name: str) -> list[Step]:
    """Return the steps that depend on an input, directly or through others, in order."""
    known = {port.local for port in graph.inputs if port.name == name}
    reading = []
    for step in graph.steps:
        values = (*step.args, *(value for _, value in step.kwargs))
        if any(ref in known for value in values for ref in refs(value)):
            known.add(step.name)
            reading.append(step)
    return reading
