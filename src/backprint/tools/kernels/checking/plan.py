"""What a check sends the process that runs kernels, in a folder, and the messages that come back, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from backprint.graph.verdicts import PortVerdict, Verdict
from backprint.tools.kernels.nouns import Kernel, LoweredPort

SAMPLE, SUBJECTS, KERNELS = "sample", "kernels.json", "kernels"
"""Names in a check's folder: the Capture, the extracted kernels, and kernels as files."""

BEGUN = "begun"
"""The key of a message that a graph is at work; every other message is a Verdict."""


@dataclass(frozen=True, slots=True)
class CheckSubject:
    """The kernels of one graph, to be checked."""

    title: str
    """`pair_0 forward`."""
    wrapper: str
    kernels: tuple[Kernel, ...]
    inputs: tuple[LoweredPort, ...]
    outputs: tuple[LoweredPort, ...] = ()
    draws: tuple[str, ...] = ()
    """The steps whose draws are further inputs of this wrapper."""
    unseen: tuple[str, ...] = ()
    """Notes about parts of the graph that the check does not cover."""

    @property
    def pair(self) -> str:
        """`pair_0`."""
        return self.title.partition(" ")[0]

    @property
    def direction(self) -> str:
        """`forward` or `backward`."""
        return self.title.partition(" ")[2]


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """The kernels to check, and how."""

    target: str
    threads: int
    every_configuration: bool
    allow: tuple[str, ...]
    """Custom operators that the sample may call."""
    subjects: tuple[CheckSubject, ...]


def write_plan(folder: Path, plan: CheckPlan) -> None:
    """Write a plan into a check's folder as JSON; of kernels, languages, names and sources alone, the first three
    arguments of a Kernel."""
    kernels = [
        [[kernel.language, kernel.name, kernel.source] for kernel in subject.kernels] for subject in plan.subjects
    ]
    bare = replace(plan, subjects=tuple(replace(subject, kernels=()) for subject in plan.subjects))
    (folder / SUBJECTS).write_text(json.dumps({**asdict(bare), "kernels": kernels}), encoding="utf-8")


def read_plan(folder: Path) -> CheckPlan:
    """Read a plan from a check's folder; its kernels have languages, names and sources alone."""
    content = json.loads((folder / SUBJECTS).read_text("utf-8"))
    subjects = tuple(
        _subject_from_json(row, kernels) for row, kernels in zip(content["subjects"], content["kernels"], strict=True)
    )
    target, threads, every = content["target"], content["threads"], content["every_configuration"]
    return CheckPlan(target, threads, every, tuple(content["allow"]), subjects)


def _subject_from_json(row: Mapping[str, Any], kernels: Iterable[Any]) -> CheckSubject:
    """Return a CheckSubject from its fields as JSON; `kernels` are the arguments of each Kernel, as `write_plan` wrote
    them."""
    inputs, outputs = (tuple(map(_port_from_json, row[name])) for name in ("inputs", "outputs"))
    own_kernels = tuple(Kernel(*fields) for fields in kernels)
    return CheckSubject(
        row["title"], row["wrapper"], own_kernels, inputs, outputs, tuple(row["draws"]), tuple(row["unseen"])
    )


def _port_from_json(row: Mapping[str, Any]) -> LoweredPort:
    """Return a LoweredPort from its fields as JSON, in which tuples are lists."""
    return LoweredPort(**{**row, "shape": tuple(row["shape"]), "stride": tuple(row["stride"])})


def verdict_from_json(row: Mapping[str, Any]) -> Verdict:
    """Return a Verdict from its fields as JSON."""
    return Verdict(row["verdict"], row["name"], row["detail"], tuple(PortVerdict(**port) for port in row["ports"]))
