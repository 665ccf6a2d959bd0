"""A ModelProgram in training or eval mode, and compiled to a Python function.

A ModelProgram is the `forward` of a GraphNet sample's `model.py`, as `ast` lines that `code` has made. In them a
function or a constant of torch is one `ast.Name` with its dots, and anything without a dot is a value. The *table* is
`callables.txt`, the functions and methods that a program may call. `call_node(name, …)` makes a call of a function by
its dotted name, `method_node(of, name, …)` one of a method, `name_node` a name that is read, and `set_line` gives all
nodes of a statement a line number; `bounded_lines` are the lines with limits on what could grow without end. The FQN of
a tensor is its path in the module, such as `layer.0.weight`.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from types import CodeType, FunctionType
from typing import Any

import torch

from backprint._torch.functorch import close_vmap_level, current_level
from backprint._torch.modes import set_grad_mode
from backprint._torch.modules import own_buffers, own_modules, own_parameters
from backprint.errors import ReplayError
from backprint.graph.nouns import ATOMS
from backprint.tools.graphnet.code import (
    DEVICE,
    DEVICE_TEXT,
    META,
    SLICE,
    ForwardArgument,
    ModelProgram,
    call_node,
    callables,
    count_calls,
    method_node,
    name_node,
    set_line,
)
from backprint.tools.graphnet.growth import BOUNDED, bounded_lines

# ---- Modes: GraphNet's graphs were traced in inference
# Dropout, batch norm and multi-head attention take their mode as an argument; MODE_ARGUMENTS says where. In training
# mode a batch norm updates its running mean and variance in place, so these become mutations.
# `scaled_dot_product_attention` has no such argument: in eval mode its `dropout_p` was traced as 0.0, and the program's
# own is lost. Instance norm stays as it is: its argument says whether it has statistics, which is not a mode. The fused
# attention that modules call in inference alone has no derivative, and is replaced in training mode by the calls that
# modules make then.


FUNCTIONAL = "torch.nn.functional."
MODE_ARGUMENTS: Mapping[str, tuple[int, str, bool | None]] = {
    f"{FUNCTIONAL}dropout": (2, "training", True),
    f"{FUNCTIONAL}dropout1d": (2, "training", True),
    f"{FUNCTIONAL}dropout2d": (2, "training", True),
    f"{FUNCTIONAL}dropout3d": (2, "training", True),
    f"{FUNCTIONAL}alpha_dropout": (2, "training", False),
    f"{FUNCTIONAL}feature_alpha_dropout": (2, "training", False),
    f"{FUNCTIONAL}rrelu": (3, "training", False),
    f"{FUNCTIONAL}rrelu_": (3, "training", False),
    f"{FUNCTIONAL}batch_norm": (5, "training", False),
    f"{FUNCTIONAL}multi_head_attention_forward": (13, "training", True),
    "torch.dropout": (2, "train", None),
    "torch.dropout_": (2, "train", None),
    "torch.alpha_dropout": (2, "train", None),
    "torch.alpha_dropout_": (2, "train", None),
    "torch.feature_dropout": (2, "train", None),
    "torch.feature_dropout_": (2, "train", None),
    "torch.feature_alpha_dropout": (2, "train", None),
    "torch.feature_alpha_dropout_": (2, "train", None),
    "torch.batch_norm": (5, "training", None),
}
"""Where each function takes its mode: the position, the keyword, and the default (None: it has to be passed)."""

FUSED_ATTENTION = "torch._native_multi_head_attention"
"""The attention that modules call in inference alone."""

NORMS = (f"{FUNCTIONAL}batch_norm", "torch.batch_norm")
"""Batch norm under its two names, whose arguments are in different orders."""

ATTENTION = ("torch._C._nn.scaled_dot_product_attention", f"{FUNCTIONAL}scaled_dot_product_attention")
"""Functions whose dropout is lost in a program that was traced in eval mode, under their two names."""


class _ModeRewriter(ast.NodeTransformer):
    """Rewrites the calls of a line to a mode (`train`, or eval), and counts the calls that it `changed`, by name."""

    def __init__(self, train: bool) -> None:
        self.train = train
        self.changed: Counter[str] = Counter()

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Return a call in the mode, after the calls in its arguments. `ast.NodeTransformer` finds this method by its
        name."""
        self.generic_visit(node)
        match node.func:
            case ast.Name(id=target) if target == FUSED_ATTENTION and self.train:  # it has no derivative
                return self.unfuse_attention(node)
            case ast.Name(id=target) if target in MODE_ARGUMENTS:
                self.set_mode(node, target)
        return node

    def unfuse_attention(self, node: ast.Call) -> ast.expr:
        """Replace inference's fused attention, which has no derivative, by the function that modules train with.

        Its arguments are query, key, value, width, heads, in-weight, in-bias, out-weight, out-bias, mask, need_weights;
        the other function has the sequence as the first dimension, and this one the batch: hence the transposes. Both
        return the output and the attention's weights; a call with a mask, or for weights, stays as it is.
        """
        match node.args[9:11]:  # mask and need_weights, as modules pass them
            case [ast.Constant(value=None), ast.Constant(value=False)] if not node.keywords:
                pass
            case _:
                return node
        self.changed[FUSED_ATTENTION] += 1
        none, false, no_dropout = ast.Constant(None), ast.Constant(False), ast.Constant(0.0)
        *query_key_value, width, heads, in_weight, in_bias, out_weight, out_bias = node.args[:9]
        sequence_first = (method_node(x, "transpose", ast.Constant(0), ast.Constant(1)) for x in query_key_value)
        bias_k, bias_v, add_zero_attn = none, none, false
        attention = call_node(
            f"{FUNCTIONAL}multi_head_attention_forward",
            *(*sequence_first, width, heads, in_weight, in_bias),
            *(bias_k, bias_v, add_zero_attn, no_dropout, out_weight, out_bias),
            training=ast.Constant(True),
            need_weights=false,
        )
        output = ast.Subscript(attention, ast.Constant(0), ast.Load())
        batch_first = method_node(output, "transpose", ast.Constant(0), ast.Constant(1))
        return ast.Tuple([batch_first, none], ast.Load())

    def set_mode(self, node: ast.Call, target: str) -> None:
        """Set the mode of a call to a function of MODE_ARGUMENTS (`target`), and count it if that changes the mode. A
        mode that is no constant, but computed by the program, stays."""
        position, keyword, default = MODE_ARGUMENTS[target]
        keyword_argument = next((word for word in node.keywords if word.arg == keyword), None)
        positional_argument = node.args[position] if position < len(node.args) else None
        mode = keyword_argument.value if keyword_argument else positional_argument or ast.Constant(default)
        if not isinstance(mode, ast.Constant) or bool(mode.value) is self.train:
            return
        if mode.value is None and len(node.args) < position:
            return  # without a default, and with other arguments missing: no call that torch takes
        self.changed[target] += 1
        if positional_argument is not None:
            node.args[position] = ast.Constant(self.train)
        else:
            others = [word for word in node.keywords if word is not keyword_argument]
            node.keywords = [*others, ast.keyword(keyword, ast.Constant(self.train))]


