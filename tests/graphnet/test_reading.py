"""GraphNet samples as TARGETs: read without being run, built under their own names, captured and proved."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from subjects.graphnet_samples import (
    CONVNET,
    HOSTILE,
    HOSTILE_METAS,
    PARAMETER,
    ROWS,
    SAMPLES,
    Handmade,
    floats,
    integers,
    size,
    weight,
    write,
    write_sample,
)
from torch import Tensor

import backprint as bp
from face import (
    MEMBERS,
    BackprintError,
    GraphError,
    RefusedError,
    ReplayError,
    SampleError,
    UsageError,
    build_sample,
    callables,
    capture_target,
    has_graphnet,
    name_inputs,
    plan_of,
    read_code,
    read_graphnet,
    read_target,
    torch_callable,
)


def sample(tmp_path: Path, *lines: str, rows: Any = ROWS, name: str = "made", **options: Any) -> Path:
    """A sample of a few lines."""
    return write_sample(Handmade(rows, "\n".join(lines), **options), tmp_path / name)


def run(place: Path, **options: Any) -> Any:
    """What the built module gives on its inputs."""
    built = build_sample(read_graphnet(place), **options)
    return built.module(**built.inputs)


# ------------------------------------------------------------------ the whole way


@pytest.mark.parametrize(
    ("name", "mode"), [*((name, None) for name in SAMPLES), ("convnet", "train"), ("transformer", "eval")]
)
def test_handmade_samples_are_captured_and_proved(name: str, mode: str | None, tmp_path: Path) -> None:
    capture = bp.capture(write(name, tmp_path / name), mode=mode)
    verdicts = capture.verify()
    good = {"undifferentiable"} if name == "no_gradient" else {"bitwise", "close"}
    assert {verdict.verdict for verdict in verdicts} <= good, verdicts


@pytest.mark.parametrize("name", SAMPLES)
def test_the_function_computes_what_the_file_says(name: str, tmp_path: Path) -> None:
    place = write(name, tmp_path / name)
    built = build_sample(read_graphnet(place))
    values = {**dict(built.module.named_parameters()), **dict(built.module.named_buffers()), **built.inputs}
    values = {key: value.clone() if isinstance(value, Tensor) else value for key, value in values.items()}
    text = (place / "model.py").read_text().replace('"cuda", index=0', '"cpu"').replace('"cuda:0"', '"cpu"')
    space: dict[str, Any] = {}
    exec(compile(text.replace('"cuda"', '"cpu"'), "<the file itself>", "exec"), space)
    raw = {named.raw: values[named.name] for named in plan_of(read_graphnet(place)).inputs}
    wanted = space["GraphModule"]()(**raw)
    torch.set_grad_enabled(True)
    torch.testing.assert_close(built.module(**built.inputs), wanted, rtol=0, atol=0)


@pytest.mark.slow
def test_a_sample_is_captured_from_the_command_line(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from face import main

    place = write("convnet", tmp_path / "convnet")
    done = CliRunner().invoke(main, ["capture", str(place), "-o", str(tmp_path / "out"), "--mode", "train", "--json"])
    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["verdict"], answer["name"]) == (0, "bitwise", "convnet")
    assert ["stem.conv1.weight", "a parameter by its name"] in answer["asks"]
    assert any("1 batch_norm, 1 dropout changed" in note for note in answer["notes"])
    loaded = bp.load(tmp_path / "out")
    assert {port.name for port in loaded.pairs[0].forward.by_role("mutation")} == {
        "stem.bn.running_mean",
        "stem.bn.running_var",
    }
    assert loaded.pairs[0].forward.steps[-2].source.file.endswith("model.py")
    again = CliRunner().invoke(main, ["capture", str(tmp_path / "out"), "-o", str(tmp_path / "again"), "--json"])
    assert json.loads(again.stdout)["verdict"] == "bitwise", again.output


@pytest.mark.slow
def test_verify_takes_a_graphnet_sample_and_folders_of_them(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from face import main

    write("in_place", tmp_path / "corpus" / "a")
    write("subgraph_3", tmp_path / "corpus" / "b" / "subgraph_3")
    bp.capture(tmp_path / "corpus" / "a").save(tmp_path / "corpus" / "ours")
    done = CliRunner().invoke(main, ["verify", "--json", str(tmp_path / "corpus")])
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [Path(row["sample"]).name for row in rows] == ["a", "subgraph_3", "ours"]
    assert {row["verdict"] for row in rows} == {"bitwise"}, rows


def test_show_runs_nothing_and_needs_no_torch(tmp_path: Path) -> None:
    import subprocess

    place = write("transformer", tmp_path / "t")
    code = (
        "import sys\nfrom backprint.cli import main\n"
        f"main(['show', '--json', {str(place)!r}], standalone_mode=False)\nsys.exit(3 if 'torch' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    asks = {each["name"]: each["asks"] for each in row["inputs"]}
    assert asks["embeddings.word_embeddings.weight"] is True
    assert asks["attention_mask"] is asks["input_ids"] is asks["s0"] is False
    assert row["calls"]["torch._C._nn.linear"] == 2


def test_load_says_what_to_do_with_a_graphnet_sample(tmp_path: Path) -> None:
    with pytest.raises(SampleError, match=r"a GraphNet sample, which has no backward yet: bp.capture"):
        bp.load(write("vmap", tmp_path / "vmap"))


def test_one_direction_of_ours_is_no_target(tmp_path: Path) -> None:
    place = bp.capture(write("vmap", tmp_path / "vmap")).save(tmp_path / "out")
    assert not has_graphnet(place / "pair_0" / "forward")
    with pytest.raises(SampleError, match="one direction of a sample of ours: the sample is"):
        read_graphnet(place / "pair_0" / "forward")


def test_a_target_brings_its_own_inputs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="brings its own inputs"):
        bp.capture(write("vmap", tmp_path / "vmap"), torch.ones(3))


def test_the_recipes_of_the_metadata_are_those_of_the_capture(tmp_path: Path) -> None:
    target = read_target(write("convnet", tmp_path / "convnet"))
    capture = capture_target(target)
    for name in ("stem.conv1.weight", "x", "stem.bn.running_var"):
        assert capture.recipes.recipes[name] == target.recipes.recipes[name]
    made = capture.recipes.make()
    assert all(torch.equal(made[name], parameter) for name, parameter in target.model.named_parameters())


@pytest.mark.parametrize(("alias", "dtype"), [("half", "float16"), ("double", "float64")])
def test_other_names_of_dtypes_are_read_as_torch_reads_them(alias: str, dtype: str, tmp_path: Path) -> None:
    rows = [floats(row.name, *row.shape, dtype=f'"torch.{alias}"') for row in ROWS]
    capture = bp.capture(sample(tmp_path, "y = L_x_ * L_self_parameters_w_", "return (y,)", rows=rows))
    assert {port.spec.dtype for port in capture.pairs[0].forward.inputs} == {dtype}


def test_large_samples_are_captured_without_allocating(tmp_path: Path) -> None:
    rows = [floats("L_x_", 4, 2**17), weight("L_self_modules_fc_parameters_weight_", 2**17, 2**17)]
    place = sample(
        tmp_path, "return (torch._C._nn.linear(L_x_, L_self_modules_fc_parameters_weight_, None),)", rows=rows
    )
    target = read_target(place, fake=True)
    assert target.bytes > 2**36
    capture = capture_target(target)
    assert capture.fake
    assert [verdict.verdict for verdict in capture.verify()] == ["unproven"]
    assert capture.recipes.recipes["fc.weight"].kind == target.recipes.recipes["fc.weight"].kind


def test_numbers_that_the_code_reads_are_known_without_allocating(tmp_path: Path) -> None:
    capture = bp.capture(write("convnet", tmp_path / "c"), fake=True, mode="train")
    assert [verdict.verdict for verdict in capture.verify()] == ["unproven"]
    assert [guard.inputs for guard in capture.guards] == [("stem.bn.eps",)]
    assert capture.recipes.recipes["stem.bn.eps"].kind in ("constant", "exact")


# ------------------------------------------------------------------ what no reader may run


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_code_is_refused_by_name(name: str, tmp_path: Path, no_effects: None) -> None:
    text, words = HOSTILE[name]
    with pytest.raises(GraphError) as refusal:
        read_graphnet(write_sample(Handmade(ROWS, ""), tmp_path / "s", model=text))
    assert words in str(refusal.value)
    assert "model.py:" in str(refusal.value)
    assert "--trust" in str(refusal.value)


@pytest.mark.parametrize("name", HOSTILE_METAS)
def test_hostile_metadata_is_refused_by_name(name: str, tmp_path: Path, no_effects: None) -> None:
    text, words = HOSTILE_METAS[name]
    with pytest.raises(BackprintError) as refusal:
        read_graphnet(write_sample(Handmade(ROWS, "return (L_x_,)"), tmp_path / "s", weight_meta=text))
    assert words in str(refusal.value)
    assert "weight_meta.py:" in str(refusal.value)


@pytest.fixture
def no_effects() -> Iterator[None]:
    """Fails where a file is opened for writing, a process is started or code is executed while a sample is read."""
    watching, seen = True, []

    def hook(event: str, args: Any) -> None:
        if watching and event in ("os.system", "subprocess.Popen", "exec", "os.posix_spawn", "import"):
            frame = sys._getframe(1)
            if event != "import" and not frame.f_code.co_filename.startswith("<frozen"):
                seen.append((event, args))

    sys.addaudithook(hook)
    yield
    watching = False
    assert [each for each in seen if "backprint" not in str(each[1])] == []


FORBIDDEN = (
    "apply_ map_ register_hook backward share_memory_ set_ data_ptr storage untyped_storage numpy pin_memory new "
    "module_load as_subclass requires_grad_ retain_grad __reduce_ex__ __setstate__ __class__ __dict__ __array__"
).split()


def test_the_table_holds_nothing_that_reaches_out() -> None:
    assert not {f"Tensor.{name}" for name in FORBIDDEN} & callables()
    words = ("load", "save", "file", "compile", "import", "_storage", "ptr", "set_default", "jit", "cuda.", "serial")
    assert [name for name in callables() if any(word in name for word in words)] == []


LATER = {"torch.nn.functional.linear_cross_entropy": "2.13"}
"""Functions of the table that came with a later torch than the oldest that is supported; before, they are refused."""


def test_every_function_of_the_table_is_there() -> None:
    for name in callables():
        if torch.__version__ < LATER.get(name, "0"):
            with pytest.raises(
                ReplayError, match=f"torch {re.escape(torch.__version__)} has no {name}, which the sample"
            ):
                torch_callable(name)
        elif name.startswith("torch."):
            assert callable(torch_callable(name)), name
        else:
            assert callable(getattr(Tensor, name.removeprefix("Tensor."))), name


def test_only_the_table_is_looked_up() -> None:
    with pytest.raises(ReplayError, match="not in the table"):
        torch_callable("torch.load")


def test_what_the_parser_refuses_is_executed_if_trusted_and_that_is_said(tmp_path: Path) -> None:
    place = sample(tmp_path, "y = [L_x_ * k for k in (1.0, 2.0)]", "return (y[1] * L_self_parameters_w_,)")
    with pytest.raises(RefusedError, match=r"model.py:\d+: .*ListComp.*--trust"):
        read_graphnet(place)
    target = read_target(place, trust=True)
    assert any(note.startswith("executed, because it is trusted: ") and "model.py:" in note for note in target.notes)
    assert [verdict.verdict for verdict in capture_target(target).verify()] == ["bitwise"]


def test_trust_executes_nothing_that_is_parsed(tmp_path: Path) -> None:
    target = read_target(write("in_place", tmp_path / "s"), trust=True)
    assert not any("executed" in note for note in target.notes)


def test_a_trusted_file_that_raises_is_named(tmp_path: Path) -> None:
    place = write_sample(Handmade(ROWS, ""), tmp_path / "s", model="raise ValueError('no')\n")
    with pytest.raises(SampleError, match="executing it raised ValueError: no"):
        read_target(place, trust=True)


# ------------------------------------------------------------------ Python's own meaning


def test_an_update_in_place_changes_the_tensor_and_what_looks_at_it(tmp_path: Path) -> None:
    lines = ("y = L_x_.clone()", "z = y[0]", "y += 1.0", "y = None", "return (z, L_x_[0] * L_self_parameters_w_)")
    z, x = run(sample(tmp_path, *lines))
    place = sample(tmp_path, "return (L_x_[0] + 1.0 + L_self_parameters_w_ * 0,)", name="b")
    assert torch.equal(z, run(place)[0])
    assert x.shape == (3,)


def test_a_name_may_shadow_what_stands_outside(tmp_path: Path) -> None:
    rows = [floats("L_x_", 2, 3), weight("x", 3)]
    lines = ("device = x * 2", "slice = device + L_x_", "inf = slice.sum()", "return (inf, slice)")
    assert run(sample(tmp_path, *lines, rows=rows))[1].shape == (2, 3)


def test_an_input_may_be_called_torch(tmp_path: Path) -> None:
    rows = [floats("L_torch_", 2, data="[-1.0, 1.0]"), floats("L_slice_", 2), weight("w", 2)]
    place = sample(tmp_path, "return (torch.relu(L_torch_)[slice(1, None)], L_slice_ * w)", rows=rows)
    assert list(build_sample(read_graphnet(place)).inputs) == ["torch", "slice"]
    assert run(place)[0].tolist() == [1.0]


def test_an_input_may_have_the_name_that_another_has_in_the_code(tmp_path: Path) -> None:
    rows = [floats("x", 2, original_name='"y"', data="[1.0, 2.0]"), floats("L_x_", 2, data="[3.0, 4.0]")]
    place = sample(tmp_path, "return (x, L_x_)", rows=rows)
    assert list(build_sample(read_graphnet(place)).inputs) == ["y", "x"]
    assert [value.tolist() for value in run(place)] == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("name", ["autocast", "vmap"])
def test_what_torch_keeps_is_as_it_was_even_if_the_graph_raises(name: str, tmp_path: Path) -> None:
    place = write(name, tmp_path / name)
    text = (place / "model.py").read_text()
    for broken in ("y = torch._C._nn.linear(frequency", "total = product.sum()"):
        text = text.replace(
            broken, broken.replace("linear(frequency", "linear(frequency[:, :1]").replace("sum()", "sum(7)")
        )
    (place / "model.py").write_text(text)
    with pytest.raises((RuntimeError, IndexError)):
        run(place)
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")
    assert torch._C._functorch.maybe_current_level() is None


def test_a_traceback_names_the_files_own_line(tmp_path: Path) -> None:
    place = sample(tmp_path, "y = L_x_ * L_self_parameters_w_", "z = y.view(", "    7)", "return (z,)")
    with pytest.raises(RuntimeError) as raised:
        run(place)
    frames = [entry for entry in raised.traceback if str(entry.path) == str(place / "model.py")]
    assert [entry.lineno + 1 for entry in frames] == [11]


@pytest.mark.parametrize("said", ['device(type="cuda", index=0)', '"cuda:0"', 'torch.device("cuda")'])
def test_devices_follow_the_device_asked_for(said: str, tmp_path: Path) -> None:
    place = sample(
        tmp_path,
        f"y = torch.zeros(3, device={said})",
        "z = y.cuda()",
        "return (L_x_ * L_self_parameters_w_ + y + z,)",
        imports="import torch\nfrom torch import device\n",
    )
    assert run(place)[0].device.type == "cpu"
    built = build_sample(read_graphnet(place), device="meta", fake=bp.fake)
    assert built.module(**built.inputs)[0].device.type == "meta"


# ------------------------------------------------------------------ names, roles, numbers


@pytest.mark.parametrize(
    ("raw", "annotation", "name", "role"),
    [
        ("L_self_modules_stem_modules_conv1_parameters_weight_", PARAMETER, "stem.conv1.weight", "parameter"),
        ("L_self_modules_layer1_modules_0_modules_bn_buffers_running_var_", "t", "layer1.0.bn.running_var", "buffer"),
        ("L_self_parameters_cls_token_", PARAMETER, "cls_token", "parameter"),
        ("L_instance_modules_encoder_parameters_w_0_", PARAMETER, "encoder.w_0", "parameter"),
        (
            "L_self_modules_conv_modules_parametrizations_modules_weight_parameters_original0_",
            PARAMETER,
            "conv.parametrizations.weight.original0",
            "parameter",
        ),
        ("L_self_modules_layers_modules_0_modules_self_attn_scaling", "t", "layers.0.self_attn.scaling", "buffer"),
        ("L_self_box_bias", "t", "box_bias", "buffer"),
        ("L_kwargs_input_ids_", "t", "input_ids", "input"),
        ("L_stack0_feature_maps_3_", "t", "stack0_feature_maps_3", "input"),
        ("l_x_", "t", "x", "input"),
        ("mul_3", "t", "mul_3", "input"),
        ("s1", "torch.SymInt", "s1", "input"),
        ("L_self_num_prefix_tokens", "torch.SymInt", "num_prefix_tokens", "input"),
        ("L_lambda_", "t", "input_lambda", "input"),
    ],
)
def test_mangled_names_become_the_programs_own(raw: str, annotation: str, name: str, role: str) -> None:
    said = "torch.Tensor" if annotation == "t" else annotation
    head = "import torch\n\nclass GraphModule(torch.nn.Module):\n"
    text = f"{head}    def forward(self, {raw}: {said}):\n        return ()\n"
    [named] = name_inputs(read_code(text).arguments, {})
    assert (named.name, named.role) == (name, role)


def test_names_are_unique_and_no_tensor_is_a_folder_of_another(tmp_path: Path) -> None:
    rows = [
        weight("L_self_parameters_a_", 2),
        weight("L_self_modules_a_parameters_b_", 2),
        floats("L_self_buffers_a_", 2),
        floats("L_a_", 2),
        floats("a", 2),
        size("a_1"),
    ]
    names = [named.name for named in plan_of(read_graphnet(sample(tmp_path, "return (a,)", rows=rows))).inputs]
    assert len(set(names)) == len(rows)
    assert names[0] == "a"
    build_sample(read_graphnet(tmp_path / "made"))


def test_no_module_is_named_like_a_method(tmp_path: Path) -> None:
    rows = [floats("L_x_", 2, 3), weight("L_self_modules_type_modules_half_parameters_forward_", 3)]
    place = sample(tmp_path, "return (L_x_ * L_self_modules_type_modules_half_parameters_forward_,)", rows=rows)
    assert [name for name, _ in plan_of(read_graphnet(place)).with_grad] == [rows[1].name]
    assert [verdict.verdict for verdict in bp.capture(place).verify()] == ["bitwise"]


def test_the_members_of_a_module_are_known() -> None:
    assert {name for name in dir(torch.nn.Module()) if not name.startswith("__")} <= MEMBERS


@pytest.mark.parametrize(
    ("rows", "symbols", "wanted"),
    [
        ([size("s1"), floats("L_x_", 1, 3, 8, 8)], {"S0": 1, "S1": 8}, {"s1": 8}),
        ([size("s1"), size("s2"), floats("L_x_", 1, 3, 4, 8, 8)], {"S0": 4, "S1": 8}, {"s1": 4, "s2": 8}),
        ([size("s14"), floats("L_x_", 1, 11, 7)], {"S0": 11}, {"s14": 11}),
        ([size("s0"), integers("L_ids_", 1, 4, data=[0, 1, 2, 3]), floats("L_x_", 1, 4)], {}, {"s0": 4}),
    ],
)
def test_a_symbolic_size_has_the_size_of_the_tensor_after_it(
    rows: Any, symbols: dict[str, int], wanted: dict[str, int], tmp_path: Path
) -> None:
    built = build_sample(read_graphnet(sample(tmp_path, "return (L_x_ * 2,)", rows=rows, symbols=symbols)))
    assert {name: built.inputs[name] for name in wanted} == wanted
    assert any(note.startswith("numbers among the inputs: ") for note in built.notes)


def test_a_size_that_does_not_run_is_not_taken(tmp_path: Path) -> None:
    rows = [size("s5"), floats("L_x_", 6, 4)]
    place = sample(tmp_path, "return (L_x_.transpose(0, 1).view_as(torch.ones(s5, 6)),)", rows=rows, symbols={"S0": 6})
    with pytest.raises(RuntimeError):
        torch.ones(4, 6).view(6, 6)
    built = build_sample(read_graphnet(place))
    assert built.inputs["s5"] == 4
    assert "the graph runs on meta tensors with them" in built.notes[0]


# ------------------------------------------------------------------ which inputs require grad


def asks(place: Path) -> dict[str, str]:
    return dict(plan_of(read_graphnet(place)).with_grad)


def test_parameters_ask_and_the_input_of_a_whole_model_does_not(tmp_path: Path) -> None:
    assert list(asks(write("convnet", tmp_path / "c"))) == [
        "stem.conv1.weight",
        "stem.bn.weight",
        "stem.bn.bias",
        "fc.weight",
        "fc.bias",
    ]


def test_floats_ask_where_there_is_no_parameter_but_masks_do_not(tmp_path: Path) -> None:
    plan = plan_of(read_graphnet(write("subgraph_3", tmp_path / "subgraph_3")))
    assert [name for name, _ in plan.with_grad] == ["mul_3", "add_1"]
    assert dict(plan.without_grad)["attention_mask"].startswith("a mask by its")


def test_what_an_earlier_part_computed_asks(tmp_path: Path) -> None:
    rows = [floats("L_stack0_0_", 2, 3), floats("L_x_", 2, 3), weight("L_self_parameters_w_", 3)]
    place = sample(tmp_path, "return (L_stack0_0_ * L_self_parameters_w_ + L_x_,)", rows=rows)
    assert list(asks(place)) == ["stack0_0", "w"]
    place = sample(tmp_path, "return (L_stack0_0_ * L_self_parameters_w_ + L_x_,)", rows=rows, name="subgraph_2")
    assert list(asks(place)) == ["stack0_0", "x", "w"]


CUT = [
    floats("x_32", 2, 3),
    floats("index_select_1", 3),
    floats("position_bias", 3),
    floats("relu_3", 3, data="[0.0, 0.0, 0.0]"),
    floats("mask_2", 3),
    floats("mul_5", 3, mean="-0.000", std="0.000"),
    floats("L_input_values_", 2, 3),
    floats("L_self_buffers_scale_", 3),
    integers("L_input_ids_", 3, data=[0, 1, 2]),
    integers("arange_1", 3, data=[0, 1, 2]),
    weight("L_self_parameters_w_", 3),
]
CUT_LINES = (
    "y = torch.nn.functional.relu(x_32, inplace=True) * L_self_parameters_w_ * L_self_buffers_scale_",
    "y = torch.softmax(y + mul_5, dim=-1) * (L_input_values_ + index_select_1 + relu_3)",
    "z = torch.softmax(y + position_bias, dim=-1) + mask_2 + L_input_ids_ + arange_1",
    "return (y, z)",
)
CUT_GRADIENTS = ["x_32", "index_select_1", "position_bias", "relu_3", "w"]


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("net_start33_end38_6", {}),
        ("_decomposed/net_6", {}),
        ("net/_decomposed/net_start0_end9_0/_decomposed/net_start0_end9_0_start2_end5_1", {}),
        ("subgraph_0", {}),
        ("renamed", {"subgraph_sources.json": "{}"}),
        ("renamed", {"graph_net.json": '{"model_name": "net_start33_end38_6"}'}),
    ],
)
def test_the_values_that_a_cut_sample_takes_from_the_layers_before_it_require_grad(
    name: str, files: dict[str, str], tmp_path: Path
) -> None:
    place = sample(tmp_path, *CUT_LINES, rows=CUT, name=name)
    for file, text in files.items():
        (place / file).write_text(text)
    assert list(asks(place)) == CUT_GRADIENTS
    assert list(asks(sample(tmp_path, *CUT_LINES, rows=CUT, name="whole"))) == ["w"]


def test_a_cut_sample_returns_the_gradients_of_its_inputs(tmp_path: Path) -> None:
    place = sample(tmp_path, *CUT_LINES, rows=CUT, name="net_start33_end38_6")
    metas = (place / "weight_meta.py").read_text()
    (place / "weight_meta.py").write_text(metas.replace("    ", "\t"))  # as GraphNet's tools indent them
    capture = bp.capture(place)
    assert sorted(port.name for port in capture.pairs[0].backward.outputs) == sorted(CUT_GRADIENTS)
    assert [verdict.verdict for verdict in capture.verify()] == ["bitwise"]


def test_a_renamed_cut_sample_has_the_roles_of_its_original_names(tmp_path: Path) -> None:
    rows = [
        floats("in_0", 2, 3, original_name='"x_32"'),
        floats("in_1", 2, 3, original_name='"L_input_values_"'),
        floats("w_0", 3, original_name='"L_self_modules_fc_parameters_weight_"'),
        floats("w_1", 3, original_name='"L_self_modules_bn_buffers_running_mean_"'),
    ]
    place = sample(tmp_path, "return (in_0 * w_0 + in_1 * w_1,)", rows=rows, name="net_start33_end38_6")
    plan = plan_of(read_graphnet(place))
    assert [(named.name, named.role) for named in plan.inputs] == [
        ("x_32", "input"),
        ("input_values", "input"),
        ("fc.weight", "parameter"),
        ("bn.running_mean", "buffer"),
    ]
    assert [name for name, _ in plan.with_grad] == ["x_32", "fc.weight"]


def test_without_parameters_the_batch_of_a_cut_sample_does_not_require_grad(tmp_path: Path) -> None:
    rows = [floats("x_32", 2, 3), floats("L_input_values_", 2, 3)]
    place = sample(tmp_path, "return (x_32 * L_input_values_,)", rows=rows, name="net_start33_end38_6")
    assert list(asks(place)) == ["x_32"]
    later = sample(tmp_path, "return (x_32 * L_input_values_,)", rows=rows, name="subgraph_2_start33_end38_6")
    assert list(asks(later)) == ["x_32", "input_values"]
    first = sample(tmp_path, "return (L_input_values_ * 2,)", rows=rows[1:], name="net_start0_end1_0")
    assert list(asks(first)) == ["input_values"]


def test_nothing_asks_where_nothing_can(tmp_path: Path) -> None:
    target = read_target(write("no_gradient", tmp_path / "n"))
    assert target.with_grad == ()
    assert [name for name, _ in target.without_grad] == ["ids", "attention_mask"]


# ------------------------------------------------------------------ training mode


def test_training_mode_drops_and_updates(tmp_path: Path) -> None:
    place = write("convnet", tmp_path / "c")
    built = build_sample(read_graphnet(place), mode="train")
    before = built.module.get_buffer("stem.bn.running_mean").clone()
    one, two = built.module(**built.inputs)[0], built.module(**built.inputs)[0]
    assert not torch.equal(one, two)
    assert not torch.equal(before, built.module.get_buffer("stem.bn.running_mean"))
    still = build_sample(read_graphnet(place), mode="eval")
    assert torch.equal(still.module(**still.inputs)[0], still.module(**still.inputs)[0])


@pytest.mark.parametrize(
    ("call", "drops"),
    [
        ("torch.nn.functional.dropout(x, 0.5, False, False)", True),
        ("torch.nn.functional.dropout(x, p=0.5, training=False)", True),
        ("torch.nn.functional.alpha_dropout(x, 0.5)", True),
        ("torch.dropout(x, p=0.5, train=False)", True),
        ("torch.nn.functional.dropout2d(x[None, :, :, None], 0.5, False, False)", True),
        ("torch.nn.functional.instance_norm(x[None], None, None, None, None, True, 0.1, 1e-05)[0]", False),
        ("torch._C._nn.scaled_dot_product_attention(x, x, x, dropout_p=0.0)", False),
    ],
)
def test_each_dropout_has_its_mode(call: str, drops: bool, tmp_path: Path) -> None:
    place = sample(tmp_path, "x = L_x_", f"y = {call}", "return (y,)", rows=[floats("L_x_", 16, 16)])
    trained, evaluated = (
        build_sample(read_graphnet(place), mode="train"),
        build_sample(read_graphnet(place), mode="eval"),
    )
    torch.manual_seed(0)
    assert torch.equal(evaluated.module(**evaluated.inputs)[0], evaluated.module(**evaluated.inputs)[0])
    same = torch.equal(trained.module(**trained.inputs)[0], trained.module(**trained.inputs)[0])
    assert same is not drops


def test_eval_mode_takes_training_back(tmp_path: Path) -> None:
    place = sample(
        tmp_path,
        "y = torch.nn.functional.dropout(L_x_ * L_self_parameters_w_, 0.5, True)",
        "return (y,)",
        rows=[floats("L_x_", 16, 16), weight("L_self_parameters_w_", 16)],
    )
    built = build_sample(read_graphnet(place), mode="eval")
    assert built.notes == ("mode eval: 1 dropout changed",)
    assert torch.equal(built.module(**built.inputs)[0], built.module(**built.inputs)[0])


def test_attention_says_what_is_lost(tmp_path: Path) -> None:
    line = "y = torch._C._nn.scaled_dot_product_attention(L_x_, L_x_, L_x_, dropout_p=0.0)"
    built = build_sample(
        read_graphnet(sample(tmp_path, line, "return (y,)", rows=[floats("L_x_", 1, 2, 3, 4)])), mode="train"
    )
    assert any("1 scaled_dot_product_attention keep dropout_p as traced" in note for note in built.notes)


def test_the_attention_of_inference_is_refused_with_the_mode_that_has_a_derivative(tmp_path: Path) -> None:
    sizes = {"w": (12, 4), "b": (12,), "o": (4, 4), "c": (4,)}
    names = [f"L_self_parameters_{name}_" for name in sizes]
    rows = [weight(name, *size) for name, size in zip(names, sizes.values(), strict=True)]
    args = f"L_x_, L_x_, L_x_, 4, 2, {', '.join(names)}, None, False, True, None"
    line = f"y = torch._native_multi_head_attention({args})"
    place = sample(tmp_path, line, "return (y[0],)", rows=[floats("L_x_", 2, 3, 4), *rows])
    with pytest.raises(BackprintError, match=r"through _native_multi_head_attention, .*--mode train"):
        bp.capture(place)
    assert bp.verify(bp.capture(place, mode="train"))[-1].verdict == "bitwise"


def test_a_norm_of_one_value_stays_in_eval_mode_and_that_is_said(tmp_path: Path) -> None:
    built = build_sample(read_graphnet(write("norm_of_one", tmp_path / "n")), mode="train")
    assert any("1 batch_norm stay in eval mode (one value per channel): model.py:" in note for note in built.notes)
    built.module(**built.inputs)


def test_a_norm_of_one_value_is_found_even_where_shapes_hang_on_values(tmp_path: Path) -> None:
    rows = [*SAMPLES["norm_of_one"].rows, integers("L_n_", 2, data=[1, 1])]
    text = SAMPLES["norm_of_one"].body.replace("pooled = ", "k = L_n_[0].item()\npooled = ").replace("(x, 1)", "(x, k)")
    built = build_sample(read_graphnet(write_sample(Handmade(rows, text), tmp_path / "n")), mode="train")
    assert any("this is decided when the graph runs" in note for note in built.notes)
    built.module(**built.inputs)


# ------------------------------------------------------------------ metadata


@pytest.mark.slow
def test_a_sample_without_metadata_has_the_shapes_of_its_constraints(tmp_path: Path) -> None:
    rows = [floats("L_x_", 5, 3), weight("L_self_parameters_w_", 5, 3), integers("L_i_", 2)]
    place = sample(tmp_path, "return ((L_x_ * L_self_parameters_w_)[L_i_],)", rows=rows)
    (place / "weight_meta.py").unlink()
    built = build_sample(read_graphnet(place))
    assert any(note.startswith("no weight_meta.py") for note in built.notes)
    assert [tuple(value.shape) for value in built.inputs.values()] == [(5, 3), (2,)]
    assert [verdict.verdict for verdict in bp.capture(place).verify()] == ["bitwise"]


def test_a_sample_that_says_nothing_of_its_inputs_is_refused(tmp_path: Path) -> None:
    place = write("vmap", tmp_path / "v")
    (place / "weight_meta.py").unlink()
    (place / "input_tensor_constraints.py").unlink()
    with pytest.raises(SampleError, match=r"neither weight_meta.py nor input_tensor_constraints.py"):
        read_graphnet(place)
    place = sample(tmp_path, "return (L_x_,)", rows=[*ROWS, floats("L_y_", 2)])
    (place / "weight_meta.py").write_text(CONVNET.weight_meta())
    with pytest.raises(SampleError, match="no metadata says what L_self_parameters_w_, L_y_ are"):
        read_graphnet(place)


def test_infinities_are_read_however_they_are_spelled(tmp_path: Path) -> None:
    said = '[float("-inf"), -inf, float("nan"), math.inf, 0.0, -1]'
    rows = [floats("L_x_", 6, data=said, mean="nan", std='float("inf")')]
    meta = read_graphnet(sample(tmp_path, "return (L_x_,)", rows=rows)).metas["L_x_"]
    assert meta.data is not None
    assert repr(meta.data) == "(-inf, -inf, nan, inf, 0.0, -1)"


def test_what_is_no_sample_is_named(tmp_path: Path) -> None:
    with pytest.raises(SampleError, match=r"there is no model.py"):
        read_graphnet(tmp_path)
    with pytest.raises(UsageError, match=r"not a sample: a sample's folder has capture.json"):
        read_target(tmp_path)
    place = write("vmap", tmp_path / "v")
    (place / "graph_net.json").write_text("[1")
    with pytest.raises(SampleError, match=r"graph_net.json: not JSON"):
        read_graphnet(place)
    (place / "graph_net.json").write_text("[1]")
    with pytest.raises(SampleError, match="an object is expected, not a list"):
        read_graphnet(place)


@pytest.mark.slow
def test_a_mode_is_not_written_into_a_saved_graph(tmp_path: Path) -> None:
    place = bp.capture(write("vmap", tmp_path / "v")).save(tmp_path / "out")
    with pytest.raises(UsageError, match="cannot be written into a saved graph"):
        read_target(place, mode="train")
    target = read_target(place)
    assert (target.kind, [name for name, _ in target.with_grad]) == ("backprint", ["w"])
    again = capture_target(target)
    assert again.recipes.recipes["x"] == bp.load(place).recipes.recipes["x"]
    assert [verdict.verdict for verdict in again.verify()] == ["bitwise"]


@pytest.mark.slow
def test_assertions_of_dynamo_compute_nothing(tmp_path: Path) -> None:
    place = sample(
        tmp_path,
        "size = torch.ops.aten.sym_size.int(L_x_, 0)",
        "_check_is_size = torch._check_is_size(size)",
        "le = size <= 20",
        '_assert = torch.ops.aten._assert_scalar.default(le, "u0 <= 20")',
        "le = _assert = _check_is_size = None",
        "return (L_x_ * L_self_parameters_w_ * size,)",
    )
    capture = bp.capture(place)
    assert (capture.engine, [verdict.verdict for verdict in capture.verify()]) == ("eager", ["bitwise"])


@pytest.mark.slow
def test_without_allocating_a_device_that_is_not_here_stands_for_another(tmp_path: Path) -> None:
    target = read_target(write("convnet", tmp_path / "c"), fake=True, device="cuda", mode="train")
    assert [verdict.verdict for verdict in capture_target(target).verify()] == ["unproven"]
