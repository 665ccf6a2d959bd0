"""One direction as the text of a Triton kernel: names of the program's own, a line for a line of the program.

The variables of a kernel: `e` is the place of a lane's element in the state, and `mask` whether there is one; `n` is
the number of elements, `T` of steps, `t` the step. `at` is the offset of element e at t in a tensor of the whole state,
`at_row` of a row, and `at_<tensor>` in one that is broadcast (`Layout.kind`). `last` is the offset of the last step. Of
a constexpr SAVE it depends whether values are kept for a backward, and BLOCK is the number of lanes.

Words of this file; those of the package are in `nouns`:

- tensor: here its key in `layout.facts`; `layout.name(tensor)` is its name in the file.
- text and level: the text of an expression, and how tightly it binds (a number of `words`, from COMPARISON to
  NAME_OR_CALL), by which its user knows whether it needs brackets.
- INFIX, CALLS and the other tables of operations are those of `words`: how each is written in Triton. NEEDS has the
  FORMULAS that the formula of an operation calls; BINDING_OF_CALLS the levels of calls that end in an operator.
- to change: to differ between iterations. What does not is written once, before the loop: it is hoisted.
- inlined: written inside of the expression that uses it, without a variable.
- `counts`: how often each element is used in the block of statements that is written.
- halves: float16 and bfloat16, which a kernel computes in float32.
- depth: how many levels a statement is indented: 1 outside of the loop, 2 in it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from backprint.common.names import free_name
from backprint.errors import RefusedError
from backprint.graph.nouns import Source
from backprint.tools.kernels.loops.nouns import (
    ARITHMETIC,
    INPUTS,
    RESERVED,
    ROW_REDUCTIONS,
    Edge,
    Element,
    Loop,
    Now,
    Slot,
    TensorFacts,
    Write,
    at_source,
    in_dependency_order,
    row_elements,
)
from backprint.tools.kernels.loops.words import (
    BINDING_OF_CALLS,
    BIT_OPERATORS,
    CALLS,
    COMPARISON,
    FLOAT32_ONLY,
    FORMULAS,
    INFIX,
    LIBDEVICE,
    NAME_OR_CALL,
    NEEDS,
    PRODUCT,
    SIGN,
    SUM,
    TAKES_TENSORS,
)

TYPES = {
    torch.float64: "tl.float64",
    torch.float32: "tl.float32",
    torch.float16: "tl.float32",
    torch.bfloat16: "tl.float32",
    torch.int64: "tl.int64",
    torch.int32: "tl.int32",
    torch.int16: "tl.int16",
    torch.int8: "tl.int8",
    torch.uint8: "tl.uint8",
    torch.bool: "tl.int1",
}
"""The dtype in which a kernel computes: float32 for halves."""

HALVES = (torch.float16, torch.bfloat16)

DEFAULT_NAMES = {
    "add": "total",
    "sub": "difference",
    "mul": "product",
    "truediv": "ratio",
    "neg": "negative",
    "to_dtype": "number",
    "where": "chosen",
    **dict.fromkeys(("lt", "le", "gt", "ge", "eq", "ne"), "is_so"),
}
"""Names of values that the program does not name."""

ASSIGNMENT = re.compile(r"^([A-Za-z_]\w*)\s*(?:[-+*/]|\*\*|//)?=(?!=)")
"""The variable that a line of Python assigns to: `h = ...`, `h += ...`, and not `h == ...`."""

MAX_EXPRESSION_WIDTH = 88
"""How long an expression may be before a part of it has a line of its own."""


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel: its name, its source, the tensors and the sizes that it takes, in their order, the FORMULAS and the
    functions of libdevice that it calls. It `saves` if it has a flag SAVE, without which it does not write what is
    kept. `named` has the variable of each kept value, by tensor."""

    name: str
    source: str
    tensors: tuple[str, ...]
    sizes: tuple[str, ...]
    formulas: frozenset[str]
    saves: bool
    named: Mapping[str, str]
    library: frozenset[str]


@dataclass(slots=True)
class Layout:
    """How the tensors of both kernels lie in memory, and what they are called: `shown` has the names that differ from
    their keys."""

    facts: Mapping[str, TensorFacts]
    state: tuple[int, ...]
    shown: dict[str, str] = field(default_factory=dict)
    columns: int = 0
    """The length of a row, if a kernel works on rows: a program of the grid is one row then."""

    def kind(self, tensor: str) -> str:
        """Return "whole" of a tensor that has all elements of the state, "one" of a single number, "row" of one number
        for each row, if a kernel works on rows, and "some" of any other, which is broadcast to the state."""
        facts = self.facts[tensor]
        if tuple(facts.shape) == self.state and not facts.by_row:
            return "whole"
        if torch.Size(facts.shape).numel() == 1:
            return "one"
        return "row" if self.columns and (facts.by_row or facts.shape[-1] == 1) else "some"

    def is_row(self, tensor: str) -> bool:
        """Whether a tensor has one number for each row."""
        return self.kind(tensor) == "row"

    def row_shape(self, tensor: str) -> str:
        """Return the shape of a tensor of rows, as text of Python: `(T, *state[:-1], 1)`, `(*state[:-1],)`, …"""
        facts = self.facts[tensor]
        time = "T, " if facts.timed else ""
        if not facts.by_row:
            return f"({time}*state[:-1], 1)"
        return f"({time}*state[:-1])" if time else "(*state[:-1],)"  # a tuple of one item needs a comma

    def input_of(self, gradient: str) -> str:
        """Return the tensor of the input of which a tensor is the gradient: they have the same port."""
        port = self.facts[gradient].port
        return next(name for name, facts in self.facts.items() if facts.port == port and facts.role in INPUTS)

    def name(self, tensor: str) -> str:
        """Return the name of a tensor in the file."""
        return self.shown.get(tensor, tensor)


