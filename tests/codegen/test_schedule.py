"""What the threads of a CPU run: every fault that is put into it is found.

That it holds, and is read back, every test of `many` looks at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from codegen.emit import emit_c
from lfopt.ir import Hardware, InvalidPlan
from lfopt.ir.cpu import CpuBarrier, CpuCall, CpuLoop, CpuNode, CpuSchedule, CpuSection, cpu_calls
from lfopt.ir.cpu_listing import parse_cpu
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts
from simulator.recount.threads import recount_threads
from tests.codegen.shared import NETS, Net, fused
from tests.random_plans import planned


def every(nodes: Sequence[CpuNode], kind: type, change: object) -> Iterator[tuple[CpuNode, ...]]:
    """The nodes with one of a kind changed, or dropped, in every way."""
    for k, node in enumerate(nodes):
        if isinstance(node, CpuLoop):
            yield from (
                (*nodes[:k], replace(node, body=body), *nodes[k + 1 :])
                for body in every(node.body, kind, change)
            )
        if isinstance(node, kind):
            yield (*nodes[:k], *([] if change is None else [replace(node, **change)]), *nodes[k + 1 :])  # type: ignore[arg-type,misc]


def with_nodes(schedule: CpuSchedule, kind: type, change: object) -> Iterator[CpuSchedule]:
    for g, group in enumerate(schedule.groups):
        for s, section in enumerate(group.sections):
            for t, nodes in enumerate(section.threads):
                for altered in every(nodes, kind, change):
                    threads = (*section.threads[:t], altered, *section.threads[t + 1 :])
                    sections = (*group.sections[:s], CpuSection(threads), *group.sections[s + 1 :])
                    yield replace(
                        schedule,
                        groups=(
                            *schedule.groups[:g],
                            replace(group, sections=sections),
                            *schedule.groups[g + 1 :],
                        ),
                    )


def faults(schedule: CpuSchedule) -> Iterator[tuple[str, CpuSchedule]]:
    """Schedules in which one thing is wrong."""
    yield from (("a call dropped", altered) for altered in with_nodes(schedule, CpuCall, None))
    yield from (("a barrier dropped", altered) for altered in with_nodes(schedule, CpuBarrier, None))
    yield from (
        ("shared turned round", altered)
        for k in (True, False)
        for altered in with_nodes(schedule, CpuCall, {"shared": k})
        if altered != schedule
    )
    yield from (
        ("an unknown function", altered) for altered in with_nodes(schedule, CpuCall, {"function": "nobody"})
    )
    group = schedule.groups[0]
    if group.own:
        yield "rings in common", replace(schedule, groups=(replace(group, own=()), *schedule.groups[1:]))
    for k, section in enumerate(group.sections):
        if not section.together:
            swapped = CpuSection((section.threads[0],) * len(section.threads))
            sections = (*group.sections[:k], swapped, *group.sections[k + 1 :])
            yield (
                "rows of one thread twice",
                replace(schedule, groups=(replace(group, sections=sections), *schedule.groups[1:])),
            )
    yield (
        "a function dropped",
        replace(schedule, groups=(replace(group, functions=group.functions[1:]), *schedule.groups[1:])),
    )
    held = [m for m in schedule.maps if m.address >= 0]
    yield (
        "a map too small",
        replace(
            schedule, maps=tuple(replace(m, bytes=m.bytes - 64) if m == held[0] else m for m in schedule.maps)
        ),
    )
    yield "a map nowhere", replace(schedule, maps=tuple(m for m in schedule.maps if m != held[-1]))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_what_is_wrong_with_a_schedule_is_found(threads: int) -> None:
    noticed = Counter[str]()
    for net in NETS.values():
        graph = net().finish()
        plan = fused(graph)
        schedule = emit_c(plan, graph, "c99", threads=threads).schedule
        assert recount_threads(schedule, plan, graph) == ""
        for what, wrong in faults(schedule):
            assert recount_threads(wrong, plan, graph), what
            noticed[what] += 1
    assert noticed["a call dropped"] > 20
    assert threads == 1 or (
        noticed["a barrier dropped"] > 3
        and noticed["rows of one thread twice"] > 5
        and noticed["rings in common"] > 2
    ), noticed


def test_threads_wait_only_where_they_meet() -> None:
    """Three convolutions of one map need no barrier between them; two in a row do."""
    net = Net(1, 8, 1, 1)
    net.outputs += [net.conv(4, 1, source="x"), net.conv(5, 1, source="x")]
    net.conv(6, 1, source="x")
    apart = net.finish()
    net.conv(7, 1)
    for graph, waits in ((apart, 1), (net.finish(), 2)):
        plan = fused(graph)
        schedule = emit_c(plan, graph, "c99", threads=3).schedule
        steps = [
            step
            for group in schedule.groups
            for section in group.sections
            for step in cpu_calls(section.threads[0])
        ]
        assert sum(isinstance(step, CpuBarrier) for step in steps) == waits
        assert recount_threads(schedule, plan, graph) == ""


def test_maps_that_lie_over_one_another_are_found() -> None:
    """Two maps that are needed at the same time, in the same memory."""
    graph = NETS["several"]().finish()
    plan = fused(graph)
    schedule = emit_c(plan, graph, "c99", threads=2).schedule
    held = [m for m in schedule.maps if m.address >= 0]
    assert len(held) > 2
    addresses = {m.name: held[0].address for m in held}
    assert recount_threads(
        replace(
            schedule, maps=tuple(replace(m, address=addresses.get(m.name, m.address)) for m in schedule.maps)
        ),
        plan,
        graph,
    )


GROUP = "cpu c99 2/group 0 rings"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: found ''; accepted: cpu TARGET THREADS, 1 to 64 threads"),
        ("cpu c99 0", "line 1: found 'cpu c99 0'"),
        ("cpu c99 1/map x in y", "line 2: found 'map x in y'"),
        (f"{GROUP}/map x in ring y", "line 3: found 'map x in ring y'; accepted: maps before all groups"),
        (
            f"{GROUP}/thread 0 {{/}}/group 1 maps",
            "line 5: found 'group 1 maps'; accepted: one body for each of 2 threads before",
        ),
        (
            f"{GROUP}/thread 1 {{",
            "line 3: found 'thread 1 {'; accepted: one body for each of 2 threads, from 0 on",
        ),
        (f"{GROUP}/unit_0 0:1", "line 3: found 'unit_0 0:1'"),
        (f"{GROUP}/thread 0 {{/barrier", "line 4: found 'barrier'"),
        (
            f"{GROUP}/all {{/unit_0 0:1 by 2",
            "accepted: as many numbers after 'by' as there are loops around, 0",
        ),
        (f"{GROUP}/all {{/loop 3 {{/}}", "line 5: found '}'; accepted: every block closed"),
        (f"{GROUP}/all {{" + "/loop 2 {" * 99, "accepted: loops nested up to 16 deep"),
        (
            'cpu c99 2/group 0 rings why "\\u001b[31m"',
            "accepted: a reason as a JSON string of printable characters",
        ),
        ('cpu c99 2/map "\\u001b" in ring y', "accepted: plain names"),
    ],
)
def test_lines_that_are_none_are_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidPlan) as error:
        parse_cpu(text.split("/") if text else [])
    assert said in str(error.value) and "\n" not in str(error.value) and "\x1b" not in str(error.value)


@pytest.mark.parametrize("threads", [2, 3])
def test_groups_that_read_nothing_of_one_another_wait_where_their_rings_meet(threads: int) -> None:
    """All groups share the buffer: the second overwrites a ring that threads may still read in the first."""
    net = Net(1, 8, 1, 1)
    net.outputs.append(net.conv(5, 1, source=net.conv(7, 1)))
    net.conv(5, 1, source=net.conv(7, 1, source="x"))
    graph = net.finish()
    costs = GroupCosts(Dataflow.of(graph), Hardware(1 << 24, element_bytes=4))
    plan = planned(costs, (0b0011, 0b1100))
    schedule = emit_c(plan, graph, "c99", threads=threads).schedule
    assert all(group.rings for group in schedule.groups)
    assert recount_threads(schedule, plan, graph) == ""
    unguarded = list(with_nodes(schedule, CpuBarrier, None))
    assert len(unguarded) == 4, "inside and behind each group"
    for altered in unguarded:
        assert recount_threads(altered, plan, graph)
