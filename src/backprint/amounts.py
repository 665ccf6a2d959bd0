"""Large numbers as short texts."""

from __future__ import annotations


def amount(count: int) -> str:
    """Return bytes as text."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return ""


def short(count: int) -> str:
    """Return a large number as text."""
    size = float(count)
    for unit in ("", "K", "M", "G", "T"):
        if size < 1000 or unit == "T":
            return f"{size:.3g}{unit}"
        size /= 1000
    return ""
