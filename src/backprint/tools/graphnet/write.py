"""A Capture as GraphNet's files and trees.

Words of this file:

- A *direction* is a Graph: the forward or the backward of a Pair. A sample of GraphNet's is one direction: `model.py`
  and files beside it, which describe its inputs.
- A *row* (`MetaRow`) is the description of one input: name, shape, dtype, statistics, or all elements (`data`: the
  tensor is *written out*). GraphNet's tools *draw* new values from it.
- A port has a *name* of the program's own, and an input a `local` name in the graph's text. PortValues are values by
  `PortKey`: a port's role and name.
- A graph is *unsound* if it fails on GraphNet's draws whatever is written out.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import torch
from torch import Tensor

from backprint.common.folders import unfinished_folder
from backprint.errors import PlaceError, SampleError, UsageError
from backprint.graph.keys import PortValues
from backprint.graph.nouns import Capture, Graph, Port, ScalarSpec, Symbol, TensorSpec
from backprint.graph.sizes import (
    FUNCTIONS,
    at_example_sizes,
    contiguous_inputs,
    evaluate,
    example_sizes,
    known,
    memory_order,
    names_in,
    with_constant_sizes,
    with_tensor_results_only,
)
from backprint.graph.text import emit
from backprint.tools.graphnet.read import for_inference, with_movable_devices
from backprint.values.tree import strided_parts

# ---- Draws as GraphNet's tools make them, and the graphs that may fail on such draws
# Their rules: integers with a range are drawn from it, `data` is taken as it is, bools are a coin, and everything else
# is `mean + 0.2 * std * normal`, cast, clamped to its range, and if it is a float, made finite and clamped to ±100.
# Strides are lost. Their random stream is not reproduced, so a draw has the same distribution, not the same values.


LARGE = 2**22
"""Graphs whose inputs have more elements together are not tried."""

MAY_FAIL_ON_DRAWS = frozenset(
    "linalg_cholesky_ex linalg_inv_ex linalg_solve_ex _linalg_solve_ex _linalg_det _linalg_slogdet _linalg_eigh "
    "_linalg_svd linalg_eig linalg_lu_factor_ex linalg_lu linalg_ldl_factor_ex linalg_solve_triangular linalg_qr "
    "linalg_lu_solve triangular_solve cholesky cholesky_solve cholesky_inverse lu_unpack logdet inverse log log2 log10 "
    "log1p sqrt rsqrt pow reciprocal div acos asin acosh atanh erfinv logit lgamma digamma polygamma nonzero index "
    "index_put masked_select masked_scatter repeat_interleave multinomial bernoulli poisson binomial bincount "
    "segment_reduce _ctc_loss unique _unique2 unique_dim binary_cross_entropy linalg_matrix_exp exp expm1 sinh cosh "
    "_embedding_bag split_with_sizes as_strided special_ndtri special_zeta igamma igammac fmod remainder".split()
)
"""Operators that may fail, or return NaN or Inf, on values of the right dtype and range."""


def _is_worth_trying(graph: Graph, values: PortValues) -> bool:
    """Whether to try a graph on a draw: all its inputs are known, all `values` are strided and on the CPU, its inputs
    together are not LARGE, and it has a guard, which a draw may break, or an operator of MAY_FAIL_ON_DRAWS, which may
    raise or return NaN for one."""
    tensors = [value for value in values.values() if isinstance(value, Tensor)]
    keys = [port.key for port in graph.inputs]
    if any(key not in values for key in keys) or any(tensor.device.type != "cpu" for tensor in tensors):
        return False
    if any(tensor.layout is not torch.strided for tensor in tensors):
        return False
    size = sum(values[key].numel() for key in keys if isinstance(values[key], Tensor))
    return size <= LARGE and any(
        step.is_guard or operator_name(step.target) in MAY_FAIL_ON_DRAWS for step in graph.steps
    )


def operator_name(target: str) -> str:
    """Return an operator's name without its namespace and overload: `div` of `aten.div.Tensor`."""
    return target.removeprefix("torch.ops.").split(".")[1] if "." in target else target


