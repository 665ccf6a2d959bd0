"""Write the graphs of a sample of format 3 flat, in its place. Nothing of the sample is run.

Format 3 had large graphs on disk with their repeated steps as loops, and a reader of its own for them. Files were found
that the reader took for one program and Python for another, so graphs are stored flat again, and loops are only shown.

What is read of such a text here is proved: the text with loops that Backprint writes of the graph has to be the stored
one, to the letter, and its annotations those that capture.json has the digest of. A text that Backprint did not write
is refused, whatever it means. This holds as long as `graph/folding` writes as it did for format 3: whoever changes that
text keeps the old writer here, or ends this command.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backprint.common.files import read_text, write_file
from backprint.common.formats import CAPTURE
from backprint.errors import GraphError, RefusedError, SampleError
from backprint.graph.folding.fold import fold_of
from backprint.graph.folding.unroll import unrolled
from backprint.graph.links import digest_of
from backprint.graph.nouns import Graph
from backprint.graph.text import FORWARD_WITH_LOOPS, MAX_CHARACTERS, emit, parse
from backprint.sample.load import check_folders, folder_of_pair, load, read_graph
from backprint.sample.metadata import FORMAT, LOOPS_FORMAT, Field, errors_with_path, json_text, read_claims, read_json
from backprint.sample.standalone import FOOTER, MARKER, footer_digest

FOOTERS_OF_LOOPS = frozenset(
    {
        "d44cef79f8aaf8cb507c2995d9914d1f7e6665c05fa427991dcde924ae73ea0e",
        "8a9ab10dd66af2febac80f5af12a1528844e9c003082a2975b8e75644d39cc22",
    }
)
"""The digests (`footer_digest`) of the footers below graphs with loops, which had one function more than those below
flat graphs."""


SIDES = ("forward", "backward")


def convert(path: str | os.PathLike[str]) -> int:
    """Write the graphs of a sample, or of one direction's folder, flat; return how many had loops.

    Each file is replaced as a whole, and `capture.json` last: a conversion that was interrupted is repeated.
    """
    folder = Path(path)
    place = folder / CAPTURE
    if not place.exists() and not place.is_symlink():
        return convert_text(folder / "model.py", {})
    content = read_json(place)
    if content.get("format") != LOOPS_FORMAT:
        load(folder)  # which says what is wrong with a sample that cannot be read
        return 0
    count = 0
    with errors_with_path(place):
        root = Field(content, "")
        rows, requires = root.get("pairs").items(100_000), root.get("requires", []).texts()
        check_folders(rows)
        folders = [folder_of_pair(folder, row) for row in rows]
        claims = [{side: read_claims(row.get(side)) for side in SIDES if side in row.expect(dict)} for row in rows]
    for pair, claims_of_pair in zip(folders, claims, strict=True):
        for side, claim in claims_of_pair.items():
            path = pair / side / "model.py"
            if convert_text(path, claim):
                count += 1
            else:
                read_graph(path, requires, requires)  # it is flat, but may not be a graph
    write_file(place, [(json_text(content | {"format": FORMAT}) + "\n").encode()])
    return count


def convert_text(path: Path, claims: Mapping[str, Any]) -> bool:
    """Write a `model.py` flat if its graph has loops, and its digest beside it; return whether it had loops."""
    text = read_text(path, 4 * MAX_CHARACTERS)
    body, marker, rest = text.partition(MARKER)
    if f"\n{FORWARD_WITH_LOOPS}\n" not in body:
        return False
    if footer_digest(marker + rest) not in FOOTERS_OF_LOOPS:
        raise RefusedError(f"{path}: the lines below the graph are not those that samples end with; nothing was run")
    try:
        graph = graph_of(body)
    except GraphError as error:
        raise type(error)(f"{path}: {error}") from None
    if claims.get("annotations", digest_of(graph)) != digest_of(graph):
        raise SampleError(f"{path}: the annotations of its graph are not those that capture.json has the digest of")
    flat = f"{emit(graph)}\n\n{FOOTER}".encode()
    write_file(path, [flat])
    write_file(path.with_name("graph_hash.txt"), [hashlib.sha256(flat).hexdigest().encode()])
    return True


def graph_of(text: str) -> Graph:
    """Return the Graph of a text with loops that Backprint wrote."""
    graph = parse(unrolled(text))
    written = fold_of(graph).code
    if written.rstrip("\n") != text.rstrip("\n"):
        lines = zip(written.split("\n"), text.split("\n"), strict=False)
        number = next(
            (number for number, (written_line, stored_line) in enumerate(lines, 1) if written_line != stored_line), 0
        )
        raise RefusedError(f"line {number}: the graph is not written as Backprint writes one with loops")
    return graph
