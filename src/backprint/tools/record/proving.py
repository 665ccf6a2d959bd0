"""Prove a recorded step before the caller gets it: its replay, compared with what the script computed."""

from __future__ import annotations

from backprint.errors import CaptureError
from backprint.graph.links import collective_steps
from backprint.graph.nouns import Capture
from backprint.graph.verdicts import REFUTED
from backprint.prove.verify import verify_capture
from backprint.sample.inputs import with_recipes


def proven_step(recorded: Capture) -> Capture:
    """Return a recorded step with recipes if its replay returns what the script computed; raise if not."""
    capture = with_recipes(recorded)
    verdicts = verify_capture(capture, ("captured",))
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
    """Refuse a rank whose graphs have sent something else than the script did. It matters if the result is used; of a
    broadcast, only then, because what a rank sends that is not the source of it goes nowhere."""
    differing = getattr(capture.peers, "differing", ())
    for key, (step, is_used) in collective_steps(capture).items() if differing else ():
        if key in differing and (is_used or "broadcast" not in step.target):
            place = f" at {step.source.at}" if step.source is not None else ""
            raise CaptureError(
                f"{step.name}{place} over {key[0]!r} sends other values than the script did: something writes to what "
                "is sent where it is not seen, as NumPy, another thread or the callback of a collective do"
            )
