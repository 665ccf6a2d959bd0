"""The programs of the truth suite, a module for each class of trickiness."""
