"""Samples that would corrupt, end, hang or fill the process that runs them: each is refused by name or ended apart.

Every class of attack that was found is here, small: in samples of ours and of GraphNet's. The verbs give each its row
and the good ones between them theirs; in this process each raises by name, so a check that is gone ends the test run.
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
from backprint.cli import main
from backprint.common import memory
from backprint.errors import BackprintError, RefusedError

X = "L_x_"

LOWEST = "aten.full.default([1], -9223372036854775808, dtype=torch.int64)"
MINUS = "aten.full.default([1], -1, dtype=torch.int64)"

OURS: dict[str, tuple[Sequence[str], str]] = {
    "indices of a pool": (
        [
            "i = aten.full.default([1, 1, 2, 2], 1000000000, dtype=torch.int64)",
            "g = aten.ones.default([1, 1, 2, 2])",
            "m = aten.ones.default([1, 1, 4, 4])",
            "e = aten.max_pool2d_with_indices_backward.default(g, m, [2, 2], [2, 2], [0, 0], [1, 1], False, i)",
        ],
        "indices holds 1000000000, which is not in [-1, 16)",
    ),
    "rows of a sparse tensor": (
        [
            "i = aten.full.default([4], -100000000, dtype=torch.int64)",
            "e = aten._convert_indices_from_coo_to_csr.default(i, 4)",
        ],
        "self holds -100000000, which is not in [0, 4)",
    ),
    "lists of other lengths": (
        ["e = aten._foreach_copy.default([input], [input, input])"],
        "lists of tensors of unlike lengths",
    ),
    "a list that is not empty": (["e = aten._foreach_copy.default([], [input])"], "self has 0, src has 1"),
    "the smallest number by -1": (
        [f"a = {LOWEST}", f"b = {MINUS}", "e = aten.div.Tensor_mode(a, b, rounding_mode='trunc')"],
        "by -1 has no result",
    ),
    "the same in plain arithmetic": (
        [f"a = {LOWEST}", f"b = {MINUS}", "e = operator.floordiv(a, b)"],
        "by -1 has no result",
    ),
    "its remainder": ([f"a = {LOWEST}", f"b = {MINUS}", "e = operator.mod(a, b)"], "by -1 has no result"),
    "a state of Sobol's": (
        [
            "s = aten.ones.default([1, 1], dtype=torch.int64)",
            "e = aten._sobol_engine_initialize_state_.default(s, 1000000)",
        ],
        "dimension=",
    ),
    "a dtype as a number": (["e = aten.arange.default(1, dtype=-1)"], "dtype=-1 (int) where the schema wants"),
    "weights of an LSTM": (
        [
            *(f"{name} = aten.ones.default({size})" for name, size in (("w", [16, 4]), ("b", [16]), ("h", [3, 4]))),
            "z = aten.ones.default([2, 3, 3])",
            "e = aten.mkldnn_rnn_layer.default(z, w, w, b, b, h, h, False, [], 2, 4, 1, True, False, False, False)",
        ],
        "weight0 has the shape [16, 4], which should be [16, 3]",
    ),
    "a loop of a kernel": (
        ["e = aten.special_laguerre_polynomial_l.n_scalar(input, 1000000000000.0)"],
        "a graph may have 65,536",
    ),
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
    "repeated by a value": (
        [
            "a = aten.full.default([1], 5000000000, dtype=torch.int64)",
            "e = aten.repeat_interleave.Tensor(a)",
        ],
        "a result of 37.3 GiB, and there is room for",
    ),
    "what no check makes safe": (
        [
            "s = aten.ones.default([0, 3], dtype=torch.int64)",
            "e = aten._nested_compute_contiguous_strides_offsets.default(s)",
        ],
        "trusts the sizes of nested tensors",
    ),
}
"""Lines of a forward, and what is said of them."""

ENDED = {"what no check makes safe": "killed by SIGSEGV"}
"""What is said of these where they run, in a process of their own."""

SCORES = f"z = {X}[:, None, :].log_softmax(2)"
NEGATIVE = "n = torch.tensor([-9223372036854775807]) - 1; m = torch.tensor([-1])"

THEIRS: dict[str, tuple[Sequence[str], str]] = {
    "targets": (
        [SCORES, "y = torch.ctc_loss(z, torch.full((1, 2), 60), torch.tensor([4]), torch.tensor([2]))"],
        "ctc_loss: targets holds 60",
    ),
    "segments": (
        [f"y = torch.segment_reduce({X}, 'sum', lengths=torch.tensor([1000000]), unsafe=True)"],
        "segment_reduce: lengths holds 1000000",
    ),
    "a rounded quotient": ([NEGATIVE, "y = torch.div(n, m, rounding_mode='trunc')"], "by -1 has no result"),
    "a quotient": ([NEGATIVE, "y = n // m"], "by -1 has no result"),
    "a quotient in place": ([NEGATIVE, "n //= m"], "by -1 has no result"),
    "a remainder": ([NEGATIVE, "y = n % m"], "by -1 has no result"),
    "a remainder of a number": ([NEGATIVE, "y = n % -1"], "by -1 has no result"),
    "a method": ([NEGATIVE, "y = n.remainder(m)"], "by -1 has no result"),
    "a method by its other name": ([NEGATIVE, "y = m.__rfloordiv__(n)"], "by -1 has no result"),
    "a kernel of another size": (
        [f"y = torch._C._nn.slow_conv_transpose2d({X}[None, None], torch.ones(1, 1, 2, 2), (3000, 3000))"],
        "kernel_size=",
    ),
    "a text": (["s = L_x_.type()", *["s = s + s"] * 40], "a text cannot be an operand"),
    "a number": (["n = 9 ** 60", *["n = n ** 60"] * 4], "a power of"),
    "rounds": ([f"y = torch.svd_lowrank({X}, 4, 100000000)"], "may go round 1,000 times"),
    "a tuple": (["t = (1, 2)", *["t = t + t"] * 40], "a list of more than"),
    "a list of itself": ([f"t = ({X}, {X})", *["t = (t, t)"] * 40, "y = torch.stack(t)"], "a list of more than"),
    "ones": (["y = torch.ones(5000000000)"], "a result of 18.6 GiB, and there is room for"),
    "kron": ([f"y = {X}", *["y = torch.kron(y, y)"] * 4], "model.py:12: aten.mul.Tensor would make a result of"),
    "joined to itself": ([f"y = {X}", *["y = torch.cat([y, y])"] * 60], "would make a result of"),
    "a copy of a small view": (["y = torch.ones(1).expand(5000000000).contiguous()"], "a result of 18.6 GiB"),
    "tiles": ([f"y = {X}.repeat(100000, 10000)"], "a result of"),
}
"""The same of a GraphNet sample."""


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


def bad_ones(folder: Path) -> list[Path]:
    return sorted(place for place in folder.iterdir() if words_of(place))


def held(said: dict[str, str], good: dict[str, bool], places: Sequence[Path]) -> None:
    """Raise unless every sample has its row, the good ones are proved, and the others say what they should."""
    assert set(said) == set(good) == {place.name for place in places}
    for place in places:
        words = ENDED.get(place.name.split(" ", 2)[-1], words_of(place))
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
@pytest.mark.parametrize(("verb", "each"), [("verify", 1), ("power", 5)])
def test_every_sample_has_its_row_and_the_good_ones_are_good(verb: str, each: int, strangers: Path) -> None:
    places = sorted(strangers.iterdir())[::each]
    rows = {Path(row["sample"]).name: row for row in rows_of(verb, *places, "--memory", 1, "--timeout", 60)}
    said = {name: row.get("detail") or row.get("error") or "" for name, row in rows.items()}
    held(said, {name: bool(row.get("proof")) for name, row in rows.items()}, places)


@pytest.mark.slow
def test_a_corpus_has_a_row_for_each_of_them(strangers: Path, tmp_path: Path) -> None:
    rows = rows_of("corpus", "backward", strangers, "-o", tmp_path / "out", "--jobs", 1, "--memory", 1)
    said = {row["sample"]: f"{row['cause']}: {row['detail']}" for row in rows}
    held(said, {row["sample"]: row["verdict"] == "bitwise" for row in rows}, sorted(strangers.iterdir()))


def test_in_this_process_each_is_refused_by_name(strangers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_allowed", memory.held_bytes() + (1 << 30))
    for place in bad_ones(strangers):
        with pytest.raises(BackprintError) as error:
            run_here(place)
        assert words_of(place) in str(error.value), place.name
        assert "\n" not in str(error.value), place.name


def test_what_is_isolated_is_refused_in_this_process_by_every_verb_and_runs_where_it_is_trusted(
    strangers: Path, tmp_path: Path
) -> None:
    place = tmp_path / "isolated"
    shutil.copytree(strangers / "zz good", place)
    model = place / "pair_0/forward/model.py"
    line = "e = aten._nested_compute_contiguous_strides_offsets.default(s)"
    sizes = "        s = aten.ones.default([1, 3], dtype=torch.int64)\n"
    model.write_text(model.read_text().replace("        return (", f"{sizes}        {line}\n        return (", 1))
    words = (
        r"isolated calls aten\._nested_compute_contiguous_strides_offsets\.default "
        r"\(trusts the sizes of nested tensors\); "
        r"no check of arguments makes that safe, so it runs in a process of its own alone: use `backprint verify .*`, "
        r"or where you trust the sample, bp\.load\('.*', trust=True\)"
    )
    loaded = bp.load(place)
    forward = loaded.pairs[0].forward
    assert "_nested_compute" in forward.code  # reading it is no matter
    verbs = (
        lambda: bp.replay(loaded),
        lambda: bp.run(forward, {}),
        forward.to_fx,
        lambda: bp.capture(str(place)),
        lambda: bp.power(loaded),
    )
    for verb in verbs:
        with pytest.raises(RefusedError, match=words):
            verb()
    assert [verdict.verdict for verdict in loaded.verify()] == ["failed"]
    assert "runs in a process of its own alone" in loaded.verify()[0].detail
    trusted = bp.load(place, trust=True)
    assert torch.equal(bp.replay(trusted).outputs, bp.replay(bp.load(strangers / "zz good")).outputs)
    assert trusted.pairs[0].forward.to_fx()
    [row] = [
        json.loads(line) for line in CliRunner().invoke(main, ["verify", str(place), "--json"]).stdout.splitlines()
    ]
    assert row["name"] == "Linear"
    assert "of its own alone" not in row["detail"]


@pytest.mark.parametrize("name", ["ones", "a chain of powers", "what no check makes safe"])
def test_captured_by_the_command_line_each_costs_a_line(name: str, strangers: Path, tmp_path: Path) -> None:
    [place] = [each for each in bad_ones(strangers) if each.name.endswith(f" {name}")]
    result = CliRunner().invoke(main, ["capture", str(place), "-o", str(tmp_path / "out"), "--memory", "1"])
    assert result.exit_code == 1
    assert ENDED.get(name, words_of(place)) in result.output
    assert list(tmp_path.iterdir()) == []


def test_what_is_only_read_is_read_at_once(strangers: Path) -> None:
    for place in strangers.iterdir():
        result = CliRunner().invoke(main, ["show", str(place), "--summary"])
        assert result.exit_code == 0, f"{place.name}: {result.output}"
