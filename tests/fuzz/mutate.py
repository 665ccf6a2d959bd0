"""Mutations of samples that know what a sample is made of, so that most of them reach beyond the first brace.

JSON is changed in the tree: values by their place and type, keys, lists, and branches of other samples. The text of a
graph is changed by its lines and tokens: a name for another name, an operator for another of the table, a literal for
an extreme one, an annotation's parts for other parts. Files are exchanged, cut, or replaced by what is not a file. What
comes out depends on the corpus and on the random numbers alone.
"""

from __future__ import annotations

import ast
import functools
import json
import keyword
import random
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from seeds import Files, end_of

from backprint.graph.nouns import ATOMS, DEVICES, DTYPES, ECHOES, HIGHER, LAYOUTS, PLAIN_TARGETS, ROLES, SCALARS
from backprint.graph.operators import operators
from backprint.graph.verdicts import VERDICTS
from backprint.sample.ending import MARKER
from backprint.sample.recipes import KINDS
from backprint.tools.graphnet.code import callables

Draw = random.Random
ODD_FILES = ("missing", "folder", "link", "pipe")
"""What may stand in the place of a file."""

COUNTS = (1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 4, 6)
"""How many mutations a sample gets, drawn of these."""


def mutated(draw: Draw, corpus: Mapping[str, Files]) -> tuple[str, Files]:
    """A mutated sample, and the name of the one that it was."""
    name = draw.choice(names_of(corpus))
    files = dict(corpus[name])
    for _ in range(draw.choice(COUNTS)):
        mutate(draw, files, corpus)
    return name, files


@functools.cache
def _sorted(names: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted(names))


def names_of(corpus: Mapping[str, Files]) -> tuple[str, ...]:
    return _sorted(frozenset(corpus))


def mutate(draw: Draw, files: Files, corpus: Mapping[str, Files]) -> None:
    """One mutation of one file, in place."""
    path = chosen_path(draw, files)
    content, chance = files[path], draw.random()
    if chance < 0.012:
        odd_file(draw, files, path, corpus)
    elif isinstance(content, bytes):
        files[path] = changed_bytes(draw, content)
    elif not isinstance(content, str):
        files[path] = other_file(draw, path, corpus)
    elif chance < 0.03:
        files[path] = changed_letters(draw, content)
    elif path.endswith(".json"):
        files[path] = changed_json(draw, content, corpus)
    else:
        files[path] = changed_text(draw, content, corpus, path)


OFTEN = {"capture.json": 5, "model.py": 4, "weight_meta.py": 3}
"""How much more often some files are changed."""


def chosen_path(draw: Draw, files: Files) -> str:
    """A file, those with most to read more often than the others."""
    paths = sorted(files)
    weights = [
        {"capture.json": 5, "model.py": 4, "weight_meta.py": 3}.get(path.rpartition("/")[2], 1) for path in paths
    ]
    return draw.choices(paths, weights)[0]


# ------------------------------------------------------------------ files


def odd_file(draw: Draw, files: Files, path: str, corpus: Mapping[str, Files]) -> None:
    """Something else where the file was."""
    kind = draw.choice((*ODD_FILES, "exchanged", "added", "empty", "elsewhere"))
    match kind:
        case "exchanged":
            other = draw.choice(sorted(files))
            files[path], files[other] = files[other], files[path]
        case "added":
            other = other_name(draw, corpus)
            if not any(below(other, name) or below(name, other) for name in files):
                files[other] = other_file(draw, other, corpus)
        case "empty":
            files[path] = ""
        case "elsewhere":
            files[path] = other_file(draw, path, corpus)
        case "missing":
            del files[path]
            if not files:
                files["graph_net.json"] = "{}"
        case _:
            files[path] = {"kind": kind}


def below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")


def other_name(draw: Draw, corpus: Mapping[str, Files]) -> str:
    return draw.choice(sorted(corpus[draw.choice(names_of(corpus))]))


def other_file(draw: Draw, path: str, corpus: Mapping[str, Files]) -> Any:
    """A file of this name from another sample."""
    last = path.rpartition("/")[2]
    for _ in range(8):
        other = corpus[draw.choice(names_of(corpus))]
        found = sorted(name for name in other if name.rpartition("/")[2] == last)
        if found:
            return other[draw.choice(found)]
    return "{}"


