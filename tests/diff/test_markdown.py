"""A Diff as Markdown: the answer first, tables that a stranger's names do not break, and no path of the machine."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from click.testing import CliRunner
from torch import nn

import backprint as bp
from face import main

HOSTILE = "a|b` **<img src=x>** @all"


def model(act: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4))
    net.add_module(HOSTILE, act())
    return net.append(nn.Linear(4, 1))


def save(folder: Path) -> tuple[Path, Path]:
    for name, act in (("before", nn.Tanh), ("after", nn.GELU)):
        bp.capture(model(act), torch.randn(2, 4), name=f"net {HOSTILE}").save(folder / name)
    return folder / "before", folder / "after"


def test_the_answer_stands_first_and_each_change_in_the_row_of_its_module(tmp_path: Path) -> None:
    before, after = save(tmp_path)
    text = bp.diff.compare(before, after).to_markdown()
    answer, *_ = text.split("\n\n")
    assert answer.startswith("**saved for backward ")
    assert "forward \\~ tanh" in answer or "forward ~ tanh → gelu in " in answer
    assert re.search(r"^\| saved for backward \| \S+ B \| \S+ B \| \+\S+ % \|$", text, re.MULTILINE)
    assert re.search(r"^\| steps of the backward \| 10 \| 10 \| 1 added, 1 removed, 2 changed", text, re.MULTILINE)
    assert re.search(r"^\| forward \| .* \| ~ `tanh -> gelu` \|$", text, re.MULTILINE)
    assert re.search(r"^\| backward \| .* \| \+ `gelu_backward\(.*`<br>- `tanh_backward\(", text, re.MULTILINE)


def test_a_strangers_name_is_no_markdown(tmp_path: Path) -> None:
    before, after = save(tmp_path)
    text = bp.diff.compare(before, after).to_markdown()
    for line in text.splitlines():
        if line.startswith("|"):
            columns = len(re.findall(r"(?<!\\)\|", line)) - 1
            assert columns in (3, 4), line
        outside = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", line)  # what is not code
        assert "<img" not in outside
        assert "@all" not in outside


def test_no_path_of_the_machine_is_written(tmp_path: Path) -> None:
    before, after = save(tmp_path)
    result = CliRunner().invoke(main, ["diff", str(before), str(after), "--format", "markdown", "--exit-zero"])
    assert result.exit_code == 0, result.output
    assert f"before: `{tmp_path.name}/before`" in result.output
    assert str(tmp_path) not in result.output


def test_exit_zero_is_of_graphs_that_differ_alone(tmp_path: Path) -> None:
    before, after = save(tmp_path)
    runner = CliRunner()
    assert runner.invoke(main, ["diff", str(before), str(after), "--format", "markdown"]).exit_code == 1
    same = runner.invoke(main, ["diff", str(before), str(before), "--format", "markdown"])
    assert (same.exit_code, same.output.splitlines()[0]) == (0, "**no differences between the graphs (equal hashes)**")
    (after / "capture.json").write_text("{")
    assert runner.invoke(main, ["diff", str(before), str(after), "--exit-zero"]).exit_code == 3
    both = runner.invoke(main, ["diff", str(before), str(before), "--json", "--format", "markdown"])
    assert (both.exit_code, "--json and --format markdown" in both.output) == (2, True)


def test_a_long_list_is_cut_and_all_shows_it(tmp_path: Path) -> None:
    for name, last in (("before", 0), ("after", 1)):
        kinds = [(nn.Tanh, nn.GELU), (nn.ReLU, nn.SiLU), (nn.Sigmoid, nn.ELU)]
        pairs = [(nn.Linear(4 + at, 5 + at), kinds[at % 3][last]()) for at in range(30)]
        layers = [layer for pair in pairs for layer in pair]
        bp.capture(nn.Sequential(*layers), torch.randn(2, 4), name="long").save(tmp_path / name)
    call = ["diff", str(tmp_path / "before"), str(tmp_path / "after"), "--format", "markdown", "--exit-zero"]
    cut, whole = (CliRunner().invoke(main, [*call, *more]).output for more in ((), ("--all",)))
    assert "more, with `--all`." in cut
    assert "more" not in whole
    assert len(cut.splitlines()) < 60 < len(whole.splitlines())
