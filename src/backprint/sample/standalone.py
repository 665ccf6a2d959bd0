"""FOOTER: the end of every `model.py`, so that `python model.py` makes its own inputs and prints a digest of each
output.

It needs only torch: the texts of `generator` and `alone`, then the code of MAIN, which reads the sample's
`capture.json` and `tensors.safetensors`. A backward loads the forward beside it, runs that on the same recipes, and
takes its saved values from there. A forward of linked Pairs first runs those before it, so values from links are as
captured, and guards on them hold; a gradient from a link, and the tangent of a value between Pairs, is drawn. Results
are not compared with the digests of the capture: that is `verify`. `load` checks only the text above MARKER, and that
the footer is a known one.
"""

from __future__ import annotations

import ast
import hashlib
from importlib.resources import files

# The reader finds the ending by this line, so it stays as it is, whatever else of the ending changes.
MARKER = "# --- Below: runs this graph alone, with torch and nothing else: python model.py " + "-" * 38

MAIN = '''
# What follows finds this graph's inputs in the sample's folder, runs it, and prints a digest for each output.

TENSOR = re.compile(r"[a-z]\\w*\\[(?!(?:[^\\]]*, )?0[,\\]])")  # how the annotation of a tensor with elements starts
STRIDED = re.compile(r"[a-z]\\w*\\[(\\d+(?:, \\d+)*)\\] stride=\\[(\\d+(?:, \\d+)*)\\]")
Whole = GraphModule  # what runs here; tools that know tensors alone take the name GraphModule


def permuted(text):
    """The dimensions of a tensor from the outermost in memory to the innermost, where its annotation has strides that
    are those of a contiguous tensor in another order; else None."""
    found = STRIDED.match(text)
    if not found:
        return None
    shape, stride = (list(map(int, part.split(", "))) for part in found.groups())
    order, step = sorted(range(len(shape)), key=lambda index: (-stride[index], -shape[index])), 1
    for index in reversed(order):
        if shape[index] != 1 and stride[index] != step:
            return None
        step *= shape[index]
    return order if order != sorted(order) else None


def tensors_alone(whole):
    """A class that those tools get along with: numbers are given to it as tensors of one element, and it gives none,
    nor what is None or empty; an input that lay in another order in memory is laid so, as views inside rely on it."""
    annotations = dict(whole.forward.__annotations__)
    given = annotations.pop("return")
    numbers = [name for name, text in annotations.items() if not re.match(r"[a-z]\\w*\\[", text)]
    orders = {name: order for name, text in annotations.items() if (order := permuted(text)) is not None}
    if not numbers and not orders and all(map(TENSOR.match, given)):
        return whole

    class GraphModule(whole):
        @functools.wraps(whole.forward)
        def forward(self, *values, **named):
            named = dict(zip(annotations, values), **named)
            for name in numbers:
                if isinstance(named[name], torch.Tensor):
                    named[name] = named[name].item()
            for name, order in orders.items():
                back = sorted(range(len(order)), key=order.__getitem__)
                named[name] = named[name].permute(order).contiguous().permute(back)
            found = super().forward(**named)
            return tuple(value for value in found if isinstance(value, torch.Tensor) and value.numel())

    return GraphModule


GraphModule = tensors_alone(Whole)
ALONE = """{} is not there: model.py takes its inputs from the sample that it is part of.
Run it in the sample's folder, SAMPLE/pair_0/forward/model.py, copied as a whole, or make one file that runs anywhere:
    backprint export SAMPLE -o repro.py"""


def load(path):
    """Another model.py of the sample as a module."""
    spec = importlib.util.spec_from_file_location("other_model", path)
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    return module


def earlier(folder, capture, own):
    """Input name -> value that links bring to a pair: the forwards of the pairs before it run here, in order."""
    if not capture.get("links"):
        return {}
    given, folders = {}, [pair["folder"] for pair in capture["pairs"]]
    number = folders.index(own)
    for index, name in enumerate(folders[:number]):
        forward = load(folder / name / "forward" / "model.py")
        for role, name, value in forward.run(folder, capture, fed(capture, index, given)):
            given[index, f"{role} {name}"] = value
    return fed(capture, number, given)


def fed(capture, number, given):
    """Input name -> value, of what links bring to a pair; a gradient that a link brings has a recipe instead."""
    links = [link for link in capture.get("links", []) if link[2] == number]
    return {name: given[source, port] for source, port, _, name in links if (source, port) in given}


def short(dtype):
    """A dtype as annotations have it: f32, bf16, i64, b8."""
    name, bits = re.fullmatch(r"torch\\.([a-z]+)(.*)", str(dtype)).groups()
    return "b8" if name == "bool" else ("bf" if name == "bfloat" else name[0]) + bits.replace("_", "")


def run(folder, capture, known, saved=None):
    """(role, name, value) of each output, on what is known and, for the rest, on the sample's own inputs."""
    annotations = dict(Whole.forward.__annotations__)
    outputs = ports(annotations.pop("return"))
    inputs = ports(annotations.values())
    saved = saved or {}
    keys = [f"tangent {name}" if role == "tangent" else name for _, role, name in inputs]
    fresh = [key for key, (_, role, _) in zip(keys, inputs, strict=True) if role != "saved" and key not in known]
    missing = [key for key in fresh if key not in capture["recipes"]]
    missing += [name for _, role, name in inputs if role == "saved" and name not in saved]
    if missing:
        raise SystemExit(f"capture.json and the forward say nothing of the inputs {', '.join(map(repr, missing))}")
    made = known | make_inputs(capture["recipes"], fresh, read_safetensors(folder / "tensors.safetensors"))
    values = []
    for key, (spec, role, _) in zip(keys, inputs, strict=True):
        value = saved[key] if role == "saved" else made[key]
        values.append(value.item() if spec.startswith("Sym") and isinstance(value, torch.Tensor) else value)
    found = []
    for (spec, role, name), value in zip(outputs, Whole()(*values), strict=True):
        known = isinstance(value, torch.Tensor) and "[" in spec
        if known and spec.partition("[")[0] != short(value.dtype):
            raise SystemExit(f"{role} {name!r} was {spec} at capture and is {value.dtype} here")
        found.append((role, name, value))
    return found


def results():
    """(role, name, value) of each output, on the sample's own inputs."""
    side = pathlib.Path(__file__).resolve().parent
    folder = side.parent.parent
    needed = [folder / "capture.json", *([side.parent / "forward" / "model.py"] if side.name == "backward" else [])]
    for path in needed:
        if not path.exists():
            raise SystemExit(ALONE.format(path))
    capture = json.loads((folder / "capture.json").read_text(encoding="utf-8"))
    environment = capture.get("environment", {})
    torch.set_num_threads(int(environment.get("threads", torch.get_num_threads())))
    torch.set_default_dtype(getattr(torch, environment.get("default_dtype", "float32")))
    torch.set_flush_denormal(environment.get("flush_denormal") == "True")
    torch.set_float32_matmul_precision(environment.get("float32_matmul_precision", "highest"))
    deterministic = environment.get("deterministic", "False")
    torch.use_deterministic_algorithms(deterministic != "False", warn_only=deterministic == "warn")
    if side.name == "backward":
        given = load(side.parent / "forward" / "model.py").results()
        saved = {name: value for role, name, value in given if role == "saved"}
        torch.manual_seed(capture["seed"])
        return run(folder, capture, {}, saved)
    torch.manual_seed(capture["seed"])
    return run(folder, capture, earlier(folder, capture, side.parent.name))


def main():
    for role, name, value in results():
        print(printed_line(role, name, value))


if __name__ == "__main__":
    main()
'''


