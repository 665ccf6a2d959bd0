"""The page of a Capture: one HTML file with its script, its style and its data, which asks for nothing else.

Names and source lines are strangers' words. They stand in a block of JSON without `<`, which no browser runs, and the
page writes them as text. A content security policy allows the page's own script and style, by digest, and nothing else.
`page.js` and `page.css` are built from `page/` by `make page`.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from backprint.plain import policy_digest, printable


def page_html(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield a page in pieces. `data` is what `page_data` returns."""
    script, style = (files(__package__).joinpath(name).read_text("utf-8") for name in ("page.js", "page.css"))
    allowed = f"style-src {policy_digest(style)}; script-src {policy_digest(script)}"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    title = html.escape(printable(str(data["title"])), quote=True)
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<div id="app"><noscript>This page draws with JavaScript, which this browser does not run.</noscript></div>\n'
        '<script type="application/json" id="data">'
    )
    yield json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    yield f"</script>\n<script>{script}</script>\n</body>\n</html>\n"
