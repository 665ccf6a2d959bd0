"""The nouns of this package: elements, tensors of them, what a direction writes, and the loop of it.

Words that all files of the package use:

- time, length, step: a time is an index of the first dimension of a tensor, and a length how many there are. A program
  that walks time does one step at each. `step` as a number is 1 or -1, the way in which a direction walks.
- state: the tensor that a program carries from step to step, without time. All inputs broadcast to its shape, and a
  lane of a kernel has one element of it.
- slot: where in time an element is read or written (Slot).
- row: a line of the state along its last dimension, if a kernel reduces along it. A tensor `by_row` has one value for
  each row, and the shape `state[:-1]`.
- iteration, body: an iteration is what a direction does at one time; the body is the program of all iterations of a
  loop. An iteration takes carried values from the one before, and hands new ones on to the next.
- direction: the forward, or the backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from backprint.graph.nouns import Source
from backprint.tools.kernels.loops.words import FORMULAS


@dataclass(frozen=True, eq=False, slots=True)
class Element:
    """One element of a tensor: an operation of Inductor's `ops` on other elements and on numbers.

    Operations that are not Inductor's, with their arguments:

    - `load(tensor, slot)`: an element of a tensor. The slot is a time, None if the tensor has no time; in a Loop, a Now
      or an Edge. `constant(value, dtype)`: a number. `steps()`: the number of steps.
    - `zero()`: a gradient that autograd did not compute, because nothing depends on it.
    - `carried(index)`: in a Loop, the value of that index that an iteration takes from the one before.
    - `kept(element, slot)`: in the Loop of a backward, what an element of the forward's iteration is in the iteration
      of the slot; with None, what the forward's last iteration hands on.
    - `previous(tensor, first)`: a tensor at the step before t; at the first step, the number or the Element `first`.
    - ROW_REDUCTIONS.

    Equal elements of one Elements are one object, so programs are compared by identity. `source` is the line of the
    program that computes it.
    """

    op: str
    args: tuple[Any, ...]
    dtype: torch.dtype
    source: Source | None = None

    def __repr__(self) -> str:
        return f"{self.op}({', '.join(map(repr, self.args))})"

    @property
    def inputs(self) -> tuple[Element, ...]:
        """The elements among the arguments that it is computed from."""
        if self.op == "kept":  # its element is of the forward's program, not of this one
            return ()
        return tuple(argument for argument in self.args if isinstance(argument, Element))


@dataclass(frozen=True, slots=True)
class Now:
    """The slot `t + offset`, in an iteration of time `t`."""

    offset: int = 0


@dataclass(frozen=True, slots=True)
class Edge:
    """The slot `count` after the first, or before the last."""

    count: int
    last: bool = False

    def at(self, length: int) -> int:
        """Return the time of this slot in a program of `length` steps."""
        return length - 1 - self.count if self.last else self.count


Slot: TypeAlias = "int | Now | Edge | None"
"""Which step of a tensor with time an element is read from or written to: a number in a program of one length, relative
to the iteration (Now), or counted from the first or the last step (Edge). None is for a tensor without time; as the
slot of a `kept` element, it is what the last iteration hands on."""


class Elements:
    """Makes elements: the same object for the same operation on the same arguments, which `cache` has.

    Whoever reads a graph sets `source` to that of the node that is read; new elements get it. While `steps` is set, a
    constant of that value is the number of steps, an element `steps`. With `folds_constants`, sums and products of
    constants are constants: the gradients that autograd makes of zeros are one program then.
    """

    def __init__(self) -> None:
        self.cache: dict[Any, Element] = {}
        self.source: Source | None = None
        self.steps: int | None = None
        self.folds_constants = False

    def make(self, op: str, args: Iterable[Any], dtype: torch.dtype) -> Element:
        """Return the element of an operation; a simpler one of the same value where there is one."""
        arguments = tuple(args)
        if op in ("mul", "truediv") and arguments[0].dtype == dtype and is_one(arguments[1]):
            return arguments[0]  # a product with 1, or a quotient by it, is exactly the same number
        if op == "constant" and arguments[0] == self.steps and dtype != torch.bool:  # True == 1, and is no count
            op, arguments = "steps", ()
        if self.folds_constants and op in ARITHMETIC and all(_is_constant(item) for item in arguments):
            return self.constant(_folded_number(op, arguments, dtype).item(), dtype)
        # type and repr: 1 and 1.0 and True are equal, and so are 0.0 and -0.0, but they are different programs
        key = (op, dtype, *(id(item) if isinstance(item, Element) else (type(item), repr(item)) for item in arguments))
        if key not in self.cache:
            self.cache[key] = Element(op, arguments, dtype, self.source)
        return self.cache[key]

    def make_like(self, like: Element, args: Iterable[Any]) -> Element:
        """Return the element of the same operation on other arguments, from the same place of the program."""
        self.source = like.source
        return self.make(like.op, args, like.dtype)

    def constant(self, value: Any, dtype: torch.dtype) -> Element:
        """Return a number as an element; it is converted to the kind of number that the dtype has."""
        kind = float if dtype.is_floating_point else bool if dtype == torch.bool else int
        return self.make("constant", (kind(value), dtype), dtype)

    def load(self, tensor: str, slot: Slot, dtype: torch.dtype) -> Element:
        """Return an element that is read from a tensor."""
        return self.make("load", (tensor, slot), dtype)

    def zero(self, dtype: torch.dtype) -> Element:
        """Return a gradient that autograd did not compute."""
        return self.make("zero", (), dtype)


ARITHMETIC: Mapping[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "truediv": torch.div,
    "neg": torch.neg,
}
"""Operations whose results IEEE 754 defines: a number of the file is that of the program."""


def _is_constant(value: Any) -> bool:
    """Whether an argument is an element that is a number."""
    return isinstance(value, Element) and value.op == "constant"


def _folded_number(op: str, constants: Iterable[Element], dtype: torch.dtype) -> torch.Tensor:
    """Return the number that an operation on constants gives. Halves are computed in float32, as kernels do."""
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    return ARITHMETIC[op](*(torch.tensor(item.args[0], dtype=wide) for item in constants)).to(wide)


ROW_REDUCTIONS = ("row_sum", "row_max", "row_min", "row_any")
"""Operations that take a row of the state, its last dimension, to one number."""


INPUTS = ("input", "parameter", "buffer", "constant")
"""The roles of ports that the caller of the program passes: no tangents, no saved values."""

RESERVED = frozenset(
    (
        *("t", "T", "n", "e", "at", "last", "mask", "BLOCK", "SAVE", "tl", "triton", "torch"),
        *("os", "device", "steps", "compare", "same", "as_tuple", "results", "gradients", "of"),
        *("ctx", "state", "row", "rows", "grid", "save", "check", "sizes", "spread", "fitted", *FORMULAS),
        *("index", "name", "any", "range", "tuple", "print", "float", "max", "min", "ValueError"),
    )
)
"""Names that a generated file has for itself, and functions of Python that it calls where its inputs are named."""


def at_source(source: Source | None) -> str:
    """Return where in the program something comes from, in words that follow a name; nothing if it is not known."""
    return f" at {source.at} ({source.code})" if source is not None else ""


def is_one(value: Any) -> bool:
    """Whether an element is the number 1."""
    return isinstance(value, Element) and value.op == "constant" and value.args[0] == 1


def in_dependency_order(elements: Iterable[Element]) -> Iterator[Element]:
    """Yield these elements and all that they are computed from, each once, and after its inputs.

    With a stack of its own, because an element of the last of many steps is deeper than Python's recursion may be.
    """
    seen: set[Element] = set()
    stack = [(element, False) for element in reversed(list(elements))]
    while stack:
        element, inputs_done = stack.pop()
        if inputs_done:
            yield element
        elif element not in seen:
            seen.add(element)
            stack.append((element, True))
            stack += [(item, False) for item in reversed(element.inputs)]


# ---- Tensors of elements


@dataclass(frozen=True, slots=True)
class Input:
    """A whole input. If it is `timed`, its first dimension is time. If it is `by_row`, it has one value for each row
    of the state, so the state's last dimension is not there."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    timed: bool
    by_row: bool = False


