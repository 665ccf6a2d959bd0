"""Kernels in folders of others: wrappers, a cache, GraphNet's layout, files of their own, and what cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kernels.inductor_sources import TEMPLATE, inductor_kernels, unpack
from kernels.saved_layout import save_layout

from face import WRAPPER_LARGEST, ExternCalls, Kernel, UnreadKernels, UsageError, kernel_hash, read_kernels


def read(place: Path) -> tuple[list[Kernel], list[UnreadKernels]]:
    found = list(read_kernels(place))
    kernels = [one for one in found if isinstance(one, Kernel)]
    return kernels, [one for one in found if isinstance(one, UnreadKernels)]


def test_wrappers_have_their_kernels_by_sample_and_direction(tmp_path: Path) -> None:
    kernels, unread = read(unpack(tmp_path))
    assert unread == []
    assert len(kernels) == len(inductor_kernels()) - 1
    assert {kernel_hash(one) for one in kernels} < {kernel_hash(one) for one in inductor_kernels()}
    block = [kernel for kernel in kernels if kernel.sample == "cuda_block"]
    assert [kernel.name for kernel in block if kernel.direction == "forward"] == [
        "triton_per_fused_addmm_gelu_native_layer_norm_0",
        "triton_per_fused__softmax_1",
    ] or len(block) > 3
    assert {kernel.direction for kernel in kernels} == {"forward", "backward"}
    assert all(Path(kernel.place).name == "output_code.py" for kernel in kernels)
    assert {kernel.language for kernel in kernels if kernel.sample.startswith("cpu")} == {"cpp"}


def test_a_wrapper_says_its_direction(tmp_path: Path) -> None:
    source = next(kernel for kernel in inductor_kernels("cpp")).source
    call = f"cpp_fused_0 = async_compile.cpp_pybinding(['float*'], r'''{source}''')\n"
    (tmp_path / "output_code.py").write_text(f"# AOT ID: ['3_backward']\n{call}")
    [kernel], _ = read(tmp_path)
    assert (kernel.direction, kernel.sample, kernel.declared) == ("backward", tmp_path.name, "['float*']")


def test_a_cache_is_one_sample(tmp_path: Path) -> None:
    cpp, triton = inductor_kernels("cpp")[0], inductor_kernels("triton")[0]
    for name, text in {
        "ab/cabcd.py": f"k = async_compile.triton('{triton.name}', '''{triton.source}''', device_str='cuda')\n",
        "xy/cxyzz.py": triton.source,
        "qq/cqqqq.main.cpp": f"{cpp.source}\n// Python bindings to call kernel():\n#define X {{{{\n",
        "zz/czzzz.cpp": '#include <immintrin.h>\nextern "C" __m512bh __avx512_bf16_chk_kernel(__m512 a) {}\n',
        "fxgraph/notes.txt": "nothing",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    kernels, unread = read(tmp_path)
    assert unread == []
    assert {kernel.sample for kernel in kernels} == {tmp_path.name}
    assert [kernel_hash(kernel) for kernel in kernels] == [kernel_hash(one) for one in (triton, cpp)]


def test_the_layout_of_graphnet(tmp_path: Path) -> None:
    for sample in ("extracted/one", "extracted/two"):
        place = tmp_path / sample
        for folder in ("original_graph", "triton_kernel", "ptx"):
            (place / folder).mkdir(parents=True)
        (place / "original_graph" / "model.py").write_text("import torch\nclass GraphModule(torch.nn.Module): ...\n")
        (place / "triton_kernel" / "triton_tem_fused_mm_0.py").write_text(TEMPLATE)
        (place / "ptx" / "triton_tem_fused_mm_0.ptx").write_text("// ptx")
    kernels, unread = read(tmp_path)
    assert unread == []
    assert [(kernel.sample, kernel.name) for kernel in kernels] == [
        ("extracted/one", "triton_tem_fused_mm_0"),
        ("extracted/two", "triton_tem_fused_mm_0"),
    ]


def test_a_sample_comes_in_one_piece(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(TEMPLATE)
    for folder in ("inner", "triton_kernel", "pair_0/backward", "zoo"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "k.py").write_text(TEMPLATE)
    samples = [kernel.sample for kernel in read(tmp_path)[0]]
    assert samples == [tmp_path.name] * 3 + ["inner", "zoo"]


# ------------------------------------------------------------------ what cannot be read

SOURCE = inductor_kernels("triton")[0].source
MARK = "import triton\n@triton.jit\n"

BAD_FILES: dict[str, tuple[bytes, str]] = {
    "truncated.py": (f"k = async_compile.triton('k', '''{SOURCE[:500]}".encode(), "not Python"),
    "binary.py": (b"\x7fELF\x00\x01" + MARK.encode(), "not text: it has a zero byte"),
    "latin.py": (b"# caf\xe9\n" + MARK.encode(), "not UTF-8 text (byte 5)"),
    "deep.py": (f"{MARK}x = {'(' * 5000}".encode(), "not Python"),
    "long.py": (f"{MARK}def k(): ...\nx = {'-' * 90000}1".encode(), "nested too deeply"),
    "wide.py": (f"{MARK}{'x;' * 300000}".encode(), "words and signs of code"),
    "variable.py": (
        b"k = async_compile.triton('k', source, device_str='cuda')\n",
        "line 1: k: its source is not a string",
    ),
    "large.py": (f"k = async_compile.triton('k', '''{'#' * (5 << 20)}''')\n".encode(), "k: a source of 5242880"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_that_cannot_be_read_is_named_and_the_rest_is_read(tmp_path: Path, name: str) -> None:
    content, reason = BAD_FILES[name]
    (tmp_path / name).write_bytes(content)
    (tmp_path / "zz_good.py").write_text(TEMPLATE)
    kernels, [unread] = read(tmp_path)
    assert [kernel.name for kernel in kernels] == ["triton_tem_fused_mm_0"]
    assert unread.place == str(tmp_path / name)
    assert reason in unread.reason


def test_a_file_of_a_hundred_megabytes_is_not_opened_to_its_end(tmp_path: Path) -> None:
    with open(tmp_path / "huge.py", "wb") as huge:
        huge.truncate(100 << 20)
    _, [unread] = read(tmp_path)
    assert unread.reason == f"{100 << 20:,} bytes; at most {WRAPPER_LARGEST:,} are read"


def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    _, [unread] = read(tmp_path)
    assert unread.reason == "is not a regular file"


def test_links_to_folders_are_not_followed_and_a_link_to_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to(tmp_path)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere")
    (tmp_path / "k.py").write_text(TEMPLATE)
    kernels, [unread] = read(tmp_path)
    assert len(kernels) == 1
    assert unread.place.endswith("gone.py")
    assert "No such file" in unread.reason


def test_what_a_file_would_do_if_it_ran_is_not_done(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    attack = f"import pathlib\npathlib.Path({str(marker)!r}).touch()\n"
    (tmp_path / "module.py").write_text(f"{attack}{TEMPLATE}")
    other = TEMPLATE.replace("GROUP_M : tl.constexpr = 8", "GROUP_M : tl.constexpr = 4")
    (tmp_path / "wrapper.py").write_text(f"{attack}k = async_compile.triton('k', '''{attack}{other}''')\n")
    kernels, unread = read(tmp_path)
    assert (len(kernels), unread) == (2, [])
    assert [kernel_hash(kernel) for kernel in kernels]
    assert not marker.exists()
    exec(attack)
    assert marker.exists(), "the attack would have worked"


def test_a_folder_without_kernels_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import torch\n")
    (tmp_path / "deeper").mkdir()
    assert read(tmp_path)[0] == []
    [unread] = read(tmp_path)[1]
    assert unread.place == str(tmp_path)
    assert unread.reason.startswith("there are no kernels here; kinds of files that are read: a kernel that ")
    with pytest.raises(UsageError, match="there is no such file or folder"):
        list(read_kernels(tmp_path / "missing"))


def test_a_module_by_hand_has_several_kernels(tmp_path: Path) -> None:
    kernel = "@triton.jit\ndef {0}(p, n):\n    tl.store(p + n, {1})\n\n"
    text = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef helper(x):\n    return x + 1\n\n"
    text += kernel.format("first", "helper(n)") + kernel.format("second", "n * 2")
    text += "def launch(p):\n    first[(1,)](p, 3)\n"
    (tmp_path / "ops.py").write_text(text)
    kernels, _ = read(tmp_path)
    assert [kernel.name for kernel in kernels] == ["first", "second"]
    assert len({kernel_hash(kernel) for kernel in kernels}) == 2


def test_one_file_is_enough(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(TEMPLATE)
    [kernel], _ = read(tmp_path / "kernel.py")
    assert (kernel.sample, kernel.name) == ("kernel", "triton_tem_fused_mm_0")


# ------------------------------------------------------------------ what Backprint saves


def test_the_folders_that_backprint_writes(tmp_path: Path) -> None:
    kernels, unread = read(save_layout(tmp_path))
    assert unread == []
    of_cpu = [kernel for kernel in kernels if kernel.language == "cpp"]
    assert len(kernels) == len(of_cpu) + 2 * (len(inductor_kernels("triton")) - 1), "stand-alone files count no more"
    assert len(of_cpu) == len(inductor_kernels("cpp"))
    assert {kernel.sample for kernel in kernels} == {path.name for path in tmp_path.iterdir()}
    assert {kernel.target for kernel in kernels} == {"cpu:avx2", "cuda:80", "cuda:90"}
    assert {kernel.direction for kernel in kernels} == {"forward", "backward"}
    first = kernels[0]
    assert (first.compiler, first.threads, len(first.calls)) == ("inductor 2.13.0", 1, 2)
    assert first.operators[0].operator == "aten.gelu.default"
    assert first.calls[0].arguments[2].value == 32
    assert {Path(kernel.place).name for kernel in kernels} == {"wrapper.py"}
    called = [found for found in read_kernels(tmp_path) if isinstance(found, ExternCalls)]
    assert len(called) == len(list(tmp_path.rglob("graph.json")))
    assert called[0].operators == {"aten.addmm.out": 2, "aten.mm.out": 1}


@pytest.mark.parametrize("below", ["", "block", "block/cuda_90", "block/cuda_90/pair_0/forward"])
def test_a_part_of_such_a_folder_says_the_same(tmp_path: Path, below: str) -> None:
    (tmp_path / "saved").mkdir()
    place = save_layout(tmp_path / "saved") / below
    found = [
        one for one in read(place)[0] if (one.sample, one.target, one.direction) == ("block", "cuda:90", "forward")
    ]
    assert len(found) == 2
    assert all(kernel.calls for kernel in found)


def test_stand_alone_files_are_read_where_they_are_alone(tmp_path: Path) -> None:
    folder = save_layout(tmp_path) / "block" / "cuda_90" / "pair_0" / "forward"
    hashes = {kernel_hash(kernel) for kernel in read(folder)[0]}
    (folder / "kernels").rename(tmp_path / "taken_along")
    assert {kernel_hash(kernel) for kernel in read(tmp_path / "taken_along")[0]} == hashes


def test_a_file_that_is_added_beside_a_wrapper_counts(tmp_path: Path) -> None:
    folder = save_layout(tmp_path) / "block" / "cuda_90" / "pair_0" / "forward"
    before = len(read(folder)[0])
    (folder / "kernels" / "by_hand.py").write_text(TEMPLATE)
    assert [kernel.name for kernel in read(folder)[0]][before:] == ["triton_tem_fused_mm_0"]


def test_a_stand_alone_file_that_was_edited_counts(tmp_path: Path) -> None:
    folder = save_layout(tmp_path) / "block" / "cuda_90" / "pair_0" / "forward"
    before = len(read(folder)[0])
    [first, *_] = sorted((folder / "kernels").iterdir())
    first.write_text(first.read_text().replace("xnumel = 8\n", "xnumel = 9\n"))
    assert len(read(folder)[0]) == before + 1


def test_a_wrapper_alone_has_its_facts(tmp_path: Path) -> None:
    place = save_layout(tmp_path) / "block" / "cuda_90" / "pair_0" / "forward" / "wrapper.py"
    found, _ = read(place)
    assert [(one.sample, one.target, len(one.calls)) for one in found] == [("block", "cuda:90", 2)] * 2


def test_folders_of_others_with_these_names_are_samples(tmp_path: Path) -> None:
    for name in ("cpu", "kernels", "built", "cuda_90"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "k.py").write_text(TEMPLATE)
    assert [kernel.sample for kernel in read(tmp_path)[0]] == ["built", "cpu", "cuda_90", "kernels"]
    assert {kernel.target for kernel in read(tmp_path)[0]} == {""}


BAD_FACTS: dict[str, tuple[str, str]] = {
    "newer": ('"format": 1', '"format": 2'),
    "truncated": ('"externs"', "!"),
    "shape": ('"shape": [4, 8]', '"shape": [4, -8]'),
    "grid": ('"grids": [[1, 1, 1]]', '"grids": [[1, 1]]'),
    "kernels": ('"kernels": [', '"kernels": [7, '),
    "deep": ('"notes": []', '"notes": ' + "[" * 90000),
    "long": ('"value": 32', '"value": ' + "1" * 9000),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD_FACTS)
def test_a_graph_whose_facts_cannot_be_read_is_named_and_the_rest_is_read(tmp_path: Path, name: str) -> None:
    old, new = BAD_FACTS[name]
    place = save_layout(tmp_path) / "block" / "cuda_90" / "pair_0" / "forward" / "graph.json"
    count = len(read(tmp_path)[0])
    text = place.read_text()
    assert old in text
    place.write_text(text.replace(old, new))
    kernels, [unread] = read(tmp_path)
    assert len(kernels) == count - 2, "of this graph nothing is read"
    assert unread.place == str(place)
    assert str(place) not in unread.reason
    assert unread.reason
    if name == "newer":
        assert unread.reason.startswith("a folder of format 2; this version reads 1: read it with the Backprint that")


def test_facts_without_a_wrapper_are_named(tmp_path: Path) -> None:
    place = save_layout(tmp_path) / "block" / "cuda_90" / "pair_0" / "forward"
    (place / "wrapper.py").unlink()
    _, [unread] = read(tmp_path)
    assert unread.reason == "there is no wrapper.py beside it, which has the kernels"
