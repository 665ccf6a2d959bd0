"""The step of a model before and after a swap, and each place alone: the loss, outputs, gradients and buffers.

The witness is the untouched program, without the methods of the swap. It runs in float64, in the dtype that is
compared, and in float64 on inputs that are rounded once more; how far it is from itself is what rounding explains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch import pytree
from backprint.derivatives.called import Call, Program, in_dtype, in_words, read_check, run_forward
from backprint.derivatives.checked import NOT_TRIED, OK, WRONG, CheckRow
from backprint.derivatives.compared import REAL, size_of
from backprint.derivatives.setting import is_inexact
from backprint.errors import UsageError
from backprint.swapping.measures import apart
from backprint.swapping.places import Place
from backprint.swapping.proved import ALONE, CALLS, GRADIENT, LOSS, WRITTEN, SwapProof
from backprint.swapping.solutions import name_of
from backprint.swapping.steps import (
    Step,
    StepResults,
    again,
    coarser,
    coarsest,
    nearby_values,
    noisy_inputs,
    wanted_as_they_are,
    widened,
)
from backprint.swapping.watched import SeenCall, Watcher, as_they_were, put_in, record, same_bits
from backprint.values.settings import outside_modes, preserving_random_states


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
            comparisons = Pass(step, tuple(places), recorded, None if dtype is own else dtype, times, allowed)
            rows += comparisons.rows()
    solutions = ", ".join(dict.fromkeys(name_of(place.solution) for place in places))
    return SwapProof(
        f"{solutions} in {type(model).__name__}", str(own)[6:], tuple(place.name for place in places), tuple(rows)
    )


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
        except Exception as error:  # the user's model may raise anything, in a dtype that it was not written for
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
            except Exception as error:  # a user's solution may raise anything
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
        return (
            self.step.run(widened(values)),
            self.step.run(values),
            self.step.run(again(values, self.computes_in, self.step.seed)),
        )

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
            tensors = mine, exact[name], theirs, moved[name]
            difference = apart(*tensors, largest, coarser(kind, self.computes_in), self.times)
            if difference.verdict == WRONG and not self.is_for_all():
                coarse = apart(*tensors, largest, coarser(self.own_kind, torch.float32), self.times)
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
                for chosen in (widened(values), values, again(values, self.computes_in, self.step.seed))
            ]
        except Exception as error:  # the user's module may raise anything on values nearby
            return [
                self.row(
                    f"{ALONE}output{suffix}", f"{prefix}all", f"{NOT_TRIED}: the original raised {in_words(error)}"
                )
            ]
        watcher = Watcher()
        with put_in([place], self.dtype, watcher):
            try:
                ours = results_of(program, call, values, self.step.seed)
            except Exception as error:  # a user's solution may raise anything
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


def results_of(
    program: Program, call: Call, values: Mapping[str, Tensor], seed: int
) -> tuple[dict[str, Tensor | None], dict[str, Tensor | None], dict[str, None]]:
    """Return the outputs of a place, its gradients for random tangents, and the tangents that it wrote into."""
    forward = run_forward(program, call, values)
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
