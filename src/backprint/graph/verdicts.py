"""Verdicts, and the power that makes a check a proof.

`has_proof` alone decides whether a check is called a proof. A Verdict, the commands `verify` and `show`, and
the progress, status and report of a run all call it, so they cannot disagree.

Words of this file:

- A *check* runs the graphs of a Pair (a forward and its backward) and compares each *port* that they return, an output,
  a mutation or a gradient, with a *witness*: the same result of the program itself, or of another reference.
- *Power*: how far a port moves when inputs are redrawn (given other values), in *tolerances*, the difference that the
  comparison would still let pass. A port that moves by less than one is *powerless*, *vacuous*, without power: a wrong
  value of an input would go unnoticed there.
- A *stored* verdict is a Verdict as JSON, as a sample keeps it: `verdict` is its word, `vacuous` has its ports without
  power, and `judge` the version of the rule of closeness (`judge`) that it was made by.
- A *tangent* is the gradient of an output with which a backward starts.
- A *trial* is one redraw of inputs: `moved` has how far each port moved that depends on them, as pairs of the text of
  the port's key (`output y`) and a number of tolerances.

`in_a_line` and `number_of` (`keys`) make text for messages: a name cut to a short line, and a number with its noun.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from backprint.graph.keys import PortKey, in_a_line, number_of
from backprint.judge import VERSION

# ---- The words of verdicts


@dataclass(frozen=True, slots=True)
class _Word:
    """What one word of a verdict means, and its color on a terminal. `equal` says that all ports compared equal."""

    meaning: str
    color: str
    equal: bool = False


WORDS: Mapping[str, _Word] = {
    "bitwise": _Word("every port equal to the bit", "green", equal=True),
    "undifferentiable": _Word("no output requires grad; the forward is kept, and compared equal", "cyan", equal=True),
    "close": _Word("equal within the tolerance; the errors and the tolerance are given", "cyan", equal=True),
    "unproven": _Word("not compared, and why; never good", "yellow"),
    "wrong": _Word("not equal", "red"),
    "failed": _Word("it did not run; the cause is given", "red"),
}
"""The verdicts, from best to worst."""

VERDICTS = tuple(WORDS)
GOOD = frozenset(name for name, word in WORDS.items() if word.equal)
"""The verdicts of results that compared equal, also of a forward without a backward."""

REFUTED = frozenset({"wrong", "failed"})
"""The verdicts of results that did not compare equal, or could not be computed."""

UNSTEADY = "the program does not return the same twice under one seed"
"""The detail of a port that could not be compared, because the program returns other results at each run."""

PROVED = GOOD - {"undifferentiable"}
"""The verdicts of a forward and a backward that compared equal."""


def rank(verdict: str) -> int:
    """Return the index of a verdict in the order from best to worst. An unknown word has the highest index."""
    return VERDICTS.index(verdict) if verdict in WORDS else len(VERDICTS)


def worst(verdicts: list[str]) -> str:
    """Return the worst of several verdicts; `unproven` if there are none, because nothing was compared."""
    return max(verdicts, key=rank, default="unproven")


def has_proof(verdict: str, power: object, powerless: Sequence[str]) -> bool:
    """Whether a check is a proof of every port: all compared equal, the power was measured (`power` is not None), and
    no port is without power: `powerless` has those that do not move when inputs are redrawn.
    """
    return verdict in GOOD and power is not None and not powerless


def why_no_proof(verdict: str, power: object, powerless: Sequence[str]) -> str:
    """Return in a few words why a check whose ports all compared equal is not a proof; '' if it is one, or if a port
    did not compare equal."""
    if verdict not in GOOD or has_proof(verdict, power, powerless):
        return ""
    return ports_without_power(len(powerless)) if powerless else "power not measured"


def proved_ports(ports: int, powerless: Sequence[str]) -> str:
    """Return in words how many of the `ports` of a check are proved, and which do not move when inputs are redrawn, the
    first three by name; it begins with `vacuous` if most do not move."""
    shown = f" ({', '.join(powerless[:3])}{', …' if len(powerless) > 3 else ''})"
    verb = "does" if len(powerless) == 1 else "do"
    counts = f"{ports - len(powerless)} of {ports} ports proved; {len(powerless)} {verb} not move{shown}"
    # A check of which most ports do not move says next to nothing of the whole.
    return f"vacuous, no proof: {counts}" if 2 * len(powerless) > ports else counts


def proof_arguments(stored: Mapping[str, Any] | None) -> tuple[str, object, Sequence[str]]:
    """Return the arguments of `has_proof` for a stored verdict: its word, its power and its ports without power."""
    row = stored or {}
    return str(row.get("verdict", "none")), row.get("power"), row.get("vacuous") or ()


def verdict_text(stored: Mapping[str, Any] | None) -> str:
    """Return a stored verdict as text: its word (`none` without a verdict), how many ports are proved if not all are,
    whether the backward is the derivative, if that is known, and the version of the judge that gave it, if not this
    one. Where NaN and Inf come from is in `nonfinite_of`."""
    word, power, vacuous = proof_arguments(stored)
    why = why_no_proof(word, power, vacuous)
    if why:
        why = proved_ports(len((stored or {}).get("ports") or vacuous), vacuous) if vacuous else f"no proof: {why}"
    derivative = ((stored or {}).get("derivative") or {}).get("word")
    given_by = (stored or {}).get("judge", 0)  # 0: saved before verdicts had it
    judge = (
        f"by version {given_by} of the judge, and this is version {VERSION}" if stored and given_by != VERSION else ""
    )
    return ", ".join(filter(None, (word, why, derivative, judge)))


def nonfinite_of(stored: Mapping[str, Any] | None) -> str:
    """Return which results of a stored verdict have NaN or Inf, and where it was first made; '' if all are finite."""
    return str((stored or {}).get("nonfinite") or "")


def ports_without_power(count: int) -> str:
    """Return a number of ports without power in words: `3 ports without power`."""
    return f"{count} {'port' if count == 1 else 'ports'} without power"


PROGRAM, REDRAWN = "the program", "the program on redrawn inputs"
DIGESTS, AUTOGRAD = "digests of an earlier run", "autograd of the forward"
KERNELS_EAGER = "the captured graph in eager"
"""The witnesses: what a port can be compared with. A port without a witness ('') is `unproven`."""


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
        """The role and the name of the port."""
        return PortKey(self.role, self.name)

    def __str__(self) -> str:
        return f"{self.key}: {self.detail}"

    def __repr__(self) -> str:
        detail = f", {in_a_line(self.detail)}" if self.detail else ""
        return f"PortVerdict({self.verdict}: {in_a_line(str(self.key))}{detail})"


# ---- Whether a backward is the derivative of its forward: a word of its own, beside the verdict

DERIVATIVE, NOT_THE_DERIVATIVE, CANNOT_TELL = "derivative", "not the derivative", "cannot tell"
"""What is known of a backward: it is the derivative of its forward, it is not, or nothing was found out."""

FROM_DISK = "not tried from disk"
"""The words before the kinds of tangents and calls that need the running program, which a sample does not have."""


@dataclass(frozen=True, slots=True)
class WrongGradient:
    """A place where a backward is not the derivative: the operators of the forward whose gradients are wrong.

    `function` names the custom autograd.Function that the place is, or says that it is a `detach`, `no_grad`, `hook` or
    `item`. `lines` are the lines of the backward that computed the wrong gradients, as `file.py:8`, and `at` is the
    line of the forward. `gradients` has, for each value that the operators take, how far its gradient is from the right
    one, relative to its size: 1 for a missing gradient. `times` is how often the place comes, as in a loop, and
    `modules` are the paths of the modules that it comes in. `names` are the names of the steps of the forward.
    """

    operators: tuple[str, ...]
    at: str
    code: str
    lines: tuple[str, ...]
    gradients: tuple[tuple[str, float], ...]
    function: str = ""
    times: int = 1
    modules: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        wrong = ", ".join(f"{name} by {error:.1e}" for name, error in self.gradients if error > 0)
        place = self.function or ", ".join(dict.fromkeys(self.operators))
        lines = f"; its backward is {', '.join(self.lines)}" if self.lines else ""
        times = f" ({self.times} times)" if self.times > 1 else ""
        others = f" and {len(self.modules) - 1} more" if len(self.modules) > 1 else ""
        module = f" in module {self.modules[0]}{others}" if self.modules else ""
        return f"{place} at {self.at}{module}{times}: the gradient is wrong for {wrong or 'what it takes'}{lines}"


@dataclass(frozen=True, slots=True)
class Derivative:
    """Whether the backward of a Pair is the derivative of its forward, and how that was found out.

    `word` is DERIVATIVE, `derivative but for …`, NOT_THE_DERIVATIVE or CANNOT_TELL, and `name` the Pair's. `gap` is the
    distance of ⟨g, J·v⟩ and ⟨Jᵀ·g, v⟩ relative to their terms, the least of `draws` draws of g and v: J·v is computed
    from the forward, Jᵀ·g by the backward. `by_second_derivative` and `by_differences` are the operators whose part of
    J·v was computed as a second derivative, or by finite differences. `ones` is the gap for tangents of ones, where the
    backward is wrong. `left_out` are gradients that were not compared, with the reason. `ports` are the gradients that
    are wrong, `wrong` the places where the backward is wrong, and `rest_is_right` says that everything else is the
    derivative. `meant` are the places that the author named: the backward is meant to differ there. `tried` are the
    kinds of tangents and calls with which the program itself ran, and `not_tried` those that could not be compared,
    with the reason.
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
    tried: tuple[str, ...] = ()
    not_tried: tuple[tuple[str, str], ...] = ()

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

    def _repr_html_(self) -> str:
        from backprint.graph.notebook import html_of_derivatives

        return html_of_derivatives([self])


