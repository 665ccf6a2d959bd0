"""Verdicts, and the power that makes a check a proof.

Whatever is called proved is decided by `has_proof`: a Verdict, `verify`, `power`, `show`, the progress, the status and
the report of a run. So they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backprint.graph.keys import PortKey, in_a_line, number_of

# ---- The words of verdicts


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
    row = stored or {}
    return str(row.get("verdict", "none")), row.get("power"), row.get("vacuous") or ()


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


# ---- Whether a backward is the derivative of its forward: a word of its own, beside the verdict

DERIVATIVE, NOT_THE_DERIVATIVE, CANNOT_TELL = "derivative", "not the derivative", "cannot tell"
"""What is known of a backward: it is the derivative of its forward, it is not, or nothing was found out."""


@dataclass(frozen=True, slots=True)
class WrongGradient:
    """A place where a backward is not the derivative: the operators of the forward whose gradients are wrong.

    `function` names the custom autograd.Function or the `detach` that the place is, if it is one. `lines` are those of
    the backward that computed the wrong gradients, as `file.py:8`, and `at` that of the forward. `gradients` has, for
    each value that the operators take, how far its gradient is from the right one, relative to its size: 1 for one
    that is missing. `times` is how often the place comes, as in a loop.
    """

    operators: tuple[str, ...]
    at: str
    code: str
    lines: tuple[str, ...]
    gradients: tuple[tuple[str, float], ...]
    function: str = ""
    times: int = 1

    def __str__(self) -> str:
        wrong = ", ".join(f"{name} by {error:.1e}" for name, error in self.gradients if error > 0)
        place = self.function or ", ".join(dict.fromkeys(self.operators))
        lines = f"; its backward is {', '.join(self.lines)}" if self.lines else ""
        times = f" ({self.times} times)" if self.times > 1 else ""
        return f"{place} at {self.at}{times}: the gradient is wrong for {wrong or 'what it takes'}{lines}"


@dataclass(frozen=True, slots=True)
class Derivative:
    """Whether the backward of a Pair is the derivative of its forward, and how that was found out.

    `gap` is the distance of ⟨g, J·v⟩ and ⟨Jᵀ·g, v⟩ relative to their terms, the least of `draws` draws. `ones` is the
    gap for tangents of ones, where the backward is wrong. `left_out` are gradients that were not compared, with the
    reason. `wrong` are the places where the backward is wrong, and `rest_is_right` says that everything else is the
    derivative. `meant` are the places that the author named: the backward is meant to differ there.
    """

    word: str
    name: str
    detail: str = ""
    gap: float | None = None
    draws: int = 0
    ones: float | None = None
    by_second_derivative: tuple[str, ...] = ()
    by_differences: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    ports: tuple[str, ...] = ()
    wrong: tuple[WrongGradient, ...] = ()
    meant: tuple[str, ...] = ()
    rest_is_right: bool = False

    @property
    def good(self) -> bool:
        """Whether the backward is the derivative, except where its author means it to differ."""
        return self.word.startswith(DERIVATIVE)

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.word}" + (f" ({self.detail})" if self.detail else "")]
        return "\n  ".join([*lines, *map(str, self.wrong)])

    def __repr__(self) -> str:
        detail = f", {in_a_line(self.detail)}" if self.detail else ""
        return f"Derivative({self.word}: {in_a_line(self.name)}{detail})"


# ---- Verdicts


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of checking one Pair: the worst of its ports.

    `power` is that of the port that moved least when inputs were redrawn; None if nothing was measured, or nothing can
    move. `vacuous` are the ports without power: those that no redraw moved by a tolerance. `derivative` says whether
    the backward is the derivative of the forward, if that was asked: a word of its own, which no verdict implies.
    """

    verdict: str
    name: str
    detail: str = ""
    ports: tuple[PortVerdict, ...] = ()
    power: float | None = None
    vacuous: tuple[str, ...] = ()
    derivative: Derivative | None = None

    def __repr__(self) -> str:
        detail = f", {in_a_line(self.detail)}" if self.detail else ""
        word = f"{self.verdict}, {self.derivative.word}" if self.derivative is not None else self.verdict
        return f"Verdict({word}: {in_a_line(self.name)}, {number_of(len(self.ports), 'port')}{detail})"

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
        """Return the numbers of proofs in one line."""
        counts = [f"{self.proved:,} of {self.of:,} that are done and differentiable"]
        if self.of_forwards:
            counts.append(f"{self.forwards:,} of {self.of_forwards:,} forwards alone")
        known = sum(bool(ports) for _, ports in self.without)
        if known:
            counts.append(f"{ports_without(self.ports)} in {known:,} that compared equal")
        if known < len(self.without):
            counts.append(f"the power of {len(self.without) - known:,} was not measured")
        return "; ".join(counts)


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


