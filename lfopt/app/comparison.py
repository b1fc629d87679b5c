"""Compare two plans: bytes and cycles of each, and the groups and tensors that differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Literal, NamedTuple

from lfopt.ir import DoesNotFit, Graph, GroupReport, Hardware, Plan, Report, Role
from lfopt.ir.names import plural
from lfopt.planning import GroupCosts, Traffic, masks_of
from simulator.model.simulate import simulate

TENSORS = 3  # named for one change
Change = Literal[
    "merged", "split", "regrouped", "another mode", "other bytes", "other cycles", "only before", "only after"
]


class MovedTensor(NamedTuple):
    """What both plans move of one tensor in the same operators."""

    name: str
    role: Role
    before: int  # bytes, both directions
    after: int

    @property
    def more(self) -> int:
        """Bytes; negative where the second plan moves less."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class Changed:
    """Operators that the two plans run otherwise: the smallest set that is whole groups in both."""

    change: Change
    before: tuple[GroupReport, ...]
    after: tuple[GroupReport, ...]
    tensors: tuple[MovedTensor, ...]  # of which other bytes move, what differs most first
    # groups of either plan that may not run on the other's chip in its scheme
    unfit: tuple[DoesNotFit, ...]

    @property
    def more_bytes(self) -> int:
        """DRAM bytes of the second plan less those of the first."""
        return sum(g.dram.total for g in self.after) - sum(g.dram.total for g in self.before)

    @property
    def more_cycles(self) -> int:
        """The same for modelled cycles."""
        return sum(g.cycles.total for g in self.after) - sum(g.cycles.total for g in self.before)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The operators, in the order of the first plan; of those that it has not, of the second."""
        return tuple(dict.fromkeys(name for group in (*self.before, *self.after) for name in group.nodes))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two plans."""

    before: Report
    after: Report
    settings: tuple[tuple[str, str, str], ...]  # (field, before, after) of chip and search, where they differ
    changed: tuple[Changed, ...]  # what differs most in bytes first, then in cycles
    same: int  # groups that both have, with equal bytes and cycles


def compare(one: tuple[Plan, Graph], other: tuple[Plan, Graph]) -> Comparison:
    """Compare two plans, each with its network; the networks share operators by name."""
    before, after = (simulate(*pair) for pair in (one, other))
    changed: list[Changed] = []
    same = 0
    for olds, news in _regions(before.groups, after.groups):
        change = _change(olds, news)
        if change is None:
            same += len(olds)
            continue
        if change in ("merged", "split", "regrouped", "another mode"):
            unfit = (*_unfit(one, news), *_unfit(other, olds))
        else:
            unfit = ()
        changed.append(Changed(change, olds, news, _moved(olds, news), unfit))
    changed.sort(key=lambda c: (-abs(c.more_bytes), -abs(c.more_cycles), c.nodes))
    return Comparison(before, after, tuple(_settings(one[0], other[0])), tuple(changed), same)


def _regions(
    before: Sequence[GroupReport], after: Sequence[GroupReport]
) -> Iterator[tuple[tuple[GroupReport, ...], tuple[GroupReport, ...]]]:
    """The smallest sets of operators that are whole groups of both plans."""
    sides = before, after
    owners = [{name: group.id for group in groups for name in group.nodes} for groups in sides]
    left = [{group.id: group for group in groups} for groups in sides]
    while any(left):
        side = 0 if left[0] else 1
        region: tuple[dict[int, GroupReport], dict[int, GroupReport]] = ({}, {})
        todo = [(side, next(iter(left[side])))]
        while todo:
            side, number = todo.pop()
            if (group := left[side].pop(number, None)) is None:
                continue
            region[side][number] = group
            todo += [(1 - side, owners[1 - side][name]) for name in group.nodes if name in owners[1 - side]]
        yield tuple(region[0][k] for k in sorted(region[0])), tuple(region[1][k] for k in sorted(region[1]))


