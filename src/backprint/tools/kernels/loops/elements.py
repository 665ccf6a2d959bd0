"""A captured Pair as what happens to one element of its state.

`select`, `unbind`, `stack`, `cat`, slices and their backwards are reads and writes of slots, which are times. The other
operators are asked of Inductor, one call at a time; each different call is asked once.

A gradient of a broadcast parameter stays an element that is `Summed`: a sum commutes with what is linear, so it is
added up over time in registers, and over elements at the end.

The functions in STRUCTURE all have the signature `(reader, target, args, kwargs, meta)`: they return what the operator
`target` returns, as a tensor of elements. In `args`, tensors are tensors of elements (Input, Untimed, Slots or Summed);
`meta` is the result as a fake tensor. They raise NotPointwise for a call that a loop over time cannot be, as of an
operator along a dimension other than the first. `dim % len(shape)` is 0 for the first dimension, which is time, and is
not for other dimensions, counted from either end.

Words of this file; those of the package are in `nouns`:

- state: here the shape of the state. `reader.state[:-1]` is the shape of its rows.
- `timed`: the keys (`port_key`) of ports whose first dimension is time; of one tensor, whether its first dimension is.
- `by_row`: of a tensor, that it has one value for each row, and not the state's last dimension. An operator on it
  may take other such tensors and numbers alone (`is_by_row`).
- facts: a TensorFacts, what the file knows of a tensor. `tensors` has them by the tensor's name in the file.
- None as an element: a zero that nothing computed, as in the memory of `select_backward` at other times.
"""

from __future__ import annotations

import keyword
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from backprint._torch.pointwise import NotPointwise, decomposed_call, decomposition, pointwise_of
from backprint.common.names import free_name
from backprint.errors import RefusedError
from backprint.graph.nouns import Graph, Pair, Port
from backprint.tools.kernels.loops.nouns import (
    INPUTS,
    RESERVED,
    Element,
    Elements,
    Input,
    Program,
    Slots,
    Summed,
    Tensor,
    TensorFacts,
    Untimed,
    Write,
    at_source,
    in_dependency_order,
)

aten = torch.ops.aten

TENSORS = (Input, Untimed, Slots, Summed)


def program_of(pair: Pair, elements: Elements, length: int, timed: frozenset[str]) -> Program:
    """Return a Pair of a length as writes of elements. The backward is read after the forward, because its saved ports
    are values of the forward."""
    forward, backward = pair.forward, pair.backward
    state, by_row = _state_shape(pair, timed)
    tensors: dict[str, TensorFacts] = {}
    folds_constants = elements.folds_constants
    results = GraphReader(elements, forward, state, timed, known={}, by_row=by_row).read(tensors)
    saved_values = {port.name: value for port, value in results if port.role == "saved"}
    results = [(port, value) for port, value in results if value is not None]
    outputs = [(port, value) for port, value in results if port.role != "saved"]
    gradients: list[tuple[Port, Tensor]] = []
    if backward is not None:
        elements.folds_constants = True  # so that what autograd computes of zeros and ones is one program for all steps
        try:
            gradients = GraphReader(elements, backward, state, timed, saved_values, by_row).read(tensors)
        finally:
            elements.folds_constants = folds_constants
        gradients = [(port, value) for port, value in gradients if value is not None]  # None: nothing depends on it
    forward_writes, backward_writes = (
        tuple(write for port, value in side for write in writes_of(port, value, elements, state, tensors))
        for side in (outputs, gradients)
    )
    return Program(length, state, forward_writes, backward_writes, tensors)


