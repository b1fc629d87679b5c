"""The order of rewriting: clean-up, normal forms, composites, moves, algebra, until nothing changes."""

from __future__ import annotations

from collections.abc import Callable

from lfopt.ir import Graph
from lfopt.rewrite.associative import ASSOCIATIVE
from lfopt.rewrite.cleanup import drop_dead, drop_expands, drop_idle, fold_constants, join_casts, merge_equal
from lfopt.rewrite.commutative import COMMUTATIVE
from lfopt.rewrite.composite import COMPOSITES, NORMAL_FORMS
from lfopt.rewrite.distributive import DISTRIBUTIVE
from lfopt.rewrite.engine import Engine, Index, kinds_of, subgraphs
from lfopt.rewrite.facts import Facts
from lfopt.rewrite.fold import fold_affine, fold_norms
from lfopt.rewrite.inverse import INVERSE
from lfopt.rewrite.log import Log, Rewriting
from lfopt.rewrite.movement import shorten_moves
from lfopt.rewrite.mutable_graph import MutableGraph
from lfopt.rewrite.rule import Rule

Pass = Callable[[MutableGraph, Log], int]

CLEAN_UP: tuple[Pass, ...] = (
    fold_constants,
    drop_idle,
    join_casts,
    drop_expands,
    merge_equal,
    drop_dead,
    fold_affine,
)
ALGEBRA: tuple[Rule, ...] = (*ASSOCIATIVE, *DISTRIBUTIVE, *COMMUTATIVE, *INVERSE)
ALL_RULES: tuple[Rule, ...] = (*ALGEBRA, *NORMAL_FORMS, *COMPOSITES)
ROUNDS = 10  # of a fixpoint that two or three reach

_NORMAL = Index.of((*NORMAL_FORMS, *(rule for rule in INVERSE if rule.family == "identity")))
_COMPOSITES = Index.of(COMPOSITES)
_ALGEBRA = Index.of(ALGEBRA, reorders=True)
_ALGEBRAIC_KINDS = kinds_of(ALGEBRA)


def rewrite_all(graph: Graph) -> Rewriting:
    """Everything that lfopt knows, to a fixpoint."""
    log = Log()
    mutable = MutableGraph(fold_norms(graph, log))
    engine = Engine(mutable, Facts(mutable), log)
    settled = -1  # version of the graph at which algebra found nothing more
    for _ in range(ROUNDS):
        before = mutable.version
        for each in CLEAN_UP:
            each(mutable, log)
        engine.run_to_fixpoint(_NORMAL, mutable.operators)
        engine.run_to_fixpoint(_COMPOSITES, mutable.operators)
        shorten_moves(mutable, log)
        if mutable.version != settled:
            for part in subgraphs(mutable, _ALGEBRAIC_KINDS):
                engine.run_to_fixpoint(_ALGEBRA, part)
            settled = mutable.version
        if mutable.version == before:
            break
    return finished(mutable, log)


def rewrite_with(graph: Graph, rules: tuple[Rule, ...]) -> Rewriting:
    """Some rules alone, greedily, to a fixpoint."""
    log = Log()
    mutable = MutableGraph(graph)
    Engine(mutable, Facts(mutable), log).run_to_fixpoint(Index.of(rules), mutable.operators)
    mutable.drop_dead()
    return finished(mutable, log)


def finished(mutable: MutableGraph, log: Log) -> Rewriting:
    """The result; of the refusals those that still stand."""
    graph = mutable.finish()
    left = {operator.name for operator in graph.operators}
    return Rewriting(
        graph,
        tuple(log.applied),
        tuple(refusal for refusal in log.refused.values() if refusal.operator in left),
    )
