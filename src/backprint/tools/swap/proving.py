"""The step of a model before and after a swap, and each place alone: the loss, outputs, gradients and buffers.

The witness is the untouched program, without the methods of the swap. It runs in float64, in the dtype that is
compared, and in float64 on inputs that are rounded once more; how far it is from itself is what rounding explains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
    """
    with outside_modes(), preserving_random_states(), restoring_methods(places):
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
        allowed: dict[tuple[str, str], float] = {}
        for dtype in dtypes_to_compare:
            comparisons = Pass(step, tuple(places), recorded, None if dtype is own_dtype else dtype, times, allowed)
            rows += comparisons.rows()
    solutions = ", ".join(dict.fromkeys(name_of(place.solution) for place in places))
    return SwapProof(
        f"{solutions} in {type(model).__name__}", str(own_dtype)[6:], tuple(place.name for place in places), tuple(rows)
    )


# ---- The comparisons in one dtype


ONCE_MORE, NEAR = "once more", "values nearby"

WITHIN = "within"
"""The verdict of a result that is off by no more than the rounding of the model's own dtype, in another one."""


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """The comparisons in one dtype, None for the model's own. `allowed` has what was allowed in the model's own dtype,
    by check and name: a solution may compute inside in that, also where its inputs have another that it is not for.

    Each method returns or yields rows. Results come in fours, as `rows_of` takes them: ours, the original's in float64
    (exact), in this dtype (own), and in float64 on values that are rounded once more (moved).
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
        """The dtype with the fewest digits in which something is computed: inside autocast another than the inputs'."""
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
        """Return all rows: of the whole step with the solutions, three times, and of each place alone."""
        base = in_dtype(self.step.call.values, self.dtype)
        try:
            witness, nearby = self.witnesses(base), nearby_values(base, self.step)
            near_witness = self.witnesses(nearby)
        except Exception as error:  # the user's model may raise anything, in a dtype that it was not written for
            if self.dtype is None:
                raise
            text = f"{NOT_TRIED}: before the swap the step raised {error_text(error)}"
            return [self.row(LOSS, LOSS, text)]
        rows: list[CheckRow] = []
        watcher = Watcher()
        with install_methods(self.places, self.dtype, watcher):
            try:
                results = self.step.run(base)
                rows += self.calls(watcher)
                rows += self.compare_step(results, witness, "", watcher)
                rows += self.compare_step(self.step.run(nearby), near_witness, f", {NEAR}", watcher)
                rows += self.faults_of_calls(watcher)  # results of the first run, after one on other values
                rows += self.compare_step(self.step.run(base), witness, f", {ONCE_MORE}", watcher)
            except Exception as error:  # a user's solution may raise anything
                rows += self.raised(error, watcher)
        for place in self.places:
            rows += self.rows_of_place(place)
        return rows

    def raised(self, error: Exception, watcher: Watcher) -> list[CheckRow]:
        """Return the row of a step that raised: it is wrong in a dtype that the solutions are for."""
        text = watcher.error or f"the step raised {error_text(error)}"
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
            self.step.run(round_values_again(values, self.computes_in, self.step.seed)),
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

    def compare_step(
        self, ours: StepResults, witness: tuple[StepResults, ...], suffix: str, watcher: Watcher
    ) -> Iterator[CheckRow]:
        """Yield the rows of one run of the whole step, whose checks end in `suffix`: `gradient, values nearby`."""
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
        """Yield a row for each result of one kind. `results` are ours, the exact ones, those in the dtype, and those
        moved; names in the rows begin with `prefix`, and `random` says which places draw random numbers."""
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
                yield self.judged_row(check, prefix + name, None, None, WRONG, random, text)
                continue
            if mine is not None and theirs is not None and mine.shape != theirs.shape:
                text = f"its shape is {tuple(mine.shape)}, and the original's {tuple(theirs.shape)}"
                yield self.judged_row(check, prefix + name, None, None, WRONG, random, text)
                continue
            kind = REAL.get(theirs.dtype, theirs.dtype) if theirs is not None else self.kind
            if theirs is not None and not is_inexact(theirs):
                verdict = OK if mine is not None and same_bits(mine, theirs) else WRONG
                yield self.judged_row(check, prefix + name, None, None, verdict, random, "it has other values")
                continue
            tensors = mine, exact[name], theirs, moved[name]
            closeness = _compare_or_zero(*tensors, coarser(kind, self.computes_in), largest, self.times)
            verdict = _verdict_of(closeness)
            if verdict == WRONG and not self.is_for_all():
                # Within the rounding of the model's own dtype, or of float32, it may compute in that inside.
                coarse = _compare_or_zero(*tensors, coarser(self.own_kind, torch.float32), largest, self.times)
                verdict = WITHIN if _verdict_of(coarse) == OK else verdict
            if self.dtype is None:
                self.allowed[check, prefix + name] = closeness.allowed
            error, allowed = (None, None) if verdict.startswith(NOT_TRIED) else (closeness.error, closeness.allowed)
            yield self.judged_row(check, prefix + name, error, allowed, verdict, random, detail or closeness.detail)

    def judged_row(
        self,
        check: str,
        name: str,
        error: float | None,
        allowed: float | None,
        verdict: str,
        random: str,
        detail: str,
    ) -> CheckRow:
        """Return a row with the verdict, or with NOT_TRIED where what is wrong may be other random numbers, or rounding
        of a dtype that a solution computes in where it is not for this one."""
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

    def rows_of_place(self, place: Place) -> list[CheckRow]:
        """Return the rows of one place alone: on the inputs that it has in the model, and on others near them."""
        calls = self.recorded.get(place.name, ())
        if not calls:
            return []
        recorded_call = calls[0]
        # As they were before the call, which may have written into them.
        copies = {id(tensor): copy for tensor, copy in zip(recorded_call.tensors, recorded_call.copies, strict=True)}
        with_grad = {
            name
            for name, tensor in zip(recorded_call.names, recorded_call.tensors, strict=True)
            if tensor.requires_grad
        }
        args, kwargs = pytree.tree_map(
            lambda leaf: copies.get(id(leaf), leaf), (recorded_call.args, recorded_call.kwargs)
        )
        call, program, _ = read_check(place.module, None, args, kwargs, None, self.step.seed + OF_PLACE)
        state = dict(zip(recorded_call.names, recorded_call.copies, strict=True))
        values = {
            name: state.get(name, value) if name not in call.inputs else value for name, value in call.values.items()
        }
        wanted = tuple(name for name in call.wanted if name not in call.inputs or not with_grad or name in with_grad)
        call = replace(call, values=values, wanted=wanted)
        base = in_dtype(values, self.dtype)
        nearby = noisy_inputs(base, call, self.step.seed)
        with_other_seed = replace(program, seed=program.seed + 1)
        effects: list[Effects] = []
        rows = self.compare_place(place, program, call, base, "", effects=effects)
        rows += self.compare_place(place, with_other_seed, call, nearby, f", {NEAR}", effects=effects)
        rows += self.settings(place, effects)
        if self.dtype is None:
            for word in OF_FLOAT16 if torch.float16 in {value.dtype for value in base.values()} else SIZES:
                size = FACTORS[word]
                rows += self.compare_place(place, program, call, base, f", tangents times {word}", size=size)
            if call.wanted:
                rows += self.compare_place(place, program, call, base, f", {TWICE}", twice=True)
            rows += self.with_large_means(place, program, call, base)
            rows += self.with_other_calls(place, program, call, base)
            rows += self.with_less_grad(place, program, call, base)
        return rows

    def with_large_means(
        self, place: Place, program: Program, call: Call, values: Mapping[str, Tensor]
    ) -> Iterator[CheckRow]:
        """Yield rows for inputs with a mean that is large beside their deviation, as activations have: for the outputs,
        and for the gradient of an only input, because others are sums of large terms. A solution need not take such
        values: where it returns NaN or Inf, nothing is said. `unusual.large_means` does so for `bp.check`."""
        shift_mean = OCCASIONS[LARGE_MEAN].make
        changed = {name: other for name in call.inputs if (other := shift_mean(values[name])) is not None}
        shifted, changed_names = {**values, **changed}, list(changed)
        only_gradient = f"{place.name}: {changed_names[0]}" if len(changed_names) == 1 else None
        if not changed_names:
            return
        for row in self.compare_place(place, program, call, shifted, f", {LARGE_MEAN}"):
            is_compared = row.check.startswith(f"{ALONE}output") or row.name == only_gradient
            if is_compared and row.error is not None and math.isfinite(row.error):
                is_within_fair_limit = row.allowed is not None and row.error <= FAIR * row.allowed
                yield replace(row, verdict=OK, detail="") if is_within_fair_limit else row

    def with_other_calls(
        self, place: Place, program: Program, call: Call, values: Mapping[str, Tensor]
    ) -> Iterator[CheckRow]:
        """Yield rows for batches and lengths of other sizes, as the last of an epoch is, for repeated indices, and for
        padding.

        A solution that has a size built in names it in `fixed`, and the original runs for others. One that raises is
        loud about it, and nothing is said.
        """
        inputs = {name: value for name, value in values.items() if name in call.inputs}
        for words, changed in (*other_calls(inputs), *self.with_padding(program, call, values)):
            for row in self.compare_place(place, program, call, {**values, **changed}, f", {words}"):
                # The row of a solution that raised (`compare_place`).
                if row.verdict == WRONG and row.error is None and row.name.endswith(": all"):
                    yield replace(row, verdict=f"{NOT_TRIED}: {row.detail}", detail="")
                else:
                    hint = "" if "indices" in words else "a size that it has built in belongs to fixed="
                    detail = "; ".join(filter(None, (row.detail, hint)))
                    yield replace(row, detail=detail) if row.verdict == WRONG else row

    def with_padding(
        self, program: Program, call: Call, values: Mapping[str, Tensor]
    ) -> Iterator[tuple[str, dict[str, Tensor]]]:
        """Yield inputs with indices of padding, in words and as those that are changed, where the original reads rows
        of an embedding with a `padding_idx` and the batch has no padding: that row gets no gradient."""
        indices = {name: values[name] for name in call.inputs if name in values and is_integer(values[name])}
        if not indices:
            return
        seen = _Paddings()
        push_mode(seen)
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
            for padding in sorted({padding for padding, read in seen.found if torch.equal(read, flat)}):
                if value.numel() > 1 and not bool((value == padding).any()):
                    padded = torch.where(torch.arange(len(flat), device=flat.device) % 2 == 1, padding, flat)
                    yield f"indices of padding in {name}", {name: padded.to(value.dtype).reshape(value.shape)}

    def with_less_grad(
        self, place: Place, program: Program, call: Call, values: Mapping[str, Tensor]
    ) -> Iterator[CheckRow]:
        """Yield the rows of a place whose inputs, or whose parameters, or both require no grad, as where what comes
        before it is frozen. What is good is added to what the solution is for."""
        inputs = tuple(name for name in call.wanted if name in call.inputs)
        state = tuple(name for name in call.wanted if name not in call.inputs)
        for word, wanted in (
            ("inputs frozen", state),
            ("parameters frozen", inputs),
            ("without gradients", ()),
        ):
            if wanted == call.wanted or (not wanted and word != "without gradients"):
                continue  # the same as another of these calls
            rows = self.compare_place(place, program, replace(call, wanted=wanted), values, f", {word}")
            yield from rows
            if place.guard is not None and not any(row.verdict == WRONG for row in rows):
                place.guard = place.guard.proven_for(
                    bool(wanted) and wanted == inputs, bool(wanted) and wanted == state
                )
        without = replace(call, wanted=())
        yield from self.compare_place(place, program, without, values, ", in inference mode", inference=True)

    def settings(self, place: Place, effects: Sequence[Effects]) -> Iterator[CheckRow]:
        """Yield a row for each setting or random state of the process that a solution changes, and the original does
        not: in each of its runs, because a first one may compile."""
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
        """Return the rows of one place alone, for tangents that are `size` times as large, in a second backward with
        `twice`, in inference mode with `inference`; `effects` gets what both sides change in the process."""
        prefix = f"{place.name}: "

        def row_of_all(verdict: str, text: str) -> list[CheckRow]:
            """Return one row for the place, where its results cannot be compared."""
            return [self.row(f"{ALONE}output{suffix}", f"{prefix}all", verdict, text)]

        def run(chosen: Mapping[str, Tensor]) -> _PlaceResults:
            """Run the place on these values, with the solution if it is in."""
            with torch.inference_mode(inference):
                return results_of(program, call, chosen, self.step.seed, size, twice)

        try:
            own, of_original, _ = with_effects(program, lambda: run(values))
            exact = run(widened(values))
            moved = run(round_values_again(values, self.computes_in, self.step.seed))
        except Exception as error:  # the user's module may raise anything on values nearby
            return row_of_all(f"{NOT_TRIED}: the original raised {error_text(error)}", "")
        watcher = Watcher()
        with install_methods([place], self.dtype, watcher, any_grad=True):
            try:
                ours, of_solution, random_state = with_effects(program, lambda: run(values))
            except Exception as error:  # a user's solution may raise anything
                text = watcher.error or f"{name_of(place.solution)} raised {error_text(error)}"
                return row_of_all(WRONG if self.is_for_all() else f"{NOT_TRIED}: {text}", text)
            if place.fell_back or not place.ran:
                why = "; ".join(place.reasons.values())
                return row_of_all(f"{NOT_TRIED}: the original ran: {why}", "")
        if effects is not None:
            effects.append(Effects(of_original, of_solution, random_state))
        random = self.random(watcher)
        detail = "the backward writes into it, and others may need it"
        rows = [
            self.row(WRITTEN, f"{prefix}tangent of {name}", WRONG, detail)
            for name in set(ours.written) - set(own.written)
        ]
        runs = (ours, exact, own, moved)
        rows += self.rows_of(f"{ALONE}output{suffix}", prefix, [run.outputs for run in runs], random)
        rows += self.rows_of(f"{ALONE}gradient{suffix}", prefix, [run.gradients for run in runs], random)
        rows += self.rows_of(f"{ALONE}buffer{suffix}", prefix, [run.buffers for run in runs], random)
        if size == 1.0 or torch.float16 not in {value.dtype for value in values.values()}:
            return rows
        overflow = f"{NOT_TRIED}: it is larger than the largest number of float16"
        return [replace(row, verdict=overflow, error=None) if row.error == math.inf else row for row in rows]