class Derivatives(list[Derivative]):
    """The Derivatives of the Pairs of a Capture: a list, which a notebook shows as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from backprint.graph.notebook import html_of_derivatives

        return html_of_derivatives(self)


def worst_derivative(derivatives: Iterable[Derivative]) -> Derivative | None:
    """Return the worst Derivative of several Pairs; None if there are none.

    The worst is `not the derivative`, then `cannot tell`, then one that was meant to differ somewhere.
    """
    # `derivative but for …` has rank 1, between `cannot tell` and `derivative`: its text is no key.
    ranks = {NOT_THE_DERIVATIVE: 3, CANNOT_TELL: 2, DERIVATIVE: 0}
    return max(derivatives, key=lambda derivative: ranks.get(derivative.word, 1), default=None)


def is_word_of_derivative(word: str) -> bool:
    """Whether a text is a word of a Derivative."""
    return word in (DERIVATIVE, NOT_THE_DERIVATIVE, CANNOT_TELL) or word.startswith(f"{DERIVATIVE} but for ")


def derivative_json(derivative: Derivative) -> dict[str, Any]:
    """Return a Derivative as JSON: each wrong place as text, a gap that is not finite as text too, and the detail cut
    to 2,000 characters. `functions` has the custom autograd.Functions of these places; it is empty where one of them is
    in no Function."""
    row = asdict(derivative)
    gaps = {name: row[name] if row[name] is None else safe_number(row[name]) for name in ("gap", "ones")}
    functions = list(dict.fromkeys(place.function for place in derivative.wrong))
    return {
        **row,
        **gaps,
        "detail": derivative.detail[:2000],
        "wrong": [str(place) for place in derivative.wrong],
        "functions": functions if all(functions) else [],
    }


def safe_number(number: float) -> float | str:
    """Return a number that JSON can hold; one that is not finite as text."""
    return number if math.isfinite(number) else str(number)


def reasons_of_derivative(stored: Mapping[str, Any] | None) -> list[str]:
    """Return why a stored Derivative is not simply `derivative`: what was seen, and each wrong place. Of one that is
    `derivative`, return what was not tried, as only the running program can; nothing without a Derivative."""
    if not stored:
        return []
    if stored["word"] == DERIVATIVE:
        # The detail ends with it: `…; not tried from disk: a second call, …`.
        _, from_disk, names = stored["detail"].partition(FROM_DISK)
        return [from_disk + names] if from_disk else []
    return [text for text in (stored["detail"], *stored["wrong"]) if text]


# ---- Verdicts


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of checking one Pair: the worst of its ports.

    `power` is the power of the port that moved least when inputs were redrawn; None if nothing was measured, or nothing
    can move. `vacuous` are the ports without power: no redraw moved them by a tolerance. `derivative` says whether
    the backward is the derivative of the forward, if that was checked: a word of its own, which no verdict implies.
    `nonfinite` says which results have NaN or Inf, and where it was first made; it is '' if all results are finite.
    Results with NaN compare equal if the program's have the same, so no verdict implies it either.
    """

    verdict: str
    name: str
    detail: str = ""
    ports: tuple[PortVerdict, ...] = ()
    power: float | None = None
    vacuous: tuple[str, ...] = ()
    derivative: Derivative | None = None
    nonfinite: str = ""

    def __repr__(self) -> str:
        detail = "; ".join(map(in_a_line, filter(None, (self.nonfinite, self.detail))))
        detail = f", {detail}" if detail else ""
        word = f"{self.verdict}, {self.derivative.word}" if self.derivative is not None else self.verdict
        return f"Verdict({word}: {in_a_line(self.name)}, {number_of(len(self.ports), 'port')}{detail})"

    def _repr_html_(self) -> str:
        from backprint.graph.notebook import html_of_verdict

        return html_of_verdict(self)

    @property
    def good(self) -> bool:
        """Whether all ports compared equal. It does not say that the check proves anything: see `proof`."""
        return self.verdict in GOOD

    @property
    def proof(self) -> bool:
        """Whether all ports compared equal and every port has power. A check of a port that no redraw moves proves
        nothing."""
        return has_proof(self.verdict, self.power, self.vacuous)


