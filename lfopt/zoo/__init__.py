"""Published networks as short definitions that become ONNX models with seeded, well-scaled weights."""

from lfopt.zoo.catalog import Summary, UnknownNetwork, build, names, summary

__all__ = ["Summary", "UnknownNetwork", "build", "names", "summary"]