def kernel_text(
    name: str, loop: Loop, layout: Layout, sums: str, read_later: frozenset[str] = frozenset()
) -> KernelText:
    """Return the text of one direction. `sums` is how gradients of parameters are added up over elements, "stages" or
    "atomics", and `read_later` are the tensors that the backward reads: what a forward writes there is rounded as
    memory rounds it before it is used, if it is a half, so that both directions compute with the same number."""
    return Writer(name, loop, layout, sums, read_later).write()


def _count_uses(elements: Iterable[Element], roots: Iterable[Element]) -> dict[Element, int]:
    """Return how often each element is used: as an input of one of `elements`, or as a root."""
    counts: dict[Element, int] = {}
    for item in itertools.chain((item for element in elements for item in element.inputs), roots):
        counts[item] = counts.get(item, 0) + 1
    return counts


def _users_by_element(order: Iterable[Element]) -> dict[Element, list[Element]]:
    """Return the elements that are computed of each element, among those in `order`."""
    users: dict[Element, list[Element]] = {}
    for element in order:
        for item in element.inputs:
            users.setdefault(item, []).append(element)
    return users


def _changes_by_element(order: Iterable[Element], absent: Collection[Element]) -> dict[Element, bool]:
    """Return whether each element differs between iterations: because it is carried, is read at t, or is 0 in the first
    iteration (`absent`), or because something that it is computed of does. In `order`, inputs come first."""
    changes: dict[Element, bool] = {}
    for element in order:
        by_itself = (
            element.op in ("carried", "previous")
            or (element.op == "load" and isinstance(element.args[1], Now))
            or element in absent
        )
        changes[element] = by_itself or any(changes[item] for item in element.inputs)
    return changes


def _writes_by_element(writes: Iterable[Write]) -> dict[Element, list[Write]]:
    """Return the writes of each element that is written."""
    writes_of: dict[Element, list[Write]] = {}
    for write in writes:
        writes_of.setdefault(write.element, []).append(write)
    return writes_of