@dataclass(frozen=True, slots=True)
class Untimed:
    """A tensor without a time: its element, which is the same for all that it is broadcast to."""

    shape: tuple[int, ...]
    element: Element
    by_row: bool = False


@dataclass(frozen=True, slots=True)
class Slots:
    """A tensor whose first dimension is time: an element for each time, None for zero."""

    shape: tuple[int, ...]
    by_time: tuple[Element | None, ...]
    dtype: torch.dtype
    by_row: bool = False


@dataclass(frozen=True, slots=True)
class Summed:
    """A gradient of what was broadcast: `element`, summed over the dimensions `dims` of the state."""

    shape: tuple[int, ...]
    element: Element
    dims: tuple[int, ...]


Tensor: TypeAlias = "Input | Untimed | Slots | Summed"


# ---- What a direction writes, and its loop


@dataclass(frozen=True, slots=True)
class Write:
    """A store of an element to a slot of a tensor."""

    tensor: str
    slot: Slot
    element: Element


@dataclass(frozen=True, slots=True)
class Loop:
    """One direction of a program as a loop over time, for every number of steps.

    Iterations run from the Edge `first` to the Edge `last`, `step` (1 or -1) apart. `start` has the first value of
    each carried value, `following` what an iteration hands on. `before` and `after` are written outside of the loop;
    there `carried` elements are the values that the last iteration handed on. `peeled` iterations are not in the loop.
    `absent` are elements of the body that the first iteration does not compute: autograd left them out, as products
    with a gradient that is not there yet.
    """

    step: int
    first: Edge
    last: Edge
    start: tuple[Element, ...]
    following: tuple[Element, ...]
    writes: tuple[Write, ...]
    before: tuple[Write, ...]
    after: tuple[Write, ...]
    absent: tuple[Element, ...] = ()

    @property
    def peeled(self) -> int:
        """How many iterations are outside of the loop."""
        return self.first.count + self.last.count


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """A tensor of a kernel: its role, its shape at capture without time, its dtype, and whether it has time. `dims` are
    those of the state over which it is summed. `by_row`: it has a value for each row, and not the last dimension."""

    name: str
    port: str
    role: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    timed: bool
    dims: tuple[int, ...] | None = None
    by_row: bool = False


