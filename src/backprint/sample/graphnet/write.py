"""The files beside `model.py` that make each direction's folder a valid GraphNet sample.

GraphNet's tools import `weight_meta.py`, one class a tensor, look tensors up by the forward's parameter names, and take
`graph_hash.txt` for the SHA-256 of `model.py`'s text.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backprint.graph.nouns import Graph, Port, TensorSpec
from backprint.graph.sizes import at_hints
from backprint.tree import parts

SMALL = 64
"""Tensors of fewer elements are written out whole, as GraphNet's own extractor does."""


SEEN = 2**16
"""How many elements of a tensor its mean and standard deviation are taken from."""


def write_graphnet(folder: Path, name: str, graph: Graph, text: str, values: Mapping[str, Tensor]) -> None:
    """GraphNet's five files for one direction. `values` has the inputs by `role name`; none where data is not kept."""
    facts: dict[str, Any] = {
        "framework": "torch",
        "model_name": name,
        "num_devices_required": 1,
        "num_nodes_required": 1,
    }
    facts |= {"dynamic": bool(graph.symbols), "source": "backprint"}
    (folder / "graph_net.json").write_text(json.dumps(facts, indent=4) + "\n", encoding="utf-8")
    metas = [
        meta(port, values.get(f"{port.role} {port.name}"))
        for port in at_hints(graph).inputs
        if isinstance(port.spec, TensorSpec)
    ]
    (folder / "weight_meta.py").write_text("\n\n".join(metas), encoding="utf-8")
    (folder / "input_meta.py").write_text("", encoding="utf-8")
    (folder / "input_tensor_constraints.py").write_text(constraints(graph), encoding="utf-8")
    (folder / "graph_hash.txt").write_text(hashlib.sha256(text.encode()).hexdigest(), encoding="utf-8")


def meta(port: Port, value: Tensor | None) -> str:
    """The class that describes one input tensor."""
    spec = port.spec
    assert isinstance(spec, TensorSpec)
    rows: dict[str, Any] = {
        "name": port.local,
        "original_name": port.name,
        "shape": [int(size) for size in spec.shape],
        "dtype": f"torch.{spec.dtype}",
        "device": spec.device,
        **statistics(spec, value),
    }
    body = "".join(f"    {key} = {spelled(item)}\n" for key, item in rows.items())
    return f"class Program_weight_tensor_meta_{port.local}:\n{body}"


def statistics(spec: TensorSpec, value: Tensor | None) -> dict[str, Any]:
    """Mean and deviation of floats, range of integers, the data of small tensors; of a sparse tensor's own values."""
    empty: dict[str, Any] = {"mean": None, "std": None, "data": None}
    if value is not None and value.layout is not torch.strided:
        values = parts(value)[-1]
        return empty if values.is_complex() else {**empty, **moments(values)}
    if value is None or value.is_complex() or spec.dtype.startswith("float8"):
        return empty
    if value.numel() < SMALL:
        wide = value.double() if value.is_floating_point() else value
        return {**empty, **moments(value), "data": wide.flatten().tolist()}
    if value.is_floating_point():
        return {**empty, **moments(value)}
    if value.dtype is torch.bool:
        return empty
    return {**empty, "min_val": int(value.min()), "max_val": int(value.max())}


def moments(value: Tensor) -> dict[str, Any]:
    """Mean and standard deviation, where there are any."""
    if not value.is_floating_point() or not value.numel():
        return {}
    if value.numel() > SEEN:
        value = value.reshape(-1)[:SEEN]  # enough for three digits, which is what GraphNet itself keeps
    wide = value if value.dtype in (torch.float32, torch.float64) else value.float()
    std, mean = map(float, torch.std_mean(wide)) if value.numel() > 1 else (0.0, float(wide.mean()))
    return {"mean": mean, "std": std} if math.isfinite(mean) and math.isfinite(std) else {}


def spelled(value: Any) -> str:
    """A value as Python that needs no names."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, list):
        return "[" + ", ".join(map(spelled, value)) + "]"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def constraints(graph: Graph) -> str:
    """`input_tensor_constraints.py`: the shapes of the inputs; a symbolic size keeps its name and example."""
    names = [symbol.name for symbol in graph.symbols]
    shapes = [
        f"    ([{', '.join(map(str, port.spec.shape))}], {json.dumps(port.local)}),\n"
        for port in graph.inputs
        if isinstance(port.spec, TensorSpec)
    ]
    symbols = "".join(f"{name} = Symbol({name!r})\n" for name in names)
    examples = ", ".join(f"{symbol.name}: {symbol.hint}" for symbol in graph.symbols)
    return (
        ("from sympy import Symbol\n\n" + symbols + "\n" if names else "")
        + f"dynamic_dim_constraint_symbols = [{', '.join(names)}]\n\n"
        + f"dynamic_dim_constraint_symbol2example_value = {{{examples}}}\n\n"
        + "dynamic_dim_constraint_relations = []\n\n"
        + "dynamic_dim_constraint_input_shapes = [\n" + "".join(shapes) + "]\n"
    )  # fmt: skip
