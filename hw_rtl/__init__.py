"""The accelerator in SystemVerilog: its simulation, an emulator of its commands, and its area."""
