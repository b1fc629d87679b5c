"""The cuts of a link are exactly the minimal ones that hold it, and yield groups that a plan may hold."""

from __future__ import annotations

from functools import cache

import pytest

from explainers.cuts import Cut, GroupCuts
from explainers.graph import links
from lfopt import zoo
from lfopt.frontend import from_model
from lfopt.fusion import connected, legal
from lfopt.ir import FusionScheme, Hardware
from lfopt.ops import Dataflow, bits
from lfopt.planning import GroupCosts, Traffic
from tests.explainers.networks import chain, network, random_groups


def named(flow: Dataflow, cuts: list[Cut]) -> set[tuple[str, str]]:
    """Cuts as words: the operators of both sides, by name."""
    return {(" ".join(flow.names(cut.first)), " ".join(flow.names(cut.second))) for cut in cuts}


def through(flow: Dataflow, u: str, v: str, mask: int | None = None, **options: int) -> list[Cut]:
    """Cuts of a link given by names, in the whole network."""
    place = {operator.name: i for i, operator in enumerate(flow.operators)}
    return GroupCuts(flow, flow.everything if mask is None else mask).through(place[u], place[v], **options)


# -- examples that a reader can follow -----------------------------------------------------------------------


def test_a_chain_has_one_cut_a_link() -> None:
    flow = chain(3)
    assert named(flow, through(flow, "a", "b")) == {("a", "b c")}


def test_a_link_under_a_skip_takes_the_skip_along() -> None:
    flow = network({"a": ["x"], "b": ["a"], "c": ["b"], "s": ["c", "a"]})
    assert named(flow, through(flow, "b", "c")) == {("a b", "c s")}


def test_a_skip_takes_each_link_under_it_in_turn() -> None:
    flow = network({"a": ["x"], "b": ["a"], "c": ["b"], "s": ["c", "a"]})
    assert named(flow, through(flow, "a", "s")) == {("a", "b c s"), ("a b", "c s"), ("a b c", "s")}


def test_nested_skips_are_all_cut() -> None:
    """Squeeze-and-excite inside a residual block: p -> d -> (g -> h) -> m(d, h) -> q -> s(q, p)."""
    flow = network(
        {"p": ["x"], "d": ["p"], "g": ["d"], "h": ["g"], "m": ["d", "h"], "q": ["m"], "s": ["q", "p"]}
    )
    assert named(flow, through(flow, "g", "h")) == {("p d g", "h m q s")}
    assert named(flow, through(flow, "d", "m")) == {
        ("p d", "g h m q s"),
        ("p d g", "h m q s"),
        ("p d g h", "m q s"),
    }
    # below the outer skip: at each of the five links, and at the inner skip in three ways
    assert len(through(flow, "p", "s")) == 6


def test_branches_are_cut_in_every_combination_up_to_a_limit_the_cheapest_first() -> None:
    flow = network({"f": ["x"], "a": ["f"], "b": ["a"], "c": ["f"], "d": ["c"], "j": ["b", "d"]})
    cuts = through(flow, "a", "b")
    assert named(flow, cuts) == {("f a", "b c d j"), ("f a c", "b d j"), ("f a c d", "b j")}
    assert [cut.elements for cut in cuts] == sorted(cut.elements for cut in cuts)
    assert through(flow, "a", "b", most=1) == [cut for cut in cuts if flow.names(cut.first) == ("f", "a")]


def test_what_hangs_on_the_first_half_alone_stays_with_it() -> None:
    flow = network({"a": ["x"], "head": ["a"], "tail": ["head"], "b": ["a"], "c": ["b"]})
    assert named(flow, through(flow, "b", "c")) == {("a head tail b", "c")}


def test_two_readers_of_one_map_may_go_either_way() -> None:
    flow = network({"a": ["x"], "b": ["x"], "c": ["b"]})
    assert named(flow, through(flow, "a", "b")) == {("a", "b c"), ("b c", "a")}


