"""Normal forms: the same program has one hash whatever its names and layout; its structure has one without sizes."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from kernels.inductor_sources import TEMPLATE, inductor_kernels

from face import Kernel, RefusedError

TRITON = inductor_kernels("triton")
CPP = inductor_kernels("cpp")

Change = Callable[[str], str]


def shift_numbers(names: str, by: int) -> Change:
    """Renumber temporaries: `tmp3` is `tmp<3 + by>`."""
    return lambda source: re.sub(rf"\b({names})(\d+)\b", lambda found: f"{found[1]}{int(found[2]) + by}", source)


def reformat_python(source: str) -> str:
    return ast.unparse(ast.parse(source))


def rename_pointers(source: str) -> str:
    return re.sub(r"\b(in|out)_ptr(\d+)\b", r"\1put_\2", source)


SAME_TRITON: dict[str, Change] = {
    "renumbered temporaries": shift_numbers("tmp", 40),
    "other words for temporaries": lambda source: re.sub(r"\btmp(\d+)\b", r"value_\1", source),
    "other parameters' names": rename_pointers,
    "a docstring": lambda source: re.sub(r"(\ndef triton_[^\n]*:\n)", r'\1    """Says something."""\n', source),
    "formatted by Python": reformat_python,
    "a device's ordinal": lambda source: source.replace("index=0", "index=3"),
    "another device of its kind": lambda source: source.replace("multi_processor_count=132, cc=90", "cc=80"),
    "a path": lambda source: source.replace("filename=__file__", "filename='/some/cache/ab/cab.py'"),
    "a backend's hash": lambda source: source.replace("'NOGPU'", "'D3F1A0'"),
    "a kernel's name in metadata": lambda source: re.sub(r"'kernel_name': '\w+'", "'kernel_name': 'other'", source),
    "settings of tuning": lambda source: source.replace("'max_autotune': False", "'max_autotune': True"),
    "statistics": lambda source: re.sub(r"'num_load': \d+", "'num_load': 99", source),
    "another alias of an import": lambda source: re.sub(r"\btl\b", "T", source),
    "no choice of a driver": lambda source: source.replace("triton_helpers.set_driver_to_gpu()\n", ""),
}

SAME_CPP: dict[str, Change] = {
    "renumbered temporaries": shift_numbers("tmp", 40),
    "other words for temporaries": lambda source: re.sub(r"\btmp(\d+)\b", r"value_\1", source),
    "other parameters' names": rename_pointers,
    "comments": lambda source: source.replace(";\n", "; // a comment\n/* and\nmore */\n"),
    "all in wide lines": lambda source: re.sub(r";\s*\n\s*(?=auto)", "; ", source),
    "another function's name": lambda source: re.sub(r"\bkernel\b", "cpp_fused_add_7", source),
    "another include": lambda source: source.replace("<torch/csrc/inductor/cpp_prefix.h>", '"/some/cache/xx/cxx.h"'),
}


@pytest.mark.parametrize("change", SAME_TRITON)
def test_the_same_triton_program_has_one_hash(change: str) -> None:
    changed = 0
    for kernel in TRITON:
        source = SAME_TRITON[change](kernel.source)
        changed += source != kernel.source
        assert replace(kernel, source=source).hash == kernel.hash, kernel.name
    assert changed > 0, "the change changed nothing"


@pytest.mark.parametrize("change", SAME_CPP)
def test_the_same_cpp_program_has_one_hash(change: str) -> None:
    changed = 0
    for kernel in CPP:
        source = SAME_CPP[change](kernel.source)
        changed += source != kernel.source
        assert replace(kernel, source=source).hash == kernel.hash, kernel.name
    assert changed > len(CPP) / 2, "the change changed next to nothing"


def test_a_name_is_no_key() -> None:
    for kernel in (*TRITON, *CPP):
        source = re.sub(rf"\b{kernel.name}\b", "renamed_kernel_12", kernel.source)
        other = replace(kernel, name="renamed_kernel_12", source=source, sample="elsewhere")
        assert other.hash == kernel.hash


def test_hashes_are_those_of_another_process() -> None:
    here = Path(__file__).parents[1]
    code = "from kernels.inductor_sources import inductor_kernels\nprint(*[one.hash for one in inductor_kernels()])"
    for seed in ("1", "2"):
        known = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parent / "src")])}
        command = [sys.executable, "-c", code]
        said = subprocess.run(
            command, env={**known, "PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        )
        assert said.stdout.split() == [one.hash for one in inductor_kernels()]


def test_different_kernels_have_different_hashes() -> None:
    kernels = (*TRITON, *CPP)
    forms = {kernel.hash: re.sub(r"\s|\w*fused\w*", "", kernel.source) for kernel in kernels}
    assert len(forms) == len(set(forms.values())) > 30
    assert len({kernel.hash for kernel in kernels}) == len(kernels)


def test_a_pair_of_temporaries_that_change_places_is_another_program() -> None:
    kernel = next(kernel for kernel in TRITON if "tmp1 - tmp" in kernel.source or "tmp0 - tmp" in kernel.source)
    swapped = re.sub(r"(\btmp\d+) - (tmp\d+)", r"\2 - \1", kernel.source, count=1)
    assert swapped != kernel.source
    assert replace(kernel, source=swapped).hash != kernel.hash


# ------------------------------------------------------------------ structure


@pytest.mark.parametrize(
    ("pattern", "instead"),
    [
        (r"xnumel = \d+", "xnumel = 12345"),
        (r"size_hints=\{'x': \d+", "size_hints={'x': 16384"),
        (r"'configs': \[\{.*?\}\]", "'configs': [{(0,): [['tt.divisibility', 16]]}]"),
        (r"x0 = \(xindex % \d+\)", "x0 = (xindex % 77)"),
        (r"1e-05", "1e-06"),
    ],
)
def test_sizes_and_constants_are_no_part_of_a_structure(pattern: str, instead: str) -> None:
    changed = [(kernel, re.sub(pattern, instead, kernel.source)) for kernel in TRITON]
    changed = [(kernel, source) for kernel, source in changed if source != kernel.source]
    assert changed
    for kernel, source in changed:
        other = replace(kernel, source=source)
        assert other.structure == kernel.structure
        assert other.hash != kernel.hash


@pytest.mark.parametrize(
    ("pattern", "instead"),
    [
        (r"'in_ptr0': '\*fp32'", "'in_ptr0': '*fp16'"),
        (r"(tmp\d+) \* (tmp\d+)", r"\1 + \2"),
        (r"xindex < xnumel", "xindex <= xnumel"),
        (r"r0_mask & xmask", "xmask"),
        (r"tl\.float32", "tl.float16"),
        (r"triton_heuristics\.persistent_reduction", "triton_heuristics.reduction"),
        (r"ReductionHint\.INNER", "ReductionHint.OUTER"),
        (r"'xnumel': 'i32'", "'xnumel': 'i64'"),
        (r"other=0\.0", "other=x0"),
    ],
)
def test_types_operators_and_masks_are_the_structure(pattern: str, instead: str) -> None:
    changed = [(kernel, re.sub(pattern, instead, kernel.source, count=1)) for kernel in TRITON]
    changed = [(kernel, source) for kernel, source in changed if source != kernel.source]
    assert changed
    for kernel, source in changed:
        assert replace(kernel, source=source).structure != kernel.structure


def test_a_cpp_structure_has_types_and_no_sizes() -> None:
    kernel = next(kernel for kernel in CPP if "1e-0" in kernel.source)
    for pattern, instead, same in (
        (r"\d+L", "12L", True),
        ("1e-0", "3e-0", True),
        ("float", "double", False),
        (r"\+=", "-=", False),
    ):
        other = replace(kernel, source=re.sub(pattern, instead, kernel.source))
        assert other.hash != kernel.hash
        assert (other.structure == kernel.structure) is same, pattern


def test_threads_are_in_the_code() -> None:
    pragma = "    #pragma omp parallel num_threads({})\n    {{\n"
    one, two = (replace(CPP[0], source=CPP[0].source.replace("    {\n", pragma.format(n), 1)) for n in (2, 4))
    assert one.hash != two.hash
    assert one.structure == two.structure


def test_a_pragma_names_the_variable_that_it_means() -> None:
    source = "void kernel(float* a) {{ float p = 0; float q = 0;\n#pragma omp for reduction(+:{})\n q = p; }}"
    one, two = (Kernel("cpp", "k", source.format(name)).hash for name in "pq")
    assert one != two


def test_a_member_is_no_variable_of_its_name() -> None:
    source = "void kernel(float* a) {{ float {0} = 0; a[0] = b.load({0}); }}"
    one, two = (Kernel("cpp", "k", source.format(name)).hash for name in ("load", "other"))
    assert one == two


@pytest.mark.parametrize("expression", ["2 * {};", "x * {};", "f(x * {});", "f(x, y * {});", "(x > {}) ? 1 : 2;"])
def test_what_a_cpp_source_does_not_declare_stays(expression: str) -> None:
    source = "void kernel(float* x, float* y) {{ x[0] = {} }}"
    one, two = (Kernel("cpp", "k", source.format(expression.format(n))).hash for n in ("half_pi", "two_pi"))
    assert one != two


def test_a_helper_beside_the_kernel_counts() -> None:
    kernel = next(kernel for kernel in TRITON if "_triton_helper_fn" in kernel.source)
    other = kernel.source.replace("arg0_0 + arg1_0", "arg0_0 * arg1_0")
    assert other != kernel.source
    assert replace(kernel, source=other).hash != kernel.hash
    renamed = kernel.source.replace("_triton_helper_fn_add0", "_triton_helper_fn_sum7")
    assert replace(kernel, source=renamed).hash == kernel.hash


def test_a_helper_called_by_keyword_keeps_its_parameters_apart() -> None:
    text = "import triton\n@triton.jit\ndef h({}):\n    return a - b\n@triton.jit\ndef k(p, q):\n    h(a=p, b=q)\n"
    one, two = (Kernel("triton", "k", text.format(names)).hash for names in ("a, b", "b, a"))
    assert one != two


def test_a_variable_of_the_module_keeps_its_name() -> None:
    text = "import triton\n{} = 1\n{} = 2\n@triton.jit\ndef k(p):\n    q = p + X\n    return q\n"
    one, two = (Kernel("triton", "k", text.format(*names)).hash for names in ("XY", "YX"))
    assert one != two


def test_an_import_is_what_its_name_stands_for() -> None:
    kernel = next(kernel for kernel in TRITON if "libdevice." in kernel.source)
    other = kernel.source.replace(
        "triton_helpers import libdevice, math as tl_math", "triton_helpers import math as libdevice"
    )
    assert replace(kernel, source=other).hash != kernel.hash


def test_one_import_for_another_is_another_program() -> None:
    other = TEMPLATE.replace("import triton.language as tl", "import elsewhere.language as tl")
    assert Kernel("triton", "k", other).hash != Kernel("triton", "k", TEMPLATE).hash


# ------------------------------------------------------------------ helpers, constants and steps

STEPS = """import triton
import triton.language as tl
EPS = 1e-5
TWO = 2.0
@triton.jit
def add(a, b):
    return a + b
