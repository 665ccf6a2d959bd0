"""Handmade GraphNet samples in the style of its corpus: Dynamo's code, with the files of GraphNet's extractor.

`write("convnet", folder)` writes one. SAMPLES are good; each of HOSTILE has something that no reader may run, with
words that the refusal must contain.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PARAMETER, TENSOR, SYMINT = "torch.nn.parameter.Parameter", "torch.Tensor", "torch.SymInt"


@dataclass(frozen=True)
class Row:
    """One input: its annotation, and the fields of its metadata as they are printed."""

    name: str
    annotation: str
    shape: Sequence[int]
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Handmade:
    """A sample: its inputs, the lines of its forward, and symbols with example values."""

    rows: Sequence[Row]
    body: str
    imports: str = "import torch\n"
    symbols: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def model(self) -> str:
        arguments = "".join(f"        {row.name}: {row.annotation},\n" for row in self.rows)
        body = "".join(f"        {line}\n" if line.strip() else "\n" for line in self.body.strip("\n").split("\n"))
        return (
            f"{self.imports}\n\nclass GraphModule(torch.nn.Module):\n    def forward(\n        self,\n"
            f"{arguments}    ):\n{body}"
        )

    def weight_meta(self) -> str:
        return "\n\n\n".join(map(meta, self.rows)) + "\n"

    def constraints(self) -> str:
        symbols = "".join(f'{name} = Symbol("{name}")\n' for name in self.symbols)
        examples = ", ".join(f"{name}: {value}" for name, value in self.symbols.items())
        shapes = "".join(f'    ({list(row.shape)}, "{row.name}"),\n' for row in self.rows if row.annotation != SYMINT)
        return (
            f"from sympy import Symbol\n\n{symbols}\ndynamic_dim_constraint_symbols = [{', '.join(self.symbols)}]\n\n"
            f"dynamic_dim_constraint_symbol2example_value = {{{examples}}}\n\ndynamic_dim_constraint_relations = []\n\n"
            f"dynamic_dim_constraint_input_shapes = [\n{shapes}]\n"
        )


def meta(row: Row) -> str:
    """The class that describes one input."""
    known = {"name": f'"{row.name}"', "shape": str(list(row.shape)), "dtype": '"torch.float32"', "device": '"cuda:0"'}
    known |= {"mean": "0.001", "std": "0.250", "data": "None", **row.fields}
    lines = "".join(f"    {key} = {value}\n" for key, value in known.items())
    return f"class Program_weight_tensor_meta_{row.name}:\n{lines}".rstrip()


def weight(name: str, *shape: int, **fields: str) -> Row:
    return Row(name, PARAMETER, shape, fields)


def floats(name: str, *shape: int, **fields: str) -> Row:
    return Row(name, TENSOR, shape, fields)


def integers(name: str, *shape: int, data: Sequence[int] | None = None, **fields: str) -> Row:
    said = {
        "dtype": '"torch.int64"',
        "mean": "None",
        "std": "None",
        "data": "None" if data is None else str(list(data)),
    }
    return Row(name, TENSOR, shape, said | fields)


def size(name: str) -> Row:
    """Return an integer input: GraphNet prints 4 for every one."""
    said = {"dtype": '"torch.int64"', "mean": "None", "std": "None", "data": "[4]", "device": '"cpu"'}
    return Row(name, SYMINT, (), said)


STEM = "L_self_modules_stem_modules_"
CONVNET = Handmade(
    rows=[
        weight(f"{STEM}conv1_parameters_weight_", 8, 3, 3, 3),
        size("s1"),
        floats("L_x_", 2, 3, 8, 8, mean="0.227", std="1.285"),
        floats(f"{STEM}bn_buffers_running_mean_", 8),
        floats(f"{STEM}bn_buffers_running_var_", 8, mean="1.180", std="0.701", min_val="0"),
        weight(f"{STEM}bn_parameters_weight_", 8, mean="1.000"),
        weight(f"{STEM}bn_parameters_bias_", 8),
        floats(f"{STEM}bn_eps", dtype='"torch.float64"', mean="0.000", std="0.000", data="[1e-05]"),
        weight("L_self_modules_fc_parameters_weight_", 5, 8),
        weight("L_self_modules_fc_parameters_bias_", 5),
    ],
    imports="import torch\n\nfrom torch import device\n",
    symbols={"S0": 2, "S1": 8},
    body="""
