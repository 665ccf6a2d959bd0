"""GraphNet's tolerance levels: from a level t and a dtype to atol and rtol, and the names of its correctness lines.

Level 0 is atol = rtol = 1 for every dtype, and each level below is stricter. Positive levels loosen the tolerance
further; the scores read them as kinds of errors that are forgiven, too. A dtype without a row is compared exactly at
every level.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

LEVELS = range(-10, 6)

EXPONENTS: dict[str, tuple[float, float]] = {
    "float16": (1, 3 / 5),
    "bfloat16": (1, 1.796 / 5),
    "float32": (1, 5.886 / 5),
    "float64": (7 / 5, 7 / 5),
}
"""By dtype: what one level adds to the base-ten logarithms of atol and rtol."""

EQUAL = "equal"
"""The name of the correctness line that says which outputs are equal, bit for bit."""

NAMED = re.compile(r"all_close_atol_(\S+?)_rtol_(\S+)")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The arguments `atol` and `rtol` of `torch.allclose`."""

    atol: float
    rtol: float

    @property
    def line_name(self) -> str:
        """How GraphNet names the correctness line for it."""
        return f"all_close_atol_{self.atol:.2E}_rtol_{self.rtol:.2E}"


@cache
def tolerance_at(level: int, dtype: str) -> Tolerance | None:
    """The tolerance of a dtype at a level, to three digits as GraphNet compares; None where outputs must be equal."""
    if dtype not in EXPONENTS:
        return None
    atol, rtol = (float(f"{10 ** (level * exponent):.3g}") for exponent in EXPONENTS[dtype])
    return Tolerance(atol, rtol)


TOLERANCES = tuple(
    tolerance for level in LEVELS for dtype in EXPONENTS if (tolerance := tolerance_at(level, dtype)) is not None
)
"""The tolerances in the order of GraphNet's correctness lines. At level 0 all dtypes have the same one."""


def tolerance_named(name: str) -> Tolerance | None:
    """The tolerance that a correctness line is for; None where the name is none of a tolerance."""
    match = NAMED.fullmatch(name)
    return Tolerance(float(match[1]), float(match[2])) if match else None
