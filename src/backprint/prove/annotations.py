"""Compare annotations with values: the dtype, sizes, strides, device and layout of every port and step.

A run with Notes among its options compares each value with its annotation. Kernels choose strides, so these are not
compared on another machine or torch than the sample's.

An annotation is a Spec: of a tensor (TensorSpec), of a number or another value (ScalarSpec: a kind, and an expression
of symbols), a tuple of these, or None where nothing is known. Sizes and strides in it may be symbols, and `sizes` has
the number of each in a run. `[6:]` drops `torch.` from the name of a dtype or a layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backprint.graph.links import Contradiction
from backprint.graph.nouns import Capture, Graph, Pair, Port, ScalarSpec, Spec, Step, TensorSpec
from backprint.graph.sizes import may_equal, sizes_in_words
from backprint.graph.text import show_spec
from backprint.values.geometry import contiguous_strides
from backprint.values.settings import read_settings

DECIDE = ("torch", "machine", "cpu_capability", "mkldnn", "flash_sdp", "math_sdp", "float32_matmul_precision")
"""The settings and facts of an environment that determine which strides kernels return."""

WORKSPACE = TensorSpec("uint8", (0,))
"""How tracing annotates a kernel's workspace, whose size only the kernel knows."""


class _WrongAnnotation(NamedTuple):
    """An annotation that a value contradicts, the annotation that the value has, and both as text for a message.

    `true` is None where the run does not tell it: the graph has symbols, or the value is no tensor.
    """

    annotated: Spec
    true: Spec
    text: str


@dataclass(slots=True)
class AnnotationCheck:
    """Compares the values of one run of a graph with their annotations.

    `sizes` has the values of the graph's symbols in this run, `strides` says whether strides are compared, and
    `numbers` whether constant sizes of a graph with symbols are, as in Notes. `found` has the wrong annotations by role
    and name; the role of a step's value is `step`.
    """

    graph: Graph
    sizes: Mapping[str, int]
    strides: bool
    numbers: bool
    found: dict[tuple[str, str], _WrongAnnotation] = field(default_factory=dict)

    def note(self, role: str, name: str, spec: Spec, value: Any) -> None:
        """Compare one value with its annotation; enter it into `found` if it contradicts this."""
        # Without `numbers`, constant sizes are taken from the value, so that they match; and strides, which follow from
        # sizes, are not compared.
        ignores_numbers = bool(self.sizes) and not self.numbers
        annotated = _with_numbers(spec, value) if ignores_numbers else spec
        if not agrees(annotated, value, self.sizes, strides=self.strides and not ignores_numbers):
            where = f", where {sizes_in_words(self.sizes)}" if self.sizes and _any_symbol(spec) else ""
            text = f"annotated {show_spec(spec)}, is {show_value(value)}{where}"
            # One run has numbers where the annotation has symbols, so it cannot say what the annotation should be.
            true = None if self.graph.symbols else corrected(spec, value)
            self.found.setdefault((role, name), _WrongAnnotation(spec, true, text))

    def check_ports(self, ports: Sequence[Port], values: Sequence[Any]) -> None:
        """Compare the values of inputs or results, in port order, with the annotations of their ports."""
        for port, value in zip(ports, values, strict=True):
            self.note(port.role, port.name, port.spec, value)

    def check_step(self, step: Step, value: Any) -> None:
        """Compare a step's result with its annotation."""
        if step.spec is not None and not step.is_guard:
            self.note("step", step.name, step.spec, value)


