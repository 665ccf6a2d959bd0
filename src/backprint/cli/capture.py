"""`backprint capture TARGET -o DIR`, and `backprint record SCRIPT`: what makes samples.

`option(SECTION, ...)` adds an option in a section of the help; names in capitals such as ALLOW are options that several
commands have, and sections (`options`). `echo` prints a text with control characters escaped, `working(text)` shows a
line of progress and yields a function that sets its text, and `ending(what_exists)` says at Ctrl-C what is kept
(`say`). SystemExit carries the exit code: 1 something is not good, NOTHING (3) nothing was looked at.

`options` of a function here are the command's, by name (`as_json`, `layout`, ...). `output` is where the user wants the
sample, and `place` where it is written: the same, or a folder that is put there when it is complete. The *trees* of
`--layout graphnet` are the folders train_forward, train_backward and eval_forward, which GraphNet's samples are in.
`stored.verdict` is the verdict in a sample's files, as a dict. REFUTED are the verdicts `wrong` and `failed`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import re
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from backprint.cli.options import (
    ALLOW,
    COUNTS,
    DATA,
    DEVICE,
    ENGINE,
    HOW,
    JSON,
    LAYOUT,
    LIMITS,
    MODE,
    OUTPUT,
    OVERWRITE,
    PATH,
    REQUIRES_GRAD,
    TRUST,
    WHAT,
    choice,
    command,
    option,
    output_option,
    rank_option,
    requires_grad_of,
)
from backprint.cli.say import echo, ending, working
from backprint.cli.show import why_text
from backprint.common.factories import factory_of
from backprint.common.formats import CAPTURE, WORLD
from backprint.common.text import printable
from backprint.common.words import DataWord
from backprint.errors import (
    BackprintError,
    CaptureError,
    PlaceError,
    SeveralError,
    UsageError,
    describe_error,
    is_defect,
    is_of_user,
)
from backprint.graph.together import guard_texts
from backprint.graph.verdicts import (
    NOT_THE_DERIVATIVE,
    REFUTED,
    has_proof,
    nonfinite_of,
    proof_arguments,
    reasons_of_derivative,
    verdict_text,
)
from backprint.sample.place import check_place, settle
from backprint.tools.jobs.apart import result_of, run_apart, write_result
from backprint.tools.jobs.task import TREE_NAMES, Task, stage
from backprint.tools.jobs.verbs import load_only


@command("capture")
@click.argument("target")
@output_option("The folder to write the sample to.")
@ENGINE
@DATA
@MODE
@option(WHAT, "--loss", help="`sum` or `mean` of the first output, or file.py:function of the output.")
@choice(HOW, "partition", "What is saved for the backward: else min-cut, and with engine eager what autograd saved.")
@option(
    HOW,
    "--no-specialize",
    "specialize",
    flag_value=False,
    default=None,
    help="Refuse .item() and data-dependent sizes, which else become guards.",
)
@option(HOW, "--dynamic", is_flag=True, help="Keep the sizes of inputs symbolic, with the conditions on them.")
@option(WHAT, "--order", default="1", type=click.Choice(["1", "2"]), help="2: the backward of the backward.")
@option(HOW, "--fake", is_flag=True, help="Build and trace without values: nothing of the model is allocated.")
@option(
    HOW,
    "--no-stamp",
    "stamp",
    flag_value=False,
    default=True,
    help="With --fake, trace all of many equal layers; else traces of four and five are continued where that is sound.",
)
@REQUIRES_GRAD
@option(
    HOW, "--decompose", multiple=True, metavar="NS::OP", help="An operator to decompose as PyTorch's own table does."
)
@DEVICE
@TRUST
@option(
    COUNTS,
    "--meant",
    multiple=True,
    metavar="NAME",
    help="An autograd.Function, detach, no_grad, hook or item meant not to be the derivative.",
)
@option(WHAT, "--world", type=click.IntRange(1), metavar="N", help="Capture N ranks; the factory is called in each.")
@rank_option("With --world and --fake, a rank to capture; else 0.")
@option(OUTPUT, "--name", help="The sample's name; else the module's or function's.")
@ALLOW
@OVERWRITE
@LAYOUT
@LIMITS
@JSON
def capture_command(target: str, output: Path, timeout: float, memory: float | None, **options: Any) -> None:
    """Capture the forward and backward of TARGET and write them as a sample.

    TARGET is `file.py:factory` or `package.module:factory`, where the factory returns (model, args) or (model, args,
    kwargs) and is executed here; or the name of a model, `hf:gpt2`, `timm:resnet18` or `torchvision:resnet18`, which is
    made small, with random weights; or the folder of a GraphNet sample, which is parsed and not executed; or the folder
    of a Backprint sample, whose forward is captured again. A sample is captured in a process of its own, within
    `--timeout` and `--memory`: if it crashes or hangs, one line says so, and nothing is written.

    `zoo.py:MODELS`, a dict or a list of factories or of models' names, becomes a folder of samples, each named by its
    key. One that fails is named, and the others go on; then the exit code is 1. `zoo.py:MODELS[KEY]` is one of them.

    The exit code is 1 if the sample is wrong or failed, or if its backward is not the derivative of its forward; a
    surrogate gradient that is meant is named with --meant.
    """
    with ending(lambda: what_exists(output)), working(f"{target}: reading") as show_status:
        # A folder of samples may be that of a dict of factories, which only a TARGET in Python is: then each of their
        # places is checked.
        may_be_several = not (options["world"] or Path(target).is_dir()) and any(output.glob("*/capture.json"))
        if options["layout"] == "backprint" and not may_be_several:
            check_place(output, options["overwrite"], WORLD if options["world"] else CAPTURE)
        if options["ranks"] and not options["world"]:
            raise UsageError("--rank chooses ranks of a World: say how many ranks there are with --world")
        if options["world"]:
            report = capture_and_save_world(
                target, output, options, lambda stage: show_status(f"{target}: {STAGES[stage]}")
            )
        elif Path(target).is_dir():
            report = capture_sample_apart(Path(target), output, options, (timeout, memory), show_status)
        else:
            try:
                report = capture_and_save(
                    target, output, output, options, lambda stage: show_status(f"{target}: {STAGES[stage]}")
                )
            except SeveralError as error:
                report = capture_several(target, error.several, output, options, show_status)
        for line in report.lines:
            echo(line)
    if report.code:
        raise SystemExit(report.code)


def what_exists(output: Path) -> str:
    """Return what exists after Ctrl-C, in words."""
    if (output / "capture.json").exists():
        return f"{output} is a complete sample"
    several = sum(1 for _ in output.glob("*/capture.json"))
    if several:
        return f"{several} complete samples are in {output}"
    return "nothing was written: a sample is never partial"


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """The result of a capture: the lines to print, the exit code, and for `--layout graphnet` the folder of the sample
    in each tree, with the tree's name first."""

    lines: tuple[str, ...]
    code: int = 0
    trees: tuple[tuple[str, str], ...] = ()


