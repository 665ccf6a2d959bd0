"""GraphNet samples, in and out."""

from backprint.graphnet.read import GraphNetSample, read_graphnet

__all__ = ["GraphNetSample", "read_graphnet"]