@dataclass(slots=True)
class Notes:
    """What a run of a Capture notes about annotations: `sheets` has an AnnotationCheck for each graph that has run.

    With `strides`, strides are compared too. Without `numbers`, constant sizes of a graph with symbols are not
    compared: at other sizes than captured, some of them should have been symbols, which tracing has lost.
    """

    strides: bool
    numbers: bool = True
    sheets: list[AnnotationCheck] = field(default_factory=list)

    def sheet(self, graph: Graph, sizes: Mapping[str, int]) -> AnnotationCheck:
        """Return a new AnnotationCheck for a graph that begins to run."""
        self.sheets.append(AnnotationCheck(graph, sizes, self.strides, self.numbers))
        return self.sheets[-1]

    def contradictions(self) -> Iterator[Contradiction]:
        """Yield every wrong annotation."""
        for sheet in self.sheets:
            for (role, name), wrong in sheet.found.items():
                yield Contradiction(role, name, wrong.text)


def notes_in(environment: Mapping[str, str], numbers: bool = True) -> Notes:
    """Return empty Notes for runs, under the present settings, of graphs that were traced in this environment: a
    Capture's recorded settings by name. Strides are compared only if the settings that determine them are equal."""
    now = dict(read_settings())
    return Notes(all(environment.get(key) == now.get(key) for key in DECIDE), numbers)


def with_found_annotations(capture: Capture, notes: Notes) -> Capture:
    """Return a Capture whose wrong annotations are corrected by the values of a run, of which `notes` are the Notes.
    Tracing infers annotations from meta kernels, and the kernels that ran may differ from these."""
    # By identity, which needs no hash of a whole graph. The sheets hold the graphs, so no id is used twice.
    sheets = {id(sheet.graph): sheet for sheet in notes.sheets if sheet.found}
    if not sheets:
        return capture

    def with_true_annotations(graph: Graph) -> Graph:
        """Return a graph with its annotations corrected, if one of them is wrong."""
        return _corrected_graph(graph, sheets[id(graph)]) if id(graph) in sheets else graph

    pairs = [
        Pair(
            pair.name,
            with_true_annotations(pair.forward),
            None if pair.backward is None else with_true_annotations(pair.backward),
        )
        for pair in capture.pairs
    ]
    return replace(capture, pairs=tuple(pairs))


def _corrected_graph(graph: Graph, sheet: AnnotationCheck) -> Graph:
    """Return a graph with the annotations of its values in the run of which `sheet` is the check."""

    def true_spec(role: str, name: str, spec: Spec) -> Spec:
        """Return the annotation that the value of this role and name had in the run: `spec`, unless it was wrong."""
        wrong = sheet.found.get((role, name))
        return wrong.true if wrong is not None and wrong.annotated == spec else spec

    def ports(graph_ports: Sequence[Port]) -> tuple[Port, ...]:
        return tuple(replace(port, spec=true_spec(port.role, port.name, port.spec)) for port in graph_ports)

    steps = tuple(
        step if step.is_guard else replace(step, spec=true_spec("step", step.name, step.spec)) for step in graph.steps
    )
    return replace(graph, inputs=ports(graph.inputs), steps=steps, outputs=ports(graph.outputs))


def corrected(spec: Spec, value: Any) -> Spec:
    """Return the annotation that a value has; None if it is no tensor. In a tuple of results, `spec` keeps its part for
    a result that is None, such as a gradient that was not requested."""
    if isinstance(value, Tensor):
        return spec_of(value)
    if isinstance(value, (tuple, list)) and isinstance(spec, tuple) and len(spec) == len(value):
        return tuple(
            corrected(part, part_value) if part_value is not None else part
            for part, part_value in zip(spec, value, strict=True)
        )
    return None


def agrees(spec: Spec, value: Any, sizes: Mapping[str, int], strides: bool = True) -> bool:
    """Whether a value matches its annotation, where the symbols in it have these `sizes`. Everything matches an
    annotation of None."""
    match spec:
        case None:
            return True
        case TensorSpec():
            return isinstance(value, Tensor) and _is_tensor_of(spec, value, sizes, strides)
        case ScalarSpec(kind, expression):
            return _is_scalar_of(kind, expression, value, sizes)
        case tuple():
            if not isinstance(value, (tuple, list)) or len(value) != len(spec):
                return False
            # An operator returns None for a result that was not requested, such as a gradient.
            return all(
                part_value is None or agrees(part, part_value, sizes, strides)
                for part, part_value in zip(spec, value, strict=True)
            )
    return False