def draw_like_graphnet(row: Mapping[str, Any], seed: int = 0) -> Tensor:
    """Draw a tensor by the rules of GraphNet's tools, which are above; `row` has the fields of its metadata. A
    deviation that is missing is 0.1, a mean 0."""
    # With the name in the seed, two tensors of one shape have different values.
    generator = torch.Generator().manual_seed(seed + sum(map(ord, row["name"])))
    dtype: torch.dtype = getattr(torch, row["dtype"].removeprefix("torch."))
    shape, low, high = row["shape"], row.get("min_val"), row.get("max_val")
    if low is not None and high is not None and not dtype.is_floating_point:
        return torch.randint(low, high + 1, shape, generator=generator, dtype=torch.int64).to(dtype)
    if row.get("data") is not None:
        return torch.tensor(row["data"], dtype=dtype).reshape(shape)
    if dtype is torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    std, mean = row.get("std"), row.get("mean")
    drawn = torch.randn(shape, generator=generator) * (0.1 if std is None else std) * 0.2 + (mean or 0)
    drawn = drawn.to(dtype)
    if low is not None or high is not None:
        drawn = drawn.clamp(low, high)
    if dtype.is_floating_point and dtype.itemsize > 1:  # not of float8, for which torch has neither operator
        drawn = drawn.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).clamp(-100.0, 100.0)
    return drawn


# ---- The files beside `model.py` that make the folder of each direction a valid GraphNet sample
# GraphNet's tools import `weight_meta.py`, one class a tensor, look tensors up by the forward's parameter names, draw
# new values from what the classes say, and take `graph_hash.txt` for the SHA-256 of `model.py`'s text. The graph must
# run on their draws: an input that a guard depends on, a mask or a workspace is written out whole, any other has its
# range. If the graph still fails on their draw, more tensors are written out.

SMALL = 64
"""Tensors of fewer elements are written out whole, as GraphNet's own extractor does."""

MOST_MASK_ELEMENTS = 2**12
"""Masks, of bools or with infinities, and dtypes that have no range are written out up to so many elements."""

MOST_EXACT_ELEMENTS = 2**20
"""Tensors that must be exact are written out up to so many elements."""

ELEMENT_LIMITS = (SMALL, 2**12, 2**16)
"""Below how many elements tensors are written out: the first of these with which a graph runs on GraphNet's draws."""

DRAWS = 4
"""How many draws a small graph is tried on: half of all matrices have a determinant with no logarithm."""

MOST_SAMPLED = 2**16
"""The most elements from which a tensor's mean, deviation and range are taken."""

DTYPES_WITH_RANGE = (torch.int8, torch.int16, torch.int32, torch.int64)
"""The dtypes that GraphNet draws from a range. It draws others as floats and casts them, which few graphs survive."""

MetaRow: TypeAlias = dict[str, Any]
"""The fields of one class of `weight_meta.py`."""

DirectionRunner: TypeAlias = "Callable[[Graph, Mapping[str, Any]], tuple[Any, ...]]"
"""Runs one direction on inputs by local name; raises whatever its operators raise on inputs that do not fit."""


@dataclass(frozen=True, slots=True)
class _DirectionMetas:
    """The metadata of one direction: a row per input, and why GraphNet's draws from them fail, or ''."""

    rows: tuple[MetaRow, ...]
    unsound: str = ""


def write_graphnet(
    folder: Path,
    name: str,
    graph: Graph,
    text: str,
    values: PortValues,
    exact: Collection[str] = (),
    run: DirectionRunner | None = None,
) -> None:
    """Write the five files that GraphNet has beside a `model.py`, whose text is `text`, for one direction. `values` has
    the inputs by port, or none if no data are known.

    The ports of the names in `exact` are written out whole. `run` runs the graph on what GraphNet would draw, to see
    what else must be; without it (None) nothing is run. A graph that fails all the same has the reason in its facts.
    """
    described = _describe_inputs(graph, values, exact, run)
    facts: dict[str, Any] = {
        "framework": "torch",
        "model_name": name,
        "num_devices_required": 1,
        "num_nodes_required": 1,
        "dynamic": bool(graph.symbols),
        "source": "backprint",
    }
    facts |= {"unsound": described.unsound} if described.unsound else {}
    metas = [_meta_class_text(row) for row in described.rows]
    (folder / "weight_meta.py").write_text("\n\n".join(metas), encoding="utf-8")
    (folder / "input_meta.py").write_text("", encoding="utf-8")
    (folder / "input_tensor_constraints.py").write_text(_constraints_text(graph), encoding="utf-8")
    (folder / "graph_hash.txt").write_text(hashlib.sha256(text.encode()).hexdigest(), encoding="utf-8")
    (folder / "graph_net.json").write_text(json.dumps(facts, indent=4) + "\n", encoding="utf-8")


