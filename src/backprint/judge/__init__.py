"""One judge for every verb that says whether a result is right: `check`, `derivative`, `swap`, `task`, `bench`,
`kernels`, `lower`, `verify`.

A difference means little by itself. Two right programs differ by rounding, and how far rounding takes a result depends
on the program: a sum of a million terms, a softmax that saturates and a copy have three answers. So a result is held
against the exact one, which the reference gives in float64, and may be so many times as far from it as the reference
itself is in the result's dtype:

    >>> import torch
    >>> from backprint.judge.closeness import compare
    >>> x = torch.randn(64, 64, dtype=torch.float64)
    >>> exact, own = x.exp(), x.float().exp()
    >>> compare(own * 1.00001, exact, own).word
    'wrong'
    >>> compare(x.float().mul(1.442695041).exp2(), exact, own).word
    'close'

- `closeness`: the rule.
- `occasions`: one table of other inputs and tangents, of which each verb chooses rows.
- `timing`: whether one program is faster than another.
"""

VERSION = 1
"""The version of the rule. What keeps a verdict keeps it beside the word, because another version may give another
word. It is here, and not in `closeness`, so that who shows a verdict need not import torch."""
