"""What a Capture knows of its program: while the program lives, it is the oracle of every proof.

Each maker of Captures passes an Origin: a traced program, a recorded step, a part of a Capture. A Capture that was read
from disk has `GONE`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from backprint.errors import ReplayError
from backprint.graph.structure import filled
from backprint.graph.verdicts import PortVerdict

if TYPE_CHECKING:
    from torch import Tensor

    Tensors = Mapping[str, Tensor]


class StepResults(Protocol):
    """The results of one step of a program: outputs by name, gradients and mutations by the program's own names."""

    @property
    def outputs(self) -> Tensors: ...

    @property
    def gradients(self) -> Mapping[str, Tensor | None]: ...

    @property
    def mutations(self) -> Tensors: ...


class Oracle(Protocol):
    """A program that runs on values by name. A `partial` one only has its recorded results: it runs on the recorded
    values."""

    @property
    def partial(self) -> bool: ...

    def run_step(self, values: Tensors, tangents: Tensors | None) -> StepResults:
        """Run one eager step; without tangents, from ones."""


class Origin(Oracle, Protocol):
    """The program behind a Capture, its arguments, and the options of its capture."""

    @property
    def alive(self) -> bool:
        """Whether the program still exists."""

    @property
    def traced_here(self) -> bool:
        """Whether this process traced the graphs, so that they can be trusted."""

    @property
    def asked(self) -> Mapping[str, Any]:
        """The options of the capture call."""

    @property
    def constants(self) -> Tensors:
        """The tensors behind the Capture's constant ports."""

    @property
    def tangents(self) -> Tensors:
        """The tangents of the recorded backward, for outputs whose specs are not enough to draw them."""

    @property
    def parts(self) -> Sequence[Oracle]:
        """The program behind each of several Pairs; empty if only the whole can run."""

    @property
    def doubts(self) -> tuple[PortVerdict, ...]:
        """The ports that were not bitwise when the Capture was made: no later verdict may be better."""

    def values(self) -> dict[str, Tensor]:
        """Return every named tensor as captured."""

    def live(self) -> dict[str, Tensor]:
        """Return the same, with parameters, buffers and constants as they are now."""

    def objects(self) -> Mapping[str, Sequence[Any]]:
        """Return, by parameter, the values of the call that can be compared only by identity."""

    def run_step(self, values: Tensors, tangents: Tensors | None, anew: bool = False) -> StepResults:
        """Run one eager step of the program; with `anew`, in other tensors than its own arguments."""

    def restoring(self) -> AbstractContextManager[None]:
        """Remember everything that the program reaches once, and restore it at the end of the block."""

    def rebuild(self, structure: Any, named: Tensors) -> Any:
        """Return the outputs in the program's containers, or in those of the signature's `structure` if they are
        lost."""

    def differs(self) -> str:
        """Say where the non-tensor results of the last run differ from those of the Capture; '' if nowhere."""

    def chance(self) -> dict[str, str]:
        """Return the current digests of the states, other than torch's, that the program's numbers depend on."""

    def release(self) -> None:
        """Drop the program and its arguments."""


class TracedOrigin(Origin, Protocol):
    """A program that an engine has just traced, and that its Capture is compared with."""

    @property
    def unheld(self) -> Sequence[str]:
        """The reads of the program that no guard can check."""

    @property
    def first(self) -> Tensors:
        """The outputs of a run before the one that was traced; empty if there was none."""

    @property
    def aliased(self) -> bool:
        """Whether the program ran on aliases of its arguments."""

    def step_alone(self, values: Tensors, anew: bool) -> StepResults:
        """Run one eager step in the caller's own tensors, or in others; none requires grad by default."""

    def drawn_from(self) -> str:
        """Return the program's own generators that it draws from, torch's left out; '' if there are none."""


class FixedOrigin(Origin):
    """An Origin without a Python program: nothing changes, and nothing must be restored."""

    alive = True
    partial = False
    traced_here = True
    asked: Mapping[str, Any] = MappingProxyType({})
    constants: Tensors = MappingProxyType({})
    tangents: Tensors = MappingProxyType({})
    parts: Sequence[Oracle] = ()
    doubts: tuple[PortVerdict, ...] = ()

    def live(self) -> dict[str, Tensor]:
        return self.values()

    def objects(self) -> Mapping[str, Sequence[Any]]:
        return {}

    def restoring(self) -> AbstractContextManager[None]:
        return nullcontext()

    def rebuild(self, structure: Any, named: Tensors) -> Any:
        return filled(structure, named)

    def differs(self) -> str:
        return ""

    def chance(self) -> dict[str, str]:
        return {}

    def release(self) -> None:
        """Do nothing: the values are the only oracle."""


class Gone(FixedOrigin):
    """The Origin of a Capture from disk: its program is gone."""

    alive = False
    traced_here = False

    def values(self) -> dict[str, Tensor]:
        raise ReplayError("the program is gone, and its values with it")

    def run_step(self, values: Tensors, tangents: Tensors | None, anew: bool = False) -> StepResults:
        raise ReplayError("the program is gone, so it cannot run")


GONE: Origin = Gone()
