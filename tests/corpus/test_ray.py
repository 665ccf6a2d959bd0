"""The same work on a Ray cluster: three real nodes on this machine, one of which is killed."""

from __future__ import annotations

import builtins
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import subjects
from subjects.corpora import command, corpus, left_behind, rows, until

from face import (
    GIB,
    RESULT,
    WORK,
    BackprintError,
    Cluster,
    Limits,
    RunPlan,
    SampleError,
    UsageError,
    Written,
    connect,
    limits_on,
    processes,
    run_plan,
)
from face import ray as module

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
os.environ |= {"RAY_health_check_period_ms": "1000"}
"""Nothing is reported to anyone, addresses are the loopback's, the end of a node is noticed within seconds. Ray reads
these when it is imported, and gives them to its nodes."""

pytestmark = pytest.mark.slow

VERB = f"{Path(subjects.__file__).with_name('ray_verbs.py')}:act"
SMALL = Limits(timeout=2.0, memory=GIB // 4, disk=GIB // 8)
NAMES = [*(f"family_{index % 3}/sample_{index:02}" for index in range(12)), "segfault", "raise", "hang"]
WANTED = dict.fromkeys(NAMES, "bitwise") | dict.fromkeys(("segfault", "raise", "hang"), "failed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head and two nodes, on the loopback address; nothing is reported to anyone."""
    from ray.cluster_utils import Cluster as Nodes

    node = {"num_cpus": 1, "object_store_memory": 100 << 20, "memory": 2 * GIB, "node_ip_address": "127.0.0.1"}
    found = Nodes(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    found.template = node
    for _ in range(2):
        found.add_node(**node)
    try:
        yield found
    finally:
        found.shutdown()


@pytest.fixture(autouse=True)
def disconnected() -> Iterator[None]:
    """No test leaves a connection to the next."""
    yield
    if ray := sys.modules.get("ray"):
        ray.shutdown()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return corpus(tmp_path / "source", NAMES)


def on_cluster(
    nodes: Any,
    plan: RunPlan,
    watcher: Callable[[Any], None] = lambda event: None,
) -> dict[str, dict[str, Any]]:
    """A run on the cluster; gives the rows by id."""
    ray = connect(nodes.address)
    run_plan(
        plan,
        SMALL,
        3,
        watcher=watcher,
        executor=lambda work, name: Cluster(ray, plan.verb, plan.options, SMALL, work, name),
    )
    return rows(plan.out)


def told(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What does not hang on where and when."""
    columns = ("verdict", "cause", "detail", "stage", "family", "kind", "source_hash", "state")
    return {name: {column: row[column] for column in columns} for name, row in found.items()}


def written(out: Path) -> dict[str, bytes]:
    """Every file of every sample, but the rows."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and path.parent != out and WORK not in path.parts and path.name != RESULT
    }


@pytest.mark.slow
def test_a_node_is_killed_and_the_result_is_the_pools(cluster: Any, source: Path, tmp_path: Path) -> None:
    plan = RunPlan(VERB, source, tmp_path / "ray", {"seconds": 0.5})
    done: list[Any] = []
    killed: list[Any] = []
    ended = threading.Event()

    def kill_one() -> None:
        while not killed and not ended.wait(0.01):
            killed.extend(node for node in cluster.worker_nodes if len(done) > 3 and just_begun(raylet_of(node)))
        for node in killed[:1]:
            processes.kill([raylet_of(node), *processes.descendants(raylet_of(node))])

    killer = threading.Thread(target=kill_one)
    killer.start()
    try:
        found = on_cluster(cluster, plan, lambda event: done.extend([event] if isinstance(event, Written) else []))
    finally:
        ended.set()
        killer.join()
    cluster.remove_node(killed[0], allow_graceful=False)
    cluster.add_node(**cluster.template)
    run_plan(RunPlan(VERB, source, tmp_path / "pool", {"seconds": 0.0}), SMALL, 2)
    assert {name: row["verdict"] for name, row in found.items()} == WANTED
    assert told(found) == told(rows(tmp_path / "pool"))
    assert written(tmp_path / "ray") == written(tmp_path / "pool")
    twice = [name for name, row in found.items() if row["attempts"] != 1]
    assert 1 <= len(twice) <= 4
    assert {found[name]["attempts"] for name in twice} == {2}
    assert (found["hang"]["cause"], found["segfault"]["cause"]) == ("timeout", "killed by SIGSEGV")
    assert all(row["worker"].startswith(f"ray {os.uname().nodename}-") for row in found.values())
    assert left_behind(tmp_path / "ray") == []
    assert {place.name for place in (tmp_path / "ray" / WORK).iterdir()} == {"lock", "logs"}


def test_ray_leaves_print_as_it_was(cluster: Any) -> None:
    before = builtins.print
    connect(cluster.address)
    from ray.experimental import tqdm_ray

    tqdm_ray.instance()
    assert builtins.print is before


def raylet_of(node: Any) -> int:
    """The process that a node is."""
    return int(node.all_processes["raylet"][0].process.pid)


def just_begun(raylet: int) -> bool:
    """Whether a sample has begun on a node, and is far from its end."""
    for pid in processes.descendants(raylet):
        with contextlib.suppress(OSError):
            at_work = b"backprint.tools.jobs.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
            for cell in processes.children(pid) if at_work else []:
                begun = int(Path(f"/proc/{cell}/stat").read_text().rpartition(")")[2].split()[19])
                return time.clock_gettime(time.CLOCK_BOOTTIME) - begun / os.sysconf("SC_CLK_TCK") < 0.25
    return False


def test_a_node_that_does_not_see_out_says_so(
    cluster: Any, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "resolve", lambda path: Path("/nowhere") / path.name)  # of the driver alone
    with pytest.raises(BackprintError, match=r"does not see /nowhere/.*: put SRC and OUT where all nodes see them"):
        on_cluster(cluster, RunPlan(VERB, source, tmp_path / "out"))


def test_a_node_with_another_version_cannot_work(
    cluster: Any, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "__version__", "99.0")
    with pytest.raises(
        BackprintError, match=r"no node of the Ray cluster can work: .* the driver 99\.0: install the same"
    ):
        on_cluster(cluster, RunPlan(VERB, source, tmp_path / "out"))
    assert {row["state"] for row in rows(tmp_path / "out").values()} <= {"todo", "done"}


def test_a_verb_that_nodes_do_not_have_is_named(cluster: Any, source: Path, tmp_path: Path) -> None:
    with pytest.raises(BackprintError, match=r"no worker can start: .*absent"):
        on_cluster(cluster, RunPlan(f"{tmp_path}/absent.py:act", source, tmp_path / "out"))


@pytest.mark.slow
def test_killed_or_stopped_the_command_goes_on(cluster: Any, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["run", VERB, source, "-o", out, "--set", "seconds=0.3", "--timeout", 2, "--memory", 0.25]
    arguments += ["--ray", cluster.address, "--json"]
    for number, after in ((signal.SIGKILL, 4), (signal.SIGTERM, 9)):
        process = command(*arguments)
        until(lambda after=after: finished(out) >= after, 60)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode in (-signal.SIGKILL, 128 + signal.SIGTERM), errors
        until(lambda: left_of(out) == [])
    process = command(*arguments)
    printed, errors = process.communicate(timeout=120)
    assert process.returncode == 1, errors  # three of them fail, as they are told to
    assert 1 <= len(printed.splitlines()) < len(NAMES)
    assert {name: row["verdict"] for name, row in rows(out).items()} == WANTED
    assert {place.name for place in (out / WORK).iterdir()} == {"lock", "logs"}


@pytest.mark.slow
def test_asked_to_end_at_any_moment_it_ends_by_that(cluster: Any, tmp_path: Path) -> None:
    chance = random.Random(3)
    source, out = corpus(tmp_path / "source", [f"s{number:02}" for number in range(40)]), tmp_path / "out"
    arguments = ["run", VERB, source, "-o", out, "--set", "seconds=0.1", "--memory", 0.25]
    arguments += ["--ray", cluster.address, "--json"]
    for number in (signal.SIGTERM, signal.SIGINT) * 4:
        process = command(*arguments)
        assert process.stdout is not None
        assert process.stdout.readline()
        time.sleep(chance.random() * 0.1)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 128 + number, errors
        assert f"stopped by {number.name}; the same command goes on from here" in errors
    until(lambda: left_of(out) == [])
    process = command(*arguments)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert {row["verdict"] for row in rows(out).values()} == {"bitwise"}


def test_work_under_way_is_left_to_ray() -> None:
    class Left:
        ended = False

        def shutdown(self) -> None:
            self.ended = True

    cluster = object.__new__(Cluster)
    cluster.ray, cluster.sent = Left(), {"reference": None}
    cluster.close()
    assert not cluster.ray.ended
    cluster.sent.clear()
    cluster.close()
    assert cluster.ray.ended


def finished(out: Path) -> int:
    """How many samples of a run that is going on are done."""
    with contextlib.suppress(UsageError, SampleError):
        return sum(row["state"] == "done" for row in rows(out).values())
    return 0


def left_of(out: Path) -> list[str]:
    """The samples' processes that are still there, on whatever node."""
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            said = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
            if (
                b"backprint.tools.jobs.worker" in said
                and str(out).encode() in Path("/proc", name, "environ").read_bytes()
            ):
                found.append(name)
    return found


def test_limits_are_a_share_of_the_smallest_node(cluster: Any) -> None:
    ray = connect(cluster.address)
    assert limits_on(ray).memory == int(2 * GIB * 0.9)
    assert limits_on(ray, 5.0, 1.5, 2.0) == Limits(5.0, int(1.5 * GIB), 2 * GIB)
    with pytest.raises(UsageError, match=r"--memory 3: the largest node of the Ray cluster has 2\.0 GiB"):
        limits_on(ray, memory=3)


# ------------------------------------------------------------------ without a cluster


CONNECTING = """
import os, signal, sys
from backprint.tools.jobs import ray

ray.connect = lambda address: os.kill(os.getpid(), int(sys.argv[1]))
ray.cluster("auto", "verb", {}, (1.0, None, None))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_end_while_ray_connects_it_ends_at_once(number: signal.Signals) -> None:
    """What a handler raises there can leave Ray's threads waiting for each other for ever."""
    done = subprocess.run([sys.executable, "-c", CONNECTING, str(int(number))], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (128 + number, f"stopped by {number.name}; nothing was changed\n")


def test_without_ray_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install '\.\[ray\]'"):
        connect("auto")


def test_without_a_cluster_the_next_step_is_said() -> None:
    with pytest.raises(UsageError, match=r"no Ray cluster at 127\.0\.0\.1:1: .*`ray start --head`.*--ray HOST:PORT"):
        connect("127.0.0.1:1")
