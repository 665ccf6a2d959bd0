"""Pairs and Captures: a forward and a backward tied by the saved ports, and the result of one capture call."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from backprint.graph.graphs import Graph, Port, Source
from backprint.graph.keys import PortKey
from backprint.graph.origin import GONE, Origin
from backprint.graph.recipes import UNFITTED, InputRecipes
from backprint.graph.shown import in_a_line, number_of
from backprint.graph.verdicts import verdict_text

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from backprint.graph.verdicts import Verdict
    from backprint.web_page import WebPage

T = TypeVar("T")


class Deferred(Generic[T]):
    """A value that is made at its first use, and only once: a sample's graph is parsed only if it is needed."""

    __slots__ = ("_make", "_value")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make
        self._value: T | None = None

    @property
    def known(self) -> T | None:
        """The value, if it was made; None before."""
        return self._value

    def get(self) -> T:
        if self._make is not None:
            self._value = self._make()
            self._make = None
        return self.known  # type: ignore[return-value]  # set by the line above, and T may itself be optional


class Pair:
    """A forward Graph and its backward Graph (None where nothing is differentiable), tied by the saved ports."""

    __slots__ = ("_backward", "_forward", "name")

    def __init__(
        self,
        name: str,
        forward: Graph | Deferred[Graph],
        backward: Graph | Deferred[Graph] | Deferred[Graph | None] | None = None,
    ) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "_forward", forward)
        object.__setattr__(self, "_backward", backward)

    def __setattr__(self, key: str, value: object) -> None:
        raise AttributeError(f"a Pair is never edited in place (setting {key!r}): make a new one")

    name: str
    _forward: Graph | Deferred[Graph]
    _backward: Graph | Deferred[Graph] | Deferred[Graph | None] | None

    @property
    def forward(self) -> Graph:
        """The forward Graph."""
        side = self._forward
        return side.get() if isinstance(side, Deferred) else side

    @property
    def backward(self) -> Graph | None:
        """The backward Graph; None where no output requires grad."""
        side = self._backward
        return side.get() if isinstance(side, Deferred) else side

    @property
    def saved(self) -> tuple[Port, ...]:
        """The ports that the forward keeps for the backward."""
        return tuple(port for port in self.forward.outputs if port.role == "saved")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pair) and (self.name, self.forward, self.backward) == (
            other.name,
            other.forward,
            other.backward,
        )

    def __hash__(self) -> int:
        return hash((self.name, self.forward, self.backward))

    def __repr__(self) -> str:
        parts = [("forward", self._forward), ("backward", self._backward)]
        known = [(side, part.known if isinstance(part, Deferred) else part) for side, part in parts]
        sizes = [number_of(len(graph.steps), f"{side} step") for side, graph in known if isinstance(graph, Graph)]
        none = ["no backward"] if known[1][1] is None and not isinstance(self._backward, Deferred) else []
        return f"Pair({': '.join(filter(None, [in_a_line(self.name), ', '.join([*sizes, *none])]))})"


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition that a capture assumes.

    `kind` is one of `value`, `shape`, `size`, `argument`, `same`, `spec`, `flag`, `memory`, `pinned` and `alone`;
    `inputs` are the inputs that the condition depends on. The text of a `size` guard is a condition over symbols, or
    `NAME.shape[0] == EXPRESSION`; replay checks it before it runs. A `memory` guard says that the program reads where
    an input is in memory: replay compares which inputs share memory with it. An `alone` guard says which inputs the
    Capture was compared on with their captured values alone, and why: that the graphs are right on others is an
    assumption, and no proof.
    """

    kind: str
    text: str
    inputs: tuple[str, ...] = ()
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class OpaqueEdge:
    """Where autograd of the plain forward would not give the program's gradient, and why."""

    kind: str
    text: str
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """Which port of which Pair feeds which: Pairs by index, the port by its key, such as `output y` or `gradient w`.

    `target` None means a result of the whole Capture with that name; `source` None means an input of its own, passed
    through. Gradients go along an `output` link the other way, and add up if several links start at one port.
    """

    source: int | None
    port: PortKey
    target: int | None
    name: str


