"""A backward read by its echoes: for which steps of the forward it is the first to go wrong.

An echo is what a capture notes of a step of the backward: `gradient of mm_3`, `sum of gradients of x` or `recomputes
relu`, with the names of values of the forward. The steps of a backward with one echo are a group: they compute the
gradients by one step of the forward, or a sum of gradients. What a group computes and other groups take, or the
backward returns, is an end. An end of a group that is none of the right gradients is wrong, and the group is to blame
if nothing that it takes is wrong. It is not to blame if it has all right gradients and computes with the wrong end
itself: what takes it elsewhere should take another value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from backprint.derive.duals import may_have_tangent
from backprint.derive.marks import Marked, is_permuted, mark_of
from backprint.graph.nouns import Echo, Graph, Step, refs
from backprint.graph.steps import used


@dataclass(frozen=True, slots=True)
class Group:
    """A group that goes wrong: the names of its echo, whether the echo is a sum of gradients, the names of its wrong
    ends (`ends`) and of all of its ends. A step without an echo is a group without names."""

    names: tuple[str, ...]
    is_sum: bool
    ends: tuple[str, ...]
    all_ends: tuple[str, ...]


Expected = Callable[[str], "Mapping[str, Tensor] | None"]
"""Returns the right gradients of what the step of a name takes, by this step; None if they are not known."""


def groups_that_go_wrong(
    graph: Graph,
    values: Mapping[str, Any],
    right: Mapping[str, Tensor],
    given: Collection[str],
    expected: Expected,
    is_right_somewhere: Callable[[Tensor], bool],
    has_gradient: Callable[[str], bool],
) -> Iterator[Group]:
    """Yield the groups of a backward to blame, in its order.

    `values` has the values of the backward, and `right` the right gradients of the forward's values, if what the
    backward returned for the forward's steps in `given` is taken for right. `expected` returns the right gradients of
    what one step takes, `is_right_somewhere` whether a tensor is a right gradient of any value of the forward, or the
    part of one by one step, and `has_gradient` whether a value of the forward has a gradient.

    An end may be the sum of all gradients of what its step takes: not every sum has an echo of its own. An echo of a
    value without a gradient says nothing. A step without an echo whose value is right nowhere is a group without a
    name, because the step of the forward that it belongs to is not known.
    """
    ends = _ends_of_groups(graph, values)
    members: dict[Echo, list[str]] = {}
    for step in graph.steps:
        if step.echo is not None and is_gradient(values.get(step.name)):
            members.setdefault(step.echo, []).append(step.name)
    echo_of = {step.name: step.echo for step in graph.steps}
    # Values that another step of their own group takes.
    used_inside = {
        name for step in graph.steps for name in names_in(step) if step.echo and step.echo == echo_of.get(name)
    }
    # The last step of each group, after which it is judged.
    last = {names[-1]: echo for echo, names in members.items()}
    # Tainted: computed from a value that is wrong already, so that its own group is not to blame.
    tainted, tainted_groups = set[str](), set[Echo]()
    to_blame: dict[Echo, list[str]] = {}
    covered: dict[Echo, bool] = {}  # whether a group has all right gradients by its step
    for step in graph.steps:
        echo, value = step.echo, values.get(step.name)
        is_tainted = bool(tainted & set(names_in(step)))
        if is_tainted:
            tainted.add(step.name)
        if echo is None:
            if not is_tainted and is_gradient(value) and not is_right_somewhere(value):
                tainted.add(step.name)
                yield Group(names=(), is_sum=False, ends=(step.name,), all_ends=(step.name,))
            continue
        if not any(map(has_gradient, echo.names)):
            continue
        # The gradients that were returned there are taken for given, so they taint nothing.
        if not set(echo.names).isdisjoint(given):
            tainted.discard(step.name)
            continue
        if is_tainted:
            tainted_groups.add(echo)
        if step.name in ends.get(echo, ()):
            # An end must be the right gradient by its step, or the right sum of all gradients of the value.
            shares = {} if is_sum(echo) else known(echo, expected)
            if shares is None:
                continue
            gradients = list(shares.values())
            sums = [right[name] for name in (echo.names if is_sum(echo) else shares) if name in right]
            if _is_one_of(value, [*gradients, *sums]):
                tainted.discard(step.name)
            else:
                if echo not in covered:
                    own = Marked(values[name] for name in members[echo])
                    covered[echo] = bool(gradients) and all(own.has(gradient) for gradient in gradients)
                # A group with all right gradients that computes with this end itself means another value: then the
                # step that takes the end elsewhere is to blame.
                if not (covered[echo] and step.name in used_inside):
                    tainted.add(step.name)
                    to_blame.setdefault(echo, []).append(step.name)
        if last.get(step.name) == echo and echo in to_blame and echo not in tainted_groups:
            yield Group(echo.names, is_sum(echo), tuple(to_blame[echo]), tuple(ends[echo]))


def _ends_of_groups(graph: Graph, values: Mapping[str, Any]) -> dict[Echo, list[str]]:
    """Return, for each echo, the results of its steps that other groups take or that the backward returns."""
    echo_of = {step.name: step.echo for step in graph.steps}
    used_elsewhere = {name for result in graph.results for name in refs(result)}
    for step in graph.steps:
        used_elsewhere.update(name for name in names_in(step) if echo_of.get(name) != step.echo)
    ends: dict[Echo, list[str]] = {}
    for step in graph.steps:
        if step.echo is None or step.echo.kind == "recomputes" or step.name not in used_elsewhere:
            continue
        if is_gradient(values.get(step.name)):
            ends.setdefault(step.echo, []).append(step.name)
    return ends


def known(echo: Echo, expected: Expected) -> dict[str, Tensor] | None:
    """Return the right gradients by all steps that an echo names; None if the gradients by one step are not known."""
    gradients: dict[str, Tensor] = {}
    for name in echo.names:
        by_step = expected(name)
        if by_step is None:
            return None
        gradients |= by_step
    return gradients


def _is_one_of(value: Tensor, gradients: Sequence[Tensor]) -> bool:
    """Whether a value is one of these gradients, in any layout. A value of zeros also matches if there are no
    gradients."""
    mark = mark_of(value)
    if mark.is_zero or not value.numel():
        return not gradients or any(mark_of(gradient).is_zero for gradient in gradients)
    return any(
        gradient.numel() == value.numel() and mark.is_near(mark_of(gradient)) and is_permuted(value, gradient)
        for gradient in gradients
    )


def is_gradient(value: Any) -> bool:
    """Whether a value of a backward may be a gradient: a dense tensor of floats or complex numbers."""
    return may_have_tangent(value) and (value.is_floating_point() or value.is_complex())


def is_sum(echo: Echo) -> bool:
    """Whether an echo says that a step adds gradients of one value up."""
    return echo.kind == "sum of gradients of"


def names_in(step: Step) -> list[str]:
    """Return the names of the values that a step takes, each once."""
    return list(dict.fromkeys(used(step)))
