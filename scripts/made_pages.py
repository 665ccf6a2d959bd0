"""Write a page of docs/ of which a script makes a part; with `--check`, fail if the page is not what it makes."""

from __future__ import annotations

import sys
from pathlib import Path


def keep(page: Path, text: str, script: str) -> None:
    """Write the text of a page that `scripts/SCRIPT` has made, or check that the page has it already."""
    if page.read_text("utf-8") == text:
        return
    if "--check" in sys.argv:
        raise SystemExit(f"{page} is not what it is made of: run python scripts/{script}")
    page.write_text(text, "utf-8")
