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

from face import NORMAL_LARGEST as LARGEST
from face import Kernel, RefusedError, UsageError, kernel_hash, normal_form, structure_hash

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
    "options left at their default": lambda source: source.replace("'disable_ftz': False, ", ""),
    "another order of metadata": lambda source: re.sub(
        r"('constants': \{\}), ('native_matmul': False)", r"\2, \1", source
    ),
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
    "the binding of the cache": lambda source: source + "\n// Python bindings to call kernel():\n#define X {{{\n",
}


@pytest.mark.parametrize("change", SAME_TRITON)
def test_the_same_triton_program_has_one_hash(change: str) -> None:
    changed = 0
    for kernel in TRITON:
        source = SAME_TRITON[change](kernel.source)
        changed += source != kernel.source
        assert kernel_hash(replace(kernel, source=source)) == kernel_hash(kernel), kernel.name
    assert changed > 0, "the change changed nothing"


@pytest.mark.parametrize("change", SAME_CPP)
def test_the_same_cpp_program_has_one_hash(change: str) -> None:
    changed = 0
    for kernel in CPP:
        source = SAME_CPP[change](kernel.source)
        changed += source != kernel.source
        assert kernel_hash(replace(kernel, source=source)) == kernel_hash(kernel), kernel.name
    assert changed > len(CPP) / 2, "the change changed next to nothing"


def test_a_name_is_no_key() -> None:
    for kernel in (*TRITON, *CPP):
        source = re.sub(rf"\b{kernel.name}\b", "renamed_kernel_12", kernel.source)
        other = replace(kernel, name="renamed_kernel_12", source=source, sample="elsewhere", place="x.py")
        assert kernel_hash(other) == kernel_hash(kernel)


