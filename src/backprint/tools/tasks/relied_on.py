"""What the process of a solution relies on, which a solution must not replace: clocks, comparisons, our own functions.

A solution works in the process that calls it for the judge. A replaced function is a CheatFound. The originals are kept
when this module is imported: import it before a solution.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import torch

from backprint.child.strangers import CompilerFailed
from backprint.errors import BackprintError


class CheatFound(BackprintError):
    """A solution does not compute in every call what it computed when it was checked; the message says how."""


TOLD: Mapping[str, type[Exception]] = {"raised": CompilerFailed, "cheat": CheatFound}
"""The errors that the process of a solution sends, and that are raised where it is asked."""

RELIED_ON = (
    (time, "time perf_counter perf_counter_ns monotonic monotonic_ns process_time process_time_ns sleep"),
    (os, "times urandom pread"),
    (torch, "equal allclose isclose isfinite isnan clone empty_like set_rng_state get_rng_state"),
    (torch.Tensor, "equal allclose isclose clone copy_ detach fill_ mul_ abs max double item view __eq__ __sub__"),
    (torch.testing, "assert_close"),
    (torch.cuda, "synchronize Event"),
)
"""The functions that timing and comparisons call."""


def _relied_on() -> dict[str, Any]:
    """Return name -> function for every entry of RELIED_ON that its owner has now."""
    return {
        f"{owner.__name__}.{name}": getattr(owner, name)
        for owner, names in RELIED_ON
        for name in names.split()
        if hasattr(owner, name)
    }


ORIGINALS = _relied_on()
"""The functions of RELIED_ON when this module was imported."""


BESIDE = (
    "backprint.tools.bench",
    "backprint.judge",
    "backprint.sample",
    "backprint.tools.export",
    "backprint.tools.tasks",
    "backprint.values.rounding",
)
"""How the names of modules begin that work beside a solution."""


def own_functions() -> dict[str, Any]:
    """Return name -> code of the functions and methods of the loaded modules of Backprint that work beside a solution,
    for `check_own`. The code is what a call runs: it can be replaced in a function that stays the same object."""
    module_names = [name for name in sys.modules if name.startswith(BESIDE)]
    codes: dict[str, Any] = {}
    for module_name in module_names:
        for key, value in vars(sys.modules[module_name]).items():
            if inspect.isclass(value) and value.__module__ == module_name:  # defined here, not imported
                for method, function in vars(value).items():
                    codes[f"{module_name}.{key}.{method}"] = code_of(function)
            codes[f"{module_name}.{key}"] = code_of(value)
    return {name: code for name, code in codes.items() if code is not None}


def code_of(value: Any) -> Any:
    """Return the code of a function; None of anything else."""
    return getattr(value, "__code__", None)


def check_own(before: Mapping[str, Any]) -> None:
    """Raise CheatFound if one of these functions has other code now."""
    now = own_functions()
    if changed := [name for name, code in before.items() if now.get(name) is not code]:
        raise CheatFound(f"changes the bench that times it: {', '.join(changed[:4])} replaced")


def check_replaced() -> None:
    """Raise CheatFound if a function of RELIED_ON was replaced, removed or added."""
    now = _relied_on()
    replaced = [name for name in {**ORIGINALS, **now} if not _same_function(now.get(name), ORIGINALS.get(name))]
    clocks = [name for name in replaced if name.startswith(("time.", "os."))]
    if clocks:
        raise CheatFound(f"the clock was changed: {', '.join(clocks)} replaced")
    if replaced:
        raise CheatFound(f"replaces what results are compared with: {', '.join(replaced)}")


def _same_function(function: Any, original: Any) -> bool:
    """Whether two functions are the same; getattr makes some methods anew each time, and these are equal."""
    return function is original or function == original
