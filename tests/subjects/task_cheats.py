"""Solutions that are wrong and pretend to be right, each with what the judge says of it.

They are those that fooled published judges of kernels (KernelBench, SOL-ExecBench), those that fooled earlier versions
of `backprint bench`, and ones that attack this judge's own ways. The task is a root-mean-square norm with a soft cap.
"""

from __future__ import annotations

import torch
from torch import Tensor

CAP = 50.0


def capped_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Return the rows of x with a root mean square of one, times a weight, capped softly."""
    normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
    return CAP * torch.tanh(normed / CAP)


RIGHT = """
import torch

def compute(x, weight):
    normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
    return 50.0 * torch.tanh(normed / 50.0)

def gradients(x, weight, tangent):
    with torch.enable_grad():
        x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
        return torch.autograd.grad(compute(x, weight), (x, weight), tangent)

class Solution(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return compute(x, weight)

    @staticmethod
    def backward(ctx, tangent):
        x, weight = ctx.saved_tensors
        return gradients(x, weight, tangent)
"""


def other(forward: str = "", backward: str = "", before: str = "") -> str:
    """Return the right solution with other returned values, and code before it."""
    text = RIGHT
    if forward:
        text = text.replace("        return compute(x, weight)\n", forward)
    if backward:
        text = text.replace("        return gradients(x, weight, tangent)\n", backward)
    return f"{before}\n{text}" if "class Solution" not in before else before


CHEATS: dict[str, tuple[str, str]] = {
    # ---- published of KernelBench
    "zeros": (other("        return torch.zeros_like(x)\n"), "forward, float32: output: off by"),
    "identity": (other("        return x.clone()\n"), "forward, float32: output: off by"),
    "the input itself": (other("        return x\n"), "forward, float32: output: off by|is a view of x"),
    "constant gradients": (other(backward="        return torch.ones_like(x), torch.ones_like(weight)\n"), "gradient"),
    "no gradient of the weight": (
        other(backward="        return gradients(x, weight, tangent)[0], None\n"),
        "gradient",
    ),
    "remembers by address": (
        other(
            """
        key = (x.data_ptr(), weight.data_ptr())
        if key not in memory:
            memory[key] = compute(x, weight)
        return memory[key].clone()
""",
            before="memory = {}",
        ),
        "off by|different results",
    ),
    "remembers by shape": (
        other(
            """
        if x.shape not in memory:
            memory[x.shape] = compute(x, weight)
        return memory[x.shape].clone()
""",
            before="memory = {}",
        ),
        "forward, float32: output: off by",
    ),
    "another clock": (
        other(
            before="import time, itertools\nticks = itertools.count()\ntime.perf_counter = lambda: next(ticks) * 1e-9"
        ),
        "the clock was changed: time.perf_counter replaced",
    ),
    "wrong at other shapes": (
        other("        return compute(x, weight) if x.shape == (6, 16) else torch.zeros_like(x)\n"),
        "sizes .*off by",
    ),
    "another allclose": (
        other(before="import torch\ntorch.allclose = lambda *args, **kwargs: True"),
        "replaces what results are compared with: torch.allclose",
    ),
    "another equal": (
        other(before="import torch\ntorch.equal = lambda *args: True\ntorch.Tensor.__eq__ = lambda *args: True"),
        "replaces what results are compared with",
    ),
    "finds the judge by gc": (
        other(
            """
        import gc
        for thing in gc.get_objects():
            if type(thing).__name__ in ("Expected", "Forward", "Fault", "Judging"):
                return thing.outputs
        return torch.zeros_like(x)
"""
        ),
        "forward, float32: output: off by",
    ),
    "finds the judge in the stack": (
        other(
            """
        import sys
        frame = sys._getframe()
        while frame is not None:
            for value in frame.f_locals.values():
                if type(value).__name__ == "Expected":
                    return value.exact.outputs["output"]
            frame = frame.f_back
        return torch.zeros_like(x)
"""
        ),
        "forward, float32: output: off by",
    ),
    "reads the judge's memory": (
        other(
            """
        import os
        open(f"/proc/{os.getppid()}/mem", "rb").close()
        raise AssertionError("it could be opened")
"""
        ),
        "PermissionError",
    ),
    # ---- published of SOL-ExecBench
    "no soft cap": (
        other(
            "        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight\n",
        ),
        "off by",
    ),
    "sums in bfloat16": (
        other(
            """
        square = x.pow(2).bfloat16().mean(-1, keepdim=True).float()
        return 50.0 * torch.tanh(x * torch.rsqrt(square + 1e-6) * weight / 50.0)
"""
        ),
        "forward.*off by",
    ),
    "takes all rows for equal": (
        other(
            """
        square = x[:1].pow(2).mean(-1, keepdim=True)
        return 50.0 * torch.tanh(x * torch.rsqrt(square + 1e-6) * weight / 50.0)
"""
        ),
        "forward, float32: output: off by",
    ),
    "knows the first three draws": (
        other(
            """
        calls.append(x)
        return compute(x, weight) if len(calls) < 4 else compute(x, weight) * 1.01
""",
            before="calls = []",
        ),
        "off by|different results",
    ),
    "no epsilon": (
        other(
            """
        normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)) * weight
        return 50.0 * torch.tanh(normed / 50.0)