# ---- A sample, in a process of its own


def capture_sample_apart(
    target: Path,
    output: Path,
    options: Mapping[str, Any],
    limits: tuple[float, float | None],
    show_status: Callable[[str], None],
) -> CaptureReport:
    """Capture a sample, which may be a stranger's, in a process of its own, within `limits` (seconds, and GiB or None);
    then put the written folder in place. Raise what was raised there, or CaptureError with how the process ended, or
    PlaceError if it cannot be written."""
    # The process writes beside the output, on one file system, so that a rename puts the folder in place.
    existing_parent = next(folder for folder in output.absolute().parents if folder.is_dir())
    task_options = {**options, "loss": absolute(options["loss"]), "output": os.fspath(output), "here": os.getcwd()}

    def on_stage(stage: str) -> None:
        show_status(f"{target}: {STAGES.get(stage, stage)}")  # a stranger's sample may have written any text

    try:
        answers = run_apart(
            "backprint.cli.capture:capture_in_own_process",
            [target],
            task_options,
            limits_of_each=limits,
            on_sample=lambda _: None,
            on_stage=on_stage,
            keep_beside=existing_parent,
        )
        with contextlib.closing(answers) as results:  # type: ignore[type-var]  # a generator, which closes its workers
            answer = result_of(next(results), CaptureReport)
            if answer.folder is None:  # the process has ended without an answer
                is_disk_full = answer.ended.startswith("disk full")
                raise (PlaceError if is_disk_full else CaptureError)(f"{target}: {answer.ended}; nothing was written")
            report: CaptureReport = answer.content
            put_in_place(report, answer.folder, output, options["overwrite"])
    except OSError as error:
        raise PlaceError(f"{output}: the sample could not be written: {error}") from error
    return report


