"""A Diff: two Captures, and what of one is what of the other. Plain data; `words` writes it as text and as JSON.

Steps and ports are numbers of the graphs' own tuples.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from backprint.graph.nouns import Capture

if TYPE_CHECKING:
    from backprint.common.web_page import WebPage

PARTS = ("operator", "arguments", "inputs", "type", "subgraphs")
"""What of a step can differ: what it calls, its constants, which values it takes, the type of its result, and the
graphs that it calls, as the branches of a condition."""

PORT_PARTS = ("name", "role", "type", "value")
"""What of a port can differ; the value of an output is another if another step makes it."""

KINDS = ("added", "removed", "changed")


@dataclass(frozen=True, slots=True)
class StepChange:
    """A step that only one of two graphs has, or that is not the same in both."""

    before: int | None
    after: int | None
    parts: tuple[str, ...] = ()
    """Of a step that both have: which of `PARTS` differ."""
    follows: bool = False
    """Whether it differs only because a value that it takes has another type."""
    recomputed: bool = False
    """Whether it computes a value of the forward again, as with checkpointing; or takes such a value in the place of a
    saved one, and differs in nothing else."""

    @property
    def kind(self) -> str:
        """`added`, `removed` or `changed`."""
        return _change_kind(self.before, self.after)


@dataclass(frozen=True, slots=True)
class PortChange:
    """A port that only one of two graphs has, or that is not the same in both."""

    is_input: bool
    before: int | None
    after: int | None
    parts: tuple[str, ...] = ()
    """Of a port that both have: which of `PORT_PARTS` differ."""

    @property
    def kind(self) -> str:
        """`added`, `removed`, `changed`, or `renamed` if nothing but the name differs."""
        return "renamed" if self.parts == ("name",) else _change_kind(self.before, self.after)


def _change_kind(before: int | None, after: int | None) -> str:
    """Return whether something is added, removed or changed."""
    return "added" if before is None else "removed" if after is None else "changed"


@dataclass(frozen=True, slots=True)
class Costs:
    """What a graph or a Pair costs: before and after."""

    before: int
    after: int


@dataclass(frozen=True, slots=True)
class GraphDiff:
    """One direction of a Pair, before and after."""

    direction: str
    """`forward` or `backward`; of a subgraph, that of the graph around it."""
    hashes: tuple[str, str]
    """Empty for a direction that one side does not have."""
    only_sizes: bool
    """Whether the graphs are the same apart from sizes."""
    steps: tuple[tuple[int, int], ...] = field(repr=False)
    """The steps that both have, in the order of the first graph."""
    changes: tuple[StepChange, ...] = field(repr=False)
    ports: tuple[PortChange, ...] = field(repr=False)
    orders: tuple[str, ...]
    """What differs beside steps and ports, in words: the order of effects, of ports, of results."""
    modules: tuple[tuple[str, str], ...] = field(repr=False)
    """Modules of steps that both have and that have other names, before and after."""
    moved: int
    """Of the steps that both have, how many stand in another order."""
    lines: int
    """Of the steps that both have, how many come from another line of the program."""
    flops: Costs
    names: tuple[str, str] = ("", "")
    """Of a subgraph: its names in the graphs around it."""
    subgraphs: tuple[GraphDiff, ...] = field(default=(), repr=False)
    """The subgraphs that are not the same, and that matched steps call."""

    @property
    def same(self) -> bool:
        """Whether the graphs are the same: their hashes are equal. The values of constants are no part of a hash."""
        return self.hashes[0] == self.hashes[1]


@dataclass(frozen=True, slots=True)
class PairDiff:
    """A Pair before and after, by number; None where one side has no such Pair."""

    before: int | None
    after: int | None
    graphs: tuple[GraphDiff, ...]
    """The directions that at least one side has, the forward first."""
    saved_bytes: Costs
    """Of intermediate values that the forward saves for the backward."""
    kept_bytes: Costs
    """Of parameters and inputs that are kept for the backward."""

    @property
    def same(self) -> bool:
        """Whether both sides have the Pair, and both of its directions are the same."""
        return None not in (self.before, self.after) and all(graph.same for graph in self.graphs)


@dataclass(frozen=True, slots=True)
class Fact:
    """Something of two Captures beside their graphs that is not the same: a torch version, a guard, a note."""

    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diff:
    """What changed between two Captures. `print(diff)` shows it; `same` decides."""

    before: Capture = field(repr=False)
    after: Capture = field(repr=False)
    pairs: tuple[PairDiff, ...]
    links: bool
    """Whether the Pairs are joined in the same way."""
    facts: tuple[Fact, ...]
    """What differs beside the graphs. It does not count for `same`."""

    @property
    def same(self) -> bool:
        """Whether both Captures have the same graphs, joined in the same way: every hash is equal."""
        return self.links and all(pair.same for pair in self.pairs)

    def __repr__(self) -> str:
        return f"Diff({self.before.name!r}, {self.after.name!r}, same={self.same})"

    def __str__(self) -> str:
        from backprint.tools.diff.words import diff_text

        return diff_text(self)

    def _repr_html_(self) -> str:
        from backprint.table.notebook import html_of
        from backprint.table.nouns import Report, Table
        from backprint.tools.diff.words import answer_line, diff_lines

        facts = [(fact.name, "; ".join(fact.before), "; ".join(fact.after)) for fact in self.facts]
        table = Table("Beside the graphs", {"what": "name", "before": "text", "after": "text"}, facts)
        title = f"{self.before.name} → {self.after.name}"
        lines = [] if self.same else list(diff_lines(replace(self, facts=())))[1:]  # the first is the answer
        return html_of(Report(title, answer_line(self), (), table), lines)

    def view(self, path: str | os.PathLike[str] | None = None) -> WebPage:
        """Make the page of the Diff, with marks on the steps that changed; written and shown as that of a Capture."""
        from backprint.tools.diff.page import page_of_diff

        return page_of_diff(self).shown(path)

    def to_markdown(self) -> str:
        """Return the Diff as tables in Markdown, the answer first, as `backprint diff --format markdown` prints it."""
        from backprint.tools.diff.markdown import diff_markdown

        return diff_markdown(self)

    def to_json(self) -> dict[str, Any]:
        """Return the Diff as plain data for `json.dumps`."""
        from backprint.tools.diff.words import diff_json

        return diff_json(self)
