"""Texts that are not graphs, and want something: each is refused by name, with its line, and nothing of it runs.

Every text is a good graph with one thing planted. What is planted would make the file `CANARY` if any of it ran.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from face import MAX_CHARACTERS, MAX_TOKENS, GraphError, RefusedError, parse
from face import text as text_module

GOOD = '''\
"""good"""

import math
import operator

import torch
from torch import inf, nan

aten, prims = torch.ops.aten, torch.ops.prims


class GraphModule(torch.nn.Module):
    s0: "4 in [2, inf]"
    def forward(
        self,
        x: "f32[2, 3] input x",
    ) -> (
        "f32[2, 3] output out",
    ):
        # model.py:1 in forward: y = f(x)
        y: "f32[2, 3]" = aten.relu.default(x)
        # -
        z = aten.add.Tensor(y, 1, alpha=2)
        assert z.shape == (2, 3)
        return (z,)
'''
CLASS, SYMBOL, DEF, INPUT, OUTPUT, COMMENT, ONE, TWO, ASSERT, RETURN = 12, 13, 14, 16, 18, 20, 21, 23, 24, 25
"""The lines of GOOD that texts below change."""

RUN = "__import__('os').system('touch CANARY')"


def with_line(number: int, line: str) -> str:
    """GOOD with one line in the place of another, at the same indentation."""
    lines = GOOD.split("\n")
    indent = lines[number - 1][: -len(lines[number - 1].lstrip())]
    return "\n".join([*lines[: number - 1], indent + line, *lines[number:]])


def before(number: int, line: str) -> str:
    """GOOD with a line more."""
    lines = GOOD.split("\n")
    indent = lines[number - 1][: len(lines[number - 1]) - len(lines[number - 1].lstrip())]
    return "\n".join([*lines[: number - 1], indent + line, *lines[number - 1 :]])


def call(expression: str) -> str:
    return with_line(TWO, f"z = {expression}")


def argument(expression: str) -> str:
    return call(f"aten.relu.default({expression})")


DEEP = 100_000
NFKC = "\N{MATHEMATICAL BOLD SMALL X}"  # Python reads it as x

TEXTS: dict[str, tuple[str, int, str]] = {
    # calls of what is no operator
    "os.system": (call("os.system('touch CANARY')"), TWO, "'os.system' is not a known tensor operator"),
    "eval": (call(f'eval("{RUN}")'), TWO, "'eval' is not a known"),
    "the call of a call": (call(RUN), TWO, "is not a dotted name"),
    "torch.load": (call("torch.load('CANARY')"), TWO, "'torch.load' is not a known"),
    "torch.ops.load_library": (
        call("torch.ops.load_library('CANARY')"),
        TWO,
        "'torch.ops.load_library' is not a known",
    ),
    "load_library as a namespace": (call("torch.ops.load_library.a.b()"), TWO, "'torch.ops.load_library.a.b'"),
    "the os of torch": (call("torch.serialization.os.system('touch CANARY')"), TWO, "'torch.serialization.os.system'"),
    "dunders": (call("torch.nn.Module.__init__.__globals__.get('os')"), TWO, "__init__.__globals__.get"),
    "aten.from_file": (call("aten.from_file.default('CANARY', True, 8)"), TWO, "'aten.from_file.default'"),
    "an unknown higher-order operator": (call("torch.ops.higher_order.print.default(y)"), TWO, "higher_order.print"),
    "a method": (call("y.numpy()"), TWO, "'y.numpy' is not a known"),
    "self.__class__": (argument("self.__class__"), TWO, "'self.__class__' is not a subgraph"),
    "self": (argument("self"), TWO, "unknown name 'self'"),
    "operator.attrgetter": (call("operator.attrgetter('__class__')"), TWO, "'operator.attrgetter' is not a known"),
    "an operator of builtins as data": (
        argument("torch.ops.load_library"),
        TWO,
        "'torch.ops.load_library' is not a known",
    ),
    "a symbol as data": (argument("s0"), TWO, "unknown name 's0'"),
    # values that are none
    "a call as an argument": (argument(f"x, {RUN}"), TWO, "is not a dotted name"),
    "a star argument": (argument(f"*{RUN}"), TWO, "is not a value of a graph"),
    "a star keyword": (argument("x, **y"), TWO, "** takes a dictionary of names"),
    "a keyword twice": (argument("x, a=1, **{'a': 2}"), TWO, "a keyword stands twice"),
    "a keyword with code": (argument("x, **{'a); import os; (': 1}"), TWO, "'a); import os; (' is not a keyword"),
    "a dunder keyword": (argument("x, __class__=1"), TWO, "'__class__' is not a keyword"),
    "a lambda": (argument(f"lambda: {RUN}"), TWO, "lambda: __import__"),
    "bytes": (argument("b'x'"), TWO, """"b'x'" is a string with a prefix"""),
    "an ellipsis": (argument("..."), TWO, "'...' is not a value"),
    "arithmetic": (argument("x + y"), TWO, "'x + y' is not a value"),
    "arithmetic for a step": (call("x + y"), TWO, "'x + y' is not a call"),
    "minus a name": (argument("-x"), TWO, "minus of 'x'"),
    "an item of a call": (call(f"{RUN}[0]"), TWO, "is not a call of an operator"),
    "a slice of a name": (call("y[0:1]"), TWO, "'0:1' is not a value"),
    "a device of code": (argument("torch.device('cpu; import os')"), TWO, "'cpu; import os' is not a device name"),
    "a huge number": (argument("9" * 5000), TWO, "Exceeds the limit"),
    "a huge number in hex": (argument("0x" + "f" * 100_000), TWO, "an integer of 400000 bits"),
    # statements that are none
    "an import inside": (before(TWO, "import os"), TWO, "'import os' is not a step"),
    "a statement beside a step": (with_line(TWO, f"z = aten.relu.default(y); {RUN}"), TWO, "is not a step"),
    "an expression": (before(TWO, RUN), TWO, "is not a step"),
    "an attribute set": (before(TWO, f"torch.relu = {RUN}"), TWO, "torch.relu = "),
    "a function inside": (before(TWO, "def f(): pass"), TWO, "'def f(): pass' is not a step"),
    "an assert's message": (with_line(ASSERT, f"assert z == 1, {RUN}"), ASSERT, "is not a step"),
    "an assert that calls": (with_line(ASSERT, f"assert z == {RUN}"), ASSERT, "is not a dotted name"),
    "an assert that calls on the left": (with_line(ASSERT, f"assert {RUN} == 1"), ASSERT, "is not a guard"),
    "an assert of two": (with_line(ASSERT, "assert z != y"), ASSERT, "'assert z != y' is not a guard"),
    "an assert of three": (with_line(ASSERT, f"assert z == 1 == {RUN}"), ASSERT, "is not a step"),
    "the return of a call": (with_line(RETURN, f"return ({RUN},)"), RETURN, "is not a dotted name"),
    "the return of no tuple": (with_line(RETURN, "return z"), RETURN, "a graph returns a tuple"),
    "a return halfway": (before(TWO, "return (y,)"), TWO, "return is a graph's last line"),
    "no return": (with_line(RETURN, "a = aten.relu.default(z)"), DEF, "forward does not return"),
    # names
    "use before definition": (argument("z"), TWO, "unknown name 'z'"),
    "a name defined twice": (with_line(TWO, "y = aten.relu.default(x)"), TWO, "'y' is defined twice"),
    "a name that shadows torch": (with_line(TWO, "torch = aten.relu.default(x)"), TWO, "'torch' is reserved"),
    "an input that shadows operator": (before(INPUT, 'operator: "f32[2] input y",'), DEF, "'operator' is reserved"),
    "an input twice": (before(INPUT, 'x: "f32[2] input y",'), DEF, "'x' is defined twice"),
    "a name that Python mangles": (with_line(TWO, "__z = aten.relu.default(x)"), TWO, "'__z' is reserved"),
    "a name that normalises": (with_line(TWO, f"{NFKC} = aten.relu.default(x)"), TWO, "U+1D431"),
    "a long name": (with_line(TWO, f"{'z' * 300} = aten.relu.default(x)"), TWO, "is not a name of a value"),
    # the class and its function
    "a decorator on the class": (before(CLASS, f"@{RUN}"), CLASS + 1, "no decorators"),
    "a decorator on forward": (before(DEF, f"@{RUN}"), DEF + 1, "decorators, defaults and star"),
    "another base": (
        with_line(CLASS, "class GraphModule(torch.jit.ScriptModule):"),
        CLASS,
        "not 'torch.jit.ScriptModule'",
    ),
    "a base that is a call": (with_line(CLASS, f"class GraphModule({RUN}):"), CLASS, "is not a dotted name"),
    "two bases": (with_line(CLASS, "class GraphModule(torch.nn.Module, Evil):"), CLASS, "one base"),
    "a metaclass": (with_line(CLASS, "class GraphModule(torch.nn.Module, metaclass=M):"), CLASS, "no keywords"),
    "another class": (with_line(CLASS, "class Other(torch.nn.Module):"), CLASS, "is outside the class"),
    "a default": (with_line(INPUT, f'x: "f32[2] input x" = {RUN},'), DEF, "decorators, defaults and star"),
    "a keyword-only default": (with_line(INPUT, f'x: "f32[2] input x", *, y={RUN},'), DEF, "defaults and star"),
    "star parameters": (with_line(INPUT, '*x: "f32[2] input x",'), DEF, "star parameters"),
    "no self": (with_line(DEF + 1, ""), DEF, "forward takes self first"),
    "an annotation that is a call": (with_line(INPUT, f"x: {RUN},"), INPUT, "a port is a string annotation"),
    "an output that is a call": (with_line(OUTPUT, f"{RUN},"), OUTPUT, "a port is a string annotation"),
    "a step's annotation that is a call": (with_line(ONE, f"y: {RUN} = aten.relu.default(x)"), ONE, "is not a step"),
    "another method": (before(DEF, "def __del__(self): pass"), DEF, "'def __del__(self): pass' cannot stand"),
    "a class attribute": (before(DEF, f"a = {RUN}"), DEF, "cannot stand in a graph's class"),
    "a subgraph with another base": (before(DEF, "class a(object): pass"), DEF, "not 'object'"),
    "a subgraph without forward": (
        before(DEF, 'class a(torch.nn.Module): s1: "1 in [0, 9]"'),
        DEF,
        "class a has no forward",
    ),
    # around the class
    "a statement more": (GOOD + RUN, RETURN + 1, "is outside the class"),
    "a statement before": (before(CLASS, RUN), CLASS, "is outside the class"),
    "another import": (with_line(3, "import os"), 3, "'import os' is not the header"),
    "a header twice": (with_line(4, "import math"), 4, "'import math' is not the header"),
    "another aten": (with_line(9, f"aten, prims = {RUN}, 1"), 9, "is not the header"),
    "a second docstring": (before(3, '"""more"""'), 3, "is not the header"),
    # annotations and comments
    "a forged dtype": (with_line(INPUT, 'x: "f99[2, 3] input x",'), INPUT, "'f99' is not a dtype"),
    "a forged role": (with_line(INPUT, 'x: "f32[2, 3] evil x",'), INPUT, "is not a port"),
    "an output's role going in": (with_line(INPUT, 'x: "f32[2, 3] output x",'), DEF, "has the role 'output'"),
    "no name": (with_line(INPUT, 'x: "f32[2, 3] input",'), INPUT, "is not a port"),
    "a port's name of two lines": (with_line(INPUT, r'x: "f32[2, 3] input a\nb",'), INPUT, "is not a port"),
    "a size with code": (with_line(INPUT, f'x: "f32[{RUN}] input x",'), INPUT, "is not a size of a tensor"),
    "a huge size": (with_line(INPUT, f'x: "f32[{"9" * 30}] input x",'), INPUT, "is not a size: a size is a number"),
    "a scalar with code": (with_line(ONE, f'y: "SymInt({RUN})" = aten.relu.default(x)'), ONE, "is not a size"),
    "a scalar of no kind": (with_line(ONE, 'y: "Evil(s0)" = aten.relu.default(x)'), ONE, "'Evil' is not a scalar kind"),
    "a spec nested deeply": (with_line(ONE, f'y: "{"(" * 9}?{",)" * 9}" = aten.relu.default(x)'), ONE, "too deeply"),
    "strides for other sizes": (with_line(INPUT, 'x: "f32[2, 3] stride=[1] input x",'), INPUT, "cannot have 1 strides"),
    "a symbol without a range": (with_line(SYMBOL, 's0: "4"'), SYMBOL, "'4' is not a symbol's range"),
    "a symbol with an empty range": (with_line(SYMBOL, 's0: "4 in [9, 2]"'), SYMBOL, "no size is in [9, 2]"),
    "a symbol with code": (with_line(SYMBOL, "s0: \"4 in [2, __import__('os')]\""), SYMBOL, "is not a size"),
    "a symbol with a value": (with_line(SYMBOL, f's0: "4 in [2, inf]" = {RUN}'), SYMBOL, "cannot stand"),
    "a symbol twice": (before(SYMBOL, 's0: "4 in [2, inf]"'), DEF + 1, "'s0' is defined twice"),
    "a symbol called forward": (with_line(SYMBOL, 'forward: "4 in [2, inf]"'), DEF, "'forward' is defined twice"),
    "a type comment": (with_line(COMMENT, "# type: ignore[evil]"), COMMENT, "is not a source line of a graph"),
    "a type comment beside a step": (
        with_line(TWO, "z = aten.relu.default(x)  # type: int"),
        TWO,
        "a comment beside code",
    ),
    "a comment of no source": (with_line(COMMENT, f"# {RUN}"), COMMENT, "is not a source line of a graph"),
    "a forged link": (with_line(COMMENT, "# gradient of class, import;"), COMMENT, "'class' is reserved"),
    "a form feed in a comment": (with_line(COMMENT, "# a.py:1 in f: x\f import os"), COMMENT, "U+000C"),
    "a carriage return in a comment": (with_line(COMMENT, f"# a.py:1 in f: x\r        {RUN}"), COMMENT, "U+000D"),
    "text that runs backwards": (with_line(COMMENT, "# a.py:1 in f: \u202e)x(f"), COMMENT, "U+202E"),
    "a null byte": (with_line(COMMENT, "# a.py:1 in f: \0"), COMMENT, "U+0000"),
    "half a character": (argument("'\ud800'"), TWO, "U+D800"),
    "a byte order mark": ("\ufeff" + GOOD, 1, "U+FEFF"),
    "not Python": (with_line(TWO, "z = ="), TWO, "not Python"),
    # too deep
    "parentheses": (argument("(" * DEEP + ")" * DEEP), TWO, "too many nested parentheses"),
    "lists that Python takes": (argument("[" * 60 + "]" * 60), TWO, "a value is nested too deeply"),
    "minus signs that Python takes": (argument("-" * 60 + "1"), TWO, "a value is nested too deeply"),
    "attributes that Python takes": (argument("x" + ".a" * 900), TWO, "is not a known tensor operator"),
    "attributes in the header": (with_line(3, "math" + ".a" * 900), 3, "is not the header"),
    "a base's attributes": (with_line(CLASS, f"class GraphModule(torch{'.a' * 900}):"), CLASS, "not 'torch.a.a"),
    "a sum": (argument("x" + "+x" * DEEP), 0, "nested too deeply"),
    # too long
    "a very long text": (GOOD + " " * MAX_CHARACTERS, 0, f"at most {MAX_CHARACTERS:,} are read"),
    "a very full text": (argument("x," * MAX_TOKENS), 0, f"at most {MAX_TOKENS:,} are read"),
    "nothing": ("", 0, "no class GraphModule"),
}


RUNS = frozenset({"exec", "import", "open", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen"})
seen: list[str] | None = None


def watch(event: str, args: tuple[object, ...]) -> None:
    """Python tells its audit hooks of everything that runs, and hooks are for good: this one listens when told to."""
    if seen is None or threading.get_ident() != threading.main_thread().ident:
        return
    if event in RUNS and args[:1] != ("<unknown>",):  # where a SyntaxError looks for its line
        seen.append(f"{event} {args!r:.80}")


sys.addaudithook(watch)


def read(text: str) -> None:
    """Parse, and let nothing run meanwhile."""
    global seen
    seen = []
    try:
        parse(text)
    finally:
        ran, seen = seen, None
        assert ran == [], "something ran"


@pytest.fixture(scope="module", autouse=True)
def table() -> None:
    """The table of operators is read from its file once, before anyone watches."""
    parse(GOOD)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("text", "line", "why"), TEXTS.values(), ids=TEXTS.keys())
def test_refused_by_name_and_not_run(text: str, line: int, why: str, here: Path) -> None:
    began = time.perf_counter()
    with pytest.raises(GraphError) as caught:
        read(text)
    took = time.perf_counter() - began
    message = str(caught.value)
    assert why in message
    assert len(message) < 600
    said = re.match(r"line (\d+): ", message)
    assert (int(said[1]) if said else 0) == line, message
    assert took < 10
    assert list(here.iterdir()) == []


def test_the_text_that_these_change_is_good() -> None:
    assert parse(GOOD).code == GOOD


def test_a_reader_that_runs_its_text_is_noticed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the canary sings: run as Python, what is planted makes the file."""
    monkeypatch.setattr(text_module, "python_tree", lambda text: eval(RUN))
    with pytest.raises(AssertionError, match=r"something ran[\s\S]*exec"):
        read(GOOD)
    assert (here / "CANARY").exists()


