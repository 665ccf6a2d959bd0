"""The function of one element that an ATen operator computes, in the words of Inductor's `ops`: read from Inductor's
own lowerings.

To import this module is cheap; its functions load Inductor. A *lowering* is Inductor's function from the arguments of
an operator (each tensor a TensorBox) to the loop that computes its result: `ir.Pointwise`, if each element of the
result comes from the elements at its own place. An *element* here is any object of a caller's class with a `dtype`,
which stands for one element of a tensor.

`@uses` says which private names a function needs, and `needed_by` for which commands: a call raises PrivateApiError if
this torch lacks one (`private`). Each function under *Probes* tries what this file takes a private name to do, and
returns whether it does that on this torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from backprint._torch import private
from backprint._torch.inductor import load_inductor
from backprint._torch.private import Probe, probes_of, uses

NEEDED = (private.KERNELS,)


class NotPointwise(Exception):
    """An operator is not a function of one element of each of its arguments."""


@uses(
    "torch._inductor.graph.GraphLowering",
    "torch._inductor.lowering.lowerings",
    "torch._inductor.ir.TensorBox.create",
    "torch._inductor.virtualized.V",
    needed_by=NEEDED,
)
def pointwise_of(
    target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], kind: type, record: Callable[..., Any]
) -> Any:
    """Return the element of the result of an operator (`target`), called with elements, objects of type `kind`, in the
    place of its tensors. Raise NotPointwise if it is no function of single elements.

    `record(op, args, dtype)` is called for each operation of Inductor's `ops` that the lowering makes, with elements
    and numbers as `args`, and returns the element that stands for its result.
    """
    import sympy

    load_inductor("ir", "graph", "lowering", "codegen.triton", "dtype_propagation", "ops_handler", "decomposition")
    from torch._inductor import ir
    from torch._inductor.lowering import lowerings
    from torch._inductor.virtualized import V

    if target not in lowerings:
        raise NotPointwise(f"Inductor has no lowering of {target}")
    elements: dict[str, Any] = {}

    def boxed(value: Any) -> Any:
        """Return an argument as a lowering takes it: a TensorBox for each element."""
        if isinstance(value, kind):
            name = f"element_{len(elements)}"
            elements[name] = value
            # A buffer of one dimension stands for each element, so a pointwise lowering loads it at one index. Its
            # length, 8, plays no part.
            layout = ir.FixedLayout(torch.device("cpu"), value.dtype, [sympy.Integer(8)], [sympy.Integer(1)])  # type: ignore[attr-defined]
            return ir.TensorBox.create(ir.InputBuffer(name=name, layout=layout))
        return [boxed(item) for item in value] if isinstance(value, (list, tuple)) else value

    graph, mode = surroundings()
    with V.set_graph_handler(graph), V.set_fake_mode(mode):
        boxes, named = [*map(boxed, args)], {key: boxed(value) for key, value in kwargs.items()}
        try:
            box = lowerings[target](*boxes, **named)
        except Exception as error:  # torch's own code alone, for an operator that takes more than one dimension
            raise NotPointwise(f"Inductor's lowering of {target}: {type(error).__name__}: {error}") from error
        refuse_other_loops(target, box)
        # Read the result at the index i: this runs the loop's body once, whose operations go to the recorder.
        place = sympy.Symbol("i")
        with V.set_ops_handler(recorder(elements, record, place)):
            result = box.make_loader()([place])
    return getattr(result, "value", result)  # out of the OpsValue in which Inductor wraps it


def refuse_other_loops(target: Any, box: Any) -> None:
    """Raise NotPointwise unless a lowering has returned one pointwise loop over one dimension, or its argument."""
    from torch._inductor import ir

    if not isinstance(box, ir.TensorBox):
        raise NotPointwise(f"Inductor's lowering of {target} returns a {type(box).__name__}")
    if len(box.get_size()) != 1:
        raise NotPointwise(f"Inductor's lowering of {target} makes {len(box.get_size())} dimensions of one")
    if not isinstance(box.data, ir.StorageBox) or not isinstance(box.data.data, (ir.Pointwise, ir.InputBuffer)):
        raise NotPointwise("it takes more than one element to make one")


@functools.cache
def surroundings() -> tuple[Any, Any]:
    """Return an empty graph and a fake mode, which Inductor's lowerings need as the current ones."""
    from torch._inductor.graph import GraphLowering
    from torch._subclasses import FakeTensorMode

    return GraphLowering(torch.fx.symbolic_trace(lambda x: x)), FakeTensorMode()


