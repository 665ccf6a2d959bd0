"""Callbacks that watch the training loops of other libraries.

Each enters `bp.watch` where a training begins and leaves it where the training ends. `options` are those of `bp.watch`
besides the model, the optimizer and the folder. The other libraries are imported when a callback is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from backprint.errors import UsageError


def trainer_callback(folder: str | os.PathLike[str], options: Mapping[str, Any]) -> Any:
    """Return a TrainerCallback of transformers; raise if transformers is not installed."""
    try:
        from transformers import TrainerCallback
    except ImportError:
        raise UsageError("bp.watch.trainer needs transformers: pip install 'backprint[models]'") from None

    class WatchCallback(TrainerCallback):
        """Watches the training of a `transformers.Trainer`. If it raises an error, the hooks stay until the next."""

        watch: Any = None

        def on_train_begin(
            self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **others: Any
        ) -> None:
            """Begin to watch, as the training begins."""
            from backprint.tools.watch import watch

            # Accelerate wraps the optimizer, and calls the one inside.
            self.end()  # of a training that raised an error, which tells its callbacks nothing
            self.watch = watch(model, getattr(optimizer, "optimizer", optimizer), folder, **options)
            self.watch.__enter__()

        def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            self.end()

        def end(self) -> None:
            """End to watch, if it has begun."""
            if self.watch is not None:
                self.watch.__exit__(None, None, None)
                self.watch = None

    return WatchCallback()


def lightning_callback(folder: str | os.PathLike[str], options: Mapping[str, Any]) -> Any:
    """Return a Callback of Lightning. If the training raises an error, watching ends with it, and the ring stays."""
    Callback = _lightning_class()

    class WatchCallback(Callback):  # type: ignore[misc, valid-type]
        """Watches the training of a Lightning Trainer."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            from backprint.tools.watch import watch

            # The plain one where a wrapper has it: it is the one that steps.
            optimizers = [getattr(item, "optimizer", item) for item in trainer.optimizers]
            self.watch = watch(pl_module, optimizers, folder, **options)
            self.watch.__enter__()

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self.watch.__exit__(None, None, None)

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            if hasattr(self, "watch"):  # the training had begun
                self.watch.__exit__(type(exception), exception, exception.__traceback__)

    return WatchCallback()


def _lightning_class() -> Any:
    """Return Lightning's class of callbacks: of the package that the program has imported, else of one that is
    installed; raise if none is. `lightning` and `pytorch_lightning` are two packages, and each takes callbacks of its
    own class alone."""
    import importlib
    import sys

    names = ("lightning.pytorch", "pytorch_lightning")
    for name in sorted(names, key=lambda name: name not in sys.modules):  # imported ones (False) first
        try:
            return importlib.import_module(name).Callback
        except ImportError:
            continue
    raise UsageError("bp.watch.lightning needs Lightning: pip install lightning")
