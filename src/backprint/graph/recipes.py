"""What a Capture knows of how its inputs are made again; the recipes themselves are `sample/`'s."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class InputRecipes(Protocol):
    """Recipes by the names of inputs, a tangent's with its role before it, and the data of the exact ones."""

    @property
    def recipes(self) -> Mapping[str, Any]:
        """The recipes by name."""

    @property
    def exact(self) -> Mapping[str, Tensor]:
        """The data of the exact ones."""

    @property
    def seed(self) -> int:
        """What the seeds of the recipes were derived from."""

    @property
    def missing(self) -> tuple[str, ...]:
        """The inputs that no recipe makes."""

    @property
    def complete(self) -> bool:
        """Whether a Capture runs on what the recipes make."""

    def make(self, seed: int | None = None, names: Collection[str] | None = None) -> dict[str, Tensor]:
        """Every input, or the named ones, made again; with a seed, a fresh draw of each that can be drawn."""


class Unfitted:
    """No recipes: what a Capture has before any were fitted to its inputs."""

    recipes: Mapping[str, Any] = MappingProxyType({})
    exact: Mapping[str, Tensor] = MappingProxyType({})
    seed = 0
    missing = ()
    complete = False

    def make(self, seed: int | None = None, names: Collection[str] | None = None) -> dict[str, Tensor]:
        return {}


UNFITTED: InputRecipes = Unfitted()
