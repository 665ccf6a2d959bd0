dynamic_dim_constraint_symbols = []

dynamic_dim_constraint_symbol2example_value = {}

dynamic_dim_constraint_relations = []

dynamic_dim_constraint_input_shapes = [
    ([7, 4], "embed_weight"),
    ([3, 4], "fc_weight"),
    ([3], "fc_bias"),
    ([], "seen"),
    ([5], "ids"),
    ([4, 5], "x"),
    ([3], "constant_0"),
]
