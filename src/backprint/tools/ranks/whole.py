"""Whether the ranks' gradients, put together, are those of the whole model.

The step runs in float64, sharded and whole (`double`), and each element of each rank's gradients is compared with the
whole's. What is missing in those that differ, `causes` says.

Words of this file:

- The *whole* is the model that is not sharded, on all the data; *the whole's* gradient of a parameter is its gradient
  there. `shard` is the user's function that makes a rank's model and arguments of a copy of the whole's.
- The elements of all parameters of the whole, and of its inputs that require grad, are *numbered* from 1 on. Numbers
  stand in the place of the values when `shard` runs, and what a rank has of them (`Numbers`) says where each element of
  its tensors lies in the whole: its *places*. 0 is an element that `shard` has added, such as padding.
- `Call`: a model, its arguments and its keyword arguments. `run_in_ranks` makes the Call of each rank by its second
  argument and runs its third one there, the ranks in threads of this process.
- `RankGradients`: what the step of one rank has left; `left.roots` are the outputs at which the backward began, and
  there are none if the step runs its backward itself.
- `Gradients`: the gradients of one parameter, by rank: the ranks' own, and those that they should be.
- `Members`: of groups of one label, such as `tp`, the ranks in the group of each rank.
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
    """One parameter whose gradient is not the whole's: in which ranks, by which relative error, and what would mend it.

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
        # `frames.place` is ` at FILE:LINE in FUNCTION: 'CODE'`, or '' without a line.
        return f"{self.name}'s gradient {cause} ({ranks}, relative error {self.error:.3g}){frames.place(self.source)}"


@dataclass(frozen=True, slots=True)
class OutputNumber:
    """An output that is one number, such as a loss: what each rank has, by rank, and what the whole has. Gradients may
    be right where it is not, as a program may sum it once too often only to print it.

    `groups` has the members of each rank's groups, by label.
    """

    name: str
    ranks: tuple[float, ...]
    whole: float
    groups: Mapping[str, Members] = field(default_factory=dict, repr=False)

    @property
    def relation(self) -> str:
        """How the ranks' numbers make the whole's: each of them is it, or their mean or sum over all ranks is, or their
        mean or sum over the groups of one label is, on every rank; '' if in none of these ways."""
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
        shown = ranks[0] if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"
        return f"{self.name}: {self.relation or f'{shown} on the ranks, {self.whole:.6g} in the whole'}"


ROUNDING = 1e-14
"""Two numbers that are nearer than this may be the rounding of 0."""


