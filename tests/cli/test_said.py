"""What is printed: strangers' text as text, wrong paths as wrong usage, progress that leaves no trace, an end that says
what is kept."""

from __future__ import annotations

import ast
import builtins
import io
import json
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from subjects.graphnet_samples import write

import backprint as bp
from face import (
    Begun,
    GraphError,
    ProgressLines,
    RefusedError,
    SampleError,
    TensorSpec,
    Written,
    main,
    parse,
    parse_json,
    printable,
    say,
)

SOURCE = Path(bp.__file__).parent
ESCAPES = "\x1b]0;pwned\x07\x1b[2J\x1b[31mFAKE bitwise\x1b[0m\r\x08\u202egnp"


def call(*arguments: Any) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    path: Path = bp.capture(model, torch.randn(2, 3), name="mlp").save(tmp_path_factory.mktemp("samples") / "mlp")
    return path


# ------------------------------------------------------------------ strangers' text


def test_what_is_not_printable_is_spelled_out() -> None:
    assert printable("a\x1b[2J\r\nb\u202e\udcff é😀\\n") == "a\\u001b[2J\\r\\nb\\u202e\\xff é😀\\n"
    assert printable("a\tb\nc\x07", lines=True) == "a\tb\nc\\u0007"


RAW = {"click.echo", "click.secho", "print", "Console", "Text", "sys.stdout.write", "sys.stderr.write"}
OURS = ("printable(", "json.dumps(", "name", "tally_line(tally)", "f'{now - since")
"""How an argument begins that is spelled out already, or no stranger's."""


def raw_prints(path: Path) -> list[str]:
    """Calls that print, past the one helper."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        prints = isinstance(node, ast.Call) and ast.unparse(node.func) in RAW
        if prints and not (node.args and ast.unparse(node.args[0]).startswith(OURS)):
            found.append(f"{path.name}: {ast.unparse(node)}")
    return found


def test_everything_is_printed_through_one_helper() -> None:
    files = [*(SOURCE / "cli").glob("*.py"), SOURCE / "tools" / "jobs" / "progress.py"]
    found = [line for path in files if path.name != "say.py" for line in raw_prints(path)]
    assert found == ["progress.py: Console(stderr=True)"]
    assert raw_prints(SOURCE / "cli" / "say.py"), "this test can see one"


def forge(sample: Path, place: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """A copy of a sample with another capture.json."""
    shutil.copytree(sample, place)
    content = json.loads((place / "capture.json").read_text())
    change(content)
    (place / "capture.json").write_text(json.dumps(content))
    return place


FORGED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "why": lambda content: content.update(why=[ESCAPES]),
    "breaks": lambda content: content.update(breaks=[ESCAPES]),
    "notes": lambda content: content.update(notes=[ESCAPES]),
    "leaves": lambda content: content["signature"].update(leaves=[["input", ESCAPES]]),
    "verdict": lambda content: content["verdict"].update(detail=ESCAPES, verdict="failed"),
    "name": lambda content: content.update(name=ESCAPES),
    "engine": lambda content: content.update(engine=ESCAPES[:60]),
    "a key": lambda content: content["recipes"].update({ESCAPES: {"kind": "zzz"}}),
    "powers": lambda content: content["verdict"]["powers"]["redrawn"].update(
        {"x": {"hidden": True, "untried": ESCAPES}}
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "name"),
    [
        *(("show", name) for name in FORGED),
        *((verb, name) for verb in ("verify", "capture") for name in ("name", "verdict", "a key")),
    ],
)
def test_escapes_in_a_sample_never_reach_the_terminal(sample: Path, tmp_path: Path, name: str, verb: str) -> None:
    place = forge(sample, tmp_path / f"red{ESCAPES[:4]}", FORGED[name])
    result = call(verb, place, *(["-o", tmp_path / "out"] if verb == "capture" else []))
    assert not [letter for letter in result.output if not letter.isprintable() and letter not in "\n\t"]
    if (verb, name) in (("show", "why"), ("show", "breaks"), ("show", "notes")):
        assert "\\u001b]0;pwned" in result.output


def test_a_folders_name_and_a_verbs_words_are_printed_as_text(tmp_path: Path) -> None:
    assert "\\u001b" in (said := call("verify", tmp_path / ESCAPES).output)
    assert "\x1b" not in said
    file = io.StringIO()
    with ProgressLines(file) as show:
        show(Begun(2, 0))
        show(Written({"id": "a", "verdict": "failed", "cause": ESCAPES, "detail": ESCAPES}))
    assert "\x1b" not in file.getvalue()
    assert file.getvalue().count("\n") == 3


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("name", ["model.py", "weight_meta.py", "graph_net.json"])
def test_a_graphnet_sample_is_not_read_through_a_link(tmp_path: Path, name: str) -> None:
    place = write("in_place", tmp_path / "s")
    (tmp_path / "secret").write_text("the first line of another's file\n")
    (place / name).unlink()
    (place / name).symlink_to(tmp_path / "secret")
    for verb, more in (("show", []), ("verify", []), ("capture", ["-o", tmp_path / "out"])):
        result = call(verb, place, *more)
        assert result.exit_code == 1
        assert "is a symbolic link; a sample's files are its own" in " ".join(result.output.split())
        assert "first line" not in result.output


def test_a_key_that_is_there_twice_is_refused(sample: Path, tmp_path: Path) -> None:
    place = tmp_path / "twice"
    shutil.copytree(sample, place)
    text = (place / "capture.json").read_text()
    (place / "capture.json").write_text(text.replace('"seed": 0', '"seed": 0, "seed": 1', 1))
    with pytest.raises(SampleError, match="has the key 'seed' twice"):
        bp.load(place)
    write("in_place", tmp_path / "gn")
    (tmp_path / "gn" / "graph_net.json").write_text('{"source": "a", "source": "b"}')
    with pytest.raises(SampleError, match="has the key 'source' twice"):
        bp.capture(str(tmp_path / "gn"))
    assert parse_json('{"a": {"b": 1}, "c": {"b": 1}}') == {"a": {"b": 1}, "c": {"b": 1}}


MODEL = """
import math
import operator