def rewrite_mode(
    program: ModelProgram, mode: str | None, lines_to_keep: Collection[int] = ()
) -> tuple[ModelProgram, tuple[str, ...]]:
    """Return a program in a mode (`train` or `eval`), and notes on the changes; with None the program as it is. Calls
    in the lines of these numbers (`lines_to_keep`) keep their mode."""
    if mode is None:
        return program, ()
    rewriter, lines = _ModeRewriter(mode == "train"), program.copied_lines()
    for line in lines:
        if line.lineno not in lines_to_keep:
            set_line(rewriter.visit(line), line.lineno)
    changes = ", ".join(f"{count} {name.split('.')[-1]}" for name, count in sorted(rewriter.changed.items()))
    notes = [f"mode {mode}: {changes} changed" if changes else f"mode {mode}: no call to change"]
    calls = count_calls(program)
    if mode == "train" and (lost_dropouts := sum(calls[name] for name in ATTENTION)):
        notes.append(
            f"{lost_dropouts} scaled_dot_product_attention keep dropout_p as traced: what it was in training is lost"
        )
    return replace(program, lines=lines), tuple(notes)


# ---- Compiling a ModelProgram to a function
# The tree of the program is compiled, with the file's name and line numbers; none of the file's text is. A name without
# a dot is a local, because the reader lets a line read only what an argument or an earlier line bound. A name with dots
# is a global, whose value `_globals` looks up: the table's functions, torch's constants, devices, functions of ours.
# Tracebacks and torch.compile's front end see `model.py` and its lines, because the calls are there.

MODE_CHANGING = frozenset(
    {
        "torch._C._set_grad_enabled",
        "torch.amp.autocast_mode._enter_autocast",
        "torch.amp.autocast_mode._exit_autocast",
        "torch._C._functorch._vmap_increment_nesting",
        "torch._functorch.predispatch._vmap_increment_nesting",
    }
)
"""Functions that change process-wide modes of torch: a program that calls one restores them, also if it raises."""