def changed_bytes(draw: Draw, content: bytes) -> bytes:
    """A file of tensors whose header or data say something else."""
    data = bytearray(content or b"\0")
    match draw.randrange(4):
        case 0:
            return bytes(data[: draw.randrange(len(data) + 1)])
        case 1:
            header = data[8:].split(b"}}")[0] + b"}}"
            said = changed_json(draw, header.decode(errors="replace"), {}).encode(errors="replace")
            return len(said).to_bytes(8, "little") + said + bytes(data[8 + len(header) :])
        case 2:
            data[:8] = draw.choice((0, 1, 2**31, 2**63, 2**64 - 1, len(data))).to_bytes(8, "little")
        case _:
            for _ in range(draw.choice((1, 2, 8))):
                data[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(data)


LETTERS = (
    "\0",
    "\ufeff",
    "\u202e",
    "\x1b[2J",
    "é",
    "𝐱",
    "\r",
    "\t",
    "\\",
    '"',
    "'",
    "{",
    "}",
    "[",
    "(",
    ")",
    "#",
    "\n",
    "𐀀",
)


def changed_letters(draw: Draw, text: str) -> str:
    """A text with a few letters more, less or others: most of these end early."""
    at = draw.randrange(len(text) + 1)
    match draw.randrange(4):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + text[at + draw.choice((1, 1, 10, 1000)) :]
        case 2:
            return text[:at] + draw.choice(LETTERS) + text[at:]
    return text[:at] + draw.choice(LETTERS) * draw.choice((1, 100, 5000)) + text[at:]


# ------------------------------------------------------------------ JSON

NUMBERS: tuple[Any, ...] = (
    0,
    1,
    -1,
    2,
    3,
    7,
    64,
    255,
    2**31 - 1,
    2**31,
    2**48,
    2**53 + 1,
    2**62,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63),
    -(2**63) - 1,
    10**40,
    10**400,
    0.5,
    -0.0,
    1e308,
    5e-324,
    2.0,
    1e16,
    True,
    False,
    None,
    float("inf"),
    float("nan"),
)


@functools.cache
def words() -> tuple[str, ...]:
    """The vocabulary of samples: nouns of every table."""
    tables = (ROLES, DTYPES, DTYPES.values(), LAYOUTS, ECHOES, SCALARS, VERDICTS, KINDS, DEVICES, ATOMS)
    own = (
        "aot dynamo eager saved output gradient mutation tangent port value dict items list tuple none inf -inf nan "
        "output.0 pair_0 pair_1 forward backward x w y self inf tensor object number array text function code "
        "s0 s1 2*s0+1 cuda:0 cpu torch.float32 float32 size shape argument same spec flag pinned"
    ).split()
    odd = (
        "",
        " ",
        "a" * 300,
        "\u202e",
        "\ud800",
        "\0",
        "a\nb",
        "é",
        "../..",
        "/",
        "%s",
        "{0}",
        "=1+1",
        "x" * 9000,
        "0" * 5000,
    )
    return tuple(dict.fromkeys([*(str(word) for table in tables for word in sorted(table)), *own, *odd]))


