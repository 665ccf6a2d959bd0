"""Engine `aot`: AOTAutograd's joint graph of a program, partitioned into forward and backward."""
