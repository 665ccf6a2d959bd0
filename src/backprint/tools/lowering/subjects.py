"""The graphs of a Capture as compilers take them: as GraphModules with inputs, eager's results, and random draws as
inputs.

The inputs are the sample's own. A backward's saved inputs come from its forward, as in a replay (`tools/export/rerun`),
and a step runs a forward and then its backward on the tangents of the replay. No graph has guards: these inputs satisfy
them.

A *draw* is a call that draws random numbers. To *lift* a draw is to make its result an input of the graph; a graph is
*opened* if its draws are results too. A node or value is *without values* if it depends on no input's values, only on
dtypes, shapes and strides (its *form*). An EagerRun is a graph that ran in eager, with its inputs, its results, the
role and name of each result (`outputs`), and the random state before. OWN are operators, such as attention, for which
`derive/forms` has a form of its own that refuses dropout.
"""

from __future__ import annotations

import copy
import itertools
import linecache
import sys
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from backprint._torch.operators import schema_if_any
from backprint.common.words import BENCH_DIRECTIONS
from backprint.derive.forms import OWN
from backprint.errors import RefusedError
from backprint.graph.fx.to_fx import to_fx
from backprint.graph.fx.values import resolve
from backprint.graph.nouns import Capture, Graph, Port, Ref, Step, TensorSpec, refuse_collectives
from backprint.graph.operators import operators
from backprint.graph.sizes import unguarded_graph
from backprint.graph.steps import SAVING, needed_steps, used
from backprint.graph.text import HEADER, emit_class
from backprint.run_sample import make_inputs
from backprint.tools.export.export import content_of, graphs_needed, recipes_needed
from backprint.tools.export.rerun import EagerRun, Program
from backprint.values.tree import strided_parts

# ------------------------------------------------------------------ random state
#
# `torch.manual_seed` also records a seed for devices that are not initialized, each with the text of the whole stack: 2
# ms a call, where a bench makes thousands, and memory that is never freed.


RandomState = tuple[Any, Any]
"""The state of the CPU's generator, and those of the GPUs'."""

CPU = torch.default_generator


def seed_generators(seed: int) -> None:
    """Seed the generators of the CPU and of the GPUs that are in use; faster than `torch.manual_seed`."""
    CPU.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def state_of(seed: int) -> RandomState:
    """Return the random state of a seed, and leave the generators in it."""
    seed_generators(seed)
    return current_random_state()


def current_random_state() -> RandomState:
    """Return the random state."""
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ()


# ------------------------------------------------------------------ draws before a graph runs
#
# No exchange format draws as torch does. So torch draws before each call, and the graph gets the draws as further
# inputs. A draw that needs only the form of a tensor, such as the mask of a dropout, can happen before the graph runs,
# from the same random state and in the same order, so the numbers are eager's.

FORM_ONLY = {
    "rand_like",
    "randn_like",
    "randint_like",
    "empty_like",
    "zeros_like",
    "ones_like",
    "full_like",
    "new_empty",
    "new_zeros",
    "new_ones",
    "new_full",
    "new_empty_strided",
    "bernoulli.p",
}
"""Operators that read only the dtype, shape and strides of their first argument; by name, or by name and overload."""


@dataclass(frozen=True, slots=True)
class _OutsideDraws:
    """A graph whose last inputs are random draws, and the function that draws them, in the order of these inputs."""

    module: fx.GraphModule
    draw: Callable[[], Sequence[Tensor]]


def take_out_draws(module: fx.GraphModule) -> _OutsideDraws | None:
    """Return a graph with its draws taken out, and what is computed of draws alone; None if nothing is drawn, or a draw
    depends on computed values, so that it cannot happen before the graph runs."""
    without_draws = fx.GraphModule(module, copy.deepcopy(module.graph))
    nodes = list(without_draws.graph.nodes)
    without_values = _nodes_without_values(nodes)
    drawn = _nodes_of_draws(nodes)
    if not any(map(draws, nodes)) or any(draws(node) and node not in without_values for node in nodes):
        return None
    outside = [node for node in nodes if node in without_values and node in drawn]
    used_inside = [node for node in outside if any(user not in outside for user in node.users)]
    # Made before `used_inside` are replaced: it copies these nodes, and all nodes that they may need.
    draw = _draw_function(without_draws, [node for node in nodes if node in without_values], used_inside)
    _replace_by_inputs(without_draws.graph, used_inside)
    for node in reversed(outside):  # users before what they use
        without_draws.graph.erase_node(node)
    without_draws.graph.lint()
    without_draws.recompile()
    return _OutsideDraws(without_draws, draw)


