"""The words of verdicts, and the one answer to whether a check was a proof.

Every place that says that something is proved asks `has_proof`: a Verdict, `verify`, `power`, `show`, a run's progress
and status, and its report. So they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Sequence

WORST = ("bitwise", "undifferentiable", "close", "unproven", "wrong", "failed")
"""Verdicts from best to worst."""

PROVED = frozenset({"bitwise", "close"})
"""What compared equal, forward and backward."""

GOOD = PROVED | {"undifferentiable"}
"""What compared equal, be it a forward alone."""


def has_proof(verdict: str, power: object, without: Sequence[str]) -> bool:
    """Whether a check is a proof of every port: all compared equal, the power was measured, and no port is without."""
    return verdict in GOOD and power is not None and not without


def without_power(verdict: str, power: object, without: Sequence[str]) -> str:
    """Why what compared equal is no proof, in a few words; '' where it is one, or where it did not compare equal."""
    if verdict not in GOOD or has_proof(verdict, power, without):
        return ""
    if without:
        return f"{len(without)} {'port' if len(without) == 1 else 'ports'} without power"
    return "power not measured"
