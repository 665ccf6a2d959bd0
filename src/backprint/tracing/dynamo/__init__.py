"""Engine `dynamo`, and the backend of `torch.compile`: capture the graphs that Dynamo makes of a program."""
