"""Prove a recorded step before the caller gets it: its replay, compared with what the script computed.

A *recipe* says how an input is made again: its exact bytes, or a seed and a distribution. `peers` of a Capture are the
other ranks as they answered in the step, None where it ran alone; its proof notes in `peers.differing` the collectives
in which the replay sent something else than the script did.
"""

from __future__ import annotations

from backprint.errors import CaptureError
from backprint.graph.links import collective_steps
from backprint.graph.nouns import Capture
from backprint.graph.verdicts import REFUTED
from backprint.prove.verify import verify_capture
from backprint.sample.inputs import with_recipes


def proven_step(recorded: Capture) -> Capture:
    """Return a recorded step with recipes for its inputs, if its replay on the recorded inputs returns what the script
    computed; raise if not."""
    capture = with_recipes(recorded)
    verdicts = verify_capture(capture, draws=("captured",))  # on the captured inputs alone
    _check_sent(capture)
    for verdict in verdicts:
        if verdict.verdict in REFUTED:
            unseen = (
                ""
                if capture.peers is None
                else ". What other threads compute, and callbacks of a collective, is not seen"
            )
            raise CaptureError(f"its replay is not what the script computed: {verdict.name}: {verdict.detail}{unseen}")
    return capture


def _check_sent(capture: Capture) -> None:
    """Refuse a step whose graphs have sent something else in a collective than the script did. A broadcast may differ
    whose result is not used: what a rank sends that is not the source of a broadcast goes nowhere."""
    differing = getattr(capture.peers, "differing", ())  # () where `peers` is None
    if not differing:
        return
    for (group, number), (step, is_used) in collective_steps(capture).items():
        if (group, number) in differing and (is_used or "broadcast" not in step.target):
            place = f" at {step.source.at}" if step.source is not None else ""
            raise CaptureError(
                f"{step.name}{place} over {group!r} sends other values than the script did: something writes to what "
                "is sent where it is not seen, as NumPy, another thread or the callback of a collective do"
            )
