"""Partitions that were made elsewhere: read from a file, priced, and planned."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lfopt.app.config import Config
from lfopt.app.documents import read_bytes, read_json
from lfopt.app.nodes import operator_named
from lfopt.app.objectives import break_ties
from lfopt.app.plans import make_draft
from lfopt.fusion import connected, convex_gap, legal
from lfopt.ir import Cost, DoesNotFit, FusionScheme, Graph, InvalidConfig
from lfopt.ir.names import one_line, plural
from lfopt.ops import Dataflow
from lfopt.planning import GIVEN, GroupCosts, PlanDraft, Traffic, executable, masks_of, relink, up_to
from lfopt.planning.defaults import BAND_ROWS
from lfopt.planning.steps.limit import Unwritten
from lfopt.planning.written.text import operators_of_text, parse_nest
from search.result import Result

NO_NESTS: Mapping[str, str] = MappingProxyType({})
HEADER = ("node", "group")  # of a CSV file with one operator a row
ACCEPTED = (
    "a list of lists of operators, {'groups': [...]} or plan.json; in CSV a row per group, or columns "
    "node,group"
)


@dataclass(frozen=True)
class PricedPartition:
    """A partition on a chip. What is in no group of the file is a group of its own."""

    groups: tuple[tuple[str, ...], ...]  # as they are in the file, then the operators that it leaves out
    left_out: int  # of those
    illegal: tuple[str, ...]  # why the partition is not legal, a line each
    # per group; None: it is not connected, or not convex
    prices: tuple[Cost | DoesNotFit | None, ...]
    costs: GroupCosts
    # the plan, but for its steps; None where the partition is not legal, or a group does not fit
    draft: PlanDraft | None


def read_groups(path: Path, flow: Dataflow) -> tuple[tuple[str, ...], ...]:
    """Groups of operator names from CSV, JSON or a plan (the file, or its folder).

    Raises InvalidConfig for anything else, and for other names.
    """
    path = path / "plan.json" if path.is_dir() else path
    groups = _from_csv(path) if path.suffix.lower() == ".csv" else _from_json(path)
    for k, names in enumerate(groups):
        for name in names:
            operator_named(flow, flow.position, name, one_line(f"{path}: group {k}"))
    return groups


def read_nest(path: Path) -> str:
    """The text of a nest. Raises InvalidConfig for a file that is none."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise InvalidConfig(
            one_line(f"{path}: found no UTF-8 ({error}); accepted: the text of a nest")
        ) from None


def operators_of_nest(text: str, flow: Dataflow, file: str) -> tuple[str, ...]:
    """Names of the operators of a nest. Raises InvalidConfig for a text that is none."""
    return flow.names(operators_of_text(text, flow, file))


def judge(
    graph: Graph, config: Config, groups: Sequence[Sequence[str]], nests: Mapping[str, str] = NO_NESTS
) -> PricedPartition:
    """What a partition costs in the modes of a scheme, what is wrong with it, and its plan.

    The plan is that of the fewest cycles among those of equal bytes. `nests`: by file, texts of nests in
    which groups of the partition run, whatever else moves fewer bytes. Raises InvalidConfig for a text that
    is none.
    """
    plain = Dataflow.of(graph)
    named = {name for names in groups for name in names}
    rest = [(operator.name,) for operator in plain.operators if operator.name not in named]
    whole = (*map(tuple, groups), *rest)
    illegal = legal(graph, FusionScheme(whole)).reasons
    space: dict[str, Any] = {
        "scheme": config.scheme,
        "epilogue": config.epilogue,
        "max_recompute": config.max_recompute,
    }
    costs = GroupCosts.of(
        graph, config.hardware, Traffic(config.traffic), **space, groups=None if illegal else whole
    )
    flow = costs.dataflow
    if illegal:
        parts = [plain_mask for (plain_mask,) in (masks_of(plain, [names]) for names in whole)]
        # nothing in flight: whose groups these are is not known
        costs = GroupCosts(plain, config.hardware, Traffic(config.traffic), **space)
        sound = [mask and connected(plain.neighbours, mask) and not convex_gap(plain, mask) for mask in parts]
        prices = tuple(costs.evaluate(mask) if ok else None for mask, ok in zip(parts, sound, strict=True))
        return PricedPartition(whole, len(rest), illegal, prices, costs, None)
    masks = masks_of(flow, whole)
    relink(costs, masks)
    misfits = _give(costs, nests)
    prices = tuple(misfits.get(mask) or costs.evaluate(mask) for mask in masks)
    if any(isinstance(price, DoesNotFit) for price in prices):
        return PricedPartition(whole, len(rest), (), prices, costs, None)
    order = executable(flow, masks)
    bound = costs.proven_bytes(costs.least_bytes - costs.bounds.shareable_bytes)
    partition = Result(GIVEN.method, order, costs.dram_bytes(order), bound, 0, 0, 0.0)
    if config.traffic == "tiled":
        partition = break_ties(costs, config, partition, None).result
    rows = up_to(costs, None if config.band_rows == "max" else config.band_rows or BAND_ROWS)
    return PricedPartition(
        whole,
        len(rest),
        (),
        prices,
        costs,
        make_draft(graph, costs, partition, bound, bands=rows, max_recompute=config.recompute_allowed),
    )


def _give(costs: GroupCosts, nests: Mapping[str, str]) -> dict[int, DoesNotFit]:
    """Let groups run as nests say; those that do not fit."""
    misfits: dict[int, DoesNotFit] = {}
    for file, text in nests.items():
        mask, nest = parse_nest(text, costs.dataflow, file)
        try:
            misfit = costs.give(mask, nest)
        except Unwritten as why:
            raise InvalidConfig(one_line(f"{file}: {why}; accepted: fewer blocks")) from None
        if misfit is not None:
            misfits[mask] = misfit
    return misfits


def _from_json(path: Path) -> tuple[tuple[str, ...], ...]:
    data = read_json(path)
    groups = data.get("groups") if isinstance(data, dict) else data
    if not isinstance(groups, list):
        raise InvalidConfig(
            one_line(f"{path}: found {type(data).__name__} without groups; accepted: {ACCEPTED}")
        )
    return tuple(
        _names(group.get("nodes") if isinstance(group, dict) else group, f"{path}: group {k}")
        for k, group in enumerate(groups)
    )


def _names(group: object, where: str) -> tuple[str, ...]:
    if not isinstance(group, list) or not group or not all(isinstance(name, str) for name in group):
        raise InvalidConfig(
            one_line(f"{where}: found {group!r}; accepted: a list of names of operators, at least one")
        )
    return tuple(group)


def _from_csv(path: Path) -> tuple[tuple[str, ...], ...]:
    try:
        text = read_bytes(path).decode("utf-8-sig")
        rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines(), strict=True)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidConfig(
            one_line(f"{path}: found no CSV in UTF-8 ({error}); accepted: {ACCEPTED}")
        ) from None
    rows = [row for row in rows if any(row)]
    if rows and tuple(cell.lower() for cell in rows[0]) == HEADER:
        by_group: dict[str, list[str]] = {}
        for k, row in enumerate(rows[1:], 2):
            if len(row) != len(HEADER) or not all(row):
                raise InvalidConfig(
                    one_line(
                        f"{path}: row {k}: found {plural(len(row), 'cell')}; accepted: an operator and the "
                        "name of its group"
                    )
                )
            by_group.setdefault(row[1], []).append(row[0])
        return tuple(map(tuple, by_group.values()))
    return tuple(tuple(cell for cell in row if cell) for row in rows)
