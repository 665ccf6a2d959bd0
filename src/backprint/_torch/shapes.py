"""The private names of torch for symbolic sizes: ShapeEnv, its guards, and the sources of both.

A ShapeEnv has what a tracing knows about symbolic sizes. A size is a SymInt, whose *hint* is its value at capture; its
*symbol* is sympy's. A *guard* is a condition that was assumed, and its *location* (an SLoc) the line that needed it.
Engines whose probes fail are not used.

`NAMES` is the table of the private names that other rooms import from here, and `NAMES["x"].value()` is torch's object
that they import as `x`. `@uses` says which other private names a function needs, and `needed_by` for which commands: a
call raises PrivateApiError if this torch lacks one (`private`). Each function under *Probes* tries what this file takes
a private name to do, and returns whether it does that on this torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from backprint._torch import private
from backprint._torch.private import Private, Probe, look_up, probes_of, uses

if TYPE_CHECKING:  # the types of what `__getattr__` returns
    from torch._guards import SLoc as SLoc
    from torch.fx.experimental.symbolic_shapes import ShapeEnv as ShapeEnv


@uses("torch.utils._sympy.printers.PythonPrinter", needed_by=(private.KERNELS,))
def size_text(size: Any) -> str:
    """Return a size, or an expression of symbols, as an expression of Python."""
    from torch.utils._sympy.printers import PythonPrinter

    expression = size.node.expr if isinstance(size, torch.SymInt) else size
    return str(expression) if isinstance(expression, int) else str(PythonPrinter().doprint(expression))


def size_at_capture(size: Any) -> int:
    """Return the value that a size had at capture: a symbolic size has it as its hint."""
    return int(size.node.hint) if isinstance(size, torch.SymInt) else int(size)


def conditions_of(shapes: Any) -> list[str]:
    """Return the conditions on its symbols that a ShapeEnv was told to assume, as expressions of Python."""
    return list(dict.fromkeys(size_text(guard.expr) for guard in shapes.guards))


# ---- Probes


def sizes_have_texts() -> bool:
    """Whether a symbolic size, and a condition on it, can be written as Python."""
    shapes = NAMES["ShapeEnv"].value()()
    source, dynamic = NAMES["LocalSource"].value()("x"), NAMES["DimDynamic"].value().DYNAMIC
    symbol = shapes.create_symbol(5, source, dynamic_dim=dynamic)
    size = shapes.create_symintnode(symbol, hint=5)
    holds = bool(size * 2 < 99)  # the comparison makes a guard
    values = {symbol.name: 5}
    guards_hold = [eval(text, values) for text in conditions_of(shapes)]
    return holds and eval(size_text(size * 3 + 1), values) == 16 and guards_hold == [True]


def sizes_are_symbolic() -> bool:
    """Whether a subclass of ShapeEnv can choose the numbers of symbols and the locations of guards, and whether it has
    the attributes that Backprint's subclass reads.

    That subclass (`trace/aot/symbolic.py`) numbers symbols in the order of the inputs, and gives each guard the user's
    line.
    """
    shape_env, location, dim_dynamic = (NAMES[name].value() for name in ("ShapeEnv", "SLoc", "DimDynamic"))

    class NumberedShapeEnv(shape_env):  # type: ignore[misc, valid-type]
        """Gives each guard the location `here`, and each symbol the number 7."""

        def _get_sloc(self, framework_loc: str | None = None) -> Any:
            return location(framework_loc, "here")

        def _generate_unique_id(self, source_name: str) -> int:
            return 7

    # As Backprint makes its own: equal sizes get symbols of their own, and no size depends on values.
    shapes = NumberedShapeEnv(duck_shape=False, allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)
    source = NAMES["LocalSource"].value()("x")
    symbol = shapes.create_symbol(5, source, dynamic_dim=dim_dynamic.DYNAMIC)
    size = shapes.create_symintnode(symbol, hint=5, source=source)
    comparison_holds = bool(size < 9)
    hint_is_known = int(shapes.backed_var_to_val[symbol]) == 5 and symbol in shapes.var_to_range
    is_positive = NAMES["is_always"].value()(shapes, symbol > 0, axioms=())
    numbered = symbol.name == "s7"
    located = [guard.sloc.maybe_user_loc for guard in shapes.guards] == ["here"]
    unreplaced = shapes.replacements_slocs == {}  # by symbol, where it was found to equal another size: nowhere yet
    return comparison_holds and hint_is_known and numbered and located and bool(is_positive) and unreplaced


# ---- Names

NAMES = {
    "ShapeEnv": Private(
        "torch.fx.experimental.symbolic_shapes.ShapeEnv",
        "What tracing knows about symbolic sizes: symbols, ranges and guards.",
        (
            private.AOT,
            private.TO_FX,
        ),
        passed=("duck_shape", "allow_scalar_outputs"),
        holds=sizes_are_symbolic,
    ),
    "DimDynamic": Private(
        "torch.fx.experimental.symbolic_shapes.DimDynamic",
        "How a size is traced: DYNAMIC, DUCK or STATIC.",
        (
            private.AOT,
            private.TO_FX,
        ),
    ),
    "StatelessSymbolicContext": Private(
        "torch.fx.experimental.symbolic_shapes.StatelessSymbolicContext",
        "Says how each size of a tensor is traced.",
        (private.AOT,),
        passed=("constraint_sizes", "dynamic_sizes"),
    ),
    "SLoc": Private(
        "torch._guards.SLoc", "The place at which a guard was derived: torch's, and the user's.", (private.AOT,)
    ),
    "LocalSource": Private(
        "torch._dynamo.source.LocalSource",
        "A Source of Dynamo: the tensor is a local variable of the traced function.",
        (private.AOT,),
    ),
    "ConstantSource": Private(
        "torch._dynamo.source.ConstantSource", "A Source of Dynamo: the tensor is a constant.", (private.TO_FX,)
    ),
    "is_always": Private(
        "torch.fx.experimental.symbolic_shapes.ShapeEnv._maybe_evaluate_static",
        "Return True if a condition is true for all sizes in range, False if it is false for all, and None otherwise.",
        (private.AOT,),
        passed=("axioms",),
    ),
    "check_size": Private(
        "torch._check", "Assert a condition on sizes; from then on, tracing assumes that it is true.", (private.TO_FX,)
    ),
}
"""The functions and classes of torch that other packages import from this module, under the names that they import."""


def __getattr__(name: str) -> Any:
    return look_up(name, NAMES, globals())


PROBES = probes_of(
    __name__,
    NAMES,
    Probe("torch.fx.experimental.symbolic_shapes.ShapeEnv._get_sloc", sizes_are_symbolic, (private.AOT,)),
    Probe("torch.utils._sympy.printers.PythonPrinter", sizes_have_texts, (private.KERNELS,)),
)
