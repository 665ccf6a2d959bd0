"""Links between the Pairs of a Capture, and the claims of a sample about its graphs. Nothing here needs torch.

A Capture of one Pair needs no links: its ports are the Capture's own. Of several Pairs, a Link goes from a port of the
Pair `link.source` to the input `link.name` of the later Pair `link.target`, or, with `target` None, to a result of the
whole Capture; with `source` None it starts at an input of the Capture, which is returned as it is. A Pair is known by
its number. A *shard* is the part of a tensor that one rank of a distributed step has.

A *claim* is what a sample says of its graphs in its `capture.json`, and a *fingerprint* an argument of the captured
call as JSON. *Example sizes* are those that symbolic sizes had at capture.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from backprint.errors import SampleError
from backprint.graph.keys import PortKey
from backprint.graph.nouns import (
    COLLECTIVES,
    IN_ROLES,
    OUT_ROLES,
    WAIT,
    Capture,
    Graph,
    Guard,
    Link,
    Pair,
    Port,
    Spec,
    Step,
    TensorSpec,
    refs,
)
from backprint.graph.sizes import at_example_sizes
from backprint.graph.steps import used
from backprint.graph.text import show_port, show_spec

# ---- Questions about links: the inputs that they feed, and the inputs and results of the whole Capture


FREE = ("parameter", "buffer", "constant", "input")
"""The roles of inputs that a caller passes, unless a link feeds them."""


def feeds(capture: Capture, pair: int) -> tuple[Link, ...]:
    """Return the links that end at an input of this Pair."""
    return tuple(link for link in capture.links if link.target == pair)


def result_links(capture: Capture) -> tuple[Link, ...]:
    """Return the links to the Capture's own results, in their order."""
    if not capture.links and len(capture.pairs) == 1:
        outputs = capture.pairs[0].forward.by_role("output")
        return tuple(Link(source=0, port=port.key, target=None, name=port.name) for port in outputs)
    return tuple(link for link in capture.links if link.target is None)


def free_ports(capture: Capture) -> Iterator[Port]:
    """Yield the inputs that a caller passes, each name once: Pair by Pair, the forward's before the backward's."""
    seen: set[str] = set()
    for index, pair in enumerate(capture.pairs):
        fed = {link.name for link in feeds(capture, index)}
        for graph in pair.graphs:
            for port in graph.inputs:
                if port.role in FREE and port.name not in seen and port.name not in fed:
                    seen.add(port.name)
                    yield port


def input_names(capture: Capture) -> list[str]:
    """Return the names of a Capture's inputs."""
    return [port.name for port in free_ports(capture) if port.role == "input"]


def names_between_pairs(capture: Capture) -> frozenset[str]:
    """Return the names of values that only exist between Pairs: outputs and gradients that a link takes to a Pair."""
    return frozenset(
        link.name for link in capture.links if link.target is not None and link.port.role in ("output", "gradient")
    )


def mutated(capture: Capture) -> tuple[str, ...]:
    """Return the names of the program's own tensors that it changes."""
    inner = names_between_pairs(capture)
    names = [port.name for pair in capture.pairs for port in pair.forward.by_role("mutation")]
    return tuple(dict.fromkeys(name for name in names if name not in inner))


def specs(capture: Capture) -> dict[str, Spec]:
    """Return the spec of each of the Capture's own results, and of each value that has a tangent, at example sizes."""
    specs_by_name: dict[str, Spec] = {}
    for link in result_links(capture):
        if link.source is None:  # an input that is returned as it is
            specs_by_name[link.name] = next(p.spec for p in free_ports(capture) if p.name == link.port.name)
        else:
            ports = at_example_sizes(capture.pairs[link.source].forward).outputs
            specs_by_name[link.name] = next(port.spec for port in ports if port.key == link.port)
    for pair in capture.pairs:
        for port in at_example_sizes(pair.backward).by_role("tangent") if pair.backward is not None else ():
            specs_by_name.setdefault(port.name, port.spec)
    return specs_by_name


