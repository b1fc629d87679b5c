"""Interpreter of plans: `execute` runs the steps on real values, in a buffer of bytes, and counts DRAM bytes.

Whatever a plan does not allow (a row that is not on chip, a byte beyond the buffer) stops the execution;
nothing is predicted, that is `simulator.model`.
"""
