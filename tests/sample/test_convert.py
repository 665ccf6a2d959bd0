"""Samples of format 3 have graphs with loops on disk: refused by name, and written flat by `backprint convert`."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from torch import Tensor, nn

import backprint as bp
from backprint.cli import main
from backprint.graph.text import FORWARD_WITH_LOOPS, parse
from backprint.sample.convert import convert, graph_of
from backprint.sample.standalone import MARKER

GOLDEN = Path(__file__).parents[1] / "golden" / "format_3"
ENDING = (GOLDEN / "pair_0/forward/model.py").read_text().partition(MARKER)[2]


class Repeated(nn.Module):
    """Layers that repeat, with steps that recur within a layer."""

    def __init__(self, depth: int = 12) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 12), nn.Linear(12, 8), nn.GELU()) for _ in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            y = layer(x).unflatten(-1, (2, 4)).transpose(-1, -2).flatten(-2)
            x = x + (y * 0.5).sin().cos() * 0.1
        return x


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    return bp.capture(Repeated(), torch.randn(3, 8)).save(tmp_path_factory.mktemp("samples") / "flat")


@pytest.fixture
def stored(flat: Path, tmp_path: Path) -> Path:
    """The same sample as format 3 had it."""
    place = shutil.copytree(flat, tmp_path / "stored")
    for path in models(place):
        text = path.read_text()
        path.write_text(f"{parse(text.partition(MARKER)[0]).fold().code}\n\n{MARKER}{ENDING}")
        path.with_name("graph_hash.txt").write_text(hashlib.sha256(path.read_bytes()).hexdigest())
    set_format(place, 3)
    return place


def models(sample: Path) -> list[Path]:
    return [sample / "pair_0" / side / "model.py" for side in ("forward", "backward")]


def set_format(sample: Path, number: int) -> None:
    place = sample / "capture.json"
    found = json.loads(place.read_text())["format"]
    place.write_text(place.read_text().replace(f'"format": {found},', f'"format": {number},', 1))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def call(*words: object) -> Result:
    return CliRunner().invoke(main, list(map(str, words)))


def has_loops(path: Path) -> bool:
    return f"\n{FORWARD_WITH_LOOPS}\n" in path.read_text()


# ------------------------------------------------------------------ refused, and converted


def test_a_sample_with_loops_is_refused_with_the_command_that_converts_it(stored: Path) -> None:
    with pytest.raises(bp.errors.SampleError, match=rf"format 3: .* `backprint convert {stored}` writes them flat"):
        bp.load(stored)
    set_format(stored, 2)  # what its format claims is not believed
    with pytest.raises(bp.errors.RefusedError, match=r"a graph with loops, .* `backprint convert SAMPLE`"):
        bp.load(stored).pairs[0].forward  # noqa: B018  # reading it is what is refused


def test_the_golden_sample_is_converted_and_proved(tmp_path: Path) -> None:
    place = shutil.copytree(GOLDEN, tmp_path / "golden")
    before = files(place)
    assert convert(place) == 2
    assert [verdict.verdict for verdict in bp.verify(bp.load(place))] == ["bitwise"]
    after = files(place)
    changed = {name for name in before if after[name] != before[name]}
    written = {f"pair_0/{side}/{name}" for side in ("forward", "backward") for name in ("model.py", "graph_hash.txt")}
    assert (after.keys(), changed) == (before.keys(), {"capture.json", *written})
    assert after["capture.json"] == before["capture.json"].replace(b'"format": 3', b'"format": 4')
    for path in models(place):
        assert path.with_name("graph_hash.txt").read_text() == hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_is_converted_is_what_is_saved_today(stored: Path, flat: Path) -> None:
    assert all(map(has_loops, models(stored)))
    done = call("convert", stored)
    assert (done.exit_code, done.output) == (0, f"{stored}: 2 graphs written flat\n")
    assert files(stored) == files(flat)
    assert call("convert", stored).output == f"{stored}: has no loops\n"
    assert files(stored) == files(flat)


def test_a_conversion_that_was_interrupted_goes_on(stored: Path, flat: Path) -> None:
    shutil.copy(models(flat)[0], models(stored)[0])
    shutil.copy(models(flat)[0].with_name("graph_hash.txt"), models(stored)[0].with_name("graph_hash.txt"))
    assert convert(stored) == 1
    assert files(stored) == files(flat)


def test_a_copied_direction_is_converted_for_graphnets_reader(stored: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(stored / "pair_0" / "forward", tmp_path / "theirs")
    with pytest.raises(bp.errors.RefusedError, match="`backprint convert SAMPLE`"):
        bp.capture(copy)
    assert call("convert", copy).output == f"{copy}: 1 graph written flat\n"
    assert [verdict.verdict for verdict in bp.verify(bp.capture(copy))] == ["bitwise"]


def test_all_samples_below_a_folder_are_converted(stored: Path, flat: Path) -> None:
    broken = shutil.copytree(stored, stored.parent / "broken")
    models(broken)[1].write_text(models(broken)[1].read_text().replace("range(12)", "range(11)"))
    shutil.copytree(flat, stored.parent / "today")
    done = call("convert", stored.parent)
    assert done.exit_code == 1
    assert f"{stored}: 2 graphs written flat\n" in done.output
    assert f"{stored.parent / 'today'}: has no loops\n" in done.output
    assert f"not converted: {models(broken)[1]}: " in done.output
    with pytest.raises(bp.errors.SampleError, match="format 3"):
        bp.load(broken)


# ------------------------------------------------------------------ texts that Backprint did not write

LAST = '        return tuple(v[port.partition(":")[0]] for port in self.outputs)'
EPS = 'params[f"layers_{i}_0_bias"], 1e-05)'
HUGE = "0x" + "f" * 20_000

EVIL: dict[str, Callable[[str], str]] = {
    "a comment that ends a string of a port": lambda text: text.replace(
        '        "x: f32[3, 8] input x",\n    ]\n',
        '        *(port for i in range(1) for port in ("x: f32[3, 8] input x" if i == 0 else """\n'
        '    # """,))]; zz = [print("EVIL")]\n',
    ),
    "a function named like a number of a name": lambda text: text.replace(
        "\n\n\nclass GraphModule",
        '\n\n\ndef a(x):\n    y: "f32[8, 3]" = aten.t.default(x)\n    return y\n\n\n'
        'def pick(x):\n    z: "f32[3, 8]" = aten.mul.Tensor(x, {5: 1.0}.get(a, -1.0))  # as picked\n    return z\n\n\n'
        "class GraphModule",
    ).replace("        last_add = ", '        chosen = pick(inputs["x"])  # a=5\n        last_add = '),
    "a name": lambda text: text.replace("# as t_{2*i}", "# as t_{3*i}"),
    "a statement in a name": lambda text: text.replace('inputs["x"]', 'inputs["x; exec(1)"]'),
    "a call": lambda text: text.replace("aten.sin.default", "torch.load"),
    "a call in a key": lambda text: text.replace('inputs["x"]', "inputs[str(1)]"),
    "a line of the program": lambda text: text.replace("# [layers.{i}.0]", "# [layers.{i}.1]"),
    "a decorator": lambda text: text.replace("class GraphModule", "@print\nclass GraphModule"),
    "a default": lambda text: text.replace("def forward(self, *given):", "def forward(self, *given, x=print()):"),
    "another first line": lambda text: text.replace('{"None": None', '{"None": 1'),
    "another last line": lambda text: text.replace(LAST, LAST.replace("self.outputs", "self.inputs")),
    "a statement more": lambda text: text.replace(LAST, f"        print(v)\n{LAST}"),
    "a key twice": lambda text: text.replace(EPS, EPS.replace("1e-05", "{0: 1e-05, 0: 5.0}.get(i, 1e-05)")),
    "an encoding": lambda text: text.replace("import math\n", "# coding: utf-7\nimport math\n", 1),
    "a fourth iteration": lambda text: text.replace("range(12)", "range(13)"),
    "an import": lambda text: text.replace("import math\n", "import math, os\n", 1),
    "a row of ports more": lambda text: text.replace("    inputs = [", '    inputs = [\n        "y: f32[8] input y",'),
    "a billion iterations": lambda text: text.replace("range(12)", "range(1000000000)"),
    "a loop of many digits": lambda text: text.replace("range(12)", f"range({HUGE})"),
    "a number of many bits": lambda text: text.replace(EPS, EPS.replace("1e-05", "9999999999*9999999999*i")),
    "a table that is looked at often": lambda text: text.replace(
        LAST,
        "        for i in range(60000):\n            last_x = v[{"
        + ", ".join(f'{place}: "x"' for place in range(20_000))
        + f'}}.get(i, "x")]\n{LAST}',
    ),
    "ports that multiply": lambda text: text.replace(
        "    inputs = [", f'    inputs = [*(port for i in range(99999999) for port in ("{"x" * 10_000}",)),'
    ),
    "an f-string of many holes": lambda text: text.replace(
        LAST, f'        zz = aten.neg.default(f"{"{a}" * 80_000}")\n{LAST}'
    ),
    "brackets that nest": lambda text: text.replace(LAST, f"        zz = {'(' * 5000}1{')' * 5000}\n{LAST}"),
    "functions that call each other": lambda text: text.replace(
        "\n\n\nclass GraphModule",
        "\n\n\ndef q(x):\n    y = r(x)\n    return y\n\n\ndef r(x):\n    y = q(x)\n    return y\n\n\nclass GraphModule",
    ).replace(LAST, f'        zz = q(inputs["x"])\n{LAST}'),
}