def absolute(loss: str | None) -> str | None:
    """Return a `--loss` (`sum`, `mean`, `file.py:function` or None) with an absolute path, for a process in another
    folder."""
    place, colon, name = (loss or "").rpartition(":")
    return f"{Path(place).absolute()}:{name}" if colon and place.endswith(".py") else loss


def put_in_place(report: CaptureReport, folder: Path, output: Path, overwrite: bool) -> None:
    """Put what was written in `folder` in place by renames: the sample, or its folder in each tree (`TREE/PLACE`).
    Refuse a folder in a tree that is there already, unless `overwrite`."""
    if not report.trees and (folder / MADE).is_dir():
        output.parent.mkdir(parents=True, exist_ok=True)
        settle(folder / MADE, output)  # what was there is removed
    # In all trees, also in one that is not written this time: its sample would be of another capture.
    for _, place in report.trees if overwrite else ():
        for old in TREE_NAMES:
            shutil.rmtree(output / old / place, ignore_errors=True)
    for tree, place in report.trees:
        if (output / tree / place).exists():
            raise UsageError(f"{output / tree / place} exists already: pass --overwrite, or choose another place")
        (output / tree / place).parent.mkdir(parents=True, exist_ok=True)
        os.replace(folder / MADE / tree / place, output / tree / place)


MADE = "made"
"""The folder in a sample's staging folder that the capture is written to."""


def capture_in_own_process(task: Task, options: Mapping[str, Any], staging: Path) -> dict[str, Any]:
    """Capture in the sample's own process, and write the report, or the error, as the answer: what
    `capture_sample_apart` asks for there. `staging` is the folder that this process may write."""
    own_options = dict(options)
    sys.path.insert(0, own_options.pop("here"))  # where the command was called: a loss may import from there
    output = Path(own_options.pop("output"))
    staging.mkdir(exist_ok=True)

    def report() -> dict[str, Any]:
        # A stage begins inside of the one before it: `capture_and_save` says where each begins, and not where it ends.
        with contextlib.ExitStack() as stages:
            return asdict(
                capture_and_save(
                    task.folder, staging / MADE, output, own_options, lambda name: stages.enter_context(stage(name))
                )
            )

    return write_result(staging, report)


capture_in_own_process.warm = load_only  # type: ignore[attr-defined]  # what its worker loads first


# ---- The capture itself

STAGES = {"read": "reading", "capture": "capturing", "save": "proving and saving"}


