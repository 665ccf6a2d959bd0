"""Cut a Capture into parts, each a Capture with values of its own, proven against the whole.

The steps of the whole's backward between a part's borders are the part's backward (`SLICED`). If they do not separate,
or are not what autograd computes on fresh inputs, the part's forward is captured again (`DERIVED`), and the `why` of
its Capture has the reason. A part with an opaque edge (a place where autograd of the plain forward is not the program's
gradient, such as a custom autograd.Function) cannot be captured again, and is refused by name.

Words of this file:

- The *whole* is the Capture that is cut, or, beside a part, the whole's Pair that the part is of.
- A *local* name is that of a value in a graph's text; a port has a *name* of the program's own beside it.
- `ForwardPart`: a part's steps, with the local names of the values that it `takes`, and that it `gives` to later parts;
  `results` are the outputs and mutations of the whole that the part completes. `Piece`: the range of steps it was cut
  from, with its label.
- `Borders`: all parts of one forward, and names for the values that cross between them (`BorderNames.of`).
- `PartRun` (`ran`): a part as the whole ran it: inputs, results, tangents and gradients, by local names.
- `BorderGradients` (`flow`): which values of the whole's backward are the gradients at the part's borders.
  `PartBackward` (`cut`): the steps of the whole's backward between these, and the saved values that the steps need.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from backprint.common.text import check_choice
from backprint.common.words import DataWord
from backprint.errors import BackprintError, GraphError, RefusedError
from backprint.graph.calls import check_capture
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.fx.to_fx import to_fx
from backprint.graph.keys import PortKey, keyed, of_role, with_tangents
from backprint.graph.nouns import (
    Capture,
    Graph,
    Guard,
    Link,
    OpaqueEdge,
    Origin,
    Pair,
    Port,
    Ref,
    Signature,
    Spec,
    Step,
    Sub,
    TensorSpec,
    Value,
    custom_operators,
    leaves,
)
from backprint.graph.sizes import with_constant_sizes, with_guarded_constants
from backprint.graph.steps import free, mapped, names_behind, specs_of, used, without_dead_code
from backprint.graph.verdicts import PortVerdict, Verdict, worst
from backprint.prove.arguments import tangent_with_traced_strides
from backprint.prove.capturing import capture_call
from backprint.prove.draws import draw_from_recipes
from backprint.prove.results import compare
from backprint.prove.run import perform_steps, run_graph, subgraphs
from backprint.prove.verify import verify_capture
from backprint.sample.inputs import Inputs, exact_data, fit_all, fit_inputs, without_data
from backprint.sample.recipes import derive
from backprint.tools.export.rerun import laid
from backprint.tools.parts.cuts import ForwardPart, Piece, Split, SplitPart, kind_of, plan
from backprint.tools.parts.flow import (
    BorderGradients,
    BorderNames,
    Borders,
    Inseparable,
    PartBackward,
    PartRun,
    backward_of,
    borders_of,
    local_of,
    runs_of_pairs,
    runs_of_parts,
    saved_ports,
    tangent_name,
    with_steps_of_saved,
)
from backprint.trace.program import Outcome
from backprint.values import settings
from backprint.values.settings import set_random_states

# ---- The Pair of a part: a forward that saves the values that its backward needs, and the backward


def pair_of(
    pair: Pair,
    part: ForwardPart,
    names: BorderNames,
    title: str,
    flow: BorderGradients | None = None,
    cut: PartBackward | None = None,
) -> Pair:
    """Return a part of `pair` as a Pair of this title; without `flow` and `cut` it has no backward."""
    specs = specs_of(pair.forward)
    saved: tuple[tuple[Port, Value], ...] = ()
    backward = None
    if cut is not None and flow is not None:
        saved, backward = saved_ports(pair, cut.saved), backward_graph(pair, part, names, flow, cut, specs, title)
    return Pair(title, forward_graph(pair.forward, part, names, saved, specs, title), backward)


def forward_graph(
    graph: Graph,
    part: ForwardPart,
    names: BorderNames,
    saved: Sequence[tuple[Port, Value]],
    specs: Mapping[str, Spec],
    title: str,
) -> Graph:
    """Return the forward of a part of `graph`, which is the whole's forward.

    Its inputs are what the part takes; its results are the part's share of the whole's outputs and mutations, what
    later parts take, and `saved`, what its backward needs. `specs` are those of all values of `graph`.
    """
    port_by_local = {port.local: port for port in graph.inputs}
    inputs = tuple(
        port_by_local.get(local) or Port(names.of(local), "input", specs[local], local)
        for local in _in_order_of(graph, part.takes)
    )
    returned = {result.name for port, result in part.results if port.role == "output" and isinstance(result, Ref)}
    outputs: list[tuple[Port, Value]] = list(part.results)
    # A value that later parts take is an output, unless the whole's output under the same name is this value already.
    outputs += [
        (Port(names.of(local), "output", specs[local]), Ref(local))
        for local in part.gives
        if local not in returned or names.of(local) not in {port.name for port, _ in part.results}
    ]
    # A graph's results are in the order of their roles: outputs, mutations, saved values.
    ranked = sorted(outputs, key=lambda item: ("output", "mutation").index(item[0].role))
    ranked += saved
    subgraphs = tuple((name, sub) for name, sub in graph.subgraphs if name in subgraphs_in(part.steps))
    ports, results = tuple(port for port, _ in ranked), tuple(result for _, result in ranked)
    return without_dead_code(Graph(inputs, part.steps, ports, results, subgraphs, symbols=(), title=title))


def _in_order_of(graph: Graph, names: Collection[str]) -> list[str]:
    """Return these values in the order of the whole: its inputs, then its steps."""
    known = [*(port.local for port in graph.inputs), *(step.name for step in graph.steps if not step.is_guard)]
    return [name for name in known if name in names]


def subgraphs_in(steps: Sequence[Step]) -> set[str]:
    """Return the names of the subgraphs (bodies of higher-order operators) that steps use."""
    values = [value for step in steps for value in (*step.args, *(value for _, value in step.kwargs))]
    return {leaf.name for value in values for leaf in leaves(value) if isinstance(leaf, Sub)}


def backward_graph(
    pair: Pair,
    part: ForwardPart,
    names: BorderNames,
    flow: BorderGradients,
    cut: PartBackward,
    specs: Mapping[str, Spec],
    title: str,
) -> Graph:
    """Return the backward of a part of `pair`: from saved values and the tangents of the part's results to the
    gradients of its inputs. `specs` are those of the forward's values."""
    whole = pair.backward
    assert whole is not None
    step_by_name = {step.name: step for step in whole.steps}
    port_by_local = {port.local: port for port in whole.inputs}
    # A saved value that is no port of the whole's backward is one that the backward recomputes: a step's result.
    inputs = [port_by_local.get(local) or Port(local, "saved", step_by_name[local].spec, local) for local in cut.saved]
    # A value of the whole's backward that is the gradient of a result of the part is a tangent here, under another
    # name. Several values may be the gradient of one result: they become one tangent.
    used_names = set(cut.saved) | {step.name for step in cut.steps}
    tangent_of: dict[str, str] = {}
    needed = {name for step in cut.steps for name in used(step)} | {*flow.gradients.values()}
    for value, result in flow.tangents.items():
        if value not in needed or value in used_names:  # what is saved or computed here needs no port
            continue
        label = tangent_name(part, names, result)
        port = next((port for port in inputs if port.role == "tangent" and port.name == label), None)
        if port is None:
            local = free(f"tangent_{identifier(label)}", used_names | set(step_by_name))
            used_names.add(local)
            port = Port(label, "tangent", spec_of_gradient(specs[result]), local)
            inputs.append(port)
        tangent_of[value] = port.local

    def or_tangent(name: str) -> Value:
        """Return the tangent that stands for a value of the whole's backward, if one does; else the value."""
        return Ref(tangent_of.get(name, name))

    steps = tuple(mapped(step, or_tangent) for step in cut.steps)
    place_of_input = {local: place for place, local in enumerate(_in_order_of(pair.forward, part.takes))}
    inputs_with_gradient = sorted(flow.gradients, key=lambda local: place_of_input[local])
    outputs = tuple(Port(names.of(local), "gradient", spec_of_gradient(specs[local])) for local in inputs_with_gradient)
    gradients = [flow.gradients[local] for local in inputs_with_gradient]
    results = tuple(None if value is None else or_tangent(value) for value in gradients)
    used_subgraphs = subgraphs_in(steps)
    subgraphs = tuple((name, graph) for name, graph in whole.subgraphs if name in used_subgraphs)
    return Graph(tuple(inputs), steps, outputs, results, subgraphs, symbols=(), title=title)


