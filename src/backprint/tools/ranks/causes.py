"""What is missing in gradients that are not the whole's: a sum or an average over the ranks of a group, or a factor.

The *whole* is the model that is not sharded. Groups of ranks have a *label*, such as `tp`: of one label each rank is in
one group. A cause is found by trying: a change, such as a sum over the groups of one label, that makes the ranks'
gradients the whole's is what was missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from backprint.graph.nouns import Capture
from backprint.tools.ranks.double import RankGradients

TOLERANCE = 1e-9
"""How far a gradient may be off, in parts of the largest element of the whole's. Sums in float64 in another order
differ by less than 1e-12; a gradient that lacks a part differs by much more. A change that brings the gradient as near
is called what is missing."""

Members = Mapping[int, tuple[int, ...]]
"""The groups of one label: by rank, the ranks that are members of its group."""


@dataclass(frozen=True, slots=True)
class Gradients:
    """The gradients of one parameter, by rank: the ranks' own (`local`; None is a gradient of 0), and the whole's for
    the elements that the rank has (`wanted`). Errors are relative to `largest`."""

    local: Mapping[int, Tensor | None]
    wanted: Mapping[int, Tensor]
    largest: float

    def any(self) -> bool:
        """Whether an element is not 0, on a rank or in the whole."""
        return any(value is not None and bool(value.any()) for value in (*self.local.values(), *self.wanted.values()))

    def errors(self) -> dict[int, float]:
        """Return the relative error of the gradient of each rank; infinity for another shape."""
        return {rank: _relative_error(self.local[rank], self.wanted[rank], self.largest) for rank in self.wanted}

    def holds(self, ranks: Sequence[int], change: Callable[[int], Tensor | None]) -> bool:
        """Whether the gradients that `change(rank)` returns for these ranks are the whole's."""
        return all(_relative_error(change(rank), self.wanted[rank], self.largest) <= TOLERANCE for rank in ranks)

    def holds_scaled(self, ranks: Sequence[int], by: float) -> bool:
        """Whether the gradients of these ranks, times a number, are the whole's."""
        return self.holds(ranks, lambda rank: self.scaled(rank, by))

    def total(self, rank: int, members: Sequence[int]) -> Tensor:
        """Return the sum of the gradients of the members of a rank's group that have a gradient of this rank's shape; 0
        if none has."""
        gradients = [gradient for member in members if (gradient := self.local.get(member)) is not None]
        addends = [gradient for gradient in gradients if gradient.shape == self.wanted[rank].shape]
        return sum_of(addends) if addends else torch.zeros_like(self.wanted[rank])

    def have_sums_of_wanted(self, ranks: Sequence[int], members_of: Members, divisor: float) -> bool:
        """Whether the gradient of each of these ranks is the sum of the whole's gradients for all members of the rank's
        group, divided by a number; False if these are not known or not of one shape."""
        for rank in ranks:
            wanted = [self.wanted.get(member) for member in members_of[rank]]
            if not all(gradient is not None and gradient.shape == self.wanted[rank].shape for gradient in wanted):
                return False
        for rank in ranks:
            sum_of_wanted = sum_of([self.wanted[member] for member in members_of[rank]])
            if not _relative_error(self.local[rank], sum_of_wanted / divisor, self.largest) <= TOLERANCE:  # `not`: NaN
                return False
        return True

    def scaled(self, rank: int, by: float) -> Tensor:
        """Return a rank's gradient times a number; None is a gradient of 0."""
        gradient = self.local[rank]
        return torch.zeros_like(self.wanted[rank]) if gradient is None else gradient * by


def _relative_error(gradient: Tensor | None, wanted: Tensor, largest: float) -> float:
    """Return how far a gradient is off, in parts of the largest element of the whole's; infinity for another shape, or
    if that element is 0 and the gradient is not. None is a gradient of 0."""
    gradient = torch.zeros_like(wanted) if gradient is None else gradient
    if gradient.shape != wanted.shape:
        return float("inf")
    if not wanted.numel():
        return 0.0
    off = float((gradient - wanted).abs().max())
    if not largest:
        return 0.0 if not off else float("inf")
    return off / largest


def sum_of(tensors: Sequence[Tensor]) -> Tensor:
    """Return the sum of tensors of one shape."""
    return torch.stack(list(tensors)).sum(0)


def cause_of(
    groups: Mapping[str, Members], wrong: Sequence[int], gradients: Gradients, reducing: Collection[str] = ()
) -> str:
    """Say which change of the gradients of the `wrong` ranks would make them the whole's; '' if none that is known
    does. `groups` are tried in order, those of one rank left out. `reducing` are the labels of the groups over which
    the backward sends: of several groups of one size, a factor is said to come from these."""
    candidates = {
        label: members_of
        for label, members_of in groups.items()
        if all(rank in members_of for rank in wrong) and len(members_of[wrong[0]]) > 1
    }
    for label, members_of in candidates.items():
        count = len(members_of[wrong[0]])
        same_size = [other for other, members in candidates.items() if len(members[wrong[0]]) == count]
        group_names = " or ".join([other for other in same_size if other in reducing] or same_size)
        if gradients.holds_scaled(wrong, 1 / count):
            return f"is {count} times the whole's: summed over {group_names} once too often, or not averaged"
        if gradients.holds_scaled(wrong, count):
            return f"is 1/{count} of the whole's: averaged over {group_names} once too often, or not summed"
        if cause := _cause_in_group(gradients, wrong, label, members_of):
            return cause
    return factor(gradients, wrong)


