"""The script that tries what a user installs notices what is not good; `make plain` runs it whole."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from subjects import pages

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("plain_install", ROOT / "scripts" / "plain_install.py")
assert SPEC is not None
assert SPEC.loader is not None
plain = importlib.util.module_from_spec(SPEC)
sys.modules["plain_install"] = plain
SPEC.loader.exec_module(plain)

PYTHON = Path(sys.executable)


@pytest.mark.parametrize(
    ("command", "code", "says", "good"),
    [
        ("echo here", 0, "here", True),
        ("echo here >&2; exit 2", 2, "here", True),
        ("echo here; exit 1", 0, "here", False),
        ("echo there", 0, "hier", False),
        ("echo here", 1, "here", False),
        ("echo here; echo 'Traceback (most recent call last):' >&2; exit 1", 1, "here", False),
        ("python -c 'import triton'", 1, "", False),
    ],
)
def test_a_machine_that_lacks_something(command: str, code: int, says: str, good: bool, tmp_path: Path) -> None:
    lacking = plain.Lacking("a case", command, code, says, (("HIDE", "triton"),))
    assert plain.case(lacking, tmp_path, PYTHON).good is good


def test_a_hidden_package_is_not_found_and_a_home_is_not_there(tmp_path: Path) -> None:
    asked = "import importlib.util as u, os; print(u.find_spec('click'), os.environ['HOME'])"
    lacking = plain.Lacking(
        "a case", f'python -c "{asked}"', 0, "None /proc/absent", (("HIDE", "click"), ("HOME", "/proc/absent"))
    )
    assert plain.case(lacking, tmp_path, PYTHON).good


def test_a_command_that_does_not_end_is_a_row_that_is_not_good(tmp_path: Path) -> None:
    done = plain.run([PYTHON, "-c", "import time; time.sleep(60)"], tmp_path, PYTHON, timeout=0.5)
    assert (done.returncode, done.stderr) == (124, "no end after 0.5 s\n")


@pytest.mark.slow
def test_a_page_and_an_environment_that_are_not_good_are_named(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    wrong = ROOT / "docs" / "absent.md"
    assert not plain.page(PYTHON, wrong, tmp_path, {}).good
    first = next(plain.installation(PYTHON, tmp_path / "home"))
    assert (first.good, "numpy" in first.detail) == (False, True)  # the environment of development has more


def test_every_verb_is_used_by_a_page_or_by_the_script() -> None:
    from face import COMMANDS

    texts = [page.read_text(encoding="utf-8") for page in plain.PAGES]
    blocks = [block.text for text in texts for block in pages.blocks(text) if block.language == "bash"]
    commands = [*plain.USES.values(), *blocks]
    assert [verb for verb in COMMANDS if not any(f"backprint {verb}" in command for command in commands)] == []
    assert {name.split()[0] for name in plain.EVERY} == set(COMMANDS)
