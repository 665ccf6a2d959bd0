"""Check the site that `make docs` built: pages load nothing from another host, and links lead to a page and an anchor.

python scripts/site.py build/site
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "link": "href", "img": "src", "source": "src", "iframe": "src", "object": "data"}
"""The tags by which a browser loads something with a page, and the attribute that says from where."""

CSS_LOADS = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")


@dataclass
class Page(HTMLParser):
    """A page as it is parsed: the addresses that it loads, its links, and the anchors that links may lead to."""

    loads: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.add(given.get("id") or "")
        if tag == "a":
            self.links.append(given.get("href") or "")
        for address in (given.get(LOADS.get(tag, "")), given.get("srcset")):
            if address:
                self.loads.append(address)


def read(path: Path) -> Page:
    """The page of a file."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def is_elsewhere(address: str) -> bool:
    """Whether an address is on another host."""
    return bool(urlsplit(address).netloc)


def problems(site: Path) -> Iterator[str]:
    """A line for each address on another host that the site loads, and for each link that leads nowhere."""
    found = {path.resolve(): read(path) for path in sorted(site.rglob("*.html"))}
    for path, page in found.items():
        yield from (f"{path.name} loads {address}" for address in page.loads if is_elsewhere(address))
        for link in page.links:
            target, parts = path, urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            if parts.path:
                target = (path.parent / unquote(parts.path)).resolve()
            if not target.exists():
                yield f"{path.name} links to {link}, which is not there"
            elif target in found and unquote(parts.fragment) not in found[target].anchors | {""}:
                yield f"{path.name} links to {link}, and {target.name} has no such anchor"
    for sheet in sorted(site.rglob("*.css")):
        yield from (f"{sheet.name} loads {address}" for address in CSS_LOADS.findall(sheet.read_text(encoding="utf-8")))


def main(site: Path) -> int:
    """Print the problems of a site, or how many pages it has; returns the exit code."""
    if not (site / "index.html").is_file():
        print(f"{site} has no index.html: build it first, make docs", file=sys.stderr)
        return 2
    wrong = list(problems(site))
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong:
        print(f"{site / 'index.html'}: {len(list(site.rglob('*.html')))} pages, every link followed, nothing remote")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
