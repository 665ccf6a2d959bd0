"""A folder that anyone may have written: refused with its file and the reason, and nothing in it runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from subjects.forked import run_python
from torch import Tensor, nn

import backprint as bp
from face import MARKER, MAX_CHARACTERS, main, metadata

DEEP = 100_000
RUN = "open('CANARY', 'w').close()"
"""Code that leaves a file behind, if anything ever runs it."""


class Small(nn.Module):
    """Parameters, an input, and a constant that is kept exact."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return (torch.tanh(self.fc(x)) * torch.tensor([1.0, 2.0, 3.0, 4.0]) * 2.5).sum()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample that all of these are made from."""
    torch.manual_seed(0)
    model = Small()
    capture = bp.capture(model, torch.randn(2, 3), name="small", engine="aot")
    path: Path = capture.save(tmp_path_factory.mktemp("good") / "sample")
    assert (path / "tensors.safetensors").exists()
    return path


# ------------------------------------------------------------------ how a sample is changed

Change = Callable[[Path], object]
FORWARD, BACKWARD = "pair_0/forward/model.py", "pair_0/backward/model.py"
MULTIPLY = "aten.mul.Tensor(mul, 2.5)"


def text(name: str, change: Callable[[str], str]) -> Change:
    """A text file that says something else."""

    def make(folder: Path) -> None:
        before = (folder / name).read_text(encoding="utf-8")
        after = change(before)
        assert before != after, "nothing was changed"
        (folder / name).write_text(after, encoding="utf-8")

    return make


def step(line: str) -> Change:
    """The forward with one more line before its return."""
    return text(FORWARD, lambda said: said.replace("        return (", f"        {line}\n        return (", 1))


def argument(value: str) -> Change:
    """The forward with another second factor."""
    return text(FORWARD, lambda said: said.replace(MULTIPLY, f"aten.mul.Tensor(mul, {value})"))


def above_class(line: str) -> Change:
    return text(FORWARD, lambda said: said.replace("class GraphModule", f"{line}\nclass GraphModule", 1))


def raw(name: str, change: Callable[[bytes], bytes]) -> Change:
    """A file of other bytes."""
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def said(change: Callable[[dict[str, Any]], object]) -> Change:
    """A capture.json that says something else."""

    def make(folder: Path) -> None:
        place = folder / "capture.json"
        content = json.loads(place.read_text(encoding="utf-8"))
        before = json.dumps(content)
        change(content)
        assert before != json.dumps(content), "nothing was changed"
        place.write_text(json.dumps(content), encoding="utf-8")

    return make


def field(*path: Any, value: Any) -> Change:
    """One field of capture.json with another value."""

    def change(content: Any) -> None:
        for key in path[:-1]:
            content = content[key]
        content[path[-1]] = value

    return said(change)


def recipe(name: str, **rows: Any) -> Change:
    """A recipe with other fields."""
    return said(lambda content: content["recipes"][name].update(rows))


def linked(name: str) -> Change:
    """A file or folder that lies elsewhere; what it links to is good."""

    def make(folder: Path) -> None:
        (folder / name).rename(folder.parent / "elsewhere")
        (folder / name).symlink_to(folder.parent / "elsewhere")

    return make


