"""The step of a model before and after a swap, and each place alone: the loss, outputs, gradients and buffers.

The witness is the untouched program, without the methods of the swap. It runs in float64, in the dtype that is
compared, and in float64 on inputs that are rounded once more; how far it is from itself is what rounding explains.

Words of this file:

- place: one module whose forward the swap replaces by a solution (Place). `fell_back` counts the calls in which the
  original ran instead, and `reasons` says why.
- guard: what a place's solution is for; None as long as the place has none.
- values: the tensors of a call, by name: its inputs (`call.inputs`) and the parameters and buffers of the model. Those
  in `call.wanted` are the ones whose gradients are compared.
- program: the callable of a Call, with the names of its parameters and buffers and the seed that is set at each call.
- tangents: the gradients of the outputs that a backward starts with.
- row: one comparison (CheckRow): what was compared, in which dtype, the error and what is allowed, and a verdict: OK,
  WRONG, or NOT_TRIED with a reason.
- recorded: for each place, by its name, the calls that the original had in the model's step (SeenCall).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from backprint._torch import pytree
from backprint._torch.modes import TorchDispatchMode, pop_mode, push_mode
from backprint._torch.operators import schema_of
from backprint.derive.called import (
    Call,
    Program,
    copies_for,
    error_text,
    in_dtype,
    read_check,
    run_forward,
    run_on_tensors,
)
from backprint.derive.checked import NOT_TRIED, OK, WRONG, CheckRow
from backprint.derive.setting import is_inexact, own_source
from backprint.derive.unusual import FAIR, LARGE_MEAN, OF_FLOAT16, SIZES, is_integer
from backprint.derive.usage import SMALLER
from backprint.errors import UsageError, is_defect
from backprint.judge.closeness import REAL, Closeness, compare, same_bits, size_of
from backprint.judge.occasions import FACTORS, OCCASIONS, repeated_indices
from backprint.tools.swap.places import Place
from backprint.tools.swap.proved import ALONE, CALLS, GRADIENT, LOSS, SETTINGS, WRITTEN, SwapProof
from backprint.tools.swap.solutions import name_of
from backprint.tools.swap.steps import (
    Step,
    StepResults,
    coarser,
    coarsest,
    names_requiring_grad,
    nearby_values,
    noisy_inputs,
    round_values_again,
    widened,
)
from backprint.tools.swap.watched import SeenCall, Watcher, install_methods, record, restoring_methods
from backprint.values.settings import (
    TORCH_RANDOM,
    outside_modes,
    preserving_random_states,
    process_state,
    seed_all,
)


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
    """Compare a model's step before and after, in each of `dtypes`, or else in the model's own and in float64. Places
    without a guard learn it here, and guards get what was proven besides. UsageError says that nothing requires grad.

    `loss` makes a number of what the model returns; None takes the model's own. `requires_grad` names the inputs whose
    gradients are compared; with None they are those that require grad. Results may be off by `times` what the original
    is itself off by.
    """
    with outside_modes(), preserving_random_states(), restoring_methods(places):
        # The third result would be a reference (`like`) as a program. There is none: the model itself is the witness.
        call, program, _ = read_check(model, None, args, kwargs, requires_grad, seed)
        if requires_grad is None:
            call = replace(call, wanted=names_requiring_grad(call, args, kwargs))
        if not call.wanted:
            raise UsageError("bp.swap: nothing of this call requires grad, so there is no gradient to prove")
        order = max(place.order for place in places)
        step = Step(program, call, loss, seed, order)
        recorded = record(step, places)
        rows: list[CheckRow] = []
        own_dtype = coarsest(call.values)
        dtypes_to_compare = tuple(dict.fromkeys(dtypes)) or tuple(dict.fromkeys((own_dtype, torch.float64)))
        # By check and name. The pass in the model's own dtype fills it, and those after it read it.
        allowed: dict[tuple[str, str], float] = {}
        for dtype in dtypes_to_compare:
            comparisons = Pass(step, tuple(places), recorded, None if dtype is own_dtype else dtype, times, allowed)
            rows += comparisons.rows()
    solutions = ", ".join(dict.fromkeys(name_of(place.solution) for place in places))
    return SwapProof(
        name=f"{solutions} in {type(model).__name__}",
        own=str(own_dtype)[6:],  # without `torch.`
        places=tuple(place.name for place in places),
        rows=tuple(rows),
    )


# ---- The comparisons in one dtype


ONCE_MORE, NEAR = "once more", "values nearby"
"""Ends of the names of checks: of a second run on the same values, and of a run on values near the captured ones."""

T = TypeVar("T", covariant=True)
U = TypeVar("U")


class _Four(NamedTuple, Generic[T]):
    """What four runs returned: `ours` that with the solution, the others those of the original. `exact` is its result
    in float64, `own` in the dtype that is compared, and `moved` in float64 on values that are rounded once more."""

    ours: T
    exact: T
    own: T
    moved: T

    def each(self, part: Callable[[T], U]) -> _Four[U]:
        """Return one part of what each run returned."""
        return _Four(part(self.ours), part(self.exact), part(self.own), part(self.moved))


class _Witness(NamedTuple):
    """The results of the original: in float64, in the dtype, and in float64 on values that are rounded once more."""

    exact: StepResults
    own: StepResults
    moved: StepResults


WITHIN = "within"
"""The verdict of a result that is off by no more than the rounding of the model's own dtype, in another one."""


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """The comparisons in one dtype, None for the model's own. `allowed` has what was allowed in the model's own dtype,
    by check and name: a solution may compute inside in that, also where its inputs have another that it is not for.
    Results may be off by `times` what the original is itself off by.

    Most methods return or yield rows. In these, `suffix` is the end of the names of checks (`, values nearby`), and
    `random` says which place draws random numbers, so that its results cannot be compared; '' if none does.
    """

    step: Step
    places: tuple[Place, ...]
    recorded: Mapping[str, Sequence[SeenCall]]
    dtype: torch.dtype | None
    times: float
    allowed: dict[tuple[str, str], float]

    @property
    def kind(self) -> torch.dtype:
        """The dtype that is compared."""
        return self.dtype or coarsest(self.step.call.values)

    @property
    def own_kind(self) -> torch.dtype:
        """The model's own dtype."""
        return coarsest(self.step.call.values)

    @property
    def computes_in(self) -> torch.dtype:
        """The dtype with the fewest digits in which something is computed: inside autocast, which guards know, another
        than the inputs'. It is asked for in the model's own dtype only: autocast leaves float64 as it is."""
        lower = [place.guard.autocast for place in self.places if place.guard is not None and self.dtype is None]
        return max((self.kind, *filter(None, lower)), key=lambda kind: torch.finfo(kind).eps)

    @property
    def text(self) -> str:
        """The dtype that is compared, without `torch.`."""
        return str(self.kind)[6:]

    def row(self, check: str, name: str, verdict: str, detail: str = "") -> CheckRow:
        """Return a row without an error: of what was not compared, or is wrong without a number."""
        return CheckRow(check, self.text, name, None, None, verdict, detail)

    def rows(self) -> list[CheckRow]:
        """Return all rows: of the whole step with the solutions, on the values of the call, on others nearby, and on
        the first once more; and of each place alone.

        A model that raises without the solutions raises here in its own dtype. In another it may not have been written
        for that, and nothing is compared.
        """
        base = in_dtype(self.step.call.values, self.dtype)
        try:
            witness, nearby = self.witnesses(base), nearby_values(base, self.step)
            near_witness = self.witnesses(nearby)
        except Exception as error:  # the user's model may raise anything
            if self.dtype is None:
                raise
            text = f"{NOT_TRIED}: before the swap the step raised {error_text(error)}"
            return [self.row(check=LOSS, name=LOSS, verdict=text)]
        rows: list[CheckRow] = []
        watcher = Watcher()
        with install_methods(self.places, self.dtype, watcher):
            try:
                results = self.step.run(base)
                rows += self.calls()  # before the next run, which calls the places too
                rows += self.compare_step(results, witness, "", watcher)
                rows += self.compare_step(self.step.run(nearby), near_witness, f", {NEAR}", watcher)
                rows += self.faults_of_calls(watcher)  # now, as the second run may have changed results of the first
                rows += self.compare_step(self.step.run(base), witness, f", {ONCE_MORE}", watcher)
            except Exception as error:  # a user's solution may raise anything
                rows += self.raised(error, watcher)
        for place in self.places:
            rows += self.rows_of_place(place)
        return rows

    def raised(self, error: Exception, watcher: Watcher) -> list[CheckRow]:
        """Return the row of a step that raised with the solutions: it is wrong in a dtype that these are for. The
        watcher knows which solution raised, if one did."""
        text = watcher.error or f"the step raised {error_text(error)}"
        verdict = WRONG if self.is_for_all() else f"{NOT_TRIED}: {text}"
        return [self.row(LOSS, LOSS, verdict, text)]

    def is_for_all(self) -> bool:
        """Whether all solutions are for the dtype, as their guards say."""
        return self.dtype is None or all(place.guard and self.dtype in place.guard.dtypes for place in self.places)

    def witnesses(self, values: Mapping[str, Tensor]) -> _Witness:
        """Run the untouched program three times, and return its results."""
        return _Witness(
            exact=self.step.run(widened(values)),
            own=self.step.run(values),
            moved=self.step.run(round_values_again(values, self.computes_in, self.step.seed)),
        )

    # ---- The whole step

    def calls(self) -> Iterator[CheckRow]:
        """Yield a row for each place that says whether the solution ran. Where the original ran, in any call, the place
        is not tried."""
        for place in self.places:
            if place.fell_back:
                why = "; ".join(place.reasons.values())
                yield self.row(CALLS, place.name, f"{NOT_TRIED}: the original ran: {why}")
            elif not place.ran:
                yield self.row(CALLS, place.name, f"{NOT_TRIED}: nothing called it in this step")
            else:
                yield self.row(CALLS, place.name, OK)

    def compare_step(self, ours: StepResults, witness: _Witness, suffix: str, watcher: Watcher) -> Iterator[CheckRow]:
        """Yield the rows of one run of the whole step: of its loss, outputs, gradients and buffers."""
        random = self.random(watcher)
        runs = _Four(ours, *witness)
        kinds: list[tuple[str, _Four[Mapping[str, Tensor | None]]]] = [
            (LOSS, runs.each(lambda run: {LOSS: run.loss})),
            ("output", runs.each(lambda run: run.outputs)),
            (GRADIENT, runs.each(lambda run: run.gradients)),
            ("second gradient", runs.each(lambda run: run.second)),
            ("buffer", runs.each(lambda run: run.buffers)),
        ]
        for check, results in kinds:
            yield from self.rows_of(check + suffix, "", results, random)

    def rows_of(
        self, check: str, prefix: str, results: _Four[Mapping[str, Tensor | None]], random: str
    ) -> Iterator[CheckRow]:
        """Yield a row for each result of one kind, such as all gradients. Names in the rows begin with `prefix`. If the
        solution returns other results than the original, that is the only row."""
        ours, exact, own, moved = results
        if set(ours) != set(own):
            detail = f"it returns {', '.join(ours) or 'nothing'}, and the original {', '.join(own) or 'nothing'}"
            yield self.row(check, f"{prefix}results", WRONG, detail)
            return
        largest = max((size_of(value) for value in exact.values() if value is not None), default=0.0)
        for name in own:
            tensors = _Four(ours[name], exact[name], own[name], moved[name])
            yield self.row_of_result(check, prefix + name, tensors, largest, random)

    def row_of_result(
        self, check: str, name: str, tensors: _Four[Tensor | None], largest: float, random: str
    ) -> CheckRow:
        """Return the row of one result. None is a gradient that is not there. `largest` is the largest value of all
        results of its kind: beside it, a result may be nothing but rounding."""
        ours, _, own, _ = tensors
        if ours is not None and own is not None and ours.shape != own.shape:
            detail = f"its shape is {tuple(ours.shape)}, and the original's {tuple(own.shape)}"
            return self.judged_row(check, name, WRONG, random, detail)
        if ours is not None and own is not None and ours.dtype != own.dtype:
            detail = f"its dtype is {ours.dtype}, and the original's {own.dtype}"
            return self.judged_row(check, name, WRONG, random, detail)
        if own is not None and not is_inexact(own):  # integers and booleans have no rounding
            verdict = OK if ours is not None and same_bits(ours, own) else WRONG
            return self.judged_row(check, name, verdict, random, "it has other values")
        dtype = REAL.get(own.dtype, own.dtype) if own is not None else self.kind
        closeness = _compare_or_zero(tensors, coarser(dtype, self.computes_in), largest, self.times)
        verdict = _verdict_of(closeness)
        if verdict == WRONG and not self.is_for_all():
            # A solution that is not for this dtype may compute in the model's own, or in float32, inside.
            coarse = _compare_or_zero(tensors, coarser(self.own_kind, torch.float32), largest, self.times)
            verdict = WITHIN if _verdict_of(coarse) == OK else verdict
        if self.dtype is None:
            self.allowed[check, name] = closeness.allowed
        error, allowed = (None, None) if verdict.startswith(NOT_TRIED) else (closeness.error, closeness.allowed)
        is_missing = ours is None and own is not None
        detail = "the solution gives no gradient for it" if is_missing else closeness.detail
        return self.judged_row(check, name, verdict, random, detail, error, allowed)

    def judged_row(
        self,
        check: str,
        name: str,
        verdict: str,
        random: str,
        detail: str,
        error: float | None = None,
        allowed: float | None = None,
    ) -> CheckRow:
        """Return a row with the verdict (OK, WRONG, WITHIN or NOT_TRIED), or with NOT_TRIED in the place of WRONG where
        other random numbers explain it, and where the solutions are not for this dtype and the rounding of the dtype
        that they compute in explains it: the result is WITHIN, or off by no more than was allowed in the model's own
        dtype. `detail` is said of what is wrong alone."""
        if verdict == WRONG and random:
            verdict, error, allowed = f"{NOT_TRIED}: {random}", None, None
        elif verdict in (WRONG, WITHIN) and not self.is_for_all():
            allowed_in_own_dtype = self.allowed.get((check, name))
            is_as_near_as_in_own = (
                error is not None and allowed_in_own_dtype is not None and error <= allowed_in_own_dtype
            )
            if verdict == WITHIN or is_as_near_as_in_own:
                verdict = f"{NOT_TRIED}: a solution computes in another dtype inside, and is not for {self.text}"
                error = allowed = None
        return CheckRow(check, self.text, name, error, allowed, verdict, detail if verdict == WRONG else "")

    def random(self, watcher: Watcher) -> str:
        """Return in words that a place draws random numbers, with the original (`recorded`) or with the solution, which
        the watcher saw; '' if none does. The first such place is named."""
        calls_of_both = [*self.recorded.items(), *watcher.calls.items()]
        drawing = list(dict.fromkeys(name for name, calls in calls_of_both if any(call.draws for call in calls)))
        if not drawing:
            return ""
        return f"{drawing[0]} draws random numbers, and others with the solution than without: set its probability to 0"

    def faults_of_calls(self, watcher: Watcher) -> Iterator[CheckRow]:
        """Yield a row for each tensor that a solution writes into and the original does not, call by call: arguments,
        parameters and buffers, and outputs that changed after they were returned."""
        for place in self.places:
            # Not strict: the watcher has seen the calls of two runs, and the originals those of one.
            pairs = zip(watcher.calls.get(place.name, ()), self.recorded.get(place.name, ()), strict=False)
            for with_solution, with_original in pairs:
                for name in sorted(with_solution.written - with_original.written):
                    detail = f"{name_of(place.solution)} writes into it, and the original does not"
                    yield self.row(WRITTEN, f"{place.name}: {name}", WRONG, detail)
                for index in sorted(with_solution.changed_later - with_original.changed_later):
                    detail = f"{name_of(place.solution)} changed it after it was returned: results must have own memory"
                    yield self.row(WRITTEN, f"{place.name}: output {index}", WRONG, detail)

    # ---- A place alone

    def rows_of_place(self, place: Place) -> list[CheckRow]:
        """Return the rows of one place alone: on the inputs that it has in the model, and on others near them; in the
        model's own dtype, also for other tangents, other inputs and fewer gradients. A place that the model's step did
        not call has none."""
        calls = self.recorded.get(place.name, ())
        if not calls:
            return []
        call, program = self.call_of_place(place, calls[0])
        base = in_dtype(call.values, self.dtype)
        nearby = noisy_inputs(base, call, self.step.seed)
        # Under two seeds: after a solution that seeds torch, the random states of both runs are the same (`settings`).
        with_other_seed = replace(program, seed=program.seed + 1)
        effects: list[Effects] = []
        rows = self.compare_place(place, program, call, base, "", effects=effects)
        rows += self.compare_place(place, with_other_seed, call, nearby, f", {NEAR}", effects=effects)
        rows += self.settings(place, effects)
        if self.dtype is None:
            for word in OF_FLOAT16 if torch.float16 in {value.dtype for value in base.values()} else SIZES:
                size = FACTORS[word]  # 65536.0 of "2^16"
                rows += self.compare_place(place, program, call, base, f", tangents times {word}", size=size)
            if call.wanted:
                rows += self.compare_place(place, program, call, base, f", {TWICE}", twice=True)
            rows += self.with_large_means(place, program, call, base)
            rows += self.with_other_calls(place, program, call, base)
            rows += self.with_less_grad(place, program, call, base)
        return rows

    def call_of_place(self, place: Place, seen: SeenCall) -> tuple[Call, Program]:
        """Return a call of a place's module alone, with the values that it had in the model before the call, which may
        have written into them, and the module as a program.

        Gradients are wanted of its parameters, and of those inputs that required grad in the model; if no tensor of
        the call did, of all inputs that may require grad.
        """
        copies = {id(tensor): copy for tensor, copy in zip(seen.tensors, seen.copies, strict=True)}
        args, kwargs = pytree.tree_map(lambda leaf: copies.get(id(leaf), leaf), (seen.args, seen.kwargs))
        # No reference, as in `prove`. The copies require no grad: all inputs that may are wanted; some are left below.
        call, program, _ = read_check(
            place.module, like=None, args=args, kwargs=kwargs, requires_grad=None, seed=self.step.seed + OF_PLACE
        )
        copy_by_name = dict(zip(seen.names, seen.copies, strict=True))
        values = {  # inputs are copies already; parameters and buffers are taken from before the call too
            name: copy_by_name.get(name, value) if name not in call.inputs else value
            for name, value in call.values.items()
        }
        with_grad = {name for name, tensor in zip(seen.names, seen.tensors, strict=True) if tensor.requires_grad}
        wanted = tuple(name for name in call.wanted if name not in call.inputs or not with_grad or name in with_grad)
        return replace(call, values=values, wanted=wanted), program

    def with_large_means(
        self, place: Place, program: Program, call: Call, values: Mapping[str, Tensor]
    ) -> Iterator[CheckRow]:
        """Yield rows for inputs with a mean that is large beside their deviation, as activations have: for the outputs,
        and for the gradient of an only input, because others are sums of large terms. A solution need not take such
        values: where it returns NaN or Inf, nothing is said. Results may be off by FAIR times as much as is allowed
        elsewhere, because two good ways to compute a variance differ by as much there."""
        shift_mean = OCCASIONS[LARGE_MEAN].make  # returns None for a tensor that has no mean to shift
        changed = {name: other for name in call.inputs if (other := shift_mean(values[name])) is not None}
        if not changed:
            return
        only_gradient = f"{place.name}: {next(iter(changed))}" if len(changed) == 1 else None
        for row in self.compare_place(place, program, call, {**values, **changed}, f", {LARGE_MEAN}"):
            is_said = row.check.startswith(f"{ALONE}output") or row.name == only_gradient
            if is_said and row.error is not None and math.isfinite(row.error):
                is_within_fair_limit = row.allowed is not None and row.error <= FAIR * row.allowed
                yield replace(row, verdict=OK, detail="") if is_within_fair_limit else row

    def with_other_calls(
        self, place: Place, program: Program, call: Call, values: Mapping[str, Tensor]
    ) -> Iterator[CheckRow]:
        """Yield rows for batches and lengths of other sizes, as the last of an epoch is, for repeated indices, and for
        padding.

        A solution that has a size built in names it in `fixed`, and the original runs for others. One that raises is
        loud about it, so it is not wrong but not tried.
        """
        inputs = {name: value for name, value in values.items() if name in call.inputs}
        for words, changed in (*other_calls(inputs), *self.with_padding(program, call, values)):
            for row in self.compare_place(place, program, call, {**values, **changed}, f", {words}"):
                # The row of a solution that raised, in which `compare_place` names all results.
                if row.verdict == WRONG and row.error is None and row.name.endswith(": all"):
                    yield replace(row, verdict=f"{NOT_TRIED}: {row.detail}", detail="")
                else:
                    hint = "" if "indices" in words else "a size that it has built in belongs to fixed="
                    detail = "; ".join(filter(None, (row.detail, hint)))
                    yield replace(row, detail=detail) if row.verdict == WRONG else row

    def with_padding(
        self, program: Program, call: Call, values: Mapping[str, Tensor]
    ) -> Iterator[tuple[str, dict[str, Tensor]]]:
        """Yield inputs in which every second index is one of padding: in words, and those that are changed by name.

        That is where the original reads rows of an embedding that has a `padding_idx`, whose row gets no gradient, and
        the batch of the call has no padding, so that a solution that forgets this was not caught yet.
        """
        indices = {name: values[name] for name in call.inputs if name in values and is_integer(values[name])}
        if not indices:
            return
        paddings = _Paddings()
        push_mode(paddings)
        try:
            results_of(program, call, values, self.step.seed)
        except Exception as error:  # the user's module may raise anything, and with_other_calls says so
            if is_defect(error):
                raise
            return
        finally:
            pop_mode()
        for name, value in indices.items():
            flat = value.reshape(-1)
            for padding in sorted({padding for padding, read in paddings.found if torch.equal(read, flat)}):
                if value.numel() > 1 and not bool((value == padding).any()):
                    padded = torch.where(torch.arange(len(flat), device=flat.device) % 2 == 1, padding, flat)
                    yield f"indices of padding in {name}", {name: padded.to(value.dtype).reshape(value.shape)}

    def with_less_grad(
        self, place: Place, program: Program, call: Call, values: Mapping[str, Tensor]
    ) -> Iterator[CheckRow]:
        """Yield the rows of a place whose inputs, or whose parameters, or both require no grad, as where what comes
        before it is frozen; and of one in inference mode. Where nothing is wrong, the place's guard lets such calls
        pass from now on."""
        inputs = tuple(name for name in call.wanted if name in call.inputs)
        parameters = tuple(name for name in call.wanted if name not in call.inputs)
        for word, wanted in (
            ("inputs frozen", parameters),
            ("parameters frozen", inputs),
            ("without gradients", ()),
        ):
            if wanted == call.wanted or (not wanted and word != "without gradients"):
                continue  # the same as another of these calls
            rows = self.compare_place(place, program, replace(call, wanted=wanted), values, f", {word}")
            yield from rows
            if place.guard is not None and not any(row.verdict == WRONG for row in rows):
                place.guard = place.guard.proven_for(
                    inputs=bool(wanted) and wanted == inputs, state=bool(wanted) and wanted == parameters
                )
        without = replace(call, wanted=())
        yield from self.compare_place(place, program, without, values, ", in inference mode", inference=True)

    def settings(self, place: Place, effects: Sequence[Effects]) -> Iterator[CheckRow]:
        """Yield a row for each setting or random state of the process that a solution changes, and the original does
        not. `effects` are those of each run; what only some runs change does not count, because a first one may
        compile.

        Where both draw random numbers, both change torch's random state. The runs begin with different seeds, so a
        solution after which the state is the same each time seeds torch itself.
        """
        if not effects:
            return
        solution = name_of(place.solution)
        for name in sorted(frozenset.intersection(*(effect.of_solution - effect.of_original for effect in effects))):
            detail = f"{solution} changes {name}, and the original does not"
            yield self.row(SETTINGS, f"{place.name}: {name}", WRONG, detail)
        both_draw = all(TORCH_RANDOM in effect.of_solution & effect.of_original for effect in effects)
        if both_draw and len(effects) > 1 and len({effect.random_state for effect in effects}) == 1:
            detail = f"{solution} seeds torch: after it, the random numbers are the same in each step"
            yield self.row(SETTINGS, f"{place.name}: {TORCH_RANDOM}", WRONG, detail)

    def compare_place(
        self,
        place: Place,
        program: Program,
        call: Call,
        values: Mapping[str, Tensor],
        suffix: str,
        *,
        size: float = 1.0,
        twice: bool = False,
        inference: bool = False,
        effects: list[Effects] | None = None,
    ) -> list[CheckRow]:
        """Return the rows of one place alone on these values: of its outputs, gradients and buffers, and of tangents
        that the backward of the solution alone writes into. One row, named `all`, says that the original or the
        solution raised, or that the solution did not run.

        Tangents are `size` times as large as usual. With `twice`, the gradients are those of a second backward, and
        with `inference` the place runs in inference mode. `effects` gets what both sides change in the process.
        """
        prefix = f"{place.name}: "

        def row_of_all(verdict: str, text: str) -> list[CheckRow]:
            """Return one row for the place, where its results cannot be compared."""
            return [self.row(f"{ALONE}output{suffix}", f"{prefix}all", verdict, text)]

        def run(chosen: Mapping[str, Tensor]) -> _PlaceResults:
            """Run the place on these values, with the solution if it is in."""
            with torch.inference_mode(inference):
                return results_of(program, call, chosen, self.step.seed, size, twice)

        try:
            original = with_effects(program, lambda: run(values))
            exact = run(widened(values))
            moved = run(round_values_again(values, self.computes_in, self.step.seed))
        except Exception as error:  # the user's module may raise anything on values nearby
            return row_of_all(f"{NOT_TRIED}: the original raised {error_text(error)}", "")
        watcher = Watcher()
        with install_methods([place], self.dtype, watcher, any_grad=True):
            try:
                swapped = with_effects(program, lambda: run(values))
            except Exception as error:  # a user's solution may raise anything
                text = watcher.error or f"{name_of(place.solution)} raised {error_text(error)}"
                return row_of_all(WRONG if self.is_for_all() else f"{NOT_TRIED}: {text}", text)
            if place.fell_back or not place.ran:
                why = "; ".join(place.reasons.values())
                return row_of_all(f"{NOT_TRIED}: the original ran: {why}", "")
        if effects is not None:
            effects.append(Effects(original.changed, swapped.changed, swapped.random_state))
        random = self.random(watcher)
        detail = "the backward writes into it, and others may need it"
        runs = _Four(swapped.results, exact, original.results, moved)
        rows = [
            self.row(WRITTEN, f"{prefix}tangent of {name}", WRONG, detail)
            for name in set(runs.ours.written) - set(runs.own.written)
        ]
        rows += self.rows_of(f"{ALONE}output{suffix}", prefix, runs.each(lambda run: run.outputs), random)
        rows += self.rows_of(f"{ALONE}gradient{suffix}", prefix, runs.each(lambda run: run.gradients), random)
        rows += self.rows_of(f"{ALONE}buffer{suffix}", prefix, runs.each(lambda run: run.buffers), random)
        if size == 1.0 or torch.float16 not in {value.dtype for value in values.values()}:
            return rows
        # An infinite error is Inf where float64 has a number: larger tangents overflow float16.
        overflow = f"{NOT_TRIED}: it is larger than the largest number of float16"
        return [replace(row, verdict=overflow, error=None) if row.error == math.inf else row for row in rows]