import torch
from torch import inf, nan

aten, prims = torch.ops.aten, torch.ops.prims


class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[2] input x") -> ("f32[2] output y",):
        y: "f32[2]" = aten.add.Scalar(x, VALUE)
        return (y,)
"""


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_integers_are_of_64_bits(value: int, tmp_path: Path) -> None:
    with pytest.raises(GraphError):
        parse(MODEL.replace("VALUE", str(value)))
    code = (write("in_place", tmp_path / "gn") / "model.py").read_text()
    (tmp_path / "gn" / "model.py").write_text(
        code.replace("return", f"z = torch.add(torch.ones(2), {value}); return", 1)
    )
    with pytest.raises(GraphError):
        bp.capture(str(tmp_path / "gn"))


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63)])
def test_the_last_of_64_bits_are_some(value: int) -> None:
    graph = parse(MODEL.replace("VALUE", str(value)))
    assert graph.steps[0].args[1] == value
    assert parse(graph.code) == graph


def test_a_tensor_has_elements_that_can_be_counted() -> None:
    TensorSpec("float32", (2**31, 2**31))
    for shape in ((2**63,), (2**32, 2**33), (2**62, 2)):
        with pytest.raises(GraphError):
            TensorSpec("float32", shape)


@pytest.mark.parametrize("device", ["privateuseone:0", "abacus"])
def test_a_device_is_one_that_torch_knows_by_name(device: str, sample: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="is not a device name"):
        parse(MODEL.replace('"f32[2] input x"', f'"f32[2] @{device} input x"').replace("VALUE", "1"))
    with pytest.raises(RefusedError, match="is not a device name"):
        parse(MODEL.replace("aten.add.Scalar(x, VALUE)", f"aten._to_copy.default(x, device=torch.device({device!r}))"))

    def elsewhere(content: dict[str, Any]) -> None:
        next(iter(content["recipes"].values()))["device"] = device

    place = forge(sample, tmp_path / "forged", elsewhere)
    with pytest.raises(SampleError, match="a device like cpu or cuda:0"):
        bp.load(place).inputs()


@pytest.mark.slow
def test_that_a_sample_was_trusted_stays_with_it(tmp_path: Path) -> None:
    place = write("in_place", tmp_path / "gn")
    code = (place / "model.py").read_text()
    (place / "model.py").write_text(code.replace("        return", "        _ = [0 for _ in ()]\n        return", 1))
    assert call("capture", place, "-o", tmp_path / "out").exit_code == 1
    result = call("capture", place, "-o", tmp_path / "out", "--trust")
    assert result.exit_code == 0, result.output
    said = "executed, because it is trusted: "
    assert any(note.startswith(said) for note in bp.load(tmp_path / "out").notes)
    assert f"note: {said}" in call("show", tmp_path / "out", "--summary").output
    again = call("capture", tmp_path / "out", "-o", tmp_path / "again")
    assert f"note: {said}" in again.output


# ------------------------------------------------------------------ paths, and an end at any moment


def interrupted(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("verb", "hook", "said"),
    [
        (["capture", "{}", "-o", "out"], "backprint.tools.jobs.apart.outcome_of", "nothing was written"),
        (["verify", "{}", "{}"], "backprint.tools.jobs.apart.outcome_of", "0 of 1 samples were checked"),
        (["show", "{}"], "backprint.load", "nothing was changed"),
        (["corpus", "dedup", "{}", "-o", "out"], "backprint.tools.corpus.duplicates.dedup", "nothing was written"),
        (["doctor"], "backprint.cli.doctor.CHECKS.items", "nothing was changed"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_ctrl_c_is_130_with_a_line_that_says_what_is_kept(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str], hook: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if verb == ["doctor"]:
        monkeypatch.setattr("backprint.cli.doctor.CHECKS", {"python": interrupted})
    else:
        monkeypatch.setattr(hook, interrupted)
    result = call(*(sample if part == "{}" else part for part in verb))
    assert (result.exit_code, "Aborted" in result.output) == (130, False)
    assert result.stderr.count("stopped by SIGINT; ") == 1
    assert said in result.stderr


@pytest.mark.parametrize("hook", ["click.Group.make_context", "backprint.cli.importlib.import_module", "invoked"])
def test_ctrl_c_before_a_verb_has_begun_is_the_same(monkeypatch: pytest.MonkeyPatch, hook: str) -> None:
    monkeypatch.setattr(*((type(main), hook) if hook == "invoked" else (hook,)), interrupted)
    result = call("show", "sample")
    monkeypatch.undo()
    assert (result.exit_code, result.stderr) == (130, "stopped by SIGINT; nothing was changed\n")


def test_ctrl_c_while_the_command_is_imported_is_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def imported(name: str, *rest: Any, **named: Any) -> Any:
        if name == "backprint.cli":
            raise KeyboardInterrupt
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", imported)
    with pytest.raises(SystemExit, match="130"):
        runpy.run_module("backprint", run_name="__main__")
    assert capsys.readouterr().err == "stopped by SIGINT; nothing was changed\n"


def heard() -> None:
    """What a shell starts in the background ignores Ctrl-C, and so would this process, if these tests are."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_real_ctrl_c_in_a_long_capture(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import time\ndef factory():\n    print('here', flush=True)\n    time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "backprint", "capture", "slow.py:factory", "-o", "out"],
        cwd=tmp_path,
        **dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True),
        preexec_fn=heard,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors == "stopped by SIGINT; nothing was written: a sample is never partial\n"


