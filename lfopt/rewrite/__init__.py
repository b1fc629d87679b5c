"""Graph in, equivalent graph out."""

from lfopt.rewrite.log import Applied, Refusal, Rewriting
from lfopt.rewrite.rule import Rule, rule
from lfopt.rewrite.simplify import RULES, rewrite, simplify

__all__ = ["RULES", "Applied", "Refusal", "Rewriting", "Rule", "rewrite", "rule", "simplify"]
