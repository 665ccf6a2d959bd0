"""The seam to PyTorch: private APIs, each behind a function with a name, and a probe that says whether it holds.

New uses of private APIs go here; those in other rooms are named in the docstrings of their modules.
"""