def capture_and_save(
    target: str,
    place: Path,
    output: Path,
    options: Mapping[str, Any],
    on_stage: Callable[[str], Any],
    factory: Callable[..., Any] | None = None,
) -> CaptureReport:
    """Read a target, capture it, and save it to `place`, which is or becomes `output`. The factory of the target is
    found by its text, unless it is given. `on_stage` is called with each of STAGES but the first as it begins."""
    from backprint.tools.target import capture_target, read_target, with_grad

    keep_what_is_traced()
    # Options are for the command (as_json, …), for reading the target, and, all others, for `capture_target`.
    capture_options = {key: option for key, option in options.items() if key not in ("world", "ranks")}
    as_json, overwrite, data, layout = (capture_options.pop(key) for key in ("as_json", "overwrite", "data", "layout"))
    read_options = {key: capture_options.pop(key) for key in ("device", "mode", "trust")}
    # A Target: its `kind` is where it is from, such as `factory` or `graphnet`.
    program = read_target(target, fake=capture_options["fake"], factory=factory, **read_options)
    import backprint as bp

    on_stage("capture")
    allow = tuple(capture_options.pop("allow"))
    requires_grad = requires_grad_of(capture_options.pop("requires_grad"))
    capture_options |= {
        "meant": tuple(capture_options["meant"]),
        "decompose": tuple(capture_options["decompose"]),
        "order": int(capture_options["order"]),
    }
    capture_options |= {"allow": allow, "requires_grad": requires_grad}
    capture = capture_target(program, **capture_options)
    on_stage("save")
    if layout == "graphnet":
        # A forward in eval mode is captured with the other options (`in_eval`), without a backward.
        del capture_options["loss"], capture_options["order"]
        return write_graphnet_trees(capture, place, output, program, target, capture_options, overwrite, as_json)
    stored = bp.load(bp.save(capture, place, data, allow=allow, overwrite=overwrite), allow=allow)
    answer = {"sample": str(output), "name": capture.name, "engine": capture.engine, **(stored.verdict or {})}
    answer["proof"] = has_proof(*proof_arguments(stored.verdict))
    if program.kind == "graphnet" or capture.notes:
        answer |= {"asks": with_grad(program, capture, requires_grad), "notes": capture.notes}
    lines = (json.dumps(answer),) if as_json else tuple(answer_lines(answer, capture))
    not_the_derivative = (answer.get("derivative") or {}).get("word") == NOT_THE_DERIVATIVE
    return CaptureReport(lines, 1 if answer["verdict"] in REFUTED or not_the_derivative else 0)


def keep_what_is_traced() -> None:
    """Let Python's collector look less often at the many objects that a trace makes, because they are kept."""
    gc.set_threshold(100_000, 20, 50)


# ---- A dict or a list of factories: a sample of each


def capture_several(
    target: str,
    several: Mapping[str, Any],
    output: Path,
    options: Mapping[str, Any],
    show_status: Callable[[str], None],
) -> CaptureReport:
    """Capture each of several factories, or of several models by their names (`several`, by key), to a sample in
    `output` that has the name of its key, and print a line for each as it is done. One that fails is named, and the
    others go on. `show_status` sets the line of progress."""
    if options["name"]:
        raise UsageError(f"{target} has {len(several)} programs, each named by its key: leave --name out")
    places = places_of_keys(target, several, output)
    trees = options["layout"] == "graphnet"
    for place in () if trees else places.values():
        check_place(place, options["overwrite"], CAPTURE)
    failed, not_good = list[str](), list[str]()
    for number, (key, value) in enumerate(several.items(), 1):
        place = output if trees else places[key]
        one = f"{target}[{key}]"

        # A default, so that each function has the text of its own turn.
        def on_stage(stage: str, at: str = f"{one} ({number} of {len(several)})") -> None:
            show_status(f"{at}: {STAGES[stage]}")

        row: dict[str, Any]
        try:
            report = capture_one_of_several(one, value, place, {**options, "name": places[key].name}, on_stage)
            row = json.loads(report.lines[0])
            not_good += [key] if report.code else []
        except (Exception, SystemExit) as error:  # whatever a factory raises, the others are captured
            row = {"sample": str(place), "name": key, "verdict": "failed", "detail": where_it_failed(error)}
            failed.append(key)
        gc.collect()  # its model and its tape, before the next
        echo(json.dumps(row) if options["as_json"] else line_of_one(place, row), lines=True)
    done = len(several) - len(failed)
    told = [f"{done} of {len(several)} captured, in {output}"]
    told += [f"{what}: {', '.join(keys)}" for what, keys in (("failed", failed), ("not good", not_good)) if keys]
    lines = () if options["as_json"] else ("; ".join(told),)
    return CaptureReport(lines, 1 if failed or not_good else 0)


