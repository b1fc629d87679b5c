"""Sets of rules by name: a graph to an equivalent smaller one, and a log of what was done and refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

from lfopt.ir import Graph, InvalidConfig
from lfopt.rewrite.cleanup import drop_idle
from lfopt.rewrite.composite import STABLE_SOFTMAXES
from lfopt.rewrite.einsum import einsums_as_products
from lfopt.rewrite.engine import Engine, Index
from lfopt.rewrite.equal_constants import merge_equal_constants
from lfopt.rewrite.facts import Facts
from lfopt.rewrite.fold import fold_affine, fold_norms
from lfopt.rewrite.group_norms import instances_as_groups
from lfopt.rewrite.log import Log, Rewriting
from lfopt.rewrite.lookups import products_as_lookups
from lfopt.rewrite.movement import VIEWS
from lfopt.rewrite.mutable_graph import MutableGraph
from lfopt.rewrite.positions import on_positions
from lfopt.rewrite.rows import on_rows
from lfopt.rewrite.rule import Rule

_SOFTMAXES = Index.of(STABLE_SOFTMAXES)


def _default(graph: Graph) -> Rewriting:
    log = Log()
    given, mutable = (
        {operator.name: operator for operator in graph.operators},
        MutableGraph(graph := fold_norms(graph, log)),
    )
    normal = {operator.name for operator in graph.operators if given[operator.name] is not operator}
    roots = [operator.name for operator in graph.operators if operator.kind in _SOFTMAXES.rules]
    # networks from Caffe have scale and shift behind BatchNormalization
    count = fold_affine(mutable, log, normal) if normal else 0
    count += Engine(mutable, Facts(mutable), log).run_to_fixpoint(_SOFTMAXES, roots) + drop_idle(
        mutable, log, VIEWS
    )
    return Rewriting(mutable.finish() if count else graph, tuple(log.applied), ())


# Hundreds of rules are derived from their tables when they are first asked for: a third of a second that
# "default" does not need.


def _all(graph: Graph) -> Rewriting:
    from lfopt.rewrite.stages import rewrite_all  # noqa: PLC0415

    return rewrite_all(graph)


def _none(graph: Graph) -> Rewriting:
    return Rewriting(graph, (), ())


RuleSet = Literal["default", "all", "none"]
RULES: Mapping[str, Callable[[Graph], Rewriting]] = {
    # BatchNormalization and a scale behind it folded, (Log)Softmax made of its parts, idle operators dropped
    "default": _default,
    "all": _all,
    "none": _none,
}
DEFAULT: Final[RuleSet] = "default"


def simplify(graph: Graph, rules: str = DEFAULT) -> Graph:
    """Apply a set of rules by name (a key of `RULES`).

    Unless that is "none", Einsum is a matrix product where it can be (`lfopt.rewrite.einsum`), products of
    one-hot vectors are lookups (`lfopt.rewrite.lookups`), GroupNormalization is made of its parts
    (`lfopt.rewrite.group_norms`), linear layers are on maps [b, s, d] (`lfopt.rewrite.rows`), and
    convolutions along one axis on maps [n, c, l, 1] (`lfopt.rewrite.positions`). With any rules, equal
    constants are one (`lfopt.rewrite.equal_constants`).
    """
    if rules == "none":
        return merge_equal_constants(graph)
    primitive = instances_as_groups(products_as_lookups(einsums_as_products(graph)))
    return merge_equal_constants(on_rows(on_positions(rewrite(primitive, rules).graph)))


def rewrite(graph: Graph, rules: str | tuple[Rule, ...] = "all") -> Rewriting:
    """The graph after a set of rules by name, or after some rules; what was applied, what refused, and why.

    Raises InvalidConfig for a name that is no set of rules.
    """
    if not isinstance(rules, str):
        from lfopt.rewrite.stages import rewrite_with  # noqa: PLC0415

        return rewrite_with(graph, rules)
    if rules not in RULES:
        raise InvalidConfig(f"rules {rules!r}: the sets of rules are {', '.join(RULES)}")
    return RULES[rules](graph)
