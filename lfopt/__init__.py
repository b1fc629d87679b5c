"""Layer-fusion optimizer for accelerators."""
