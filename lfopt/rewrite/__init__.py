"""Graph in, equivalent graph out."""

from lfopt.rewrite.log import Applied, Refusal, Rewriting
from lfopt.rewrite.rule import Rule, rule
from lfopt.rewrite.simplify import DEFAULT, RULES, RuleSet, rewrite, simplify

__all__ = [
    "DEFAULT",
    "RULES",
    "Applied",
    "Refusal",
    "Rewriting",
    "Rule",
    "RuleSet",
    "rewrite",
    "rule",
    "simplify",
]
