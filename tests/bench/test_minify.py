"""Minify: planted faults in large graphs shrink to few operators, in few tests, and the result shows the fault."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from subjects.faults import FAULTS, gated_stack, right
from subjects.forked import run_python

import backprint as bp
from face import (
    ITEM,
    BenchGraph,
    FaultTrial,
    MinifiedGraph,
    RecordedGraph,
    UnitSearch,
    UnminifiedGraph,
    bench_graphs,
    eager_run,
    main,
    minify_graph,
    record_values,
    shows_fault,
    unguarded_graph,
)

FAULTS_FILE = Path(__file__).parents[1] / "subjects" / "faults.py"


# ------------------------------------------------------------------ the search alone


def searched(count: int, shows: Callable[[set[int]], bool], most: int = 100) -> UnitSearch:
    """The search among units in a line, each made of the one before."""

    def producers(units: Collection[int]) -> set[int]:
        return {unit - 1 for unit in units if unit} - set(units)

    search = UnitSearch(lambda units: shows(set(units)), producers, most)
    search.smallest(count)
    return search


@pytest.mark.parametrize("needed", [{250}, {0, 499}, {3, 200, 204}])
def test_the_search_finds_what_is_needed(needed: set[int]) -> None:
    search = searched(500, needed.issubset)
    assert set(search.best) == needed
    assert search.tests <= 60


def test_the_search_leaves_nothing_out_that_is_needed_in_another_way() -> None:
    search = searched(300, lambda units: {5, 6} <= units or {200, 250} <= units)
    assert set(search.best) in ({5, 6}, {200, 250})


def test_the_search_ends_with_its_tests() -> None:
    search = searched(500, {10, 200, 480}.issubset, most=12)
    assert search.tests == 12
    assert {10, 200, 480} <= set(search.best) < set(range(500))


# ------------------------------------------------------------------ cuts


@pytest.fixture(scope="module")
def small() -> list[BenchGraph]:
    torch.manual_seed(0)
    return bench_graphs(bp.capture(*gated_stack(blocks=2), engine="aot"))


def known_of(graph: BenchGraph) -> RecordedGraph:
    return record_values(unguarded_graph(graph.graph), graph.run)


@pytest.mark.parametrize("side", [0, 1])
def test_cuts_compute_what_the_whole_computes(small: list[BenchGraph], side: int) -> None:
    known, draw = known_of(small[side]), random.Random(0)
    for _ in range(20):
        units = draw.sample(range(len(known.units)), draw.randint(1, len(known.units)))
        cut = known.cut(units)
        assert cut is not None
        results = eager_run(cut.graph, cut.inputs, 0).results
        for port, value in zip(cut.graph.outputs, results, strict=True):
            assert torch.equal(value, known.values[port.name]), port.name
            assert value.stride() == known.values[port.name].stride()


def test_a_step_with_several_results_is_not_taken_apart(small: list[BenchGraph]) -> None:
    known = known_of(small[0])
    for place, step in enumerate(known.graph.steps):
        if step.target == ITEM:
            [unit] = [unit for unit in known.units if place in unit]
            assert known.graph.steps[unit[0]].target != ITEM


def test_steps_that_share_an_update_in_place_stay_together() -> None:
    inputs = torch.ones(3)
    text = """
class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[3] input x") -> ("f32[3] output y",):
        a: "f32[3]" = aten.mul.Tensor(x, 2.0)
        b: "f32[3]" = aten.add_.Tensor(a, 1.0)
        c: "f32[3]" = aten.mul.Tensor(a, 3.0)
        d: "f32[3]" = aten.neg.default(c)
        return (d,)
"""
    from face import HEADER, parse

    graph = parse(HEADER + text.replace("output y", "output d"))
    known = record_values(graph, eager_run(graph, [inputs], 0))
    assert known.units == ((0, 1, 2), (3,))


def test_memory_that_is_not_initialised_stays_with_the_step_that_fills_it() -> None:
    from face import HEADER, parse

    text = """
class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[3] input x") -> ("f32[3] output c",):
        a: "f32[3]" = aten.empty_like.default(x)
        b: "f32[3]" = aten.bernoulli.p(a, 0.5)
        c: "f32[3]" = aten.mul.Tensor(b, x)
        return (c,)
