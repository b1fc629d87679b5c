"""Recount everything that a plan claims, from the network and the plan's own steps."""

from simulator.recount.groups import Counted, count, not_an_epilogue, rings
from simulator.recount.network import Network
from simulator.recount.plan import Recount, recount

__all__ = ["Counted", "Network", "Recount", "count", "not_an_epilogue", "recount", "rings"]
