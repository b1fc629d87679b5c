"""Published networks as short definitions that become ONNX models with seeded, well-scaled weights."""

from lfopt.zoo.catalog import NetworkSummary, UnknownNetwork, build, names, summary

__all__ = ["NetworkSummary", "UnknownNetwork", "build", "names", "summary"]
