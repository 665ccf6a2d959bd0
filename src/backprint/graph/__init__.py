"""Graphs as plain data: no torch is needed for anything here.

- `nouns`: Port, Step, Graph, Pair, Link, Capture and their parts, valid by construction.
- `keys`: how a port is identified, and its text. `verdicts`: the words of a Verdict, and when a check was a proof.
- `capture_options`: the options of `bp.capture`, with their defaults.
- `text`: a Graph as straight-line Python, and back; the parser runs nothing.
- `canonical`: the form of a Graph without names, and its hash.
- `operators`: the operators that a graph may call, from `operators.txt`.
- `steps`, `depends`, `links`, `sizes`: questions about steps, about what depends on what, about links between Pairs,
  about symbolic sizes.
- `cost`: floating-point operations, bytes and live memory of steps and graphs. `fits`: the peak of a step.
- `traffic`: what ranks send each other, and a model of when.
- `folding/`: repeated structure, found once. `together`: names and guards that differ in numbers alone, as one.
"""
