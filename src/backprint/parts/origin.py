"""The program behind a part: its forward, run eagerly, and autograd of that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from backprint.graph.keys import PortKey, keyed, of_role
from backprint.graph.nouns import Pair
from backprint.graph.origin import FixedOrigin
from backprint.replaying.run import perform_steps, run_graph, subgraphs
from backprint.tracing.program import Outcome


class PartOrigin(FixedOrigin):
    """The program behind a part, as the Origin of its Capture.

    If the part has an opaque edge, autograd of its forward is not an oracle. Then the part, which was proven on the
    whole's own values, is its own oracle on other values.
    """

    def __init__(self, pair: Pair, values: Mapping[str, Any], differentiable: tuple[str, ...], opaque: bool) -> None:
        self.pair, self.kept, self.differentiable, self.opaque = pair, values, differentiable, opaque
        graphs = [graph for graph in (pair.forward, pair.backward) if graph is not None]
        lifted = [port.name for graph in graphs for port in graph.by_role("constant")]
        self.constants = {name: values[name] for name in lifted if name in values}

    def values(self) -> dict[str, Any]:
        """Return the values that the part had in the whole."""
        return dict(self.kept)

    def run_step(
        self, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor] | None, anew: bool = False
    ) -> Outcome:
        """Run one eager step of the part's forward, and compute its gradients."""
        backward = self.pair.backward
        asking = [port.name for port in backward.outputs] if backward is not None else []
        leaf = {
            name: value.detach().clone().requires_grad_(name in asking) if isinstance(value, Tensor) else value
            for name, value in values.items()
        }
        found = self.eager_forward(leaf)
        outputs = {name: found[PortKey("output", name)] for name in self.differentiable}
        given = {name: torch.ones_like(o) if tangents is None else tangents[name] for name, o in outputs.items()}
        gradients: dict[str, Tensor | None] = dict.fromkeys(asking)
        if asking and self.opaque and backward is not None:
            feed = {key: value.detach() for key, value in found.items() if isinstance(value, Tensor)}
            feed |= keyed("tangent", given) | keyed("constant", values)
            gradients = dict(zip(asking, run_graph(backward, feed, strict=False), strict=True))
        elif asking:
            grads = torch.autograd.grad(
                list(outputs.values()), [leaf[n] for n in asking], list(given.values()), allow_unused=True
            )
            gradients = dict(zip(asking, grads, strict=True))
        plain = {key: value.detach() if isinstance(value, Tensor) else value for key, value in found.items()}
        return Outcome(of_role("output", plain), gradients, of_role("mutation", plain))

    def eager_forward(self, leaves: Mapping[str, Any]) -> dict[PortKey, Any]:
        """Return the forward's results under autograd."""
        forward = self.pair.forward
        scope = {port.local: leaves[port.name] for port in forward.inputs}
        with torch.enable_grad():
            make = perform_steps(forward.steps, scope, subgraphs(forward))
            return {port.key: make(value) for port, value in zip(forward.outputs, forward.results, strict=True)}
