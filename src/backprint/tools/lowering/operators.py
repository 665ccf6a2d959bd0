"""`lower` writes a graph with operators that exchange formats have.

Formats for inference lack the backward operators, and get some others wrong: batch norm in training, attention that
saves its logarithm. `lower` traces a graph with its inputs, with a decomposition of each such operator: torch's own, or
a *form* of `derive/forms` (OWN has these, by operator). A graph that draws random numbers is refused;
`subjects.take_out_draws` takes out most draws.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from backprint._torch.graphs import make_fx
from backprint._torch.operators import OpOverload, core_decompositions, decomposition_table, schema_if_any, schema_of
from backprint.derive.forms import OWN
from backprint.errors import RefusedError
from backprint.tools.export.rerun import copies

aten = torch.ops.aten

TORCH_DECOMPOSED = (
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional "
    "_native_batch_norm_legit_no_training _batch_norm_with_update_functional _batch_norm_no_update "
    "native_layer_norm native_group_norm _fused_rms_norm _weight_norm_interface nll_loss_forward nll_loss2d_forward "
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d "
    "_upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d "
    "log_sigmoid_forward _safe_softmax grid_sampler_2d _unsafe_index _unsafe_masked_index _euclidean_dist unfold"
).split()
"""Operators that torch's decomposition computes right and a format lacks, or gets wrong in some case."""

NO_FORMS: Mapping[Any, Any] = MappingProxyType({})

RESHAPES = (aten.view.default, aten._unsafe_view.default)
"""Views of another shape, which only some strides allow."""

IDENTITY_OPERATORS = (aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default)
"""Operators that return their argument's values as they are: `lower` leaves them out."""


@functools.cache
def decompositions_of(thorough: bool) -> dict[Any, Callable[..., Any]]:
    """Return the decomposition of each operator that has one here; with `thorough`, also of every operator outside of
    torch's core set. OWN goes before torch's."""

    def is_lacking(operator: Any) -> bool:
        """Whether formats lack an operator: a backward operator, or one of TORCH_DECOMPOSED."""
        name = operator_name(operator)
        return name in TORCH_DECOMPOSED or name.endswith(("_backward", "_backward_data"))

    forms = {
        operator: form
        for operator, form in decomposition_table.items()
        if isinstance(operator, OpOverload) and is_lacking(operator)
    }
    return {**(core_decompositions() if thorough else {}), **forms, **OWN}


def operator_name(operator: Any) -> str:
    """Return an operator's name without its namespace and overload."""
    return str(schema_of(operator).name).partition("::")[2]


def lower(
    module: fx.GraphModule, inputs: Sequence[Any], thorough: bool = False, more: Mapping[Any, Any] = NO_FORMS
) -> fx.GraphModule:
    """Return a graph that computes the same from such inputs, without operators that exchange formats lack. Refuse one
    that draws or that writes into an input.

    `more` has forms for one format in place of the usual ones; `thorough` decomposes all that is not in torch's core
    set.
    """
    refuse_draws(module)
    own_copy = fx.GraphModule(module, copy.deepcopy(module.graph))
    replace_views(own_copy)
    program = torch.func.functionalize(own_copy) if writing_operators(own_copy) else own_copy
    trace = make_fx(program, decomposition_table={**decompositions_of(thorough), **more}, tracing_mode="real")
    with torch.no_grad():
        lowered = trace(*copies(inputs))  # the graph runs as it is traced, and may write into them
    for node in list(lowered.graph.nodes):
        if node.target in IDENTITY_OPERATORS:
            node.replace_all_uses_with(node.args[0])
            lowered.graph.erase_node(node)
    lowered.graph.eliminate_dead_code()
    _fill_in_dtypes(lowered)
    replace_views(lowered)  # once more: decompositions may have views of their own
    if writing := writing_operators(lowered):  # `functionalize` writes new values back into inputs
        raise RefusedError(f"{writing[0]} writes into an input, and no exchange format can")
    return lowered


def _fill_in_dtypes(module: fx.GraphModule) -> None:
    """Write the dtype into calls that make a tensor of numbers, and of no tensor, without one: a format may have
    another default than torch."""
    for node in module.graph.nodes:
        options = [argument.name for argument in getattr(_node_schema(node), "arguments", ()) if argument.kwarg_only]
        makes_of_numbers = not node.all_input_nodes
        if "dtype" in options and makes_of_numbers and node.kwargs.get("dtype") is None:
            node.kwargs = {**node.kwargs, "dtype": node.meta["tensor_meta"].dtype}


def writing_operators(module: fx.GraphModule) -> list[Any]:
    """Return the operators of a graph that write into an argument."""
    return [node.target for node in module.graph.nodes if _writes_into(node)]


def _node_schema(node: fx.Node) -> Any:
    """Return the schema of a node's operator; None if it calls none."""
    return schema_if_any(node.target)


def replace_views(module: fx.GraphModule) -> None:
    """Replace views by reshapes, which do not depend on strides, but for views of memory that the graph writes into."""
    nodes = list(module.graph.nodes)
    written_bases = {_base_of_view(source) for node in nodes if _writes_into(node) for source in node.all_input_nodes}
    for node in nodes:
        if node.target in RESHAPES and _base_of_view(node) not in written_bases:
            node.target = aten.reshape.default
    module.recompile()


def _base_of_view(node: fx.Node) -> fx.Node:
    """Return the node whose memory a view shows, through views of views; a node that is no view itself."""
    # An operator whose schema says that its result aliases an argument (`Tensor(a)`) is a view of its first one.
    while any(value.alias_info for value in getattr(_node_schema(node), "returns", ())) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _writes_into(node: fx.Node) -> bool:
    """Whether a node's operator writes into an argument."""
    return bool(getattr(_node_schema(node), "is_mutable", False))


def refuse_draws(module: fx.GraphModule) -> None:
    """Raise for an operator that draws random numbers."""
    for node in module.graph.nodes:
        tags = getattr(node.target, "tags", ())
        if torch.Tag.nondeterministic_seeded in tags and node.target not in OWN:
            raise RefusedError(f"{node.target} draws random numbers, and no exchange format draws as torch does")
