"""Schemes: what each allows with a chip and a traffic, and the network as it sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from lfopt.ir import Constraints, Graph, Hardware, InvalidConfig
from lfopt.ops import Call, Dataflow
from lfopt.ops.flight import attending, in_flight
from lfopt.planning.costs.rules import may_share
from lfopt.planning.groups.groups import is_table, may_fly
from lfopt.planning.modes import MODES, SCHEMES, Traffic


def check_scheme(scheme: str, hardware: Hardware, traffic: Traffic) -> None:
    """Raise InvalidConfig for an unknown scheme, and where scheme, chip and traffic do not go together."""
    if scheme not in SCHEMES:
        raise InvalidConfig(f"scheme: found {scheme!r}; accepted: {', '.join(SCHEMES)}")
    names = SCHEMES[scheme].modes
    if hardware.l2_bytes and traffic is not Traffic.TILED:
        raise InvalidConfig(
            f"hardware.l2_bytes: found {hardware.l2_bytes} with traffic {traffic.value}; accepted: 0, or "
            "traffic tiled"
        )
    if traffic is Traffic.PAPER and not all(MODES[name].in_paper for name in names):
        accepted = " or ".join(
            other for other, row in SCHEMES.items() if all(MODES[name].in_paper for name in row.modes)
        )
        raise InvalidConfig(
            f"scheme {scheme!r} with traffic 'paper': found no such mode in the paper; accepted: scheme "
            f"{accepted}, or another traffic"
        )
    if traffic is Traffic.PAPER and hardware.weight_buffer_bytes:
        raise InvalidConfig(
            f"traffic 'paper' with hardware.weight_buffer_bytes {hardware.weight_buffer_bytes}: "
            "accepted: 0, the paper has one buffer"
        )


def seen_by(
    scheme: str,
    graph: Graph,
    hardware: Hardware,
    traffic: Traffic,
    groups: Sequence[Sequence[str]] | None,
    constraints: Constraints,
) -> Dataflow:
    """The dataflow of a network as a scheme sees it, with operators in flight where constraints allow it.

    `hardware`: as it is for the network. `groups`: a partition of its operators, if there is one.
    """
    flow = Dataflow.of(graph)
    owner = None if groups is None else {name: k for k, names in enumerate(groups) for name in names}
    apart = constraints if constraints.alone or constraints.cut else None

    def fits(flight: Call, hold: Callable[[Call, Hardware], bool]) -> bool:
        return (apart is None or may_share(flight, apart)) and hold(flight, hardware)

    if scheme in SCHEMES and SCHEMES[scheme].flights:
        fly = partial(fits, hold=may_fly)
        flow = in_flight(attending(flow, owner, fly), owner, fly)
        if hardware.dram_row_align == 1 and not hardware.l2_bytes:
            flow = replace(flow, loads_views=True)
    elif tables_fly(graph, hardware, traffic):
        flow = in_flight(flow, owner, partial(fits, hold=is_table), running=False)
    return flow


def tables_fly(graph: Graph, hardware: Hardware, traffic: Traffic) -> bool:
    """Whether functions of one byte follow in flight in every scheme.

    So in quantised networks, on chips with a store for tables, unless traffic is `paper`.
    """
    return bool(hardware.parameter_store_bytes) and graph.quantized and traffic is not Traffic.PAPER
