"""One run of one of Dynamo's graphs as a program, with the tensors' names in the user's program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, fx

from backprint._torch import pytree
from backprint.graph.nouns import Source
from backprint.tracing import frames
from backprint.tracing.dynamo.frontend import Ambient, GraphRun
from backprint.tracing.dynamo.runner import GraphRunner
from backprint.tracing.program import CalledProgram, Held, NamedTensor, ScoutedProgram, Slot


@dataclass(frozen=True, eq=False)
class Graphed:
    """A graph's run as a function of its tensors: engine `aot` traces it, and it is the oracle of its Pair.

    `places` are the indices of the results that it returns, each with whether it requires grad. `before` are the
    program's own tensors that are read before the graph runs; they are additional arguments. `after` are the indices of
    results that are read.
    """

    module: fx.GraphModule
    under: Ambient
    places: tuple[tuple[int, bool], ...]
    before: tuple[tuple[str, Source | None], ...] = ()
    after: tuple[tuple[int, Source | None], ...] = ()
    __name__ = "graph"

    @property
    def extra(self) -> tuple[str, ...]:
        """The names of its additional arguments."""
        return tuple(dict.fromkeys(name for name, _ in self.before))

    def __call__(self, *given: Any) -> list[Any]:
        names = self.extra
        count = len(given) - len(names)
        own, extra = given[:count], dict(zip(names, given[count:], strict=True))
        for name, source in self.before:
            with frames.at_line(source):
                extra[name].item()
        with self.under.again():
            made = GraphRunner(self.module).results(*own)
        for place, source in self.after:
            with frames.at_line(source):
                (made[place] if place >= 0 else own[-1 - place]).item()
        return [made[place] if asking else without_history(made[place]) for place, asking in self.places]


def without_history(value: Any) -> Any:
    """Detach a tensor; return anything else itself."""
    return value.detach() if isinstance(value, Tensor) else value


def part_of(
    program: ScoutedProgram,
    index: int,
    ran: GraphRun,
    names: Sequence[str | None],
    tensors: tuple[NamedTensor, ...],
    values: dict[str, Tensor],
) -> CalledProgram:
    """Return one graph's run as a program."""
    count = len(ran.module.graph.output_node().args[0])
    graphed = Graphed(ran.module, ran.under, tuple((place, True) for place in range(count)))
    order = {named.name: place for place, named in enumerate(program.tensors)}
    tensors = tuple(sorted(tensors, key=lambda named: order.get(named.name, len(order))))
    leaves = tuple(given if name is None else Slot(name) for given, name in zip(ran.inputs, names, strict=True))
    shared = [name for name in program.hooks if name in values]
    return CalledProgram(
        target=Held(graphed),
        arguments=(),
        structure=pytree.tree_flatten((tuple(leaves), {}))[1],
        leaves=leaves,
        leaf_names=tuple(name or "" for name in names),
        tensors=tensors,
        values=values,
        hooks={name: program.hooks[name] for name in shared},
        title=f"graph {index} of {program.title}",
    )


def renamed_program(program: ScoutedProgram, old: str, new: str) -> ScoutedProgram:
    """Rename one tensor of a program."""
    if old not in program.values:
        return program

    def other(name: str) -> str:
        return new if name == old else name

    return replace(
        program,
        tensors=tuple(replace(named, name=other(named.name)) for named in program.tensors),
        values={other(name): value for name, value in program.values.items()},
        leaves=tuple(Slot(other(leaf.name)) if isinstance(leaf, Slot) else leaf for leaf in program.leaves),
        leaf_names=tuple(map(other, program.leaf_names)),
        shields=frozenset(map(other, program.shields)),
        changed=frozenset(map(other, program.changed)),
        assembled=tuple(tuple(map(other, group)) for group in program.assembled),
    )
