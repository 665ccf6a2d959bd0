"""`exchanges.safetensors`: what the ranks of a step sent each other, kept with the sample of one of them.

So the sample runs alone. An Exchange is one collective of a group of ranks, with what each member sent, as far as it is
known. In `capture.json`, `exchanges` has the collectives of each group in their order: their kind, and the options of
each member. A group is known by its label, and a *member* of it by its place in the group. A Field is a value of that
JSON with its path: its methods check the value and return it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backprint.errors import SampleError
from backprint.graph.nouns import Capture, Rank
from backprint.sample.kept import read_tensors
from backprint.sample.metadata import Field, errors_with_path

if TYPE_CHECKING:
    from torch import Tensor

    from backprint.values.exchanges import Exchange, Peers

FILE = "exchanges.safetensors"

MAX_EXCHANGES = 1_000_000
"""The most collectives of a group that are read."""


def exchanges_json(exchanges: Mapping[str, Sequence[Exchange]]) -> dict[str, Any]:
    """Return exchanges without their tensors as JSON."""
    return {
        group: [[row.calls[0].kind, [call.options for call in row.calls]] for row in rows]
        for group, rows in exchanges.items()
    }


def tensors_of_exchanges(exchanges: Mapping[str, Sequence[Exchange]]) -> dict[str, Tensor]:
    """Return the tensors of the exchanges of each group, by their names in the file."""
    tensors: dict[str, Tensor] = {}
    for group, rows in exchanges.items():
        for number, row in enumerate(rows):
            tensors |= {
                _name_of_sent(group, number, place): tensor
                for place, tensor in enumerate(row.sent)
                if tensor is not None
            }
            if row.received is not None:
                tensors[_name_of_received(group, number)] = row.received
    return tensors


def _name_of_sent(group: str, number: int, place: int) -> str:
    """Return the name of the tensor that the member at a place of a group sent in the collective of this number."""
    return f"{group} {number} sent by {place}"


def _name_of_received(group: str, number: int) -> str:
    """Return the name of the tensor that this rank received in the collective of this number."""
    return f"{group} {number} received"


class _StoredExchanges(Mapping[str, "Sequence[Exchange]"]):
    """The exchanges of a sample by group, read when the first is needed. `field` is `exchanges` of `capture.json`, and
    `rank` the place of the sample's Capture among the ranks."""

    def __init__(self, folder: Path, field: Field, rank: Rank) -> None:
        self.folder, self.field, self.rank = folder, field, rank

    @cached_property
    def rows(self) -> dict[str, list[Exchange]]:
        """The exchanges by group, checked."""
        tensors, groups = read_tensors(self.folder / FILE), dict(self.rank.groups)
        exchanges: dict[str, list[Exchange]] = {}
        with errors_with_path(self.folder / "capture.json"):
            for group, rows in self.field.rows().items():
                if group not in groups:
                    raise SampleError(f"{rows.path}: the sample has no group {group!r:.80}")
                for number, row in enumerate(rows.items(most=MAX_EXCHANGES)):
                    exchange = self.exchange_of(row, group, groups[group], number, tensors)
                    exchanges.setdefault(group, []).append(exchange)
        return exchanges

    def exchange_of(
        self, row: Field, group: str, ranks: Sequence[int], number: int, tensors: Mapping[str, Tensor]
    ) -> Exchange:
        """Return the Exchange of a row of `capture.json`: the collective of this number of a group, whose members are
        `ranks`, with the tensors that the file has of it. SampleError if what it has is too little to answer it."""
        from backprint.values.exchanges import Call, Exchange

        kind, members = row.items(most=2)
        # A collective has few options; there are as many lists of them as members, at most.
        options = [tuple(map(_option_of, member.items(most=8))) for member in members.items(most=len(ranks))]
        sent = tuple(tensors.get(_name_of_sent(group, number, place)) for place in range(len(options)))
        received = tensors.get(_name_of_received(group, number))
        known = [tensor is not None for tensor in sent]
        # Peers compare the tensor that this rank sends with the one that it sent then. Of the others they need the
        # result, or what each of them sent.
        knows_own = len(known) == len(ranks) and known[ranks.index(self.rank.number)]
        if not knows_own or (received is None and not all(known)):
            raise SampleError(f"{row.path}: not every member of {group!r:.80} has sent a tensor")
        return Exchange(tuple(Call(kind.text(most=64), group, option) for option in options), sent, received)

    def __getitem__(self, group: str) -> Sequence[Exchange]:
        return self.rows[group]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def _option_of(field: Field) -> Any:
    """Return one option of a collective: a text, a number, or a list of numbers."""
    if isinstance(field.value, str):
        return field.text(most=64)
    if isinstance(field.value, list):
        return tuple(item.whole() for item in field.items())
    return field.whole()


def stored_peers(folder: Path, field: Field, rank: Rank | None) -> Peers | None:
    """Return the Peers of a sample, the other ranks as they were in one run, which answer its collectives; None if the
    sample keeps nothing of them."""
    if field.value is None or rank is None:
        return None
    from backprint.values.exchanges import Peers

    places = {label: members.index(rank.number) for label, members in rank.groups}
    return Peers(_StoredExchanges(folder, field, rank), places)


def known_exchanges(capture: Capture) -> Mapping[str, Sequence[Exchange]]:
    """Return the exchanges that a Capture's peers know, by group; empty if there are none."""
    return getattr(capture.peers, "exchanges", None) or {}
