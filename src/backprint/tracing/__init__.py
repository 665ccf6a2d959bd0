"""From a running program to plain Graphs. Objects of fx and AOTAutograd do not leave this folder."""
