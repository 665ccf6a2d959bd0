"""Which untrusted graphs need a process of their own: those with calls that no check of arguments makes safe.

The process of a sample declares itself with `begin`; in any other process such a graph is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from backprint.errors import RefusedError
from backprint.graph.nouns import HIGHER, Graph, Op, Step, allowed, is_custom, leaves
from backprint.graph.operators import table

ENDLESS = frozenset({"torch.ops.higher_order.while_loop"})

PASSED_OPERATORS: Mapping[str, tuple[int, int]] = {
    "torch.ops.higher_order.run_and_save_rng_state": (0, 1),
    "torch.ops.higher_order.graphsafe_run_with_rng_state": (0, 1),
    "torch.ops.higher_order.run_with_rng_state": (1, 2),
    "torch.ops.higher_order.with_effects": (1, 2),
    "torch.ops.higher_order.out_dtype": (0, 2),
}
"""Higher-order operators that call an operator which is passed to them -> the position of that operator among their
arguments, and the position at which its own arguments begin. Those arguments are checked."""

_alone = False


def begin() -> None:
    """Declare this process a sample's own: its calls can harm only that sample."""
    global _alone
    _alone = True


def is_alone() -> bool:
    """Whether this process is a sample's own."""
    return _alone


def check_here(why: str) -> None:
    """Raise if a sample needs a process of its own, and this is none."""
    if why and not _alone:
        raise RefusedError(why)


def isolation_request(place: object, calls: Iterable[str], trusting: str) -> str:
    """Say why a sample may run only in a process of its own, and what to do; '' if it has no such call."""
    calls = list(calls)
    if not calls:
        return ""
    more = f", and {len(calls) - 1} more such calls" if len(calls) > 1 else ""
    return (
        f"{place} calls {calls[0]}{more}; no check of arguments makes that safe, so it runs in a process of its own "
        f"alone: use `backprint verify {place}`, or where you trust the sample, {trusting}"
    )


def needs_isolation(graph: Graph, allow: Sequence[str] = ()) -> list[str]:
    """Return the calls of a graph, subgraphs included, that are only safe in a process of its own; each with the
    reason.

    Operators of libraries that the user has allowed by name are left out.
    """
    targets = {target for target in called(graph) if not (is_custom(target) and allowed(target, allow))}
    reasons = {f"{target} ({why})" for target in targets if (why := why_isolated(target))}
    unseen = "calls an operator with arguments that nothing looks at"
    return sorted(reasons | {f"{target} ({unseen})" for target in handing(graph) if target not in PASSED_OPERATORS})


def why_isolated(target: str) -> str:
    """Say why a call of this target needs a process of its own; '' if it does not."""
    if target in HIGHER:
        return "may go on for ever" if target in ENDLESS else ""
    if is_custom(target):
        return "an operator of a library, whose kernel nobody knows here"
    row = table().get(target)
    return row.reason if row is not None and row.standing == "isolated" else ""


def called(graph: Graph) -> Iterator[str]:
    """Yield the targets that a graph calls or passes as arguments, subgraphs included."""
    for step in graph.steps:
        if not step.is_guard:
            yield step.target
        yield from handed_on(step)
    for _, sub in graph.subgraphs:
        yield from called(sub)


def handed_on(step: Step) -> list[str]:
    """Return the operators among a step's arguments."""
    values = (*step.args, *(value for _, value in step.kwargs))
    return [leaf.target for value in values for leaf in leaves(value) if type(leaf) is Op]


def handing(graph: Graph) -> Iterator[str]:
    """Yield the targets that take an operator as an argument, in subgraphs too."""
    yield from (step.target for step in graph.steps if not step.is_guard and handed_on(step))
    for _, sub in graph.subgraphs:
        yield from handing(sub)
