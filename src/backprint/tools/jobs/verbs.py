"""The verbs of a corpus run: a table of functions by name, and verbs of the user's own.

A verb is `function(task, options, staging) -> row`. It may write a folder at `staging`, which becomes the sample's
folder in OUT unless the verdict is `failed`; its row has columns of the ledger, at least `verdict`. It runs in a
process of its own, so it may change anything there. `with stage("capture"): …` reports its progress.

- `Task`: one sample, with its id, its folder (`path`), its kind (`backprint` or `graphnet`), and the bytes of memory
  that it may use (`memory`), or may use when it runs alone (`most`).
- A target is a sample as something to capture: a model or function with inputs (`tools/target`).
- A Verdict of a saved sample is a JSON object: `verdict`, `detail`, `power`, `vacuous` (ports without power), …
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from backprint.common.formats import FORMATS
from backprint.common.text import check_choice, check_sequence
from backprint.common.words import CHOICES
from backprint.errors import BackprintError, CaptureError, SampleError, UsageError
from backprint.graph.capture_options import roles_with_grad
from backprint.graph.verdicts import REFUTED, rank, reasons_of_derivative
from backprint.tools.jobs.task import TREES, Options, Task, current_stage, failure, on_cpu, one_line, stage

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: its function, its options, and the function that a worker calls first, which returns versions.

    `instead` has, by cause of failure, the options for one more try; `kinds` the kinds of samples it is for, others are
    skipped; () means all. With `keeps`, a failed sample's folder is kept. `fixed` are the options whose values the verb
    implies. `check` raises for an invalid source or options. `finish` is called with OUT at the end of a run.
    """

    run: Callable[[Task, Options, Path], Row]
    warm: Callable[[Options], dict[str, str]]
    options: Options = field(default_factory=dict)
    instead: Mapping[str, Options] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()
    keeps: bool = False
    fixed: Options = field(default_factory=dict)
    check: Callable[[Path, Options], None] | None = None
    finish: Callable[[Path, Options], None] | None = None


def resolve_verb(text: str, given: Options) -> tuple[str, dict[str, Any]]:
    """Return the name of a verb and all its options as a run stores them, a file with its absolute path. No file is
    run. Raise UsageError for an unknown verb, option or value, and for one that contradicts the verb (`fixed`)."""
    if (verb := known_verb(text)) is not None:
        defaults, fixed = verb.options, verb.fixed
        if unknown := set(given) - set(defaults):
            raise UsageError(f"{text} takes no option {min(unknown)!r}; it takes {', '.join(defaults)}")
        for name in fixed.keys() & given.keys():
            if given[name] not in (None, fixed[name]):
                contradiction = f"{text} means {name}={fixed[name]!r}, not {name}={given[name]!r}"
                raise UsageError(f"{contradiction}: the verb capture takes any {name}")
        check_values(defaults, given)
        return text, {**defaults, **given, **fixed}
    place, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier():
        raise UsageError(
            f"{text!r} is not a verb: {', '.join([*VERBS, *ABOVE])}, or file.py:function(task, options, staging) -> row"
        )
    if not place.endswith(".py"):
        return text, dict(given)
    if not Path(place).is_file():
        raise UsageError(f"{place}: no such file")
    return f"{Path(place).resolve()}:{name}", dict(given)


def check_values(defaults: Options, given: Options) -> None:
    """Raise UsageError for an invalid value of a known option, or a text where a sequence is needed."""
    for name, value in given.items():
        if name in CHOICES:
            check_choice(name, value, optional=defaults[name] is None)
        if name in ("allow", "targets"):
            check_sequence(name, value)
        if name == "requires_grad" and isinstance(value, str):
            roles_with_grad(value)  # raises for an unknown word


def verb_of(text: str) -> Verb:
    """Return a verb of the table, or import `file.py:function` or `package.module:function`.

    A worker first calls the function's attribute `warm`, if it has one.
    """
    if (known := known_verb(text)) is not None:
        return known
    from backprint.common.factories import find_factory

    function = find_factory(text)
    return Verb(function, getattr(function, "warm", versions))


