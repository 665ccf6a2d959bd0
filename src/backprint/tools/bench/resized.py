"""Other sizes than the captured ones, of a sample that was captured with symbolic sizes.

A compiler compiles a graph for the inputs that it gets, so it is given each forward and each backward once more, with
inputs of other sizes (`tools/tasks/sizes`), and its results are compared with eager's there. A step has no sizes of its
own: its forward and its backward are both judged.
"""

from __future__ import annotations

from torch import Tensor

from backprint.errors import BackprintError
from backprint.graph.keys import tangent_name
from backprint.graph.links import free_ports
from backprint.graph.nouns import Capture, TensorSpec
from backprint.tools.bench.judge import run_in_eager
from backprint.tools.export.export import content_of, graphs_needed, recipes_needed
from backprint.tools.lowering.subjects import BenchGraph, graph_classes
from backprint.tools.tasks.sizes import draw_with_sizes, sizes_to_try


def has_symbolic_sizes(capture: Capture) -> bool:
    """Whether a capture has symbolic sizes."""
    return any(pair.forward.symbols for pair in capture.pairs)


def resized_graphs(capture: Capture, seed: int) -> tuple[str, dict[str, BenchGraph]]:
    """Return other sizes in words, and the graphs with their runs in eager at these, by title; '' and no graphs if
    eager runs at no other sizes. `seed` is that of the inputs, which are drawn by the capture's recipes."""
    symbols = tuple({symbol.name: symbol for pair in capture.pairs for symbol in pair.forward.symbols}.values())
    graphs = graphs_needed(capture, "both")
    recipes = recipes_needed(capture, graphs, capture.recipes.recipes)
    content = content_of(capture, graphs, recipes)
    specs = {name: spec for name, spec in specs_of(capture).items() if name in recipes}
    for sizes in sizes_to_try(symbols):
        values: dict[str, Tensor] = {}
        try:
            for name, spec in specs.items():
                values[name] = draw_with_sizes(name, spec, capture.recipes, sizes, seed)
        except BackprintError:  # a recipe cannot draw an input in these sizes
            continue
        classes = graph_classes({title: graph for title, (_, graph) in graphs.items()})
        runs = run_in_eager(capture, content, classes, values)
        if runs is not None:
            words = ", ".join(f"{name}={size}" for name, size in sizes.items())
            return words, {title: BenchGraph(title, graph, runs[title]) for title, (_, graph) in graphs.items()}
    return "", {}


def specs_of(capture: Capture) -> dict[str, TensorSpec]:
    """Return the specs of the inputs and tangents of a capture that are tensors, by the names of their recipes. Inputs
    that a link from another Pair feeds are left out."""
    specs = {port.name: port.spec for port in free_ports(capture)}
    for pair in capture.pairs:
        tangents = () if pair.backward is None else pair.backward.by_role("tangent")
        specs |= {tangent_name(port.name): port.spec for port in tangents}
    return {name: spec for name, spec in specs.items() if isinstance(spec, TensorSpec)}