def consumers(capture: Capture, pair: int, port: PortKey) -> tuple[Link, ...]:
    """Return the links from a port of the Pair with this number to later Pairs, the latest first: in that order their
    backwards run."""
    consuming = [
        link for link in capture.links if link.source == pair and link.port == port and link.target is not None
    ]
    return tuple(sorted(consuming, key=lambda link: -(link.target or 0)))


def check_links(links: tuple[Link, ...], count: int) -> None:
    """Raise SampleError unless every link of a Capture with `count` Pairs goes from a Pair to a later one or to a
    result, and no value but a gradient comes from two sources."""
    fed: dict[tuple[int | None, str], str] = {}  # (target, name) of a link -> the role of the port where it starts
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
        # Several gradients may feed one name, because they are added. Of other roles, two are refused below.
        before = fed.setdefault((link.target, link.name), link.port.role)
        if before != link.port.role:
            raise SampleError(f"{where}: it is fed from two places")
    plain = [(link.target, link.name) for link in links if link.port.role != "gradient"]
    twice = [key for key in dict.fromkeys(plain) if plain.count(key) > 1]
    if twice:
        target, name = twice[0]
        raise SampleError(f"links: {name!r:.80} of {target} is fed from two places")


def compared_alone(capture: Capture) -> list[Guard]:
    """Return the guards that name inputs on which the Capture was compared with their captured values alone."""
    return [guard for guard in capture.guards if guard.kind == "alone"]


def names_held_exact(capture: Capture) -> set[str]:
    """Return the names that a redraw must not change: lifted constants, and inputs that a guard depends on."""
    kinds = ("value", "shape", "pinned")
    guarded = {name for guard in capture.guards if guard.kind in kinds for name in guard.inputs}
    return guarded | set(capture.origin.constants)