l_x_ = L_x_
eps = L_self_modules_stem_modules_bn_eps.item()
L_self_modules_stem_modules_bn_eps = None
input_1 = torch.conv2d(
    l_x_,
    L_self_modules_stem_modules_conv1_parameters_weight_,
    None,
    (1, 1),
    (1, 1),
    (1, 1),
    1,
)
l_x_ = L_self_modules_stem_modules_conv1_parameters_weight_ = None
input_2 = torch.nn.functional.batch_norm(
    input_1,
    L_self_modules_stem_modules_bn_buffers_running_mean_,
    L_self_modules_stem_modules_bn_buffers_running_var_,
    L_self_modules_stem_modules_bn_parameters_weight_,
    L_self_modules_stem_modules_bn_parameters_bias_,
    False,
    0.1,
    eps,
)
input_1 = None
_log_api_usage_once = torch._C._log_api_usage_once("torchvision.models.small")
_log_api_usage_once = None
input_3 = torch.nn.functional.relu(input_2, inplace=True)
input_2 = None
grid = torch.arange(5, device=device(type="cuda", index=0))
shift = grid.to(device="cuda:0", dtype=torch.float32)
grid = None
x = torch.nn.functional.adaptive_avg_pool2d(input_3, (1, 1))
x_1 = torch.flatten(x, 1)
x = None
x_2 = torch.nn.functional.dropout(x_1, 0.5, False, False)
x_3 = torch._C._nn.linear(x_2, L_self_modules_fc_parameters_weight_, L_self_modules_fc_parameters_bias_)
x_4 = x_3 + shift
return (x_4,)
""",
)

ATTENTION = "L_self_modules_encoder_modules_layer_modules_0_modules_attention_modules_"
TRANSFORMER = Handmade(
    rows=[
        size("s0"),
        integers("L_input_ids_", 2, 6, data=[3, 7, 1, 2, 9, 0, 4, 4, 8, 6, 5, 1]),
        weight("L_self_modules_embeddings_modules_word_embeddings_parameters_weight_", 11, 8),
        integers("L_attention_mask_", 2, 6, data=[1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1]),
        weight(f"{ATTENTION}query_parameters_weight_", 8, 8),
        weight(f"{ATTENTION}query_parameters_bias_", 8),
        weight(f"{ATTENTION}key_parameters_weight_", 8, 8),
        weight("L_self_modules_encoder_modules_layer_modules_0_modules_LayerNorm_parameters_weight_", 8, mean="1.000"),
        weight("L_self_modules_encoder_modules_layer_modules_0_modules_LayerNorm_parameters_bias_", 8),
        floats(f"{ATTENTION}scaling", dtype='"torch.float64"', mean="0.500", std="0.000", data="[0.5]"),
    ],
    imports="import torch\nfrom torch import device, inf\n",
    symbols={"S0": 6},
    body="""
h = torch.nn.functional.embedding(
    L_input_ids_, L_self_modules_embeddings_modules_word_embeddings_parameters_weight_, 0, None, 2.0, False, False
)
position = torch.arange(0, s0, device=device("cpu"))
h += position[None, :, None].float() * 0.01
position = None
q = torch._C._nn.linear(
    h,
    L_self_modules_encoder_modules_layer_modules_0_modules_attention_modules_query_parameters_weight_,
    L_self_modules_encoder_modules_layer_modules_0_modules_attention_modules_query_parameters_bias_,
)
k = torch._C._nn.linear(
    h, L_self_modules_encoder_modules_layer_modules_0_modules_attention_modules_key_parameters_weight_, None
)
q_1 = q.view(2, s0, 2, 4).transpose(1, 2)
k_1 = k.view(2, s0, 2, 4).transpose(1, 2)
scale = L_self_modules_encoder_modules_layer_modules_0_modules_attention_modules_scaling.item()
scores = q_1 @ k_1.mT * scale
getitem = L_attention_mask_[(slice(None, None, None), None, None, slice(None, None, None))]
masked = scores.masked_fill(getitem == 0, -inf)
weights = torch.nn.functional.softmax(masked, dim=-1)
weights_1 = torch.nn.functional.dropout(weights, p=0.1, training=False)
context = weights_1 @ k_1
merged = context.transpose(1, 2).reshape(2, s0, 8)
out = torch.nn.functional.layer_norm(
    merged + h,
    (8,),
    L_self_modules_encoder_modules_layer_modules_0_modules_LayerNorm_parameters_weight_,
    L_self_modules_encoder_modules_layer_modules_0_modules_LayerNorm_parameters_bias_,
    1e-12,
)
chunk, chunk_1 = out.chunk(2, dim=-1)
return (out, chunk * chunk_1)
""",
)

IN_PLACE = Handmade(
    rows=[
        floats("L_x_", 4, 6),
        weight("L_self_parameters_scale_", 6),
        floats("L_self_buffers_steps_", 1, data="[0.0]", mean="0.000", std="nan"),
        integers("L_index_", 3, data=[0, 2, 3]),
    ],
    body="""
