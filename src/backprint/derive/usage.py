"""Calls of a function as training makes them: several at a time and in a row, differentiated twice, with some inputs
frozen, without gradients; whether it writes where autograd does not see it, and how it leaves the process.

A Subject has the function and its reference, `expected` and `right` the reference's results and gradients, `tangents`
the tangents of the outputs. An input is frozen if it requires no grad. A write is *unseen* if it does not count up the
version of the tensor, so that autograd cannot tell that a saved tensor has changed.

A Result is a row of the table, with the Fault from which a file is written that shows it. A Call has the tensors of a
call by name, of which `wanted` require grad; a Program is a function with its seed, and a Forward what a run of it
returned. Of the three ways to run one, `run_forward` takes copies of values, the other two take tensors as they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from backprint.derive.called import (
    Call,
    Forward,
    Program,
    copies_for,
    error_text,
    run_forward,
    run_in_current_grad_mode,
    run_on_tensors,
)
from backprint.derive.checked import OK, PROCESS, WRITTEN, WRONG, CheckRow
from backprint.derive.compared import (
    Expected,
    NoReference,
    ReferenceGradients,
    Result,
    Subject,
    expected_of,
    forward_rows,
    gradient_rows,
    gradients_of_reference_runs,
    result_not_tried,
    row_without_error,
)
from backprint.derive.setting import drawn_like, is_inexact, own_source
from backprint.judge.closeness import same_bits
from backprint.values.settings import (
    RANDOM_STATES,
    draw_from_each,
    keeping_settings,
    preserving_random_states,
    process_state,
)
from backprint.values.written_unseen import UNSEEN, Kept, keep, keeping_saved

MOST_FROZEN = 4
"""How many inputs are differentiated alone, and how many are frozen alone."""


def usage_rows(subject: Subject, tangents: Mapping[str, Tensor], expected: Expected) -> Iterator[Result]:
    """Yield rows for calls as training makes them: with frozen inputs, without gradients, and several in a row."""
    # Before other calls are made: without a reference it is the function's own.
    right = gradients_of_reference_runs(expected, tangents)
    yield from frozen_rows(subject, tangents, expected, right)
    check = f"{subject.output_check}, without gradients"
    try:
        forward = run_forward(subject.ours, replace(subject.call, wanted=()), subject.values, grad=False)
    except Exception as error:  # such as where it registers a hook on a tensor
        yield result_not_tried(subject, check, "all", f"the function raised {error_text(error)}")
    else:
        yield from forward_rows(subject, check, forward, expected, subject.values)
    yield from _rows_of_calls_in_a_row(subject, tangents, expected, right)


# ---- Frozen inputs


def frozen_rows(
    subject: Subject, tangents: Mapping[str, Tensor], expected: Expected, right: ReferenceGradients
) -> Iterator[Result]:
    """Yield rows for the gradient of one input alone, the others being frozen, and of all others, one being frozen."""
    wanted = subject.call.wanted
    kinds: dict[str, tuple[str, ...]] = {}  # the inputs that require grad, by the name of the check
    if len(wanted) > 1:
        kinds |= {f"{name} alone requires grad": (name,) for name in wanted[:MOST_FROZEN]}
    if len(wanted) > 2:
        kinds |= {f"{name} frozen": tuple(n for n in wanted if n != name) for name in wanted[:MOST_FROZEN]}
    for check, names in kinds.items():
        # `names` by default, because a closure would see the names of the next check.
        def run(
            tangents: Mapping[str, Tensor], names: tuple[str, ...] = names
        ) -> tuple[Forward, dict[str, Tensor | None]]:
            """Run the function where only these inputs require grad, and its backward."""
            forward = run_forward(subject.ours, replace(subject.call, wanted=names), subject.values)
            return forward, forward.gradients(tangents)

        title = f"{subject.gradient_check}, {check}"
        # Without a reference, an error is no wrong row: a function may register a hook on an input, for example, which
        # a frozen one refuses.
        may_refuse = not subject.has_reference
        yield from gradient_rows(
            subject, title, subject.values, tangents, expected, hostile=may_refuse, run=run, right=right
        )


# ---- Several calls


def _rows_of_calls_in_a_row(
    subject: Subject, tangents: Mapping[str, Tensor], expected: Expected, right: ReferenceGradients
) -> Iterator[Result]:
    """Yield rows for a call that is differentiated after another one was made, for one that is differentiated a second
    time, and for calls after it with other values; none, if the reference runs on no other values."""
    try:
        others, expected_of_others = neighbouring_values(subject, expected.random)
    except NoReference:
        return
    calls: list[Forward] = []  # the first call, whose graph both backwards run on

    def after_another_call(tangents: Mapping[str, Tensor]) -> tuple[Forward, dict[str, Tensor | None]]:
        """Call the function, call it on other values, and run the backward of the first call."""
        calls.append(run_forward(subject.ours, subject.call, subject.values))
        run_forward(subject.ours, subject.call, others)
        return calls[0], calls[0].gradients(_copies_of(tangents), retain_graph=True)

    def once_more(tangents: Mapping[str, Tensor]) -> tuple[Forward, dict[str, Tensor | None]]:
        """Run the backward of the first call a second time."""
        return calls[0], calls[0].gradients(_copies_of(tangents))

    for check, run in (
        ("another call before the backward", after_another_call),
        ("a second backward", once_more),
    ):
        title = f"{subject.gradient_check}, {check}"
        yield from gradient_rows(subject, title, subject.values, tangents, expected, run=run, right=right)
        if not calls:
            return  # the first call raised, which its row says
    yield from _later_calls(subject, tangents, others, expected_of_others)


def _later_calls(
    subject: Subject, tangents: Mapping[str, Tensor], others: Mapping[str, Tensor], expected: Expected
) -> Iterator[Result]:
    """Yield rows for a call after a first one, in which the same tensors have the values `others`, or other tensors lie
    in their memory; and a row for each result of the first call that the later one writes into. `expected` is the
    reference's for the values `others`."""
    calls: list[Forward] = []  # the later call of each kind, if it did not raise
    earlier: dict[str, tuple[Tensor, Tensor]] = {}  # results of a first call by name, each with a copy

    def later(tangents: Mapping[str, Tensor], change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Any:
        """Call the function and its backward, change the values of its tensors, and call both again. The results of the
        first call are entered into `earlier`."""
        copies = copies_for(subject.call, subject.values)
        first = run_on_tensors(subject.ours, subject.call, copies)
        gradients = first.gradients(_copies_of(tangents))
        results = {**first.outputs, **{f"the gradient of {name}": value for name, value in gradients.items()}}
        memory_of_inputs = set(map(_storage_of, copies.values()))
        for name, value in results.items():
            # A view of an input changes with the input; what is not dense (0) is not watched.
            if value is not None and _storage_of(value) not in {0, *memory_of_inputs}:
                earlier[name] = value.detach(), value.detach().clone()
        calls.append(run_on_tensors(subject.ours, subject.call, change(copies)))
        return calls[-1], calls[-1].gradients(tangents)

    def other_values_in(copies: dict[str, Tensor]) -> dict[str, Tensor]:
        """Write other values into the same tensors, which counts up their versions, as an optimizer does."""
        with torch.no_grad():
            for name, copy in copies.items():
                copy.copy_(others[name])
        return copies

    def other_tensors_in_the_memory_of(copies: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return new tensors in the memory of these, with other values: an allocator gives the memory of tensors that
        are gone to new ones. A write into `.data` leaves the version as it is."""
        return {name: copy.data.copy_(others[name]).requires_grad_(copy.requires_grad) for name, copy in copies.items()}

    for check, change in (
        ("a second call with other values", other_values_in),
        ("a second call in the same memory", other_tensors_in_the_memory_of),
    ):
        calls_before = len(calls)
        run = partial(later, change=change)
        rows = list(gradient_rows(subject, f"{subject.gradient_check}, {check}", others, tangents, expected, run=run))
        if len(calls) > calls_before:  # the later call did not raise, so its outputs are compared too
            yield from forward_rows(subject, f"{subject.output_check}, {check}", calls[-1], expected, others)
        yield from rows
    for name, (value, copy) in earlier.items():
        if not same_bits(value, copy):
            yield Result(
                row_without_error(
                    subject, WRITTEN, name, WRONG, "a later call writes into this result of an earlier one"
                )
            )


def _storage_of(value: Tensor) -> int:
    """Return the address of the memory of a dense tensor; 0 for any other."""
    return value.untyped_storage().data_ptr() if value.layout is torch.strided else 0


def _copies_of(tangents: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of tangents: a backward that writes into them is named for that, and not once more."""
    return {name: tangent.clone() for name, tangent in tangents.items()}


SMALLER = 0.875
"""The factor of other values: a positive number stays positive, and a probability below 1."""


def neighbouring_values(subject: Subject, random: bool) -> tuple[dict[str, Tensor], Expected]:
    """Return other values of the same inputs, and the reference's results for them.

    Floats have the values of their neighbours, a little smaller, and masks have the values of their neighbours. Where
    the reference does not take these or its outputs are not finite, as for a positive definite matrix, floats are only
    smaller. Integers stay. Raise NoReference if the reference takes neither.
    """

    def moved(value: Tensor, places: int) -> Tensor:
        """Return the values, each at the place of a neighbour."""
        if is_inexact(value):
            return value.roll(places) * SMALLER
        return value.roll(places) if value.dtype is torch.bool else value

    # By one place to their neighbours; by none where the reference refuses that.
    neighbours = {name: moved(value.detach(), places=1) for name, value in subject.values.items()}
    with contextlib.suppress(Exception):  # whatever the reference raises
        expected = expected_of(subject, neighbours, random)
        if all(bool(out.isfinite().all()) for out in expected.exact.outputs.values() if is_inexact(out)):
            return neighbours, expected
    smaller = {name: moved(value.detach(), places=0) for name, value in subject.values.items()}
    try:
        return smaller, expected_of(subject, smaller, random)
    except Exception as error:
        raise NoReference(str(error)) from error


# ---- Buffers


def buffer_rows(subject: Subject, forward: Forward, expected: Expected) -> Iterator[Result]:
    """Yield a row for each buffer that a module and a reference which is one both have, as it is after a call."""
    names = sorted(forward.buffers.keys() & expected.exact.buffers.keys())
    if not names:
        return

    def buffers_as_outputs(side: Forward) -> Forward:
        """Return a Forward whose outputs are the buffers, to be compared like outputs."""
        return Forward(outputs={name: side.buffers[name].detach() for name in names}, leaves={})

    reference = Expected(
        exact=buffers_as_outputs(expected.exact),
        own=None if expected.own is None else buffers_as_outputs(expected.own),
        moved=None if expected.moved is None else buffers_as_outputs(expected.moved),
        random=expected.random,
    )
    for result in forward_rows(subject, "buffer", buffers_as_outputs(forward), reference, subject.values):
        yield Result(result.row)  # without a Fault, which is of an output: a file that repeats the call shows that


# ---- What is written where autograd does not see it


def written_rows(subject: Subject) -> Iterator[Result]:
    """Yield a row for each tensor that the function writes into without counting its version: an input, or what a part
    of the function before it has saved for its backward. One row that is right says that there was none."""
    try:
        with keeping_saved() as saved:
            written = _unseen_writes(subject, lambda: saved)
    except Exception:  # transforms of torch.func refuse such hooks
        try:
            written = _unseen_writes(subject, list)  # `list()` is empty: inputs alone are looked at, not what was saved
        except Exception as error:
            yield result_not_tried(subject, WRITTEN, "all", f"the function raised {error_text(error)}")
            return
    if not written:
        yield Result(CheckRow(WRITTEN, subject.text, "all", error=0.0, allowed=0.0, verdict=OK))
    for name, when in written.items():
        yield Result(row_without_error(subject, WRITTEN, name, WRONG, f"the {when} writes into it {UNSEEN}"))


def _unseen_writes(subject: Subject, saved: Callable[[], list[Kept]]) -> dict[str, str]:
    """Run the function forward and backward; return the tensors that were written unseen, each with `forward` or
    `backward`, whichever wrote it. `saved` returns what autograd has saved until now (`keeping_saved`), or nothing if
    that cannot be watched. What the reference may write, too, is left out (`_may_be_written`)."""
    call = subject.call
    copies = copies_for(call, subject.values)
    # A Kept has a tensor's values and version as they were, by which a write without a new version shows.
    inputs = {name: keep(copy) for name, copy in copies.items()}
    forward = run_on_tensors(subject.ours, call, copies)
    source = own_source(subject.ours.seed)
    tangents = {name: drawn_like(forward.outputs[name].detach(), source) for name in forward.differentiable}
    written: dict[str, str] = {}
    input_by_memory = {kept.memory.untyped_storage().data_ptr(): name for name, kept in inputs.items()}
    for when in ("forward", "backward"):
        if when == "backward":
            forward.gradients(tangents, retain_graph=True)
        for name in [name for name, kept in inputs.items() if kept.is_written_unseen]:
            written.setdefault(name, when)
        for kept in saved():
            if kept.is_written_unseen:
                other = f"a tensor of shape {list(kept.memory.shape)} that autograd saved"
                written.setdefault(input_by_memory.get(kept.memory.untyped_storage().data_ptr(), other), when)
    # It takes a run of the reference, so it is asked only where something was written.
    allowed = _may_be_written(subject, inputs) if written else set[str]()
    return {name: when for name, when in written.items() if name not in allowed}


def _may_be_written(subject: Subject, inputs: Mapping[str, Kept]) -> set[str]:
    """Return the inputs that a function may write into: those without a gradient, where the reference does it too, as
    `batch_norm` updates a running mean, or where there is none."""
    others = {name for name in inputs if name not in subject.call.wanted}
    if not subject.has_reference:
        return others
    copies = copies_for(subject.call, subject.values)
    before = {name: keep(copies[name]) for name in others}
    run_on_tensors(subject.reference, subject.call, copies)
    return {name for name, kept in before.items() if kept.is_written}


# ---- How it leaves the process


def process_rows(subject: Subject) -> Iterator[Result]:
    """Yield a row for each setting and mode of the process that the function changes, and each random state that it
    seeds, where the reference does not: later calls of other functions have them. One row that is right says that there
    was none."""
    try:
        changed = process_changes(subject.ours, subject.call, subject.values)
        if changed and subject.has_reference:
            changed -= process_changes(subject.reference, subject.call, subject.values)
    except Exception as error:  # such as one that takes no tangents of ones
        yield result_not_tried(subject, PROCESS, "all", f"the function raised {error_text(error)}")
        return
    if not changed:
        yield Result(CheckRow(PROCESS, subject.text, "all", error=0.0, allowed=0.0, verdict=OK))
    for name in sorted(changed):
        text = "the function changes it"
        if name in RANDOM_STATES:
            text = "the function seeds it: what others draw is the same after each call"
        yield Result(row_without_error(subject, PROCESS, name, WRONG, text))


def process_changes(program: Program, call: Call, values: Mapping[str, Tensor]) -> frozenset[str]:
    """Return the names of what both of two calls, with their backwards, change in the process: settings that are not as
    they were before, and random states that are the same after both calls though they were not before. Two calls,
    because the first may compile the function, which changes settings once."""
    settings_changed: list[set[str]] = []  # by each call
    states_after: list[Mapping[str, Any]] = []  # the settings and random states after each call, by name
    with preserving_random_states():
        for number in range(2):
            draw_from_each()  # the calls begin with different random states; torch's is seeded with another number
            with keeping_settings():
                before = process_state()
                forward = run_in_current_grad_mode(
                    replace(program, seed=program.seed + number), call, copies_for(call, values)
                )
                forward.gradients({name: torch.ones_like(forward.outputs[name]) for name in forward.differentiable})
                after = process_state()
            settings_changed.append(
                {name for name in after if name not in RANDOM_STATES and after[name] != before.get(name)}
            )
            states_after.append(after)
    first, second = states_after
    seeded = {name for name in RANDOM_STATES if name in first and first[name] == second.get(name)}
    return frozenset(set.intersection(*settings_changed) | seeded)