def spec_of_gradient(spec: Spec) -> TensorSpec:
    """Return the spec of a value's gradient: the value's without its strides, which the gradient need not have."""
    assert isinstance(spec, TensorSpec)
    return replace(spec, stride=None, offset=0)


def identifier(name: str) -> str:
    """Return a name with all characters except letters, digits and _ replaced, for use in a local name."""
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)[:200]


# ---- The program behind a part: its forward, run eagerly, and autograd of it


class PartOrigin(Origin):
    """The program behind a part, as the Origin of its Capture.

    If the part has an opaque edge, autograd of its forward is not a reference. Then the part, which was proven on the
    whole's own values, is its own reference on other values.
    """

    def __init__(self, pair: Pair, values: Mapping[str, Any], differentiable: tuple[str, ...], opaque: bool) -> None:
        """`pair` is the part; `values` are its inputs in the whole's run, and `differentiable` its outputs with a
        tangent, both by name; `opaque`: whether the part has an opaque edge."""
        self.pair, self.kept, self.differentiable, self.opaque = pair, values, differentiable, opaque
        constant_names = [port.name for graph in pair.graphs for port in graph.by_role("constant")]
        self.constants = {name: values[name] for name in constant_names if name in values}

    def values(self) -> dict[str, Any]:
        """Return the values that the part had in the whole."""
        return dict(self.kept)

    def run_step(
        self, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor] | None, anew: bool = False
    ) -> Outcome:
        """Run one eager step of the part's forward, and compute its gradients: by autograd, or with an opaque edge by
        the part's own backward. Without tangents, they are ones. `anew` changes nothing, as tensors are copied anyway.
        """
        backward = self.pair.backward
        gradient_names = [port.name for port in backward.outputs] if backward is not None else []
        leaf = {
            name: value.detach().clone().requires_grad_(name in gradient_names) if isinstance(value, Tensor) else value
            for name, value in values.items()
        }
        returned = self.eager_forward(leaf)
        outputs = {name: returned[PortKey("output", name)] for name in self.differentiable}
        tangents_of_outputs = {
            name: torch.ones_like(o) if tangents is None else tangents[name] for name, o in outputs.items()
        }
        gradients: dict[str, Tensor | None] = dict.fromkeys(gradient_names)
        if gradient_names and self.opaque and backward is not None:
            feed = {key: value.detach() for key, value in returned.items() if isinstance(value, Tensor)}
            feed |= keyed("tangent", tangents_of_outputs) | keyed("constant", values)
            # Not strict: what it takes comes from the part's own forward, and need not be checked against its ports.
            gradients = dict(zip(gradient_names, run_graph(backward, feed, strict=False), strict=True))
        elif gradient_names:
            grads = torch.autograd.grad(
                list(outputs.values()),
                [leaf[name] for name in gradient_names],
                list(tangents_of_outputs.values()),
                allow_unused=True,
            )
            gradients = dict(zip(gradient_names, grads, strict=True))
        plain = {key: value.detach() if isinstance(value, Tensor) else value for key, value in returned.items()}
        return Outcome(of_role("output", plain), gradients, of_role("mutation", plain))

    def eager_forward(self, leaves: Mapping[str, Any]) -> dict[PortKey, Any]:
        """Return the forward's results under autograd, by port, from leaf tensors by the names of its inputs."""
        forward = self.pair.forward
        scope = {port.local: leaves[port.name] for port in forward.inputs}
        with torch.enable_grad():
            value_of = perform_steps(forward.steps, scope, subgraphs(forward))
            return {port.key: value_of(result) for port, result in zip(forward.outputs, forward.results, strict=True)}


