"""Edits of a graph, and what each of them changes: by the names of steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from backprint.graph.canonical import effects
from backprint.graph.nouns import Graph, Ref, Step, TensorSpec, refs
from backprint.graph.steps import mapped, used, with_names

UNARY = ("aten.sin.default", "aten.cos.default", "aten.neg.default", "aten.exp.default", "aten.tanh.default")

Change = tuple[str, str, str]
"""The kind of a change, the step's name before and after; '' where it is not there."""


@dataclass(frozen=True)
class Edited:
    graph: Graph
    changes: frozenset[Change]


def shuffled(graph: Graph, draw: random.Random) -> Graph:
    """The same steps in another order; those with effects keep theirs."""
    made = {step.name: place for place, step in enumerate(graph.steps)}
    ordered, last = set(effects(graph)), -1
    users: list[list[int]] = [[] for _ in graph.steps]
    left = [0] * len(graph.steps)
    for place, step in enumerate(graph.steps):
        needed = {made[name] for name in used(step) if name in made}
        if place in ordered:
            needed |= {last} - {-1}
            last = place
        left[place] = len(needed)
        for each in needed:
            users[each].append(place)
    ready, found = [place for place, count in enumerate(left) if not count], []
    while ready:
        found.append(ready.pop(draw.randrange(len(ready))))
        for user in users[found[-1]]:
            left[user] -= 1
            if not left[user]:
                ready.append(user)
    return replace(graph, steps=tuple(graph.steps[place] for place in found))


def with_other_names(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """The graph with new names for all its values, and the old name of each."""
    names = {port.local: f"in_{place}" for place, port in enumerate(graph.inputs)}
    names |= {step.name: f"v_{place}" for place, step in enumerate(graph.steps)}
    inputs = tuple(replace(port, local=names[port.local]) for port in graph.inputs)
    steps = tuple(
        replace(mapped(step, lambda name: Ref(names[name])), name=names[step.name], echo=None) for step in graph.steps
    )
    results = tuple(with_names(value, lambda name: Ref(names[name])) for value in graph.results)
    made = replace(graph, inputs=inputs, steps=steps, results=results)
    return made, {new: old for old, new in names.items()}


def users_of(graph: Graph, name: str) -> list[Step]:
    return [step for step in graph.steps if name in used(step)]


def with_steps(graph: Graph, steps: list[Step], *changes: Change) -> Edited:
    return Edited(replace(graph, steps=tuple(steps)), frozenset(changes))


def other_constant(graph: Graph, place: int, draw: random.Random) -> Edited | None:
    step, steps = graph.steps[place], list(graph.steps)
    numbers = [at for at, value in enumerate(step.args) if type(value) in (int, float) and abs(value) < 2**40]  # type: ignore[arg-type,operator]  # numbers, as checked
    if not numbers:
        return None
    at = draw.choice(numbers)
    args = (*step.args[:at], step.args[at] + 7, *step.args[at + 1 :])  # type: ignore[operator]  # a number, as chosen
    steps[place] = replace(step, args=args)
    return with_steps(graph, steps, ("changed", step.name, step.name))


def other_operator(graph: Graph, place: int, draw: random.Random) -> Edited | None:
    step, steps = graph.steps[place], list(graph.steps)
    if len(step.args) != 1 or len(used(step)) != 1:
        return None
    steps[place] = replace(step, target=draw.choice([target for target in UNARY if target != step.target]))
    return with_steps(graph, steps, ("changed", step.name, step.name))


def one_more(graph: Graph, place: int, draw: random.Random) -> Edited | None:
    """A step between a value and one of those that take it."""
    step, steps = graph.steps[place], list(graph.steps)
    takers = users_of(graph, step.name)
    if not takers or not isinstance(step.spec, TensorSpec):
        return None
    taker = draw.choice(takers)
    at, name = steps.index(taker), f"fresh_{draw.randrange(10**9)}"
    steps[at] = mapped(taker, lambda each: Ref(name if each == step.name else each))
    steps.insert(at, Step(name, draw.choice(UNARY), (Ref(step.name),), (), step.spec, taker.source))
    return with_steps(graph, steps, ("added", "", name), ("changed", taker.name, taker.name))


def one_less(graph: Graph, place: int, draw: random.Random) -> Edited | None:
    """Without a step: those that took its value take the first that it took."""
    step = graph.steps[place]
    returned = {name for result in graph.results for name in refs(result)}
    takers = [each.name for each in users_of(graph, step.name)]
    if step.name in returned or not takers or not used(step):
        return None
    instead = used(step)[0]
    steps = [
        mapped(each, lambda name: Ref(instead if name == step.name else name)) for each in graph.steps if each != step
    ]
    return with_steps(graph, steps, ("removed", step.name, ""), *(("changed", name, name) for name in takers))


EDITS: tuple[Callable[[Graph, int, random.Random], Edited | None], ...] = (
    other_constant,
    other_operator,
    one_more,
    one_less,
)


def edited(graph: Graph, count: int, draw: random.Random) -> Edited:
    """The graph with some edits, of which none is next to another."""
    now, near = Edited(graph, frozenset()), set[str]()
    for step in draw.sample(graph.steps, len(graph.steps)):
        place = next((at for at, each in enumerate(now.graph.steps) if each.name == step.name), None)
        made = (
            draw.choice(EDITS)(now.graph, place, draw)
            if place is not None and place not in effects(now.graph)
            else None
        )
        names = {name for change in made.changes for name in change[1:] if name} if made is not None else set()
        if made is None or names & near:
            continue
        around = [each for each in now.graph.steps if each.name in names or names & set(used(each))]
        near |= names.union(*((each.name, *used(each)) for each in around))
        now = Edited(made.graph, now.changes | made.changes)
        count -= 1
        if not count:
            break
    return now