def capture_one_of_several(
    one: str, value: Any, place: Path, options: Mapping[str, Any], on_stage: Callable[[str], Any]
) -> CaptureReport:
    """Capture an item of a dict or list, a factory or the name of a model, to a sample; its report is a line of JSON.
    `one` is the text that names the item, `FILE:DICT[KEY]`."""
    from backprint.values.settings import preserving_random_states

    text, factory = (value, None) if isinstance(value, str) else (one, factory_of(one, value))
    with preserving_random_states():  # each draws what it draws alone, whatever those before it drew
        return capture_and_save(text, place, place, {**options, "as_json": True}, on_stage, factory)


def places_of_keys(target: str, several: Mapping[str, Any], output: Path) -> dict[str, Path]:
    """Return the folder of each key's sample; refuse keys of which two would share a folder, or one would have none."""
    places: dict[str, Path] = {}
    for key in several:
        place = output / re.sub(r"[^\w.+=,-]", "_", key)
        if place.name.strip(".") == "" or place in places.values():
            raise UsageError(f"{target}: the key {key!r:.80} is no name of a folder of its own: rename it")
        places[key] = place
    return places


def where_it_failed(error: BaseException) -> str:
    """Return an error in a line, with the line of the user's program that raised it; a defect of ours with its
    traceback."""
    text = describe_error(error)
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [f"{os.path.basename(code.co_filename)}:{line}" for code, line in frames if is_of_user(code)]
    return f"{text} (at {own[-1]})" if own and not isinstance(error, BackprintError) and not is_defect(error) else text


def line_of_one(place: Path, row: Mapping[str, Any]) -> str:
    """Return what became of one of several: its folder, its verdict, and why that is not good."""
    # A saved sample has a whole stored verdict, with its judge; one that failed, and a tree, the word alone.
    word = verdict_text(row) if "judge" in row else row["verdict"]
    reasons = [row["detail"]] if row["verdict"] in REFUTED else reasons_of_derivative(row.get("derivative"))
    return f"{place}: {'; '.join(filter(None, (word, nonfinite_of(row), *reasons)))}"


def capture_and_save_world(
    target: str, output: Path, options: Mapping[str, Any], on_stage: Callable[[str], Any]
) -> CaptureReport:
    """Capture all ranks of a step, prove them, and save them to one folder; refuse options of one process."""
    import backprint as bp
    from backprint.graph.capture_options import DEFAULTS

    if options["layout"] != "backprint":
        raise UsageError("--world writes a folder with a sample of each rank: leave --layout out")
    if options["device"] or options["trust"]:
        raise UsageError("--world calls a factory in each rank: leave --device and --trust out")
    on_stage("capture")
    keep_what_is_traced()
    # DEFAULTS has the options of `bp.capture`; the command's others are for writing and printing.
    capture_options = {key: options[key] for key in DEFAULTS if key in options and key not in ("world", "ranks")}
    capture_options |= {key: tuple(options[key]) for key in ("allow", "meant", "decompose")}
    capture_options |= {"requires_grad": requires_grad_of(options["requires_grad"]), "order": int(options["order"])}
    world = bp.capture(target, world=options["world"], ranks=options["ranks"] or None, **capture_options)
    on_stage("save")
    verdicts = world.verify()
    world.save(output, options["data"], overwrite=options["overwrite"])
    words = [verdict.verdict for verdict in verdicts]
    if options["as_json"]:
        lines: tuple[str, ...] = (json.dumps({"world": str(output), "ranks": world.size, "verdicts": words}),)
    else:
        lines = (
            f"{output}: {world!r}",
            *(f"{verdict.name}: {verdict.verdict} {verdict.detail}" for verdict in verdicts),
        )
    derivatives = {verdict.derivative.word for verdict in verdicts if verdict.derivative is not None}
    return CaptureReport(lines, 1 if REFUTED & {*words} or NOT_THE_DERIVATIVE in derivatives else 0)


