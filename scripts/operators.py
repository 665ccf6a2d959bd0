"""Write `graph/operators.txt`, the tensor operators that a graph may call, and how each of them stands; and how each
function and method of `graphnet/callables.txt` stands.

A row is `NAME FLAGS STANDING REASON`. Of the flags `r` draws random numbers, `m` changes an argument, `v` gives a view.
Left out are operators that touch files, the process or Python objects. An operator is `isolated` where `ISOLATED` below
says so, where a file of `--fuzz` has a call that ended the process, or where the table has said so before; `checked`
where `checks/` looks at its arguments; else `safe`. Run it when a new torch brings new operators, and after
`tests/fuzz/operators.py`; rows are only ever added. `--forget PATTERN` takes the marks of earlier fuzzes away, where a
check has made a call safe.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from pathlib import Path

import torch

from backprint.checks.table import check_by_name
from backprint.errors import ReplayError
from backprint.graph.operators import OperatorRow, read_rows, text_of_rows
from backprint.graphnet.emit import torch_callable
from backprint.graphnet.safety import callable_standings, guarded_function, guarded_method

SOURCE = Path(__file__).parent.parent / "src/backprint"
TABLE, CALLABLES = SOURCE / "graph/operators.txt", SOURCE / "graphnet/callables.txt"
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
ISOLATED = {
    r"aten\._thnn_.*": "trusts the shapes of gates and states",
    r"aten\.(quantized_|_?fbgemm_).*": "trusts packed weights",
    r"aten\._nested_.*": "trusts the sizes of nested tensors",
    r"aten\._?(add|remove)_batch_dim\..*": "works on levels of vmap that need not be there",
    r"aten\._nnpack_.*": "trusts lists of any length",
    r"aten\._slow_conv2d_.*": "trusts lists of any length",
    r"aten\._cholesky_solve_helper\..*": "trusts shapes",
    r"aten\._new_zeros_with_same_feature_meta\..*": "trusts the number of batch dimensions",
    r"aten\._?(cudnn|miopen)_.*rnn.*": "trusts one buffer of weights and a reserve",
    r"aten\..*(lstm|rnn)_mps.*": "trusts what its forward made",
    r"aten\._foreach_copy\.out": "trusts that both lists are as long",
    r"aten\._gather_sparse_backward\..*": "makes a sparse tensor of indices that nobody has looked at",
    r"aten\.set_?\..*": "changes what autograd has kept for its backward",
    r"aten\.to\.prim_.*": "reads what is not there where it has no dtype",
    r"(mkldnn|mkl)\..*": "trusts packed weights and sizes",
    r"aten\..*_packed_.*|aten\._weight_int4pack.*|aten\._dyn_quant.*": "trusts packed weights",
}
"""Operators whose kernels trust what no check here can see."""


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


def killers(paths: list[Path]) -> dict[str, str]:
    """The operators that a fuzz saw end or hang a process, and how."""
    found = {}
    for path in paths:
        for row in map(json.loads, path.read_text().splitlines()):
            signals = sorted({kill["signal"] for kill in row["kills"]})
            if signals:
                how = "hangs" if signals == ["SIGALRM"] else f"ends the process ({', '.join(signals)})"
                found[row["operator"]] = f"{how} in the fuzz"
    return found


def standing(name: str, fuzzed: dict[str, str], old: OperatorRow | None) -> tuple[str, str]:
    """How an operator stands, and why."""
    for pattern, reason in ISOLATED.items():
        if re.fullmatch(pattern, name):
            return "isolated", reason
    if name in fuzzed:
        return "isolated", fuzzed[name]
    if old is not None and old.standing == "isolated":
        return old.standing, old.reason
    return ("checked", "") if check_by_name(name) else ("safe", "")


def callable_standing(name: str, fuzzed: dict[str, str], old: tuple[str, str]) -> tuple[str, str]:
    """How a function or a method that GraphNet samples call stands, and why."""
    if name in fuzzed:
        return "isolated", fuzzed[name]
    if old[0] == "isolated":
        return old
    if name.startswith("Tensor."):
        return ("checked" if guarded_method(name.removeprefix("Tensor.")) is not None else "safe"), ""
    try:
        function = torch_callable(name)
    except ReplayError:  # another torch's
        return "safe", ""
    return ("checked", "") if guarded_function(name, function) is not function else ("safe", "")


def write_callables(fuzzed: dict[str, str], forget: str) -> Counter[str]:
    """Write how each function and method stands; which there are is not for this script to say."""
    old = dict(callable_standings())
    rows = {
        name: callable_standing(name, fuzzed, ("safe", "") if re.search(forget, name) else before)
        for name, before in old.items()
    }
    CALLABLES.write_text("".join(" ".join((name, *row)).rstrip() + "\n" for name, row in sorted(rows.items())))
    return Counter(each for each, _ in rows.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fuzz", type=Path, nargs="*", default=[], help="what tests/fuzz/operators.py wrote")
    parser.add_argument("--forget", default=r"(?!)", help="operators whose marks of earlier fuzzes go away, a pattern")
    asked = parser.parse_args()
    old = read_rows(TABLE.read_text())
    known = {name: row.flags for name, row in old.items()} | admitted()
    fuzzed = killers(asked.fuzz)
    rows = {
        name: OperatorRow(kept, *standing(name, fuzzed, None if re.search(asked.forget, name) else old.get(name)))
        for name, kept in known.items()
    }
    TABLE.write_text(text_of_rows(rows))
    counts = Counter(row.standing for row in rows.values())
    print(f"{len(rows)} operators, {len(rows) - len(old)} new, {dict(counts)}; torch {torch.__version__}")
    print(f"callables of GraphNet: {dict(write_callables(fuzzed, asked.forget))}")


if __name__ == "__main__":
    main()
