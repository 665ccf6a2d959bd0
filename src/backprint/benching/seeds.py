"""The generators that a graph draws from: their state, and seeds for them.

`torch.manual_seed` also tells the devices that were not used yet, each with the text of the whole stack: 2 ms a call,
where a bench makes thousands, and memory that is never given back.
"""

from __future__ import annotations

from typing import Any

import torch

RandomState = tuple[Any, Any]
"""The state of the CPU's generator, and those of the GPUs'."""

CPU = torch.default_generator


def seed_generators(seed: int) -> None:
    """Seed the generators of the CPU and of the GPUs that are in use."""
    CPU.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def state_of(seed: int) -> RandomState:
    """Return the random state of a seed, and leave the generators in it."""
    seed_generators(seed)
    return random_now()


def random_now() -> RandomState:
    """Return the random state."""
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ()
