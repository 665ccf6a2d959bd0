"""Samples that are the same program, by what they are known by. Pure: hashes in, groups out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

Key = tuple[str, ...]

BY = {"exact": ("forward_hash", "backward_hash"), "shape": ("forward_shape", "backward_shape")}
"""Which hashes make two samples one: of both graphs as they are, or without their sizes."""


class Keyed(Protocol):
    """What a sample is known by; '' where there is nothing."""

    @property
    def id(self) -> str:
        """Its name."""

    @property
    def source_hash(self) -> str:
        """Of the text it was read from."""

    @property
    def forward_hash(self) -> str:
        """Of its forward graph."""

    @property
    def backward_hash(self) -> str:
        """Of its backward graph."""


Item = TypeVar("Item")


def key_of(item: Keyed) -> Key:
    """By its graphs; where there are none, by the text that they were to come from; else it is like no other."""
    if item.forward_hash:
        return ("graphs", item.forward_hash, item.backward_hash)
    return ("source", item.source_hash) if item.source_hash else ("id", item.id)


def grouped(items: Iterable[Item], key: Callable[[Item], Key], order: Callable[[Item], Any]) -> list[list[Item]]:
    """The groups, each in order, as their first members came."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return [sorted(group, key=order) for group in found.values()]


def several(groups: Iterable[Sequence[Item]]) -> list[Sequence[Item]]:
    """The groups that have duplicates."""
    return [group for group in groups if len(group) > 1]
