"""A ledger's rows, read only: few columns of all rows for tables, all columns of one row at a time for files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from backprint.corpus.ledger import COLUMNS as SCHEMA
from backprint.corpus.ledger import Ledger, naming_ledger
from backprint.errors import SampleError
from backprint.graph.verdicts import GOOD, has_proof, rank
from backprint.report.nouns import NAMED, encodable, one_line

JSON = {"stages": "numbers", "vacuous": "texts", "asks": "pairs", "notes": "texts", "versions": "words",
        "operators": "counts"}  # fmt: skip
"""The types of the ledger's JSON columns."""

KINDS = {"text": "text", "integer": "count", "real": "number"}

COLUMNS = {name: JSON.get(name) or KINDS[kind.split()[0]] for name, kind in SCHEMA.items()}
"""The ledger's columns and the kind of what each holds."""

VACUOUS, UNMEASURED = "vacuous", "power not measured"
"""What is added to a verdict that is good and not a proof."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One row, without long columns. `still` are the ports that no redraw moves: such a check proves nothing."""

    id: str
    family: str
    source_hash: str
    state: str
    attempts: int
    verdict: str
    cause: str
    detail: str
    stage: str
    engine: str
    mode: str
    seconds: float
    peak_bytes: int
    forward_hash: str
    backward_hash: str
    forward_steps: int
    backward_steps: int
    saved_bytes: int
    inputs: int
    gradients: int
    outputs: int
    input_bytes: int
    disk_bytes: int
    guards: int
    started: float
    finished: float
    power: float | None
    still: tuple[str, ...] = field(metadata={"column": "vacuous"})

    @property
    def done(self) -> bool:
        """Whether there is a verdict."""
        return self.state == "done"

    @property
    def proved(self) -> bool:
        """Whether everything compared equal, by a check that could have failed; a forward alone counts too."""
        return self.done and has_proof(self.verdict, self.power, self.still)

    @property
    def powerless(self) -> bool:
        """Whether everything compared equal, by a check that some wrong results would pass too, or whose power is
        unknown."""
        return self.done and self.verdict in GOOD and not self.proved

    @property
    def standing(self) -> str:
        """The verdict as text; its state if there is none."""
        if not self.done:
            return "not done"
        return f"{self.verdict}, {VACUOUS if self.still else UNMEASURED}" if self.powerless else self.verdict

    @property
    def rank(self) -> tuple[int, bool]:
        """The order from best to worst; without power is worse."""
        return rank(self.verdict), self.powerless

    @property
    def said(self) -> str:
        """The reason of the verdict in one line."""
        said = one_line(self.detail)
        if self.powerless:
            still = (
                f"redrawn inputs do not move {first_names(self.still)}" if self.still else "its power was not measured"
            )
            said = f"{still}; {said}" if said else still
        return said or (f"{self.cause} at stage {self.stage}" if self.cause else "nothing was said")


@dataclass(frozen=True)
class RunView:
    """A corpus run that is finished or in progress, for reading; `place` is its folder or its ledger."""

    place: Path

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """Every sample, in the order of ids."""
        names = {item.name: item.metadata.get("column", item.name) for item in fields(Sample)}
        return tuple(Sample(*row) for row in self.select(tuple(names.values())))

    @cached_property
    def facts(self) -> dict[str, str]:
        """The facts that the run recorded about itself."""
        with Ledger.reading(self.place) as ledger:
            return {name: one_line(fact_text(name, value)) for name, value in sorted(ledger.facts().items())}

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield every row with every column, one at a time."""
        for row in self.select(tuple(COLUMNS)):
            yield dict(zip(COLUMNS, row, strict=True))

    def column(self, name: str) -> Iterator[tuple[str, Any]]:
        """Yield one column of the finished samples, by id."""
        for key, state, value in self.select(("id", "state", name)):
            if state == "done":
                yield key, value

    def select(self, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
        """Yield some columns of all samples, one row at a time."""
        with Ledger.reading(self.place) as ledger, naming_ledger(ledger.path):
            for row in ledger.connection.execute(f"select {', '.join(columns)} from samples order by id"):
                yield tuple(map(read_column, columns, row))


def fact_text(name: str, value: Any) -> str:
    """Return a fact of a run as text; a time as local date and time."""
    if isinstance(value, dict):
        said = (f"{key} {fact_text(key, item)}" for key, item in value.items() if item not in (None, False, "", []))
        return ", ".join(said)
    if name in ("started", "finished") and isinstance(value, (int, float)):
        return datetime.fromtimestamp(value, UTC).isoformat(sep=" ", timespec="seconds")
    return str(value)


EMPTY: dict[str, Any] = {
    "text": "", "count": 0, "number": 0.0, "numbers": {}, "counts": {}, "words": {}, "texts": (), "pairs": (),
}  # fmt: skip

READERS: dict[str, Callable[[Any], Any]] = {
    "text": str,
    "count": int,
    "number": float,
    "numbers": lambda value: {encodable(key): float(item) for key, item in parsed(value, dict).items()},
    "counts": lambda value: {encodable(key): int(item) for key, item in parsed(value, dict).items()},
    "words": lambda value: {encodable(key): item for key, item in parsed(value, dict).items()},
    "texts": lambda value: tuple(map(encodable, parsed(value, list))),
    "pairs": lambda value: tuple((encodable(name), encodable(why)) for name, why in parsed(value, list)),
}


def read_column(column: str, value: Any) -> Any:
    """Return a column's value; raise, by the column's name, if the ledger is damaged."""
    kind = COLUMNS[column]
    if value is None or value == "":
        return None if column == "power" else EMPTY[kind]
    try:
        return READERS[kind](value)
    except (ValueError, TypeError) as error:
        raise SampleError(f"ledger.sqlite: column {column} holds {str(value)[:60]!r}: {error}") from None


def parsed(text: str, kind: type) -> Any:
    """Parse JSON that must be a list, or a dict."""
    found = json.loads(text)
    if not isinstance(found, kind):
        raise ValueError(f"expected a {kind.__name__}, found {type(found).__name__}")
    return found


def first_names(names: Sequence[str]) -> str:
    """Return the first names, and how many more."""
    more = len(names) - NAMED
    return ", ".join(map(one_line, names[:NAMED])) + (f" and {more} more" if more > 0 else "")