y = L_x_ * L_self_parameters_scale_
y += 1.0
y[(slice(None, None, None), 0)] = 0.5
y[1:3, 2] = L_self_parameters_scale_[0]
L_self_buffers_steps_ += 1
z = a = y.clone()
z *= 2.0
z_1 = z.index_select(0, L_index_)
b = y[L_index_]
b -= a[L_index_]
c = torch.stack([z_1, b], dim=0)
d = {"left": c, "right": c.mT}
return (d["left"], z.sum(dim=-1), (-y).abs() ** 2)
""",
)

VMAP = Handmade(
    rows=[floats("L_x_", 3, 4), weight("L_self_parameters_w_", 4)],
    body="""
lazy_load_decompositions = torch._functorch.predispatch.lazy_load_decompositions()
lazy_load_decompositions = None
_vmap_increment_nesting = torch._functorch.predispatch._vmap_increment_nesting(3, "error")
_vmap_increment_nesting = None
child = torch._functorch.predispatch._add_batch_dim(L_x_, 0, 1)
product = child * L_self_parameters_w_
total = product.sum()
_remove_batch_dim = torch._functorch.predispatch._remove_batch_dim(total, 1, 3, 0)
_vmap_decrement_nesting = torch._functorch.predispatch._vmap_decrement_nesting()
_vmap_decrement_nesting = None
return (_remove_batch_dim,)
""",
)

AUTOCAST = Handmade(
    rows=[floats("L_x_", 3, 4), weight("L_self_modules_fc_parameters_weight_", 5, 4)],
    body="""
_set_grad_enabled = torch._C._set_grad_enabled(False)
_set_grad_enabled = None
frequency = L_x_.cos()
_set_grad_enabled_1 = torch._C._set_grad_enabled(True)
_set_grad_enabled_1 = None
_enter_autocast = torch.amp.autocast_mode._enter_autocast("cuda", torch.bfloat16, True, True)
y = torch._C._nn.linear(frequency, L_self_modules_fc_parameters_weight_, None)
_exit_autocast = torch.amp.autocast_mode._exit_autocast(_enter_autocast)
_enter_autocast = _exit_autocast = None
return (y.float(),)
""",
)

SUBGRAPH = Handmade(
    rows=[
        floats("mul_3", 2, 5, 4),
        floats("add_1", 2, 5, 4),
        floats("attention_mask", 2, 1, 1, 5, data="[0.0, 0.0, 0.0, -inf, -inf, 0.0, 0.0, 0.0, 0.0, -inf]"),
        integers("position_ids", 1, 5, data=[0, 1, 2, 3, 4]),
    ],
    body="""
x = mul_3.transpose(1, 2) @ add_1
y = torch.softmax(mul_3 @ add_1.mT + attention_mask[(slice(None, None, None), 0)], dim=-1)
z = y[(slice(None, None, None), slice(None, None, None), position_ids[0])] @ mul_3
return (x, z)
""",
    facts={"model_name": "subgraph of mul"},
)

NO_GRADIENT = Handmade(
    rows=[
        integers("L_ids_", 2, 3, data=[0, 1, 2, 3, 4, 5]),
        integers("L_attention_mask_", 2, 3, data=[1, 1, 0, 1, 1, 1]),
    ],
    body="""
