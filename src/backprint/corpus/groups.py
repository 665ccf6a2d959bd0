"""Group samples that are the same program by their keys: hashes in, groups out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

Key = tuple[str, ...]

BY = {"exact": ("forward_hash", "backward_hash"), "shape": ("forward_shape", "backward_shape")}
"""The hashes that make two samples one: of both graphs, or of both without their sizes."""


class Keyed(Protocol):
    """The hashes of a sample; '' if it has none."""

    @property
    def id(self) -> str:
        """The sample's name."""

    @property
    def source_hash(self) -> str:
        """The hash of the text it was read from."""

    @property
    def forward_hash(self) -> str:
        """The hash of its forward graph."""

    @property
    def backward_hash(self) -> str:
        """The hash of its backward graph."""


Item = TypeVar("Item")


def key_of(item: Keyed) -> Key:
    """Return the key: the graphs' hashes; without graphs, the source's hash; else the id."""
    if item.forward_hash:
        return ("graphs", item.forward_hash, item.backward_hash)
    return ("source", item.source_hash) if item.source_hash else ("id", item.id)


def grouped(items: Iterable[Item], key: Callable[[Item], Key], order: Callable[[Item], Any]) -> list[list[Item]]:
    """Return the groups, each in order, in the order of their first members."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return [sorted(group, key=order) for group in found.values()]


def several(groups: Iterable[Sequence[Item]]) -> list[Sequence[Item]]:
    """Return the groups that have duplicates."""
    return [group for group in groups if len(group) > 1]
