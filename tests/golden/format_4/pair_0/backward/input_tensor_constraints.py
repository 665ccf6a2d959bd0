dynamic_dim_constraint_symbols = []

dynamic_dim_constraint_symbol2example_value = {}

dynamic_dim_constraint_relations = []

dynamic_dim_constraint_input_shapes = [
    ([5, 3], "tanh"),
    ([3, 4], "fc_weight"),
    ([5, 4], "add_1"),
    ([5], "ids"),
    ([5, 3], "tangent_output_logits"),
    ([], "tangent_output_loss"),
    ([3], "constant_0"),
]
