"""Kernels: one C function per unit, which makes one row of its result."""
