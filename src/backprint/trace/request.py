"""The result of every engine: an EngineResult, the Pairs with everything that a Capture needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from torch import Tensor

from backprint.errors import CaptureError
from backprint.graph.nouns import Guard, Link, OpaqueEdge, Pair
from backprint.trace.program import ObservedProgram, Outcome
from backprint.trace.witness import run_step
from backprint.values.results import ResultTree


class HasCheckpoints(CaptureError):
    """A program without values (`fake=True`) uses activation checkpoints, which AOTAutograd does not trace. Engine
    `eager` is asked next."""


CONTROL_FLOW = "control flow"
"""A control flow operator (`torch.cond`, `map`) was recorded as the operators that its body ran."""
COMPILED = "compiled"
"""The program is a function that `torch.compile` has compiled, and was recorded as it runs uncompiled."""
VIEW_UPDATE = "view update"
"""The program updates a view in place, and autograd's backward of that scatters the gradient of the view into one of
the whole base (`CopySlices`)."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why another engine may capture a program better: the cause (CONTROL_FLOW, VIEW_UPDATE), and the reason as a text
    for the user, with the line."""

    cause: str
    reason: str


@dataclass(frozen=True, slots=True)
class EngineResult:
    """The result of an engine: the Pairs of a program, and what a Capture needs besides.

    The result's tensors are those that the program returns. `outputs` names them in order, and `differentiable` the
    outputs that have tangents. `tree` and `leaves` are the structure of what it returns, with `A_TENSOR` in the place
    of each tensor. `constants` are the tensors of constant ports. `tangents` has an example for each sparse output with
    a tangent, because a spec does not say where its values are. `guards`, `opaque` (edges), `links` and `breaks` (graph
    breaks) are as in a Capture. `parts` has the program of each Pair, if there are several. `outcome` is the Outcome of
    the recorded run, if there was one. `unguarded` are reads of values that no guard checks. `doubts` name parts that
    another engine may express better. `notes` say how the graphs were made. `groups` has the ranks of each process
    group in which a collective of the graphs runs.
    """

    program: ObservedProgram
    pairs: tuple[Pair, ...]
    outputs: tuple[str, ...]
    differentiable: tuple[str, ...]
    tree: ResultTree
    leaves: tuple[Any, ...]
    constants: Mapping[str, Tensor] = field(default_factory=dict)
    tangents: Mapping[str, Tensor] = field(default_factory=dict)
    guards: tuple[Guard, ...] = ()
    opaque: tuple[OpaqueEdge, ...] = ()
    links: tuple[Link, ...] = ()
    breaks: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    outcome: Outcome | None = None
    unguarded: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    notes: tuple[str, ...] = ()
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """The program behind one of several Pairs, as the reference of that Pair alone. `outputs` are the port names of
    what it returns, in order. `partial` is as in `Origin`: it runs on any values, not on recorded ones only."""

    program: ObservedProgram
    outputs: tuple[str, ...]
    partial: ClassVar[bool] = False

    def run_step(self, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor] | None) -> Outcome:
        """Run one eager step on these values, which have port names; without tangents, the backward starts from
        ones."""
        # A part returns a tuple, so its program names outputs by number: `output.0`.
        name_by_number = {f"output.{index}": name for index, name in enumerate(self.outputs)}
        numbered_tangents = tangents and {
            number: tangents[name] for number, name in name_by_number.items() if name in tangents
        }
        # `values` may have tensors of other Pairs, and may lack some of this one, which are then as captured.
        known = {named.name for named in self.program.tensors}
        given = {name: tensor for name, tensor in values.items() if name in known}
        others = {name: tensor for name, tensor in self.program.current_tensors().items() if name not in values}
        outcome = run_step(self.program, {**others, **given}, numbered_tangents)
        return replace(outcome, outputs={name_by_number[number]: tensor for number, tensor in outcome.outputs.items()})
