"""Engine `aot`: AOTAutograd's joint graph of a program, cut into forward and backward."""