# ------------------------------------------------------------------ what a worker loads first


def versions(options: Options) -> dict[str, str]:
    """Return the versions of loaded packages that a row depends on."""
    import platform
    import sys

    from backprint.version import __version__

    torch = sys.modules.get("torch")
    package_versions = {"backprint": __version__, "python": platform.python_version()}
    return package_versions | ({"torch": str(torch.__version__)} if torch else {})


def warm(options: Options) -> dict[str, str]:
    """Load PyTorch and Backprint, and run a small model, so that no sample pays for the first capture's imports; return
    versions. Samples run in processes that are forked from this one."""
    import torch

    from backprint import api
    from backprint._torch import dynamo
    from backprint.prove.verify import verify_capture
    from backprint.sample.save import write_staged
    from backprint.tools import target

    _ = target.read_target, verify_capture, write_staged  # named, so that the imports are used

    if options.get("engine", "eager") != "eager":
        dynamo.load()  # a process that is forked from this one would load it for each sample that needs it
    torch.set_num_threads(1)  # a thread pool made here would be missing in these processes
    torch.manual_seed(0)
    if on_cpu(options):  # a process that has used a GPU cannot be forked
        without_device_threads()
        layers = (torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Flatten(), torch.nn.Linear(8, 2))
        api.verify(api.capture(torch.nn.Sequential(*layers), torch.randn(2, 1, 4, 4), mode="train"))
    return versions(options)


def load_only(options: Options) -> dict[str, str]:
    """Load PyTorch, and run no model, for verbs that take little time; return versions."""
    import torch

    torch.set_num_threads(1)
    without_device_threads()
    return versions(options)


def without_device_threads() -> None:
    """Make autograd start no device threads, while it sees only the CPU.

    At its first backward, autograd starts a thread for each device, and with such threads forked processes cannot run
    backward. Fake tensors on a build with CUDA libraries report a GPU, so this must come before the first of them.
    """
    import torch

    torch.ones(1, requires_grad=True).sum().backward()


def gpu_option() -> dict[str, bool]:
    """Return the option with which workers see this machine's GPUs, for verbs whose samples may be on one.

    Devices are looked up in /dev: importing torch would take seconds.
    """
    has_gpu = any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/kfd").exists()
    return {"gpus": True} if has_gpu else {}


# ------------------------------------------------------------------ the verbs


def capture_and_prove(task: Task, options: Options, staging: Path) -> Row:
    """Read a sample, capture its forward and backward, prove and save them into `staging`; return its row.

    A capture that engine `auto` took and that its proof refutes is tried again with another engine. With the option
    `weigh`, a GraphNet sample whose metadata lists too large tensors for its memory is not tried with values: it is
    `too large`, to be tried alone if that has enough, else captured without values.
    """
    from backprint.tools.export.saving import write_layout
    from backprint.tools.graphnet.metas import listed_bytes
    from backprint.tools.jobs.places import tree_name
    from backprint.tools.target import read_target, with_grad

    needed = NEEDED * listed_bytes(task.path) if options["weigh"] and task.kind == "graphnet" else 0
    if 0 < task.memory < needed:
        allowed = max(task.memory, task.most)
        large = f"{needed / 2**30:.1f} GiB by its metadata, {allowed / 2**30:.1f} are allowed (--memory)"
        if needed <= allowed:  # alone: the run tries it so (`_RunLoop.had_too_little_memory`)
            return failure("too large", large, current_stage())
        try:
            row = capture_and_prove(task, {**options, "weigh": False, "fake": True}, staging)
        except BackprintError as error:
            return failure("too large", f"{large}; without values: {error}", current_stage())
        return row | {"cause": "too large", "detail": large}
    fake = options["fake"]
    mode = None if task.kind == "backprint" else options["mode"]  # a saved graph has its own
    with stage("read"), _naming_missing_files(task):
        target = read_target(task.path, fake=fake, device=options["device"], mode=mode, trust=options["trust"])
    # Only `aot` captures without values.
    capture, row = _capture_with(target, options, staging, "aot" if fake else options["engine"])
    if row["verdict"] in REFUTED and options["engine"] == "auto":
        capture, row = _capture_with_other(target, options, staging, capture, row)
    if options["layout"] == "graphnet" and row["verdict"] not in REFUTED:
        with stage("layout"):
            source = task.path if task.kind == "graphnet" else None
            write_layout(capture, staging / TREES, tree_name(task.id), source)
    # The tensors that require grad, each with the reason.
    asks = [[name, why] for name, why in with_grad(target, capture, options["requires_grad"])]
    return row | {"mode": mode, "asks": asks, "notes": [*map(one_line, target.notes), *row["notes"]]}


