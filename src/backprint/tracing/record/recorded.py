"""The Capture of one step of a script, and the recorded values that it is proved against.

The step cannot be run again: its outside tensors are copied before they change, and its results are kept too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from backprint import settings
from backprint.errors import ReplayError
from backprint.graph.keys import PortKey, tangent_name
from backprint.graph.nouns import Capture, Guard, Pair, Signature
from backprint.graph.origin import FixedOrigin
from backprint.tracing.captured import requirements
from backprint.tracing.program import Outcome
from backprint.tracing.record.linked import Tied
from backprint.tracing.record.names import Named, own_names
from backprint.tracing.record.recorder import LiveRecorder
from backprint.tracing.record.segments import StepWriter


def capture_of_step(recorder: LiveRecorder, names: Named, title: str) -> Capture:
    """Return the Capture of a recorded step."""
    step = StepWriter(recorder, own_names(recorder.seen.outside, names))
    step.write()
    finals = step.final_values()
    kept = dict(zip(step.names.values(), recorder.kept(), strict=True))
    tied = Tied(step, finals)
    pairs, links = tied.pairs()
    losses = tuple(link.name for link in links if link.target is None)
    return Capture(
        name=title,
        engine="eager",
        pairs=pairs,
        signature=Signature(
            output={"dict": {name: {"port": name} for name in losses}},
            differentiable=tuple(name for name in losses if name in tied.tangents),
            loss=losses[0] if len(losses) == 1 else "",
        ),
        links=links,
        guards=(*tied.guards, *own_tangents(tied.tangents)),
        opaque=tuple(dict.fromkeys(recorder.seen.opaque)),
        environment=settings.read_settings(),
        requires=tuple(sorted({target for pair in pairs for target in requirements(pair)})),
        origin=Recorded(kept, tied.constants, step.outcome(finals, losses), pairs),
    )


def own_tangents(names: Collection[str]) -> list[Guard]:
    """Return guards for the tangents of a step: its own `backward()` gives them, so they are no inputs of it."""
    return [
        Guard("pinned", f"{name} is pinned: the step's own backward() starts with ones", (name,))
        for name in sorted(map(tangent_name, names))
    ]


@dataclass(slots=True)
class Known:
    """The recorded values at one Pair's ports, as far as they were kept."""

    keys: frozenset[PortKey]
    outcome: Outcome
    partial: bool = True

    def run_step(self, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor] | None) -> Outcome:
        """Return the recorded values."""
        keep, gave = self.keys, self.outcome
        return Outcome(
            {name: t for name, t in gave.outputs.items() if PortKey("output", name) in keep},
            {name: t for name, t in gave.gradients.items() if PortKey("gradient", name) in keep},
            {name: t for name, t in gave.mutations.items() if PortKey("mutation", name) in keep},
        )


class Recorded(FixedOrigin):
    """The live side of a recorded Capture: the inputs and results of the step. It cannot run on other values."""

    partial = True

    def __init__(
        self, kept: dict[str, Tensor], constants: Mapping[str, Tensor], outcome: Outcome, pairs: Sequence[Pair]
    ) -> None:
        taken = {port.name for pair in pairs for port in pair.forward.inputs}
        own = {name: term for name, term in outcome.gradients.items() if name in taken}  # others are overwritten
        self.kept, self.constants, self.outcome = kept, dict(constants), replace(outcome, gradients=own)
        self.read = taken | self.constants.keys()
        several = len(pairs) > 1
        self.parts = tuple(Known(self.ports(pair, pairs), outcome) for pair in pairs) if several else ()

    @staticmethod
    def ports(pair: Pair, pairs: Sequence[Pair]) -> frozenset[PortKey]:
        """Return the ports of a Pair that no other Pair has: their values are those of the whole step."""
        ports = [*pair.forward.outputs, *(pair.backward.outputs if pair.backward else ())]
        others = [
            port.key
            for each in pairs
            if each is not pair
            for port in (*each.forward.outputs, *(each.backward.outputs if each.backward else ()))
        ]
        return frozenset(port.key for port in ports) - frozenset(others)

    def values(self) -> dict[str, Tensor]:
        """Return the inputs of the step."""
        return {**self.kept, **self.constants}

    def run_step(
        self, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor] | None, anew: bool = False
    ) -> Outcome:
        """Return the results of the step, if these are its inputs. Those that it only overwrites may be any."""
        known = {name: tensor for name, tensor in self.values().items() if name in self.read and name in values}
        other = [name for name, tensor in known.items() if not same(values[name], tensor)]
        other += [tangent_name(name) for name, tensor in (tangents or {}).items() if not bool((tensor == 1).all())]
        if other:
            raise ReplayError(f"the step was recorded, and cannot run with another {other[0]!r}")
        return self.outcome


def same(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors are equal, with NaN equal to NaN."""
    return left.shape == right.shape and bool(((left == right) | ((left != left) & (right != right))).all())
