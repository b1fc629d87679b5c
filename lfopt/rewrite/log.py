"""What was rewritten, and what was not and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from lfopt.ir import Graph


@dataclass(frozen=True, slots=True)
class Applied:
    """One rewrite that was carried out."""

    rule: str
    family: str
    operators: tuple[str, ...]  # names of those that went
    added: tuple[str, ...]  # names of those that came
    flops_before: int  # of those that went
    flops_after: int  # of those that came


@dataclass(frozen=True, slots=True)
class Refusal:
    """A pattern that stood in the graph, and why it was left."""

    rule: str
    operator: str  # at which it stood
    reason: str


@dataclass(frozen=True)
class Rewriting:
    """A rewritten graph, and how it came about."""

    graph: Graph
    applied: tuple[Applied, ...]
    refusals: tuple[Refusal, ...]

    @property
    def counts(self) -> Counter[str]:
        """How often each rule was applied, by name."""
        return Counter(step.rule for step in self.applied)


@dataclass
class Log:
    """The record while it is being written.

    A rule that is refused at an operator again and again is told once.
    """

    applied: list[Applied] = field(default_factory=list[Applied])
    refused: dict[tuple[str, str], Refusal] = field(default_factory=dict[tuple[str, str], Refusal])

    def refuse(self, rule: str, operator: str, reason: str) -> None:
        """Note a refusal."""
        self.refused.setdefault((rule, operator), Refusal(rule, operator, reason))