def row_elements(loop: Loop, is_row_tensor: Callable[[str], bool]) -> frozenset[Element]:
    """Return the elements of a loop that are one number for a whole row of the state. `is_row_tensor` says of a tensor,
    by its name, whether it has one number for each row.

    A carried value is one number a row if its first value and what is handed on are, and the latter may depend on it.
    So every carried value is taken for one at first, and those that turn out not to be are dropped, until none does.
    """
    roots = [*loop.start, *loop.following, *loop.absent]
    order = list(in_dependency_order([*roots, *(write.element for write in (*loop.before, *loop.writes, *loop.after))]))
    row_carried = set(range(len(loop.start)))
    while True:
        # None: computed of numbers alone, which are the same for lanes and rows and decide nothing
        row_flags: dict[Element, bool | None] = {}
        for element in order:
            if element.op == "carried":
                row_flags[element] = element.args[0] in row_carried
            elif element.op in ("load", "previous"):
                row_flags[element] = is_row_tensor(element.args[0])
            elif element.op in ROW_REDUCTIONS:
                row_flags[element] = True
            elif not element.inputs:
                row_flags[element] = None
            else:
                inputs_are_rows = {row_flags[item] for item in element.inputs} - {None}
                row_flags[element] = None if not inputs_are_rows else inputs_are_rows == {True}
        confirmed = {
            index
            for index in row_carried
            if row_flags[loop.following[index]] is True and row_flags[loop.start[index]] is not False
        }
        if confirmed == row_carried:
            return frozenset(element for element, is_row in row_flags.items() if is_row)
        row_carried = confirmed


@dataclass(frozen=True, slots=True)
class Program:
    """The two directions of a program of one length, as writes; `state` is the shape of its state."""

    length: int
    state: tuple[int, ...]
    forward: tuple[Write, ...]
    backward: tuple[Write, ...]
    tensors: dict[str, TensorFacts] = field(default_factory=dict)
