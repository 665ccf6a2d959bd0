"""Engine `dynamo`, and the backend of `torch.compile`: the graphs that torch.compile's front end makes of a program."""
