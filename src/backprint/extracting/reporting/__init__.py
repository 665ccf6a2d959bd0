"""Reports of kernels."""