def piped(name: str) -> Change:
    """A pipe that nobody writes to, in place of a file: opening it would wait for ever."""

    def make(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return make


def tensors(header: Callable[[dict[str, Any]], object]) -> Change:
    """The exact data with another header."""

    def make(folder: Path) -> None:
        place = folder / "tensors.safetensors"
        data = place.read_bytes()
        size = 8 + int.from_bytes(data[:8], "little")
        rows = json.loads(data[8:size])
        header(rows)
        forged = json.dumps(rows).encode()
        place.write_bytes(len(forged).to_bytes(8, "little") + forged + data[size:])

    return make


def first(rows: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(row for name, row in rows.items() if name != "__metadata__")
    return found


# name -> (the change, the file that is named, the reason that is given)
SAMPLES: dict[str, tuple[Change, str, str]] = {
    # model.py: what would run
    "os.system": (step("y = os.system('touch CANARY')"), FORWARD, "'os.system' is not a known tensor operator"),
    "open": (step(f"y = {RUN}"), FORWARD, "is not a dotted name"),
    "load_library": (step("y = torch.ops.load_library('/x.so')"), FORWARD, "'torch.ops.load_library' is not a known"),
    "an operator of a library": (
        step("y = torch.ops.evil.run.default(mul)"),
        FORWARD,
        "not among the sample's requirem",
    ),
    "an operator of a library as an argument": (
        step("y = torch.ops.higher_order.auto_functionalized(torch.ops.evil.run.default, x=mul)"),
        FORWARD,
        "not among the sample's requirements",
    ),
    "a statement before the class": (above_class(RUN), FORWARD, "is outside the class"),
    "an altered ending": (
        text(FORWARD, lambda text: text.replace('    names["main"]', f'    {RUN}\n    names["main"]')),
        FORWARD,
        "are not those that samples of this version end with; nothing was run",
    ),
    "two endings": (
        text(FORWARD, lambda text: f"{text}{RUN}\n\n{MARKER}{text.partition(MARKER)[2]}"),
        FORWARD,
        "are not those that samples of",
    ),
    "an ending that says it is another's": (
        text(FORWARD, lambda text: text.replace(MARKER, f"{RUN}\n{MARKER}", 1)),
        FORWARD,
        "is outside the class",
    ),
    "the backward's code": (
        text(BACKWARD, lambda text: text.replace("        return (", f"        {RUN}\n        return (", 1)),
        BACKWARD,
        "is not a step",
    ),
    # model.py: what cannot be read
    "invalid utf-8": (
        raw(FORWARD, lambda data: data[:200] + b"\xff\xfe" + data[200:]),
        FORWARD,
        "can't decode byte 0xff",
    ),
    "truncated in the graph": (raw(FORWARD, lambda data: data[:700]), FORWARD, "truncated"),
    "empty": (raw(FORWARD, lambda data: b""), FORWARD, "truncated"),
    "very long": (
        raw(FORWARD, lambda data: data + b" " * 4 * MAX_CHARACTERS),
        FORWARD,
        "bytes; at most",
    ),
    "no model.py": (lambda folder: (folder / FORWARD).unlink(), FORWARD, "No such file"),
    "a folder for a model.py": (
        lambda folder: ((folder / FORWARD).unlink(), (folder / FORWARD).mkdir()),
        FORWARD,
        "is not a regular file",
    ),
    "a pipe for a model.py": (piped(FORWARD), FORWARD, "is not a regular file"),
    "a model.py that is a link": (linked(FORWARD), FORWARD, "is a symbolic link"),
    # model.py: what does not fit together
    "a backward of another forward": (
        text(BACKWARD, lambda text: text.replace("saved detach_1", "saved other", 1)),
        "pair_0",
        "takes the saved value 'other', which the forward does not return",
    ),
    "a backward that takes a parameter": (
        text(BACKWARD, lambda text: text.replace("tangent output", "parameter fc.weight", 1)),
        "pair_0",
        "takes the parameter 'fc.weight'",
    ),
    "an operator's wrong arguments": (argument("x, x, x"), "", "while running `"),
    "more memory than there is": (
        step(f"y = aten.empty.memory_format([{2**48}])"),
        "",
        "while running `y = aten.empty",
    ),
    # capture.json
    "no capture.json": (lambda folder: (folder / "capture.json").unlink(), "", "no capture.json here"),
    "capture.json truncated": (raw("capture.json", lambda data: data[:-30]), "capture.json", "cannot be read as JSON"),
    "capture.json of a list": (
        raw("capture.json", lambda data: b"[1]"),
        "capture.json",
        "expected an object, found list",
    ),
    "capture.json with NaN": (
        raw("capture.json", lambda data: b'{"format": NaN}'),
        "capture.json",
        "NaN is not a JSON number",
    ),
    "capture.json nested deeply": (
        raw("capture.json", lambda data: b"[" * DEEP + b"]" * DEEP),
        "capture.json",
        "RecursionError",
    ),
    "capture.json with a result nested deeply": (
        field("signature", "output", value=eval('{"list": [' * 50 + "]}" * 50)),
        "capture.json",
        "nested too deeply",
    ),
    "capture.json with a huge integer": (
        raw("capture.json", lambda data: b'{"format": ' + b"9" * 5000 + b"}"),
        "capture.json",
        "cannot be read as JSON",
    ),
    "capture.json that is a link": (linked("capture.json"), "capture.json", "is a symbolic link"),
    "capture.json that links nowhere": (
        lambda folder: ((folder / "capture.json").unlink(), (folder / "capture.json").symlink_to("nowhere")),
        "capture.json",
        "is a symbolic link",
    ),
    "capture.json that is a pipe": (piped("capture.json"), "capture.json", "is not a regular file"),
    "a format of no version": (field("format", value="1"), "capture.json", "no format version"),
    "a name of two lines": (field("name", value="a\nb"), "capture.json", "name: expected printable text"),
    "half a character": (
        field("environment", value={"\ud800": ""}),
        "capture.json",
        "environment: key: expected print",
    ),
    "a seed that no generator takes": (field("seed", value=2**64), "capture.json", "seed: expected a whole number"),
    "leaves of three": (field("signature", "leaves", value=[["a", "b", "c"]]), "capture.json", "expected pairs"),
    "a result of no kind": (
        field("signature", "output", value={"evil": 1}),
        "capture.json",
        "'evil' is not one of port",
    ),
    "a result that is not a port": (
        field("signature", "output", value={"port": "evil"}),
        FORWARD,
        "signature.output names 'evil'",
    ),
    "a tangent of no output": (
        field("signature", "differentiable", value=["evil"]),
        FORWARD,
        "signature.differentiable names 'evil'",
    ),
    "a second name of nothing": (
        field("signature", "same", value=[["evil", "x"]]),
        FORWARD,
        "signature.same names 'evil'",
    ),
    "a loss that is not an output": (field("signature", "loss", value="evil"), FORWARD, "signature.loss names 'evil'"),
    "a source of two": (
        field("opaque", value=[{"kind": "a", "text": "b", "source": ["f", 1]}]),
        "capture.json",
        "opaque[0].source: expected a list of file, line",
    ),
    "a source on no line": (
        field("opaque", value=[{"kind": "a", "text": "b", "source": ["f", -1, "g", "", ""]}]),
        "capture.json",
        "-1 is not a line number",
    ),
    "no pairs": (field("pairs", value=[]), "capture.json", "pairs: none are listed"),
    "a pair outside": (
        field("pairs", 0, "folder", value="../../etc"),
        "capture.json",
        "'../../etc' is not a folder of a pair",
    ),
    "a pair that is not there": (field("pairs", 0, "folder", value="pair_7"), "capture.json", "pair_7 is not a folder"),
    "a pair that is a link": (linked("pair_0"), "capture.json", "pair_0 is not a folder of the sample's own"),
    "a direction that is a link": (linked("pair_0/backward"), "capture.json", "pair_0/backward is not a folder"),
    "two pairs": (
        said(lambda content: content["pairs"].append({**content["pairs"][0], "folder": "pair_1"})),
        "capture.json",
        "has 2 pairs",
    ),
    "a folder of many pairs": (
        said(lambda content: content["pairs"].extend(content["pairs"] * 1000)),
        "capture.json",
        "pairs[1].folder: 'pair_0' is the folder of another pair",
    ),
    # the verdict and the witness
    "a verdict of no kind": (
        field("verdict", "verdict", value="fine"),
        "capture.json",
        "verdict.verdict: expected one of",
    ),
    "more inputs drawn again than there are": (
        field("verdict", "powers", value={"tried": 3, "of": 2, "redrawn": {}}),
        "capture.json",
        "verdict.powers.tried: 3 inputs were redrawn, but there are 2",
    ),
    "a shape below 0": (
        field("witness", "output output", "shape", value=[-1]),
        "capture.json",
        "a whole number from 0",
    ),
    "a norm that is not a float": (
        field("witness", "output output", "norm", value=10**400),
        "capture.json",
        "a number",
    ),
    "leading values too few": (
        field("witness", "output output", "leading", value=[]),
        "capture.json",
        "0 values; a ",
    ),
    "leading values too many": (
        field("witness", "output output", "leading", value=[1.0] * 9),
        "capture.json",
        "9 items",
    ),
    "a witness of one port": (
        said(lambda content: content.update(witness={"output output": content["witness"]["output output"]})),
        "",
        "only one side has it",
    ),
    # recipes
    "a huge shape": (recipe("x", shape=[2**40, 2**40]), "capture.json", "recipes['x']: recipe.shape: expected at most"),
    "a large shape of no memory": (
        recipe("x", shape=[2, 2**40], stride=[0, 0], extent=1),
        "capture.json",
        "where the graph takes f32[2, 3]",
    ),
    "a large extent": (recipe("x", extent=2**47), "capture.json", "of which only 6 are used"),
    "a tangent of another shape": (
        recipe("tangent output", shape=[1], stride=[1], extent=1),
        "capture.json",
        "recipes['tangent output']: makes float32[1]",
    ),
    "a view of nothing": (recipe("x", kind="view", facts={"of": "evil"}), "", "a view of 'evil', which is not among"),
    "a recipe less": (said(lambda content: content["recipes"].pop("x")), "", "input 'x' (input) is missing"),
    # the exact data
    "the data is not there": (
        lambda folder: (folder / "tensors.safetensors").unlink(),
        "",
        "its exact data is not there",
    ),
    "a forged length": (
        raw("tensors.safetensors", lambda data: (2**62).to_bytes(8, "little") + data[8:]),
        "tensors.safetensors",
        "forged or damaged",
    ),
    "data truncated": (raw("tensors.safetensors", lambda data: data[:-4]), "tensors.safetensors", "forged or damaged"),
    "offsets out of range": (
        tensors(lambda rows: first(rows).update(data_offsets=[0, 2**40])),
        "tensors.safetensors",
        "forged or damaged",
    ),
    "data of another dtype": (tensors(lambda rows: first(rows).update(dtype="I32")), "", "its data is torch.int32"),
    "data that is a pickle": (
        raw("tensors.safetensors", lambda data: b"\x80\x04cposix\nsystem\n(S'touch CANARY'\ntR."),
        "tensors.safetensors",
        "forged or damaged",
    ),
    "data that is a link": (linked("tensors.safetensors"), "tensors.safetensors", "is a symbolic link"),
    "data that is a pipe": (piped("tensors.safetensors"), "tensors.safetensors", "is not a regular file"),
}


def outcome(sample: Path) -> str:
    """What reading all of a sample and verifying it says: an error of ours, or a verdict that is no good."""
    try:
        loaded = bp.load(sample)
        for pair in loaded.pairs:
            assert pair.forward is not None
            assert pair.backward is not None
        (verdict,) = bp.verify(loaded)
    except bp.errors.BackprintError as error:
        return f"{type(error).__name__}: {error}"
    return f"{verdict.verdict}: {verdict.detail}"


@pytest.fixture(autouse=True)
def limited() -> Iterator[None]:
    """Nothing here may take a minute, or wait for ever."""

    def stop(*_: Any) -> None:
        raise TimeoutError("a hostile sample took a minute")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in, where a canary would lie."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def hostile(request: pytest.FixtureRequest, good: Path, tmp_path: Path) -> Path:
    """The sample after its change."""
    shutil.copytree(good, tmp_path / "hostile")
    SAMPLES[request.param][0](tmp_path / "hostile")
    return tmp_path / "hostile"


def test_the_sample_that_these_change_is_good(good: Path, here: Path) -> None:
    assert outcome(good) == "bitwise: "
    done = CliRunner().invoke(main, ["verify", str(good)])
    assert (done.exit_code, "bitwise" in done.output) == (0, True)


@pytest.mark.parametrize("hostile", SAMPLES, indirect=True)
def test_refused_with_the_file_and_the_reason(hostile: Path, here: Path, request: pytest.FixtureRequest) -> None:
    _, file, why = SAMPLES[request.node.callspec.params["hostile"]]
    found = outcome(hostile)
    word, _, detail = found.partition(": ")
    assert word in ("RefusedError", "SampleError", "GraphError", "ReplayError", "GuardError", "failed", "wrong"), found
    assert why in detail
    assert str(hostile / file if file else "") in detail
    assert len(detail) < 2000
    assert list(here.iterdir()) == [], "something ran"


# ------------------------------------------------------------------ values of other types

LINE = ["f.py", 1, "g", "code", "m"]
FILLED: dict[str, Any] = {
    "guards": [{"kind": "value", "text": "t", "inputs": ["x"], "source": LINE}],
    "opaque": [{"kind": "hook", "text": "t", "source": LINE, "lines": ["l"]}],
    "pins": [["x", "why"]],
    **{name: ["a line"] for name in ("notes", "breaks", "why")},
    "rank": {"number": 0, "size": 2, "groups": {"g": [0, 1]}},
}
"""What the sample has none of."""
OTHERS: tuple[Any, ...] = (True, "x", [7], -1, {"x": 7}, 0.5)
TOLD = (
    *((3, name) for name in ("steps", "inputs", "outputs", "saved_bytes")),
    *((2, name) for name in "draws ones by_second_derivative by_differences left_out ports rest_is_right".split()),
)
"""What a sample says of its graphs and of its derivative for people alone, which nothing reads: how deep, and where."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a value stands in JSON, of each value."""
    yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


@pytest.mark.slow
def test_a_value_of_another_type_is_refused_with_its_place(good: Path, tmp_path: Path) -> None:
    """Wherever it stands in capture.json."""
    shutil.copytree(good, tmp_path / "hostile")
    place = tmp_path / "hostile" / "capture.json"
    content = {**json.loads(place.read_text("utf-8")), **FILLED}
    text, wrong = json.dumps(content), []
    place.write_text(text, encoding="utf-8")
    assert bp.load(place.parent).rank is not None
    for number, path in enumerate(places(content)):
        if not path or (len(path) - 1, path[-1]) in TOLD or "like" in path or path[0] == "environment":
            continue
        for other in (OTHERS[number % 6], OTHERS[(number + 1) % 6], OTHERS[(number + 2) % 6]):
            inner = changed = json.loads(text)
            for key in path[:-1]:
                inner = inner[key]
            if type(inner[path[-1]]) is type(other) or {type(inner[path[-1]]), type(other)} == {int, float}:
                continue
            inner[path[-1]] = other
            place.write_text(json.dumps(changed), encoding="utf-8")
            message = ""
            try:
                loaded = bp.load(place.parent)
                assert all(pair.backward for pair in loaded.pairs)
                loaded.inputs()
                dict(loaded.witness or {})
            except bp.errors.SampleError as error:
                message = str(error)
            if not message.startswith(f"{place}: ") or str(path[0]) not in message:
                wrong.append((path, other, message))
    assert wrong == []


def changed(good: Path, place: Path, change: Change) -> Path:
    """A copy of the good sample, changed."""
    shutil.copytree(good, place)
    change(place)
    return place


@pytest.mark.slow
def test_the_command_line_gives_a_row_for_each_and_exits_with_1(good: Path, here: Path, tmp_path: Path) -> None:
    signal.alarm(0)  # so many samples have a process each
    names = [*SAMPLES, *ODD]
    changes = {**{name: row[0] for name, row in SAMPLES.items()}, **ODD}
    samples = [changed(good, tmp_path / str(index) / "hostile", changes[name]) for index, name in enumerate(names)]
    samples.insert(len(samples) // 2, good)
    done = CliRunner().invoke(main, ["verify", "--json", *map(str, samples)])
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 1
    assert all(re.match(rf"\d+/{len(samples)} ", line) for line in done.stderr.splitlines()), done.stderr
    rows = {row["sample"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert list(rows) == list(map(str, samples))
    assert rows.pop(str(good))["verdict"] == "bitwise"
    for name, row in zip(names, rows.values(), strict=True):
        assert row["verdict"] in ("failed", "wrong"), (name, row)
        assert SAMPLES[name][2] in row["detail"] if name in SAMPLES else True, (name, row)
    table = CliRunner().invoke(main, ["verify", *map(str, samples)])
    assert (table.exit_code, "Traceback" in table.output) == (1, False)
    assert sum(line.count("failed") + line.count("wrong") > 0 for line in table.output.splitlines()) >= len(names)
    assert list(here.iterdir()) == [], "something ran"


@pytest.mark.parametrize("hostile", ["open", "os.system", "an altered ending", "a name of two lines"], indirect=True)
def test_show_refuses_it_in_one_line(hostile: Path, here: Path) -> None:
    done = CliRunner().invoke(main, ["show", str(hostile)])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("backprint: ")
    assert len(done.stderr.splitlines()) == 1
    assert list(here.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("hostile", ["open", "an altered ending", "a statement before the class"], indirect=True)
def test_what_is_planted_would_run(hostile: Path, here: Path) -> None:
    """The canary sings: run as Python, which only its owner should do, the file makes what these tests look for."""
    run_python([hostile / FORWARD], flags=["-I"], timeout=60)
    assert (here / "CANARY").exists()


def test_a_reader_that_does_not_look_is_noticed(good: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check of operators, a sample that calls a foreign one reads."""
    monkeypatch.setattr("backprint.sample.load.check_operators", lambda *_: None)
    change, _, why = SAMPLES["an operator of a library"]
    shutil.copytree(good, here.parent / "hostile")
    change(here.parent / "hostile")
    assert why not in outcome(here.parent / "hostile")


def test_a_guard_that_does_not_hold_proves_nothing(good: Path, tmp_path: Path) -> None:
    shutil.copytree(good, tmp_path / "hostile")
    step("assert sum_1 == 5")(tmp_path / "hostile")
    found = outcome(tmp_path / "hostile")
    assert found.startswith(("unproven: ", "failed: "))
    assert "guard `assert sum_1 == 5` does not hold" in found


def result(value: str) -> Change:
    """The forward with another value where its output was."""
    return text(FORWARD, lambda said: said.replace("return (sum_1,", f"return ({value},", 1))


ODD: dict[str, Change] = {
    "an output that is a number": result("3"),
    "an output that is a text": result("'text'"),
    "an output that is None": result("None"),
    "an output that is a list": result("[x]"),
    "a guard on many values": step("assert mul == 5"),
    "a guard on the shape of a number": step("assert sum_1.shape == 3"),
}


@pytest.mark.parametrize("name", ODD)
def test_values_of_odd_types_are_wrong_or_failed(name: str, good: Path, tmp_path: Path) -> None:
    shutil.copytree(good, tmp_path / "hostile")
    ODD[name](tmp_path / "hostile")
    assert outcome(tmp_path / "hostile").split(":")[0] in ("wrong", "failed")


# ------------------------------------------------------------------ with little memory and time

HUGE = 10**6
NASTY: dict[str, Change] = {
    "an ending of many lines": text(FORWARD, lambda said: said + "\n" * 20 * HUGE),
    "markers": text(FORWARD, lambda said: said + (MARKER + "\n") * 100_000),
    "JSON brackets": raw("capture.json", lambda data: b"[" * 60 * HUGE),
    "JSON objects": raw("capture.json", lambda data: b'{"a":' * 10 * HUGE),
    "JSON lists": raw("capture.json", lambda data: b"[" + b"[]," * 20 * HUGE + b"[]]"),
    "JSON too long": raw("capture.json", lambda data: data + b" " * metadata.MAX_BYTES),
    "a witness of many rows": field("witness", value={f"output {index}": {"none": True} for index in range(300_000)}),
    "a large extent": recipe("x", extent=2**47),
    "a large shape": recipe("x", shape=[2**33], stride=[1], extent=2**33),
    "a period of nothing": recipe("x", kind="arange", facts={"start": 0.0, "step": 1.0, "period": 0}),
    "a forged length": SAMPLES["a forged length"][0],
    "memory": SAMPLES["more memory than there is"][0],
}
LIMITED = """
import resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from pathlib import Path
from test_hostile_samples import outcome
print(outcome(Path(sys.argv[1])).partition(": ")[0])
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", NASTY)
def test_the_nastiest_within_four_gigabytes_and_twenty_seconds(
    name: str, good: Path, here: Path, tmp_path: Path
) -> None:
    shutil.copytree(good, tmp_path / "hostile")
    NASTY[name](tmp_path / "hostile")
    path = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    code = f"import sys; sys.path[:0] = {path}; sys.dont_write_bytecode = True\n{LIMITED}"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "hostile")],
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        **dict(capture_output=True, text=True, timeout=200, check=False),
    )
    words = ("RefusedError", "SampleError", "GraphError", "ReplayError", "failed", "wrong")
    assert done.stdout.strip() in words, (done.stdout, done.stderr[-2000:])
    assert list(here.iterdir()) == []


# ------------------------------------------------------------------ sparse tensors


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sample with a sparse input and a sparse result."""
    x = torch.diag(torch.arange(1.0, 100.0)).to_sparse()
    path: Path = bp.capture(lambda x: x * 2, x, engine="eager").save(tmp_path_factory.mktemp("sparse") / "sample")
    return path


def parts(**rows: Any) -> Change:
    """The facts of the sparse recipe with other fields."""
    return said(lambda content: content["recipes"]["x"]["facts"].update(rows))


def row(**rows: Any) -> Change:
    """The witness of the sparse result with other fields."""
    return said(lambda content: content["witness"]["output output"].update(rows))


SPARSE: dict[str, tuple[Change, str]] = {
    "another layout": (
        parts(layout="sparse_csr", of=["x/indices", "x/indices", "x/values"], coalesced=0),
        r"makes float32\[99, 99\] sparse_csr where the graph takes f32\[99, 99\] sparse_coo",
    ),
    "no sparse tensor": (
        recipe("x", kind="constant", facts={"value": 1.0}),
        r"makes float32\[99, 99\] where the graph takes f32\[99, 99\] sparse_coo",
    ),
    "parts of nothing": (parts(of=["x/indices", "evil"]), "a sparse of 'evil', which is not among"),
    "parts of itself": (parts(of=["x/indices", "x"]), "a sparse of 'x', which is not among"),
    "indices out of range": (
        recipe("x/indices", kind="integers", facts={"low": 0, "high": 10**6}),
        "its parts do not make a sparse_coo tensor",
    ),
    "indices of floats": (
        recipe("x/indices", kind="constant", dtype="float32", facts={"value": 1.0}),
        "its parts do not make a sparse_coo tensor",
    ),
    "a witness without places": (row(places=None), "witness.output output.places: expected list"),
    "a witness of other places": (row(places=["0" * 16, "0" * 16], digest="0" * 16), "indices are not the program's"),
    "a witness with more values": (row(values=[3]), "8 values; a float32.3. tensor has 3 here"),
}


@pytest.mark.parametrize("name", SPARSE)
def test_a_forged_sparse_sample_is_refused_or_fails(name: str, sparse: Path, tmp_path: Path) -> None:
    change, message = SPARSE[name]
    folder = tmp_path / "sample"
    shutil.copytree(sparse, folder)
    change(folder)
    verdict = bp.load(folder).verify()[0]
    assert verdict.verdict in ("failed", "wrong")
    assert re.search(message, verdict.detail), verdict.detail
