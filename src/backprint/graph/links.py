"""Read links: which inputs of a Pair come from another, which are the whole Capture's own, and which need a gradient.

A Capture of one Pair needs no links: its ports are the Capture's own.
"""

from __future__ import annotations

from collections.abc import Iterator

from backprint.errors import SampleError
from backprint.graph.keys import PortKey
from backprint.graph.nouns import OUT_ROLES, Capture, Guard, Link, Port, Spec
from backprint.graph.sizes import at_hints

FREE = ("parameter", "buffer", "constant", "input")
"""The roles of inputs that a caller passes; those of an input that a link feeds do not count."""


def feeds(capture: Capture, pair: int) -> tuple[Link, ...]:
    """Return the links that feed a Pair."""
    return tuple(link for link in capture.links if link.target == pair)


def results(capture: Capture) -> tuple[Link, ...]:
    """Return the links to the Capture's own results, in their order."""
    if not capture.links and len(capture.pairs) == 1:
        outputs = capture.pairs[0].forward.by_role("output")
        return tuple(Link(0, port.key, None, port.name) for port in outputs)
    return tuple(link for link in capture.links if link.target is None)


def free_ports(capture: Capture) -> Iterator[Port]:
    """Yield the inputs that a caller passes, each name once, those of the forward before the backward's of each
    Pair."""
    seen: set[str] = set()
    for index, pair in enumerate(capture.pairs):
        fed = {link.name for link in feeds(capture, index)}
        for graph in (pair.forward, pair.backward):
            for port in graph.inputs if graph is not None else ():
                if port.role in FREE and port.name not in seen and port.name not in fed:
                    seen.add(port.name)
                    yield port


def input_names(capture: Capture) -> list[str]:
    """Return the names of a Capture's inputs."""
    return [port.name for port in free_ports(capture) if port.role == "input"]


def between(capture: Capture) -> frozenset[str]:
    """Return the names of values that only exist between Pairs."""
    return frozenset(
        link.name for link in capture.links if link.target is not None and link.port.role in ("output", "gradient")
    )


def mutated(capture: Capture) -> tuple[str, ...]:
    """Return the names of the program's own tensors that it changes."""
    own = between(capture)
    names = [port.name for pair in capture.pairs for port in pair.forward.by_role("mutation")]
    return tuple(dict.fromkeys(name for name in names if name not in own))


def specs(capture: Capture) -> dict[str, Spec]:
    """Return the spec of each of the Capture's own results, and of each value that has a tangent, at example sizes."""
    found: dict[str, Spec] = {}
    for link in results(capture):
        pair = capture.pairs[link.source] if link.source is not None else None
        ports = at_hints(pair.forward).outputs if pair is not None else tuple(free_ports(capture))
        role = link.port.role if link.source is not None else None
        found[link.name] = next(p.spec for p in ports if p.name == link.port.name and role in (None, p.role))
    for pair in capture.pairs:
        for port in at_hints(pair.backward).by_role("tangent") if pair.backward is not None else ():
            found.setdefault(port.name, port.spec)
    return found


def consumers(capture: Capture, pair: int, port: PortKey) -> tuple[Link, ...]:
    """Return the links from a port to later Pairs, the latest first."""
    taken = [link for link in capture.links if link.source == pair and link.port == port and link.target is not None]
    return tuple(sorted(taken, key=lambda link: -(link.target or 0)))


def check_links(links: tuple[Link, ...], count: int) -> None:
    """Raise unless every link goes from a Pair to a later one or to a result, and no value comes from two sources."""
    fed: dict[tuple[int | None, str], str] = {}
    for link in links:
        spelled = repr(str(link.port))[:80]
        where = f"link {spelled} of {link.source} to {link.name!r:.80} of {link.target}"
        if link.port.role not in (*OUT_ROLES, *FREE) or not link.port.name:
            raise SampleError(f"{where}: {spelled} is not a key of a port, as 'output y' is")
        for end in (link.source, link.target):
            if end is not None and not 0 <= end < count:
                raise SampleError(f"{where}: there is no pair {end}; the sample has {count}")
        if link.source is None and (link.target is not None or link.port.role not in FREE):
            raise SampleError(f"{where}: only a result is passed through, and only from an input")
        if link.source is not None and link.port.role not in ("output", "mutation", "gradient"):
            raise SampleError(f"{where}: a link starts at an output, a mutation or a gradient")
        if link.target is not None and link.source is not None and link.source >= link.target:
            raise SampleError(f"{where}: a link goes to a later pair")
        before = fed.setdefault((link.target, link.name), link.port.role)
        if before != link.port.role:
            raise SampleError(f"{where}: it is fed from two places")
    plain = [(link.target, link.name) for link in links if link.port.role != "gradient"]
    twice = [key for key in dict.fromkeys(plain) if plain.count(key) > 1]
    if twice:
        raise SampleError(f"links: {twice[0][1]!r:.80} of {twice[0][0]} is fed from two places")


def compared_alone(capture: Capture) -> list[Guard]:
    """Return the guards that name inputs on which the Capture was compared with their captured values alone."""
    return [guard for guard in capture.guards if guard.kind == "alone"]


def held_exact(capture: Capture) -> set[str]:
    """Return the names that a redraw must not change: lifted constants, and inputs that a guard depends on."""
    kinds = ("value", "shape", "pinned")
    guarded = {name for guard in capture.guards if guard.kind in kinds for name in guard.inputs}
    return guarded | set(capture.origin.constants)