# ---- Claims: what a sample says about its graphs in more than one place
# A sample has each port's role and each value's shape in `model.py`, and again in capture.json: roles in a table,
# annotations as a digest. There are also the signature, links, recipes and the witness, and both directions name saved
# values. A change of only one of these is detected. A consistent change of all of them is another sample, of which only
# the numbers can be checked.


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A claim of a Capture about a port or a step that is not true."""

    role: str
    name: str
    text: str


Claims = Mapping[str, Any]
"""What capture.json says of one graph: `roles`, names by role, and `annotations`, a digest."""


def claims_of(graph: Graph) -> dict[str, Any]:
    """Return the claims about a graph, in a sample's form: the names of its ports by role, and a digest of its
    annotations."""
    return {
        "roles": {"in": _names_by_role(graph.inputs), "out": _names_by_role(graph.outputs)},
        "annotations": _digest_of_annotations(graph),
    }


def _names_by_role(ports: tuple[Port, ...]) -> dict[str, list[str]]:
    """Return the names of ports by their role."""
    names: dict[str, list[str]] = {}
    for port in ports:
        names.setdefault(port.role, []).append(port.name)
    return names


def _digest_of_annotations(graph: Graph) -> str:
    """Return a digest of all annotations of a graph: dtypes, sizes, strides, devices, layouts."""
    return hashlib.sha256("\n".join(annotations_of(graph)).encode()).hexdigest()[:32]


def annotations_of(graph: Graph) -> Iterator[str]:
    """Yield every annotation of a graph, and of its subgraphs."""
    for symbol in graph.symbols:
        yield f"{symbol.name} = {symbol.hint} in [{symbol.low}, {symbol.high}]"
    for port in (*graph.inputs, *graph.outputs):
        yield show_port(port)
    for step in graph.steps:
        if not step.is_guard:
            yield f"{step.name}: {show_spec(step.spec)}"
    for name, sub in graph.subgraphs:
        yield f"{name}:"
        yield from annotations_of(sub)


# ---- Contradictions


def contradictions(capture: Capture) -> Iterator[Contradiction]:
    """Yield the Contradictions of a Capture: between its graphs, the claims in capture.json, and the rest of it."""
    for index, pair in enumerate(capture.pairs):
        for side, graph in (("forward", pair.forward), ("backward", pair.backward)):
            if graph is not None:
                claims = capture.claims[index].get(side) if capture.claims else None
                yield from _contradictions_of_graph(f"{pair.name}/{side}", graph, claims or {})
        yield from _contradictions_of_pair(capture, index, pair)
    yield from _contradictions_of_signature(capture)
    yield from _contradictions_of_witness(capture)


def _contradictions_of_graph(where: str, graph: Graph, claims: Claims) -> Iterator[Contradiction]:
    """Compare a graph with the claims in capture.json, and yield what differs; `where` names the graph."""
    if roles := claims.get("roles"):
        for direction, ports in (("in", graph.inputs), ("out", graph.outputs)):
            yield from _contradictions_of_roles(ports, roles.get(direction, {}))
    if "annotations" in claims and claims["annotations"] != _digest_of_annotations(graph):
        yield Contradiction(
            "graph", where, "its annotations (dtypes, sizes, strides, devices) are not those that were saved"
        )


def _contradictions_of_roles(ports: tuple[Port, ...], roles: Mapping[str, list[str]]) -> Iterator[Contradiction]:
    """Compare the roles of ports with the table of roles in capture.json, which has the names of ports by role, and
    yield what differs."""
    then = sorted((name, role) for role, names in roles.items() for name in names)
    now = sorted((port.name, port.role) for port in ports)
    if then == now:
        return
    for name, role in (pair for pair in now if pair not in then):
        was = ", ".join(old_role for old_name, old_role in then if old_name == name) or "no port"
        yield Contradiction(role, name, f"the graph says {role}, capture.json says {was}")
    names_now = {name for name, _ in now}
    for name, role in (pair for pair in then if pair not in now):
        if name not in names_now:  # of a port with another role, the loop above has said so
            yield Contradiction(role, name, f"capture.json has the {role} {name!r}, which the graph does not have")


class _Roles(NamedTuple):
    """The roles that the inputs of one direction, forward or backward, can have, and those that its outputs can."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


FORWARD = _Roles(("parameter", "buffer", "input", "constant", "rng"), ("output", "mutation", "saved"))
BACKWARD = _Roles(("saved", "tangent", "constant", "rng"), ("gradient",))

assert {*FORWARD.inputs, *BACKWARD.inputs} == set(IN_ROLES)
assert {*FORWARD.outputs, *BACKWARD.outputs} == set(OUT_ROLES)


def _contradictions_of_pair(capture: Capture, index: int, pair: Pair) -> Iterator[Contradiction]:
    """Compare both directions of the Pair of a number: the backward takes what the forward saves, tangents are of its
    outputs, and gradients of its inputs. Yield a Contradiction for each port of which that is not true."""
    forward = at_example_sizes(pair.forward)
    backward = at_example_sizes(pair.backward) if pair.backward is not None else None
    yield from _contradictions_of_direction("forward", forward, FORWARD)
    if backward is None:
        return
    fed = {link.name for link in feeds(capture, index)}  # inputs of the forward that have their value from a link
    yield from _contradictions_of_direction("backward", backward, BACKWARD)
    saved_ports = {port.name: port for port in forward.outputs if port.role == "saved"}
    outputs = {port.name: port for port in forward.outputs if port.role == "output"}
    inputs = {port.name: port for port in forward.inputs}
    # A gradient need not be of an input of this forward: it may be of an input that a link feeds, of an input of
    # another Pair, or be handed on along a link.
    elsewhere = fed | {port.name for other_pair in capture.pairs if capture.links for port in other_pair.forward.inputs}
    elsewhere |= {link.port.name for link in capture.links if link.source == index and link.port.role == "gradient"}
    for port in backward.by_role("saved"):
        yield from _contradictions_of_specs(
            port, saved_ports.get(port.name), "the backward takes it as {}, the forward saves {}", whole=True
        )
    for port in backward.by_role("constant"):
        if port.name in inputs and inputs[port.name].role != "constant":
            yield Contradiction("constant", port.name, f"is a {inputs[port.name].role} of the forward, which saves it")
    for port in backward.by_role("tangent"):
        yield from _contradictions_of_specs(port, outputs.get(port.name), "its tangent is {}, the output {}")
    for port in backward.by_role("gradient"):
        named = inputs.get(port.name)
        if named is None and port.name not in elsewhere and not _is_of_recorded_step(capture, port):
            yield Contradiction("gradient", port.name, "is the gradient of no input of the forward")
        if not port.shard:  # a gradient may be sharded in another way than its parameter
            yield from _contradictions_of_specs(port, named, "the gradient is {}, what it is of {}")
    for port in forward.by_role("mutation"):
        named = inputs.get(port.name)
        if named is not None and dtype(port.spec) != dtype(named.spec):
            yield Contradiction("mutation", port.name, f"{show_spec(port.spec)} is written to {show_spec(named.spec)}")