def _replace_by_inputs(graph: fx.Graph, nodes: Sequence[fx.Node]) -> None:
    """Use new inputs of a graph, after those that it has, in the place of these nodes, which stay without users."""
    first = next(iter(graph.nodes))
    last_input = next((node for node in reversed(list(graph.nodes)) if node.op == "placeholder"), None)
    for index, node in enumerate(nodes):
        with graph.inserting_before(first) if last_input is None else graph.inserting_after(last_input):
            port = graph.placeholder(f"drawn_{index}")
        port.meta = dict(node.meta)
        node.replace_all_uses_with(port)
        last_input = port


def draws(node: fx.Node) -> bool:
    """Whether a node's operator draws random numbers."""
    return is_draw(node.target)


def is_draw(target: Any) -> bool:
    """Whether an operator draws random numbers. Those of OWN do not count: their forms here refuse dropout."""
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()) and target not in OWN


def _nodes_without_values(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """Return the nodes that depend on no values of inputs, only on dtypes, shapes and strides."""
    without_values: set[fx.Node] = set()
    for node in nodes:
        if node.op == "call_function" and all(read in without_values for read in values_read(node)):
            without_values.add(node)
    return without_values


def values_read(node: fx.Node) -> list[fx.Node]:
    """Return the nodes whose values a node reads: all its inputs, but for one of which it reads the form alone."""
    form = node.args[0] if node.args and _reads_form_only(node) else None
    return [source for source in node.all_input_nodes if source is not form]


def _reads_form_only(node: fx.Node) -> bool:
    """Whether a node reads only the form of its first argument."""
    schema = schema_if_any(node.target)
    if schema is None:
        return False
    name = str(schema.name).partition("::")[2]
    return name in FORM_ONLY or f"{name}.{schema.overload_name}" in FORM_ONLY


def _nodes_of_draws(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """Return the nodes that draw or depend on a draw, and tensors that a draw is written into, such as the first
    argument of `uniform_`."""
    drawn: set[fx.Node] = set()
    for node in nodes:
        if draws(node) or any(source in drawn for source in values_read(node)):
            drawn.add(node)
            if getattr(schema_if_any(node.target), "is_mutable", False):
                drawn |= {source for source in node.args[:1] if isinstance(source, fx.Node)}
    return drawn


def _draw_function(module: fx.GraphModule, nodes: Sequence[fx.Node], results: Sequence[fx.Node]) -> Callable[[], Any]:
    """Return a function that computes the values of `results`, some of these `nodes` of the graph of `module`: they
    are copied in the order of the graph, with an unwritten tensor in the place of an input whose form alone is read."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}

    def copied_node(node: fx.Node) -> fx.Node:
        """Return what stands in the new graph for an argument."""
        return copies[node] if node in copies else graph.call_function(torch.empty_strided, *empty_arguments(node))

    for node in nodes:
        copies[node] = graph.node_copy(node, copied_node)
    graph.output(tuple(copies[node] for node in results))
    # Draws stay also if their result is unused: the ones after them depend on the state that they leave.
    graph.eliminate_dead_code(is_impure_node=lambda node: node.is_impure() or draws(node))
    return fx.GraphModule(module, graph).forward


def empty_arguments(node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return args and kwargs with which `torch.empty_strided` makes a tensor of a node's form; refuse a node whose form
    is not known."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        raise RefusedError(f"a draw needs the form of {node.name}, which is not known")
    return (tuple(value.shape), tuple(value.stride())), {"dtype": value.dtype, "device": value.device}


# ------------------------------------------------------------------ graphs and steps with eager's results

Compile = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]
"""A compiler: a function of a graph and its inputs that returns a function of such inputs, with the same results."""


@dataclass(frozen=True)
class BenchGraph:
    """One graph and its run in eager, by which results are judged. Its title is `pair_0 forward`."""

    title: str
    graph: Graph
    run: EagerRun

    @cached_property
    def module(self) -> fx.GraphModule:
        """The GraphModule. A compiler's process builds its own, so the judging process seldom needs it."""
        return to_fx(unguarded_graph(self.graph))

    @property
    def direction(self) -> str:
        """`forward` or `backward`."""
        return self.title.partition(" ")[2]

    @property
    def steps(self) -> int:
        """The number of operators that the graph calls."""
        return len(self.graph.steps)


class InputSource(NamedTuple):
    """Where an input of a backward comes from in a step: the place among the forward's results, if `from_forward`, else
    among the step's arguments."""

    from_forward: bool
    place: int


@dataclass(frozen=True)
class BenchStep:
    """A forward and its backward as one. The backward takes the forward's saved tensors, whichever compiler ran it."""

    title: str
    forward: BenchGraph
    backward: BenchGraph

    @property
    def direction(self) -> str:
        """`step`."""
        return BENCH_DIRECTIONS[2]

    @property
    def steps(self) -> int:
        """The number of operators that both graphs call."""
        return self.forward.steps + self.backward.steps

    @cached_property
    def strides(self) -> dict[int, tuple[int, ...]]:
        """The strides for which the backward is compiled, of each saved tensor by its place among the backward's
        inputs: a compiled forward may save a tensor with other strides."""
        sources_and_values = zip(self.sources, self.backward.run.inputs, strict=True)
        return {
            place: value.stride()
            for place, (source, value) in enumerate(sources_and_values)
            if source.from_forward and isinstance(value, torch.Tensor) and value.layout is torch.strided
        }

    @cached_property
    def sources(self) -> list[InputSource]:
        """Where each input of the backward comes from. Tangents, and constants that the forward does not have, are
        arguments of the step after the forward's inputs."""
        saved = {name: place for place, (role, name) in enumerate(self.forward.run.outputs) if role == "saved"}
        forward_inputs = {port.name: place for place, port in enumerate(self.forward.graph.inputs)}
        next_places = itertools.count(len(forward_inputs))
        sources: list[InputSource] = []
        for port in self.backward.graph.inputs:
            if port.role == "saved" and port.name in saved:
                sources.append(InputSource(from_forward=True, place=saved[port.name]))
            elif port.role != "tangent" and port.name in forward_inputs:
                sources.append(InputSource(from_forward=False, place=forward_inputs[port.name]))
            else:
                sources.append(InputSource(from_forward=False, place=next(next_places)))
        return sources

    @cached_property
    def inputs(self) -> list[Any]:
        """The forward's inputs, and then those that only the backward has."""
        count = len(self.forward.graph.inputs)
        sources_and_values = zip(self.sources, self.backward.run.inputs, strict=True)
        own = [value for source, value in sources_and_values if not source.from_forward and source.place >= count]
        return [*self.forward.run.inputs, *own]


def bench_graphs(capture: Capture) -> list[BenchGraph]:
    """Run every graph of a Capture in eager, once; return them in order, each forward before its backward. Refuse a
    Capture without values."""
    graphs = graphs_needed(capture, "both")  # by title, each with the number of its Pair
    if capture.recipes is None or capture.fake:
        raise RefusedError(f"{capture.name} was captured without values, so no compiler can run it: capture it anew")
    refuse_collectives(capture, "a compiler")
    recipes = recipes_needed(capture, graphs, capture.recipes.recipes)
    content = content_of(capture, graphs, recipes)  # links, recipes and strides, as a Program reads them
    classes = graph_classes({title: graph for title, (_, graph) in graphs.items()})
    values = make_inputs(content["recipes"], list(recipes), capture.recipes.exact)
    torch.manual_seed(capture.seed)
    # Not under `no_grad`, but in the grad mode of a training step: cuDNN's and oneDNN's LSTMs ask for it.
    runs = Program(content, classes, values, copies=True).play()
    return [BenchGraph(title, graph, runs[title]) for title, (_, graph) in graphs.items()]


def bench_steps(graphs: Sequence[BenchGraph]) -> list[BenchStep]:
    """Return the steps of those Pairs that have a backward. The title of a graph is such as `pair_0 forward`."""
    _, _, step = BENCH_DIRECTIONS  # the word `step`
    by_title = {graph.title: graph for graph in graphs}
    pairs = ((title.partition(" ")[0], graph) for title, graph in by_title.items() if graph.direction == "forward")
    return [
        BenchStep(f"{pair} {step}", forward, by_title[f"{pair} backward"])
        for pair, forward in pairs
        if f"{pair} backward" in by_title
    ]


def inputs_of_results(results: Sequence[Any], values: Sequence[Any]) -> dict[int, int]:
    """Return, for results that are an input or a view of one, the place of that input among `values`, by the place of
    the result. They are known by their memory."""
    inputs = {memory_of(value): place for place, value in enumerate(values) if memory_of(value)}
    return {place: inputs[memory_of(value)] for place, value in enumerate(results) if memory_of(value) in inputs}


def memory_of(value: Any) -> int:
    """Return the address of a tensor's memory, of a sparse one's values; 0 for other values and for tensors without
    memory."""
    return strided_parts(value)[-1].untyped_storage().data_ptr() if isinstance(value, Tensor) else 0


def graph_classes(graphs: Mapping[str, Graph]) -> dict[str, Any]:
    """Return the class that computes each graph, by title: the graph's text is executed, which was checked when it was
    parsed."""
    names = {title: f"Graph{index}" for index, title in enumerate(graphs)}
    text = HEADER + "\n\n".join("\n".join(emit_class(graph, names[title], "")) for title, graph in graphs.items())
    module = ModuleType(f"backprint_bench_{next(SERIAL)}")
    sys.modules[module.__name__] = module  # where `rebuilt` (`tools/export/rerun`) looks for a class's names
    # For `inspect.getsource`, by which the classes are changed later.
    place = module.__file__ = f"<{module.__name__}>"
    linecache.cache[place] = (len(text), None, text.splitlines(keepends=True), place)
    exec(compile(text, place, "exec", dont_inherit=True), vars(module))
    return {title: getattr(module, name) for title, name in names.items()}


SERIAL = itertools.count()
"""Numbers for names of modules that no two have."""


# ------------------------------------------------------------------ draws as inputs, so that results are judged exactly
#
# A compiler may draw in its own way. Its draws are then results of its graph, as the mask of a dropout that the
# backward needs: eager runs again with these numbers as inputs, and every other result must be eager's. The draws
# themselves are judged by their distribution (`tools/bench/judge`). A graph that does not return its draws is compared
# under eager's own random state; a compiler that draws in another way gets the graph once more, *opened*: with its
# draws as further results.

DROPOUT = "aten.native_dropout.default"
"""Returns the output, item 0, and the mask, item 1."""


@dataclass(frozen=True, slots=True)
class LiftedDraws:
    """A graph whose last inputs are its draws, and the places of the draws among its results."""

    graph: Graph
    places: tuple[int, ...]
    free: bool
    """Whether the draws depend on no input, so that draws on other inputs have the same distribution."""


def steps_that_draw(graph: Graph) -> tuple[Step, ...]:
    """Return the steps of a graph that draw random numbers. SAVING is a draw that returns its generator's state too."""
    if not any(step.target == SAVING or _may_draw(resolve(step.target)) for step in graph.steps if not step.is_guard):
        return ()  # most graphs: the module that tells exactly takes a tenth of a second to make
    names = {node.name for node in to_fx(graph).graph.nodes if node.op == "call_function" and draws(node)}
    return tuple(step for step in graph.steps if step.name in names or step.target == SAVING)


def _may_draw(target: Any) -> bool:
    """Whether a step's function draws, or is neither an operator nor a builtin, so that it may call one that draws."""
    return is_draw(target) or not (schema_if_any(target) is not None or isinstance(target, types.BuiltinFunctionType))


def lifted_draws(graph: Graph) -> LiftedDraws | None:
    """Return a graph with its draws as inputs; None if it does not return all of them, or reads a tensor that one was
    written into."""
    # In reverse, so that of several places of one value the first is kept.
    result_places = {
        value.name: place for place, value in reversed(list(enumerate(graph.results))) if isinstance(value, Ref)
    }
    specs = {step.name: step.spec for step in graph.steps}
    names = [name for name in _drawn_names(graph) if name in result_places and isinstance(specs[name], TensorSpec)]
    lifted = values_as_inputs(graph, names)
    names_read = {name for step in lifted.steps for name in used(step)}
    names_read |= {value.name for value in lifted.results if isinstance(value, Ref)}
    names_written = {base.name for step in graph.steps if step.name in names for base in _written_value(step)}
    if steps_that_draw(lifted) or names_written & names_read:
        return None
    free = set(names) <= _names_without_values(graph)  # the draws depend on no input
    return LiftedDraws(lifted, tuple(result_places[name] for name in names), free)


def _names_without_values(graph: Graph) -> set[str]:
    """Return the names of values that depend on no input's values; a dropout's mask is one."""
    nodes = list(to_fx(graph).graph.nodes)
    masks = {node.name for node in nodes if _is_item(node, 1) and str(node.args[0].target) == DROPOUT}
    return masks | {node.name for node in _nodes_without_values(nodes)}


def _written_value(step: Step) -> list[Ref]:
    """Return the value that a step writes into, in a list: its first argument; [] if it writes into none."""
    base = step.args[0] if step.args and "m" in operators().get(step.target, "") else None  # m: it mutates
    return [base] if isinstance(base, Ref) else []


def opened_graph(graph: Graph) -> Graph | None:
    """Return a graph with its draws as further results; None if nothing is added, or its draws still cannot be lifted.
    A draw of which only other draws are computed is not returned: they are."""
    nodes = list(to_fx(graph).graph.nodes)
    drawn_nodes = [node for node in nodes if node.name in set(_drawn_names(graph))]
    returned = [node.name for node in drawn_nodes if not _is_used_by_draws_only(node, drawn_nodes)]
    steps = {step.name: step for step in graph.steps}
    result_names = {value.name for value in graph.results if isinstance(value, Ref)}
    added = [name for name in returned if name not in result_names and isinstance(steps[name].spec, TensorSpec)]
    ports = tuple(Port(f"draw of {name}", "saved", steps[name].spec, name) for name in added)
    opened = replace(graph, outputs=(*graph.outputs, *ports), results=(*graph.results, *map(Ref, added)))
    return opened if added and lifted_draws(opened) is not None else None


def _is_used_by_draws_only(node: fx.Node, drawn_nodes: Sequence[fx.Node]) -> bool:
    """Whether a drawn value is used, and only by what is computed of draws alone: it need not be returned then."""
    return bool(node.users) and all(user in drawn_nodes for user in node.users)


def _drawn_names(graph: Graph) -> list[str]:
    """Return the names of draws, of values computed from draws alone, and of masks of dropouts. Of a dropout, which
    returns its output and its mask as items, the mask alone is a draw."""
    nodes = list(to_fx(graph).graph.nodes)
    without_values, drawn = _nodes_without_values(nodes), _nodes_of_draws(nodes)
    names = []
    for node in nodes:
        if node.op != "call_function":
            continue
        is_mask = _is_item(node, 1) and str(node.args[0].target) == DROPOUT
        is_of_draws_alone = node in drawn and node in without_values
        if is_mask or is_of_draws_alone or (draws(node) and str(node.target) != DROPOUT):
            names.append(node.name)
    return names


def _is_item(node: fx.Node, place: int) -> bool:
    """Whether a node takes the item at a place of another node's results."""
    return getattr(node.target, "__name__", "") == "getitem" and node.args[1] == place


def values_as_inputs(graph: Graph, names: Sequence[str]) -> Graph:
    """Return a graph in which these values, draws, are inputs, without the steps that are then not needed. The output
    of a dropout whose mask is one of them is computed of the mask."""
    steps = {step.name: step for step in graph.steps}
    ports = tuple(Port(f"draw of {name}", "rng", steps[name].spec, name) for name in names)
    masks = {base.name: step.name for step in graph.steps if step.name in names for base in _dropout_of(step, steps)}
    steps_without_draws = [
        part for step in graph.steps if step.name not in names for part in _expand_dropout(step, steps, masks)
    ]
    result_names = [value.name for value in graph.results if isinstance(value, Ref)]
    steps_left = needed_steps(steps_without_draws, result_names, stays=_writes_needed)
    return replace(graph, inputs=(*graph.inputs, *ports), steps=tuple(steps_left))


def _writes_needed(step: Step, names: Collection[str]) -> bool:
    """Whether a step is needed although nothing uses its result: it changes a tensor (flag `m` of graph/operators). A
    draw (`r`) fills a tensor with new numbers, so it is needed only if that tensor is."""
    flags = operators().get(step.target, "")
    base = step.args[0] if step.args else None
    return "m" in flags and ("r" not in flags or (isinstance(base, Ref) and base.name in names))


def _dropout_of(step: Step, steps: dict[str, Step]) -> list[Ref]:
    """Return the dropout whose mask a step takes, in a list; [] if it takes none."""
    match step.target, step.args:
        case "operator.getitem", (Ref(name) as dropout, 1) if name in steps and steps[name].target == DROPOUT:
            return [dropout]
    return []


def _expand_dropout(step: Step, steps: dict[str, Step], masks: dict[str, str]) -> list[Step]:
    """Return a step, in a list; the output of a dropout becomes value * mask * 1 / (1 - p), as eager computes it, in
    two steps. `masks` has the mask of each dropout. A twin of `_expand_dropout` in kernels/checking/check."""
    match step.target, step.args:
        case "operator.getitem", (Ref(name), 0) if name in masks:
            value, p = steps[name].args[:2]
            scale = 1.0 / (1.0 - p) if isinstance(p, int | float) and p != 1 else 0.0  # with p = 1 all is dropped
            scaled_name = f"{step.name}_left"
            multiplied = replace(step, name=scaled_name, target="aten.mul.Tensor", args=(value, Ref(masks[name])))
            return [multiplied, replace(step, target="aten.mul.Tensor", args=(Ref(scaled_name), scale))]
    return [step]