def _capture_with(target: Any, options: Options, staging: Path, engine: str) -> tuple[Any, Row]:
    """Capture a target with an engine, prove and save it; return the Capture, and its row."""
    from backprint import api
    from backprint.tools.target import capture_target

    with stage("capture"):
        capture = capture_target(target, engine=engine, fake=target.fake, requires_grad=options["requires_grad"])
    with stage("save"):  # which proves it first
        api.save(capture, staging, options["data"], power=options["power"], overwrite=True)
    with stage("verify"):  # that what was saved can be loaded
        stored = api.load(staging)
    if stored.verdict is None:
        raise SampleError(f"{staging}: was saved without a verdict")
    return capture, sample_row(capture, stored.verdict)


def _capture_with_other(target: Any, options: Options, staging: Path, first: Any, row: Row) -> tuple[Any, Row]:
    """Capture with another engine than `auto` chose for the `first` Capture; return its Capture and row, or, if it
    refuses the target, the first and its row. A note says which engine was not used, and why."""
    other = "aot" if first.engine == "eager" else "eager"
    try:
        second, second_row = _capture_with(target, options, staging, other)
    except CaptureError as error:
        return first, row | {"notes": [one_line(f"not by {other}: {error}"), *row["notes"]]}
    why = f"not by {first.engine}: {row['verdict']}, {row['detail']}"
    return second, second_row | {"notes": [one_line(why), *second_row["notes"]]}


@contextlib.contextmanager
def _naming_missing_files(task: Task) -> Iterator[None]:
    """Raise FileNotFoundError, whose cause is `missing file`, in place of an error of reading a sample that lacks some
    of the files of its kind."""
    try:
        yield
    except (SampleError, UsageError) as error:
        known_format = FORMATS.get(task.kind)
        required = () if known_format is None else (known_format.main, *known_format.required)
        missing = [name for name in required if not (task.path / name).exists()]
        if missing:
            raise FileNotFoundError(errno.ENOENT, f"no {missing[0]}: {error}") from error
        raise


def verify(task: Task, options: Options, staging: Path) -> Row:
    """Prove a Backprint sample again, in this new process, from its files alone.

    It runs on the recipe's inputs, for which digests of the program's results are kept; its power is that of its save,
    or is measured now if it was skipped then.
    """
    from backprint import api
    from backprint.prove.attest import verdict_json

    with stage("read"):
        capture = api.load(task.path, allow=tuple(options["allow"]))
        saved = capture.verdict or {}
    draws = ("captured", "recipe", "resized", *(() if saved.get("power") is not None else ("fresh",)))
    with stage("verify"):
        verdict = verdict_json(api.verify(capture, draws)[-1])  # of several Pairs the last is that of the whole
    known = {"power": saved.get("power"), "vacuous": saved.get("vacuous") or ()}
    return sample_row(capture, verdict | (known if verdict["power"] is None else {}))


def power(task: Task, options: Options, staging: Path) -> Row:
    """Return how far a sample's results move when its inputs are redrawn; its verdict is the stored one."""
    from backprint import api

    with stage("read"):
        capture = api.load(task.path, allow=tuple(options["allow"]))
        stored = capture.verdict or {"verdict": "unproven", "detail": "was saved without a verdict"}
    with stage("power"):
        measured = api.power(capture, options["power"], seconds=options["seconds"])
    silent = [f"{side} depends on {name}, and does not show it" for name, side in measured.silent]
    row = sample_row(capture, stored)
    return row | {"power": measured.value, "vacuous": list(measured.vacuous), "notes": silent}


