"""Between a Graph and torch.

- `convert`: nodes of an fx graph as Steps; a node, an argument or an operator that is unknown raises by name.
- `values`: a target's name resolved to a function, its arguments evaluated and checked. `schema`: whether arguments
  fit the types of an operator's schema; `asserting`: whether its kernel on a GPU would assert on them.
- `to_fx`: a Graph as a torch.fx.GraphModule.
"""