def test_readers_of_a_map_that_is_cut_off_may_stay_together() -> None:
    flow = network({"a": ["x"], "b": ["a"], "c": ["a"]})
    assert named(flow, through(flow, "a", "b")) == {("a", "b c"), ("a c", "b")}


# -- laws ----------------------------------------------------------------------------------------------------


def minimal_cuts(flow: Dataflow, mask: int, u: int, v: int) -> set[tuple[int, int]]:
    """Every division of a group between u and v, by enumeration: no link runs back, sides are connected."""
    divisions: set[tuple[int, int]] = set()
    part = mask
    while part := (part - 1) & mask:
        rest = mask ^ part
        apart = (part >> u & 1) != (part >> v & 1)
        if (
            apart
            and all(not flow.preds[i] & rest for i in bits(part))
            and connected(flow.neighbours, part)
            and connected(flow.neighbours, rest)
        ):
            divisions.add((part, rest))
    return divisions


def test_cuts_are_the_minimal_ones_that_hold_the_link_and_no_others() -> None:
    several = 0
    for flow, mask in random_groups(250, 11):
        operators, group = [*bits(mask)], GroupCuts(flow, mask)
        for u, v in links(flow, mask).T:
            cuts = group.through(operators[u], operators[v], 10_000)
            halves = [(cut.first, cut.second) for cut in cuts]
            assert len(set(halves)) == len(halves)
            assert set(halves) == minimal_cuts(flow, mask, operators[u], operators[v])
            assert halves, "every link is in a cut"
            several += len(halves) > 2
    assert several > 100


def test_halves_are_groups_of_a_legal_scheme_whatever_the_limit() -> None:
    for flow, mask in random_groups(120, 16):
        rest = [(name,) for name in flow.names(flow.everything & ~mask)]
        for u, v in links(flow, mask).T:
            operators = [*bits(mask)]
            for most in (1, 3):
                cuts = GroupCuts(flow, mask).through(operators[u], operators[v], most)
                assert 1 <= len(cuts) <= most
                for cut in cuts:
                    assert cut.first | cut.second == mask
                    assert not cut.first & cut.second
                    verdict = legal(
                        flow.graph, FusionScheme((*rest, flow.names(cut.first), flow.names(cut.second)))
                    )
                    assert verdict.legal, verdict.reasons


def test_elements_are_what_the_two_halves_move_more_than_the_whole() -> None:
    for flow, mask in random_groups(120, 14):
        costs = GroupCosts(flow, Hardware(1 << 40, element_bytes=1), Traffic.ONCE, epilogue=False)
        weights = {w.name for i in bits(mask) for w in flow.weights[i]}
        for u, v in links(flow, mask).T:
            operators = [*bits(mask)]
            for cut in GroupCuts(flow, mask).through(operators[u], operators[v]):
                if len(weights) < sum(
                    len({w.name for i in bits(half) for w in flow.weights[i]})
                    for half in (cut.first, cut.second)
                ):
                    continue  # a constant that both halves read moves again too
                whole, first, second = (costs.dram(part).total for part in (mask, cut.first, cut.second))
                assert cut.elements == first + second - whole


# -- size ----------------------------------------------------------------------------------------------------


@cache
def large(name: str) -> Dataflow:
    return Dataflow.of(from_model(zoo.build(name, weights=False)))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["efficientnet_b3", "resnet152", "deeplabv3_mobilenet_v3_large"])
def test_a_whole_network_is_a_group_whose_cuts_are_found(name: str) -> None:
    flow = large(name)
    group, limit = GroupCuts(flow, flow.everything), 8
    for u, v in links(flow, flow.everything).T[::9].tolist():
        cuts = group.through(u, v, limit)
        assert 1 <= len(cuts) <= limit
        assert all(
            connected(flow.neighbours, cut.first) and connected(flow.neighbours, cut.second) for cut in cuts
        )