def graphnet_writer(run: DirectionRunner | None) -> Callable[[Path, Capture, str, Graph, str, PortValues], None]:
    """Return a function that writes GraphNet's files beside a `model.py`. It runs small graphs by `run` on inputs that
    are drawn as GraphNet's tools will draw them, and while a graph fails on these, writes out more of its inputs whole;
    without `run`, it runs nothing."""

    def write(folder: Path, capture: Capture, name: str, graph: Graph, text: str, values: PortValues) -> None:
        write_graphnet(folder, name, graph, text, values, _inputs_to_write_out(capture, graph), run)

    return write


def _inputs_to_write_out(capture: Capture, graph: Graph) -> set[str]:
    """Return the names of the inputs of a graph whose redraw would break a guard: the inputs of guards, and the masks
    and counts that a backward takes from such a forward."""
    guards = [guard for guard in capture.guards if guard.kind in ("value", "shape")]
    saved = {port.name for port in graph.by_role("saved") if getattr(port.spec, "dtype", "") in COUNTS}
    return {name for guard in guards for name in guard.inputs} | (saved if guards else set())


COUNTS = ("bool", "uint8", "int32", "int64")
"""Dtypes of saved values that a guard may depend on."""


# ---- Rows


def _describe_inputs(
    graph: Graph, values: PortValues, exact: Collection[str], run: DirectionRunner | None
) -> _DirectionMetas:
    """Return the rows of a direction, with as many tensors written out as the graph needs to run on GraphNet's draws;
    if it fails with the most of them, as few as otherwise, and the first reason. Arguments as of `write_graphnet`."""
    if run is None or not _is_worth_trying(graph, values):
        return _DirectionMetas(_meta_rows(graph, values, exact, SMALL))
    first_reason = ""
    for most_elements in ELEMENT_LIMITS:  # from the fewest on
        rows = _meta_rows(graph, values, exact, most_elements)
        reason = _why_draws_fail(graph, rows, values, run)
        if not reason:
            return _DirectionMetas(rows)
        first_reason = first_reason or reason
    return _DirectionMetas(_meta_rows(graph, values, exact, SMALL), first_reason)


def _meta_rows(graph: Graph, values: PortValues, exact: Collection[str], most_elements: int) -> tuple[MetaRow, ...]:
    """Return a row for each input that is a tensor or a number; tensors of fewer than `most_elements` elements are
    written out, and those that must be exact up to MOST_EXACT_ELEMENTS."""
    sizes = example_sizes(graph)
    rows = []
    for port in at_example_sizes(graph).inputs:
        value = values.get(port.key)
        if isinstance(port.spec, TensorSpec):
            rows.append(_tensor_row(port, value, MOST_EXACT_ELEMENTS if _must_be_exact(port, exact) else most_elements))
        elif isinstance(port.spec, ScalarSpec):
            rows.append(_scalar_row(port, value, sizes))
    return tuple(rows)


def _must_be_exact(port: Port, exact: Collection[str]) -> bool:
    """Whether a port's values cannot be redrawn: its name is in `exact`, or it is a kernel's own workspace, as of
    oneDNN's LSTM, which has one of these dtypes."""
    return port.name in exact or (port.role == "saved" and getattr(port.spec, "dtype", "") in ("uint8", "uint64"))


def _tensor_row(port: Port, value: Tensor | None, most_elements: int) -> MetaRow:
    """Return the row of an input tensor; with fewer than `most_elements` elements, it has them all. `value` is None if
    it is not known."""
    spec = port.spec
    assert isinstance(spec, TensorSpec)
    return {
        "name": port.local,
        "original_name": port.name,
        # The value's own, as tracing does not know the sizes of a kernel's workspace.
        "shape": [int(size) for size in (spec.shape if value is None else value.shape)],
        "dtype": f"torch.{spec.dtype}",
        "device": spec.device,
        **statistics(spec, value, most_elements),
    }


