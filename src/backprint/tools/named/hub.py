"""`hf:NAME`: a model of transformers from its configuration, with random weights.

hf:gpt2   hf:meta-llama/Llama-3.2-1B   'hf:bert?head=token-classification&layers=1'   'hf:llama?size=full'

A Name is such a text in parts: `text`, `name`, and its `options` as texts. `whole` is the configuration of an
architecture as transformers has it, with large sizes; `attribute_map` of it has other names of its fields. A *head* is
what a model is trained for, a word of HEADS, and `cls` the class with it. Sizes are those of a small model, with the
names of those that were `given`. `refused` returns an error that begins with the name.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from typing import Any

from backprint.errors import UsageError
from backprint.tools.named.families import architecture_of, letters
from backprint.tools.named.heads import HEADS, Head, Shape, heads_of, inputs_of, nested, text_of
from backprint.tools.named.make import NamedModel, first_line, refused
from backprint.tools.named.names import Name, check_options, count_of, nearest
from backprint.tools.named.sizes import SET, SMALL, Sizes, is_config, small_config

OPTIONS = ("layers", "hidden", "heads", "vocab", "tokens", "batch", "image", "head", "dtype", "size")
"""The options of a name that are not fields of its configuration."""

FULL_TOKENS = 512
"""The length of texts for a model of full size, where the configuration allows it and the name does not say."""


def make(name: Name, transformers: Any) -> NamedModel:
    """Make the model of a name, and inputs that fit. A small one is run once, before it is returned."""
    model_type = _architecture(name, transformers)
    config = _configured(name, transformers, model_type)
    word, cls = _head(name, heads_of(transformers, model_type), model_type)
    head = HEADS[word]
    if word == "sequence-classification" and getattr(text_of(config), "pad_token_id", None) is None:
        # The model looks for the last token of a row that is no padding, and takes that one's score.
        text_of(config).pad_token_id = config.pad_token_id = 0
    batch, tokens = count_of(name, "batch", 2), _tokens(name, config)
    shape = Shape(cls, config, batch, tokens, count_of(name, "image", SMALL.image))
    try:
        model = cls(config).train()
        if word == "image-text":
            inputs, notes = _with_images(model, shape, head)
        else:
            inputs, notes = inputs_of(shape, head), ()
    except Exception as error:  # of the library's code, whatever it is
        raise refused(name, f"{cls.__name__} cannot be made from its configuration alone", error) from error
    if "size" not in name.options:
        _try(name, model, inputs)
    model, inputs = _in_dtype(name, model, inputs)
    own_notes = [_what(name, model_type, cls, transformers)]
    if not head.labelled:
        own_notes.append(f"{cls.__name__} is given no labels: without a loss, the mean of its first output is taken")
    return NamedModel(model, args=(), kwargs=inputs, loss=loss_of, notes=(*own_notes, *notes))


def loss_of(output: Any) -> Any:
    """Return the loss that a model of transformers returns with its output; without one, the mean of its first
    result of floating point."""
    import torch

    if (loss := getattr(output, "loss", None)) is not None:
        return loss
    values = output.values() if isinstance(output, dict) else output
    return next(value for value in values if isinstance(value, torch.Tensor) and value.is_floating_point()).mean()


def _try(name: Name, model: Any, inputs: Mapping[str, Any]) -> None:
    """Run a small model once, in eval mode so that no buffer changes: small sizes or inputs that do not fit this
    architecture are an error of the name, and not of a program. A model without values cannot be tried."""
    import torch

    from backprint._torch.fake import FakeTensor

    if any(parameter.is_meta or isinstance(parameter, FakeTensor) for parameter in model.parameters()):
        return
    model.eval()
    try:
        with torch.no_grad():
            loss_of(model(**inputs))
    except Exception as error:
        what = f"{type(model).__name__} does not run on the sizes and inputs that are made for a name"
        raise refused(name, f"{what}: write a factory, (model, args), for it", error) from error
    finally:
        model.train()


# ---- The architecture


def _architecture(name: Name, transformers: Any) -> str:
    """Return the `model_type` of a name; UsageError with the nearest names where it means none."""
    known = list(transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES)
    model_type = architecture_of(name.name, known)
    if model_type is None:
        near = nearest(name.name.rpartition("/")[2], known)
        what = "its hub id names no architecture" if "/" in name.name else "no such architecture"
        raise UsageError(f"{name.text}: {what} of transformers {transformers.__version__}; near names: {near}")
    return model_type


def _what(name: Name, model_type: str, cls: type, transformers: Any) -> str:
    """Return the note on what was made of a name."""
    exact = letters(name.name) == letters(model_type)
    read = "" if exact else f"the architecture of {name.name} is taken to be {model_type}; "
    size = "the configuration's own" if name.options.get("size") == "full" else "small"
    return (
        f"{read}{cls.__name__} of transformers {transformers.__version__}: sizes are {size}, weights and inputs random"
    )


def _head(name: Name, heads: Mapping[str, type], model_type: str) -> tuple[str, type]:
    """Return the word of the head, and its class: the head that a name asks for, else the first that the architecture
    has. UsageError if it has none, or not this one."""
    asked = name.options.get("head")
    if not heads:
        raise UsageError(f"{name.text}: transformers has no model of {model_type} for a loss: it is a part of others")
    if asked is not None and asked not in heads:
        raise UsageError(f"{name.text}: {model_type} has no head {asked!r}; it has {', '.join(heads)}")
    word = asked or next(iter(heads))
    return word, heads[word]


# ---- The configuration


def _configured(name: Name, transformers: Any, model_type: str) -> Any:
    """Return the configuration of an architecture, in the sizes that a name asks for: small ones, or with `size=full`
    the configuration's own but for those that the name gives. Refuse options that are neither ours nor its fields."""
    size = name.options.get("size", "small")
    if size not in ("small", "full"):
        raise UsageError(f"{name.text}: size={size}: there are small and full")
    try:
        whole = transformers.AutoConfig.for_model(model_type)
    except Exception as error:
        raise refused(name, f"{model_type} has no configuration of its own", error) from error
    check_options(name, OPTIONS, _fields(whole), type(whole).__name__)
    own = _own(name, whole)
    sizes = _sizes(name)
    try:
        if size == "full" and not sizes.given and not own:
            return _set(whole)
        if size == "full":
            return _set(type(whole)(**{**_asked(whole, sizes), **own}))
        return small_config(whole, sizes, own)
    except Exception as error:
        raise refused(name, f"{type(whole).__name__} refuses these sizes", error) from error