@dataclass(frozen=True, slots=True)
class AgainstWhole:
    """Whether the ranks compute the gradients of the whole model.

    `compared` is the number of gradients that were compared: of parameters, and of inputs that require grad. `faults`
    are those that differ, and `unknown` what could not be compared, each with the reason. `error` is the largest
    relative error of the gradients of parameters that agree. `outputs` has the outputs that are one number; they are no
    part of the verdict. `notes` say where the backward began, if the outputs do not tell, which gradients are a
    multiple of the whole's, and which say nothing.
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
    """Compare the gradients of all `size` ranks with those of `model`, the whole. Refuse a whole that is no module.

    `options` are those of the capture, with `shard` and `loss`; `captures` are the ranks', for the lines and groups
    that a fault names. Where two ranks have different parts of the data which are equal, a missing reduction does not
    show: then the data are redrawn, first only floating-point numbers, then integers too. If they are equal still and
    no fault was found, the answer is `cannot tell`.
    """
    if not isinstance(model, nn.Module):
        raise UsageError("the whole must be a module: its parameters are what gradients are compared for")
    double = with_unlike_parameters(copy.deepcopy(model).double())
    call: Call = (double, in_double(tuple(args)), in_double(dict(kwargs)))
    _, arguments = bind_names(model, args, kwargs)  # the names of the parameters of the whole's forward
    answer, rows = _against_whole_on(call, arguments, options, size, captures)
    alike = _equal_data(call, options, rows)  # in words; '' if no data hide a fault
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
    """Return in words which data of the ranks (`rows`) are equal, so that they hide faults; '' if none are."""
    if alike := _ranks_with_equal_parts(call, options, rows):
        return f"{alike} have equal data"
    return "all parts of the data are equal" if has_equal_parts(call, len(rows)) else ""


def _ranks_with_equal_parts(call: Call, options: CaptureOptions, rows: Sequence[RankGradients]) -> str:
    """Return in words the first two ranks whose parts of the arguments have equal elements, but are different parts;
    '' if there are none. `data` of a row are digests of what the rank had. Which part a rank has is seen by sharding
    arguments without equal elements."""
    equal = [
        (left.rank, right.rank)
        for left, right in itertools.combinations(rows, 2)
        if left.data and left.data == right.data
    ]
    if not equal:
        return ""
    unlike = sharding(*with_unlike_elements(call), options.shard)
    try:
        digests_by_rank = run_in_ranks(len(rows), unlike, lambda place: digests_of(place.call), answered=MadeInDouble)
    except BackprintError:  # `shard` computes with values: nothing tells which part a rank has
        return ranks_in_words(equal[0])
    hidden = [(left, right) for left, right in equal if digests_by_rank[left] != digests_by_rank[right]]
    return ranks_in_words(hidden[0]) if hidden else ""


def _against_whole_on(
    call: Call, arguments: Sequence[str], options: CaptureOptions, size: int, captures: Sequence[Capture]
) -> tuple[AgainstWhole, Sequence[RankGradients]]:
    """Compare on the arguments of `call`, the whole's, and return what each rank left, too (nothing if the ranks do not
    run). Three programs run: `shard` in each rank on numbered parameters, which tells where elements lie; the ranks'
    step; and the whole's step, in a group of one rank. If one raises, the answer is `cannot tell`, with its name.

    `arguments` are the names of the parameters of the whole's forward.
    """
    what = "the model with numbered parameters"  # the program that runs, for the message if it raises
    rows: Sequence[RankGradients] = ()
    try:
        numbers = run_in_ranks(
            size,
            sharding(*number_elements(call), options.shard),
            lambda place: numbers_of_rank(place, arguments),
            answered=MadeInDouble,
        )
        what = "the sharded step in float64"
        rows = run_in_ranks(
            size,
            sharding(*call, options.shard),
            lambda place: gradients_of_rank(place, options, arguments),
            answered=MadeInDouble,
            loss=options.loss,
        )
        what = "the whole model in float64, in a group of one rank,"
        with with_methods_of_sharded():  # so that a step which calls methods of FSDP2 or DDP runs on the whole too
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
    # Of a complex parameter the real part: it is never compared (`_why_place_unknown`), but its elements have numbers.
    whole_gradients = {
        name: on_cpu(torch.zeros_like(parameter.real)) if (gradient := whole.gradients[name]) is None else gradient.real
        for name, parameter in call[0].named_parameters()
    }
    answer = compare_with_whole(numbers, rows, whole_gradients, whole.left.inputs, captures)
    if answer.faults and any(row.draws for row in (*rows, whole)):
        names = ", ".join(fault.name for fault in answer.faults[:MOST_SHOWN])
        answer = replace(answer, faults=(), unknown=(*answer.unknown, (DRAWS, f"and the gradient of {names} differs")))
    return replace(answer, outputs=outputs, notes=(*notes, *answer.notes)), rows


DRAWS = "the step draws random numbers, and ranks draw others than the whole (compare in eval mode, with mode='eval'),"
"""Why faults of a step that draws random numbers are no faults: the first half of a reason in `unknown`."""


def _notes_on_roots(left: Left) -> Iterator[str]:
    """Yield a note that says at which outputs the backward began, if others could have been meant: there are others
    that require grad, or the first root is no single number, as a loss would be. `left` is what a rank's step left."""
    others = ", ".join(left.others[:MOST_SHOWN])
    if others:
        yield f"the backward begins at {left.roots[0]}, and not at {others}: pass loss= to begin elsewhere"
    elif left.roots and left.roots[0] not in left.outputs:
        begun = ", ".join(left.roots[:MOST_SHOWN])
        yield f"the backward begins with ones at {begun}: pass loss= if the step has a loss"


def _has_cleared(rows: Sequence[RankGradients]) -> bool:
    """Whether a step that runs its backward itself (it has no `roots`) has left no gradient on any rank."""
    gradients = [gradient for row in rows for gradient in row.gradients.values() if gradient is not None]
    return not any(row.left.roots for row in rows) and not any(bool(gradient.any()) for gradient in gradients)


CLEARED = (
    "the step",
    "leaves no gradients: it clears them, or takes them by torch.autograd.grad. Compare the model that it trains, or a "
    "step that clears them first",
)
"""The reason in `unknown` where a step has left no gradient on any rank."""


