"""A ModelProgram in training or eval mode, and compiled to a Python function."""

from __future__ import annotations

import ast
import builtins
import contextlib
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import CodeType, FunctionType
from typing import Any

import torch

from backprint._torch.functorch import close_vmap_level, current_level
from backprint._torch.modes import set_grad_mode
from backprint._torch.modules import own_buffers, own_parameters
from backprint.errors import ReplayError
from backprint.graphnet import code
from backprint.graphnet.code import (
    Assign,
    Augment,
    Const,
    Do,
    Expr,
    ForwardArgument,
    FunctionCall,
    Item,
    Items,
    MethodCall,
    ModelProgram,
    Operation,
    Return,
    Statement,
    Unary,
    located_expressions,
)
from backprint.graphnet.growth import (
    IN_PLACE,
    WATCHED,
    ValueKinds,
    bounded_items,
    bounded_tolist,
    require_tensor,
)

# ---- Modes: GraphNet's graphs were traced in inference
# Dropout, batch norm and multi-head attention take their mode as an argument; TRAINING says where. In training mode a
# batch norm updates its running mean and variance in place, so these become mutations. `scaled_dot_product_attention`
# has no such argument: in eval mode its `dropout_p` was traced as 0.0, and the program's own is lost. Instance norm
# stays as it is: its argument says whether it has statistics, which is not a mode. The fused attention that modules
# call in inference alone has no derivative, and is replaced in training mode by the calls that modules make then.