def split(task: Task, options: Options, staging: Path) -> Row:
    """Cut a sample into parts, each a sample below its own folder; `parts.json` has a row for each. The verdict is the
    worst of the parts; without parts it has failed."""
    from backprint.tools.jobs.parts import PARTS
    from backprint.tools.jobs.split import split_sample

    rows = []
    staging.mkdir()
    with stage("split"):
        for part in split_sample(task.path, staging, options["by"], options["data"], tuple(options["allow"])):
            rows.append(asdict(part) | {"sample": task.id, "part": below(staging, part.part)})
    (staging / PARTS).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if not rows:
        return failure("no parts", f"--by {options['by']} finds nothing to cut out", "split")
    unwritten = [f"{row['label']}: {row['verdict']}, {one_line(row['detail'])}" for row in rows if not row["part"]]
    worst = max((row["verdict"] for row in rows), key=rank)
    counts = f"{len(rows)} parts, {len(rows) - len(unwritten)} written"
    return dict(
        verdict=worst,
        cause="part" if worst == "failed" else "",
        detail=one_line("; ".join([counts, *unwritten[:1]])),
        forward_steps=sum(row["forward_steps"] for row in rows),
        backward_steps=sum(row["backward_steps"] for row in rows),
        notes=unwritten,
    )


def _check_split(source: Path, options: Options) -> None:
    """Refuse an unknown kind of cut, and a source without a Backprint sample."""
    from backprint.tools.parts.cuts import kind_of

    kind_of(options["by"])
    if not any(source.glob("**/capture.json")):
        raise UsageError(f"{source}: no sample here or below: no folder holds capture.json")


def below(folder: Path, place: str) -> str:
    """Return a path relative to a folder; '' for ''."""
    return Path(place).relative_to(folder).as_posix() if place else ""


CAPTURING: Options = {
    "mode": None,
    "engine": "auto",
    "data": "seed",
    "device": None,
    "trust": False,
    "fake": False,
    "requires_grad": None,
    "weigh": True,
    "layout": "backprint",
    "power": "quick",
}

FAKE: Options = {"fake": True, "weigh": False}

INSTEAD: Mapping[str, Options] = {"out of memory": FAKE, "timeout": FAKE, "too large": {"weigh": False}}
"""A sample with too little memory or time on this machine is captured without values; if that is impossible, it is
tried with values nevertheless."""

VERBS: dict[str, Verb] = {
    "backward": Verb(capture_and_prove, warm, CAPTURING, INSTEAD, fixed={"mode": "train"}),
    "capture": Verb(capture_and_prove, warm, CAPTURING, INSTEAD),
    "forward": Verb(capture_and_prove, warm, CAPTURING, INSTEAD, fixed={"mode": "eval", "requires_grad": False}),
    "verify": Verb(verify, warm, {"allow": []}, kinds=("backprint",)),
    "power": Verb(power, warm, {"allow": [], "power": "own", "seconds": None}),
    "split": Verb(
        split,
        warm,
        {"by": "", "data": "seed", "allow": []},
        kinds=("backprint",),
        keeps=True,
        check=_check_split,
    ),
}
"""The verbs of this module by name.

`capture` leaves the modes as the samples have them, `backward` is for training, `forward` for evaluation, without
gradients.
"""


ABOVE: Mapping[str, str] = {"kernels": "backprint.tools.kernels"}
"""The verbs of rooms above this one, which cannot be imported here, and the module whose `CORPUS_VERB` each is."""


def known_verb(text: str) -> Verb | None:
    """Return a verb of the two tables; None if it is none of theirs."""
    if text in ABOVE:
        above: Verb = importlib.import_module(ABOVE[text]).CORPUS_VERB
        return above
    return VERBS.get(text)


# ------------------------------------------------------------------ the memory of a capture

NEEDED = 5
"""The least memory of a capture, as a multiple of the bytes of its inputs and parameters, with gradients and a proof on
other values: twelve GraphNet samples with more than 100 MB of them used 5.3 to 21 times as much."""

# ------------------------------------------------------------------ columns


