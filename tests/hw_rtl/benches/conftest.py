"""The benches run inside the simulator, under test_cocotb.py; pytest finds nothing in them."""

collect_ignore_glob = ["*.py"]
