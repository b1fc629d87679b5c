"""Certificates of lower bounds in plans: what maps cost at the least, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lfopt.fusion import ALONE
from lfopt.ir import Graph, InvalidGraph, InvalidPlan, MapClaim
from lfopt.ir.names import one_line
from lfopt.ir.plan import Certificate
from lfopt.ops import Dataflow, bits
from lfopt.planning import GroupCosts
from lfopt.planning.floors import relaxations
from simulator.cover_proof import CoverProof


def written(flow: Dataflow, claims: Mapping[tuple[int, int], int]) -> Certificate:
    """Claims of a search (`CoverBounds.claims`) with names, in the order of the network."""
    names = [tensor.name for tensor in flow.maps]
    by_name: list[MapClaim] = []
    for (m, done), size in sorted(claims.items()):
        others = None
        if done != ALONE:
            last = [i for i in bits(done) if not flow.succs[i] & done]
            others = tuple(names[flow.results[i][0]] for i in last)
        by_name.append(MapClaim(names[m], size, others))
    return Certificate(tuple(operator.name for operator in flow.graph.operators), tuple(by_name))


def in_order(graph: Graph, names: Sequence[str]) -> Graph:
    """A network with its operators in another order. Raises InvalidPlan for what is none of these."""
    by_name = {operator.name: operator for operator in graph.operators}
    if sorted(names) != sorted(by_name):
        raise InvalidPlan(
            "search.certificate.operators: found others than the network has; accepted: all of them"
        )
    try:
        return replace(graph, operators=tuple(by_name[name] for name in names))
    except InvalidGraph as error:
        raise InvalidPlan(
            one_line(f"search.certificate.operators: found {error}; accepted: an executable order")
        ) from None


def read(flow: Dataflow, claims: Sequence[MapClaim]) -> dict[tuple[int, int], int]:
    """Claims of a plan by index. Raises InvalidPlan for what is no map that the network makes."""
    by_index: dict[tuple[int, int], int] = {}
    for claim in claims:
        done = ALONE
        if claim.others is not None:
            done = 0
            for name in claim.others:
                maker = flow.producer[_map_named(flow, name)]
                done |= flow.ancestors[maker] | 1 << maker
        by_index[_map_named(flow, claim.map), done] = claim.bytes
    return by_index


def _map_named(flow: Dataflow, name: str) -> int:
    m = flow.map_index.get(name, -1)
    if m < 0 or flow.producer[m] < 0:
        raise InvalidPlan(
            one_line(
                f"search.certificate: found {name!r}; accepted: maps that the operators of the network make"
            )
        )
    return m


def certified(costs: GroupCosts, claims: Sequence[MapClaim], least: int, late: Callable[[], bool]) -> int:
    """What is proven by the claims of a plan, `least` at the most, without the search: bytes.

    `costs`: of the network without copies. Once it is `late`, less is proven. Raises InvalidPlan.
    """
    models = relaxations(costs, late)
    constant_bytes = models[0].constant_bytes
    proof = CoverProof(models[-1], read(costs.dataflow, claims), late)
    return proof.proven(least - constant_bytes) + constant_bytes
