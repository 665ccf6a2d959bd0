"""The class of an architecture that has a loss, and the inputs that it takes.

`HEADS` is a table of what models are trained for, in the order in which a name without `?head=` takes them. Its rows
name one of the Auto mappings of transformers, and what makes the labels. All other inputs follow from the parameters of
the class's `forward`: `MAKERS` has a row for each of their names.

A function of MAKERS returns the value of one argument for a Shape, random where there is a choice; one of HEADS's
`labels` returns the labels by the names of their arguments, where a text names an argument that is copied. A *word* is
a token of the vocabulary. torch is imported when a value is made.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from backprint.errors import UsageError


@dataclass(frozen=True, slots=True)
class Shape:
    """What the inputs of a model are made for: the class (`head`), its configuration, how many there are (`batch`), how
    long texts are (`tokens`), and how high and wide an image is where the configuration does not say (`image`)."""

    head: Any
    config: Any
    batch: int
    tokens: int
    image: int

    def field(self, *names: str, default: Any = None) -> Any:
        """Return the first value that is not None of these fields: of the configuration, else of the configurations in
        it; the default, where there is none."""
        for config in (self.config, *nested(self.config)):
            for name in names:
                value = getattr(config, name, None)
                if value is not None:
                    return value
        return default

    @property
    def words(self) -> int:
        """How many words the vocabulary has."""
        own = getattr(text_of(self.config), "vocab_size", None)
        return int(own or self.field("vocab_size", "text_vocab_size", default=99))


def text_of(config: Any) -> Any:
    """Return the configuration of the text in one; itself, where it has none or several."""
    try:
        return config.get_text_config()
    except ValueError:
        return config


def nested(config: Any) -> list[Any]:
    """Return the configurations in a configuration, those of text first."""
    names = sorted(getattr(config, "sub_configs", None) or (), key=lambda name: "text" not in name)
    return [value for name in names if (value := getattr(config, name, None)) is not None and hasattr(value, "to_dict")]


Maker = Callable[[Shape], Any]


# ---- Values


def ids(shape: Shape, length: int | None = None) -> Any:
    """Return tokens without a meaning of their own: neither the first ten ids, which are those of special tokens, nor
    the last ten, which are those of images. A vocabulary of fewer than 40 words has no such ids to leave out."""
    import torch

    low, high = (10, shape.words - 10) if shape.words >= 40 else (0, shape.words)
    return torch.randint(low, high, (shape.batch, length or shape.tokens))


def classes(shape: Shape, *sizes: int) -> Any:
    import torch

    return torch.randint(int(shape.field("num_labels", default=2)), (shape.batch, *sizes))


def picture_size(shape: Shape) -> tuple[int, int]:
    """Return the height and the width of the images that a configuration is for."""
    size = shape.field("image_size", "img_size", default=max(shape.image, 64))
    if isinstance(size, Mapping):
        size = (size["height"], size["width"])
    if isinstance(size, (list, tuple)):
        return (int(size[0]), int(size[-1]))
    return (int(size), int(size))


def pictures(shape: Shape) -> Any:
    """Return images; clips of images for architectures that take frames."""
    import torch

    channels = shape.field("num_channels", "in_channels", "in_chans", default=3)
    channels = channels if type(channels) is int else 3  # a list of widths is of the stages, not of the image
    frames = shape.field("num_frames", "frames_per_clip") if "Video" in shape.head.__name__ or clips(shape) else None
    return torch.randn(shape.batch, *(() if frames is None else (frames,)), channels, *picture_size(shape))


def clips(shape: Shape) -> bool:
    """Whether an architecture takes several images in order, as one value. It is known by the package of its
    configuration, `transformers.models.vivit.configuration_vivit`."""
    return type(shape.config).__module__.split(".")[-2] in ("timesformer", "vivit", "videomae")


def sound(shape: Shape) -> Any:
    """Return samples of sound, half a second at 16 kHz; a spectrum over time for architectures that take it under the
    same name: they have a length and a number of mel bins, and no convolutions over samples."""
    import torch

    length, mels = shape.field("max_length"), shape.field("num_mel_bins")
    if shape.field("conv_stride") is None and length is not None and mels is not None:
        return torch.randn(shape.batch, int(length), int(mels))
    return torch.randn(shape.batch, 8000)


def spectrum(shape: Shape) -> Any:
    """Return spectra: as Whisper takes them, time last, where the configuration fixes the length by its positions, of
    which a convolution makes one of two steps; else time first."""
    import torch

    names = ("num_mel_bins", "n_mel_bins", "input_feat_per_channel", "feature_projection_input_dim", "input_dim")
    mels = int(shape.field(*names, default=80))
    # Speech2Text and Wav2Vec2-BERT, which have such fields, fix their positions too, and take time first.
    if shape.field("input_feat_per_channel", "feature_projection_input_dim", "hidden_act_time") is None:
        positions = shape.field("max_source_positions")
        if positions is not None:
            return torch.randn(shape.batch, mels, 2 * int(positions))
    return torch.randn(shape.batch, 64, mels)


def boxes(shape: Shape) -> Any:
    """Return a box for each token, as (left, top, right, bottom) of a page."""
    import torch

    corner = torch.randint(0, 20, (shape.batch, shape.tokens, 2))
    return torch.cat([corner, corner + torch.randint(1, 20, (shape.batch, shape.tokens, 2))], -1)


MAKERS: Mapping[str, Maker] = {
    "input_ids": ids,
    "pixel_values": pictures,
    "pixel_values_videos": pictures,
    "input_values": sound,
    "input_features": spectrum,
    "bbox": boxes,
    "decoder_input_ids": lambda shape: ids(shape, max(1, shape.tokens // 2)),
    "global_attention_mask": lambda shape: _first_of_each(shape),
}
"""What makes the value of a parameter of `forward`, by its name."""


def _first_of_each(shape: Shape) -> Any:
    """Return the mask of the tokens that attend to all: the first of each text."""
    import torch

    return torch.eye(1, shape.tokens, dtype=torch.long).repeat(shape.batch, 1)


# ---- Labels


def shifted_words(shape: Shape) -> dict[str, Any]:
    return {"labels": ids(shape, max(1, shape.tokens // 2))}


def same_words(shape: Shape) -> dict[str, Any]:
    return {"labels": "input_ids"}


def few_words(shape: Shape) -> dict[str, Any]:
    return {"labels": ids(shape, 4)}


def one_class(shape: Shape) -> dict[str, Any]:
    return {"labels": classes(shape)}


def class_of_each_word(shape: Shape) -> dict[str, Any]:
    return {"labels": classes(shape, shape.tokens)}


def class_of_each_pixel(shape: Shape) -> dict[str, Any]:
    return {"labels": classes(shape, *picture_size(shape))}


def scores(shape: Shape) -> dict[str, Any]:
    import torch

    return {"labels": torch.rand(shape.batch, int(shape.field("num_labels", default=2)))}


def answers(shape: Shape) -> dict[str, Any]:
    import torch

    start = torch.randint(0, shape.tokens // 2, (shape.batch,))
    return {"start_positions": start, "end_positions": start + shape.tokens // 4}


def pairs(shape: Shape) -> dict[str, Any]:
    return {"return_loss": True}


def holes(shape: Shape) -> dict[str, Any]:
    """Return which patches of the images are hidden."""
    import torch

    patch = shape.field("patch_size", default=8)
    patch = patch if type(patch) is int else patch[0]
    height, width = picture_size(shape)
    return {"bool_masked_pos": torch.rand(shape.batch, (height // patch) * (width // patch)) < 0.5}


def nothing(shape: Shape) -> dict[str, Any]:
    return {}


# ---- The table


@dataclass(frozen=True, slots=True)
class Head:
    """What a model is trained for: the Auto mapping of transformers that has its class ('' for the model without a
    head), what makes the labels, and the inputs to make (if there are none, the main input of the class). One that is
    not `labelled` may return no loss."""

    mapping: str
    labels: Callable[[Shape], dict[str, Any]]
    inputs: tuple[str, ...] = ()
    labelled: bool = True


HEADS: Mapping[str, Head] = {
    "seq2seq-lm": Head("SEQ_TO_SEQ_CAUSAL_LM", shifted_words, ("input_ids",)),
    "speech-seq2seq": Head("SPEECH_SEQ_2_SEQ", few_words),
    "masked-lm": Head("MASKED_LM", same_words, ("input_ids",)),
    "image-text": Head("IMAGE_TEXT_TO_TEXT", same_words, ("input_ids", "pixel_values")),
    "causal-lm": Head("CAUSAL_LM", same_words, ("input_ids",)),
    "ctc": Head("CTC", few_words),
    "image-text-pairs": Head("ZERO_SHOT_IMAGE_CLASSIFICATION", pairs, ("input_ids", "pixel_values")),
    "image-classification": Head("IMAGE_CLASSIFICATION", one_class, ("pixel_values",)),
    "video-classification": Head("VIDEO_CLASSIFICATION", one_class, ("pixel_values",)),
    "semantic-segmentation": Head("SEMANTIC_SEGMENTATION", class_of_each_pixel, ("pixel_values",)),
    "audio-classification": Head("AUDIO_CLASSIFICATION", one_class),
    "token-classification": Head("TOKEN_CLASSIFICATION", class_of_each_word, ("input_ids",)),
    "sequence-classification": Head("SEQUENCE_CLASSIFICATION", one_class, ("input_ids",)),
    "question-answering": Head("QUESTION_ANSWERING", answers, ("input_ids",)),
    "visual-question-answering": Head("VISUAL_QUESTION_ANSWERING", scores, ("input_ids", "pixel_values")),
    "masked-image": Head("MASKED_IMAGE_MODELING", holes, ("pixel_values",)),
    "pretraining": Head("PRETRAINING", nothing, labelled=False),
    "none": Head("", nothing, labelled=False),
}
"""What a model may be trained for, by the word of `?head=`; a name without it takes the first that the architecture
has."""


def heads_of(library: Any, model_type: str) -> dict[str, Any]:
    """Return the classes that transformers (`library`) has for an architecture, by the words of `HEADS`, in its
    order."""
    auto = library.models.auto.modeling_auto
    classes_by_word: dict[str, Any] = {}
    for word, head in HEADS.items():
        mapping = f"MODEL_FOR_{head.mapping}_MAPPING_NAMES" if head.mapping else "MODEL_MAPPING_NAMES"
        names = getattr(auto, mapping, {}).get(model_type)  # the name of a class, or of several
        for name in (names,) if isinstance(names, str) else names or ():
            cls = getattr(library, name, None)
            if isinstance(cls, type):
                classes_by_word.setdefault(word, cls)
    return classes_by_word


def inputs_of(shape: Shape, head: Head) -> dict[str, Any]:
    """Return the keyword arguments of a class's `forward`: those without a default, those of its head, and labels;
    refuse a class that needs an argument which nothing here makes."""
    parameters = inspect.signature(shape.head.forward).parameters
    needed = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty and name != "self" and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    names = [*(head.inputs or (shape.head.main_input_name,)), *needed]
    if "global_attention_mask" in parameters:  # without it, a Longformer attends to near tokens alone
        names.append("global_attention_mask")
    labels = head.labels(shape)
    missing = [name for name in dict.fromkeys(names) if name not in MAKERS and name not in labels]
    if missing:
        raise UsageError(f"{shape.head.__name__} needs {', '.join(missing)}, which its configuration does not tell")
    inputs = {name: MAKERS[name](shape) for name in dict.fromkeys(names) if name in parameters and name not in labels}
    # With labels, a model makes the decoder's inputs of them.
    if shape.config.is_encoder_decoder and not labels and "decoder_input_ids" in parameters:
        inputs["decoder_input_ids"] = MAKERS["decoder_input_ids"](shape)
    for name, value in labels.items():
        if name in parameters:
            inputs[name] = inputs[value].clone() if isinstance(value, str) else value
    return inputs
