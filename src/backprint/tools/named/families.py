"""Which architecture of transformers a name means: a `model_type`, or one that stands in a hub id.

    gpt2 -> gpt2    Qwen/Qwen3-0.6B -> qwen3    google/flan-t5-small -> t5    google/vit-base-patch16-224 -> vit

A hub is not asked. An id is cut into words, and the longest run of words that is an architecture's name is it; families
whose ids do not have it are in a table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

OTHER_NAMES: Mapping[str, str] = {
    "alpaca": "llama",
    "deberta v3": "deberta_v2",
    "debertav3": "deberta_v2",
    "distilgpt2": "gpt2",
    "dialogpt": "gpt2",
    "dolly": "gpt_neox",
    "minilm": "bert",
    "mathstral": "mistral",
    "pythia": "gpt_neox",
    "scibert": "bert",
    "smollm": "llama",
    "smollm2": "llama",
    "tinyllama": "llama",
    "vicuna": "llama",
    "codellama": "llama",
    "zephyr": "mistral",
    "nllb": "m2m_100",
    "xlmr": "xlm_roberta",
}
"""Words of hub ids, and the architecture that they are known to be of."""


def architecture_of(name: str, known: Collection[str]) -> str | None:
    """Return the `model_type` among the known ones that a name means, a `model_type` or a hub id; None where no word of
    it is one. `by_letters` has the known ones by their letters and digits alone."""
    by_letters = {letters(model_type): model_type for model_type in known}
    if "/" not in name and letters(name) in by_letters:
        return by_letters[letters(name)]
    _, _, last_part = name.rpartition("/")  # of a hub id, without its owner
    words = re.findall(r"[a-z0-9]+", last_part.lower())
    runs = [words[start:stop] for start in range(len(words)) for stop in range(start + 1, len(words) + 1)]
    for run in sorted(runs, key=lambda run: -len("".join(run))):  # the longest first; of equally long ones, the first
        other = OTHER_NAMES.get(" ".join(run))
        if other is not None and letters(other) in by_letters:
            return by_letters[letters(other)]
        model_type = by_letters.get("".join(run))
        if model_type is not None and len("".join(run)) > 1:  # a single letter or digit says nothing
            return model_type
    return None


def letters(text: str) -> str:
    """Return the letters and digits of a text: hyphens, underlines and case do not tell names apart."""
    return re.sub(r"[^a-z0-9]", "", text.lower())
