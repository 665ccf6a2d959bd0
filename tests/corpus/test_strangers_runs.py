"""Runs, logs and dumps of strangers: what is no file is refused, and nothing outside of a run is touched."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from subjects.ledgers import ledger, many

from face import (
    PARTS,
    BackprintError,
    SampleError,
    all_parts,
    begin_of_pass,
    load_to_compare,
    place_of,
    read_gradients,
    read_graph_json,
    read_lines,
    read_log,
    read_meta,
)
from face import read_json as read_capture_json

PART = {
    "sample": "a",
    "label": "layer",
    "verdict": "bitwise",
    "detail": "",
    "forward_steps": 1,
    "backward_steps": 1,
    "backward": "sliced",
}


@pytest.mark.parametrize("part", ["../../mine", "/mine", 5, None])
def test_a_part_that_leads_out_of_the_run_is_refused(part: object, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ledger(out, [row | {"id": "a"} for row in many(1)])
    (out / "a").mkdir(exist_ok=True)
    (out / "a" / PARTS).write_text(json.dumps([PART | {"part": part}]))
    with pytest.raises(SampleError, match=r"parts\.json: a part"):
        list(all_parts(out))


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/x", "a\0b", ".."])
def test_a_sample_whose_name_leads_out_of_the_run_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SampleError, match="is no sample's name"):
        place_of(tmp_path, {"id": name})
    assert place_of(tmp_path, {"id": "a..b/c"}) == tmp_path / "a..b" / "c"


READ: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a run of bench": ("bench.json", read_meta),
    "cells": ("cells.jsonl", lambda folder: list(read_lines(folder / "cells.jsonl", False))),
    "a log of GraphNet": ("log.txt", lambda folder: read_log(folder / "log.txt")),
    "a sample": ("capture.json", load_to_compare),
    "gradients of a region": ("gradients.safetensors", read_gradients),
}


@pytest.mark.parametrize("what", READ)
def test_a_pipe_or_an_endless_file_is_no_file(what: str, tmp_path: Path) -> None:
    name, read = READ[what]
    ledger(tmp_path, [row | {"id": "a"} for row in many(1)])
    place = tmp_path / name
    place.parent.mkdir(exist_ok=True)
    os.mkfifo(place)
    if what == "cells":  # files that a run may lack
        read(tmp_path)
    else:
        with pytest.raises(BackprintError, match="not a regular file"):
            read(tmp_path)
    place.unlink()
    place.symlink_to("/dev/zero")
    if what == "cells":
        read(tmp_path)
    else:
        with pytest.raises(BackprintError, match=r"not a regular file|symbolic link"):
            read(tmp_path)


@pytest.mark.parametrize("value", ["[]", "{}", "1.5"])
def test_a_file_of_small_values_is_not_parsed(value: str, tmp_path: Path) -> None:
    """An empty list takes 3 bytes of a file and 64 of memory: 64 MiB of them were 1.5 GB."""
    text = '{"format": 1, "region": [' + f"{value}," * 4_000_000 + "1]}"
    for name in ("bench.json", "capture.json", "graph.json"):
        (tmp_path / name).write_text(text)
    for read in (read_meta, lambda folder: read_capture_json(folder / "capture.json"), read_graph_json):
        with pytest.raises(BackprintError, match=r"at most 4,000,000 are read"):
            read(tmp_path)


def test_a_file_of_empty_lines_is_not_split(tmp_path: Path) -> None:
    """An empty line took a byte of a log and a hundred of memory."""
    for name, read in (("cells.jsonl", lambda file: list(read_lines(file, False))), ("log.txt", read_log)):
        (tmp_path / name).write_bytes(b"\n" * 1_000_001)
        with pytest.raises(BackprintError, match=r"1,000,001 lines; at most"):
            read(tmp_path / name)


@pytest.mark.parametrize("time", [10**400, 1e300, "1", None])
def test_a_time_that_no_clock_has_is_refused(time: object, tmp_path: Path) -> None:
    with pytest.raises(BackprintError, match="its time is"):
        begin_of_pass({"time": time}, tmp_path)
