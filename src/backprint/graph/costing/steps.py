"""What each step of a graph costs: floating-point operations, bytes read and written.

Each step counts as a kernel of its own: it reads its arguments from memory and writes its results. A compiler that
fuses steps moves less. Views read and write nothing; an argument that is passed twice is read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from backprint.graph.costing.flops import FLEXIBLE, SLICED, step_flops
from backprint.graph.costing.products import (
    FLOPS,
    MOST_FLOPS,
    Specs,
    arguments_of,
    operator_name,
    shapes_taken,
    specs_of,
    tensors_in,
)
from backprint.graph.costing.storages import is_view
from backprint.graph.costing.traffic import memory_of, places, read_at
from backprint.graph.nouns import Graph, Step, Sub, leaves
from backprint.graph.sizes import at_hints


@dataclass(frozen=True, slots=True)
class StepCost:
    """What a step costs, or several. `product_flops` are those of matrix products, convolutions and attentions, as
    torch's FlopCounterMode counts them; `other_flops` those of everything else."""

    product_flops: int = 0
    other_flops: int = 0
    read: int = 0
    written: int = 0

    @property
    def flops(self) -> int:
        """All floating-point operations."""
        return self.product_flops + self.other_flops

    @property
    def moved(self) -> int:
        """The bytes that are read and written."""
        return self.read + self.written


FREE = StepCost()


def step_costs(graph: Graph) -> tuple[StepCost, ...]:
    """Return the cost of each step of a graph, at its captured sizes."""
    fixed = at_hints(graph)
    specs, subgraphs = specs_of(fixed), dict(fixed.subgraphs)
    return tuple(step_cost(made, specs, subgraphs) for made in fixed.steps)


def total_cost(costs: Iterable[StepCost]) -> StepCost:
    """Return the sum of costs, each number at most as large as a table can hold."""
    rows = [(cost.product_flops, cost.other_flops, cost.read, cost.written) for cost in costs]
    return StepCost(*(min(sum(column), MOST_FLOPS) for column in zip(*rows, strict=True)))


def step_cost(made: Step, specs: Specs, subgraphs: Mapping[str, Graph]) -> StepCost:
    """Return the cost of one step."""
    if made.is_guard or made.target.startswith(("operator.", "math.")) or is_view(made, specs):
        return FREE
    read, written = bytes_read(made, specs), bytes_written(made)
    subs = [subgraphs[leaf.name] for value in arguments_of(made) for leaf in leaves(value) if type(leaf) is Sub]
    if subs:
        return cost_with_subgraphs(made, specs, [total_cost(step_costs(graph)) for graph in subs], read, written)
    name = made.target.split(".")[1] if made.target.startswith("aten.") else ""
    if name in FLOPS:
        return StepCost(min(FLOPS[name](made, specs), MOST_FLOPS), 0, read, written)
    other = sum(count for _, count in step_flops(made, specs, subgraphs))
    return StepCost(0, min(other, MOST_FLOPS), read, written)


def cost_with_subgraphs(made: Step, specs: Specs, inside: list[StepCost], read: int, written: int) -> StepCost:
    """Return the cost of a step that runs subgraphs: of `cond`, the branch that costs more, as torch counts it; of a
    `scan`, once for each slice; of a loop, one iteration, because how often it runs is not known."""
    name = made.target.rpartition(".")[2]
    if name in FLEXIBLE:
        return StepCost(min(FLOPS[FLEXIBLE[name]](made, specs), MOST_FLOPS), 0, read, written)
    if name == "cond":
        return max(inside, key=lambda cost: (cost.product_flops, cost.other_flops, cost.moved))
    times = next((found[0] for found in shapes_taken(made, specs) if found), 1) if name in SLICED else 1
    return times_over(total_cost(inside), times)


def times_over(cost: StepCost, times: int) -> StepCost:
    """Return so many times the cost."""
    return StepCost(cost.product_flops * times, cost.other_flops * times, cost.read * times, cost.written * times)


def bytes_read(made: Step, specs: Specs) -> int:
    """Return the bytes that a step reads, each argument once."""
    most: dict[str, int] = {}
    for place, name in places(made):
        most[name] = max(most.get(name, 0), read_at(made, place, name, specs))
    return sum(most.values())


def bytes_written(made: Step) -> int:
    """Return the bytes that a step writes; `empty` and its like write none."""
    if operator_name(made.target) in UNWRITTEN:
        return 0
    return sum(memory_of(spec) for spec in tensors_in(made.spec))


UNWRITTEN = frozenset("empty empty_like empty_strided empty_permuted new_empty new_empty_strided".split())
