"""Readers of strangers' texts: each takes a time and a memory that are linear in the bytes, and reads what is there."""

from __future__ import annotations

import os
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from face import (
    Graph,
    GraphError,
    Port,
    Ref,
    RefusedError,
    SampleError,
    Step,
    TensorSpec,
    count_tokens,
    emit,
    parse,
    read_bytes,
    read_code,
    scan,
    why_outgrown,
)
from face import text as text_module

SPEC = TensorSpec("float32", (2,))


def chain(count: int) -> Graph:
    """A graph of so many steps."""
    steps = [
        Step(f"y_{place}", "aten.add.Tensor", (Ref(f"y_{place - 1}" if place else "x"), place), (), SPEC)
        for place in range(count)
    ]
    return Graph((Port("x", "input", SPEC, "x"),), tuple(steps), (Port("y", "output", SPEC),), (Ref(steps[-1].name),))


TEXT = emit(chain(3))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("add.Tensor(x, 0)", "add.Tensor(x, 0x0)"),
        ("add.Tensor(x, 0)", "add.Tensor(x, (0))"),
        ("        y_1:", "\n\n        y_1:"),
        ('"""', '"""'),
        ("return (y_2,)", "return (y_2, )"),
    ],
)
def test_a_text_that_python_runs_alike_is_read(before: str, after: str) -> None:
    assert parse(TEXT.replace(before, after)) == parse(TEXT)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("add.Tensor(x, 0)", "add.Tensor(x, 1e400)"),
        ("add.Tensor(x, 0)", "add.Tensor(x, -nan)"),
        ("add.Tensor(x, 0)", 'getattr(torch, "inf")(x, 0)'),
        ("import math\n", "import math;\\\n"),
        ("import torch\n", "import torch; x = 1\n"),
        ("add.Tensor(x, 0)", 'add.Tensor(x, f"{x}")'),
        ("add.Tensor(x, 0)", "add.Tensor(x, \\\n 0)"),
    ],
)
def test_a_text_that_is_not_written_as_a_graph_is_refused(before: str, after: str) -> None:
    assert before in TEXT
    with pytest.raises(GraphError):
        parse(TEXT.replace(before, after))


def test_a_reader_that_reads_another_graph_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    module = text_module._module

    def loses_a_step(*given: object) -> Graph:
        graph = module(*given)  # type: ignore[arg-type]  # as `parse` calls it
        return replace(graph, steps=(replace(graph.steps[0], args=(Ref("x"), 5)), *graph.steps[1:]))

    monkeypatch.setattr(text_module, "_module", loses_a_step)
    with pytest.raises(RefusedError, match=r"line \d+: .* is not written as a graph is"):
        parse(TEXT)


@pytest.mark.slow
def test_a_large_text_is_read_in_pieces_as_backprint_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = chain(3_000)
    text = emit(graph)
    monkeypatch.setattr(text_module, "MAX_TOKENS", 40_000)
    monkeypatch.setattr(text_module, "PIECE", 500)
    tracemalloc.start()
    assert parse(text) == graph
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 * len(text)
    for odd in (text.replace("add.Tensor(x, 0)", "add.Tensor(x,  0)"), text.replace("y_9:", "y_9 :", 1)):
        with pytest.raises(RefusedError, match="is not as Backprint writes it"):
            parse(odd)
    broken = text.replace("y_1700: ", "import os  # ", 1)
    with pytest.raises(GraphError):
        parse(broken)


@pytest.mark.parametrize("part", ["a ", "a,", '"" ', "'a'", "(", "#\n", "1+", "a;", "\n", "is ", "a" * 9])
def test_tokens_are_never_fewer_than_pythons(part: str) -> None:
    words = len(re.findall(r"\w+|[^\w\s]", part.replace('""', "s").replace("'a'", "s"))) - part.count("#")
    assert count_tokens(scan(part * 50).lines[0] if "\n" not in part else part * 50) >= words
    assert scan(part * 50).tokens >= words


@pytest.mark.parametrize("text", ['x = f"{a}"', "x = b'a'", "x = '''a", 'x = "a', "x = 1 \\\n + 2", 'x = rb"a"'])
def test_strings_that_versions_of_python_read_differently_are_refused(text: str) -> None:
    for read in (parse, read_code):
        with pytest.raises(GraphError):
            read(text)


# ------------------------------------------------------------------ GraphNet

CODE = """\
import torch
from torch import device, inf
class GraphModule(torch.nn.Module):
    def forward(self, x):
        y = torch.full((2,), inf, device=device("cpu"))
        return (y,)
"""


@pytest.mark.parametrize("name", ["inf", "device"])
def test_a_name_that_a_later_line_binds_is_local_to_python(name: str) -> None:
    read_code(CODE)
    with pytest.raises(RefusedError, match=f"'{name}' is used before a line binds it"):
        read_code(CODE.replace("        return", f"        {name} = y\n        return"))


# ------------------------------------------------------------------ elements visited


def test_elements_of_a_view_that_takes_no_memory_are_counted_where_they_are_visited() -> None:
    aten = torch.ops.aten
    view = torch.ones(3, 4).expand(2**40, 3, 4)
    square = torch.ones(1, 1).expand(2**20, 2**20)
    visiting = [
        (aten.norm.Scalar, (view, 2)),
        (aten.tril_.default, (square,)),
        (aten.nonzero.default, (view,)),
        (torch.norm, (view,)),
        (aten.sum.default, (view,)),
    ]
    for function, args in visiting:
        assert "visits" in why_outgrown(function, args, {}), function
    for function, args in [
        (aten.transpose.int, (view, 0, 1)),
        (aten.select.int, (view, 0, 1)),
        (aten.expand.default, (torch.ones(3, 4), [2**40, 3, 4])),
    ]:
        assert why_outgrown(function, args, {}) == ""


# ------------------------------------------------------------------ files


def test_only_a_regular_file_of_a_bounded_size_is_read(tmp_path: Path) -> None:
    file, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    file.write_bytes(b"12345")
    link.symlink_to(file)
    os.mkfifo(pipe)
    assert read_bytes(file, 5) == read_bytes(link, 5, links=True) == b"12345"
    for path, most, why in (
        (file, 4, "at most 4"),
        (link, 5, "symbolic link"),
        (pipe, 5, "not a regular file"),
        (tmp_path, 5, "not a regular file"),
        (tmp_path / "none", 5, "No such file"),
    ):
        with pytest.raises(SampleError, match=why):
            read_bytes(path, most)
    with pytest.raises(SampleError, match="at most 9 are read"):
        read_bytes("/proc/self/status", 9)  # its size is said to be 0


def test_a_file_that_is_swapped_while_it_is_read_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    fstat = os.fstat

    def swapped(handle: int) -> os.stat_result:
        file.unlink(missing_ok=True)
        file.write_bytes(b"x" * 1_000)
        return fstat(handle)

    monkeypatch.setattr(os, "fstat", swapped)
    assert read_bytes(file, 5) == b"12345"
