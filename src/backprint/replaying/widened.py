"""Convert a Capture to float64: every floating-point dtype in its graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from backprint.graph.nouns import Atom, Capture, Dict, Graph, List, Pair, Port, Slice, Step, TensorSpec, Value

WIDE = {"float32": "float64", "float16": "float64", "bfloat16": "float64", "complex64": "complex128"}


def widened_value(value: Tensor) -> Tensor:
    """Return a floating-point tensor in float64; any other itself."""
    return value.double() if value.is_floating_point() else value


def wide(capture: Capture) -> Capture:
    """Return the Capture in float64."""
    pairs = tuple(
        Pair(pair.name, widened(pair.forward), None if pair.backward is None else widened(pair.backward))
        for pair in capture.pairs
    )
    return replace(capture, pairs=pairs)


def widened(graph: Graph) -> Graph:
    return replace(
        graph,
        inputs=tuple(replace(port, spec=wide_spec(port)) for port in graph.inputs),
        outputs=tuple(replace(port, spec=wide_spec(port)) for port in graph.outputs),
        steps=tuple(wide_step(step) for step in graph.steps),
        subgraphs=tuple((name, widened(sub)) for name, sub in graph.subgraphs),
    )


def wide_spec(port: Port) -> Any:
    spec = port.spec
    return replace(spec, dtype=WIDE.get(spec.dtype, spec.dtype)) if isinstance(spec, TensorSpec) else spec


def wide_step(step: Step) -> Step:
    args, kwargs = wide_value(step.args), tuple((key, wide_value(value)) for key, value in step.kwargs)
    return step if (args, kwargs) == (step.args, step.kwargs) else replace(step, args=args, kwargs=kwargs)


def wide_value(value: Value) -> Any:
    """Replace floating-point dtypes in a value by float64."""
    match value:
        case Atom(name):
            return Atom(WIDE.get(name, name))
        case tuple():
            return tuple(wide_value(item) for item in value)
        case List(items):
            return List(tuple(wide_value(item) for item in items))
        case Dict(items):
            return Dict(tuple((wide_value(key), wide_value(item)) for key, item in items))
        case Slice():
            return value
    return value
