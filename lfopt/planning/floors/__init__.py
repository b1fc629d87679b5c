"""Floors: what groups of covers move beyond every tensor once, at the least.

A *floor* of some operators is a number of DRAM bytes that every group moves beyond once which holds them,
whatever else it holds and stores. So it never falls as operators join. It is what a proof is made of where
operators may run in several groups (`search.cover`): see `lfopt.planning.floors.group_floors`.
"""

from lfopt.planning.floors.relaxation import CoverRelaxation, relaxations

__all__ = ["CoverRelaxation", "relaxations"]