# ---- A part as a Capture, with recipes for the values that it had in the whole


@dataclass(frozen=True, slots=True)
class _PartOfWhole:
    """One part of one Pair of a Capture: where it was cut, and its values when the whole ran.

    `number` is the Pair's. With `exact`, the part's Capture keeps these values instead of recipes fitted to them.
    """

    whole: Capture
    number: int
    piece: Piece
    part: ForwardPart
    borders: Borders
    ran: PartRun
    exact: bool

    @property
    def pair(self) -> Pair:
        """The Pair that was cut."""
        return self.whole.pairs[self.number]

    @property
    def opaque(self) -> tuple[OpaqueEdge, ...]:
        """The opaque edges in the part: those at a line of one of its steps, and those without a line."""
        lines = {(step.source.file, step.source.line) for step in self.part.steps if step.source}
        edges = self.whole.opaque
        return tuple(edge for edge in edges if edge.source is None or (edge.source.file, edge.source.line) in lines)

    @property
    def values(self) -> dict[str, Any]:
        """The part's inputs, by their names at its borders."""
        return {self.borders.names.of(local): value for local, value in self.ran.values.items()}

    @property
    def tangents(self) -> dict[str, Tensor]:
        """The part's tangents, by the names of its output ports."""
        return {
            tangent_name(self.part, self.borders.names, local): tangent for local, tangent in self.ran.tangents.items()
        }