def _scalar_row(port: Port, value: Any, sizes: Mapping[str, int]) -> MetaRow:
    """Return the row of a size or a number: GraphNet has these as tensors of one element. `sizes` are those of the
    symbols, from which a size is computed that has no value; 1 stands for a number that is not known."""
    spec = port.spec
    assert isinstance(spec, ScalarSpec)
    number = value
    if not isinstance(value, (bool, int, float)):
        number = evaluate(spec.expression, sizes) if spec.expression and known(spec.expression, sizes) else 1
    dtype = "bool" if isinstance(number, bool) else "int64" if isinstance(number, int) else "float64"
    facts = {"shape": [], "dtype": f"torch.{dtype}", "device": "cpu", "mean": None, "std": None, "data": [number]}
    return {"name": port.local, "original_name": port.name, **facts}


def statistics(spec: TensorSpec, value: Tensor | None, most_elements: int = SMALL) -> MetaRow:
    """Return the fields of a row that describe values: mean, deviation and range of floats, the range of integers, all
    elements (`data`) of tensors of fewer than `most_elements`, or of more if only the elements describe them; of a
    sparse tensor, mean and deviation of its values. All fields are None of a value that is not known."""
    empty: MetaRow = {"mean": None, "std": None, "data": None}
    if value is not None and value.layout is not torch.strided:
        *_, values = strided_parts(value)  # after the indices
        return empty if values.is_complex() else {**empty, **_finite_moments(values)}
    if value is None:
        return empty
    value = value.detach().resolve_conj().resolve_neg()
    if value.numel() < max(most_elements, MOST_MASK_ELEMENTS if _needs_all_elements(value) else 0):
        return {**empty, **_finite_moments(value), "data": elements(value)}
    if value.is_floating_point() and value.element_size() > 1:
        return {**empty, **_finite_moments(value), **_finite_range(value)}
    if value.dtype in DTYPES_WITH_RANGE:
        low, high = (int(bound) for bound in value.aminmax())
        return {**empty, "min_val": low, "max_val": min(high, 2**63 - 2)}  # GraphNet's tools add one to it, in int64
    return empty


def _needs_all_elements(value: Tensor) -> bool:
    """Whether only its elements describe a tensor: a mask, of bools or with infinities, or a dtype without range, such
    as float8 (one byte an element) or a complex one."""
    if value.is_floating_point() and value.element_size() > 1:
        return value.numel() < MOST_MASK_ELEMENTS and not bool(torch.isfinite(value).all())
    return value.dtype not in DTYPES_WITH_RANGE


def elements(value: Tensor) -> list[Any]:
    """Return the elements as Python numbers."""
    wide = value.double() if value.is_floating_point() else value
    return list(wide.flatten().tolist())


def _finite_moments(value: Tensor) -> MetaRow:
    """Return the mean and the standard deviation of the finite elements of a tensor of floats; {} if there are none, or
    if these overflow."""
    if not value.is_floating_point() or not value.numel():
        return {}
    wide = _sampled_elements(value)
    wide = wide[torch.isfinite(wide)] if not bool(torch.isfinite(wide).all()) else wide
    if not wide.numel():
        return {}
    std, mean = map(float, torch.std_mean(wide)) if wide.numel() > 1 else (0.0, float(wide.mean()))
    return {"mean": mean, "std": std} if math.isfinite(mean) and math.isfinite(std) else {}


def _finite_range(value: Tensor) -> MetaRow:
    """Return the range of the finite elements; {} if there are none."""
    wide = _sampled_elements(value)
    wide = wide[torch.isfinite(wide)]
    return {"min_val": float(wide.min()), "max_val": float(wide.max())} if wide.numel() else {}


def _sampled_elements(value: Tensor) -> Tensor:
    """Return the elements that statistics are taken from: enough for three digits, which GraphNet itself keeps."""
    seen = value.reshape(-1)[:MOST_SAMPLED]
    return seen if seen.dtype in (torch.float32, torch.float64) else seen.float()


# ---- GraphNet's draws, tried


