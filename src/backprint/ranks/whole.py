"""Whether the ranks' gradients, put together, are those of the whole model, and if not, what is missing.

Where each element of a shard lies in the whole is not read from what the shard says of itself, but found: the same
`shard` shards a model whose parameters are numbered, element by element. Then the step runs in float64, sharded and
whole, and each element of each rank's gradients is compared with the whole's.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch import pytree
from backprint._torch.distributed import members_by_label, sharded_like, whole_tensor
from backprint._torch.pytree import tree_map
from backprint.errors import BackprintError, UsageError
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.nouns import Capture, Graph, Source, Step, refs
from backprint.graph.traffic import traffic_of
from backprint.ranks.sharded import Call, RankPlace, in_ranks, sharding
from backprint.ranks.text import ranks_in_words
from backprint.tracing import frames
from backprint.tracing.collectives import Answered
from backprint.tracing.running import tangent_of
from backprint.tracing.watch import SEED
from backprint.values.results import outputs_of
from backprint.values.settings import random_states, state_bytes
from backprint.values.tree import bind_names, flatten_with_path, leaf_name, number_duplicates, positional
from backprint.values.wrappers import opened, wrapping_of

TOLERANCE = 1e-9
"""How far a gradient may be off, in parts of the largest element of the whole's. Sums in float64 in another order
differ by less than 1e-12; a gradient that lacks a part differs by much more."""


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


Members = Mapping[int, tuple[int, ...]]
"""The members of each rank's group of one label, by rank."""


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
        """How the ranks have the whole's number; '' if they do not."""
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
    began, if the outputs do not tell, and of which inputs the gradients are not the whole's to the number.
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


# ---- Where each element of a shard lies in the whole


def numbered(call: Call) -> Call:
    """Return a call whose parameters, and inputs that require grad, are numbered from 1 on, element by element."""
    model, args, kwargs = call
    copied, start = copy.deepcopy(model).double(), 1

    def next_numbers(tensor: Tensor) -> Tensor:
        nonlocal start
        numbers = torch.arange(start, start + tensor.numel(), dtype=torch.float64, device=tensor.device)
        start += tensor.numel()
        return numbers.view(tensor.shape)

    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.copy_(next_numbers(parameter))

    def marked(leaf: Any) -> Any:
        return next_numbers(leaf).requires_grad_() if takes_gradient(leaf) else leaf

    return copied, *tree_map(marked, (args, kwargs))


def takes_gradient(leaf: Any) -> bool:
    """Whether an argument is a tensor whose gradient the step computes."""
    return isinstance(leaf, Tensor) and leaf.requires_grad and leaf.dtype == torch.float64


def inputs_of(call: Call, arguments: Sequence[str]) -> dict[str, Tensor]:
    """Return the inputs of a call that require grad, by their names in the whole model's forward."""
    _, args, kwargs = call
    named = positional(arguments, len(args))
    names_by_place = [*named, *map(str, range(len(named), len(args)))]  # `shard` may pass more than the whole takes
    leaves, _ = flatten_with_path((args, kwargs))
    names = number_duplicates([leaf_name(path, names_by_place) for path, _ in leaves])
    return {name: leaf for name, (_, leaf) in zip(names, leaves, strict=True) if takes_gradient(opened(leaf))}


def in_double(value: Any) -> Any:
    """Return nested arguments with floating-point tensors in float64, leaves as before."""

    def wider(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.is_floating_point():
            return leaf
        return leaf.detach().double().requires_grad_(leaf.requires_grad)

    return tree_map(wider, value)


@dataclass(frozen=True, slots=True)
class Left:
    """What a step leaves: the gradients of parameters and of inputs, and the outputs that are one number; and the
    outputs at which the backward began, and those at which it could have begun."""

    gradients: Mapping[str, Tensor | None]
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, float]
    roots: tuple[str, ...]
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RankGradients:
    """What the step of one rank leaves, the members of its groups, and whether it draws random numbers."""

    rank: int
    left: Left
    groups: Mapping[str, tuple[int, ...]]
    draws: bool

    @property
    def gradients(self) -> Mapping[str, Tensor | None]:
        """The gradients of the parameters by name."""
        return self.left.gradients


