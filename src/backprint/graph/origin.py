"""What a Capture knows of the program that it was made of: while that lives, it is the oracle of every proof.

Who makes a Capture gives it an Origin: a traced program, a recorded step, a part of a Capture. A Capture that was read
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
    """What one step of a program gave: outputs by name, gradients and mutations by the program's own names."""

    @property
    def outputs(self) -> Tensors: ...

    @property
    def gradients(self) -> Mapping[str, Tensor | None]: ...

    @property
    def mutations(self) -> Tensors: ...


class Oracle(Protocol):
    """A program that runs on values by name. A `partial` one kept its results: it runs on the values that it had."""

    @property
    def partial(self) -> bool: ...

    def run_step(self, values: Tensors, tangents: Tensors | None) -> StepResults:
        """One eager step; without tangents, from ones."""


class Origin(Oracle, Protocol):
    """The program behind a Capture, its arguments, and what was asked for when it was captured."""

    @property
    def alive(self) -> bool:
        """Whether the program still exists."""

    @property
    def traced_here(self) -> bool:
        """Whether this process traced the graphs, so that they are no stranger's word."""

    @property
    def asked(self) -> Mapping[str, Any]:
        """The options of the capture call."""

    @property
    def constants(self) -> Tensors:
        """The tensors behind the Capture's constant ports."""

    @property
    def tangents(self) -> Tensors:
        """The tangents that the backward was recorded with, where their specs do not say how to draw them."""

    @property
    def parts(self) -> Sequence[Oracle]:
        """The program behind each of several Pairs; none where only the whole can run."""

    @property
    def doubts(self) -> tuple[PortVerdict, ...]:
        """The ports that were not bitwise when the Capture was made: no later verdict may be better."""

    def values(self) -> dict[str, Tensor]:
        """Every named tensor as captured."""

    def live(self) -> dict[str, Tensor]:
        """The same, with parameters, buffers and constants as they are now."""

    def objects(self) -> Mapping[str, Sequence[Any]]:
        """By parameter, the values of the call that can be compared with themselves alone."""

    def run_step(self, values: Tensors, tangents: Tensors | None, anew: bool = False) -> StepResults:
        """One eager step of the program; `anew`, in other tensors than its own arguments."""

    def restoring(self) -> AbstractContextManager[None]:
        """While the program runs, everything that it reaches is remembered once, and put back at the end."""

    def rebuild(self, structure: Any, named: Tensors) -> Any:
        """The outputs as the program gives them; `structure` is the signature's, for whom has lost its containers."""

    def chance(self) -> dict[str, str]:
        """The digests, as they are now, of the states that the program's numbers depend on beside torch's."""

    def release(self) -> None:
        """Let go of the program and its arguments."""


class TracedOrigin(Origin, Protocol):
    """A program that an engine has just traced, and that is held against its Capture."""

    @property
    def unheld(self) -> Sequence[str]:
        """What the program read and no guard can hold."""

    @property
    def aliased(self) -> bool:
        """Whether the program ran on aliases of its arguments."""

    def differs(self) -> str:
        """Where the last run gave something else than a tensor that is not what the Capture gives; '' where nowhere."""

    def step_alone(self, values: Tensors, anew: bool) -> StepResults:
        """One eager step in the caller's very tensors, or in others; none is asked for a gradient by default."""

    def drawn_from(self) -> str:
        """The generators of its own that the program draws from, beside torch's; '' where there are none."""


class FixedOrigin(Origin):
    """The answers of an Origin that has no Python program: nothing changes, and nothing has to be put back."""

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

    def chance(self) -> dict[str, str]:
        return {}

    def release(self) -> None:
        """The values stay: there is no other oracle."""


class Gone(FixedOrigin):
    """A program that is gone: what a Capture from disk has."""

    alive = False
    traced_here = False

    def values(self) -> dict[str, Tensor]:
        raise ReplayError("the program is gone, and its values with it")

    def run_step(self, values: Tensors, tangents: Tensors | None, anew: bool = False) -> StepResults:
        raise ReplayError("the program is gone, so it cannot run")


GONE: Origin = Gone()
