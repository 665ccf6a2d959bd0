"""Each word that Backprint prints, and that PyTorch's users would not know, has its entry in docs/glossary.md.

What is printed is derived from the source, and not listed here: headings of tables (each dict of `src` from names to
kinds of cells), columns of the ledger, the words of verdicts, outcomes, changes, roles and engines, the enums of the
schemas of `--json`, and each word of `tests/golden/output` that neither PyTorch's docstrings nor Python's own
documentation has.

The limits: a common word in a sense of its own (*power*, *port*) is seen where it is a heading or one of those words,
and else only because it stands in COMMON below. Output that no golden file holds is not read. Whether an entry is right
no test can say.
"""

from __future__ import annotations

import ast
import json
import pydoc_data.topics
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import backprint as bp
from face import (
    CANNOT_TELL,
    CHANGES,
    COLUMNS,
    DERIVATIVE,
    ENGINES,
    KINDS_OF_CELLS,
    NOT_THE_DERIVATIVE,
    OUTCOMES,
    ROLES,
    VERDICTS,
)

ROOT = Path(__file__).parents[1]
SOURCE = Path(bp.__file__).parent
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text("utf-8")

COMMON = """
power port vacuous pinned stamped twin meant tangent sample pair capture verdict unproven engine guard recipe state
saved_tensor island occasion judge ledger corpus solution task proof redrawn pass region step fold witness world
"""
"""Words in a sense of their own, and words of pages and messages that no table has."""

PLAIN_COLUMNS = """
FLOPs after allowed before bytes calls captured cells code compiler detail difference direction error fact finished
forward from gradient gradients graph graphs guards high id input inputs kind line load log low mode moved_bytes name
new notes of old operator operators outcome outputs page part path read reason right run samples seconds size slower
stages started steps time timed times torch value versions what why word written engine forward_steps backward_steps
saved_bytes
"""
"""Headings that say themselves what they are, or whose words have entries."""

PLAIN_WORDS = """
backprint beside compilers convnet costs demo directions doctor engines facts faults fits folder forwards gpt graphnet
hangs hashes labels measured mlp monday mutates neuron outcome partly people picture probed refuses resumably slowest
solutions sources spare speedup stages tangents temporaries tuesday verb who wire
"""
"""Words of the output that PyTorch's and Python's documentation lack, and that mean what they mean in any text."""

PLAIN_ENUMS = "inf -inf nan Inf NaN none values stats inputs gradients forward added removed changed renamed"
"""Words of `--json` that its own page, or that of differences, explains by an example."""


def explained(text: str) -> set[str]:
    """The words that a glossary explains: its entries, what they have in bold, and the first column of its tables."""
    words = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    words |= {word.lower().replace("\n", " ") for word in re.findall(r"\*\*(.+?)\*\*", text, re.DOTALL)}
    for cell in re.findall(r"^\| (`.+?) \|", text, re.MULTILINE):
        words |= set(re.findall(r"`([^`]+)`", cell))
    return words


def headings(source: Path) -> Iterator[str]:
    """The headings of tables: the keys of each dict from names to kinds of cells."""
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Dict) or not node.values:
                continue
            names = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            kinds = [value.value for value in node.values if isinstance(value, ast.Constant)]
            if len(names) == len(kinds) == len(node.values) and set(kinds) <= set(KINDS_OF_CELLS):
                yield from map(str, names)


def enums(schema: Any) -> Iterator[str]:
    """The words that a schema allows somewhere."""
    if isinstance(schema, dict):
        yield from (word for word in schema.get("enum", ()) if isinstance(word, str))
        yield from (word for below in schema.values() for word in enums(below))
    elif isinstance(schema, list):
        yield from (word for below in schema for word in enums(below))


DOCUMENTED = """
_torch_docs.py _tensor_docs.py nn/functional.py nn/modules/module.py nn/modules/normalization.py autograd/graph.py
autograd/__init__.py autograd/function.py utils/checkpoint.py utils/data/dataloader.py optim/optimizer.py
distributed/distributed_c10d.py cuda/memory.py export/__init__.py profiler/profiler.py amp/grad_scaler.py
"""


