"""Options of the whole suite."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator

# Processes that tests start take one thread each, too: several at a time wait for one another's threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings
from snapshots import Snapshots
from subjects.ci import CHOICE, chosen, problems_of
from subjects.forked import files_forked, workers_forked

WITH_WORKERS = (
    *(
        f"tests/corpus/test_{name}.py"
        for name in "apart commands ends hostile_corpora merge places ray resume rows".split()
    ),
    *("tests/test_corpora.py", "tests/test_tiny.py"),
)
"""Where tests look at workers themselves: how they start, die and are found again."""


settings.register_profile("suite", deadline=None)  # how long an example takes says how busy the machine is
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--conformance",
        default="part",
        choices=["part", "all"],
        help="part: a fixed part of PyTorch's databases; all: every sample of them",
    )
    parser.addoption("--write-snapshots", action="store_true", help="hold what commands and reports print now")
    parser.addoption("--ci", action="store_true", help="what CI runs, which ci.txt names; without it everything")


@pytest.hookimpl(tryfirst=True)  # before the marks: `-m 'not slow'` chooses among what CI runs
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of what was collected, leave what CI runs."""
    if not config.getoption("--ci"):
        return
    named = {item.nodeid.removeprefix("tests/"): item for item in items}
    text = CHOICE.read_text(encoding="utf-8")
    is_whole = config.args == config.getini("testpaths")
    if is_whole and (problems := problems_of(named, text)):
        raise pytest.UsageError(f"{CHOICE.name}: {'; '.join(problems)}")
    kept = chosen(named, text)
    config.hook.pytest_deselected(items=[item for name, item in named.items() if name not in kept])
    items[:] = [item for name, item in named.items() if name in kept]


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


@pytest.fixture(scope="session")
def snapshots(pytestconfig: pytest.Config) -> Snapshots:
    """What commands and reports print, as files hold it."""
    return Snapshots(pytestconfig.getoption("--write-snapshots"))
