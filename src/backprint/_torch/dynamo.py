"""Dynamo: running a function under it, removing the traces that a run leaves in it, and the compilation or tracing that
runs in this thread.

To import a name of this module loads Dynamo, so other rooms do that where they need it. A *tracker* is a
`convert_frame.Tracker`, which has weak references to the code objects that Dynamo has seen (`seen`) and their ids. The
*execution strategy* of a code object says whether Dynamo compiles its frames or skips them.

`NAMES` is the table of the private names that other rooms import from here, and `NAMES["x"].value()` is torch's object
that they import as `x`. `@uses` says which other private names a function needs, and `needed_by` for which commands: a
call raises PrivateApiError if this torch lacks one (`private`). Each function under *Probes* tries what this file takes
a private name to do, and returns whether it does that on this torch.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import logging
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from backprint._torch import private
from backprint._torch.private import Private, Probe, look_up, probes_of, takes, uses

PRIVATE_REGION = "isolate_recompiles"
"""The option of `optimize` that gives what it compiles a region of its own in Dynamo's caches."""


# ---- Not loading it

DYNAMO = "torch._dynamo"


class Unloaded(types.ModuleType):
    """Stands for Dynamo in `sys.modules` where it may be asked only not to trace a function, by `disable`: before
    Dynamo is loaded nothing is traced, so the function is returned as it is. Reading any other attribute loads Dynamo.

    `functions` has the functions that were returned so.
    """

    def __init__(self) -> None:
        super().__init__(DYNAMO)
        self.functions: list[Any] = []

    def disable(self, fn: Any, recursive: bool = True, *, wrapping: bool = True) -> Any:
        """Return a function as it is, in the place of Dynamo's version that it does not trace."""
        self.functions.append(fn)
        return fn

    def __getattr__(self, name: str) -> Any:
        # Tools such as `inspect` ask all modules for such names. Python's import of a submodule asks for `__path__`.
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        if sys.modules.get(DYNAMO) is self:
            del sys.modules[DYNAMO]
        return getattr(importlib.import_module(DYNAMO), name)


def is_loaded() -> bool:
    """Whether Dynamo is loaded. It takes seconds and 150 MiB, and most programs need none of it."""
    return not isinstance(sys.modules.get(DYNAMO), Unloaded | None)


def load() -> None:
    """Load Dynamo."""
    importlib.import_module(DYNAMO)


@contextlib.contextmanager
def not_loading() -> Iterator[None]:
    """Do not load Dynamo in this block where a kernel of torch's in Python asks it not to be traced, at its first
    call."""
    if DYNAMO in sys.modules:
        yield
        return
    stand_in = sys.modules[DYNAMO] = Unloaded()
    try:
        yield
    finally:
        if sys.modules.get(DYNAMO) is stand_in:
            del sys.modules[DYNAMO]
        # The stand-in has returned each function as it is. Torch keeps this answer on the function, and must ask the
        # real Dynamo again once it is loaded.
        for function in stand_in.functions:
            if hasattr(function, DISABLED):
                delattr(function, DISABLED)


DISABLED = "__dynamo_disable"
"""The attribute in which a function of torch keeps the version that Dynamo made of it at its first call."""


@uses("torch._dynamo.OptimizedModule", needed_by=(private.CAPTURE,))
def is_optimized(module: Any) -> bool:
    """Whether `torch.compile` has made a module from another one."""
    return is_loaded() and isinstance(module, torch._dynamo.OptimizedModule)


def eager_stance() -> contextlib.AbstractContextManager[Any]:
    """Return a context in which compiled functions and modules run as eager code."""
    return torch.compiler.set_stance("force_eager") if is_loaded() else contextlib.nullcontext()


@uses("torch._dynamo.eval_frame._optimize", needed_by=(private.DYNAMO,))
def private_region() -> dict[str, Any]:
    """Return the options of `optimize` for a private region of Dynamo's caches; none where torch has no such regions.

    Torch 2.11 has none: only `forget` separates our entries from the user's there.
    """
    from torch._dynamo import eval_frame

    return {PRIVATE_REGION: True} if takes(eval_frame._optimize, (PRIVATE_REGION,)) else {}