@cache
def known_elsewhere() -> frozenset[str]:
    """The words of Python's reference, and of the modules of PyTorch whose docstrings its users read."""
    texts = [(Path(torch.__file__).parent / name).read_text("utf-8") for name in DOCUMENTED.split()]
    return frozenset(re.findall("[a-z]{3,}", " ".join([*texts, *pydoc_data.topics.topics.values()]).lower()))


def printed(text: str) -> set[str]:
    """The words of an output: lower-case, and no part of a name, a path or a call."""
    lines = [line for line in text.splitlines() if not line.startswith("$ ")]
    word = r"(?<![\w./\\`'\"<({\[-])[a-z]{3,}(?![\w./\\`(=\[{:-]*[\w(=/])"
    return {found for line in lines for found in re.findall(word, line)}


EXPLAINED = explained(GLOSSARY)


@pytest.mark.slow
def test_each_heading_of_a_table_is_explained() -> None:
    names = {*headings(SOURCE), *COLUMNS}
    assert len(names) > 90
    assert sorted(names - EXPLAINED - set(PLAIN_COLUMNS.split())) == []
    assert sorted(set(PLAIN_COLUMNS.split()) - names) == [], "no heading any more"


def test_each_word_of_a_status_is_explained() -> None:
    words = {*VERDICTS, *OUTCOMES, *CHANGES, *ENGINES, DERIVATIVE, NOT_THE_DERIVATIVE, CANNOT_TELL}
    assert sorted(words - EXPLAINED) == []
    assert sorted(role for role in ROLES if f"`{role}`" not in GLOSSARY) == []
    schemas = [json.loads(path.read_text("utf-8")) for path in (SOURCE / "schemas").glob("*.json")]
    of_json = {word for schema in schemas for word in enums(schema) if word}
    assert sorted(of_json - EXPLAINED - set(PLAIN_ENUMS.split())) == []


def test_each_common_word_in_a_sense_of_its_own_is_explained() -> None:
    assert sorted({word.replace("_", " ") for word in COMMON.split()} - EXPLAINED) == []


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="held with the torch of daily work")
def test_each_unusual_word_of_the_output_is_explained() -> None:
    outputs = [path.read_text("utf-8") for path in (ROOT / "tests" / "golden" / "output").glob("*.txt")]
    words = {word for text in outputs for word in printed(text)}
    assert len(words) > 400
    entries = {part for entry in EXPLAINED for part in re.findall("[a-z]+", entry.lower())}
    known = known_elsewhere() | entries | {f"{entry}s" for entry in entries}
    assert sorted(words - known - set(PLAIN_WORDS.split())) == []


def test_a_new_word_is_noticed(tmp_path: Path) -> None:
    code = 'columns = {"sample": "name", "wobble": "count"}\nother = {"a": "count", "b": 1}\n'
    (tmp_path / "new.py").write_text(code)
    assert set(headings(tmp_path)) == {"sample", "wobble"}
    assert "wobble" not in EXPLAINED
    words = printed("$ backprint wobbly\nsamples/a: 3 ports are frobbed, see model.frobs(x)")
    assert words == {"ports", "are", "frobbed", "see"}
    assert "frobbed" not in known_elsewhere()
    page = "### one\nIt is **two**, or **Three\nfour**.\n\n| `five`, `six` | is `seven` |\n"
    assert explained(page) == {"one", "two", "three four", "five", "six"}


def test_entries_are_short_in_order_and_lead_on() -> None:
    part = GLOSSARY.partition("## Words\n")[2].partition("\n## ")[0]
    entries = {name: text for name, _, text in (entry.partition("\n") for entry in part.split("### ")[1:])}
    assert list(entries) == sorted(entries)
    assert {name for name, text in entries.items() if len(text) > 520} == set()
    assert {name for name, text in entries.items() if "[More](" not in text} == {"extra", "surrogate"}
