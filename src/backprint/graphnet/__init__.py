"""GraphNet samples, in and out."""

from backprint.graphnet.read import GraphNetSample, read

__all__ = ["GraphNetSample", "read"]
