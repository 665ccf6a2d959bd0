"""What a program can reach and change: remembered before a run, and restored after it.

- `tensors`: one tensor's memory, content, gradient, hooks and version.
- `process`: the settings of the process that change a program's numbers.
- `named`: what is not restored, and cheap to see.
- `snapshot`: everything reachable, by the walk of `values/objects`, as it was.
- `restore`: the snapshot around a run; what is not restored and has changed is named in a warning.
"""
