"""A Capture cut into parts, each a Capture of its own that is proven, and the parts linked again.

- `cuts`: where a forward is cut: by ranges, operators, modules, repeats, or where the fewest bytes are saved.
- `flow`: which values of the whole's backward are the gradients at a part's borders.
- `split`: each part as a Pair, a Capture and a Verdict, and all parts linked. `uninitialised`: values whose memory
  no step has written yet.
"""
