"""Kernels run, and compared with the captured graphs in eager."""