def text_of(module: str) -> str:
    """Return the text of a module of this package without its docstring and its imports of Backprint."""
    text = files("backprint").joinpath(module).read_text(encoding="utf-8")
    docstring, *rest = ast.parse(text).body
    ours = [node for node in rest if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("backprint.")]
    left_out = {line for node in (docstring, *ours) for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    return "\n".join(line for number, line in enumerate(text.splitlines(), 1) if number not in left_out).strip() + "\n"


IMPORTS = "import functools\nimport importlib.util\nimport json\nimport pathlib\nimport re\nimport sys\n"

FOOTER = f"{MARKER}\n\n{IMPORTS}{text_of('sample/generator.py')}\n\n{text_of('sample/alone.py')}\n{MAIN}"

KNOWN_FOOTERS = frozenset(
    {
        "990dc979418ce1d08806332cb135cee4170bfe5d5f93f54544972e5a074e0dc9",
        "7c8596545aceb579baf4f40ccab351652040ca48f1826a8fb475ffd52f06f591",
        "f5d14724ddcd9b61c3f3810a6ef20f78f938578395ce67599cfa421e177ac8cf",
    }
)
"""`ending_digest` of the endings, from MARKER on, that earlier versions wrote: these are read as well. Whoever changes
the ending after a release adds the digest of the one before."""


def names_bound(module: str) -> frozenset[str]:
    """Return the names that the statements of a module bind."""
    found: set[str] = set()
    for node in ast.parse(module).body:
        match node:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found.update(alias.asname or alias.name.partition(".")[0] for alias in names)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Assign(targets=targets):
                found.update(target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
    return frozenset(found)


def ending_digest(text: str) -> str:
    """Return the digest of an ending, for KNOWN_FOOTERS."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_ending(text: str) -> bool:
    """Whether a text is the ending of samples: the current one, or an earlier version's."""
    return text == FOOTER or ending_digest(text) in KNOWN_FOOTERS