REFUSED_OPS = frozenset(
    ("masked", "index_expr", "indirect_indexing", "rand", "randn", "randint64", "load_seed", "inline_asm_elementwise")
)
"""Operations that are more than a function of one element."""


def recorder(elements: Mapping[str, Any], record: Callable[..., Any], place: Any) -> Any:
    """Return a handler of Inductor's `ops` for the body of a loop at the index `place`: a load of a buffer there is
    answered with its element, and each operation on elements is passed to `record`."""
    from torch._inductor.codegen.common import OpDecompositions
    from torch._inductor.codegen.triton import TritonOverrides
    from torch._inductor.dtype_propagation import DtypePropagationOpsHandler
    from torch._inductor.ops_handler import DefaultHandler

    dtypes: Any = DtypePropagationOpsHandler()

    class Recorder(DefaultHandler):
        """Answers each operation of `ops` with the element that `record` returns; refuses one that is no function of
        single elements."""

        def load(self, name: str, index: Any) -> Any:
            if name not in elements or index != place:
                raise NotPointwise("it reads other elements than its own")
            return elements[name]

        def masked(self, mask: Any, body: Any, other: Any) -> Any:
            raise NotPointwise("a mask over an index")

        def _default(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            """Answer an operation that no method here is named after."""
            if name in REFUSED_OPS:
                raise NotPointwise(f"Inductor's ops.{name}")
            if name == "identity":
                return args[0]
            if name in ("constant", "to_dtype"):  # of a value, and the dtype that it has afterwards
                return record(name, args[:2], args[1])
            decomposed: Any = getattr(OpDecompositions, name, None)
            # If Triton's code generator has no form of its own for the operation, it uses Inductor's decomposition; so
            # does this recorder.
            triton_decomposes = getattr(TritonOverrides, name, None) is decomposed
            if decomposed is not None and triton_decomposes:
                value = decomposed(*args, **kwargs)  # which calls `ops`, so this recorder
                return getattr(value, "value", value)
            return record(name, (*args, *kwargs.values()), getattr(dtypes, name)(*args, **kwargs))

    return Recorder()


@uses("torch._inductor.decomposition.select_decomp_table", needed_by=NEEDED)
def decomposition(target: Any) -> Any:
    """Return Inductor's decomposition of an operator into others; None if it has none."""
    return decomposition_table().get(target)


@functools.cache
def decomposition_table() -> Mapping[Any, Any]:
    """Return Inductor's decompositions, as they are with its settings at the first call."""
    from torch._inductor.decomposition import select_decomp_table

    return dict(select_decomp_table())


@uses("torch.fx.experimental.proxy_tensor.make_fx", needed_by=NEEDED)
def decomposed_call(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> torch.fx.GraphModule:
    """Return a function, traced on fake tensors like `tensors`, as a graph of the operators that Inductor lowers.
    Tensors that the function has of its own may be real."""
    from torch.fx.experimental.proxy_tensor import make_fx

    table = dict(decomposition_table())
    return make_fx(function, decomposition_table=table, tracing_mode="fake", _allow_non_fake_inputs=True)(*tensors)


# ---- Probes


class Element:
    """An element of the probe."""

    dtype = torch.float32


def lowerings_are_recorded() -> bool:
    """Whether `x * 2` and `where` are recorded as the operations of `ops` that they are."""
    names: list[str] = []

    def record(name: str, args: tuple[Any, ...], dtype: torch.dtype) -> Element:
        names.append(name)
        return Element()

    aten = torch.ops.aten
    pointwise_of(aten.mul.Tensor, (Element(), 2.0), {}, Element, record)
    pointwise_of(aten.where.self, (Element(), Element(), Element()), {}, Element, record)
    return names[-1] == "where" and "mul" in names and "constant" in names


def operators_are_decomposed() -> bool:
    aten = torch.ops.aten
    graph = decomposed_call(aten.sigmoid_backward.default, [torch.zeros(2), torch.zeros(2)])
    return decomposition(aten.sigmoid_backward.default) is not None and len(graph.graph.nodes) > 4


PROBES = probes_of(
    __name__,
    {},
    Probe("torch._inductor.lowering.lowerings under a recorder", lowerings_are_recorded, NEEDED),
    Probe("torch._inductor.decomposition.select_decomp_table of a call", operators_are_decomposed, NEEDED),
)