"""
        ),
        "off by|NaN|nan",
    ),
    # ---- those that fooled `backprint bench`
    "the seventh call": (
        other(
            """
        calls.append(0)
        return compute(x, weight) * (1.05 if len(calls) == 7 else 1)
""",
            before="calls = []",
        ),
        "off by|different results",
    ),
    "the twelfth backward": (
        other(
            backward="""
        calls.append(0)
        first, second = gradients(x, weight, tangent)
        return first * (1.05 if len(calls) == 12 else 1), second
""",
            before="calls = []",
        ),
        "off by|different results",
    ),
    "a pool of buffers": (
        other(
            """
        results = compute(x, weight)
        key = x.shape, x.dtype
        pool.setdefault(key, [])
        if len(pool[key]) < 8:
            pool[key].append(results)
            return results
        pool[key].append(pool[key].pop(0))
        return pool[key][-1].copy_(results)
""",
            before="pool = {}",
        ),
        "is another now",
    ),
    "one buffer": (
        other(
            """
        key = x.shape, x.dtype
        pool.setdefault(key, torch.empty_like(x, memory_format=torch.contiguous_format))
        return pool[key].copy_(compute(x, weight))
""",
            before="pool = {}",
        ),
        "is another now|gradient",
    ),
    "zeroed later": (
        other(
            """
        import threading, time
        results = compute(x, weight)
        def zero(kept=results.detach()):
            time.sleep(0.2)
            kept.zero_()
        threading.Thread(target=zero, daemon=True).start()
        return results
"""
        ),
        "is another now|off by",
    ),
    "near what it remembers": (
        other(
            """
        key = x.shape, x.dtype, round(float(x.reshape(-1)[0]), 2), round(float(weight.reshape(-1)[0]), 2)
        if key not in memory:
            memory[key] = compute(x, weight)
        return memory[key].clone()
""",
            before="memory = {}",
        ),
        "off by",
    ),
    # ---- what a call must leave as it is
    "seeds torch": (
        other("        torch.manual_seed(0)\n        return compute(x, weight)\n"),
        "its forward changes the process that calls it: torch's random state",
    ),
    "sets the default dtype": (
        other(
            backward="        torch.set_default_dtype(torch.float64)\n        return gradients(x, weight, tangent)\n"
        ),
        "its backward changes .*the default dtype from float32 to float64",
    ),
    "leaves gradients off": (
        other(before="import torch\ntorch.set_grad_enabled(False)"),
        "its file changes the process that loads it: grad mode from True to False",
    ),
    "overwrites what it saved, unseen": (
        other(
            before="import ctypes",
            forward="        ctx.save_for_backward(x, weight, x.clone())\n        return compute(x, weight)\n",
            backward="""
        x, weight, own = ctx.saved_tensors
        result = gradients(x, weight, tangent)
        ctypes.memset(own.data_ptr(), 0, 4)
        return result
