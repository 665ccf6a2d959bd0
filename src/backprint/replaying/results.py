"""Results: everything that one step returns, by the key of its port, and comparisons of two of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from backprint.graph.keys import PortKey, keyed
from backprint.graph.origin import Oracle
from backprint.graph.verdicts import REFUTED, UNSTEADY, PortVerdict
from backprint.replaying.compare import compare

Results = dict[PortKey, "Tensor | None"]
"""Outputs, mutations and gradients."""


def results_by_port(outputs: Mapping[str, Any], mutations: Mapping[str, Any], gradients: Mapping[str, Any]) -> Results:
    """Return results by the keys of their ports."""
    return keyed("output", outputs) | keyed("mutation", mutations) | keyed("gradient", gradients)


def witnessed(verdicts: Sequence[PortVerdict], witness: str) -> list[PortVerdict]:
    """Set the witness of these verdicts."""
    return [replace(port, witness=witness) for port in verdicts]


def unsteady(port: PortVerdict, wanted: Results, again: Results) -> PortVerdict:
    """Make a port `unproven`, not `wrong`, if the program itself does not repeat its value."""
    left, right = wanted.get(port.key), again.get(port.key)
    if port.verdict == "bitwise" or left is None or right is None or compare("", "", left, right).verdict == "bitwise":
        return port
    if port.verdict == "close":
        return port
    return replace(port, verdict="unproven", detail=UNSTEADY)


def against(results: Results, wanted: Results) -> list[PortVerdict]:
    """Compare each port that either side has."""
    keys = dict.fromkeys([*results, *wanted])
    return [compare(key.name, key.role, results.get(key), wanted.get(key)) for key in keys]


def kept_results(oracle: Oracle, results: Results, wanted: Results) -> Results:
    """Return the results that an oracle has: a recorded step kept only some of them."""
    return {key: value for key, value in results.items() if key in wanted} if oracle.partial else results


def differing(verdicts: Sequence[PortVerdict]) -> str:
    """Describe the first ports that differ from the program's; '' if none."""
    bad = [str(port) for port in verdicts if port.verdict in REFUTED]
    return "; ".join(bad[:2])
