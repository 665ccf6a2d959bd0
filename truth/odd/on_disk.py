"""What a program finds on the disk, and what it leaves there: marks, caches, logs, counters, locks, links, dates."""

import contextlib
import dbm.dumb
import json
import os
import pickle
import shelve
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from case import Case, attributes, many, module, randn


def there(f: Callable[[Any, Path], Any], prepare: Callable[[Path], Any] = lambda folder: None, **more: Any) -> Case:
    """A function of a tensor and a folder of its own, which is emptied and prepared before each call."""
    folder = Path(tempfile.mkdtemp(prefix="odd"))

    def reset() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        prepare(folder)

    reset()
    return Case(lambda x: f(x, folder), randn(3, 4), others=[randn(3, 4, seed=5)], reset=reset, **more)


def _mark(x: Any, folder: Path) -> Any:
    scale = 3 if (folder / "done").exists() else 2
    (folder / "done").touch()
    return x * scale


def _calibrated(x: Any, folder: Path) -> Any:
    """The first batch decides the scale, which is kept for those that follow."""
    path = folder / "scale.json"
    if not path.exists():
        path.write_text(json.dumps(float(x.detach().abs().max())))
    return x / json.loads(path.read_text())


def _cached_array(x: Any, folder: Path) -> Any:
    path = folder / "table.npy"
    if path.exists():
        return x * float(np.load(path).sum())
    np.save(path, np.full(3, 2.0))
    return x


def _logged(x: Any, folder: Path) -> Any:
    with open(folder / "log", "a") as file:
        file.write("step\n")
    return x * len((folder / "log").read_text().splitlines())


def _logged_only(x: Any, folder: Path) -> Any:
    with open(folder / "log", "a") as file:
        file.write(f"{float(x.sum()):.3f}\n")
    return x * 2


def _shelved(x: Any, folder: Path) -> Any:
    with shelve.Shelf(dbm.dumb.open(str(folder / "shelf"), "c")) as shelf:
        shelf["n"] = shelf.get("n", 1) + 1
        return x * shelf["n"]


def _table(x: Any, folder: Path) -> Any:
    with contextlib.closing(sqlite3.connect(folder / "runs.db")) as base, base:
        base.execute("create table if not exists runs (loss real)")
        base.execute("insert into runs values (?)", (float(x.sum()),))
        return x * base.execute("select count(*) from runs").fetchone()[0]


def _renamed(x: Any, folder: Path) -> Any:
    scale = 3 if (folder / "new").exists() else 2
    if (folder / "old").exists():
        os.rename(folder / "old", folder / "new")
    return x * scale


def _permitted(x: Any, folder: Path) -> Any:
    scale = 2 + bool(os.stat(folder / "a").st_mode & 0o1)
    os.chmod(folder / "a", 0o755)
    return x * scale


def _dated(x: Any, folder: Path) -> Any:
    then = os.stat(folder / "a").st_mtime
    os.utime(folder / "a", (then + 60, then + 60))
    return x * (then / 60)


def _linked(x: Any, folder: Path) -> Any:
    link = folder / "latest"
    count = int(os.readlink(link)) if link.is_symlink() else 1
    link.unlink(missing_ok=True)
    link.symlink_to(str(count + 1))
    return x * count


def _listed(x: Any, folder: Path) -> Any:
    names = sorted(os.listdir(folder))
    (folder / f"checkpoint{len(names)}").touch()
    if len(names) >= 2:
        (folder / names[0]).unlink()
    return x * (len(names) + 2)


def _pickled(x: Any, folder: Path) -> Any:
    path = folder / "state.pkl"
    state = pickle.loads(path.read_bytes()) if path.exists() else {"step": 1}
    state["step"] += 1
    path.write_bytes(pickle.dumps(state))
    return x * state["step"]


def _locked(x: Any, folder: Path) -> Any:
    try:
        os.close(os.open(folder / "lock", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return x * 5
    return x * 2


def _locked_and_freed(x: Any, folder: Path) -> Any:
    os.close(os.open(folder / "lock", os.O_CREAT | os.O_EXCL))
    try:
        return x * 2
    finally:
        os.unlink(folder / "lock")


def _memory_mapped(x: Any, folder: Path) -> Any:
    table = torch.from_file(str(folder / "table.bin"), shared=True, size=4)
    y = x * table.clone()
    table += 1
    return y


def _read_only(x: Any, folder: Path) -> Any:
    return x * float((folder / "scale").read_text())


def _found(x: Any, folder: Path) -> Any:
    return x * len(list(folder.glob("*.txt")))


def _checkpoints(self: Any, x: Any) -> Any:
    path = Path(self.folder) / "best.pt"
    loss = (x @ self.w).square().mean()
    best = torch.load(path)["loss"] if path.exists() else float("inf")
    if float(loss) < best:
        torch.save({"loss": float(loss), "w": self.w.detach()}, path)
    return loss * (1 if best == float("inf") else 2)


def _checkpointing() -> Case:
    folder = tempfile.mkdtemp(prefix="odd")

    def reset() -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, "best.pt"))

    net = module(lambda s: attributes(s, folder=folder), _checkpoints)
    return Case(net, randn(3, 4), others=[randn(3, 4, seed=5)], reset=reset)


many(
    __name__,
    disk_mark=lambda: there(_mark),
    disk_calibration=lambda: there(_calibrated),
    disk_cached_array=lambda: there(_cached_array),
    disk_log_counted=lambda: there(_logged),
    disk_log_only=lambda: there(_logged_only),
    disk_shelf=lambda: there(_shelved),
    disk_database=lambda: there(_table),
    disk_renamed=lambda: there(_renamed, lambda f: (f / "old").touch()),
    disk_permissions=lambda: there(_permitted, lambda f: (f / "a").touch()),
    disk_dates=lambda: there(_dated, lambda f: ((f / "a").touch(), os.utime(f / "a", (120, 120)))),
    disk_link=lambda: there(_linked),
    disk_listed=lambda: there(_listed),
    disk_pickled=lambda: there(_pickled),
    disk_lock=lambda: there(_locked),
    disk_lock_freed=lambda: there(_locked_and_freed),
    disk_memory_mapped=lambda: there(_memory_mapped, lambda f: np.arange(1, 5, dtype="f4").tofile(f / "table.bin")),
    disk_read_only=lambda: there(_read_only, lambda f: (f / "scale").write_text("3")),
    disk_globbed=lambda: there(_found, lambda f: [(f / f"{n}.txt").touch() for n in "abc"]),
    disk_checkpoints=_checkpointing,
)