def _why_draws_fail(graph: Graph, rows: tuple[MetaRow, ...], values: PortValues, run: DirectionRunner) -> str:
    """Return why a graph fails on GraphNet's draws from these rows: it raises, or returns NaN or infinities that it
    does not return on its own inputs (`values`); '' if neither."""
    nonfinite: list[int] = []  # the indices of the results that have NaN or infinities on some draw
    # By input, how its dimensions lie in memory (`_in_model_layout`), if not in order.
    orders = {port.local: order for port in graph.inputs if (order := memory_order(port.spec)) is not None}
    size = sum(math.prod(row["shape"]) for row in rows)
    for seed in range(DRAWS if size <= MOST_SAMPLED else 1):
        drawn = {row["name"]: _in_model_layout(orders, draw_like_graphnet(row, seed), row["name"]) for row in rows}
        try:
            results = run(graph, drawn)
        except Exception as error:  # whatever an operator raises on inputs that do not fit it
            return f"{type(error).__name__}: {error}"[:300]
        nonfinite += [
            index for index, result in enumerate(results) if not _is_all_finite(result) and index not in nonfinite
        ]
    if not nonfinite:
        return ""
    own_results = run(graph, {port.local: values[port.key] for port in graph.inputs})
    nonfinite_names = [graph.outputs[index].name for index in nonfinite if _is_all_finite(own_results[index])]
    return f"NaN or infinities in {', '.join(nonfinite_names[:3])}" if nonfinite_names else ""


def _in_model_layout(orders: Mapping[str, Sequence[int]], value: Tensor, name: str) -> Tensor:
    """Return the drawn tensor of the input `name` laid out in memory as the sample's `model.py` lays its contiguous
    inputs out first (`contiguous_inputs`): `orders` has the dimensions of permuted inputs, from the outermost in memory
    on, by name."""
    if name not in orders:
        return value
    order = orders[name]
    return value.permute(tuple(order)).contiguous().permute(sorted(range(len(order)), key=order.__getitem__))


def _is_all_finite(value: Any) -> bool:
    """Whether a result has neither NaN nor infinities; True of what cannot be asked: no strided tensor of floats, or
    float8 (one byte an element)."""
    floating = isinstance(value, Tensor) and value.layout is torch.strided and value.is_floating_point()
    return not floating or value.element_size() == 1 or bool(torch.isfinite(value).all())


# ---- Text


def _meta_class_text(entry: MetaRow) -> str:
    """Return the Python class of `weight_meta.py` that describes one input."""
    body = "".join(f"    {key} = {_python_literal(item)}\n" for key, item in entry.items())
    return f"class Program_weight_tensor_meta_{entry['name']}:\n{body}"


def _python_literal(value: Any) -> str:
    """Return a value as a Python expression without names."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, complex):
        return f"complex({_python_literal(value.real)}, {_python_literal(value.imag)})"
    if isinstance(value, list):
        return "[" + ", ".join(map(_python_literal, value)) + "]"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _constraints_text(graph: Graph) -> str:
    """Return the text of `input_tensor_constraints.py`: the shapes of the inputs; a symbolic size keeps its name and
    example. A size by a function of torch's own, which sympy's `Symbol` does not bring, is its example."""
    symbols: dict[str, Symbol] = {symbol.name: symbol for symbol in graph.symbols}

    def shape_line(port: Port, spec: TensorSpec) -> str:
        """Return the line of an input: its sizes, and its name."""
        sizes = [size if _is_plain_size(size) else evaluate(size, example_sizes(graph)) for size in spec.shape]
        return f"    ([{', '.join(map(str, sizes))}], {json.dumps(port.local)}),\n"

    shapes = [shape_line(port, port.spec) for port in graph.inputs if isinstance(port.spec, TensorSpec)]
    symbol_lines = "".join(f"{name} = Symbol({name!r})\n" for name in symbols)
    examples = ", ".join(f"{symbol.name}: {symbol.hint}" for symbol in graph.symbols)
    return (
        ("from sympy import Symbol\n\n" + symbol_lines + "\n" if symbols else "")
        + f"dynamic_dim_constraint_symbols = [{', '.join(symbols)}]\n\n"
        + f"dynamic_dim_constraint_symbol2example_value = {{{examples}}}\n\n"
        + "dynamic_dim_constraint_relations = []\n\n"
        + "dynamic_dim_constraint_input_shapes = [\n"
        + "".join(shapes)
        + "]\n"
    )


def _is_plain_size(size: int | str) -> bool:
    """Whether a size is an expression of symbols alone, without functions of torch's own."""
    return not any(name in FUNCTIONS for name in names_in(size))


# ---- Trees as GraphNet's own backward extractor lays them out: `train_forward/`, `train_backward/` and `eval_forward/`
# Each tree has the sample under its own relative path, and several Pairs as `subgraph_0`, `subgraph_1`. These are plain
# GraphNet samples: sizes are the captured numbers, every input and output is a tensor with elements, and devices are
# written so that GraphNet's tools can move them. A tree is complete or absent: it is written beside its place, with
# `graph_net.json` last, which GraphNet's tools take for the mark of a complete sample.

TREES = ("train_forward", "train_backward", "eval_forward")
"""The folders of the trees, by mode and direction."""


def write_trees(
    capture: Capture,
    out: str | os.PathLike[str],
    relative: str,
    values: Sequence[PortValues],
    *,
    evaluation: tuple[Capture, Sequence[PortValues]] | None = None,
    source: Path | None = None,
    run: DirectionRunner | None = None,
    overwrite: bool = False,
) -> dict[str, Path]:
    """Write a Capture's graphs below `out`, in each tree in the folder `relative`; return the folders by tree.

    `values` has the values of each Pair's ports. The tree of eval mode is a copy of the GraphNet sample in `source`, or
    the forward of `evaluation`, a Capture in eval mode with its values; without either there is no such tree. `run` is
    as of `write_graphnet`. Refuse a folder that is there already, unless `overwrite`, which removes those of all trees,
    and a `relative` that is no plain path below a tree; raise PlaceError if nothing can be written there.
    """
    root = Path(out)
    place = _checked_relative_path(relative)
    folders = {tree: root / tree / place for tree in TREES}
    try:
        # All is written beside its place first, and moved there at the end: a tree is complete or absent.
        with unfinished_folder(root) as staging:
            written = _write_each_tree(staging, capture, values, place.name, evaluation, source, run)
            for tree in TREES:
                if folders[tree].exists():
                    if not overwrite:
                        raise UsageError(
                            f"{folders[tree]} exists already: pass overwrite=True, or choose another place"
                        )
                    shutil.rmtree(folders[tree])
            for tree in written:
                folders[tree].parent.mkdir(parents=True, exist_ok=True)
                (staging / tree).chmod(0o755)  # a copied sample has its source's mode
                os.replace(staging / tree, folders[tree])
    except OSError as error:
        raise PlaceError(f"{root}: the trees could not be written: {error}") from error
    return {tree: folders[tree] for tree in written}


def _checked_relative_path(relative: str) -> PurePosixPath:
    """Return a relative path; refuse one that leaves the tree, or that GraphNet's tools cannot paste into commands."""
    place = PurePosixPath(relative)
    if place.is_absolute() or not place.parts or any(part in ("..", ".") for part in place.parts):
        raise UsageError(f"{relative!r:.80} is not a path below a tree")
    if not re.fullmatch(r"[\w.@+,=/-]+", relative, re.ASCII):
        raise UsageError(f"{relative!r:.80}: GraphNet's tools take letters, digits and . _ - @ + , = in a path alone")
    return place


def _write_each_tree(
    staging: Path,
    capture: Capture,
    values: Sequence[PortValues],
    name: str,
    evaluation: tuple[Capture, Sequence[PortValues]] | None,
    source: Path | None,
    run: DirectionRunner | None,
) -> list[str]:
    """Write every tree of one sample into the folder `staging`; return the trees that it has. `name` is the sample's,
    the other arguments are those of `write_trees`."""
    forwards = [pair.forward for pair in capture.pairs]
    backwards = [pair.backward for pair in capture.pairs]
    is_written = dict.fromkeys(TREES, False)
    for tree, graphs in (("train_forward", forwards), ("train_backward", backwards)):
        is_written[tree] = _write_one_tree(staging / tree, capture, f"{name}_{tree}", graphs, values, run)
    tree = "eval_forward"
    if source is not None:
        copy_sample(source, staging / tree)
        is_written[tree] = True
    elif evaluation is not None:
        eval_capture, eval_values = evaluation
        inference = [for_inference(pair.forward) for pair in eval_capture.pairs]
        is_written[tree] = _write_one_tree(staging / tree, eval_capture, f"{name}_{tree}", inference, eval_values, run)
    return [tree for tree in TREES if is_written[tree]]


