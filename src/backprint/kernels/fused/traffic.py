"""The fewest bytes that a direction could move: each input that its kernels read, once, and each result that is no
input, once."""

from __future__ import annotations

from backprint.kernels.fused.kernel_text import FusedText
from backprint.kernels.fused.nouns import Direction


def fewest(direction: Direction, text: FusedText) -> int:
    """Return the fewest bytes of a direction at the captured sizes."""
    given = {port.name for port in direction.inputs}
    read = sum(port.size for port in direction.inputs if port.name in text.used)
    results = zip(direction.outputs, text.results, strict=True)
    written = {value: port.size for port, value in results if value not in given}
    return read + sum(written.values())
