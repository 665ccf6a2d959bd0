"""The step of a model before and after a swap, and each place alone: the loss, outputs, gradients and buffers.

The witness is the untouched program, without the methods of the swap. It runs in float64, in the dtype that is
compared, and in float64 on inputs that are rounded once more; how far it is from itself is what rounding explains.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch import pytree
from backprint.derivatives.called import Call, Forward, Program, in_dtype, in_words, read_check, run_forward
from backprint.derivatives.checked import NOT_TRIED, OK, WRONG, CheckRow
from backprint.derivatives.compared import REAL, rounded_again, size_of
from backprint.derivatives.setting import is_inexact, wide
from backprint.errors import UsageError
from backprint.swapping.guards import arguments_of, flatten, leaf_names, learn, state_of
from backprint.swapping.measures import apart
from backprint.swapping.places import Place
from backprint.swapping.proved import ALONE, CALLS, GRADIENT, LOSS, WRITTEN, SwapProof
from backprint.swapping.solutions import name_of
from backprint.values.results import outputs_of
from backprint.values.settings import RandomStates, outside_modes, preserving_random_states, random_states
from backprint.values.tree import copy_values

MOVED_BY = 0.1
"""How far values near the captured ones are from these, as a part of them."""


def prove(
    model: nn.Module,
    places: Sequence[Place],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    loss: Callable[[Any], Tensor] | None,
    dtypes: Sequence[torch.dtype],
    requires_grad: Any,
    times: float,
    seed: int,
) -> SwapProof:
    """Compare a model's step before and after, in each dtype; None among them is the model's own."""
    with outside_modes(), preserving_random_states(), as_they_were(places):
        call, program, _ = read_check(model, None, args, kwargs, requires_grad, seed)
        if requires_grad is None:
            call = replace(call, wanted=wanted_as_they_are(call, args, kwargs))
        if not call.wanted:
            raise UsageError("bp.swap: nothing of this call requires grad, so there is no gradient to prove")
        order = max(place.order for place in places)
        step = Step(program, call, loss, seed, order)
        recorded = record(step, places)
        rows: list[CheckRow] = []
        own = coarsest(call.values)
        chosen = tuple(dict.fromkeys(dtypes)) or tuple(dict.fromkeys((own, torch.float64)))
        allowed: dict[tuple[str, str], float] = {}
        for dtype in chosen:
            pass_ = Pass(step, tuple(places), recorded, None if dtype is own else dtype, times, allowed)
            rows += pass_.rows()
    solutions = ", ".join(dict.fromkeys(name_of(place.solution) for place in places))
    return SwapProof(
        f"{solutions} in {type(model).__name__}", str(own)[6:], tuple(place.name for place in places), tuple(rows)
    )


def coarsest(values: Mapping[str, Tensor]) -> torch.dtype:
    """Return the dtype with the fewest digits among floating-point values."""
    kinds = [REAL.get(value.dtype, value.dtype) for value in values.values() if is_inexact(value)]
    return max(kinds, key=lambda kind: torch.finfo(kind).eps)


def wanted_as_they_are(call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parameters that require grad, and the inputs that do; where there are none, all inputs that may."""
    leaves, _ = pytree.tree_flatten((tuple(args), dict(kwargs)))
    with_grad = {
        place.name
        for place, leaf in zip(call.leaves, leaves, strict=True)
        if isinstance(leaf, Tensor) and leaf.requires_grad
    }
    return tuple(name for name in call.wanted if name not in call.inputs or name in with_grad) or call.wanted


# ---- The methods of the places, in and out


@contextlib.contextmanager
def as_they_were(places: Sequence[Place]) -> Iterator[None]:
    """Take the methods of all places out, and put them back afterwards where they were in, with all counts."""
    kept = [(place.installed, place.ran, place.fell_back, dict(place.reasons)) for place in places]
    for place in places:
        if place.installed:
            place.remove()
    try:
        yield
    finally:
        for place, (installed, place.ran, place.fell_back, place.reasons) in zip(places, kept, strict=True):
            if installed:
                place.install()


@contextlib.contextmanager
def put_in(
    places: Sequence[Place], dtype: torch.dtype | None, watch: Callable[..., Any] | None, active: bool = True
) -> Iterator[None]:
    """Put the methods in for a block, with a guard for this dtype; without `active` the originals run."""
    try:
        for place in places:
            place.install()
            place.active, place.watch = active, watch
            place.ran, place.fell_back, place.reasons, place.quiet = 0, 0, {}, True
            place.guard_for_now = None if dtype is None or place.guard is None else place.guard.in_dtype(dtype)
        yield
    finally:
        for place in places:
            place.watch = place.guard_for_now = None
            place.quiet = False
            if place.installed:
                place.remove()


