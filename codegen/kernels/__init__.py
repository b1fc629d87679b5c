"""Kernels: one C function per fused kernel, which makes one row of its result."""