def answer_lines(answer: dict[str, Any], capture: Any) -> Iterator[str]:
    """Yield an answer as lines of text: what `--json` prints of a sample, and what the Capture has besides."""
    for pair in capture.pairs:
        backward = f"{len(pair.backward.steps)} steps backward" if pair.backward else "no backward"
        name = capture.name if len(capture.pairs) == 1 else f"{capture.name} {pair.name}"
        steps = f"{len(pair.forward.steps)} steps forward, {backward}, {len(pair.saved)} values saved"
        yield f"{answer['sample']}: {name}, {steps}"
    yield f"engine: {capture.engine}"
    for text in capture.why:
        yield why_text(text)
    for text in capture.breaks:
        yield f"break: {text}"
    if nonfinite := nonfinite_of(answer):
        yield nonfinite
    yield f"verdict: {verdict_text(answer)}" + (f" ({answer['detail']})" if answer["detail"] else "")
    for reason in reasons_of_derivative(answer.get("derivative")):
        yield f"derivative: {reason}"
    for text in guard_texts(capture.guards):
        yield f"guard: {text}"
    for text in answer.get("notes", ()):
        yield f"note: {text}"


def write_graphnet_trees(
    capture: Any,
    place: Path,
    output: Path,
    program: Any,
    target: str,
    options: dict[str, Any],
    overwrite: bool,
    as_json: bool,
) -> CaptureReport:
    """Write the sample of a Capture into GraphNet's trees below `place`, unless its verdict is wrong or failed.
    `program` is the Target that was read, and `options` are those of `capture_target` for eval mode."""
    import backprint as bp
    from backprint.tools.export.saving import write_layout

    verdict = bp.verify(capture)[-1]  # of several, the last is of the whole Capture
    folders: dict[str, Any] = {}
    if verdict.verdict not in REFUTED:
        source = Path(target) if program.kind == "graphnet" else None
        keywords = dict(evaluation=in_eval(program, options), overwrite=overwrite, allow=options["allow"])
        folders = write_layout(capture, place, capture.name, source, **keywords)
    paths_in_trees = {tree: os.fspath(folder.relative_to(place / tree)) for tree, folder in folders.items()}
    final_places = {tree: str(output / tree / path) for tree, path in paths_in_trees.items()}
    answer = {"name": capture.name, "engine": capture.engine, "verdict": verdict.verdict, "detail": verdict.detail}
    if as_json:
        lines = [json.dumps({**answer, "trees": final_places})]
    else:
        lines = [f"{capture.name}: {verdict.verdict} {verdict.detail}".rstrip()]
        lines += [f"{tree:14} {folder}" for tree, folder in final_places.items()]
    return CaptureReport(tuple(lines), 0 if folders else 1, tuple(paths_in_trees.items()))


def in_eval(program: Any, options: dict[str, Any]) -> Any:
    """Return the Capture in eval mode of the program of a factory, a Target; as it is, if that is no module. None for
    the Target of a sample, which has no program with modes."""
    from dataclasses import replace

    import torch

    from backprint.tools.target import capture_target

    if program.kind != "factory":
        return None
    mode = "eval" if isinstance(program.model, torch.nn.Module) else None
    return capture_target(replace(program, mode=mode), **options)


# ---- A step of a training script


