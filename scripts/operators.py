"""Write `graph/operators.txt`: the tensor operators that a graph may call.

A row is `NAME FLAGS`. Of the flags `r` draws random numbers, `m` changes an argument, `v` gives a view. Left out are
operators that touch files, the process or Python objects. Run it when a new torch brings new operators; rows are only
ever added.
"""

from __future__ import annotations

from pathlib import Path

import torch

from backprint.graph.operators import read_rows, text_of_rows

TABLE = Path(__file__).parent.parent / "src/backprint/graph/operators.txt"
PLAIN = frozenset(
    "Tensor int bool float number complex str Device Generator List[int] List[bool] List[float] List[number] "
    "List[Tensor] List[Optional[Tensor]] List[str] List[complex]".split()
)
NAMESPACES = ("aten", "prims", "rngprims", "mkldnn", "mkl", "quantized_decomposed")
REFUSED = frozenset(
    "aten.from_file aten.save aten.load aten.warn aten._print aten.set_data aten.einsum.sublist aten.is_pinned "
    "aten._pin_memory aten.pin_memory aten.record_stream aten._debug_has_internal_overlap "
    "aten._unsafe_set_version_counter aten.manual_seed mkldnn.data_ptr aten.format aten.dict "
    "aten.hash aten.id aten.fork aten.wait".split()
)


def plain(kind: str) -> bool:
    """Whether a schema's type is made of tensors and numbers alone."""
    return kind in PLAIN or (kind.startswith("Optional[") and plain(kind[9:-1]))


def flags(operator: torch._ops.OpOverload, schema: torch._C.FunctionSchema) -> str:
    """What an operator does besides computing its result."""
    random = torch.Tag.nondeterministic_seeded in operator.tags
    view = not schema.is_mutable and any(part.alias_info is not None for part in schema.returns)
    return "r" * random + "m" * schema.is_mutable + "v" * view


def admitted() -> dict[str, str]:
    """Every admitted operator with its flags."""
    found = {}
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        overload = schema.overload_name or "default"
        kinds = [str(part.type) for part in (*schema.arguments, *schema.returns)]
        if (
            space not in NAMESPACES
            or name.startswith("_test")
            or f"{space}.{name}" in REFUSED
            or not all(map(plain, kinds))
        ):
            continue
        if not any("Tensor" in kind for kind in kinds):
            continue
        try:
            operator = getattr(getattr(getattr(torch.ops, space), name), overload)
        except (AttributeError, RuntimeError):
            continue
        if not isinstance(operator, torch._ops.OpOverload):
            continue
        found[f"{space}.{name}.{overload}"] = flags(operator, schema)
    return found


def main() -> None:
    old = read_rows(TABLE.read_text())
    rows = old | admitted()
    TABLE.write_text(text_of_rows(rows))
    print(f"{len(rows)} operators, {len(rows) - len(old)} new; torch {torch.__version__}")


if __name__ == "__main__":
    main()