@triton.jit
def scale(a):
    return a * TWO
@triton.jit
def k(x_ptr, y_ptr, o_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    m = at < n
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for i in range(0, n, BLOCK):
        a = tl.load(x_ptr + i + at, m)
        b = tl.load(y_ptr + i + at, m)
        total += add(a, scale(b))
    c = tl.load(x_ptr + at, m)
    tl.store(x_ptr + at, total, m)
    d = tl.load(x_ptr + at, m)
    tl.store(o_ptr + at, (c - d) + EPS, m)
"""

LOAD_A, LOAD_B = (
    f"        {name} = tl.load({pointer} + i + at, m)\n" for name, pointer in (("a", "x_ptr"), ("b", "y_ptr"))
)
LOAD_C, LOAD_D = (f"    {name} = tl.load(x_ptr + at, m)\n" for name in "cd")
ADD, SCALE = (
    STEPS[STEPS.index("@") : STEPS.index("@triton.jit\ndef scale")],
    STEPS[STEPS.index("@triton.jit\ndef scale") : STEPS.index("@triton.jit\ndef k")],
)
STORE = "    tl.store(x_ptr + at, total, m)\n"

OTHER_NAMES = {
    "a constant's name": ("EPS", "EPSILON"),
    "a helper's name": ("scale", "doubled"),
    "a variable's name": ("total", "summed"),
    "a parameter's name": ("x_ptr", "first"),
    "a comment": ("    m = at < n\n", "    m = at < n  # inside\n"),
}

OTHER_STEPS = {
    "a load before a store": (LOAD_C + STORE + LOAD_D, LOAD_C + LOAD_D + STORE),
    "a load after a store": (LOAD_C + STORE + LOAD_D, STORE + LOAD_C + LOAD_D),
    "loads of each other's pointers": (LOAD_A + LOAD_B, LOAD_A.replace("x_", "y_") + LOAD_B.replace("y_", "x_")),
    "a value before it is added to": (
        "        total += add(a, scale(b))\n",
        "        old = total + a\n        total += add(old, scale(b))\n",
    ),
    "a constant for another": ("EPS = 1e-5\nTWO = 2.0\n", "TWO = 1e-5\nEPS = 2.0\n"),
    "a constant bound again": ("@triton.jit\ndef k", "EPS = 1e-2\n@triton.jit\ndef k"),
    "helpers' bodies": (ADD + SCALE, ADD.replace("a + b", "a - b") + SCALE),
}


@pytest.mark.parametrize("case", OTHER_NAMES)
def test_a_name_does_not_count(case: str) -> None:
    changed = STEPS.replace(*OTHER_NAMES[case])
    assert changed != STEPS
    assert Kernel("triton", "k", changed).hash == Kernel("triton", "k", STEPS).hash


@pytest.mark.parametrize("case", OTHER_STEPS)
def test_another_order_or_another_value_is_another_program(case: str) -> None:
    changed = STEPS.replace(*OTHER_STEPS[case])
    assert changed != STEPS
    assert Kernel("triton", "k", changed).hash != Kernel("triton", "k", STEPS).hash


def test_a_value_read_before_and_after_it_is_changed_is_two_programs() -> None:
    late = "        total += add(a, scale(b))\n        old = total * 2\n        total = total + old\n"
    early = "        old = total * 2\n        total += add(a, scale(b))\n        total = total + old\n"
    one, two = (STEPS.replace("        total += add(a, scale(b))\n", text) for text in (late, early))
    assert Kernel("triton", "k", one).hash != Kernel("triton", "k", two).hash


# ------------------------------------------------------------------ what is no kernel

NO_KERNELS = {
    "truncated": TRITON[0].source[: len(TRITON[0].source) * 2 // 3],
    "no kernel": "x = 1\n",
    "binary": "\x00\x01\x7fELF",
    "deep parentheses": "x = " + "(" * 100_000 + ")" * 100_000,
}


@pytest.mark.parametrize("case", NO_KERNELS)
def test_a_source_without_a_triton_kernel_is_refused_by_name(case: str) -> None:
    with pytest.raises(RefusedError, match="odd_kernel"):
        Kernel("triton", "odd_kernel", NO_KERNELS[case]).hash  # noqa: B018 - it raises


def test_a_language_that_nobody_knows_is_named() -> None:
    with pytest.raises(RefusedError, match="the language 'fortran' is not triton or cpp"):
        Kernel("fortran", "k", "end").hash  # noqa: B018 - it raises
