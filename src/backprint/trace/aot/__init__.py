"""Engine `aot`: AOTAutograd's joint graph of a program, partitioned into a forward and a backward.

- `trace`: AOTAutograd traces a function of flat tensors that returns copies of the outputs, and the copies are removed.
- `symbolic`: sizes that stay symbolic, and the conditions on them that tracing derives.
- `from_fx`: the traced graphs with the program's names, lines and echoes. `engine`: a Pair of them.
"""
