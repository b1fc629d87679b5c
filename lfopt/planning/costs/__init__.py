"""Costs of groups and of whole networks: the mode that each group runs in, constraints, baselines."""
