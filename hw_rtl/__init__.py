"""The accelerator in SystemVerilog and its test benches. Nothing lives here yet."""