@pytest.mark.parametrize("case", EVIL)
def test_a_text_that_backprint_did_not_write_is_refused(case: str, stored: Path) -> None:
    path = models(stored)[0]
    text = path.read_text()
    path.write_text(EVIL[case](text))
    assert path.read_text() != text
    before, began = files(stored), time.process_time()
    with pytest.raises((bp.errors.GraphError, bp.errors.SampleError), match=rf"^{path}: "):
        convert(stored)
    assert files(stored) == before
    assert time.process_time() - began < 20


def test_other_lines_below_the_graph_are_refused(stored: Path) -> None:
    path = models(stored)[0]
    path.write_text(path.read_text() + "print('more')\n")
    with pytest.raises(bp.errors.RefusedError, match="the lines below the graph are not those that samples end with"):
        convert(stored)


def test_annotations_that_were_not_saved_are_refused(stored: Path) -> None:
    path = models(stored)[0]
    graph = graph_of(path.read_text().partition(MARKER)[0])
    other = parse(graph.code.replace("f32[3, 12]", "f64[3, 12]"))
    path.write_text(f"{other.fold().code}\n\n{MARKER}{ENDING}")
    with pytest.raises(bp.errors.SampleError, match="annotations of its graph are not those"):
        convert(stored)


@pytest.mark.parametrize("name", ["pair_0", "pair_0/forward", "pair_0/forward/model.py", "capture.json"])
def test_nothing_is_written_through_a_link(name: str, stored: Path) -> None:
    place, elsewhere = stored / name, stored.parent / "elsewhere"
    place.rename(elsewhere)
    place.symlink_to(elsewhere)
    before = files(stored.parent)
    with pytest.raises(bp.errors.SampleError):
        convert(stored)
    assert files(stored.parent) == before


# ------------------------------------------------------------------ what is shown of a flat sample


def test_show_prints_loops_of_a_sample_that_is_flat(flat: Path) -> None:
    assert not any(map(has_loops, models(flat)))
    short = call("show", flat, "--forward").output
    long = call("show", flat, "--forward", "--flat").output
    assert "for i in range(12):" in short
    assert parse(long.rstrip("\n") + "\n") == bp.load(flat).pairs[0].forward