x = L_ids_ * L_attention_mask_
y = x.cumsum(dim=-1) - 1
return (y,)
""",
)

NORM_OF_ONE = Handmade(
    rows=[
        floats("L_x_", 1, 4, 6, 6),
        floats("L_self_modules_bn_buffers_running_mean_", 4),
        floats("L_self_modules_bn_buffers_running_var_", 4, mean="1.000", std="0.100"),
        weight("L_self_modules_bn_parameters_weight_", 4),
        weight("L_self_modules_bn_parameters_bias_", 4),
    ],
    body="""
x = torch.nn.functional.batch_norm(
    L_x_,
    L_self_modules_bn_buffers_running_mean_,
    L_self_modules_bn_buffers_running_var_,
    L_self_modules_bn_parameters_weight_,
    L_self_modules_bn_parameters_bias_,
    False,
    0.1,
    1e-05,
)
pooled = torch.nn.functional.adaptive_avg_pool2d(x, 1)
y = torch.nn.functional.batch_norm(
    pooled,
    L_self_modules_bn_buffers_running_mean_,
    L_self_modules_bn_buffers_running_var_,
    L_self_modules_bn_parameters_weight_,
    L_self_modules_bn_parameters_bias_,
    training=False,
)
return (y,)
""",
)

SAMPLES: Mapping[str, Handmade] = {
    "convnet": CONVNET,
    "transformer": TRANSFORMER,
    "in_place": IN_PLACE,
    "vmap": VMAP,
    "autocast": AUTOCAST,
    "subgraph_3": SUBGRAPH,
    "no_gradient": NO_GRADIENT,
    "norm_of_one": NORM_OF_ONE,
}


def write(name: str, folder: Path, **files: str) -> Path:
    """Write a sample's six files into `folder`; `files` replace others, `model` replaces `model.py`."""
    return write_sample(SAMPLES[name], folder, **files)


