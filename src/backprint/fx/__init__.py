"""Between a graph and torch: operators, values, specs, and torch.fx graphs both ways."""
