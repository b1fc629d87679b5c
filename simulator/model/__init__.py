"""Cost model of plans: DRAM bytes, cycles and energy of their steps, by formulas of a Hardware's parameters.

Nothing is executed.

`simulate` gives a Report of a plan, `meter` figures of groups for searches; `timing` says when commands run
in `queues`, `engines` what each takes; `occupancy` how full the buffer is.
"""
