"""Edge values among the inputs of a compiled graph: those of the judge of tasks (`tools/tasks/edges`).

Zeros, ±1e4, denormals, ±inf and NaN are put into one input of a forward, or of a step, at a time. What eager makes of
them in its own dtype and in float64 counts where both are of one kind: a number, NaN or an infinity. Where all results
are numbers they are judged as those of any call, gradients too. A backward alone has no edge values: nothing saves such
tensors, and its gradients are judged as those of the step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from backprint.errors import is_defect
from backprint.tools.bench.examine import Examination, inputs_of, names_of_inputs
from backprint.tools.bench.judge import PartJudge, finite, no_compiled
from backprint.tools.export.judged import FACTOR, Eager, within_tolerance
from backprint.tools.export.rerun import EagerRun, copies
from backprint.tools.lowering.subjects import BenchStep, RandomState
from backprint.tools.measuring.clocks import CheatFound
from backprint.tools.tasks.edges import EDGES, MOST_INPUTS, other_kind, sure_places, with_edge
from backprint.values.closeness import distance

SECONDS, FEWEST = 0.3, 3
"""Edge values are tried for so many seconds of work, but in any case so many of them."""

FIRST = ("NaN", "inf", "zeros")
"""The edge values that are tried first: long calls leave time for few."""

SHOWN = ("output", "mutation")
"""Roles of results that are compared where something is no number: what is saved is the compiler's own matter."""


def check_edges(examination: Examination) -> None:
    """Raise CheatFound if results are wrong for an edge value that eager takes."""
    graph = examination.judge.graph
    if graph.direction == "backward":
        return
    worked = time.process_time()
    for count, (check, contents, edge) in enumerate(_edge_contents(examination)):
        if count >= FEWEST and time.process_time() - worked + count * examination.seconds > SECONDS:
            return
        if isinstance(graph, BenchStep) and not math.isfinite(edge):
            continue
        if reason := _fault_at_edge(examination, check, contents):
            raise CheatFound(f"{check}: {reason}")


def _edge_contents(examination: Examination) -> Iterator[tuple[str, list[Any], float]]:
    """Yield contents with an edge value in one input, and in words what they are."""
    graph, own = examination.judge.graph, inputs_of(examination.judge.graph)
    forward = graph.forward.graph if isinstance(graph, BenchStep) else graph.graph
    names = names_of_inputs(graph)
    places = [piece.place for piece in examination.plan.pieces if piece.place < len(forward.inputs)]
    places = [place for place in places if own[place].is_floating_point() and own[place].numel()][:MOST_INPUTS]
    words = [*FIRST, *(word for word in EDGES if word not in FIRST)]
    for place in places:
        for word in words:
            contents = copies(own)
            contents[place] = with_edge(own[place], EDGES[word], examination.plan.seed)
            yield f"{word} in {names[place]}", contents, EDGES[word]


def _fault_at_edge(examination: Examination, check: str, contents: Sequence[Any]) -> str:
    """Return why the results of a call on these contents are wrong, or an empty text."""
    judge = examination.judge
    if not all(part.followed for part in judge.parts):
        return ""
    inputs, results, state, answer = examination.called(contents, None, 0.0)
    examination.check_changed(answer["changed"])
    if reason := judge.wrong_kind(results):
        return reason
    part, part_inputs, part_results = judge.shared_out(inputs, results)[0]
    try:
        run = part.eager_run(part_inputs, part_results, state)
    except Exception as error:  # eager does not take such a value, in whatever way: there is nothing to compare with
        if is_defect(error):
            raise
        return ""
    if all(map(finite, run.results)):
        return "" if examination.near(inputs, results) else _finite_fault(examination, inputs, results, state)
    return _other_fault(part, check, run, part_results)


def _finite_fault(examination: Examination, inputs: Sequence[Any], results: Sequence[Any], state: RandomState) -> str:
    """Return why results are wrong where all of eager's are numbers, or an empty text.

    What eager has as numbers in its own dtype alone does not count."""
    for part, part_inputs, part_results in examination.judge.shared_out(inputs, results):
        try:
            run = part.eager_run(part_inputs, part_results, state)
        except Exception as error:  # eager's backward does not take what was saved, in whatever way
            if is_defect(error):
                raise
            return ""
        wide = Eager(run, no_compiled).wide
        if isinstance(wide, str) or not all(map(finite, (*run.results, *wide))):
            return ""
        if reason := part.disagreement(run, part_results):
            return reason
    return ""


def _other_fault(part: PartJudge, check: str, run: EagerRun, results: Sequence[Any]) -> str:
    """Return which output is of another kind than eager's is in both dtypes, or is far from it where it is a number."""
    wide = Eager(run, no_compiled).wide
    if isinstance(wide, str):
        return ""
    for place, ((role, name), value, own) in enumerate(zip(run.outputs, results, run.results, strict=True)):
        exact = wide[place]
        if role not in SHOWN or place in part.unsteady or not _is_dense_float(own):
            continue
        sure = sure_places(check, exact, own, None)
        if reason := other_kind(sure, value, exact):
            return f"{role} {name}: {reason}"
        numbers = sure & own.isfinite() & exact.isfinite()
        ours, right, precise = (torch.where(numbers, tensor, 0.0) for tensor in (value, own, exact))
        far = FACTOR * distance(right, precise)
        if not within_tolerance(ours.to(own.dtype), right) and distance(ours, precise) > far:
            return f"{role} {name}: it is off by {distance(ours, precise):.3g} of the largest number"
    return ""


def _is_dense_float(value: Any) -> bool:
    return (
        isinstance(value, Tensor) and value.is_floating_point() and value.layout is torch.strided and value.numel() > 0
    )
