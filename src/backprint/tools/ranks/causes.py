"""What is missing in gradients that are not the whole's: a sum or an average over the ranks of a group, or a factor."""

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
"""The members of each rank's group of one label, by rank."""


@dataclass(frozen=True, slots=True)
class Gradients:
    """The gradients of one parameter, by rank: the ranks' own (`local`), and the whole's where they lie (`wanted`).
    Errors are relative to `largest`."""

    local: Mapping[int, Tensor | None]
    wanted: Mapping[int, Tensor]
    largest: float

    def any(self) -> bool:
        """Whether an element is not 0, on a rank or in the whole."""
        return any(value is not None and bool(value.any()) for value in (*self.local.values(), *self.wanted.values()))

    def errors(self) -> dict[int, float]:
        """Return how far the gradient of each rank is off."""
        return {rank: _relative_error(self.local[rank], self.wanted[rank], self.largest) for rank in self.wanted}

    def holds(self, ranks: Sequence[int], change: Callable[[int], Tensor | None]) -> bool:
        """Whether `change`, which returns a rank's gradient changed, makes those of these ranks the whole's."""
        return all(_relative_error(change(rank), self.wanted[rank], self.largest) <= TOLERANCE for rank in ranks)

    def holds_scaled(self, ranks: Sequence[int], by: float) -> bool:
        """Whether the gradients of these ranks, times a number, are the whole's."""
        return self.holds(ranks, lambda rank: self.scaled(rank, by))

    def total(self, rank: int, members: Sequence[int]) -> Tensor:
        """Return the sum of the gradients of the members of a rank's group, of those that have this rank's shape."""
        rows = [row for member in members if (row := self.local.get(member)) is not None]
        same = [row for row in rows if row.shape == self.wanted[rank].shape]
        return sum_of(same) if same else torch.zeros_like(self.wanted[rank])

    def have_sums_of_wanted(self, ranks: Sequence[int], members_of: Members, divisor: float) -> bool:
        """Whether these ranks have the sum of what the members of their groups are to have, divided by a number."""
        known = all(member in self.wanted for rank in ranks for member in members_of[rank])
        same = known and all(
            self.wanted[member].shape == self.wanted[rank].shape for rank in ranks for member in members_of[rank]
        )
        if not same:
            return False
        return all(
            _relative_error(
                self.local[rank], sum_of([self.wanted[member] for member in members_of[rank]]) / divisor, self.largest
            )
            <= TOLERANCE
            for rank in ranks
        )

    def scaled(self, rank: int, by: float) -> Tensor:
        """Return a rank's gradient times a number; None is a gradient of 0."""
        gradient = self.local[rank]
        return torch.zeros_like(self.wanted[rank]) if gradient is None else gradient * by


def _relative_error(gradient: Tensor | None, wanted: Tensor, largest: float) -> float:
    """Return how far a gradient is off, in parts of the largest element of the whole's; None is a gradient of 0."""
    gradient = torch.zeros_like(wanted) if gradient is None else gradient
    if gradient.shape != wanted.shape:
        return float("inf")
    if not wanted.numel():
        return 0.0
    off = float((gradient - wanted).abs().max())
    return off / largest if largest else (0.0 if not off else float("inf"))


def sum_of(tensors: Sequence[Tensor]) -> Tensor:
    """Return the sum of tensors of one shape."""
    return torch.stack(list(tensors)).sum(0)


def cause_of(
    groups: Mapping[str, Members], wrong: Sequence[int], gradients: Gradients, reducing: Collection[str] = ()
) -> str:
    """Say which change of the ranks' gradients would make them the whole's; '' if none that is known does. `reducing`
    are the groups over which the backward sends."""
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
    """Say by which factor all wrong gradients differ from the whole's; '' if by none. It is measured at the largest
    element of the whole's, and must fit all."""
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
    if not all(map(math.isfinite, ratios)) or f"{ratios[0]:.6g}" == "1":
        return ""
    if max(ratios) - min(ratios) > TOLERANCE * max(map(abs, ratios)):
        return ""
    return f"is {ratios[0]:.6g} times the whole's" if ratios[0] else "is 0, and the whole's is not"


def groups_of(rows: Sequence[RankGradients], captures: Sequence[Capture], name: str = "") -> Mapping[str, Members]:
    """Return the members of each rank's groups, by label: the smallest groups first. A program may have several groups
    of the same ranks: first are the dimensions of the mesh of the tensor `name`, then what the step sends over."""
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

    def place(label: str) -> tuple[int, bool, bool]:
        return max(map(len, groups[label].values())), label not in of_mesh, label not in used

    return {label: groups[label] for label in sorted(groups, key=place)}


def families_of(unnamed: Mapping[int, Sequence[tuple[int, ...]]]) -> dict[str, dict[int, tuple[int, ...]]]:
    """Return groups that have no name in common, by their members in words. Every rank makes groups in one order, so
    those that are the first of their ranks belong together, and so do the second."""
    families: dict[str, dict[int, tuple[int, ...]]] = {}
    if len({len(groups) for groups in unnamed.values()}) == 1:
        for members in zip(*unnamed.values(), strict=True):
            words = [str(list(some)) for some in dict.fromkeys(members)]
            families.setdefault(
                f"{', '.join(words[:4])}{', …' if len(words) > 4 else ''}", dict(zip(unnamed, members, strict=True))
            )
    return families


def _dimensions_of(capture: Capture, name: str) -> Iterator[str]:
    """Yield the dimensions of the mesh of a tensor that is a shard."""
    for pair in capture.pairs:
        for port in pair.forward.inputs:
            if port.name == name and port.shard:
                yield from (place.partition(": ")[0] for place in port.shard.partition(" on ")[2].split(", "))
