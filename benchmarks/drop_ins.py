"""Programs in Inductor's kernels (`bp.lower`): rows of several lengths, and PyTorch's own database of operators.

    python benchmarks/drop_ins.py rows          six programs × rows of 1, 17, 128, 1,000 and 4,097 elements
    python benchmarks/drop_ins.py operators     each operator of `torch.testing._internal`, on its first sample

Outputs and gradients are compared with eager: of `rows` by `.check()`, at the captured sizes and at free ones; of
`operators` in this process, whose interpreter of Triton is mended as that of `.check()` is.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

COLUMNS = (1, 17, 128, 1000, 4097)

LIMIT = 40
"""Seconds for an operator."""


def print_rows(dtypes: Sequence[str], names: Sequence[str]) -> None:
    """Print a table of programs and lengths of rows."""
    from backprint.errors import BackprintError
    from tests.kernels.fused_programs import PROGRAMS

    print("| program | dtype | row | kernels | bytes / least | at captured sizes | for every size | lowering |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in names or PROGRAMS:
        for dtype in dtypes:
            for columns in COLUMNS:
                try:
                    cells = cells_of_rows(name, dtype, columns)
                except BackprintError as error:
                    cells = [f"refused: {str(error)[:100]}"]
                print(f"| {name} | {dtype} | {columns:,} | {' | '.join(cells)} |", flush=True)


def cells_of_rows(name: str, dtype: str, columns: int) -> list[str]:
    """Return a row of the table."""
    import torch

    import backprint as bp
    from tests.kernels.fused_programs import PROGRAMS

    function, inputs = PROGRAMS[name]
    kind = getattr(torch, dtype)
    torch.manual_seed(0)
    begun = time.perf_counter()
    fixed = bp.lower(function, inputs(6, columns, kind), name=name)
    seconds = time.perf_counter() - begun
    free = bp.lower(function, lambda rows: inputs(rows, columns, kind), name=name)
    return [
        " + ".join(str(len(free.file.texts[side].kernels)) for side in free.file.texts),
        ", ".join(f"{count.ratio:.3f}" for count in free.traffic().values()),
        words_of(fixed.check()),
        words_of(free.check((1, 2, 130))),
        f"{seconds:.1f} s",
    ]


def words_of(comparison: Any) -> str:
    """Return a comparison in words."""
    worst = comparison.worst
    return f"{'right' if comparison.ok else 'WRONG'}, {worst.difference:.1e} of {worst.allowed:.1e}"


def print_operators(names: Sequence[str]) -> None:
    """Print what becomes of each operator, and the counts."""
    os.environ["TRITON_INTERPRET"] = "1"
    from torch.testing._internal.common_methods_invocations import op_db
    from triton.runtime.interpreter import GridExecutor

    from backprint.tools.kernels.checking.interpreter import patch_interpreter
    from backprint.tools.kernels.checking.memory import launch_of

    warnings.simplefilter("ignore")
    patch_interpreter()
    launch = GridExecutor.__call__

    def within_arguments(self: Any, *args: Any, **kwargs: Any) -> Any:
        with launch_of([*args, *kwargs.values()]):
            return launch(self, *args, **kwargs)

    GridExecutor.__call__ = within_arguments

    def late(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    counts: Counter[str] = Counter()
    for info in op_db:
        if names and info.formatted_name not in names:
            continue
        signal.alarm(LIMIT)
        try:
            word = outcome(info)
        except TimeoutError:
            word = f"not tried: over {LIMIT} s"
        except Exception as error:  # of any kind: the database has operators of other devices and dtypes
            word = f"not tried: {type(error).__name__}: {str(error)[:100]}"
        finally:
            signal.alarm(0)
        counts[word.partition(":")[0]] += 1
        line = word.replace("\n", " ")
        print(f"{info.formatted_name}\t{line}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in counts.most_common()))


def outcome(info: Any) -> str:
    """Return whether an operator in kernels is right, or why there is none."""
    import torch

    import backprint as bp
    from backprint.errors import BackprintError
    from backprint.tools.kernels.lowered_check import row_of

    samples = info.sample_inputs("cpu", torch.float32, requires_grad=info.supports_autograd)
    sample = next((item for item in samples if isinstance(item.input, torch.Tensor) and item.input.numel()), None)
    if sample is None:
        return "not tried: no sample with elements"

    def called(*args: Any, **kwargs: Any) -> Any:
        return info.op(*args, **kwargs)

    try:
        lowered = bp.lower(
            bp.capture(called, args=(sample.input, *sample.args), kwargs=dict(sample.kwargs), partition="min-cut"),
            name="program",
        )
        subject, cases = lowered.compared_with()
    except BackprintError as error:
        return f"refused: {type(error).__name__}: {str(error)[:150]}"
    module = subject.load()
    rows = []
    for case in cases:
        answers = dict(results(module.program, subject.face, case))
        rows += [row_of(case, port, answers.get(port), value) for port, value in case.results.items()]
    wrong = [row for row in rows if not row.ok]
    return f"WRONG: {wrong[0]}" if wrong else "right"


def results(program: Any, face: Any, case: Any) -> Iterator[tuple[str, Any]]:
    """Yield the outputs and gradients of a file on the inputs of a case."""
    import torch

    tensors = zip(case.inputs.values(), face.gradients, strict=True)
    inputs = [tensor.detach().clone().requires_grad_(flag) for tensor, flag in tensors]
    outputs = program(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    yield from ((f"output {name}", output.detach()) for name, output in zip(face.outputs, outputs, strict=True))
    wanted = {name: tensor for name, tensor in zip(face.inputs, inputs, strict=True) if tensor.requires_grad}
    pairs = [(y, g) for y, g in zip(outputs, case.tangents, strict=True) if y.requires_grad and g is not None]
    if pairs and wanted:
        sides = ([pair[place] for pair in pairs] for place in (0, 1))
        y, g = sides
        gradients = torch.autograd.grad(y, list(wanted.values()), g, materialize_grads=True)
        yield from ((f"gradient {name}", gradient) for name, gradient in zip(wanted, gradients, strict=True))


def main() -> None:
    """Print the table that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("rows", "operators"))
    parser.add_argument("names", nargs="*", help="those programs or operators alone")
    parser.add_argument("--dtypes", default="float32", help="of rows: float32,float16,bfloat16")
    options = parser.parse_args()
    if options.table == "rows":
        print_rows(options.dtypes.split(","), options.names)
    else:
        print_operators(options.names)


if __name__ == "__main__":
    main()
