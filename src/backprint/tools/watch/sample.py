"""Make a sample of a watched step: its program is captured in the state that it ran in, and proved as every sample."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
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
    """Run a block with a model's buffers, its weights and the random states as they were when a program ran."""
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
    """Run a program again as it ran, record it, and save it with its values; return what it is in a line. `was_finite`
    says whether the gradients of the step were."""
    from backprint.api import load, save

    with as_then(model, program, weights), torch.enable_grad(), autocast(()):
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
    """Return the Capture of a program, recorded while it runs, as `bp.record` does: what it draws is a constant."""
    captures: list[Capture] = []
    messages: list[str] = []
    step = WatchedStep(model, program)
    recording = Recording((0, 1), lambda number, capture: captures.append(proven_step(capture)), messages.append)
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        recording.open()
        loss = step(**program.inputs)
        losses = loss if isinstance(loss, tuple) else (loss,)
        if not all(value.requires_grad for value in losses):
            raise CaptureError(
                "run again, its loss has no gradient: a custom autograd.Function stands between the model and the "
                "loss, or the model returns an object in which torch finds no tensors"
            )
        values = [value.detach() for value in losses]
        torch.autograd.backward(loss)
        recording.end_step()
        again = [parameter.grad for parameter, _ in gradients if parameter.grad is not None]
        is_finite_again = all(bool(gradient.isfinite().all()) for gradient in again)
    finally:
        recording.close()
        for parameter, gradient in gradients:
            parameter.grad = gradient
    if not captures:
        raise CaptureError(messages[-1] if messages else "its step could not be recorded")
    for value, then in zip(values, program.values, strict=True):
        if not bool(((value == then) | (value.isnan() & then.isnan())).all()):
            raise CaptureError(f"run again, its loss is {value.item()}, and it was {then.item()}: {UNSEEN}")
    if not was_finite and is_finite_again:
        raise CaptureError(f"run again, its gradients are finite: {UNSEEN}")
    return captures[0]