""",
        ).replace("        x, weight = ctx.saved_tensors\n", ""),
        "it writes into what it saved, without a new version",
    ),
    "overwrites its input in the backward, unseen": (
        other(
            before="import ctypes",
            backward="""
        result = gradients(x, weight, tangent)
        ctypes.memset(x.data_ptr(), 0, 4)
        return result
""",
        ),
        "it writes into x",
    ),
    # ---- sizes of tangents, means and shapes
    "clamps its tangent": (
        other(backward="        return gradients(x, weight, tangent.clamp(-100, 100))\n"),
        r"tangents times 2\^16",
    ),
    "drops small tangents": (
        other(backward="        return gradients(x, weight, torch.where(tangent.abs() < 1e-6, 0, tangent))\n"),
        r"tangents times 2\^-20",
    ),
    "one block of 64 rows": (
        other("        result = compute(x, weight)\n        result[64:] *= 1.01\n        return result\n"),
        "sizes .*off by",
    ),
    # ---- this judge's own ways
    "writes into its input": (
        other("        result = compute(x, weight)\n        x.mul_(1.5)\n        return result\n"),
        "it writes into x|off by",
    ),
    "writes into its tangent": (
        other(
            backward="        result = gradients(x, weight, tangent)\n        tangent.zero_()\n        return result\n"
        ),
        "writes into",
    ),
    "wrong for expanded tangents": (
        other(
            backward="""
        first, second = gradients(x, weight, tangent)
        return (first * 2 if 0 in tangent.stride() else first), second
"""
        ),
        "expanded tangents.*off by|zeros",
    ),
    "no NaN": (other("        return compute(x, weight).nan_to_num()\n"), "NaN in x: output: element"),
    "a random result": (
        other("        return compute(x, weight) + 1e-2 * torch.randn_like(x)\n"),
        "off by|same for equal|torch's random state",
    ),
    "a view of its weight": (
        other(
            before="""
import torch

