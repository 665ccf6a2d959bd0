"""Make a sample of a watched step: its program is captured in the state that it ran in, and proved as every sample.

A Program is what the step ran from the first call of the model to its losses, as data: calls and operators, inputs,
buffers, random states, and the values that its losses had. A WatchedStep is a Program as a module.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from backprint.errors import CaptureError
from backprint.graph.nouns import Capture
from backprint.graph.verdicts import nonfinite_of
from backprint.tools.record.proving import proven_step
from backprint.tools.record.recording import Recording
from backprint.tools.watch.program import Program, WatchedStep, autocast
from backprint.values.settings import random_states, set_random_states


@contextlib.contextmanager
def as_then(model: nn.Module, program: Program, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Run a block with a model's buffers and the random states as they were when a program ran, and with `weights`, by
    name: those that differ from what the model has now."""
    wanted = {**program.buffers, **weights}
    states = random_states()
    tensors = {**dict(model.named_buffers()), **dict(model.named_parameters())}
    own = {name: tensor for name, tensor in tensors.items() if name in wanted}
    before = {name: tensor.detach().clone() for name, tensor in own.items()}
    for name, tensor in own.items():
        tensor.data.copy_(wanted[name])  # `.data`: no backward of the training's sees a write
    set_random_states(program.random)
    try:
        yield
    finally:
        for name, tensor in own.items():
            tensor.data.copy_(before[name])
        set_random_states(states)


def keep_sample(
    model: nn.Module, program: Program, place: Path, why: str, weights: Mapping[str, Tensor], was_finite: bool
) -> str:
    """Run a program again as it ran, record it, and save it with its values as the sample `place`. Return in a line
    what it is: where NaN or Inf was first made, or `why` it is kept. `weights` has by name those that are not the
    model's of now; `was_finite` says whether the gradients of the step were finite. Raise if it cannot be kept."""
    from backprint.api import load, save

    with as_then(model, program, weights), torch.enable_grad(), autocast(on=()):
        capture = recorded(model, program, was_finite)
        notes = (f"kept by bp.watch: {why}", *capture.notes)
        save(replace(capture, name=place.name, notes=notes), place, "exact")
    kept = load(place).verdict or {}
    return nonfinite_of(kept) or why


UNSEEN = (
    "it depends on something that is not the model's, its inputs or torch's random state, and that has changed since"
)
"""Why a step may not be what it was."""


def recorded(model: nn.Module, program: Program, was_finite: bool) -> Capture:
    """Return the Capture of a program, recorded while it runs and its backward, as `bp.record` does: what it draws is a
    constant. The training's gradients stay as they are.

    Raise if it cannot be recorded, or if it is not what it was: if its losses have other values, or if its gradients
    are finite and were not (`was_finite`).
    """
    captures: list[Capture] = []
    messages: list[str] = []
    step = WatchedStep(model, program)
    # Step 0 alone is recorded.
    recording = Recording((0, 1), lambda number, capture: captures.append(proven_step(capture)), messages.append)
    # The backward shall not add to the gradients that the training has.
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        recording.open()  # step 0 begins with the call of `step`, the first module that runs
        loss = step(**program.inputs)
        losses = loss if isinstance(loss, tuple) else (loss,)
        if not all(value.requires_grad for value in losses):
            raise CaptureError(
                "run again, its loss has no gradient: a custom autograd.Function stands between the model and the "
                "loss, or the model returns an object in which torch finds no tensors"
            )
        values = [value.detach() for value in losses]
        torch.autograd.backward(loss)
        recording.end_step()  # no optimizer steps here, which would end it
        again = [parameter.grad for parameter, _ in gradients if parameter.grad is not None]
        is_finite_again = all(bool(gradient.isfinite().all()) for gradient in again)
    finally:
        recording.close()
        for parameter, gradient in gradients:
            parameter.grad = gradient
    if not captures:
        raise CaptureError(messages[-1] if messages else "its step could not be recorded")
    _refuse_other_losses(values, program.values)
    if not was_finite and is_finite_again:
        raise CaptureError(f"run again, its gradients are finite: {UNSEEN}")
    return captures[0]


def _refuse_other_losses(values: Sequence[Tensor], values_then: Sequence[Tensor]) -> None:
    """Raise unless all losses have the values that they had in the training; NaN is equal to NaN."""
    for value, then in zip(values, values_then, strict=True):
        if not bool(((value == then) | (value.isnan() & then.isnan())).all()):
            raise CaptureError(f"run again, its loss is {value.item()}, and it was {then.item()}: {UNSEEN}")