def _sizes(name: Name) -> Sizes:
    """Return the sizes that a name asks for."""
    words = [word for word in ("layers", "hidden", "heads", "vocab", "tokens", "image") if word in name.options]
    sizes = Sizes(**{word: count_of(name, word, 1) for word in words}, given=frozenset(words))
    if sizes.hidden % (2 * sizes.heads):
        raise UsageError(
            f"{name.text}: hidden={sizes.hidden} and heads={sizes.heads}: a head has to be an even number of features"
        )
    if sizes.vocab < 40:
        raise UsageError(f"{name.text}: vocab={sizes.vocab}: 40 or more, of which the first and last 10 are special")
    return sizes


def _asked(whole: Any, sizes: Sizes) -> dict[str, Any]:
    """Return the fields that the sizes given in a name set, with their values: those of the small configuration with
    these sizes. All other fields of the configuration `whole` stay as they are."""
    small = small_config(whole, sizes)
    own_names = getattr(whole, "attribute_map", {})  # by the usual ones
    fields_of_size = {
        "layers": ("num_hidden_layers", "encoder_layers", "decoder_layers", "num_layers", "num_decoder_layers"),
        "hidden": ("hidden_size", "intermediate_size", "head_dim"),
        "heads": ("num_attention_heads", "num_key_value_heads", "head_dim"),
        "vocab": ("vocab_size",),
        "image": ("image_size",),
    }
    usual_names = [field for word, fields in fields_of_size.items() if word in sizes.given for field in fields]
    names = [own_names.get(field, field) for field in usual_names]
    return {field: getattr(small, field) for field in names if field in vars(whole)}


def _set(config: Any) -> Any:
    """Set the fields of SET, which have the same value in all configurations, in a configuration and in those inside
    it; return it."""
    for one in (config, *nested(config)):
        for field, value in SET.items():
            if field in vars(one):
                setattr(one, field, value)
    return config