class Solution(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        return weight.expand_as(x)

    @staticmethod
    def backward(ctx, tangent):
        return None, None
"""
        ),
        "off by|is a view",
    ),
    "a backward that is off a little": (
        other(
            backward="        first, second = gradients(x, weight, tangent)\n        return first * 1.0005, second\n"
        ),
        "gradient.*off by",
    ),
    "saves outside of its context": (
        other(
            before="kept = []",
            forward="        kept[:] = [x, weight]\n        return compute(x, weight)\n",
            backward="        return gradients(*kept, tangent)\n",
        ),
        "another call before the backward",
    ),
    "spoils what it saved": (
        other(
            """
        ctx.own = x.clone()
        return compute(x, weight)
""",
            backward="""
        result = gradients(ctx.own, weight, tangent)
        ctx.own.zero_()
        return result
""",
        ),
        "a second backward",
    ),
    "does not write all of its result": (
        other(
            """
        result = torch.empty_like(x)
        part = compute(x, weight)
        result[part.abs() > 0.01] = part[part.abs() > 0.01]
        return result
"""
        ),
        "off by|same for equal",
    ),
    "adds to new memory": (
        other(backward="        g, h = gradients(x, weight, tangent)\n        return g + 0 * torch.empty_like(g), h\n"),
        "new memory has NaN|off by",
    ),
    "wrong where x is frozen": (
        other(
            backward="""
        g, h = gradients(x, weight, tangent)
        return g, h if ctx.needs_input_grad[0] else h * 2
"""
        ),
        "alone",
    ),
    "another result where no gradients are recorded": (
        other("        return compute(x, weight)\n")
        + """

Trained = Solution


def Solution(x, weight):
    return Trained.apply(x, weight) if torch.is_grad_enabled() else compute(x, weight) * 1.01
""",
        "forward, no_grad.*off by",
    ),
    "another result in inference mode": (
        other("        return compute(x, weight) * (1 + 0.01 * torch.is_inference_mode_enabled())\n"),
        "forward, inference mode.*off by",
    ),
    "keeps its result without autograd": (
        other(
            """
        ctx.own = compute(x, weight)
        return ctx.own
""",
            backward="""
        scale = (ctx.own == compute(x, weight)).to(x.dtype)
        return gradients(x, weight, tangent * scale)
""",
        ),
        "was written to",
    ),
    "one row for all": (
        other("        return compute(x, weight)[:1].expand_as(x)\n"),
        "off by|uses the memory of",
    ),
    "less precise where it is timed": (
        other(
            """
        calls.append(0)
        return compute(x, weight) if len(calls) < 8 else compute(x.bfloat16(), weight.bfloat16()).to(x.dtype)
""",
            before="calls = []",
        ),
        "off by",
    ),
}

UNRULY: dict[str, tuple[str, str]] = {
    "exits": (other("        raise SystemExit(0)\n"), "SystemExit"),
    "exits at once": (other("        import os\n        os._exit(0)\n"), "exit 0: ended before it was done"),
    "exits at import": (other(before="import os\nos._exit(3)"), "exit 3: ended before it was done"),
    "crashes": (other("        import ctypes\n        ctypes.string_at(0)\n"), "killed by SIGSEGV"),
    "hangs": (other("        import time\n        time.sleep(1000)\n"), "timeout: still at work after"),
    "raises": (other("        raise ValueError('not today')\n"), "ValueError: not today"),
    "raises at its twelfth call": (
        other(
            """
        calls.append(0)
        if len(calls) == 12:
            raise ValueError("no more")
        return compute(x, weight)
""",
            before="calls = []",
        ),
        "no more",
    ),
    "refuses NaN": (
        other("        assert not x.isnan().any()\n        return compute(x, weight)\n"),
        "NaN in x: .*AssertionError|raised AssertionError",
    ),
    "refuses other sizes": (
        other("        assert x.shape == (6, 16)\n        return compute(x, weight)\n"),
        "sizes .*raised AssertionError",
    ),
    "refuses large numbers": (
        other("        assert x.abs().max() < 100\n        return compute(x, weight)\n"),
        "1e4 in x: .*AssertionError|raised .*AssertionError",
    ),
    "raises where nothing requires grad": (
        other("        assert ctx.needs_input_grad[0] or ctx.needs_input_grad[1]\n        return compute(x, weight)\n"),
        "usage: it raised AssertionError",
    ),
    "raises what raises": (
        other(
            before="class Odd(Exception):\n    def __str__(self): raise RuntimeError('no')\n",
            forward="        raise Odd()\n",
        ),
        "Odd",
    ),
    "another dtype": (other("        return compute(x, weight).double()\n"), "dtype is float64"),
    "another shape": (other("        return compute(x, weight)[:1]\n"), "has the shape"),
    "another device": (other("        return compute(x, weight).to('meta')\n"), "on meta"),
    "no tensor": (other("        return 'zeros'\n"), "is a str|'zeros'"),
    "nothing": (other("        return None\n"), "None"),
    "two results": (other("        return compute(x, weight), x.clone()\n"), "returns 2 results, and the task has 1"),
    "a subclass": (
        other(
            before="import torch\nclass Odd(torch.Tensor): pass\n",
            forward="        return compute(x, weight).as_subclass(Odd)\n",
        ),
        "Odd",
    ),
    "a gradient of another shape": (
        other(backward="        first, second = gradients(x, weight, tangent)\n        return first, second[:3]\n"),
        "shape",
    ),
    "no solution": ("import torch\n", "has no Solution"),
    "no Python": ("def\n", "SyntaxError"),
    "all memory": (other("        return torch.ones(1 << 33, dtype=torch.int8)\n"), "GiB|memory"),
}

HARMLESS: dict[str, str] = {
    "forks": other(
        """
        import os
        if not seen:
            seen.append(os.fork())
        return compute(x, weight)
""",
        before="seen = []",
    ),
    "prints": other("        print('x' * 1000000)\n        return compute(x, weight)\n"),
    "starts a thread": other(
        """
        import threading
        threading.Thread(target=print, daemon=True).start()
        return compute(x, weight)
"""
    ),
    "a function": RIGHT.replace("class Solution(torch.autograd.Function)", "class Norm(torch.autograd.Function)")
    + "\n\ndef Solution(x, weight):\n    return Norm.apply(x, weight)\n",
}