class Writer:
    """Writes a kernel, once. _TorchWriter, in torch_text, writes the same lines in PyTorch.

    `lines` are those of the kernel's body so far. `names` has the variable of each element that has one, `taken` all
    names that are in use. `tensors` and `sizes` are the arguments that the lines need, in order (dicts as sets), and
    `formulas` and `library` what they call. `order` has all elements, each after its inputs, and `users` those that are
    computed of each. `changes` says whether an element differs between iterations, `rows` has those that are one number
    a row, `row_carried` the indices of carried values that are, and `blocks` whether an element is a block
    (`is_block`). `rounded` are halves that the backward reads: rounded as memory does before they are used. `absent`
    are elements that are 0 in the first iteration. `source` is the line of the last comment, `widths` has the lengths
    of texts (`width`). `is_inside` is set while the body of the loop is written, `uses_last` once the kernel needs
    `last`. `kept_names` has the variable of each kept value, by tensor, once the loop is written.
    """

    is_triton = True

    def __init__(self, name: str, loop: Loop, layout: Layout, sums: str, read_later: frozenset[str]) -> None:
        self.name, self.loop, self.layout, self.sums = name, loop, layout, sums
        self.lines: list[str] = []
        self.names: dict[Element, str] = {}
        self.taken = {*RESERVED, "range", "float", "max", "min", name}
        self.taken |= {f"{layout.name(tensor)}_ptr" for tensor in layout.facts}
        self.tensors: dict[str, None] = {}
        self.sizes: dict[str, None] = {}
        self.formulas: set[str] = set()
        self.library: set[str] = set()
        self.widths: dict[Element, int] = {}
        self.source: Source | None = None
        self.is_inside = False
        self.uses_last = False
        self.saves = any(self.is_kept(write) for write in (*loop.writes, *loop.after, *loop.before))
        self.absent = frozenset(loop.absent)
        self.rounded = {
            write.element: layout.facts[write.tensor].dtype
            for write in loop.writes
            if write.tensor in read_later and layout.facts[write.tensor].dtype in HALVES
        }
        roots = [write.element for write in (*loop.before, *loop.writes, *loop.after)]
        self.roots = frozenset(roots)
        self.rows = row_elements(loop, layout.is_row) if layout.columns else frozenset()
        self.blocks: dict[Element, bool] = {}
        self.row_carried = {item.args[0] for item in self.rows if item.op == "carried"}
        self.order = list(in_dependency_order([*roots, *loop.start, *loop.following]))
        self.users = _users_by_element(self.order)
        self.changes = _changes_by_element(self.order, self.absent)

    def is_kept(self, write: Write) -> bool:
        """Whether a write keeps a value for the backward: only done if SAVE."""
        return self.layout.facts[write.tensor].role == "saved"

    # ---- The kernel

    def write(self) -> KernelText:
        """Return the kernel: what is before the loop, what is the same in all iterations, first values, the loop, and
        what is after."""
        loop = self.loop
        body_roots = [*(write.element for write in loop.writes), *loop.following]
        self.write_section(loop.before, values=[], depth=1)
        if not body_roots:  # a program of so few steps that it has no loop
            self.kept_names: dict[str, str] = {}
            return self.assemble()
        self.write_hoisted(body_roots)
        carried = self.write_first_values()
        moving = self.moving_tensors(body_roots)
        # the body is written first: its names and sizes decide what stands before it
        before_loop, self.lines, self.is_inside = self.lines, [], True
        self.write_body(carried)
        body, self.lines, self.is_inside = self.lines, before_loop, False
        for tensor in moving:
            self.lines.append(f"    {self.offset_name(tensor)} = {self.edge_offset(tensor, loop.first)}")
        self.lines.append(f"    for t in range({self.range_arguments()}):")
        self.lines += body
        sign = "+" if loop.step > 0 else "-"
        for tensor in moving:
            self.lines.append(f"        {self.offset_name(tensor)} {sign}= {self.stride_name(tensor)}")
        self.kept_names = {
            write.tensor: self.names[write.element]
            for write in loop.writes
            if self.is_kept(write) and write.element in self.names
        }
        # behind the loop, the variables of its body are those of the last iteration: of these only what it hands on has
        # a meaning there
        unchanging = {element: name for element, name in self.names.items() if not self.changes[element]}
        self.names = unchanging | {item: carried[item.args[0]] for item in self.order if item.op == "carried"}
        self.source = None
        self.write_section(loop.after, values=[], depth=1)
        return self.assemble()

    def assemble(self) -> KernelText:
        """Return the kernel with its signature, and the lines that say which elements a program of the grid has."""
        tensors = list(self.tensors)
        pointers = [f"{self.layout.name(tensor)}_ptr" for tensor in tensors]
        numbers = [*self.sizes, "n", *(["last"] if self.uses_last else []), "T"]
        flags = ["SAVE: tl.constexpr", "BLOCK: tl.constexpr"] if self.saves else ["BLOCK: tl.constexpr"]
        arguments = wrap_arguments([*pointers, *numbers, *flags])
        columns = self.layout.columns
        if columns:  # a program of the grid is one row
            lanes = [
                "    row = tl.program_id(0).to(tl.int64)",
                f"    e = row * {columns} + tl.arange(0, BLOCK)",
                f"    mask = tl.arange(0, BLOCK) < {columns}",
            ]
        else:
            lanes = [
                "    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
                "    mask = e < n",
            ]
        # do_not_specialize: one binary for every number of steps
        head = ['@triton.jit(do_not_specialize=["T"])', f"def {self.name}({arguments}):", *lanes]
        return KernelText(
            name=self.name,
            source="\n".join([*head, *self.lines]) + "\n",
            tensors=tuple(tensors),
            sizes=tuple(numbers),
            formulas=frozenset(self.formulas),
            saves=self.saves,
            named=self.kept_names,
            library=frozenset(self.library),
        )

    def range_arguments(self) -> str:
        """Return the arguments of `range` for the times of the loop: up from a count after the first step, or down from
        a count before the last."""
        first, last = self.loop.first, self.loop.last
        if self.loop.step > 0:
            stop = f"T - {last.count}" if last.count else "T"
            return f"{first.count}, {stop}" if first.count else stop
        return f"T - {first.count + 1}, {last.count - 1}, -1"

    def write_first_values(self) -> list[str]:
        """Write the first values of what is carried; return the names of the carried variables."""
        carried_names = []
        for index, (start, following) in enumerate(zip(self.loop.start, self.loop.following, strict=True)):
            if following.op == "previous":  # the next iteration's x[t]: `_read_once` in keeping
                name = self.take_name(f"{self.layout.name(following.args[0])}_t")
            else:
                name = self.take_name(self.preferred_name(following, f"carried_{index}"))
            carried_names.append(name)
            is_row = index in self.row_carried
            if start.op in ("constant", "zero"):
                text = self.first_number_text(start, TYPES[following.dtype], is_row)
            else:
                text = self.first_value_text(start, TYPES[following.dtype], is_row)
            self.lines.append(f"    {name} = {text}")
        for item in self.order:
            if item.op == "carried":
                self.names[item] = carried_names[item.args[0]]
        return carried_names

    def first_number_text(self, start: Element, dtype: str, is_row: bool) -> str:
        """Return the first value of a carried variable that is a number: one for each lane, as Triton wants one type of
        a variable in all iterations; one for all if the variable `is_row`. `dtype` is Triton's."""
        if not self.is_triton:
            return self.number_text(start)
        number = literal(start.args[0], start.dtype) if start.op == "constant" else "0.0"
        if is_row:
            return f"tl.full([], {number}, {dtype})"
        if number in ("0.0", "0"):
            return f"tl.zeros([BLOCK], {dtype})"
        return f"tl.full([BLOCK], {number}, {dtype})"

    def first_value_text(self, start: Element, dtype: str, is_row: bool) -> str:
        """Return the first value of a carried variable that is no number, and write what it is computed of. One that is
        the same for all lanes is spread over them, as in `first_number_text`."""
        if start.op != "load":
            self.write_section(writes=[], values=[start], depth=1)
        text = self.expression(start)[0]
        is_plain = is_row or self.is_block(start) or not self.is_triton
        return text if is_plain else f"tl.zeros([BLOCK], {dtype}) + {text}"

    def is_block(self, element: Element) -> bool:
        """Whether an element is a block of Triton, a number for each lane, and not one number for all."""
        for item in in_dependency_order([element]):
            if item in self.blocks:
                continue
            if item in self.rows or item.op in ROW_REDUCTIONS:
                self.blocks[item] = False
            elif item.op in ("load", "previous"):
                self.blocks[item] = self.layout.kind(item.args[0]) != "one"
            else:
                self.blocks[item] = item.op == "carried" or any(self.blocks[part] for part in item.inputs)
        return self.blocks[element]

    def write_hoisted(self, roots: Sequence[Element]) -> None:
        """Write before the loop what does not change: the values that its iterations use, each in a variable. `roots`
        are what an iteration writes and hands on."""

        def is_hoisted(element: Element) -> bool:
            return not self.changes[element] and element.op not in ("constant", "zero", "steps")

        hoisted: dict[Element, None] = {}  # a set that keeps the order
        for element in in_dependency_order(roots):
            if element in roots and is_hoisted(element):
                hoisted[element] = None
            if self.changes[element]:
                for item in element.inputs:
                    if is_hoisted(item) and folded_text(item) is None:
                        hoisted[item] = None
        self.write_section(writes=[], values=list(hoisted), depth=1, named=True)

    # ---- Statements

    def write_section(
        self, writes: Sequence[Write], values: Sequence[Element], depth: int, named: bool = False
    ) -> None:
        """Write the statements outside of the loop for stores, and for `values` that later statements need. If `named`,
        each of the values has a variable, and else one that is inlined or a number has none."""
        roots = [*(write.element for write in writes), *values]
        order = list(in_dependency_order(roots))
        counts = _count_uses(order, roots)
        stores = _writes_by_element(writes)
        named_values = set(values) if named else set()
        for element in order:
            self.write_statement(element, counts, depth, element in named_values)
            for write in stores.get(element, ()):
                self.write_store(write, depth)

    def write_body(self, carried: Sequence[str]) -> None:
        """Write one iteration, and the assignments to what it carries. `carried` are the variables of the latter.

        Where nothing reads the old `h` any more, its new value is assigned at once, else when the iteration ends:

            h = tanh(x + h)            h_1 = tanh(x + h)
            store(h)                   store(h_1 - h)
                                       h = h_1
        """
        loop = self.loop
        roots = [*(write.element for write in loop.writes), *loop.following]
        order = [item for item in in_dependency_order(roots) if self.changes[item]]
        counts = _count_uses(order, roots)
        stores = _writes_by_element(loop.writes)
        for element in roots:  # what is hoisted has its variable; it is stored in each iteration
            if not self.changes[element]:
                for write in stores.get(element, ()):
                    self.write_store(write, depth=2)
        for element in self.rounded:  # others are rounded by the statement that computes them
            if element.op == "carried":
                name = carried[element.args[0]]
                self.lines.append(f"        {name} = {name}{self.rounding_text(element)}")
        assigned_at_once = self.carried_at_once(order, counts)
        for element in order:
            name = carried[assigned_at_once[element]] if element in assigned_at_once else None
            self.write_statement(element, counts, depth=2, keep=element in loop.following, name=name)
            for write in stores.get(element, ()):
                self.write_store(write, depth=2)
        self.write_assignments(
            [
                (carried[index], self.value_name(following))
                for index, following in enumerate(loop.following)
                if assigned_at_once.get(following) != index
            ]
        )

    def carried_at_once(self, order: Sequence[Element], counts: Mapping[Element, int]) -> dict[Element, int]:
        """Return the values of an iteration that are assigned to a carried variable by the statement that computes
        them, each with the index of that variable: no later statement reads the variable's old value. `order` has what
        changes in an iteration, in the order of statements."""
        following = self.loop.following
        position = {element: index for index, element in enumerate(order)}
        last_reads: dict[int, int] = {}  # the position of the last statement that reads each carried variable
        for element in order:
            for item in element.inputs:
                if item.op == "carried":
                    read_at = self.written_at(element, position, counts)
                    last_reads[item.args[0]] = max(last_reads.get(item.args[0], -1), read_at)
        # variables whose old value another one gets, as in `a, b = b, a + b`
        handed_over = {value.args[0] for value in following if value.op == "carried"}
        return {
            value: index
            for index, value in enumerate(following)
            if value.op not in ("carried", "load")  # a carried value has no statement, and a load keeps its own name
            and value in position  # it changes
            and position[value] >= last_reads.get(index, -1)
            and following.index(value) == index  # a value that several variables get is assigned to the first
            and index not in handed_over
        }

    def write_assignments(self, assignments: Sequence[tuple[str, str]]) -> None:
        """Write assignments, each a variable and its value, at the end of an iteration: each in a line, or as one
        statement, `a, b = b, c`, where one would overwrite what another reads."""
        changing = [(variable, value) for variable, value in assignments if variable != value]
        variables, values = [variable for variable, _ in changing], [value for _, value in changing]
        if len(changing) == 1 or not set(variables) & set(values):
            self.lines += [f"        {variable} = {value}" for variable, value in changing]
        else:
            self.lines.append(f"        {', '.join(variables)} = {', '.join(values)}")

    def written_at(self, element: Element, position: Mapping[Element, int], counts: Mapping[Element, int]) -> int:
        """Return the `position` of the statement that an element is written in: its own, or that of what it is inlined
        into. `position` has the place of each element in the order of statements."""
        while self.is_inlined(element, counts):
            element = next(user for user in self.users[element] if user in position)
        return position[element]

    def is_inlined(self, element: Element, counts: Mapping[Element, int]) -> bool:
        """Whether an element is written inside of the expression that uses it, without a variable: used once, on the
        same line of the program, and short. What is stored or handed on has a variable, as have loads, and what is 0 in
        the first iteration."""
        if counts.get(element, 0) > 1 or element.op in ("load", "previous", "carried") or element in self.absent:
            return False
        users = self.users.get(element, ())
        if len(users) != 1 or element in self.loop.following or element in self.roots:
            return False
        return _same_line(element.source, users[0].source) and self.width(element, counts) < MAX_EXPRESSION_WIDTH

    def width(self, element: Element, counts: Mapping[Element, int]) -> int:
        """Return about how long the text of an element is: 10 characters for a name, 6 for an operator with its spaces
        and brackets. The first answer is kept, though `counts` may differ in another block: it only breaks lines."""
        if element not in self.widths:
            parts = [self.width(item, counts) if self.is_inlined(item, counts) else 10 for item in element.inputs]
            self.widths[element] = 6 + sum(parts)
        return self.widths[element]

    def write_statement(
        self, element: Element, counts: Mapping[Element, int], depth: int, keep: bool, name: str | None = None
    ) -> None:
        """Write the statement of an element, if it has one of its own: it has none if it has a variable, is a number,
        or is inlined, unless `keep`. `name` is the carried variable that it is assigned to, None for a new variable."""
        if (
            element in self.names
            or element.op in ("constant", "zero", "carried", "steps")
            or folded_text(element) is not None
        ):
            return
        if not keep and self.is_inlined(element, counts):
            return
        self.write_comment(element, depth)
        text, _ = self.expression(element)
        if element in self.absent and self.is_inside:
            first = f"T - {self.loop.first.count + 1}" if self.loop.first.last else str(self.loop.first.count)
            text = self.zero_at(first, text)
        if element in self.rounded and self.is_inside:
            text = f"({text}){self.rounding_text(element)}"
        # a number that becomes a carried variable is spread over the lanes, as in `first_number_text`
        if name is not None and self.is_triton and not self.is_block(element) and element not in self.rows:
            text = f"tl.zeros([BLOCK], {TYPES[element.dtype]}) + {text}"
        name = name or self.take_name(self.preferred_name(element, DEFAULT_NAMES.get(element.op, element.op)))
        self.lines.append(f"{'    ' * depth}{name} = {text}")
        self.names[element] = name

    def zero_at(self, first: str, text: str) -> str:
        """Return a text that is 0 in the iteration at time `first`, and the given one in the others."""
        return f"tl.where(t == {first}, 0.0, {text})"

    def number_text(self, element: Element) -> str:
        """Return the text of a constant as a tensor, for functions that do not take numbers."""
        return f"tl.full([BLOCK], {folded_text(element)}, {TYPES[element.dtype]})"

    def rounding_text(self, element: Element) -> str:
        """Return the casts that round a value to a half, as a store to memory does."""
        return f".to({str(self.rounded[element]).replace('torch', 'tl')}).to(tl.float32)"

    def write_comment(self, element: Element, depth: int) -> None:
        """Write the line of the program that an element is from as a comment, if it is another than that of the
        statement before."""
        source = element.source
        if source is None or element.op in ("load", "previous") or _same_line(source, self.source):
            return
        self.source = source
        code = source.code if len(source.code) < 90 else source.code[:87] + "…"
        self.lines.append(f"{'    ' * depth}# {source.at} in {source.function}: {code}")

    def write_store(self, write: Write, depth: int) -> None:
        """Write a store: if the tensor is a gradient of what is broadcast, of the sum over elements; if it is kept for
        the backward, under `if SAVE:`."""
        facts = self.layout.facts[write.tensor]
        pad = "    " * depth
        value, _ = self.expression(write.element)
        if facts.dims is not None:
            self.write_sum(write, value, depth)
            return
        if self.is_kept(write):
            self.lines.append(f"{pad}if SAVE:")
            pad += "    "
        if facts.dtype == torch.bool and write.element.op != "constant":  # a bool is a byte in memory
            value = f"{value if value.isidentifier() else f'({value})'}.to(tl.int8)"
        # one address a program of the grid, so none is out of bounds
        mask = "" if self.layout.is_row(write.tensor) else ", mask"
        self.lines.append(f"{pad}tl.store({self.address_text(write.tensor, write.slot)}, {value}{mask})")

    def write_sum(self, write: Write, value: str, depth: int) -> None:
        """Write the sum over elements of a gradient of what is broadcast; `value` is the text of a term. In stages,
        torch adds up what the kernel stores: a number for each program of the grid, or for each element. A sum for each
        row is whole in any case, since a program of the grid is a row."""
        tensor, pad = write.tensor, "    " * depth
        self.tensors[tensor] = None
        pointer = f"{self.layout.name(tensor)}_ptr"
        if self.layout.kind(tensor) == "one":
            total = f"tl.sum(tl.where(mask, {value}, 0.0), 0)"
            if self.sums == "atomics":
                self.lines.append(f"{pad}tl.atomic_add({pointer}, {total})")
            else:
                self.lines.append(f"{pad}tl.store({pointer} + tl.program_id(0), {total})")
        elif self.layout.is_row(tensor):
            self.lines.append(f"{pad}tl.store({pointer} + row, tl.sum(tl.where(mask, {value}, 0.0), 0))")
        elif self.sums == "atomics":
            self.lines.append(f"{pad}tl.atomic_add({pointer} + {self.broadcast_offset(tensor)}, {value}, mask)")
        else:
            self.lines.append(f"{pad}tl.store({pointer} + e, {value}, mask)")

    # ---- Places in memory

    def moving_tensors(self, roots: Sequence[Element]) -> list[str]:
        """Return the tensors whose offset moves with t: one for each variable (`offset_name`), since tensors of one
        layout share it. `roots` are what an iteration writes and hands on. A tensor of one number a step has no offset:
        its address is `t` itself."""
        tensors = [
            item.args[0]
            for item in in_dependency_order(roots)
            if item.op == "previous" or (item.op == "load" and isinstance(item.args[1], Now))
        ]
        tensors += [write.tensor for write in self.loop.writes]
        moving: dict[str, str] = {}
        for tensor in tensors:
            if self.layout.kind(tensor) != "one":
                moving.setdefault(self.offset_name(tensor), tensor)
        return list(moving.values())

    def offset_name(self, tensor: str) -> str:
        """Return the variable with a tensor's offset at t: `at`, `at_row`, or `at_` and its name."""
        match self.layout.kind(tensor):
            case "whole":
                return "at"
            case "row":
                return "at_row"
        return f"at_{self.layout.name(tensor)}"

    def stride_name(self, tensor: str) -> str:
        """Return the argument of the kernel that says how far apart two steps of a tensor are in memory, and note it in
        `sizes`."""
        if self.layout.kind(tensor) == "whole":
            return "n"
        if self.layout.is_row(tensor):
            self.sizes["rows"] = None
            return "rows"
        size = f"{self.layout.name(tensor)}_size"
        self.sizes[size] = None
        return size

    def broadcast_offset(self, tensor: str) -> str:
        """Return the offset of element e in a tensor that is broadcast, and note its two sizes, which `spread` in the
        file computes: `x_size` is how many numbers it has, and `x_inner` how many neighbouring elements share one."""
        name = self.layout.name(tensor)
        if self.layout.facts[tensor].role == "gradient":  # it lies as its input does, and has the sizes of that
            name = self.layout.name(self.layout.input_of(tensor))
        self.sizes[f"{name}_size"] = self.sizes[f"{name}_inner"] = None
        return f"e // {name}_inner % {name}_size"

    def offset_in_step(self, tensor: str) -> str:
        """Return the offset of element e in one step of a tensor, or in a tensor without time."""
        match self.layout.kind(tensor):
            case "whole":
                return "e"
            case "row":
                return "row"
        return self.broadcast_offset(tensor)

    def edge_offset(self, tensor: str, edge: Edge) -> str:
        """Return the offset of element e at the slot of an Edge, counted from the first or the last step."""
        kind = self.layout.kind(tensor)
        if kind == "one":
            return f"T - {edge.count + 1}" if edge.last else str(edge.count)
        base = self.offset_in_step(tensor)
        step = self.stride_name(tensor)
        if not edge.last:
            return base + f" + {step}" * edge.count
        if kind == "whole":
            self.uses_last = True  # the launch passes last = (T - 1) * n, which may need 64 bits
            return f"e + last{' - n' * edge.count}"
        return f"{base} + tl.cast(T - {edge.count + 1}, tl.int64) * {step}"  # a product that may need 64 bits

    def address_text(self, tensor: str, slot: Slot) -> str:
        """Return the pointer to element e at a slot, and note the tensor as an argument of the kernel."""
        self.tensors[tensor] = None
        pointer = f"{self.layout.name(tensor)}_ptr"
        kind = self.layout.kind(tensor)
        if slot is None:
            return pointer if kind == "one" else f"{pointer} + {self.offset_in_step(tensor)}"
        if isinstance(slot, Now):
            return f"{pointer} + {'t' if kind == 'one' else self.offset_name(tensor)}"
        assert isinstance(slot, Edge)
        return f"{pointer} + {self.edge_offset(tensor, slot)}"

    # ---- Expressions

    def value_name(self, element: Element) -> str:
        """Return the text of an element; its variable, if it has one."""
        return self.expression(element)[0]

    def expression(self, element: Element) -> tuple[str, int]:
        """Return the text of an element and its level: of a sum, `a + b` and SUM, so that its user writes
        `(a + b) * c`. A sign binds less tightly than a name, so a negative number has SIGN."""
        if element in self.names:
            return self.names[element], NAME_OR_CALL
        number = folded_text(element)
        if number is not None:
            return number, SIGN if number.startswith("-") else NAME_OR_CALL
        if element.op == "zero":
            return "0.0", NAME_OR_CALL
        if element.op == "steps":
            return "T", NAME_OR_CALL
        if element.op == "load":
            return self.load_text(element), NAME_OR_CALL
        if element.op == "previous":
            return self.previous_text(element), NAME_OR_CALL
        parts = [self.expression(item) for item in element.inputs]
        if element.op in INFIX:
            return self.infix_text(element, *parts)
        if element.op in BIT_OPERATORS:
            return f"({parts[0][0]}) {BIT_OPERATORS[element.op]} ({parts[1][0]})", COMPARISON
        if element.op == "neg":
            return f"-{bracket(*parts[0], SIGN)}", SIGN
        if element.op == "to_dtype":
            return self.cast_text(element, *parts[0])
        # tl.div_rn, which rounds as IEEE 754 does, is for float32; elsewhere `/` rounds so
        if element.op == "div_rn" and (element.dtype == torch.float64 or not self.is_triton):
            return f"{bracket(*parts[0], PRODUCT)} / {bracket(*parts[1], SIGN)}", PRODUCT
        return self.call_text(element, [text for text, _ in parts])

    def infix_text(self, element: Element, left: tuple[str, int], right: tuple[str, int]) -> tuple[str, int]:
        """Return the text of an operator between its two inputs, `a + b`, with brackets where they are needed, and its
        level. `left` and `right` are the inputs, each as `expression` returns it."""
        word, level = INFIX[element.op]
        second = element.inputs[1]
        if element.op == "add" and second.op == "neg" and second not in self.names:
            word, level, right = "-", SUM, self.expression(second.inputs[0])  # a + -b is a - b, exactly
        # Python would chain a < b < c, so a comparison's left side binds tighter than a comparison. The right side of
        # any operator binds tighter than it: a - (b - c), and a + (b + c), which rounds otherwise than a + b + c
        left_text, right_text = bracket(*left, max(level, SUM)), bracket(*right, level + 1)
        return f"{left_text} {word} {right_text}", level

    def call_text(self, element: Element, texts: list[str]) -> tuple[str, int]:
        """Return the text of an operation that is a function, of the `texts` of its inputs, and its level; note the
        FORMULAS and the functions of libdevice that it needs. Refuse an operation that has neither."""
        # exp(b * log(a)) is NaN for a negative base, as a power that is not whole should be
        if element.op == "pow" and _is_fraction(element.inputs[1]):
            return f"tl.exp({texts[1]} * tl.log({texts[0]}))", NAME_OR_CALL
        if element.op in TAKES_TENSORS:  # functions that look at the dtype of their arguments
            texts = [
                text if folded_text(item) is None else self.number_text(item)
                for text, item in zip(texts, element.inputs, strict=True)
            ]
        # of float64, libdevice has what FORMULAS compute in float32 alone
        library = LIBDEVICE | FLOAT32_ONLY if element.inputs[0].dtype == torch.float64 else LIBDEVICE
        if element.op in library:
            self.library.add(element.op)
            return f"libdevice.{library[element.op]}({', '.join(texts)})", NAME_OR_CALL
        if element.op in CALLS:
            self.formulas |= {name for name in (element.op, *NEEDS.get(element.op, ())) if name in FORMULAS}
            return CALLS[element.op].format(*texts), BINDING_OF_CALLS.get(element.op, NAME_OR_CALL)
        raise RefusedError(
            f"{element.op}{at_source(element.source)} is no function of Triton or libdevice: write it in others"
        )

    def cast_text(self, element: Element, text: str, level: int) -> tuple[str, int]:
        """Return a value in another dtype, as the kernel computes: a cast to a half is a rounding in float32. `text`
        and `level` are those of the value."""
        source_type, type_ = TYPES[element.inputs[0].dtype], TYPES[element.dtype]
        # what is a half of this dtype is not rounded again, and 0 and 1 need no rounding
        if element.dtype in HALVES and element.inputs[0].dtype not in (element.dtype, torch.bool):
            half = str(element.dtype).replace("torch", "tl")
            return f"{bracket(text, level, NAME_OR_CALL)}.to({half}).to(tl.float32)", NAME_OR_CALL
        if source_type == type_:
            return text, level
        if element.dtype == torch.bool:
            return f"{bracket(text, level, SUM)} != 0", COMPARISON
        return f"{bracket(text, level, NAME_OR_CALL)}.to({type_})", NAME_OR_CALL

    def load_text(self, element: Element) -> str:
        """Return the load of an element, as a kernel computes with it: a bool, a byte in memory, is compared with 0,
        and a half is cast to float32."""
        tensor, slot = element.args
        facts = self.layout.facts[tensor]
        address = self.address_text(tensor, slot)
        is_one_address = self.layout.kind(tensor) in ("one", "row")  # for all lanes, so none is out of bounds
        load = f"tl.load({address})" if is_one_address else f"tl.load({address}, mask)"
        if facts.dtype == torch.bool:
            return f"({load} != 0)"
        return f"{load}.to(tl.float32)" if facts.dtype in HALVES else load

    def previous_text(self, element: Element) -> str:
        """Return the load of `previous(tensor, first)`: of the step before t, or `first` at step 0, where the load is
        masked, since it would be in front of the tensor. A masked load is the number `first`, or 0 if it is none."""
        tensor, first = element.args
        facts = self.layout.facts[tensor]
        is_number = not isinstance(first, Element)
        masked = literal(first if is_number else 0, facts.dtype)
        mask = "t > 0" if self.layout.is_row(tensor) else "mask & (t > 0)"
        load = f"tl.load({self.address_text(tensor, Now())} - {self.stride_name(tensor)}, {mask}, {masked})"
        load = f"{load}.to(tl.float32)" if facts.dtype in HALVES else load
        return load if is_number else f"tl.where(t > 0, {load}, {self.expression(first)[0]})"

    # ---- Names

    def preferred_name(self, element: Element, other: str) -> str:
        """Return the name that an element should have: of its tensor, of the variable that the program assigns it to
        (with `grad_` in front if the loop walks down, as a backward does), of the output that it is; `other` if it has
        none of these."""
        if element.op == "load":
            tensor, slot = element.args
            name = self.layout.name(tensor)
            match slot:
                case None:
                    return name
                case Now(offset=0):
                    return f"{name}_t"
                case Now(offset=offset):
                    return f"{name}_before" if offset < 0 else f"{name}_after"
                case Edge(last=last):
                    return f"{name}_{'last' if last else 'first'}"
        if element.op == "previous":
            return f"{self.layout.name(element.args[0])}_before"
        source = element.source
        match = ASSIGNMENT.match(source.code) if source is not None else None
        # the variable is what a line computes last: what the line itself goes on to use is a part of it
        if match and not any(_same_line(user.source, source) for user in self.users.get(element, ())):
            return match[1] if self.loop.step > 0 else f"grad_{match[1]}"
        for write in (*self.loop.writes, *self.loop.before, *self.loop.after):
            if write.element is element and not self.is_kept(write):
                return (
                    f"{self.layout.name(write.tensor)}_t" if write.slot is not None else self.layout.name(write.tensor)
                )
        return other

    def take_name(self, preferred_name: str) -> str:
        """Return a name that is not taken, and take it."""
        name = free_name(preferred_name, self.taken)
        self.taken.add(name)
        return name