def _capture_of_part(part_of_whole: _PartOfWhole, pair: Pair, why: str) -> Capture:
    """Return the Capture of a part with this Pair; `why` says where its backward is from.

    Its settings, modules and seed are the whole's. Its recipes are fitted last, as they are made for a Capture.
    """
    whole, part = part_of_whole.whole, part_of_whole.part
    values = values_of(part_of_whole, pair)
    outputs = [port.name for port in pair.forward.by_role("output")]
    tangent_names = [port.name for port in pair.backward.by_role("tangent")] if pair.backward is not None else []
    differentiable = tuple(name for name in outputs if name in tangent_names)
    several = len(whole.pairs) > 1
    within = f" of {part_of_whole.pair.name}" if several else ""
    place = f"forward steps {part.start} to {part.stop}{within} of {whole.name}: {part_of_whole.piece.label}"
    capture = Capture(
        name=f"{whole.name}.{part_of_whole.number}.{part.index}" if several else f"{whole.name}.{part.index}",
        engine=whole.engine,
        pairs=(pair,),
        signature=Signature(
            arguments=tuple(port.name for port in pair.forward.by_role("input")),
            output={"tuple": [{"port": name} for name in outputs]},
            differentiable=differentiable,
        ),
        why=(place, why),
        notes=whole.notes,
        guards=guards_of(pair, whole.name),
        opaque=part_of_whole.opaque,
        modules=whole.modules,
        environment=whole.environment,
        requires=required_operators(pair),
        seed=whole.seed,
        origin=PartOrigin(pair, values, differentiable, opaque=bool(part_of_whole.opaque)),
    )
    tangents = part_of_whole.tangents
    return replace(
        capture,
        recipes=recipes_of(capture, values, {name: tangents[name] for name in differentiable}, part_of_whole.exact),
    )


def values_of(part_of_whole: _PartOfWhole, pair: Pair) -> dict[str, Any]:
    """Return the values of a part's inputs by name: those that they had in the whole's run, and from the whole's
    recipes those of parameters and constants that only the part's backward takes, which the part's run does not have.
    """
    known = part_of_whole.values
    values = {port.name: known[port.name] for port in pair.forward.inputs if port.name in known}
    constants_of_backward = pair.backward.by_role("constant") if pair.backward is not None else ()
    missing = [port.name for port in (*pair.forward.inputs, *constants_of_backward) if port.name not in values]
    if not missing:
        return values
    recipe_values = draw_from_recipes(part_of_whole.whole, "recipe", seed=None).values  # the recipes' own seeds
    return values | {name: recipe_values[name] for name in missing if name in recipe_values}


def recipes_of(capture: Capture, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor], exact: bool) -> Inputs:
    """Return recipes for a part's inputs and tangents, fitted to their values in the whole, or with `exact` those
    values."""
    inputs = fit_inputs(capture, values, "exact" if exact else "seed")
    backwards = [pair.backward for pair in capture.pairs if pair.backward is not None]
    specs = {port.name: port.spec for backward in backwards for port in backward.by_role("tangent")}
    laid_tangents = {name: laid_as(value, specs.get(name)) for name, value in tangents.items()}
    named = with_tangents({}, laid_tangents)  # under names that no input has
    recipes = fit_all(named, derive(capture.seed, "tangents"), exact=list(named) if exact else ())
    kept = exact_data(named, recipes)
    return Inputs({**inputs.recipes, **recipes}, {**inputs.exact, **kept}, capture.seed)


def laid_as(tangent: Tensor, spec: Spec | None) -> Tensor:
    """Return a tangent with the strides of its port (`spec`); contiguous where these are not known, or where a stride
    is 0, as of an expanded tensor: a tangent that is kept has memory for each element."""
    stride = spec.stride if isinstance(spec, TensorSpec) else None
    return tangent.contiguous() if not stride or 0 in stride else laid(tangent, tuple(map(int, stride)))


def guards_of(pair: Pair, whole: str) -> tuple[Guard, ...]:
    """Return a guard for each value that a part's steps check, with the part's inputs that the value depends on;
    `whole` is the name of the Capture that was cut."""
    steps = {step.name: step for step in pair.forward.steps}
    ports = {port.local: port.name for port in pair.forward.inputs}
    guards = []
    for step in pair.forward.steps:
        if not step.is_guard:
            continue
        seen = set(names_behind(used(step), steps))
        names = tuple(name for local, name in ports.items() if local in seen)
        guards.append(Guard(kind="value", text=f"step {step.name} of {whole}", inputs=names, source=step.source))
    return tuple(guards)


def required_operators(pair: Pair) -> tuple[str, ...]:
    """Return the custom operators that a Pair calls."""
    graphs = list(pair.graphs)
    return tuple(sorted({target for graph in graphs for _, target in custom_operators(graph)}))


# ---- A part captured again, if the whole's backward does not separate at its borders


