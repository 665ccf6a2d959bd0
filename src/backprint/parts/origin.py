"""The program behind a part: its forward, run eagerly, and autograd of that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from backprint.capture.program import Outcome
from backprint.fx.values import maker
from backprint.graph.nouns import Pair
from backprint.replay.run import perform, run, subgraphs


class PartOrigin:
    """The program behind a part, for whoever asks a Capture's origin.

    Where an opaque edge lies in the part, autograd of its forward is not an oracle. The part, which was proven on the
    whole's own values, then stands for itself on other values.
    """

    alive = True
    rebuild = None
    parts = ()

    def __init__(self, pair: Pair, values: Mapping[str, Any], differentiable: tuple[str, ...], opaque: bool) -> None:
        self.pair, self.kept, self.differentiable, self.opaque = pair, values, differentiable, opaque
        graphs = [graph for graph in (pair.forward, pair.backward) if graph is not None]
        lifted = [port.name for graph in graphs for port in graph.by_role("constant")]
        self.constants = {name: values[name] for name in lifted if name in values}
        self.tangents: dict[str, Tensor] = {}
        self.asked: dict[str, Any] = {}

    def values(self) -> dict[str, Any]:
        """The values that the part had in the whole."""
        return dict(self.kept)

    def step(self, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor] | None) -> Outcome:
        """One eager step of the part's forward, and its gradients."""
        backward = self.pair.backward
        asking = [port.name for port in backward.outputs] if backward is not None else []
        leaf = {
            name: value.detach().clone().requires_grad_(name in asking) if isinstance(value, Tensor) else value
            for name, value in values.items()
        }
        found = self.eager_forward(leaf)
        given = {
            n: torch.ones_like(found[f"output {n}"]) if tangents is None else tangents[n] for n in self.differentiable
        }
        gradients: dict[str, Tensor | None] = dict.fromkeys(asking)
        if asking and self.opaque and backward is not None:
            feed = {key: value.detach() for key, value in found.items() if isinstance(value, Tensor)}
            feed |= {f"tangent {n}": tangent for n, tangent in given.items()}
            feed |= {f"constant {n}": value for n, value in values.items()}
            gradients = dict(zip(asking, run(backward, feed, strict=False), strict=True))
        elif asking:
            outs = [found[f"output {n}"] for n in given]
            grads = torch.autograd.grad(outs, [leaf[n] for n in asking], list(given.values()), allow_unused=True)
            gradients = dict(zip(asking, grads, strict=True))
        return Outcome(of_role(found, "output"), gradients, of_role(found, "mutation"))

    def eager_forward(self, leaves: Mapping[str, Any]) -> dict[str, Any]:
        """The forward's results under autograd, by `role name`."""
        forward = self.pair.forward
        scope = {port.local: leaves[port.name] for port in forward.inputs}
        make = maker(scope, subgraphs(forward))
        with torch.enable_grad():
            for step in forward.steps:
                perform(step, scope, make)
            return {
                f"{port.role} {port.name}": make(value)
                for port, value in zip(forward.outputs, forward.results, strict=True)
            }


def of_role(results: Mapping[str, Any], role: str) -> dict[str, Any]:
    """The results of one role, by name, without their history."""
    return {
        key.partition(" ")[2]: value.detach() if isinstance(value, Tensor) else value
        for key, value in results.items()
        if key.startswith(f"{role} ")
    }
