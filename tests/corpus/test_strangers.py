"""Samples that would corrupt, end, hang or fill the process that runs them: each costs its own process alone.

Every class of attack that was found is here, small: in samples of ours and of GraphNet's. The verbs, those of Python on
a path too, give each its row and the good ones between them theirs. What no schema or limit refuses ends the sample's
own process; the rest is refused by name in any process.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from subjects.odd_graphnet import graphnet

import backprint as bp
from face import BackprintError, RefusedError, ReplayError, SampleError, UsageError, main, memory

X = "L_x_"

LOWEST = "aten.full.default([1], -9223372036854775808, dtype=torch.int64)"
MINUS = "aten.full.default([1], -1, dtype=torch.int64)"

OURS: dict[str, tuple[Sequence[str], str]] = {
    "a dtype as a number": (["e = aten.arange.default(1, dtype=-1)"], "dtype=-1 (int) where the schema wants"),
    "a chain of powers": (
        ["a = operator.pow(9, 99)", "b = operator.pow(a, 99)", "e = operator.pow(b, 99)"],
        "a power of",
    ),
    "a long text": (["e = operator.mul('a', 10000000000)"], "a text cannot be an operand of operator.mul"),
    "a large factory": (["e = aten.ones.default([5000000000])"], "a result of 18.6 GiB, and there is room for"),
    "a large repetition": (["e = aten.repeat.default(input, [100000, 10000])"], "a result of"),
    "a large product": (
        ["a = aten.ones.default([60000])", "e = aten.outer.default(a, a)"],
        "a result of 13.4 GiB, and there is room for",
    ),
    "a large sum": (
        ["a = aten.ones.default([60000, 1])", "b = aten.t.default(a)", "e = operator.add(a, b)"],
        "a result of 13.4 GiB, and there is room for",
    ),
    "a copy of a small view": (
        [
            "a = aten.ones.default([1])",
            "b = aten.expand.default(a, [5000000000])",
            "e = aten.clone.default(b, memory_format=torch.contiguous_format)",
        ],
        "a result of 18.6 GiB, and there is room for",
    ),
    "joined to itself": (
        ["a0 = aten.ones.default([1024])", *(f"a{n + 1} = aten.cat.default([a{n}, a{n}])" for n in range(40))],
        "GiB, and there is room for",
    ),
    "indices of a pool": (
        [
            "i = aten.full.default([1, 1, 2, 2], 1000000000000, dtype=torch.int64)",
            "g = aten.ones.default([1, 1, 2, 2])",
            "m = aten.ones.default([1, 1, 4, 4])",
            "e = aten.max_pool2d_with_indices_backward.default(g, m, [2, 2], [2, 2], [0, 0], [1, 1], False, i)",
        ],
        "killed by SIGSEGV: while running aten.max_pool2d_with_indices_backward.default",
    ),
    "the smallest number by -1": (
        [f"a = {LOWEST}", f"b = {MINUS}", "e = aten.div.Tensor_mode(a, b, rounding_mode='trunc')"],
        "killed by SIGFPE: while running aten.div.Tensor_mode",
    ),
    "sizes of nested tensors": (
        [
            "s = aten.ones.default([0, 3], dtype=torch.int64)",
            "e = aten._nested_compute_contiguous_strides_offsets.default(s)",
        ],
        "killed by SIGSEGV: while running aten._nested_compute_contiguous_strides_offsets.default",
    ),
    "repeated by a value": (
        [
            "a = aten.full.default([1], 5000000000, dtype=torch.int64)",
            "e = aten.repeat_interleave.Tensor(a)",
        ],
        "can't allocate memory",
    ),
}
"""Lines of a forward, and what is said of them."""

NEGATIVE = "n = torch.tensor([-9223372036854775807]) - 1; m = torch.tensor([-1])"

THEIRS: dict[str, tuple[Sequence[str], str]] = {
    "a text": (["s = L_x_.type()", *["s = s + s"] * 40], "a text cannot be an operand"),
    "a number": (["n = 9 ** 60", *["n = n ** 60"] * 4], "a power of"),
    "a tuple": (["t = (1, 2)", *["t = t + t"] * 40], "a list of more than"),
    "a list of itself": ([f"t = ({X}, {X})", *["t = (t, t)"] * 40, "y = torch.stack(t)"], "a list of more than"),
    "ones": (["y = torch.ones(5000000000)"], "a result of 18.6 GiB, and there is room for"),
    "kron": ([f"y = {X}", *["y = torch.kron(y, y)"] * 4], "model.py:12: aten.mul.Tensor would make a result of"),
    "joined to itself": ([f"y = {X}", *["y = torch.cat([y, y])"] * 60], "would make a result of"),
    "a copy of a small view": (["y = torch.ones(1).expand(5000000000).contiguous()"], "a result of 18.6 GiB"),
    "tiles": ([f"y = {X}.repeat(100000, 10000)"], "a result of"),
    "a rounded quotient": ([NEGATIVE, "y = torch.div(n, m, rounding_mode='trunc')"], "killed by SIGFPE"),
}
"""The same of a GraphNet sample."""

ENDS = ("killed by", "can't allocate")
"""How that begins which is said of what ends or fills its process, and is refused in none."""


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them below one folder, and a good sample before and after each few."""
    folder = tmp_path_factory.mktemp("strangers")
    torch.manual_seed(0)
    good = bp.capture(torch.nn.Linear(4, 4), torch.randn(3, 4)).save(folder / "good 0")
    for number, (name, (lines, _)) in enumerate(OURS.items()):
        place = folder / f"ours {number:02} {name}"
        shutil.copytree(good, place)
        model = place / "pair_0/forward/model.py"
        text = model.read_text()
        model.write_text(
            text.replace("        return (", "".join(f"        {line}\n" for line in lines) + "        return (", 1)
        )
    for number, (name, (lines, _)) in enumerate(THEIRS.items()):
        within = "\n        ".join(line for each in lines for line in each.split("; "))
        graphnet(folder / f"theirs {number:02} {name}", within=within)
    for number in range(1, 6):
        shutil.copytree(good, folder / f"ours {4 * number:02} good {number}")
    shutil.copytree(good, folder / "zz good")
    return folder