def derive_part(forward: Graph, borders: Borders, part: ForwardPart, ran: PartRun, title: str) -> Pair:
    """Capture a part of a forward again from its steps, and return the Pair under the part's own names. What gets a
    gradient is what got one in the whole: other results are detached, and other inputs do not require grad."""
    # Without saved values, which the new capture finds itself, and without guards: the part runs on the values of the
    # whole's run, on which they held.
    graph = forward_graph(forward, part, borders.names, saved=(), specs=specs_of(forward), title=title)
    graph = without_dead_code(replace(graph, steps=tuple(step for step in graph.steps if not step.is_guard)))
    module = to_fx(graph)
    names_with_tangents = {borders.names.of(local) for local in ran.tangents if local in part.gives}
    names_with_tangents |= {
        port.name for port, value in part.results if isinstance(value, Ref) and value.name in ran.tangents
    }
    has_tangent = [port.role == "output" and port.name in names_with_tangents for port in graph.outputs]

    def run_part(*inputs: Any) -> tuple[Any, ...]:
        """Run the part; detach the results that got no gradient in the whole."""
        return tuple(
            value if keep_gradient or not isinstance(value, Tensor) else value.detach()
            for value, keep_gradient in zip(module(*inputs), has_tangent, strict=True)
        )

    gets_gradient = [port.local in ran.gradients for port in graph.inputs]
    inputs = [ran.values[port.local] for port in graph.inputs]
    values = [
        value.detach().clone().requires_grad_(requires_grad) if isinstance(value, Tensor) else value
        for value, requires_grad in zip(inputs, gets_gradient, strict=True)
    ]
    captured_again = capture_call(
        run_part,
        args=tuple(values),
        kwargs={},
        options=CaptureOptions(
            # None: the inputs that require grad already; if none does, it would be all, so that [] says none.
            requires_grad=None if any(gets_gradient) else [],
            name="part",
            allow=tuple(target for _, target in custom_operators(graph)),
        ),
    )
    return rename_ports(captured_again.pairs[0], graph, title)


GENERATED = "<eval_with_key>"
"""How the name of the file begins that torch.fx gives to the text of a GraphModule."""


def rename_ports(pair: Pair, graph: Graph, title: str) -> Pair:
    """Return the captured `pair` of a function `run_part(*inputs)`, with the ports of the `graph` that it ran.

    The capture names the ports of such a function by number (`inputs.2`; a name without a number is the first), and its
    source lines are those of text that fx generated. Here they become the names and the lines of `graph`.
    """
    ports = dict(enumerate(graph.inputs))
    used_names = {port.name for port in graph.inputs}  # a border's name may be that of a value made anew here

    def number_in(text: str) -> int:
        match = re.search(r"\d+$", text)
        return int(match[0]) if match else 0

    def rename_input(port: Port) -> Port:
        """Return an input of the forward or the backward with the name of the port of `graph` that it is. A constant,
        which the capture made itself, is none."""
        if port.role == "tangent":
            return replace(port, name=graph.outputs[number_in(port.name)].name)
        if port.role == "saved":
            return replace(port, name=saved_name(port.name))
        if port.role == "constant":
            return port
        return replace(ports[number_in(port.name)], local=port.local)

    def saved_name(text: str) -> str:
        """Return the name of a saved value: an input's own, else one that no input has."""
        if re.fullmatch(r"inputs\.\d+", text):
            return graph.inputs[number_in(text)].name
        while text in used_names:
            text += "~"
        return text

    def rename_output(port: Port) -> Port:
        """Return a result of the forward or the backward with the name of the port of `graph` that it is."""
        if port.role == "gradient":
            return replace(port, name=ports[number_in(port.name)].name)
        if port.role == "saved":
            return replace(port, name=saved_name(port.name))
        port_of_part = graph.outputs[number_in(port.name)]
        return replace(port_of_part, spec=port.spec)

    sources = {step.name: step.source for step in graph.steps}

    def with_own_source(step: Step) -> Step:
        """Return a step with the program's source line in the place of a line of fx's text, such as `mul = torch…`,
        whose first word is the name of the step of `graph` that it calls."""
        if step.source is None or not step.source.file.startswith(GENERATED):
            return step
        written = re.match(r"\w+", step.source.code.strip())
        return replace(step, source=sources.get(written[0]) if written else None)

    def rename_graph(captured: Graph) -> Graph:
        inputs, outputs = tuple(map(rename_input, captured.inputs)), tuple(map(rename_output, captured.outputs))
        return replace(
            captured, inputs=inputs, outputs=outputs, steps=tuple(map(with_own_source, captured.steps)), title=title
        )

    return Pair(title, rename_graph(pair.forward), rename_graph(pair.backward) if pair.backward is not None else None)


# ---- The parts linked as the Pairs of one Capture


@dataclass(frozen=True, slots=True)
class _DividedPair:
    """The parts of one Pair of the whole: as cut, and as Pairs of their own, in one order."""

    borders: Borders
    pairs: tuple[Pair, ...]