@command("record", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@option(OUTPUT, "-o", "--output", default="recorded", show_default=True, type=PATH, help="Where samples go.")
@option(WHAT, "--steps", default="1:2", show_default=True, metavar="A:B", help="Steps from A to before B, from 0 on.")
@choice(OUTPUT, "data", "How the step's input values are kept; only exact ones are sure to run again.", "exact")
@OVERWRITE
@option(WHAT, "-m", "module", is_flag=True, help="SCRIPT is a module's name, as for `python -m`.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def record_command(
    output: Path, steps: str, data: DataWord, overwrite: bool, module: bool, script: str, arguments: tuple[str, ...]
) -> None:
    """Run a training script unmodified, and keep its steps: forward, backward and optimizer, linked.

    `record -m pkg.train` runs a module as `python -m pkg.train` does. Options come before SCRIPT; everything after it
    belongs to the script, as do its output, results and exit code. Messages of Backprint go to standard error, also
    about a step that it could not keep. A step ends with an optimizer's step, or, if a script has no optimizer, with a
    backward.

    Under a launcher (`torchrun --nproc-per-node 2 -m backprint record train.py`) every process keeps its rank's sample,
    rank_0 and so on, in the folder of the step.
    """
    from backprint.cli import Ended
    from backprint.errors import CaptureError
    from backprint.sample.place import check_place
    from backprint.tools.record.script import check_steps, script_at, script_of_module, show_without_own_frames

    if script.startswith("-"):  # click leaves it to the script
        raise click.NoSuchOption(script)
    first, last = read_steps(steps)
    check_steps((first, last))
    program = script_of_module(script) if module else script_at(script)
    output = output.absolute()
    places = {number: output if last - first == 1 else output / f"step_{number}" for number in range(first, last)}
    launcher_rank = rank_of_launcher()
    for place in places.values():
        check_place(place_of_rank(place, launcher_rank), overwrite)
    if launcher_rank is not None:
        # Before PyTorch and the script register their exit handlers: Python calls the first one last.
        atexit.register(wait_for_gloo)
    import backprint as bp

    def keep(number: int, capture: Any) -> None:
        """Save the Capture of a step; remove it again, and raise, if its verdict is wrong or failed."""
        rank = launcher_rank if capture.rank is None else capture.rank.number  # its step may have no collective
        place = bp.save(capture, place_of_rank(places[number], rank), data, overwrite=overwrite)
        verdict = bp.load(place).verdict or {}
        if (word := verdict.get("verdict")) in ("wrong", "failed"):
            shutil.rmtree(place)
            raise CaptureError(f"the verdict of its sample was {word}")
        where = os.path.relpath(place, start)
        facts = f"{len(capture.pairs)} pairs, verdict {verdict_text(verdict)}, in {where}"
        print_line(f"step {number}: {'; '.join(filter(None, (nonfinite_of(verdict), facts)))}")

    start = os.getcwd()  # the script may change the directory
    try:
        bp.record(script, arguments, (first, last), keep, module=module, tell=print_line, stay=True)
    except SystemExit as leaving:
        raise Ended(leaving) from None
    except BaseException as error:  # the script's own: the process ends with it
        show_without_own_frames(error, program.path)
        raise Ended(error) from None


def rank_of_launcher() -> int | None:
    """Return the rank that a launcher has given this process; None if it has started no other."""
    rank, size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    return int(rank) if rank.isdigit() and size.isdigit() and int(size) > 1 else None


def wait_for_gloo() -> None:
    """Let Gloo's threads release the tensors of the last collectives, for which they need Python.

    One that asks for it while Python ends is ended, and PyTorch aborts the process, with or without us: its issue
    190489. Nothing tells when a thread is done; it needs some milliseconds.
    """
    time.sleep(0.2)


def place_of_rank(place: Path, rank: int | None) -> Path:
    """Return where a sample goes: the folder of its step; of one rank of several, a folder of the rank's in it."""
    return place if rank is None else place / f"rank_{rank}"


def read_steps(text: str) -> tuple[int, int]:
    """Return `A:B` as two numbers, `A` alone as that step, A:A+1; UsageError for another text."""
    from backprint.errors import UsageError

    first, colon, last = text.partition(":")
    if not first.isdigit() or (colon and not last.isdigit()):
        raise UsageError(f"--steps {text}: write A:B, as 1:2 for the second step, or A")
    return int(first), int(last) if colon else int(first) + 1


def print_line(text: str) -> None:
    """Write a line to standard error (file 2), whatever the script has put in the place of `sys.stderr`."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # it may be closed, or gone
        sys.stderr.flush()
    with contextlib.suppress(OSError):
        os.write(2, f"backprint: {printable(text, lines=True)}\n".encode(errors="replace"))