# ---- Leaving Dynamo as it was


@contextlib.contextmanager
def without_logs() -> Iterator[None]:
    """Keep Dynamo from logging."""
    log = logging.getLogger("torch._dynamo")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


@uses(
    "torch._dynamo.convert_frame.FRAME_COMPILE_COUNTER",
    "torch._dynamo.convert_frame.FRAME_COUNTER",
    "torch._dynamo.pgo._CODE_STATE",
    "torch._dynamo.utils.counters",
    "torch._dynamo.utils.graph_break_reasons",
    needed_by=(private.DYNAMO,),
)
@contextlib.contextmanager
def counts_restored() -> Iterator[None]:
    """At the end of this block, restore Dynamo's counters, its list of graph breaks, and the sizes that it has seen, by
    which it decides later which sizes are dynamic."""
    from torch._dynamo import convert_frame, pgo
    from torch._dynamo.utils import counters, graph_break_reasons

    counted, reasons = copy.deepcopy(counters), list(graph_break_reasons)
    frames, compilations = convert_frame.FRAME_COUNTER, convert_frame.FRAME_COMPILE_COUNTER.copy()
    sizes = copy.deepcopy(pgo._CODE_STATE)
    try:
        yield
    finally:
        counters.clear()
        counters.update(counted)
        graph_break_reasons[:] = reasons
        convert_frame.FRAME_COUNTER = frames
        convert_frame.FRAME_COMPILE_COUNTER.clear()
        convert_frame.FRAME_COMPILE_COUNTER.update(compilations)
        pgo._CODE_STATE = sizes


@uses(
    "torch._dynamo.convert_frame.input_codes", "torch._dynamo.convert_frame.output_codes", needed_by=(private.DYNAMO,)
)
def known_codes() -> list[tuple[Any, set[int]]]:
    """Return Dynamo's two trackers of code objects, for code that it read and for code that it wrote, each with the ids
    of the code objects that it has now: what `forget` leaves in them."""
    from torch._dynamo import convert_frame

    return [(tracker, set(tracker.seen_ids)) for tracker in (convert_frame.input_codes, convert_frame.output_codes)]


@uses("torch._dynamo.convert_frame.register_bytecode_hook", needed_by=(private.DYNAMO,))
@contextlib.contextmanager
def bytecode_noted(note: Callable[[Any, Any], None]) -> Iterator[None]:
    """Call `note(code, compiled code)` for each piece of code that Dynamo compiles."""
    from torch._dynamo import convert_frame

    hook = convert_frame.register_bytecode_hook(note)
    try:
        yield
    finally:
        hook.remove()


@uses(
    "torch._dynamo.guards.DeletedGuardManagerWrapper",
    "torch._dynamo.utils.CleanupManager.instance",
    "torch._C._dynamo.eval_frame._FrameAction",
    "torch._C._dynamo.eval_frame._FrameExecStrategy",
    "torch._C._dynamo.eval_frame._debug_get_cache_entry_list",
    "torch._C._dynamo.eval_frame.reset_code",
    "torch._C._dynamo.eval_frame.set_code_exec_strategy",
    needed_by=(private.DYNAMO,),
)
def forget(backend: Any, code_pairs: list[tuple[Any, Any]], known: list[tuple[Any, set[int]]]) -> None:
    """Remove what a run under `backend` has left in Dynamo: the cache entries of the code that was compiled, the names
    in its globals, marks on code that was skipped, and code that Dynamo's trackers did not have before.

    `code_pairs` has each compiled piece of code with the code that Dynamo made of it, and `known` is `known_codes()`
    from before the run.
    """
    for code, out in code_pairs:
        _remove_entries(code, backend)
        _remove_globals(out)
    inputs, ids_before = known[0]  # the tracker of code that Dynamo read
    _unmark_skipped(inputs, ids_before | {id(code) for code, _ in code_pairs})
    # Last, because `_unmark_skipped` reads the code of the run in its tracker: each tracker as it was before the run.
    for tracker, ids_before in known:
        tracker.seen[:] = [
            reference for reference in tracker.seen if (code := reference()) is not None and id(code) in ids_before
        ]
        tracker.seen_ids &= ids_before