def words_of(place: Path) -> str:
    """What is to be said of a sample; '' of a good one."""
    table = OURS if place.name.startswith("ours") else THEIRS
    return "" if "good" in place.name else table[place.name.split(" ", 2)[2]][1]


def refused_ones(folder: Path) -> list[Path]:
    return sorted(place for place in folder.iterdir() if words_of(place) and not words_of(place).startswith(ENDS))


def place_of(folder: Path, name: str) -> Path:
    [place] = [place for place in folder.iterdir() if place.name.endswith(f" {name}")]
    return place


def held(said: dict[str, str], good: dict[str, bool], places: Sequence[Path]) -> None:
    """Raise unless every sample has its row, the good ones are proved, and the others say what they should."""
    assert set(said) == set(good) == {place.name for place in places}
    for place in places:
        words = words_of(place)
        assert good[place.name] == (not words), f"{place.name}: {said[place.name]}"
        filled = "room for" in words and "are allowed (--memory)" in said[place.name]  # by many results, none large
        assert filled or words in said[place.name], f"{place.name}: {said[place.name]}"


def run_here(place: Path) -> Any:
    """A sample, run in this process."""
    return bp.replay(bp.load(place)) if place.name.startswith("ours") else bp.capture(str(place))


def rows_of(*arguments: Any) -> list[dict[str, Any]]:
    """The rows of a verb."""
    result = CliRunner().invoke(main, [*map(str, arguments), "--json"])
    assert result.exit_code == 1, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(("more", "each"), [((), 1), (("--power", "own"), 5)])
def test_every_sample_has_its_row_and_the_good_ones_are_good(more: tuple[str, ...], each: int, strangers: Path) -> None:
    places = sorted(strangers.iterdir())[::each]
    rows = {Path(row["sample"]).name: row for row in rows_of("verify", *more, *places, "--memory", 1, "--timeout", 60)}
    said = {name: row["detail"] for name, row in rows.items()}
    held(said, {name: row["proof"] for name, row in rows.items()}, places)