class Verdicts(list[Verdict]):
    """The Verdicts of the Pairs of a Capture: a list, which a notebook shows as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from backprint.graph.notebook import html_of_verdicts

        return html_of_verdicts(self)


@dataclass(frozen=True, slots=True)
class Proofs:
    """How many of several samples have a proof.

    Of `differentiable` samples `proved` have one, and of `forwards_alone`, the samples without a backward,
    `proved_forwards`. `without` has the samples that compared equal and have no proof, each with its ports without
    power.
    """

    proved: int
    differentiable: int
    proved_forwards: int
    forwards_alone: int
    without: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def ports(self) -> int:
        """The number of ports without power."""
        return sum(len(ports) for _, ports in self.without)

    def in_one_line(self) -> str:
        """Return the counts in one line, as commands print them."""
        counts = [f"{self.proved:,} of {self.differentiable:,} that are done and differentiable"]
        if self.forwards_alone:
            counts.append(f"{self.proved_forwards:,} of {self.forwards_alone:,} forwards alone")
        measured = sum(bool(ports) for _, ports in self.without)
        if measured:
            counts.append(f"{ports_without_power(self.ports)} in {measured:,} that compared equal")
        if measured < len(self.without):
            counts.append(f"the power of {len(self.without) - measured:,} was not measured")
        return "; ".join(counts)


def proofs(rows: Iterable[tuple[str, str, object, Sequence[str]]]) -> Proofs:
    """Return the Proofs of finished samples. A row has the name, the word of the verdict, the power and the ports
    without power of one; a row with the word `undifferentiable` counts as a forward alone."""
    proved, differentiable, proved_forwards, forwards_alone = 0, 0, 0, 0
    without = []
    for name, verdict, power, powerless in rows:
        is_proof = has_proof(verdict, power, powerless)
        if verdict == "undifferentiable":
            proved_forwards, forwards_alone = proved_forwards + is_proof, forwards_alone + 1
        else:
            proved, differentiable = proved + is_proof, differentiable + 1
        if verdict in GOOD and not is_proof:
            without.append((name, tuple(powerless)))
    return Proofs(proved, differentiable, proved_forwards, forwards_alone, tuple(without))


# ---- Power: how far results move, in tolerances, when inputs are redrawn (`prove/power.py` measures it)
# A check of a port that no input moves proves nothing about it.

STATE = ("parameter", "buffer", "constant")
"""The beginnings of the names of trials that redraw parameters, buffers or constants alone, and no inputs of the
program."""


Moved = tuple[tuple[str, float], ...]
"""Pairs of a port, as the text of its key (`output y`), and how far it moved, in tolerances."""


def least_power(moved: Iterable[tuple[str, float]]) -> float | None:
    """Return the smallest movement of the ports (`Moved`), which is the power of a check; None if none was measured."""
    return min((by for _, by in moved), default=None)


def unmoved_ports(moved: Iterable[tuple[str, float]]) -> tuple[str, ...]:
    """Return the ports without power: they moved by less than a tolerance, so a check of them proves nothing."""
    return tuple(port for port, by in moved if by < 1)


@dataclass(frozen=True, slots=True)
class Trial:
    """One redraw: how far, in tolerances, each port moved that depends on the redrawn inputs.

    A *dependent* port is one to which a path in the graphs leads from a redrawn input; even so it may not move. `null`
    are the ports that do not depend on the inputs all the same, as a test at other values found: a bias before a batch
    norm has a path to every output, and changes none. `open` are the ports for which there was no such test, because
    the movement of other ports shows that a check sees the redraw. `untried` says why the inputs could not be redrawn.
    `name` says what was redrawn, and begins with one of STATE for parameters, buffers or constants alone.
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
        """The sides, `forward` or `backward`, on which ports depend on the redrawn inputs, and the redraw moved none of
        them by a tolerance."""
        most: dict[str, float] = {}  # by side, the largest movement
        for port, by in self.moved:
            side = side_of(PortKey.from_text(port))
            most[side] = max(by, most.get(side, 0.0))
        return tuple(side for side, by in most.items() if by < 1)

    @property
    def dead(self) -> bool:
        """Whether ports depend on the redrawn inputs, and none of them moved by a tolerance."""
        return bool(self.moved) and all(by < 1 for _, by in self.moved)

    @property
    def hidden(self) -> bool:
        """Whether a check would miss a graph that ignores the redrawn inputs: no dependent port moved, or, for inputs
        of the program, none of one side."""
        return self.dead or (bool(self.silent) and not self.name.startswith(STATE))