def _remove_entries(code: Any, backend: Any) -> None:
    """Remove the cache entries of a piece of code that were compiled with a backend."""
    from torch._C._dynamo import eval_frame
    from torch._dynamo.guards import DeletedGuardManagerWrapper

    entries = eval_frame._debug_get_cache_entry_list(code)
    if not private_region() and all(entry.backend is backend for entry in entries):
        # Without regions, an invalidated entry would stay in the list, and the next capture would fail at it.
        eval_frame.reset_code(code)
        return
    for entry in entries:
        if entry.backend is backend:
            gone = DeletedGuardManagerWrapper("Backprint's capture is over")  # the guards that it has from now on
            entry.guard_manager.extra_state.invalidate(entry, gone)


def _remove_globals(out: Any) -> None:
    """Remove the names that Dynamo has put into the globals of a compiled function. `out` is the code that it made."""
    from torch._dynamo.utils import CleanupManager

    for cleanup in CleanupManager.instance.get(out, ()):
        cleanup()
    if out in CleanupManager.instance:
        CleanupManager.instance[out] = []  # so that they are not called again when the code is freed


def _unmark_skipped(inputs: Any, kept: set[int]) -> None:
    """Let Dynamo read code again that it may have marked to be skipped from now on, for the user's own torch.compile
    too: all that its tracker `inputs` has, except code objects whose ids are in `kept`."""
    from torch._C._dynamo import eval_frame

    for reference in inputs.seen:
        code = reference()
        if code is not None and id(code) not in kept:
            plain = eval_frame._FrameExecStrategy(eval_frame._FrameAction.DEFAULT, eval_frame._FrameAction.DEFAULT)
            eval_frame.set_code_exec_strategy(code, plain)


# ---- Compiled code that a script calls


@uses("torch._dynamo.eval_frame._callback_from_stance", needed_by=(private.RECORD,))
def note_compiled_calls(note: Callable[[], None]) -> Callable[[], None]:
    """Call `note()` from now on whenever code that `torch.compile` has made is called; return a function that ends
    this."""
    from torch._dynamo import eval_frame

    plain = eval_frame._callback_from_stance  # every call of compiled code asks it, with the callback of its compiler

    def noticing(callback: Any) -> Any:
        if callback is not None:  # None where Dynamo is switched off
            note()
        return plain(callback)

    def undo() -> None:
        eval_frame._callback_from_stance = plain

    eval_frame._callback_from_stance = noticing
    return undo


CONTEXT_OF_CHECKPOINT = "_checkpoint_context_fn"
"""The key under which the graph of a checkpoint's body has the `context_fn` of its call."""

ERRORS_OF_DYNAMO = "torch._dynamo.exc"
"""The module of Dynamo's errors."""

# ---- Probes


def run_under(backend: Any) -> None:
    """Run a function under Dynamo, and forget it again."""
    code_pairs: list[tuple[Any, Any]] = []
    known = known_codes()

    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    with without_logs(), counts_restored(), bytecode_noted(lambda code, out: code_pairs.append((code, out))):
        compiled = NAMES["optimize"].value()(backend, dynamic=False, **private_region())(doubled)
        compiled(torch.ones(1))
        forget(backend, code_pairs, known)
    if not code_pairs:
        raise LookupError("no code was compiled")


def functions_run_and_are_forgotten() -> bool:
    """Whether Dynamo compiles a function again after `forget`, and says while it does which compilation runs."""
    runs: list[Any] = []

    def backend(module: Any, examples: Any) -> Any:
        runs.append((NAMES["CompileContext"].value().current_compile_id(), NAMES["TracingContext"].value().try_get()))
        return module.forward

    run_under(backend)
    run_under(backend)  # each run has the same code: with an entry left in the cache, the backend is not called
    return len(runs) == 2 and None not in runs[0] and NAMES["CompileContext"].value().try_get() is None


