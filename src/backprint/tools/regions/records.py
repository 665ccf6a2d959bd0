"""What is recorded of operators, autograd nodes and Python stacks while a block is open.

A record never keeps a node, a graph, a gradient or a module alive.
"""

from __future__ import annotations

import functools
import sys
import weakref
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import TYPE_CHECKING

from torch import Tensor, nn

from backprint._torch.modules import code_of_calls
from backprint.tools.regions.nouns import StackLine
from backprint.trace.frames import is_users

if TYPE_CHECKING:
    from backprint.tools.regions.origins import NonfiniteSource

DEEPEST = 100
"""The most frames of a stack that are kept."""

Frame = tuple[CodeType, int]
"""The code of a frame, and the index of the instruction at which it stood, from which `stack_line` makes a line."""

Frames = tuple[Frame, ...]


@dataclass(slots=True, eq=False, repr=False)
class OperatorRun:
    """An operator that ran: its name, whether its result is a view, the user's line that called it, and the nodes that
    were made for it.

    `rank` and `unrun` are by region: the keys are ids of RegionCores, whose blocks were open. `rank` has how many
    operators of this name ran before, and in `unrun` are the regions of which no pass has run a node of this operator.
    `source` says where the NaN or Inf in its arguments or results come from; `bad_results`, that its results have some.
    `taken` is the argument that had them, and `title` the name of that argument.
    """

    name: str
    view: bool
    frame: Frame | None
    nodes: tuple[NodeRecord, ...]
    rank: dict[int, int] = field(default_factory=dict)
    unrun: set[int] = field(default_factory=set)
    source: NonfiniteSource | None = None
    bad_results: bool = False
    taken: weakref.ref[Tensor] | None = None
    title: str = ""

    @property
    def packet(self) -> str:
        """The operator's name without namespace, overload and the `_` of in place: `mul` of `aten.mul_.Tensor`."""
        return self.name.split(".")[1].rstrip("_") if "." in self.name else self.name


@dataclass(slots=True, eq=False, repr=False)
class NodeRecord:
    """The record of an autograd node, without the node: its stack, and the operators around it.

    `seq` numbers the nodes in the order in which they were made. `frames` is the Python stack, innermost first.
    `before` is the operator that ran last before the node was made, and `after` those that ran between it and the next
    node that was made for another operator: autograd makes a node before its operator runs. `within` are those in the
    forward of a custom function. `modules` are those whose forward was running, the innermost first. `of` is the kind
    (autograd's name) and the record of the node whose backward made this node, if one did. `apply` is the frame of a
    custom function's `apply` while its forward runs. `outputs` has the user's names of the tensors that have this node
    as grad_fn, by output number.
    """

    seq: int
    frames: Frames
    before: OperatorRun | None
    modules: tuple[weakref.ref[nn.Module], ...]
    of: tuple[str, NodeRecord] | None = None
    apply: FrameType | None = None
    after: list[OperatorRun] = field(default_factory=list)
    within: list[OperatorRun] = field(default_factory=list)
    outputs: dict[int, str] = field(default_factory=dict)

    @property
    def stack(self) -> tuple[StackLine, ...]:
        """The Python stack, outermost first."""
        return tuple(stack_line(frame) for frame in reversed(self.frames))

    @property
    def line(self) -> StackLine | None:
        """The innermost line of the user's code; None if no frame is of it."""
        frame_of_user = next(((code, place) for code, place in self.frames if is_users(code.co_filename)), None)
        return stack_line(frame_of_user) if frame_of_user else None


@functools.lru_cache(maxsize=4096)
def stack_line(frame: Frame) -> StackLine:
    """Return the source line that a frame stood at: that of its instruction, or the first of its function if the
    instruction has none."""
    code, instruction = frame
    line = next(
        (line for start, end, line in code.co_lines() if start <= instruction < end and line), code.co_firstlineno
    )
    return StackLine(code.co_filename, line, code.co_qualname)


CALL = code_of_calls()
"""The frame in which torch runs a module's forward. Its variables are looked at, and never those of the user's frames:
that would make a copy of them, which keeps tensors alive."""


def running_modules(frame: FrameType | None) -> tuple[weakref.ref[nn.Module], ...]:
    """Return the modules whose forward is running at `frame` and its callers, the innermost first."""
    modules = []
    while frame is not None:
        if frame.f_code is CALL:
            variables = frame.f_locals
            modules.append(weakref.ref(variables["self"]))
            if sys.version_info < (3, 13):  # the frame keeps this dictionary, and so what it holds
                variables.clear()
        frame = frame.f_back
    return tuple(modules)


def stack_frames(frame: FrameType | None, whole: bool) -> Frames:
    """Return the frames of the stack that ends at `frame`, innermost first, at most DEEPEST: the `whole` stack, or the
    part up to the first frame of the user's code, which is enough for a line."""
    frames: list[Frame] = []
    while frame is not None and len(frames) < DEEPEST:
        code = frame.f_code
        frames.append((code, frame.f_lasti))
        if not whole and is_users(code.co_filename):
            break
        frame = frame.f_back
    return tuple(frames)
