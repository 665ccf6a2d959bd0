"""Watch a training while it runs, and keep the step at which its numbers go wrong.

A NaN at step 40,000 cannot be found by running the training again. `bp.watch` follows a training by hooks, at a few
percent of its time, and changes none of its numbers. When the loss or a gradient has NaN or Inf, or jumps, the step is
kept as a sample, with the values that it had: forward, loss and backward, which `show`, `verify` and `view` open.

    with bp.watch(model, optimizer, "watched"):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            ...

    backprint: step 37: NaN in the output, first made at train.py:49 (log), as Inf; kept in watched/step_37

- `watching`: the hooks, and when a step is kept.
- `tape`: what a step runs, noted cheaply. `program`: the same as data, and as a module that is captured.
- `sample`: a program as a sample. `ring`: the last steps on disk.
- `callbacks`: the same in the loops of transformers and Lightning.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import nn
from torch.optim import Optimizer

from backprint.errors import UsageError
from backprint.tools.watch.ring import Ring
from backprint.tools.watch.watching import Watching


class watch:  # lower case, as contextlib.suppress: it is used as a function
    """Watch a training in a `with` block, and keep steps that go wrong as samples in `folder`, as `step_37` and so on.

    - `model`, `optimizer`: the module that is trained, and its optimizer, or several of each step.
    - `steps`: how many of the last steps stand in `folder/ring`, with their weights. They become samples beside the
      step that goes wrong, and after a crash. 0 keeps none.
    - `jump`: a step is also kept if its loss or the norm of its gradients is so many times the median of the steps
      before; None for never.
    - `limit`: the most steps that are kept for what they are, because each takes seconds and space.
    - `overhead`: the share of the training's time that may be spent on writing the ring.
    - `tell`: what is called with each message; by default they go to standard error.

    A step begins at the first call of the model in grad mode, and its backward is one call of `backward` on a loss.
    With several backwards before an update, each is looked at, and the one that goes wrong is kept. The numbers of
    steps count updates from 0, those that a gradient scaler skips too.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | Sequence[Optimizer],
        folder: str | os.PathLike[str] = "watched",
        *,
        steps: int = 2,
        jump: float | None = 20.0,
        limit: int = 3,
        overhead: float = 0.05,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        optimizers = [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer)
        for value in optimizers:
            if not isinstance(value, Optimizer):
                raise UsageError(f"bp.watch: the optimizer is {value!r}: pass a torch.optim.Optimizer, or several")
        if steps < 0 or limit < 1 or not 0 <= overhead < 1 or (jump is not None and jump <= 1):
            raise UsageError("bp.watch: steps >= 0, limit >= 1, 0 <= overhead < 1, and jump > 1 or None")
        messages = tell or _print_line
        ring = Ring(Path(folder).absolute() / "ring", steps, overhead, messages)
        self._watching = Watching(model, optimizers, ring, jump, limit, messages)

    def __enter__(self) -> Self:
        self._watching.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Ctrl-C and `exit()` are the user's way to end a training.
        self._watching.close(ended_well=error is None or isinstance(error, (KeyboardInterrupt, SystemExit)))

    @property
    def kept(self) -> list[Path]:
        """The folders of the samples that were kept so far."""
        return list(self._watching.kept)

    def keep(self, why: str = "asked for") -> None:
        """Keep the step that runs: the one whose backward has run and whose update has not, else the next."""
        self._watching.ask(why)

    @classmethod
    def trainer(cls, folder: str | os.PathLike[str] = "watched", **options: Any) -> Any:
        """Return a callback for `transformers.Trainer` that watches its training; options as for `bp.watch`."""
        from backprint.tools.watch.callbacks import trainer_callback

        return trainer_callback(folder, options)

    @classmethod
    def lightning(cls, folder: str | os.PathLike[str] = "watched", **options: Any) -> Any:
        """Return a callback for Lightning's Trainer that watches its training; options as for `bp.watch`."""
        from backprint.tools.watch.callbacks import lightning_callback

        return lightning_callback(folder, options)


def _print_line(text: str) -> None:
    """Write a line to standard error."""
    from backprint.common.text import printable

    os.write(2, f"backprint: {printable(text, True)}\n".encode(errors="replace"))
