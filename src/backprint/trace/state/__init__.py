"""Everything that a program can reach and change: remembered before a run, and restored after it.

- `tensors`: one tensor's memory, content, gradient, hooks and version.
- `process`: the settings of the process that change a program's numbers.
- `named`: changes that are not restored, and cheap to see.
- `snapshot`: everything reachable, by the walk of `values/objects`, as it was.
- `restore`: the snapshot around a run; a warning names changes that are not restored.
"""
