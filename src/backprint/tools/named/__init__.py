"""A model by its name: `hf:gpt2`, `timm:resnet18`, `torchvision:resnet18`, wherever a TARGET is taken.

Most people who want to see a backward have no factory at hand, and want to see that of a model they know. A name is
enough: the model is made from its library's configuration, with random weights and small sizes, in train mode, with
inputs that fit and the labels that its loss needs. Nothing is downloaded.

    backprint view hf:gpt2 -o page.html
    backprint capture 'hf:Qwen/Qwen3-0.6B?layers=4&tokens=32' -o qwen3
    backprint fits 'hf:llama?size=full' --memory 80

    >>> bp.capture("hf:bert?head=sequence-classification", mode="eval")

In reading order: `names` splits `SCHEME:NAME?OPTION=VALUE&…`, and has the libraries; `make` calls a library. Of
transformers: `families` finds the architecture in a hub id, `sizes` is the table of small sizes by the names of the
configurations' fields, `heads` chooses the class with a loss and makes inputs, `hub` joins these. `vision` makes the
models of timm and torchvision.

Only the libraries' constructors are called: a name never leads to weights, files of a hub, or code from one.
"""

from backprint.tools.named.make import NamedModel, make_named, quiet
from backprint.tools.named.names import is_named, library_of

__all__ = ["NamedModel", "is_named", "library_of", "make_named", "quiet"]
