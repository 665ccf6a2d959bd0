"""`torch.compile(model, backend="backprint")`: capture, prove and save every graph that is compiled.

PyTorch finds `backend` by the entry point `torch_dynamo_backends`; this module loads torch only when it is called. The
program continues with Dynamo's own graph, run by eager torch, or, if that would compute anything else, uncompiled: a
backend that raises LeaveUncompiled has Dynamo run the frame as it is.
"""

from __future__ import annotations

import os
import secrets
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backprint.errors import describe_error

if TYPE_CHECKING:
    from torch import fx

DIRECTORY = "BACKPRINT_DIR"
"""The environment variable that says where samples go."""

OPTIONS = ("dir", "data", "allow", "specialize", "partition", "dynamic")
"""What `torch.compile(..., options={...})` may say: the folder, and options of `save` and `capture`."""


def backend(
    module: fx.GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """Save a sample of a graph of Dynamo's, and return a function that runs the graph. Warn if it cannot be captured.
    `options` and `mode` are those of `torch.compile`; what they cannot say is refused."""
    settings = _checked_options(options or {}, mode)
    from backprint.trace.dynamo.backend import LeaveUncompiled, as_eager
    from backprint.trace.dynamo.graphs import function_of

    name = function_of(module.graph)
    try:
        LOG.append(keep(module, inputs, settings))
    except Exception as error:  # a program must not stop because a graph of it cannot be kept
        warn(f"backprint: the graph of {name} is not kept: {describe_error(error)}")
    try:
        return as_eager(module)
    except Exception as error:  # the graph does not compute what the program does
        warn(f"backprint: {name} runs uncompiled: {error}")
        raise error if isinstance(error, LeaveUncompiled) else LeaveUncompiled(str(error)) from error


LOG: list[Path] = []
"""The samples that this process has saved, in order."""


def _checked_options(options: Mapping[str, Any], mode: str | None) -> dict[str, Any]:
    """Return the options with their defaults, and the folder from the environment if none is given. Refuse unknown
    options by name, a mode, and a call without a folder."""
    from backprint.common.text import check_choice
    from backprint.errors import UsageError

    unknown = [key for key in options if key not in OPTIONS]
    if unknown:
        raise UsageError(f"backend 'backprint' has no option {unknown[0]!r}; it has {', '.join(OPTIONS)}")
    if mode is not None:
        raise UsageError(f"backend 'backprint' has no modes, so mode={mode!r} cannot be asked for")
    place = options.get("dir") or os.environ.get(DIRECTORY)
    if not place:
        raise UsageError(f"backend 'backprint' needs a folder: set {DIRECTORY}, or pass options={{'dir': ...}}")
    check_choice("data", options.get("data", "seed"))
    return {"data": "seed", "allow": (), **options, "dir": place}


def keep(module: fx.GraphModule, inputs: Sequence[Any], settings: Mapping[str, Any]) -> Path:
    """Capture one graph with recipes for its inputs, and save it in a folder of its own; return that."""
    from backprint.api import save
    from backprint.sample.inputs import with_recipes
    from backprint.trace.dynamo.backend import capture_graph, compile_name, outside_tracing

    name = compile_name(module)
    options = {key: settings[key] for key in ("specialize", "partition", "dynamic", "allow") if key in settings}
    capture = capture_graph(module, inputs, name, **options)
    # Processes share the folder: the number makes names unique, and a sample gets its name when it is complete.
    place = Path(settings["dir"]) / f"{name}-{os.getpid()}-{secrets.token_hex(4)}"
    with outside_tracing():  # Dynamo is compiling, and `save` runs the graph
        return Path(save(with_recipes(capture), place, settings["data"], allow=settings["allow"]))


def warn(text: str) -> None:
    """Print a warning once in a process."""
    if text in _SAID:
        return
    _SAID.add(text)
    try:
        warnings.warn(text, stacklevel=3)
    except UserWarning:  # warnings are errors in this program, and one of ours must not end it
        sys.stderr.write(f"{text}\n")


_SAID: set[str] = set()