def _change(olds: Sequence[GroupReport], news: Sequence[GroupReport]) -> Change | None:
    if not olds or not news:
        if olds:
            return "only before"
        return "only after"
    if len(olds) == len(news) == 1:
        (old,), (new,) = olds, news
        if old.mode != new.mode:
            return "another mode"
        if (old.dram, old.l2) != (new.dram, new.l2):
            return "other bytes"
        if old.cycles != new.cycles:
            return "other cycles"
        return None
    if len(news) == 1:
        return "merged"
    if len(olds) == 1:
        return "split"
    return "regrouped"


def _moved(olds: Sequence[GroupReport], news: Sequence[GroupReport]) -> tuple[MovedTensor, ...]:
    sizes: dict[tuple[str, Role], list[int]] = defaultdict(lambda: [0, 0])
    for side, groups in enumerate((olds, news)):
        for group in groups:
            for tensor in group.tensors:
                sizes[tensor.name, tensor.role][side] += tensor.loaded_bytes + tensor.stored_bytes
    moved_maps = (
        MovedTensor(name, role, old, new) for (name, role), (old, new) in sizes.items() if old != new
    )
    return tuple(sorted(moved_maps, key=lambda moved: (-abs(moved.more), moved.name)))


def _unfit(plan: tuple[Plan, Graph], groups: Sequence[GroupReport]) -> Iterator[DoesNotFit]:
    """Which of these groups, of another plan, may not run on the chip of this one in its scheme, and why."""
    known, graph = plan
    costs = GroupCosts.of(
        graph, known.hardware, Traffic(known.traffic), scheme=known.scheme, epilogue=known.epilogue
    )
    for group in groups:
        if group.mode != "chained" and all(name in costs.dataflow.position for name in group.nodes):
            (mask,) = masks_of(costs.dataflow, [group.nodes])
            if isinstance(judgement := costs.evaluate(mask), DoesNotFit):
                yield judgement


def _settings(one: Plan, other: Plan) -> Iterator[tuple[str, str, str]]:
    """What was asked for otherwise."""
    plain = ("scheme", "traffic", "epilogue", "max_recompute")
    yield from _different(
        {name: getattr(one, name) for name in plain}, {name: getattr(other, name) for name in plain}, ""
    )
    yield from _different(
        {"objective": one.search.objective}, {"objective": other.search.objective}, "search."
    )
    yield from _different(asdict(one.search.constraints), asdict(other.search.constraints), "")
    names = [column.name for column in fields(Hardware)]
    chips = (
        {name: getattr(plan.hardware, name) for name in names if name != "energy"}
        | asdict(plan.hardware.energy)
        for plan in (one, other)
    )
    yield from _different(next(chips), next(chips), "hardware.")


def _different(
    one: dict[str, object], other: dict[str, object], prefix: str
) -> Iterator[tuple[str, str, str]]:
    for name, value in one.items():
        if value != other[name]:
            yield prefix + name, str(value), str(other[name])


# -- in words ------------------------------------------------------------------------------------------------


def numbered(groups: Sequence[GroupReport]) -> str:
    """Numbers of groups, and their modes."""
    numbers = [group.id for group in groups]
    modes = [*dict.fromkeys(group.mode for group in groups)]
    if not numbers:
        return "-"
    if numbers[2:] and numbers == [*range(numbers[0], numbers[-1] + 1)]:
        joined = f"{numbers[0]}-{numbers[-1]}"
    else:
        joined = ",".join(map(str, numbers))
    return f"{joined} {'/'.join(modes)}"


def reasons(changed: Changed) -> list[str]:
    """What tells the two apart: tensors that move otherwise, groups that one chip has no room for."""
    lines: list[str] = []
    for moved in changed.tensors[:TENSORS]:
        if not moved.after:
            verb = "no longer moves"
        elif not moved.before:
            verb = "moves now"
        elif moved.more < 0:
            verb = "moves less"
        else:
            verb = "moves more"
        lines.append(f"{moved.name} ({moved.role}) {verb}: {moved.before:,} -> {moved.after:,} B")
    if rest := changed.tensors[TENSORS:]:
        lines.append(f"{plural(len(rest), 'other tensor')}: {sum(moved.more for moved in rest):+,} B")
    lines += [
        f"a group needs {unfit.needed:,} B of {unfit.store}, and the other plan's chip has "
        f"{unfit.available:,}"
        for unfit in changed.unfit[:1]
    ]
    return lines or ["the same bytes, in other steps"]
