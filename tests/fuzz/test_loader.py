"""A few hundred mutated samples, and those that once were findings; and that the fuzz sees what it is there to see."""

from __future__ import annotations

import hashlib
import importlib
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import loader
import pytest
from loader import ROOM, SHALLOW, Files, Finding, Run, again, batch, made, made_small, main, warm
from seeds import packed, seeds

HERE = Path(__file__).parent
FOUND = sorted((HERE / "found").glob("*.json"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Files]:
    """The kept samples; each was read once, so that children have all of it loaded."""
    found = seeds()
    warm(found, tmp_path_factory.mktemp("warm"))
    return found


@pytest.mark.slow
def test_mutated_samples_are_read_or_refused(corpus: dict[str, Files], tmp_path: Path) -> None:
    rows = list(batch(range(400), 20, corpus, tmp_path))
    assert [row for row in rows if row[2] is not None] == []
    stages = Counter(stage for _, stage, _ in rows)
    assert stages.total() == 400
    assert sum(stages[stage] for stage in SHALLOW) < 100, stages
    assert stages["loaded"] > 50


@pytest.mark.slow
@pytest.mark.parametrize("of", loader.OTHERS)
def test_mutated_folders_are_read_or_refused(of: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages and differences of samples."""
    module = importlib.import_module(loader.OTHERS[of])
    monkeypatch.setattr(loader, "look", module.look)
    found = module.corpus()
    warm(found, tmp_path)
    rows = list(batch(range(48), 7, found, tmp_path))
    assert [row for row in rows if row[2] is not None] == []
    assert sum(stage == "loaded" for _, stage, _ in rows) > 5


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_was_found_stays_mended(path: Path, corpus: dict[str, Files], tmp_path: Path) -> None:
    assert again(path, corpus, tmp_path) is None


@pytest.mark.slow
def test_a_number_is_one_sample_wherever_it_is_made(corpus: dict[str, Files]) -> None:
    program = "import test_loader; print(test_loader.digest(test_loader.seeds()))"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    there = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert there.stdout.strip() == digest(corpus)


def digest(corpus: dict[str, Files]) -> str:
    """What the first samples of a seed are."""
    texts = [packed(made(3, number, corpus)[1]) for number in range(60)]
    assert len(set(texts)) > 55
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


# ------------------------------------------------------------------ what it sees


def spin(source: Path, number: int) -> str:
    began = time.process_time()
    while time.process_time() - began < 0.4:
        pass
    return "loaded"


def endless(source: Path, number: int) -> str:
    while True:
        pass


def grow(source: Path, number: int) -> str:
    return "loaded" if b"x" * (5 << 28) else ""


def grow_too_far(source: Path, number: int) -> str:
    return "loaded" if b"x" * (2 * ROOM) else ""


def unheard(source: Path, number: int) -> str:
    warnings.warn("of a stranger's text", SyntaxWarning, stacklevel=1)
    return "loaded"


SEEN: dict[str, tuple[Callable[[Path, int], str], str, dict[str, float]]] = {
    "an error that is not ours": (lambda source, number: {}["x"], "raised at KeyError in test_loader.py:<lambda>", {}),
    "a warning": (unheard, "raised at SyntaxWarning in test_loader.py:unheard", {}),
    "a death": (lambda source, number: os.abort(), "ended at SIGABRT", {}),
    "an exit": (lambda source, number: os._exit(3), "ended at exit code 3", {}),
    "a hang": (endless, "ended at no end", {"ENOUGH": 1.0}),
    "a wait": (lambda source, number: str(time.sleep(60)), "ended at waits for ever", {"PATIENCE": 2.0}),
    "a long time": (spin, "slow at loaded", {"SECONDS": 0.3}),
    "much memory": (grow, "large at loaded", {}),
    "all memory": (grow_too_far, "raised at MemoryError in test_loader.py:grow_too_far", {}),
}


@pytest.mark.parametrize("name", SEEN)
def test_it_sees(name: str, corpus: dict[str, Files], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look, place, limits = SEEN[name]
    monkeypatch.setattr(loader, "look", lambda source, number: look(source, number) if number == 1 else "loaded")
    for limit, value in limits.items():
        monkeypatch.setattr(loader, limit, value)
    rows = list(batch(range(3), 1, corpus, tmp_path))
    assert [number for number, _, _ in rows] == [0, 1, 2]  # a finding costs itself alone
    assert rows[0][2] is rows[2][2] is None
    finding = rows[1][2]
    assert finding is not None
    assert finding.place == place


def test_a_finding_is_made_small_and_kept(
    corpus: dict[str, Files], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(source: Path, number: int) -> str:
        if "fatal" in (source / "s" / "model.py").read_text("utf-8"):
            raise KeyError("x")
        return "loaded"

    monkeypatch.setattr(loader, "look", look)
    before = corpus["graphnet_vmap"]
    text = before["model.py"].replace("total = product.sum()", "total = fatal.sum()").replace("3, 0)", "4, 1)")
    files = {**before, "model.py": text, "graph_net.json": "{}"}
    wanted = Finding("raised", "KeyError in test_loader.py:look", "")
    kept = made_small(files, before, wanted, tmp_path, 0)
    assert kept == {**before, "model.py": before["model.py"].replace("total = product.sum()", "total = fatal.sum()")}


def test_a_run_goes_on_where_it_ended(corpus: dict[str, Files], tmp_path: Path) -> None:
    run = Run(tmp_path / "out", 4)
    run.go(20, corpus, tmp_path)
    more = Run(tmp_path / "out", 4)
    assert (more.next, more.stages) == (20, run.stages)
    more.go(40, corpus, tmp_path)
    assert more.stages.total() == 40
    assert "40 samples in" in more.told()


@pytest.mark.slow
def test_its_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--count", "10", "--seed", "2", "-o", str(tmp_path)]) == 0
    assert "10 samples in" in capsys.readouterr().out
    assert main(["--again", str(FOUND[0])]) == 0
    assert capsys.readouterr().out.endswith(f"{FOUND[0].name}: nothing\n")