@dataclass(frozen=True, slots=True)
class Power:
    """The power of a Capture's ports.

    `trials` are all redraws. `tried` of the `of` inputs were redrawn one by one. `most` is each port's power: its
    largest movement in the redraws that every measurement makes (`prove/power.py`, standard_redraws). `parts` has the
    same as `most` for each of several linked Pairs. A port that is None, has no elements, or depends on no input is
    left out. `why` has pairs of a port without power and the reason why nothing moves it.
    """

    trials: tuple[Trial, ...]
    tried: int = 0
    of: int = 0
    most: Moved = ()
    parts: tuple[Moved, ...] = ()
    why: tuple[tuple[str, str], ...] = ()

    def _repr_html_(self) -> str:
        from backprint.graph.notebook import html_of_power

        return html_of_power(self)

    @property
    def value(self) -> float | None:
        """The smallest power of the ports."""
        return least_power(self.most)

    @property
    def vacuous(self) -> tuple[str, ...]:
        """The ports without power: no redraw moved them by a tolerance. A check of them proves nothing, even of those
        that no input could move."""
        return unmoved_ports(self.most)

    @property
    def hidden(self) -> tuple[str, ...]:
        """The names of the redraws that a check would miss."""
        return tuple(trial.name for trial in self.trials if trial.hidden)

    @property
    def dead_ports(self) -> tuple[str, ...]:
        """The ports that depend on redrawn inputs, and that no trial moved by a tolerance."""
        largest: dict[str, float] = {}
        for trial in self.trials:
            largest |= {port: max(by, largest.get(port, 0.0)) for port, by in trial.moved}
        return unmoved_ports(largest.items())

    @property
    def weak(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a redraw and a dependent port that moved less than one tolerance."""
        return tuple((trial.name, port) for trial in self.trials for port in trial.weak)

    @property
    def silent(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a redraw and a side, `forward` or `backward`, of which no dependent port moved by a tolerance."""
        return tuple((trial.name, side) for trial in self.trials for side in trial.silent)

    @property
    def reacts(self) -> bool:
        """Whether a check sees every redraw, and every dependent port moves in some redraw.

        For a redraw of parameters or buffers, some port must move; for one of inputs of the program, a port of each
        side.
        """
        return bool(self.most) and not self.hidden and not self.dead_ports


def side_of(key: PortKey) -> str:
    """Return the side of a result: `backward` for a gradient, else `forward`."""
    return "backward" if key.role == "gradient" else "forward"
