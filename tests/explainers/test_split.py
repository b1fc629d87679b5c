"""SPLIT does what algorithm 1 says; its result is valid by the given checker, whatever the explanation."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from explainers.controls import random_links
from explainers.graph import links
from explainers.split import Explain, Splitter
from lfopt import zoo
from lfopt.frontend import from_model
from lfopt.fusion import connected_parts, legal
from lfopt.ir import FusionScheme
from lfopt.ops import Dataflow, bits
from tests.explainers.networks import chain, network, random_groups


def blame(flow: Dataflow, *order: str) -> Explain:
    """An explanation that names links in order ("a-b"), and no others."""

    def explain(mask: int) -> np.ndarray:
        operators = [*bits(mask)]
        names = ["-".join(flow.operators[operators[k]].name for k in link) for link in links(flow, mask).T]
        return np.array([-order.index(name) if name in order else -np.inf for name in names], np.float64)

    return explain


def blame_in(flow: Dataflow, **order: list[str]) -> Explain:
    """An explanation for each group, given by the names of its operators."""

    def explain(mask: int) -> np.ndarray:
        return blame(flow, *order.get("".join(flow.names(mask)), ()))(mask)

    return explain


def words(flow: Dataflow, groups: tuple[int, ...] | None) -> list[str] | None:
    """Groups by the names of their operators."""
    return None if groups is None else ["".join(flow.names(group)) for group in groups]


def small(most: int):
    """Groups of at most so many operators are valid."""
    return lambda mask: mask.bit_count() <= most


def whole(_: int) -> int:
    return 1


def split(flow: Dataflow, explain: Explain, most: int, dram_bytes=whole, **options: int) -> list[str] | None:
    return words(flow, Splitter(flow, explain, small(most), dram_bytes, **options)(flow.everything))


# -- algorithm 1 ---------------------------------------------------------------------------------------------


def test_s1_a_cut_that_leaves_two_valid_halves_is_taken() -> None:
    flow = chain(4)
    assert split(flow, blame(flow, "a-b", "b-c", "c-d"), 2) == ["ab", "cd"]


def test_s1_of_several_the_one_that_moves_the_fewest_bytes() -> None:
    flow = chain(5)
    halves = {"ab": 9, "cde": 9, "abc": 2, "de": 2}
    assert split(flow, blame(flow, "b-c", "c-d"), 3, lambda mask: halves["".join(flow.names(mask))]) == [
        "abc",
        "de",
    ]
    halves["de"] = 99
    assert split(flow, blame(flow, "b-c", "c-d"), 3, lambda mask: halves["".join(flow.names(mask))]) == [
        "ab",
        "cde",
    ]


def test_s2_the_valid_half_with_the_most_operators_is_kept_and_the_other_split_again() -> None:
    flow = chain(7)
    assert split(flow, blame(flow, "a-b", "b-c", "e-f"), 3) == ["ab", "cde", "fg"]


def test_s2_keeps_the_order_when_the_first_half_is_the_one_split_again() -> None:
    flow = chain(7)
    assert split(flow, blame(flow, "e-f", "b-c"), 3) == ["ab", "cde", "fg"]


def test_s3_both_halves_are_split_and_the_cheapest_outcome_taken() -> None:
    flow = chain(8)
    explain = blame_in(
        flow, abcdefgh=["d-e", "c-d"], abcd=["b-c"], efgh=["f-g"], abc=["a-b"], defgh=["e-f"], fgh=["g-h"]
    )
    assert split(flow, explain, 2) == ["ab", "cd", "ef", "gh"]
    dear = {"cd": 9}
    assert split(flow, explain, 2, lambda mask: dear.get("".join(flow.names(mask)), 1)) == [
        "a",
        "bc",
        "de",
        "fg",
        "h",
    ]


def test_s3_with_a_width_of_one_follows_only_the_cut_of_the_fewest_elements() -> None:
    flow = network(
        {
            **{name: [before] for before, name in pairwise("xabcd")},
            "e": ["d"],
            "f": ["e"],
            "g": ["f", "b"],
            "h": ["g"],
        }
    )
    explain = blame_in(
        flow,
        abcdefgh=["d-e", "b-c"],
        ab=["a-b"],
        cdefgh=["f-g"],
        cdef=["d-e"],
        gh=["g-h"],
        cd=["c-d"],
        ef=["e-f"],
    )
    assert split(flow, explain, 1, width=1) == [*"abcdefgh"]


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_the_outcome_of_s3_is_no_dearer_for_following_more_cuts(width: int) -> None:
    cheaper = 0
    for flow, mask in random_groups(60, 12):
        price = {}

        def dram_bytes(group: int, price: dict[int, int] = price) -> int:
            return price.setdefault(group, group * 2654435761 % 1009)

        explain = random_links(flow, 0)
        totals = [
            sum(map(dram_bytes, Splitter(flow, explain, small(2), dram_bytes, width=w)(mask) or ()))
            for w in (1, width)
        ]
        cheaper += (totals[1] < totals[0]) - (totals[1] > totals[0])
    assert cheaper >= 0


# -- where there is no way out -------------------------------------------------------------------------------


def test_a_single_operator_that_is_not_valid_gives_nothing() -> None:
    flow = chain(1)
    assert split(flow, blame(flow), 0) is None


def test_an_explanation_without_links_gives_nothing() -> None:
    flow = chain(4)
    assert split(flow, blame(flow), 2) is None
    assert split(flow, blame(flow, "a-b"), 2) is None  # "bcd" is left, and nothing says where to cut it


def test_of_several_ways_the_one_that_ends_is_taken() -> None:
    flow = chain(8)
    ways = {"abcdefgh": ["c-d", "d-e"], "abcd": ["b-c"], "efgh": ["f-g"]}  # nothing says where to cut "abc"
    assert split(flow, blame_in(flow, **ways), 2) == ["ab", "cd", "ef", "gh"]
    assert split(flow, blame_in(flow, **ways | {"efgh": []}), 2) is None


# -- whatever the explanation --------------------------------------------------------------------------------


def test_what_comes_out_is_valid_covers_the_group_and_can_be_executed_in_order() -> None:
    for case, (flow, mask) in enumerate(random_groups(300, 16)):
        allowed = 1 + case % 4
        splitter = Splitter(
            flow, random_links(flow, case), small(allowed), whole, links=1 + case % 5, width=1 + case % 4
        )
        groups = splitter(mask)
        assert groups is not None
        assert all(group.bit_count() <= allowed for group in groups)
        assert sum(groups) == mask
        assert sum(group.bit_count() for group in groups) == mask.bit_count()
        done = flow.everything & ~mask
        for group in groups:
            assert all(not flow.preds[i] & ~(done | group) for i in bits(group))
            done |= group
        rest = ((name,) for name in flow.names(flow.everything & ~mask))
        verdict = legal(flow.graph, FusionScheme((*rest, *map(flow.names, groups))))
        assert verdict.legal, verdict.reasons


def test_validity_need_not_be_monotone() -> None:
    for case, (flow, mask) in enumerate(random_groups(100, 12)):
        valid = {mask: False}

        def judge(group: int, valid: dict[int, bool] = valid, seed: int = case) -> bool:
            lot = (group * 0x9E3779B97F4A7C15 + seed) >> 7 & 3
            return valid.setdefault(group, group & (group - 1) == 0 or lot == 0)

        groups = Splitter(flow, random_links(flow, case), judge, whole)(mask)
        assert groups is not None
        assert all(map(judge, groups))


def test_the_outcome_depends_on_the_group_alone() -> None:
    for case, (flow, mask) in enumerate(random_groups(60, 14)):
        fresh = Splitter(flow, random_links(flow, case), small(2), whole)(mask)
        used = Splitter(flow, random_links(flow, case), small(2), whole)
        for group in connected_parts(flow.neighbours, flow.everything):
            used(group)
        for i in bits(mask):
            used(1 << i)
        assert used(mask) == fresh == used(mask)


def test_no_group_is_explained_twice() -> None:
    flow = chain(12)
    explained_masks: list[int] = []

    def explain(mask: int) -> np.ndarray:
        explained_masks.append(mask)
        return np.zeros(links(flow, mask).shape[1])

    splitter = Splitter(flow, explain, small(1), whole)
    splitter(flow.everything)
    splitter(flow.everything)
    splitter(flow.everything >> 1)
    assert len(explained_masks) == len(set(explained_masks)) == splitter.explained


def test_links_that_add_no_cut_do_not_count() -> None:
    flow = network({"a": ["x"], "b": ["a"], "c": ["b"], "s": ["c", "b", "a"], "t": ["s"]})
    explain = blame(flow, "b-c", "c-s", "a-b", "s-t")
    for count, last in ((1, "b-c"), (2, "c-s"), (3, "a-b"), (4, "s-t")):
        cuts = Splitter(flow, explain, small(1), whole, links=count).candidates(flow.everything)
        assert len(cuts) == count, last
    skips = blame(flow, "b-s", "b-c", "c-s", "a-b")  # the cuts of b-s are those of b-c and c-s
    assert len(Splitter(flow, skips, small(1), whole, links=2).candidates(flow.everything)) == 3


def test_operators_that_stand_alone_are_cut_out_first() -> None:
    flow = network({"p": ["x"], "a": ["p"], "b": ["a"], "s": ["b", "p"], "t": ["s"]})
    place = {operator.name: i for i, operator in enumerate(flow.operators)}
    splitter = Splitter(flow, blame(flow), small(2), whole, alone=1 << place["b"])
    assert words(flow, splitter(flow.everything)) == ["pa", "b", "st"]
    assert splitter.explained == 0
    assert words(flow, splitter(flow.everything & ~(1 << place["t"]))) == ["pa", "b", "s"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("most", [1, 3, 12])
def test_work_is_bounded_where_every_cut_leaves_two_invalid_halves(most: int) -> None:
    flow = Dataflow.of(from_model(zoo.build("efficientnet_b0", weights=False)))
    splitter = Splitter(flow, random_links(flow, 0), small(most), whole, width=4)
    groups = splitter(flow.everything)
    assert groups is not None
    assert sum(groups) == flow.everything
    assert splitter.explained <= 8 * len(flow)
