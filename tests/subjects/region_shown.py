"""What `backprint show` prints of a dump, in a wide window."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from backprint.cli import main


def shown(dump: Path) -> str:
    done = CliRunner().invoke(main, ["show", str(dump)], env={"COLUMNS": "200"}, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout
