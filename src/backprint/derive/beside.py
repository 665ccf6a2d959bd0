"""The second word of a Verdict: whether the backward is the derivative, beside whether the graphs are the program's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import repeat

from backprint.derive.check import CAPTURED_FIRST, derivatives_of
from backprint.graph.nouns import Capture
from backprint.graph.sizes import at_example_sizes
from backprint.graph.steps import specs_of, tensors_in
from backprint.graph.verdicts import CANNOT_TELL, Derivative, Verdict, worst_derivative

LARGE = 4_000_000
"""With so many elements in all values of a forward, the derivative, which is computed in float64, may take longer than
the proof, and twice its memory. With fewer, a check takes a tenth to a half of the proof's time."""


def with_derivatives(capture: Capture, verdicts: Sequence[Verdict], wanted: bool | None) -> list[Verdict]:
    """Return the Verdicts of a Capture: one for each Pair, with its Derivative, and if Pairs are linked the whole
    Capture's last, with the worst. `wanted` is as in `_derivatives_by_pair`."""
    of_pair = _derivatives_by_pair(capture, wanted)
    of_verdict = [*of_pair, worst_derivative(filter(None, of_pair))]
    # One Pair alone has one Verdict, and needs no worst.
    return [replace(verdict, derivative=derivative) for verdict, derivative in zip(verdicts, of_verdict, strict=False)]


def with_worst_derivative(capture: Capture, verdict: Verdict, draws: Sequence[str] = CAPTURED_FIRST) -> Verdict:
    """Return the Verdict on a whole Capture with the worst Derivative of its Pairs; without one if the Capture is not
    small (`is_small`)."""
    of_pair = _derivatives_by_pair(capture, wanted=None, draws=draws)
    return replace(verdict, derivative=worst_derivative(filter(None, of_pair)))


def _derivatives_by_pair(
    capture: Capture, wanted: bool | None, draws: Sequence[str] = CAPTURED_FIRST
) -> list[Derivative | None]:
    """Return the Derivative of each Pair; None for a Pair without a backward, or if no Derivative is wanted.

    `draws` names kinds of inputs, `captured` and `recipe`: it is computed near the first kind that there is. With
    `wanted` None, Derivatives are wanted of a Capture for which they cost less than its proof, and an error is a
    Derivative that says `cannot tell`: a second word must not cost the first.
    """
    if wanted is False or (wanted is None and not is_small(capture)):
        return [None] * len(capture.pairs)
    try:
        derivatives: Iterator[Derivative] = iter(derivatives_of(capture, draws=draws))
    except Exception as error:  # whatever it is: the proof must not end with it
        if wanted:
            raise
        derivatives = repeat(Derivative(CANNOT_TELL, capture.name, f"{type(error).__name__}: {error}"))
    return [next(derivatives) if pair.backward is not None else None for pair in capture.pairs]


def is_small(capture: Capture) -> bool:
    """Whether a Capture has values, a backward, and fewer elements than LARGE."""
    if capture.fake or all(pair.backward is None for pair in capture.pairs):
        return False
    elements = 0
    for pair in capture.pairs:
        for spec in specs_of(at_example_sizes(pair.forward)).values():
            elements += sum(tensor.numel for tensor in tensors_in(spec))
            if elements >= LARGE:
                return False
    return True