@dataclass(slots=True, eq=False)
class _Comparison:
    """Compares the gradients of all ranks with those of the whole model, tensor by tensor, and keeps what it finds.

    `numbers` says, by rank, where the elements of its tensors lie in the whole; `rows` has what the ranks left, and
    `captures` the Captures of the ranks. `flat` has the gradients of the whole, one after another, at the numbers of
    their elements, from index 1 on; index 0 is for what is no element of the whole. `least` is the least number that
    errors are relative to. `trained` are the numbers of the elements for which a rank has a gradient. `reducing` are
    the labels of the groups over which the backward sends, or the whole step if it runs its backward itself.

    What it finds: `faults`, `unknown`, `notes`, `error` and `count` as in AgainstWhole (`compared`); `zeros` are the
    parameters and inputs whose gradients are 0 everywhere.
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
        """Compare a parameter on the ranks that have it, and count it, or note why it is not compared: where it lies in
        the whole is not known, the whole's gradient is not finite, it is a copy, the step has cleared its gradient, or
        its gradient is 0 everywhere."""
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
        # Without a gradient on any rank, and all its elements have one under another name, such as a tied weight.
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
        """Compare an input that requires grad, and count it; note it if `shard` has made another input of it, or if its
        gradient is 0 everywhere. The gradient may be a whole number of times too large on every rank (`_divisors`)."""
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
        """Return the Fault of a gradient that differs on some rank."""
        errors = gradients.errors()
        wrong = tuple(rank for rank, off in errors.items() if not off <= TOLERANCE)  # `not`: NaN is wrong, too
        source = _source_of_gradient(self.captures[wrong[0]], name) if self.captures else None
        cause = cause_of(groups_of(self.rows, self.captures, name), wrong, gradients, self.reducing)
        return Fault(name, wrong, _worst_of(errors.values()), cause, source)

    def note_zeros(self) -> None:
        """Say of which gradients nothing is known, as they are 0 everywhere: in a note, or as the reason why nobody can
        tell if nothing else was compared."""
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
    """Compare every parameter of every rank with the gradients of the whole model (`whole`, in the order of its
    parameters), and every input that requires grad with `inputs`, the whole's gradients of these.

    `numbers` and `rows` have, by rank, where its elements lie in the whole and what its step left.
    """
    collectives = [collective for capture in captures for collective in traffic_of(capture)]
    all_gradients = (gradient.reshape(-1) for gradient in (*whole.values(), *inputs.values()))
    # Elements are numbered from 1 on (`number_elements`), so the gradients begin at index 1.
    flat = torch.cat([torch.zeros(1, dtype=torch.float64), *all_gradients])
    numbers_with_gradient = [
        of_rank.parameters[name].real.reshape(-1)
        for of_rank, row in zip(numbers, rows, strict=True)
        for name, gradient in row.gradients.items()
        if gradient is not None and name in of_rank.parameters
    ]
    nothing = torch.zeros(0, dtype=torch.float64)  # as `torch.cat` takes no empty list
    groups_in_backward = {collective.group for collective in collectives if collective.side == "backward"}
    comparison = _Comparison(
        numbers,
        rows,
        captures,
        flat,
        least=LEAST * float(flat.abs().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).max()),
        trained=torch.cat([nothing, *numbers_with_gradient]).unique(),
        reducing=frozenset(groups_in_backward or {collective.group for collective in collectives}),
    )
    for name in dict.fromkeys(name for of_rank in numbers for name in of_rank.parameters):
        comparison.compare_parameter(name)
    for name in inputs:
        comparison.compare_input(name)
    # Where the place of a parameter is not known, its elements would seem to be trained by no rank.
    parameters_by_rank = [of_rank.parameters for of_rank in numbers]
    comparison.unknown = comparison.unknown or list(_untrained_parameters(parameters_by_rank, whole))
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
    """Return the gradients of a parameter or an input on the ranks that have it (`local`, for all ranks), beside the
    whole's gradients (`flat`, by number) at its places there. Errors are relative to the largest of the whole's, and to
    `least` at least."""
    indices = {rank: place.long() for rank, place in places.items()}
    expected = {rank: flat[index] for rank, index in indices.items()}
    largest = max((float(gradient.abs().max()) for gradient in expected.values() if gradient.numel()), default=0.0)
    own = {rank: _with_zeros_where_added(local[rank], index) for rank, index in indices.items()}
    return Gradients(own, expected, max(largest, least))


def _count_of_different(places: Mapping[int, Tensor]) -> int:
    """Return how many different parts of a whole the ranks hold: two where each of four has one of two halves."""
    different: list[Tensor] = []
    for place in places.values():
        if not any(place.shape == other.shape and torch.equal(place, other) for other in different):
            different.append(place)
    return len(different)


def _divisors(number: int) -> list[int]:
    """Return the factors by which the gradient of an input may be too large, if the ranks hold `number` different parts
    of it: the divisors of that number. Each rank takes the mean of its loss over its own rows, and only the gradients
    of parameters are averaged."""
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def _worst_of(errors: Iterable[float]) -> float:
    """Return the largest error; NaN is larger than any."""
    return max(errors, key=lambda off: (math.isnan(off), off))


LEAST = 1e-5
"""Errors are relative to at least this part of the largest gradient of all parameters: a gradient may be 0 in exact
arithmetic, such as that of a bias before a norm, and what is computed is the rounding of a sum."""


def _with_zeros_where_added(gradient: Tensor | None, places: Tensor) -> Tensor | None:
    """Return a gradient with 0 for the elements that are not of the whole (place 0), such as rows that a shard adds;
    as it is if it is None, or of another shape than its places, which is a fault."""
    return gradient if gradient is None or gradient.shape != places.shape else gradient * (places > 0)


def _untrained_parameters(
    numbers: Sequence[Mapping[str, Tensor]], whole: Mapping[str, Tensor]
) -> Iterator[tuple[str, str]]:
    """Yield the parameters of the whole that have a gradient (`whole`) and of which no rank has all or some elements,
    each with the reason. `numbers` has, by rank and parameter, the numbers of the elements that the rank trains."""
    elements = [places.real.reshape(-1) for by_name in numbers for places in by_name.values()]
    trained_elements = torch.cat([torch.zeros(0, dtype=torch.float64), *elements]).unique()
    start = 1  # the number of the parameter's first element, as `number_elements` counts them
    for name, gradient in whole.items():
        count = gradient.numel()
        trained_count = int(((trained_elements >= start) & (trained_elements < start + count)).sum())
        start += count
        if trained_count < count and bool(gradient.abs().max() > 0):
            what = "it" if not trained_count else f"{count - trained_count} of its {count} elements"
            yield name, f"has a gradient in the whole, and no rank trains {what}"


def _why_place_unknown(places_by_rank: Mapping[int, Tensor], count: int) -> str:
    """Say why it is not known where a parameter lies in the whole; '' if it is. Each of its elements must be the number
    of another element of the whole (`number_elements`), which are below `count`, or 0 for what a shard adds."""
    for rank, places in places_by_rank.items():
        if places.is_complex():
            return "is complex, and only real gradients are compared"
        element_numbers = places[places != 0]
        are_whole = bool((element_numbers == element_numbers.round()).all())
        are_in_range = bool(((element_numbers >= 1) & (element_numbers < count)).all())
        is_any_twice = len(element_numbers.unique()) < element_numbers.numel()
        if places.numel() and (not element_numbers.numel() or not are_whole or not are_in_range or is_any_twice):
            return f"does not hold elements of the whole in rank {rank}: `shard` computes it, or makes it anew"
    return ""


def _source_of_gradient(capture: Capture, name: str) -> Source | None:
    """Return the line of the forward that the gradient of a parameter or an input comes from: the first in the module
    of the parameter at which a step depends on it, else the first at which any does; None without such a line."""
    module = name.rpartition(".")[0]
    for pair in capture.pairs:
        reading = _steps_reading(pair.forward, name)
        lines = [step.source for step in reading if step.source is not None]
        own = [source for source in lines if source.module == module]
        if own or lines:
            return (own or lines)[0]
    return None


def _steps_reading(graph: Graph, name: str) -> list[Step]:
    """Return the steps that depend on the input port of this name, directly or through others, in order."""
    known = {port.local for port in graph.inputs if port.name == name}
    reading = []
    for step in graph.steps:
        values = (*step.args, *(value for _, value in step.kwargs))
        if any(ref in known for value in values for ref in refs(value)):
            known.add(step.name)
            reading.append(step)
    return reading
