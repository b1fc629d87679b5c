"""A lower bound on what covers move: the cheapest cover of a relaxed problem, or a bound on that.

In the relaxed problem a group costs what any group moves at the least which holds its operators
(`CoverModel.least_extra`), and is legal wherever there is such a group. So a cover costs no more there than
it moves; and since fewer operators never cost more, the cheapest way to make one map alone bounds every state
in which it is needed, as `search.cover_path` takes for granted.

A cover that is known, and those of groups of few operators, bound what any map costs from above. Where the
budget ends a search, the least that any path had come to is the bound.
"""

from __future__ import annotations

from collections.abc import Sequence

from lfopt.fusion import CoverModel
from lfopt.ops import bits
from search.cover_network import CoverNetwork
from search.cover_path import UNIT, CoverBudget, CoverSearch


def cover_bound(model: CoverModel, budget: CoverBudget, start: Sequence[int]) -> int:
    """Bytes that no cover moves less than; 0 where an operator leads to no result.

    `start`: masks of the groups of a cover, in executable order.
    """
    network = CoverNetwork.of(model)
    flow = network.flow
    if network.region != flow.everything:
        return 0
    upper = _restricted(network, start, network.goal)
    ways = {m: _restricted(network, start, 1 << m) for m, maker in enumerate(flow.producer) if maker >= 0}
    bound = CoverSearch(network, len(flow), 0, ways, budget).bound(upper)
    return -(-bound // UNIT)


def _restricted(network: CoverNetwork, groups: Sequence[int], goal: int) -> int:
    """What the groups of a cover cost with those operators alone that maps depend on.

    One that is not legal by itself (stages of a chain) counts as its operators one by one.
    """
    needed = goal
    cost = 0
    waiting = [*groups]
    while waiting:
        group = waiting.pop()
        stored = 0
        for i in bits(group):
            stored |= network.makes[i] & needed
        if not stored:
            continue
        operators = 0
        for m in bits(stored):
            operators |= _leading(network, group, m)
        dram_bytes = network.model.dram_bytes(operators, stored)
        if dram_bytes is None:
            waiting += [1 << i for i in bits(group)]
            continue
        cost += UNIT * dram_bytes
        needed = (needed & ~stored | network.reads_of(operators)) & ~network.inputs
    assert not needed, "a cover makes all that its groups read"
    return cost


def _leading(network: CoverNetwork, group: int, m: int) -> int:
    """The operators of a group that lead to a map within it."""
    operators = 1 << network.flow.producer[m]
    waiting = operators
    while waiting:
        i = waiting.bit_length() - 1
        waiting &= ~(1 << i)
        new = network.flow.preds[i] & group & ~operators
        operators |= new
        waiting |= new
    return operators
