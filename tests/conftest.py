"""Options of the whole suite."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch
from subjects.forked import files_forked, workers_forked

WITH_WORKERS = (
    *(
        f"tests/corpus/test_{name}.py"
        for name in "apart commands ends hostile_corpora merge places ray resume rows".split()
    ),
    *("tests/test_corpora.py", "tests/test_tiny.py"),
)
"""Where tests look at workers themselves: how they start, die and are found again."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--conformance",
        default="part",
        choices=["part", "all"],
        help="part: a fixed part of PyTorch's databases; all: every sample of them",
    )
    parser.addoption("--thorough", action="store_true", help="with the tests that thorough.txt leaves out")


THOROUGH = Path(__file__).with_name("thorough.txt")


def patterns_left_out() -> list[str]:
    """The patterns of thorough.txt: node ids below tests/, where `*` stands for any text; brackets are brackets."""
    lines = THOROUGH.read_text(encoding="utf-8").splitlines()
    return [line.strip().replace("[", "[[]") for line in lines if line.strip() and not line.startswith("#")]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what thorough.txt has, unless it is asked for, or a test is named on the command line."""
    if config.getoption("--thorough") or any("::" in argument for argument in config.args):
        return
    items_by_pattern = {
        pattern: {item for item in items if fnmatchcase(item.nodeid, f"tests/{pattern}")}
        for pattern in patterns_left_out()
    }
    if config.args == config.getini("testpaths") and (
        gone := [name for name, matches in items_by_pattern.items() if not matches]
    ):
        raise pytest.UsageError(f"{THOROUGH.name} names tests that are not there: {', '.join(gone)}")
    left_out: set[pytest.Item] = set().union(*items_by_pattern.values())
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The totals of the conformance tests, over all workers."""
    totals: dict[str, Counter[str]] = {}
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for key, value in getattr(report, "user_properties", ()):
            if key == "conformance" and report.when == "call":
                section, counts = value
                totals.setdefault(section, Counter()).update(counts)
    for section, counts in totals.items():
        said = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
        terminalreporter.write_line(f"conformance, {section}: {sum(counts.values())} samples: {said}")


@pytest.fixture(autouse=True)
def _forked(request: pytest.FixtureRequest) -> Iterator[None]:
    """A verb that runs a sample starts a worker, which loads PyTorch and tries it for seconds, and `minify` runs the
    file that it writes: here these processes are forked."""
    with contextlib.ExitStack() as stack:
        if not request.node.nodeid.startswith(WITH_WORKERS):
            stack.enter_context(workers_forked())
        stack.enter_context(files_forked())
        yield


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test starts from the same random state, on one thread, as workers share the cores."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
