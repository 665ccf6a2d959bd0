"""A World: the Captures of the ranks of one distributed step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from backprint.graph.capture_options import CaptureOptions
from backprint.graph.nouns import Capture
from backprint.graph.verdicts import PROGRAM, PortVerdict, Verdict, worst
from backprint.ranks.meeting import Among, Meeting
from backprint.ranks.sharded import Make, RankStep, captured_among_others, steps_of_ranks
from backprint.ranks.turns import Turns
from backprint.replaying.results import against, results_by_port, witnessed
from backprint.replaying.whole import replay_values
from backprint.tracing.program import Outcome
from backprint.values.exchanges import ANSWER
from backprint.values.settings import preserving_random_states


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """The Captures of the ranks of one step, by rank.

    `outcomes` are the results of the step that the ranks ran among each other, before they were captured.
    """

    ranks: tuple[Capture, ...]
    outcomes: tuple[Outcome, ...] = field(default=(), repr=False)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.ranks)

    def __repr__(self) -> str:
        kinds = len({forms(capture) for capture in self.ranks})
        graphs = "one graph for all" if kinds == 1 else f"{kinds} different graphs"
        return f"World({self.ranks[0].name}: {self.size} ranks, {graphs})"

    def verify(self) -> list[Verdict]:
        """Run the graphs of all ranks together, and compare each rank with the program as it ran among the others.

        No process group is needed: a rank runs until it waits for others, then these do.
        """
        replayed = replayed_together(self.ranks)
        return [
            verdict_of_rank(rank, capture, against(results, expected(outcome)))
            for rank, (capture, results, outcome) in enumerate(zip(self.ranks, replayed, self.outcomes, strict=True))
        ]


def forms(capture: Capture) -> tuple[str, ...]:
    """Return the hashes of a Capture's graphs."""
    return tuple(
        graph.hash() for pair in capture.pairs for graph in (pair.forward, pair.backward) if graph is not None
    )


def expected(outcome: Outcome) -> Any:
    """Return the results of a step by port."""
    return results_by_port(outcome.outputs, outcome.mutations, outcome.gradients)


def verdict_of_rank(rank: int, capture: Capture, ports: Sequence[PortVerdict]) -> Verdict:
    """Return the Verdict of a rank."""
    detail = "; ".join(f"{port.role} {port.name}: {port.detail}" for port in ports if port.verdict != "bitwise")
    word = worst([port.verdict for port in ports])
    return Verdict(word, f"rank {rank} of {capture.name}", detail, tuple(witnessed(ports, PROGRAM)))


def replayed_together(ranks: Sequence[Capture], values: Sequence[Mapping[str, Any]] | None = None) -> list[Any]:
    """Run the graphs of all ranks on their own inputs; their collectives are computed where they meet."""
    turns: Turns[Any] = Turns(len(ranks))
    meeting = Meeting(turns)

    def replayed(rank: int) -> Any:
        capture = ranks[rank]
        assert capture.rank is not None
        among = Among(meeting, rank, dict(capture.rank.groups))
        token = ANSWER.set(among)
        try:
            torch.manual_seed(capture.seed)
            return replay_values(capture, capture.origin.values() if values is None else values[rank], None).results
        finally:
            ANSWER.reset(token)

    with preserving_random_states():
        return turns.run(replayed)


def capture_world(size: int, make: Make, options: CaptureOptions) -> World:
    """Capture every rank of a step: all run it among each other, then each is captured alone."""
    rows: list[tuple[RankStep, Capture]] = steps_of_ranks(size, make, options, captured_among_others(options))
    return World(tuple(capture for _, capture in rows), tuple(step.outcome for step, _ in rows))
