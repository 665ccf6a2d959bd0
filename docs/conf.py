"""The settings of `make docs`: Sphinx builds a site from the Markdown here and from the docstrings of `backprint`."""

import re
from typing import Any

from backprint.version import __version__

project = "Backprint"
project_copyright = "The Backprint authors"
html_title = f"Backprint {__version__}"
html_theme = "furo"  # loads no font, script or style from another host
pygments_dark_style = "monokai"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 3
myst_enable_extensions = ["html_image"]  # pictures side by side, with a width, as code hosts show them too
default_role = "code"  # docstrings write `name`, as Markdown does
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88

html_static_path = ["_static"]
html_css_files = ["copy.css"]
html_js_files = [("copy.js", {"defer": "defer"})]  # a copy button at each block of code

DARK = r'<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">'
PICTURE = re.compile(rf'<picture>\s*{DARK}\s*<img src="([^"]+)"([^>]*)></picture>')


def both_pictures(_app: Any, _name: str, source: list[str]) -> None:
    """Write a `<picture>` as two images, of which the theme shows one: on the site, a reader can choose the look."""
    two = r'<img src="\1" class="only-dark"\3><img src="\2" class="only-light"\3>'
    source[0] = PICTURE.sub(two, source[0])


def setup(app: Any) -> None:
    """Connect what changes pages before they are read."""
    app.connect("source-read", both_pictures)