@pytest.mark.parametrize("name", ["os.system", "a keyword with code", "a size with code", "a form feed in a comment"])
def test_what_is_unknown_is_a_refusal(name: str) -> None:
    with pytest.raises(RefusedError):
        parse(TEXTS[name][0])


# ------------------------------------------------------------------ with little memory and time

NASTY = {
    "parentheses": 'argument("(" * 10**6)',
    "lists": 'argument("[" * 10**6)',
    "minus signs": 'argument("-" * 10**6 + "1")',
    "attributes": 'argument("x" + ".a" * 700_000)',
    "a chain of or": 'argument("x" + " or x" * 300_000)',
    "strings side by side": "argument(\"''\" * 10**6 + ' x')",
    "quotes and backslashes": "argument('é' + '\"' + '\\\\\"' * 10**6)",
    "half a string": "argument('é' + '\"' * 10**6)",
    "digits": 'argument("9" * 10**7)',
    "digits in a size": "with_line(INPUT, 'x: \"f32[' + '1' * 10**6 + '$] input x\",')",
    "brackets in a spec": "with_line(INPUT, 'x: \"' + '(' * 5 * 10**5 + ' input x\",')",
    "commas in a spec": "with_line(INPUT, 'x: \"(' + ',' * 5 * 10**5 + ') input x\",')",
    "colons in a comment": 'with_line(COMMENT, "# a" + ":1 of " * 10**5)',
    "words in a comment": 'with_line(COMMENT, "# gradient of " + "a, " * 10**5)',
    "a giant expression": 'before(CLASS, "x(" + "1," * 300_000 + ")")',
    "a giant header": 'with_line(3, "x(" + "1," * 300_000 + ")")',
}
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
from backprint.errors import GraphError
from backprint.graph.text import parse
from test_hostile import *
try:
    parse({text})
except GraphError as error:
    print("refused", len(str(error)) < 600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY.keys())
def test_the_nastiest_within_a_gigabyte(text: str) -> None:
    paths = [*map(str, Path(__file__).parents[:2]), str(Path(text_module.__file__).parents[2])]
    code = f"import sys; sys.path[:0] = {paths}; sys.dont_write_bytecode = True\n" + LIMITED.format(text=text)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "refused True\n", done.stderr[-2000:]
