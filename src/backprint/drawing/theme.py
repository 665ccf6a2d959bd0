"""The colors of pictures, in light and dark: those of Okabe and Ito, which color-blind people tell apart.

Sides, dashes and widths say the same as the colors. They are written out, because many programs that read SVG know no
CSS variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

LIGHT: Mapping[str, str] = {
    "page": "#ffffff", "ink": "#1b1f24", "soft": "#5b6470", "line": "#c9d1da", "band": "#f4f6f8",
    "forward": "#0072b2", "forward-fill": "#e3f0f9", "backward": "#b35000", "backward-fill": "#fcebdd",
    "saved": "#00795a", "view": "#8a939e", "view-fill": "#f3f5f7",
    "pill": "#6b5b95", "gradient": "#a3195b", "mutation": "#8a6100", "bad": "#c0152f",
}  # fmt: skip

DARK: Mapping[str, str] = {
    "page": "#14181d", "ink": "#e6e9ee", "soft": "#9aa5b3", "line": "#3a434f", "band": "#1b2027",
    "forward": "#5cb3ea", "forward-fill": "#132c3f", "backward": "#f0975a", "backward-fill": "#3d2413",
    "saved": "#3fc79f", "view": "#8a939e", "view-fill": "#20262e",
    "pill": "#b3a3e0", "gradient": "#f07ab0", "mutation": "#e3b94d", "bad": "#ff7d8c",
}  # fmt: skip

RULES = """
text { fill: $ink; }
.small { fill: $soft; }
.page { fill: $page; }
.frame { stroke: $line; }
.depth-0 { fill: $band; }
.depth-1 { fill: $page; }
.folded { fill: $page; stroke: $line; }
.half-forward { fill: $forward-fill; }
.half-backward { fill: $backward-fill; }
.forward { fill: $forward-fill; stroke: $forward; }
.backward { fill: $backward-fill; stroke: $backward; }
.view { fill: $view-fill; stroke: $view; }
.keeps { stroke: $saved; }
.bad { stroke: $bad; }
.flow-forward { stroke: $forward; }
.flow-backward { stroke: $backward; }
.flow-saved { stroke: $saved; }
.flow-bad { stroke: $bad; }
.arrow-forward { fill: $forward; }
.arrow-backward { fill: $backward; }
.arrow-bad { fill: $bad; }
.saved-text { fill: $saved; stroke: $page; }
.bad-text { fill: $bad; stroke: $page; }
.label { stroke: $page; }
.pill { stroke: $pill; }
.pill-text { fill: $pill; }
.pill-gradient { stroke: $gradient; }
.text-gradient { fill: $gradient; }
.pill-mutation { stroke: $mutation; }
.text-mutation { fill: $mutation; }
.pill-output, .pill-tangent, .pill-input { stroke: $ink; }
.text-output, .text-tangent, .text-input { fill: $ink; }
"""

SHAPES = """
svg { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
text { font-size: 12px; }
.small { font-size: 9.5px; }
.bold { font-weight: 600; }
path { fill: none; }
.folded, .forward, .backward { stroke-width: 1.2; }
.view { stroke-width: .8; }
.guard { stroke-dasharray: 3 2; }
.keeps { stroke-width: 2.2; }
.flow-backward { stroke-dasharray: 5 2.5; }
.flow-saved { stroke-opacity: .55; }
.thin { stroke-dasharray: 1.5 3; }
.saved-text, .bad-text { font-size: 9.5px; font-weight: 600; paint-order: stroke; stroke-width: 3px; }
.label { paint-order: stroke; stroke-width: 3px; }
.pill { fill: none; stroke-width: .8; }
.pill-text { font-size: 9px; }
.pill-mutation { stroke-dasharray: 3 2; }
"""


def colored(rules: str, colors: Mapping[str, str]) -> str:
    """Return rules with their colors."""
    return re.sub(r"\$([a-z-]+)", lambda found: colors[found[1]], rules)


IN_DARK = f"@media screen and (prefers-color-scheme: dark) {{{colored(RULES, DARK)}}}\n"

STYLE = SHAPES + colored(RULES, LIGHT) + IN_DARK
"""The style of a picture."""
