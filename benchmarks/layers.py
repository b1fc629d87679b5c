"""Plans of single layers, for benchmarks of the model beside what was measured."""

from __future__ import annotations

from collections.abc import Callable

from lfopt.app.figures import GroupFigures
from lfopt.app.plans import make_draft
from lfopt.ir import Figures, Graph, Hardware, Plan
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts
from lfopt.planning.defaults import GROUP_SCHEME
from search.result import Result


def plan_of_layer(graph: Graph, hardware: Hardware, cost: Callable[[Figures], int]) -> Plan:
    """The plan of a network of one operator, in the way for which `cost` of its figures is least."""
    costs = GroupCosts(Dataflow.of(graph), hardware.with_wide_blocks, scheme=GROUP_SCHEME)
    figures = GroupFigures(costs)
    options = figures(1)
    best = min(range(len(options)), key=lambda k: cost(options[k]))
    figures.take(1, best)
    result = Result("layer", (1,), options[best].dram_bytes, 0, 0, 0, 0.0)
    return make_draft(graph, costs, result, 0).finished()