def compiled_calls_are_noted() -> bool:
    """Whether a call of compiled code is noted, also where it runs in eager."""
    noted: list[bool] = []
    undo = note_compiled_calls(lambda: noted.append(True))
    try:
        with torch.compiler.set_stance("force_eager"):  # nothing is compiled
            torch.compile(lambda x: x, backend="eager")(1)
    finally:
        undo()
    return bool(noted)


def settings_are_patched() -> bool:
    config = NAMES["config"].value()
    with config.patch(suppress_errors=True):
        return bool(config.suppress_errors)


def current_frame_is_known() -> bool:
    return callable(NAMES["InstructionTranslator"].value().current_tx)


def tracings_are_known() -> bool:
    context = NAMES["TracingContext"].value()
    return context.try_get() is None and callable(context.get_traced_code)


def options_of_checkpoints_are_divided() -> bool:
    own, checkpointed = NAMES["TagActivationCheckpoint"].value().divide_kwargs({"preserve_rng_state": True, "x": 1})
    return own == {"preserve_rng_state": True} and checkpointed == {"x": 1}


def names_are_numbered() -> bool:
    return NAMES["unique_id"].value()("backprint").rpartition("_")[2].isdigit()


# ---- Names

NAMES = {
    "optimize": Private(
        "torch._dynamo.optimize",
        "Return a decorator that runs a function under Dynamo, with a backend for its graphs.",
        (private.DYNAMO,),
        passed=("dynamic",),
    ),
    "config": Private("torch._dynamo.config", "Dynamo's settings.", (private.DYNAMO,), holds=settings_are_patched),
    "lookup_backend": Private("torch._dynamo.lookup_backend", "Return the backend that has a name.", (private.BENCH,)),
    "SkipFrame": Private(
        "torch._dynamo.exc.SkipFrame",
        "Raised by a backend so that Dynamo runs the frame without it.",
        (private.DYNAMO,),
    ),
    "Unsupported": Private(
        "torch._dynamo.exc.Unsupported", "Raised if Dynamo cannot trace a program as one graph.", (private.SAMPLES,)
    ),
    "InstructionTranslator": Private(
        "torch._dynamo.symbolic_convert.InstructionTranslator",
        "What traces a frame; `current_tx()` is the one that traces now.",
        (private.DYNAMO,),
        holds=current_frame_is_known,
    ),
    "CompileContext": Private(
        "torch._guards.CompileContext", "The compilation that runs in this thread, and its number.", (private.DYNAMO,)
    ),
    "TracingContext": Private(
        "torch._guards.TracingContext",
        "The tracing that runs in this thread, and the code that it traces.",
        (private.CAPTURE,),
        holds=tracings_are_known,
    ),
    "tracing": Private("torch._guards.tracing", "Set the TracingContext for a block.", (private.DYNAMO,)),
    "TagActivationCheckpoint": Private(
        "torch._higher_order_ops.wrap.TagActivationCheckpoint",
        "The class of the operator that a checkpoint is in Dynamo's graphs.",
        (private.DYNAMO,),
        holds=options_of_checkpoints_are_divided,
    ),
    "tag_activation_checkpoint": Private(
        "torch._higher_order_ops.wrap.tag_activation_checkpoint",
        "The operator that a checkpoint is in Dynamo's graphs.",
        (private.DYNAMO,),
    ),
    "unique_id": Private(
        "torch._dynamo.bytecode_transformation.unique_id",
        "Return a name that ends in the number of Dynamo's next name.",
        (private.DYNAMO,),
        holds=names_are_numbered,
    ),
    "graph_break_reasons": Private(
        "torch._dynamo.utils.graph_break_reasons",
        "The list of the graph breaks so far: reason, and the user's stack.",
        (private.DYNAMO,),
    ),
}
"""The private names that other rooms use, by the name under which they import each."""


def __getattr__(name: str) -> Any:
    return look_up(name, NAMES, globals())


PROBES = probes_of(
    __name__,
    NAMES,
    Probe("torch._dynamo.optimize and its caches", functions_run_and_are_forgotten, (private.DYNAMO,)),
    Probe("torch._dynamo.eval_frame._callback_from_stance", compiled_calls_are_noted, (private.RECORD,)),
)