def verdict_columns(verdict: Mapping[str, Any]) -> Row:
    """Return the columns of a stored Verdict. A failure's cause is the class of its error, `verify` if it names
    none."""
    word, detail = verdict["verdict"], one_line(verdict["detail"])
    # The detail of a failure begins with the class of its error, if it had one.
    named_error = re.match(r"\w+Error", detail)
    failed_by = named_error[0] if named_error else "verify"
    cause = failed_by if word == "failed" else ""
    vacuous = list(verdict.get("vacuous") or ())
    row: Row = dict(verdict=word, cause=cause, detail=detail, power=verdict.get("power"), vacuous=vacuous)
    row["judge"] = verdict.get("judge")
    return row | ({"derivative": derivative["word"]} if (derivative := verdict.get("derivative")) else {})


def sample_row(capture: Any, verdict: Mapping[str, Any]) -> Row:
    """Return the row of a Capture with a stored Verdict; why its backward is not the derivative is the first note,
    `not the derivative: REASON`."""
    row = capture_columns(capture) | verdict_columns(verdict)
    derivative = verdict.get("derivative")
    reason = "; ".join(reasons_of_derivative(derivative))
    return row | (
        {"notes": [one_line(f"{derivative['word']}: {reason}"), *row["notes"]]} if derivative and reason else {}
    )


def capture_columns(capture: Any) -> Row:
    """Return the columns of a Capture: its hashes, what its graphs cost, how many ports it has, and notes on engines
    that were not used (`not by …`) and on graph breaks."""
    from backprint.graph.links import free_ports
    from backprint.graph.sizes import at_example_sizes
    from backprint.tools.cost.costs import MOST_FLOPS, step_costs, total_cost, usage_of

    forwards = [pair.forward for pair in capture.pairs]
    backwards = [pair.backward for pair in capture.pairs if pair.backward is not None]
    # Ports at the sizes of the capture, so that bytes are known.
    sized_inputs = {port.name: port for graph in forwards for port in at_example_sizes(graph).inputs}
    inputs = [sized_inputs.get(port.name, port) for port in free_ports(capture)]
    outputs = [port for graph in map(at_example_sizes, forwards) for port in graph.outputs]
    gradients = {port.name for graph in backwards for port in graph.outputs if port.role == "gradient"}
    cost = total_cost(cost for graph in (*forwards, *backwards) for cost in step_costs(graph))
    return dict(
        engine=capture.engine,
        forward_hash=joined_hash([graph.hash() for graph in forwards]),
        forward_shape=joined_hash([graph.hash(sizes=False) for graph in forwards]),
        backward_hash=joined_hash([graph.hash() for graph in backwards]),
        backward_shape=joined_hash([graph.hash(sizes=False) for graph in backwards]),
        forward_steps=sum(len(graph.steps) for graph in forwards),
        backward_steps=sum(len(graph.steps) for graph in backwards),
        saved_bytes=sum(nbytes(port) for port in outputs if port.role == "saved"),
        inputs=len(inputs),
        outputs=len({port.name for port in outputs if port.role == "output"}),
        gradients=len(gradients),
        input_bytes=sum(map(nbytes, inputs)),
        flops=cost.flops,
        moved_bytes=min(cost.moved, MOST_FLOPS),  # as many as a column can count
        guards=len(capture.guards),
        operators=usage_of({"forward": forwards, "backward": backwards}),
        notes=[
            *(f"not by {one_line(text)}" for text in capture.why),
            *(f"break: {one_line(text)}" for text in capture.breaks),
        ],
    )


def nbytes(port: Any) -> int:
    """Return the bytes of a port's tensor; 0 for one with symbolic sizes."""
    shape = getattr(port.spec, "shape", ())
    return port.spec.nbytes if hasattr(port.spec, "nbytes") and all(isinstance(size, int) for size in shape) else 0


def joined_hash(hashes: Sequence[str]) -> str | None:
    """Return one hash for the graphs of a direction: that of a single one, a digest of several, None of none."""
    if len(hashes) <= 1:
        return hashes[0] if hashes else None
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()
