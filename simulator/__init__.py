"""Independent accounts of a plan: a recount that shares nothing with the planner but the IR and the operator table."""

from simulator.recount import Recount, recount

__all__ = ["Recount", "recount"]