def link_parts(capture: Capture, divided: Sequence[_DividedPair]) -> Capture:
    """Return the Capture whose Pairs are the linked parts of `capture`, and which returns what `capture` returns.
    `divided` has the parts of each Pair of `capture`, in order.

    There are three sorts of links: between parts of one Pair; those to the results; and those of `capture` itself,
    between its Pairs, which now lead from the part that has the port to every part that takes the value.
    """
    # The number that the first part of each Pair has among all parts.
    first_numbers = [sum(len(divided_pair.pairs) for divided_pair in divided[:index]) for index in range(len(divided))]
    links = [
        link
        for first_number, divided_pair in zip(first_numbers, divided, strict=True)
        for link in _links_between(divided_pair.borders, first_number)
    ]
    if not capture.links:  # a single Pair, whose outputs are the results
        for port in capture.pairs[0].forward.by_role("output"):
            links.append(Link(_pair_with(divided[0], first_numbers[0], port.key), port.key, None, port.name))
    for link in capture.links:
        source = link.source
        if source is not None:  # None: it starts at an input of the whole Capture
            source = _pair_with(divided[source], first_numbers[source], link.port)
        if link.target is None:  # it leads to a result of the whole Capture
            links.append(Link(source, link.port, None, link.name))
            continue
        for index, pair in enumerate(divided[link.target].pairs):
            if any(port.name == link.name for port in pair.forward.inputs):
                links.append(Link(source, link.port, first_numbers[link.target] + index, link.name))
    pairs = tuple(pair for divided_pair in divided for pair in divided_pair.pairs)
    # The whole program proves them together. Its own parts are those of other Pairs: they prove none of these.
    origin = copy.copy(capture.origin)
    origin.parts = ()
    return replace(capture, pairs=pairs, links=tuple(links), verdict=None, origin=origin)


def _links_between(borders: Borders, first_number: int) -> Iterator[Link]:
    """Yield the links between the parts of one Pair: of each value that a part takes and another gives.
    `first_number` is the number of the first part."""
    giver_of_value = {name: part.index for part in borders.parts for name in part.gives}
    for part in borders.parts:
        for local in part.takes:
            if local in giver_of_value:
                label = borders.names.of(local)
                giver, taker = first_number + giver_of_value[local], first_number + part.index
                yield Link(giver, PortKey("output", label), taker, label)


def _pair_with(divided: _DividedPair, offset: int, key: PortKey) -> int:
    """Return the number, among all parts, of the part that returns this result of the whole's Pair; `offset` is the
    number of the Pair's first part. Raise GraphError if none does."""
    for index, pair in enumerate(divided.pairs):
        graph = pair.backward if key.role == "gradient" else pair.forward
        if graph is not None and any(port.key == key for port in graph.outputs):
            return offset + index
    raise GraphError(f"no part has the port {str(key)!r:.80}")


# ---- The verdict of a part: on the values that it had in the whole, then against autograd on values from recipes


def _verdict_of_part(part_of_whole: _PartOfWhole, capture: Capture) -> Verdict:
    """Return the verdict on a part's Capture: against the whole's own values first, then, if these agree, against its
    Origin (autograd of its forward) on inputs of its recipes and on fresh ones; `failed` if one of these raises."""
    try:
        first = against_whole(part_of_whole, capture)
        if not first.good:
            return first
        last = verify_capture(capture, ("recipe", "fresh"))[-1]  # the last is that of the whole Capture
    except BackprintError as error:
        return Verdict("failed", capture.name, f"{type(error).__name__}: {error}")
    # The worse of the two, and of equals the second.
    return first if first.verdict == "close" and last.verdict == "bitwise" else last


def against_whole(part_of_whole: _PartOfWhole, capture: Capture) -> Verdict:
    """Compare a part, on the inputs and tangents that it had in the whole's run, with its results there and with its
    shares in the gradients (a value that several parts use gets a share from each)."""
    [pair] = capture.pairs
    set_random_states(part_of_whole.ran.random)  # so that the part draws the random numbers of the whole's run
    results = dict(zip(pair.forward.outputs, run_graph(pair.forward, part_of_whole.values), strict=True))
    ports = [
        compare(port.name, port.role, value, part_of_whole.ran.results[local])
        for port, value in results.items()
        if port.role != "saved" and isinstance(value, Tensor)
        for local in [local_of(part_of_whole.part, part_of_whole.borders.names, port)]
        if local in part_of_whole.ran.results
    ]
    ports += _gradients_against_whole(part_of_whole, capture, pair, results)
    bad = [port for port in ports if port.verdict != "bitwise"]
    detail = "; ".join(f"on the whole's own values {port}" for port in bad[:3])
    if not ports:
        return Verdict("unproven", capture.name, "nothing was compared")
    return Verdict(worst([port.verdict for port in ports]), capture.name, detail, tuple(ports))


