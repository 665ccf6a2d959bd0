"""A stranger's code in a process of its own, and what its results and times are held against.

Compilers (`bench`) and solutions (`tasks`) are judged with these; only solutions have the process of their own.

- `asking`: the errors of a stranger's code.
- `contents`: inputs that are drawn anew.
- `clocks`: times, compared, and settings of torch that a compiler changes.
"""