@dataclass(frozen=True, slots=True)
class Argument:
    """One parameter of a call: its name (`*args`, `**kwargs` with their stars), and a likeness of its argument.

    A likeness is JSON in which `{"tensor": NAME}` stands for the port of that name. `optional`: the default is the same
    value. `keyword`: it can be passed only by name.
    """

    name: str
    like: Any
    optional: bool = False
    keyword: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """How a call's arguments and results map to ports.

    `arguments` are the callable's parameter names; `leaves` the non-tensor leaves that are constants of the capture, as
    text; `call` the value of each parameter (None where no call was read: a part, a recorded step, a sample of format
    1). `output` is a JSON-like tree whose leaves are `{"port": name}` or `{"value": repr}`; `differentiable` are the
    outputs that have tangents; `same` the pairs of names that one tensor was passed under; `aliases` the pairs that
    share memory, and how many bytes after the first the second begins.
    """

    arguments: tuple[str, ...] = ()
    leaves: tuple[tuple[str, str], ...] = ()
    output: Any = None
    differentiable: tuple[str, ...] = ()
    same: tuple[tuple[str, str], ...] = ()
    loss: str = ""
    call: tuple[Argument, ...] | None = None
    aliases: tuple[tuple[str, str, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class Capture:
    """The result of one capture call: Pairs in the order they ran, the engine, and the environment they were traced
    in."""

    name: str
    engine: str
    pairs: tuple[Pair, ...]
    signature: Signature = Signature()
    links: tuple[Link, ...] = ()
    breaks: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    guards: tuple[Guard, ...] = ()
    opaque: tuple[OpaqueEdge, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    requires: tuple[str, ...] = ()
    seed: int = 0
    fake: bool = False
    pins: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    claims: tuple[Mapping[str, Any], ...] | None = field(default=None, compare=False, repr=False)
    recipes: InputRecipes = field(default=UNFITTED, compare=False, repr=False)
    witness: Mapping[str, Mapping[str, Any]] | None = field(default=None, compare=False, repr=False)
    verdict: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    origin: Origin = field(default=GONE, compare=False, repr=False)

    def __str__(self) -> str:
        return "\n\n".join(str(graph) for pair in self.pairs for graph in (pair.forward, pair.backward) if graph)

    def __repr__(self) -> str:
        engine = f"{self.engine}{', fake' if self.fake else ''}"
        proof = verdict_text(self.verdict) if self.verdict else "not verified"
        return f"Capture({in_a_line(self.name)}: {number_of(len(self.pairs), 'pair')}, engine {engine}, {proof})"

    if TYPE_CHECKING:  # bound in backprint.api, which joins the rooms

        def save(
            self,
            path: str | os.PathLike[str],
            data: str = "seed",
            *,
            allow: Sequence[str] = (),
            overwrite: bool = False,
            layout: str = "backprint",
            evaluation: Capture | None = None,
            power: str = "quick",
        ) -> Path:
            """Write the Capture as a sample, and return its path."""

        def release(self) -> None:
            """Drop the captured program and its arguments."""

        def verify(
            self, draws: Sequence[str] | None = None, *, twin: Twin | None = None, trace: Capture | bool = False
        ) -> list[Verdict]:
            """Prove every Pair against the original program."""

        def inputs(self) -> dict[str, Tensor]:
            """Return the tensors that its recipes make, by the program's own names."""

        def observed(self) -> dict[tuple[int, int, str], Any]:
            """Run it on its own inputs, and return statistics of each value that its graphs compute."""

        def draw(self, path: str | os.PathLike[str], *, pair: int = 0, nodes: int = 300, scale: float = 2.0) -> Path:
            """Draw a Pair as a picture, and return its path."""

        def view(self, path: str | os.PathLike[str] | None = None, *, stats: bool = False) -> WebPage:
            """Make the page of the Capture."""


Call: TypeAlias = "tuple[Callable[..., Any], tuple[Any, ...]]"
CallByName: TypeAlias = "tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]"
Twin: TypeAlias = "Capture | Call | CallByName"
"""A fake Capture's program in small: a Capture of it, `(model, args)` or `(model, args, kwargs)`."""
