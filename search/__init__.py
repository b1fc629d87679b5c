"""Searches over fusion schemes. Each is given a `lfopt.fusion.CostModel`, which prices groups."""
