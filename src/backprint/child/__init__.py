"""One way to run something in another process: started, limited, talked to, and ended with all that it started.

A child is forked, or it is a new interpreter; it has a session of its own and dies with its parent. The two send each
other JSON lines, and tensors through shared memory where a child asks for them. `in_child(function, 60.0)` calls a
function there and returns its value, or how its process ended; a `Child` that is kept answers requests.

- `ends`: how a process ended, in words. `limits`: limits of seconds, memory, disk and processes, and what exceeds them.
- `child`: Child, its ways to start, and calls. `answering`: the process that answers requests, seen from inside.
- `strangers`: what a stranger's code raises, as one error.
- `processes`: processes in Linux's /proc, and how they are killed.
- `tensors`: tensors in memory that two processes share. It alone loads torch.
"""