"""
    graph = parse(HEADER + text)
    assert record_values(graph, eager_run(graph, [torch.ones(3)], 0)).units == ((0, 1), (2,))


# ------------------------------------------------------------------ planted faults


@pytest.fixture(scope="module")
def large() -> list[BenchGraph]:
    torch.manual_seed(0)
    return bench_graphs(bp.capture(*gated_stack(blocks=8), engine="aot"))


SLOW = {"hang"}


@pytest.mark.parametrize("side", [0, 1], ids=["forward", "backward"])
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in FAULTS])
def test_a_planted_fault_shrinks_to_few_operators(large: list[BenchGraph], name: str, side: int) -> None:
    graph = large[side]
    seen: list[MinifiedGraph] = []
    found = minify_graph(graph, FAULTS[name], limit=3.0 if name in SLOW else 60.0, smaller=seen.append)
    assert isinstance(found, MinifiedGraph), found
    assert found.operators > 180
    assert found.cut.operators <= 5
    assert found.tests <= 100
    assert found.complete
    kinds = {"crash_on_a_pattern": "crashed", "hang": "timeout", "refuse": "raised"}
    assert found.last.kind == kinds.get(name, "wrong")
    assert seen[-1].cut == found.cut
    run = eager_run(found.cut.graph, found.cut.inputs, 0)
    assert isinstance(minify_graph(BenchGraph("pair_0 forward", found.cut.graph, run), right), UnminifiedGraph)


def test_a_right_compiler_leaves_nothing_to_minify(small: list[BenchGraph]) -> None:
    found = minify_graph(small[0], right)
    assert isinstance(found, UnminifiedGraph)
    assert found.why == "every output is right"


def test_what_a_machine_lacks_is_no_fault_of_a_compiler(small: list[BenchGraph]) -> None:
    from torch._inductor.exc import InvalidCxxCompiler

    def lacking(module: object, inputs: object) -> object:
        raise InvalidCxxCompiler

    found = minify_graph(small[0], lacking)
    assert isinstance(found, UnminifiedGraph)
    assert found.why.startswith("cannot run here: Inductor compiles with a C++ compiler, and finds none here")


def test_a_compiler_that_fails_only_once_is_named_as_such(small: list[BenchGraph], tmp_path: Path) -> None:
    def once(module: object, inputs: object) -> object:
        if not (tmp_path / "seen").exists():
            (tmp_path / "seen").touch()
            raise ValueError("now and then")
        return module

    found = minify_graph(small[0], once)  # type: ignore[arg-type]  # it takes any graph
    assert isinstance(found, UnminifiedGraph)
    assert found.flaky
    assert "now and then" in found.why


@pytest.mark.parametrize("hangs", [False, True], ids=["slow", "hangs"])
def test_a_wrong_result_goes_before_a_compiler_that_is_too_slow(small: list[BenchGraph], hangs: bool) -> None:
    def slow(module: torch.fx.GraphModule, inputs: Any) -> object:
        if len(module.graph.nodes) > 40:
            time.sleep(1000 if hangs else 0.8)
        return FAULTS["wrong_operator"](module, inputs)

    found = minify_graph(small[1], slow, limit=0.15)
    assert isinstance(found, MinifiedGraph)
    assert found.last.kind == "wrong"
    assert [step.target for step in found.cut.graph.steps] == ["aten.sigmoid_backward.default"]


def test_a_file_that_does_not_end_is_not_said_to_be_right(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text("import time\ntime.sleep(60)\n")
    assert shows_fault(tmp_path / "endless.py", "inductor", "wrong", 0.2) is None


def test_another_fault_does_not_count(small: list[BenchGraph]) -> None:
    def two_faults(module: torch.fx.GraphModule, inputs: object) -> object:
        targets = [node.target for node in module.graph.nodes]
        if torch.ops.aten.tanh.default not in targets:
            raise ValueError("too small")
        raise RuntimeError("a tangent")

    found = minify_graph(small[0], two_faults)  # type: ignore[arg-type]  # it takes any graph
    assert isinstance(found, MinifiedGraph)
    assert [step.target for step in found.cut.graph.steps] == ["aten.tanh.default"]
    assert found.others["ValueError"] > 0


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (FaultTrial("crashed", "killed by SIGSEGV"), FaultTrial("crashed", "killed by SIGSEGV"), True),
        (FaultTrial("crashed", "killed by SIGSEGV"), FaultTrial("crashed", "killed by SIGABRT"), False),
        (FaultTrial("wrong", "y: 0.1"), FaultTrial("wrong", "z: 0.2"), True),
        (
            FaultTrial("raised", "E: no aten.mm in node mm_1", "E"),
            FaultTrial("raised", "E: no aten.mm in node mm", "E"),
            True,
        ),
        (
            FaultTrial("raised", "E: no aten.mm in node mm_1", "E"),
            FaultTrial("raised", "E: no aten.add in node a", "E"),
            False,
        ),
        (FaultTrial("raised", "E: shapes differ", "E"), FaultTrial("raised", "E: out of registers, sorry", "E"), False),
        (FaultTrial(), FaultTrial(), False),
    ],
)
def test_faults_are_the_same_or_not(left: FaultTrial, right: FaultTrial, same: bool) -> None:
    assert left.same_fault(right) is same


# ------------------------------------------------------------------ the command


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    place = tmp_path_factory.mktemp("minify") / "stack"
    return bp.save(bp.capture(*gated_stack(blocks=3), engine="aot"), place, power="none")


def minified(sample: Path, fault: str, out: Path, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["minify", str(sample), "--compiler", fault, "-o", str(out), *options])
    return done.exit_code, done.output


@pytest.mark.slow
def test_the_result_is_a_sample_and_a_file_that_shows_the_fault(sample: Path, tmp_path: Path) -> None:
    out, fault = tmp_path / "small", f"{FAULTS_FILE}:wrong_operator"
    code, text = minified(sample, fault, out, "--graph", "pair_0 backward", "--json")
    assert code == 0, text
    row = json.loads(text.splitlines()[-1])
    assert (row["kind"], row["calls"], row["reproduced"]) == ("wrong", ["aten.sigmoid_backward.default"], True)
    capture = bp.load(out)
    assert [verdict.verdict for verdict in bp.verify(capture)] == ["undifferentiable"]
    assert capture.verdict is not None
    assert capture.verdict["power"] is not None
    file = tmp_path / "small.py"
    assert "sigmoid_backward: relative error 0.01" in file.read_text()
    assert len(file.read_text().partition("# --- Below")[0].splitlines()) <= 90
    assert runs(file) == 1
    assert runs(file, "--backend", f"{FAULTS_FILE}:right") == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["small", "small.py"]


def runs(file: Path, *options: str) -> int:
    """Run an exported file where Backprint cannot be imported from; return its exit code."""
    return run_python([file, *options], cwd=file.parent, flags=["-I"]).returncode


@pytest.mark.slow
@pytest.mark.parametrize("name", ["crash_on_a_pattern", "wrong_stride", "refuse", "wrong_for_large_values"])
def test_the_file_of_each_fault_shows_it(sample: Path, tmp_path: Path, name: str) -> None:
    code, text = minified(sample, f"{FAULTS_FILE}:{name}", tmp_path / "small", "--json")
    assert code == 0, text
    assert json.loads(text.splitlines()[-1])["reproduced"] is True


def test_a_right_compiler_ends_with_1_and_writes_nothing(sample: Path, tmp_path: Path) -> None:
    code, text = minified(sample, f"{FAULTS_FILE}:right", tmp_path / "small")
    assert code == 3
    assert "nothing to minify" in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("fault", "options", "said"),
    [
        (f"{FAULTS_FILE}:rigth", (), "has no function 'rigth'"),
        ("inductr", (), "did you mean inductor"),
        (f"{FAULTS_FILE}:right", ("--graph", "pair_7 forward"), "it has pair_0 forward, pair_0 backward"),
        ("absent.py:right", (), "absent.py"),
    ],
)
def test_wrong_usage_is_named(sample: Path, tmp_path: Path, fault: str, options: tuple[str, ...], said: str) -> None:
    code, text = minified(sample, fault, tmp_path / "small", *options)
    assert code == 2
    assert said in text
    assert list(tmp_path.iterdir()) == []


def test_an_older_result_is_not_overwritten(sample: Path, tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text("mine")
    code, text = minified(sample, f"{FAULTS_FILE}:wrong_operator", tmp_path / "small")
    assert code == 2
    assert "--overwrite" in text


@pytest.mark.slow
def test_ctrl_c_keeps_the_smallest_so_far(sample: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "backprint", "minify", str(sample), "-o", str(tmp_path / "small")]
    process = subprocess.Popen(
        [*command, "--compiler", f"{FAULTS_FILE}:hang", "--test-seconds", "3"], stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 120
    while not list(tmp_path.glob(".small.*.part/00000?/row.json")) and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    if process.returncode != 0:  # else the search had ended before the signal came
        assert process.returncode == 130, said
        assert "the smallest graph so far is in" in said
    assert len(bp.load(tmp_path / "small").pairs[0].forward.steps) < 70
    assert sorted(each.name for each in tmp_path.iterdir()) == ["small", "small.py"]