def _gradients_against_whole(
    part_of_whole: _PartOfWhole, capture: Capture, pair: Pair, results: Mapping[Port, Any]
) -> list[PortVerdict]:
    """Compare the gradients of a part's backward with the part's shares in the gradients of the whole; none without a
    backward. `results` are those of the part's forward, its saved values among them."""
    if pair.backward is None:
        return []
    feed: dict[PortKey, Any] = {port.key: value for port, value in results.items() if port.role == "saved"}
    feed |= keyed("constant", capture.origin.values())
    outputs = {port.name: value for port, value in results.items() if port.role == "output"}
    tangents = part_of_whole.tangents
    for port in pair.backward.by_role("tangent"):
        # No sizes of symbols, as the whole was cut at its captured sizes (`_fixed_pair`).
        feed[port.key] = tangent_with_traced_strides(tangents[port.name], outputs[port.name], port.spec, sizes={})
    gradients = run_graph(pair.backward, feed, strict=False)
    expected = {
        part_of_whole.borders.names.of(local): gradient for local, gradient in part_of_whole.ran.gradients.items()
    }
    return [
        compare(port.name, "gradient", value, expected.get(port.name))
        for port, value in zip(pair.backward.outputs, gradients, strict=True)
    ]


# ---- Cutting

SLICED = "its backward is the whole's own steps"
DERIVED = "its backward is captured again from its forward"


def split(capture: Capture, by: str, *, data: DataWord = "seed") -> Split:
    """Cut a Capture into parts, each a Capture of its own that is proven: `.parts`, and `.joined`, linked again.

    `by` is `"range:N"`, `"ranges:0-10,10-25"`, `"operators[:A,B,C]"`, `"module[:DEPTH]"`, `"fold"` or `"saved[:N]"`,
    as for `backprint corpus run split`. `data` says how a part keeps its inputs: recipes fitted to the values that the
    whole had at its borders (`"seed"`), those values (`"exact"`), or neither (`"none"`).
    """
    check_capture(capture, "split")
    return split_capture(capture, by, data)


def split_capture(capture: Capture, by: str, data: str = "seed") -> Split:
    """Cut a Capture as `split` does, whose arguments these are, and raise RefusedError for a Capture without values.

    Each Pair runs once as a whole, then part by part; each part is proven; then all are linked again.
    """
    kind_of(by)  # refuses an unknown kind before anything runs
    check_choice("data", data)
    if capture.fake:
        raise RefusedError(f"{capture.name} was captured without values, and a split proves its parts with them")
    whole = replace(capture, pairs=tuple(map(_fixed_pair, capture.pairs)))
    # All of these lists are by Pair.
    pieces = [plan(pair.forward, by) for pair in whole.pairs]
    with settings.ONE_AT_A_TIME, settings.preserving_random_states(), settings.with_settings(dict(capture.environment)):
        pair_runs = runs_of_pairs(whole)
        borders = [borders_of(whole, number, of_pair) for number, of_pair in enumerate(pieces)]
        runs = [
            runs_of_parts(pair, pair_borders, pair_run)
            for pair, pair_borders, pair_run in zip(whole.pairs, borders, pair_runs, strict=True)
        ]
        split_parts = [
            [
                _proven_part(_PartOfWhole(whole, number, piece, part, pair_borders, ran, exact=data == "exact"))
                for piece, part, ran in zip(pieces[number], pair_borders.parts, runs[number], strict=True)
            ]
            for number, pair_borders in enumerate(borders)
        ]
    divided = [
        _DividedPair(pair_borders, tuple(part.capture.pairs[0] for part in parts))
        for pair_borders, parts in zip(borders, split_parts, strict=True)
    ]
    parts = tuple(part if data != "none" else _without_recipes(part) for parts in split_parts for part in parts)
    return Split(parts, link_parts(whole, divided))


def _without_recipes(part: SplitPart) -> SplitPart:
    """Return a part without recipes for its inputs."""
    return replace(part, capture=replace(part.capture, recipes=without_data(part.capture.recipes)))


def _fixed_pair(pair: Pair) -> Pair:
    """Return a Pair at its captured sizes, in which numbers that guards fix are constants: parts pass tensors alone."""
    return Pair(
        pair.name,
        with_guarded_constants(with_constant_sizes(pair.forward)),
        with_constant_sizes(pair.backward) if pair.backward is not None else None,
    )


