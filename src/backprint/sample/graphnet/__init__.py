"""GraphNet samples, in and out."""

from backprint.sample.graphnet.read import GraphNetSample, is_graphnet, read

__all__ = ["GraphNetSample", "is_graphnet", "read"]
