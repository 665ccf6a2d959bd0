"""Training mode and eval mode, written into a ModelProgram: GraphNet's graphs were traced in inference.

Dropout, batch norm and multi-head attention take their mode as an argument; TRAINING says where. In training mode a
batch norm updates its running mean and variance in place, so these become mutations. `scaled_dot_product_attention` has
no such argument: in eval mode its `dropout_p` was traced as 0.0, and what it was is lost. Instance norm stays as it is:
its argument says whether it has statistics, which is not a mode. The fused attention that modules call in inference
alone has no derivative, and becomes in training what they call then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from backprint.graphnet.code import (
    Assign,
    Augment,
    Const,
    Do,
    Expr,
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
class ModeRewriter:
    """Rewrites a program to a mode, except the lines in `stay`; counts the calls that it changed."""

    train: bool
    stay: Collection[int]
    changed: dict[str, int]

    def line(self, line: Statement) -> Statement:
        if line.line in self.stay:
            return line
        match line:
            case Assign(value=value) | Augment(value=value) | Do(value=value) | Return(value=value):
                made = self.expr(value)
                return line if made is value else replace(line, value=made)

    def expr(self, value: Expr) -> Expr:
        """The expression in the mode; itself where no call in it has one."""
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
        turned = (MethodCall(each, "transpose", (zero, one), ()) for each in (query, key, values))
        options = (("training", Const(True)), ("need_weights", Const(False)))
        args = (*turned, width, heads, *weights[:2], none, none, Const(False), Const(0.0), *weights[2:])
        made = FunctionCall(f"{FUNCTIONAL}multi_head_attention_forward", args, options)
        return Items((MethodCall(Item(made, zero), "transpose", (zero, one), ()), none), False)

    def call(self, value: FunctionCall) -> FunctionCall:
        """Set the mode of a call; a mode that the program computes stays."""
        place, keyword, default = TRAINING[value.target]
        named = dict(value.kwargs)
        given = named.get(keyword) or (value.args[place] if place < len(value.args) else Const(default))
        if not isinstance(given, Const) or bool(given.value) is self.train:
            return value
        if given.value is None and len(value.args) < place:
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
    work = ModeRewriter(mode == "train", frozenset(stay), {})
    made = replace(program, lines=tuple(map(work.line, program.lines)))
    changes = ", ".join(f"{count} {name.split('.')[-1]}" for name, count in sorted(work.changed.items()))
    notes = [f"mode {mode}: {changes} changed" if changes else f"mode {mode}: no call to change"]
    if mode == "train" and (lost := len(calls_to(program, ATTENTION))):
        notes.append(f"{lost} scaled_dot_product_attention keep dropout_p as traced: what it was in training is lost")
    return made, tuple(notes)


def calls_to(program: ModelProgram, targets: Collection[str]) -> list[tuple[int, FunctionCall]]:
    """The calls of these functions in a program, with their lines."""
    return [
        (line, value)
        for line, value in located_expressions(program)
        if isinstance(value, FunctionCall) and value.target in targets
    ]
