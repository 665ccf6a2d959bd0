"""What compilers that take an exchange format share: the lowered core as a torch.export program, and numpy arrays.

A core is lowered twice if need be: first with the operators that a format may have, which its compiler knows best;
then with torch's core operators alone. To lower a graph is to write its operators in others that a format knows.

In the fx graph of a core, a port is a placeholder node, and a place is the number of an input or a result.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx

from backprint._torch import pytree
from backprint.errors import RefusedError
from backprint.tools.bench.calls import arguments_of, function_of_text
from backprint.tools.export.rerun import copies
from backprint.tools.lowering.operators import NO_FORMS, lower, refuse_draws
from backprint.tools.lowering.subjects import take_out_draws

# ------------------------------------------------------------------ the core of a graph
#
# Exchange formats drop an input that nothing reads, rename or lose an output that is an input, and have no form for
# None and for numbers. `core_of` takes such values out of a graph; `Core.wrap` puts them back around the compiled core.


NOTHING: Mapping[int, Any] = {}

Build: TypeAlias = Callable[[fx.GraphModule, list[Tensor]], Callable[..., Sequence[Tensor]]]
"""A compiler of cores: a function of a graph and its inputs that returns a function of such inputs, one by one."""

Laying: TypeAlias = Callable[[Tensor], Tensor]
"""Returns an input in the memory that a compiled core takes."""


@dataclass(frozen=True, slots=True)
class Core:
    """The part of a graph that computes: tensors that are read go in, distinct computed tensors come out."""

    module: fx.GraphModule
    input_places: tuple[int, ...]
    """The places of the core's inputs among the graph's."""
    plan: tuple[tuple[str, Any], ...]
    """Where each result comes from: `core` or `input` with a place, or `constant` with the value."""
    structure: Any
    """How the results are nested in tuples, lists and dictionaries, as pytree has it."""

    def pick_inputs(self, values: Sequence[Any]) -> list[Tensor]:
        """Return those of the graph's inputs that the core takes."""
        return [values[place] for place in self.input_places]

    def wrap(
        self, call: Callable[..., Sequence[Tensor]], count: int, laying: Mapping[int, Laying] = NOTHING
    ) -> Callable[..., Any]:
        """Return a function of the graph's `count` inputs that calls a compiled core and returns the graph's results.
        It is the compiled core itself where inputs and results are the same. `laying` has a function that lays out an
        input of the core, by its place there."""
        # The function is written as text, so that a call costs what its statements cost (`bench/calls`). Names in the
        # text: v0 an input of the graph, r[0] a result of the core, c0 a constant, lay0 a Laying.
        names = arguments_of(count)
        flat = [_result_text(kind, value, place) for place, (kind, value) in enumerate(self.plan)]
        results = pytree.tree_unflatten(flat, self.structure)
        arguments = [
            f"lay{place}({names[at]})" if place in laying else names[at] for place, at in enumerate(self.input_places)
        ]
        in_order = [f"r[{place}]" for place in range(len(flat))]
        if arguments == names and isinstance(results, (tuple, list)) and list(results) == in_order:
            return call
        constants = {f"c{place}": value for place, (kind, value) in enumerate(self.plan) if kind == "constant"}
        layings = {f"lay{place}": lay for place, lay in laying.items()}
        body = [
            f"r = core({', '.join(arguments)})" if self.computes else "r = ()",
            f"return {_structure_text(results)}",
        ]
        return function_of_text(names, body, {"core": call, **constants, **layings})

    @property
    def computes(self) -> bool:
        """Whether any result is computed from the inputs."""
        return any(kind == "core" for kind, _ in self.plan)


def _result_text(kind: str, value: Any, place: int) -> str:
    """Return the expression of the result at a place, in the names that `Core.wrap` gives; `kind` and `value` say where
    it comes from (`Core.plan`). A constant that is a tensor is copied, because its caller may write into a result."""
    match kind:
        case "core":
            return f"r[{value}]"
        case "input":
            return f"v{value}"
        case _:
            return f"c{place}.clone()" if isinstance(value, Tensor) else f"c{place}"


def _structure_text(value: Any) -> str:
    """Return nested tuples, lists and dictionaries of expressions as one expression."""
    match value:
        case tuple():
            return _tuple_text([_structure_text(item) for item in value])
        case list():
            return f"[{', '.join(map(_structure_text, value))}]"
        case dict():
            return "{" + ", ".join(f"{key!r}: {_structure_text(item)}" for key, item in value.items()) + "}"
    return str(value)


