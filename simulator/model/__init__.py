"""What a plan costs: DRAM bytes, cycles and energy of its steps, as formulas with the parameters of a
Hardware; nothing is executed.

`simulate` gives a Report of a plan, `meter` figures of groups for searches; `timing` says when commands run
in `queues`, `engines` what each takes; `occupancy` how full the buffer is.
"""