FUNCTIONAL = "torch.nn.functional."
TRAINING: Mapping[str, tuple[int, str, bool | None]] = {
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
"""Where each function takes its mode: the position, the keyword, and the default."""

FUSED = "torch._native_multi_head_attention"

NORMS = (f"{FUNCTIONAL}batch_norm", "torch.batch_norm")
ATTENTION = ("torch._C._nn.scaled_dot_product_attention", f"{FUNCTIONAL}scaled_dot_product_attention")


@dataclass(slots=True)
class _ModeRewriter:
    """Rewrites a program to a mode, except the lines in `stay`; counts the calls that it changed."""

    train: bool
    stay: Collection[int]
    changed: dict[str, int]

    def line(self, line: Statement) -> Statement:
        if line.line in self.stay:
            return line
        match line:
            case Assign(value=value) | Augment(value=value) | Do(value=value) | Return(value=value):
                expression = self.expr(value)
                return line if expression is value else replace(line, value=expression)

    def expr(self, value: Expr) -> Expr:
        """Return the expression in the mode; itself where no call in it has one."""
        match value:
            case FunctionCall(target=target, args=args, kwargs=kwargs):
                args, kwargs = self.exprs(args), tuple((key, self.expr(item)) for key, item in kwargs)
                if args != value.args or kwargs != value.kwargs:
                    value = FunctionCall(target, args, kwargs)
                if target == FUSED:
                    return self.attention(value)
                return self.call(value) if target in TRAINING else value
            case MethodCall(of=of, name=name, args=args, kwargs=kwargs):
                return MethodCall(
                    self.expr(of), name, self.exprs(args), tuple((key, self.expr(item)) for key, item in kwargs)
                )
            case Items(items=items, list=is_list):
                return Items(self.exprs(items), is_list)
            case Operation(kind=kind, left=left, right=right):
                return Operation(kind, self.expr(left), self.expr(right))
            case Unary(kind=kind, of=of):
                return Unary(kind, self.expr(of))
            case Item(of=of, index=index):
                return Item(self.expr(of), index)
        return value

    def exprs(self, values: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(map(self.expr, values))

    def attention(self, value: FunctionCall) -> Expr:
        """Replace inference's fused attention, which has no derivative, by the function that modules train with."""
        if not self.train or value.kwargs or value.args[9:11] != (Const(None), Const(False)):
            return value
        query, key, values, width, heads, *weights = value.args[:9]
        self.changed[FUSED] = self.changed.get(FUSED, 0) + 1
        none, zero, one = Const(None), Const(0), Const(1)
        turned = (MethodCall(tensor, "transpose", (zero, one), ()) for tensor in (query, key, values))
        options = (("training", Const(True)), ("need_weights", Const(False)))
        args = (*turned, width, heads, *weights[:2], none, none, Const(False), Const(0.0), *weights[2:])
        call = FunctionCall(f"{FUNCTIONAL}multi_head_attention_forward", args, options)
        return Items((MethodCall(Item(call, zero), "transpose", (zero, one), ()), none), False)

    def call(self, value: FunctionCall) -> FunctionCall:
        """Set the mode of a call; a mode that the program computes stays."""
        place, keyword, default = TRAINING[value.target]
        named = dict(value.kwargs)
        argument = named.get(keyword) or (value.args[place] if place < len(value.args) else Const(default))
        if not isinstance(argument, Const) or bool(argument.value) is self.train:
            return value
        if argument.value is None and len(value.args) < place:
            return value
        self.changed[value.target] = self.changed.get(value.target, 0) + 1
        if place < len(value.args):
            args = (*value.args[:place], Const(self.train), *value.args[place + 1 :])
            return FunctionCall(value.target, args, value.kwargs)
        kwargs = tuple((key, item) for key, item in value.kwargs if key != keyword)
        return FunctionCall(value.target, value.args, (*kwargs, (keyword, Const(self.train))))


def rewrite_mode(
    program: ModelProgram, mode: str | None, stay: Collection[int] = ()
) -> tuple[ModelProgram, tuple[str, ...]]:
    """Rewrite a program to a mode; returns notes on the changes too. Calls in the lines of `stay` keep their mode."""
    if mode is None:
        return program, ()
    work = _ModeRewriter(mode == "train", frozenset(stay), {})
    rewritten = replace(program, lines=tuple(map(work.line, program.lines)))
    changes = ", ".join(f"{count} {name.split('.')[-1]}" for name, count in sorted(work.changed.items()))
    notes = [f"mode {mode}: {changes} changed" if changes else f"mode {mode}: no call to change"]
    if mode == "train" and (lost := len(calls_to(program, ATTENTION))):
        notes.append(f"{lost} scaled_dot_product_attention keep dropout_p as traced: what it was in training is lost")
    return rewritten, tuple(notes)


def calls_to(program: ModelProgram, targets: Collection[str]) -> list[tuple[int, FunctionCall]]:
    """Return the calls of these functions in a program, with their lines."""
    return [
        (line, value)
        for line, value in located_expressions(program)
        if isinstance(value, FunctionCall) and value.target in targets
    ]


# ---- Compiling a ModelProgram to a function
# The function is compiled from a tree of our own, with the file's name and line numbers; none of the file's text is
# executed. A name is a local that an earlier line bound, or a global of the function: the table's functions, torch's
# constants, devices. Tracebacks and torch.compile's front end see `model.py` and its lines, because the calls are
# there.

PRESSING = frozenset(
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
    extra: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a program to `forward(self, ...)`.

    `state` has the FQNs of the arguments that are parameters and buffers, by the names in the code; `names` the
    names of the other arguments in the signature. Devices in the code become `device`. `extra` are functions that the
    program may call besides the table's.
    """
    emitter = _ProgramEmitter(program, file, device, dict(extra or {}))
    return emitter.function(names, state)


def torch_callable(target: str) -> Any:
    """Return the function of a row of the table; a name outside the table is refused."""
    if target not in code.callables():
        raise ReplayError(f"{target!r:.120} is not in the table of functions that graphs call")
    value: Any = torch
    try:
        for part in target.split(".")[1:]:
            value = getattr(value, part)
    except AttributeError:
        raise ReplayError(f"torch {torch.__version__} has no {target}, which the sample calls") from None
    return value


@dataclass(slots=True)
class _ProgramEmitter:
    """The state of compiling one program: the globals that its function needs."""

    program: ModelProgram
    file: str
    device: str
    extra: dict[str, Any]
    globals: dict[str, Any] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    at: dict[str, Any] = field(default_factory=dict)
    kinds: ValueKinds = field(init=False)

    def __post_init__(self) -> None:
        self.kinds = ValueKinds(self.program)

    def function(self, names: Mapping[str, str], state: Mapping[str, str]) -> Callable[..., Any]:
        self.taken = {argument.name for argument in self.program.arguments} | set(names.values()) | {"self"}
        for _, value in code.located_expressions(self.program):
            if isinstance(value, code.Name):
                self.taken.add(value.id)
        self.place(self.program.arguments[0].line if self.program.arguments else 1)
        body = [*self.arguments(self.program.arguments, names, state), *map(self.line, self.program.lines)]
        body = self.undisturbed(body)
        self.place(1)
        parameters = ["self", *(names[part.name] for part in self.program.arguments if part.name in names)]
        signature = ast.arguments([], [ast.arg(name, **self.at) for name in parameters], None, [], [], None, [])
        top = ast.FunctionDef("forward", signature, body, [], None, None, **self.at)
        if hasattr(top, "type_params"):
            top.type_params = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of `(1, 2)[x]`, say: a stranger's, with no effect here
            compiled = compile(ast.Module([top], []), self.file, "exec")
        inner = next(part for part in compiled.co_consts if isinstance(part, CodeType))
        # the interpreter's C code looks for __import__ in the running frame's builtins; no name of ours leads there
        return FunctionType(inner, {"__name__": "graphnet", "__builtins__": vars(builtins), **self.globals})

    def place(self, line: int) -> None:
        self.at = dict(lineno=line, col_offset=0, end_lineno=line, end_col_offset=0)

    # ---- where the arguments come from

    def arguments(
        self, arguments: tuple[ForwardArgument, ...], names: Mapping[str, str], state: Mapping[str, str]
    ) -> Iterator[ast.stmt]:
        """Yield the lines that bind every argument: a parameter by its FQN, an input by its own name.

        All inputs are bound at once, because one may have the name that another has in the code.
        """
        other = [argument.name for argument in arguments if names.get(argument.name, argument.name) != argument.name]
        if other:
            left: list[ast.expr] = [ast.Name(name, ast.Store(), **self.at) for name in other]
            right: list[ast.expr] = [ast.Name(names[name], ast.Load(), **self.at) for name in other]
            yield ast.Assign(
                [ast.Tuple(left, ast.Store(), **self.at)], ast.Tuple(right, ast.Load(), **self.at), **self.at
            )
        for argument in arguments:
            if argument.name in state:
                self.place(argument.line)
                *path, last = state[argument.name].split(".")
                value: ast.expr = ast.Name("self", ast.Load(), **self.at)
                for step in path:
                    value = self.kept(value, "_modules", step)
                function = self.global_name("state", lambda: _module_tensor)
                value = ast.Call(function, [value, self.literal(last)], [], **self.at)
                yield ast.Assign([ast.Name(argument.name, ast.Store(), **self.at)], value, **self.at)

    def kept(self, value: ast.expr, table: str, key: str) -> ast.expr:
        """`value._modules["layer1"]`."""
        held = ast.Attribute(value, table, ast.Load(), **self.at)
        return ast.Subscript(held, self.literal(key), ast.Load(), **self.at)

    def undisturbed(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Wrap the lines in `with restored_modes()`, where they change process-wide modes."""
        called = {
            value.target for _, value in code.located_expressions(self.program) if isinstance(value, code.FunctionCall)
        }
        if not called & PRESSING:
            return body
        guard = ast.Name(self.globally("restored_modes", restored_modes), ast.Load(), **self.at)
        return [ast.With([ast.withitem(ast.Call(guard, [], [], **self.at), None)], body, **self.at)]

    # ---- lines

    def line(self, line: Statement) -> ast.stmt:
        self.place(line.line)
        statement = self.statement(line)
        self.kinds.after(line)
        return statement

    def statement(self, line: Statement) -> ast.stmt:
        match line:
            case code.Assign(targets=targets, value=value):
                return ast.Assign(
                    [self.expr(target, ast.Store()) for target in targets], self.expr(value), None, **self.at
                )
            case code.Augment(target=target, kind=kind, value=value):
                return self.augmented(target, kind, value)
            case code.Do(value=value):
                return ast.Expr(self.expr(value), **self.at)
            case code.Return(value=value):
                return ast.Return(self.expr(value), **self.at)

    # ---- expressions

    def expr(self, value: Expr, context: Any = None) -> ast.expr:
        context = context or ast.Load()
        match value:
            case code.Name(id=name):
                return ast.Name(name, context, **self.at)
            case code.Const(value=constant):
                return self.literal(constant)
            case code.Torch(name=name):
                return self.global_name(f"torch.{name}", lambda: getattr(torch, name))
            case code.DeviceExpr(name=name, object=is_object):
                here = name if name == "meta" else self.device
                if not is_object:
                    return self.literal(here)
                return self.global_name(f"device.{here}", lambda: torch.device(here))
            case code.FunctionCall() | code.MethodCall():
                return self.call_of(value)
            case code.Attribute(of=of, name=name):
                return ast.Attribute(self.expr(of), name, ast.Load(), **self.at)
            case code.Item(of=of, index=index):
                return self.item_of(of, index, context)
            case code.SliceExpr(start=start, stop=stop, step=step):
                function = self.global_name("slice", lambda: slice)
                return self.called(function, (start, stop, step), ())
            case code.Items(items=items) if isinstance(context, ast.Store):
                return ast.Tuple([self.expr(item, context) for item in items], context, **self.at)
            case code.Items():
                return self.items(value)
            case code.Pairs():
                return self.pairs(value)
            case code.Unary(kind=kind, of=of):
                return ast.UnaryOp(getattr(ast, kind)(), self.expr(of), **self.at)
            case code.Operation(kind=kind, left=left, right=right):
                return self.operation(kind, left, right)
        raise TypeError(f"a {type(value).__name__} is not an expression of a ModelProgram")

    def call_of(self, value: code.FunctionCall | code.MethodCall) -> ast.expr:
        """Compile a call; of `tolist`, whose result is bounded, a call of a function of ours instead."""
        match value:
            case code.FunctionCall(target=target, args=args, kwargs=kwargs):
                function = self.global_name(target, lambda: self.extra.get(target) or torch_callable(target))
                return self.called(function, args, kwargs)
            case code.MethodCall(name="tolist", of=of, args=(), kwargs=()):
                return self.called(self.global_name("bounded_tolist", lambda: bounded_tolist), (of,), ())
        of, name = value.of, value.name
        return self.called(ast.Attribute(self.owner(of, name), name, ast.Load(), **self.at), value.args, value.kwargs)

    def operation(self, kind: str, left: Expr, right: Expr) -> ast.expr:
        """Compile arithmetic or a comparison; arithmetic that may grow without end calls a bounded function."""
        if kind in code.COMPARE:
            return ast.Compare(self.expr(left), [getattr(ast, kind)()], [self.expr(right)], **self.at)
        if self.kinds.is_watched(kind, left, right):
            watch = WATCHED[kind]
            return self.called(self.global_name(watch.__name__, lambda: watch), (left, right), ())
        return ast.BinOp(self.expr(left), getattr(ast, kind)(), self.expr(right), **self.at)

    def augmented(self, target: Expr, kind: str, value: Expr) -> ast.stmt:
        """`target += value`; where it may grow without end, `target = bounded_iadd(target, value)`."""
        where: Any = self.expr(target, ast.Store())
        if not self.kinds.is_watched(kind, target, value):
            return ast.AugAssign(where, getattr(ast, kind)(), self.expr(value), **self.at)
        watch = IN_PLACE[kind]
        function = self.global_name(watch.__name__, lambda: watch)
        return ast.Assign([where], self.called(function, (target, value), ()), None, **self.at)

    def items(self, value: code.Items) -> ast.expr:
        """Compile a tuple or a list; one that may hold lists is bounded."""
        elements = [self.expr(item) for item in value.items]
        built: ast.expr = (
            ast.List(elements, ast.Load(), **self.at) if value.list else ast.Tuple(elements, ast.Load(), **self.at)
        )
        if not self.kinds.may_nest(value.items):
            return built
        return ast.Call(self.global_name("bounded_items", lambda: bounded_items), [built], [], **self.at)

    def pairs(self, value: code.Pairs) -> ast.expr:
        """Compile a dictionary; one that may hold lists is bounded."""
        keys: list[ast.expr | None] = [self.expr(key) for key, _ in value.pairs]
        mapping = ast.Dict(keys, [self.expr(item) for _, item in value.pairs], **self.at)
        if not self.kinds.may_nest([item for _, item in value.pairs]):
            return mapping
        return ast.Call(self.global_name("bounded_items", lambda: bounded_items), [mapping], [], **self.at)

    def owner(self, of: Expr, name: str) -> ast.expr:
        """Return the owner of a method; a method that is arithmetic requires a tensor."""
        expression = self.expr(of)
        if name.startswith("__") and name != "__getitem__" and self.kinds.of(of) != "tensor":
            return ast.Call(self.global_name("require_tensor", lambda: require_tensor), [expression], [], **self.at)
        return expression

    def item_of(self, of: Expr, index: Expr, context: Any) -> ast.expr:
        """`x[index]`; writing requires a tensor, because a list could come to hold itself."""
        expression = self.expr(of)
        if isinstance(context, ast.Store) and self.kinds.of(of) != "tensor":
            expression = ast.Call(
                self.global_name("require_tensor", lambda: require_tensor), [expression], [], **self.at
            )
        return ast.Subscript(expression, self.expr(index), context, **self.at)

    def called(self, function: ast.expr, args: tuple[Expr, ...], kwargs: tuple[tuple[str, Expr], ...]) -> ast.expr:
        named = [ast.keyword(key, self.expr(item), **self.at) for key, item in kwargs]
        return ast.Call(function, [self.expr(item) for item in args], named, **self.at)

    def literal(self, value: Any) -> ast.expr:
        """Return a constant; in Python's tree inf and nan are constants too."""
        return ast.Constant(value, **self.at)

    def global_name(self, name: str, make: Callable[[], Any]) -> ast.expr:
        if name not in self.known:
            self.globally(name, make())
        return ast.Name(self.known[name], ast.Load(), **self.at)

    def globally(self, name: str, value: Any) -> str:
        """Return the name of the global that holds a value, distinct from every local."""
        if name not in self.known:
            plain = "".join(c if c.isalnum() else "_" for c in name)
            while plain in self.taken:
                plain += "_"
            self.taken.add(plain)
            self.known[name], self.globals[plain] = plain, value
        return self.known[name]


# ---- Functions that a compiled program calls


def _module_tensor(module: torch.nn.Module, name: str) -> torch.Tensor | None:
    """Return a parameter or buffer of this module itself."""
    return own_parameters(module)[name] if name in own_parameters(module) else own_buffers(module)[name]


@contextlib.contextmanager
def restored_modes() -> Iterator[None]:
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
    """Return how many autocasts are open."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def _vmap_level() -> int:
    """Return the innermost level of functorch's transforms; -1 outside of them."""
    level = current_level()
    return -1 if level is None else int(level)