# ---- One step


@dataclass(frozen=True, slots=True, eq=False)
class StepResults:
    """What a step gave, by name: its loss, outputs, gradients, gradients of gradients, and buffers afterwards."""

    loss: Tensor
    outputs: dict[str, Tensor]
    gradients: dict[str, Tensor | None]
    second: dict[str, Tensor | None]
    buffers: dict[str, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A model's step: its call, the loss, and up to which order gradients are taken."""

    program: Program
    call: Call
    loss: Callable[[Any], Tensor] | None
    seed: int
    order: int

    def run(self, values: Mapping[str, Tensor]) -> StepResults:
        """Run it on copies of these values."""
        copies = copy_values({name: value.detach() for name, value in values.items()})
        leaves = {name: copies[name].requires_grad_() for name in self.call.wanted}
        result = self.program(self.call, copies)
        outputs = {name: leaf for name, leaf in outputs_of(result)[0] if isinstance(leaf, Tensor)}
        number = self.loss_of(result, outputs)
        second_too = self.order > 1
        gradients = gradients_of(number, leaves, create_graph=second_too)
        second = self.second_of(gradients, leaves) if second_too else {}
        state = {name for name in values if name not in self.call.inputs and name not in self.call.wanted}
        return StepResults(
            number.detach(),
            {name: output.detach() for name, output in outputs.items()},
            {name: None if gradient is None else gradient.detach() for name, gradient in gradients.items()},
            second,
            {name: copies[name] for name in values if name in state},
        )

    def loss_of(self, result: Any, outputs: Mapping[str, Tensor]) -> Tensor:
        """Return the loss: what the caller's function makes of the result, the model's own, or a sum with weights."""
        if self.loss is not None:
            number = self.loss(result)
        elif is_number(getattr(result, "loss", None)):
            number = result.loss
        elif is_number(result):
            number = result
        else:
            number = weighted(outputs, self.seed)
        if not isinstance(number, Tensor) or not is_number(number):
            raise UsageError(
                "bp.swap: the loss is a floating-point number, a tensor with one element that requires grad"
            )
        return number

    def second_of(
        self, gradients: Mapping[str, Tensor | None], leaves: Mapping[str, Tensor]
    ) -> dict[str, Tensor | None]:
        """Return the gradients of ⟨gradients, directions⟩."""
        ends = {name: end for name, end in gradients.items() if end is not None and end.requires_grad}
        if not ends:
            return dict.fromkeys(leaves)
        return {
            name: None if gradient is None else gradient.detach()
            for name, gradient in gradients_of(weighted(ends, self.seed + 1), leaves).items()
        }


def gradients_of(number: Tensor, leaves: Mapping[str, Tensor], create_graph: bool = False) -> dict[str, Tensor | None]:
    if not number.requires_grad:
        return dict.fromkeys(leaves)
    gradients = torch.autograd.grad(number, list(leaves.values()), create_graph=create_graph, allow_unused=True)
    return dict(zip(leaves, gradients, strict=True))


def is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1 and value.is_floating_point()


def weighted(outputs: Mapping[str, Tensor], seed: int) -> Tensor:
    """Return a sum of all outputs with random weights, which every dtype has exactly."""
    if not any(map(is_inexact, outputs.values())):
        raise UsageError("bp.swap: the model returns no floating-point tensor: pass loss=")
    source = torch.Generator().manual_seed(seed)
    total: Any = 0.0
    for output in filter(is_inexact, outputs.values()):
        weights = torch.randn(output.shape, generator=source).to(torch.bfloat16)
        total = total + (output * weights.to(output)).sum()
    return total if not total.is_complex() else total.real


# ---- What the originals do


@dataclass(slots=True)
class SeenCall:
    """A call of a place: its arguments in copies, which of its tensors it wrote into or changed later, and whether it
    drew random numbers."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: list[str]
    tensors: list[Tensor]
    copies: list[Tensor]
    outputs: list[Tensor] = field(default_factory=list)
    output_copies: list[Tensor] = field(default_factory=list)
    written: set[str] = field(default_factory=set)
    draws: bool = False

    @property
    def changed_later(self) -> set[int]:
        """The outputs that have other values now than when they were returned."""
        pairs = enumerate(zip(self.outputs, self.output_copies, strict=True))
        return {index for index, (output, copy) in pairs if not same_bits(output, copy)}


@dataclass(slots=True)
class Watcher:
    """Sees the calls of all places."""

    calls: dict[str, list[SeenCall]] = field(default_factory=dict)
    error: str = ""

    def __call__(
        self, place: Place, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], make: Callable[[], Any]
    ) -> Any:
        names, tensors = named_tensors(place, module, args, kwargs)
        with torch.no_grad():
            seen = SeenCall(tuple(args), dict(kwargs), names, tensors, [tensor.detach().clone() for tensor in tensors])
        self.calls.setdefault(place.name, []).append(seen)
        before = random_states()
        try:
            results = make()
        except Exception as error:
            self.error = self.error or f"{name_of(place.solution)} at {place.name} raised {in_words(error)}"
            raise
        seen.draws = not same_states(before, random_states())
        pairs = zip(names, tensors, seen.copies, strict=True)
        seen.written = {name for name, tensor, copy in pairs if not same_bits(tensor, copy)}
        leaves: list[Any] = []
        flatten((results,), leaves)
        seen.outputs = [leaf.detach() for leaf in leaves if isinstance(leaf, Tensor)]
        seen.output_copies = [output.clone() for output in seen.outputs]
        return results


def named_tensors(
    place: Place, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[str], list[Tensor]]:
    """Return the tensors of a call by name: those among its arguments, its parameters and its buffers."""
    present, values = arguments_of(place.forms, args, kwargs)
    leaves: list[Any] = []
    flatten(values, leaves)
    named = [*zip(leaf_names(present, values), leaves, strict=True)]
    parameters, buffers = state_of(module)
    own = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    named += [(name, tensor) for (name, _), tensor in zip(own, [*parameters, *buffers], strict=True)]
    return [name for name, leaf in named if isinstance(leaf, Tensor)], [
        leaf for _, leaf in named if isinstance(leaf, Tensor)
    ]


def same_states(before: RandomStates, after: RandomStates) -> bool:
    """Whether no random number was drawn between two states."""
    pairs = zip((before.cpu, *before.cuda), (after.cpu, *after.cuda), strict=False)
    return len(before.cuda) == len(after.cuda) and all(torch.equal(*pair) for pair in pairs)


def same_bits(tensor: Tensor, copy: Tensor) -> bool:
    """Whether two tensors have equal values, NaN included."""
    tensor = tensor.detach()
    equal = (tensor == copy) | ((tensor != tensor) & (copy != copy))
    return tensor.shape == copy.shape and bool(equal.all())


def record(step: Step, places: Sequence[Place]) -> dict[str, list[SeenCall]]:
    """Run the step with the originals, and return the calls of each place; a place without a guard learns it here."""
    watcher = Watcher()
    learning: set[str] = set()

    def watch(place: Place, module: nn.Module, args: Any, kwargs: Any, make: Callable[[], Any]) -> Any:
        if place.guard is None or place.name in learning:
            guard = learn(module, *arguments_of(place.forms, args, kwargs), place.fixed)
            place.guard = guard if place.guard is None else place.guard.joined(guard)
            learning.add(place.name)
        return watcher(place, module, args, kwargs, make)

    with put_in(places, None, watch, active=False):
        step.run(step.call.values)
    return watcher.calls


# ---- The comparisons in one dtype


ONCE_MORE, NEAR = "once more", "values nearby"

WITHIN = "within"
"""The verdict of a result that is off by no more than the rounding of the model's own dtype, in another one."""


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """The comparisons in one dtype, None for the model's own. `allowed` has what was allowed in the model's own dtype:
    a solution may compute inside in that, also where its inputs have another that it is not for."""

    step: Step
    places: tuple[Place, ...]
    recorded: Mapping[str, Sequence[SeenCall]]
    dtype: torch.dtype | None
    times: float
    allowed: dict[tuple[str, str], float]

    @property
    def kind(self) -> torch.dtype:
        return self.dtype or coarsest(self.step.call.values)

    @property
    def own_kind(self) -> torch.dtype:
        """The model's own dtype."""
        return coarsest(self.step.call.values)

    @property
    def computes_in(self) -> torch.dtype:
        """The dtype with the fewest digits in which something is computed: inside autocast another than the inputs'."""
        lower = [place.guard.autocast for place in self.places if place.guard is not None and self.dtype is None]
        return max((self.kind, *filter(None, lower)), key=lambda kind: torch.finfo(kind).eps)

    @property
    def text(self) -> str:
        return str(self.kind)[6:]

    def row(self, check: str, name: str, verdict: str, detail: str = "") -> CheckRow:
        return CheckRow(check, self.text, name, None, None, verdict, detail)

    def rows(self) -> list[CheckRow]:
        """Return all rows."""
        base = in_dtype(self.step.call.values, self.dtype)
        try:
            witness, nearby = self.witnesses(base), nearby_values(base, self.step)
            near_witness = self.witnesses(nearby)
        except Exception as error:
            if self.dtype is None:
                raise
            text = f"{NOT_TRIED}: before the swap the step raised {in_words(error)}"
            return [self.row(LOSS, LOSS, text)]
        rows: list[CheckRow] = []
        watcher = Watcher()
        with put_in(self.places, self.dtype, watcher):
            try:
                results = self.step.run(base)
                rows += self.calls(watcher)
                rows += self.compared(results, witness, "", watcher)
                rows += self.compared(self.step.run(nearby), near_witness, f", {NEAR}", watcher)
                rows += self.faults_of_calls(watcher)  # results of the first run, after one on other values
                rows += self.compared(self.step.run(base), witness, f", {ONCE_MORE}", watcher)
            except Exception as error:
                rows += self.raised(error, watcher)
        for place in self.places:
            rows += self.alone(place)
        return rows

    def raised(self, error: Exception, watcher: Watcher) -> list[CheckRow]:
        """Return the row of a step that raised: it is wrong in a dtype that the solutions are for."""
        text = watcher.error or f"the step raised {in_words(error)}"
        verdict = WRONG if self.is_for_all() else f"{NOT_TRIED}: {text}"
        return [self.row(LOSS, LOSS, verdict, text)]

    def is_for_all(self) -> bool:
        """Whether all solutions are for the dtype."""
        return self.dtype is None or all(place.guard and self.dtype in place.guard.dtypes for place in self.places)

    def witnesses(self, values: Mapping[str, Tensor]) -> tuple[StepResults, StepResults, StepResults]:
        """Run the untouched program: in float64, in the dtype, and in float64 on values that are rounded once more."""
        return self.step.run(widened(values)), self.step.run(values), self.step.run(again(values, self.step.seed))

    # ---- The whole

    def calls(self, watcher: Watcher) -> Iterator[CheckRow]:
        """Yield a row for each place that says whether the solution ran."""
        for place in self.places:
            if place.fell_back:
                why = "; ".join(place.reasons.values())
                yield self.row(CALLS, place.name, f"{NOT_TRIED}: the original ran: {why}")
            elif not place.ran:
                yield self.row(CALLS, place.name, f"{NOT_TRIED}: nothing called it in this step")
            else:
                yield self.row(CALLS, place.name, OK)

    def compared(
        self, ours: StepResults, witness: tuple[StepResults, ...], suffix: str, watcher: Watcher
    ) -> Iterator[CheckRow]:
        """Yield the rows of one run of the whole step."""
        random = self.random(watcher)
        exact, own, moved = witness
        kinds: list[tuple[str, list[dict[str, Tensor | None]]]] = [
            (LOSS, [{LOSS: run.loss} for run in (ours, exact, own, moved)]),
            ("output", [dict(run.outputs) for run in (ours, exact, own, moved)]),
            (GRADIENT, [run.gradients for run in (ours, exact, own, moved)]),
            ("second gradient", [run.second for run in (ours, exact, own, moved)]),
            ("buffer", [dict(run.buffers) for run in (ours, exact, own, moved)]),
        ]
        for check, results in kinds:
            yield from self.rows_of(check + suffix, "", results, random)

    def rows_of(
        self, check: str, prefix: str, results: Sequence[Mapping[str, Tensor | None]], random: str
    ) -> Iterator[CheckRow]:
        """Yield a row for each result of one kind: ours, the exact ones, those in the dtype, and those moved."""
        ours, exact, own, moved = results
        if set(ours) != set(own):
            detail = f"it returns {', '.join(ours) or 'nothing'}, and the original {', '.join(own) or 'nothing'}"
            yield self.row(check, f"{prefix}results", WRONG, detail)
            return
        largest = max((size_of(value) for value in exact.values() if value is not None), default=0.0)
        for name in own:
            mine, theirs = ours[name], own[name]
            detail = "the solution gives no gradient for it" if mine is None and theirs is not None else ""
            if mine is not None and theirs is not None and mine.shape == theirs.shape and mine.dtype != theirs.dtype:
                text = f"its dtype is {mine.dtype}, and the original's {theirs.dtype}"
                yield self.judged(check, prefix + name, None, None, WRONG, random, text)
                continue
            if mine is not None and theirs is not None and mine.shape != theirs.shape:
                text = f"its shape is {tuple(mine.shape)}, and the original's {tuple(theirs.shape)}"
                yield self.judged(check, prefix + name, None, None, WRONG, random, text)
                continue
            kind = REAL.get(theirs.dtype, theirs.dtype) if theirs is not None else self.kind
            if theirs is not None and not is_inexact(theirs):
                verdict = OK if mine is not None and same_bits(mine, theirs) else WRONG
                yield self.judged(check, prefix + name, None, None, verdict, random, "it has other values")
                continue
            results_ = mine, exact[name], theirs, moved[name]
            difference = apart(*results_, largest, coarser(kind, self.computes_in), self.times)
            if difference.verdict == WRONG and not self.is_for_all():
                coarse = apart(*results_, largest, coarser(self.own_kind, torch.float32), self.times)
                difference = replace(difference, verdict=WITHIN) if coarse.verdict == OK else difference
            yield self.judged(
                check, prefix + name, difference.error, difference.allowed, difference.verdict, random, detail
            )

    def judged(
        self,
        check: str,
        name: str,
        error: float | None,
        allowed: float | None,
        verdict: str,
        random: str,
        detail: str,
    ) -> CheckRow:
        """Return a row. What is wrong may be other random numbers, or rounding of a dtype that a solution computes in
        where it is not for this one."""
        if self.dtype is None and allowed is not None:
            self.allowed[check, name] = allowed
        if verdict == WRONG and random:
            verdict, error, allowed = f"{NOT_TRIED}: {random}", None, None
        elif verdict in (WRONG, WITHIN) and not self.is_for_all():
            most = self.allowed.get((check, name))
            if verdict == WITHIN or (error is not None and most is not None and error <= most):
                verdict = f"{NOT_TRIED}: a solution computes in another dtype inside, and is not for {self.text}"
                error = allowed = None
        return CheckRow(check, self.text, name, error, allowed, verdict, detail if verdict == WRONG else "")

    def random(self, watcher: Watcher) -> str:
        """Return which places draw random numbers, in words; '' if none does."""
        both = [*self.recorded.items(), *watcher.calls.items()]
        drawing = list(dict.fromkeys(name for name, calls in both if any(call.draws for call in calls)))
        if not drawing:
            return ""
        return f"{drawing[0]} draws random numbers, and others with the solution than without: set its probability to 0"

    def faults_of_calls(self, watcher: Watcher) -> Iterator[CheckRow]:
        """Yield a row for each tensor that a solution writes into and the original does not."""
        for place in self.places:
            for seen, known in zip(watcher.calls.get(place.name, ()), self.recorded.get(place.name, ()), strict=False):
                for name in sorted(seen.written - known.written):
                    detail = f"{name_of(place.solution)} writes into it, and the original does not"
                    yield self.row(WRITTEN, f"{place.name}: {name}", WRONG, detail)
                for index in sorted(seen.changed_later - known.changed_later):
                    detail = f"{name_of(place.solution)} changed it after it was returned: results must have own memory"
                    yield self.row(WRITTEN, f"{place.name}: output {index}", WRONG, detail)

    # ---- A place alone

    def alone(self, place: Place) -> list[CheckRow]:
        """Return the rows of one place alone: on the inputs that it has in the model, and on others near them."""
        calls = self.recorded.get(place.name, ())
        if not calls:
            return []
        seen = calls[0]
        copies = {id(tensor): copy for tensor, copy in zip(seen.tensors, seen.copies, strict=True)}
        with_grad = {name for name, tensor in zip(seen.names, seen.tensors, strict=True) if tensor.requires_grad}
        args, kwargs = pytree.tree_map(lambda leaf: copies.get(id(leaf), leaf), (seen.args, seen.kwargs))
        call, program, _ = read_check(place.module, None, args, kwargs, None, self.step.seed)
        state = dict(zip(seen.names, seen.copies, strict=True))
        values = {
            name: state.get(name, value) if name not in call.inputs else value for name, value in call.values.items()
        }
        wanted = tuple(name for name in call.wanted if name not in call.inputs or not with_grad or name in with_grad)
        call = replace(call, values=values, wanted=wanted)
        rows: list[CheckRow] = []
        base = in_dtype(values, self.dtype)
        nearby = noisy_inputs(base, call, self.step.seed)
        for suffix, chosen in (("", base), (f", {NEAR}", nearby)):
            rows += self.alone_on(place, program, call, chosen, suffix, seen)
        return rows

    def alone_on(
        self, place: Place, program: Program, call: Call, values: Mapping[str, Tensor], suffix: str, known: SeenCall
    ) -> list[CheckRow]:
        prefix = f"{place.name}: "
        try:
            originals = [
                results_of(program, call, chosen, self.step.seed)
                for chosen in (widened(values), values, again(values, self.step.seed))
            ]
        except Exception as error:
            return [
                self.row(
                    f"{ALONE}output{suffix}", f"{prefix}all", f"{NOT_TRIED}: the original raised {in_words(error)}"
                )
            ]
        watcher = Watcher()
        with put_in([place], self.dtype, watcher):
            try:
                ours = results_of(program, call, values, self.step.seed)
            except Exception as error:
                text = watcher.error or f"{name_of(place.solution)} raised {in_words(error)}"
                verdict = WRONG if self.is_for_all() else f"{NOT_TRIED}: {text}"
                return [self.row(f"{ALONE}output{suffix}", f"{prefix}all", verdict, text)]
            if place.fell_back or not place.ran:
                why = "; ".join(place.reasons.values())
                return [self.row(f"{ALONE}output{suffix}", f"{prefix}all", f"{NOT_TRIED}: the original ran: {why}")]
        random = self.random(watcher)
        rows = [
            self.row(
                WRITTEN, f"{prefix}tangent of {name}", WRONG, "the backward writes into it, and others may need it"
            )
            for name in set(ours[2]) - set(originals[1][2])
        ]
        for check, index in ((f"{ALONE}output{suffix}", 0), (f"{ALONE}gradient{suffix}", 1)):
            rows += self.rows_of(check, prefix, [dict(run[index]) for run in (ours, *originals)], random)
        return rows


def coarser(first: torch.dtype, second: torch.dtype) -> torch.dtype:
    return max(first, second, key=lambda kind: torch.finfo(kind).eps)


def results_of(
    program: Program, call: Call, values: Mapping[str, Tensor], seed: int
) -> tuple[dict[str, Tensor | None], dict[str, Tensor | None], dict[str, None]]:
    """Return the outputs of a place, its gradients for random tangents, and the tangents that it wrote into."""
    forward: Forward = run_forward(program, call, values)
    source = torch.Generator().manual_seed(seed + 1)
    outputs = {name: output for name, output in forward.outputs.items() if is_inexact(output)}
    tangents = {}
    for name, output in outputs.items():
        drawn = torch.randn(output.shape, generator=source).to(torch.bfloat16)
        tangents[name] = drawn.to(output)
    copies = {name: tangent.clone() for name, tangent in tangents.items()}
    gradients = forward.gradients(tangents)
    written = {name: None for name, tangent in tangents.items() if not same_bits(tangent, copies[name])}
    return {name: output.detach() for name, output in forward.outputs.items()}, gradients, written


# ---- Values


def widened(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the values in float64."""
    return {name: wide(value) for name, value in values.items()}


def again(values: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Return the values in float64, rounded once more as their dtype rounds."""
    source = torch.Generator().manual_seed(seed)
    return {name: rounded_again(wide(value), value.dtype, source) for name, value in values.items()}


def nearby_values(values: Mapping[str, Tensor], step: Step) -> dict[str, Tensor]:
    """Return values of which those that gradients are wanted of are up to a tenth larger or smaller."""
    source = torch.Generator().manual_seed(step.seed + 2)
    return {
        name: value * (1 + MOVED_BY * uniform(value, source)) if name in step.call.wanted else value
        for name, value in values.items()
    }


def noisy_inputs(values: Mapping[str, Tensor], call: Call, seed: int) -> dict[str, Tensor]:
    """Return values whose inputs that require grad have noise on them: an input that is 0 in the model is not 0."""
    source = torch.Generator().manual_seed(seed + 3)
    moved = dict(values)
    for name in call.wanted:
        value = values[name]
        moved[name] = value + (MOVED_BY * (size_of(value) or 1.0) * uniform(value, source)).to(value)
    return moved


def uniform(value: Tensor, source: torch.Generator) -> Tensor:
    """Return numbers between -1 and 1 in the shape and dtype of a tensor."""
    return (torch.rand(value.shape, generator=source) * 2 - 1).to(value)
