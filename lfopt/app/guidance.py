"""Guidance: where the searches meet the explainers.

A search takes two callables: `split`, which breaks a group where an explanation says (SPLIT), and `screen`,
which tells by a rule which groups are worth checking. Whatever they say, the cost model decides what is
legal: a wrong prediction may cost time, or a better plan, never legality. Commands offer no screening: the
planner says no sooner than any rule (docs/learning.md). It is there for a slow cost model of one's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from math import log2

from explainers.controls import analytic, random_links
from explainers.predictor import Predictor
from explainers.scheme_rule import SchemeRule
from explainers.split import Explain, Splitter
from lfopt.app.config import LEARNED, PREDICTED
from lfopt.app.options import GuidanceName
from lfopt.ir import InvalidConfig
from lfopt.planning import GroupCosts
from search.partition import Partitions, Screen


def splitter(explain: Explain, partitions: Partitions) -> Splitter:
    """SPLIT as the searches use it: a group is valid if it is legal, tiled ones included.

    Operators that share no legal group are cut out first.
    """
    compatible = partitions.model.compatible
    alone = sum(1 << i for i, mask in enumerate(compatible) if mask == 1 << i)

    def valid(mask: int) -> bool:
        return partitions.price(mask) is not None

    def dram_bytes(mask: int) -> int:
        return partitions.dram_bytes((mask,))

    return Splitter(partitions.flow, explain, valid, dram_bytes, alone=alone)


def screener(rule: SchemeRule) -> Screen:
    """Groups that the rule thinks valid pass.

    The network is not asked: on families that it has not learnt from, it is right no more often.
    """
    beta = rule.hardware.buffer_bytes

    def screen(masks: Sequence[int]) -> list[bool]:
        doublings, never = rule.of(masks).T
        return ((doublings < log2(beta)) & (never == 0)).tolist()

    return screen


def explainer(costs: GroupCosts, name: GuidanceName, seed: int) -> Explain:
    """An explainer by name, for the groups of one network on one chip.

    Raises InvalidConfig for an unknown name, where its scheme has no predictor, and where torch is absent.
    """
    if name == "random":
        return random_links(costs.dataflow, seed)
    if name == "analytic":
        return analytic(costs)
    if name in LEARNED:
        return _learned(costs, name, seed)
    raise InvalidConfig(f"search.guidance: found {name}; accepted: random, analytic, {', '.join(LEARNED)}")


def _learned(costs: GroupCosts, name: str, seed: int) -> Explain:
    """An explainer of what the scheme's predictor says. Only GNNExplainer needs torch."""
    module = {"gnne": "gnn_explainer", "pg": "pg_explainer", "rg": "rg_explainer"}[name]
    judge = predictor(costs)
    try:
        bind: Callable[..., Explain] = getattr(import_module(f"explainers.{module}"), module)
    except ImportError as error:
        raise InvalidConfig(
            f"search.guidance: {name} needs {error.name}: pip install 'lfopt[learn]', or take random or "
            "analytic"
        ) from None
    return bind(rule(costs), judge, seed)


def predictor(costs: GroupCosts) -> Predictor:
    """The predictor that ships for the scheme. Raises InvalidConfig where none does."""
    if costs.scheme not in PREDICTED:
        accepted = f"scheme {' or '.join(PREDICTED)}, or guidance none, random or analytic"
        raise InvalidConfig(f"scheme {costs.scheme}: found no predictor; accepted: {accepted}")
    return Predictor.load(costs.scheme)


def rule(costs: GroupCosts) -> SchemeRule:
    """F_beta of groups by formula, in the mode of the scheme that needs the least.

    The scheme's predictor begins with it.
    """
    return SchemeRule(costs.dataflow, costs.hardware, costs.scheme, costs.max_recompute)
