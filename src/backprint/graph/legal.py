"""What is legal in a graph: names, targets, devices, sizes and their expressions, by tables and never by a walk.

Every name, key and target is checked when the object that holds it is made, because `torch.fx` pastes them into code
that it executes.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from typing import TypeAlias

from backprint.errors import GraphError, RefusedError
from backprint.graph.table import operators

Size: TypeAlias = int | str
"""One size of a shape: a number, or the expression of a symbolic one."""

ROOTS = frozenset({"torch", "aten", "prims", "operator", "math"})

RESERVED = ROOTS | {"self", "inf", "nan", "complex", "slice", "getattr", "op", "device", "True", "False", "None"}


def _named(prefix: str, names: str) -> frozenset[str]:
    return frozenset(prefix + name for name in names.split())


OPERATORS = _named(
    "operator.",
    "add sub mul truediv floordiv mod pow neg pos abs eq ne lt le gt ge and_ or_ xor not_ getitem index "
    "lshift rshift invert is_ is_not",
)

MATHS = _named("math.", "ceil floor trunc sqrt log2 pow isnan")

SYMS = _named(
    "torch.",
    "sym_max sym_min sym_float sym_int sym_not sym_ite sym_sum sym_sqrt _sym_sqrt _sym_log2 _sym_cos _sym_sin "
    "sym_fresh_size",
)

PLAIN_TARGETS = OPERATORS | MATHS | SYMS

HIGHER = _named(
    "torch.ops.higher_order.",
    "cond while_loop scan associative_scan map_impl flex_attention flex_attention_backward "
    "tag_activation_checkpoint wrap wrap_activation_checkpoint wrap_with_set_grad_enabled wrap_with_autocast "
    "invoke_subgraph run_and_save_rng_state run_with_rng_state graphsafe_run_with_rng_state auto_functionalized "
    "auto_functionalized_v2 with_effects autograd_function_apply checkpointed_wrap strict_mode out_dtype "
    "hints_wrapper",
)

BUILT_IN = frozenset(
    {"aten", "prims", "prim", "higher_order", "load_library", "loaded_libraries", "import_module", "fast_path"}
)
"""What `torch.ops` holds beside libraries' operators: in `torch.ops.X.f.default`, X is none of these."""

_CUSTOM = re.compile(r"torch\.ops\.([A-Za-z_][A-Za-z0-9_]*)\.[A-Za-z0-9_]+\.[A-Za-z0-9_]+")

_LOCAL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")

_DEVICE = re.compile(r"([a-z]{1,32})(:\d{1,4})?")

DEVICES = frozenset("cpu cuda xpu mps meta hpu mtia xla npu ipu maia vulkan hip ve fpga lazy mkldnn".split())
"""Kinds of devices that torch knows by name. `privateuseone` is whatever a program has registered."""

_NUMBER = re.compile(r"-?\d{1,19}")

_EXPRESSION = re.compile(r"(?:[A-Za-z_]\w*+|\d++(?:\.\d++)?+|[ +\-*/%(),<>=!&|~])++", re.ASCII)

MAX_SIZE = 2**63

MAX_INTEGER = 2**63
"""Integers and sizes are those of 64 bits, as torch has them: from minus this to below it."""

MAX_EXPRESSION = 4096


def check_device(name: str) -> None:
    """Raise unless `name` is a device's, such as `cpu` or `cuda:0`."""
    found = _DEVICE.fullmatch(name) if type(name) is str else None
    if found is None or found[1] not in DEVICES:
        raise RefusedError(f"{name!r:.80} is not a device name")


def check_size(size: Size) -> None:
    """Raise unless `size` is a number that fits 64 bits, or an expression that is not a plain number."""
    if type(size) is int:
        if not -MAX_SIZE <= size < MAX_SIZE:
            raise GraphError(f"a size of {size.bit_length()} bits is not a size of a tensor")
        return
    check_expression(size)
    if str(size).lstrip("-").isdigit():
        raise GraphError(f"{size!r:.80} is not a size: a size is a number of 64 bits, or an expression with a symbol")


def check_expression(text: Size) -> None:
    """Raise unless `text` is arithmetic over names and numbers. It is shown and compared, and never run by Python."""
    if type(text) is str and len(text) <= MAX_EXPRESSION and _EXPRESSION.fullmatch(text) and "__" not in text:
        depth = 0
        for character in text:
            depth += (character == "(") - (character == ")")
            if depth < 0 or (depth == 0 and character == ","):
                break
        else:
            if depth == 0 and text == text.strip():
                return
    raise RefusedError(f"{text!r:.80} is not a size of a tensor, nor an expression of sizes")


def check_local(name: str) -> None:
    """Raise unless `name` can be a local of a graph's text."""
    if type(name) is not str or not _LOCAL.fullmatch(name):
        raise RefusedError(f"{name!r:.80} is not a name of a value: letters, digits and _ only, at most 256")
    if name in RESERVED or keyword.iskeyword(name) or name.startswith("__"):
        raise RefusedError(f"{name!r} is reserved and cannot name a value: rename it")


def is_custom(target: str) -> bool:
    """Whether a target is an operator of a library, which PyTorch alone does not have."""
    return target.startswith("torch.ops.") and target not in HIGHER


def allowed(target: str, allow: Sequence[str]) -> bool:
    """Whether a custom operator was allowed: as `ns.op.overload`, `ns.op` or `ns::op`."""
    name = target.removeprefix("torch.ops.")
    return name in allow or name.rpartition(".")[0] in allow or name.replace(".", "::", 1).rpartition(".")[0] in allow


def check_target(target: str) -> None:
    """Raise unless `target` is a known tensor operator, or has the form of a custom one: a table, never a walk."""
    if type(target) is str and (target in operators() or target in PLAIN_TARGETS or target in HIGHER):
        return
    custom = _CUSTOM.fullmatch(target) if type(target) is str and len(target) <= 256 and "__" not in target else None
    if custom is None or custom[1] in BUILT_IN:
        raise RefusedError(
            f"{target!r:.120} is not a known tensor operator: graphs call aten, prims and plain arithmetic alone"
        )
