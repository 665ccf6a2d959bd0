"""Losses: targets are classes, lengths are valid."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from backprint.checks.looking import Bound, beyond, counted, first, numbers_in, unlike


def classed(given: Bound) -> str:
    """Check nll_loss's backward: each target is a class."""
    scores, target = given["self"], given["target"]
    if not isinstance(scores, Tensor) or not isinstance(target, Tensor) or not 1 <= scores.dim() <= 4:
        return "self are not scores of classes"
    classes = scores.shape[1 if scores.dim() > 1 else 0]
    return first(
        (
            counted("target", target, scores.numel() // max(classes, 1)),
            counted("weight", given["weight"], classes),
            beyond("target", target, 0, classes, (int(given["ignore_index"]),)),
        )
    )


def margined(given: Bound) -> str:
    """Check the margin losses' backwards: targets are classes, and there is a gradient for the loss or for each row."""
    scores, target, grad = given["self"], given["target"], given["grad_output"]
    if not all(isinstance(each, Tensor) for each in (scores, target, grad)) or not scores.dim() <= 2:
        return "self are not scores of classes"
    classes = scores.shape[-1] if scores.dim() else 1
    rows = scores.shape[0] if scores.dim() == 2 else 1
    labels = "is_target" in given
    return first(
        (
            unlike("target", target, scores.shape) if labels else counted("target", target, rows),
            unlike("is_target", given.get("is_target"), target.shape),
            beyond("target", target, -1 if labels else 0, classes),
            counted("grad_output", grad, 1 if int(given["reduction"]) else rows),
            counted("weight", given.get("weight"), classes),
        )
    )


def aligned(given: Bound) -> str:
    """Check ctc_loss and its backward: targets are classes, lengths are valid, and the forward's saved values match
    both."""
    scores, targets = given["log_probs"], given["targets"]
    if not isinstance(scores, Tensor) or not isinstance(targets, Tensor) or scores.dim() not in (2, 3):
        return "log_probs are not scores of classes over time"
    times, batch = scores.shape[0], scores.shape[1] if scores.dim() == 3 else 1
    inputs, lengths = numbers_in(given["input_lengths"]), numbers_in(given["target_lengths"])
    if inputs is None or lengths is None:
        return ""
    if len(inputs) != batch or len(lengths) != batch or not all(0 <= each <= times for each in inputs):
        return f"input_lengths and target_lengths are no {batch} lengths of up to {times}"
    used, why = targets_read(targets, lengths)
    if why:
        return why
    if not 0 <= int(given["blank"]) < scores.shape[-1]:
        return f"blank={int(given['blank'])} is not a class"
    complaint = first(beyond("targets", part, 0, scores.shape[-1]) for part in used)
    if complaint or "log_alpha" not in given:
        return complaint
    return first(
        (
            counted("neg_log_likelihood", given["neg_log_likelihood"], batch),
            counted("grad", given["grad"], batch),
            unlike("log_alpha", given["log_alpha"], (batch, times, 2 * max(lengths, default=0) + 1)),
        )
    )


def targets_read(targets: Tensor, lengths: Sequence[int]) -> tuple[list[Tensor], str]:
    """Return the parts of the targets that are read, and what is wrong with their lengths."""
    if any(each < 0 for each in lengths):
        return [], "target_lengths holds a negative length"
    if targets.dim() == 1:
        total = sum(lengths)
        return [targets[:total]], f"target_lengths add up to {total}, and targets has {targets.numel()}" * (
            total > targets.numel()
        )
    if targets.dim() != 2 or targets.shape[0] != len(lengths) or max(lengths, default=0) > targets.shape[1]:
        return [], "targets is not a table with a row for each length"
    return [row[:length] for row, length in zip(targets, lengths, strict=True)], ""