def core_of(module: fx.GraphModule, inputs: Sequence[Any]) -> Core:
    """Return the core of a graph for inputs like these; inputs that are numbers or None become constants of it."""
    core = _with_values_baked(module, inputs)
    nodes = list(core.graph.nodes)
    ports = [node for node in nodes if node.op == "placeholder"]
    end = nodes[-1]
    # None counts as a result, too, so that it has a place.
    flat, structure = pytree.tree_flatten(_plain_containers(end.args[0]), is_leaf=lambda value: value is None)
    end.args = (tuple(flat),)
    constant_values = _constant_nodes(core, inputs)
    computed: list[fx.Node] = []
    plan = [_origin_of_result(value, ports, inputs, constant_values, computed) for value in flat]
    end.args = (tuple(computed),)
    core.graph.eliminate_dead_code()
    read_places = tuple(place for place, port in enumerate(ports) if port.users)
    for port in ports:
        if not port.users:
            core.graph.erase_node(port)
    core.graph.lint()
    core.recompile()
    return Core(core, read_places, tuple(plan), structure)


def _plain_containers(value: Any) -> Any:
    """Return nested tuples, lists and dictionaries with fx's immutable lists and dictionaries as plain ones."""
    match value:
        case tuple() | list():
            kind = tuple if isinstance(value, tuple) else list
            return kind(map(_plain_containers, value))
        case dict():
            return {key: _plain_containers(item) for key, item in value.items()}
    return value


def _origin_of_result(
    value: Any,
    ports: list[fx.Node],
    inputs: Sequence[Any],
    constant_values: dict[fx.Node, Any],
    computed: list[fx.Node],
) -> tuple[str, Any]:
    """Return where one result, a node of the graph or a constant, comes from, as `Core.plan` has it; a node that the
    core computes is added to `computed`, whose order is that of the core's results. `constant_values` are the nodes
    that depend on no input."""
    if not isinstance(value, fx.Node):
        return "constant", value
    value = _unaliased_node(value)
    if value in constant_values:
        return "constant", constant_values[value]
    if value in ports:
        return "input", ports.index(value)
    if value not in computed:
        computed.append(value)
    return "core", computed.index(value)


def _unaliased_node(node: fx.Node) -> fx.Node:
    """Return the node whose value a chain of `detach` and `alias` passes on."""
    while node.target in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
        (node,) = node.all_input_nodes
    return node


def _with_values_baked(module: fx.GraphModule, inputs: Sequence[Any]) -> fx.GraphModule:
    """Return a copy of a graph in which the inputs that are not tensors are written as constants; their placeholders
    stay, and nothing reads them."""
    baked = fx.GraphModule(module, copy.deepcopy(module.graph))
    ports = [node for node in baked.graph.nodes if node.op == "placeholder"]
    for port, value in zip(ports, inputs, strict=True):
        if isinstance(value, Tensor):
            continue
        values = {port: value}
        for user in list(port.users):
            user.args, user.kwargs = (
                fx.node.map_arg(part, lambda node: values.get(node, node))  # noqa: B023  # called at once
                for part in (user.args, user.kwargs)
            )
    baked.recompile()
    return baked


class Constants(fx.Interpreter):
    """Computes the results that depend on no input; every other value is UNKNOWN."""

    UNKNOWN = object()

    def run_node(self, n: fx.Node) -> Any:
        """Return the value of a node of which all inputs are known, unless it draws random numbers; else UNKNOWN. The
        results of the graph are not asked for: None."""
        known = all(self.env[node] is not self.UNKNOWN for node in n.all_input_nodes)
        draws = torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ())
        if n.op == "placeholder" or not known or draws:
            return self.UNKNOWN
        return super().run_node(n) if n.op != "output" else None


def _constant_nodes(module: fx.GraphModule, inputs: Sequence[Any]) -> dict[fx.Node, Any]:
    """Return the nodes that depend on no input, with their values."""
    interpreter = Constants(module, garbage_collect_values=False)  # all values are read below
    with torch.no_grad():
        interpreter.run(*inputs)
    return {
        node: value for node, value in interpreter.env.items() if value is not Constants.UNKNOWN and node.op != "output"
    }


def compile_core(module: fx.GraphModule, inputs: Sequence[Any], build: Build) -> Callable[..., Any]:
    """Compile the core of a graph; return a function of the graph's inputs that returns its results."""
    core = core_of(module, inputs)
    # `tuple` stands for a compiled core that is never called.
    call = build(core.module, core.pick_inputs(copies(inputs))) if core.computes else tuple
    return core.wrap(call, len(inputs))