def _proven_part(part_of_whole: _PartOfWhole) -> SplitPart:
    """Return one part as a Capture with its verdict: with the whole's own backward steps if that is proven, else
    captured again.

    A part that returns nothing has no backward, and is not one that the caller wants. A part that must be captured
    again is refused if autograd of its forward is not the program's gradient (`_check_opaque`), and is `failed`, with
    its forward alone, if that capture is refused.
    """
    if not part_of_whole.part.gives and not part_of_whole.part.results:
        capture = _capture_of_part(part_of_whole, forward_alone(part_of_whole), "it returns no tensor")
        return replace(
            _judged_part(part_of_whole, capture, Verdict("undifferentiable", capture.name, "returns no tensor")),
            wanted=False,
        )
    whole_steps, why = _tried_slice(part_of_whole)
    if whole_steps is not None:
        return whole_steps
    _check_opaque(part_of_whole, why)
    try:
        pair = derive_part(
            part_of_whole.pair.forward,
            part_of_whole.borders,
            part_of_whole.part,
            part_of_whole.ran,
            part_of_whole.piece.label,
        )
    except BackprintError as error:
        problem = f"{why}; and its forward alone cannot be captured: {error}"
        capture = _capture_of_part(part_of_whole, forward_alone(part_of_whole), problem)
        return _judged_part(part_of_whole, capture, Verdict("failed", capture.name, problem))
    capture = _capture_of_part(part_of_whole, pair, f"{DERIVED}: {why}")
    return _judged_part(part_of_whole, capture, _verdict_of_part(part_of_whole, capture))


def _judged_part(part_of_whole: _PartOfWhole, capture: Capture, verdict: Verdict) -> SplitPart:
    """Return a part with this Capture and Verdict, as `bp.split` returns it."""
    return SplitPart(
        pair=part_of_whole.number,
        index=part_of_whole.part.index,
        label=part_of_whole.piece.label,
        wanted=part_of_whole.piece.wanted,
        capture=capture,
        verdict=verdict,
        count=part_of_whole.piece.count,
    )


def forward_alone(part_of_whole: _PartOfWhole) -> Pair:
    """Return a part as a Pair without a backward."""
    return pair_of(part_of_whole.pair, part_of_whole.part, part_of_whole.borders.names, part_of_whole.piece.label)


def _tried_slice(part_of_whole: _PartOfWhole) -> tuple[SplitPart | None, str]:
    """Return the part with the whole's own backward steps, and '', if that is proven; else None, and why not."""
    if part_of_whole.ran.why:
        return None, part_of_whole.ran.why
    try:
        pair = slice_part(part_of_whole)
    except Inseparable as error:
        return None, str(error)
    capture = _capture_of_part(part_of_whole, pair, SLICED)
    verdict = _verdict_of_part(part_of_whole, capture)
    if verdict.good:
        return _judged_part(part_of_whole, capture, verdict), ""
    return None, f"as the whole's own steps it is {verdict.verdict}: {verdict.detail}"


def slice_part(part_of_whole: _PartOfWhole) -> Pair:
    """Return a part as a Pair with the whole's own backward steps, and without a backward if none of its inputs gets a
    gradient; raise Inseparable if the steps need a value from beyond the part's borders."""
    pair, flow = part_of_whole.pair, part_of_whole.ran.flow
    if pair.backward is None or flow is None or not flow.gradients:
        return forward_alone(part_of_whole)
    cut = backward_of(pair, part_of_whole.part, part_of_whole.borders.part_of_value, flow)
    part = with_steps_of_saved(pair, part_of_whole.part, cut.saved, part_of_whole.borders)
    return pair_of(pair, part, part_of_whole.borders.names, part_of_whole.piece.label, flow, cut)


def _check_opaque(part_of_whole: _PartOfWhole, why: str) -> None:
    """Refuse to capture a part again if autograd of its forward is not the program's gradient: the part has an opaque
    edge, or the gradients of all parts do not sum to the whole's (`ran.inconsistent`). `why` says why the backward does
    not separate. If a gradient was not found among the values of the whole's backward (`ran.why`), an opaque edge in
    any part may be the reason, so that those of the whole count too."""
    edges = part_of_whole.opaque or (part_of_whole.whole.opaque if part_of_whole.ran.why else ())
    if not edges and not part_of_whole.ran.inconsistent:
        return
    unseen = (
        f"would not see {edges[0].text} ({edges[0].kind})" if edges else ANOTHER.format(part_of_whole.ran.inconsistent)
    )
    raise RefusedError(
        f"{part_of_whole.whole.name}, {part_of_whole.piece.label}: the backward cannot be separated here ({why}), and "
        f"autograd of the forward {unseen}: cut elsewhere, or leave that part whole"
    )


ANOTHER = "computes another gradient of {!r} than the program, which stops it somewhere (a detach, for example)"
"""Why autograd of a part's forward is not the program's gradient, for the input of this name."""
