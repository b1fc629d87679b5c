"""Constraints on a plan: operators that share a group, that do not, that stand alone; how groups run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations


@dataclass(frozen=True, slots=True)
class Constraints:
    """Operators by name. The least bytes that a plan claims are those of plans that keep to this."""

    together: tuple[tuple[str, ...], ...] = ()  # sets of operators, each in one group
    alone: tuple[str, ...] = ()  # operators that are a group of their own
    cut: tuple[tuple[str, ...], ...] = ()  # sets of operators, no two of which are in one group
    mode: dict[str, str] = field(default_factory=dict[str, str])  # operator: mode in which its group runs

    # operator: parts of the nest of its group, with commas between (`lfopt.planning.written.parts`)
    nests: dict[str, str] = field(default_factory=dict[str, str])

    def __bool__(self) -> bool:
        return bool(self.together or self.alone or self.cut or self.mode or self.nests)

    def named(self) -> Iterator[tuple[str, str]]:
        """(field, operator) of every name."""
        for name, sets in (("together", self.together), ("cut", self.cut)):
            yield from ((f"{name}.{k}", operator) for k, members in enumerate(sets) for operator in members)
        yield from (("alone", operator) for operator in self.alone)
        yield from (("mode", operator) for operator in self.mode)
        yield from (("nests", operator) for operator in self.nests)

    def contradictions(self) -> Iterator[str]:
        """Why no plan keeps to them, as far as they tell alone."""
        for k, members in enumerate(self.together):
            for operator in members:
                if operator in self.alone and len(set(members)) > 1:
                    yield f"together.{k}: found {operator!r}, which is alone too"
            for apart in self.cut:
                for a, b in combinations(dict.fromkeys(apart), 2):
                    if a in members and b in members:
                        yield f"together.{k}: found {a!r} and {b!r}, which are cut too"
            if len(modes := {self.mode[operator] for operator in members if operator in self.mode}) > 1:
                yield (
                    f"together.{k}: found operators whose group is to run in {' and in '.join(sorted(modes))}"
                )

    def broken(self, groups: Iterable[tuple[Sequence[str], str]]) -> Iterator[str]:
        """A line for each that groups (operators, mode) do not keep to."""
        listed = [(set(names), mode) for names, mode in groups]
        for k, members in enumerate(self.together):
            if not any(names.issuperset(members) for names, _ in listed):
                yield f"together.{k}: {', '.join(members)} are not in one group"
        for operator in self.alone:
            if not any(names == {operator} for names, _ in listed):
                yield f"alone: {operator} is not a group of its own"
        for k, members in enumerate(self.cut):
            for names, _ in listed:
                if len(shared := names.intersection(members)) > 1:
                    yield f"cut.{k}: {', '.join(sorted(shared))} are in one group"
        for operator, wanted in self.mode.items():
            for names, mode in listed:
                if operator in names and mode != wanted:
                    yield f"mode.{operator}: its group runs in mode {mode}, not {wanted}"


FREE = Constraints()  # none
