"""The kernels that compilers make of graphs, for Python and the command line.

This module is the face: `extract`, `dedup` and `lower`.

- `nouns`: targets, kernels, their calls. `prepare`: a graph as a compiler takes it for a target. `compilers`,
  `inductor`: the code that a compiler writes. `extraction`: kernels of a Pair and of a Capture.
- `read`: kernels in a wrapper's text. `ranges`: the values of their arguments. `normal`: a kernel without its names,
  and its hashes.
- `build_triton`: PTX and cubin. `winners`: the fastest configuration on a GPU that is here. `alone`, `alone_file`: one
  Triton kernel as one file. `save`, `rows`: kernels in folders, and `kernels.jsonl`. `work`: the verb of a run.
- `checking/`: kernels run and compared with eager.
- `lowered`, `lowered_check`, `lowered_run`, `lowered_build`: what `lower` returns. `loops/`: programs that walk time,
  as one kernel a direction. `fused/`: all other programs, in Inductor's kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backprint.common.words import DirectionWord, SumsWord
from backprint.errors import UsageError
from backprint.graph.nouns import Capture
from backprint.tools.jobs.task import Task
from backprint.tools.jobs.verbs import Verb
from backprint.tools.kernels.nouns import CaptureKernels, Kernel

if TYPE_CHECKING:
    from backprint.tools.kernels.lowered import Lowered


def extract(
    program: Any,
    *args: Any,
    target: str = "cpu",
    direction: DirectionWord = "both",
    threads: int = 1,
    compiler: str = "inductor",
    **kwargs: Any,
) -> CaptureKernels:
    """Return the kernels that a compiler makes of a Capture, or of a module or a function that is captured first.

    `target` is `"cpu"` (this machine's vector instructions), `"cpu:avx2"`, `"cpu:avx512"`, `"cpu:neon"`, or a GPU's
    compute capability, `"cuda:80"`, `"cuda:90"`, …: that GPU need not be there. `direction` is `"forward"`,
    `"backward"` or `"both"`; `threads` are those that C++ is written for. `compiler` is `"inductor"`, Inductor with
    other settings of `torch._inductor.config`, `"inductor:combo_kernels=True"`, or the place of a function of yours,
    `"file.py:function"`. Other arguments are those of `bp.capture`.
    Nothing is compiled and no kernel runs, until `.check()`, or `.ptx()` of a kernel, asks for it.
    """
    from backprint.api import capture
    from backprint.tools.kernels.extraction import extract_kernels

    captured = program if isinstance(program, Capture) else capture(program, *args, **kwargs)
    if captured is program and (args or kwargs):
        raise UsageError("a Capture takes no further arguments: pass the module or function to capture another")
    return extract_kernels(captured, target, direction, threads, compiler)


def dedup(kernels: Iterable[Kernel], *, ignore_sizes: bool = False) -> dict[str, list[Kernel]]:
    """Return hash -> the kernels that are the same program, whatever their names are.

    `kernels` is what `bp.kernels.extract` returned, or several of these in a list. With `ignore_sizes`, programs that
    differ in sizes and constants alone are one.
    """
    from backprint.tools.kernels.rows import group_by_hash

    if isinstance(kernels, Kernel | str) or not isinstance(kernels, Iterable):
        raise UsageError(f"dedup of {type(kernels).__name__}: pass a list of Kernels; bp.corpus.dedup is for samples")
    return group_by_hash(_kernels_in(kernels), ignore_sizes)


def lower(
    program: Capture | Callable[..., Any],
    inputs: Any = None,
    lengths: Sequence[int] | None = None,
    *,
    sums: SumsWord = "stages",
    name: str | None = None,
    target: str = "cuda:90",
) -> Lowered:
    """Lower a program to Triton kernels in a file that needs torch and triton alone.

    `bp.lower(function, make_inputs)`: `make_inputs(n)` returns the arguments for a number n, a tuple, a dict of
    keywords, or one tensor. If the function loops over n, over the first dimension of its inputs, it becomes one kernel
    a direction, for every shape of the state, which a step passes to the next, and up to 256 steps. It is captured at
    `lengths`, by default 6, 7, 8 and 256, and must be one loop at all of them; at all others up to 256 it runs, and
    must give what the loop gives. The kernels refuse other numbers of steps, because a program may do something else
    from a later step on: for 2000 steps pass `lengths=(6, 7, 8, 2000)`. They refuse sizes of the state, too, that the
    program branches on or computes with. What a loop cannot be is refused by name, with a RefusedError. `sums` is how
    gradients of parameters are added up over elements: `"stages"` (deterministic) or `"atomics"`. If the function does
    not loop, the kernels are Inductor's, for every n; it is captured at two `lengths`, by default 64 and 128, and
    Inductor chooses for the larger.

    `bp.lower(function, inputs)` with a tuple, a dict or a tensor, and `bp.lower(capture)`: the kernels are Inductor's,
    for the sizes of these inputs, or of the Capture. `target` is the GPU that Inductor writes for, which need not be
    there: the file runs on others too.

    `name` is that of the function in the file. `.source` is the file, `.module()` the program as a module that runs it,
    `.check()` compares it with eager, `.build()` compiles it, and `.explain()` says what is one kernel, and what not.
    """
    from backprint.tools.kernels.fused.lower import SIZES, lower_capture, lower_inputs, lower_sized
    from backprint.tools.kernels.loops.lower import LENGTHS, loops_over, lower_loop

    if isinstance(program, Capture):
        if inputs is not None:
            raise UsageError("a Capture takes no further inputs: pass its function or module to capture another")
        return lower_capture(program, name, target)
    if not callable(program) or inputs is None:
        raise UsageError("pass a function or a module and its inputs, or a function of a number that returns them")
    if not callable(inputs):
        return lower_inputs(program, inputs, name, target)
    two_lengths = sorted(set(lengths or LENGTHS))[:2]
    # it loops over n if it runs more operators at one of the two than at the other
    if loops_over(program, inputs, two_lengths):
        return lower_loop(program, inputs, lengths, sums, name)
    return lower_sized(program, inputs, lengths or SIZES, name, target)


def _kernels_in(items: Iterable[object]) -> Iterator[Kernel]:
    """Yield the kernels in iterables of them, however deeply one is in another; refuse anything else."""
    for item in items:
        if isinstance(item, Kernel):
            yield item
        elif isinstance(item, Iterable) and not isinstance(item, str | bytes):
            yield from _kernels_in(item)
        else:
            raise UsageError(f"dedup of kernels: found {type(item).__name__} {str(item)[:40]!r}, which is no Kernel")


# ------------------------------------------------------------------ the verb of a corpus run


def _extract_verb(task: Task, options: Mapping[str, Any], staging: Path) -> dict[str, Any]:
    """Write the kernels of a sample into `staging`; return the sample's row."""
    from backprint.tools.kernels.work import extract_sample

    return extract_sample(task, options, staging)


def _load_verb(options: Mapping[str, Any]) -> dict[str, str]:
    """Load what extracts kernels; return versions."""
    from backprint.tools.kernels.work import load_inductor

    return load_inductor(options)


def _check_verb(source: Path, options: Mapping[str, Any]) -> None:
    """Raise for options that cannot be right, before a run begins."""
    from backprint.tools.kernels.work import check_kernels

    check_kernels(source, options)


def _gather_verb(out: Path, options: Mapping[str, Any]) -> None:
    """Write the rows of all kernels of a run."""
    from backprint.tools.kernels.work import gather_kernels

    gather_kernels(out)


KERNELS: Mapping[str, Any] = {
    "targets": ["cpu"],
    "direction": "both",
    "threads": 1,
    "compiler": "inductor",
    "build": False,
    "check": False,
    "allow": [],
    "trust": False,
    "requires_grad": None,
}
"""The options of the verb, with their defaults."""

CORPUS_VERB = Verb(_extract_verb, _load_verb, KERNELS, keeps=True, check=_check_verb, finish=_gather_verb)