def on_cpu(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor, on the CPU, where gradients are compared."""
    return tensor.detach().to("cpu", copy=True)


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of a rank's parameters and inputs."""

    parameters: Mapping[str, Tensor]
    inputs: Mapping[str, Tensor]


def numbers_of_rank(place: RankPlace, arguments: Sequence[str]) -> Numbers:
    """Return the numbers of a rank's parameters and inputs."""
    model = place.call[0]
    state = dict(model.named_parameters()) if isinstance(model, nn.Module) else {}
    inputs = {name: on_cpu(opened(tensor)) for name, tensor in inputs_of(place.call, arguments).items()}
    return Numbers({name: on_cpu(opened(tensor)) for name, tensor in state.items() if tensor.requires_grad}, inputs)


def gradients_of_rank(place: RankPlace, options: CaptureOptions, arguments: Sequence[str]) -> RankGradients:
    """Run a rank's step among the others, as a training script does; return the gradients that it leaves."""
    for parameter in place.call[0].parameters():
        wrapping_of(parameter)  # which names the groups of its mesh
    with InDouble(place.among, place.among.label) as mode:
        left = what_is_left(place.call, options, arguments)
    return RankGradients(place.rank, left, members_by_label(), mode.draws)


class InDouble(Answered):
    """Answers the collectives of a program, and keeps float64 where it casts to less: mixed precision rounds, and what
    is compared here is not rounding."""

    draws = False
    """Whether the program has drawn random numbers."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("dtype") in LESS:
            kwargs = {**kwargs, "dtype": torch.float64}
        if self.draws or torch.Tag.nondeterministic_seeded not in func.tags:
            return super().__torch_dispatch__(func, types, args, kwargs)
        before = bytes_of_states()  # attention without dropout is such an operator, and draws nothing
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.draws = kwargs.get("generator") is not None or bytes_of_states() != before
        return result


def bytes_of_states() -> list[bytes]:
    """Return the states of torch's generators."""
    states = random_states()
    return [state_bytes(state) for state in (states.cpu, *states.cuda)]


LESS = frozenset({torch.float16, torch.bfloat16, torch.float32})
"""Dtypes with less precision than float64."""


class MadeInDouble(InDouble):
    """Answers the collectives of what makes a rank's model, and keeps float64 there, as in a step. What is computed
    anew, such as a table of positions, has the precision that it has in the whole model, which was made before."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.name().partition("::")[2].partition(".")[0]
        if name in EMPTY and kwargs.get("dtype") is None and torch.get_default_dtype() in LESS:
            kwargs = {**kwargs, "dtype": torch.float64}
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if name in EMPTY or any(tensor.dtype is torch.float64 for tensor in tensors):
            return super().__torch_dispatch__(func, types, args, kwargs)
        return Answered.__torch_dispatch__(self, func, types, args, kwargs)


EMPTY = frozenset({"empty", "empty_strided", "zeros", "ones"})
"""Operators whose results have the same values in each dtype: parameters before they are set, and buffers."""


def what_is_left(call: Call, options: CaptureOptions, arguments: Sequence[str]) -> Left:
    """Run a step, forward and backward; each gradient is sharded as its parameter is.

    The backward begins at a loss: the first output that is one number, if there is one; else with ones at every output.
    """
    model, args, kwargs = call
    if options.mode is not None:
        model.train(options.mode == "train")
    inputs = inputs_of(call, arguments)
    for tensor in inputs.values():
        tensor.retain_grad()
    before = dict(model.named_parameters())
    torch.manual_seed(SEED)
    result = model(*args, **kwargs)
    result = result if options.loss is None else options.loss(result)
    tensors = {name: leaf for name, leaf in outputs_of(result)[0] if isinstance(leaf, Tensor)}
    numbers = {name: leaf for name, leaf in tensors.items() if leaf.is_floating_point() and not leaf.dim()}
    outputs = {name: float(whole_tensor(leaf.detach())) for name, leaf in numbers.items()}
    able = [name for name, leaf in tensors.items() if leaf.requires_grad]
    losses = [name for name in able if name in numbers]
    roots = losses[:1] or able
    if roots:
        begun = [tensors[name] for name in roots]
        torch.autograd.backward(begun, [tangent_of(root, None) for root in begun])
    after = dict(model.named_parameters())  # DDP of DTensors has others in their place after its forward
    parameters = {name: [known[name] for known in (after, before) if name in known] for name in before | after}
    return Left(
        {
            name: next((gradient for one_of in known if (gradient := gradient_of(one_of)) is not None), None)
            for name, known in parameters.items()
        },
        {
            name: on_cpu(opened(torch.zeros_like(tensor) if tensor.grad is None else sharded_like(tensor.grad, tensor)))
            for name, tensor in inputs.items()
        },
        outputs,
        tuple(roots),
        tuple(name for name in able if name not in roots),
    )


def gradient_of(parameter: Tensor) -> Tensor | None:
    """Return the gradient of a parameter, sharded as that is."""
    return None if parameter.grad is None else on_cpu(opened(sharded_like(parameter.grad, parameter)))


def against_whole(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: CaptureOptions,
    size: int,
    captures: Sequence[Capture],
) -> AgainstWhole:
    """Compare the gradients of all ranks with the whole model's."""
    if not isinstance(model, nn.Module):
        raise UsageError("the whole must be a module: its parameters are what gradients are compared for")
    double = copy.deepcopy(model).double()
    call: Call = (double, in_double(tuple(args)), in_double(dict(kwargs)))
    _, arguments = bind_names(model, args, kwargs)
    what = "the model with numbered parameters"
    try:
        numbers = in_ranks(
            size,
            sharding(*numbered(call), options.shard),
            lambda place: numbers_of_rank(place, arguments),
            MadeInDouble,
        )
        what = "the sharded step in float64"
        rows = in_ranks(
            size,
            sharding(*call, options.shard),
            lambda place: gradients_of_rank(place, options, arguments),
            MadeInDouble,
        )
        what = "the whole model in float64, in a group of one rank,"
        [whole] = in_ranks(1, lambda: call, lambda place: gradients_of_rank(place, options, arguments))
    except BackprintError as error:
        return AgainstWhole(0, unknown=((what, f"does not run: {error}"),))
    outputs = tuple(
        OutputNumber(name, tuple(row.left.outputs[name] for row in rows), number, groups_of(rows, captures))
        for name, number in whole.left.outputs.items()
        if all(name in row.left.outputs for row in rows)
    )
    notes = tuple(how_it_began(rows[0].left))
    if has_cleared(rows):
        return AgainstWhole(0, unknown=(CLEARED,), outputs=outputs, notes=notes)
    of_parameters = {
        name: on_cpu(torch.zeros_like(parameter.real)) if (gradient := whole.gradients[name]) is None else gradient.real
        for name, parameter in double.named_parameters()
    }
    answer = compared(numbers, rows, of_parameters, whole.left.inputs, captures)
    if answer.faults and any(row.draws for row in (*rows, whole)):
        names = ", ".join(fault.name for fault in answer.faults[:MOST_SHOWN])
        answer = replace(answer, faults=(), unknown=(*answer.unknown, (DRAWS, f"and the gradient of {names} differs")))
    return replace(answer, outputs=outputs, notes=(*notes, *answer.notes))


DRAWS = "the step draws random numbers, and ranks draw others than the whole (compare in eval mode, with mode='eval'),"


def how_it_began(left: Left) -> Iterator[str]:
    """Say at which outputs the backward began, if others could have been meant."""
    others = ", ".join(left.others[:MOST_SHOWN])
    if others:
        yield f"the backward begins at {left.roots[0]}, and not at {others}: pass loss= to begin elsewhere"
    elif left.roots and left.roots[0] not in left.outputs:
        begun = ", ".join(left.roots[:MOST_SHOWN])
        yield f"the backward begins with ones at {begun}: pass loss= if the step has a loss"


def has_cleared(rows: Sequence[RankGradients]) -> bool:
    """Whether a step that runs its backward itself has left no gradient on any rank."""
    gradients = [gradient for row in rows for gradient in row.gradients.values() if gradient is not None]
    return not any(row.left.roots for row in rows) and not any(bool(gradient.any()) for gradient in gradients)


CLEARED = (
    "the step",
    "leaves no gradients: it clears them, or takes them by torch.autograd.grad. Compare the model that it trains, or a "
    "step that clears them first",
)


def compared(
    numbers: Sequence[Numbers],
    rows: Sequence[RankGradients],
    whole: Mapping[str, Tensor],
    inputs: Mapping[str, Tensor],
    captures: Sequence[Capture],
) -> AgainstWhole:
    """Compare every parameter of every rank with the gradients of the whole model, in the order of its parameters, and
    every input that requires grad."""
    every = (gradient.reshape(-1) for gradient in (*whole.values(), *inputs.values()))
    flat = torch.cat([torch.zeros(1, dtype=torch.float64), *every])
    least = LEAST * float(flat.abs().nan_to_num(0.0, 0.0, 0.0).max())
    faults, unknown, notes, zeros, error, count = [], [], [], [], 0.0, 0
    reducing = {row.group for capture in captures for row in traffic_of(capture) if row.side == "backward"}
    runs_backward = not any(row.left.roots for row in rows)
    with_gradient = [
        row.parameters[name].real.reshape(-1)
        for row, left in zip(numbers, rows, strict=True)
        for name, gradient in left.gradients.items()
        if gradient is not None and name in row.parameters
    ]
    trained = torch.cat([torch.zeros(0, dtype=torch.float64), *with_gradient]).unique()

    def fault(name: str, gradients: Gradients) -> Fault:
        errors = gradients.errors()
        wrong = tuple(rank for rank, off in errors.items() if not off <= TOLERANCE)
        source = source_of_gradient(captures[wrong[0]], name) if captures else None
        cause = cause_of(groups_of(rows, captures, name), wrong, gradients, reducing)
        return Fault(name, wrong, worst_of(errors.values()), cause, source)

    for name in dict.fromkeys(name for row in numbers for name in row.parameters):
        places = {rank: row.parameters[name] for rank, row in enumerate(numbers) if name in row.parameters}
        if reason := unknown_place(places, len(flat)):
            unknown.append((name, reason))
            continue
        gradients = gradients_at(places, flat, [row.gradients.get(name) for row in rows], least)
        errors = gradients.errors()
        missing = [rank for rank in places if rows[rank].gradients.get(name) is None]
        if not all(bool(wanted.isfinite().all()) for wanted in gradients.wanted.values()):
            unknown.append((name, "has NaN or Inf in its gradient in the whole"))
            continue
        if len(missing) == len(places) and all(bool(torch.isin(place, trained).all()) for place in places.values()):
            notes.append(f"{name} is a copy of a parameter that is compared, and has no gradient itself")
            continue
        if missing and runs_backward and any(bool(gradients.wanted[rank].any()) for rank in missing):
            unknown.append((name, f"has no gradient on {ranks_in_words(missing)}: the step has cleared it"))
            continue
        if not gradients.any():
            zeros.append(name)
            continue
        count += 1
        if all(off <= TOLERANCE for off in errors.values()):
            error = max([error, *errors.values()])
        else:
            faults.append(fault(name, gradients))
    for name in inputs:
        places = {rank: row.inputs[name] for rank, row in enumerate(numbers) if name in row.inputs}
        if len(places) < len(rows) or unknown_place(places, len(flat)):
            notes.append(f"the gradient of the input {name} is not compared: `shard` passes another")
            continue
        gradients = gradients_at(places, flat, [row.left.inputs.get(name) for row in rows], least)
        times = next(
            (
                number
                for number in divisors(count_of_different(places))
                if gradients.holds_scaled(list(places), 1 / number)
            ),
            0,
        )
        if not gradients.any():
            zeros.append(name)
            continue
        count += 1
        if not times:
            faults.append(fault(name, gradients))
        elif times > 1:
            notes.append(f"the gradient of the input {name} is {times} times the whole's on every rank")
    unknown = unknown or list(not_held([row.parameters for row in numbers], whole))
    if zeros:
        shown = ", ".join(zeros[:MOST_SHOWN]) + (f" and {len(zeros) - MOST_SHOWN} more" if zeros[MOST_SHOWN:] else "")
        text = "0 in the whole and on every rank, so that a missing reduction does not show"
        if count or faults or unknown:
            notes.append(f"the gradients of {shown} are {text}")
        else:
            unknown.append((shown, f"is {text}"))
    return AgainstWhole(count, tuple(faults), tuple(unknown), error, notes=tuple(notes))


def gradients_at(places: Mapping[int, Tensor], flat: Tensor, local: Sequence[Tensor | None], least: float) -> Gradients:
    """Return the gradients of a parameter or an input on the ranks that have it, with the whole's at its places."""
    at = {rank: place.long() for rank, place in places.items()}
    wanted = {rank: flat[place] for rank, place in at.items()}
    largest = max((float(row.abs().max()) for row in wanted.values() if row.numel()), default=0.0)
    return Gradients({rank: of_the_whole(local[rank], at[rank]) for rank in at}, wanted, max(largest, least))


def count_of_different(places: Mapping[int, Tensor]) -> int:
    """Return how many parts of a whole the ranks hold: two where each of four has one of two halves."""
    different: list[Tensor] = []
    for place in places.values():
        if not any(place.shape == other.shape and torch.equal(place, other) for other in different):
            different.append(place)
    return len(different)


def divisors(number: int) -> list[int]:
    """Return the numbers by which the gradient of an input may be too large: each rank takes the mean over its own
    rows, and only gradients of parameters are averaged."""
    return [by for by in range(1, number + 1) if number % by == 0]


def worst_of(errors: Iterable[float]) -> float:
    """Return the largest error; NaN is larger than any."""
    return max(errors, key=lambda off: (math.isnan(off), off))


LEAST = 1e-5
"""Errors are relative to at least this part of the largest gradient of all parameters: a gradient may be 0 in exact
arithmetic, such as that of a bias before a norm, and what is computed is the rounding of a sum."""


def of_the_whole(gradient: Tensor | None, places: Tensor) -> Tensor | None:
    """Return a gradient without the elements that are not of the whole, such as those of rows that a shard adds."""
    return gradient if gradient is None or gradient.shape != places.shape else gradient * (places > 0)


def not_held(numbers: Sequence[Mapping[str, Tensor]], whole: Mapping[str, Tensor]) -> Iterator[tuple[str, str]]:
    """Yield the parameters of the whole that have a gradient and are trained by no rank, or not all of them."""
    held = [places.real.reshape(-1) for row in numbers for places in row.values()]
    known = torch.cat([torch.zeros(0, dtype=torch.float64), *held]).unique()
    start = 1
    for name, gradient in whole.items():
        count = gradient.numel()
        own = int(((known >= start) & (known < start + count)).sum())
        start += count
        if own < count and bool(gradient.abs().max() > 0):
            part = "it" if not own else f"{count - own} of its {count} elements"
            yield name, f"has a gradient in the whole, and no rank trains {part}"


def unknown_place(rows: Mapping[int, Tensor], most: int) -> str:
    """Say why it is not known where a parameter lies in the whole; '' if it is."""
    for rank, places in rows.items():
        if places.is_complex():
            return "is complex, and only real gradients are compared"
        own = places[places != 0]
        numbered_so = bool((own == own.round()).all()) and bool(((own >= 1) & (own < most)).all())
        if places.numel() and (not own.numel() or not numbered_so or len(own.unique()) < own.numel()):
            return f"does not hold elements of the whole in rank {rank}: `shard` computes it, or makes it anew"
    return ""


def relative_error(gradient: Tensor | None, wanted: Tensor, largest: float) -> float:
    """Return how far a gradient is off, in parts of the largest element of the whole's; None is a gradient of 0."""
    gradient = torch.zeros_like(wanted) if gradient is None else gradient
    if gradient.shape != wanted.shape:
        return float("inf")
    if not wanted.numel():
        return 0.0
    off = float((gradient - wanted).abs().max())
    return off / largest if largest else (0.0 if not off else float("inf"))


# ---- What is missing


@dataclass(frozen=True, slots=True)
class Gradients:
    """The gradients of one parameter, by rank: the ranks' own, and the whole's where they lie."""

    local: Mapping[int, Tensor | None]
    wanted: Mapping[int, Tensor]
    largest: float

    def any(self) -> bool:
        """Whether an element is not 0, on a rank or in the whole."""
        return any(value is not None and bool(value.any()) for value in (*self.local.values(), *self.wanted.values()))

    def errors(self) -> dict[int, float]:
        """Return how far the gradient of each rank is off."""
        return {rank: relative_error(self.local[rank], self.wanted[rank], self.largest) for rank in self.wanted}

    def holds(self, ranks: Sequence[int], change: Callable[[int], Tensor | None]) -> bool:
        """Whether a change of the gradients of these ranks makes them the whole's."""
        return all(relative_error(change(rank), self.wanted[rank], self.largest) <= NEARLY for rank in ranks)

    def holds_scaled(self, ranks: Sequence[int], by: float) -> bool:
        """Whether the gradients of these ranks, times a number, are the whole's."""
        return self.holds(ranks, lambda rank: self.scaled(rank, by))

    def total(self, rank: int, members: Sequence[int]) -> Tensor:
        """Return the sum of the gradients of the members of a rank's group."""
        rows = [row for member in members if (row := self.local.get(member)) is not None]
        same = [row for row in rows if row.shape == self.wanted[rank].shape]
        return sum_of(same) if same else torch.zeros_like(self.wanted[rank])

    def mixes(self, ranks: Sequence[int], members_of: Members, by: float) -> bool:
        """Whether these ranks have the sum of what the members of their groups are to have, divided by a number."""
        known = all(member in self.wanted for rank in ranks for member in members_of[rank])
        same = known and all(
            self.wanted[member].shape == self.wanted[rank].shape for rank in ranks for member in members_of[rank]
        )
        if not same:
            return False
        return all(
            relative_error(
                self.local[rank], sum_of([self.wanted[member] for member in members_of[rank]]) / by, self.largest
            )
            <= NEARLY
            for rank in ranks
        )

    def scaled(self, rank: int, by: float) -> Tensor:
        """Return a rank's gradient times a number; None is a gradient of 0."""
        gradient = self.local[rank]
        return torch.zeros_like(self.wanted[rank]) if gradient is None else gradient * by


def sum_of(tensors: Sequence[Tensor]) -> Tensor:
    """Return the sum of tensors of one shape."""
    return torch.stack(list(tensors)).sum(0)


NEARLY = TOLERANCE
"""How near a changed gradient must come to the whole's, so that the change is called what is missing."""


def cause_of(
    groups: Mapping[str, Members], wrong: Sequence[int], gradients: Gradients, reducing: Collection[str] = ()
) -> str:
    """Say which change of the ranks' gradients would make them the whole's; '' if none that is known does. `reducing`
    are the groups over which the backward sends."""
    others = {
        label: members_of
        for label, members_of in groups.items()
        if all(rank in members_of for rank in wrong) and len(members_of[wrong[0]]) > 1
    }
    for label, members_of in others.items():
        count = len(members_of[wrong[0]])
        alike = [other for other, members in others.items() if len(members[wrong[0]]) == count]
        over = " or ".join([other for other in alike if other in reducing] or alike)
        if gradients.holds_scaled(wrong, 1 / count):
            return f"is {count} times the whole's: summed over {over} once too often, or not averaged"
        if gradients.holds_scaled(wrong, count):
            return f"is 1/{count} of the whole's: averaged over {over} once too often, or not summed"
        if cause := cause_in_group(gradients, wrong, label, members_of):
            return cause
    return factor(gradients, wrong)


def cause_in_group(gradients: Gradients, wrong: Sequence[int], label: str, members_of: Members) -> str:
    """Say what is missing over the groups of one label; '' if it is not that."""
    count = len(members_of[wrong[0]])
    if gradients.holds(wrong, lambda rank: gradients.total(rank, members_of[rank])):
        return f"lacks a sum over {label}"
    if gradients.holds(wrong, lambda rank: gradients.total(rank, members_of[rank]) / count):
        return f"lacks an average over {label}"
    for word, by in (("summed", 1), ("averaged", count)):
        if gradients.mixes(wrong, members_of, by):
            return f"is {word} over {label}, whose ranks hold different parts of it"
    return ""


def factor(gradients: Gradients, wrong: Sequence[int]) -> str:
    """Say by which factor all wrong gradients differ from the whole's; '' if by none."""
    ratios = []
    for rank in wrong:
        gradient, wanted = gradients.scaled(rank, 1), gradients.wanted[rank]
        if gradient.shape != wanted.shape or not wanted.numel() or not float(wanted.abs().max()):
            return ""
        index = int(wanted.abs().argmax())
        ratio = float(gradient.reshape(-1)[index]) / float(wanted.reshape(-1)[index])
        if not relative_error(gradient, wanted * ratio, gradients.largest) <= NEARLY:  # of NaN, too
            return ""
        ratios.append(ratio)
    if not all(map(math.isfinite, ratios)) or f"{ratios[0]:.6g}" == "1":
        return ""
    if max(ratios) - min(ratios) > NEARLY * max(map(abs, ratios)):
        return ""
    return f"is {ratios[0]:.6g} times the whole's" if ratios[0] else "is 0, and the whole's is not"


def groups_of(rows: Sequence[RankGradients], captures: Sequence[Capture], name: str = "") -> dict[str, Members]:
    """Return the members of each rank's groups, by label: the smallest groups first. A program may have several groups
    of the same ranks: first are the dimensions of the mesh of the tensor `name`, then what the step sends over."""
    used = {label for capture in captures if capture.rank is not None for label, _ in capture.rank.groups}
    of_mesh = {label for capture in captures for label in dimensions_of(capture, name)}
    shared = set.intersection(*(set(row.groups) for row in rows))
    groups: dict[str, Members] = {
        label: {row.rank: row.groups[label] for row in rows} for label in rows[0].groups if label in shared
    }
    groups |= families_of(
        {row.rank: [row.groups[label] for label in row.groups if label not in shared] for row in rows}
    )
    everyone = tuple(range(len(rows)))
    groups.setdefault("world", dict.fromkeys(everyone, everyone))

    def place(label: str) -> tuple[int, bool, bool]:
        return max(map(len, groups[label].values())), label not in of_mesh, label not in used

    return {label: groups[label] for label in sorted(groups, key=place)}


def families_of(unnamed: Mapping[int, Sequence[tuple[int, ...]]]) -> dict[str, Members]:
    """Return groups that have no name in common, by their members in words. Every rank makes groups in one order, so
    those that are the first of their ranks belong together, and so do the second."""
    families: dict[str, Members] = {}
    if len({len(groups) for groups in unnamed.values()}) == 1:
        for members in zip(*unnamed.values(), strict=True):
            words = [str(list(some)) for some in dict.fromkeys(members)]
            families.setdefault(
                f"{', '.join(words[:4])}{', …' if len(words) > 4 else ''}", dict(zip(unnamed, members, strict=True))
            )
    return families


def dimensions_of(capture: Capture, name: str) -> Iterator[str]:
    """Yield the dimensions of the mesh of a tensor that is a shard."""
    for pair in capture.pairs:
        for port in pair.forward.inputs:
            if port.name == name and port.shard:
                yield from (place.partition(": ")[0] for place in port.shard.partition(" on ")[2].split(", "))


def source_of_gradient(capture: Capture, name: str) -> Source | None:
    """Return the line of the forward that a gradient comes from: the first in the module of the parameter, else the
    first step that reads it and has a line."""
    module = name.rpartition(".")[0]
    for pair in capture.pairs:
        reading = steps_reading(pair.forward, name)
        lines = [step.source for step in reading if step.source is not None]
        own = [source for source in lines if source.module == module]
        if own or lines:
            return (own or lines)[0]
    return None


def steps_reading(graph: Graph, name: str) -> list[Step]:
    """Return the steps that depend on an input, in order."""
    known = {port.local for port in graph.inputs if port.name == name}
    reading = []
    for step in graph.steps:
        values = (*step.args, *(value for _, value in step.kwargs))
        if any(ref in known for value in values for ref in refs(value)):
            known.add(step.name)
            reading.append(step)
    return reading
