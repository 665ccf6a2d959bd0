"""FOOTER: the end of every `model.py`, so that `python model.py` makes its own inputs and prints a digest of each
output.

It needs only torch: the text of `generator`, then the code of MAIN, which reads the sample's `capture.json` and
`tensors.safetensors`. A backward loads the forward beside it, runs that on the same recipes, and takes its saved values
from there. A forward of linked Pairs first runs those before it, so values from links are as captured, and guards on
them hold; a gradient from a link, and the tangent of a value between Pairs, is drawn. Results are not compared with the
digests of the capture: that is `verify`. `load` checks only the text above MARKER, and that the footer is a known one.
"""

from __future__ import annotations

import ast
import hashlib
from importlib.resources import files

# The reader finds the ending by this line, so it stays as it is, whatever else of the ending changes.
MARKER = "# --- Below: runs this graph alone, with torch and nothing else: python model.py " + "-" * 38

MAIN = '''
# What follows finds this graph's inputs in the sample's folder, runs it, and prints a digest for each output.

SAFE_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
               "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "C64": "complex64", "U16": "uint16",
               "U32": "uint32", "U64": "uint64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
PORT = re.compile(r"(.*?) (parameter|buffer|input|constant|saved|tangent|rng|output|mutation|gradient) (.*)", re.DOTALL)


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
RANKS = {"view": 1, "sparse": 2}  # what is made of others is made after them


def ports(annotations):
    """(spec, role, name) of each annotation."""
    return [PORT.fullmatch(text).groups() for text in annotations]


def read_safetensors(path):
    """Name -> tensor: 8 bytes of header size, a JSON header, then the bytes that its offsets count from."""
    if not path.exists():
        return {}
    raw = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    header.pop("__metadata__", None)
    tensors = {}
    for name, row in header.items():
        (begin, end), dtype = row["data_offsets"], getattr(torch, SAFE_DTYPES[row["dtype"]])
        count = math.prod(row["shape"])
        if not 0 <= begin <= end <= len(raw) - start or end - begin != count * dtype.itemsize:
            raise ValueError(f"{path.name} is damaged: {name!r} lies outside of it or has the wrong length")
        place = dict(dtype=dtype, count=count, offset=start + begin)
        flat = torch.frombuffer(raw, **place) if count else torch.empty(0, dtype=dtype)
        tensors[name] = flat.reshape(row["shape"])
    return tensors


def make_inputs(recipes, names, exact):
    """Name -> tensor for the names asked for; a view's base and a sparse tensor's parts are made with it."""
    wanted, made = list(names), {}
    for name in wanted:
        of = recipes[name]["facts"].get("of", ())
        wanted += [base for base in ((of,) if isinstance(of, str) else of) if base not in wanted]
    for name in sorted(dict.fromkeys(wanted), key=lambda name: RANKS.get(recipes[name]["kind"], 0)):
        try:
            made[name] = make(parse(recipes[name]), exact.get(name), made)
        except ValueError as cause:
            raise SystemExit(f"input {name!r} cannot be made: {cause}") from None
    return made


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
    return [(role, name, value) for (_, role, name), value in zip(outputs, Whole()(*values), strict=True)]


def results():
    """(role, name, value) of each output, on the sample's own inputs."""
    side = pathlib.Path(__file__).resolve().parent
    folder = side.parent.parent
    capture = json.loads((folder / "capture.json").read_text(encoding="utf-8"))
    torch.set_num_threads(int(capture.get("environment", {}).get("threads", torch.get_num_threads())))
    if side.name == "backward":
        given = load(side.parent / "forward" / "model.py").results()
        saved = {name: value for role, name, value in given if role == "saved"}
        torch.manual_seed(capture["seed"])
        return run(folder, capture, {}, saved)
    torch.manual_seed(capture["seed"])
    return run(folder, capture, earlier(folder, capture, side.parent.name))


def main():
    for role, name, value in results():
        if isinstance(value, torch.Tensor):
            print(role, name, f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}", digest(value))
        else:
            print(role, name, type(value).__name__, value)


if __name__ == "__main__":
    main()
'''


def core() -> str:
    """Return the text of generator.py after its docstring."""
    text = files("backprint.sample").joinpath("generator.py").read_text(encoding="utf-8")
    end = ast.parse(text).body[0].end_lineno or 0
    return "\n".join(text.splitlines()[end:]).strip() + "\n"


IMPORTS = "import functools\nimport importlib.util\nimport json\nimport pathlib\nimport re\nimport sys\n"

FOOTER = f"{MARKER}\n\n{IMPORTS}{core()}\n{MAIN}"

KNOWN_FOOTERS = frozenset({"990dc979418ce1d08806332cb135cee4170bfe5d5f93f54544972e5a074e0dc9"})
"""`ending_digest` of the endings, from MARKER on, that earlier versions wrote: these are read as well. Whoever changes
the ending after a release adds the digest of the one before."""


def ending_digest(text: str) -> str:
    """Return the digest of an ending, for KNOWN_FOOTERS."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_ending(text: str) -> bool:
    """Whether a text is the ending of samples: the current one, or an earlier version's."""
    return text == FOOTER or (bool(KNOWN_FOOTERS) and ending_digest(text) in KNOWN_FOOTERS)
