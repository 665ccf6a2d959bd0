"""Compute the Placements of a step's results on meta tensors, once for arguments of equal geometry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from backprint.graph.nouns import Ref
from backprint.tracing.eager.placement import CPU, NoPlainForm, Placement, flat, indexed, meta_tensor, placement_tree


class Foresight:
    """Runs operators on meta tensors for values whose Placements are known by name, and remembers the results."""

    def __init__(self, places: Mapping[str, Placement]) -> None:
        self.places = places
        self.outlooks: dict[Any, Any] = {}

    def placement(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Placement:
        """Return the Placement of the one result of a step."""
        found = self.results(func, tuple(args), kwargs)
        assert type(found) is Placement
        return found

    def results(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Return the results of a step as Placements."""
        kwargs = {key: value for key, value in kwargs.items() if not isinstance(value, torch.Generator)}
        alike = (func, self.key(args), self.key(kwargs))
        if alike not in self.outlooks:
            taken, named = self.metas(tuple(args)), self.metas(kwargs)
            try:
                found = func(*taken, **named)
            except (RuntimeError, TypeError, ValueError, IndexError) as error:  # whatever a meta kernel raises
                raise NoPlainForm(f"{func} cannot be foreseen: {type(error).__name__}: {str(error)[:300]}") from error
            self.outlooks[alike] = placement_tree(found, self.device(args, kwargs))
        return self.outlooks[alike]

    def device(self, args: Any, kwargs: Mapping[str, Any]) -> torch.device:
        """Return the device of a step's results: that of its argument, or of its values, a GPU before the CPU."""
        if kwargs.get("device") is not None:
            return indexed(torch.device(kwargs["device"]))
        devices = [self.places[leaf.name].device for leaf in flat(args, kwargs) if type(leaf) is Ref]
        return next((device for device in devices if device.type != "cpu"), CPU)

    def key(self, value: Any) -> Any:
        """Return arguments as a key: tensors by geometry, numbers with their type."""
        match value:
            case Ref(name):
                return self.places[name]._replace(memory=-1)
            case tuple() | list():
                return tuple([self.key(item) for item in value])
            case dict():
                return tuple([(key, self.key(item)) for key, item in value.items()])
        return type(value), repr(value)

    def metas(self, value: Any) -> Any:
        """Replace values by meta tensors in arguments."""
        match value:
            case Ref(name):
                return meta_tensor(self.places[name])
            case tuple():
                return tuple([self.metas(item) for item in value])
            case list():
                return [self.metas(item) for item in value]
            case dict():
                return {key: "meta" if key == "device" else self.metas(item) for key, item in value.items()}
        return value
