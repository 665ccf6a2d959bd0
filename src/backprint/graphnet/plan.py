"""The inputs of a GraphNet sample before anything is allocated: names, roles, uses, and which require grad."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from backprint.graphnet.gradients import split_by_grad
from backprint.graphnet.graphs import graph_roles
from backprint.graphnet.meta import Meta, Use
from backprint.graphnet.metas import dtype_itemsize
from backprint.graphnet.names import NamedInput, name_inputs
from backprint.graphnet.read import GraphNetSample
from backprint.graphnet.uses import uses_of


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """A sample's inputs before any tensor is allocated. `with_grad` and `without_grad` are (name, why)."""

    inputs: tuple[NamedInput, ...]
    metas: Mapping[str, Meta]
    uses: Mapping[str, Use]
    with_grad: tuple[tuple[str, str], ...]
    without_grad: tuple[tuple[str, str], ...]

    @property
    def bytes(self) -> int:
        """The bytes of all inputs."""
        return sum(tensor_bytes(meta) for meta in self.metas.values())


def plan_of(sample: GraphNetSample) -> SamplePlan:
    """Plan a sample: its inputs' names, roles and uses, and which require grad."""
    inputs = name_inputs(
        sample.arguments, sample.metas, graph_roles(sample.graph) if sample.graph is not None else None
    )
    numbers = {argument.name for argument in sample.arguments if argument.kind.startswith("Sym")}
    metas = {named.raw: sample.metas[named.raw] for named in inputs if named.raw not in numbers}
    uses = uses_of(sample.program, metas) if sample.program is not None else {}
    with_grad, without_grad = split_by_grad(inputs, metas, uses, sample.path)
    return SamplePlan(inputs, metas, uses, with_grad, without_grad)


def tensor_bytes(meta: Meta) -> int:
    """The bytes of a tensor."""
    return math.prod(meta.shape) * dtype_itemsize(meta.dtype)