# ---- Power: how far results move, in tolerances, when inputs are redrawn (`replaying/power.py` measures it)
# A check of a port that no input moves proves nothing about it.

STATE = ("parameter", "buffer", "constant")
"""How the names of trials begin that draw no input of the program's own again."""


Moved = tuple[tuple[str, float], ...]
"""How far ports moved, in tolerances, a port by its key as `output y`."""


def least_power(moved: Iterable[tuple[str, float]]) -> float | None:
    """Return the smallest movement of the ports; None if none was measured."""
    return min((by for _, by in moved), default=None)


def unmoved_ports(moved: Iterable[tuple[str, float]]) -> tuple[str, ...]:
    """Return the ports without power: they moved by less than a tolerance, so a check of them proves nothing."""
    return tuple(port for port, by in moved if by < 1)


@dataclass(frozen=True, slots=True)
class Trial:
    """One redraw: how far, in tolerances, each port moved that depends on the redrawn inputs.

    `null` are the ports with a path but no dependence; `open` those for which this was not tested, because others show
    that a check sees the redraw. `untried` says why the inputs could not be redrawn.
    """

    name: str
    inputs: tuple[str, ...]
    moved: Moved = ()
    null: tuple[str, ...] = ()
    untried: str = ""
    open: tuple[str, ...] = ()

    @property
    def weakest(self) -> tuple[str, float] | None:
        """The dependent port that moved least, and how far."""
        return min(self.moved, key=lambda row: row[1], default=None)

    @property
    def weak(self) -> tuple[str, ...]:
        """The dependent ports that moved less than one tolerance."""
        return unmoved_ports(self.moved)

    @property
    def silent(self) -> tuple[str, ...]:
        """The sides with dependent ports of which none moved by a tolerance."""
        most: dict[str, float] = {}
        for port, by in self.moved:
            side = side_of(PortKey.from_text(port))
            most[side] = max(by, most.get(side, 0.0))
        return tuple(side for side, by in most.items() if by < 1)

    @property
    def dead(self) -> bool:
        """Whether ports depend on it, and none moved."""
        return bool(self.moved) and all(by < 1 for _, by in self.moved)

    @property
    def hidden(self) -> bool:
        """Whether a check would not see it: nothing moved, or for the program's own inputs, nothing on one side."""
        return self.dead or (bool(self.silent) and not self.name.startswith(STATE))


@dataclass(frozen=True, slots=True)
class Power:
    """The power of a Capture's ports: the trials, how many single inputs were redrawn, and of how many.

    `most` is each port's power: its largest movement in the standard redraws. `parts` is the same for each of several
    linked Pairs. A port that is None, has no elements, or depends on no input is left out.
    """

    trials: tuple[Trial, ...]
    tried: int = 0
    of: int = 0
    most: Moved = ()
    parts: tuple[Moved, ...] = ()

    @property
    def value(self) -> float | None:
        """The smallest power of the ports."""
        return least_power(self.most)

    @property
    def vacuous(self) -> tuple[str, ...]:
        """The ports without power: nothing moves them, even if nothing could. A check of them proves nothing."""
        return unmoved_ports(self.most)

    @property
    def hidden(self) -> tuple[str, ...]:
        """The redraws that a check would not see."""
        return tuple(trial.name for trial in self.trials if trial.hidden)

    @property
    def dead_ports(self) -> tuple[str, ...]:
        """The ports that depend on inputs, and that none of these moves."""
        bound: dict[str, float] = {}
        for trial in self.trials:
            bound |= {port: max(by, bound.get(port, 0.0)) for port, by in trial.moved}
        return unmoved_ports(bound.items())

    @property
    def weak(self) -> tuple[tuple[str, str], ...]:
        """Each redraw with a dependent port that does not show it."""
        return tuple((trial.name, port) for trial in self.trials for port in trial.weak)

    @property
    def silent(self) -> tuple[tuple[str, str], ...]:
        """Each redraw with the side, `forward` or `backward`, that depends on it and does not show it."""
        return tuple((trial.name, side) for trial in self.trials for side in trial.silent)

    @property
    def reacts(self) -> bool:
        """Whether a check sees every redraw, and every dependent port moves.

        For a parameter or a buffer some output or gradient must show it; for the program's own inputs, both sides.
        """
        return bool(self.most) and not self.hidden and not self.dead_ports


def side_of(key: PortKey) -> str:
    """Return the direction of a result."""
    return "backward" if key.role == "gradient" else "forward"
