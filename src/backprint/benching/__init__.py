"""Compilers on forward and backward graphs: how right, how fast, and the scores of both."""