def test_hashes_are_those_of_another_process() -> None:
    here = Path(__file__).parents[1]
    code = (
        "from kernels.inductor_sources import inductor_kernels\n"
        "from backprint.tools.kernels.normal import kernel_hash\n"
        "print(*[kernel_hash(one) for one in inductor_kernels()])"
    )
    for seed in ("1", "2"):
        known = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parent / "src")])}
        command = [sys.executable, "-c", code]
        said = subprocess.run(
            command, env={**known, "PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        )
        assert said.stdout.split() == [kernel_hash(one) for one in inductor_kernels()]


def test_different_kernels_have_different_hashes() -> None:
    kernels = (*TRITON, *CPP)
    forms = {kernel_hash(kernel): re.sub(r"\s|\w*fused\w*", "", kernel.source) for kernel in kernels}
    assert len(forms) == len(set(forms.values())) > 30
    assert len({kernel_hash(kernel) for kernel in kernels}) == len(kernels)


def test_a_pair_of_temporaries_that_change_places_is_another_program() -> None:
    kernel = next(kernel for kernel in TRITON if "tmp1 - tmp" in kernel.source or "tmp0 - tmp" in kernel.source)
    swapped = re.sub(r"(\btmp\d+) - (tmp\d+)", r"\2 - \1", kernel.source, count=1)
    assert swapped != kernel.source
    assert kernel_hash(replace(kernel, source=swapped)) != kernel_hash(kernel)


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
        assert structure_hash(other) == structure_hash(kernel)
        assert kernel_hash(other) != kernel_hash(kernel)


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
        assert structure_hash(replace(kernel, source=source)) != structure_hash(kernel)


def test_a_cpp_structure_has_types_and_no_sizes() -> None:
    kernel = next(kernel for kernel in CPP if "1e-0" in kernel.source)
    for pattern, instead, same in (
        (r"\d+L", "12L", True),
        ("1e-0", "3e-0", True),
        ("float", "double", False),
        (r"\+=", "-=", False),
    ):
        other = replace(kernel, source=re.sub(pattern, instead, kernel.source))
        assert kernel_hash(other) != kernel_hash(kernel)
        assert (structure_hash(other) == structure_hash(kernel)) is same, pattern


def test_threads_are_in_the_code() -> None:
    pragma = "    #pragma omp parallel num_threads({})\n    {{\n"
    one, two = (replace(CPP[0], source=CPP[0].source.replace("    {\n", pragma.format(n), 1)) for n in (2, 4))
    assert kernel_hash(one) != kernel_hash(two)
    assert structure_hash(one) == structure_hash(two)


def test_a_pragma_names_the_variable_that_it_means() -> None:
    source = "void kernel(float* a) {{ float p = 0; float q = 0;\n#pragma omp for reduction(+:{})\n q = p; }}"
    one, two = (kernel_hash(Kernel("cpp", "k", source.format(name))) for name in "pq")
    assert one != two


def test_a_member_is_no_variable_of_its_name() -> None:
    source = "void kernel(float* a) {{ float {0} = 0; a[0] = b.load({0}); }}"
    one, two = (kernel_hash(Kernel("cpp", "k", source.format(name))) for name in ("load", "other"))
    assert one == two


@pytest.mark.parametrize("expression", ["2 * {};", "x * {};", "f(x * {});", "f(x, y * {});", "(x > {}) ? 1 : 2;"])
def test_what_a_cpp_source_does_not_declare_stays(expression: str) -> None:
    source = "void kernel(float* x, float* y) {{ x[0] = {} }}"
    one, two = (kernel_hash(Kernel("cpp", "k", source.format(expression.format(n)))) for n in ("half_pi", "two_pi"))
    assert one != two


def test_declared_types_count_where_they_are_not_those_of_the_function() -> None:
    kernel = next(kernel for kernel in CPP if "'float*'" in kernel.declared)
    bare, other = (replace(kernel, declared=text) for text in ("", kernel.declared.replace("float", "double", 1)))
    assert kernel_hash(bare) == kernel_hash(kernel) != kernel_hash(other)


def test_a_helper_beside_the_kernel_counts() -> None:
    kernel = next(kernel for kernel in TRITON if "_triton_helper_fn" in kernel.source)
    other = kernel.source.replace("arg0_0 + arg1_0", "arg0_0 * arg1_0")
    assert other != kernel.source
    assert kernel_hash(replace(kernel, source=other)) != kernel_hash(kernel)
    renamed = kernel.source.replace("_triton_helper_fn_add0", "_triton_helper_fn_sum7")
    assert kernel_hash(replace(kernel, source=renamed)) == kernel_hash(kernel)


def test_a_helper_called_by_keyword_keeps_its_parameters_apart() -> None:
    text = "import triton\n@triton.jit\ndef h({}):\n    return a - b\n@triton.jit\ndef k(p, q):\n    h(a=p, b=q)\n"
    one, two = (kernel_hash(Kernel("triton", "k", text.format(names))) for names in ("a, b", "b, a"))
    assert one != two


def test_a_variable_of_the_module_keeps_its_name() -> None:
    text = "import triton\n{} = 1\n{} = 2\n@triton.jit\ndef k(p):\n    q = p + X\n    return q\n"
    one, two = (kernel_hash(Kernel("triton", "k", text.format(*names))) for names in ("XY", "YX"))
    assert one != two


def test_an_import_is_what_its_name_stands_for() -> None:
    kernel = next(kernel for kernel in TRITON if "libdevice." in kernel.source)
    other = kernel.source.replace(
        "triton_helpers import libdevice, math as tl_math", "triton_helpers import math as libdevice"
    )
    assert kernel_hash(replace(kernel, source=other)) != kernel_hash(kernel)


def test_one_import_for_another_is_another_program() -> None:
    other = TEMPLATE.replace("import triton.language as tl", "import elsewhere.language as tl")
    assert kernel_hash(Kernel("triton", "k", other)) != kernel_hash(Kernel("triton", "k", TEMPLATE))


# ------------------------------------------------------------------ the order of helpers, constants and steps

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

SAME_STEPS = {
    "loads in a loop": (LOAD_A + LOAD_B, LOAD_B + LOAD_A),
    "a mask later": (
        "    m = at < n\n    total = tl.zeros([BLOCK], dtype=tl.float32)\n",
        "    total = tl.zeros([BLOCK], dtype=tl.float32)\n    m = at < n\n",
    ),
    "a second name that nobody reads": ("    m = at < n\n", "    m = at < n\n    also = at\n"),
    "helpers": (ADD + SCALE, SCALE + ADD),
    "constants": ("EPS = 1e-5\nTWO = 2.0\n", "TWO = 2.0\nEPS = 1e-5\n"),
    "a constant's name": ("EPS", "EPSILON"),
    "a constexpr's name": ("BLOCK", "BS"),
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


@pytest.mark.parametrize("case", SAME_STEPS)
def test_the_order_of_independent_steps_does_not_count(case: str) -> None:
    changed = STEPS.replace(*SAME_STEPS[case])
    assert changed != STEPS
    assert kernel_hash(Kernel("triton", "k", changed)) == kernel_hash(Kernel("triton", "k", STEPS))


@pytest.mark.parametrize("case", OTHER_STEPS)
def test_the_order_of_steps_that_depend_on_each_other_counts(case: str) -> None:
    changed = STEPS.replace(*OTHER_STEPS[case])
    assert changed != STEPS
    assert kernel_hash(Kernel("triton", "k", changed)) != kernel_hash(Kernel("triton", "k", STEPS))


def test_a_value_read_before_and_after_it_is_changed_is_two_programs() -> None:
    late = "        total += add(a, scale(b))\n        old = total * 2\n        total = total + old\n"
    early = "        old = total * 2\n        total += add(a, scale(b))\n        total = total + old\n"
    one, two = (STEPS.replace("        total += add(a, scale(b))\n", text) for text in (late, early))
    assert kernel_hash(Kernel("triton", "k", one)) != kernel_hash(Kernel("triton", "k", two))


# ------------------------------------------------------------------ hostile sources

DEEP = 100_000

HOSTILE_TRITON = {
    "truncated": TRITON[0].source[: len(TRITON[0].source) * 2 // 3],
    "no kernel": "x = 1\n",
    "binary": "\x00\x01\x7fELF",
    "deep parentheses": "x = " + "(" * DEEP + ")" * DEEP,
    "a long sum": "x = " + "1 + " * 60_000 + "1",
    "words without end": "x\n" * 300_000,
    "too large": "#" * (LARGEST + 1),
    "a long integer": "import triton\n@triton.jit\ndef k(a):\n    x = 0x" + "f" * 20_000,
    "a decimal": "x = " + "9" * 20_000,
}

HOSTILE_CPP = {
    "truncated": CPP[0].source[: len(CPP[0].source) * 2 // 3],
    "no function": "int x;",
    "binary": "\x00\x01\x7fELF{}",
    "a text without end": 'void kernel() { f("abc); }',
    "a comment without end": "void kernel() { } /* abc",
    "many texts without end": "void kernel() { } " + '"' * 999_999,
    "many raw texts": 'R"a(' * 500_000,
    "too large": "/" * (LARGEST + 1),
    "words without end": "void kernel() { } " + "x " * 900_000,
}


@pytest.mark.parametrize("case", HOSTILE_TRITON)
def test_a_hostile_triton_source_is_refused_by_name(case: str) -> None:
    with pytest.raises(RefusedError, match="hostile_kernel"):
        normal_form(Kernel("triton", "hostile_kernel", HOSTILE_TRITON[case]))


@pytest.mark.parametrize("case", HOSTILE_CPP)
def test_a_hostile_cpp_source_is_refused_by_name(case: str) -> None:
    with pytest.raises(RefusedError, match="hostile_kernel"):
        normal_form(Kernel("cpp", "hostile_kernel", HOSTILE_CPP[case]))


def test_a_source_that_would_run_is_only_parsed(tmp_path: Path) -> None:
    marker = str(tmp_path / "ran")
    normal_form(Kernel("triton", "k", f"open({marker!r}, 'w').write('ran')\n{TEMPLATE}"))
    assert not Path(marker).exists()


def test_a_language_that_nobody_knows_is_named() -> None:
    with pytest.raises(UsageError, match="'fortran' is no language of kernels; known are triton, cpp"):
        normal_form(Kernel("fortran", "k", "end"))
