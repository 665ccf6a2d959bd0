"""Compare a stamped Capture with a trace of the whole program."""

from __future__ import annotations

from itertools import zip_longest

from backprint.graph.nouns import Capture, Graph
from backprint.graph.stamps import stamp_of
from backprint.graph.verdicts import Verdict
from backprint.replaying.verify import FAKE


def against_trace(stamped: Capture, full: Capture) -> Verdict:
    """Return the Verdict of a stamped Capture: `wrong` if its graphs are not those of a trace in full.

    Nothing is computed, so it is `unproven` even if they are.
    """
    hashes = []
    for left, right in zip_longest(stamped.pairs, full.pairs):
        for side in ("forward", "backward"):
            ours, theirs = getattr(left, side, None), getattr(right, side, None)
            if hash_of(ours) != hash_of(theirs):
                name = (left or right).name
                here, there = size_and_hash(ours), size_and_hash(theirs)
                said = f"{name} {side} is not that of a trace in full: {here} here, {there} there"
                return Verdict("wrong", stamped.name, said)
            hashes.append(f"{side} {hash_of(ours)[:16]}")
    said = f"a trace in full has the same graphs ({', '.join(hashes)})"
    return Verdict("unproven", stamped.name, f"{FAKE}; {stamp_of(stamped.notes)}; {said}")


def hash_of(graph: Graph | None) -> str:
    """Return the hash of a graph; that of none is `none`."""
    return "none" if graph is None else graph.hash()


def size_and_hash(graph: Graph | None) -> str:
    """Say how many steps a graph has, and its hash."""
    return "none" if graph is None else f"{len(graph.steps)} steps, hash {graph.hash()[:16]}"