PRODUCTS = frozenset(
    f"aten.{name}.default"
    for name in ("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "linear", "matmul", "convolution")
)
"""Operators that are often in a loop, and no operation on elements."""


def _state_shape(pair: Pair, timed: frozenset[str]) -> tuple[tuple[int, ...], frozenset[str]]:
    """Return the shape of the state, to which all inputs without their time are broadcast, and the ports `by_row`:
    those of the shape `state[:-1]`, a value for each row. Refuse inputs that fit neither."""
    ports = [port for graph in pair.graphs for port in graph.inputs if port.role != "saved"]
    shapes = {port_key(port): shape_of(port)[port_key(port) in timed :] for port in ports}  # without time
    try:
        return tuple(torch.broadcast_shapes(*shapes.values())), frozenset()
    except RuntimeError:  # of shapes that do not broadcast to one
        state_and_rows = _state_of_rows(shapes)
    if state_and_rows is not None:
        return state_and_rows
    product = next((step for step in pair.forward.steps if step.target in PRODUCTS), None)
    if product is not None:
        raise RefusedError(
            f"{product.target}{at_source(product.source)} mixes elements of the state, and a loop has one element "
            "a lane: compute products of all steps at once, before the loop, or leave them to a compiler"
        )
    known = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
    raise RefusedError(f"the inputs of an iteration do not broadcast to one shape of the state: {known}")


def _state_of_rows(shapes: Mapping[str, tuple[int, ...]]) -> tuple[tuple[int, ...], frozenset[str]] | None:
    """Return the shape that the inputs with the most dimensions broadcast to, and the others, if each of these
    broadcasts to it too or has a value for each of its rows (only the latter are returned); None if they are no such
    inputs. `shapes` are those of the inputs without time."""
    rank = max(map(len, shapes.values()))
    wide = [shape for shape in shapes.values() if len(shape) == rank]
    if not all(_sizes_agree(sizes) for sizes in zip(*wide, strict=True)):
        return None
    state = tuple(torch.broadcast_shapes(*wide))
    others = {name: shape for name, shape in shapes.items() if not broadcasts_to(shape, state)}
    return (state, frozenset(others)) if all(shape == state[:-1] for shape in others.values()) else None


def _sizes_agree(sizes: Sequence[int]) -> bool:
    """Whether sizes broadcast to one."""
    return len({size for size in sizes if size != 1}) <= 1


def port_key(port: Port) -> str:
    """Return the key of a port: its name, or "tangent " and its name, since the tangent of an output may have an
    input's."""
    return f"tangent {port.name}" if port.role == "tangent" else port.name


def shape_of(port: Port) -> tuple[int, ...]:
    """Return the shape of a tensor's port; refuse a port that is no tensor, or has symbolic sizes."""
    shape = getattr(port.spec, "shape", None)
    if shape is None or not all(isinstance(size, int) for size in shape):
        raise RefusedError(f"{port.name} is no tensor of known sizes")
    return tuple(shape)


def writes_of(
    port: Port,
    value: Tensor,
    elements: Elements,
    state: tuple[int, ...],
    tensors: dict[str, TensorFacts],
) -> list[Write]:
    """Return the writes of an output or a gradient, one a time or one in all, and add its facts to `tensors`. Refuse
    results that a kernel cannot write: mutations, inputs as they are, sums, and other shapes than the state's."""
    if port.role == "mutation":
        raise RefusedError(f"the program writes to its argument {port.name!r}: return the new value instead")
    if isinstance(value, Input):
        raise RefusedError(f"the program returns its argument {value.name!r} as it is: return only what it computes")
    # without the first dimension, time
    shape = tuple(value.shape[isinstance(value, Slots) :])
    by_row = not isinstance(value, Summed) and value.by_row
    # one value for each of several rows, with or without a last dimension of one
    is_row = shape == (state[:-1] if by_row else (*state[:-1], 1)) and torch.Size(shape).numel() > 1
    if not isinstance(value, Summed) and shape != state and not is_row:
        raise RefusedError(
            f"{port.role} {port.name!r} has the shape {list(shape)} of a state of {list(state)}: it may have that of "
            "the state, or one value for each of several rows"
        )
    if isinstance(value, Summed) and port.role != "gradient":
        raise RefusedError(f"output {port.name!r} is a sum over the state: return the terms, and sum outside")
    name = _known_name(port, tensors)
    if isinstance(value, Summed):
        _check_sum(port, value, state, tensors)
    timed = isinstance(value, Slots)
    dtype = value.dtype if isinstance(value, Slots) else value.element.dtype
    dims = value.dims if isinstance(value, Summed) else None
    tensors[name] = TensorFacts(name, port.name, port.role, value.shape[timed:], dtype, timed, dims, by_row)
    if isinstance(value, Slots):
        zero = elements.constant(0, value.dtype)
        return [Write(name, slot, zero if part is None else part) for slot, part in enumerate(value.by_time)]
    return [Write(name, None, value.element)]  # None: it has no time


def _check_sum(port: Port, value: Summed, state: tuple[int, ...], tensors: Mapping[str, TensorFacts]) -> None:
    """Raise RefusedError unless a gradient is summed over the dimensions along which its input is broadcast."""
    shape = next(facts.shape for facts in tensors.values() if facts.port == port.name and facts.role in INPUTS)
    padded = (1,) * (len(state) - len(shape)) + tuple(shape)
    wide_dims = [dim for dim, size in enumerate(state) if size != 1]  # a sum along a dimension of 1 changes nothing
    broadcast_dims = [dim for dim in wide_dims if padded[dim] == 1]
    if [dim for dim in value.dims if dim in wide_dims] != broadcast_dims or tuple(value.shape) != tuple(shape):
        raise RefusedError(
            f"the gradient of {port.name!r} is summed over {value.dims}, not along what it is broadcast to"
        )


def identifier(name: str) -> str:
    """Return a port's name as a Python identifier that a generated file does not use otherwise."""
    text = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    text = f"_{text}" if text[:1].isdigit() else text
    return f"{text}_" if text in RESERVED or keyword.iskeyword(text) else text


def _known_name(port: Port, tensors: Mapping[str, TensorFacts]) -> str:
    """Return the name of a port's tensor in the file: the one that it has in `tensors`, or one that is free there."""
    for name, facts in tensors.items():
        if (facts.port, facts.role) == (port.name, port.role):
            return name
    prefix = "grad_" if port.role in ("tangent", "gradient") else ""
    return free_name(identifier(f"{prefix}{port.name}"), tensors)


class GraphReader:
    """Reads a Graph as tensors of elements.

    `elements` makes the elements, and is told the line that is read. `known` has the values of saved ports by name;
    `timed` and `by_row` are keys of ports (`port_key`).
    """

    def __init__(
        self,
        elements: Elements,
        graph: Graph,
        state: tuple[int, ...],
        timed: frozenset[str],
        known: Mapping[str, Tensor],
        by_row: frozenset[str],
    ) -> None:
        self.elements, self.graph, self.state, self.timed = elements, graph, state, timed
        self.known, self.by_row = known, by_row

    def read(self, tensors: dict[str, TensorFacts]) -> list[tuple[Port, Tensor]]:
        """Return each output of the graph with its tensor of elements, None for a gradient that is None, and add the
        facts of its inputs to `tensors`. Refuse a graph that draws random numbers."""
        module = self.graph.to_fx()
        for node in module.graph.nodes:
            if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                place = at_source(node.meta.get("source"))
                raise RefusedError(f"{node.target}{place} draws random numbers: {PASS_DRAWS}")
        inputs: dict[str, Any] = {}
        for port in self.graph.inputs:
            if port.role == "saved":
                inputs[port.local] = self.known[port.name]
                continue
            if port.role == "rng":
                raise RefusedError(f"the program draws random numbers: {PASS_DRAWS}")
            shape, timed = shape_of(port), port_key(port) in self.timed
            name = _known_name(port, tensors)
            dtype = getattr(torch, port.spec.dtype)  # type: ignore[union-attr]
            by_row = port_key(port) in self.by_row
            tensors[name] = TensorFacts(
                name, port.name, port.role, shape[timed:], dtype, timed, dims=None, by_row=by_row
            )
            inputs[port.local] = Input(name, shape, dtype, timed, by_row)
        results = self.run(module, inputs)
        ports = list(zip(self.graph.outputs, results, strict=True))
        return [
            # the gradient of an input with a value for each row is the sum over the row
            (port, self.resolve_row_sum(value) if port.name in self.by_row else value)
            for port, value in ports
        ]

    def run(self, module: torch.fx.GraphModule, inputs: Mapping[str, Any], inside: torch.fx.Node | None = None) -> Any:
        """Return what a graph returns for `inputs`, tensors of elements by name. `inside` is the node whose decomposed
        call the graph is: places in the program are then that node's."""
        values: dict[torch.fx.Node, Any] = {}
        for node in module.graph.nodes:
            if node.op == "placeholder":
                values[node] = inputs[node.target]  # its name is another where Python has it, as `any`
            elif node.op == "output":
                return torch.fx.node.map_arg(node.args[0], lambda key: values[key])
            elif node.op == "get_attr":
                constant = getattr(module, node.target)
                if not isinstance(constant, torch.Tensor) or constant.numel() != 1:
                    raise RefusedError("the program has a constant tensor: pass it as an argument")
                values[node] = Untimed((), self.elements.constant(constant.item(), constant.dtype))  # `()`: its shape
            else:
                args = torch.fx.node.map_arg(node.args, lambda key: values[key])
                kwargs = torch.fx.node.map_arg(node.kwargs, lambda key: values[key])
                line = (inside or node).meta.get("source")
                self.elements.source = line
                try:
                    target: Any = node.target
                    if target in REWRITTEN:  # an operator that Inductor leaves to ATen, as a function of others
                        values[node] = self.call_decomposed(node, REWRITTEN[target], args, dict(kwargs))
                    # a decomposed graph has operators that Inductor lowers: it is not decomposed again
                    elif inside is None and target not in STRUCTURE and decomposition(target) is not None:
                        values[node] = self.call_decomposed(node, target, args, dict(kwargs))
                    else:
                        values[node] = self.call(node.target, args, dict(kwargs), node.meta["val"])
                except NotPointwise as error:
                    raise RefusedError(
                        f"{node.target}{at_source(line)} is not an operation on elements: {error}"
                    ) from None
        raise RefusedError("a graph without an output")

    # ---- One call

    def call(self, target: Any, args: Any, kwargs: dict[str, Any], meta: Any) -> Any:
        """Return the result of an operator as a tensor of elements. An operator in STRUCTURE has a function there;
        of any other, Inductor is asked what it does to one element. `meta` is the result as a fake tensor."""
        if target in STRUCTURE:
            return STRUCTURE[target](self, target, args, kwargs, meta)
        if not isinstance(meta, torch.Tensor):
            raise NotPointwise("it returns several tensors")
        tensors = [item for item in args if isinstance(item, TENSORS)]
        # `device`, `layout` and the like say nothing of elements
        kwargs = {key: value for key, value in kwargs.items() if key not in MEMORY_ARGUMENTS}
        shape = tuple(meta.shape)
        if any(isinstance(item, Summed) for item in tensors):
            return self.call_on_sums(target, args, kwargs, meta)
        if any(self.has_time(item) for item in tensors):
            arguments_by_time = [
                [self.element_at_time(item, slot, shape) if isinstance(item, TENSORS) else item for item in args]
                for slot in range(shape[0])
            ]
            by_row = self.is_by_row(tensors)
            by_time = tuple(self.call_at_time(target, part, kwargs, meta.dtype) for part in arguments_by_time)
            return Slots(shape, by_time, meta.dtype, by_row)
        by_row = self.is_by_row(tensors)
        if not broadcasts_to(shape, self.state[:-1] if by_row else self.state):
            raise NotPointwise(f"it makes {list(shape)} of a state of {list(self.state)}")
        arguments = [self.untimed_element(item) if isinstance(item, TENSORS) else item for item in args]
        return Untimed(shape, self.pointwise(target, arguments, kwargs), by_row)

    def is_by_row(self, tensors: Sequence[Any]) -> bool:
        """Whether tensors have a value for each row, without the last dimension; raise NotPointwise if others than
        numbers are among them."""
        if not any(item.by_row for item in tensors if not isinstance(item, Summed)):
            return False
        for item in tensors:
            shape = tuple(item.shape[self.has_time(item) :])
            is_number = (
                isinstance(item, Untimed) and item.element.op == "constant" and broadcasts_to(shape, self.state[:-1])
            )
            is_plain = isinstance(item, Summed) or not item.by_row
            if is_plain and not is_number and torch.Size(shape).numel() > 1:
                raise NotPointwise(f"it takes {list(shape)} beside values of rows: add a dimension, as in n[..., None]")
        return True

    def call_at_time(
        self, target: Any, arguments: list[Any], kwargs: dict[str, Any], dtype: torch.dtype
    ) -> Element | None:
        """Return the element of a result at one time, of which `arguments` are: elements, numbers, and None for a zero
        that nothing computed. A sum with such a zero is its other term."""
        if target is aten.add.Tensor and not kwargs and None in arguments:
            return arguments[1] if arguments[0] is None else arguments[0]
        with_zeros = [self.elements.constant(0, dtype) if item is None else item for item in arguments]
        return self.pointwise(target, with_zeros, kwargs)

    def pointwise(self, target: Any, arguments: Sequence[Any], kwargs: Mapping[str, Any]) -> Element:
        """Return the element that an operator makes of elements and numbers. Inductor is asked once for each different
        call, with elements `argument(number)` in the place of its elements: the answer is the template in TEMPLATES."""
        leaves = [item for item in arguments if isinstance(item, Element)]
        # texts, since arguments may be lists, which have no hash
        key = (target, repr([item.dtype if isinstance(item, Element) else item for item in arguments]), repr(kwargs))
        if key not in TEMPLATES:
            templates = Elements()
            numbers = iter(range(len(leaves)))
            placeholders = [
                templates.make("argument", (next(numbers),), item.dtype) if isinstance(item, Element) else item
                for item in arguments
            ]

            def record(op: str, args: Sequence[Any], dtype: torch.dtype) -> Element:
                """Return the element of an operation that Inductor's lowering makes: `pointwise_of` calls this."""
                return templates.constant(*args) if op == "constant" else templates.make(op, args, dtype)

            TEMPLATES[key] = pointwise_of(target, placeholders, kwargs, Element, record)
        return self.fill_template(TEMPLATES[key], leaves)

    def fill_template(self, template: Element, leaves: Sequence[Element]) -> Element:
        """Return a template of TEMPLATES with the element `leaves[number]` in the place of `argument(number)`."""
        values: dict[Element, Element] = {}
        for item in in_dependency_order([template]):
            if item.op == "argument":
                values[item] = leaves[item.args[0]]
            else:
                args = [values[part] if isinstance(part, Element) else part for part in item.args]
                values[item] = self.elements.make(item.op, args, item.dtype)
        return values[template]

    def call_decomposed(self, node: torch.fx.Node, target: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the result of an operator that Inductor decomposes, or of a function in REWRITTEN: traced once for
        each different call (DECOMPOSED), with a Place for each tensor, and read as a graph."""
        tensors: list[Any] = []

        def to_places(value: Any) -> Any:
            """Return an argument with a Place for each tensor in it, and append the tensor to `tensors`."""
            if isinstance(value, TENSORS):
                tensors.append(value)
                return Place(len(tensors) - 1)
            return type(value)(map(to_places, value)) if isinstance(value, (list, tuple)) else value

        places, keyword_places = to_places(tuple(args)), {key: to_places(value) for key, value in kwargs.items()}
        specs = [(tuple(item.shape), dtype_of(item)) for item in tensors]
        key = (target, repr(places), repr(keyword_places), repr(specs))
        if key not in DECOMPOSED:

            def call(*values: torch.Tensor) -> Any:
                return target(
                    *from_places(places, values),
                    **{name: from_places(value, values) for name, value in keyword_places.items()},
                )

            DECOMPOSED[key] = decomposed_call(call, [torch.empty(shape, dtype=dtype) for shape, dtype in specs])
        module = DECOMPOSED[key]
        names = [node.target for node in module.graph.nodes if node.op == "placeholder"]
        return self.run(module, dict(zip(names, tensors, strict=True)), node)

    def call_on_sums(self, target: Any, args: Any, kwargs: dict[str, Any], meta: torch.Tensor) -> Tensor:
        """Return the result of an operator on sums over the state. If it is linear in them, it is the sum of what it
        makes of their elements; if not, each sum must be over rows, a number that the kernel computes."""
        shape = tuple(meta.shape)
        sums = [item for item in args if isinstance(item, Summed)]
        others = [item for item in args if isinstance(item, TENSORS) and not isinstance(item, Summed)]
        # other tensors must be the same for all terms of a sum: they fit the shape that is left when it is summed
        is_linear = (
            len({item.dims for item in sums}) == 1
            and _is_linear(target, args)
            and not any(self.has_time(item) or not broadcasts_to(item.shape, sums[0].shape) for item in others)
        )
        if not is_linear:
            resolved = [self.resolve_row_sum(item) for item in args]
            if any(isinstance(item, Summed) for item in resolved):
                raise NotPointwise("it is not linear in a sum over the state")
            return self.call(target, resolved, kwargs, meta)

        def term(item: Any) -> Any:
            """Return the element of a sum's terms, or of another tensor; a number as it is."""
            if isinstance(item, Summed):
                return item.element
            return self.untimed_element(item) if isinstance(item, TENSORS) else item

        return Summed(shape, self.pointwise(target, [term(item) for item in args], kwargs), sums[0].dims)

    # ---- Elements of tensors

    def has_time(self, value: Any) -> bool:
        """Whether a tensor's first dimension is time."""
        return isinstance(value, Slots) or (isinstance(value, Input) and value.timed)

    def resolve_row_sum(self, value: Any) -> Any:
        """Return a sum over the last dimension alone as a tensor of `row_sum`, one number a row, which the kernel
        computes; another Summed, and any other value, as it is."""
        rank, rows = len(self.state), self.state[:-1]
        if not isinstance(value, Summed) or value.dims != (rank - 1,) or tuple(value.shape) not in ((*rows, 1), rows):
            return value
        shape = tuple(value.shape)
        row_sum = self.elements.make("row_sum", (value.element,), value.element.dtype)
        return Untimed(shape, row_sum, by_row=len(shape) < rank)  # without keepdim

    def untimed_element(self, value: Any) -> Element:
        """Return the one element of a tensor without time; raise NotPointwise for a tensor with time, and for a sum."""
        value = self.resolve_row_sum(value)
        if isinstance(value, Input) and not value.timed:
            return self.elements.load(value.name, None, value.dtype)
        if isinstance(value, Untimed):
            return value.element
        raise NotPointwise(f"it uses {'a sum' if isinstance(value, Summed) else 'all times'} as one value")

    def element_at_time(self, value: Any, slot: int, shape: tuple[int, ...]) -> Element | None:
        """Return the element of an argument at time `slot` of a result of `shape`, broadcast: an argument with one time
        has it for all of them, and an argument without time is the same at each."""
        if isinstance(value, Input) and value.timed:
            return self.elements.load(value.name, slot if value.shape[0] > 1 else 0, value.dtype)
        if isinstance(value, Slots):
            return value.by_time[slot if len(value.by_time) > 1 else 0]
        if len(value.shape) == len(shape) and value.shape[0] != 1:
            raise NotPointwise(f"an argument of {list(value.shape)} does not change with time as the others do")
        return self.untimed_element(value)

    def with_times(self, value: Any) -> Slots:
        """Return a tensor with time as Slots, an element for each time; raise NotPointwise for one without time."""
        if isinstance(value, Slots):
            return value
        if isinstance(value, Input) and value.timed:
            by_time = tuple(self.element_at_time(value, slot, value.shape) for slot in range(value.shape[0]))
            return Slots(value.shape, by_time, value.dtype, value.by_row)
        raise NotPointwise("it reads a time of what has none")

    def select_time(self, value: Slots, slot: int) -> Untimed:
        """Return one time of a tensor, as a tensor without time."""
        part = value.by_time[slot]
        element = self.elements.constant(0, value.dtype) if part is None else part
        return Untimed(value.shape[1:], element, value.by_row)


PASS_DRAWS = "pass them as an argument, a slice a step"


class Place:
    """Stands for the tensor number `index` in the arguments of a call; its repr is part of a key of DECOMPOSED."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __repr__(self) -> str:
        return f"#{self.index}"


def from_places(arguments: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Return arguments, nested in lists and tuples, with tensors in the place of each Place."""
    if isinstance(arguments, Place):
        return tensors[arguments.index]
    return (
        type(arguments)(from_places(item, tensors) for item in arguments)
        if isinstance(arguments, (list, tuple))
        else arguments
    )


def dtype_of(value: Tensor) -> torch.dtype:
    """Return the dtype of a tensor of elements."""
    return value.element.dtype if isinstance(value, (Untimed, Summed)) else value.dtype


TEMPLATES: dict[Any, Element] = {}
"""What Inductor makes of a call, by the call (`GraphReader.pointwise`): the same in every program."""

DECOMPOSED: dict[Any, torch.fx.GraphModule] = {}
"""The graphs of calls that Inductor decomposes, by the call (`GraphReader.call_decomposed`)."""

MEMORY_ARGUMENTS = frozenset(("device", "pin_memory", "layout", "memory_format"))
"""Arguments that say where and how a result lies, and nothing of its elements."""


# ---- Sums and other reductions (see STRUCTURE)


def mean(reader: GraphReader, target: Any, args: Any, kwargs: Any, meta: Any) -> Any:
    """The sum, divided by how many elements go into each of its numbers."""
    total = sum_elements(reader, target, args, kwargs, meta)
    count = torch.Size(args[0].shape).numel() // torch.Size(total.shape).numel()
    return reader.call(aten.div.Tensor, (total, count), {}, meta)


def var_mean(reader: GraphReader, target: Any, args: Any, kwargs: Any, meta: Any) -> Any:
    """The variance and the mean of rows, as two sums: the kernel adds up a row that it holds in registers a second
    time, for the squares of what is off the mean."""
    value, dims = args[0], args[1] if len(args) > 1 else kwargs.get("dim")
    by_row = not kwargs.get("keepdim", False)
    row = [len(reader.state) - 1]
    if dims is None or [dim % len(value.shape) for dim in dims] != row or tuple(value.shape) != reader.state:
        raise NotPointwise("it is not over rows, the last dimension of the state")
    element, columns = reader.untimed_element(value), reader.state[-1]
    row_mean = reader.pointwise(
        aten.div.Tensor, [reader.elements.make("row_sum", (element,), element.dtype), columns], {}
    )
    centered = reader.pointwise(aten.sub.Tensor, [element, row_mean], {})
    sum_of_squares = reader.elements.make(
        "row_sum", (reader.pointwise(aten.mul.Tensor, [centered, centered], {}),), element.dtype
    )
    count = max(0, columns - kwargs.get("correction", 1))  # 1 is Bessel's correction, ATen's default
    shape = reader.state[:-1] if by_row else (*reader.state[:-1], 1)
    quotient = reader.pointwise(aten.div.Tensor, [sum_of_squares, count], {})
    return Untimed(shape, quotient, by_row), Untimed(shape, row_mean, by_row)


def variance(reader: GraphReader, target: Any, args: Any, kwargs: Any, meta: Any) -> Any:
    """The variance of rows, without their mean."""
    return var_mean(reader, target, args, kwargs, meta)[0]


def row_reduction(reader: GraphReader, target: Any, args: Any, kwargs: Any, meta: Any) -> Any:
    """The largest or the smallest of a row, or whether one of it is true."""
    # the declared defaults of dim and keepdim, for what is not passed
    defaults: list[Any] = [[], False]
    value, dims, keeps = list(args) + defaults[len(args) - 1 :]
    dims = [dims] if isinstance(dims, int) else dims
    if [dim % len(value.shape) for dim in dims] != [len(reader.state) - 1]:
        raise NotPointwise("it is not over rows, the last dimension of the state")
    if tuple(value.shape) != reader.state:
        raise NotPointwise(f"it takes {list(value.shape)} of a state of {list(reader.state)}")
    element = reader.untimed_element(value)
    if target is aten.any.dim and element.dtype != torch.bool:
        element = reader.pointwise(aten.ne.Scalar, [element, 0], {})
    op = {aten.amax.default: "row_max", aten.amin.default: "row_min", aten.any.dim: "row_any"}[target]
    return Untimed(tuple(meta.shape), reader.elements.make(op, (element,), meta.dtype), by_row=not keeps)


def broadcasts_to(shape: Sequence[int], state: Sequence[int]) -> bool:
    """Whether a shape broadcasts to that of the state, or of its rows."""
    # from the last dimension on, as far as the shape has dimensions
    sizes = zip(reversed(shape), reversed(state), strict=False)
    return len(shape) <= len(state) and all(size in (1, state_size) for size, state_size in sizes)


def _is_linear(target: Any, args: Sequence[Any]) -> bool:
    """Whether an operator is linear in the sums among its arguments: applied to the terms and then summed, it gives the
    same. Beside sums, an addition may have the number 0 alone, since another number would be added to each term."""
    is_sum = [isinstance(item, Summed) for item in args]
    is_zero = [
        isinstance(item, Untimed) and item.element.op == "constant" and item.element.args[0] == 0 for item in args
    ]
    is_linear_term = [a or b for a, b in zip(is_sum, is_zero, strict=True)]
    if target in (aten.add.Tensor, aten.sub.Tensor):
        return all(is_linear_term[:2])
    if target in (aten.neg.default, torch.ops.prims.convert_element_type.default):
        return is_sum[0]
    if target is aten.where.self:  # the condition is one for all terms
        return not is_sum[0] and all(is_linear_term[1:])
    if target is aten.mul.Tensor:
        return sum(is_sum) == 1
    return target is aten.div.Tensor and is_sum[0] and not is_sum[1]


# ---- Operators that move elements: reads, writes and views (see STRUCTURE)


def select(reader: GraphReader, target: Any, args: Any, kwargs: Any, meta: Any) -> Any:
    """One time of a tensor, as `x[t]`."""
    value, dim, index = args
    if dim % len(value.shape) or not reader.has_time(value):
        raise NotPointwise(f"it reads one index of dimension {dim}, which is not time")
    return reader.select_time(reader.with_times(value), index % value.shape[0])


def unbind(reader: GraphReader, target: Any, args: Any, kwargs: Any, meta: Any) -> Any:
    """Every time of a tensor, as a list."""
    value, dim = args[0], args[1] if len(args) > 1 else 0
    return [select(reader, target, (value, dim, index), {}, meta=None) for index in range(value.shape[dim])]


def getitem(reader: GraphReader, target: Any, args: Any, kwargs: Any, meta: Any) -> Any:
    """An item of the results of an operator that returns several."""
    return args[0][args[1]]


def stack(reader: GraphReader, target: Any, args: Any, kwargs: Any, meta: Any) -> Any:
    """Tensors without time, put together along time, the new first dimension."""
    values, dim = args[0], args[1] if len(args) > 1 else kwargs.get("dim", 0)
    if dim % len(meta.shape):
        raise NotPointwise(f"it puts time into dimension {dim}: stack along 0, and transpose outside")
    values = [reader.resolve_row_sum(value) for value in values]
    by_row = reader.is_by_row(values)
    return Slots(tuple(meta.shape), tuple(reader.untimed_element(value) for value in values), meta.dtype, by_row)


def cat(reader: GraphReader, target: Any, args: Any, kwargs: Any, meta: Any) -> Any:
    """Tensors with time, one behind another."""
    values, dim = args[0], args[1] if len(args) > 1 else kwargs.get("dim", 0)
    if dim % len(meta.shape):
        raise NotPointwise(f"it puts tensors together along dimension {dim}, which is not time")
    times = [reader.with_times(value) for value in values]
    by_time = tuple(part for value in times for part in value.by_time)
    return Slots(tuple(meta.shape), by_time, meta.dtype, reader.is_by_row(times))


def select_backward(reader: GraphReader, target: Any, args: Any, kwargs: Any, meta: Any) -> Any:
    """The gradient of `select`: `value` at one time, zero at the others."""
    value, shape, dim, index = args
    if dim % len(shape):
        raise NotPointwise(f"it writes one index of dimension {dim}, which is not time")
    value = reader.resolve_row_sum(value)
    by_time: list[Element | None] = [None] * shape[0]
    by_time[index % shape[0]] = reader.untimed_element(value)
    return Slots(tuple(meta.shape), tuple(by_time), meta.dtype, value.by_row)


def select_scatter(reader: GraphReader, target: Any, args: Any, kwargs: Any, meta: Any) -> Any:
    """`value` with one step of time, its first dimension, replaced by `source`."""
    value, source, dim, index = args
    if dim % len(value.shape) != 0:
        raise NotPointwise(f"it writes one index of dimension {dim}, which is not time")
    by_time = list(reader.with_times(value).by_time)
    by_time[index % len(by_time)] = reader.untimed_element(source)
    return Slots(
        tuple(meta.shape), tuple(by_time), meta.dtype, reader.is_by_row([value, reader.resolve_row_sum(source)])
    )


def copy(reader: GraphReader, target: Any, args: Any, kwargs: Any, meta: Any) -> Any:
    """The second argument, in the place of the first; a copy that would broadcast or cast is refused."""
    place, value = args[:2]
    if tuple(value.shape) != tuple(place.shape) or dtype_of(value) != meta.dtype:
        raise NotPointwise(f"it copies {list(value.shape)} into {list(place.shape)} of {meta.dtype}")
    return value


def empty(reader: GraphReader, target: Any, args: Any, kwargs: Any, meta: Any) -> Any:
    """Zeros for memory that nothing has written, which may be any number: a state, values of rows, or either with time
    in front."""
    shape = tuple(meta.shape)
    if broadcasts_to(shape, reader.state):
        return Untimed(shape, reader.elements.constant(0, meta.dtype))
    if shape == reader.state[:-1]:
        return Untimed(shape, reader.elements.constant(0, meta.dtype), by_row=True)
    # a shape that fits both is that of a state
    by_row = shape[1:] == reader.state[:-1] and not broadcasts_to(shape[1:], reader.state)
    if not by_row and (len(shape) != len(reader.state) + 1 or not broadcasts_to(shape[1:], reader.state)):
        raise NotPointwise(f"it makes {list(shape)} of a state of {list(reader.state)}")
    return Slots(shape, (None,) * shape[0], meta.dtype, by_row)


def _slice_times(reader: GraphReader, target: Any, args: Any, kwargs: Any, meta: Any) -> Any:
    """A range of times; a slice that takes all of a dimension is the tensor as it is."""
    # the declared defaults of dim, start, end and step, for what is not passed
    defaults: list[Any] = [0, None, None, 1]
    value, dim, start, stop, step = list(args) + defaults[len(args) - 1 :]
    if tuple(meta.shape) == tuple(value.shape):
        return value
    if dim % len(value.shape) or not reader.has_time(value):
        raise NotPointwise(f"it reads a part of dimension {dim}, which is not time")
    times = reader.with_times(value)
    return Slots(tuple(meta.shape), times.by_time[slice(start, stop, step)], meta.dtype, times.by_row)


def slice_backward(reader: GraphReader, target: Any, args: Any, kwargs: Any, meta: Any) -> Any:
    """The gradient of `_slice_times`: `value` at its times, zero at the others."""
    value, shape, dim, start, stop, step = args
    if dim % len(shape):
        raise NotPointwise(f"it writes a part of dimension {dim}, which is not time")
    by_time: list[Element | None] = [None] * shape[0]
    times = reader.with_times(value)
    by_time[slice(start, stop, step)] = times.by_time
    return Slots(tuple(meta.shape), tuple(by_time), meta.dtype, times.by_row)


def flip(reader: GraphReader, target: Any, args: Any, kwargs: Any, meta: Any) -> Any:
    """A tensor with its times in the opposite order."""
    value, dims = args
    if [dim % len(value.shape) for dim in dims] != [0]:
        raise NotPointwise(f"it turns dimensions {list(dims)} around, which are not time")
    times = reader.with_times(value)
    return Slots(tuple(meta.shape), times.by_time[::-1], meta.dtype, times.by_row)


def view(reader: GraphReader, target: Any, args: Any, kwargs: Any, meta: Any) -> Any:
    """A view that leaves elements at their places in the state: the same shape, dimensions of one, `expand`, time of
    one step, and values of rows with and without their last dimension. Of a sum, every view of as many numbers: its
    shape is compared with that of the input whose gradient it is, when it is written."""
    value, shape = args[0], tuple(meta.shape)
    if isinstance(value, Summed) and torch.Size(shape).numel() == torch.Size(value.shape).numel():
        return Summed(shape, value.element, value.dims)
    if tuple(value.shape) == shape:  # a clone, a detach, or a view that changes nothing
        return value
    value = reader.resolve_row_sum(value)
    of_rows = _view_of_rows(reader, value, shape)
    if of_rows is not None:
        return of_rows
    if value.by_row:
        raise NotPointwise(f"it makes {list(shape)} of values of rows: add the last dimension, as in n[..., None]")
    if reader.has_time(value):
        return _view_with_time(reader, value, shape)
    element, is_expand = reader.untimed_element(value), target is aten.expand.default
    # within the state
    if broadcasts_to(shape, reader.state) and (is_expand or _keeps_places(value.shape, shape)):
        return Untimed(shape, element)
    # with time as a new first dimension: one step, or as many equal ones as `expand` makes
    if shape[1:] == tuple(value.shape) and (is_expand or shape[0] == 1):
        return Slots(shape, (element,) * shape[0], element.dtype)
    # with time in the place of a first dimension of one
    if is_expand and len(value.shape) == len(shape) and shape[1:] == tuple(value.shape[1:]):
        return Slots(shape, (element,) * shape[0], element.dtype)
    raise NotPointwise(f"it makes {list(shape)} of {list(value.shape)}")


def _view_with_time(reader: GraphReader, value: Any, shape: tuple[int, ...]) -> Any:
    """Return a view of a value with time: a value of one step expanded to several steps, or without time; else with
    the same steps and the elements of each at their places."""
    shape_of_step, new_shape_of_step = tuple(value.shape[1:]), shape[1:]
    if value.shape[0] == 1 and new_shape_of_step == shape_of_step:
        times = reader.with_times(value)
        return Slots(shape, times.by_time * shape[0], times.dtype)
    keeps_steps = bool(shape) and shape[0] == value.shape[0]
    keeps_places = _keeps_places(value.shape[1:], new_shape_of_step)
    if keeps_steps and keeps_places and broadcasts_to(new_shape_of_step, reader.state):
        times = reader.with_times(value)
        return Slots(shape, times.by_time, times.dtype)
    if value.shape[0] == 1 and shape_of_step == shape:
        return reader.select_time(reader.with_times(value), 0)
    raise NotPointwise(f"it makes {list(shape)} of {list(value.shape)}, across time")


def _view_of_rows(reader: GraphReader, value: Any, shape: tuple[int, ...]) -> Any:
    """Return values of rows that get a last dimension of one (`adds`) or lose it (`drops`: `by_row` from then on); None
    for other views. Without time, or with the same times."""
    rows, timed = reader.state[:-1], reader.has_time(value)
    old_shape, new_shape = tuple(value.shape[timed:]), shape[timed:]  # of one time
    adds = value.by_row and new_shape == (*old_shape, 1)
    drops = not value.by_row and old_shape == (*rows, 1) and new_shape == rows
    # one number is broadcast, whatever dimensions it has
    if not (adds or drops) or torch.Size(old_shape).numel() == 1 or shape[:timed] != tuple(value.shape[:timed]):
        return None
    if timed:
        times = reader.with_times(value)
        return Slots(shape, times.by_time, times.dtype, by_row=drops)
    return Untimed(shape, reader.untimed_element(value), by_row=drops)


def _keeps_places(old_shape: Sequence[int], new_shape: Sequence[int]) -> bool:
    """Whether a view adds or drops dimensions of one in front alone, or has but one element: 1 x 3 -> 3 does, 3 x 1 ->
    3 does not."""
    sizes = [list(old_shape), list(new_shape)]
    if all(size == 1 for shape in sizes for size in shape):
        return True
    longest = max(map(len, sizes))
    padded = [[1] * (longest - len(shape)) + shape for shape in sizes]
    return padded[0] == padded[1]


def full(reader: GraphReader, target: Any, args: Any, kwargs: Any, meta: Any) -> Any:
    """A tensor of one number, with time in front if it has a dimension more than the state or its rows."""
    value = args[0] if target is aten.scalar_tensor.default else args[1]  # of full(size, value), full_like(x, value)
    shape = tuple(meta.shape)
    constant = reader.elements.constant(value, meta.dtype)
    if broadcasts_to(shape, reader.state):
        return Untimed(shape, constant)
    if shape == reader.state[:-1]:
        return Untimed(shape, constant, by_row=True)
    if broadcasts_to(shape[1:], reader.state) or shape[1:] == reader.state[:-1]:
        by_row = not broadcasts_to(shape[1:], reader.state)
        return Slots(shape, (constant,) * shape[0], meta.dtype, by_row)
    raise NotPointwise(f"it makes {list(shape)} of a state of {list(reader.state)}")


def sum_elements(reader: GraphReader, target: Any, args: Any, kwargs: Any, meta: Any) -> Any:
    """A sum: over time it is added up here, over dimensions of the state it is a Summed."""
    value = args[0]
    if isinstance(value, Summed):
        raise NotPointwise("it sums a sum again")
    if dtype_of(value) != meta.dtype:  # with `dtype=`, or of integers: each element is cast before it is added
        wide = torch.empty(tuple(value.shape), dtype=meta.dtype, device="meta")
        value = reader.call(torch.ops.prims.convert_element_type.default, (value, meta.dtype), {}, wide)
    rank = len(value.shape)
    dims = sorted(dim % rank for dim in (args[1] if len(args) > 1 and args[1] else range(rank)))
    if reader.has_time(value):
        keepdim = len(args) > 2 and args[2]
        if dims != [0] or keepdim:
            raise NotPointwise("it sums over time and the state at once: sum over time here, over the state outside")
        by_time = [part for part in reader.with_times(value).by_time if part is not None]  # without zeros
        total = by_time[0] if by_time else reader.elements.constant(0, meta.dtype)
        for part in by_time[1:]:
            total = reader.pointwise(aten.add.Tensor, [total, part], {})
        return Untimed(tuple(meta.shape), total, value.by_row)
    if tuple(value.shape) != reader.state:
        raise NotPointwise(f"it sums {list(value.shape)} of a state of {list(reader.state)}")
    return Summed(tuple(meta.shape), reader.untimed_element(value), tuple(dims))


def shrink_backward(grad: torch.Tensor, value: torch.Tensor, limit: float) -> torch.Tensor:
    """The backward of hardshrink and of softshrink, as ATen has it."""
    return torch.where((value >= -limit) & (value <= limit), 0.0, grad)


REWRITTEN: Mapping[Any, Callable[..., Any]] = {
    aten.hardshrink_backward.default: shrink_backward,
    aten.softshrink_backward.default: shrink_backward,
}
"""Operators that Inductor leaves to ATen, as functions of others."""

STRUCTURE: Mapping[Any, Callable[..., Any]] = {
    aten.select.int: select,
    aten.unbind.int: unbind,
    operator.getitem: getitem,
    aten.stack.default: stack,
    aten.cat.default: cat,
    aten.select_backward.default: select_backward,
    aten.slice.Tensor: _slice_times,
    aten.slice_backward.default: slice_backward,
    aten.flip.default: flip,
    aten.full.default: full,
    aten.full_like.default: full,
    aten.scalar_tensor.default: full,
    aten.sum.dim_IntList: sum_elements,
    aten.sum.default: sum_elements,
    aten.mean.dim: mean,
    aten.mean.default: mean,
    aten.var_mean.correction: var_mean,
    aten.var.correction: variance,
    **dict.fromkeys((aten.amax.default, aten.amin.default, aten.any.dim), row_reduction),
    aten.empty.memory_format: empty,
    aten.empty_like.default: empty,
    aten.new_empty.default: empty,
    aten.new_empty_strided.default: empty,
    aten.select_scatter.default: select_scatter,
    aten.copy.default: copy,
    **dict.fromkeys(
        (
            aten.view.default,
            aten._unsafe_view.default,
            aten.reshape.default,
            aten.clone.default,
            aten.detach.default,
            aten.alias.default,
            aten.expand.default,
            aten.unsqueeze.default,
            aten.squeeze.default,
            aten.squeeze.dim,
            aten.squeeze.dims,
        ),
        view,
    ),
}
