"""Power: how far the results of a Capture moved, in tolerances, when its inputs were redrawn.

A check of a port that no input moves proves nothing about it. `replay.power` measures it; this module has the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from backprint.graph.keys import PortKey

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
