"""Engine `dynamo`: trace each graph that Dynamo makes of the program to a Pair, and link the Pairs."""

from __future__ import annotations

import contextvars
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from backprint.errors import CaptureError, DataDependentError
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Link
from backprint.settings import quiet_random
from backprint.tracing import frames
from backprint.tracing.around import no_seeding
from backprint.tracing.chance import same_chance
from backprint.tracing.dynamo import frontend
from backprint.tracing.dynamo.book import TensorBook
from backprint.tracing.dynamo.frontend import DynamoRun
from backprint.tracing.dynamo.pairs import trace_all
from backprint.tracing.facts import SEED
from backprint.tracing.made import Made, Options
from backprint.tracing.program import CalledProgram, ScoutedProgram
from backprint.tracing.reach import compiled_parts, module_paths
from backprint.tracing.running import check_loss, own_arguments
from backprint.tracing.scout import Findings, scout
from backprint.tracing.stage import staged
from backprint.tracing.unseen import flag_guards


def by_dynamo(program: CalledProgram, options: Options) -> Made:
    """Capture a program by engine `dynamo`, with graph breaks and static shapes."""
    whole, seen = scout(program)
    check_program(whole, seen)
    paths = module_paths(program.target())
    record, ready = run_graphs(whole, paths)
    if not record.ran:
        raise CaptureError(f"Dynamo makes no graph of {program.title}: no tensor operator runs in it")
    book = TensorBook(whole, paths, {id(tensor): name for name, tensor in ready.items()})
    book.enter_reads([read for read in record.reads if read.after == 0])
    for count, ran in enumerate(record.ran, 1):
        book.enter_run(ran)
        book.enter_reads([read for read in record.reads if read.after == count])
    outputs, tree, leaves = book.close(record)
    book.complete(ready)
    traced = trace_all(book, options)
    guards = tuple(guard for each in traced for guard in each.guards)
    read = next((guard for guard in guards if guard.kind in ("value", "shape")), None)
    if options.specialize is False and read is not None:
        raise DataDependentError(f"the program reads {read.text}{frames.place(read.source)}, and specialize=False")
    return Made(
        program=whole,
        pairs=tuple(each.pair for each in traced),
        outputs=tuple(name for name, _ in outputs),
        differentiable=tuple(name for name, asking in outputs if asking),
        tree=tree,
        leaves=leaves,
        constants={name: tensor for each in traced for name, tensor in each.constants.items()},
        guards=(*guards, *flag_guards(program, seen.flags)),
        opaque=tuple(dict.fromkeys(seen.opaque)),
        outcome=seen.outcome,
        links=needed_links(book, outputs),
        breaks=tuple(dict.fromkeys(record.breaks)),
        parts=tuple(each.part for each in traced),
    )


def check_program(program: ScoutedProgram, seen: Findings) -> None:
    """Refuse by name what Dynamo's graphs would lose."""
    for edge in seen.opaque:
        if edge.kind == "hook" and edge.text == "a tensor hook":
            where = f" at {edge.source.file}:{edge.source.line}: {edge.source.code!r}" if edge.source else ""
            raise CaptureError(f"engine 'dynamo' would lose a tensor hook that the program registers{where}")
    for name, source in seen.unseen[:1]:
        where = f" at {source.file}:{source.line} in {source.function}: {source.code!r}" if source else ""
        raise CaptureError(
            f"Tensor.{name} reads values{where}, which engine 'dynamo' has no step to check: read them with "
            ".item(), or use an engine that sees what runs"
        )
    for name in compiled_parts(program.target(), program.title):
        raise CaptureError(f"{name} is compiled already: capture a program that is not")


def run_graphs(program: ScoutedProgram, paths: Mapping[int, str]) -> tuple[DynamoRun, dict[str, Tensor]]:
    """Run the program's own forward under Dynamo, on its own tensors; return the run and these tensors by name."""
    if outside := sorted(set(program.outside) & program.shields):
        raise CaptureError(
            f"{outside[0]} comes from outside and is changed or hooked, which engine 'dynamo' does not support"
        )
    with quiet_random(), staged(program) as stage:
        torch.manual_seed(SEED)
        args, kwargs = own_arguments(program, stage.ready)
        with no_seeding(program), same_chance(program.chance, program.target.picture):
            run = contextvars.copy_context().run
            record = run(frontend.run_under_dynamo, program.target(), args, kwargs, program.loss, paths)
        put = sorted({**stage.made(), **stage.left()})
        ready = {**stage.ready, **program.outside}
    if put:
        raise CaptureError(
            f"{program.title} replaces {put[0]} by another tensor, which engine 'dynamo' does not support: "
            "change it in place"
        )
    if program.loss is not None:
        check_loss(record.loss)
    return record, ready


def needed_links(book: TensorBook, outputs: Sequence[tuple[str, bool]]) -> tuple[Link, ...]:
    """Return the links; none if one Pair's outputs are the program's results."""
    plain = [Link(0, PortKey("output", name), None, name) for name, _ in outputs]
    return () if len(book.entries) == 1 and book.links == plain else tuple(book.links)
