"""The instruction set of the accelerator, described once: see `lfopt.isa.tables`."""
