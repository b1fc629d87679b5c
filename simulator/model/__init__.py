"""What a plan costs: DRAM bytes, cycles and energy of its steps, as formulas with the parameters of a Hardware.

`simulate` gives a Report of a whole plan, `meter` figures of groups for searches, `timing` cycles, `occupancy` how full the buffer is.
Nothing is executed: `simulator.interpreter` does that.
"""