TWICE = "a second backward"


def _compare_or_zero(
    ours: Tensor | None,
    exact: Tensor | None,
    own: Tensor | None,
    moved: Tensor | None,
    dtype: torch.dtype,
    largest: float,
    times: float,
) -> Closeness:
    """Compare a result with that of the untouched program, where None is a gradient of 0."""
    like = next((tensor for tensor in (exact, own, ours) if tensor is not None), None)
    if like is None:
        return Closeness("close", 0.0, 0.0)
    zero = torch.zeros_like(like)
    result, right, eager, moved_result = (zero if tensor is None else tensor for tensor in (ours, exact, own, moved))
    return compare(result, right, eager, moved=(moved_result,), dtype=dtype, largest=largest, times=times)


def _verdict_of(closeness: Closeness) -> str:
    """Return the verdict of a row. A proof asks for evidence: what is close and proves little is not tried."""
    if closeness.word == "wrong":
        return WRONG
    reason = closeness.weak or (closeness.detail if closeness.word != "close" else "")
    return f"{NOT_TRIED}: {reason}" if reason else OK


def other_calls(inputs: Mapping[str, Tensor]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield other inputs, in words and as those that are changed: other sizes of the first dimension, which is most
    often the batch, and of the second of three, which is most often the length of a sequence; repeated indices."""
    for dim, word in ((0, "a batch of"), (1, "a length of")):
        with_dim = [value for value in inputs.values() if value.dim() > 2 * dim]  # of 1 or of 3 dimensions at least
        sizes = {value.shape[dim] for value in with_dim if value.is_floating_point()}
        sizes = sizes or {value.shape[dim] for value in with_dim}
        if len(sizes) != 1 or sizes == {0}:
            continue
        [size] = sizes
        of_this_size = {name: value for name, value in inputs.items() if value.dim() > dim and value.shape[dim] == size}
        for new_size in sorted({size - 1, 1, 2 * size + 1} - {0, size}):
            places = torch.arange(new_size) % size  # the first ones, or all and then the first again
            changed = {name: value.index_select(dim, places.to(value.device)) for name, value in of_this_size.items()}
            yield f"{word} {new_size}", changed
    for name, repeated in repeated_indices({name: value for name, value in inputs.items() if is_integer(value)}):
        yield f"repeated indices in {name}", {name: repeated}


class _Paddings(TorchDispatchMode):
    """Notes the `padding_idx` of each operator that has one, with the indices that it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        names = [argument.name for argument in schema_of(func).arguments]
        given = dict(zip(names, args, strict=False)) | (kwargs or {})
        padding, read = given.get("padding_idx"), given.get("indices")
        if isinstance(padding, int) and padding >= 0 and isinstance(read, Tensor):
            self.found.append((padding, read.detach().reshape(-1).clone()))
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


def with_effects(program: Program, run: Callable[[], _PlaceResults]) -> tuple[_PlaceResults, frozenset[str], str]:
    """Run a program; return its results, what it has changed in the process, and torch's random state afterwards."""
    seed_all(program.seed)  # torch is seeded so again when the program is called
    before = process_state()
    results = run()
    after = process_state()
    # What was not known before, as a random state of a module that is imported meanwhile, does not count.
    changed = frozenset(name for name in after if after[name] != before.get(name, after[name]))
    return results, changed, after[TORCH_RANDOM]


@dataclass(frozen=True, slots=True, eq=False)
class _PlaceResults:
    """What a place returns, its gradients, its buffers afterwards, and the tangents that it wrote into."""

    outputs: Mapping[str, Tensor | None]
    gradients: Mapping[str, Tensor | None]
    buffers: Mapping[str, Tensor | None]
    written: frozenset[str]


def results_of(
    program: Program, call: Call, values: Mapping[str, Tensor], seed: int, size: float = 1.0, twice: bool = False
) -> _PlaceResults:
    """Return what a place returns, and its gradients for random tangents of a size; where nothing requires grad, no
    gradients are recorded. With `twice`, the gradients are those of a second backward, after another call.
    """
    copies = copies_for(call, values)
    forward = run_on_tensors(program, call, copies, grad=bool(call.wanted))
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
    """Return the names of a place's buffers among the values."""
    module = program.function
    return [program.state[own] for own, _ in module.named_buffers()] if isinstance(module, nn.Module) else []
