"""Compare a stamped Capture, whose repeated layers were copied from one, with a trace of the whole program.

A stamped Capture is fake: it was captured without values, so only graphs can be compared.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

from backprint.errors import UsageError
from backprint.graph.nouns import Capture, Graph, stamp_of
from backprint.graph.verdicts import Verdict
from backprint.prove.capturing import capture_call
from backprint.prove.verify import FAKE
from backprint.trace.captured import LiveProgram


def verify_stamped(stamped: Capture, trace: Capture | bool) -> Verdict:
    """Compare a stamped Capture with a trace in full: a Capture of the same program in which no layer is a copy. With
    True, the program is traced here."""
    _check_trace(stamped, trace)
    if isinstance(trace, Capture):
        return _against_trace(stamped, trace)
    assert isinstance(stamped.origin, LiveProgram)  # its program is alive
    target, args, kwargs = stamped.origin.call()
    options = replace(stamped.origin.options, stamp=False)
    return _against_trace(stamped, capture_call(target, args, kwargs, options, proved=False))


def _check_trace(stamped: Capture, trace: Capture | bool) -> None:
    """Raise unless `stamped` is stamped, and `trace` is a trace in full or True, while the program lives."""
    if not stamp_of(stamped.notes):
        raise UsageError(f"trace= is for a stamped capture, and {stamped.name} was not stamped: verify it without")
    if isinstance(trace, Capture):
        if stamp_of(trace.notes):
            raise UsageError(f"trace={trace.name} is stamped itself: capture the program with stamp=False")
    elif trace is not True:
        raise UsageError(f"trace={trace!r:.80} is neither True nor a Capture of the same program with stamp=False")
    elif not stamped.origin.alive:
        raise UsageError(
            f"trace=True needs the program of {stamped.name}, which is gone: capture it again with stamp=False, and "
            "pass that Capture as `trace`"
        )


def _against_trace(stamped: Capture, full: Capture) -> Verdict:
    """Return the Verdict of a stamped Capture: `wrong` if a trace in full has other graphs.

    Nothing is computed, so it is `unproven` even if they are equal.
    """
    hashes = []
    for left, right in zip_longest(stamped.pairs, full.pairs):  # None for a Pair that only the other one has
        for side in ("forward", "backward"):
            ours, theirs = getattr(left, side, None), getattr(right, side, None)
            if _hash_of(ours) != _hash_of(theirs):
                name = (left or right).name
                here, there = _size_and_hash(ours), _size_and_hash(theirs)
                difference = f"{name} {side} is not that of a trace in full: {here} here, {there} there"
                return Verdict("wrong", stamped.name, difference)
            hashes.append(f"{side} {_hash_of(ours)[:16]}")
    equality = f"a trace in full has the same graphs ({', '.join(hashes)})"
    return Verdict("unproven", stamped.name, f"{FAKE}; {stamp_of(stamped.notes)}; {equality}")


def _hash_of(graph: Graph | None) -> str:
    """Return the hash of a graph; `none` if there is no graph."""
    return "none" if graph is None else graph.hash()


def _size_and_hash(graph: Graph | None) -> str:
    """Say how many steps a graph has, and its hash."""
    return "none" if graph is None else f"{len(graph.steps)} steps, hash {graph.hash()[:16]}"
