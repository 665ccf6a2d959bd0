"""`timm:NAME` and `torchvision:NAME`: a model of images, as its library makes it, with random weights and small images.

    timm:resnet18   'timm:vit_tiny_patch16_224?image=224&batch=1'   torchvision:resnet18

The names of these libraries say sizes (`resnet18`), so the model has them; only the images are small, where the model
takes small ones. These models return scores and no loss: it is their cross-entropy for one class an image.

A *way* to make a model is the shape of an image, and a function that builds the model for it; which way works is known
when it was tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from backprint.errors import UsageError
from backprint.tools.named.make import NamedModel, first_line
from backprint.tools.named.names import Name, check_options, count_of, nearest

OPTIONS = ("batch", "image", "classes", "size")

SMALL = 64
"""The height and width of images, where a model takes them: the deepest networks leave 2 × 2 places of it."""


def make(name: Name, library: Any) -> NamedModel:
    """Make the model of a name, and images that it takes: of the size that the name gives, or small ones, or those of
    its own size. The first way that runs is taken; UsageError if none does."""
    import torch

    check_options(name, OPTIONS)
    size = name.options.get("size", "small")
    if size not in ("small", "full"):
        raise UsageError(f"{name.text}: size={size}: there are small and full")
    batch = count_of(name, "batch", 2)
    asked = count_of(name, "image", 0) if "image" in name.options else None
    wanted = asked or (None if size == "full" else SMALL)  # None: the model's own size
    error: Exception | None = None
    for shape, build in WAYS[name.scheme](name, library, wanted):
        if asked is not None and shape[-1] != asked:
            break  # a size that the user gave is not replaced by another
        torch.manual_seed(0)  # every way with the same weights and images
        try:
            model = build()
            pixels = torch.randn(batch, *shape)
            _run(model, pixels)
        except UsageError:
            raise
        except Exception as raised:  # of the library, for images that are too small
            error = error or raised  # the first, which is of the wanted size
            continue
        size_text = " × ".join(map(str, shape))
        made = f"{name.name} of {library.__name__} {library.__version__}: images of {size_text}, weights"
        loss = "the loss is the cross-entropy of its scores for one class an image: 0, 1, …"
        note = f"{made} and inputs random; {loss}"
        return NamedModel(model.train(), args=(pixels,), kwargs={}, loss=cross_entropy, notes=(note,))
    why = first_line(error) if error is not None else "no size of images is known"
    raise UsageError(f"{name.text}: {name.name} does not run on random images{f' of {asked}' if asked else ''}: {why}")


def _run(model: Any, pixels: Any) -> None:
    """Run a model once, in eval mode so that no statistics change, and raise what it raises. On fake images, which have
    no values, it is not run."""
    import torch

    from backprint._torch.fake import FakeTensor

    if isinstance(pixels, FakeTensor):
        return
    model.eval()
    with torch.no_grad():
        cross_entropy(model(pixels))


def cross_entropy(output: Any) -> Any:
    """Return the cross-entropy of a model's first scores: the class of the image with number i is i."""
    import torch

    if isinstance(output, dict):
        values = list(output.values())
    else:
        values = list(output) if isinstance(output, tuple) else [output]
    scores = next(value for value in values if isinstance(value, torch.Tensor) and value.is_floating_point())
    # Scores are [images, classes], with a place in the image after these where each place has a class.
    classes = torch.arange(scores.shape[0], device=scores.device) % scores.shape[1]
    places = classes.reshape(-1, *(1 for _ in scores.shape[2:])).expand(scores.shape[0], *scores.shape[2:])
    return torch.nn.functional.cross_entropy(scores, places)


Way = tuple[tuple[int, ...], Callable[[], Any]]
"""The shape of an image, and what builds the model for it."""


# ---- timm


def _of_timm(name: Name, timm: Any, image: int | None) -> Iterator[Way]:
    """Yield the ways to make a model of timm: for images of this size, unless it is None, and for those of its own.
    UsageError if there is no such model."""
    word = name.name.removeprefix("timm/")
    if ":" in word or "/" in word:
        raise UsageError(f"{name.text}: a name of timm has no {'/' if '/' in word else ':'}: weights are not read")
    if not timm.is_model(word):
        raise UsageError(
            f"{name.text}: no such model of timm {timm.__version__}; near names: {nearest(word, timm.list_models())}"
        )
    options: dict[str, Any] = {"pretrained": False}
    if "classes" in name.options:
        options["num_classes"] = count_of(name, "classes", 1000)
    config = timm.get_pretrained_cfg(word, allow_unregistered=True)
    own = tuple(getattr(config, "input_size", None) or (3, 224, 224))
    if image is not None and image != own[-1]:
        # A transformer's embeddings of positions are made for one size of images, which it must be told.
        fixed = {"img_size": image} if getattr(config, "fixed_input_size", False) else {}
        yield (own[0], image, image), partial(timm.create_model, word, **options, **fixed)
    yield own, partial(timm.create_model, word, **options)


# ---- torchvision

REFUSED: Mapping[str, str] = {
    "detection": "it detects objects, and takes images with the boxes in them",
    "optical_flow": "it takes two images, and the flow between them",
}
"""The modules of torchvision whose models a name cannot make inputs for, and why."""


def _of_torchvision(name: Name, torchvision: Any, image: int | None) -> Iterator[Way]:
    """Yield the ways to make a model of torchvision: for images of this size, unless it is None, and for 224 and 299,
    of which one is its own. UsageError if there is no such model, or one that needs other inputs than images."""
    models, word = torchvision.models, name.name
    known = models.list_models()
    if word not in known:
        raise UsageError(
            f"{name.text}: no such model of torchvision {torchvision.__version__}; near names: {nearest(word, known)}"
        )
    modules = {part: getattr(models, part) for part in ("detection", "optical_flow", "segmentation", "video")}
    kind = next((part for part, module in modules.items() if word in models.list_models(module=module)), "")
    if kind in REFUSED:
        raise UsageError(f"{name.text}: {REFUSED[kind]}, so a name is not enough: write a factory, (model, args)")
    options: dict[str, Any] = {"weights": None}
    if kind == "segmentation":
        options["weights_backbone"] = None
    if "classes" in name.options:
        options["num_classes"] = count_of(name, "classes", 1000)
    for size in dict.fromkeys((image or 224, 224, 299)):
        fixed = {"image_size": size} if word.startswith("vit_") else {}  # for its embeddings of positions
        shape = (3, 16, size, size) if kind == "video" else (3, size, size)  # 16 frames of a clip
        yield shape, partial(models.get_model, word, **options, **fixed)


WAYS: Mapping[str, Callable[[Name, Any, int | None], Iterator[Way]]] = {
    "timm": _of_timm,
    "torchvision": _of_torchvision,
}
