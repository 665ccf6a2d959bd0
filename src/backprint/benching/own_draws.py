"""Judge a compiler that draws random numbers in its own way, on a graph that does not return what it draws.

It is given the graph once more with its draws as further results (`draws.opened_graph`): these results are compared
exactly. The graph as it is can only be judged by the distribution of its results, from many calls on the same inputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from backprint.benching.asking import CompilerFailed
from backprint.benching.draws import opened_graph
from backprint.benching.examine import Examination
from backprint.benching.findings import CheatFound
from backprint.benching.judge import PartJudge, other_values
from backprint.benching.subjects import graph_classes
from backprint.errors import BackprintError
from backprint.graph.fixed import unguarded_graph
from backprint.sample.rerun import EagerRun, copies, rebuilt

OPENED_CALLS = 24
"""How often the opened graph is called."""

FEWEST_CALLS, MOST_CALLS, MOST_SECONDS, MOST_BYTES = 80, 400, 2.0, 2**27
"""How many calls show a distribution; how many are made, for how long, and with how many bytes of results."""


class NotJudged(BackprintError):
    """Results that depend on draws could not be judged; the message says why."""


def opened_fault(examination: Examination) -> str:
    """Return what is wrong in the graph with its draws as results, or an empty text."""
    (part,) = examination.judge.parts
    opened = opened_graph(unguarded_graph(part.bench.graph))
    if opened is None:
        raise NotJudged("the graph cannot be given with its draws as results")
    try:
        examination.asked.ask("compile", cold=False, opened=True)
    except CompilerFailed as error:
        raise NotJudged(f"refused with its draws as results: {error}") from None
    (made,) = graph_classes({"opened": opened}).values()
    outputs = [(port.role, port.name) for port in opened.outputs]
    run = EagerRun(rebuilt(made, inspect.getsource(made)), part.bench.run.inputs, part.bench.run.random, outputs, ())
    run = replace(run, results=tuple(run.again(run.module())))
    judge = PartJudge(replace(part.bench, graph=opened, run=run))
    try:
        for count in range(OPENED_CALLS):
            number = examination.number() if count else None
            inputs, results, state, _ = examination.called(None, number, 0.0, opened=True)
            if len(results) != len(outputs):
                return f"{len(results)} results where eager gives {len(outputs)}, with its draws as results"
            if reason := judge.wrong_kind(results) or judge.disagreement(
                judge.eager_run(inputs, results, state), results
            ):
                return f"with its draws as results: {reason}"
            if judge.lifted is not None and judge.lifted.free:
                judge.keep_drawn(results)
        judge.check_drawn()
    except CheatFound as error:
        return str(error)
    except CompilerFailed as error:
        raise NotJudged(f"fails with its draws as results: {error}") from None
    return ""


def distribution_fault(examination: Examination, places: Sequence[int]) -> str:
    """Return which of these results has another distribution than eager's, or an empty text."""
    (part,) = examination.judge.parts
    size = sum(part.bench.run.results[place].nbytes for place in places)
    count = min(MOST_CALLS, int(MOST_SECONDS / examination.seconds), MOST_BYTES // max(size, 1))
    if count < FEWEST_CALLS:
        raise NotJudged(f"{FEWEST_CALLS} calls, which show a distribution, would take too long or too much memory")
    torch.seed()
    eager, module = [], part.bench.run.module()
    for _ in range(count):
        eager.append(picked(module(*copies(part.bench.run.inputs)), places))
    found = [picked(examination.called(None, None, 0.0)[1], places) for _ in range(count)]
    for at, place in enumerate(places):
        if reason := other_values(eager, found, at):
            role, name = part.bench.run.outputs[place]
            return f"{role} {name} is distributed otherwise than eager's: {reason}"
    return ""


def picked(results: Sequence[Any], places: Sequence[int]) -> list[Any]:
    return [results[place] for place in places]
