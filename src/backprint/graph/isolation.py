"""Which graphs of a stranger want a process of their own: those that call what no check of arguments makes safe.

The process of a sample says that it is one with `begin`; anywhere else such a graph is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from backprint.errors import RefusedError
from backprint.graph.nouns import HIGHER, Graph, Op, Step, allowed, is_custom, leaves
from backprint.graph.table import table

ENDLESS = frozenset({"torch.ops.higher_order.while_loop"})

SEEN: Mapping[str, tuple[int, int]] = {
    "torch.ops.higher_order.run_and_save_rng_state": (0, 1),
    "torch.ops.higher_order.graphsafe_run_with_rng_state": (0, 1),
    "torch.ops.higher_order.run_with_rng_state": (1, 2),
    "torch.ops.higher_order.with_effects": (1, 2),
    "torch.ops.higher_order.out_dtype": (0, 2),
}
"""Operators of a higher order that call the one that they are given, whose arguments are looked at: where among their
own that one stands, and where its arguments begin."""

_alone = False


def begin() -> None:
    """From now on this process is a sample's own: what it calls costs that sample alone."""
    global _alone
    _alone = True


def is_alone() -> bool:
    """Whether this process is a sample's own."""
    return _alone


def check_here(why: str) -> None:
    """Raise where a sample wants a process of its own, which this is not."""
    if why and not _alone:
        raise RefusedError(why)


def isolation_request(place: object, calls: Iterable[str], trusting: str) -> str:
    """Why a sample may run in a process of its own alone, and what to do; '' where it calls nothing of that kind."""
    calls = list(calls)
    if not calls:
        return ""
    more = f", and {len(calls) - 1} more such calls" if len(calls) > 1 else ""
    return (
        f"{place} calls {calls[0]}{more}; no check of arguments makes that safe, so it runs in a process of its own "
        f"alone: use `backprint verify {place}`, or where you trust the sample, {trusting}"
    )


def needs_isolation(graph: Graph, allow: Sequence[str] = ()) -> list[str]:
    """What a graph calls or hands on, its subgraphs too, that is only safe in a process of its own; each with why.

    Left out are operators of libraries that the user has allowed by name.
    """
    targets = {target for target in called(graph) if not (is_custom(target) and allowed(target, allow))}
    found = {f"{target} ({why})" for target in targets if (why := why_isolated(target))}
    unseen = "calls an operator with arguments that nothing looks at"
    return sorted(found | {f"{target} ({unseen})" for target in handing(graph) if target not in SEEN})


def why_isolated(target: str) -> str:
    """Why a call of this target wants a process of its own; '' where it does not."""
    if target in HIGHER:
        return "may go on for ever" if target in ENDLESS else ""
    if is_custom(target):
        return "an operator of a library, whose kernel nobody knows here"
    row = table().get(target)
    return row.reason if row is not None and row.standing == "isolated" else ""


def called(graph: Graph) -> Iterator[str]:
    """The targets that a graph calls or hands on, its subgraphs too."""
    for step in graph.steps:
        if not step.is_guard:
            yield step.target
        yield from handed_on(step)
    for _, sub in graph.subgraphs:
        yield from called(sub)


def handed_on(step: Step) -> list[str]:
    """The operators among a step's arguments."""
    values = (*step.args, *(value for _, value in step.kwargs))
    return [leaf.target for value in values for leaf in leaves(value) if type(leaf) is Op]


def handing(graph: Graph) -> Iterator[str]:
    """The targets that are given an operator, in subgraphs too."""
    yield from (step.target for step in graph.steps if not step.is_guard and handed_on(step))
    for _, sub in graph.subgraphs:
        yield from handing(sub)
