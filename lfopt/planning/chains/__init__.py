"""Chains of groups: which maps stay on chip from one stage to the next."""
