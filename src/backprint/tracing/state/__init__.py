"""What a program can reach and change: remembered before a run, and restored after it.

- `tensors`: one tensor's memory, content, gradient, hooks and version.
- `contents`: objects of C types whose state is no attribute: caches, buffers, files, queues, locks.
- `process`: random generators, and settings of the whole process.
- `snapshot`: all of that for everything reachable, with how each thing is restored.
- `restore`: the snapshot around a run; what cannot be restored is named.
"""