def _write_one_tree(
    folder: Path,
    capture: Capture,
    name: str,
    graphs: Sequence[Graph | None],
    values: Sequence[PortValues],
    run: DirectionRunner | None,
) -> bool:
    """Write a sample's folder in one tree, a `subgraph_N` for the graph of each of several Pairs; return whether it has
    any. A Pair without a graph (None: no backward), or whose graph returns no tensor, is left out."""
    plain_graphs = {
        index: contiguous_inputs(with_tensor_results_only(with_constant_sizes(graph)))
        for index, graph in enumerate(graphs)
        if graph is not None
    }
    plain_graphs = {index: graph for index, graph in plain_graphs.items() if graph.outputs}
    for index, graph in plain_graphs.items():
        place = folder / f"subgraph_{index}" if len(graphs) > 1 else folder
        place.mkdir(parents=True)
        text = _movable_model_text(capture, name, graph)
        (place / "model.py").write_text(text, encoding="utf-8")
        write_graphnet(place, name, graph, text, values[index], _inputs_to_write_out(capture, graph), run)
    return bool(plain_graphs)


def _movable_model_text(capture: Capture, name: str, graph: Graph) -> str:
    """Return the text of `model.py`: the graph alone, its devices written as GraphNet's tools find them."""
    return with_movable_devices(emit(graph, f"{name}. Captured by Backprint with engine {capture.engine}."))


def copy_sample(source: Path, target: Path) -> None:
    """Copy the GraphNet sample in `source`, with its subgraphs, to `target`, and add the files and facts that
    GraphNet's tools need and it lacks. Raise SampleError for a folder without a `model.py`."""
    if not any(source.rglob("model.py")):
        raise SampleError(f"{source}: no model.py in it or below, so this is not a GraphNet sample")
    has_own_model = (source / "model.py").is_file()

    def ignored_names(folder: str, names: list[str]) -> list[str]:
        """Return the names in a folder that `shutil.copytree` leaves out."""
        below = [name for name in names if has_own_model and any((Path(folder) / name).rglob("model.py"))]
        return [*_uncopied_names(folder, names), *below]  # other samples, which have trees of their own

    shutil.copytree(source, target, ignore=ignored_names)
    for model in sorted(target.rglob("model.py")):
        folder = model.parent
        digest = hashlib.sha256(model.read_bytes()).hexdigest()
        missing_files = {
            "weight_meta.py": "",
            "input_meta.py": "",
            "input_tensor_constraints.py": EMPTY,
            "graph_hash.txt": digest,
        }
        for file, text in missing_files.items():
            if not (folder / file).exists():
                (folder / file).write_text(text, encoding="utf-8")
        facts = folder / "graph_net.json"
        known = json.loads(facts.read_text(encoding="utf-8")) if facts.exists() else {}
        defaults = {
            "framework": "torch",
            "model_name": target.name,
            "num_devices_required": 1,
            "num_nodes_required": 1,
            "dynamic": False,
        }
        if not isinstance(known, dict):
            raise SampleError(f"{source}: graph_net.json: expected an object, found {type(known).__name__}")
        if missing_facts := {key: value for key, value in defaults.items() if key not in known}:
            facts.write_text(json.dumps({**known, **missing_facts}, indent=4) + "\n")


def _uncopied_names(folder: str, names: list[str]) -> list[str]:
    """Return the names in a folder that are not copied: hidden files, caches, and links, which may lead anywhere."""
    return [name for name in names if name[0] in "._" or (Path(folder) / name).is_symlink()]


EMPTY = """dynamic_dim_constraint_symbols = []

dynamic_dim_constraint_symbol2example_value = {}

dynamic_dim_constraint_relations = []

dynamic_dim_constraint_input_shapes = []
"""
"""An `input_tensor_constraints.py` that says nothing."""
