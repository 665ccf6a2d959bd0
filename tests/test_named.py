"""Models by their names: made without a network, proved as any other; what a name cannot give is refused in a line."""

from __future__ import annotations

import importlib.util
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

import backprint as bp
from face import architecture_of, is_named, main, make_named, parse_name

with_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed: pip install -e .[dev]"
)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever opens a socket or asks for an address fails the test."""

    def forbidden(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError(f"a socket was opened: {args}")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, forbidden)


# ------------------------------------------------------------------ names, without any library


@pytest.mark.parametrize(
    ("text", "architecture"),
    [
        ("gpt2", "gpt2"),
        ("GPT-Neo", "gpt_neo"),
        ("xlm-roberta", "xlm-roberta"),
        ("openai-community/gpt2", "gpt2"),
        ("bert-base-uncased", "bert"),
        ("Qwen/Qwen3-0.6B", "qwen3"),
        ("Qwen/Qwen2.5-VL-3B", "qwen2_5_vl"),
        ("meta-llama/Llama-3.2-1B", "llama"),
        ("microsoft/phi-2", "phi"),
        ("google/gemma-2-2b", "gemma2"),
        ("google/flan-t5-small", "t5"),
        ("google/vit-base-patch16-224", "vit"),
        ("FacebookAI/xlm-roberta-base", "xlm-roberta"),
        ("distilgpt2", "gpt2"),
        ("EleutherAI/pythia-70m", "gpt_neox"),
        ("me/a-model-of-mine", None),
        ("me/t5/gpt2", "gpt2"),
    ],
)
def test_the_architecture_that_a_hub_id_names(text: str, architecture: str | None) -> None:
    known = (
        "gpt2 gpt_neo gpt_neox bert xlm-roberta roberta qwen2 qwen3 qwen2_5_vl llama phi gemma gemma2 t5 vit".split()
    )
    assert architecture_of(text, known) == architecture


def test_a_name_is_told_from_a_factory_and_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_named("hf:gpt2")
    assert is_named(Path("timm:resnet18?batch=1"))
    assert not is_named("model.py:make")
    assert not is_named("transformers:gpt2")
    monkeypatch.chdir(tmp_path)
    Path("hf:gpt2").mkdir()
    assert not is_named("hf:gpt2")
    assert dict(parse_name("hf:a/b?layers=2&x=[1,2]").options) == {"layers": "2", "x": "[1,2]"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hf:", "no name of a model behind hf: — write hf:gpt2"),
        ("hf:gpt2?layers", "'layers' is no option: write OPTION=VALUE, joined by &, such as"),
        ("hf:gpt2?", "'' is no option"),
        ("hf:gpt2?batch=1&batch=2", "batch is given twice, as 1 and as 2"),
    ],
)
def test_a_name_that_cannot_be_read_is_refused(text: str, says: str) -> None:
    with pytest.raises(bp.errors.UsageError, match=re.escape(says)):
        bp.capture(text)


def test_a_library_that_is_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    result = run("view", "hf:gpt2", "-o", "page.html")
    assert result.exit_code == 2
    assert "hf:gpt2: transformers is not installed: pip install 'backprint[models]'" in result.output


def test_a_library_that_does_not_import_is_told_with_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    with pytest.raises(bp.errors.UsageError, match="cannot be imported: RuntimeError: operator torchvision::nms does"):
        bp.capture("torchvision:resnet18")


# ------------------------------------------------------------------ transformers


@with_transformers
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "bert", "t5", "vit"])
def test_a_model_of_transformers_trains_and_is_proved(name: str, no_network: None) -> None:
    before = torch.get_rng_state()
    capture = bp.capture(f"hf:{name}")
    assert torch.equal(torch.get_rng_state(), before)
    assert [verdict.verdict for verdict in capture.verify(("captured", "recipe"))] == ["bitwise"]
    backward = capture.pairs[0].backward
    assert backward is not None
    assert len(backward.by_role("gradient")) > 20
    assert len(backward.by_role("tangent")) == 1, "the backward begins at the loss alone"
    assert any("sizes are small, weights and inputs random" in note for note in capture.notes)
    drawn = any(re.search("dropout|bernoulli", step.target) for step in capture.pairs[0].forward.steps)
    assert drawn or name == "vit", "in train mode, where the configuration has dropout"


@with_transformers
def test_a_name_means_the_same_model_and_inputs_each_time() -> None:
    one, two = make_named("hf:gpt2"), make_named("hf:gpt2")
    assert all(map(torch.equal, one.model.state_dict().values(), two.model.state_dict().values()))
    assert torch.equal(one.kwargs["input_ids"], two.kwargs["input_ids"])
    assert one.model.training


@with_transformers
def test_options_are_sizes_heads_and_fields_of_the_configuration() -> None:
    named = make_named("hf:gpt2?layers=3&hidden=32&heads=2&tokens=8&batch=3&vocab=50&resid_pdrop=0.25&dtype=bfloat16")
    config = named.model.config
    assert (config.n_layer, config.n_embd, config.n_head, config.vocab_size, config.resid_pdrop) == (3, 32, 2, 50, 0.25)
    assert tuple(named.kwargs["input_ids"].shape) == (3, 8)
    assert {parameter.dtype for parameter in named.model.parameters()} == {torch.bfloat16}
    headed = make_named("hf:bert?head=sequence-classification")
    assert type(headed.model).__name__ == "BertForSequenceClassification"
    assert tuple(headed.kwargs["labels"].shape) == (2,)
    hub = make_named("hf:meta-llama/Llama-3.2-1B")
    assert type(hub.model).__name__ == "LlamaForCausalLM"
    assert hub.notes[0].startswith("the architecture of meta-llama/Llama-3.2-1B is taken to be llama; ")


@with_transformers
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hf:gpt22", "no such architecture of transformers .*; near names: gpt2"),
        ("hf:me/a-model-of-mine", "its hub id names no architecture of transformers"),
        ("hf:gpt2?laers=2", "there is no option 'laers'; there are layers, hidden, .*fields of GPT2Config: .*n_layer"),
        ("hf:gpt2?hidden=30", "hidden=30 and heads=4: a head has to be an even number of features"),
        ("hf:gpt2?layers=0", "layers=0 is not a number from 1 on"),
        ("hf:gpt2?vocab=9", "vocab=9: 40 or more"),
        ("hf:gpt2?size=large", "size=large: there are small and full"),
        ("hf:gpt2?dtype=int8", "dtype=int8: such as float32"),
        ("hf:gpt2?head=ctc", "gpt2 has no head 'ctc'; it has causal-lm, token-classification, sequence-classification"),
        (
            "hf:time_series_transformer",
            "cannot be made from its configuration alone: ValueError: The `prediction_length`",
        ),
        ("hf:decision_transformer", "DecisionTransformerModel needs states, which its configuration does not tell"),
    ],
)
def test_what_a_name_cannot_give_is_refused_in_a_line(text: str, says: str) -> None:
    with pytest.raises(bp.errors.UsageError, match=says) as caught:
        bp.capture(text)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(text)


@with_transformers
@pytest.mark.slow
def test_a_full_size_is_the_configurations_own_and_allocates_nothing() -> None:
    capture = bp.capture("hf:gpt2?size=full&layers=1&tokens=64", fake=True)
    shapes = {port.name: tuple(port.spec.shape) for port in capture.pairs[0].forward.by_role("parameter")}
    assert shapes["transformer.wte.weight"] == (50257, 768)
    assert tuple(port.spec.shape for port in capture.pairs[0].forward.inputs if port.name == "input_ids") == ((2, 64),)


@with_transformers
@pytest.mark.slow
def test_the_command_line_takes_names_where_it_takes_samples(tmp_path: Path, no_network: None) -> None:
    page, sample = tmp_path / "page.html", tmp_path / "gpt2"
    seen = run("view", "hf:gpt2", "-o", str(page))
    assert (seen.exit_code, seen.stdout) == (0, f"{page}: GPT2LMHeadModel, {page.stat().st_size / 1e6:.1f} MB\n")
    assert "hf:gpt2: GPT2LMHeadModel of transformers" in seen.stderr
    assert run("capture", "hf:gpt2?layers=1", "-o", str(sample)).exit_code == 0
    same = run("diff", str(sample), "hf:gpt2?layers=1")
    assert same.exit_code == 0, same.output
    assert run("diff", str(sample), "hf:gpt2").exit_code == 1
    fits = run("fits", "hf:gpt2?layers=1", "--memory", "1", "--json")
    assert json.loads(fits.stdout)["ranks"][0]["fits"] is True


@pytest.mark.slow
def test_the_command_line_takes_factories_where_it_takes_samples(tmp_path: Path) -> None:
    factory = "backprint.examples.convnet:factory"
    shown = run("show", factory)
    assert shown.exit_code == 0, shown.output
    assert "ConvNet" in shown.stdout
    assert run("diff", factory, factory).exit_code == 0
    assert json.loads(run("verify", factory, "--json").stdout)["sample"] == factory
    fits = run("fits", factory, "--memory", "1", "--json")
    assert json.loads(fits.stdout)["ranks"][0]["fits"] is True
    missing = run("show", str(tmp_path / "none.py:factory"))
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert "no such file" in missing.stderr


@with_transformers
@pytest.mark.slow
def test_a_sample_of_a_name_is_proved_where_transformers_is_not(tmp_path: Path) -> None:
    bp.save(bp.capture("hf:gpt2?layers=1"), tmp_path / "gpt2")
    program = "import sys; sys.modules['transformers'] = None; from backprint.cli import run_command; run_command()"
    command = [sys.executable, "-c", program, "verify", str(tmp_path / "gpt2"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["verdict"] == "bitwise"


# ------------------------------------------------------------------ timm, by a stand-in: it has no build for each torch

STAND_IN = '''
"""A stand-in for timm, with the few functions of it that names need, and one model."""
import types

import torch

__version__ = "0-stand-in"
NAMES = ["tiny18", "tiny34", "fixed16"]
MADE = []


def list_models():
    return NAMES


def is_model(name):
    return name in NAMES


def get_pretrained_cfg(name, allow_unregistered=True):
    return types.SimpleNamespace(input_size=(3, 96, 96), fixed_input_size=name == "fixed16")


class Tiny(torch.nn.Module):
    def __init__(self, classes, size):
        super().__init__()
        self.size = size
        self.conv, self.norm = torch.nn.Conv2d(3, 4, 3, stride=4), torch.nn.BatchNorm2d(4)
        self.fc = torch.nn.Linear(4, classes)

    def forward(self, x):
        if self.size is not None and x.shape[-1] != self.size:
            raise ValueError(f"images of {self.size} only")
        return self.fc(self.norm(self.conv(x)).relu().mean((2, 3)))


def create_model(name, pretrained, num_classes=10, img_size=None):
    assert pretrained is False
    MADE.append((name, img_size))
    if img_size == 64:
        raise ValueError("not 64")
    return Tiny(num_classes, 96 if name == "fixed16" else img_size)
'''


@pytest.fixture
def stand_in_timm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "timm.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    yield importlib.import_module("timm")
    sys.modules.pop("timm", None)


def test_a_model_of_images_is_made_for_small_images_and_proved(stand_in_timm: Any) -> None:
    capture = bp.capture("timm:tiny18?batch=3&classes=5")
    specs = {port.name: tuple(port.spec.shape) for port in capture.pairs[0].forward.inputs}
    assert (specs["x"], specs["fc.weight"]) == ((3, 3, 64, 64), (5, 4))
    assert {verdict.verdict for verdict in capture.verify()} == {"bitwise"}
    assert "running_mean" in " ".join(port.name for port in capture.pairs[0].forward.by_role("mutation"))


def test_a_model_that_takes_only_its_own_size_gets_it(stand_in_timm: Any) -> None:
    capture = bp.capture("timm:fixed16")
    assert next(port.spec.shape for port in capture.pairs[0].forward.inputs if port.name == "x") == (2, 3, 96, 96)
    assert stand_in_timm.MADE == [("fixed16", 64), ("fixed16", None)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("timm:tiny19", "no such model of timm 0-stand-in; near names: tiny18"),
        ("timm:tiny18?layers=2", "there is no option 'layers'; there are batch, image, classes, size"),
        ("timm:hf-hub:somebody/model", "a name of timm has no /: weights are not read"),
        ("timm:fixed16?image=64", "fixed16 does not run on random images of 64: ValueError: not 64"),
    ],
)
def test_what_a_name_of_timm_cannot_give_is_refused(text: str, says: str, stand_in_timm: Any) -> None:
    with pytest.raises(bp.errors.UsageError, match=re.escape(says)):
        bp.capture(text)
