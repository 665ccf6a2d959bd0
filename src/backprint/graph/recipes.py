"""What a Capture knows of the recipes for its inputs; the recipes themselves are `sample/`'s."""

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
        """The seed that the recipes' seeds were derived from."""

    @property
    def missing(self) -> tuple[str, ...]:
        """The inputs that no recipe makes."""

    @property
    def complete(self) -> bool:
        """Whether the recipes make every input."""

    @property
    def rows(self) -> Mapping[str, Any]:
        """The recipes as JSON objects. Those of a sample are not checked, and need no torch."""

    def data(self, name: str) -> bytes | None:
        """Return the data of an exact recipe as bytes; None if there is none. It needs no torch for a sample."""

    def make(self, seed: int | None = None, names: Collection[str] | None = None) -> dict[str, Tensor]:
        """Make every input, or the named ones; with a seed, a fresh draw of each that is drawn."""


class Unfitted:
    """No recipes: what a Capture has before recipes are fitted to its inputs."""

    recipes: Mapping[str, Any] = MappingProxyType({})
    exact: Mapping[str, Tensor] = MappingProxyType({})
    rows: Mapping[str, Any] = MappingProxyType({})
    seed = 0
    missing = ()
    complete = False

    def data(self, name: str) -> bytes | None:
        return None

    def make(self, seed: int | None = None, names: Collection[str] | None = None) -> dict[str, Tensor]:
        return {}


UNFITTED: InputRecipes = Unfitted()