def _is_of_recorded_step(capture: Capture, port: Port) -> bool:
    """Whether a gradient that belongs to no input of the forward was returned all the same by a recorded step: of a
    value that its forward did not need, or that its backward changed. Of a recorded step, the origin has results alone
    (`partial`); from disk, the witness has a row for each port that the step returned or changed."""
    rows = capture.witness or {}
    keys = (PortKey("gradient", port.name), PortKey("mutation", port.name))
    return capture.origin.partial or any(str(key) in rows for key in keys)


def _contradictions_of_direction(side: str, graph: Graph, roles: _Roles) -> Iterator[Contradiction]:
    """Yield a Contradiction for each port of a graph whose role is not among `roles`, those of its direction `side`."""
    for ports, known in zip((graph.inputs, graph.outputs), roles, strict=True):
        for port in ports:
            if port.role not in known:
                yield Contradiction(port.role, port.name, f"no port of a {side} on that side is a {port.role}")


def _contradictions_of_specs(port: Port, other: Port | None, text: str, whole: bool = False) -> Iterator[Contradiction]:
    """Yield a Contradiction with `text`, which has a place for each spec, if two ports do not have the same dtype,
    shape and device, or, with `whole`, the same spec up to the storage offset. Nothing is said of a port that is not
    there (None), or without a spec."""
    if other is None or port.spec is None or other.spec is None or port.spec == other.spec:
        return
    if kind(port.spec, whole) != kind(other.spec, whole):
        yield Contradiction(port.role, port.name, text.format(show_spec(port.spec), show_spec(other.spec)))


def kind(spec: Spec, whole: bool = False) -> Any:
    """Return the parts of a spec that two ports must have in common: with `whole`, all but the storage offset.

    Layout and strides are not among them otherwise: a gradient may be sparse if its parameter is dense.
    """
    if not isinstance(spec, TensorSpec):
        return spec
    return replace(spec, offset=0) if whole else (spec.dtype, spec.shape, spec.device)


def dtype(spec: Spec) -> str:
    """Return the dtype of a tensor's spec; '' for any other spec."""
    return spec.dtype if isinstance(spec, TensorSpec) else ""