def _cause_in_group(gradients: Gradients, wrong: Sequence[int], label: str, members_of: Members) -> str:
    """Say what is missing over the groups of one label, by trying what would mend the gradients; '' if nothing does."""
    count = len(members_of[wrong[0]])
    if gradients.holds(wrong, lambda rank: gradients.total(rank, members_of[rank])):
        return f"lacks a sum over {label}"
    if gradients.holds(wrong, lambda rank: gradients.total(rank, members_of[rank]) / count):
        return f"lacks an average over {label}"
    for word, divisor in (("summed", 1), ("averaged", count)):
        if gradients.have_sums_of_wanted(wrong, members_of, divisor):
            return f"is {word} over {label}, whose ranks hold different parts of it"
    return ""


def factor(gradients: Gradients, wrong: Sequence[int]) -> str:
    """Say by which factor the gradients of all `wrong` ranks differ from the whole's; '' if by none. The factor is
    measured at the largest element of the whole's, and must fit all elements of all of these ranks."""
    ratios = []
    for rank in wrong:
        gradient, wanted = gradients.scaled(rank, 1), gradients.wanted[rank]
        if gradient.shape != wanted.shape or not wanted.numel() or not float(wanted.abs().max()):
            return ""
        index = int(wanted.abs().argmax())
        ratio = float(gradient.reshape(-1)[index]) / float(wanted.reshape(-1)[index])
        if not _relative_error(gradient, wanted * ratio, gradients.largest) <= TOLERANCE:  # of NaN, too
            return ""
        ratios.append(ratio)
    if not all(map(math.isfinite, ratios)) or f"{ratios[0]:.6g}" == "1":  # as it would be printed: no cause
        return ""
    if max(ratios) - min(ratios) > TOLERANCE * max(map(abs, ratios)):
        return ""
    return f"is {ratios[0]:.6g} times the whole's" if ratios[0] else "is 0, and the whole's is not"


def groups_of(rows: Sequence[RankGradients], captures: Sequence[Capture], name: str = "") -> Mapping[str, Members]:
    """Return the members of each rank's groups, by label: the smallest groups first. A program may have several groups
    of the same ranks: first are the dimensions of the mesh of the tensor `name`, then what the step sends over.

    `rows` are what the ranks' steps left, with the groups of each rank. The labels of groups that are made without a
    name hold their members, so that ranks have no label in common: `families_of` finds which belong together.
    """
    used = {label for capture in captures if capture.rank is not None for label, _ in capture.rank.groups}
    of_mesh = {label for capture in captures for label in _dimensions_of(capture, name)}
    groups: dict[str, dict[int, tuple[int, ...]]] = {}
    for row in rows:
        for label, members in row.groups.items():
            groups.setdefault(label, {})[row.rank] = members
    everywhere = [label for label, members in groups.items() if len(members) == len(rows)]
    groups |= families_of(
        {row.rank: [row.groups[label] for label in row.groups if label not in everywhere] for row in rows}
    )
    everyone = tuple(range(len(rows)))
    groups.setdefault("world", dict.fromkeys(everyone, everyone))

    def order_of(label: str) -> tuple[int, bool, bool]:
        """Return the key by which labels are sorted: the size of the largest group, then False before True."""
        return max(map(len, groups[label].values())), label not in of_mesh, label not in used

    return {label: groups[label] for label in sorted(groups, key=order_of)}


def families_of(unnamed: Mapping[int, Sequence[tuple[int, ...]]]) -> dict[str, dict[int, tuple[int, ...]]]:
    """Return groups that have no name in common, by their members in words. `unnamed` has the members of each of a
    rank's groups, in the order in which it made them. Every rank makes groups in one order, so the first groups of all
    ranks belong together, and so do the second; none do if ranks have different numbers of them."""
    families: dict[str, dict[int, tuple[int, ...]]] = {}
    if len({len(groups) for groups in unnamed.values()}) == 1:
        for members_by_rank in zip(*unnamed.values(), strict=True):  # the first group of each rank, then the second
            texts = [str(list(members)) for members in dict.fromkeys(members_by_rank)]
            label = f"{', '.join(texts[:4])}{', …' if len(texts) > 4 else ''}"
            families.setdefault(label, dict(zip(unnamed, members_by_rank, strict=True)))
    return families


def _dimensions_of(capture: Capture, name: str) -> Iterator[str]:
    """Yield the names of the dimensions of the device mesh of the input `name`, if it is a shard."""
    for pair in capture.pairs:
        for port in pair.forward.inputs:
            if port.name == name and port.shard:  # a text such as `[64, 8] on dp: Shard(0), tp: Replicate`
                yield from (place.partition(": ")[0] for place in port.shard.partition(" on ")[2].split(", "))
