"""The verdict of a part: on the values that it had in the whole, then against autograd on values from recipes."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from backprint.errors import BackprintError
from backprint.graph.keys import PortKey, keyed
from backprint.graph.nouns import Capture, Pair
from backprint.graph.verdicts import PortVerdict, Verdict, worst
from backprint.parts.borders import local_of
from backprint.parts.captures import PartOfWhole
from backprint.replaying.compare import compare
from backprint.replaying.run import run_graph
from backprint.replaying.strides import tangent_as
from backprint.replaying.verify import verify_capture
from backprint.settings import put_random_states


def verdict_of_part(of: PartOfWhole, made: Capture) -> Verdict:
    """Return the verdict on a part's Capture: against the whole's own values first, then against autograd on fresh
    inputs."""
    try:
        first = against_whole(of, made)
        if not first.good:
            return first
        last = verify_capture(made, ("recipe", "fresh"))[-1]
    except BackprintError as error:
        return Verdict("failed", made.name, f"{type(error).__name__}: {error}")
    return first if first.verdict == "close" and last.verdict == "bitwise" else last


def against_whole(of: PartOfWhole, made: Capture) -> Verdict:
    """Compare a part, on the whole's own values, with the results and shares in the gradients that the whole had."""
    [pair] = made.pairs
    put_random_states(of.ran.random)
    results = dict(zip(pair.forward.outputs, run_graph(pair.forward, of.values), strict=True))
    ports = [
        compare(port.name, port.role, value, of.ran.given[local])
        for port, value in results.items()
        if port.role != "saved" and isinstance(value, Tensor)
        for local in [local_of(of.part, of.borders.names, port)]
        if local in of.ran.given
    ]
    ports += gradients_against_whole(of, made, pair, results)
    bad = [port for port in ports if port.verdict != "bitwise"]
    detail = "; ".join(f"on the whole's own values {port}" for port in bad[:3])
    if not ports:
        return Verdict("unproven", made.name, "nothing was compared")
    return Verdict(worst([port.verdict for port in ports]), made.name, detail, tuple(ports))


def gradients_against_whole(of: PartOfWhole, made: Capture, pair: Pair, results: dict[Any, Any]) -> list[PortVerdict]:
    """Compare the gradients of a part's backward, on the values its forward saved, with its shares in the whole."""
    if pair.backward is None:
        return []
    feed: dict[PortKey, Any] = {port.key: value for port, value in results.items() if port.role == "saved"}
    feed |= keyed("constant", made.origin.values())
    outputs = {port.name: value for port, value in results.items() if port.role == "output"}
    tangents = of.tangents
    for port in pair.backward.by_role("tangent"):
        feed[port.key] = tangent_as(tangents[port.name], outputs[port.name], port.spec, {})
    found = run_graph(pair.backward, feed, strict=False)
    wanted = {of.borders.names.of(local): gradient for local, gradient in of.ran.gradients.items()}
    return [
        compare(port.name, "gradient", value, wanted.get(port.name))
        for port, value in zip(pair.backward.outputs, found, strict=True)
    ]
