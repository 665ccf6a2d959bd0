"""The words of verdicts, and whether a check was a proof.

Every place that calls something proved uses `has_proof`: a Verdict, `verify`, `power`, `show`, a run's progress and
status, and its report. So they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backprint.graph.keys import PortKey
from backprint.graph.shown import in_a_line, number_of


@dataclass(frozen=True, slots=True)
class Word:
    """The meaning of one verdict, and its color. `equal` says that all ports compared equal."""

    meaning: str
    color: str
    equal: bool = False


WORDS: Mapping[str, Word] = {
    "bitwise": Word("every port equal to the bit", "green", True),
    "undifferentiable": Word("no output requires grad; the forward is kept, and compared equal", "cyan", True),
    "close": Word("equal within the tolerance; the errors and the tolerance are given", "cyan", True),
    "unproven": Word("not compared, and why; never good", "yellow"),
    "wrong": Word("not equal", "red"),
    "failed": Word("it did not run; the cause is given", "red"),
}
"""The verdicts, from best to worst."""

VERDICTS = tuple(WORDS)
GOOD = frozenset(name for name, word in WORDS.items() if word.equal)
"""What compared equal, be it a forward alone."""

REFUTED = frozenset({"wrong", "failed"})
"""What did not compare equal, or did not run."""

UNSTEADY = "the program does not return the same twice under one seed"
"""The detail of a port that could not be compared, because the program moves on by itself."""

PROVED = GOOD - {"undifferentiable"}
"""What compared equal, forward and backward."""


def rank(verdict: str) -> int:
    """Return the place of a verdict from best to worst; an unknown word comes last."""
    return VERDICTS.index(verdict) if verdict in WORDS else len(VERDICTS)


def worst(verdicts: list[str]) -> str:
    """Return the worst of several verdicts; without any, it is never a pass."""
    return max(verdicts, key=rank, default="unproven")


def has_proof(verdict: str, power: object, without: Sequence[str]) -> bool:
    """Whether a check is a proof of every port: all compared equal, the power was measured, and every port has
    power."""
    return verdict in GOOD and power is not None and not without


def without_power(verdict: str, power: object, without: Sequence[str]) -> str:
    """Say in a few words why a check that compared equal is not a proof; '' if it is one, or did not compare equal."""
    if verdict not in GOOD or has_proof(verdict, power, without):
        return ""
    return ports_without(len(without)) if without else "power not measured"


def standing(stored: Mapping[str, Any] | None) -> tuple[str, object, Sequence[str]]:
    """Return the word, the power and the ports without power of a stored verdict: the arguments of `has_proof`."""
    said = stored or {}
    return str(said.get("verdict", "none")), said.get("power"), said.get("vacuous") or ()


def verdict_text(stored: Mapping[str, Any] | None) -> str:
    """Return a stored verdict as text, with the reason and the first ports if it is not a proof."""
    word, power, vacuous = standing(stored)
    why = without_power(word, power, vacuous)
    ports = f" ({', '.join(vacuous[:3])}{', …' if len(vacuous) > 3 else ''})" if vacuous else ""
    return f"{word}, no proof: {why}{ports}" if why else word


def ports_without(count: int) -> str:
    """Return the number of ports without power as text."""
    return f"{count} {'port' if count == 1 else 'ports'} without power"


PROGRAM, REDRAWN = "the program", "the program on redrawn inputs"
DIGESTS, AUTOGRAD = "digests of an earlier run", "autograd of the forward"
KERNELS_EAGER = "the captured graph in eager"
"""The witnesses that a port can have; '' is none, and such a port is `unproven`."""


@dataclass(frozen=True, slots=True)
class PortVerdict:
    """One output, mutation or gradient, compared with its witness, which it names.

    `power` is how far the port moves, in tolerances, when inputs are redrawn.
    """

    name: str
    role: str
    verdict: str
    detail: str = ""
    error: float = 0.0
    power: float | None = None
    witness: str = ""

    @property
    def key(self) -> PortKey:
        """The key of the port."""
        return PortKey(self.role, self.name)

    def __str__(self) -> str:
        return f"{self.key}: {self.detail}"

    def __repr__(self) -> str:
        detail = f", {in_a_line(self.detail)}" if self.detail else ""
        return f"PortVerdict({self.verdict}: {in_a_line(str(self.key))}{detail})"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of checking one Pair: the worst of its ports.

    `power` is that of the port that moved least when inputs were redrawn; None if nothing was measured, or nothing can
    move. `vacuous` are the ports without power: those that no redraw moved by a tolerance.
    """

    verdict: str
    name: str
    detail: str = ""
    ports: tuple[PortVerdict, ...] = ()
    power: float | None = None
    vacuous: tuple[str, ...] = ()

    def __repr__(self) -> str:
        detail = f", {in_a_line(self.detail)}" if self.detail else ""
        return f"Verdict({self.verdict}: {in_a_line(self.name)}, {number_of(len(self.ports), 'port')}{detail})"

    @property
    def good(self) -> bool:
        """Whether the Pair is proven, or has nothing to prove."""
        return self.verdict in GOOD

    @property
    def proof(self) -> bool:
        """Whether the Verdict is good and every port has power: a check of a port that nothing moves proves nothing."""
        return has_proof(self.verdict, self.power, self.vacuous)


@dataclass(frozen=True, slots=True)
class Proofs:
    """How many of several samples have a proof, with a backward and forward only, and those that have none.

    `without` are the samples that compared equal and have no proof, with their ports without power.
    """

    proved: int
    of: int
    forwards: int
    of_forwards: int
    without: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def ports(self) -> int:
        """The number of ports without power."""
        return sum(len(ports) for _, ports in self.without)

    def told(self) -> str:
        """Return the same in one line."""
        said = [f"{self.proved:,} of {self.of:,} that are done and differentiable"]
        if self.of_forwards:
            said.append(f"{self.forwards:,} of {self.of_forwards:,} forwards alone")
        known = sum(bool(ports) for _, ports in self.without)
        if known:
            said.append(f"{ports_without(self.ports)} in {known:,} that compared equal")
        if known < len(self.without):
            said.append(f"the power of {len(self.without) - known:,} was not measured")
        return "; ".join(said)


def proofs(rows: Iterable[tuple[str, str, object, Sequence[str]]]) -> Proofs:
    """Return the Proofs of finished samples: of each its name, verdict, power and ports without power."""
    proved, of, forwards, of_forwards = 0, 0, 0, 0
    without = []
    for name, verdict, power, still in rows:
        sound = has_proof(verdict, power, still)
        if verdict == "undifferentiable":
            forwards, of_forwards = forwards + sound, of_forwards + 1
        else:
            proved, of = proved + sound, of + 1
        if verdict in GOOD and not sound:
            without.append((name, tuple(still)))
    return Proofs(proved, of, forwards, of_forwards, tuple(without))
