"""The probes of this room, in one list, and which features of Backprint they leave working on this torch."""

from __future__ import annotations

from collections.abc import Mapping

from backprint._torch import (
    aot,
    autograd,
    distributed,
    dynamo,
    fake,
    functorch,
    graphs,
    inductor,
    modes,
    modules,
    operators,
    pointwise,
    process_state,
    pytree,
    script,
    shapes,
    tensors,
)
from backprint._torch.private import FEATURES, Probe, stopped_by

PROBES: Mapping[str, Probe] = {
    probe.name: probe
    for module in (
        modes,
        autograd,
        tensors,
        operators,
        functorch,
        pytree,
        modules,
        process_state,
        script,
        fake,
        graphs,
        shapes,
        aot,
        dynamo,
        inductor,
        pointwise,
        distributed,
    )
    for probe in module.PROBES
}
"""Every probe, by the name that it probes."""


def broken_probes() -> dict[str, str]:
    """Return the probes that do not hold on this torch, each with the reason."""
    reasons: dict[str, str] = {}
    for name, probe in PROBES.items():
        try:
            if not probe.holds():
                reasons[name] = "it is there, and does not behave as expected"
        except Exception as error:  # whatever a private name raises here, the other probes say what works
            reasons[name] = f"{type(error).__name__}: {error}"
    return reasons


def stopped_features(broken: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the features that do not work, each with the broken probes that it needs, in the order of FEATURES."""
    stopped = {name: stopped_by(PROBES[name].needed_by) for name in broken}
    reasons = {feature: tuple(name for name in broken if feature in stopped[name]) for feature in FEATURES}
    return {feature: names for feature, names in reasons.items() if names}