def tree_of(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def changed_json(draw: Draw, text: str, corpus: Mapping[str, Files]) -> str:
    """A JSON text with something else at one place of its tree."""
    tree = tree_of(text)
    if not isinstance(tree, (dict, list)) or not tree:
        return text + draw.choice(LETTERS)
    holder, key = place(draw, tree)
    if isinstance(holder, dict) and draw.random() < 0.25:
        changed_key(draw, holder, key, corpus)
    else:
        holder[key] = changed_value(draw, holder[key], tree, corpus)
    said = dumped(tree)
    if draw.random() < 0.01:
        said = twice(draw, said)
    return said


def dumped(tree: Any) -> str:
    """The tree as a text; numbers that Python does not print, and texts that are no UTF-8, as JSON can have them."""
    try:
        return json.dumps(tree)
    except (ValueError, RecursionError):
        return "{}"


def twice(draw: Draw, said: str) -> str:
    """A key that stands twice."""
    found = [match.start() for match in re.finditer(r'"\w+": ', said)]
    if not found:
        return said
    at = draw.choice(found)
    return f"{said[:at]}{said[at:].partition(': ')[0]}: 1, {said[at:]}"


def place(draw: Draw, tree: Any) -> tuple[Any, Any]:
    """A place in a tree: each branch is gone into with the same chance, however much there is below."""
    holder: Any = tree
    while True:
        key = draw.choice(list(holder)) if isinstance(holder, dict) else draw.randrange(len(holder))
        inner = holder[key]
        if not isinstance(inner, (dict, list)) or not inner or draw.random() < 0.2:
            return holder, key
        holder = inner


def changed_key(draw: Draw, holder: dict[str, Any], key: str, corpus: Mapping[str, Files]) -> None:
    """An object with a key less, more or another."""
    match draw.randrange(4):
        case 0:
            del holder[key]
        case 1:
            holder[draw.choice(keys_of(corpus))] = holder.pop(key)
        case 2:
            holder[draw.choice(keys_of(corpus))] = changed_value(draw, holder[key], holder, corpus)
        case _:
            holder[draw.choice(words())] = holder.pop(key)


def changed_value(draw: Draw, value: Any, tree: Any, corpus: Mapping[str, Files]) -> Any:
    """Something else for a value, of its type more often than not."""
    if draw.random() < 0.2:
        return branch(draw, tree, corpus)
    match value:
        case bool() | None:
            return draw.choice((not value, *NUMBERS[:12], "", "none", [], {}))
        case int() | float():
            near = (value + 1, -value, value * 2, value - 1, value * 10**6) if abs(value) < 1e300 else (0,)
            return draw.choice((*near, *NUMBERS)) if draw.random() < 0.9 else str(value)
        case str():
            return changed_word(draw, value)
        case list():
            return changed_list(draw, value)
    return draw.choice(([], {}, None, "x", 0, nested(draw, value), [value], {"value": value}, list(value)))


def changed_word(draw: Draw, value: str) -> Any:
    match draw.randrange(8):
        case 0:
            return draw.choice(NUMBERS)
        case 1:
            return value + draw.choice(LETTERS)
        case 2:
            return value[: draw.randrange(len(value) + 1)]
        case 3:
            return value.replace(draw.choice("._ x0"), draw.choice(LETTERS))
        case 4 if re.fullmatch(r"[\w.]+\.[\w.]+", value):
            return draw.choice(targets())
    return draw.choice(words())


def changed_list(draw: Draw, value: list[Any]) -> Any:
    items = list(value)
    match draw.randrange(8):
        case 0:
            return [*items, *items]
        case 1:
            draw.shuffle(items)
        case 2 if items:
            items.pop(draw.randrange(len(items)))
        case 3 if items:
            items.append(draw.choice(items))
        case 4:
            return nested(draw, items)
        case 5:
            return items * draw.choice((0, 3, 70, 3000))
        case 6:
            return {str(index): item for index, item in enumerate(items)}
        case _:
            items.insert(draw.randrange(len(items) + 1), draw.choice((*NUMBERS, *words()[:9], [], {})))
    return items


def nested(draw: Draw, value: Any) -> Any:
    """A value deep within lists or objects."""
    kind = draw.choice(("list", "tuple", "dict", "items", "value", "like", ""))
    for _ in range(draw.choice((1, 2, 9, 39, 60, 260, 600))):
        value = {kind: [value]} if kind else [value]
    return value


def branch(draw: Draw, tree: Any, corpus: Mapping[str, Files]) -> Any:
    """A value from elsewhere in this sample, or from another."""
    if corpus and draw.random() < 0.5:
        tree = draw.choice(trees(corpus))
    holder, key = place(draw, tree)
    return tree_of(dumped(holder[key]))


def trees(corpus: Mapping[str, Files]) -> Sequence[Any]:
    """The JSON of all samples."""
    return _trees(
        tuple(sorted(text for files in corpus.values() for path, text in files.items() if path.endswith(".json")))
    )


def json_texts(corpus: Mapping[str, Files]) -> tuple[str, ...]:
    return tuple(sorted(text for files in corpus.values() for path, text in files.items() if path.endswith(".json")))


@functools.lru_cache(maxsize=4)
def _trees(texts: tuple[str, ...]) -> Sequence[Any]:
    return [tree for tree in map(tree_of, texts) if tree]


@functools.lru_cache(maxsize=4)
def _keys(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({key for tree in _trees(texts) for key in keys_in(tree)}))


def keys_of(corpus: Mapping[str, Files]) -> tuple[str, ...]:
    """The keys that stand anywhere in the samples' JSON."""
    if not corpus:
        return ("dtype", "shape", "data_offsets", "__metadata__")
    return _keys(json_texts(corpus))


def keys_in(tree: Any) -> Iterator[str]:
    match tree:
        case dict():
            yield from tree
            for item in tree.values():
                yield from keys_in(item)
        case list():
            for item in tree:
                yield from keys_in(item)


# ------------------------------------------------------------------ the text of a graph


@functools.cache
def targets() -> tuple[str, ...]:
    """Everything that a graph may call, ours or GraphNet's; the latter's methods as methods."""
    methods = [name for name in callables() if name.startswith("Tensor.")]
    others = [name for name in callables() if not name.startswith("Tensor.")]
    hostile = ["eval", "open", "torch.load", "torch.ops.load_library", "getattr", "torch.ops.fuzzed.twice.default"]
    known = (*operators(), *PLAIN_TARGETS, *sorted(HIGHER) * 3, *others, *hostile)
    return tuple(sorted(known)) + tuple(sorted(name.replace("Tensor.", "x.") for name in methods))


def apart(text: str) -> tuple[str, ...]:
    """What stands in a text between line ends or two blanks."""
    return tuple(part for part in re.split(r"  +|\n *", text) if part)


LITERALS = apart("""
    0  1  -1  2  9223372036854775807  -9223372036854775808  9223372036854775808  10**9  1e308  -1e400  nan  inf  -inf
    True  None  ...  ''  'mean'  b'x'  1j  complex(1.0, inf)  []  ()  {}  [1, -1]  (2, 3)  {'a': 1}
    slice(None, None, None)  slice(0, 9223372036854775807, -1)  torch.float32  torch.strided  torch.channels_last
    torch.device('cpu')  torch.device('cuda:99')  device(type='cuda', index=0)  self  self.body  aten.add.Tensor
    operator.add  lambda: 0  x for x in y  *x  **{'a': 1}  f'{x}'  -(-1)  not x  float('inf')  0x7f  1_000
    [[[[[[[[[[[[[]]]]]]]]]]]]]  ((((((1,),),),),),)
""")
LITERALS += ("'" + "a" * 5000 + "'", "1" * 5000, "[" * 40 + "]" * 40)

SIZES = apart("""
    0  1  -1  3  9223372036854775807  9223372036854775808  s0  s0 + 1  2**62  s0*(s1 - 1)  Max(1, s0)  s0//0  s0**s0
    (  0.5  u0  s0 % s0  -s0  ~s0  s0 < 3  1,2
""")
SIZES += ("x" * 300, "+".join(["s0"] * 400))

SPECS = apart("""
    ?  f32[]  f32[0]  i64[2, 3]  b8[1]  c64[2] stride=[1]  f32[2, 3] stride=[1, 2] offset=4  f32[4294967296, 2147483648]
    f32[3] sparse_coo  f32[3] @cuda:0  SymInt(s0 + 1)  SymInt  int  object  (f32[2], i64[2])  ((((((f32[1],),),),),),)
    ()  f99[2]  f32[  f32[2] jagged @meta  f32[s0, s0 // 2]  f32[0, 9223372036854775807, 9223372036854775807]
""")

TOKEN = re.compile(r'"[^"\n]*"|\'[^\'\n]*\'|\d[\w.]*|[A-Za-z_][\w.]*|[-+*/%@<>=!&|^~]+|[^\w\s]')
NAME = re.compile(r"[A-Za-z_]\w*")
ARITHMETIC = "+ - * / // % ** @ & | ^ << >> == != < >= is and or in = += **= , . : ->".split()


def changed_text(draw: Draw, text: str, corpus: Mapping[str, Files], path: str) -> str:
    """A text with a line or a token changed; what follows the graph is mostly left as it is."""
    body, marker, rest = text.partition(MARKER)
    if marker and draw.random() < 0.02:
        return body + marker + changed_letters(draw, rest)
    tries = 1 if draw.random() < 0.1 else 4
    for _ in range(tries):
        lines = body.split("\n")
        kind = draw.choices(list(LINES), [weight for weight, _ in LINES.values()])[0]
        LINES[kind][1](draw, lines, corpus, path)
        said = "\n".join(lines)
        if tries == 1 or is_python(said):
            break
    return said + end_of(said) if marker else said


def is_python(text: str) -> bool:
    """Whether a text has a tree."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


Lines = list[str]


def line_at(draw: Draw, lines: Lines) -> int:
    """A line, of those that say something; the first lines less often."""
    at = draw.randrange(len(lines))
    for _ in range(6):
        if lines[at].strip() and (at > 9 or draw.random() < 0.3):
            break
        at = draw.randrange(len(lines))
    return at


def token(draw: Draw, lines: Lines, corpus: Mapping[str, Files], path: str) -> None:
    """Another token."""
    at = line_at(draw, lines)
    found = list(TOKEN.finditer(lines[at]))
    if not found:
        return
    one = draw.choice(found)
    lines[at] = lines[at][: one.start()] + other_token(draw, one[0], lines) + lines[at][one.end() :]


def other_token(draw: Draw, said: str, lines: Lines) -> str:
    """A token in the place of this one, of its kind more often than not."""
    if draw.random() < 0.1:
        return draw.choice(("", draw.choice(LITERALS), some_name(draw, lines), f"{said}, {said}", f"({said})"))
    if said[0] in "\"'":
        return quoted(draw, said)
    if said[0].isdigit():
        return draw.choice(LITERALS[:14])
    if NAME.match(said):
        return named(draw, said, lines)
    return f" {draw.choice(ARITHMETIC)} "


def quoted(draw: Draw, said: str) -> str:
    """A text: the annotation of a value, of a port, of a symbol, or any."""
    inner = said[1:-1]
    match draw.randrange(6):
        case 0:
            return f'"{draw.choice(SPECS)}"'
        case 1 if " " in inner:
            parts = inner.split(" ")
            parts[draw.randrange(len(parts))] = draw.choice((*sorted(ROLES), *SIZES, *SPECS, ""))
            return f'"{" ".join(parts)}"'
        case 2 | 3 if found := list(re.finditer(r"[\w.]+", inner)):
            one = draw.choice(found)
            other = draw.choice((*SIZES, *DTYPES.values(), *LAYOUTS, *sorted(ROLES)))
            return f'"{inner[: one.start()]}{other}{inner[one.end() :]}"'
        case 4:
            return f'"{draw.choice(SPECS)} {draw.choice(sorted(ROLES))} {draw.choice(("x", "", inner[-20:], "y.0"))}"'
    return json.dumps(draw.choice(words())[:400])


def named(draw: Draw, said: str, lines: Lines) -> str:
    """Another name: of an operator where there are dots, else of a value."""
    if "." in said and draw.random() < 0.7:
        if draw.random() < 0.3:
            return (
                said.rpartition(".")[0] + "." + draw.choice(("default", "Tensor", "out", "int", "Scalar", "x", "from"))
            )
        return draw.choice(targets())
    if keyword.iskeyword(said):
        return draw.choice(keyword.kwlist)
    return draw.choice(
        (some_name(draw, lines), some_name(draw, lines), some_name(draw, lines), said + "_1", draw.choice(LITERALS))
    )


def some_name(draw: Draw, lines: Lines) -> str:
    """A name that stands somewhere in the text."""
    found = NAME.findall(lines[line_at(draw, lines)])
    return draw.choice(found) if found else "x"


def doubled(draw: Draw, lines: Lines, corpus: Mapping[str, Files], path: str) -> None:
    at = line_at(draw, lines)
    lines.insert(draw.choice((at, line_at(draw, lines))), lines[at])


def dropped(draw: Draw, lines: Lines, corpus: Mapping[str, Files], path: str) -> None:
    del lines[line_at(draw, lines)]
    if not lines:
        lines.append("")


def moved(draw: Draw, lines: Lines, corpus: Mapping[str, Files], path: str) -> None:
    lines.insert(line_at(draw, lines), lines.pop(line_at(draw, lines)) if len(lines) > 1 else "")


def exchanged(draw: Draw, lines: Lines, corpus: Mapping[str, Files], path: str) -> None:
    left, right = line_at(draw, lines), line_at(draw, lines)
    lines[left], lines[right] = lines[right], lines[left]


def spliced(draw: Draw, lines: Lines, corpus: Mapping[str, Files], path: str) -> None:
    """Lines of another sample's file of this name."""
    other = other_file(draw, path, corpus)
    if isinstance(other, str):
        theirs = other.partition(MARKER)[0].split("\n")
        start, at = line_at(draw, theirs), line_at(draw, lines)
        lines[at : at + draw.choice((0, 0, 1, 3))] = theirs[start : start + draw.choice((1, 1, 2, 8, 40))]


def argument(draw: Draw, lines: Lines, corpus: Mapping[str, Files], path: str) -> None:
    """A call with an argument more, less, or another."""
    at = line_at(draw, lines)
    before, bracket, after = lines[at].rpartition("(")
    items = after.split(", ")
    if not bracket:
        return token(draw, lines, corpus, path)
    value = draw.choice((draw.choice(LITERALS), some_name(draw, lines)))
    value = draw.choice((value, value, f"[{value}]", f"({value},)", f"alpha={value}", f"dtype={value}", f"{value} + 1"))
    where = draw.randrange(len(items))
    match draw.randrange(3):
        case 0:
            items.insert(where, value)
        case 1 if len(items) > 1:
            items.pop(where)
        case _:
            items[where] = value + (")" if items[where].endswith(")") else "")
    lines[at] = before + bracket + ", ".join(items)
    return None


def called(draw: Draw, lines: Lines, corpus: Mapping[str, Files], path: str) -> None:
    """A call of something else of the table."""
    at = line_at(draw, lines)
    found = list(re.finditer(r"[A-Za-z_][\w.]*\.[\w.]+(?=\()", lines[at]))
    if not found:
        return token(draw, lines, corpus, path)
    one = draw.choice(found)
    lines[at] = lines[at][: one.start()] + draw.choice(targets()) + lines[at][one.end() :]
    return None


GROWING = apart("""
    {new} = torch.cat([{old}, {old}])  {new} = aten.cat.default([{old}, {old}])  {new} = {old} + {old}  {old} += {old}
    {new} = {old} ** {old}  {new} = {old} << {old}  {new} = [{old}, {old}]  {new} = ({old}, {old})  {new} = {old}[{old}]
    {new} = {old}.view(-1) + {old}  {new} = operator.mul({old}, {old})  {new} = operator.pow({old}, {old})
    {new} = {{'a': {old}, 'b': {old}}}  {new} = torch.stack([{old}, {old}]).split({old})  {new} = {old} @ {old} + {old}
    {new} = {old}.expand(9223372036854775807)  {new}: "f32[2]" = aten.add.Tensor({old}, {old})
    {new} = torch.where({old}, {old}, {old}) - 1  {new} = {old}.index_select(0, {old})  {new} = {old} // {old} % {old}
""")


def grown(draw: Draw, lines: Lines, corpus: Mapping[str, Files], path: str) -> None:
    """A chain of lines, each of which uses the one before more than once."""
    at = max((index for index, line in enumerate(lines) if line.strip().startswith("return")), default=len(lines) - 1)
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    old, form = some_name(draw, lines), draw.choice(GROWING)
    made = []
    for index in range(draw.choice((2, 8, 40, 300))):
        new = f"fuzz_{index}"
        made.append(indent + form.format(new=new, old=old))
        old = new if "{new}" in form else old
    lines[at:at] = made


def deepened(draw: Draw, lines: Lines, corpus: Mapping[str, Files], path: str) -> None:
    """A token deep within brackets, signs or calls."""
    at = line_at(draw, lines)
    found = list(TOKEN.finditer(lines[at]))
    if found:
        one, count = draw.choice(found), draw.choice((2, 10, 38, 100, 900))
        left, right = draw.choice(BRACKETS)
        lines[at] = lines[at][: one.start()] + left * count + one[0] + right * count + lines[at][one.end() :]


BRACKETS = (
    ("(", ")"),
    ("[", "]"),
    ("-", ""),
    ("(", ",)"),
    ("x(", ")"),
    ("{1: ", "}"),
    ("not ", ""),
    ("x + ", ""),
    ("x.", ""),
    ("f(x=", ")"),
    ("x[", "]"),
    ("~", ""),
    ("", ".T"),
    ("", "[0]"),
    ("", " < x"),
    ("torch.relu(", ")"),
    ("", " ** 2"),
)


def rewritten(draw: Draw, lines: Lines, corpus: Mapping[str, Files], path: str) -> None:
    """A line of another kind."""
    at = line_at(draw, lines)
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    name, other = some_name(draw, lines), some_name(draw, lines)
    words_of = {
        "name": name,
        "other": other,
        "size": draw.choice(SIZES),
        "size_1": draw.choice(SIZES),
        "literal": draw.choice(LITERALS),
        "spec": draw.choice(SPECS),
        "target": draw.choice(targets()),
        "word": draw.choice(words())[:99],
        "atom": draw.choice(sorted(ATOMS)),
        "echo": draw.choice(ECHOES),
        "sign": draw.choice(ARITHMETIC),
    }
    lines[at : at + draw.randrange(2)] = [indent + draw.choice(FORMS).format(**words_of)]


FORMS = apart("""
    assert {name} == {literal}  assert {name}.shape == ({size},)  assert {name} != {name}  {name} = {other}
    {name} = {other}[{literal}]  {name}, {other} = {other}  {name} = None  # {echo} {name}, {other};
    # [{name}] a.py:{literal} in f: g  # {word}  s9: "{size} in [{size_1}, {size}]"  return ({name}, {other})  pass
    {name}: "{spec}" = {target}({other}, {literal})  del {name}  {name} = {target}({other})  {name} {sign} {other}
    import os  class {name}(torch.nn.Module):  {name} = {name}()  @torch.no_grad()  def forward(self):
    for {name} in {other}:  {name}[{other}] = {literal}  shape = [{size}, {size_1}]  data = [{literal}, {literal}]
    dtype = "torch.{atom}"
    mean = {literal}  std = {literal}  min_val = {literal}  max_val = {literal}  data = {literal}
    name = {literal}  original_name = {literal}  device = {literal}  original_name = "{word}"  name = "{other}"
""")
"""Lines of other kinds, of graphs and of metadata."""


def nested_class(draw: Draw, lines: Lines, corpus: Mapping[str, Files], path: str) -> None:
    """The class within itself, as a subgraph."""
    start = next((index for index, line in enumerate(lines) if line.startswith("class ")), None)
    if start is None:
        return
    name = draw.choice(("body", "GraphModule", "forward", "s0", "x", "__init__", "body"))
    inner = ["    " + line if line.strip() else line for line in lines[start:]]
    inner[0] = f"    class {name}(torch.nn.Module):"
    lines[start + 1 : start + 1] = [*inner, f"    {name} = {name}()"]


Change = Callable[[Draw, Lines, Mapping[str, Files], str], None]
LINES: Mapping[str, tuple[int, Change]] = {
    "token": (30, token),
    "argument": (14, argument),
    "called": (10, called),
    "rewritten": (10, rewritten),
    "doubled": (4, doubled),
    "dropped": (5, dropped),
    "moved": (3, moved),
    "exchanged": (3, exchanged),
    "spliced": (5, spliced),
    "grown": (5, grown),
    "deepened": (2, deepened),
    "nested": (1, nested_class),
}
"""Changes of a text's lines, with how often each is drawn."""
