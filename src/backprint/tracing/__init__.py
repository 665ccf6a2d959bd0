"""From a running program to a Capture. Objects of fx, AOTAutograd and Dynamo do not leave this room.

In the order of one call:

- `program`: the call, its tensors under the program's own names. `reach`: what a callable can reach.
- `state/`: everything that the program can change: a snapshot before a run, restored after it.
- `running`: one run of the program on its own objects or on stand-ins. `witness`: a run of the untouched program, the
  oracle of every proof. `hooks_after`: hooks that autograd calls when a gradient is in `.grad`. `silent_writes`: writes
  that no operator makes.
- `collectives`: a dispatch mode that answers the collectives of a rank that runs alone.
- `watch`: a dispatch mode that notes which outside tensors a run reads and writes, and which values it reads.
  `non_operator_effects`: hooks, flags and other things that no operator shows. `custom`: the Python bodies of custom
  operators. `derivatives`: operators without a derivative.
- `scout`: one watched run before a trace. `refusals`: programs of which a trace would lose a part, refused by name.
- The engines: `eager/`, `aot/` (with `fake` for models without values and `stamping/` for deep ones), `dynamo/`.
  `request` has the result of an engine, `entry` the table of engines and what is checked before one is asked.
- `cut`: partition functions, which choose the values that are saved. `assembly`: the Pair of a recorded forward and
  backward, the one place where the two are tied. `captured`: the Capture of an engine's result, with the program that
  it was traced from.
- `record/`: the steps of a training script.
- `frames`: the user's line, function and module that are running.
"""
