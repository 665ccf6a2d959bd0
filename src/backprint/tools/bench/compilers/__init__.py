"""The compilers that a bench can ask: one module for each family.

- `table`: the compilers by name. `timed`: compiling, cold and warm.
- `control`, `inductor`, `xla`, `onnx`, `openvino`, `experimental`: the families. `exchange`: what those with an
  exchange format share.
"""
