"""The word of a backward whose program is gone, as for a sample: the word of the graphs, and the word that the sample
keeps from when it was saved, in `capture.verdict["derivative"]`, in the form of `verdicts.derivative_json`.
`capture.claims` is what a sample's file says of its graphs; None for a capture that was not read from disk.

Some faults only the running program shows, as of a backward that reads the strides of its tangents. They were seen when
the sample was saved, and the Derivative is kept in the sample. The worse word of both counts: a verdict does not get
better by being saved. The better one is no evidence, because anyone can write it into a file. So whatever is not tried
is said.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from backprint.derive.alone import may_be_fault_of_meant
from backprint.graph.nouns import Capture
from backprint.graph.verdicts import DERIVATIVE, FROM_DISK, NOT_THE_DERIVATIVE, Derivative, WrongGradient

ONLY_IN_PROGRAM = (
    "tangents in other memory",
    "tangents of other sizes",
    "a second backward",
    "a second call",
    "inputs that require no grad",
    "each Function alone",
)
"""The tries that need the running program."""


def digest_of_graphs(capture: Capture) -> str:
    """Return a digest of all graphs of a Capture, which a sample keeps beside a verdict: the word is about these graphs
    only."""
    graphs = [graph for pair in capture.pairs for graph in pair.graphs]
    return hashlib.sha256(" ".join(graph.hash() for graph in graphs).encode()).hexdigest()[:32]


def with_kept_verdict(
    capture: Capture, results: Sequence[Derivative], meant: Sequence[str], is_hostile: bool
) -> list[Derivative]:
    """Return the results for a Capture whose program is gone, with the kept word if that is worse, and with what was
    not tried if the program is `is_hostile`: if it has a backward of its own. Results of a program that lives, or of a
    fake Capture, are returned as they are."""
    if capture.origin.alive or capture.fake:
        return list(results)
    kept: Mapping[str, Any] = (capture.verdict or {}).get("derivative") or {}
    digest_at_save = (capture.verdict or {}).get("graphs", "")
    is_of_other_graphs = bool(kept and digest_at_save) and digest_at_save != digest_of_graphs(capture)
    names = [result.name for result in results]
    # The place of the result that the kept word is about; it counts for the first if no result has its name.
    index_of_kept = names.index(kept["name"]) if kept.get("name") in names else 0
    changed = []
    for place, result in enumerate(results):
        if place == index_of_kept:
            if is_of_other_graphs:
                why = f"the sample keeps `{kept['word']}`, which is about other graphs and is not relied on"
                result = replace(result, detail="; ".join(filter(None, [result.detail, why])))
            elif _is_worse(kept, result, meant):
                result = _kept_verdict(kept, result, capture)
            # Only of graphs whose digest is kept, because this word is better than that of the graphs.
            elif digest_at_save and _is_explained(kept, result, capture, meant):
                detail = "; ".join(["as the running program showed when the sample was saved", kept["detail"]])
                result = replace(result, word=kept["word"], detail=detail, wrong=(), meant=tuple(kept["meant"]))
        changed.append(_without_program(result, capture) if is_hostile and result.good else result)
    return changed


def _is_worse(kept: Mapping[str, Any], of_graphs: Derivative, meant: Sequence[str]) -> bool:
    """Whether the word that a sample keeps is worse than the word of its graphs: it says "not the derivative", not only
    of Functions that are `meant` to differ, and the graphs do not say so."""
    functions = kept.get("functions") or ()
    is_meant = bool(functions) and set(functions) <= set(meant)
    return kept.get("word") == NOT_THE_DERIVATIVE and not is_meant and of_graphs.word != NOT_THE_DERIVATIVE


def _is_explained(kept: Mapping[str, Any], result: Derivative, capture: Capture, meant: Sequence[str]) -> bool:
    """Whether a kept word is that the backward differs where it is meant to, and the graphs do not say whether it
    differs there or at another Function (`may_be_fault_of_meant`). What is meant is kept in the same file, so this word
    says no more than that file says anyway."""
    differs_somewhere = str(kept.get("word")).startswith(f"{DERIVATIVE} but for ")
    is_meant = set(kept.get("meant") or [""]) <= set(meant)  # [""], which nothing is: a word without names is not meant
    return differs_somewhere and is_meant and may_be_fault_of_meant(result, capture, meant)


def _kept_verdict(kept: Mapping[str, Any], result: Derivative, capture: Capture) -> Derivative:
    """Return the verdict that was found with the running program, when the sample was saved."""
    functions = set(kept.get("functions") or ())
    wrong = {
        edge.function: WrongGradient((), source.at, source.code, lines=(), gradients=(), function=edge.function)
        for edge in capture.opaque
        if edge.function in functions and (source := edge.source) is not None
    }
    words = ["as the running program showed when the sample was saved", kept.get("detail", ""), *kept.get("wrong", ())]
    detail = "; ".join([*filter(None, words), f"the graphs alone: {result.word}"])
    return replace(result, word=NOT_THE_DERIVATIVE, detail=detail, wrong=tuple(wrong.values()))


def _without_program(result: Derivative, capture: Capture) -> Derivative:
    """Return the verdict with what only the running program shows as not tried."""
    has_functions = any(edge.function for edge in capture.opaque)
    # The last needs a Function.
    names = [name for name in ONLY_IN_PROGRAM if has_functions or name != ONLY_IN_PROGRAM[-1]]
    reason = FROM_DISK if capture.claims is not None else "not tried, because the program is gone"
    detail = "; ".join(filter(None, [result.detail, f"{reason}: {', '.join(names)}"]))
    return replace(result, detail=detail, not_tried=(*result.not_tried, *((name, reason) for name in names)))