def _tuple_text(items: Sequence[str]) -> str:
    """Return the text of a tuple of these expressions."""
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


# ------------------------------------------------------------------ exchange formats


def exchanged(
    module: fx.GraphModule, inputs: Sequence[Any], build: Build, forms: Mapping[Any, Any] = NO_FORMS
) -> Callable[..., Any]:
    """Compile the core of the lowered graph with `build`, with contiguous inputs; a compiler that raises on it gets it
    once more, lowered to torch's core operators.

    `forms` has the forms in which some operators are written for this compiler, in place of the usual ones. Draws stay
    outside: eager makes them before each call. A graph whose draws cannot be taken out, and inputs that are not
    strided, are refused.
    """
    without_draws = take_out_draws(module)  # None if nothing is drawn, or draws depend on computed values
    if without_draws is not None:
        call = exchanged(without_draws.module, [*inputs, *without_draws.draw()], build, forms)
        return lambda *values: call(*values, *without_draws.draw())
    refuse_draws(module)
    refuse_layouts(inputs)

    def build_core(core: fx.GraphModule, core_inputs: list[Tensor]) -> Callable[..., Sequence[Tensor]]:
        """Compile a core, lowered as little as its compiler takes."""
        try:
            return _build_lowered(core, core_inputs, build, forms, thorough=False)
        except RefusedError:
            raise
        except Exception as error:  # a compiler may raise anything for an operator that it does not have
            try:
                return _build_lowered(core, core_inputs, build, forms, thorough=True)
            except Exception:
                raise error from None  # the first error is about the operators that the graph has

    return compile_core(module, inputs, build_core)


def _build_lowered(
    core: fx.GraphModule, core_inputs: list[Tensor], build: Build, forms: Mapping[Any, Any], thorough: bool
) -> Callable[..., Sequence[Tensor]]:
    """Return a compiled core, lowered to torch's core operators if `thorough`. A lowered core may return inputs
    unchanged, so its own core is taken once more. Inputs that are not contiguous are made so before each call."""
    lowered = core_of(lower(core, core_inputs, thorough, forms), core_inputs)
    if not lowered.computes:
        return lowered.wrap(tuple, len(core_inputs))  # `tuple` is never called
    values = lowered.pick_inputs(copies(core_inputs))
    make_contiguous = {
        place: _contiguous_values for place, value in enumerate(values) if not _is_contiguous_values(value)
    }
    call = build(lowered.module, [_contiguous_values(value) for value in values])
    return lowered.wrap(call, len(core_inputs), make_contiguous)


def _is_contiguous_values(value: Tensor) -> bool:
    """Whether a tensor is as exchange formats take it: contiguous, with no lazy conjugation or negation, and not
    recorded by autograd. Tensors of later calls are like the first."""
    return value.is_contiguous() and not (value.is_conj() or value.is_neg() or value.requires_grad)


def _contiguous_values(value: Tensor) -> Tensor:
    """Return a tensor as exchange formats take it: detached and contiguous."""
    return value.detach().resolve_conj().resolve_neg().contiguous()


def refuse_layouts(inputs: Sequence[Any]) -> None:
    """Raise RefusedError for an input that is quantized or not strided."""
    for place, value in enumerate(inputs):
        if isinstance(value, Tensor) and (value.layout is not torch.strided or value.is_quantized):
            raise RefusedError(
                f"input {place} has layout {value.layout}, dtype {value.dtype}: no exchange format has it"
            )


def exported(core: fx.GraphModule, inputs: Sequence[Tensor]) -> torch.export.ExportedProgram:
    """Return a core as torch.export's program."""
    with torch.no_grad():
        return torch.export.export(core, tuple(inputs), strict=False)


def core_ports(core: fx.GraphModule) -> list[str]:
    """Return the names of a core's inputs."""
    return [node.name for node in core.graph.nodes if node.op == "placeholder"]


def result_kinds(core: fx.GraphModule, inputs: Sequence[Tensor]) -> list[tuple[torch.dtype, list[int]]]:
    """Return dtype and sizes of each result, from one run in eager."""
    with torch.no_grad():
        return [(value.dtype, list(value.shape)) for value in core(*copies(inputs))]


def refuse_dtypes(what: str, dtypes: Sequence[torch.dtype], known: Sequence[torch.dtype]) -> None:
    """Raise RefusedError for a dtype that a compiler's tensors cannot have."""
    for dtype in dtypes:
        if dtype not in known:
            raise RefusedError(f"{what} takes no tensor of dtype {dtype}")


NUMPY = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)
"""The dtypes that numpy and every exchange format have."""
