"""Symbolic sizes: what tracing knows about them, and where it learnt it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backprint._torch import private
from backprint._torch.private import Private, Probe, look_up, probes_of

if TYPE_CHECKING:  # the types of what `__getattr__` returns
    from torch._guards import SLoc as SLoc
    from torch.fx.experimental.symbolic_shapes import ShapeEnv as ShapeEnv

# ---- Probes


def sizes_are_symbolic() -> bool:
    """A class of ours gives symbols their numbers and guards their places, and reads both again."""
    kind, place, dynamic = (NAMES[name].value() for name in ("ShapeEnv", "SLoc", "DimDynamic"))

    class Noting(kind):  # type: ignore[misc, valid-type]
        def _get_sloc(self, framework_loc: str | None = None) -> Any:
            return place(framework_loc, "here")

        def _generate_unique_id(self, source_name: str) -> int:
            return 7

    shapes = Noting(duck_shape=False, allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)
    source = NAMES["LocalSource"].value()("x")
    symbol = shapes.create_symbol(5, source, dynamic_dim=dynamic.DYNAMIC)
    size = shapes.create_symintnode(symbol, hint=5, source=source)
    holds = bool(size < 9)
    known = int(shapes.backed_var_to_val[symbol]) == 5 and symbol in shapes.var_to_range
    always = NAMES["is_always"].value()(shapes, symbol > 0, axioms=())
    named = symbol.name == "s7" and [guard.sloc.maybe_user_loc for guard in shapes.guards] == ["here"]
    return holds and known and named and bool(always) and shapes.replacements_slocs == {}


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
        "Where a tensor comes from: a variable of the traced function.",
        (private.AOT,),
    ),
    "ConstantSource": Private(
        "torch._dynamo.source.ConstantSource", "Where a tensor comes from: a constant.", (private.TO_FX,)
    ),
    "is_always": Private(
        "torch.fx.experimental.symbolic_shapes.ShapeEnv._maybe_evaluate_static",
        "Return what a condition is for all sizes in range; None if that depends on the sizes.",
        (private.AOT,),
        passed=("axioms",),
    ),
    "check_size": Private(
        "torch._check", "Assert a condition on sizes, which tracing takes for granted from there on.", (private.TO_FX,)
    ),
}
"""The private names that other rooms use, by the name under which they import each."""


def __getattr__(name: str) -> Any:
    return look_up(name, NAMES, globals())


PROBES = probes_of(
    __name__,
    NAMES,
    Probe("torch.fx.experimental.symbolic_shapes.ShapeEnv._get_sloc", sizes_are_symbolic, (private.AOT,)),
)