def _fields(whole: Any) -> list[str]:
    """Return the names of a configuration's fields that a name may have as options; those of a nested one with a dot,
    which `_own` refuses with advice."""
    fields = []
    for field, value in vars(whole).items():
        if is_config(value):
            fields += [f"{field}.{inner}" for inner in vars(value) if not inner.startswith("_")]
        elif not field.startswith("_"):
            fields.append(field)
    return sorted({*fields, *getattr(whole, "attribute_map", {})})


def _own(name: Name, whole: Any) -> dict[str, Any]:
    """Return the fields of a configuration that a name sets by their own names, with values read from the texts.
    Refuse a field of a nested configuration."""
    own: dict[str, Any] = {}
    for option, text in name.options.items():
        if option in OPTIONS:
            continue
        outer, dot, _ = option.partition(".")
        if dot:
            raise UsageError(f"{name.text}: {option}: write a factory to set fields of {outer}")
        own[getattr(whole, "attribute_map", {}).get(option, option)] = _read(text)
    return own


def _read(text: str) -> Any:
    """Return the value that a text is: true, false, null, a number, a list, or the text itself."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


WORDS = {"true": True, "false": False, "null": None, "none": None}


def _tokens(name: Name, config: Any) -> int:
    """Return how many tokens a text has: what the name says, else a small number, or in full size FULL_TOKENS if the
    model has so many positions. UsageError for fewer than four, which some labels need."""
    most = getattr(text_of(config), "max_position_embeddings", None)  # some have none, or -1, as XLNet: no limit
    default = SMALL.tokens
    if name.options.get("size") == "full":
        default = min(FULL_TOKENS, most if isinstance(most, int) and most > 2 else FULL_TOKENS)
    tokens = count_of(name, "tokens", default)
    if tokens < 4:
        raise UsageError(f"{name.text}: tokens={tokens}: four or more")
    return tokens


# ---- Inputs


def _with_images(model: Any, shape: Shape, head: Head) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return text with places for images, and images; text alone, with a note, where this does not know how the
    architecture takes images."""
    import torch

    inputs = inputs_of(shape, head)
    pixels = inputs.pop("pixel_values", None)
    token = shape.field("image_token_id", "image_token_index")
    try:
        if pixels is None:
            raise UsageError("it takes no pixel_values")
        inputs["pixel_values"] = pixels
        if token is not None:  # the token that stands for a part of an image in the text
            with torch.no_grad():
                places = torch.full((shape.batch, _places(model, pixels)), token)
            # After the first token. -100 is the label that a loss leaves out.
            for key, between in (("input_ids", places), ("labels", torch.full_like(places, -100))):
                inputs[key] = torch.cat([inputs[key][:, :1], between, inputs[key][:, 1:]], 1)
        with torch.no_grad():
            model(**inputs)
    except Exception as error:  # architectures differ in what they need beside images, and raise what they like
        parameter = inspect.signature(model.forward).parameters.get("pixel_values")
        if parameter is not None and parameter.default is inspect.Parameter.empty:
            raise  # it does not run on text alone
        text_alone = {key: value for key, value in inputs_of(shape, head).items() if key != "pixel_values"}
        return text_alone, (f"text alone: how {type(model).__name__} takes images is not known ({first_line(error)})",)
    return inputs, ()


def _places(model: Any, pixels: Any) -> int:
    """Return how many tokens stand for an image: as many as the model makes rows of features of it."""
    import torch

    features = model.get_image_features(pixel_values=pixels)  # a tensor, an output that has it, or one for each image
    features = getattr(features, "pooler_output", None) if hasattr(features, "pooler_output") else features
    tensors: list[Any] = [features] if isinstance(features, torch.Tensor) else list(features or ())
    rows = sum(tensor.numel() // tensor.shape[-1] for tensor in tensors)
    return int(rows // len(pixels))


def _in_dtype(name: Name, model: Any, inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a model and its inputs in the dtype that a name asks for; as they are, if it asks for none."""
    import torch

    text = name.options.get("dtype")
    if text is None:
        return model, inputs
    dtype = getattr(torch, text, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise UsageError(f"{name.text}: dtype={text}: such as float32, bfloat16, float16 or float64")
    moved = {
        key: value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for key, value in inputs.items()
    }
    return model.to(dtype), moved