def _contradictions_of_signature(capture: Capture) -> Iterator[Contradiction]:
    """Compare the roles of a Capture's inputs with the captured call, and, in a Capture of one Pair, its differentiable
    outputs with the tangents that its backward takes."""
    signature = capture.signature
    if signature.call is not None:
        argument_names = {name for row in signature.call for name in tensors_in(row.like)}
        twins = {name for pair in signature.same for name in pair}  # tensors that were passed under two names
        for port in free_ports(capture):
            is_input = port.role == "input"
            # With order=2, inputs of the program are also tangents, `tangent.y`, which are no arguments of the call.
            is_tangent = port.name.startswith("tangent.")
            if is_input and port.name not in argument_names | twins and not is_tangent:
                yield Contradiction(port.role, port.name, "is not an argument of the captured call")
            if not is_input and port.name in argument_names - twins:
                yield Contradiction(port.role, port.name, "is an argument of the captured call, so its role is input")
    if capture.links or len(capture.pairs) != 1 or capture.pairs[0].backward is None:
        return
    with_tangents = {port.name for port in capture.pairs[0].backward.by_role("tangent")}
    for name in signature.differentiable:
        if name not in {port.name for port in capture.pairs[0].forward.by_role("output")}:
            yield Contradiction("output", name, "is differentiable in capture.json, and no output of the forward")
    for name in with_tangents - set(signature.differentiable):
        yield Contradiction("tangent", name, "is not a differentiable output in capture.json")


def tensors_in(like: Any) -> Iterator[str]:
    """Yield the names of the ports that a fingerprint of an argument (`like`) has in the places of tensors: an object
    with the key `tensor`, which may have further parts."""
    if isinstance(like, dict):
        if isinstance(like.get("tensor"), str):
            yield like["tensor"]
        for key, item in like.items():
            if key != "tensor":
                yield from tensors_in(item)
    elif isinstance(like, list):
        for item in like:
            yield from tensors_in(item)


def _contradictions_of_witness(capture: Capture) -> Iterator[Contradiction]:
    """Compare the specs of the ports of a Capture of one Pair with the dtypes and shapes of the results that the
    program returned at capture, which the sample has as `witness`, and yield what differs."""
    if not capture.witness or len(capture.pairs) != 1 or capture.links:
        return
    pair = capture.pairs[0]
    for graph in pair.graphs:
        for port in at_example_sizes(graph).outputs:
            row = capture.witness.get(str(port.key))
            spec = port.spec
            # Of a saved value there is no row, and of a result that is None nothing but that.
            if row is None or row.get("none") or not isinstance(spec, TensorSpec):
                continue
            if (spec.dtype, list(spec.shape)) != (row["dtype"], row["shape"]):
                returned = f"{row['dtype']}{row['shape']}"
                yield Contradiction(
                    port.role, port.name, f"annotated {show_spec(spec)}, and the program gave {returned}"
                )


def collectives_before(capture: Capture) -> dict[tuple[int, str], dict[str, int]]:
    """Return how many collectives of each group of ranks run before each graph, by the number of a Pair and the
    direction, in the order of the training step: each Pair's forward, then its backward, then the next Pair."""
    rows: dict[tuple[int, str], dict[str, int]] = {}
    counts: Counter[str] = Counter()
    for index, pair in enumerate(capture.pairs):
        for side, graph in (("forward", pair.forward), ("backward", pair.backward)):
            rows[index, side] = dict(counts)
            # The last argument of a collective is the label of its group.
            counts.update(str(step.args[-1]) for step in (graph.steps if graph else ()) if step.target in COLLECTIVES)
    return rows


def collective_steps(capture: Capture) -> dict[tuple[str, int], tuple[Step, bool]]:
    """Return the steps that are collectives, each with whether its result is used, by the label of the group and the
    number of the collective in its group, in the order in which the graphs run."""
    rows: dict[tuple[str, int], tuple[Step, bool]] = {}
    counts: Counter[str] = Counter()
    for graph in (graph for pair in capture.pairs for graph in pair.graphs):
        used_names = {name for step in graph.steps for name in used(step)} | set(refs(graph.results))
        # The result of a collective is the result of its wait: the collective itself only starts it.
        waits = {name: step.name for step in graph.steps if step.target == WAIT for name in refs(step.args)}
        for step in graph.steps:
            if step.target in COLLECTIVES:
                label = str(step.args[-1])  # of its group
                rows[label, counts[label]] = step, waits.get(step.name, "") in used_names
                counts[label] += 1
    return rows