def _is_tensor_of(spec: TensorSpec, value: Tensor, sizes: Mapping[str, int], strides: bool) -> bool:
    """Whether a tensor matches an annotation: its dtype, layout, device and sizes, and with `strides` its strides."""
    kind = (str(value.dtype)[6:], str(value.layout)[6:], str(value.device), value.dim())
    if kind != (spec.dtype, spec.layout, spec.device, len(spec.shape)):
        return False
    # Before the sizes, because this annotation has a size of 0 that stands for any.
    if spec == WORKSPACE:
        return True
    if not all(may_equal(size, now, sizes) for size, now in zip(spec.shape, value.shape, strict=True)):
        return False
    # No stride of an empty tensor is ever used, and below none along a dimension of size 1: kernels choose them freely.
    if not strides or value.layout is not torch.strided or value.numel() == 0:
        return True
    if spec.stride is None:
        return value.is_contiguous()
    rows = zip(value.shape, spec.stride, value.stride(), strict=True)
    return all(size <= 1 or may_equal(then, now, sizes) for size, then, now in rows)


def _with_numbers(spec: Spec, value: Any) -> Spec:
    """Return an annotation with the sizes of a value in the place of its constant sizes; symbolic sizes stay."""
    if isinstance(spec, tuple) and isinstance(value, (tuple, list)) and len(spec) == len(value):
        return tuple(_with_numbers(part, part_value) for part, part_value in zip(spec, value, strict=True))
    if not isinstance(spec, TensorSpec) or not isinstance(value, Tensor) or value.dim() != len(spec.shape):
        return spec
    shape = [now if isinstance(size, int) else size for size, now in zip(spec.shape, value.shape, strict=True)]
    return replace(spec, shape=tuple(shape))


KINDS: Mapping[str, type | tuple[type, ...]] = {
    "SymInt": int,
    "SymFloat": (float, int),
    "SymBool": bool,
    "int": int,
    "float": float,
    "bool": bool,
    "complex": complex,
    "None": type(None),
    "str": str,
    "object": object,
}
"""The Python type of each kind of scalar."""


def _is_scalar_of(kind: str, expression: str, value: Any, sizes: Mapping[str, int]) -> bool:
    """Whether a value matches a ScalarSpec: it has a Python type of this kind, and a number also has the value that
    the expression of symbols has at these sizes. An empty expression stands for any value."""
    if not isinstance(value, KINDS[kind]):
        return False
    return not expression or not isinstance(value, (int, float)) or may_equal(expression, value, sizes)


def _any_symbol(spec: Spec) -> bool:
    """Whether an annotation has symbolic sizes."""
    match spec:
        case TensorSpec(_, shape, stride):
            return any(isinstance(size, str) for size in (*shape, *(stride or ())))
        case tuple():
            return any(map(_any_symbol, spec))
    return isinstance(spec, ScalarSpec) and bool(spec.expression)


def show_value(value: Any) -> str:
    """Return the annotation of a value as text."""
    if isinstance(value, Tensor):
        return show_spec(spec_of(value))
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(show_value, value))})"
    return f"{type(value).__name__} {value!r:.40}" if value is not None else "None"


def spec_of(value: Tensor) -> TensorSpec:
    """Return the annotation of a tensor."""
    dtype, device, layout = str(value.dtype)[6:], str(value.device), str(value.layout)[6:]
    if value.layout is not torch.strided:
        return TensorSpec(dtype, tuple(value.shape), stride=None, offset=0, device=device, layout=layout)
    # A TensorSpec has None for the strides of a contiguous tensor.
    stride = None if value.stride() == contiguous_strides(value.shape) else value.stride()
    return TensorSpec(dtype, tuple(value.shape), stride, offset=0, device=device)  # `agrees` compares no offsets
