"""Graph in, equivalent graph out."""

from lfopt.rewrite.simplify import RULES, simplify

__all__ = ["RULES", "simplify"]
