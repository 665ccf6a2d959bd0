"""A page of HTML that needs no network: saved as a file, opened in a browser, or shown in a notebook."""

from __future__ import annotations

import html
import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from backprint.common.files import write_file
from backprint.errors import UsageError


@dataclass(frozen=True, slots=True)
class WebPage:
    """One HTML file: `save(path)` writes it, `open()` shows it in a browser, and a notebook shows it by itself."""

    title: str
    html: str = field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, which is named .html, and return its path."""
        return write_file(check_html(path), [self.html.encode()])

    def open(self) -> Path:
        """Show the page in a browser, from a temporary file that stays; return its path."""
        import webbrowser

        place = self.save(Path(tempfile.mkdtemp(prefix="backprint_")) / "page.html")
        webbrowser.open(place.as_uri())
        return place

    def shown(self, path: str | os.PathLike[str] | None) -> WebPage:
        """Write the page to a path; without one open it in a browser, unless a notebook shows it. Return the page."""
        if path is not None:
            self.save(path)
            return self
        ipython = sys.modules.get("IPython")
        shell = ipython.get_ipython() if ipython is not None else None
        if type(shell).__name__ != "ZMQInteractiveShell":  # the shell of notebooks; that of a terminal shows no HTML
            self.open()
        return self

    def _repr_html_(self) -> str:
        inside = html.escape(self.html, quote=True)
        look = "width:100%;height:760px;border:1px solid #8888;border-radius:6px"
        return f'<iframe title="{html.escape(self.title, quote=True)}" style="{look}" srcdoc="{inside}"></iframe>'


HTML = (".html", ".htm")
"""How the name of a page ends."""

PICTURES = dict.fromkeys((".svg", ".png", ".dot"), "; a picture is written by `backprint draw`")
"""Endings that are asked of a page by who means a picture, and what to do then."""


def check_html(path: str | os.PathLike[str]) -> Path:
    """Return the path of a page, whose name says that it is HTML."""
    place = Path(path)
    if place.suffix.lower() not in HTML:
        elsewhere = PICTURES.get(place.suffix.lower(), "")
        raise UsageError(
            f"{str(path)!r}: a page is HTML: give it a name such as page.html, which ends with {' or '.join(HTML)}"
            f"{elsewhere}"
        )
    return place