def _is_fraction(element: Element) -> bool:
    """Whether an element is a number that is not whole: a power of a negative number is NaN then."""
    return element.op == "constant" and float(element.args[0]) != int(element.args[0])


def _same_line(here: Source | None, there: Source | None) -> bool:
    """Whether two places are one line."""
    return here is there or (
        here is not None and there is not None and (here.file, here.line) == (there.file, there.line)
    )


def bracket(text: str, level: int, wanted: int) -> str:
    """Return a text in brackets if it binds less tightly than is wanted."""
    return text if level >= wanted else f"({text})"


def folded_text(element: Element) -> str | None:
    """Return the text of an element that is computed of numbers alone, as one number; None of others, and of one that
    `folded_number` does not compute."""
    if element.op == "constant":
        return literal(element.args[0], element.dtype)
    if not element.inputs or any(item.op != "constant" for item in in_dependency_order([element]) if not item.inputs):
        return None
    number = folded_number(element)
    return None if number is None else literal(number.item(), element.dtype)


def folded_number(element: Element) -> torch.Tensor | None:
    """Return the number of an element all of whose leaves are numbers; None if one of its operations is not in
    ARITHMETIC or the few functions that torch computes here."""
    dtype = torch.float32 if element.dtype in HALVES else element.dtype
    if element.op == "constant":
        return torch.tensor(element.args[0], dtype=dtype)
    inputs = [folded_number(item) for item in element.inputs]
    function = ARITHMETIC.get(element.op)
    if function is None and element.op in ("exp", "log", "sqrt", "sigmoid", "tanh"):
        function = getattr(torch, element.op)
    if function is None or any(part is None for part in inputs):
        return None
    return function(*inputs).to(dtype)


def literal(value: object, dtype: torch.dtype) -> str:
    """Return a number as Triton's text; Inf and NaN have no literal in Python."""
    if dtype == torch.bool:
        return str(bool(value))
    if dtype.is_floating_point:
        number = float(value)  # type: ignore[arg-type]  # a number, as a constant is
        return repr(number) if abs(number) < float("inf") else f'float("{number}")'
    return str(int(value))  # type: ignore[call-overload]  # as above


def wrap_arguments(items: Iterable[str]) -> str:
    """Return arguments in one text, broken into lines of up to 100 characters if it has more than 96."""
    text = ", ".join(items)
    if len(text) <= 96:
        return text
    lines, line = [], ""
    for item in text.split(", "):
        if len(line) + len(item) > 100:
            lines.append(line.rstrip())
            line = ""
        line += f"{item}, "
    return "\n    " + "\n    ".join([*lines, line.rstrip()]) + "\n"
