"""What is known of a GraphNet sample before anything is allocated: names, roles, uses, and who asks for a gradient."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from backprint.errors import UsageError
from backprint.graphnet.asks import able, asking
from backprint.graphnet.meta import Meta, Use
from backprint.graphnet.names import Named, name_inputs
from backprint.graphnet.read import GraphNetSample
from backprint.graphnet.uses import uses_of


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known of a sample before anything of it is allocated."""

    inputs: tuple[Named, ...]
    metas: Mapping[str, Meta]
    uses: Mapping[str, Use]
    asks: tuple[tuple[str, str], ...]
    rests: tuple[tuple[str, str], ...]

    @property
    def bytes(self) -> int:
        """What the inputs take in memory."""
        return sum(nbytes(meta) for meta in self.metas.values())


def plan_of(sample: GraphNetSample, requires_grad: Iterable[str] | bool | None = None) -> Plan:
    """Names, roles, uses and who asks for a gradient: no tensor is made for it."""
    inputs = name_inputs(sample.arguments, sample.metas)
    numbers = {argument.name for argument in sample.arguments if argument.kind.startswith("Sym")}
    metas = {named.raw: sample.metas[named.raw] for named in inputs if named.raw not in numbers}
    uses = uses_of(sample.program, metas) if sample.program is not None else {}
    asks, rests = asking(inputs, metas, uses, sample.path)
    if requires_grad is not None:
        asks, rests = chosen(inputs, metas, requires_grad)
    return Plan(inputs, metas, uses, asks, rests)


def chosen(
    inputs: tuple[Named, ...], metas: Mapping[str, Meta], wanted: Iterable[str] | bool
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """Who asks, as the caller says."""
    possible = {named.name for named in inputs if able(metas, named)}
    names = possible if wanted is True else set() if wanted is False else set(wanted)
    for name in sorted(names - possible):
        raise UsageError(f"requires_grad names {name!r}, which is no floating-point input of this sample")
    asks = tuple((named.name, "asked for by name") for named in inputs if named.name in names)
    return asks, tuple((named.name, "not asked for") for named in inputs if named.name not in names)


def nbytes(meta: Meta) -> int:
    """What a tensor takes in memory: its dtype's name says its bits."""
    bits = re.search(r"\d+", meta.dtype)
    return math.prod(meta.shape) * max(1, int(bits[0]) // 8 if bits else 1)