@pytest.mark.slow
def test_a_corpus_has_a_row_for_each_of_them(strangers: Path, tmp_path: Path) -> None:
    rows = rows_of("corpus", "run", "backward", strangers, "-o", tmp_path / "out", "--jobs", 1, "--memory", 1)
    said = {row["sample"]: f"{row['cause']}: {row['detail']}" for row in rows}
    held(said, {row["sample"]: row["verdict"] == "bitwise" for row in rows}, sorted(strangers.iterdir()))


def test_what_fits_no_schema_or_limit_is_refused_by_name_in_this_process(
    strangers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_allowed", memory.held_bytes() + (1 << 30))
    for place in refused_ones(strangers):
        with pytest.raises(BackprintError) as error:
            run_here(place)
        assert words_of(place) in str(error.value), place.name
        assert "\n" not in str(error.value), place.name


ENDED = "killed by SIGSEGV: while running aten._nested_compute_contiguous_strides_offsets.default"


def test_from_python_a_path_runs_in_a_process_of_its_own_and_this_one_lives(strangers: Path) -> None:
    place = place_of(strangers, "sizes of nested tensors")
    assert "_nested_compute" in bp.load(place).pairs[0].forward.code  # reading it is no matter
    [verdict] = bp.verify(place)
    assert (verdict.verdict, verdict.name) == ("failed", place.name)
    assert verdict.detail.startswith(ENDED)
    [derivative] = bp.derivative(str(place))
    assert derivative.word == "cannot tell"
    assert "killed by SIGSEGV" in derivative.detail
    with pytest.raises(
        ReplayError, match=rf"{place} did not run to its end, so nothing is known of its power: {ENDED}"
    ):
        bp.power(place)


def test_from_python_a_path_gives_what_its_capture_gives(strangers: Path) -> None:
    place = strangers / "zz good"
    loaded = bp.load(place)
    assert bp.verify(place) == loaded.verify()
    assert bp.verify(place, draws=["recipe"], derivative=False) == loaded.verify(draws=["recipe"], derivative=False)
    assert bp.derivative(place) == bp.derivative(loaded)
    assert bp.power(str(place), count=2) == bp.power(loaded, count=2)


def test_what_is_wrong_with_a_path_is_raised_here(strangers: Path, tmp_path: Path) -> None:
    with pytest.raises(SampleError, match="no such folder"):
        bp.verify(tmp_path / "nothing")
    with pytest.raises(UsageError, match="is a file of a sample"):
        bp.power(strangers / "zz good/capture.json")
    with pytest.raises(UsageError, match="trace= is for a Capture"):
        bp.verify(strangers / "zz good", trace=True)
    with pytest.raises(UsageError, match="a sample brings its own inputs"):
        bp.derivative(strangers / "zz good", torch.ones(3))
    other = tmp_path / "code"
    shutil.copytree(strangers / "zz good", other)
    model = other / "pair_0/forward/model.py"
    model.write_text(model.read_text().replace("        return (", "        os.system('true')\n        return (", 1))
    with pytest.raises(RefusedError, match=r"model\.py"):
        bp.verify(other)


@pytest.mark.parametrize("name", ["ones", "a chain of powers", "sizes of nested tensors"])
def test_captured_by_the_command_line_each_costs_a_line(name: str, strangers: Path, tmp_path: Path) -> None:
    place = place_of(strangers, name)
    result = CliRunner().invoke(main, ["capture", str(place), "-o", str(tmp_path / "out"), "--memory", "1"])
    assert result.exit_code == 1
    assert words_of(place) in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_command_lower_runs_a_sample_in_a_process_of_its_own(strangers: Path, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    out = tmp_path / "kernels.py"
    place = place_of(strangers, "sizes of nested tensors")
    result = CliRunner().invoke(main, ["lower", str(place), "-o", str(out), "--check"])
    assert (result.exit_code, out.exists()) == (1, False)
    assert f"{place} could not be lowered: killed by SIGSEGV" in str(result.exception) + result.output
    assert CliRunner().invoke(main, ["lower", str(strangers / "zz good"), "-o", str(out)]).exit_code == 0
    assert "triton" in out.read_text()


def test_what_is_only_read_is_read_at_once(strangers: Path) -> None:
    for place in strangers.iterdir():
        result = CliRunner().invoke(main, ["show", str(place), "--summary"])
        assert result.exit_code == 0, f"{place.name}: {result.output}"