TWICE = "a second backward"


def _compare_or_zero(tensors: _Four[Tensor | None], dtype: torch.dtype, largest: float, times: float) -> Closeness:
    """Compare a result with that of the untouched program, where None is a gradient of 0. `dtype` is the one in which
    it was computed, `largest` the largest value of all results of its kind."""
    like = next((tensor for tensor in (tensors.exact, tensors.own, tensors.ours) if tensor is not None), None)
    if like is None:  # no run has such a gradient
        return Closeness("close", error=0.0, allowed=0.0)
    zero = torch.zeros_like(like)
    ours, exact, own, moved = tensors.each(lambda tensor: zero if tensor is None else tensor)
    return compare(ours, exact, own, moved=(moved,), dtype=dtype, largest=largest, times=times)


def _verdict_of(closeness: Closeness) -> str:
    """Return the verdict of a row. A proof asks for evidence: what is close and proves little (`weak` says why), and
    what could not be compared (`detail` says why), is not tried."""
    if closeness.word == "wrong":
        return WRONG
    reason = closeness.weak or (closeness.detail if closeness.word != "close" else "")
    return f"{NOT_TRIED}: {reason}" if reason else OK


def other_calls(inputs: Mapping[str, Tensor]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield other inputs, in words and as those that are changed: other sizes of the first dimension, which is most
    often the batch, and of the second of three, which is most often the length of a sequence; repeated indices.

    All inputs that have the size in this dimension are changed together. Where the inputs have several sizes in it, it
    is not known which is the batch or the length, and nothing is changed.
    """
    for dim, word in ((0, "a batch of"), (1, "a length of")):
        with_dim = [value for value in inputs.values() if value.dim() > 2 * dim]  # of 1 or of 3 dimensions at least
        sizes = {value.shape[dim] for value in with_dim if value.is_floating_point()}
        sizes = sizes or {value.shape[dim] for value in with_dim}  # of indices, where there are no floats
        if len(sizes) != 1 or sizes == {0}:
            continue
        [size] = sizes
        of_this_size = {name: value for name, value in inputs.items() if value.dim() > dim and value.shape[dim] == size}
        for new_size in sorted({size - 1, 1, 2 * size + 1} - {0, size}):
            rows = torch.arange(new_size) % size  # the first ones, or all and then the first again
            changed = {name: value.index_select(dim, rows.to(value.device)) for name, value in of_this_size.items()}
            yield f"{word} {new_size}", changed
    for name, repeated in repeated_indices({name: value for name, value in inputs.items() if is_integer(value)}):
        yield f"repeated indices in {name}", {name: repeated}


class _Paddings(TorchDispatchMode):
    """Notes in `found` the `padding_idx` of each operator that has one, with the indices that it reads, as one row."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        names = [argument.name for argument in schema_of(func).arguments]
        # Not strict: arguments that have their defaults are not passed.
        arguments = dict(zip(names, args, strict=False)) | (kwargs or {})
        padding, indices = arguments.get("padding_idx"), arguments.get("indices")
        if isinstance(padding, int) and padding >= 0 and isinstance(indices, Tensor):  # -1 is for none
            self.found.append((padding, indices.detach().reshape(-1).clone()))
        return func(*args, **(kwargs or {}))


OF_PLACE = 24_301
"""What is added to the seed where a place runs alone: a solution that seeds torch, seeds it with another number."""


@dataclass(frozen=True, slots=True)
class Effects:
    """The settings and random states of the process that the original, and the solution, have changed, and torch's
    random state after the solution."""

    of_original: frozenset[str]
    of_solution: frozenset[str]
    random_state: str


class _RunWithEffects(NamedTuple):
    """What a run returned, the names of settings and random states that it changed, and torch's random state after."""

    results: _PlaceResults
    changed: frozenset[str]
    random_state: str


def with_effects(program: Program, run: Callable[[], _PlaceResults]) -> _RunWithEffects:
    """Run a place under the seed of its program, and return its results and what it has changed in the process."""
    seed_all(program.seed)  # torch is seeded so again when the program is called
    before = process_state()
    results = run()
    after = process_state()
    # What was not known before, as a random state of a module that is imported meanwhile, does not count.
    changed = frozenset(name for name in after if after[name] != before.get(name, after[name]))
    return _RunWithEffects(results, changed, after[TORCH_RANDOM])


@dataclass(frozen=True, slots=True, eq=False)
class _PlaceResults:
    """What a place returns, its gradients, its buffers after the forward, and the names of the outputs whose tangents
    its backward wrote into."""

    outputs: Mapping[str, Tensor | None]
    gradients: Mapping[str, Tensor | None]
    buffers: Mapping[str, Tensor | None]
    written: frozenset[str]


def results_of(
    program: Program, call: Call, values: Mapping[str, Tensor], seed: int, size: float = 1.0, twice: bool = False
) -> _PlaceResults:
    """Run a place on copies of these values, and return its results. Where no gradient is wanted, it runs without grad
    mode and has no gradients.

    Tangents are random, drawn from `seed`, and `size` times as large as usual. With `twice`, the gradients are those of
    a second backward through the same graph, after another call.
    """
    copies = copies_for(call, values)
    forward = run_on_tensors(program, call, copies, grad=bool(call.wanted))
    # Copied before the backward, which may write into them too.
    buffers = {name: copies[name].detach().clone() for name in _buffers_of(program)}
    source = own_source(seed + 1)
    outputs = {name: output for name, output in forward.outputs.items() if is_inexact(output)}
    tangents = {}
    for name, output in outputs.items():
        # Rounded to bfloat16, so that the tangents are the same in each dtype.
        random = torch.randn(output.shape, generator=source).to(torch.bfloat16)
        tangents[name] = random.to(output) * size
    before = {name: tangent.clone() for name, tangent in tangents.items()}
    if twice:  # another call saves other values, and a first backward may spoil what was saved
        run_forward(
            program, call, {name: SMALLER * value if is_inexact(value) else value for name, value in values.items()}
        )
        forward.gradients(tangents, retain_graph=True)
    gradients = forward.gradients(tangents)
    written = frozenset(name for name, tangent in tangents.items() if not same_bits(tangent, before[name]))
    detached = {name: output.detach() for name, output in forward.outputs.items()}
    return _PlaceResults(detached, gradients, buffers, written)


def _buffers_of(program: Program) -> list[str]:
    """Return the names of a place's buffers among the values of its call."""
    module = program.function
    return [program.state[own] for own, _ in module.named_buffers()] if isinstance(module, nn.Module) else []