# ------------------------------------------------------------------ progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_seen_and_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(say, "TICK", 0.01)
    file = Terminal()
    monkeypatch.setattr(sys, "stderr", file)
    with say.working("capturing \x1b[2J") as at:
        time.sleep(0.1)
        at("2/3 next")
        time.sleep(0.1)
        say.echo("a line")
        assert file.getvalue().endswith(say.WIPE), "nothing of it stands where a line is printed"
        time.sleep(0.1)
    assert "capturing \\u001b[2J … 0 s" in file.getvalue()
    assert "2/3 next … 0 s" in file.getvalue()
    assert file.getvalue().endswith(say.WIPE)
    assert capsys.readouterr().out == "a line\n"


def test_without_a_terminal_a_line_comes_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(say, "EVERY", 0.02)
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    with say.working("capturing"):
        time.sleep(0.2)
    assert file.getvalue().startswith("capturing … 0 s\n")
    assert "\x1b" not in file.getvalue()


@pytest.mark.parametrize("verb", ["verify", "capture"])
def test_long_work_shows_progress(sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.setattr(say, "EVERY", 0.05)
    if verb != "capture":
        before = getattr(bp, verb)
        monkeypatch.setattr(bp, verb, lambda *args, **options: (time.sleep(0.3), before(*args, **options))[1])
    else:
        from face import target

        read = target.read_target
        monkeypatch.setattr(
            target, "read_target", lambda *args, **options: (time.sleep(0.3), read(*args, **options))[1]
        )
    result = call(verb, sample, *(["-o", tmp_path / "out"] if verb == "capture" else []))
    assert result.exit_code == 0, result.output
    assert f"{sample.name}" in result.stderr
    assert " … 0 s\n" in result.stderr


def test_show_does_not_cut_code_at_the_windows_width(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    file = io.StringIO()
    monkeypatch.setattr(say, "console", lambda **options: Console(file=file, force_terminal=True, width=30))
    from face import show

    monkeypatch.setattr(show, "console", say.console)
    text = bp.load(sample).pairs[0].forward.code
    assert max(map(len, text.split("\n"))) > 60
    show.code("pair_0 forward", text)
    shown = "".join(
        part.partition("m")[2] if index else part for index, part in enumerate(file.getvalue().split("\x1b["))
    )
    assert text in shown
