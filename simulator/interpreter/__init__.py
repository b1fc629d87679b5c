"""A plan carried out with numbers: `execute` runs its steps on a buffer of bytes, and counts those that cross
the memory port.

Whatever a plan does not allow (a row that is not on chip, a byte beyond the buffer) stops the execution;
nothing is predicted, that is `simulator.model`.
"""