def write_sample(sample: Handmade, folder: Path, **files: str) -> Path:
    """Write a sample that is not in the table."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"framework": "torch", "model_name": folder.name, "source": "handmade", "num_devices_required": 1}
    texts = {
        "model": sample.model(),
        "weight_meta": sample.weight_meta(),
        "input_meta": "",
        "input_tensor_constraints": sample.constraints(),
        **files,
    }
    for stem, text in texts.items():
        (folder / f"{stem}.py").write_text(text, encoding="utf-8")
    (folder / "graph_net.json").write_text(json.dumps({**facts, **sample.facts}, indent=4), encoding="utf-8")
    (folder / "graph_hash.txt").write_text(hashlib.sha256(texts["model"].encode()).hexdigest(), encoding="utf-8")
    return folder


# ------------------------------------------------------------------ what no reader may run

ROWS = [floats("L_x_", 2, 3), weight("L_self_parameters_w_", 3)]


def body(*lines: str) -> str:
    """Return a model with these lines before its return."""
    return Handmade(ROWS, "\n".join([*lines, "return (L_x_ * L_self_parameters_w_,)"])).model()


HOSTILE: Mapping[str, tuple[str, str]] = {
    "import": ("import os\n" + body(), "import os"),
    "top_level_call": ("import torch\n\nprint('here')\n\n" + body(), "outside the class"),
    "open": (body("f = open('/etc/passwd')"), "'open' is not a known tensor function"),
    "load": (body("f = torch.load('weights.pt')"), "'torch.load' is not a known tensor function"),
    "module_attribute": (body("f = torch.os"), "'torch.os' is not a constant of torch"),
    "class_of": (body("f = L_x_.__class__"), "the attribute .__class__"),
    "reduce": (body("f = L_x_.__reduce_ex__(2)"), "the method .__reduce_ex__()"),
    "apply": (body("L_x_.apply_(torch.relu)"), "the method .apply_()"),
    "callable": (body("f = torch.where(torch.relu, L_x_, L_x_)"), "'torch.relu' is not a constant of torch"),
    "method_as_value": (body("f = L_x_.sum"), "the attribute .sum"),
    "call_of_a_value": (body("f = L_x_(1)"), "only functions of torch and methods of tensors"),
    "lambda_as_value": (body("f = lambda: 1"), "a Lambda is not part of a graph"),
    "fstring": (body("f = f'{L_x_!r}'"), "is a string with a prefix"),
    "getattr": (body("f = getattr(torch, 'load')"), "'getattr' is not a known tensor function"),
    "self": (body("f = self._modules"), "'self._modules'"),
    "set_self": (body("self = 1"), "'self' is reserved"),
    "store_attribute": (body("L_x_.data = L_x_"), "a line binds names and items"),
    "with": (body("with torch.no_grad(): pass"), "a With is not allowed in it"),
    "del": (body("del L_x_"), "a Delete is not allowed in it"),
    "double_star": (body("f = torch.add(L_x_, L_x_, **{'alpha': 2})"), "** is not part of a graph"),
    "unknown_name": (body("f = nowhere"), "'nowhere' is not a value"),
    "huge_integer": (body(f"f = {'9' * 100}"), "bits is not part of a graph"),
    "huge_text": (body(f"f = '{'x' * 5000}'"), "a constant of 5,000 characters"),
    "text_times": (body("f = 'x' * 1000000000"), "texts are not added"),
    "text_as_value": (body("f = '%99999999d'"), "a text is an argument or a key"),
    "deep": (body(f"f = {'-(' * 60}1{')' * 60}"), "nested more than"),
    "deeper": (body(f"f = {'(' * 5000}1{')' * 5000}"), ""),
    "float_of_text": (body("f = float('1' + '2')"), "float() spells inf and nan alone"),
    "device_of_text": (body("f = torch.device('cuda; rm -rf')"), "is not a device"),
    "decorator": (body().replace("    def forward(", "    @staticmethod\n    def forward("), "decorators, defaults"),
    "default": (body().replace("        self,", "        self, y=print('x'),"), ""),
    "second_function": (body() + "\n    def __init__(self):\n        pass\n", "in the class"),
    "metaclass": (body().replace("torch.nn.Module)", "torch.nn.Module, metaclass=print)"), "no decorators or keywords"),
    "other_base": (body().replace("(torch.nn.Module)", "(torch.nn.Sequential)"), "one base, torch.nn.Module"),
    "annotation_call": (body().replace("L_x_: torch.Tensor", "L_x_: print(1)"), "the annotation 'print(1)'"),
    "reserved_keyword": (body("f = torch.relu(L_x_, __debug__=1)"), "'__debug__' is reserved"),
    "syntax": ("class GraphModule(torch.nn.Module:\n", "not Python"),
    "empty": ("", "no class GraphModule"),
    "control_character": (body("f = 1 \x0c"), "U+000C"),
}
"""A `model.py`, and words that its refusal says. None of these may be run."""

HOSTILE_METAS: Mapping[str, tuple[str, str]] = {
    "call": (meta(ROWS[0]).replace("0.250", "__import__('os').getpid()"), "a Call is not a literal"),
    "statement": ("import os\nos.system('id')\n", "plain classes of literals"),
    "base": (meta(ROWS[0]).replace(":\n", "(dict):\n", 1), "plain classes of literals"),
    "method": (meta(ROWS[0]) + "\n    def f(self):\n        pass\n", "lines `name = literal`"),
    "no_shape": (meta(ROWS[0]).replace("    shape = [2, 3]\n", ""), "shape = None"),
    "endless": (meta(ROWS[0]).replace("[2, 3]", "[99999999, 99999999, 99]"), "elements is more than"),
    "many_dimensions": (meta(ROWS[0]).replace("[2, 3]", str([1] * 100)), "is not the shape of a tensor"),
    "dtype": (meta(ROWS[0]).replace("torch.float32", "torch.os"), "is not a dtype"),
    "text_of_data": (meta(ROWS[0]).replace("data = None", "data = ['a']"), "data is at most"),
    "mean": (meta(ROWS[0]).replace("0.001", "'os'"), "is not a number"),
    "syntax": ("class X:\n    name = (\n", "not Python"),
}
"""A `weight_meta.py`, and words that its refusal says."""