def compile_program(
    program: ModelProgram,
    names: Mapping[str, str],
    state: Mapping[str, str],
    file: str,
    device: str,
    extra_functions: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a program to `forward(self, ...)`.

    `state` has the FQNs of the arguments that are parameters and buffers, by the names in the code; `names` the
    names of the other arguments in the signature. `file` is what tracebacks name. Devices in the code become `device`.
    `extra_functions` are functions that the program may call besides the table's, or in place of them, by name.
    """
    body: list[ast.stmt] = [*_bind_arguments(program.arguments, names, state), *bounded_lines(program)]
    if count_calls(program).keys() & MODE_CHANGING:
        body = [ast.With([ast.withitem(call_node(RESTORED_MODES))], body)]
    parameters = ["self", *(names[argument.name] for argument in program.arguments if argument.name in names)]
    signature = ast.arguments(
        posonlyargs=[], args=list(map(ast.arg, parameters)), kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    forward = ast.FunctionDef("forward", signature, body, decorator_list=[])
    if hasattr(forward, "type_params"):  # Python 3.12 requires the list
        forward.type_params = []
    tree = ast.fix_missing_locations(ast.Module([forward], []))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # of `(1, 2)[x]`, say: a stranger's, with no effect here
        compiled = compile(tree, file, "exec")
    code = next(part for part in compiled.co_consts if isinstance(part, CodeType))  # that of `forward`
    # With the builtins, as the interpreter's C code looks for `__import__` in the running frame's; no name of the
    # program leads there, because a name without a dot is a local.
    namespace = {
        "__name__": "graphnet",
        "__builtins__": vars(builtins),
        **_globals(tree, device, extra_functions or {}),
    }
    return FunctionType(code, namespace)


def _bind_arguments(
    arguments: tuple[ForwardArgument, ...], names: Mapping[str, str], state: Mapping[str, str]
) -> Iterator[ast.stmt]:
    """Yield the lines that bind every argument to its name in the code: a parameter or buffer (`state`) is looked up in
    `self` by its FQN, an input is taken from its own name in the signature (`names`).

    All inputs are bound at once, because one may have the name that another has in the code.
    """
    if renamed := [argument.name for argument in arguments if names.get(argument.name, argument.name) != argument.name]:
        left = ast.Tuple([ast.Name(name, ast.Store()) for name in renamed], ast.Store())
        right = ast.Tuple([name_node(names[name]) for name in renamed], ast.Load())
        yield ast.Assign([left], right)
    for argument in arguments:
        if argument.name in state:
            tensor = call_node(MODULE_TENSOR, name_node("self"), ast.Constant(state[argument.name]))
            yield set_line(ast.Assign([ast.Name(argument.name, ast.Store())], tensor), argument.line)


def _globals(tree: ast.Module, device: str, extra_functions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all names with dots in a tree: functions of Backprint, devices, extra functions, else
    constants and functions of torch."""
    values = {
        **OWN_FUNCTIONS,
        DEVICE: torch.device(device),
        DEVICE_TEXT: device,
        META: torch.device("meta"),
        **extra_functions,
    }
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and "." in node.id}
    return {name: values[name] if name in values else _torch_value(name) for name in names}


def _torch_value(name: str) -> Any:
    """Return a constant of torch, or a function of the table."""
    constant = name.removeprefix("torch.")
    return getattr(torch, constant) if constant in ATOMS else torch_callable(name)


def torch_callable(target: str) -> Any:
    """Return the function of a row of the table, by its dotted name; refuse a name outside the table, and one that this
    torch does not have."""
    if target not in callables():
        raise ReplayError(f"{target!r:.120} is not in the table of functions that graphs call")
    value: Any = torch
    try:
        for part in target.split(".")[1:]:
            value = getattr(value, part)
    except AttributeError:
        raise ReplayError(f"torch {torch.__version__} has no {target}, which the sample calls") from None
    return value


# ---- Functions that a compiled program calls


def _module_tensor(module: torch.nn.Module, name: str) -> torch.Tensor | None:
    """Return the parameter or buffer of this fully qualified name. It is looked up in the tables of each module, past
    `__getattr__`, as a tensor may have the name of a method."""
    *path, last = name.split(".")
    for module_name in path:
        module = own_modules(module)[module_name]
    return own_parameters(module)[last] if last in own_parameters(module) else own_buffers(module)[last]


@contextlib.contextmanager
def _restored_modes() -> Iterator[None]:
    """Restore grad mode, autocast and vmap's levels, however the block ends."""
    grad, kinds = torch.is_grad_enabled(), ("cpu", "cuda")
    casts = [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds]
    cache, nesting, level = torch.is_autocast_cache_enabled(), _autocast_nesting(), _vmap_level()
    try:
        yield
    finally:
        while _vmap_level() > level:
            close_vmap_level()
        for kind, (on, dtype) in zip(kinds, casts, strict=True):
            torch.set_autocast_enabled(kind, on)
            torch.set_autocast_dtype(kind, dtype)
        torch.set_autocast_cache_enabled(cache)
        while _autocast_nesting() > nesting:
            torch.autocast_decrement_nesting()
        set_grad_mode(grad)


def _autocast_nesting() -> int:
    """Return how many autocasts are open. torch tells it only as it counts one more or one less."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def _vmap_level() -> int:
    """Return the innermost level of functorch's transforms; -1 outside of them."""
    level = current_level()
    return -1 if level is None else int(level)


MODULE_TENSOR, RESTORED_MODES = "backprint.module_tensor", "backprint.restored_modes"
"""The names by which compiled programs call `_module_tensor` and `_restored_modes`."""

OWN_FUNCTIONS: Mapping[str, Any] = {
    **BOUNDED,
    MODULE_TENSOR: _module_tensor,
    RESTORED_MODES: _restored_modes,
    SLICE: slice,
}
"""The functions that a compiled program calls and that are not torch's, by their names there."""
