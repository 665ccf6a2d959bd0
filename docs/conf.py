"""The settings of `make docs`: Sphinx builds a site from the Markdown here and from the docstrings of `backprint`."""

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
