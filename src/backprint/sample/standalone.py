"""FOOTER: the end of every `model.py`, so that `python model.py` makes its own inputs and prints a digest of each
output.

The footer needs only torch. It has the code of `generator.py`, `alone.py` and `combine.py`, and then that of MAIN,
which reads the `capture.json` and `tensors.safetensors` of the sample; for a rank of several, `Others` answers its
collectives with what the others sent, from `exchanges.safetensors`. The `model.py` of a backward loads that of its
forward, runs it on the inputs that the recipes make, and takes the saved values from its results. The `model.py` of a
forward of linked Pairs first runs the forwards of the earlier Pairs: the values that come over links are then those of
the capture, and guards on them hold. Gradients that come over links, and tangents of values between Pairs, are drawn
from recipes.

Results are not compared with the digests of the capture, which `verify` does. `load` parses the text above MARKER, and
accepts below it the footer of this version alone.
"""

from __future__ import annotations

import ast
from importlib.resources import files

# Readers find the footer by this line, so the line must never change, whatever else of the footer changes.
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
        begin(capture, index)
        for role, name, value in forward.run(folder, capture, fed(capture, index, given)):
            given[index, f"{role} {name}"] = value
    begin(capture, number)
    return fed(capture, number, given)


def fed(capture, number, given):
    """Input name -> value, of what links bring to a pair; a gradient that a link brings has a recipe instead."""
    links = [link for link in capture.get("links", []) if link[2] == number]
    return {name: given[source, port] for source, port, _, name in links if (source, port) in given}


def short(dtype):
    """A dtype as annotations have it: f32, bf16, i64, b8."""
    name, bits = re.fullmatch(r"torch\\.([a-z]+)(.*)", str(dtype)).groups()
    return "b8" if name == "bool" else ("bf" if name == "bfloat" else name[0]) + bits.replace("_", "")


def begin(capture, number):
    """Go to the collectives of a pair: those of the pairs before it have been answered in the step."""
    if capture.get("rank") and "exchanges_before" in capture:
        before = capture["exchanges_before"][number]
        torch.ops._c10d_functional.counts = {group: count - 1 for group, count in before.items()}


class Others:
    """In the place of torch's collectives: the other ranks answer with what they sent when this one was captured, or,
    if that was not kept, with what this one received then."""

    def __init__(self, folder, capture):
        self.rank, self.known, self.counts = capture["rank"], capture.get("exchanges", {}), {}
        self.tensors = read_safetensors(folder / "exchanges.safetensors")
        self.wait_tensor = Overload(torch.ops._c10d_functional.wait_tensor.default)

    def __getattr__(self, kind):
        return Overload(lambda sent, *options: self.answer(kind, sent, options[-1]))

    def answer(self, kind, sent, group):
        number = self.counts[group] = self.counts.get(group, -1) + 1
        if number >= len(self.known.get(group, [])) or self.known[group][number][0] != kind:
            raise SystemExit(f"collective {number + 1} of {group!r} is {kind} here, and no such one was kept")
        members = self.rank["groups"][group]
        place = members.index(self.rank["number"])
        names = [*(f"sent by {index}" for index in range(len(members))), "received"]
        kept = [self.tensors.get(f"{group} {number} {name}") for name in names]
        *everyone, received = [None if tensor is None else tensor.to(sent.device) for tensor in kept]
        if received is not None and (torch.equal(everyone[place], sent) or any(other is None for other in everyone)):
            return received.clone()
        everyone[place] = sent
        return received_by(place, kind, self.known[group][number][1], everyone)


class Overload:
    """An operator as a graph calls it: `operator.default(...)`."""

    def __init__(self, function):
        self.default = function


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
    if capture.get("rank") and side.name == "forward":
        others = Others(folder, capture)
        torch.ops.__dict__["_c10d_functional"] = others
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
    """Return the text of a module of Backprint without its docstring and its imports from Backprint."""
    text = files("backprint").joinpath(module).read_text(encoding="utf-8")
    docstring, *rest = ast.parse(text).body
    imports = [node for node in rest if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("backprint.")]
    left_out = {line for node in (docstring, *imports) for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    return "\n".join(line for number, line in enumerate(text.splitlines(), 1) if number not in left_out).strip() + "\n"


IMPORTS = "import functools\nimport importlib.util\nimport json\nimport pathlib\nimport re\nimport sys\n"

MODULES = ("sample/generator.py", "sample/alone.py", "values/combine.py")

FOOTER = f"{MARKER}\n\n{IMPORTS}{chr(10).join(text_of(module) + chr(10) for module in MODULES)[:-1]}{MAIN}"
